//! How a package is asked for, downloaded and dropped. [`super::builder`] makes it.

use sealog_control::Control;
use std::sync::Arc;
use std::time::Duration;

use sealog_control::{
    Case, CaseOutcome, CasePackage, CaseState, Grants, JobId, JobState, NewCasePackage, NewJob, PackageBuilt,
    PackageCreated, PackageId, PersonId,
};
use sealog_core::id::{Hash, TenantId, Uuid};
use sealog_core::time::DAY_MS;
use sealog_store::pool::Lane;
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::desk::Disclosures;
use super::package::archive::Entry;
use super::package::encrypted::{Encryption, SALT_BYTES};
use sealog_service::Secret;
use sealog_service::records::system_chain::{Actor, Recorder, Wake, actions};

/// Of its jobs.
pub const KIND: &str = "case-package";
/// Packages of a tenant that are being made.
pub const UNENDED_MAX: usize = 2;
/// Of one package.
pub const PACKAGE_BYTES_MAX: u64 = 256 << 20;
/// Of a piece in control data.
pub const PIECE_BYTES: usize = 256 << 10;
/// How long a package is kept.
pub const KEPT_DAYS: u64 = 30;
/// Packages of a case that are shown.
pub const PACKAGES_MAX: usize = 20;
/// A package is made of what was approved.
pub const BUILDING: &[CaseState] = &[CaseState::Approved];
/// Of a password: what is shorter is guessed.
pub const PASSWORD_CHARS_MIN: usize = 12;

/// And handed out then, or again once it was delivered. That a case is closed says nothing of how it ended:
/// one that was withdrawn or refused has nothing to hand out.
pub fn is_for_handing_out(case: &Case) -> bool {
    match case.state {
        CaseState::Approved => true,
        CaseState::Delivered | CaseState::Closed => {
            case.answer.is_some_and(|answer| answer.outcome == CaseOutcome::Fulfilled)
        }
        _ => false,
    }
}

/// A package with the state of its job.
#[derive(Clone, Debug)]
pub struct PackageRun {
    pub package: CasePackage,
    pub job: Option<(JobState, Option<String>)>,
    /// Events that were written in each of its files, together.
    pub progress: Option<u64>,
}

impl PackageRun {
    pub fn is_running(&self) -> bool {
        let is_working = |(state, _): &(JobState, _)| matches!(state, JobState::Waiting | JobState::Running);
        self.package.built.is_none()
            && self.package.dropped_at_ms.is_none()
            && self.job.as_ref().is_some_and(is_working)
    }
}

/// Why a package is not handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotHandedOut {
    /// The case is in this state.
    State(CaseState),
    NotIdentified,
    /// It is not made yet.
    NotBuilt,
    Dropped,
    /// Something was decided since it was made.
    Outdated,
    /// Its content is not here: control data was copied without it.
    NotHere,
    Store(StoreError),
}

impl From<StoreError> for NotHandedOut {
    fn from(error: StoreError) -> NotHandedOut {
        NotHandedOut::Store(error)
    }
}

impl Disclosures {
    pub async fn create_package(
        &self,
        person_id: PersonId,
        case: &Case,
    ) -> Result<PackageCreated, StoreError> {
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let id = PackageId(recorder.random_id());
        let now_ms = self.world.now_ms();
        let new = NewCasePackage {
            id,
            tenant_id: case.tenant_id,
            case_id: case.id,
            person_id,
            created_at_ms: now_ms,
            expires_at_ms: now_ms + KEPT_DAYS * DAY_MS,
        };
        let job = NewJob {
            id: JobId(recorder.random_id()),
            kind: KIND.into(),
            tenant_id: Some(case.tenant_id),
            person_id: Some(person_id),
            subject: Some(case.id.0.to_string()),
            parameters: json!({ "package_id": id.0.to_string() }).to_string(),
            created_at_ms: now_ms,
        };
        let metadata = json!({ "case_id": case.id.0.to_string() });
        let record =
            recorder.record(&actions::CASE_PACKAGE_STARTED, &format!("case_package/{}", id.0), metadata);
        let created = self.control.create_package(new, BUILDING, job, UNENDED_MAX, vec![record]).await?;
        self.wake();
        Ok(created)
    }

