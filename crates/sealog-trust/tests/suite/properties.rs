//! Any proof that is made verifies, and any single changed bit is refused. The seed is printed;
//! `SEALOG_SEED` repeats a run.

use std::hash::{BuildHasher, RandomState};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{RngSeed, TestRunner};
use sealog_core::chain::Head as ChainHead;
use sealog_core::event::{self, Annotations, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, Random80, TenantId, Uuid};
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::{Entry, heads_text};
use sealog_trust::heads::{Blind, Head, Trie, TrieProof, verify_absent, verify_present};
use sealog_trust::leaf::{self, Leaf, Tag};
use sealog_trust::merkle::{self, Plan};
use sealog_trust::note::{Note, SigningKey};
use sealog_trust::policy::Policy;
use sealog_trust::proof::{EventProof, HeadPath, HeadProof, Private, TlogProof};
use sealog_trust::salt::{SaltKey, SaltKeys};
use sealog_trust::tile::{self, Tile};

use crate::trees::{leaves, made, mth};

/// Runs a property on random cases.
fn check<S: Strategy>(
    name: &str,
    cases: u32,
    input: S,
    rule: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let seed = match std::env::var("SEALOG_SEED") {
        Ok(text) => text.parse().expect("SEALOG_SEED is a number"),
        Err(_) => RandomState::new().hash_one(name) >> 1,
    };
    println!("{name}: seed {seed} (repeat with SEALOG_SEED={seed})");
    let config = ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Default::default()
    };
    TestRunner::new(config).run(&input, rule).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8 % bytes.len()] ^= 1 << (bit % 8);
}

fn flipped(hash: Hash, bit: usize) -> Hash {
    let mut hash = hash;
    flip(&mut hash.0, bit);
    hash
}

#[test]
fn an_inclusion_proof_holds_for_its_leaf_and_for_no_changed_bit() {
    let all = leaves(700);
    let input = (1..=700usize, any::<Index>(), any::<Index>(), 0..256usize);
    check("inclusion", 200, input, |(size, index, place, bit)| {
        let (tree, n) = (&all[..size], size as u64);
        let index = index.index(size);
        let (leaf, root, at) = (tree[index], mth(tree), index as u64);
        let proof = made(&Plan::inclusion(at, n).unwrap(), tree);
        let holds =
            |leaf, at, root, proof: &[Hash]| merkle::verify_inclusion(leaf, at, n, &root, proof).is_ok();
        prop_assert!(holds(leaf, at, root, &proof));
        prop_assert!(!holds(flipped(leaf, bit), at, root, &proof));
        prop_assert!(!holds(leaf, at, flipped(root, bit), &proof));
        prop_assert!(!holds(leaf, at ^ 1 << (bit % 10), root, &proof));
        if !proof.is_empty() {
            let place = place.index(proof.len());
            let mut changed = proof.clone();
            changed[place] = flipped(changed[place], bit);
            prop_assert!(!holds(leaf, at, root, &changed));
            changed.remove(place);
            prop_assert!(!holds(leaf, at, root, &changed));
        }
        Ok(())
    });
}

#[test]
fn a_consistency_proof_holds_for_its_trees_and_for_no_changed_bit() {
    let all = leaves(700);
    let input = (1..=700usize, any::<Index>(), any::<Index>(), 0..256usize);
    check("consistency", 200, input, |(size, old, place, bit)| {
        let old = 1 + old.index(size);
        let (m, n, old_root, root) = (old as u64, size as u64, mth(&all[..old]), mth(&all[..size]));
        let proof = made(&Plan::consistency(m, n).unwrap(), &all[..size]);
        let holds =
            |m, r: Hash, s: Hash, proof: &[Hash]| merkle::verify_consistency(m, &r, n, &s, proof).is_ok();
        prop_assert!(holds(m, old_root, root, &proof));
        prop_assert!(!holds(m, flipped(old_root, bit), root, &proof));
        prop_assert!(!holds(m, old_root, flipped(root, bit), &proof));
        prop_assert!(!holds(m ^ 1 << (bit % 10), old_root, root, &proof));
        if !proof.is_empty() {
            let mut changed = proof.clone();
            let place = place.index(proof.len());
            changed[place] = flipped(changed[place], bit);
            prop_assert!(!holds(m, old_root, root, &changed));
        }
        Ok(())
    });
}

