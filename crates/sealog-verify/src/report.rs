//! What the program says: in words for a person, in JSON for a script.

use std::fmt::Write;

use sealog_core::audit::{Fault, Outcome};
use sealog_core::verify::Reason;
use sealog_trust::verdict::{printable, quoted};

/// For a person.
pub(crate) fn in_words(outcome: &Outcome) -> String {
    match &outcome.broken {
        None => valid_in_words(outcome),
        Some(fault) => broken_in_words(outcome, fault),
    }
}

fn valid_in_words(outcome: &Outcome) -> String {
    let mut text = format!("VALID: {}\n", events_in_words(outcome));
    put_chain(&mut text, outcome);
    line(&mut text, "Every hash was computed again, and every event names the hash before it.");
    if outcome.first_seq > 1 {
        let before = outcome.first_seq - 1;
        line(
            &mut text,
            &format!(
                "The input starts at chain_seq {}: what came before was not checked ({before} events).",
                outcome.first_seq
            ),
        );
    }
    match outcome.confirmed {
        0 => line(
            &mut text,
            "No head noted earlier was compared (--expect): if events were cut off at the end,\nthis does not show.",
        ),
        1 => line(&mut text, "It agrees with the head that was noted earlier."),
        many => line(&mut text, &format!("It agrees with the {many} heads that were noted earlier.")),
    }
    put_unchecked(&mut text, outcome);
    if let Some(head) = outcome.head {
        line(&mut text, "");
        line(&mut text, &format!("Head: {head}"));
        line(&mut text, "Write this down where Sealog's operator cannot change it, and give it next time:");
        line(&mut text, &format!("  --expect {head}"));
        line(&mut text, "Then a chain that was rewritten or cut short since today will not pass.");
    }
    text
}

fn broken_in_words(outcome: &Outcome, fault: &Fault) -> String {
    let mut text = format!("BROKEN at chain_seq {} ({})\n", fault.at, fault.reason.as_str());
    put_chain(&mut text, outcome);
    labelled(&mut text, "What is wrong:", &(what(outcome, fault) + "."));
    labelled(&mut text, "What it means:", meaning(fault.reason));
    let hash = fault.hash.map_or("cannot be read".to_owned(), |hash| hash.to_string());
    labelled(&mut text, if fault.reason == Reason::Tail { "Noted hash:" } else { "Its hash:" }, &hash);
    // Not "sound": what agrees with itself may still have been rewritten as a whole.
    let consistent = match outcome.head {
        Some(head) if head.chain_seq > outcome.first_seq => {
            format!("chain_seq {} to {}", outcome.first_seq, head.chain_seq)
        }
        Some(head) => format!("chain_seq {}", head.chain_seq),
        None => "nothing".to_owned(),
    };
    labelled(&mut text, "Consistent:", &consistent);
    if fault.reason != Reason::Tail {
        line(&mut text, "Nothing behind the first break was examined.");
    }
    put_unchecked(&mut text, outcome);
    text
}

/// The reason, with what was seen.
fn what(outcome: &Outcome, fault: &Fault) -> String {
    let explained = fault.reason.explain();
    match (fault.reason, outcome.head, &fault.problem) {
        (Reason::Gap, Some(before), _) => {
            format!("after chain_seq {} comes {} ({explained})", before.chain_seq, fault.at)
        }
        (Reason::Gap, None, _) => "a chain begins with chain_seq 1".to_owned(),
        (Reason::Tail, None, _) => "a head was noted earlier, and there are no events".to_owned(),
        (_, _, Some(problem)) => format!("{explained} ({})", printable(problem)),
        (Reason::Link, None, _) if fault.at == 1 => {
            "it is the first event, but its prev_hash is not 64 zeros".to_owned()
        }
        _ => explained.to_owned(),
    }
}

fn meaning(reason: Reason) -> &'static str {
    match reason {
        Reason::Chain => {
            "events of two chains were mixed, or this one was relabelled. Check one project's events at a time."
        }
        Reason::Gap => {
            "events are missing, doubled or out of order. If pages or files were put together, check their order first."
        }
        Reason::Link => {
            "history was changed here: this event was not sealed behind the one that now stands before it."
        }
        Reason::Hash => "this event does not say what it said when it was sealed.",
        Reason::Order => "this event was not sealed by Sealog's rules, although its hash is right.",
        Reason::Damaged => "the storage has failed here.",
        Reason::Head => {
            "all events from some point up to here, this one included, were sealed anew since the head was noted."
        }
        Reason::Tail => {
            "the newest events are missing. If the export was made before the head was noted, export again first."
        }
        Reason::Malformed => "the event cannot be checked as it stands; Sealog does not write such events.",
    }
}

/// For a script: the fields of `GET /v1/verify`, then what only this program knows.
pub(crate) fn in_json(outcome: &Outcome) -> String {
    let mut body = format!(
        "{{\"valid\":{},\"checked\":{},\"first_seq\":{},\"last_seq\":{}",
        outcome.broken.is_none(),
        outcome.checked,
        outcome.first_seq,
        outcome.last_seq
    );
    if let Some(fault) = &outcome.broken {
        let hash = fault.hash.map_or("null".to_owned(), |hash| format!("\"{hash}\""));
        let _ = write!(body, ",\"broken_at\":{},\"broken_hash\":{hash}", fault.at);
        let _ = write!(
            body,
            ",\"reason\":\"{}\",\"message\":{}",
            fault.reason.as_str(),
            quoted(&what(outcome, fault))
        );
    }
    // Of a broken chain there is no head that anyone should note.
    let head = outcome.head.filter(|_| outcome.broken.is_none());
    let head = head.map_or("null".to_owned(), |head| format!("\"{head}\""));
    let unchecked: Vec<_> = outcome.unchecked.iter().map(|head| format!("\"{head}\"")).collect();
    let _ = write!(
        body,
        ",\"head\":{head},\"confirmed\":{},\"unchecked\":[{}]}}",
        outcome.confirmed,
        unchecked.join(",")
    );
    body
}

fn events_in_words(outcome: &Outcome) -> String {
    match outcome.checked {
        1 => format!("1 event, chain_seq {}", outcome.first_seq),
        many => format!("{many} events, chain_seq {} to {}", outcome.first_seq, outcome.last_seq),
    }
}

fn put_chain(text: &mut String, outcome: &Outcome) {
    if let Some((tenant_id, project_id)) = outcome.chain {
        line(text, &format!("tenant_id  {tenant_id}"));
        line(text, &format!("project_id {project_id}"));
    }
}

fn put_unchecked(text: &mut String, outcome: &Outcome) {
    for head in &outcome.unchecked {
        line(text, &format!("NOT CHECKED, as it lies before the events given: --expect {head}"));
    }
}

/// A label and, in a column beside it, a text that is broken into lines for a terminal of 80 columns.
fn labelled(text: &mut String, label: &str, content: &str) {
    const COLUMN: usize = 16;
    const WIDTH: usize = 80;
    let mut line = format!("{label:COLUMN$}");
    for word in content.split(' ') {
        if line.len() > COLUMN && line.len() + 1 + word.len() > WIDTH {
            text.push_str(&line);
            text.push('\n');
            line = " ".repeat(COLUMN);
        }
        if line.len() > COLUMN {
            line.push(' ');
        }
        line.push_str(word);
    }
    text.push_str(&line);
    text.push('\n');
}

fn line(text: &mut String, content: &str) {
    text.push_str(content);
    text.push('\n');
}
