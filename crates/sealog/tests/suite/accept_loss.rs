//! `sealog accept-loss` as an operator meets it.

use crate::support::*;
use sealog_control::Control;
use sealog_core::event::{StoredEvent, parse_single};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::Filter;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::{Append, BoxFuture, List, Store};

#[test]
fn a_loss_is_named_accepted_and_the_chain_goes_on() {
    let (_dir, data) = data_dir();
    let (key, project, events) = with_a_loss(&data);
    let chain = format!("{project}:live");
    let hash = events[0]["hash"].as_str().unwrap();
    let (code, said, error) = accept(&data, &["--chain", &chain, "--reason", "the disk was replaced"]);
    assert_eq!((code, &*error), (Some(0), ""));
    assert!(said.contains("events 6 to 8 are lost (3 events)") && said.contains(hash), "{said}");
    assert!(said.contains("accepted as event 6"), "{said}");

    let (code, said, error) = accept(&data, &["--chain", &chain, "--reason", "again"]);
    assert_eq!((code, &*said), (Some(1), ""));
    assert!(error.contains("no proven loss"), "{error}");

    let server = serve(&data);
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true,"checked":6"#), "{body}");
    let (_, body) = server.get(&key, "/v1/events?action=sealog.loss_accepted");
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let metadata = &body["events"][0]["metadata"];
    let wanted = serde_json::json!({
        "lost_from": 6, "lost_to": 8, "recorded_hash": hash, "reason": "the disk was replaced"
    });
    assert_eq!(*metadata, wanted);
    assert_eq!(server.post(&key).0, 202);
    server.await_drained();
    server.stop();

    // Who lets a chain go on has given the order under a name, also on the host; what was refused is no
    // order.
    let tenant_id = TenantId(Uuid::parse(events[0]["tenant_id"].as_str().unwrap()).unwrap());
    let orders = system_events(&data, tenant_id, "sealog.loss_acceptance_ordered");
    let [order] = &orders[..] else { panic!("{orders:?}") };
    assert_eq!((&order["actor_id"], &order["actor_type"]), (&"host".into(), &"host".into()));
    assert_eq!(order["resource"], format!("project/{project}"));
    let metadata = &order["metadata"];
    let lost = (&metadata["lost_from"], &metadata["lost_to"], &metadata["recorded_hash"]);
    assert_eq!(lost, (&6.into(), &8.into(), &hash.into()));
    assert_eq!(metadata.get("reason"), None, "the reason is in the chain itself");
}

