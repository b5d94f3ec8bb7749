//! What a search asks of indexes, and what is left to hold against each event that they lead to.
//!
//! The whole search is held against every event, whatever the indexes say: they only spare looks. Terms of
//! one field are alternatives, different fields must all match; comparisons of one field narrow together
//! (`meta.amount:>10 meta.amount:<20` is a range). Texts must all be there.

use std::borrow::Cow;
use std::collections::HashSet;

use sealog_control::Grants;
use sealog_core::catalog::Catalog;
use sealog_core::event::{FieldId, StoredEvent, Value};
use sealog_core::json;
use sealog_core::metadata::{self, FieldIs, quoted};
use sealog_core::query::Filter;

use super::number::Number;
use super::parse::Query;
use super::term::{Comparison, Condition, Level, MetaTest, Missing, Named, Network, Pattern, Severity};

/// Lists that a search may ask for side by side. Alternatives beyond that are looked for one by one.
pub const BRANCHES_MAX: usize = 8;

/// A search that is ready to run.
#[derive(Debug)]
pub struct Plan {
    /// Each must have a check that holds.
    groups: Vec<Group>,
    excluded: Vec<Check>,
    /// What indexes are asked for; together they have every event that matches.
    pub(super) filters: Vec<Filter>,
    /// Whether indexes answer all of it.
    pub(super) is_exact: bool,
    /// Events outside of this are not looked at: from, to, both included.
    pub(super) seqs: (u64, u64),
    from_ms: Option<u64>,
    until_ms: Option<u64>,
}

/// Terms of one field.
#[derive(Debug)]
struct Group {
    key: Key,
    alternatives: Vec<Check>,
    /// All of them together are one more alternative.
    comparisons: Vec<Check>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Field(FieldId),
    Framework,
    Severity,
    Ip,
    Seq,
    Meta(String),
    Missing,
    /// Each text is a key of its own.
    Text(String),
}

#[derive(Debug)]
enum Check {
    Field(FieldId, Pattern),
    Framework(HashSet<&'static str>),
    Severity(Severity),
    Ip(Network),
    Seq(u64, u64),
    Member(FieldIs),
    /// Names have their quotes, and texts are canonical.
    MemberBeginsWith(String, String),
    MemberCompare(String, Comparison, Number),
    Missing(Missing),
    MissingMember(String),
    /// In lower case, as it is and as metadata would write it.
    Text(String, String),
    /// And what else its digits may be.
    Named(Named, Box<Check>),
}

impl Plan {
    pub fn new(query: &Query, now_ms: u64) -> Plan {
        let mut plan = Plan {
            groups: Vec::new(),
            excluded: Vec::new(),
            filters: Vec::new(),
            is_exact: false,
            seqs: (0, u64::MAX),
            from_ms: None,
            until_ms: None,
        };
        for term in &query.terms {
            match &term.condition {
                Condition::From(ms) => plan.from_ms = Some(*ms),
                Condition::Until(ms) => plan.until_ms = Some(*ms),
                Condition::Last(ms) => plan.from_ms = Some(now_ms.saturating_sub(*ms)),
                condition if term.is_excluded => plan.excluded.push(Check::of(condition)),
                condition => plan.add(key(condition), Check::of(condition)),
            }
        }
        plan.seqs = plan.seq_envelope();
        (plan.filters, plan.is_exact) = plan.branches();
        plan
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
            && self.excluded.is_empty()
            && self.from_ms.is_none()
            && self.until_ms.is_none()
    }

    /// What a membership leaves of it.
    pub fn within(mut self, grants: &Grants) -> Plan {
        let later = |wanted: Option<u64>| wanted.max(grants.from_ms);
        let earlier = |wanted: Option<u64>| match (wanted, grants.until_ms) {
            (Some(wanted), Some(granted)) => Some(wanted.min(granted)),
            (wanted, granted) => wanted.or(granted),
        };
        (self.from_ms, self.until_ms) = (later(self.from_ms), earlier(self.until_ms));
        for filter in &mut self.filters {
            (filter.from_ms, filter.until_ms) = (later(filter.from_ms), earlier(filter.until_ms));
        }
        self
    }

