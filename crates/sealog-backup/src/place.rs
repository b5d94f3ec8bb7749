//! The directory that backups are kept in.
//!
//! ```text
//! FORMAT                           the line "sealog backup 1"
//! REPLICA                          where `sealog replicate` keeps its one copy
//! backups/000001-20261116T173915Z.json   a manifest for each backup
//! live/00000001-SALT.log           segments, shared by all backups that have them. They only grow, behind
//!                                  what any manifest names
//! test/00000001-SALT.log
//! files/SHA256                     control data and other files, or pieces of them, by their digest
//! VERIFIED                         the newest backup that `sealog backup verify` found whole
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{is_unfinished, make_dir, make_dir_durably, remove_unfinished, sync_dir, write_new};
use sealog_store::embedded::backup::{SegmentContents, Walk, Wanted};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::manifest::{FORMAT, FileText, Manifest, SegmentText, number_of};

#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    /// Whoever writes is alone. Whoever reads keeps a replica from removing what it reads.
    _lock: File,
}

/// Marks the directory of a replica.
pub(super) const REPLICA: &str = "REPLICA";

const VERIFIED: &str = "VERIFIED";

/// The newest backup that was found whole.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Verified {
    pub id: String,
    /// Of the file, so that a backup that took its name is not taken for it.
    manifest_sha256: String,
    pub verified_at_ms: u64,
}

/// Who writes to a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeper {
    /// Adds backups, or removes those that no rule keeps.
    Backups,
    /// Keeps the newest alone.
    Replica,
}

/// A manifest as it was found.
#[derive(Debug)]
pub(super) struct Found {
    pub id: String,
    pub manifest: Result<Manifest, String>,
}

/// The end of a segment that grows.
#[derive(Debug)]
pub(super) struct Tail(File);

impl Tail {
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    /// The segment ends here, and is durable.
    pub(super) fn finish(self, end: u64) -> io::Result<()> {
        self.0.set_len(end)?;
        self.0.sync_all()
    }
}

