//! How a large file is cut into pieces, so that backups share those that did not change.

use sha2::{Digest, Sha256};

use super::manifest::{FileText, PieceText};

/// Of SQLite. A copy of the control data has its tables one behind the other, with full pages: a new row
/// changes the pages of its table from there on, and moves all pages that follow. Those have the same content
/// elsewhere, but for a few that refer to others by number.
const PAGE: usize = 4096;
/// A piece ends behind a page whose digest begins with less: one in eight. The content decides, not the
/// place, so pages that have moved are cut as before.
const ENDS_BELOW: u8 = 32;
const PAGES_MAX: usize = 32;

/// Keeps every piece by `keep`, under its digest. A file that is one piece has no list of them.
pub(super) fn keep_file(
    name: String,
    content: &[u8],
    mut keep: impl FnMut(&[u8], &str) -> Result<(), String>,
) -> Result<FileText, String> {
    let sha256 = hex::encode(Sha256::digest(content));
    let mut pieces = Vec::new();
    let cut = cut(content);
    if cut.len() < 2 {
        keep(content, &sha256)?;
        return Ok(FileText { name, bytes: content.len() as u64, sha256, pieces });
    }
    for piece in cut {
        let sha256 = hex::encode(Sha256::digest(piece));
        keep(piece, &sha256)?;
        pieces.push(PieceText { bytes: piece.len() as u64, sha256 });
    }
    Ok(FileText { name, bytes: content.len() as u64, sha256, pieces })
}

fn cut(content: &[u8]) -> Vec<&[u8]> {
    let (mut pieces, mut begin) = (Vec::new(), 0);
    for (at, page) in content.chunks(PAGE).enumerate() {
        let end = at * PAGE + page.len();
        if Sha256::digest(page)[0] < ENDS_BELOW || end - begin == PAGES_MAX * PAGE {
            pieces.push(&content[begin..end]);
            begin = end;
        }
    }
    if begin < content.len() {
        pieces.push(&content[begin..]);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pages(count: usize) -> Vec<u8> {
        let page = |at: usize| Sha256::digest(at.to_le_bytes()).repeat(PAGE / 32);
        (0..count).flat_map(page).collect()
    }

    #[test]
    fn pieces_put_together_are_the_file_and_none_is_longer_than_allowed() {
        let zeros = vec![0; PAGE * 200];
        for content in [vec![], vec![1], pages(1), pages(300), [pages(300), vec![7]].concat(), zeros] {
            let pieces = cut(&content);
            assert_eq!(pieces.concat(), content);
            assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= PAGES_MAX * PAGE));
        }
    }

    #[test]
    fn a_page_that_is_added_or_changed_leaves_nearly_all_pieces_as_they_were() {
        let before = pages(1000);
        let known: BTreeSet<&[u8]> = cut(&before).into_iter().collect();
        let mut changed = before.clone();
        changed[500 * PAGE] ^= 1;
        let mut added = before.clone();
        added.splice(3 * PAGE..3 * PAGE, vec![9; PAGE]);
        for after in [changed, added] {
            let new = cut(&after).into_iter().filter(|piece| !known.contains(piece)).count();
            assert!((1..=3).contains(&new) && known.len() > 30, "{new} of {}", known.len());
        }
    }

    #[test]
    fn a_file_of_one_piece_is_kept_as_a_whole() {
        let mut kept = Vec::new();
        let file = keep_file("index.salt".into(), b"salt", |piece, sha256| {
            kept.push((piece.to_vec(), sha256.to_owned()));
            Ok(())
        });
        let file = file.unwrap();
        assert!(file.pieces.is_empty());
        assert_eq!(kept, [(b"salt".to_vec(), file.sha256)]);
    }
}
