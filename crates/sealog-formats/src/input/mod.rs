//! What shippers send, as bodies of `POST /v1/events`.

mod cloudevents;
mod item;
mod json;
mod members;
mod otlp;
mod otlp_json;
mod otlp_protobuf;
mod protobuf;
mod table;

use std::borrow::Cow;

use sealog_core::reject::Reject;

pub use cloudevents::{ActionNames, attributes as cloudevent_attributes, event as cloud_event};
pub use item::{EVENTS_BYTES_MAX, ITEMS_MAX, Item};
pub use otlp::{ATTRIBUTES_MAX, DEPTH_MAX};
pub(crate) use table::TYPE_PREFIX;
pub use table::{MAPPINGS, Mapping, Place, Row};

/// How a body is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adapter {
    /// An array of events, or one for each line.
    Json,
    /// One event in structured mode, or an array of them.
    CloudEvents,
    /// One event in binary mode: the attributes of its headers ([`cloudevent_attributes`]) as a line, behind
    /// it the data.
    CloudEventBinary,
    OtlpJson,
    OtlpProtobuf,
}

impl Adapter {
    /// Where it is. Part of what makes a request the same as another.
    pub fn path(self) -> &'static str {
        match self {
            Adapter::Json => "/ingest/json",
            Adapter::CloudEvents | Adapter::CloudEventBinary => "/ingest/cloudevents",
            Adapter::OtlpJson | Adapter::OtlpProtobuf => "/ingest/otlp/v1/logs",
        }
    }

    pub fn is_otlp(self) -> bool {
        matches!(self, Adapter::OtlpJson | Adapter::OtlpProtobuf)
    }

    /// The items of a body, in their order. An error is about the body as a whole; what is wrong with one
    /// item stands in its place.
    pub fn items(self, body: &[u8]) -> Result<Vec<Item<'_>>, Reject> {
        let items = match self {
            Adapter::Json => json::items(utf8(body)?, |item| Ok(Cow::Borrowed(item)))?,
            Adapter::CloudEvents => {
                let names = ActionNames::default();
                json::items(utf8(body)?, |item| cloudevents::event(item, &names).map(Cow::Owned))?
            }
            Adapter::CloudEventBinary => vec![cloudevents::binary(utf8(body)?).map(Cow::Owned)],
            Adapter::OtlpJson => otlp_json::items(utf8(body)?)?,
            Adapter::OtlpProtobuf => otlp_protobuf::items(body)?,
        };
        if items.is_empty() {
            return Err(Reject::BatchEmpty);
        }
        Ok(items)
    }
}

fn utf8(body: &[u8]) -> Result<&str, Reject> {
    std::str::from_utf8(body)
        .map_err(|error| Reject::InvalidJson { detail: format!("not UTF-8 at byte {}", error.valid_up_to()) })
}
