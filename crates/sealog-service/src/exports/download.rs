//! A download on its way: read, written and hashed in pieces, each when the connection asks for it.

use std::sync::Arc;

use sealog_control::{Export, ExportTotals, Exports};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash};
use sealog_core::verify::Item;
use sealog_store::pool::Lane;
use sealog_store::world::World;
use sealog_store::{Range, Store, StoreError};
use sha2::{Digest, Sha256};

use super::format::Format;
use super::frozen::Frozen;

/// Bytes of events after which a piece ends. Its last event may be as large as a body.
pub const PIECE_BYTES: usize = 256 << 10;

/// One download. It holds one piece at a time.
pub struct Download {
    pub(super) store: Arc<dyn Store>,
    pub(super) exports: Arc<dyn Exports>,
    pub(super) world: Arc<dyn World>,
    pub(super) export: Export,
    pub(super) chain: ChainId,
    pub(super) query: Arc<Frozen>,
    pub(super) state: State,
}

pub(super) enum State {
    /// From this `chain_seq` on.
    Reading(u64, Box<Writer>),
    /// All was read and handed on.
    Written(ExportTotals),
    Ended,
}

/// Writes rows and counts what it has written.
pub(super) struct Writer {
    format: Format,
    hasher: Sha256,
    rows: u64,
    bytes: u64,
}

impl Writer {
    pub(super) fn new(format: Format) -> Writer {
        Writer { format, hasher: Sha256::new(), rows: 0, bytes: 0 }
    }

    fn put(&mut self, items: Vec<Item>, query: &Frozen, is_first: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if is_first {
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

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download").field("export", &self.export.new.id).finish_non_exhaustive()
    }
}

impl Download {
    /// The next bytes, or nothing when it is complete. There are none in a piece of which no event matches: whoever asks
    /// goes on, and others have their turn in between. After an error it is not to be asked again: what was sent is not
    /// the file.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match std::mem::replace(&mut self.state, State::Ended) {
            State::Ended => Ok(None),
            State::Written(totals) => self.complete(totals).await.map(|()| None),
            State::Reading(from, writer) => self.read(from, writer).await.map(Some),
        }
    }

    async fn read(&mut self, from: u64, mut writer: Box<Writer>) -> Result<Vec<u8>, StoreError> {
        let (first, last) = (self.export.new.first_seq, self.export.new.last_seq);
        let (items, resume) = if from <= last {
            let range = Range { from, to: last, bytes_max: PIECE_BYTES };
            let chunk = self.store.range(self.chain, range).await?;
            (chunk.items, chunk.resume)
        } else {
            (Vec::new(), None)
        };
        let cost = items.iter().map(item_bytes).sum();
        let (query, is_first) = (Arc::clone(&self.query), from == first);
        let written = self.store.pool().run(Lane::Compute, self.chain, cost, move || {
            let piece = writer.put(items, &query, is_first);
            (writer, piece)
        });
        let (writer, piece) = written.await.map_err(|_| StoreError::Closing)?;
        self.state = match resume {
            Some(next) => State::Reading(next, writer),
            None => State::Written(ExportTotals {
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
        let known = self.exports.complete_export(id, totals).await?;
        let is_same = |known: ExportTotals| {
            (known.rows, known.bytes, known.sha256) == (totals.rows, totals.bytes, totals.sha256)
        };
        match known {
            Some(known) if is_same(known) => Ok(()),
            _ => {
                tracing::error!(export = %id.0, chain = %self.chain, "an export has other bytes than its first download; verify the chain");
                Err(StoreError::Read("the export has other bytes than its first download".into()))
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
