//! What a field may hold, whoever fills it in.

use std::fmt;

use sealog_control::Role;
use sealog_core::catalog::{Catalog, FrameworkSet};
use sealog_core::id::Mode;
use sealog_core::plan::Plan;
use sealog_core::time;

use crate::people::password;
use crate::secret::Secret;

pub const TEXT_CHARACTERS_MAX: usize = 255;
/// Strings in one field: every event of an action is checked for its required fields.
pub const TEXTS_MAX: usize = 100;

/// A field that cannot be taken as it is, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub field: String,
    /// Goes on where the name of the field ends: "must not be empty".
    pub problem: String,
}

impl FieldError {
    pub fn new(field: &str, problem: impl Into<String>) -> FieldError {
        FieldError { field: field.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.problem)
    }
}

pub(super) fn text(field: &str, text: String) -> Result<String, FieldError> {
    if text.chars().count() > TEXT_CHARACTERS_MAX {
        return Err(FieldError::new(field, format!("must have at most {TEXT_CHARACTERS_MAX} characters")));
    }
    if text.contains('\0') {
        return Err(FieldError::new(field, "must not contain the NUL character"));
    }
    Ok(text)
}

pub(super) fn some_text(field: &str, given: String) -> Result<String, FieldError> {
    let given = text(field, given)?;
    if given.is_empty() { Err(FieldError::new(field, "must not be empty")) } else { Ok(given) }
}

pub(super) fn texts(field: &str, given: Vec<String>) -> Result<Vec<String>, FieldError> {
    if given.len() > TEXTS_MAX {
        return Err(FieldError::new(field, format!("must have at most {TEXTS_MAX} strings")));
    }
    given.into_iter().map(|given| text(field, given)).collect()
}

pub(super) fn email(field: &str, given: String) -> Result<String, FieldError> {
    let email = text(field, given)?;
    let plausible = email.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty())
        && !email.contains(|character: char| character.is_whitespace() || character.is_control());
    if plausible { Ok(email) } else { Err(FieldError::new(field, "must be an e-mail address")) }
}

pub(super) fn time_ms(field: &str, given: String) -> Result<u64, FieldError> {
    time::parse_rfc3339_ms(&text(field, given)?)
        .ok_or_else(|| FieldError::new(field, "must be an ISO 8601 time, such as 2026-01-31T12:00:00Z"))
}

/// A rate as JSON and forms have it: any number, or something that is none.
pub fn rate(field: &str, given: Option<f64>) -> Result<u32, FieldError> {
    // 41.0 is a whole number, too, and is written as one; adding nothing makes -0 a 0.
    let rate = given.and_then(|rate| (rate + 0.0).to_string().parse::<u32>().ok());
    rate.ok_or_else(|| {
        FieldError::new(field, "must be a whole number of requests per second, 0 for no limit, or null")
    })
}

pub(super) fn frameworks(field: &str, ids: Vec<String>) -> Result<FrameworkSet, FieldError> {
    let ids = texts(field, ids)?;
    let set = Catalog::builtin().framework_set(ids.iter().map(String::as_str));
    set.map_err(|unknown| FieldError::new(field, format!("contains the unknown framework {unknown:?}")))
}

pub(super) fn plan(field: &str, given: String, plans: &[Plan]) -> Result<String, FieldError> {
    let plan = text(field, given)?;
    let known: Vec<&str> = plans.iter().map(|plan| plan.name.as_str()).collect();
    if known.contains(&plan.as_str()) {
        return Ok(plan);
    }
    Err(FieldError::new(field, format!("must be one of {}", known.join(", "))))
}

pub(super) fn mode(field: &str, given: String) -> Result<Mode, FieldError> {
    let given = some_text(field, given)?;
    let known = Mode::ALL.into_iter().find(|mode| mode.as_str() == given);
    known.ok_or_else(|| FieldError::new(field, "must be \"live\" or \"test\""))
}

pub(super) fn role(field: &str, given: String) -> Result<Role, FieldError> {
    let given = some_text(field, given)?;
    let known = Role::ALL.into_iter().find(|role| role.as_str() == given);
    let all = || Role::ALL.map(Role::as_str).join(", ");
    known.ok_or_else(|| FieldError::new(field, format!("must be one of {}", all())))
}

pub(super) fn password(field: &str, mut given: Secret) -> Result<Secret, FieldError> {
    let password = Secret(some_text(field, std::mem::take(&mut given.0))?);
    if password.0.chars().count() < password::LENGTH_MIN {
        let problem = format!("must have at least {} characters", password::LENGTH_MIN);
        return Err(FieldError::new(field, problem));
    }
    Ok(password)
}

/// For a field of a change that is left alone unless it is given, and cleared by nothing.
pub(super) fn optional<T, U>(
    given: Option<Option<T>>,
    check: impl FnOnce(T) -> Result<U, FieldError>,
) -> Result<Option<Option<U>>, FieldError> {
    match given {
        None => Ok(None),
        Some(None) => Ok(Some(None)),
        Some(Some(given)) => check(given).map(|checked| Some(Some(checked))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem<T: fmt::Debug>(result: Result<T, FieldError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_text_has_at_most_255_characters_and_no_nul() {
        assert!(text("name", "é".repeat(255)).is_ok());
        assert_eq!(problem(text("name", "é".repeat(256))), "name must have at most 255 characters");
        assert_eq!(problem(text("name", "a\0".into())), "name must not contain the NUL character");
        assert_eq!(problem(some_text("name", String::new())), "name must not be empty");
        assert!(texts("f", vec![String::new(); 100]).is_ok());
        assert_eq!(problem(texts("f", vec![String::new(); 101])), "f must have at most 100 strings");
    }

    #[test]
    fn an_address_has_something_on_both_sides_and_no_space() {
        for good in ["a@b", "Zoë@Example.com", "a@b@c"] {
            assert!(email("email", good.into()).is_ok(), "{good}");
        }
        for bad in ["", "a", "@b", "a@", "a b@c", "a@b\n"] {
            assert_eq!(problem(email("email", bad.into())), "email must be an e-mail address", "{bad:?}");
        }
    }

    #[test]
    fn a_rate_is_a_whole_number_however_it_is_written() {
        for (number, expected) in [(0.0, 0), (-0.0, 0), (41.0, 41), (4_294_967_295.0, u32::MAX)] {
            assert_eq!(rate("r", Some(number)), Ok(expected));
        }
        for wrong in [None, Some(-1.0), Some(0.5), Some(4_294_967_296.0), Some(f64::NAN), Some(f64::INFINITY)]
        {
            assert!(problem(rate("r", wrong)).starts_with("r must be a whole number"), "{wrong:?}");
        }
    }
}
