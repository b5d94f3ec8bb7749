//! Values that are not disclosed, wherever they stand: a member of staff is also named in texts. What belongs
//! to the person is never touched, also where it has such a value inside.

use super::fold::{self, Folded};
use super::node::{EventView, Node, Step, below};
use super::subject::Subject;

/// Shorter values are replaced only where they stand alone: `7` is in every date.
const ANYWHERE_CHARS_MIN: usize = 6;
/// Shorter ones only where they are the whole value.
const IN_TEXT_CHARS_MIN: usize = 2;

/// What a value stands for, which says what to write in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

/// Finds values in texts in one pass. Where a text could begin with one, its place among the sorted values is
/// looked up: the values that stand there are the one before that place, or those with which it begins. This
/// costs a search by halving and at most as many steps as that value has bytes, however many values there
/// are.
#[derive(Clone, Debug, Default)]
pub struct HiddenValues {
    /// In the order of their keys.
    values: Vec<Hidden>,
    /// A bit for each beginning of two bytes: most places in a text are passed over by it.
    begins: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Hidden {
    /// As it is compared.
    key: Vec<u8>,
    /// Where a value has several kinds, the one that discloses wins.
    kind: ValueKind,
    /// The place of the longest other value with which this one begins.
    begins_with: Option<usize>,
}

impl HiddenValues {
    pub fn new(values: impl IntoIterator<Item = (String, ValueKind)>) -> HiddenValues {
        let keyed = values.into_iter().map(|(value, kind)| (fold::key(&value), kind));
        let mut keyed: Vec<(Vec<u8>, ValueKind)> = keyed.filter(|(key, _)| !key.is_empty()).collect();
        keyed.sort_unstable();
        keyed.dedup_by(|next, kept| next.0 == kept.0);
        let (mut values, mut begins) = (Vec::<Hidden>::with_capacity(keyed.len()), vec![0; BEGINS_WORDS]);
        for (key, kind) in keyed {
            if let [first, second, ..] = key.as_slice() {
                let (word, bit) = place([*first, *second]);
                begins[word] |= bit;
            }
            let mut begins_with = values.len().checked_sub(1);
            while let Some(at) = begins_with.filter(|at| !key.starts_with(&values[*at].key)) {
                begins_with = values[at].begins_with;
            }
            values.push(Hidden { key, kind, begins_with });
        }
        HiddenValues { values, begins }
    }

    fn kind_of(&self, key: &[u8]) -> Option<ValueKind> {
        let at = self.values.binary_search_by(|value| value.key.as_slice().cmp(key)).ok()?;
        Some(self.values[at].kind)
    }

    /// Whether one of them stands anywhere in a text, also inside of a word.
    pub fn finds_anywhere(&self, text: &str) -> bool {
        let folded = fold::key(text);
        (0..folded.len()).any(|at| self.longest(&folded, at, |_| true).is_some())
            || self.kind_of(&folded).is_some()
    }

    /// Whether a text is one of them, or has one where it counts.
    pub fn finds(&self, text: &str) -> bool {
        let folded = Folded::new(text);
        self.kind_of(&folded.bytes).is_some()
            || (0..folded.bytes.len()).any(|at| self.at(text, &folded, at).is_some())
    }

    /// What the whole value is.
    pub fn kind(&self, value: &str) -> Option<ValueKind> {
        self.kind_of(&fold::key(value))
    }

    pub fn is_hidden(&self, value: &str) -> bool {
        self.kind(value).is_some_and(|kind| kind.in_text().is_some())
    }

