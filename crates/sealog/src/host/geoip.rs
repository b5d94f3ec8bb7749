//! `sealog geoip`: what the database knows of an address.

use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::output;
use sealog_core::time::iso_ms;
use serde_json::json;

use crate::config;

pub(super) fn command() -> Command {
    let test = Command::new("test")
        .about("Look up an address in the database of the setting geoip_db")
        .long_about(
            "Look up an address in the database of the setting geoip_db, with the settings of a server started here and now. It exits with 4 if the database has no entry for the address.",
        )
        .arg(Arg::new("address").value_name("IP").required(true).value_parser(value_parser!(IpAddr)).help("Address to look up"))
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object"));
    Command::new("geoip")
        .about("Test the GeoIP database")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(config::with_flags(test))
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (_, matches) = matches.subcommand().expect("clap asks for one");
    let address = *matches.get_one::<IpAddr>("address").expect("clap asks for it");
    let settings = config::load(matches, std::env::vars())?;
    let Some(geo) = &settings.service.geo else {
        return Err(Failure::usage(
            "no GeoIP database is configured: set geoip_db to an MMDB file (docs/settings.md)",
        ));
    };
    let (place, state) = (geo.find(address), geo.state());
    let built = iso_ms(state.built_at_s.saturating_mul(1000));
    let is_known = place.country.is_some() || place.city.is_some();
    if matches.get_flag("json") {
        let told = json!({
            "ip": address.to_string(), "country": place.country.as_deref(), "city": place.city.as_deref(),
            "database": { "type": state.kind, "built_at": built },
        });
        output::put(&format!("{told}\n"))?;
    } else {
        let or_none = |text: Option<&str>| output::plain(text.unwrap_or("-"));
        output::put(&format!(
            "{address}\t{}\t{}\n",
            or_none(place.country.as_deref()),
            or_none(place.city.as_deref())
        ))?;
        eprintln!("sealog: {}, built {built}", output::plain(&state.kind));
    }
    Ok(if is_known { ExitCode::SUCCESS } else { Exit::NotFound.into() })
}
