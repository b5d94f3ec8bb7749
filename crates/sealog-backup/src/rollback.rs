//! Events that a restored store must have: those that a newer backup, a receipt or an old data directory
//! names.
//!
//! All of them are compared, and not only the furthest of a chain: where a chain was rolled back and went on,
//! its furthest event is there, and an earlier one that was acknowledged before is another one by now.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sealog_cli::exit::Failure;
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Hash, Mode, Ulid};
use sealog_store::embedded::backup::Wanted;
use serde::Deserialize;

use super::head_text::HeadText;
use super::manifest::{Manifest, number_of};
use super::old_data;
use super::place::{Found, Place};

/// Every event that is known to have been acknowledged.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// By chain, with what names each.
    heads: BTreeMap<ChainId, Vec<(Head, Arc<str>)>>,
    /// Of events whose chain is not named.
    receipts: Vec<Receipt>,
    /// What may have been acknowledged beside these, in words for the operator.
    not_known: Vec<String>,
}

/// What a client has of an event: the answer to its request, or the event itself.
#[derive(Clone, Debug, Deserialize)]
struct Receipt {
    log_id: String,
    chain_seq: Option<u64>,
    hash: Option<String>,
    tenant_id: Option<String>,
    project_id: Option<String>,
    mode: Option<String>,
}

/// A head that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// Nothing for a receipt that does not name it.
    pub chain: Option<ChainId>,
    pub known: Head,
    /// Where the chain ends.
    pub end_seq: u64,
    pub by: String,
}

impl Behind {
    pub(super) fn say(&self) -> String {
        let Behind { chain, known, end_seq, by } = self;
        match chain {
            Some(chain) if *end_seq < known.chain_seq => format!(
                "chain {chain}: events {} to {} would be lost ({by} has event {} with hash {})",
                end_seq + 1,
                known.chain_seq,
                known.chain_seq,
                known.hash
            ),
            Some(chain) => format!(
                "chain {chain}: event {} differs ({by} has it with hash {})",
                known.chain_seq, known.hash
            ),
            None => format!("event {} would be lost ({by})", known.log_id),
        }
    }
}

impl Known {
    fn note(&mut self, chain: ChainId, head: Head, by: &Arc<str>) {
        let known = self.heads.entry(chain).or_default();
        // A chain that stands still has the same head in every backup.
        if head.chain_seq > 0 && known.last().is_none_or(|(last, _)| *last != head) {
            known.push((head, Arc::clone(by)));
        }
    }

