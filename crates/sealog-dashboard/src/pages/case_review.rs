//! What is disclosed of the events that were found: include, exclude, mask; singly and in bulk, as stored beside as disclosed.

use std::sync::Arc;

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use sealog_control::{
    Case, CaseSearch, Decided, Decision, DecisionIs, FoundEvent, FoundFilter, Grants, Review, Which,
    case_found,
};
use sealog_core::id::{ProjectId, Uuid};
use sealog_service::disclosure::finder::kinds_for_reviewer;
use sealog_service::disclosure::masks::covers;
use sealog_service::disclosure::review::MASKS_MAX;
use sealog_service::disclosure::search::WORKING;
use sealog_service::disclosure::{Compared, EventView, Node};

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find};
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::text::{beginning, moment, number, visible};

/// Events on a page.
const ON_PAGE: usize = 50;
/// Values of an event that are shown one by one; more are masked with all of its metadata.
const VALUES_MAX: usize = 200;
/// Of a value.
const SHOWN_BYTES: usize = 2000;
const REASON_CHARS_MAX: usize = 500;

#[derive(Template)]
#[template(path = "pages/case_review.html")]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    has_search: bool,
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
    left_out: usize,
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
        (Some(Decision::Exclude), _) => ("", "Exclude".to_owned()),
        (Some(Decision::Include), None) => ("ok", "Include".to_owned()),
        (Some(Decision::Include), Some(masks)) => ("warn", format!("Include, {} masked", masks.len())),
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
        Node::List(_) | Node::Object(_) => node.to_json(),
    };
    let (beginning, is_all) = beginning(&text, SHOWN_BYTES);
    let mut shown = visible(beginning);
    if !is_all {
        shown.push('…');
    }
    shown
}

/// Where a path leads in the disclosed event: itself, or what masks it as a whole.
fn disclosed_at<'v>(
    view: &'v EventView,
    at: usize,
    path: &str,
    leaves: &[(String, &'v Node)],
) -> Option<&'v Node> {
    let same = leaves.get(at).filter(|(known, _)| known == path);
    let same = same.or_else(|| leaves.iter().find(|(known, _)| known == path || covers(known, path)));
    same.map(|(_, node)| *node).or_else(|| view.field(path.split(['.', '[']).next().unwrap_or(path)))
}

