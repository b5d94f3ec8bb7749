//! A disk in memory that behaves like a bad one: what was not synced is lost in a power cut, in part or whole
//! and in any order; calls fail or hang when they are told to, and files change behind the store's back.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use sealog_store::embedded::disk::{Disk, DiskFile};

use crate::dice::Dice;

/// Where tests open a store on a disk in memory. Not a path of any real file system.
pub const DIR: &str = "/sealog-simulated-disk";

/// What a disk tears writes into.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub struct SimDisk(Arc<Mutex<Sim>>);

#[derive(Debug, Default)]
struct Sim {
    files: BTreeMap<u64, Content>,
    names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    /// What was done to names since they were last synced, in order.
    name_changes: Vec<NameChange>,
    next_file: u64,
    calls: u64,
    plan: Plan,
    pub syncs: u64,
    fail_sync_of: Option<PathBuf>,
    watch: Option<Watch>,
}

/// What a call does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Open,
    Create,
    List,
    Rename,
    Remove,
    SyncDir,
    FreeBytes,
    Length,
    Read,
    Write,
    SetLen,
    Sync,
}

/// A call that is about to be made.
#[derive(Debug)]
pub struct Call<'a> {
    pub op: Op,
    /// The file's name at this moment, for a rename the new one; empty for a file that was removed.
    pub path: &'a Path,
    /// Which bytes are read or written.
    pub bytes: std::ops::Range<u64>,
}

impl Call<'_> {
    pub fn is(&self, op: Op, file: &str) -> bool {
        self.op == op && self.path.ends_with(file)
    }

    /// Whether somebody asked for it: not so the reads of the thread that counts events by day, which come
    /// whenever it has time.
    pub fn is_asked_for(&self) -> bool {
        !std::thread::current().name().is_some_and(|name| name.ends_with("-count"))
    }
}

/// Looks at each call before it is made: lets it pass, fails it, or holds it up.
type Look = dyn Fn(&Call<'_>) -> io::Result<()> + Send + Sync;

#[derive(Clone)]
struct Watch(Arc<Look>);

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Watch")
    }
}

#[derive(Clone, Debug, Default)]
struct Content {
    /// What reads show.
    shown: Vec<u8>,
    /// What a power cut leaves for sure.
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    pending: Vec<Change>,
    /// A sync of this file failed: what was pending then is shown, but no later sync will make it durable.
    sync_failed: bool,
}

#[derive(Clone, Debug)]
enum Change {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

#[derive(Clone, Debug)]
enum NameChange {
    Link(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

/// When calls fail.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// The power goes at this call: it and all later ones fail and change nothing.
    pub power_cut_at: Option<u64>,
    /// This sync fails, and what it should have made durable never is.
    pub fail_sync: Option<u64>,
    /// This write fails, having written a part.
    pub fail_write: Option<u64>,
    /// Bytes that all files together may have.
    pub capacity: Option<usize>,
}

impl SimDisk {
    pub fn new() -> SimDisk {
        SimDisk(Arc::default())
    }

    pub fn plan(&self, plan: Plan) {
        let mut sim = self.sim();
        sim.calls = 0;
        sim.syncs = 0;
        sim.plan = plan;
    }

    /// Number of calls since the plan was made.
    pub fn calls(&self) -> u64 {
        self.sim().calls
    }

    pub fn syncs(&self) -> u64 {
        self.sim().syncs
    }

    pub fn is_dead(&self) -> bool {
        let sim = self.sim();
        sim.plan.power_cut_at.is_some_and(|at| sim.calls >= at)
    }

    /// What is there when the power comes back: everything that was synced, and of the rest whatever the dice
    /// say.
    pub fn after_power_cut(&self, dice: &mut Dice) -> SimDisk {
        let mut sim = self.sim();
        let mut names = sim.durable_names.clone();
        // Changes of names reach the disk in order, up to some point.
        let kept = usize::try_from(dice.below(sim.name_changes.len() as u64 + 1)).unwrap();
        for change in sim.name_changes.iter().take(kept) {
            apply_name(&mut names, change);
        }
        let mut files = BTreeMap::new();
        for id in names.values() {
            let content = sim.files.get_mut(id).unwrap();
            let mut durable = content.durable.clone();
            for change in &content.pending {
                match (dice.below(3), change) {
                    (0, _) => {}
                    (1, change) => apply(&mut durable, change),
                    (_, Change::SetLen(length)) => apply(&mut durable, &Change::SetLen(*length)),
                    (_, Change::Write(at, bytes)) => {
                        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
                            if dice.chance(2) {
                                apply(&mut durable, &Change::Write(at + number * SECTOR, sector.to_vec()));
                            }
                        }
                    }
                }
            }
            files.insert(*id, Content { shown: durable.clone(), durable, ..Content::default() });
        }
        let next_file = sim.next_file;
        SimDisk(Arc::new(Mutex::new(Sim {
            files,
            durable_names: names.clone(),
            names,
            next_file,
            ..Sim::default()
        })))
    }

