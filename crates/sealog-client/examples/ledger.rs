//! The ledger: an application and the server are killed with SIGKILL again and again, and every event is
//! accounted for.
//!
//! ```text
//! SEALOG_BIN=path/to/sealog ledger [APPLICATION_KILLS [SERVER_KILLS]]
//! ```
//!
//! The application numbers its events, enqueues them with a spool, and writes each receipt to a file. At the
//! end the ledger counts accepted events that are not stored (lost), events that are stored twice, events
//! without a receipt, receipts whose event is missing or another one, and pairs in the wrong order. All must
//! be 0.

mod common;

use std::collections::{HashMap, HashSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Any, Process, live_key, serve};
use sealog_client::{Client, Event, Filter, Options, Verifier};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Any<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [role, folder] = &arguments[..]
        && (role == "application" || role == "drain")
    {
        return application(Path::new(folder), role == "drain").await;
    }
    let kills = |index: usize, default: usize| arguments.get(index).map_or(Ok(default), |text| text.parse());
    let (of_application, of_server) = (kills(0, 30)?, kills(1, 20)?);
    let seed = match std::env::var("SEALOG_SEED") {
        Ok(seed) => seed.parse()?,
        Err(_) => u64::try_from(
            SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() >> 8 & u128::from(u64::MAX),
        )?,
    };
    println!("SEALOG_SEED={seed}");
    let folder = tempfile::tempdir()?;
    let is_good = run(folder.path(), of_application, of_server, Chance(seed | 1)).await?;
    if is_good { Ok(()) } else { Err("the ledger does not balance".into()) }
}

/// Logs until it is killed. To drain, it sends what its predecessors left.
async fn application(folder: &Path, is_draining: bool) -> Any<()> {
    let appending = |name: &str| OpenOptions::new().append(true).create(true).open(folder.join(name));
    let (mut accepted, acknowledged) = (appending("accepted")?, appending("acknowledged")?);
    let number = accepted.metadata()?.len() / 8;
    let client = Client::new(Options {
        spool_dir: Some(folder.join("spool")),
        spool_max_bytes: 200_000,
        flush_interval: Duration::from_millis(10),
        retry_base: Duration::from_millis(20),
        timeout: Duration::from_secs(3),
        on_receipt: Some(Box::new(move |receipt, event| {
            let (resource, seq) = (event.resource.as_deref().unwrap_or(""), receipt.chain_seq.unwrap_or(0));
            let line = format!("{resource} {seq} {}\n", receipt.log_id);
            (&acknowledged).write_all(line.as_bytes()).expect("the disk has room");
        })),
        ..Options::default()
    })?;
    if is_draining {
        return match client.close(Duration::from_secs(60)).await {
            0 => Ok(()),
            pending => Err(format!("{pending} events were not sent").into()),
        };
    }
    let process = std::process::id();
    for number in number.. {
        // A kill between the two writes leaves an accepted event without a note. The next process repeats its
        // number, so a number is unique only with its process.
        client.enqueue(Event::new("document.updated").resource(format!("{number}/{process}"))).await?;
        accepted.write_all(format!("{process:7}\n").as_bytes())?;
        // The sender shares this thread.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Xorshift: the moments of the kills need no better one.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A random moment before a kill.
    async fn pause(&mut self, from_ms: u64, to_ms: u64) {
        let ms = from_ms + self.next() % (to_ms - from_ms);
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

async fn run(folder: &Path, of_application: usize, of_server: usize, mut chance: Chance) -> Any<bool> {
    let mut port = "0".to_owned();
    let mut server = serve(folder, &mut port).await?;
    let (key, url) = (live_key(folder)?, format!("http://127.0.0.1:{port}"));
    let start = |role: &str| -> Any<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([role])
            .arg(folder)
            .env("SEALOG_API_KEY", &key)
            .env("SEALOG_URL", &url)
            .stderr(Stdio::null());
        Ok(Process(command.spawn()?))
    };
    let mut application = start("application")?;
    let mut victims = [vec![true; of_server], vec![false; of_application]].concat();
    for index in (1..victims.len()).rev() {
        victims.swap(index, usize::try_from(chance.next() % (index as u64 + 1))?);
    }
    for is_server in victims {
        chance.pause(100, 700).await;
        if is_server {
            server.kill();
            chance.pause(0, 300).await;
            server = serve(folder, &mut port).await?;
        } else {
            application.kill();
            application = start("application")?;
        }
    }
    chance.pause(500, 600).await;
    application.kill();
    let drained = start("drain")?.0.wait()?;
    if !drained.success() {
        return Err("the last process did not send what was left".into());
    }
    count(folder, Options { url, api_key: key, ..Options::default() }).await
}

async fn count(folder: &Path, options: Options) -> Any<bool> {
    let client = Client::new(options)?;
    let (mut stored, mut sealed, mut chain) = (Vec::new(), HashMap::new(), Verifier::new(&[]));
    let mut events = client.events(Filter::default());
    while let Some(event) = events.next().await {
        let event = event?;
        chain.add(&event.text)?;
        let resource = event.event.resource.unwrap_or_default();
        sealed.insert(resource.clone(), format!("{} {}", event.chain_seq, event.log_id));
        stored.push(resource);
    }
    let acknowledged = std::fs::read_to_string(folder.join("acknowledged"))?;
    let (mut receipts, mut acknowledged_lost) = (HashSet::new(), 0);
    // What follows the last line feed is a write that a kill interrupted.
    for line in acknowledged.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let (resource, receipt) = line.split_once(' ').ok_or("a receipt has no space")?;
        receipts.insert(resource.to_owned());
        acknowledged_lost += usize::from(sealed.get(resource).map(String::as_str) != Some(receipt));
    }
    let accepted = std::fs::read_to_string(folder.join("accepted"))?;
    let accepted: Vec<String> =
        accepted.split_whitespace().zip(0..).map(|(process, number)| format!("{number}/{process}")).collect();
    let lost = accepted.iter().filter(|resource| !sealed.contains_key(*resource)).count();
    let never = accepted.iter().filter(|resource| !receipts.contains(*resource)).count();
    let numbers: Vec<u64> = stored
        .iter()
        .rev()
        .map(|resource| resource.split('/').next().unwrap_or("").parse().unwrap_or(0))
        .collect();
    let disorder = numbers.windows(2).filter(|pair| pair[1] < pair[0]).count();
    let left = std::fs::read_dir(folder.join("spool"))?.count();
    let (twice, is_valid) = (stored.len() - sealed.len(), chain.finish().valid);
    println!(
        "accepted {}, stored {}, acknowledged {}; lost {lost}, twice {twice}, never acknowledged {never}, \
         acknowledged and lost {acknowledged_lost}, out of order {disorder}, left in the spool {left}, chain valid {is_valid}",
        accepted.len(),
        stored.len(),
        receipts.len(),
    );
    Ok(!receipts.is_empty() && lost + twice + never + acknowledged_lost + disorder + left == 0 && is_valid)
}
