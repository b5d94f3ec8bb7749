//! The files of a package, each from the same disclosed events: one for people, one for programs, one for
//! spreadsheets, and what the law wants said with them.

use std::collections::HashMap;

use sealog_control::case_found::{BY_PERSON, MENTION, ON_PERSON};
use sealog_core::catalog::Catalog;
use sealog_core::event::{FIELDS, Field, Shown};
use sealog_core::json;
use sealog_core::time::iso_ms;

use super::markup::{FOOT, head, paragraphs, text};
use crate::disclosure::node::{EventView, Node, OVERSIZED};
use crate::disclosure::words::{self, Clocks};
use sealog_service::evidence::exports::put_safe_cell;

/// Of a value in the page for people; files for programs have all of it.
const SHOWN_CHARS_MAX: usize = 2000;

/// What a package says beside its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub organisation: String,
    /// As people call it (`DSAR-2026-014`).
    pub case: String,
    pub made_at_ms: u64,
    pub events: u64,
    pub from_ms: Option<u64>,
    pub until_ms: Option<u64>,
    pub letter: String,
    pub privacy: Privacy,
    /// The law that the request was made under, in words.
    pub law: String,
    /// Categories of the events, in words, in their order.
    pub purposes: Vec<String>,
    /// Descriptions of the organisation's own actions.
    pub descriptions: HashMap<String, String>,
    /// Names of projects.
    pub projects: HashMap<String, String>,
    /// When the request came: a day.
    pub received_at_ms: u64,
    pub clocks: Clocks,
}

/// The organisation's own words, of its settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privacy {
    pub purposes: Option<String>,
    pub categories: Option<String>,
    pub recipients: Option<String>,
    pub retention: Option<String>,
    pub contact: Option<String>,
}

impl Privacy {
    pub fn is_empty(&self) -> bool {
        *self == Privacy::default()
    }
}

impl About {
    /// What happened, in the words of the catalog for lay people.
    pub fn what(&self, action: &str) -> String {
        let known = Catalog::builtin().entry(action).map(|entry| entry.plain.clone());
        let known = known.or_else(|| self.descriptions.get(action).filter(|text| !text.is_empty()).cloned());
        known.unwrap_or_else(|| words::sentence(action))
    }
}

/// An event as it is disclosed, with where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    pub view: EventView,
    pub project_id: String,
    /// By the person, on the person, or a mention, in words.
    pub found: String,
}

/// `1 entry`, `1,402 entries`
fn entries(count: u64) -> String {
    match count {
        1 => "1 entry".to_owned(),
        count => format!("{} entries", grouped(count)),
    }
}

/// `1,402`
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The days that were searched, in words.
fn range(about: &About) -> String {
    match (about.from_ms, about.until_ms) {
        (None, None) => String::new(),
        (Some(from), None) => format!(" since {}", words::day(from)),
        (None, Some(until)) => format!(" until {}", words::day(until - 1)),
        (Some(from), Some(until)) => format!(" from {} to {}", words::day(from), words::day(until - 1)),
    }
}

// ---- 1-start-here.html ----------------------------------------------------------------------------------

/// Lines of each list of the first page; what is behind them is in `your-data.html`.
const LINES_MAX: usize = 30;
/// Names of those who acted that are counted apart.
const ACTORS_MAX: usize = 1000;

/// What the first page says of the entries, counted while they are written.
#[derive(Debug, Default)]
pub struct Summary {
    by_you: u64,
    about_you: u64,
    mentions: u64,
    who: HashMap<String, u64>,
    why: HashMap<String, u64>,
    /// How often, and when first and last.
    what: HashMap<String, (u64, u64, u64)>,
}

impl Summary {
    /// `found` are bits of an event that was found.
    pub fn count(&mut self, about: &About, view: &EventView, found: u8) {
        for (bit, count) in
            [(BY_PERSON, &mut self.by_you), (ON_PERSON, &mut self.about_you), (MENTION, &mut self.mentions)]
        {
            *count += u64::from(found & bit != 0);
        }
        let who = match view.field("actor_id") {
            _ if found & BY_PERSON != 0 => "You",
            Some(Node::Text(who) | Node::Masked(who)) => who,
            _ => "Not recorded",
        };
        let is_known = self.who.len() < ACTORS_MAX || self.who.contains_key(who);
        *self.who.entry(if is_known { who.to_owned() } else { "Others".to_owned() }).or_default() += 1;
        *self.why.entry(words::purpose(view.category.as_deref())).or_default() += 1;
        let at = view.timestamp_ms;
        let (count, first, last) = self.what.entry(about.what(&view.action)).or_insert((0, at, at));
        (*count, *first, *last) = (*count + 1, (*first).min(at), (*last).max(at));
    }