    /// Of the backups that were made after this one, of the same store. Those that cannot be read, and why:
    /// what they had is not known.
    pub(super) fn add_newer(&mut self, place: &Place, than: &Manifest) -> Result<Vec<String>, String> {
        let mut unread = Vec::new();
        for Found { id, manifest } in place.list()? {
            match manifest {
                Ok(newer) if newer.number > than.number && newer.store.id == than.store.id => {
                    self.add_manifest(&newer)?;
                }
                Err(problem) if number_of(&id) >= than.number => {
                    unread.push(format!("backup {id}: {problem}"))
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(unread)
    }

    pub(super) fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), String> {
        let by = format!("backup {}", manifest.id).into();
        for (chain, head) in manifest.heads()? {
            self.note(chain, head, &by);
        }
        Ok(())
    }

    /// Of a data directory, or of what is left of one. Whether there was a log or a high-water mark.
    pub(super) fn add_old_data(&mut self, data_dir: &Path) -> Result<bool, Failure> {
        let Some(old) = old_data::read(data_dir)? else { return Ok(false) };
        for (chain, head, by) in old.heads {
            self.note(chain, head, &by);
        }
        old.not_known.into_iter().for_each(|unsure| self.add_not_known(unsure));
        Ok(true)
    }

    pub(super) fn add_not_known(&mut self, unsure: String) {
        eprintln!("sealog: {unsure}");
        self.not_known.push(unsure);
    }

    /// What may have been acknowledged beside what is known, in words for the operator.
    pub(super) fn not_known(&self) -> &[String] {
        &self.not_known
    }

    /// A file with the answer of a request, several of them, or events.
    pub(super) fn add_receipts(&mut self, path: &Path) -> Result<(), String> {
        let failed = |why: String| {
            format!(
                "{}: {why}; a receipt is a JSON object with log_id, chain_seq and hash, one per line",
                path.display()
            )
        };
        let bytes = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        if bytes.trim_ascii().is_empty() {
            return Err(failed("it is empty".into()));
        }
        let by = format!("the receipt {}", path.display()).into();
        for receipt in serde_json::Deserializer::from_slice(&bytes).into_iter::<Receipt>() {
            let receipt = receipt.map_err(|error| failed(error.to_string()))?;
            if Ulid::parse(&receipt.log_id).is_none() {
                return Err(failed(format!("{} is not a log_id", receipt.log_id)));
            }
            match receipt.head() {
                Some((chain, head)) => self.note(chain, head, &by),
                None => self.receipts.push(receipt),
            }
        }
        Ok(())
    }

    /// Events to look for.
    pub(super) fn wanted(&self) -> Wanted {
        let ids = self.heads().map(|(_, head, _)| head.log_id).chain(self.unplaced()).collect();
        Wanted { ids, ..Wanted::default() }
    }

    /// Of receipts that do not name their chain.
    pub(super) fn unplaced(&self) -> impl Iterator<Item = Ulid> {
        self.receipts.iter().filter_map(|receipt| Ulid::parse(&receipt.log_id))
    }

    pub(super) fn heads(&self) -> impl Iterator<Item = (ChainId, Head, &str)> {
        self.heads
            .iter()
            .flat_map(|(chain, known)| known.iter().map(move |(head, by)| (*chain, *head, &**by)))
    }

    /// What is known and not there, by chain and `chain_seq`. Takes the heads of the chains, the wanted
    /// events that were found, and the last events that were dropped for their age.
    pub(super) fn behind(
        &self,
        heads: &BTreeMap<ChainId, Head>,
        found: &BTreeMap<Ulid, (ChainId, Head)>,
        dropped: &BTreeMap<ChainId, Head>,
    ) -> Vec<Behind> {
        let mut behind = Vec::new();
        for (chain, known) in &self.heads {
            let (end, dropped) = (heads.get(chain), dropped.get(chain).map_or(0, |head| head.chain_seq));
            let end_seq = end.map_or(0, |head| head.chain_seq);
            let is_missing = |(head, _): &&(Head, Arc<str>)| {
                head.chain_seq > dropped
                    && end != Some(head)
                    && found.get(&head.log_id) != Some(&(*chain, *head))
            };
            let mut missing: Vec<_> = known.iter().filter(is_missing).collect();
            missing.sort_by_key(|(head, _)| (head.chain_seq, head.log_id));
            missing.dedup_by_key(|(head, _)| *head);
            // Behind the end of the chain the furthest stands for all: those before it are lost with it.
            let furthest = missing.last().map_or(0, |(head, _)| head.chain_seq);
            for (head, by) in missing {
                if head.chain_seq <= end_seq || head.chain_seq == furthest {
                    let by = by.to_string();
                    behind.push(Behind { chain: Some(*chain), known: *head, end_seq, by });
                }
            }
        }
        for receipt in &self.receipts {
            let Some(log_id) = Ulid::parse(&receipt.log_id) else { continue };
            let there = found.get(&log_id).filter(|(_, head)| {
                receipt.chain_seq.is_none_or(|seq| seq == head.chain_seq)
                    && receipt.hash.as_deref().is_none_or(|hash| hash == head.hash.to_string())
            });
            if there.is_none() {
                let hash = receipt.hash.as_deref().and_then(Hash::parse).unwrap_or(Hash::ZERO);
                let known = Head { chain_seq: receipt.chain_seq.unwrap_or(0), log_id, hash };
                behind.push(Behind {
                    chain: None,
                    known,
                    end_seq: 0,
                    by: format!("the receipt of {log_id}"),
                });
            }
        }
        behind
    }
}

impl Receipt {
    /// Of one that names its chain. Events do not say their mode; one of a test chain has to.
    fn head(&self) -> Option<(ChainId, Head)> {
        let text = HeadText {
            tenant_id: self.tenant_id.clone()?,
            project_id: self.project_id.clone()?,
            mode: self.mode.clone().unwrap_or_else(|| Mode::Live.as_str().to_owned()),
            chain_seq: self.chain_seq?,
            log_id: self.log_id.clone(),
            hash: self.hash.clone()?,
        };
        text.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealog_core::id::{ProjectId, TenantId, Uuid};

    fn chain(mode: Mode) -> ChainId {
        ChainId { tenant_id: TenantId(Uuid([1; 16])), project_id: ProjectId(Uuid([2; 16])), mode }
    }

    fn head(chain_seq: u64, byte: u8) -> Head {
        Head {
            chain_seq,
            log_id: Ulid(u128::from(chain_seq) << 64 | u128::from(byte)),
            hash: Hash([byte; 32]),
        }
    }

    #[test]
    fn a_head_is_there_at_the_end_in_the_middle_or_among_what_was_dropped_and_nowhere_else() {
        let chain = chain(Mode::Test);
        let behind = |known: Head, end: Head, found: &[Head], dropped: Head| {
            let mut all = Known::default();
            all.note(chain, known, &"x".into());
            let found = found.iter().map(|head| (head.log_id, (chain, *head))).collect();
            let (heads, dropped) = (BTreeMap::from([(chain, end)]), BTreeMap::from([(chain, dropped)]));
            all.behind(&heads, &found, &dropped).len()
        };
        assert_eq!(behind(head(5, 1), head(5, 1), &[], Head::EMPTY), 0);
        assert_eq!(behind(head(5, 1), head(5, 2), &[], Head::EMPTY), 1, "another event");
        assert_eq!(behind(head(5, 1), head(4, 1), &[], Head::EMPTY), 1, "too short");
        assert_eq!(behind(head(5, 1), head(9, 1), &[head(5, 1)], Head::EMPTY), 0);
        assert_eq!(behind(head(5, 1), head(9, 1), &[], Head::EMPTY), 1, "not in the middle");
        assert_eq!(behind(head(5, 1), head(9, 1), &[], head(6, 1)), 0, "dropped");
    }

    #[test]
    fn every_known_event_of_a_chain_is_compared_and_behind_its_end_the_furthest_is_named() {
        let chain = chain(Mode::Live);
        let mut all = Known::default();
        for known in [head(9, 1), head(3, 1), head(7, 1), head(4, 2), head(4, 1), head(9, 1)] {
            all.note(chain, known, &"x".into());
        }
        let there = [head(3, 1), head(4, 1)].map(|head| (head.log_id, (chain, head))).into();
        let behind = all.behind(&BTreeMap::from([(chain, head(5, 1))]), &there, &BTreeMap::new());
        assert_eq!(behind.iter().map(|behind| behind.known).collect::<Vec<_>>(), [head(4, 2), head(9, 1)]);
    }

    #[test]
    fn a_receipt_is_an_answer_or_an_event_and_several_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("receipts");
        let (known, id) = (head(7, 3), chain(Mode::Live));
        let event = serde_json::to_string(&HeadText::new(id, known)).unwrap();
        let answer = format!(r#"{{"log_id":"{}","request_id":"req_1"}}"#, head(8, 4).log_id);
        std::fs::write(&path, format!("{event}\n{answer}\n")).unwrap();
        let mut all = Known::default();
        all.add_receipts(&path).unwrap();
        assert_eq!(all.heads().map(|(chain, head, _)| (chain, head)).collect::<Vec<_>>(), [(id, known)]);
        assert!(all.wanted().ids.contains(&head(8, 4).log_id));
        assert_eq!(all.behind(&BTreeMap::new(), &BTreeMap::new(), &BTreeMap::new()).len(), 2);
        for wrong in ["", " \n", "{", "{}", r#"{"log_id":"x"}"#, "[]"] {
            std::fs::write(&path, wrong).unwrap();
            assert!(all.add_receipts(&path).unwrap_err().contains("a receipt is"), "{wrong}");
        }
    }
}
