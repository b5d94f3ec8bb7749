//! What is disclosed of the events that were found: decided by people, event by event or many at once.

use std::sync::Arc;

use sealog_control::{
    Case, CaseSearch, Decide, Decided, Decision, FoundEvent, MaskFound, PersonId, Records, Reviewing,
    SearchId, Which,
};
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Ulid};
use sealog_store::pool::Lane;
use sealog_store::{Store, StoreError};
use serde_json::json;

use super::desk::Disclosures;
use super::finder::Finder;
use super::hidden_values::{HiddenValues, ValueKind};
use super::masks::{self, Choice, Suggested};
use super::node::EventView;
use super::search::{Parameters, WORKING};
use super::subject::Subject;
use sealog_service::records::system_chain::{Actor, Recorder, actions};

/// Paths that a reviewer can mask in one event.
pub const MASKS_MAX: usize = 500;

/// What turns an event as it is stored into one as it is disclosed.
#[derive(Clone, Debug)]
pub struct Disclosure {
    pub search_id: SearchId,
    pub subject: Subject,
    pub hidden: HiddenValues,
}

/// An event beside itself.
#[derive(Clone, Debug)]
pub struct Compared {
    /// The search that has found it, which a decision about it names.
    pub search_id: SearchId,
    pub subject: Subject,
    pub found: FoundEvent,
    pub stored: EventView,
    pub disclosed: EventView,
    pub suggested: Suggested,
    /// Paths that are masked: chosen, or suggested.
    pub masked: Vec<String>,
}

impl Disclosure {
    pub fn compare(&self, found: FoundEvent, stored: EventView) -> Compared {
        let suggested = masks::suggest(&stored, &self.subject);
        let masks = match &found.masks {
            Some(paths) => masks::chosen(paths, &suggested),
            None => suggested.masks.clone(),
        };
        let disclosed = self.hidden.apply(&masks::apply(&stored, &masks), &self.subject);
        let masked = masks.into_iter().map(|mask| mask.path).collect();
        let (search_id, subject) = (self.search_id, self.subject.clone());
        Compared { search_id, subject, found, stored, disclosed, suggested, masked }
    }
}

/// Of a chain; nothing where there is no such event, which is an error if it cannot be read.
pub(super) async fn read_event(
    store: &dyn Store,
    tenant_id: TenantId,
    found: &FoundEvent,
) -> Result<Option<sealog_core::event::StoredEvent>, StoreError> {
    let chain = ChainId { tenant_id, project_id: found.new.project_id, mode: Mode::Live };
    match Ulid::parse(&found.new.log_id) {
        Some(log_id) => store.get(chain, log_id).await,
        None => Ok(None),
    }
}

impl Compared {
    /// What a reviewer chooses for this event: these paths are masked, or what is suggested.
    pub fn masking(self, paths: Option<Vec<String>>) -> Masking {
        let suggested = || self.suggested.masks.iter().map(|mask| mask.path.clone()).collect();
        let wanted = paths.clone().unwrap_or_else(suggested);
        let choice = masks::choice(&self.stored, &wanted, &self.masked, &self.subject);
        let new = self.found.new;
        let (search_id, project_id, chain_seq) = (self.search_id, new.project_id, new.chain_seq);
        Masking { search_id, project_id, chain_seq, paths, choice }
    }
}

/// What is masked of one event from now on, and what that says of values.
#[derive(Clone, Debug)]
pub struct Masking {
    search_id: SearchId,
    project_id: ProjectId,
    chain_seq: u64,
    paths: Option<Vec<String>>,
    choice: Choice,
}

