//! Events of a chain as they become durable: a stream of server-sent events, on the feed of the store.
//!
//! A stream ends within a second of the session, the membership or the grant that it stands on: it asks at
//! every tick whether they are as they were, and sends nothing that it has not asked for before. Looking does
//! not count as use of the session, so a view that was left open does not keep it alive.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_TYPE, HeaderName};
use axum::response::Response;
use sealog_core::event::StoredEvent;
use sealog_core::id::ChainId;
use sealog_core::reject::Code;
use sealog_core::verify::Item;
use sealog_service::evidence::search::Plan;
use sealog_service::records::system_chain::actions;
use sealog_store::feed::{Follower, Scope, Start};
use sealog_store::pool::Lane;
use sealog_store::{Range, StoreError};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval, timeout};

use crate::app::Dashboard;
use crate::pages::event_row;
use crate::pages::events;
use crate::pages::query_bar;
use crate::place::is_window;
use crate::problem::Problem;
use crate::request::Asked;
use crate::streams::StreamPlace;
use crate::views;

/// How often it is asked whether the stream may go on, and whether there are events. With the time that the
/// answer may take it is less than a second.
const TICK: Duration = Duration::from_millis(400);
const ANSWER_MAX: Duration = Duration::from_millis(500);
/// Rows of one tick: fifty a second, which is more than anybody reads. What is left out is said.
const ROWS_MAX: u64 = 20;
const BYTES_MAX: usize = 256 << 10;
/// Ticks without a word before one is said, so that no proxy takes the stream for dead and a client that is
/// gone does not keep its place: the first word after it has gone is answered by a reset, and the next one
/// fails.
const QUIET_TICKS_MAX: u32 = 5;

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

struct Tail {
    app: Arc<Dashboard>,
    asked: Arc<Asked>,
    chain: ChainId,
    search: Arc<Plan>,
    follower: Follower,
    /// What has been read of the chain.
    seen_seq: u64,
    /// Where the chain is, if that is further.
    head_seq: Option<u64>,
    ticks: Interval,
    quiet_ticks: u32,
    has_begun: bool,
    _place: StreamPlace,
}

