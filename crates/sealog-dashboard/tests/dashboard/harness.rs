//! A dashboard without a server around it: requests go to its router, with what the server would add.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, BodyDataStream, to_bytes};
use axum::http::{HeaderMap, Request};
use futures_util::StreamExt;
use sealog_control::*;
use sealog_core::catalog::FrameworkSet;
use sealog_core::event::{StoredEvent, parse_single};
use sealog_core::id::{ChainId, Mode, ProjectId, RequestId, TenantId, Ulid, Uuid};
use sealog_core::plan::Billing;
use sealog_core::query::Filter;
use sealog_dashboard::ops::{Console, Instance, Room};
use sealog_dashboard::{Config, Dashboard, Pages};
use sealog_engine::trees::Trees;
use sealog_engine::trust_log::keys::{KeyFile, Origin as KeyOrigin};
use sealog_engine::trust_log::{Settings as SignerSettings, Signer};
use sealog_engine::{Begins, Service, Settings, Trust};
use sealog_service::evidence::search::Work;
use sealog_service::evidence::verification::Schedule;
use sealog_service::people::admin::Admin;
use sealog_service::people::mail::{Relay, Sender, Smtp};
use sealog_service::people::sign_in::{SignInCounts, Token};
use sealog_service::{Stop, Visit};
use sealog_store::embedded::disk::Disk;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::pool::Lane;
use sealog_store::postgres::PostgresStore;
use sealog_store::reference::ReferenceStore;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{Append, Appended, List, Store};
use sealog_testing::busy::Blocked;
use sealog_testing::doubtful::DoubtfulStore;
use sealog_testing::eventually;
use sealog_testing::postgres::{Database, cluster};
use sealog_tlog::BuiltHeads;
use tower_service::Service as _;

use sealog_testing::{MORNING_MS, StillWorld};

pub const HOME: &str = "http://127.0.0.1:8080";
/// Of the signed log.
const INTERVAL_MS: u64 = 60_000;
pub const PASSWORD: &str = "correct horse battery";
/// Pieces that a search of a page looks through, of up to 256 events or a megabyte.
pub const SEARCH_STEPS: u32 = 8;

/// A clock that moves when it is told to, and randomness that is some.
pub struct Clock {
    now_ms: AtomicU64,
    at_random: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&self.now_ms).finish()
    }
}

impl Clock {
    pub fn advance(&self, ms: u64) {
        self.now_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Does something in the middle of a request: when it next asks for randomness, as for a new token.
    pub fn at_next_random(&self, act: impl FnOnce() + Send + 'static) {
        *self.at_random.lock().unwrap() = Some(Box::new(act));
    }
}

impl World for Clock {
    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::SeqCst)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        let act = self.at_random.lock().unwrap().take();
        if let Some(act) = act {
            act();
        }
        SystemWorld.fill_random(bytes);
    }
}

/// [`PASSWORD`] as it is kept. Each salt is hashed once: the hashes took a quarter of the time of all tests.
pub fn hash_of_password(salt: u8) -> String {
    static KNOWN: Mutex<BTreeMap<u8, String>> = Mutex::new(BTreeMap::new());
    if let Some(hash) = KNOWN.lock().unwrap().get(&salt) {
        return hash.clone();
    }
    let hash = sealog_service::people::password::hash_now(PASSWORD, &[salt; 16]).unwrap();
    KNOWN.lock().unwrap().insert(salt, hash.clone());
    hash
}

pub struct Stage {
    pub store: Arc<dyn Store>,
    /// The same, to be told what to do wrong.
    pub doubtful: Arc<DoubtfulStore>,
    pub control: Arc<Control>,
    pub clock: Arc<Clock>,
    /// The clock that events are sealed by.
    pub sealing: Arc<StillWorld>,
    pub claimed: Arc<AtomicBool>,
    pub service: Arc<Service>,
    pub sign_ins: Arc<SignInCounts>,
    pub admin: Admin,
    pages: Pages,
    router: Router,
    runtime: tokio::runtime::Runtime,
    dir: tempfile::TempDir,
    /// Dropped last, and removed then.
    _database: Option<Database>,
}

