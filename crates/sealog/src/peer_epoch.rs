//! The highest epoch that `replication.peer` has told, in a file of the data directory that is made while
//! there is room: to keep an epoch in it takes none. The control data keeps the same, and its write may need
//! room that a full disk does not have.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use sealog_cli::files::write_new;

const FILE: &str = "PEER-EPOCH";

#[derive(Clone, Debug)]
pub(crate) struct PeerEpoch {
    path: PathBuf,
}

impl PeerEpoch {
    pub(crate) fn of(data_dir: &Path) -> PeerEpoch {
        PeerEpoch { path: data_dir.join(FILE) }
    }

    /// Takes its room, if the file is not there yet.
    pub(crate) fn make(&self) -> Result<(), String> {
        if self.path.exists() {
            return Ok(());
        }
        let made = write_new(&self.path, line(0).as_bytes());
        made.map_err(|error| format!("{}: {error}; replication.peer needs this file", self.path.display()))
    }

    /// 0 without a file, as in a store that never had a peer. A damaged one is not taken for 0: the server
    /// might accept events beside a new primary.
    pub(crate) fn read(&self) -> Result<u64, String> {
        let text = match fs::read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(format!("{}: {error}", self.path.display())),
            Ok(bytes) => bytes,
        };
        epoch_of(&text).ok_or_else(|| {
            format!(
                "{} is damaged: it may have said that a copy of this store was promoted. Remove it only if this server is the primary",
                self.path.display()
            )
        })
    }

    /// Over what was there, which needs no room. Durable after success.
    pub(crate) fn keep(&self, epoch: u64) -> io::Result<()> {
        let file: File = OpenOptions::new().write(true).open(&self.path)?;
        // One sector, which a device writes whole or not at all.
        file.write_all_at(line(epoch).as_bytes(), 0)?;
        file.sync_all()
    }
}

/// Of the same length for each epoch.
fn line(epoch: u64) -> String {
    let said = format!("sealog peer epoch {epoch:020}");
    format!("{said} {:08x}\n", crc32c::crc32c(said.as_bytes()))
}

fn epoch_of(bytes: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(bytes).ok()?;
    let epoch = text.strip_prefix("sealog peer epoch ")?.split(' ').next()?.parse().ok()?;
    (text == line(epoch)).then_some(epoch)
}

#[cfg(test)]
mod tests {
    use sealog_testing::mounted::Mounted;

    use super::*;

    #[test]
    fn an_epoch_is_kept_on_a_disk_without_a_byte_of_room() {
        let Some(disk) = Mounted::new(8) else { return };
        let of = PeerEpoch::of(&disk.at);
        assert_eq!(of.read(), Ok(0));
        of.make().unwrap();
        disk.fill("ballast", 0);
        let refused = fs::write(disk.at.join("new"), "x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::StorageFull);
        of.keep(7).unwrap();
        assert_eq!(PeerEpoch::of(&disk.at).read(), Ok(7));
        // It stays when the next start makes sure that there is a file.
        of.make().unwrap();
        assert_eq!(of.read(), Ok(7));
    }

    #[test]
    fn a_file_that_cannot_be_made_or_read_is_an_error_and_never_epoch_0() {
        let dir = tempfile::tempdir().unwrap();
        let of = PeerEpoch::of(dir.path());
        let none = PeerEpoch::of(&dir.path().join("gone"));
        assert!(none.make().is_err_and(|problem| problem.contains("replication.peer needs this file")));
        assert!(of.keep(1).is_err(), "without its room");
        assert!(!dir.path().join(FILE).exists());
        for epoch in [0, 1, 10, u64::MAX] {
            assert_eq!(epoch_of(line(epoch).as_bytes()), Some(epoch));
            assert_eq!(line(epoch).len(), line(0).len());
        }
        let whole = line(3);
        let damaged = [
            String::new(),
            whole[..30].to_owned(),
            whole.replace('3', "2"),
            format!("{whole} "),
            "\0".repeat(whole.len()),
        ];
        for text in damaged {
            fs::write(dir.path().join(FILE), &text).unwrap();
            assert!(of.read().is_err_and(|problem| problem.contains("is damaged")), "{text:?}");
        }
    }
}
