//! Whether the service still has the chain that was written. One that was restored from an older state, or
//! rewritten, must not be mixed with it.
//!
//! Two checks. [`is_linked`] compares each event's `prev_hash` with the hash before it, which costs nothing
//! and proves that a chain goes on; but filters and gaps leave events out. So [`newest`] also asks the
//! service for the newest event that it had shown before. Both are made before anything is committed:
//!
//! ```text
//! t0  the newest event E is asked for, and the one that was the newest before it is still there: E follows
//!     what was written
//! t1  events up to E are fetched
//! t2  they are linked without a gap, or E is still there: they are of the chain that had E at t0
//! t3  they are written
//! ```
//!
//! An outage is not looked for: the client's own retries can hide a restart.

use sealog_client::http::Client;

use super::super::exit::{Exit, Failure};
use super::super::listing::Filters;
use super::super::seen::Seen;
use super::super::walk::{self, Newest};
use super::output::{Noted, Position};

/// The newest event of a chain that has all that it is known to have had; nothing while there is none. Fails
/// with 10 for any other chain.
pub(super) async fn newest(client: &Client, position: Option<&Position>) -> Result<Option<Newest>, Failure> {
    let newest = walk::newest(client, &Filters::default()).await?;
    let Some(position) = position else { return Ok(newest) };
    let known = &position.newest;
    let Some(newest) = newest else {
        // An empty list does not say whose it is; the key says at least which mode it has.
        let mode = walk::mode(client).as_str();
        if position.chain.rsplit('/').next() != Some(mode) {
            return Err(other_key(position, &format!("a {mode} chain without events")));
        }
        // All events of a test chain may have been dropped for their age: then it begins behind them.
        if walk::first_kept(client, known.seq).await? <= known.seq {
            return Err(broken(&format!(
                "the service has no events for this key, but it had #{} before",
                known.seq
            )));
        }
        return Ok(None);
    };
    if position.chain != newest.chain.to_string() {
        return Err(other_key(position, &newest.chain.to_string()));
    }
    if newest.seq < known.seq {
        return Err(broken(&format!(
            "the chain of the service ends with event #{}, but it had #{} before",
            newest.seq, known.seq
        )));
    }
    let hash = if newest.seq == known.seq {
        Some(newest.hash.clone())
    } else {
        // One that is not there any more was dropped for its age, or is damaged: what follows is told on its
        // own.
        walk::event(client, newest.chain, known.seq).await?.map(|event| event.hash().to_owned())
    };
    if hash.is_some_and(|hash| hash != known.hash) {
        return Err(broken(&format!("event #{} of the service has changed", known.seq)));
    }
    Ok(Some(newest))
}

/// Whether these events follow the last one that was written, and each other, without a gap. Fails with 10
/// for one that follows another event.
pub(super) fn is_linked(last: Option<&Noted>, events: &[Seen]) -> Result<bool, Failure> {
    let mut before = last.map(|last| (last.seq, last.hash.as_str()));
    let mut is_whole = true;
    for event in events {
        match before {
            Some((seq, hash)) if seq + 1 == event.seq => {
                if event.prev_hash() != hash {
                    return Err(broken(&format!(
                        "event #{} of the service does not follow event #{seq}, which was written before",
                        event.seq
                    )));
                }
            }
            _ => is_whole = false,
        }
        before = Some((event.seq, event.hash()));
    }
    Ok(is_whole)
}

fn other_key(position: &Position, seen: &str) -> Failure {
    Failure::usage(format!(
        "the cursor file belongs to chain {}, but this key reads {seen}: use the first key, or another cursor file and output",
        position.chain
    ))
}

fn broken(what: &str) -> Failure {
    Failure::new(
        Exit::Broken,
        format!(
            "{what}: the service was restored from an older state, or its chain was rewritten. The output has only the first chain\n  what now: keep the output, it is evidence; find out what happened to the service (`sealog verify`), then follow into another file"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(seq: u64, prev_hash: &str, hash: &str) -> Seen {
        let text = serde_json::json!({
            "tenant_id": "t", "project_id": "p", "chain_seq": seq, "prev_hash": prev_hash, "hash": hash,
        });
        let body = bytes::Bytes::from(text.to_string());
        Seen::of(&body, serde_json::from_slice(&body).unwrap()).unwrap()
    }

    fn noted(seq: u64, hash: &str) -> Noted {
        Noted { seq, hash: hash.into() }
    }

    #[test]
    fn events_are_linked_to_the_last_one_that_was_written_and_to_each_other() {
        let events = [event(8, "g", "h"), event(9, "h", "i")];
        assert!(is_linked(Some(&noted(7, "g")), &events).unwrap());
        assert!(is_linked(Some(&noted(7, "g")), &[]).unwrap());
        // Nothing is known of what stands in a gap, nor of what stands before the first one.
        assert!(!is_linked(Some(&noted(6, "f")), &events).unwrap());
        assert!(!is_linked(None, &events).unwrap());
        assert!(!is_linked(Some(&noted(7, "g")), &[event(8, "g", "h"), event(10, "i", "j")]).unwrap());
    }

    #[test]
    fn an_event_that_follows_another_one_than_was_written_ends_it_with_10() {
        let other = [
            is_linked(Some(&noted(7, "x")), &[event(8, "g", "h")]),
            is_linked(Some(&noted(7, "g")), &[event(8, "g", "h"), event(9, "x", "i")]),
            // Also behind a gap.
            is_linked(None, &[event(8, "g", "h"), event(9, "x", "i")]),
        ];
        for linked in other {
            assert_eq!(linked.unwrap_err().exit, Exit::Broken);
        }
    }
}
