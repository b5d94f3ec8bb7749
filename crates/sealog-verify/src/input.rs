//! Finds the events in a file: NDJSON, API pages, arrays of events, one after the other in any mixture,
//! indented or not, plain or gzip.
//!
//! Only brackets and quotes are looked at here, to see where an event ends without holding more than one.
//! Whether it is JSON at all, and what it says, the core decides, from the event's own bytes.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::rc::Rc;

use flate2::bufread::MultiGzDecoder;
use sealog_core::audit::CHECKED_FIELDS;
use sealog_core::json::{self, Members};

/// Sealog accepts at most 256 KB for an event; escaping it anew on the way can make that six times as much.
/// What is larger is no event, and must not fill the memory.
const EVENT_BYTES_MAX: usize = 16 << 20;
const BUFFER_BYTES: usize = 256 << 10;
const GZIP_MAGIC: &[u8] = &[0x1f, 0x8b];

/// Why an input cannot be read.
#[derive(Debug)]
pub(crate) struct Unreadable {
    name: String,
    /// In the unpacked text.
    offset: Option<u64>,
    problem: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{}: at byte {offset}: {}", self.name, self.problem),
            None => write!(f, "{}: {}", self.name, self.problem),
        }
    }
}

/// Counts the bytes that were read, before any unpacking, for the progress bar.
struct Counting<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.set(self.count.get() + length as u64);
        Ok(length)
    }
}

/// One input, being read.
pub(crate) struct Input {
    name: String,
    source: Box<dyn BufRead>,
    offset: u64,
    /// The arrays and pages that are open here, innermost last.
    open: Vec<List>,
}

/// An array whose items are events.
struct List {
    place: Place,
    /// For the array of a page: the page's own text so far, from its `{` to its `"events":`.
    page: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    BehindItem,
    BehindComma,
}

