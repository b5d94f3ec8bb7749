//! What is disclosed of the events that were found: include, exclude, mask; singly and in bulk, as stored
//! beside as disclosed.

use std::collections::HashSet;
use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_cases::disclosure::finder::kinds_for_reviewer;
use sealog_cases::disclosure::masks::{METADATA, merged, outermost};
use sealog_cases::disclosure::node::{OVERSIZED, Step, below};
use sealog_cases::disclosure::review::MASKS_MAX;
use sealog_cases::disclosure::search::WORKING;
use sealog_cases::disclosure::{Compared, Masking, Node};
use sealog_control::{
    Case, CaseSearch, Decided, Decision, DecisionIs, FoundEvent, FoundFilter, Grants, Review, SearchId,
    Which, case_found,
};
use sealog_core::id::{ProjectId, Uuid};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{beginning, moment, number, visible};

/// Events on a page.
const ON_PAGE: usize = 50;
/// Values of an event on one page. Its form names them by `values` (the first of them) and `count`, and
/// speaks for no others.
const VALUES_MAX: usize = 200;
/// Of a value.
const SHOWN_BYTES: usize = 2000;
const REASON_CHARS_MAX: usize = 500;

#[derive(Template)]
#[template(path = "pages/case_review.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    /// The search whose events are shown. Every form that decides names it.
    search: Option<String>,
    may_decide: bool,
    review: Review,
    filters: Vec<FilterLink>,
    /// What is asked for now, for forms to come back to.
    show: String,
    page: u64,
    rows: Vec<Row>,
    all: String,
    open_matching: u64,
    newer: Option<String>,
    older: Option<String>,
    reason: String,
    reason_error: Option<String>,
    compare: Option<Compare>,
}

struct FilterLink {
    href: String,
    label: &'static str,
    is_current: bool,
}

struct Row {
    value: String,
    href: String,
    seq: String,
    time: String,
    action: String,
    found: String,
    flags: u64,
    decision: Badge,
    reason: Option<String>,
    is_current: bool,
}

struct Badge {
    class: &'static str,
    label: String,
}

struct Compare {
    seq: String,
    time: String,
    badge: Badge,
    event: String,
    revision: u64,
    values: Vec<ValueRow>,
    /// Which of its values these are, from 0, and how many it has.
    first: usize,
    all: usize,
    is_all_masked: bool,
    before: Option<String>,
    behind: Option<String>,
    stored_href: String,
}

struct ValueRow {
    path: String,
    stored: String,
    disclosed: String,
    is_masked: bool,
    is_changed: bool,
    is_flagged: bool,
}

/// The ways to look at the list: name, words, filter.
const SHOWS: [(&str, &str, FoundFilter); 8] = [
    ("all", "All", FoundFilter { decision: None, found: 0, is_flagged: false }),
    ("open", "To decide", FoundFilter { decision: Some(DecisionIs::Open), found: 0, is_flagged: false }),
    (
        "include",
        "Included",
        FoundFilter { decision: Some(DecisionIs::Made(Decision::Include)), found: 0, is_flagged: false },
    ),
    (
        "exclude",
        "Excluded",
        FoundFilter { decision: Some(DecisionIs::Made(Decision::Exclude)), found: 0, is_flagged: false },
    ),
    ("by", "By the person", FoundFilter { decision: None, found: case_found::BY_PERSON, is_flagged: false }),
    ("on", "On the person", FoundFilter { decision: None, found: case_found::ON_PERSON, is_flagged: false }),
    ("mention", "Mentions", FoundFilter { decision: None, found: case_found::MENTION, is_flagged: false }),
    ("flagged", "Texts to read", FoundFilter { decision: None, found: 0, is_flagged: true }),
];

fn shown(name: &str) -> (&'static str, FoundFilter) {
    let known = SHOWS.iter().find(|(known, _, _)| *known == name);
    known.map_or((SHOWS[0].0, SHOWS[0].2), |(name, _, filter)| (name, *filter))
}

/// From a query or a form.
fn value(asked: &Asked, name: &str) -> String {
    let typed = asked.field(name);
    if typed.is_empty() { asked.query_value(name).unwrap_or_default() } else { typed.to_owned() }
}

