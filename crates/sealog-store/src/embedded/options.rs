//! How the embedded store is set up, and why one could not be opened.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::log::disk::{Disk, RealDisk};
use super::log::segment::Room;
use crate::clock::GuardedWorld;
use crate::world::{SystemWorld, World};

/// How the store is set up. The defaults are for production.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a new log's first segment; each one after it is twice as large, up to the maximum.
    pub segment_bytes_first: u64,
    pub segment_bytes_max: u64,
    /// Where there is not enough room for the next segment, it is made smaller, but not smaller than this:
    /// the largest request of a client has room in it.
    pub segment_bytes_min: u64,
    /// Room on the disk that no segment takes, so that keys can be revoked, and high-water marks and indexes
    /// written, when no event can be.
    pub reserve_bytes: u64,
    /// Most bytes that are synced together.
    pub group_bytes_max: usize,
    /// A request of this size is sealed outside of the critical section, while its chain is held and the
    /// others go on: two megabytes take milliseconds.
    pub large_bytes: usize,
    /// Most bytes that may wait to be written, for each log.
    pub queue_bytes_max: usize,
    /// How long a request may wait for its turn.
    pub queue_deadline: Duration,
    /// Memory for index pieces that were read from disk, for each log.
    pub cache_bytes: usize,
    /// Files that stay open for reading, for each log. A list looks into an index file of every segment, and
    /// to open each again would cost more than to read it.
    pub open_files_max: usize,
    /// How often the high-water mark is written while events arrive, and how often room is looked for on a
    /// full disk.
    pub tick: Duration,
    /// Accepts a data directory on a file system that forgets (tmpfs) or that is remote.
    pub allow_unsafe_storage: bool,
    /// Opens a store to be looked at: no file or directory is written, created, cut or removed, events are
    /// refused, and what recovery would write is kept in memory.
    pub read_only: bool,
    pub disk: Arc<dyn Disk>,
    pub world: Arc<dyn World>,
}

/// Those of some 30 GB, if the process may have so many.
fn open_files_max() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(1000, |limit| usize::try_from(limit / 8).unwrap_or(1000)).clamp(50, 1000)
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes_first: 8 << 20,
            segment_bytes_max: 64 << 20,
            segment_bytes_min: 4 << 20,
            reserve_bytes: 8 << 20,
            group_bytes_max: 256 << 10,
            large_bytes: 128 << 10,
            queue_bytes_max: 64 << 20,
            queue_deadline: Duration::from_secs(10),
            cache_bytes: 160 << 20,
            open_files_max: open_files_max(),
            tick: Duration::from_secs(1),
            allow_unsafe_storage: false,
            read_only: false,
            disk: Arc::new(RealDisk),
            world: Arc::new(GuardedWorld::new(Arc::new(SystemWorld), false)),
        }
    }
}

impl Options {
    /// How large a segment may be on a disk that is almost full.
    pub(crate) fn room(&self) -> Room {
        Room { reserve: self.reserve_bytes, least: self.segment_bytes_min.min(self.segment_bytes_first) }
    }
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum OpenError {
    /// Another process has it open.
    Locked {
        holder: String,
    },
    UnknownFormat {
        found: String,
    },
    UnsafeStorage {
        file_system: &'static str,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OpenError::Locked { holder } => {
                write!(f, "another process has the store open (process id {holder}); stop it first")
            }
            OpenError::UnknownFormat { found } => {
                write!(
                    f,
                    "the store has the unknown format {found:?}; use the version that wrote it, or a newer one"
                )
            }
            OpenError::UnsafeStorage { file_system } => write!(
                f,
                "the data directory is on {file_system}, which can lose events; use a local disk, or allow it explicitly (SEALOG_ALLOW_UNSAFE_STORAGE=true)"
            ),
            OpenError::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for OpenError {}
