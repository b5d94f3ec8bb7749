//! Words of all pages, and the sections that have them. What one search costs is bounded by the size of the
//! index, however it is asked.

use std::collections::{BTreeMap, BTreeSet};

use crate::markdown::Section;

/// Of a search: what is longer is cut off.
pub(crate) const WORDS_CHARACTERS_MAX: usize = 100;
const WORDS_MAX: usize = 8;
const FOUND_MAX: usize = 20;

/// How much a word counts where it stands.
const IN_TITLE: u32 = 40;
const IN_HEADING: u32 = 15;
const IN_TEXT_MAX: u32 = 5;

/// Characters of a section's text that are shown around the first word.
const SHOWN: usize = 160;

#[derive(Debug, Default)]
pub(crate) struct Index {
    sections: Vec<Indexed>,
    /// Sections with a word, and what it counts there.
    words: BTreeMap<String, BTreeMap<usize, u32>>,
}

#[derive(Debug)]
struct Indexed {
    path: String,
    title: String,
    id: String,
    heading: String,
    text: String,
}

/// A place that a search has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub href: String,
    pub label: String,
    pub text: String,
}

impl Index {
    pub(crate) fn add(&mut self, path: &str, title: &str, sections: &[Section]) {
        for (number, section) in sections.iter().enumerate() {
            let at = self.sections.len();
            // The title counts for the beginning of its page, not for each of its sections.
            if number == 0 {
                self.count(title, at, |_| IN_TITLE);
            }
            self.count(&section.heading, at, |known| known + IN_HEADING);
            self.count(&section.text, at, |known| known + u32::from(known % IN_HEADING < IN_TEXT_MAX));
            self.sections.push(Indexed {
                path: path.to_owned(),
                title: title.to_owned(),
                id: section.id.clone(),
                heading: section.heading.clone(),
                text: section.text.split_whitespace().collect::<Vec<_>>().join(" "),
            });
        }
    }

    fn count(&mut self, text: &str, at: usize, counted: impl Fn(u32) -> u32) {
        for word in words(text) {
            let known = self.words.entry(word).or_default().entry(at).or_default();
            *known = counted(*known);
        }
    }

    /// Sections that have all words, or words that begin with them; the best ones first.
    pub(crate) fn find(&self, asked: &str) -> Vec<Found> {
        let asked: BTreeSet<String> = words(&cut(asked)).take(WORDS_MAX).collect();
        let mut scores: Option<BTreeMap<usize, u32>> = None;
        for word in &asked {
            let mut with_word = BTreeMap::<usize, u32>::new();
            let beginning = self.words.range(word.clone()..).take_while(|(known, _)| known.starts_with(word));
            for (known, places) in beginning {
                // The word itself is worth more than one that only begins with it.
                let factor = if known == word { 2 } else { 1 };
                for (at, counted) in places {
                    *with_word.entry(*at).or_default() += counted * factor;
                }
            }
            scores = Some(match scores {
                None => with_word,
                Some(before) => before
                    .into_iter()
                    .filter_map(|(at, score)| Some((at, score + with_word.get(&at)?)))
                    .collect(),
            });
        }
        let mut best: Vec<(usize, u32)> = scores.unwrap_or_default().into_iter().collect();
        best.sort_by_key(|(at, score)| (std::cmp::Reverse(*score), *at));
        best.truncate(FOUND_MAX);
        best.into_iter().map(|(at, _)| self.sections[at].found(&asked)).collect()
    }
}

impl Indexed {
    fn found(&self, asked: &BTreeSet<String>) -> Found {
        let Indexed { path, title, id, heading, text } = self;
        let is_title = heading.is_empty() || heading == title;
        let href = if is_title { format!("/docs/{path}") } else { format!("/docs/{path}#{id}") };
        let label = if is_title { title.clone() } else { format!("{title}: {heading}") };
        Found { href, label, text: around(text, asked) }
    }
}

/// The text around the first of the words, cut at characters.
fn around(text: &str, asked: &BTreeSet<String>) -> String {
    let lower = text.to_lowercase();
    // Lower case may have another length; then the place is off by a little, which does no harm.
    let at = asked.iter().filter_map(|word| lower.find(word.as_str())).min().unwrap_or(0);
    let skipped = text.char_indices().take_while(|(index, _)| index + 40 < at).count();
    let shown: String = text.chars().skip(skipped).take(SHOWN).collect();
    let before = if skipped > 0 { "… " } else { "" };
    let after = if text.chars().count() > skipped + SHOWN { " …" } else { "" };
    format!("{before}{}{after}", shown.trim())
}

fn cut(asked: &str) -> String {
    asked.chars().take(WORDS_CHARACTERS_MAX).collect()
}

/// Letters, digits and underscores that stand together, in lower case; `chain_seq` is also `chain` and `seq`.
fn words(text: &str) -> impl Iterator<Item = String> {
    let whole = text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
    whole.flat_map(|word| {
        let parts = word.split('_').filter(move |part| !part.is_empty() && *part != word);
        std::iter::once(word).chain(parts).map(str::to_lowercase).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> Index {
        let mut index = Index::default();
        let section = |heading: &str, text: &str| Section {
            id: heading.to_lowercase(),
            heading: heading.into(),
            level: 2,
            text: text.into(),
        };
        index.add(
            "a",
            "Apples",
            &[section("Apples", "red fruit"), section("Trees", "they carry apples, and chain_seq")],
        );
        index.add("b", "Pears", &[section("Pears", "not an apple; a fruit")]);
        index
    }

    fn hrefs(asked: &str) -> Vec<String> {
        index().find(asked).into_iter().map(|found| found.href).collect()
    }

    #[test]
    fn a_title_is_found_before_a_text_and_all_words_must_be_there() {
        assert_eq!(hrefs("apple"), ["/docs/a", "/docs/b", "/docs/a#trees"]);
        assert_eq!(hrefs("fruit apple"), ["/docs/a", "/docs/b"]);
        assert_eq!(hrefs("fruit trees"), Vec::<String>::new());
        assert_eq!(hrefs("SEQ"), ["/docs/a#trees"]);
        assert_eq!(hrefs("chain_seq"), ["/docs/a#trees"]);
        assert_eq!(hrefs(""), Vec::<String>::new());
        assert_eq!(hrefs("\"'<>%&"), Vec::<String>::new());
    }

    #[test]
    fn a_search_is_cut_to_100_characters_and_8_words_and_finds_at_most_20_places() {
        assert_eq!(hrefs(&format!("apple {} nothing", " ".repeat(200))), hrefs("apple"));
        // The ninth word would be nowhere.
        assert_eq!(hrefs("they carry apples and chain seq trees they x"), ["/docs/a#trees"]);
        assert_eq!(hrefs("they x"), Vec::<String>::new());
        let mut index = Index::default();
        for number in 0..50 {
            let section = Section { id: "x".into(), heading: "Word".into(), level: 1, text: String::new() };
            index.add(&number.to_string(), "Word", &[section]);
        }
        assert_eq!(index.find("word").len(), FOUND_MAX);
    }
}
