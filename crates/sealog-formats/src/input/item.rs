//! What all adapters make of a body, and how much of it.

use std::borrow::Cow;

use sealog_core::reject::Reject;

/// Most items of one request. The size of its body bounds what they hold; this bounds what is made for each.
pub const ITEMS_MAX: usize = 10_000;

/// Most bytes of all events together that are written from the items of one request: four times as many as
/// the largest body has. What the records of a resource have in common is written into each of them, so that
/// a body of a few kilobytes could otherwise become gigabytes.
pub const EVENTS_BYTES_MAX: usize = 8 << 20;

/// An event as `POST /v1/events` takes it, or why there is none.
pub type Item<'b> = Result<Cow<'b, str>, Reject>;

/// To be asked before an item is added.
pub(super) fn check_count(count: usize) -> Result<(), Reject> {
    if count > ITEMS_MAX { Err(Reject::TooManyItems { items_max: ITEMS_MAX }) } else { Ok(()) }
}

/// Items whose events are written and not cut out of the body.
#[derive(Debug, Default)]
pub(super) struct Written<'b> {
    items: Vec<Item<'b>>,
    bytes: usize,
}

impl<'b> Written<'b> {
    pub(super) fn add(&mut self, write: impl FnOnce() -> Result<String, Reject>) -> Result<(), Reject> {
        check_count(self.items.len() + 1)?;
        let item = write();
        self.bytes += item.as_ref().map_or(0, String::len);
        if self.bytes > EVENTS_BYTES_MAX {
            return Err(Reject::EventsTooLarge { bytes_max: EVENTS_BYTES_MAX });
        }
        self.items.push(item.map(Cow::Owned));
        Ok(())
    }

    pub(super) fn into_items(self) -> Vec<Item<'b>> {
        self.items
    }
}