    /// And what another filter leaves of it: the fields of an export beside its search.
    pub fn and(mut self, other: &Filter) -> Plan {
        for (field, value) in [
            (FieldId::Action, &other.action),
            (FieldId::ActorId, &other.actor_id),
            (FieldId::Resource, &other.resource),
        ] {
            if let Some(value) = value.as_deref().and_then(json::decode) {
                // A group of its own: alternatives of the search stay alternatives among themselves.
                let alternatives = vec![Check::Field(field, Pattern::Is(value))];
                self.groups.push(Group { key: Key::Field(field), alternatives, comparisons: Vec::new() });
            }
        }
        self.from_ms = self.from_ms.max(other.from_ms);
        self.until_ms = match (self.until_ms, other.until_ms) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
        (self.filters, self.is_exact) = self.branches();
        self
    }

    fn add(&mut self, key: Key, check: Check) {
        let at = self.groups.iter().position(|group| group.key == key).unwrap_or_else(|| {
            self.groups.push(Group { key, alternatives: Vec::new(), comparisons: Vec::new() });
            self.groups.len() - 1
        });
        let group = &mut self.groups[at];
        match check {
            Check::MemberCompare(..) | Check::Severity(Severity::Compare(..)) => {
                group.comparisons.push(check)
            }
            check => group.alternatives.push(check),
        }
    }

    /// The time that it asks for: from, and before.
    pub fn times_ms(&self) -> (Option<u64>, Option<u64>) {
        (self.from_ms, self.until_ms)
    }

    /// Numbers outside of these are not asked for; both are included.
    pub fn seqs(&self) -> (u64, u64) {
        self.seqs
    }

    /// Filters that indexes answer and that have every event between them that matches. Nothing where all
    /// events have to be looked at.
    pub fn indexed(&self) -> Option<Vec<Filter>> {
        let is_indexed = |filter: &Filter| {
            filter.action.is_some()
                || filter.actor_id.is_some()
                || filter.resource.is_some()
                || !filter.fields.is_empty()
        };
        self.filters.iter().all(is_indexed).then(|| self.filters.clone())
    }

    /// Whether an event is what was asked for.
    pub fn matches(&self, event: &StoredEvent) -> bool {
        let seq = event.sealed.chain_seq;
        (self.seqs.0..=self.seqs.1).contains(&seq)
            && self.has_time(event.timestamp_ms)
            && self.groups.iter().all(|group| group.holds(event))
            && !self.excluded.iter().any(|check| check.holds(event))
    }

    /// Whether a time is among those that are asked for.
    pub(super) fn has_time(&self, ms: u64) -> bool {
        self.from_ms.is_none_or(|from| ms >= from) && self.until_ms.is_none_or(|until| ms < until)
    }

    /// The first and the last number that any of the ranges has.
    fn seq_envelope(&self) -> (u64, u64) {
        let group = self.groups.iter().find(|group| group.key == Key::Seq);
        let ranges =
            group.into_iter().flat_map(|group| &group.alternatives).filter_map(|check| match check {
                Check::Seq(from, to) => Some((*from, *to)),
                _ => None,
            });
        ranges.reduce(|left, right| (left.0.min(right.0), left.1.max(right.1))).unwrap_or((0, u64::MAX))
    }

