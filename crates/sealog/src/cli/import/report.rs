//! Rows that were not taken: on standard error, in a report, and as rows to be corrected.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use sealog_client::ClientError;
use serde_json::json;

use super::super::exit::{Exit, Failure};
use super::super::file_flags;

/// How many are told one by one. A file of the wrong kind would fill the screen.
const TOLD_MAX: u64 = 20;

pub(super) struct Report {
    report: Option<(PathBuf, File)>,
    rejects: Option<(PathBuf, File)>,
    rejected: u64,
}

impl Report {
    pub(super) fn open(report: Option<PathBuf>, rejects: Option<PathBuf>) -> Result<Report, Failure> {
        let open = |path: Option<PathBuf>| match path {
            None => Ok(None),
            Some(path) => match File::create(&path) {
                Ok(file) => Ok(Some((path, file))),
                Err(error) => Err(file_flags::unwritable(&path, &error)),
            },
        };
        Ok(Report { report: open(report)?, rejects: open(rejects)?, rejected: 0 })
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

    fn tell(&mut self, line: u64, why: &str) {
        self.rejected += 1;
        if self.rejected <= TOLD_MAX {
            eprintln!("sealog: line {line}: {why}");
        } else if self.rejected == TOLD_MAX + 1 {
            eprintln!("sealog: more rows are not taken; --report FILE has all of them");
        }
    }

    fn put(&mut self, row: &serde_json::Value, event: Option<&str>) -> Result<(), Failure> {
        let put = |to: &mut Option<(PathBuf, File)>, line: &str| match to {
            None => Ok(()),
            Some((path, file)) => writeln!(file, "{line}").map_err(|error| {
                Failure::new(Exit::Failure, format!("{} cannot be written: {error}", path.display()))
            }),
        };
        put(&mut self.report, &row.to_string())?;
        event.map_or(Ok(()), |event| put(&mut self.rejects, event))
    }
}
