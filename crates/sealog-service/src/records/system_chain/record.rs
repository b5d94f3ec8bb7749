//! How a change becomes the record of it: the event as it will be sealed, as text.

use std::sync::Arc;

use sealog_control::{NewRecord, OpsUserId, PersonId};
use sealog_core::event;
use sealog_core::id::Uuid;
use sealog_store::world::World;
use serde_json::{Map, Value, json};

use super::actions::SystemAction;

/// The member of `metadata` that has the record's id.
pub(super) const RECORD_ID: &str = "record_id";

/// Who makes a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Whoever has the operator's token.
    Operator,
    Person(PersonId),
    /// Somebody who runs the instance, in the console.
    Console(OpsUserId),
    /// A command on the machine.
    Host,
    /// Sealog itself, on a schedule or by a rule.
    System,
}

impl Actor {
    /// As it stands in events: never an address.
    pub fn id(self) -> String {
        match self {
            Actor::Operator => "operator".into(),
            Actor::Person(id) => id.0.to_string(),
            Actor::Console(id) => id.0.to_string(),
            Actor::Host => "host".into(),
            Actor::System => "system".into(),
        }
    }

    pub(crate) fn person(self) -> Option<PersonId> {
        match self {
            Actor::Person(id) => Some(id),
            _ => None,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Actor::Operator | Actor::Console(_) => "operator",
            Actor::Person(_) => "person",
            Actor::Host => "host",
            Actor::System => "system",
        }
    }
}

/// Makes the records of what one actor does.
#[derive(Clone, Debug)]
pub struct Recorder {
    actor: Actor,
    world: Arc<dyn World>,
}

impl Recorder {
    pub fn new(actor: Actor, world: Arc<dyn World>) -> Recorder {
        Recorder { actor, world }
    }

    pub fn now_ms(&self) -> u64 {
        self.world.now_ms()
    }

    pub fn random(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.world.fill_random(&mut bytes);
        bytes
    }

    pub fn random_id(&self) -> Uuid {
        let random = self.random();
        Uuid::from_random(std::array::from_fn(|at| random[at]))
    }

    /// `resource` names the thing (`key/<id>`); `metadata` is an object that says what it is now, or what
    /// changed. Neither has secrets, addresses, or anything about those whom the tenant's own events are
    /// about.
    pub fn record(&self, action: &SystemAction, resource: &str, mut metadata: Value) -> NewRecord {
        let id = self.random_id();
        // Found by the drain where the idempotency key is no longer kept.
        metadata[RECORD_ID] = id.to_string().into();
        let draft = json!({
            "action": action.action,
            "actor_id": self.actor.id(),
            "actor_type": self.actor.kind(),
            "resource": resource,
            "metadata": metadata,
        });
        let draft = draft.to_string();
        // One that cannot be sealed would hold up all that come after it.
        assert!(matches!(event::parse_single(draft.as_bytes()), Ok(Ok(_))), "{draft}");
        NewRecord { id, draft, created_at_ms: self.now_ms() }
    }
}

/// Notes a field that was changed.
pub fn change<T: Into<Value> + PartialEq>(metadata: &mut Map<String, Value>, field: &str, from: T, to: T) {
    if from != to {
        metadata.insert(field.to_owned(), json!({ "from": from.into(), "to": to.into() }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::system_chain::actions;
    use sealog_store::world::SystemWorld;

    #[test]
    fn a_record_is_the_event_with_its_actor_its_resource_and_its_own_id() {
        let person = PersonId(Uuid::from_random([7; 16]));
        for (actor, id, kind) in [
            (Actor::Operator, "operator".to_owned(), "operator"),
            (Actor::Person(person), person.0.to_string(), "person"),
            (Actor::Console(OpsUserId(person.0)), person.0.to_string(), "operator"),
            (Actor::Host, "host".to_owned(), "host"),
            (Actor::System, "system".to_owned(), "system"),
        ] {
            let recorder = Recorder::new(actor, Arc::new(SystemWorld));
            let record = recorder.record(&actions::KEY_CREATED, "key/1", json!({ "name": "é\0" }));
            let draft: Value = serde_json::from_str(&record.draft).unwrap();
            assert_eq!(
                draft,
                json!({
                    "action": "sealog.key_created",
                    "actor_id": id,
                    "actor_type": kind,
                    "resource": "key/1",
                    "metadata": { "name": "é\0", "record_id": record.id.to_string() },
                })
            );
        }
    }

    #[test]
    fn only_what_has_changed_is_noted() {
        let mut metadata = Map::new();
        change(&mut metadata, "same", Some(1), Some(1));
        change(&mut metadata, "other", Some(1), None);
        assert_eq!(Value::Object(metadata), json!({ "other": { "from": 1, "to": null } }));
    }
}
