//! The two kinds of copies that `sealog replicate` keeps.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use indicatif::ProgressBar;
use sealog_cli::exit::Failure;
use sealog_cli::progress;
use zeroize::Zeroizing;

use super::remote::Remote;
use super::replica::{Replica, Round};
use super::stopped::Stopped;
use crate::copy::follow::{Follower, Unbegun};
use crate::copy::trouble::{Kind, Trouble};

/// A copy that is kept up.
pub(super) trait Copied {
    /// Brings it up to what is durable now.
    fn look(&mut self, bar: &ProgressBar) -> Result<Round, Stopped>;
    /// How far a look is, which the first one may need to say: it brings everything.
    fn bar(&self, is_quiet: bool) -> ProgressBar;
    fn standing(&self) -> Standing;
}

/// How far a copy is.
#[derive(Debug)]
pub(super) struct Standing {
    pub events: u64,
    pub chains: usize,
    pub backup: Option<BackupStanding>,
}

/// Of a copy that is a backup.
#[derive(Debug)]
pub(super) struct BackupStanding {
    pub id: String,
    /// Up to which commit it has each log.
    pub commits: BTreeMap<String, u64>,
}

/// A backup of a server's embedded store.
pub(super) struct OfServer {
    pub remote: Remote,
    pub replica: Replica,
}

impl Copied for OfServer {
    fn look(&mut self, bar: &ProgressBar) -> Result<Round, Stopped> {
        self.replica.follow(&self.remote, bar)
    }

    fn bar(&self, is_quiet: bool) -> ProgressBar {
        progress::bytes(is_quiet, "Copying", 0)
    }

    fn standing(&self) -> Standing {
        let commits = self.replica.commits().into_iter().map(|(mode, commit)| (mode.to_owned(), commit));
        let backup = BackupStanding { id: self.replica.id().to_owned(), commits: commits.collect() };
        Standing { events: self.replica.events(), chains: self.replica.chains(), backup: Some(backup) }
    }
}

/// An embedded store with everything that a database has.
pub(super) struct OfDatabase {
    url: Zeroizing<String>,
    dir: PathBuf,
    /// Nothing until the database was there for the first time.
    follower: Option<Follower>,
}

impl OfDatabase {
    pub(super) fn new(url: String, dir: &Path) -> Result<OfDatabase, Failure> {
        let is_empty = std::fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_none());
        if dir.exists() && !is_empty && !dir.join("FORMAT").is_file() {
            return Err(Failure::usage(format!(
                "--to: {} is neither empty nor an earlier copy of a database",
                dir.display()
            )));
        }
        Ok(OfDatabase { url: Zeroizing::new(url), dir: dir.to_owned(), follower: None })
    }
}

impl Copied for OfDatabase {
    fn look(&mut self, bar: &ProgressBar) -> Result<Round, Stopped> {
        let follower = match &mut self.follower {
            Some(follower) => follower,
            unopened => unopened.insert(Follower::open(&self.url, &self.dir)?),
        };
        Ok(Round { events: follower.look(bar)?, copied_bytes: 0 })
    }

    fn bar(&self, is_quiet: bool) -> ProgressBar {
        progress::bar(is_quiet, "Copying", Some(0))
    }

    fn standing(&self) -> Standing {
        let follower = self.follower.as_ref();
        Standing {
            events: follower.map_or(0, Follower::events),
            chains: follower.map_or(0, Follower::chains),
            backup: None,
        }
    }
}

impl From<Unbegun> for Stopped {
    fn from(unbegun: Unbegun) -> Stopped {
        match unbegun {
            Unbegun::Unopened(unopened) if unopened.may_pass => Stopped::Away(unopened.to_string()),
            Unbegun::Unopened(unopened) => {
                let Failure { exit, message } = super::shared::unopened(unopened);
                Stopped::Denied(exit, message)
            }
            Unbegun::Trouble(trouble) => trouble.into(),
        }
    }
}

impl From<Trouble> for Stopped {
    fn from(Trouble { kind, message }: Trouble) -> Stopped {
        match kind {
            Kind::Source => Stopped::Away(message),
            Kind::Target | Kind::Usage => Stopped::Refused(message),
            Kind::Broken => Stopped::Broken(message),
        }
    }
}
