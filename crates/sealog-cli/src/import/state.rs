//! How far an import has come: the last line whose batch was answered, a digest of all lines up to it, by
//! which another file is told, and how many of them were not taken.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::super::exit::{Exit, Failure};
use crate::files;

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    sealog_import: u32,
    line: u64,
    digest: String,
    /// Lines that were not taken.
    #[serde(default)]
    rejected: u64,
}

fn other(path: &Path) -> Failure {
    Failure::usage(format!(
        "the file does not match the state in {}, or its imported part was changed: import the new rows as a separate file, or give another state file",
        path.display()
    ))
}

#[derive(Default)]
pub(super) struct State {
    path: Option<PathBuf>,
    kept: Option<Kept>,
    /// Of all lines so far.
    digest: Sha256,
    /// Digests at lines that are under way, oldest first.
    waiting: std::collections::VecDeque<(u64, String)>,
}

impl State {
    pub(super) fn open(path: Option<PathBuf>) -> Result<State, Failure> {
        let Some(path) = path else { return Ok(State::default()) };
        let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
        let kept = match std::fs::read(&path) {
            Ok(text) => Some(serde_json::from_slice::<Kept>(&text).map_err(|error| {
                bad(format!(
                    "not a valid state file ({error}): give another file, or remove it to start over"
                ))
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                return Err(bad(format!("cannot read it: {error}; give another file with --state")));
            }
        };
        if let Some(kept) = kept.as_ref().filter(|kept| kept.sealog_import != 1) {
            return Err(bad(format!(
                "it was written by another version of this program ({}): use that version, or give another file",
                kept.sealog_import
            )));
        }
        Ok(State { path: Some(path), kept, ..State::default() })
    }

    /// How many lines earlier commands were refused; nothing where none has done any. Asked before the first
    /// line.
    pub(super) fn rejected_before(&self) -> Option<u64> {
        self.kept.as_ref().map(|kept| kept.rejected)
    }

    /// Whether an earlier command has done this line. Every line is asked for once, in order.
    pub(super) fn is_known(&mut self, line: u64, event: Result<&RawValue, &String>) -> Result<bool, Failure> {
        let Some(path) = &self.path else { return Ok(false) };
        self.digest.update(line.to_le_bytes());
        // What is said of a line that is no event may have other words in the next version.
        self.digest.update(event.map_or(&b"no event"[..], |event| event.get().as_bytes()));
        let hex = |digest: &Sha256| hex::encode(&digest.clone().finalize()[..16]);
        let Some(kept) = &self.kept else {
            self.waiting.push_back((line, hex(&self.digest)));
            return Ok(false);
        };
        let is_other = line > kept.line || (line == kept.line && hex(&self.digest) != kept.digest);
        if is_other {
            return Err(other(path));
        }
        if line == kept.line {
            self.kept = None;
        }
        Ok(true)
    }

    /// The file has ended: it must have had all that was imported already.
    pub(super) fn ended(&self) -> Result<(), Failure> {
        match (&self.path, &self.kept) {
            (Some(path), Some(_)) => Err(other(path)),
            _ => Ok(()),
        }
    }

    /// Everything up to this line was answered, and so many lines were not taken.
    pub(super) fn done(&mut self, line: u64, rejected: u64) -> Result<(), Failure> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut reached = None;
        while self.waiting.front().is_some_and(|(waiting, _)| *waiting <= line) {
            reached = self.waiting.pop_front();
        }
        let Some((line, digest)) = reached else { return Ok(()) };
        let mut text = serde_json::to_vec(&Kept { sealog_import: 1, line, digest, rejected })
            .expect("texts and numbers");
        text.push(b'\n');
        files::write_new(path, &text)
            .map_err(|error| Failure::new(Exit::Failure, format!("cannot write {}: {error}", path.display())))
    }
}
