//! Checkpoints: what a log says of its tree, after C2SP `tlog-checkpoint`.

use std::fmt;

use sealog_core::id::Hash;

use crate::note::{Note, SigningKey};
use crate::text::{Lines, Malformed, base64};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log.
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

impl Checkpoint {
    /// Reads the text of a note. Refuses lines behind the root: no auditor could check them.
    pub fn parse(text: &str) -> Result<Checkpoint, Malformed> {
        let mut lines = Lines::of(text);
        let origin = lines.next("origin")?;
        if origin.is_empty() {
            return Err(lines.wrong("origin", "must not be empty"));
        }
        let size = lines.next("size")?;
        let size = lines.decimal("size", size)?;
        let root = lines.next("root")?;
        let root = lines.hash("root", root)?;
        lines.end()?;
        Ok(Checkpoint { origin: origin.to_owned(), size, root })
    }

    /// Nothing if the origin has control characters.
    pub fn sign(&self, keys: &[&SigningKey]) -> Option<Note> {
        let text = self.to_string();
        Note::new(text.clone(), keys.iter().map(|key| key.sign(&text)).collect())
    }
}

/// The text that is signed.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}\n{}\n", self.origin, self.size, base64(&self.root.0))
    }
}
