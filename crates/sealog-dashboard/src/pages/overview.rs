//! What happens in a project and mode: figures, events per day, what they are about, the state of the chain.

use std::ops::Range;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::catalog::Catalog;
use sealog_core::id::Mode;
use sealog_core::time::{Date, Month};
use sealog_store::ChainHead;
use sealog_store::counts::{STANDARD_ERROR_PERCENT, day_of};

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::charts::{Bars, Rank, Spark};
use crate::figures::{self, Figures};
use crate::layout::{Current, Shell};
use crate::pages::cases;
use crate::problem::Problem;
use crate::request::{Asked, Place, encoded, html, html_with};
use crate::text::{clock_ms, day, iso_day, moment, number, span};

/// Periods that are one click away, in days up to today.
const PERIODS: [(u32, &str); 4] = [(1, "Today"), (7, "7 days"), (30, "30 days"), (90, "90 days")];
const PERIOD: u32 = 30;
/// So that the time before it, which it is compared with, can be answered with it.
const DAYS_MAX: u32 = sealog_store::counts::DAYS_MAX / 2;
const ROWS: usize = 8;

#[derive(Template)]
#[template(path = "pages/overview.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: &'a str,
    mode: &'static str,
    here: String,
    events_href: String,
    periods: Vec<Period>,
    from: String,
    to: String,
    from_error: Option<&'static str>,
    to_error: Option<&'static str>,
    /// The days that the figures are of, in words.
    shown: String,
    window: Option<String>,
    behind: Option<String>,
    is_empty: bool,
    figures: Vec<Figure>,
    chain: Option<Chain>,
    chart: Bars,
    ranks: Vec<Rank>,
    spark: Option<Spark>,
    quota: Option<Quota>,
    frameworks: Vec<Coverage>,
    /// The list, and what of it is due next.
    due: Option<(String, Vec<cases::Row>)>,
}

struct Period {
    href: String,
    label: &'static str,
    is_current: bool,
}

struct Figure {
    label: &'static str,
    value: String,
    note: String,
}

struct Chain {
    is_whole: bool,
    seq: String,
    hash: String,
    recorded: String,
}

struct Quota {
    used: String,
    /// Of the plan; nothing where it is unlimited.
    of: Option<(u64, u64, u64, String)>,
    href: String,
}

struct Coverage {
    label: String,
    href: String,
    seen: usize,
    required: usize,
}

/// What was asked for, and what is wrong with it.
struct Wanted {
    days: Range<u32>,
    /// One of the periods.
    period: Option<u32>,
    from: String,
    to: String,
    from_error: Option<&'static str>,
    to_error: Option<&'static str>,
}

impl Wanted {
    fn of(asked: &Asked, today: u32) -> Wanted {
        let last = |days: u32| (today + 1).saturating_sub(days)..today + 1;
        let value = |name| asked.query_value(name).unwrap_or_default();
        let (from, to) = (value("from"), value("to"));
        let mut wanted =
            Wanted { days: last(PERIOD), period: Some(PERIOD), from, to, from_error: None, to_error: None };
        if wanted.from.is_empty() && wanted.to.is_empty() {
            let asked_for = value("days").parse().ok();
            if let Some((days, _)) = PERIODS.into_iter().find(|(days, _)| Some(*days) == asked_for) {
                wanted.days = last(days);
                wanted.period = Some(days);
            }
            return wanted;
        }
        let date = |text: &str| Date::parse(text).map(|date| day_of(date.start_ms()));
        let (first, end) = (date(&wanted.from), date(&wanted.to).map(|day| day.saturating_add(1)));
        const FORM: &str = "Write it as YYYY-MM-DD.";
        wanted.from_error = first.is_none().then_some(FORM);
        wanted.to_error = end.is_none().then_some(FORM);
        if let (Some(first), Some(end)) = (first, end) {
            if end <= first {
                wanted.to_error = Some("It must not be before the first day.");
            } else if end - first > DAYS_MAX {
                wanted.to_error = Some("At most 183 days are shown at once.");
            } else {
                (wanted.days, wanted.period) = (first..end, None);
            }
        }
        wanted
    }

