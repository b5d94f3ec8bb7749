//! A real server in this process, and a client that can also send what no client should.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;

use sealog_control::{
    Access, Answer, Control, KeyAccess, KeyUse, MonitorAccess, MonitorTokenId, NewMonitorToken,
};
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, TenantId, Ulid, Uuid};
use sealog_core::key::{digest, generate_monitor_token};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_core::verify::Item;
use sealog_engine::trust_log::keys::{KeyFile, Origin as KeyOrigin};
use sealog_engine::trust_log::{Settings as SignerSettings, Signer};
use sealog_engine::{Begins, Settings, Trust};
use sealog_server::config::Config;
use sealog_server::{App, Server, background, serve_with_pages};
use sealog_service::Secret;
use sealog_store::clock::GuardedWorld;
use sealog_store::counts::{Counts, Days};
use sealog_store::feed::{Follower, Scope, Start};
use sealog_store::pool::FairPool;
use sealog_store::stats::StoreStats;
use sealog_store::world::World;
use sealog_store::{
    Append, Appended, BoxFuture, ChainHead, Chunk, DropPlan, DropStep, IdempotencyKey, KeptKey, List, Range,
    Reserved, Store, StoreError, WantedKeys,
};
pub use sealog_testing::wait;
use sealog_testing::{PATIENCE, StillWorld};
use sealog_tlog::BuiltHeads;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::home::Home;

/// 2026-11-15T12:00:00.000Z, when every test begins.
pub const NOON_MS: u64 = 1_794_744_000_000;
pub const HOUR_MS: u64 = 3_600_000;
/// Between two snapshots.
pub const INTERVAL_MS: u64 = 60_000;
pub const BASE_URL: &str = "https://log.example";
pub const TOKEN: &str = "the-operators-token";
pub const LOGIN: &str = r#"{"action":"user.login"}"#;
pub const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A running service with one tenant on the top plan, one project without frameworks, and a live and a test
/// key.
pub struct Service {
    /// Moves when it is told to; the randomness is real.
    pub clock: Arc<StillWorld>,
    pub tenant_id: String,
    pub project_id: String,
    pub live: String,
    pub test: String,
    running: Option<Running>,
    /// What the next start goes by.
    pub setup: Setup,
    home: Home,
    /// With the keys of the store log.
    keys: tempfile::TempDir,
}

pub struct Setup {
    pub config: Config,
    pub service: Settings,
    /// Of the embedded store; must have room for the largest request of the test.
    pub segment_bytes: u64,
    pub pages: axum::Router,
    /// Whether the store publishes its chains.
    pub trust: bool,
}

struct Running {
    store: Arc<Hinge>,
    control: Arc<Control>,
    keys: Arc<AskedKeys>,
    trust: Option<Arc<Trust>>,
    world: Arc<dyn World>,
    address: SocketAddr,
    server: Arc<Server>,
    thread: JoinHandle<()>,
}

/// Counts what the server asks for.
struct AskedKeys {
    control: Arc<Control>,
    asked: AtomicU64,
}

impl KeyAccess for AskedKeys {
    fn access(&self, key_digest: Hash) -> Answer<'_, Option<Access>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.control.access(key_digest)
    }

    fn keys_used(&self, used: Vec<KeyUse>) -> Answer<'_, ()> {
        self.control.keys_used(used)
    }

    fn monitor_access(&self, token_digest: Hash) -> Answer<'_, Option<MonitorAccess>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.control.monitor_access(token_digest)
    }

    fn monitor_tokens_used(&self, used: Vec<(MonitorTokenId, u64)>) -> Answer<'_, ()> {
        self.control.monitor_tokens_used(used)
    }

    fn version(&self) -> u64 {
        self.control.version()
    }

    fn version_of(&self, tenant_id: TenantId) -> u64 {
        self.control.version_of(tenant_id)
    }

    fn hears_of_changes(&self) -> bool {
        self.control.hears_of_changes()
    }

    fn ready(&self) -> Result<(), StoreError> {
        self.control.ready()
    }
}

