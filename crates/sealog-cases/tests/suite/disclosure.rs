//! Cases of data subjects from the search to the package, on both stores.

use std::collections::HashSet;
use std::io::{Cursor, Read};
use std::sync::Arc;
use std::time::Duration;

use sealog_cases::disclosure::node::OVERSIZED;
use sealog_cases::disclosure::packages::{KEPT_DAYS, PACKAGE_BYTES_MAX};
use sealog_cases::disclosure::search::{CHAINS_MAX, RESULTS_MAX, UNENDED_MAX};
use sealog_cases::disclosure::{
    Compared, Disclosures, NotHandedOut, NotStarted, PackageBuilder, PackageSweep, Searcher,
};
use sealog_control::*;
use sealog_core::catalog::FrameworkSet;
use sealog_core::event::parse_single;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_core::plan::Billing;
use sealog_core::time::DAY_MS;
use sealog_service::ingest::Ingest;
use sealog_service::jobs::{LEASE_MS, Pace, Runner};
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_service::{Secret, Stop};
use sealog_store::Store;
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::postgres::PostgresStore;
use sealog_store::world::World;
use sealog_testing::doubtful::DoubtfulStore;
use sealog_testing::mounted::Mounted;
use sealog_testing::*;
use serde_json::Value;
use sha2::{Digest, Sha256};

const PERSON: PersonId = PersonId(Uuid([3; 16]));

fn tenant() -> TenantId {
    TenantId(Uuid::from_random([1; 16]))
}

fn project(n: u8) -> ProjectId {
    ProjectId(Uuid::from_random([n; 16]))
}

fn chain(n: u8) -> ChainId {
    ChainId { tenant_id: tenant(), project_id: project(n), mode: Mode::Live }
}

struct Stage {
    store: Arc<DoubtfulStore>,
    control: Arc<Control>,
    desk: Disclosures,
    runner: Runner,
    world: Arc<StillWorld>,
    runtime: tokio::runtime::Runtime,
}

fn identifier(kind: IdentifierKind, value: &str) -> Identifier {
    Identifier { kind, path: None, value: value.into(), source: "test".into() }
}

impl Stage {
    fn new(store: Arc<dyn Store>, control: Control) -> Stage {
        let (store, control) = (DoubtfulStore::new(store), Arc::new(control));
        let world = StillWorld::random_at(MORNING_MS);
        let new = NewTenant {
            id: tenant(),
            name: "Northwind <Clinic>".into(),
            plan: "top".into(),
            contact_email: None,
            billing: Billing { trial_ends_at_ms: None, billing_active: true },
            created_at_ms: MORNING_MS,
        };
        wait(control.create_tenant(new, vec![])).unwrap();
        for n in [2, 4] {
            let new = NewProject {
                id: project(n),
                tenant_id: tenant(),
                name: format!("Project {n}"),
                frameworks: FrameworkSet::NONE,
                created_at_ms: MORNING_MS,
            };
            wait(control.create_project(new, vec![])).unwrap();
        }
        let person = NewPerson {
            id: PERSON,
            email: "a@example.com".into(),
            password_hash: None,
            verified: true,
            created_at_ms: MORNING_MS,
        };
        let member = NewMember {
            tenant_id: tenant(),
            person,
            role: Role::Owner,
            grants: Grants::default(),
            ends_at_ms: None,
            created_at_ms: MORNING_MS,
        };
        wait(control.add_member(member, Records::none())).unwrap().unwrap();
        let drain = Arc::new(Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store) as _,
            ingest: Ingest::new(Arc::clone(&store) as _, None, Arc::default()),
            world: Arc::clone(&world) as _,
            wake: Wake::default(),
            every: Duration::from_secs(600),
            turns: Turns::default(),
        });
        let desk = Disclosures {
            control: Arc::clone(&control) as _,
            store: Arc::clone(&store) as _,
            world: Arc::clone(&world) as _,
            drain,
            runner: Wake::default(),
        };
        let searcher =
            Searcher::new(Arc::clone(&control) as _, Arc::clone(&store) as _, Arc::clone(&world) as _);
        let runner = Runner {
            control: Arc::clone(&control),
            world: Arc::clone(&world) as _,
            works: vec![Arc::new(searcher), Arc::new(PackageBuilder::new(desk.clone()))],
            wake: Wake::default(),
            records: Wake::default(),
            every: Duration::from_secs(600),
            pace: Pace::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Stage { store, control, desk, runner, world, runtime }
    }

    fn send(&self, project: u8, bodies: &[&str]) {
        for bodies in bodies.chunks(100) {
            let drafts = bodies.iter().map(|body| parse_single(body.as_bytes()).unwrap().unwrap());
            append(&*self.store, chain(project), drafts.collect());
        }
    }

    fn case(&self, identifiers: Vec<Identifier>) -> Case {
        let case = Case {
            id: CaseId(Uuid::from_random([9; 16])),
            tenant_id: tenant(),
            number: 0,
            revision: 0,
            state: CaseState::Review,
            state_before_pause: None,
            intake: Intake {
                regime: CaseRegime::Gdpr,
                custom_days: None,
                request_type: CaseType::Access,
                requester: "Jane <script>".into(),
                contact: "jane@example.org".into(),
                wrote: "Everything, please.".into(),
                channel: CaseChannel::Email,
                received_at_ms: MORNING_MS,
            },
            assignee: Some(PERSON),
            scope: CaseScope { projects: vec![project(2), project(4)], from_ms: None, until_ms: None },
            identifiers,
            identity: Some(IdentityCheck {
                method: IdentityMethod::EmailChallenge,
                outcome: IdentityOutcome::Confirmed,
                person_id: PERSON,
                at_ms: MORNING_MS,
            }),
            pauses: vec![],
            extension: None,
            confirmed_at_ms: None,
            answer: None,
            due_day: 20_800,
            created_by: PERSON,
            created_at_ms: MORNING_MS,
            changed_at_ms: MORNING_MS,
            closed_at_ms: None,
        };
        wait(self.control.create_case(case, write())).unwrap()
    }

    fn jane(&self) -> Case {
        self.case(vec![
            identifier(IdentifierKind::ActorId, "p-20931"),
            identifier(IdentifierKind::Resource, "patient/p-20931"),
            identifier(IdentifierKind::Mention, "jane@example.org"),
        ])
    }

    fn to(&self, case: &Case, state: CaseState) -> Case {
        let case = wait(self.control.case(tenant(), case.id)).unwrap().unwrap();
        match wait(self.control.save_case(Case { state, ..case }, write())).unwrap() {
            CaseSaved::Done(case) => *case,
            other => panic!("{other:?}"),
        }
    }

    fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    fn work(&self) {
        while self.wait(self.runner.turn(&Stop::new(), &mut None)).unwrap() {}
    }

    fn searched(&self, case: &Case) -> CaseSearch {
        self.wait(self.desk.start_search(PERSON, case)).unwrap();
        self.work();
        self.wait(self.desk.current_search(case)).unwrap().unwrap()
    }

    fn found(&self, search: &CaseSearch) -> Vec<FoundEvent> {
        wait(self.control.found_events(search.new.id, FoundFilter::default(), Grants::default(), 0, 100))
            .unwrap()
    }

    fn decide(&self, case: &Case, search: &CaseSearch, seqs: &[u64], decision: Decision) {
        let found = self.found(search);
        let these = found.iter().filter(|found| seqs.contains(&found.new.chain_seq));
        let which = these.map(|found| (found.new.project_id, found.new.chain_seq, found.revision)).collect();
        let reason = Some("not theirs".to_owned());
        let decided =
            self.desk.decide(PERSON, case, search.new.id, Which::These(which), Some(decision), reason);
        assert!(matches!(self.wait(decided).unwrap(), Decided::Done { left: 0, .. }));
        if decision == Decision::Include {
            self.read(case, search, seqs);
        }
    }

    fn include_all(&self, case: &Case, search: &CaseSearch) {
        let which = Which::Open(FoundFilter::default());
        let decided = self.desk.decide(PERSON, case, search.new.id, which, Some(Decision::Include), None);
        assert!(matches!(self.wait(decided).unwrap(), Decided::Done { left: 0, .. }));
        let all: Vec<u64> = self.found(search).iter().map(|found| found.new.chain_seq).collect();
        self.read(case, search, &all);
    }

    /// Includes those with texts to read one by one, with the masks that are suggested.
    fn read(&self, case: &Case, search: &CaseSearch, seqs: &[u64]) {
        for found in self.found(search) {
            let new = &found.new;
            if found.decision.is_some() || !seqs.contains(&new.chain_seq) {
                continue;
            }
            assert!(new.flags > 0, "{found:?}");
            let compared = self.desk.compare(search, new.project_id, new.chain_seq, |seen: Compared| seen);
            let masking = self.wait(compared).unwrap().unwrap().masking(None);
            let masked = self.wait(self.desk.mask(PERSON, case, masking, found.revision)).unwrap();
            assert!(matches!(masked, Decided::Done { left: 0, .. }));
        }
    }

    fn package(&self, case: &Case) -> CasePackage {
        let created = self.wait(self.desk.create_package(PERSON, case)).unwrap();
        let PackageCreated::Done(package) = created else { panic!("{created:?}") };
        self.work();
        wait(self.control.case_package(package.new.id)).unwrap().unwrap()
    }

    fn download(&self, case: &Case, package: &CasePackage, password: Option<&str>) -> Vec<u8> {
        let password = password.map(|password| Secret(password.into()));
        let mut download = self.wait(self.desk.hand_out(PERSON, case, package, password)).unwrap();
        let (mut bytes, length) = (Vec::new(), download.length());
        while let Some(piece) = self.wait(download.next()).unwrap() {
            bytes.extend(piece);
        }
        assert_eq!(bytes.len() as u64, length);
        bytes
    }

    fn records(&self) -> Vec<Value> {
        let records = wait(self.control.pending_records(tenant(), 1000)).unwrap();
        records.iter().map(|record| serde_json::from_str(&record.draft).unwrap()).collect()
    }
}

