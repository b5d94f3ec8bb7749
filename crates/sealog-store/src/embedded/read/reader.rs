//! Reads: by id, in pages, in ranges. All of them work on what is durable, none of them holds up the writer.

use std::io;
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, TenantId, Ulid};
use sealog_core::query::Filter;
use sealog_core::time::Month;
use sealog_core::verify::Item;

use super::window::Window;
use crate::append::{KeptKey, WantedKeys};
use crate::embedded::contents::Contents;
use crate::embedded::index::block::{BLOCK_EVENTS, Hashing, Probe};
use crate::embedded::index::chain_index::{Chain, Run};
use crate::embedded::index::fields;
use crate::embedded::index::filter::Key;
use crate::embedded::index::salt::IndexSalt;
use crate::embedded::index::sidecar::damaged_index;
use crate::embedded::log::format::{self, Frame, FrameHeader};
use crate::embedded::log::segment::Segment;
use crate::error::StoreError;
use crate::query::{ChainHead, Chunk, List, Range};

/// Records that one list reads although they do not match: their hashes are those of what is wanted, or they
/// are damaged.
const LIST_MISSES_MAX: usize = 256;
/// Bytes of such records: one has up to two megabytes.
const LIST_MISS_BYTES_MAX: usize = 1 << 20;
/// Pieces of indexes that one list looks at: pages of filters, tables, blocks. At 20 million events a list
/// that finds nothing looks at some 200.
const LIST_PIECES_MAX: usize = 1024;

impl Contents {
    pub(crate) fn head(&self, chain: ChainId) -> Result<ChainHead, StoreError> {
        let Some(chain) = self.chain(chain)? else { return Ok(self.heads_of(chain)) };
        let snapshot = chain.snapshot();
        let after = snapshot.head.durable.chain_seq.saturating_add(1);
        snapshot.check_readable(after, u64::MAX).map_err(|error| self.read_failed(&error))?;
        Ok(snapshot.head)
    }

    pub(crate) fn heads(&self) -> Result<Vec<(ChainId, Head)>, StoreError> {
        self.check_all_readable()?;
        let heads = self.chains.all().into_iter().map(|chain| (chain.id, chain.head().durable));
        Ok(heads.filter(|(_, head)| head.chain_seq > 0).collect())
    }

    pub(crate) fn usage(&self, tenant_id: TenantId, month: Month) -> Result<u64, StoreError> {
        self.check_all_readable()?;
        Ok(self.counted_usage(tenant_id, month))
    }

    /// A chain, if there is one. Not to find one says nothing where the disk did not give the whole log.
    fn chain(&self, id: ChainId) -> Result<Option<Arc<Chain>>, StoreError> {
        let chain = self.chains.get(id);
        if chain.is_none() && self.unreadable_chains {
            self.check_all_readable()?;
        }
        Ok(chain)
    }

    pub(crate) fn check_all_readable(&self) -> Result<(), StoreError> {
        match &self.unreadable {
            None => Ok(()),
            Some(cause) => Err(self.read_failed(&io::Error::other(cause.clone()))),
        }
    }

    pub(crate) fn get(&self, chain: ChainId, log_id: Ulid) -> Result<Option<StoredEvent>, StoreError> {
        loop {
            let through = self.dropped_through();
            match self.get_once(chain, log_id) {
                // Found where it was, and dropped before it was read.
                Err(_) if self.dropped_through() != through => {}
                answer => return answer,
            }
        }
    }

    fn get_once(&self, chain: ChainId, log_id: Ulid) -> Result<Option<StoredEvent>, StoreError> {
        let Some(chain) = self.chain(chain)? else { return Ok(None) };
        let Some((chain_seq, segment, position)) = self.with_rebuild(|| self.locate(&chain, log_id))? else {
            let snapshot = chain.snapshot();
            snapshot.check_readable(1, u64::MAX).map_err(|error| self.read_failed(&error))?;
            // An id that lies in a damaged stretch may be one of those that cannot be read.
            return match snapshot.damaged_around(log_id) {
                Some(chain_seq) => Err(StoreError::Damaged { chain_seq }),
                None => Ok(None),
            };
        };
        let record = self.read_record(chain.id, chain_seq, segment, position, &mut Window::single());
        match record.map_err(|error| self.read_failed(&error))? {
            Some(event) if event.sealed.log_id == log_id => Ok(Some(event)),
            Some(_) => Ok(None),
            None => Err(StoreError::Damaged { chain_seq }),
        }
    }

