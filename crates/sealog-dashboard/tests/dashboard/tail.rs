//! The live view: what it shows, how much, and when it ends.

use std::time::Duration;

use sealog_control::*;
use sealog_store::Append;

use crate::harness::*;

const SECOND: Duration = Duration::from_secs(1);

fn stage() -> Stage {
    let stage = Stage::new();
    stage.tenant(1);
    stage.member(1, 1, Role::Developer);
    stage
}

fn stage_on_postgresql() -> Stage {
    let stage = Stage::on_postgres();
    stage.tenant(1);
    stage.member(1, 1, Role::Developer);
    stage
}

fn tail() -> String {
    events_path(1).replace("/events", "/tail")
}

fn login(stage: &Stage, actor: &str) {
    stage.append(live(1), &format!("{{\"action\":\"user.login\",\"actor_id\":\"{actor}\"}}"));
}

#[test]
fn an_event_is_told_as_the_row_that_the_list_would_have() {
    told_as_a_row(&stage());
}

#[test]
fn an_event_is_told_as_the_row_that_the_list_would_have_on_postgresql() {
    told_as_a_row(&stage_on_postgresql());
}

fn told_as_a_row(stage: &Stage) {
    login(stage, "before");
    let mut browser = stage.signed_in(1);
    let page = browser.get(&events_path(1));
    page.shows(&format!("data-tail=\"{}?after=1\"", tail()));
    let mut stream = browser.open(&format!("{}?after=1", tail()), &[]);
    assert_eq!(stream.status, 200);
    assert!(stream.next().unwrap().contains("retry:"), "it begins at once");
    login(stage, "<script>alert(1)</script>");
    let told = stream.until("\n\n");
    assert!(told.starts_with("id: 2\nevent: rows\ndata: <tr><th"), "{told}");
    assert!(told.contains("&#60;script&#62;") && !told.contains("<script>") && !told.contains("before"));
    let row = told.lines().find_map(|line| line.strip_prefix("data: ")).unwrap().to_owned();
    drop(stream);
    browser.get(&events_path(1)).shows(&row);
    let columns = format!("{}?columns=hash&after=1", tail());
    let told = browser.open(&columns, &[]).until("</tr>");
    assert!(told.contains("c-hash") && !told.contains("c-actor"), "{told}");
}

#[test]
fn a_stream_goes_on_where_it_was_and_says_what_it_leaves_out() {
    let stage = stage();
    for n in 0..45 {
        login(&stage, &format!("actor{n}"));
    }
    let mut browser = stage.signed_in(1);
    let told = browser.open(&format!("{}?after=40", tail()), &[]).until("event: rows");
    assert!(!told.contains("thinned") && told.contains("actor44") && told.contains("actor40"));
    assert!(!told.contains("actor39"));
    // The browser says what it saw last when it comes again.
    let told = browser.open(&tail(), &[("last-event-id", "43")]).until("event: rows");
    assert_eq!(told.matches("<tr>").count(), 2);
    // Twenty in a tick; more than that nobody reads.
    let told = browser.open(&format!("{}?after=0", tail()), &[]).until("event: rows");
    assert!(told.contains("event: thinned\ndata: 25\n\n"), "{told}");
    assert_eq!(told.matches("<tr>").count(), 20);
}

#[test]
fn a_stream_has_the_filter_of_its_list_and_a_wrong_one_is_refused() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let mut stream = browser.open(&format!("{}?q=actor:b&after=0", tail()), &[]);
    for actor in ["a", "b", "c"] {
        login(&stage, actor);
    }
    let told = stream.until("event: rows");
    assert_eq!(told.matches("<tr>").count(), 1, "{told}");
    assert!(told.contains(">b</a>"));
    drop(stream);
    // Also one that the list writes as a term: it must not be taken for none.
    for wrong in ["q=from:soon", "actor_id=b"] {
        stage.signed_in(1).get(&format!("{}?{wrong}", tail())).is_problem(400, "read/invalid_params");
    }
}

