//! A store whose operator is hostile: he stops it, rewrites what it has with all hashes, checksums, marks and
//! trees that belong to that, and starts the honest program on it with the real keys.

use std::path::{Path, PathBuf};
use std::process::Command;

use crc32c::{crc32c, crc32c_append};
use sealog_core::canonical;
use sealog_core::event::StoredEvent;
use sealog_core::id::Hash;
use sealog_testing::{eventually, postgres};

use crate::support::*;

pub(super) const TOKEN: &str = "the-operators-token";

/// Where a store is. Nobody has it open while it is copied or rewritten.
pub(super) struct Home {
    pub dir: PathBuf,
    /// None for the embedded store.
    database: Option<postgres::Database>,
}

impl Home {
    pub(super) fn embedded(dir: PathBuf) -> Home {
        Home { dir, database: None }
    }

    pub(super) fn on_postgres(dir: PathBuf) -> Home {
        Home { dir, database: Some(postgres::cluster().database()) }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = sealog();
        if name == "serve" {
            command = serving(command, &self.data());
            command.args(["--limits-per-ip-rps", "0"]).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        } else {
            command.args(["trust", name, "--data-dir"]).arg(self.data());
        }
        if let Some(database) = &self.database {
            command.env("SEALOG_STORE", database.url());
            command.env("SEALOG_TRUST_LOG_KEY_FILE", self.dir.join("log.key"));
            command.env("SEALOG_TRUST_SERVICE_KEY_FILE", self.dir.join("service.key"));
        }
        command
    }

    /// The program as it is, on what is there.
    pub(super) fn start(&self, interval_s: &str) -> Running {
        let mut command = self.command("serve");
        command.args(["--trust-interval-s", interval_s]);
        start(command)
    }

    /// Makes the log's keys where the first start does not.
    pub(super) fn begin_log(&self) {
        if self.database.is_some() {
            let (code, _, error) = ended(self.command("init").output().unwrap());
            assert_eq!(code, Some(0), "{error}");
        }
    }

    pub(super) fn vkey(&self) -> String {
        let (code, said, error) = ended(self.command("vkey").output().unwrap());
        assert_eq!(code, Some(0), "{error}");
        said.trim_end().to_owned()
    }

    /// Another one with everything that this one has, keys included.
    pub(super) fn copied(&self, to: &Path) -> Home {
        assert!(Command::new("cp").arg("-a").args([&self.dir, to]).status().unwrap().success());
        let database = self.database.as_ref().map(|from| {
            let (cluster, copy) = (postgres::cluster(), postgres::cluster().database());
            cluster.sql("postgres", &format!("DROP DATABASE {}", copy.name));
            eventually("nobody is connected to the original", || {
                let sql = format!("CREATE DATABASE {} TEMPLATE {}", copy.name, from.name);
                cluster.try_sql("owner", "postgres", &sql).status.success()
            });
            copy
        });
        Home { dir: to.to_owned(), database }
    }

    /// Gives a chain other events, and removes every mark that knows better.
    pub(super) fn replace(&self, events: &[StoredEvent]) {
        match &self.database {
            None => replace_in_segments(&self.data().join("live"), events),
            Some(database) => {
                replace_in_tables(database, events);
                let _ = std::fs::remove_file(self.data().join("postgres.mark"));
            }
        }
    }

    /// Makes the signed log believe that it has published the chain up to this event only, which it has at
    /// some time, and lets the trees be built anew. The next snapshot then goes on from here: the log has
    /// all its old entries, and each of its checkpoints is consistent with those before.
    pub(super) fn rewrite_trust(&self, last: &StoredEvent) {
        let (seq, hash) = (last.sealed.chain_seq, last.sealed.hash);
        let project = hex::encode(last.project_id.0.0);
        let sql = |published: &str, heads: &str, hex: fn(&str) -> String| {
            format!(
                "UPDATE {published} SET log = 0, size = {seq}, finding = NULL, hash = {},
                     root = (SELECT root FROM {heads} h WHERE h.chain = number AND h.size = {seq} LIMIT 1)
                 WHERE project_id = {}",
                hex(&hash.to_string()),
                hex(&project)
            )
        };
        match &self.database {
            None => {
                let trust = self.data().join("trust");
                for name in ["trees.db", "trees.db-wal", "trees.db-shm"] {
                    let _ = std::fs::remove_file(trust.join(name));
                }
                let script = "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1])\nn = db.execute(sys.argv[2]).rowcount\ndb.commit()\nassert n == 1, n";
                let sql = sql("published", "heads", |hex| format!("X'{hex}'"));
                let mut python = Command::new("python3");
                python.args(["-c", script]).arg(trust.join("log.db")).arg(sql);
                assert!(python.status().unwrap().success());
            }
            Some(database) => {
                let sql = sql("sealog_log.published", "sealog_log.heads", |hex| match hex.len() {
                    32 => format!("'{hex}'::uuid"),
                    _ => format!("'\\x{hex}'::bytea"),
                });
                database.sql(&format!(
                    "{sql}; DELETE FROM sealog_trees.tiles; DELETE FROM sealog_trees.chains;
                     DELETE FROM sealog_trees.builder"
                ));
            }
        }
    }
}

