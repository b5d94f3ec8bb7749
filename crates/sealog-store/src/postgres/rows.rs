//! Events and ids as rows.

use std::borrow::Cow;
use std::sync::LazyLock;

use sealog_core::canonical::{self, EventText, Fields};
use sealog_core::chain::{Head, Sealed};
use sealog_core::event::{Annotations, StoredEvent};
use sealog_core::id::{ChainId, Hash, Mode, ProjectId, TenantId, Ulid, Uuid};
use sealog_core::json;
use sha2::{Digest, Sha256};
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

/// 16 bytes: a UUID, or a ULID, in a column of type `uuid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(pub [u8; 16]);

impl Id {
    pub(super) fn of_ulid(ulid: Ulid) -> Id {
        Id(ulid.to_bytes())
    }

    /// A chain's own: all that names it, in 16 bytes, the same on every node without asking anyone.
    pub(super) fn of_chain(chain: ChainId) -> Id {
        let mut hasher = Sha256::new();
        hasher.update(b"sealog chain");
        hasher.update(chain.tenant_id.0.0);
        hasher.update(chain.project_id.0.0);
        hasher.update(chain.mode.as_str());
        let digest: [u8; 32] = hasher.finalize().into();
        Id(std::array::from_fn(|at| digest[at]))
    }

    pub(super) fn ulid(self) -> Ulid {
        Ulid::from_bytes(self.0)
    }

    pub(super) fn uuid(self) -> Uuid {
        Uuid(self.0)
    }
}

impl ToSql for Id {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Id, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Id(raw.try_into()?))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::UUID
    }
}

/// A SHA-256 in a column of type `bytea`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Digest32(pub [u8; 32]);

impl ToSql for Digest32 {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::BYTEA
    }

    to_sql_checked!();
}

/// Text that may hold a NUL, which PostgreSQL's cannot: it and the mark that stands for it are written as two
/// characters. All other text is kept as it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a>(pub &'a str);

/// The text that a [`Text`] was.
pub(super) struct Kept(pub String);

const MARK: char = '\u{1}';

pub(super) fn escape(text: &str) -> Cow<'_, str> {
    match text.contains(['\0', MARK]) {
        true => text.replace(MARK, "\u{1}1").replace('\0', "\u{1}0").into(),
        false => text.into(),
    }
}

pub(super) fn unescape(text: &str) -> Cow<'_, str> {
    match text.contains(MARK) {
        true => text.replace("\u{1}0", "\0").replace("\u{1}1", "\u{1}").into(),
        false => text.into(),
    }
}

impl ToSql for Text<'_> {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        out.extend_from_slice(escape(self.0).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Kept {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Kept, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Kept(unescape(std::str::from_utf8(raw)?).into_owned()))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TEXT
    }
}

/// A time, a count or a seq. PostgreSQL's integers are signed; none of these reaches the upper half.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Nothing for bytes that are no SHA-256.
pub(super) fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}

pub(super) fn mode(text: &str) -> Option<Mode> {
    Mode::ALL.into_iter().find(|mode| mode.as_str() == text)
}

/// Of the columns `chain_seq`, `log_id` and `hash`, whatever they are called.
pub(super) fn head(row: &Row, seq: &str, log_id: &str, hash_column: &str) -> Option<Head> {
    Some(Head {
        chain_seq: unsigned(row.get::<_, Option<i64>>(seq)?),
        log_id: row.get::<_, Option<Id>>(log_id)?.ulid(),
        hash: hash(row.get::<_, Option<&[u8]>>(hash_column)?)?,
    })
}

/// The last event of a chain that was dropped for its age, by the columns of its row; `end` is the chain's
/// last event. Nothing else makes a [`Head`] of these columns: whoever can write them could hide a deletion.
/// So they are believed of test chains alone, and never up to the end, which stays.
pub(super) fn dropped(row: &Row, chain: ChainId, end: u64) -> Head {
    let dropped = head(row, "dropped_seq", "dropped_log_id", "dropped_hash");
    dropped.filter(|dropped| may_be_dropped(chain, dropped.chain_seq, end)).unwrap_or(Head::EMPTY)
}

/// Whether the events of a chain up to this one may have been dropped. `end` is its last.
pub(super) fn may_be_dropped(chain: ChainId, seq: u64, end: u64) -> bool {
    chain.mode == Mode::Test && (1..end).contains(&seq)
}

