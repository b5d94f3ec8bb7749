//! Proofs that are files: C2SP `tlog-proof`, and what Sealog puts into its `extra` line.
//!
//! The file leads from a heads entry to the store's checkpoint, which any verifier of C2SP can check. The
//! extra data leads from one event, or from one chain's head, to that entry.

use std::fmt;

use sealog_core::canonical;
use sealog_core::event::StoredEvent;
use sealog_core::hex;
use sealog_core::id::{Hash, Mode};

use crate::entry::heads_text;
use crate::heads::{self, Blind, Head, TrieError};
use crate::leaf::{self, Tag};
use crate::merkle::{self, PROOF_HASHES_MAX, ProofError};
use crate::note::{NOTE_BYTES_MAX, Note};
use crate::policy::{Accepted, Policy, Refused};
use crate::salt::Salt;
use crate::text::{Lines, Malformed, base64, malformed, unbase64};

/// Longest extra data: 63 and 256 hashes in base64 are a third of it.
pub const EXTRA_BYTES_MAX: usize = 1 << 16;
/// Longest file, the note and the extra data in base64 included.
pub const FILE_BYTES_MAX: usize = NOTE_BYTES_MAX + 2 * EXTRA_BYTES_MAX;

const HEADER: &str = "c2sp.org/tlog-proof@v1";
const EVENT: &str = "sealog/event-proof/v1";
const HEAD: &str = "sealog/head-proof/v1";

/// A file: an entry is in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlogProof {
    pub extra: Option<Vec<u8>>,
    pub index: u64,
    pub path: Vec<Hash>,
    pub checkpoint: Note,
}

/// Why a file does not prove what it is said to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileError {
    Checkpoint(Refused),
    Path(ProofError),
}

impl FileError {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            FileError::Checkpoint(refused) => refused.reason(),
            FileError::Path(_) => "root",
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Checkpoint(refused) => refused.fmt(f),
            FileError::Path(error) => write!(f, "from the entry to the checkpoint: {error}"),
        }
    }
}

impl std::error::Error for FileError {}

impl TlogProof {
    pub fn parse(bytes: &[u8]) -> Result<TlogProof, Malformed> {
        if bytes.len() > FILE_BYTES_MAX {
            return Err(malformed("proof", "must have at most 1179648 bytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("proof", "must be UTF-8"))?;
        let mut lines = Lines::of(text);
        if lines.next("header")? != HEADER {
            return Err(lines.wrong("header", "must be `c2sp.org/tlog-proof@v1`"));
        }
        let extra = if lines.rest().starts_with("extra ") {
            let value = lines.value("extra")?;
            let extra = unbase64(value).filter(|extra| (1..=EXTRA_BYTES_MAX).contains(&extra.len()));
            Some(extra.ok_or_else(|| lines.wrong("extra", "must be 1 to 65536 bytes in base64"))?)
        } else {
            None
        };
        let index = lines.value("index")?;
        let index = lines.decimal("index", index)?;
        let path = lines.hashes("path", PROOF_HASHES_MAX)?;
        lines.empty()?;
        let checkpoint = Note::parse(lines.rest().as_bytes())?;
        Ok(TlogProof { extra, index, path, checkpoint })
    }

    /// Whether the entry is in a tree whose checkpoint the policy accepts.
    pub fn verify(&self, entry: &[u8], policy: &Policy) -> Result<Accepted, FileError> {
        let accepted = policy.verify(&self.checkpoint).map_err(FileError::Checkpoint)?;
        let (size, root) = (accepted.checkpoint.size, &accepted.checkpoint.root);
        merkle::verify_inclusion(merkle::leaf_hash(entry), self.index, size, root, &self.path)
            .map_err(FileError::Path)?;
        Ok(accepted)
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEADER}")?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", base64(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        put_hashes(f, &self.path)?;
        write!(f, "\n{}", self.checkpoint)
    }
}

/// From a chain's head to a heads entry of the store log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadPath {
    pub time_ms: u64,
    pub blind: Blind,
    pub path: Vec<Hash>,
}

impl HeadPath {
    /// The text of the entry that has this head.
    pub fn entry(&self, tag: Tag, size: u64, root: Hash) -> Result<String, TrieError> {
        let head = Head { tag, size, root, blind: self.blind };
        let root = heads::root_with(&tag, &head.hidden(), &self.path)?;
        Ok(heads_text(self.time_ms, &root))
    }

    fn parse(lines: &mut Lines<'_>) -> Result<HeadPath, Malformed> {
        lines.empty()?;
        let time = lines.value("time")?;
        let time_ms = lines.decimal("time", time)?;
        let blind = lines.value("blind")?;
        let blind = Blind(lines.hex("blind", blind)?);
        let path = lines.hashes("path", heads::PATH_HASHES_MAX)?;
        lines.end()?;
        Ok(HeadPath { time_ms, blind, path })
    }
}

impl fmt::Display for HeadPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\ntime {}\nblind {}\n", self.time_ms, hex::encode(&self.blind.0))?;
        put_hashes(f, &self.path)
    }
}

