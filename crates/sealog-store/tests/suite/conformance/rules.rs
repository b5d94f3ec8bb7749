//! The rules. Each is given an empty store whose clock stands at `MORNING_MS`.

use std::collections::HashSet;
use std::sync::Arc;

use sealog_core::event::SCHEMA_VERSION;
use sealog_core::id::{Hash, Mode, TenantId, Ulid, Uuid};
use sealog_core::metadata::FieldIs;
use sealog_core::query::Filter;
use sealog_core::time::{Date, Month};
use sealog_core::verify::{Item, Verdict};
use sealog_store::reference::ReferenceStore;
use sealog_store::world::World;
use sealog_store::{
    Append, Appended, IDEMPOTENCY_RETENTION_MS, KeptKey, Receipt, Reserved, Store, StoreError, WantedKeys,
};

use sealog_testing::*;

pub fn the_first_event_has_seq_1_and_64_zeros_before_it(store: &dyn Store, _: &StillWorld) {
    let receipt = append(store, live(), vec![login("a")]);
    let event = get(store, live(), receipt.log_ids[0]).unwrap();
    assert_eq!((event.sealed.chain_seq, event.sealed.prev_hash), (1, Hash::ZERO));
    assert_eq!((receipt.first_seq, receipt.hash, receipt.request_id), (1, event.sealed.hash, None));
}

pub fn seqs_have_no_gaps_and_each_event_names_the_one_before(store: &dyn Store, world: &StillWorld) {
    for n in 0..250 {
        append(store, live(), vec![login(&format!("u{n}"))]);
        world.advance(n % 3);
    }
    assert_valid(store, live(), 250);
}

pub fn an_event_can_be_read_at_once_with_every_field_it_was_sent_with(store: &dyn Store, _: &StillWorld) {
    let mut sent = draft(
        r#"{"action":"a\"b","actor_id":"é\u0001","resource":"r/1","metadata":{"n":1.0,"big":12345678901234567890,"d":{"d":1,"d":2},"s":"\ud800"},
            "session_id":"s","ts_client":"2026-01-01T00:00:00Z","severity":"warn","actor_type":"user"}"#,
    );
    sent.annotations.category = Some("c".into());
    sent.annotations.ip_address = Some("2001:db8::1".into());
    sent.annotations.country = Some("DE".into());
    sent.annotations.city = Some("Köln".into());
    let receipt = append(store, live(), vec![sent.clone()]);
    let event = get(store, live(), receipt.log_ids[0]).unwrap();
    assert_eq!((event.text, event.annotations), (sent.text, sent.annotations));
    assert_eq!(event.timestamp_ms, MORNING_MS);
    assert_eq!((event.tenant_id, event.project_id), (live().tenant_id, live().project_id));
}

pub fn a_batch_is_contiguous_and_its_ids_are_in_order(store: &dyn Store, _: &StillWorld) {
    append(store, live(), vec![login("first")]);
    let drafts: Vec<_> = (0..100).map(|n| login(&format!("u{n}"))).collect();
    let receipt = append(store, live(), drafts.clone());
    assert_eq!((receipt.first_seq, receipt.last_seq(), receipt.log_ids.len()), (2, 101, 100));
    for (seq, (log_id, draft)) in (2..).zip(receipt.log_ids.iter().zip(drafts)) {
        let event = get(store, live(), *log_id).unwrap();
        assert_eq!((event.sealed.chain_seq, event.text), (seq, draft.text));
    }
    assert!(receipt.log_ids.is_sorted());
    assert_eq!(get(store, live(), receipt.log_ids[99]).unwrap().sealed.hash, receipt.hash);
}

pub fn a_request_has_1_to_100_events(store: &dyn Store, _: &StillWorld) {
    for count in [0, 101] {
        let refused = try_append(store, live(), vec![login("a"); count]);
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{count}");
    }
    assert_eq!(verify(store, live()).checked, 0);
}

pub fn chains_of_projects_tenants_and_modes_are_apart(store: &dyn Store, _: &StillWorld) {
    let chains =
        [chain(1, 1, Mode::Live), chain(1, 1, Mode::Test), chain(1, 2, Mode::Live), chain(2, 1, Mode::Live)];
    for (n, chain) in chains.iter().enumerate() {
        for _ in 0..=n {
            append(store, *chain, vec![login("a")]);
        }
    }
    for (n, chain) in chains.iter().enumerate() {
        assert_valid(store, *chain, n as u64 + 1);
        let events = list(store, *chain, &Filter::default(), None, 100);
        assert_eq!(events.len(), n + 1);
        assert!(events.iter().all(|event| event.chain(chain.mode) == *chain));
    }
}

