//! What is not disclosed unless a reviewer says otherwise. A person may learn when their data was used and
//! for what, and in general not which employee it was (CJEU C-579/21): whoever is not the person is masked.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sealog_core::event::{FIELDS, FieldId};
use sealog_core::id::Uuid;

use super::hidden_values::ValueKind;
use super::node::{EventView, Node, Step, below};
use super::subject::{SUBJECT_FIELDS, Subject};

const NOT_DISCLOSED: &str = "Not disclosed";
const NAME_NOT_DISCLOSED: &str = "[not disclosed]";
const OTHER_PERSON: &str = "Another person";
/// Values of other people in one event; with more, all of its metadata is masked at once. Each is kept out of
/// texts.
const OTHERS_MAX: usize = 200;
/// Texts of more are read by a reviewer, whatever their name.
const SHORT_CHARS: usize = 60;

/// A longer one is a text, and names nobody.
const VALUE_BYTES_MAX: usize = 500;

/// A field that is not disclosed, and what stands in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    pub path: String,
    pub label: String,
}

/// What an event has to be masked for, before anybody has looked at it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suggested {
    pub masks: Vec<Mask>,
    /// Texts that may say anything: a reviewer should read them.
    pub flags: Vec<String>,
    /// Values that must not, or may, stand anywhere in the package.
    pub values: Vec<(String, ValueKind)>,
}

impl Suggested {
    fn mask(&mut self, path: &str, label: &str) {
        self.masks.push(Mask { path: path.to_owned(), label: label.to_owned() });
    }

    fn value(&mut self, node: Option<&Node>, kind: ValueKind) {
        if let Some(value) = node.and_then(Node::scalar).filter(|value| !value.is_empty()) {
            self.values.push((value.to_owned(), kind));
        }
    }
}

/// Fields of `metadata` that name somebody.
fn names_somebody(name: &str) -> bool {
    const NAMES: [&str; 24] = [
        "account_id",
        "actor",
        "actor_id",
        "approver",
        "assessor_id",
        "assignee",
        "auditor_id",
        "author",
        "custodians",
        "email",
        "email_address",
        "impersonated_user",
        "login",
        "manager",
        "officer_id",
        "owner",
        "phone",
        "reviewer_id",
        "staff_id",
        "tester_id",
        "user",
        "username",
        "visitor",
        "witness_id",
    ];
    let ends = ["_by", "_email", "_user", "_user_id", "_member_id", "_employee_id", "_username"];
    NAMES.contains(&name) || SUBJECT_FIELDS.contains(&name) || ends.iter().any(|end| name.ends_with(end))
}

/// Fields of `metadata` that tell where somebody was.
fn tells_where(name: &str) -> bool {
    [
        "ip",
        "ip_address",
        "source_ip",
        "client_ip",
        "remote_addr",
        "session_id",
        "user_agent",
        "device_id",
        "badge_id",
    ]
    .contains(&name)
}

/// Fields of `metadata` that people write into, or that name those who received data, whom a person may know.
fn is_for_a_reader(name: &str) -> bool {
    const NAMES: [&str; 16] = [
        "note",
        "notes",
        "comment",
        "comments",
        "message",
        "reason",
        "description",
        "text",
        "body",
        "subject",
        "summary",
        "name",
        "recipient",
        "recipients",
        "notified_party",
        "provided_to",
    ];
    NAMES.contains(&name)
        || ["_name", "_note", "_notes", "_reason", "_description", "_to"]
            .iter()
            .any(|end| name.ends_with(end))
}

/// What proves something that the event itself does not say: a digest, or the place of an event in a chain.
/// The reader of a digest can try values until one fits, and learns what is masked.
fn proves_something(name: &str, value: &str) -> bool {
    const NAMES: [&str; 6] = ["hash", "prev_hash", "chain_seq", "proof", "checksum", "signature"];
    const ENDS: [&str; 6] = ["_hash", "_digest", "_md5", "_sha1", "_sha256", "_checksum"];
    // `sha256:…` and `sha256-…` name the function first.
    let digits = value.rsplit([':', '-']).next().unwrap_or(value);
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    NAMES.contains(&name)
        || ENDS.iter().any(|end| name.ends_with(end))
        || (is_hex && matches!(digits.len(), 40 | 56 | 64 | 96 | 128))
}

