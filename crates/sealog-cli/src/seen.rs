//! An event as the service has sent it, and where it stands in its chain.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::exit::{Exit, Failure};

/// An event in the page that it has come with: nothing of it is copied.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub seq: u64,
    text: Bytes,
    hash: Bytes,
    prev_hash: Bytes,
}

impl Seen {
    /// Of an event in this body.
    pub(super) fn of(body: &Bytes, event: &RawValue) -> Result<Seen, Failure> {
        let text = event.get();
        let End { chain_seq, prev_hash, hash } = match End::of(text) {
            Some(end) => end,
            None => {
                let Place { chain_seq, prev_hash, hash, .. } = Place::of(text)?;
                End { chain_seq, prev_hash, hash }
            }
        };
        let part = |part: &str| body.slice_ref(part.as_bytes());
        Ok(Seen { seq: chain_seq, hash: part(hash), prev_hash: part(prev_hash), text: part(text) })
    }

    /// As it was sent, byte for byte: what is hashed is this text.
    pub(super) fn text(&self) -> &str {
        text_of(&self.text)
    }

    pub(super) fn hash(&self) -> &str {
        text_of(&self.hash)
    }

    pub(super) fn prev_hash(&self) -> &str {
        text_of(&self.prev_hash)
    }
}

fn text_of(part: &[u8]) -> &str {
    str::from_utf8(part).expect("a part of what was read as JSON")
}

/// Which event of which chain it is. None of these texts needs an escape.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct Place<'a> {
    pub tenant_id: &'a str,
    pub project_id: &'a str,
    pub chain_seq: u64,
    pub prev_hash: &'a str,
    pub hash: &'a str,
}

impl Place<'_> {
    pub(super) fn of(event: &str) -> Result<Place<'_>, Failure> {
        serde_json::from_str(event).map_err(|error| {
            Failure::new(Exit::Failure, format!("the service sent an invalid event: {error}"))
        })
    }
}

/// What an event of Sealog's ends with. A second parser for each event is a third of what reading a chain
/// costs.
#[derive(Debug, PartialEq, Eq)]
struct End<'a> {
    chain_seq: u64,
    prev_hash: &'a str,
    hash: &'a str,
}

impl End<'_> {
    /// Of a text that is one JSON value; nothing if it ends with anything else. The last quotation mark ends
    /// a text, so the one before it begins it: no text inside of another can look like this, because its
    /// quotation marks would have backslashes before them.
    fn of(event: &str) -> Option<End<'_>> {
        let (rest, hash) = last_hex(event.strip_suffix("\"}")?, ",\"hash\":\"")?;
        let (rest, prev_hash) = last_hex(rest.strip_suffix('"')?, ",\"prev_hash\":\"")?;
        let digits = rest.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (rest, chain_seq) = rest.split_at(rest.len() - digits);
        rest.strip_suffix(",\"chain_seq\":")?;
        Some(End { chain_seq: chain_seq.parse().ok()?, prev_hash, hash })
    }
}

/// What stands before a member, and its value: a text of hexadecimal digits.
fn last_hex<'a>(text: &'a str, member: &str) -> Option<(&'a str, &'a str)> {
    let (rest, value) = text.split_at_checked(text.len().checked_sub(64)?)?;
    let is_hex = value.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    Some((rest.strip_suffix(member)?, value)).filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(digit: char) -> String {
        digit.to_string().repeat(64)
    }

    fn seen(event: &str) -> Result<Seen, Failure> {
        let body = Bytes::from(format!("[{event}]"));
        let events: Vec<&RawValue> = serde_json::from_slice(&body).unwrap();
        Seen::of(&body, events[0])
    }

    fn ending(begin: &str, end: &str) -> String {
        let (prev_hash, hash) = (hash('1'), hash('a'));
        format!("{{{begin}\"chain_seq\":7,\"prev_hash\":\"{prev_hash}\",\"hash\":\"{hash}\"{end}}}")
    }

    const IDS: &str = r#""tenant_id":"t","project_id":"p","#;

    #[test]
    fn an_event_is_found_where_it_stands_whatever_the_order_of_its_members_is() {
        for (begin, end, is_end) in [
            (IDS, "", true),
            (r#""tenant_id":"t","project_id":"p","metadata":{"x":"é\\\""},"#, "", true),
            ("", r#","tenant_id":"t","project_id":"p""#, false),
            (IDS, ",\"metadata\":{\"hash\":\"x\"}", false),
            (IDS, " ", false),
        ] {
            let event = ending(begin, end);
            assert_eq!(End::of(&event).is_some(), is_end, "{event}");
            let seen = seen(&event).unwrap();
            assert_eq!((seen.seq, seen.text(), seen.hash()), (7, event.as_str(), hash('a').as_str()));
            assert_eq!(seen.prev_hash(), hash('1'));
        }
    }

    #[test]
    fn what_looks_like_the_end_of_an_event_inside_of_a_text_is_not_one() {
        let inner = serde_json::to_string(&ending(IDS, "")).unwrap();
        let nested = ending(IDS, "");
        for event in
            [format!("{{{IDS}\"x\":{inner}}}"), format!("{{{IDS}\"metadata\":{nested}}}"), inner.clone()]
        {
            assert!(seen(&event).is_err(), "{event}");
        }
    }

    #[test]
    fn what_is_as_long_as_a_hash_and_none_is_not_taken_for_one() {
        let (short, other) = ("a".repeat(30), "b".repeat(27));
        let event = ending(IDS, "").replace(&hash('a'), &format!("{short}\",\"x\":\"{other}"));
        assert_eq!((End::of(&event), seen(&event).unwrap().hash()), (None, short.as_str()));
    }

    #[test]
    fn what_is_no_event_is_an_error_and_says_so() {
        for event in ["{}", "1", "\"}\"", &ending(IDS, "").replace(":7,", ":-7,")] {
            let failure = seen(event).unwrap_err();
            assert!(failure.message.contains("invalid event"), "{event}: {}", failure.message);
        }
    }
}
