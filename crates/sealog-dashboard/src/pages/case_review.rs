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
use sealog_cases::disclosure::search::{RESULTS_MAX, WORKING};
use sealog_cases::disclosure::{Compared, Masking, Node};
use sealog_control::{
    Case, CaseSearch, Decided, Decision, DecisionIs, FoundEvent, FoundFilter, FoundGroup, Grants, Review,
    SearchId, Which, case_found,
};
use sealog_core::id::{ProjectId, Uuid};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find};
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, see_other};
use crate::text::{beginning, clock_ms, day, moment, number, visible};

/// Events on a page.
const ON_PAGE: usize = 100;
/// Actions by which the list is grouped; those with most to decide come first.
const GROUPS_MAX: usize = 40;
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
    groups: Vec<GroupRow>,
    /// What is asked for now, for forms to come back to.
    show: &'static str,
    action: String,
    /// The list without its action.
    all_actions: String,
    page: u64,
    rows: Vec<Row>,
    all: String,
    /// Of the undecided ones of the list: those that are included at once, and those that are to be read.
    ready: u64,
    to_read: u64,
    next: Option<String>,
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

/// The events of one action.
struct GroupRow {
    href: String,
    action: String,
    events: String,
    open: String,
    to_read: u64,
    is_current: bool,
}