    /// Seq, segment and position of an id.
    fn locate(&self, chain: &Chain, log_id: Ulid) -> io::Result<Option<(u64, u64, u32)>> {
        let in_memory = chain.find_in_memory(|runs| {
            let run = runs.iter().rev().find(|run| run.first_log_id() <= log_id)?;
            Some(run.find(log_id).map(|seq| (seq, run.segment, run.position(seq))))
        });
        let sealed = match in_memory {
            Ok(found) => return Ok(found),
            Err(sealed) => sealed,
        };
        let after = sealed.partition_point(|run| run.run().log_ids().0 <= log_id);
        let Some(run) = after.checked_sub(1).map(|at| sealed[at].run()) else { return Ok(None) };
        Ok(run.find(log_id, &self.caches)?.map(|(chain_seq, position)| (chain_seq, run.segment(), position)))
    }

    /// Where the record of an event stands: segment and position.
    pub(crate) fn place_of(&self, chain: ChainId, chain_seq: u64) -> io::Result<Option<(u64, u64)>> {
        let Some(chain) = self.chains.get(chain) else { return Ok(None) };
        let snapshot = chain.snapshot();
        let mut runs = snapshot.runs();
        let Some(run) = runs.find(|run| (run.first_seq()..run.end_seq()).contains(&chain_seq)) else {
            return Ok(None);
        };
        let at = usize::try_from(chain_seq - run.first_seq()).unwrap_or(usize::MAX);
        let position = run.blocks(&self.caches)?.block(at / BLOCK_EVENTS)?.position(at % BLOCK_EVENTS);
        Ok(Some((run.segment(), u64::from(position))))
    }

    pub(crate) fn list(&self, chain: ChainId, list: &List) -> Result<Chunk<StoredEvent>, StoreError> {
        let Some(chain) = self.chain(chain)? else {
            return Ok(Chunk { items: Vec::new(), resume: None });
        };
        self.with_rebuild(|| self.list_once(&chain, list))
    }

    /// Newest first, until there is enough, or until as much was looked at as one call may. Everything from
    /// `resume` up has been looked at then.
    fn list_once(&self, chain: &Chain, list: &List) -> io::Result<Chunk<StoredEvent>> {
        let snapshot = chain.snapshot();
        let lookups = Lookups::of(&list.filter, &self.salt);
        let before = list.before_seq.unwrap_or(u64::MAX);
        let mut page = Page::new(list.limit, list.bytes_max);
        let mut work = ListWork::default();
        let mut window = Window::single();
        // Everything from here up has been looked at.
        let mut seen = before;
        for run in snapshot.runs().rev() {
            if run.first_seq() < before {
                snapshot.check_readable(run.end_seq(), seen.saturating_sub(1))?;
                seen = run.first_seq();
            }
            let (first_id, last_id) = run.log_ids();
            let Lookup { probe, keys, fields } = lookups.at(run.hashing());
            if run.first_seq() >= before || !probe.may_match_times(first_id, last_id) {
                continue;
            }
            let upper = run.end_seq().min(before);
            if work.is_spent() {
                return Ok(Chunk { items: page.events, resume: Some(upper) });
            }
            work.pieces += keys.len();
            let mut candidates = run.candidates(keys)?;
            if !fields.is_empty() && !candidates.is_empty() {
                work.pieces += fields.len() + 1;
                run.retain_blocks(&mut candidates, fields)?;
            }
            if candidates.is_empty() {
                continue;
            }
            work.pieces += 1;
            let blocks = run.blocks(&self.caches)?;
            for number in candidates.into_iter().rev() {
                let block_seq = run.first_seq() + (number * BLOCK_EVENTS) as u64;
                if block_seq >= before || !blocks.may_match(number, probe) {
                    continue;
                }
                if work.is_spent() {
                    let resume = upper.min(block_seq + BLOCK_EVENTS as u64);
                    return Ok(Chunk { items: page.events, resume: Some(resume) });
                }
                if !fields.is_empty() {
                    work.pieces += 1;
                    if !run.may_have_fields(&self.caches, number, fields)? {
                        continue;
                    }
                }
                work.pieces += 1;
                let block = blocks.block(number)?;
                let end = usize::try_from(before - block_seq).unwrap_or(usize::MAX).min(block.len());
                let mut places = block.matches(probe, end);
                if !fields.is_empty() && !places.is_empty() {
                    run.retain_events(&self.caches, number, &mut places, fields)?;
                }
                for (at, place) in places.iter().enumerate() {
                    let chain_seq = block_seq + *place as u64;
                    if work.has_missed_enough() {
                        return Ok(Chunk { items: page.events, resume: Some(chain_seq + 1) });
                    }
                    let position = block.position(*place);
                    if !window.holds(run.segment(), position)
                        && let Some(segment) = self.segment(run.segment())
                    {
                        let older = places[at + 1..].iter().take(page.room().saturating_sub(1));
                        window.read_back(&segment, position, older.map(|place| block.position(*place)));
                    }
                    match self.read_record(chain.id, chain_seq, run.segment(), position, &mut window)? {
                        Some(event) if !list.filter.matches(&event) => {
                            work.miss(event.text.as_str().len());
                        }
                        Some(event) => {
                            if page.push(event) {
                                return Ok(Chunk { items: page.events, resume: Some(chain_seq) });
                            }
                        }
                        None => {
                            work.miss(0);
                            tracing::error!(chain = %chain.id, chain_seq, "skipped a damaged event in a list");
                        }
                    }
                }
            }
        }
        snapshot.check_readable(1, seen.saturating_sub(1))?;
        Ok(Chunk { items: page.events, resume: None })
    }

