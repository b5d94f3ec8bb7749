//! What may be done, and what follows: the rules that hold whoever asks. No HTTP.
//!
//! [`ingest`] is the write path, the only caller of `Store::append`. [`admin`] is what administrators may do,
//! and [`system_chain`] seals what they have done. Background loops are what follows without anybody waiting
//! for it: quota notices ([`quota`]), reminders ([`notices`]), mails ([`mail`]), the geo database ([`geo`]),
//! and jobs that people start ([`jobs`]), which are verifications ([`verification`]). [`exports`] are files
//! of events. [`sign_in`] is how accounts of every kind sign in, [`people`] what people do with theirs,
//! [`search`] how they find events, [`ops`] those who run the instance. Each part takes what it
//! uses, and none knows of the whole program.

pub mod adapters;
pub mod address;
pub mod admin;
mod contact;
pub mod copies;
pub mod exports;
pub mod geo;
pub mod give_way;
mod guessable;
pub mod heads;
pub mod hidden;
pub mod ingest;
pub mod jobs;
pub mod mail;
pub mod notices;
pub mod notify;
pub mod ops;
pub mod organisation;
pub mod password;
pub mod people;
pub mod quota;
pub mod replication;
pub mod retention;
pub mod search;
mod secret;
pub mod seqs;
pub mod sign_in;
pub mod stamp;
mod stop;
pub mod supervise;
pub mod system_chain;
mod text;
pub mod verification;
mod visit;
pub mod zone;

pub use secret::Secret;
pub use stop::Stop;
pub use visit::Visit;
