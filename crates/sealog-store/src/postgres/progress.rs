//! How far a follower has come, and the bytes of it in a position.

use std::collections::{BTreeMap, VecDeque};

use sealog_core::chain::Head;
use sealog_core::id::Hash;

use super::rows::{Digest32, Id};
use crate::error::StoreError;
use crate::feed::{self, Change, Kind, Position, Scope};

/// Rows that are asked for at once, in the order of their ids. More changes than that take several polls.
pub(super) const PAGE_ROWS: usize = 1000;

/// Up to where changes were seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Transactions(Transactions),
    /// On Citus.
    Numbers(Numbers),
    /// On Citus, of one chain.
    Head(Head),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Transactions {
    /// The highest transaction that had changed a chain.
    pub(super) changed: u64,
    /// Transactions below it that were in progress.
    pub(super) in_progress: Vec<u64>,
    /// An event that `changed` has left: its chain, seq and hash. Nothing if it was not there even then.
    pub(super) witness: Option<(Id, u64, Digest32)>,
}

/// How far a follower has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Which database cluster the ids of transactions are from; a dump that is restored has others.
    pub(super) cluster: u64,
    /// Nothing at the beginning.
    pub(super) base: Option<Seen>,
    /// How far a scan of more rows than a page has got, and the base when it is done.
    pub(super) scan: Option<(Seen, Id)>,
}

/// What one look has found.
pub(super) struct Page {
    pub(super) cluster: u64,
    /// At the moment of the look.
    pub(super) seen: Seen,
    /// Whether the base is part of this database's past.
    pub(super) known: bool,
    pub(super) rows: VecDeque<Found>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: Id,
    pub(super) change: Change,
    /// The next look finds it as well, if nothing more has changed.
    pub(super) is_late: bool,
}

/// The last number of a bucket, and in which life it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) life: [u8; 16],
    pub(super) number: u64,
}

/// By bucket.
pub(super) type Numbers = BTreeMap<u16, Number>;

impl Progress {
    /// Takes over what a poll has found: rows to announce, none if the scan has to begin again.
    pub(super) fn take(&mut self, page: Page) -> VecDeque<Found> {
        let cluster = std::mem::replace(&mut self.cluster, page.cluster);
        let began_elsewhere = cluster != 0 && cluster != page.cluster;
        if !page.known && (self.base.is_some() || began_elsewhere) {
            tracing::warn!(
                "the database went back before a position of the feed (failover or restore); announcing every chain again"
            );
            self.base = None;
            self.scan = None;
            return VecDeque::new();
        }
        // What a later page has seen is not all of what was seen at its moment.
        let from = self.scan.take();
        self.scan = Some(from.unwrap_or((page.seen, Id([0; 16]))));
        page.rows
    }

    /// What is known if the position is from before or after the database was distributed: nothing.
    pub(super) fn on_this_store(self, distributed: bool) -> Progress {
        let mut all = self.base.iter().chain(self.scan.as_ref().map(|(seen, _)| seen));
        match all.all(|seen| matches!(seen, Seen::Transactions(_)) != distributed) {
            true => self,
            false => Progress::default(),
        }
    }

    /// A scan has come to its end.
    pub(super) fn finish(&mut self) {
        if let Some((seen, _)) = self.scan.take() {
            self.base = Some(seen);
        }
    }

    pub(super) fn position(&self, scope: &Scope, store_id: [u8; 16]) -> Position {
        let mut out = store_id.to_vec();
        out.extend_from_slice(&self.cluster.to_le_bytes());
        put_seen(self.base.as_ref(), &mut out);
        put_seen(self.scan.as_ref().map(|(seen, _)| seen), &mut out);
        out.extend_from_slice(&self.scan.as_ref().map_or([0; 16], |(_, id)| id.0));
        Position::new(Kind::Postgres, scope, &out)
    }

    pub(super) fn parse(
        position: &Position,
        scope: &Scope,
        store_id: [u8; 16],
    ) -> Result<Progress, StoreError> {
        let mut take = Take(position.content(Kind::Postgres, scope)?);
        let id: [u8; 16] = take.array().ok_or_else(feed::malformed)?;
        if id != store_id {
            return Err(feed::foreign());
        }
        let mut parse = || {
            let cluster = take.u64()?;
            let (base, scan) = (take.seen()?, take.seen()?);
            let at = Id(take.array()?);
            take.0.is_empty().then_some(Progress { cluster, base, scan: scan.map(|seen| (seen, at)) })
        };
        parse().ok_or_else(feed::malformed)
    }
}

