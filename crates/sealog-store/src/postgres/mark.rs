//! What this node has acknowledged, in a file of its own: after a failover to a standby that had not received everything, the database itself cannot know what is missing.
//!
//! Text, a line for each chain, then a checksum. It belongs to one store; that of another one is left alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, ProjectId, TenantId, Ulid, Uuid};

use super::rows;
use crate::embedded::disk::{self, Disk, RealDisk};

const FORMAT: &str = "sealog postgres mark 1";

#[derive(Debug)]
pub(super) struct MarkFile {
    path: PathBuf,
    store_id: Uuid,
}

impl MarkFile {
    /// Opens the mark of a store and returns the heads in it.
    pub(super) fn open(dir: &Path, store_id: Uuid) -> io::Result<(MarkFile, BTreeMap<ChainId, Head>)> {
        let disk = RealDisk;
        disk.create_dir(dir)?;
        let mark = MarkFile { path: dir.join("postgres.mark"), store_id };
        let text = match disk.open(&mark.path) {
            Ok(file) => disk::read_all(&*file)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((mark, BTreeMap::new())),
            Err(error) => return Err(error),
        };
        let wrong = |problem: &str| io::Error::new(io::ErrorKind::InvalidData, problem.to_owned());
        let text = String::from_utf8(text).map_err(|_| wrong("it is not text"))?;
        let (of, heads) =
            decode(&text).ok_or_else(|| wrong("it is damaged; move it away to go on without it"))?;
        if of != store_id {
            return Err(wrong("it belongs to another database; move it away if this one is meant"));
        }
        Ok((mark, heads))
    }

    pub(super) fn write(&self, heads: &BTreeMap<ChainId, Head>) -> io::Result<()> {
        disk::replace(&RealDisk, &self.path, encode(self.store_id, heads).as_bytes())
    }
}

fn encode(store_id: Uuid, heads: &BTreeMap<ChainId, Head>) -> String {
    let mut text = format!("{FORMAT}\nstore {store_id}\n");
    for (chain, head) in heads {
        let ChainId { tenant_id, project_id, mode } = chain;
        let mode = mode.as_str();
        text.push_str(&format!(
            "{tenant_id} {project_id} {mode} {} {} {}\n",
            head.chain_seq, head.log_id, head.hash
        ));
    }
    let checksum = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("crc32c {checksum:08x}\n"));
    text
}

fn decode(text: &str) -> Option<(Uuid, BTreeMap<ChainId, Head>)> {
    let end = text.rfind("crc32c ")?;
    let (content, checksum) = text.split_at(end);
    if checksum != format!("crc32c {:08x}\n", crc32c::crc32c(content.as_bytes())) {
        return None;
    }
    let mut lines = content.lines();
    lines.next().filter(|line| *line == FORMAT)?;
    let store_id = Uuid::parse(lines.next()?.strip_prefix("store ")?)?;
    let head = |line: &str| {
        let mut words = line.split(' ');
        let chain = ChainId {
            tenant_id: TenantId(Uuid::parse(words.next()?)?),
            project_id: ProjectId(Uuid::parse(words.next()?)?),
            mode: rows::mode(words.next()?)?,
        };
        let head = Head {
            chain_seq: words.next()?.parse().ok()?,
            log_id: Ulid::parse(words.next()?)?,
            hash: Hash::parse(words.next()?)?,
        };
        Some((chain, head))
    };
    Some((store_id, lines.map(head).collect::<Option<_>>()?))
}

#[cfg(test)]
mod tests {
    use sealog_core::id::Mode;

    use super::*;

    fn heads() -> BTreeMap<ChainId, Head> {
        let chain =
            |mode| ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid([2; 16])), mode };
        let head =
            |chain_seq| Head { chain_seq, log_id: Ulid(u128::from(chain_seq) << 80), hash: Hash([3; 32]) };
        BTreeMap::from([(chain(Mode::Live), head(7)), (chain(Mode::Test), head(9))])
    }

    #[test]
    fn a_mark_reads_back_and_a_changed_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let store_id = Uuid([5; 16]);
        let (mark, none) = MarkFile::open(dir.path(), store_id).unwrap();
        assert!(none.is_empty());
        mark.write(&heads()).unwrap();
        assert_eq!(MarkFile::open(dir.path(), store_id).unwrap().1, heads());
        assert!(
            MarkFile::open(dir.path(), Uuid([6; 16])).unwrap_err().to_string().contains("another database")
        );
        let path = dir.path().join("postgres.mark");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace(" 7 ", " 6 ")).unwrap();
        assert!(MarkFile::open(dir.path(), store_id).unwrap_err().to_string().contains("damaged"));
    }
}
