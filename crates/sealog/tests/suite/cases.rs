//! A request of a data subject and `kill -9`: wherever the process is killed, the case is before a step or
//! after it, and the system chain tells exactly what its history does.
//!
//! A case is walked from intake to its end through a real server, which is killed at each step: before the
//! request, at a random moment while it is answered, or right after the answer. What the kill has left is
//! read from the control data of the dead process. The next server goes on from there.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::support::*;
use sealog_cases::disclosure::search;
use sealog_cases::is_note_intact;
use sealog_control::{
    Case, CaseAnswer, CaseEntry, CaseEvents, CaseId, CaseLetter, CaseOutcome, CasePackage, CaseSearch,
    CaseState, Control, JobState, ListPage, Review,
};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_core::query::Filter;
use sealog_core::time::iso_ms;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{List, Store};
use sealog_testing::*;
use serde_json::{Value, json};

const TOKEN: &str = "the-operators-token";
/// Who asks.
const SUBJECT: &str = "p-20931";
/// Events of a case that no list here cuts off.
const MANY: usize = 1000;
/// How long a step may take, until one was seen.
const DONE_US: u64 = 8_000;
/// Kills of one step at random moments, before it is let through.
const KILLS_MAX: usize = 4;

/// When the process is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kill {
    /// Everything before it is done, and the next request is not sent yet.
    Before,
    /// After it was sent, at a random moment.
    During,
    /// As soon as the answer is here.
    After,
}

/// What a person does to a case: a form that is sent.
struct Step {
    name: &'static str,
    /// Behind the path of the case.
    path: &'static str,
    fields: &'static [(&'static str, &'static str)],
    /// Names the revision that it has seen, and is one entry of the history.
    has_revision: bool,
    is_done: fn(&Left) -> bool,
}

/// Goes from one state to another.
const fn moves(
    name: &'static str,
    fields: &'static [(&'static str, &'static str)],
    is_done: fn(&Left) -> bool,
) -> Step {
    Step { name, path: "move", fields, has_revision: true, is_done }
}

const fn changes(
    path: &'static str,
    fields: &'static [(&'static str, &'static str)],
    is_done: fn(&Left) -> bool,
) -> Step {
    Step { name: path, path, fields, has_revision: true, is_done }
}

/// Something beside the revisions of the case.
const fn does(
    path: &'static str,
    fields: &'static [(&'static str, &'static str)],
    is_done: fn(&Left) -> bool,
) -> Step {
    Step { name: path, path, fields, has_revision: false, is_done }
}

const CREATE: &str = "create";
const SEARCH: &str = "search/start";
const PACKAGE: &str = "package/build";
const DOWNLOAD: &str = "package/{package}/download";