    /// What is there when only the process ended: everything that reads show, durable or not.
    pub fn after_kill(&self) -> SimDisk {
        let sim = self.sim();
        let copy = Sim {
            files: sim.files.clone(),
            names: sim.names.clone(),
            durable_names: sim.durable_names.clone(),
            name_changes: sim.name_changes.clone(),
            next_file: sim.next_file,
            ..Sim::default()
        };
        SimDisk(Arc::new(Mutex::new(copy)))
    }

    pub fn file_names(&self, dir: &Path) -> Vec<String> {
        self.list(dir).unwrap()
    }

    /// Shows every call to `watch` before it is made.
    pub fn watch(&self, watch: impl Fn(&Call<'_>) -> io::Result<()> + Send + Sync + 'static) {
        self.sim().watch = Some(Watch(Arc::new(watch)));
    }

    /// Counts reads of files whose names end like this, by everybody but the thread that counts events.
    pub fn count_reads(&self, ending: &'static str) -> Arc<AtomicUsize> {
        let reads = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&reads);
        self.watch(move |call| {
            if call.op == Op::Read && call.is_asked_for() && call.path.to_string_lossy().ends_with(ending) {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        reads
    }

    pub fn unwatch(&self) {
        self.sim().watch = None;
    }

    /// The next sync of the file with this name fails, as [`Plan::fail_sync`] does.
    pub fn fail_sync_of(&self, path: &Path) {
        self.sim().fail_sync_of = Some(path.to_owned());
    }

    /// What a file holds, or nothing where there is none.
    pub fn content(&self, path: &Path) -> Option<Vec<u8>> {
        let sim = self.sim();
        sim.names.get(path).map(|id| sim.files[id].shown.clone())
    }

    /// Changes a file, or makes one, past the store: at once, for good, and for those who have it open too.
    pub fn put(&self, path: &Path, content: &[u8]) {
        let mut sim = self.sim();
        let id = sim.names.get(path).copied().unwrap_or(sim.next_file);
        sim.next_file = sim.next_file.max(id + 1);
        sim.names.insert(path.to_owned(), id);
        sim.durable_names.insert(path.to_owned(), id);
        let (shown, durable) = (content.to_vec(), content.to_vec());
        sim.files.insert(id, Content { shown, durable, ..Content::default() });
    }

    /// Removes a file past the store.
    pub fn delete(&self, path: &Path) {
        let mut sim = self.sim();
        sim.names.remove(path);
        sim.durable_names.remove(path);
    }

    /// Replaces the salt of the indexes, as a lost one is replaced: index files of the old salt are stale.
    pub fn replace_index_salt(&self) {
        let path = Path::new(DIR).join("index.salt");
        let mut salt = self.content(&path).expect("a store was opened");
        let checksum_at = salt.len() - 4;
        salt[12..checksum_at].iter_mut().for_each(|byte| *byte ^= 0xF);
        let checksum = crc32c::crc32c(&salt[..checksum_at]);
        salt[checksum_at..].copy_from_slice(&checksum.to_le_bytes());
        self.put(&path, &salt);
    }

    fn sim(&self) -> std::sync::MutexGuard<'_, Sim> {
        self.0.lock().unwrap()
    }

    fn call(&self, op: Op, path: &Path) -> io::Result<std::sync::MutexGuard<'_, Sim>> {
        let watch = self.sim().watch.clone();
        if let Some(Watch(watch)) = watch {
            watch(&Call { op, path, bytes: 0..0 })?;
        }
        self.count()
    }

    fn file_call(
        &self,
        op: Op,
        id: u64,
        offset: u64,
        length: usize,
    ) -> io::Result<std::sync::MutexGuard<'_, Sim>> {
        let sim = self.sim();
        if let Some(Watch(watch)) = sim.watch.clone() {
            let name = sim.names.iter().find(|(_, named)| **named == id).map(|(path, _)| path.clone());
            drop(sim);
            let path = name.unwrap_or_default();
            watch(&Call { op, path: &path, bytes: offset..offset + length as u64 })?;
        } else {
            drop(sim);
        }
        self.count()
    }

    fn count(&self) -> io::Result<std::sync::MutexGuard<'_, Sim>> {
        let mut sim = self.sim();
        sim.calls += 1;
        if sim.plan.power_cut_at.is_some_and(|at| sim.calls >= at) {
            return Err(io::Error::other("the power is gone"));
        }
        Ok(sim)
    }

    fn handle(&self, id: u64) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), id })
    }
}

