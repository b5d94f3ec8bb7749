//! The work of a search: first what indexes know, then every event of the range, in pieces. What a piece has
//! found is written together with how far it has got.

use sealog_control::Control;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sealog_control::case_found::ADDED;
use sealog_control::{CaseSearch, Job, NewFound, SearchId, SearchOutcome, SearchPiece};
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Mode, Uuid};
use sealog_core::query::Filter;
use sealog_core::verify::Item;
use sealog_store::world::World;
use sealog_store::{BoxFuture, List, Range, Store, StoreError};
use serde_json::{Value, json};

use super::desk::Disclosures;
use super::finder::Finder;
use super::hidden_values::ValueKind;
use super::masks;
use super::node::EventView;
use super::search::{ChainRange, KIND, Parameters, RESULTS_MAX};
use sealog_service::jobs::give_way;
use sealog_service::jobs::{Step, Work};
use sealog_service::records::system_chain::{Actor, Recorder, actions};

/// Bytes of events that one call of the store reads, and calls of one piece: a few hundredths of a second
/// each.
const BYTES_OF_CALL: usize = 512 << 10;
const CALLS_OF_PIECE: usize = 8;
/// Events that one question to an index answers.
const EVENTS_OF_CALL: usize = 500;
/// Values of other people, over all events, and their bytes: whoever reviews the case has all of them in
/// memory.
const VALUES_MAX: u64 = 200_000;
const VALUES_BYTES_MAX: u64 = 16 << 20;
/// Events that were added by hand, of one piece.
const ADDED_OF_PIECE: usize = 20;
/// So many values end a piece, which is written in one transaction.
const VALUES_OF_PIECE: usize = 5_000;
/// A search works half of the time at most, so that others have the disk and the cores; and rests no longer
/// than this.
const REST_MAX: Duration = Duration::from_millis(250);

#[derive(Clone)]
pub struct Searcher {
    control: Arc<Control>,
    store: Arc<dyn Store>,
    world: Arc<dyn World>,
    /// Whether the last piece was held up by events that come in.
    is_crowded: Arc<AtomicBool>,
}

impl Work for Searcher {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn step<'a>(&'a self, job: &'a Job, _position: &'a [u8]) -> BoxFuture<'a, Result<Step, StoreError>> {
        Box::pin(async move {
            let begun = Instant::now();
            let step = match self.piece(job).await {
                // Nothing else fails for it, and a person can resume it from here.
                Err(StoreError::NoRoom) => {
                    failed("the disk is too full for the results; other work continues")
                }
                other => other?,
            };
            if matches!(step, Step::More(_)) {
                let took = begun.elapsed();
                tokio::time::sleep(if self.is_crowded.load(Ordering::Relaxed) {
                    give_way::rest(took)
                } else {
                    took.min(REST_MAX)
                })
                .await;
            }
            Ok(step)
        })
    }
}

fn failed(cause: &str) -> Step {
    Step::Failed { cause: cause.into(), records: vec![] }
}

/// How far a search has got. The position of the job tells nothing: what counts is written with what was
/// found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Position {
    chain: usize,
    /// The next question to an index; behind the last one, events are read.
    filter: usize,
    /// Of a question, what is below it is left; of reading, what is from it on.
    seq: Option<u64>,
    /// Of those that were added by hand, which come last.
    added: usize,
    values: u64,
    values_bytes: u64,
}

impl Position {
    fn parse(text: Option<&str>) -> Position {
        let value: Value = text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let number = |name: &str| value[name].as_u64().unwrap_or(0);
        Position {
            chain: usize::try_from(number("chain")).unwrap_or(usize::MAX),
            filter: usize::try_from(number("filter")).unwrap_or(usize::MAX),
            seq: value["seq"].as_u64(),
            added: usize::try_from(number("added")).unwrap_or(usize::MAX),
            values: number("values"),
            values_bytes: number("values_bytes"),
        }
    }

    fn to_text(&self) -> String {
        let Position { chain, filter, seq, added, values, values_bytes } = self;
        json!({ "chain": chain, "filter": filter, "seq": seq, "added": added, "values": values, "values_bytes": values_bytes })
            .to_string()
    }
}

impl Searcher {
    pub fn new(control: Arc<Control>, store: Arc<dyn Store>, world: Arc<dyn World>) -> Searcher {
        Searcher { control, store, world, is_crowded: Arc::default() }
    }

    pub fn of(desk: &Disclosures) -> Searcher {
        Searcher::new(Arc::clone(&desk.control), Arc::clone(&desk.store), Arc::clone(&desk.world))
    }

