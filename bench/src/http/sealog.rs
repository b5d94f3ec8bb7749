//! The real server on a directory of its own, or several on a PostgreSQL of their own, with its limits raised
//! by settings and its accounts made by the operator's interface.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_core::catalog::Catalog;
use sealog_core::id::{ChainId, Mode, ProjectId, TenantId, Uuid};
use sealog_store::embedded::{EmbeddedStore, Options};
use serde_json::{Value, json};
use tokio_rustls::rustls::ClientConfig;

use super::client::Client;
use super::database::Database;
use super::load::Loaded;
use super::stream::Certificate;
use crate::driver::{self, Until};
use crate::machine::device_bytes_written;
use crate::meter::Meter;
use crate::outcome::Outcome;
use crate::process::Process;
use crate::setting::Setting;
use crate::workload::{self, Timeline};

/// The operator's.
pub const TOKEN: &str = "operator-token-of-the-benchmark-0123456789";

/// A chain, and the key that writes to it.
#[derive(Clone, Debug)]
pub struct Account {
    pub chain: ChainId,
    pub key: String,
}

#[derive(Debug)]
pub struct Sealog {
    program: PathBuf,
    dir: PathBuf,
    unsafe_storage: bool,
    /// Settings of the next start, beside those that every server gets.
    pub environment: &'static [(&'static str, &'static str)],
    /// Always there but while it is stopped on purpose.
    process: Option<Process>,
    /// Of all nodes; the first one's process is the one above.
    addresses: Vec<SocketAddr>,
    on_postgres: Option<OnPostgres>,
    /// Of a server that speaks TLS.
    certificate: Option<Certificate>,
    /// The last one belongs to another tenant than the rest.
    pub accounts: Vec<Account>,
    /// How many events each chain must have.
    expected: Vec<u64>,
}

/// The database, and the nodes besides the first one.
#[derive(Debug)]
struct OnPostgres {
    others: Vec<Process>,
    database: Database,
}

/// Where `cargo` puts the server: beside this program.
pub fn default_program() -> PathBuf {
    let own = std::env::current_exe().unwrap_or_default();
    own.with_file_name("sealog")
}

impl Sealog {
    /// A new server with `chains` chains of one tenant, and one more of another.
    pub fn create(
        setting: &Setting,
        program: &Path,
        name: &str,
        chains: usize,
        certificate: Option<Certificate>,
    ) -> Outcome<Sealog> {
        let dir = setting.dir.join(name);
        let (process, address) = start(program, &dir, setting.quick, None, certificate.as_ref(), &[])?;
        Sealog::furnish(setting, program, dir, process, vec![address], (None, certificate), chains)
    }

    /// The same without TLS, with these settings.
    pub fn create_with(
        setting: &Setting,
        program: &Path,
        name: &str,
        chains: usize,
        environment: &'static [(&'static str, &'static str)],
    ) -> Outcome<Sealog> {
        let dir = setting.dir.join(name);
        let (process, address) = start(program, &dir, setting.quick, None, None, environment)?;
        let made = Sealog::furnish(setting, program, dir, process, vec![address], (None, None), chains)?;
        Ok(Sealog { environment, ..made })
    }

    /// The same with some nodes on a database, which runs as long as they do.
    pub fn create_on_postgres(
        setting: &Setting,
        program: &Path,
        database: Database,
        nodes: usize,
        chains: usize,
    ) -> Outcome<Sealog> {
        let dir = setting.dir.join("on-postgres");
        std::fs::create_dir_all(&dir)?;
        let (mut processes, mut addresses) = (Vec::new(), Vec::new());
        for node in 0..nodes {
            let own = dir.join(format!("node-{node}"));
            let (process, address) = start(program, &own, setting.quick, Some(database.url()), None, &[])?;
            processes.push(process);
            addresses.push(address);
        }
        let first = processes.remove(0);
        let on_postgres = Some(OnPostgres { others: processes, database });
        Sealog::furnish(setting, program, dir, first, addresses, (on_postgres, None), chains)
    }

    fn furnish(
        setting: &Setting,
        program: &Path,
        dir: PathBuf,
        process: Process,
        addresses: Vec<SocketAddr>,
        (on_postgres, certificate): (Option<OnPostgres>, Option<Certificate>),
        chains: usize,
    ) -> Outcome<Sealog> {
        let address = addresses[0];
        let mut sealog = Sealog {
            program: program.to_owned(),
            dir,
            unsafe_storage: setting.quick,
            environment: &[],
            process: Some(process),
            addresses,
            on_postgres,
            certificate,
            accounts: Vec::new(),
            expected: vec![0; chains + 1],
        };
        let mut client = Client::connect_with(address, TOKEN, sealog.tls())?;
        let crowd = tenant(&mut client)?;
        for at in 0..chains {
            if at % 500 == 499 {
                setting.progress.say(&format!("creating projects and keys: {} of {chains}", at + 1));
            }
            sealog.accounts.push(account(&mut client, &crowd)?);
        }
        let other = tenant(&mut client)?;
        sealog.accounts.push(account(&mut client, &other)?);
        // Every key is used once: what its first use costs is another question.
        sealog.check(0)?;
        Ok(sealog)
    }