fn apply(bytes: &mut Vec<u8>, change: &Change) {
    match change {
        Change::SetLen(length) => bytes.resize(*length, 0),
        Change::Write(at, content) => {
            if bytes.len() < at + content.len() {
                bytes.resize(at + content.len(), 0);
            }
            bytes[*at..at + content.len()].copy_from_slice(content);
        }
    }
}

fn apply_name(names: &mut BTreeMap<PathBuf, u64>, change: &NameChange) {
    match change {
        NameChange::Link(path, id) => {
            names.insert(path.clone(), *id);
        }
        NameChange::Rename(from, to) => {
            if let Some(id) = names.remove(from) {
                names.insert(to.clone(), id);
            }
        }
        NameChange::Remove(path) => {
            names.remove(path);
        }
    }
}

impl Sim {
    fn change_name(&mut self, change: NameChange) {
        apply_name(&mut self.names, &change);
        self.name_changes.push(change);
    }

    fn used(&self) -> usize {
        self.names.values().map(|id| self.files[id].shown.len()).sum()
    }
}

impl Disk for SimDisk {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let sim = self.call(Op::Open, path)?;
        let id = sim.names.get(path).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        drop(sim);
        Ok(self.handle(id))
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        let mut sim = self.call(Op::Create, path)?;
        let id = sim.next_file;
        sim.next_file += 1;
        sim.files.insert(id, Content::default());
        sim.change_name(NameChange::Link(path.to_owned(), id));
        drop(sim);
        Ok(self.handle(id))
    }

    fn create_dir(&self, _path: &Path) -> io::Result<()> {
        Ok(())
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let sim = self.call(Op::List, dir)?;
        let names = sim.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(names
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.call(Op::Rename, to)?.change_name(NameChange::Rename(from.to_owned(), to.to_owned()));
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Op::Remove, path)?.change_name(NameChange::Remove(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut sim = self.call(Op::SyncDir, dir)?;
        sim.durable_names = sim.names.clone();
        sim.name_changes.clear();
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        let sim = self.call(Op::FreeBytes, dir)?;
        Ok(sim.plan.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(sim.used()) as u64))
    }
}

#[derive(Debug)]
struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl DiskFile for SimFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.disk.file_call(Op::Length, self.id, 0, 0)?.files[&self.id].shown.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let sim = self.disk.file_call(Op::Read, self.id, offset, buffer.len())?;
        let shown = &sim.files[&self.id].shown;
        let from = usize::try_from(offset).unwrap().min(shown.len());
        let count = buffer.len().min(shown.len() - from);
        buffer[..count].copy_from_slice(&shown[from..from + count]);
        Ok(count)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut sim = self.disk.file_call(Op::Write, self.id, offset, bytes.len())?;
        let at = usize::try_from(offset).unwrap();
        let grows = (at + bytes.len()).saturating_sub(sim.files[&self.id].shown.len());
        if sim.plan.capacity.is_some_and(|capacity| sim.used() + grows > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = sim.plan.fail_write.is_some_and(|nth| nth == 0);
        sim.plan.fail_write = sim.plan.fail_write.and_then(|nth| nth.checked_sub(1));
        let bytes = if fails { &bytes[..bytes.len() / 2] } else { bytes };
        let content = sim.files.get_mut(&self.id).unwrap();
        let change = Change::Write(at, bytes.to_vec());
        apply(&mut content.shown, &change);
        content.pending.push(change);
        if fails { Err(io::Error::other("a write fails, as planned")) } else { Ok(()) }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut sim = self.disk.file_call(Op::SetLen, self.id, 0, 0)?;
        let content = sim.files.get_mut(&self.id).unwrap();
        let change = Change::SetLen(usize::try_from(length).unwrap());
        apply(&mut content.shown, &change);
        content.pending.push(change);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut sim = self.disk.file_call(Op::Sync, self.id, 0, 0)?;
        sim.syncs += 1;
        let named = sim.fail_sync_of.as_ref().is_some_and(|path| sim.names.get(path) == Some(&self.id));
        if named {
            sim.fail_sync_of = None;
        }
        let fails = named || sim.plan.fail_sync.is_some_and(|nth| nth == 0);
        sim.plan.fail_sync = sim.plan.fail_sync.and_then(|nth| nth.checked_sub(1));
        let content = sim.files.get_mut(&self.id).unwrap();
        assert!(!content.sync_failed, "a file whose sync has failed must not be synced again and believed");
        let pending = std::mem::take(&mut content.pending);
        if fails {
            // As Linux does it: the pages are marked clean, and only the first caller hears of it.
            content.sync_failed = true;
            return Err(io::Error::other("a sync fails, as planned"));
        }
        for change in &pending {
            apply(&mut content.durable, change);
        }
        Ok(())
    }
}