    async fn piece(&self, job: &Job) -> Result<Step, StoreError> {
        let parameters: Value = serde_json::from_str(&job.parameters).unwrap_or_default();
        let id = parameters["search_id"].as_str().and_then(Uuid::parse).map(SearchId);
        let Some(id) = id else { return Ok(failed("this version cannot read its parameters")) };
        let search = self.control.case_search(id).await?;
        let Some(search) = search.filter(|search| search.job_id == job.id) else {
            return Ok(failed("another job continues the search"));
        };
        let Some(parameters) = Parameters::parse(&search.new.parameters) else {
            return Ok(failed("this version cannot read the parameters of the search"));
        };
        if let Some(outcome) = search.outcome {
            return Ok(self.done(&search, &parameters, outcome));
        }
        let finder = Arc::new(Finder::new(&parameters.identifiers));
        let mut position = Position::parse(search.position.as_deref());
        let tenant_id = search.new.tenant_id;
        let filters = finder.filters();
        let mut piece = SearchPiece::default();
        match (parameters.chains.get(position.chain), filters.get(position.filter)) {
            (Some(range), Some(filter)) => {
                let times = (parameters.from_ms, parameters.until_ms);
                let chain = range.chain(tenant_id);
                self.ask(chain, range, filter, times, &finder, &mut position, &mut piece).await?;
            }
            (Some(range), None) => {
                self.read(range.chain(tenant_id), range, &finder, &mut position, &mut piece).await?;
            }
            (None, _) => {
                let added = parameters.added.iter().skip(position.added).take(ADDED_OF_PIECE);
                for (project_id, seq) in added.copied() {
                    let chain = ChainId { tenant_id, project_id, mode: Mode::Live };
                    self.take_added(chain, seq, &finder, &mut piece).await?;
                    position.added += 1;
                }
            }
        }
        position.values += piece.values.len() as u64;
        position.values_bytes += piece.values.iter().map(|(value, _)| value.len() as u64).sum::<u64>();
        if position.values > VALUES_MAX || position.values_bytes > VALUES_BYTES_MAX {
            return self.end(&search, &parameters, SearchOutcome::TooMany).await;
        }
        piece.position = position.to_text();
        let Some(search) = self.control.advance_case_search(id, job.id, piece).await? else {
            return Ok(failed("another job continues the search"));
        };
        if search.counts.events > RESULTS_MAX {
            return self.end(&search, &parameters, SearchOutcome::TooMany).await;
        }
        if position.chain >= parameters.chains.len() && position.added >= parameters.added.len() {
            return self.end(&search, &parameters, SearchOutcome::Done).await;
        }
        Ok(Step::More(position.to_text().into_bytes()))
    }

    /// One question to an index.
    #[expect(clippy::too_many_arguments, reason = "each is a part of where the search is")]
    async fn ask(
        &self,
        chain: ChainId,
        range: &ChainRange,
        filter: &Filter,
        (from_ms, until_ms): (Option<u64>, Option<u64>),
        finder: &Arc<Finder>,
        position: &mut Position,
        piece: &mut SearchPiece,
    ) -> Result<(), StoreError> {
        let filter = Filter { from_ms, until_ms, ..filter.clone() };
        let before_seq = Some(position.seq.unwrap_or(range.last_seq + 1));
        let list = List { filter, before_seq, limit: EVENTS_OF_CALL, bytes_max: BYTES_OF_CALL };
        let chunk = self.store.list(chain, list).await?;
        let events =
            chunk.items.into_iter().filter(|event| event.sealed.chain_seq >= range.first_seq).collect();
        self.look(chain, events, finder, 0, piece).await?;
        match chunk.resume.filter(|resume| *resume > range.first_seq) {
            Some(resume) => position.seq = Some(resume),
            None => (position.filter, position.seq) = (position.filter + 1, None),
        }
        Ok(())
    }

    /// A few reads of every event.
    async fn read(
        &self,
        chain: ChainId,
        range: &ChainRange,
        finder: &Arc<Finder>,
        position: &mut Position,
        piece: &mut SearchPiece,
    ) -> Result<(), StoreError> {
        let mut next = Some(position.seq.unwrap_or(range.first_seq)).filter(|next| *next <= range.last_seq);
        for _ in 0..CALLS_OF_PIECE {
            let Some(from) = next.filter(|_| piece.values.len() < VALUES_OF_PIECE) else { break };
            let read = Range { from, to: range.last_seq, bytes_max: BYTES_OF_CALL };
            let chunk = self.store.range(chain, read).await?;
            next = chunk.resume.filter(|resume| *resume <= range.last_seq);
            piece.looked += next.unwrap_or(range.last_seq + 1) - from;
            let event = |item| match item {
                Item::Event(event) => Some(*event),
                // In no list either; a verification says more.
                Item::Damaged { .. } => None,
            };
            self.look(chain, chunk.items.into_iter().filter_map(event).collect(), finder, 0, piece).await?;
        }
        match next {
            Some(next) => position.seq = Some(next),
            None => (position.chain, position.filter, position.seq) = (position.chain + 1, 0, None),
        }
        Ok(())
    }

