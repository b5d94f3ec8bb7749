//! Texts as they are compared: upper and lower case are the same in every script, and so are a letter with
//! its accent and the two written apart (Unicode's canonical caseless matching, with letters taken apart).

use unicode_normalization::char::{canonical_combining_class, decompose_canonical, is_combining_mark};

/// What two texts have in common that are the same to a reader.
pub fn key(text: &str) -> Vec<u8> {
    Folded::new(text).bytes
}

/// A text as it is compared, with the places in the text itself: folding changes lengths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folded {
    pub bytes: Vec<u8>,
    /// Of each byte, and of the end, the place at which its character begins in the text; [`INSIDE`] where it
    /// begins none. Nothing where both have the same places.
    places: Option<Vec<u32>>,
    length: usize,
}

const INSIDE: u32 = u32::MAX;

impl Folded {
    pub fn new(text: &str) -> Folded {
        if text.is_ascii() {
            return Folded {
                bytes: text.to_ascii_lowercase().into_bytes(),
                places: None,
                length: text.len(),
            };
        }
        let mut folding = Folding::default();
        for (at, character) in text.char_indices() {
            folding.put(at, character);
        }
        folding.end();
        let Folding { bytes, mut places, .. } = folding;
        places.push(place(text.len()));
        Folded { bytes, places: Some(places), length: text.len() }
    }

    /// Where in the text something begins, or ends, that does so here; nothing inside of a character with its
    /// accents.
    pub fn place(&self, at: usize) -> Option<usize> {
        match &self.places {
            None => Some(at).filter(|at| *at <= self.length),
            Some(places) => places.get(at).filter(|place| **place != INSIDE).map(|place| *place as usize),
        }
    }

    /// Characters, each with its accents, between two places of the folded text.
    pub fn characters(&self, from: usize, to: usize) -> usize {
        match &self.places {
            None => to.saturating_sub(from),
            Some(places) => places[from..to].iter().filter(|place| **place != INSIDE).count(),
        }
    }
}

/// Whether a character is part of a word, or of the one before it.
pub fn joins(character: char) -> bool {
    character.is_alphanumeric() || character == '_' || is_combining_mark(character)
}

fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(INSIDE)
}

#[derive(Default)]
struct Folding {
    bytes: Vec<u8>,
    places: Vec<u32>,
    /// A character and what is combined with it, each with its class, which orders it.
    open: Vec<(u8, char)>,
    begins: usize,
}

impl Folding {
    fn put(&mut self, at: usize, character: char) {
        if canonical_combining_class(character) == 0 {
            self.end();
            self.begins = at;
        }
        let open = &mut self.open;
        decompose_canonical(character, |part| open.push((canonical_combining_class(part), part)));
    }

    fn end(&mut self) {
        if self.open.is_empty() {
            return;
        }
        self.open.sort_by_key(|(class, _)| *class);
        self.places.push(place(self.begins));
        let begin = self.bytes.len();
        for (_, part) in self.open.drain(..) {
            put_without_case(part, &mut self.bytes);
        }
        self.places.resize(self.places.len() + self.bytes.len() - begin - 1, INSIDE);
    }
}

/// Through lower case, upper case and back: `ß` is `ss` then, as `ẞ` and `SS` are, and the two small sigmas
/// are one.
fn put_without_case(part: char, out: &mut Vec<u8>) {
    let mut put = |part: char| out.extend_from_slice(part.encode_utf8(&mut [0; 4]).as_bytes());
    match part {
        // Its capital is that of `i`, and it is another letter.
        'ı' => put(part),
        _ if part.is_ascii() => put(part.to_ascii_lowercase()),
        _ => part
            .to_lowercase()
            .flat_map(char::to_uppercase)
            .flat_map(char::to_lowercase)
            .for_each(|part| decompose_canonical(part, &mut put)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_same_whatever_their_case_and_however_accents_are_written() {
        for (one, other) in [
            ("USR_4821", "usr_4821"),
            ("JÜRGEN MÜLLER", "jürgen müller"),
            ("Ju\u{308}rgen", "Jürgen"),
            ("Straße", "STRASSE"),
            ("STRAẞE", "strasse"),
            ("ΣΊΣΥΦΟΣ", "Σίσυφος"),
            ("Łucja", "łUCJA"),
            ("ПЁТР", "пе\u{308}тр"),
            ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("q\u{307}\u{323}", "Q\u{323}\u{307}"),
            ("\u{212a}", "k"),
        ] {
            assert_eq!(key(one), key(other), "{one} {other}");
        }
        for (one, other) in [("Muller", "Müller"), ("ı", "i"), ("a", "b"), ("ss", "s")] {
            assert_ne!(key(one), key(other), "{one} {other}");
        }
    }

    #[test]
    fn places_lead_back_to_the_text_and_never_into_a_character() {
        let text = "a\u{308}ßb";
        let folded = Folded::new(text);
        assert_eq!(folded.bytes, "a\u{308}ssb".as_bytes());
        let places: Vec<Option<usize>> = (0..=folded.bytes.len()).map(|at| folded.place(at)).collect();
        assert_eq!(places, [Some(0), None, None, Some(3), None, Some(5), Some(6)]);
        assert_eq!(folded.characters(0, folded.bytes.len()), 3);
        assert_eq!((Folded::new("abc").place(3), Folded::new("abc").place(4)), (Some(3), None));
    }
}