/// From intake to the end. `{…}` is what the stage knows.
static STEPS: [Step; 15] = [
    changes(
        CREATE,
        &[
            ("regime", "gdpr"),
            ("request_type", "access"),
            ("received", "{today}"),
            ("channel", "email"),
            ("requester", "Ada Subject"),
            ("contact", "ada@subject.example"),
            ("wrote", "Give me everything"),
            ("note", "It came in."),
        ],
        |left| left.is(CaseState::Received),
    ),
    changes("scope", &[("project", "{project}"), ("from", "2020-01-01"), ("note", "There.")], |left| {
        left.case().scope.from_ms.is_some()
    }),
    moves("identity check", &[("to", "identity_check"), ("note", "Who is it?")], |left| {
        left.is(CaseState::IdentityCheck)
    }),
    changes(
        "identity",
        &[("method", "email_challenge"), ("outcome", "confirmed"), ("note", "It is she.")],
        |left| left.case().is_identity_confirmed(),
    ),
    changes("identifiers/add", &[("kind", "actor_id"), ("value", SUBJECT), ("source", "CRM")], |left| {
        left.case().identifiers.len() == 1
    }),
    changes("confirm", &[], |left| left.case().confirmed_at_ms.is_some()),
    moves("in progress", &[("to", "in_progress"), ("note", "On.")], |left| left.is(CaseState::InProgress)),
    does(SEARCH, &[], |left| left.searches.len() == 1),
    moves("review", &[("to", "review"), ("note", "Found.")], |left| left.is(CaseState::Review)),
    does("review/decide", &[("search", "{search}"), ("do", "include_all"), ("show", "all")], |left| {
        left.review.included == 2
    }),
    does("response/cover/save", &[("body", "Dear Ada,"), ("revision", "0")], |left| left.letters.len() == 1),
    moves("approved", &[("search", "{search}"), ("to", "approved"), ("note", "All of it.")], |left| {
        left.is(CaseState::Approved)
    }),
    does(PACKAGE, &[], |left| !left.packages.is_empty()),
    moves("delivered", &[("to", "delivered"), ("how", "email"), ("note", "Sent.")], |left| {
        let answered = left.case().answer;
        left.is(CaseState::Delivered)
            && matches!(answered, Some(CaseAnswer { outcome: CaseOutcome::Fulfilled, .. }))
    }),
    moves("closed", &[("to", "closed"), ("note", "Done.")], |left| {
        left.is(CaseState::Closed) && left.case().closed_at_ms.is_some()
    }),
];

/// What a process has left of the first case.
#[derive(Clone, Debug)]
struct Left {
    /// All cases: there is at most one.
    cases: Vec<Case>,
    entries: Vec<CaseEntry>,
    letters: Vec<CaseLetter>,
    searches: Vec<CaseSearch>,
    review: Review,
    packages: Vec<CasePackage>,
}

impl Left {
    fn case(&self) -> &Case {
        &self.cases[0]
    }

    fn is(&self, state: CaseState) -> bool {
        self.cases.first().is_some_and(|case| case.state == state)
    }

    /// Whether a step was done once since, or nothing at all. Anything else is a state between the two.
    #[track_caller]
    fn is_after(&self, step: &Step, before: &Left) -> bool {
        let name = step.name;
        let is_known = before.cases.is_empty() || !(step.is_done)(before);
        assert!(is_known, "{name}: nothing would be seen of this step: {before:?}");
        assert!(self.cases.len() <= 1, "{name}: {:?}", self.cases);
        assert_eq!(self.entries.len() as u64, self.cases.first().map_or(0, |case| case.revision), "{name}");
        assert!(self.entries.iter().all(is_note_intact), "{name}");
        let is_done = !self.cases.is_empty() && (step.is_done)(self);
        if is_done && step.has_revision {
            assert_eq!(self.entries.len(), before.entries.len() + 1, "{name}");
            assert_eq!(self.entries[..before.entries.len()], before.entries, "{name}");
        } else {
            assert_eq!((&self.cases, &self.entries), (&before.cases, &before.entries), "{name}");
        }
        // What people do beside the revisions is done by its own step alone. Jobs go on by themselves.
        let ids = |left: &Left| left.searches.iter().map(|search| search.new.id).collect::<Vec<_>>();
        let decided = |left: &Left| left.review.included + left.review.excluded;
        let others = [
            (SEARCH, ids(self) == ids(before)),
            ("review/decide", decided(self) == decided(before)),
            ("response/cover/save", self.letters == before.letters),
            (PACKAGE, self.packages.len() == before.packages.len()),
        ];
        for (other, is_same) in others {
            assert!(is_same || (is_done && other == name), "{name} has changed {other}: {self:?} {before:?}");
        }
        is_done
    }
}

/// Where a server has its store.
enum Home {
    Embedded,
    Postgres(postgres::Database),
}

struct Stage {
    _dir: tempfile::TempDir,
    data: PathBuf,
    home: Home,
    server: Option<Running>,
    key: String,
    cookie: String,
    tenant: String,
    project: String,
    /// Of the case, once there is one.
    id: Option<CaseId>,
    /// Downloads that were begun, and those of them that have come.
    downloads: (usize, usize),
    dice: Dice,
    /// About how long a step takes on this machine.
    done_us: u64,
    kills: usize,
    killed: Killed,
}