    pub(crate) fn range(&self, chain: ChainId, range: Range) -> Result<Chunk<Item>, StoreError> {
        let Some(chain) = self.chain(chain)? else {
            return Ok(Chunk { items: Vec::new(), resume: None });
        };
        self.with_rebuild(|| self.range_once(&chain, range))
    }

    fn range_once(&self, chain: &Chain, range: Range) -> io::Result<Chunk<Item>> {
        let snapshot = chain.snapshot();
        snapshot.check_readable(range.from, range.to)?;
        let to = range.to.min(snapshot.head.end().chain_seq);
        let mut items = Items::new(range.bytes_max);
        let mut window = Window::sequential();
        let mut damaged = snapshot.damaged.iter().copied().peekable();
        for run in snapshot.runs() {
            if run.end_seq() <= range.from {
                continue;
            }
            // Stretches that are damaged as a whole stand before the run that follows them.
            while let Some((first, last)) = damaged.next_if(|(first, _)| *first < run.first_seq()) {
                for chain_seq in first.max(range.from)..=last.min(to) {
                    items.damaged(chain_seq);
                    if items.full() {
                        return Ok(Chunk { items: items.items, resume: Some(chain_seq + 1) });
                    }
                }
            }
            if run.first_seq() > to {
                break;
            }
            if let Some(resume) = self.range_of_run(chain, run, range.from, to, &mut items, &mut window)? {
                return Ok(Chunk { items: items.items, resume: Some(resume) });
            }
        }
        Ok(Chunk { items: items.items, resume: None })
    }

    /// Adds the events of a run; where it stopped because there are enough bytes, the next seq.
    fn range_of_run(
        &self,
        chain: &Chain,
        run: Run<'_>,
        from: u64,
        to: u64,
        items: &mut Items,
        window: &mut Window,
    ) -> io::Result<Option<u64>> {
        let blocks = run.blocks(&self.caches)?;
        let first = from.max(run.first_seq());
        let first_block = usize::try_from(first - run.first_seq()).unwrap_or(usize::MAX) / BLOCK_EVENTS;
        for number in first_block..blocks.count() {
            let block_seq = run.first_seq() + (number * BLOCK_EVENTS) as u64;
            let block = blocks.block(number)?;
            for place in 0..block.len() {
                let chain_seq = block_seq + place as u64;
                if chain_seq < first {
                    continue;
                }
                if chain_seq > to {
                    return Ok(None);
                }
                match self.read_record(chain.id, chain_seq, run.segment(), block.position(place), window)? {
                    Some(event) => items.event(event),
                    None => items.damaged(chain_seq),
                }
                if items.full() {
                    return Ok(Some(chain_seq + 1));
                }
            }
        }
        Ok(None)
    }

