//! OTLP/HTTP with Protocol Buffers. Numbers of fields are those of `opentelemetry/proto/logs/v1/logs.proto` and `common/v1/common.proto`.

use std::borrow::Cow;

use sealog_core::reject::Reject;

use super::item::{Item, check_count};
use super::members::{Object, quoted};
use super::otlp::{DEPTH_MAX, Record};
use super::otlp_json::too_deep;
use super::protobuf::{Fields, Malformed, Value};

/// Why a record is none.
#[derive(Debug)]
enum Problem {
    Malformed,
    TooDeep,
}

impl From<Malformed> for Problem {
    fn from(Malformed: Malformed) -> Problem {
        Problem::Malformed
    }
}

impl From<Problem> for Reject {
    fn from(problem: Problem) -> Reject {
        match problem {
            Problem::Malformed => Reject::InvalidJson {
                detail: "the body is no ExportLogsServiceRequest of Protocol Buffers".into(),
            },
            Problem::TooDeep => too_deep(),
        }
    }
}

pub(super) fn items<'b>(body: &[u8]) -> Result<Vec<Item<'b>>, Reject> {
    let mut items: Vec<Item<'b>> = Vec::new();
    for of_resource in pieces(body, 1) {
        let of_resource = of_resource?;
        let mut resource = None;
        for found in pieces(of_resource, 1) {
            let found = attributes(found?, 1)?;
            resource = (!found.is_empty()).then(|| object(&found));
        }
        for of_scope in pieces(of_resource, 2) {
            for record in pieces(of_scope?, 2) {
                check_count(items.len() + 1)?;
                let record = record?;
                items.push(match read(record) {
                    Ok(record) => Ok(Cow::Owned(record.event(resource.as_deref()))),
                    Err(problem) => Err(problem.into()),
                });
            }
        }
    }
    Ok(items)
}

/// The fields of this number that are pieces of bytes.
fn pieces(message: &[u8], number: u64) -> impl Iterator<Item = Result<&[u8], Problem>> {
    Fields(message).filter_map(move |field| match field {
        Ok((found, Value::Bytes(piece))) if found == number => Some(Ok(piece)),
        Ok(_) => None,
        Err(malformed) => Some(Err(malformed.into())),
    })
}

fn read(message: &[u8]) -> Result<Record, Problem> {
    let mut record = Record::default();
    for field in Fields(message) {
        match field? {
            (1, Value::Fixed64(nanos)) => record.time_unix_nano = nanos,
            (3, Value::Bytes(text)) => record.severity_text = Some(utf8(text)),
            (5, Value::Bytes(body)) => record.body = Some(any_value(body, 0)?),
            (6, Value::Bytes(pair)) => record.attributes.extend(key_value(pair, 0)?),
            (9, Value::Bytes(id)) => record.trace_id = Some(hex(id)),
            (10, Value::Bytes(id)) => record.span_id = Some(hex(id)),
            (11, Value::Fixed64(nanos)) => record.observed_time_unix_nano = nanos,
            (12, Value::Bytes(text)) => record.event_name = Some(utf8(text)),
            _ => {}
        }
    }
    Ok(record)
}

fn attributes(message: &[u8], number: u64) -> Result<Vec<(String, String)>, Problem> {
    let mut found = Vec::new();
    for pair in pieces(message, number) {
        found.extend(key_value(pair?, 0)?);
    }
    Ok(found)
}

fn key_value(message: &[u8], depth: usize) -> Result<Option<(String, String)>, Problem> {
    let (mut name, mut value) = (None, "null".to_owned());
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(text)) => name = Some(utf8(text)),
            (2, Value::Bytes(any)) => value = any_value(any, depth)?,
            _ => {}
        }
    }
    Ok(name.map(|name| (name, value)))
}

/// The JSON of an `AnyValue`; of several the last one counts, as the format has it.
fn any_value(message: &[u8], depth: usize) -> Result<String, Problem> {
    if depth > DEPTH_MAX {
        return Err(Problem::TooDeep);
    }
    let mut json = "null".to_owned();
    for field in Fields(message) {
        json = match field? {
            (1, Value::Bytes(text)) => quoted(&utf8(text)),
            (2, Value::Varint(truth)) => (truth != 0).to_string(),
            (3, Value::Varint(number)) => number.cast_signed().to_string(),
            (4, Value::Fixed64(bits)) => double(f64::from_bits(bits)),
            (5, Value::Bytes(list)) => {
                let mut values = Vec::new();
                for item in pieces(list, 1) {
                    values.push(any_value(item?, depth + 1)?);
                }
                format!("[{}]", values.join(","))
            }
            (6, Value::Bytes(list)) => {
                let mut found = Vec::new();
                for pair in pieces(list, 1) {
                    found.extend(key_value(pair?, depth + 1)?);
                }
                object(&found)
            }
            (7, Value::Bytes(bytes)) => quoted(&base64(bytes)),
            _ => continue,
        };
    }
    Ok(json)
}

fn object(pairs: &[(String, String)]) -> String {
    let mut object = Object::new();
    for (name, value) in pairs {
        object.put(name, value);
    }
    object.end()
}

/// As JSON of OTLP writes it: what is no number there is a string.
fn double(value: f64) -> String {
    if value.is_nan() {
        "\"NaN\"".into()
    } else if value.is_infinite() {
        quoted(if value > 0.0 { "Infinity" } else { "-Infinity" })
    } else {
        format!("{value:?}")
    }
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let digit = usize::try_from(bits >> (18 - 6 * place) & 63).unwrap_or(0);
            text.push(if place <= chunk.len() { char::from(DIGITS[digit]) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_written_as_base64() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"\xff\xfe\xfd\xfc", "//79/A=="),
        ] {
            assert_eq!(base64(bytes), text);
        }
    }
}
