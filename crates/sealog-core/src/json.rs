//! A JSON scanner that writes canonical text.
//!
//! Why not a JSON library: an event is evidence, so `metadata` must come back as it was sent. Every value
//! type loses something (`1.0`, duplicate keys, lone surrogates, big integers) and every recursive parser has
//! a depth at which it gives up or crashes. This one keeps the client's own tokens, needs no recursion, and
//! takes one pass over the text. `docs/format.md` has the rule that it follows.

use std::ops::Range;

use crate::hex;
use crate::steps;

/// Where and why a text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonError {
    pub offset: usize,
    pub problem: &'static str,
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}", self.problem, self.offset)
    }
}

impl std::error::Error for JsonError {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Object,
    Array,
    String,
    Number,
    True,
    False,
    Null,
}

const NO_KEY: &str = "expected a key in double quotes";
const NO_COLON: &str = "expected ':'";

/// Takes the canonical text piece by piece.
pub trait Sink {
    fn put(&mut self, piece: &[u8]);

    /// How much it has taken; nothing if it does not keep it.
    fn taken(&self) -> usize {
        0
    }
}

impl Sink for Vec<u8> {
    fn put(&mut self, piece: &[u8]) {
        self.extend_from_slice(piece);
    }

    fn taken(&self) -> usize {
        self.len()
    }
}

/// Checks without keeping anything.
#[derive(Debug)]
pub struct Discard;

impl Sink for Discard {
    fn put(&mut self, _piece: &[u8]) {}
}

/// A position in a JSON text. The text is known to be UTF-8, so bytes from 0x80 on need no further check.
#[derive(Debug)]
pub struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// From here to `at` the canonical text is the client's own and has not been written yet: most values are
    /// one copy.
    kept: usize,
    /// One entry for each open bracket inside [`Scanner::value`]: true for an object. Kept here so that its
    /// memory is used again.
    open: Vec<bool>,
    /// An escape was met.
    escaped: bool,
    watch: Watch,
}

/// Finds members of an object while it is scanned.
#[derive(Debug)]
struct Watch {
    names: &'static [&'static str],
    /// Bit n is set if a name has n bytes: most keys are ruled out by their length.
    lengths: u64,
    /// The member whose value is being scanned: number of its name, and where the value begins in the
    /// canonical text.
    inside: Option<(usize, usize)>,
    found: Vec<(usize, Range<usize>)>,
    /// A key was spelled with escapes, and may be any.
    escaped_key: bool,
}

/// Members of the last value that have a watched name.
#[derive(Debug)]
pub enum Watched<'s> {
    /// Numbers of the names, and the places of their values in the sink; of duplicate names the last one.
    Found(&'s [(usize, Range<usize>)]),
    /// Keys with escapes were not looked at.
    Unknown,
}

impl<'a> Scanner<'a> {
    pub fn new(text: &'a str) -> Scanner<'a> {
        Scanner::watching(text, &[])
    }

    /// A scanner that finds the members of an object with one of these names: [`Scanner::watched`]. Names
    /// need no escapes and have less than 64 bytes.
    pub fn watching(text: &'a str, names: &'static [&'static str]) -> Scanner<'a> {
        let lengths = names.iter().fold(0, |lengths, name| lengths | 1 << name.len());
        let watch = Watch { names, lengths, inside: None, found: Vec::new(), escaped_key: false };
        Scanner { text: text.as_bytes(), at: 0, kept: 0, open: Vec::new(), escaped: false, watch }
    }

    /// The watched members of the last value: its own, not those of values inside it.
    pub fn watched(&self) -> Watched<'_> {
        if self.watch.escaped_key { Watched::Unknown } else { Watched::Found(&self.watch.found) }
    }

    pub fn offset(&self) -> usize {
        self.at
    }

    /// The next byte that is not white space, without taking it.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.text.get(self.at) {
            steps::count(1);
            if !matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Succeeds when nothing but white space is left.
    pub fn end(&mut self) -> Result<(), JsonError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => self.fail("more text after the value"),
        }
    }

    pub fn begin_object(&mut self) -> Result<(), JsonError> {
        self.expect(b'{', "expected an object")
    }

    pub fn begin_array(&mut self) -> Result<(), JsonError> {
        self.expect(b'[', "expected an array")
    }