struct Row {
    value: String,
    href: String,
    seq: String,
    time: String,
    full_time: String,
    action: String,
    found: String,
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
    action: String,
    found: String,
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

const fn of_decision(decision: Option<DecisionIs>) -> FoundFilter {
    FoundFilter { decision, found: 0, is_flagged: None, action: None }
}

const fn of_kind(found: u8) -> FoundFilter {
    FoundFilter { decision: None, found, is_flagged: None, action: None }
}

/// The ways to look at the list: name, words, filter.
static SHOWS: [(&str, &str, FoundFilter); 8] = [
    ("all", "All", of_decision(None)),
    ("open", "To decide", of_decision(Some(DecisionIs::Open))),
    (
        "flagged",
        "To read",
        FoundFilter { decision: Some(DecisionIs::Open), found: 0, is_flagged: Some(true), action: None },
    ),
    ("include", "Included", of_decision(Some(DecisionIs::Made(Decision::Include)))),
    ("exclude", "Excluded", of_decision(Some(DecisionIs::Made(Decision::Exclude)))),
    ("by", "By the person", of_kind(case_found::BY_PERSON)),
    ("on", "On the person", of_kind(case_found::ON_PERSON)),
    ("mention", "Mentions", of_kind(case_found::MENTION)),
];

fn shown(name: &str) -> (&'static str, FoundFilter) {
    let known = SHOWS.iter().find(|(known, _, _)| *known == name).unwrap_or(&SHOWS[0]);
    (known.0, known.2.clone())
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
        (None, _) if found.new.flags > 0 => ("warn", "To read".to_owned()),
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
        action: visible(&new.action),
        found: kinds_for_reviewer(new.found),
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

/// `14 Nov 26 16:02`: a list of many years is read by its days.
fn short(timestamp_ms: u64) -> String {
    let day = day(timestamp_ms);
    let (day, year) = day.split_at(day.len() - 4);
    format!("{day}{} {}", &year[2..], &clock_ms(timestamp_ms)[..5])
}

/// What a page, or a form that leads back to it, asks for.
struct Asking {
    search: Option<CaseSearch>,
    show: &'static str,
    /// Its action among it.
    filter: FoundFilter,
    page: u64,
    here: String,
}

impl Asking {
    async fn new(app: &Dashboard, asked: &Asked, case: &Case) -> Result<Asking, Problem> {
        let (show, filter) = shown(&value(asked, "show"));
        // As a search keeps them: PostgreSQL takes no text with a zero in it.
        let action = value(asked, "action").replace('\0', "");
        let filter = FoundFilter { action: Some(action).filter(|action| !action.is_empty()), ..filter };
        let page = value(asked, "page").parse().unwrap_or(0).min(RESULTS_MAX);
        let here = format!("/app/o/{}/cases/{}/review", case.tenant_id, case.id.0);
        Ok(Asking { search: app.service.disclosures.current_search(case).await?, show, filter, page, here })
    }

    fn list(&self, show: &str, action: Option<&str>, page: u64) -> String {
        let action = action.map_or(String::new(), |action| format!("&action={}", encoded(action)));
        format!("{}?show={show}{action}&page={page}", self.here)
    }

    /// This list, from another page on.
    fn at(&self, page: u64) -> String {
        self.list(self.show, self.filter.action.as_deref(), page)
    }

    fn event(&self, page: u64, project_id: ProjectId, seq: u64) -> String {
        format!("{}&event={project_id}:{seq}", self.at(page))
    }

    /// Where the next event of this list is that has no decision.
    async fn next(
        &self,
        app: &Dashboard,
        asked: &Asked,
        after: Option<(ProjectId, u64)>,
    ) -> Result<Option<String>, Problem> {
        let Some(search) = &self.search else { return Ok(None) };
        let grants = asked.place().membership.grants.clone();
        let control = &app.service.disclosures.control;
        let next = control.next_open(search.new.id, self.filter.clone(), grants, after).await?;
        Ok(next.map(|(found, before)| {
            self.event(before / ON_PAGE as u64, found.new.project_id, found.new.chain_seq)
        }))
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let asking = Asking::new(app, asked, case).await?;
        let mut frame = Frame::new(app, asked, case, Tab::Review).await?;
        let grants = &asked.place().membership.grants;
        let chosen = parse_event(&value(asked, "event"));
        let control = &app.service.disclosures.control;
        let (mut found, mut groups, mut all, mut ready, mut to_read) = (Vec::new(), Vec::new(), 0, 0, 0);
        let (mut review, mut compare_shown) = (Review::default(), None);
        if let Some(search) = &asking.search {
            let id = search.new.id;
            let count = |filter: FoundFilter| control.count_found(id, filter, grants.clone());
            let offset = asking.page.saturating_mul(ON_PAGE as u64);
            found = control.found_events(id, asking.filter.clone(), grants.clone(), offset, ON_PAGE).await?;
            all = count(asking.filter.clone()).await?;
            if !matches!(asking.filter.decision, Some(DecisionIs::Made(_))) {
                let open = FoundFilter { decision: Some(DecisionIs::Open), ..asking.filter.clone() };
                to_read = count(FoundFilter { is_flagged: Some(true), ..open.clone() }).await?;
                ready = count(open).await?.saturating_sub(to_read);
            }
            let any_action = FoundFilter { action: None, ..asking.filter.clone() };
            groups = control.found_groups(id, any_action, grants.clone(), GROUPS_MAX).await?;
            review = control.review_of(id, grants.clone()).await?;
            frame.is_wide = review.included + review.excluded + review.open > 0;
            if let Some((project_id, seq, _)) = chosen {
                let _place = app.reads.acquire(case.tenant_id).await;
                let first = value(asked, "values").parse().unwrap_or(0);
                let (event, grants) = (asking.event(asking.page, project_id, seq), grants.clone());
                let href = move |first| format!("{event}&values={first}#compare");
                let look = move |compared: Compared| {
                    is_granted(&grants, &compared.found).then(|| compare(&compared, first, href))
                };
                compare_shown =
                    app.service.disclosures.compare(search, project_id, seq, look).await?.flatten();
            }
        }
        let is_current = |found: &FoundEvent| {
            chosen.is_some_and(|(project, seq, _)| {
                (project, seq) == (found.new.project_id, found.new.chain_seq)
            })
        };
        let rows = found.iter().map(|found| {
            let new = &found.new;
            Row {
                value: format!("{}:{}:{}", new.project_id, new.chain_seq, found.revision),
                href: format!("{}#compare", asking.event(asking.page, new.project_id, new.chain_seq)),
                seq: number(new.chain_seq),
                time: short(new.timestamp_ms),
                full_time: moment(new.timestamp_ms),
                action: visible(&new.action),
                found: kinds_for_reviewer(new.found),
                decision: badge(found),
                reason: found.reason.as_deref().map(visible),
                is_current: is_current(found),
            }
        });
        let rows = rows.collect();
        let action = asking.filter.action.as_deref();
        let group = |group: &FoundGroup| GroupRow {
            href: asking.list(asking.show, Some(&group.action), 0),
            action: visible(&group.action),
            events: number(group.events),
            open: number(group.open),
            to_read: group.to_read,
            is_current: action == Some(&group.action),
        };
        let after = chosen.map(|(project_id, seq, _)| (project_id, seq));
        let next = asking.next(app, asked, after).await?.map(|href| format!("{href}#compare"));
        let is_more = all > (asking.page + 1).saturating_mul(ON_PAGE as u64);
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            search: asking.search.as_ref().map(|search| search.new.id.0.to_string()),
            may_decide: frame.may_manage && WORKING.contains(&case.state),
            review,
            filters: SHOWS
                .iter()
                .map(|(name, label, _)| FilterLink {
                    href: asking.list(name, action, 0),
                    label,
                    is_current: *name == asking.show,
                })
                .collect(),
            groups: groups.iter().map(group).collect(),
            show: asking.show,
            all_actions: asking.list(asking.show, None, 0),
            page: asking.page,
            rows,
            all: number(all),
            ready,
            to_read,
            next,
            newer: (asking.page > 0).then(|| asking.at(asking.page - 1)),
            older: is_more.then(|| asking.at(asking.page + 1)),
            action: action.unwrap_or_default().to_owned(),
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
    let counted = |name: &str| asked.query_value(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let events =
        |count: u64| if count == 1 { "1 event".to_owned() } else { format!("{} events", number(count)) };
    let changed = events(counted("events"));
    let left = match counted("to_read") {
        0 => String::new(),
        1 => " 1 event has text to read: open it to include it.".to_owned(),
        left => format!(" {} events have text to read: open each one to include it.", number(left)),
    };
    page.frame.notice = match asked.query_value("done").as_deref() {
        Some("include") => Some(format!("{changed} included.{left}")),
        Some("exclude") => Some(format!("{changed} excluded.")),
        Some("undecide") => Some(format!("Decision undone for {changed}.")),
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

/// To the list that the form was on; or on to the next event, where the form asks for that.
async fn back(app: &Dashboard, asked: &Asked, case: &Case, outcome: &str) -> Result<Response, Problem> {
    let asking = Asking::new(app, asked, case).await?;
    let event = parse_event(asked.field("event")).map(|(project_id, seq, _)| (project_id, seq));
    let next = match asked.field("then") {
        "next" => asking.next(app, asked, event).await?,
        _ => None,
    };
    let here = match (next, event) {
        (Some(next), _) => next,
        (None, Some((project_id, seq))) => asking.event(asking.page, project_id, seq),
        (None, None) => asking.at(asking.page),
    };
    let first: usize = asked.field("values").parse().unwrap_or(0);
    let values =
        if first > 0 && asked.field("then").is_empty() { format!("&values={first}") } else { String::new() };
    let place = if event.is_some() { "#compare" } else { "" };
    Ok(see_other(&format!("{here}{values}&{outcome}{place}")))
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
        Decided::Done { changed, left: 0, unknown: 0, to_read } => {
            let outcome = format!("done={done}&events={changed}&to_read={to_read}");
            return back(app, asked, case, &outcome).await;
        }
        Decided::Done { changed, left, unknown, .. } => {
            let left = match left {
                0 => String::new(),
                left => format!(
                    " Someone else decided {left} in the meantime; those did not change. Review them and decide again."
                ),
            };
            let unknown = match unknown {
                0 => String::new(),
                1 => " 1 is not an event that this search found, so it was skipped.".to_owned(),
                many => format!(" {many} are not events that this search found, so they were skipped."),
            };
            format!("{changed} decided.{left}{unknown}")
        }
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
    let (done, decision, is_of_all) = match asked.field("do") {
        "include" => ("include", Some(Decision::Include), false),
        "include_all" => ("include", Some(Decision::Include), true),
        "exclude" => ("exclude", Some(Decision::Exclude), false),
        "exclude_all" => ("exclude", Some(Decision::Exclude), true),
        "undecide" => ("undecide", None, false),
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
        return answer(&app, &asked, &case, Decided::Locked(None), done).await;
    };
    let which = if is_of_all {
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
    answer(&app, &asked, &case, decided, done).await
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
