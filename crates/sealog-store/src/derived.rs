//! What is derived from events (indexes, counts, usage), compared with the events.
//!
//! Derived data has checksums against accidents, and no secret: whoever can write it can forge it. A forged
//! index hides events from lists, from reads by id and from the look-up of idempotency keys, while every
//! chain verifies. So each piece is made again from its events and compared. `SECURITY.md` lists what is
//! derived, and what heals it.

use std::sync::Mutex;

use crate::sync::lock;

/// What one step of the comparison has come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DerivedStep {
    /// Where the next step begins; nothing when all was compared.
    pub next: Option<Vec<u8>>,
    /// What does not match, in words for the operator: files and chains are named, and nothing that an event
    /// holds.
    pub faults: Vec<String>,
    /// Events whose derived data was compared.
    pub events: u64,
}

/// More than anybody reads; the log has all of them.
const FAULTS_MAX: usize = 100;

/// What was found since the store was opened, each once.
#[derive(Debug, Default)]
pub(crate) struct DerivedFaults(Mutex<Vec<String>>);

impl DerivedFaults {
    pub(crate) fn note(&self, faults: &[String]) {
        let mut known = lock(&self.0);
        for fault in faults {
            tracing::error!(fault, "derived data does not match its events");
            if known.len() < FAULTS_MAX && !known.contains(fault) {
                known.push(fault.clone());
            }
        }
    }

    pub(crate) fn all(&self) -> Vec<String> {
        lock(&self.0).clone()
    }

    pub(crate) fn count(&self) -> u64 {
        lock(&self.0).len() as u64
    }
}
