//! Proofs for a chain: of its head, of one event, of events in a row, each up to a signed checkpoint of the
//! store log.

use hyper::StatusCode;
use sealog_core::hex;
use sealog_core::id::{Hash, Ulid};
use sealog_core::query::{HeadQuery, NamedEvent, ProofFormat, ProofQuery, TreeRange};
use sealog_core::reject::Reject;
use sealog_engine::proofs::{NotProven, Present, Snapshot};
use sealog_engine::trust_log::{Found, HeadProof};
use sealog_trust::proof::{self, HeadPath};
use sealog_trust::salt::SaltKey;
use sealog_trust::text::base64;
use serde_json::{Value, json};

use super::chain::Chain;
use super::published::{hashes, not_found};
use crate::limits::Counted;
use crate::respond::{self, Answer, Failure};

/// Old snapshots that a tenant may ask for in a second.
const SNAPSHOTS_PER_S: u32 = 1;

/// `GET /tlog/v1/chain/head`.
pub(super) async fn head(of: &Chain<'_>, query: &str) -> Answer {
    let HeadQuery { at, format } = HeadQuery::parse(query)?;
    let now_ms = of.published.request_id.received_ms();
    // An old one builds a trie of all chains.
    let counted = Counted::Snapshots(of.chain.tenant_id);
    if at.is_some() && !of.app.limits.admit(counted, SNAPSHOTS_PER_S, now_ms) {
        return Err(Reject::RateLimit.into());
    }
    let snapshot = of.published.trust.snapshot(of.published.payer, of.tag, at).await;
    let snapshot = of.proven(snapshot).await?;
    let HeadProof { index, time_ms, trie_root, found } = snapshot.head.clone();
    let store = store_json(&snapshot);
    let mut heads = json!({ "index": index, "time": time_ms, "root": base64(&trie_root.0) });
    let (present, chain) = match found {
        Found::Present { size, root, blind, path: trie } => {
            if format == ProofFormat::TlogProof {
                let head = HeadPath { time_ms, blind, path: trie };
                let extra = proof::HeadProof { tag: of.tag, size, root, head }.to_string();
                return file(of, of.proven(snapshot.file(extra)).await?);
            }
            heads["blind"] = hex::encode(&blind.0).into();
            heads["path"] = hashes(&trie).into();
            (true, json!({ "size": size, "root": base64(&root.0) }))
        }
        Found::Absent { .. } if format == ProofFormat::TlogProof => {
            return Err(not_found("That snapshot has no head of the chain; format=json proves it."));
        }
        Found::Absent { path: trie, foreign } => {
            heads["path"] = hashes(&trie).into();
            heads["foreign"] = foreign.map_or(
                Value::Null,
                |(tag, hidden)| json!({ "tag": tag.to_string(), "hidden": base64(&hidden.0) }),
            );
            (false, Value::Null)
        }
    };
    let body = json!({
        "present": present,
        "mode": of.chain.mode.as_str(),
        "tag": of.tag.to_string(),
        "chain": chain,
        "heads": heads,
        "store": store,
    });
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

/// `GET /tlog/v1/chain/proof`.
pub(super) async fn event(of: &Chain<'_>, query: &str) -> Answer {
    let ProofQuery { event, format } = ProofQuery::parse(query)?;
    let missing = || not_found("The chain has no such event.");
    let event = match event {
        NamedEvent::Seq(seq) => of.event(seq).await?,
        NamedEvent::LogId(log_id) => {
            // A foreign id and one that is none: one answer, by one path.
            let found = of.app.service.store.get(of.chain, log_id.unwrap_or(Ulid(0))).await;
            found.map_err(|error| of.failed(&error))?.map(Box::new)
        }
    };
    let event = event.ok_or_else(missing)?;
    let proven = match of.published.trust.prove(of.published.payer, of.chain, &event).await {
        Err(NotProven::NotYet) if of.acknowledged().await? < event.sealed.chain_seq => return Err(missing()),
        proven => of.proven(proven).await?,
    };
    if format == ProofFormat::TlogProof {
        return file(of, of.proven(proven.file(of.reads_events)).await?);
    }
    let salt = proven.salt.as_ref().filter(|_| of.reads_events);
    let body = json!({
        "log_id": event.sealed.log_id.to_string(),
        "chain_seq": proven.seq,
        "mode": of.chain.mode.as_str(),
        "tag": of.tag.to_string(),
        "salt": salt.map(|salt| hex::encode(&salt.0)),
        "private": proven.private.to_string(),
        "leaf": base64(&proven.leaf.0),
        "chain": chain_json(&proven.head, &proven.path),
        "heads": heads_json(&proven.snapshot.head, &proven.head),
        "store": store_json(&proven.snapshot),
    });
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

/// `GET /tlog/v1/chain/range`.
pub(super) async fn range(of: &Chain<'_>, query: &str) -> Answer {
    let TreeRange { from, to } = TreeRange::parse(query)?;
    let (snapshot, present) = present(of, to.unwrap_or(from)).await?;
    let to = to.unwrap_or(present.size);
    let path = of.published.trust.trees.range_proof(of.chain, from, to, present.size).await;
    let path = of.of_tree(path).await?;
    let mut body = json!({
        "from_seq": from,
        "to_seq": to,
        "mode": of.chain.mode.as_str(),
        "tag": of.tag.to_string(),
        "chain": chain_json(&present, &path),
        "heads": heads_json(&snapshot.head, &present),
        "store": store_json(&snapshot),
        "salts": null,
    });
    if of.reads_events {
        let keys = of.known_root_keys().await?;
        let mut lines: Vec<String> = Vec::new();
        let mut next = from;
        // One root key, and one more for each accepted loss.
        while next <= to {
            let Some((salts, seqs)) = keys.at(next) else { break };
            let last = to.min(*seqs.end());
            lines.extend(salts.cover(next..=last).keys().iter().map(SaltKey::to_line));
            next = last + 1;
        }
        body["salts"] = lines.into();
    }
    Ok(of.private(respond::json(StatusCode::OK, body.to_string()), "no-store"))
}

/// The newest snapshot, whose head of the chain has the event. Otherwise the event is not there, or not yet.
async fn present(of: &Chain<'_>, seq: u64) -> Result<(Snapshot, Present), Failure> {
    match of.published.trust.snapshot_with(of.published.payer, of.tag, seq).await {
        Err(NotProven::NotYet) if of.acknowledged().await? < seq => {
            Err(not_found("The chain has no such event."))
        }
        present => of.proven(present).await,
    }
}

/// A file of C2SP `tlog-proof`.
fn file(of: &Chain<'_>, file: String) -> Answer {
    Ok(of.private(respond::with_type(StatusCode::OK, "text/plain; charset=utf-8", file), "no-store"))
}

fn chain_json(present: &Present, path: &[Hash]) -> Value {
    json!({ "size": present.size, "root": base64(&present.root.0), "path": hashes(path) })
}

fn heads_json(head: &HeadProof, present: &Present) -> Value {
    json!({
        "index": head.index,
        "time": head.time_ms,
        "root": base64(&head.trie_root.0),
        "blind": hex::encode(&present.blind.0),
        "path": hashes(&present.path),
    })
}

fn store_json(snapshot: &Snapshot) -> Value {
    json!({
        "size": snapshot.signed.tree.size,
        "root": base64(&snapshot.signed.tree.root.0),
        "path": hashes(&snapshot.path),
        "checkpoint": snapshot.signed.note,
    })
}
