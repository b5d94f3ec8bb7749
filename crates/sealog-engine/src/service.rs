//! How the product is put together.

use std::sync::{Arc, Mutex};

use sealog_cases::disclosure::{Disclosures, PackageBuilder, PackageSweep, Searcher};
use sealog_cases::{CaseDesk, CaseForward, CaseReminders};
use sealog_control::Control;
use sealog_service::evidence::exports::Exporter;
use sealog_service::evidence::verification::{
    Baseline, DerivedCheck, Figures, Scheduler, Verifications, Verifier,
};
use sealog_service::ingest::Ingest;
use sealog_service::ingest::quota::{Changed, Quotas};
use sealog_service::jobs::supervise::Supervision;
use sealog_service::jobs::{Pace, Runner};
use sealog_service::people::account::{FailedSignIns, People};
use sealog_service::people::admin::Admin;
use sealog_service::people::mail::Mailer;
use sealog_service::people::notices::Reminders;
use sealog_service::people::notify::Notifier;
use sealog_service::people::ops::{Desk, Operators};
use sealog_service::people::sign_in::Accounts;
use sealog_service::records::retention::Retention;
use sealog_service::records::system_chain::{Drain, Turns, Wake};
use sealog_store::Store;
use sealog_store::world::World;

use crate::settings::Settings;
use crate::trust::Trust;

/// Everything that requests, pages and background loops share: one for each process.
pub struct Service {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    pub settings: Settings,
    pub ingest: Ingest,
    pub admin: Admin,
    pub accounts: Accounts<People>,
    pub notifier: Notifier,
    pub exporter: Exporter,
    pub verifications: Verifications,
    pub cases: CaseDesk,
    pub disclosures: Disclosures,
    pub operators: Accounts<Operators>,
    pub ops_desk: Desk,
    pub drain: Arc<Drain>,
    pub runner: Arc<Runner>,
    pub scheduler: Scheduler,
    pub package_sweep: PackageSweep,
    pub failed_sign_ins: FailedSignIns,
    pub supervision: Supervision,
    pub(crate) quotas: Quotas,
    pub(crate) mailer: Mailer,
    pub(crate) retention: Retention,
    pub(crate) case_forward: CaseForward,
    pub(crate) case_reminders: CaseReminders,
    pub(crate) reminders: Reminders,
}

impl Service {
    /// Trees, store log and signer; None with `trust.enabled = false`.
    pub fn trust(&self) -> Option<&Arc<Trust>> {
        self.settings.trust.as_ref()
    }

    /// What is wrong with the trees and the store log, in words for the operator.
    pub fn trust_trouble(&self) -> Vec<String> {
        self.trust().map_or_else(Vec::new, |trust| trust.trouble())
    }

    pub fn new(
        store: Arc<dyn Store>,
        control: Arc<Control>,
        world: Arc<dyn World>,
        settings: Settings,
    ) -> Arc<Service> {
        let shared = || (Arc::clone(&store), Arc::clone(&control), Arc::clone(&world));
        let every = settings.intervals;
        let changed = Arc::new(Changed::default());
        // Whoever adds records wakes the drain, and whoever queues a job wakes the runner.
        let (records, queued, case_events) = (Wake::default(), Wake::default(), Wake::default());
        let ingest = Ingest::new(Arc::clone(&store), settings.geo.clone(), Arc::clone(&changed));
        let notifier = Notifier::new(&control, Arc::clone(&world));
        let admin = Admin::new(Arc::clone(&control), Arc::clone(&world), &settings.plans, records.clone());
        let drain = {
            let (store, control, world) = shared();
            let (ingest, wake, turns) = (ingest.clone(), records.clone(), Turns::default());
            Arc::new(Drain { control, store, ingest, world, wake, every: every.drain_every, turns })
        };
        let disclosures =
            Disclosures::new(&control, Arc::clone(&store), Arc::clone(&world), Arc::clone(&drain), &queued);
        let runner = {
            let (store, control, world) = shared();
            let verifier = Verifier { store, control, world };
            let (store, control, world) = shared();
            let baseline = Baseline { store, control, drain: Arc::clone(&drain), world };
            let (store, control, world) = shared();
            Arc::new(Runner {
                works: vec![
                    Arc::new(verifier),
                    Arc::new(DerivedCheck { store, control: Arc::clone(&control) }),
                    Arc::new(baseline),
                    Arc::new(Searcher::of(&disclosures)),
                    Arc::new(PackageBuilder::new(disclosures.clone())),
                ],
                control,
                world,
                wake: queued.clone(),
                records: records.clone(),
                every: every.jobs_every,
                pace: Pace::default(),
            })
        };
        let accounts = Accounts::new(
            People { wake: records.clone() },
            Arc::clone(&control),
            Arc::clone(&world),
            Arc::clone(admin.sign_ins()),
        );
        let quotas = {
            let (store, control, world) = shared();
            let plans = settings.plans.clone();
            Quotas { store, control, world, plans, changed, every: every.quota_every }
        };
        let retention = {
            let (store, control, world) = shared();
            let (days, drain) = (settings.test_retention_days, Arc::clone(&drain));
            Retention { store, control, world, days, drain, recorded: Mutex::default() }
        };
        let scheduler = {
            let (store, control, world) = shared();
            Scheduler {
                store,
                control,
                world,
                schedule: settings.verification,
                has_mail: settings.smtp.is_some(),
                runner: queued.clone(),
                every: every.jobs_every,
                figures: Figures::default(),
            }
        };
        let case_forward = {
            let (store, control, world) = shared();
            CaseForward {
                events: Arc::clone(&control) as _,
                control,
                store,
                ingest: ingest.clone(),
                world,
                plans: settings.plans.clone(),
                wake: case_events.clone(),
                every: every.case_events_every,
            }
        };
        let verifications = {
            let (store, control, world) = shared();
            Verifications { control, store, world, runner: queued, records: records.clone() }
        };
        let exporter = {
            let (store, control, world) = shared();
            Exporter { control, store, notifier: notifier.clone(), world, drain: Arc::clone(&drain) }
        };
        let ops_desk = {
            let (store, control, world) = shared();
            Desk { control, store, world, wake: records.clone() }
        };
        let (of_control, of_world) = (|| Arc::clone(&control), || Arc::clone(&world));
        Arc::new(Service {
            cases: CaseDesk::new(&control, of_world(), records.clone(), case_events),
            operators: Accounts::new(Operators, of_control(), of_world(), Arc::default()),
            mailer: Mailer {
                control: of_control(),
                world: of_world(),
                smtp: settings.smtp.clone(),
                app_url: settings.app_url.clone(),
                every: every.mail_every,
                attempt_max: every.mail_attempt_max,
            },
            failed_sign_ins: FailedSignIns {
                control: of_control(),
                world: of_world(),
                wake: records.clone(),
            },
            package_sweep: PackageSweep {
                control: of_control(),
                world: of_world(),
                records,
                every: every.packages_every,
            },
            case_reminders: CaseReminders {
                control: of_control(),
                notifier: notifier.clone(),
                world: of_world(),
                every: every.case_reminders_every,
            },
            reminders: Reminders::new(&control, of_world(), every.reminders_every),
            supervision: Supervision::new(every.at_begin),
            ingest,
            admin,
            accounts,
            notifier,
            exporter,
            verifications,
            disclosures,
            ops_desk,
            drain,
            runner,
            scheduler,
            quotas,
            retention,
            case_forward,
            store,
            control,
            world,
            settings,
        })
    }
}
