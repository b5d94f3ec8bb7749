//! What the metrics tell of sign-ins.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sign-ins that failed since the start, for the metrics.
#[derive(Debug, Default)]
pub struct SignInCounts {
    pub wrong_passwords: AtomicU64,
    pub wrong_codes: AtomicU64,
    pub unknown_accounts: AtomicU64,
    /// Refused without a look, since there were too many before.
    pub throttled: AtomicU64,
}

impl SignInCounts {
    /// With the word by which metrics tell them apart.
    pub fn by_cause(&self) -> [(&'static str, u64); 4] {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            ("wrong_password", load(&self.wrong_passwords)),
            ("wrong_code", load(&self.wrong_codes)),
            ("unknown_account", load(&self.unknown_accounts)),
            ("throttled", load(&self.throttled)),
        ]
    }
}
