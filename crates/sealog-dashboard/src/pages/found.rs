//! A page of the list of events as it is read: so many of them, with the filters of the API, within what a
//! membership shows.

use sealog_control::Grants;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::query::{Filter, ListQuery};
use sealog_store::List;

use crate::app::Dashboard;
use crate::problem::Problem;
use crate::text::{moment, number};

pub(crate) const ROWS: usize = 50;
/// Bytes of events that a page reads; the last may be as large as a body. Most events have a few hundred.
const BYTES_MAX: usize = 1 << 20;
/// Pieces that a page reads. A filter that matches few events may need more than one person waits for: the
/// page then says how far it looked.
const PIECES_MAX: usize = 4;

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

impl From<sealog_service::evidence::search::Found> for Found {
    fn from(found: sealog_service::evidence::search::Found) -> Found {
        let looked_ms = found.looked_to.and_then(|(_, ms)| ms);
        let cut = found.looked_to.is_some();
        Found { events: found.events, resume: found.resume, cut, looked_ms, head_seq: None, first_seq: 1 }
    }
}

pub(crate) async fn find(
    app: &Dashboard,
    chain: ChainId,
    query: &ListQuery,
    grants: &Grants,
) -> Result<Found, Problem> {
    let _place = app.reads.acquire(chain.tenant_id).await;
    let filter = within(query.filter.clone(), grants);
    let (head_seq, first_seq) = ends(app, chain, query).await?;
    let mut before_seq = query.before_seq;
    let (mut events, mut bytes, mut pieces) = (Vec::new(), 0, 0);
    let resume = loop {
        // One more than there is room for tells whether there is another page.
        let limit = ROWS + 1 - events.len();
        let list = List { filter: filter.clone(), before_seq, limit, bytes_max: BYTES_MAX - bytes };
        let chunk = app.service.store.list(chain, list).await?;
        bytes += chunk.items.iter().map(|event| event.text.as_str().len()).sum::<usize>();
        events.extend(chunk.items);
        pieces += 1;
        if events.len() > ROWS || bytes >= BYTES_MAX / 2 || pieces == PIECES_MAX || chunk.resume.is_none() {
            break chunk.resume;
        }
        before_seq = chunk.resume;
    };
    let more = events.len() > ROWS;
    events.truncate(ROWS);
    let last_seq = events.last().map(|event| event.sealed.chain_seq);
    Ok(Found {
        resume: if more { last_seq } else { resume },
        cut: !more && resume.is_some(),
        looked_ms: None,
        events,
        head_seq,
        first_seq,
    })
}

/// Asked for before the list is read: what comes in between is not missing, and the live view tells of it.
pub(crate) async fn ends(
    app: &Dashboard,
    chain: ChainId,
    query: &ListQuery,
) -> Result<(Option<u64>, u64), Problem> {
    let head = app.service.store.head(chain).await?;
    let head_seq = query.before_seq.is_none().then(|| head.end().chain_seq);
    Ok((head_seq, head.first_seq()))
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
