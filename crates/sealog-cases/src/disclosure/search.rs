//! How a search of a case is started, stopped and shown. [`super::searcher`] does it.

use sealog_control::{
    Case, CaseSearch, CaseState, Identifier, IdentifierKind, JobId, JobState, NewCaseSearch, NewJob,
    PersonId, SearchId,
};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_store::StoreError;
use serde_json::{Value, json};

use super::desk::Disclosures;
use sealog_service::evidence::seqs;
use sealog_service::records::system_chain::{Actor, Recorder, actions};

/// Of its jobs.
pub const KIND: &str = "case-search";
/// Searches of a tenant that have not ended.
pub const UNENDED_MAX: usize = 4;
/// Events that one case can hold.
pub const RESULTS_MAX: u64 = 20_000;
/// Searches of a case that are shown.
pub const SEARCHES_MAX: usize = 50;
/// Projects that one search looks into.
pub const CHAINS_MAX: usize = 100;
/// Events that people add to a case by hand.
pub const ADDED_MAX: usize = 500;
/// Searching and deciding is done in these states.
pub const WORKING: &[CaseState] = &[CaseState::InProgress, CaseState::Review, CaseState::Extended];

/// What is looked for, and where: frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameters {
    pub identifiers: Vec<Identifier>,
    pub from_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub chains: Vec<ChainRange>,
    /// Events that are part of the case whatever they say. Each search takes over those of the one before.
    pub added: Vec<(ProjectId, u64)>,
}

/// Live events of a project, both ends included; one without events ends below its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainRange {
    pub project_id: ProjectId,
    pub first_seq: u64,
    pub last_seq: u64,
}

impl ChainRange {
    pub fn chain(&self, tenant_id: TenantId) -> ChainId {
        ChainId { tenant_id, project_id: self.project_id, mode: Mode::Live }
    }

    pub fn events(&self) -> u64 {
        (self.last_seq + 1).saturating_sub(self.first_seq)
    }
}

impl Parameters {
    pub fn to_json(&self) -> Value {
        let identifiers: Vec<Value> = self
            .identifiers
            .iter()
            .map(|known| {
                json!({ "kind": known.kind.as_str(), "path": known.path, "value": known.value, "source": known.source })
            })
            .collect();
        let chains: Vec<Value> = self
            .chains
            .iter()
            .map(|range| {
                json!({ "project_id": range.project_id.to_string(), "first_seq": range.first_seq, "last_seq": range.last_seq })
            })
            .collect();
        let added: Vec<Value> =
            self.added.iter().map(|(project_id, seq)| json!([project_id.to_string(), seq])).collect();
        json!({ "identifiers": identifiers, "from_ms": self.from_ms, "until_ms": self.until_ms, "chains": chains, "added": added })
    }

    /// Nothing for those of a version that is not known here.
    pub fn parse(text: &str) -> Option<Parameters> {
        let value: Value = serde_json::from_str(text).ok()?;
        let identifier = |item: &Value| {
            Some(Identifier {
                kind: IdentifierKind::parse(item["kind"].as_str()?)?,
                path: item["path"].as_str().map(str::to_owned),
                value: item["value"].as_str()?.to_owned(),
                source: item["source"].as_str()?.to_owned(),
            })
        };
        let chain = |item: &Value| {
            Some(ChainRange {
                project_id: ProjectId(Uuid::parse(item["project_id"].as_str()?)?),
                first_seq: item["first_seq"].as_u64()?,
                last_seq: item["last_seq"].as_u64()?,
            })
        };
        let event = |item: &Value| Some((ProjectId(Uuid::parse(item[0].as_str()?)?), item[1].as_u64()?));
        Some(Parameters {
            identifiers: value["identifiers"].as_array()?.iter().map(identifier).collect::<Option<_>>()?,
            from_ms: value["from_ms"].as_u64(),
            until_ms: value["until_ms"].as_u64(),
            chains: value["chains"].as_array()?.iter().map(chain).collect::<Option<_>>()?,
            // Searches of earlier versions have none.
            added: value["added"]
                .as_array()
                .map_or(Some(Vec::new()), |all| all.iter().map(event).collect())?,
        })
    }

    /// Events between their ends.
    pub fn events(&self) -> u64 {
        self.chains.iter().map(ChainRange::events).sum()
    }
}

/// Why none was started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotStarted {
    State(CaseState),
    NoIdentifiers,
    NoProjects,
    TooManyProjects,
    /// The tenant has [`UNENDED_MAX`] that have not ended.
    TooMany,
    /// The case has one that has not ended.
    UnderWay,
    /// Events of a project that the case does not cover, or events that do not exist.
    NotOfCase,
    /// It would have more than [`ADDED_MAX`] that were added by hand.
    TooManyAdded,
    Store(StoreError),
}

