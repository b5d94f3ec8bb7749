//! How a command reaches the service: address, key, patience.

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_client::http::{Client, Retries, Settings, is_same_origin};
use zeroize::Zeroizing;

use super::exit::{EXIT_CODES, Exit, Failure};
use super::output::quiet_flag;
use super::{ask, profile};

/// Of a server that was started without settings.
pub const URL: &str = "http://127.0.0.1:8080";

/// The flags that all these commands have.
pub fn with_flags(command: Command) -> Command {
    command
        .after_help(EXIT_CODES)
        .arg(
            Arg::new("url")
                .long("url")
                .value_name("URL")
                .global(true)
                .help("URL of the service [default: SEALOG_URL, the profile, or http://127.0.0.1:8080]"),
        )
        .arg(
            Arg::new("profile")
                .long("profile")
                .value_name("NAME")
                .global(true)
                .help("Use this profile of ~/.config/sealog/config.toml (SEALOG_PROFILE) unless SEALOG_API_KEY is set"),
        )
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .global(true)
                .default_value("30")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("Timeout of one attempt"),
        )
        .arg(
            Arg::new("retries")
                .long("retries")
                .value_name("N")
                .global(true)
                .default_value("5")
                .value_parser(value_parser!(u32).range(0..=100))
                .help("Retries while the service is unavailable; waiting for a rate limit does not count, unless this is 0"),
        )
        .arg(
            Arg::new("no-input")
                .long("no-input")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Never prompt"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Print JSON: one object, or one per line"),
        )
        .arg(quiet_flag().global(true))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Needed,
    /// Used if there is one.
    Optional,
    /// That of whoever runs the instance.
    Operator,
    /// For what anybody may ask.
    Without,
}

/// Set, and not to nothing.
pub fn var(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

pub fn client(matches: &ArgMatches, key: Key) -> Result<Client, Failure> {
    let asked = matches.get_one::<String>("profile").cloned().or_else(|| var("SEALOG_PROFILE"));
    let profile = profile::read(profile::path(var).as_deref(), asked.as_deref())?;
    let url = matches.get_one::<String>("url").cloned().or_else(|| var("SEALOG_URL"));
    let url = url.or_else(|| profile.url.clone()).unwrap_or_else(|| URL.to_owned());
    let found = |variable: &str, kept: &Option<Zeroizing<String>>| match (var(variable), &profile.url) {
        (Some(given), _) => Ok(Some(Zeroizing::new(given))),
        // It goes to the service that it was kept for and to no other, whatever the environment of this
        // command names.
        (None, Some(home)) if kept.is_some() && !is_same_origin(home, &url) => Err(Failure::usage(format!(
            "the key of profile {:?} is for {home} and is not sent to {url} (--url, SEALOG_URL): store a key for that address with `sealog login --url {url} --profile NAME`, or set {variable}",
            asked.as_deref().unwrap_or(profile::DEFAULT)
        ))),
        (None, _) => Ok(kept.clone()),
    };
    let of_api = || found("SEALOG_API_KEY", &profile.key);
    let of_operator = || found("SEALOG_OPERATOR_TOKEN", &profile.operator_token);
    let asked_for = |found: Option<_>, prompt: &str, missing: &str| {
        let is_forbidden = matches.get_flag("no-input");
        let asked = || if is_forbidden { None } else { ask::hidden(prompt) };
        found.or_else(asked).ok_or_else(|| Failure::new(Exit::Authentication, missing)).map(Some)
    };
    let key = match key {
        Key::Without => None,
        Key::Optional => of_api()?,
        Key::Needed => asked_for(
            of_api()?,
            "API key: ",
            "the API key is missing: set SEALOG_API_KEY, or store a key with `sealog login`",
        )?,
        Key::Operator => asked_for(
            of_operator()?,
            "Operator token: ",
            "the operator token is missing: set SEALOG_OPERATOR_TOKEN, or store it with `sealog login --operator`",
        )?,
    };
    with_key(matches, url, key)
}

/// A client of this address and key, with the patience that the flags ask for.
pub fn with_key(
    matches: &ArgMatches,
    url: String,
    key: Option<Zeroizing<String>>,
) -> Result<Client, Failure> {
    let timeout = Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
    let retries = Retries { most: *matches.get_one("retries").expect("has a default"), ..Retries::default() };
    Client::new(Settings { url, key, timeout, retries })
        .map_err(|why| Failure::usage(format!("the address of the service (--url, SEALOG_URL): {why}")))
}

/// Runs a command's requests.
pub fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::new(Exit::Failure, format!("cannot start: {error}")))?;
    runtime.block_on(work)
}
