//! The check before sending: actions that the service knows, and the fields that they need.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::endpoint::Endpoint;
use crate::error::{Error, Kind};
use crate::event::Event;
use crate::hooks::loud;
use crate::read::{Action, actions};

/// How long an action that is not in the catalog does not make the client read it again.
const KEPT: Duration = Duration::from_secs(60);
/// The beginning of a name that is compared, in bytes.
const COMPARED_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Catalog {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    known: Option<HashMap<String, Action>>,
    read_at: Option<Instant>,
}

impl Catalog {
    pub async fn check(&self, endpoint: &Endpoint, event: &Event) -> Result<(), Error> {
        let mut state = self.state.lock().await;
        let is_known = state.known.as_ref().is_some_and(|known| known.contains_key(&event.action));
        if !is_known && state.read_at.is_none_or(|at| at.elapsed() > KEPT) {
            state.read_at = Some(Instant::now());
            match actions(endpoint).await {
                Ok(found) => {
                    let named = found.into_iter().map(|action| (action.action.clone(), action));
                    state.known = Some(named.collect());
                }
                Err(error) => loud(&format!("cannot read the catalog, so actions are not checked: {error}")),
            }
        }
        let Some(known) = &state.known else { return Ok(()) };
        let Some(action) = known.get(&event.action) else {
            let shown: String = event.action.chars().take(100).collect();
            let message = format!("action: {shown:?} is not in the catalog");
            return Err(Error::new(Kind::Action, "action/invalid", message).with(|error| {
                error.field = Some("action".into());
                error.suggestion = nearest(&event.action, known.keys());
            }));
        };
        let is_missing = |name: &&String| event.metadata.get(*name).is_none_or(serde_json::Value::is_null);
        if let Some(name) = action.required_fields.iter().find(is_missing) {
            let message = format!("metadata.{name}: is required by {}", event.action);
            return Err(Error::new(Kind::Action, "action/missing_required_fields", message)
                .with(|error| error.field = Some(format!("metadata.{name}"))));
        }
        Ok(())
    }
}

/// The name that takes the fewest edits.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n String>) -> Option<String> {
    let name = &name.as_bytes()[..name.len().min(COMPARED_MAX)];
    names.min_by_key(|candidate| (edits(name, candidate.as_bytes()), *candidate)).cloned()
}

fn edits(from: &[u8], to: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, one) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, other) in to.iter().enumerate() {
            let cost = if one == other { diagonal } else { 1 + diagonal.min(row[j]).min(row[j + 1]) };
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[to.len()]
}
