//! Files that only their owner can read, and that are whole when they have their name.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::exit::{Exit, Failure};
use crate::file_flags;

const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const PIECE: usize = 1 << 20;
/// How the name of a file ends that is not whole yet.
const TEMPORARY: &str = ".tmp";

pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
}

/// The same, and the names of the directories that were made are durable: what is kept in one that a power
/// cut takes away is lost with it.
pub fn make_dir_durably(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().take_while(|dir| !is_there(dir)).collect();
    make_dir(path)?;
    missing.into_iter().filter_map(Path::parent).try_for_each(|parent| sync_dir(or_here(parent)))
}

fn is_there(dir: &Path) -> bool {
    or_here(dir).is_dir()
}

/// A name without a directory has an empty one for its parent.
fn or_here(dir: &Path) -> &Path {
    if dir.as_os_str().is_empty() { Path::new(".") } else { dir }
}

/// Makes created, renamed and removed names durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes the name of this file durable.
pub fn sync_name(path: &Path) -> io::Result<()> {
    sync_dir(or_here(path.parent().unwrap_or(Path::new(""))))
}

/// A new file, in place of any that is there. Never through a link, and never with the permissions of what
/// was there.
pub fn create_file(path: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path);
    match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }
}

/// After a crash there is either what was there before, or all of the new content.
pub fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    write_new_by(path, content, PIECE, Write::write_all)
}

/// The same for whoever writes the pieces, of at most so many bytes, at a pace of its own.
pub fn write_new_by(
    path: &Path,
    content: &[u8],
    bytes_max: usize,
    mut write: impl FnMut(&mut File, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut temporary = PathBuf::from(path);
    temporary.as_mut_os_string().push(TEMPORARY);
    let mut written = || {
        let mut file = create_file(&temporary)?;
        for piece in content.chunks(bytes_max) {
            write(&mut file, piece)?;
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

/// Removes what [`write_new`] did not come to the end of in a directory, for whoever is alone in it. What
/// cannot be removed stays until the next time.
pub fn remove_unfinished(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if is_unfinished(&entry.file_name().to_string_lossy()) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

pub fn is_unfinished(name: &str) -> bool {
    name.ends_with(TEMPORARY)
}

/// Beside the file that it becomes, under a name that no other command has; gone when dropped.
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    becomes: PathBuf,
    file: BufWriter<File>,
    is_kept: bool,
}

impl Part {
    pub fn create(becomes: &Path) -> Result<Part, Failure> {
        let mut random = [0; 4];
        getrandom::fill(&mut random)
            .map_err(|error| Failure::new(Exit::Failure, format!("the system has no randomness: {error}")))?;
        let path = becomes.with_added_extension(format!("{:08x}.part", u32::from_le_bytes(random)));
        // Events can be anything: only the owner reads them.
        let file = OpenOptions::new().create_new(true).write(true).mode(FILE_MODE).open(&path);
        let file = file.map_err(|error| file_flags::unwritable(&path, &error))?;
        let file = BufWriter::with_capacity(256 << 10, file);
        Ok(Part { path, becomes: becomes.to_owned(), file, is_kept: false })
    }

    /// Where it is until it gets its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn becomes(&self) -> &Path {
        &self.becomes
    }

    /// Makes durable what was written so far.
    pub fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }

    pub fn finish(mut self, is_forced: bool) -> Result<(), Failure> {
        self.sync()?;
        // A link is not made where a file is: one that has appeared meanwhile, perhaps by another export,
        // stays.
        let named = match is_forced {
            true => fs::rename(&self.path, &self.becomes),
            false => match fs::hard_link(&self.path, &self.becomes) {
                // Not every file system has links. The name of the part goes when this is dropped.
                Err(_) if !self.becomes.exists() => fs::rename(&self.path, &self.becomes),
                linked => linked,
            },
        };
        if named.is_err() && !is_forced && self.becomes.exists() {
            self.is_kept = true;
            return Err(Failure::usage(format!(
                "{} was created in the meantime and is unchanged; the complete export is in {}",
                self.becomes.display(),
                self.path.display()
            )));
        }
        named?;
        sync_name(&self.becomes)?;
        Ok(())
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Part {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            // After a rename there is none.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_file_is_its_owners_alone_and_is_never_written_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (other, path) = (dir.path().join("other"), dir.path().join("file"));
        fs::write(&other, "of somebody else").unwrap();
        symlink(&other, dir.path().join("file.tmp")).unwrap();
        symlink(&other, &path).unwrap();
        write_new(&path, b"own").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"own");
        assert!(path.symlink_metadata().unwrap().is_file());
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, FILE_MODE);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        create_file(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, FILE_MODE);
        assert_eq!(fs::read(other).unwrap(), b"of somebody else");
    }

    #[test]
    fn directories_are_made_with_all_above_them_and_may_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/c");
        for _ in 0..2 {
            make_dir_durably(&path).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, DIR_MODE);
        }
        fs::write(path.join("file"), "").unwrap();
        assert!(make_dir_durably(&path.join("file/d")).is_err());
    }
}
