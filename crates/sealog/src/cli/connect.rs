//! How a command reaches the service: address, key, patience.

use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sealog_client::{Client, Retries, Settings};
use zeroize::Zeroizing;

use super::exit::{EXIT_CODES, Exit, Failure};
use super::profile;

/// Of a server that was started without settings.
const URL: &str = "http://127.0.0.1:8080";

/// The flags that all these commands have.
pub(super) fn with_flags(command: Command) -> Command {
    command
        .after_help(EXIT_CODES)
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .global(true)
                .help("Address of the service (SEALOG_URL, or the profile's; else http://127.0.0.1:8080)"),
        )
        .arg(
            Arg::new("profile")
                .long("profile")
                .value_name("NAME")
                .global(true)
                .help("A profile of ~/.config/sealog/config.toml (SEALOG_PROFILE); the key comes from SEALOG_API_KEY, the profile, or is asked for"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .global(true)
                .default_value("30")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("How long an attempt may take"),
        )
        .arg(
            Arg::new("retries")
                .long("retries")
                .value_name("N")
                .global(true)
                .default_value("5")
                .value_parser(value_parser!(u32).range(0..=100))
                .help("Further attempts when the service is away or busy"),
        )
        .arg(
            Arg::new("no-input")
                .long("no-input")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Asks for nothing, not even on a terminal"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("JSON on standard output: one object, or one for each line"),
        )
        .arg(
            Arg::new("quiet")
                .long("quiet")
                .short('q')
                .global(true)
                .action(ArgAction::SetTrue)
                .help("No progress, and nothing on standard error but errors"),
        )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Needed,
    /// Used if there is one.
    Optional,
}

pub(super) fn client(matches: &ArgMatches, key: Key) -> Result<Client, Failure> {
    let var = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let asked = matches.get_one::<String>("profile").cloned().or_else(|| var("SEALOG_PROFILE"));
    let profile = profile::read(profile::path(var).as_deref(), asked.as_deref())?;
    let url = matches.get_one::<String>("url").cloned().or_else(|| var("SEALOG_URL"));
    let url = url.or(profile.url).unwrap_or_else(|| URL.to_owned());
    let found = var("SEALOG_API_KEY").map(Zeroizing::new).or(profile.key);
    let key = match (found, key) {
        (Some(key), _) => Some(key),
        (None, Key::Optional) => None,
        (None, Key::Needed) => Some(ask(matches.get_flag("no-input"))?),
    };
    let timeout = Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
    let retries = Retries { most: *matches.get_one("retries").expect("has a default"), ..Retries::default() };
    Client::new(Settings { url, key, timeout, retries })
        .map_err(|why| Failure::usage(format!("the address of the service (--url, SEALOG_URL): {why}")))
}

/// Without showing what is typed.
fn ask(is_forbidden: bool) -> Result<Zeroizing<String>, Failure> {
    let missing = || {
        Failure::new(
            Exit::Authentication,
            "a key is needed: set SEALOG_API_KEY, or put it in a profile of ~/.config/sealog/config.toml",
        )
    };
    let stdin = std::io::stdin();
    if is_forbidden || !stdin.is_terminal() {
        return Err(missing());
    }
    let shown = tcgetattr(&stdin).map_err(|_| missing())?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).map_err(|_| missing())?;
    eprint!("API key: ");
    let _ = std::io::stderr().flush();
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &shown);
    eprintln!();
    match read {
        Ok(_) if !line.trim().is_empty() => Ok(Zeroizing::new(line.trim().to_owned())),
        _ => Err(missing()),
    }
}

/// Runs a command's requests.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::new(Exit::Failure, format!("the program cannot begin: {error}")))?;
    runtime.block_on(work)
}
