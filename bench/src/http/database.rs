//! The database that servers are measured on: one of their own, or a Citus cluster that somebody has started.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tokio_postgres::{Client, NoTls};

use crate::machine::cpu_of_all;
use crate::outcome::Outcome;
use crate::peers::Cluster;
use crate::process::Process;
use crate::setting::Setting;

#[derive(Debug)]
pub struct Database {
    url: String,
    /// None of a cluster, which goes on.
    own: Option<Process>,
    /// What each node is called, and its first process.
    nodes: Vec<(String, u32)>,
}

impl Database {
    pub fn own(setting: &Setting) -> Outcome<Database> {
        let cluster = Cluster::create(&setting.dir.join("on-postgres").join("database"), "")?;
        let process = cluster.start()?;
        let nodes = vec![("database".to_owned(), process.pid())];
        Ok(Database { url: cluster.url("postgres"), own: Some(process), nodes })
    }

    /// Spreads the tables over the workers, as an operator would.
    pub fn of_cluster(program: &Path, url: &str) -> Outcome<Database> {
        for more in [&[][..], &["--citus"]] {
            let output = Command::new(program).arg("migrate").args(more).env("SEALOG_STORE", url).output()?;
            if !output.status.success() {
                return Err(format!("sealog migrate: {}", String::from_utf8_lossy(&output.stderr)).into());
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let nodes = runtime.block_on(nodes(url))?;
        Ok(Database { url: url.to_owned(), own: None, nodes })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// CPU time of each node, of all its processes.
    pub fn cpu(&self) -> impl Iterator<Item = (String, Duration)> {
        self.nodes.iter().map(|(name, pid)| (name.clone(), cpu_of_all(*pid)))
    }

    pub fn stop(self) -> Outcome<()> {
        self.own.map_or(Ok(()), |process| process.stop_with(Signal::INT))
    }
}

/// The coordinator and each worker, which any of them knows, with the process that has started all others of
/// it.
async fn nodes(url: &str) -> Outcome<Vec<(String, u32)>> {
    let config: tokio_postgres::Config = url.parse()?;
    let known =
        "SELECT nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' ORDER BY groupid, nodeid";
    let mut nodes = Vec::new();
    for (row, number) in connect(&config).await?.query(known, &[]).await?.iter().zip(0..) {
        let (host, port): (String, i32) = (row.get(0), row.get(1));
        let mut node = tokio_postgres::Config::new();
        node.host(&host).port(u16::try_from(port)?);
        config.get_user().map(|user| node.user(user));
        config.get_dbname().map(|database| node.dbname(database));
        // The coordinator is group 0.
        let name = if number == 0 { "coordinator".to_owned() } else { format!("worker {number}") };
        nodes.push((name, first_process(&connect(&node).await?).await?));
    }
    Ok(nodes)
}

async fn connect(config: &tokio_postgres::Config) -> Outcome<Client> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// The parent of the process that answers.
async fn first_process(client: &Client) -> Outcome<u32> {
    let pid: i32 = client.query_one("SELECT pg_backend_pid()", &[]).await?.get(0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let status = status.map_err(|_| "a node of the cluster is not on this machine")?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    Ok(parent.ok_or("a process without a parent")?.trim().parse()?)
}
