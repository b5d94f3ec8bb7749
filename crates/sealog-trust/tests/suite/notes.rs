//! Rules of notes, keys and policies that need keys of their own making.

use ed25519_dalek::{Signer, SigningKey as Secret};
use sealog_core::id::Hash;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::note::{KeyKind, Note, NoteError, Signature, SigningKey, VerifierKey, cosigned};
use sealog_trust::policy::{Policy, Refused};

/// The order of the group, as the 32 bytes of a signature's scalar.
const ORDER: [u8; 32] = [
    0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
];

struct Keeper {
    name: &'static str,
    secret: Secret,
    key: VerifierKey,
}

impl Keeper {
    /// A witness; the crate signs no cosignatures.
    fn new(name: &'static str, seed: u8) -> Keeper {
        let secret = Secret::from_bytes(&[seed; 32]);
        let public = secret.verifying_key();
        Keeper { name, key: VerifierKey::new(name, KeyKind::Cosignature, public.as_bytes()).unwrap(), secret }
    }

    fn cosign(&self, time_s: u64, text: &str) -> Signature {
        let signature = self.secret.sign(cosigned(time_s, text).as_bytes());
        let id = self.key.to_string().split('+').nth(1).unwrap().to_owned();
        let bytes = [&time_s.to_be_bytes()[..], &signature.to_bytes()].concat();
        Signature { name: self.name.to_owned(), key_id: sealog_core::hex::decode(&id).unwrap(), bytes }
    }
}

fn log() -> SigningKey {
    SigningKey::new("log.example", &[1; 32]).unwrap()
}

fn checkpoint() -> Checkpoint {
    Checkpoint { origin: "log.example".to_owned(), size: 3, root: Hash([9; 32]) }
}

fn signed() -> Note {
    checkpoint().sign(&[&log()]).unwrap()
}

#[test]
fn the_example_of_c2sp_verifies_and_a_changed_text_does_not() {
    let key = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
    let note = "This is an example message.\n\n— example.com/foo Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlT\
                gK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
    let key = VerifierKey::parse(key).unwrap();
    let parsed = Note::parse(note.as_bytes()).unwrap();
    assert_eq!(parsed.verify(&[&key]).unwrap().len(), 1);
    assert_eq!(parsed.to_string(), note);
    let changed = Note::parse(note.replace("example message", "exemple message").as_bytes()).unwrap();
    assert_eq!(changed.verify(&[&key]), Err(NoteError::Signature { name: "example.com/foo".to_owned() }));
}

#[test]
fn a_signing_key_reads_back_and_shows_itself_to_no_log() {
    let key = log();
    let text = key.to_text();
    assert!(text.starts_with("PRIVATE+KEY+log.example+"), "the form of other tools");
    assert_eq!(SigningKey::parse(&text).unwrap().sign("x\n"), key.sign("x\n"));
    let seed = text.rsplit('+').next().unwrap();
    assert!(!format!("{key:?}").contains(seed));
    for wrong in
        [text.replace("PRIVATE+", ""), text.replace("log.example", "log2.example"), format!("{text}A")]
    {
        let problem = SigningKey::parse(&wrong).unwrap_err().to_string();
        assert!(problem.contains("signing key") && !problem.contains(seed), "{problem}");
    }
}

#[test]
fn a_valid_signature_by_an_unknown_key_counts_for_nothing() {
    let note = signed();
    assert_eq!(note.verify(&[]), Err(NoteError::UnknownKeys));
    let other = SigningKey::new("log.example", &[2; 32]).unwrap();
    assert_eq!(note.verify(&[other.public()]), Err(NoteError::UnknownKeys), "the same name is not enough");
    assert_eq!(note.verify(&[log().public()]).unwrap().len(), 1);
}

#[test]
fn a_broken_signature_of_a_known_key_spoils_the_note_beside_good_ones() {
    let witness = Keeper::new("w.example", 5);
    let mut note = signed();
    note.signatures.push(witness.cosign(100, note.text()));
    let keys = [log().public().clone(), witness.key.clone()];
    let keys = [&keys[0], &keys[1]];
    assert_eq!(note.verify(&keys).unwrap().len(), 2);
    for at in 0..2 {
        for bit in [0, 64, 8 * (note.signatures[at].bytes.len() - 1)] {
            let mut broken = note.clone();
            broken.signatures[at].bytes[bit / 8] ^= 1;
            assert!(matches!(broken.verify(&keys), Err(NoteError::Signature { .. })), "{at} {bit}");
            // It spoils nothing for a verifier that does not know the key.
            assert!(broken.verify(&[keys[1 - at]]).is_ok());
        }
    }
}

#[test]
fn two_signatures_of_one_key_are_both_checked_and_count_once() {
    let witness = Keeper::new("w.example", 5);
    let mut note = signed();
    note.signatures.extend([witness.cosign(200, note.text()), witness.cosign(100, note.text())]);
    note.signatures.push(note.signatures[0].clone());
    let log = log();
    let keys = [log.public(), &witness.key];
    let counted: Vec<(usize, u64)> =
        note.verify(&keys).unwrap().iter().map(|signed| (signed.key, signed.time_s)).collect();
    assert_eq!(counted, [(0, 0), (1, 200)]);
    note.signatures[2].bytes[70] ^= 1;
    assert!(matches!(note.verify(&keys), Err(NoteError::Signature { .. })), "the second one is checked too");
}