/// Kinds of resources that are people.
fn is_person(resource_type: &str) -> bool {
    [
        "user", "users", "person", "people", "patient", "customer", "consumer", "employee", "member",
        "contact", "staff", "account",
    ]
    .contains(&resource_type)
}

/// What stands in place of an actor who is not the person.
fn actor_label(actor_type: Option<&str>) -> (String, ValueKind) {
    let kind = actor_type.map(str::to_ascii_lowercase);
    match kind.as_deref() {
        Some("system" | "service" | "machine" | "api_key" | "bot") => {
            ("An automated process".into(), ValueKind::Other)
        }
        None | Some("" | "user" | "person" | "human" | "staff" | "employee") => {
            ("A staff member".into(), ValueKind::Staff)
        }
        Some(role) => {
            // It is a word of whoever sent the event.
            let is_word =
                |character: char| character.is_alphanumeric() || matches!(character, ' ' | '_' | '-');
            let role: String = role.chars().filter(|character| is_word(*character)).take(40).collect();
            (format!("A staff member ({})", role.replace('_', " ")), ValueKind::Staff)
        }
    }
}

/// The defaults for an event that was found for this person.
pub fn suggest(view: &EventView, subject: &Subject) -> Suggested {
    let mut found = Suggested::default();
    let actor = view.text_of("actor_id");
    let is_own = actor.is_some_and(|actor| subject.is(actor));
    if actor.is_some() && !is_own {
        let (label, kind) = actor_label(view.text_of("actor_type"));
        found.mask("actor_id", &label);
        found.value(view.field("actor_id"), kind);
    }
    for field in FIELDS.iter().filter(|field| field.is_trace) {
        let Some(node) = view.field(field.name) else { continue };
        if !is_own {
            found.mask(field.name, NOT_DISCLOSED);
        }
        // Many people are in one place.
        if !matches!(field.id, FieldId::Country | FieldId::City) {
            found.value(Some(node), if is_own { ValueKind::Own } else { ValueKind::Other });
        }
    }
    if let Some(resource) = view.text_of("resource")
        && let Some((kind, id)) = resource.split_once('/')
        && is_person(&kind.to_ascii_lowercase())
        && !subject.is_resource(resource)
    {
        found.mask("resource", OTHER_PERSON);
        found.values.push((resource.to_owned(), ValueKind::OtherPerson));
        if !id.is_empty() {
            found.values.push((id.to_owned(), ValueKind::OtherPerson));
        }
    }
    look_into_metadata(view, subject, is_own, &mut found);
    // PostgreSQL keeps no text with a zero in it.
    found.values.retain(|(value, _)| value.len() <= VALUE_BYTES_MAX && !value.contains('\0'));
    found.values.sort_unstable();
    found.values.dedup();
    found
}

fn look_into_metadata(view: &EventView, subject: &Subject, is_own: bool, found: &mut Suggested) {
    let Some(metadata) = view.field("metadata") else { return };
    let (mut others, mut proofs) = (Vec::new(), Vec::new());
    metadata.leaves("metadata", &mut |path, node| {
        // Names are disclosed as they stand, unless a reviewer masks what they name.
        let is_name_to_read = path.split('.').skip(1).any(may_name_somebody);
        if is_name_to_read || matches!(node, Node::Oversized(_)) {
            found.flags.push(path.to_owned());
        }
        let Some(value) = node.scalar().filter(|value| !value.is_empty() && *value != "null") else { return };
        if subject.is(value) || subject.is_resource(value) || subject.is_at(path, value) {
            return;
        }
        let name = last_name(path);
        let is_flag = matches!(value, "true" | "false");
        if names_somebody(&name) && !is_flag {
            others.push((path.to_owned(), OTHER_PERSON, value.to_owned(), ValueKind::OtherPerson));
        } else if tells_where(&name) {
            match is_own {
                true => found.values.push((value.to_owned(), ValueKind::Own)),
                false => others.push((path.to_owned(), NOT_DISCLOSED, value.to_owned(), ValueKind::Other)),
            }
        } else if proves_something(&name, value) {
            proofs.push(path.to_owned());
        } else if matches!(node, Node::Text(_)) {
            let is_long = value.chars().nth(SHORT_CHARS).is_some();
            if !is_name_to_read && (is_for_a_reader(&name) || is_long || value.contains('@')) {
                found.flags.push(path.to_owned());
            }
        }
    });
    if others.len() > OTHERS_MAX {
        found.mask("metadata", "Not disclosed (it names many other people)");
        found.flags.clear();
        found.values.extend(others.into_iter().map(|(_, _, value, kind)| (value, kind)));
        return;
    }
    for (path, label, value, kind) in others {
        found.mask(&path, label);
        found.values.push((value, kind));
    }
    match found.masks.is_empty() {
        true => found.flags.extend(proofs),
        false => proofs.iter().for_each(|path| found.mask(path, NOT_DISCLOSED)),
    }
}

