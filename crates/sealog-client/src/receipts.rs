//! Receipts that audit themselves: what the service has acknowledged, kept to be compared with what it has.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::endpoint::{Endpoint, Request};
use crate::error::{Error, Kind};
use crate::hooks::{Hooks, loud};
use crate::proofs::Proofs;
use crate::read::{self, StoredEvent};
use crate::receipt::Receipt;

const IN_MEMORY: usize = 10_000;

/// The newest 10,000, or all of them in a file: one JSON object for each line.
pub(crate) struct Receipts {
    path: Option<PathBuf>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    file: Option<File>,
    memory: VecDeque<Receipt>,
    dropped: u64,
}

/// What has become of acknowledged events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    pub checked: u64,
    /// Each a `log_id`.
    pub missing: Vec<String>,
    pub changed: Vec<String>,
    pub moved: Vec<String>,
    /// Events that are there, and whose proof does not hold. A warning has the reason.
    pub disproved: Vec<String>,
    /// Events that are proven to be in a tree which the log's key, `vkey`, has signed.
    pub proven: u64,
    /// Events whose proof holds, where the client has no `vkey` to check the signature with.
    pub unsigned: u64,
    /// Events that no published tree has yet. Audit again after a minute.
    pub not_yet: u64,
    /// Events of which the server has no proof: it publishes none, the proof was pruned, or the key is a
    /// test key.
    pub no_proof: u64,
    /// Receipts that could not be kept and so were not checked.
    pub dropped: u64,
}

impl Audit {
    /// Whether every event was found as it was acknowledged, and no proof was wrong.
    pub fn all_there(&self) -> bool {
        [&self.missing, &self.changed, &self.moved, &self.disproved].iter().all(|list| list.is_empty())
    }
}

impl Receipts {
    pub fn open(path: Option<&Path>) -> Result<Receipts, Error> {
        let mut kept = Kept::default();
        if let Some(path) = path {
            let mut options = OpenOptions::new();
            options.append(true).create(true);
            #[cfg(unix)]
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            let file = options.open(path);
            let problem = |error| Error::option("receipts", &format!("cannot open the file: {error}"));
            kept.file = Some(file.map_err(problem)?);
        }
        Ok(Receipts { path: path.map(Path::to_owned), kept: Mutex::new(kept) })
    }

    pub fn add(&self, receipt: &Receipt) {
        let mut kept = self.kept.lock().expect("no holder panics");
        let Some(path) = &self.path else {
            if kept.memory.len() == IN_MEMORY {
                kept.memory.pop_front();
                kept.dropped += 1;
            }
            kept.memory.push_back(receipt.clone());
            return;
        };
        let mut line = serde_json::to_vec(receipt).expect("texts and a number");
        line.push(b'\n');
        let written = match &mut kept.file {
            Some(file) => file.write_all(&line),
            None => Err(io::Error::other("the client is closed")),
        };
        // The event is stored; only its audit is not possible, and the audit says so.
        if let Err(error) = written {
            kept.dropped += 1;
            loud(&format!(
                "cannot write a receipt to {}, an audit will not cover it: {error}",
                path.display()
            ));
        }
    }

    pub fn close(&self) {
        self.kept.lock().expect("no holder panics").file = None;
    }

    fn read(&self) -> Result<Box<dyn Iterator<Item = io::Result<Receipt>> + Send>, Error> {
        let Some(path) = &self.path else {
            let memory = self.kept.lock().expect("no holder panics").memory.clone();
            return Ok(Box::new(memory.into_iter().map(Ok)));
        };
        let file = File::open(path).map_err(|error| unreadable(&error))?;
        // A line that is none is a write that a crash has interrupted; its event is still in the spool.
        let lines = BufReader::new(file).split(b'\n').filter_map(|line| match line {
            Ok(line) => serde_json::from_slice(&line).ok().map(Ok),
            Err(error) => Some(Err(error)),
        });
        Ok(Box::new(lines))
    }

