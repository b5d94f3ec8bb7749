//! Sealing: how an accepted event becomes the next link of its chain.

use crate::canonical::{EventText, Preimage};
use crate::id::{Hash, Random80, TenantId, Ulid};
use crate::time::TIMESTAMP_MS_MAX;

/// The last event of a chain: all that sealing the next one needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// 0 while the chain is empty.
    pub chain_seq: u64,
    pub log_id: Ulid,
    pub hash: Hash,
}

/// The fields that sealing assigns. No other part of the program may assign them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sealed {
    pub chain_seq: u64,
    pub log_id: Ulid,
    pub prev_hash: Hash,
    pub hash: Hash,
}

impl Head {
    pub const EMPTY: Head = Head { chain_seq: 0, log_id: Ulid(0), hash: Hash::ZERO };

    /// Seals the event that follows this head. Spec 2.3.
    pub fn seal(&self, tenant_id: TenantId, text: &EventText, now_ms: u64, random: Random80) -> Sealed {
        self.seal_with(&mut Preimage::default(), tenant_id, text, now_ms, random)
    }

    /// Like [`Head::seal`], with memory that the next event reuses.
    pub fn seal_with(
        &self,
        preimage: &mut Preimage,
        tenant_id: TenantId,
        text: &EventText,
        now_ms: u64,
        random: Random80,
    ) -> Sealed {
        let log_id = self.next_log_id(now_ms, random);
        Sealed {
            chain_seq: self.chain_seq + 1,
            log_id,
            prev_hash: self.hash,
            hash: preimage.hash(
                self.hash,
                log_id,
                tenant_id,
                text.as_str().as_bytes(),
                log_id.timestamp_ms(),
            ),
        }
    }

    /// An id above the last one, whatever the clock says.
    ///
    /// t0: an event is sealed at 12:00:00.000. t1: the clock is set back an hour. t2: the next event must
    /// still sort behind the first, since a reader may already have been shown a page that ends with it. So
    /// time stands still for this chain until the clock has caught up.
    fn next_log_id(&self, now_ms: u64, random: Random80) -> Ulid {
        let now_ms = now_ms.min(TIMESTAMP_MS_MAX);
        if now_ms > self.log_id.timestamp_ms() {
            Ulid::new(now_ms, random)
        } else {
            // Counting up carries into the milliseconds when the random part is all ones, which keeps both
            // orders.
            Ulid(self.log_id.0.checked_add(1).expect("times end long before 48 bits of milliseconds do"))
        }
    }
}

impl Sealed {
    pub fn head(&self) -> Head {
        Head { chain_seq: self.chain_seq, log_id: self.log_id, hash: self.hash }
    }

    pub fn timestamp_ms(&self) -> u64 {
        self.log_id.timestamp_ms()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::canonical::Fields;
    use crate::id::Uuid;

    fn seal(head: Head, now_ms: u64, random: u8) -> Sealed {
        let text =
            EventText::new(Fields { action: "\"a.b\"", actor_id: None, resource: None, metadata: None });
        head.seal(TenantId(Uuid([1; 16])), &text, now_ms, Random80([random; 10]))
    }

    #[test]
    fn the_first_event_has_seq_1_and_64_zeros_before_it() {
        let first = seal(Head::EMPTY, 1000, 7);
        assert_eq!((first.chain_seq, first.prev_hash), (1, Hash::ZERO));
        assert_eq!(first.timestamp_ms(), 1000);
        let second = seal(first.head(), 2000, 7);
        assert_eq!((second.chain_seq, second.prev_hash), (2, first.hash));
    }

    #[test]
    fn ids_and_times_increase_when_the_clock_stands_or_steps_back() {
        let mut last = seal(Head::EMPTY, 5000, 7);
        for now_ms in [5000, 5000, 4999, 0, 5001, 1, 5001] {
            let next = seal(last.head(), now_ms, 3);
            assert!(next.log_id > last.log_id);
            assert!(next.timestamp_ms() >= last.timestamp_ms());
            last = next;
        }
    }

    #[test]
    fn a_random_part_of_all_ones_carries_into_the_next_millisecond() {
        let first = seal(Head::EMPTY, 5000, 0xFF);
        let second = seal(first.head(), 5000, 0);
        assert_eq!(second.timestamp_ms(), 5001);
        assert!(second.log_id > first.log_id);
    }

    #[test]
    fn a_clock_past_the_year_9999_is_held_there() {
        assert_eq!(seal(Head::EMPTY, u64::MAX, 1).timestamp_ms(), TIMESTAMP_MS_MAX);
    }
}
