//! What all adapters make of a body.

use std::borrow::Cow;

use sealog_core::reject::Reject;

/// Most items of one request. The size of its body bounds what they hold; this bounds what is made for each.
pub const ITEMS_MAX: usize = 10_000;

/// An event as `POST /v1/events` takes it, or why there is none.
pub type Item<'b> = Result<Cow<'b, str>, Reject>;

/// To be asked before an item is added.
pub(super) fn check_count(count: usize) -> Result<(), Reject> {
    if count > ITEMS_MAX { Err(Reject::TooManyItems { items_max: ITEMS_MAX }) } else { Ok(()) }
}