    /// Reads every event back for which there is a receipt, recomputes its hash and compares. A receipt
    /// without a hash is covered by the event behind it in the batch, whose `prev_hash` leads to the hash of
    /// the batch's last receipt. Asks for no proofs if there is nothing to check them with.
    pub async fn audit(
        &self,
        endpoint: &Endpoint,
        mut proofs: Option<Proofs>,
        hooks: &Hooks,
    ) -> Result<Audit, Error> {
        let mut report = Audit::default();
        // The event before, if its receipt has no hash and all else fits.
        let mut before: Option<StoredEvent> = None;
        for receipt in self.read()? {
            let receipt = receipt.map_err(|error| unreadable(&error))?;
            report.checked += 1;
            let earlier = before.take();
            let event = match read::get(endpoint, &receipt.log_id).await {
                Ok(event) => event,
                Err(error) if error.kind == Kind::NotFound => {
                    report.missing.push(receipt.log_id);
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(earlier) = earlier
                && receipt.chain_seq == Some(earlier.chain_seq + 1)
                && event.prev_hash != earlier.hash
            {
                report.changed.push(earlier.log_id);
            }
            if !event.is_sound() || event.log_id != receipt.log_id {
                report.changed.push(receipt.log_id);
                continue;
            }
            if receipt.chain_seq.is_some_and(|seq| seq != event.chain_seq) {
                report.moved.push(receipt.log_id);
                continue;
            }
            if receipt.hash.as_ref().is_some_and(|hash| *hash != event.hash) {
                report.changed.push(receipt.log_id);
                continue;
            }
            let shown = match &mut proofs {
                Some(proofs) => prove(endpoint, &event, proofs).await?,
                None => Shown::Nothing,
            };
            match shown {
                Shown::Proven => report.proven += 1,
                Shown::Unsigned => report.unsigned += 1,
                Shown::NotYet => report.not_yet += 1,
                Shown::Nothing => report.no_proof += 1,
                Shown::Absent => {
                    report.no_proof += 1;
                    proofs = None;
                }
                Shown::Wrong(why) => {
                    let message = format!("the proof of event {} does not hold: {why}", receipt.log_id);
                    hooks.warn("client/disproved", &message);
                    report.disproved.push(receipt.log_id);
                }
            }
            if receipt.hash.is_none() {
                before = Some(event);
            }
        }
        report.dropped = self.kept.lock().expect("no holder panics").dropped;
        Ok(report)
    }
}

/// What the proof of an event shows.
enum Shown {
    Proven,
    Unsigned,
    NotYet,
    Nothing,
    /// The server publishes no proofs at all.
    Absent,
    Wrong(String),
}

async fn prove(endpoint: &Endpoint, event: &StoredEvent, proofs: &mut Proofs) -> Result<Shown, Error> {
    let query = [("log_id", event.log_id.clone()), ("format", "tlog-proof".to_owned())];
    let request = Request::get("/tlog/v1/chain/proof", &query);
    let file = match endpoint.send(&request, |answer| Ok(answer.body.clone())).await {
        Ok(file) => file,
        Err(error) => {
            return match error.code.as_str() {
                "tlog/not_yet" => Ok(Shown::NotYet),
                "tlog/pruned" => Ok(Shown::Nothing),
                "request/not_found" => Ok(Shown::Absent),
                // Of an event that this server has just returned.
                "tlog/not_found" => Ok(Shown::Wrong("the server says that no signed tree has it".into())),
                _ => Err(error),
            };
        }
    };
    let result = proofs.check(&event.text, &file);
    Ok(match result.reason {
        Some(reason) => Shown::Wrong(format!("{} ({reason})", result.message)),
        None if proofs.has_key() => Shown::Proven,
        None => Shown::Unsigned,
    })
}

fn unreadable(error: &io::Error) -> Error {
    Error::option("receipts", &format!("cannot read the file: {error}"))
}
