//! What an old data directory proves, or what is left of one: the events in its log, and its marks.
//!
//! A mark alone proves too little. It is a lower bound that a server writes about once a second:
//!
//! ```text
//! t0  the mark is written                  it has event 60
//! t1  events 61 to 150 are acknowledged    the log has them, and no mark yet
//! t2  the process is killed
//! ```
//! So whoever asks what was acknowledged reads the log too, and takes the larger of both. Where the log
//! cannot be read, the operator is told when the mark was written.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_cli::exit::{Exit, Failure};
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::iso_ms;
use sealog_store::embedded::backup::{
    Header, SegmentContents, Walk, Wanted, read_dropped, read_mark, segment_file_name, segment_number,
};
use sealog_store::embedded::disk::{Disk, RealDisk};
use sealog_store::postgres::read_mark as read_postgres_mark;

use super::cores::on_all_cores;

/// Faults of an old log that are told one by one.
const FAULTS_MAX: usize = 5;

#[derive(Debug, Default)]
pub(super) struct OldData {
    /// Events that were acknowledged, and what has them.
    pub heads: Vec<(ChainId, Head, Arc<str>)>,
    /// What else may have been acknowledged, in words for the operator.
    pub not_known: Vec<String>,
}

/// Reads a data directory without changing anything in it. Nothing where it has neither a log nor a mark.
/// Of a directory that is not whole any more, what is there counts: each log is read by itself.
pub(super) fn read(data_dir: &Path) -> Result<Option<OldData>, Failure> {
    let mut old = OldData::default();
    let mut is_there = false;
    for mode in Mode::ALL {
        let dir = data_dir.join(mode.as_str());
        let numbers = segments(&dir).map_err(|error| Failure::of_path(&dir, &error))?;
        let mut is_log_whole = false;
        if !numbers.is_empty() {
            let _alone = without_server(data_dir)?;
            is_log_whole = old.add_log(&dir, mode, &numbers);
            is_there = true;
        }
        is_there |= old.add_mark(&dir, mode, is_log_whole)?;
    }
    is_there |= old.add_postgres_mark(data_dir)?;
    Ok(is_there.then_some(old))
}

/// Numbers of the segments in the directory of a log, in their order.
pub(super) fn segments(dir: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        numbers.extend(entry?.file_name().to_str().and_then(segment_number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What a server acknowledges while its log is read would be missing. It holds the lock on its directory, and
/// whoever reads shares it.
pub(super) fn without_server(data_dir: &Path) -> Result<File, Failure> {
    let dir = File::open(data_dir).map_err(|error| Failure::of_path(data_dir, &error))?;
    match dir.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {
            let busy = format!(
                "--old-data: a server has {} open; stop it first, so that it acknowledges no more events",
                data_dir.display()
            );
            Err(Failure::new(Exit::Unavailable, busy))
        }
        // A file system that cannot lock directories is read all the same.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(dir),
    }
}

impl OldData {
    /// Verifies every chain of a log, and takes the last event of each. Whether all of the log could be read.
    ///
    /// An event counts although one before it is damaged: it was acknowledged.
    fn add_log(&mut self, dir: &Path, mode: Mode, numbers: &[u64]) -> bool {
        let by: Arc<str> = format!("the log in {}", dir.display()).into();
        let Log { heads, faults } = read_log(dir, mode, numbers);
        self.heads.extend(heads.into_iter().map(|(chain, head)| (chain, head, Arc::clone(&by))));
        self.not_known
            .extend(faults.iter().take(FAULTS_MAX).map(|fault| format!("{by} is damaged: {fault}")));
        if faults.len() > FAULTS_MAX {
            let more = faults.len() - FAULTS_MAX;
            self.not_known.push(format!("{by} is damaged in {more} more places"));
        }
        faults.is_empty()
    }

    /// Whether there is a mark. `is_log_whole`: the log has told everything, and the age of its mark does not
    /// matter.
    fn add_mark(&mut self, dir: &Path, mode: Mode, is_log_whole: bool) -> Result<bool, Failure> {
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let by: Arc<str> = format!("the high-water mark in {}", dir.display()).into();
        let marked = read_mark(&disk, dir, mode).map_err(|error| Failure::of_path(dir, &error))?;
        let Some(marked) = marked else {
            let is_there = dir.join("mark").exists();
            if is_there {
                self.not_known.push(format!("{by} is damaged and cannot be read"));
            }
            return Ok(is_there);
        };
        if marked.is_damaged {
            self.not_known
                .push(format!("{by} is partly damaged; it may have recorded more than can be read"));
        }
        // At a clean stop a mark is complete.
        if !marked.is_clean && !is_log_whole {
            self.not_known.push(format!(
                "{by} was last written at {}; a server writes it about once a second while events arrive. It does not cover events that were acknowledged later",
                iso_ms(marked.written_at_ms)
            ));
        }
        self.heads.extend(marked.heads.into_iter().map(|(chain, head)| (chain, head, Arc::clone(&by))));
        Ok(true)
    }

    /// Of a server on PostgreSQL, which has no log of its own. Whether there is one.
    fn add_postgres_mark(&mut self, data_dir: &Path) -> Result<bool, Failure> {
        let path = data_dir.join("postgres.mark");
        if !path.exists() {
            return Ok(false);
        }
        let by: Arc<str> = format!("the high-water mark {}", path.display()).into();
        let heads = read_postgres_mark(data_dir)
            .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))?;
        self.not_known.push(format!(
            "{by} may be about a second old if its server was killed. It does not cover events that were acknowledged later"
        ));
        self.heads.extend(heads.into_iter().map(|(chain, head)| (chain, head, Arc::clone(&by))));
        Ok(true)
    }
}