impl From<StoreError> for NotStarted {
    fn from(error: StoreError) -> NotStarted {
        NotStarted::Store(error)
    }
}

/// A search with the state of its job.
#[derive(Clone, Debug)]
pub struct SearchRun {
    pub search: CaseSearch,
    pub parameters: Option<Parameters>,
    pub job: Option<(JobState, Option<String>)>,
}

impl SearchRun {
    /// Somebody works on it, or will.
    pub fn is_running(&self) -> bool {
        let is_working = |(state, _): &(JobState, _)| matches!(state, JobState::Waiting | JobState::Running);
        self.search.outcome.is_none() && self.job.as_ref().is_some_and(is_working)
    }

    pub fn is_stopped(&self) -> bool {
        self.search.outcome.is_none() && !self.is_running()
    }

    /// From 0 to 100, by the events that the last of its passes has looked at.
    pub fn percent(&self) -> u64 {
        let total = self.parameters.as_ref().map_or(0, Parameters::events);
        match self.search.outcome {
            Some(_) => 100,
            None => (self.search.looked * 100).checked_div(total).unwrap_or(0).min(99),
        }
    }
}

impl Disclosures {
    /// Over what the case says, and up to the last events that there are.
    pub async fn start_search(&self, person_id: PersonId, case: &Case) -> Result<CaseSearch, NotStarted> {
        self.search_with(person_id, case, &[]).await
    }

    /// A search that also takes these events. A search, because what it reads decides what is masked in every
    /// other event of the case.
    pub async fn search_with(
        &self,
        person_id: PersonId,
        case: &Case,
        events: &[(ProjectId, u64)],
    ) -> Result<CaseSearch, NotStarted> {
        if !WORKING.contains(&case.state) {
            return Err(NotStarted::State(case.state));
        }
        if case.identifiers.is_empty() {
            return Err(NotStarted::NoIdentifiers);
        }
        match case.scope.projects.len() {
            0 => return Err(NotStarted::NoProjects),
            many if many > CHAINS_MAX => return Err(NotStarted::TooManyProjects),
            _ => {}
        }
        if self.searches(case).await?.iter().any(|run| run.search.outcome.is_none()) {
            return Err(NotStarted::UnderWay);
        }
        let added = self.added_to(case, events).await?;
        let mut chains = Vec::new();
        for project_id in case.scope.projects.iter().copied() {
            chains.push(self.range_of(case, project_id).await?);
        }
        let parameters = Parameters {
            identifiers: case.identifiers.clone(),
            from_ms: case.scope.from_ms,
            until_ms: case.scope.until_ms,
            chains,
            added,
        };
        let recorder = Recorder::new(Actor::Person(person_id), self.world.clone());
        let id = SearchId(recorder.random_id());
        // Never who the person is: how many identifiers, and where.
        let metadata = json!({
            "case_id": case.id.0.to_string(),
            "identifiers": parameters.identifiers.len(),
            "chains": parameters.to_json()["chains"],
            "added": events.len(),
            "from": case.scope.from_ms,
            "until": case.scope.until_ms,
        });
        let record =
            recorder.record(&actions::CASE_SEARCH_STARTED, &format!("case_search/{}", id.0), metadata);
        let new = NewCaseSearch {
            id,
            tenant_id: case.tenant_id,
            case_id: case.id,
            person_id,
            parameters: parameters.to_json().to_string(),
            created_at_ms: self.world.now_ms(),
        };
        let job = self.search_job(&recorder, case, id, person_id);
        let started = self.control.start_case_search(new, job, UNENDED_MAX, vec![record]).await?;
        self.wake();
        started.ok_or(NotStarted::TooMany)
    }

    /// Those of the current search, and these.
    async fn added_to(
        &self,
        case: &Case,
        events: &[(ProjectId, u64)],
    ) -> Result<Vec<(ProjectId, u64)>, NotStarted> {
        let current = self.current_search(case).await?;
        let current = current.and_then(|search| Parameters::parse(&search.new.parameters));
        let mut added = current.map(|parameters| parameters.added).unwrap_or_default();
        // A project that the case no longer covers is not searched either.
        added.retain(|(project_id, _)| case.scope.projects.contains(project_id));
        for (project_id, seq) in events.iter().copied() {
            if !case.scope.projects.contains(&project_id) {
                return Err(NotStarted::NotOfCase);
            }
            let chain = ChainId { tenant_id: case.tenant_id, project_id, mode: Mode::Live };
            if seq == 0 || seq > self.store.head(chain).await?.durable.chain_seq {
                return Err(NotStarted::NotOfCase);
            }
            if !added.contains(&(project_id, seq)) {
                added.push((project_id, seq));
            }
            if added.len() > ADDED_MAX {
                return Err(NotStarted::TooManyAdded);
            }
        }
        Ok(added)
    }

