use sealog_client::{Client, Event, Options};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::options;

const ANSWER: &str = "HTTP/1.1 202 Accepted\r\nSealog-Chain-Seq: 1\r\nSealog-Hash: 0\r\nContent-Length: 30\r\n\r\n{\"request_id\":\"\",\"log_id\":\"1\"}";

/// Up to the end of its body, an object.
async fn request(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut read).await.unwrap(), 0, "a request has an end");
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn a_kept_connection_that_ends_under_a_request_costs_no_attempt_and_the_key_stays() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let mut requests = Vec::new();
        let (mut first, _) = listener.accept().await.unwrap();
        requests.push(request(&mut first).await);
        first.write_all(ANSWER.as_bytes()).await.unwrap();
        requests.push(request(&mut first).await);
        drop(first);
        let (mut second, _) = listener.accept().await.unwrap();
        requests.push(request(&mut second).await);
        second.write_all(ANSWER.as_bytes()).await.unwrap();
        requests
    });
    let client = Client::new(Options { url, max_attempts: 1, ..options() }).unwrap();
    for resource in ["first", "second"] {
        client.log(Event::new("document.updated").resource(resource)).await.unwrap();
    }
    let requests = served.await.unwrap();
    assert!(requests[1].contains("second"), "{requests:?}");
    assert_eq!(requests[1], requests[2]);
}