/// Makes the hashes of all events from one on fit again.
pub(super) fn rechain(events: &mut [StoredEvent], from: usize) {
    for at in from..events.len() {
        let prev_hash = at.checked_sub(1).map_or(Hash::ZERO, |before| events[before].sealed.hash);
        let StoredEvent { sealed, tenant_id, timestamp_ms, text, .. } = &mut events[at];
        sealed.prev_hash = prev_hash;
        sealed.hash = canonical::hash(prev_hash, sealed.log_id, *tenant_id, text.as_str(), *timestamp_ms);
    }
}

// ---- The database ---------------------------------------------------------------------------------------

fn replace_in_tables(database: &postgres::Database, events: &[StoredEvent]) {
    let project = events[0].project_id;
    let id = database.sql(&format!("SELECT chain_id FROM sealog.chains WHERE project_id = '{project}'"));
    let text = |value: Option<&str>| match value {
        Some(value) => format!("'{}'", value.replace('\'', "''")),
        None => "NULL".to_owned(),
    };
    let mut sql = format!("BEGIN; DELETE FROM sealog.events WHERE chain_id = '{id}';");
    for event in events {
        let (sealed, fields) = (&event.sealed, event.text.fields());
        let string = |json: &str| sealog_core::json::decode(json).unwrap();
        let texts = [
            Some(string(fields.action)),
            fields.actor_id.map(string),
            fields.resource.map(string),
            fields.metadata.map(str::to_owned),
        ];
        let annotations = event.annotations.values();
        let values: Vec<String> = texts
            .iter()
            .map(|value| text(value.as_deref()))
            .chain(annotations.into_iter().map(text))
            .collect();
        sql += &format!(
            "INSERT INTO sealog.events (chain_id, tenant_id, project_id, chain_seq, log_id, timestamp_ms, prev_hash, hash,
                 action, actor_id, resource, metadata, {}) VALUES ('{id}', '{}', '{project}', {}, '{}', {}, '\\x{}', '\\x{}', {});",
            sealog_core::event::Annotations::NAMES.join(", "),
            event.tenant_id,
            sealed.chain_seq,
            hex::encode(sealed.log_id.to_bytes()),
            event.timestamp_ms,
            sealed.prev_hash,
            sealed.hash,
            values.join(", ")
        );
    }
    let last = &events.last().unwrap().sealed;
    database.sql(&format!(
        "{sql} UPDATE sealog.chains SET chain_seq = {}, log_id = '{}', hash = '\\x{}',
             changed = pg_current_xact_id(), changed_group = pg_current_xact_id()::text::bigint >> 8
             WHERE chain_id = '{id}'; COMMIT",
        last.chain_seq,
        hex::encode(last.log_id.to_bytes()),
        last.hash
    ));
}

// ---- The files, by docs/format.md -----------------------------------------------------------------------

const SEGMENT_HEADER: usize = 128;
const FRAME_HEADER: usize = 88;
const IDEMPOTENCY: usize = 84;

