//! The package of a case: made from what was decided, downloaded with or without a password, dropped after
//! its time.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, HeaderValue, VARY};
use axum::response::Response;
use futures_util::stream;
use sealog_cases::disclosure::builder;
use sealog_cases::disclosure::letters::case_name;
use sealog_cases::disclosure::packages::{
    BUILDING, KEPT_DAYS, PACKAGE_BYTES_MAX, PASSWORD_CHARS_MIN, UNENDED_MAX, is_for_handing_out,
};
use sealog_cases::disclosure::{NotHandedOut, PackageDownload, PackageRun};
use sealog_control::{Case, CasePackage, CaseState, JobState, PackageCreated, Review};
use sealog_core::id::Uuid;
use sealog_core::reject::Code;
use sealog_service::Secret;
use sealog_store::StoreError;

use crate::app::Dashboard;
use crate::capability::Capability;
use crate::gate::of_control;
use crate::layout::{Current, Shell};
use crate::pages::case_frame::{Frame, Tab, find};
use crate::pages::tail::is_admitted;
use crate::pages::verification_run::file;
use crate::problem::Problem;
use crate::request::{Asked, html, html_with, see_other};
use crate::streams::StreamPlace;
use crate::text::{moment, number};
use crate::views;

/// How often a download looks whether the person may still have it.
const STILL_EVERY_MS: u64 = 1000;

#[derive(Template)]
#[template(path = "pages/case_package.html", blocks = ["state"])]
struct Page<'a> {
    shell: Shell<'a>,
    frame: Frame,
    review: Review,
    has_privacy_text: bool,
    may_build: bool,
    why_not: Option<String>,
    is_running: bool,
    /// Events that were written, of how many.
    progress: Option<(u64, u64)>,
    rows: Vec<Row>,
    kept_days: u64,
    most_mb: u64,
    password_min: usize,
}

struct Row {
    id: String,
    made: String,
    state: String,
    class: &'static str,
    events: String,
    size: Option<String>,
    sha256: Option<String>,
    expires: Option<String>,
    can_download: bool,
    password_error: Option<String>,
}

fn row(run: &PackageRun, is_outdated: bool, now_ms: u64, may_download: bool) -> Row {
    let package = &run.package;
    let built = package.built.as_ref().map(|(_, built)| built);
    let is_over = package.dropped_at_ms.is_some() || package.new.expires_at_ms <= now_ms;
    let cause = run.job.as_ref().and_then(|(_, cause)| cause.clone());
    let state = run.job.as_ref().map(|(state, _)| *state);
    let (class, state) = match (built, state) {
        (Some(_), _) if is_over => ("", "Expired and deleted".to_owned()),
        (Some(_), _) if is_outdated => ("warn", "Outdated: decisions have changed since".to_owned()),
        (Some(_), _) => ("ok", "Ready".to_owned()),
        (None, Some(JobState::Failed)) => ("bad", format!("Failed: {}", cause.unwrap_or_default())),
        (None, Some(JobState::Cancelled)) => ("", "Stopped".to_owned()),
        (None, Some(JobState::Waiting)) => ("accent", "Waiting to start".to_owned()),
        (None, Some(JobState::Running)) => ("accent", "Building".to_owned()),
        (None, _) => ("", "Not finished".to_owned()),
    };
    Row {
        id: package.new.id.0.to_string(),
        made: moment(package.new.created_at_ms),
        events: number(package.events),
        size: built.map(|built| number(built.bytes)),
        sha256: built.map(|built| built.sha256.to_string()),
        expires: built.filter(|_| !is_over).map(|_| moment(package.new.expires_at_ms)),
        can_download: may_download && built.is_some() && !is_over && !is_outdated,
        password_error: None,
        class,
        state,
    }
}

fn why_not(case: &Case, review: Review, has_search: bool) -> Option<String> {
    if !case.is_identity_confirmed() {
        return Some("Disclosure is locked until the identity of the requester is confirmed.".into());
    }
    if !has_search {
        return Some("Run a search first.".into());
    }
    if review.open > 0 {
        return Some(format!("{} events still need a decision.", number(review.open)));
    }
    (!BUILDING.contains(&case.state)).then(|| "Approve the case to build a package.".into())
}

