//! A follower of the embedded store.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use sealog_core::id::{ChainId, Mode};

use super::recent::{Feed, Place, Recent, number};
use crate::bytes::Take;
use crate::embedded::contents::Contents;
use crate::embedded::index::chain_index::{Chain, LastChange, LastRecord, SealedRun};
use crate::embedded::log::format::SEGMENT_HEADER_LEN;
use crate::embedded::open_log::Handle;
use crate::error::StoreError;
use crate::feed::{self, Change, Follower, Kind, Position, Registration, Scope, Source, Start};
use crate::pool::{FairPool, Lane, Payer};
use crate::query::LOOKUP_COST;
use crate::types::{BoxFuture, IdMap};

/// Of those, what a follower looks at in one step, on an event loop.
const STEP_CHANGES: usize = 1 << 10;

impl Contents {
    fn durable_end(&self) -> Place {
        let (plan, _) = self.durable();
        Place { segment: plan.segment, offset: plan.end }
    }

    /// Where a position that was handed out earlier is in this log. The beginning, if it is in a part that
    /// this log does not have: it was lost, or this is an older copy.
    fn resume_at(&self, place: Place, salt: [u8; 8]) -> Place {
        if place.segment == 0 {
            return place;
        }
        // Chains that have changed last in what was dropped have no events left to read.
        let through = self.dropped_through();
        if place.segment <= through {
            return Place { segment: through, offset: u64::MAX };
        }
        let end = self.durable_end();
        // In a segment without events nothing was announced, and a start may have begun it anew.
        let unwritten = place.offset <= SEGMENT_HEADER_LEN as u64;
        if place.segment <= end.segment && (unwritten || self.salt_of(place.segment) == Some(salt)) {
            return place;
        }
        tracing::warn!(
            log = self.mode.as_str(),
            segment = place.segment,
            "a feed position is in a missing part of the log; announcing every chain again"
        );
        Place::default()
    }

    fn salt_of(&self, segment: u64) -> Option<[u8; 8]> {
        let salt = self.segment(segment)?.salt;
        Some(std::array::from_fn(|at| salt[at]))
    }

    /// Every chain of the scope that has changed behind `after`, up to an end: looks at what is known of all
    /// chains. A chain that changes while this looks may have changed before, too; for a `barrier` it is
    /// announced at the end, and again with its own place.
    fn changed_chains(&self, scope: &Scope, after: Place, barrier: bool) -> Result<Window, StoreError> {
        self.with_rebuild(|| {
            // Everything up to here is published. A chain that has changed behind it would move the position
            // past others that were looked at too early, and is found the next time.
            let end = self.durable_end();
            let chains = match scope {
                Scope::Chain(chain) => self.chains.get(*chain).into_iter().collect(),
                _ => self.chains.all(),
            };
            let mut changes = Vec::new();
            for chain in chains.iter().filter(|chain| scope.contains(chain.id)) {
                if let Some(place) = self.last_place(chain, after, end)?
                    && after < place
                    && (place <= end || barrier)
                {
                    changes.push((place.min(end), chain.id));
                }
            }
            changes.sort_unstable();
            Ok(Window { changes: changes.into(), end: end.max(after) })
        })
    }

    /// Where a chain has changed last; nothing if it has no events. In a segment that is full at this `end`
    /// that is the segment's end: the index may have to be read for more. All chains of the segment stand
    /// there then, also those whose index is in memory yet, or a position between them would leave some out.
    /// In the segment of the position it is the record's own place.
    fn last_place(&self, chain: &Chain, after: Place, end: Place) -> io::Result<Option<Place>> {
        let Some(LastChange { segment, record }) = chain.last_change() else { return Ok(None) };
        if segment != after.segment && segment < end.segment {
            return Ok(Some(Place {
                segment,
                offset: self.end_of(segment).map_or(u64::MAX, |end| end.final_len),
            }));
        }
        let position = match record {
            LastRecord::At(position) => Some(position),
            LastRecord::InFile(runs) => {
                let Some(run) = runs.last().map(SealedRun::run) else { return Ok(None) };
                let blocks = run.blocks(&self.caches)?;
                let Some(last) = blocks.count().checked_sub(1) else { return Ok(None) };
                let block = blocks.block(last)?;
                block.len().checked_sub(1).map(|last| block.position(last))
            }
        };
        Ok(position.map(|position| Place { segment, offset: u64::from(position) }))
    }
}

