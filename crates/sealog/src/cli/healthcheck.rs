//! `sealog healthcheck`: whether a server accepts events, for containers that have no other program to ask with.

use std::net::SocketAddr;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use serde_json::{Value, json};

use super::connect;
use super::exit::Failure;
use super::output;
use sealog_client::{Client, Retries, Settings};

pub(super) fn command() -> Command {
    Command::new("healthcheck")
        .about("Says whether a server accepts events")
        .long_about(
            "Says whether a server accepts events: asks its /readyz once. It ends with 0 if it does and with 1 if not, whatever the reason, as Docker and others want it.\n\n\
             The address is --url, or SEALOG_URL, or that on which a server with the settings of this environment (SEALOG_LISTEN) listens, or http://127.0.0.1:8080.",
        )
        .arg(Arg::new("url").long("url").value_name("URL").help("Address of the server"))
        .arg(
            Arg::new("timeout")
                .long("timeout")
                .value_name("SECONDS")
                .default_value("5")
                .value_parser(value_parser!(u64).range(1..=3600))
                .help("How long to wait for the answer"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("The server's own answer on standard output"),
        )
        .arg(Arg::new("quiet").long("quiet").short('q').action(ArgAction::SetTrue).help("Says nothing"))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let given = matches.get_one::<String>("url").cloned().or_else(|| connect::var("SEALOG_URL"));
    let url = given.or_else(|| listening(&connect::var("SEALOG_LISTEN")?));
    let url = url.unwrap_or_else(|| connect::URL.to_owned());
    let timeout = std::time::Duration::from_secs(*matches.get_one("timeout").expect("has a default"));
    let retries = Retries { most: 0, ..Retries::default() };
    let client = Client::new(Settings { url: url.clone(), key: None, timeout, retries })
        .map_err(|why| Failure::usage(format!("the address of the server (--url, SEALOG_URL): {why}")))?;
    let answered = connect::block_on(async { Ok(client.probe("/readyz").await) })?;
    let (is_ready, told) = match answered {
        Err(error) => (false, json!({ "ready": false, "reason": error.to_string() })),
        Ok(answer) => {
            let body = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            let is_ready = answer.status == 200 && body["ready"] == true;
            let unknown = json!({ "ready": false, "reason": format!("{url} answers with status {}, and not as a server of Sealog", answer.status) });
            (is_ready, if body["ready"].is_boolean() { body } else { unknown })
        }
    };
    if matches.get_flag("json") {
        output::put(&format!("{told}\n"))?;
    } else if !matches.get_flag("quiet") {
        let reason = told["detail"].as_str().or(told["reason"].as_str()).unwrap_or_default();
        eprintln!(
            "sealog: {}",
            if is_ready { "ready".into() } else { format!("not ready: {}", output::plain(reason)) }
        );
    }
    Ok(if is_ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where a server that listens there can be reached from the same machine.
fn listening(listen: &str) -> Option<String> {
    let mut address: SocketAddr = listen.parse().ok()?;
    if address.ip().is_unspecified() {
        let local =
            if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() };
        address.set_ip(local);
    }
    Some(format!("http://{address}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_on_all_addresses_is_asked_on_this_machine() {
        for (listen, url) in [
            ("0.0.0.0:8080", Some("http://127.0.0.1:8080")),
            ("[::]:81", Some("http://[::1]:81")),
            ("10.0.0.1:80", Some("http://10.0.0.1:80")),
            ("here", None),
        ] {
            assert_eq!(listening(listen).as_deref(), url);
        }
    }
}