#[test]
fn a_stream_has_the_search_of_its_list_and_one_that_cannot_be_understood_is_refused() {
    let stage = stage();
    login(&stage, "usr_0");
    let mut browser = stage.signed_in(1);
    let list = format!("{}?q=actor%3Ausr_*+-actor%3Ausr_2+last%3A24h", events_path(1));
    let page = browser.get(&list);
    let address =
        page.text().split("data-tail=\"").nth(1).expect("a search has a live view").split('"').next();
    let address = address.unwrap().replace("&#38;", "&");
    assert!(address.ends_with("&after=1"), "{address}");
    let mut stream = browser.open(&address, &[]);
    for actor in ["usr_1", "usr_2", "other", "usr_3"] {
        login(&stage, actor);
    }
    let told = stream.until("usr_3");
    assert!(told.contains(">usr_1</a>") && !told.contains(">usr_2</a>") && !told.contains("other"), "{told}");
    drop(stream);
    stage.signed_in(1).get(&format!("{}?q=lost%3A1", tail())).is_problem(400, "read/invalid_params");
}

#[test]
fn an_event_that_comes_while_the_list_is_read_is_told_and_not_taken_for_a_missing_one() {
    let stage = stage();
    login(&stage, "before");
    for query in ["", "?q=actor%3Aa*"] {
        let draft = sealog_testing::login("arrives");
        stage.doubtful.append_behind_list(Append { chain: live(1), drafts: vec![draft], idempotency: None });
        let page = stage.signed_in(1).get(&format!("{}{query}", events_path(1)));
        assert!(!page.has("missing or damaged"), "{query}");
        let address = page.text().split("data-tail=\"").nth(1).unwrap().split('"').next().unwrap();
        let told = stage.signed_in(1).open(&address.replace("&#38;", "&"), &[]).until("event: rows");
        assert!(told.contains(">arrives</a>"), "{told}");
    }
}

#[test]
fn a_stream_ends_within_a_second_of_its_session_its_membership_or_its_grant() {
    ends_in_time(&stage());
}

#[test]
fn a_stream_ends_within_a_second_of_its_session_its_membership_or_its_grant_on_postgresql() {
    ends_in_time(&stage_on_postgresql());
}

/// Every way to lose what a stream stands on.
fn ends_in_time(stage: &Stage) {
    let hour_ms = 3_600_000;
    let grants = Grants { projects: Some(vec![project_id(1)]), from_ms: None, until_ms: None };
    stage.member_with(2, 1, Role::Auditor, grants.clone(), Some(stage.now_ms() + hour_ms));
    stage.with_authenticator(2);
    let change = |n, change: MemberChange| {
        let change = MemberChange { now_ms: stage.now_ms(), ..change };
        stage.wait(stage.control.update_member(tenant_id(1), person_id(n), change, Records::none())).unwrap();
    };
    let end_sessions = |n| stage.wait(stage.control.end_sessions::<Person>(person_id(n), None)).unwrap();
    let ways: [(&str, u8, &dyn Fn()); 5] = [
        ("the session ends", 1, &|| end_sessions(1)),
        ("the role changes", 1, &|| {
            change(1, MemberChange { role: Some(Role::Admin), ..MemberChange::default() })
        }),
        ("the grant changes", 2, &|| {
            let other = Grants { projects: Some(vec![project_id(101)]), ..grants.clone() };
            change(2, MemberChange { grants: Some(other), ..MemberChange::default() });
            change(
                2,
                MemberChange {
                    grants: Some(Grants { from_ms: Some(1), ..grants.clone() }),
                    ..MemberChange::default()
                },
            );
        }),
        ("the authenticator is removed", 2, &|| {
            let removed = stage.control.remove_authenticator(person_id(2), PersonRecords::none());
            assert_eq!(stage.wait(removed), Ok(true));
        }),
        ("the membership ends", 1, &|| {
            change(1, MemberChange { ends_at_ms: Some(Some(stage.now_ms())), ..MemberChange::default() });
        }),
    ];
    for (way, n, act) in ways {
        let mut browser = stage.signed_in(n);
        let mut stream = browser.open(&tail(), &[]);
        assert_eq!(stream.status, 200, "{way}");
        login(stage, way);
        stream.until("event: rows");
        act();
        let took = stream.ends_after();
        assert!(took < SECOND, "{way}: {took:?}");
    }
    // By the clock alone, with nobody doing anything.
    stage.with_authenticator(2);
    let mut browser = stage.signed_in(2);
    let mut stream = browser.open(&tail(), &[]);
    stream.next();
    stage.clock.advance(hour_ms);
    assert!(stream.ends_after() < SECOND, "the membership was until now");
}