/// Whether the name of a member looks like what a person is called (`usr_77`, `ann@example.org`, `10017`),
/// and not like that of a field (`sha256`, `line_1`).
fn may_name_somebody(name: &str) -> bool {
    let name = name.split('[').next().unwrap_or(name);
    let before = name.trim_end_matches(|character: char| character.is_ascii_digit());
    let digits = name.len() - before.len();
    let is_numbered = match before.chars().next_back() {
        None => digits >= 3,
        Some('_' | '-' | ':' | '#' | '/') => digits >= 2,
        Some(_) => digits >= 4,
    };
    is_numbered || name.contains('@') || Uuid::parse(name).is_some()
}

/// Of a path, what its value is called: the last name that is no number of an item.
fn last_name(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path);
    name.split('[').next().unwrap_or(name).to_ascii_lowercase()
}

/// Lays masks over an event: of these paths, and of all that lies in them.
pub fn apply(view: &EventView, masks: &[Mask]) -> EventView {
    let laying = Laying {
        labels: labels(masks),
        above: masks.iter().flat_map(|mask| ends(&mask.path).map(|end| &mask.path[..end])).collect(),
    };
    let mut view = view.clone();
    for (name, node) in &mut view.fields {
        laying.lay(node, &mut (*name).to_owned());
    }
    view
}

/// Where one path has several masks, the first one counts.
fn labels(masks: &[Mask]) -> HashMap<&str, &str> {
    masks.iter().rev().map(|mask| (mask.path.as_str(), mask.label.as_str())).collect()
}

struct Laying<'m> {
    labels: HashMap<&'m str, &'m str>,
    /// Paths that are masked, or have something masked below them.
    above: HashSet<&'m str>,
}

/// What has become of the values below a node.
#[derive(Clone, Copy, Debug, Default)]
struct Laid {
    is_some_masked: bool,
    is_some_left: bool,
}

impl Laid {
    fn add(&mut self, other: Laid) {
        self.is_some_masked |= other.is_some_masked;
        self.is_some_left |= other.is_some_left;
    }
}

impl Laying<'_> {
    fn lay(&self, node: &mut Node, path: &mut String) -> Laid {
        let mut laid = Laid::default();
        if let Some(label) = self.labels.get(path.as_str()) {
            *node = Node::Masked((*label).to_owned());
            laid.is_some_masked = true;
            return laid;
        }
        if !self.above.contains(path.as_str()) {
            laid.is_some_left = has_leaf(node);
            return laid;
        }
        match node {
            Node::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    laid.add(below(path, Step::Item(at), |path| self.lay(item, path)));
                }
            }
            Node::Object(members) => {
                for (name, value) in members {
                    let below_name = below(path, Step::Member(name), |path| self.lay(value, path));
                    // Whoever masks all that stands under a person's name means the name, too.
                    if below_name.is_some_masked && !below_name.is_some_left && may_name_somebody(name) {
                        *name = NAME_NOT_DISCLOSED.to_owned();
                    }
                    laid.add(below_name);
                }
            }
            Node::Text(_) | Node::Literal(_) | Node::Masked(_) | Node::Oversized(_) => {
                laid.is_some_left = true
            }
        }
        laid
    }
}

fn has_leaf(node: &Node) -> bool {
    match node {
        Node::List(items) => items.iter().any(has_leaf),
        Node::Object(members) => members.iter().any(|(_, value)| has_leaf(value)),
        Node::Text(_) | Node::Literal(_) | Node::Masked(_) | Node::Oversized(_) => true,
    }
}

/// What a reviewer has chosen: these paths and no others, with the words of the defaults where they are among
/// them.
pub fn chosen(paths: &[String], suggested: &Suggested) -> Vec<Mask> {
    let labels = labels(&suggested.masks);
    let label = |path: &String| labels.get(path.as_str()).copied().unwrap_or(NOT_DISCLOSED);
    paths.iter().map(|path| Mask { path: path.clone(), label: label(path).to_owned() }).collect()
}

