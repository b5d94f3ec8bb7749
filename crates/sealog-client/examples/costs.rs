//! What `enqueue` costs, as ratios in one run: to `serde_json::to_vec` of the same event, in memory and with
//! a spool. With `SEALOG_BIN`, also the rate: a real server gets the same events, first as batches that are
//! sent one after the other, then by `enqueue`; the two take turns.
//!
//! While `enqueue` is timed the sender waits for an answer, so its work is not counted as the caller's. It
//! fails if a ratio is over its bound: 3, 10 with a spool, half of the rate.

mod common;

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use common::{Any, live_key, serve};
use sealog_client::http::{Client as Plain, Retries, Settings};
use sealog_client::{Client, Event, Kind, OnFull, Options};
use tokio::net::TcpListener;

/// Taken in turns, so that a busy moment of the machine slows all of them.
const ROUNDS: usize = 5;

fn event() -> Event {
    Event::new("document.updated")
        .actor_id("u-17")
        .resource("document/42")
        .session_id("s-9f2c81")
        .with("title", "Q3 report")
        .with("version", 12)
        .with("changed", ["title", "body"])
        .with("ip_address", "203.0.113.9")
        .with("size", 18_231.5)
}

fn median(list: &mut [f64]) -> f64 {
    list.sort_by(f64::total_cmp);
    list[list.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Any<()> {
    let count = std::env::args().nth(1).map_or(Ok(20_000), |count| count.parse())?;
    let mut is_good = costs(count).await?;
    is_good &= memory().await?;
    if std::env::var_os("SEALOG_BIN").is_some() {
        is_good &= rate(count).await?;
    }
    if is_good { Ok(()) } else { Err("a figure is over its bound".into()) }
}

async fn costs(count: usize) -> Any<bool> {
    let folder = tempfile::tempdir()?;
    let names = ["serde_json::to_vec", "enqueue", "enqueue with a spool", "enqueue with a synced spool"];
    let mut each = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        let few = (count / 200).max(10);
        let spool = |name: &str| Some(folder.path().join(name));
        each[0].push(serialise(count)?);
        each[1].push(enqueue(count, Options::default()).await?);
        each[2].push(enqueue(count, Options { spool_dir: spool("a"), ..Options::default() }).await?);
        let synced = Options { spool_dir: spool("b"), spool_sync: true, ..Options::default() };
        each[3].push(enqueue(few, synced).await?);
    }
    let medians = each.map(|mut list| median(&mut list));
    let bounds = [None, Some(3.0), Some(10.0), None];
    let mut is_good = true;
    for ((name, us), bound) in names.iter().zip(medians).zip(bounds) {
        let ratio = us / medians[0];
        let shown = bound.map_or(String::new(), |bound| format!(" (bound {bound})"));
        println!("{name:<30} {us:9.2} us {ratio:7.2} times{shown}");
        is_good &= bound.is_none_or(|bound| ratio <= bound);
    }
    Ok(is_good)
}

/// Microseconds for each event.
fn each_us(begin: Instant, count: usize) -> f64 {
    begin.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn serialise(count: usize) -> Any<f64> {
    let (event, begin) = (event(), Instant::now());
    for _ in 0..count {
        black_box(serde_json::to_vec(black_box(&event))?);
    }
    Ok(each_us(begin, count))
}

/// A service that takes connections and answers nothing.
async fn silent(options: Options) -> Any<(Client, TcpListener)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = Client::new(Options {
        url: format!("http://{}", listener.local_addr()?),
        api_key: format!("at_live_{}", "A".repeat(49)),
        on_error: Some(Box::new(|_, _| ())),
        ..options
    })?;
    Ok((client, listener))
}

async fn enqueue(count: usize, options: Options) -> Any<f64> {
    let spool = options.spool_dir.clone();
    let (queue_max_bytes, flush_interval) = (1 << 30, Duration::from_secs(3600));
    let (client, _listener) =
        silent(Options { queue_max_events: count, queue_max_bytes, flush_interval, ..options }).await?;
    let (event, begin) = (event(), Instant::now());
    for _ in 0..count {
        client.enqueue(&event).await?;
    }
    let taken = each_us(begin, count);
    client.close(Duration::ZERO).await;
    if let Some(spool) = spool {
        std::fs::remove_dir_all(spool)?;
    }
    Ok(taken)
}

/// Fills a queue whose service is down, and offers it twenty times as many events again.
async fn memory() -> Any<bool> {
    const FULL: u32 = 10_000;
    let resident = || -> Any<f64> {
        let pages: f64 =
            std::fs::read_to_string("/proc/self/statm")?.split(' ').nth(1).unwrap_or("0").parse()?;
        Ok(pages * 4096.0 / f64::from(FULL))
    };
    let (client, _listener) =
        silent(Options { queue_max_events: FULL as usize, on_full: OnFull::Error, ..Options::default() })
            .await?;
    let (event, before) = (event(), resident()?);
    for _ in 0..FULL {
        client.enqueue(&event).await?;
    }
    let full = resident()? - before;
    for _ in 0..20 * FULL {
        match client.enqueue(&event).await {
            Err(error) if error.kind == Kind::QueueFull => (),
            other => return Err(format!("a full queue returned {other:?}").into()),
        }
    }
    let after = resident()? - before;
    let size = serde_json::to_vec(&event)?.len();
    println!(
        "a full queue of {FULL}: {full:.0} bytes for each event of {size}; after 20 times as many refused ones {after:.0}"
    );
    client.close(Duration::ZERO).await;
    Ok(after <= full + 256.0)
}

async fn rate(count: usize) -> Any<bool> {
    let (folder, mut port) = (tempfile::tempdir()?, "0".to_owned());
    let _server = serve(folder.path(), &mut port).await?;
    let (url, key) = (format!("http://127.0.0.1:{port}"), live_key(folder.path())?);
    // The median of the rounds' ratios counts: what is busy beside them slows a whole round.
    let (mut rates, mut ratios) = ([const { Vec::new() }; 3], [const { Vec::new() }; 3]);
    for round in 0..ROUNDS {
        let straight = directly(&url, &key, count, round).await?;
        let spool = folder.path().join(format!("spool{round}"));
        let queued = through_queue(&url, &key, count, None).await?;
        let spooled = through_queue(&url, &key, count, Some(&spool)).await?;
        for (at, rate) in [straight, queued, spooled].into_iter().enumerate() {
            rates[at].push(rate);
            ratios[at].push(rate / straight);
        }
    }
    let (rates, ratios) = (rates.map(|mut list| median(&mut list)), ratios.map(|mut list| median(&mut list)));
    let names = ["batches of 100, directly", "enqueue and close", "the same with a spool"];
    for (at, (name, bound)) in names.iter().zip(["", " (bound 0.5)", ""]).enumerate() {
        println!("{name:<30} {:9.0} events/s {:7.2} times{bound}", rates[at], ratios[at]);
    }
    Ok(ratios[1] >= 0.5)
}

fn each_second(begin: Instant, count: usize) -> f64 {
    1e6 / each_us(begin, count)
}

async fn directly(url: &str, key: &str, count: usize, round: usize) -> Any<f64> {
    let text = String::from_utf8(serde_json::to_vec(&event())?)?;
    let body = bytes::Bytes::from(format!(r#"{{"events":[{}]}}"#, vec![text; 100].join(",")));
    let client = Plain::new(Settings {
        url: url.to_owned(),
        key: Some(key.to_owned().into()),
        timeout: Duration::from_secs(30),
        retries: Retries::default(),
    })?;
    let begin = Instant::now();
    for batch in 0..count / 100 {
        client.post("/v1/events/batch", body.clone(), &format!("direct-{round}-{batch}")).await?;
    }
    Ok(each_second(begin, count / 100 * 100))
}

async fn through_queue(url: &str, key: &str, count: usize, spool: Option<&Path>) -> Any<f64> {
    let client = Client::new(Options {
        url: url.to_owned(),
        api_key: key.to_owned(),
        spool_dir: spool.map(Path::to_owned),
        ..Options::default()
    })?;
    let (event, begin) = (event(), Instant::now());
    for _ in 0..count {
        client.enqueue(&event).await?;
    }
    match client.close(Duration::from_secs(60)).await {
        0 => Ok(each_second(begin, count)),
        pending => Err(format!("{pending} events were not sent").into()),
    }
}
