//! A JSON body taken apart field by field. What is not asked for is refused, so that a misspelt field is not
//! silently ignored. Only types are looked at here: what a field may hold is the service's to say.

use sealog_core::reject::Reject;
use sealog_service::people::admin::FieldError;
use sealog_service::people::admin::fields::rate;
use serde_json::{Map, Value};

use crate::respond::Failure;

pub(super) struct Fields(Map<String, Value>);

impl Fields {
    pub(super) fn parse(body: &[u8]) -> Result<Fields, Failure> {
        match serde_json::from_slice(body) {
            Ok(Value::Object(fields)) => Ok(Fields(fields)),
            Ok(_) => Err(Reject::InvalidJson { detail: "the body must be a JSON object".into() }.into()),
            Err(error) => Err(Reject::InvalidJson { detail: error.to_string() }.into()),
        }
    }

    pub(super) fn given(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn required_text(&mut self, name: &str) -> Result<String, FieldError> {
        self.text(name)?.flatten().ok_or_else(|| FieldError::new(name, "is required"))
    }

    /// Outer: whether it was given; inner: whether it is not null.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<Option<String>>, FieldError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) => Ok(Some(Some(text))),
            Some(_) => Err(FieldError::new(name, "must be a string")),
        }
    }

    /// Nothing for null, too.
    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, FieldError> {
        let wrong = || FieldError::new(name, "must be an array of strings");
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Array(items)) => {
                let texts = items.into_iter().map(|item| match item {
                    Value::String(text) => Ok(text),
                    _ => Err(wrong()),
                });
                texts.collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(wrong()),
        }
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, FieldError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(FieldError::new(name, "must be true or false")),
        }
    }

    pub(super) fn rate(&mut self, name: &str) -> Result<Option<Option<u32>>, FieldError> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(value) => rate(name, value.as_f64()).map(|rate| Some(Some(rate))),
        }
    }

    pub(super) fn nothing_else(self) -> Result<(), FieldError> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(FieldError::new(name, "is not a field of this request")),
        }
    }
}
