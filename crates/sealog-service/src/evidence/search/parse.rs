//! From what was typed to terms. Pure: the same text always gives the same terms, or says where it is wrong
//! and what would be right.
//!
//! ```text
//! query  = term { space term }
//! term   = [ "-" ] ( field ":" value | '"' text '"' | "#" numbers | word )
//! value  = '"' text '"' | anything without spaces
//! ```
//! A word is a text; one that identifies an event (a `log_id`, a hash) also finds that event.
//! Inside quotes `\"` and `\\` stand for a quote and a backslash, and nothing else is special: no `*`, no
//! `>`.

use std::ops::Range;

use sealog_core::catalog::Catalog;
use sealog_core::event::{FIELDS, Field, FieldId};
use sealog_core::id::{Hash, Ulid};
use sealog_core::time::{Date, parse_rfc3339_ms};

use super::number::Number;
use super::term::{Comparison, Condition, Level, MetaTest, Missing, Named, Network, Pattern, Severity, Term};

/// A page's address has to hold it.
pub const QUERY_BYTES_MAX: usize = 2000;
/// Each is held against every event that is looked at.
pub const TERMS_MAX: usize = 32;
/// A hundred years.
const LAST_DAYS_MAX: u64 = 36_525;
const MINUTE_MS: u64 = 60_000;
/// Meanings that are offered for a term that is wrong.
const MEANINGS_MAX: usize = 3;

/// What can be asked for beside the fields that are compared as text. `meta.` is followed by a name.
const OTHERS: [(&str, &str); 9] = [
    ("framework:", "pci_dss"),
    ("severity:", "critical or >=warning"),
    ("ip:", "203.0.113.0/24"),
    ("seq:", "1000..2000"),
    ("meta.", "ticket_id:OPS-1 or amount:>1000"),
    ("from:", "2026-10-01"),
    ("to:", "2026-10-31"),
    ("last:", "30m, 24h or 7d"),
    ("missing:", "actor"),
];

/// What else people call a field.
const ALIASES: [(&str, &str); 12] = [
    ("user", "actor"),
    ("who", "actor"),
    ("actor_id", "actor"),
    ("event", "action"),
    ("level", "severity"),
    ("ip_address", "ip"),
    ("session_id", "session"),
    ("number", "seq"),
    ("since", "from"),
    ("after", "from"),
    ("until", "to"),
    ("before", "to"),
];
const LEVELS: [&str; 3] = ["info", "warning", "critical"];

/// Everything that can be asked for, with an example of a value.
pub fn fields() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().filter_map(|field| field.search).chain(OTHERS)
}

/// What was typed, understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pub terms: Vec<Term>,
}

/// Where it is wrong, in bytes of the text, and what is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    pub at: Range<usize>,
    pub problem: String,
    /// The whole term.
    pub term: Range<usize>,
    /// Terms that may have been meant, the nearest first.
    pub meanings: Vec<String>,
}

impl ParseError {
    /// For people: the place is counted in characters, from 1.
    pub fn explain(&self, text: &str) -> String {
        let before = text.get(..self.at.start).map_or(0, |before| before.chars().count());
        let meaning = self.meanings.first().map(|meaning| format!(" Did you mean {meaning}?"));
        format!("At character {}: {}{}", before + 1, self.problem, meaning.unwrap_or_default())
    }
}

impl Query {
    /// All of it, or what is wrong first.
    pub fn parse(text: &str) -> Result<Query, ParseError> {
        let (query, wrong) = Query::read(text);
        wrong.into_iter().next().map_or(Ok(query), Err)
    }

    /// The terms that are right, and what is wrong with the others.
    pub fn read(text: &str) -> (Query, Vec<ParseError>) {
        let (query, mut wrong) = Query::scan(text);
        for error in &mut wrong {
            error.meanings = meanings(&text[error.term.clone()]);
        }
        (query, wrong)
    }