fn wait<T>(future: BoxFuture<'_, T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

/// What a stopped store has in a tenant's system chain under this action, newest first.
fn system_events(data: &std::path::Path, tenant_id: TenantId, action: &str) -> Vec<serde_json::Value> {
    let store = EmbeddedStore::open(data, &Options::default()).unwrap();
    let control = Control::embedded(&store).unwrap();
    let reserved = control.system_project(tenant_id, ProjectId::system_from_random([1; 16]));
    let chain = ChainId { tenant_id, project_id: wait(reserved).unwrap().unwrap(), mode: Mode::Live };
    let filter = Filter { action: Some(format!("\"{action}\"")), ..Filter::default() };
    let list = List { filter, before_seq: None, limit: 100, bytes_max: 1 << 20 };
    let items = wait(store.list(chain, list)).unwrap().items;
    let parsed = |event: &StoredEvent| {
        let mut json = Vec::new();
        event.put_json(&mut json);
        serde_json::from_slice(&json).unwrap()
    };
    items.iter().map(parsed).collect()
}

#[test]
fn machines_get_one_json_object_and_the_tenants_form_of_a_chain_works_too() {
    let (_dir, data) = data_dir();
    let (_, project, events) = with_a_loss(&data);
    let tenant = events[0]["tenant_id"].as_str().unwrap();
    let chain = format!("{tenant}/{project}/live");
    let reason = "a \"quoted\"\nreason";
    let (code, said, error) = accept(&data, &["--json", "--chain", &chain, "--reason", reason]);
    assert_eq!((code, &*error), (Some(0), ""));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    for (name, value) in [
        ("tenant_id", tenant.into()),
        ("project_id", project.as_str().into()),
        ("mode", "live".into()),
        ("lost_from", serde_json::json!(6)),
        ("lost_to", serde_json::json!(8)),
        ("recorded_hash", events[0]["hash"].clone()),
        ("reason", reason.into()),
    ] {
        assert_eq!(said[name], value, "{name}");
    }
    assert_eq!(said["accepted"]["chain_seq"], 6);
}

#[test]
fn what_cannot_be_meant_is_refused_and_changes_nothing() {
    let (_dir, data) = data_dir();
    let (key, project, _) = with_a_loss(&data);
    let chain = format!("{project}:live");
    let unknown = "22222222-2222-4222-8222-222222222222";
    for (args, code, with) in [
        (vec!["--chain", &chain, "--reason", ""], 2, "--reason"),
        (vec!["--chain", &chain, "--reason", " \n "], 2, "--reason"),
        (vec!["--chain", &chain], 2, "--reason"),
        (vec!["--reason", "x"], 2, "--chain"),
        (vec!["--chain", &project, "--reason", "x"], 2, "PROJECT_ID:live"),
        (vec!["--chain", &format!("{unknown}:live"), "--reason", "x"], 4, "there is no project"),
        (vec!["--chain", &format!("{unknown}/{project}/live"), "--reason", "x"], 2, "another tenant"),
        (vec!["--chain", &format!("{project}:test"), "--reason", "x"], 1, "no proven loss"),
    ] {
        let (ended, said, error) = accept(&data, &args);
        assert_eq!((ended, &*said), (Some(code), ""), "{args:?} {error}");
        assert!(error.contains(with), "{args:?} {error}");
    }
    let server = serve(&data);
    assert_eq!(server.post(&key).0, 500);
    server.stop();
    let help = sealog().args(["accept-loss", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for word in ["--chain", "--reason", "--json", "cannot undo", "sealog.loss_accepted"] {
        assert!(help.contains(word), "{word} in {help}");
    }
}

#[test]
fn the_loss_of_a_system_chain_is_accepted_like_any_other() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    assert_eq!(server.post(&first_key(&data)).0, 202);
    let (_, body) = server.get(&first_key(&data), "/v1/events");
    server.await_drained();
    server.stop();
    let body: serde_json::Value = serde_json::from_str(&body).unwrap();
    let tenant_id = TenantId(Uuid::parse(body["events"][0]["tenant_id"].as_str().unwrap()).unwrap());
    let open = || EmbeddedStore::open(&data, &Options::default()).unwrap();
    let store = open();
    let control = Control::embedded(&store).unwrap();
    let new = ProjectId::system_from_random([7; 16]);
    let project_id = wait(control.system_project(tenant_id, new)).unwrap().unwrap();
    let system = ChainId { tenant_id, project_id, mode: Mode::Live };
    for _ in 0..3 {
        let drafts = vec![parse_single(br#"{"action":"sealog.key_created"}"#).unwrap().unwrap()];
        wait(store.append(Append { chain: system, drafts, idempotency: None })).unwrap();
    }
    drop((control, store));
    // A store that is opened again begins another segment.
    cut_log(&data, 2, 2);
    let chain = format!("{project_id}:live");
    let (code, said, error) = accept(&data, &["--chain", &chain, "--reason", "the disk was replaced"]);
    assert_eq!((code, &*error), (Some(0), ""));
    let last = FIRST_RUN_REQUESTS + 3;
    let (lost, accepted) = (format!("event {last} is lost"), format!("accepted as event {last}"));
    assert!(said.contains(&lost) && said.contains(&accepted), "{said}");
    let verdicts = wait(open().audit(vec![system], std::sync::Arc::default())).unwrap();
    assert!(verdicts[0].valid() && verdicts[0].checked == last as u64, "{verdicts:?}");
    let unknown = ProjectId::system_from_random([8; 16]);
    let (code, _, error) = accept(&data, &["--chain", &format!("{unknown}:live"), "--reason", "x"]);
    assert!(code == Some(4) && error.contains("there is no project"), "{error}");
}

#[test]
fn a_directory_without_a_store_stays_one() {
    let (_dir, data) = data_dir();
    let chain = "22222222-2222-4222-8222-222222222222:live";
    let (code, _, error) = accept(&data, &["--chain", chain, "--reason", "x"]);
    assert!(code == Some(2) && error.contains("there is no store in"), "{error}");
    assert!(!data.exists());
    for wrong in [["--chain", "x", "--reason", "x"], ["--chain", chain, "--reason", " "]] {
        let (code, _, error) = accept(&data, &wrong);
        assert!(code == Some(2) && error.contains("--"), "{error}");
    }
}
