//! Everything that requests share, put together. What is below it takes the parts that it uses; what is above it
//! (endpoints, connections) takes all of it.

use std::sync::{Arc, Mutex};

use sealog_control::{Control, KeyAccess};
use sealog_service::admin::Admin;
use sealog_service::background::{Jobs, Workers};
use sealog_service::cases::{CaseForward, CaseReminders};
use sealog_service::disclosure::{Disclosures, PackageBuilder, PackageSweep, Searcher};
use sealog_service::ingest::Ingest;
use sealog_service::jobs::{Pace, Runner};
use sealog_service::mail::Mailer;
use sealog_service::notices::Reminders;
use sealog_service::notify::Notifier;
use sealog_service::people::FailedSignIns;
use sealog_service::quota::{Changed, Quotas};
use sealog_service::replication::Replication;
use sealog_service::retention::Retention;
use sealog_service::supervise::Supervision;
use sealog_service::system_chain::{Drain, Turns, Wake};
use sealog_service::verification::{Baseline, DerivedCheck, Figures, Scheduler, Verifier};
use sealog_store::Store;
use sealog_store::world::World;

use crate::auth::Auth;
use crate::budget::Budget;
use crate::client_address::UntrustedForwarders;
use crate::config::Config;
use crate::connections::Connections;
use crate::docs::Docs;
use crate::limits::Limits;
use crate::metrics::Metrics;
use crate::openapi::Served;
use crate::ready::LastAnswer;

/// Everything that requests share.
pub struct App {
    pub store: Arc<dyn Store>,
    pub control: Arc<Control>,
    pub(crate) keys: Arc<dyn KeyAccess>,
    pub world: Arc<dyn World>,
    pub config: Config,
    pub(crate) auth: Auth,
    pub(crate) limits: Limits,
    pub(crate) connections: Arc<Connections>,
    pub(crate) ingest: Ingest,
    /// Also for pages: whoever uses it wakes the drain of this process.
    pub admin: Admin,
    pub(crate) jobs: Jobs,
    pub(crate) metrics: Metrics,
    /// Memory for answers, from the first byte that is read until the last one has left the write buffer.
    pub(crate) reads: Budget,
    /// Memory for large request bodies.
    pub(crate) bodies: Budget,
    pub(crate) openapi: Served,
    pub(crate) docs: Docs,
    pub(crate) started_ms: u64,
    /// Nothing where it is off.
    pub(crate) replication: Option<Replication>,
    pub(crate) last_ready: LastAnswer,
    pub(crate) untrusted_forwarders: UntrustedForwarders,
}

impl App {
    pub fn new(
        store: Arc<dyn Store>,
        control: Arc<Control>,
        world: Arc<dyn World>,
        config: Config,
    ) -> Arc<App> {
        let keys = Arc::clone(&control) as _;
        App::with_keys(store, control, keys, world, config)
    }