    fn scan(text: &str) -> (Query, Vec<ParseError>) {
        let error = |at: Range<usize>, problem: String| ParseError {
            term: at.clone(),
            at,
            problem,
            meanings: Vec::new(),
        };
        let (mut query, mut wrong) = (Query::default(), Vec::new());
        if text.len() > QUERY_BYTES_MAX {
            let end = (0..=QUERY_BYTES_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let problem = format!("a search has at most {QUERY_BYTES_MAX} bytes.");
            return (query, vec![ParseError { term: 0..text.len(), ..error(end..text.len(), problem) }]);
        }
        let mut scanner = Scanner { text, at: 0 };
        loop {
            let read = scanner.term();
            let start = match &read {
                Ok(None) => return (query, wrong),
                Ok(Some(term)) => term.at.start,
                Err((start, ..)) => *start,
            };
            if query.terms.len() + wrong.len() == TERMS_MAX {
                wrong.push(error(start..text.len(), format!("a search has at most {TERMS_MAX} terms.")));
                return (query, wrong);
            }
            match read {
                Ok(None) => {}
                Ok(Some(term)) => match query.contradicted_by(&term) {
                    Some(problem) => wrong.push(error(term.at, problem.into())),
                    None => query.terms.push(term),
                },
                Err((_, at, problem)) => {
                    scanner.at = scanner.at.max(at.end);
                    scanner.at += scanner.word().len();
                    wrong.push(ParseError { term: start..scanner.at, ..error(at, problem) });
                }
            }
        }
    }

    /// Times are one window, not several.
    fn contradicted_by(&self, new: &Term) -> Option<&'static str> {
        let has = |is: fn(&Condition) -> bool| self.terms.iter().any(|term| is(&term.condition));
        let (has_from, has_until, has_last) = (
            has(|condition| matches!(condition, Condition::From(_))),
            has(|condition| matches!(condition, Condition::Until(_))),
            has(|condition| matches!(condition, Condition::Last(_))),
        );
        match new.condition {
            Condition::From(_) | Condition::Until(_) | Condition::Last(_) if new.is_excluded => {
                Some("a time cannot be excluded; remove the minus.")
            }
            Condition::From(_) if has_from => Some("from: appears twice; keep one."),
            Condition::Until(_) if has_until => Some("to: appears twice; keep one."),
            Condition::Last(_) if has_last => Some("last: appears twice; keep one."),
            Condition::From(_) | Condition::Until(_) if has_last => {
                Some("use either last: or from: and to:, not both.")
            }
            Condition::Last(_) if has_from || has_until => {
                Some("use either last: or from: and to:, not both.")
            }
            _ => None,
        }
    }
}

/// A value, and whether it stood in quotes.
struct Value {
    text: String,
    is_quoted: bool,
    at: Range<usize>,
}

struct Scanner<'t> {
    text: &'t str,
    at: usize,
}

