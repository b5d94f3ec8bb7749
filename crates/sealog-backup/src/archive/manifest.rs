//! What an archive says of itself: its last member.

use sealog_cli::exit::Failure;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::pages::Chain;

/// The first thing that the manifest says.
pub(super) const FORMAT: &str = "sealog tenant archive 1";
pub(super) const MANIFEST: &str = "manifest.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: String,
    /// The version that wrote it.
    pub sealog: String,
    pub exported_at: String,
    pub tenant: Value,
    pub chains: Vec<Chain>,
    /// All but the manifest, in their order.
    pub files: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Listed {
    pub name: String,
    pub bytes: u64,
    pub sha256: String,
}

/// How the files with the events of a chain are called, up to their number.
pub(super) fn stem(project_id: &str, mode: &str) -> String {
    format!("{project_id}-{mode}")
}

pub(super) fn other_page() -> Failure {
    "unexpected response from the running server; use the program of the same version".to_owned().into()
}
