//! The signed log in copies of a store. A copy may lack what its source signed later, so it is marked, and
//! the server that starts on it signs nothing until that is excluded.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sealog_cli::files::{create_file, make_dir};
use sealog_engine::Opened;
use sealog_engine::trust_log::{CarryError, Outline, Place, StoreLog};
use sealog_store::StoreError;
use sealog_store::embedded::EmbeddedStore;
use serde::Serialize;

use super::copy::trouble::{Kind, Trouble};
use super::manifest::STORE_LOG;
use super::old_data::without_server;
use super::restore_target::remove;

/// Where files of logs are opened, below the directory of a copy.
const OPENED: &str = "signed-log.tmp";

/// A directory for files that are opened. It is removed with this.
struct Scratch(PathBuf);

impl Scratch {
    fn make(below: &Path) -> Result<Scratch, String> {
        let dir = below.join(OPENED);
        let made = remove(&dir).and_then(|()| make_dir(&dir));
        made.map_err(|error| format!("{}: {error}", dir.display()))?;
        Ok(Scratch(dir))
    }

    fn open(&self, name: &str, content: &[u8]) -> Result<StoreLog, String> {
        let path = self.0.join(name);
        let written = || create_file(&path)?.write_all(content);
        written().map_err(|error: io::Error| format!("{}: {error}", path.display()))?;
        StoreLog::of_copy(&path).map_err(|error| error.to_string())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove(&self.0);
    }
}

/// How a newer copy of a log follows on from an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Compared {
    Continues,
    /// There is no log any more.
    Lost,
    /// It is another log, or has less.
    Other,
}

/// Compares two files. One that a later version has written is not understood, and taken as it is.
pub(super) fn compare(below: &Path, before: &[u8], after: &[u8]) -> Result<Compared, String> {
    let scratch = Scratch::make(below)?;
    let before = scratch.open("before.db", before)?;
    let Ok(after) = scratch.open("after.db", after) else { return Ok(Compared::Continues) };
    let Some(known) = before.place().map_err(|error| error.to_string())? else {
        return Ok(Compared::Continues);
    };
    let Some(outline) = after.outline().map_err(|error| error.to_string())? else {
        return Ok(Compared::Lost);
    };
    match after.continues(&known, &outline).map_err(|error| error.to_string())? {
        true => Ok(Compared::Continues),
        false => Ok(Compared::Other),
    }
}

/// What became of the log of a restored store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Settled {
    /// Entries that an old data directory had and the backup did not; None where none could be read.
    pub recovered: Option<u64>,
    /// Why the log of an old data directory was not taken.
    pub refused: Vec<String>,
}

impl Settled {
    pub(super) fn say(&self) {
        for refused in &self.refused {
            println!("signed log: not taken from the old data directory: {refused}");
        }
        match self.recovered {
            Some(0) => println!("signed log: as in the old data directory"),
            Some(entries) => println!("signed log: {entries} entries of the old data directory"),
            None => println!(
                "signed log: the server signs nothing yet, since this copy may lack what was signed after it was made. Put the state copy of the old server in its place, or run `sealog trust recover`"
            ),
        }
    }
}

/// Takes what the logs of old data directories have behind the end of the restored one, and marks the log as
/// a copy unless it is then as long as one of theirs. None for a store without a log.
pub(super) fn settle(store: &EmbeddedStore, old: &[PathBuf], why: &str) -> Result<Option<Settled>, String> {
    let Some(directory) = store.directory() else { return Ok(None) };
    let old: Vec<&PathBuf> = old.iter().filter(|old| old.join(STORE_LOG).is_file()).collect();
    if old.is_empty() && !directory.path().join(STORE_LOG).is_file() {
        return Ok(None);
    }
    let scratch = Scratch::make(directory.path())?;
    let log = StoreLog::in_directory(directory).map_err(|error| error.to_string())?;
    let mut settled = Settled::default();
    for (number, data_dir) in old.into_iter().enumerate() {
        let copy = scratch.0.join(format!("{number}.db"));
        let refused = match recover(&log, data_dir, &copy) {
            Ok(entries) => {
                *settled.recovered.get_or_insert(0) += entries;
                continue;
            }
            Err(CarryError::Target(error)) => return Err(error.to_string()),
            Err(refused) => refused,
        };
        settled.refused.push(format!("{}: {refused}", data_dir.join(STORE_LOG).display()));
    }
    let place = log.place().map_err(|error| error.to_string())?;
    if place.is_some() && settled.recovered.is_none() {
        log.mark_copied(Some(why)).map_err(|error| error.to_string())?;
    }
    Ok(place.map(|_| settled))
}

