//! Lines that are not taken: told, counted, and kept in a file for those who want to correct them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::PathBuf;

use indicatif::{HumanCount, ProgressBar};
use sealog_client::http::ClientError;

use super::super::exit::Failure;
use super::super::file_flags;
use super::super::{output, progress};

/// How many are told one by one. A file of the wrong kind would fill the screen.
const TOLD_MAX: u64 = 10;
/// For lines that the service was not even asked about.
const NO_EVENT: &str = "no event";
/// How much of a line is shown that is nowhere else any more.
const SHOWN_MAX: usize = 2000;

pub(super) struct Rejects {
    file: Option<(PathBuf, File)>,
    bar: ProgressBar,
    /// By the service's code.
    counts: BTreeMap<String, u64>,
    is_in_a_line: bool,
}

impl Rejects {
    pub(super) fn open(path: Option<PathBuf>) -> Result<Rejects, Failure> {
        let file = match path {
            None => None,
            Some(path) => match OpenOptions::new().create(true).append(true).open(&path) {
                Ok(file) => Some((path, file)),
                Err(error) => return Err(file_flags::unwritable(&path, &error)),
            },
        };
        Ok(Rejects { file, bar: ProgressBar::hidden(), counts: BTreeMap::new(), is_in_a_line: false })
    }

    /// Makes room in front of this bar for what is told.
    pub(super) fn with_bar(&mut self, bar: ProgressBar) {
        self.bar = bar;
    }

    /// Whether more of the last line follows.
    pub(super) fn is_in_a_line(&self) -> bool {
        self.is_in_a_line
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.values().sum()
    }

    /// An error is one of the file.
    pub(super) fn refused(&mut self, place: &str, error: &ClientError, event: &str) -> Result<(), String> {
        self.count(error.code().unwrap_or("other"), place, &error.to_string());
        self.keep(event.as_bytes(), true)
    }

    pub(super) fn unfit(&mut self, line: u64, why: &str, text: &[u8], is_whole: bool) -> Result<(), String> {
        self.count(NO_EVENT, &format!("line {line}"), why);
        self.keep(text, is_whole)
    }

    /// The beginning of a line, the rest of which was not read. It is told however many others were, since
    /// nobody can read it again from a pipe.
    pub(super) fn cut(&mut self, line: u64, text: &[u8]) -> Result<(), String> {
        *self.counts.entry("cut short".to_owned()).or_default() += 1;
        let shown = String::from_utf8_lossy(&text[..text.len().min(SHOWN_MAX)]);
        let more = if text.len() > SHOWN_MAX { "…" } else { "" };
        let told = format!(
            "line {line}: only the first {} bytes were read, which are not an event: {}{more}",
            text.len(),
            output::plain(&shown)
        );
        progress::tell(&self.bar, &told);
        self.keep(text, true)
    }

    /// More of the text of the last one.
    pub(super) fn more(&mut self, text: &[u8], is_whole: bool) -> Result<(), String> {
        self.keep(text, is_whole)
    }

    /// For the end: how many there were of each kind, and where they are.
    pub(super) fn summary(&self) -> Option<String> {
        let total = self.total();
        let mut counts: Vec<(&String, &u64)> = self.counts.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let counts: Vec<String> =
            counts.iter().map(|(code, count)| format!("{} {code}", HumanCount(**count))).collect();
        let kept = match &self.file {
            Some((path, _)) => format!("saved in {}", path.display()),
            None => "use --rejects FILE to save them".to_owned(),
        };
        let lines = if total == 1 { "line was" } else { "lines were" };
        (total > 0).then(|| format!("{} {lines} rejected: {}; {kept}", HumanCount(total), counts.join(", ")))
    }

    /// What was written is on stable storage when it returns, if the file is such that this can be said of
    /// it.
    pub(super) fn sync(&self) -> Result<(), String> {
        match &self.file {
            Some((path, file)) if self.total() > 0 && file.metadata().is_ok_and(|file| file.is_file()) => {
                file.sync_all().map_err(|error| unwritten(path, &error))
            }
            _ => Ok(()),
        }
    }

    fn count(&mut self, code: &str, place: &str, why: &str) {
        *self.counts.entry(code.to_owned()).or_default() += 1;
        match self.total() {
            1..=TOLD_MAX => progress::tell(&self.bar, &format!("{place}: {why}")),
            total if total == TOLD_MAX + 1 => {
                progress::tell(&self.bar, "more lines were rejected; the total follows at the end");
            }
            _ => {}
        }
    }

    fn keep(&mut self, text: &[u8], is_whole: bool) -> Result<(), String> {
        self.is_in_a_line = !is_whole;
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut line = text.to_vec();
        // One of a JSON document may have line breaks, which are spaces as well.
        line.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        if is_whole {
            line.push(b'\n');
        }
        file.write_all(&line).map_err(|error| unwritten(path, &error))
    }
}

fn unwritten(path: &std::path::Path, error: &io::Error) -> String {
    format!("cannot write {}: {error}", path.display())
}
