//! What pages of the console share.

use std::sync::Arc;

use sealog_control::OpsUserId;
use sealog_core::reject::Code;
use sealog_engine::Service;
use sealog_service::people::ops::{Operators, SignedInOperator};
use sealog_service::people::sign_in::Accounts;

use crate::cookies::OPERATORS;
use crate::front::{Front, Site};
use crate::gate::Gate;
use crate::problem::Problem;
use crate::request::Asked;

/// What the program knows of the instance that it is.
#[derive(Clone)]
pub struct Instance {
    /// Where operators reach the console, as they write it.
    pub url: String,
    pub docs_url: String,
    /// Which store it is, with the version of its format.
    pub store: String,
    /// Steps that have made the tables of control data.
    pub schema: usize,
    /// Asked in the thread pool: it waits for the disk.
    pub room: Arc<dyn Fn() -> Result<Room, String> + Send + Sync>,
}

/// The disk of the data directory.
#[derive(Clone, Debug)]
pub struct Room {
    pub dir: String,
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// Below which no events are accepted; nothing where the events are elsewhere.
    pub reserve_bytes: Option<u64>,
    /// Of control data; nothing where it is elsewhere.
    pub control_bytes: Option<u64>,
}

/// Everything that pages of the console share.
pub struct Console {
    pub(super) service: Arc<Service>,
    pub(super) instance: Instance,
    site: Site,
}

impl Console {
    pub fn new(service: Arc<Service>, instance: Instance) -> Arc<Console> {
        let site = Site::new::<Console>(&OPERATORS, &instance.url, &instance.docs_url);
        Arc::new(Console { service, instance, site })
    }
}

impl Front for Console {
    type Kind = Operators;
    type Place = ();
    const BASE: &'static str = "/ops";

    fn accounts(&self) -> &Accounts<Operators> {
        &self.service.operators
    }

    fn site(&self) -> &Site {
        &self.site
    }
}

impl Gate for Console {
    const WRONG_CODE: &'static str =
        "Wrong code, or already used. Check the clock of your device and try again.";

    fn next_step(who: &SignedInOperator) -> Option<&'static str> {
        match (who.is_whole(), who.user.is_enrolled()) {
            (true, _) => None,
            (false, true) => Some("/ops/sign-in/code"),
            (false, false) => Some("/ops/enrol/authenticator"),
        }
    }

    fn arrival(next: &str) -> String {
        if next.is_empty() { Console::BASE.to_owned() } else { next.to_owned() }
    }

    fn too_many() -> Problem {
        let message = "Too many attempts for this account or from this address. Wait 15 minutes.";
        Problem::new(Code::AuthTooManyAttempts, message)
    }
}

pub(super) type OpsAsked = Asked<Console>;

impl Asked<Console> {
    /// The gate lets nobody else through.
    pub(super) fn operator(&self) -> &SignedInOperator {
        self.who.as_ref().expect("the route needs an operator")
    }

    pub(super) fn id(&self) -> OpsUserId {
        self.operator().user.id
    }
}
