//! People and those who run the instance: how they sign in, what they may change, and how they hear of what
//! happened.

pub mod account;
pub mod admin;
pub mod contact;
mod guessable;
pub mod mail;
pub mod notices;
pub mod notify;
pub mod ops;
pub mod organisation;
pub mod password;
pub mod sign_in;
