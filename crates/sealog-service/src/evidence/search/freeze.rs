//! A search that means the same whenever it runs.

use sealog_core::time::iso_ms;

use super::parse::{ParseError, Query};
use super::term::Condition;

/// The same search in which `last:24h` has become the time that it stands for now. It may be too long then,
/// which is said like any other mistake.
pub fn freeze(text: &str, now_ms: u64) -> Result<String, ParseError> {
    let mut frozen = text.trim().to_owned();
    // From the end, so that places before stay where they are.
    for term in Query::parse(&frozen)?.terms.iter().rev() {
        if let Condition::Last(ms) = term.condition {
            frozen.replace_range(term.at.clone(), &format!("from:{}", iso_ms(now_ms.saturating_sub(ms))));
        }
    }
    Query::parse(&frozen).map(|_| frozen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::search::parse::QUERY_BYTES_MAX;

    /// 2026-11-16T12:00:00.000Z.
    const NOW_MS: u64 = 1_794_830_400_000;

    #[test]
    fn what_is_relative_becomes_a_time_and_the_rest_stays_as_it_was_typed() {
        for (typed, frozen) in [
            ("", ""),
            ("last:24h", "from:2026-11-15T12:00:00.000Z"),
            (
                " actor:\"é \\\" last:7d\"  last:1w -action:a.* ",
                "actor:\"é \\\" last:7d\"  from:2026-11-09T12:00:00.000Z -action:a.*",
            ),
            ("from:2026-10-01 to:2026-10-31 \"last:24h\"", "from:2026-10-01 to:2026-10-31 \"last:24h\""),
            ("last:36525d", "from:1970-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(freeze(typed, NOW_MS).as_deref(), Ok(frozen));
            assert_eq!(freeze(frozen, NOW_MS + 1).as_deref(), Ok(frozen), "once frozen it stays");
        }
    }

    #[test]
    fn what_is_wrong_or_too_long_when_frozen_is_refused() {
        assert!(freeze("lost:24h", NOW_MS).is_err());
        let long = format!("last:24h \"{}\"", "x".repeat(QUERY_BYTES_MAX - 11));
        assert!(Query::parse(&long).is_ok());
        assert!(freeze(&long, NOW_MS).is_err());
    }
}
