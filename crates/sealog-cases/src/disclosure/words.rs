//! Plain words for what events say: a package is read by people who have never seen a log.

use sealog_core::event::{FIELDS, Shown};
use sealog_core::time::iso_ms;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `November 2026`
pub fn month(timestamp_ms: u64) -> String {
    let iso = iso_ms(timestamp_ms);
    format!("{} {}", month_name(&iso), &iso[..4])
}

/// `14 November 2026, 16:02 UTC`
pub fn moment(timestamp_ms: u64) -> String {
    let iso = iso_ms(timestamp_ms);
    format!("{}, {} UTC", day(timestamp_ms), &iso[11..16])
}

/// `14 November 2026`
pub fn day(timestamp_ms: u64) -> String {
    let iso = iso_ms(timestamp_ms);
    format!("{} {} {}", iso[8..10].trim_start_matches('0'), month_name(&iso), &iso[..4])
}

fn month_name(iso: &str) -> &'static str {
    let month: usize = iso[5..7].parse().unwrap_or(1);
    MONTHS[month.clamp(1, 12) - 1]
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
        assert_eq!(month(1_794_735_458_208), "November 2026");
        assert_eq!(moment(1_794_735_458_208), "15 November 2026, 09:37 UTC");
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