fn compare(compared: &Compared) -> Compare {
    let new = &compared.found.new;
    let (stored, disclosed) = (compared.stored.leaves(), compared.disclosed.leaves());
    let is_masked = |path: &str| compared.masked.iter().any(|mask| covers(mask, path));
    let values: Vec<ValueRow> = stored
        .iter()
        .take(VALUES_MAX)
        .enumerate()
        .map(|(at, (path, node))| {
            let after =
                disclosed_at(&compared.disclosed, at, path, &disclosed).map(shown_value).unwrap_or_default();
            let before = shown_value(node);
            ValueRow {
                is_masked: is_masked(path),
                is_changed: before != after,
                is_flagged: compared.suggested.flags.contains(path),
                path: visible(path),
                stored: before,
                disclosed: after,
            }
        })
        .collect();
    Compare {
        seq: number(new.chain_seq),
        time: moment(new.timestamp_ms),
        badge: badge(&compared.found),
        event: format!("{}:{}", new.project_id, new.chain_seq),
        revision: compared.found.revision,
        left_out: stored.len().saturating_sub(values.len()),
        values,
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
        Ok(Asking { search: app.disclosures.current_search(case).await?, show, filter, page })
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let asking = Asking::new(app, asked, case).await?;
        let frame = Frame::new(app, asked, case, Tab::Review).await?;
        let here = format!("{}/review", frame.here);
        let grants = &asked.place().membership.grants;
        let chosen = parse_event(&value(asked, "event"));
        let control = &app.disclosures.control;
        let (mut found, mut all, mut open_matching) = (Vec::new(), 0, 0);
        let (mut review, mut compare_shown) = (Review::default(), None);
        if let Some(search) = &asking.search {
            let offset = asking.page.saturating_mul(ON_PAGE as u64);
            found = control.found_events(search.new.id, asking.filter, offset, ON_PAGE).await?;
            all = control.count_found(search.new.id, asking.filter).await?;
            let open = match asking.filter.decision {
                Some(DecisionIs::Made(_)) => None,
                _ => Some(FoundFilter { decision: Some(DecisionIs::Open), ..asking.filter }),
            };
            if let Some(open) = open {
                open_matching = control.count_found(search.new.id, open).await?;
            }
            review = control.review_of(search.new.id).await?;
            if let Some((project_id, seq, _)) = chosen {
                let _place = app.reads.acquire(case.tenant_id).await;
                let compared = app.disclosures.compare(search, project_id, seq).await?;
                let compared = compared.filter(|compared| is_granted(grants, &compared.found));
                compare_shown = compared.as_ref().map(compare);
            }
        }
        let query = |page: u64| format!("show={}&page={page}", asking.show);
        let is_current = |found: &FoundEvent| {
            chosen.is_some_and(|(project, seq, _)| {
                (project, seq) == (found.new.project_id, found.new.chain_seq)
            })
        };
        let rows = found.iter().filter(|found| is_granted(grants, found)).map(|found| {
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
            has_search: asking.search.is_some(),
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
    page.frame.notice = match asked.query_value("done").as_deref() {
        Some("decided") => Some("Decided."),
        Some("masked") => Some("The masks were saved, and the event is included."),
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

fn back(case: &Case, asked: &Asked, done: &str) -> Response {
    let (show, _) = shown(asked.field("show"));
    let page: u64 = asked.field("page").parse().unwrap_or(0);
    let event = parse_event(asked.field("event"));
    let event = event.map_or(String::new(), |(project, seq, _)| format!("&event={project}:{seq}"));
    let here = format!("/app/o/{}/cases/{}/review", case.tenant_id, case.id.0);
    see_other(&format!("{here}?show={show}&page={page}{event}&done={done}"))
}

/// Says what became of a decision.
async fn answer(
    app: &Dashboard,
    asked: &Asked,
    case: &Case,
    decided: Decided,
    done: &str,
) -> Result<Response, Problem> {
    let why = match decided {
        Decided::Done { left: 0, .. } => return Ok(back(case, asked, done)),
        Decided::Done { changed, left } => format!(
            "{changed} decided. Somebody else has decided about {left} meanwhile: those were left as they are now. Look at them and decide again."
        ),
        Decided::Locked(Some(_)) => {
            "Nothing is decided in the state in which the case is. Somebody may have moved it on meanwhile."
                .to_owned()
        }
        Decided::Locked(None) => {
            "There is a newer search. Look at what it has found and decide again.".to_owned()
        }
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
            Some("Say why these events are not disclosed.".to_owned())
        }
        _ if reason.chars().count() > REASON_CHARS_MAX => {
            Some(format!("It has more than {REASON_CHARS_MAX} characters."))
        }
        _ => None,
    };
    if let Some(wrong) = wrong_reason {
        return refused(&app, &asked, &case, unprocessable, |page| page.reason_error = Some(wrong)).await;
    }
    let asking = Asking::new(&app, &asked, &case).await?;
    let Some(search) = asking.search else {
        return refused(&app, &asked, &case, unprocessable, |page| {
            page.frame.error = Some("There is no search that has ended.".into());
        })
        .await;
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
            page.frame.error = Some("Choose events first.".into());
        })
        .await;
    }
    let reason = Some(reason).filter(|reason| decision == Some(Decision::Exclude) && !reason.is_empty());
    let person_id = asked.person().person.id;
    let decided = app.disclosures.decide(person_id, &case, search.new.id, which, decision, reason).await?;
    answer(&app, &asked, &case, decided, "decided").await
}

pub(crate) async fn mask(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "review").await?;
    let search = app.disclosures.current_search(&case).await?;
    let event = parse_event(asked.field("event"));
    let (Some(search), Some((project_id, seq, _))) = (search, event) else {
        return Err(Problem::not_found());
    };
    let compared = {
        let _place = app.reads.acquire(case.tenant_id).await;
        app.disclosures.compare(&search, project_id, seq).await?
    };
    let compared = compared.ok_or(Problem::not_found())?;
    // A path counts where the event has it.
    let known = compared.stored.leaves();
    let is_known =
        |path: &String| path == "metadata" || known.iter().any(|(known, _)| visible(known) == *path);
    let chosen = asked.form.iter().filter(|(name, _)| name == "m").take(MASKS_MAX);
    let chosen: Vec<String> = chosen.map(|(_, path)| path.0.clone()).filter(is_known).collect();
    let real = |path: &String| {
        let found = known.iter().find(|(known, _)| visible(known) == *path);
        found.map_or_else(|| path.clone(), |(known, _)| known.clone())
    };
    let paths = match asked.field("do") {
        "suggested" => None,
        _ => Some(chosen.iter().map(real).collect()),
    };
    let revision = asked.field("revision").parse().unwrap_or(0);
    let person_id = asked.person().person.id;
    let decided = app.disclosures.mask(person_id, &case, &compared, search.new.id, revision, paths).await?;
    answer(&app, &asked, &case, decided, "masked").await
}