fn signing(dir: &Path) -> SignerSettings {
    let key = |name| Some(KeyFile { path: dir.join(name), origin: KeyOrigin::Made });
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

impl Stage {
    /// Embedded, or with `SEALOG_TEST_STORE=citus` on the cluster that `SEALOG_TEST_CITUS` names.
    pub fn new() -> Stage {
        match std::env::var("SEALOG_TEST_STORE").as_deref() {
            Ok("citus") => Stage::on(Database::distributed().by_workers()),
            _ => Stage::at(&format!("{HOME}/app")),
        }
    }

    pub fn at(app_url: &str) -> Stage {
        Stage::embedded(app_url, true)
    }

    /// On a server that cannot send mail.
    pub fn without_mail() -> Stage {
        Stage::embedded(&format!("{HOME}/app"), false)
    }

    fn embedded(app_url: &str, has_mail: bool) -> Stage {
        let (dir, sealing) = (tempfile::tempdir().unwrap(), StillWorld::new());
        // Room for the largest event.
        let options = Options {
            segment_bytes_first: 8 << 20,
            segment_bytes_max: 8 << 20,
            ..sealog_testing::small(&sealing)
        };
        let store = EmbeddedStore::open(dir.path(), &options).unwrap();
        let control = Control::embedded(&store).unwrap();
        Stage::over(Arc::new(store), control, dir, app_url, sealing, has_mail, None)
    }

    /// On a disk of the machine, which may be full.
    pub fn on_disk(at: &Path, disk: Arc<dyn Disk>) -> Stage {
        let (dir, sealing) = (tempfile::tempdir().unwrap(), StillWorld::new());
        let options = Options { disk, ..sealog_testing::small(&sealing) };
        let store = EmbeddedStore::open(&at.join("data"), &options).unwrap();
        let control = Control::embedded(&store).unwrap();
        Stage::over(Arc::new(store), control, dir, &format!("{HOME}/app"), sealing, true, None)
    }

    /// With a signed log, which has what [`Stage::publish`] publishes.
    pub fn with_log() -> Stage {
        let (dir, sealing) = (tempfile::tempdir().unwrap(), StillWorld::new());
        let store = Arc::new(EmbeddedStore::open(dir.path(), &sealog_testing::small(&sealing)).unwrap());
        let control = Control::embedded(&store).unwrap();
        let trees = Trees::embedded(&store, Arc::clone(&sealing) as _).unwrap();
        Stage::over(store, control, dir, &format!("{HOME}/app"), sealing, true, Some(trees))
    }

    /// All that was acknowledged gets into the signed log.
    pub fn publish(&self) {
        let trees = &self.service.trust().expect("the stage has a log").trees;
        self.sealing.advance(INTERVAL_MS);
        let (now_ms, log) = (self.sealing.now_ms(), Arc::new(trees.store_log()));
        let world = Arc::clone(&self.sealing) as _;
        let signer = Signer::open(Arc::clone(&log), signing(self.dir.path()), world, None).unwrap();
        let heads = BuiltHeads::new(Arc::clone(trees), Arc::clone(&log), self.runtime.handle().clone());
        eventually("it is published", || {
            signer.turn(&heads).unwrap();
            log.place().unwrap().is_some_and(|place| place.heads_ms >= now_ms)
        });
    }

    pub fn on_postgres() -> Stage {
        Stage::on(cluster().database())
    }

    fn on(database: Database) -> Stage {
        let sealing = StillWorld::new();
        let store = PostgresStore::open(&database.url(), &sealog_testing::on_postgres(&sealing)).unwrap();
        let control = Control::on_postgres(&store).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let app_url = format!("{HOME}/app");
        let stage = Stage::over(Arc::new(store), control, dir, &app_url, sealing, true, None);
        Stage { _database: Some(database), ..stage }
    }

    pub fn without_console() -> Stage {
        let mut stage = Stage::new();
        stage.pages.console = None;
        stage.router = stage.pages.router();
        stage
    }

    /// On a store that can be made to lose events.
    pub fn on_reference() -> (Stage, Arc<ReferenceStore>) {
        let (dir, sealing) = (tempfile::tempdir().unwrap(), StillWorld::new());
        let store = Arc::new(ReferenceStore::new(Arc::clone(&sealing) as _));
        let (shared, app_url) = (Arc::clone(&store) as _, format!("{HOME}/app"));
        (Stage::over(shared, Control::in_memory(), dir, &app_url, sealing, true, None), store)
    }

    fn over(
        store: Arc<dyn Store>,
        control: Control,
        dir: tempfile::TempDir,
        app_url: &str,
        sealing: Arc<StillWorld>,
        has_mail: bool,
        trees: Option<Trees>,
    ) -> Stage {
        let doubtful = DoubtfulStore::new(store);
        let store: Arc<dyn Store> = Arc::clone(&doubtful) as _;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (control, clock) = (
            Arc::new(control),
            Arc::new(Clock { now_ms: AtomicU64::new(MORNING_MS), at_random: Mutex::default() }),
        );
        let claimed = Arc::new(AtomicBool::new(false));
        let on_claimed = Arc::clone(&claimed);
        let mut settings = Settings::at(app_url);
        settings.verification =
            Some(Schedule { at_ms: Schedule::parse_time("02:30").unwrap(), report_on: None });
        settings.smtp = has_mail.then(|| Smtp {
            relay: Relay::parse("smtp://mail.example").unwrap(),
            from: Sender::parse("log@example.org").unwrap(),
        });
        settings.trust = trees.map(|trees| {
            let opened = (Arc::clone(&store), Arc::clone(&control));
            let world = Arc::clone(&sealing) as _;
            Arc::new(Trust::open(trees, opened, None, signing(dir.path()), world, Begins::AtStart).unwrap())
        });
        let world = Arc::clone(&clock) as _;
        let service = Service::new(Arc::clone(&store), Arc::clone(&control), world, settings);
        let instance = Instance {
            url: app_url.replace("/app", "/ops"),
            docs_url: format!("{HOME}/docs"),
            store: "A store of tests".into(),
            schema: SCHEMA.sqlite.len(),
            room: Arc::new(|| {
                Ok(Room {
                    dir: "data".into(),
                    free_bytes: 3 << 30,
                    total_bytes: 10 << 30,
                    reserve_bytes: Some(8 << 20),
                    control_bytes: Some(1 << 20),
                })
            }),
        };
        let console = Console::new(Arc::clone(&service), instance);
        let dashboard = Dashboard::new(
            Arc::clone(&service),
            Config {
                base_url: HOME.into(),
                docs_url: format!("{HOME}/docs"),
                search: Work::Steps(SEARCH_STEPS),
            },
            Arc::new(move || on_claimed.store(true, Ordering::SeqCst)),
        );
        let pages = Pages { dashboard, console: Some(console), console_is_apart: false };
        Stage {
            store,
            doubtful,
            control,
            clock,
            sealing,
            claimed,
            admin: service.admin.clone(),
            sign_ins: Arc::clone(service.admin.sign_ins()),
            service,
            router: pages.router(),
            pages,
            runtime,
            dir,
            _database: None,
        }
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Does all jobs that are due, as the background of a server would.
    pub fn work(&self) {
        while self.wait(self.service.runner.turn(&Stop::new(), &mut None)).unwrap() {}
    }

    /// Drops packages that have expired, as the background of a server would. How many.
    pub fn sweep(&self) -> usize {
        self.wait(self.service.package_sweep.sweep()).unwrap()
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Lets tasks that nobody waits for come to their end.
    pub fn settle(&self, done: impl Fn() -> bool) {
        for _ in 0..100_000 {
            if done() {
                return;
            }
            self.wait(tokio::task::yield_now());
            std::thread::yield_now();
        }
        panic!("it never came to pass");
    }

    // ---- What there is ----

    /// An organisation with two projects.
    pub fn tenant(&self, n: u8) -> TenantId {
        let id = tenant_id(n);
        let new = NewTenant {
            id,
            name: format!("Organisation {n}"),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: MORNING_MS,
        };
        self.wait(self.control.create_tenant(new, vec![])).unwrap();
        for project in [project_id(n), project_id(n + 100)] {
            let new = NewProject {
                id: project,
                tenant_id: id,
                name: format!("Project of {n}"),
                frameworks: FrameworkSet::NONE,
                created_at_ms: MORNING_MS,
            };
            self.wait(self.control.create_project(new, vec![])).unwrap();
        }
        id
    }

    pub fn member(&self, n: u8, tenant: u8, role: Role) -> PersonId {
        self.member_with(n, tenant, role, Grants::default(), None)
    }

    pub fn member_with(
        &self,
        n: u8,
        tenant: u8,
        role: Role,
        grants: Grants,
        ends_at_ms: Option<u64>,
    ) -> PersonId {
        let hash = hash_of_password(n);
        let person = NewPerson {
            id: person_id(n),
            email: email(n),
            password_hash: Some(hash),
            verified: true,
            created_at_ms: MORNING_MS,
        };
        let tenant_id = tenant_id(tenant);
        let new = NewMember { tenant_id, person, role, grants, ends_at_ms, created_at_ms: MORNING_MS };
        self.wait(self.control.add_member(new, Records::none())).unwrap().unwrap();
        person_id(n)
    }

    /// With an authenticator, whose secret is twenty times the number.
    pub fn with_authenticator(&self, n: u8) {
        let offered = Authenticator {
            person_id: person_id(n),
            secret: vec![n; 20],
            last_step: None,
            created_at_ms: MORNING_MS,
        };
        assert!(self.wait(self.control.offer_authenticator(offered)).unwrap());
        assert!(
            self.wait(self.control.confirm_authenticator(
                person_id(n),
                vec![n; 20],
                1,
                vec![],
                None,
                PersonRecords::none()
            ))
            .unwrap()
        );
    }

    /// A browser that is signed in, without the work of a password.
    pub fn signed_in(&self, n: u8) -> Browser<'_> {
        let token = Token::new(&*self.clock);
        let session = Session::<Person> {
            token_digest: token.digest(),
            account_id: person_id(n),
            needs_code: false,
            created_at_ms: self.now_ms(),
            expires_at_ms: self.now_ms() + 1_000_000_000,
            last_seen_at_ms: self.now_ms(),
            idle_ms: 1_000_000_000,
            address: None,
            user_agent: None,
        };
        self.wait(self.control.create_session(session, None)).unwrap();
        let mut browser = self.browser();
        browser.cookies.insert(format!("sealog_session={}", token.0.0));
        browser
    }

    pub fn browser(&self) -> Browser<'_> {
        Browser {
            stage: self,
            cookies: HashSet::new(),
            address: "192.0.2.1".parse().unwrap(),
            site: Some("same-origin"),
            host: "127.0.0.1:8080".into(),
        }
    }

    pub fn append(&self, chain: ChainId, body: &str) -> Ulid {
        let draft = parse_single(body.as_bytes()).unwrap().unwrap();
        let append = Append { chain, drafts: vec![draft], idempotency: None };
        match self.wait(self.store.append(append)).unwrap() {
            Appended::Sealed(receipt) => receipt.log_ids[0],
            other => panic!("{other:?}"),
        }
    }

    /// Puts failed sign-ins into the records, as the background job does.
    pub fn record_failures(&self) {
        self.wait(self.service.failed_sign_ins.record_due()).unwrap();
    }

    /// What people have done: sealed, and behind it what waits for that.
    pub fn records(&self, tenant: u8) -> Vec<String> {
        let pending = self.wait(self.control.pending_records(tenant_id(tenant), 1000)).unwrap();
        let mut records = self.sealed(tenant);
        records.extend(pending.into_iter().map(|record| record.draft));
        records
    }

    /// The events of a system chain, oldest first.
    pub fn sealed(&self, tenant: u8) -> Vec<String> {
        let list = List { filter: Filter::default(), before_seq: None, limit: 1000, bytes_max: 8 << 20 };
        let chunk = self.wait(self.store.list(self.system_chain(tenant), list)).unwrap();
        let text = |event: &StoredEvent| {
            let mut text = Vec::new();
            event.put_json(&mut text);
            String::from_utf8(text).unwrap()
        };
        chunk.items.iter().rev().map(text).collect()
    }

    pub fn system_chain(&self, tenant: u8) -> ChainId {
        let new = ProjectId::system_from_random([tenant; 16]);
        let project_id = self.wait(self.control.system_project(tenant_id(tenant), new)).unwrap().unwrap();
        ChainId { tenant_id: tenant_id(tenant), project_id, mode: Mode::Live }
    }
}

pub fn tenant_id(n: u8) -> TenantId {
    TenantId(Uuid::from_random([n; 16]))
}

pub fn project_id(n: u8) -> ProjectId {
    ProjectId(Uuid::from_random([n.wrapping_add(50); 16]))
}

pub fn person_id(n: u8) -> PersonId {
    PersonId(Uuid::from_random([n.wrapping_add(150); 16]))
}

pub fn email(n: u8) -> String {
    format!("Person{n}@Example.org")
}

pub fn live(tenant: u8) -> ChainId {
    ChainId { tenant_id: tenant_id(tenant), project_id: project_id(tenant), mode: Mode::Live }
}

pub fn events_path(tenant: u8) -> String {
    format!("/app/p/{}/live/events", project_id(tenant))
}

pub fn verify_path(tenant: u8) -> String {
    format!("/app/p/{}/live/verify", project_id(tenant))
}

/// What a form of a new case has.
pub const CASE: [(&str, &str); 8] = [
    ("regime", "gdpr"),
    ("request_type", "access"),
    ("received", "2026-11-02"),
    ("channel", "email"),
    ("requester", "Ada Subject"),
    ("contact", "ada@subject.example"),
    ("wrote", "Give me everything"),
    ("note", "It came in."),
];

/// Opens a case in the first organisation; its path.
pub fn open_case(browser: &mut Browser<'_>) -> String {
    open_case_of(browser, 1)
}

pub fn open_case_of(browser: &mut Browser<'_>, tenant: u8) -> String {
    let opened = browser.post(&format!("/app/o/{}/cases/create", tenant_id(tenant)), &CASE);
    let path = opened.location().unwrap_or_else(|| panic!("{}", opened.text()));
    path.split('?').next().unwrap().to_owned()
}

/// One that was withdrawn and closed.
pub fn closed_case(browser: &mut Browser<'_>) -> String {
    let path = open_case(browser);
    for (revision, to) in [("1", "withdrawn"), ("2", "closed")] {
        let step = [("revision", revision), ("to", to), ("note", "It is over.")];
        let moved = browser.post(&format!("{path}/move"), &step);
        assert_eq!(moved.status, 303, "{}", moved.text());
    }
    path
}

/// What a hidden field of a page says.
pub fn revision_of(page: &Response) -> String {
    let behind = page.text().split("name=\"revision\" value=\"").nth(1).expect("a form of the case");
    behind.split('"').next().unwrap().to_owned()
}

/// The search that a form names; nothing where there is none.
pub fn search_of(page: &Response) -> String {
    let behind = page.text().split("name=\"search\" value=\"").nth(1).unwrap_or("\"");
    behind.split('"').next().unwrap().to_owned()
}

/// Takes a step of a case.
pub fn move_case(browser: &mut Browser<'_>, path: &str, to: &str) {
    let page = browser.get(path);
    let (revision, search) = (revision_of(&page), search_of(&page));
    let form =
        [("revision", revision.as_str()), ("search", &search), ("to", to), ("note", "On."), ("how", "email")];
    let moved = browser.post(&format!("{path}/move"), &form);
    assert_eq!(moved.status, 303, "{to}: {}", moved.text());
}

/// A case in progress about the actor `p-20931`, in the first project; its path.
pub fn case_in_progress(browser: &mut Browser<'_>) -> String {
    let path = open_case(browser);
    let revision = revision_of(&browser.get(&path));
    let check = [
        ("revision", revision.as_str()),
        ("method", "email_challenge"),
        ("outcome", "confirmed"),
        ("note", "Seen."),
    ];
    assert_eq!(browser.post(&format!("{path}/identity"), &check).status, 303);
    move_case(browser, &path, "in_progress");
    let revision = revision_of(&browser.get(&path));
    let known =
        [("revision", revision.as_str()), ("kind", "actor_id"), ("value", "p-20931"), ("source", "CRM")];
    assert_eq!(browser.post(&format!("{path}/identifiers/add"), &known).status, 303);
    let (revision, project) = (revision_of(&browser.get(&path)), project_id(1).to_string());
    let scope = [("revision", revision.as_str()), ("project", project.as_str()), ("note", "There.")];
    assert_eq!(browser.post(&format!("{path}/scope"), &scope).status, 303);
    path
}

/// Searches, and includes all that was found.
pub fn review_all(stage: &Stage, browser: &mut Browser<'_>, path: &str) {
    let started = browser.post(&format!("{path}/search/start"), &[]);
    assert_eq!(started.status, 303, "{}", started.text());
    stage.work();
    include_all(browser, path);
}

/// Events of the list that a page shows, as its boxes name them: `PROJECT:SEQ:REVISION`.
pub fn events_of(page: &Response) -> Vec<String> {
    let parts = page.text().split("type=\"checkbox\" name=\"e\" value=\"").skip(1);
    parts.map(|part| part.split('"').next().unwrap().to_owned()).collect()
}

/// Includes what can be included at once, and then each event that has to be read.
pub fn include_all(browser: &mut Browser<'_>, path: &str) {
    let here = format!("{path}/review");
    let search = search_of(&browser.get(&here));
    let decided =
        browser.post(&format!("{here}/decide"), &[("search", search.as_str()), ("do", "include_all")]);
    assert_eq!(decided.status, 303, "{}", decided.text());
    for event in events_of(&browser.get(&format!("{here}?show=flagged"))) {
        let (event, revision) = event.rsplit_once(':').unwrap();
        let form = [("search", search.as_str()), ("event", event), ("revision", revision), ("count", "200")];
        let read = browser.post(&format!("{here}/mask"), &[&form[..], &[("do", "suggested")]].concat());
        assert_eq!(read.status, 303, "{}", read.text());
    }
}

/// The id of the newest package.
pub fn package_of(page: &Response) -> String {
    page.text().split("/manifest.json").next().unwrap().rsplit('/').next().unwrap().to_owned()
}

/// A case whose package was made and handed out, closed; its path, and the package.
pub fn packaged_case(stage: &Stage, browser: &mut Browser<'_>) -> (String, String) {
    stage.append(live(1), r#"{"action":"user.login","actor_id":"p-20931"}"#);
    let path = case_in_progress(browser);
    review_all(stage, browser, &path);
    for to in ["review", "approved"] {
        move_case(browser, &path, to);
    }
    assert_eq!(browser.post(&format!("{path}/package/build"), &[]).status, 303);
    stage.work();
    let package = package_of(&browser.get(&format!("{path}/package")));
    for to in ["delivered", "closed"] {
        move_case(browser, &path, to);
    }
    (path, package)
}

pub fn exports_path(tenant: u8) -> String {
    format!("/app/p/{}/live/exports", project_id(tenant))
}

/// Keeps cookies, as browsers do.
#[derive(Clone)]
pub struct Browser<'a> {
    stage: &'a Stage,
    pub cookies: HashSet<String>,
    pub address: IpAddr,
    pub site: Option<&'static str>,
    pub host: String,
}

impl Browser<'_> {
    pub fn get(&mut self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    pub fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Response {
        let form: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        self.send("POST", path, &[("content-type", "application/x-www-form-urlencoded")], &form.join("&"))
    }

    /// Opens a stream, which is read as it comes.
    pub fn open(&mut self, path: &str, headers: &[(&str, &str)]) -> Open<'_> {
        let response = self.ask("GET", path, headers, "");
        let status = response.status().as_u16();
        Open { stage: self.stage, status, body: response.into_body().into_data_stream() }
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let response = self.ask(method, path, headers, body);
        let response = self.stage.wait(async {
            let (parts, body) = response.into_parts();
            // A stream has no end; its beginning is enough here.
            let is_stream = parts.headers.get("content-type").is_some_and(|kind| kind == "text/event-stream");
            let body = if is_stream {
                body.into_data_stream().next().await.unwrap().unwrap()
            } else {
                to_bytes(body, usize::MAX).await.unwrap()
            };
            Response { status: parts.status.as_u16(), headers: parts.headers, body: body.to_vec() }
        });
        for cookie in response.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.retain(|known| !known.starts_with(&format!("{name}=")));
            if !value.is_empty() {
                self.cookies.insert(pair.to_owned());
            }
        }
        response
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> axum::response::Response {
        let request = self.request(method, path, headers, body);
        let mut router = self.stage.router.clone();
        self.stage.wait(async { router.call(request).await.unwrap() })
    }

    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
        let mut request = Request::builder().method(method).uri(path).header("host", &self.host);
        if let Some(site) = self.site {
            request = request.header("sec-fetch-site", site);
        }
        if !self.cookies.is_empty() {
            request = request.header("cookie", self.cookies.iter().cloned().collect::<Vec<_>>().join("; "));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let visit = Visit { request_id: RequestId(Ulid(7)), address: self.address };
        request.extension(visit).body(Body::from(body.to_owned())).unwrap()
    }

    /// Whether an answer begins well and ends in the middle.
    pub fn is_cut_off(&self, path: &str) -> bool {
        let (request, mut router) = (self.request("GET", path, &[], ""), self.stage.router.clone());
        self.stage.wait(async {
            let response = router.call(request).await.unwrap();
            assert_eq!(response.status(), 200);
            to_bytes(response.into_body(), usize::MAX).await.is_err()
        })
    }

    /// An answer whose body has not been asked for yet.
    pub fn begin(&self, path: &str) -> axum::response::Response {
        let (request, mut router) = (self.request("GET", path, &[], ""), self.stage.router.clone());
        self.stage.wait(async { router.call(request).await.unwrap() })
    }

    /// Asks for something while the threads that compute are held, and looks that another page comes
    /// meanwhile; the answer once they are let go on.
    pub fn ask_while_computing(&self, method: &str, path: &str, fields: &[(&str, &str)]) -> u16 {
        let pool = self.stage.service.store.pool();
        let blocked = Blocked::compute(pool);
        let form: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let (request, mut router) =
            (self.request(method, path, &headers, &form.join("&")), self.stage.router.clone());
        let asked =
            self.stage.runtime.spawn(async move { router.call(request).await.unwrap().status().as_u16() });
        let begun = Instant::now();
        while pool.waiting(Lane::Compute) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60) && !asked.is_finished(), "no job waits");
            self.stage.wait(async { tokio::time::sleep(Duration::from_millis(1)).await });
        }
        assert_eq!(self.clone().get("/app/account").status, 200);
        assert!(!asked.is_finished());
        drop(blocked);
        self.stage.wait(asked).unwrap()
    }

    /// The same request many times, none waiting for another; their statuses.
    pub fn get_at_once(&self, path: &str, times: usize) -> Vec<u16> {
        self.stage.wait(async {
            let asked: Vec<_> = (0..times)
                .map(|_| {
                    let (request, mut router) =
                        (self.request("GET", path, &[], ""), self.stage.router.clone());
                    tokio::spawn(async move { router.call(request).await.unwrap().status().as_u16() })
                })
                .collect();
            let mut statuses = Vec::new();
            for answer in asked {
                statuses.push(answer.await.unwrap());
            }
            statuses
        })
    }

    /// Follows redirections to the page at their end.
    pub fn follow(&mut self, mut response: Response) -> Response {
        for _ in 0..5 {
            let Some(next) = response.location() else { return response };
            response = self.get(&next);
        }
        panic!("it goes in a circle");
    }

    pub fn sign_in(&mut self, n: u8, password: &str) -> Response {
        self.post("/app/sign-in", &[("email", &email(n)), ("password", password)])
    }

    pub fn is_signed_in(&mut self) -> bool {
        self.get("/app/account").status == 200
    }
}