/// All columns of an event but its chain's, in the order of [`EventColumns::params`].
pub(super) fn columns() -> &'static str {
    static COLUMNS: LazyLock<String> = LazyLock::new(|| {
        let sealed = "chain_seq, log_id, timestamp_ms, prev_hash, hash, action, actor_id, resource, metadata";
        format!("{sealed}, {}, schema_version", Annotations::NAMES.join(", "))
    });
    &COLUMNS
}

/// The types of the [`columns`].
pub(super) fn value_types() -> Vec<Type> {
    types([Type::INT8, Type::UUID, Type::INT8, Type::BYTEA, Type::BYTEA], Type::TEXT, Type::INT4)
}

/// The same for columns of many events.
pub(super) fn array_types() -> Vec<Type> {
    let sealed = [Type::INT8_ARRAY, Type::UUID_ARRAY, Type::INT8_ARRAY, Type::BYTEA_ARRAY, Type::BYTEA_ARRAY];
    types(sealed, Type::TEXT_ARRAY, Type::INT4_ARRAY)
}

fn types(sealed: [Type; 5], text: Type, version: Type) -> Vec<Type> {
    let texts = std::iter::repeat_n(text, 4 + Annotations::NAMES.len());
    sealed.into_iter().chain(texts).chain([version]).collect()
}

/// Events on their way into the table, column by column: one statement takes any number of them.
#[derive(Debug, Default)]
pub(super) struct EventColumns<'a> {
    chain_seq: Vec<i64>,
    log_id: Vec<Id>,
    timestamp_ms: Vec<i64>,
    prev_hash: Vec<Digest32>,
    hash: Vec<Digest32>,
    action: Vec<String>,
    actor_id: Vec<Option<String>>,
    resource: Vec<Option<String>>,
    metadata: Vec<Option<&'a str>>,
    annotations: [Vec<Option<Text<'a>>>; Annotations::NAMES.len()],
    schema_version: Vec<i32>,
}

impl<'a> EventColumns<'a> {
    /// The text must be [`storable`].
    pub(super) fn push(
        &mut self,
        schema_version: u32,
        sealed: &Sealed,
        text: &'a EventText,
        annotations: &'a Annotations,
    ) {
        self.schema_version.push(i32::try_from(schema_version).unwrap_or(i32::MAX));
        let columns = Columns::of(text).expect("request_bytes has looked at it");
        self.chain_seq.push(signed(sealed.chain_seq));
        self.log_id.push(Id::of_ulid(sealed.log_id));
        self.timestamp_ms.push(signed(sealed.timestamp_ms()));
        self.prev_hash.push(Digest32(sealed.prev_hash.0));
        self.hash.push(Digest32(sealed.hash.0));
        self.action.push(columns.action);
        self.actor_id.push(columns.actor_id);
        self.resource.push(columns.resource);
        self.metadata.push(columns.metadata);
        for (column, value) in self.annotations.iter_mut().zip(annotations.values()) {
            column.push(value.map(Text));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.chain_seq.len()
    }

    pub(super) fn params(&self) -> Vec<&(dyn ToSql + Sync)> {
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![
            &self.chain_seq,
            &self.log_id,
            &self.timestamp_ms,
            &self.prev_hash,
            &self.hash,
            &self.action,
            &self.actor_id,
            &self.resource,
            &self.metadata,
        ];
        params.extend(self.annotations.iter().map(|column| column as &(dyn ToSql + Sync)));
        params.push(&self.schema_version);
        params
    }

    /// One event, in the order of the columns.
    pub(super) fn row(&self, at: usize) -> Vec<&(dyn ToSql + Sync)> {
        let mut row: Vec<&(dyn ToSql + Sync)> = vec![
            &self.chain_seq[at],
            &self.log_id[at],
            &self.timestamp_ms[at],
            &self.prev_hash[at],
            &self.hash[at],
            &self.action[at],
            &self.actor_id[at],
            &self.resource[at],
            &self.metadata[at],
        ];
        row.extend(self.annotations.iter().map(|column| &column[at] as &(dyn ToSql + Sync)));
        row.push(&self.schema_version[at]);
        row
    }
}

/// The fields that are hashed, as columns: strings as they are meant, `metadata` as it is written.
struct Columns<'a> {
    action: String,
    actor_id: Option<String>,
    resource: Option<String>,
    metadata: Option<&'a str>,
}

