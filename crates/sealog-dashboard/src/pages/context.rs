//! What else is recorded around an event: by the same actor, on the same resource, in the same session. A few
//! bounded lists, each with a link to the whole of it.

use std::sync::Arc;
use std::time::Duration;

use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::json;
use sealog_core::query::Filter;
use sealog_core::time::iso_ms;
use sealog_service::evidence::search::{self, Budget, Plan, Query, Work};
use sealog_store::List;

use crate::app::Dashboard;
use crate::pages::found::within;
use crate::pages::query_bar;
use crate::problem::Problem;
use crate::request::{Asked, query_encoded};
use crate::text::{moment, number, of_json};

/// Events of each list, and of what the actor did before and after.
const ROWS: usize = 10;
/// Lists have the newest first, and the nearest are asked for: that many are read of what the actor did after
/// it.
const AFTER_MAX: usize = 50;
const AROUND_MS: u64 = 10 * 60 * 1000;
/// Sessions have no index: they are looked for among so many events before it, and as many after.
const SESSION_SEQS: u64 = 250;
/// Bytes of events of a list; the last may be as large as a body.
const BYTES_MAX: usize = 256 << 10;

#[derive(Default)]
pub(crate) struct Context {
    pub panels: Vec<Panel>,
    /// The numbers of all events that are shown.
    pub seqs: Vec<u64>,
}

pub(crate) struct Panel {
    pub id: &'static str,
    pub title: &'static str,
    pub note: String,
    pub rows: Vec<Row>,
    /// The page that has all of it.
    pub all: String,
}

impl Panel {
    pub(crate) fn has_others(&self) -> bool {
        self.rows.iter().any(|row| !row.is_here)
    }
}

pub(crate) struct Row {
    pub seq: String,
    pub href: String,
    pub iso: String,
    pub moment: String,
    pub action: String,
    pub actor: String,
    pub resource: String,
    pub is_here: bool,
}

/// Newest first, and whether there is more than that.
struct Found {
    events: Vec<StoredEvent>,
    is_cut: bool,
}

/// Whoever asks holds a place for reads.
struct Around<'a> {
    app: &'a Dashboard,
    chain: ChainId,
    grants: &'a Grants,
    event: &'a StoredEvent,
}

impl Context {
    pub(crate) async fn read(
        app: &Dashboard,
        asked: &Asked,
        chain: ChainId,
        event: &StoredEvent,
    ) -> Result<Context, Problem> {
        let place = asked.place();
        let around = Around { app, chain, grants: &place.membership.grants, event };
        let here = place.events_path();
        let mut context = Context::default();
        let fields = event.text.fields();
        if let Some(actor) = fields.actor_id {
            let found = around.by_actor(actor).await?;
            let time = format!("from:{} to:{}", iso_ms(around.begin_ms()), iso_ms(around.end_ms()));
            let all = link(&here, &format!("{} {time}", query_bar::term("actor", &raw(actor))));
            let note = note("Within ten minutes before and after.", &found);
            context.add("actor", "By the same actor", note, all, around.rows(&here, &found), &found);
        }
        if let Some(resource) = fields.resource {
            let found = around.on_resource(resource).await?;
            let all = link(&here, &query_bar::term("resource", &raw(resource)));
            let note = note("The latest ten.", &found);
            context.add("resource", "On the same resource", note, all, around.rows(&here, &found), &found);
        }
        if let Some(session) = &event.annotations.session_id {
            let term = query_bar::term("session", session);
            if let Some(found) = around.in_session(&term).await? {
                let all = link(&here, &term);
                let note = note("Within 250 events before and after.", &found);
                context.add("session", "In the same session", note, all, around.rows(&here, &found), &found);
            }
        }
        context.seqs.sort_unstable();
        context.seqs.dedup();
        Ok(context)
    }

    fn add(
        &mut self,
        id: &'static str,
        title: &'static str,
        note: String,
        all: String,
        rows: Vec<Row>,
        found: &Found,
    ) {
        self.seqs.extend(found.events.iter().map(|event| event.sealed.chain_seq));
        self.panels.push(Panel { id, title, note, rows, all });
    }
}