    /// One event that a person has added.
    async fn take_added(
        &self,
        chain: ChainId,
        seq: u64,
        finder: &Arc<Finder>,
        piece: &mut SearchPiece,
    ) -> Result<(), StoreError> {
        let chunk = self.store.range(chain, Range { from: seq, to: seq, bytes_max: BYTES_OF_CALL }).await?;
        let event = |item| match item {
            Item::Event(event) => Some(*event),
            Item::Damaged { .. } => None,
        };
        self.look(chain, chunk.items.into_iter().filter_map(event).collect(), finder, ADDED, piece).await
    }

    /// In the thread pool: an event can have two megabytes. Events of a kind that is known are taken in any
    /// case.
    async fn look(
        &self,
        chain: ChainId,
        events: Vec<StoredEvent>,
        finder: &Arc<Finder>,
        known: u8,
        piece: &mut SearchPiece,
    ) -> Result<(), StoreError> {
        let cost = events.iter().map(|event| event.text.as_str().len() + size_of::<StoredEvent>()).sum();
        let finder = Arc::clone(finder);
        let looked = give_way::compute(self.store.pool(), chain, cost, move || {
            let mut found = (Vec::new(), Vec::new());
            for event in events.iter().filter(|event| known != 0 || finder.is_possible(event)) {
                take(event, &finder, known, &mut found);
            }
            found
        });
        let ((found, values), progress) = looked.await?;
        self.is_crowded.store(progress.is_crowded(), Ordering::Relaxed);
        piece.found.extend(found);
        piece.values.extend(values);
        Ok(())
    }

    async fn end(
        &self,
        search: &CaseSearch,
        parameters: &Parameters,
        outcome: SearchOutcome,
    ) -> Result<Step, StoreError> {
        self.control.end_case_search(search.new.id, search.job_id, outcome, self.world.now_ms()).await?;
        Ok(self.done(search, parameters, outcome))
    }

    fn done(&self, search: &CaseSearch, parameters: &Parameters, outcome: SearchOutcome) -> Step {
        let counts = search.counts;
        let metadata = json!({
            "case_id": search.new.case_id.0.to_string(),
            "chains": parameters.to_json()["chains"],
            "looked": search.looked,
            "events": counts.events,
            "by_person": counts.by_person,
            "on_person": counts.on_person,
            "mentions": counts.mentions,
            "outcome": outcome.as_str(),
            "started_by": search.new.person_id.0.to_string(),
        });
        let recorder = Recorder::new(Actor::System, Arc::clone(&self.world));
        let resource = format!("case_search/{}", search.new.id.0);
        let record = recorder.record(&actions::CASE_SEARCH_ENDED, &resource, metadata);
        Step::Done {
            position: search.position.clone().unwrap_or_default().into_bytes(),
            records: vec![record],
        }
    }
}

type Taken = (Vec<NewFound>, Vec<(String, String)>);

fn take(event: &StoredEvent, finder: &Finder, known: u8, (found, values): &mut Taken) {
    let view = EventView::of(event);
    let kinds = finder.kinds(&view) | known;
    if kinds == 0 {
        return;
    }
    let suggested = masks::suggest(&view, &finder.subject);
    values.extend(
        suggested.values.into_iter().map(|(value, kind): (String, ValueKind)| (value, kind.as_str().into())),
    );
    found.push(NewFound {
        project_id: event.project_id,
        chain_seq: event.sealed.chain_seq,
        log_id: view.log_id.clone(),
        timestamp_ms: view.timestamp_ms,
        // PostgreSQL keeps no text with a zero in it.
        action: view.action.replace('\0', ""),
        category: view.category.clone(),
        found: kinds,
        flags: suggested.flags.len() as u64,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_read_as_it_was_written_and_the_first_one_is_the_beginning() {
        let position = Position { chain: 1, filter: 4, seq: Some(77), added: 3, values: 9, values_bytes: 81 };
        assert_eq!(Position::parse(Some(&position.to_text())), position);
        assert_eq!(Position::parse(None), Position::default());
    }
}
