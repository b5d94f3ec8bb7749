//! Events as counts see them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sealog_core::canonical::Fields;
use sealog_core::json;

use super::day::{Counted, DayCounts, day_of};

/// Counts an event for its day. `severity` and `country` are values, the fields are canonical JSON.
pub(crate) fn count(
    days: &mut BTreeMap<u32, DayCounts>,
    timestamp_ms: u64,
    fields: &Fields<'_>,
    severity: Option<&str>,
    country: Option<&str>,
) {
    let (action, actor_id) = (plain(fields.action), fields.actor_id.map(plain));
    let event = Counted { action: &action, actor_id: actor_id.as_deref(), severity, country };
    days.entry(day_of(timestamp_ms)).or_default().add(&event);
}

/// The value of a canonical string. Almost none has an escape, and then it is the text between the quotes.
pub(super) fn plain(canonical: &str) -> Cow<'_, str> {
    let inner = canonical.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(canonical);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    json::decode(canonical).map_or(Cow::Borrowed(inner), Cow::Owned)
}
