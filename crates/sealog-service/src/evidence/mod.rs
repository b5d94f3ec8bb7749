//! What people take from the chains: searches, exports and verifications.

pub mod exports;
pub mod hidden;
pub mod search;
pub mod seqs;
pub mod verification;
