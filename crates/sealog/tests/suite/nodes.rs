//! Three servers on one PostgreSQL database, as their clients meet them.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::*;
use sealog_testing::{eventually, postgres};
use serde_json::{Value, json};

const TOKEN: &str = "the-operators-token";

struct Server {
    running: Running,
    data: tempfile::TempDir,
}

impl Server {
    fn start(url: &str) -> Server {
        let data = tempfile::tempdir().unwrap();
        let mut command = serving(sealog(), data.path());
        command.args(["--limits-per-ip-rps", "0"]);
        command.env("SEALOG_STORE", url).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        let running = start(command);
        assert!(!running.begun.contains(url), "the URL may hold a password: {}", running.begun);
        Server { running, data }
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let (status, body) = self.running.request(method, path, headers, body);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    fn operator(&self, method: &str, path: &str, body: &Value) -> Value {
        let authorization = format!("Bearer {TOKEN}");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) =
            self.request(method, &format!("/operator/v1{path}"), &[("Authorization", &authorization)], &body);
        assert!((200..300).contains(&status), "{status} {answer}");
        answer
    }

    fn post(&self, key: &str, body: &str) -> (u16, Value) {
        self.request("POST", "/v1/events", &[("Authorization", &format!("Bearer {key}"))], body)
    }

    fn once(&self, key: &str, idempotency_key: &str, body: &str) -> (u16, Value) {
        let authorization = format!("Bearer {key}");
        self.request(
            "POST",
            "/v1/events",
            &[("Authorization", &authorization), ("Idempotency-Key", idempotency_key)],
            body,
        )
    }