pub fn another_chains_id_is_not_found(store: &dyn Store, _: &StillWorld) {
    let receipt = append(store, live(), vec![login("a")]);
    for other in [chain(1, 1, Mode::Test), chain(1, 2, Mode::Live), chain(2, 1, Mode::Live)] {
        assert_eq!(get(store, other, receipt.log_ids[0]), None);
        append(store, other, vec![login("b")]);
        assert_eq!(get(store, other, Ulid(receipt.log_ids[0].0 + 1)), None);
    }
    for missing in [0, 1, receipt.log_ids[0].0 - 1, receipt.log_ids[0].0 + 1, u128::MAX] {
        assert_eq!(get(store, live(), Ulid(missing)), None);
    }
}

pub fn ids_and_times_increase_when_the_clock_steps_back(store: &dyn Store, world: &StillWorld) {
    for now_ms in [MORNING_MS, MORNING_MS - 3_600_000, MORNING_MS - 1, MORNING_MS + 5, 0, MORNING_MS + 4] {
        world.set(now_ms);
        append(store, live(), vec![login("a"), login("b")]);
    }
    let events = list(store, live(), &Filter::default(), None, 100);
    for pair in events.windows(2) {
        assert!(pair[0].sealed.log_id > pair[1].sealed.log_id);
        assert!(pair[0].timestamp_ms >= pair[1].timestamp_ms);
    }
    assert_valid(store, live(), 12);
}

pub fn lists_are_newest_first_and_pages_join_without_gap_or_overlap(store: &dyn Store, _: &StillWorld) {
    for n in 0..230 {
        append(store, live(), vec![login(&format!("u{n}"))]);
    }
    for limit in [1, 7, 50, 100] {
        let mut seqs = Vec::new();
        let mut before = None;
        loop {
            let page = list(store, live(), &Filter::default(), before, limit);
            assert!(page.len() <= limit);
            seqs.extend(page.iter().map(|event| event.sealed.chain_seq));
            match page.last() {
                Some(last) => before = Some(last.sealed.chain_seq),
                None => break,
            }
        }
        assert_eq!(seqs, (1..=230).rev().collect::<Vec<_>>());
    }
}

pub fn a_page_grows_neither_by_later_events_nor_in_its_past(store: &dyn Store, world: &StillWorld) {
    for n in 0..30 {
        append(store, live(), vec![login(&format!("u{n}"))]);
    }
    let first = list(store, live(), &Filter::default(), Some(21), 10);
    world.set(0);
    for n in 0..30 {
        append(store, live(), vec![login(&format!("v{n}"))]);
    }
    assert_eq!(list(store, live(), &Filter::default(), Some(21), 10), first);
}