impl Place {
    /// For reading.
    pub(super) fn open(path: &Path) -> Result<Place, Failure> {
        let format = path.join("FORMAT");
        match fs::read_to_string(&format) {
            Ok(text) if text.trim_end() == FORMAT => {
                let lock = File::open(&format).map_err(|error| Failure::of_path(&format, &error))?;
                // Where there are no locks, a replica that is kept meanwhile can make the reader fail, which
                // is then said.
                let _ = lock.lock_shared();
                Ok(Place { path: path.to_owned(), _lock: lock })
            }
            Ok(text) if text.starts_with("sealog embedded") => Err(Failure::usage(format!(
                "{}: this is a data directory, not a backup directory: start a server on it, or copy it into a database with `sealog copy`. Give backups a directory of their own, if possible on another disk",
                path.display()
            ))),
            Ok(text) => Err(Failure::usage(format!(
                "{}: the directory has the format “{}”, but this program reads “{FORMAT}”; use the version that wrote it",
                path.display(),
                text.trim_end()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Failure::usage(format!(
                "{}: there are no backups here; create one with `sealog backup create`",
                path.display()
            ))),
            Err(error) => Err(Failure::of_path(&format, &error)),
        }
    }

    /// For writing. A directory that is not there is made; one that has something else in it is left alone.
    pub(super) fn create(path: &Path, keeper: Keeper) -> Result<Place, Failure> {
        let failed = |error: io::Error| Failure::of_path(path, &error);
        make_dir_durably(path).map_err(failed)?;
        let lock = File::open(path).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let busy = format!(
                    "{}: another backup is in progress here, or a prune; wait for it",
                    path.display()
                );
                return Err(Failure::new(Exit::Unavailable, busy));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        if !path.join("FORMAT").exists() {
            let mut entries = fs::read_dir(path).map_err(failed)?.flatten();
            if let Some(other) = entries.find(|entry| !is_unfinished(&entry.file_name().to_string_lossy())) {
                return Err(Failure::usage(format!(
                    "{}: the directory has other files ({}); give one that is new, empty, or has backups of this store",
                    path.display(),
                    other.file_name().to_string_lossy()
                )));
            }
            write_new(&path.join("FORMAT"), format!("{FORMAT}\n").as_bytes()).map_err(failed)?;
        }
        let place = Place { _lock: lock, ..Place::open(path)? };
        for dir in ["backups", "live", "test", "files"] {
            make_dir(&path.join(dir)).map_err(failed)?;
            // Of backups that were killed: control data may be large, and has another name each time.
            remove_unfinished(&path.join(dir));
        }
        place.admit(keeper)?;
        sync_dir(path).map_err(failed)?;
        Ok(place)
    }

    /// Backups and a replica do not share a directory.
    fn admit(&self, keeper: Keeper) -> Result<(), Failure> {
        let (mark, dir) = (self.path.join(REPLICA), self.path.display());
        match (keeper, mark.exists()) {
            (Keeper::Backups, false) | (Keeper::Replica, true) => Ok(()),
            (Keeper::Backups, true) => Err(Failure::usage(format!(
                "{dir}: `sealog replicate` keeps its copy here and removes older backups; give backups a directory of their own"
            ))),
            (Keeper::Replica, false) if !self.list()?.is_empty() => Err(Failure::usage(format!(
                "{dir}: there are backups here, which a replica would remove; give the replica a directory of its own"
            ))),
            (Keeper::Replica, false) => {
                write_new(&mark, b"").map_err(|error| Failure::of_path(&mark, &error))
            }
        }
    }

    /// Fails while a process writes here. While it is held, no process begins to.
    pub(super) fn without_writers(&self) -> Result<File, Failure> {
        let lock = File::open(&self.path).map_err(|error| Failure::of_path(&self.path, &error))?;
        match lock.try_lock() {
            Err(TryLockError::WouldBlock) => Err(Failure::new(
                Exit::Unavailable,
                format!("{}: `sealog replicate` still writes here; stop it first", self.path.display()),
            )),
            // A file system without locks is promoted from all the same.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(lock),
        }
    }

    /// Nothing while somebody reads here. As long as it is held, nobody begins to.
    pub(super) fn without_readers(&self) -> Option<File> {
        let lock = File::open(self.path.join("FORMAT")).ok()?;
        lock.try_lock().ok()?;
        Some(lock)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All backups, oldest first.
    pub(super) fn list(&self) -> Result<Vec<Found>, String> {
        let dir = self.path.join("backups");
        let failed = |error: io::Error| format!("{}: {error}", dir.display());
        let mut found = Vec::new();
        let entries = match fs::read_dir(&dir) {
            // Of a first backup that was killed as it began.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            if let Some(id) = name.strip_suffix(".json") {
                let bytes = match fs::read(dir.join(&name)) {
                    // A replica has a newer one by now.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    bytes => bytes.map_err(failed)?,
                };
                let manifest = Manifest::decode(&bytes).and_then(|manifest| match manifest.id == id {
                    true => Ok(manifest),
                    false => Err(format!("its manifest belongs to backup {}", manifest.id)),
                });
                found.push(Found { id: id.to_owned(), manifest });
            }
        }
        found.sort_by(|a, b| (number_of(&a.id), &a.id).cmp(&(number_of(&b.id), &b.id)));
        Ok(found)
    }

    /// The manifest of a backup as it is in its file, for whoever checks a signature over it.
    pub(super) fn manifest_bytes(&self, id: &str) -> Result<Vec<u8>, String> {
        let path = self.manifest_path(id);
        fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Those whose manifests can be read, oldest first.
    pub(super) fn manifests(&self) -> Result<Vec<Manifest>, String> {
        Ok(self.list()?.into_iter().filter_map(|found| found.manifest.ok()).collect())
    }

    pub(super) fn segment_path(&self, mode: &str, number: u64, salt: &str) -> PathBuf {
        self.path.join(segment_name(mode, number, salt))
    }

    pub(super) fn file_path(&self, sha256: &str) -> PathBuf {
        self.path.join("files").join(sha256)
    }

    /// The part of a segment that counts. Nothing is said of its digest.
    pub(super) fn read_segment(&self, mode: &str, segment: &SegmentText) -> io::Result<Vec<u8>> {
        let file = File::open(self.segment_path(mode, segment.number, &segment.salt))?;
        // Before there is memory for it, since a manifest can say anything.
        let mut content = Vec::new();
        if file.metadata()?.len() >= segment.bytes {
            content.reserve_exact(usize::try_from(segment.bytes).unwrap_or(0));
            file.take(segment.bytes).read_to_end(&mut content)?;
        }
        if (content.len() as u64) < segment.bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the file is shorter than in the manifest",
            ));
        }
        Ok(content)
    }

