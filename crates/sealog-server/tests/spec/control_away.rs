//! On PostgreSQL accounts and keys can be away while events can be stored: a lost coordinator of Citus, or a
//! table that somebody holds. What a server knows of keys then counts for a minute (ADR 42).

use sealog_control::KeyAccess;
use sealog_testing::postgres::{Database, cluster};
use serde_json::{Value, json};

use crate::harness::*;
use crate::home::Home;

/// Servers do not find what they hear of changes by, nor what they look keys up in. Which store it is they do
/// find.
const AWAY: &str =
    "ALTER TABLE sealog.store RENAME COLUMN version TO away; ALTER SCHEMA sealog_control RENAME TO away;";
const BACK: &str =
    "ALTER TABLE sealog.store RENAME COLUMN away TO version; ALTER SCHEMA away RENAME TO sealog_control;";

struct Stage {
    service: Service,
    /// A key that the server has never seen, and an event from before.
    other: String,
    log_id: String,
}

impl Stage {
    fn new() -> Stage {
        Stage::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Setup)) -> Stage {
        let mut service = Service::in_home(Home::Database(cluster().database()), change);
        let other = service.new_key(&service.project_id, "live");
        // A server that hears of a change, be it its own, and then cannot ask whose it was forgets every
        // key. One that has just started has nothing left to hear of.
        service.restart();
        let log_id = service.log(&service.live, LOGIN);
        Stage { service, other, log_id }
    }

    fn database(&self) -> &Database {
        match self.service.home() {
            Home::Database(database) => database,
            Home::Directory(_) => unreachable!("it is on PostgreSQL"),
        }
    }

    /// Control data answers nobody, the server knows, and it remembers the key. One that has connected anew
    /// goes by nothing that it remembered, so on a machine where it does that just now, this begins again.
    fn without_control(&self) {
        loop {
            let heard = self.service.control().version();
            self.service.get("/v1/events?limit=1", &self.service.live).ok();
            self.database().sql(AWAY);
            eventually(|| self.ready()["detail"].as_str().is_some_and(|why| why.contains("control data")));
            if self.service.control().version() == heard {
                return;
            }
            self.database().sql(BACK);
            eventually(|| self.ready() == json!({"ready": true}));
        }
    }

    fn ready(&self) -> Value {
        self.service.request("GET", "/readyz", &[], b"").json
    }

    fn metric(&self, sample: &str) -> bool {
        let authorization = bearer(TOKEN);
        let answer = self.service.request("GET", "/metrics", &[("Authorization", &authorization)], b"");
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body.lines().any(|line| line == sample)
    }

    /// What a key gets.
    fn asked(&self, key: &str) -> [Response; 4] {
        let service = &self.service;
        [
            service.event(key, LOGIN),
            service.batch(key, logins(2)),
            service.get(&format!("/v1/events/{}", self.log_id), key),
            service.get("/v1/events/verify", key),
        ]
    }

    #[track_caller]
    fn goes_on(&self, key: &str) {
        for (answer, status) in self.asked(key).iter().zip([202, 202, 200, 200]) {
            assert_eq!(answer.status, status, "{}", answer.body);
        }
    }

    #[track_caller]
    fn is_refused(&self, key: &str) {
        for answer in self.asked(key) {
            answer.rejected(503, "server/control_unavailable");
        }
    }
}

#[test]
fn keys_that_were_checked_go_on_for_a_minute_without_control_data_and_everything_else_is_503() {
    let stage = Stage::new();
    let service = &stage.service;
    stage.without_control();
    stage.goes_on(&service.live);
    stage.is_refused(&stage.other);
    stage.is_refused(&service.test);
    service.get("/v1/events", "nonsense").rejected(401, "auth/invalid_format");
    let authorization = bearer(TOKEN);
    let headers = [("Authorization", authorization.as_str())];
    service.request("GET", "/operator/v1/tenants", &headers, b"").rejected(503, "server/control_unavailable");

    // The minute begins with the last look that was answered.
    service.clock.advance(60_000);
    stage.goes_on(&service.live);
    service.clock.advance(1);
    stage.is_refused(&service.live);

    stage.database().sql(BACK);
    for key in [&service.live, &stage.other] {
        eventually(|| service.event(key, LOGIN).status == 202);
        stage.goes_on(key);
    }
    assert_eq!(stage.ready(), json!({"ready": true}));
    assert_eq!(service.get("/v1/events/verify", &service.live).ok()["checked"], 15);
}

#[test]
fn readyz_and_metrics_say_that_it_is_control_data_that_is_away() {
    let stage = Stage::new();
    let (up, down) =
        ("sealog_database_part_up{part=\"control\"} 1", "sealog_database_part_up{part=\"control\"} 0");
    let events = "sealog_database_part_up{part=\"events\"} 1";
    assert!(stage.metric(up) && stage.metric(events) && stage.metric("sealog_ready 1"));
    stage.without_control();
    // Events are accepted.
    let said = stage.ready();
    assert_eq!((&said["ready"], said["notices"].as_array().unwrap().len()), (&json!(true), 1), "{said}");
    assert!(stage.metric(down) && stage.metric(events) && stage.metric("sealog_ready 1"));
    stage.service.clock.advance(60_001);
    let said = stage.ready();
    assert_eq!((&said["ready"], &said["reason"]), (&json!(false), &json!("control_unavailable")), "{said}");
    assert!(stage.metric(down) && stage.metric(events) && stage.metric("sealog_ready 0"));
    stage.database().sql(BACK);
    eventually(|| stage.metric(up) && stage.metric("sealog_ready 1"));
}

#[test]
fn a_key_that_was_revoked_meanwhile_is_refused_once_control_data_is_back() {
    let stage = Stage::new();
    let service = &stage.service;
    stage.without_control();
    stage.goes_on(&service.live);
    // By another server, as the first thing that it can do.
    stage.database().sql(&format!(
        "BEGIN; {BACK} UPDATE sealog_control.keys SET revoked_at_ms = 1 WHERE mode = 'live';
         UPDATE sealog.store SET version = version + 1;
         UPDATE sealog_control.tenants SET version = (SELECT version FROM sealog.store); COMMIT"
    ));
    eventually(|| service.event(&service.live, LOGIN).status == 401);
    service.event(&service.live, LOGIN).rejected(401, "auth/key_revoked");
}

#[test]
fn what_is_published_is_503_without_control_data_and_not_a_defect_of_the_server() {
    let stage = Stage::with(|setup| setup.trust = true);
    let service = &stage.service;
    service.publish();
    let store = ["checkpoint", "keys", "tile/0/000.p/1", "tile/entries/000.p/1", "proof?index=0&size=1"];
    let chain = ["", "/checkpoint", "/tile/0/000.p/1", "/head", "/proof?seq=1", "/consistency?from=1&to=1"];
    let asked = || -> Vec<(String, Response)> {
        let store = store.map(|path| format!("/tlog/v1/store/{path}"));
        let chain = chain.map(|path| format!("/tlog/v1/chain{path}"));
        let asked = store.into_iter().chain(chain);
        asked.map(|path| (path.clone(), service.get(&path, &service.live))).collect()
    };
    for (path, answer) in asked() {
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
    }
    stage.without_control();
    for (path, answer) in asked() {
        assert_eq!(
            (answer.status, &answer.json["error"]["code"]),
            (503, &json!("server/control_unavailable")),
            "{path}"
        );
    }
    stage.database().sql(BACK);
    eventually(|| asked().iter().all(|(_, answer)| answer.status == 200));
}