/// `PROJECT:SEQ`, and in forms `PROJECT:SEQ:REVISION`.
fn parse_event(text: &str) -> Option<(ProjectId, u64, Option<u64>)> {
    let mut parts = text.split(':');
    let project_id = ProjectId(Uuid::parse(parts.next()?)?);
    let seq = parts.next()?.parse().ok()?;
    Some((project_id, seq, parts.next().and_then(|revision| revision.parse().ok())))
}

fn badge(found: &FoundEvent) -> Badge {
    let (class, label) = match (found.decision, &found.masks) {
        (None, _) => ("accent", "To decide".to_owned()),
        (Some(Decision::Exclude), _) => ("", "Excluded".to_owned()),
        (Some(Decision::Include), None) => ("ok", "Included".to_owned()),
        (Some(Decision::Include), Some(masks)) => ("warn", format!("Included, {} masked", masks.len())),
    };
    Badge { class, label }
}

/// What lies outside of what somebody was granted is not for them to see.
fn is_granted(grants: &Grants, found: &FoundEvent) -> bool {
    let at_ms = found.new.timestamp_ms;
    grants.from_ms.is_none_or(|from| at_ms >= from)
        && grants.until_ms.is_none_or(|until| at_ms < until)
        && grants.projects.as_ref().is_none_or(|projects| projects.contains(&found.new.project_id))
}

fn shown_value(node: &Node) -> String {
    let text = match node {
        Node::Text(text) | Node::Literal(text) | Node::Masked(text) => text.clone(),
        Node::Oversized(_) => OVERSIZED.to_owned(),
        Node::List(_) | Node::Object(_) => node.to_json(),
    };
    let (beginning, is_all) = beginning(&text, SHOWN_BYTES);
    let mut shown = visible(beginning);
    if !is_all {
        shown.push('…');
    }
    shown
}

/// Each value as it is stored, beside what stands in its place. Masks change names and values, and the order
/// of none.
fn beside<'v>(
    path: &mut String,
    stored: &'v Node,
    disclosed: &'v Node,
    out: &mut Vec<(String, &'v Node, &'v Node)>,
) {
    match (stored, disclosed) {
        (Node::List(stored), Node::List(disclosed)) => {
            for (at, (stored, disclosed)) in stored.iter().zip(disclosed).enumerate() {
                below(path, Step::Item(at), |path| beside(path, stored, disclosed, out));
            }
        }
        (Node::Object(stored), Node::Object(disclosed)) => {
            for ((name, stored), (_, disclosed)) in stored.iter().zip(disclosed) {
                below(path, Step::Member(name), |path| beside(path, stored, disclosed, out));
            }
        }
        _ => stored.leaves(path, &mut |path, leaf| out.push((path.to_owned(), leaf, disclosed))),
    }
}

/// The values from this place on. `href` leads to those at another.
fn compare(compared: &Compared, first: usize, href: impl Fn(usize) -> String) -> Compare {
    let new = &compared.found.new;
    let mut leaves = Vec::new();
    for ((name, stored), (_, disclosed)) in compared.stored.fields.iter().zip(&compared.disclosed.fields) {
        beside(&mut (*name).to_owned(), stored, disclosed, &mut leaves);
    }
    let first = if first < leaves.len() { first } else { 0 };
    let masked: HashSet<&str> = compared.masked.iter().map(String::as_str).collect();
    let flagged: HashSet<&str> = compared.suggested.flags.iter().map(String::as_str).collect();
    let shown = leaves.iter().skip(first).take(VALUES_MAX);
    let values: Vec<ValueRow> = shown
        .map(|(path, stored, disclosed)| {
            let (before, after) = (shown_value(stored), shown_value(disclosed));
            ValueRow {
                is_masked: outermost(&masked, path).is_some(),
                is_changed: before != after,
                is_flagged: flagged.contains(path.as_str()),
                path: visible(path),
                stored: before,
                disclosed: after,
            }
        })
        .collect();
    let behind = first + values.len();
    Compare {
        seq: number(new.chain_seq),
        time: moment(new.timestamp_ms),
        badge: badge(&compared.found),
        event: format!("{}:{}", new.project_id, new.chain_seq),
        revision: compared.found.revision,
        values,
        first,
        all: leaves.len(),
        is_all_masked: masked.contains(METADATA),
        before: (first > 0).then(|| href(first.saturating_sub(VALUES_MAX))),
        behind: (behind < leaves.len()).then(|| href(behind)),
        stored_href: format!("/app/p/{}/live/events/{}", new.project_id, new.log_id),
    }
}

