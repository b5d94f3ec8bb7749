//! The documentation that the server has at `/docs`: it works where there is no network, and says what this
//! very program does.
//!
//! Pages are Markdown. Some are files of `docs/`, compiled in ([`contents`]); the others are written from
//! tables of the program when they are first asked for (`generated`: calls from `/openapi.json`, commands
//! from the command line, codes, frameworks, formats). One renderer ([`markdown`]) makes HTML of both, and
//! lets no HTML of a source through. [`site`] keeps what was rendered, [`search`] finds words in it.
//!
//! No HTTP: the server asks for a path and answers with what it gets.

mod assets;
mod contents;
mod generated;
mod layout;
mod markdown;
mod search;
mod site;
mod text;
mod theme;

pub use assets::Asset;
pub use generated::Given;
pub use generated::program::{Argument, Command, Program, Setting};
pub use site::{Document, Site};
pub use theme::Theme;
