//! Texts that outsiders and other people's logs send: refused with a reason, or written as they were read.

use sealog_core::id::Hash;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::entry::Entry;
use sealog_trust::heads;
use sealog_trust::leaf::{Leaf, Tag};
use sealog_trust::merkle::{self, PROOF_HASHES_MAX};
use sealog_trust::note::{Note, SIGNATURES_MAX, SigningKey, VerifierKey};
use sealog_trust::policy::{EACH_MAX, Policy};
use sealog_trust::proof::{EventProof, HeadProof, TlogProof};
use sealog_trust::salt::{SaltKey, SaltKeys};
use sealog_trust::text::Malformed;
use sealog_trust::tile::{self, Tile};
use sealog_trust::verdict::{Claim, Consistency, Kept, Proof};

/// A refusal names the field and what it must be.
fn refused(problem: &Malformed) {
    assert!(!problem.field.is_empty() && problem.to_string().len() > problem.field.len() + 4);
}

/// What was read, if it was; the reason is looked at otherwise.
fn read<T>(result: Result<T, Malformed>) -> Option<T> {
    result.inspect_err(refused).ok()
}

fn log() -> VerifierKey {
    SigningKey::new("log.example", &[1; 32]).expect("a good name").public().clone()
}

/// Notes, vkeys, signing keys and checkpoints.
pub fn note(data: &[u8]) {
    if let Some(note) = read(Note::parse(data)) {
        assert_eq!(note.to_string().as_bytes(), data, "a note has one spelling");
        assert!((1..=SIGNATURES_MAX).contains(&note.signatures.len()));
        let _ = note.verify(&[&log()]);
        let _ = Policy::of_log(log()).verify(&note);
    }
    if let Some(kept) = read(Kept::parse(data)) {
        assert_eq!(kept.checkpoint.to_string(), kept.note.text(), "a checkpoint has no further lines");
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(key) = read(VerifierKey::parse(text)) {
        assert_eq!(key.to_string(), text);
    }
    if let Some(key) = read(SigningKey::parse(text)) {
        assert_eq!(key.to_text(), text);
    }
    if let Some(checkpoint) = read(Checkpoint::parse(text)) {
        assert_eq!(checkpoint.to_string(), text);
    }
}

/// Policies, with a note that one of their logs may have signed.
pub fn policy(data: &[u8]) {
    let Some(policy) = read(Policy::parse(data)) else { return };
    assert!(policy.logs().len() <= EACH_MAX && policy.witnesses().len() <= EACH_MAX);
    let log = SigningKey::new("log.example", &[1; 32]).expect("a good name");
    let checkpoint = Checkpoint { origin: "log.example".to_owned(), size: 3, root: Hash([9; 32]) };
    let note = checkpoint.sign(&[&log]).expect("a printable origin");
    if let Ok(accepted) = policy.verify(&note) {
        assert!(!accepted.witnessed && accepted.cosigned.is_empty(), "no witness signed");
    }
}

/// Files, and the extra data inside them or on its own.
pub fn proof(data: &[u8]) {
    extra(data);
    let Some(file) = read(TlogProof::parse(data)) else { return };
    assert_eq!(file.to_string().as_bytes(), data, "a proof has one spelling");
    assert!(file.path.len() <= PROOF_HASHES_MAX);
    extra(file.extra.as_deref().unwrap_or_default());
    let _ = file.verify(b"an entry", &Policy::of_log(log()));
    if let Some(Proof { claim, .. }) = read(Proof::parse(data)) {
        let claim = match claim {
            Claim::Event(proof) => proof.to_string(),
            Claim::Head(proof) => proof.to_string(),
        };
        assert_eq!(Some(claim.as_bytes()), file.extra.as_deref(), "a claim has one spelling");
    }
}

/// Consistency proofs as the verifiers take them: JSON, beside another opinion on what it says.
pub fn consistency(data: &[u8]) {
    let Some(proof) = read(Consistency::parse(data)) else { return };
    assert!(proof.path.len() <= PROOF_HASHES_MAX);
    let (old_root, root) = (Hash([1; 32]), Hash([2; 32]));
    let result = merkle::verify_consistency(proof.from, &old_root, proof.to, &root, &proof.path);
    assert!(result.is_err(), "no proof leads to roots that were made up");
    // Lone surrogates and numbers beyond a double are JSON to Sealog, but not to serde_json.
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(data) {
        assert_eq!((value["from"].as_u64(), value["to"].as_u64()), (Some(proof.from), Some(proof.to)));
        assert_eq!(value["path"].as_array().map(Vec::len), Some(proof.path.len()));
    }
}

fn extra(data: &[u8]) {
    if let Some(proof) = read(EventProof::parse(data)) {
        assert_eq!(proof.to_string().as_bytes(), data);
        let index = proof.chain_seq.wrapping_sub(1);
        let root = merkle::root_from_path(Hash([1; 32]), index, proof.size, &proof.path);
        assert!(index < proof.size || root.is_err());
        let _ = merkle::verify_consistency(
            proof.chain_seq,
            &Hash([1; 32]),
            proof.size,
            &Hash([2; 32]),
            &proof.path,
        );
        let leaves = [Hash([1; 32]); 3];
        let _ = merkle::verify_range(proof.chain_seq, &leaves, proof.size, &Hash([2; 32]), &proof.path);
    }
    if let Some(proof) = read(HeadProof::parse(data)) {
        assert_eq!(proof.to_string().as_bytes(), data);
        assert!(proof.entry().is_ok(), "a path that was read is not too long");
        let foreign = (Tag(Hash([3; 32])), Hash([4; 32]));
        let _ = heads::verify_absent(&proof.tag, &proof.root, &proof.head.path, Some(&foreign));
    }
}

/// Paths of tiles, and the bytes of tiles and bundles.
pub fn tile(data: &[u8]) {
    for width in [1, 3, 256] {
        if let Some(entries) = read(tile::entries(data, width)) {
            let mut again = Vec::new();
            assert!(entries.iter().all(|entry| tile::put_entry(&mut again, entry)));
            assert_eq!(again, data);
        }
        if let Some(hashes) = read(tile::hashes(data, width)) {
            assert_eq!(hashes.len(), usize::from(width));
        }
        let _ = tile::node_in_tile(data, usize::from(width), data.len());
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(tile) = read(Tile::parse(text)) {
        assert_eq!(tile.to_string(), text, "a path has one spelling");
        assert!((1..=256).contains(&tile.width));
        assert!(!tile.is_in_tree(0));
    }
}

/// Entries of the store log, leaves of chains, lines of salt keys.
pub fn entry(data: &[u8]) {
    if let Some(entry) = read(Entry::parse(data))
        && !matches!(entry, Entry::Unknown { .. })
    {
        assert_eq!(entry.to_text().as_deref().map(str::as_bytes), Some(data), "an entry has one spelling");
    }
    let _ = read(Leaf::parse(data));
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(key) = read(SaltKey::parse(text)) {
        assert_eq!(key.to_line(), text);
        let (first, last) = (*key.seqs().start(), *key.seqs().end());
        let keys = SaltKeys::new(vec![key]).expect("one key overlaps with none");
        assert!(keys.salt(first).is_some() && keys.salt(last).is_some());
        let punctured = keys.puncture(first..=first);
        assert!(punctured.salt(first).is_none() && punctured.keys().len() <= 48);
    }
}
