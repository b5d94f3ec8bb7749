//! Signed notes and their keys, after C2SP `signed-note` and `tlog-cosignature`.

use std::fmt;

use ed25519_dalek::{Signer, SigningKey as Secret, VerifyingKey};
use sealog_core::hex;
use sha2::{Digest, Sha256};

use crate::text::{Malformed, NUMBER_MAX, base64, is_name, malformed, unbase64};

/// C2SP asks for 16 at least.
pub const SIGNATURES_MAX: usize = 64;
pub const NOTE_BYTES_MAX: usize = 1 << 20;
const NAME: &str = "must have a name that is not empty and has no white space and no `+`";

/// What a key signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Type `01`: Ed25519 over the note's text.
    Note,
    /// Type `04`: Ed25519 over a time and the text of a checkpoint, by a witness.
    Cosignature,
}

impl KeyKind {
    fn byte(self) -> u8 {
        match self {
            KeyKind::Note => 0x01,
            KeyKind::Cosignature => 0x04,
        }
    }
}

/// A public key with its name: a vkey, `NAME+ID+KEY`.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    id: [u8; 4],
    kind: KeyKind,
    key: VerifyingKey,
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [&[self.kind.byte()][..], self.key.as_bytes()].concat();
        write!(f, "{}+{}+{}", self.name, hex::encode(&self.id), base64(&key))
    }
}

impl VerifierKey {
    pub fn parse(text: &str) -> Result<VerifierKey, Malformed> {
        const FORM: &str = "must be `NAME+ID+KEY`: a name, 8 hex digits in lower case, a key in base64";
        let mut parts = text.splitn(3, '+');
        let mut part = || parts.next().ok_or(malformed("vkey", FORM));
        let (name, id, key) = (part()?, part()?, part()?);
        let id = hex::decode(id).ok_or(malformed("vkey", FORM))?;
        let key = unbase64(key).ok_or(malformed("vkey", FORM))?;
        let (kind, key) = match key.split_first() {
            Some((0x01, key)) => (KeyKind::Note, key),
            Some((0x04, key)) => (KeyKind::Cosignature, key),
            _ => return Err(malformed("vkey", "must have type 01 or 04; other types are not supported")),
        };
        let key = key.try_into().map_err(|_| malformed("vkey", "must have a public key of 32 bytes"))?;
        let key = VerifierKey::new(name, kind, key)?;
        if key.id != id {
            return Err(malformed("vkey", "has an id that is not that of its name and key; copy it again"));
        }
        Ok(key)
    }

    /// Refuses keys on which implementations of Ed25519 disagree: no point of the curve, a point of small
    /// order, a second spelling of a point.
    pub fn new(name: &str, kind: KeyKind, key: &[u8; 32]) -> Result<VerifierKey, Malformed> {
        if !is_name(name) {
            return Err(malformed("vkey", NAME));
        }
        let weak =
            malformed("vkey", "must have a public key that is a point of large order in its one spelling");
        let parsed = VerifyingKey::from_bytes(key).map_err(|_| weak.clone())?;
        if parsed.is_weak() || !is_below_prime(key) {
            return Err(weak);
        }
        let id =
            Sha256::new_with_prefix(name).chain_update([b'\n', kind.byte()]).chain_update(key).finalize();
        Ok(VerifierKey { name: name.to_owned(), id: *id.first_chunk().expect("32 bytes"), kind, key: parsed })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Whether both have the same public key, under whatever name.
    pub fn is_same_key(&self, other: &VerifierKey) -> bool {
        self.key == other.key
    }

    /// Whether a signature cannot tell the two apart.
    pub fn is_same_id(&self, other: &VerifierKey) -> bool {
        self.name == other.name && self.id == other.id
    }

    fn made(&self, signature: &Signature) -> bool {
        self.name == signature.name && self.id == signature.key_id
    }

    /// The time of a cosignature, 0 for other signatures; nothing if the signature is not by this key over
    /// this text.
    fn verify(&self, text: &str, signature: &[u8]) -> Option<u64> {
        match self.kind {
            KeyKind::Note => self.is_signed(text.as_bytes(), signature).then_some(0),
            KeyKind::Cosignature => {
                let (time, signature) = signature.split_first_chunk()?;
                let time_s = u64::from_be_bytes(*time);
                let message = cosigned(time_s, text);
                (time_s <= NUMBER_MAX && self.is_signed(message.as_bytes(), signature)).then_some(time_s)
            }
        }
    }

    /// Strict: the scalar is below the group's order, and no point has small order. Otherwise one signature
    /// could be changed into another, or fit several texts.
    fn is_signed(&self, message: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(message, &signature).is_ok())
    }
}