#[test]
fn a_range_proof_holds_for_its_leaves_and_for_no_changed_bit() {
    let all = leaves(400);
    let input = (1..=400usize, any::<Index>(), any::<Index>(), any::<Index>(), 0..256usize);
    check("range", 200, input, |(size, start, count, place, bit)| {
        let (tree, start) = (&all[..size], start.index(size));
        let range = &tree[start..=start + count.index(size - start)];
        let end = (start + range.len()) as u64;
        let (start, n, root) = (start as u64, size as u64, mth(tree));
        let proof = made(&Plan::range(start, end, n).unwrap(), tree);
        prop_assert!(proof.len() <= 2 * 9, "at most twice the height of the tree");
        let holds =
            |leaves: &[Hash], proof: &[Hash]| merkle::verify_range(start, leaves, n, &root, proof).is_ok();
        prop_assert!(holds(range, &proof));
        let mut changed = range.to_vec();
        let at = place.index(range.len());
        changed[at] = flipped(changed[at], bit);
        prop_assert!(!holds(&changed, &proof));
        prop_assert!(!holds(&range[1..], &proof), "a leaf is missing at the front");
        prop_assert!(!holds(&range[..range.len() - 1], &proof), "a leaf is missing at the end");
        if !proof.is_empty() {
            let mut changed = proof.clone();
            let at = place.index(proof.len());
            changed[at] = flipped(changed[at], bit);
            prop_assert!(!holds(range, &changed));
        }
        Ok(())
    });
}

#[test]
fn a_tree_in_tiles_gives_the_same_proofs_as_one_in_memory() {
    let all = leaves(70_000);
    // Every hash of every tile of the largest tree; a smaller tree has prefixes of them.
    let mut levels: Vec<Vec<Hash>> = vec![all.clone()];
    while levels.last().unwrap().len() >= 256 {
        levels.push(levels.last().unwrap().chunks_exact(256).map(merkle::root_of).collect());
    }
    let bytes = |tile: Tile| -> Vec<u8> {
        let tile::Content::Hashes(level) = tile.content else { panic!("a tile of hashes") };
        let start = usize::try_from(tile.index).unwrap() * 256;
        let hashes = &levels[usize::from(level)][start..start + usize::from(tile.width)];
        hashes.iter().flat_map(|hash| hash.0).collect()
    };
    check("tiles", 12, (1..=70_000u64, any::<Index>(), any::<Index>()), |(size, index, old)| {
        let read = |plan: &Plan| {
            let node = |node: &merkle::Node| {
                let (tile, first, count) = Tile::of_node(*node, size).unwrap();
                assert!(tile.is_in_tree(size) && Tile::parse(&tile.to_string()) == Ok(tile));
                tile::node_in_tile(&bytes(tile), first, count).unwrap()
            };
            plan.proof(&plan.nodes().iter().map(node).collect::<Vec<_>>()).unwrap()
        };
        let root = read(&Plan::root(size).unwrap())[0];
        prop_assert_eq!(root, merkle::root_of(&all[..usize::try_from(size).unwrap()]));
        let index = index.index(usize::try_from(size).unwrap());
        let path = read(&Plan::inclusion(index as u64, size).unwrap());
        prop_assert!(merkle::verify_inclusion(all[index], index as u64, size, &root, &path).is_ok());
        let old = old.index(usize::try_from(size).unwrap() + 1);
        let path = read(&Plan::consistency(old as u64, size).unwrap());
        let old_root = merkle::root_of(&all[..old]);
        prop_assert!(merkle::verify_consistency(old as u64, &old_root, size, &root, &path).is_ok());
        Ok(())
    });
}

