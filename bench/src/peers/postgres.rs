//! PostgreSQL in a cluster of its own, with its default, durable settings, and the hash chain that a user
//! would write by hand.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::SinkExt;
use rustix::process::{Signal, geteuid};
use sha2::{Digest, Sha256};
use tokio_postgres::{Client, NoTls};

use crate::driver::{Run, nanos};
use crate::outcome::Outcome;
use crate::process::{Process, free_port};
use crate::side::Side;
use crate::workload;

/// Where Debian has it.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// What a user would write: a head that is locked, a digest over the row and the hash before it, and indexes
/// for what is asked for most.
const SCHEMA: &str = "
CREATE EXTENSION pgcrypto;
CREATE TABLE heads (chain text PRIMARY KEY, seq bigint NOT NULL, hash text NOT NULL);
CREATE TABLE events (
    chain text NOT NULL, seq bigint NOT NULL, at timestamptz NOT NULL, action text NOT NULL, actor text, resource text, metadata text,
    prev_hash text NOT NULL, hash text NOT NULL, PRIMARY KEY (chain, seq));
CREATE INDEX ON events (chain, actor);
CREATE INDEX ON events (chain, action);
CREATE INDEX ON events (chain, at);
CREATE FUNCTION seal() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE head heads%ROWTYPE;
BEGIN
    SELECT * INTO head FROM heads WHERE chain = NEW.chain FOR UPDATE;
    NEW.seq := head.seq + 1;
    NEW.at := clock_timestamp();
    NEW.prev_hash := head.hash;
    NEW.hash := encode(digest(head.hash || NEW.chain || NEW.seq || NEW.at || NEW.action || coalesce(NEW.actor, '') || coalesce(NEW.resource, '')
        || coalesce(NEW.metadata, ''), 'sha256'), 'hex');
    UPDATE heads SET seq = NEW.seq, hash = NEW.hash WHERE chain = NEW.chain;
    RETURN NEW;
END $$;
CREATE TRIGGER seal BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION seal();
";
const CHAIN: &str = "5e5e5e5e-5e5e-5e5e-5e5e-5e5e5e5e5e5e";
const POOL: u64 = 4096;
/// The database with the tables of Sealog's own store, and which columns are filled.
const OWN_TABLES: &str = "own_tables";
const OWN_COLUMNS: &str = "chain_id, chain_seq, log_id, timestamp_ms, tenant_id, project_id, prev_hash, hash, action, actor_id, resource, metadata, category, severity";

#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    port: u16,
    owner: Option<(u32, u32)>,
    settings: String,
}

/// The columns of some events, as they are sent.
struct Rows {
    actions: Vec<String>,
    actors: Vec<String>,
    resources: Vec<String>,
    metadata: Vec<String>,
}

impl Rows {
    fn pool() -> Rows {
        let keys = || (0..POOL).map(workload::keys);
        let plain = |text: String| text.trim_matches('"').to_owned();
        Rows {
            actions: keys().map(|keys| plain(keys.action)).collect(),
            actors: keys().map(|keys| plain(keys.actor_id)).collect(),
            resources: keys().map(|keys| plain(keys.resource)).collect(),
            metadata: (0..POOL).map(workload::metadata).collect(),
        }
    }
}

impl Cluster {
    /// With the hash chain that a user would write.
    pub fn by_hand(dir: &Path) -> Outcome<Cluster> {
        Cluster::create(dir, SCHEMA)
    }

