//! What all adapters make of a body.

use std::borrow::Cow;

use sealog_core::reject::Reject;

/// Most items of one request. The size of its body bounds what they hold; this bounds what is made for each.
pub const ITEMS_MAX: usize = 10_000;

/// Most bytes of events that one request may become. What a body says once may belong to each of its items, so the size of the body does not bound them.
pub const MADE_BYTES_MAX: usize = 8 << 20;

/// An event as `POST /v1/events` takes it, or why there is none.
pub type Item<'b> = Result<Cow<'b, str>, Reject>;

/// To be asked before an item is added.
pub(super) fn check_count(count: usize) -> Result<(), Reject> {
    if count > ITEMS_MAX { Err(Reject::TooManyItems { items_max: ITEMS_MAX }) } else { Ok(()) }
}

/// What the items of a request have come to.
#[derive(Debug, Default)]
pub(super) struct Made {
    bytes: usize,
}

impl Made {
    /// To be asked before an item of this size is made.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), Reject> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MADE_BYTES_MAX {
            Err(Reject::ItemsTooLarge { bytes_max: MADE_BYTES_MAX })
        } else {
            Ok(())
        }
    }
}
