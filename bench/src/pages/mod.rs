//! `sealog-bench pages`: how long every page of the dashboard takes over a store of 1 and of 20 million
//! events, and what people who look at them, exports and searches of cases cost ingest.
//!
//! Pages are those that links lead to from `/app`, one of each kind, so that a new page is measured without
//! being named here.

mod rows;
mod visitor;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::beside::beside_ingest;
use crate::http::Programs;
use crate::http::client::Client;
use crate::http::sealog::Sealog;
use crate::http::source::Send;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::report::number;
use crate::setting::{Setting, SettingArgs};
use crate::stats::Percentiles;
use rows::{Downloads, Page, Size};
use visitor::{FirstRun, Visitor};

#[derive(Args, Debug)]
pub struct PagesArgs {
    /// Events in the end; pages are also measured with a twentieth of them [default: 20000000; with --quick
    /// 20000]
    #[arg(long)]
    events: Option<u64>,
    /// Only what people, exports and searches cost ingest, and no page by itself
    #[arg(long)]
    only_beside: bool,
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

pub fn run(args: &PagesArgs) -> Outcome<()> {
    let quick = args.setting.quick;
    let events = args.events.unwrap_or(if quick { 20_000 } else { 20_000_000 });
    if events < 2000 {
        return Err("--events must be at least 2000".into());
    }
    let setting = Setting::new(&args.setting, "pages")?;
    let mut sealog = Sealog::create(&setting, &args.programs.sealog(), "one", 1, None)?;
    let (mut visitor, account) = Visitor::claim(sealog.addresses()[0], FirstRun::read(sealog.dir())?)?;
    // The chain that this person may see takes the place of the one that was made.
    sealog.accounts[0] = account;
    let (mut sizes, mut filled, mut exported) = (Vec::new(), 0, None);
    for size in [events / 20, events] {
        sealog.while_stopped(Process::stop, |sealog| {
            sealog.fill_stopped(&setting, filled..size, events).map(|(store, _)| store.close())
        })?;
        filled = size;
        visitor.sign_in(sealog.addresses()[0])?;
        if !args.only_beside {
            sizes.push(measure(&setting, &sealog, &visitor, size)?);
        }
        if exported.is_none() {
            let path = visitor.export(sealog.addresses()[0], sealog.accounts[0].chain)?;
            exported = Some((download(&setting, &sealog, &visitor.request(&path))?, path));
        }
    }
    let Some((downloads, path)) = exported else { return Err("nothing was exported".into()) };
    // Whose actor is in no event, so that every event is looked at and the search ends in nothing that has to
    // be kept.
    let case = visitor.case(sealog.addresses()[0], sealog.accounts[0].chain, "usr_nobody")?;
    let mut beside = Vec::new();
    // Events go into the last chain, which belongs to another tenant.
    let chain = sealog.accounts.len() - 1;
    for send in [Send::Single, Send::Batch] {
        let address = sealog.addresses()[0];
        let pages = visitor.pages(address)?;
        let people = |number, over: &AtomicBool, done: &AtomicU64| {
            browse(address, &visitor, &pages, number, over, done)
        };
        beside.push(beside_ingest(&setting, &mut sealog, (chain, send.clone()), "people", PEOPLE, &people)?);
        let download = visitor.request(&path);
        let one = |_, over: &AtomicBool, done: &AtomicU64| keep_downloading(address, &download, over, done);
        beside.push(beside_ingest(&setting, &mut sealog, (chain, send.clone()), "an export", 1, &one)?);
        let search =
            |_, over: &AtomicBool, done: &AtomicU64| keep_searching(address, &visitor, &case, over, done);
        beside.push(beside_ingest(&setting, &mut sealog, (chain, send), "a search of a case", 1, &search)?);
    }
    sealog.check(0)?;
    sealog.stop()?;
    let settings = format!(
        "one chain that grows to {} events; pages one after the other on one connection; {PEOPLE} people who ask for a page each second beside ingest on 64 connections",
        number(events as f64)
    );
    let sections = rows::sections(&sizes, &downloads, &beside);
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

/// The smaller store, whole.
fn download(setting: &Setting, sealog: &Sealog, request: &str) -> Outcome<Downloads> {
    let mut downloads = Downloads { mb_per_s: Vec::new(), bytes: 0, others: 0.0 };
    for repeat in 1..=setting.repeats {
        let what = format!("repeat {repeat} of {}: an export", setting.repeats);
        let slice = setting.quietly(&what, || {
            let start = Instant::now();
            let bytes = Client::connect(sealog.addresses()[0], "")?.drain(request.as_bytes(), &|| false)?;
            Ok((bytes.unwrap_or(0), start.elapsed()))
        })?;
        let (bytes, elapsed) = slice.value;
        downloads.bytes = bytes;
        downloads.mb_per_s.push(bytes as f64 / 1e6 / elapsed.as_secs_f64());
        downloads.others = downloads.others.max(slice.others);
    }
    Ok(downloads)
}

fn keep_downloading(address: SocketAddr, request: &str, over: &AtomicBool, done: &AtomicU64) -> Outcome<()> {
    let is_over = || over.load(Ordering::Relaxed);
    while !is_over() {
        // A connection of its own each time, since one that was left in the middle is of no more use.
        if Client::connect(address, "")?.drain(request.as_bytes(), &is_over)?.is_some() {
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// A search over the whole store goes on as long as events are sent, and is stopped in between.
fn keep_searching(
    address: SocketAddr,
    visitor: &Visitor,
    case: &str,
    over: &AtomicBool,
    done: &AtomicU64,
) -> Outcome<()> {
    if !visitor.search(address, case) {
        return Err("the search of a case did not begin".into());
    }
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Over a small store it has ended by then.
    if visitor.stop_search(address, case) {
        done.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// A page each second, another one each time.
fn browse(
    address: SocketAddr,
    visitor: &Visitor,
    pages: &[String],
    person: usize,
    over: &AtomicBool,
    done: &AtomicU64,
) -> Outcome<()> {
    let mut client = Client::connect(address, "")?;
    for page in pages.iter().cycle().skip(person * 3) {
        let due = Instant::now() + PAGE_EVERY;
        client.raw(visitor.request(page).as_bytes())?;
        done.fetch_add(1, Ordering::Relaxed);
        while Instant::now() < due {
            if over.load(Ordering::Relaxed) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    Ok(())
}
