//! The other server of a pair, one of which is the primary: what came of the last question for its epoch.
//! The program asks; `/readyz` and `/metrics` tell.

use std::mem::discriminant;
use std::sync::Mutex;

use sealog_store::sync::lock;

#[derive(Debug)]
pub struct Peer {
    url: String,
    last: Mutex<Asked>,
}

/// What came of the last question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    NotYet,
    Answered,
    /// Why there was no answer.
    Away(String),
}

impl Peer {
    pub fn new(url: &str) -> Peer {
        Peer { url: url.to_owned(), last: Mutex::new(Asked::NotYet) }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Keeps what came of a question. Whether it is something else than before, and worth a line.
    pub fn note(&self, asked: Asked) -> bool {
        let kind = discriminant(&asked);
        discriminant(&std::mem::replace(&mut *lock(&self.last), asked)) != kind
    }

    pub(crate) fn is_up(&self) -> bool {
        *lock(&self.last) == Asked::Answered
    }

    /// For the operator: what is not known while the peer is away.
    pub(crate) fn trouble(&self) -> Option<String> {
        let Asked::Away(problem) = lock(&self.last).clone() else { return None };
        Some(format!(
            "cannot ask replication.peer {} for its epoch: {problem}. This server accepts events without knowing whether the peer was promoted",
            self.url
        ))
    }
}