    fn has_error(&self) -> bool {
        self.from_error.is_some() || self.to_error.is_some()
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (Some(chain), Some((project, mode))) = (place.chain_id(), &place.chain) else {
        return Err(Problem::not_found());
    };
    let now_ms = app.world.now_ms();
    let today = day_of(now_ms);
    let wanted = Wanted::of(&asked, today);
    let grants = &place.membership.grants;
    let days = figures::granted(wanted.days.clone(), grants);
    let length = days.end - days.start;
    let before = days.start.saturating_sub(length)..days.start;
    // A comparison with a time that may not be seen would tell of it.
    let before =
        if figures::granted(before.clone(), grants) == before { before } else { days.start..days.start };
    let (now, then) = figures::read(&app, chain, days.clone(), before.clone()).await?;
    let head = app.store.head(chain).await?;
    figures::seal_view(&app, &asked, "overview", &days).await?;
    let here = format!("/app/p/{}/{}", project.id, mode.as_str());
    let events_href = format!("{here}/events");
    let between =
        |from: u32, to: u32| format!("{events_href}?date_from={}&date_to={}", iso_day(from), iso_day(to));
    let of_day = |day: u32| Some(between(day, day));
    let of_action = |action: &str| {
        let last = days.end.saturating_sub(1);
        Some(format!("{}&action={}", between(days.start, last), encoded(action)))
    };
    // What no parameter of the list stands for is a term of its query bar.
    let by_term = |field: &str, value: &str| {
        let last = days.end.saturating_sub(1);
        Some(format!("{}&q={}", between(days.start, last), encoded(&format!("{field}:{}", quoted(value)))))
    };
    let of_category =
        |name: &str| (name != figures::NO_CATEGORY).then(|| by_term("category", name)).flatten();
    // Where the end of the time is limited, the end of the chain is not to be seen.
    let sees_end = grants.until_ms.is_none();
    let has_error = wanted.has_error();
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Overview)),
        project: &project.name,
        mode: mode.as_str(),
        periods: PERIODS
            .map(|(days, label)| Period {
                href: format!("{here}?days={days}"),
                label,
                is_current: wanted.period == Some(days) && !has_error,
            })
            .into(),
        from: wanted.from,
        to: wanted.to,
        from_error: wanted.from_error,
        to_error: wanted.to_error,
        shown: shown(&days),
        window: (grants.from_ms.is_some() || grants.until_ms.is_some())
            .then(|| "Your access is limited in time. Only whole days within it are counted.".into()),
        behind: now.is_behind().then(|| number(now.uncounted)),
        is_empty: head.end().chain_seq == 0,
        figures: summary(&now, (!before.is_empty()).then_some(&then), &head, now_ms, sees_end),
        chain: sees_end.then(|| chain_state(&head)),
        chart: Bars::new("Events per day", &now.days, today, of_day),
        ranks: vec![
            Rank {
                is_code: true,
                ..Rank::new("Actions", &now.actions.values, now.actions.others, ROWS, of_action)
            },
            Rank::new("Categories", &now.categories.values, now.categories.others, ROWS, of_category),
            Rank::new("Severity", &now.severities.values, now.severities.others, ROWS, |value| {
                by_term("severity", value)
            }),
            Rank::new("Countries", &now.countries.values, now.countries.others, ROWS, |value| {
                by_term("country", value)
            }),
        ],
        spark: critical(&now),
        quota: quota(&app, place, now_ms).await?,
        frameworks: coverage(place, *mode, &here, &now),
        due: cases::due_next(&app, &asked).await?,
        here,
        events_href,
    };
    Ok(if has_error { html_with(StatusCode::BAD_REQUEST, &page) } else { html(&page) })
}

/// A value in a query.
fn quoted(value: &str) -> String {
    match value.is_empty() || value.contains(|c: char| c.is_whitespace() || "\"\\*:<>,".contains(c)) {
        true => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"")),
        false => value.to_owned(),
    }
}

fn shown(days: &Range<u32>) -> String {
    let text = |days: u32| day(u64::from(days) * sealog_core::time::DAY_MS);
    match days.end.checked_sub(days.start) {
        None | Some(0) => "No day that you may see".to_owned(),
        Some(1) => format!("{}, UTC", text(days.start)),
        Some(_) => format!("{} to {}, UTC", text(days.start), text(days.end - 1)),
    }
}