    /// Inside an object: the next key as canonical text in `key`, quotes included, or false behind the last
    /// member.
    pub fn next_key(&mut self, first: &mut bool, key: &mut Vec<u8>) -> Result<bool, JsonError> {
        key.clear();
        match self.peek() {
            Some(b'}') => {
                self.at += 1;
                return Ok(false);
            }
            Some(b',') if !*first => self.at += 1,
            Some(b'"') if *first => {}
            _ => return self.fail("expected ',' or '}'"),
        }
        *first = false;
        if self.peek() != Some(b'"') {
            return self.fail(NO_KEY);
        }
        self.kept = self.at;
        self.string(key)?;
        self.flush(key);
        self.expect(b':', NO_COLON)?;
        Ok(true)
    }

    /// Inside an array: whether another item follows.
    pub fn next_item(&mut self, first: &mut bool) -> Result<bool, JsonError> {
        match self.peek() {
            Some(b']') => {
                self.at += 1;
                // `[1,]` was refused when the comma was taken, below.
                Ok(false)
            }
            Some(b',') if !*first => {
                self.at += 1;
                if self.peek() == Some(b']') {
                    return self.fail("expected a value");
                }
                Ok(true)
            }
            Some(_) if *first => {
                *first = false;
                Ok(true)
            }
            _ => self.fail("expected ',' or ']'"),
        }
    }

    /// Takes one value of any kind and writes its canonical text.
    pub fn value<S: Sink>(&mut self, out: &mut S) -> Result<Kind, JsonError> {
        self.open.clear();
        self.watch.inside = None;
        self.watch.found.clear();
        self.watch.escaped_key = false;
        self.peek();
        self.kept = self.at;
        let mut outermost = None;
        loop {
            let kind = self.scalar_or_open(out)?;
            outermost.get_or_insert(kind);
            // A value is complete here, unless a bracket has just been opened on a non-empty object or array.
            if self.just_opened(kind, out)? {
                continue;
            }
            if !self.close_or_continue(out)? {
                self.flush(out);
                return Ok(outermost.unwrap_or(kind));
            }
        }
    }

    /// Writes what was kept.
    fn flush<S: Sink>(&mut self, out: &mut S) {
        out.put(&self.text[self.kept..self.at]);
        self.kept = self.at;
    }

    /// As [`Scanner::peek`], inside a value: white space is left out of the canonical text.
    fn peek_inside<S: Sink>(&mut self, out: &mut S) -> Option<u8> {
        let next = *self.text.get(self.at)?;
        if !matches!(next, b' ' | b'\t' | b'\n' | b'\r') {
            return Some(next);
        }
        self.flush(out);
        let next = self.peek();
        self.kept = self.at;
        next
    }

    /// Takes a scalar, or the opening bracket of an object or array.
    fn scalar_or_open<S: Sink>(&mut self, out: &mut S) -> Result<Kind, JsonError> {
        steps::count(1);
        match self.peek_inside(out) {
            Some(b'"') => self.string(out).map(|()| Kind::String),
            Some(b'{') => {
                self.at += 1;
                Ok(Kind::Object)
            }
            Some(b'[') => {
                self.at += 1;
                Ok(Kind::Array)
            }
            Some(b'-' | b'0'..=b'9') => self.number().map(|()| Kind::Number),
            Some(b't') => self.literal(b"true").map(|()| Kind::True),
            Some(b'f') => self.literal(b"false").map(|()| Kind::False),
            Some(b'n') => self.literal(b"null").map(|()| Kind::Null),
            Some(_) => self.fail("expected a value"),
            None => self.fail("the text ends where a value is expected"),
        }
    }

    /// After an opening bracket: true when a first value is to come, false when the brackets close at once.
    fn just_opened<S: Sink>(&mut self, kind: Kind, out: &mut S) -> Result<bool, JsonError> {
        let (in_object, closing) = match kind {
            Kind::Object => (true, b'}'),
            Kind::Array => (false, b']'),
            _ => return Ok(false),
        };
        if self.peek_inside(out) == Some(closing) {
            self.at += 1;
            return Ok(false);
        }
        self.open.push(in_object);
        if in_object {
            self.key(out)?;
        }
        Ok(true)
    }

