//! Rules of the chain and of canonical text, on random chains and random JSON. The names of the tests are the
//! rules.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;
use sealog_core::audit::{self, NotedHead, Outcome};
use sealog_core::canonical::{self, EventText, Preimage};
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{self, Annotations, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, Random80, TenantId, Ulid, Uuid};
use sealog_core::json::{self, Members, Scanner, Sink, Watched};
use sealog_core::verify::{self, Before, Broken, Check, Item, Reason, Record, Stretch, Verdict};
use serde::de::IgnoredAny;
use serde_json::Value;

/// The seed is fixed: the same cases in every run, and no file of regressions.
fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(2026), failure_persistence: None, ..Default::default() }
}

// ---- Random JSON ----------------------------------------------------------------------------------------

fn space() -> impl Strategy<Value = String> {
    prop_oneof![4 => Just(String::new()), 1 => "[ \t\r\n]{1,3}"]
}

fn number_text() -> impl Strategy<Value = String> {
    prop_oneof!["-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,8})?([eE][+-]?[0-9]{1,2})?", "-?(0|[1-9][0-9]{0,3})"]
}

/// One piece of a string: a character as itself, or one of the ways to escape it. `lone` lets half of a
/// surrogate pair through.
fn string_piece(lone: bool) -> impl Strategy<Value = String> {
    let escape = move |unit: u16, upper: bool| {
        let unit = if lone || !(0xD800..=0xDFFF).contains(&unit) { unit } else { unit & 0x07FF };
        if upper { format!("\\u{unit:04X}") } else { format!("\\u{unit:04x}") }
    };
    prop_oneof![
        6 => "[ !#-\\[\\]-~]{1,6}",
        2 => any::<char>().prop_filter("has to be escaped", |c| *c >= ' ' && *c != '"' && *c != '\\').prop_map(String::from),
        2 => select(&[r#"\""#, r"\\", r"\/", r"\b", r"\f", r"\n", r"\r", r"\t"][..]).prop_map(String::from),
        2 => (any::<u16>(), any::<bool>()).prop_map(move |(unit, upper)| escape(unit, upper)),
        1 => (0u16..0x80, any::<bool>()).prop_map(move |(unit, upper)| escape(unit, upper)),
        1 => (0xD800u16..=0xDFFF, any::<bool>()).prop_map(move |(unit, upper)| escape(unit, upper)),
        1 => (0x10000u32..=0x10FFFF).prop_map(|scalar| {
            let high = 0xD800 + ((scalar - 0x10000) >> 10);
            format!("\\u{high:04x}\\u{:04X}", 0xDC00 + (scalar & 0x3FF))
        }),
    ]
}

fn string_text(lone: bool) -> impl Strategy<Value = String> {
    vec(string_piece(lone), 0..5).prop_map(|pieces| format!("\"{}\"", pieces.concat()))
}

fn object_text(
    key: impl Strategy<Value = String>,
    value: impl Strategy<Value = String>,
) -> impl Strategy<Value = String> {
    vec((key, value, space(), space()), 0..5).prop_map(|members| {
        let members = members.into_iter().map(|(key, value, a, b)| format!("{a}{key}{b}:{b}{value}{a}"));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    })
}

/// Any JSON value in any spelling.
fn json_text(lone: bool) -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        number_text(),
        string_text(lone),
        select(&["true", "false", "null"][..]).prop_map(String::from)
    ];
    scalar.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            vec((inner.clone(), space(), space()), 0..5).prop_map(|items| {
                let items = items.into_iter().map(|(item, a, b)| format!("{a}{item}{b}"));
                format!("[{}]", items.collect::<Vec<_>>().join(","))
            }),
            object_text(string_text(lone), inner),
        ]
    })
}

/// Names that a scanner watches for, and keys of which some are such names, however they are spelled.
static WATCHED: [&str; 3] = ["ab", "abc", "severity"];
const KEYS: [&str; 8] = ["ab", "abc", "severity", "ba", "a", "é", r"\u0061b", r"a\n"];

