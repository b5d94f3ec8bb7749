//! What happens in a project and mode: figures, events per day, what they are about, the state of the chain.

use std::ops::Range;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_core::id::ChainId;
use sealog_core::time::Date;
use sealog_core::verify::Item;
use sealog_store::counts::day_of;
use sealog_store::{ChainHead, Range as Seqs};

use crate::app::Dashboard;
use crate::charts::{Bars, Rank, Spark};
use crate::figures::{self, Counting};
use crate::layout::{Current, Shell};
use crate::pages::overview_figures::{
    Before, Chain, Figure, chain_state, critical, summary, with_reads_note,
};
use crate::pages::overview_side::Side;
use crate::pages::query_bar::{self, term};
use crate::pages::verification::ResultShown;
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, query_encoded};
use crate::text::{day, iso_day, number, visible};

/// Periods that are one click away, in days up to today.
const PERIODS: [(u32, &str); 4] = [(1, "Today"), (7, "7 days"), (30, "30 days"), (90, "90 days")];
const PERIOD: u32 = 30;
/// So that the time before it, which it is compared with, can be answered with it.
const DAYS_MAX: u32 = sealog_store::counts::DAYS_MAX / 2;
const ROWS: usize = 8;
/// Actions that a link to the list leaves out; where there are more reads than that, the list has them.
const READS_NAMED_MAX: usize = 12;
/// The parameter, and what it says where reads are counted.
const READS: &str = "reads";
const WITH_READS: &str = "with";

#[derive(Template)]
#[template(path = "pages/overview.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    mode: &'static str,
    here: String,
    events_href: String,
    periods: Vec<Choice>,
    /// Without reads, and with them.
    reads: [Choice; 2],
    with_reads: bool,
    /// How many reads are not in the figures, in words.
    left_out: Option<String>,
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
    side: Side,
}

struct Choice {
    href: String,
    label: &'static str,
    is_current: bool,
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
    counting: Counting,
}

impl Wanted {
    fn of(asked: &Asked, today: u32) -> Wanted {
        let last = |days: u32| (today + 1).saturating_sub(days)..today + 1;
        let value = |name| asked.query_value(name).unwrap_or_default();
        let (from, to) = (value("from"), value("to"));
        let counting = if value(READS) == WITH_READS { Counting::All } else { Counting::WithoutReads };
        let (days, period) = (last(PERIOD), Some(PERIOD));
        let mut wanted = Wanted { days, period, from, to, from_error: None, to_error: None, counting };
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
        const FORM: &str = "Use the format YYYY-MM-DD.";
        wanted.from_error = first.is_none().then_some(FORM);
        wanted.to_error = end.is_none().then_some(FORM);
        if let (Some(first), Some(end)) = (first, end) {
            if end <= first {
                wanted.to_error = Some("Choose a day that is not before the first day.");
            } else if end - first > DAYS_MAX {
                wanted.to_error = Some("Choose at most 183 days.");
            } else {
                (wanted.days, wanted.period) = (first..end, None);
            }
        }
        wanted
    }

    fn has_error(&self) -> bool {
        self.from_error.is_some() || self.to_error.is_some()
    }

    /// The page for so many days up to today.
    fn of_period(&self, here: &str, days: u32) -> String {
        match self.counting {
            Counting::WithoutReads => format!("{here}?days={days}"),
            Counting::All => format!("{here}?days={days}&{READS}={WITH_READS}"),
        }
    }

