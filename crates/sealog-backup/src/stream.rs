//! A backup as one stream of tar: regular files in the ustar format, with the names that a backup has.

use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{create_file, make_dir};
use tar::{Archive, EntryType, Header};

use super::place::REPLICA;

pub(super) const BLOCK: usize = 512;
/// The field has eleven octal digits.
const BYTES_MAX: u64 = 0o77_777_777_777;
/// Of a path in a stream that this program has written.
const NAME_MAX: usize = 100;

/// Not `tar::Builder`: it ends the archive when it is dropped, and a backup that failed would look whole.
pub(super) struct TarWriter<W: Write>(W);

impl<W: Write> TarWriter<W> {
    pub(super) fn new(out: W) -> TarWriter<W> {
        TarWriter(out)
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.0.write_all(header(name, content.len() as u64)?.as_bytes())?;
        self.0.write_all(content)?;
        self.0.write_all(&[0; BLOCK][..content.len().next_multiple_of(BLOCK) - content.len()])
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()
    }
}

pub(super) fn header(name: &str, bytes: u64) -> io::Result<Header> {
    bounded(name, bytes)?;
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_mode(0o600);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(bytes);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Ok(header)
}

fn bounded(name: &str, bytes: u64) -> io::Result<()> {
    if name.len() > NAME_MAX || bytes > BYTES_MAX {
        return Err(io::Error::other(format!(
            "{name} with {bytes} bytes is too large for a stream; back up into a directory"
        )));
    }
    Ok(())
}

/// Unpacks a stream that this program has written into a directory. Anything else in it is refused: a path
/// that leads elsewhere, a link, a file that it would not write.
pub(super) fn unpack(stream: impl Read, dir: &Path) -> Result<(), Failure> {
    let broken =
        |why: &str| Failure::new(Exit::Broken, format!("the stream is not a complete backup: {why}"));
    let foreign = || broken("a header is not from `sealog backup create -`");
    let failed = |error: io::Error| broken(&error.to_string());
    let mut archive = Archive::new(Endless(stream));
    // Raw: long names and attributes in entries of their own are not from this program.
    for entry in archive.entries().map_err(failed)?.raw(true) {
        // Errors of the crate itself are about headers; all others are about reading.
        let mut entry = entry.map_err(|error| match error.kind() {
            ErrorKind::Other => foreign(),
            _ => failed(error),
        })?;
        let name = String::from_utf8(entry.path_bytes().into_owned());
        let name = name.map_err(|_| broken("a name is not UTF-8"))?;
        bounded(&name, entry.size()).map_err(failed)?;
        if entry.header().entry_type() != EntryType::Regular || name.is_empty() {
            return Err(foreign());
        }
        let path =
            dir.join(expected(&name).ok_or_else(|| broken(&format!("it has an unexpected file {name}")))?);
        let parent = path.parent().unwrap_or(dir);
        make_dir(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        let mut written = || {
            let mut file = create_file(&path)?;
            io::copy(&mut entry, &mut file)?;
            file.sync_all()
        };
        if let Err(error) = written() {
            let _ = fs::remove_file(&path);
            return Err(match error.kind() {
                ErrorKind::UnexpectedEof => broken("it ends in the middle of a file"),
                _ => Failure::from(format!("{}: {error}", path.display())),
            });
        }
    }
    Ok(())
}

/// Makes the end of the input an error. The crate would take it for the end of the archive, which two empty
/// blocks mark.
pub(super) struct Endless<R>(pub(super) R);

impl<R: Read> Read for Endless<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 if !into.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            count => Ok(count),
        }
    }
}