fn write() -> CaseWrite {
    let entry = NewCaseEntry {
        person_id: Some(PERSON),
        at_ms: MORNING_MS,
        what: "moved".into(),
        from: None,
        to: None,
        note: "note".into(),
        salt: Hash([1; 32]),
        digest: Hash([2; 32]),
        differences: vec![],
    };
    CaseWrite { entry, records: vec![], events: vec![], notices: vec![], not_decided_by: None }
}

fn files(bytes: &[u8], password: Option<&str>) -> Vec<(String, String)> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    (0..archive.len())
        .map(|at| {
            let mut file = match password {
                Some(password) => archive.by_index_decrypt(at, password.as_bytes()).unwrap(),
                None => archive.by_index(at).unwrap(),
            };
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            (file.name().unwrap().into_owned(), text)
        })
        .collect()
}

fn on_both(rule: fn(Stage)) {
    on_both_with(&small(&StillWorld::new()), rule);
}

fn on_both_with(options: &Options, rule: fn(Stage)) {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), options).unwrap();
    let control = Control::embedded(&store).unwrap();
    rule(Stage::new(Arc::new(store), control));
    let database = postgres::cluster().database();
    let store = PostgresStore::open(&database.url(), &on_postgres(&StillWorld::new())).unwrap();
    let control = Control::on_postgres(&store).unwrap();
    rule(Stage::new(Arc::new(store), control));
}

const EVENTS: [&str; 7] = [
    r#"{"action":"user.login","actor_id":"p-20931","session_id":"s-jane"}"#,
    r#"{"action":"user.login","actor_id":"somebody-else"}"#,
    r#"{"action":"data.viewed","actor_id":"usr_4821","actor_type":"nurse","session_id":"s-staff","resource":"patient/p-20931","metadata":{"note":"seen by usr_4821 and USR_9000","approved_by":"usr_9000"}}"#,
    r#"{"action":"data.viewed","actor_id":"usr_9000","metadata":{"patient_id":"p-20931"}}"#,
    r#"{"action":"data.viewed","actor_id":"usr_4821","metadata":{"text":"wrote to Jane@Example.org about =1+1 </script><script>x"}}"#,
    r#"{"action":"data.viewed","actor_id":"usr_4821","metadata":{"in":{"deep":["p-20931"]}}}"#,
    r#"{"action":"data.viewed","actor_id":"usr_4821","metadata":{"text":"nobody"}}"#,
];