#[test]
fn a_trie_proves_each_head_and_the_absence_of_every_other_tag() {
    // Few bits differ, so that tags share long prefixes.
    let tag = (any::<u8>(), 0..4u8, any::<u8>());
    let heads = btree_set(tag, 0..40);
    check(
        "trie",
        40,
        (heads, vec((any::<u8>(), 0..4u8, any::<u8>()), 1..20), 0..256usize),
        |(heads, others, bit)| {
            let tag = |(first, middle, last): (u8, u8, u8)| {
                let mut bytes = [0; 32];
                (bytes[0], bytes[9], bytes[31]) = (first & 0xc3, middle, last);
                Tag(Hash(bytes))
            };
            let mut tags: Vec<Tag> = heads.into_iter().map(tag).collect();
            tags.dedup();
            tags.sort_unstable_by_key(|tag| tag.0.0);
            tags.dedup();
            let head =
                |tag: &Tag| Head { tag: *tag, size: 7, root: tag.0, blind: Blind::of(b"secret", tag, 3) };
            let trie = Trie::new(tags.iter().map(|tag| (*tag, head(tag).hidden())).collect()).unwrap();
            let root = trie.root();
            for tag in &tags {
                let TrieProof::Present { path } = trie.prove(tag) else { panic!("{tag} is there") };
                let holds = |head: &Head, path: &[Hash]| verify_present(head, &root, path).is_ok();
                prop_assert!(holds(&head(tag), &path));
                let mut blind = head(tag).blind;
                flip(&mut blind.0, bit);
                let others = [
                    Head { size: 7 ^ 1 << (bit % 64), ..head(tag) },
                    Head { root: flipped(tag.0, bit), ..head(tag) },
                    Head { blind, ..head(tag) },
                    Head { tag: Tag(flipped(tag.0, bit)), ..head(tag) },
                ];
                for other in others {
                    prop_assert!(!holds(&other, &path), "{:?}", other);
                }
                if !path.is_empty() {
                    let (mut path, at) = (path.clone(), bit % path.len());
                    path[at] = flipped(path[at], bit);
                    prop_assert!(!holds(&head(tag), &path));
                }
                // The proof of presence is no proof of absence, with any end.
                prop_assert!(verify_absent(tag, &root, &path, None).is_err());
                prop_assert!(verify_absent(tag, &root, &path, Some(&(*tag, head(tag).hidden()))).is_err());
            }
            for other in others.into_iter().map(tag).filter(|other| !tags.contains(other)) {
                let TrieProof::Absent { path, foreign } = trie.prove(&other) else {
                    panic!("{other} is not there")
                };
                let holds = |path: &[Hash], foreign: Option<&(Tag, Hash)>| {
                    verify_absent(&other, &root, path, foreign).is_ok()
                };
                prop_assert!(holds(&path, foreign.as_ref()));
                prop_assert!(!holds(&path, Some(&(Tag(Hash([0xaa; 32])), Hash([1; 32])))));
                if let Some((foreign, hidden)) = foreign {
                    prop_assert!(!holds(&path, None));
                    prop_assert!(!holds(&path, Some(&(foreign, flipped(hidden, bit)))));
                    prop_assert!(!holds(&path, Some(&(Tag(flipped(foreign.0, bit)), hidden))));
                }
            }
            Ok(())
        },
    );
}

// ---- From an event to a checkpoint ----------------------------------------------------------------------

/// Everything that a verifier of one event holds.
struct Evidence {
    event: StoredEvent,
    entry: String,
    file: TlogProof,
    extra: EventProof,
    policy: Policy,
}

