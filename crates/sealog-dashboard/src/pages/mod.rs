//! One file for each page; its template has its name and stands beside it.

pub(crate) mod account;
pub(crate) mod claim;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod forgot;
pub(crate) mod invitation;
pub(crate) mod keys;
pub(crate) mod members;
pub(crate) mod projects;
pub(crate) mod query_bar;
pub(crate) mod reset;
pub(crate) mod sign_in;
pub(crate) mod start;
pub(crate) mod theme;