impl Around<'_> {
    fn begin_ms(&self) -> u64 {
        self.event.timestamp_ms.saturating_sub(AROUND_MS)
    }

    /// Included.
    fn end_ms(&self) -> u64 {
        self.event.timestamp_ms + AROUND_MS
    }

    async fn by_actor(&self, actor: &str) -> Result<Found, Problem> {
        let (seq, actor_id) = (self.event.sealed.chain_seq, Some(actor.to_owned()));
        let from_ms = Some(self.event.timestamp_ms);
        let filter = Filter { actor_id, from_ms, until_ms: Some(self.end_ms() + 1), ..Filter::default() };
        let mut after = self.list(filter.clone(), None, AFTER_MAX).await?;
        after.events.retain(|event| event.sealed.chain_seq > seq);
        // Where not all were read, the nearest are not among them: those that were are the last of the ten
        // minutes.
        let nearest = after.events.len().saturating_sub(ROWS);
        let is_cut = after.is_cut || nearest > 0;
        let mut events = after.events.split_off(nearest);
        events.push(self.event.clone());
        let before = Filter { from_ms: Some(self.begin_ms()), ..filter };
        let before = self.list(before, Some(seq), ROWS).await?;
        events.extend(before.events);
        Ok(Found { events, is_cut: is_cut || before.is_cut })
    }

    async fn on_resource(&self, resource: &str) -> Result<Found, Problem> {
        let filter = Filter { resource: Some(resource.to_owned()), ..Filter::default() };
        self.list(filter, None, ROWS).await
    }

    /// Nothing where the name of the session is too long to be looked for.
    async fn in_session(&self, term: &str) -> Result<Option<Found>, Problem> {
        let seq = self.event.sealed.chain_seq;
        let (from, to) = (seq.saturating_sub(SESSION_SEQS), seq.saturating_add(SESSION_SEQS));
        let Ok(query) = Query::parse(&format!("{term} seq:{from}..{to}")) else { return Ok(None) };
        let budget = Budget { rows: 2 * ROWS, bytes: BYTES_MAX, work: Work::Time(Duration::from_millis(30)) };
        let plan = Arc::new(Plan::new(&query, 0).within(self.grants));
        let found = search::run(&*self.app.service.store, self.chain, &plan, None, budget).await?;
        Ok(Some(Found { events: found.events, is_cut: found.resume.is_some() }))
    }

    /// One call of the store.
    async fn list(&self, filter: Filter, before_seq: Option<u64>, rows: usize) -> Result<Found, Problem> {
        // One more than there is room for tells whether there is more.
        let filter = within(filter, self.grants);
        let list = List { filter, before_seq, limit: rows + 1, bytes_max: BYTES_MAX };
        let chunk = self.app.service.store.list(self.chain, list).await?;
        let mut events = chunk.items;
        let is_cut = events.len() > rows || chunk.resume.is_some();
        events.truncate(rows);
        Ok(Found { events, is_cut })
    }

    fn rows(&self, here: &str, found: &Found) -> Vec<Row> {
        let row = |event: &StoredEvent| {
            let fields = event.text.fields();
            Row {
                seq: number(event.sealed.chain_seq),
                href: format!("{here}/{}", event.sealed.log_id),
                iso: iso_ms(event.timestamp_ms),
                moment: moment(event.timestamp_ms),
                action: of_json(fields.action),
                actor: fields.actor_id.map(of_json).unwrap_or_default(),
                resource: fields.resource.map(of_json).unwrap_or_default(),
                is_here: event.sealed.chain_seq == self.event.sealed.chain_seq,
            }
        };
        found.events.iter().map(row).collect()
    }
}

fn raw(canonical: &str) -> String {
    json::decode(canonical).unwrap_or_default()
}

fn link(here: &str, query: &str) -> String {
    format!("{here}?{}={}", query_bar::NAME, query_encoded(query))
}

fn note(what: &str, found: &Found) -> String {
    if found.is_cut { format!("{what} There may be more.") } else { what.to_owned() }
}
