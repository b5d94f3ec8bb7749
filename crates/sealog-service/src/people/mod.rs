//! People: how they sign in, stay signed in, and come to have an account. No HTTP.
//!
//! Every secret that a person or a browser holds (session token, link, recovery code) has at least 80 bits
//! from the kernel, and only its SHA-256 is kept. Passwords are argon2id ([`crate::password`]).

mod accounts;
mod counts;
mod devices;
mod failures;
mod links;
mod records;
mod refused;
mod second_factor;
mod session;
mod sign_in;
mod throttle;
mod token;
pub mod totp;

pub use accounts::{Accounts, Failed, SessionRules, Visitor};
pub use counts::SignInCounts;
pub(crate) use devices::new_device_text;
pub use devices::{DEVICES_MAX, NEW_DEVICE};
pub use failures::FailedSignIns;
pub use links::{CLAIM_MS, INVITATION, INVITATION_MS, INVITATIONS_MAX, OWNER, RESET, RESET_MS, claim_link};
pub use links::{HostLink, InvitationError, LinkError, Reset, make_reset_link};
pub(crate) use links::{invitation_resource, invitation_text, reset_text};
pub(crate) use refused::Refused;
pub(crate) use second_factor::offer;
pub use second_factor::{CodeError, Offer, RECOVERY_CODES};
pub use session::SignedInPerson;
pub(crate) use sign_in::check_chosen;
pub use sign_in::{PasswordError, SignedIn};
pub use throttle::SignInError;
pub(crate) use throttle::{Limit, Throttle, subject};
pub use token::Token;
