//! The pages as a browser would ask for them, on a store and control data of their own.

mod actions;
mod cases;
mod context;
mod disclosure;
mod events;
mod exports;
mod figures;
mod harness;
mod keys;
mod members;
mod notices;
mod ops;
mod ops_accounts;
mod ops_routes;
mod people;
mod retention;
mod roles;
mod rules;
mod sealing;
mod search;
mod settings;
mod shortcuts;
mod system_log;
mod tail;
mod verification;
mod views;
