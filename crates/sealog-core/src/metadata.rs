//! The members of `metadata` as searches see them: names, and texts of scalar values.
//!
//! A search does not know whether `42` was sent as a number or as a string, so both have the same text. A
//! list matches by each of its items. Deeper values have no name.

use crate::json::{self, Items, Members};

/// Members of one event that an index takes. An event with more is looked into by every search for a member
/// instead: no action of the catalog names more than a third of this.
pub const INDEXED_MAX: usize = 32;

/// A member that `metadata` must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldIs {
    /// Canonical JSON text, with its quotes: what records hold.
    name: String,
    /// Canonical JSON text, without quotes.
    text: String,
}

impl FieldIs {
    pub fn new(name: &str, value: &str) -> FieldIs {
        FieldIs { name: quoted(name), text: text_of(&quoted(value)).unwrap_or_default().to_owned() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn matches(&self, metadata: Option<&str>) -> bool {
        metadata.is_some_and(|metadata| {
            scalars(metadata).any(|(name, text)| name == self.name && text == self.text)
        })
    }
}

/// The scalar members of canonical `metadata` and the scalar items of its lists, each with the name of its
/// member and its text. Of duplicate names both count. `null` is absent.
pub fn scalars(metadata: &str) -> impl Iterator<Item = (&str, &str)> {
    Members::of(metadata).flat_map(|(name, value)| {
        let items = Items::of(if value.starts_with('[') { value } else { "" });
        std::iter::once(value).chain(items).filter_map(text_of).map(move |text| (name, text))
    })
}

/// The members that are called so, each as canonical text. The name has its quotes.
pub fn named<'a>(metadata: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    Members::of(metadata).filter(move |(known, _)| *known == name).map(|(_, value)| value)
}

/// Shows an index the scalars of an event, up to [`INDEXED_MAX`]. False when there are more: then those that
/// were shown are not all.
pub fn index<'a>(metadata: Option<&'a str>, mut take: impl FnMut(&'a str, &'a str)) -> bool {
    let Some(metadata) = metadata else { return true };
    let mut left = INDEXED_MAX;
    let mut show = |name, text| {
        let Some(fewer) = left.checked_sub(1) else { return false };
        left = fewer;
        take(name, text);
        true
    };
    // What [`scalars`] gives, in loops of its own: every event that is sealed goes through here.
    for (name, value) in Members::of(metadata) {
        if let Some(text) = text_of(value) {
            if !show(name, text) {
                return false;
            }
        } else if value.starts_with('[') && !Items::of(value).filter_map(text_of).all(|text| show(name, text))
        {
            return false;
        }
    }
    true
}

/// The searchable text of a scalar: a string without its quotes, a number as it was sent.
pub fn text_of(value: &str) -> Option<&str> {
    match value.as_bytes().first()? {
        b'"' => value.get(1..value.len().checked_sub(1)?),
        b'{' | b'[' | b'n' => None,
        _ => Some(value),
    }
}

/// A text as canonical JSON, with its quotes.
pub fn quoted(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len() + 2);
    json::put_string(text, &mut out);
    json::into_text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"id":"OPS-1","n":42,"s":"42","f":1.0,"ok":true,"no":null,"tags":["a","b",3,["deep"],{"x":1}],"in":{"id":"inner"},"q\"k":"é\n","id":"second","empty":"","none":[]}"#;

    #[test]
    fn a_member_matches_by_its_text_whatever_its_type_and_a_list_by_each_item() {
        for (name, value) in [
            ("id", "OPS-1"),
            ("id", "second"),
            ("n", "42"),
            ("s", "42"),
            ("f", "1.0"),
            ("ok", "true"),
            ("tags", "a"),
            ("tags", "b"),
            ("tags", "3"),
            ("q\"k", "é\n"),
            ("empty", ""),
        ] {
            assert!(FieldIs::new(name, value).matches(Some(METADATA)), "{name}: {value}");
        }
        for (name, value) in [
            ("id", "OPS"),
            ("id", "inner"),
            ("f", "1"),
            ("no", "null"),
            ("no", ""),
            ("tags", "deep"),
            ("tags", "1"),
            ("none", ""),
            ("x", "1"),
            ("absent", "a"),
        ] {
            assert!(!FieldIs::new(name, value).matches(Some(METADATA)), "{name}: {value}");
        }
        assert!(!FieldIs::new("id", "OPS-1").matches(None));
    }

    #[test]
    fn an_index_is_shown_every_scalar_in_its_order() {
        for metadata in [METADATA, "{}", r#"{"a":[1,[2],null,"3"],"b":null,"c":{"d":1}}"#] {
            let mut shown = Vec::new();
            assert!(index(Some(metadata), |name, text| shown.push((name, text))));
            assert_eq!(shown, scalars(metadata).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_index_is_shown_a_bounded_number_of_members_and_told_when_there_are_more() {
        for count in [0, 1, INDEXED_MAX - 1, INDEXED_MAX, INDEXED_MAX + 1, 1000] {
            let members: Vec<String> = (0..count).map(|n| format!("\"k{n}\":{n}")).collect();
            let metadata = format!("{{{}}}", members.join(","));
            let mut shown = 0;
            let all = index(Some(&metadata), |_, _| shown += 1);
            assert_eq!((shown, all), (count.min(INDEXED_MAX), count <= INDEXED_MAX), "{count}");
        }
        assert!(index(None, |_, _| panic!("there is nothing to show")));
    }
}