    /// Filters for indexes: every combination of alternatives of those fields that have an index, as far as
    /// there are few. And whether nothing is left to look at.
    fn branches(&self) -> (Vec<Filter>, bool) {
        let mut indexed: Vec<Vec<Exact>> = self.groups.iter().filter_map(Group::exact).collect();
        let all = indexed.len() == self.groups.len() && self.excluded.is_empty();
        // Few alternatives first: each makes what the others have to look at smaller.
        indexed.sort_by_key(Vec::len);
        let base = Filter { from_ms: self.from_ms, until_ms: self.until_ms, ..Filter::default() };
        let mut filters = vec![base];
        let mut left_out = false;
        for alternatives in indexed {
            let taken: Option<Vec<Filter>> = filters
                .iter()
                .flat_map(|filter| alternatives.iter().map(|exact| exact.added_to(filter)))
                .collect();
            match taken.filter(|taken| taken.len() <= BRANCHES_MAX) {
                Some(taken) => filters = taken,
                None => left_out = true,
            }
        }
        (filters, all && !left_out)
    }
}

/// A value that an index can be asked for, as canonical text.
#[derive(Clone, Debug)]
enum Exact {
    Action(String),
    Actor(String),
    Resource(String),
    Member(FieldIs),
}

impl Exact {
    /// Nothing where the filter asks for a value of the field already.
    fn added_to(&self, filter: &Filter) -> Option<Filter> {
        let mut filter = filter.clone();
        let set = |place: &mut Option<String>, value: &String| {
            place.is_none().then(|| {
                *place = Some(value.clone());
            })
        };
        match self {
            Exact::Action(value) => set(&mut filter.action, value)?,
            Exact::Actor(value) => set(&mut filter.actor_id, value)?,
            Exact::Resource(value) => set(&mut filter.resource, value)?,
            Exact::Member(field) => filter.fields.push(field.clone()),
        }
        Some(filter)
    }
}

impl Group {
    fn holds(&self, event: &StoredEvent) -> bool {
        self.alternatives.iter().any(|check| check.holds(event))
            || !self.comparisons.is_empty() && self.comparisons.iter().all(|check| check.holds(event))
    }

    /// What to ask indexes for, if they know all alternatives.
    fn exact(&self) -> Option<Vec<Exact>> {
        if !self.comparisons.is_empty() {
            return None;
        }
        let mut all = Vec::new();
        for check in &self.alternatives {
            match check {
                Check::Field(FieldId::Action, Pattern::Is(value)) => all.push(Exact::Action(quoted(value))),
                Check::Field(FieldId::ActorId, Pattern::Is(value)) => all.push(Exact::Actor(quoted(value))),
                Check::Field(FieldId::Resource, Pattern::Is(value)) => {
                    all.push(Exact::Resource(quoted(value)))
                }
                Check::Framework(actions) => {
                    all.extend(actions.iter().map(|action| Exact::Action(quoted(action))));
                }
                Check::Member(field) => all.push(Exact::Member(field.clone())),
                _ => return None,
            }
        }
        // Nothing to ask for is not the same as nothing to find.
        Some(all).filter(|all| !all.is_empty())
    }
}

fn key(condition: &Condition) -> Key {
    match condition {
        Condition::Field(field, _) => Key::Field(*field),
        Condition::Framework(_) => Key::Framework,
        Condition::Severity(_) => Key::Severity,
        Condition::Ip(_) => Key::Ip,
        Condition::Seq(..) => Key::Seq,
        Condition::Meta(name, _) => Key::Meta(name.clone()),
        Condition::Missing(_) => Key::Missing,
        Condition::Text(text) | Condition::Named(_, text) => Key::Text(text.clone()),
        Condition::From(_) | Condition::Until(_) | Condition::Last(_) => {
            unreachable!("times are a window, not terms that are held against events one by one")
        }
    }
}

impl Check {
    fn of(condition: &Condition) -> Check {
        match condition {
            Condition::Field(field, pattern) => Check::Field(*field, pattern.clone()),
            Condition::Framework(place) => {
                let catalog = Catalog::builtin();
                let lists =
                    |entry: &&sealog_core::catalog::Entry| catalog.frameworks_of(entry).contains(*place);
                let entries = catalog.entries.iter().filter(lists);
                Check::Framework(entries.map(|entry| entry.action.as_str()).collect())
            }
            Condition::Severity(severity) => Check::Severity(severity.clone()),
            Condition::Ip(network) => Check::Ip(*network),
            Condition::Seq(from, to) => Check::Seq(*from, *to),
            Condition::Meta(name, MetaTest::Is(value)) => Check::Member(FieldIs::new(name, value)),
            Condition::Meta(name, MetaTest::BeginsWith(value)) => {
                Check::MemberBeginsWith(quoted(name), FieldIs::new(name, value).text().to_owned())
            }
            Condition::Meta(name, MetaTest::Compare(comparison, limit)) => {
                Check::MemberCompare(quoted(name), *comparison, limit.clone())
            }
            Condition::Missing(Missing::Meta(name)) => Check::MissingMember(quoted(name)),
            Condition::Missing(missing) => Check::Missing(missing.clone()),
            Condition::Text(text) => {
                let lower = text.to_lowercase();
                let escaped = FieldIs::new("", &lower).text().to_owned();
                Check::Text(lower, escaped)
            }
            Condition::Named(named, text) => {
                Check::Named(*named, Box::new(Check::of(&Condition::Text(text.clone()))))
            }
            Condition::From(_) | Condition::Until(_) | Condition::Last(_) => {
                unreachable!("times are a window, not terms that are held against events one by one")
            }
        }
    }

