//! What everything that people do stands on: control data, a clock, where links lead, and how long sessions
//! last.

use sealog_control::Control;
use std::net::IpAddr;
use std::sync::Arc;

use sealog_control::{Membership, Role};
use sealog_store::StoreError;
use sealog_store::world::World;

use super::counts::SignInCounts;
use super::refused::Refused;
use crate::system_chain::Wake;

const HOUR_MS: u64 = 60 * 60 * 1000;

/// What is done for people who come through a browser.
#[derive(Clone)]
pub struct Accounts {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    /// Where people reach the dashboard: links lead there, whatever address a request came in by.
    pub app_url: String,
    pub rules: SessionRules,
    /// Tells the drain of the system chains that there are records.
    pub wake: Wake,
    /// Told to the metrics.
    pub counts: Arc<SignInCounts>,
    pub(super) refused: Arc<Refused>,
}

impl Accounts {
    pub fn new(
        control: Arc<Control>,
        world: Arc<dyn World>,
        app_url: String,
        wake: Wake,
        counts: Arc<SignInCounts>,
    ) -> Accounts {
        let (rules, refused) = (SessionRules::default(), Arc::default());
        Accounts { control, world, app_url, rules, wake, counts, refused }
    }
}

/// Who asks, as far as the server can tell.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub address: IpAddr,
    pub user_agent: Option<String>,
}

/// A failure that is ours. What it says is for the log.
#[derive(Clone, Debug)]
pub struct Failed(pub StoreError);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed(error)
    }
}

impl From<String> for Failed {
    fn from(cause: String) -> Failed {
        Failed(StoreError::Refused(cause))
    }
}

/// How long a session lasts.
#[derive(Clone, Copy, Debug)]
pub struct SessionRules {
    /// Without being used.
    pub idle_ms: u64,
    /// In all.
    pub absolute_ms: u64,
    /// In all, of somebody who is an auditor anywhere.
    pub auditor_ms: u64,
}

impl SessionRules {
    /// In all, for somebody with these memberships.
    pub(super) fn lasts_ms(&self, memberships: &[Membership]) -> u64 {
        let audits = memberships.iter().any(|membership| membership.role == Role::Auditor);
        if audits { self.auditor_ms } else { self.absolute_ms }
    }
}

impl Default for SessionRules {
    fn default() -> SessionRules {
        SessionRules { idle_ms: 12 * HOUR_MS, absolute_ms: 7 * 24 * HOUR_MS, auditor_ms: 8 * HOUR_MS }
    }
}
