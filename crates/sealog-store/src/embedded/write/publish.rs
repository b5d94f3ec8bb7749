//! Publication: a durable group becomes visible, followers hear of it, and its requests are answered. In this
//! order: an acknowledged event can be read at once, and an event that can be read is never lost.

use std::sync::Arc;
use std::time::Instant;

use sealog_core::chain::Head;

use super::completions::Completions;
use super::group::{Complete, Contained, SealedFrame};
use super::outcome::Outcome;
use crate::embedded::contents::Contents;
use crate::embedded::feed::recent::{Feed, Published};
use crate::embedded::index::chain_index::Chain;
use crate::embedded::upkeep::Upkeep;
use crate::stats::{Histogram, HistogramView};

#[derive(Debug)]
pub(crate) struct Publisher {
    contents: Arc<Contents>,
    upkeep: Arc<Upkeep>,
    /// Of the store: one for its logs.
    feed: Arc<Feed>,
    append_time: Histogram,
}

/// A group that is durable and visible, and not yet announced or answered.
pub(crate) struct Visible {
    published: Published,
    start: u64,
    requests: Vec<Durable>,
}

struct Durable {
    head: Head,
    queued: Instant,
    outcome: Outcome,
    completions: Option<Arc<Completions>>,
}

impl Publisher {
    pub(crate) fn new(contents: Arc<Contents>, upkeep: Arc<Upkeep>, feed: Arc<Feed>) -> Publisher {
        Publisher { contents, upkeep, feed, append_time: Histogram::durations() }
    }

    /// Makes a durable group visible.
    pub(crate) fn publish(&self, group: Complete) -> Visible {
        let Complete { commit, start, frames, usage, after, .. } = group;
        let mut published = Published::begin(&self.feed, after.segment);
        let mut requests = Vec::with_capacity(frames.len());
        // Frames of one chain often follow each other, and then it is looked up once.
        let mut chain: Option<Arc<Chain>> = None;
        let mut heads = Vec::new();
        let mut counted = Vec::with_capacity(frames.len());
        for frame in frames {
            if chain.as_ref().is_none_or(|chain| chain.id != frame.chain) {
                chain = Some(self.contents.chains.get_or_create(frame.chain));
                heads.push((frame.chain, frame.head));
            }
            let chain = chain.as_ref().expect("it was there or was put there");
            let Contained { entries, fields, counts, key } = frame.contained;
            for replaced in chain.publish(after.segment, &entries, &fields, frame.head) {
                if !frame.chain.is_system() {
                    self.contents.uncount_usage(frame.chain.tenant_id, replaced);
                }
            }
            if let Some(key) = key {
                self.contents.keys.insert(after.segment, key);
            }
            published.note(frame.chain, entries.last().map(|entry| entry.position));
            counted.push((frame.chain, counts));
            if let Some((_, head)) = heads.last_mut() {
                *head = frame.head;
            }
            let SealedFrame { head, queued, outcome, completions, .. } = frame;
            requests.push(Durable { head, queued, outcome, completions });
        }
        self.contents.count_usage(usage);
        self.upkeep.note_heads(heads);
        // Behind the heads, so that no high-water mark claims more of the log than it knows the heads of.
        self.contents.set_durable(after, commit);
        self.contents.count_group(after.segment, start..after.end, &counted);
        Visible { published, start, requests }
    }

    /// Tells followers, who go by the end of what is durable, and answers the requests: one by one, or in one
    /// piece to an event loop.
    pub(crate) fn complete(&self, visible: Visible) {
        let Visible { published, start, requests } = visible;
        published.announce(&self.feed, self.contents.mode, start);
        let now = Instant::now();
        let mut for_loops: Vec<(Arc<Completions>, Vec<_>)> = Vec::new();
        let all = requests.len();
        for Durable { head, queued, outcome, completions } in requests {
            self.append_time.observe_duration(now.duration_since(queued));
            let Some(completions) = completions else {
                outcome.succeed(head);
                continue;
            };
            match for_loops.iter_mut().find(|(of, _)| Arc::ptr_eq(of, &completions)) {
                Some((_, outcomes)) => outcomes.push((outcome, head)),
                None => {
                    let mut outcomes = Vec::with_capacity(all);
                    outcomes.push((outcome, head));
                    for_loops.push((completions, outcomes));
                }
            }
        }
        for (completions, outcomes) in for_loops {
            completions.push(outcomes);
        }
    }

    pub(crate) fn append_time(&self) -> HistogramView {
        self.append_time.view()
    }
}