    fn holds(&self, event: &StoredEvent) -> bool {
        let metadata = event.text.fields().metadata;
        match self {
            Check::Field(field, pattern) => value(event, *field).is_some_and(|value| pattern.matches(&value)),
            Check::Framework(actions) => {
                value(event, FieldId::Action).is_some_and(|action| actions.contains(&*action))
            }
            Check::Severity(severity) => {
                event.annotations.severity.as_deref().is_some_and(|text| match severity {
                    Severity::Is(wanted) => text == wanted || text == "warn" && wanted == "warning",
                    Severity::Compare(comparison, limit) => {
                        Level::of(text).is_some_and(|level| comparison.holds(&level, limit))
                    }
                })
            }
            Check::Ip(network) => {
                event.annotations.ip_address.as_deref().is_some_and(|text| network.contains(text))
            }
            Check::Seq(from, to) => (*from..=*to).contains(&event.sealed.chain_seq),
            Check::Member(field) => field.matches(metadata),
            Check::MemberBeginsWith(name, begin) => {
                scalars_named(metadata, name).any(|text| text.starts_with(begin.as_str()))
            }
            Check::MemberCompare(name, comparison, limit) => {
                let holds =
                    |text: &str| Number::parse(text).is_some_and(|number| comparison.holds(&number, limit));
                scalars_named(metadata, name).any(holds)
            }
            Check::Missing(missing) => is_missing(event, missing),
            Check::MissingMember(name) => {
                let named = metadata.into_iter().flat_map(|metadata| metadata::named(metadata, name));
                named.last().is_none_or(|value| value == "null")
            }
            Check::Text(plain, escaped) => {
                let fields = [FieldId::Action, FieldId::ActorId, FieldId::Resource, FieldId::SessionId];
                fields
                    .into_iter()
                    .filter_map(|field| value(event, field))
                    .any(|text| text.to_lowercase().contains(plain))
                    || metadata.is_some_and(|metadata| metadata.to_lowercase().contains(escaped))
            }
            Check::Named(Named::LogId(log_id), text) => event.sealed.log_id == *log_id || text.holds(event),
            Check::Named(Named::Hash(hash), text) => event.sealed.hash == *hash || text.holds(event),
        }
    }
}

fn scalars_named<'e>(metadata: Option<&'e str>, name: &str) -> impl Iterator<Item = &'e str> {
    let all = metadata.into_iter().flat_map(metadata::scalars);
    all.filter(move |(known, _)| *known == name).map(|(_, text)| text)
}

/// The value of a field as text.
fn value(event: &StoredEvent, field: FieldId) -> Option<Cow<'_, str>> {
    event.value(field).map(Value::to_text)
}

fn is_missing(event: &StoredEvent, missing: &Missing) -> bool {
    match missing {
        Missing::Field(field) => event.value(*field).is_none(),
        Missing::Meta(_) => unreachable!("it is a check of its own"),
    }
}
