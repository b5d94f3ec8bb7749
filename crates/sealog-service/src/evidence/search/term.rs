//! What a search is made of.

use std::net::IpAddr;
use std::ops::Range;

use sealog_core::event::{FIELDS, FieldId};
use sealog_core::id::{Hash, Ulid};

use super::number::Number;

/// A term of a search, and where in the text it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    pub at: Range<usize>,
    /// Events that meet it are left out.
    pub is_excluded: bool,
    pub condition: Condition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    Field(FieldId, Pattern),
    /// By its place in the catalog: the event's action is one that the framework lists.
    Framework(usize),
    Severity(Severity),
    Ip(Network),
    /// From, to, both included.
    Seq(u64, u64),
    Meta(String, MetaTest),
    /// At or after.
    From(u64),
    /// Before.
    Until(u64),
    /// In the last so many milliseconds.
    Last(u64),
    Missing(Missing),
    /// Anywhere in action, actor, resource, session or metadata, whatever the case.
    Text(String),
    /// An event by what identifies it. The same digits may also be a text in another event: of a customer's
    /// own ids and digests.
    Named(Named, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    LogId(Ulid),
    Hash(Hash),
}

impl Condition {
    /// What it is about, as it is typed before the colon; `text` for what has no colon.
    pub fn field(&self) -> String {
        let known = |id: &FieldId| FIELDS.iter().find(|field| field.id == *id).and_then(|field| field.search);
        match self {
            Condition::Field(id, _) => known(id).map_or("", |(name, _)| name.trim_end_matches(':')),
            Condition::Framework(_) => "framework",
            Condition::Severity(_) => "severity",
            Condition::Ip(_) => "ip",
            Condition::Seq(..) => "seq",
            Condition::Meta(name, _) => return format!("meta.{name}"),
            Condition::From(_) => "from",
            Condition::Until(_) => "to",
            Condition::Last(_) => "last",
            Condition::Missing(_) => "missing",
            Condition::Text(_) | Condition::Named(..) => "text",
        }
        .to_owned()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    Is(String),
    BeginsWith(String),
}

impl Pattern {
    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Pattern::Is(wanted) => text == wanted,
            Pattern::BeginsWith(wanted) => text.starts_with(wanted.as_str()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Above,
    AtLeast,
    Below,
    AtMost,
}

impl Comparison {
    pub(super) fn holds<T: Ord>(self, value: &T, limit: &T) -> bool {
        match self {
            Comparison::Above => value > limit,
            Comparison::AtLeast => value >= limit,
            Comparison::Below => value < limit,
            Comparison::AtMost => value <= limit,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Spelled as the catalog does: `warn` is `warning`.
    Is(String),
    Compare(Comparison, Level),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Info,
    Warning,
    Critical,
}

impl Level {
    pub(super) fn of(text: &str) -> Option<Level> {
        match text {
            "info" => Some(Level::Info),
            "warning" | "warn" => Some(Level::Warning),
            "critical" => Some(Level::Critical),
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetaTest {
    Is(String),
    BeginsWith(String),
    Compare(Comparison, Number),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Missing {
    Field(FieldId),
    Meta(String),
}

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    /// `203.0.113.7`, `203.0.113.0/24`, `2001:db8::/32`.
    pub(super) fn parse(text: &str) -> Option<Network> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
            None => most,
        };
        (bits <= most).then_some(Network { address, bits })
    }

    pub(super) fn contains(&self, text: &str) -> bool {
        let same = |width: u32, left: u128, right: u128| {
            (left ^ right).checked_shr(width - self.bits).unwrap_or(0) == 0
        };
        match (self.address, text.parse::<IpAddr>().map(|address| address.to_canonical())) {
            (IpAddr::V4(net), Ok(IpAddr::V4(address))) => {
                same(32, u128::from(net.to_bits()), u128::from(address.to_bits()))
            }
            (IpAddr::V6(net), Ok(IpAddr::V6(address))) => same(128, net.to_bits(), address.to_bits()),
            _ => false,
        }
    }
}
