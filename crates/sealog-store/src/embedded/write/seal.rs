//! The critical section: everything that a store decides about a request is decided here, and nowhere else:
//! `log_id`, `timestamp`, `chain_seq`, `prev_hash`, `hash`, the outcome of its idempotency key, and what it
//! adds to the usage of its tenant.
//!
//! It takes no lock, starts no thread and does no I/O. The thread that seals looks up what is known of the
//! chain and the key ([`Known`]), and hands it in; a key is reserved until its request is answered, so
//! nothing about it can change between the look and the decision. Whoever has the [`Sealer`] is the only one
//! that seals.

use sealog_core::canonical::Preimage;
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::Draft;
use sealog_core::id::{ChainId, Random80};
use sealog_core::time::TIMESTAMP_MS_MAX;
use sealog_core::verify;

use super::group::{Complete, FrameOf, Group, NextSegment, SealedFrame};
use super::outcome::Outcome;
use super::queue::Queue;
use super::request::{Request, Work};
use crate::append::{Appended, Receipt};
use crate::embedded::index::salt::IndexSalt;
use crate::embedded::log::format::StoredKey;
use crate::embedded::log::plan::Plan;
use crate::error::StoreError;
use crate::loss::{self, Loss};
use crate::query::ChainHead;
use crate::types::IdMap;

/// What sealing goes by.
#[derive(Debug)]
pub(crate) struct Sealer {
    /// What was sealed belongs to this generation of the log. When a group comes to nothing another one
    /// begins.
    generation: u64,
    /// The last sealed event of each chain, durable or not yet.
    heads: IdMap<ChainId, Head>,
    plan: Plan,
    commit: u64,
    index_salt: IndexSalt,
}

/// What is known of a request's chain and key when its turn has come.
#[derive(Debug)]
pub(crate) struct Known {
    /// The last sealed event of the chain, durable or not yet.
    pub head: Head,
    /// Whether nothing may be sealed on it.
    pub unproven: bool,
    /// What an earlier request under the same key says of this one; nothing when there was none.
    pub earlier: Result<Option<Appended>, StoreError>,
    /// The ends of the chain, where a loss is to be accepted.
    pub ends: Option<ChainHead>,
}

impl Sealer {
    pub(crate) fn new((plan, commit): (Plan, u64), index_salt: IndexSalt) -> Sealer {
        Sealer { generation: 0, heads: IdMap::default(), plan, commit, index_salt }
    }

    /// Forgets what was sealed and then not written: goes on from the end of what is durable.
    pub(crate) fn begin(&mut self, generation: u64, durable: impl FnOnce() -> (Plan, u64)) {
        if self.generation != generation {
            self.generation = generation;
            self.heads.clear();
            (self.plan, self.commit) = durable();
        }
    }

    /// The last event of a chain that was sealed here, if one was.
    pub(crate) fn head_of(&self, chain: ChainId) -> Option<Head> {
        self.heads.get(&chain).copied()
    }

    pub(crate) fn new_group(&self, bytes: Vec<u8>) -> Group {
        Group::new(self.generation, self.commit + 1, &self.plan, bytes)
    }

    /// Takes requests for a group.
    pub(crate) fn take(
        &mut self,
        group: &mut Group,
        queue: &mut Queue,
        bytes_max: usize,
        next: &impl NextSegment,
    ) -> Vec<Request> {
        group.take_from(queue, &mut self.plan, bytes_max, next)
    }

    pub(crate) fn complete(&self, group: Group, queue: &mut Queue) -> Complete {
        group.complete(&self.plan, queue)
    }

