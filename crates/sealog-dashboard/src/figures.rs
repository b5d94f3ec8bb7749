//! Figures of a chain, from what the store has counted: never from a look at events.

use std::collections::HashMap;
use std::ops::Range;

use sealog_control::Grants;
use sealog_core::catalog::{Catalog, Entry, is_failure, is_read};
use sealog_core::id::ChainId;
use sealog_core::time::DAY_MS;
use sealog_service::records::system_chain::actions;
use sealog_store::StoreError;
use sealog_store::counts::{Counts, DayCounts, Days};
use sealog_store::pool::Lane;
use serde_json::json;

use crate::app::Dashboard;
use crate::gate::of_control;
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::Asked;
use crate::text::{iso_day, number};
use crate::views;

/// What putting together the counts of a day costs, in bytes of work.
const DAY_COST: usize = 4096;

/// How many events there were on some days, and of what.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// Every day, in order, also those without events.
    pub days: Vec<(u32, u64)>,
    pub events: u64,
    /// An estimate.
    pub actors: u64,
    /// Whose action says that something was denied or did not work.
    pub failed: u64,
    pub actions: Ranked,
    pub categories: Ranked,
    pub severities: Ranked,
    pub countries: Ranked,
    /// Critical ones by day, in the order of the days.
    pub critical: Vec<u64>,
    /// The last day of each action.
    pub last_days: HashMap<String, u32>,
    /// How many of all events were reads, and of which actions. Other figures may leave them out
    /// ([`Counting`]).
    pub reads: u64,
    pub read_actions: Vec<String>,
    /// Of the chain, and not in any figure yet.
    pub uncounted: u64,
}

/// Whether events that only tell of somebody who looked are counted. Estimates of actors, severities and
/// countries know nothing of actions, and have them in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counting {
    All,
    WithoutReads,
}

/// Values from the most frequent on, and the events of those that are not counted apart.
#[derive(Debug, Default)]
pub(crate) struct Ranked {
    pub values: Vec<(String, u64)>,
    pub others: u64,
}

impl Figures {
    fn of(counts: &Counts, days: Range<u32>, own: &HashMap<String, String>, counting: Counting) -> Figures {
        let is_left_out = |action: &str| counting == Counting::WithoutReads && is_read(action);
        let mut total = DayCounts::default();
        let mut figures = Figures { uncounted: counts.uncounted, ..Figures::default() };
        for day in days {
            let Some(of_day) = counts.days.get(&day) else {
                figures.days.push((day, 0));
                figures.critical.push(0);
                continue;
            };
            let left_out: u64 =
                of_day.actions.iter().filter(|(action, _)| is_left_out(action)).map(|(_, count)| count).sum();
            figures.days.push((day, of_day.events.saturating_sub(left_out)));
            figures.critical.push(of_day.severities.get("critical"));
            for (action, _) in of_day.actions.iter() {
                match figures.last_days.get_mut(action) {
                    Some(last) => *last = day,
                    None => drop(figures.last_days.insert(action.to_owned(), day)),
                }
            }
            total.merge(of_day);
        }
        figures.events = figures.days.iter().map(|(_, events)| events).sum();
        let reads = total.actions.iter().filter(|(action, _)| is_read(action));
        let (read_actions, reads): (Vec<String>, Vec<u64>) =
            reads.map(|(action, count)| (action.to_owned(), count)).unzip();
        (figures.read_actions, figures.reads) = (read_actions, reads.iter().sum());
        figures.read_actions.sort_unstable();
        figures.actors = total.actors.estimate();
        figures.failed =
            total.actions.iter().filter(|(action, _)| is_failure(action)).map(|(_, count)| count).sum();
        let mut categories: HashMap<&str, u64> = HashMap::new();
        for (action, count) in total.actions.iter().filter(|(action, _)| !is_left_out(action)) {
            *categories.entry(category(action, own)).or_default() += count;
        }
        figures.categories.values =
            categories.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        figures
            .categories
            .values
            .sort_unstable_by(|(a, count_a), (b, count_b)| count_b.cmp(count_a).then(a.cmp(b)));
        figures.categories.others = total.actions.other();
        let owned = |ranked: Vec<(&str, u64)>, others| Ranked {
            values: ranked.into_iter().map(|(value, count)| (value.to_owned(), count)).collect(),
            others,
        };
        let mut ranked = total.actions.ranked();
        ranked.retain(|(action, _)| !is_left_out(action));
        figures.actions = owned(ranked, total.actions.other());
        figures.severities = owned(total.severities.ranked(), total.severities.other());
        figures.countries = owned(total.countries.ranked(), total.countries.other());
        figures
    }

    pub(crate) fn of_action(&self, action: &str) -> u64 {
        self.actions.values.iter().find(|(known, _)| known == action).map_or(0, |(_, count)| *count)
    }

    /// How many events are not counted yet, where those are so many that the figures are misleading. Under
    /// load there are always some. Whoever sees only a part of the chain is not told how many: it is a number
    /// of all of it.
    pub(crate) fn behind(&self, grants: &Grants) -> Option<String> {
        let is_behind = self.uncounted > 1000.max(self.events / 100);
        is_behind.then(|| if is_window(grants) { "Some".into() } else { number(self.uncounted) })
    }
}

