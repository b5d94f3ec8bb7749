//! How an export is made and found.

use sealog_control::Control;
use std::sync::Arc;
use std::time::Duration;

use sealog_control::{Export, ExportId, Grants, ListPage, NewExport, NewRecord, Person, PersonId, Records};
use sealog_core::id::{ChainId, Uuid};
use sealog_store::world::World;
use sealog_store::{Store, StoreError};
use serde_json::json;

use super::download::{Download, State, Writer};
use super::format::Format;
use super::frozen::{Frozen, earlier};
use super::kept::dropped_to;
use crate::evidence::seqs;
use crate::people::notify::{EXPORT_READY, Notifier};
use crate::records::system_chain::{Actor, Drain, Recorder, Wake, actions};

/// Exports that an organisation keeps. What one is costs a row; the events are read at each download.
pub const KEPT_MAX: u64 = 1000;

/// Why none was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// The organisation has [`KEPT_MAX`], and none of them was downloaded whole.
    TooMany,
    Store(StoreError),
}

impl From<StoreError> for CreateError {
    fn from(error: StoreError) -> CreateError {
        CreateError::Store(error)
    }
}

/// Exports, for those who ask on behalf of people. Who may ask is theirs to decide.
#[derive(Clone)]
pub struct Exporter {
    pub control: Arc<Control>,
    pub store: Arc<dyn Store>,
    pub world: Arc<dyn World>,
    pub drain: Arc<Drain>,
    pub notifier: Notifier,
}

impl Exporter {
    /// Of what the person may see now. The range ends with the last event that there is. Where the
    /// organisation has as many as it keeps, the oldest that was downloaded whole gives way, and the system
    /// chain says what it was.
    pub async fn create(
        &self,
        person_id: PersonId,
        chain: ChainId,
        format: Format,
        frozen: Frozen,
        grants: &Grants,
    ) -> Result<Export, CreateError> {
        let (from_ms, until_ms) = frozen.times_ms();
        let from_ms = from_ms.max(grants.from_ms);
        let until_ms = earlier(until_ms, grants.until_ms);
        let head = self.store.head(chain).await?;
        let first_seq = match from_ms {
            Some(from_ms) => seqs::first_at(&*self.store, chain, from_ms).await?,
            None => head.first_seq(),
        };
        let (head, first_kept) = (head.durable.chain_seq, head.first_seq());
        let last_seq = match until_ms {
            Some(until_ms) => head.min(seqs::last_before(&*self.store, chain, until_ms).await?),
            None => head,
        };
        let (lowest, highest) = frozen.seqs();
        let first_seq = first_seq.max(lowest).max(first_kept).min(head.saturating_add(1));
        let last_seq = last_seq.min(highest);
        let query = frozen.query;
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let id = recorder.random_id();
        // Not the values: they are about those whom the events are about.
        let names: Vec<&str> = query.split('&').filter_map(|pair| pair.split('=').next()).collect();
        let metadata = json!({
            "project_id": chain.project_id.to_string(),
            "mode": chain.mode.as_str(),
            "format": format.as_str(),
            "filters": names.iter().filter(|name| !name.is_empty()).collect::<Vec<_>>(),
            "first_seq": first_seq,
            "last_seq": last_seq,
        });
        let record = recorder.record(&actions::EXPORT_CREATED, &format!("export/{id}"), metadata);
        let new = NewExport {
            id: ExportId(id),
            tenant_id: chain.tenant_id,
            project_id: chain.project_id,
            mode: chain.mode,
            person_id,
            format: format.as_str().into(),
            query,
            from_ms,
            until_ms,
            first_seq,
            last_seq,
            created_at_ms: self.world.now_ms(),
        };
        let records = Records::told_by(move |removed: Option<&Export>, _: &Export| {
            removed.map(|removed| gave_way(&recorder, removed)).into_iter().chain([record]).collect()
        });
        let created = self.control.create_export(new, KEPT_MAX, records).await?;
        self.wake().wake();
        created.ok_or(CreateError::TooMany)
    }

    /// Tells the one who made it that it can be downloaded. `project` is the name of its project.
    pub async fn tell(&self, person: &Person, export: &Export, project: &str) -> Result<(), StoreError> {
        let new = &export.new;
        let parameters = json!({
            "project": project,
            "project_id": new.project_id.to_string(),
            "mode": new.mode.as_str(),
            "format": new.format,
            "at_ms": new.created_at_ms,
        });
        let (people, key) = (std::slice::from_ref(person), new.id.0.to_string());
        self.notifier.tell(&EXPORT_READY, new.tenant_id, people, &key, parameters).await.map(drop)
    }