struct Asking {
    search: Option<CaseSearch>,
    show: &'static str,
    filter: FoundFilter,
    page: u64,
}

impl Asking {
    async fn new(app: &Dashboard, asked: &Asked, case: &Case) -> Result<Asking, Problem> {
        let (show, filter) = shown(&value(asked, "show"));
        let page = value(asked, "page").parse().unwrap_or(0);
        Ok(Asking { search: app.service.disclosures.current_search(case).await?, show, filter, page })
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let asking = Asking::new(app, asked, case).await?;
        let frame = Frame::new(app, asked, case, Tab::Review).await?;
        let here = format!("{}/review", frame.here);
        let grants = &asked.place().membership.grants;
        let chosen = parse_event(&value(asked, "event"));
        let control = &app.service.disclosures.control;
        let (mut found, mut all, mut open_matching) = (Vec::new(), 0, 0);
        let (mut review, mut compare_shown) = (Review::default(), None);
        if let Some(search) = &asking.search {
            let offset = asking.page.saturating_mul(ON_PAGE as u64);
            found =
                control.found_events(search.new.id, asking.filter, grants.clone(), offset, ON_PAGE).await?;
            all = control.count_found(search.new.id, asking.filter, grants.clone()).await?;
            let open = match asking.filter.decision {
                Some(DecisionIs::Made(_)) => None,
                _ => Some(FoundFilter { decision: Some(DecisionIs::Open), ..asking.filter }),
            };
            if let Some(open) = open {
                open_matching = control.count_found(search.new.id, open, grants.clone()).await?;
            }
            review = control.review_of(search.new.id, grants.clone()).await?;
            if let Some((project_id, seq, _)) = chosen {
                let _place = app.reads.acquire(case.tenant_id).await;
                let first = value(asked, "values").parse().unwrap_or(0);
                let (here, show, page, grants) = (here.clone(), asking.show, asking.page, grants.clone());
                let href = move |first| {
                    let event = format!("{project_id}:{seq}");
                    format!("{here}?show={show}&page={page}&event={event}&values={first}#compare")
                };
                let look = move |compared: Compared| {
                    is_granted(&grants, &compared.found).then(|| compare(&compared, first, href))
                };
                compare_shown =
                    app.service.disclosures.compare(search, project_id, seq, look).await?.flatten();
            }
        }
        let query = |page: u64| format!("show={}&page={page}", asking.show);
        let is_current = |found: &FoundEvent| {
            chosen.is_some_and(|(project, seq, _)| {
                (project, seq) == (found.new.project_id, found.new.chain_seq)
            })
        };
        let rows = found.iter().map(|found| {
            let new = &found.new;
            let event = format!("{}:{}", new.project_id, new.chain_seq);
            Row {
                value: format!("{event}:{}", found.revision),
                href: format!("{here}?{}&event={event}#compare", query(asking.page)),
                seq: number(new.chain_seq),
                time: moment(new.timestamp_ms),
                action: visible(&new.action),
                found: kinds_for_reviewer(new.found),
                flags: new.flags,
                decision: badge(found),
                reason: found.reason.as_deref().map(visible),
                is_current: is_current(found),
            }
        });
        let rows = rows.collect();
        let is_more = all > (asking.page + 1).saturating_mul(ON_PAGE as u64);
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            search: asking.search.as_ref().map(|search| search.new.id.0.to_string()),
            may_decide: frame.may_manage && WORKING.contains(&case.state),
            review,
            filters: SHOWS
                .iter()
                .map(|(name, label, _)| FilterLink {
                    href: format!("{here}?show={name}"),
                    label,
                    is_current: *name == asking.show,
                })
                .collect(),
            show: asking.show.to_owned(),
            page: asking.page,
            rows,
            all: number(all),
            open_matching,
            newer: (asking.page > 0).then(|| format!("{here}?{}", query(asking.page - 1))),
            older: is_more.then(|| format!("{here}?{}", query(asking.page + 1))),
            reason: asked.field("reason").to_owned(),
            reason_error: None,
            compare: compare_shown,
            frame,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "review").await?;
    let mut page = Page::new(&app, &asked, &case).await?;
    let changed = asked.query_value("events").and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let events = if changed == 1 { "1 event".to_owned() } else { format!("{} events", number(changed)) };
    page.frame.notice = match asked.query_value("done").as_deref() {
        Some("include") => Some(format!("{events} included.")),
        Some("exclude") => Some(format!("{events} excluded.")),
        Some("undecide") => Some(format!("Decision undone for {events}.")),
        Some("masked") => Some("Masks saved. The event is included.".to_owned()),
        _ => None,
    };
    Ok(html(&page))
}

