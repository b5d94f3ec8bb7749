//! Only where a link is handed over is it written out.

use sealog_service::Secret;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(secret: &Secret, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&secret.0)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Secret, D::Error> {
    String::deserialize(from).map(Secret)
}