impl Disclosures {
    /// By the identifiers of the search, and with what reviewers have said about values. A case can have
    /// 200,000 of them, so the thread pool puts them in their order.
    pub async fn disclosure(&self, search: &CaseSearch) -> Result<Disclosure, StoreError> {
        let unknown = || StoreError::Read("this version cannot read the parameters of the search".into());
        let parameters = Parameters::parse(&search.new.parameters).ok_or_else(unknown)?;
        let known = self.control.case_values(search.new.id).await?;
        let (search_id, tenant_id) = (search.new.id, search.new.tenant_id);
        let cost = known.iter().map(|(value, _)| value.len()).sum();
        let made = self.store.pool().run(Lane::Compute, tenant_id, cost, move || {
            let subject = Finder::new(&parameters.identifiers).subject;
            let known = known.into_iter().filter_map(|(value, kind)| Some((value, ValueKind::parse(&kind)?)));
            let own = subject.values().map(|value| (value.to_owned(), ValueKind::Own)).collect::<Vec<_>>();
            Disclosure { search_id, hidden: HiddenValues::new(known.chain(own)), subject }
        });
        made.await.map_err(|_| StoreError::Closing)
    }

    /// Looks at one event as it is stored, beside what would be disclosed of it now. `look` runs in the
    /// thread pool: an event can have 100,000 values.
    pub async fn compare<T: Send + 'static>(
        &self,
        search: &CaseSearch,
        project_id: ProjectId,
        chain_seq: u64,
        look: impl FnOnce(Compared) -> T + Send + 'static,
    ) -> Result<Option<T>, StoreError> {
        let Some(found) = self.control.found_event(search.new.id, project_id, chain_seq).await? else {
            return Ok(None);
        };
        let Some(event) = read_event(&*self.store, search.new.tenant_id, &found).await? else {
            return Ok(None);
        };
        let disclosure = self.disclosure(search).await?;
        let cost = event.text.as_str().len();
        let compared = self.store.pool().run(Lane::Compute, search.new.tenant_id, cost, move || {
            look(disclosure.compare(found, EventView::of(&event)))
        });
        compared.await.map(Some).map_err(|_| StoreError::Closing)
    }

    fn reviewing(&self, person_id: PersonId, case: &Case, search_id: SearchId) -> Reviewing {
        Reviewing {
            tenant_id: case.tenant_id,
            case_id: case.id,
            search_id,
            states: WORKING,
            person_id,
            now_ms: self.world.now_ms(),
        }
    }

    /// `search_id` is the search whose events were seen: nothing is decided about those of another one.
    /// `reason` is for people; the system chain has how many it were. An event with texts to read is included
    /// by [`Disclosures::mask`], from where it is read, and never among others.
    pub async fn decide(
        &self,
        person_id: PersonId,
        case: &Case,
        search_id: SearchId,
        which: Which,
        decision: Option<Decision>,
        reason: Option<String>,
    ) -> Result<Decided, StoreError> {
        let reviewing = self.reviewing(person_id, case, search_id);
        let word = decision.map_or("undecided", Decision::as_str);
        let records = self.reviewed(person_id, case, word);
        let leaves_flagged = decision == Some(Decision::Include);
        let decide = Decide { reviewing, which, leaves_flagged, decision, reason };
        let decided = self.control.decide_found(decide, records).await?;
        self.drain.wake.wake();
        Ok(decided)
    }

    /// Saves what is masked of one event. A form that does not show all of its values says which paths those
    /// are by [`masks::merged`].
    pub async fn mask(
        &self,
        person_id: PersonId,
        case: &Case,
        masking: Masking,
        revision: u64,
    ) -> Result<Decided, StoreError> {
        let Masking { search_id, project_id, chain_seq, paths, choice } = masking;
        let as_text = |values: Vec<(String, ValueKind)>| {
            values.into_iter().map(|(value, kind)| (value, kind.as_str().to_owned())).collect()
        };
        let mask = MaskFound {
            reviewing: self.reviewing(person_id, case, search_id),
            project_id,
            chain_seq,
            revision,
            masks: paths,
            values: as_text(choice.values),
            without: as_text(choice.without),
        };
        let decided = self.control.mask_found(mask, self.reviewed(person_id, case, "mask")).await?;
        self.drain.wake.wake();
        Ok(decided)
    }

    fn reviewed(&self, person_id: PersonId, case: &Case, decision: &str) -> Records<u64> {
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let (case_id, decision) = (case.id.0.to_string(), decision.to_owned());
        Records::told_by(move |_, changed: &u64| {
            let metadata = json!({ "decision": decision, "events": changed });
            vec![recorder.record(&actions::CASE_REVIEWED, &format!("case/{case_id}"), metadata)]
        })
    }
}