#[test]
fn a_stream_does_not_keep_its_session_alive() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let mut stream = browser.open(&tail(), &[]);
    stage.clock.advance(10 * 60_000);
    login(&stage, "a");
    stream.until("event: rows");
    let session =
        stage.wait(stage.control.sessions::<Person>(person_id(1), stage.now_ms())).unwrap().remove(0);
    assert_eq!(session.last_seen_at_ms, session.created_at_ms);
}

/// The word is the only thing that tells a server of a client that is gone: without it the view of a quiet
/// chain keeps its place. `tail.rs` bounds how long it takes.
#[test]
fn a_stream_of_a_quiet_chain_says_a_word_by_itself_and_goes_on() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let mut stream = browser.open(&tail(), &[]);
    assert!(stream.next().unwrap().contains("retry:"));
    assert_eq!([stream.next().unwrap(), stream.next().unwrap()], [":\n\n", ":\n\n"]);
    login(&stage, "a");
    stream.until("event: rows");
}

#[test]
fn a_person_has_four_streams_and_whoever_closes_one_has_another() {
    let stage = stage();
    stage.member(2, 1, Role::Developer);
    let mut browsers: Vec<_> = (0..6).map(|_| stage.signed_in(1)).collect();
    let mut open: Vec<_> = browsers.iter_mut().map(|browser| browser.open(&tail(), &[])).collect();
    let statuses: Vec<u16> = open.iter().map(|stream| stream.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert_eq!(stage.signed_in(2).open(&tail(), &[]).status, 200, "others have their own");
    open.remove(0);
    assert_eq!(stage.signed_in(1).open(&tail(), &[]).status, 200);
}

#[test]
fn an_auditor_sees_the_granted_time_and_it_is_recorded_before_it_is_told() {
    let stage = stage();
    login(&stage, "first");
    let head = stage.wait(stage.store.head(live(1))).unwrap().durable;
    let time = |seq: u64| {
        let range = sealog_store::Range { from: seq, to: seq, bytes_max: 1 << 20 };
        match stage.wait(stage.store.range(live(1), range)).unwrap().items.remove(0) {
            sealog_core::verify::Item::Event(event) => event.timestamp_ms,
            other => panic!("{other:?}"),
        }
    };
    let window = |from_ms, until_ms| Grants { projects: Some(vec![project_id(1)]), from_ms, until_ms };
    stage.member_with(2, 1, Role::Auditor, window(Some(time(1)), None), None);
    stage.member_with(3, 1, Role::Auditor, window(None, Some(time(1))), None);
    for n in [2, 3] {
        stage.with_authenticator(n);
    }
    let (mut sees, mut sees_not) = (stage.signed_in(2), stage.signed_in(3));
    let mut stream = sees.open(&format!("{}?after={}", tail(), head.chain_seq), &[]);
    let mut empty = sees_not.open(&format!("{}?after={}", tail(), head.chain_seq), &[]);
    assert!(empty.next().unwrap().contains("retry:"));
    login(&stage, "second");
    assert!(stream.until("event: rows").contains("second"));
    let views: Vec<_> =
        stage.records(1).into_iter().filter(|record| record.contains("sealog.events_viewed")).collect();
    assert_eq!(views.len(), 1, "{views:?}");
    assert!(views[0].contains("\"live\":true") && views[0].contains("\"first_seq\":2"), "{views:?}");
    assert!(!views[0].contains("second"), "no contents of events");
    drop(stream);
    // However many events lie outside of the window, it is not told how many.
    for n in 0..30 {
        login(&stage, &format!("more{n}"));
    }
    let told = sees.open(&format!("{}?after=0", tail()), &[]).until("event: rows");
    assert!(!told.contains("thinned") && told.contains("more29"), "{told}");
    // The other one has been told nothing, and ends with nothing.
    stage.wait(stage.control.end_sessions::<Person>(person_id(3), None)).unwrap();
    assert_eq!(empty.next(), None);
}

/// A row has its bound, whatever the event is that it shows.
#[test]
fn the_worst_events_are_told_in_rows_of_a_bounded_size() {
    let stage = stage();
    let mut browser = stage.signed_in(1);
    let mut stream = browser.open(&tail(), &[]);
    for (name, body) in sealog_testing::worst::worst_events("usr_1") {
        stage.append(live(1), &body);
        let told = stream.until("event: rows");
        assert!(told.len() < 16 << 10, "{name}: {} bytes", told.len());
    }
}
