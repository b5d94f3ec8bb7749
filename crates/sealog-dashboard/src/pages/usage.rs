//! What an organisation uses of its plan: this month against the quota, by project and by day, the notices,
//! the trial.

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use sealog_control::{KeptNotice, Project};
use sealog_core::catalog::{Catalog, FrameworkSet};
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::{Date, Month};
use sealog_service::ingest::quota::notice_key;
use sealog_store::counts::{Days, day_of};

use crate::app::Dashboard;
use crate::charts::Bars;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::problem::Problem;
use crate::request::{Asked, html};
use crate::text::{day, number, visible};

/// Projects whose events are counted on one page, which is two questions to the store for each; others are on
/// the next. The quota counts all.
const PROJECTS_ON_PAGE: usize = 10;
/// Months whose notices are shown.
const MONTHS: u32 = 12;
const THRESHOLDS: [u8; 2] = [80, 100];

#[derive(Template)]
#[template(path = "pages/usage.html")]
struct Page<'a> {
    shell: Shell<'a>,
    month: String,
    used: String,
    quota: Option<Quota>,
    projection: Option<String>,
    plan: Plan,
    trial: Trial,
    notices: Vec<Notice>,
    has_mail: bool,
    chart: Bars,
    projects: Vec<Row>,
    test_events: String,
    /// Which of the projects these are, where there are others.
    part: Option<String>,
    next: Option<String>,
    is_first: bool,
    here: String,
    uncounted: Option<String>,
}

struct Quota {
    most: u64,
    value: u64,
    high: u64,
    most_text: String,
    percent: String,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Below,
    Past80,
    Past100,
}

struct Plan {
    name: String,
    events: String,
    rate: String,
    frameworks: String,
}

/// What becomes of an organisation without billing.
enum Trial {
    None,
    Billed,
    Running { ends: String },
    Ended { ended: String },
}

struct Notice {
    month: String,
    percent: String,
    made: String,
    sent: Option<String>,
    failure: Option<String>,
    given_up: Option<String>,
}

struct Row {
    name: String,
    href: String,
    live: String,
    test: String,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (tenant, now_ms) = (&place.tenant, app.service.world.now_ms());
    let (month, today) = (Month::of(now_ms), day_of(now_ms));
    let first = first_day(month);
    let here = format!("/app/o/{}/usage", tenant.id);
    let begin = begin(&asked)?;
    let end = place.projects.len().min(begin + PROJECTS_ON_PAGE);
    let used = app.service.store.usage(tenant.id, month).await?;
    let plan = app.service.admin.plan(&tenant.plan);
    let most = plan.and_then(|plan| plan.events_per_month);
    let counted = count(&app, &asked, &place.projects[begin..end], first..today + 1).await?;
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Usage)),
        month: month.to_string(),
        used: number(used),
        quota: most.map(|most| quota(used, most)),
        projection: projection(used, first, month, now_ms),
        plan: Plan {
            name: visible(&tenant.plan),
            events: most.map_or("Unlimited".into(), number),
            rate: tenant
                .rate_limit_rps
                .or(plan.map(|plan| plan.requests_per_s))
                .map_or("Not limited".into(), |rate| format!("{} per second", number(u64::from(rate)))),
            frameworks: plan.map_or_else(String::new, |plan| labels(plan.frameworks)),
        },
        trial: match (tenant.billing.billing_active, tenant.billing.trial_ends_at_ms) {
            (true, _) => Trial::Billed,
            (false, None) => Trial::None,
            (false, Some(ends)) if now_ms < ends => Trial::Running { ends: day(ends) },
            (false, Some(ended)) => Trial::Ended { ended: day(ended) },
        },
        notices: notices(&app, &asked, month).await?,
        has_mail: app.has_mail(),
        chart: counted.chart,
        projects: counted.projects,
        test_events: number(counted.test_events),
        part: (end - begin < place.projects.len())
            .then(|| format!("{} to {} of {}", begin + 1, end, place.projects.len())),
        next: (end < place.projects.len()).then(|| format!("{here}?after={}", place.projects[end - 1].id)),
        is_first: begin == 0,
        here,
        uncounted: (counted.uncounted > 1000).then(|| number(counted.uncounted)),
    };
    Ok(html(&page))
}

/// Where the page begins: behind a project that the person sees.
fn begin(asked: &Asked) -> Result<usize, Problem> {
    let Some(after) = asked.query_value("after") else { return Ok(0) };
    let projects = &asked.place().projects;
    let known = projects.iter().position(|project| project.id.to_string() == after);
    known.map(|at| at + 1).ok_or(Problem::not_found())
}

fn labels(frameworks: FrameworkSet) -> String {
    let known = Catalog::builtin().frameworks.iter().enumerate();
    let of_set = known.filter(|(index, _)| frameworks.contains(*index));
    of_set.map(|(_, framework)| framework.label.as_str()).collect::<Vec<_>>().join(", ")
}

fn first_day(month: Month) -> u32 {
    Date::parse(&format!("{month}-01")).map_or(0, |date| day_of(date.start_ms()))
}