impl Input {
    /// Opens a file, or standard input for `-`. `count` grows with what is read.
    pub(crate) fn open(path: &Path, count: Rc<Cell<u64>>) -> Result<Input, Unreadable> {
        let name = if path == Path::new("-") { "standard input".into() } else { path.display().to_string() };
        let open = || -> io::Result<Box<dyn BufRead>> {
            let raw: Box<dyn Read> =
                if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path)?) };
            let mut raw = Counting { inner: raw, count };
            // The name says nothing: a pipe has none, and browsers unpack a download without renaming it.
            let mut magic = Vec::new();
            raw.by_ref().take(GZIP_MAGIC.len() as u64).read_to_end(&mut magic)?;
            let is_gzip = magic == GZIP_MAGIC;
            let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(magic).chain(raw));
            Ok(if is_gzip {
                Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
            } else {
                Box::new(whole)
            })
        };
        match open() {
            Ok(source) => Ok(Input { name, source, offset: 0, open: Vec::new() }),
            Err(error) => Err(Unreadable { name, offset: None, problem: error.to_string() }),
        }
    }

    /// The text of the next event, or nothing at the end.
    pub(crate) fn next_event(&mut self) -> Result<Option<(String, u64)>, Unreadable> {
        loop {
            let byte = self.skip_space()?;
            let place = self.open.last().map(|list| list.place);
            match (byte, place) {
                (None, None) => return Ok(None),
                (None, Some(_)) => return self.fail("the text ends inside an array of events"),
                (Some(b']'), Some(Place::Start | Place::BehindItem)) => self.close_list()?,
                (Some(b','), Some(Place::BehindItem)) => {
                    self.take(1);
                    self.set_place(Place::BehindComma);
                }
                (Some(_), Some(Place::BehindItem)) => return self.fail("expected ',' or ']'"),
                (Some(b'['), _) => {
                    self.take(1);
                    self.set_place(Place::BehindItem);
                    self.open.push(List { place: Place::Start, page: None });
                }
                (Some(b'{'), _) => {
                    self.set_place(Place::BehindItem);
                    let (start, mut text) = (self.offset, Vec::new());
                    if self.object(&mut text)? {
                        return Ok(Some((self.text(text)?, start)));
                    }
                    self.open.push(List { place: Place::Start, page: Some(text) });
                }
                (Some(_), _) => return self.fail("expected an event, a page of events or an array of them"),
            }
        }
    }

    /// An error at an offset of this input.
    pub(crate) fn unreadable(&self, offset: u64, problem: impl Into<String>) -> Unreadable {
        Unreadable { name: self.name.clone(), offset: Some(offset), problem: problem.into() }
    }

    fn set_place(&mut self, place: Place) {
        if let Some(list) = self.open.last_mut() {
            list.place = place;
        }
    }

    /// Takes the `]` of a list, and of a page all that follows.
    fn close_list(&mut self) -> Result<(), Unreadable> {
        self.take(1);
        let Some(List { page: Some(mut page), .. }) = self.open.pop() else {
            return Ok(());
        };
        page.extend_from_slice(b"[]");
        let end = self.offset;
        // Otherwise an event could be passed off as a page without events.
        let neither = "the object around these events is neither a page nor an event";
        if !self.object(&mut page)? {
            return Err(self.unreadable(end, neither));
        }
        let page = json::canonical(&self.text(page)?)
            .map_err(|error| self.unreadable(end, format!("not valid JSON: {}", error.problem)))?;
        let names = || Members::of(&page).map(|(key, _)| &key[1..key.len() - 1]);
        let lists = names().filter(|name| *name == "events").count();
        if lists != 1 || names().any(|name| CHECKED_FIELDS.contains(&name)) {
            return Err(self.unreadable(end, neither));
        }
        Ok(())
    }

    /// Reads an object from its `{`, or on from behind a member. True when it is complete, false when it is a
    /// page whose events come next.
    fn object(&mut self, text: &mut Vec<u8>) -> Result<bool, Unreadable> {
        if text.is_empty() {
            self.copy(1, text);
        }
        loop {
            match self.skip_space()? {
                Some(b'}') => {
                    self.copy(1, text);
                    return Ok(true);
                }
                Some(b',') => self.copy(1, text),
                Some(b'"') => {
                    let key = text.len();
                    self.string(text)?;
                    if self.skip_space()? != Some(b':') {
                        return self.fail("expected ':'");
                    }
                    let is_list = &text[key..] == b"\"events\"";
                    self.copy(1, text);
                    if self.skip_space()? == Some(b'[') && is_list {
                        self.take(1);
                        return Ok(false);
                    }
                    self.value(text)?;
                }
                Some(_) => return self.fail("expected ',' or '}'"),
                None => return self.fail("the text ends inside an object"),
            }
        }
    }

    /// Copies one value. Runs of white space become one space: indenting can make a deep value many times as
    /// long.
    fn value(&mut self, text: &mut Vec<u8>) -> Result<(), Unreadable> {
        let mut depth = 0usize;
        loop {
            match self.peek()? {
                None => return self.fail("the text ends inside a value"),
                Some(b'"') => self.string(text)?,
                Some(b' ' | b'\t' | b'\r' | b'\n') => {
                    self.skip_space()?;
                    text.push(b' ');
                    continue;
                }
                Some(b'{' | b'[') => {
                    depth += 1;
                    self.copy(1, text);
                }
                Some(b'}' | b']') if depth > 0 => {
                    depth -= 1;
                    self.copy(1, text);
                }
                Some(b',' | b':') if depth > 0 => self.copy(1, text),
                Some(b',' | b':' | b'}' | b']') => return self.fail("expected a value"),
                Some(_) => self.copy_while(text, |byte| !b" \t\r\n,:{}[]\"".contains(&byte))?,
            }
            self.limit(text)?;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    fn string(&mut self, text: &mut Vec<u8>) -> Result<(), Unreadable> {
        self.copy(1, text);
        loop {
            self.copy_while(text, |byte| byte != b'"' && byte != b'\\')?;
            match self.peek()? {
                Some(b'"') => {
                    self.copy(1, text);
                    return self.limit(text);
                }
                Some(_) => {
                    // A backslash, and whatever it escapes.
                    self.copy(1, text);
                    if self.peek()?.is_some() {
                        self.copy(1, text);
                    }
                }
                None => return self.fail("the text ends inside a string"),
            }
        }
    }

    fn copy_while(&mut self, text: &mut Vec<u8>, wanted: impl Fn(u8) -> bool) -> Result<(), Unreadable> {
        loop {
            let buffer = self.fill()?;
            let length = buffer.iter().position(|byte| !wanted(*byte)).unwrap_or(buffer.len());
            let ends = length < buffer.len() || buffer.is_empty();
            self.copy(length, text);
            self.limit(text)?;
            if ends {
                return Ok(());
            }
        }
    }

    fn limit(&self, text: &[u8]) -> Result<(), Unreadable> {
        if text.len() > EVENT_BYTES_MAX {
            return self.fail("this is more text than an event of Sealog can have");
        }
        Ok(())
    }

    fn text(&self, bytes: Vec<u8>) -> Result<String, Unreadable> {
        String::from_utf8(bytes).or_else(|_| self.fail("the object that ends here is not UTF-8"))
    }

    /// Copies bytes that [`Input::peek`] or [`Input::fill`] have shown.
    fn copy(&mut self, length: usize, text: &mut Vec<u8>) {
        // The bytes are in the buffer, so this reads nothing and cannot fail.
        if let Ok(buffer) = self.source.fill_buf() {
            text.extend_from_slice(&buffer[..length]);
        }
        self.take(length);
    }

    fn take(&mut self, length: usize) {
        self.source.consume(length);
        self.offset += length as u64;
    }

    fn peek(&mut self) -> Result<Option<u8>, Unreadable> {
        Ok(self.fill()?.first().copied())
    }

    fn skip_space(&mut self) -> Result<Option<u8>, Unreadable> {
        while let Some(byte) = self.peek()? {
            if !b" \t\r\n".contains(&byte) {
                return Ok(Some(byte));
            }
            self.take(1);
        }
        Ok(None)
    }

    /// What is in the buffer; nothing only at the end.
    fn fill(&mut self) -> Result<&[u8], Unreadable> {
        while let Err(error) = self.source.fill_buf() {
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(self.unreadable(self.offset, error.to_string()));
            }
        }
        // Asked twice because the borrow of the first answer would last until the return.
        self.source.fill_buf().or(Ok(&[]))
    }

    fn fail<T>(&self, problem: &str) -> Result<T, Unreadable> {
        Err(self.unreadable(self.offset, problem))
    }
}
