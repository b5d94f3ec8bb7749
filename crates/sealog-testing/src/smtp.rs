//! A real mail server, in a process of its own, that can be dead, alive, unwilling or dead again.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::net::TcpSocket;

use crate::waiting::eventually;

/// A port that stays the test's while nobody listens on it.
#[derive(Debug)]
pub struct MailPort {
    port: u16,
    _held: TcpSocket,
}

impl MailPort {
    pub fn hold() -> MailPort {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseport(true).unwrap();
        socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        MailPort { port: socket.local_addr().unwrap().port(), _held: socket }
    }

    pub fn url(&self) -> String {
        format!("smtp://127.0.0.1:{}", self.port)
    }

    pub fn number(&self) -> u16 {
        self.port
    }

    pub fn start(&self) -> MailServer {
        self.start_with(&[])
    }

    /// With STARTTLS, under this certificate and key.
    pub fn start_with_tls(&self, certificate: &Path, key: &Path) -> MailServer {
        self.start_with(&[certificate, key])
    }

    fn start_with(&self, files: &[&Path]) -> MailServer {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/smtp_server.py");
        let mut child = Command::new("python3")
            .arg(script)
            .arg(self.port.to_string())
            .args(files)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 is needed for the tests; scripts/setup installs what is missing");
        let orders = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said: Arc<Mutex<Vec<Value>>> = Arc::default();
        let saying = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                saying.lock().unwrap().push(serde_json::from_str(&line).unwrap());
            }
        });
        let mut server = MailServer { child, orders, said };
        eventually("the mail server listens", || {
            let ended = server.child.try_wait().unwrap();
            assert!(ended.is_none(), "no mail server: is aiosmtpd installed? scripts/setup does it");
            server.has_done("listen")
        });
        server
    }
}

#[derive(Debug)]
pub struct MailServer {
    child: Child,
    orders: ChildStdin,
    said: Arc<Mutex<Vec<Value>>>,
}

impl MailServer {
    /// `accept`, `answer CODE TEXT` or `hold`.
    pub fn order(&mut self, order: &str) {
        self.said.lock().unwrap().retain(|line| line["did"] != order);
        writeln!(self.orders, "{order}").unwrap();
        eventually("the mail server follows its orders", || self.has_done(order));
    }

    fn has_done(&self, order: &str) -> bool {
        self.said.lock().unwrap().iter().any(|line| line["did"] == order)
    }

    /// Mails for this address that were answered so, in the order of their arrival.
    pub fn mails(&self, to: &str, answer: &str) -> Vec<MailSeen> {
        let said = self.said.lock().unwrap();
        let for_them = said.iter().filter(|line| line["recipients"][0] == to);
        for_them.filter(|line| line["answer"] == answer).map(|line| MailSeen(line.clone())).collect()
    }

    pub fn taken(&self, to: &str) -> Vec<MailSeen> {
        self.mails(to, "250 OK")
    }
}

impl Drop for MailServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mail as the server saw it.
#[derive(Clone, Debug)]
pub struct MailSeen(pub Value);

impl MailSeen {
    pub fn headers(&self, name: &str) -> Vec<String> {
        let headers = self.0["headers"].as_array().unwrap().iter();
        headers
            .filter(|header| header[0] == name)
            .map(|header| header[1].as_str().unwrap().to_owned())
            .collect()
    }

    #[track_caller]
    pub fn header(&self, name: &str) -> String {
        let [value] = <[String; 1]>::try_from(self.headers(name)).unwrap();
        value
    }

    pub fn body(&self) -> &str {
        self.0["body"].as_str().unwrap()
    }

    pub fn html(&self) -> &str {
        self.0["html"].as_str().unwrap()
    }
}