/// Changes that are announced in the order of their places, then the place up to which they were looked for.
#[derive(Debug, Default)]
struct Window {
    changes: VecDeque<(Place, ChainId)>,
    end: Place,
}

/// A follower's part of one log.
#[derive(Debug)]
struct Cursor {
    log: Arc<Handle>,
    /// Every chain whose last change is up to here has been announced.
    after: Place,
    /// The end of what was durable when a reader began to catch up.
    barrier: Place,
    window: Window,
}

impl Cursor {
    fn new(log: &Arc<Handle>, after: Place) -> Cursor {
        let window = Window { changes: VecDeque::new(), end: after };
        Cursor { log: Arc::clone(log), after, barrier: Place::default(), window }
    }

    fn show(&mut self, window: Window) {
        if window.changes.is_empty() {
            self.after = window.end;
        }
        self.window = window;
    }

    /// Takes changes out of the window. The place moves only past chains that are all taken: those of a full
    /// segment stand at one place.
    fn take(&mut self, limit: usize, out: &mut Vec<Change>) {
        let log = Arc::clone(&self.log.log().contents);
        while out.len() < limit
            && let Some((place, chain)) = self.window.changes.pop_front()
        {
            // As it is by now: later than the place, and durable.
            out.extend(log.chains.get(chain).map(|known| Change { chain, head: known.head().durable }));
            if self.window.changes.front().is_none_or(|(next, _)| place < *next) {
                self.after = place;
            }
        }
        if self.window.changes.is_empty() {
            self.after = self.window.end;
        }
    }

    /// The next of the last changes, if they reach back so far, and whether there are more.
    fn next_of(&self, recent: &Recent, scope: &Scope) -> Option<(Window, bool)> {
        recent.since.filter(|since| *since <= self.after)?;
        let from = recent.changes.partition_point(|(place, _)| *place <= self.after);
        let until = recent.changes.len().min(from + STEP_CHANGES);
        let step = recent.changes.range(from..until);
        let end = step.clone().next_back().map_or(self.after, |(place, _)| *place);
        let mut last: IdMap<ChainId, Place> = IdMap::default();
        last.extend(step.filter(|(_, chain)| scope.contains(*chain)).map(|(place, chain)| (*chain, *place)));
        let mut changes: Vec<_> = last.into_iter().map(|(chain, place)| (place, chain)).collect();
        changes.sort_unstable();
        Some((Window { changes: changes.into(), end }, until < recent.changes.len()))
    }
}

#[derive(Debug)]
struct EmbeddedFollower {
    scope: Scope,
    cursors: Vec<Cursor>,
    registration: Registration<[Recent; 2]>,
    pool: Arc<FairPool>,
    store_id: u64,
}

/// Begins to follow the logs of a store.
pub(crate) fn follow(
    feed: &Arc<Feed>,
    logs: [&Arc<Handle>; 2],
    pool: &Arc<FairPool>,
    scope: Scope,
    start: &Start,
) -> Result<Follower, StoreError> {
    let store_id = logs[0].log().contents.salt.id();
    let of_scope = |log: &&Arc<Handle>| match scope {
        Scope::Chain(chain) => log.log().contents.mode == chain.mode,
        _ => true,
    };
    let logs: Vec<&Arc<Handle>> = logs.into_iter().filter(of_scope).collect();
    let places = match start {
        Start::Beginning => vec![Place::default(); logs.len()],
        Start::Now => logs.iter().map(|log| log.log().contents.durable_end()).collect(),
        Start::After(position) => locate(position, &scope, store_id, &logs)?,
    };
    Ok(Follower::new(EmbeddedFollower {
        scope,
        cursors: logs.into_iter().zip(places).map(|(log, after)| Cursor::new(log, after)).collect(),
        // Before the first look, so that nothing falls between that and the first wait.
        registration: feed.register(scope),
        pool: Arc::clone(pool),
        store_id,
    }))
}

/// The places that a position names.
fn locate(
    position: &Position,
    scope: &Scope,
    store_id: u64,
    logs: &[&Arc<Handle>],
) -> Result<Vec<Place>, StoreError> {
    let mut take = Take(position.content(Kind::Embedded, scope)?);
    let mut parse = || {
        let id = take.u64()?;
        let place = |take: &mut Take<'_>| {
            Some((Place { segment: take.u64()?, offset: take.u64()? }, take.array::<8>()?))
        };
        let places = logs.iter().map(|_| place(&mut take)).collect::<Option<Vec<_>>>()?;
        take.0.is_empty().then_some((id, places))
    };
    let (id, places) = parse().ok_or_else(feed::malformed)?;
    let named = || logs.iter().zip(&places);
    // The id is lost with the salt of the indexes; a segment's own salt proves as much.
    let proven = |(log, (place, salt)): (&&Arc<Handle>, &(Place, [u8; 8]))| {
        log.log().contents.salt_of(place.segment) == Some(*salt)
    };
    if id != store_id && !named().any(proven) {
        return Err(feed::foreign());
    }
    Ok(named().map(|(log, (place, salt))| log.log().contents.resume_at(*place, *salt)).collect())
}

