use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::Request;
use sealog_client::testing::Recorder;
use sealog_client::tower::ContextLayer;
use sealog_client::{Client, Event, Options, TrustedProxies};
use tower_layer::Layer;
use tower_service::Service;

use crate::options;

/// A handler that logs.
#[derive(Clone)]
struct Handler(Client);

impl Service<Request<()>> for Handler {
    type Response = ();
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<(), Infallible>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            client.log(Event::new("user.login")).await.unwrap();
            client.enqueue(Event::new("user.logout").actor_id("mine")).await.unwrap();
            Ok(())
        })
    }
}

#[tokio::test(flavor = "current_thread")]
async fn events_of_a_request_have_what_it_knows_and_others_have_not() {
    let recorder = Recorder::with(Options { trace_metadata: true, ..options() });
    let layer = ContextLayer::new(|_| Some(IpAddr::from([10, 0, 0, 1])))
        .trusted_proxies(TrustedProxies::parse(["10.0.0.0/8"]).unwrap())
        .actor(|parts| parts.headers.get("x-user")?.to_str().ok().map(str::to_owned))
        .session(|_| Some("s-1".into()));
    let mut service = layer.layer(Handler(recorder.client().clone()));
    let request = Request::builder()
        .header("x-user", "u-17")
        .header("x-request-id", "r-1")
        .header("x-forwarded-for", "6.6.6.6, 192.0.2.9")
        .header("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    service.call(request.body(()).unwrap()).await.unwrap();
    recorder.client().log(Event::new("user.login")).await.unwrap();
    let known = |action: &str| {
        Event::new(action)
            .session_id("s-1")
            .with("ip_address", "192.0.2.9")
            .with("request_id", "r-1")
            .with("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736")
            .with("span_id", "00f067aa0ba902b7")
    };
    recorder.assert_logged(1, &known("user.login").actor_id("u-17")).await;
    recorder.assert_logged(1, &known("user.logout").actor_id("mine")).await;
    recorder.assert_logged(3, &Event::default()).await;
}

#[tokio::test(flavor = "current_thread")]
async fn no_header_of_a_client_makes_an_event_invalid() {
    let recorder = Recorder::with(options());
    let layer = ContextLayer::new(|_| None);
    let mut service = layer.layer(Handler(recorder.client().clone()));
    let long = vec![0xff; 10_000];
    let request = Request::builder().header("x-request-id", &long[..]).header("traceparent", &long[..]);
    service.call(request.body(()).unwrap()).await.unwrap();
    let events = recorder.events().await;
    assert_eq!(events.len(), 2);
    assert_eq!(events[0].metadata["request_id"].as_str().unwrap(), "\u{fffd}".repeat(255));
}
