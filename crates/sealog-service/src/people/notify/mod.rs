//! Telling people of something: which notices there are ([`Kind`]), and how one gets into the outbox of
//! everybody whom it is for ([`Notifier`]). What it says is made when it is sent
//! ([`crate::people::notices`]).

mod kinds;
mod notifier;

pub use kinds::{
    AUDITOR_ENDING, CASE_ASSIGNED, CASE_DUE, EXPORT_READY, INTEGRITY_REPORT, INVITATION, KEY_EXPIRED,
    KEY_EXPIRING, KINDS, Kind, MANAGERS, NEW_DEVICE, QUOTA, RESET, TRIAL_ENDED, TRIAL_ENDING,
    VERIFICATION_FAILED, find,
};
pub(crate) use notifier::chosen;
pub use notifier::{Notifier, RECIPIENTS_MAX};