    fn wake(&self) -> &Wake {
        &self.drain.wake
    }

    /// One of this chain, if all of it may be seen: one of another chain, or that covers more than is
    /// granted, is like one that does not exist. A part of it would have other bytes.
    pub async fn find(
        &self,
        chain: ChainId,
        id: Uuid,
        grants: &Grants,
    ) -> Result<Option<Export>, StoreError> {
        let export = self.control.export_by_id(ExportId(id)).await?;
        Ok(export.filter(|export| chain_of(&export.new) == chain && is_granted(&export.new, grants)))
    }

    /// Newest first, those that were made before `before`; and whether there are more.
    pub async fn list(
        &self,
        chain: ChainId,
        before: Option<Uuid>,
        limit: usize,
        grants: &Grants,
    ) -> Result<(Vec<Export>, Option<Uuid>), StoreError> {
        let page = ListPage { after: before, limit: limit + 1 };
        let found = self.control.exports_of(chain.tenant_id, chain.project_id, chain.mode, page);
        let mut found = found.await?;
        let more = found.len() > limit;
        found.truncate(limit);
        let last = found.last().map(|export| export.new.id.0).filter(|_| more);
        found.retain(|export| is_granted(&export.new, grants));
        Ok((found, last))
    }

    /// The last of its events that were dropped for their age since it was made: without them it is another
    /// file.
    pub async fn dropped_to(&self, export: &Export) -> Result<Option<u64>, StoreError> {
        dropped_to(&*self.store, &export.new).await
    }

    /// Begins a download. It is sealed into the system chain before this returns, and refused if that fails.
    pub async fn download(&self, person_id: PersonId, export: Export) -> Result<Download, StoreError> {
        let (new, chain) = (&export.new, chain_of(&export.new));
        let damaged = |what: &str| StoreError::Read(format!("the export {} has {what}", new.id.0));
        let format = Format::parse(&new.format).ok_or_else(|| damaged("an unknown format"))?;
        let query = Frozen::read(&new.query, chain).map_err(|_| damaged("an unknown query"))?;
        let query = Arc::new(query.within(new.from_ms, new.until_ms));
        let recorder = Recorder::new(Actor::Person(person_id), Arc::clone(&self.world));
        let metadata = json!({
            "project_id": chain.project_id.to_string(),
            "mode": chain.mode.as_str(),
            "format": format.as_str(),
            "first_seq": new.first_seq,
            "last_seq": new.last_seq,
        });
        let resource = format!("export/{}", new.id.0);
        let record = recorder.record(&actions::EXPORT_DOWNLOADED, &resource, metadata);
        self.drain.record_and_seal(chain.tenant_id, record).await?;
        Ok(Download {
            store: Arc::clone(&self.store),
            control: Arc::clone(&self.control),
            world: Arc::clone(&self.world),
            chain,
            state: State::new(&query, new, Writer::new(format)),
            query,
            export,
            rest: Duration::ZERO,
        })
    }
}

/// What can be checked of a file that somebody has, when its export is gone.
fn gave_way(recorder: &Recorder, export: &Export) -> NewRecord {
    let (new, totals) = (&export.new, export.totals);
    let metadata = json!({
        "project_id": new.project_id.to_string(),
        "mode": new.mode.as_str(),
        "format": new.format,
        "first_seq": new.first_seq,
        "last_seq": new.last_seq,
        "rows": totals.map(|totals| totals.rows),
        "bytes": totals.map(|totals| totals.bytes),
        "sha256": totals.map(|totals| totals.sha256.to_string()),
    });
    recorder.record(&actions::EXPORT_REMOVED, &format!("export/{}", new.id.0), metadata)
}

pub(super) fn chain_of(export: &NewExport) -> ChainId {
    ChainId { tenant_id: export.tenant_id, project_id: export.project_id, mode: export.mode }
}

/// Whether all of its time lies within what is granted.
fn is_granted(export: &NewExport, grants: &Grants) -> bool {
    let begins = grants.from_ms.is_none_or(|granted| export.from_ms.is_some_and(|from| from >= granted));
    let ends = grants.until_ms.is_none_or(|granted| export.until_ms.is_some_and(|until| until <= granted));
    begins && ends
}