impl<'a> Page<'a> {
    async fn new(app: &'a Dashboard, asked: &'a Asked, case: &Case) -> Result<Page<'a>, Problem> {
        let runs = app.service.disclosures.packages(case).await?;
        let search = app.service.disclosures.current_search(case).await?;
        let review = match &search {
            Some(search) => {
                app.service
                    .disclosures
                    .control
                    .review_of(search.new.id, asked.place().membership.grants.clone())
                    .await?
            }
            None => Review::default(),
        };
        let frame = Frame::new(app, asked, case, Tab::Package).await?;
        let may_download = may_hand_out(asked) && case.is_identity_confirmed() && is_for_handing_out(case);
        let running = runs.iter().find(|run| run.is_running());
        let privacy = builder::privacy(&app.service.control, case.tenant_id).await.map_err(of_control)?;
        let mut rows = Vec::new();
        for run in &runs {
            let is_outdated = app.service.disclosures.is_outdated(case, &run.package).await?;
            rows.push(row(run, is_outdated, app.service.world.now_ms(), may_download));
        }
        let why_not = why_not(case, review, search.is_some());
        Ok(Page {
            shell: Shell::new(app, asked, Some(Current::Cases)),
            review,
            has_privacy_text: !privacy.is_empty(),
            is_running: running.is_some(),
            // Each event is in three files.
            progress: running.and_then(|run| Some((run.progress?, run.package.events * 3))),
            may_build: frame.may_manage && why_not.is_none() && running.is_none(),
            why_not,
            rows,
            kept_days: KEPT_DAYS,
            most_mb: PACKAGE_BYTES_MAX >> 20,
            password_min: PASSWORD_CHARS_MIN,
            frame,
        })
    }
}

/// Those who may work on cases; what was handed out from a closed one, too.
fn may_hand_out(asked: &Asked) -> bool {
    asked.place().may(Capability::ManageCases)
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "package").await?;
    let page = Page::new(&app, &asked, &case).await?;
    let mut response = if asked.wants_part() { html(&page.as_state()) } else { html(&page) };
    response.headers_mut().append(VARY, HeaderValue::from_static("HX-Request"));
    Ok(response)
}

fn here(case: &Case) -> String {
    format!("/app/o/{}/cases/{}/package", case.tenant_id, case.id.0)
}

async fn refused(app: &Dashboard, asked: &Asked, case: &Case, why: String) -> Result<Response, Problem> {
    let mut page = Page::new(app, asked, case).await?;
    page.frame.error = Some(why);
    Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page))
}

pub(crate) async fn build(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "package").await?;
    let created = match app.service.disclosures.create_package(asked.person().person.id, &case).await {
        Err(StoreError::Refused(why)) => return refused(&app, &asked, &case, why).await,
        Err(error @ StoreError::TenantFull { .. }) => {
            return refused(&app, &asked, &case, format!("Not built: {error}.")).await;
        }
        created => created?,
    };
    let why = match created {
        PackageCreated::Done(_) => return Ok(see_other(&here(&case))),
        PackageCreated::Missing => return Err(Problem::not_found()),
        PackageCreated::NotIdentified => {
            "Disclosure is locked until the identity of the requester is confirmed.".to_owned()
        }
        PackageCreated::Locked(CaseState::Review) => "Approve the case to build a package.".to_owned(),
        PackageCreated::Locked(_) => "You can build a package only while the case is approved.".to_owned(),
        PackageCreated::Undecided(None) => "Run a search first.".to_owned(),
        PackageCreated::Undecided(Some(open)) => {
            format!("{} events still need a decision. Move the case back to review.", number(open))
        }
        PackageCreated::TooMany => {
            format!("Your organisation is already building {UNENDED_MAX} packages. Wait until one is ready.")
        }
    };
    refused(&app, &asked, &case, why).await
}

pub(crate) async fn stop(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "package").await?;
    app.service.disclosures.stop_package(&case).await?;
    Ok(see_other(&here(&case)))
}