/// All of the metadata, as a path.
pub const METADATA: &str = "metadata";

/// What is masked once a form is saved that showed these of the event's values (by their places among its
/// leaves), with `wanted` checked: paths of values, or [`METADATA`].
///
/// A form speaks for what it shows. What it does not show stays as it is, masked or not: nobody has looked at
/// it. A path that also leads to a value which is not on the form counts as not shown.
pub fn merged(view: &EventView, before: &[String], on_form: &Range<usize>, wanted: &[String]) -> Vec<String> {
    let leaves = view.leaves();
    let wanted: HashSet<&str> = wanted.iter().map(String::as_str).collect();
    let known: HashSet<&str> = before.iter().map(String::as_str).collect();
    let off = |at: usize| !on_form.contains(&at);
    let not_shown: HashSet<&str> =
        leaves.iter().enumerate().filter(|(at, _)| off(*at)).map(|(_, (path, _))| path.as_str()).collect();
    let is_shown = |path: &str| !not_shown.contains(path);
    // A mask is taken apart where a value below it was on the form and is not wanted any more.
    let mut apart: HashSet<&str> = HashSet::new();
    for (path, _) in leaves.iter().filter(|(path, _)| is_shown(path) && !wanted.contains(path.as_str())) {
        apart.extend(outermost(&known, path));
    }
    if wanted.contains(METADATA) {
        apart.remove(METADATA);
    }
    let mut masks: Vec<String> =
        before.iter().filter(|mask| !apart.contains(mask.as_str())).cloned().collect();
    let mut kept: HashSet<String> = masks.iter().cloned().collect();
    let mut add = |path: &str| {
        if kept.insert(path.to_owned()) {
            masks.push(path.to_owned());
        }
    };
    if wanted.contains(METADATA) {
        add(METADATA);
    }
    for (path, _) in &leaves {
        let mask = outermost(&known, path);
        let is_kept = mask.is_some_and(|mask| !apart.contains(mask));
        let is_masked = if is_shown(path) { wanted.contains(path.as_str()) } else { mask.is_some() };
        if is_masked && !is_kept {
            add(path);
        }
    }
    masks
}

/// The first of these masks, from the outside, that covers a path: its own, or that of something it lies in.
pub fn outermost<'m>(masks: &HashSet<&'m str>, path: &str) -> Option<&'m str> {
    ends(path).find_map(|end| masks.get(&path[..end]).copied())
}

/// Where the paths end in which a path lies, and where it ends itself.
fn ends(path: &str) -> impl Iterator<Item = usize> {
    path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()])
}

/// What a reviewer's choice says of values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Masked or shown from now on, wherever they stand.
    pub values: Vec<(String, ValueKind)>,
    /// What an earlier choice said, and that does not hold any more.
    pub without: Vec<(String, ValueKind)>,
}

/// `paths` are masked now, `before` were until now.
pub fn choice(view: &EventView, paths: &[String], before: &[String], subject: &Subject) -> Choice {
    let now: HashSet<&str> = paths.iter().map(String::as_str).collect();
    let before: HashSet<&str> = before.iter().map(String::as_str).collect();
    let is_masked = |path: &str| outermost(&now, path).is_some();
    let was_masked = |path: &str| outermost(&before, path).is_some();
    let (mut choice, mut seen) = (Choice::default(), HashSet::new());
    for (path, node) in view.leaves() {
        let Some(value) = node.scalar() else { continue };
        let is_own = subject.is(value) || subject.is_resource(value) || subject.is_at(&path, value);
        if is_own || !is_identifier(value) {
            continue;
        }
        let kinds = match (is_masked(&path), was_masked(&path)) {
            (true, false) => (ValueKind::Shown, matches!(node, Node::Text(_)).then_some(ValueKind::Chosen)),
            (false, true) => (ValueKind::Chosen, Some(ValueKind::Shown)),
            _ => continue,
        };
        if seen.insert((value, kinds)) {
            choice.without.push((value.to_owned(), kinds.0));
            choice.values.extend(kinds.1.map(|kind| (value.to_owned(), kind)));
        }
    }
    choice
}

