//! The drain with several nodes at work on the same records: in order, once, and none forgotten.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_control::Control;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId};
use sealog_core::plan::Plan;
use sealog_core::query::Filter;
use sealog_service::Stop;
use sealog_service::ingest::Ingest;
use sealog_service::people::admin::tenants::{TenantInput, TenantUpdate};
use sealog_service::people::admin::{Actor, Admin};
use sealog_service::records::system_chain::{Drain, Recorder, Turns, Wake, actions};
use sealog_store::embedded::{self, EmbeddedStore};
use sealog_store::postgres::{self, PostgresStore};
use sealog_store::world::SystemWorld;
use sealog_store::{List, Store, verify};
use serde_json::Value;

/// What one process has.
struct Node {
    store: Arc<dyn Store>,
    control: Arc<Control>,
    admin: Admin,
    drain: Arc<Drain>,
}

impl Node {
    fn new(store: Arc<dyn Store>, control: Arc<Control>) -> Node {
        let (world, wake) = (Arc::new(SystemWorld), Wake::default());
        let drain = Arc::new(Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store),
            ingest: Ingest::new(Arc::clone(&store), None, Arc::default()),
            world: Arc::clone(&world) as _,
            wake: wake.clone(),
            every: Duration::from_millis(20),
            turns: Turns::default(),
        });
        let admin = Admin::new(Arc::clone(&control), world, &Plan::defaults(), wake);
        Node { store, control, admin, drain }
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

const TENANTS: usize = 3;
const CHANGES: usize = 40;