#[test]
fn a_search_finds_what_is_by_the_person_on_them_and_what_names_them_in_all_projects() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        stage.send(4, &[EVENTS[1], EVENTS[0]]);
        let case = stage.jane();
        let search = stage.searched(&case);
        assert_eq!(search.counts, FoundCounts { events: 6, by_person: 2, on_person: 2, mentions: 2 });
        assert_eq!((search.outcome, search.looked), (Some(SearchOutcome::Done), 9));
        let seqs = |n| -> Vec<u64> {
            let found = stage.found(&search);
            let of = found.iter().filter(|found| found.new.project_id == project(n));
            let mut seqs: Vec<u64> = of.map(|found| found.new.chain_seq).collect();
            seqs.sort_unstable();
            seqs
        };
        assert_eq!((seqs(2), seqs(4)), (vec![1, 3, 4, 5, 6], vec![2]));
        // What was looked for and where is frozen; the chain has how many, and never who.
        assert!(
            search.new.parameters.contains("jane@example.org")
                && search.new.parameters.contains("\"last_seq\":7")
        );
        let told = format!("{:?}", stage.records());
        assert!(told.contains("sealog.case_search_started") && told.contains("sealog.case_search_ended"));
        assert!(!told.contains("20931") && !told.to_lowercase().contains("jane"), "{told}");
        // New events are not in it.
        stage.send(2, &[EVENTS[0]]);
        assert_eq!(stage.found(&search).len(), 6);
        assert_eq!(stage.searched(&case).counts.events, 7);
    });
}

#[test]
fn only_the_dates_of_the_case_are_searched() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let scope = CaseScope { from_ms: Some(MORNING_MS * 2), ..case.scope.clone() };
        let search = stage.searched(&Case { scope, ..case });
        assert_eq!((search.counts.events, search.looked), (0, 0));
    });
}

#[test]
fn a_search_that_was_stopped_goes_on_where_it_was_also_in_another_process() {
    on_both(|stage| {
        let many: Vec<&str> = (0..400).map(|at| EVENTS[at % 7]).collect();
        stage.send(2, &many);
        let case = stage.jane();
        stage.wait(stage.desk.start_search(PERSON, &case)).unwrap();
        let step = |stage: &Stage| {
            let due = wait(stage.control.due_jobs("case-search".into(), stage.world.now_ms(), 1)).unwrap();
            let job = due.into_iter().next().expect("it is due");
            // As a process does that ends after a piece: nothing but control data knows of it.
            let (control, store) = (Arc::clone(&stage.control), Arc::clone(&stage.store));
            let searcher = Searcher::new(control as _, store as _, Arc::clone(&stage.world) as _);
            stage.wait(sealog_service::jobs::Work::step(&searcher, &job, b"")).unwrap()
        };
        for _ in 0..3 {
            assert!(matches!(step(&stage), sealog_service::jobs::Step::More(_)));
        }
        let before = stage.wait(stage.desk.searches(&case)).unwrap().remove(0);
        assert!(before.is_running() && before.search.counts.events > 0);
        assert!(stage.wait(stage.desk.stop_search(PERSON, &case)).unwrap());
        let stopped = stage.wait(stage.desk.searches(&case)).unwrap().remove(0);
        assert!(stopped.is_stopped() && stopped.search.position == before.search.position);
        assert_eq!(stage.wait(stage.desk.start_search(PERSON, &case)), Err(NotStarted::UnderWay));
        assert!(stage.wait(stage.desk.resume_search(PERSON, &case)).unwrap());
        stage.work();
        let done = stage.wait(stage.desk.current_search(&case)).unwrap().unwrap();
        assert_eq!(done.new.id, stopped.search.new.id, "the same search");
        assert_eq!((done.looked, done.counts.by_person), (400, 58));
        assert!(!stage.wait(stage.desk.resume_search(PERSON, &case)).unwrap());
    });
}

#[test]
fn a_search_with_more_events_than_a_case_holds_ends_and_keeps_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path(), &small(&StillWorld::new())).unwrap();
    let control = Control::embedded(&store).unwrap();
    let stage = Stage::new(Arc::new(store), control);
    let most = usize::try_from(RESULTS_MAX).unwrap();
    stage.send(2, &vec![EVENTS[0]; most + 1]);
    let case = stage.jane();
    stage.wait(stage.desk.start_search(PERSON, &case)).unwrap();
    stage.work();
    let run = stage.wait(stage.desk.searches(&case)).unwrap().remove(0);
    assert_eq!(run.search.outcome, Some(SearchOutcome::TooMany));
    assert_eq!(stage.found(&run.search), []);
    assert!(stage.wait(stage.desk.current_search(&case)).unwrap().is_none());
}

#[test]
fn a_tenant_has_so_many_searches_under_way_and_a_case_needs_something_to_look_for() {
    on_both(|stage| {
        let case = stage.jane();
        let start = |case: &Case| stage.wait(stage.desk.start_search(PERSON, case)).map(drop);
        assert_eq!(start(&Case { identifiers: vec![], ..case.clone() }), Err(NotStarted::NoIdentifiers));
        let nowhere = Case { scope: CaseScope::default(), ..case.clone() };
        assert_eq!(start(&nowhere), Err(NotStarted::NoProjects));
        let received = Case { state: CaseState::Received, ..case.clone() };
        assert_eq!(start(&received), Err(NotStarted::State(CaseState::Received)));
        for n in 0..UNENDED_MAX {
            let job = NewJob {
                id: JobId(Uuid::from_random([u8::try_from(n).unwrap() + 50; 16])),
                kind: "case-search".into(),
                tenant_id: Some(tenant()),
                person_id: Some(PERSON),
                subject: None,
                parameters: "{}".into(),
                created_at_ms: MORNING_MS,
            };
            wait(stage.control.create_job(job)).unwrap();
        }
        assert_eq!(start(&case), Err(NotStarted::TooMany));
    });
}

#[test]
fn a_search_begins_with_a_head_for_each_of_at_most_a_hundred_projects() {
    on_both(|stage| {
        let case = stage.jane();
        let over = |many: usize| {
            let projects = (0..many).map(|n| project(u8::try_from(n).unwrap())).collect();
            Case { scope: CaseScope { projects, ..case.scope.clone() }, ..case.clone() }
        };
        let start = |many| {
            let before = stage.store.heads_asked();
            let started = stage.wait(stage.desk.start_search(PERSON, &over(many))).map(drop);
            (started, stage.store.heads_asked() - before)
        };
        assert_eq!(start(CHAINS_MAX + 1), (Err(NotStarted::TooManyProjects), 0));
        assert_eq!(start(CHAINS_MAX), (Ok(()), 100));
    });
}

