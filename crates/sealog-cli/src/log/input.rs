//! What `sealog log --file` reads: an event on each line, or JSON over several lines.
//!
//! A thread of its own reads, since a pipe that says nothing must not hold up what was already read. It stops
//! when it is told to, and hands over all that it has read until then.

use std::fs::File;
use std::io::{self, BufReader, PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use super::super::exit::Failure;
use super::super::lines::{self, AHEAD, LINE_MAX, Piece};

#[derive(Debug)]
pub(super) enum Item {
    Event {
        line: u64,
        event: Box<RawValue>,
    },
    /// What is no event, and why. If it is not whole, the rest of it follows.
    Unfit {
        line: u64,
        why: String,
        text: Vec<u8>,
        is_whole: bool,
    },
    More {
        text: Vec<u8>,
        is_whole: bool,
    },
    /// What was read of an event in the middle of which reading ended.
    Cut {
        line: u64,
        text: Vec<u8>,
    },
    /// There may be more, which was not read. The last item.
    Stopped,
}

/// Ends when the input does; an error is the last item.
pub(super) type Items = mpsc::Receiver<io::Result<Item>>;

pub(super) struct Input {
    file: File,
    /// Of a file; nobody knows how long a pipe is.
    pub bytes: Option<u64>,
    pub bytes_read: Arc<AtomicU64>,
}

impl Input {
    /// Reads nothing yet.
    pub(super) fn open(path: &str) -> Result<Input, Failure> {
        let file = lines::open(path)?;
        let bytes = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|file| file.len());
        Ok(Input { file, bytes, bytes_read: Arc::default() })
    }

    /// Reads until `stop` is ready.
    pub(super) fn start(self, stop: PipeReader) -> Items {
        let (sender, items) = mpsc::channel(AHEAD);
        let source = Source { file: self.file, stop, read: self.bytes_read, is_stopped: false };
        std::thread::spawn(move || {
            let mut reader =
                Reader { source: BufReader::with_capacity(256 << 10, source), items: sender, line: 0 };
            let ended = reader.all();
            let last = match ended {
                Ok(()) if reader.source.get_ref().is_stopped => Ok(Item::Stopped),
                Ok(()) => return,
                Err(Unread::Failed(error)) => Err(error),
                // Nobody listens.
                Err(Unread::Unwanted) => return,
            };
            let _ = reader.items.blocking_send(last);
        });
        items
    }
}

/// The input, which seems to end when it is stopped.
struct Source {
    file: File,
    stop: PipeReader,
    read: Arc<AtomicU64>,
    is_stopped: bool,
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.is_stopped |= self.wait()?;
            if self.is_stopped {
                return Ok(0);
            }
            match self.file.read(buffer) {
                // Whoever shares the pipe may have made it so that it does not wait.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => {
                    let length = read?;
                    self.read.fetch_add(length as u64, Ordering::Relaxed);
                    return Ok(length);
                }
            }
        }
    }
}

impl Source {
    /// Until there is something to read, or reading is to stop, which is what it says.
    fn wait(&self) -> io::Result<bool> {
        let mut waited = [PollFd::new(&self.file, PollFlags::IN), PollFd::new(&self.stop, PollFlags::IN)];
        while let Err(error) = poll(&mut waited, None) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        Ok(!waited[1].revents().is_empty())
    }
}

enum Unread {
    Failed(io::Error),
    Unwanted,
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Unread {
        Unread::Failed(error)
    }
}

struct Reader {
    source: BufReader<Source>,
    items: mpsc::Sender<io::Result<Item>>,
    /// The number of the line that was read last.
    line: u64,
}

impl Reader {
    fn all(&mut self) -> Result<(), Unread> {
        let (mut text, mut is_first) = (Vec::new(), true);
        loop {
            self.line += 1;
            let piece = match lines::piece(&mut self.source, &mut text) {
                Ok(Piece::End) => return Ok(()),
                Ok(piece) => piece,
                Err(error) => {
                    self.cut(self.line, text)?;
                    return Err(error.into());
                }
            };
            let trimmed = text.trim_ascii();
            if trimmed.is_empty() && piece != Piece::Part {
                continue;
            }
            // No line of NDJSON begins so, and every program that writes JSON for people does.
            if is_first && (trimmed.starts_with(b"[") || (trimmed == b"{" && piece == Piece::Line)) {
                return self.document(&text, piece);
            }
            is_first = false;
            if piece == Piece::Part {
                self.long_line(&text)?;
                continue;
            }
            let item = match lines::parse(&text) {
                Ok(event) => Item::Event { line: self.line, event },
                // It may have ended just there, or not: then its beginning is no event.
                Err(_) if piece == Piece::Unended && self.source.get_ref().is_stopped => {
                    Item::Cut { line: self.line, text: text.clone() }
                }
                Err(why) => Item::Unfit { line: self.line, why, text: text.clone(), is_whole: true },
            };
            self.put(item)?;
        }
    }