/// What kills at random moments have met.
#[derive(Debug, Default)]
struct Killed {
    undone: usize,
    done_unanswered: usize,
    answered: usize,
}

impl Killed {
    fn count(&mut self, is_done: bool, is_answered: bool) {
        let met = match (is_done, is_answered) {
            (false, _) => &mut self.undone,
            (true, false) => &mut self.done_unanswered,
            (true, true) => &mut self.answered,
        };
        *met += 1;
    }
}

/// A request that was sent as a whole, and whose answer may come.
struct Request(TcpStream);

impl Request {
    fn send(server: &Running, path: &str, cookie: &str, form: &str) -> Request {
        let (host, length) = (&server.address, form.len());
        let mut stream = TcpStream::connect(host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
            .write_all(
                format!(
                    "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nSec-Fetch-Site: same-origin\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{form}"
                )
                .as_bytes(),
            )
            .unwrap();
        Request(stream)
    }

    /// Nothing if the server has ended before.
    fn status(mut self) -> Option<u16> {
        let mut answer = Vec::new();
        // A reset is how the connection of a killed process ends.
        let _ = self.0.read_to_end(&mut answer);
        std::str::from_utf8(answer.get(9..12)?).ok()?.parse().ok()
    }
}

impl Stage {
    fn new(home: Home, test: &str) -> Stage {
        let (dir, data) = data_dir();
        let mut stage = Stage {
            _dir: dir,
            data,
            home,
            server: None,
            key: String::new(),
            cookie: String::new(),
            tenant: String::new(),
            project: String::new(),
            id: None,
            downloads: (0, 0),
            dice: Dice::new(seed(test)),
            done_us: DONE_US,
            kills: 0,
            killed: Killed::default(),
        };
        stage.start();
        stage.key = first_key(&stage.data);
        (stage.tenant, stage.project) = first_tenant(stage.server(), TOKEN);
        let frameworks = json!({ "frameworks": ["gdpr"] });
        let project = format!("/projects/{}", stage.project);
        assert_eq!(operator(stage.server(), TOKEN, "PATCH", &project, &frameworks).0, 200);
        stage.cookie = signed_in_owner(stage.server(), &stage.data);
        let own = format!(r#"{{"action":"user.login","actor_id":"{SUBJECT}"}}"#);
        let on = format!(
            r#"{{"action":"data.exported","actor_id":"usr_4821","metadata":{{"user_id":"{SUBJECT}"}}}}"#
        );
        for event in [own.as_str(), on.as_str(), LOGIN] {
            let (status, body) = stage.server().send(&stage.key, event);
            assert_eq!(status, 202, "{body}");
        }
        stage
    }

    fn start(&mut self) {
        let mut command = serving(sealog(), &self.data);
        command.args(["--limits-per-ip-rps", "0"]).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        if let Home::Postgres(database) = &self.home {
            command.env("SEALOG_STORE", database.url());
        }
        self.server = Some(start(command));
    }

    fn server(&self) -> &Running {
        self.server.as_ref().expect("it runs")
    }

    /// SIGKILL, and what the process has left.
    fn kill(&mut self) -> Left {
        drop(self.server.take());
        self.kills += 1;
        self.left()
    }

    /// Of a dead process. Its own files are left to the next one.
    fn left(&self) -> Left {
        match &self.home {
            Home::Embedded => {
                let dir = tempfile::tempdir().unwrap();
                let copy = dir.path().join("data");
                let store = EmbeddedStore::open(&copy, &Options::default()).unwrap();
                for name in ["control.db", "control.db-wal"] {
                    if self.data.join(name).exists() {
                        std::fs::copy(self.data.join(name), copy.join(name)).unwrap();
                    }
                }
                self.left_in(&Control::embedded(&store).unwrap())
            }
            Home::Postgres(database) => {
                // A transaction that the process has sent is ended by the database, not by the kill.
                let others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'";
                eventually("the database has seen the end", || database.sql(others) == "0");
                let options = sealog_store::postgres::Options::default();
                let store = PostgresStore::open(&database.url(), &options).unwrap();
                self.left_in(&Control::on_postgres(&store).unwrap())
            }
        }
    }

    fn left_in(&self, control: &Control) -> Left {
        let page = ListPage { after: None, limit: MANY };
        let mut cases = wait(control.open_cases(self.tenant_id(), page)).unwrap();
        cases.extend(wait(control.closed_cases(self.tenant_id(), page)).unwrap());
        let Some(id) = cases.first().map(|case| case.id) else {
            let (entries, letters, searches, packages) = Default::default();
            return Left { cases, entries, letters, searches, review: Review::default(), packages };
        };
        let searches = wait(control.case_searches(self.tenant_id(), id, MANY)).unwrap();
        let review = match searches.first() {
            Some(search) => {
                wait(control.review_of(search.new.id, sealog_control::Grants::default())).unwrap()
            }
            None => Review::default(),
        };
        Left {
            entries: wait(control.case_entries(self.tenant_id(), id, 0, MANY)).unwrap(),
            letters: wait(control.case_letters(self.tenant_id(), id)).unwrap(),
            packages: wait(control.case_packages(self.tenant_id(), id, MANY)).unwrap(),
            searches,
            review,
            cases,
        }
    }

    fn tenant_id(&self) -> TenantId {
        TenantId(Uuid::parse(&self.tenant).unwrap())
    }

    fn case_path(&self, behind: &str) -> String {
        let cases = format!("/app/o/{}/cases", self.tenant);
        match self.id {
            Some(id) if behind != CREATE => format!("{cases}/{}/{behind}", id.0),
            _ => format!("{cases}/{behind}"),
        }
    }

    /// Where a step goes, and the form that it sends, made from what is known of the case.
    fn form(&self, step: &Step, before: &Left) -> (String, String) {
        let revision = before.cases.first().map(|case| ("revision", case.revision.to_string()));
        let search = before.searches.first().map_or(String::new(), |search| search.new.id.0.to_string());
        let own = step.fields.iter().map(|(name, value)| {
            let value = value.replace("{today}", &iso_ms(SystemWorld.now_ms())[..10]);
            (*name, value.replace("{project}", &self.project).replace("{search}", &search))
        });
        let fields: Vec<_> = revision.into_iter().filter(|_| step.has_revision).chain(own).collect();
        let encoded = |value: &str| -> String {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            let encode = |byte| {
                if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
            };
            value.bytes().map(encode).collect()
        };
        let pairs: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        (self.case_path(step.path), pairs.join("&"))
    }

    fn send(&self, (path, form): &(String, String)) -> Request {
        Request::send(self.server(), path, &self.cookie, form)
    }

    fn page(&self, tab: &str) -> String {
        open_page(self.server(), &self.case_path(tab), &self.cookie)
    }

    /// Until a random moment around the end of a step that was sent.
    fn sleep(&mut self) {
        let around = self.done_us / 2 + self.dice.below(self.done_us);
        std::thread::sleep(Duration::from_micros(around));
    }

    /// The next kill comes earlier than one that was too late for its step, and later than one that was not.
    fn aim(&mut self, is_done: bool) {
        let (by, of) = if is_done { (2, 3) } else { (3, 2) };
        self.done_us = (self.done_us * by / of).max(100);
    }

    /// Takes a step, with the kill that belongs to it. What is left then; a server runs.
    fn take(&mut self, step: &Step, kill: Kill, mut before: Left) -> Left {
        for kills in 0.. {
            let form = self.form(step, &before);
            // A server that has just started is slow once.
            self.page("");
            let request = self.send(&form);
            let is_killed = kill == Kill::During && kills < KILLS_MAX;
            let status = if is_killed {
                self.sleep();
                drop(self.server.take());
                request.status()
            } else {
                let status = request.status();
                assert_eq!(status, Some(303), "{}: {}", step.name, self.page("history"));
                status
            };
            if kill == Kill::Before {
                self.await_job(step);
                self.server().await_drained();
            }
            let left = self.kill();
            let is_done = left.is_after(step, &before);
            assert!(matches!(status, None | Some(303)), "{}: {status:?}", step.name);
            assert!(is_done || status.is_none(), "{}: {status:?} was answered and is lost", step.name);
            if is_killed {
                self.killed.count(is_done, status.is_some());
                self.aim(is_done);
            }
            self.id = left.cases.first().map(|case| case.id);
            self.start();
            if !is_done {
                before = left;
                continue;
            }
            if step.has_revision && step.path != CREATE {
                // Whoever has not seen the answer sends the form again.
                let again = self.send(&form).status();
                assert!(matches!(again, Some(409)), "{}: {again:?}", step.name);
            }
            self.await_job(step);
            return left;
        }
        unreachable!("it is let through in the end")
    }

    /// Waits for the job that a step has begun.
    fn await_job(&self, step: &Step) {
        let (tab, done, again): (_, _, [&str; 2]) = match step.path {
            SEARCH => ("search", "<td>Done</td>", ["search/stop", "search/resume"]),
            PACKAGE => ("package", ">Ready<", ["package/stop", PACKAGE]),
            _ => return,
        };
        let (mut asked, mut patience) = (Instant::now(), Duration::from_secs(2));
        eventually("the job has ended", || {
            if self.page(tab).contains(done) {
                return true;
            }
            // The lease of a killed process keeps its job for a minute. A person who does not want to wait
            // for that stops it and goes on.
            if asked.elapsed() > patience {
                // Refused if the job has ended meanwhile.
                for path in again {
                    self.send(&(self.case_path(path), String::new())).status();
                }
                (asked, patience) = (Instant::now(), patience * 2);
            }
            std::thread::sleep(Duration::from_millis(20));
            false
        });
    }

    /// The package as the person gets it: a kill at any moment leaves a download in the system chain that did
    /// not come, and none that came without.
    fn download(&mut self, kill: Kill) {
        let page = self.page("package");
        let package = page.split("/manifest.json").next().unwrap().rsplit('/').next().unwrap();
        let form = (self.case_path(&DOWNLOAD.replace("{package}", package)), String::new());
        for kills in 0.. {
            self.downloads.0 += 1;
            let request = self.send(&form);
            let is_killed = kill == Kill::During && kills < KILLS_MAX;
            if is_killed {
                self.sleep();
                self.kill();
            }
            let status = request.status();
            assert!(status == Some(200) || (is_killed && status.is_none()), "{status:?}");
            self.downloads.1 += usize::from(status.is_some());
            if kill != Kill::During {
                self.kill();
            }
            if self.server.is_none() {
                self.start();
            }
            if status.is_some() {
                return;
            }
        }
    }

    fn walk(mut self, kill: Kill) {
        let mut left = self.kill();
        assert!(left.cases.is_empty());
        self.start();
        for step in &STEPS {
            left = self.take(step, kill, left);
            if step.path == PACKAGE {
                self.download(kill);
                // A package that was stopped for its lease was asked for again.
                left = self.kill();
                self.start();
            } else if step.path == SEARCH {
                left = self.kill();
                self.start();
            }
        }
        self.check();
    }

    /// Holds the chains against the case.
    fn check(mut self) {
        let id = self.id.expect("a case");
        let resource = format!("case%2F{}", id.0);
        eventually("the events of the case are in its project", || {
            let (_, body) = self.server().get(&self.key, &format!("/v1/events?resource={resource}"));
            let page: Value = serde_json::from_str(&body).unwrap();
            page["events"].as_array().is_some_and(|events| events.len() >= 3)
        });
        self.server().await_drained();
        self.server.take().unwrap().stop();
        let Stage { kills, killed: Killed { undone, done_unanswered, answered }, downloads, .. } = &self;
        println!(
            "cases: steps={} kills={kills} undone={undone} done_unanswered={done_unanswered} answered={answered} downloads={downloads:?}",
            STEPS.len()
        );
        match &self.home {
            Home::Embedded => {
                let store = EmbeddedStore::open(&self.data, &Options::default()).unwrap();
                self.check_in(&store, &Control::embedded(&store).unwrap());
            }
            Home::Postgres(database) => {
                let options = sealog_store::postgres::Options::default();
                let store = PostgresStore::open(&database.url(), &options).unwrap();
                self.check_in(&store, &Control::on_postgres(&store).unwrap());
            }
        }
    }

    fn check_in(&self, store: &dyn Store, control: &Control) {
        let left = self.left_in(control);
        assert!(left.is(CaseState::Closed), "{left:?}");
        let tenant_id = self.tenant_id();
        let reserved = control.system_project(tenant_id, ProjectId::system_from_random([1; 16]));
        let project_id = wait(reserved).unwrap().unwrap();
        let mut told = Told::of(store, ChainId { tenant_id, project_id, mode: Mode::Live });

        // An entry for each revision and an event for each entry, in the same order, with the same words and
        // the digest of the same note.
        let steps = ["sealog.case_opened", "sealog.case_moved", "sealog.case_changed"];
        let of_chain: Vec<Value> = told.take(|event| steps.contains(&event.action.as_str()));
        let of_case = left.entries.iter().map(|known| {
            let word = |state: Option<CaseState>| state.map(CaseState::as_str);
            let CaseEntry { entry, .. } = known;
            (word(entry.from), word(entry.to), entry.digest.to_string())
        });
        let of_case: Vec<_> = of_case.collect();
        let in_chain = of_chain.iter().map(|event| {
            let text = |name: &str| event[name].as_str();
            (text("from"), text("to"), event["note_sha256"].as_str().unwrap_or_default().to_owned())
        });
        assert_eq!(in_chain.collect::<Vec<_>>(), of_case);
        let moved: Vec<_> = left.entries.iter().filter_map(|known| known.entry.to).collect();
        assert_eq!(moved, sealog_cases::states::MAIN_WAY);

        // Each search and each package has its beginning, its end once its job has ended, and nothing twice.
        let is_ended = |job| wait(control.job(job)).unwrap().is_some_and(|job| job.state == JobState::Done);
        let page = ListPage { after: None, limit: MANY };
        let about = control.jobs_about(tenant_id, search::KIND.into(), left.case().id.0.to_string(), page);
        let jobs = wait(about).unwrap();
        let cancelled = jobs.iter().filter(|job| job.state == JobState::Cancelled).count();
        for search in &left.searches {
            let mut count = |action: &str| told.count(action, &format!("case_search/{}", search.new.id.0));
            assert_eq!(count("sealog.case_search_started"), 1);
            assert_eq!(count("sealog.case_search_ended"), usize::from(is_ended(search.job_id)));
            assert_eq!(count("sealog.case_search_stopped"), cancelled);
            assert_eq!(count("sealog.case_search_resumed"), jobs.len() - 1);
        }
        for package in &left.packages {
            let mut count = |action: &str| told.count(action, &format!("case_package/{}", package.new.id.0));
            assert_eq!(count("sealog.case_package_started"), 1);
            let is_told = package.built.is_some() && is_ended(package.job_id);
            assert_eq!(count("sealog.case_package_built"), usize::from(is_told));
        }
        // Each is sealed before its first byte.
        let downloaded = told.take(|event| event.action == "sealog.case_package_downloaded").len();
        let (begun, come) = self.downloads;
        assert!((come..=begun).contains(&downloaded), "{downloaded} {:?}", self.downloads);

        let reviewed = told.take(|event| event.action == "sealog.case_reviewed");
        let decided: u64 = reviewed.iter().filter_map(|event| event["events"].as_u64()).sum();
        assert_eq!((decided, left.review.included, left.review.open), (2, 2, 0));
        let letters = told.take(|event| event.action == "sealog.case_letter_changed").len();
        assert_eq!(letters as u64, left.letters.iter().map(|letter| letter.revision).sum::<u64>());
        let rest = told.take(|event| event.action.starts_with("sealog.case_"));
        assert!(rest.is_empty(), "the case knows nothing of {rest:?}");

        // The project was told of each step once.
        let project_id = ProjectId(Uuid::parse(&self.project).unwrap());
        let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
        let mut of_project = Told::of(store, chain);
        let events = wait(control.events_of_case(tenant_id, left.case().id, MANY)).unwrap();
        let actions: Vec<&str> = events.iter().map(|event| event.new.action.as_str()).collect();
        let expected = ["gdpr.request_received", "gdpr.request_identity_checked", "gdpr.request_fulfilled"];
        assert_eq!(actions, expected);
        for action in expected {
            assert_eq!(of_project.count(action, &format!("case/{}", left.case().id.0)), 1, "{action}");
        }
        assert!(of_project.take(|event| event.action.starts_with("gdpr.")).is_empty());
    }
}

/// An event as far as it matters here.
#[derive(Clone, Debug)]
struct Event {
    action: String,
    resource: String,
    metadata: Value,
}

/// The events of a chain that nobody has accounted for yet, oldest first.
struct Told(BTreeMap<u64, Event>);

impl Told {
    fn of(store: &dyn Store, chain: ChainId) -> Told {
        assert!(verify(store, chain).broken.is_none());
        let list = List { filter: Filter::default(), before_seq: None, limit: MANY, bytes_max: 64 << 20 };
        let chunk = wait(store.list(chain, list)).unwrap();
        assert_eq!(chunk.resume, None);
        let event = |stored: &StoredEvent| {
            let fields = stored.text.fields();
            let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            let text = |text: &str| value(text).as_str().unwrap().to_owned();
            let event = Event {
                action: text(fields.action),
                resource: fields.resource.map_or(String::new(), text),
                metadata: fields.metadata.map_or(Value::Null, value),
            };
            (stored.sealed.chain_seq, event)
        };
        Told(chunk.items.iter().map(event).collect())
    }

