//! From what was typed to terms. Pure: the same text always gives the same terms, or says where it is wrong
//! and what would be right.
//!
//! ```text
//! query  = term { space term }
//! term   = [ "-" ] field ":" value | [ "-" ] '"' text '"'
//! value  = '"' text '"' | anything without spaces
//! ```
//! Inside quotes `\"` and `\\` stand for a quote and a backslash, and nothing else is special: no `*`, no
//! `>`.

use std::ops::Range;

use sealog_core::catalog::Catalog;
use sealog_core::event::{FIELDS, Field, FieldId};
use sealog_core::time::{Date, parse_rfc3339_ms};

use super::number::Number;
use super::term::{Comparison, Condition, Level, MetaTest, Missing, Network, Pattern, Severity, Term};

/// A page's address has to hold it.
pub const QUERY_BYTES_MAX: usize = 2000;
/// Each is held against every event that is looked at.
pub const TERMS_MAX: usize = 32;
/// A hundred years.
const LAST_DAYS_MAX: u64 = 36_525;
const HOUR_MS: u64 = 3_600_000;

/// What can be asked for beside the fields that are compared as text. `meta.` is followed by a name.
const OTHERS: [(&str, &str); 9] = [
    ("framework:", "pci_dss"),
    ("severity:", "critical or >=warning"),
    ("ip:", "203.0.113.0/24"),
    ("seq:", "1000..2000"),
    ("meta.", "ticket_id:OPS-1 or amount:>1000"),
    ("from:", "2026-10-01"),
    ("to:", "2026-10-31"),
    ("last:", "24h, 7d or 30d"),
    ("missing:", "actor"),
];

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
}

impl ParseError {
    /// For people: the place is counted in characters, from 1.
    pub fn explain(&self, text: &str) -> String {
        let before = text.get(..self.at.start).map_or(0, |before| before.chars().count());
        format!("At character {}: {}", before + 1, self.problem)
    }
}

