//! Who is calling: the key, and everything that follows from it. Spec 5.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use sealog_control::{Access, KeyAccess, KeyId, KeyUse, MonitorAccess, MonitorTokenId, Tenant};
use sealog_core::catalog::FrameworkSet;
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, RequestId};
use sealog_core::key::{self, KeyState, Presented};
use sealog_core::plan::{Billing, Plan};
use sealog_core::reject::Reject;
use sealog_service::Secret;
use sealog_service::ingest::Producer;
use sealog_store::IdMap;
use sealog_store::sync::{lock, read, write};
use sha2::{Digest, Sha256};

use crate::config::{Config, LimitConfig};
use crate::limits::{Counted, Limits, share};
use crate::respond::Failure;

/// A caller whose key exists. Tenant and project come from here and from nowhere else.
#[derive(Debug)]
pub(crate) struct Caller {
    pub producer: Arc<Producer>,
    state: KeyState,
    billing: Billing,
    pub tenant_enabled: FrameworkSet,
    rate: (Counted, u32),
    key_id: KeyId,
    /// When the key was last used, and requests since that was last written.
    used_ms: AtomicU64,
    requests: AtomicU64,
    /// Of the control data, from before this was asked for: it is true for as long as nothing of its tenant
    /// has changed since.
    version: u64,
    /// The version up to which that was looked at.
    checked: AtomicU64,
}

impl Caller {
    fn new(access: Access, version: u64, plans: &[Plan], limits: &LimitConfig) -> Caller {
        let Access { key, project, tenant, actions, tenant_frameworks, .. } = access;
        let known = plans.iter().find(|plan| plan.name == tenant.plan).cloned();
        let plan = known.unwrap_or_else(|| Plan::unknown(&tenant.plan));
        let rate = match key.mode {
            Mode::Test => (Counted::TestKey(key.id), limits.test_rps),
            Mode::Live => live_rate(&tenant, project.id, project.rate_limit_rps, &plan, limits),
        };
        Caller {
            producer: Arc::new(Producer {
                chain: ChainId { tenant_id: tenant.id, project_id: project.id, mode: key.mode },
                enabled: project.frameworks,
                ever_enabled: project.frameworks_ever,
                in_plan: plan.frameworks,
                custom: actions.into_iter().map(|action| (action.action.clone(), action)).collect(),
                has_quota: key.mode == Mode::Live && plan.events_per_month.is_some(),
            }),
            state: key.state(),
            billing: tenant.billing,
            tenant_enabled: tenant_frameworks,
            rate: (rate.0, share(rate.1, limits.nodes)),
            key_id: key.id,
            used_ms: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            version,
            checked: AtomicU64::new(version),
        }
    }

    /// Whether everything about the caller is still true. What other tenants change leaves it alone.
    fn is_current(&self, keys: &dyn KeyAccess) -> bool {
        // Read first: a change that comes in between has a higher one, and is looked at the next time.
        let version = keys.version();
        if self.checked.load(Ordering::Relaxed) == version {
            return true;
        }
        let current = keys.version_of(self.chain().tenant_id) <= self.version;
        if current {
            self.checked.store(version, Ordering::Relaxed);
        }
        current
    }

    /// The chain of the key.
    pub(crate) fn chain(&self) -> ChainId {
        self.producer.chain
    }

    /// Uses of the key that have not been taken yet.
    fn take_use(&self) -> Option<KeyUse> {
        let requests = self.requests.swap(0, Ordering::Relaxed);
        let used_at_ms = self.used_ms.load(Ordering::Relaxed);
        (requests > 0).then_some(KeyUse { key_id: self.key_id, used_at_ms, requests })
    }

    /// Counts the further batches of a request that was admitted. Called before the first of them is stored:
    /// what is counted afterwards limits nobody who sends many at once.
    pub(crate) fn charge(&self, rates: &Limits, batches: usize, now_ms: u64) -> Result<(), Reject> {
        let (counted, limit) = self.rate;
        let work = u32::try_from(batches).unwrap_or(u32::MAX);
        if rates.charge(counted, limit, work, now_ms) { Ok(()) } else { Err(self.over_the_rate()) }
    }

    fn over_the_rate(&self) -> Reject {
        if self.chain().mode == Mode::Live { Reject::RateLimit } else { Reject::TestRateLimit }
    }

