//! The little of tar that a stream of files needs: the ustar format of POSIX.1-1988, regular files only.

use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{create_file, make_dir};

use super::place::REPLICA;

const BLOCK: usize = 512;
/// The field has eleven octal digits.
const BYTES_MAX: u64 = 0o77_777_777_777;
/// Of a path in a stream that this program has written.
const NAME_MAX: usize = 100;

pub(super) struct TarWriter<W: Write>(W);

impl<W: Write> TarWriter<W> {
    pub(super) fn new(out: W) -> TarWriter<W> {
        TarWriter(out)
    }

    pub(super) fn file(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        self.0.write_all(&header(name, content.len() as u64)?)?;
        self.0.write_all(content)?;
        self.0.write_all(&[0; BLOCK][..padding(content.len() as u64)])
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.0.write_all(&[0; 2 * BLOCK])?;
        self.0.flush()
    }
}

fn padding(bytes: u64) -> usize {
    let over = usize::try_from(bytes % BLOCK as u64).unwrap_or(0);
    if over == 0 { 0 } else { BLOCK - over }
}

fn header(name: &str, bytes: u64) -> io::Result<[u8; BLOCK]> {
    if name.len() > NAME_MAX || bytes > BYTES_MAX {
        return Err(io::Error::other(format!(
            "{name} with {bytes} bytes is too large for a stream; back up into a directory"
        )));
    }
    let mut header = [0; BLOCK];
    let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000600");
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{bytes:011o}"));
    put(136, "00000000000");
    put(148, "        ");
    put(156, "0");
    put(257, "ustar");
    put(263, "00");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// Unpacks a stream that this program has written into a directory. Anything else in it is refused: a path
/// that leads elsewhere, a link, a file that it would not write.
pub(super) fn unpack(mut stream: impl Read, dir: &Path) -> Result<(), Failure> {
    let broken =
        |why: &str| Failure::new(Exit::Broken, format!("the stream is not a complete backup: {why}"));
    let failed = |error: io::Error| broken(&error.to_string());
    loop {
        let mut block = [0; BLOCK];
        stream.read_exact(&mut block).map_err(failed)?;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let text = |range: std::ops::Range<usize>| {
            let field = &block[range];
            let end = field.iter().position(|byte| *byte == 0).unwrap_or(field.len());
            std::str::from_utf8(&field[..end]).ok().map(|text| text.trim().to_owned())
        };
        let octal = |range| text(range).and_then(|text| u64::from_str_radix(&text, 8).ok());
        let name = text(0..100).ok_or_else(|| broken("a name is not UTF-8"))?;
        let bytes = octal(124..136).ok_or_else(|| broken("a length is not a number"))?;
        if header(&name, bytes).map_err(failed)?[..] != block[..] && !is_ours(&block, &name, bytes) {
            return Err(broken("a header is not from `sealog backup create -`"));
        }
        let path =
            dir.join(expected(&name).ok_or_else(|| broken(&format!("it has an unexpected file {name}")))?);
        let parent = path.parent().unwrap_or(dir);
        make_dir(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        let mut written = || {
            let mut file = create_file(&path)?;
            let copied = io::copy(&mut (&mut stream).take(bytes), &mut file)?;
            if copied < bytes {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            file.sync_all()
        };
        if let Err(error) = written() {
            let _ = fs::remove_file(&path);
            return Err(match error.kind() {
                io::ErrorKind::UnexpectedEof => broken("it ends in the middle of a file"),
                _ => Failure::from(format!("{}: {error}", path.display())),
            });
        }
        let mut pad = [0; BLOCK];
        stream.read_exact(&mut pad[..padding(bytes)]).map_err(failed)?;
    }
}

/// Of a stream that another tar has packed from the directory: a regular file whose checksum is right.
fn is_ours(block: &[u8; BLOCK], name: &str, bytes: u64) -> bool {
    let mut plain = *block;
    plain[148..156].copy_from_slice(b"        ");
    let sum: u32 = plain.iter().map(|byte| u32::from(*byte)).sum();
    let field = std::str::from_utf8(&block[148..154]).ok().and_then(|text| u32::from_str_radix(text, 8).ok());
    field == Some(sum) && matches!(block[156], b'0' | 0) && !name.is_empty() && bytes <= BYTES_MAX
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
            let dir = tempfile::tempdir().unwrap();
            let refused = unpack(&stream(&[(name, b"x")])[..], dir.path()).unwrap_err();
            assert!(refused.message.contains(name), "{refused:?}");
        }
    }
}
