//! `--in-flight`: how many requests of a command may be under way at once.

use clap::{Arg, ArgMatches, value_parser};

const NAME: &str = "in_flight";

/// Of a command that reads: what comes early waits for what comes before it.
pub(super) fn of_reads() -> Arg {
    flag("4", "Number of concurrent requests; events stay in order")
}

/// Of a command that sends: the service seals batches as they come.
pub(super) fn of_batches() -> Arg {
    flag("1", "Number of concurrent batches; more than one does not keep the order")
}

fn flag(default: &'static str, help: &'static str) -> Arg {
    Arg::new(NAME)
        .long("in-flight")
        .value_name("N")
        .default_value(default)
        .value_parser(value_parser!(u64).range(1..=16))
        .help(help)
}

pub(super) fn asked(matches: &ArgMatches) -> usize {
    let asked = *matches.get_one::<u64>(NAME).expect("has a default");
    usize::try_from(asked).expect("at most 16")
}
