//! What data subjects get: the events that are by them, about them, or name them, without what belongs to
//! others.
//!
//! [`finder`] says which events those are, [`search`] starts a search and [`searcher`] does it. [`node`] is
//! an event as a tree, [`masks`] what is not disclosed of it unless a reviewer says otherwise ([`review`]),
//! and [`hidden_values`] keeps such values out of every text; [`fold`] says which texts are the same.
//! [`package`] is the ZIP, [`builder`] makes it, [`packages`] hands it out; [`letters`] are what is written
//! along with it.

mod build;
pub mod builder;
pub mod desk;
pub mod finder;
pub mod fold;
pub mod hidden_values;
pub mod letters;
pub mod masks;
pub mod node;
pub mod package;
pub mod packages;
pub mod review;
pub mod search;
pub mod searcher;
pub mod subject;
pub mod words;

pub use builder::PackageBuilder;
pub use desk::Disclosures;
pub use hidden_values::{HiddenValues, ValueKind};
pub use node::{EventView, Node};
pub use packages::{NotHandedOut, PackageDownload, PackageRun, PackageSweep};
pub use review::{Compared, Masking};
pub use search::{NotStarted, SearchRun};
pub use searcher::Searcher;
pub use subject::Subject;
