//! `sealog-bench pages`: how long every page of the dashboard takes over a store of 1 and of 20 million events, and what people who look at them cost ingest.
//!
//! Pages are those that links lead to from `/app`, one of each kind, so that a new page is measured without being named here.

mod rows;
mod visitor;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::Outcome;
use crate::http::Programs;
use crate::http::case::{Side, load};
use crate::http::client::Client;
use crate::http::load::Pace;
use crate::http::sealog::Sealog;
use crate::http::source::{Requests, Send};
use crate::process::Process;
use crate::report::number;
use crate::setting::{Setting, SettingArgs};
use crate::stats::Percentiles;
use visitor::{FirstRun, Visitor};

#[derive(Args, Debug)]
pub struct PagesArgs {
    /// Events in the end; pages are also measured with a twentieth of them [default: 20000000; with --quick 20000]
    #[arg(long)]
    events: Option<u64>,
    #[command(flatten)]
    programs: Programs,
    #[command(flatten)]
    setting: SettingArgs,
}

/// How many look at pages while events are sent, and how often each asks for one.
const PEOPLE: usize = 5;
const PAGE_EVERY: Duration = Duration::from_secs(1);
/// Of one page in one repeat, at most: the slowest pages should not take all the time.
const REQUESTS_MAX: usize = 400;

/// One page at one size.
#[derive(Debug)]
struct Page {
    path: String,
    /// Of every repeat, and what others took of the machine meanwhile.
    times: Vec<(Percentiles, f64)>,
    bytes: usize,
}

#[derive(Debug)]
struct Size {
    events: u64,
    pages: Vec<Page>,
    resident: u64,
}

/// Ingest without and with people who look at pages.
#[derive(Debug)]
struct Beside {
    send: Send,
    pairs: Vec<(Side, Side)>,
    others: f64,
    /// Pages that were looked at meanwhile.
    looked_at: u64,
}

pub fn run(args: &PagesArgs) -> Outcome<()> {
    let quick = args.setting.quick;
    let events = args.events.unwrap_or(if quick { 20_000 } else { 20_000_000 });
    if events < 2000 {
        return Err("--events must be at least 2000".into());
    }
    let setting = Setting::new(&args.setting, "pages")?;
    let mut sealog = Sealog::create(&setting, &args.programs.sealog(), "one", 1)?;
    let (mut visitor, account) = Visitor::claim(sealog.addresses()[0], FirstRun::read(sealog.dir())?)?;
    // The chain that this person may see takes the place of the one that was made.
    sealog.accounts[0] = account;
    let (mut sizes, mut filled) = (Vec::new(), 0);
    for size in [events / 20, events] {
        sealog.while_stopped(Process::stop, |sealog| {
            sealog.fill_stopped(&setting, filled..size, events).map(|(store, _)| store.close())
        })?;
        filled = size;
        visitor.sign_in(sealog.addresses()[0])?;
        sizes.push(measure(&setting, &sealog, &visitor, size)?);
    }
    let beside = [Send::Single, Send::Batch]
        .into_iter()
        .map(|send| browse_beside_ingest(&setting, &mut sealog, &visitor, send))
        .collect::<Outcome<Vec<_>>>()?;
    sealog.check(0)?;
    sealog.stop()?;
    let settings = format!(
        "one chain that grows to {} events; pages one after the other on one connection; {PEOPLE} people who ask for a page each second beside ingest on 64 connections",
        number(events as f64)
    );
    let sections = rows::sections(&sizes, &beside);
    setting.report("Sealog: pages", &settings, &json!({ "events": events }), sections)
}

