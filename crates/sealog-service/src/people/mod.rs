//! People: how they sign in, stay signed in, and come to have an account. No HTTP.
//!
//! Every secret that a person or a browser holds (session token, link, recovery code) has at least 80 bits from
//! the kernel, and only its SHA-256 is kept. Passwords are argon2id ([`crate::password`]).

mod links;
mod records;
mod second_factor;
mod session;
mod sign_in;
mod token;
pub mod totp;

use std::net::IpAddr;
use std::sync::Arc;

use sealog_control::People;
use sealog_store::StoreError;
use sealog_store::world::World;

use crate::system_chain::Wake;

pub use links::{CLAIM_MS, INVITATION, INVITATION_MS, OWNER, RESET, RESET_MS, claim_link};
pub use links::{InvitationError, LinkError, Reset, make_reset_link};
pub(crate) use links::{invitation_text, reset_text};
pub use second_factor::{CodeError, Offer, RECOVERY_CODES};
pub use session::{SessionRules, SignedInPerson};
pub use sign_in::{PasswordError, SignInError, SignedIn};
pub use token::Token;

/// What is done for people who come through a browser.
#[derive(Clone)]
pub struct Accounts {
    pub people: Arc<dyn People>,
    pub world: Arc<dyn World>,
    /// Where people reach the dashboard: links lead there, whatever address a request came in by.
    pub app_url: String,
    pub rules: SessionRules,
    /// Tells the drain of the system chains that there are records.
    pub wake: Wake,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts").field("app_url", &self.app_url).finish_non_exhaustive()
    }
}

/// Who asks, as far as the server can tell.
#[derive(Clone, Debug)]
pub struct Visitor {
    pub address: IpAddr,
    pub user_agent: Option<String>,
}

/// A failure that is ours, in words for the log.
#[derive(Clone, Debug)]
pub struct Failed(pub String);

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        Failed(error.to_string())
    }
}

impl From<String> for Failed {
    fn from(cause: String) -> Failed {
        Failed(cause)
    }
}
