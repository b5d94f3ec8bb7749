//! Proofs that an event is in a signed tree: `docs/format.md` 8. The checks are those of `sealog-trust`,
//! which the auditor's program uses, too.

use std::collections::HashMap;

use sealog_core::event::StoredEvent;
use sealog_core::id::Hash;
use sealog_trust::checkpoint::Checkpoint;
use sealog_trust::merkle;
use sealog_trust::note::{KeyKind, Note, VerifierKey};
use sealog_trust::policy::Policy;
use sealog_trust::proof::{EventProof, TlogProof};
use sealog_trust::verdict::{Uncovered, uncovered};

use crate::error::Error;

/// The verdict on a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProofResult {
    pub holds: bool,
    /// One of `vectors/trust/README.md`, or `fork`: another checkpoint of the same size had another root.
    pub reason: Option<&'static str>,
    pub message: String,
}

/// Checks a proof of an event, as `GET /tlog/v1/chain/proof?format=tlog-proof` gives it, without the service.
/// Without the `vkey` of the server's log, no signature is checked.
pub fn verify_proof(event: &str, proof: &[u8], vkey: Option<&str>) -> Result<ProofResult, Error> {
    Ok(Proofs::new(vkey)?.check(event, proof))
}

/// Checks the proofs of one log. Checkpoints of one size have to agree over all of them.
pub(crate) struct Proofs {
    policy: Option<Policy>,
    /// The checkpoint whose signature was checked last: proofs share it.
    signed: Option<Note>,
    roots: HashMap<u64, Hash>,
}

struct Refused(&'static str, String);

impl Proofs {
    pub fn new(vkey: Option<&str>) -> Result<Proofs, Error> {
        let problem = "must be the log's key, NAME+ID+KEY, as `sealog trust vkey` prints it";
        let log = |vkey| VerifierKey::parse(vkey).ok().filter(|key| key.kind() == KeyKind::Note);
        let policy = match vkey {
            None => None,
            Some(vkey) => Some(Policy::of_log(log(vkey).ok_or_else(|| Error::option("vkey", problem))?)),
        };
        Ok(Proofs { policy, signed: None, roots: HashMap::new() })
    }

    pub fn has_key(&self) -> bool {
        self.policy.is_some()
    }

    pub fn check(&mut self, event: &str, proof: &[u8]) -> ProofResult {
        let refused = self.verify(event, proof).err();
        let (reason, message) = refused.map_or((None, String::new()), |why| (Some(why.0), why.1));
        ProofResult { holds: reason.is_none(), reason, message }
    }

    fn verify(&mut self, event: &str, proof: &[u8]) -> Result<(), Refused> {
        let malformed = |why: &dyn ToString| Refused("malformed", why.to_string());
        let file = TlogProof::parse(proof).map_err(|why| malformed(&why))?;
        let claim =
            EventProof::parse(file.extra.as_deref().unwrap_or_default()).map_err(|why| malformed(&why))?;
        if let Some(Uncovered::Field(name)) = uncovered(event) {
            let what = format!("neither the hash nor the proof covers the field {name:?}");
            return Err(Refused("annotations", what));
        }
        let event = StoredEvent::parse_json(event).map_err(|why| Refused("event", why))?;
        let lead = claim.lead(&event).map_err(|why| Refused(why.reason(), why.to_string()))?;
        let note = &file.checkpoint;
        let Checkpoint { size, root, .. } = Checkpoint::parse(note.text()).map_err(|why| malformed(&why))?;
        if let Some(policy) = self.policy.as_ref().filter(|_| self.signed.as_ref() != Some(note)) {
            policy.verify(note).map_err(|why| Refused(why.reason(), why.to_string()))?;
            self.signed = Some(note.clone());
        }
        merkle::verify_inclusion(
            merkle::leaf_hash(lead.entry.as_bytes()),
            file.index,
            size,
            &root,
            &file.path,
        )
        .map_err(|why| Refused("root", why.to_string()))?;
        if *self.roots.entry(size).or_insert(root) != root {
            return Err(Refused("fork", format!("another checkpoint of {size} entries had another root")));
        }
        Ok(())
    }
}