    /// The keys stand in the frames of their requests, and the first record of a frame stands right behind
    /// its header: what lies before a record tells whether a request begins there. (If none does, the bytes
    /// are another record's, and no record can have the checksum of a header: it depends on the segment's
    /// salt.)
    pub(crate) fn kept_keys(&self, chain: ChainId, wanted: WantedKeys) -> Result<Vec<KeptKey>, StoreError> {
        let Some(chain) = self.chain(chain)? else { return Ok(Vec::new()) };
        self.with_rebuild(|| self.kept_keys_once(&chain, wanted))
    }

    fn kept_keys_once(&self, chain: &Chain, wanted: WantedKeys) -> io::Result<Vec<KeptKey>> {
        let mut kept = Vec::new();
        let mut next = wanted.from;
        let snapshot = chain.snapshot();
        snapshot.check_readable(wanted.from, u64::MAX)?;
        for run in snapshot.runs() {
            // No event is older than the receipt of its request.
            if run.end_seq() <= next || run.log_ids().1.timestamp_ms() <= wanted.received_after_ms {
                continue;
            }
            let Some(segment) = self.segment(run.segment()) else { continue };
            let blocks = run.blocks(&self.caches)?;
            next = next.max(run.first_seq());
            while next < run.end_seq() {
                let place = usize::try_from(next - run.first_seq()).unwrap_or(usize::MAX);
                let block = blocks.block(place / BLOCK_EVENTS)?;
                let position = u64::from(block.position(place % BLOCK_EVENTS));
                let Some(frame) = self.frame_before(&segment, position)? else {
                    next += 1;
                    continue;
                };
                next = frame.first_seq + u64::from(frame.count);
                if frame.idempotency && frame.received_ms > wanted.received_after_ms {
                    kept.push(self.kept_key(&segment, &frame)?);
                    if kept.len() >= wanted.limit {
                        return Ok(kept);
                    }
                }
            }
        }
        Ok(kept)
    }

    /// The header of the frame whose first record stands at this position, if a frame begins there.
    fn frame_before(&self, segment: &Segment, position: u64) -> io::Result<Option<FrameHeader>> {
        let Some(at) = position.checked_sub(format::FRAME_HEADER_LEN as u64) else { return Ok(None) };
        let mut header = [0; format::FRAME_HEADER_LEN];
        let filled = segment.read_at(&mut header, at)?;
        Ok(FrameHeader::decode(&header[..filled], at, &segment.salt, self.mode))
    }

    fn kept_key(&self, segment: &Segment, header: &FrameHeader) -> io::Result<KeptKey> {
        let mut bytes = vec![0; header.length as usize];
        let filled = segment.read_at(&mut bytes, header.position)?;
        let stored = Frame::decode(&bytes[..filled], header.position, &segment.salt, self.mode)
            .and_then(|frame| frame.idempotency())
            .ok_or_else(|| {
                io::Error::other(format!("the idempotency key of event {} cannot be read", header.first_seq))
            })?;
        Ok(KeptKey {
            key: stored.key,
            request_id: stored.request_id,
            received_ms: header.received_ms,
            first_seq: header.first_seq,
            events: usize::from(header.count),
        })
    }

    /// Nothing if the record is damaged: it was read, and its checksum is wrong. An error if it could not be
    /// read, which says nothing about it.
    pub(crate) fn read_record(
        &self,
        chain: ChainId,
        chain_seq: u64,
        segment: u64,
        position: u32,
        window: &mut Window,
    ) -> io::Result<Option<StoredEvent>> {
        let Some(segment) = self.segment(segment).filter(|segment| segment.number > self.dropped_through())
        else {
            // One that is lost is damage. One that was dropped meanwhile is a reason to look again.
            let dropped = segment <= self.dropped_through();
            return if dropped { Err(io::ErrorKind::NotFound.into()) } else { Ok(None) };
        };
        let record = window.record(&segment, position)?;
        Ok(record.and_then(|record| format::decode_record(record, &segment.salt, chain, chain_seq)))
    }

