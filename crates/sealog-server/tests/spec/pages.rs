//! Pages that are handed to the server: any parameters, layers, forms and streams, on the same connections as
//! the API.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::Html;
use axum::routing::{any, get, post};
use axum::{Form, Router, middleware};

use crate::harness::*;

#[derive(serde::Deserialize)]
struct Login {
    name: String,
    next: String,
}

const FRAME: HeaderName = HeaderName::from_static("x-frame-options");

/// A sub-router with a header on all it answers, beside pages without.
fn pages() -> Router {
    let framed = Router::new()
        .route(
            "/people/{person}/cases/{case}",
            get(async |Path((person, case)): Path<(String, u64)>| Html(format!("<p>{person}: {case}</p>"))),
        )
        .route(
            "/login",
            post(async |Form(login): Form<Login>| format!("{} goes to {}", login.name, login.next)),
        )
        .layer(middleware::map_response(async |mut response: axum::response::Response| {
            response.headers_mut().insert(FRAME, HeaderValue::from_static("DENY"));
            response
        }));
    Router::new()
        .merge(framed)
        .route("/plain", get(async || "plain").post(async || StatusCode::NO_CONTENT))
        .route("/broken", get(async || -> &'static str { panic!("as planned") }))
}

fn with_pages(pages: Router) -> Service {
    Service::with(|setup| setup.pages = pages)
}

fn form(connection: &mut Connection, body: &str) -> Response {
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    connection.send(&request("POST", "/login", &headers, body.as_bytes()));
    connection.receive()
}

#[test]
fn a_page_has_any_number_of_parameters_and_its_answer_an_id() {
    let service = with_pages(pages());
    let page = service.get("/people/J%C3%BCrgen/cases/12", "");
    assert_eq!((page.status, page.body.as_str()), (200, "<p>Jürgen: 12</p>"));
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.request_id().starts_with("req_"));
}

#[test]
fn a_layer_touches_what_its_router_answers_and_nothing_else() {
    let service = with_pages(pages());
    assert_eq!(service.get("/people/a/cases/1", "").header("x-frame-options"), Some("DENY"));
    for path in ["/plain", "/v1/events", "/openapi.json", "/nowhere"] {
        assert_eq!(service.get(path, &service.live).header("x-frame-options"), None, "{path}");
    }
}

#[test]
fn a_form_is_read_and_one_that_is_too_large_or_no_form_leaves_the_connection_in_step() {
    let service = with_pages(pages());
    let mut connection = service.connect();
    let port = connection.local_port();
    assert_eq!(form(&mut connection, "name=Ada+L.&next=%2Fcases%3Fa%3D1").body, "Ada L. goes to /cases?a=1");
    assert_eq!(form(&mut connection, "name=Ada").status, 422);
    // As much as is read, and a byte more, which is still little enough to be dropped.
    let padded = |bytes: usize| format!("name=a&next={}", "x".repeat(bytes - 12));
    assert_eq!(form(&mut connection, &padded(64 << 10)).status, 200);
    assert_eq!(form(&mut connection, &padded((64 << 10) + 1)).status, 413);
    connection.get("/v1/events", &service.live).ok();
    assert_eq!(connection.local_port(), port);
    let too_much = form(&mut connection, &padded(1 << 20));
    assert_eq!((too_much.status, too_much.header("connection")), (413, Some("close")));
    assert!(connection.ended());
}

#[test]
fn a_form_that_nobody_reads_is_dropped() {
    let service = with_pages(pages());
    let mut connection = service.connect();
    connection.send(&request("POST", "/plain", &[], &[b'x'; 1000]));
    assert_eq!(connection.receive().status, 204);
    connection.get("/v1/events", &service.live).ok();
}

#[test]
fn a_form_that_does_not_arrive_in_time_ends_the_connection() {
    let service = Service::with(|setup| {
        setup.pages = pages();
        setup.config.deadlines.body = Duration::from_millis(50);
    });
    let mut connection = service.connect();
    connection.send(b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n\r\nname=");
    let answer = connection.receive();
    assert_eq!((answer.status, answer.header("connection")), (400, Some("close")));
    assert!(connection.ended());
}

#[test]
fn head_of_a_page_is_its_get_without_the_body() {
    let service = with_pages(pages());
    let mut connection = service.connect();
    connection.send(&request("HEAD", "/people/a/cases/1", &[], b""));
    let head = connection.receive_head();
    assert_eq!((head.status, head.header("content-length")), (200, Some("11")));
    connection.get("/v1/events", &service.live).ok();
}

#[test]
fn a_page_without_a_body_has_no_length() {
    let service = with_pages(pages());
    let answer = service.request("POST", "/plain", &[], b"");
    assert_eq!((answer.status, answer.header("content-length")), (204, None));
}

#[test]
fn a_path_that_neither_the_api_nor_a_page_has_is_not_found_and_a_wrong_method_not_allowed() {
    let service = with_pages(pages());
    for path in ["/", "/people", "/people/a/cases/", "/plain/"] {
        service.get(path, "").rejected(404, "request/not_found");
    }
    let answer = service.request("DELETE", "/plain", &[], b"");
    answer.rejected(405, "request/method_not_allowed");
    let mut allowed: Vec<&str> = answer.header("allow").unwrap().split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "POST"]);
}

