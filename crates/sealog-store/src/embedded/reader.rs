//! Reads: by id, in pages, in ranges. All of them work on what is durable, none of them holds up the writer.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, TenantId, Ulid};
use sealog_core::time::Month;
use sealog_core::verify::Item;
use tokio::sync::oneshot;

use super::chain_index::{Chain, Run};
use super::disk::says_nothing_of_the_file;
use super::filter::Key;
use super::format::{self, Frame, FrameHeader};
use super::index::{BLOCK_EVENTS, Probe};
use super::log::Log;
use super::segment::Segment;
use super::sidecar::damaged_segment;
use super::sync::{lock, read, wait};
use crate::{ChainHead, Chunk, KeptKey, List, Range, StoreError, WantedKeys};

/// Read at once for a single record; most are smaller.
pub(super) const RECORD_GUESS: usize = 1024;
/// Read at once when one record after the other is wanted.
const WINDOW: usize = 256 << 10;
/// The first bytes of a record say how long it is.
const RECORD_LEN_LEN: usize = 4;

impl Log {
    pub(super) fn head(&self, chain: ChainId) -> ChainHead {
        let empty = ChainHead { durable: Head::EMPTY, recorded: Head::EMPTY };
        self.chains.get(chain).map_or(empty, |chain| chain.head())
    }

    pub(super) fn heads(&self) -> Vec<(ChainId, Head)> {
        let heads = self.chains.all().into_iter().map(|chain| (chain.id, chain.head().durable));
        heads.filter(|(_, head)| head.chain_seq > 0).collect()
    }

    pub(super) fn usage(&self, tenant_id: TenantId, month: Month) -> u64 {
        lock(&self.usage).get(&(tenant_id, month)).copied().unwrap_or(0)
    }