    fn long_line(&mut self, begun: &[u8]) -> Result<(), Unread> {
        let why = "it is longer than 2 MB".to_owned();
        self.put(Item::Unfit { line: self.line, why, text: begun.to_vec(), is_whole: false })?;
        loop {
            let mut text = Vec::new();
            let is_whole = lines::piece(&mut self.source, &mut text)? != Piece::Part;
            self.put(Item::More { text, is_whole })?;
            if is_whole {
                return Ok(());
            }
        }
    }

    /// Objects, or arrays of objects, however they are laid out.
    fn document(&mut self, begun: &[u8], mut piece: Piece) -> Result<(), Unread> {
        let (mut document, mut text) = (Document::default(), begun.to_vec());
        loop {
            if piece == Piece::Line {
                text.push(b'\n');
            }
            for byte in &text {
                match document.take(*byte, self.line) {
                    Ok(None) => {}
                    Ok(Some(item)) => self.put(item)?,
                    Err(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why).into()),
                }
            }
            self.line += u64::from(piece == Piece::Line);
            piece = match lines::piece(&mut self.source, &mut text) {
                Ok(Piece::End) => break,
                Ok(piece) => piece,
                Err(error) => {
                    if let Some(object) = document.object {
                        self.cut(object.line, [object.text, text].concat())?;
                    }
                    return Err(error.into());
                }
            };
        }
        let is_stopped = self.source.get_ref().is_stopped;
        if let Some(Object { line, text, is_long: false, .. }) = document.object {
            self.put(match is_stopped {
                true => Item::Cut { line, text },
                false => {
                    let why = "it is incomplete: check that the file is complete".to_owned();
                    Item::Unfit { line, why, text, is_whole: true }
                }
            })
        } else if let Some(Object { text, .. }) = document.object {
            self.put(Item::More { text, is_whole: true })
        } else if let Some(line) = document.array.filter(|_| !is_stopped) {
            let why = format!(
                "the array that starts in line {line} is incomplete: check that the file is complete"
            );
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, why).into())
        } else {
            Ok(())
        }
    }

    fn cut(&self, line: u64, text: Vec<u8>) -> Result<(), Unread> {
        if text.is_empty() { Ok(()) } else { self.put(Item::Cut { line, text }) }
    }

    fn put(&self, item: Item) -> Result<(), Unread> {
        self.items.blocking_send(Ok(item)).map_err(|_| Unread::Unwanted)
    }
}

/// Finds where objects begin and end. Whether they are JSON is for those who parse them.
#[derive(Default)]
struct Document {
    /// The line in which the array begins that this is inside of.
    array: Option<u64>,
    object: Option<Object>,
}

struct Object {
    line: u64,
    text: Vec<u8>,
    depth: usize,
    in_string: bool,
    is_escaped: bool,
    /// A part of it was handed over already, because no event can be so long.
    is_long: bool,
}

impl Document {
    /// What ends with this byte.
    fn take(&mut self, byte: u8, line: u64) -> Result<Option<Item>, String> {
        let Some(object) = &mut self.object else {
            match byte {
                byte if byte.is_ascii_whitespace() => {}
                b'[' if self.array.is_none() => self.array = Some(line),
                b']' if self.array.is_some() => self.array = None,
                b',' if self.array.is_some() => {}
                b'{' => {
                    let text = vec![byte];
                    let object =
                        Object { line, text, depth: 1, in_string: false, is_escaped: false, is_long: false };
                    self.object = Some(object);
                }
                byte => {
                    return Err(format!(
                        "line {line} has {:?} instead of an event or the end of the array; give an array of objects, or an object per line (jq -c '.[]' converts an array)",
                        char::from(byte)
                    ));
                }
            }
            return Ok(None);
        };
        object.text.push(byte);
        if object.takes(byte) {
            let object = self.object.take().expect("it was there just now");
            return Ok(Some(object.ended()));
        }
        if object.text.len() <= LINE_MAX {
            return Ok(None);
        }
        let text = std::mem::take(&mut object.text);
        let is_more = std::mem::replace(&mut object.is_long, true);
        Ok(Some(match is_more {
            true => Item::More { text, is_whole: false },
            false => {
                let why = "it is longer than 2 MB".to_owned();
                Item::Unfit { line: object.line, why, text, is_whole: false }
            }
        }))
    }
}

impl Object {
    /// Whether it ends with this byte.
    fn takes(&mut self, byte: u8) -> bool {
        if self.in_string {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
            return false;
        }
        match byte {
            b'"' => self.in_string = true,
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth -= 1,
            _ => {}
        }
        self.depth == 0
    }

