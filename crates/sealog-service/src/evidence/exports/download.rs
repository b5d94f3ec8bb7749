//! A download on its way: read, written and hashed in pieces, each when the connection asks for it.

use sealog_control::Control;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_control::{Export, ExportTotals, NewExport};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash};
use sealog_core::verify::Item;
use sealog_store::world::World;
use sealog_store::{Range, Store, StoreError};
use sha2::{Digest, Sha256};

use super::format::Format;
use super::frozen::Frozen;
use super::kept::dropped_to;
use super::seek::{Ranges, Seek};
use crate::jobs::give_way;

/// Bytes of events after which a piece ends. Its last event may be as large as a body.
pub const PIECE_BYTES: usize = 256 << 10;

/// One download. It holds one piece at a time.
pub struct Download {
    pub(super) store: Arc<dyn Store>,
    pub(super) control: Arc<Control>,
    pub(super) world: Arc<dyn World>,
    pub(super) export: Export,
    pub(super) chain: ChainId,
    pub(super) query: Arc<Frozen>,
    pub(super) state: State,
    /// How long to rest before the next piece.
    pub(super) rest: Duration,
}

pub(super) enum State {
    /// It is not known yet what is to be read.
    Seeking(Box<(Seek, Writer)>),
    /// These ranges, from the first.
    Reading(Ranges, Box<Writer>),
    /// All was read and handed on.
    Written(ExportTotals),
    Ended,
}

impl State {
    pub(super) fn new(query: &Frozen, export: &NewExport, writer: Writer) -> State {
        let whole = (export.first_seq, export.last_seq);
        match query.seek(whole.0, whole.1) {
            Some(seek) => State::Seeking(Box::new((seek, writer))),
            None => State::Reading(Ranges::from([whole]), Box::new(writer)),
        }
    }
}

/// Writes rows and counts what it has written.
pub(super) struct Writer {
    format: Format,
    hasher: Sha256,
    has_begun: bool,
    rows: u64,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(format: Format) -> Writer {
        Writer { format, hasher: Sha256::new(), has_begun: false, rows: 0, bytes: 0 }
    }

    fn put(&mut self, items: Vec<Item>, query: &Frozen) -> Vec<u8> {
        let mut out = Vec::new();
        if !std::mem::replace(&mut self.has_begun, true) {
            self.format.put_header(&mut out);
        }
        for item in items {
            // A damaged record is in no list either; the number of rows tells of it.
            if let Item::Event(event) = item
                && query.matches(&event)
            {
                self.format.put_event(&event, &mut out);
                self.rows += 1;
            }
        }
        self.hasher.update(&out);
        self.bytes += out.len() as u64;
        out.shrink_to_fit();
        out
    }
}

impl Download {
    /// Rests, if the last piece was held up by events that come in. To be asked for before a piece, while
    /// nothing is held that others wait for.
    pub async fn give_way(&mut self) {
        tokio::time::sleep(std::mem::take(&mut self.rest)).await;
    }

    /// The next bytes, or nothing when it is complete. There are none in a piece of which no event matches:
    /// whoever asks goes on, and others have their turn in between. After an error it is not to be asked
    /// again: what was sent is not the file.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => Ok(None),
            State::Written(totals) => self.complete(totals).await.map(|()| None),
            State::Seeking(sought) => {
                let (mut seek, writer) = *sought;
                self.state = match seek.step(&*self.store, self.chain).await? {
                    Some(ranges) => State::Reading(ranges, Box::new(writer)),
                    None => State::Seeking(Box::new((seek, writer))),
                };
                Ok(Some(Vec::new()))
            }
            State::Reading(ranges, writer) => self.read(ranges, writer).await.map(Some),
        }
    }

    async fn read(&mut self, mut ranges: Ranges, mut writer: Box<Writer>) -> Result<Vec<u8>, StoreError> {
        let begun = Instant::now();
        let items = match ranges.pop_front().filter(|(from, to)| from <= to) {
            Some((from, to)) => {
                let range = Range { from, to, bytes_max: PIECE_BYTES };
                let chunk = self.store.range(self.chain, range).await?;
                // What was dropped meanwhile would be missing from the file without a word.
                if dropped_to(&*self.store, &self.export.new).await?.is_some() {
                    return Err(StoreError::Read("events of the export were deleted for their age".into()));
                }
                if let Some(next) = chunk.resume {
                    ranges.push_front((next, to));
                }
                chunk.items
            }
            None => Vec::new(),
        };
        let cost = items.iter().map(item_bytes).sum();
        let query = Arc::clone(&self.query);
        let ((writer, piece), progress) = give_way::compute(self.store.pool(), self.chain, cost, move || {
            let piece = writer.put(items, &query);
            (writer, piece)
        })
        .await?;
        if progress.is_crowded() {
            self.rest = give_way::rest(begun.elapsed());
        }
        self.state = match ranges.is_empty() {
            false => State::Reading(ranges, writer),
            true => State::Written(ExportTotals {
                rows: writer.rows,
                bytes: writer.bytes,
                sha256: Hash(writer.hasher.finalize().into()),
                at_ms: self.world.now_ms(),
            }),
        };
        Ok(piece)
    }

    /// The last byte was asked for. A file that is not the one of the first time is not completed.
    async fn complete(&self, totals: ExportTotals) -> Result<(), StoreError> {
        let id = self.export.new.id;
        let known = self.control.complete_export(id, totals).await?;
        let is_same = |known: ExportTotals| {
            (known.rows, known.bytes, known.sha256) == (totals.rows, totals.bytes, totals.sha256)
        };
        match known {
            Some(known) if is_same(known) => Ok(()),
            _ => {
                tracing::error!(export = %id.0, chain = %self.chain, "an export differs from its first download; verify the chain");
                Err(StoreError::Read("the export differs from its first download".into()))
            }
        }
    }
}

fn item_bytes(item: &Item) -> usize {
    match item {
        Item::Event(event) => event.text.as_str().len() + size_of::<StoredEvent>(),
        Item::Damaged { .. } => size_of::<Item>(),
    }
}
