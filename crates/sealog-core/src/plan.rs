//! What a tenant has paid for: quota, frameworks, rate, trial.

use crate::catalog::{Catalog, FrameworkSet};

/// The default rate of a plan.
const REQUESTS_PER_S: u32 = 1000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub name: String,
    /// None for unlimited.
    pub events_per_month: Option<u64>,
    pub frameworks: FrameworkSet,
    pub requests_per_s: u32,
    /// True if an organisation may set a maximum lifetime for its keys.
    pub key_expiry_policy: bool,
}

impl Plan {
    /// The plans as delivered; an operator's configuration may replace them.
    pub fn defaults() -> Vec<Plan> {
        let catalog = Catalog::builtin();
        let set =
            |ids: &[&str]| catalog.framework_set(ids.iter().copied()).expect("these ids are in the catalog");
        let plan = |name: &str, events_per_month, frameworks| Plan {
            name: name.into(),
            events_per_month,
            frameworks,
            requests_per_s: REQUESTS_PER_S,
            key_expiry_policy: name != "entry",
        };
        vec![
            plan("entry", Some(250_000), set(&["soc2", "iso27001", "gdpr", "ccpa"])),
            plan(
                "middle",
                Some(1_000_000),
                FrameworkSet::ALL.without(set(&["fedramp", "eu_ai_act", "csrd"])),
            ),
            plan("top", None, FrameworkSet::ALL),
        ]
    }

    /// A plan of this name with the defaults: no quota, no framework.
    pub fn named(name: &str) -> Plan {
        Plan {
            name: name.into(),
            events_per_month: None,
            frameworks: FrameworkSet::NONE,
            requests_per_s: REQUESTS_PER_S,
            key_expiry_policy: false,
        }
    }

    /// Replaces a plan that the configuration no longer has. Evidence comes first: events of the tenant's
    /// enabled frameworks are still accepted, and its key policy applies. Pages enable no further framework.
    pub fn unknown(name: &str) -> Plan {
        Plan { frameworks: FrameworkSet::ALL, key_expiry_policy: true, ..Plan::named(name) }
    }

    /// The notices that are due when a month's count goes from `before` to `after`. One batch can pass both.
    pub fn notices_due(&self, before: u64, after: u64) -> Vec<QuotaNotice> {
        let Some(quota) = self.events_per_month else { return Vec::new() };
        let passed = |notice: &QuotaNotice| {
            let threshold = notice.threshold(quota);
            before < threshold && threshold <= after
        };
        [QuotaNotice::Percent80, QuotaNotice::Percent100].into_iter().filter(passed).collect()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuotaNotice {
    Percent80,
    Percent100,
}

impl QuotaNotice {
    pub fn percent(self) -> u8 {
        match self {
            QuotaNotice::Percent80 => 80,
            QuotaNotice::Percent100 => 100,
        }
    }

    /// The smallest count that reaches the share of the quota.
    fn threshold(self, quota: u64) -> u64 {
        // Through u128, since an operator may set any quota.
        let exact = u128::from(quota) * u128::from(self.percent());
        u64::try_from(exact.div_ceil(100)).unwrap_or(u64::MAX)
    }
}

/// Trial and billing of a tenant. After the trial, events are rejected unless billing is active. Without a
/// trial date nothing expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Billing {
    pub trial_ends_at_ms: Option<u64>,
    pub billing_active: bool,
}

impl Billing {
    pub fn allows_ingest(&self, now_ms: u64) -> bool {
        self.billing_active || self.trial_ends_at_ms.is_none_or(|end| now_ms < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plans_are_the_specifications() {
        let plans = Plan::defaults();
        let quotas: Vec<_> = plans
            .iter()
            .map(|plan| (plan.name.as_str(), plan.events_per_month, plan.requests_per_s))
            .collect();
        assert_eq!(
            quotas,
            [("entry", Some(250_000), 1000), ("middle", Some(1_000_000), 1000), ("top", None, 1000)]
        );
        let has = |plan: usize, id| {
            plans[plan].frameworks.contains(Catalog::builtin().framework_index(id).unwrap())
        };
        assert!(has(0, "gdpr") && !has(0, "hipaa"));
        assert!(has(1, "hipaa") && !has(1, "eu_ai_act") && !has(1, "fedramp") && !has(1, "csrd"));
        assert!(has(2, "eu_ai_act"));
    }

    #[test]
    fn notices_are_due_once_at_80_and_at_100_percent() {
        let plan = &Plan::defaults()[0];
        assert_eq!(plan.notices_due(199_998, 199_999), []);
        assert_eq!(plan.notices_due(199_999, 200_000), [QuotaNotice::Percent80]);
        assert_eq!(plan.notices_due(200_000, 249_999), []);
        assert_eq!(plan.notices_due(249_999, 250_050), [QuotaNotice::Percent100]);
        assert_eq!(plan.notices_due(0, 300_000), [QuotaNotice::Percent80, QuotaNotice::Percent100]);
        assert_eq!(Plan::defaults()[2].notices_due(0, u64::MAX), []);
    }

    #[test]
    fn a_trial_that_has_ended_stops_ingest_unless_billing_is_active() {
        let billing = |trial_ends_at_ms, billing_active| Billing { trial_ends_at_ms, billing_active };
        assert!(billing(Some(1000), false).allows_ingest(999));
        assert!(!billing(Some(1000), false).allows_ingest(1000));
        assert!(billing(Some(1000), true).allows_ingest(1000));
        assert!(billing(None, false).allows_ingest(u64::MAX));
    }
}
