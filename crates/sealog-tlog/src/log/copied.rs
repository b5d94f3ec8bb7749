//! Another copy of a store log, as tile logs are served and kept: `checkpoint` and `tile/entries/…`. What is
//! read is believed by nobody before [`Signer::recover`](super::Signer::recover) has verified it.

use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::note::Note;
use sealog_trust::tile::{self, Content, Tile, WIDTH};

/// More than a log has after a hundred years of snapshots, one a minute.
const ENTRIES_MAX: u64 = 60_000_000;
const CHECKPOINT: &str = "checkpoint";

/// What is at a path of a copy; None if nothing is.
type Found = Result<Option<Vec<u8>>, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// A checkpoint with its signatures.
    pub note: Vec<u8>,
    /// All entries of its tree.
    pub entries: Vec<Vec<u8>>,
}

impl Copied {
    /// Reads a copy. `get` returns what is at a path of it.
    pub fn read(get: &mut dyn FnMut(&str) -> Found) -> Result<Copied, String> {
        let note = get(CHECKPOINT)?.ok_or_else(|| format!("{CHECKPOINT}: not found"))?;
        let size = size_of(&note)?;
        let mut entries = Vec::new();
        for tile in Tile::of_tree(size).filter(|tile| tile.content == Content::Hashes(0)) {
            let bundle = Tile { content: Content::Entries, ..tile };
            // Whoever keeps a log may have kept what a partial bundle has become.
            let whole = Tile { width: WIDTH, ..bundle };
            let (path, bytes) = match get(&bundle.to_string())? {
                Some(bytes) => (bundle, bytes),
                None => match get(&whole.to_string())? {
                    Some(bytes) => (whole, bytes),
                    None => return Err(format!("{bundle}: not found")),
                },
            };
            let read = tile::entries(&bytes, path.width).map_err(|error| format!("{path}: {error}"))?;
            entries.extend(read.into_iter().take(usize::from(tile.width)).map(<[u8]>::to_vec));
        }
        Ok(Copied { note, entries })
    }

    /// How many files a copy with this checkpoint has.
    pub fn files(note: &[u8]) -> Result<u64, String> {
        Ok(1 + size_of(note)?.div_ceil(u64::from(WIDTH)))
    }
}

/// How many entries a checkpoint says that there are.
fn size_of(note: &[u8]) -> Result<u64, String> {
    let malformed = |error: &dyn std::fmt::Display| format!("{CHECKPOINT}: {error}");
    let parsed = Note::parse(note).map_err(|error| malformed(&error))?;
    let Checkpoint { size, .. } = Checkpoint::parse(parsed.text()).map_err(|error| malformed(&error))?;
    if size > ENTRIES_MAX {
        return Err(format!("{CHECKPOINT}: has {size} entries; the limit is {ENTRIES_MAX}"));
    }
    Ok(size)
}
