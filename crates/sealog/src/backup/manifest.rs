//! The manifest of a backup: what it consists of, and where every chain ended. Written last, so that a backup without one is none.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_core::time::iso_ms;
use sealog_store::embedded::EmbeddedStore;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::head_text::{self, HeadText};
use super::hex::hex;
use super::moment::{LogMoment, Moment};

pub(super) const FORMAT: &str = "sealog backup 1";
pub(super) const EMBEDDED: &str = "embedded";
pub(super) const POSTGRESQL: &str = "postgresql";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    pub format: String,
    /// Its number and the time, so that the names of manifests are in the order of their backups.
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
    /// Also its name in the backup.
    pub sha256: String,
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
    format!("chain {tenant_id}/{project_id}/{mode} is known to have had event {chain_seq}, and has lost it")
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
            format: FORMAT.into(),
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
        let sha256 = hex(&Sha256::digest(text.as_bytes()));
        let manifest = RawValue::from_string(text).expect("it was just written");
        let mut out = serde_json::to_vec(&Sealed { sha256, manifest: &manifest }).expect("texts");
        out.push(b'\n');
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Manifest, String> {
        let sealed: Sealed<'_> =
            serde_json::from_slice(bytes).map_err(|error| format!("this is no manifest: {error}"))?;
        let text = sealed.manifest.get();
        if hex(&Sha256::digest(text.as_bytes())) != sealed.sha256 {
            return Err("the manifest is damaged: its digest is not its own".into());
        }
        #[derive(Deserialize)]
        struct Version {
            format: String,
        }
        let version: Version = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if version.format != FORMAT {
            return Err(format!("it has the format “{}”, and this program reads “{FORMAT}”", version.format));
        }
        serde_json::from_str(text).map_err(|error| format!("the manifest cannot be read: {error}"))
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
        let segments: u64 = self.logs.iter().flat_map(|log| &log.segments).map(|segment| segment.bytes).sum();
        segments + self.files.iter().map(|file| file.bytes).sum::<u64>()
    }

    pub(super) fn events(&self) -> u64 {
        self.heads.iter().map(|head| head.chain_seq).sum()
    }
}

/// Names of backups are in the order of their numbers.
pub(super) fn name(number: u64, now_ms: u64) -> String {
    let time: String = iso_ms(now_ms).chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let seconds = time.split('.').next().unwrap_or_default();
    format!("{number:06}-{seconds}Z")
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
            "the directory has backups of another store ({} {}), and this one is {id}; use another directory",
            other.store.kind, other.store.id
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_any_changed_byte_is_noticed() {
        let store = StoreText { kind: EMBEDDED.into(), format: "f".into(), id: "00".into() };
        let mut manifest = Manifest::after(&[], store, 1).unwrap();
        manifest.files.push(FileText { name: "control.db".into(), bytes: 3, sha256: "ab".into() });
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
    fn names_are_in_the_order_of_backups() {
        assert_eq!(name(7, 1_700_000_000_123), "000007-20231114T221320Z");
    }
}
