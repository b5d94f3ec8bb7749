//! The index of a segment, built from the segment itself.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::id::{ChainId, Mode, Ulid};

use super::block::{Entry, FieldHashes, MemoryRun};
use super::fields::FieldColumn;
use super::salt::IndexSalt;
use super::sidecar::{KeyEntry, Opened, SegmentEnd, SegmentIndex, Sidecar, slot};
use crate::embedded::log::disk::{self, Disk, OpenFiles};
use crate::embedded::log::format::{Frame, SEGMENT_HEADER_LEN};
use crate::embedded::log::segment::{Piece, index_path};

/// The events of a segment, as far as they can be read, and which places are damaged.
pub(crate) struct Indexed {
    pub index: SegmentIndex,
    pub damage: Vec<(u64, u64)>,
    pub running: u32,
    pub end: u64,
}

/// Builds the index of a segment from its pieces.
pub(crate) fn index_pieces<'a>(
    number: u64,
    pieces: impl IntoIterator<Item = &'a Piece<'a>>,
    salt: &IndexSalt,
) -> Indexed {
    let mut indexed = Indexed {
        index: SegmentIndex::default(),
        damage: Vec::new(),
        running: 0,
        end: SEGMENT_HEADER_LEN as u64,
    };
    let mut open: HashMap<ChainId, usize> = HashMap::new();
    for piece in pieces {
        match piece {
            Piece::Intact(frame) => {
                let readable = indexed.add_frame(number, frame, &mut open, salt);
                indexed.running = frame.running_checksum(indexed.running);
                indexed.end = frame.header.end();
                if !readable {
                    // Whole, but not what this version writes. It must not be taken for absent.
                    indexed.damage.push((frame.header.position, frame.header.end()));
                }
            }
            Piece::Broken(frame) => {
                // Its header is right, so the records that are still whole can be found and read.
                indexed.add_frame(number, frame, &mut open, salt);
                indexed.damage.push((frame.header.position, frame.header.end()));
            }
            Piece::Unreadable(from, to) => indexed.damage.push((*from, *to)),
        }
    }
    indexed.index.count_usage();
    indexed
}

impl Indexed {
    /// Whether every record could be read.
    fn add_frame(
        &mut self,
        number: u64,
        frame: &Frame<'_>,
        open: &mut HashMap<ChainId, usize>,
        salt: &IndexSalt,
    ) -> bool {
        let header = &frame.header;
        let chain = header.chain;
        let runs = &mut self.index.runs;
        let mut readable = true;
        for record in frame.records() {
            let event = record.event(chain);
            readable &= event.is_some();
            let known =
                open.get(&chain).map(|at| &runs[*at].1).filter(|run| run.end_seq() == record.chain_seq);
            let (log_id, hashes) = match (&event, known) {
                (Some(event), _) => (event.sealed.log_id, FieldHashes::of(&event.text.fields(), salt)),
                // Where a record is damaged its id is unknown: it gets the lowest that it can have had, and
                // no action.
                (None, Some(run)) => (Ulid(run.last_log_id().0.saturating_add(1)), FieldHashes::default()),
                // Nothing to go by: it counts as a hole.
                (None, None) => continue,
            };
            if known.is_none() {
                open.insert(chain, runs.len());
                runs.push((chain, MemoryRun::new(number, record.chain_seq)));
            }
            let run = &mut runs[open[&chain]].1;
            let mut fields = FieldColumn::default();
            // Of a damaged record nothing is known, and no list finds it by a value.
            fields.push_event(event.as_ref().and_then(|event| event.text.fields().metadata), salt);
            run.push(&Entry { log_id, position: record.offset, hashes }, fields.of(0));
            run.last_hash = record.raw_hash();
            if let Some(event) = event {
                run.head = event.head();
            }
        }
        if let (Some(stored), Ok(position)) = (frame.idempotency(), u32::try_from(header.position)) {
            let slot = slot(chain, stored.key.key_hash);
            self.index.keys.push(KeyEntry { slot, received_ms: header.received_ms, position });
        }
        readable
    }
}

/// Writes a segment's index and opens it.
pub(crate) fn write_index(
    disk: &dyn Disk,
    files: &Arc<OpenFiles>,
    dir: &Path,
    index: &SegmentIndex,
    end: &SegmentEnd,
    mode: Mode,
    salt: &IndexSalt,
) -> io::Result<Opened> {
    write_encoded(disk, files, dir, &index.encode(end, salt), end, mode, salt)
}

/// The same with an index that is bytes already.
pub(crate) fn write_encoded(
    disk: &dyn Disk,
    files: &Arc<OpenFiles>,
    dir: &Path,
    bytes: &[u8],
    end: &SegmentEnd,
    mode: Mode,
    salt: &IndexSalt,
) -> io::Result<Opened> {
    let path = index_path(dir, end.number);
    disk::replace(disk, &path, bytes)?;
    files.forget(&path);
    Sidecar::open(files.file(path), end, mode, salt)
}