fn measure(setting: &Setting, sealog: &Sealog, visitor: &Visitor, events: u64) -> Outcome<Size> {
    let address = sealog.addresses()[0];
    let paths = visitor.pages(address)?;
    let mut pages: Vec<Page> =
        paths.into_iter().map(|path| Page { path, times: Vec::new(), bytes: 0 }).collect();
    for repeat in 1..=setting.repeats {
        for page in &mut pages {
            let what = format!("repeat {repeat} of {}: {events} events, {}", setting.repeats, page.path);
            let slice = setting.quietly(&what, || ask(address, visitor, &page.path, setting.slice / 6))?;
            let (times, bytes) = slice.value;
            page.bytes = bytes;
            page.times.push((times, slice.others));
        }
    }
    Ok(Size { events, pages, resident: sealog.process().resident_bytes() })
}

/// Asks for a page again and again, and says how long each took and how long the answer is.
fn ask(address: SocketAddr, visitor: &Visitor, path: &str, limit: Duration) -> Outcome<(Percentiles, usize)> {
    let mut client = Client::connect(address, "")?;
    let request = visitor.request(path);
    let (start, mut times, mut bytes) = (Instant::now(), Vec::new(), 0);
    while times.is_empty() || (start.elapsed() < limit && times.len() < REQUESTS_MAX) {
        let sent = Instant::now();
        let answer = client.raw(request.as_bytes())?;
        times.push(u64::try_from(sent.elapsed().as_nanos())?);
        if !answer.starts_with("HTTP/1.1 200 ") {
            return Err(format!("{path}: {}", answer.lines().next().unwrap_or_default()).into());
        }
        bytes = answer.len();
    }
    Ok((Percentiles::of_ns(&mut times).ok_or("no answer")?, bytes))
}

fn browse_beside_ingest(
    setting: &Setting,
    sealog: &mut Sealog,
    visitor: &Visitor,
    send: Send,
) -> Outcome<Beside> {
    let address = sealog.addresses()[0];
    let pages = visitor.pages(address)?;
    let (mut pairs, mut others, looked_at) = (Vec::new(), 0f64, AtomicU64::new(0));
    for repeat in 1..=setting.repeats {
        let what = format!("repeat {repeat} of {}: {} beside people", setting.repeats, send.name());
        let slice = setting.quietly(&what, || {
            let alone = ingest(setting, sealog, &send)?;
            let over = AtomicBool::new(false);
            let beside = std::thread::scope(|scope| {
                let people: Vec<_> = (0..PEOPLE)
                    .map(|person| {
                        let (pages, over, looked_at) = (&pages, &over, &looked_at);
                        scope.spawn(move || {
                            browse(address, visitor, pages, person, over, looked_at)
                                .map_err(|error| error.to_string())
                        })
                    })
                    .collect();
                let beside = ingest(setting, sealog, &send);
                over.store(true, Ordering::Relaxed);
                for person in people {
                    person.join().map_err(|_| "a person has panicked")??;
                }
                beside
            })?;
            Ok((alone, beside))
        })?;
        others = others.max(slice.others);
        pairs.push(slice.value);
    }
    Ok(Beside { send, pairs, others, looked_at: looked_at.into_inner() })
}

/// Into the last chain, which belongs to another tenant.
fn ingest(setting: &Setting, sealog: &mut Sealog, send: &Send) -> Outcome<Side> {
    let chain = sealog.accounts.len() - 1;
    let mut requests = Requests::new(sealog, send, chain, 1, false)?;
    let counters = || sealog.counters();
    let (loaded, cpu, bytes) =
        load(sealog.addresses(), 64, Pace::Closed, setting.slice, &mut requests, &counters, None, &|_| {})?;
    sealog.acknowledge(&loaded);
    Side::of_load(&loaded, cpu, bytes)
}

/// A page each second, another one each time.
fn browse(
    address: SocketAddr,
    visitor: &Visitor,
    pages: &[String],
    person: usize,
    over: &AtomicBool,
    looked_at: &AtomicU64,
) -> Outcome<()> {
    let mut client = Client::connect(address, "")?;
    for page in pages.iter().cycle().skip(person * 3) {
        let due = Instant::now() + PAGE_EVERY;
        client.raw(visitor.request(page).as_bytes())?;
        looked_at.fetch_add(1, Ordering::Relaxed);
        while Instant::now() < due {
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}