    pub fn client(&self) -> Outcome<Client> {
        Client::connect_with(self.addresses[0], "", self.tls())
    }

    /// What a client needs to believe it.
    pub fn tls(&self) -> Option<&Arc<ClientConfig>> {
        self.certificate.as_ref().map(|certificate| &certificate.client)
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Of its database, if it has one.
    pub fn store_url(&self) -> Option<&str> {
        self.on_postgres.as_ref().map(|OnPostgres { database, .. }| database.url())
    }

    pub fn is_on_postgres(&self) -> bool {
        self.on_postgres.is_some()
    }

    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("it runs whenever somebody else can ask")
    }

    pub fn stop(mut self) -> Outcome<()> {
        self.process.take().map_or(Ok(()), Process::stop)?;
        let Some(OnPostgres { others, database }) = self.on_postgres.take() else { return Ok(()) };
        others.into_iter().try_for_each(Process::stop)?;
        database.stop()
    }

    /// Looks for every acknowledged event, stops the server and removes its data.
    pub fn retire(mut self) -> Outcome<()> {
        self.check(0)?;
        let dir = self.dir().to_owned();
        self.stop()?;
        Ok(std::fs::remove_dir_all(dir)?)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the server, works on its directory, and starts it again.
    pub fn while_stopped(
        &mut self,
        stop: impl FnOnce(Process) -> Outcome<()>,
        act: impl FnOnce(&mut Sealog) -> Outcome<()>,
    ) -> Outcome<()> {
        stop(self.process.take().ok_or("the server is not running")?)?;
        act(self)?;
        let certificate = self.certificate.as_ref();
        let (process, address) =
            start(&self.program, &self.dir, self.unsafe_storage, None, certificate, self.environment)?;
        (self.process, self.addresses) = (Some(process), vec![address]);
        Ok(())
    }

    /// Fills each chain but the last with its share of `events`, spread over 90 days, through the store: a
    /// server cannot be told the time.
    pub fn fill(&mut self, setting: &Setting, events: u64) -> Outcome<()> {
        self.while_stopped(Process::stop, |sealog| {
            sealog.fill_stopped(setting, 0..events, events).map(drop)
        })?;
        self.check(0)
    }

    /// The same for some of `events`, with the server stopped already. Returns the store, and events/s of the
    /// last tenth.
    pub fn fill_stopped(
        &mut self,
        setting: &Setting,
        range: Range<u64>,
        events: u64,
    ) -> Outcome<(EmbeddedStore, f64)> {
        const BATCH: u64 = 100;
        let timeline = Arc::new(Timeline::new());
        let options = Options { world: Arc::clone(&timeline) as _, ..setting.options(&Meter::default()) };
        let store = setting.open(&self.dir, &options)?;
        let chains: Vec<ChainId> = self.accounts.iter().map(|account| account.chain).collect();
        let chains = &chains[..chains.len() - 1];
        let (mut next, mut turn) = (range.start, 0);
        let last_tenth = range.end - (range.end - range.start) / 10;
        let mut last = None;
        for until in [last_tenth, range.end] {
            let (first, start) = (next, Instant::now());
            driver::append(&store, 16, Until::Exhausted, || {
                let end = (next + BATCH).min(until);
                let batch: Vec<_> = (next..end).map(workload::draft).collect();
                if next % 100_000 < BATCH {
                    setting.progress.say(&format!("filling a store: {next} of {} events", range.end));
                }
                timeline.set(workload::timestamp_ms(next, events));
                next = end;
                turn = (turn + 1) % chains.len();
                self.expected[turn] += batch.len() as u64;
                (!batch.is_empty()).then_some((chains[turn], batch))
            })?;
            last = Some((next - first) as f64 / start.elapsed().as_secs_f64());
        }
        Ok((store, last.unwrap_or(0.0)))
    }

    /// Keeps in mind what was acknowledged.
    pub fn acknowledge(&mut self, loaded: &Loaded) {
        for (expected, acknowledged) in self.expected.iter_mut().zip(&loaded.acknowledged) {
            *expected += acknowledged;
        }
    }

    pub fn events(&self) -> u64 {
        self.expected.iter().sum()
    }

    /// The same for the last chain, of a run that ended with the server.
    pub fn acknowledge_last(&mut self, events: u64) {
        *self.expected.last_mut().expect("there is at least one chain") += events;
    }

    /// Fails unless every chain has just the events that were acknowledged. `lost_answers` may be there as
    /// well: requests that were under way when the server was killed.
    pub fn check(&mut self, lost_answers: u64) -> Outcome<()> {
        let mut client = self.client()?;
        for (account, expected) in self.accounts.iter().zip(&mut self.expected) {
            let answer = client.with_token(&account.key).ask("GET", "/v1/events?limit=1", "", 200)?;
            let head = answer["events"][0]["chain_seq"].as_u64().unwrap_or(0);
            if head < *expected || head > *expected + lost_answers {
                return Err(format!("{expected} events were acknowledged, but the chain has {head}").into());
            }
            *expected = head;
        }
        Ok(())
    }

    /// CPU time and bytes written to the device up to now. With a database, its time and that of all nodes;
    /// the bytes are then its own affair.
    pub fn counters(&self) -> (Duration, u64) {
        match &self.on_postgres {
            None => (self.process().cpu(), device_bytes_written(&self.dir).unwrap_or(0)),
            Some(_) => (self.parts().iter().map(|(_, cpu)| *cpu).sum(), 0),
        }
    }

    /// CPU time up to now of the servers together and of each node of their database.
    pub fn parts(&self) -> Vec<(String, Duration)> {
        let Some(OnPostgres { others, database }) = &self.on_postgres else { return Vec::new() };
        let servers: Duration = others.iter().chain(&self.process).map(Process::cpu).sum();
        std::iter::once(("servers".to_owned(), servers)).chain(database.cpu()).collect()
    }
}

fn start(
    program: &Path,
    dir: &Path,
    unsafe_storage: bool,
    database: Option<&str>,
    certificate: Option<&Certificate>,
    environment: &[(&str, &str)],
) -> Outcome<(Process, SocketAddr)> {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SEALOG_")) {
        command.env_remove(name);
    }
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .env("SEALOG_OPERATOR_TOKEN", TOKEN)
        .envs([
            ("SEALOG_LIMITS_PER_IP_RPS", "0"),
            ("SEALOG_LIMITS_LIVE_RPS", "0"),
            ("SEALOG_LIMITS_TEST_RPS", "0"),
        ])
        .envs(database.map(|url| ("SEALOG_STORE", url)))
        // A database has other tools for copies.
        .envs(database.is_none().then_some(("SEALOG_REPLICATION_ENABLED", "true")))
        .env("SEALOG_ALLOW_UNSAFE_STORAGE", unsafe_storage.to_string())
        .envs(environment.iter().copied())
        .current_dir(dir.parent().unwrap_or(dir));
    if let Some(Certificate { file, key, .. }) = certificate {
        command.env("SEALOG_TLS_CERT", file).env("SEALOG_TLS_KEY", key);
    }
    Process::start("sealog", command, |line| {
        let entry: Value = serde_json::from_str(line).ok()?;
        let listening = entry["fields"]["message"] == "listening";
        listening.then(|| entry["fields"]["address"].as_str()?.parse().ok()).flatten()
    })
}

