//! The worked example of the design, whose values were computed by another program.

use sealog_core::event::{Annotations, StoredEvent};
use sealog_core::hex;
use sealog_core::id::{Hash, Mode};
use sealog_trust::heads::{Blind, Head, Trie};
use sealog_trust::leaf::{self, Tag};
use sealog_trust::merkle;
use sealog_trust::note::SigningKey;
use sealog_trust::salt::{SaltKey, SaltKeys};

#[test]
fn the_worked_example_comes_out_as_it_was_computed_elsewhere() {
    let vectors: serde_json::Value =
        serde_json::from_str(include_str!("../../../../vectors/chains.json")).unwrap();
    let case =
        vectors["cases"].as_array().unwrap().iter().find(|case| case["name"] == "five events").unwrap();
    let texts = case["events"].as_array().unwrap();
    let mut events: Vec<StoredEvent> =
        texts.iter().map(|text| StoredEvent::parse_json(text.as_str().unwrap()).unwrap()).collect();
    events[1].annotations = Annotations {
        category: Some("data_access".into()),
        severity: Some("info".into()),
        ip_address: Some("203.0.113.9".into()),
        country: Some("FR".into()),
        city: Some("Paris".into()),
        ..events[1].annotations.clone()
    };

    let tag = Tag::of(events[0].chain(Mode::Live));
    assert_eq!(tag.to_string(), "888c4e4515ef525decbdb607ff9110bcfb39d0802c72556fc1a48eefaa7cbba8");
    let keys = SaltKeys::new(vec![SaltKey::root(counting(0))]).unwrap();
    let salt = keys.salt(2).unwrap();
    assert_eq!(hex::encode(&salt.0), "8c187072151b77237e40384b6c1b2f81");
    let private = |event: &StoredEvent| {
        leaf::private_commitment(&keys.salt(event.sealed.chain_seq).unwrap(), &event.annotations).unwrap()
    };
    assert_eq!(
        private(&events[1]).to_string(),
        "81d047876d319625fa51898ff17cfaf49d3b27872840c6b9e7650ef878d2ce61"
    );
    let leaves: Vec<Hash> =
        events.iter().map(|event| leaf::leaf_hash(event, &private(event)).unwrap()).collect();
    assert_eq!(leaves[1].to_string(), "ec99fa15764e58c89417b2bd7e30f83a557f7fd7b6f781356ef86d1a14e92554");

    // Both roots were published in base64, as checkpoints and entries show them.
    let root = merkle::root_of(&leaves);
    let text = sealog_trust::entry::heads_text(0, &root);
    assert_eq!(text, "sealog/heads/v1\n0\nZiORWd6OxckhHGanVJrNnR2CvjjWeuhH7Gt23232iBQ=\n");
    let head = Head { tag, size: 5, root, blind: Blind(counting(0x10)) };
    let trie = Trie::new(vec![(tag, head.hidden())]).unwrap();
    let text = sealog_trust::entry::heads_text(0, &trie.root());
    assert_eq!(text, "sealog/heads/v1\n0\nyO6HePZ52xQS0vR2zP50zgp7YYsoyLC4uGhClPZ3Qdg=\n");

    let key = SigningKey::new("sealog/00112233445566778899aabbccddeeff", &counting(0)).unwrap();
    assert_eq!(
        key.public().to_string(),
        "sealog/00112233445566778899aabbccddeeff+9ce68aa3+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4"
    );
    assert_eq!(keys.cover(1..=20_000_000).keys().len(), 32, "the number of keys that the design gives");
}

/// Bytes that count up from a first one.
fn counting<const N: usize>(first: u8) -> [u8; N] {
    std::array::from_fn(|at| first + u8::try_from(at).unwrap())
}
