//! Fields of a form that is longer than a few: as they are or were typed, each with what is wrong beside it.

use crate::pages::grants::Choice;
use crate::request::Asked;

pub(crate) struct Field {
    pub name: &'static str,
    /// Unique on its page.
    pub id: String,
    pub label: &'static str,
    pub value: String,
    pub kind: Kind,
    pub hint: &'static str,
    pub is_required: bool,
    pub error: Option<String>,
}

pub(crate) enum Kind {
    Line,
    Text,
    Number,
    Day,
    One(Vec<Choice>),
    Many(Vec<Choice>),
}

impl Field {
    pub(crate) fn new(
        name: &'static str,
        label: &'static str,
        kind: Kind,
        value: impl Into<String>,
    ) -> Field {
        let (id, value) = (name.to_owned(), value.into());
        Field { name, id, label, value, kind, hint: "", is_required: false, error: None }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Field {
        Field { hint, ..self }
    }

    pub(crate) fn required(self) -> Field {
        Field { is_required: true, ..self }
    }

    /// For a form of which a page has several.
    pub(crate) fn in_form(self, form: &str) -> Field {
        Field { id: format!("{form}-{}", self.name), ..self }
    }

    /// For the template: of which kind it is.
    pub(crate) fn is(&self, kind: &str) -> bool {
        let own = match &self.kind {
            Kind::Line => "line",
            Kind::Text => "text",
            Kind::Number => "number",
            Kind::Day => "day",
            Kind::One(_) => "one",
            Kind::Many(_) => "many",
        };
        own == kind
    }

    pub(crate) fn options(&self) -> &[Choice] {
        match &self.kind {
            Kind::One(options) | Kind::Many(options) => options,
            _ => &[],
        }
    }

    /// A day that cannot be read would not be shown by a field for days.
    pub(crate) fn day_type(&self) -> &'static str {
        if self.error.is_some() { "text" } else { "date" }
    }
}

/// A choice of words.
pub(crate) fn choices<T: Copy + PartialEq>(
    all: &[T],
    as_str: fn(T) -> &'static str,
    name: fn(T) -> &'static str,
    chosen: &str,
) -> Vec<Choice> {
    let choice = |word: &T| Choice {
        value: as_str(*word).to_owned(),
        label: name(*word).to_owned(),
        is_chosen: as_str(*word) == chosen,
    };
    all.iter().map(choice).collect()
}

/// Puts a problem beside its field. Whether there is such a field.
pub(crate) fn put_error(fields: &mut [Field], field: &str, problem: &str) -> bool {
    let found = fields.iter_mut().find(|known| known.name == field);
    found.is_some_and(|known| {
        known.error = Some(format!("It {problem}."));
        true
    })
}

/// What somebody else has changed meanwhile, in a form that is sent a second time: a field that was not
/// touched (it still has what was there before) gets what is there now. What was typed stays.
pub(crate) fn adopt(fields: &mut [Field], field: &str, from: &str, to: &str) {
    let Some(known) = fields.iter_mut().find(|known| known.name == field) else { return };
    match &mut known.kind {
        Kind::One(options) if options.iter().any(|option| option.is_chosen && option.value == from) => {
            for option in options {
                option.is_chosen = option.value == to;
            }
        }
        Kind::Line | Kind::Text | Kind::Number | Kind::Day
            if known.value.replace("\r\n", "\n").trim() == from =>
        {
            known.value = to.to_owned();
        }
        _ => {}
    }
}

/// What was typed, or what is there.
pub(crate) fn typed(asked: &Asked, is_form: bool, name: &str, there: impl FnOnce() -> String) -> String {
    if is_form { asked.field(name).to_owned() } else { there() }
}
