//! Exports of a chain: frozen queries, downloaded as files that are the same each time.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::stream;
use sealog_control::Export;
use sealog_core::id::{ChainId, Mode, Uuid};
use sealog_core::reject::{Code, Reject};
use sealog_service::evidence::exports::{
    CreateError, Download, Format, Frozen, KEPT_MAX, NotFrozen, dropped_of, manifest,
};
use sealog_service::evidence::search;
use sealog_service::records::system_chain::actions;
use serde_json::json;

use crate::app::Dashboard;
use crate::layout::{Current, Shell};
use crate::pages::query_bar;
use crate::pages::tail::is_admitted;
use crate::pages::verification::chain;
use crate::pages::verification_run::file;
use crate::problem::Problem;
use crate::request::{Asked, encoded, html, html_with, see_other};
use crate::streams::StreamPlace;
use crate::text::{moment, number, visible};
use crate::views;

/// Exports on a page.
const EXPORTS_ON_PAGE: usize = 50;
/// How long a value of a filter may be: as long as the longest that an event can have.
const VALUE_SCALARS_MAX: usize = 255;
/// How often a download looks whether the person may still have it.
const STILL_EVERY_MS: u64 = 1000;

/// The search of the query bar and the filters of the API, in the order of the form.
const FIELDS: [(&str, &str, &str); 6] = [
    (query_bar::NAME, "Search", "search"),
    ("action", "Action", "text"),
    ("actor_id", "Actor", "text"),
    ("resource", "Resource", "text"),
    ("date_from", "From", "date"),
    ("date_to", "To", "date"),
];

#[derive(Template)]
#[template(path = "pages/exports.html")]
struct Page<'a> {
    shell: Shell<'a>,
    project: String,
    mode: &'static str,
    here: String,
    events: String,
    is_test: bool,
    notice: Option<&'static str>,
    error: Option<String>,
    rows: Vec<Row>,
    older: Option<String>,
    fields: Vec<Field>,
    format: String,
    format_error: Option<&'static str>,
}

struct Field {
    name: &'static str,
    label: &'static str,
    kind: &'static str,
    value: String,
    error: Option<String>,
}

struct Row {
    id: String,
    created: String,
    format: &'static str,
    is_faithful: bool,
    range: String,
    filters: Vec<(String, String)>,
    /// Rows, bytes and SHA-256, once they are known.
    totals: Option<(String, String, String)>,
    /// The last of its events that were dropped for their age. Its file cannot be made any more.
    dropped: Option<String>,
}

fn path(chain: ChainId) -> String {
    format!("/app/p/{}/{}/exports", chain.project_id, chain.mode.as_str())
}

/// The filters of an export, decoded, for people.
fn filters(export: &Export) -> Vec<(String, String)> {
    form_urlencoded::parse(export.new.query.as_bytes()).into_owned().collect()
}

