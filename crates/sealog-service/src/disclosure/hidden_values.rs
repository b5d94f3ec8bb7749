//! Values that are not disclosed, wherever they stand: a member of staff is also named in texts. What belongs to the
//! person is never touched, also where it has such a value inside.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::fold::{self, Folded};
use super::node::{EventView, Node};
use super::subject::Subject;

/// Shorter values are replaced only where they stand alone: `7` is in every date.
const ANYWHERE_CHARS_MIN: usize = 6;
/// Shorter ones only where they are the whole value.
const IN_TEXT_CHARS_MIN: usize = 2;

/// What a value stands for, which says what to write in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueKind {
    /// Of the person, or from an event of the person's own.
    Own,
    /// A reviewer has decided to disclose it.
    Shown,
    Staff,
    OtherPerson,
    /// An address or a session.
    Other,
    /// What a reviewer has masked.
    Chosen,
}

impl ValueKind {
    pub const ALL: [ValueKind; 6] = [
        ValueKind::Own,
        ValueKind::Shown,
        ValueKind::Staff,
        ValueKind::OtherPerson,
        ValueKind::Other,
        ValueKind::Chosen,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            ValueKind::Own => "own",
            ValueKind::Shown => "shown",
            ValueKind::Staff => "staff",
            ValueKind::OtherPerson => "other_person",
            ValueKind::Other => "other",
            ValueKind::Chosen => "chosen",
        }
    }

    pub fn parse(text: &str) -> Option<ValueKind> {
        ValueKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    fn in_text(self) -> Option<&'static str> {
        match self {
            ValueKind::Own | ValueKind::Shown => None,
            ValueKind::Staff => Some("[staff member]"),
            ValueKind::OtherPerson => Some("[another person]"),
            ValueKind::Other | ValueKind::Chosen => Some("[not disclosed]"),
        }
    }
}

/// Finds values in texts in one pass: where a text could begin with one, it is looked up by each length that there is.
#[derive(Clone, Debug, Default)]
pub struct HiddenValues {
    /// As they are compared. Where a value has several kinds, the one that discloses wins.
    kinds: HashMap<Vec<u8>, ValueKind>,
    /// Longest first, by the first two bytes.
    lengths: HashMap<[u8; 2], Vec<usize>>,
    /// A bit for each beginning of two bytes: most places in a text are passed over by it.
    begins: Vec<u64>,
}

impl HiddenValues {
    pub fn new(values: impl IntoIterator<Item = (String, ValueKind)>) -> HiddenValues {
        let mut kinds: HashMap<Vec<u8>, ValueKind> = HashMap::new();
        for (value, kind) in values {
            let key = fold::key(&value);
            if !key.is_empty() {
                let known = kinds.entry(key).or_insert(kind);
                *known = (*known).min(kind);
            }
        }
        let mut found: HashMap<[u8; 2], HashSet<usize>> = HashMap::new();
        for key in kinds.keys() {
            if let [first, second, ..] = key.as_slice() {
                found.entry([*first, *second]).or_default().insert(key.len());
            }
        }
        let mut begins = vec![0; BEGINS_WORDS];
        for begin in found.keys() {
            let (word, bit) = place(*begin);
            begins[word] |= bit;
        }
        let sorted = |lengths: HashSet<usize>| {
            let mut lengths: Vec<usize> = lengths.into_iter().collect();
            lengths.sort_unstable_by(|left, right| right.cmp(left));
            lengths
        };
        let lengths = found.into_iter().map(|(begin, lengths)| (begin, sorted(lengths))).collect();
        HiddenValues { kinds, lengths, begins }
    }

    /// Whether one of them stands anywhere in a text, also inside of a word.
    pub fn finds_anywhere(&self, text: &str) -> bool {
        let folded = fold::key(text);
        (0..folded.len()).any(|at| self.longest(&folded, at, |_| true).is_some())
            || self.kinds.contains_key(&folded)
    }

