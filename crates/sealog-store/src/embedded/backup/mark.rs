//! The high-water mark and the list of what was dropped, for those who have no open store.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};

use crate::embedded::log::disk::Disk;
use crate::embedded::log::read_only::ReadOnlyDisk;
use crate::embedded::recovery::dropped::{Dropped, decode};
use crate::embedded::recovery::high_water_mark::{Extent, MarkFile};

/// What a high-water mark knows of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marked {
    pub heads: BTreeMap<ChainId, Head>,
    /// A record in it is damaged, so that it may have known more.
    pub is_damaged: bool,
    /// The last record was written at a clean stop, so that nothing was acknowledged after it.
    pub is_clean: bool,
    pub written_at_ms: u64,
}

/// The high-water mark in the directory of a log; nothing where there is none that can be read. It is a
/// lower bound: it is written about once a second while events arrive, and the log beside it may have more.
pub fn read_mark(disk: &Arc<dyn Disk>, dir: &Path, mode: Mode) -> io::Result<Option<Marked>> {
    // An old disk may be mounted so that nothing on it can be written.
    let disk = Arc::new(ReadOnlyDisk(Arc::clone(disk)));
    let (_, marked) = MarkFile::open(disk, dir, mode)?;
    Ok(marked.map(|marked| Marked {
        heads: marked.heads,
        is_damaged: marked.damaged,
        is_clean: marked.clean,
        written_at_ms: marked.written_at_ms,
    }))
}

/// Up to where a copy of a log goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    pub commit: u64,
    pub segment: u64,
    pub offset: u64,
    pub unproven_to: Option<(u64, u64)>,
}

/// Gives the copy of a log its high-water mark, with the heads that it has to reach. Durable when it returns.
pub fn write_mark(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    mode: Mode,
    end: CopyEnd,
    heads: &BTreeMap<ChainId, Head>,
    now_ms: u64,
) -> io::Result<()> {
    let (mut mark, _) = MarkFile::open(Arc::clone(disk), dir, mode)?;
    mark.set_unproven(end.unproven_to);
    let extent = Extent { commit: end.commit, segment: end.segment, offset: end.offset };
    mark.write(extent, true, heads, now_ms)
}

/// The last event of each chain that was dropped, by the bytes of the file; nothing if they contradict their
/// checksum.
pub fn read_dropped(bytes: &[u8]) -> Option<(u64, BTreeMap<ChainId, Head>)> {
    decode(bytes).map(|Dropped { through, anchors }| (through, anchors))
}
