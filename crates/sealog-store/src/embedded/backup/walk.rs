//! Segments one after the other, and what they come to: the head of each chain, and whether it is whole.

use std::collections::BTreeMap;
use std::fmt;

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_core::verify::{Before, Broken, Check, Item};

use super::segment::{Part, SegmentContents};

/// A walk over the segments of a log, in their order.
#[derive(Default)]
pub struct Walk {
    chains: BTreeMap<ChainId, Walked>,
    pub events: u64,
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("chains", &self.chains.len()).field("events", &self.events).finish()
    }
}

struct Walked {
    head: Head,
    check: Option<Check>,
    /// Damaged events that no later one has replaced yet.
    damaged: Vec<u64>,
}

/// How a chain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    pub head: Head,
    /// Of a walk that verified.
    pub broken: Option<Broken>,
}

impl Walk {
    /// Begins behind these heads: what an earlier walk came to, or the last events that were dropped.
    pub fn behind(heads: impl IntoIterator<Item = (ChainId, Head)>) -> Walk {
        let begun = |(chain, head)| (chain, Walked { head, check: None, damaged: Vec::new() });
        Walk { chains: heads.into_iter().map(begun).collect(), events: 0 }
    }

    /// The next segment. Either all were read to be verified, or none.
    pub fn add(&mut self, contents: SegmentContents) {
        self.events += contents.events;
        for (chain, part) in contents.parts {
            let walked = self.chains.entry(chain).or_insert_with(|| Walked {
                head: Head::EMPTY,
                check: None,
                damaged: Vec::new(),
            });
            walked.add(part);
        }
    }

    /// The last event of each chain.
    pub fn heads(&self) -> BTreeMap<ChainId, Head> {
        self.chains.iter().map(|(chain, walked)| (*chain, walked.head)).collect()
    }

    /// Of each chain, its last event and what is wrong with it.
    pub fn finish(self) -> BTreeMap<ChainId, Ended> {
        self.chains.into_iter().map(|(chain, walked)| (chain, walked.finish())).collect()
    }
}

impl Walked {
    fn check(&mut self) -> &mut Check {
        let before = Before::Event { hash: self.head.hash, log_id: self.head.log_id };
        self.check.get_or_insert_with(|| Check::new(self.head.chain_seq + 1, u64::MAX, before))
    }

    fn add(&mut self, part: Part) {
        let first_seq = match &part {
            Part::Sound(run) => run.first_seq,
            Part::Unsound(event) => event.sealed.chain_seq,
            Part::Damaged { chain_seq } => {
                // The check begins behind what came before this.
                self.check();
                self.damaged.push(*chain_seq);
                return;
            }
        };
        // An accepted loss goes on with a smaller seq: what stood there is replaced.
        self.damaged.retain(|seq| *seq < first_seq);
        for chain_seq in std::mem::take(&mut self.damaged) {
            self.check().item(&Item::Damaged { chain_seq });
        }
        match part {
            Part::Sound(run) => {
                if let Some(stretch) = &run.stretch {
                    self.check().stretch(stretch);
                }
                self.head = run.head;
            }
            Part::Unsound(event) => {
                self.check().event(&event);
                self.head = event.head();
            }
            Part::Damaged { .. } => {}
        }
    }

    fn finish(mut self) -> Ended {
        for chain_seq in std::mem::take(&mut self.damaged) {
            self.check().item(&Item::Damaged { chain_seq });
        }
        let head = self.head;
        Ended { head, broken: self.check.and_then(|check| check.finish_unbounded().broken) }
    }
}