#[test]
fn pages_that_take_every_path_take_none_of_the_apis() {
    let taken = Router::new().route("/", any(async || "page")).route("/{*rest}", any(async || "page"));
    let service = with_pages(taken);
    for path in ["/", "/people", "/v1", "/operator", "/operator/v2/tenants"] {
        assert_eq!(service.get(path, &service.live).body, "page", "{path}");
    }
    for path in [
        "/v1/",
        "/v1/nothing",
        "/v1/events/",
        "/v1/events/a/b",
        "/docs/nothing",
        "/operator/v1/",
        "/operator/v1/x",
    ] {
        service.get(path, TOKEN).rejected(404, "request/not_found");
    }
    service.get("/operator/v1/x", "").rejected(401, "auth/invalid_format");
    service.request("POST", "/v1/events/verify", &[], b"").rejected(405, "request/method_not_allowed");
    service.log(&service.live, LOGIN);
}

#[test]
fn a_page_passes_the_checks_that_every_request_passes() {
    let service = Service::with(|setup| {
        setup.pages = pages();
        setup.config.operator_token = None;
        setup.config.limits.per_ip_rps = 2;
    });
    assert_eq!(service.raw(b"GET /plain HTTP/1.1\r\n\r\n").json["error"]["code"], "request/malformed");
    assert_eq!(service.get("/plain", "").status, 200);
    assert_eq!(service.get("/plain", "").status, 200);
    service.get("/plain", "").rejected(429, "rate/ip_limit_exceeded");
}

#[test]
fn a_page_that_panics_fails_alone() {
    let service = with_pages(pages());
    service.get("/broken", "").rejected(500, "server/internal");
    assert_eq!(service.get("/plain", "").status, 200);
}

/// An export, for example, that contains what a server would say.
#[test]
fn content_that_looks_like_an_error_answer_streams_through_unchanged() {
    const LOOKALIKE: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let content = LOOKALIKE.repeat(3);
    let rows = content.clone();
    let export = async move |Path(cut): Path<usize>| {
        let rows: Vec<Bytes> = rows.as_bytes().chunks(cut).map(Bytes::copy_from_slice).collect();
        let (sender, receiver) = tokio::sync::mpsc::channel::<Bytes>(1);
        // Each row is written by itself: the next one comes when it has been taken.
        tokio::spawn(async move {
            for row in rows {
                let _ = sender.send(row).await;
                tokio::task::yield_now().await;
            }
        });
        ([("content-type", "text/csv")], Body::new(Rows(receiver)))
    };
    let service = with_pages(Router::new().route("/export/{cut}", get(export)));
    let mut connection = service.connect();
    for cut in [1, 7, LOOKALIKE.len() - 1, LOOKALIKE.len(), LOOKALIKE.len() + 1, 1000] {
        connection.send(&request("GET", &format!("/export/{cut}"), &[], b""));
        assert_eq!(connection.receive().body, content, "{cut}");
    }
    connection.send(b"nonsense\r\n\r\n");
    connection.receive().rejected(400, "request/malformed");
    assert!(connection.ended());
}

/// More than sockets hold, to a client that takes its time.
#[test]
fn what_follows_a_form_that_nobody_reads_changes_no_byte_of_its_answer() {
    let content = "HTTP/1.1 400 Bad Request\r\n\r\n".repeat(1 << 19);
    let page = content.clone();
    let service = Service::with(|setup| {
        setup.pages = Router::new().route("/long", post(async move || page.clone()));
        setup.config.deadlines.body = Duration::from_millis(50);
    });
    let head = "POST /long HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n";
    // The whole form: the next request follows.
    let mut connection = service.connect();
    connection.send(format!("{head}hinonsense\r\n\r\n").as_bytes());
    let answer = connection.receive();
    assert!(answer.body == content);
    connection.receive().rejected(400, "request/malformed");
    assert!(connection.ended());
    // A form that comes when it is too late: nothing follows.
    let mut connection = service.connect();
    connection.send(format!("{head}h").as_bytes());
    let answer = connection.receive_head();
    assert_eq!(answer.header("connection"), Some("close"));
    connection.send(b"inonsense\r\n\r\n");
    assert!(connection.exactly(content.len()) == content.as_bytes());
    assert!(connection.ended());
}

struct Rows(tokio::sync::mpsc::Receiver<Bytes>);

impl hyper::body::Body for Rows {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|row| row.map(|row| Ok(hyper::body::Frame::data(row))))
    }
}
