//! The system chain and `kill -9`: what was acknowledged as changed is in it, once and in order, wherever the
//! process was.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Running, data_dir, sealog, start};
use sealog_control::Control;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::Filter;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{List, Store, verify};
use serde_json::{Value, json};

const TOKEN: &str = "the token of the operator";

fn serve(data: &Path) -> Running {
    let mut command = sealog();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN).env("SEALOG_LIMITS_PER_IP_RPS", "0");
    start(command)
}

/// Nothing if the server was killed meanwhile.
fn operator(address: &str, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} /operator/v1{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.get(9..12)?.parse().ok()?, serde_json::from_str(body).ok()?))
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[test]
fn kill_9_between_a_change_and_its_event_loses_nothing_and_doubles_nothing() {
    let (_dir, data) = data_dir();
    let running = serve(&data);
    let (status, tenant) = operator(&running.address, "POST", "/tenants", &json!({"name": "0"})).unwrap();
    assert_eq!(status, 201);
    let tenant_id = tenant["tenant_id"].as_str().unwrap().to_owned();
    let path = format!("/tenants/{tenant_id}");
    let mut server = Some(running);
    let mut acknowledged: Vec<String> = Vec::new();
    for (round, killed_after) in [1, 7, 2, 20, 3].into_iter().enumerate() {
        let running = server.take().unwrap_or_else(|| serve(&data));
        let (address, done) = (running.address.clone(), Arc::new(AtomicUsize::new(0)));
        let (counted, path) = (Arc::clone(&done), path.clone());
        // It goes on until the server is gone.
        let changing = std::thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for n in 0.. {
                let name = format!("{round}-{n}");
                match operator(&address, "PATCH", &path, &json!({ "name": name })) {
                    Some((200, _)) => acknowledged.push(name),
                    _ => return acknowledged,
                }
                counted.fetch_add(1, Ordering::SeqCst);
            }
            acknowledged
        });
        while done.load(Ordering::SeqCst) < killed_after {
            assert!(!changing.is_finished(), "the server has ended by itself");
            std::thread::yield_now();
        }
        // SIGKILL.
        drop(running);
        acknowledged.extend(changing.join().unwrap());
    }
    // The last start drains what the kills have left.
    let running = serve(&data);
    running.await_drained();
    running.stop();

    let store = EmbeddedStore::open(&data, &Options::default()).unwrap();
    let control = Control::embedded(&store).unwrap();
    let tenant_id = TenantId(Uuid::parse(&tenant_id).unwrap());
    let reserved = control.system_project(tenant_id, ProjectId::system_from_random([1; 16]));
    let chain = ChainId { tenant_id, project_id: wait(reserved).unwrap().unwrap(), mode: Mode::Live };
    assert!(wait(verify::whole(&store, chain)).unwrap().valid());
    let list = List { filter: Filter::default(), before_seq: None, limit: 100_000, bytes_max: 64 << 20 };
    let chunk = wait(store.list(chain, list)).unwrap();
    assert_eq!(chunk.resume, None);
    let metadata = |event: &StoredEvent| serde_json::from_str(event.text.fields().metadata.unwrap()).unwrap();
    let events: Vec<Value> = chunk.items.iter().rev().map(metadata).collect();
    // Each tells of the name that the one before it has left, so none is missing, doubled or overtaken.
    let mut names = vec!["0".to_owned()];
    for event in &events[1..] {
        assert_eq!(event["name"]["from"], names.last().unwrap().as_str());
        names.push(event["name"]["to"].as_str().unwrap().to_owned());
    }
    assert!(acknowledged.iter().all(|name| names.contains(name)), "{acknowledged:?} {names:?}");
    // Beyond those, at most the one change of each round whose answer the kill has cut off.
    assert!(names.len() - 1 - acknowledged.len() <= 5, "{} {}", names.len(), acknowledged.len());
}