    /// The page that a person opens first.
    pub fn page(&self, about: &About) -> String {
        let mut page = head("What we found about you");
        page.push_str(&format!(
            "<p>You sent us your request {} on {}. {} searched its record of activity{} for you. This is our answer of {}.</p>\n",
            text(&about.case),
            words::day(about.received_at_ms),
            text(&about.organisation),
            range(about),
            about.clocks.day(about.made_at_ms),
        ));
        if about.events == 0 {
            page.push_str("<p><b>We found no entries.</b></p>\n");
        } else {
            page.push_str(&format!(
                "<p><b>We found {}.</b></p>\n<ul>\n<li>{} about something that you did</li>\n<li>{} about something that was done to you or with your data</li>\n<li>{} that mention you</li>\n</ul>\n<p>An entry can be in more than one of these lines.</p>\n",
                entries(about.events),
                entries(self.by_you),
                entries(self.about_you),
                entries(self.mentions)
            ));
            put_counts(&mut page, "Who did it", &self.who);
            page.push_str("<p>We do not name employees who acted for us.</p>\n<h2>What happened</h2>\n<table>\n<tr><th>What</th><th>How often</th><th>First</th><th>Last</th></tr>\n");
            let mut what: Vec<_> = self.what.iter().collect();
            what.sort_unstable_by_key(|(sentence, (count, ..))| (u64::MAX - count, sentence.as_str()));
            for (sentence, (count, first, last)) in what.iter().take(LINES_MAX) {
                page.push_str(&format!(
                    "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    text(sentence),
                    grouped(*count),
                    about.clocks.day(*first),
                    about.clocks.day(*last)
                ));
            }
            page.push_str(&format!("</table>\n{}", more(what.len())));
            put_counts(&mut page, "Why", &self.why);
        }
        page.push_str(
            "<h2>The other files</h2>\n<ul>\n<li><b>your-data.html</b> has every entry, for reading.</li>\n<li><b>explanation.html</b> says why we keep these entries, who receives them, and what rights you have.</li>\n<li><b>letter.html</b> is our letter to you.</li>\n<li><b>events.csv</b> opens in a spreadsheet; <b>events.json</b> and <b>manifest.json</b> are for programs.</li>\n</ul>\n",
        );
        page.push_str(FOOT);
        page
    }
}

/// A list with how many of each, most first.
fn put_counts(page: &mut String, title: &str, counts: &HashMap<String, u64>) {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_unstable_by_key(|(name, count)| (u64::MAX - **count, name.as_str()));
    page.push_str(&format!("<h2>{title}</h2>\n<ul>\n"));
    for (name, count) in counts.iter().take(LINES_MAX) {
        page.push_str(&format!("<li>{}: {}</li>\n", text(&cut(name)), entries(**count)));
    }
    page.push_str(&format!("</ul>\n{}", more(counts.len())));
}

fn more(lines: usize) -> String {
    match lines.checked_sub(LINES_MAX).filter(|more| *more > 0) {
        Some(more) => format!("<p>And {more} more kinds: see your-data.html.</p>\n"),
        None => String::new(),
    }
}

// ---- your-data.html -------------------------------------------------------------------------------------

/// Groups by month and purpose: events come in the order of both.
#[derive(Debug, Default)]
pub struct YourData {
    month: Option<String>,
    purpose: Option<String>,
}

impl YourData {
    pub fn begin(about: &About) -> String {
        let mut page = head("Your data");
        page.push_str(&format!(
            "<p>{} keeps a record of activity in its systems. Below are the {}{} that record what you did, are about you, or name you. Request {}, answered {}.</p>\n\
             <p><mark>Highlighted text</mark> replaces information about other people, such as the name of an employee. Times are those of {}.</p>\n",
            text(&about.organisation),
            entries(about.events),
            range(about),
            text(&about.case),
            about.clocks.day(about.made_at_ms),
            text(&about.clocks.place),
        ));
        if about.events == 0 {
            page.push_str("<p>We found no entries.</p>\n");
        }
        page
    }