    /// Newest first.
    pub async fn packages(&self, case: &Case) -> Result<Vec<PackageRun>, StoreError> {
        let packages = self.control.case_packages(case.tenant_id, case.id, PACKAGES_MAX).await?;
        let mut runs = Vec::with_capacity(packages.len());
        for package in packages {
            let job = match &package.built {
                Some(_) => None,
                None => self.control.job(package.job_id).await?,
            };
            let progress = job.as_ref().and_then(|job| {
                let position: Value = serde_json::from_slice(job.position.as_deref()?).ok()?;
                position["written"].as_u64()
            });
            runs.push(PackageRun { package, job: job.map(|job| (job.state, job.cause)), progress });
        }
        Ok(runs)
    }

    /// The newest one that can be handed out now.
    pub async fn ready_package(&self, case: &Case) -> Result<Option<CasePackage>, StoreError> {
        let packages = self.control.case_packages(case.tenant_id, case.id, PACKAGES_MAX).await?;
        let now_ms = self.world.now_ms();
        for package in packages {
            let is_over = package.dropped_at_ms.is_some() || package.new.expires_at_ms <= now_ms;
            if package.built.is_some() && !is_over && !self.is_outdated(case, &package).await? {
                return Ok(Some(package));
            }
        }
        Ok(None)
    }

    /// One of this case; one of another is like one that does not exist.
    pub async fn package(&self, case: &Case, id: Uuid) -> Result<Option<CasePackage>, StoreError> {
        let package = self.control.case_package(PackageId(id)).await?;
        let is_of_case =
            |package: &CasePackage| (package.new.tenant_id, package.new.case_id) == (case.tenant_id, case.id);
        Ok(package.filter(is_of_case))
    }

    /// Whether one was being made.
    pub async fn stop_package(&self, case: &Case) -> Result<bool, StoreError> {
        let runs = self.packages(case).await?;
        let Some(run) = runs.iter().find(|run| run.is_running()) else { return Ok(false) };
        let now_ms = self.world.now_ms();
        let stopped = self.control.cancel_job(run.package.job_id, now_ms, vec![]).await?;
        self.control.abandon_package(run.package.new.id, now_ms).await?;
        Ok(stopped)
    }

    /// Begins a download. It is sealed into the system chain before this returns, and refused if that fails.
    pub async fn hand_out(
        &self,
        person_id: PersonId,
        case: &Case,
        package: &CasePackage,
        password: Option<Secret>,
    ) -> Result<PackageDownload, NotHandedOut> {
        if !case.is_identity_confirmed() {
            return Err(NotHandedOut::NotIdentified);
        }
        if !is_for_handing_out(case) {
            return Err(NotHandedOut::State(case.state));
        }
        // Its time ends by itself; the sweep only removes it.
        if package.dropped_at_ms.is_some() || package.new.expires_at_ms <= self.world.now_ms() {
            return Err(NotHandedOut::Dropped);
        }
        let Some((attempt, built)) = &package.built else { return Err(NotHandedOut::NotBuilt) };
        if self.is_outdated(case, package).await? {
            return Err(NotHandedOut::Outdated);
        }
        if self.control.package_piece(package.new.id, *attempt, 0).await?.is_none() {
            return Err(NotHandedOut::NotHere);
        }
        let damaged = || StoreError::Read("this version cannot read the entries of the package".into());
        let entries = parse_entries(&built.entries).ok_or_else(damaged)?;
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let metadata = json!({
            "case_id": case.id.0.to_string(),
            "events": package.events,
            "sha256": built.sha256.to_string(),
            "is_encrypted": password.is_some(),
        });
        let resource = format!("case_package/{}", package.new.id.0);
        let record = recorder.record(&actions::CASE_PACKAGE_DOWNLOADED, &resource, metadata);
        self.drain.record_and_seal(case.tenant_id, record).await?;
        let salt = || {
            let random = recorder.random();
            std::array::from_fn::<u8, SALT_BYTES, _>(|at| random[at])
        };
        Ok(PackageDownload {
            control: Arc::clone(&self.control),
            store: Arc::clone(&self.store),
            tenant_id: case.tenant_id,
            id: package.new.id,
            attempt: *attempt,
            built: built.clone(),
            piece: 0,
            read: 0,
            sha256: Some(Sha256::new()),
            encryption: password.map(|password| Encryption::new(password, entries, salt)),
        })
    }

    /// Whether something was decided, or searched, since it was made.
    pub async fn is_outdated(&self, case: &Case, package: &CasePackage) -> Result<bool, StoreError> {
        let current = self.current_search(case).await?.map(|search| search.new.id);
        let review = self.control.review_of(package.search_id, Grants::default()).await?;
        Ok(current != Some(package.search_id) || review.mark != package.review)
    }
}