#[test]
fn a_package_has_what_was_included_and_nothing_of_staff_or_of_what_was_excluded() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.decide(&case, &search, &[1, 3, 4, 5], Decision::Include);
        stage.decide(&case, &search, &[6], Decision::Exclude);
        let case = stage.to(&case, CaseState::Approved);
        let package = stage.package(&case);
        let (_, built) = package.built.clone().expect("it is made");
        let bytes = stage.download(&case, &package, None);
        assert_eq!(Hash(Sha256::digest(&bytes).into()), built.sha256);
        let files = files(&bytes, None);
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let expected = [
            "letter.html",
            "your-data.html",
            "events.json",
            "events.csv",
            "explanation.html",
            "1-start-here.html",
            "manifest.json",
        ];
        assert_eq!(names, expected);
        let excluded =
            &stage.found(&search).into_iter().find(|found| found.new.chain_seq == 6).unwrap().new.log_id;
        for (name, text) in &files {
            let lower = text.to_lowercase();
            for hidden in ["usr_4821", "usr_9000", "s-staff", excluded.to_lowercase().as_str()] {
                assert!(!lower.contains(hidden), "{hidden} is in {name}");
            }
            assert!(!name.ends_with(".html") || !lower.contains("<script"), "{name}");
        }
        let of = |name: &str| files.iter().find(|(known, _)| known == name).unwrap().1.as_str();
        let events: Value = serde_json::from_str(of("events.json")).unwrap();
        assert_eq!(events.as_array().unwrap().len(), 4);
        assert_eq!(events[0]["session_id"], "s-jane", "the person's own");
        assert_eq!(events[1]["actor_id"], "A staff member (nurse)");
        assert_eq!(events[1]["metadata"]["note"], "seen by [staff member] and [staff member]");
        assert!(
            of("your-data.html").contains("p-20931") && of("letter.html").contains("Jane &lt;script&gt;")
        );
        let manifest: Value = serde_json::from_str(of("manifest.json")).unwrap();
        assert_eq!((&manifest["events"], manifest["files"].as_array().unwrap().len()), (&4.into(), 6));
        for file in manifest["files"].as_array().unwrap() {
            let digest = Hash(Sha256::digest(of(file["name"].as_str().unwrap())).into()).to_string();
            assert_eq!(file["sha256"], digest.as_str());
        }
        // With a password another reader finds the same files, and the password is nowhere.
        let encrypted = stage.download(&case, &package, Some("correct horse battery"));
        assert_eq!(unlocked(&encrypted), files);
        let told = format!("{:?}", stage.records());
        assert!(!told.contains("correct horse") && !told.contains("20931"), "{told}");
    });
}

/// A hash of an event lets its reader try values until one fits, and so does a proof. Its number says how
/// much the organisation logs of others.
#[test]
fn a_package_has_no_hash_number_or_proof_of_its_events() {
    on_both(|stage| {
        // Numbers that nothing else in a package looks like.
        let others = vec![r#"{"action":"user.login","actor_id":"somebody-else"}"#; 340];
        stage.send(2, &others);
        stage.send(2, &EVENTS);
        let sha256 = Hash(Sha256::digest(b"usr_4821").into()).to_string();
        stage.send(
            2,
            &[&format!(
                r#"{{"action":"data.viewed","actor_id":"usr_4821","metadata":{{"patient_id":"p-20931","by_sha256":"{sha256}"}}}}"#
            )],
        );
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.include_all(&case, &search);
        let case = stage.to(&case, CaseState::Approved);
        let files = files(&stage.download(&case, &stage.package(&case), None), None);
        let mut secrets = vec![sha256];
        for found in stage.found(&search) {
            let log_id = sealog_core::id::Ulid::parse(&found.new.log_id).unwrap();
            let event = wait(stage.store.get(chain(2), log_id)).unwrap().unwrap();
            let sealed = &event.sealed;
            assert!(sealed.chain_seq > 340);
            secrets.extend([sealed.hash.to_string(), sealed.prev_hash.to_string()]);
            secrets.extend([sealed.chain_seq.to_string(), found.new.project_id.to_string()]);
        }
        assert_eq!(secrets.len(), 6 * 4 + 1);
        for (name, text) in &files {
            // As a word: a digest of a file can have the digits of a number in it.
            let words: HashSet<&str> =
                text.split(|character: char| !character.is_alphanumeric() && character != '-').collect();
            for secret in &secrets {
                assert!(!words.contains(secret.as_str()), "{secret} is in {name}");
            }
        }
        let known = [
            "reference",
            "timestamp",
            "local_time",
            "project",
            "action",
            "description",
            "found",
            "category",
            "actor_id",
            "actor_type",
            "resource",
            "resource_type",
            "session_id",
            "ts_client",
            "ip_address",
            "country",
            "city",
            "metadata",
        ];
        let of = |name: &str| files.iter().find(|(known, _)| known == name).unwrap().1.as_str();
        let events: Value = serde_json::from_str(of("events.json")).unwrap();
        for name in events.as_array().unwrap().iter().flat_map(|event| event.as_object().unwrap().keys()) {
            assert!(known.contains(&name.as_str()), "{name}");
        }
    });
}

#[test]
fn events_that_a_person_adds_are_part_of_the_case_and_of_its_next_searches() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        stage.searched(&case);
        let add =
            |events: &[(ProjectId, u64)]| stage.wait(stage.desk.search_with(PERSON, &case, events)).map(drop);
        for strange in [(project(9), 1), (project(2), 8), (project(2), 0)] {
            assert_eq!(add(&[strange]), Err(NotStarted::NotOfCase), "{strange:?}");
        }
        let many: Vec<(ProjectId, u64)> = vec![(project(2), 7), (project(2), 1), (project(2), 7)];
        assert_eq!(add(&many), Ok(()));
        assert_eq!(add(&many), Err(NotStarted::UnderWay));
        stage.work();
        let kinds = |search: &CaseSearch| -> Vec<(u64, u8)> {
            let found = stage.found(search);
            let added = found.iter().filter(|found| found.new.found & case_found::ADDED != 0);
            added.map(|found| (found.new.chain_seq, found.new.found)).collect()
        };
        let search = stage.wait(stage.desk.current_search(&case)).unwrap().unwrap();
        let expected = [(7, case_found::ADDED), (1, case_found::ADDED | case_found::BY_PERSON)];
        assert_eq!((kinds(&search), stage.found(&search).len()), (expected.to_vec(), 6));
        stage.include_all(&case, &search);
        // The next search has them, decided as they were, and without the employee who is named there.
        let again = stage.searched(&case);
        assert_eq!(kinds(&again), expected);
        assert_eq!(wait(stage.control.review_of(again.new.id, Grants::default())).unwrap().open, 0);
        let case = stage.to(&case, CaseState::Approved);
        let files = files(&stage.download(&case, &stage.package(&case), None), None);
        for (name, text) in &files {
            assert!(!text.contains("usr_4821"), "{name}");
        }
        let events: Value =
            serde_json::from_str(&files.iter().find(|(name, _)| name == "events.json").unwrap().1).unwrap();
        assert_eq!(
            (events.as_array().unwrap().len(), &events[5]["found"]),
            (6, &"We believe that it is about you".into())
        );
    });
}

