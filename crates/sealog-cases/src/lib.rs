//! Requests of data subjects ("give me everything about me"), from intake to the register.
//!
//! [`states`] is the one table of states and of what may follow what; [`clock`] says when an answer is due
//! and why, [`dates`] applies it to a case and to the organisation's days off. [`desk`] is what people do to
//! a case, `steps` what a step does: each write names the revision that it has seen, needs a person, and
//! commits with its entry in the case's history and a record for the tenant's system chain ([`told`] has
//! both, and the events that go into the projects of the case). [`forward`] brings those events into their
//! chains, [`reminders`] tells people of dates, and [`register`] is the list that authorities ask for.
//! [`disclosure`] is what the data subject gets.

pub mod clock;
pub mod dates;
pub mod desk;
pub mod disclosure;
pub mod fields;
pub mod forward;
pub mod register;
pub mod reminders;
pub mod states;
mod steps;
mod told;
pub mod words;

pub use desk::CaseDesk;
pub use fields::{IdentifierInput, IntakeInput, ScopeInput};
pub use forward::CaseForward;
pub use reminders::CaseReminders;
pub use steps::{CaseError, Move};
pub use told::{digest_of, is_note_intact};
