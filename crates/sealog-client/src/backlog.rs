//! How long events have waited in a spool, for those who watch it: read beside the processes that use it, and
//! without a lock.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use crate::journal::{GAP_MAX, content_of};
use crate::spool::is_name;

/// More than any record has. The rest of a longer line is skipped, as are damaged ones.
const LINE_MAX: u64 = 1 << 20;

/// Events that have neither a receipt nor an error yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    pub events: u64,
    /// When the oldest of them was queued, in Unix milliseconds.
    pub oldest_ms: Option<u64>,
}

impl Backlog {
    /// Of all files in a directory. Memory holds eight bytes for each event of one file.
    pub fn read(folder: &Path) -> io::Result<Backlog> {
        let mut all = Backlog::default();
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if !entry.file_name().to_str().is_some_and(is_name) {
                continue;
            }
            let of_file = match File::open(entry.path()) {
                Ok(file) => waiting(BufReader::new(file))?,
                // Its process has finished it meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            all.events += of_file.len() as u64;
            all.oldest_ms = all.oldest_ms.into_iter().chain(of_file).min();
        }
        Ok(all)
    }
}

/// When each event that is not settled was queued.
fn waiting(mut reader: impl BufRead) -> io::Result<Vec<u64>> {
    // From the first number on; 0: settled, or damaged.
    let (mut first, mut queued_ms): (u64, Vec<u64>) = (0, Vec::new());
    let mut line = Vec::new();
    loop {
        line.clear();
        if (&mut reader).take(LINE_MAX).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        let Some(content) = content_of(&line) else { continue };
        let mut parts = content.splitn(4, |byte| *byte == b' ').map(|part| std::str::from_utf8(part).ok());
        let kind = parts.next().flatten();
        let mut number = || parts.next().flatten()?.parse::<u64>().ok();
        let (Some(kind @ ("E" | "D")), Some(at), Some(value)) = (kind, number(), number()) else { continue };
        if queued_ms.is_empty() {
            first = at;
        }
        let Some(at) = at.checked_sub(first) else { continue };
        let end = queued_ms.len() as u64;
        if kind == "E" && at >= end && at - end <= GAP_MAX {
            queued_ms.extend((end..at).map(|_| 0));
            queued_ms.push(value.max(1));
        } else if kind == "D" && at < end {
            let index = |number: u64| usize::try_from(number).expect("not behind the end of a list");
            queued_ms[index(at)..index(at.saturating_add(value).min(end))].fill(0);
        }
    }
    queued_ms.retain(|ms| *ms > 0);
    Ok(queued_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(contents: &[&str]) -> String {
        let line = |content: &&str| format!("{:08x} {content}\n", crc32fast::hash(content.as_bytes()));
        contents.iter().map(line).collect()
    }

    #[test]
    fn what_is_settled_damaged_or_not_finished_does_not_wait() {
        let mut text = lines(&[
            "H sealog-spool 1",
            "E 7 1000 {\"action\":\"a\"}",
            "E 8 2000 {}",
            "B 7 2 2500 key",
            "E 9 3000 {}",
            "D 7 1",
            // Of events that an earlier cut has removed, or that never were.
            "D 1 3",
            "D 9 18446744073709551615",
            "D 99 1",
            "E 18446744073709551615 1 {}",
            "E 10 4000 {}",
        ]);
        assert_eq!(waiting(text.as_bytes()).unwrap(), [2000, 4000]);
        text.push_str(&lines(&["E 11 5000 {}"]).replace("5000", "5001"));
        text.push_str("00000000 E 12 6000");
        assert_eq!(waiting(text.as_bytes()).unwrap(), [2000, 4000]);
        text = format!("{}{}", "x".repeat(3 << 20), lines(&["", "E 1 1 {}", "E 2 9 {}", "D 1 1"]));
        assert_eq!(waiting(text.as_bytes()).unwrap(), [9]);
    }

    #[test]
    fn a_directory_has_the_oldest_of_all_its_files_and_other_files_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let write =
            |name: &str, contents: &[&str]| std::fs::write(dir.path().join(name), lines(contents)).unwrap();
        assert_eq!(Backlog::read(dir.path()).unwrap(), Backlog::default());
        write("1790000000000-0123456789abcdef.spool", &["E 1 2000 {}", "D 1 1"]);
        assert_eq!(Backlog::read(dir.path()).unwrap(), Backlog::default());
        write("1790000000001-0123456789abcdef.spool", &["E 1 3000 {}", "E 2 3001 {}"]);
        write("1790000000002-0123456789abcdef.spool", &["E 5 2500 {}"]);
        write("1790000000002-0123456789abcdef.spool.damaged", &["E 1 1 {}"]);
        assert_eq!(Backlog::read(dir.path()).unwrap(), Backlog { events: 3, oldest_ms: Some(2500) });
        assert!(Backlog::read(&dir.path().join("none")).is_err());
    }
}