/// `dropped_to` is the last event of the chain that was dropped, 0 where none was.
fn row(export: &Export, dropped_to: u64) -> Row {
    let format = Format::parse(&export.new.format);
    let new = &export.new;
    let totals =
        export.totals.map(|totals| (number(totals.rows), number(totals.bytes), totals.sha256.to_string()));
    Row {
        id: new.id.0.to_string(),
        created: moment(new.created_at_ms),
        format: match format {
            Some(Format::Csv) => "CSV, for reading",
            Some(Format::SpreadsheetCsv) => "CSV for spreadsheets, for reading",
            Some(Format::Ndjson) => "NDJSON",
            None => "Unknown",
        },
        is_faithful: format.is_some_and(Format::is_faithful),
        range: match new.first_seq <= new.last_seq {
            true => format!("#{} to #{}", number(new.first_seq), number(new.last_seq)),
            false => "No events".into(),
        },
        filters: filters(export).into_iter().map(|(name, value)| (name, visible(&value))).collect(),
        totals,
        dropped: dropped_of(new, dropped_to).map(number),
    }
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked) -> Result<Page<'a>, Problem> {
        let (place, chain) = (asked.place(), chain(asked)?);
        let here = path(chain);
        let before = asked.query_value("before").map(|id| Uuid::parse(&id).ok_or(Problem::not_found()));
        let grants = &place.membership.grants;
        let (found, more) =
            app.service.exporter.list(chain, before.transpose()?, EXPORTS_ON_PAGE, grants).await?;
        let dropped_to = app.service.store.head(chain).await?.dropped.chain_seq;
        // A link can bring filters along.
        let value = |name: &str| {
            let typed = asked.field(name);
            if typed.is_empty() { asked.query_value(name).unwrap_or_default() } else { typed.to_owned() }
        };
        let field = |(name, label, kind)| Field { name, label, kind, value: value(name), error: None };
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Exports)),
            project: place.chain.as_ref().map_or(String::new(), |(project, _)| visible(&project.name)),
            mode: chain.mode.as_str(),
            events: place.events_path(),
            is_test: chain.mode == Mode::Test,
            notice: asked
                .query_value("done")
                .map(|_| "Export created. Its rows are counted on first download."),
            error: None,
            rows: found.iter().map(|export| row(export, dropped_to)).collect(),
            older: more.map(|id| format!("{here}?before={id}")),
            fields: FIELDS.map(field).into(),
            format: value("format"),
            format_error: None,
            here,
        })
    }
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let page = Page::new(&app, &asked).await?;
    seal(&app, &asked).await?;
    Ok(html(&page))
}

/// The list of exports is seen, also under a form that has something wrong in it.
async fn seal(app: &Dashboard, asked: &Asked) -> Result<(), Problem> {
    let chain = chain(asked)?;
    let metadata = json!({ "page": "exports", "mode": chain.mode.as_str() });
    let resource = format!("project/{}", chain.project_id);
    views::seal(app, asked, &actions::PAGE_VIEWED, &resource, metadata).await
}

pub(crate) async fn create(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let (place, chain) = (asked.place(), chain(&asked)?);
    let page = Page::new(&app, &asked).await?;
    let wrong = async |page| {
        seal(&app, &asked).await?;
        Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
    };
    let Some(format) = Format::parse(&page.format) else {
        return wrong(Page { format_error: Some("Choose a format."), ..page }).await;
    };
    let frozen = match freeze(&page.fields, chain, app.service.world.now_ms()) {
        Ok(frozen) => frozen,
        Err((name, problem)) => {
            let mut page = page;
            match page.fields.iter_mut().find(|field| field.name == name) {
                Some(field) => field.error = Some(problem),
                None => page.error = Some(problem),
            }
            return wrong(page).await;
        }
    };
    let _place = app.reads.acquire(chain.tenant_id).await;
    let person = &asked.person().person;
    match app.service.exporter.create(person.id, chain, format, frozen, &place.membership.grants).await {
        Ok(export) => {
            let project = place.chain.as_ref().map_or("", |(project, _)| &project.name);
            // It is there, whether anybody is told or not.
            if let Err(error) = app.service.exporter.tell(person, &export, project).await {
                tracing::warn!(%error, "failed to queue the notice of an export that is ready");
            }
            Ok(see_other(&format!("{}?done=created", path(chain))))
        }
        Err(CreateError::TooMany) => {
            let error = Some(format!(
                "Your organisation has {} exports, the maximum, and none was fully downloaded. Download one completely: a new export can then replace it.",
                number(KEPT_MAX)
            ));
            wrong(Page { error, ..page }).await
        }
        Err(CreateError::Store(error)) => Err(error.into()),
    }
}

/// The filters as the API would read them and the search as it is meant now, or which field is wrong, and
/// why.
fn freeze(fields: &[Field], chain: ChainId, now_ms: u64) -> Result<Frozen, (String, String)> {
    let in_search = |problem: String| (query_bar::NAME.to_owned(), problem);
    let mut pairs = Vec::new();
    for Field { name, value, .. } in fields.iter().filter(|field| !field.value.is_empty()) {
        if *name == query_bar::NAME {
            let frozen = search::freeze(value, now_ms);
            pairs.push((*name, frozen.map_err(|error| in_search(error.explain(value.trim())))?));
        } else if value.chars().count() > VALUE_SCALARS_MAX {
            return Err(((*name).into(), format!("Use at most {VALUE_SCALARS_MAX} characters.")));
        } else {
            pairs.push((*name, value.clone()));
        }
    }
    let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    Frozen::read(&pairs.join("&"), chain).map_err(|wrong| match wrong {
        NotFrozen::Search(problem) => in_search(problem),
        NotFrozen::Filter(Reject::InvalidParam { name, problem }) => (name, format!("It {problem}.")),
        NotFrozen::Filter(other) => (String::new(), other.to_string()),
    })
}

