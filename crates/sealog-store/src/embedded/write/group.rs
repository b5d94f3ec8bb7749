//! A group: which requests are written and synced together, and the bytes that they become.

use std::sync::Arc;
use std::time::Instant;

use sealog_core::canonical::EventText;
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::Annotations;
use sealog_core::id::{ChainId, TenantId};
use sealog_core::time::Month;

use super::completions::Completions;
use super::outcome::Outcome;
use super::queue::Queue;
use super::request::Request;
use crate::counts::noted::Noted;
use crate::embedded::index::block::{Entry, FieldHashes};
use crate::embedded::index::fields::FieldColumn;
use crate::embedded::index::salt::IndexSalt;
use crate::embedded::index::sidecar::{KeyEntry, slot};
use crate::embedded::log::format::{
    self, FrameHeader, FrameWriter, Predecessor, SEGMENT_HEADER_LEN, SegmentHeader, StoredKey,
};
use crate::embedded::log::plan::Plan;
use crate::embedded::mutants::{self, Mutant};
use crate::error::StoreError;

/// Room for so many requests is made at once when a group begins to take them.
const REQUESTS_EXPECTED: usize = 256;

/// A request that takes no more in the log is small: it is not to wait for much of another chain's.
const SMALL_BYTES_MAX: usize = 16 << 10;

/// What is taken from the queue at a time. Between two times, requests that have come meanwhile can join the
/// group.
const SLICE_BYTES: usize = 64 << 10;

/// What the choice of requests needs to know of the segment after the active one.
pub(crate) trait NextSegment {
    /// Whether the zero-filling of it is so far ahead of the events that a large request makes nobody wait
    /// for it.
    fn keeps_up(&self) -> bool;
    /// What it will hold, where the active one holds so much.
    fn capacity(&self, active: u64) -> u64;
    /// Its header.
    fn header(&self, before: Predecessor, first_commit: u64) -> SegmentHeader;
}

/// Frames that are written and synced together. A group lies in one segment.
#[derive(Debug)]
pub(crate) struct Group {
    generation: u64,
    commit: u64,
    /// Set when the group begins a new segment.
    begins: Option<SegmentHeader>,
    start: u64,
    bytes: Vec<u8>,
    /// Whose small requests are in it.
    small: Small,
    /// A large request that was sealed ahead: nobody joins it.
    alone: bool,
    /// Chains whose large requests were skipped to avoid head-of-line blocking. They are paused in the queue
    /// until the group is complete.
    skipped: Vec<ChainId>,
    frames: Vec<SealedFrame>,
    /// What the frames add to the usage of tenants.
    usage: Vec<((TenantId, Month), u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Small {
    OfNobody,
    Of(ChainId),
    OfSeveral,
}

/// A frame of a group, with everything that has to happen once it is durable.
#[derive(Debug)]
pub(crate) struct SealedFrame {
    pub chain: ChainId,
    pub contained: Contained,
    pub head: Head,
    pub queued: Instant,
    pub outcome: Outcome,
    pub completions: Option<Arc<Completions>>,
}

/// What the index and the counts keep of the events of a frame.
#[derive(Debug, Default)]
pub(crate) struct Contained {
    pub entries: Vec<Entry>,
    /// Of the members of their `metadata`.
    pub fields: FieldColumn,
    pub counts: Noted,
    pub key: Option<KeyEntry>,
}

/// A group that is complete: where it goes, and what follows once it is durable.
#[derive(Debug)]
pub(crate) struct Complete {
    pub generation: u64,
    /// Nothing for a group that only begins a segment.
    pub commit: Option<u64>,
    pub begins: Option<SegmentHeader>,
    pub start: u64,
    pub bytes: Vec<u8>,
    pub frames: Vec<SealedFrame>,
    pub usage: Vec<((TenantId, Month), u64)>,
    /// Where the log ends once it is written.
    pub after: Plan,
}

/// What a frame says besides its records.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameOf<'a> {
    pub chain: ChainId,
    pub key: Option<&'a StoredKey>,
    pub imported: bool,
    pub received_ms: u64,
}

impl Group {
    /// Behind everything that is planned so far. `bytes` is the memory of an earlier group.
    pub(crate) fn new(generation: u64, commit: u64, plan: &Plan, bytes: Vec<u8>) -> Group {
        Group {
            generation,
            commit,
            begins: None,
            start: plan.end,
            bytes,
            small: Small::OfNobody,
            alone: false,
            skipped: Vec::new(),
            frames: Vec::new(),
            usage: Vec::new(),
        }
    }

