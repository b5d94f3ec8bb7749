//! Workload files: what is sent, how, and what stands beside it.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::source::Send;
use crate::outcome::Outcome;

/// A file under `bench/workloads`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Vec<Run>,
}

/// Stands for one case for each combination of its lists.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    send: Send,
    #[serde(default = "one")]
    connections: Vec<usize>,
    /// Chains of one tenant that requests are spread over.
    #[serde(default = "one")]
    chains: Vec<usize>,
    #[serde(default = "without")]
    idempotency: Vec<bool>,
    /// Where the events are kept.
    #[serde(default)]
    store: Store,
    /// Whether the server speaks TLS.
    #[serde(default)]
    tls: bool,
    /// Servers on one database that connections are spread over.
    #[serde(default = "one")]
    nodes: Vec<usize>,
    /// Events that are there before, for what reads.
    #[serde(default)]
    fill: u64,
    #[serde(default)]
    pace: PlannedPace,
    /// What another tenant sends meanwhile, on 16 connections and without pause.
    neighbour: Option<Send>,
    #[serde(default)]
    beside: Vec<Beside>,
    #[serde(default)]
    targets: BTreeMap<Beside, Bounds>,
}

fn one() -> Vec<usize> {
    vec![1]
}

fn without() -> Vec<bool> {
    vec![false]
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    #[default]
    Embedded,
    Postgres,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlannedPace {
    #[default]
    Closed,
    /// Half the requests/s that a closed loop on as many connections reaches.
    Half,
    /// Requests in a second.
    Rate(f64),
}

/// What is measured in turn with Sealog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beside {
    /// A hyper server that gives the same answer and does nothing else.
    Bare,
    /// `pwrite` + `fdatasync` of as many bytes, one after the other.
    Sync,
    /// Sealog without the neighbour.
    Alone,
    /// PostgreSQL with a hash chain made by a trigger.
    Trigger,
    /// PostgreSQL with a hash chain made by the client, which hands over 100 events with one COPY.
    Copy,
    /// The same with 1000.
    LargeCopy,
    /// The same with 1000, into the table and the indexes of Sealog's own PostgreSQL store.
    SameTable,
    /// Sealog on one of its nodes.
    OneNode,
    /// quipu-server.
    Quipu,
    /// The same server without TLS.
    Plain,
    /// Another build of Sealog (`--compare`).
    Other,
}

/// What a ratio of Sealog to what is beside it has to keep.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    pub requests_min: Option<f64>,
    pub events_min: Option<f64>,
    pub cpu_max: Option<f64>,
    pub p50_max: Option<f64>,
    pub p99_max: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct Case {
    pub send: Send,
    pub connections: usize,
    pub chains: usize,
    pub idempotency: bool,
    pub store: Store,
    pub tls: bool,
    pub nodes: usize,
    pub fill: u64,
    pub pace: PlannedPace,
    pub neighbour: Option<Send>,
    pub beside: Vec<Beside>,
    pub targets: BTreeMap<Beside, Bounds>,
}

impl Case {
    /// Cases that are equal in this share a server.
    pub fn server(&self) -> (Store, bool, usize, usize, u64) {
        (self.store, self.tls, self.nodes, self.chains, self.fill)
    }

    pub fn name(&self) -> String {
        let mut name = self.send.name();
        if self.store == Store::Postgres {
            name += " on PostgreSQL";
        }
        if self.tls {
            name += " over TLS";
        }
        if self.nodes > 1 {
            name += &format!(", {} nodes", self.nodes);
        }
        let connections = if self.connections == 1 { "connection" } else { "connections" };
        name += &format!(", {} {connections}", self.connections);
        if self.chains > 1 {
            name += &format!(", {} chains", self.chains);
        }
        if self.idempotency {
            name += ", idempotency keys";
        }
        match self.pace {
            PlannedPace::Closed => {}
            PlannedPace::Half => name += ", open loop at half load",
            PlannedPace::Rate(rate) => name += &format!(", open loop at {rate} a second"),
        }
        if let Some(neighbour) = &self.neighbour {
            name += &format!(", beside a tenant that sends: {}", neighbour.name());
        }
        name
    }
}

/// The cases of these files, those first that can share a server.
pub fn read(paths: &[impl AsRef<Path>]) -> Outcome<Vec<Case>> {
    let mut cases = Vec::new();
    for path in paths {
        let path = path.as_ref();
        let place = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| place(&error))?;
        let file: File = toml::from_str(&text).map_err(|error| place(&error))?;
        cases.extend(file.run.iter().flat_map(Run::cases));
    }
    if cases.iter().any(|case| case.connections == 0 || case.chains == 0) {
        return Err("connections and chains must be above 0".into());
    }
    if cases.iter().any(|case| case.nodes == 0 || (case.nodes > 1 && case.store == Store::Embedded)) {
        return Err("nodes must be above 0, and 1 without PostgreSQL".into());
    }
    if cases.iter().any(|case| case.store == Store::Postgres && case.fill > 0) {
        return Err("only an embedded store can be filled beforehand".into());
    }
    if cases.iter().any(|case| case.tls && case.store == Store::Postgres) {
        return Err("only a server on the embedded store is measured with TLS".into());
    }
    if cases.iter().any(|case| case.beside.contains(&Beside::Plain) && !case.tls) {
        return Err("\"plain\" stands beside a server with tls = true".into());
    }
    cases.sort_by_key(Case::server);
    Ok(cases)
}

impl Run {
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for &nodes in &self.nodes {
            for &chains in &self.chains {
                for &connections in &self.connections {
                    for &idempotency in &self.idempotency {
                        cases.push(Case {
                            send: self.send.clone(),
                            connections,
                            chains,
                            idempotency,
                            store: self.store,
                            tls: self.tls,
                            nodes,
                            fill: self.fill,
                            pace: self.pace,
                            neighbour: self.neighbour.clone(),
                            beside: self.beside.clone(),
                            targets: self.targets.clone(),
                        });
                    }
                }
            }
        }
        cases
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_file_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads");
        let mut files = 0;
        for folder in [folder.join("profiles"), folder] {
            let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            for path in paths.filter(|path| path.is_file()) {
                assert!(!read(&[&path]).unwrap().is_empty(), "{}", path.display());
                files += 1;
            }
        }
        assert!(files >= 7, "{files}");
    }

    #[test]
    fn a_run_stands_for_every_combination_of_its_lists() {
        let text = "[[run]]\nsend = \"single\"\nconnections = [1, 64]\nchains = [1, 10]\nidempotency = [false, true]\n";
        let file: File = toml::from_str(text).unwrap();
        assert_eq!(file.run[0].cases().len(), 8);
        let text = "[[run]]\nsend = { list = \"action\" }\nspeed = 3\n";
        assert!(toml::from_str::<File>(text).is_err(), "an unknown word is refused");
    }
}
