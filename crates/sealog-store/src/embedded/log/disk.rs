//! The few things that the store asks of a file system, as a trait: tests put a disk behind it that loses
//! what was not synced, or fails at a chosen call.

use std::fmt::Debug;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::embedded::cache::Cache;

/// Nobody but the owner reads events, keys or what was deleted from a file that is not trimmed yet.
pub(crate) const DIR_MODE: u32 = 0o700;
pub const FILE_MODE: u32 = 0o600;

pub trait Disk: Send + Sync + Debug {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Opens an existing file for reading alone: whoever may read it needs no more.
    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.open(path)
    }
    /// Creates an empty file that only its owner can read, in place of any that is there.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>>;
    /// Creates a directory that only its owner can enter, unless it is there.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Names of the files in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes created, renamed and removed names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Room that is left on the file system of a directory, for processes without privileges.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
}

pub trait DiskFile: Send + Sync + Debug {
    fn length(&self) -> io::Result<u64>;
    /// Reads what there is, up to the length of the buffer; fewer bytes only at the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    fn set_len(&self, length: u64) -> io::Result<()>;
    /// Returns once the content is on stable storage. After an error nothing is known, and calling it again
    /// would not tell.
    fn sync(&self) -> io::Result<()>;
    /// Whether the file still has a name.
    fn is_linked(&self) -> io::Result<bool> {
        Ok(true)
    }
}

/// The machine's own file system.
#[derive(Clone, Copy, Debug)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(OpenOptions::new().read(true).write(true).open(path)?)))
    }

    fn open_to_read(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(RealFile(File::open(path)?)))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        Ok(Box::new(RealFile(options.open(path)?)))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(dir)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile(File);

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        // fdatasync: the length is part of what it makes durable when it has changed, times of access are
        // not.
        self.0.sync_data()
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.0.metadata()?.nlink() > 0)
    }
}

/// Writes a small file so that after a crash there is either the old one or the new one, whole.
pub(crate) fn replace(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temporary = PathBuf::from(path);
    temporary.as_mut_os_string().push(".tmp");
    let renamed = write_new(disk, &temporary, content).and_then(|()| disk.rename(&temporary, path));
    if renamed.is_err() {
        // A part of a file is of no use to anyone, and on a full disk it takes the room of what is.
        let _ = disk.remove(&temporary);
    }
    renamed?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))
}

fn write_new(disk: &dyn Disk, path: &Path, content: &[u8]) -> io::Result<()> {
    let file = disk.create(path)?;
    file.write_all_at(content, 0)?;
    file.sync()
}

/// Whether an error is about the process and not about the medium: it is out of descriptors or memory, or was
/// not let in.
fn is_resource_error(error: &io::Error) -> bool {
    let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::ACCESS, Errno::PERM];
    Errno::from_io_error(error).is_some_and(|errno| lacking.contains(&errno))
}

/// Files that are open, at most so many: a store has two for each segment, and a process has a limit.
#[derive(Debug)]
pub(crate) struct OpenFiles {
    disk: Arc<dyn Disk>,
    open: Cache<PathBuf, Box<dyn DiskFile>>,
}

impl OpenFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, files_max: usize) -> Arc<OpenFiles> {
        Arc::new(OpenFiles { disk, open: Cache::new(files_max) })
    }

    /// A file that is opened when it is read, and may be closed in between.
    pub(crate) fn file(self: &Arc<Self>, path: PathBuf) -> Box<dyn DiskFile> {
        Box::new(ReadOnDemand { files: Arc::clone(self), path })
    }

    /// The file at this path is another one from now on.
    pub(crate) fn forget(&self, path: &Path) {
        self.open.forget(&path.to_owned());
    }

    fn get(&self, path: &PathBuf) -> io::Result<Arc<Box<dyn DiskFile>>> {
        self.open.get_or_load(path, 1, || self.disk.open(path))
    }
}

#[derive(Debug)]
struct ReadOnDemand {
    files: Arc<OpenFiles>,
    path: PathBuf,
}

impl DiskFile for ReadOnDemand {
    fn length(&self) -> io::Result<u64> {
        self.files.get(&self.path)?.length()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.files.get(&self.path)?.read_at(buffer, offset)
    }

    fn write_all_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn set_len(&self, _length: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn sync(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A file as far as the disk gives it.
pub(crate) struct ReadInPart {
    /// What cannot be read became bytes that are no frame and no zeros.
    pub content: Vec<u8>,
    /// Where that is, and why. Nothing may be concluded from the bytes there.
    pub unreadable: Vec<Range<u64>>,
    pub error: Option<io::Error>,
}

impl ReadInPart {
    pub(crate) fn is_unreadable(&self, from: u64, to: u64) -> bool {
        self.unreadable.iter().any(|range| range.start < to && from < range.end)
    }
}

/// The whole content of a file, as far as the disk gives it.
pub(crate) fn read_in_part(file: &dyn DiskFile) -> io::Result<ReadInPart> {
    const PIECE: usize = 4096;
    let error = match read_all(file) {
        Ok(content) => return Ok(ReadInPart { content, unreadable: Vec::new(), error: None }),
        Err(error) => error,
    };
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut content = vec![0xEE; length];
    let mut unreadable = Vec::new();
    for (number, piece) in content.chunks_mut(PIECE).enumerate() {
        let at = (number * PIECE) as u64;
        match file.read_at(piece, at) {
            Ok(_) => {}
            Err(error) if is_resource_error(&error) => return Err(error),
            Err(_) => {
                piece.fill(0xEE);
                unreadable.push(at..at + piece.len() as u64);
            }
        }
    }
    Ok(ReadInPart { content, unreadable, error: Some(error) })
}

/// The whole content of a file.
pub(crate) fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut content = vec![0; length];
    let filled = file.read_at(&mut content, 0)?;
    content.truncate(filled);
    Ok(content)
}

/// Exactly this many bytes, or an error.
pub(crate) fn read_exact(file: &dyn DiskFile, offset: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    if file.read_at(&mut bytes, offset)? < length {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file is shorter than expected"));
    }
    Ok(bytes)
}
