//! What a stop and a deadline do to connections whose request has arrived.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use sealog_testing::{Gate, Opener};

use crate::harness::{Service, Setup, bearer, eventually, request};

/// A service whose only event loop a request for `/hold` holds up at the gate, as a busy machine does.
fn holding(gate: &Arc<Gate>, change: impl FnOnce(&mut Setup)) -> Service {
    let held = Arc::clone(gate);
    Service::with(|setup| {
        let hold = move || {
            held.pass();
            std::future::ready("held")
        };
        setup.pages = Router::new().route("/hold", get(hold));
        change(setup);
    })
}

#[test]
fn requests_that_have_arrived_when_the_server_stops_are_answered() {
    let gate = Arc::new(Gate::default());
    let service = holding(&gate, |_| {});
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

/// One that the server has accepted and has no place for, and those behind it that only the kernel has.
#[test]
fn requests_that_wait_for_a_place_when_the_server_stops_are_answered() {
    let (go_on, held) = tokio::sync::watch::channel(false);
    let is_held = Arc::new(AtomicBool::new(false));
    let holds = Arc::clone(&is_held);
    let service = Service::with(|setup| {
        let wait = move || {
            holds.store(true, Ordering::SeqCst);
            let mut held = held.clone();
            async move {
                let _ = held.wait_for(|is_over| *is_over).await;
                "held"
            }
        };
        setup.pages = Router::new().route("/hold", get(wait));
        setup.config.connections_max = 1;
        setup.config.limits.connections_per_ip = 0;
    });
    let ask = request("GET", "/v1/events", &[("Authorization", &bearer(&service.live))], b"");
    let mut holding = service.connect();
    holding.send(&request("GET", "/hold", &[], b""));
    eventually(|| is_held.load(Ordering::SeqCst));
    let waiting = [(); 3].map(|()| {
        let mut waiting = service.connect();
        waiting.send(&ask);
        waiting
    });
    service.begin_stop();
    go_on.send(true).unwrap();
    assert_eq!(holding.receive().body, "held");
    for mut connection in waiting {
        connection.receive().ok();
        assert!(connection.ended());
    }
}

/// A connection that seems idle makes room for a new one, but not if it has said something meanwhile.
#[test]
fn a_request_that_has_arrived_on_a_connection_that_must_make_room_is_answered() {
    let gate = Arc::new(Gate::default());
    let service = holding(&gate, |setup| setup.config.limits.connections_per_ip = 2);
    let ask = request("GET", "/v1/events", &[("Authorization", &bearer(&service.live))], b"");
    // Of another address than the connections by which the service was set up.
    let mut idle = [(); 2].map(|()| service.connect_from("127.0.0.2"));
    for connection in &mut idle {
        connection.get("/v1/events", &service.live).ok();
    }
    gate.close();
    let opener = Opener(&gate);
    let mut holding = service.connect();
    holding.send(&request("GET", "/hold", &[], b""));
    eventually(|| gate.waiting() == 1);
    for connection in &mut idle {
        connection.send(&ask);
    }
    let mut new = service.connect_from("127.0.0.2");
    new.send(&ask);
    drop(opener);
    assert_eq!(holding.receive().body, "held");
    for mut connection in idle.into_iter().chain([new]) {
        connection.receive().ok();
    }
}

/// The deadlines of a first byte and of headers end in the event loop, which may have been busy elsewhere
/// when the bytes came: they are for clients that are late, and not for servers that are.
#[test]
fn requests_that_have_arrived_while_the_event_loop_was_held_up_are_answered_behind_their_deadlines() {
    const DEADLINE: Duration = Duration::from_secs(1);
    let gate = Arc::new(Gate::default());
    let service = holding(&gate, |setup| {
        setup.config.deadlines.first_byte = DEADLINE;
        setup.config.deadlines.headers = DEADLINE;
    });
    let ask = request("GET", "/v1/events", &[("Authorization", &bearer(&service.live))], b"");
    let (begun, ended) = ask.split_at(ask.len() / 2);
    for _ in 0..20 {
        let connected = Instant::now();
        let (mut silent, mut halfway, mut idle) = (service.connect(), service.connect(), service.connect());
        halfway.send(begun);
        // Its answer shows that those before it were accepted.
        idle.get("/v1/events", &service.live).ok();
        gate.close();
        let opener = Opener(&gate);
        let mut holding = service.connect();
        holding.send(&request("GET", "/hold", &[], b""));
        eventually(|| gate.waiting() == 1);
        // Where this machine was too slow, the deadlines have ended before the event loop was held up.
        let is_in_time = connected.elapsed() < DEADLINE;
        silent.send(&ask);
        halfway.send(ended);
        idle.send(&ask);
        let sent = Instant::now();
        eventually(|| !is_in_time || sent.elapsed() > 2 * DEADLINE);
        drop(opener);
        assert_eq!(holding.receive().body, "held");
        if is_in_time {
            for mut connection in [silent, halfway, idle] {
                connection.receive().ok();
            }
            return;
        }
    }
    panic!("this machine is too slow for deadlines of {DEADLINE:?}");
}
