//! What a copy of an embedded store is made of: a moment of its logs, and the control data that belongs to
//! it.
//!
//! ```text
//! t0  the control data is copied
//! t1  the logs are cut: up to here everything is durable, and never changes
//! t2  every project that the logs have events of is in the copy; otherwise once more from t0
//! ```
//! In this order nothing is lost and nothing doubled. A record for a system chain that was sealed and removed
//! before t0 is in the logs of t1. One that still waits in the copy and was sealed before t1 is found in the
//! chain when it is drained again, by its id. And t2 sees to it that the control data is not older than what
//! the events need.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use sealog_control::Control;
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, ProjectId};
use sealog_store::segments::LogCut;
use sealog_store::{Store, StoreError};
use serde_json::{Value, json};

/// How often a project may come to be between t0 and t1.
const TRIES: usize = 10;
/// Below the data directory: what is handed over to those who make copies.
pub const HANDED_OVER: &str = "backup.tmp";
/// Beneath that: the copy of the control data that replicas read.
pub const FOR_REPLICAS: &str = "replicas";
/// Likewise, of the store log.
pub const LOG_FOR_REPLICAS: &str = "replicas-log";
/// The copy of the control data, in the directory that was asked for.
pub const CONTROL_FILE: &str = "control.db";

/// A moment of a store.
#[derive(Clone, Debug)]
pub struct Moment {
    pub store_id: u64,
    pub logs: [LogCut; 2],
    /// The copy of the control data.
    pub control: PathBuf,
}

/// Takes a moment of an embedded store, with a copy of its control data in this file.
pub async fn take(
    store: &Arc<dyn Store>,
    control: &Arc<Control>,
    path: PathBuf,
) -> Result<Moment, StoreError> {
    for _ in 0..TRIES {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(StoreError::Control(format!("{}: {error}", path.display())));
            }
            _ => {}
        }
        let (copied, to) = (Arc::clone(control), path.clone());
        // It waits for the disk, which an event loop must not.
        let copy = tokio::task::spawn_blocking(move || copied.copy_to(&to));
        let known = copy.await.map_err(|_| StoreError::Closing)??;
        let Some(segments) = store.segments() else { return Err(has_other_tools()) };
        let (store_id, logs) = (segments.store_id(), segments.cut());
        let chains = store.heads().await?;
        if !is_older(control, &known, chains.iter().map(|(chain, _)| *chain)).await? {
            return Ok(Moment { store_id, logs, control: path });
        }
    }
    Err(StoreError::Control(
        "new projects were created during the copy of the control data; try again".into(),
    ))
}

/// Takes a moment of the logs alone, t1, for whoever has copied the control data; with the projects that have
/// events, for t2.
pub async fn cut(store: &Arc<dyn Store>) -> Result<(Moment, BTreeSet<ProjectId>), StoreError> {
    let Some(segments) = store.segments() else { return Err(has_other_tools()) };
    let moment = Moment { store_id: segments.store_id(), logs: segments.cut(), control: PathBuf::new() };
    let heads = store.heads().await?;
    Ok((moment, heads.iter().map(|(chain, _)| chain.project_id).collect()))
}

impl Moment {
    /// As programs read it: on the administrative socket's side, and over HTTP.
    pub fn to_json(&self) -> Value {
        let head = |(chain, head): &(ChainId, Head)| {
            json!({
                "tenant_id": chain.tenant_id.to_string(), "project_id": chain.project_id.to_string(), "mode": chain.mode.as_str(),
                "chain_seq": head.chain_seq, "log_id": head.log_id.to_string(), "hash": head.hash.to_string(),
            })
        };
        let log = |log: &LogCut| {
            let segments = log.segments.iter().map(|segment| {
                json!({ "number": segment.number, "salt": hex::encode(segment.salt), "bytes": segment.bytes })
            });
            json!({
                "mode": log.mode.as_str(),
                "commit": log.commit,
                "segments": segments.collect::<Vec<_>>(),
                "dropped_through": log.dropped_through,
                "dropped": log.dropped.as_deref().map(hex::encode),
                "lost": log.lost.iter().map(head).collect::<Vec<_>>(),
                "unproven_to": log.unproven_to,
            })
        };
        json!({
            "store_id": format!("{:016x}", self.store_id),
            "logs": self.logs.iter().map(log).collect::<Vec<_>>(),
        })
    }
}

fn has_other_tools() -> StoreError {
    StoreError::Refused("this store is a database; copy it with its own tools".into())
}

/// Whether a project has events that the control data knows and its copy does not. One that neither knows is
/// no reason to wait for it.
async fn is_older(
    control: &Control,
    known: &BTreeSet<ProjectId>,
    chains: impl Iterator<Item = ChainId>,
) -> Result<bool, StoreError> {
    let unknown: BTreeSet<ProjectId> =
        chains.map(|chain| chain.project_id).filter(|project| !known.contains(project)).collect();
    for project in unknown {
        let is_there = if project.is_system() {
            control.tenant_of_system_project(project).await?.is_some()
        } else {
            control.project(project).await?.is_some()
        };
        if is_there {
            return Ok(true);
        }
    }
    Ok(false)
}
