//! The file in a data directory that is being restored: until it is gone, there is no store.

use std::path::{Path, PathBuf};

const FILE: &str = "RESTORING";
pub const LINE: &str = "sealog restore 1\n";

pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// Half a store would look like one that has lost events.
pub fn refuse(data_dir: &Path) -> Result<(), String> {
    if !path(data_dir).exists() {
        return Ok(());
    }
    Err(format!(
        "the restore into {} did not finish; run `sealog restore` again, it starts over",
        data_dir.display()
    ))
}
