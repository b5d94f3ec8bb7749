//! 10.1 What is published of a chain: a client with its key checks the answers with the formats alone.

use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Uuid};
use sealog_testing::postgres::cluster;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::heads_text;
use sealog_trust::heads::{Blind, Head, verify_absent, verify_present};
use sealog_trust::leaf::{self, Leaf, Tag};
use sealog_trust::merkle::{leaf_hash, root_of, verify_consistency, verify_inclusion, verify_range};
use sealog_trust::note::{Note, VerifierKey};
use sealog_trust::policy::Policy;
use sealog_trust::proof::{EventProof, HeadProof, Private, TlogProof};
use sealog_trust::salt::{Salt, SaltKey, SaltKeys};
use sealog_trust::tile::{self, Tile};
use serde_json::{Value, json};

use crate::harness::*;
use crate::home::Home;
use crate::s10_1_tlog::hashes;

fn chain(service: &Service, path: &str, key: &str) -> Response {
    service.get(&format!("/tlog/v1/chain{path}"), key)
}

fn hash(value: &Value) -> Hash {
    hashes(&json!([value]))[0]
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn id(text: &str) -> Uuid {
    Uuid::parse(text).unwrap()
}

fn tag(service: &Service) -> Tag {
    Tag::of(ChainId {
        tenant_id: TenantId(id(&service.tenant_id)),
        project_id: ProjectId(id(&service.project_id)),
        mode: Mode::Live,
    })
}

fn from_hex<const N: usize>(text: &Value) -> [u8; N] {
    sealog_core::hex::decode(text.as_str().unwrap()).unwrap()
}

/// What a verifier believes: the log key alone.
fn policy(service: &Service) -> Policy {
    let keys = service.request("GET", "/tlog/v1/store/keys", &[], b"").ok();
    Policy::of_log(VerifierKey::parse(keys["keys"][0]["vkey"].as_str().unwrap()).unwrap())
}

/// An event as a verifier reads it from the API.
fn stored(service: &Service, key: &str, log_id: &str) -> StoredEvent {
    StoredEvent::parse_json(&service.read(key, log_id).to_string()).unwrap()
}

/// From the head in a snapshot to the signed checkpoint, as an outsider checks it.
#[track_caller]
fn check_store(service: &Service, proof: &Value) {
    let (heads, store) = (&proof["heads"], &proof["store"]);
    let entry = heads_text(number(&heads["time"]), &hash(&heads["root"]));
    let note = Note::parse(store["checkpoint"].as_str().unwrap().as_bytes()).unwrap();
    let accepted = policy(service).verify(&note).unwrap().checkpoint;
    assert_eq!((accepted.size, accepted.root), (number(&store["size"]), hash(&store["root"])));
    let (index, path) = (number(&heads["index"]), hashes(&store["path"]));
    verify_inclusion(leaf_hash(entry.as_bytes()), index, accepted.size, &accepted.root, &path).unwrap();
}

/// The head of the chain that a proof names, once its place in the trie is checked.
#[track_caller]
fn check_head(service: &Service, proof: &Value) -> (u64, Hash) {
    let (heads, tag) = (&proof["heads"], tag(service));
    assert_eq!(proof["tag"], json!(tag.to_string()));
    let (size, root) = (number(&proof["chain"]["size"]), hash(&proof["chain"]["root"]));
    let head = Head { tag, size, root, blind: Blind(from_hex(&heads["blind"])) };
    verify_present(&head, &hash(&heads["root"]), &hashes(&heads["path"])).unwrap();
    check_store(service, proof);
    (size, root)
}

#[test]
fn the_overview_says_what_is_published_and_how_much_is_not() {
    let service = Service::publishing();
    service.fill(&service.live, 3);
    service.publish();
    service.fill(&service.live, 2);
    let overview = chain(&service, "", &service.live).ok();
    let tag = tag(&service);
    let origin = format!("log.example/tlog/v1/store/chain/{tag}");
    assert_eq!(overview["tag"], json!(tag.to_string()));
    assert_eq!((&overview["mode"], &overview["origin"]), (&json!("live"), &json!(origin)));
    assert_eq!((&overview["published_size"], &overview["lag_events"]), (&json!(3), &json!(2)));
    assert_eq!(overview["time"], json!(NOON_MS + INTERVAL_MS));
    assert_eq!(VerifierKey::parse(overview["vkey"].as_str().unwrap()).unwrap().name(), origin);
}

#[test]
fn a_chain_is_a_log_whose_checkpoint_tiles_and_leaves_fit_each_other() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 300);
    service.publish();
    let overview = chain(&service, "", &service.live).ok();
    let vkey = VerifierKey::parse(overview["vkey"].as_str().unwrap()).unwrap();
    let answer = chain(&service, "/checkpoint", &service.live);
    let note = Note::parse(answer.body.as_bytes()).unwrap();
    note.verify(&[&vkey]).unwrap();
    assert_eq!(chain(&service, "/checkpoint", &service.live).body, answer.body, "one text, one signature");
    let Checkpoint { origin, size, root } = Checkpoint::parse(note.text()).unwrap();
    assert_eq!((json!(origin), size), (overview["origin"].clone(), 300));
    let mut leaves = Vec::new();
    for (path, width) in [("000", 256), ("001.p/44", 44)] {
        let bundle = chain(&service, &format!("/tile/entries/{path}"), &service.live);
        assert_eq!(bundle.status, 200, "{}", bundle.body);
        assert_eq!(bundle.header("vary"), Some("authorization"));
        leaves.extend(tile::entries(&bundle.bytes, width).unwrap().into_iter().map(<[u8]>::to_vec));
    }
    let leaf_hashes: Vec<Hash> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
    assert_eq!(root_of(&leaf_hashes), root);
    let first = Leaf::parse(&leaves[0]).unwrap();
    let event = service.read(&service.live, &log_ids[0]);
    assert_eq!((first.chain_seq, json!(first.hash.to_string())), (1, event["hash"].clone()));
    for tile in Tile::of_tree(size) {
        let answer = chain(&service, &format!("/{tile}"), &service.live);
        assert_eq!(answer.status, 200, "{tile}: {}", answer.body);
        let found = tile::hashes(&answer.bytes, tile.width).unwrap();
        if tile.content == tile::Content::Hashes(0) {
            let first = usize::try_from(tile.index * 256).unwrap();
            assert_eq!(found, leaf_hashes[first..first + usize::from(tile.width)]);
        }
        assert_eq!(answer.header("cache-control"), Some("private, max-age=3600"));
    }
}