impl Service {
    pub fn start() -> Service {
        Service::with(|_| {})
    }

    /// One that publishes its chains when it is told to ([`Service::publish`]).
    pub fn publishing() -> Service {
        Service::with(|setup| setup.trust = true)
    }

    pub fn with(change: impl FnOnce(&mut Setup)) -> Service {
        Service::in_home(Home::new(), change)
    }

    pub fn in_home(home: Home, change: impl FnOnce(&mut Setup)) -> Service {
        let mut config = Config::at(BASE_URL);
        config.operator_token = Some(Secret(TOKEN.into()));
        config.limits.per_ip_rps = 0;
        let service = Settings::at(&format!("{BASE_URL}/app"));
        let mut setup =
            Setup { config, service, segment_bytes: 1 << 20, pages: axum::Router::new(), trust: false };
        change(&mut setup);
        let mut service = Service {
            clock: StillWorld::random_at(NOON_MS),
            tenant_id: String::new(),
            project_id: String::new(),
            live: String::new(),
            test: String::new(),
            running: None,
            setup,
            home,
            keys: tempfile::tempdir().unwrap(),
        };
        service.resume();
        if service.setup.config.operator_token.is_some() {
            service.tenant_id = service.new_tenant(&json!({"name": "Acme"}));
            service.project_id = service.new_project(&service.tenant_id, &[]);
            service.live = service.new_key(&service.project_id, "live");
            service.test = service.new_key(&service.project_id, "test");
            // What a test finds in the store is then its own doing.
            service.await_drained();
        }
        service
    }

    /// Waits until every change is in its system chain.
    pub fn await_drained(&self) {
        eventually(|| wait(self.control().count_records()) == Ok(0));
    }

    /// Stops the server and closes the store.
    pub fn stop(&mut self) {
        let Some(Running { store, server, thread, trust, .. }) = self.running.take() else { return };
        server.stop();
        thread.join().unwrap();
        drop(trust);
        assert_eq!(Arc::strong_count(&store), 1, "someone still holds the store");
    }

    /// Tells the server to stop, and does not wait until it has.
    pub fn begin_stop(&self) {
        self.running().server.stop();
    }

