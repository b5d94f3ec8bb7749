//! One log: how it is opened, its threads, and how it is closed.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle;

use sealog_core::id::{ChainId, Mode};

use super::contents::Contents;
use super::feed::recent::Feed;
use super::index::salt::IndexSalt;
use super::log::segment;
use super::options::Options;
use super::recovery::finding::Finding;
use super::recovery::high_water_mark::Place;
use super::recovery::recover;
use super::recovery::state::RecoveryError;
use super::upkeep::Upkeep;
use super::write::threads::Writer;
use crate::append::Receipt;
use crate::clock::HEAD_AHEAD_MS;
use crate::error::StoreError;
use crate::loss;
use crate::store::{DropPlan, DropStep};
use crate::supervise::keep_running;
use crate::sync::{lock, wait_for};

/// The parts of a log.
#[derive(Debug)]
pub(crate) struct Log {
    pub contents: Arc<Contents>,
    pub writer: Arc<Writer>,
    upkeep: Arc<Upkeep>,
    /// Acceptances of a loss that are sealed, and that the high-water mark may not know yet. Held while one
    /// is made.
    acceptances: Mutex<HashMap<ChainId, Receipt>>,
}

/// A log that was opened, and its threads.
#[derive(Debug)]
struct OpenLog {
    log: Arc<Log>,
    findings: Vec<Finding>,
    /// Those of the write path first: the two writers and the one that seals large requests.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// How many of them end by themselves when the writer is closed.
const WRITE_THREADS: usize = 3;

/// An open log. One that was opened on a full disk can be read, and is opened once more when there is room.
#[derive(Debug)]
pub(crate) struct Handle {
    first: OpenLog,
    again: Arc<Again>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Again {
    opened: OnceLock<OpenLog>,
    stop: Mutex<bool>,
    stopped: Condvar,
}

impl Handle {
    pub(crate) fn open(
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) -> Result<Handle, RecoveryError> {
        let first = OpenLog::open(dir, mode, options, salt, feed)?;
        let again = Arc::new(Again::default());
        let mut thread = None;
        if first.lacks_room() {
            let (dir, options, again) = (dir.to_owned(), options.clone(), Arc::clone(&again));
            let feed = Arc::clone(feed);
            let named = std::thread::Builder::new().name(format!("sealog-{}-reopen", mode.as_str()));
            thread =
                Some(named.spawn(move || again.open_when_there_is_room(&dir, mode, &options, salt, &feed))?);
        }
        Ok(Handle { first, again, thread: Mutex::new(thread) })
    }

    fn now(&self) -> &OpenLog {
        self.again.opened.get().unwrap_or(&self.first)
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.now().log
    }

    pub(crate) fn findings(&self) -> &[Finding] {
        &self.now().findings
    }

    /// Writes what is queued, stops the threads, and leaves a high-water mark that says so.
    pub(crate) fn close(&self) {
        *lock(&self.again.stop) = true;
        self.again.stopped.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
        self.now().close();
    }
}

impl Again {
    /// Opens the log once more, by the same path as at every start. Whoever reads from what was opened first
    /// can go on: its files are not changed by this.
    fn open_when_there_is_room(
        &self,
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) {
        let mut stop = lock(&self.stop);
        while !*stop {
            stop = wait_for(&self.stopped, stop, options.tick);
            if *stop || !options.room().is_there(&*options.disk, dir) {
                continue;
            }
            drop(stop);
            match OpenLog::open(dir, mode, options, salt, feed) {
                Ok(opened) if opened.lacks_room() => {}
                Ok(opened) => {
                    if opened.log.writer.ready().is_ok() {
                        tracing::info!(
                            log = mode.as_str(),
                            "disk space is available again; accepting events"
                        );
                    }
                    let set = self.opened.set(opened);
                    set.expect("this is its only writer");
                    return;
                }
                Err(error) => {
                    tracing::warn!(?error, log = mode.as_str(), "cannot reopen the log; retrying");
                }
            }
            stop = lock(&self.stop);
        }
    }
}

impl OpenLog {
    fn open(
        dir: &Path,
        mode: Mode,
        options: &Options,
        salt: IndexSalt,
        feed: &Arc<Feed>,
    ) -> Result<OpenLog, RecoveryError> {
        let recovered = recover::recover(dir, mode, options, salt)?;
        let mut findings = recovered.findings;
        let asked = || StoreError::Refused("the store is open read-only".into());
        let refused = options.read_only.then(asked);
        let refused = refused.or_else(|| {
            findings.iter().find_map(|finding| match finding {
                Finding::ReadOnly { cause } => Some(StoreError::Poisoned(cause.clone())),
                Finding::NoRoom { .. } => Some(StoreError::NoRoom),
                _ => None,
            })
        });
        let contents = Arc::new(recovered.contents);
        let upkeep = Arc::new(Upkeep::new(Arc::clone(&contents), recovered.mark, recovered.stale));
        let writer = Arc::new(Writer::new(&contents, &upkeep, feed, recovered.active, refused));
        if writer.accepts().is_ok()
            && let Err(error) = upkeep.mark_all()
        {
            // Without a high-water mark, lost events would go unnoticed; reading needs none.
            let cause = format!("cannot write the high-water mark: {error}");
            let (finding, error) = if segment::is_no_room(&error) {
                (Finding::NoRoom { cause }, StoreError::NoRoom)
            } else {
                (Finding::ReadOnly { cause }, StoreError::Poisoned(error.to_string()))
            };
            tracing::error!(log = mode.as_str(), "{finding}");
            findings.push(finding);
            writer.refuse(error);
        }
        if let Some(finding) = clock_behind(&contents) {
            tracing::error!(log = mode.as_str(), "{finding}");
            findings.push(finding);
        }
        let log = Arc::new(Log { contents, writer, upkeep, acceptances: Mutex::default() });
        // Dropped on every way out of here, which stops and joins the threads that did start.
        let opened = OpenLog { log, findings, threads: Mutex::default() };
        if opened.log.writer.accepts().is_ok() {
            opened.log.writer.begin();
            opened.start("write-1", |log| log.writer.write_thread())?;
            opened.start("write-2", |log| log.writer.write_thread())?;
            opened.start("ahead", |log| log.writer.ahead_thread())?;
            opened.start("prepare", |log| log.writer.prepare_thread())?;
            opened.start("upkeep", |log| {
                log.writer.panics("that writes high-water marks and index files", || log.upkeep.run());
            })?;
            opened.start("deadlines", |log| log.writer.deadline_thread())?;
            opened.start("count", |log| {
                // Counts are derived: a panic here is no reason to stop the log, and the log has all that
                // they are made of.
                let pause = |time| log.upkeep.pause(time);
                keep_running("count", || log.contents.count(pause), pause);
            })?;
            if opened.log.upkeep.has_stale_indexes() {
                opened.start("reindex", |log| {
                    log.writer.panics("that rebuilds old index files", || log.upkeep.reindex());
                })?;
            }
        }
        Ok(opened)
    }