fn summary(
    now: &Figures,
    then: Option<&Figures>,
    head: &ChainHead,
    now_ms: u64,
    sees_end: bool,
) -> Vec<Figure> {
    let was = |before: u64, after: u64| match then {
        None => "no time before it to compare".to_owned(),
        Some(_) => format!("was {}{}", number(before), change(before, after)),
    };
    let mut all = vec![
        Figure {
            label: "Events",
            value: number(now.events),
            note: was(then.map_or(0, |then| then.events), now.events),
        },
        Figure {
            label: "Actors",
            value: format!("about {}", number(now.actors)),
            note: format!(
                "estimate, ±{STANDARD_ERROR_PERCENT} %; {}",
                was(then.map_or(0, |then| then.actors), now.actors)
            ),
        },
        Figure {
            label: "Failed or denied",
            value: share(now.failed, now.events),
            note: format!("{} events, told by their actions", number(now.failed)),
        },
    ];
    if sees_end && head.durable.chain_seq > 0 {
        let last_ms = head.durable.log_id.timestamp_ms();
        all.push(Figure {
            label: "Last event",
            value: format!("{} ago", span(now_ms.saturating_sub(last_ms))),
            note: moment(last_ms).replace(&clock_ms(last_ms), &clock_ms(last_ms)[..8]),
        });
    }
    all
}

/// `, +6.2 %`
fn change(before: u64, after: u64) -> String {
    if before == 0 {
        return String::new();
    }
    let tenths = u128::from(before.abs_diff(after)) * 1000 / u128::from(before);
    let sign = if after >= before { '+' } else { '−' };
    format!(", {sign}{}.{} %", tenths / 10, tenths % 10)
}

/// `2.6 %`
fn share(part: u64, whole: u64) -> String {
    let tenths = u128::from(part) * 1000 / u128::from(whole.max(1));
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn chain_state(head: &ChainHead) -> Chain {
    Chain {
        is_whole: head.durable == head.recorded,
        seq: number(head.durable.chain_seq),
        hash: head.durable.hash.to_string(),
        recorded: number(head.recorded.chain_seq),
    }
}

fn critical(figures: &Figures) -> Option<Spark> {
    let (at, most) = figures.critical.iter().enumerate().max_by_key(|(_, count)| **count)?;
    let is_worth = *most > 0 && figures.critical.len() > 2;
    let (on, _) = figures.days.get(at).filter(|_| is_worth)?;
    let words = format!("Critical per day, most {} on {}", number(*most), crate::text::short_day(*on));
    Some(Spark::new(words, &figures.critical))
}

/// Of this month, for those who may see what the whole organisation uses.
async fn quota(app: &Dashboard, place: &Place, now_ms: u64) -> Result<Option<Quota>, Problem> {
    if !place.may(Capability::ViewUsage) {
        return Ok(None);
    }
    let used = app.store.usage(place.tenant.id, Month::of(now_ms)).await?;
    let of = app.admin.plan(&place.tenant.plan).and_then(|plan| plan.events_per_month);
    Ok(Some(Quota {
        used: number(used),
        of: of.map(|most| (most, used.min(most), most / 5 * 4, number(most))),
        href: format!("/app/o/{}/usage", place.tenant.id),
    }))
}

/// Of the frameworks that are enabled. Test events are no evidence.
fn coverage(place: &Place, mode: Mode, here: &str, figures: &Figures) -> Vec<Coverage> {
    let Some((project, _)) = place.chain.as_ref().filter(|_| mode == Mode::Live) else { return Vec::new() };
    let known = Catalog::builtin().frameworks.iter().enumerate();
    known
        .filter(|(index, _)| project.frameworks.contains(*index))
        .map(|(_, framework)| {
            let (seen, required) = figures::coverage(&framework.framework, figures);
            Coverage {
                label: framework.label.clone(),
                href: format!("{here}/frameworks/{}", framework.framework),
                seen,
                required,
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_shares_have_one_decimal_place() {
        assert_eq!(
            (change(0, 5), change(1000, 1062), change(1000, 900)),
            (String::new(), ", +6.2 %".into(), ", −10.0 %".into())
        );
        assert_eq!((share(0, 0), share(26, 1000)), ("0.0 %".into(), "2.6 %".into()));
    }
}
