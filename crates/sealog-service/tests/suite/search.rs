//! Searches on every store against a look at every event, and what they do when their budget is spent.

use std::sync::Arc;

use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::query::Filter;
use sealog_service::evidence::search::{Budget, Found, Plan, Query, Work, run};
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::postgres::PostgresStore;
use sealog_store::reference::ReferenceStore;
use sealog_testing::doubtful::{Doubt, DoubtfulStore};
use sealog_testing::*;

const EVENTS: u64 = 700;

/// Events of some variety: five actors, three actions, and members of every type.
fn body(n: u64) -> String {
    let action = ["user.login", "user.logout", "document.shared"][usize::try_from(n % 3).unwrap()];
    let actor = if n.is_multiple_of(7) { "null".to_owned() } else { format!("\"u{}\"", n % 5) };
    let severity = ["info", "warn", "warning", "critical", "odd"][usize::try_from(n % 5).unwrap()];
    let metadata = match n % 6 {
        0 => "null".to_owned(),
        1 => format!(r#"{{"amount":{n},"ticket_id":"OPS-{}"}}"#, n / 60),
        2 => format!(r#"{{"amount":"{}.50","note":"Ünïcode \"{n}\" text"}}"#, n),
        3 => format!(r#"{{"amount":{n}e1,"tags":["red","t{}"]}}"#, n % 4),
        4 => format!(r#"{{"big":12345678901234567{:03},"ticket_id":null}}"#, n % 1000),
        _ => r#"{"ticket_id":"OPS-1","tags":[],"deep":{"ticket_id":"OPS-2"}}"#.to_owned(),
    };
    format!(
        r#"{{"action":"{action}","actor_id":{actor},"resource":"document/{}","severity":"{severity}","session_id":"s{}","metadata":{metadata}}}"#,
        n % 40,
        n % 11
    )
}

fn fill(store: &dyn Store, world: &StillWorld) -> Vec<StoredEvent> {
    for n in 1..=EVENTS {
        append(store, live(), vec![draft(&body(n))]);
        world.advance(60_000);
    }
    list(store, live(), &Filter::default(), None, 1000)
}

fn plan(text: &str) -> Plan {
    let query = Query::parse(text).unwrap_or_else(|error| panic!("{text}: {}", error.explain(text)));
    Plan::new(&query, MORNING_MS + EVENTS * 60_000)
}

/// In pieces, of which a machine of any speed does as many.
fn budget(steps: u32) -> Budget {
    Budget { rows: 50, bytes: 1 << 20, work: Work::Steps(steps) }
}

fn search(store: &dyn Store, plan: &Arc<Plan>, before: Option<u64>, budget: Budget) -> Found {
    wait(run(store, live(), plan, before, budget)).unwrap()
}

fn seqs(events: &[StoredEvent]) -> Vec<u64> {
    events.iter().map(|event| event.sealed.chain_seq).collect()
}

/// Follows a search to its end.
fn all(store: &dyn Store, plan: &Arc<Plan>, budget: Budget) -> (Vec<u64>, usize) {
    let (mut found, mut before, mut runs) = (Vec::new(), None, 0);
    loop {
        let piece = search(store, plan, before, budget);
        runs += 1;
        assert!(piece.events.len() <= budget.rows);
        let was_cut = piece.resume.is_some() && piece.events.len() < budget.rows;
        assert!(!was_cut || piece.looked_to.is_some(), "a page that is short says how far it has looked");
        found.extend(seqs(&piece.events));
        match piece.resume {
            None => return (found, runs),
            Some(resume) => {
                assert!(before.is_none_or(|before| resume < before), "each run goes on");
                before = Some(resume);
            }
        }
    }
}

const SEARCHES: [&str; 44] = [
    "",
    "action:user.login",
    "action:user.*",
    "-action:user.logout",
    "action:user.login action:document.shared",
    "actor:u3",
    "actor:u3 actor:u1 action:user.login",
    "actor:u0 actor:u1 actor:u2 actor:u3 actor:u4 action:user.login action:user.logout",
    "actor:*",
    "missing:actor",
    "-missing:actor severity:critical",
    "missing:actor missing:metadata",
    "missing:meta.ticket_id",
    "resource:document/7",
    "resource:document/1*",
    "resource_type:document seq:100..120",
    "severity:warning",
    "severity:>=warning",
    "severity:>info severity:<critical",
    "session:s3 session:s4",
    "seq:17",
    "seq:100..150 seq:300..310",
    "seq:..20 -actor:u1",
    "seq:690..",
    "seq:5000..",
    "meta.ticket_id:OPS-1",
    "meta.ticket_id:OPS-1 meta.ticket_id:OPS-3",
    "meta.ticket_id:OPS-1 actor:u2",
    "meta.ticket_id:OPS-*",
    "-meta.ticket_id:OPS-1 actor:u2",
    "meta.ticket_id:null",
    "meta.tags:red meta.tags:t1",
    "meta.tags:red meta.amount:>1000",
    "meta.amount:>100 meta.amount:<=140",
    "meta.amount:>=6e3",
    "meta.big:>12345678901234567400",
    "meta.amount:\"32.50\"",
    "\"ünïcode \\\"3\"",
    "\"OPS-2\" \"deep\"",
    "-\"red\" severity:critical",
    "framework:csrd",
    "framework:soc2 actor:u1",
    "last:2h",
    "from:2026-11-15 to:2026-11-15T09:00:00Z category:auth",
];

fn every_search_finds_what_a_look_at_every_event_finds(store: &dyn Store, world: &StillWorld) {
    let events = fill(store, world);
    assert_eq!(events.len() as u64, EVENTS);
    let generous = budget(u32::MAX);
    let mut matched = 0;
    for text in SEARCHES {
        let plan = Arc::new(plan(text));
        let expected: Vec<u64> =
            seqs(&events.iter().filter(|event| plan.matches(event)).cloned().collect::<Vec<_>>());
        matched += usize::from(!expected.is_empty());
        assert_eq!(all(store, &plan, generous).0, expected, "{text}");
        // In the smallest pieces that there are.
        let mean = Budget { rows: 7, ..budget(0) };
        let (found, runs) = all(store, &plan, mean);
        assert_eq!(found, expected, "{text}");
        assert!(
            runs <= 7 + expected.len() / 7 + usize::try_from(EVENTS).unwrap() / 100 * 8,
            "{text}: {runs} runs"
        );
    }
    assert!(matched >= 35, "{matched}");
}

#[test]
fn on_the_embedded_store_every_search_finds_what_a_look_at_every_event_finds() {
    let (world, dir) = (StillWorld::new(), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::open(dir.path(), &small(&world)).unwrap();
    every_search_finds_what_a_look_at_every_event_finds(&store, &world);
}

#[test]
fn on_postgresql_every_search_finds_what_a_look_at_every_event_finds() {
    let (world, database) = (StillWorld::new(), postgres::cluster().database());
    let store = PostgresStore::open(&database.url(), &on_postgres(&world)).unwrap();
    every_search_finds_what_a_look_at_every_event_finds(&store, &world);
}

fn reference() -> (ReferenceStore, Vec<StoredEvent>) {
    let world = StillWorld::new();
    let store = ReferenceStore::new(Arc::clone(&world) as _);
    let events = fill(&store, &world);
    (store, events)
}

/// What each search means, by the events as they were made and not by the code under test.
#[test]
fn terms_mean_what_the_grammar_says() {
    let (_, events) = reference();
    let finds = |text: &str| {
        let plan = plan(text);
        let mut found = seqs(&events.iter().filter(|event| plan.matches(event)).cloned().collect::<Vec<_>>());
        found.reverse();
        found
    };
    let wanted = |is: &dyn Fn(u64) -> bool| (1..=EVENTS).filter(|n| is(*n)).collect::<Vec<u64>>();
    let actor = |n: u64| (!n.is_multiple_of(7)).then_some(n % 5);
    for (text, expected) in [
        ("action:user.*", wanted(&|n| n % 3 != 2)),
        ("action:user.login action:document.shared", wanted(&|n| n % 3 != 1)),
        ("-action:user.login -action:user.logout", wanted(&|n| n % 3 == 2)),
        ("actor:u3 action:user.login", wanted(&|n| actor(n) == Some(3) && n % 3 == 0)),
        ("missing:actor", wanted(&|n| actor(n).is_none())),
        ("actor:*", wanted(&|n| actor(n).is_some())),
        ("missing:actor missing:metadata", wanted(&|n| actor(n).is_none() || n % 6 == 0)),
        ("missing:meta.ticket_id", wanted(&|n| !matches!(n % 6, 1 | 5))),
        ("severity:warning", wanted(&|n| matches!(n % 5, 1 | 2))),
        ("severity:>=warning", wanted(&|n| matches!(n % 5, 1..=3))),
        ("severity:>info severity:<critical", wanted(&|n| matches!(n % 5, 1 | 2))),
        ("severity:odd", wanted(&|n| n % 5 == 4)),
        ("seq:100..150 seq:300..310", wanted(&|n| (100..=150).contains(&n) || (300..=310).contains(&n))),
        ("meta.ticket_id:OPS-1", wanted(&|n| n % 6 == 5 || n % 6 == 1 && n / 60 == 1)),
        (
            "meta.amount:>100 meta.amount:<=140",
            wanted(&|n| match n % 6 {
                1 => (101..=140).contains(&n),
                2 => (100..140).contains(&n),
                3 => (101..=140).contains(&(n * 10)),
                _ => false,
            }),
        ),
        ("meta.amount:5", wanted(&|_| false)),
        ("meta.amount:32.50", wanted(&|n| n == 32)),
        ("meta.big:>12345678901234567400", wanted(&|n| n % 6 == 4 && n > 400)),
        ("meta.tags:red", wanted(&|n| n % 6 == 3)),
        ("meta.deep:OPS-2", wanted(&|_| false)),
        ("\"ops-2\" \"DEEP\"", wanted(&|n| n % 6 == 5)),
        ("\"\\\"32\\\"\"", wanted(&|n| n == 32)),
        ("resource_type:document resource:document/1", wanted(&|n| n % 40 == 1)),
        ("last:1h", wanted(&|n| n > EVENTS - 60)),
        ("framework:csrd", wanted(&|_| false)),
    ] {
        assert_eq!(finds(text), expected, "{text}");
    }
}

#[test]
fn addresses_are_matched_by_their_network() {
    let (_, events) = reference();
    let at = |address: &str, text: &str| {
        let mut event = events[0].clone();
        event.annotations.ip_address = Some(address.into());
        plan(text).matches(&event)
    };
    for (address, text, expected) in [
        ("203.0.113.7", "ip:203.0.113.7", true),
        ("203.0.113.8", "ip:203.0.113.7", false),
        ("203.0.113.255", "ip:203.0.113.0/24", true),
        ("203.0.114.0", "ip:203.0.113.0/24", false),
        ("203.0.114.0", "ip:0.0.0.0/0", true),
        ("::1", "ip:0.0.0.0/0", false),
        ("2001:db8:1::5", "ip:2001:db8::/32", true),
        ("2001:db9::5", "ip:2001:db8::/32", false),
        ("2001:db9::5", "ip:::/0", true),
        ("::ffff:203.0.113.7", "ip:203.0.113.0/24", true),
        ("not an address", "ip:0.0.0.0/0", false),
    ] {
        assert_eq!(at(address, text), expected, "{address} {text}");
    }
    assert!(!plan("ip:0.0.0.0/0").matches(&events[0]), "an event without an address");
    assert!(plan("missing:ip").matches(&events[0]));
}

#[test]
fn a_search_whose_budget_is_spent_says_how_far_it_has_looked_and_goes_on_there() {
    let (store, events) = reference();
    let plan = Arc::new(plan("\"nowhere\""));
    let budget = budget(1);
    let found = search(&store, &plan, None, budget);
    assert!(found.events.is_empty());
    let resume = found.resume.expect("not everything was looked at");
    let (seq, timestamp_ms) = found.looked_to.expect("so it says how far it has looked");
    assert_eq!(seq, resume);
    let last = events.iter().find(|event| event.sealed.chain_seq == seq).unwrap();
    assert_eq!(timestamp_ms, Some(last.timestamp_ms));
    assert_eq!(found.looked, 256, "a piece is a step");
    let twice = search(&store, &plan, None, self::budget(2));
    assert_eq!((twice.looked, twice.resume < found.resume), (512, true));
    // No index leads to a hash: it has the same budget, and says as much.
    let of_hash = Arc::new(self::plan(&"ab".repeat(32)));
    let found = search(&store, &of_hash, None, budget);
    assert_eq!((found.looked, found.looked_to.map(|(seq, _)| seq)), (256, Some(seq)));
    assert_eq!(all(&store, &plan, budget).0, Vec::<u64>::new());
    // A page that is full ends there and not where it stopped to look.
    let plan = Arc::new(self::plan("actor:u1"));
    let found = search(&store, &plan, None, Budget { rows: 3, ..budget });
    assert_eq!((found.events.len(), found.looked_to), (3, None));
    assert_eq!(found.resume, Some(found.events[2].sealed.chain_seq));
}

#[test]
fn a_search_does_not_tell_a_time_outside_of_what_the_membership_grants() {
    let (store, events) = reference();
    let store = DoubtfulStore::new(Arc::new(store));
    let budget = budget(1);
    let from_ms = events.last().map(|event| event.timestamp_ms);
    let grants = Grants { projects: None, from_ms, until_ms: None };
    let within = Arc::new(plan("\"nowhere\"").within(&grants));
    let (seq, timestamp_ms) = search(&*store, &within, None, budget).looked_to.unwrap();
    assert!(timestamp_ms >= from_ms);
    // A piece may end at an event that is not for whoever asks: here it is one whose time was changed.
    store.doubt(seq, Doubt::Changed(|event| event.timestamp_ms = 1));
    assert_eq!(search(&*store, &within, None, budget).looked_to, Some((seq, None)));
    let unlimited = Arc::new(plan("\"nowhere\""));
    assert_eq!(search(&*store, &unlimited, None, budget).looked_to, Some((seq, Some(1))));
}

#[test]
fn a_search_sees_no_more_than_the_membership_grants_and_the_form_beside_it_asks_for() {
    let (store, events) = reference();
    let (from_ms, until_ms) = (MORNING_MS + 100 * 60_000, MORNING_MS + 200 * 60_000);
    let grants = Grants { projects: None, from_ms: Some(from_ms), until_ms: Some(until_ms) };
    let budget = budget(u32::MAX);
    for text in [
        "",
        "actor:u1 actor:u2",
        "\"red\"",
        "from:2020-01-01 to:2030-01-01",
        "last:30d",
        "seq:1..",
        "-actor:u1",
    ] {
        let within = Arc::new(plan(text).within(&grants));
        let may_see = |event: &&StoredEvent| (from_ms..until_ms).contains(&event.timestamp_ms);
        let unlimited = plan(text);
        let expected: Vec<StoredEvent> =
            events.iter().filter(may_see).filter(|event| unlimited.matches(event)).cloned().collect();
        assert!(!expected.is_empty(), "{text}");
        assert_eq!(all(&store, &within, budget).0, seqs(&expected), "{text}");
    }
    let form = Filter { actor_id: Some("\"u1\"".into()), until_ms: Some(until_ms), ..Filter::default() };
    let both = Arc::new(plan("actor:u1 actor:u2").and(&form).within(&grants));
    let expected: Vec<StoredEvent> = events
        .iter()
        .filter(|event| (from_ms..until_ms).contains(&event.timestamp_ms) && form.matches(event))
        .cloned()
        .collect();
    assert_eq!(all(&store, &both, budget).0, seqs(&expected));
}

#[test]
fn an_event_is_found_by_its_id_and_its_hash_and_so_is_what_names_them() {
    let (store, events) = reference();
    let named = &events[600];
    let hash = named.sealed.hash.to_string();
    append(
        &store,
        live(),
        vec![draft(&format!(r#"{{"action":"user.login","metadata":{{"sha256":"{hash}"}}}}"#))],
    );
    let found = |text: &str| all(&store, &Arc::new(plan(text)), budget(u32::MAX)).0;
    let seq = named.sealed.chain_seq;
    assert_eq!(found(&hash), [EVENTS + 1, seq]);
    assert_eq!(found(&hash.to_uppercase()), [EVENTS + 1, seq]);
    assert_eq!(found(&named.sealed.log_id.to_string().to_lowercase()), [seq]);
    assert_eq!(found(&format!("#{seq}")), [seq]);
    assert_eq!(found(&format!("-{hash} #{seq}..")).len(), usize::try_from(EVENTS - seq).unwrap());
}

/// What took longest is what the budget counts, and not how much of it there was.
#[test]
fn a_search_without_time_still_makes_a_step_and_one_with_time_goes_to_the_end() {
    let (store, _) = reference();
    let plan = Arc::new(plan("\"nowhere\""));
    let none = Budget { work: Work::Time(std::time::Duration::ZERO), ..budget(0) };
    assert_eq!(search(&store, &plan, None, none).looked, 256);
    let hour = Budget { work: Work::Time(std::time::Duration::from_secs(3600)), ..budget(0) };
    assert_eq!(search(&store, &plan, None, hour).resume, None);
}