/// How the private fields of an event are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Private {
    Salt(Salt),
    /// The salt was erased, or the reader may not have it.
    Commitment(Hash),
}

/// From an event to a heads entry of the store log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventProof {
    pub mode: Mode,
    pub chain_seq: u64,
    pub private: Private,
    /// Of the chain's tree.
    pub size: u64,
    pub path: Vec<Hash>,
    pub head: HeadPath,
}

/// Why an event is not the one that a proof is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventError {
    /// The proof is about another place in the chain.
    Seq {
        proof: u64,
        event: u64,
    },
    /// The hash of this version is not known here.
    Schema {
        schema_version: u32,
    },
    /// The event's content does not match its own hash.
    Hash,
    /// The event shows a private field, and the proof has no salt to check it with.
    Annotations,
    Leaf(leaf::TooLong),
    Path(ProofError),
    Trie(TrieError),
}

impl EventError {
    /// One word for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            EventError::Seq { .. } => "seq",
            EventError::Schema { .. } => "schema",
            EventError::Hash => "hash",
            EventError::Annotations => "annotations",
            EventError::Leaf(_) => "leaf",
            EventError::Path(_) | EventError::Trie(_) => "root",
        }
    }
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EventError::Seq { proof, event } => {
                write!(f, "the proof is about event #{proof}, and the event is #{event}")
            }
            EventError::Schema { schema_version } => {
                write!(f, "`schema_version` {schema_version} is not known; use a newer verifier")
            }
            EventError::Hash => f.write_str("the event was changed: its content does not match its `hash`"),
            EventError::Annotations => {
                f.write_str("the event shows private fields, but its proof has no salt for them")
            }
            EventError::Leaf(error) => error.fmt(f),
            EventError::Path(error) => write!(f, "from the event to the chain's root: {error}"),
            EventError::Trie(error) => write!(f, "from the chain's head to the trie: {error}"),
        }
    }
}

impl std::error::Error for EventError {}

impl EventProof {
    pub fn parse(extra: &[u8]) -> Result<EventProof, Malformed> {
        let mut lines = start(extra, EVENT, "must be `sealog/event-proof/v1`")?;
        let mode = match lines.value("mode")? {
            "live" => Mode::Live,
            "test" => Mode::Test,
            _ => return Err(lines.wrong("mode", "must be `live` or `test`")),
        };
        let chain_seq = lines.value("seq")?;
        let chain_seq = lines.decimal("seq", chain_seq)?;
        let private = match lines.value("salt")? {
            "-" => {
                let private = lines.value("private")?;
                Private::Commitment(Hash(lines.hex("private", private)?))
            }
            salt => Private::Salt(Salt(lines.hex("salt", salt)?)),
        };
        let size = lines.value("size")?;
        let size = lines.decimal("size", size)?;
        let path = lines.hashes("path", PROOF_HASHES_MAX)?;
        let head = HeadPath::parse(&mut lines)?;
        Ok(EventProof { mode, chain_seq, private, size, path, head })
    }

    /// The text of the store log's entry that has this event, if the proof is right. Whether the store log
    /// has that entry is for [`TlogProof::verify`] to say.
    pub fn entry(&self, event: &StoredEvent) -> Result<String, EventError> {
        Ok(self.lead(event)?.entry)
    }