/// Of another chain, or that covers more than the person may see: like one that does not exist.
async fn find(app: &Dashboard, asked: &Asked) -> Result<Export, Problem> {
    let id = Uuid::parse(asked.parameter("export")).ok_or(Problem::not_found())?;
    let found = app.service.exporter.find(chain(asked)?, id, &asked.place().membership.grants).await?;
    found.ok_or(Problem::not_found())
}

pub(crate) async fn manifest(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let export = find(&app, &asked).await?;
    let metadata = json!({ "page": "manifest" });
    views::seal(&app, &asked, &actions::PAGE_VIEWED, &format!("export/{}", export.new.id.0), metadata)
        .await?;
    let text = format!("{:#}\n", manifest::to_json(&export, &filters(&export)));
    let name = format!("{}.manifest.json", manifest::file_name(&export));
    Ok(file(text, "application/json", &name))
}

/// The file. Each download is sealed into the system chain before its first byte, whoever asks.
pub(crate) async fn download(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let export = find(&app, &asked).await?;
    if let Some(dropped) = app.service.exporter.dropped_to(&export).await? {
        return Err(Problem::new(
            Code::RequestNotFound,
            format!(
                "This export is no longer available: its test events up to #{} were deleted by age. Create a new export of the remaining events.",
                number(dropped)
            ),
        ));
    }
    // A client that reads slowly holds a piece for as long.
    let Some(permit) = app.downloads.enter(asked.place().tenant.id, asked.person().person.id) else {
        return Err(Problem::new(
            Code::RateLimitExceeded,
            "Too many downloads are running. Try again when one has finished.",
        ));
    };
    let name = manifest::file_name(&export);
    let content_type =
        Format::parse(&export.new.format).map_or("application/octet-stream", Format::content_type);
    let download = app
        .service
        .exporter
        .download(asked.person().person.id, export)
        .await
        .map_err(|error| views::not_sealed(&error))?;
    let streamed = Streamed {
        app: Arc::clone(&app),
        asked,
        download,
        looked_at_ms: app.service.world.now_ms(),
        _permit: permit,
    };
    let pieces = stream::unfold(Some(streamed), async |streamed| {
        let mut streamed = streamed?;
        match streamed.next().await {
            Ok(Some(piece)) => Some((Ok(piece), Some(streamed))),
            Ok(None) => None,
            // The connection ends in the middle, which no client can take for the whole file.
            Err(cause) => Some((Err(std::io::Error::other(cause)), None)),
        }
    });
    Ok(file(Body::from_stream(pieces), content_type, &name))
}

/// A download, as long as the person may have it.
struct Streamed {
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
    download: Download,
    looked_at_ms: u64,
    _permit: StreamPlace,
}

impl Streamed {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            match self.piece().await? {
                Some(piece) if piece.is_empty() => {}
                piece => return Ok(piece),
            }
        }
    }

    async fn piece(&mut self) -> Result<Option<Vec<u8>>, String> {
        let now_ms = self.app.service.world.now_ms();
        if now_ms.saturating_sub(self.looked_at_ms) >= STILL_EVERY_MS {
            if !is_admitted(&self.app, &self.asked).await {
                return Err("the session, the membership or its grants have ended".into());
            }
            self.looked_at_ms = now_ms;
        }
        self.download.give_way().await;
        // As pages do: a few at a time read events, and none for longer than a piece.
        let _place = self.app.reads.acquire(self.asked.place().tenant.id).await;
        self.download.next().await.map_err(|error| error.to_string())
    }
}
