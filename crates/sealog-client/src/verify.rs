//! The check of events without the service, by the rules of `vectors/README.md`. They are the core's own,
//! which the server and the auditor's program use, too.

use sealog_core::audit::{Audit, NotedHead, Outcome, parse_entry};

use crate::error::Error;

/// The position and hash of an event, noted earlier from a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head(NotedHead);

impl std::str::FromStr for Head {
    type Err = Error;

    /// Reads `SEQ:HASH`.
    fn from_str(text: &str) -> Result<Head, Error> {
        let shown: String = text.chars().take(100).collect();
        let problem = || format!("{shown:?} is not SEQ:HASH, a number and 64 lower-case hex digits");
        NotedHead::parse(text).map(Head).ok_or_else(|| Error::option("heads", &problem()))
    }
}

/// The verdict on a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChainResult {
    pub valid: bool,
    pub checked: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    pub broken_at: Option<u64>,
    /// `None` if it cannot be read.
    pub broken_hash: Option<String>,
    /// One of `vectors/README.md`: malformed, chain, gap, link, hash, order, head or tail.
    pub reason: Option<&'static str>,
    pub message: String,
}

/// Recomputes every hash and follows every link of a chain, oldest or newest first. A chain that comes newest
/// first is held in memory.
#[derive(Debug)]
pub struct Verifier {
    audit: Audit,
    has_heads: bool,
}

impl Verifier {
    /// Without heads that were noted earlier, a tail that was cut off does not show.
    pub fn new(heads: &[Head]) -> Verifier {
        let noted = heads.iter().map(|head| head.0).collect();
        Verifier { audit: Audit::new(noted), has_heads: !heads.is_empty() }
    }

    /// Takes the text of the next event. One that is not JSON is an error.
    pub fn add(&mut self, text: &str) -> Result<(), Error> {
        let entry = parse_entry(text).map_err(|error| Error::event("event", &error.to_string()))?;
        self.audit.entry(entry);
        Ok(())
    }

    pub fn finish(self) -> ChainResult {
        let Outcome { checked, first_seq, last_seq, broken, .. } = self.audit.finish();
        let mut result = ChainResult {
            valid: broken.is_none(),
            checked,
            first_seq,
            last_seq,
            broken_at: None,
            broken_hash: None,
            reason: None,
            message: format!(
                "valid: {checked} events, chain_seq {first_seq} to {last_seq}; every hash was recomputed and every link followed"
            ),
        };
        match broken {
            Some(fault) => {
                let (at, reason) = (fault.at, fault.reason.as_str());
                let seen = fault.problem.unwrap_or_else(|| fault.reason.explain().to_owned());
                result.message = format!("broken at chain_seq {at} ({reason}): {seen}");
                result.broken_at = Some(at);
                result.broken_hash = fault.hash.map(|hash| hash.to_string());
                result.reason = Some(reason);
            }
            None if !self.has_heads => result.message.push_str(
                "; without a head, a tail that was cut off or a chain rewritten as a whole does not show",
            ),
            None => (),
        }
        result
    }
}

/// Checks the texts of the events of one chain.
pub fn verify_events<T: AsRef<str>>(
    texts: impl IntoIterator<Item = T>,
    heads: &[Head],
) -> Result<ChainResult, Error> {
    let mut verifier = Verifier::new(heads);
    for text in texts {
        verifier.add(text.as_ref())?;
    }
    Ok(verifier.finish())
}