/// Where the term begins, what of it is wrong, and why.
type Wrong = (usize, Range<usize>, String);

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn word(&self) -> &str {
        self.rest().split(char::is_whitespace).next().unwrap_or("")
    }

    fn term(&mut self) -> Result<Option<Term>, Wrong> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        if self.rest().is_empty() {
            return Ok(None);
        }
        let start = self.at;
        let is_excluded = self.rest().starts_with('-');
        self.at += usize::from(is_excluded);
        let condition = self.condition(start).map_err(|(at, problem)| (start, at, problem))?;
        Ok(Some(Term { at: start..self.at, is_excluded, condition }))
    }

    fn condition(&mut self, start: usize) -> Result<Condition, (Range<usize>, String)> {
        if self.rest().starts_with('"') {
            let Value { text, at, .. } = self.value()?;
            if text.trim().is_empty() {
                return Err((at, "the quotes are empty; add the text to find.".into()));
            }
            return Ok(Condition::Text(text));
        }
        if !self.rest().starts_with("meta.\"") && !self.word().contains(':') {
            let word = self.word().to_owned();
            self.at += word.len();
            let nothing = "add what to leave out after the minus.".to_owned();
            return if word.is_empty() { Err((start..self.at, nothing)) } else { Ok(bare(word)) };
        }
        let (field, meta) = self.field(start)?;
        let value = self.value()?;
        if value.text.is_empty() && !value.is_quoted {
            return Err((start..value.at.end, format!("{field}: needs a value after the colon.")));
        }
        let at = value.at.clone();
        condition(&field, meta, value).map_err(|problem| (at, problem))
    }

    /// The name before the colon, and of `meta.` the member's.
    fn field(&mut self, start: usize) -> Result<(String, Option<String>), (Range<usize>, String)> {
        let quoted_name = self.rest().starts_with("meta.\"");
        if quoted_name {
            self.at += "meta.".len();
            let name = self.value_until(true)?.text;
            if !self.rest().starts_with(':') {
                return Err((start..self.at, "add a colon and a value after the name.".into()));
            }
            self.at += 1;
            return Ok(("meta".into(), Some(name)));
        }
        let name = self.word().split(':').next().unwrap_or("").to_owned();
        self.at += name.len() + 1;
        match name.strip_prefix("meta.") {
            Some("") => Err((start..self.at, "meta. needs a name, as in meta.ticket_id:OPS-1.".into())),
            Some(member) => Ok(("meta".into(), Some(member.to_owned()))),
            None if is_field(&name) => Ok((name, None)),
            None => Err((start..self.at, format!("“{name}” is not a field."))),
        }
    }

    fn value(&mut self) -> Result<Value, (Range<usize>, String)> {
        self.value_until(false)
    }

    /// A value in quotes, or up to the next space. `in_name` says that a colon may follow the quotes.
    fn value_until(&mut self, in_name: bool) -> Result<Value, (Range<usize>, String)> {
        let start = self.at;
        if !self.rest().starts_with('"') {
            let text = self.word().to_owned();
            self.at += text.len();
            return Ok(Value { text, is_quoted: false, at: start..self.at });
        }
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        loop {
            match characters.next() {
                None => {
                    return Err((start..self.text.len(), "the closing quote is missing.".into()));
                }
                Some((_, '\\')) => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => {
                        let problem = "inside quotes write \\\\ for a backslash and \\\" for a quote.".into();
                        return Err((start..self.text.len(), problem));
                    }
                },
                Some((length, '"')) => {
                    self.at += length + 1;
                    break;
                }
                Some((_, character)) => text.push(character),
            }
        }
        let follows = self.rest().chars().next();
        if follows.is_some_and(|next| !(next.is_whitespace() || in_name && next == ':')) {
            return Err((start..self.at, "add a space after the closing quote.".into()));
        }
        Ok(Value { text, is_quoted: true, at: start..self.at })
    }
}

fn is_field(name: &str) -> bool {
    fields().any(|(known, _)| known.strip_suffix(':') == Some(name))
}

/// A word without a field.
fn bare(word: String) -> Condition {
    if let Some((from, to)) = word.strip_prefix('#').and_then(seqs) {
        return Condition::Seq(from, to);
    }
    let hash = || Hash::parse(&word.to_ascii_lowercase()).map(Named::Hash);
    match Ulid::parse(&word).map(Named::LogId).or_else(hash) {
        Some(named) => Condition::Named(named, word),
        None => Condition::Text(word),
    }
}

