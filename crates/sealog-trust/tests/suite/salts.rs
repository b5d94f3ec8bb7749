//! Rules of the salt tree.

use sealog_core::hex;
use sealog_trust::salt::{SEQ_MAX, SaltKey, SaltKeys, Walk};
use sha2::{Digest, Sha256};

fn keys() -> SaltKeys {
    SaltKeys::new(vec![SaltKey::root([7; 16])]).unwrap()
}

/// The salt as the design words it, without any of the shortcuts.
fn by_the_book(root: [u8; 16], chain_seq: u64) -> [u8; 16] {
    let mut key = root;
    for bit in (0..48).rev() {
        let children = Sha256::new_with_prefix([5]).chain_update(key).finalize();
        let half = if chain_seq >> bit & 1 == 0 { &children[..16] } else { &children[16..] };
        key = half.try_into().unwrap();
    }
    key
}

#[test]
fn a_salt_is_the_leaf_that_the_bits_of_its_seq_lead_to() {
    let keys = keys();
    let mut walk = Walk::new(&keys);
    let jumps = [0, 1, 2, 3, 4, 1_000_000, 1_000_001, 5, SEQ_MAX, SEQ_MAX - 1, SEQ_MAX, 1 << 47, 7];
    for chain_seq in jumps {
        let expected = by_the_book([7; 16], chain_seq);
        assert_eq!(walk.salt(chain_seq).unwrap().0, expected, "{chain_seq} on a walk");
        assert_eq!(keys.salt(chain_seq).unwrap().0, expected, "{chain_seq} alone");
    }
    assert_eq!(keys.salt(SEQ_MAX + 1), None);
    assert_eq!(keys.salt(u64::MAX), None);
}

#[test]
fn a_cover_opens_its_range_and_nothing_else() {
    let keys = keys();
    for (from, to) in [(1, 1), (1, 5), (3, 8), (100, 1123), (SEQ_MAX - 2, SEQ_MAX), (0, SEQ_MAX)] {
        let cover = keys.cover(from..=to);
        for chain_seq in [from, to, from + (to - from) / 2] {
            assert_eq!(cover.salt(chain_seq), keys.salt(chain_seq), "{chain_seq} of {from}..={to}");
        }
        for chain_seq in [from.checked_sub(1), Some(to + 1)].into_iter().flatten() {
            assert_eq!(cover.salt(chain_seq), None, "{chain_seq} of {from}..={to}");
        }
        assert!(cover.keys().len() <= 2 * 48, "{from}..={to} has {} keys", cover.keys().len());
    }
}

#[test]
fn punctured_salts_are_gone_and_all_others_stay() {
    let mut punctured = keys();
    for (from, to) in [(5, 5), (7, 9), (6, 6), (SEQ_MAX, SEQ_MAX), (1000, 1999)] {
        punctured = punctured.puncture(from..=to);
    }
    let gone = |chain_seq: u64| (5..=9).contains(&chain_seq) || (1000..=1999).contains(&chain_seq);
    let mut walk = Walk::new(&punctured);
    for chain_seq in 0..3000 {
        let expected = keys().salt(chain_seq).filter(|_| !gone(chain_seq));
        assert_eq!(walk.salt(chain_seq), expected, "{chain_seq}");
    }
    assert_eq!(punctured.salt(SEQ_MAX), None);
    assert!(punctured.salt(SEQ_MAX - 1).is_some());
    // A cover of a range with holes has the same holes.
    assert_eq!(punctured.cover(1..=20).salt(8), None);
    assert_eq!(punctured.cover(1..=20).salt(10), keys().salt(10));
    // No key that is left leads to what is gone.
    for key in punctured.keys() {
        assert!(!key.seqs().any(gone) || key.seqs().count() == 0, "{key:?}");
        if key.seqs().end() - key.seqs().start() > 5000 {
            break;
        }
    }
    assert_eq!(keys().puncture(0..=SEQ_MAX).keys(), []);
}

#[test]
fn keys_that_open_the_same_salt_twice_are_refused() {
    let cover = keys().cover(1..=6);
    let mut lines: Vec<SaltKey> = cover.keys().to_vec();
    assert_eq!(SaltKeys::new(lines.clone()), Some(cover));
    lines.push(SaltKey::parse(&format!("key 48 4 {}", "0".repeat(32))).unwrap());
    assert_eq!(SaltKeys::new(lines), None);
}

#[test]
fn a_key_line_reads_back_and_others_are_refused_by_their_field() {
    for key in keys().cover(1..=1_000_000).keys() {
        assert_eq!(SaltKey::parse(&key.to_line()).as_ref(), Ok(key));
        assert!(
            !format!("{key:?}").contains(&key.to_line()[key.to_line().len() - 32..]),
            "a secret is shown"
        );
    }
    let hex = hex::encode(&[7; 16]);
    for (line, field) in [
        (String::new(), "key"),
        (format!("keys 1 0 {hex}"), "key"),
        (format!("key 49 0 {hex}"), "DEPTH"),
        (format!("key 01 0 {hex}"), "DEPTH"),
        (format!("key -1 0 {hex}"), "DEPTH"),
        (format!("key 1 2 {hex}"), "PREFIX"),
        (format!("key 0 1 {hex}"), "PREFIX"),
        (format!("key 48 281474976710656 {hex}"), "PREFIX"),
        (format!("key 1  0 {hex}"), "PREFIX"),
        (format!("key 1 0 {}", hex.to_uppercase().replace('0', "A")), "HEX"),
        (format!("key 1 0 {}", &hex[1..]), "HEX"),
        (format!("key 1 0 {hex} "), "HEX"),
    ] {
        assert_eq!(SaltKey::parse(&line).unwrap_err().field, field, "{line:?}");
    }
}