    /// With these tables.
    pub fn create(dir: &Path, schema: &'static str) -> Outcome<Cluster> {
        if !Path::new(PROGRAMS).join("postgres").exists() {
            return Err("PostgreSQL 15 is not installed (Debian: postgresql-15)".into());
        }
        std::fs::create_dir_all(dir)?;
        let mut cluster =
            Cluster { dir: dir.to_owned(), port: free_port()?, owner: None, settings: String::new() };
        if geteuid().is_root() {
            // PostgreSQL refuses to run as root.
            let (uid, gid) =
                user("postgres").or_else(|| user("nobody")).ok_or("there is no user for PostgreSQL")?;
            chown(dir, Some(uid), Some(gid))?;
            cluster.owner = Some((uid, gid));
        }
        let output = cluster
            .command("initdb")
            .args(["-U", "bench", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-instructions", "-D"])
            .arg(dir)
            .output()?;
        if !output.status.success() {
            return Err(format!("initdb: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        let settings = cluster.while_running(|port, _| async move {
            let client = connect(port, "postgres").await?;
            client.batch_execute(schema).await?;
            let mut settings = Vec::new();
            for name in
                ["server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method"]
            {
                let value: String = client.query_one(&format!("SHOW {name}"), &[]).await?.get(0);
                settings.push(format!("{name} {value}"));
            }
            Ok(settings.join(", "))
        })?;
        cluster.settings = settings;
        Ok(cluster)
    }

    pub fn describe(&self) -> String {
        format!("PostgreSQL with its default settings: {}", self.settings)
    }

    /// Many connections, each with one INSERT of so many rows after the other.
    pub fn trigger(&mut self, batch: usize, connections: usize, limit: Duration) -> Outcome<Side> {
        self.while_running(|port, process| async move {
            let control = reset(port, true).await?;
            let rows = std::sync::Arc::new(Rows::pool());
            let begin = Instant::now() + warm_up(limit);
            let end = begin + limit;
            let mut tasks = Vec::new();
            for at in 0..connections {
                let rows = std::sync::Arc::clone(&rows);
                let client = connect(port, "postgres").await?;
                tasks.push(tokio::spawn(
                    async move { insert(&client, &rows, batch, at * 97, begin, end).await },
                ));
            }
            tokio::time::sleep_until(begin.into()).await;
            let cpu = process.cpu_of_all();
            tokio::time::sleep_until(end.into()).await;
            let cpu = process.cpu_of_all().saturating_sub(cpu);
            let (mut run, mut sent) = (Run { elapsed: limit, cpu, ..Run::default() }, 0);
            for task in tasks {
                let (latencies_ns, rows) = task.await??;
                run.requests += latencies_ns.len() as u64;
                run.latencies_ns.extend(latencies_ns);
                sent += rows;
            }
            run.events = run.requests * batch as u64;
            check(&control, sent).await?;
            Side::of_run(&run)
        })
    }

    /// One connection, which knows the head and makes the hashes itself.
    pub fn copy(&mut self, group: usize, limit: Duration) -> Outcome<Side> {
        self.while_running(|port, process| async move {
            let control = reset(port, false).await?;
            let mut client = connect(port, "postgres").await?;
            let rows = Rows::pool();
            let begin = Instant::now() + warm_up(limit);
            let (mut seq, mut hash, mut sent_at) = (0, "0".repeat(64), 0);
            let mut run = Run { elapsed: limit, ..Run::default() };
            let mut cpu = None;
            loop {
                let sent = Instant::now();
                if sent >= begin && cpu.is_none() {
                    cpu = Some(process.cpu_of_all());
                }
                let mut text = String::new();
                for _ in 0..group {
                    sent_at = (sent_at + 1) % rows.actions.len();
                    seq += 1;
                    push_row(&mut text, &rows, sent_at, seq, &mut hash);
                }
                let transaction = client.transaction().await?;
                let sink = transaction
                    .copy_in("COPY events (chain, seq, at, action, actor, resource, metadata, prev_hash, hash) FROM STDIN")
                    .await?;
                let mut sink = std::pin::pin!(sink);
                sink.send(Bytes::from(text)).await?;
                sink.finish().await?;
                transaction
                    .execute("UPDATE heads SET seq = $1, hash = $2 WHERE chain = $3", &[&seq, &hash, &CHAIN])
                    .await?;
                transaction.commit().await?;
                let now = Instant::now();
                if now >= begin + limit {
                    break;
                }
                if now >= begin {
                    run.requests += 1;
                    run.events += group as u64;
                    run.latencies_ns.push(nanos(now - sent));
                }
            }
            run.cpu = process.cpu_of_all().saturating_sub(cpu.unwrap_or_default());
            check(&control, u64::try_from(seq)?).await?;
            Side::of_run(&run)
        })
    }

    /// One connection, and rows that need not be sealed, into the table that Sealog would have filled.
    pub fn same_table(&mut self, group: usize, limit: Duration) -> Outcome<Side> {
        let url = self.url(OWN_TABLES);
        self.while_running(|port, process| async move {
            let control = connect(port, "postgres").await?;
            control.batch_execute(&format!("DROP DATABASE IF EXISTS {OWN_TABLES}")).await?;
            control.batch_execute(&format!("CREATE DATABASE {OWN_TABLES}")).await?;
            std::thread::spawn(move || sealog_store::postgres::migrate(&url))
                .join()
                .map_err(|_| "the migration panicked")??;
            let mut client = connect(port, OWN_TABLES).await?;
            client.batch_execute("CHECKPOINT").await?;
            let copy = format!("COPY sealog.events ({OWN_COLUMNS}) FROM STDIN");
            let rows = Rows::pool();
            let begin = Instant::now() + warm_up(limit);
            let (mut seq, mut run, mut cpu) = (0, Run { elapsed: limit, ..Run::default() }, None);
            loop {
                let sent = Instant::now();
                if sent >= begin && cpu.is_none() {
                    cpu = Some(process.cpu_of_all());
                }
                let mut text = String::new();
                for _ in 0..group {
                    seq += 1;
                    push_own_row(&mut text, &rows, seq);
                }
                let transaction = client.transaction().await?;
                let sink = transaction.copy_in(&copy).await?;
                let mut sink = std::pin::pin!(sink);
                sink.send(Bytes::from(text)).await?;
                sink.finish().await?;
                transaction.commit().await?;
                let now = Instant::now();
                if now >= begin + limit {
                    break;
                }
                if now >= begin {
                    run.requests += 1;
                    run.events += group as u64;
                    run.latencies_ns.push(nanos(now - sent));
                }
            }
            run.cpu = process.cpu_of_all().saturating_sub(cpu.unwrap_or_default());
            let count: i64 = client.query_one("SELECT count(*) FROM sealog.events", &[]).await?.get(0);
            if count != i64::try_from(seq)? {
                return Err(format!("PostgreSQL acknowledged {seq} rows and has {count}").into());
            }
            Side::of_run(&run)
        })
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://bench@127.0.0.1:{}/{database}", self.port)
    }

    /// Starts the server.
    pub fn start(&self) -> Outcome<Process> {
        let mut command = self.command("postgres");
        command.arg("-D").arg(&self.dir).args([
            "-p",
            &self.port.to_string(),
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        let (process, ()) = Process::start("postgres", command, |line| {
            line.contains("is ready to accept connections").then_some(())
        })?;
        Ok(process)
    }

    /// Runs the cluster only while it is asked: its autovacuum would take part in what is measured next.
    fn while_running<T, F: Future<Output = Outcome<T>>>(
        &self,
        act: impl FnOnce(u16, std::rc::Rc<Process>) -> F,
    ) -> Outcome<T> {
        let process = std::rc::Rc::new(self.start()?);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(act(self.port, std::rc::Rc::clone(&process)));
        drop(runtime);
        if let Some(process) = std::rc::Rc::into_inner(process) {
            process.stop_with(Signal::INT)?;
        }
        outcome
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join(program));
        command.current_dir(&self.dir).env("LC_ALL", "C").env_remove("PGDATA");
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        command
    }
}

fn warm_up(limit: Duration) -> Duration {
    (limit / 5).min(Duration::from_secs(1))
}

/// The ids of a user of this machine.
fn user(name: &str) -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields[0] == name).then(|| Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?)))?
    })
}