#[test]
fn a_proof_leads_from_an_event_to_a_signed_checkpoint() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 5);
    service.publish();
    for (seq, log_id) in (1..).zip(&log_ids) {
        let proof = chain(&service, &format!("/proof?log_id={log_id}"), &service.live).ok();
        assert_eq!(chain(&service, &format!("/proof?seq={seq}"), &service.live).ok(), proof);
        let event = stored(&service, &service.live, log_id);
        let salt = Salt(from_hex(&proof["salt"]));
        let private = leaf::private_commitment(&salt, &event.annotations).unwrap();
        assert_eq!(proof["private"], json!(private.to_string()));
        let leaf = leaf::leaf_hash(&event, &private).unwrap();
        assert_eq!(hash(&proof["leaf"]), leaf);
        let (size, root) = check_head(&service, &proof);
        verify_inclusion(leaf, seq - 1, size, &root, &hashes(&proof["chain"]["path"])).unwrap();
    }
}

#[test]
fn the_file_of_a_proof_verifies_and_fits_no_other_event() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 5);
    service.publish();
    let answer = chain(&service, &format!("/proof?log_id={}&format=tlog-proof", log_ids[2]), &service.live);
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("text/plain; charset=utf-8")));
    let file = TlogProof::parse(answer.body.as_bytes()).unwrap();
    let proof = EventProof::parse(file.extra.as_ref().unwrap()).unwrap();
    assert!(matches!(proof.private, Private::Salt(_)));
    let entry = proof.entry(&stored(&service, &service.live, &log_ids[2])).unwrap();
    file.verify(entry.as_bytes(), &policy(&service)).unwrap();
    assert!(proof.entry(&stored(&service, &service.live, &log_ids[3])).is_err());
}

