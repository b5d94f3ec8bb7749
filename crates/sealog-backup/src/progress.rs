//! How far it is: a bar on a terminal, and nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

#[derive(Clone, Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// `what` is what happens, such as “Copying”.
    pub(super) fn new(what: &str, is_quiet: bool) -> Progress {
        if is_quiet {
            return Progress(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let template =
            format!("{what} {{wide_bar}} {{bytes}} of {{total_bytes}}, {{bytes_per_sec}}, {{eta}} left");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Progress(bar)
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