/// A stream that is open.
pub struct Open<'a> {
    stage: &'a Stage,
    pub status: u16,
    body: BodyDataStream,
}

impl Open<'_> {
    /// What comes next, nothing at the end of the stream. Panics where neither comes in time.
    pub fn next(&mut self) -> Option<String> {
        let next = async { tokio::time::timeout(Duration::from_secs(20), self.body.next()).await };
        let next = self.stage.wait(next).expect("the stream says something, or ends");
        next.map(|bytes| String::from_utf8(bytes.unwrap().to_vec()).unwrap())
    }

    /// Reads on until something with this text has come.
    pub fn until(&mut self, text: &str) -> String {
        let mut read = String::new();
        while !read.contains(text) {
            read.push_str(&self.next().expect("the stream goes on"));
        }
        read
    }

    /// How long it takes to end.
    pub fn ends_after(mut self) -> Duration {
        let begun = Instant::now();
        while self.next().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the stream goes on");
        }
        begun.elapsed()
    }
}

pub fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

pub struct Response {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub fn location(&self) -> Option<String> {
        self.header("location").map(str::to_owned)
    }

    pub fn has(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    #[track_caller]
    pub fn shows(&self, text: &str) -> &Response {
        assert!(self.has(text), "{text:?} is not in {}: {}", self.status, self.text());
        self
    }

    #[track_caller]
    pub fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        self.shows(&format!("/docs/errors/{code}\"")).shows("req_00000000000000000000000007");
    }
}
