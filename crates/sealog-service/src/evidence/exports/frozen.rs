//! What an export is of: the filters of the API, and a search of the query bar.

use std::sync::Arc;

use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::query::{Filter, ListQuery, form_decode};
use sealog_core::reject::Reject;

use super::seek::Seek;
use crate::evidence::search::term::{Condition, Term};
use crate::evidence::search::{Plan, Query};

/// The parameter that holds a search.
pub const SEARCH: &str = "q";

/// A query that has the same events whenever it is read.
#[derive(Clone, Debug)]
pub struct Frozen {
    /// Form-encoded.
    pub(super) query: String,
    pub(super) filter: Filter,
    pub(super) search: Option<Arc<Plan>>,
    pub(super) is_whole_range: bool,
    /// What indexes can be asked for, which has every event of the query; nothing where they cannot.
    indexed: Vec<Filter>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFrozen {
    Filter(Reject),
    /// What is wrong with the search, for people.
    Search(String),
}

impl Frozen {
    /// A search in it has been through [`crate::evidence::search::freeze`]: one that says `last:24h` is
    /// another one tomorrow, and is refused.
    pub fn read(query: &str, chain: ChainId) -> Result<Frozen, NotFrozen> {
        let is_search = |pair: &&str| pair.split('=').next() == Some(SEARCH);
        let (searches, filters): (Vec<&str>, Vec<&str>) = query.split('&').partition(is_search);
        let filter = ListQuery::parse(&filters.join("&"), chain).map_err(NotFrozen::Filter)?.filter;
        let text = match searches.as_slice() {
            [] => None,
            [pair] => {
                let value = pair.split_once('=').map_or("", |(_, value)| value);
                let badly = || NotFrozen::Search("The percent-encoding is invalid.".into());
                Some(form_decode(value).ok_or_else(badly)?)
            }
            _ => return Err(NotFrozen::Search("Use one search, not several.".into())),
        };
        let text = text.unwrap_or_default();
        let parsed = Query::parse(&text).map_err(|error| NotFrozen::Search(error.explain(&text)))?;
        if parsed.terms.iter().any(|term| matches!(term.condition, Condition::Last(_))) {
            return Err(NotFrozen::Search(
                "Use fixed times: a relative time would select other events later.".into(),
            ));
        }
        let has_filter = filter.action.is_some() || filter.actor_id.is_some() || filter.resource.is_some();
        Ok(Frozen {
            query: query.to_owned(),
            indexed: Plan::new(&parsed, 0).and(&filter).indexed().unwrap_or_default(),
            is_whole_range: !has_filter && is_window(&parsed.terms),
            // The time of now is asked for by nothing that is left in it.
            search: Some(Plan::new(&parsed, 0)).filter(|plan| !plan.is_empty()).map(Arc::new),
            filter,
        })
    }

    pub(super) fn matches(&self, event: &StoredEvent) -> bool {
        self.filter.matches(event) && self.search.as_ref().is_none_or(|plan| plan.matches(event))
    }

    /// The time that it covers, from and before.
    pub(super) fn times_ms(&self) -> (Option<u64>, Option<u64>) {
        let (from_ms, until_ms) = self.search.as_ref().map_or((None, None), |plan| plan.times_ms());
        (self.filter.from_ms.max(from_ms), earlier(self.filter.until_ms, until_ms))
    }

    /// Numbers outside of these are not in it; both are included.
    pub(super) fn seqs(&self) -> (u64, u64) {
        self.search.as_ref().map_or((0, u64::MAX), |plan| plan.seqs())
    }

    /// And within the time of an export.
    pub(super) fn within(mut self, from_ms: Option<u64>, until_ms: Option<u64>) -> Frozen {
        for filter in self.indexed.iter_mut().chain([&mut self.filter]) {
            (filter.from_ms, filter.until_ms) = (from_ms, until_ms);
        }
        self
    }

    /// How its events are found in a range without reading all of it, if there is a way.
    pub(super) fn seek(&self, first_seq: u64, last_seq: u64) -> Option<Seek> {
        let is_sought = !self.indexed.is_empty() && first_seq <= last_seq;
        is_sought.then(|| Seek::new(self.indexed.clone(), first_seq, last_seq))
    }
}

pub(super) fn earlier(left: Option<u64>, right: Option<u64>) -> Option<u64> {
    [left, right].into_iter().flatten().min()
}

/// Whether it leaves out what is before and behind, and nothing in between.
fn is_window(terms: &[Term]) -> bool {
    let is_seqs = |term: &&Term| matches!(term.condition, Condition::Seq(..)) && !term.is_excluded;
    let is_time = |term: &&Term| matches!(term.condition, Condition::From(_) | Condition::Until(_));
    let seqs = terms.iter().filter(is_seqs).count();
    seqs <= 1 && seqs + terms.iter().filter(is_time).count() == terms.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::id::{Mode, ProjectId, TenantId, Uuid};

    fn read(query: &str) -> Result<Frozen, NotFrozen> {
        let (tenant_id, project_id) = (TenantId(Uuid([1; 16])), ProjectId(Uuid([2; 16])));
        Frozen::read(query, ChainId { tenant_id, project_id, mode: Mode::Live })
    }

    #[test]
    fn a_query_that_means_something_else_tomorrow_is_refused() {
        assert!(read("q=from%3A2026-11-15").is_ok());
        for query in ["q=last%3A24h", "q=lost%3A1", "q=%zz", "q=seq%3A1&q=seq%3A1"] {
            assert!(matches!(read(query), Err(NotFrozen::Search(_))), "{query}");
        }
        assert!(matches!(read("date_from=soon"), Err(NotFrozen::Filter(_))));
        assert!(matches!(read("other=1"), Err(NotFrozen::Filter(_))));
    }

    #[test]
    fn a_range_is_whole_where_only_its_ends_are_said() {
        for (query, is_whole_range) in [
            ("", true),
            ("q=", true),
            ("date_from=2026-11-15&q=seq%3A10..20+to%3A2026-11-16", true),
            ("q=seq%3A10..20+seq%3A30..40", false),
            ("q=-seq%3A10", false),
            ("q=action%3Aa.b", false),
            ("actor_id=a", false),
        ] {
            assert_eq!(read(query).unwrap().is_whole_range, is_whole_range, "{query}");
        }
    }
}
