//! The work that makes a package: files one after the other, events in pieces, the bytes into control data as
//! they come.
//!
//! What is under way is in memory, so a node that takes over begins again: the same events give the same
//! bytes, and nothing of an attempt that was not finished is ever handed out. So a package stays with its
//! node when it gives way to others ([`Work::stays`]): two nodes that took turns would begin for ever. A
//! failure of the store leaves what was made so far as it is.

use sealog_control::Control;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sealog_control::{
    Case, CasePackage, Decision, DecisionIs, FoundEvent, FoundFilter, Grants, Job, JobId, LetterKind,
    ListPage, NewRecord, PackageBuilt, PackageId,
};
use sealog_core::event::StoredEvent;
use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_store::pool::Lane;
use sealog_store::{BoxFuture, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::build::{Build, File};
use super::desk::Disclosures;
use super::letters::{self, Picked, law};
use super::node::EventView;
use super::package::archive::{ArchiveWriter, ENTRY_BYTES_MAX};
use super::package::documents::{self, About, Privacy, Summary, YourData};
use super::package::{EXPLANATION, LETTER, START, manifest};
use super::packages::{KIND, PACKAGE_BYTES_MAX, PIECE_BYTES, entries_to_text};
use super::review::read_event;
use super::words::{self, Clocks};
use sealog_service::jobs::{Step, Work};
use sealog_service::people::organisation;
use sealog_service::records::system_chain::{Actor, Recorder, actions};
use sealog_service::zone;

/// Events of a piece, and their bytes; the last may be as large as a body.
const EVENTS_OF_PIECE: usize = 200;
const BYTES_OF_PIECE: usize = 512 << 10;
/// Rows that one call of control data reads.
const ROWS_OF_CALL: usize = 2000;
/// Packages under way in memory. More wait.
const UNDER_WAY_MAX: usize = 8;
/// One that was not gone on with for so long was given up, or is another node's.
const GONE_MS: u64 = 60_000;

/// Makes packages.
pub struct PackageBuilder {
    pub desk: Disclosures,
    under_way: Mutex<HashMap<JobId, (u64, Build)>>,
    bytes_max: u64,
}

impl PackageBuilder {
    pub fn new(desk: Disclosures) -> PackageBuilder {
        PackageBuilder { desk, under_way: Mutex::default(), bytes_max: PACKAGE_BYTES_MAX }
    }

    /// One that makes no package that is larger: for tests, since the real limit is a lot to write.
    pub fn at_most(self, bytes_max: u64) -> PackageBuilder {
        PackageBuilder { bytes_max, ..self }
    }
}

impl Work for PackageBuilder {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn stays(&self) -> bool {
        true
    }

    fn step<'a>(&'a self, job: &'a Job, position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            match self.piece(job, position).await {
                Err(StoreError::NoRoom) => {
                    let cause = "the disk is too full for the package; other work continues";
                    self.give_up(job, cause).await
                }
                other => other,
            }
        })
    }
}

fn failed(cause: &str) -> Step {
    Step::Failed { cause: cause.into(), records: vec![] }
}