/// One download. It holds one piece at a time.
pub struct PackageDownload {
    control: Arc<Control>,
    store: Arc<dyn Store>,
    tenant_id: TenantId,
    id: PackageId,
    attempt: u64,
    built: PackageBuilt,
    piece: u64,
    read: u64,
    /// Nothing once it has ended.
    sha256: Option<Sha256>,
    encryption: Option<Encryption>,
}

impl PackageDownload {
    /// Of the file.
    pub fn length(&self) -> u64 {
        self.encryption.as_ref().map_or(self.built.bytes, Encryption::length)
    }

    /// The next bytes, or nothing when it is complete. After an error it is not to be asked again: what was
    /// sent is not the file.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(mut sha256) = self.sha256.take() else { return Ok(None) };
        let Some(piece) = self.control.package_piece(self.id, self.attempt, self.piece).await? else {
            let is_whole =
                self.read == self.built.bytes && Hash(sha256.finalize().into()) == self.built.sha256;
            if !is_whole {
                tracing::error!(package = %self.id.0, "package differs from its recorded digest, or expired during the download");
                return Err(StoreError::Read("the package does not match its recorded digest".into()));
            }
            return Ok(self.encryption.as_mut().map(Encryption::finish));
        };
        self.piece += 1;
        self.read += piece.len() as u64;
        let mut encryption = self.encryption.take();
        let written = self.store.pool().run(Lane::Compute, self.tenant_id, piece.len(), move || {
            sha256.update(&piece);
            let out = match &mut encryption {
                Some(encryption) => encryption.write(&piece),
                None => piece,
            };
            (sha256, encryption, out)
        });
        let (sha256, encryption, out) = written.await.map_err(|_| StoreError::Closing)?;
        (self.sha256, self.encryption) = (Some(sha256), encryption);
        Ok(Some(out))
    }
}

pub(super) fn entries_to_text<'e>(entries: impl Iterator<Item = &'e Entry>) -> String {
    let entry = |entry: &Entry| {
        json!({
            "name": entry.name,
            "size": entry.size,
            "compressed": entry.compressed,
            "crc": entry.crc,
            "sha256": entry.sha256.to_string(),
        })
    };
    entries.map(entry).collect::<Value>().to_string()
}

fn parse_entries(text: &str) -> Option<Vec<Entry>> {
    let value: Value = serde_json::from_str(text).ok()?;
    let entry = |item: &Value| {
        Some(Entry {
            name: item["name"].as_str()?.to_owned(),
            size: item["size"].as_u64()?,
            compressed: item["compressed"].as_u64()?,
            crc: u32::try_from(item["crc"].as_u64()?).ok()?,
            sha256: Hash::parse(item["sha256"].as_str()?)?,
        })
    };
    value.as_array()?.iter().map(entry).collect()
}

/// Drops packages whose time is over; what they were stays recorded.
#[derive(Clone)]
pub struct PackageSweep {
    pub control: Arc<Control>,
    pub world: Arc<dyn World>,
    pub records: Wake,
    pub every: Duration,
}

/// Packages, and pieces of them, in one step.
const DROPPED_AT_A_TIME: usize = 20;
const PIECES_AT_A_TIME: usize = 16;

impl PackageSweep {
    pub async fn watch(&self) {
        loop {
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "failed to find expired packages; retrying");
            }
            tokio::time::sleep(self.every).await;
        }
    }

    /// All whose time is over, in bounded steps. How many.
    pub async fn sweep(&self) -> Result<usize, StoreError> {
        let mut dropped = 0;
        loop {
            let expired = self.control.expired_packages(self.world.now_ms(), DROPPED_AT_A_TIME).await?;
            if expired.is_empty() {
                break;
            }
            for package in &expired {
                let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
                let metadata = json!({
                    "case_id": package.new.case_id.0.to_string(),
                    "sha256": package.built.as_ref().map(|(_, built)| built.sha256.to_string()),
                });
                let resource = format!("case_package/{}", package.new.id.0);
                let record = recorder.record(&actions::CASE_PACKAGE_DROPPED, &resource, metadata);
                self.control.drop_package(package.new.id, self.world.now_ms(), vec![record]).await?;
                dropped += 1;
            }
            self.records.wake();
        }
        while self.control.remove_pieces(PIECES_AT_A_TIME).await? == PIECES_AT_A_TIME as u64 {
            tokio::task::yield_now().await;
        }
        Ok(dropped)
    }
}
