//! `sealog log` beside a service that is slow, full, or loses its answers: nothing that was read is lost, and
//! nothing counts twice.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::stage::*;

/// What happens to a request on its way.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// The service is asked too much.
    Busy,
    /// A proxy whose service is away.
    Away,
    /// The service has done it, and nobody hears of it.
    LostAnswer,
    /// The connection ends before the service has heard anything.
    Unheard,
    /// Half an answer.
    Cut,
    /// Nobody has paid for it.
    Unpaid,
}

/// Stands between the command and the service, and spoils the first requests, one by one.
fn spoiled(service: &str, faults: &'static [Fault]) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (service, seen) = (service.to_owned(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&seen);
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let (service, seen) = (service.clone(), Arc::clone(&counted));
            std::thread::spawn(move || {
                while let Some(request) = request(&client) {
                    let at = seen.fetch_add(1, Ordering::Relaxed);
                    let fault = faults.get(at).copied().unwrap_or(Fault::None);
                    if !answered(&client, &service, &request, fault) {
                        return;
                    }
                }
            });
        }
    });
    (address, seen)
}

/// Head and body of the next request.
fn request(client: &TcpStream) -> Option<Vec<u8>> {
    let mut reader = BufReader::new(client);
    let (mut head, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(text) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = text.trim().parse().unwrap();
        }
        head.extend_from_slice(line.as_bytes());
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    head.extend_from_slice(&body);
    Some(head)
}

