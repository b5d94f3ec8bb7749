//! The HTTP of those who test the running program from outside: one request on one connection, to it or from
//! it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::waiting::PATIENCE;

/// A whole answer, head and body.
pub fn raw(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Status and body of an answer.
pub fn parse(answer: &str) -> (u16, String) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
    (head[9..12].parse().unwrap(), body.to_owned())
}

pub fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() || method != "GET" {
        request.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    parse(&raw(address, &format!("{request}\r\n{body}")))
}

/// The next request that comes to a listener, head and body, answered with this status.
pub fn receive(listener: &TcpListener, status: &str) -> (String, String) {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 16 << 10]);
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the connection ended in the middle of a request");
        received.extend_from_slice(&buffer[..count]);
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&received[..end]).unwrap().to_owned();
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
        });
        let body = &received[end + 4..];
        if body.len() == length.unwrap_or(0) {
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").unwrap();
            return (head, String::from_utf8(body.to_vec()).unwrap());
        }
    }
}
