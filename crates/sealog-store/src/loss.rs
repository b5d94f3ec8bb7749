//! Accepting a loss: the event by which an operator lets a chain go on whose last events are proven lost.
//! Both stores seal the same event on the same head. Its text is written and read here and nowhere else: what
//! one store writes, the other has to understand after a copy.

use sealog_core::canonical::{EventText, Fields};
use sealog_core::chain::Head;
use sealog_core::event::{Annotations, Draft, StoredEvent};
use sealog_core::id::Hash;
use sealog_core::json::{self, Members};
use sealog_core::time::TIMESTAMP_MS_MAX;

use crate::error::StoreError;
use crate::query::ChainHead;

/// The action of an acceptance. No client can send it.
pub const ACTION: &str = "sealog.loss_accepted";
/// Longest reason, in Unicode scalar values.
pub const REASON_SCALARS_MAX: usize = 1000;

/// The loss of a chain, as recorded in its acceptance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub lost_from: u64,
    /// None if it is unknown: a damaged place may have held more events of the chain, or none.
    pub lost_to: Option<u64>,
    /// The hash of the last event that the chain is known to have had.
    pub recorded_hash: Hash,
}

impl Loss {
    /// The loss of a chain that rejects events. If another event replaced the recorded one, every existing
    /// event stays visible, and the recorded event is the lost one.
    pub fn of(head: &ChainHead) -> Loss {
        let ChainHead { durable, recorded, .. } = head;
        let (lost_from, lost_to) = if recorded == durable {
            (durable.chain_seq.saturating_add(1), None)
        } else if recorded.chain_seq > durable.chain_seq {
            (durable.chain_seq.saturating_add(1), Some(recorded.chain_seq))
        } else {
            (recorded.chain_seq, Some(recorded.chain_seq))
        };
        Loss { lost_from, lost_to, recorded_hash: recorded.hash }
    }

    /// The event that accepts it.
    pub fn draft(&self, reason: &str) -> Draft {
        let lost_to = self.lost_to.map_or_else(|| "null".to_owned(), |seq| seq.to_string());
        let mut metadata = format!(
            "{{\"lost_from\":{},\"lost_to\":{lost_to},\"recorded_hash\":\"{}\",\"reason\":",
            self.lost_from, self.recorded_hash
        )
        .into_bytes();
        json::put_string(reason, &mut metadata);
        metadata.push(b'}');
        let metadata = String::from_utf8(metadata).expect("text and escapes of text");
        let action = format!("\"{ACTION}\"");
        let fields =
            Fields { action: &action, actor_id: None, resource: None, metadata: Some(metadata.as_str()) };
        Draft { text: EventText::new(fields), annotations: Annotations::default() }
    }

    /// The loss that an event accepts; nothing if it is another event.
    pub fn accepted_by(event: &StoredEvent) -> Option<Loss> {
        let fields = event.text.fields();
        if fields.action != format!("\"{ACTION}\"") {
            return None;
        }
        let (mut lost_from, mut lost_to, mut recorded_hash) = (None, None, None);
        for (name, value) in Members::of(fields.metadata?) {
            match name {
                "\"lost_from\"" => lost_from = Some(value.parse().ok()?),
                "\"lost_to\"" if value != "null" => lost_to = Some(value.parse().ok()?),
                "\"recorded_hash\"" => recorded_hash = Some(Hash::parse(value.trim_matches('"'))?),
                _ => {}
            }
        }
        Some(Loss { lost_from: lost_from?, lost_to, recorded_hash: recorded_hash? })
    }

    /// Returns true if the loss includes this head. The last lost event is identified by its hash, earlier
    /// ones by their position.
    pub fn covers(&self, lost: &Head) -> bool {
        let before = self.lost_to.is_some_and(|last| (self.lost_from..last).contains(&lost.chain_seq));
        before || self.is_of(lost)
    }

    /// Returns true if this is the loss of that recorded head.
    pub fn is_of(&self, recorded: &Head) -> bool {
        self.lost_to == Some(recorded.chain_seq) && self.recorded_hash == recorded.hash
    }
}

/// The head for sealing the acceptance: the last existing event, with an id that makes the next one greater
/// than every id ever assigned.
pub fn base(head: &ChainHead) -> Head {
    let ChainHead { durable, recorded, .. } = head;
    // An id that sealing cannot have made is no reason to go on from there.
    let genuine = recorded.log_id.timestamp_ms() <= TIMESTAMP_MS_MAX;
    let log_id = if genuine { durable.log_id.max(recorded.log_id) } else { durable.log_id };
    Head { log_id, ..*durable }
}

/// Why the loss is accepted is part of the evidence, so it has to be said.
pub fn check_reason(reason: &str) -> Result<(), StoreError> {
    let refused = |why: String| Err(StoreError::Refused(why));
    if reason.trim().is_empty() {
        return refused("accepting a loss needs a reason; it is sealed into the chain".into());
    }
    let scalars = reason.chars().count();
    if scalars > REASON_SCALARS_MAX {
        return refused(format!("the reason has {scalars} characters; the limit is {REASON_SCALARS_MAX}"));
    }
    Ok(())
}

/// The error for a chain without a loss.
pub fn nothing_lost() -> StoreError {
    StoreError::Refused("this chain has no proven loss to accept".into())
}

#[cfg(test)]
mod tests {
    use sealog_core::id::{ChainId, Mode, ProjectId, Random80, TenantId, Uuid};

    use super::*;

    fn sealed(draft: Draft) -> StoredEvent {
        let (tenant_id, project_id) = (TenantId(Uuid([1; 16])), ProjectId(Uuid([2; 16])));
        let sealed = Head::EMPTY.seal(tenant_id, &draft.text, 1, Random80([0; 10]));
        StoredEvent::new(ChainId { tenant_id, project_id, mode: Mode::Live }, sealed, draft)
    }

    #[test]
    fn an_acceptance_covers_what_it_names_and_another_event_in_the_last_place_is_not_meant() {
        let loss = Loss { lost_from: 96, lost_to: Some(98), recorded_hash: Hash([7; 32]) };
        let event = sealed(loss.draft("the disk of \"db1\"\n\u{0} is gone"));
        let metadata = event.text.fields().metadata.unwrap();
        assert!(metadata.starts_with(r#"{"lost_from":96,"lost_to":98,"recorded_hash":"0707"#), "{metadata}");
        assert!(metadata.ends_with(r#""reason":"the disk of \"db1\"\n\u0000 is gone"}"#), "{metadata}");
        assert_eq!(Loss::accepted_by(&event), Some(loss));
        let head = |chain_seq, byte| Head { chain_seq, hash: Hash([byte; 32]), ..Head::EMPTY };
        for (lost, covered) in [
            (head(95, 1), false),
            (head(96, 1), true),
            (head(97, 1), true),
            (head(98, 7), true),
            (head(98, 1), false),
            (head(99, 7), false),
        ] {
            assert_eq!(loss.covers(&lost), covered, "{lost:?}");
        }
    }

    #[test]
    fn an_acceptance_that_does_not_say_what_is_lost_accepts_nothing() {
        for metadata in ["{}", r#"{"lost_from":1}"#, r#"{"lost_from":1,"lost_to":2}"#] {
            let action = format!("\"{ACTION}\"");
            let fields = Fields { action: &action, actor_id: None, resource: None, metadata: Some(metadata) };
            let draft = Draft { text: EventText::new(fields), annotations: Annotations::default() };
            assert_eq!(Loss::accepted_by(&sealed(draft)), None, "{metadata}");
        }
    }
}
