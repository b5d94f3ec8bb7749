//! What a stop does to connections.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use sealog_testing::{Gate, Opener};

use crate::harness::{Service, bearer, eventually, request};

#[test]
fn requests_that_have_arrived_when_the_server_stops_are_answered() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let service = Service::with(|setup| {
        // Holds up the only event loop, as a busy machine does.
        let hold = move || {
            held.pass();
            std::future::ready("held")
        };
        setup.pages = Router::new().route("/hold", get(hold));
    });
    let ask = request("GET", "/v1/events", &[("Authorization", &bearer(&service.live))], b"");
    // Accepted before the next one, whose answer shows that it was.
    let mut silent = service.connect();
    let mut idle = service.connect();
    idle.get("/v1/events", &service.live).ok();
    gate.close();
    let opener = Opener(&gate);
    let mut holding = service.connect();
    holding.send(&request("GET", "/hold", &[], b""));
    eventually(|| gate.waiting() == 1);
    // Nobody reads any of these before the stop.
    let mut waiting_in_the_kernel = service.connect();
    for connection in [&mut silent, &mut idle, &mut waiting_in_the_kernel] {
        connection.send(&ask);
    }
    service.begin_stop();
    drop(opener);
    assert_eq!(holding.receive().body, "held");
    for mut connection in [silent, idle, waiting_in_the_kernel] {
        connection.receive().ok();
        assert!(connection.ended());
    }
}
