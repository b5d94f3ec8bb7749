//! Data that an earlier build wrote, and what that build read from it: `fixtures/README.md`.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use flate2::read::GzDecoder;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use serde_json::Value;

use crate::postgres::Database;
use crate::world::StillWorld;

/// Every build whose data is kept.
pub const BUILDS: [&str; 1] = ["4236494"];

/// A snapshot, and what its own build read from it.
#[derive(Debug)]
pub struct Fixture {
    pub dir: PathBuf,
    name: &'static str,
    expected: Value,
    /// The lines of all chains, one after the other.
    events: Vec<Vec<u8>>,
}

impl Fixture {
    pub fn load(build: &str, name: &'static str) -> Fixture {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures").join(build);
        let expected = unzipped(&dir.join(format!("{name}.json.gz")));
        let lines = unzipped(&dir.join(format!("{name}.ndjson.gz")));
        let events = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Fixture {
            events: events.map(<[u8]>::to_vec).collect(),
            expected: serde_json::from_slice(&expected).unwrap(),
            dir,
            name,
        }
    }

    /// A minute after the snapshot was made: its idempotency keys still count.
    pub fn world(&self) -> Arc<StillWorld> {
        let world = StillWorld::new();
        world.set(self.expected["read_at_ms"].as_u64().unwrap() + 60_000);
        world
    }

    /// A new copy of an archive.
    pub fn unpacked(&self, archive: &str) -> tempfile::TempDir {
        let to = tempfile::tempdir().unwrap();
        let tar =
            Command::new("tar").arg("-xzf").arg(self.dir.join(archive)).arg("-C").arg(to.path()).status();
        assert!(tar.unwrap().success());
        to
    }

    /// Each chain with its last number and hash and its events, oldest first.
    pub fn chains(&self) -> Vec<(ChainId, u64, &str, &[Vec<u8>])> {
        let mut rest = self.events.as_slice();
        let chains = self.expected["chains"].as_array().unwrap().iter().map(|chain| {
            let (of_chain, others) = rest.split_at(number(chain, "chain_seq").try_into().unwrap());
            rest = others;
            (chain_of(chain), number(chain, "chain_seq"), text(chain, "hash"), of_chain)
        });
        let chains: Vec<_> = chains.collect();
        assert!(rest.is_empty() && chains.len() == 10, "{}", self.name);
        chains
    }

    pub fn list(&self, name: &str) -> &[Value] {
        self.expected[name].as_array().unwrap()
    }
}

pub fn unzipped(path: &Path) -> Vec<u8> {
    let mut content = Vec::new();
    GzDecoder::new(File::open(path).unwrap()).read_to_end(&mut content).unwrap();
    content
}

pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{name} in {value}"))
}

pub fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("{name} in {value}"))
}

pub fn id(value: &Value, name: &str) -> Uuid {
    Uuid::parse(text(value, name)).unwrap()
}

pub fn chain_of(value: &Value) -> ChainId {
    let mode = if text(value, "mode") == "live" { Mode::Live } else { Mode::Test };
    ChainId {
        tenant_id: TenantId(id(value, "tenant_id")),
        project_id: ProjectId(id(value, "project_id")),
        mode,
    }
}

/// Puts a dump into an empty database.
pub fn restore(database: &Database, dump: &Path) {
    let sql = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&sql, unzipped(dump)).unwrap();
    let mut psql = Command::new("psql");
    psql.args(["-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", &database.url(), "-f"]).arg(sql.path());
    let output = psql.stdout(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