    /// After a complete value: closes what closes here. True when another value is to come, false when the
    /// outermost one is complete.
    fn close_or_continue<S: Sink>(&mut self, out: &mut S) -> Result<bool, JsonError> {
        while let Some(&in_object) = self.open.last() {
            steps::count(1);
            if self.open.len() == 1
                && let Some((number, from)) = self.watch.inside.take()
            {
                let value = from..self.canonical_len(out);
                match self.watch.found.iter_mut().find(|(found, _)| *found == number) {
                    Some((_, earlier)) => *earlier = value,
                    None => self.watch.found.push((number, value)),
                }
            }
            match (self.peek_inside(out), in_object) {
                (Some(b','), _) => {
                    self.at += 1;
                    if in_object {
                        self.key(out)?;
                    }
                    return Ok(true);
                }
                (Some(b'}'), true) | (Some(b']'), false) => self.at += 1,
                (_, true) => return self.fail("expected ',' or '}'"),
                (_, false) => return self.fail("expected ',' or ']'"),
            }
            self.open.pop();
        }
        Ok(false)
    }

    /// A key and its colon, inside a value.
    fn key<S: Sink>(&mut self, out: &mut S) -> Result<(), JsonError> {
        if self.peek_inside(out) != Some(b'"') {
            return self.fail(NO_KEY);
        }
        let from = self.at + 1;
        self.escaped = false;
        self.string(out)?;
        let key = from..self.at - 1;
        if self.peek_inside(out) != Some(b':') {
            return self.fail(NO_COLON);
        }
        self.at += 1;
        if self.open.len() == 1 && self.watch.lengths != 0 {
            let key = &self.text[key];
            if self.watch.lengths >> key.len().min(63) & 1 != 0 {
                steps::count(self.watch.names.len());
                let number = self.watch.names.iter().position(|name| name.as_bytes() == key);
                self.watch.inside = number.map(|number| (number, self.canonical_len(out)));
            }
            self.watch.escaped_key |= self.escaped;
        }
        Ok(())
    }

    /// How long the canonical text is up to here.
    fn canonical_len<S: Sink>(&self, out: &S) -> usize {
        out.taken() + self.at - self.kept
    }

    /// A string. It is kept, but for escapes that have another spelling in canonical text.
    fn string<S: Sink>(&mut self, out: &mut S) -> Result<(), JsonError> {
        self.at += 1;
        loop {
            self.at += plain_run(&self.text[self.at..]);
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape(out)?,
                Some(_) => return self.fail("a string contains an unescaped control character"),
                None => return self.fail("unterminated string"),
            }
        }
    }

    /// Takes an escape and sees to it that its one canonical spelling is written.
    fn escape<S: Sink>(&mut self, out: &mut S) -> Result<(), JsonError> {
        self.escaped = true;
        let Some(&letter) = self.text.get(self.at + 1) else {
            return self.fail("unterminated string");
        };
        match letter {
            b'"' | b'\\' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 2,
            b'/' => {
                self.flush(out);
                out.put(b"/");
                self.at += 2;
                self.kept = self.at;
            }
            b'u' => {
                let unit = self.hex4(self.at + 2)?;
                self.flush(out);
                self.at += 6;
                let partner = match unit {
                    0xD800..=0xDBFF if self.text[self.at..].starts_with(b"\\u") => {
                        Some(self.hex4(self.at + 2)?).filter(|low| (0xDC00..=0xDFFF).contains(low))
                    }
                    _ => None,
                };
                let scalar = match partner {
                    Some(low) => {
                        self.at += 6;
                        0x10000 + ((u32::from(unit) - 0xD800) << 10) + (u32::from(low) - 0xDC00)
                    }
                    None => u32::from(unit),
                };
                match char::from_u32(scalar) {
                    Some(character) => put_char(character, out),
                    // Half of a pair has no UTF-8: it can only stay an escape.
                    None => put_unicode_escape(unit, out),
                }
                self.kept = self.at;
            }
            _ => return self.fail("an unknown escape"),
        }
        Ok(())
    }

    fn hex4(&self, at: usize) -> Result<u16, JsonError> {
        let bad = JsonError { offset: at, problem: "\\u needs four hex digits" };
        let digits = self.text.get(at..at + 4).ok_or(bad)?;
        digits
            .iter()
            .try_fold(0u16, |unit, &digit| Some(unit << 4 | u16::from(hex::digit(digit)?)))
            .ok_or(bad)
    }

    fn number(&mut self) -> Result<(), JsonError> {
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        if self.text.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if count == 0 {
            return self.fail("a number lacks a digit");
        }
        self.at += count;
        Ok(())
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail("expected a value");
        }
        self.at += word.len();
        Ok(())
    }

    fn expect(&mut self, byte: u8, problem: &'static str) -> Result<(), JsonError> {
        if self.peek() != Some(byte) {
            return self.fail(problem);
        }
        self.at += 1;
        Ok(())
    }

    fn fail<T>(&self, problem: &'static str) -> Result<T, JsonError> {
        Err(JsonError { offset: self.at, problem })
    }
}

