//! The store log: for anyone, without a key. Only what a signed checkpoint covers is given out.

use hyper::StatusCode;
use sealog_core::query::{self, EntryInTree, Growth};
use sealog_engine::trust_log::{LogKey, StoreLog, role_name};
use serde_json::{Value, json};

use super::published::{Published, bytes, hashes, kept_for, not_found, parse_tile};
use crate::respond::{self, Answer, Failure};

/// Of what may change with the next snapshot.
const CHANGES_SOON: &str = "max-age=2";
/// Of tiles: no tree ever changes what it has.
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

pub(super) async fn checkpoint(published: &Published<'_>, query: &str) -> Answer {
    let at = query::parse_at(query)?;
    let found = published.read(move |log| match at {
        None => log.newest(),
        Some(index) => log.checkpoint_at(index),
    });
    let signed = found.await?.ok_or_else(|| match at {
        None => not_found("The store log has no signed checkpoint."),
        Some(_) => not_found("No signed checkpoint has an entry with this index."),
    })?;
    let response = respond::with_type(StatusCode::OK, "text/plain; charset=utf-8", signed.note);
    Ok(kept_for(response, CHANGES_SOON))
}

pub(super) async fn tile(published: &Published<'_>, path: &str) -> Answer {
    let tile = parse_tile(path)?;
    let found = published.read(move |log| log.tile(tile)).await?;
    let found = found.ok_or_else(|| not_found("No signed tree has this tile in this width."))?;
    Ok(kept_for(bytes(found), IMMUTABLE))
}

/// All keys that the log has named. What a verifier believes has to reach him on another way: this is for
/// comparison.
pub(super) async fn keys(published: &Published<'_>) -> Answer {
    let (place, keys) = (published.place().await?, published.read(StoreLog::keys).await?);
    let keys: Vec<Value> = keys.iter().map(key).collect();
    let body = json!({ "origin": place.origin, "keys": keys, "policy": null });
    Ok(kept_for(respond::json(StatusCode::OK, body.to_string()), CHANGES_SOON))
}

fn key(LogKey { role, key, index, retired, .. }: &LogKey) -> Value {
    json!({
        "vkey": key.to_string(),
        "role": role_name(*role),
        "index": index,
        "state": if retired.is_some() { "retired" } else { "active" },
        "retired_index": retired.map(|(index, _)| index),
    })
}

pub(super) async fn proof(published: &Published<'_>, query: &str) -> Answer {
    let EntryInTree { index, size } = EntryInTree::parse(query)?;
    let path = published.read(move |log| log.inclusion(index, size)).await?;
    let path = path.ok_or_else(unsigned)?;
    let body = json!({ "index": index, "size": size, "path": hashes(&path) });
    Ok(respond::json(StatusCode::OK, body.to_string()))
}

pub(super) async fn consistency(published: &Published<'_>, query: &str) -> Answer {
    let Growth { from, to } = Growth::parse(query)?;
    let path = published.read(move |log| log.consistency(from, to)).await?;
    let path = path.ok_or_else(unsigned)?;
    let body = json!({ "from": from, "to": to, "path": hashes(&path) });
    Ok(respond::json(StatusCode::OK, body.to_string()))
}

fn unsigned() -> Failure {
    not_found("No signed tree has this size.")
}
