//! Query strings of the read endpoints, parsed once. Inside, a bad value cannot be written down.

use sha2::{Digest, Sha256};

use crate::id::{ChainId, Ulid};
use crate::json;
use crate::metadata::FieldIs;
use crate::reject::Reject;
use crate::steps;
use crate::time::Date;

/// A closed set of parameters: a parser knows no others, and the published description of the interface lists
/// them all.
macro_rules! parameters {
    ($(#[$about:meta])* $name:ident { $($variant:ident $text:literal)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($variant),* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant),*];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// The parameters of a query string, in order. The first unknown or duplicate name ends the
            /// parsing, so a query costs one pass and at most as many comparisons as there are parameters.
            pub fn read(query: &str) -> Result<Vec<($name, String)>, Reject> {
                let mut values = Vec::with_capacity($name::ALL.len());
                let mut seen = [false; $name::ALL.len()];
                for pair in Pairs(query) {
                    let (name, value) = pair?;
                    let known = $name::ALL.iter().position(|known| known.as_str() == name);
                    let at = known.ok_or_else(|| invalid(&name, "is not a parameter of this endpoint"))?;
                    if std::mem::replace(&mut seen[at], true) {
                        return Err(invalid(&name, "is given twice"));
                    }
                    let value = form_decode(value).ok_or_else(|| invalid(&name, "is badly percent-encoded"))?;
                    values.push(($name::ALL[at], value));
                }
                Ok(values)
            }
        }
    };
}

parameters! {
    /// Parameters of `GET /v1/events`.
    ListParameter {
        Action "action"
        ActorId "actor_id"
        Resource "resource"
        DateFrom "date_from"
        DateTo "date_to"
        Cursor "cursor"
        Limit "limit"
    }
}

parameters! {
    /// Parameters of `GET /v1/events/verify`.
    SeqParameter {
        FromSeq "from_seq"
        ToSeq "to_seq"
    }
}

parameters! {
    /// Parameters of `GET /tlog/v1/store/checkpoint`.
    SnapshotParameter {
        At "at"
    }
}

parameters! {
    /// Parameters of `GET /tlog/v1/store/proof`.
    EntryParameter {
        Index "index"
        Size "size"
    }
}

parameters! {
    /// Parameters of proofs that one tree begins another.
    GrowthParameter {
        From "from"
        To "to"
    }
}

parameters! {
    /// Parameters of `GET /tlog/v1/chain/head`.
    HeadParameter {
        At "at"
        Format "format"
    }
}

parameters! {
    /// Parameters of `GET /tlog/v1/chain/proof`.
    ProofParameter {
        LogId "log_id"
        Seq "seq"
        Format "format"
    }
}

parameters! {
    /// Parameters of lists without filters.
    PageParameter {
        Cursor "cursor"
        Limit "limit"
    }
}

/// Spec 4.3.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ListQuery {
    pub filter: Filter,
    /// Only events below this `chain_seq`.
    pub before_seq: Option<u64>,
    pub limit: PageLimit,
}

/// Conditions that an event must meet, all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Filter {
    /// Each of the three is the canonical JSON text of the value, which is what records hold.
    pub action: Option<String>,
    pub actor_id: Option<String>,
    pub resource: Option<String>,
    /// Members of `metadata` that it must have. No parameter of the API sets them.
    pub fields: Vec<FieldIs>,
    /// Only events at or after this time.
    pub from_ms: Option<u64>,
    /// Before.
    pub until_ms: Option<u64>,
}

/// 1 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageLimit(u8);

impl PageLimit {
    pub const MAX: u8 = 100;

    pub fn get(self) -> usize {
        usize::from(self.0)
    }

    /// A number outside 1 to 100 becomes 50, silently.
    pub fn new(limit: i128) -> PageLimit {
        u8::try_from(limit)
            .ok()
            .filter(|limit| (1..=PageLimit::MAX).contains(limit))
            .map_or(PageLimit::default(), PageLimit)
    }
}

impl Default for PageLimit {
    fn default() -> PageLimit {
        PageLimit(50)
    }
}

/// A range to verify. Spec 4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRange {
    pub from: u64,
    pub to: u64,
}

/// Largest `from_seq`.
pub const SEQ_MAX: i128 = i64::MAX as i128;

/// Most events in one verification. Spec 8.
pub const VERIFY_EVENTS_MAX: u64 = 1000;