impl Query {
    pub fn parse(text: &str) -> Result<Query, ParseError> {
        let wrong = |at: Range<usize>, problem: String| Err(ParseError { at, problem });
        if text.len() > QUERY_BYTES_MAX {
            return wrong(
                QUERY_BYTES_MAX..text.len(),
                format!("a search has at most {QUERY_BYTES_MAX} bytes."),
            );
        }
        let mut scanner = Scanner { text, at: 0 };
        let mut query = Query::default();
        while let Some(term) = scanner.term()? {
            if query.terms.len() == TERMS_MAX {
                return wrong(term.at, format!("a search has at most {TERMS_MAX} terms."));
            }
            if let Some(problem) = query.contradicted_by(&term) {
                return wrong(term.at, problem.into());
            }
            query.terms.push(term);
        }
        Ok(query)
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

impl Scanner<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn term(&mut self) -> Result<Option<Term>, ParseError> {
        self.at += self.rest().len() - self.rest().trim_start().len();
        if self.rest().is_empty() {
            return Ok(None);
        }
        let start = self.at;
        let is_excluded = self.rest().starts_with('-');
        self.at += usize::from(is_excluded);
        let condition = if self.rest().starts_with('"') {
            let Value { text, at, .. } = self.value()?;
            if text.trim().is_empty() {
                return Err(ParseError { at, problem: "the quotes are empty; add the text to find.".into() });
            }
            Condition::Text(text)
        } else {
            let (field, meta) = self.field(start)?;
            let value = self.value()?;
            if value.text.is_empty() && !value.is_quoted {
                let problem = format!("{field}: needs a value after the colon.");
                return Err(ParseError { at: start..value.at.end, problem });
            }
            let at = value.at.clone();
            condition(&field, meta, value).map_err(|problem| ParseError { at, problem })?
        };
        Ok(Some(Term { at: start..self.at, is_excluded, condition }))
    }

    /// The name before the colon, and of `meta.` the member's.
    fn field(&mut self, start: usize) -> Result<(String, Option<String>), ParseError> {
        let word_end =
            |scanner: &Scanner<'_>| scanner.rest().find(char::is_whitespace).unwrap_or(scanner.rest().len());
        let quoted_name = self.rest().starts_with("meta.\"");
        if quoted_name {
            self.at += "meta.".len();
            let name = self.value_until(true)?.text;
            if !self.rest().starts_with(':') {
                let problem = "add a colon and a value after the name.".into();
                return Err(ParseError { at: start..self.at, problem });
            }
            self.at += 1;
            return Ok(("meta".into(), Some(name)));
        }
        let end = word_end(self);
        let word = &self.rest()[..end];
        let Some((name, _)) = word.split_once(':') else {
            let problem = format!("“{word}” has no field; write field:value, or put text to find in quotes.");
            return Err(ParseError { at: start..self.at + end, problem });
        };
        let name = name.to_owned();
        self.at += name.len() + 1;
        match name.strip_prefix("meta.") {
            Some("") => {
                let problem = "meta. needs a name, as in meta.ticket_id:OPS-1.".into();
                Err(ParseError { at: start..self.at, problem })
            }
            Some(member) => Ok(("meta".into(), Some(member.to_owned()))),
            None if fields().any(|(known, _)| known.strip_suffix(':') == Some(name.as_str())) => {
                Ok((name, None))
            }
            None => {
                let known: Vec<&str> = fields().map(|(known, _)| known).collect();
                let problem = format!("“{name}” is not a field; use one of {}", known.join(" "));
                Err(ParseError { at: start..self.at, problem })
            }
        }
    }

    fn value(&mut self) -> Result<Value, ParseError> {
        self.value_until(false)
    }

    /// A value in quotes, or up to the next space. `in_name` says that a colon may follow the quotes.
    fn value_until(&mut self, in_name: bool) -> Result<Value, ParseError> {
        let start = self.at;
        if !self.rest().starts_with('"') {
            let end = self.rest().find(char::is_whitespace).unwrap_or(self.rest().len());
            let text = self.rest()[..end].to_owned();
            self.at += end;
            return Ok(Value { text, is_quoted: false, at: start..self.at });
        }
        let mut text = String::new();
        let mut characters = self.rest().char_indices().skip(1);
        loop {
            match characters.next() {
                None => {
                    let problem = "the closing quote is missing.".into();
                    return Err(ParseError { at: start..self.text.len(), problem });
                }
                Some((_, '\\')) => match characters.next() {
                    Some((_, escaped @ ('"' | '\\'))) => text.push(escaped),
                    _ => {
                        let problem = "inside quotes write \\\\ for a backslash and \\\" for a quote.".into();
                        return Err(ParseError { at: start..self.text.len(), problem });
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
            let problem = "add a space after the closing quote.".into();
            return Err(ParseError { at: start..self.at, problem });
        }
        Ok(Value { text, is_quoted: true, at: start..self.at })
    }
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
        "last" => {
            Condition::Last(duration_ms(text).ok_or("write hours, days or weeks, like 24h, 7d or 4w.")?)
        }
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
    let hours = match unit {
        'h' => 1,
        'd' => 24,
        'w' => 24 * 7,
        _ => return None,
    };
    let count = &text[..text.len() - 1];
    let count: u64 = count.bytes().all(|byte| byte.is_ascii_digit()).then(|| count.parse().ok())??;
    let ms = count.checked_mul(hours * HOUR_MS)?;
    (count > 0 && ms <= LAST_DAYS_MAX * 24 * HOUR_MS).then_some(ms)
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
            ("last:24h", Condition::Last(24 * HOUR_MS)),
            ("last:2w", Condition::Last(14 * 24 * HOUR_MS)),
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
            ("login", 0..5, "has no field"),
            ("actor:x login", 8..13, "has no field"),
            ("actr:x", 0..5, "“actr” is not a field; use one of action: category: actor:"),
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
            ("last:5y", 5..7, "hours, days or weeks"),
            ("last:0d", 5..7, "hours, days or weeks"),
            ("last:99999999999999999999d", 5..26, "hours, days or weeks"),
            ("missing:action", 8..14, "missing: takes"),
            ("from:2026-01-01 from:2026-01-02", 16..31, "appears twice"),
            ("last:7d to:2026-01-02", 8..21, "not both"),
            ("-last:7d", 0..8, "cannot be excluded"),
        ] {
            let error = Query::parse(text).expect_err(text);
            assert_eq!(error.at, place, "{text}: {}", error.problem);
            assert!(error.problem.contains(problem), "{text}: {}", error.problem);
        }
        let error = Query::parse("actor:é x").unwrap_err();
        assert!(error.explain("actor:é x").starts_with("At character 9: "), "{}", error.explain("actor:é x"));
    }

    #[test]
    fn a_search_has_a_bounded_length_and_number_of_terms() {
        let terms = |count: usize| vec!["actor:x"; count].join(" ");
        assert_eq!(Query::parse(&terms(TERMS_MAX)).unwrap().terms.len(), TERMS_MAX);
        assert!(Query::parse(&terms(TERMS_MAX + 1)).unwrap_err().problem.contains("at most 32 terms"));
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
                }
            }
        }
    }
}
