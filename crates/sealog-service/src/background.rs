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
use crate::supervise::{Loop, Supervision};
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
    /// See [`Supervision::new`]. Does nothing, but in tests.
    pub at_begin: fn(&'static str),
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
            at_begin: |_| {},
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
    pub supervision: Supervision,
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").field("intervals", &self.intervals).finish_non_exhaustive()
    }
}

impl Jobs {
    /// Runs until it is told to stop. Once for each process, whatever the number of event loops.
    pub async fn run(&self, stop: &Stop) {
        let dropped_at_stop = async {
            tokio::select! {
                () = stop.stopped() => {}
                () = self.supervision.supervise_all(self.dropped_at_stop(), stop) => {}
            }
        };
        tokio::join!(dropped_at_stop, self.supervision.supervise_all(self.told_to_stop(stop), stop));
    }

    /// Every loop is in one of these two tables, and nowhere else is one run: whatever is here is supervised,
    /// counted in `/metrics`, and fed a panic by the tests.
    fn dropped_at_stop(&self) -> Vec<Loop<'_>> {
        vec![
            Loop::new("geo", || geo::follow(self.geo.as_ref(), self.intervals.geo_every)),
            Loop::new("quotas", || self.quotas.watch()),
            Loop::new("drain", || Arc::clone(&self.drain).run()),
            Loop::new("heads", || heads::watch(&self.store, &self.world)),
            Loop::new("retention", || self.retention.watch()),
            Loop::new("schedule", || self.scheduler.watch()),
            Loop::new("sign_ins", || self.failed_sign_ins.watch()),
            Loop::new("packages", || self.packages.watch()),
            Loop::new("case_events", || self.case_forward.run()),
            Loop::new("case_reminders", || self.case_reminders.watch()),
            Loop::new("reminders", || self.reminders.watch()),
        ]
    }

    /// Those that end by themselves.
    fn told_to_stop<'a>(&'a self, stop: &'a Stop) -> Vec<Loop<'a>> {
        vec![Loop::new("mailer", || self.mailer.send(stop)), Loop::new("runner", || self.runner.run(stop))]
    }
}