/// Of another case: like one that does not exist.
async fn find_package(app: &Dashboard, asked: &Asked, case: &Case) -> Result<CasePackage, Problem> {
    let id = Uuid::parse(asked.parameter("package")).ok_or(Problem::not_found())?;
    app.service.disclosures.package(case, id).await?.ok_or(Problem::not_found())
}

/// What the package is, also after it has expired.
pub(crate) async fn manifest(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "manifest").await?;
    let package = find_package(&app, &asked, &case).await?;
    let (_, built) = package.built.ok_or(Problem::not_found())?;
    let name = format!("{}-{}.manifest.json", case_name(&case), &package.new.id.0.to_string()[..8]);
    Ok(file(built.manifest, "application/json", &name))
}

/// The file. Each download is sealed into the system chain before its first byte.
pub(crate) async fn download(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let case = find(&app, &asked, "download").await?;
    let package = find_package(&app, &asked, &case).await?;
    let password = asked.secret("password");
    if !password.0.is_empty() && password.0.chars().count() < PASSWORD_CHARS_MIN {
        let mut page = Page::new(&app, &asked, &case).await?;
        let why = format!("Use at least {PASSWORD_CHARS_MIN} characters, or leave it empty.");
        for row in page.rows.iter_mut().filter(|row| row.id == package.new.id.0.to_string()) {
            row.password_error = Some(why.clone());
        }
        return Ok(html_with(StatusCode::UNPROCESSABLE_ENTITY, &page));
    }
    let password = Some(password).filter(|password: &Secret| !password.0.is_empty());
    let Some(permit) = app.downloads.enter(asked.place().tenant.id, asked.person().person.id) else {
        return Err(Problem::new(
            Code::RateLimitExceeded,
            "Too many downloads are running. Try again when one has finished.",
        ));
    };
    let handed = app.service.disclosures.hand_out(asked.person().person.id, &case, &package, password).await;
    let why = match handed {
        Ok(download) => {
            let name = format!("{}-{}.zip", case_name(&case), &package.new.id.0.to_string()[..8]);
            return Ok(stream_of(&app, asked, download, permit, &name));
        }
        Err(NotHandedOut::Store(error @ StoreError::Read(_))) => return Err(error.into()),
        Err(NotHandedOut::Store(error)) => return Err(views::not_sealed(&error)),
        Err(NotHandedOut::NotIdentified) => {
            "Disclosure is locked until the identity of the requester is confirmed."
        }
        Err(NotHandedOut::State(_)) => {
            "You can download a package while the case is approved and after it is delivered."
        }
        Err(NotHandedOut::NotBuilt) => "The package is not ready yet.",
        Err(NotHandedOut::Dropped) => "The package has expired. Its record stays.",
        Err(NotHandedOut::Outdated) => "Decisions have changed since the package was built. Build it again.",
        Err(NotHandedOut::NotHere) => {
            "The package content is missing: control data was copied without it. Build it again."
        }
    };
    refused(&app, &asked, &case, why.to_owned()).await
}

/// A download, as long as the person may have it.
struct Streamed {
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
    download: PackageDownload,
    looked_at_ms: u64,
    _permit: StreamPlace,
}

impl Streamed {
    async fn next(&mut self) -> Result<Option<Vec<u8>>, String> {
        let now_ms = self.app.service.world.now_ms();
        if now_ms.saturating_sub(self.looked_at_ms) >= STILL_EVERY_MS {
            if !is_admitted(&self.app, &self.asked).await {
                return Err("the session, the membership or its grants have ended".into());
            }
            self.looked_at_ms = now_ms;
        }
        self.download.next().await.map_err(|error| error.to_string())
    }
}

fn stream_of(
    app: &Arc<Dashboard>,
    asked: Arc<Asked>,
    download: PackageDownload,
    permit: StreamPlace,
    name: &str,
) -> Response {
    let length = download.length();
    let streamed = Streamed {
        app: Arc::clone(app),
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
    let mut response = file(Body::from_stream(pieces), "application/zip", name);
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    response
}