fn quota(used: u64, most: u64) -> Quota {
    let percent = u128::from(used) * 100 / u128::from(most.max(1));
    Quota {
        most,
        value: used.min(most),
        high: most / 5 * 4,
        most_text: number(most),
        percent: number(u64::try_from(percent).unwrap_or(u64::MAX)),
        state: match percent {
            0..80 => State::Below,
            80..100 => State::Past80,
            _ => State::Past100,
        },
    }
}

/// Where the month ends at this pace. Of its first day nothing can be said.
fn projection(used: u64, first: u32, month: Month, now_ms: u64) -> Option<String> {
    let start_ms = u64::from(first) * sealog_core::time::DAY_MS;
    let length_ms = u64::from(first_day(Month(month.0 + 1)) - first) * sealog_core::time::DAY_MS;
    let gone_ms = now_ms.saturating_sub(start_ms);
    if gone_ms < sealog_core::time::DAY_MS || used == 0 {
        return None;
    }
    let all = u128::from(used) * u128::from(length_ms) / u128::from(gone_ms);
    // Two digits: more would be a promise.
    let mut unit = 1;
    while all / unit >= 100 {
        unit *= 10;
    }
    Some(number(u64::try_from(all / unit * unit).unwrap_or(u64::MAX)))
}

struct Counted {
    chart: Bars,
    projects: Vec<Row>,
    test_events: u64,
    uncounted: u64,
}

/// This month by day and by project, of some of the projects that the person sees.
async fn count(
    app: &Dashboard,
    asked: &Asked,
    of: &[Project],
    days: std::ops::Range<u32>,
) -> Result<Counted, Problem> {
    let place = asked.place();
    let _place = app.reads.acquire(place.tenant.id).await;
    let mut by_day: Vec<(u32, u64)> = days.clone().map(|day| (day, 0)).collect();
    let (mut projects, mut test_events, mut uncounted) = (Vec::new(), 0, 0);
    for project in of {
        let mut events = [0, 0];
        for (events, mode) in events.iter_mut().zip(Mode::ALL) {
            let chain = ChainId { tenant_id: place.tenant.id, project_id: project.id, mode };
            let counts = app.service.store.counts(chain, Days::new(days.start, days.end)).await?;
            *events = counts.events();
            uncounted += counts.uncounted;
            if mode == Mode::Live {
                for (day, total) in &mut by_day {
                    *total += counts.days.get(day).map_or(0, |counts| counts.events);
                }
            }
        }
        test_events += events[1];
        projects.push((events, row(project, events)));
    }
    projects.sort_by_key(|(events, _)| std::cmp::Reverse(*events));
    Ok(Counted {
        chart: Bars::new("Live events per day", &by_day, days.end.saturating_sub(1), |_| None),
        projects: projects.into_iter().map(|(_, row)| row).collect(),
        test_events,
        uncounted,
    })
}

fn row(project: &Project, [live, test]: [u64; 2]) -> Row {
    Row {
        name: visible(&project.name),
        href: format!("/app/p/{}/live", project.id),
        live: number(live),
        test: number(test),
    }
}

/// Those of the last months, newest first. A notice is one mail for a month and a threshold.
async fn notices(app: &Dashboard, asked: &Asked, month: Month) -> Result<Vec<Notice>, Problem> {
    let tenant_id = asked.place().tenant.id;
    let months = (0..MONTHS).map(|back| Month(month.0.saturating_sub(back)));
    let keyed: Vec<(Month, u8, String)> = months
        .flat_map(|month| THRESHOLDS.into_iter().rev().map(move |percent| (month, percent)))
        .map(|(month, percent)| (month, percent, notice_key(tenant_id, month, percent)))
        .collect();
    let keys = keyed.iter().map(|(_, _, key)| key.clone()).collect();
    let found = app.service.control.notices_with_keys(keys).await.map_err(of_control)?;
    let notice = |(month, percent, key): &(Month, u8, String)| {
        let kept: &KeptNotice = found.iter().find(|kept| kept.key == *key)?;
        Some(Notice {
            month: month.to_string(),
            percent: format!("{percent} %"),
            made: day(kept.created_at_ms),
            sent: kept.sent_at_ms.map(day),
            failure: kept.last_failure.as_deref().filter(|_| kept.sent_at_ms.is_none()).map(visible),
            given_up: kept.given_up_at_ms.map(day),
        })
    };
    Ok(keyed.iter().filter_map(notice).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::time::DAY_MS;

    #[test]
    fn the_pace_of_a_month_is_said_after_its_first_day_and_in_round_numbers() {
        let month = Month::of(1_794_700_800_000);
        let first = first_day(month);
        let at = |days: u64| u64::from(first) * DAY_MS + days * DAY_MS;
        assert_eq!(projection(500, first, month, at(0) + 5), None);
        assert_eq!(projection(0, first, month, at(5)), None);
        assert_eq!(projection(19_804, first, month, at(15)), Some("39,000".into()));
        assert_eq!(projection(7, first, month, at(30)), Some("7".into()));
    }

    #[test]
    fn the_state_of_a_quota_changes_at_80_and_at_100_percent() {
        for (used, state, percent) in [
            (0, State::Below, "0"),
            (79, State::Below, "79"),
            (80, State::Past80, "80"),
            (100, State::Past100, "100"),
            (250, State::Past100, "250"),
        ] {
            let quota = quota(used, 100);
            assert!(quota.state == state && quota.percent == percent && quota.value <= 100, "{used}");
        }
    }
}
