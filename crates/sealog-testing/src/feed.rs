//! What a follower of a store hears.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sealog_core::chain::Head;
use sealog_core::id::ChainId;
use sealog_store::Store;
use sealog_store::feed::Follower;

use crate::waiting::{PATIENCE, wait, wait_until};

pub type Heads = BTreeMap<ChainId, Head>;

/// Longer than a store takes to find out by itself that something has changed. A machine on which it takes
/// longer tests less, and no test fails because of that.
const QUIET: Duration = Duration::from_millis(500);

pub fn heads(store: &dyn Store) -> Heads {
    wait(store.heads()).unwrap().into_iter().collect()
}

/// What somebody knows who knew `known` and has heard all that is announced: until it is all there, and then
/// until nothing has come for a while.
#[track_caller]
pub fn catch_up(
    follower: &mut Follower,
    limit: usize,
    mut known: Heads,
    is_all: impl Fn(&Heads) -> bool,
) -> Heads {
    let until = Instant::now() + PATIENCE;
    loop {
        let is_all = is_all(&known);
        let until = if is_all { Instant::now() + QUIET } else { until };
        match wait_until(follower.next(limit), Some(until)) {
            Some(batch) => {
                known.extend(batch.unwrap().changes.into_iter().map(|change| (change.chain, change.head)));
            }
            None if is_all => return known,
            None => panic!("this is all that was announced: {known:?}"),
        }
    }
}

/// All of this is announced, and nothing else.
#[track_caller]
pub fn assert_hears(follower: &mut Follower, limit: usize, expected: &Heads) {
    let heard = catch_up(follower, limit, Heads::new(), |heard| {
        expected.iter().all(|(chain, head)| heard.get(chain) == Some(head))
    });
    assert_eq!(heard, *expected);
}

#[track_caller]
pub fn assert_quiet(follower: &mut Follower) {
    assert_hears(follower, 10, &Heads::new());
}
