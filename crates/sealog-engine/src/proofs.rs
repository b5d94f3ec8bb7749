//! Proofs for a chain: that an event is a leaf of its tree, that a snapshot has the head of that tree, and
//! that a signed checkpoint of the store log covers the snapshot. Routes and pages give them out.

use std::sync::Arc;

use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash};
use sealog_store::StoreError;
use sealog_store::pool::Payer;
use sealog_tlog::log::salt_keys::RootKeys;
use sealog_tlog::log::{AtSnapshot, Found, HeadProof, PublishedHead, Signed, StoreLog};
use sealog_tlog::trees::TreeError;
use sealog_trust::heads::Blind;
use sealog_trust::leaf::{self, Tag};
use sealog_trust::note::Note;
use sealog_trust::proof::{EventProof, HeadPath, Private, TlogProof};
use sealog_trust::salt::Salt;

use crate::trust::Trust;

/// A snapshot, what it says of a chain, and the way from its entry to a signed checkpoint.
#[derive(Debug)]
pub struct Snapshot {
    pub head: HeadProof,
    pub signed: Signed,
    pub path: Vec<Hash>,
}

/// The head of a chain in a snapshot that has it.
#[derive(Debug)]
pub struct Present {
    pub size: u64,
    pub root: Hash,
    pub blind: Blind,
    pub path: Vec<Hash>,
}

/// Everything that a stranger needs to see that an event was published.
#[derive(Debug)]
pub struct ProvenEvent {
    pub chain: ChainId,
    pub seq: u64,
    pub snapshot: Snapshot,
    pub head: Present,
    /// From the leaf to the root of the chain's tree.
    pub path: Vec<Hash>,
    pub leaf: Hash,
    /// The commitment to the private fields, and what opens it.
    pub private: Hash,
    pub salt: Option<Salt>,
}

#[derive(Debug)]
pub enum NotProven {
    /// No signed tree has a snapshot at this index.
    Unknown,
    /// That snapshot is not kept. The nearest ones that are.
    Pruned {
        before: Option<u64>,
        after: Option<u64>,
    },
    /// No snapshot has the event so far, or the tree is being built again.
    NotYet,
    Store(StoreError),
    Broken(String),
}

impl From<StoreError> for NotProven {
    fn from(error: StoreError) -> NotProven {
        NotProven::Store(error)
    }
}

impl From<TreeError> for NotProven {
    fn from(error: TreeError) -> NotProven {
        match error {
            TreeError::NotYet { .. } => NotProven::NotYet,
            TreeError::Store(error) => NotProven::Store(error),
            error => NotProven::Broken(error.to_string()),
        }
    }
}

impl Trust {
    /// What a snapshot, by its index or the newest, says of a chain.
    pub async fn snapshot(&self, payer: Payer, tag: Tag, at: Option<u64>) -> Result<Snapshot, NotProven> {
        let read = self.read(payer, move |log| snapshot_of(log, tag, at));
        match read.await? {
            AtSnapshot::Is(snapshot) => Ok(snapshot),
            AtSnapshot::Unknown => Err(NotProven::Unknown),
            AtSnapshot::Pruned { before, after } => Err(NotProven::Pruned { before, after }),
        }
    }

    /// The newest snapshot, if its head of the chain has this event.
    pub async fn snapshot_with(
        &self,
        payer: Payer,
        tag: Tag,
        seq: u64,
    ) -> Result<(Snapshot, Present), NotProven> {
        with_event(self.read(payer, move |log| snapshot_of(log, tag, None)).await?, seq)
    }

    /// The way from an event to the newest checkpoint. Two reads: each is a turn in a queue.
    pub async fn prove(
        &self,
        payer: Payer,
        chain: ChainId,
        event: &StoredEvent,
    ) -> Result<ProvenEvent, NotProven> {
        let seq = event.sealed.chain_seq;
        let (tag, trees) = (Tag::of(chain), Arc::clone(&self.trees));
        let read = self.read(payer, move |log| {
            Ok((snapshot_of(log, tag, None)?, trees.salts().find(&[chain])?.remove(&chain)))
        });
        let (snapshot, keys) = read.await?;
        let (snapshot, head) = with_event(snapshot, seq)?;
        let (leaf, path) = self.trees.leaf_and_path(chain, seq, head.size).await?;
        let keys = keys.ok_or_else(|| NotProven::Broken("a chain has a tree and no salts".into()))?;
        let salt = keys.at(seq).and_then(|(salts, _)| salts.salt(seq));
        let (private, _) =
            sealed_leaf(event, &keys).ok_or_else(|| NotProven::Broken(format!("event {seq} has no leaf")))?;
        Ok(ProvenEvent { chain, seq, snapshot, head, path, leaf, private, salt })
    }