#[test]
fn a_head_is_proven_for_the_newest_snapshot_and_for_older_ones() {
    let service = Service::publishing();
    service.fill(&service.live, 2);
    service.publish();
    let old = chain(&service, "/head", &service.live).ok();
    assert_eq!((&old["present"], check_head(&service, &old).0), (&json!(true), 2));
    service.fill(&service.live, 3);
    service.publish();
    let new = chain(&service, "/head", &service.live).ok();
    let (size, root) = check_head(&service, &new);
    assert_eq!(size, 5);
    let again = chain(&service, &format!("/head?at={}", old["heads"]["index"]), &service.live).ok();
    assert_eq!((&again["chain"], &again["heads"]), (&old["chain"], &old["heads"]));
    let (old_size, old_root) = check_head(&service, &again);
    let grown = chain(&service, &format!("/consistency?from={old_size}&to={size}"), &service.live).ok();
    verify_consistency(old_size, &old_root, size, &root, &hashes(&grown["path"])).unwrap();
    let file = chain(&service, "/head?format=tlog-proof", &service.live).body;
    let file = TlogProof::parse(file.as_bytes()).unwrap();
    let proof = HeadProof::parse(file.extra.as_ref().unwrap()).unwrap();
    assert_eq!((proof.tag, proof.size, proof.root), (tag(&service), size, root));
    file.verify(proof.entry().unwrap().as_bytes(), &policy(&service)).unwrap();
}

#[test]
fn the_absence_of_a_chain_from_a_snapshot_is_proven() {
    let service = Service::publishing();
    service.publish();
    service.clock.advance(1000);
    let head = chain(&service, "/head", &service.live).ok();
    assert_eq!((&head["present"], &head["chain"]), (&json!(false), &Value::Null));
    let heads = &head["heads"];
    let foreign = match &heads["foreign"] {
        Value::Null => None,
        foreign => Some((Tag(Hash(from_hex(&foreign["tag"]))), hash(&foreign["hidden"]))),
    };
    let path = hashes(&heads["path"]);
    verify_absent(&tag(&service), &hash(&heads["root"]), &path, foreign.as_ref()).unwrap();
    check_store(&service, &head);
    chain(&service, "/head?format=tlog-proof", &service.live).rejected(404, "tlog/not_found");
}

#[test]
fn old_snapshots_are_for_one_request_a_second_of_a_tenant() {
    let service = Service::publishing();
    service.fill(&service.live, 1);
    service.publish();
    let index = number(&chain(&service, "/head", &service.live).ok()["heads"]["index"]);
    service.clock.advance(1000);
    chain(&service, &format!("/head?at={index}"), &service.live).ok();
    chain(&service, &format!("/head?at={index}"), &service.live).rejected(429, "rate/limit_exceeded");
    chain(&service, "/head", &service.live).ok();
    let other = service.newcomer("top", &[]);
    assert_eq!(chain(&service, &format!("/head?at={index}"), &other).status, 200);
    service.clock.advance(1000);
    chain(&service, &format!("/head?at={index}"), &service.live).ok();
    service.clock.advance(1000);
    let message = chain(&service, &format!("/head?at={}", index + 1), &service.live);
    message.rejected(404, "tlog/not_found");
}

