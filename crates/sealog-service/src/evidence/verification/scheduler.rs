//! Verifications that the schedule starts, and the weekly report about them.
//!
//! ```text
//! t0  a night begins: every live chain that had events before, system chains among them, is on the list; one
//!     comparison of derived data is queued for the store
//! t1  a few at a time are queued as jobs, each under an id that follows from chain and night: another server
//!     that
//!     does the same finds it taken
//! t2  the runner does them, as it does those of people; a break is mailed by the verifier
//! t3  what became of each is counted for /metrics, and next week's report reads it
//! ```
//!
//! Nothing of this is kept but the jobs. After a restart the list is made again, and what was queued is found
//! queued.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sealog_control::{JobId, NewJob, Tenant};
use sealog_core::id::{ChainId, Mode, TenantId};
use sealog_core::time::{DAY_MS, iso_ms};
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::json;

use super::derived::{self, DERIVED_KIND};
use super::found;
use super::mails::{self, ChainReport};
use super::run::{KIND, Run, RunEnd, parameters, subject};
use super::schedule::{Schedule, job_id, range};
use crate::jobs::supervise::{caught, of_one_row};
use crate::people::notify::INTEGRITY_REPORT;
use crate::records::system_chain::Wake;
use sealog_control::Control;

/// Queued and not ended, of this process: what people start is never behind more than these.
pub const OPEN_MAX: usize = 16;
/// Chains that are looked at in one sweep.
pub const LOOKS_MAX: usize = 64;
/// Nights before, in which the last verification of a chain is looked for.
const NIGHTS_BACK: u64 = 7;
/// A chain without a verification that was done in so many nights is stale.
const STALE_NIGHTS: u64 = 2;
/// Chains in one report; the others are counted.
const REPORT_CHAINS_MAX: usize = 50;
/// Runs of the schedule are kept so long; what they found is in the system chain.
const KEPT_MS: u64 = 90 * DAY_MS;
const FORGET_MAX: usize = 1000;
/// After a start, which has enough to do.
const START_PAUSE: Duration = Duration::from_secs(60);

pub struct Scheduler {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    /// Nothing for no schedule.
    pub schedule: Option<Schedule>,
    /// Whether mails can be sent: reports that wait for a mail server would come all at once.
    pub has_mail: bool,
    /// Of the runner of this process.
    pub runner: Wake,
    pub every: Duration,
    pub figures: Figures,
}

/// For `/metrics`.
#[derive(Debug, Default)]
pub struct Figures {
    /// When a scheduled verification last found nothing wrong; 0 for never.
    pub last_success_ms: AtomicU64,
    /// Chains that their last one found broken.
    pub broken: AtomicU64,
    /// Chains whose last one could not be done.
    pub failed: AtomicU64,
    /// Chains without one that was done in two nights.
    pub stale: AtomicU64,
    /// Queued, and not ended.
    pub open: AtomicU64,
    /// What the last comparison of derived and control data found to differ.
    pub differences: AtomicU64,
}