    fn lacks_room(&self) -> bool {
        self.findings.iter().any(|finding| matches!(finding, Finding::NoRoom { .. }))
    }

    fn start(&self, name: &str, run: fn(&Log)) -> io::Result<()> {
        let log = Arc::clone(&self.log);
        let mode = log.contents.mode.as_str();
        let thread = std::thread::Builder::new().name(format!("sealog-{mode}-{name}"));
        lock(&self.threads).push(thread.spawn(move || run(&log))?);
        Ok(())
    }

    fn close(&self) {
        let threads = std::mem::take(&mut *lock(&self.threads));
        if threads.is_empty() {
            return;
        }
        let Log { writer, upkeep, .. } = &*self.log;
        writer.close();
        let mut threads = threads.into_iter();
        // The writers first, while a segment can still be prepared for what they have to write.
        for thread in threads.by_ref().take(WRITE_THREADS) {
            let _ = thread.join();
        }
        writer.stop_preparing();
        upkeep.stop();
        for thread in threads {
            let _ = thread.join();
        }
        if writer.finish() {
            upkeep.mark_changes(true);
        }
    }
}

impl Drop for OpenLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.close();
    }
}

/// What is said of a clock that is behind the last events: their chains' time stands still until it has
/// caught up.
fn clock_behind(contents: &Contents) -> Option<Finding> {
    let ahead = contents.chains_ahead_of(contents.world.now_ms(), HEAD_AHEAD_MS);
    let (by_ms, furthest) = ahead.iter().copied().max()?;
    Some(Finding::ClockBehind { chains: ahead.len(), furthest, by_ms })
}

impl Log {
    /// Up to where events are lost or damaged that no high-water mark spoke for.
    pub(crate) fn unproven_to(&self) -> Option<Place> {
        self.upkeep.unproven_to()
    }

    /// What retention would drop; nothing while nothing may be written.
    pub(crate) fn plan_drop(&self, before_ms: u64) -> Result<DropPlan, StoreError> {
        self.writer.accepts()?;
        self.contents.plan_drop(before_ms, self.upkeep.covered_segment())
    }

    /// One step of retention.
    pub(crate) fn drop_oldest(&self, plan: &DropPlan) -> Result<DropStep, StoreError> {
        self.writer.accepts()?;
        self.contents.drop_oldest(plan, self.upkeep.covered_segment())
    }

    /// Lets a chain go on whose last events are lost.
    ///
    /// t0: the acceptance is sealed and synced, the high-water mark still has the recorded head. A crash
    /// here: the next start finds an acceptance of exactly that head at the end of the chain. t1: the
    /// high-water mark has the acceptance. t2: the chain takes events. Until t1 nothing can follow the
    /// acceptance, so it is always where a start looks for it.
    pub(crate) fn accept_loss(&self, chain: ChainId, reason: String) -> Result<Receipt, StoreError> {
        loss::check_reason(&reason)?;
        let mut acceptances = lock(&self.acceptances);
        let receipt = match acceptances.get(&chain) {
            // An earlier call came this far, and the high-water mark could not be written.
            Some(receipt) => receipt.clone(),
            None => {
                let sealed = self.writer.seal_acceptance(chain, reason)?.blocking_recv();
                let receipt = sealed.unwrap_or(Err(StoreError::Closing))?;
                acceptances.insert(chain, receipt.clone());
                receipt
            }
        };
        self.upkeep.try_mark(false).map_err(|error| {
            let seq = receipt.first_seq;
            StoreError::Control(format!(
                "the acceptance is sealed as event {seq}, but the high-water mark cannot be written ({error}); accept the loss again to continue"
            ))
        })?;
        acceptances.remove(&chain);
        self.contents.chains.get_or_create(chain).with(|state| state.unproven = false);
        Ok(receipt)
    }
}