    /// Whether a text is one of them, or has one where it counts.
    pub fn finds(&self, text: &str) -> bool {
        let folded = Folded::new(text);
        self.kinds.contains_key(&folded.bytes)
            || (0..folded.bytes.len()).any(|at| self.at(text, &folded, at).is_some())
    }

    /// What the whole value is.
    pub fn kind(&self, value: &str) -> Option<ValueKind> {
        self.kinds.get(&fold::key(value)).copied()
    }

    pub fn is_hidden(&self, value: &str) -> bool {
        self.kind(value).is_some_and(|kind| kind.in_text().is_some())
    }

    /// The text without them, if it has any.
    pub fn replaced(&self, text: &str) -> Option<String> {
        let folded = Folded::new(text);
        if let Some(kind) = self.kinds.get(&folded.bytes) {
            return kind.in_text().map(str::to_owned);
        }
        let (mut out, mut kept, mut at) = (String::new(), 0, 0);
        while at < folded.bytes.len() {
            let Some((length, kind)) = self.at(text, &folded, at) else {
                at += 1;
                continue;
            };
            let places = folded.place(at).zip(folded.place(at + length));
            if let Some((label, (begin, end))) = kind.in_text().zip(places) {
                out.push_str(&text[kept..begin]);
                out.push_str(label);
                kept = end;
            }
            at += length;
        }
        if kept == 0 {
            return None;
        }
        out.push_str(&text[kept..]);
        Some(out)
    }

    /// The longest value that stands here and counts.
    fn at(&self, text: &str, folded: &Folded, at: usize) -> Option<(usize, ValueKind)> {
        let begin = folded.place(at)?;
        self.longest(&folded.bytes, at, |behind| {
            let Some(end) = folded.place(behind) else { return false };
            let chars = folded.characters(at, behind);
            chars >= ANYWHERE_CHARS_MIN || (chars >= IN_TEXT_CHARS_MIN && alone(text, begin, end))
        })
    }

    /// The longest one that stands here, and counts by where it ends.
    fn longest(&self, lower: &[u8], at: usize, counts: impl Fn(usize) -> bool) -> Option<(usize, ValueKind)> {
        let begin = lower.get(at..at + 2)?;
        let begin = [begin[0], begin[1]];
        let (word, bit) = place(begin);
        if self.begins.get(word).is_none_or(|word| word & bit == 0) {
            return None;
        }
        self.lengths.get(&begin)?.iter().find_map(|length| {
            let end = at + length;
            let kind = *self.kinds.get(lower.get(at..end)?)?;
            counts(end).then_some((*length, kind))
        })
    }

    /// The event without them, in names as in values. What the person has at a path stays there, also where
    /// somebody else has the same value.
    pub fn apply(&self, view: &EventView, subject: &Subject) -> EventView {
        let mut view = view.clone();
        for (name, node) in &mut view.fields {
            self.apply_to(node, name, subject);
        }
        view
    }

    fn apply_to(&self, node: &mut Node, path: &str, subject: &Subject) {
        if node.scalar().is_some_and(|value| subject.is_at(path, value)) {
            return;
        }
        match node {
            Node::Text(text) => {
                if let Some(replaced) = self.replaced(text) {
                    *text = replaced;
                }
            }
            Node::Literal(text) if self.is_hidden(text) => {
                *node = Node::Masked(self.replaced(text).unwrap_or_default());
            }
            Node::Literal(_) | Node::Masked(_) | Node::Deep(_) => {}
            Node::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    self.apply_to(item, &format!("{path}[{at}]"), subject);
                }
            }
            Node::Object(members) => {
                for (name, value) in members {
                    self.apply_to(value, &format!("{path}.{name}"), subject);
                    if let Some(replaced) = self.replaced(name) {
                        *name = replaced;
                    }
                }
            }
        }
    }

    /// In their order, for tests and for a checker.
    pub fn all_hidden(&self) -> Vec<String> {
        let hidden = self.kinds.iter().filter(|(_, kind)| kind.in_text().is_some());
        let sorted: BTreeMap<_, _> = hidden.collect();
        sorted.into_keys().map(|value| String::from_utf8_lossy(value).into_owned()).collect()
    }
}