pub fn filters_match_exactly_and_in_any_combination(store: &dyn Store, world: &StillWorld) {
    let (actions, actors, resources) =
        (["user.login", "user.logout", "user.log"], ["é", "\\\"x", "a b"], ["doc/1", "doc/10"]);
    let mut dice = Dice::new(5);
    for n in 0..600u64 {
        let (action, actor, resource) = (dice.pick(&actions), dice.pick(&actors), dice.pick(&resources));
        let actor = actor.replace('\\', "\\\\").replace('"', "\\\"");
        let resource = if n % 10 == 0 { "null".to_owned() } else { format!("\"{resource}\"") };
        append(
            store,
            live(),
            vec![draft(&format!(r#"{{"action":"{action}","actor_id":"{actor}","resource":{resource}}}"#))],
        );
        world.advance(n % 5);
    }
    let all = list(store, live(), &Filter::default(), None, 600);
    let options = |values: &[&str]| {
        let text = |value: &&str| Some(serde_json::to_string(value).unwrap());
        [None, Some("\"absent\"".to_owned())].into_iter().chain(values.iter().map(text)).collect::<Vec<_>>()
    };
    for action in options(&actions) {
        for actor_id in options(&actors) {
            for resource in options(&resources) {
                for (from_ms, until_ms) in [
                    (None, None),
                    (Some(MORNING_MS + 300), Some(MORNING_MS + 900)),
                    (Some(MORNING_MS + 9), None),
                ] {
                    let filter = Filter {
                        action: action.clone(),
                        actor_id: actor_id.clone(),
                        resource: resource.clone(),
                        from_ms,
                        until_ms,
                        ..Filter::default()
                    };
                    let expected: Vec<_> =
                        all.iter().filter(|event| filter.matches(event)).cloned().collect();
                    assert_eq!(list(store, live(), &filter, None, 600), expected, "{filter:?}");
                    let below: Vec<_> = expected
                        .iter()
                        .filter(|event| event.sealed.chain_seq < 300)
                        .take(3)
                        .cloned()
                        .collect();
                    assert_eq!(list(store, live(), &filter, Some(300), 3), below, "{filter:?}");
                }
            }
        }
    }
}

/// Texts that are equal as numbers or as parts of others, in all types, deep, hostile, and more of them than
/// an index takes.
fn metadata_of(n: u64) -> String {
    let many: Vec<String> = (0..40).map(|k| format!("\"k{k}\":{}", k * n)).collect();
    match n % 12 {
        0 => "null".to_owned(),
        1 => "{}".to_owned(),
        2 => format!(r#"{{"ticket_id":"OPS-{}","n":{n}}}"#, n / 12),
        3 => format!(r#"{{"ticket_id":"OPS-1","n":"{n}"}}"#),
        4 => format!(r#"{{"tags":["a","b{n}",7],"ok":true}}"#),
        5 => format!(r#"{{"in":{{"ticket_id":"OPS-1"}},"n":{n}.0}}"#),
        6 => format!(r#"{{"ticket_id":null,"tags":[["a"],{{"b":"a"}}],"n":{n}}}"#),
        7 => r#"{"t\u0000\ud800\"":"\u0000x","":"","n":-0}"#.to_owned(),
        8 => format!("{{{}}}", many.join(",")),
        9 => format!(r#"{{"ticket_id":"first","ticket_id":"OPS-1","long":"{}"}}"#, "y".repeat(3000)),
        10 => r#"{"ok":"true","tags":"a"}"#.to_owned(),
        _ => format!(r#"{{"n":{n},"ticket_id":"OPS-1","ok":false}}"#),
    }
}

pub fn members_of_metadata_match_exactly_and_in_any_combination(store: &dyn Store, world: &StillWorld) {
    for n in 0..600u64 {
        let (action, metadata) = (["user.login", "a.b"][usize::try_from(n % 2).unwrap()], metadata_of(n));
        let body = format!(r#"{{"action":"{action}","actor_id":"u{}","metadata":{metadata}}}"#, n % 5);
        append(store, live(), vec![draft(&body)]);
        world.advance(n % 5);
    }
    let all = list(store, live(), &Filter::default(), None, 600);
    let fields = |wanted: &[(&str, &str)]| -> Vec<FieldIs> {
        wanted.iter().map(|(name, value)| FieldIs::new(name, value)).collect()
    };
    let mut found = 0;
    for (round, wanted) in [
        &[("ticket_id", "OPS-1")][..],
        &[("ticket_id", "OPS-7")],
        &[("ticket_id", "first")],
        &[("ticket_id", "OPS-1"), ("ok", "false")],
        &[("ticket_id", "OPS-1"), ("ok", "true")],
        &[("ok", "true")],
        &[("ok", "true"), ("tags", "a")],
        &[("tags", "b16")],
        &[("tags", "7")],
        &[("n", "15")],
        &[("n", "17.0")],
        &[("n", "-0")],
        &[("k39", "780")],
        &[("", "")],
        &[("absent", "OPS-1")],
        &[("n", "11"), ("ticket_id", "OPS-1"), ("ok", "false")],
    ]
    .into_iter()
    .enumerate()
    {
        for (action, actor_id, from_ms, until_ms) in [
            (None, None, None, None),
            (Some("\"a.b\""), None, None, None),
            (Some("\"user.login\""), Some("\"u3\""), None, None),
            (None, None, Some(MORNING_MS + 300), Some(MORNING_MS + 900)),
            (None, Some("\"u1\""), Some(MORNING_MS + 9), None),
            (None, None, Some(MORNING_MS + 9_000_000), None),
        ] {
            let filter = Filter {
                fields: fields(wanted),
                action: action.map(str::to_owned),
                actor_id: actor_id.map(str::to_owned),
                from_ms,
                until_ms,
                ..Filter::default()
            };
            let expected: Vec<_> = all.iter().filter(|event| filter.matches(event)).cloned().collect();
            found += expected.len();
            assert_eq!(list(store, live(), &filter, None, 600), expected, "{filter:?}");
            // A round trip for each event or two: not for every filter.
            if round % 4 == 0 {
                assert_eq!(list_in_pieces(store, live(), &filter, None, 600, 500), expected, "{filter:?}");
            }
            let below: Vec<_> =
                expected.iter().filter(|event| event.sealed.chain_seq < 300).take(3).cloned().collect();
            assert_eq!(list(store, live(), &filter, Some(300), 3), below, "{filter:?}");
        }
    }
    assert!(found > 500, "{found}");
}

pub fn dates_are_inclusive_days(store: &dyn Store, world: &StillWorld) {
    let day = Date::parse("2026-11-15").unwrap();
    for now_ms in [
        day.start_ms() - 1,
        day.start_ms(),
        day.start_ms() + 1,
        day.end_ms() - 1,
        day.end_ms(),
        day.end_ms() + 1,
    ] {
        world.set(now_ms);
        append(store, live(), vec![login("a")]);
    }
    let filter = Filter { from_ms: Some(day.start_ms()), until_ms: Some(day.end_ms()), ..Filter::default() };
    let seqs: Vec<_> =
        list(store, live(), &filter, None, 10).iter().map(|event| event.sealed.chain_seq).collect();
    assert_eq!(seqs, [4, 3, 2]);
    let backwards =
        Filter { from_ms: Some(day.end_ms()), until_ms: Some(day.start_ms()), ..Filter::default() };
    assert_eq!(list(store, live(), &backwards, None, 10), []);
}

pub fn a_list_stops_at_its_bytes_and_goes_on_where_it_stopped(store: &dyn Store, _: &StillWorld) {
    for n in 0..40 {
        append(
            store,
            live(),
            vec![draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "y".repeat(n * 20)))],
        );
    }
    let whole = list(store, live(), &Filter::default(), None, 40);
    for bytes_max in [1, 500, 5000] {
        assert_eq!(list_in_pieces(store, live(), &Filter::default(), None, 40, bytes_max), whole);
    }
}

pub fn a_range_has_every_event_once_however_it_is_cut(store: &dyn Store, _: &StillWorld) {
    for n in 0..50 {
        append(store, live(), vec![login(&format!("u{n}")); 30]);
    }
    // Each piece is a round trip to the database. Over all 1,500, one by one shows no more than over 300.
    for (from, to, smallest) in [(1, 1500, 2_000), (7, 7, 1), (900, 1200, 1), (1400, 9999, 1)] {
        for bytes_max in [smallest, 10_000, usize::MAX] {
            let seqs: Vec<_> =
                range(store, live(), from, to, bytes_max).iter().map(Item::chain_seq).collect();
            assert_eq!(seqs, (from..=to.min(1500)).collect::<Vec<_>>());
        }
    }
    assert!(range(store, live(), 1501, 1600, 1000).is_empty());
}

pub fn windows_verify_against_the_event_before_them(store: &dyn Store, _: &StillWorld) {
    for _ in 0..30 {
        append(store, live(), vec![login("a"); 100]);
    }
    let valid = |first_seq, last_seq| Verdict {
        checked: last_seq + 1 - first_seq,
        first_seq,
        last_seq,
        broken: None,
    };
    assert_eq!(verify_window(store, live(), 1, 1000), valid(1, 1000));
    assert_eq!(verify_window(store, live(), 1001, 2000), valid(1001, 2000));
    assert_eq!(verify_window(store, live(), 2500, 3499), valid(2500, 3000));
    assert_eq!(verify_window(store, live(), 3000, 3000), valid(3000, 3000));
}

pub fn verifying_nothing_is_valid(store: &dyn Store, _: &StillWorld) {
    let nothing = |from| Verdict { checked: 0, first_seq: from, last_seq: from - 1, broken: None };
    assert_eq!(verify_window(store, live(), 1, 1000), nothing(1));
    append(store, live(), vec![login("a")]);
    assert_eq!(verify_window(store, live(), 2, 1001), nothing(2));
    assert_eq!(verify_window(store, live(), u64::MAX >> 1, u64::MAX), nothing(u64::MAX >> 1));
}

pub fn same_key_and_body_is_a_replay_of_the_first_answer(store: &dyn Store, _: &StillWorld) {
    let Outcome::Sealed(first) = append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(42))
    else {
        panic!()
    };
    assert_eq!(first.request_id, Some(Ulid(42)));
    for request_id in [43, 44] {
        let again = append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(request_id));
        assert_eq!(again, Outcome::Replayed(first.clone()));
    }
    assert_valid(store, live(), 1);
}

pub fn same_key_with_another_body_is_a_conflict(store: &dyn Store, _: &StillWorld) {
    append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(1));
    assert_eq!(append_once(store, live(), vec![login("a")], key("k", "other"), Ulid(2)), Outcome::Conflict);
    assert_valid(store, live(), 1);
}

pub fn a_key_is_in_flight_until_its_request_ends(store: &dyn Store, _: &StillWorld) {
    let Reserved::Fresh(reservation) = wait(store.reserve(live(), key("k", "body"))).unwrap() else {
        panic!()
    };
    for body in ["body", "other"] {
        assert!(matches!(wait(store.reserve(live(), key("k", body))).unwrap(), Reserved::InFlight));
    }
    let append =
        Append { chain: live(), drafts: vec![login("a")], idempotency: Some((reservation, Ulid(1))) };
    wait(store.append(append)).unwrap();
    assert!(matches!(wait(store.reserve(live(), key("k", "body"))).unwrap(), Reserved::Replay(_)));
}

pub fn a_reservation_that_is_dropped_frees_the_key(store: &dyn Store, _: &StillWorld) {
    let reserved = wait(store.reserve(live(), key("k", "body"))).unwrap();
    assert!(matches!(reserved, Reserved::Fresh(_)));
    drop(reserved);
    assert!(matches!(
        append_once(store, live(), vec![login("a")], key("k", "other"), Ulid(1)),
        Outcome::Sealed(_)
    ));
}

pub fn keys_belong_to_one_chain(store: &dyn Store, _: &StillWorld) {
    for chain in [live(), chain(1, 1, Mode::Test), chain(1, 2, Mode::Live), chain(2, 1, Mode::Live)] {
        assert!(matches!(
            append_once(store, chain, vec![login("a")], key("k", "body"), Ulid(1)),
            Outcome::Sealed(_)
        ));
    }
}

pub fn a_key_that_was_reserved_for_another_chain_is_refused(store: &dyn Store, _: &StillWorld) {
    let other = chain(2, 1, Mode::Live);
    for chain in [chain(1, 1, Mode::Test), chain(1, 2, Mode::Live), other] {
        let Reserved::Fresh(reservation) = wait(store.reserve(live(), key("k", "body"))).unwrap() else {
            panic!("the key is free");
        };
        let append = Append { chain, drafts: vec![login("a")], idempotency: Some((reservation, Ulid(1))) };
        let refused = wait(store.append(append));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
        assert_eq!(verify(store, chain).checked, 0);
    }
    // Neither chain has used it.
    for chain in [live(), other] {
        let once = append_once(store, chain, vec![login("a")], key("k", "body"), Ulid(2));
        assert!(matches!(once, Outcome::Sealed(_)), "{once:?}");
    }
}

pub fn a_key_is_free_again_after_24_hours(store: &dyn Store, world: &StillWorld) {
    append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(1));
    world.set(MORNING_MS + IDEMPOTENCY_RETENTION_MS - 1);
    assert!(matches!(
        append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(2)),
        Outcome::Replayed(_)
    ));
    world.set(MORNING_MS + IDEMPOTENCY_RETENTION_MS);
    assert!(matches!(
        append_once(store, live(), vec![login("b")], key("k", "other"), Ulid(3)),
        Outcome::Sealed(_)
    ));
    assert_eq!(append_once(store, live(), vec![login("a")], key("k", "body"), Ulid(4)), Outcome::Conflict);
    assert_valid(store, live(), 2);
}

pub fn a_replay_of_a_batch_has_all_its_ids(store: &dyn Store, _: &StillWorld) {
    append(store, live(), vec![login("before")]);
    let drafts: Vec<_> = (0..100).map(|n| login(&format!("u{n}"))).collect();
    let Outcome::Sealed(first) = append_once(store, live(), drafts.clone(), key("k", "batch"), Ulid(9))
    else {
        panic!()
    };
    append(store, live(), vec![login("after")]);
    assert_eq!(
        append_once(store, live(), drafts, key("k", "batch"), Ulid(10)),
        Outcome::Replayed(first.clone())
    );
    assert_eq!((first.first_seq, first.last_seq(), first.log_ids.len()), (2, 101, 100));
}

pub fn usage_counts_live_events_by_tenant_and_month(store: &dyn Store, world: &StillWorld) {
    append(store, live(), vec![login("a"); 10]);
    append(store, chain(1, 2, Mode::Live), vec![login("a"); 5]);
    append(store, chain(1, 1, Mode::Test), vec![login("a"); 3]);
    append(store, chain(2, 3, Mode::Live), vec![login("a")]);
    world.advance(40 * 86_400_000);
    append(store, live(), vec![login("a"); 7]);
    let usage = |tenant: u8, ms| wait(store.usage(TenantId(Uuid([tenant; 16])), Month::of(ms))).unwrap();
    assert_eq!(usage(1, MORNING_MS), 15);
    assert_eq!(usage(1, MORNING_MS + 40 * 86_400_000), 7);
    assert_eq!(usage(2, MORNING_MS), 1);
    assert_eq!(usage(3, MORNING_MS), 0);
}

pub fn heads_name_every_chain_with_events(store: &dyn Store, _: &StillWorld) {
    assert_eq!(wait(store.heads()).unwrap(), []);
    let chains = [chain(1, 1, Mode::Live), chain(1, 1, Mode::Test), chain(2, 2, Mode::Live)];
    let mut expected = Vec::new();
    for chain in chains {
        let receipt = append(store, chain, vec![login("a"), login("b")]);
        let head = get(store, chain, receipt.log_ids[1]).unwrap().head();
        assert_eq!(wait(store.head(chain)).unwrap().durable, head);
        assert_eq!(wait(store.head(chain)).unwrap().recorded, head);
        expected.push((chain, head));
    }
    assert_eq!(wait(store.heads()).unwrap(), expected);
}

/// Events sealed by another store.
fn sealed_elsewhere(count: usize) -> Vec<sealog_core::event::StoredEvent> {
    let other = ReferenceStore::new(StillWorld::new());
    for n in 0..count {
        append(&other, live(), vec![login(&format!("u{n}"))]);
    }
    let mut events = list(&other, live(), &Filter::default(), None, count);
    events.reverse();
    events
}

pub fn import_takes_a_chain_as_it_is(store: &dyn Store, world: &StillWorld) {
    world.advance(1_000_000);
    let events = sealed_elsewhere(150);
    let head = wait(store.import(live(), events[..100].to_vec(), None)).unwrap();
    assert_eq!(head, events[99].head());
    wait(store.import(live(), events[100..].to_vec(), None)).unwrap();
    let mut stored = list(store, live(), &Filter::default(), None, 150);
    stored.reverse();
    assert_eq!(stored, events);
    append(store, live(), vec![login("next")]);
    assert_valid(store, live(), 151);
    assert_eq!(wait(store.usage(live().tenant_id, Month::of(MORNING_MS))).unwrap(), 151);
}

pub fn import_refuses_what_does_not_continue_the_chain(store: &dyn Store, _: &StillWorld) {
    let events = sealed_elsewhere(10);
    let refused = |events: Vec<_>| {
        assert!(matches!(wait(store.import(live(), events, None)), Err(StoreError::Refused(_))))
    };
    refused(events[1..].to_vec());
    refused(vec![]);
    let mut changed = events.clone();
    changed[5].text = login("someone else").text;
    refused(changed);
    let mut foreign = events.clone();
    foreign[3].project_id = chain(1, 9, Mode::Live).project_id;
    refused(foreign);
    // The hash does not cover it, so only the store can keep it from becoming another one.
    let mut later = events.clone();
    later[9].schema_version = SCHEMA_VERSION + 1;
    refused(later);
    assert_eq!(verify(store, live()).checked, 0);
    wait(store.import(live(), events.clone(), None)).unwrap();
    refused(events);
    assert_valid(store, live(), 10);
}

/// A chain with requests of 1, 100, 1 and 3 events of which the second and the last have a key; their keys.
fn fill_with_keys(store: &dyn Store, world: &StillWorld) -> [KeptKey; 2] {
    append(store, live(), vec![login("before")]);
    append_once(store, live(), vec![login("a"); 100], key("first", "body"), Ulid(7));
    world.advance(1000);
    append(store, live(), vec![login("between")]);
    append_once(store, live(), vec![login("b"); 3], key("second", "body"), Ulid(8));
    append_once(store, chain(1, 2, Mode::Live), vec![login("c")], key("elsewhere", "body"), Ulid(9));
    let kept = |name, request_id, received_ms, first_seq, events| KeptKey {
        key: key(name, "body"),
        request_id: Ulid(request_id),
        received_ms,
        first_seq,
        events,
    };
    [kept("first", 7, MORNING_MS, 2, 100), kept("second", 8, MORNING_MS + 1000, 103, 3)]
}

pub fn keys_are_listed_in_the_order_of_their_events(store: &dyn Store, world: &StillWorld) {
    let [first, second] = fill_with_keys(store, world);
    let keys = |from, received_after_ms, limit| {
        wait(store.kept_keys(live(), WantedKeys { from, received_after_ms, limit })).unwrap()
    };
    assert_eq!(keys(1, 0, 10), [first, second]);
    assert_eq!(keys(1, 0, 1), [first]);
    assert_eq!(keys(2, 0, 10), [first, second]);
    // The rest of a request is not a request.
    assert_eq!(keys(3, 0, 10), [second]);
    assert_eq!(keys(104, 0, 10), []);
    assert_eq!(keys(1, MORNING_MS - 1, 10), [first, second]);
    assert_eq!(keys(1, MORNING_MS, 10), [second]);
    assert_eq!(keys(1, MORNING_MS + 1000, 10), []);
}

pub fn an_imported_key_is_replayed_as_where_it_was_used_and_for_as_long(
    store: &dyn Store,
    world: &StillWorld,
) {
    let elsewhere = StillWorld::new();
    let other = ReferenceStore::new(Arc::clone(&elsewhere) as _);
    let [first, second] = fill_with_keys(&other, &elsewhere);
    let mut events = list(&other, live(), &Filter::default(), None, 200);
    events.reverse();
    let first = KeptKey { received_ms: MORNING_MS - 5000, ..first };
    for (events, key) in [
        (&events[..1], None),
        (&events[1..101], Some(first)),
        (&events[101..102], None),
        (&events[102..], Some(second)),
    ] {
        wait(store.import(live(), events.to_vec(), key)).unwrap();
    }
    let wanted = WantedKeys { from: 1, received_after_ms: 0, limit: 10 };
    assert_eq!(wait(store.kept_keys(live(), wanted)).unwrap(), [first, second]);
    let again = |body| append_once(store, live(), vec![login("a"); 100], key("first", body), Ulid(99));
    let replay = Outcome::Replayed(Receipt {
        request_id: Some(Ulid(7)),
        log_ids: events[1..101].iter().map(|event| event.sealed.log_id).collect(),
        first_seq: 2,
        hash: events[100].sealed.hash,
    });
    assert_eq!(again("body"), replay);
    assert_eq!(again("other"), Outcome::Conflict);
    world.set(MORNING_MS - 5000 + IDEMPOTENCY_RETENTION_MS - 1);
    assert_eq!(again("body"), replay);
    world.advance(1);
    assert!(matches!(again("body"), Outcome::Sealed(_)));
    assert_valid(store, live(), 205);
}

/// Whether the import is seen by an append that was sealed with it is the store's affair. It fails neither.
pub fn an_append_beside_an_import_with_its_key_fails_nobody(store: &dyn Store, world: &StillWorld) {
    let events = sealed_elsewhere(10);
    wait(store.import(live(), events[..3].to_vec(), None)).unwrap();
    let imported = |name: &str, received_ms, first_seq| KeptKey {
        key: key(name, "body"),
        request_id: Ulid(1),
        received_ms,
        first_seq,
        events: 3,
    };
    let reserve = |name: &str, body: &str| match wait(store.reserve(live(), key(name, body))).unwrap() {
        Reserved::Fresh(reservation) => (reservation, Ulid(2)),
        other => panic!("the key is free: {other:?}"),
    };
    let append = |idempotency| {
        store.append(Append { chain: live(), drafts: vec![login("a")], idempotency: Some(idempotency) })
    };
    // All of them are under way at once.
    let keys = [("same", "body"), ("other", "other body"), ("old", "body")];
    let keys = keys.map(|(name, body)| reserve(name, body));
    let imports = [
        store.import(live(), events[3..6].to_vec(), Some(imported("same", MORNING_MS, 4))),
        store.import(live(), events[6..9].to_vec(), Some(imported("other", MORNING_MS, 7))),
    ];
    // Its 24 hours are over: it stands for nothing any more.
    let expired_ms = world.now_ms() - IDEMPOTENCY_RETENTION_MS;
    let old = KeptKey { events: 1, ..imported("old", expired_ms, 10) };
    let old = store.import(live(), events[9..].to_vec(), Some(old));
    let appends = keys.map(append);
    for import in imports {
        wait(import).unwrap();
    }
    wait(old).unwrap();
    let appended = appends.map(|append| wait(append).unwrap());
    let replay = Receipt {
        request_id: Some(Ulid(1)),
        log_ids: events[3..6].iter().map(|event| event.sealed.log_id).collect(),
        first_seq: 4,
        hash: events[5].sealed.hash,
    };
    let is_sealed = |appended: &Appended| matches!(appended, Appended::Sealed(_));
    assert!(appended[0] == Appended::Replayed(replay) || is_sealed(&appended[0]), "{appended:?}");
    assert!(appended[1] == Appended::Conflict || is_sealed(&appended[1]), "{appended:?}");
    assert!(is_sealed(&appended[2]), "{appended:?}");
    let sealed = appended.iter().filter(|appended| is_sealed(appended)).count() as u64;
    assert_valid(store, live(), 10 + sealed);
}

pub fn import_refuses_a_key_of_other_events(store: &dyn Store, _: &StillWorld) {
    let events = sealed_elsewhere(10);
    let kept = |first_seq, events| KeptKey {
        key: key("k", "body"),
        request_id: Ulid(1),
        received_ms: MORNING_MS,
        first_seq,
        events,
    };
    for key in [kept(1, 9), kept(1, 11), kept(2, 10), kept(0, 10)] {
        let refused = wait(store.import(live(), events.clone(), Some(key)));
        assert!(matches!(refused, Err(StoreError::Refused(_))), "{key:?}");
    }
    assert_eq!(verify(store, live()).checked, 0);
    wait(store.import(live(), events, Some(kept(1, 10)))).unwrap();
}

pub fn large_events_come_back_whole(store: &dyn Store, _: &StillWorld) {
    let mut sent = Vec::new();
    for size in [10, 1000, 1024, 4096, 9000] {
        let draft = draft(&format!(r#"{{"action":"a.b","metadata":{{"x":"{}"}}}}"#, "z".repeat(size)));
        append(store, live(), vec![draft.clone()]);
        sent.push(draft.text);
    }
    let mut stored: Vec<_> =
        list(store, live(), &Filter::default(), None, 10).into_iter().map(|event| event.text).collect();
    stored.reverse();
    assert_eq!(stored, sent);
    assert_valid(store, live(), 5);
}

pub fn concurrent_appends_form_one_line(store: &dyn Store, _: &StillWorld) {
    let chains = [live(), chain(1, 2, Mode::Live)];
    let receipts: Vec<_> = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let mut receipts = Vec::new();
            for n in 0..40 {
                let chain = chains[(thread + n) % 2];
                let receipt = append(store, chain, vec![login(&format!("t{thread}n{n}")); n % 5 + 1]);
                // Read your own write, at once.
                assert!(get(store, chain, *receipt.log_ids.last().unwrap()).is_some());
                receipts.push((chain, receipt));
            }
            receipts
        };
        let threads: Vec<_> = (0..8).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for chain in chains {
        let mut seqs = HashSet::new();
        for (_, receipt) in receipts.iter().filter(|(of, _)| *of == chain) {
            for (seq, log_id) in (receipt.first_seq..).zip(&receipt.log_ids) {
                assert!(seqs.insert(seq), "seq {seq} was given twice");
                assert_eq!(get(store, chain, *log_id).unwrap().sealed.chain_seq, seq);
            }
        }
        assert_valid(store, chain, seqs.len() as u64);
    }
}
