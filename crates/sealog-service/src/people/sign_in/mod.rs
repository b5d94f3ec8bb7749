//! Signing in and staying signed in, for every kind of account ([`Kind`]): people and operators. No HTTP.
//!
//! An attempt learns only whether it was right: an address that has no account costs the same work and gets
//! the same answer. Attempts are counted in the store before they are made, so that all nodes count together:
//! for the account that was named, whether it exists or not, at the address that they come from; for that
//! address; and for the account by all strangers of a day. A browser that has signed in to the account before
//! is counted apart: no stranger keeps it out.
//!
//! Every secret that an account or a browser holds (session token, link, recovery code) has at least 80 bits
//! from the kernel, and only its SHA-256 is kept. Passwords are argon2id ([`crate::people::password`]).

mod accounts;
mod code;
mod counts;
mod devices;
mod password;
mod refused;
mod session;
mod throttle;
mod token;
pub mod totp;

pub use accounts::{Accounts, Browser, Failed, Kept, Kind, Terms, Visitor};
pub use code::{CodeError, Offer};
pub(crate) use code::{in_groups, new_secret, offer, recovery_digest};
pub use counts::SignInCounts;
pub use devices::DEVICES_MAX;
pub use password::SignedIn;
pub use throttle::SignInError;
pub(crate) use throttle::{Limit, subject};
pub use token::Token;