#[test]
fn a_snapshot_that_was_thinned_out_is_gone_and_the_answer_names_the_nearest_that_are_kept() {
    let service = Service::publishing();
    service.fill(&service.live, 1);
    let mut indexes = Vec::new();
    for _ in 0..4 {
        service.publish();
        let newest = number(&chain(&service, "/head", &service.live).ok()["heads"]["index"]);
        indexes.push(newest);
    }
    let ask = |index: u64| {
        service.clock.advance(1000);
        chain(&service, &format!("/head?at={index}"), &service.live)
    };
    assert_eq!(ask(indexes[1]).status, 200, "nothing is thinned for three days");
    // Of an hour the last one stays.
    service.clock.advance(4 * 24 * 3_600_000);
    service.fill(&service.live, 1);
    service.publish();
    service.thin();
    let newest = number(&chain(&service, "/head", &service.live).ok()["heads"]["index"]);
    let gone = ask(indexes[1]);
    let message = gone.rejected(410, "tlog/pruned");
    let nearest: Vec<u64> = message
        .trim_start_matches("That snapshot is not kept; the nearest that are kept: ")
        .trim_end_matches('.')
        .split(", ")
        .map(|index| index.parse().unwrap())
        .collect();
    assert!(
        !nearest.is_empty() && nearest.iter().all(|index| (indexes[3]..=newest).contains(index)),
        "{message}"
    );
    for kept in nearest {
        let answer = ask(kept);
        assert_eq!(answer.status, 200, "{}", answer.body);
        check_head(&service, &answer.json);
    }
    // What was published stays an entry of the log.
    let index = indexes[1];
    let size = number(&chain(&service, "/head", &service.live).ok()["store"]["size"]);
    service.request("GET", &format!("/tlog/v1/store/proof?index={index}&size={size}"), &[], b"").ok();
}

#[test]
fn leaves_of_deleted_events_are_gone_and_the_tree_above_them_stays() {
    let service = Service::publishing();
    service.fill(&service.live, 300);
    service.publish();
    service.hinge().set(Mood::Dropped(256));
    let gone = chain(&service, "/tile/entries/000", &service.live);
    assert_eq!(gone.rejected(410, "tlog/pruned"), "Events before #257 were deleted.");
    for kept in ["/tile/entries/001.p/44", "/tile/0/000", "/consistency?from=7&to=300", "/proof?seq=300"] {
        assert_eq!(chain(&service, kept, &service.live).status, 200, "{kept}");
    }
}

#[test]
fn a_published_root_that_is_not_that_of_the_leaves_is_named() {
    let service = Service::in_home(Home::Database(cluster().database()), |setup| setup.trust = true);
    let log_ids = service.fill(&service.live, 5);
    service.publish();
    assert_eq!(chain(&service, "/verify", &service.live).ok()["valid"], true);
    let Home::Database(database) = service.home() else { unreachable!("it is on PostgreSQL") };
    // Events and tiles agree, and what was signed is something else.
    database.sql(&format!(
        "UPDATE sealog_log.heads SET root = sha256(root)
             WHERE chain = (SELECT number FROM sealog_log.published WHERE project_id = '{}')",
        service.project_id
    ));
    let verdict = chain(&service, "/verify", &service.live).ok();
    let first = service.read(&service.live, &log_ids[0]);
    let expected = json!({
        "valid": false, "checked": 1, "first_seq": 1, "last_seq": 1, "leaves_checked": 5,
        "published_size": 5, "broken_at": 1, "broken_hash": first["hash"], "reason": "root",
        "not_shown": [REWRITTEN],
    });
    assert_eq!(verdict, expected);
}

#[test]
fn a_range_is_shown_to_be_complete_and_its_salts_open_its_events_alone() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 9);
    service.publish();
    let proof = chain(&service, "/range?from_seq=3&to_seq=6", &service.live).ok();
    let keys =
        proof["salts"].as_array().unwrap().iter().map(|line| SaltKey::parse(line.as_str().unwrap()).unwrap());
    let keys = SaltKeys::new(keys.collect()).unwrap();
    let leaves: Vec<Hash> = (3..=6)
        .map(|seq: u64| {
            let event = stored(&service, &service.live, &log_ids[usize::try_from(seq - 1).unwrap()]);
            let private = leaf::private_commitment(&keys.salt(seq).unwrap(), &event.annotations).unwrap();
            leaf::leaf_hash(&event, &private).unwrap()
        })
        .collect();
    let (size, root) = check_head(&service, &proof);
    verify_range(2, &leaves, size, &root, &hashes(&proof["chain"]["path"])).unwrap();
    assert_eq!((keys.salt(2).is_none(), keys.salt(7).is_none()), (true, true));
    let all = chain(&service, "/range", &service.live).ok();
    assert_eq!((&all["from_seq"], &all["to_seq"]), (&json!(1), &json!(9)));
}