    /// Takes the requests that still fit, up to a slice. One that does not fit into the segment begins the
    /// next.
    pub(crate) fn take_from(
        &mut self,
        queue: &mut Queue,
        plan: &mut Plan,
        bytes_max: usize,
        next: &impl NextSegment,
    ) -> Vec<Request> {
        if self.alone {
            return Vec::new();
        }
        let mut requests = Vec::with_capacity(queue.small_len().min(REQUESTS_EXPECTED));
        let mut planned = self.bytes.len();
        let others_wait = queue.sort_out();
        // Large requests go at the pace at which segments can be preallocated, so that it is them who wait
        // and not everyone.
        if planned == 0
            && queue.has_ready()
            && next.keeps_up()
            && let Some(large) = queue.take_ready(others_wait)
        {
            if self.start + large.bytes as u64 <= plan.capacity {
                return self.take_alone(queue, large);
            }
            if self.begins.is_none() && fits_next(large.bytes, plan, next) {
                self.begin_segment(plan, next);
                return self.take_alone(queue, large);
            }
            large.fail(StoreError::NoRoom);
        }
        let most = self.bytes.len() + SLICE_BYTES;
        while queue.sort_out()
            && let Some((chain, bytes)) = queue.peek()
        {
            let full = planned + bytes > bytes_max;
            if planned > 0 && (full || planned + bytes > most && !requests.is_empty()) {
                break;
            }
            if self.delays_small(chain, bytes, planned) {
                self.skipped.push(chain);
                queue.skip(chain);
                continue;
            }
            if self.start + (planned + bytes) as u64 > plan.capacity {
                if planned > 0 {
                    break;
                }
                // A group whose requests were all refused may have begun a segment already; a second one
                // would name a predecessor that is never made.
                if self.begins.is_some() || !fits_next(bytes, plan, next) {
                    queue.fail_next(StoreError::NoRoom);
                    continue;
                }
                self.begin_segment(plan, next);
            }
            planned += bytes;
            if bytes <= SMALL_BYTES_MAX {
                self.note_small(chain);
            }
            requests.extend(queue.pop());
        }
        requests
    }

    fn take_alone(&mut self, queue: &mut Queue, large: Request) -> Vec<Request> {
        queue.note_large_group();
        self.alone = true;
        vec![large]
    }

    fn begin_segment(&mut self, plan: &mut Plan, next: &impl NextSegment) {
        let before = Predecessor { number: plan.segment, final_len: plan.end, checksum: plan.running };
        let header = next.header(before, self.commit);
        *plan = Plan {
            segment: header.number,
            salt: header.salt,
            end: SEGMENT_HEADER_LEN as u64,
            capacity: next.capacity(plan.capacity),
            running: 0,
        };
        self.start = plan.end;
        self.begins = Some(header);
    }

    /// Whether this request would delay small requests of other chains in the group: too much would be sealed
    /// and written before they are answered.
    fn delays_small(&self, chain: ChainId, bytes: usize, planned: usize) -> bool {
        let others_wait = match self.small {
            Small::OfNobody => false,
            Small::Of(small) => small != chain,
            Small::OfSeveral => true,
        };
        others_wait && bytes > SMALL_BYTES_MAX && planned + bytes > SLICE_BYTES
    }

    fn note_small(&mut self, chain: ChainId) {
        self.small = match self.small {
            Small::OfNobody => Small::Of(chain),
            Small::Of(small) if small == chain => Small::Of(chain),
            _ => Small::OfSeveral,
        };
    }

