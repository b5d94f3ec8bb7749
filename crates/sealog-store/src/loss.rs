//! Accepting a loss: the event by which an operator lets a chain go on whose last events are proven lost. Both stores seal the same event on the same head.

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

/// What a chain has lost, as its acceptance says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub lost_from: u64,
    /// Nothing where it cannot be known: a damaged place may have held more events of the chain, or none.
    pub lost_to: Option<u64>,
    /// Of the last event that the chain is known to have had.
    pub recorded_hash: Hash,
}

impl Loss {
    /// What is missing of a chain that may not go on. Where another event stands in place of the recorded one, nothing that exists is hidden: the recorded event is what is lost.
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
        let mut loss = Loss { lost_from: 0, lost_to: None, recorded_hash: Hash::ZERO };
        for (name, value) in Members::of(fields.metadata?) {
            match name {
                "\"lost_from\"" => loss.lost_from = value.parse().ok()?,
                "\"lost_to\"" if value != "null" => loss.lost_to = Some(value.parse().ok()?),
                "\"recorded_hash\"" => loss.recorded_hash = Hash::parse(value.trim_matches('"'))?,
                _ => {}
            }
        }
        Some(loss)
    }

    /// Whether this is the loss of that recorded head.
    pub fn is_of(&self, recorded: &Head) -> bool {
        self.lost_to == Some(recorded.chain_seq) && self.recorded_hash == recorded.hash
    }
}

/// What the acceptance is sealed on: the last event that exists, with an id from which the next one is above every id that was ever given out.
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
        return refused(format!("the reason has {scalars} characters; at most {REASON_SCALARS_MAX} fit"));
    }
    Ok(())
}

/// For a chain that may go on as it is.
pub fn nothing_lost() -> StoreError {
    StoreError::Refused("nothing is proven lost in this chain, so there is no loss to accept".into())
}