impl PackageBuilder {
    async fn piece(&self, job: &Job, position: &[u8]) -> Result<Step, StoreError> {
        let position: Value = serde_json::from_slice(position).unwrap_or_default();
        let known = (position["attempt"].as_u64(), position["steps"].as_u64());
        let build = self.take(job.id).filter(|build| known == (Some(build.attempt), Some(build.steps)));
        let mut build = match build {
            Some(build) => build,
            None if self.is_full() => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                return Ok(Step::More(Vec::new()));
            }
            None => match self.begin(job).await? {
                Ok(build) => build,
                Err(step) => return Ok(step),
            },
        };
        let Some(file) = build.file else {
            let finished = self.finish(job, &mut build).await;
            if finished.is_err() {
                self.put(job.id, build);
            }
            return finished;
        };
        let items = match self.read_events(&build, file).await {
            Ok(Ok(items)) => items,
            Ok(Err(cause)) => return self.give_up(job, &cause).await,
            Err(error) => {
                self.put(job.id, build);
                return Err(error);
            }
        };
        build = self.write_events(build, file, items).await?;
        if build.writer.length() > self.bytes_max || build.writer.size() > ENTRY_BYTES_MAX {
            return self.give_up(job, &too_large(self.bytes_max)).await;
        }
        match self.keep(&mut build, false).await {
            Ok(true) => {}
            Ok(false) => return Ok(failed("it was stopped, or another node built it")),
            Err(error) => {
                self.put(job.id, build);
                return Err(error);
            }
        }
        build.steps += 1;
        let written = build.at as u64
            + build.writer.entries().count().saturating_sub(1) as u64 * build.events.len() as u64;
        let position = json!({ "attempt": build.attempt, "steps": build.steps, "written": written });
        self.put(job.id, build);
        Ok(Step::More(position.to_string().into_bytes()))
    }

    /// Reads what it is made of, and writes what comes before events.
    async fn begin(&self, job: &Job) -> Result<Result<Build, Step>, StoreError> {
        let desk = &self.desk;
        let Some(package) = self.package_of(job).await? else {
            return Ok(Err(failed("this version cannot read its parameters")));
        };
        if package.built.is_some() {
            return Ok(Err(self.done(&package, b"")));
        }
        if package.dropped_at_ms.is_some() {
            return Ok(Err(failed("it was stopped")));
        }
        let (id, tenant_id) = (package.new.id, package.new.tenant_id);
        let case = desk.control.case(tenant_id, package.new.case_id).await?;
        let search = desk.control.case_search(package.search_id).await?;
        let (Some(case), Some(search)) = (case, search) else {
            return Ok(Err(failed("the case does not exist")));
        };
        if desk.is_outdated(&case, &package).await? {
            return self.give_up(job, OUTDATED).await.map(Err);
        }
        let mut events = Vec::new();
        let filter =
            FoundFilter { decision: Some(DecisionIs::Made(Decision::Include)), ..FoundFilter::default() };
        loop {
            let page = desk
                .control
                .found_events(
                    search.new.id,
                    filter.clone(),
                    Grants::default(),
                    events.len() as u64,
                    ROWS_OF_CALL,
                )
                .await?;
            let is_last = page.len() < ROWS_OF_CALL;
            events.extend(page);
            if is_last {
                break;
            }
        }
        events.reverse();
        let about = self.about(&package, &case, &events).await?;
        let mut by_month: Vec<usize> = (0..events.len()).collect();
        by_month.sort_by_cached_key(|at| {
            let new = &events[*at].new;
            (about.clocks.month_number(new.timestamp_ms), words::purpose(new.category.as_deref()), *at)
        });
        let mut random = [0; 8];
        desk.world.fill_random(&mut random);
        let mut build = Build {
            id,
            tenant_id,
            // Fits the numbers of databases.
            attempt: u64::from_le_bytes(random) >> 1,
            steps: 0,
            disclosure: Arc::new(desk.disclosure(&search).await?),
            events,
            by_month,
            file: Some(File::YourData),
            at: 0,
            your_data: YourData::default(),
            summary: Summary::default(),
            writer: ArchiveWriter::new(),
            sha256: Sha256::new(),
            pieces: 0,
            rest: Vec::new(),
            manifest: None,
            about: Arc::new(about),
        };
        build.writer.put(LETTER, documents::letter(&build.about).as_bytes());
        build.begin_file(File::YourData);
        Ok(Ok(build))
    }

    async fn package_of(&self, job: &Job) -> Result<Option<CasePackage>, StoreError> {
        let parameters: Value = serde_json::from_str(&job.parameters).unwrap_or_default();
        match parameters["package_id"].as_str().and_then(Uuid::parse) {
            Some(id) => self.desk.control.case_package(PackageId(id)).await,
            None => Ok(None),
        }
    }

    /// A few events for the open file; why it cannot be done.
    async fn read_events(&self, build: &Build, file: File) -> Result<Result<Events, String>, StoreError> {
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < EVENTS_OF_PIECE
            && bytes < BYTES_OF_PIECE
            && build.at + items.len() < build.events.len()
        {
            let at = build.at + items.len();
            let at = if file == File::YourData { build.by_month[at] } else { at };
            let found = &build.events[at];
            let event = match read_event(&*self.desk.store, build.tenant_id, found).await {
                Ok(Some(event)) => event,
                Ok(None) | Err(StoreError::Damaged { .. }) => {
                    return Ok(Err(format!(
                        "event #{} cannot be read; verify its project, or exclude the event",
                        found.new.chain_seq
                    )));
                }
                Err(error) => return Err(error),
            };
            bytes += event.text.as_str().len();
            items.push((found.clone(), event));
        }
        Ok(Ok(Events { items, bytes }))
    }

    async fn write_events(
        &self,
        mut build: Build,
        file: File,
        Events { items, bytes }: Events,
    ) -> Result<Build, StoreError> {
        let tenant_id = build.tenant_id;
        build.at += items.len();
        let written = self.desk.store.pool().run(Lane::Compute, tenant_id, bytes, move || {
            for (found, event) in items {
                build.put(file, found, &EventView::of(&event));
            }
            if build.at == build.events.len() {
                build.end_file(file);
            }
            build
        });
        written.await.map_err(|_| StoreError::Closing)
    }

    /// The last files, and the record of what it is.
    async fn finish(&self, job: &Job, build: &mut Build) -> Result<Step, StoreError> {
        let desk = &self.desk;
        let Some(package) = self.package_of(job).await? else {
            return Ok(failed("the package does not exist"));
        };
        let case = desk.control.case(build.tenant_id, package.new.case_id).await?;
        let is_outdated = match &case {
            Some(case) => desk.is_outdated(case, &package).await?,
            None => true,
        };
        if is_outdated {
            return self.give_up(job, OUTDATED).await;
        }
        let manifest = match build.manifest.take() {
            Some(manifest) => manifest,
            None => {
                build.writer.put(EXPLANATION, documents::explanation(&build.about).as_bytes());
                build.writer.put(START, build.summary.page(&build.about).as_bytes());
                let manifest =
                    manifest::to_json(&build.id.0.to_string(), &build.about, build.writer.entries());
                let manifest = format!("{manifest:#}\n");
                build.writer.put(manifest::NAME, manifest.as_bytes());
                build.writer.finish();
                manifest
            }
        };
        build.manifest = Some(manifest.clone());
        if build.writer.length() > self.bytes_max {
            return self.give_up(job, &too_large(self.bytes_max)).await;
        }
        if !self.keep(build, true).await? {
            return Ok(failed("it was stopped, or another node built it"));
        }
        let built = PackageBuilt {
            bytes: build.writer.length(),
            sha256: Hash(build.sha256.clone().finalize().into()),
            manifest,
            entries: entries_to_text(build.writer.entries()),
            at_ms: desk.world.now_ms(),
        };
        desk.control.finish_package(build.id, build.attempt, built).await?;
        match self.package_of(job).await? {
            Some(package) => Ok(self.done(&package, b"")),
            None => Ok(failed("the package does not exist")),
        }
    }

    fn done(&self, package: &CasePackage, position: &[u8]) -> Step {
        let records: Vec<NewRecord> = package
            .built
            .iter()
            .map(|(_, built)| {
                let recorder = Recorder::new(Actor::System, Arc::clone(&self.desk.world));
                let metadata = json!({
                    "case_id": package.new.case_id.0.to_string(),
                    "events": package.events,
                    "bytes": built.bytes,
                    "sha256": built.sha256.to_string(),
                    "started_by": package.new.person_id.0.to_string(),
                });
                recorder.record(
                    &actions::CASE_PACKAGE_BUILT,
                    &format!("case_package/{}", package.new.id.0),
                    metadata,
                )
            })
            .collect();
        Step::Done { position: position.to_vec(), records }
    }

    /// Nothing of it is left.
    async fn give_up(&self, job: &Job, cause: &str) -> Result<Step, StoreError> {
        drop(self.take(job.id));
        if let Some(package) = self.package_of(job).await? {
            self.desk.control.abandon_package(package.new.id, self.desk.world.now_ms()).await?;
        }
        Ok(failed(cause))
    }

    /// Keeps whole pieces, and at the end what is left. Whether the package still waits for them.
    async fn keep(&self, build: &mut Build, is_last: bool) -> Result<bool, StoreError> {
        let written = build.writer.take();
        build.sha256.update(&written);
        build.rest.extend_from_slice(&written);
        while build.rest.len() >= PIECE_BYTES || (is_last && !build.rest.is_empty()) {
            // It stays in the rest until it is kept: what fails here is done again.
            let piece = build.rest[..PIECE_BYTES.min(build.rest.len())].to_vec();
            let bytes = piece.len();
            let kept = self.desk.control.add_package_piece(build.id, build.attempt, build.pieces, piece);
            if !kept.await? {
                return Ok(false);
            }
            build.rest.drain(..bytes);
            build.pieces += 1;
        }
        Ok(true)
    }

    async fn about(
        &self,
        package: &CasePackage,
        case: &Case,
        events: &[FoundEvent],
    ) -> Result<About, StoreError> {
        let administration = &*self.desk.control;
        let tenant = administration.tenant(case.tenant_id).await?;
        let organisation = tenant.map(|tenant| tenant.name).unwrap_or_default();
        let name = letters::case_name(case);
        let letters = self.desk.letters(case, &name, &organisation, Picked::default()).await?;
        let letter = letters.into_iter().find(|letter| letter.kind == LetterKind::Cover);
        let purposes: BTreeSet<String> =
            events.iter().map(|found| words::purpose(found.new.category.as_deref())).collect();
        let page = ListPage { after: None, limit: 1000 };
        let projects = administration.projects(case.tenant_id, page).await?;
        let projects = projects.into_iter().map(|project| (project.id.to_string(), project.name)).collect();
        let known = administration.known_actions(case.tenant_id).await?.into_iter().map(|known| known.action);
        let descriptions = known.filter_map(|known| Some((known.action, known.description?))).collect();
        let zone = administration.setting(case.tenant_id, organisation::TIME_ZONE.into()).await?;
        let zone = zone.as_deref().and_then(organisation::text);
        Ok(About {
            organisation,
            case: name,
            made_at_ms: package.new.created_at_ms,
            events: events.len() as u64,
            from_ms: case.scope.from_ms,
            until_ms: case.scope.until_ms,
            letter: letter.map(|letter| letter.body).unwrap_or_default(),
            privacy: privacy(administration, case.tenant_id).await?,
            law: law(case.intake.regime).to_owned(),
            purposes: purposes.into_iter().collect(),
            descriptions,
            projects,
            received_at_ms: case.intake.received_at_ms,
            clocks: Clocks::of(zone.as_deref().unwrap_or(zone::UTC)),
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<JobId, (u64, Build)>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, id: JobId) -> Option<Build> {
        self.lock().remove(&id).map(|(_, build)| build)
    }

    fn put(&self, id: JobId, build: Build) {
        let now_ms = self.desk.world.now_ms();
        self.lock().insert(id, (now_ms, build));
    }

    fn is_full(&self) -> bool {
        let now_ms = self.desk.world.now_ms();
        let mut under_way = self.lock();
        under_way.retain(|_, (at_ms, _)| now_ms.saturating_sub(*at_ms) < GONE_MS);
        under_way.len() >= UNDER_WAY_MAX
    }
}

/// Events of one piece.
struct Events {
    items: Vec<(FoundEvent, StoredEvent)>,
    bytes: usize,
}

const OUTDATED: &str = "decisions or searches have changed since the build started; build it again";

fn too_large(bytes_max: u64) -> String {
    format!(
        "the package would exceed {} MB; narrow the dates or projects of the case, or use several cases",
        bytes_max >> 20
    )
}

/// What the organisation says in its settings.
pub async fn privacy(administration: &Control, tenant_id: TenantId) -> Result<Privacy, StoreError> {
    let mut words = Vec::new();
    for name in ["purposes", "categories", "recipients", "retention", "contact"] {
        let value = administration.setting(tenant_id, format!("privacy.{name}")).await?;
        let text = value.and_then(|value| serde_json::from_str::<String>(&value).ok());
        words.push(text.filter(|text| !text.trim().is_empty()));
    }
    let mut words = words.into_iter();
    let mut next = || words.next().flatten();
    Ok(Privacy {
        purposes: next(),
        categories: next(),
        recipients: next(),
        retention: next(),
        contact: next(),
    })
}