    pub fn put(&mut self, about: &About, item: &Item) -> String {
        let view = &item.view;
        let month = about.clocks.month(view.timestamp_ms);
        let purpose = words::purpose(view.category.as_deref());
        let mut out = String::new();
        if self.month.as_ref() != Some(&month) {
            out.push_str(&format!("<h2>{}</h2>\n", text(&month)));
            self.month = Some(month);
            self.purpose = None;
        }
        if self.purpose.as_ref() != Some(&purpose) {
            out.push_str(&format!("<h3>{}</h3>\n", text(&purpose)));
            self.purpose = Some(purpose);
        }
        out.push_str(&format!(
            "<article><h4>{}</h4><time datetime=\"{}\">{}</time>\n<dl>",
            text(&about.what(&view.action)),
            iso_ms(view.timestamp_ms),
            text(&about.clocks.moment(view.timestamp_ms))
        ));
        out.push_str(&format!("<dt>Why it is here</dt><dd>{}</dd>", text(&item.found)));
        for (name, node) in &view.fields {
            match node {
                _ if !listed_fields().any(|field| field.name == *name) => {}
                Node::Object(members) if *name == "metadata" => {
                    for (name, value) in members {
                        put_value(&mut out, &words::sentence(name), value);
                    }
                }
                node => put_value(&mut out, &words::label(name), node),
            }
        }
        out.push_str(&format!("<dt>Reference</dt><dd>{}</dd></dl></article>\n", text(&view.log_id)));
        out
    }

    pub fn end() -> &'static str {
        FOOT
    }
}

fn put_value(out: &mut String, name: &str, node: &Node) {
    out.push_str(&format!("<dt>{}</dt><dd>", text(name)));
    match node {
        Node::Masked(label) => out.push_str(&format!("<mark>{}</mark>", text(label))),
        Node::Oversized(_) => out.push_str(&format!("<mark>{}</mark>", text(OVERSIZED))),
        Node::Text(value) | Node::Literal(value) => out.push_str(&text(&cut(value))),
        Node::List(_) | Node::Object(_) => out.push_str(&text(&cut(&listed(node)))),
    }
    out.push_str("</dd>");
}

/// `name: value; name: value`
fn listed(node: &Node) -> String {
    match node {
        Node::Text(value) | Node::Literal(value) | Node::Masked(value) => value.clone(),
        Node::Oversized(_) => OVERSIZED.to_owned(),
        Node::List(items) => items.iter().map(listed).collect::<Vec<_>>().join(", "),
        Node::Object(members) => {
            let member =
                |(name, value): &(String, Node)| format!("{}: {}", words::sentence(name), listed(value));
            members.iter().map(member).collect::<Vec<_>>().join("; ")
        }
    }
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}… (the full text is in events.json)", &value[..end]),
        None => value.to_owned(),
    }
}

// ---- events.json and events.csv -------------------------------------------------------------------------

/// A JSON array with an object in each line.
pub fn put_json(item: &Item, about: &About, is_first: bool, out: &mut Vec<u8>) {
    let view = &item.view;
    out.extend_from_slice(if is_first { b"[\n" } else { b",\n" });
    let mut members = vec![
        ("reference", view.log_id.clone()),
        ("timestamp", iso_ms(view.timestamp_ms)),
        ("local_time", about.clocks.sortable(view.timestamp_ms)),
        ("project", about.projects.get(&item.project_id).cloned().unwrap_or_default()),
        ("action", view.action.clone()),
        ("description", about.what(&view.action)),
        ("found", item.found.clone()),
    ];
    members.extend(view.category.clone().map(|category| ("category", category)));
    for (at, (name, value)) in members.iter().enumerate() {
        out.push(if at == 0 { b'{' } else { b',' });
        json::put_string(name, out);
        out.push(b':');
        json::put_string(value, out);
    }
    for (name, node) in &view.fields {
        out.push(b',');
        json::put_string(name, out);
        out.push(b':');
        node.put_json(out);
    }
    out.push(b'}');
}

pub fn end_json(is_empty: bool) -> &'static [u8] {
    if is_empty { b"[]\n" } else { b"\n]\n" }
}

/// Columns before those of the fields.
const COLUMNS: [&str; 8] =
    ["reference", "timestamp", "local_time", "project", "description", "action", "category", "found"];

/// The fields that people see.
fn listed_fields() -> impl Iterator<Item = &'static Field> {
    FIELDS.iter().filter(|field| field.shown == Shown::Listed)
}

fn columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain(listed_fields().map(|field| field.name))
}

/// With the mark by which spreadsheets know UTF-8.
pub fn csv_header() -> String {
    format!("\u{feff}{}\r\n", columns().collect::<Vec<_>>().join(","))
}