    /// Decides everything about a request, and encodes its frame.
    pub(crate) fn seal(
        &mut self,
        group: &mut Group,
        request: Request,
        known: Known,
        now_ms: u64,
        random: impl Fn() -> Random80,
    ) {
        let Known { head, unproven, earlier, ends } = known;
        if unproven != matches!(request.work, Work::AcceptLoss { .. }) {
            let chain = request.chain;
            let error = if unproven { StoreError::HeadUnproven { chain } } else { loss::nothing_lost() };
            return request.fail(error);
        }
        let Request { chain, work, queued, completions, ahead, .. } = request;
        match work {
            Work::Append { drafts, idempotency, answer } => {
                // Decided again here, where nothing can come in between.
                if let Some(decided) = earlier.transpose() {
                    drop(idempotency);
                    return drop(answer.send(decided));
                }
                // No event is older than the receipt of its request.
                let (sealed, received_ms) = match ahead {
                    Some(ahead) if ahead.on == head => (ahead.sealed, ahead.now_ms),
                    _ => (seal_on(head, chain, &drafts, now_ms, random), now_ms),
                };
                let next = sealed.last().map_or(head, Sealed::head);
                let records = sealed.iter().zip(drafts.iter().map(|draft| (&draft.text, &draft.annotations)));
                let stored = idempotency.as_deref().map(|(reservation, request_id)| StoredKey {
                    key: reservation.key,
                    request_id: *request_id,
                });
                let frame = FrameOf { chain, key: stored.as_ref(), imported: false, received_ms };
                let contained = group.encode(&mut self.plan, &self.index_salt, frame, records);
                let receipt = Receipt {
                    request_id: stored.map(|stored| stored.request_id),
                    log_ids: sealed.iter().map(|sealed| sealed.log_id).collect(),
                    first_seq: head.chain_seq + 1,
                    hash: next.hash,
                };
                self.heads.insert(chain, next);
                let outcome = Outcome::Append { receipt, idempotency, answer };
                group.push(SealedFrame { chain, contained, head: next, queued, outcome, completions });
            }
            Work::Import { events, key, answer } => {
                let last = match verify::continues(&head, &events) {
                    Ok(last) => last,
                    Err(broken) => {
                        let why = format!(
                            "event {} does not continue the chain at {}: {}",
                            broken.at,
                            head.chain_seq,
                            broken.reason.explain()
                        );
                        return drop(answer.send(Err(StoreError::Refused(why))));
                    }
                };
                let records = events.iter().map(|event| (&event.sealed, (&event.text, &event.annotations)));
                let stored = key.map(|key| StoredKey { key: key.key, request_id: key.request_id });
                // The key's 24 hours began where it was first received.
                let received_ms = key.map_or(now_ms, |key| key.received_ms);
                let frame = FrameOf { chain, key: stored.as_ref(), imported: true, received_ms };
                let contained = group.encode(&mut self.plan, &self.index_salt, frame, records);
                self.heads.insert(chain, last);
                let outcome = Outcome::Import { answer };
                group.push(SealedFrame { chain, contained, head: last, queued, outcome, completions });
            }
            Work::AcceptLoss { reason, answer } => {
                let ends = ends.unwrap_or(ChainHead { durable: head, recorded: head, dropped: Head::EMPTY });
                if loss::base(&ends).log_id.timestamp_ms() > TIMESTAMP_MS_MAX {
                    let why = "the last event of the chain has an impossible id; no event can follow it";
                    return drop(answer.send(Err(StoreError::Refused(why.into()))));
                }
                let draft = Loss::of(&ends).draft(&reason);
                let sealed = seal_on(loss::base(&ends), chain, std::slice::from_ref(&draft), now_ms, random);
                let records = sealed.iter().map(|sealed| (sealed, (&draft.text, &draft.annotations)));
                let frame = FrameOf { chain, key: None, imported: false, received_ms: now_ms };
                let contained = group.encode(&mut self.plan, &self.index_salt, frame, records);
                let head = sealed.last().map_or(head, Sealed::head);
                let receipt = Receipt {
                    request_id: None,
                    log_ids: vec![head.log_id],
                    first_seq: head.chain_seq,
                    hash: head.hash,
                };
                // Not among the sealer's heads: nothing is sealed on it before the high-water mark knows it.
                self.heads.remove(&chain);
                let outcome = Outcome::AcceptLoss { receipt, answer };
                group.push(SealedFrame { chain, contained, head, queued, outcome, completions });
            }
        }
        self.commit = group.commit();
    }
}

/// Seals drafts on a head, one on top of the other.
pub(crate) fn seal_on(
    head: Head,
    chain: ChainId,
    drafts: &[Draft],
    now_ms: u64,
    random: impl Fn() -> Random80,
) -> Vec<Sealed> {
    let (mut next, mut preimage) = (head, Preimage::default());
    let seal = |draft: &Draft| {
        let sealed = next.seal_with(&mut preimage, chain.tenant_id, &draft.text, now_ms, random());
        next = sealed.head();
        sealed
    };
    drafts.iter().map(seal).collect()
}

#[cfg(test)]
mod tests {
    use sealog_core::event::{StoredEvent, parse_single};
    use sealog_core::id::{Hash, ProjectId, Ulid};
    use tokio::sync::oneshot;

    use super::super::request::SealedAhead;
    use super::super::request::testing::chain;
    use super::*;
    use crate::append::{IdempotencyKey, Reservation};
    use crate::embedded::log::format::SEGMENT_HEADER_LEN;

    const NOW_MS: u64 = 1_794_700_800_000;

    fn plan() -> Plan {
        Plan { segment: 1, salt: [3; 16], end: SEGMENT_HEADER_LEN as u64, capacity: 1 << 20, running: 0 }
    }

