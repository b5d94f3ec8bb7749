//! Work that no request waits for. Each loop goes on by itself and may be dropped wherever it waits: what it had
//! not done yet is found again at the next start. Two end by themselves: a mail that is on its way should be noted as
//! sent, and a job that was begun is given back.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use sealog_store::Store;
use sealog_store::world::World;

use crate::cases::{CaseForward, CaseReminders};
use crate::disclosure::PackageSweep;
use crate::geo::{self, Geo};
use crate::heads;
use crate::jobs::Runner;
use crate::mail::Mailer;
use crate::notices::Reminders;
use crate::people::FailedSignIns;
use crate::quota::Quotas;
use crate::retention::Retention;
use crate::stop::Stop;
use crate::system_chain::{Drain, Wake};
use crate::verification::Scheduler;

/// How often background jobs look for something to do, and how long it may take.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    pub geo_every: Duration,
    pub quota_every: Duration,
    pub mail_every: Duration,
    /// For records that other processes have left; those of this one are drained at once.
    pub drain_every: Duration,
    /// For jobs that other processes have queued or left; those of this one are begun at once.
    pub jobs_every: Duration,
    /// For packages that have expired.
    pub packages_every: Duration,
    /// For events that other processes have left for projects.
    pub case_events_every: Duration,
    /// For cases that are due.
    pub case_reminders_every: Duration,
    /// For one mail, from the connection to the server's word that it has it.
    pub mail_attempt_max: Duration,
    /// For what ends soon.
    pub reminders_every: Duration,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            geo_every: Duration::from_secs(10),
            quota_every: Duration::from_secs(1),
            mail_every: Duration::from_secs(5),
            drain_every: Duration::from_secs(5),
            jobs_every: Duration::from_secs(5),
            packages_every: Duration::from_secs(10 * 60),
            case_events_every: Duration::from_secs(5),
            case_reminders_every: Duration::from_secs(15 * 60),
            mail_attempt_max: Duration::from_secs(60),
            reminders_every: Duration::from_secs(60),
        }
    }
}

/// What pages use of the background of their process.
#[derive(Clone, Debug)]
pub struct Workers {
    pub drain: Arc<Drain>,
    pub runner: Arc<Runner>,
    /// Of whoever brings events of cases into their projects.
    pub case_events: Wake,
}

/// All background jobs of a process.
pub struct Jobs {
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    pub geo: Option<Arc<Geo>>,
    pub quotas: Quotas,
    pub mailer: Mailer,
    pub drain: Arc<Drain>,
    pub runner: Arc<Runner>,
    pub retention: Retention,
    pub scheduler: Scheduler,
    pub failed_sign_ins: FailedSignIns,
    pub packages: PackageSweep,
    pub case_forward: CaseForward,
    pub case_reminders: CaseReminders,
    pub reminders: Reminders,
    pub intervals: Intervals,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("intervals", &self.intervals).finish_non_exhaustive()
    }
}

impl Jobs {
    /// Runs until it is told to stop. Once for each process, whatever the number of event loops.
    pub async fn run(&self, stop: &Stop) {
        let loops = async {
            tokio::join!(
                geo::follow(self.geo.as_ref(), self.intervals.geo_every),
                self.quotas.watch(),
                Arc::clone(&self.drain).run(),
                heads::watch(&self.store, &self.world),
                self.retention.watch(),
                self.scheduler.watch(),
                self.failed_sign_ins.watch(),
                self.packages.watch(),
                self.case_forward.run(),
                self.case_reminders.watch(),
                self.reminders.watch()
            );
        };
        let dropped_at_stop = async {
            tokio::select! {
                () = stop.stopped() => {}
                () = loops => {}
            }
        };
        tokio::join!(dropped_at_stop, self.mailer.send(stop), self.runner.run(stop));
    }
}