/// What a witness signs.
pub fn cosigned(time_s: u64, text: &str) -> String {
    format!("cosignature/v1\ntime {time_s}\n{text}")
}

/// Whether the encoded y is below 2^255 - 19. The library reduces a larger one and takes it as a second
/// spelling of the same point.
fn is_below_prime(key: &[u8; 32]) -> bool {
    key[31] & 0x7f != 0x7f || key[1..31].iter().any(|byte| *byte != 0xff) || key[0] < 0xed
}

/// A key that signs notes.
#[derive(Clone)]
pub struct SigningKey {
    public: VerifierKey,
    secret: Secret,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public)
    }
}

impl SigningKey {
    pub fn new(name: &str, seed: &[u8; 32]) -> Result<SigningKey, Malformed> {
        let secret = Secret::from_bytes(seed);
        let public = VerifierKey::new(name, KeyKind::Note, secret.verifying_key().as_bytes())?;
        Ok(SigningKey { public, secret })
    }

    /// Reads `PRIVATE+KEY+NAME+ID+KEY`, as other tools write it. The error shows nothing of the text.
    pub fn parse(text: &str) -> Result<SigningKey, Malformed> {
        const FORM: &str = "must be `PRIVATE+KEY+NAME+ID+KEY` with a key of type 01 and 32 bytes";
        let form = || malformed("signing key", FORM);
        let rest = text.strip_prefix("PRIVATE+KEY+").ok_or_else(form)?;
        let mut parts = rest.splitn(3, '+');
        let mut part = || parts.next().ok_or_else(form);
        let (name, id, key) = (part()?, part()?, part()?);
        let id: [u8; 4] = hex::decode(id).ok_or_else(form)?;
        let key = unbase64(key).ok_or_else(form)?;
        let Some((0x01, seed)) = key.split_first() else { return Err(form()) };
        let key = SigningKey::new(name, seed.try_into().map_err(|_| form())?)?;
        if key.public.id != id {
            return Err(malformed("signing key", "has an id that is not that of its name and key"));
        }
        Ok(key)
    }

    /// The text that [`SigningKey::parse`] reads. It is a secret.
    pub fn to_text(&self) -> String {
        let key = [&[KeyKind::Note.byte()][..], self.secret.as_bytes()].concat();
        format!("PRIVATE+KEY+{}+{}+{}", self.public.name, hex::encode(&self.public.id), base64(&key))
    }

    /// The same key under another name: its signatures are for another log.
    pub fn under(&self, name: &str) -> Result<SigningKey, Malformed> {
        SigningKey::new(name, self.secret.as_bytes())
    }

    pub fn public(&self) -> &VerifierKey {
        &self.public
    }

    pub fn sign(&self, text: &str) -> Signature {
        Signature {
            name: self.public.name.clone(),
            key_id: self.public.id,
            bytes: self.secret.sign(text.as_bytes()).to_bytes().to_vec(),
        }
    }
}

/// A line of a note that nothing is known about until its key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    pub name: String,
    pub key_id: [u8; 4],
    pub bytes: Vec<u8>,
}