    /// Opens the store and starts the server again, with the same settings.
    pub fn resume(&mut self) {
        // As `sealog serve` does it.
        let world: Arc<dyn World> = Arc::new(GuardedWorld::new(Arc::clone(&self.clock) as _, false));
        let (inner, control, trees) = self.home.open(self.setup.segment_bytes, &world, self.setup.trust);
        let store = Arc::new(Hinge::new(inner));
        let trust = trees.map(|trees| {
            let opened = (Arc::clone(&store) as Arc<dyn Store>, Arc::clone(&control));
            Trust::open(trees, opened, None, self.signing(), Arc::clone(&world), Begins::AtStart).unwrap()
        });
        let trust = trust.map(Arc::new);
        let settings = Settings { trust: trust.clone(), ..self.setup.service.clone() };
        let keys = Arc::new(AskedKeys { control: Arc::clone(&control), asked: AtomicU64::new(0) });
        let service = sealog_engine::Service::new(
            Arc::clone(&store) as Arc<dyn Store>,
            Arc::clone(&control),
            Arc::clone(&world),
            settings,
        );
        let app = App::with_keys(service, Arc::clone(&keys) as _, self.setup.config.clone());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Arc::new(Server::new());
        let (serving, pages) = (Arc::clone(&server), self.setup.pages.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                tokio::join!(
                    serve_with_pages(Arc::clone(&app), pages, listener, &serving),
                    background::run(Arc::clone(&app), &serving)
                );
            });
        });
        self.running = Some(Running { store, control, keys, trust, world, address, server, thread });
    }

    pub fn restart(&mut self) {
        self.stop();
        self.resume();
    }

    pub fn address(&self) -> SocketAddr {
        self.running().address
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("the service is stopped")
    }

    /// The store between the server and the disk, which can be made to stall, fail or lie.
    pub fn hinge(&self) -> &Hinge {
        &self.running().store
    }

    pub fn control(&self) -> &Control {
        &self.running().control
    }

    /// What the store publishes.
    pub fn trust(&self) -> &Trust {
        self.running().trust.as_ref().expect("the test did not ask for a store that publishes")
    }

    /// How often the server had to ask what a key gives access to.
    pub fn look_ups(&self) -> u64 {
        self.running().keys.asked.load(Ordering::SeqCst)
    }

    /// Where the store is kept, for tests that do something to it while the service is stopped.
    pub fn home(&self) -> &Home {
        &self.home
    }

    fn signing(&self) -> SignerSettings {
        let key = |name| Some(KeyFile { path: self.keys.path().join(name), origin: KeyOrigin::Made });
        SignerSettings {
            log_key: key("log.key"),
            service_key: key("service.key"),
            origin: None,
            host: Some("log.example".into()),
            state_copy: None,
            interval_s: INTERVAL_MS / 1000,
            max_delay_s: 600,
        }
    }

    /// An interval passes: all that was acknowledged is published then.
    pub fn publish(&self) {
        let Running { trust, world, .. } = self.running();
        let trees = &trust.as_ref().expect("the test did not ask for a store that publishes").trees;
        self.clock.advance(INTERVAL_MS);
        let (now_ms, log) = (self.clock.now_ms(), Arc::new(trees.store_log()));
        let signer = Signer::open(Arc::clone(&log), self.signing(), Arc::clone(world), None).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let heads = BuiltHeads::new(Arc::clone(trees), Arc::clone(&log), runtime.handle().clone());
        // The server's own loop may be faster, as a second signer.
        eventually(|| {
            signer.turn(&heads).unwrap();
            let place = log.place().unwrap().unwrap();
            let signed = log.newest().unwrap().map(|signed| signed.tree);
            place.heads_ms >= now_ms && signed == Some(place.tree)
        });
    }

    /// The old snapshots that are due go.
    pub fn thin(&self) {
        let log = self.running().trust.as_ref().expect("the store publishes").trees.store_log();
        while log.thin(self.clock.now_ms()).unwrap() {}
    }

    /// What the tenant's live events of the current month are counted as.
    pub fn usage(&self) -> u64 {
        let tenant_id = TenantId(Uuid::parse(&self.tenant_id).unwrap());
        wait(self.hinge().usage(tenant_id, Month::of(self.clock.now_ms()))).unwrap()
    }

    // The operator's interface.

    pub fn operator(&self, method: &str, path: &str, body: &Value) -> Response {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.request(
            method,
            &format!("/operator/v1{path}"),
            &[("Authorization", &bearer(TOKEN))],
            body.as_bytes(),
        )
    }

    pub fn new_tenant(&self, body: &Value) -> String {
        self.operator("POST", "/tenants", body).created("tenant_id")
    }

    pub fn new_project(&self, tenant_id: &str, frameworks: &[&str]) -> String {
        let body = json!({"name": "project", "frameworks": frameworks});
        self.operator("POST", &format!("/tenants/{tenant_id}/projects"), &body).created("project_id")
    }

    pub fn new_key(&self, project_id: &str, mode: &str) -> String {
        let body = json!({"name": "key", "mode": mode});
        self.operator("POST", &format!("/projects/{project_id}/keys"), &body).created("key")
    }

    pub fn new_monitor_token(&self, project_id: &str) -> String {
        let path = format!("/projects/{project_id}/monitor-tokens");
        self.operator("POST", &path, &json!({"name": "monitor"})).created("token")
    }

    /// A token for the system chain of the tenant, as its owner makes one in the dashboard.
    pub fn new_system_token(&self) -> String {
        let (tenant_id, control) = (TenantId(Uuid::parse(&self.tenant_id).unwrap()), self.control());
        let token = generate_monitor_token([9; 32]);
        let new = NewMonitorToken {
            id: MonitorTokenId(Uuid::from_random([9; 16])),
            tenant_id,
            project_id: wait(control.known_system_project(tenant_id)).unwrap().unwrap(),
            name: "auditor".into(),
            digest: digest(&token),
            prefix: token[..12].into(),
            expires_at_ms: None,
            created_at_ms: self.clock.now_ms(),
            created_by: None,
        };
        wait(control.create_monitor_token(new, Vec::new())).unwrap().unwrap();
        token
    }

    /// A live key of a new tenant on this plan whose project has these frameworks.
    pub fn newcomer(&self, plan: &str, frameworks: &[&str]) -> String {
        let tenant_id = self.new_tenant(&json!({"name": "newcomer", "plan": plan}));
        self.new_key(&self.new_project(&tenant_id, frameworks), "live")
    }

    pub fn new_action(&self, body: &Value) {
        self.operator("POST", &format!("/tenants/{}/actions", self.tenant_id), body).created("action");
    }

    #[track_caller]
    pub fn change_tenant(&self, body: &Value) {
        self.operator("PATCH", &format!("/tenants/{}", self.tenant_id), body).ok();
    }

    #[track_caller]
    pub fn change_project(&self, body: &Value) {
        self.operator("PATCH", &format!("/projects/{}", self.project_id), body).ok();
    }

    // Requests.

    pub fn get(&self, path: &str, key: &str) -> Response {
        self.request("GET", path, &[("Authorization", &bearer(key))], b"")
    }

    pub fn post(&self, path: &str, key: &str, body: impl AsRef<[u8]>) -> Response {
        self.request("POST", path, &[("Authorization", &bearer(key))], body.as_ref())
    }

    pub fn event(&self, key: &str, body: impl AsRef<[u8]>) -> Response {
        self.post("/v1/events", key, body)
    }

    pub fn batch(&self, key: &str, body: impl AsRef<[u8]>) -> Response {
        self.post("/v1/events/batch", key, body)
    }

    /// An event with an `Idempotency-Key`.
    pub fn once(&self, key: &str, idempotency_key: &str, body: &str) -> Response {
        let headers = [("Authorization", bearer(key)), ("Idempotency-Key", idempotency_key.to_owned())];
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.request("POST", "/v1/events", &headers, body.as_bytes())
    }

    #[track_caller]
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.send(&request(method, path, headers, body));
        let response = connection.receive();
        crate::document::check(method, path, &response);
        response
    }

    /// Bytes as they are, and whatever answer they get.
    pub fn raw(&self, bytes: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.send(bytes);
        connection.receive()
    }

    pub fn connect(&self) -> Connection {
        Connection::new(TcpStream::connect(self.address()).unwrap())
    }

    /// A connection that comes from another address of this machine.
    pub fn connect_from(&self, source: &str) -> Connection {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let stream = runtime.block_on(async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.bind(SocketAddr::new(source.parse().unwrap(), 0)).unwrap();
            socket.connect(self.address()).await.unwrap()
        });
        let stream = stream.into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        Connection::new(stream)
    }

    // What tests often need in passing.

    /// Stores an event and returns its id.
    #[track_caller]
    pub fn log(&self, key: &str, body: &str) -> String {
        self.event(key, body).accepted()
    }

    /// Stores an event and reads it back.
    #[track_caller]
    pub fn stored(&self, key: &str, body: &str) -> Value {
        let log_id = self.log(key, body);
        self.read(key, &log_id)
    }

    #[track_caller]
    pub fn read(&self, key: &str, log_id: &str) -> Value {
        self.get(&format!("/v1/events/{log_id}"), key).ok()
    }

    /// Stores this many events, the first of which has the actor `u1`, in batches of 100.
    #[track_caller]
    pub fn fill(&self, key: &str, count: usize) -> Vec<String> {
        let actors: Vec<usize> = (1..=count).collect();
        let mut log_ids = Vec::new();
        for actors in actors.chunks(100) {
            let events: Vec<Value> =
                actors.iter().map(|n| json!({"action": "user.login", "actor_id": format!("u{n}")})).collect();
            let answer = self.batch(key, json!({ "events": events }).to_string());
            assert_eq!(answer.status, 202, "{}", answer.body);
            log_ids.extend(answer.json["log_ids"].as_array().unwrap().iter().map(text));
        }
        log_ids
    }

    /// Values of a field of all events on a page.
    #[track_caller]
    pub fn listed(&self, key: &str, query: &str, field: &str) -> Vec<Value> {
        let page = self.get(&format!("/v1/events{query}"), key).ok();
        page["events"].as_array().unwrap().iter().map(|event| event[field].clone()).collect()
    }

    /// How many events the key's chain has.
    #[track_caller]
    pub fn count(&self, key: &str) -> u64 {
        let verdict = self.get("/v1/events/verify", key).ok();
        assert_eq!(verdict["valid"], true, "{verdict}");
        verdict["checked"].as_u64().unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

pub fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// A body of exactly this many bytes around one event.
pub fn single_of(bytes: usize) -> String {
    padded(r#"{"action":"user.login","metadata":{"pad":""#, bytes, r#""}}"#)
}

/// A batch body of exactly this many bytes with one event.
pub fn batch_of(bytes: usize) -> String {
    padded(r#"{"events":[{"action":"user.login","metadata":{"pad":""#, bytes, r#""}}]}"#)
}

fn padded(before: &str, bytes: usize, after: &str) -> String {
    format!("{before}{}{after}", "x".repeat(bytes - before.len() - after.len()))
}

/// A batch body with this many logins.
pub fn logins(count: usize) -> String {
    format!(r#"{{"events":[{}]}}"#, vec![LOGIN; count].join(","))
}

/// The bytes of a request.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: log.example\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    if !body.is_empty() || method == "POST" || method == "PATCH" {
        write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

/// Waits for what another thread is about to do.
#[track_caller]
pub fn eventually(is_so: impl FnMut() -> bool) {
    sealog_testing::eventually("what another thread is about to do", is_so);
}

pub struct Connection {
    stream: TcpStream,
    /// Received and not yet taken.
    received: Vec<u8>,
    opened: Instant,
    /// How the connection ended, if not as it should: a reset says that the server had not read everything.
    broken: Option<ErrorKind>,
}

impl Connection {
    fn new(stream: TcpStream) -> Connection {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Connection { stream, received: Vec::new(), opened: Instant::now(), broken: None }
    }

    /// Sends; a server that has already answered and closed is no failure.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn get(&mut self, path: &str, key: &str) -> Response {
        self.send(&request("GET", path, &[("Authorization", &bearer(key))], b""));
        self.receive()
    }

    /// The next response.
    pub fn receive(&mut self) -> Response {
        let mut response = self.receive_head();
        let body = if response.header("transfer-encoding") == Some("chunked") {
            self.chunks()
        } else if let Some(length) = response.header("content-length") {
            let length = length.parse().unwrap();
            self.exactly(length)
        } else {
            Vec::new()
        };
        response.bytes.clone_from(&body);
        response.body = match response.header("content-type") {
            Some("application/x-protobuf" | "application/octet-stream") => {
                String::from_utf8_lossy(&body).into_owned()
            }
            _ => String::from_utf8(body).unwrap(),
        };
        response.json = serde_json::from_str(&response.body).unwrap_or(Value::Null);
        response
    }

    /// The next response without its body: all there is of the answer to a `HEAD`, which says a length and
    /// has no body.
    pub fn receive_head(&mut self) -> Response {
        let end = loop {
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end;
            }
            assert!(
                self.more(),
                "the connection ended without an answer after {:?} ({:?}): {:?}",
                self.opened.elapsed(),
                self.broken,
                self.received
            );
        };
        let head: Vec<u8> = self.received.drain(..end + 4).collect();
        let head = String::from_utf8(head).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Response { status, headers, bytes: Vec::new(), body: String::new(), json: Value::Null }
    }

    /// The port of this end: another one would be another connection.
    pub fn local_port(&self) -> u16 {
        self.stream.local_addr().unwrap().port()
    }

    /// Whether the server has ended the connection without another byte.
    pub fn ended(&mut self) -> bool {
        self.received.is_empty() && !self.more()
    }

    /// No more will be sent.
    pub fn finish_sending(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    pub fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.received.len() < length {
            assert!(self.more(), "the connection ended in the middle of a body");
        }
        self.received.drain(..length).collect()
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = find(&self.received, b"\r\n") {
                    break end;
                }
                assert!(self.more(), "the connection ended in the middle of a body");
            };
            let line: Vec<u8> = self.received.drain(..end + 2).collect();
            let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
            body.extend(self.exactly(length));
            self.exactly(2);
            if length == 0 {
                return body;
            }
        }
    }

    fn more(&mut self) -> bool {
        let mut buffer = [0; 64 << 10];
        let count = match self.stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                panic!("the server neither answers nor ends")
            }
            // A reset is an end too.
            Err(error) => {
                self.broken = Some(error.kind());
                0
            }
        };
        self.received.extend_from_slice(&buffer[..count]);
        count > 0
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[derive(Debug)]
pub struct Response {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub bytes: Vec<u8>,
    pub body: String,
    /// Null when the body is no JSON.
    pub json: Value,
}

