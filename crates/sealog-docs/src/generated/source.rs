//! A page, and where it is.

/// A page before it is rendered.
#[derive(Debug)]
pub(crate) struct Source {
    /// Beneath `/docs/`.
    pub path: String,
    /// Where it is in the contents; nothing for a page that another one leads to.
    pub part: Option<&'static str>,
    pub label: String,
    pub markdown: String,
}

impl Source {
    pub(super) fn new(path: impl Into<String>, label: impl Into<String>, markdown: String) -> Source {
        Source { path: path.into(), part: None, label: label.into(), markdown }
    }

    pub(super) fn in_part(self, part: &'static str) -> Source {
        Source { part: Some(part), ..self }
    }
}