    /// The entry, and what the proof says of the chain if the store log has it.
    pub fn lead(&self, event: &StoredEvent) -> Result<Lead, EventError> {
        let sealed = &event.sealed;
        if sealed.chain_seq != self.chain_seq {
            return Err(EventError::Seq { proof: self.chain_seq, event: sealed.chain_seq });
        }
        if !event.has_known_schema() {
            return Err(EventError::Schema { schema_version: event.schema_version });
        }
        let text = event.text.as_str();
        let hash =
            canonical::hash(sealed.prev_hash, sealed.log_id, event.tenant_id, text, event.timestamp_ms);
        if hash != sealed.hash {
            return Err(EventError::Hash);
        }
        let private = match &self.private {
            Private::Salt(salt) => {
                leaf::private_commitment(salt, &event.annotations).map_err(EventError::Leaf)?
            }
            // A claim of erasure would otherwise cover a change.
            Private::Commitment(_) if leaf::shows_private(&event.annotations) => {
                return Err(EventError::Annotations);
            }
            Private::Commitment(commitment) => *commitment,
        };
        let leaf = leaf::leaf_hash(event, &private).map_err(EventError::Leaf)?;
        // Seq 0 wraps round to an index that no tree has.
        let index = self.chain_seq.wrapping_sub(1);
        let root = merkle::root_from_path(leaf, index, self.size, &self.path).map_err(EventError::Path)?;
        let up_to = merkle::root_up_to(leaf, index, self.size, &self.path).map_err(EventError::Path)?;
        let tag = Tag::of(event.chain(self.mode));
        let entry = self.head.entry(tag, self.size, root).map_err(EventError::Trie)?;
        Ok(Lead { entry, tag, root, up_to })
    }
}

/// Where a proof of an event leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lead {
    pub entry: String,
    pub tag: Tag,
    /// Of the chain's tree.
    pub root: Hash,
    /// Of the tree that ends with the event.
    pub up_to: Hash,
}

/// What goes into `extra`.
impl fmt::Display for EventProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{EVENT}\nmode {}\nseq {}\n", self.mode.as_str(), self.chain_seq)?;
        match &self.private {
            Private::Salt(salt) => writeln!(f, "salt {}", hex::encode(&salt.0))?,
            Private::Commitment(private) => write!(f, "salt -\nprivate {private}\n")?,
        }
        writeln!(f, "size {}", self.size)?;
        put_hashes(f, &self.path)?;
        self.head.fmt(f)
    }
}

/// From a chain's head to a heads entry of the store log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadProof {
    pub tag: Tag,
    pub size: u64,
    pub root: Hash,
    pub head: HeadPath,
}

impl HeadProof {
    pub fn parse(extra: &[u8]) -> Result<HeadProof, Malformed> {
        let mut lines = start(extra, HEAD, "must be `sealog/head-proof/v1`")?;
        let tag = lines.value("tag")?;
        let tag = Tag(Hash(lines.hex("tag", tag)?));
        let size = lines.value("size")?;
        let size = lines.decimal("size", size)?;
        let root = lines.value("root")?;
        let root = lines.hash("root", root)?;
        let head = HeadPath::parse(&mut lines)?;
        Ok(HeadProof { tag, size, root, head })
    }

    /// The text of the store log's entry that has this head, if the proof is right.
    pub fn entry(&self) -> Result<String, TrieError> {
        self.head.entry(self.tag, self.size, self.root)
    }
}

/// What goes into `extra`.
impl fmt::Display for HeadProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HEAD}\ntag {}\nsize {}\nroot {}\n", self.tag, self.size, base64(&self.root.0))?;
        self.head.fmt(f)
    }
}

fn start<'a>(extra: &'a [u8], kind: &str, problem: &'static str) -> Result<Lines<'a>, Malformed> {
    if extra.len() > EXTRA_BYTES_MAX {
        return Err(malformed("extra", "must have at most 65536 bytes"));
    }
    let text = std::str::from_utf8(extra).map_err(|_| malformed("extra", "must be UTF-8"))?;
    let mut lines = Lines::of(text);
    if lines.next("kind")? != kind {
        return Err(lines.wrong("kind", problem));
    }
    Ok(lines)
}

fn put_hashes(f: &mut fmt::Formatter<'_>, hashes: &[Hash]) -> fmt::Result {
    hashes.iter().try_for_each(|hash| writeln!(f, "{}", base64(&hash.0)))
}