impl Filter {
    pub fn matches(&self, event: &crate::event::StoredEvent) -> bool {
        let fields = event.text.fields();
        let equal = |wanted: &Option<String>, value: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| Some(wanted) == value)
        };
        equal(&self.action, Some(fields.action))
            && equal(&self.actor_id, fields.actor_id)
            && equal(&self.resource, fields.resource)
            && self.fields.iter().all(|field| field.matches(fields.metadata))
            && self.from_ms.is_none_or(|from| event.timestamp_ms >= from)
            && self.until_ms.is_none_or(|until| event.timestamp_ms < until)
    }
}

impl ListQuery {
    pub fn parse(query: &str, chain: ChainId) -> Result<ListQuery, Reject> {
        let mut parsed = ListQuery::default();
        for (parameter, value) in ListParameter::read(query)? {
            let name = parameter.as_str();
            if value.is_empty() {
                return Err(invalid(name, "must not be empty"));
            }
            match parameter {
                ListParameter::Action => parsed.filter.action = Some(canonical_string(&value)),
                ListParameter::ActorId => parsed.filter.actor_id = Some(canonical_string(&value)),
                ListParameter::Resource => parsed.filter.resource = Some(canonical_string(&value)),
                ListParameter::DateFrom => parsed.filter.from_ms = Some(date(name, &value)?.start_ms()),
                ListParameter::DateTo => parsed.filter.until_ms = Some(date(name, &value)?.end_ms()),
                ListParameter::Cursor => {
                    let seq = decode_cursor(&value, chain)
                        .ok_or_else(|| invalid(name, "is not a cursor of this list"))?;
                    parsed.before_seq = Some(seq);
                }
                ListParameter::Limit => parsed.limit = PageLimit::new(integer(name, &value)?),
            }
        }
        Ok(parsed)
    }
}

impl SeqRange {
    pub fn parse(query: &str) -> Result<SeqRange, Reject> {
        let (mut from, mut to) = (1, u64::MAX);
        for (parameter, value) in SeqParameter::read(query)? {
            let name = parameter.as_str();
            // Beyond 64 bits a number is larger than every chain_seq, and is cut or refused as such.
            let seq = integer(name, &value)?;
            match parameter {
                SeqParameter::FromSeq if !(1..=SEQ_MAX).contains(&seq) => {
                    return Err(invalid(name, "must be from 1 to 9223372036854775807"));
                }
                SeqParameter::FromSeq => from = u64::try_from(seq).unwrap_or(u64::MAX),
                SeqParameter::ToSeq => to = u64::try_from(seq.max(0)).unwrap_or(u64::MAX),
            }
        }
        if to < from {
            return Err(invalid("to_seq", "must not be below from_seq"));
        }
        Ok(SeqRange { from, to: to.min(from.saturating_add(VERIFY_EVENTS_MAX - 1)) })
    }
}

/// An entry of a log, in the tree of a size that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryInTree {
    pub index: u64,
    pub size: u64,
}

/// Two sizes of one tree, the older one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    pub from: u64,
    pub to: u64,
}

/// The index of an entry, where the query names one.
pub fn parse_at(query: &str) -> Result<Option<u64>, Reject> {
    SnapshotParameter::read(query)?
        .first()
        .map(|(parameter, value)| tree_number(parameter.as_str(), value))
        .transpose()
}

/// Two numbers of trees, both of which must be there. The first of the query that is no number is named.
fn two_numbers<P: PartialEq + Copy>(
    read: &[(P, String)],
    wanted: [P; 2],
    name: fn(P) -> &'static str,
) -> Result<[u64; 2], Reject> {
    let mut numbers = [None; 2];
    for (parameter, value) in read {
        numbers[usize::from(*parameter == wanted[1])] = Some(tree_number(name(*parameter), value)?);
    }
    Ok([required(name(wanted[0]), numbers[0])?, required(name(wanted[1]), numbers[1])?])
}

impl EntryInTree {
    pub fn parse(query: &str) -> Result<EntryInTree, Reject> {
        use EntryParameter::{Index, Size};
        let [index, size] =
            two_numbers(&EntryParameter::read(query)?, [Index, Size], EntryParameter::as_str)?;
        if index >= size {
            return Err(invalid("index", "must be below size"));
        }
        Ok(EntryInTree { index, size })
    }
}

