//! Passwords that are tried first. Whoever guesses knows what people are asked for (length, digits, a
//! capital) and what they do then: a common word, a year, a row of the keyboard, the name of the account.
//!
//! A password is taken apart into such pieces. Each of them counts as one character, however long it is.

/// Fewer characters, with each known piece counted as one, are guessed.
const CHARACTERS_MIN: usize = 8;
/// Shorter words are parts of too many others.
const WORD_CHARACTERS_MIN: usize = 4;

const WORDS: &str = "\
    abcdef access account admin administrator andrea april audit august autumn banana baseball \
    basketball batman berlin changeme charlie cheese chocolate company computer cookie daniel december \
    default dragon february flower football freedom friday geheim ginger google guest hallo hello hockey \
    hunter iloveyou internet january jessica jordan killer letmein login london love manager march \
    master michael monday money monkey november october orange owner paris pass passwd password passwort \
    pepper pokemon princess private qwerty qwertz root saturday sealog secret secure server september \
    shadow soccer sommer spring starwars summer sunday sunshine superman test thomas trustno user \
    welcome whatever willkommen winter zaq12wsx";

/// The 10,000 most common passwords that have a letter and at least five characters, in their order: from the
/// lists of leaked passwords in zxcvbn (Dropbox, MIT licence).
const KNOWN: &str = include_str!("known_passwords.txt");
/// Characters around a known password that make it no better.
const AROUND_MAX: usize = 6;

/// Rows of keyboards, the alphabet and digits, along which fingers run.
const ROWS: [&str; 7] = [
    "abcdefghijklmnopqrstuvwxyz",
    "01234567890",
    "qwertyuiop",
    "qwertzuiop",
    "asdfghjkl",
    "zxcvbnm",
    "yxcvbnm",
];

/// Whether a password is one of the first that somebody tries. `about` is what they know of its owner: an
/// address of e-mail.
pub(crate) fn is_guessable(password: &str, about: &str) -> bool {
    let lower: Vec<char> = password.to_lowercase().chars().collect();
    let letters: Vec<char> = lower.iter().map(|character| without_leet(*character)).collect();
    if is_known(&lower) || is_known(&letters) {
        return true;
    }
    let own: Vec<String> = about
        .to_lowercase()
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| word.chars().count() >= WORD_CHARACTERS_MIN)
        .map(str::to_owned)
        .collect();
    let words: Vec<Vec<char>> = WORDS
        .split_whitespace()
        .chain(own.iter().map(String::as_str))
        .map(|word| word.chars().collect())
        .collect();
    let (mut at, mut characters) = (0, 0);
    while at < lower.len() {
        let word =
            words.iter().filter(|word| letters[at..].starts_with(word) || lower[at..].starts_with(word));
        let known = word.map(Vec::len).chain([run(&lower[at..])]).max().unwrap_or(1);
        at += known.max(1);
        characters += 1;
    }
    characters < CHARACTERS_MIN
}

/// Whether it is a known password, with a few digits or marks around it at most.
fn is_known(password: &[char]) -> bool {
    let whole: String = password.iter().collect();
    let core = whole.trim_matches(|character: char| !character.is_alphabetic());
    let around = password.len() - core.chars().count();
    let letters: String = core.chars().map(without_leet).collect();
    let is_listed = |text: &str| KNOWN.split_ascii_whitespace().any(|known| known == text);
    is_listed(&whole) || (around <= AROUND_MAX && (is_listed(core) || is_listed(&letters)))
}

/// How many characters run along a row, in either direction, repeat, or are the digits of a year or a date;
/// less than three are none.
fn run(characters: &[char]) -> usize {
    let digits = characters.iter().take_while(|character| character.is_ascii_digit()).count();
    let repeated = characters.iter().take_while(|character| **character == characters[0]).count();
    let rows = ROWS.iter().flat_map(|row| {
        let (forwards, backwards) = (row.chars().collect::<Vec<_>>(), row.chars().rev().collect::<Vec<_>>());
        [forwards, backwards]
    });
    let along = rows.filter_map(|row| {
        let begin = row.iter().position(|character| *character == characters[0])?;
        Some(row[begin..].iter().zip(characters).take_while(|(one, other)| one == other).count())
    });
    let longest = along.chain([repeated, digits.min(8)]).max().unwrap_or(0);
    if longest >= 3 { longest } else { 0 }
}

fn without_leet(character: char) -> char {
    match character {
        '0' => 'o',
        '1' | '!' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_first_is_guessable() {
        for password in [
            "password123456",
            "Password2026!",
            "P@ssw0rd2026!!",
            "Summer2026!!",
            "Winter-2026-ab",
            "qwertyuiop",
            "1234567890",
            "0987654321",
            "aaaaaaaaaaaa",
            "abcdefghijkl",
            "letmeinletmein",
            "iloveyou1234",
            "AdminAdmin123",
            "Sealog-2026!",
            "zaq12wsx1234",
            "Passwort12345",
            "31121999password",
            "1q2w3e4r5t6y",
            "MichaelJordan23",
            "Liverpool-1892",
            "!!m3tallica!!",
        ] {
            assert!(is_guessable(password, "ada@example.org"), "{password}");
        }
        assert!(is_guessable("lovelace1815!", "ada.lovelace@northwind.example"));
        assert!(is_guessable("Northwind2026", "ada.lovelace@northwind.example"));
    }

    #[test]
    fn words_that_have_nothing_to_do_with_each_other_are_not() {
        for password in [
            "correct horse battery",
            "a new and better one",
            "a long password",
            "not the password",
            "tr0ub4dor&3",
            "nXq7#vLp2w",
            "übergroße Mühle",
            "правильная лошадь",
        ] {
            assert!(!is_guessable(password, "ada@example.org"), "{password}");
        }
    }
}