/// What a term may mean that is wrong as it is, each as it would be typed.
fn meanings(term: &str) -> Vec<String> {
    // Alone it is right: it contradicts another one, or there is no room for it.
    if Query::scan(term).1.is_empty() {
        return Vec::new();
    }
    let (sign, body) = term.strip_prefix('-').map_or(("", term), |body| ("-", body));
    let mut all = vec![format!("{term}\"")];
    if let Some((name, value)) = body.split_once(':') {
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, field)| *field);
        let names = fields().filter_map(|(known, _)| known.strip_suffix(':'));
        let field = if is_field(name) { Some(name) } else { alias.or_else(|| nearest(name, names)) };
        if let Some(field) = field {
            all.push(format!("{sign}{field}:{value}"));
            let (operator, word) = value.split_at(value.find(char::is_alphanumeric).unwrap_or(0));
            let frameworks =
                Catalog::builtin().frameworks.iter().map(|framework| framework.framework.as_str());
            let known = match field {
                "severity" => nearest(word, LEVELS.into_iter()),
                "framework" => nearest(word, frameworks),
                "missing" => nearest(word, fields().map(|(known, _)| known.trim_end_matches(':'))),
                _ => None,
            };
            all.extend(known.map(|known| format!("{sign}{field}:{operator}{known}")));
            let unit = word.trim_start_matches(|c: char| c.is_ascii_digit());
            let unit = unit.chars().next().map(|unit| unit.to_ascii_lowercase());
            if let Some(unit) = unit.filter(|_| field == "last") {
                let count = word.trim_end_matches(|c: char| !c.is_ascii_digit());
                all.push(format!("last:{count}{unit}"));
            }
        }
        if !is_field(name) && !name.contains('"') {
            all.push(format!("{sign}meta.{name}:{value}"));
        }
    }
    if !body.contains('"') {
        all.push(format!("{sign}\"{}\"", body.replace('\\', "\\\\")));
    }
    all.retain(|meaning| {
        let (query, wrong) = Query::scan(meaning);
        meaning.as_str() != term && wrong.is_empty() && query.terms.len() == 1
    });
    all.truncate(MEANINGS_MAX);
    all
}

/// The one that is at most two letters away, of which half the word is left.
fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let near = known.map(|known| (distance(&word, known), known));
    near.filter(|(far, known)| *far <= 2 && 2 * far <= known.len()).min().map(|(_, known)| known)
}

/// Letters to add, to remove or to replace. Long words are far from every name.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (at, letter) in left.chars().take(64).enumerate() {
        let mut before = std::mem::replace(&mut row[0], at + 1);
        for (column, other) in right.iter().enumerate() {
            let replaced = before + usize::from(letter != *other);
            before = row[column + 1];
            row[column + 1] = replaced.min(before + 1).min(row[column] + 1);
        }
    }
    row[right.len()]
}

fn condition(field: &str, meta: Option<String>, value: Value) -> Result<Condition, String> {
    if let Some(name) = meta {
        return Ok(Condition::Meta(name, meta_test(value)?));
    }
    if let Some(field) = text_field(field) {
        let pattern = match field {
            FieldId::Country => Pattern::Is(country(&value.text)?),
            _ => pattern(value)?,
        };
        return Ok(Condition::Field(field, pattern));
    }
    let text = value.text.as_str();
    Ok(match field {
        "framework" => Condition::Framework(framework(text)?),
        "severity" => Condition::Severity(severity(&value)?),
        "ip" => Condition::Ip(
            Network::parse(text)
                .ok_or("not an IP address; write one like 203.0.113.7, or a range like 203.0.113.0/24.")?,
        ),
        "seq" => {
            let (from, to) = seqs(text).ok_or("write a number like 1000, or a range like 1000..2000.")?;
            Condition::Seq(from, to)
        }
        "from" => Condition::From(moment(text).ok_or(A_DATE)?.0),
        "to" => Condition::Until(moment(text).ok_or(A_DATE)?.1),
        "last" => Condition::Last(
            duration_ms(text).ok_or("write minutes, hours, days or weeks, like 30m, 24h or 7d.")?,
        ),
        _ => Condition::Missing(missing(text)?),
    })
}

const A_DATE: &str = "write a day like 2026-10-31, or a time like 2026-10-31T12:00:00Z.";

fn text_field(name: &str) -> Option<FieldId> {
    let asked = |field: &&Field| field.search.is_some_and(|(known, _)| known.strip_suffix(':') == Some(name));
    FIELDS.iter().find(asked).map(|field| field.id)
}

fn pattern(value: Value) -> Result<Pattern, String> {
    if value.is_quoted {
        return Ok(Pattern::Is(value.text));
    }
    match value.text.split_once('*') {
        None => Ok(Pattern::Is(value.text)),
        Some((begin, "")) => Ok(Pattern::BeginsWith(begin.to_owned())),
        Some(_) => Err("* works only at the end; put a value that contains * in quotes.".into()),
    }
}