const BEGINS_WORDS: usize = (1 << 16) / 64;

fn place(begin: [u8; 2]) -> (usize, u64) {
    let number = usize::from(u16::from_le_bytes(begin));
    (number / 64, 1 << (number % 64))
}

/// No letter or digit stands on either side.
fn alone(text: &str, at: usize, end: usize) -> bool {
    !text[..at].chars().next_back().is_some_and(fold::joins)
        && !text[end..].chars().next().is_some_and(fold::joins)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(pairs: &[(&str, ValueKind)]) -> HiddenValues {
        HiddenValues::new(pairs.iter().map(|(value, kind)| ((*value).to_owned(), *kind)))
    }

    #[test]
    fn a_hidden_value_is_replaced_wherever_it_stands_and_whatever_its_case() {
        let hidden = values(&[("usr_4821", ValueKind::Staff), ("Weiss@Example.org", ValueKind::OtherPerson)]);
        for (text, expected) in [
            ("usr_4821", "[staff member]"),
            ("call USR_4821, weiss@example.org!", "call [staff member], [another person]!"),
            ("xusr_48210", "x[staff member]0"),
            ("é usr_4821 é", "é [staff member] é"),
        ] {
            assert_eq!(hidden.replaced(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(hidden.replaced("usr_482"), None);
    }

    #[test]
    fn a_value_in_any_script_is_replaced_as_a_whole_with_its_accents() {
        let hidden = values(&[("Jürgen Müller", ValueKind::Staff), ("Groß", ValueKind::Staff)]);
        for (text, expected) in [
            ("é JÜRGEN MÜLLER é", "é [staff member] é"),
            ("ju\u{308}rgen mu\u{308}ller!", "[staff member]!"),
            ("Frau GROSS, Großmann", "Frau [staff member], Großmann"),
        ] {
            assert_eq!(hidden.replaced(text).as_deref(), Some(expected), "{text}");
        }
        for text in ["Jurgen Muller", "Gros", "gross\u{308}"] {
            assert_eq!(hidden.replaced(text), None, "{text}");
        }
    }

    #[test]
    fn the_longest_value_wins_and_short_ones_must_stand_alone() {
        let hidden = values(&[
            ("usr_48", ValueKind::Staff),
            ("usr_4821", ValueKind::Other),
            ("ann", ValueKind::Staff),
        ]);
        assert_eq!(hidden.replaced("usr_4821 usr_48").as_deref(), Some("[not disclosed] [staff member]"));
        assert_eq!(hidden.replaced("annual Ann-Marie").as_deref(), Some("annual [staff member]-Marie"));
        let single = values(&[("7", ValueKind::Staff)]);
        assert_eq!((single.replaced("7").is_some(), single.replaced("7 days")), (true, None));
    }

    #[test]
    fn what_belongs_to_the_person_stays_also_with_a_hidden_value_inside() {
        let hidden = values(&[
            ("p-2093", ValueKind::Staff),
            ("p-20931", ValueKind::Own),
            ("same-id", ValueKind::Own),
            ("same-id", ValueKind::Staff),
        ]);
        assert_eq!(hidden.replaced("p-20931 same-id"), None);
        assert_eq!(hidden.replaced("p-2093 p-20931").as_deref(), Some("[staff member] p-20931"));
        assert_eq!(hidden.all_hidden(), ["p-2093"]);
    }

    #[test]
    fn names_and_numbers_in_an_event_are_looked_at_as_texts_are() {
        let hidden = values(&[("usr_4821", ValueKind::Staff), ("990017", ValueKind::Staff)]);
        let mut node = Node::parse(r#"{"usr_4821":true,"n":990017,"in":[{"k":"by usr_4821"}],"m":9900171}"#);
        hidden.apply_to(&mut node, "metadata", &Subject::default());
        let written =
            r#"{"[staff member]":true,"n":"[staff member]","in":[{"k":"by [staff member]"}],"m":9900171}"#;
        assert_eq!(node.to_json(), written);
    }
}