async fn connect(port: u16, database: &str) -> Outcome<Client> {
    let address = format!("host=127.0.0.1 port={port} user=bench dbname={database}");
    let (client, connection) = tokio_postgres::connect(&address, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// An empty table.
async fn reset(port: u16, trigger: bool) -> Outcome<Client> {
    let client = connect(port, "postgres").await?;
    let state = if trigger { "ENABLE" } else { "DISABLE" };
    let zero = "0".repeat(64);
    client
        .batch_execute(&format!(
            "TRUNCATE events, heads; INSERT INTO heads VALUES ('{CHAIN}', 0, '{zero}'); ALTER TABLE events {state} TRIGGER seal; CHECKPOINT"
        ))
        .await?;
    Ok(client)
}

/// One connection until the time is over: what each statement in it took, and how many rows went in from
/// first to last.
async fn insert(
    client: &Client,
    rows: &Rows,
    batch: usize,
    mut at: usize,
    begin: Instant,
    end: Instant,
) -> Result<(Vec<u64>, u64), tokio_postgres::Error> {
    let one = "INSERT INTO events (chain, action, actor, resource, metadata) VALUES ($1, $2, $3, $4, $5)";
    let many = "INSERT INTO events (chain, action, actor, resource, metadata) SELECT $1, * FROM unnest($2::text[], $3::text[], $4::text[], $5::text[])";
    let statement = client.prepare(if batch == 1 { one } else { many }).await?;
    let (mut latencies_ns, mut sent) = (Vec::new(), 0);
    loop {
        at = (at + batch) % (rows.actions.len() - batch);
        let range = at..at + batch;
        let start = Instant::now();
        if start >= end {
            return Ok((latencies_ns, sent));
        }
        if batch == 1 {
            let (action, actor) = (&rows.actions[at], &rows.actors[at]);
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&CHAIN, action, actor, &rows.resources[at], &rows.metadata[at]];
            client.execute(&statement, &parameters).await?;
        } else {
            let (actions, actors) = (&rows.actions[range.clone()], &rows.actors[range.clone()]);
            let parameters: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&CHAIN, &actions, &actors, &&rows.resources[range.clone()], &&rows.metadata[range]];
            client.execute(&statement, &parameters).await?;
        }
        sent += batch as u64;
        let now = Instant::now();
        if now >= begin && now <= end {
            latencies_ns.push(nanos(now - start));
        }
    }
}

