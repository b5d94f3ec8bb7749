//! Time zones by name, with the database that is part of the program: a container has none of its own, and
//! two nodes with different ones would name different times.

use jiff::Timestamp;
use jiff::tz::{TimeZone, db};

pub const UTC: &str = "UTC";

/// The name as the database writes it; nothing for a name that it does not have.
pub fn canonical(name: &str) -> Option<String> {
    if name.eq_ignore_ascii_case(UTC) {
        return Some(UTC.into());
    }
    // Places, not abbreviations and offsets, which say nothing of summer time.
    let zone = TimeZone::get(name).ok().filter(|_| name.contains('/'))?;
    zone.iana_name().map(str::to_owned)
}

/// UTC where there is no such zone.
pub fn by_name(name: &str) -> TimeZone {
    canonical(name).and_then(|name| TimeZone::get(&name).ok()).unwrap_or(TimeZone::UTC)
}

/// All names that can be chosen, in their order.
pub fn names() -> Vec<String> {
    let places = db().available().map(|name| name.as_str().to_owned());
    let is_place = |name: &String| name.contains('/') && !name.starts_with("Etc/");
    let mut names: Vec<String> = places.filter(is_place).chain([UTC.to_owned()]).collect();
    names.sort_unstable();
    names
}

/// `20 Nov 2026 15:04 (Europe/Paris)`; in UTC where there is no such zone.
pub fn moment(timestamp_ms: u64, zone: &str) -> String {
    shown(timestamp_ms, zone, "%-d %b %Y %H:%M")
}

/// `20 Nov 2026 (Europe/Paris)`
pub fn day(timestamp_ms: u64, zone: &str) -> String {
    shown(timestamp_ms, zone, "%-d %b %Y")
}

fn shown(timestamp_ms: u64, zone: &str, form: &str) -> String {
    let at = i64::try_from(timestamp_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    let at = at.unwrap_or(Timestamp::MAX);
    match canonical(zone).filter(|name| name != UTC) {
        Some(name) => format!("{} ({name})", at.to_zoned(by_name(&name)).strftime(form)),
        None => format!("{} UTC", at.to_zoned(TimeZone::UTC).strftime(form)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::time::parse_iso_ms;

    #[test]
    fn times_are_those_of_the_place_also_on_the_day_that_the_clocks_change() {
        for (at, zone, expected) in [
            ("2026-11-20T14:04:59.999Z", "Europe/Paris", "20 Nov 2026 15:04 (Europe/Paris)"),
            ("2026-07-01T22:30:00.000Z", "Europe/Paris", "2 Jul 2026 00:30 (Europe/Paris)"),
            ("2026-10-25T00:59:00.000Z", "Europe/Paris", "25 Oct 2026 02:59 (Europe/Paris)"),
            ("2026-10-25T01:00:00.000Z", "Europe/Paris", "25 Oct 2026 02:00 (Europe/Paris)"),
            ("2026-01-01T00:00:00.000Z", "America/Los_Angeles", "31 Dec 2025 16:00 (America/Los_Angeles)"),
            ("2026-01-01T00:00:00.000Z", "UTC", "1 Jan 2026 00:00 UTC"),
            ("2026-01-01T00:00:00.000Z", "Nowhere/Land", "1 Jan 2026 00:00 UTC"),
        ] {
            assert_eq!(moment(parse_iso_ms(at).unwrap(), zone), expected);
        }
        assert_eq!(day(0, "Asia/Tokyo"), "1 Jan 1970 (Asia/Tokyo)");
        assert!(moment(u64::MAX, "UTC").starts_with("30 Dec 9999"));
    }

    #[test]
    fn a_zone_is_the_name_of_a_place_or_utc() {
        assert_eq!(canonical("europe/paris").as_deref(), Some("Europe/Paris"));
        assert_eq!((canonical("utc").as_deref(), canonical("UTC").as_deref()), (Some("UTC"), Some("UTC")));
        for none in ["", "Paris", "CET", "+01:00", "Europe/Atlantis", "../etc/passwd", "Europe/Paris\0"] {
            assert_eq!(canonical(none), None, "{none}");
        }
        let names = names();
        assert!(names.len() > 300 && names.iter().any(|name| name == "UTC"), "{}", names.len());
        assert!(names.iter().all(|name| canonical(name).is_some()));
    }
}
