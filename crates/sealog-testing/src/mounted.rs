//! A small file system for tests of what happens when a disk is full.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealog_store::embedded::disk::{Disk, DiskFile, RealDisk};

/// A small ext4 file system in a file, mounted for a test. Nothing where the machine does not let us.
#[derive(Debug)]
pub struct Mounted {
    pub at: PathBuf,
    _home: tempfile::TempDir,
}

impl Mounted {
    pub fn new(mib: u64) -> Option<Mounted> {
        let home = tempfile::tempdir().unwrap();
        let (image, at) = (home.path().join("image"), home.path().join("disk"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mib << 20).unwrap();
        let run = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let mounted = run(Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(&image))
            && run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&at));
        if !mounted {
            println!(
                "left out: no small ext4 file system can be mounted here (root and loop devices are needed)"
            );
            return None;
        }
        Some(Mounted { at, _home: home })
    }

    /// Takes all room but this.
    pub fn fill(&self, name: &str, but: u64) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.at.join(name)).unwrap();
        let mut piece = 1 << 20;
        while piece >= 512 {
            let free = RealDisk.free_bytes(&self.at).unwrap();
            if free < but + piece || file.write_all(&vec![1; usize::try_from(piece).unwrap()]).is_err() {
                piece /= 2;
            }
        }
        let _ = file.sync_all();
    }

    pub fn free(&self) -> u64 {
        RealDisk.free_bytes(&self.at).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.at).status();
    }
}

/// A disk whose quota ends before it does: it says that it has room, and takes nothing.
#[derive(Debug)]
pub struct Boasting;

impl Disk for Boasting {
    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.open(path)
    }
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        RealDisk.create(path)
    }
    fn create_dir(&self, path: &Path) -> io::Result<()> {
        RealDisk.create_dir(path)
    }
    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealDisk.list(dir)
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealDisk.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        RealDisk.remove(path)
    }
    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealDisk.sync_dir(dir)
    }
    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(1 << 40)
    }
}