/// A line of COPY's text format, sealed. The workload has no tabs, and its backslashes none either.
fn push_row(text: &mut String, rows: &Rows, at: usize, seq: i64, hash: &mut String) {
    let now = sealog_core::time::iso_ms(workload::START_MS);
    let (action, actor, resource, metadata) =
        (&rows.actions[at], &rows.actors[at], &rows.resources[at], &rows.metadata[at]);
    let sealed =
        hex::encode(Sha256::digest(format!("{hash}{CHAIN}{seq}{now}{action}{actor}{resource}{metadata}")));
    *text += &format!("{CHAIN}\t{seq}\t{now}\t{action}\t{actor}\t{resource}\t{metadata}\t{hash}\t{sealed}\n");
    *hash = sealed;
}

/// A line of COPY's text format with what one of Sealog's rows holds, and random bytes for hashes.
fn push_own_row(text: &mut String, rows: &Rows, seq: u64) {
    let at = usize::try_from(seq).unwrap_or(0) % rows.actions.len();
    let (action, actor, resource, metadata) =
        (&rows.actions[at], &rows.actors[at], &rows.resources[at], &rows.metadata[at]);
    let (ms, hash) = (workload::START_MS, workload::mix(seq));
    *text += &format!(
        "{CHAIN}\t{seq}\t{:012x}{seq:020x}\t{ms}\t{CHAIN}\t{CHAIN}\t\\\\x{:064x}\t\\\\x{hash:064x}\t{action}\t{actor}\t{resource}\t{metadata}\tdocuments\tinfo\n",
        ms,
        workload::mix(seq - 1)
    );
}

/// Fails unless everything that was acknowledged is there, without a gap.
async fn check(client: &Client, sent: u64) -> Outcome<()> {
    let row = client.query_one("SELECT count(*), coalesce(max(seq), 0) FROM events", &[]).await?;
    let (count, last): (i64, i64) = (row.get(0), row.get(1));
    if u64::try_from(count)? != sent || count != last {
        return Err(format!(
            "PostgreSQL acknowledged {sent} rows and has {count}, the last with number {last}"
        )
        .into());
    }
    Ok(())
}