fn unlocked(bytes: &[u8]) -> Vec<(String, String)> {
    files(bytes, Some("correct horse battery"))
}

#[test]
fn a_package_is_locked_until_approval_and_outdated_after_another_decision() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.include_all(&case, &search);
        let created = stage.wait(stage.desk.create_package(PERSON, &case)).unwrap();
        assert_eq!(created, PackageCreated::Locked(CaseState::Review));
        let approved = stage.to(&case, CaseState::Approved);
        let package = stage.package(&approved);
        let hand_out = |case: &Case| {
            let package = wait(stage.control.case_package(package.new.id)).unwrap().unwrap();
            stage.wait(stage.desk.hand_out(PERSON, case, &package, None)).map(drop)
        };
        assert_eq!(hand_out(&approved), Ok(()));
        let unknown = Case { identity: None, ..approved.clone() };
        assert_eq!(hand_out(&unknown), Err(NotHandedOut::NotIdentified));
        let case = stage.to(&case, CaseState::Review);
        assert_eq!(hand_out(&case), Err(NotHandedOut::State(CaseState::Review)));
        stage.decide(&case, &search, &[1], Decision::Exclude);
        let approved = stage.to(&case, CaseState::Approved);
        assert_eq!(hand_out(&approved), Err(NotHandedOut::Outdated));
    });
}

#[test]
fn a_package_has_at_most_256_mb_and_one_that_would_have_more_is_given_up_with_a_word_on_what_to_do() {
    assert_eq!(PACKAGE_BYTES_MAX, 256 * 1024 * 1024);
    on_both(|mut stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.include_all(&case, &search);
        let case = stage.to(&case, CaseState::Approved);
        let made = stage.package(&case);
        let (_, built) = made.built.expect("it is made");
        // What is packed differs by some bytes from one to the next: each has an id of its own.
        let builder = PackageBuilder::new(stage.desk.clone()).at_most(built.bytes - 200);
        stage.runner.works[1] = Arc::new(builder);
        let refused = stage.package(&case);
        assert_eq!(refused.built, None);
        let run = stage.wait(stage.desk.packages(&case)).unwrap();
        let run = run.into_iter().find(|run| run.package.new.id == refused.new.id).unwrap();
        let (state, cause) = run.job.expect("it has one");
        assert_eq!(state, JobState::Failed);
        let cause = cause.expect("it says why");
        assert!(cause.contains("narrow the dates or projects"), "{cause}");
        // And as much as there may be is made.
        let builder = PackageBuilder::new(stage.desk.clone()).at_most(built.bytes + 200);
        stage.runner.works[1] = Arc::new(builder);
        assert!(stage.package(&case).built.is_some());
    });
}

#[test]
fn a_full_disk_fails_a_search_and_a_package_and_nothing_else() {
    let Some(mounted) = Mounted::new(160) else { return };
    let options = Options { tick: Duration::from_millis(20), ..Options::default() };
    let store = EmbeddedStore::open(&mounted.at.join("data"), &options).unwrap();
    let control = Control::embedded(&store).unwrap();
    let stage = Stage::new(Arc::new(store), control);
    stage.send(2, &EVENTS);
    let case = stage.jane();
    // Below what stays free for keys and events.
    let full = || mounted.fill("rest", 20_000_000);
    let room = || std::fs::remove_file(mounted.at.join("rest")).unwrap();
    full();
    stage.wait(stage.desk.start_search(PERSON, &case)).unwrap();
    stage.work();
    let search = stage.wait(stage.desk.searches(&case)).unwrap().remove(0);
    let (state, cause) = search.job.clone().expect("its job");
    assert_eq!((state, cause.unwrap_or_default().contains("too full")), (JobState::Failed, true));
    // Nothing else fails, and the case is where it was.
    stage.send(2, &EVENTS[..1]);
    assert_eq!(wait(stage.control.case(tenant(), case.id)).unwrap().as_ref(), Some(&case));
    room();
    assert!(stage.wait(stage.desk.resume_search(PERSON, &case)).unwrap(), "it goes on from there");
    stage.work();
    let search = stage.wait(stage.desk.current_search(&case)).unwrap().expect("it has ended");
    stage.include_all(&case, &search);
    let case = stage.to(&case, CaseState::Approved);
    full();
    let package = stage.package(&case);
    assert_eq!(package.built, None);
    let run = stage.wait(stage.desk.packages(&case)).unwrap().remove(0);
    assert!(matches!(run.job, Some((JobState::Failed, Some(cause))) if cause.contains("too full")));
    stage.send(2, &EVENTS[..1]);
    room();
    let package = stage.package(&case);
    assert!(package.built.is_some());
}

/// A node that makes packages, and gives way after each piece.
fn node(stage: &Stage) -> Runner {
    Runner {
        control: Arc::clone(&stage.control),
        world: Arc::clone(&stage.world) as _,
        works: vec![Arc::new(PackageBuilder::new(stage.desk.clone()))],
        wake: Wake::default(),
        records: Wake::default(),
        every: Duration::from_secs(600),
        pace: Pace { keep_every: Duration::ZERO, slice: Duration::ZERO },
    }
}

/// A case whose packages wait to be made.
fn with_packages_to_make(stage: &Stage) -> (Case, [CasePackage; 2]) {
    stage.send(2, &EVENTS);
    let case = stage.jane();
    let search = stage.searched(&case);
    stage.include_all(&case, &search);
    let case = stage.to(&case, CaseState::Approved);
    let packages = [0, 1].map(|_| match stage.wait(stage.desk.create_package(PERSON, &case)).unwrap() {
        PackageCreated::Done(package) => *package,
        refused => panic!("{refused:?}"),
    });
    (case, packages)
}

fn known(stage: &Stage, package: &CasePackage) -> CasePackage {
    wait(stage.control.case_package(package.new.id)).unwrap().unwrap()
}