impl Source for EmbeddedFollower {
    fn next(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Change>, StoreError>> {
        Box::pin(async move {
            loop {
                let mut more = false;
                for at in 0..self.cursors.len() {
                    more |= self.look(at).await?;
                }
                let changes = self.take(limit);
                if !changes.is_empty() {
                    return Ok(changes);
                }
                if !more {
                    self.registration.wait().await?;
                }
            }
        })
    }

    fn set_barrier(&mut self) {
        for cursor in &mut self.cursors {
            cursor.barrier = cursor.log.log().contents.durable_end();
        }
    }

    fn next_before_barrier(
        &mut self,
        limit: usize,
    ) -> BoxFuture<'_, Result<Option<Vec<Change>>, StoreError>> {
        Box::pin(async move {
            loop {
                for at in 0..self.cursors.len() {
                    if self.cursors[at].after < self.cursors[at].barrier {
                        self.look(at).await?;
                    }
                    // What the writer has published and not noted yet is durable, too.
                    let cursor = &self.cursors[at];
                    if cursor.window.changes.is_empty() && cursor.after < cursor.barrier {
                        let window = self.look_at_every_chain(at, true).await?;
                        self.cursors[at].show(window);
                    }
                }
                let changes = self.take(limit);
                if !changes.is_empty() {
                    return Ok(Some(changes));
                }
                if self.cursors.iter().all(|cursor| cursor.barrier <= cursor.after) {
                    return Ok(None);
                }
            }
        })
    }

    fn position(&self) -> Position {
        let mut content = self.store_id.to_le_bytes().to_vec();
        for mode in Mode::ALL {
            for cursor in self.cursors.iter().filter(|cursor| cursor.log.log().contents.mode == mode) {
                content.extend_from_slice(&cursor.after.segment.to_le_bytes());
                content.extend_from_slice(&cursor.after.offset.to_le_bytes());
                let salt = cursor.log.log().contents.salt_of(cursor.after.segment);
                content.extend_from_slice(&salt.unwrap_or_default());
            }
        }
        Position::new(Kind::Embedded, &self.scope, &content)
    }
}

impl EmbeddedFollower {
    /// Fills the window of a log if it is empty. Whether there is more to look at behind it already: what
    /// comes later wakes.
    async fn look(&mut self, at: usize) -> Result<bool, StoreError> {
        let cursor = &self.cursors[at];
        if !cursor.window.changes.is_empty() {
            return Ok(false);
        }
        let (log, scope, after) = (Arc::clone(&cursor.log.log().contents), self.scope, cursor.after);
        let recent = {
            let registry = self.registration.hub.registry();
            cursor.next_of(&registry.kept[number(log.mode)], &scope)
        };
        let (window, more) = match recent {
            Some(found) => found,
            // Nothing has become durable, so there is nothing to look for.
            None if log.durable_end() <= after => return Ok(false),
            None => (self.look_at_every_chain(at, false).await?, false),
        };
        self.cursors[at].show(window);
        Ok(more)
    }

    async fn look_at_every_chain(&self, at: usize, barrier: bool) -> Result<Window, StoreError> {
        let cursor = &self.cursors[at];
        let (log, scope, after) = (Arc::clone(&cursor.log.log().contents), self.scope, cursor.after);
        let payer = match scope {
            Scope::Everything => Payer::Operator,
            Scope::Tenant(tenant_id) => tenant_id.into(),
            Scope::Chain(chain) => chain.into(),
        };
        let look = move || log.changed_chains(&scope, after, barrier);
        self.pool.run(Lane::Read, payer, LOOKUP_COST, look).await.unwrap_or(Err(StoreError::Closing))
    }

    /// Changes out of all windows.
    fn take(&mut self, limit: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        for cursor in &mut self.cursors {
            cursor.take(limit, &mut changes);
        }
        if !changes.is_empty() {
            // Live and test in turn, so that neither waits for the other's end.
            self.cursors.rotate_left(1);
        }
        changes
    }
}
