//! The log_ids on standard output.

use std::fs::File;
use std::io::{self, PipeReader, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::json;

use super::super::output::Form;

/// A pipe that `poll` calls ready takes as much without making anybody wait.
const CHUNK: usize = 4096;

pub(super) struct Printer {
    form: Form,
    out: File,
    /// Ready when nobody is to be waited for any more.
    patience: PipeReader,
    /// Whether nobody reads it any more, or it could not be written: then nothing more is tried.
    is_closed: bool,
    /// Of sealed events, because standard output could not be written.
    pub unprinted: u64,
}

impl Printer {
    pub(super) fn new(form: Form, patience: PipeReader) -> io::Result<Printer> {
        let out = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Printer { form, out, patience, is_closed: false, unprinted: 0 })
    }

    /// An error is told once. A pipe that was closed is none: whoever closed it has seen enough, and the
    /// events are sealed all the same.
    pub(super) fn print(&mut self, sealed: &[(u64, String)]) -> io::Result<()> {
        let mut text = String::with_capacity(sealed.len() * 27);
        for (line, log_id) in sealed {
            match self.form {
                Form::Json => {
                    text.push_str(&format!("{}\n", json!({ "line": line, "log_id": log_id })));
                }
                Form::Lines | Form::Table => text.push_str(&format!("{log_id}\n")),
            }
        }
        if self.is_closed {
            self.unprinted += sealed.len() as u64;
            return Ok(());
        }
        let mut rest = text.as_bytes();
        let written = self.put(&mut rest);
        if written.is_err() {
            self.is_closed = true;
            self.unprinted += rest.iter().filter(|byte| **byte == b'\n').count() as u64;
        }
        match written {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    /// What is left of the text when it fails was not written.
    fn put(&mut self, text: &mut &[u8]) -> io::Result<()> {
        while !text.is_empty() {
            if !self.is_ready()? {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "no process reads it"));
            }
            match self.out.write(&text[..text.len().min(CHUNK)]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => *text = &text[length..],
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until it can be written; false if there is no time left for that.
    fn is_ready(&self) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.out, PollFlags::OUT), PollFd::new(&self.patience, PollFlags::IN)];
        while let Err(error) = poll(&mut waited, None) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        Ok(!waited[0].revents().is_empty())
    }
}
