//! A tree while it grows: its right edge, and the hashes that its tiles get.

use std::collections::BTreeMap;

use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash};
use sealog_core::verify::Item;
use sealog_store::StoreError;
use sealog_store::loss::Loss;
use sealog_trust::leaf;
use sealog_trust::merkle::{CompactRange, Node};
use sealog_trust::salt::{SEQ_MAX, Walk};
use sealog_trust::tile::WIDTH;

use super::{Cut, Stopped};
use crate::log::salt_keys::{RootKeys, SaltRoots};

/// Levels of a tree in one tile.
const HEIGHT: u8 = 8;

/// The tree of a chain, with what it has and the database does not.
#[derive(Clone, Debug)]
pub(super) struct Edge {
    pub chain: ChainId,
    /// Its number in the database; nothing for a new tree.
    pub number: Option<u64>,
    /// With the complete subtrees of the whole tree.
    pub range: CompactRange,
    /// Of the last event in the tree.
    pub hash: Hash,
    pub cut: Option<Cut>,
    pub stopped: Option<Stopped>,
    /// Hashes that are not in the database yet.
    pub tiles: BTreeMap<Place, Growth>,
}

/// A tile of hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub level: u8,
    pub index: u64,
}

/// What a tile gets behind the hashes that it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Growth {
    pub has: u16,
    pub hashes: Vec<u8>,
}

/// How far the events of a piece have led.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Grown {
    All,
    /// The tree cannot take the event behind it.
    Stopped(Stopped),
    /// The event behind it continues other events than those in the tree.
    Differs,
}

impl Edge {
    pub(super) fn new(chain: ChainId) -> Edge {
        Edge {
            chain,
            number: None,
            range: CompactRange::default(),
            hash: Hash::ZERO,
            cut: None,
            stopped: None,
            tiles: BTreeMap::new(),
        }
    }

    pub(super) fn size(&self) -> u64 {
        self.range.size()
    }

    /// Takes the events that continue it, one leaf for each. Blocks where an accepted loss needs a key.
    pub(super) fn grow(
        &mut self,
        items: &[Item],
        keys: &mut RootKeys,
        salts: &SaltRoots,
    ) -> Result<Grown, StoreError> {
        let mut rest = items;
        while let Some(Item::Event(first)) = rest.first() {
            let Sealed { seq, hash } = sealed(first);
            let continues = (seq, first.sealed.prev_hash) == (self.size() + 1, self.hash);
            if continues && Loss::accepted_by(first).is_some() {
                *keys = salts.from_acceptance(self.chain, keys, seq, hash)?;
            }
            let next = self.size() + 1;
            let Some((of_these, seqs)) = keys.at(next) else {
                return Ok(Grown::Stopped(self.stop("it has no salt: no chain may have so many events")));
            };
            let mut walk = Walk::new(of_these);
            let (before, mut taken) = (rest, 0);
            for item in before {
                let Item::Event(event) = item else { break };
                let is_acceptance = taken > 0 && Loss::accepted_by(event).is_some();
                if is_acceptance || !seqs.contains(&(self.size() + 1)) {
                    break;
                }
                if let Some(ended) = self.take(event, &mut walk) {
                    return Ok(ended);
                }
                taken += 1;
            }
            rest = &rest[taken..];
        }
        match rest.first() {
            Some(Item::Damaged { chain_seq }) if *chain_seq == self.size() + 1 => {
                Ok(Grown::Stopped(self.stop("its record is damaged")))
            }
            Some(_) => Ok(Grown::Stopped(self.stop("it is missing"))),
            None => Ok(Grown::All),
        }
    }

    fn take(&mut self, event: &StoredEvent, walk: &mut Walk<'_>) -> Option<Grown> {
        let Sealed { seq, hash } = sealed(event);
        if seq != self.size() + 1 {
            return Some(Grown::Stopped(self.stop("it is missing")));
        }
        if event.sealed.prev_hash != self.hash {
            return Some(Grown::Differs);
        }
        let leaf = match leaf_of(event, walk) {
            Ok(leaf) => leaf,
            Err(problem) => return Some(Grown::Stopped(self.stop(&problem))),
        };
        let tiles = &mut self.tiles;
        let has_room = self.range.append(leaf, |node, hash| put(tiles, node, &hash));
        if !has_room {
            return Some(Grown::Stopped(self.stop("the tree is full")));
        }
        self.hash = hash;
        None
    }

    pub(super) fn stop(&self, problem: &str) -> Stopped {
        Stopped { at: self.size() + 1, problem: problem.to_owned() }
    }
}

struct Sealed {
    seq: u64,
    hash: Hash,
}

fn sealed(event: &StoredEvent) -> Sealed {
    Sealed { seq: event.sealed.chain_seq, hash: event.sealed.hash }
}

/// The leaf hash of an event, or why it has none.
pub(super) fn leaf_of(event: &StoredEvent, walk: &mut Walk<'_>) -> Result<Hash, String> {
    let seq = event.sealed.chain_seq;
    let salt = walk.salt(seq).ok_or_else(|| format!("only events up to {SEQ_MAX} have a salt"))?;
    let private = leaf::private_commitment(&salt, &event.annotations).map_err(|error| error.to_string())?;
    leaf::leaf_hash(event, &private).map_err(|error| error.to_string())
}

fn put(tiles: &mut BTreeMap<Place, Growth>, node: Node, hash: &Hash) {
    if !node.level.is_multiple_of(HEIGHT) {
        return;
    }
    let place = Place { level: node.level / HEIGHT, index: node.index / u64::from(WIDTH) };
    let has = u16::try_from(node.index % u64::from(WIDTH)).expect("below the width of a tile");
    let growth = tiles.entry(place).or_insert_with(|| Growth { has, hashes: Vec::new() });
    growth.hashes.extend_from_slice(&hash.0);
}