pub(crate) async fn show(app: Arc<Dashboard>, asked: Arc<Asked>) -> Result<Response, Problem> {
    let chain = asked.place().chain_id().ok_or(Problem::not_found())?;
    if events::is_own_echo(asked.place()) {
        return Err(Problem::not_found());
    }
    let search = query_bar::plan_of(&asked, app.service.world.now_ms())?;
    let search = Arc::new(search.within(&asked.place().membership.grants));
    let place = app.streams.enter(chain.tenant_id, asked.person().person.id).ok_or_else(|| {
        Problem::new(Code::AuthTooManyAttempts, "Too many live views are open. Close one and try again.")
    })?;
    let follower = app.service.store.follow(Scope::Chain(chain), Start::Now).await?;
    // Behind the beginning of the feed: what comes between the two is read, and not lost.
    let head_seq = app.service.store.head(chain).await?.durable.chain_seq;
    let last_id = asked.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok()).map(str::to_owned);
    let seen_seq = last_id.or_else(|| asked.query_value("after")).and_then(|seq| seq.parse().ok());
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let seen_seq: u64 = seen_seq.unwrap_or(head_seq).min(head_seq);
    let tail = Tail {
        app,
        asked,
        chain,
        search,
        follower,
        seen_seq,
        head_seq: (seen_seq < head_seq).then_some(head_seq),
        ticks,
        quiet_ticks: 0,
        has_begun: false,
        _place: place,
    };
    let stream = futures_util::stream::unfold(tail, |mut tail| async {
        let message = tail.next().await?;
        Some((Ok::<_, Infallible>(message), tail))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    Ok(response)
}

impl Tail {
    /// The next words of the stream; nothing at its end.
    async fn next(&mut self) -> Option<String> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return Some("retry: 3000\n: live\n\n".into());
        }
        let stop = Arc::clone(&self.app.streams.stop);
        loop {
            tokio::select! {
                biased;
                () = stop.stopped() => return None,
                _ = self.ticks.tick() => {}
                changed = self.follower.next(1), if self.head_seq.is_none() => {
                    match changed {
                        Ok(batch) => self.head_seq = batch.changes.last().map(|change| change.head.chain_seq),
                        // Whoever is interested comes again, and goes on where this was.
                        Err(_) => return None,
                    }
                    continue;
                }
            }
            if !self.may_go_on().await {
                return None;
            }
            let asked_at = Instant::now();
            let message = match self.head_seq.take() {
                Some(head_seq) => self.read(head_seq).await.ok()?,
                None => String::new(),
            };
            if asked_at.elapsed() >= TICK && !self.may_go_on().await {
                return None;
            }
            self.quiet_ticks += 1;
            if !message.is_empty() || self.quiet_ticks > QUIET_TICKS_MAX {
                self.quiet_ticks = 0;
                return Some(if message.is_empty() { ":\n\n".into() } else { message });
            }
        }
    }

    /// Whether session, membership and grants are as they were. Without an answer they are not.
    async fn may_go_on(&mut self) -> bool {
        timeout(ANSWER_MAX, is_admitted(&self.app, &self.asked)).await.unwrap_or(false)
    }

    /// The rows that the chain has become longer by, the newest first.
    async fn read(&mut self, head_seq: u64) -> Result<String, Problem> {
        // A loss that was accepted leaves the chain shorter.
        if head_seq <= self.seen_seq {
            self.seen_seq = head_seq;
            return Ok(String::new());
        }
        let from = (self.seen_seq + 1).max(head_seq.saturating_sub(ROWS_MAX - 1));
        let thinned = from - (self.seen_seq + 1);
        let range = Range { from, to: head_seq, bytes_max: BYTES_MAX };
        let chunk = {
            let _place = self.app.reads.acquire(self.chain.tenant_id).await;
            self.app.service.store.range(self.chain, range).await?
        };
        let last_seq = chunk.resume.map_or(head_seq, |resume| resume.saturating_sub(1).max(from));
        self.head_seq = (last_seq < head_seq).then_some(head_seq);
        self.seen_seq = last_seq;
        let found = chunk.items.into_iter().filter_map(|item| match item {
            Item::Event(event) => Some(*event),
            Item::Damaged { .. } => None,
        });
        let found = self.searched(found.collect()).await?;
        if !found.is_empty() {
            self.seal_view(&found).await?;
        }
        Ok(self.message(&found, thinned))
    }

    /// What the search and the membership leave. Its terms may look at every byte of an event, so it is the
    /// pool that does.
    async fn searched(&mut self, mut events: Vec<StoredEvent>) -> Result<Vec<StoredEvent>, Problem> {
        if events.is_empty() {
            return Ok(events);
        }
        let plan = Arc::clone(&self.search);
        let bytes = events.iter().map(|event| event.text.as_str().len()).sum();
        let searched = self.app.service.store.pool().run(Lane::Compute, self.chain, bytes, move || {
            events.retain(|event| plan.matches(event));
            events
        });
        Ok(searched.await.map_err(|_| StoreError::Closing)?)
    }

    /// What an auditor sees is sealed before it is sent.
    async fn seal_view(&mut self, events: &[StoredEvent]) -> Result<(), Problem> {
        let metadata = json!({
            "project_id": self.chain.project_id.to_string(),
            "mode": self.chain.mode.as_str(),
            "live": true,
            "first_seq": events.first().map(|event| event.sealed.chain_seq),
            "last_seq": events.last().map(|event| event.sealed.chain_seq),
        });
        let resource = format!("project/{}", self.chain.project_id);
        views::seal(&self.app, &self.asked, &actions::EVENTS_VIEWED, &resource, metadata).await
    }

    fn message(&self, found: &[StoredEvent], thinned: u64) -> String {
        let mut message = String::new();
        // Numbers of the whole chain are for those who may see all of it.
        let is_window = is_window(&self.asked.place().membership.grants);
        if thinned > 0 && !is_window {
            message.push_str(&format!("event: thinned\ndata: {thinned}\n\n"));
        }
        if found.is_empty() {
            return message;
        }
        let last_found = found.last().map_or(self.seen_seq, |event| event.sealed.chain_seq);
        let id = if is_window { last_found } else { self.seen_seq };
        message.push_str(&format!("id: {id}\nevent: rows\n"));
        for event in found.iter().rev() {
            let row = event_row::rendered(&self.asked, event);
            row.lines().for_each(|line| message.push_str(&format!("data: {line}\n")));
        }
        message.push('\n');
        message
    }
}

/// Whether session, membership and authenticator are still what they were. It is no use of the session.
pub(crate) async fn is_admitted(app: &Dashboard, asked: &Asked) -> bool {
    let membership = &asked.place().membership;
    let Some(token) = &asked.token else { return false };
    let Ok(Some(who)) = app.service.accounts.look(token).await else { return false };
    if who.session.needs_code || who.must_enrol.is_some() || !who.memberships.contains(membership) {
        return false;
    }
    if !membership.role.rules().needs_second_factor {
        return true;
    }
    let confirmed = app.service.control.with_authenticator(vec![who.person.id]).await;
    confirmed.is_ok_and(|confirmed| !confirmed.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_is_gone_keeps_its_place_for_five_seconds_at_most_on_a_quiet_chain() {
        // The first word after it has gone is answered by a reset, and the next one fails.
        assert!(2 * (QUIET_TICKS_MAX + 1) * TICK <= Duration::from_secs(5));
    }
}
