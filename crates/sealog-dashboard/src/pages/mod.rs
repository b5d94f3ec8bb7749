//! One file for each page; its template has its name and stands beside it.

pub(crate) mod account;
pub(crate) mod action;
pub(crate) mod actions;
pub(crate) mod claim;
pub(crate) mod columns;
pub(crate) mod event;
pub(crate) mod events;
pub(crate) mod forgot;
pub(crate) mod grants;
pub(crate) mod invitation;
pub(crate) mod keys;
pub(crate) mod member;
pub(crate) mod members;
pub(crate) mod new_action;
pub(crate) mod permalink;
pub(crate) mod projects;
pub(crate) mod reset;
pub(crate) mod saved_views;
pub(crate) mod sign_in;
pub(crate) mod start;
pub(crate) mod tail;
pub(crate) mod theme;
pub(crate) mod trail;
