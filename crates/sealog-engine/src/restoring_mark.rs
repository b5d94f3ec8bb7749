//! The file in a data directory that is being restored: until it is gone, there is no store.

use std::fs;
use std::path::{Path, PathBuf};

const FILE: &str = "RESTORING";
pub const LINE: &str = "sealog restore 1\n";

pub fn path(data_dir: &Path) -> PathBuf {
    data_dir.join(FILE)
}

/// Half a store would look like one that has lost events. A directory of backups is no store either, and its
/// files have the names of one.
pub fn refuse(data_dir: &Path) -> Result<(), String> {
    let format = fs::read_to_string(data_dir.join("FORMAT")).unwrap_or_default();
    if format.starts_with("sealog backup") {
        let dir = data_dir.display();
        return Err(match data_dir.join("REPLICA").exists() {
            true => format!(
                "{dir} is the copy of a server that `sealog replicate` keeps. To make it the primary, stop the old one, run `sealog replicate --promote DATA --to {dir}` and start the server on DATA"
            ),
            false => format!(
                "{dir} has backups. Run `sealog restore --from {dir} --to DATA` and start the server on DATA"
            ),
        });
    }
    if !path(data_dir).exists() {
        return Ok(());
    }
    Err(format!(
        "the restore into {} did not finish; run `sealog restore` again, it starts over",
        data_dir.display()
    ))
}