    /// The newest published head of a chain; nothing before the first.
    pub async fn published_head(
        &self,
        payer: Payer,
        chain: ChainId,
    ) -> Result<Option<PublishedHead>, StoreError> {
        let tag = Tag::of(chain);
        self.read(payer, move |log| log.published_head(tag)).await
    }

    /// Of a chain's salts. Nothing before its first leaf.
    pub async fn root_keys(&self, payer: Payer, chain: ChainId) -> Result<Option<RootKeys>, StoreError> {
        let trees = Arc::clone(&self.trees);
        let find = move |_: &StoreLog| Ok::<_, StoreError>(trees.salts().find(&[chain])?.remove(&chain));
        self.read(payer, find).await
    }
}

impl ProvenEvent {
    /// A file of C2SP `tlog-proof`. The salt is for readers of the event.
    pub fn file(self, reads_event: bool) -> Result<String, NotProven> {
        let private = match self.salt.filter(|_| reads_event) {
            Some(salt) => Private::Salt(salt),
            None => Private::Commitment(self.private),
        };
        let Present { size, blind, path, .. } = self.head;
        let head = HeadPath { time_ms: self.snapshot.head.time_ms, blind, path };
        let (mode, chain_seq) = (self.chain.mode, self.seq);
        let extra = EventProof { mode, chain_seq, private, size, path: self.path, head };
        self.snapshot.file(extra.to_string())
    }
}

impl Snapshot {
    /// A file of C2SP `tlog-proof` that says this of the snapshot.
    pub fn file(self, extra: String) -> Result<String, NotProven> {
        let checkpoint = Note::parse(self.signed.note.as_bytes());
        let checkpoint = checkpoint.map_err(|error| NotProven::Broken(error.to_string()))?;
        let (extra, index, path) = (Some(extra.into_bytes()), self.head.index, self.path);
        Ok(TlogProof { extra, index, path, checkpoint }.to_string())
    }
}

fn snapshot_of(log: &StoreLog, tag: Tag, at: Option<u64>) -> Result<AtSnapshot<Snapshot>, StoreError> {
    let head = match log.head_proof(tag, at)? {
        AtSnapshot::Is(head) => head,
        AtSnapshot::Unknown => return Ok(AtSnapshot::Unknown),
        AtSnapshot::Pruned { before, after } => return Ok(AtSnapshot::Pruned { before, after }),
    };
    let Some(signed) = log.newest()? else { return Ok(AtSnapshot::Unknown) };
    let path = log.inclusion(head.index, signed.tree.size)?;
    Ok(path.map_or(AtSnapshot::Unknown, |path| AtSnapshot::Is(Snapshot { head, signed, path })))
}

/// The newest snapshot, if its head of the chain has this event.
fn with_event(newest: AtSnapshot<Snapshot>, seq: u64) -> Result<(Snapshot, Present), NotProven> {
    let AtSnapshot::Is(snapshot) = newest else { return Err(NotProven::NotYet) };
    match &snapshot.head.found {
        Found::Present { size, root, blind, path } if *size >= seq => {
            let head = Present { size: *size, root: *root, blind: *blind, path: path.clone() };
            Ok((snapshot, head))
        }
        _ => Err(NotProven::NotYet),
    }
}

/// The commitment to an event's private fields and its leaf hash. Nothing if its salt was erased.
pub fn sealed_leaf(event: &StoredEvent, keys: &RootKeys) -> Option<(Hash, Hash)> {
    let (salts, _) = keys.at(event.sealed.chain_seq)?;
    let private = leaf::private_commitment(&salts.salt(event.sealed.chain_seq)?, &event.annotations).ok()?;
    Some((private, leaf::leaf_hash(event, &private).ok()?))
}