    fn search_job(&self, recorder: &Recorder, case: &Case, id: SearchId, person_id: PersonId) -> NewJob {
        NewJob {
            id: JobId(recorder.random_id()),
            kind: KIND.into(),
            tenant_id: Some(case.tenant_id),
            person_id: Some(person_id),
            subject: Some(case.id.0.to_string()),
            parameters: json!({ "search_id": id.0.to_string() }).to_string(),
            created_at_ms: self.world.now_ms(),
        }
    }

    async fn range_of(&self, case: &Case, project_id: ProjectId) -> Result<ChainRange, StoreError> {
        let chain = ChainId { tenant_id: case.tenant_id, project_id, mode: Mode::Live };
        let head = self.store.head(chain).await?.durable.chain_seq;
        let first_seq = match case.scope.from_ms {
            Some(from_ms) => seqs::first_at(&*self.store, chain, from_ms).await?,
            None => 1,
        };
        let last_seq = match case.scope.until_ms {
            Some(until_ms) => head.min(seqs::last_before(&*self.store, chain, until_ms).await?),
            None => head,
        };
        Ok(ChainRange { project_id, first_seq: first_seq.min(head + 1), last_seq })
    }

    /// Newest first.
    pub async fn searches(&self, case: &Case) -> Result<Vec<SearchRun>, StoreError> {
        let searches = self.control.case_searches(case.tenant_id, case.id, SEARCHES_MAX).await?;
        let mut runs = Vec::with_capacity(searches.len());
        for search in searches {
            let job = match search.outcome {
                Some(_) => None,
                None => self.control.job(search.job_id).await?.map(|job| (job.state, job.cause)),
            };
            let parameters = Parameters::parse(&search.new.parameters);
            runs.push(SearchRun { search, parameters, job });
        }
        Ok(runs)
    }

    /// The one whose events are decided about.
    pub async fn current_search(&self, case: &Case) -> Result<Option<CaseSearch>, StoreError> {
        let searches = self.control.case_searches(case.tenant_id, case.id, SEARCHES_MAX).await?;
        let is_done = |search: &CaseSearch| search.outcome == Some(sealog_control::SearchOutcome::Done);
        Ok(searches.into_iter().find(is_done))
    }

    /// Stops what is under way; what it has found stays, and it can go on. Whether there was something to
    /// stop.
    pub async fn stop_search(&self, person_id: PersonId, case: &Case) -> Result<bool, StoreError> {
        let runs = self.searches(case).await?;
        let Some(run) = runs.iter().find(|run| run.is_running()) else { return Ok(false) };
        let record = self.search_record(person_id, case, run, &actions::CASE_SEARCH_STOPPED);
        let stopped = self.control.cancel_job(run.search.job_id, self.world.now_ms(), vec![record]).await?;
        self.wake();
        Ok(stopped)
    }

    /// Goes on where it was stopped, or where it has failed. Whether there was such a one, and room.
    pub async fn resume_search(&self, person_id: PersonId, case: &Case) -> Result<bool, StoreError> {
        let runs = self.searches(case).await?;
        let Some(run) = runs.iter().find(|run| run.is_stopped()) else { return Ok(false) };
        let recorder = Recorder::new(Actor::Person(person_id), self.world.clone());
        let record = self.search_record(person_id, case, run, &actions::CASE_SEARCH_RESUMED);
        let job = self.search_job(&recorder, case, run.search.new.id, person_id);
        let resumed =
            self.control.resume_case_search(run.search.new.id, job, UNENDED_MAX, vec![record]).await?;
        self.wake();
        Ok(resumed)
    }

    fn search_record(
        &self,
        person_id: PersonId,
        case: &Case,
        run: &SearchRun,
        action: &actions::SystemAction,
    ) -> sealog_control::NewRecord {
        let recorder = Recorder::new(Actor::Person(person_id), self.world.clone());
        let metadata = json!({ "case_id": case.id.0.to_string(), "looked": run.search.looked });
        recorder.record(action, &format!("case_search/{}", run.search.new.id.0), metadata)
    }
}
