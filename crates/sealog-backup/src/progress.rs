//! How far it is: a bar on a terminal, and nothing elsewhere.

use std::io::Read;

use indicatif::ProgressBar;

#[derive(Clone, Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// `what` is what happens, such as “Copying”.
    pub(super) fn new(what: &str, is_quiet: bool) -> Progress {
        Progress(sealog_cli::progress::bytes(is_quiet, what, 0))
    }

    /// Of a stream that is read by what [`Progress::over`] returns, of so many bytes where that is known.
    pub(super) fn of_stream(what: &str, is_quiet: bool, bytes: Option<u64>) -> Progress {
        Progress(match bytes {
            Some(bytes) => sealog_cli::progress::bytes(is_quiet, what, bytes),
            None => sealog_cli::progress::stream(is_quiet, what),
        })
    }

    pub(super) fn over(&self, stream: impl Read) -> impl Read {
        self.0.wrap_read(stream)
    }

    pub(super) fn begin(&self, bytes: u64) {
        self.0.set_position(0);
        self.0.set_length(bytes);
    }

    pub(super) fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }

    pub(super) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
