//! Administrative commands: one function does what a command asks, and two carriers bring it there.
//!
//! While a server runs, the store is the server's, and a command goes to it through a Unix socket in the data
//! directory ([`socket`]). While none runs, the command opens the store itself ([`client`]). Both call
//! [`operations::administer`].
//!
//! A new command is a file beside [`loss`], a variant of [`operations::Request`] and of
//! [`operations::Answer`], and an arm of [`operations::administer`].

pub(crate) mod client;
mod divergence;
pub(crate) mod host;
pub(crate) mod inspect;
mod link_text;
pub(crate) mod loss;
pub(crate) mod moment;
pub(crate) mod operations;
pub(crate) mod ops_user;
mod protocol;
pub(crate) mod reset;
pub(crate) mod socket;
pub(crate) mod tenant;
pub(crate) mod trust;
