//! The events: what an application's audit log looks like, the same in every run.
//!
//! Event `n` is a pure function of the seed and `n`, so that a query can ask for what is known to be there
//! without keeping any of it.

use std::sync::atomic::{AtomicU64, Ordering};

use sealog_core::canonical::{EventText, Fields};
use sealog_core::event::{Annotations, Draft};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::time::DAY_MS;
use sealog_store::world::{SystemWorld, World};

pub const SEED: u64 = 20_261_115;
pub const ACTORS: u64 = 10_000;
/// The events of a filled store spread over this time, for filters by date.
pub const DAYS: u64 = 90;
pub const START_MS: u64 = 1_786_924_800_000;

const ACTIONS: [&str; 20] = [
    "user.login",
    "document.viewed",
    "document.updated",
    "document.shared",
    "user.logout",
    "document.created",
    "comment.created",
    "file.downloaded",
    "invoice.viewed",
    "invoice.sent",
    "user.updated",
    "user.invited",
    "role.assigned",
    "role.revoked",
    "api_key.created",
    "api_key.revoked",
    "document.deleted",
    "export.started",
    "export.finished",
    "settings.updated",
];

/// Values that queries look for. JSON text, as filters hold it.
pub const RARE_ACTION: &str = "\"tenant.transferred\"";
pub const RARE_ACTOR: &str = "\"usr_auditor\"";
pub const ABSENT_ACTION: &str = "\"tenant.vanished\"";
pub const ABSENT_ACTOR: &str = "\"usr_nobody\"";
pub const ABSENT_RESOURCE: &str = "\"document/0\"";
/// One event in this many has the rare values; the first of them is among the oldest, so a list has to go all
/// the way.
const RARE_EVERY: u64 = 100_000;
const RARE_FIRST: u64 = 7;

/// The busiest actor never does this, although both are in nearly every block of the index: nothing can be
/// skipped and nothing is found.
const NEVER_ACTOR: u64 = 0;
const NEVER_ACTION: usize = 3;

pub fn chain() -> ChainId {
    ChainId {
        tenant_id: TenantId(Uuid([0x5e; 16])),
        project_id: ProjectId(Uuid([0xa1; 16])),
        mode: Mode::Live,
    }
}

/// A chain without events.
pub fn empty_chain() -> ChainId {
    ChainId { project_id: ProjectId(Uuid([0xee; 16])), ..chain() }
}

/// Well mixed bits for a number (splitmix64).
pub fn mix(n: u64) -> u64 {
    let mut bits = n.wrapping_add(SEED).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

/// A stream of numbers that is the same in every run.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(stream: u64) -> Dice {
        Dice(mix(stream) | 1)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % end
    }
}

/// The three fields that lists filter by, as JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    pub action: String,
    pub actor_id: String,
    pub resource: String,
}

pub fn actor_text(actor: u64) -> String {
    format!("\"usr_{:08x}\"", mix(actor) >> 32)
}

/// The pair that never meets.
pub fn never_together() -> (String, String) {
    (format!("\"{}\"", ACTIONS[NEVER_ACTION]), actor_text(NEVER_ACTOR))
}

pub fn keys(n: u64) -> Keys {
    if n % RARE_EVERY == RARE_FIRST {
        let resource = format!("\"tenant/{n}\"");
        return Keys { action: RARE_ACTION.to_owned(), actor_id: RARE_ACTOR.to_owned(), resource };
    }
    // Powers of a uniform number: the busiest of 10,000 actors has 5 % of the events, half of the actors
    // share a fifth.
    let uniform = |salt: u64| (mix(n ^ salt << 56) >> 11) as f64 / (1u64 << 53) as f64;
    let actor = scaled(uniform(1).powi(3), ACTORS);
    let action = usize::try_from(scaled(uniform(2).powi(2), ACTIONS.len() as u64)).unwrap_or(0);
    let action = if actor == NEVER_ACTOR && action == NEVER_ACTION { NEVER_ACTION + 1 } else { action };
    let resource = match mix(n ^ 3 << 56) {
        bits if bits % 5 == 0 => format!("\"project/{}\"", bits / 5 % 5000),
        bits => format!("\"document/{bits:016x}\""),
    };
    Keys { action: format!("\"{}\"", ACTIONS[action]), actor_id: actor_text(actor), resource }
}

/// A whole number below `end` from a fraction below 1.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the fraction is in 0..1")]
fn scaled(fraction: f64, end: u64) -> u64 {
    ((fraction * end as f64) as u64).min(end - 1)
}

pub fn text(n: u64) -> EventText {
    let keys = keys(n);
    let metadata = metadata(n);
    EventText::new(Fields {
        action: &keys.action,
        actor_id: Some(&keys.actor_id),
        resource: Some(&keys.resource),
        metadata: Some(&metadata),
    })
}

/// What a server hands to the store: the text, and what it has added around it.
pub fn draft(n: u64) -> Draft {
    let bits = mix(n ^ 5 << 56);
    Draft {
        text: text(n),
        annotations: Annotations {
            category: Some("documents".into()),
            severity: Some(if bits.is_multiple_of(16) { "warning" } else { "info" }.into()),
            actor_type: Some("user".into()),
            resource_type: Some("document".into()),
            ip_address: Some(format!("203.0.113.{}", bits % 254 + 1).into()),
            country: Some("DE".into()),
            ..Annotations::default()
        },
    }
}

/// What a client sends: spec 2.1.
pub fn body(n: u64) -> String {
    let Keys { action, actor_id, resource } = keys(n);
    let metadata = metadata(n);
    format!(
        "{{\"action\":{action},\"actor_id\":{actor_id},\"resource\":{resource},\"actor_type\":\"user\",\"metadata\":{metadata}}}"
    )
}

