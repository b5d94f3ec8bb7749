//! Proofs for a chain: of its head, of one event, of events in a row, each up to a signed checkpoint of the
//! store log.

use hyper::StatusCode;
use sealog_core::hex;
use sealog_core::id::{Hash, Ulid};
use sealog_core::query::{HeadQuery, NamedEvent, ProofFormat, ProofQuery, TreeRange};
use sealog_core::reject::{Code, Reject};
use sealog_engine::trust_log::{AtSnapshot, Found, HeadProof, Signed};
use sealog_trust::heads::Blind;
use sealog_trust::note::Note;
use sealog_trust::proof::{self, EventProof, HeadPath, Private, TlogProof};
use sealog_trust::salt::SaltKey;
use sealog_trust::text::base64;
use serde_json::{Value, json};

use super::chain::{Chain, sealed_leaf};
use super::published::{hashes, not_found};
use crate::limits::Counted;
use crate::respond::{self, Answer, Failure};

/// Old snapshots that a tenant may ask for in a second.
const SNAPSHOTS_PER_S: u32 = 1;

/// A snapshot, what it says of a chain, and the way from its entry to a signed checkpoint.
struct Snapshot {
    head: HeadProof,
    signed: Signed,
    path: Vec<Hash>,
}

/// The head of a chain in a snapshot that has it.
struct Present {
    size: u64,
    root: Hash,
    blind: Blind,
    path: Vec<Hash>,
}

/// `GET /tlog/v1/chain/head`.
pub(super) async fn head(of: &Chain<'_>, query: &str) -> Answer {
    let HeadQuery { at, format } = HeadQuery::parse(query)?;
    let now_ms = of.published.request_id.received_ms();
    // An old one builds a trie of all chains.
    let counted = Counted::Snapshots(of.chain.tenant_id);
    if at.is_some() && !of.app.limits.admit(counted, SNAPSHOTS_PER_S, now_ms) {
        return Err(Reject::RateLimit.into());
    }
    let Snapshot { head, signed, path } = snapshot(of, at).await?;
    let HeadProof { index, time_ms, trie_root, found } = head;
    let store = store_json(&signed, &path);
    let mut heads = json!({ "index": index, "time": time_ms, "root": base64(&trie_root.0) });
    let (present, chain) = match found {
        Found::Present { size, root, blind, path: trie } => {
            if format == ProofFormat::TlogProof {
                let head = HeadPath { time_ms, blind, path: trie };
                let extra = proof::HeadProof { tag: of.tag, size, root, head }.to_string();
                return file(of, extra, index, path, &signed);
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
    let seq = event.sealed.chain_seq;
    let (snapshot, present) = present(of, seq).await?;
    let trees = &of.published.trust.trees;
    let path = of.of_tree(trees.inclusion(of.chain, seq, present.size).await).await?;
    let leaf = of.of_tree(trees.leaves(of.chain, seq, seq).await).await?;
    let keys = of.known_root_keys().await?;
    let salt = keys.at(seq).and_then(|(salts, _)| salts.salt(seq));
    let private = sealed_leaf(&event, &keys).map(|(private, _)| private);
    let private = private.ok_or_else(|| of.failed(&format_args!("event {seq} has no leaf")))?;
    let salt = salt.filter(|_| of.reads_events);
    if format == ProofFormat::TlogProof {
        let Present { size, blind, path: trie, .. } = present;
        let head = HeadPath { time_ms: snapshot.head.time_ms, blind, path: trie };
        let private = salt.map_or(Private::Commitment(private), Private::Salt);
        let extra = EventProof { mode: of.chain.mode, chain_seq: seq, private, size, path, head }.to_string();
        return file(of, extra, snapshot.head.index, snapshot.path, &snapshot.signed);
    }
    let body = json!({
        "log_id": event.sealed.log_id.to_string(),
        "chain_seq": seq,
        "mode": of.chain.mode.as_str(),
        "tag": of.tag.to_string(),
        "salt": salt.map(|salt| hex::encode(&salt.0)),
        "private": private.to_string(),
        "leaf": leaf.first().map(|leaf| base64(&leaf.0)),
        "chain": chain_json(&present, &path),
        "heads": heads_json(&snapshot.head, &present),
        "store": store_json(&snapshot.signed, &snapshot.path),
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
        "store": store_json(&snapshot.signed, &snapshot.path),
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
    let snapshot = match snapshot(of, None).await {
        Err(failure) if failure.code() == Code::TlogNotFound => None,
        snapshot => Some(snapshot?),
    };
    let found = snapshot.and_then(|snapshot| match &snapshot.head.found {
        Found::Present { size, root, blind, path } if *size >= seq => {
            let present = Present { size: *size, root: *root, blind: *blind, path: path.clone() };
            Some((snapshot, present))
        }
        _ => None,
    });
    match found {
        Some(found) => Ok(found),
        None if of.acknowledged().await? < seq => Err(not_found("The chain has no such event.")),
        None => Err(of.not_yet().await),
    }
}

async fn snapshot(of: &Chain<'_>, at: Option<u64>) -> Result<Snapshot, Failure> {
    let tag = of.tag;
    let read = of.published.read(move |log| {
        let head = match log.head_proof(tag, at)? {
            AtSnapshot::Is(head) => head,
            AtSnapshot::Unknown => return Ok(AtSnapshot::Unknown),
            AtSnapshot::Pruned { before, after } => return Ok(AtSnapshot::Pruned { before, after }),
        };
        let Some(signed) = log.newest()? else { return Ok(AtSnapshot::Unknown) };
        let path = log.inclusion(head.index, signed.tree.size)?;
        Ok(path.map_or(AtSnapshot::Unknown, |path| AtSnapshot::Is(Snapshot { head, signed, path })))
    });
    match read.await? {
        AtSnapshot::Is(snapshot) => Ok(snapshot),
        AtSnapshot::Unknown => Err(not_found("No signed tree has a snapshot at this index.")),
        AtSnapshot::Pruned { before, after } => {
            let kept: Vec<String> = [before, after].iter().flatten().map(u64::to_string).collect();
            let message =
                format!("That snapshot is not kept; the nearest that are kept: {}.", kept.join(", "));
            Err(Failure::new(Code::TlogPruned, message))
        }
    }
}

/// A file of C2SP `tlog-proof`.
fn file(of: &Chain<'_>, extra: String, index: u64, path: Vec<Hash>, signed: &Signed) -> Answer {
    let checkpoint = Note::parse(signed.note.as_bytes()).map_err(|error| of.failed(&error))?;
    let file = TlogProof { extra: Some(extra.into_bytes()), index, path, checkpoint }.to_string();
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

fn store_json(signed: &Signed, path: &[Hash]) -> Value {
    json!({
        "size": signed.tree.size,
        "root": base64(&signed.tree.root.0),
        "path": hashes(path),
        "checkpoint": signed.note,
    })
}