/// The figures of some days, and of some before them.
pub(crate) async fn read(
    app: &Dashboard,
    chain: ChainId,
    days: Range<u32>,
    before: Range<u32>,
    counting: Counting,
) -> Result<(Figures, Figures), Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let from = if before.is_empty() { days.start } else { before.start.min(days.start) };
    let counts = app.service.store.counts(chain, Days::new(from, days.end)).await?;
    let actions = app.service.control.actions(chain.tenant_id).await.map_err(of_control)?;
    let own: HashMap<String, String> =
        actions.into_iter().filter_map(|action| Some((action.action, action.category?))).collect();
    let cost = counts.days.len() * DAY_COST;
    let made = app.service.store.pool().run(Lane::Compute, chain, cost, move || {
        (Figures::of(&counts, days, &own, counting), Figures::of(&counts, before, &own, counting))
    });
    Ok(made.await.map_err(|_| StoreError::Closing)?)
}

/// What auditors look at is sealed: which page, and of which days.
pub(crate) async fn seal_view(
    app: &Dashboard,
    asked: &Asked,
    page: &str,
    days: &Range<u32>,
) -> Result<(), Problem> {
    let place = asked.place();
    let Some((project, mode)) = &place.chain else { return Ok(()) };
    let metadata = json!({
        "project_id": project.id.to_string(),
        "mode": mode.as_str(),
        "page": page,
        "date_from": iso_day(days.start),
        "date_to": iso_day(days.end.saturating_sub(1)),
    });
    let resource = format!("project/{}", project.id);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, metadata).await
}

/// Those of the days that lie wholly in the time that a membership is granted: counts know no hours.
pub(crate) fn granted(days: Range<u32>, grants: &Grants) -> Range<u32> {
    let day = |ms: u64| u32::try_from(ms / DAY_MS).unwrap_or(u32::MAX);
    let from = grants.from_ms.map_or(0, |from| day(from.saturating_add(DAY_MS - 1)));
    let until = grants.until_ms.map_or(u32::MAX, day);
    let start = days.start.max(from);
    start..days.end.min(until).max(start)
}

/// What stands in place of a category where an action has none.
pub(crate) const NO_CATEGORY: &str = "none";

/// As ingest gives it to events: of the catalog, of the organisation's own action, or of the system chain.
fn category<'a>(action: &str, own: &'a HashMap<String, String>) -> &'a str {
    match Catalog::builtin().entry(action) {
        Some(entry) => &entry.category,
        None => own
            .get(action)
            .map(String::as_str)
            .or_else(|| actions::find(action).map(|known| known.category))
            .unwrap_or(NO_CATEGORY),
    }
}

/// The actions of a framework, those that it requires first among equals of the catalog's order.
pub(crate) fn entries_of(framework: &str) -> impl Iterator<Item = (&'static Entry, bool)> {
    Catalog::builtin().entries.iter().filter_map(move |entry| {
        let of = entry.frameworks.iter().find(|of| of.framework == framework)?;
        Some((entry, of.is_required))
    })
}

/// How many of the actions that a framework requires were there, of how many.
pub(crate) fn coverage(framework: &str, figures: &Figures) -> (usize, usize) {
    let required = || entries_of(framework).filter(|(_, is_required)| *is_required);
    let seen = required().filter(|(entry, _)| figures.last_days.contains_key(&entry.action)).count();
    (seen, required().count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_days_of_a_granted_time_are_counted() {
        let grants = |from_ms, until_ms| Grants { projects: None, from_ms, until_ms };
        for (from_ms, until_ms, expected) in [
            (None, None, 5..10),
            (Some(7 * DAY_MS), None, 7..10),
            (Some(7 * DAY_MS + 1), None, 8..10),
            (None, Some(8 * DAY_MS), 5..8),
            (None, Some(8 * DAY_MS + 5), 5..8),
            (Some(20 * DAY_MS), None, 20..20),
            (None, Some(0), 5..5),
        ] {
            assert_eq!(granted(5..10, &grants(from_ms, until_ms)), expected, "{from_ms:?} {until_ms:?}");
        }
    }

    #[test]
    fn reads_are_left_out_of_what_knows_actions() {
        let mut day = DayCounts::default();
        for (action, severity) in [("a.viewed", "critical"), ("a.viewed", "info"), ("user.login", "info")] {
            let severity = Some(severity);
            day.add(&sealog_store::counts::Counted { action, actor_id: Some("x"), severity, country: None });
        }
        let counts = Counts { days: [(7, day)].into(), uncounted: 0 };
        let of = |counting| Figures::of(&counts, 6..8, &HashMap::new(), counting);
        let (all, without) = (of(Counting::All), of(Counting::WithoutReads));
        assert_eq!((all.events, without.events), (3, 1));
        assert_eq!(
            (all.reads, without.reads, &without.read_actions[..]),
            (2, 2, &["a.viewed".to_owned()][..])
        );
        assert_eq!((all.days[1], without.days[1]), ((7, 3), (7, 1)));
        assert_eq!(without.actions.values, [("user.login".to_owned(), 1)]);
        assert_eq!(without.categories.values.iter().map(|(_, count)| count).sum::<u64>(), 1);
        // Whether an action was ever seen is another question.
        assert!(without.last_days.contains_key("a.viewed"));
        assert_eq!(without.severities.values[0], ("info".to_owned(), 2));
    }
}