/// Actions of all events, as they are sent.
pub fn actions() -> impl Iterator<Item = &'static str> {
    ACTIONS.into_iter().chain([RARE_ACTION.trim_matches('"')])
}

/// About 350 bytes.
pub fn metadata(n: u64) -> String {
    const REASONS: [&str; 4] = [
        "weekly review",
        "requested by the customer in ticket 4711",
        "scheduled clean-up after the retention period",
        "correction of a typing error",
    ];
    let bits = mix(n ^ 4 << 56);
    format!(
        "{{\"request_id\":\"req_{}\",\"session_id\":\"ses_{:016x}\",\"user_agent\":\"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 \
         (KHTML, like Gecko) Chrome/126.0.0.0\",\"reason\":\"{}\",\"changes\":{{\"status\":[\"draft\",\"published\"],\"revision\":[{},{}]}},\
         \"duration_ms\":{}.{},\"mfa\":{},\"region\":\"eu-central-1\"}}",
        Ulid(u128::from(bits) << 60 | u128::from(mix(bits)) >> 4),
        mix(bits ^ 1),
        REASONS[usize::try_from(bits % 4).unwrap_or(0)],
        bits % 97,
        bits % 97 + 1,
        bits % 900 + 3,
        bits % 10,
        bits.is_multiple_of(3),
    )
}

/// The bytes that are hashed for an event: spec 2.3, with a stand-in for what sealing would decide.
pub fn hashed_bytes(n: u64) -> String {
    let id = Ulid(u128::from(timestamp_ms(n, u64::MAX)) << 80 | u128::from(mix(n)));
    format!(
        "{}{{\"log_id\":\"{id}\",\"tenant_id\":\"{}\",{}{}",
        Hash([0xab; 32]),
        chain().tenant_id,
        text(n).as_str(),
        id.timestamp_ms()
    )
}

/// When event `n` of `events` happens.
pub fn timestamp_ms(n: u64, events: u64) -> u64 {
    let span = u128::from(DAYS * DAY_MS);
    START_MS + u64::try_from(u128::from(n) * span / u128::from(events)).unwrap_or(0)
}

/// A clock that is told the time, so that a store can be filled with months of events in seconds.
#[derive(Debug)]
pub struct Timeline(AtomicU64);

impl Timeline {
    pub fn new() -> Timeline {
        Timeline(AtomicU64::new(START_MS))
    }

    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::Relaxed);
    }
}

impl World for Timeline {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        SystemWorld.fill_random(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::json;
    use std::collections::HashMap;

    #[test]
    fn texts_are_canonical_and_metadata_has_about_350_bytes() {
        let mut bytes = 0;
        for n in 0..1000 {
            let metadata = metadata(n);
            assert_eq!(json::canonical(&metadata).unwrap(), metadata);
            bytes += metadata.len();
            let keys = keys(n);
            for text in [keys.action, keys.actor_id, keys.resource] {
                assert_eq!(json::canonical(&text).unwrap(), text);
            }
        }
        assert!((330..=370).contains(&(bytes / 1000)), "{}", bytes / 1000);
    }

    #[test]
    fn actors_are_skewed_actions_twenty_and_resources_mostly_unique() {
        let (mut actors, mut actions, mut resources) = (HashMap::new(), HashMap::new(), HashMap::new());
        for n in 0..50_000 {
            let keys = keys(n);
            *actors.entry(keys.actor_id).or_insert(0) += 1;
            *actions.entry(keys.action).or_insert(0) += 1;
            *resources.entry(keys.resource).or_insert(0) += 1;
        }
        assert_eq!(actions.len(), 21, "twenty and the rare one");
        assert!((5_000..=10_001).contains(&actors.len()), "{}", actors.len());
        assert!((1_500..=4_000).contains(actors.values().max().unwrap()));
        assert!(resources.values().filter(|count| **count == 1).count() > 35_000);
    }

    #[test]
    fn absent_values_and_the_pair_that_never_meets_are_not_there() {
        let (action, actor) = never_together();
        let (mut of_action, mut of_actor) = (0, 0);
        for n in 0..50_000 {
            let keys = keys(n);
            assert!(keys.action != ABSENT_ACTION && keys.actor_id != ABSENT_ACTOR);
            assert!(keys.resource != ABSENT_RESOURCE);
            assert!(!(keys.action == action && keys.actor_id == actor));
            of_action += usize::from(keys.action == action);
            of_actor += usize::from(keys.actor_id == actor);
        }
        assert!(of_action > 2_000 && of_actor > 1_000, "{of_action} {of_actor}");
    }

    #[test]
    fn the_hashed_bytes_have_the_length_that_sealing_gives_them() {
        use sealog_core::canonical;
        // The text of a hash input has a fixed frame around the event's own; if that changes, so must this
        // file.
        let text = text(3);
        let log_id = Ulid(u128::from(START_MS) << 80);
        let id_text = log_id.to_string();
        let by_hand = hashed_bytes(3);
        assert_eq!(by_hand.len(), 64 + 11 + 26 + 15 + 36 + 2 + text.as_str().len() + 13);
        let digest: [u8; 32] = {
            use sha2::{Digest, Sha256};
            let message = format!(
                "{}{{\"log_id\":\"{id_text}\",\"tenant_id\":\"{}\",{}{START_MS}",
                Hash::ZERO,
                chain().tenant_id,
                text.as_str()
            );
            assert_eq!(message.len(), by_hand.len());
            Sha256::digest(message).into()
        };
        assert_eq!(
            canonical::hash(Hash::ZERO, log_id, chain().tenant_id, text.as_str(), START_MS),
            Hash(digest)
        );
    }
}
