//! `sealog-bench store`: the embedded store, without a server around it.

pub mod append;
mod filled;
pub mod reads;
pub mod reopen;
pub mod verify;

use std::path::Path;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use sealog_store::embedded::{EmbeddedStore, Finding, Options};
use serde_json::json;

use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::report::number;
use crate::setting::{Setting, SettingArgs};

#[derive(Args, Debug)]
pub struct StoreArgs {
    /// Events in the store that is read and verified [default: 1000000; with --quick 20000]
    #[arg(long)]
    events: Option<u64>,
    /// Only this part of it
    #[arg(long)]
    part: Option<Part>,
    #[command(flatten)]
    setting: SettingArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Append,
    Verify,
    Reads,
    Reopen,
}

impl Setting {
    /// The options of production, with a counter below.
    pub fn options(&self, meter: &Meter) -> Options {
        Options { disk: Arc::new(meter.clone()), allow_unsafe_storage: self.quick, ..Options::default() }
    }

    pub fn open(&self, dir: &Path, options: &Options) -> Outcome<EmbeddedStore> {
        let store = EmbeddedStore::open(dir, options)?;
        // A store is filled with the events of years in minutes, so its last ones are ahead of the clock.
        let unexpected = |(_, finding): &(_, Finding)| !matches!(finding, Finding::ClockBehind { .. });
        match store.findings().into_iter().find(unexpected) {
            None => Ok(store),
            Some((_, finding)) => Err(format!("the store opens with a finding: {finding}").into()),
        }
    }
}

pub fn run(args: &StoreArgs) -> Outcome<()> {
    let events = args.events.unwrap_or(if args.setting.quick { 20_000 } else { 1_000_000 });
    if events == 0 {
        return Err("--events must be above 0".into());
    }
    let setting = Setting::new(&args.setting, "store")?;
    let wanted = |part| args.part.is_none_or(|only| only == part);
    let mut sections = if wanted(Part::Append) { append::measure(&setting)? } else { Vec::new() };
    if args.part != Some(Part::Append) {
        let filled = filled::fill(&setting, events)?;
        if wanted(Part::Verify) {
            sections.push(verify::measure(&setting, &filled)?);
        }
        if wanted(Part::Reads) {
            sections.push(reads::measure(&setting, &filled)?);
        }
        if wanted(Part::Reopen) {
            sections.push(reopen::measure(&setting, filled)?);
        }
    }
    let settings =
        format!("{} events in the store that is read; the store's default options", number(events as f64));
    setting.report("Sealog: the embedded store", &settings, &json!({ "events": events }), sections)
}