impl Response {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn request_id(&self) -> &str {
        self.header("x-request-id").expect("every response has an X-Request-Id")
    }

    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        assert_eq!(self.header("content-type"), Some("application/json"));
        self.json.clone()
    }

    /// The `log_id` of an accepted event.
    #[track_caller]
    pub fn accepted(&self) -> String {
        assert_eq!(self.status, 202, "{}", self.body);
        text(&self.json["log_id"])
    }

    /// A field of what the operator created.
    #[track_caller]
    pub fn created(&self, field: &str) -> String {
        assert_eq!(self.status, 201, "{}", self.body);
        text(&self.json[field])
    }

    /// Checks the whole error object and returns its message, the one part that may change.
    #[track_caller]
    pub fn rejected(&self, status: u16, code: &str) -> String {
        let error = &self.json["error"];
        assert_eq!((self.status, error["code"].as_str()), (status, Some(code)), "{}", self.body);
        let message = text(&error["message"]);
        let mut expected = json!({ "error": {
            "code": code,
            "message": message,
            "request_id": self.request_id(),
            "doc_url": format!("{BASE_URL}/docs/errors/{code}"),
        }});
        if code == "action/invalid" {
            expected["error"]["valid_actions_url"] = format!("{BASE_URL}/v1/actions").into();
            if let Some(suggestion) = error.get("suggestion") {
                expected["error"]["suggestion"] = suggestion.clone();
            }
        }
        assert_eq!(self.json, expected);
        assert_eq!(self.header("content-type"), Some("application/json"));
        if code == "tlog/not_yet" {
            assert!(self.header("retry-after").is_some_and(|seconds| seconds.parse::<u64>().unwrap() > 0));
        } else {
            assert_eq!(self.header("retry-after"), (status == 429).then_some("1"));
        }
        assert!(!message.is_empty());
        message
    }
}