/// The canonical text of a whole JSON text.
pub fn canonical(text: &str) -> Result<String, JsonError> {
    let mut scanner = Scanner::new(text);
    let mut out = Vec::with_capacity(text.len());
    scanner.value(&mut out)?;
    scanner.end()?;
    Ok(into_text(out))
}

/// The canonical text of a decoded string, quotes included.
pub fn put_string<S: Sink>(value: &str, out: &mut S) {
    out.put(b"\"");
    let mut from = 0;
    for (at, byte) in value.bytes().enumerate() {
        if byte < 0x20 || byte == b'"' || byte == b'\\' {
            out.put(&value.as_bytes()[from..at]);
            put_char(char::from(byte), out);
            from = at + 1;
        }
    }
    out.put(&value.as_bytes()[from..]);
    out.put(b"\"");
}

/// A string as canonical text, with its quotes.
pub fn quoted(value: &str) -> String {
    let mut out = Vec::with_capacity(value.len() + 2);
    put_string(value, &mut out);
    into_text(out)
}

/// As [`into_text`], of what stays where it is.
pub(crate) fn as_text(canonical: &[u8]) -> &str {
    std::str::from_utf8(canonical).expect("the scanner copies whole characters")
}

/// What [`Scanner`] wrote is pieces of UTF-8 text and ASCII, so it is UTF-8.
pub(crate) fn into_text(canonical: Vec<u8>) -> String {
    String::from_utf8(canonical).expect("the scanner copies whole characters")
}