fn comparison(text: &str) -> Option<(Comparison, &str)> {
    let operators = [
        (">=", Comparison::AtLeast),
        (">", Comparison::Above),
        ("<=", Comparison::AtMost),
        ("<", Comparison::Below),
    ];
    operators.into_iter().find_map(|(sign, comparison)| Some((comparison, text.strip_prefix(sign)?)))
}

fn meta_test(value: Value) -> Result<MetaTest, String> {
    if !value.is_quoted
        && let Some((comparison, limit)) = comparison(&value.text)
    {
        let limit = Number::parse(limit).ok_or("put a number after the sign, like >1000 or <=2.5.")?;
        return Ok(MetaTest::Compare(comparison, limit));
    }
    Ok(match pattern(value)? {
        Pattern::Is(text) => MetaTest::Is(text),
        Pattern::BeginsWith(text) => MetaTest::BeginsWith(text),
    })
}

fn severity(value: &Value) -> Result<Severity, String> {
    match comparison(&value.text).filter(|_| !value.is_quoted) {
        Some((comparison, level)) => {
            let level = Level::of(level).ok_or("after the sign, write info, warning or critical.")?;
            Ok(Severity::Compare(comparison, level))
        }
        None => Ok(Severity::Is(if value.text == "warn" { "warning".into() } else { value.text.clone() })),
    }
}

fn country(text: &str) -> Result<String, String> {
    let is_code = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_code {
        Ok(text.to_ascii_uppercase())
    } else {
        Err("write a two-letter country code, like FR.".into())
    }
}

fn framework(text: &str) -> Result<usize, String> {
    let catalog = Catalog::builtin();
    catalog.framework_index(text).ok_or_else(|| {
        let known: Vec<&str> =
            catalog.frameworks.iter().map(|framework| framework.framework.as_str()).collect();
        format!("not a framework; use one of {}", known.join(" "))
    })
}

fn seqs(text: &str) -> Option<(u64, u64)> {
    let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
    let (from, to) = match text.split_once("..") {
        None => (number(text)?, number(text)?),
        Some(("", "")) => return None,
        Some((from, "")) => (number(from)?, u64::MAX),
        Some(("", to)) => (0, number(to)?),
        Some((from, to)) => (number(from)?, number(to)?),
    };
    (from <= to).then_some((from, to))
}

/// The first millisecond of a day or a time, and the first one after it.
fn moment(text: &str) -> Option<(u64, u64)> {
    match Date::parse(text) {
        Some(date) => Some((date.start_ms(), date.end_ms())),
        None => parse_rfc3339_ms(text).map(|ms| (ms, ms + 1)),
    }
}

fn duration_ms(text: &str) -> Option<u64> {
    let unit = text.chars().next_back()?;
    let minutes = match unit {
        'm' => 1,
        'h' => 60,
        'd' => 24 * 60,
        'w' => 7 * 24 * 60,
        _ => return None,
    };
    let count = &text[..text.len() - unit.len_utf8()];
    let count: u64 = count.bytes().all(|byte| byte.is_ascii_digit()).then(|| count.parse().ok())??;
    let ms = count.checked_mul(minutes * MINUTE_MS)?;
    (count > 0 && ms <= LAST_DAYS_MAX * 24 * 60 * MINUTE_MS).then_some(ms)
}

