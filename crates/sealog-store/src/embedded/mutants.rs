//! Deliberate bugs, to prove that the tests of crashes and failing disks can fail. Each is a switch of one
//! build (the feature `mutants`, which no build that is used has): `SEALOG_MUTANT` names the one that is on.
//! In any other build [`on`] is the constant `false`, and nothing of this is left.

/// What a store gets wrong.
#[cfg_attr(
    not(feature = "mutants"),
    expect(dead_code, reason = "some are a disk that is misused, which no other build has")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    /// Answers do not wait for the disk.
    AckBeforeSync,
    /// Names of new segments, high-water marks and indexes are not made durable.
    SkipDirectorySync,
    /// A sync that has failed is tried again, and the second answer believed.
    RetryFailedSync,
    /// A record is believed whatever its checksum says.
    FrameWithoutChecksum,
    /// The idempotency record is not written with the events of its request. It is in memory, as if it were
    /// to be written somewhere else later.
    KeyOutsideFrame,
    /// The high-water mark's seqs are compared with the log, its hashes are not.
    MarkWithoutHash,
    /// Only the file in the data directory is locked, and nobody looks whether the directory is still there.
    LockFileOnly,
}

#[cfg(not(feature = "mutants"))]
pub(super) const fn on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub(super) use switched::{disk, on};

#[cfg(feature = "mutants")]
mod switched {
    use std::io;
    use std::path::Path;
    use std::sync::{Arc, LazyLock};

    use super::super::log::disk::{Disk, DiskFile};
    use super::Mutant;

    const NAMES: [(&str, Mutant); 7] = [
        ("ack-before-sync", Mutant::AckBeforeSync),
        ("skip-directory-sync", Mutant::SkipDirectorySync),
        ("retry-failed-sync", Mutant::RetryFailedSync),
        ("frame-without-checksum", Mutant::FrameWithoutChecksum),
        ("key-outside-frame", Mutant::KeyOutsideFrame),
        ("mark-without-hash", Mutant::MarkWithoutHash),
        ("lock-file-only", Mutant::LockFileOnly),
    ];

    /// A name that nobody knows would be a mutant that nobody catches.
    static CHOSEN: LazyLock<Option<Mutant>> = LazyLock::new(|| {
        let name = std::env::var("SEALOG_MUTANT").ok()?;
        let known = NAMES.iter().find(|(known, _)| *known == name);
        Some(known.unwrap_or_else(|| panic!("SEALOG_MUTANT={name} is none of {NAMES:?}")).1)
    });

    pub(in super::super) fn on(mutant: Mutant) -> bool {
        *CHOSEN == Some(mutant)
    }

    /// The disk as the store uses it if it is one of the mutants that misuse it.
    pub(in super::super) fn disk(disk: Arc<dyn Disk>) -> Arc<dyn Disk> {
        let misused = on(Mutant::SkipDirectorySync) || on(Mutant::RetryFailedSync);
        if misused { Arc::new(MisusedDisk(disk)) } else { disk }
    }

    #[derive(Debug)]
    struct MisusedDisk(Arc<dyn Disk>);

    impl Disk for MisusedDisk {
        fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            Ok(Box::new(MisusedFile(self.0.open(path)?)))
        }

        fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
            Ok(Box::new(MisusedFile(self.0.create(path)?)))
        }

        fn create_dir(&self, path: &Path) -> io::Result<()> {
            self.0.create_dir(path)
        }

        fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
            self.0.list(dir)
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.0.rename(from, to)
        }

        fn remove(&self, path: &Path) -> io::Result<()> {
            self.0.remove(path)
        }

        fn sync_dir(&self, dir: &Path) -> io::Result<()> {
            if on(Mutant::SkipDirectorySync) { Ok(()) } else { self.0.sync_dir(dir) }
        }

        fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
            self.0.free_bytes(dir)
        }
    }

    #[derive(Debug)]
    struct MisusedFile(Box<dyn DiskFile>);

    impl DiskFile for MisusedFile {
        fn length(&self) -> io::Result<u64> {
            self.0.length()
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.read_at(buffer, offset)
        }

        fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.0.write_all_at(bytes, offset)
        }

        fn set_len(&self, length: u64) -> io::Result<()> {
            self.0.set_len(length)
        }

        fn sync(&self) -> io::Result<()> {
            let first = self.0.sync();
            if on(Mutant::RetryFailedSync) { first.or_else(|_| self.0.sync()) } else { first }
        }

        fn is_linked(&self) -> io::Result<bool> {
            self.0.is_linked()
        }
    }
}