/// All nodes change the same tenants and drain at the same time.
fn drains_in_order_and_once(nodes: &[Node]) {
    let input = || TenantInput { name: "0".into(), ..TenantInput::default() };
    let tenants: Vec<TenantId> = (0..TENANTS)
        .map(|_| wait(nodes[0].admin.create_tenant(Actor::Operator, input())).unwrap().id)
        .collect();
    let stop = Stop::new();
    std::thread::scope(|scope| {
        for node in nodes {
            let stop = &stop;
            scope.spawn(move || {
                wait(async {
                    tokio::select! {
                        () = Arc::clone(&node.drain).run() => {}
                        () = stop.stopped() => {}
                    }
                });
            });
        }
        let changing: Vec<_> = nodes
            .iter()
            .enumerate()
            .map(|(number, node)| {
                let tenants = &tenants;
                scope.spawn(move || {
                    for change in 0..CHANGES {
                        let name = Some(format!("{number}-{change}"));
                        let update = TenantUpdate { name, ..TenantUpdate::default() };
                        let tenant = tenants[change % TENANTS];
                        wait(node.admin.update_tenant(Actor::Operator, tenant, update)).unwrap();
                    }
                })
            })
            .collect();
        changing.into_iter().for_each(|thread| thread.join().unwrap());
        let deadline = Instant::now() + Duration::from_secs(120);
        while wait(nodes[0].control.count_records()) != Ok(0) {
            assert!(Instant::now() < deadline, "records are left");
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.stop();
    });
    let mut changes = 0;
    for tenant in tenants {
        let events = events(&nodes[0], tenant);
        let ids: HashSet<String> =
            events.iter().map(|event| event["record_id"].as_str().unwrap().to_owned()).collect();
        assert_eq!(ids.len(), events.len(), "each once");
        // Each tells of the state that the one before it has left: this is the order of the changes.
        let mut name = "0";
        for event in &events[1..] {
            assert_eq!(event["name"]["from"], name);
            name = event["name"]["to"].as_str().unwrap();
        }
        changes += events.len() - 1;
    }
    assert_eq!(changes, nodes.len() * CHANGES);
}

/// The metadata of a tenant's system chain, oldest first.
fn events(node: &Node, tenant_id: TenantId) -> Vec<Value> {
    let reserved = node.control.system_project(tenant_id, ProjectId::system_from_random([1; 16]));
    let chain = ChainId { tenant_id, project_id: wait(reserved).unwrap().unwrap(), mode: Mode::Live };
    assert!(wait(verify::whole(&*node.store, chain)).unwrap().valid());
    let list = List { filter: Filter::default(), before_seq: None, limit: 1000, bytes_max: 1 << 20 };
    let chunk = wait(node.store.list(chain, list)).unwrap();
    assert_eq!(chunk.resume, None);
    let metadata = |event: &StoredEvent| serde_json::from_str(event.text.fields().metadata.unwrap()).unwrap();
    chunk.items.iter().rev().map(metadata).collect()
}

/// Whoever waits for a record seals it, beside a drain that may be at it already.
fn seals_at_once(nodes: &[Node]) {
    let input = TenantInput { name: "0".into(), ..TenantInput::default() };
    let tenant = wait(nodes[0].admin.create_tenant(Actor::Operator, input)).unwrap().id;
    let stop = Stop::new();
    std::thread::scope(|scope| {
        for node in nodes {
            let stop = &stop;
            scope.spawn(move || {
                wait(async {
                    tokio::select! {
                        () = Arc::clone(&node.drain).run() => {}
                        () = stop.stopped() => {}
                    }
                });
            });
        }
        let waiting: Vec<_> = nodes
            .iter()
            .flat_map(|node| [node; 4])
            .map(|node| {
                scope.spawn(move || {
                    let recorder = Recorder::new(Actor::Operator, Arc::new(SystemWorld));
                    for _ in 0..10 {
                        let record = recorder.record(&actions::PAGE_VIEWED, "page/1", serde_json::json!({}));
                        let id = record.id;
                        wait(node.drain.record_and_seal(tenant, record)).unwrap();
                        let sealed = events(node, tenant);
                        assert!(sealed.iter().any(|event| event["record_id"] == id.to_string()));
                    }
                })
            })
            .collect();
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
        stop.stop();
    });
    let sealed = events(&nodes[0], tenant);
    let ids: HashSet<&str> = sealed.iter().map(|event| event["record_id"].as_str().unwrap()).collect();
    assert_eq!((ids.len(), sealed.len()), (1 + nodes.len() * 40, 1 + nodes.len() * 40), "each once");
}

#[test]
fn what_somebody_waits_for_is_sealed_once_beside_the_drain() {
    let dir = tempfile::tempdir().unwrap();
    let options = embedded::Options { allow_unsafe_storage: true, ..embedded::Options::default() };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    let control = Arc::new(Control::embedded(&store).unwrap());
    seals_at_once(&[Node::new(Arc::new(store), control)]);
}

#[test]
fn what_somebody_waits_for_is_sealed_once_beside_the_drains_of_several_nodes() {
    let database = sealog_testing::postgres::cluster().database();
    let nodes = [(); 2].map(|()| {
        let options = postgres::Options { connections: 8, ..postgres::Options::default() };
        let store = PostgresStore::open(&database.url(), &options).unwrap();
        let control = Arc::new(Control::on_postgres(&store).unwrap());
        Node::new(Arc::new(store), control)
    });
    seals_at_once(&nodes);
}

#[test]
fn several_drains_of_one_process_append_every_record_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let options = embedded::Options { allow_unsafe_storage: true, ..embedded::Options::default() };
    let store = EmbeddedStore::open(dir.path(), &options).unwrap();
    let control = Arc::new(Control::embedded(&store).unwrap());
    let store: Arc<dyn Store> = Arc::new(store);
    let nodes = [(); 3].map(|()| Node::new(Arc::clone(&store), Arc::clone(&control)));
    drains_in_order_and_once(&nodes);
}

#[test]
fn several_nodes_on_one_database_append_every_record_once_and_in_order() {
    let database = sealog_testing::postgres::cluster().database();
    let nodes = [(); 3].map(|()| {
        let options = postgres::Options { connections: 8, ..postgres::Options::default() };
        let store = PostgresStore::open(&database.url(), &options).unwrap();
        let control = Arc::new(Control::on_postgres(&store).unwrap());
        Node::new(Arc::new(store), control)
    });
    drains_in_order_and_once(&nodes);
}