/// What is long, or has blanks, names nobody; where it is masked, it is masked by its path.
fn is_identifier(value: &str) -> bool {
    let fits = value.len() <= VALUE_BYTES_MAX && value.chars().nth(2).is_some();
    fits && !value.contains(|character: char| character.is_whitespace() || character == '\0')
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use sealog_core::chain::Head;
    use sealog_core::event::{StoredEvent, parse_single};
    use sealog_core::id::{ChainId, Mode, ProjectId, Random80, TenantId};

    pub(in super::super) fn view(body: &str) -> EventView {
        EventView::of(&event(body))
    }

    pub(in super::super) fn event(body: &str) -> StoredEvent {
        let chain = ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([2; 16])),
            mode: Mode::Live,
        };
        let mut draft = parse_single(body.as_bytes()).unwrap().unwrap();
        draft.annotations.ip_address = Some("203.0.113.24".into());
        draft.annotations.city = Some("Berlin".into());
        let sealed = Head::EMPTY.seal(chain.tenant_id, &draft.text, 1_794_735_458_208, Random80([0; 10]));
        StoredEvent::new(chain, sealed, draft)
    }

    pub(in super::super) fn subject() -> Subject {
        Subject::new(vec!["p-20931".into()], vec!["patient/p-20931".into()], vec!["jane@example.org".into()])
    }

    fn paths(suggested: &Suggested) -> Vec<&str> {
        suggested.masks.iter().map(|mask| mask.path.as_str()).collect()
    }

    #[test]
    fn of_others_who_acted_the_identity_the_address_and_the_session_are_masked() {
        let view = view(
            r#"{"action":"hipaa.phi_accessed","actor_id":"usr_4821","actor_type":"nurse","session_id":"s-1","resource":"patient/p-20931",
                "metadata":{"patient_id":"p-20931","approved_by":"usr_77","note":"Called back by Dr Weiss","purpose":"TREATMENT","source_ip":"10.0.0.1","recipient":"Lab"}}"#,
        );
        let suggested = suggest(&view, &subject());
        assert_eq!(
            paths(&suggested),
            ["actor_id", "session_id", "ip_address", "city", "metadata.approved_by", "metadata.source_ip"]
        );
        assert_eq!(suggested.masks[0].label, "A staff member (nurse)");
        assert_eq!(suggested.flags, ["metadata.note", "metadata.recipient"]);
        let shown = apply(&view, &suggested.masks);
        assert_eq!(shown.field("resource"), view.field("resource"), "the person's own record");
        let written = shown.field("metadata").unwrap().to_json();
        assert!(!written.contains("usr_77") && written.contains("TREATMENT") && written.contains("p-20931"));
        assert!(shown.field("actor_id").unwrap().is_masked());
    }

    #[test]
    fn a_digest_beside_something_masked_is_masked_too_and_one_alone_is_for_a_reviewer() {
        let sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
        let metadata = format!(
            r#"{{"original":"sha256:{sha256}","customer_md5":"x","chain_seq":7,"id":"{}","total":41}}"#,
            &sha256[..32]
        );
        let of = |actor: &str| {
            suggest(
                &view(&format!(r#"{{"action":"a","actor_id":"{actor}","metadata":{metadata}}}"#)),
                &subject(),
            )
        };
        let expected = ["metadata.original", "metadata.customer_md5", "metadata.chain_seq"];
        let by_other = of("usr_4821");
        assert_eq!(paths(&by_other), [&["actor_id", "ip_address", "city"][..], &expected].concat());
        assert_eq!(by_other.flags, Vec::<String>::new());
        let own = of("p-20931");
        assert_eq!((paths(&own), own.flags.as_slice()), (vec![], &expected.map(str::to_owned)[..]));
    }

    #[test]
    fn what_the_person_did_is_disclosed_with_address_and_session() {
        let view = view(
            r#"{"action":"user.login","actor_id":"P-20931","session_id":"s-9","metadata":{"source_ip":"198.51.100.7","shared_with":{"user_id":"usr_5"}}}"#,
        );
        let suggested = suggest(&view, &subject());
        assert_eq!(paths(&suggested), ["metadata.shared_with.user_id"]);
        for own in ["s-9", "203.0.113.24", "198.51.100.7"] {
            assert!(suggested.values.contains(&(own.to_owned(), ValueKind::Own)), "{own}");
        }
    }

    #[test]
    fn a_record_of_somebody_else_and_a_crowd_of_names_are_masked() {
        let other = view(r#"{"action":"a.b","actor_id":"p-20931","resource":"user/77"}"#);
        let suggested = suggest(&other, &subject());
        assert_eq!(paths(&suggested), ["resource"]);
        assert!(suggested.values.contains(&("77".to_owned(), ValueKind::OtherPerson)));
        let ids: Vec<String> = (0..=OTHERS_MAX).map(|at| format!("\"usr_{at}\"")).collect();
        let crowd = view(&format!(r#"{{"action":"a.b","metadata":{{"user_id":[{}]}}}}"#, ids.join(",")));
        assert!(paths(&suggest(&crowd, &subject())).contains(&"metadata"));
    }

    #[test]
    fn a_name_is_taken_for_a_person_by_its_form() {
        for name in ["usr_77", "p-20931", "U12345", "1001", "ann@example.org", "usr_77[0]"] {
            assert!(may_name_somebody(name), "{name}");
        }
        for name in ["sha256", "line_1", "ipv4", "oauth2", "note", "", "q3"] {
            assert!(!may_name_somebody(name), "{name}");
        }
    }

    #[test]
    fn a_form_speaks_for_the_values_that_it_shows() {
        let view = view(r#"{"action":"a.b","metadata":{"a":["1","2","3"],"b":"4","a":["5"],"c":"6"}}"#);
        let leaves: Vec<String> = view.leaves().into_iter().map(|(path, _)| path).collect();
        // ip_address and city come first; then metadata.a[0], [1], [2], b, a[0] again, c.
        assert_eq!(
            leaves[2..],
            ["a[0]", "a[1]", "a[2]", "b", "a[0]", "c"].map(|path| format!("metadata.{path}"))
        );
        let merged = |before: &[&str], on_form, wanted: &[&str]| {
            let own = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
            merged(&view, &own(before), &on_form, &own(wanted))
        };
        let (all, two, none) = (0..8, 2..4, 0..0);
        assert_eq!(merged(&["metadata"], all.clone(), &[]), [""; 0]);
        assert_eq!(merged(&["metadata"], none.clone(), &[]), ["metadata"], "nothing was shown");
        assert_eq!(merged(&["metadata.c"], two.clone(), &["metadata.a[1]"]), ["metadata.c", "metadata.a[1]"]);
        // Of all that was masked at once, one value that was on the form is shown. The first one stands
        // twice.
        let rest = ["metadata.a[0]", "metadata.a[2]", "metadata.b", "metadata.c"];
        assert_eq!(merged(&["metadata"], two.clone(), &["metadata.a[0]"]), rest);
        assert_eq!(merged(&["metadata"], two.clone(), &[]), rest);
        let as_it_was = merged(&["metadata"], two.clone(), &["metadata.a[0]", "metadata.a[1]"]);
        assert_eq!(as_it_was, ["metadata"]);
        assert_eq!(merged(&["metadata"], two, &["metadata"]), ["metadata"]);
        let taken_apart = merged(&["metadata.a"], all, &["metadata.a[2]", "metadata.b"]);
        assert_eq!(taken_apart, ["metadata.a[2]", "metadata.b"]);
        assert_eq!(merged(&[], none, &["metadata"]), ["metadata"]);
    }

    #[test]
    fn a_reviewer_masks_any_field_with_all_that_lies_in_it_and_may_show_what_was_masked() {
        let view = view(
            r#"{"action":"a.b","actor_id":"usr_4821","metadata":{"a":{"b":["case-77",2]},"ab":"stays","owner":"usr_9"}}"#,
        );
        let suggested = suggest(&view, &subject());
        let paths: Vec<String> = ["actor_id", "metadata.a"].map(str::to_owned).into();
        let shown = apply(&view, &chosen(&paths, &suggested));
        let expected = r#"{"a":"Not disclosed","ab":"stays","owner":"usr_9"}"#;
        assert_eq!(shown.field("metadata").unwrap().to_json(), expected);
        let before: Vec<String> = suggested.masks.iter().map(|mask| mask.path.clone()).collect();
        let choice = choice(&view, &paths, &before, &subject());
        assert!(choice.values.contains(&("case-77".into(), ValueKind::Chosen)));
        assert!(choice.values.contains(&("usr_9".into(), ValueKind::Shown)));
        assert!(!choice.values.iter().any(|(value, _)| value == "usr_4821"), "as it was");
    }
}