    /// The same days, with and without reads.
    fn of_reads(&self, here: &str) -> [Choice; 2] {
        let same = match self.period {
            Some(days) => format!("{here}?days={days}"),
            None => format!("{here}?from={}&to={}", encoded(&self.from), encoded(&self.to)),
        };
        let choice = |label, href, counting| Choice { href, label, is_current: self.counting == counting };
        let with = format!("{same}&{READS}={WITH_READS}");
        [choice("Hide reads", same, Counting::WithoutReads), choice("Show reads", with, Counting::All)]
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let place = asked.place();
    let (Some(chain), Some((project, mode))) = (place.chain_id(), &place.chain) else {
        return Err(Problem::not_found());
    };
    let now_ms = app.service.world.now_ms();
    let today = day_of(now_ms);
    let wanted = Wanted::of(&asked, today);
    let grants = &place.membership.grants;
    let days = figures::granted(wanted.days.clone(), grants);
    let length = days.end - days.start;
    let before = days.start.saturating_sub(length)..days.start;
    // A comparison with a time that may not be seen would tell of it.
    let before =
        if figures::granted(before.clone(), grants) == before { before } else { days.start..days.start };
    let counting = wanted.counting;
    let (now, then) = figures::read(&app, chain, days.clone(), before.clone(), counting).await?;
    let head = app.service.store.head(chain).await?;
    let compared = if before.is_empty() {
        Before::Hidden
    } else if is_older(&app, chain, &head, before.start).await? {
        Before::Whole(&then)
    } else {
        Before::Partial
    };
    let side = Side::read(&app, &asked, chain, &now, now_ms).await?;
    figures::seal_view(&app, &asked, "overview", &days).await?;
    let here = format!("/app/p/{}/{}", project.id, mode.as_str());
    let events_href = format!("{here}/events");
    let list = |from: u32, to: u32, terms: &str| {
        let query = format!("from:{} to:{} {terms}", iso_day(from), iso_day(to));
        Some(format!("{events_href}?{}={}", query_bar::NAME, query_encoded(query.trim())))
    };
    let but_reads = match counting {
        Counting::WithoutReads => without_reads(&now.read_actions),
        Counting::All => String::new(),
    };
    let of_day = |day: u32| list(day, day, &but_reads);
    let by_term = |field: &str, value: &str, but: &str| {
        list(days.start, days.end.saturating_sub(1), &format!("{} {but}", term(field, value)))
    };
    let of_action = |action: &str| by_term("action", action, "");
    let of_category =
        |name: &str| (name != figures::NO_CATEGORY).then(|| by_term("category", name, &but_reads)).flatten();
    // Where the end of the time is limited, the end of the chain is not to be seen; nor where it lies before
    // the beginning.
    let ends_at_ms = head.durable.log_id.timestamp_ms();
    let sees_end = grants.until_ms.is_none() && grants.from_ms.is_none_or(|from_ms| ends_at_ms >= from_ms);
    let has_error = wanted.has_error();
    let page = Page {
        shell: Shell::new(&app, &asked, Some(Current::Overview)),
        project: visible(&project.name),
        mode: mode.as_str(),
        periods: PERIODS
            .map(|(days, label)| Choice {
                href: wanted.of_period(&here, days),
                label,
                is_current: wanted.period == Some(days) && !has_error,
            })
            .into(),
        reads: wanted.of_reads(&here),
        with_reads: counting == Counting::All,
        left_out: (counting == Counting::WithoutReads && now.reads > 0).then(|| match now.reads {
            1 => "1 read event hidden.".to_owned(),
            reads => format!("{} read events hidden.", number(reads)),
        }),
        from: wanted.from,
        to: wanted.to,
        from_error: wanted.from_error,
        to_error: wanted.to_error,
        shown: shown(&days),
        window: is_window(grants)
            .then(|| "Your access is limited to certain dates. Only whole days are counted.".into()),
        behind: now.behind(grants),
        is_empty: head.end().chain_seq == 0,
        figures: summary(&now, &compared, counting, &head, now_ms, sees_end),
        chain: sees_end.then(|| chain_state(&head, &side.runs, grants.from_ms.is_none(), now_ms)),
        chart: Bars::new("Events per day", &now.days, today, of_day),
        ranks: vec![
            Rank {
                is_code: true,
                ..Rank::new("Actions", &now.actions.values, now.actions.others, ROWS, of_action)
            },
            Rank::new("Categories", &now.categories.values, now.categories.others, ROWS, of_category),
            Rank {
                note: with_reads_note(counting, &now),
                ..Rank::new("Severity", &now.severities.values, now.severities.others, ROWS, |value| {
                    by_term("severity", value, "")
                })
            },
            Rank {
                note: with_reads_note(counting, &now),
                ..Rank::new("Countries", &now.countries.values, now.countries.others, ROWS, |value| {
                    by_term("country", value, "")
                })
            },
        ],
        spark: critical(&now),
        side,
        here,
        events_href,
    };
    Ok(if has_error { html_with(StatusCode::BAD_REQUEST, &page) } else { html(&page) })
}

fn shown(days: &Range<u32>) -> String {
    let text = |days: u32| day(u64::from(days) * sealog_core::time::DAY_MS);
    match days.end.checked_sub(days.start) {
        None | Some(0) => "No days you can see".to_owned(),
        Some(1) => format!("{}, UTC", text(days.start)),
        Some(_) => format!("{} to {}, UTC", text(days.start), text(days.end - 1)),
    }
}

/// Whether the chain had begun by this day.
async fn is_older(app: &Dashboard, chain: ChainId, head: &ChainHead, day: u32) -> Result<bool, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let first_seq = head.first_seq();
    let first = Seqs { from: first_seq, to: head.durable.chain_seq.max(first_seq), bytes_max: 1 };
    let first = app.service.store.range(chain, first).await?.items.into_iter().next();
    Ok(matches!(first, Some(Item::Event(event)) if day_of(event.timestamp_ms) <= day))
}

/// Terms that leave these actions out of a list.
fn without_reads(actions: &[String]) -> String {
    if actions.len() > READS_NAMED_MAX {
        return String::new();
    }
    let terms: Vec<String> = actions.iter().map(|action| format!("-{}", term("action", action))).collect();
    terms.join(" ")
}