/// A text with a few of its bytes replaced, removed or added, then made UTF-8 again.
fn mutated(text: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    let byte = prop_oneof![
        4 => select(b"{}[]\",:\\u0123456789abcdefDtrn.eE+-/ \n\t".to_vec()),
        1 => any::<u8>(),
    ];
    (text, vec((any::<Index>(), byte, 0..3u8), 1..5)).prop_map(|(text, changes)| {
        let mut bytes = text.into_bytes();
        for (at, byte, what) in changes {
            let at = at.index(bytes.len() + 1);
            match what {
                0 if at < bytes.len() => bytes[at] = byte,
                1 if at < bytes.len() => drop(bytes.remove(at)),
                _ => bytes.insert(at, byte),
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Counts what the scanner writes.
#[derive(Default)]
struct Counter {
    bytes: usize,
    pieces: usize,
}

impl Sink for Counter {
    fn put(&mut self, piece: &[u8]) {
        self.bytes += piece.len();
        self.pieces += 1;
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn canonical_text_is_its_own_canonical_text(text in json_text(true)) {
        let once = json::canonical(&text).unwrap();
        prop_assert_eq!(json::canonical(&once).unwrap(), once);
    }

    #[test]
    fn canonical_text_means_what_the_text_meant(text in json_text(false)) {
        let canonical = json::canonical(&text).unwrap();
        let meant: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(serde_json::from_str::<Value>(&canonical).unwrap(), meant);
    }

    #[test]
    fn white_space_and_escapes_make_no_difference(text in json_text(false)) {
        // Numbers apart, which keep their literal, a serialiser's compact text differs from ours in the order
        // of keys at most. Within one string there is neither, so the two must be the same byte for byte.
        let string = serde_json::to_string(&Value::String(text)).unwrap();
        prop_assert_eq!(json::canonical(&format!(" {string}\n")).unwrap(), string);
    }

    #[test]
    fn valid_json_is_accepted_and_nothing_else(text in mutated(json_text(true))) {
        // `IgnoredAny` checks the grammar alone: no range of numbers, no halves of surrogate pairs.
        let is_json = serde_json::from_str::<IgnoredAny>(&text).is_ok();
        prop_assert_eq!(json::canonical(&text).is_ok(), is_json, "{}", text);
    }

    #[test]
    fn no_text_makes_a_reader_panic(text in prop_oneof![mutated(json_text(true)), any::<String>()]) {
        let _ = json::canonical(&text);
        let _ = json::decode(&text);
        let _ = Members::of(&text).count();
        let _ = event::parse_single(text.as_bytes());
        let _ = event::parse_batch(text.as_bytes());
        let _ = event::parse_batch(format!("{{\"events\":[{text}]}}").as_bytes());
        let _ = StoredEvent::parse_json(&text);
        let _ = audit::parse_entry(&text);
        let _ = NotedHead::parse(&text);
        let _ = EventText::from_stored(format!("\"action\":{text},\"actor_id\":null,\"resource\":null,\"metadata\":null}}"));
    }

    #[test]
    fn members_that_are_watched_for_are_found_where_they_stand(
        members in vec((space(), select(&KEYS[..]), space(), json_text(true)), 0..6),
    ) {
        let written: Vec<String> =
            members.iter().map(|(a, key, b, value)| format!("{a}\"{key}\"{b}:{a}{value}{b}")).collect();
        let text = format!("{{{}}}", written.join(","));
        // Those of the value before do not count.
        let both = format!("{{\"ab\":{{\"ab\":1}}}} {text}");
        let mut scanner = Scanner::watching(&both, &WATCHED);
        let mut out = b"what was there before".to_vec();
        scanner.value(&mut out).unwrap();
        scanner.value(&mut out).unwrap();
        let object = json::canonical(&text).unwrap();
        match scanner.watched() {
            Watched::Unknown => prop_assert!(members.iter().any(|(_, key, ..)| key.contains('\\'))),
            Watched::Found(found) => {
                let names = found.len();
                let found: BTreeMap<_, _> =
                    found.iter().map(|(number, range)| (WATCHED[*number], &out[range.clone()])).collect();
                prop_assert_eq!(found.len(), names);
                let there: BTreeMap<_, _> = Members::of(&object)
                    .map(|(key, value)| (&key[1..key.len() - 1], value.as_bytes()))
                    .filter(|(key, _)| WATCHED.contains(key))
                    .collect();
                prop_assert_eq!(found, there);
            }
        }
    }

    #[test]
    fn each_byte_of_the_text_is_written_at_most_once(text in json_text(true)) {
        let mut counter = Counter::default();
        Scanner::new(&text).value(&mut counter).unwrap();
        prop_assert!(counter.bytes <= text.len());
        // Pieces may be empty, at two ends of each escape and no oftener.
        prop_assert!(counter.pieces <= 2 * text.len());
        prop_assert_eq!(counter.bytes, json::canonical(&text).unwrap().len());
    }

    #[test]
    fn members_put_together_again_are_the_object(text in object_text(string_text(true), json_text(true))) {
        let object = json::canonical(&text).unwrap();
        let members: Vec<_> = Members::of(&object).map(|(key, value)| format!("{key}:{value}")).collect();
        prop_assert_eq!(format!("{{{}}}", members.join(",")), object);
    }

    #[test]
    fn decoding_undoes_putting(value in any::<String>()) {
        let mut text = Vec::new();
        json::put_string(&value, &mut text);
        let text = String::from_utf8(text).unwrap();
        prop_assert_eq!(json::decode(&text), Some(value.clone()));
        prop_assert_eq!(json::canonical(&text).unwrap(), text.clone());
        prop_assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }
}

// ---- Random chains --------------------------------------------------------------------------------------

const CHAIN: ChainId = ChainId {
    tenant_id: TenantId(Uuid([0x11; 16])),
    project_id: ProjectId(Uuid([0x22; 16])),
    mode: Mode::Live,
};

/// A request body that is accepted.
fn body() -> impl Strategy<Value = String> {
    let string = || string_text(false).prop_filter("no NUL", |text| !text.contains("\\u0000"));
    let field = move || prop_oneof![1 => Just("null".to_owned()), 3 => string()];
    let metadata = prop_oneof![
        1 => Just("null".to_owned()),
        4 => object_text(string_text(true), json_text(true)),
    ];
    (string(), field(), field(), metadata).prop_map(|(action, actor_id, resource, metadata)| {
        let action = action.replacen('"', "\"a", 1);
        format!(
            "{{\"action\":{action},\"actor_id\":{actor_id},\"resource\":{resource},\"metadata\":{metadata}}}"
        )
    })
}

/// A chain of so many events. The clock steps forwards and backwards, and some random parts are all ones, so
/// that counting up carries.
fn chain(length: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Vec<StoredEvent>> {
    let random = prop_oneof![3 => any::<[u8; 10]>(), 1 => Just([0xFF; 10])];
    let step_ms = prop_oneof![2 => 0..5000i64, 1 => -5000..5000i64, 1 => Just(0i64)];
    vec((body(), step_ms, random), length).prop_map(|drafts| {
        let (mut now_ms, mut head, mut events) = (1_700_000_000_000u64, Head::EMPTY, Vec::new());
        for (body, step_ms, random) in drafts {
            now_ms = now_ms.saturating_add_signed(step_ms);
            let draft = event::parse_single(body.as_bytes()).unwrap().unwrap();
            let sealed = head.seal(CHAIN.tenant_id, &draft.text, now_ms, Random80(random));
            head = sealed.head();
            events.push(StoredEvent::new(CHAIN, sealed, draft));
        }
        events
    })
}

fn head_of(events: &[StoredEvent]) -> Head {
    events.last().map_or(Head::EMPTY, StoredEvent::head)
}

/// Checks everything from `chain_seq` 1 to the recorded head.
fn check_all(events: &[StoredEvent], recorded: &Head) -> Verdict {
    verify::check(Before::NOTHING, 1, events, recorded)
}

fn broken(checked: u64, first_seq: u64, at: u64, hash: Hash, reason: Reason) -> Verdict {
    Verdict { checked, first_seq, last_seq: at, broken: Some(Broken { at, hash, reason }) }
}

/// `chain_seq` of the event at an index of a whole chain.
fn seq(index: usize) -> u64 {
    index as u64 + 1
}

/// Seals the event anew behind another one, as a forger who knows the rule would.
fn reseal(event: &StoredEvent, before: Head) -> StoredEvent {
    let log_id = Ulid(before.log_id.0 + 1);
    let hash =
        canonical::hash(before.hash, log_id, event.tenant_id, event.text.as_str(), log_id.timestamp_ms());
    StoredEvent {
        sealed: Sealed { chain_seq: before.chain_seq + 1, log_id, prev_hash: before.hash, hash },
        timestamp_ms: log_id.timestamp_ms(),
        ..event.clone()
    }
}

#[derive(Clone, Copy, Debug)]
enum Field {
    Action,
    ActorId,
    Resource,
    Metadata,
    Timestamp,
    TenantId,
    LogId,
    Hash,
    PrevHash,
}

const FIELDS: [Field; 9] = [
    Field::Action,
    Field::ActorId,
    Field::Resource,
    Field::Metadata,
    Field::Timestamp,
    Field::TenantId,
    Field::LogId,
    Field::Hash,
    Field::PrevHash,
];

/// Changes the one field and nothing else; `bit` chooses how.
fn change(event: &mut StoredEvent, field: Field, bit: u8) {
    fn flip(bytes: &mut [u8], bit: u8) {
        let at = usize::from(bit) % (bytes.len() * 8);
        bytes[at / 8] ^= 1 << (at % 8);
    }
    // Absent becomes present; present becomes absent or another value.
    let other = |text: Option<&str>, filled: &str| match text {
        None => Some(filled.to_owned()),
        Some(_) if bit.is_multiple_of(2) => None,
        Some(text) if text == filled => Some(filled.replacen('x', "y", 1)),
        Some(_) => Some(filled.to_owned()),
    };
    let text = event.text.clone();
    let mut fields = text.fields();
    let (action, actor_id, resource, metadata);
    match field {
        Field::Action => {
            action = fields.action.replacen('"', "\"x", 1);
            fields.action = &action;
        }
        Field::ActorId => {
            actor_id = other(fields.actor_id, "\"x\"");
            fields.actor_id = actor_id.as_deref();
        }
        Field::Resource => {
            resource = other(fields.resource, "\"x\"");
            fields.resource = resource.as_deref();
        }
        Field::Metadata => {
            metadata = other(fields.metadata, "{\"x\":1}");
            fields.metadata = metadata.as_deref();
        }
        Field::Timestamp => event.timestamp_ms ^= 1 << (bit % 40),
        Field::TenantId => flip(&mut event.tenant_id.0.0, bit),
        Field::LogId => event.sealed.log_id.0 ^= 1 << (bit % 128),
        Field::Hash => flip(&mut event.sealed.hash.0, bit),
        Field::PrevHash => flip(&mut event.sealed.prev_hash.0, bit),
    }
    event.text = EventText::new(fields);
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_sealed_chain_is_valid_whatever_the_clock_did(events in chain(0..10)) {
        let head = head_of(&events);
        let valid = Verdict { checked: head.chain_seq, first_seq: 1, last_seq: head.chain_seq, broken: None };
        prop_assert_eq!(check_all(&events, &head), valid);
        for pair in events.windows(2) {
            prop_assert!(pair[0].sealed.log_id < pair[1].sealed.log_id);
            prop_assert!(pair[0].timestamp_ms <= pair[1].timestamp_ms);
        }
    }

    #[test]
    fn an_event_that_is_written_reads_back_the_same(events in chain(1..6)) {
        for event in events {
            let mut json = Vec::new();
            event.put_json(&mut json);
            let json = String::from_utf8(json).unwrap();
            prop_assert_eq!(json::canonical(&json).unwrap(), json.clone());
            prop_assert_eq!(StoredEvent::parse_json(&json), Ok(event));
        }
    }

    #[test]
    fn a_changed_field_is_found_at_its_own_event(
        mut events in chain(1..8), at in any::<Index>(), field in select(&FIELDS[..]), bit in any::<u8>()
    ) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        let original = events[at].clone();
        change(&mut events[at], field, bit);
        prop_assert_ne!(&events[at], &original);
        let reason = if matches!(field, Field::PrevHash) { Reason::Link } else { Reason::Hash };
        prop_assert_eq!(check_all(&events, &head), broken(seq(at), 1, seq(at), events[at].sealed.hash, reason));
    }

    #[test]
    fn stretches_that_are_checked_side_by_side_give_the_same_verdict(
        mut events in chain(1..12), changes in vec((any::<Index>(), select(&FIELDS[..]), any::<u8>()), 0..2),
        removed in proptest::option::weighted(0.3, any::<Index>()), damaged in proptest::option::weighted(0.3, any::<Index>()),
        cuts in any::<u16>(), cut_short in any::<bool>(),
    ) {
        let head = head_of(&events);
        for (at, field, bit) in changes {
            let at = at.index(events.len());
            change(&mut events[at], field, bit);
        }
        let damaged = damaged.map(|at| events[at.index(events.len())].sealed.chain_seq);
        if let Some(at) = removed {
            events.remove(at.index(events.len()));
        }
        let head = if cut_short { head_of(&events) } else { head };
        let last_seq = head.chain_seq.max(events.last().map_or(0, |event| event.sealed.chain_seq));
        let items = events.iter().map(|event| match damaged {
            Some(chain_seq) if event.sealed.chain_seq == chain_seq => Item::Damaged { chain_seq },
            _ => Item::Event(Box::new(event.clone())),
        });
        let mut one_by_one = Check::new(1, last_seq, Before::NOTHING);
        let mut side_by_side = Check::new(1, last_seq, Before::NOTHING);
        let (mut open, mut preimage): (Option<Stretch>, _) = (None, Preimage::default());
        for (at, item) in items.enumerate() {
            one_by_one.item(&item);
            let record = match &item {
                Item::Event(event) => Some(Record::from(&**event)),
                Item::Damaged { .. } => None,
            };
            let cut = cuts & 1 << at != 0;
            if !cut && let (Some(stretch), Some(record)) = (&mut open, &record) && stretch.extend(record, &mut preimage) {
                continue;
            }
            if let Some(stretch) = open.take() {
                side_by_side.stretch(&stretch);
            }
            open = record.as_ref().and_then(|record| Stretch::begin(record, &mut preimage));
            if open.is_none() {
                side_by_side.item(&item);
            }
        }
        if let Some(stretch) = open {
            side_by_side.stretch(&stretch);
        }
        prop_assert_eq!(side_by_side.wants_more(), one_by_one.wants_more());
        prop_assert_eq!(side_by_side.finish(&head), one_by_one.finish(&head));
    }

    #[test]
    fn fields_outside_the_hash_may_change(mut events in chain(1..6), at in any::<Index>(), text in any::<String>()) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        events[at].annotations = Annotations {
            category: Some(text.clone().into()), city: Some(text.into()), ..Annotations::default()
        };
        prop_assert!(check_all(&events, &head).valid());
    }

    #[test]
    fn a_rewritten_event_breaks_the_link_of_the_next_and_the_last_one_the_head(
        mut events in chain(1..8), at in any::<Index>(), field in select(&FIELDS[..4]), bit in any::<u8>()
    ) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        change(&mut events[at], field, bit);
        let event = &mut events[at];
        event.sealed.hash = canonical::hash(
            event.sealed.prev_hash, event.sealed.log_id, event.tenant_id, event.text.as_str(), event.timestamp_ms,
        );
        let (found_at, reason) = match events.get(at + 1) {
            Some(_) => (at + 1, Reason::Link),
            None => (at, Reason::Head),
        };
        let expected = broken(seq(found_at), 1, seq(found_at), events[found_at].sealed.hash, reason);
        prop_assert_eq!(check_all(&events, &head), expected);
    }

    #[test]
    fn a_chain_that_is_rewritten_to_its_end_is_found_by_its_head(mut events in chain(1..8), at in any::<Index>()) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        change(&mut events[at], Field::Action, 0);
        for index in at..events.len() {
            events[index] = reseal(&events[index], head_of(&events[..index]));
        }
        let now = head_of(&events);
        prop_assert!(check_all(&events, &now).valid(), "nothing inside it can tell");
        prop_assert_eq!(
            check_all(&events, &head),
            broken(head.chain_seq, 1, head.chain_seq, now.hash, Reason::Head)
        );
    }

    #[test]
    fn a_dropped_event_is_found_at_the_next_and_a_dropped_last_one_at_its_own_place(
        mut events in chain(1..8), at in any::<Index>()
    ) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        events.remove(at);
        let expected = match events.get(at) {
            Some(next) => broken(seq(at), 1, seq(at) + 1, next.sealed.hash, Reason::Gap),
            None => broken(head.chain_seq - 1, 1, head.chain_seq, head.hash, Reason::Tail),
        };
        prop_assert_eq!(check_all(&events, &head), expected);
    }

    #[test]
    fn numbering_anew_behind_a_dropped_event_breaks_the_link(mut events in chain(2..8), at in any::<Index>()) {
        let (head, at) = (head_of(&events), at.index(events.len() - 1));
        events.remove(at);
        for event in &mut events[at..] {
            event.sealed.chain_seq -= 1;
        }
        prop_assert_eq!(
            check_all(&events, &head),
            broken(seq(at), 1, seq(at), events[at].sealed.hash, Reason::Link)
        );
    }

    #[test]
    fn two_swapped_events_break_at_the_first_of_the_two_places(
        mut events in chain(2..8), low in any::<Index>(), high in any::<Index>()
    ) {
        let (head, low) = (head_of(&events), low.index(events.len() - 1));
        let high = low + 1 + high.index(events.len() - 1 - low);
        events.swap(low, high);
        prop_assert_eq!(
            check_all(&events, &head),
            broken(seq(low), 1, seq(high), events[low].sealed.hash, Reason::Gap)
        );
    }

    #[test]
    fn two_events_that_swap_their_numbers_too_break_the_link(
        mut events in chain(2..8), low in any::<Index>(), high in any::<Index>()
    ) {
        let (head, low) = (head_of(&events), low.index(events.len() - 1));
        let high = low + 1 + high.index(events.len() - 1 - low);
        events.swap(low, high);
        events[low].sealed.chain_seq = seq(low);
        events[high].sealed.chain_seq = seq(high);
        prop_assert_eq!(
            check_all(&events, &head),
            broken(seq(low), 1, seq(low), events[low].sealed.hash, Reason::Link)
        );
    }

    #[test]
    fn a_duplicated_event_is_found_at_its_second_copy(mut events in chain(2..8), at in any::<Index>()) {
        // Behind the last one nothing is looked for: the recorded head says that the chain ends there.
        let (head, at) = (head_of(&events), at.index(events.len() - 1));
        events.insert(at, events[at].clone());
        prop_assert_eq!(
            check_all(&events, &head),
            broken(seq(at) + 1, 1, seq(at), events[at].sealed.hash, Reason::Gap)
        );
    }

    #[test]
    fn an_inserted_event_is_found_at_the_one_it_was_put_before(
        mut events in chain(1..8), forged in chain(1..=1), at in any::<Index>()
    ) {
        let (head, at) = (head_of(&events), at.index(events.len()));
        let forged = reseal(&forged[0], head_of(&events[..at]));
        events.insert(at, forged);
        let expected = match events.len() - 1 {
            last if at + 1 < last => broken(seq(at) + 1, 1, seq(at), events[at + 1].sealed.hash, Reason::Gap),
            // In the place of the head, where the check ends, it has another hash than the recorded one.
            _ => broken(seq(at), 1, seq(at), events[at].sealed.hash, Reason::Head),
        };
        prop_assert_eq!(check_all(&events, &head), expected);
    }

    #[test]
    fn numbering_anew_behind_an_inserted_event_breaks_the_link(
        mut events in chain(2..8), forged in chain(1..=1), at in any::<Index>()
    ) {
        let (head, at) = (head_of(&events), at.index(events.len() - 1));
        for event in &mut events[at..] {
            event.sealed.chain_seq += 1;
        }
        let forged = reseal(&forged[0], head_of(&events[..at]));
        events.insert(at, forged);
        let victim = events[at + 1].sealed.hash;
        prop_assert_eq!(check_all(&events, &head), broken(seq(at) + 1, 1, seq(at) + 1, victim, Reason::Link));
    }

    #[test]
    fn a_cut_tail_is_found_at_the_first_missing_event_and_only_by_its_head(
        mut events in chain(1..8), keep in any::<Index>()
    ) {
        let (head, keep) = (head_of(&events), keep.index(events.len()));
        events.truncate(keep);
        let kept = keep as u64;
        prop_assert_eq!(check_all(&events, &head), broken(kept, 1, kept + 1, head.hash, Reason::Tail));
        let mut unaware = Check::new(1, u64::MAX, Before::NOTHING);
        events.iter().for_each(|event| unaware.event(event));
        prop_assert_eq!(
            unaware.finish_unbounded(),
            Verdict { checked: kept, first_seq: 1, last_seq: kept, broken: None }
        );
    }

    #[test]
    fn ids_that_do_not_increase_break_the_order_even_when_every_hash_is_right(
        mut events in chain(2..8), at in any::<Index>(), back in 0..1000u128
    ) {
        let at = 1 + at.index(events.len() - 1);
        let before = events[at - 1].sealed.log_id;
        // Sealed by the rule, but with an id at or below the one before.
        let event = &mut events[at];
        event.sealed.log_id = Ulid(before.0 - back);
        event.timestamp_ms = event.sealed.log_id.timestamp_ms();
        event.sealed.hash = canonical::hash(
            event.sealed.prev_hash, event.sealed.log_id, event.tenant_id, event.text.as_str(), event.timestamp_ms,
        );
        let (head, expected) = (head_of(&events), broken(seq(at), 1, seq(at), events[at].sealed.hash, Reason::Order));
        prop_assert_eq!(check_all(&events, &head), expected);
    }

    #[test]
    fn a_timestamp_that_is_not_the_ids_breaks_the_order_even_when_the_hash_is_right(
        mut events in chain(1..8), at in any::<Index>(), bit in 0..40u32
    ) {
        let at = at.index(events.len());
        let event = &mut events[at];
        event.timestamp_ms ^= 1 << bit;
        event.sealed.hash = canonical::hash(
            event.sealed.prev_hash, event.sealed.log_id, event.tenant_id, event.text.as_str(), event.timestamp_ms,
        );
        let (head, expected) = (head_of(&events), broken(seq(at), 1, seq(at), events[at].sealed.hash, Reason::Order));
        prop_assert_eq!(check_all(&events, &head), expected);
    }
}

// ---- Windows and damage, as a server checks them --------------------------------------------------------

/// Checks `first..=last` of what a store holds, looking past the window while the check wants more.
fn check_window(items: &[Item], before: Before, first: u64, last: u64, recorded: &Head) -> Verdict {
    let mut check = Check::new(first, last, before);
    for item in items.iter().filter(|item| item.chain_seq() >= first) {
        if !check.wants_more() {
            break;
        }
        check.item(item);
    }
    check.finish(recorded)
}

fn items_of(events: &[StoredEvent]) -> Vec<Item> {
    events.iter().cloned().map(|event| Item::Event(event.into())).collect()
}

/// What stands before an index, if all is well there.
fn before_index(events: &[StoredEvent], index: usize) -> Before {
    let head = head_of(&events[..index]);
    Before::Event { hash: head.hash, log_id: head.log_id }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn every_window_of_a_valid_chain_is_valid(events in chain(1..10), a in any::<Index>(), b in any::<Index>()) {
        let (a, b) = (a.index(events.len()), b.index(events.len()));
        let (first, last) = (a.min(b), a.max(b));
        let count = seq(last) - seq(first) + 1;
        for before in [before_index(&events, first), Before::Unknown] {
            prop_assert_eq!(
                check_window(&items_of(&events), before, seq(first), seq(last), &head_of(&events)),
                Verdict { checked: count, first_seq: seq(first), last_seq: seq(last), broken: None }
            );
        }
    }

    #[test]
    fn an_empty_window_is_valid_and_ends_before_it_begins(events in chain(0..4)) {
        let head = head_of(&events);
        let first = head.chain_seq + 1;
        // Whatever stands before it: an event that is not examined cannot fail.
        let rewritten = Before::Event { hash: Hash([7; 32]), log_id: head.log_id };
        for before in [before_index(&events, events.len()), rewritten, Before::Unknown, Before::Missing] {
            prop_assert_eq!(
                check_window(&items_of(&events), before, first, head.chain_seq, &head),
                Verdict { checked: 0, first_seq: first, last_seq: head.chain_seq, broken: None }
            );
        }
    }

    #[test]
    fn the_first_event_of_a_window_is_checked_against_the_one_before(
        events in chain(2..10), first in any::<Index>(), bit in 0..256usize
    ) {
        let first = 1 + first.index(events.len() - 1);
        let (items, head) = (items_of(&events), head_of(&events));
        let own = events[first].sealed.hash;
        let mut other = events[first - 1].sealed;
        other.hash.0[bit / 8] ^= 1 << (bit % 8);
        let replaced = Before::Event { hash: other.hash, log_id: other.log_id };
        prop_assert_eq!(
            check_window(&items, replaced, seq(first), head.chain_seq, &head),
            broken(1, seq(first), seq(first), own, Reason::Link)
        );
        prop_assert_eq!(
            check_window(&items, Before::Missing, seq(first), head.chain_seq, &head),
            broken(1, seq(first), seq(first), own, Reason::Gap)
        );
        let later = Before::Event { hash: events[first - 1].sealed.hash, log_id: events[first].sealed.log_id };
        prop_assert_eq!(
            check_window(&items, later, seq(first), head.chain_seq, &head),
            broken(1, seq(first), seq(first), own, Reason::Order)
        );
    }

    #[test]
    fn a_missing_event_is_found_at_the_next_one_even_just_past_the_window(
        events in chain(2..10), first in any::<Index>(), missing in any::<Index>(), next in any::<Index>()
    ) {
        // The window ends with the missing events; what exists next lies behind it.
        let first = first.index(events.len() - 1);
        let missing_from = first + missing.index(events.len() - 1 - first);
        let next = missing_from + 1 + next.index(events.len() - 1 - missing_from);
        let mut items = items_of(&events);
        items.drain(missing_from..next);
        let checked = seq(missing_from) - seq(first) + 1;
        prop_assert_eq!(
            check_window(&items, before_index(&events, first), seq(first), seq(next) - 1, &head_of(&events)),
            broken(checked, seq(first), seq(next), events[next].sealed.hash, Reason::Gap)
        );
    }

    #[test]
    fn a_window_that_begins_inside_a_missing_tail_is_itself_the_break(
        events in chain(2..10), keep in any::<Index>(), from in any::<Index>()
    ) {
        let keep = keep.index(events.len() - 1);
        let from = keep + from.index(events.len() - keep);
        let head = head_of(&events);
        let before = if from == keep { before_index(&events, from) } else { Before::Missing };
        prop_assert_eq!(
            check_window(&items_of(&events[..keep]), before, seq(from), head.chain_seq, &head),
            broken(0, seq(from), seq(from), head.hash, Reason::Tail)
        );
    }

    #[test]
    fn a_tail_that_is_missing_past_the_window_does_not_concern_it(events in chain(2..10), keep in any::<Index>()) {
        let keep = 1 + keep.index(events.len() - 1);
        prop_assert_eq!(
            check_window(&items_of(&events[..keep]), Before::NOTHING, 1, keep as u64, &head_of(&events)),
            Verdict { checked: keep as u64, first_seq: 1, last_seq: keep as u64, broken: None }
        );
    }

    #[test]
    fn a_damaged_record_is_broken_with_the_hash_that_its_successor_or_the_head_knows(
        events in chain(1..10), at in any::<Index>(), first in any::<Index>(), last in any::<Index>()
    ) {
        let at = at.index(events.len());
        let first = first.index(at + 1);
        let last = at + last.index(events.len() - at);
        let mut items = items_of(&events);
        items[at] = Item::Damaged { chain_seq: seq(at) };
        prop_assert_eq!(
            check_window(&items, before_index(&events, first), seq(first), seq(last), &head_of(&events)),
            broken(seq(at) - seq(first) + 1, seq(first), seq(at), events[at].sealed.hash, Reason::Damaged)
        );
    }

    #[test]
    fn of_several_damaged_records_the_first_is_the_break(
        events in chain(2..10), at in any::<Index>(), more in 1..3usize
    ) {
        let at = at.index(events.len() - 1);
        let end = (at + more).min(events.len() - 1);
        let mut items = items_of(&events);
        for (index, item) in items.iter_mut().enumerate().take(end + 1).skip(at) {
            *item = Item::Damaged { chain_seq: seq(index) };
        }
        let head = head_of(&events);
        // Its successor is damaged too, so only the recorded head is known.
        prop_assert_eq!(
            check_window(&items, Before::NOTHING, 1, head.chain_seq, &head),
            broken(seq(at), 1, seq(at), head.hash, Reason::Damaged)
        );
    }

    #[test]
    fn a_break_before_a_damaged_record_comes_first(
        mut events in chain(2..10), at in any::<Index>(), field in select(&FIELDS[..])
    ) {
        let at = at.index(events.len() - 1);
        let head = head_of(&events);
        change(&mut events[at], field, 1);
        let mut items = items_of(&events);
        items[at + 1] = Item::Damaged { chain_seq: seq(at + 1) };
        let reason = if matches!(field, Field::PrevHash) { Reason::Link } else { Reason::Hash };
        prop_assert_eq!(
            check_window(&items, Before::NOTHING, 1, head.chain_seq, &head),
            broken(seq(at), 1, seq(at), events[at].sealed.hash, reason)
        );
    }

    #[test]
    fn a_window_that_ends_before_the_damage_is_valid(events in chain(2..10), at in any::<Index>()) {
        let at = 1 + at.index(events.len() - 1);
        let mut items = items_of(&events);
        items[at] = Item::Damaged { chain_seq: seq(at) };
        prop_assert_eq!(
            check_window(&items, Before::NOTHING, 1, at as u64, &head_of(&events)),
            Verdict { checked: at as u64, first_seq: 1, last_seq: at as u64, broken: None }
        );
    }
}

// ---- Exports, as an auditor checks them -----------------------------------------------------------------

fn noted(event: &StoredEvent) -> NotedHead {
    NotedHead { chain_seq: event.sealed.chain_seq, hash: event.sealed.hash }
}

/// What the audit says, without what it says for people.
fn audited(events: &[StoredEvent], heads: Vec<NotedHead>) -> (Verdict, Outcome) {
    let entries = events.iter().map(|event| {
        let mut json = Vec::new();
        event.put_json(&mut json);
        audit::parse_entry(std::str::from_utf8(&json).unwrap()).unwrap()
    });
    let outcome = audit::audit(entries, heads);
    let verdict = Verdict {
        checked: outcome.checked,
        first_seq: outcome.first_seq,
        last_seq: outcome.last_seq,
        broken: outcome.broken.as_ref().map(|fault| Broken {
            at: fault.at,
            hash: fault.hash.unwrap_or_default(),
            reason: fault.reason,
        }),
    };
    (verdict, outcome)
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn any_stretch_of_a_chain_is_valid_in_either_order(
        events in chain(1..10), a in any::<Index>(), b in any::<Index>()
    ) {
        let (a, b) = (a.index(events.len()), b.index(events.len()));
        let (first, last) = (a.min(b), a.max(b));
        let stretch = &events[first..=last];
        let valid =
            Verdict { checked: seq(last) - seq(first) + 1, first_seq: seq(first), last_seq: seq(last), broken: None };
        let heads: Vec<_> = events[..=last].iter().map(noted).collect();
        let (verdict, outcome) = audited(stretch, heads.clone());
        prop_assert_eq!(verdict, valid);
        prop_assert_eq!(outcome.head, Some(noted(&events[last])));
        // The head just before the first event is covered by its `prev_hash`; those before that one are not.
        prop_assert_eq!(outcome.unchecked.len(), first.saturating_sub(1));
        prop_assert_eq!(outcome.confirmed + outcome.unchecked.len(), heads.len());
        let newest_first: Vec<_> = stretch.iter().rev().cloned().collect();
        prop_assert_eq!(audited(&newest_first, heads), (verdict, outcome));
    }

    #[test]
    fn an_export_breaks_where_the_chain_does_in_either_order(
        mut events in chain(2..8), at in any::<Index>(), field in select(&FIELDS[..]), bit in any::<u8>()
    ) {
        let at = at.index(events.len());
        change(&mut events[at], field, bit);
        // Of another tenant, the first event is the measure and breaks by its hash.
        let reason = match field {
            Field::PrevHash => Reason::Link,
            Field::TenantId if at > 0 => Reason::Chain,
            _ => Reason::Hash,
        };
        let expected = broken(seq(at), 1, seq(at), events[at].sealed.hash, reason);
        prop_assert_eq!(audited(&events, Vec::new()).0, expected);
        events.reverse();
        prop_assert_eq!(audited(&events, Vec::new()).0, expected);
    }

    #[test]
    fn an_event_of_another_project_is_another_chain(mut events in chain(2..8), at in any::<Index>()) {
        let at = 1 + at.index(events.len() - 1);
        events[at].project_id = ProjectId(Uuid([0x33; 16]));
        prop_assert_eq!(
            audited(&events, Vec::new()).0,
            broken(seq(at), 1, seq(at), events[at].sealed.hash, Reason::Chain)
        );
    }

    #[test]
    fn a_noted_head_finds_a_rewritten_chain_and_a_cut_tail(
        events in chain(2..8), at in any::<Index>(), keep in any::<Index>()
    ) {
        let (at, keep) = (at.index(events.len()), 1 + keep.index(events.len()));
        let mut rewritten = events.clone();
        change(&mut rewritten[0], Field::Action, 0);
        for index in 0..rewritten.len() {
            rewritten[index] = reseal(&rewritten[index], head_of(&rewritten[..index]));
        }
        prop_assert!(audited(&rewritten, Vec::new()).0.valid(), "nothing inside it can tell");
        prop_assert_eq!(
            audited(&rewritten, vec![noted(&events[at])]).0,
            broken(seq(at), 1, seq(at), rewritten[at].sealed.hash, Reason::Head)
        );
        let head = noted(events.last().unwrap());
        let cut = audited(&events[..keep], vec![head]).0;
        if keep < events.len() {
            prop_assert_eq!(cut, broken(keep as u64, 1, keep as u64 + 1, head.hash, Reason::Tail));
        } else {
            prop_assert!(cut.valid());
        }
    }

    #[test]
    fn a_head_noted_just_before_the_first_event_is_what_it_must_link_to(
        events in chain(2..8), first in any::<Index>(), bit in 0..256usize
    ) {
        let first = 1 + first.index(events.len() - 1);
        let mut other = noted(&events[first - 1]);
        other.hash.0[bit / 8] ^= 1 << (bit % 8);
        prop_assert_eq!(
            audited(&events[first..], vec![other]).0,
            broken(1, seq(first), seq(first), events[first].sealed.hash, Reason::Link)
        );
    }

    #[test]
    fn a_doubled_event_is_a_break_in_either_order(mut events in chain(2..8), at in any::<Index>()) {
        let at = at.index(events.len());
        events.insert(at, events[at].clone());
        let again = broken(seq(at) + 1, 1, seq(at), events[at].sealed.hash, Reason::Gap);
        prop_assert_eq!(audited(&events, Vec::new()).0, again);
        // It does not fall all the way, so it is not newest first and breaks at once: at the second event,
        // whichever that is.
        events.reverse();
        let (first, second) = (&events[0].sealed, &events[1].sealed);
        let at_once = broken(2, first.chain_seq, second.chain_seq, second.hash, Reason::Gap);
        prop_assert_eq!(audited(&events, Vec::new()).0, at_once);
    }

    #[test]
    fn disorder_other_than_newest_first_is_a_break(events in chain(3..8), order in any::<[Index; 8]>()) {
        let mut shuffled = events.clone();
        for (low, other) in order.iter().enumerate().take(shuffled.len()) {
            let other = low + other.index(shuffled.len() - low);
            shuffled.swap(low, other);
        }
        let ascending = shuffled == events;
        let descending = shuffled.iter().rev().eq(events.iter());
        prop_assert_eq!(audited(&shuffled, Vec::new()).0.valid(), ascending || descending);
    }
}