async fn refused(
    app: &Dashboard,
    asked: &Asked,
    case: &Case,
    status: StatusCode,
    change: impl FnOnce(&mut Page<'_>),
) -> Result<Response, Problem> {
    let mut page = Page::new(app, asked, case).await?;
    change(&mut page);
    Ok(html_with(status, &page))
}

fn back(case: &Case, asked: &Asked, done: &str, changed: u64) -> Response {
    let (show, _) = shown(asked.field("show"));
    let page: u64 = asked.field("page").parse().unwrap_or(0);
    let event = parse_event(asked.field("event"));
    let event = event.map_or(String::new(), |(project, seq, _)| format!("&event={project}:{seq}"));
    let first: usize = asked.field("values").parse().unwrap_or(0);
    let event = if first > 0 { format!("{event}&values={first}") } else { event };
    let here = format!("/app/o/{}/cases/{}/review", case.tenant_id, case.id.0);
    see_other(&format!("{here}?show={show}&page={page}{event}&done={done}&events={changed}"))
}

/// The search that was seen, as the form names it. A form that names none has seen none.
fn seen_search(asked: &Asked) -> Option<SearchId> {
    Uuid::parse(asked.field("search")).map(SearchId)
}

const NEWER: &str = "A newer search has finished since you opened this page, so your decision was not saved. Review its events below and decide again.";

/// Says what became of a decision.
async fn answer(
    app: &Dashboard,
    asked: &Asked,
    case: &Case,
    decided: Decided,
    done: &str,
) -> Result<Response, Problem> {
    let why = match decided {
        Decided::Done { changed, left: 0 } => return Ok(back(case, asked, done, changed)),
        Decided::Done { changed, left } => format!(
            "{changed} decided. Someone else decided {left} in the meantime; those did not change. Review them and decide again."
        ),
        Decided::Locked(Some(_)) => {
            "Events cannot be reviewed while the case is in this state. Someone may have moved it.".to_owned()
        }
        Decided::Locked(None) => NEWER.to_owned(),
    };
    refused(app, asked, case, StatusCode::CONFLICT, |page| page.frame.error = Some(why)).await
}

pub(crate) async fn decide(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "review").await?;
    let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
    let decision = match asked.field("do") {
        "include" => Some(Decision::Include),
        "exclude" => Some(Decision::Exclude),
        "undecide" => None,
        _ => return Err(Problem::not_found()),
    };
    let reason = asked.field("reason").trim().to_owned();
    let wrong_reason = match decision {
        Some(Decision::Exclude) if reason.is_empty() => {
            Some("Enter why these events are excluded.".to_owned())
        }
        _ if reason.chars().count() > REASON_CHARS_MAX => {
            Some(format!("Use at most {REASON_CHARS_MAX} characters."))
        }
        _ => None,
    };
    if let Some(wrong) = wrong_reason {
        return refused(&app, &asked, &case, unprocessable, |page| page.reason_error = Some(wrong)).await;
    }
    let asking = Asking::new(&app, &asked, &case).await?;
    if asking.search.is_none() {
        return refused(&app, &asked, &case, unprocessable, |page| {
            page.frame.error = Some("Run a search first.".into());
        })
        .await;
    }
    let Some(search_id) = seen_search(&asked) else {
        return answer(&app, &asked, &case, Decided::Locked(None), asked.field("do")).await;
    };
    let which = if asked.field("which") == "matching" {
        Which::Open(asking.filter)
    } else {
        let chosen = asked.form.iter().filter(|(name, _)| name == "e").take(ON_PAGE);
        let chosen = chosen.filter_map(|(_, value)| parse_event(&value.0));
        Which::These(chosen.filter_map(|(project, seq, revision)| Some((project, seq, revision?))).collect())
    };
    if matches!(&which, Which::These(events) if events.is_empty()) {
        return refused(&app, &asked, &case, unprocessable, |page| {
            page.frame.error = Some("Select events first.".into());
        })
        .await;
    }
    let reason = Some(reason).filter(|reason| decision == Some(Decision::Exclude) && !reason.is_empty());
    let person_id = asked.person().person.id;
    let decided =
        app.service.disclosures.decide(person_id, &case, search_id, which, decision, reason).await?;
    answer(&app, &asked, &case, decided, asked.field("do")).await
}

