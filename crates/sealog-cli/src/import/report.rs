//! Rows that were not taken: on standard error, in a report, and as rows to be corrected.
//!
//! ```text
//! t0  the rows of a batch are appended to both files
//! t1  the files are synced
//! t2  the state says that the batch is done, and how many rows were not taken until then
//! ```
//!
//! A crash before t2 leaves rows that the next command finds again: then they are in the files twice, and
//! none is missing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sealog_client::http::ClientError;
use serde_json::json;

use super::super::exit::Failure;
use super::super::file_flags;

/// How many are told one by one. A file of the wrong kind would fill the screen.
const TOLD_MAX: u64 = 20;

pub(super) struct Report {
    report: Option<(PathBuf, File)>,
    rejects: Option<(PathBuf, File)>,
    /// Those of earlier commands included.
    rejected: u64,
    told: u64,
    is_synced: bool,
}

impl Report {
    /// With what earlier commands were refused, if they have done a part of the file: their rows stay.
    pub(super) fn open(
        report: Option<PathBuf>,
        rejects: Option<PathBuf>,
        before: Option<u64>,
    ) -> Result<Report, Failure> {
        let mut options = OpenOptions::new();
        match before {
            Some(_) => options.append(true),
            None => options.write(true).truncate(true),
        };
        options.create(true);
        let open = |path: Option<PathBuf>| match path {
            None => Ok(None),
            Some(path) => match options.open(&path) {
                Ok(file) => Ok(Some((path, file))),
                Err(error) => Err(file_flags::unwritable(&path, &error)),
            },
        };
        let (report, rejects) = (open(report)?, open(rejects)?);
        Ok(Report { report, rejects, rejected: before.unwrap_or(0), told: 0, is_synced: true })
    }

    pub(super) fn rejected(&self) -> u64 {
        self.rejected
    }

    /// What cannot be made an event.
    pub(super) fn unfit(&mut self, line: u64, why: &str) -> Result<(), Failure> {
        self.tell(line, why);
        self.put(&json!({ "line": line, "message": why }), None)
    }

    /// What the service does not take.
    pub(super) fn refused(&mut self, line: u64, error: &ClientError, event: &str) -> Result<(), Failure> {
        self.tell(line, &error.to_string());
        let row = match error {
            ClientError::Refused(problem) => json!({
                "line": line, "code": problem.code, "message": problem.message,
                "request_id": problem.request_id, "doc_url": problem.doc_url,
            }),
            error => json!({ "line": line, "message": error.to_string() }),
        };
        self.put(&row, Some(event))
    }

    /// On stable storage when it returns.
    pub(super) fn sync(&mut self) -> Result<(), Failure> {
        if std::mem::replace(&mut self.is_synced, true) {
            return Ok(());
        }
        for (path, file) in [&self.report, &self.rejects].into_iter().flatten() {
            match file.sync_data() {
                // A pipe or a terminal has nothing to sync.
                Err(error) if error.kind() != io::ErrorKind::InvalidInput => {
                    return Err(unwritten(path, &error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn tell(&mut self, line: u64, why: &str) {
        self.rejected += 1;
        self.told += 1;
        if self.told <= TOLD_MAX {
            eprintln!("sealog: line {line}: {why}");
        } else if self.told == TOLD_MAX + 1 {
            eprintln!("sealog: more rows were rejected; use --report FILE to get all");
        }
    }

    fn put(&mut self, row: &serde_json::Value, event: Option<&str>) -> Result<(), Failure> {
        let put = |to: &mut Option<(PathBuf, File)>, line: &str| match to {
            None => Ok(()),
            Some((path, file)) => writeln!(file, "{line}").map_err(|error| unwritten(path, &error)),
        };
        self.is_synced = false;
        put(&mut self.report, &row.to_string())?;
        event.map_or(Ok(()), |event| put(&mut self.rejects, event))
    }
}

fn unwritten(path: &Path, error: &io::Error) -> Failure {
    Failure::usage(format!("cannot write {}: {error}", path.display()))
}
