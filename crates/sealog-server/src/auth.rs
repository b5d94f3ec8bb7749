//! Who is calling: the key, and everything that follows from it. Spec 5.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sealog_core::catalog::{CustomAction, FrameworkSet, Scope};
use sealog_core::id::{ChainId, Hash, Mode, RequestId};
use sealog_core::key::{self, KeyState};
use sealog_core::plan::{Billing, Plan};
use sealog_core::reject::Reject;
use sealog_store::accounts::Access;

use crate::App;
use crate::limits::{Counted, share};
use crate::respond::Failure;

/// A caller whose key exists. Tenant and project come from here and from nowhere else.
#[derive(Debug)]
pub(crate) struct Caller {
    pub chain: ChainId,
    state: KeyState,
    billing: Billing,
    plan_frameworks: FrameworkSet,
    enabled: FrameworkSet,
    ever_enabled: FrameworkSet,
    pub tenant_enabled: FrameworkSet,
    pub custom: HashMap<String, CustomAction>,
    rate: (Counted, u32),
    /// Whether events count against a quota.
    pub has_quota: bool,
}

impl Caller {
    fn new(access: Access, app: &App) -> Caller {
        let Access { key, project, tenant, actions, tenant_frameworks, .. } = access;
        let plan = app.config.plans.iter().find(|plan| plan.name == tenant.plan);
        let limits = &app.config.limits;
        let live_rps = |plan: &Plan| limits.live_rps.unwrap_or(plan.requests_per_s);
        let rate = match (key.mode, project.rate_limit_rps) {
            (Mode::Test, _) => (Counted::TestKey(key.id), limits.test_rps),
            // A project with a rate of its own is counted apart from its tenant.
            (Mode::Live, Some(rps)) => (Counted::Project(project.id), rps),
            (Mode::Live, None) => {
                (Counted::Tenant(tenant.id), tenant.rate_limit_rps.or(plan.map(live_rps)).unwrap_or(0))
            }
        };
        Caller {
            chain: ChainId { tenant_id: tenant.id, project_id: project.id, mode: key.mode },
            state: key.state(),
            billing: tenant.billing,
            // A plan that the configuration no longer has includes nothing.
            plan_frameworks: plan.map_or(FrameworkSet::NONE, |plan| plan.frameworks),
            enabled: project.frameworks,
            ever_enabled: project.frameworks_ever,
            tenant_enabled: tenant_frameworks,
            custom: actions.into_iter().map(|action| (action.action.clone(), action)).collect(),
            rate: (rate.0, share(rate.1, limits.nodes)),
            has_quota: key.mode == Mode::Live && plan.is_some_and(|plan| plan.events_per_month.is_some()),
        }
    }

    /// What decides about the caller's actions.
    pub(crate) fn scope(&self) -> Scope<'_> {
        Scope {
            enabled: self.enabled,
            ever_enabled: self.ever_enabled,
            in_plan: self.plan_frameworks,
            custom: &self.custom,
        }
    }

    /// Whether events may be sent: a trial that has ended stops them.
    pub(crate) fn may_ingest(&self, now_ms: u64) -> Result<(), Reject> {
        if self.billing.allows_ingest(now_ms) { Ok(()) } else { Err(Reject::TrialExpired) }
    }
}

/// Callers by the digest of their key, for as long as nothing has changed.
#[derive(Debug, Default)]
pub(crate) struct Callers {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    version: u64,
    by_digest: HashMap<Hash, Arc<Caller>>,
}

/// Most callers that are remembered; past it all are forgotten and asked for again.
const CALLERS_MAX: usize = 100_000;

/// Authenticates a request and counts it against its rate.
pub(crate) async fn authenticate(
    app: &App,
    headers: &HeaderMap,
    request_id: RequestId,
) -> Result<Arc<Caller>, Failure> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let header = match (values.next(), values.next()) {
        (Some(value), None) => Some(value.to_str().map_err(|_| Reject::InvalidFormat)?),
        (None, _) => None,
        // Which of two keys is meant is not for the server to guess.
        (Some(_), Some(_)) => return Err(Reject::InvalidFormat.into()),
    };
    let presented = key::parse_authorization(header)?;
    let caller = find(app, presented.digest, request_id).await?.ok_or(Reject::KeyNotFound)?;
    // The digest covers the prefix, so the mode is the key's; asserted because live and test must never mix.
    assert_eq!(caller.chain.mode, presented.mode, "a key's prefix says its mode");
    let now_ms = app.world.now_ms();
    caller.state.check(now_ms)?;
    let (counted, limit) = caller.rate;
    if !app.limits.admit(counted, limit, now_ms) {
        return Err(
            if caller.chain.mode == Mode::Live { Reject::RateLimit } else { Reject::TestRateLimit }.into()
        );
    }
    Ok(caller)
}

async fn find(app: &App, digest: Hash, request_id: RequestId) -> Result<Option<Arc<Caller>>, Failure> {
    let version = app.accounts.version();
    {
        let known = app.callers.known.read().expect("callers lock");
        if known.version == version
            && let Some(caller) = known.by_digest.get(&digest)
        {
            return Ok(Some(Arc::clone(caller)));
        }
    }
    // Asked after the version was read: what is remembered under it is at least as new.
    let access = app.accounts.access(digest).await.map_err(|error| Failure::internal(&error, request_id))?;
    let Some(access) = access else { return Ok(None) };
    let caller = Arc::new(Caller::new(access, app));
    let mut known = app.callers.known.write().expect("callers lock");
    if known.version != version || known.by_digest.len() >= CALLERS_MAX {
        known.by_digest.clear();
        known.version = version;
    }
    known.by_digest.insert(digest, Arc::clone(&caller));
    Ok(Some(caller))
}
