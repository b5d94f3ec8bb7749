//! The last changes of a log, which the writer notes while anybody follows.

use std::collections::VecDeque;

use sealog_core::id::{ChainId, Mode};

use crate::feed::Hub;

/// Changes that are kept for followers of a log. They are few seconds behind at most if they are not slow,
/// and then a list of the last ones is shorter than one of all chains.
const RECENT_MAX: usize = 16 << 10;

pub(crate) type Feed = Hub<[Recent; 2]>;

/// A place in a log: a record's, or an end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub segment: u64,
    pub offset: u64,
}

/// The last changes of a log.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// What is behind this place is in the list, once there is one.
    pub since: Option<Place>,
    pub changes: VecDeque<(Place, ChainId)>,
}

/// What a group has changed, as far as it was noted while it was published.
pub(crate) struct Published {
    segment: u64,
    /// Nothing if nobody followed at its beginning.
    changes: Option<Vec<(ChainId, u32)>>,
}

impl Published {
    pub(crate) fn begin(feed: &Feed, segment: u64) -> Published {
        Published { segment, changes: feed.is_followed().then(Vec::new) }
    }

    /// The last record of a frame.
    pub(crate) fn note(&mut self, chain: ChainId, position: Option<u32>) {
        if let (Some(changes), Some(position)) = (&mut self.changes, position) {
            changes.push((chain, position));
        }
    }

    /// Tells followers of a group, once all of it can be read. `start` is where the group begins.
    pub(crate) fn announce(self, feed: &Feed, mode: Mode, start: u64) {
        if !feed.is_followed() {
            return;
        }
        let Published { segment, changes } = self;
        let mut registry = feed.registry();
        if !registry.is_followed() {
            return;
        }
        let recent = &mut registry.kept[number(mode)];
        let Some(changes) = changes else {
            // Someone has come while it was published. They look at every chain.
            *recent = Recent::default();
            return registry.wake_all();
        };
        recent.since.get_or_insert(Place { segment, offset: start });
        for (chain, position) in &changes {
            recent.changes.push_back((Place { segment, offset: u64::from(*position) }, *chain));
        }
        while recent.changes.len() > RECENT_MAX {
            recent.since = recent.changes.pop_front().map(|(place, _)| place);
        }
        registry.wake(changes.into_iter().map(|(chain, _)| chain));
    }
}

/// Where a log has its place among those of the store.
pub(crate) fn number(mode: Mode) -> usize {
    usize::from(mode == Mode::Test)
}
