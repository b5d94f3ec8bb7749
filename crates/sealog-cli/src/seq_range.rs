//! `--from` and `--to`: a part of a chain, by `chain_seq`.

use clap::{Arg, ArgMatches, Command, value_parser};

use super::exit::Failure;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeqRange {
    pub from: u64,
    /// Nothing for the end of the chain.
    pub to: Option<u64>,
}

pub(super) fn with_range(command: Command) -> Command {
    command.arg(flag("from", "First chain_seq")).arg(flag("to", "Last chain_seq"))
}

/// A flag that takes one.
pub(super) fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).value_name("SEQ").value_parser(value_parser!(u64).range(1..)).help(help)
}

impl SeqRange {
    pub(super) fn asked(matches: &ArgMatches) -> Result<SeqRange, Failure> {
        let from = matches.get_one::<u64>("from").copied().unwrap_or(1);
        let to = matches.get_one::<u64>("to").copied();
        if to.is_some_and(|to| to < from) {
            return Err(Failure::usage("--to must not be less than --from"));
        }
        Ok(SeqRange { from, to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_the_whole_chain_unless_it_is_asked_for_a_part_and_never_ends_before_it_begins() {
        let asked = |args: &[&str]| {
            let matches =
                with_range(Command::new("x")).no_binary_name(true).try_get_matches_from(args).unwrap();
            SeqRange::asked(&matches).map(|range| (range.from, range.to)).map_err(|failure| failure.message)
        };
        assert_eq!(asked(&[]), Ok((1, None)));
        assert_eq!(asked(&["--from", "5"]), Ok((5, None)));
        assert_eq!(asked(&["--from", "5", "--to", "5"]), Ok((5, Some(5))));
        assert!(asked(&["--from", "5", "--to", "4"]).unwrap_err().contains("--to must not be less"));
        assert!(with_range(Command::new("x")).try_get_matches_from(["x", "--from", "0"]).is_err());
    }
}