    /// The text without them, if it has any.
    pub fn replaced(&self, text: &str) -> Option<String> {
        let folded = Folded::new(text);
        if let Some(kind) = self.kind_of(&folded.bytes) {
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
        let rest = &lower[at..];
        let behind = self.values.partition_point(|value| value.key.as_slice() <= rest);
        let mut next = behind.checked_sub(1);
        let closest = &self.values[next?].key;
        let common = closest.iter().zip(rest).take_while(|(one, other)| one == other).count();
        while let Some(value) = next.map(|at| &self.values[at]) {
            count_step();
            let length = value.key.len();
            if (2..=common).contains(&length) && counts(at + length) {
                return Some((length, value.kind));
            }
            next = value.begins_with;
        }
        None
    }

    /// The event without them, in names as in values. What the person has at a path stays there, also where
    /// somebody else has the same value.
    pub fn apply(&self, view: &EventView, subject: &Subject) -> EventView {
        let mut view = view.clone();
        for (name, node) in &mut view.fields {
            self.apply_to(node, &mut (*name).to_owned(), subject);
        }
        view
    }

    fn apply_to(&self, node: &mut Node, path: &mut String, subject: &Subject) {
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
            Node::Literal(_) | Node::Masked(_) | Node::Oversized(_) => {}
            Node::List(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    below(path, Step::Item(at), |path| self.apply_to(item, path, subject));
                }
            }
            Node::Object(members) => {
                for (name, value) in members {
                    below(path, Step::Member(name), |path| self.apply_to(value, path, subject));
                    if let Some(replaced) = self.replaced(name) {
                        *name = replaced;
                    }
                }
            }
        }
    }

    /// In their order, for tests and for a checker.
    pub fn all_hidden(&self) -> Vec<String> {
        let hidden = self.values.iter().filter(|value| value.kind.in_text().is_some());
        hidden.map(|value| String::from_utf8_lossy(&value.key).into_owned()).collect()
    }
}

/// Steps of a look-up, for the test that bounds them.
#[cfg(test)]
fn count_step() {
    tests::STEPS.set(tests::STEPS.get() + 1);
}

#[cfg(not(test))]
fn count_step() {}

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
    use std::cell::Cell;

    use super::*;

    thread_local! {
        pub(super) static STEPS: Cell<usize> = const { Cell::new(0) };
    }

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
        hidden.apply_to(&mut node, &mut "metadata".to_owned(), &Subject::default());
        let written =
            r#"{"[staff member]":true,"n":"[staff member]","in":[{"k":"by [staff member]"}],"m":9900171}"#;
        assert_eq!(node.to_json(), written);
    }

    /// As many values of one beginning as there are lengths, and a text that leads to the longest and leaves
    /// it.
    #[test]
    fn a_look_up_costs_at_most_the_bytes_of_a_value_however_many_there_are() {
        let nested = (1..=500).map(|length| ("a".repeat(length), ValueKind::Staff));
        let others = (0..20_000).map(|at| (format!("ab-{at:05}"), ValueKind::Other));
        let hidden = HiddenValues::new(nested.chain(others));
        for text in ["aaab".repeat(5_000), "ab-0".repeat(5_000), "a".repeat(20_000), "ä".repeat(10_000)] {
            STEPS.set(0);
            let _ = hidden.replaced(&text);
            assert!(STEPS.get() <= text.len() * 500, "{} steps", STEPS.get());
        }
        STEPS.set(0);
        let _ = hidden.replaced(&"ab-1 and nobody else".repeat(1_000));
        assert!(STEPS.get() <= 3_000, "{} steps", STEPS.get());
    }

    #[test]
    fn the_longest_value_is_found_among_many_that_begin_alike() {
        let hidden = values(&[
            ("abcdef", ValueKind::Staff),
            ("abcdefgh", ValueKind::Other),
            ("abcdefghzz", ValueKind::OtherPerson),
            ("abcdefgi", ValueKind::Own),
            ("b", ValueKind::Staff),
        ]);
        for (text, expected) in [
            ("abcdefghz", Some("[not disclosed]z")),
            ("abcdefghzz", Some("[another person]")),
            ("abcdefg", Some("[staff member]g")),
            ("xabcdefgix", None),
            ("abcde", None),
        ] {
            assert_eq!(hidden.replaced(text).as_deref(), expected, "{text}");
        }
    }
}
