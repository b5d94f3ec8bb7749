//! Fixed windows of one second. Spec 8.
//!
//! A window ends with its second and is then forgotten as a whole, so memory is bounded by what one second
//! can bring, and that is capped. Only what [`Limits::charge`] has counted beyond a limit is carried into the
//! next seconds, until their limits have paid for it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Mutex;

use sealog_control::KeyId;
use sealog_core::id::{ProjectId, TenantId};
use sealog_store::sync::lock;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    Address(IpAddr),
    Tenant(TenantId),
    Project(ProjectId),
    TestKey(KeyId),
    /// Old snapshots of the store log, whose trie may have to be made.
    Snapshots(TenantId),
    /// Everything that no longer has a place of its own in this second.
    Overflow,
}

/// Most counters that are kept at a time. Beyond it, newcomers of that second share one: an attacker with
/// that many addresses throttles strangers for a second, not the memory of the server.
const COUNTERS_MAX: usize = 100_000;

/// A request that came some seconds ago and is counted only now belongs to the present window; what is older
/// than this says that the clock was set back.
const LATE_SECONDS_MAX: u64 = 60;

#[derive(Debug, Default)]
pub(crate) struct Limits {
    window: Mutex<Window>,
}

#[derive(Debug, Default)]
struct Window {
    second: u64,
    counts: HashMap<Counted, u32>,
    /// Those that were charged beyond their limit, and that limit.
    charged: HashMap<Counted, u32>,
}

impl Window {
    fn roll_to(&mut self, second: u64) {
        if second <= self.second && self.second - second <= LATE_SECONDS_MAX {
            return;
        }
        let passed = u32::try_from(second.saturating_sub(self.second)).unwrap_or(u32::MAX);
        let counts = std::mem::take(&mut self.counts);
        let mut owed = Vec::new();
        // A clock that was set back ends all debts, as it ends all windows.
        self.charged.retain(|counted, limit| {
            let count = counts.get(counted).copied().unwrap_or_default();
            let left = if passed == 0 { 0 } else { count.saturating_sub(limit.saturating_mul(passed)) };
            owed.extend((left > 0).then_some((*counted, left)));
            left > 0
        });
        self.second = second;
        // A crowd's memory is given back, a normal second's is used again.
        self.counts = counts;
        let kept = self.counts.capacity().min(COUNTERS_MAX / 10);
        self.counts.clear();
        self.counts.shrink_to(kept);
        self.counts.extend(owed);
    }

    fn count(&mut self, counted: Counted) -> (Counted, &mut u32) {
        let known = self.counts.len() < COUNTERS_MAX || self.counts.contains_key(&counted);
        let counted = if known { counted } else { Counted::Overflow };
        (counted, self.counts.entry(counted).or_default())
    }
}

impl Limits {
    /// Counts a request, and says whether it is within the limit; 0 is no limit.
    pub(crate) fn admit(&self, counted: Counted, limit: u32, now_ms: u64) -> bool {
        if limit == 0 {
            return true;
        }
        let mut window = lock(&self.window);
        window.roll_to(now_ms / 1000);
        let (_, count) = window.count(counted);
        if *count >= limit {
            return false;
        }
        *count += 1;
        true
    }

    /// Counts further work of a request that was admitted, before that work is done. False, and nothing is
    /// counted, if others have gone beyond the limit meanwhile. One request may go beyond it; the seconds
    /// that follow pay for that.
    pub(crate) fn charge(&self, counted: Counted, limit: u32, work: u32, now_ms: u64) -> bool {
        if limit == 0 || work == 0 {
            return true;
        }
        let mut window = lock(&self.window);
        window.roll_to(now_ms / 1000);
        let (counted, count) = window.count(counted);
        if *count > limit {
            return false;
        }
        *count = count.saturating_add(work);
        if *count > limit {
            window.charged.insert(counted, limit);
        }
        true
    }
}

