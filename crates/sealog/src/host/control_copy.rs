//! Control data of a stopped store, to be read: a copy, since to open a database is to write beside it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_control::Control;
use sealog_store::embedded::{EmbeddedStore, FILE_MODE, Options};

use sealog_cli::exit::{Exit, Failure};

/// The database and its write-ahead log.
const FILES: [&str; 2] = ["control.db", "control.db-wal"];
/// Of the store that the copy is opened with, which gets no events.
const SEGMENT_BYTES: u64 = 64 << 10;

/// A copy in a directory of its own, which nobody else can enter. Removed when dropped.
pub(super) struct ControlCopy {
    pub(super) control: Arc<Control>,
    _store: EmbeddedStore,
    _dir: Scratch,
}

impl ControlCopy {
    /// Nothing where a directory has no control data, as a copy of the logs alone.
    pub(super) fn make(data: &Path) -> Result<Option<ControlCopy>, Failure> {
        if !data.join(FILES[0]).exists() {
            return Ok(None);
        }
        let failed =
            |error: String| Failure::new(Exit::Failure, format!("cannot read the control data: {error}"));
        let dir = Scratch::make().map_err(|error| failed(error.to_string()))?;
        for name in FILES {
            match dir.copy(data, name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(error.to_string()));
                }
                _ => {}
            }
        }
        let options = Options {
            segment_bytes_first: SEGMENT_BYTES,
            segment_bytes_max: SEGMENT_BYTES,
            segment_bytes_min: SEGMENT_BYTES,
            // Nothing is acknowledged in it.
            allow_unsafe_storage: true,
            ..Options::default()
        };
        let store = EmbeddedStore::open(&dir.0, &options).map_err(|error| failed(error.to_string()))?;
        let control = Control::embedded(&store).map_err(|error| failed(error.to_string()))?;
        Ok(Some(ControlCopy { control: Arc::new(control), _store: store, _dir: dir }))
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn make() -> io::Result<Scratch> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let name = format!("sealog-verify-{:016x}", u64::from_le_bytes(random));
        let dir = std::env::temp_dir().join(name);
        DirBuilder::new().mode(0o700).create(&dir)?;
        Ok(Scratch(dir))
    }

    /// With a mode of its own: what may only be read there is written to here.
    fn copy(&self, from: &Path, name: &str) -> io::Result<()> {
        let mut source = File::open(from.join(name))?;
        let mut options = OpenOptions::new();
        let mut copy = options.write(true).create_new(true).mode(FILE_MODE).open(self.0.join(name))?;
        io::copy(&mut source, &mut copy).map(drop)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