impl Growth {
    pub fn parse(query: &str) -> Result<Growth, Reject> {
        use GrowthParameter::{From, To};
        let [from, to] = two_numbers(&GrowthParameter::read(query)?, [From, To], GrowthParameter::as_str)?;
        if from > to {
            return Err(invalid("to", "must not be below from"));
        }
        Ok(Growth { from, to })
    }
}

/// How a proof is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ProofFormat {
    #[default]
    Json,
    /// A file of C2SP `tlog-proof`.
    TlogProof,
}

impl ProofFormat {
    pub const ALL: [ProofFormat; 2] = [ProofFormat::Json, ProofFormat::TlogProof];

    pub fn as_str(self) -> &'static str {
        match self {
            ProofFormat::Json => "json",
            ProofFormat::TlogProof => "tlog-proof",
        }
    }

    fn parse(name: &str, value: &str) -> Result<ProofFormat, Reject> {
        let known = ProofFormat::ALL.into_iter().find(|known| known.as_str() == value);
        known.ok_or_else(|| invalid(name, "must be json or tlog-proof"))
    }
}

/// A head of a chain: the newest, or that of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HeadQuery {
    pub at: Option<u64>,
    pub format: ProofFormat,
}

impl HeadQuery {
    pub fn parse(query: &str) -> Result<HeadQuery, Reject> {
        let mut parsed = HeadQuery::default();
        for (parameter, value) in HeadParameter::read(query)? {
            let name = parameter.as_str();
            match parameter {
                HeadParameter::At => parsed.at = Some(tree_number(name, &value)?),
                HeadParameter::Format => parsed.format = ProofFormat::parse(name, &value)?,
            }
        }
        Ok(parsed)
    }
}

/// An event by what it is named in a proof's query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedEvent {
    /// None for a text that is no `log_id`: no chain has that event.
    LogId(Option<Ulid>),
    Seq(u64),
}

/// A proof of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofQuery {
    pub event: NamedEvent,
    pub format: ProofFormat,
}

impl ProofQuery {
    pub fn parse(query: &str) -> Result<ProofQuery, Reject> {
        let (mut log_id, mut seq, mut format) = (None, None, ProofFormat::default());
        for (parameter, value) in ProofParameter::read(query)? {
            let name = parameter.as_str();
            match parameter {
                ProofParameter::LogId => log_id = Some(NamedEvent::LogId(Ulid::parse(&value))),
                ProofParameter::Seq => seq = Some(NamedEvent::Seq(chain_seq(name, &value)?)),
                ProofParameter::Format => format = ProofFormat::parse(name, &value)?,
            }
        }
        match (log_id, seq) {
            (Some(_), Some(_)) => Err(invalid("seq", "must not be given with log_id")),
            (None, None) => Err(invalid("seq", "is missing, and log_id, too")),
            (log_id, seq) => Ok(ProofQuery { event: log_id.or(seq).expect("one was given"), format }),
        }
    }
}

/// Events in a row of a tree. Without an end, up to that of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRange {
    pub from: u64,
    pub to: Option<u64>,
}

impl TreeRange {
    pub fn parse(query: &str) -> Result<TreeRange, Reject> {
        let mut range = TreeRange { from: 1, to: None };
        for (parameter, value) in SeqParameter::read(query)? {
            let seq = chain_seq(parameter.as_str(), &value)?;
            match parameter {
                SeqParameter::FromSeq => range.from = seq,
                SeqParameter::ToSeq => range.to = Some(seq),
            }
        }
        if range.to.is_some_and(|to| to < range.from) {
            return Err(invalid("to_seq", "must not be below from_seq"));
        }
        Ok(range)
    }
}

fn chain_seq(name: &str, value: &str) -> Result<u64, Reject> {
    match tree_number(name, value)? {
        0 => Err(invalid(name, "must be from 1 to 9223372036854775807")),
        seq => Ok(seq),
    }
}

fn required(name: &str, number: Option<u64>) -> Result<u64, Reject> {
    number.ok_or_else(|| invalid(name, "is missing"))
}

/// A size or an index of a tree. It has one spelling, as in the formats of logs.
fn tree_number(name: &str, value: &str) -> Result<u64, Reject> {
    const PROBLEM: &str = "must be a number from 0 to 9223372036854775807 without leading zeros";
    let right = value.bytes().all(|byte| byte.is_ascii_digit()) && (value == "0" || !value.starts_with('0'));
    let number = value.parse().ok().filter(|number| right && i128::from(*number) <= SEQ_MAX);
    number.ok_or_else(|| invalid(name, PROBLEM))
}