impl Columns<'_> {
    fn of(text: &EventText) -> Option<Columns<'_>> {
        let Fields { action, actor_id, resource, metadata } = text.fields();
        let optional =
            |value: Option<&str>| value.map_or(Some(None), |value| Some(Some(json::decode(value)?)));
        Some(Columns {
            action: json::decode(action)?,
            actor_id: optional(actor_id)?,
            resource: optional(resource)?,
            metadata,
        })
    }
}

/// Whether the columns can hold an event so that reading gives the same text back. No field that is hashed
/// has a NUL; `metadata` writes it as an escape.
pub(super) fn storable(text: &EventText) -> bool {
    let whole = |value: &str| !value.contains('\0');
    let same = |columns: &Columns<'_>| {
        let strings = [Some(&columns.action), columns.actor_id.as_ref(), columns.resource.as_ref()];
        strings.into_iter().flatten().all(|value| whole(value))
            && event_text(
                &columns.action,
                columns.actor_id.as_deref(),
                columns.resource.as_deref(),
                columns.metadata,
            )
            .is_some_and(|again| again == *text)
    };
    Columns::of(text).is_some_and(|columns| same(&columns))
}

fn event_text(
    action: &str,
    actor_id: Option<&str>,
    resource: Option<&str>,
    metadata: Option<&str>,
) -> Option<EventText> {
    let quoted = |value: &str| {
        let mut out = Vec::with_capacity(value.len() + 2);
        json::put_string(value, &mut out);
        String::from_utf8(out).ok()
    };
    let optional = |value: Option<&str>| value.map_or(Some(None), |value| Some(Some(quoted(value)?)));
    let (action, actor_id, resource) = (quoted(action)?, optional(actor_id)?, optional(resource)?);
    if metadata.is_some_and(|metadata| !metadata.starts_with('{') || !metadata.ends_with('}')) {
        return None;
    }
    Some(EventText::new(Fields {
        action: &action,
        actor_id: actor_id.as_deref(),
        resource: resource.as_deref(),
        metadata,
    }))
}

/// The event of a row, as it stands there. Nothing for values that no event has; whether it is the event that
/// was sealed only [`is_as_sealed`] can tell.
pub(super) fn event(row: &Row) -> Option<StoredEvent> {
    let text = |column: &str| row.get::<_, Option<&str>>(column);
    let annotations = Annotations::NAMES.map(|column| row.get::<_, Option<Kept>>(column).map(|kept| kept.0));
    Some(StoredEvent {
        schema_version: u32::try_from(row.get::<_, i32>("schema_version")).ok()?,
        tenant_id: TenantId(row.get::<_, Id>("tenant_id").uuid()),
        project_id: ProjectId(row.get::<_, Id>("project_id").uuid()),
        timestamp_ms: u64::try_from(row.get::<_, i64>("timestamp_ms")).ok()?,
        sealed: Sealed {
            chain_seq: chain_seq(row),
            log_id: row.get::<_, Id>("log_id").ulid(),
            prev_hash: hash(row.get("prev_hash"))?,
            hash: hash(row.get("hash"))?,
        },
        text: event_text(row.get("action"), text("actor_id"), text("resource"), text("metadata"))?,
        annotations: Annotations::from_values(annotations.each_ref().map(Option::as_deref)),
    })
}

pub(super) fn chain_seq(row: &Row) -> u64 {
    unsigned(row.get("chain_seq"))
}

/// Whether the fields of an event give its hash: the checksum that every event has anyway.
pub(super) fn is_as_sealed(event: &StoredEvent, chain: ChainId) -> bool {
    let sealed = &event.sealed;
    let text = event.text.as_str();
    event.chain(chain.mode) == chain
        && sealed.log_id.timestamp_ms() == event.timestamp_ms
        && canonical::hash(sealed.prev_hash, sealed.log_id, event.tenant_id, text, event.timestamp_ms)
            == sealed.hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_whatever_is_in_it() {
        for text in ["", "é", "a\0b", "\u{1}", "\u{1}0", "\0\u{1}1\0", "1\u{1}10"] {
            let mut out = BytesMut::new();
            Text(text).to_sql(&Type::TEXT, &mut out).unwrap();
            assert!(!out.contains(&0), "{text:?}");
            assert_eq!(Kept::from_sql(&Type::TEXT, &out).unwrap().0, text);
        }
    }
}
