//! The server that a replica follows.

use indicatif::ProgressBar;
use sealog_client::http::{Client, ClientError};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::moment::Moment;
use super::source::Unread;
use super::stopped::Stopped;

/// Asked for at once; the server gives no more.
const PIECE: u64 = 4 << 20;

pub(super) struct Remote {
    client: Client,
    runtime: tokio::runtime::Runtime,
}

/// A moment, with the control data that belongs to it, and the store log.
#[derive(Debug, Deserialize)]
pub(super) struct RemoteMoment {
    #[serde(flatten)]
    pub moment: Moment,
    pub control: CopyText,
    /// None of a server that has none, or cannot copy it now.
    #[serde(default)]
    pub log: Option<CopyText>,
}

/// A file that the server has copied.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct CopyText {
    pub sha256: String,
    pub bytes: u64,
}

impl Remote {
    pub(super) fn new(client: Client) -> Result<Remote, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Remote { client, runtime: runtime.map_err(|error| error.to_string())? })
    }

    pub(super) fn moment(&self) -> Result<RemoteMoment, ClientError> {
        self.runtime.block_on(self.client.get("/operator/v1/replication/moment", &[]))?.json()
    }

    pub(super) fn salt(&self) -> Result<Vec<u8>, ClientError> {
        Ok(self.runtime.block_on(self.client.get("/operator/v1/replication/salt", &[]))?.body.to_vec())
    }

    /// The copy of the control data with this digest, and no other.
    pub(super) fn control(&self, control: &CopyText) -> Result<Vec<u8>, Stopped> {
        self.copy("control", control)
    }

    /// Likewise, of the store log.
    pub(super) fn log(&self, log: &CopyText) -> Result<Vec<u8>, Stopped> {
        self.copy("log", log)
    }

    fn copy(&self, of: &str, text: &CopyText) -> Result<Vec<u8>, Stopped> {
        let path = format!("{of}/{}", text.sha256);
        let bytes = self.bytes(&path, 0, text.bytes, &ProgressBar::hidden())?;
        if hex::encode(Sha256::digest(&bytes)) != text.sha256 {
            return Err(Stopped::Away(format!("checksum mismatch of the server's {of} copy")));
        }
        Ok(bytes)
    }

    pub(super) fn segment(
        &self,
        mode: &str,
        number: u64,
        from: u64,
        to: u64,
        bar: &ProgressBar,
    ) -> Result<Vec<u8>, Stopped> {
        self.bytes(&format!("segments/{mode}/{number}"), from, to, bar)
    }

    fn bytes(&self, path: &str, from: u64, to: u64, bar: &ProgressBar) -> Result<Vec<u8>, Stopped> {
        let path = format!("/operator/v1/replication/{path}");
        // As it comes: what the server says of a length is no reason to set memory aside.
        let mut bytes = Vec::new();
        while from + (bytes.len() as u64) < to {
            let at = from + bytes.len() as u64;
            let (first, end) = (at.to_string(), to.min(at + PIECE).to_string());
            let answer = self.runtime.block_on(self.client.get(&path, &[("from", &first), ("to", &end)]));
            match answer {
                Ok(answer) if answer.body.is_empty() => {
                    let problem = format!("the server sent fewer bytes of {path} than announced");
                    return Err(Unread::Failed(problem).into());
                }
                Ok(answer) => {
                    bytes.extend_from_slice(&answer.body);
                    bar.inc(answer.body.len() as u64);
                }
                Err(ClientError::Refused(problem)) if problem.status == 404 => {
                    return Err(Unread::Gone.into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(bytes)
    }
}