    /// Walks over segments, in their order. They are not verified: what a chain ends with is what counts.
    pub(super) fn walk_over<'a>(
        &self,
        walk: &mut Walk,
        mode: &str,
        segments: impl Iterator<Item = &'a SegmentText>,
    ) -> Result<(), String> {
        for segment in segments {
            let name = segment_name(mode, segment.number, &segment.salt);
            let content = self.read_segment(mode, segment).map_err(|error| format!("{name}: {error}"))?;
            let contents = SegmentContents::read(&content, false, &Wanted::default());
            walk.add(contents.ok_or_else(|| format!("{name}: its header is damaged"))?);
        }
        Ok(())
    }

    /// To write behind what any manifest names of a segment. What a killed process has left there is written
    /// over.
    pub(super) fn extend_segment(&self, mode: &str, number: u64, salt: &str) -> io::Result<Tail> {
        let path = self.segment_path(mode, number, salt);
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).map(Tail)
    }

    /// For a copy that becomes a file of the backup: on the disk of the backups, and removed by the next one
    /// if this one is killed.
    pub(super) fn unfinished_file(&self) -> PathBuf {
        self.path.join("files").join("control.db.tmp")
    }

    /// Keeps a small file, or a piece of a large one, under its digest.
    pub(super) fn put_piece(&self, content: &[u8], sha256: &str) -> Result<(), String> {
        let path = self.file_path(sha256);
        // One that was damaged since is replaced: it is what its name says.
        if fs::read(&path).is_ok_and(|there| there == content) {
            return Ok(());
        }
        write_new(&path, content).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// A file as it was backed up, or what is wrong with it.
    pub(super) fn read_file(&self, file: &FileText) -> Result<Vec<u8>, String> {
        let mut content = Vec::new();
        for sha256 in file.stored() {
            let path = self.file_path(sha256);
            let part =
                fs::read(&path).map_err(|error| format!("{} ({}): {error}", path.display(), file.name))?;
            if hex::encode(Sha256::digest(&part)) != sha256 {
                return Err(format!("{} ({}): checksum mismatch", path.display(), file.name));
            }
            content.extend_from_slice(&part);
        }
        let is_whole = file.pieces.is_empty() || hex::encode(Sha256::digest(&content)) == file.sha256;
        match is_whole && content.len() as u64 == file.bytes {
            true => Ok(content),
            false => Err(format!("{}: its pieces are not those of the file", file.name)),
        }
    }

    /// Every file that these backups consist of, but for their manifests.
    pub(super) fn named<'a>(&self, backups: impl IntoIterator<Item = &'a Manifest>) -> BTreeSet<PathBuf> {
        let mut named = BTreeSet::new();
        for manifest in backups {
            named.extend(manifest.files.iter().flat_map(FileText::stored).map(|name| self.file_path(name)));
            for log in &manifest.logs {
                let path =
                    |segment: &SegmentText| self.segment_path(&log.mode, segment.number, &segment.salt);
                named.extend(log.segments.iter().map(path));
            }
        }
        named
    }

    /// Every file that none of these backups has any use for: those of removed backups, and of interrupted
    /// ones.
    pub(super) fn unnamed<'a>(
        &self,
        backups: impl IntoIterator<Item = &'a Manifest>,
    ) -> io::Result<Vec<PathBuf>> {
        let (named, mut unnamed) = (self.named(backups), Vec::new());
        for dir in ["files", "live", "test"] {
            for entry in fs::read_dir(self.path.join(dir))? {
                let path = entry?.path();
                if !named.contains(&path) {
                    unnamed.push(path);
                }
            }
        }
        unnamed.sort();
        Ok(unnamed)
    }

    /// Makes the removal of manifests durable.
    pub(super) fn sync_manifests(&self) -> io::Result<()> {
        sync_dir(&self.path.join("backups"))
    }

    /// Which backup was last found whole, and when. Nothing if that backup is not there any more.
    pub(super) fn verified(&self) -> Option<Verified> {
        let verified: Verified = serde_json::from_slice(&fs::read(self.path.join(VERIFIED)).ok()?).ok()?;
        let manifest = self.manifest_bytes(&verified.id).ok()?;
        (hex::encode(Sha256::digest(manifest)) == verified.manifest_sha256).then_some(verified)
    }

    /// Records that a backup was found whole, unless a newer one was.
    pub(super) fn note_verified(&self, manifest: &Manifest, now_ms: u64) -> Result<(), String> {
        if self.verified().is_some_and(|verified| number_of(&verified.id) > manifest.number) {
            return Ok(());
        }
        let manifest_sha256 = hex::encode(Sha256::digest(self.manifest_bytes(&manifest.id)?));
        let verified = Verified { id: manifest.id.clone(), manifest_sha256, verified_at_ms: now_ms };
        let path = self.path.join(VERIFIED);
        let bytes = serde_json::to_vec(&verified).expect("texts and a number");
        write_new(&path, &bytes).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Last, and only when everything else is durable: from here on it is a backup.
    pub(super) fn put_manifest(&self, manifest: &Manifest) -> Result<(), String> {
        for dir in ["live", "test", "files"] {
            let dir = self.path.join(dir);
            sync_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let path = self.manifest_path(&manifest.id);
        write_new(&path, &manifest.encode()).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Without this file the backup is not in the list. What it alone had stays until a sweep.
    pub(super) fn manifest_path(&self, id: &str) -> PathBuf {
        self.path.join("backups").join(format!("{id}.json"))
    }
}

/// Its path in the directory and in a stream.
pub(super) fn segment_name(mode: &str, number: u64, salt: &str) -> String {
    format!("{mode}/{number:08}-{salt}.log")
}