    /// Whether events may be sent: a trial that has ended stops them.
    pub(crate) fn may_ingest(&self, now_ms: u64) -> Result<(), Reject> {
        if self.billing.allows_ingest(now_ms) { Ok(()) } else { Err(Reject::TrialExpired) }
    }
}

/// A project with a rate of its own is counted apart from its tenant.
fn live_rate(
    tenant: &Tenant,
    project: ProjectId,
    project_rps: Option<u32>,
    plan: &Plan,
    limits: &LimitConfig,
) -> (Counted, u32) {
    let live_rps = limits.live_rps.unwrap_or(plan.requests_per_s);
    match project_rps {
        Some(rps) => (Counted::Project(project), rps),
        None => (Counted::Tenant(tenant.id), tenant.rate_limit_rps.unwrap_or(live_rps)),
    }
}

/// Who asks for proofs of a chain: with a key of it, or with a monitor token for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    pub chain: ChainId,
    /// A token has neither leaves nor salts, since both tell of events.
    pub reads_events: bool,
}

/// Callers by the digest of their key, each for as long as nothing of its tenant has changed.
#[derive(Debug, Default)]
struct Callers {
    known: RwLock<IdMap<Hash, Arc<Caller>>>,
    /// Uses of keys whose callers were forgotten.
    uses: Mutex<HashMap<KeyId, KeyUse>>,
}

impl Callers {
    /// What is known of the use of a key goes into its next writing.
    fn forget(&self, callers: impl Iterator<Item = Arc<Caller>>) {
        let mut uses = lock(&self.uses);
        callers.filter_map(|caller| caller.take_use()).for_each(|used| add(&mut uses, used));
    }
}

fn add(uses: &mut HashMap<KeyId, KeyUse>, used: KeyUse) {
    let known = uses.entry(used.key_id).or_insert(KeyUse { requests: 0, ..used });
    known.used_at_ms = known.used_at_ms.max(used.used_at_ms);
    known.requests += used.requests;
}

/// Most callers that are remembered; past it all are forgotten and asked for again.
const CALLERS_MAX: usize = 100_000;

/// Tells who is calling.
pub(crate) struct Auth {
    keys: Arc<dyn KeyAccess>,
    /// Without one, the operator's interface does not exist.
    operator_token: RwLock<Option<Secret>>,
    plans: Vec<Plan>,
    limits: LimitConfig,
    callers: Callers,
    /// When monitor tokens were last used, until that is written.
    tokens_used: Mutex<HashMap<MonitorTokenId, u64>>,
}

impl Auth {
    pub(crate) fn new(keys: Arc<dyn KeyAccess>, plans: Vec<Plan>, config: &Config) -> Auth {
        Auth {
            keys,
            operator_token: RwLock::new(config.operator_token.clone()),
            plans,
            limits: config.limits,
            callers: Callers::default(),
            tokens_used: Mutex::default(),
        }
    }

    /// Lets the operator through. Without a token in the configuration there is nothing to be let into.
    pub(crate) fn operator(&self, headers: &HeaderMap) -> Result<(), Reject> {
        let token = read(&self.operator_token);
        let token = token.as_ref().ok_or(Reject::PathNotFound)?;
        let presented = authorization(headers)?.ok_or(Reject::MissingHeader)?;
        let presented = presented.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let (_, presented) = presented.ok_or(Reject::InvalidFormat)?;
        // Digests are compared, so that the time it takes says nothing about the token.
        let right = Sha256::digest(presented.trim()) == Sha256::digest(&token.0);
        if right { Ok(()) } else { Err(Reject::WrongOperatorToken) }
    }

    pub(crate) fn operator_token(&self) -> Option<Secret> {
        read(&self.operator_token).clone()
    }

    /// From here on this token counts, and no other. Whether it is another one.
    pub(crate) fn replace_operator_token(&self, token: Option<Secret>) -> bool {
        let mut in_use = write(&self.operator_token);
        let is_other = *in_use != token;
        *in_use = token;
        is_other
    }

