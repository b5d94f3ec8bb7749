//! The specification, one test for each rule: read the names of a file and you have read the section.
//!
//! Every test talks to a real server over a socket, with a store on disk and a clock that only moves when it is told to.

#[path = "spec/document.rs"]
mod document;
#[path = "spec/harness.rs"]
mod harness;
#[path = "spec/home.rs"]
mod home;

#[path = "spec/mmdb.rs"]
mod mmdb;
#[path = "spec/smtp.rs"]
mod smtp;

#[path = "spec/bad_input.rs"]
mod bad_input;
#[path = "spec/idempotency.rs"]
mod idempotency;
#[path = "spec/ingest.rs"]
mod ingest;
#[path = "spec/isolation.rs"]
mod isolation;
#[path = "spec/operations.rs"]
mod operations;
#[path = "spec/operator.rs"]
mod operator;
#[path = "spec/pages.rs"]
mod pages;
#[path = "spec/refusals.rs"]
mod refusals;
#[path = "spec/s10_openapi.rs"]
mod s10_openapi;
#[path = "spec/s2_enrichment.rs"]
mod s2_enrichment;
#[path = "spec/s2_fields.rs"]
mod s2_fields;
#[path = "spec/s4_1_events.rs"]
mod s4_1_events;
#[path = "spec/s4_2_batch.rs"]
mod s4_2_batch;
#[path = "spec/s4_3_list.rs"]
mod s4_3_list;
#[path = "spec/s4_4_read.rs"]
mod s4_4_read;
#[path = "spec/s4_5_verify.rs"]
mod s4_5_verify;
#[path = "spec/s4_6_actions.rs"]
mod s4_6_actions;
#[path = "spec/s5_authentication.rs"]
mod s5_authentication;
#[path = "spec/s6_notices.rs"]
mod s6_notices;
#[path = "spec/s7_errors.rs"]
mod s7_errors;
#[path = "spec/s8_limits.rs"]
mod s8_limits;
#[path = "spec/system_chain.rs"]
mod system_chain;
#[path = "spec/work.rs"]
mod work;
