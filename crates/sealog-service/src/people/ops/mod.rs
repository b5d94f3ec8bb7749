//! Those who run the instance: their accounts, and what they do in the console. No HTTP.
//!
//! An operator is nobody's member and has an account of another kind, made on the host. What an operator
//! changes of a tenant goes into that tenant's system chain by the operator's id, as with everybody else;
//! what concerns the instance alone is logged.

mod accounts;
mod desk;
mod host;
mod jobs;
mod losses;
mod outbox;

pub use accounts::{EnrolError, Operators, SignedInOperator};
pub use desk::Desk;
pub use host::{AddError, ENROLMENT_MS, EnrolmentLink, add_operator, remove_operator};
pub use losses::{LOSSES_MAX, LostChain};