    /// Authenticates a request and counts it against its rate.
    pub(crate) async fn authenticate(
        &self,
        rates: &Limits,
        headers: &HeaderMap,
        request_id: RequestId,
    ) -> Result<Arc<Caller>, Failure> {
        let presented = key::parse_authorization(authorization(headers)?)?;
        let caller = self.find(&presented, request_id).await?.ok_or(Reject::KeyNotFound)?;
        // The digest covers the prefix, so the mode is the key's; asserted because live and test must never
        // mix.
        assert_eq!(caller.chain().mode, presented.mode, "a key's prefix says its mode");
        let now_ms = request_id.received_ms();
        caller.state.check(now_ms)?;
        caller.used_ms.fetch_max(now_ms, Ordering::Relaxed);
        caller.requests.fetch_add(1, Ordering::Relaxed);
        let (counted, limit) = caller.rate;
        if !rates.admit(counted, limit, now_ms) {
            return Err(caller.over_the_rate().into());
        }
        Ok(caller)
    }

    /// As [`Auth::authenticate`], for routes that take monitor tokens, too. A token is looked up each time:
    /// monitors ask seldom.
    pub(crate) async fn watcher(
        &self,
        rates: &Limits,
        headers: &HeaderMap,
        request_id: RequestId,
    ) -> Result<Watcher, Failure> {
        let Some(digest) = key::parse_monitor_token(authorization(headers)?)? else {
            let chain = self.authenticate(rates, headers, request_id).await?.chain();
            return Ok(Watcher { chain, reads_events: true });
        };
        let access = self.keys.monitor_access(digest).await;
        let access = access.map_err(|error| Failure::control(&error, request_id))?;
        let MonitorAccess { token, tenant, project_rate_rps } = access.ok_or(Reject::KeyNotFound)?;
        let now_ms = request_id.received_ms();
        token.state().check(now_ms)?;
        lock(&self.tokens_used).entry(token.id).and_modify(|at| *at = now_ms.max(*at)).or_insert(now_ms);
        let known = self.plans.iter().find(|plan| plan.name == tenant.plan).cloned();
        let plan = known.unwrap_or_else(|| Plan::unknown(&tenant.plan));
        let (counted, rps) = live_rate(&tenant, token.project_id, project_rate_rps, &plan, &self.limits);
        if !rates.admit(counted, share(rps, self.limits.nodes), now_ms) {
            return Err(Reject::RateLimit.into());
        }
        Ok(Watcher { chain: token.chain(), reads_events: false })
    }

    async fn find(
        &self,
        presented: &Presented<'_>,
        request_id: RequestId,
    ) -> Result<Option<Arc<Caller>>, Failure> {
        let (digest, keys) = (presented.digest, &*self.keys);
        if let Some(caller) = read(&self.callers.known).get(&digest)
            && caller.is_current(keys)
            && keys.hears_of_changes()
        {
            return Ok(Some(Arc::clone(caller)));
        }
        presented.check_form()?;
        // Asked after the version was read: what is remembered under it is at least as new.
        let version = keys.version();
        let access = keys.access(digest).await.map_err(|error| Failure::control(&error, request_id))?;
        let Some(access) = access else { return Ok(None) };
        let caller = Arc::new(Caller::new(access, version, &self.plans, &self.limits));
        let mut known = write(&self.callers.known);
        if known.len() >= CALLERS_MAX && !known.contains_key(&digest) {
            self.callers.forget(known.drain().map(|(_, caller)| caller));
        }
        self.callers.forget(known.insert(digest, Arc::clone(&caller)).into_iter());
        Ok(Some(caller))
    }

    /// Writes when keys were last used, and how often. Kept in memory until then, so that a request need not
    /// write anything but its events.
    pub(crate) async fn write_key_uses(&self) {
        let mut uses = std::mem::take(&mut *lock(&self.callers.uses));
        for caller in read(&self.callers.known).values() {
            if let Some(used) = caller.take_use() {
                add(&mut uses, used);
            }
        }
        if !uses.is_empty()
            && let Err(error) = self.keys.keys_used(uses.into_values().collect()).await
        {
            tracing::warn!(%error, "failed to record the last use of some keys");
        }
        let tokens = std::mem::take(&mut *lock(&self.tokens_used));
        if !tokens.is_empty()
            && let Err(error) = self.keys.monitor_tokens_used(tokens.into_iter().collect()).await
        {
            tracing::warn!(%error, "failed to record the last use of some monitor tokens");
        }
    }
}

/// The `Authorization` header, if there is one. Which of two is meant is not for the server to guess.
fn authorization(headers: &HeaderMap) -> Result<Option<&str>, Reject> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().map(Some).map_err(|_| Reject::InvalidFormat),
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(Reject::InvalidFormat),
    }
}