/// A store that passes everything on, until it is told otherwise.
pub struct Hinge {
    inner: Arc<dyn Store>,
    mood: Mutex<Mood>,
    /// One word for each append that is held.
    held: (Mutex<mpsc::Sender<()>>, Mutex<mpsc::Receiver<()>>),
    gate: Semaphore,
    reads: AtomicU64,
    lists: AtomicUsize,
    /// Calls for the heads of all chains, and for statistics.
    overviews: AtomicUsize,
    /// Calls for the head of one.
    heads: AtomicUsize,
}

#[derive(Clone, Copy)]
pub enum Mood {
    Willing,
    /// Appends wait until they are released.
    Holding,
    WritesFail,
    /// So many appends succeed; then the disk is full.
    NoRoomAfter(usize),
    /// So many appends succeed; those that follow are made, and the database is gone before it says so.
    AnswersLostAfter(usize),
    /// Those to system chains; to that of one tenant, or of all.
    SystemWritesFail(Option<TenantId>),
    ReadsFail,
    /// A part of the log cannot be read, so that there may be chains that nobody knows of.
    HeadsUnknown,
    /// Events are accepted, and an old segment cannot be read.
    Degraded,
    Panicking,
    /// A list looks at so many events in one call, and returns those of them that match.
    ListsLookAt(usize),
    /// Events up to this `chain_seq` were deleted, as a retention of live events would.
    Dropped(u64),
    /// What a verification reads of the event with this `chain_seq` was changed behind the server's back.
    Tampered(u64, fn(&mut StoredEvent)),
}

