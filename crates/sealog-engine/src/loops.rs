//! Work that no request waits for. Each loop goes on by itself and may be dropped wherever it waits: what it
//! had not done yet is found again at the next start. Two end by themselves: a mail that is on its way should
//! be noted as sent, and a job that was begun is given back.

use std::sync::Arc;

use sealog_service::Stop;
use sealog_service::ingest::geo;
use sealog_service::jobs::supervise::Loop;
use sealog_service::records::heads;

use crate::service::Service;

impl Service {
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
            Loop::new("geo", || geo::follow(self.settings.geo.as_ref(), self.settings.intervals.geo_every)),
            Loop::new("quotas", || self.quotas.watch()),
            Loop::new("drain", || Arc::clone(&self.drain).run()),
            Loop::new("heads", || heads::watch(&self.store, &self.world)),
            Loop::new("retention", || self.retention.watch()),
            Loop::new("schedule", || self.scheduler.watch()),
            Loop::new("sign_ins", || self.failed_sign_ins.watch()),
            Loop::new("packages", || self.package_sweep.watch()),
            Loop::new("case_events", || self.case_forward.run()),
            Loop::new("case_reminders", || self.case_reminders.watch()),
            Loop::new("reminders", || self.reminders.watch()),
            Loop::new("trust", || self.watch_trust()),
        ]
    }

    async fn watch_trust(&self) {
        if let Some(trust) = &self.settings.trust {
            trust.watch().await;
        }
    }

    /// Those that end by themselves.
    fn told_to_stop<'a>(&'a self, stop: &'a Stop) -> Vec<Loop<'a>> {
        vec![Loop::new("mailer", || self.mailer.send(stop)), Loop::new("runner", || self.runner.run(stop))]
    }
}