fn put_char<S: Sink>(character: char, out: &mut S) {
    match character {
        '"' => out.put(b"\\\""),
        '\\' => out.put(b"\\\\"),
        '\u{8}' => out.put(b"\\b"),
        '\u{c}' => out.put(b"\\f"),
        '\n' => out.put(b"\\n"),
        '\r' => out.put(b"\\r"),
        '\t' => out.put(b"\\t"),
        '\0'..='\u{1f}' => put_unicode_escape(character as u16, out),
        _ => out.put(character.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn put_unicode_escape<S: Sink>(unit: u16, out: &mut S) {
    out.put(format!("\\u{unit:04x}").as_bytes());
}

/// A string value in canonical text, seen without decoding it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StringFacts {
    /// Length in Unicode scalar values; a lone surrogate counts as one.
    pub scalars: usize,
    pub has_nul: bool,
    pub has_lone_surrogate: bool,
}

impl StringFacts {
    /// `canonical` has its quotes.
    pub fn of(canonical: &[u8]) -> StringFacts {
        let mut facts = StringFacts { scalars: 0, has_nul: false, has_lone_surrogate: false };
        let mut rest = &canonical[1..canonical.len() - 1];
        // Nearly every string of an event is like this.
        if rest.is_ascii() && !rest.contains(&b'\\') {
            facts.scalars = rest.len();
            return facts;
        }
        while let Some(&byte) = rest.first() {
            let step = match (byte, rest.get(1)) {
                (b'\\', Some(b'u')) => {
                    // Canonical text has `\u` only for control characters and lone surrogates.
                    facts.has_nul |= rest.starts_with(b"\\u0000");
                    facts.has_lone_surrogate |= rest.get(2) == Some(&b'd');
                    6
                }
                (b'\\', _) => 2,
                _ => 1,
            };
            // Continuation bytes of a character are not counted.
            facts.scalars += usize::from(byte & 0xC0 != 0x80);
            rest = &rest[step..];
        }
        facts
    }
}

/// The value of a canonical string, or nothing where a lone surrogate keeps it from being text.
pub fn decode(canonical: &str) -> Option<String> {
    let inner = canonical.strip_prefix('"')?.strip_suffix('"')?;
    if !inner.contains('\\') {
        return Some(inner.to_owned());
    }
    let mut value = String::with_capacity(inner.len());
    let mut rest = inner;
    while let Some(at) = rest.find('\\') {
        value.push_str(&rest[..at]);
        let (character, length) = match rest.as_bytes().get(at + 1)? {
            b'b' => ('\u{8}', 2),
            b'f' => ('\u{c}', 2),
            b'n' => ('\n', 2),
            b'r' => ('\r', 2),
            b't' => ('\t', 2),
            b'u' => (char::from_u32(u32::from_str_radix(rest.get(at + 2..at + 6)?, 16).ok()?)?, 6),
            other => (char::from(*other), 2),
        };
        value.push(character);
        rest = rest.get(at + length..)?;
    }
    value.push_str(rest);
    Some(value)
}

/// The members of an object in canonical text: each key with its quotes, and the text of its value.
#[derive(Clone, Debug)]
pub struct Members<'a> {
    /// From the next key on.
    rest: &'a str,
}

impl<'a> Members<'a> {
    pub fn of(canonical_object: &'a str) -> Members<'a> {
        Members { rest: canonical_object.strip_prefix('{').unwrap_or_default() }
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        if !self.rest.starts_with('"') {
            return None;
        }
        let (key, rest) = self.rest.split_at(string_len(self.rest.as_bytes())?);
        let rest = rest.strip_prefix(':')?;
        let (value, rest) = rest.split_at(value_len(rest)?);
        self.rest = rest.strip_prefix(',').unwrap_or_default();
        Some((key, value))
    }
}

/// The items of a canonical array, each as canonical text.
#[derive(Clone, Debug)]
pub struct Items<'a> {
    /// From the next item on.
    rest: &'a str,
}

impl<'a> Items<'a> {
    pub fn of(canonical_array: &'a str) -> Items<'a> {
        Items { rest: canonical_array.strip_prefix('[').unwrap_or_default() }
    }
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.rest.starts_with(']') {
            return None;
        }
        let (item, rest) = self.rest.split_at(value_len(self.rest)?);
        self.rest = rest.strip_prefix(',').unwrap_or_default();
        Some(item)
    }
}

/// How many bytes stand for themselves in a string before a quote, an escape or a control character, eight at
/// a time.
fn plain_run(bytes: &[u8]) -> usize {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    // The lowest bit that is set marks the first byte below `limit`; those above it may be set by a borrow.
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word & HIGH;
    let mut chunks = bytes.chunks_exact(8);
    let mut at = 0;
    for chunk in &mut chunks {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        let found = below(word, 0x20)
            | below(word ^ (ONES * u64::from(b'"')), 1)
            | below(word ^ (ONES * u64::from(b'\\')), 1);
        steps::count(1);
        if found != 0 {
            return at + found.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    let rest = chunks.remainder();
    steps::count(1);
    let ends = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    at + rest.iter().position(ends).unwrap_or(rest.len())
}

/// Length of the canonical string that `text` begins with.
pub(crate) fn string_len(bytes: &[u8]) -> Option<usize> {
    let mut at = 1;
    loop {
        at += plain_run(bytes.get(at..)?);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// Length of the canonical value that `text` begins with.
pub(crate) fn value_len(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    loop {
        steps::count(1);
        match bytes.get(at)? {
            b'"' => at += string_len(&bytes[at..])?,
            b'{' | b'[' => {
                depth += 1;
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.checked_sub(1)?;
                at += 1;
            }
            b',' | b':' => at += 1,
            _ => {
                at += bytes[at..]
                    .iter()
                    .position(|byte| matches!(byte, b',' | b'}' | b']'))
                    .unwrap_or(bytes.len() - at)
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_at_the_first_quote_escape_or_control_character_wherever_it_stands() {
        for ending in 0..=255u8 {
            for neighbour in [b'a', 0x20, 0x21, 0x7f, 0x80, 0xff, b'#', b'[', b']'] {
                for at in 0..20 {
                    let mut bytes = [neighbour; 20];
                    bytes[at] = ending;
                    let ends = ending < 0x20 || ending == b'"' || ending == b'\\';
                    assert_eq!(plain_run(&bytes), if ends { at } else { 20 }, "{ending} {neighbour} {at}");
                }
            }
        }
    }

    #[track_caller]
    fn becomes(text: &str, expected: &str) {
        assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        assert_eq!(canonical(expected).as_deref(), Ok(expected), "not idempotent: {expected}");
    }

    #[test]
    fn white_space_outside_strings_is_removed_and_kept_inside() {
        becomes(" { \"a b\" :\t[ 1 ,\r\n 2 ] , \"c\" : { } , \"d\":[ ] } ", r#"{"a b":[1,2],"c":{},"d":[]}"#);
    }

    #[test]
    fn numbers_keep_their_literal() {
        for literal in ["0", "-0", "1.0", "1e5", "1E+400", "12345678901234567890", "0.10", "-1.5e-07", "0e0"]
        {
            becomes(literal, literal);
        }
    }

    #[test]
    fn strings_are_escaped_minimally() {
        becomes(r#""\u00e9\/\u0041""#, "\"é/A\"");
        becomes(r#""\u0022\u005c\u0008\u000c\u000a\u000d\u0009""#, r#""\"\\\b\f\n\r\t""#);
        becomes(r#""\u0000\u001F\u007f\u2028""#, "\"\\u0000\\u001f\u{7f}\u{2028}\"");
        becomes(r#""\ud83d\ude00\uD83D\uDE00""#, "\"😀😀\"");
    }

    #[test]
    fn a_lone_surrogate_stays_an_escape_in_lower_case() {
        becomes(r#""\uD800""#, r#""\ud800""#);
        becomes(r#""\uDC00x""#, r#""\udc00x""#);
        becomes(r#""\ud83d\uD83D\ude00""#, "\"\\ud83d😀\"");
        becomes(r#""\ud83d\u0041""#, r#""\ud83dA""#);
        becomes(r#""\ud83d\n""#, r#""\ud83d\n""#);
    }

    #[test]
    fn keys_keep_order_and_duplicates() {
        becomes(r#"{"b":1,"a":2,"b":3,"\u0061":4}"#, r#"{"b":1,"a":2,"b":3,"a":4}"#);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "}",
            "[",
            "]",
            "[1,]",
            "[,1]",
            "{,}",
            "{\"a\":1,}",
            "{\"a\"}",
            "{\"a\":}",
            "{a:1}",
            "{1:2}",
            "[1 2]",
            "[1}",
            "{\"a\":1]",
            "01",
            "-",
            "+1",
            "1.",
            ".5",
            "1e",
            "1e+",
            "--1",
            "0x1",
            "NaN",
            "Infinity",
            "tru",
            "nul",
            "True",
            "'a'",
            "\"",
            "\"\\\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\u12g4\"",
            "\"\\ud800\\u\"",
            "\"\\ud800\\uzzzz\"",
            "\"\n\"",
            "\"\u{1}\"",
            "\u{feff}1",
            "1 1",
            "{} {}",
            "[1]]",
            "\u{a0}1",
            "//",
            "[1/**/]",
            "-01",
            "\0",
        ] {
            assert!(canonical(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn depth_and_width_have_no_limit_but_the_body() {
        let deep = "[".repeat(120_000) + &"]".repeat(120_000);
        becomes(&deep, &deep);
        let mixed = "{\"a\":[".repeat(60_000) + "1" + &"]}".repeat(60_000);
        becomes(&mixed, &mixed);
        let wide =
            format!("{{{}}}", (0..60_000).map(|n| format!("\"k{n}\":{n}")).collect::<Vec<_>>().join(","));
        becomes(&wide, &wide);
        assert_eq!(Members::of(&wide).count(), 60_000);
        assert_eq!(value_len(&deep), Some(deep.len()));
        assert!(canonical(&"[".repeat(120_000)).is_err());
    }

    #[test]
    fn members_are_cut_out_of_canonical_text() {
        let text = r#"{"a":1,"b":{"x":[1,"}"]},"c\"d":"e,\"f","g":[],"h":null}"#;
        let members: Vec<_> = Members::of(text).collect();
        assert_eq!(
            members,
            [
                ("\"a\"", "1"),
                ("\"b\"", r#"{"x":[1,"}"]}"#),
                (r#""c\"d""#, r#""e,\"f""#),
                ("\"g\"", "[]"),
                ("\"h\"", "null")
            ]
        );
        assert_eq!(Members::of("{}").count(), 0);
    }

    #[test]
    fn strings_are_counted_in_scalar_values() {
        let facts = |text: &str| StringFacts::of(canonical(text).unwrap().as_bytes());
        assert_eq!(facts(r#""aé😀\u0001\n\"""#).scalars, 6);
        assert!(facts(r#""\u0000""#).has_nul);
        assert!(!facts(r#""\\u0000""#).has_nul);
        assert!(facts(r#""\ud800""#).has_lone_surrogate);
        assert!(!facts(r#""\\ud800""#).has_lone_surrogate);
        assert_eq!(facts("\"\"").scalars, 0);
    }

    #[test]
    fn decoding_undoes_putting() {
        for value in ["", "plain", "q\"b\\s/", "\0\u{1}\u{8}\u{c}\n\r\t\u{1f}\u{7f}", "é😀"] {
            let mut text = Vec::new();
            put_string(value, &mut text);
            let text = String::from_utf8(text).unwrap();
            assert_eq!(canonical(&text).as_deref(), Ok(text.as_str()));
            assert_eq!(decode(&text).as_deref(), Some(value));
        }
        assert_eq!(decode(r#""\ud800""#), None);
    }
}