/// Where a file of a backup belongs.
fn expected(name: &str) -> Option<&str> {
    let is_plain = |text: &str, rest: &str| {
        let text = text.strip_suffix(rest);
        text.is_some_and(|text| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        })
    };
    let fits = match name.split_once('/') {
        None => name == "FORMAT" || name == REPLICA,
        Some(("live" | "test", file)) => is_plain(file, ".log"),
        Some(("backups", file)) => is_plain(file, ".json"),
        Some(("files", file)) => is_plain(file, ""),
        Some(_) => false,
    };
    fits.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut tar = TarWriter::new(&mut out);
        for (name, content) in files {
            tar.file(name, content).unwrap();
        }
        tar.finish().unwrap();
        out
    }

    /// One empty file, whose header was changed.
    fn changed(change: impl FnOnce(&mut Header)) -> Vec<u8> {
        let mut header = header("FORMAT", 0).unwrap();
        change(&mut header);
        header.set_cksum();
        [header.as_bytes().as_slice(), &[0; 2 * BLOCK]].concat()
    }

    /// What [`unpack`] says of a stream that it does not take, and must leave no file of.
    fn refusal(stream: &[u8]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let failure = unpack(stream, dir.path()).unwrap_err();
        assert!(fs::read_dir(dir.path()).unwrap().next().is_none(), "{failure:?}");
        failure.message
    }

    #[test]
    fn a_stream_reads_back_and_part_of_one_is_refused() {
        let long = vec![7; 1000];
        let files: [(&str, &[u8]); 3] =
            [("FORMAT", b"x\n"), ("live/00000001-ab.log", &long), ("files/00ff", b"")];
        let bytes = stream(&files);
        let dir = tempfile::tempdir().unwrap();
        unpack(&bytes[..], dir.path()).unwrap();
        for (name, content) in files {
            assert_eq!(fs::read(dir.path().join(name)).unwrap(), content, "{name}");
        }
        for end in [0, 100, 512, 513, 1024, 1500, bytes.len() - 1024] {
            let dir = tempfile::tempdir().unwrap();
            assert!(unpack(&bytes[..end], dir.path()).is_err(), "{end}");
        }
    }

    #[test]
    fn nothing_is_written_outside_of_the_directory() {
        for name in ["../x", "/tmp/x", "live/../../x.log", "live/a/b.log", "other", "backups/x", "files/../x"]
        {
            let stream = changed(|header| {
                header.as_old_mut().name = [0; NAME_MAX];
                header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            });
            let refused = refusal(&stream);
            assert!(refused.contains(&format!("it has an unexpected file {name}")), "{refused}");
        }
        let below =
            refusal(&changed(|header| header.as_ustar_mut().unwrap().prefix[..2].copy_from_slice(b"..")));
        assert!(below.contains("it has an unexpected file ../FORMAT"), "{below}");
    }

    #[test]
    fn an_entry_that_is_no_regular_file_is_refused() {
        for kind in
            [EntryType::Link, EntryType::Symlink, EntryType::Directory, EntryType::Fifo].into_iter().chain([
                EntryType::GNULongName,
                EntryType::GNUSparse,
                EntryType::XHeader,
                EntryType::XGlobalHeader,
            ])
        {
            let refused = refusal(&changed(|header| header.set_entry_type(kind)));
            assert!(refused.contains("a header is not from `sealog backup create -`"), "{kind:?}: {refused}");
        }
    }

    #[test]
    fn a_header_that_is_damaged_is_refused() {
        let mut damaged = changed(|_| {});
        damaged[100] ^= 1;
        assert!(refusal(&damaged).contains("a header is not from `sealog backup create -`"));
        let no_number = changed(|header| header.as_old_mut().size = *b"eleven bytes");
        assert!(refusal(&no_number).contains("a header is not from `sealog backup create -`"));
        assert!(
            refusal(&changed(|header| header.as_old_mut().name[0] = 0xff)).contains("a name is not UTF-8")
        );
    }

    #[test]
    fn a_file_is_as_large_as_its_field_has_digits_and_its_name_as_long_as_its_own() {
        assert!(header("FORMAT", BYTES_MAX).is_ok());
        assert!(header("FORMAT", BYTES_MAX + 1).unwrap_err().to_string().contains("too large for a stream"));
        let refused = refusal(&changed(|header| header.set_size(BYTES_MAX + 1)));
        assert!(refused.contains("FORMAT with 8589934592 bytes is too large for a stream"), "{refused}");
        let name = |length| "x".repeat(length);
        assert!(header(&name(NAME_MAX), 0).is_ok() && header(&name(NAME_MAX + 1), 0).is_err());
    }

    #[test]
    fn a_stream_that_was_not_finished_is_refused() {
        let mut out = Vec::new();
        TarWriter::new(&mut out).file("files/00ff", b"").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let refused = unpack(&out[..], dir.path()).unwrap_err().message;
        assert_eq!(refused, "the stream is not a complete backup: unexpected end of file");
    }

    /// A stream of a version that wrote its headers itself: the checksum ends in a zero and a blank.
    #[test]
    fn a_checksum_is_read_in_either_form() {
        let mut stream = stream(&[("FORMAT", b"x\n")]);
        let sum = String::from_utf8(stream[149..155].to_vec()).unwrap();
        stream[148..156].copy_from_slice(format!("{sum}\0 ").as_bytes());
        let dir = tempfile::tempdir().unwrap();
        unpack(&stream[..], dir.path()).unwrap();
    }
}
