//! A page of the list of events as it is read.

use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::query::Filter;
use sealog_service::evidence::search::Plan;

use crate::app::Dashboard;
use crate::pages::query_bar;
use crate::problem::Problem;
use crate::text::{moment, number};

pub(crate) const ROWS: usize = 50;

/// What a page of the list has.
pub(crate) struct Found {
    pub events: Vec<StoredEvent>,
    /// Below which there may be more.
    pub resume: Option<u64>,
    /// The page is not full although there may be more.
    pub cut: bool,
    /// When the last event was sealed that was looked at.
    pub looked_ms: Option<u64>,
    /// The newest that the chain is known to have had; asked for where a first page has to say so.
    pub head_seq: Option<u64>,
    /// The first that is kept; test chains lose their oldest events in time.
    pub first_seq: u64,
}

impl Found {
    pub(crate) fn looked_to(&self) -> Option<String> {
        let seq = number(self.resume.filter(|_| self.cut)?);
        Some(self.looked_ms.map_or(seq.clone(), |ms| format!("{seq} · {}", moment(ms))))
    }
}

/// Events below `before_seq`, in what the membership grants.
pub(crate) async fn find(
    app: &Dashboard,
    chain: ChainId,
    plan: Plan,
    before_seq: Option<u64>,
    grants: &Grants,
) -> Result<Found, Problem> {
    // Asked for before the list is read: what comes in between is not missing, and the live tail has it.
    let head = app.service.store.head(chain).await?;
    let found = query_bar::find(app, chain, plan, before_seq, grants, ROWS).await?;
    Ok(Found {
        cut: found.looked_to.is_some(),
        looked_ms: found.looked_to.and_then(|(_, ms)| ms),
        events: found.events,
        resume: found.resume,
        head_seq: before_seq.is_none().then(|| head.end().chain_seq),
        first_seq: head.first_seq(),
    })
}

/// What the membership leaves of a filter.
pub(crate) fn within(mut filter: Filter, grants: &Grants) -> Filter {
    filter.from_ms = filter.from_ms.max(grants.from_ms);
    filter.until_ms = match (filter.until_ms, grants.until_ms) {
        (Some(wanted), Some(granted)) => Some(wanted.min(granted)),
        (wanted, granted) => wanted.or(granted),
    };
    filter
}