fn text(answer: &Value, name: &str) -> Outcome<String> {
    Ok(answer[name].as_str().ok_or_else(|| format!("no {name} in {answer}"))?.to_owned())
}

/// A tenant that knows the actions of the workload.
fn tenant(client: &mut Client) -> Outcome<String> {
    let body = json!({ "name": "bench" }).to_string();
    let tenant = text(&client.ask("POST", "/operator/v1/tenants", &body, 201)?, "tenant_id")?;
    for action in workload::actions().filter(|action| Catalog::builtin().entry(action).is_none()) {
        let body = json!({ "action": action, "category": "documents" }).to_string();
        client.ask("POST", &format!("/operator/v1/tenants/{tenant}/actions"), &body, 201)?;
    }
    Ok(tenant)
}

fn account(client: &mut Client, tenant: &str) -> Outcome<Account> {
    let path = format!("/operator/v1/tenants/{tenant}/projects");
    let project =
        text(&client.ask("POST", &path, &json!({ "name": "bench" }).to_string(), 201)?, "project_id")?;
    let body = json!({ "name": "bench", "mode": "live" }).to_string();
    let key =
        text(&client.ask("POST", &format!("/operator/v1/projects/{project}/keys"), &body, 201)?, "key")?;
    let uuid = |text: &str| Uuid::parse(text).ok_or("not an id");
    let chain = ChainId {
        tenant_id: TenantId(uuid(tenant)?),
        project_id: ProjectId(uuid(&project)?),
        mode: Mode::Live,
    };
    Ok(Account { chain, key })
}
