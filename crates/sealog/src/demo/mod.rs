//! `sealog demo`: an organisation with thirty days of events, to look around in.

mod clock;
mod dice;
mod forge;
mod make;
mod people;
mod requests;
mod story;
mod times;
mod unsynced;

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_cli::exit;
use sealog_docs::Program;
use sealog_engine::Opened;
use sealog_service::Secret;
use sealog_store::world::{SystemWorld, World};
use serde_json::json;

use crate::config::Settings;
use crate::demo_mark::{self, Found};
use crate::first_run::Failure;
use crate::{config, logging, serve};

use people::SignIn;

const EVENTS_MIN: i64 = 1000;
const EVENTS_MAX: i64 = 5_000_000;

pub(crate) fn command() -> Command {
    Command::new("demo")
        .about("Run a demo server with thirty days of example events")
        .long_about(
            "Run a demo server with thirty days of example events.\n\n\
             The first start creates a data directory with an organisation, two projects, a person for each \
             role, and events for several frameworks. One stored event of one chain was changed afterwards, \
             as an attacker with access to the disk could do: verification finds it. All data is \
             invented.\n\n\
             Every start sets new passwords and prints them. The server always listens on loopback, because \
             the passwords are on the screen.\n\n\
             The demo ignores the environment and sealog.toml. It refuses a directory of another kind, and \
             sealog serve refuses a demo directory. To start over, remove the directory.\n\n\
             Exit codes: those of sealog serve.",
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .value_name("ADDRESS")
                .default_value("127.0.0.1:8080")
                .help("Listen on this loopback address and port; port 0 picks a free one"),
        )
        .arg(
            Arg::new("data_dir")
                .long("data-dir")
                .value_name("DIR")
                .default_value("sealog-demo")
                .help("Store the demo in this directory; created if missing"),
        )
        .arg(
            Arg::new("events")
                .long("events")
                .value_name("N")
                .default_value("50000")
                .value_parser(value_parser!(u32).range(EVENTS_MIN..=EVENTS_MAX))
                .help("Number of events in a new demo"),
        )
        .arg(
            Arg::new("log_level")
                .long("log-level")
                .value_name("LEVEL")
                .default_value("info")
                .help("Log at this level: error, warn, info or debug"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object instead of the table"),
        )
}

pub(crate) fn run(matches: &ArgMatches, program: fn() -> Program) -> Result<ExitCode, exit::Failure> {
    let text = |name: &str| matches.get_one::<String>(name).expect("it has a default").as_str();
    let given = [
        ("listen", text("listen")),
        ("data_dir", text("data_dir")),
        ("log_level", text("log_level")),
        // There is nothing to lose.
        ("allow_unsafe_storage", "true"),
    ];
    let mut settings = config::of_flags(&given)?;
    settings.server.program = Arc::new(LazyLock::new(program));
    logging::to_stderr(settings.log_level, settings.log_format);
    let asked = settings.listen;
    settings.listen = on_loopback(asked);
    if settings.listen != asked {
        tracing::warn!(%asked, listen = %settings.listen, "the demo listens on loopback only");
    }
    let found = demo_mark::look(&settings.data_dir)?;
    if found != Found::Ready {
        make(&settings.data_dir, *matches.get_one::<u32>("events").expect("it has a default"))?;
    }
    let as_json = matches.get_flag("json");
    serve::serve(settings, &async move |store: &Opened, world: &Arc<dyn World>, settings: &Settings| {
        let app_url = &settings.service.app_url;
        let people = people::renew(store, world, app_url).await.map_err(Failure::Other)?;
        let shown = if as_json { as_object(&people, app_url) } else { as_table(&people, settings) };
        println!("{}", shown.0);
        Ok(())
    })
}

/// The port that was asked for, on this machine alone.
fn on_loopback(asked: SocketAddr) -> SocketAddr {
    let mut listen = asked;
    if !asked.ip().is_loopback() {
        listen.set_ip(if asked.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    listen
}

fn make(data_dir: &Path, events: u32) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", data_dir.display());
    let making = demo_mark::begin(data_dir)?;
    tracing::info!(data_dir = %data_dir.display(), events, "creating the demo");
    let mut shown = None;
    let made = make::make(data_dir, events, SystemWorld.now_ms(), &mut |done| {
        let percent = u64::from(done) * 100 / u64::from(events.max(1));
        if stderr().is_terminal() && shown != Some(percent) {
            shown = Some(percent);
            let _ = write!(stderr(), "\rCreating {} days of events: {percent} %", make::DAYS);
        }
    })?;
    if shown.is_some() {
        let _ = writeln!(stderr(), "\rCreating {} days of events: done ", make::DAYS);
    }
    // A live chain: the verification of the next night finds it, and so does whoever looks first.
    forge::change_an_amount(&data_dir.join("live"), made.billing)?;
    unsynced::sync_all(data_dir).map_err(failed)?;
    making.finish().map_err(failed)
}

fn as_table(people: &[SignIn], settings: &Settings) -> Secret {
    let mut text = Secret(String::with_capacity(8 << 10));
    let mut line = |address: &str, role: &str, password: &str, link: &str| {
        writeln!(text.0, "  {address:<26}  {role:<15}  {password:<19}  {link}")
            .expect("a String takes every text");
    };
    line("address", "role", "password", "sign in");
    for SignIn { email, role, password, link } in people {
        line(email, role, &password.0, link);
    }
    let (app_url, data_dir) = (&settings.service.app_url, settings.data_dir.display());
    write!(
        text.0,
        "
The demo is at {app_url}, for this machine only. Every start sets new passwords.
One of its chains was tampered with: verify them to find it.
Its data is in {data_dir}; remove the directory to start over. Ctrl-C stops the server.
"
    )
    .expect("a String takes every text");
    text
}

fn as_object(people: &[SignIn], app_url: &str) -> Secret {
    let people: Vec<_> = people
        .iter()
        .map(|SignIn { email, role, password, link }| {
            json!({ "address": email, "role": role, "password": password.0, "link": link })
        })
        .collect();
    Secret(json!({ "app_url": app_url, "people": people }).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_address_is_asked_for_the_demo_listens_on_loopback() {
        for (asked, expected) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("192.168.1.2:0", "127.0.0.1:0"),
            ("[::]:9000", "[::1]:9000"),
            ("[2001:db8::1]:9000", "[::1]:9000"),
            ("127.0.0.3:80", "127.0.0.3:80"),
            ("[::1]:1", "[::1]:1"),
        ] {
            assert_eq!(on_loopback(asked.parse().unwrap()).to_string(), expected);
        }
    }
}