/// No cell is a formula, whatever it holds.
pub fn put_csv(item: &Item, about: &About, out: &mut Vec<u8>) {
    let view = &item.view;
    for (at, column) in columns().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        let cell = match column {
            "reference" => view.log_id.clone(),
            "timestamp" => iso_ms(view.timestamp_ms),
            "local_time" => about.clocks.sortable(view.timestamp_ms),
            "project" => about.projects.get(&item.project_id).cloned().unwrap_or_default(),
            "description" => about.what(&view.action),
            "action" => view.action.clone(),
            "category" => view.category.clone().unwrap_or_default(),
            "found" => item.found.clone(),
            field => match view.field(field) {
                Some(Node::Text(value) | Node::Literal(value) | Node::Masked(value)) => value.clone(),
                Some(node) => node.to_json(),
                None => String::new(),
            },
        };
        put_safe_cell(&cell, out);
    }
    out.extend_from_slice(b"\r\n");
}

// ---- What is said with them -----------------------------------------------------------------------------

pub fn letter(about: &About) -> String {
    format!("{}{}{FOOT}", head(&format!("Answer to your request {}", about.case)), paragraphs(&about.letter))
}

/// Art. 15(1): purposes, categories, recipients, retention, rights.
pub fn explanation(about: &About) -> String {
    let mut page = head("About your data and your rights");
    let organisation = text(&about.organisation);
    page.push_str(&format!(
        "<p>{organisation} answers your request {} under {}. The law requires us to give you this information with your data.</p>\n",
        text(&about.case),
        text(&about.law)
    ));
    let privacy = &about.privacy;
    // The organisation's own words come before the general ones.
    let mut section = |title: &str, own: &Option<String>, general: &str| {
        let own = own.as_deref().map(paragraphs).unwrap_or_default();
        page.push_str(&format!("<h2>{title}</h2>\n{own}{general}"));
    };
    let purposes: String =
        about.purposes.iter().map(|purpose| format!("<li>{}</li>\n", text(purpose))).collect();
    section(
        "Why the entries exist",
        &privacy.purposes,
        &format!(
            "<p>An audit log shows who did what. It helps to find misuse, explain errors and meet legal duties to keep records. The entries in this package concern:</p>\n<ul>\n{purposes}</ul>\n"
        ),
    );
    section(
        "What data they contain",
        &privacy.categories,
        "<p>The time of an activity, what was done, by whom and on which record; the network address, session and approximate location of the person who did it; and details of the activity.</p>\n",
    );
    section(
        "Where the data comes from",
        &None,
        "<p>From the systems in which the activity took place, at the time it took place.</p>\n",
    );
    section(
        "Who receives them",
        &privacy.recipients,
        "<p>The people at the organisation who are responsible for security, compliance and data protection, its auditors, and authorities where the law requires it. The entries themselves name the recipients of individual disclosures.</p>\n",
    );
    section(
        "Who looked at your data",
        &None,
        "<p>You may learn when and for what your data was used. In general, the identity of an employee who acted for the organisation is not disclosed (Court of Justice of the European Union, C-579/21, 22 June 2023). In that case the entry says \u{201c}a staff member\u{201d}.</p>\n",
    );
    section(
        "How long they are kept",
        &privacy.retention,
        "<p>As long as the organisation must be able to show what happened. An audit log is made so that a changed or removed entry is noticed.</p>\n",
    );
    section(
        "Automated decisions",
        &None,
        "<p>The log itself makes no decisions. If an automated system made a decision about you, the entry says so.</p>\n",
    );
    section(
        "Your rights",
        &None,
        "<p>You have the right:</p>\n<ul>\n<li>to have wrong data corrected, and incomplete data completed;</li>\n<li>to have data erased, or its use restricted, where the law gives you that right;</li>\n<li>to object to the use of your data on grounds that relate to your particular situation;</li>\n<li>to receive data that you have provided in a form that other programs can read: events.json is one;</li>\n<li>to complain to a supervisory authority, and to go to court.</li>\n</ul>\n",
    );
    if privacy.contact.is_some() {
        section("Who to contact", &privacy.contact, "");
    }
    page.push_str(FOOT);
    page
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::disclosure::masks::tests::view;

    pub(in super::super) fn about() -> About {
        About {
            organisation: "Northwind <Clinic>".into(),
            case: "DSAR-2026-014".into(),
            events: 2,
            made_at_ms: 1_794_735_458_208,
            letter: "Dear <b>Jane</b>,\n\nhere it is.".into(),
            law: "the GDPR".into(),
            purposes: vec!["Health records".into()],
            ..About::default()
        }
    }

    pub(in super::super) fn item(body: &str) -> Item {
        Item { view: view(body), project_id: "p".into(), found: "By you".into() }
    }

    #[test]
    fn a_lay_person_reads_months_purposes_and_words_instead_of_names_of_actions() {
        let about = about();
        let mut page = YourData::default();
        let mut text = YourData::begin(&about);
        for _ in 0..2 {
            text.push_str(
                &page.put(&about, &item(r#"{"action":"user.login","metadata":{"mfa_used":true}}"#)),
            );
        }
        assert_eq!(text.matches("<h2>November 2026</h2>").count(), 1);
        assert!(text.contains("An account was signed in to.") && !text.contains("user.login"), "{text}");
        assert!(text.contains("<dt>Mfa used</dt><dd>true</dd>"));
    }

    #[test]
    fn the_first_page_says_what_was_found_how_much_by_whom_and_why() {
        let about = About { events: 1402, clocks: Clocks::of("Europe/Berlin"), ..about() };
        let mut summary = Summary::default();
        let own = view(r#"{"action":"user.login","actor_id":"p-20931"}"#);
        let mut by_staff = view(r#"{"action":"hipaa.phi_accessed","actor_id":"usr_4821"}"#);
        by_staff.category = Some("hipaa".into());
        let mask = crate::disclosure::masks::Mask {
            path: "actor_id".into(),
            label: "A staff member (nurse)".into(),
        };
        let by_staff = crate::disclosure::masks::apply(&by_staff, &[mask]);
        summary.count(&about, &own, BY_PERSON);
        for _ in 0..1401 {
            summary.count(&about, &by_staff, ON_PERSON | MENTION);
        }
        let page = summary.page(&about);
        for said in [
            "We found 1,402 entries.",
            "1 entry about something that you did",
            "1,401 entries about something that was done to you or with your data",
            "<li>You: 1 entry</li>",
            "<li>A staff member (nurse): 1,401 entries</li>",
            "<td>A health record was opened.</td><td>1,401</td>",
            "<li>Health records: 1,401 entries</li>",
            "Northwind &lt;Clinic&gt;",
        ] {
            assert!(page.contains(said), "{said}: {page}");
        }
        assert!(!page.contains("usr_4821") && !page.contains("hipaa."), "{page}");
        let none = Summary::default().page(&About { events: 0, ..about });
        assert!(none.contains("We found no entries.") && !none.contains("Who did it"));
    }

    #[test]
    fn the_first_page_stays_one_page_whatever_the_events_say() {
        let (about, mut summary) = (about(), Summary::default());
        for n in 0..3000 {
            let body = format!(r#"{{"action":"a{n}.<b>","actor_id":"{n}{}"}}"#, "<script>\\u202e".repeat(20));
            summary.count(&about, &view(&body), ON_PERSON);
        }
        let page = summary.page(&about);
        assert!(summary.who.len() <= ACTORS_MAX + 1 && page.len() < 600_000, "{}", page.len());
        assert!(!page.contains("<script") && !page.contains("<b>,") && !page.contains('\u{202e}'));
        assert!(page.contains("And 2970 more kinds"));
    }

    #[test]
    fn hostile_events_stay_text_in_every_file() {
        let hostile = r#"</script><script>x</script>=HYPERLINK(1)"#;
        let body = format!(
            r#"{{"action":"{hostile}","actor_id":"={hostile}","resource":"@x","metadata":{{"{hostile}":["{hostile}",{{"a":"\u202e"}}]}}}}"#
        );
        let (about, item) = (about(), item(&body));
        let mut page = YourData::begin(&about);
        page.push_str(&YourData::default().put(&about, &item));
        page.push_str(&letter(&about));
        page.push_str(&explanation(&about));
        assert!(!page.to_ascii_lowercase().contains("<script") && !page.contains('\u{202e}'), "{page}");
        assert!(!page.contains("<Clinic>") && !page.contains("<b>Jane"));
        let mut csv = Vec::new();
        put_csv(&item, &about, &mut csv);
        let csv = String::from_utf8(csv).unwrap();
        assert!(csv.contains("\"'=") && csv.contains("\"'@x\""), "{csv}");
        let mut out = Vec::new();
        put_json(&item, &about, true, &mut out);
        out.extend_from_slice(end_json(false));
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read[0]["action"], hostile);
    }

    #[test]
    fn an_explanation_has_the_points_of_the_law_and_the_words_of_the_organisation() {
        let privacy = Privacy { retention: Some("We keep it for a year. <b>".into()), ..Privacy::default() };
        let page = explanation(&About { privacy, ..about() });
        for point in ["Why the entries exist", "Who receives them", "How long", "Your rights", "for a year"] {
            assert!(page.contains(point), "{point}");
        }
    }

    #[test]
    fn a_package_without_events_has_files_that_can_be_read() {
        assert_eq!(end_json(true), b"[]\n");
        assert!(YourData::begin(&About { events: 0, ..about() }).contains("We found no entries."));
    }
}