pub(crate) async fn mask(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "review").await?;
    let search = app.service.disclosures.current_search(&case).await?;
    let event = parse_event(asked.field("event"));
    let (Some(search), Some((project_id, seq, _))) = (search, event) else {
        return Err(Problem::not_found());
    };
    if seen_search(&asked) != Some(search.new.id) {
        return answer(&app, &asked, &case, Decided::Locked(None), "masked").await;
    }
    let form = MaskForm::new(&asked);
    let masking = {
        let _place = app.reads.acquire(case.tenant_id).await;
        let look = move |compared| form.masking(compared);
        app.service.disclosures.compare(&search, project_id, seq, look).await?
    };
    let Some(masking) = masking.ok_or(Problem::not_found())? else {
        let why = format!(
            "This event needs more than {MASKS_MAX} single masks. Mask all of its metadata, or exclude the event."
        );
        let unprocessable = StatusCode::UNPROCESSABLE_ENTITY;
        return refused(&app, &asked, &case, unprocessable, |page| page.frame.error = Some(why)).await;
    };
    let revision = asked.field("revision").parse().unwrap_or(0);
    let person_id = asked.person().person.id;
    let decided = app.service.disclosures.mask(person_id, &case, masking, revision).await?;
    answer(&app, &asked, &case, decided, "masked").await
}

/// What was sent about the values of one event.
struct MaskForm {
    /// The values that the form has shown: the first one, and how many.
    first: usize,
    count: usize,
    /// What is checked, as the page writes paths; nothing for what is suggested.
    checked: Option<HashSet<String>>,
}

impl MaskForm {
    fn new(asked: &Asked) -> MaskForm {
        let number = |name: &str| asked.field(name).parse::<usize>().unwrap_or(0);
        let checked = asked.form.iter().filter(|(name, _)| name == "m").take(MASKS_MAX);
        let checked = checked.map(|(_, path)| path.0.clone()).collect();
        let is_suggested = asked.field("do") == "suggested";
        MaskForm {
            first: number("values"),
            count: number("count"),
            checked: (!is_suggested).then_some(checked),
        }
    }

    /// None if it would mask more values one by one than an event may have.
    fn masking(self, compared: Compared) -> Option<Masking> {
        let known: Vec<String> = compared.stored.leaves().into_iter().map(|(path, _)| path).collect();
        let first = self.first.min(known.len());
        let on_form = first..first.saturating_add(self.count).min(known.len());
        let shown = known[on_form.clone()].iter();
        let mut wanted: Vec<String> = Vec::new();
        let is_all_wanted = match &self.checked {
            // A path counts where the form has shown it. Two that look the same are masked together.
            Some(checked) => {
                wanted.extend(shown.filter(|path| checked.contains(&visible(path))).cloned());
                checked.contains(METADATA)
            }
            None => {
                let masks: HashSet<&str> =
                    compared.suggested.masks.iter().map(|mask| mask.path.as_str()).collect();
                wanted.extend(shown.filter(|path| outermost(&masks, path).is_some()).cloned());
                masks.contains(METADATA)
            }
        };
        wanted.extend(is_all_wanted.then(|| METADATA.to_owned()));
        let is_whole = on_form == (0..known.len());
        if self.checked.is_none() && is_whole {
            return Some(compared.masking(None));
        }
        let paths = merged(&compared.stored, &compared.masked, &on_form, &wanted);
        (paths.len() <= MASKS_MAX).then(|| compared.masking(Some(paths)))
    }
}