/// The cursor for the events below this `chain_seq`, for lists of this chain. A page may end where none of
/// its events stood, so it need not be that of an event that was returned.
pub fn encode_cursor(chain_seq: u64, chain: ChainId) -> String {
    Ulid(u128::from(chain_seq) << 64 | u128::from(cursor_check(chain_seq, chain))).to_string()
}

fn decode_cursor(text: &str, chain: ChainId) -> Option<u64> {
    let value = Ulid::parse(text)?.0;
    let chain_seq = u64::try_from(value >> 64).ok()?;
    (value & u128::from(u64::MAX) == u128::from(cursor_check(chain_seq, chain))).then_some(chain_seq)
}

/// Keeps a mistyped cursor, or one of another project, from being taken for one of this list. It is no secret
/// and guards none: a list only ever shows the caller's own chain.
fn cursor_check(chain_seq: u64, chain: ChainId) -> u64 {
    let digest = Sha256::digest(format!("sealog cursor {chain} {chain_seq}"));
    u64::from_be_bytes(std::array::from_fn(|at| digest[at]))
}

fn canonical_string(value: &str) -> String {
    let mut text = Vec::new();
    json::put_string(value, &mut text);
    json::into_text(text)
}

fn date(name: &str, value: &str) -> Result<Date, Reject> {
    Date::parse(value).ok_or_else(|| invalid(name, "must be a date, YYYY-MM-DD"))
}

fn invalid(name: &str, problem: &'static str) -> Reject {
    Reject::InvalidParam { name: name.to_owned(), problem }
}

/// An integer of any length; beyond 128 bits it stops at the end of the range, which every rule here treats
/// alike.
pub fn integer(name: &str, value: &str) -> Result<i128, Reject> {
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(invalid(name, "must be an integer"));
    }
    Ok(value.parse().unwrap_or(if negative { i128::MIN } else { i128::MAX }))
}

/// Form-encoded pairs: the name decoded, the value still encoded. Stricter than browsers: malformed pairs are
/// rejected, not guessed.
struct Pairs<'q>(&'q str);

impl<'q> Iterator for Pairs<'q> {
    type Item = Result<(String, &'q str), Reject>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.0.is_empty() {
            let (pair, rest) = self.0.split_once('&').unwrap_or((self.0, ""));
            self.0 = rest;
            steps::count(1);
            if pair.is_empty() {
                continue;
            }
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = form_decode(name).ok_or_else(|| invalid(name, "is badly percent-encoded"));
            return Some(decoded.map(|name| (name, value)));
        }
        None
    }
}

/// A name or a value of a query string. None where it is badly encoded, or no UTF-8.
pub fn form_decode(text: &str) -> Option<String> {
    String::from_utf8(percent_decode(&text.replace('+', " "))?).ok()
}

