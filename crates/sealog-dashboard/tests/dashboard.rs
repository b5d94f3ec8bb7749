//! The pages as a browser would ask for them, on a store and control data of their own.

#[path = "dashboard/events.rs"]
mod events;
#[path = "dashboard/harness.rs"]
mod harness;
#[path = "dashboard/keys.rs"]
mod keys;
#[path = "dashboard/people.rs"]
mod people;
#[path = "dashboard/roles.rs"]
mod roles;
#[path = "dashboard/rules.rs"]
mod rules;
#[path = "dashboard/search.rs"]
mod search;