/// The address that is counted: all of an IPv4 address, the network half of an IPv6 one, since a single host
/// commonly has all of that.
pub(crate) fn counted_address(address: IpAddr) -> Counted {
    Counted::Address(match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX))),
        v4 => v4,
    })
}

/// A limit's share for one of several servers, at least 1.
pub(crate) fn share(limit: u32, nodes: u32) -> u32 {
    if limit == 0 { 0 } else { (limit / nodes.max(1)).max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Counted {
        counted_address(text.parse().unwrap())
    }

    #[test]
    fn a_window_is_a_second_of_the_clock() {
        let limits = Limits::default();
        let admitted = |now_ms| (0..150).filter(|_| limits.admit(address("10.0.0.1"), 100, now_ms)).count();
        assert_eq!(admitted(5999), 100);
        assert_eq!(admitted(5999), 0);
        assert_eq!(admitted(6000), 100);
        assert!(limits.admit(address("10.0.0.2"), 100, 6000));
    }

    #[test]
    fn what_is_counted_late_gives_nobody_a_new_window() {
        let limits = Limits::default();
        let admitted = |now_ms| (0..150).filter(|_| limits.admit(address("10.0.0.1"), 100, now_ms)).count();
        assert_eq!(admitted(9000), 100);
        assert!(limits.admit(address("10.0.0.2"), 100, 7000), "it has a place in this window");
        assert_eq!(admitted(9999), 0);
        assert_eq!(admitted(7000), 0);
        assert_eq!(admitted(10_000), 100);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_stop_everybody() {
        let limits = Limits::default();
        let admitted = |now_ms| (0..150).filter(|_| limits.admit(address("10.0.0.1"), 100, now_ms)).count();
        assert_eq!(admitted(3_600_000), 100);
        assert_eq!(admitted(1000), 100);
    }

    #[test]
    fn what_is_charged_beyond_the_limit_is_paid_for_by_the_seconds_that_follow() {
        let limits = Limits::default();
        let one = address("10.0.0.1");
        let admitted = |now_ms| (0..150).filter(|_| limits.admit(one, 60, now_ms)).count();
        assert!(limits.admit(one, 60, 1000) && limits.admit(one, 60, 1000), "two requests have come");
        assert!(limits.charge(one, 60, 148, 1000), "one of them may be large");
        assert!(!limits.charge(one, 60, 99, 1000), "and then the other may not");
        assert_eq!([admitted(1999), admitted(2000), admitted(3000), admitted(4000)], [0, 0, 30, 60]);
        assert!(limits.charge(one, 60, 1000, 4000), "what was refused was not counted");
        assert_eq!([admitted(20_000), admitted(21_000), admitted(22_000)], [0, 20, 60]);
        assert!(limits.charge(one, 60, 10_000, 100_000));
        assert_eq!(admitted(1000), 60, "a clock that is set back ends it");
    }

    #[test]
    fn zero_is_no_limit() {
        let limits = Limits::default();
        assert!((0..10_000).all(|_| limits.admit(address("10.0.0.1"), 0, 0)));
    }

    #[test]
    fn ipv6_is_counted_by_its_first_64_bits_and_mapped_ipv4_as_ipv4() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
    }

    #[test]
    fn a_million_addresses_do_not_take_a_million_counters() {
        let limits = Limits::default();
        for n in 0..1_000_000u32 {
            limits.admit(Counted::Address(IpAddr::V4(n.into())), 100, 1000);
        }
        assert!(limits.window.lock().unwrap().counts.len() <= COUNTERS_MAX + 1);
        limits.admit(address("10.0.0.1"), 100, 2000);
        assert!(limits.window.lock().unwrap().counts.capacity() <= COUNTERS_MAX / 4);
    }

    #[test]
    fn nodes_share_a_limit() {
        assert_eq!((share(1000, 4), share(3, 4), share(0, 4), share(100, 1)), (250, 1, 0, 100));
    }
}
