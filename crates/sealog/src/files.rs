//! Files that only their owner can read, and that are whole when they have their name.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const PIECE: usize = 1 << 20;

pub(crate) fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// Makes created, renamed and removed names durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the name of this file durable.
pub(crate) fn sync_name(path: &Path) -> io::Result<()> {
    // A name without a directory has an empty one for its parent.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_dir(parent.unwrap_or(Path::new(".")))
}

/// An empty file, in place of any that is there.
pub(crate) fn create_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(FILE_MODE).open(path)
}

/// After a crash there is either what was there before, or all of the new content.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = PathBuf::from(path);
    temporary.as_mut_os_string().push(".tmp");
    let written = || {
        let mut file = create_file(&temporary)?;
        for piece in content.chunks(PIECE) {
            file.write_all(piece)?;
        }
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    let renamed = written();
    if renamed.is_err() {
        // Part of a file is of no use to anyone, and on a full disk it takes the room of what is.
        let _ = fs::remove_file(&temporary);
    }
    renamed?;
    sync_name(path)
}
