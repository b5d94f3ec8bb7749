//! How long test events are kept, by the setting.

use std::sync::Arc;

use sealog_core::id::Mode;
use sealog_core::time::DAY_MS;
use sealog_service::retention::Retention;
use sealog_store::Store;
use sealog_store::reference::ReferenceStore;
use sealog_testing::*;

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn test_events_are_dropped_after_so_many_days_and_live_ones_never() {
    let world = StillWorld::new();
    let store: Arc<dyn Store> = Arc::new(ReferenceStore::new(Arc::clone(&world) as _));
    let (test, live) = (chain(1, 1, Mode::Test), live());
    append(&*store, test, vec![login("old")]);
    append(&*store, live, vec![login("old")]);
    world.advance(DAY_MS);
    append(&*store, test, vec![login("young")]);
    let retention = |days| Retention { store: Arc::clone(&store), world: Arc::clone(&world) as _, days };
    world.advance(29 * DAY_MS);
    assert_eq!(block(retention(30).look()), Ok(0), "30 days to the millisecond");
    world.advance(1);
    assert_eq!(block(retention(0).look()), Ok(0), "0 is for ever");
    assert_eq!(block(retention(30).look()), Ok(1));
    assert_eq!(verify(&*store, test).first_seq, 2);
    world.advance(3650 * DAY_MS);
    assert_eq!(block(retention(30).look()), Ok(1));
    assert_eq!(verify(&*store, live).checked, 1);
    assert_eq!(append(&*store, test, vec![login("next")]).first_seq, 3);
}