fn recover(log: &StoreLog, data_dir: &Path, copy: &Path) -> Result<u64, CarryError> {
    let unread = |problem: String| CarryError::Source(StoreError::Read(problem));
    let _alone = without_server(data_dir).map_err(|failure| unread(failure.message))?;
    // Nothing is written beside the old one.
    for ending in ["", "-wal"] {
        let beside = |path: &Path| PathBuf::from(format!("{}{ending}", path.display()));
        match fs::copy(beside(&data_dir.join(STORE_LOG)), beside(copy)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && ending == "-wal" => {}
            copied => drop(copied.map_err(|error| unread(error.to_string()))?),
        }
    }
    let old = StoreLog::of_copy(copy).map_err(|error| unread(error.to_string()))?;
    let outline = old.outline().map_err(CarryError::Source)?.ok_or_else(|| unread("it is empty".into()))?;
    log.carry(&old, &outline, None)
}

/// The log of a store that is copied into another one.
#[derive(Debug)]
pub(super) struct Copying {
    from: StoreLog,
    outline: Outline,
}

impl Copying {
    /// Before the events are copied. None where the source has no log. Nothing is changed.
    pub(super) fn begin(from: &Opened, to: &Opened) -> Result<Option<Copying>, Trouble> {
        let Some(from) = from.store_log(false).map_err(|error| of(Kind::Source, &error))? else {
            return Ok(None);
        };
        let Some(outline) = from.outline().map_err(Trouble::source)? else { return Ok(None) };
        let to = to.store_log(false).map_err(|error| of(Kind::Target, &error))?;
        let ours = to.map_or(Ok(None), |to| to.place()).map_err(Trouble::target)?;
        if let Some(ours) = ours
            && !from.continues(&ours, &outline).map_err(Trouble::source)?
        {
            let (ours, theirs) = (ours.tree.size, outline.place.tree.size);
            return Err(CarryError::NoBeginning { ours, theirs }.into());
        }
        Ok(Some(Copying { from, outline }))
    }

    /// Behind the events. How many entries came.
    pub(super) fn finish(&self, to: &Opened) -> Result<u64, Trouble> {
        const WHY: &str = "this store is a copy that `sealog copy` made";
        let to = to.store_log(true).map_err(|error| of(Kind::Target, &error))?;
        let to = to.expect("it was to be made");
        Ok(to.carry(&self.from, &self.outline, Some(WHY))?)
    }
}

/// The log of a database that is followed.
#[derive(Debug)]
pub(super) struct Following {
    from: StoreLog,
    to: StoreLog,
    /// Up to where the copy has it.
    known: Option<Place>,
}

impl Following {
    pub(super) fn open(from: &Opened, to: &Opened) -> Result<Following, Trouble> {
        let from = from.store_log(true).map_err(|error| of(Kind::Source, &error))?;
        let to = to.store_log(true).map_err(|error| of(Kind::Target, &error))?;
        let made = "it was to be made";
        Ok(Following { from: from.expect(made), to: to.expect(made), known: None })
    }

    /// Before the events of a look are copied. None where the log is as it was.
    pub(super) fn look(&self) -> Result<Option<Outline>, Trouble> {
        let place = self.from.place().map_err(Trouble::source)?;
        if place.is_none() || place == self.known {
            return Ok(None);
        }
        self.from.outline().map_err(Trouble::source)
    }

    /// Behind them.
    pub(super) fn follow(&mut self, outline: Outline) -> Result<(), Trouble> {
        const WHY: &str = "this store is a copy that `sealog replicate` made";
        self.to.carry(&self.from, &outline, Some(WHY))?;
        self.known = Some(outline.place);
        Ok(())
    }
}

fn of(kind: Kind, error: &dyn std::fmt::Display) -> Trouble {
    Trouble::new(kind, error.to_string())
}

impl From<CarryError> for Trouble {
    fn from(error: CarryError) -> Trouble {
        match error {
            CarryError::Source(error) => Trouble::source(error),
            CarryError::Target(error) => Trouble::target(error),
            CarryError::NoBeginning { .. } => Trouble::wrong_way(&error.to_string()),
            CarryError::Broken => Trouble::broken(error.to_string()),
        }
    }
}