    fn get(&self, key: &str, path: &str) -> (u16, Value) {
        self.request("GET", path, &[("Authorization", &format!("Bearer {key}"))], "")
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Three servers that were started at once on an empty database, and a live key that one of them has made.
fn three(database: &postgres::Database) -> (Vec<Server>, String) {
    let url = database.url();
    at_once(&[&url, &url, &url])
}

/// The same, each with a URL of its own.
fn at_once(urls: &[&str]) -> (Vec<Server>, String) {
    let servers: Vec<Server> = std::thread::scope(|scope| {
        let starting: Vec<_> = urls.iter().map(|url| scope.spawn(|| Server::start(url))).collect();
        starting.into_iter().map(|server| server.join().unwrap()).collect()
    });
    let mut first_runs = servers.iter().filter(|server| server.data.path().join("first-run.txt").exists());
    let first_run = first_runs.next().expect("one of them has created the first keys");
    assert!(first_runs.next().is_none(), "only one of them has");
    let key = first_key(first_run.data.path());
    (servers, key)
}

#[test]
fn three_servers_are_one_service() {
    let database = postgres::cluster().database();
    let (servers, key) = three(&database);
    // A key of any of them works on all, and what one has acknowledged all can read.
    for (n, server) in servers.iter().enumerate() {
        let (status, answer) = server.post(&key, &format!(r#"{{"action":"user.login","actor_id":"n{n}"}}"#));
        assert_eq!(status, 202, "{answer}");
        for reader in &servers {
            let (status, event) = reader.get(&key, &format!("/v1/events/{}", text(&answer["log_id"])));
            assert_eq!((status, event["chain_seq"].as_u64()), (200, Some(n as u64 + 1)));
        }
    }

    // The same request on all of them at once, many times over.
    let answers: Vec<(u16, Value)> = std::thread::scope(|scope| {
        let sending: Vec<_> = (0..5)
            .flat_map(|_| &servers)
            .map(|server| {
                scope.spawn(|| server.once(&key, "the-key", r#"{"action":"user.login","actor_id":"once"}"#))
            })
            .collect();
        sending.into_iter().map(|answer| answer.join().unwrap()).collect()
    });
    let accepted: Vec<&Value> =
        answers.iter().filter(|(status, _)| *status == 202).map(|(_, answer)| answer).collect();
    assert!(!accepted.is_empty());
    assert!(accepted.iter().all(|answer| **answer == *accepted[0]), "{accepted:?}");
    for (status, answer) in answers.iter().filter(|(status, _)| *status != 202) {
        assert_eq!((*status, &answer["error"]["code"]), (409, &json!("event/idempotency_key_in_flight")));
    }
    for server in &servers {
        let (_, verdict) = server.get(&key, "/v1/events/verify");
        assert_eq!(verdict, json!({"valid": true, "checked": 4, "first_seq": 1, "last_seq": 4}));
    }
}

#[test]
fn revoked_keys_and_new_actions_and_frameworks_hold_on_every_server_eventually() {
    // How long it takes is how often a server looks; that each of them does is what is tested.
    assert!(2 * sealog_store::postgres::Options::default().poll <= Duration::from_secs(1));
    let database = postgres::cluster().database();
    let (servers, _) = three(&database);
    let [one, others @ ..] = &servers[..] else { panic!("there are three") };
    let tenant = text(&one.operator("POST", "/tenants", &json!({"name": "t"}))["tenant_id"]);
    let project = text(
        &one.operator("POST", &format!("/tenants/{tenant}/projects"), &json!({"name": "p"}))["project_id"],
    );
    let made =
        one.operator("POST", &format!("/projects/{project}/keys"), &json!({"name": "k", "mode": "live"}));
    let key = text(&made["key"]);
    let login = r#"{"action":"user.login"}"#;
    for server in &servers {
        eventually("a new key works", || server.post(&key, login).0 == 202);
    }

    let own = r#"{"action":"invoice.approved"}"#;
    assert_eq!(others[0].post(&key, own).0, 422);
    one.operator("POST", &format!("/tenants/{tenant}/actions"), &json!({"action": "invoice.approved"}));
    for server in &servers {
        eventually("a new action is accepted", || server.post(&key, own).0 == 202);
    }
    let gated = r#"{"action":"hipaa.phi_accessed","metadata":{}}"#;
    assert_eq!(others[1].post(&key, gated).0, 403);
    one.operator("PATCH", &format!("/projects/{project}"), &json!({"frameworks": ["hipaa"]}));
    for server in &servers {
        eventually("an enabled framework counts", || server.post(&key, gated).0 != 403);
    }

    others[0].operator("POST", &format!("/keys/{}/revoke", text(&made["key_id"])), &Value::Null);
    for server in &servers {
        eventually("a revoked key is refused", || {
            let (status, answer) = server.post(&key, login);
            status == 401 && answer["error"]["code"] == "auth/key_revoked"
        });
    }
}

#[test]
fn a_database_that_is_gone_is_a_500_and_the_servers_recover_by_themselves() {
    let cluster: &'static postgres::Cluster = Box::leak(Box::new(postgres::Cluster::start("")));
    let database = cluster.database();
    let (servers, key) = three(&database);
    let login = r#"{"action":"user.login"}"#;
    let (_, first) = servers[0].post(&key, login);
    // A server that has just heard of a change asks for the key again, and cannot when the database is gone.
    // Nothing changes any more, so it comes to know the key for good.
    let answers = (0..20).find_map(|_| {
        for server in &servers {
            eventually("it knows the key", || server.get(&key, "/v1/events").0 == 200);
        }
        cluster.stop("fast");
        let post = |server: &Server| server.once(&key, &format!("k{}", server.running.address), login);
        let answers: Vec<(u16, Value)> = servers.iter().map(post).collect();
        if answers.iter().any(|(_, answer)| answer["error"]["code"] == "server/control_unavailable") {
            cluster.restart();
            return None;
        }
        Some(answers)
    });
    for (server, (status, answer)) in servers.iter().zip(answers.expect("they know the key")) {
        assert_eq!((status, &answer["error"]["code"]), (500, &json!("event/write_failed")), "{answer}");
        let (status, answer) = server.get(&key, &format!("/v1/events/{}", text(&first["log_id"])));
        assert_eq!((status, &answer["error"]["code"]), (500, &json!("read/query_failed")));
        eventually("it is not ready", || server.get(&key, "/readyz").0 != 200);
        assert_eq!(server.get(&key, "/healthz").0, 200);
    }
    cluster.restart();
    for server in &servers {
        let again = format!("k{}", server.running.address);
        eventually("it has recovered", || server.once(&key, &again, login).0 == 202);
    }
    let (_, verdict) = servers[2].get(&key, "/v1/events/verify");
    assert_eq!(verdict, json!({"valid": true, "checked": 4, "first_seq": 1, "last_seq": 4}));
}

/// What a load was answered: the ids of what was accepted, and when the first request was refused for want of
/// control data.
struct Answered {
    accepted: Vec<String>,
    refused: (Instant, usize),
}

/// Sends one event after the other, each until it is accepted, until control data is missing.
fn send_until_refused(server: &Server, key: &str, name: &str) -> Answered {
    let mut accepted = Vec::new();
    for n in 0.. {
        let body = format!(r#"{{"action":"user.login","actor_id":"{name}-{n}"}}"#);
        loop {
            let (status, answer) = server.once(key, &format!("{name}-{n}"), &body);
            match (status, answer["error"]["code"].as_str()) {
                (202, _) => break accepted.push(text(&answer["log_id"])),
                (503, Some("server/control_unavailable")) => {
                    return Answered { accepted, refused: (Instant::now(), n) };
                }
                _ => assert!(status >= 500, "{answer}"),
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    unreachable!("numbers do not end")
}

/// What an append does, whichever way it takes.
const OF_APPENDS: [&str; 4] = ["append_group(", "sealog.events", "sealog.idempotency", "sealog.usage"];

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_servers_at_workers_are_one_service_and_no_statement_of_an_append_reaches_the_coordinator() {
    let database = postgres::Database::on_citus().by_workers();
    for says in ["distributed 8 event tables", "all event tables were already distributed"] {
        let output =
            sealog().args(["migrate", "--citus"]).env("SEALOG_STORE", database.url()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(String::from_utf8_lossy(&output.stdout).contains(says), "{output:?}");
    }
    database.sql(&format!("ALTER DATABASE {} SET log_statement = 'all'", database.name));
    let urls: Vec<String> = database.workers().iter().map(|worker| worker.url(&database.name)).collect();
    let (servers, key) = at_once(&[&urls[0], &urls[1], &database.url()]);
    let first = servers.iter().find(|server| server.data.path().join("first-run.txt").exists()).unwrap();
    let cookie = signed_in_owner(&first.running, first.data.path());
    for server in &servers {
        server.running.await_drained();
        let page = open_page(&server.running, "/app", &cookie);
        assert!(page.starts_with("HTTP/1.1 303"), "who has signed in on one is signed in on all: {page}");
        let ended = open_page(&server.running, "/app", "");
        assert!(ended.contains("location: /app/sign-in"), "{ended}");
    }
    let before = database.coordinator().log().len();
    let batch =
        r#"{"events":[{"action":"user.login","actor_id":"b"},{"action":"user.login","actor_id":"b"}]}"#;
    for (n, server) in servers.iter().enumerate() {
        for round in 0..10 {
            let body = format!(r#"{{"action":"user.login","actor_id":"n{n}","metadata":{{"n":"{round}"}}}}"#);
            let (status, answer) = server.once(&key, &format!("{n}-{round}"), &body);
            assert_eq!(status, 202, "{answer}");
            for other in &servers {
                assert_eq!(other.once(&key, &format!("{n}-{round}"), &body), (202, answer.clone()));
                assert_eq!(other.get(&key, &format!("/v1/events/{}", text(&answer["log_id"]))).0, 200);
            }
        }
        let authorization = format!("Bearer {key}");
        let (status, answer) =
            server.request("POST", "/v1/events/batch", &[("Authorization", &authorization)], batch);
        assert_eq!(status, 202, "{answer}");
        server.running.await_drained();
    }
    for server in &servers {
        let (_, verdict) = server.get(&key, "/v1/events/verify");
        assert_eq!(verdict, json!({"valid": true, "checked": 36, "first_seq": 1, "last_seq": 36}));
        let (_, found) = server.get(&key, "/v1/events?actor_id=n1");
        assert_eq!(found["events"].as_array().map(Vec::len), Some(10), "{found}");
    }
    let log = database.coordinator().log();
    let of_appends: Vec<&str> = log[before..]
        .lines()
        .filter(|line| OF_APPENDS.iter().any(|statement| line.contains(statement)))
        .collect();
    assert_eq!(of_appends, [""; 0]);
    assert!(log[before..].contains("FROM sealog.store"), "what servers ask the coordinator is in its log");

    let tenant = text(&servers[0].operator("POST", "/tenants", &json!({"name": "t"}))["tenant_id"]);
    let project = servers[1].operator("POST", &format!("/tenants/{tenant}/projects"), &json!({"name": "p"}));
    let keys = format!("/projects/{}/keys", text(&project["project_id"]));
    let mut slowest = Duration::ZERO;
    for revoker in &servers {
        let made = revoker.operator("POST", &keys, &json!({"name": "k", "mode": "live"}));
        let key = made["key"].as_str().unwrap();
        let login = r#"{"action":"user.login"}"#;
        for server in &servers {
            eventually("a new key works", || server.post(key, login).0 == 202);
        }
        revoker.operator("POST", &format!("/keys/{}/revoke", text(&made["key_id"])), &Value::Null);
        let revoked = Instant::now();
        for server in &servers {
            let is_refused = || server.post(key, login).1["error"]["code"] == "auth/key_revoked";
            eventually("a revoked key is refused", is_refused);
        }
        slowest = slowest.max(revoked.elapsed());
    }
    println!("servers at workers: appends=63 at the coordinator=0, a revocation is known after {slowest:?}");
    assert!(slowest < Duration::from_secs(3), "{slowest:?}");
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_keys_go_on_for_a_minute_without_the_coordinator_and_nothing_is_lost_or_twice() {
    let database = postgres::Database::on_citus().by_workers();
    for more in [&[][..], &["--citus"]] {
        let output = sealog().arg("migrate").args(more).env("SEALOG_STORE", database.url()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (servers, key) = three(&database);
    let tenant = text(&servers[0].operator("POST", "/tenants", &json!({"name": "t"}))["tenant_id"]);
    let project = servers[0].operator("POST", &format!("/tenants/{tenant}/projects"), &json!({"name": "p"}));
    let keys = format!("/projects/{}/keys", text(&project["project_id"]));
    let unknown = text(&servers[0].operator("POST", &keys, &json!({"name": "k", "mode": "live"}))["key"]);
    for server in &servers {
        eventually("it knows the key", || server.get(&key, "/v1/events").0 == 200);
        server.running.await_drained();
    }
    // A server that has heard of a change forgets its callers; those changes are over.
    std::thread::sleep(Duration::from_secs(2));
    let sent = |server: &Server, name: &str| {
        let (status, answer) = server.once(&key, name, r#"{"action":"user.login","actor_id":"before"}"#);
        assert_eq!(status, 202, "{answer}");
    };
    servers.iter().zip(["b0", "b1", "b2"]).for_each(|(server, name)| sent(server, name));

    database.coordinator().kill_9();
    let killed = Instant::now();
    let answered: Vec<Answered> = std::thread::scope(|scope| {
        let key = &*key;
        let sending: Vec<_> = servers
            .iter()
            .zip(["s0", "s1", "s2"])
            .map(|(server, name)| scope.spawn(move || send_until_refused(server, key, name)))
            .collect();
        for server in &servers {
            eventually("it knows what is away", || {
                let (status, answer) = server.get(key, "/readyz");
                status == 200 && answer["detail"].as_str().is_some_and(|why| why.contains("control data"))
            });
            let refused = [
                server.post(&unknown, r#"{"action":"user.login"}"#),
                server.get(&unknown, "/v1/events"),
                server.get(TOKEN, "/operator/v1/tenants"),
            ];
            for (status, answer) in refused {
                let code = &answer["error"]["code"];
                assert_eq!((status, code), (503, &json!("server/control_unavailable")), "{answer}");
            }
            assert_eq!(server.get(key, "/v1/events?limit=3").0, 200);
            assert_eq!(server.get(key, "/v1/events/verify").1["valid"], json!(true));
            let metrics = server.running.request("GET", "/metrics", &[], "").1;
            assert!(metrics.contains("sealog_database_part_up{part=\"control\"} 0"), "{metrics}");
            assert!(metrics.contains("sealog_database_part_up{part=\"worker 127.0.0.1:"), "{metrics}");
        }
        sending.into_iter().map(|answered| answered.join().unwrap()).collect()
    });
    for (server, Answered { refused: (at, _), accepted }) in servers.iter().zip(&answered) {
        let lasted = at.duration_since(killed);
        assert!((Duration::from_secs(55)..Duration::from_secs(65)).contains(&lasted), "{lasted:?}");
        assert!(accepted.len() > 100, "{}", accepted.len());
        let (status, answer) = server.get(&key, "/readyz");
        assert_eq!((status, &answer["reason"]), (503, &json!("control_unavailable")));
        assert_eq!(server.get(&key, "/v1/events").0, 503);
    }

    database.coordinator().restart();
    let mut count = 3;
    for ((server, name), answered) in servers.iter().zip(["s0", "s1", "s2"]).zip(&answered) {
        let last = format!("{name}-{}", answered.refused.1);
        let body = format!(r#"{{"action":"user.login","actor_id":"{last}"}}"#);
        eventually("it has recovered", || server.once(&key, &last, &body).0 == 202);
        eventually("an unknown key works", || server.get(&unknown, "/v1/events").0 == 200);
        count += answered.accepted.len() + 1;
        for log_id in &answered.accepted {
            assert_eq!(server.get(&key, &format!("/v1/events/{log_id}")).0, 200, "{log_id} is lost");
        }
    }
    // A request verifies at most 1000 events.
    for from in (1..=count).step_by(1000) {
        let to = count.min(from + 999);
        let (_, verdict) =
            servers[0].get(&key, &format!("/v1/events/verify?from_seq={from}&to_seq={}", from + 999));
        let checked = to - from + 1;
        assert_eq!(verdict, json!({"valid": true, "checked": checked, "first_seq": from, "last_seq": to}));
    }
    println!("dead coordinator: acked={count} lost=0 duplicated=0");
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_a_worker_that_says_nothing_delays_no_revocation_and_makes_no_server_red() {
    let database = postgres::Database::on_citus();
    for more in [&[][..], &["--citus"]] {
        let output = sealog().arg("migrate").args(more).env("SEALOG_STORE", database.url()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let (servers, known) = three(&database);
    let tenant = text(&servers[0].operator("POST", "/tenants", &json!({"name": "t"}))["tenant_id"]);
    let project = servers[0].operator("POST", &format!("/tenants/{tenant}/projects"), &json!({"name": "p"}));
    let keys = format!("/projects/{}/keys", text(&project["project_id"]));
    let made: Vec<Value> =
        (0..3).map(|_| servers[0].operator("POST", &keys, &json!({"name": "k", "mode": "live"}))).collect();
    // A body that no key may send: nothing of it goes to a worker.
    let code = |server: &Server, key: &str| server.post(key, "{").1["error"]["code"].clone();
    for server in &servers {
        server.running.await_drained();
        for key in &made {
            eventually("it knows the key", || {
                code(server, key["key"].as_str().unwrap()) == "validation/invalid_json"
            });
        }
    }
    let silenced = database.workers()[0].silenced();
    for key in &made {
        servers[1].operator("POST", &format!("/keys/{}/revoke", text(&key["key_id"])), &Value::Null);
        let (revoked, key) = (Instant::now(), key["key"].as_str().unwrap());
        for server in &servers {
            eventually("it hears of the revocation", || code(server, key) == "auth/key_revoked");
        }
        // An answer of the worker would be waited for for five seconds.
        assert!(revoked.elapsed() < Duration::from_secs(3), "{:?}", revoked.elapsed());
        for server in &servers {
            let (status, answer) = server.get(key, "/readyz");
            assert_eq!((status, &answer["ready"]), (200, &json!(true)), "{answer}");
        }
    }
    drop(silenced);
    for server in &servers {
        eventually("its events are accepted", || server.post(&known, r#"{"action":"user.login"}"#).0 == 202);
    }
}

#[test]
#[ignore = "SKIPPED: needs a Citus cluster; `just citus DIR` runs it"]
fn on_citus_the_rights_of_roles_sql_are_enough_on_every_worker_and_change_no_event() {
    let database = postgres::Database::on_citus().by_workers();
    let roles = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/postgresql/roles.sql");
    let roles = std::fs::read_to_string(roles).unwrap();
    let nodes: Vec<_> = std::iter::once(database.coordinator()).chain(database.workers()).collect();
    // Roles outlive the database of an earlier run, and Citus brings to the workers only those that are made
    // where it sees it.
    for node in &nodes {
        for role in ["sealog_owner", "sealog_node"] {
            node.sql("postgres", &format!("DROP ROLE IF EXISTS {role}"));
        }
    }
    // The coordinator tells the workers, which refuse it from anyone else.
    database.sql(&roles);
    let url = |role: &str| database.url().replace("//owner@", &format!("//{role}@"));
    for more in [&[][..], &["--citus"]] {
        let mut migrate = sealog();
        let output = migrate.arg("migrate").args(more).env("SEALOG_STORE", url("sealog_owner")).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        database.sql(&roles);
    }
    let refused =
        || -> usize { nodes.iter().map(|node| node.log().matches("permission denied").count()).sum() };
    let before = refused();
    let server = Server::start(&url("sealog_node"));
    let tenant = text(&server.operator("POST", "/tenants", &json!({"name": "t"}))["tenant_id"]);
    let mut keys = Vec::new();
    for n in 0..6 {
        let project = json!({"name": format!("p{n}")});
        let project =
            text(&server.operator("POST", &format!("/tenants/{tenant}/projects"), &project)["project_id"]);
        let key = json!({"name": "k", "mode": if n % 2 == 0 { "live" } else { "test" }});
        keys.push(text(&server.operator("POST", &format!("/projects/{project}/keys"), &key)["key"]));
    }
    let shard = "SELECT shardid, nodeport FROM pg_dist_shard_placement JOIN pg_dist_shard USING (shardid)
        WHERE logicalrelid = 'sealog.chains'::regclass ORDER BY shardid LIMIT 1";
    let (shard, from) =
        database.sql(shard).split_once('|').map(|(id, port)| (id.to_owned(), port.to_owned())).unwrap();
    let to =
        database.workers().iter().map(|worker| worker.port.to_string()).find(|port| *port != from).unwrap();
    for round in 0..2 {
        for key in &keys {
            for n in 0..3 {
                let body = format!(r#"{{"action":"user.login","actor_id":"a{n}","metadata":{{"n":"{n}"}}}}"#);
                let (status, answer) = server.once(key, &format!("{round}-{n}"), &body);
                assert_eq!(status, 202, "{answer}");
            }
            let (_, found) = server.get(key, "/v1/events?actor_id=a1");
            assert_eq!(found["events"].as_array().map(Vec::len), Some(round + 1), "{found}");
            assert_eq!(server.get(key, "/v1/events/verify").1["checked"], json!(3 * (round + 1)));
        }
        // What is granted goes with a shard.
        if round == 0 {
            database.sql(&format!("SELECT citus_move_shard_placement({shard}, '127.0.0.1', {from}, '127.0.0.1', {to}, 'force_logical')"));
        }
    }
    server.running.await_drained();
    assert_eq!(refused(), before, "the logs of the nodes say what was refused");
    for node in &nodes {
        for forbidden in [
            "UPDATE sealog.events SET actor_id = 'x'",
            "DELETE FROM sealog.events",
            "UPDATE sealog.chains SET tenant_id = chain_id",
        ] {
            let output = node.try_sql("sealog_node", &database.name, forbidden);
            assert!(
                String::from_utf8_lossy(&output.stderr).contains("permission denied"),
                "{forbidden}: {output:?}"
            );
        }
    }
}

#[test]
fn migrate_makes_the_schema_and_says_what_is_wrong() {
    let database = postgres::cluster().database();
    let migrate = |store: &str, more: &[&str]| {
        let output = sealog().args(["migrate"]).args(more).env("SEALOG_STORE", store).output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (done, said) = migrate(&database.url(), &["--dry-run"]);
    assert!(
        done && said.contains("sealog_control: missing") && said.ends_with("dry run: no changes made\n"),
        "{said}"
    );
    assert_eq!(database.sql("SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'sealog%'"), "0");
    let (done, said) = migrate(&database.url(), &[]);
    let steps = [
        "sealog-store/src/postgres/migrations",
        "sealog-control/src/migrations/postgres",
        "sealog-tlog/src/trees/migrations/postgres",
        "sealog-tlog/src/log/migrations/postgres",
    ];
    let steps = steps
        .map(|dir| Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir))
        .iter()
        .map(|dir| std::fs::read_dir(dir).unwrap().count())
        .sum::<usize>();
    assert!(done && said.contains(&format!("ran {steps} steps")), "{said}");
    let (done, said) = migrate(&database.url(), &["--dry-run"]);
    assert!(done && said.contains("nothing to do"), "{said}");
    let (done, said) = migrate(&database.url(), &[]);
    assert!(done && said.contains("ran 0 steps"), "{said}");
    let (done, said) = migrate(&database.url(), &["--json"]);
    assert!(done && said == "{\"citus\":false,\"steps\":0}\n", "{said}");
    let ends_with = |store: &str| {
        let output = sealog().arg("migrate").env("SEALOG_STORE", store).output().unwrap();
        output.status.code()
    };
    assert_eq!(ends_with("embedded"), Some(2), "there is nothing to migrate");
    assert_eq!(ends_with("postgres://x/y?sslmode=maybe"), Some(2));
    assert_eq!(ends_with("postgres://nobody@127.0.0.1:1/x"), Some(5), "the database is away");
    let (done, said) = migrate(&database.url(), &["--citus"]);
    assert!(!done && said.contains("citus"), "there is no Citus here, and it says so: {said}");
    let (done, said) = migrate("embedded", &[]);
    assert!(!done && said.contains("no schema to migrate"), "{said}");
    let (done, said) = migrate("postgres://u:secret@127.0.0.1:1/d", &[]);
    assert!(!done && said.contains("refused") && !said.contains("secret"), "{said}");
}

#[test]
fn a_server_on_a_database_with_an_unknown_schema_ends_with_1_and_names_its_version() {
    let (database, data) = (postgres::cluster().database(), tempfile::tempdir().unwrap());
    let migrate = || sealog().arg("migrate").env("SEALOG_STORE", database.url()).output().unwrap();
    assert!(migrate().status.success());
    database.sql("INSERT INTO sealog_control.migrations (version) VALUES (13)");
    let mut command = serving(sealog(), data.path());
    let output = command.env("SEALOG_STORE", database.url()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("has the unknown version 13"), "{said}");
    let output = migrate();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("has the unknown version 13"), "{said}");
    assert_eq!(output.status.code(), Some(1));
    let output =
        sealog().args(["migrate", "--dry-run"]).env("SEALOG_STORE", database.url()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("sealog_control: version 13 is newer than this program's 5"), "{said}");
}

/// A server that was started and is not there yet.
fn started(url: &str) -> (Running, tempfile::TempDir) {
    let data = tempfile::tempdir().unwrap();
    let mut command = serving(sealog(), data.path());
    command.env("SEALOG_STORE", url);
    (spawn(command), data)
}

const NOT_AVAILABLE: &str = "database unavailable; retrying";

#[test]
fn a_server_that_is_started_before_its_database_waits_and_takes_the_first_event_when_it_is_there() {
    let cluster = postgres::Cluster::start("");
    cluster.stop("fast");
    let (mut server, data) = started(&cluster.url("postgres"));
    let mut delays = Vec::new();
    for _ in 0..3 {
        let said = server.says(NOT_AVAILABLE);
        assert!(said["problem"].as_str().unwrap().contains("cannot open the store"), "{said}");
        delays.push(said["retry_in_ms"].as_u64().unwrap());
    }
    assert_eq!(delays, [250, 500, 1000], "it waits longer from try to try");
    cluster.restart();
    server.address = text(&server.says("listening")["address"]);
    let (status, answer) = server.send(&first_key(data.path()), r#"{"action":"user.login"}"#);
    assert_eq!(status, 202, "{answer}");
}

#[test]
fn a_server_that_waits_for_its_database_ends_when_it_is_asked_to() {
    let cluster = postgres::Cluster::start("");
    cluster.stop("fast");
    let (server, _data) = started(&cluster.url("postgres"));
    server.says(NOT_AVAILABLE);
    server.stop();
}

#[test]
fn a_database_that_says_no_is_not_waited_for() {
    let cluster = postgres::cluster();
    cluster.sql("postgres", "CREATE ROLE closed NOLOGIN");
    let refused = |url: &str, why: &str| {
        let data = tempfile::tempdir().unwrap();
        let output = serving(sealog(), data.path()).env("SEALOG_STORE", url).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("the database rejected the request") && said.contains(why), "{said}");
        assert!(!said.contains(NOT_AVAILABLE), "{said}");
    };
    refused(&cluster.url("no_such_database"), "no_such_database");
    refused(&cluster.url("postgres").replace("owner@", "nobody_here@"), "nobody_here");
    refused(&cluster.url("postgres").replace("owner@", "closed@"), "not permitted to log in");
}
