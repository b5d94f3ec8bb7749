//! The way back: a list is walked from the newest event to older ones, and no index knows what comes before a
//! page. So a page carries where those before it began, the last ones of them.

/// The parameter.
pub(crate) const PARAMETER: &str = "trail";
/// Pages that are remembered; behind them the way back leads to the newest events.
const PAGES_MAX: usize = 20;

/// Where pages began: below a `chain_seq`, or at the newest event, which is 0.
pub(crate) struct Trail(Vec<u64>);

impl Trail {
    /// What is none is an empty one.
    pub(crate) fn of(pairs: &[(String, String)]) -> Trail {
        let text = pairs.iter().find(|(name, _)| name == PARAMETER).map_or("", |(_, value)| value);
        let pages: Option<Vec<u64>> =
            text.split('.').take(PAGES_MAX + 1).map(|seq| seq.parse().ok()).collect();
        Trail(pages.filter(|pages| pages.len() <= PAGES_MAX).unwrap_or_default())
    }

    /// Where the page before this one began, and its own trail.
    pub(crate) fn newer(&self) -> Option<(Option<u64>, String)> {
        let (last, rest) = self.0.split_last()?;
        Some(((*last > 0).then_some(*last), text(rest)))
    }

    /// The trail of the page behind one that began here.
    pub(crate) fn older(&self, before_seq: Option<u64>) -> String {
        let mut pages = self.0.clone();
        pages.push(before_seq.unwrap_or(0));
        text(&pages[pages.len().saturating_sub(PAGES_MAX)..])
    }
}

fn text(pages: &[u64]) -> String {
    pages.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Trail {
        Trail::of(&[(PARAMETER.to_owned(), text.to_owned())])
    }

    #[test]
    fn a_trail_leads_back_page_by_page() {
        assert_eq!(of("").newer(), None);
        let older = of("").older(None);
        assert_eq!(older, "0");
        let older = of(&older).older(Some(71));
        assert_eq!(older, "0.71");
        assert_eq!(of(&older).newer(), Some((Some(71), "0".into())));
        assert_eq!(of("0").newer(), Some((None, String::new())));
    }

    #[test]
    fn a_trail_is_bounded_and_nonsense_is_none() {
        let mut trail = String::new();
        for seq in 1..100 {
            trail = of(&trail).older(Some(seq));
        }
        assert_eq!(trail.split('.').count(), PAGES_MAX);
        for nonsense in ["x", "1.", "-1", &"1.".repeat(100_000)] {
            assert_eq!(of(nonsense).newer(), None);
        }
    }
}