    fn sealer() -> Sealer {
        Sealer::new((plan(), 4), IndexSalt::new(&[0; 16]))
    }

    fn random() -> Random80 {
        Random80([7; 10])
    }

    fn draft() -> Draft {
        parse_single(br#"{"action":"user.login"}"#).unwrap().unwrap()
    }

    fn known(head: Head) -> Known {
        Known { head, unproven: false, earlier: Ok(None), ends: None }
    }

    type Answered = oneshot::Receiver<Result<Appended, StoreError>>;

    fn append(chain: ChainId, events: usize, key: Option<IdempotencyKey>) -> (Request, Answered) {
        let (answer, answered) = oneshot::channel();
        let idempotency = key.map(|key| Box::new((Reservation::new(chain, key, || {}), Ulid(9))));
        let drafts = (0..events).map(|_| draft()).collect();
        (Request::new(chain, Work::Append { drafts, idempotency, answer }, 1000), answered)
    }

    /// Seals a request in a group of its own: the group, and what the request was told already.
    fn seal(sealer: &mut Sealer, request: Request, known: Known, now_ms: u64) -> Complete {
        let mut group = sealer.new_group(Vec::new());
        sealer.seal(&mut group, request, known, now_ms, random);
        sealer.complete(group, &mut Queue::new(usize::MAX, usize::MAX))
    }

    fn receipt(group: &Complete) -> Receipt {
        match &group.frames[0].outcome {
            Outcome::Append { receipt, .. } | Outcome::AcceptLoss { receipt, .. } => receipt.clone(),
            Outcome::Import { .. } => panic!("an import has no receipt"),
        }
    }

    #[test]
    fn events_are_numbered_and_linked_on_what_was_sealed_last_durable_or_not() {
        let mut sealer = sealer();
        let first = seal(&mut sealer, append(chain(1), 2, None).0, known(Head::EMPTY), NOW_MS);
        let head = sealer.head_of(chain(1)).unwrap();
        assert_eq!((head.chain_seq, head), (2, first.frames[0].head));
        // The clock has gone back: time stands still, ids go on.
        let second = seal(&mut sealer, append(chain(1), 1, None).0, known(head), NOW_MS - 5000);
        let (before, after) = (receipt(&first), receipt(&second));
        assert_eq!((before.first_seq, before.last_seq(), after.first_seq), (1, 2, 3));
        assert!(before.log_ids[0] < before.log_ids[1] && before.log_ids[1] < after.log_ids[0]);
        assert_eq!(after.log_ids[0].timestamp_ms(), NOW_MS);
        assert_eq!((first.commit, second.commit), (Some(5), Some(6)));
        assert_eq!(
            (second.start, second.after.end),
            (first.after.end, first.after.end + second.bytes.len() as u64)
        );
        assert_ne!(before.hash, after.hash);
    }

    #[test]
    fn a_key_that_was_used_decides_the_request_and_nothing_is_sealed() {
        let key = IdempotencyKey { key_hash: Hash::ZERO, fingerprint: Hash::ZERO };
        for (earlier, told) in [
            (Ok(Some(Appended::Conflict)), Ok(Appended::Conflict)),
            (Err(StoreError::Read("no".into())), Err(StoreError::Read("no".into()))),
        ] {
            let mut sealer = sealer();
            let (request, mut answered) = append(chain(1), 1, Some(key));
            let group = seal(&mut sealer, request, Known { earlier, ..known(Head::EMPTY) }, NOW_MS);
            assert_eq!(answered.try_recv().unwrap(), told);
            assert!(group.frames.is_empty() && group.bytes.is_empty() && group.commit.is_none());
            assert_eq!(sealer.head_of(chain(1)), None);
        }
        let mut sealer = sealer();
        let group = seal(&mut sealer, append(chain(1), 1, Some(key)).0, known(Head::EMPTY), NOW_MS);
        assert_eq!(receipt(&group).request_id, Some(Ulid(9)));
        assert_eq!(group.frames[0].contained.key.map(|key| key.received_ms), Some(NOW_MS));
    }

    #[test]
    fn what_was_sealed_ahead_is_used_if_the_chain_still_has_that_head_and_is_sealed_again_if_not() {
        let mut sealer = sealer();
        let first = seal(&mut sealer, append(chain(1), 1, None).0, known(Head::EMPTY), NOW_MS);
        let head = first.frames[0].head;
        for (on, used) in [(head, true), (Head::EMPTY, false)] {
            let (mut request, _answered) = append(chain(1), 1, None);
            let sealed = seal_on(on, chain(1), &[draft()], NOW_MS + 1, || Random80([1; 10]));
            let hash = sealed[0].hash;
            request.ahead = Some(Box::new(SealedAhead { on, now_ms: NOW_MS + 1, sealed }));
            let mut group = sealer.new_group(Vec::new());
            sealer.seal(&mut group, request, known(head), NOW_MS + 2, random);
            let group = sealer.complete(group, &mut Queue::new(usize::MAX, usize::MAX));
            assert_eq!((receipt(&group).hash == hash, receipt(&group).first_seq), (used, 2));
        }
    }

    #[test]
    fn nothing_but_the_acceptance_of_its_loss_is_sealed_on_a_chain_that_cannot_be_proven() {
        let mut sealer = sealer();
        let unproven = || Known { unproven: true, ..known(Head::EMPTY) };
        let (request, mut answered) = append(chain(1), 1, None);
        assert!(seal(&mut sealer, request, unproven(), NOW_MS).frames.is_empty());
        assert_eq!(answered.try_recv().unwrap(), Err(StoreError::HeadUnproven { chain: chain(1) }));

        let accept = || {
            let (answer, answered) = oneshot::channel();
            let work = Work::AcceptLoss { reason: "a disk".into(), answer };
            (Request::new(chain(1), work, 1000), answered)
        };
        let (request, mut refused) = accept();
        assert!(seal(&mut sealer, request, known(Head::EMPTY), NOW_MS).frames.is_empty());
        assert_eq!(refused.try_recv().unwrap(), Err(loss::nothing_lost()), "the chain has lost nothing");

        let recorded = Head { chain_seq: 9, log_id: Ulid(1), hash: Hash::ZERO };
        let ends =
            Some(ChainHead { durable: Head { chain_seq: 4, ..recorded }, recorded, dropped: Head::EMPTY });
        let group = seal(&mut sealer, accept().0, Known { ends, ..unproven() }, NOW_MS);
        assert_eq!(receipt(&group).first_seq, 5);
        assert_eq!(
            sealer.head_of(chain(1)),
            None,
            "nothing is sealed on it before the high-water mark knows it"
        );
    }

    #[test]
    fn an_import_must_continue_the_chain() {
        let sealed = seal_on(Head::EMPTY, chain(1), &[draft(), draft()], NOW_MS, random);
        let stored = |sealed: &Sealed| StoredEvent::new(chain(1), *sealed, draft());
        let import = |events: Vec<StoredEvent>| {
            let (answer, answered) = oneshot::channel();
            (Request::new(chain(1), Work::Import { events, key: None, answer }, 1000), answered)
        };
        let mut sealer = sealer();
        let (request, mut answered) = import(vec![stored(&sealed[1])]);
        assert!(seal(&mut sealer, request, known(Head::EMPTY), NOW_MS).frames.is_empty());
        assert!(matches!(answered.try_recv().unwrap(), Err(StoreError::Refused(_))));
        let both = import(sealed.iter().map(stored).collect()).0;
        let group = seal(&mut sealer, both, known(Head::EMPTY), NOW_MS);
        assert_eq!(group.frames[0].head, sealed[1].head());
        assert_eq!(sealer.head_of(chain(1)), Some(sealed[1].head()));
    }

    #[test]
    fn what_was_sealed_and_not_written_is_forgotten_with_its_generation() {
        let mut sealer = sealer();
        seal(&mut sealer, append(chain(1), 1, None).0, known(Head::EMPTY), NOW_MS);
        sealer.begin(0, || panic!("the same generation goes on"));
        assert!(sealer.head_of(chain(1)).is_some());
        sealer.begin(1, || (plan(), 4));
        assert_eq!(sealer.head_of(chain(1)), None);
        let again = seal(&mut sealer, append(chain(1), 1, None).0, known(Head::EMPTY), NOW_MS);
        assert_eq!((again.generation, again.commit, again.start), (1, Some(5), SEGMENT_HEADER_LEN as u64));
    }

    #[test]
    fn events_count_for_their_tenant_and_those_of_a_system_chain_for_nobody() {
        let mut sealer = sealer();
        let group = seal(&mut sealer, append(chain(1), 3, None).0, known(Head::EMPTY), NOW_MS);
        assert_eq!(
            group.usage.iter().map(|(of, count)| (of.0, *count)).collect::<Vec<_>>(),
            [(chain(1).tenant_id, 3)]
        );
        let system = ChainId { project_id: ProjectId::system_from_random([1; 16]), ..chain(1) };
        assert!(system.is_system());
        let group = seal(&mut sealer, append(system, 3, None).0, known(Head::EMPTY), NOW_MS);
        assert!(group.usage.is_empty() && group.frames.len() == 1);
    }
}
