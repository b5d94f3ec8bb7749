//! `sealog-bench bare-http`: a server that is built like Sealog's and does nothing: it reads a request to its
//! end and answers always the same.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Args;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::http::client::unchunked;
use crate::outcome::Outcome;

#[derive(Args, Debug)]
pub struct BareHttpArgs {
    /// An answer of the real server, as it came; its status, headers and body are given to every request
    answer: PathBuf,
}

#[derive(Clone, Debug)]
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

pub fn run(args: &BareHttpArgs) -> Outcome<()> {
    let answer = Answer::read(&std::fs::read_to_string(&args.answer)?)?;
    let main = runtime()?;
    let listener = main.block_on(async { listen(SocketAddr::from(([127, 0, 0, 1], 0))) })?;
    let address = listener.local_addr()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 1..cores {
        let (runtime, answer) = (runtime()?, answer.clone());
        let listener = runtime.block_on(async { listen(address) })?;
        std::thread::spawn(move || runtime.block_on(serve(listener, answer)));
    }
    eprintln!("listening on {address}");
    main.block_on(serve(listener, answer));
    Ok(())
}

impl Answer {
    fn read(text: &str) -> Outcome<Answer> {
        let (head, body) = text.split_once("\r\n\r\n").ok_or("not an answer")?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.get(9..12)).ok_or("no status")?;
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            // Those that hyper writes itself.
            if !["content-length", "transfer-encoding", "date", "connection"]
                .contains(&name.to_ascii_lowercase().as_str())
            {
                headers.append(hyper::header::HeaderName::try_from(name)?, value.trim().parse()?);
            }
        }
        let body = Bytes::from(unchunked(head, body));
        Ok(Answer { status: status.parse()?, headers, body })
    }

    fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body.clone()));
        *response.status_mut() = self.status;
        *response.headers_mut() = self.headers.clone();
        response
    }
}

async fn serve(listener: TcpListener, answer: Answer) {
    // It ends with the process: whoever started it kills it.
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(connection(stream, answer.clone()));
    }
}

async fn connection(stream: TcpStream, answer: Answer) {
    let _ = stream.set_nodelay(true);
    let service = service_fn(|mut request: Request<Incoming>| {
        let answer = &answer;
        async move {
            while let Some(Ok(_)) = request.frame().await {}
            Ok::<_, Infallible>(answer.response())
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

fn runtime() -> Outcome<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

fn listen(address: SocketAddr) -> Outcome<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    Ok(socket.listen(4096)?)
}