impl Signature {
    /// Reads `— NAME BASE64`, without the line feed.
    pub fn parse(line: &str) -> Result<Signature, Malformed> {
        const FORM: &str = "must be `— NAME BASE64`, with a key id of 4 bytes before the signature";
        let form = || malformed("signature", FORM);
        let (name, encoded) =
            line.strip_prefix("— ").and_then(|rest| rest.split_once(' ')).ok_or_else(form)?;
        let bytes = unbase64(encoded).ok_or_else(form)?;
        match bytes.split_first_chunk() {
            Some((key_id, bytes)) if is_name(name) && !bytes.is_empty() => {
                Ok(Signature { name: name.to_owned(), key_id: *key_id, bytes: bytes.to_vec() })
            }
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "— {} {}", self.name, base64(&[&self.key_id[..], &self.bytes].concat()))
    }
}

/// A text with signatures. Nothing in it may be used before [`Note::verify`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    pub signatures: Vec<Signature>,
}

/// Why a note is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoteError {
    /// A known key did not make the signature under its name.
    Signature { name: String },
    /// None of the signatures is by a known key.
    UnknownKeys,
}

impl fmt::Display for NoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoteError::Signature { name } => write!(f, "the signature of {name} does not fit the text"),
            NoteError::UnknownKeys => {
                f.write_str("no signature is by a known key; check which vkeys you gave")
            }
        }
    }
}

impl std::error::Error for NoteError {}

/// A key whose signature fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signed {
    /// Its place among the keys that were given.
    pub key: usize,
    /// When a witness signed; 0 for other keys. The latest, if it signed several times.
    pub time_s: u64,
}

impl Note {
    /// Nothing if the text does not end with a line feed or has other control characters.
    pub fn new(text: String, signatures: Vec<Signature>) -> Option<Note> {
        (text.ends_with('\n') && is_printable(&text)).then_some(Note { text, signatures })
    }

    pub fn parse(bytes: &[u8]) -> Result<Note, Malformed> {
        const ENDS: &str =
            "must be a text that ends with a line feed, an empty line and signatures, a line each";
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(malformed("note", "must have at most 1048576 bytes"));
        }
        let note = std::str::from_utf8(bytes).map_err(|_| malformed("note", "must be UTF-8"))?;
        if !is_printable(note) {
            return Err(malformed("note", "must have no control characters but line feeds"));
        }
        let cut = note.rfind("\n\n").ok_or(malformed("note", ENDS))?;
        let (text, lines) = (&note[..=cut], &note[cut + 2..]);
        let lines = lines.strip_suffix('\n').ok_or(malformed("note", ENDS))?;
        let mut signatures = Vec::new();
        for line in lines.split('\n') {
            if signatures.len() == SIGNATURES_MAX {
                return Err(malformed("note", "must have at most 64 signatures"));
            }
            signatures.push(Signature::parse(line)?);
        }
        Ok(Note { text: text.to_owned(), signatures })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Checks every signature by one of the keys, of which no two have the same name and id. Others are
    /// ignored. A key that signed several times is listed once.
    pub fn verify(&self, keys: &[&VerifierKey]) -> Result<Vec<Signed>, NoteError> {
        let mut signed: Vec<Signed> = Vec::new();
        for signature in &self.signatures {
            let Some(key) = keys.iter().position(|key| key.made(signature)) else { continue };
            let time_s = keys[key].verify(&self.text, &signature.bytes);
            let time_s = time_s.ok_or_else(|| NoteError::Signature { name: signature.name.clone() })?;
            match signed.iter_mut().find(|earlier| earlier.key == key) {
                Some(earlier) => earlier.time_s = earlier.time_s.max(time_s),
                None => signed.push(Signed { key, time_s }),
            }
        }
        if signed.is_empty() { Err(NoteError::UnknownKeys) } else { Ok(signed) }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| writeln!(f, "{signature}"))
    }
}

fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| byte >= b' ' || byte == b'\n')
}