/// The bytes of a percent-encoded text. None if a `%` has no two digits behind it, which decoders for
/// browsers let through.
pub fn percent_decode(text: &str) -> Option<Vec<u8>> {
    steps::count(text.len());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => crate::hex::digit(rest.next()?)? << 4 | crate::hex::digit(rest.next()?)?,
            other => other,
        });
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Mode, ProjectId, TenantId, Uuid};
    use crate::reject::Code;

    fn chain(project: u8) -> ChainId {
        ChainId {
            tenant_id: TenantId(Uuid([1; 16])),
            project_id: ProjectId(Uuid([project; 16])),
            mode: Mode::Live,
        }
    }

    fn list(query: &str) -> Result<ListQuery, String> {
        ListQuery::parse(query, chain(1)).map_err(|reject| {
            assert_eq!(reject.code(), Code::ReadInvalidParams);
            reject.to_string()
        })
    }

    #[test]
    fn every_parameter_is_understood() {
        let query = list(
            "action=a.b&actor_id=x%20y+z&resource=%C3%A9&date_from=2026-01-01&date_to=2026-01-01&limit=7",
        )
        .unwrap();
        assert_eq!(query.filter.action.as_deref(), Some("\"a.b\""));
        assert_eq!(query.filter.actor_id.as_deref(), Some("\"x y z\""));
        assert_eq!(query.filter.resource.as_deref(), Some("\"é\""));
        assert_eq!(query.filter.until_ms.unwrap() - query.filter.from_ms.unwrap(), crate::time::DAY_MS);
        assert_eq!(query.limit.get(), 7);
        assert_eq!(list(""), Ok(ListQuery::default()));
    }

    #[test]
    fn unknown_repeated_empty_and_malformed_parameters_are_named() {
        for (query, message) in [
            ("foo=1", "query parameter \"foo\" is not a parameter of this endpoint"),
            ("action=a&action=a", "query parameter \"action\" is given twice"),
            ("action=", "query parameter \"action\" must not be empty"),
            ("limit", "query parameter \"limit\" must not be empty"),
            ("action=%zz", "query parameter \"action\" is badly percent-encoded"),
            ("action=%e9", "query parameter \"action\" is badly percent-encoded"),
            ("action=%4", "query parameter \"action\" is badly percent-encoded"),
            ("date_from=2026-02-30", "query parameter \"date_from\" must be a date, YYYY-MM-DD"),
            ("limit=abc", "query parameter \"limit\" must be an integer"),
            ("limit=1.5", "query parameter \"limit\" must be an integer"),
            ("limit=%2B5", "query parameter \"limit\" must be an integer"),
            ("cursor=x", "query parameter \"cursor\" is not a cursor of this list"),
        ] {
            assert_eq!(list(query), Err(message.to_owned()));
        }
    }

    #[test]
    fn a_query_string_costs_one_pass_however_many_names_it_has() {
        let names = |count: usize| (0..count).map(|n| format!("n{n}=")).collect::<Vec<_>>().join("&");
        let repeated = "limit=1&".repeat(8000);
        let escaped = format!("action={}", "%41".repeat(20_000));
        let ampersands = "&".repeat(60_000);
        for query in [names(15_000), repeated, escaped, ampersands] {
            let (_, steps) = steps::of(|| drop(list(&query)));
            assert!(
                steps <= query.len() + ListParameter::ALL.len(),
                "{steps} steps for {} bytes",
                query.len()
            );
            let (_, steps) = steps::of(|| drop(SeqRange::parse(&query)));
            assert!(
                steps <= query.len() + SeqParameter::ALL.len(),
                "{steps} steps for {} bytes",
                query.len()
            );
        }
        // The first name that is not known ends it.
        let (refused, steps) = steps::of(|| list(&names(15_000)));
        assert_eq!(refused, Err("query parameter \"n0\" is not a parameter of this endpoint".to_owned()));
        assert!(steps < 10, "{steps}");
    }

    #[test]
    fn a_limit_outside_1_to_100_becomes_50() {
        for (value, limit) in [
            ("1", 1),
            ("100", 100),
            ("0", 50),
            ("101", 50),
            ("-1", 50),
            ("99999999999999999999999", 50),
            ("256", 50),
            ("300", 50),
        ] {
            assert_eq!(list(&format!("limit={value}")).unwrap().limit.get(), limit, "{value}");
        }
    }

    #[test]
    fn a_cursor_reads_back_in_its_own_chain_only() {
        let cursor = encode_cursor(12345, chain(1));
        assert_eq!(list(&format!("cursor={cursor}")).unwrap().before_seq, Some(12345));
        assert!(ListQuery::parse(&format!("cursor={cursor}"), chain(2)).is_err());
        let mut tampered = cursor.into_bytes();
        tampered[12] = if tampered[12] == b'0' { b'1' } else { b'0' };
        assert!(list(&format!("cursor={}", String::from_utf8(tampered).unwrap())).is_err());
    }

    #[test]
    fn a_verify_range_is_at_most_1000_events() {
        let range = |query| {
            SeqRange::parse(query).map(|range| (range.from, range.to)).map_err(|reject| reject.code())
        };
        assert_eq!(range(""), Ok((1, 1000)));
        assert_eq!(range("from_seq=5"), Ok((5, 1004)));
        assert_eq!(range("from_seq=5&to_seq=5"), Ok((5, 5)));
        assert_eq!(range("from_seq=5&to_seq=1005"), Ok((5, 1004)));
        assert_eq!(range("to_seq=99999999999999999999999999"), Ok((1, 1000)));
        assert_eq!(range("from_seq=9223372036854775807"), Ok((i64::MAX as u64, i64::MAX as u64 + 999)));
        for query in [
            "from_seq=0",
            "from_seq=-1",
            "from_seq=5&to_seq=4",
            "from_seq=9223372036854775808",
            "from_seq=x",
            "to_seq=",
            "seq=1",
            "from_seq=1&from_seq=1",
            "to_seq=0",
        ] {
            assert_eq!(range(query), Err(Code::ReadInvalidParams), "{query}");
        }
    }
}