fn missing(text: &str) -> Result<Missing, String> {
    if let Some(name) = text.strip_prefix("meta.").filter(|name| !name.is_empty()) {
        return Ok(Missing::Meta(name.to_owned()));
    }
    let field = match text {
        "severity" => Some(FieldId::Severity),
        "ip" => Some(FieldId::IpAddress),
        "metadata" => Some(FieldId::Metadata),
        // Every event has an action.
        _ => text_field(text).filter(|field| *field != FieldId::Action),
    };
    field.map(Missing::Field).ok_or_else(|| {
        "missing: takes actor, actor_type, resource, resource_type, category, severity, country, city, ip, session, metadata or meta.NAME.".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conditions(text: &str) -> Vec<(bool, Condition)> {
        let query = Query::parse(text).unwrap_or_else(|error| panic!("{text}: {}", error.explain(text)));
        query.terms.into_iter().map(|term| (term.is_excluded, term.condition)).collect()
    }

    fn one(text: &str) -> Condition {
        let mut all = conditions(text);
        assert_eq!(all.len(), 1, "{text}");
        all.remove(0).1
    }

    fn is(text: &str) -> Pattern {
        Pattern::Is(text.into())
    }

    #[test]
    fn every_field_of_the_grammar_is_understood() {
        let number = |text: &str| Number::parse(text).unwrap();
        let day = |text: &str| Date::parse(text).unwrap();
        for (text, expected) in [
            ("action:user.login", Condition::Field(FieldId::Action, is("user.login"))),
            ("action:user.*", Condition::Field(FieldId::Action, Pattern::BeginsWith("user.".into()))),
            ("action:\"user.*\"", Condition::Field(FieldId::Action, is("user.*"))),
            ("actor:usr_42", Condition::Field(FieldId::ActorId, is("usr_42"))),
            ("actor:\"a \\\"b\\\\ c\"", Condition::Field(FieldId::ActorId, is("a \"b\\ c"))),
            ("actor:\"\"", Condition::Field(FieldId::ActorId, is(""))),
            ("actor_type:service", Condition::Field(FieldId::ActorType, is("service"))),
            ("resource:document/9", Condition::Field(FieldId::Resource, is("document/9"))),
            ("resource:a:b", Condition::Field(FieldId::Resource, is("a:b"))),
            (
                "resource:document/*",
                Condition::Field(FieldId::Resource, Pattern::BeginsWith("document/".into())),
            ),
            ("resource_type:document", Condition::Field(FieldId::ResourceType, is("document"))),
            ("category:auth", Condition::Field(FieldId::Category, is("auth"))),
            ("country:fr", Condition::Field(FieldId::Country, is("FR"))),
            ("city:\"New York\"", Condition::Field(FieldId::City, is("New York"))),
            ("session:s-1", Condition::Field(FieldId::SessionId, is("s-1"))),
            ("severity:warn", Condition::Severity(Severity::Is("warning".into()))),
            (
                "severity:>=warning",
                Condition::Severity(Severity::Compare(Comparison::AtLeast, Level::Warning)),
            ),
            (
                "severity:<critical",
                Condition::Severity(Severity::Compare(Comparison::Below, Level::Critical)),
            ),
            ("seq:7", Condition::Seq(7, 7)),
            ("seq:1000..2000", Condition::Seq(1000, 2000)),
            ("seq:..9", Condition::Seq(0, 9)),
            ("seq:9..", Condition::Seq(9, u64::MAX)),
            ("meta.ticket_id:OPS-1", Condition::Meta("ticket_id".into(), MetaTest::Is("OPS-1".into()))),
            ("meta.a.b:x*", Condition::Meta("a.b".into(), MetaTest::BeginsWith("x".into()))),
            ("meta.\"a b:c\":x", Condition::Meta("a b:c".into(), MetaTest::Is("x".into()))),
            (
                "meta.amount:>1000",
                Condition::Meta("amount".into(), MetaTest::Compare(Comparison::Above, number("1000"))),
            ),
            ("meta.x:\">1000\"", Condition::Meta("x".into(), MetaTest::Is(">1000".into()))),
            ("from:2026-10-01", Condition::From(day("2026-10-01").start_ms())),
            ("to:2026-10-31", Condition::Until(day("2026-10-31").end_ms())),
            ("to:1970-01-01T00:00:01Z", Condition::Until(1001)),
            ("last:24h", Condition::Last(24 * 60 * MINUTE_MS)),
            ("last:30m", Condition::Last(30 * MINUTE_MS)),
            ("last:2w", Condition::Last(14 * 24 * 60 * MINUTE_MS)),
            ("missing:actor", Condition::Missing(Missing::Field(FieldId::ActorId))),
            ("missing:meta.x", Condition::Missing(Missing::Meta("x".into()))),
            ("\"some text\"", Condition::Text("some text".into())),
        ] {
            assert_eq!(one(text), expected, "{text}");
            assert_eq!(conditions(&format!("  {text}\t"))[0].1, expected, "{text}");
        }
        let soc2 = Catalog::builtin().framework_index("soc2").unwrap();
        assert_eq!(one("framework:soc2"), Condition::Framework(soc2));
        assert_eq!(Query::parse(" "), Ok(Query::default()));
    }

    #[test]
    fn a_bare_word_is_searched_as_text() {
        assert_eq!(one("login"), Condition::Text("login".into()));
        assert_eq!(one("it\"s"), Condition::Text("it\"s".into()));
        assert_eq!(conditions("-login"), [(true, Condition::Text("login".into()))]);
        assert_eq!(conditions("failed login").len(), 2, "both must be there");
        assert_eq!((one("#7"), one("#7..9")), (Condition::Seq(7, 7), Condition::Seq(7, 9)));
        assert_eq!(one("#release"), Condition::Text("#release".into()));
    }

    #[test]
    fn what_identifies_an_event_is_known_by_its_form_in_either_case() {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        for text in [id.to_owned(), id.to_lowercase()] {
            let named = Named::LogId(Ulid::parse(id).unwrap());
            assert_eq!(one(&text), Condition::Named(named, text.clone()));
        }
        let hash = "ab".repeat(32);
        for text in [hash.clone(), hash.to_uppercase()] {
            assert_eq!(one(&text), Condition::Named(Named::Hash(Hash([0xab; 32])), text.clone()));
        }
        for text in [&id[1..], &hash[1..], &format!("{}g", &hash[1..])] {
            assert_eq!(one(text), Condition::Text(text.to_owned()));
        }
    }

    #[test]
    fn a_wrong_term_leaves_the_others_and_offers_the_nearest_meaning() {
        let nearest = |text: &str| {
            let (query, wrong) = Query::read(&format!("action:a.b {text} \"last\""));
            assert_eq!((query.terms.len(), wrong.len()), (2, 1), "{text}");
            assert_eq!(wrong[0].term, 11..11 + text.len(), "{text}");
            wrong[0].meanings.clone()
        };
        assert_eq!(nearest("actr:x"), ["actor:x", "meta.actr:x", "\"actr:x\""]);
        assert_eq!(nearest("-user:x"), ["-actor:x", "-meta.user:x", "-\"user:x\""]);
        assert_eq!(nearest("ticket_id:OPS-1"), ["meta.ticket_id:OPS-1", "\"ticket_id:OPS-1\""]);
        assert_eq!(nearest("severity:>=critcal")[0], "severity:>=critical");
        assert_eq!(nearest("framework:soc")[0], "framework:soc2");
        assert_eq!(nearest("missing:actr")[0], "missing:actor");
        assert_eq!(nearest("last:90min")[0], "last:90m");
        assert_eq!(nearest("country:france"), ["\"country:france\""]);
        // Of what follows an open quote nothing is known.
        let (query, wrong) = Query::read("action:a.b actor:\"x y");
        assert_eq!((query.terms.len(), wrong[0].meanings.as_slice()), (1, &["actor:\"x y\"".to_owned()][..]));
        // One window of time stays, and it is the first.
        let (query, wrong) = Query::read("last:7d x from:2026-01-01 last:1h");
        assert_eq!((query.terms.len(), wrong.len()), (2, 2));
    }

    #[test]
    fn a_minus_excludes_and_terms_know_their_place() {
        let text = "-action:user.logout  actor:x -\"é\"";
        let query = Query::parse(text).unwrap();
        let parts: Vec<(&str, bool)> =
            query.terms.iter().map(|term| (&text[term.at.clone()], term.is_excluded)).collect();
        assert_eq!(parts, [("-action:user.logout", true), ("actor:x", false), ("-\"é\"", true)]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, place, problem) in [
            ("-", 0..1, "after the minus"),
            ("actr:x", 0..5, "“actr” is not a field."),
            ("key:at_live_ab", 0..4, "“key” is not a field"),
            ("actor:", 0..6, "needs a value"),
            ("actor: x", 0..6, "needs a value"),
            ("actor:\"x", 6..8, "closing quote is missing"),
            ("actor:\"x\"y", 6..9, "add a space"),
            ("actor:\"a\\n\"", 6..11, "inside quotes"),
            ("\"  \"", 0..4, "quotes are empty"),
            ("action:a*b", 7..10, "only at the end"),
            ("country:FRA", 8..11, "two-letter"),
            ("framework:sox2", 10..14, "not a framework; use one of soc2"),
            ("severity:>=high", 9..15, "info, warning or critical"),
            ("ip:1.2.3", 3..8, "not an IP address"),
            ("ip:1.2.3.4/33", 3..13, "not an IP address"),
            ("seq:9..1", 4..8, "a range like"),
            ("seq:..", 4..6, "a range like"),
            ("seq:-1", 4..6, "a range like"),
            ("meta.:x", 0..6, "needs a name"),
            ("meta.x:>abc", 7..11, "put a number"),
            ("from:2026-02-30", 5..15, "a day like"),
            ("last:5y", 5..7, "minutes, hours, days or weeks"),
            ("last:0d", 5..7, "minutes, hours, days or weeks"),
            ("last:99999999999999999999d", 5..26, "minutes, hours, days or weeks"),
            ("missing:action", 8..14, "missing: takes"),
            ("from:2026-01-01 from:2026-01-02", 16..31, "appears twice"),
            ("last:7d to:2026-01-02", 8..21, "not both"),
            ("-last:7d", 0..8, "cannot be excluded"),
        ] {
            let error = Query::parse(text).expect_err(text);
            assert_eq!(error.at, place, "{text}: {}", error.problem);
            assert!(error.problem.contains(problem), "{text}: {}", error.problem);
        }
        let error = Query::parse("actor:é x:").unwrap_err();
        assert!(error.explain("actor:é x:").starts_with("At character 9: "), "{error:?}");
    }

    #[test]
    fn a_search_has_a_bounded_length_and_number_of_terms() {
        let terms = |count: usize| vec!["actor:x"; count].join(" ");
        assert_eq!(Query::parse(&terms(TERMS_MAX)).unwrap().terms.len(), TERMS_MAX);
        assert!(Query::parse(&terms(TERMS_MAX + 1)).unwrap_err().problem.contains("at most 32 terms"));
        let (query, wrong) = Query::read(&"actr:x ".repeat(200));
        assert_eq!((query.terms.len(), wrong.len()), (0, TERMS_MAX + 1), "what is wrong is bounded, too");
        let long = |bytes: usize| format!("actor:{}", "x".repeat(bytes - 6));
        assert!(Query::parse(&long(QUERY_BYTES_MAX)).is_ok());
        assert!(Query::parse(&long(QUERY_BYTES_MAX + 1)).unwrap_err().problem.contains("at most 2000 bytes"));
    }

    #[test]
    fn no_text_makes_the_parser_fail_otherwise_than_by_saying_where() {
        let mut dice = sealog_testing::Dice::new(7);
        let pieces = [
            "actor:", "meta.", "\"", "\\", "-", " ", ":", "*", ">", "..", "é", "\u{202e}", "seq:", "1",
            "last:", "\0", "ip:", "::", "/", "missing:", "\t",
        ];
        for _ in 0..20_000 {
            let count = 1 + dice.below(8);
            let piece = |_| pieces[usize::try_from(dice.below(pieces.len() as u64)).unwrap()];
            let text: String = (0..count).map(piece).collect();
            match Query::parse(&text) {
                Ok(query) => {
                    for term in &query.terms {
                        // A term that is taken out and put in alone means the same.
                        let alone = Query::parse(&text[term.at.clone()]).unwrap();
                        assert_eq!(alone.terms[0].condition, term.condition, "{text:?}");
                    }
                }
                Err(error) => {
                    assert!(text.get(error.at.clone()).is_some(), "{text:?}");
                    assert!(!error.explain(&text).is_empty());
                    assert!(error.meanings.iter().all(|meaning| Query::parse(meaning).is_ok()), "{text:?}");
                }
            }
        }
    }
}