/// Issue 23.8. The half that a node has made is in its memory.
#[test]
fn a_package_that_is_half_made_is_made_by_another_node_and_the_first_one_adds_nothing_to_it() {
    on_both(|stage| {
        let (case, packages) = with_packages_to_make(&stage);
        let (nodes, stop, mut last) = ([0, 1].map(|_| node(&stage)), Stop::new(), [None, None]);
        let mut turn = |n: usize| stage.wait(nodes[n].turn(&stop, &mut last[n])).unwrap();
        assert!(turn(0));
        let has_begun = |package: &&CasePackage| {
            let job = wait(stage.control.job(package.job_id)).unwrap().unwrap();
            job.state == JobState::Running && job.position.is_some_and(|position| !position.is_empty())
        };
        assert_eq!(packages.iter().filter(has_begun).count(), 1, "it gave way to the other one");
        // It says nothing for so long that its lease ends.
        stage.world.advance(LEASE_MS);
        while turn(1) {}
        let built = packages.each_ref().map(|package| known(&stage, package));
        assert!(built.iter().all(|package| package.built.is_some()), "{built:?}");
        while turn(0) {}
        assert_eq!(packages.each_ref().map(|package| known(&stage, package)), built);
        let [handed_over, other] = built.map(|package| {
            let bytes = stage.download(&case, &package, None);
            let (_, made) = package.built.unwrap();
            assert_eq!((bytes.len() as u64, Hash(Sha256::digest(&bytes).into())), (made.bytes, made.sha256));
            let mut files = files(&bytes, None);
            // It names the package.
            files.retain(|(name, _)| name != "manifest.json");
            files
        });
        assert!(handed_over.len() > 3);
        assert_eq!(handed_over, other);
    });
}

/// Issue 23.8. A node that took over would begin anew, and give way as soon.
#[test]
fn two_nodes_that_give_way_after_each_piece_make_both_packages() {
    on_both(|stage| {
        let (_, packages) = with_packages_to_make(&stage);
        let (nodes, stop, mut last) = ([0, 1].map(|_| node(&stage)), Stop::new(), [None, None]);
        // More than twice the pieces that both have.
        for _ in 0..50 {
            for (node, last) in nodes.iter().zip(&mut last) {
                stage.wait(node.turn(&stop, last)).unwrap();
            }
        }
        assert!(packages.iter().all(|package| known(&stage, package).built.is_some()));
    });
}

#[test]
fn a_package_expires_after_30_days_and_its_digest_and_manifest_stay() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.include_all(&case, &search);
        let case = stage.to(&case, CaseState::Approved);
        let package = stage.package(&case);
        let sweep = PackageSweep {
            control: Arc::clone(&stage.control) as _,
            world: Arc::clone(&stage.world) as _,
            records: Wake::default(),
            every: Duration::from_secs(600),
        };
        stage.world.advance(KEPT_DAYS * DAY_MS - 1);
        assert_eq!(stage.wait(sweep.sweep()).unwrap(), 0);
        assert!(!stage.download(&case, &package, None).is_empty());
        stage.world.advance(1);
        let again = stage.wait(stage.desk.hand_out(PERSON, &case, &package, None)).map(drop);
        assert_eq!(again, Err(NotHandedOut::Dropped), "also before it was swept");
        assert_eq!(stage.wait(sweep.sweep()).unwrap(), 1);
        let (attempt, built) = package.built.clone().unwrap();
        let kept = wait(stage.control.case_package(package.new.id)).unwrap().unwrap();
        assert_eq!(kept.built, Some((attempt, built)));
        assert_eq!(wait(stage.control.package_piece(package.new.id, attempt, 0)).unwrap(), None);
        assert!(format!("{:?}", stage.records()).contains("sealog.case_package_dropped"));
    });
}

#[test]
fn a_package_without_events_and_one_that_somebody_stops() {
    on_both(|stage| {
        let case = stage.jane();
        stage.searched(&case);
        let case = stage.to(&case, CaseState::Approved);
        let package = stage.package(&case);
        let files = files(&stage.download(&case, &package, None), None);
        assert_eq!(files.iter().find(|(name, _)| name == "events.json").unwrap().1, "[]\n");
        stage.wait(stage.desk.create_package(PERSON, &case)).unwrap();
        assert!(stage.wait(stage.desk.stop_package(&case)).unwrap());
        stage.work();
        let runs = stage.wait(stage.desk.packages(&case)).unwrap();
        assert!(runs[0].package.built.is_none() && runs[0].package.dropped_at_ms.is_some());
        assert!(!stage.wait(stage.desk.stop_package(&case)).unwrap());
    });
}