    /// The metadata of those that are meant, which are accounted for by that.
    fn take(&mut self, is_meant: impl Fn(&Event) -> bool) -> Vec<Value> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (meant, rest): (BTreeMap<_, _>, _) = all.partition(|(_, event)| is_meant(event));
        self.0 = rest;
        meant.into_values().map(|event| event.metadata).collect()
    }

    fn count(&mut self, action: &str, resource: &str) -> usize {
        self.take(|event| event.action == action && event.resource == resource).len()
    }
}

#[test]
fn kill_9_before_a_step_leaves_the_case_where_the_last_one_has_brought_it() {
    Stage::new(Home::Embedded, "kill_9_before_a_step").walk(Kill::Before);
}

#[test]
fn kill_9_during_a_step_leaves_the_case_before_it_or_after_it_and_the_step_can_be_repeated() {
    Stage::new(Home::Embedded, "kill_9_during_a_step").walk(Kill::During);
}

#[test]
fn kill_9_after_the_answer_to_a_step_loses_neither_the_step_nor_its_event() {
    Stage::new(Home::Embedded, "kill_9_after_the_answer").walk(Kill::After);
}

#[test]
fn kill_9_during_a_step_on_postgresql_leaves_the_case_before_it_or_after_it() {
    let database = postgres::cluster().database();
    Stage::new(Home::Postgres(database), "kill_9_during_a_step_on_postgresql").walk(Kill::During);
}