/// What is remembered between sweeps.
#[derive(Debug, Default)]
pub struct Sweep {
    night: Option<u64>,
    chains: VecDeque<ChainId>,
    /// With their nights.
    open: BTreeSet<(ChainId, u64)>,
    known: BTreeMap<ChainId, Known>,
    forgets: bool,
    report_night: Option<u64>,
    reports: VecDeque<(TenantId, Vec<ChainId>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The last night whose verification was done.
    done: Option<u64>,
    broken: bool,
    failed: bool,
}

impl Scheduler {
    pub async fn watch(&self) {
        let Some(schedule) = self.schedule else { return };
        tokio::time::sleep(START_PAUSE).await;
        let mut sweep = Sweep::default();
        loop {
            let mut pause = self.every;
            if let Err(error) = self.sweep(schedule, &mut sweep).await {
                pause = self.every.saturating_mul(12);
                tracing::warn!(%error, retry_in_s = pause.as_secs(), "failed to queue scheduled verifications; retrying");
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Does a bounded part of what is due.
    pub async fn sweep(&self, schedule: Schedule, sweep: &mut Sweep) -> Result<(), StoreError> {
        let now_ms = self.world.now_ms();
        let (night, report_night) = (schedule.night(now_ms), schedule.report_night(now_ms));
        if sweep.night != Some(night) || (self.has_mail && sweep.report_night != report_night) {
            let heads = self.store.heads().await?;
            let live: BTreeSet<ChainId> =
                heads.iter().map(|(chain, _)| *chain).filter(|chain| chain.mode == Mode::Live).collect();
            if sweep.night != Some(night) {
                sweep.known.retain(|chain, _| live.contains(chain));
                sweep.chains = live.iter().copied().collect();
                if derived::queue(&self.control, &*self.world, night).await? {
                    self.runner.wake();
                }
                sweep.night = Some(night);
                sweep.forgets = true;
            }
            if self.has_mail && sweep.report_night != report_night {
                let mut tenants: BTreeMap<TenantId, Vec<ChainId>> = BTreeMap::new();
                live.iter().for_each(|chain| tenants.entry(chain.tenant_id).or_default().push(*chain));
                sweep.reports = tenants.into_iter().collect();
                sweep.report_night = report_night;
            }
        }
        self.look_at_open(sweep).await?;
        if let Some(differences) = derived::differences(&self.control, night).await? {
            self.figures.differences.store(differences, Ordering::Relaxed);
        }
        for _ in 0..LOOKS_MAX {
            if sweep.open.len() >= OPEN_MAX {
                break;
            }
            let Some(chain) = sweep.chains.front().copied() else { break };
            let looked = caught(self.look(schedule, night, chain, sweep)).await;
            if let Some(cause) = of_one_row(looked)? {
                // It is looked at again in the next night, and counted as stale until then.
                tracing::error!(%chain, cause, "failed to queue a scheduled verification; continuing with other chains");
            }
            sweep.chains.pop_front();
        }
        self.report_some(schedule, sweep).await?;
        if sweep.forgets {
            let before_ms = now_ms.saturating_sub(KEPT_MS);
            let mut forgotten = 0;
            for kind in [KIND, DERIVED_KIND] {
                let of_kind = self.control.forget_jobs(kind.into(), before_ms, FORGET_MAX).await?;
                forgotten = of_kind.max(forgotten);
            }
            sweep.forgets = forgotten == FORGET_MAX as u64;
        }
        self.count(night, sweep);
        Ok(())
    }

    async fn run(&self, chain: ChainId, night: u64) -> Result<Option<Run>, StoreError> {
        let job = self.control.job(JobId(job_id(chain, night))).await?;
        Ok(job.as_ref().and_then(Run::of).filter(|run| run.chain == chain))
    }

    async fn look_at_open(&self, sweep: &mut Sweep) -> Result<(), StoreError> {
        for (chain, night) in sweep.open.clone() {
            let run = self.run(chain, night).await?;
            if run.as_ref().is_some_and(|run| run.end.is_none()) {
                continue;
            }
            sweep.open.remove(&(chain, night));
            run.iter().for_each(|run| self.note(sweep, night, run));
        }
        Ok(())
    }

    /// Queues the verification of a chain in this night, unless it has one, or one of a night before has not
    /// ended.
    async fn look(
        &self,
        schedule: Schedule,
        night: u64,
        chain: ChainId,
        sweep: &mut Sweep,
    ) -> Result<(), StoreError> {
        let mut has_one = false;
        let mut before = None;
        for night in (night.saturating_sub(NIGHTS_BACK)..=night).rev() {
            let Some(run) = self.run(chain, night).await? else { continue };
            has_one |= Some(night) == sweep.night;
            if run.end.is_none() {
                sweep.open.insert((chain, night));
                return Ok(());
            }
            if before.is_none() {
                self.note(sweep, night, &run);
            }
            let is_done = matches!(run.end, Some(RunEnd::Valid | RunEnd::Broken(_)));
            if is_done {
                let known = sweep.known.entry(chain).or_default();
                known.done = Some(night);
                known.broken = matches!(run.end, Some(RunEnd::Broken(_)));
            }
            before.get_or_insert(run);
            if is_done {
                break;
            }
        }
        if has_one {
            return Ok(());
        }
        if before.is_none() && !self.is_older(chain, schedule.begins_ms(night)).await? {
            return Ok(());
        }
        sweep.known.entry(chain).or_default();
        let end = self.store.head(chain).await?.end().chain_seq;
        // A store that was restored may have chains of tenants that nobody knows.
        if end == 0 || self.control.tenant(chain.tenant_id).await?.is_none() {
            sweep.known.remove(&chain);
            return Ok(());
        }
        let part = range(end, before.as_ref());
        let new = NewJob {
            id: JobId(job_id(chain, night)),
            kind: KIND.into(),
            tenant_id: Some(chain.tenant_id),
            person_id: None,
            subject: Some(subject(chain)),
            parameters: parameters(chain, part.from, part.to).to_string(),
            created_at_ms: self.world.now_ms(),
        };
        self.control.create_job_once(new).await?;
        self.runner.wake();
        sweep.open.insert((chain, night));
        Ok(())
    }

    /// Whether the chain had its first event before. One whose first event cannot be read is due all the
    /// more.
    async fn is_older(&self, chain: ChainId, than_ms: u64) -> Result<bool, StoreError> {
        let first = found::at(&*self.store, chain, 1).await?;
        Ok(first.is_none_or(|first| first.timestamp_ms < than_ms))
    }

    fn note(&self, sweep: &mut Sweep, night: u64, run: &Run) {
        let known = sweep.known.entry(run.chain).or_default();
        known.failed = matches!(run.end, Some(RunEnd::Failed(_)));
        match run.end {
            Some(RunEnd::Valid) => {
                (known.broken, known.done) = (false, Some(night));
                let ended_ms = run.ended_at_ms.unwrap_or(0);
                self.figures.last_success_ms.fetch_max(ended_ms, Ordering::Relaxed);
            }
            Some(RunEnd::Broken(_)) => (known.broken, known.done) = (true, Some(night)),
            _ => {}
        }
    }

    fn count(&self, night: u64, sweep: &Sweep) {
        let count =
            |is: &dyn Fn(&Known) -> bool| sweep.known.values().filter(|known| is(known)).count() as u64;
        let (broken, failed) = (count(&|known| known.broken), count(&|known| known.failed));
        let stale = count(&|known| known.done.is_none_or(|done| done + STALE_NIGHTS <= night));
        let Figures { broken: b, failed: f, stale: s, open: o, .. } = &self.figures;
        for (figure, value) in [(b, broken), (f, failed), (s, stale), (o, sweep.open.len() as u64)] {
            figure.store(value, Ordering::Relaxed);
        }
    }

    async fn report_some(&self, schedule: Schedule, sweep: &mut Sweep) -> Result<(), StoreError> {
        let Some(night) = sweep.report_night else { return Ok(()) };
        let mut looked = 0;
        while looked < LOOKS_MAX {
            let Some((tenant_id, chains)) = sweep.reports.front() else { break };
            looked += chains.len().min(REPORT_CHAINS_MAX);
            if let Some(tenant) = self.control.tenant(*tenant_id).await? {
                let reported = caught(self.report(schedule.begins_ms(night), night, &tenant, chains)).await;
                if let Some(cause) = of_one_row(reported)? {
                    tracing::error!(tenant = %tenant_id, cause, "failed to create a weekly report; continuing with other organisations");
                }
            }
            sweep.reports.pop_front();
        }
        Ok(())
    }

    /// About the seven nights before.
    async fn report(
        &self,
        night_ms: u64,
        night: u64,
        tenant: &Tenant,
        chains: &[ChainId],
    ) -> Result<(), StoreError> {
        let key = mails::report_key(tenant, night_ms);
        let sent = vec![format!("{}/{key}", mails::REPORT)];
        let kept = self.control.notices_with_keys(sent).await?;
        // A tenant that is younger than the week has its first report after the next one.
        if !kept.is_empty() || tenant.created_at_ms >= night_ms {
            return Ok(());
        }
        let (mut listed, mut broken, mut unverified) = (Vec::new(), 0_u64, 0_u64);
        for chain in chains.iter().take(REPORT_CHAINS_MAX) {
            let report = self.chain_report(*chain, night).await?;
            broken += u64::from(report.broken_at.is_some());
            unverified += u64::from(report.broken_at.is_none() && report.nights == 0);
            let name = mails::name_of(&self.control, *chain).await?;
            listed.push(mails::chain_in_report(&name, chain.mode.as_str(), &report));
        }
        let parameters = json!({
            "name": tenant.name,
            "date": iso_ms(night_ms)[..10],
            "broken": broken,
            "unverified": unverified,
            "left_out": chains.len().saturating_sub(REPORT_CHAINS_MAX),
            "chains": listed,
        });
        mails::enqueue(&self.control, &self.world, tenant, &key, &INTEGRITY_REPORT, parameters).await
    }

    async fn chain_report(&self, chain: ChainId, night: u64) -> Result<ChainReport, StoreError> {
        let head = self.store.head(chain).await?.end();
        let mut report =
            ChainReport { end: head.chain_seq, hash: head.hash.to_string(), ..ChainReport::default() };
        let mut is_newest = true;
        for night in (night.saturating_sub(NIGHTS_BACK)..night).rev() {
            let Some(run) = self.run(chain, night).await? else { continue };
            report.checked += run.progress.checked;
            match &run.end {
                Some(RunEnd::Valid) => report.nights += 1,
                // What a later night has found sound is mended.
                Some(RunEnd::Broken(found)) if is_newest => report.broken_at = Some(found.at),
                _ => continue,
            }
            is_newest = false;
        }
        Ok(report)
    }
}