impl Hinge {
    fn new(inner: Arc<dyn Store>) -> Hinge {
        let (sender, receiver) = mpsc::channel();
        Hinge {
            inner,
            mood: Mutex::new(Mood::Willing),
            held: (Mutex::new(sender), Mutex::new(receiver)),
            gate: Semaphore::new(0),
            reads: AtomicU64::new(0),
            lists: AtomicUsize::new(0),
            overviews: AtomicUsize::new(0),
            heads: AtomicUsize::new(0),
        }
    }

    /// How often events were read.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// How many lists the store was asked for.
    pub fn lists(&self) -> usize {
        self.lists.load(Ordering::SeqCst)
    }

    /// How often the store was asked for the heads of all chains, or for statistics.
    pub fn overviews(&self) -> usize {
        self.overviews.load(Ordering::SeqCst)
    }

    /// How often the store was asked for the head of one chain.
    pub fn heads_of_one(&self) -> usize {
        self.heads.load(Ordering::SeqCst)
    }

    pub fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap()
    }

    /// Returns when an append is being held.
    pub fn wait_until_held(&self) {
        self.held.1.lock().unwrap().recv_timeout(PATIENCE).expect("no append came");
    }

    /// Lets one held append go on.
    pub fn release(&self) {
        self.gate.add_permits(1);
    }

    /// Whether an append is one of those that still succeed.
    fn succeeds(&self) -> bool {
        let mut mood = self.mood.lock().unwrap();
        let (Mood::NoRoomAfter(left) | Mood::AnswersLostAfter(left)) = &mut *mood else { return true };
        let succeeds = *left > 0;
        *left = left.saturating_sub(1);
        succeeds
    }

    fn readable(&self) -> Result<(), StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        match self.mood() {
            Mood::ReadsFail => Err(StoreError::Read("asked for by a test".into())),
            Mood::Panicking => panic!("asked for by a test"),
            _ => Ok(()),
        }
    }
}

