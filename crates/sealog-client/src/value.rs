//! Values of metadata. `serde_json` writes NaN as null, bytes as a list and a time as an object, without a
//! word: here they are errors that name their place.

use std::fmt::{self, Display};

use serde::Serialize;
use serde::ser::{self, Serializer};
use serde_json::Value;

use crate::error::Error;

/// Values inside of values, at most; `serde_json` reads as many.
const DEPTH_MAX: usize = 120;

/// The value as JSON, or where it cannot be written and what to do.
pub(crate) fn checked(path: &str, value: &impl Serialize) -> Result<Value, Error> {
    let mut walk = Walk { path: path.to_owned(), depth: 0 };
    match value.serialize(&mut walk) {
        Ok(()) => serde_json::to_value(value).map_err(|error| Error::event(path, &error.to_string())),
        Err(Found(problem)) => Err(Error::event(&walk.path, &problem)),
    }
}

/// Goes through a value. After an error, `path` is the place of it.
struct Walk {
    path: String,
    depth: usize,
}

#[derive(Debug)]
struct Found(String);

impl Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Found {}

impl ser::Error for Found {
    fn custom<T: Display>(message: T) -> Found {
        Found(format!("cannot be written as JSON: {message}"))
    }
}

impl Walk {
    fn inside(&mut self, part: &str, value: &(impl Serialize + ?Sized)) -> Result<(), Found> {
        let length = self.path.len();
        self.path.push_str(part);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Found("is nested too deeply; flatten it".into()));
        }
        value.serialize(&mut *self)?;
        self.depth -= 1;
        self.path.truncate(length);
        Ok(())
    }
}

/// The members of a list, an object or a variant: their count so far, and the key of the next.
struct Parts<'w> {
    walk: &'w mut Walk,
    index: usize,
    key: String,
}

impl Parts<'_> {
    fn element(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Found> {
        self.index += 1;
        self.walk.inside(&format!("[{}]", self.index - 1), value)
    }
}

macro_rules! sound {
    ($($method:ident: $type:ty),*) => { $(
        fn $method(self, _: $type) -> Result<(), Found> {
            Ok(())
        }
    )* };
}

macro_rules! parts {
    ($($method:ident: $($type:ty),+);+) => { $(
        fn $method(self, $(_: $type),+) -> Result<Self::SerializeSeq, Found> {
            self.serialize_seq(None)
        }
    )+ };
}

impl<'w> Serializer for &'w mut Walk {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = Parts<'w>;
    type SerializeTuple = Parts<'w>;
    type SerializeTupleStruct = Parts<'w>;
    type SerializeTupleVariant = Parts<'w>;
    type SerializeMap = Parts<'w>;
    type SerializeStruct = Parts<'w>;
    type SerializeStructVariant = Parts<'w>;

    sound!(serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64);
    sound!(serialize_u8: u8, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64);
    sound!(serialize_char: char, serialize_str: &str, serialize_unit_struct: &'static str);
    parts!(serialize_tuple: usize; serialize_tuple_struct: &'static str, usize; serialize_map: Option<usize>);
    parts!(serialize_tuple_variant: &'static str, u32, &'static str, usize);
    parts!(serialize_struct_variant: &'static str, u32, &'static str, usize);

    fn serialize_f32(self, value: f32) -> Result<(), Found> {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Result<(), Found> {
        if value.is_finite() {
            return Ok(());
        }
        Err(Found(format!("is {value}, which JSON cannot carry; send None or a text")))
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<(), Found> {
        Err(Found("is bytes; send a text, for example in hexadecimal digits".into()))
    }

    fn serialize_none(self) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<(), Found> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<(), Found> {
        self.inside(&format!(".{variant}"), value)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Parts<'w>, Found> {
        Ok(Parts { walk: self, index: 0, key: String::new() })
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Parts<'w>, Found> {
        if name == "SystemTime" {
            return Err(Found("is a time; send an ISO 8601 text, such as 2026-11-18T01:02:03Z".into()));
        }
        self.serialize_seq(None)
    }
}

macro_rules! lists {
    ($($part:ident: $method:ident),*) => { $(
        impl ser::$part for Parts<'_> {
            type Ok = ();
            type Error = Found;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
                self.element(value)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        }
    )* };
}

lists!(
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
);

macro_rules! structs {
    ($($part:ident),*) => { $(
        impl ser::$part for Parts<'_> {
            type Ok = ();
            type Error = Found;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), Found> {
                self.walk.inside(&format!(".{name}"), value)
            }

            fn end(self) -> Result<(), Found> {
                Ok(())
            }
        }
    )* };
}

structs!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Parts<'_> {
    type Ok = ();
    type Error = Found;

    /// Keys that are no texts are refused by `serde_json` itself, which names them.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Found> {
        self.key = match serde_json::to_value(key) {
            Ok(Value::String(key)) => format!(".{key}"),
            Ok(key) => format!(".{key}"),
            Err(error) => return Err(Found(format!("has a key that is not a text: {error}"))),
        };
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Found> {
        let key = std::mem::take(&mut self.key);
        self.walk.inside(&key, value)
    }

    fn end(self) -> Result<(), Found> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::SystemTime;

    use super::*;

    struct Raw(&'static [u8]);

    impl Serialize for Raw {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_bytes(self.0)
        }
    }

    #[derive(Serialize)]
    struct Line {
        price: Option<f64>,
    }

    #[derive(Serialize)]
    enum Kind {
        Order { lines: Vec<Line> },
        Pair(f32, f32),
        Whole(f64),
    }

    fn field(value: &impl Serialize) -> String {
        checked("metadata.x", value).unwrap_err().field.clone().unwrap()
    }

    #[test]
    fn what_json_cannot_carry_is_named_by_its_place() {
        assert_eq!(field(&f64::NAN), "metadata.x");
        assert_eq!(field(&f32::INFINITY), "metadata.x");
        assert_eq!(field(&Raw(b"a")), "metadata.x");
        assert_eq!(field(&SystemTime::UNIX_EPOCH), "metadata.x");
        let lines = vec![Line { price: Some(1.0) }, Line { price: None }, Line { price: Some(f64::NAN) }];
        assert_eq!(field(&BTreeMap::from([("lines", &lines)])), "metadata.x.lines[2].price");
        assert_eq!(field(&Kind::Order { lines }), "metadata.x.lines[2].price");
        assert_eq!(field(&Kind::Pair(0.0, f32::NAN)), "metadata.x[1]");
        assert_eq!(field(&Kind::Whole(f64::NAN)), "metadata.x.Whole");
        assert_eq!(field(&BTreeMap::from([((1, 2), 3)])), "metadata.x");
    }

    #[test]
    fn what_json_can_carry_is_kept() {
        let value = BTreeMap::from([(1, vec![Some("é"), None])]);
        assert_eq!(checked("m", &value).unwrap(), serde_json::json!({"1": ["é", null]}));
        assert_eq!(
            checked("m", &(1.5, u64::MAX, 'c', ())).unwrap(),
            serde_json::json!([1.5, u64::MAX, "c", null])
        );
    }

    #[test]
    fn a_value_that_is_nested_too_deeply_is_refused_before_it_is_written() {
        let nested = |depth: usize| (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        assert!(checked("m", &nested(DEPTH_MAX)).is_ok());
        assert!(checked("m", &nested(DEPTH_MAX + 1)).unwrap_err().message.contains("too deeply"));
    }
}
