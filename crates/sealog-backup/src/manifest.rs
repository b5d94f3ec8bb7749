//! The manifest of a backup: what it consists of, and where every chain ended. Written last, so that a backup
//! without one is none.

use std::collections::{BTreeMap, BTreeSet};

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::iso_ms;
use sealog_store::embedded::EmbeddedStore;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::head_text::{self, HeadText};
use super::moment::{LogMoment, Moment};
use super::unhex::unhex;

/// Of a directory, and of manifests whose files are whole.
pub(super) const FORMAT: &str = "sealog backup 1";
/// Of manifests whose files may be cut into pieces.
const WITH_PIECES: &str = "sealog backup 2";
pub(super) const EMBEDDED: &str = "embedded";
pub(super) const POSTGRESQL: &str = "postgresql";
/// Files beside the logs: control data, and the secret of the indexes.
pub(super) const CONTROL: &str = "control.db";
pub(super) const INDEX_SALT: &str = "index.salt";
/// The store log: the root keys of the salts, which nothing can make again. Not in the first builds.
pub(super) const STORE_LOG: &str = "trust/log.db";

const DIGEST_BYTES: usize = 32;
const SALT_BYTES: usize = 16;
/// Far above what a segment, the control data and a chain come to.
const SEGMENT_BYTES_MAX: u64 = 1 << 40;
const FILE_BYTES_MAX: u64 = 1 << 40;
const CHAIN_SEQ_MAX: u64 = 1 << 48;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: String,
    /// Its number and the time; also the name of the file.
    pub id: String,
    /// One more than that of the backup before it in the same place, whatever the clock says.
    pub number: u64,
    pub made_at: String,
    pub made_at_ms: u64,
    pub sealog_version: String,
    pub store: StoreText,
    pub logs: Vec<LogText>,
    pub files: Vec<FileText>,
    /// The last event of every chain.
    pub heads: Vec<HeadText>,
    /// Chains whose last events were proven lost when the backup was made, with the head on record.
    pub lost: Vec<HeadText>,
    /// What was wrong with the store when the backup was made.
    pub faults: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoreText {
    pub kind: String,
    /// As the store says it of itself.
    pub format: String,
    /// Tells it from other stores, and is the same in its copies.
    pub id: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogText {
    pub mode: String,
    pub commit: u64,
    pub dropped_through: u64,
    pub unproven_to: Option<(u64, u64)>,
    pub segments: Vec<SegmentText>,
    /// Segments that the store had lost.
    pub missing: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SegmentText {
    pub number: u64,
    /// No two segments have the same, so number and salt name the file.
    pub salt: String,
    /// How much of the file counts. A later backup may have added to it.
    pub bytes: u64,
    pub sha256: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileText {
    /// Its path in the data directory.
    pub name: String,
    pub bytes: u64,
    /// Also its name in the backup, unless it has pieces.
    pub sha256: String,
    /// Of a large file, in their order: backups share those that did not change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pieces: Vec<PieceText>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PieceText {
    pub bytes: u64,
    /// Also its name in the backup.
    pub sha256: String,
}

impl FileText {
    /// The names in the backup of everything that it consists of.
    pub(super) fn stored(&self) -> impl Iterator<Item = &str> {
        let whole = self.pieces.is_empty().then_some(self.sha256.as_str());
        whole.into_iter().chain(self.pieces.iter().map(|piece| piece.sha256.as_str()))
    }
}

impl LogText {
    /// Of a moment, without its segments.
    pub(super) fn begin(log: &LogMoment) -> LogText {
        LogText {
            mode: log.mode.clone(),
            commit: log.commit,
            dropped_through: log.dropped_through,
            unproven_to: log.unproven_to,
            segments: Vec::new(),
            missing: Vec::new(),
        }
    }
}

/// What is wrong with a chain whose last events are proven lost.
fn lost_fault(lost: &HeadText) -> String {
    let HeadText { tenant_id, project_id, mode, chain_seq, .. } = lost;
    format!("chain {tenant_id}/{project_id}/{mode} has lost event {chain_seq}, which was recorded")
}

/// The manifest with its own digest.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    sha256: String,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

impl Manifest {
    /// The one that comes behind those in a directory, with nothing in it yet.
    pub(super) fn after(known: &[Manifest], store: StoreText, now_ms: u64) -> Result<Manifest, String> {
        refuse_other_store(known, &store.id)?;
        let number = known.iter().map(|manifest| manifest.number).max().unwrap_or(0) + 1;
        Ok(Manifest {
            format: WITH_PIECES.into(),
            id: name(number, now_ms),
            number,
            made_at: iso_ms(now_ms),
            made_at_ms: now_ms,
            sealog_version: env!("CARGO_PKG_VERSION").into(),
            store,
            logs: Vec::new(),
            files: Vec::new(),
            heads: Vec::new(),
            lost: Vec::new(),
            faults: Vec::new(),
        })
    }

    /// The same for a moment of an embedded store, with what the store has lost by then.
    pub(super) fn of_moment(known: &[Manifest], moment: &Moment, now_ms: u64) -> Result<Manifest, String> {
        let format = EmbeddedStore::format().into();
        let store = StoreText { kind: EMBEDDED.into(), format, id: moment.store_id.clone() };
        let mut manifest = Manifest::after(known, store, now_ms)?;
        manifest.lost = moment.logs.iter().flat_map(|log| log.lost.clone()).collect();
        manifest.faults = manifest.lost.iter().map(lost_fault).collect();
        Ok(manifest)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let text = serde_json::to_string(self).expect("texts and numbers");
        let sha256 = hex::encode(Sha256::digest(text.as_bytes()));
        let manifest = RawValue::from_string(text).expect("it was just written");
        let mut out = serde_json::to_vec(&Sealed { sha256, manifest: &manifest }).expect("texts");
        out.push(b'\n');
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let sealed: Sealed<'_> =
            serde_json::from_slice(bytes).map_err(|error| format!("not a valid manifest: {error}"))?;
        let text = sealed.manifest.get();
        if hex::encode(Sha256::digest(text.as_bytes())) != sealed.sha256 {
            return Err("the manifest is damaged: checksum mismatch".into());
        }
        #[derive(Deserialize)]
        struct Version {
            format: String,
        }
        let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if ![FORMAT, WITH_PIECES].contains(&version.format.as_str()) {
            return Err(format!(
                "it has the format “{}”, but this program reads “{FORMAT}” and “{WITH_PIECES}”; use the version that wrote it",
                version.format
            ));
        }
        let manifest: Manifest =
            serde_json::from_str(text).map_err(|error| format!("cannot read the manifest: {error}"))?;
        match manifest.foreign() {
            None => Ok(manifest),
            Some(what) => Err(format!("Sealog did not write this manifest: {what}")),
        }
    }

    /// What this program never writes. The digest of a manifest says that it is whole, not who made it: its
    /// names become paths, and its numbers sizes, of whoever restores it.
    fn foreign(&self) -> Option<String> {
        let is_digest = |text: &str| unhex(text).is_some_and(|bytes| bytes.len() == DIGEST_BYTES);
        let (mut modes, mut names) = (BTreeSet::new(), BTreeSet::new());
        for log in &self.logs {
            if head_text::mode(&log.mode).is_none() || !modes.insert(log.mode.as_str()) {
                return Some(format!("it has a log {:?}", log.mode));
            }
            // Whose log it is decides: of a live one nothing is ever dropped, and its first segment is the
            // first.
            if log.mode != Mode::Test.as_str() && log.dropped_through > 0 {
                return Some(format!("it has a {} log that begins behind {}", log.mode, log.dropped_through));
            }
            let mut before = log.dropped_through;
            for SegmentText { number, salt, bytes, sha256 } in &log.segments {
                let has_salt = unhex(salt).is_some_and(|salt| salt.len() == SALT_BYTES);
                if *number <= before || !has_salt || !is_digest(sha256) || *bytes > SEGMENT_BYTES_MAX {
                    return Some(format!("it has a segment {number} {salt:?} with {bytes} bytes"));
                }
                before = *number;
            }
        }
        for FileText { name, bytes, sha256, pieces } in &self.files {
            let is_known = [CONTROL, INDEX_SALT, STORE_LOG].contains(&name.as_str())
                || *name == dropped_name(Mode::Test.as_str());
            let are_whole = pieces.is_empty()
                || pieces.iter().all(|piece| is_digest(&piece.sha256))
                    && sum(pieces.iter().map(|piece| piece.bytes)) == *bytes;
            let is_possible = are_whole && is_digest(sha256) && *bytes <= FILE_BYTES_MAX;
            if !is_known || !names.insert(name.as_str()) || !is_possible {
                return Some(format!("it has a file {name:?} {sha256:?} with {bytes} bytes"));
            }
        }
        let mut heads = self.heads.iter().chain(&self.lost);
        let unreal = heads.find(|head| head.chain_seq > CHAIN_SEQ_MAX)?;
        Some(format!("it has an event {}", unreal.chain_seq))
    }

    pub(super) fn heads(&self) -> Result<BTreeMap<ChainId, Head>, String> {
        head_text::parse_all(&self.heads)
    }

    pub(super) fn lost(&self) -> Result<BTreeMap<ChainId, Head>, String> {
        head_text::parse_all(&self.lost)
    }

    pub(super) fn log(&self, mode: Mode) -> Option<&LogText> {
        self.logs.iter().find(|log| log.mode == mode.as_str())
    }

    pub(super) fn file(&self, name: &str) -> Option<&FileText> {
        self.files.iter().find(|file| file.name == name)
    }

    /// What a restore would write.
    pub(super) fn bytes(&self) -> u64 {
        let segments = self.logs.iter().flat_map(|log| &log.segments).map(|segment| segment.bytes);
        sum(segments.chain(self.files.iter().map(|file| file.bytes)))
    }

    pub(super) fn events(&self) -> u64 {
        sum(self.heads.iter().map(|head| head.chain_seq))
    }
}

/// Of numbers that a manifest says, which may be anything.
fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// A replica comes to a million of them within two weeks: the order is that of [`number_of`], not of the
/// alphabet.
fn name(number: u64, now_ms: u64) -> String {
    let time: String = iso_ms(now_ms).chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let seconds = time.split('.').next().unwrap_or_default();
    format!("{number:06}-{seconds}Z")
}

/// The number in the name of a backup.
pub(super) fn number_of(id: &str) -> u64 {
    id.split('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The file that says what was dropped of a log: its path in the data directory.
pub(super) fn dropped_name(mode: &str) -> String {
    format!("{mode}/dropped")
}

/// A directory has copies of one store only.
pub(super) fn refuse_other_store(known: &[Manifest], id: &str) -> Result<(), String> {
    match known.iter().find(|manifest| manifest.store.id != id) {
        None => Ok(()),
        Some(other) => Err(format!(
            "the directory has backups of another store ({} {}), but this store is {id}; use another directory",
            other.store.kind, other.store.id
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(bytes: u64, byte: u8) -> PieceText {
        PieceText { bytes, sha256: hex::encode([byte; DIGEST_BYTES]) }
    }

    fn sound() -> Manifest {
        let store = StoreText { kind: EMBEDDED.into(), format: "f".into(), id: "00".into() };
        let mut manifest = Manifest::after(&[], store, 1).unwrap();
        let sha256 = hex::encode([7; DIGEST_BYTES]);
        let segment = |number| SegmentText {
            number,
            salt: hex::encode([1; SALT_BYTES]),
            bytes: SEGMENT_BYTES_MAX,
            sha256: sha256.clone(),
        };
        manifest.logs.push(LogText {
            mode: "live".into(),
            commit: 1,
            dropped_through: 0,
            unproven_to: None,
            segments: vec![segment(1), segment(3)],
            missing: vec![2],
        });
        for name in [CONTROL, INDEX_SALT, "test/dropped", STORE_LOG] {
            let (name, sha256) = (name.into(), sha256.clone());
            manifest.files.push(FileText { name, bytes: 3, sha256, pieces: Vec::new() });
        }
        let pieces = [(1, 7), (2, 8)].map(|(bytes, byte)| piece(bytes, byte));
        manifest.files[0].pieces = pieces.into();
        manifest
    }

    #[test]
    fn a_manifest_whose_names_lead_elsewhere_or_whose_numbers_lie_is_refused_though_its_digest_is_right() {
        let changes: [fn(&mut Manifest); 20] = [
            |manifest| manifest.files[0].pieces[1].sha256 = "../backups/000001".into(),
            |manifest| manifest.files[0].pieces[1].bytes = 3,
            |manifest| manifest.files[0].pieces[1].bytes = u64::MAX,
            |manifest| manifest.files[0].name = "../../etc/cron.d/job".into(),
            |manifest| manifest.files[0].name = "/etc/cron.d/job".into(),
            |manifest| manifest.files[0].name = "live/00000001.log".into(),
            |manifest| manifest.files[1].name = CONTROL.into(),
            |manifest| manifest.files[0].sha256 = "../backups/000001".into(),
            |manifest| manifest.files[0].sha256 = hex::encode([0xab; DIGEST_BYTES]).to_uppercase(),
            |manifest| manifest.files[0].bytes = u64::MAX,
            |manifest| manifest.logs[0].mode = "..".into(),
            |manifest| manifest.logs.push(manifest.logs[0].clone()),
            |manifest| manifest.logs[0].segments[0].salt = "/../../../x".into(),
            |manifest| manifest.logs[0].segments[0].sha256 = String::new(),
            |manifest| manifest.logs[0].segments[1].bytes = SEGMENT_BYTES_MAX + 1,
            |manifest| manifest.logs[0].segments[1].number = 1,
            |manifest| manifest.logs[0].dropped_through = 1,
            |manifest| {
                manifest.logs[0].dropped_through = 1;
                manifest.logs[0].segments.remove(0);
            },
            |manifest| manifest.files[2].name = "live/dropped".into(),
            |manifest| {
                let (log_id, hash) = (String::new(), String::new());
                let (tenant_id, project_id, mode) = (String::new(), String::new(), String::new());
                let chain_seq = CHAIN_SEQ_MAX + 1;
                manifest.lost.push(HeadText { tenant_id, project_id, mode, chain_seq, log_id, hash });
            },
        ];
        assert_eq!(Manifest::decode(&sound().encode()), Ok(sound()));
        for (at, change) in changes.into_iter().enumerate() {
            let mut manifest = sound();
            change(&mut manifest);
            let refused = Manifest::decode(&manifest.encode());
            assert!(refused.is_err_and(|problem| problem.contains("Sealog did not write")), "change {at}");
        }
    }

    #[test]
    fn a_manifest_reads_back_and_any_changed_byte_is_noticed() {
        let manifest = sound();
        let bytes = manifest.encode();
        assert_eq!(Manifest::decode(&bytes), Ok(manifest));
        // The line feed at the end is not part of it.
        for at in 0..bytes.len() - 1 {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Manifest::decode(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_name_of_a_backup_has_its_number_however_large() {
        assert_eq!(name(7, 1_700_000_000_123), "000007-20231114T221320Z");
        for number in [0, 7, 999_999, 1_000_000, u64::MAX] {
            assert_eq!(number_of(&name(number, 1_700_000_000_123)), number);
        }
        assert_eq!(number_of("x"), 0);
    }
}
