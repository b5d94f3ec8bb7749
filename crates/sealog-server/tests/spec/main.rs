//! The specification, one test for each rule: read the names of a file and you have read the section.
//!
//! Every test talks to a real server over a socket, with a store on disk and a clock that only moves when it
//! is told to.

mod document;
mod harness;
mod home;

mod smtp;

mod bad_input;
mod control_away;
mod idempotency;
mod ingest;
mod isolation;
mod operations;
mod operator;
mod pages;
mod refusals;
mod s10_1_tlog;
mod s10_2_chain;
mod s10_3_tokens;
mod s10_4_verifiers;
mod s10_openapi;
mod s2_enrichment;
mod s2_fields;
mod s4_1_events;
mod s4_2_batch;
mod s4_3_list;
mod s4_4_read;
mod s4_5_verify;
mod s4_6_actions;
mod s5_authentication;
mod s6_notices;
mod s7_errors;
mod s8_limits;
mod stopping;
mod system_chain;
mod work;