impl Store for Hinge {
    fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> BoxFuture<'_, Result<Reserved, StoreError>> {
        self.inner.reserve(chain, key)
    }

    fn append(&self, append: Append) -> BoxFuture<'_, Result<Appended, StoreError>> {
        Box::pin(async move {
            match self.mood() {
                Mood::SystemWritesFail(whose)
                    if append.chain.is_system()
                        && whose.is_none_or(|whose| whose == append.chain.tenant_id) =>
                {
                    return Err(StoreError::NoRoom);
                }
                // No test that did not ask for it is about what the operator's calls leave behind.
                _ if append.chain.is_system() => {}
                Mood::Holding => {
                    self.held.0.lock().unwrap().send(()).unwrap();
                    self.gate.acquire().await.unwrap().forget();
                }
                Mood::WritesFail => return Err(StoreError::Poisoned("asked for by a test".into())),
                Mood::NoRoomAfter(_) if !self.succeeds() => return Err(StoreError::NoRoom),
                Mood::AnswersLostAfter(_) if !self.succeeds() => {
                    self.inner.append(append).await?;
                    return Err(StoreError::Unavailable("asked for by a test".into()));
                }
                Mood::Panicking => panic!("asked for by a test"),
                _ => {}
            }
            self.inner.append(append).await
        })
    }

    fn get(&self, chain: ChainId, log_id: Ulid) -> BoxFuture<'_, Result<Option<StoredEvent>, StoreError>> {
        Box::pin(async move {
            self.readable()?;
            self.inner.get(chain, log_id).await
        })
    }

    fn list(&self, chain: ChainId, list: List) -> BoxFuture<'_, Result<Chunk<StoredEvent>, StoreError>> {
        Box::pin(async move {
            self.readable()?;
            self.lists.fetch_add(1, Ordering::SeqCst);
            let Mood::ListsLookAt(events) = self.mood() else { return self.inner.list(chain, list).await };
            let List { filter, before_seq, limit, bytes_max } = list;
            let looked_at =
                List { filter: Filter::default(), before_seq, limit: events.min(limit), bytes_max };
            let mut chunk = self.inner.list(chain, looked_at).await?;
            chunk.items.retain(|event| filter.matches(event));
            Ok(chunk)
        })
    }

    fn range(&self, chain: ChainId, range: Range) -> BoxFuture<'_, Result<Chunk<Item>, StoreError>> {
        Box::pin(async move {
            self.readable()?;
            let mut chunk = self.inner.range(chain, range).await?;
            if let Mood::Tampered(chain_seq, change) = self.mood() {
                for item in &mut chunk.items {
                    if let Item::Event(event) = item
                        && event.sealed.chain_seq == chain_seq
                    {
                        change(event);
                    }
                }
            }
            Ok(chunk)
        })
    }

    fn head(&self, chain: ChainId) -> BoxFuture<'_, Result<ChainHead, StoreError>> {
        self.heads.fetch_add(1, Ordering::SeqCst);
        let Mood::Dropped(chain_seq) = self.mood() else { return self.inner.head(chain) };
        Box::pin(async move {
            let mut head = self.inner.head(chain).await?;
            head.dropped.chain_seq = chain_seq;
            Ok(head)
        })
    }

    fn heads(&self) -> BoxFuture<'_, Result<Vec<(ChainId, Head)>, StoreError>> {
        self.overviews.fetch_add(1, Ordering::SeqCst);
        match self.mood() {
            Mood::HeadsUnknown => Box::pin(async { Err(StoreError::Read("asked for by a test".into())) }),
            _ => self.inner.heads(),
        }
    }

    fn follow(&self, scope: Scope, start: Start) -> BoxFuture<'_, Result<Follower, StoreError>> {
        self.inner.follow(scope, start)
    }

    fn usage(&self, tenant_id: TenantId, month: Month) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.inner.usage(tenant_id, month)
    }

    fn counts(&self, chain: ChainId, days: Days) -> BoxFuture<'_, Result<Counts, StoreError>> {
        self.inner.counts(chain, days)
    }

    fn import(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        key: Option<KeptKey>,
    ) -> BoxFuture<'_, Result<Head, StoreError>> {
        self.inner.import(chain, events, key)
    }

    fn kept_keys(
        &self,
        chain: ChainId,
        wanted: WantedKeys,
    ) -> BoxFuture<'_, Result<Vec<KeptKey>, StoreError>> {
        self.inner.kept_keys(chain, wanted)
    }

    fn stats(&self) -> BoxFuture<'_, Result<StoreStats, StoreError>> {
        self.overviews.fetch_add(1, Ordering::SeqCst);
        self.inner.stats()
    }

    fn plan_drop(&self, before_ms: u64) -> BoxFuture<'_, Result<DropPlan, StoreError>> {
        self.inner.plan_drop(before_ms)
    }

    fn drop_planned(&self, plan: DropPlan) -> BoxFuture<'_, Result<DropStep, StoreError>> {
        self.inner.drop_planned(plan)
    }

    fn pool(&self) -> &FairPool {
        self.inner.pool()
    }

    fn notices(&self) -> Vec<&'static str> {
        self.inner.notices()
    }

    fn degraded(&self) -> Vec<String> {
        match self.mood() {
            Mood::Degraded => vec!["segment 1 cannot be read".into(), "asked for by a test".into()],
            _ => self.inner.degraded(),
        }
    }

    fn ready(&self) -> Result<(), StoreError> {
        match self.mood() {
            Mood::WritesFail => Err(StoreError::Poisoned("asked for by a test".into())),
            _ => self.inner.ready(),
        }
    }
}