fn u32_at(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

/// Writes all frames of a log into one segment, with those of one chain replaced.
fn replace_in_segments(live: &Path, events: &[StoredEvent]) {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(live).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path);
        } else {
            // Indexes and counts are derived; of a log of one segment no mark has to be there.
            std::fs::remove_file(path).unwrap();
        }
    }
    segments.sort();
    let ids = [events[0].tenant_id.0.0, events[0].project_id.0.0].concat();
    let contents: Vec<Vec<u8>> = segments.iter().map(|path| std::fs::read(path).unwrap()).collect();
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for bytes in &contents {
        let mut at = SEGMENT_HEADER;
        while bytes.get(at..at + 4) == Some(b"SLFR") {
            let end = at + u32_at(bytes, at + 4);
            if bytes[at + 32..at + 64] != ids {
                frames.push(bytes[at..end].to_vec());
            }
            at = end;
        }
    }
    frames.extend(events.iter().map(|event| frame(event, &ids)));
    let mut out = contents[0][..SEGMENT_HEADER].to_vec();
    let salt = out[24..40].to_vec();
    let first_commit = u64::from_le_bytes(out[40..48].try_into().unwrap());
    for (commit, mut frame) in (first_commit..).zip(frames) {
        settle(&mut frame, out.len() as u64, commit, &salt);
        out.extend_from_slice(&frame);
    }
    segments.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    std::fs::write(&segments[0], out).unwrap();
}

/// A frame of one event, whose place and checksums are still to come.
fn frame(event: &StoredEvent, ids: &[u8]) -> Vec<u8> {
    let sealed = &event.sealed;
    let mut annotations = Vec::new();
    for (tag, value) in (1u8..).zip(event.annotations.values()) {
        if let Some(value) = value {
            annotations.push(tag);
            annotations.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
            annotations.extend(value.as_bytes());
        }
    }
    if !annotations.is_empty() {
        annotations.splice(0..0, [1, 0, 0, 0, 0]);
    }
    let mut record = vec![0; 4];
    record.extend(u32::try_from(annotations.len()).unwrap().to_le_bytes());
    record.extend(sealed.log_id.to_bytes());
    record.extend(sealed.prev_hash.0);
    record.extend(sealed.hash.0);
    record.extend(annotations);
    record.extend(event.text.as_str().as_bytes());
    let length = u32::try_from(record.len() + 4).unwrap();
    record[..4].copy_from_slice(&length.to_le_bytes());
    record.extend([0; 4]);
    let mut frame = vec![0; FRAME_HEADER];
    frame[..4].copy_from_slice(b"SLFR");
    let length = u32::try_from(FRAME_HEADER + record.len()).unwrap();
    frame[4..8].copy_from_slice(&length.to_le_bytes());
    frame[8] = 1;
    frame[10] = 1;
    frame[32..64].copy_from_slice(ids);
    frame[64..72].copy_from_slice(&sealed.chain_seq.to_le_bytes());
    frame[72..80].copy_from_slice(&event.timestamp_ms.to_le_bytes());
    frame.extend(record);
    frame
}

/// Gives a frame its place, as a commit group of its own, and all checksums that go with it.
fn settle(frame: &mut [u8], position: u64, commit: u64, salt: &[u8]) {
    frame[12..16].fill(0);
    frame[16..24].copy_from_slice(&commit.to_le_bytes());
    frame[24..32].copy_from_slice(&position.to_le_bytes());
    let checksum = crc32c_append(crc32c(salt), &frame[..FRAME_HEADER - 4]);
    frame[FRAME_HEADER - 4..FRAME_HEADER].copy_from_slice(&checksum.to_le_bytes());
    let count = u64::from(u16::from_le_bytes(frame[10..12].try_into().unwrap()));
    let first_seq = u64::from_le_bytes(frame[64..72].try_into().unwrap());
    let mut at = FRAME_HEADER;
    for seq in first_seq..first_seq + count {
        let end = at + u32_at(frame, at);
        let seed = crc32c_append(crc32c_append(crc32c(salt), &frame[32..64]), &seq.to_le_bytes());
        let checksum = crc32c_append(seed, &frame[at..end - 4]);
        frame[end - 4..end].copy_from_slice(&checksum.to_le_bytes());
        at = end;
    }
    if frame[9] & 1 == 1 {
        assert_eq!(frame.len(), at + IDEMPOTENCY);
        let seed = crc32c_append(crc32c(salt), &position.to_le_bytes());
        let checksum = crc32c_append(seed, &frame[at..at + IDEMPOTENCY - 4]);
        frame[at + IDEMPOTENCY - 4..].copy_from_slice(&checksum.to_le_bytes());
    }
}
