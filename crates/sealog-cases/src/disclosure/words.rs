//! Plain words for what events say: a package is read by people who have never seen a log.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use sealog_core::event::{FIELDS, Shown};
use sealog_service::zone;

/// Times as the clocks of a place show them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clocks {
    zone: TimeZone,
    /// The place, as people call it.
    pub place: String,
}

impl Default for Clocks {
    fn default() -> Clocks {
        Clocks::of(zone::UTC)
    }
}

impl Clocks {
    /// By the name of a time zone; UTC where there is no such zone.
    pub fn of(name: &str) -> Clocks {
        let name = zone::canonical(name).unwrap_or_else(|| zone::UTC.into());
        let place = name.rsplit('/').next().unwrap_or(&name).replace('_', " ");
        Clocks { zone: zone::by_name(&name), place }
    }

    fn shown(&self, timestamp_ms: u64, form: &str) -> String {
        let at = i64::try_from(timestamp_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
        at.unwrap_or(Timestamp::MAX).to_zoned(self.zone.clone()).strftime(form).to_string()
    }

    /// `November 2026`
    pub fn month(&self, timestamp_ms: u64) -> String {
        self.shown(timestamp_ms, "%B %Y")
    }

    /// `2026-11`, in the order of time.
    pub fn month_number(&self, timestamp_ms: u64) -> String {
        self.shown(timestamp_ms, "%Y-%m")
    }

    /// `14 November 2026`
    pub fn day(&self, timestamp_ms: u64) -> String {
        self.shown(timestamp_ms, "%-d %B %Y")
    }

    /// `14 November 2026, 17:02 (Berlin)`
    pub fn moment(&self, timestamp_ms: u64) -> String {
        format!("{} ({})", self.shown(timestamp_ms, "%-d %B %Y, %H:%M"), self.place)
    }

    /// `2026-11-14 17:02:44`, for spreadsheets.
    pub fn sortable(&self, timestamp_ms: u64) -> String {
        self.shown(timestamp_ms, "%Y-%m-%d %H:%M:%S")
    }
}

/// `14 November 2026`, of a day that has no zone.
pub fn day(timestamp_ms: u64) -> String {
    Clocks::default().day(timestamp_ms)
}

/// What kind of processing a category of events is.
pub fn purpose(category: Option<&str>) -> String {
    let known = match category.unwrap_or("") {
        "" => "Other activity",
        "auth" => "Signing in and out",
        "access_control" | "identity" => "Accounts and permissions",
        "data_access" => "Use of data",
        "content" => "Documents and content",
        "gdpr" | "ccpa" => "Data protection and your rights",
        "hipaa" => "Health records",
        "payment" | "pci_dss" => "Payments",
        "security" | "nis2" | "dora" | "resilience" => "Keeping data secure",
        "api_key" => "Access by programs",
        "configuration" | "change_management" | "soc2" | "iso27001" | "fedramp" => "Operation of the service",
        "audit_log" => "Record keeping",
        "ai_act" => "Automated systems",
        "sox" | "csrd" => "Financial and sustainability reporting",
        "people" => "Staff matters",
        "physical" => "Access to buildings",
        "third_party" => "Other organisations",
        other => return sentence(other),
    };
    known.to_owned()
}

/// What a field is called.
pub fn label(name: &str) -> String {
    let field = FIELDS.iter().find(|field| field.name == name && field.shown != Shown::Never);
    field.map_or_else(|| sentence(name), |field| field.label.to_owned())
}

/// `data_subject_id` becomes `Data subject id`.
pub fn sentence(name: &str) -> String {
    capital(&name.replace(['_', '.'], " "))
}

/// With a large first letter.
pub fn capital(text: &str) -> String {
    let mut characters = text.chars();
    match characters.next() {
        Some(first) => first.to_uppercase().chain(characters).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::catalog::Catalog;

    #[test]
    fn times_and_names_read_as_people_write_them() {
        let (utc, berlin) = (Clocks::default(), Clocks::of("Europe/Berlin"));
        assert_eq!(utc.moment(1_794_735_458_208), "15 November 2026, 09:37 (UTC)");
        assert_eq!(berlin.moment(1_794_735_458_208), "15 November 2026, 10:37 (Berlin)");
        // The last half hour of a month elsewhere.
        let late = sealog_core::time::parse_iso_ms("2026-11-30T23:30:00.000Z").unwrap();
        assert_eq!((berlin.month(late), utc.month(late)), ("December 2026".into(), "November 2026".into()));
        assert_eq!(Clocks::of("America/Los_Angeles").sortable(late), "2026-11-30 15:30:00");
        assert_eq!(Clocks::of("Nowhere/Land"), utc);
        assert!(berlin.moment(u64::MAX).contains("9999"));
        assert_eq!((sentence("data_subject_id"), sentence("")), ("Data subject id".into(), String::new()));
    }

    #[test]
    fn every_category_of_the_catalog_has_words() {
        for entry in &Catalog::builtin().entries {
            let words = purpose(Some(&entry.category));
            assert_ne!(words, sentence(&entry.category), "{}", entry.category);
        }
    }
}
