//! `sealog login`: keeps an address and a key in a profile.

use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_client::http::is_same_origin;
use serde_json::json;
use zeroize::Zeroizing;

use super::connect;
use super::exit::{Exit, Failure};
use super::{ask, output, profile};

pub(super) fn command() -> Command {
    connect::with_flags(
        Command::new("login")
            .about("Store a URL and a key in a profile for all other commands")
            .long_about(
                "Store a URL and a key in a profile of ~/.config/sealog/config.toml, which only you can \
                 read, for all other commands.\n\n\
                 The command prompts for the key without showing it, or reads it from standard input with \
                 --stdin. It is never an argument, because other users can see arguments. The command tests \
                 the key once before it stores it.",
            )
            .arg(
                Arg::new("operator")
                    .long("operator")
                    .action(ArgAction::SetTrue)
                    .help("Store the operator token for `sealog admin`, beside the key"),
            )
            .arg(
                Arg::new("stdin")
                    .long("stdin")
                    .action(ArgAction::SetTrue)
                    .help("Read the key from standard input, one line"),
            )
            .arg(
                Arg::new("no_check")
                    .long("no-check")
                    .action(ArgAction::SetTrue)
                    .help("Store the key without testing it"),
            ),
    )
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let is_operator = matches.get_flag("operator");
    let Some(path) = profile::path(connect::var) else {
        return Err(Failure::usage(
            "profiles have no place because neither HOME nor XDG_CONFIG_HOME is set: set one of them",
        ));
    };
    let name = matches.get_one::<String>("profile").cloned().or_else(|| connect::var("SEALOG_PROFILE"));
    let name = name.unwrap_or_else(|| profile::DEFAULT.to_owned());
    let text = read(&path)?;
    // One that is there keeps what is not given now.
    let known = text.is_some() && profile::names(&path)?.contains(&name);
    let mut kept = profile::read(Some(&path), known.then_some(name.as_str()))?;
    if !known {
        kept = profile::Profile::default();
    }
    let url = matches.get_one::<String>("url").cloned().or_else(|| connect::var("SEALOG_URL"));
    let url = url.or_else(|| kept.url.clone()).unwrap_or_else(|| connect::URL.to_owned());
    let beside = if is_operator { &kept.key } else { &kept.operator_token };
    if let (Some(home), Some(_)) = (kept.url.as_ref().filter(|home| !is_same_origin(home, &url)), beside) {
        let what = if is_operator { "a key" } else { "an operator token" };
        return Err(Failure::usage(format!(
            "the profile {name:?} has {what} for {home}, which must not be sent to {url}: give another profile with --profile"
        )));
    }
    let what = if is_operator { "Operator token" } else { "API key" };
    let secret = match matches.get_flag("stdin") {
        true => ask::piped(),
        false if matches.get_flag("no-input") => None,
        false => ask::hidden(&format!("{what} for {url}: ")),
    };
    let secret = secret.ok_or_else(|| {
        Failure::new(
            Exit::Authentication,
            "the key is missing: run this on a terminal, or give --stdin and pipe one line in",
        )
    })?;
    if !matches.get_flag("no_check") {
        let client = connect::with_key(matches, url.clone(), Some(Zeroizing::clone(&secret)))?;
        let path = if is_operator { "/operator/v1/tenants" } else { "/v1/events" };
        connect::block_on(async { Ok(client.get(path, &[("limit", "1")]).await?) })?;
    }
    kept.url = Some(url.clone());
    *(if is_operator { &mut kept.operator_token } else { &mut kept.key }) = Some(secret);
    let text = profile::with_profile(text.as_deref().map_or("", String::as_str), &name, &kept);
    let text = text.ok_or_else(|| {
        Failure::usage(format!(
            "{} has the profile {name:?} in a form that this command cannot change: write it as a table under [profiles.{name}], or remove it, and run this again",
            path.display()
        ))
    })?;
    profile::write(&path, &text)
        .map_err(|error| Failure::usage(format!("cannot write {}: {error}", path.display())))?;
    if matches.get_flag("json") {
        let told = json!({ "profile": name, "file": path, "url": url, "operator": is_operator });
        output::put(&format!("{told}\n"))?;
    } else if !matches.get_flag("quiet") {
        let asks = if name == profile::DEFAULT { String::new() } else { format!(" (--profile {name})") };
        eprintln!("sealog: saved profile {name:?} in {} for {url}{asks}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

fn read(path: &Path) -> Result<Option<Zeroizing<String>>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
}
