//! The manifest of a backup: what it consists of, and where every chain ended. Written last, so that a backup without one is none.

use std::collections::BTreeMap;

use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::head_text::{self, HeadText};

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

/// The manifest with its own digest.
#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    sha256: String,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

impl Manifest {
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

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_reads_back_and_any_changed_byte_is_noticed() {
        let manifest = Manifest {
            format: FORMAT.into(),
            id: "000001-20260101T000000Z".into(),
            number: 1,
            made_at: "2026-01-01T00:00:00.000Z".into(),
            made_at_ms: 1,
            sealog_version: "0".into(),
            store: StoreText { kind: EMBEDDED.into(), format: "f".into(), id: "00".into() },
            logs: Vec::new(),
            files: vec![FileText { name: "control.db".into(), bytes: 3, sha256: "ab".into() }],
            heads: Vec::new(),
            lost: Vec::new(),
            faults: Vec::new(),
        };
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
    fn hex_reads_back() {
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!((unhex("0"), unhex("0g")), (None, None));
    }
}
