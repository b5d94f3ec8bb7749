//! `GET /readyz`: whether events are accepted. Anybody learns it in one word; the operator, and whoever sits
//! on this machine, in full.

use std::sync::Mutex;

use hyper::{Response, StatusCode};
use sealog_control::KeyAccess;
use sealog_store::sync::lock;
use sealog_store::{Store, StoreError};
use serde_json::json;

use crate::peer::Peer;
use crate::respond::{self, Body};

/// What the last probe was told, so that the log has a line for each change and not for each probe.
#[derive(Debug, Default)]
pub(crate) struct LastAnswer(Mutex<Option<&'static str>>);

impl LastAnswer {
    /// Keeps the reason, and says whether it is another one than before.
    fn replace(&self, reason: Option<&'static str>) -> bool {
        std::mem::replace(&mut *lock(&self.0), reason) != reason
    }

    /// Asks the store, and whether keys can be looked up. Whoever may know gets the reason in full.
    pub(crate) fn answer(
        &self,
        store: &dyn Store,
        keys: &dyn KeyAccess,
        peer: Option<&Peer>,
        trust_trouble: Vec<String>,
        may_know: impl FnOnce() -> bool,
    ) -> Response<Body> {
        let Err(error) = store.ready().and_then(|()| keys.ready()) else {
            if self.replace(None) {
                tracing::info!("ready: accepting events again");
            }
            let notices = store.notices();
            let mut degraded = store.degraded();
            degraded.extend(peer.and_then(Peer::trouble));
            degraded.extend(trust_trouble);
            let mut body = json!({ "ready": true });
            if !notices.is_empty() {
                body["notices"] = notices.into();
            }
            // Events are accepted, so it is no reason to send them elsewhere.
            if !degraded.is_empty() && may_know() {
                body["detail"] = degraded.join("; ").into();
            }
            return respond::json(StatusCode::OK, body.to_string());
        };
        let reason = public_reason(&error);
        if self.replace(Some(reason)) {
            tracing::warn!(reason, %error, "not ready: rejecting events");
        }
        let mut body = json!({ "ready": false, "reason": reason });
        if may_know() {
            body["detail"] = error.to_string().into();
        }
        respond::json(StatusCode::SERVICE_UNAVAILABLE, body.to_string())
    }
}

macro_rules! reasons {
    ($($pattern:pat => $word:literal)*) => {
        /// All words that [`public_reason`] knows, for the description of the interface.
        pub(crate) const REASONS: &[&str] = &[$($word),*];

        /// What anybody may know of a failure. Without a `_` arm: a new failure does not compile until
        /// someone has decided what strangers are told.
        fn public_reason(error: &StoreError) -> &'static str {
            match error {
                $($pattern => $word),*
            }
        }
    };
}

reasons! {
    StoreError::Poisoned(_) => "write_failed"
    StoreError::NoRoom => "no_room"
    StoreError::QueueFull => "queue_full"
    StoreError::Deadline => "too_slow"
    StoreError::Stalled => "stalled"
    StoreError::ClockLeapt => "clock_leapt"
    StoreError::Unavailable(_) => "database_unavailable"
    StoreError::HeadUnproven { .. } => "head_unproven"
    StoreError::Superseded { .. } => "superseded"
    StoreError::RolledBack(_) => "rolled_back"
    StoreError::Closing => "closing"
    StoreError::Refused(_) => "refused"
    StoreError::TenantFull { .. } => "tenant_full"
    StoreError::Damaged { .. } => "damaged"
    StoreError::Read(_) => "read_failed"
    StoreError::Control(_) => "control_data_failed"
    StoreError::ControlUnavailable(_) => "control_unavailable"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_a_word_that_says_nothing_of_paths_and_hosts() {
        let secret = || "/var/lib/sealog on db.internal".to_owned();
        for error in [
            StoreError::Poisoned(secret()),
            StoreError::Unavailable(secret()),
            StoreError::Refused(secret()),
            StoreError::Read(secret()),
            StoreError::Control(secret()),
            StoreError::ControlUnavailable(secret()),
        ] {
            let word = public_reason(&error);
            assert!(word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{word}");
        }
        assert!(REASONS.iter().all(|word| REASONS.iter().filter(|other| *other == word).count() == 1));
    }

    #[test]
    fn only_a_change_is_worth_a_line() {
        let last = LastAnswer::default();
        assert!(!last.replace(None));
        assert!(last.replace(Some("no_room")));
        assert!(!last.replace(Some("no_room")));
        assert!(last.replace(Some("write_failed")));
        assert!(last.replace(None));
        assert!(!last.replace(None));
    }
}