#[test]
fn a_value_that_a_reviewer_masks_or_shows_is_so_in_every_event() {
    on_both(|stage| {
        let bodies = [
            r#"{"action":"a.b","actor_id":"p-20931","metadata":{"ticket":"OPS-4711","owner":"usr_77"}}"#,
            r#"{"action":"a.b","actor_id":"p-20931","metadata":{"note":"OPS-4711 is of usr_77"}}"#,
        ];
        stage.send(2, &bodies);
        let case = stage.jane();
        let search = stage.searched(&case);
        let disclosed = |seq| {
            let compared = stage
                .wait(stage.desk.compare(&search, project(2), seq, |compared| compared))
                .unwrap()
                .unwrap();
            compared.disclosed.field("metadata").unwrap().to_json()
        };
        assert_eq!(disclosed(2), r#"{"note":"OPS-4711 is of [another person]"}"#);
        let compared =
            stage.wait(stage.desk.compare(&search, project(2), 1, |compared| compared)).unwrap().unwrap();
        let paths = Some(vec!["metadata.ticket".to_owned()]);
        let masked = stage.desk.mask(PERSON, &case, compared.clone().masking(paths), compared.found.revision);
        assert!(matches!(stage.wait(masked).unwrap(), Decided::Done { left: 0, .. }));
        assert_eq!(disclosed(1), r#"{"ticket":"Not disclosed","owner":"usr_77"}"#);
        assert_eq!(disclosed(2), r#"{"note":"[not disclosed] is of usr_77"}"#);
        let compared =
            stage.wait(stage.desk.compare(&search, project(2), 1, |compared| compared)).unwrap().unwrap();
        let back = stage.desk.mask(PERSON, &case, compared.clone().masking(None), compared.found.revision);
        assert!(matches!(stage.wait(back).unwrap(), Decided::Done { left: 0, .. }));
        assert_eq!(disclosed(2), r#"{"note":"OPS-4711 is of [another person]"}"#);
    });
}

#[test]
fn masks_that_are_saved_while_a_newer_search_runs_are_in_the_package() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        // What is masked in one of these is masked in the text of the other, which has no mask of its own.
        stage.send(
            2,
            &[
                r#"{"action":"a.b","actor_id":"p-20931","metadata":{"ticket":"OPS-4711"}}"#,
                r#"{"action":"a.b","actor_id":"p-20931","metadata":{"place":"at OPS-4711"}}"#,
            ],
        );
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.wait(stage.desk.start_search(PERSON, &case)).unwrap();
        let is_found = || stage.wait(stage.desk.searches(&case)).unwrap()[0].search.counts.events == 7;
        let due = wait(stage.control.due_jobs("case-search".into(), stage.world.now_ms(), 1)).unwrap();
        let searcher = Searcher::of(&stage.desk);
        // The newer one has found them all, and has not ended.
        while !is_found() {
            stage.wait(sealog_service::jobs::Work::step(&searcher, &due[0], b"")).unwrap();
        }
        let current = stage.wait(stage.desk.current_search(&case)).unwrap().unwrap();
        assert_eq!(current.new.id, search.new.id);
        for (seq, paths) in [(5, &["actor_id", "metadata.text"][..]), (8, &["metadata.ticket"])] {
            let compared = stage.desk.compare(&search, project(2), seq, |compared| compared);
            let compared = stage.wait(compared).unwrap().unwrap();
            let paths = Some(paths.iter().map(|path| (*path).to_owned()).collect());
            let revision = compared.found.revision;
            let masked = stage.desk.mask(PERSON, &case, compared.masking(paths), revision);
            assert!(matches!(stage.wait(masked).unwrap(), Decided::Done { left: 0, .. }));
        }
        stage.work();
        let newer = stage.wait(stage.desk.current_search(&case)).unwrap().unwrap();
        assert_ne!(newer.new.id, search.new.id);
        stage.include_all(&case, &newer);
        let case = stage.to(&case, CaseState::Approved);
        let package = stage.package(&case);
        for (name, text) in files(&stage.download(&case, &package, None), None) {
            assert!(!text.contains("wrote to") && !text.contains("OPS-4711"), "{name}");
        }
    });
}

#[test]
fn a_package_is_handed_out_where_the_request_was_fulfilled_and_not_where_it_was_withdrawn_or_refused() {
    on_both(|stage| {
        stage.send(2, &EVENTS);
        let case = stage.jane();
        let search = stage.searched(&case);
        stage.include_all(&case, &search);
        let approved = stage.to(&case, CaseState::Approved);
        let package = stage.package(&approved);
        let closed = |outcome| {
            let answer = Some(CaseAnswer { outcome, at_ms: MORNING_MS, how: None, ground: None });
            let case = Case { state: CaseState::Closed, answer, ..approved.clone() };
            stage.wait(stage.desk.hand_out(PERSON, &case, &package, None)).map(drop)
        };
        assert_eq!(closed(CaseOutcome::Fulfilled), Ok(()));
        let locked = Err(NotHandedOut::State(CaseState::Closed));
        assert_eq!(closed(CaseOutcome::Withdrawn), locked);
        assert_eq!(closed(CaseOutcome::Refused), locked);
    });
}

fn at_path(path: &str, value: &str) -> Identifier {
    Identifier { path: Some(path.into()), ..identifier(IdentifierKind::Metadata, value) }
}

#[test]
fn a_value_at_a_path_means_the_person_there_and_nobody_elsewhere() {
    on_both(|stage| {
        let bodies = [
            r#"{"action":"card.used","actor_id":"1001","resource":"user/1001","metadata":{"card":{"owner":"1001"},"approved_by":"1001"}}"#,
            r#"{"action":"order.made","actor_id":"1001","resource":"order/1001"}"#,
            r#"{"action":"card.used","actor_id":"svc","metadata":{"card":[{"owner":1001}],"note":"1001 asked"}}"#,
        ];
        stage.send(2, &bodies);
        let case = stage.case(vec![at_path("card.owner", "1001")]);
        let search = stage.searched(&case);
        assert_eq!(search.counts, FoundCounts { events: 2, by_person: 0, on_person: 2, mentions: 0 });
        let disclosed = |seq| {
            stage
                .wait(stage.desk.compare(&search, project(2), seq, |compared| compared))
                .unwrap()
                .unwrap()
                .disclosed
        };
        let first = disclosed(1);
        assert_eq!(first.text_of("actor_id"), None, "an employee who happens to have the number");
        assert!(first.field("resource").unwrap().is_masked());
        let metadata = r#"{"card":{"owner":"1001"},"approved_by":"Another person"}"#;
        assert_eq!(first.field("metadata").unwrap().to_json(), metadata);
        let metadata = r#"{"card":[{"owner":1001}],"note":"[staff member] asked"}"#;
        assert_eq!(disclosed(3).field("metadata").unwrap().to_json(), metadata);
    });
}

#[test]
fn upper_and_lower_case_and_composed_letters_do_not_matter_in_any_script() {
    on_both(|stage| {
        let bodies = [
            r#"{"action":"a.b","metadata":{"n":"JÜRGEN MÜLLER"}}"#,
            "{\"action\":\"a.b\",\"metadata\":{\"n\":\"seen: ju\u{308}rgen mu\u{308}ller.\"}}",
            r#"{"action":"a.b","metadata":{"n":"by ΣΊΣΥΦΟΣ"}}"#,
            r#"{"action":"a.b","metadata":{"n":"HAUPTSTRASSE 7"}}"#,
            r#"{"action":"a.b","metadata":{"n":"Jurgen Muller"}}"#,
            r#"{"action":"a.b","actor_id":"Łucja.Żak","metadata":{"n":"Jürgen Müller met łUCJA.ŻAK"}}"#,
            r#"{"action":"a.b","actor_id":"JÜRGEN MÜLLER"}"#,
        ];
        stage.send(2, &bodies);
        let case = stage.case(vec![
            identifier(IdentifierKind::ActorId, "Jürgen Müller"),
            identifier(IdentifierKind::Mention, "Σίσυφος"),
            identifier(IdentifierKind::Mention, "Hauptstraße 7"),
        ]);
        let search = stage.searched(&case);
        let mut seqs: Vec<u64> = stage.found(&search).iter().map(|found| found.new.chain_seq).collect();
        seqs.sort_unstable();
        assert_eq!(seqs, [1, 2, 3, 4, 6, 7]);
        assert_eq!(search.counts.by_person, 1);
        let compared =
            stage.wait(stage.desk.compare(&search, project(2), 6, |compared| compared)).unwrap().unwrap();
        let metadata = compared.disclosed.field("metadata").unwrap().to_json();
        assert_eq!(metadata, r#"{"n":"Jürgen Müller met [staff member]"}"#);
    });
}

#[test]
fn an_identifier_is_found_however_deep_it_is_nested_and_also_in_a_name() {
    on_both(|stage| {
        let nested = |depth: usize, inner: &str| {
            format!(
                r#"{{"action":"a.b","metadata":{{"a":{}{inner}{}}}}}"#,
                "[".repeat(depth),
                "]".repeat(depth)
            )
        };
        let bodies = [
            nested(5, r#""p-20931""#),
            nested(40, r#""P-20931""#),
            nested(40, r#"{"p-20931":true}"#),
            nested(40, r#""p-209310 and nobody""#),
            nested(5000, r#"{"x":"to Jane@example.org"}"#),
            nested(3, r#"{"jane@example.org":true}"#),
            nested(40, r#""nobody""#),
        ];
        stage.send(2, &bodies.each_ref().map(String::as_str));
        let case = stage.jane();
        let search = stage.searched(&case);
        let mut seqs: Vec<u64> = stage.found(&search).iter().map(|found| found.new.chain_seq).collect();
        seqs.sort_unstable();
        // Seven characters and more count inside of words, too: rather one too many than one too few.
        assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
        let compared =
            stage.wait(stage.desk.compare(&search, project(2), 2, |compared| compared)).unwrap().unwrap();
        let disclosed = compared.disclosed.field("metadata").unwrap().to_json();
        assert!(disclosed.contains("nested too deeply") && !disclosed.contains("20931"), "{disclosed}");
        assert!(!compared.suggested.flags.is_empty(), "somebody should look at the event itself");
    });
}

#[test]
fn a_name_of_a_member_that_may_mean_somebody_is_for_a_reviewer_and_is_masked_with_its_value() {
    on_both(|stage| {
        let body = r#"{"action":"a.b","actor_id":"p-20931","metadata":{"shared":{"usr_77":"read","ann@example.org":"write","mode":"all"}}}"#;
        stage.send(2, &[body]);
        let case = stage.jane();
        let search = stage.searched(&case);
        let compared =
            || stage.wait(stage.desk.compare(&search, project(2), 1, |compared| compared)).unwrap().unwrap();
        let flags = compared().suggested.flags;
        assert_eq!(flags, ["metadata.shared.usr_77", "metadata.shared.ann@example.org"]);
        let now = compared();
        let paths = Some(vec!["metadata.shared.usr_77".to_owned(), "metadata.shared.mode".to_owned()]);
        let masked = stage.desk.mask(PERSON, &case, now.clone().masking(paths), now.found.revision);
        assert!(matches!(stage.wait(masked).unwrap(), Decided::Done { left: 0, .. }));
        let disclosed = compared().disclosed.field("metadata").unwrap().to_json();
        let expected = r#"{"shared":{"[not disclosed]":"Not disclosed","ann@example.org":"write","mode":"Not disclosed"}}"#;
        assert_eq!(disclosed, expected);
    });
}

/// What one of these events can cost is linear in its bytes; a step above that takes minutes or gigabytes
/// here.
#[test]
fn the_worst_events_are_searched_compared_masked_and_packed() {
    let segments = 1 << 20;
    let options =
        Options { segment_bytes_first: segments, segment_bytes_max: segments, ..small(&StillWorld::new()) };
    on_both_with(&options, |stage| {
        let worst = worst::worst_events("p-20931");
        for (_, body) in &worst {
            stage.send(2, &[body]);
        }
        let case = stage.jane();
        let search = stage.searched(&case);
        assert_eq!(search.counts.by_person, worst.len() as u64);
        for (seq, (name, body)) in (1..).zip(&worst) {
            let look = |compared: Compared| {
                let lengths = compared.stored.leaves().into_iter().map(|(path, _)| path.len());
                let (paths, longest) =
                    lengths.fold((0, 0), |(all, longest), path| (all + path, path.max(longest)));
                (paths, longest, compared.found.revision, compared.masking(Some(vec!["metadata".to_owned()])))
            };
            let compared = stage.wait(stage.desk.compare(&search, project(2), seq, look)).unwrap();
            let (paths, longest, revision, masking) = compared.unwrap();
            assert!(longest <= 500, "{name}: a path of {longest} bytes");
            assert!(paths <= (4 << 20) + body.len(), "{name}: {paths} bytes of paths");
            let masked = stage.wait(stage.desk.mask(PERSON, &case, masking, revision)).unwrap();
            assert!(matches!(masked, Decided::Done { left: 0, .. }), "{name}: {masked:?}");
        }
        let case = stage.to(&case, CaseState::Approved);
        let package = stage.package(&case);
        let files = files(&stage.download(&case, &package, None), None);
        let events = &files.iter().find(|(name, _)| name == "events.json").unwrap().1;
        let events: Vec<Value> = serde_json::from_str(events).unwrap();
        assert_eq!(events.len(), worst.len());
        let is_masked =
            |event: &Value| event["metadata"].as_str().is_some_and(|text| text.starts_with("Not disclosed"));
        assert!(events.iter().all(is_masked));
    });
}

#[test]
fn what_is_too_large_to_review_is_found_flagged_and_not_disclosed() {
    on_both(|stage| {
        let long = "k".repeat(600);
        let body = format!(
            r#"{{"action":"a.b","metadata":{{"seen":"ok","in":{{"{long}":"p-20931","by":"usr_secret"}}}}}}"#
        );
        stage.send(2, &[&body]);
        let case = stage.jane();
        let search = stage.searched(&case);
        assert_eq!(search.counts, FoundCounts { events: 1, by_person: 0, on_person: 0, mentions: 1 });
        let compared = stage.desk.compare(&search, project(2), 1, |compared| compared);
        let compared = stage.wait(compared).unwrap().unwrap();
        assert_eq!(compared.suggested.flags, ["metadata.in"]);
        let expected = format!(r#"{{"seen":"ok","in":"{OVERSIZED}"}}"#);
        assert_eq!(compared.disclosed.field("metadata").unwrap().to_json(), expected);
    });
}
