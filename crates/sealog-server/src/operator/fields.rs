//! A JSON body taken apart field by field. What is not asked for is refused, so that a misspelt field is not silently ignored.

use sealog_core::catalog::{Catalog, FrameworkSet};
use sealog_core::reject::Reject;
use sealog_core::time;
use serde_json::{Map, Value};

use super::invalid;
use crate::respond::Failure;

pub(crate) const TEXT_CHARACTERS_MAX: usize = 255;
/// Strings in one field: every event of an action is checked for its required fields.
pub(crate) const TEXTS_MAX: usize = 100;

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

    pub(super) fn required_text(&mut self, name: &str) -> Result<String, Failure> {
        let text = self.text(name)?.flatten().ok_or_else(|| invalid(name, "is required"))?;
        if text.is_empty() { Err(invalid(name, "must not be empty")) } else { Ok(text) }
    }

    /// Outer: whether it was given; inner: whether it is not null.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<Option<String>>, Failure> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(Value::String(text)) => checked(name, text).map(|text| Some(Some(text))),
            Some(_) => Err(invalid(name, "must be a string")),
        }
    }

    pub(super) fn texts(&mut self, name: &str) -> Result<Vec<String>, Failure> {
        let wrong = || invalid(name, "must be an array of strings");
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(items)) if items.len() > TEXTS_MAX => {
                Err(invalid(name, &format!("must have at most {TEXTS_MAX} strings")))
            }
            Some(Value::Array(items)) => items
                .into_iter()
                .map(|item| match item {
                    Value::String(text) => checked(name, text),
                    _ => Err(wrong()),
                })
                .collect(),
            Some(_) => Err(wrong()),
        }
    }

    pub(super) fn email(&mut self, name: &str) -> Result<Option<Option<String>>, Failure> {
        let email = self.text(name)?;
        if let Some(Some(email)) = &email {
            let plausible =
                email.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
                    && !email.contains(|character: char| character.is_whitespace() || character.is_control());
            if !plausible {
                return Err(invalid(name, "must be an e-mail address"));
            }
        }
        Ok(email)
    }

    pub(super) fn time(&mut self, name: &str) -> Result<Option<Option<u64>>, Failure> {
        let parse = |text: String| {
            time::parse_rfc3339_ms(&text)
                .ok_or_else(|| invalid(name, "must be an ISO 8601 time, such as 2026-01-31T12:00:00Z"))
        };
        let text = self.text(name)?;
        text.map(|text| text.map(parse).transpose()).transpose()
    }

    pub(super) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Failure> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(_) => Err(invalid(name, "must be true or false")),
        }
    }

    pub(super) fn rate(&mut self, name: &str) -> Result<Option<Option<u32>>, Failure> {
        match self.0.remove(name) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(None)),
            Some(value) => {
                // 41.0 is a whole number, too, and is written as one; adding nothing makes -0 a 0.
                let rate = value.as_f64().and_then(|rate| (rate + 0.0).to_string().parse::<u32>().ok());
                rate.map(|rate| Some(Some(rate))).ok_or_else(|| {
                    invalid(name, "must be a whole number of requests a second, 0 for no limit, or null")
                })
            }
        }
    }

    pub(super) fn frameworks(&mut self, name: &str) -> Result<Option<FrameworkSet>, Failure> {
        if matches!(self.0.get(name), None | Some(Value::Null)) {
            self.0.remove(name);
            return Ok(None);
        }
        let ids = self.texts(name)?;
        let set = Catalog::builtin().framework_set(ids.iter().map(String::as_str));
        set.map(Some).map_err(|unknown| invalid(name, &format!("has the unknown framework {unknown:?}")))
    }

    pub(super) fn nothing_else(self) -> Result<(), Failure> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(invalid(name, "is not known here")),
        }
    }
}

fn checked(name: &str, text: String) -> Result<String, Failure> {
    if text.chars().count() > TEXT_CHARACTERS_MAX {
        return Err(invalid(name, "must have at most 255 characters"));
    }
    if text.contains('\0') {
        return Err(invalid(name, "must not contain the NUL character"));
    }
    Ok(text)
}