/// What a server says that it cannot show of its own log.
const REWRITTEN: &str = "That the signed log was not rewritten or rolled back: compare it with a checkpoint that \
                         you kept (sealog-verify --checkpoint).";

#[test]
fn verification_holds_each_published_event_against_its_leaf() {
    let service = Service::publishing();
    service.fill(&service.live, 300);
    service.publish();
    service.fill(&service.live, 2);
    let verdict = chain(&service, "/verify", &service.live).ok();
    let expected = json!({
        "valid": true, "checked": 302, "first_seq": 1, "last_seq": 302,
        "leaves_checked": 300, "published_size": 300,
        "not_shown": ["Fields outside the hash, from event #301 on: no signed tree has them yet.", REWRITTEN],
    });
    assert_eq!(verdict, expected);
    let verdict = chain(&service, "/verify?from_seq=299&to_seq=301", &service.live).ok();
    assert_eq!((&verdict["checked"], &verdict["leaves_checked"]), (&json!(3), &json!(2)));
    let verdict = chain(&service, "/verify?to_seq=300", &service.live).ok();
    assert_eq!(verdict["not_shown"], json!([REWRITTEN]));
}

#[test]
fn a_changed_annotation_is_found_by_its_leaf_and_by_nothing_else() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 5);
    service.publish();
    service.hinge().set(Mood::Tampered(3, |event| event.annotations = Default::default()));
    assert_eq!(service.count(&service.live), 5, "its hash still fits");
    let verdict = chain(&service, "/verify", &service.live).ok();
    service.hinge().set(Mood::Willing);
    let event = service.read(&service.live, &log_ids[2]);
    let expected = json!({
        "valid": false, "checked": 3, "first_seq": 1, "last_seq": 3, "leaves_checked": 3,
        "published_size": 5, "broken_at": 3, "broken_hash": event["hash"], "reason": "annotations",
        "not_shown": [REWRITTEN],
    });
    assert_eq!(verdict, expected);
}

#[test]
fn a_changed_event_has_the_reason_of_the_ordinary_verification() {
    let service = Service::publishing();
    service.fill(&service.live, 5);
    service.publish();
    service.hinge().set(Mood::Tampered(4, |event| event.timestamp_ms += 1));
    let verdict = chain(&service, "/verify", &service.live).ok();
    assert_eq!(verdict["valid"], false);
    assert_eq!((&verdict["broken_at"], &verdict["reason"]), (&json!(4), &json!("hash")));
    assert_eq!(verdict["leaves_checked"], 0);
}

#[test]
fn an_event_that_no_snapshot_has_yet_is_for_later_and_one_that_is_none_is_not_found() {
    let service = Service::publishing();
    service.publish();
    service.clock.advance(20_500);
    let log_id = service.log(&service.live, LOGIN);
    for path in [
        format!("/proof?log_id={log_id}"),
        "/proof?seq=1".into(),
        "/range?to_seq=1".into(),
        "/checkpoint".into(),
        "/tile/0/000.p/1".into(),
        "/consistency?from=0&to=0".into(),
    ] {
        let answer = chain(&service, &path, &service.live);
        answer.rejected(404, "tlog/not_yet");
        assert_eq!(answer.header("retry-after"), Some("40"), "{path}");
    }
    for path in [
        "/proof?seq=2",
        "/proof?log_id=01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "/proof?log_id=nonsense",
        "/range?to_seq=2",
    ] {
        chain(&service, path, &service.live).rejected(404, "tlog/not_found");
    }
    service.publish();
    for path in ["/tile/0/000.p/2", "/tile/0/000", "/tile/entries/000.p/2", "/consistency?from=1&to=2"] {
        chain(&service, path, &service.live).rejected(404, "tlog/not_found");
    }
}