/// A log as far as it could be read.
struct Log {
    heads: BTreeMap<ChainId, Head>,
    faults: Vec<String>,
}

fn read_log(dir: &Path, mode: Mode, numbers: &[u64]) -> Log {
    let mut faults = Vec::new();
    let (through, dropped) = match fs::read(dir.join("dropped")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Default::default(),
        _ if mode == Mode::Live => Default::default(),
        read => read.ok().as_deref().and_then(read_dropped).unwrap_or_else(|| {
            faults.push("cannot read the record of deleted test events".to_owned());
            Default::default()
        }),
    };
    let counted: Vec<u64> = numbers.iter().copied().filter(|number| *number > through).collect();
    let mut expected = through + 1;
    for number in &counted {
        if *number > expected {
            faults.push(format!("segments {expected} to {} are missing", number - 1));
        }
        expected = number + 1;
    }
    let headers: BTreeMap<u64, Header> =
        counted.iter().filter_map(|number| Some((*number, header(dir, *number)?))).collect();
    let segments: Vec<Segment> = counted
        .iter()
        .map(|number| Segment {
            path: dir.join(segment_file_name(*number)),
            end: headers.get(&(number + 1)).and_then(|next| next.before).filter(|(of, _)| of == number),
            is_last: counted.last() == Some(number),
        })
        .collect();
    let mut walk = Walk::behind(dropped);
    on_all_cores(&segments, Segment::read, |segment, read| match read {
        Ok(contents) => {
            let name = segment.path.display();
            let said = |(from, to): &(u64, u64)| format!("{name} from byte {from} to {to}");
            faults.extend(contents.damage.iter().map(said));
            walk.add(contents);
        }
        Err(problem) => faults.push(format!("{}: {problem}", segment.path.display())),
    });
    let mut heads = BTreeMap::new();
    for (chain, ended) in walk.finish() {
        heads.insert(chain, ended.head);
        if let Some(broken) = ended.broken {
            faults.push(format!("chain {chain} at event {}: {}", broken.at, broken.reason.explain()));
        }
    }
    Log { heads, faults }
}

/// Nothing where the header cannot be read.
pub(super) fn header(dir: &Path, number: u64) -> Option<Header> {
    let mut bytes = Vec::new();
    let file = File::open(dir.join(segment_file_name(number))).ok()?;
    file.take(Header::LEN as u64).read_to_end(&mut bytes).ok()?;
    Header::read(&bytes)
}

struct Segment {
    path: PathBuf,
    /// Its number, and where it ends, as the next segment says. What stands behind that was written again
    /// there.
    end: Option<(u64, u64)>,
    is_last: bool,
}

impl Segment {
    fn read(&self) -> Result<SegmentContents, String> {
        let mut bytes = fs::read(&self.path).map_err(|error| error.to_string())?;
        let read = |bytes: &[u8], verify| {
            SegmentContents::read(bytes, verify, &Wanted::default()).ok_or("its header is damaged")
        };
        if let Some((_, end)) = self.end {
            bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        } else if self.is_last {
            // A torn write at the end was never acknowledged. If the mark knows better, its heads say so.
            let contents = read(&bytes, false)?;
            let mut end = contents.end;
            for (from, to) in contents.damage.iter().rev() {
                end = if *to == end { *from } else { break };
            }
            bytes.truncate(usize::try_from(end).unwrap_or(usize::MAX));
        }
        Ok(read(&bytes, true)?)
    }
}