    /// Whether it has small requests, which gain by going at once. A group without gains by growing.
    pub(crate) fn has_small(&self) -> bool {
        self.small != Small::OfNobody
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn commit(&self) -> u64 {
        self.commit
    }

    /// Makes room for the frames of so many requests.
    pub(crate) fn reserve(&mut self, requests: usize) {
        self.frames.reserve(requests);
    }

    /// Encodes a frame at the end of what is planned.
    pub(crate) fn encode<'a>(
        &mut self,
        plan: &mut Plan,
        salt: &IndexSalt,
        frame: FrameOf<'_>,
        records: impl Iterator<Item = (&'a Sealed, (&'a EventText, &'a Annotations))>,
    ) -> Contained {
        let FrameOf { chain, key, imported, received_ms } = frame;
        let position = plan.end;
        let mut records = records.peekable();
        let header = FrameHeader {
            length: 0,
            idempotency: false,
            imported,
            count: 0,
            group_back: format::u32_len(self.bytes.len()),
            commit: self.commit,
            position,
            chain,
            first_seq: records.peek().map_or(0, |(sealed, _)| sealed.chain_seq),
            received_ms,
        };
        let before = self.bytes.len();
        let mut writer = FrameWriter::begin(&mut self.bytes, &plan.salt, header);
        let (mut fields, mut counts) = (FieldColumn::default(), Noted::default());
        let entries = records
            .map(|(sealed, (text, annotations))| {
                let of_event = text.fields();
                fields.push_event(of_event.metadata, salt);
                let hashes = FieldHashes::of(&of_event, salt);
                let (severity, country) = (annotations.severity.as_deref(), annotations.country.as_deref());
                counts.add(sealed.log_id.timestamp_ms(), &of_event, hashes.action, severity, country);
                let position = writer.record(sealed, text.as_str(), annotations);
                Entry { log_id: sealed.log_id, position, hashes }
            })
            .collect();
        let in_frame = key.filter(|_| !mutants::on(Mutant::KeyOutsideFrame));
        plan.running = writer.finish(in_frame, plan.running);
        plan.end += (self.bytes.len() - before) as u64;
        let position = u32::try_from(position).expect("segments are smaller than 4 GiB");
        let key =
            key.map(|stored| KeyEntry { slot: slot(chain, stored.key.key_hash), received_ms, position });
        Contained { entries, fields, counts, key }
    }

    /// Adds a frame that was encoded, and counts its events for its tenant. Those of a system chain count for
    /// nobody.
    pub(crate) fn push(&mut self, frame: SealedFrame) {
        if !frame.chain.is_system() {
            for entry in &frame.contained.entries {
                let of = (frame.chain.tenant_id, Month::of(entry.log_id.timestamp_ms()));
                match self.usage.last_mut() {
                    Some((last, count)) if *last == of => *count += 1,
                    _ => self.usage.push((of, 1)),
                }
            }
        }
        self.frames.push(frame);
    }

    /// The chains that were skipped can go on, and the group is ready for the disk.
    pub(crate) fn complete(self, plan: &Plan, queue: &mut Queue) -> Complete {
        queue.resume_skipped(self.skipped);
        Complete {
            generation: self.generation,
            commit: (!self.frames.is_empty()).then_some(self.commit),
            begins: self.begins,
            start: self.start,
            bytes: self.bytes,
            frames: self.frames,
            usage: self.usage,
            after: *plan,
        }
    }
}

/// On a disk that is almost full the next segment may be a small one, and beginning it in vain would waste
/// the room there is.
fn fits_next(bytes: usize, plan: &Plan, next: &impl NextSegment) -> bool {
    SEGMENT_HEADER_LEN as u64 + bytes as u64 <= next.capacity(plan.capacity)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sealog_core::id::Mode;

    use super::super::request::testing::{Answered, chain, request};
    use super::*;

    const KIB: usize = 1 << 10;
    const LARGE: usize = 128 * KIB;
    const GROUP_MAX: usize = 256 * KIB;

    fn plan(capacity: u64) -> Plan {
        Plan { segment: 1, salt: [0; 16], end: SEGMENT_HEADER_LEN as u64, capacity, running: 0 }
    }

    /// The next segment, of this capacity.
    struct Next {
        capacity: u64,
        keeps_up: bool,
    }

    impl NextSegment for Next {
        fn keeps_up(&self) -> bool {
            self.keeps_up
        }

        fn capacity(&self, _: u64) -> u64 {
            self.capacity
        }

        fn header(&self, before: Predecessor, first_commit: u64) -> SegmentHeader {
            SegmentHeader {
                mode: Mode::Live,
                recovered: false,
                number: before.number + 1,
                salt: [1; 16],
                first_commit,
                created_ms: 0,
                before: Some(before),
            }
        }
    }

    const NEXT: Next = Next { capacity: 1 << 20, keeps_up: true };

    fn queue_of(requests: &[(u8, usize)]) -> (Queue, Vec<Answered>) {
        let mut queue = Queue::new(LARGE, usize::MAX);
        let mut answers = Vec::new();
        for (tenant, bytes) in requests {
            let (request, answered) = request(*tenant, *bytes, Duration::ZERO);
            assert!(queue.push(request).is_none());
            answers.push(answered);
        }
        (queue, answers)
    }

    fn taken(requests: &[Request]) -> Vec<(ChainId, usize)> {
        requests.iter().map(|request| (request.chain, request.bytes)).collect()
    }

    #[test]
    fn a_small_request_does_not_wait_until_much_of_another_chain_is_sealed_and_written() {
        let mut group = Group::new(0, 1, &plan(0), Vec::new());
        // No small request is in it: it may become large, whoever it is from.
        for tenant in [1, 2] {
            assert!(!group.delays_small(chain(tenant), 60 * KIB, 180 * KIB));
        }
        group.note_small(chain(2));
        group.note_small(chain(2));
        for (tenant, bytes, planned, waits) in [
            (1, 60 * KIB, KIB, false),
            (1, 60 * KIB, 60 * KIB, true),
            // Small ones may always join, and of one's own there may be much.
            (1, KIB, 180 * KIB, false),
            (2, 60 * KIB, 180 * KIB, false),
        ] {
            assert_eq!(
                group.delays_small(chain(tenant), bytes, planned),
                waits,
                "{tenant} {bytes} {planned}"
            );
        }
        // With small ones of several, every chain is another one to one of them.
        group.note_small(chain(1));
        for tenant in [1, 2, 3] {
            assert!(group.delays_small(chain(tenant), 60 * KIB, 60 * KIB));
            assert!(!group.delays_small(chain(tenant), KIB, 180 * KIB));
        }
    }

    #[test]
    fn a_request_that_does_not_fit_into_the_segment_begins_the_next_one_alone() {
        let (mut queue, _answers) = queue_of(&[(1, KIB), (1, 2 * KIB)]);
        let mut plan = plan((SEGMENT_HEADER_LEN + 2 * KIB) as u64);
        let mut group = Group::new(0, 7, &plan, Vec::new());
        let first = group.take_from(&mut queue, &mut plan, GROUP_MAX, &NEXT);
        assert_eq!(taken(&first), [(chain(1), KIB)], "the second one does not fit behind it");
        let before = group.complete(&plan, &mut queue);
        assert!(before.begins.is_none() && before.after.segment == 1);

        plan.end = plan.capacity - 1;
        let mut group = Group::new(0, 8, &plan, Vec::new());
        let second = group.take_from(&mut queue, &mut plan, GROUP_MAX, &NEXT);
        assert_eq!(taken(&second), [(chain(1), 2 * KIB)]);
        let after = group.complete(&plan, &mut queue);
        let begins = after.begins.unwrap();
        assert_eq!((begins.number, begins.first_commit, after.start), (2, 8, SEGMENT_HEADER_LEN as u64));
        assert_eq!((plan.segment, plan.salt, plan.capacity), (2, [1; 16], 1 << 20));
    }

    #[test]
    fn a_request_that_the_next_segment_cannot_hold_fails_and_the_others_go_on() {
        let (mut queue, mut answers) = queue_of(&[(1, 3 * KIB), (2, KIB)]);
        let mut plan = plan(SEGMENT_HEADER_LEN as u64);
        let next = Next { capacity: (SEGMENT_HEADER_LEN + 2 * KIB) as u64, keeps_up: true };
        let mut group = Group::new(0, 1, &plan, Vec::new());
        let requests = group.take_from(&mut queue, &mut plan, GROUP_MAX, &next);
        assert_eq!(taken(&requests), [(chain(2), KIB)]);
        assert!(matches!(answers[0].try_recv(), Ok(Err(StoreError::NoRoom))));
    }

    #[test]
    fn a_group_begins_one_segment_at_most() {
        let (mut queue, mut answers) = queue_of(&[(1, KIB), (2, 3 * KIB)]);
        let mut plan = plan(SEGMENT_HEADER_LEN as u64);
        let small = Next { capacity: (SEGMENT_HEADER_LEN + 2 * KIB) as u64, keeps_up: true };
        let mut group = Group::new(0, 1, &plan, Vec::new());
        let first = group.take_from(&mut queue, &mut plan, KIB, &small);
        assert_eq!(taken(&first), [(chain(1), KIB)]);
        // It was refused, so the group is empty again; and the segment after the one that it begins could be
        // larger.
        drop(first);
        assert_eq!(taken(&group.take_from(&mut queue, &mut plan, GROUP_MAX, &NEXT)), []);
        assert!(matches!(answers[1].try_recv(), Ok(Err(StoreError::NoRoom))));
        assert_eq!(group.complete(&plan, &mut queue).begins.unwrap().number, 2);
    }

    #[test]
    fn a_large_request_is_a_group_by_itself_while_the_next_segment_keeps_up() {
        let (mut queue, _answers) = queue_of(&[(1, LARGE)]);
        assert!(!queue.sort_out());
        queue.note_heads(|_| Head::EMPTY);
        let (sealing, _) = queue.begin_ahead().unwrap();
        queue.finish_ahead(sealing);
        let (request_of_2, _answered) = request(2, KIB, Duration::ZERO);
        assert!(queue.push(request_of_2).is_none());

        let mut small_plan = plan(1 << 20);
        let mut group = Group::new(0, 1, &small_plan, Vec::new());
        let behind = Next { keeps_up: false, ..NEXT };
        let requests = group.take_from(&mut queue, &mut small_plan, GROUP_MAX, &behind);
        assert_eq!(taken(&requests), [(chain(2), KIB)], "the large one waits for the zeros");

        let (request_of_3, _answered) = request(3, KIB, Duration::ZERO);
        assert!(queue.push(request_of_3).is_none());
        let mut group = Group::new(0, 2, &small_plan, Vec::new());
        let requests = group.take_from(&mut queue, &mut small_plan, GROUP_MAX, &NEXT);
        assert_eq!(taken(&requests), [(chain(1), LARGE)]);
        assert!(group.take_from(&mut queue, &mut small_plan, GROUP_MAX, &NEXT).is_empty(), "nobody joins it");
    }

    #[test]
    fn chains_that_were_skipped_for_small_requests_are_first_in_the_next_group() {
        let (mut queue, _answers) = queue_of(&[(1, KIB), (2, 60 * KIB), (2, 60 * KIB), (3, KIB)]);
        let mut plan = plan(1 << 20);
        let mut group = Group::new(0, 1, &plan, Vec::new());
        let first = group.take_from(&mut queue, &mut plan, GROUP_MAX, &NEXT);
        assert!(taken(&first).contains(&(chain(1), KIB)) && taken(&first).contains(&(chain(3), KIB)));
        group.complete(&plan, &mut queue);
        assert_eq!(queue.peek().map(|(chain, _)| chain), Some(chain(2)));
    }
}
