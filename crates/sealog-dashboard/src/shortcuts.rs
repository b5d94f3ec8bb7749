//! Shortcuts of single keys: one table for the list of them and for the links that they stand for. `keys.js`
//! does them.

use axum::http::HeaderMap;

use crate::cookies;

/// The cookie that turns them off: whoever speaks to the machine, or hits keys by chance, must be able to
/// (WCAG 2.1.4).
const COOKIE: &str = "sealog_shortcuts";
/// A year.
const COOKIE_S: u64 = 365 * 24 * 60 * 60;

/// Pages of the rail, each by the key that follows a `g`.
const GO: [(&str, &str); 8] = [
    ("e", "Events"),
    ("v", "Verification"),
    ("x", "Exports"),
    ("f", "Frameworks"),
    ("a", "Actions"),
    ("d", "Cases"),
    ("k", "API keys"),
    ("u", "Usage"),
];

const ON_PAGE: &[(&str, &str)] = &[
    ("/", "Focus the search"),
    ("j", "Next row"),
    ("k", "Previous row"),
    ("Enter", "Open selection"),
    ("o", "Open row"),
    ("f", "Filter by this value; in a row, focus its first value"),
    ("F", "Exclude this value (Alt-click)"),
    ("c", "Copy the log_id"),
    ("y", "Copy a link to the row, event or page"),
    ("v", "Verify the chain around this event"),
    ("e", "Export this query"),
    ("t", "Switch between UTC and local times"),
    ("r", "Show new events"),
    ("Space", "Pause the live tail"),
    ("?", "Show keyboard shortcuts"),
];

/// Keys with spaces between them, and what they do.
pub(crate) fn all() -> Vec<(String, String)> {
    let on_page = ON_PAGE.iter().map(|(key, what)| ((*key).to_owned(), (*what).to_owned()));
    let go = GO.iter().map(|(key, page)| (format!("g {key}"), format!("Go to {page}")));
    on_page.chain(go).collect()
}

/// The key that leads to a page of the rail.
pub(crate) fn key_of(page: &str) -> Option<&'static str> {
    GO.iter().find(|(_, label)| *label == page).map(|(key, _)| *key)
}

pub(crate) fn are_on(headers: &HeaderMap) -> bool {
    cookies::cookie(headers, COOKIE) != Some("off")
}

pub(crate) fn cookie(are_on: bool) -> String {
    let choice = if are_on { "on" } else { "off" };
    format!("{COOKIE}={choice}; Path=/app; Max-Age={COOKIE_S}; HttpOnly; SameSite=Lax")
}