    fn ended(self) -> Item {
        let Object { line, text, is_long, .. } = self;
        if is_long {
            return Item::More { text, is_whole: true };
        }
        match lines::parse(&text) {
            Ok(event) => Item::Event { line, event },
            Err(why) => Item::Unfit { line, why, text, is_whole: true },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line for each item, with the number of the line in front.
    fn read(bytes: &[u8]) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("input");
        std::fs::write(&path, bytes).unwrap();
        let input = Input::open(path.to_str().unwrap()).unwrap();
        assert_eq!(input.bytes, Some(bytes.len() as u64));
        let (stop, _running) = io::pipe().unwrap();
        shown(input.start(stop))
    }

    fn shown(mut items: Items) -> Vec<String> {
        let mut shown = Vec::new();
        let text = |text: Vec<u8>| String::from_utf8_lossy(&text).into_owned();
        while let Some(item) = items.blocking_recv() {
            shown.push(match item {
                Ok(Item::Event { line, event }) => format!("{line} {}", event.get()),
                Ok(Item::Unfit { line, text: unfit, .. }) => format!("{line} unfit {}", text(unfit)),
                Ok(Item::More { is_whole, .. }) => format!("more, whole: {is_whole}"),
                Ok(Item::Cut { line, text: cut }) => format!("{line} cut {}", text(cut)),
                Ok(Item::Stopped) => "stopped".to_owned(),
                Err(error) => format!("error {error}"),
            });
        }
        shown
    }

    #[test]
    fn a_line_is_an_event_and_one_that_is_none_is_handed_over_as_it_is() {
        assert_eq!(
            read(b" {\"a\":1.0}\r\n\n[1]\n{\"a\":\n{\"b\":2}"),
            ["1 {\"a\":1.0}", "3 unfit [1]", "4 unfit {\"a\":", "5 {\"b\":2}"]
        );
        let long = [b"{\"a\":\"".as_slice(), &vec![b'x'; LINE_MAX * 2], b"\"}\n{\"b\":2}\n"].concat();
        let items = read(&long);
        assert!(items[0].starts_with("1 unfit {\"a\":\"xx") && items[0].len() > LINE_MAX, "{}", items.len());
        assert_eq!(items[1..], ["more, whole: false", "more, whole: true", "2 {\"b\":2}"]);
    }

    #[test]
    fn an_array_and_objects_over_several_lines_are_events_with_the_lines_in_which_they_begin() {
        let pretty = "{\n  \"a\": \"}\\\"\",\n  \"m\": {\"n\": [1.0]}\n}\n{\"b\":\n 2}\n";
        let events = ["1 {\n  \"a\": \"}\\\"\",\n  \"m\": {\"n\": [1.0]}\n}", "5 {\"b\":\n 2}"];
        assert_eq!(read(pretty.as_bytes()), events);
        assert_eq!(
            read(b"\n[{\"a\":1},\n {\"b\":2} , {\"c\":}\n]\n"),
            ["2 {\"a\":1}", "3 {\"b\":2}", "3 unfit {\"c\":}"]
        );
        assert_eq!(read(b"[]"), Vec::<String>::new());
        let one_line = format!("[{}{{\"b\":2}}]", "{\"a\":1},".repeat(LINE_MAX / 4));
        let items = read(one_line.as_bytes());
        assert_eq!((items.len(), items.last().unwrap().as_str()), (LINE_MAX / 4 + 1, "1 {\"b\":2}"));
        let long = format!("[{{\"a\":\"{}\"}},{{\"b\":2}}]", "x".repeat(LINE_MAX + 9));
        let items = read(long.as_bytes());
        assert_eq!(items[1..], ["more, whole: true", "1 {\"b\":2}"]);
    }

    #[test]
    fn an_array_that_is_none_is_an_error_that_says_what_to_do_and_what_came_before_is_an_event() {
        let items = read(b"[{\"a\":1},\n2]");
        assert!(items[0] == "1 {\"a\":1}" && items[1].contains("line 2 has '2'"), "{items:?}");
        assert!(items[1].contains("jq -c"), "{items:?}");
        let items = read(b"[{\"a\":1},\n");
        assert!(items[1].contains("starts in line 1 is incomplete"), "{items:?}");
        assert_eq!(read(b"{\n\"a\":")[0], "1 unfit {\n\"a\":");
    }

    #[test]
    fn reading_stops_when_it_is_told_to_and_hands_over_all_that_was_read() {
        use io::Write;
        for (text, items) in [
            ("{\"a\":1}\n{\"b\":2}\n{\"c\":", ["1 {\"a\":1}", "2 {\"b\":2}", "3 cut {\"c\":"]),
            ("[{\"a\":1},\n{\"b\":2}\n,{\"c\":", ["1 {\"a\":1}", "2 {\"b\":2}", "3 cut {\"c\":"]),
        ] {
            let (input, mut output) = io::pipe().unwrap();
            output.write_all(text.as_bytes()).unwrap();
            let file = File::from(std::os::fd::OwnedFd::from(input));
            let input = Input { file, bytes: None, bytes_read: Arc::default() };
            let bytes_read = Arc::clone(&input.bytes_read);
            let (stop, running) = io::pipe().unwrap();
            let received = input.start(stop);
            sealog_testing::eventually("it is read", || {
                bytes_read.load(Ordering::Relaxed) == text.len() as u64
            });
            drop(running);
            assert_eq!(shown(received), [items.as_slice(), &["stopped"]].concat());
        }
    }
}
