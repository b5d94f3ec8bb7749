//! What may be done, and what follows: the rules that hold whoever asks. No HTTP.
//!
//! [`ingest`] is the write path, the only caller of `Store::append`, with its adapters, the places of
//! addresses and quotas. [`people`] is how accounts sign in, what administrators may do, and the mails that
//! tell them. [`records`] seals what they have done and keeps the promises about copies and test events.
//! [`evidence`] is what they take from the chains: searches, exports, verifications. [`jobs`] does the work
//! that takes longer than a request. Each part takes what it uses, and none knows of the whole program.

pub mod evidence;
pub mod ingest;
pub mod jobs;
pub mod people;
pub mod records;
mod secret;
mod visit;
pub mod zone;

pub use jobs::stop::Stop;
pub use secret::Secret;
pub use visit::Visit;