    /// Runs a read; where an index file turns out to be damaged, builds it again from its segment and runs
    /// the read once more. So it does where a segment was dropped meanwhile: the read takes a new look at its
    /// chain, which begins later now.
    pub(crate) fn with_rebuild<T>(&self, read: impl Fn() -> io::Result<T>) -> Result<T, StoreError> {
        let mut rebuilt = Vec::new();
        loop {
            let through = self.dropped_through();
            let error = match read() {
                Ok(value) => return Ok(value),
                Err(_) if self.dropped_through() != through => continue,
                Err(error) => error,
            };
            let index = damaged_index(&error).filter(|index| !rebuilt.contains(&index.segment));
            let index = index.ok_or_else(|| self.read_failed(&error))?;
            tracing::warn!(%error, "an index file is damaged; rebuilding it");
            self.rebuild_index(index.segment, index.id).map_err(|error| self.read_failed(&error))?;
            rebuilt.push(index.segment);
        }
    }
}

/// What a list wants, as indexes of each kind of hashes see it.
struct Lookups {
    salted: Lookup,
    unknown: Lookup,
}

struct Lookup {
    probe: Probe,
    keys: Vec<Key>,
    /// Of members of `metadata`.
    fields: Vec<u32>,
}

impl Lookups {
    fn of(filter: &Filter, salt: &IndexSalt) -> Lookups {
        let lookup = |hashing: Hashing| {
            let probe = Probe::of(filter, hashing, salt);
            let keys = Key::of_probe(probe.wanted());
            // Only index files that are hashed with this salt know them.
            let fields =
                if hashing == Hashing::Salted { fields::wanted(&filter.fields, salt) } else { Vec::new() };
            Lookup { probe, keys, fields }
        };
        Lookups { salted: lookup(Hashing::Salted), unknown: lookup(Hashing::Unknown) }
    }

    fn at(&self, hashing: Hashing) -> &Lookup {
        match hashing {
            Hashing::Salted => &self.salted,
            Hashing::Unknown => &self.unknown,
        }
    }
}

/// What a list has looked at without finding anything.
#[derive(Default)]
struct ListWork {
    pieces: usize,
    misses: usize,
    miss_bytes: usize,
}

impl ListWork {
    fn miss(&mut self, bytes: usize) {
        self.misses += 1;
        self.miss_bytes += bytes;
    }

    fn is_spent(&self) -> bool {
        self.pieces >= LIST_PIECES_MAX || self.has_missed_enough()
    }

    fn has_missed_enough(&self) -> bool {
        self.misses >= LIST_MISSES_MAX || self.miss_bytes >= LIST_MISS_BYTES_MAX
    }
}

/// A page that is being filled.
struct Page {
    events: Vec<StoredEvent>,
    bytes: usize,
    limit: usize,
    bytes_max: usize,
}

impl Page {
    fn new(limit: usize, bytes_max: usize) -> Page {
        Page { events: Vec::new(), bytes: 0, limit, bytes_max }
    }

    /// How many events it can still take.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.events.len())
    }

    /// True when there is enough.
    fn push(&mut self, event: StoredEvent) -> bool {
        self.bytes += event.text.as_str().len();
        self.events.push(event);
        self.events.len() >= self.limit || self.bytes >= self.bytes_max
    }
}

struct Items {
    items: Vec<Item>,
    bytes: usize,
    bytes_max: usize,
}

impl Items {
    fn new(bytes_max: usize) -> Items {
        Items { items: Vec::new(), bytes: 0, bytes_max }
    }

    fn event(&mut self, event: StoredEvent) {
        self.bytes += event.text.as_str().len();
        self.items.push(Item::Event(Box::new(event)));
    }

    fn damaged(&mut self, chain_seq: u64) {
        self.bytes += size_of::<Item>();
        self.items.push(Item::Damaged { chain_seq });
    }

    fn full(&self) -> bool {
        self.bytes >= self.bytes_max
    }
}