#[test]
fn what_is_malformed_is_named() {
    let service = Service::publishing();
    service.fill(&service.live, 2);
    service.publish();
    for (query, parameter) in [
        ("head?at=00", "at"),
        ("head?format=xml", "format"),
        ("proof", "seq"),
        ("proof?seq=0", "seq"),
        ("proof?seq=01", "seq"),
        ("proof?seq=-1", "seq"),
        ("proof?seq=9223372036854775808", "seq"),
        ("proof?seq=1&log_id=01ARZ3NDEKTSV4RRFFQ69G5FAV", "seq"),
        ("proof?seq=1&format=", "format"),
        ("proof?seq=1&salt=1", "salt"),
        ("range?from_seq=0", "from_seq"),
        ("range?from_seq=2&to_seq=1", "to_seq"),
        ("range?from_seq=+1", "from_seq"),
        ("consistency?from=2&to=1", "to"),
        ("consistency?from=1", "to"),
        ("verify?from_seq=2&to_seq=1", "to_seq"),
        ("verify?from_seq=0", "from_seq"),
    ] {
        let message =
            chain(&service, &format!("/{query}"), &service.live).rejected(400, "read/invalid_params");
        assert!(message.contains(&format!("{parameter:?}")), "{query}: {message}");
    }
    for path in
        ["/tile/64/000", "/tile/0/000.p/0", "/tile/0/000.p/256", "/tile/entries/0", "/tile/entries/000.p/256"]
    {
        chain(&service, path, &service.live).rejected(400, "read/invalid_params");
    }
}

#[test]
fn test_chains_have_no_trees() {
    let service = Service::publishing();
    service.fill(&service.test, 2);
    service.publish();
    for path in PATHS {
        let message = chain(&service, path, &service.test).rejected(404, "tlog/not_found");
        assert_eq!(message, "Test chains have no trees.", "{path}");
    }
}

/// One address of each route of a chain.
pub const PATHS: [&str; 9] = [
    "",
    "/checkpoint",
    "/tile/0/000.p/1",
    "/tile/entries/000.p/1",
    "/head",
    "/consistency?from=1&to=1",
    "/proof?seq=1",
    "/range",
    "/verify",
];

#[test]
fn nothing_of_one_chain_is_seen_with_the_key_of_another() {
    let service = Service::publishing();
    let log_ids = service.fill(&service.live, 3);
    let other = service.newcomer("top", &[]);
    let others = service.fill(&other, 7);
    let second = service.new_key(&service.new_project(&service.tenant_id, &[]), "live");
    service.fill(&second, 5);
    service.publish();
    for (key, size) in [(&service.live, 3), (&other, 7), (&second, 5)] {
        let overview = chain(&service, "", key).ok();
        assert_eq!(overview["published_size"], json!(size));
        let head = chain(&service, "/head", key).ok();
        assert_eq!((&head["tag"], &head["chain"]["size"]), (&overview["tag"], &json!(size)));
        assert_eq!(chain(&service, "/range", key).ok()["to_seq"], json!(size));
    }
    for (key, foreign) in [(&other, &log_ids), (&second, &log_ids), (&service.live, &others)] {
        for log_id in foreign {
            chain(&service, &format!("/proof?log_id={log_id}"), key).rejected(404, "tlog/not_found");
        }
    }
    for path in PATHS {
        let answers = [&service.live, &other, &second].map(|key| chain(&service, path, key));
        assert!(answers.iter().all(|answer| answer.status == 200), "{path}");
        if !path.starts_with("/consistency") {
            assert!(answers[0].bytes != answers[1].bytes && answers[0].bytes != answers[2].bytes, "{path}");
        }
    }
}

#[test]
fn nothing_is_answered_without_a_key() {
    let service = Service::publishing();
    for path in PATHS {
        let path = format!("/tlog/v1/chain{path}");
        service.request("GET", &path, &[], b"").rejected(401, "auth/missing_header");
        service.get(&path, "at_live_nonsense").rejected(401, "auth/key_not_found");
        service.get(&path, TOKEN).rejected(401, "auth/invalid_format");
    }
}
