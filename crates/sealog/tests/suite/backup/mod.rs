//! `sealog backup` and `sealog restore` as an operator meets them.

mod damage;
mod failover;
mod kill;
mod made;
mod postgres;
mod prune;
mod replicate;
mod replicate_database;
mod rollback;
mod signed_log;
mod tail;
mod trees;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{ended, sealog};
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_store::Store;
use sealog_store::embedded::EmbeddedStore;
use sealog_store::world::{SystemWorld, World};
use sealog_testing::*;
use serde_json::Value;

/// A directory for a store, its backups and what is made of them.
#[derive(Debug)]
pub struct Stage {
    dir: tempfile::TempDir,
}

/// Exit code, standard output, standard error.
pub type Ended = (Option<i32>, String, String);

impl Stage {
    fn new() -> Stage {
        Stage { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.path("data")
    }

    pub fn backups(&self) -> PathBuf {
        self.path("backups")
    }

    /// Appends to a stopped store with small segments: each time some are filled.
    pub fn fill(&self, chains: &[ChainId], rounds: u64) {
        let store = self.open_small();
        for n in 0..rounds {
            for chain in chains {
                let drafts = (0..50).map(|at| login(&format!("u{n}-{at}"))).collect();
                append(&store, *chain, drafts);
            }
        }
    }

    pub fn open_small(&self) -> EmbeddedStore {
        EmbeddedStore::open(&self.data(), &small(&StillWorld::random_at(SystemWorld.now_ms()))).unwrap()
    }

    pub fn create(&self) -> Value {
        let (code, said, error) = self.backup(&["create", "--json", "--fast"], true);
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str(&said).unwrap()
    }

    /// `sealog backup …` with the directory of the backups.
    pub fn backup(&self, args: &[&str], with_data: bool) -> Ended {
        let mut command = sealog();
        command.arg("backup").args(args).arg(self.backups());
        if with_data {
            command.arg("--data-dir").arg(self.data());
        }
        ended(command.output().unwrap())
    }

    pub fn verify(&self) -> Ended {
        self.backup(&["verify"], false)
    }

    pub fn restore(&self, to: &str, args: &[&str]) -> Ended {
        ended(self.restoring(to, args).output().unwrap())
    }

    fn restoring(&self, to: &str, args: &[&str]) -> Command {
        let mut command = sealog();
        command.args(["restore", "--from"]).arg(self.backups()).arg("--to").arg(self.path(to)).args(args);
        command
    }

    /// Files below a folder of the backups; none where there is none. What a killed command has not finished
    /// is no file yet.
    pub fn files(&self, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.backups().join(folder)).into_iter().flatten();
        let files = entries.map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            files.filter(|file| file.extension().is_none_or(|end| end != "tmp")).collect();
        files.sort();
        files
    }
}

/// Heads of a stopped store.
pub fn heads(data: &Path) -> BTreeMap<ChainId, Head> {
    let store = EmbeddedStore::open(data, &sealog_store::embedded::Options::default()).unwrap();
    wait(store.heads()).unwrap().into_iter().collect()
}

/// Live and test chains.
pub fn chains() -> [ChainId; 3] {
    [chain(1, 1, Mode::Live), chain(1, 2, Mode::Live), chain(1, 1, Mode::Test)]
}
