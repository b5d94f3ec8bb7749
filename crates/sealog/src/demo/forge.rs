//! Changes a stored event as somebody with access to the disk might: with the right checksum, so that the
//! store finds nothing wrong. Only the chain of hashes tells.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use sealog_core::id::ProjectId;

/// `docs/format.md`, section 3.
const SEGMENT_HEADER: usize = 128;
const SALT: Range<usize> = 24..40;
const FRAME: &[u8] = b"SLFR";
const FRAME_HEADER: usize = 88;
const COUNT: Range<usize> = 10..12;
const CHAIN: Range<usize> = 32..64;
const PROJECT: Range<usize> = 48..64;
const SEQ: Range<usize> = 64..72;
const RECORD_TEXT: usize = 88;
const CHECKSUM: usize = 4;

/// What is changed: the first digit behind it.
const AMOUNT: &[u8] = b"\"amount\":";

/// Changes an amount in an event of this project, somewhere in the last segment of a log. Its `chain_seq`.
pub(super) fn change_an_amount(log: &Path, project_id: ProjectId) -> Result<u64, String> {
    let path = last_segment(log)?;
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = fs::read(&path).map_err(failed)?;
    let candidates = amounts(&bytes, project_id);
    // Neither near the beginning nor near the end: whoever looks for it has to look.
    let chosen = candidates.get(candidates.len() * 2 / 5);
    let &(frame, digit) = chosen.ok_or_else(|| format!("{}: no amount to change", path.display()))?;
    bytes[digit] = if bytes[digit] == b'9' { b'1' } else { b'9' };
    let record = frame + FRAME_HEADER;
    let end = record + number(&bytes, record) - CHECKSUM;
    let parts = [&bytes[SALT], &bytes[frame..][CHAIN], &bytes[frame..][SEQ], &bytes[record..end]];
    let checksum = crc32c::crc32c(&parts.concat());
    bytes[end..end + CHECKSUM].copy_from_slice(&checksum.to_le_bytes());
    fs::write(&path, &bytes).map_err(failed)?;
    let seq = bytes[frame..][SEQ].try_into().expect("eight bytes");
    Ok(u64::from_le_bytes(seq))
}

fn last_segment(log: &Path) -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", log.display());
    let mut last = None;
    for entry in fs::read_dir(log).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            last = last.max(Some(path));
        }
    }
    last.ok_or_else(|| format!("{}: no segment", log.display()))
}

/// Of each event that has one: where its frame is, and where the first digit.
fn amounts(bytes: &[u8], project_id: ProjectId) -> Vec<(usize, usize)> {
    let (mut found, mut at) = (Vec::new(), SEGMENT_HEADER);
    while bytes.get(at..at + FRAME.len()) == Some(FRAME) {
        let frame = &bytes[at..];
        let is_alone = frame[COUNT] == 1u16.to_le_bytes();
        if is_alone && frame[PROJECT] == project_id.0.0 {
            let record = at + FRAME_HEADER;
            let text = record + RECORD_TEXT + number(bytes, record + 4);
            let end = record + number(bytes, record) - CHECKSUM;
            let amount = bytes[text..end].windows(AMOUNT.len()).position(|part| part == AMOUNT);
            found.extend(amount.map(|amount| (at, text + amount + AMOUNT.len())));
        }
        at += number(bytes, at + 4);
    }
    found
}

fn number(bytes: &[u8], at: usize) -> usize {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes) as usize
}
