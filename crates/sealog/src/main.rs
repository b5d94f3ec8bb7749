//! `sealog`: one binary.

mod accept_loss;
mod admin;
mod backup;
mod config;
mod demo;
mod demo_mark;
mod examples;
mod fence;
mod first_run;
mod host;
mod logging;
mod migrate;
mod operator_token;
mod ops_user;
mod peer_epoch;
// Tests compile it, too: so it does not rot where nobody builds with it.
mod otlp;
mod plans;
mod reference;
mod reset;
mod secret_files;
mod serve;
mod supervisor;
mod tenant;
mod traces;
mod trust;

use std::process::ExitCode;

use clap::{ArgMatches, Command};
use tokio::signal::unix::{SignalKind, signal};

use sealog_cli::exit::Failure;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A write beyond the limit of file size (`ulimit -f`) sends a signal, which ends a process without a line.
/// Once it is heard it does nothing, and the write fails like any other that the disk refuses: it is logged,
/// and a backup says which file.
fn hear_file_size_limit() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
    let _entered = runtime.enter();
    // What listens stays when this is dropped.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}

fn main() -> ExitCode {
    hear_file_size_limit();
    let matches = command().get_matches();
    let (name, matches) = matches.subcommand().expect("clap asks for a subcommand");
    let ended = host::run(name, matches, command)
        .or_else(|| sealog_cli::run(name, matches))
        .or_else(|| backup::run(name, matches))
        .unwrap_or_else(|| run(name, matches));
    ended.unwrap_or_else(|failure| failure.say())
}

fn run(name: &str, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    match name {
        "serve" => serve::run(matches, || reference::program(command())),
        "demo" => demo::run(matches, || reference::program(command())),
        "accept-loss" => accept_loss::run(matches),
        "reset" => reset::run(matches),
        "ops-user" => ops_user::run(matches),
        "migrate" => migrate::run(matches),
        "tenant" => tenant::run(matches),
        "operator-token" => operator_token::run(matches),
        "trust" => trust::run(matches),
        _ => unreachable!("every command that is described runs"),
    }
}

