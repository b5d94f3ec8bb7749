//! The signed log: what its command asks for, what is done, and what came of it.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sealog_cli::exit::Failure;
use sealog_core::time::iso_ms;
use sealog_engine::trust_log::{Copied, LogKey, Role, SignerError, role_name};
use sealog_engine::{Trust, TrustStatus};
use serde::{Deserialize, Serialize};

use super::host::Host;

/// Chains that one answer names.
const NAMED_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Status,
    Init,
    /// Of the service key, or of the log key.
    Rotate {
        service: bool,
    },
    /// From a copy of the log in this directory; None to accept the copy that the store has.
    Recover {
        dir: Option<PathBuf>,
        reason: String,
    },
    NewLog,
}

/// The signed log, as machines read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Log {
    /// One of the words of the metric `sealog_trust_state`.
    pub state: String,
    /// What that means here, in a sentence.
    pub detail: String,
    pub is_trouble: bool,
    /// What signatures are verified with; None before the log began.
    pub vkey: Option<String>,
    pub origin: Option<String>,
    /// Entries of the log, and how many of them are signed.
    pub size: u64,
    pub signed_size: u64,
    /// Of the newest heads entry.
    pub published_at: Option<String>,
    /// Live chains that it covers.
    pub chains: usize,
    pub keys: Vec<Key>,
    pub state_copy: Option<String>,
    /// Chains that do not continue what was published, as far as there is room.
    pub findings: Vec<String>,
    pub findings_total: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Key {
    pub role: String,
    pub vkey: String,
    pub added_at: String,
    pub retired_at: Option<String>,
}

pub(crate) async fn run(host: &Host, request: &Request) -> Result<Log, Failure> {
    let trust = host.trust().await?;
    match request {
        Request::Status => {}
        Request::Init => act(&trust, Trust::init).await?,
        Request::Rotate { service } => {
            let role = if *service { Role::Service } else { Role::Log };
            act(&trust, move |trust| trust.rotate(role).map(drop)).await?;
        }
        Request::Recover { dir: None, reason } => {
            let reason = reason.clone();
            act(&trust, move |trust| trust.accept_copy(&reason)).await?;
        }
        Request::Recover { dir: Some(dir), reason } => {
            let (dir, reason) = (dir.clone(), reason.clone());
            let read = move || Copied::read(&mut |path| read_file(&dir.join(path)));
            let copied = tokio::task::spawn_blocking(read).await.map_err(|error| error.to_string())?;
            let copied = copied.map_err(|problem| Failure::usage(format!("--from: {problem}")))?;
            act(&trust, move |trust| trust.recover(&copied, &reason)).await?;
        }
        Request::NewLog => act(&trust, Trust::new_log).await?,
    }
    let status = trust.status().await.map_err(|error| error.to_string())?;
    Ok(log(status))
}

/// A file of a copy; None if there is none.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

/// Does what blocks where it may.
async fn act<T: Send + 'static>(
    trust: &Arc<Trust>,
    act: impl FnOnce(&Trust) -> Result<T, SignerError> + Send + 'static,
) -> Result<T, Failure> {
    let trust = Arc::clone(trust);
    let done = tokio::task::spawn_blocking(move || act(&trust)).await;
    done.map_err(|error| error.to_string())?.map_err(|error| error.to_string().into())
}

fn log(
    TrustStatus { state, place, signed_size, keys, vkey, chains, state_copy, findings }: TrustStatus,
) -> Log {
    let key = |key: &LogKey| Key {
        role: role_name(key.role).to_owned(),
        vkey: key.key.to_string(),
        added_at: iso_ms(key.added_ms),
        retired_at: key.retired.map(|(_, ms)| iso_ms(ms)),
    };
    let published = place.as_ref().filter(|place| place.heads_index.is_some());
    Log {
        state: state.name().to_owned(),
        detail: state.to_string(),
        is_trouble: state.is_trouble() || !findings.is_empty(),
        vkey,
        size: place.as_ref().map_or(0, |place| place.tree.size),
        signed_size,
        published_at: published.map(|place| iso_ms(place.heads_ms)),
        chains,
        keys: keys.iter().map(key).collect(),
        state_copy: state_copy.map(|path| path.display().to_string()),
        findings_total: findings.len(),
        findings: findings.into_iter().take(NAMED_MAX).collect(),
        origin: place.map(|place| place.origin),
    }
}

/// For people.
impl fmt::Display for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &str| writeln!(f, "{name:<13} {value}");
        line("state", &self.detail)?;
        let Some(origin) = &self.origin else { return Ok(()) };
        line("origin", origin)?;
        line("entries", &format!("{}, of which {} are signed", self.size, self.signed_size))?;
        let published = self.published_at.as_deref().unwrap_or("never");
        line("published", &format!("{published}, {} live chains", self.chains))?;
        line("state copy", self.state_copy.as_deref().unwrap_or("none: a rollback could not be noticed"))?;
        for Key { role, vkey, added_at, retired_at } in &self.keys {
            let retired = retired_at.as_ref().map_or(String::new(), |at| format!(", retired {at}"));
            line(&format!("{role} key"), &format!("{vkey} (since {added_at}{retired})"))?;
        }
        for finding in &self.findings {
            line("chain", finding)?;
        }
        match self.findings_total - self.findings.len() {
            0 => Ok(()),
            more => line("", &format!("and {more} more")),
        }
    }
}
