//! A moment of the store for a backup: what the command asks for, and where it finds what it needs.
//!
//! The answer of the socket is one line, and a store may have thousands of segments. So everything is handed over in a directory beside the logs, which the command removes when it is done.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sealog_service::copies::{self, FOR_REPLICAS, HANDED_OVER};
use serde::{Deserialize, Serialize};

use super::host::Host;
use crate::files::{create_file, make_dir};

/// In each of them, beside the copy of the control data.
pub(crate) const MOMENT_FILE: &str = "moment.json";
/// After this long its command was killed.
const LEFT_BEHIND: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Taken {
    /// In the data directory.
    pub dir: PathBuf,
}

pub(crate) async fn take(host: &Host) -> Result<Taken, String> {
    let store = host.opened.store();
    let directory = || Some(store.segments()?.directory()?.to_owned());
    let Some(data_dir) = directory() else {
        return Err("this store is a database: back it up by its own tools, and note its heads with `sealog backup heads` (docs/operating.md)".into());
    };
    let all = data_dir.join(HANDED_OVER);
    let failed = |error: std::io::Error| format!("{}: {error}", all.display());
    make_dir(&all).map_err(failed)?;
    remove_left_behind(&all);
    let mut random = [0; 8];
    host.world.fill_random(&mut random);
    let name: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let dir = all.join(&name);
    make_dir(&dir).map_err(failed)?;
    let moment = copies::take(&store, host.opened.control(), &dir).await.map_err(|error| error.to_string());
    let handed_over = moment.and_then(|moment| {
        let written = || {
            let file = create_file(&dir.join(MOMENT_FILE))?;
            serde_json::to_writer(&file, &moment.to_json())?;
            Ok(())
        };
        written().map_err(|error: std::io::Error| format!("{}: {error}", dir.display()))
    });
    if let Err(problem) = handed_over {
        let _ = fs::remove_dir_all(&dir);
        return Err(problem);
    }
    Ok(Taken { dir: Path::new(HANDED_OVER).join(name) })
}

fn remove_left_behind(all: &Path) {
    let now = SystemTime::now();
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let age =
            entry.metadata().and_then(|metadata| metadata.modified()).map(|made| now.duration_since(made));
        if entry.file_name() != FOR_REPLICAS && matches!(age, Ok(Ok(age)) if age > LEFT_BEHIND) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
