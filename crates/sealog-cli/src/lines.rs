//! Lines of a file or a pipe, read by a thread of their own: a pipe that says nothing must not hold up what
//! was already read.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use indicatif::ProgressBar;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::exit::Failure;

/// How long a line may be: an event has to fit into a request of 2 MB.
pub(super) const LINE_MAX: usize = 2 << 20;
/// Lines that are read ahead. With the longest ones this is the most memory that input can take.
pub(super) const AHEAD: usize = 256;

/// What a line has to be.
const WANTED: &str = "each line must be a JSON event, such as {\"action\":\"user.login\"}";

pub(super) struct Line {
    pub number: u64,
    /// The event, or what the line was and why it is none.
    pub event: Result<Box<RawValue>, String>,
}

/// Ends when the input does; an error is the last item. `bar` counts the bytes that were read.
pub(super) fn lines(path: &str, bar: &ProgressBar) -> Result<mpsc::Receiver<io::Result<Line>>, Failure> {
    let input = bar.wrap_read(open(path)?);
    let (sender, receiver) = mpsc::channel(AHEAD);
    std::thread::spawn(move || {
        let mut reader = BufReader::with_capacity(256 << 10, input);
        let (mut number, mut text) = (0, Vec::new());
        loop {
            number += 1;
            let item = match next(&mut reader, &mut text) {
                Ok(false) => return,
                Ok(true) if text.trim_ascii().is_empty() => continue,
                Ok(true) => Ok(Line { number, event: parse(&text) }),
                Err(error) => Err(error),
            };
            let is_last = item.is_err();
            if sender.blocking_send(item).is_err() || is_last {
                return;
            }
        }
    });
    Ok(receiver)
}

/// For people.
pub(super) fn name(path: &str) -> &str {
    if path == "-" { "standard input" } else { path }
}

/// A file, or standard input for `-`. Nothing is buffered on the way: all that was read is with whoever reads
/// it.
pub(super) fn open(path: &str) -> Result<File, Failure> {
    let bad = |error: io::Error| {
        Failure::usage(format!(
            "cannot read {path}: {error}; give a file that you can read, or - for standard input"
        ))
    };
    if path == "-" {
        return io::stdin().as_fd().try_clone_to_owned().map(File::from).map_err(bad);
    }
    let file = File::open(path).map_err(bad)?;
    // It opens like a file, and fails at the first read.
    if file.metadata().map_err(bad)?.is_dir() {
        return Err(Failure::usage(format!("{path} is a directory: give a file in it")));
    }
    Ok(file)
}

/// What a read has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Nothing: the input has ended.
    End,
    /// A line, or the end of one.
    Line,
    /// A line without a line break: the input has ended behind it.
    Unended,
    /// [`LINE_MAX`] bytes and one more of a line that goes on.
    Part,
}

/// Reads a line, or as much of it as one event may have.
pub(super) fn piece(reader: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<Piece> {
    text.clear();
    loop {
        let available = match reader.fill_buf() {
            Ok(available) => available,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if available.is_empty() {
            return Ok(if text.is_empty() { Piece::End } else { Piece::Unended });
        }
        let room = (LINE_MAX + 1 - text.len()).min(available.len());
        let end = available[..room].iter().position(|byte| *byte == b'\n');
        text.extend_from_slice(&available[..end.unwrap_or(room)]);
        reader.consume(end.map_or(room, |end| end + 1));
        if end.is_some() {
            return Ok(Piece::Line);
        }
        if text.len() > LINE_MAX {
            return Ok(Piece::Part);
        }
    }
}

/// A file of rejects that is also the input would be cut before it is read, or read without an end.
pub(super) fn refuse_as_output(input: &str, flag: &str, output: Option<&Path>) -> Result<(), Failure> {
    let Some(output) = output else { return Ok(()) };
    let read = match input {
        "-" => io::stdin().as_fd().try_clone_to_owned().and_then(|stdin| File::from(stdin).metadata()),
        path => std::fs::metadata(path),
    };
    // One that is not there is not the input, and one that cannot be looked at is told when it is opened.
    let (Ok(read), Ok(written)) = (read, std::fs::metadata(output)) else { return Ok(()) };
    if read.is_file() && (read.dev(), read.ino()) == (written.dev(), written.ino()) {
        let shown = output.display();
        return Err(Failure::usage(format!("{flag}: {shown} is the input file: give another file")));
    }
    Ok(())
}

/// Whether there was a line. Of one that is too long the rest is passed over.
fn next(reader: &mut impl BufRead, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut read = piece(reader, text)?;
    let is_line = read != Piece::End;
    let mut rest = Vec::new();
    while read == Piece::Part {
        read = piece(reader, &mut rest)?;
    }
    Ok(is_line)
}

pub(super) fn parse(text: &[u8]) -> Result<Box<RawValue>, String> {
    if text.len() > LINE_MAX {
        return Err("it is longer than 2 MB, the limit of a request".into());
    }
    let text = std::str::from_utf8(text).map_err(|_| format!("it is not UTF-8: {WANTED}"))?.trim();
    if !text.starts_with('{') {
        return Err(format!("it is not a JSON object: {WANTED}"));
    }
    serde_json::from_str::<&RawValue>(text)
        .map(ToOwned::to_owned)
        .map_err(|error| format!("it is not valid JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Vec<(u64, Result<String, String>)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        std::fs::write(&path, bytes).unwrap();
        let mut lines = lines(path.to_str().unwrap(), &ProgressBar::hidden()).unwrap();
        let mut read = Vec::new();
        while let Some(line) = lines.blocking_recv() {
            let Line { number, event } = line.unwrap();
            read.push((number, event.map(|event| event.get().to_owned())));
        }
        read
    }

    #[test]
    fn every_line_is_an_event_or_says_why_not_and_empty_ones_are_passed_over() {
        let long = [b"{\"a\":\"".as_slice(), &vec![b'x'; LINE_MAX], b"\"}"].concat();
        let text = [b" {\"a\":1.0}\r\n\n[1]\n{\"a\":\n\xff\n".as_slice(), &long, b"\n{\"b\":2}"].concat();
        let lines = read(&text);
        let numbers: Vec<u64> = lines.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, [1, 3, 4, 5, 6, 7]);
        assert_eq!(lines[0].1.as_deref(), Ok("{\"a\":1.0}"));
        assert!(lines[1..5].iter().all(|(_, event)| event.is_err()), "{lines:?}");
        assert!(lines[4].1.as_ref().unwrap_err().contains("2 MB"));
        assert_eq!(lines[5].1.as_deref(), Ok("{\"b\":2}"));
    }
}
