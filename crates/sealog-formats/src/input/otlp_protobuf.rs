//! OTLP/HTTP with Protocol Buffers. Numbers of fields are those of `opentelemetry/proto/logs/v1/logs.proto`
//! and `common/v1/common.proto`.

use std::borrow::Cow;

use sealog_core::json;
use sealog_core::reject::Reject;

use super::item::{Item, Written};
use super::otlp::{ATTRIBUTES_MAX, DEPTH_MAX, Record, object, too_deep, too_many_attributes};
use super::protobuf::{Fields, Malformed, Value};

/// Why a record is none.
#[derive(Debug)]
enum Problem {
    Malformed,
    TooDeep,
    TooManyAttributes,
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
                detail: "the body is not a Protocol Buffers ExportLogsServiceRequest".into(),
            },
            Problem::TooDeep => too_deep(),
            Problem::TooManyAttributes => too_many_attributes(),
        }
    }
}

pub(super) fn items<'b>(body: &[u8]) -> Result<Vec<Item<'b>>, Reject> {
    let mut items = Written::default();
    for of_resource in pieces(body, 1) {
        let of_resource = of_resource?;
        let mut resource = None;
        for found in pieces(of_resource, 1) {
            resource = object(&attributes(found?)?);
        }
        for of_scope in pieces(of_resource, 2) {
            for record in pieces(of_scope?, 2) {
                let record = record?;
                items.add(|| Ok(read(record)?.event(resource.as_deref())))?;
            }
        }
    }
    Ok(items.into_items())
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
            (5, Value::Bytes(body)) => record.body = Some(json_of(body)?),
            (6, Value::Bytes(pair)) => add_attribute(pair, &mut record.attributes)?,
            (9, Value::Bytes(id)) => record.trace_id = Some(hex::encode(id)),
            (10, Value::Bytes(id)) => record.span_id = Some(hex::encode(id)),
            (11, Value::Fixed64(nanos)) => record.observed_time_unix_nano = nanos,
            (12, Value::Bytes(text)) => record.event_name = Some(utf8(text)),
            _ => {}
        }
    }
    Ok(record)
}

/// Of a `Resource`.
fn attributes(message: &[u8]) -> Result<Vec<(String, String)>, Problem> {
    let mut found = Vec::new();
    for pair in pieces(message, 1) {
        add_attribute(pair?, &mut found)?;
    }
    Ok(found)
}

fn add_attribute(pair: &[u8], to: &mut Vec<(String, String)>) -> Result<(), Problem> {
    let Some((name, value)) = key_value(pair)? else { return Ok(()) };
    if to.len() == ATTRIBUTES_MAX {
        return Err(Problem::TooManyAttributes);
    }
    to.push((name.into_owned(), json_of(value)?));
    Ok(())
}

/// The name and the `AnyValue` of a `KeyValue`.
type Named<'m> = (Cow<'m, str>, &'m [u8]);

/// Without a name it is none; a value that is absent is an empty one.
fn key_value(message: &[u8]) -> Result<Option<Named<'_>>, Problem> {
    let (mut name, mut value) = (None, &[][..]);
    for field in Fields(message) {
        match field? {
            (1, Value::Bytes(text)) => name = Some(String::from_utf8_lossy(text)),
            (2, Value::Bytes(any)) => value = any,
            _ => {}
        }
    }
    Ok(name.map(|name| (name, value)))
}

fn json_of(any_value: &[u8]) -> Result<String, Problem> {
    let mut out = Vec::new();
    put_any_value(any_value, 0, &mut out)?;
    Ok(String::from_utf8(out).unwrap_or_default())
}

/// Writes the JSON of an `AnyValue`; of several the last one counts, as the format has it.
fn put_any_value(message: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
    if depth > DEPTH_MAX {
        return Err(Problem::TooDeep);
    }
    let begun = out.len();
    for field in Fields(message) {
        let before = out.len();
        match field? {
            (1, Value::Bytes(text)) => json::put_string(&String::from_utf8_lossy(text), out),
            (2, Value::Varint(truth)) => out.extend((truth != 0).to_string().as_bytes()),
            (3, Value::Varint(number)) => out.extend(number.cast_signed().to_string().as_bytes()),
            (4, Value::Fixed64(bits)) => put_double(f64::from_bits(bits), out),
            (5, Value::Bytes(list)) => put_list(list, depth + 1, out)?,
            (6, Value::Bytes(list)) => put_map(list, depth + 1, out)?,
            (7, Value::Bytes(bytes)) => json::put_string(&base64(bytes), out),
            _ => continue,
        }
        out.drain(begun..before);
    }
    if out.len() == begun {
        out.extend(b"null");
    }
    Ok(())
}

fn put_list(list: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
    out.push(b'[');
    for (number, item) in pieces(list, 1).enumerate() {
        if number > 0 {
            out.push(b',');
        }
        put_any_value(item?, depth, out)?;
    }
    out.push(b']');
    Ok(())
}

fn put_map(list: &[u8], depth: usize, out: &mut Vec<u8>) -> Result<(), Problem> {
    out.push(b'{');
    let mut is_first = true;
    for pair in pieces(list, 1) {
        let Some((name, value)) = key_value(pair?)? else { continue };
        if !std::mem::replace(&mut is_first, false) {
            out.push(b',');
        }
        json::put_string(&name, out);
        out.push(b':');
        put_any_value(value, depth, out)?;
    }
    out.push(b'}');
    Ok(())
}

/// As JSON of OTLP writes it: what is no number there is a string.
fn put_double(value: f64, out: &mut Vec<u8>) {
    let text = if value.is_nan() {
        "\"NaN\"".into()
    } else if value.is_infinite() {
        format!("\"{}Infinity\"", if value > 0.0 { "" } else { "-" })
    } else {
        format!("{value:?}")
    };
    out.extend(text.as_bytes());
}

fn utf8(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