fn command() -> Command {
    let program = Command::new("sealog")
        .about("Tamper-evident audit event log")
        .version(concat!(env!("CARGO_PKG_VERSION"), " (", env!("SEALOG_BUILD"), ")"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(Command::new("serve").about("Run the server").long_about(
            "Run the server.\n\n\
                 On an empty data directory the server first creates a tenant, a project, a live key, a test \
                 key and an owner for the dashboard. It shows them once: on the terminal, or without one in \
                 the file first-run.txt in the data directory, which only its owner can read.\n\n\
                 Settings come from flags, the environment, or the file sealog.toml in the working \
                 directory. Flags override the environment, which overrides the file. An unknown or invalid \
                 setting is an error.\n\n\
                 SIGTERM or SIGINT stops the server: it accepts no new connections, finishes requests in \
                 progress and syncs everything. SIGHUP reloads the certificate and the operator token at \
                 once, unless the server runs on a terminal.\n\n\
                 Exit codes: 0 stopped as asked, 1 could not start, 2 the command line or a setting is \
                 wrong, 74 a write or sync of the store failed; restart the server after that.",
        )))
        .subcommand(demo::command())
        .subcommand(migrate::command())
        .subcommand(accept_loss::command())
        .subcommand(reset::command())
        .subcommand(ops_user::command())
        .subcommand(tenant::command())
        .subcommand(operator_token::command())
        .subcommand(trust::command())
        .subcommands(backup::commands())
        .subcommands(sealog_cli::commands())
        .subcommands(host::commands());
    examples::with_examples(program)
}

#[cfg(test)]
mod tests {
    use clap::Command;

    /// Commands without `--json`, and why.
    const WITHOUT_JSON: [(&str, &str); 3] = [
        ("sealog serve", "a server, which prints nothing; log_format says how it logs"),
        ("sealog completions", "prints a script for a shell"),
        ("sealog man", "prints a page for man"),
    ];

    #[test]
    fn the_command_line_is_well_formed() {
        super::command().debug_assert();
    }

    #[test]
    fn every_command_that_prints_data_has_json() {
        let mut program = super::command();
        program.build();
        let mut without = Vec::new();
        let all = runnable(&program, "sealog", "json", &mut without);
        assert!(all > 40, "the commands are found: {all}");
        assert_eq!(without, WITHOUT_JSON.map(|(name, _)| name));
    }

    /// Commands without `--quiet`, and why: the others may work for more than two seconds.
    const WITHOUT_QUIET: [(&str, &str); 24] = [
        ("sealog serve", "a server, whose log_level says how much it logs"),
        ("sealog demo", "a server"),
        ("sealog accept-loss", "one event"),
        ("sealog reset", "one link"),
        ("sealog ops-user add", "one account"),
        ("sealog ops-user list", "one account"),
        ("sealog ops-user remove", "one account"),
        ("sealog tenant close", "prints one line, of pages that take less than a second"),
        ("sealog operator-token create", "one file"),
        ("sealog operator-token rotate", "one file"),
        ("sealog trust status", "one row for each chain"),
        ("sealog trust vkey", "one line"),
        ("sealog trust init", "one entry of the log"),
        ("sealog trust rotate-key", "one key"),
        ("sealog trust new-log", "one entry of the log"),
        ("sealog backup list", "its list is all it prints"),
        ("sealog backup heads", "reads one row for each chain"),
        ("sealog check", "its findings are all it prints; each connection has a time-out"),
        ("sealog config print", "its settings are all it prints"),
        ("sealog mail test", "one message, with a time-out"),
        ("sealog geoip test", "one address"),
        ("sealog doctor", "one archive of bounded size"),
        ("sealog completions", "prints a script for a shell"),
        ("sealog man", "prints a page for man"),
    ];

    #[test]
    fn every_command_that_may_take_long_is_quiet_on_request() {
        let mut program = super::command();
        program.build();
        let mut without = Vec::new();
        runnable(&program, "sealog", "quiet", &mut without);
        assert_eq!(without, WITHOUT_QUIET.map(|(name, _)| name));
    }

    /// Verbs for the same. A command has the first of its row, so that whoever knows one noun knows all.
    const VERBS: [&[&str]; 6] = [
        &["create", "add", "make", "new"],
        &["list", "ls", "all"],
        &["show", "get", "describe", "view", "info"],
        &["change", "update", "edit", "set", "modify"],
        &["remove", "delete", "rm", "drop", "destroy"],
        &["verify", "check", "validate", "test"],
    ];

    /// Commands with another verb of a row, and what they do instead.
    const OTHER_VERBS: [(&str, &str); 8] = [
        (
            "sealog ops-user add",
            "adds a person to those who run the instance; `create` makes what belongs to a tenant",
        ),
        ("sealog trust new-log", "begins another log; `init` begins the first"),
        ("sealog restore check", "compares with what was acknowledged; `verify` recomputes hashes"),
        (
            "sealog spool drop",
            "gives events up that were never stored; `remove` takes away what can be made again",
        ),
        ("sealog events get", "prints the event as the API's `get` does; `show` explains"),
        ("sealog check", "says whether a server would start; `verify` recomputes hashes"),
        ("sealog mail test", "tries a setting"),
        ("sealog geoip test", "tries a setting"),
    ];

    #[test]
    fn a_verb_means_the_same_for_every_noun() {
        let mut program = super::command();
        program.build();
        let mut commands = Vec::new();
        runnable(&program, "sealog", "no such flag", &mut commands);
        let is_other = |command: &&str| {
            let verb = command.rsplit(' ').next().unwrap_or_default();
            VERBS.iter().any(|row| row[1..].iter().any(|other| verb.split('-').next() == Some(other)))
        };
        let others: Vec<&str> = commands.iter().map(String::as_str).filter(is_other).collect();
        assert_eq!(others, OTHER_VERBS.map(|(name, _)| name));
        for row in VERBS {
            let verb = row[0];
            assert!(commands.iter().any(|command| command.ends_with(&format!(" {verb}"))), "{verb}");
        }
    }

    /// Words that hashes of index files begin with.
    const NO_COMMANDS: [&str; 2] = ["sealog index salt", "sealog distincts"];

    /// What a page writes as `sealog …` within a sentence is a command with flags that there are.
    #[test]
    fn every_command_that_a_page_names_is_one_of_the_program() {
        let mut program = super::command();
        program.build();
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let (mut wrong, mut seen) = (Vec::new(), 0);
        for entry in std::fs::read_dir(docs).unwrap() {
            let path = entry.unwrap().path();
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            for span in spans(&text).into_iter().filter(|span| !NO_COMMANDS.contains(&&**span)) {
                seen += 1;
                let page = path.file_name().unwrap().to_string_lossy();
                wrong.extend(not_a_command(&program, &span).map(|why| format!("{page}: `{span}`: {why}")));
            }
        }
        assert!(seen > 150, "the commands are found: {seen}");
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_command_or_flag_that_there_is_not_is_noticed() {
        let mut program = super::command();
        program.build();
        let wrong = |span: &str| not_a_command(&program, span);
        assert_eq!(
            spans("a `sealog x\ny` b `other` c\n```sh\nsealog z\n```\n`sealog q`"),
            ["sealog x y", "sealog q"]
        );
        for good in ["sealog backup create DIR", "sealog spool list|send", "sealog follow --rotate SIZE|day"]
        {
            assert_eq!(wrong(good), None, "{good}");
        }
        for bad in [
            "sealog bakup",
            "sealog backup make",
            "sealog backup prune --keep-daly 7",
            "sealog verify --form=x",
        ] {
            assert!(wrong(bad).is_some(), "{bad}");
        }
    }

    /// Code within sentences that begins with `sealog`, on one line.
    fn spans(page: &str) -> Vec<String> {
        // Between the fences.
        let text: String = page.split("\n```").step_by(2).collect::<Vec<_>>().join("\n\n");
        let of = |paragraph: &str| -> Vec<String> {
            let codes = paragraph.split('`').skip(1).step_by(2);
            let codes = codes.map(|code| code.split_whitespace().collect::<Vec<_>>().join(" "));
            codes.filter(|code| code.starts_with("sealog ")).collect()
        };
        text.split("\n\n").flat_map(of).collect()
    }

    fn not_a_command(program: &Command, span: &str) -> Option<String> {
        let (mut command, mut is_value) = (program, false);
        for (at, word) in span.split(' ').skip(1).enumerate() {
            if std::mem::take(&mut is_value) {
                continue;
            }
            for part in word.split('|') {
                let name = part.trim_start_matches('[').trim_end_matches([']', ',', '…']);
                if name.starts_with('-') && name.len() > 1 {
                    let (flag, given) = name.split_once('=').map_or((name, false), |(flag, _)| (flag, true));
                    let flag = flag.trim_start_matches('-');
                    let is_it = |argument: &&clap::Arg| {
                        argument.get_long() == Some(flag)
                            || argument.get_short().is_some_and(|short| flag == short.to_string())
                    };
                    let found = command.get_arguments().find(is_it);
                    if found.is_none() && !["help", "version"].contains(&flag) {
                        return Some(format!("no flag {name}"));
                    }
                    is_value = !given && found.is_some_and(|argument| argument.get_action().takes_values());
                } else if command.has_subcommands() && command.find_subcommand(name).is_none() {
                    let is_word =
                        !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
                    // `sealog COMMAND` stands for all of them.
                    if is_word || at == 0 && name != "COMMAND" {
                        return Some(format!("no command {name:?}"));
                    }
                }
            }
            if let Some(below) = command.find_subcommand(word) {
                command = below;
            }
        }
        None
    }

    /// Whoever is on the machine sees the arguments of every process, and shells keep them.
    #[test]
    fn no_secret_is_an_argument() {
        fn secrets(command: &Command, name: &str, found: &mut Vec<String>) {
            let has_settings =
                command.get_arguments().any(|argument| argument.get_long() == Some("data-dir"));
            for argument in command.get_arguments().filter(|argument| argument.get_action().takes_values()) {
                let (id, long) = (argument.get_id().as_str(), argument.get_long().unwrap_or_default());
                let shown = format!("{id} {long}").to_lowercase();
                let is_secret =
                    ["key", "token", "password", "secret"].iter().any(|word| shown.contains(word));
                // Files with a key, ids of keys, and what makes a repetition harmless are no secrets. Every
                // setting of a server has a flag, for trying things out; never a place without a name.
                let is_public = ["file", "tls", "key_id", "public-key", "idempotency"]
                    .iter()
                    .any(|word| shown.contains(word))
                    || (has_settings && long == "operator-token");
                if is_secret && !is_public {
                    found.push(format!("{name}: {shown}"));
                }
            }
            for below in command.get_subcommands() {
                secrets(below, &format!("{name} {}", below.get_name()), found);
            }
        }
        let mut program = super::command();
        program.build();
        let mut found = Vec::new();
        secrets(&program, "sealog", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }

    /// Counts the commands that do something themselves, and names those without a flag.
    fn runnable(command: &Command, name: &str, flag: &str, without: &mut Vec<String>) -> usize {
        let below: Vec<&Command> =
            command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        // `sealog restore` works by itself, too.
        let works = !command.is_subcommand_required_set();
        if works && !command.get_arguments().any(|argument| argument.get_long() == Some(flag)) {
            without.push(name.to_owned());
        }
        let below =
            below.iter().map(|below| runnable(below, &format!("{name} {}", below.get_name()), flag, without));
        usize::from(works) + below.sum::<usize>()
    }
}
