//! A moment of the store for a backup: what the command asks for, and what it is told.
//!
//! The copy of the control data is made where the backup goes, never in the data directory: its disk may be
//! full, and that is when a backup is wanted most. A server may not be allowed to write there, so the command
//! copies before it asks a server that runs. A stopped store is opened by the command itself, which then
//! copies by the connection that has the file open.

use std::path::PathBuf;

use sealog_backup::Taken;
use sealog_service::records::copies;
use serde::{Deserialize, Serialize};

use super::host::Host;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    /// Where the control data is copied to; nothing where the command has done that.
    pub copy_to: Option<PathBuf>,
}

pub(crate) async fn take(host: &Host, request: Request) -> Result<Taken, String> {
    let (store, control) = (host.opened.store(), host.opened.control());
    if store.segments().is_none_or(|segments| segments.directory().is_none()) {
        return Err("this store is a database: back it up with its own tools, and record its heads with `sealog backup heads` (docs/operating-postgres.md)".into());
    }
    let (moment, projects) = match request.copy_to {
        Some(path) => (copies::take(&store, control, path).await, Vec::new()),
        None => match copies::cut(&store).await {
            Ok((moment, projects)) => (Ok(moment), projects.iter().map(ToString::to_string).collect()),
            Err(error) => (Err(error), Vec::new()),
        },
    };
    let moment = moment.map_err(|error| error.to_string())?;
    Ok(Taken { moment: moment.to_json(), projects })
}