/// Whether the connection goes on.
fn answered(mut client: &TcpStream, service: &str, request: &[u8], fault: Fault) -> bool {
    let refused = |status: &str, code: &str| {
        let body = format!("{{\"error\":{{\"code\":\"{code}\",\"message\":\"later\"}}}}");
        format!("HTTP/1.1 {status}\r\nRetry-After: 0\r\nContent-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    };
    let forwarded = || {
        let mut upstream = TcpStream::connect(service).unwrap();
        let text = String::from_utf8_lossy(request).replacen("\r\n", "\r\nConnection: close\r\n", 1);
        upstream.write_all(text.as_bytes()).unwrap();
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).unwrap();
        answer
    };
    match fault {
        Fault::Unheard => false,
        Fault::Busy => client.write_all(&refused("429 Too Many Requests", "rate/limit_exceeded")).is_ok(),
        Fault::Unpaid => {
            client.write_all(&refused("402 Payment Required", "subscription/trial_expired")).is_ok()
        }
        Fault::Away => {
            client.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\ngone").is_ok()
        }
        Fault::LostAnswer => {
            forwarded();
            false
        }
        Fault::Cut => {
            let answer = forwarded();
            let _ = client.write_all(&answer[..answer.len() / 2]);
            false
        }
        Fault::None => {
            let _ = client.write_all(&forwarded());
            false
        }
    }
}

#[test]
fn a_service_that_is_busy_or_away_or_loses_its_answers_gets_each_line_once_and_in_order() {
    const FAULTS: [Fault; 8] = [
        Fault::LostAnswer,
        Fault::Busy,
        Fault::None,
        Fault::Cut,
        Fault::Away,
        Fault::None,
        Fault::Unheard,
        Fault::LostAnswer,
    ];
    let stage = Stage::new();
    let (address, seen) = spoiled(&stage.address, &FAULTS);
    let url = format!("http://{address}");
    let (code, said, noted) =
        stage.piped(&["log", "--file", "-", "--url", &url, "--retries", "9"], &lines(600));
    assert_eq!((code, noted.as_str()), (Some(0), ""), "{noted}");
    assert_eq!(said.lines().count(), 600);
    assert!(seen.load(Ordering::Relaxed) >= 6 + FAULTS.len() - 2, "every fault was met");
    assert_eq!(actors(&stage), expected(600));
}

#[test]
fn a_service_that_stays_full_ends_it_with_5_and_what_was_read_is_in_the_spool() {
    let stage = Stage::new();
    let (address, _) = spoiled(&stage.address, &[Fault::Busy; 40]);
    let url = format!("http://{address}");
    let spool = stage.path("spool");
    let args = ["log", "--file", "-", "--url", &url, "--retries", "0", "--spool", &spool];
    let (code, said, noted) = stage.piped(&args, &lines(320));
    assert_eq!((code, said.as_str()), (Some(5), ""), "{noted}");
    assert!(noted.contains("rate/limit_exceeded") && noted.contains("320 events wait in"), "{noted}");
    assert_eq!(stage.events().len(), 0);
    // With the same spool and a service that has room again.
    let (code, _, noted) = stage.piped(&["log", "--file", "-", "--spool", &spool], "");
    assert_eq!(code, Some(0), "{noted}");
    assert_eq!(actors(&stage), expected(320));
}

/// More requests than a service takes in a second are what its limit is for: they come later, and none of
/// them is given up.
#[test]
fn a_limit_of_requests_is_waited_for_however_often_it_refuses() {
    let stage = Stage::new();
    stage.piped(&["log", "--file", "-"], &lines(1));
    let project = stage.events()[0]["project_id"].as_str().unwrap().to_owned();
    let limited_to = |rate: &str| {
        let change = ["admin", "project", "change", &project, "--rate-limit-rps", rate];
        assert_eq!(stage.operate(&change).0, Some(0));
    };
    limited_to("2");
    let (address, seen) = spoiled(&stage.address, &[]);
    let (url, spool) = (format!("http://{address}"), stage.path("spool"));
    // One retry, and each of twelve batches is refused more often than that.
    let mut args = vec!["log", "--file", "-", "--url", &url, "--retries", "1", "--spool", &spool];
    args.extend(["--in-flight", "8", "--quiet"]);
    let (code, said, noted) = stage.piped(&args, &lines(1200));
    assert_eq!((code, said.lines().count(), noted.as_str()), (Some(0), 1200, ""), "{noted}");
    assert!(seen.load(Ordering::Relaxed) > 12 + 12, "it was refused: {seen:?}");
    limited_to("plan");
    let mut all = actors(&stage);
    all.sort();
    let mut once = [expected(1), expected(1200)].concat();
    once.sort();
    assert_eq!(all, once);
}

#[test]
fn a_service_that_does_not_answer_in_time_is_one_that_is_away() {
    let stage = Stage::new();
    // Takes connections, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let spool = stage.path("spool");
    let args = ["log", "--file", "-", "--url", &url, "--retries", "0", "--timeout", "1", "--spool", &spool];
    let (code, _, noted) = stage.piped(&args, &lines(30));
    assert!(code == Some(5) && noted.contains("did not respond within 1 s"), "{noted}");
    let (code, _, _) = stage.piped(&["log", "--file", "-", "--spool", &spool], &lines(0));
    assert_eq!(code, Some(0));
    assert_eq!(actors(&stage), expected(30));
}

#[test]
fn a_service_that_is_not_paid_for_ends_it_with_1_and_what_was_read_is_in_the_spool() {
    let stage = Stage::new();
    let (address, _) = spoiled(&stage.address, &[Fault::Unpaid; 40]);
    let (url, spool) = (format!("http://{address}"), stage.path("spool"));
    let (code, _, noted) =
        stage.piped(&["log", "--file", "-", "--url", &url, "--spool", &spool], &lines(130));
    assert_eq!(code, Some(1), "{noted}");
    assert!(noted.contains("subscription/trial_expired") && noted.contains("130 events wait in"), "{noted}");
    let (code, _, _) = stage.piped(&["log", "--file", "-", "--spool", &spool], "");
    assert_eq!(code, Some(0));
    assert_eq!(actors(&stage), expected(130));
}

#[test]
fn a_batch_with_lines_that_are_not_taken_needs_one_more_request_for_each_of_them() {
    let stage = Stage::new();
    let mut input: Vec<String> = lines(100).lines().map(str::to_owned).collect();
    input[5] = r#"{"action":"no.such"}"#.into();
    input[99] = r#"{"action":"user.login","actor_id":5}"#.into();
    let (address, seen) = spoiled(&stage.address, &[]);
    let url = format!("http://{address}");
    let (code, said, noted) =
        stage.piped(&["log", "--file", "-", "--url", &url, "--json"], &(input.join("\n") + "\n"));
    assert_eq!((code, said.lines().count()), (Some(6), 98), "{noted}");
    // The place in the request is nothing to those who know the line.
    assert!(noted.contains("line 6: action/invalid: ") && !noted.contains("event["), "{noted}");
    assert!(noted.contains("line 100: validation/invalid_field: "), "{noted}");
    assert_eq!(seen.load(Ordering::Relaxed), 3);
    let mut all = expected(99);
    all.remove(5);
    assert_eq!(actors(&stage), all);
}

#[test]
fn of_a_batch_that_was_spoiled_only_the_rest_is_kept_and_nothing_is_told_or_sealed_twice() {
    let mut stage = Stage::new();
    stage.stop();
    let spool = stage.path("spool");
    let mut input: Vec<String> = lines(250).lines().map(str::to_owned).collect();
    input[7] = r#"{"action":"no.such"}"#.into();
    let input = input.join("\n") + "\n";
    let (code, _, _) = stage.piped(&["log", "--file", "-", "--retries", "0", "--spool", &spool], &input);
    assert_eq!(code, Some(5));
    stage.restart();
    // The service refuses one event, takes the others, and nobody hears of that.
    let (address, _) = spoiled(&stage.address, &[Fault::None, Fault::LostAnswer, Fault::Busy]);
    let url = format!("http://{address}");
    let args = ["log", "--file", "/dev/null", "--url", &url, "--retries", "0", "--spool", &spool];
    let (code, _, noted) = stage.run(&args);
    assert_eq!(code, Some(5), "{noted}");
    assert!(noted.contains("action/invalid") && noted.contains("249 events wait in"), "{noted}");
    let (code, _, noted) = stage.run(&["log", "--file", "/dev/null", "--spool", &spool]);
    assert_eq!(code, Some(0), "{noted}");
    assert!(!noted.contains("action/invalid"), "{noted}");
    let mut all = expected(250);
    all.remove(7);
    assert_eq!(actors(&stage), all);
}

#[test]
fn what_can_neither_be_sent_nor_kept_is_tried_once_more_before_it_is_given_up() {
    let stage = Stage::new();
    let (address, _) = spoiled(&stage.address, &[Fault::Unheard]);
    let (url, file) = (format!("http://{address}"), stage.path("input"));
    std::fs::write(&file, lines(250)).unwrap();
    let args = ["log", "--file", &file, "--url", &url, "--retries", "0", "--spool", "/proc/nowhere/spool"];
    let (code, said, noted) = stage.run(&args);
    assert_eq!((code, said.lines().count()), (Some(1), 250), "{noted}");
    assert!(noted.contains("cannot use /proc/nowhere/spool"), "{noted}");
    assert!(!noted.contains("neither sent nor kept"), "{noted}");
    assert_eq!(actors(&stage), expected(250));
}