fn put_seen(seen: Option<&Seen>, out: &mut Vec<u8>) {
    let Transactions { changed, in_progress, witness } = match seen {
        None => return out.push(0),
        Some(Seen::Transactions(transactions)) => transactions,
        Some(Seen::Numbers(numbers)) => {
            out.push(3);
            out.extend_from_slice(&(numbers.len() as u64).to_le_bytes());
            for (bucket, Number { life, number }) in numbers {
                out.extend_from_slice(&bucket.to_le_bytes());
                out.extend_from_slice(life);
                out.extend_from_slice(&number.to_le_bytes());
            }
            return;
        }
        Some(Seen::Head(head)) => {
            out.push(4);
            out.extend_from_slice(&head.chain_seq.to_le_bytes());
            out.extend_from_slice(&Id::of_ulid(head.log_id).0);
            out.extend_from_slice(&head.hash.0);
            return;
        }
    };
    out.push(if witness.is_some() { 2 } else { 1 });
    out.extend_from_slice(&changed.to_le_bytes());
    if let Some((id, seq, hash)) = witness {
        out.extend_from_slice(&id.0);
        out.extend_from_slice(&seq.to_le_bytes());
        out.extend_from_slice(&hash.0);
    }
    out.extend_from_slice(&(in_progress.len() as u64).to_le_bytes());
    in_progress.iter().for_each(|xid| out.extend_from_slice(&xid.to_le_bytes()));
}

/// Reads from the front of a position.
struct Take<'a>(&'a [u8]);

impl Take<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// The outer nothing is a position that ends too early.
    fn seen(&mut self) -> Option<Option<Seen>> {
        let [tag] = self.array()?;
        if tag == 0 {
            return Some(None);
        }
        if tag == 3 {
            let count = self.u64()?;
            let number = |take: &mut Self| {
                let bucket = u16::from_le_bytes(take.array()?);
                Some((bucket, Number { life: take.array()?, number: take.u64()? }))
            };
            let numbers = (0..count).map(|_| number(self)).collect::<Option<_>>()?;
            return Some(Some(Seen::Numbers(numbers)));
        }
        let changed = self.u64()?;
        if tag == 4 {
            let (log_id, hash) = (Id(self.array()?).ulid(), Hash(self.array()?));
            return Some(Some(Seen::Head(Head { chain_seq: changed, log_id, hash })));
        }
        let witness = match tag {
            1 => None,
            2 => Some((Id(self.array()?), self.u64()?, Digest32(self.array()?))),
            _ => return None,
        };
        let count = self.u64()?;
        let in_progress = (0..count).map(|_| self.u64()).collect::<Option<_>>()?;
        Some(Some(Seen::Transactions(Transactions { changed, in_progress, witness })))
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Ulid;

    use super::*;

    #[test]
    fn progress_reads_back_from_its_position_and_another_stores_is_refused() {
        let seen =
            |changed, witness| Seen::Transactions(Transactions { changed, in_progress: vec![7, 9], witness });
        let number = |number| Number { life: [number; 16], number: number.into() };
        let numbers = Seen::Numbers([(1, number(0)), (2, number(7))].into());
        let head = Seen::Head(Head { chain_seq: 9, log_id: Ulid(7), hash: Hash([2; 32]) });
        let witness = Some((Id([3; 16]), 12, Digest32([4; 32])));
        let all = [
            Progress::default(),
            Progress { cluster: 5, base: Some(seen(10, witness)), scan: None },
            Progress { cluster: 5, base: None, scan: Some((seen(11, None), Id([8; 16]))) },
            Progress { cluster: 5, base: Some(seen(10, None)), scan: Some((seen(11, witness), Id([8; 16]))) },
            Progress { cluster: 0, base: Some(numbers.clone()), scan: Some((numbers, Id([8; 16]))) },
            Progress { cluster: 0, base: Some(head.clone()), scan: None },
        ];
        for progress in all {
            let position = progress.position(&Scope::Everything, [1; 16]);
            assert_eq!(Progress::parse(&position, &Scope::Everything, [1; 16]), Ok(progress));
            assert_eq!(Progress::parse(&position, &Scope::Everything, [2; 16]), Err(feed::foreign()));
        }
        // What Citus has put there says nothing once the tables are not distributed, and the other way round.
        let position = |base| Progress { cluster: 5, base: Some(base), scan: None };
        assert_eq!(position(head.clone()).on_this_store(true), position(head.clone()));
        assert_eq!(position(head).on_this_store(false), Progress::default());
        assert_eq!(position(seen(10, None)).on_this_store(false), position(seen(10, None)));
        assert_eq!(position(seen(10, None)).on_this_store(true), Progress::default());
        let short = Position::new(Kind::Postgres, &Scope::Everything, &[1; 20]);
        assert_eq!(Progress::parse(&short, &Scope::Everything, [1; 16]), Err(feed::malformed()));
    }
}
