//! Why a copy does not go on.

use sealog_store::StoreError;

use sealog_cli::exit::{Exit, Failure};

#[derive(Debug)]
pub(crate) struct Trouble {
    pub kind: Kind,
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The source cannot be read now.
    Source,
    /// The target cannot be written.
    Target,
    /// An event of the source is not there, or not as it was sealed.
    Broken,
    /// These two stores are none for each other.
    Usage,
}

impl Trouble {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Trouble {
        Trouble { kind, message: message.into() }
    }

    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(crate) fn source(error: StoreError) -> Trouble {
        Trouble::new(Kind::Source, error.to_string())
    }

    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(crate) fn target(error: StoreError) -> Trouble {
        Trouble::new(Kind::Target, error.to_string())
    }

    pub(crate) fn broken(problem: impl Into<String>) -> Trouble {
        Trouble::new(Kind::Broken, problem)
    }

    /// What to say of a target that is not the beginning of the source.
    pub(crate) fn wrong_way(problem: &str) -> Trouble {
        Trouble::new(
            Kind::Usage,
            format!(
                "{problem}. The target must be empty or hold an earlier copy of the source; check that --from and --to are not swapped"
            ),
        )
    }

    pub(crate) fn prefixed(self, place: impl std::fmt::Display) -> Trouble {
        Trouble { message: format!("{place}: {}", self.message), ..self }
    }
}

/// As `sealog copy` ends with it.
impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Failure {
        let exit = match trouble.kind {
            Kind::Source | Kind::Target => Exit::Failure,
            Kind::Broken => Exit::Broken,
            Kind::Usage => Exit::Usage,
        };
        Failure::new(exit, trouble.message)
    }
}
