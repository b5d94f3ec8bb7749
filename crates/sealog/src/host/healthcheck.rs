//! `sealog healthcheck`: whether a server accepts events, for containers that have no other program to ask
//! with.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_client::http::{Client, Retries, Settings};
use serde_json::{Value, json};

use sealog_cli::exit::Failure;
use sealog_cli::{connect, output};

use super::own_server;
use crate::config;

pub(super) fn command() -> Command {
    let command = Command::new("healthcheck")
        .about("Check whether a server accepts events")
        .long_about(
            "Check whether a server accepts events: request its /readyz once. The command exits with 0 if it \
             does and with 1 if not, for any reason, as Docker and others expect.\n\n\
             The address is --url, SEALOG_URL, or the listen address of the settings, with TLS if they have \
             a certificate. The command reads the settings like the server (flags, environment, sealog.toml) \
             but opens none of the files in them.\n\n\
             At the listen address the server is on this machine, and its certificate need not match the \
             address: the command does not check its issuer and expiry (`sealog check` does), and sends no \
             key. With --url or SEALOG_URL the certificate must be valid for that name, from a CA the system \
             trusts (SSL_CERT_FILE names others).",
        )
        .arg(Arg::new("url").long("url").value_name("URL").help("URL of the server"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .default_value("5")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("Timeout for the response"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the server's response"))
        .arg(Arg::new("quiet").long("quiet").short('q').action(ArgAction::SetTrue).help("Print nothing"));
    config::with_flags(command)
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let timeout = Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
    let given = matches.get_one::<String>("url").cloned().or_else(|| connect::var("SEALOG_URL"));
    let client = match given {
        Some(url) => {
            let retries = Retries { most: 0, ..Retries::default() };
            let client = Client::new(Settings { url, key: None, timeout, retries });
            Ok(client.map_err(|why| {
                Failure::usage(format!("the address of the server (--url, SEALOG_URL): {why}"))
            })?)
        }
        // Those who ask again and again know 0 and 1 alone, also for settings that are wrong.
        None => config::listeners(matches, std::env::vars())
            .map_err(|error| error.to_string())
            .and_then(|at| own_server::client(at.main, at.is_tls, timeout)),
    };
    let told = match client {
        Ok(client) => asked(&client)?,
        Err(why) => unready(&why),
    };
    let is_ready = told["ready"] == true;
    if matches.get_flag("json") {
        output::put(&format!("{told}\n"))?;
    } else if !matches.get_flag("quiet") {
        let reason = told["detail"].as_str().or(told["reason"].as_str()).unwrap_or_default();
        eprintln!(
            "sealog: {}",
            if is_ready { "ready".into() } else { format!("not ready: {}", on_one_line(reason)) }
        );
    }
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the server says of itself, or why it says nothing.
fn asked(client: &Client) -> Result<Value, Failure> {
    let answer = match connect::block_on(async { Ok(client.probe("/readyz").await) })? {
        Ok(answer) => answer,
        Err(error) => return Ok(unready(&error.to_string())),
    };
    let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    let is_its_own = body["ready"] == false || (body["ready"] == true && answer.status == 200);
    Ok(if is_its_own {
        body
    } else {
        unready(&format!("{} returned status {}, and is not a Sealog server", client.url(), answer.status))
    })
}

/// A reason can have several lines, and what reads this takes one.
fn on_one_line(reason: &str) -> String {
    let lines: Vec<String> =
        reason.lines().map(str::trim).filter(|line| !line.is_empty()).map(output::plain).collect();
    lines.join("; ")
}

fn unready(reason: &str) -> Value {
    json!({ "ready": false, "reason": reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_several_lines_is_one_line_without_escapes() {
        assert_eq!(on_one_line("the store\n\n  does not answer\n"), "the store; does not answer");
        assert_eq!(on_one_line("a\u{1b}[31m"), "a\\u{1b}[31m");
    }
}