/// A chain of some events in a store log of some entries.
fn evidence(events: u64, entries: u64, chains: u8, erased: bool) -> Evidence {
    let chain = ChainId {
        tenant_id: TenantId(Uuid([1; 16])),
        project_id: ProjectId(Uuid([2; 16])),
        mode: Mode::Live,
    };
    let keys = SaltKeys::new(vec![SaltKey::root([3; 16])]).unwrap();
    let (mut head, mut stored, mut tree) = (ChainHead::EMPTY, Vec::new(), Vec::new());
    for number in 0..events {
        let body = format!(r#"{{"action":"user.login","actor_id":"u-{number}","metadata":{{"n":1.0}}}}"#);
        let draft = event::parse_single(body.as_bytes()).unwrap().unwrap();
        let sealed = head.seal(chain.tenant_id, &draft.text, 1_700_000_000_000 + number, Random80([9; 10]));
        head = sealed.head();
        let mut event = StoredEvent::new(chain, sealed, draft);
        event.annotations = Annotations {
            category: Some("auth".into()),
            severity: Some("info".into()),
            ip_address: Some("203.0.113.9".into()),
            city: Some("Paris".into()),
            ..event.annotations
        };
        let private = leaf::private_commitment(&keys.salt(number + 1).unwrap(), &event.annotations).unwrap();
        tree.push(leaf::leaf_hash(&event, &private).unwrap());
        stored.push((event, private));
    }
    let at = stored.len() / 2;
    let (mut event, private) = stored.swap_remove(at);
    let seq = event.sealed.chain_seq;
    let tag = Tag::of(chain);
    let blind = Blind::of(b"secret", &tag, 0);
    let head = Head { tag, size: events, root: mth(&tree), blind };
    let others = (0..chains).map(|other| (Tag(Hash([other.wrapping_mul(37); 32])), Hash([other; 32])));
    let trie = Trie::new(others.chain([(tag, head.hidden())]).collect()).unwrap();
    let TrieProof::Present { path } = trie.prove(&tag) else { panic!("the head is there") };
    let extra = EventProof {
        mode: Mode::Live,
        chain_seq: seq,
        private: if erased { Private::Commitment(private) } else { Private::Salt(keys.salt(seq).unwrap()) },
        size: events,
        path: made(&Plan::inclusion(seq - 1, events).unwrap(), &tree),
        head: HeadPath { time_ms: 1_794_657_660_000, blind, path },
    };
    if erased {
        event.annotations = Annotations { ip_address: None, city: None, ..event.annotations };
    }
    let entry = heads_text(1_794_657_660_000, &trie.root());
    let mut store = leaves(entries);
    let index = entries / 3;
    store[usize::try_from(index).unwrap()] = merkle::leaf_hash(entry.as_bytes());
    let log = SigningKey::new("sealog/store", &[4; 32]).unwrap();
    let checkpoint = Checkpoint { origin: "sealog/store".to_owned(), size: entries, root: mth(&store) };
    let file = TlogProof {
        extra: Some(extra.to_string().into_bytes()),
        index,
        path: made(&Plan::inclusion(index, entries).unwrap(), &store),
        checkpoint: checkpoint.sign(&[&log]).unwrap(),
    };
    Evidence { event, entry, file, extra, policy: Policy::of_log(log.public().clone()) }
}

impl Evidence {
    /// The whole way, from bytes.
    fn holds(&self, event: &StoredEvent, file: &[u8]) -> bool {
        let Ok(file) = TlogProof::parse(file) else { return false };
        let Some(Ok(extra)) = file.extra.as_deref().map(EventProof::parse) else { return false };
        let Ok(entry) = extra.entry(event) else { return false };
        file.verify(entry.as_bytes(), &self.policy).is_ok()
    }
}

#[test]
fn a_proof_holds_for_its_event_and_for_no_changed_bit_of_either() {
    let input = (1..40u64, 1..40u64, 0..12u8, any::<bool>(), vec(any::<u32>(), 60));
    check("event proof", 60, input, |(events, entries, chains, erased, bits)| {
        let evidence = evidence(events, entries, chains, erased);
        let file = evidence.file.to_string().into_bytes();
        prop_assert!(evidence.holds(&evidence.event, &file));
        prop_assert!(TlogProof::parse(&file).as_ref() == Ok(&evidence.file));
        let extra = EventProof::parse(evidence.extra.to_string().as_bytes());
        prop_assert!(extra.as_ref() == Ok(&evidence.extra));
        prop_assert!(evidence.extra.entry(&evidence.event).as_ref() == Ok(&evidence.entry));
        for bit in bits {
            let bit = bit as usize;
            let mut changed = file.clone();
            flip(&mut changed, bit);
            prop_assert!(!evidence.holds(&evidence.event, &changed), "{}", String::from_utf8_lossy(&changed));
            // The extra data on its own: base64 around it hides most changes behind its own checks.
            let mut extra = evidence.extra.to_string().into_bytes();
            flip(&mut extra, bit);
            let mut changed = evidence.file.clone();
            changed.extra = Some(extra);
            prop_assert!(!evidence.holds(&evidence.event, changed.to_string().as_bytes()));

            let mut json = Vec::new();
            evidence.event.put_json(&mut json);
            flip(&mut json, bit);
            let changed = std::str::from_utf8(&json).ok().and_then(|text| StoredEvent::parse_json(text).ok());
            // A field that got another name is gone; a public one is in the leaf, and others are required.
            if let Some(changed) = changed.filter(|changed| *changed != evidence.event) {
                prop_assert!(!evidence.holds(&changed, &file), "{}", String::from_utf8_lossy(&json));
            }
        }
        Ok(())
    });
}

#[test]
fn a_private_field_that_is_shown_needs_its_salt() {
    let evidence = evidence(5, 5, 3, true);
    let file = evidence.file.to_string().into_bytes();
    assert!(evidence.holds(&evidence.event, &file));
    for name in ["session_id", "ts_client", "ip_address", "country", "city"] {
        let mut values = evidence.event.annotations.values();
        let at = Annotations::NAMES.iter().position(|known| *known == name).unwrap();
        values[at] = Some("x");
        let shown = StoredEvent { annotations: Annotations::from_values(values), ..evidence.event.clone() };
        assert_eq!(evidence.extra.entry(&shown).unwrap_err().reason(), "annotations", "{name}");
        assert!(!evidence.holds(&shown, &file));
    }
}

#[test]
fn a_changed_entry_or_checkpoint_is_refused() {
    let evidence = evidence(9, 9, 4, false);
    let verify = |entry: &[u8], file: &TlogProof| file.verify(entry, &evidence.policy).is_ok();
    assert!(verify(evidence.entry.as_bytes(), &evidence.file));
    for bit in 0..8 * evidence.entry.len() {
        let mut entry = evidence.entry.clone().into_bytes();
        flip(&mut entry, bit);
        assert!(!verify(&entry, &evidence.file), "{bit}");
    }
    let note = evidence.file.checkpoint.to_string().into_bytes();
    for bit in 0..8 * note.len() {
        let mut changed = note.clone();
        flip(&mut changed, bit);
        let Ok(checkpoint) = Note::parse(&changed) else { continue };
        assert!(
            !verify(evidence.entry.as_bytes(), &TlogProof { checkpoint, ..evidence.file.clone() }),
            "{bit}"
        );
    }
}

#[test]
fn a_head_proof_reads_back_and_leads_to_its_entry() {
    let evidence = evidence(6, 6, 5, false);
    let EventProof { size, head, .. } = &evidence.extra;
    let private = leaf::private_commitment(
        match &evidence.extra.private {
            Private::Salt(salt) => salt,
            Private::Commitment(_) => panic!("there is a salt"),
        },
        &evidence.event.annotations,
    )
    .unwrap();
    let leaf = leaf::leaf_hash(&evidence.event, &private).unwrap();
    let index = evidence.extra.chain_seq - 1;
    let root = merkle::root_from_path(leaf, index, *size, &evidence.extra.path).unwrap();
    let tag = Tag::of(evidence.event.chain(Mode::Live));
    let proof = HeadProof { tag, size: *size, root, head: head.clone() };
    assert_eq!(HeadProof::parse(proof.to_string().as_bytes()).as_ref(), Ok(&proof));
    assert_eq!(proof.entry().as_ref(), Ok(&evidence.entry));
    for bit in 0..8 * proof.to_string().len() {
        let mut text = proof.to_string().into_bytes();
        flip(&mut text, bit);
        let entry = HeadProof::parse(&text).ok().and_then(|proof| proof.entry().ok());
        assert_ne!(entry, Some(evidence.entry.clone()), "{bit}");
    }
}

#[test]
fn leaves_and_entries_read_back() {
    let evidence = evidence(3, 3, 2, false);
    let mut bytes = Vec::new();
    leaf::put_leaf(&evidence.event, &Hash([5; 32]), &mut bytes).unwrap();
    let leaf = Leaf::parse(&bytes).unwrap();
    assert_eq!((leaf.chain_seq, leaf.hash), (evidence.event.sealed.chain_seq, evidence.event.sealed.hash));
    assert_eq!((leaf.private, leaf.schema_version), (Hash([5; 32]), 1));
    assert_eq!(leaf.public, [Some("auth"), Some("info"), None, None]);
    let Ok(Entry::Heads { time_ms, root }) = Entry::parse(evidence.entry.as_bytes()) else {
        panic!("a heads entry")
    };
    assert_eq!(heads_text(time_ms, &root), evidence.entry);
    let mut bundle = Vec::new();
    assert!(tile::put_entry(&mut bundle, &bytes) && tile::put_entry(&mut bundle, b""));
    assert_eq!(tile::entries(&bundle, 2), Ok(vec![&bytes[..], b""]));
    assert!(!tile::put_entry(&mut bundle, &[0; 65_536]));
    for width in [1, 3] {
        assert!(tile::entries(&bundle, width).is_err());
    }
}
