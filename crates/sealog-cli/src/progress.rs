//! Progress on standard error, drawn on a terminal only.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// So many of a known number; where it is not known, of an unknown one.
pub fn bar(is_quiet: bool, doing: &str, total: Option<u64>) -> ProgressBar {
    match total {
        None => counted(is_quiet, doing),
        Some(total) => styled(
            is_quiet,
            Some(total),
            &format!("{doing} {{wide_bar}} {{human_pos}} of {{human_len}} events, {{rate}}, {{eta}} left"),
        ),
    }
}

pub fn counted(is_quiet: bool, doing: &str) -> ProgressBar {
    styled(is_quiet, None, &format!("{doing} {{spinner}} {{human_pos}} events, {{rate}}"))
}

/// How many files of so many; [`ProgressBar::set_length`] says how many once that is known.
pub fn files(is_quiet: bool, doing: &str, total: u64) -> ProgressBar {
    let template = "{wide_bar} {human_pos} of {human_len} files, {rate}, {eta} left";
    styled(is_quiet, Some(total), &format!("{doing} {template}"))
}

/// How much of an input was read; of a pipe only what was made of it, which the caller says as the message.
pub fn input(is_quiet: bool, doing: &str, bytes: Option<u64>) -> ProgressBar {
    let of_a_file = "{wide_bar} {bytes} of {total_bytes}, {msg}, {eta} left";
    let template = format!("{doing} {}", if bytes.is_some() { of_a_file } else { "{spinner} {msg}" });
    styled(is_quiet, bytes, &template)
}

/// How many bytes of so many; [`ProgressBar::set_length`] says how many once that is known.
pub fn bytes(is_quiet: bool, doing: &str, total: u64) -> ProgressBar {
    let template = "{wide_bar} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    styled(is_quiet, Some(total), &format!("{doing} {template}"))
}

/// How many bytes of a stream, whose length is not known.
pub fn stream(is_quiet: bool, doing: &str) -> ProgressBar {
    styled(is_quiet, None, &format!("{doing} {{spinner}} {{bytes}}, {{bytes_per_sec}}"))
}

/// For work of which nothing says how much of it is left.
pub fn waiting(is_quiet: bool, doing: &str) -> ProgressBar {
    let bar = styled(is_quiet, None, &format!("{doing} {{spinner}} {{elapsed}}"));
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

/// Takes a bar off the terminal while something else is asked there, or puts it back.
pub fn draw(bar: &ProgressBar, is_drawn: bool) {
    bar.set_draw_target(if is_drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() });
}

/// A line on standard error, for which the bar makes room. Where standard error cannot be written, as on a
/// terminal that is gone, there is nobody to tell, and what was to be done is done all the same.
pub fn tell(bar: &ProgressBar, text: &str) {
    bar.suspend(|| {
        let _ = writeln!(std::io::stderr(), "sealog: {text}");
    });
}

fn styled(is_quiet: bool, total: Option<u64>, template: &str) -> ProgressBar {
    if is_quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style.with_key("rate", whole_rate));
    }
    bar
}

/// Nobody reads thousandths of an event.
fn whole_rate(state: &ProgressState, out: &mut dyn fmt::Write) {
    let _ = write!(out, "{}/s", HumanCount(whole(state.per_sec())));
}

/// The nearest whole number; none for what is not a number.
fn whole(rate: f64) -> u64 {
    format!("{rate:.0}").parse().unwrap_or(0)
}

/// Events in a second.
pub fn rate(events: u64, took: Duration) -> u64 {
    // Whole events are exact enough, and a rate of no time at all is none.
    u64::try_from(u128::from(events) * 1_000_000 / took.as_micros().max(1)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_whole_number() {
        assert_eq!(HumanCount(whole(585_177.642)).to_string(), "585,178");
        assert_eq!([whole(0.4), whole(f64::NAN), whole(f64::INFINITY)], [0, 0, 0]);
    }
}
