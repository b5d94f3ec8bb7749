//! Reads answers off a connection and keeps nothing of them but the status: the less the generator does, the
//! more of the machine is the server's.

use crate::outcome::Outcome;

/// What is kept of an answer that nobody expected, to say what it was.
const KEPT_BYTES: usize = 300;

#[derive(Debug, Default)]
pub struct Answers {
    state: State,
    /// A head or a line that has come in part.
    part: Vec<u8>,
    status: u16,
    /// The beginning of the body, if the status is that of a failure.
    pub kept: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Head,
    Body(usize),
    ChunkSize,
    /// With the line end behind it.
    Chunk(usize),
    Trailer,
}

impl Answers {
    /// The status, once an answer is there to its end. One request at a time is under way on a connection, so
    /// nothing may come behind it.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Outcome<Option<u16>> {
        loop {
            let ended = match self.state {
                State::Head => {
                    let Some(head) = self.take_through(&mut bytes, b"\r\n\r\n") else { return Ok(None) };
                    self.begin(&head)?;
                    matches!(self.state, State::Body(0))
                }
                State::Body(left) => {
                    let taken = left.min(bytes.len());
                    self.keep(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    self.state = State::Body(left - taken);
                    if left > taken {
                        return Ok(None);
                    }
                    true
                }
                State::ChunkSize => {
                    let Some(line) = self.take_through(&mut bytes, b"\r\n") else { return Ok(None) };
                    let digits = std::str::from_utf8(&line).unwrap_or("").trim();
                    let size = usize::from_str_radix(digits.split(';').next().unwrap_or(""), 16)
                        .map_err(|_| format!("not the size of a chunk: {digits:?}"))?;
                    self.state = if size == 0 { State::Trailer } else { State::Chunk(size + 2) };
                    false
                }
                State::Chunk(left) => {
                    let taken = left.min(bytes.len());
                    self.keep(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    self.state = if left == taken { State::ChunkSize } else { State::Chunk(left - taken) };
                    if left > taken {
                        return Ok(None);
                    }
                    false
                }
                State::Trailer => {
                    let Some(line) = self.take_through(&mut bytes, b"\r\n") else { return Ok(None) };
                    line == b"\r\n"
                }
            };
            if ended {
                self.state = State::Head;
                return if bytes.is_empty() {
                    Ok(Some(self.status))
                } else {
                    Err("an answer to no request".into())
                };
            }
        }
    }

    /// Takes everything up to and with `end`; until that is there, what has come is put aside.
    fn take_through(&mut self, bytes: &mut &[u8], end: &[u8]) -> Option<Vec<u8>> {
        // The end may lie across two reads.
        let known = self.part.len().saturating_sub(end.len() - 1);
        let before = self.part.len();
        self.part.extend_from_slice(bytes);
        let at = self.part[known..].windows(end.len()).position(|window| window == end);
        let Some(at) = at else {
            *bytes = &[];
            return None;
        };
        let length = known + at + end.len();
        *bytes = &bytes[length - before..];
        let mut taken = std::mem::take(&mut self.part);
        taken.truncate(length);
        Some(taken)
    }

    fn begin(&mut self, head: &[u8]) -> Outcome<()> {
        let text = std::str::from_utf8(head)?;
        self.status = text
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .filter(|_| text.starts_with("HTTP/1.1 "))
            .ok_or_else(|| format!("not an answer: {:?}", &text[..text.len().min(40)]))?;
        self.kept.clear();
        let value = |name: &str| {
            text.split("\r\n").skip(1).find_map(|line| {
                let (own, value) = line.split_once(':')?;
                own.eq_ignore_ascii_case(name).then_some(value.trim())
            })
        };
        self.state = match value("content-length") {
            Some(length) => State::Body(length.parse()?),
            None if value("transfer-encoding").is_some() => State::ChunkSize,
            None if self.status == 204 => State::Body(0),
            None => return Err("an answer without a length".into()),
        };
        Ok(())
    }

    fn keep(&mut self, bytes: &[u8]) {
        if self.status >= 300 && self.kept.len() < KEPT_BYTES {
            self.kept.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_may_come_in_pieces_of_any_size() {
        let plain = b"HTTP/1.1 202 Accepted\r\ncontent-length: 5\r\n\r\nhello".as_slice();
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n".as_slice();
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n".as_slice();
        for (answer, status) in [(plain, 202), (chunked, 200), (empty, 204)] {
            for size in 1..=answer.len() {
                let mut answers = Answers::default();
                // Twice, since a connection is kept.
                for _ in 0..2 {
                    let found: Vec<u16> =
                        answer.chunks(size).filter_map(|piece| answers.feed(piece).unwrap()).collect();
                    assert_eq!(found, [status], "pieces of {size} bytes");
                }
            }
        }
    }

    #[test]
    fn more_than_one_answer_and_none_at_all_are_noticed() {
        assert!(Answers::default().feed(b"HTTP/1.1 204 No Content\r\n\r\nHTTP").is_err());
        assert!(Answers::default().feed(b"SSH-2.0-x\r\n\r\n").is_err());
        assert!(Answers::default().feed(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }

    #[test]
    fn the_reason_of_a_failure_is_kept() {
        let mut answers = Answers::default();
        assert_eq!(answers.feed(b"HTTP/1.1 500 Oops\r\nContent-Length: 3\r\n\r\nwhy").unwrap(), Some(500));
        assert_eq!(answers.kept, b"why");
    }
}
