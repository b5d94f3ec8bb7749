//! What a user could take instead of Sealog, set up as a careful user would.

mod postgres;
mod quipu;

use std::path::PathBuf;

use crate::outcome::Outcome;
use crate::setting::Setting;
use crate::side::Side;
pub use postgres::Cluster;
use quipu::Quipu;

/// One way to write to one of them.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// PostgreSQL, with a hash chain made by a trigger; so many rows in one INSERT.
    Trigger { batch: usize, connections: usize },
    /// PostgreSQL, with a hash chain made by the client, which hands over so many rows with one COPY.
    Copy { group: usize },
    /// PostgreSQL with the tables of Sealog's own store; nothing is sealed, and so many rows are handed over
    /// with one COPY.
    SameTable { group: usize },
    /// quipu-server, which takes one event at a time.
    Quipu { connections: usize },
}

impl Peer {
    pub fn name(&self) -> &'static str {
        match self {
            Peer::Trigger { .. } => "PostgreSQL with a trigger",
            Peer::Copy { .. } => "PostgreSQL with COPY",
            Peer::SameTable { .. } => "PostgreSQL with COPY into the tables of Sealog",
            Peer::Quipu { .. } => "quipu-server",
        }
    }
}

/// Set up when they are first asked for; why not, where that cannot be done.
pub struct Peers<'a> {
    setting: &'a Setting,
    quipu_program: Option<PathBuf>,
    postgres: Option<Result<Cluster, String>>,
    quipu: Option<Result<Quipu, String>>,
}

impl<'a> Peers<'a> {
    pub fn new(setting: &'a Setting, quipu_program: Option<PathBuf>) -> Peers<'a> {
        Peers { setting, quipu_program, postgres: None, quipu: None }
    }

    /// Says why this one gets no number, if so.
    pub fn ready(&mut self, peer: &Peer) -> Result<(), String> {
        self.setting.progress.say(&format!("preparing {}", peer.name()));
        match peer {
            Peer::Trigger { .. } | Peer::Copy { .. } | Peer::SameTable { .. } => {
                let dir = self.setting.dir.join("postgres");
                let cluster = self
                    .postgres
                    .get_or_insert_with(|| Cluster::by_hand(&dir).map_err(|error| error.to_string()));
                cluster.as_ref().map(drop).map_err(Clone::clone)
            }
            Peer::Quipu { .. } => {
                let (setting, program) = (self.setting, &self.quipu_program);
                let quipu = self.quipu.get_or_insert_with(|| {
                    let program = program.clone().ok_or("there is no quipu-server; --quipu names it")?;
                    Quipu::create(setting.dir.join("quipu"), program).map_err(|error| error.to_string())
                });
                quipu.as_ref().map(drop).map_err(Clone::clone)?;
                quipu.as_ref().map_or(Ok(()), Quipu::keeps_what_it_flushed)
            }
        }
    }

    pub fn run(&mut self, peer: &Peer) -> Outcome<Side> {
        let slice = self.setting.slice;
        let ready = |what: &str| format!("{what} is not ready");
        match (peer, &mut self.postgres, &mut self.quipu) {
            (Peer::Trigger { batch, connections }, Some(Ok(cluster)), _) => {
                cluster.trigger(*batch, *connections, slice)
            }
            (Peer::Copy { group }, Some(Ok(cluster)), _) => cluster.copy(*group, slice),
            (Peer::SameTable { group }, Some(Ok(cluster)), _) => cluster.same_table(*group, slice),
            (Peer::Quipu { connections }, _, Some(Ok(quipu))) => quipu.run(*connections, slice),
            _ => Err(ready(peer.name()).into()),
        }
    }

    /// For the top of the report.
    pub fn describe(&self) -> String {
        let mut texts = Vec::new();
        match &self.postgres {
            Some(Ok(cluster)) => texts.push(cluster.describe()),
            Some(Err(error)) => texts.push(format!("PostgreSQL could not be set up: {error}")),
            None => {}
        }
        match &self.quipu {
            Some(Ok(quipu)) => texts.push(quipu.describe()),
            Some(Err(error)) => texts.push(format!("quipu-server could not be set up: {error}")),
            None => {}
        }
        if texts.is_empty() { "no peers were measured".to_owned() } else { texts.join("; ") }
    }
}