    pub(super) fn get(&self, chain: ChainId, log_id: Ulid) -> Result<Option<StoredEvent>, StoreError> {
        let Some(chain) = self.chains.get(chain) else { return Ok(None) };
        let Some((chain_seq, segment, position)) = self.with_rebuild(|| self.locate(&chain, log_id))? else {
            // An id that lies in a damaged stretch may be one of those that cannot be read.
            return match chain.snapshot().damaged_around(log_id) {
                Some(chain_seq) => Err(StoreError::Damaged { chain_seq }),
                None => Ok(None),
            };
        };
        let record = self.read_record(chain.id, chain_seq, segment, position, &mut Window::single());
        match record.map_err(|error| read_error(&error))? {
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

    pub(super) fn list(&self, chain: ChainId, list: &List) -> Result<Chunk<StoredEvent>, StoreError> {
        let Some(chain) = self.chains.get(chain) else {
            return Ok(Chunk { items: Vec::new(), resume: None });
        };
        self.with_rebuild(|| self.list_once(&chain, list))
    }

    fn list_once(&self, chain: &Chain, list: &List) -> io::Result<Chunk<StoredEvent>> {
        let snapshot = chain.snapshot();
        let probe = Probe::of(&list.filter);
        let keys = Key::of_probe(probe.wanted());
        let before = list.before_seq.unwrap_or(u64::MAX);
        let mut page = Page::new(list.limit, list.bytes_max);
        for run in snapshot.runs().rev() {
            let (first_id, last_id) = run.log_ids();
            if run.first_seq() >= before || !probe.may_match_times(first_id, last_id) {
                continue;
            }
            let candidates = run.candidates(&keys)?;
            if candidates.is_empty() {
                continue;
            }
            let blocks = run.blocks(&self.caches)?;
            for number in candidates.into_iter().rev() {
                let block_seq = run.first_seq() + (number * BLOCK_EVENTS) as u64;
                if block_seq >= before
                    || blocks.summary(number).is_some_and(|summary| !summary.may_match(&probe))
                {
                    continue;
                }
                let block = blocks.block(number)?;
                let end = usize::try_from(before - block_seq).unwrap_or(usize::MAX).min(block.len());
                for place in block.matches(&probe, end) {
                    let chain_seq = block_seq + place as u64;
                    match self.read_record(
                        chain.id,
                        chain_seq,
                        run.segment(),
                        block.position(place),
                        &mut Window::single(),
                    )? {
                        Some(event) if !list.filter.matches(&event) => {}
                        Some(event) => {
                            if page.push(event) {
                                return Ok(Chunk { items: page.events, resume: Some(chain_seq) });
                            }
                        }
                        None => {
                            tracing::error!(chain = %chain.id, chain_seq, "a list leaves out an event whose record is damaged");
                        }
                    }
                }
            }
        }
        Ok(Chunk { items: page.events, resume: None })
    }

    pub(super) fn range(&self, chain: ChainId, range: Range) -> Result<Chunk<Item>, StoreError> {
        let Some(chain) = self.chains.get(chain) else {
            return Ok(Chunk { items: Vec::new(), resume: None });
        };
        self.with_rebuild(|| self.range_once(&chain, range))
    }

    fn range_once(&self, chain: &Chain, range: Range) -> io::Result<Chunk<Item>> {
        let snapshot = chain.snapshot();
        let to = range.to.min(snapshot.head.recorded.chain_seq);
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

    /// The keys stand in the frames of their requests, and the first record of a frame stands right behind its header: what lies before a record tells whether a
    /// request begins there. (If none does, the bytes are another record's, and no record can have the checksum of a header: it depends on the segment's salt.)
    pub(super) fn kept_keys(&self, chain: ChainId, wanted: WantedKeys) -> Result<Vec<KeptKey>, StoreError> {
        let Some(chain) = self.chains.get(chain) else { return Ok(Vec::new()) };
        self.with_rebuild(|| self.kept_keys_once(&chain, wanted))
    }

    fn kept_keys_once(&self, chain: &Chain, wanted: WantedKeys) -> io::Result<Vec<KeptKey>> {
        let mut kept = Vec::new();
        let mut next = wanted.from;
        for run in chain.snapshot().runs() {
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
        let filled = segment.file.read_at(&mut header, at)?;
        Ok(FrameHeader::decode(&header[..filled], at, &segment.salt, self.mode))
    }

    fn kept_key(&self, segment: &Segment, header: &FrameHeader) -> io::Result<KeptKey> {
        let mut bytes = vec![0; header.length as usize];
        let filled = segment.file.read_at(&mut bytes, header.position)?;
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

    /// Nothing if the record is damaged: the disk does not give it, or its checksum is wrong. An error if that could not be found out.
    pub(super) fn read_record(
        &self,
        chain: ChainId,
        chain_seq: u64,
        segment: u64,
        position: u32,
        window: &mut Window,
    ) -> io::Result<Option<StoredEvent>> {
        let Some(segment) = self.segment(segment) else { return Ok(None) };
        let record = window.record(&segment, position)?;
        Ok(record.and_then(|record| format::decode_record(record, &segment.salt, chain, chain_seq)))
    }

    pub(super) fn segment(&self, number: u64) -> Option<Arc<Segment>> {
        read(&self.segments).get(&number).cloned()
    }

    /// Runs a read; where an index file turns out to be damaged, builds it again from its segment and runs the read once more.
    pub(super) fn with_rebuild<T>(&self, read: impl Fn() -> io::Result<T>) -> Result<T, StoreError> {
        match read() {
            Ok(value) => Ok(value),
            Err(error) => {
                let segment = damaged_segment(&error).ok_or_else(|| read_error(&error))?;
                tracing::warn!(%error, "an index file is damaged; building it again");
                self.rebuild_index(segment).map_err(|error| read_error(&error))?;
                read().map_err(|error| read_error(&error))
            }
        }
    }
}

fn read_error(error: &io::Error) -> StoreError {
    StoreError::Read(error.to_string())
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

/// Bytes of a segment that were read last, so that neighbours need no read of their own.
pub(super) struct Window {
    /// How much is read at once.
    pub size: usize,
    segment: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl Window {
    pub(super) fn single() -> Window {
        Window { size: RECORD_GUESS, segment: 0, start: 0, bytes: Vec::new() }
    }

    fn sequential() -> Window {
        Window { size: WINDOW, ..Window::single() }
    }

    /// Whether the record at this position is there whole.
    pub(super) fn holds(&self, segment: u64, position: u32) -> bool {
        let position = u64::from(position);
        self.segment == segment && position >= self.start && self.within(position).is_some()
    }

    /// The bytes of a record, as far as the disk gives them.
    pub(super) fn record(&mut self, segment: &Segment, position: u32) -> io::Result<Option<&[u8]>> {
        let held = self.holds(segment.number, position);
        let position = u64::from(position);
        // A bad sector further on must not take this record with it.
        let given = held
            || self.fill(segment, position, self.size)?
            || self.fill(segment, position, RECORD_LEN_LEN)?;
        if !given {
            return Ok(None);
        }
        let Some(length) = format::record_len(&self.bytes[self.at(position)..]) else { return Ok(None) };
        if self.within(position).is_none() && !self.fill(segment, position, length)? {
            return Ok(None);
        }
        Ok(self.within(position).map(|at| &self.bytes[at..at + length]))
    }

    /// Where the record begins in the window, if it is there whole.
    fn within(&self, position: u64) -> Option<usize> {
        let at = self.at(position);
        let length = format::record_len(self.bytes.get(at..)?)?;
        (at + length <= self.bytes.len()).then_some(at)
    }

    fn at(&self, position: u64) -> usize {
        usize::try_from(position - self.start).unwrap_or(usize::MAX).min(self.bytes.len())
    }

    /// Whether the disk gave anything.
    fn fill(&mut self, segment: &Segment, position: u64, length: usize) -> io::Result<bool> {
        self.bytes.resize(length, 0);
        self.segment = 0;
        match segment.file.read_at(&mut self.bytes, position) {
            Ok(filled) => {
                self.bytes.truncate(filled);
                self.start = position;
                self.segment = segment.number;
                Ok(true)
            }
            // To call what could not be looked at damaged would be to cry wolf, and to leave it out of a list to hide it.
            Err(error) if says_nothing_of_the_file(&error) => Err(error),
            Err(error) => {
                tracing::error!(%error, segment = segment.number, position, "a record cannot be read");
                Ok(false)
            }
        }
    }
}

/// A few threads that wait for the disk in place of an event loop.
pub(super) struct Pool {
    queue: Mutex<(VecDeque<Job>, bool)>,
    changed: Condvar,
}

type Job = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pool")
    }
}

impl Pool {
    const THREADS: usize = 4;

    pub(super) fn start() -> Arc<Pool> {
        let pool = Arc::new(Pool { queue: Mutex::default(), changed: Condvar::new() });
        for number in 0..Self::THREADS {
            let pool = Arc::clone(&pool);
            let thread = std::thread::Builder::new().name(format!("sealog-read-{number}"));
            thread
                .spawn(move || pool.work())
                .expect("a process that cannot start four threads cannot run at all");
        }
        pool
    }

    /// Queues a read; the answer fails if the store is closed before its turn.
    pub(super) fn run<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (sender, answer) = oneshot::channel();
        let mut queue = lock(&self.queue);
        if !queue.1 {
            queue.0.push_back(Box::new(move || {
                // A reader that has gone away needs no answer, and no work.
                if !sender.is_closed() {
                    let _ = sender.send(act());
                }
            }));
            self.changed.notify_one();
        }
        answer
    }

    pub(super) fn waiting(&self) -> u64 {
        lock(&self.queue).0.len() as u64
    }

    fn work(&self) {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.0.pop_front() {
                drop(queue);
                // A read that panics fails for its caller, who finds the answer gone; the thread is for everyone.
                if std::panic::catch_unwind(std::panic::AssertUnwindSafe(job)).is_err() {
                    tracing::error!("a read has panicked");
                }
                queue = lock(&self.queue);
            } else if queue.1 {
                return;
            } else {
                queue = wait(&self.changed, queue);
            }
        }
    }

    pub(super) fn stop(&self) {
        let mut queue = lock(&self.queue);
        queue.1 = true;
        queue.0.clear();
        self.changed.notify_all();
    }
}
