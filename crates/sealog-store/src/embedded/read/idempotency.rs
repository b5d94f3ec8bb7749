//! Idempotency keys: whether one is free, and what an earlier request under it says of this one.

use std::io;

use sealog_core::id::ChainId;

use crate::append::{Appended, IdempotencyKey, Receipt, Reservation, Reserved};
use crate::embedded::contents::Contents;
use crate::embedded::index::keys::KeyPlace;
use crate::embedded::index::sidecar::{SlotProbe, slot};
use crate::embedded::log::format::{Frame, FrameHeader};
use crate::error::StoreError;

impl Contents {
    /// Takes a key of which memory alone can tell that it is in flight or was never used.
    pub(crate) fn reserve_unused(&self, chain: ChainId, key: IdempotencyKey) -> Option<Reserved> {
        let slot = slot(chain, key.key_hash);
        let Some(release) = self.keys.take(slot) else { return Some(Reserved::InFlight) };
        let reservation = Reservation::new(chain, key, release);
        self.keys.is_unused(&SlotProbe::new(slot, &self.salt)).then_some(Reserved::Fresh(reservation))
    }

    pub(crate) fn reserve(&self, chain: ChainId, key: IdempotencyKey) -> Result<Reserved, StoreError> {
        // Taken before looking: whoever finds the key unused holds it.
        let Some(release) = self.keys.take(slot(chain, key.key_hash)) else { return Ok(Reserved::InFlight) };
        let reservation = Reservation::new(chain, key, release);
        Ok(match self.find_key(chain, &key, self.world.now_ms())? {
            None => Reserved::Fresh(reservation),
            Some(Appended::Conflict) => Reserved::Conflict,
            Some(Appended::Replayed(receipt) | Appended::Sealed(receipt)) => Reserved::Replay(receipt),
        })
    }

    /// What an earlier request under this key says of this one; nothing when there was none.
    pub(crate) fn find_key(
        &self,
        chain: ChainId,
        key: &IdempotencyKey,
        now_ms: u64,
    ) -> Result<Option<Appended>, StoreError> {
        let probe = SlotProbe::new(slot(chain, key.key_hash), &self.salt);
        for place in self.with_rebuild(|| self.keys.find(&probe, now_ms))? {
            let decided = self.read_key(chain, key, place).map_err(|error| self.read_failed(&error))?;
            if decided.is_some() {
                return Ok(decided);
            }
        }
        Ok(None)
    }

    fn read_key(
        &self,
        chain: ChainId,
        key: &IdempotencyKey,
        place: KeyPlace,
    ) -> io::Result<Option<Appended>> {
        let lost =
            || io::Error::new(io::ErrorKind::InvalidInput, "cannot read the frame of an idempotency key");
        let segment = self.segment(place.segment).ok_or_else(lost)?;
        let position = u64::from(place.entry.position);
        let mut bytes = Vec::new();
        segment.read_into(&mut bytes, position, 64 << 10)?;
        let header = FrameHeader::decode(&bytes, position, &segment.salt, self.mode).ok_or_else(lost)?;
        if header.length as usize > bytes.len() {
            segment.read_into(&mut bytes, position, header.length as usize)?;
        }
        let frame = Frame::decode(&bytes, position, &segment.salt, self.mode).ok_or_else(lost)?;
        if !frame.intact() {
            // A loss that was accepted: another event stands in place of its last one, and whoever asks again
            // is not told of what is gone.
            let header = &frame.header;
            let last_seq = header.first_seq + u64::from(header.count) - 1;
            let is_here = |(segment, at)| segment == place.segment && (position..header.end()).contains(&at);
            let replaced =
                header.chain == chain && self.place_of(chain, last_seq)?.is_some_and(|at| !is_here(at));
            return if replaced { Ok(None) } else { Err(lost()) };
        }
        let stored = frame.idempotency().ok_or_else(lost)?;
        if frame.header.chain != chain || stored.key.key_hash != key.key_hash {
            // Another key in the same slot.
            return Ok(None);
        }
        if stored.key.fingerprint != key.fingerprint {
            return Ok(Some(Appended::Conflict));
        }
        let events: Vec<_> = frame.records().filter_map(|record| record.event(chain)).collect();
        Ok(events.last().map(|last| {
            Appended::Replayed(Receipt {
                request_id: Some(stored.request_id),
                log_ids: events.iter().map(|event| event.sealed.log_id).collect(),
                first_seq: frame.header.first_seq,
                hash: last.sealed.hash,
            })
        }))
    }
}
