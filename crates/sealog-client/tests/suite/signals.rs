use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use sealog_testing::examples::example;

/// A process with two clients that a signal closes, of which the second waits for a line; and what it writes.
fn start(milliseconds: &str) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut program = Command::new(example("signalled"));
    program.arg(milliseconds).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = program.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    (child, lines)
}

fn send(signal: &str, child: &Child) {
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_lets_all_clients_send_what_is_queued_and_then_ends_the_process() {
    for (signal, code) in [("-TERM", 143), ("-INT", 130)] {
        let (mut child, mut lines) = start("60000");
        send(signal, &child);
        assert_eq!(lines.next().unwrap().unwrap(), "quick stored", "{signal}");
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(rest, ["slow stored"], "{signal}");
        assert_eq!(child.wait().unwrap().code(), Some(code), "{signal}");
    }
}

#[test]
fn a_signal_waits_no_longer_than_it_was_told_and_what_was_not_sent_ends_as_an_error() {
    let (mut child, lines) = start("1");
    send("-TERM", &child);
    let mut rest: Vec<String> = lines.map(Result::unwrap).collect();
    rest.retain(|line| line.starts_with("slow"));
    assert_eq!(rest, ["slow client/closed"]);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