    /// As [`App::new`], with keys that are looked up elsewhere.
    pub fn with_keys(
        store: Arc<dyn Store>,
        control: Arc<Control>,
        keys: Arc<dyn KeyAccess>,
        world: Arc<dyn World>,
        config: Config,
    ) -> Arc<App> {
        let changed = Arc::new(Changed::default());
        let wake = Wake::default();
        let ingest = Ingest::new(Arc::clone(&store), config.geo.clone(), Arc::clone(&changed));
        let drain = Arc::new(Drain {
            control: Arc::clone(&control),
            store: Arc::clone(&store),
            ingest: ingest.clone(),
            world: Arc::clone(&world),
            wake: wake.clone(),
            every: config.background.drain_every,
            turns: Turns::default(),
        });
        let runner = Wake::default();
        let disclosures =
            Disclosures::new(&control, Arc::clone(&store), Arc::clone(&world), Arc::clone(&drain), &runner);
        let jobs = Jobs {
            store: Arc::clone(&store),
            world: Arc::clone(&world),
            geo: config.geo.clone(),
            quotas: Quotas {
                store: Arc::clone(&store),
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                plans: config.plans.clone(),
                changed,
                every: config.background.quota_every,
            },
            mailer: Mailer {
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                smtp: config.smtp.clone(),
                app_url: config.app_url.clone(),
                every: config.background.mail_every,
                attempt_max: config.background.mail_attempt_max,
            },
            drain: Arc::clone(&drain),
            runner: Arc::new(Runner {
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                works: vec![
                    Arc::new(Verifier {
                        store: Arc::clone(&store),
                        control: Arc::clone(&control),
                        world: Arc::clone(&world),
                    }),
                    Arc::new(DerivedCheck { store: Arc::clone(&store), control: Arc::clone(&control) }),
                    Arc::new(Baseline {
                        store: Arc::clone(&store),
                        control: Arc::clone(&control),
                        drain: Arc::clone(&drain),
                        world: Arc::clone(&world),
                    }),
                    Arc::new(Searcher::of(&disclosures)),
                    Arc::new(PackageBuilder::new(disclosures)),
                ],
                wake: runner.clone(),
                records: wake.clone(),
                every: config.background.jobs_every,
                pace: Pace::default(),
            }),
            retention: Retention {
                store: Arc::clone(&store),
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                days: config.test_retention_days,
                drain: Arc::clone(&drain),
                runner: runner.clone(),
                recorded: Mutex::default(),
            },
            scheduler: Scheduler {
                store: Arc::clone(&store),
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                schedule: config.verification,
                has_mail: config.smtp.is_some(),
                runner,
                every: config.background.jobs_every,
                figures: Figures::default(),
            },
            failed_sign_ins: FailedSignIns {
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                wake: wake.clone(),
            },
            packages: PackageSweep {
                control: Arc::clone(&control),
                world: Arc::clone(&world),
                records: wake.clone(),
                every: config.background.packages_every,
            },
            case_forward: CaseForward {
                events: Arc::clone(&control) as _,
                control: Arc::clone(&control),
                store: Arc::clone(&store),
                ingest: ingest.clone(),
                world: Arc::clone(&world),
                plans: config.plans.clone(),
                wake: Wake::default(),
                every: config.background.case_events_every,
            },
            case_reminders: CaseReminders {
                control: Arc::clone(&control),
                notifier: Notifier::new(&control, Arc::clone(&world)),
                world: Arc::clone(&world),
                every: config.background.case_reminders_every,
            },
            reminders: Reminders::new(&control, Arc::clone(&world), config.background.reminders_every),
            intervals: config.background,
            supervision: Supervision::new(config.background.at_begin),
        };
        let replication = if config.replication {
            Replication::new(Arc::clone(&store), Arc::clone(&control))
        } else {
            None
        };
        Arc::new(App {
            replication,
            admin: Admin::new(Arc::clone(&control), Arc::clone(&world), &config.plans, wake),
            auth: Auth::new(Arc::clone(&keys), &config),
            ingest,
            jobs,
            started_ms: world.now_ms(),
            store,
            control,
            keys,
            world,
            limits: Limits::default(),
            connections: Connections::new(config.connections_max, config.limits.connections_per_ip as usize),
            metrics: Metrics::default(),
            reads: Budget::new(config.memory.answers_bytes),
            bodies: Budget::new(config.memory.bodies_bytes),
            openapi: Served::new(&config),
            docs: Docs::default(),
            last_ready: LastAnswer::default(),
            untrusted_forwarders: UntrustedForwarders::default(),
            config,
        })
    }
}

impl App {
    /// Makes the pages of `/docs` before the first one is asked for. Takes a moment: for a thread of its own.
    pub fn prepare_docs(&self) {
        self.docs.prepare(&self.config);
    }

    /// For pages: what works in the background of this process.
    pub fn workers(&self) -> Workers {
        Workers {
            drain: Arc::clone(&self.jobs.drain),
            runner: Arc::clone(&self.jobs.runner),
            case_events: self.jobs.case_forward.wake.clone(),
        }
    }
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("App").field("config", &self.config).finish_non_exhaustive()
    }
}