#[test]
fn a_scalar_above_the_group_order_is_refused() {
    let mut note = signed();
    let scalar = &mut note.signatures[0].bytes[32..];
    let mut carry = 0u16;
    for (byte, add) in scalar.iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(add) + carry;
        *byte = sum.to_le_bytes()[0];
        carry = sum >> 8;
    }
    assert_eq!(carry, 0, "the sum still has 32 bytes");
    assert!(matches!(note.verify(&[log().public()]), Err(NoteError::Signature { .. })));
}

#[test]
fn keys_on_which_implementations_disagree_are_refused() {
    let mut neutral = [0; 32];
    neutral[0] = 1;
    let mut above_prime = [0xff; 32];
    above_prime[31] = 0x7f;
    above_prime[0] = 0xed + 3; // y = 3 in a second spelling
    let mut three = [0; 32];
    three[0] = 3;
    let no_point = (0..=255u8).map(|first| {
        let mut key = [0; 32];
        key[0] = first;
        key
    });
    let no_point = no_point.filter(|key| ed25519_dalek::VerifyingKey::from_bytes(key).is_err());
    assert!(VerifierKey::new("k", KeyKind::Note, &three).is_ok(), "3 is the y of a point");
    for key in [neutral, [0; 32], above_prime].into_iter().chain(no_point) {
        let problem = VerifierKey::new("k", KeyKind::Note, &key).unwrap_err();
        assert!(problem.to_string().contains("large order"), "{key:?}");
    }
}

#[test]
fn a_cosignature_binds_its_time_and_is_no_signature_of_the_log() {
    let witness = Keeper::new("log.example", 5);
    let text = checkpoint().to_string();
    let cosignature = witness.cosign(1_700_000_000, &text);
    let note = Note::new(text.clone(), vec![cosignature.clone()]).unwrap();
    assert_eq!(note.verify(&[&witness.key]).unwrap()[0].time_s, 1_700_000_000);
    let mut later = cosignature.clone();
    later.bytes[7] ^= 1;
    let note = Note::new(text.clone(), vec![later]).unwrap();
    assert!(matches!(note.verify(&[&witness.key]), Err(NoteError::Signature { .. })));
    // Past the largest signed number.
    let note = Note::new(text.clone(), vec![witness.cosign(1 << 63, &text)]).unwrap();
    assert!(matches!(note.verify(&[&witness.key]), Err(NoteError::Signature { .. })));
    // The same public key as a log's does not turn the cosignature into a signature.
    let as_log = VerifierKey::new(
        "log.example",
        KeyKind::Note,
        Secret::from_bytes(&[5; 32]).verifying_key().as_bytes(),
    );
    let policy = Policy::of_log(as_log.unwrap());
    let note = Note::new(text, vec![cosignature]).unwrap();
    assert_eq!(policy.verify(&note), Err(Refused::Unsigned { origin: "log.example".to_owned() }));
}

#[test]
fn a_quorum_of_groups_is_met_by_the_witnesses_that_it_names_and_no_fewer() {
    let witnesses: Vec<Keeper> = (0..6u8)
        .map(|number| Keeper::new(["x1", "x2", "x3", "y1", "y2", "y3"][usize::from(number)], 10 + number))
        .collect();
    let mut policy = format!("# example of C2SP\nlog {}\n\n", log().public());
    for witness in &witnesses {
        policy += &format!("witness {} {} https://{0}.example\n", witness.name, witness.key);
    }
    policy += "group X 2 x1 x2 x3\ngroup\tY  any y1 y2 y3 \ngroup XY all X Y\nquorum XY\n";
    let policy = Policy::parse(policy.as_bytes()).unwrap();
    for chosen in 0..64u32 {
        let mut note = signed();
        for (at, witness) in witnesses.iter().enumerate() {
            // Signing twice must not count twice.
            for _ in 0..2 * (chosen >> at & 1) {
                note.signatures.push(witness.cosign(5, note.text()));
            }
        }
        let met = (chosen & 0b111).count_ones() >= 2 && chosen >> 3 != 0;
        assert_eq!(policy.verify(&note).is_ok(), met, "{chosen:06b}");
        note.signatures.remove(0);
        let problem = policy.verify(&note).unwrap_err();
        assert!(matches!(problem, Refused::Unsigned { .. }), "witnesses without the log: {problem}");
    }
}

#[test]
fn a_note_of_64_signatures_is_read_and_one_of_65_is_not() {
    let mut note = signed();
    note.signatures = vec![note.signatures[0].clone(); 64];
    assert!(Note::parse(note.to_string().as_bytes()).is_ok());
    note.signatures.push(note.signatures[0].clone());
    let problem = Note::parse(note.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(problem, "`note` must have at most 64 signatures");
}
