//! Entries of the store log: texts whose first line is their kind.

use sealog_core::id::Hash;

use crate::note::VerifierKey;
use crate::text::{Lines, Malformed, base64, is_name, malformed};
use crate::tile::ENTRY_BYTES_MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Signs checkpoints of the store log.
    Log,
    /// Signs receipts and everything else.
    Service,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyChange {
    Add,
    Retire,
}

/// The last tree of a log that another one continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Previous {
    pub origin: String,
    pub size: u64,
    pub root: Hash,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    Genesis {
        origin: String,
        time_ms: u64,
        interval_s: u64,
        max_delay_s: u64,
        previous: Option<Previous>,
    },
    Key {
        time_ms: u64,
        role: Role,
        change: KeyChange,
        key: Box<VerifierKey>,
    },
    Heads {
        time_ms: u64,
        root: Hash,
    },
    Restore {
        time_ms: u64,
        index: u64,
        reason: String,
    },
    /// A kind of a later version. Readers show it and skip it.
    Unknown {
        kind: String,
    },
}

const GENESIS: &str = "sealog/genesis/v1";
const KEY: &str = "sealog/key/v1";
const HEADS: &str = "sealog/heads/v1";
const RESTORE: &str = "sealog/restore/v1";

/// The text of a heads entry. Every proof of an event ends with it.
pub fn heads_text(time_ms: u64, root: &Hash) -> String {
    format!("{HEADS}\n{time_ms}\n{}\n", base64(&root.0))
}

impl Entry {
    pub fn parse(entry: &[u8]) -> Result<Entry, Malformed> {
        if entry.len() > ENTRY_BYTES_MAX {
            return Err(malformed("entry", "must have at most 65535 bytes"));
        }
        let text = std::str::from_utf8(entry).map_err(|_| malformed("entry", "must be UTF-8"))?;
        let mut lines = Lines::of(text);
        let kind = lines.next("kind")?;
        let entry = match kind {
            GENESIS => genesis(&mut lines)?,
            KEY => {
                let time_ms = number(&mut lines, "time")?;
                let role = match lines.next("role")? {
                    "log" => Role::Log,
                    "service" => Role::Service,
                    _ => return Err(lines.wrong("role", "must be `log` or `service`")),
                };
                let change = match lines.next("change")? {
                    "add" => KeyChange::Add,
                    "retire" => KeyChange::Retire,
                    _ => return Err(lines.wrong("change", "must be `add` or `retire`")),
                };
                let line = lines.next("vkey")?;
                let key = VerifierKey::parse(line).map_err(|problem| lines.wrong("vkey", problem.problem))?;
                Entry::Key { time_ms, role, change, key: Box::new(key) }
            }
            HEADS => {
                let time_ms = number(&mut lines, "time")?;
                let line = lines.next("root")?;
                Entry::Heads { time_ms, root: lines.hash("root", line)? }
            }
            RESTORE => {
                let time_ms = number(&mut lines, "time")?;
                let index = number(&mut lines, "index")?;
                let reason = lines.next("reason")?;
                if !is_reason(reason) {
                    return Err(lines.wrong("reason", "must be a line of printable text"));
                }
                Entry::Restore { time_ms, index, reason: reason.to_owned() }
            }
            kind => return Ok(Entry::Unknown { kind: kind.to_owned() }),
        };
        lines.end()?;
        Ok(entry)
    }

    /// The entry's bytes. Nothing for an unknown kind, or if a field is one that [`Entry::parse`] refuses.
    pub fn to_text(&self) -> Option<String> {
        let text = match self {
            Entry::Genesis { origin, time_ms, interval_s, max_delay_s, previous } => {
                let mut text = format!("{GENESIS}\n{origin}\n{time_ms}\n{interval_s}\n{max_delay_s}\n");
                if let Some(Previous { origin, size, root }) = previous {
                    text += &format!("previous {origin} {size} {}\n", base64(&root.0));
                }
                text
            }
            Entry::Key { time_ms, role, change, key } => {
                let role = match role {
                    Role::Log => "log",
                    Role::Service => "service",
                };
                let change = match change {
                    KeyChange::Add => "add",
                    KeyChange::Retire => "retire",
                };
                format!("{KEY}\n{time_ms}\n{role}\n{change}\n{key}\n")
            }
            Entry::Heads { time_ms, root } => heads_text(*time_ms, root),
            Entry::Restore { time_ms, index, reason } => {
                format!("{RESTORE}\n{time_ms}\n{index}\n{reason}\n")
            }
            Entry::Unknown { .. } => return None,
        };
        (Entry::parse(text.as_bytes()).as_ref() == Ok(self)).then_some(text)
    }
}

fn genesis(lines: &mut Lines<'_>) -> Result<Entry, Malformed> {
    let origin = lines.next("origin")?;
    let origin = name(lines, origin)?;
    let time_ms = number(lines, "time")?;
    let mut positive = |field| match number(lines, field)? {
        0 => Err(lines.wrong(field, "must be at least 1")),
        seconds => Ok(seconds),
    };
    let (interval_s, max_delay_s) = (positive("interval")?, positive("max delay")?);
    let previous = if lines.rest().is_empty() {
        None
    } else {
        const FORM: &str = "must be `previous ORIGIN SIZE ROOT`";
        let value = lines.value("previous")?;
        let words: Vec<&str> = value.splitn(4, ' ').collect();
        let [origin, size, root] = words[..] else { return Err(lines.wrong("previous", FORM)) };
        Some(Previous {
            origin: name(lines, origin)?,
            size: lines.decimal("size", size)?,
            root: lines.hash("root", root)?,
        })
    };
    Ok(Entry::Genesis { origin, time_ms, interval_s, max_delay_s, previous })
}

fn number(lines: &mut Lines<'_>, field: &'static str) -> Result<u64, Malformed> {
    let line = lines.next(field)?;
    lines.decimal(field, line)
}

fn name(lines: &Lines<'_>, origin: &str) -> Result<String, Malformed> {
    if is_name(origin) {
        return Ok(origin.to_owned());
    }
    Err(lines.wrong("origin", "must not be empty and must have no white space and no `+`"))
}

fn is_reason(text: &str) -> bool {
    !text.trim().is_empty() && !text.contains(char::is_control)
}
