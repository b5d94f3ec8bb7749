//! Idempotency keys in the database: records that are found, and records on their way into the table.

use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::Ulid;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::rows::{self, Digest32, Id, signed, unsigned};
use crate::append::{Appended, IDEMPOTENCY_RETENTION_MS, IdempotencyKey, KeptKey, Receipt};

/// A key that has been used, with the answer of then.
pub(super) struct UsedKey {
    pub fingerprint: [u8; 32],
    pub received_ms: u64,
    pub receipt: Receipt,
}

impl UsedKey {
    /// Nothing for a record that is damaged.
    pub(super) fn of(row: &Row) -> Option<([u8; 32], UsedKey)> {
        let log_ids: &[u8] = row.get("log_ids");
        if log_ids.is_empty() || !log_ids.len().is_multiple_of(16) {
            return None;
        }
        let receipt = Receipt {
            request_id: Some(row.get::<_, Id>("request_id").ulid()),
            log_ids: log_ids
                .chunks_exact(16)
                .filter_map(|id| Some(Ulid::from_bytes(id.try_into().ok()?)))
                .collect(),
            first_seq: unsigned(row.get("first_seq")),
            hash: rows::hash(row.get("hash"))?,
        };
        let used = UsedKey {
            fingerprint: row.get::<_, &[u8]>("fingerprint").try_into().ok()?,
            received_ms: unsigned(row.get("received_ms")),
            receipt,
        };
        Some((row.get::<_, &[u8]>("key_hash").try_into().ok()?, used))
    }

    /// What a request with this key is told; nothing when the key is free again.
    pub(super) fn decide(&self, key: &IdempotencyKey, now_ms: u64) -> Option<Appended> {
        if now_ms >= self.received_ms.saturating_add(IDEMPOTENCY_RETENTION_MS) {
            return None;
        }
        Some(if self.fingerprint == key.fingerprint.0 {
            Appended::Replayed(self.receipt.clone())
        } else {
            Appended::Conflict
        })
    }
}

/// An idempotency record on its way into the table.
pub(super) struct KeyRow {
    key_hash: Digest32,
    fingerprint: Digest32,
    request_id: Id,
    first_seq: i64,
    log_ids: Vec<u8>,
    hash: Digest32,
    received_ms: i64,
}

impl KeyRow {
    pub(super) fn new(key: IdempotencyKey, request_id: Ulid, receipt: &Receipt, received_ms: u64) -> KeyRow {
        KeyRow {
            key_hash: Digest32(key.key_hash.0),
            fingerprint: Digest32(key.fingerprint.0),
            request_id: Id::of_ulid(request_id),
            first_seq: signed(receipt.first_seq),
            log_ids: receipt.log_ids.iter().flat_map(|log_id| log_id.to_bytes()).collect(),
            hash: Digest32(receipt.hash.0),
            received_ms: signed(received_ms),
        }
    }

    pub(super) fn params(&self) -> [&(dyn ToSql + Sync); 7] {
        [
            &self.key_hash,
            &self.fingerprint,
            &self.request_id,
            &self.first_seq,
            &self.log_ids,
            &self.hash,
            &self.received_ms,
        ]
    }
}

/// Adds a use of a key. One statement cannot set a row twice, and would fail for the whole group: the later
/// use counts.
pub(super) fn put_key(used: &mut Vec<KeyRow>, row: KeyRow) {
    used.retain(|earlier| earlier.key_hash != row.key_hash);
    used.push(row);
}

/// The answer that an imported request had where it was sealed.
pub(super) fn imported_receipt(kept: &KeptKey, events: &[StoredEvent], last: Head) -> Receipt {
    Receipt {
        request_id: Some(kept.request_id),
        log_ids: events.iter().map(|event| event.sealed.log_id).collect(),
        first_seq: kept.first_seq,
        hash: last.hash,
    }
}

/// Idempotency records, column by column.
#[derive(Default)]
pub(super) struct KeyColumns<'a> {
    key_hash: Vec<Digest32>,
    fingerprint: Vec<Digest32>,
    request_id: Vec<Id>,
    first_seq: Vec<i64>,
    log_ids: Vec<&'a [u8]>,
    hash: Vec<Digest32>,
    received_ms: Vec<i64>,
}

impl<'a> KeyColumns<'a> {
    pub(super) fn of(rows: &'a [KeyRow]) -> KeyColumns<'a> {
        let mut columns = KeyColumns::default();
        for row in rows {
            columns.key_hash.push(row.key_hash);
            columns.fingerprint.push(row.fingerprint);
            columns.request_id.push(row.request_id);
            columns.first_seq.push(row.first_seq);
            columns.log_ids.push(&row.log_ids);
            columns.hash.push(row.hash);
            columns.received_ms.push(row.received_ms);
        }
        columns
    }

    pub(super) fn params<'b>(&'b self, chain: &'b Id) -> [&'b (dyn ToSql + Sync); 8] {
        [
            chain,
            &self.key_hash,
            &self.fingerprint,
            &self.request_id,
            &self.first_seq,
            &self.log_ids,
            &self.hash,
            &self.received_ms,
        ]
    }
}
