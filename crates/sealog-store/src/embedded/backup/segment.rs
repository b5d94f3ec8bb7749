//! What the bytes of a segment hold: its header, the ends of its chains, and what is damaged.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use sealog_core::canonical::Preimage;
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_core::verify::Stretch;

use crate::embedded::log::format::{SEGMENT_HEADER_LEN, SegmentHeader};
use crate::embedded::log::segment::{self, Piece};

/// Parts of a chain in one segment that are not sound and are kept to be looked at. The first is what a
/// verdict names.
const UNSOUND_MAX: usize = 8;

/// As files of segments are named.
pub fn segment_file_name(number: u64) -> String {
    format!("{number:08}.log")
}

/// The number of the segment that a file of this name is.
pub fn segment_number(name: &str) -> Option<u64> {
    segment::parse_name(name)
}

/// What a segment says of itself and of the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub number: u64,
    pub mode: Mode,
    /// Random, and new for each segment: no two segments have the same.
    pub salt: [u8; 16],
    /// The segment before, and where it ends.
    pub before: Option<(u64, u64)>,
}

impl Header {
    pub const LEN: usize = SEGMENT_HEADER_LEN;

    /// Nothing for bytes that are no header, or one of a version that is not known.
    pub fn read(bytes: &[u8]) -> Option<Header> {
        let header = SegmentHeader::decode(bytes).ok()?;
        Some(Header {
            number: header.number,
            mode: header.mode,
            salt: header.salt,
            before: header.before.map(|before| (before.number, before.final_len)),
        })
    }
}

/// Events to look for: by their ids, as receipts have them, or by their hashes, as noted heads do.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub ids: HashSet<Ulid>,
    pub hashes: HashSet<Hash>,
}

impl Wanted {
    fn has(&self, event: &Head) -> bool {
        self.ids.contains(&event.log_id) || self.hashes.contains(&event.hash)
    }
}

/// What a segment holds.
#[derive(Debug)]
pub struct SegmentContents {
    pub header: Header,
    pub events: u64,
    /// Where something is that is no frame, or a frame with something wrong in it: from, to.
    pub damage: Vec<(u64, u64)>,
    /// Where its frames end.
    pub end: u64,
    /// Of its last intact frame; 0 where there is none.
    pub commit: u64,
    pub(super) parts: Vec<(ChainId, Part)>,
    /// Of the events that were looked for.
    pub found: Vec<(ChainId, Head)>,
}

/// A part of a chain, in the order of the log.
#[derive(Debug)]
pub(super) enum Part {
    Sound(Box<Run>),
    /// An event that does not follow the one before it, or whose hash is not its own.
    Unsound(Box<StoredEvent>),
    Damaged {
        chain_seq: u64,
    },
}

/// Events that follow each other.
#[derive(Debug)]
pub(super) struct Run {
    pub first_seq: u64,
    pub head: Head,
    /// Of events that were verified.
    pub stretch: Option<Stretch>,
}

impl SegmentContents {
    /// Reads a segment whose content ends with these bytes. `verify` recomputes the hash of every event,
    /// which is most of the work. `wanted` are events to look for.
    pub fn read(bytes: &[u8], verify: bool, wanted: &Wanted) -> Option<SegmentContents> {
        SegmentContents::read_from(bytes, SEGMENT_HEADER_LEN as u64, verify, wanted)
    }

    /// The same of what stands behind `from`, where a frame ends.
    pub fn read_from(bytes: &[u8], from: u64, verify: bool, wanted: &Wanted) -> Option<SegmentContents> {
        let header = Header::read(bytes)?;
        let pieces = segment::walk_from(bytes, from, u64::MAX, &header.salt, header.mode);
        let mut contents = SegmentContents {
            header,
            events: 0,
            damage: Vec::new(),
            end: pieces.last().map_or(from.max(SEGMENT_HEADER_LEN as u64), Piece::end),
            commit: 0,
            parts: Vec::new(),
            found: Vec::new(),
        };
        let (mut open, mut preimage) = (HashMap::new(), Preimage::default());
        let mut unsound: HashMap<ChainId, usize> = HashMap::new();
        for piece in &pieces {
            let frame = match piece {
                Piece::Intact(frame) => {
                    contents.commit = frame.header.commit;
                    frame
                }
                Piece::Broken(frame) => {
                    contents.damage.push((piece.start(), piece.end()));
                    frame
                }
                Piece::Unreadable(from, to) => {
                    contents.damage.push((*from, *to));
                    continue;
                }
            };
            let chain = frame.header.chain;
            let mut next_seq = frame.header.first_seq;
            for record in frame.records() {
                next_seq = record.chain_seq + 1;
                let Some(checked) = record.verifiable(chain) else {
                    contents.close(chain, open.remove(&chain));
                    contents.parts.push((chain, Part::Damaged { chain_seq: record.chain_seq }));
                    continue;
                };
                contents.events += 1;
                let sealed = checked.sealed;
                let head = Head { chain_seq: sealed.chain_seq, log_id: sealed.log_id, hash: sealed.hash };
                if wanted.has(&head) {
                    contents.found.push((chain, head));
                }
                if let Entry::Occupied(mut of_chain) = open.entry(chain) {
                    let run: &mut Run = of_chain.get_mut();
                    let extended = match &mut run.stretch {
                        Some(stretch) => stretch.extend(&checked, &mut preimage),
                        None => run.head.chain_seq + 1 == head.chain_seq && run.head.hash == sealed.prev_hash,
                    };
                    if extended {
                        run.head = head;
                        continue;
                    }
                    contents.close(chain, Some(of_chain.remove()));
                }
                let stretch = if verify { Stretch::begin(&checked, &mut preimage) } else { None };
                if verify && stretch.is_none() {
                    let count = unsound.entry(chain).or_default();
                    *count += 1;
                    if *count <= UNSOUND_MAX
                        && let Some(event) = record.event(chain)
                    {
                        contents.parts.push((chain, Part::Unsound(Box::new(event))));
                    }
                    continue;
                }
                open.insert(chain, Run { first_seq: head.chain_seq, head, stretch });
            }
            // Where a length is damaged, the records behind it cannot be found.
            let end_seq = frame.header.first_seq + u64::from(frame.header.count);
            for chain_seq in next_seq..end_seq {
                contents.close(chain, open.remove(&chain));
                contents.parts.push((chain, Part::Damaged { chain_seq }));
            }
        }
        for (chain, run) in open {
            contents.close(chain, Some(run));
        }
        Some(contents)
    }

    /// The events of a segment behind `from`, where a frame ends: those that can be read, in the order of the
    /// log.
    pub fn events(bytes: &[u8], from: u64) -> Vec<(ChainId, StoredEvent)> {
        let Some(header) = Header::read(bytes) else { return Vec::new() };
        let pieces = segment::walk_from(bytes, from, u64::MAX, &header.salt, header.mode);
        let frames = pieces.iter().filter_map(|piece| match piece {
            Piece::Intact(frame) => Some(frame),
            Piece::Broken(_) | Piece::Unreadable(..) => None,
        });
        let records = frames.flat_map(|frame| frame.records().map(|record| (frame.header.chain, record)));
        records.filter_map(|(chain, record)| Some((chain, record.event(chain)?))).collect()
    }

    fn close(&mut self, chain: ChainId, run: Option<Run>) {
        if let Some(run) = run {
            self.parts.push((chain, Part::Sound(Box::new(run))));
        }
    }
}
