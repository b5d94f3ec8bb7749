//! A PostgreSQL of the tests' own, in a temporary directory, with a database for each test.
//! `scripts/rust-tests` starts one cluster for all programs of a run; a test program that runs alone starts
//! its own.
//!
//! The cluster ends with the program, however that ends: a shell waits for the end of a pipe that only the
//! program holds, then stops the server and removes its files.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::waiting::eventually;

/// `$1` is a directory for everything, `$2` where the programs are, `$3` the port, `$4` further settings,
/// `$5` how the data is made. Says `ready` or why not.
const KEEPER: &str = r#"
# What ends the tests must not end whoever cleans up after them.
trap '' HUP INT TERM
set -eu
cd "$1"
export LC_ALL=C.UTF-8
export PATH="$2:$PATH"
sh -c "$5" >make.out 2>&1 || { cat make.out; exit 1; }
cat >>data/postgresql.conf <<END
listen_addresses = '127.0.0.1'
port = $3
unix_socket_directories = '$1'
max_connections = 400
shared_buffers = 64MB
logging_collector = off
$4
END
"$2/pg_ctl" -D data -w -t 60 -l log start >start.out 2>&1 || { cat start.out log; exit 1; }
echo ready
cat >/dev/null
"$2/pg_ctl" -D data -m immediate -w stop >/dev/null 2>&1 || true
cd /
rm -rf "$1"
"#;

const NEW_DATA: &str = "initdb -D data -A trust -U owner -E UTF8 --locale=C.UTF-8 --no-sync";

#[derive(Debug)]
pub struct Cluster {
    pub port: u16,
    pub dir: PathBuf,
    data: PathBuf,
    log: PathBuf,
    bin: PathBuf,
    /// Its end of the pipe closes with this process. None if the cluster belongs to the run.
    _keeper: Option<Child>,
}

/// A Citus cluster that is running, as `just citus DIR` says: its coordinator and its workers. Its
/// file `nodes` has a line for each, the coordinator first: its name, which is that of its data, and its
/// port. The file `bin` says where the programs are.
pub fn citus() -> (&'static Cluster, &'static [Cluster]) {
    static SHARED: OnceLock<Vec<Cluster>> = OnceLock::new();
    let nodes = SHARED.get_or_init(|| {
        let dir = std::env::var("SEALOG_TEST_CITUS").expect("SEALOG_TEST_CITUS names a cluster's directory");
        let dir = PathBuf::from(dir);
        let read = |file: &str| std::fs::read_to_string(dir.join(file)).unwrap();
        let bin = PathBuf::from(read("bin").trim());
        let node = |line: &str| {
            let (name, port) = line.split_once(' ').expect("a node is NAME PORT");
            let (data, log) = (dir.join(name), dir.join(format!("{name}.log")));
            let port = port.parse().unwrap();
            let node = Cluster { port, dir: dir.clone(), data, log, bin: bin.clone(), _keeper: None };
            // Fails where it is there already.
            node.try_sql("postgres", "postgres", "CREATE ROLE owner SUPERUSER LOGIN");
            node.drop_databases_of_ended_programs();
            node
        };
        read("nodes").lines().map(node).collect()
    });
    nodes.split_first().expect("there is a coordinator")
}

static SHARED: OnceLock<Cluster> = OnceLock::new();

/// The cluster that tests share, those of other programs too: a test that stops it or changes its settings
/// starts one of its own.
pub fn cluster() -> &'static Cluster {
    SHARED.get_or_init(|| match std::env::var("TEST_POSTGRES_CLUSTER") {
        Ok(address) => Cluster::at(&address),
        Err(_) => Cluster::start(""),
    })
}

impl Cluster {
    /// Where a cluster is, for [`Cluster::at`].
    pub fn address(&self) -> String {
        format!("{}:{}", self.port, self.dir.display())
    }

    fn at(address: &str) -> Cluster {
        let (port, dir) = address.split_once(':').expect("an address is PORT:DIRECTORY");
        Cluster::in_dir(port.parse().unwrap(), dir.into(), programs(), None)
    }

    fn in_dir(port: u16, dir: PathBuf, bin: PathBuf, keeper: Option<Child>) -> Cluster {
        Cluster { port, data: dir.join("data"), log: dir.join("log"), dir, bin, _keeper: keeper }
    }

    /// Starts a cluster with further lines for `postgresql.conf`.
    pub fn start(settings: &str) -> Cluster {
        Cluster::start_on(NEW_DATA, settings)
    }

    /// A standby that follows this cluster.
    pub fn standby(&self) -> Cluster {
        let copy =
            format!("pg_basebackup -h 127.0.0.1 -p {} -U owner -D data -R -c fast --no-sync", self.port);
        Cluster::start_on(&copy, "wal_retrieve_retry_interval = '100ms'")
    }

    /// A cluster that archives its write-ahead log, in `archive` of its directory.
    pub fn archiving() -> Cluster {
        Cluster::start(
            "archive_mode = on\narchive_command = 'mkdir -p ../archive && test ! -f ../archive/%f && cp %p ../archive/%f'",
        )
    }

    /// Makes a base backup, in `base` of its directory.
    pub fn base_backup(&self) {
        let (base, port) = (self.dir.join("base"), self.port.to_string());
        let args = [
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "owner",
            "-D",
            base.to_str().unwrap(),
            "-c",
            "fast",
            "--no-sync",
        ];
        let made = self.run("pg_basebackup", &args);
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    /// Another cluster, of the base backup of this one and what it has archived, up to a named restore point
    /// or to the end.
    pub fn recovered(&self, target: Option<&str>) -> Cluster {
        let dir = self.dir.display();
        // The copy has the settings of the old cluster; those that come later count.
        let copy = format!("cp -r {dir}/base data && chmod 700 data && touch data/recovery.signal");
        let target = target.map_or(String::new(), |name| {
            format!("recovery_target_name = '{name}'\nrecovery_target_action = 'promote'\n")
        });
        let settings = format!("archive_mode = off\nrestore_command = 'cp {dir}/archive/%f %p'\n{target}");
        let cluster = Cluster::start_on(&copy, &settings);
        eventually("it takes changes", || cluster.sql("postgres", "SELECT pg_is_in_recovery()") == "f");
        cluster
    }

    /// Makes a standby a primary.
    pub fn promote(&self) {
        let promoted = self.run("pg_ctl", &["-D", self.data.to_str().unwrap(), "-w", "promote"]);
        assert!(promoted.status.success(), "{}", String::from_utf8_lossy(&promoted.stderr));
    }

    /// Sets something for good, while the server runs.
    pub fn set(&self, setting: &str) {
        self.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
        self.sql("postgres", "SELECT pg_reload_conf()");
    }

    fn start_on(data: &str, settings: &str) -> Cluster {
        let bin = programs();
        for _ in 0..20 {
            // In memory where there is some: what is tested here is the store, and the server syncs all the
            // same.
            let home = [Path::new("/dev/shm"), &std::env::temp_dir()]
                .into_iter()
                .find(|dir| dir.is_dir())
                .unwrap()
                .to_owned();
            let dir = tempfile::Builder::new().prefix("sealog-postgres-").tempdir_in(home).unwrap().keep();
            // Free now; if it is taken before the server gets there, the next round has another one.
            let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
            let mut command = unprivileged(&dir);
            command
                .args(["sh", "-c", KEEPER, "keeper"])
                .arg(&dir)
                .arg(&bin)
                .arg(port.to_string())
                .arg(settings)
                .arg(data);
            let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let mut said = String::new();
            for line in BufReader::new(keeper.stdout.take().unwrap()).lines().map_while(Result::ok) {
                if line == "ready" {
                    return Cluster::in_dir(port, dir, bin, Some(keeper));
                }
                said.push_str(&line);
                said.push('\n');
            }
            keeper.wait().unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
            assert!(said.contains("Address already in use"), "PostgreSQL does not start:\n{said}");
        }
        panic!("no free port");
    }

    pub fn url(&self, database: &str) -> String {
        format!("postgres://owner@127.0.0.1:{}/{database}", self.port)
    }

    /// A new, empty database.
    pub fn database(&'static self) -> Database {
        Database::on(self, &[])
    }

    /// What a statement returns: rows in lines, columns apart by `|`. Fails the test if it fails.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.try_sql("owner", database, sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    pub fn try_sql(&self, role: &str, database: &str, sql: &str) -> Output {
        self.psql(role, database).arg("-c").arg(sql).output().unwrap()
    }

    fn psql(&self, role: &str, database: &str) -> Command {
        let mut command = Command::new(self.bin.join("psql"));
        command.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]);
        command.args(["-U", role, "-d", database, "-p"]).arg(self.port.to_string());
        command
    }

    /// Begins a transaction with these statements, which have been done when this returns, and leaves it
    /// open.
    pub fn hold(&self, database: &str, sql: &str) -> Held {
        let mut held = self.session(database);
        held.does(&format!("BEGIN; {sql}"));
        held
    }

    fn session(&self, database: &str) -> Held {
        let mut psql =
            self.psql("owner", database).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(psql.stdout.take().unwrap());
        Held { psql, said }
    }

    /// Makes or drops a database. Whether it did.
    fn administers(&self, sql: &str) -> bool {
        // A thousand tests have one each on the shared cluster, and to start psql costs more than the
        // statement.
        static SESSION: Mutex<Option<Held>> = Mutex::new(None);
        if !SHARED.get().is_some_and(|shared| std::ptr::eq(shared, self)) {
            return self.try_sql("owner", "postgres", sql).status.success();
        }
        let mut session = SESSION.lock().unwrap_or_else(PoisonError::into_inner);
        let mut held = session.take().unwrap_or_else(|| self.session("postgres"));
        let done = held.has_done(sql);
        // It ends at the first failure.
        *session = done.then_some(held);
        done
    }

    /// A program of PostgreSQL, run as the user that owns the cluster.
    pub fn run(&self, program: &str, args: &[&str]) -> Output {
        let mut command = unprivileged(&self.dir);
        command.arg(self.bin.join(program)).args(args);
        command.output().unwrap()
    }

    /// Puts a copy of a file into the cluster's directory, for its eyes only.
    pub fn adopt(&self, from: &Path, to: &str) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let (to, owner) = (self.dir.join(to), std::fs::metadata(&self.data).unwrap());
        std::fs::copy(from, &to).unwrap();
        std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&to, Some(owner.uid()), Some(owner.gid())).unwrap();
    }

    /// The process id of the server, while there is one.
    pub fn postmaster(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.data.join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    pub fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["-D", self.data.to_str().unwrap(), "-m", mode, "-w", "stop"]);
    }

    /// Ends the server without warning, and waits until nothing is left of it.
    pub fn kill_9(&self) {
        let Some(pid) = self.postmaster() else { return };
        Command::new("kill").arg("-9").arg(pid.to_string()).status().unwrap();
        eventually("nothing is left of the server", || {
            let left = self.processes();
            if !left.is_empty() {
                Command::new("kill").arg("-9").args(&left).output().unwrap();
            }
            left.is_empty()
        });
        // Its number is taken until whoever adopted the process has noticed its end, which can take a minute.
        // Until then these files would keep the next server from starting.
        let socket = self.dir.join(format!(".s.PGSQL.{}.lock", self.port));
        for lock in [self.data.join("postmaster.pid"), socket] {
            std::fs::remove_file(lock).unwrap();
        }
    }

    /// Stops all its processes until this is dropped: connections stay, and nobody says anything, as behind a
    /// network that was cut.
    pub fn silenced(&'static self) -> Silenced {
        let silenced = Silenced(self);
        silenced.signal("-STOP");
        silenced
    }

    /// The server's processes all work in the directory of its data. Those that have ended work nowhere.
    fn processes(&self) -> Vec<String> {
        let data = self.data.canonicalize().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        all.filter(|process| std::fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd == data))
            .map(|process| process.file_name().into_string().unwrap())
            .collect()
    }

    /// Those that were lent ([`Lender`]) outlive their program.
    fn drop_databases_of_ended_programs(&self) {
        for name in
            self.sql("postgres", "SELECT datname FROM pg_database WHERE datname LIKE 'test\\_%'").lines()
        {
            let pid = name.split('_').nth(1).unwrap_or_default();
            if !Path::new("/proc").join(pid).exists() {
                self.try_sql("owner", "postgres", &format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"));
            }
        }
    }

    /// What the server has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Starts the server again.
    pub fn restart(&self) {
        let [data, log] = [&self.data, &self.log].map(|path| path.to_str().unwrap());
        let port = format!("-p {}", self.port);
        let args = ["-D", data, "-o", &port, "-w", "-t", "60", "-l", log, "start"];
        let started = self.run("pg_ctl", &args);
        let said = std::fs::read_to_string(log).unwrap_or_default();
        let end: Vec<&str> = said.lines().rev().take(20).collect();
        assert!(started.status.success(), "the server does not start again; its log, newest first: {end:#?}");
    }
}

/// A cluster that says nothing.
#[derive(Debug)]
pub struct Silenced(&'static Cluster);

impl Silenced {
    fn signal(&self, signal: &str) {
        Command::new("kill").arg(signal).args(self.0.processes()).output().unwrap();
    }
}

impl Drop for Silenced {
    fn drop(&mut self) {
        self.signal("-CONT");
    }
}

/// `$1` is a directory, `$2` the settings. Ends as the cluster does.
const POOLER: &str = r#"
trap '' HUP INT TERM
set -eu
cd "$1"
echo "$2" >pooler.ini
pgbouncer -q pooler.ini >pooler.out 2>&1 &
echo ready
cat >/dev/null
kill -KILL "$!"
"#;

/// PgBouncer in front of a cluster. In transaction mode each transaction may get another of three
/// connections.
#[derive(Debug)]
pub struct Pooler {
    pub port: u16,
    _keeper: Child,
}

impl Pooler {
    pub fn start(cluster: &Cluster) -> Pooler {
        Pooler::in_mode(cluster, "transaction", 3)
    }

    /// `session` or `transaction`, and connections to the cluster.
    pub fn in_mode(cluster: &Cluster, mode: &str, size: usize) -> Pooler {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=owner\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             unix_socket_dir =\npool_mode = {mode}\ndefault_pool_size = {size}\nmax_client_conn = 200\n",
            cluster.port
        );
        // Several may stand in front of one cluster.
        let dir = tempfile::Builder::new().prefix("pooler-").tempdir_in(&cluster.dir).unwrap().keep();
        let mut command = unprivileged(&dir);
        command.args(["sh", "-c", POOLER, "pooler"]).arg(&dir).arg(settings);
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "ready\n");
        let out = dir.join("pooler.out");
        eventually("PgBouncer takes connections (see pooler.out)", || {
            let said = std::fs::read_to_string(&out).unwrap_or_default();
            assert!(!said.contains("FATAL"), "PgBouncer does not start: {said}");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        Pooler { port, _keeper: keeper }
    }
}

/// A database that is dropped with this.
#[derive(Debug)]
pub struct Database {
    cluster: &'static Cluster,
    /// Those that have it too, of a Citus cluster.
    workers: &'static [Cluster],
    /// Where its URL leads.
    ports: Vec<u16>,
    pub name: String,
}

impl Database {
    /// A new, empty one on a Citus cluster, with the extension on each node and all of them known to the
    /// coordinator.
    pub fn on_citus() -> Database {
        let (coordinator, workers) = citus();
        let database = Database::on(coordinator, workers);
        for node in database.nodes() {
            node.sql(&database.name, "CREATE EXTENSION citus");
        }
        database.sql(&format!("SELECT citus_set_coordinator_host('127.0.0.1', {})", coordinator.port));
        // Citus gives each node that is added all roles, and databases share them: two at once fail.
        static ADDING: Mutex<()> = Mutex::new(());
        let adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in workers {
            database.sql(&format!("SELECT citus_add_node('127.0.0.1', {})", worker.port));
        }
        drop(adding);
        // Enough for every worker to have some.
        database.sql(&format!("ALTER DATABASE {} SET citus.shard_count = 4", database.name));
        database
    }

    /// With the tables of events, spread over the workers of a Citus cluster.
    pub fn distributed() -> Database {
        let database = Database::on_citus();
        sealog_store::postgres::migrate(&database.url()).unwrap();
        sealog_store::postgres::distribute(&database.url(), |_| {}).unwrap();
        database
    }

    fn on(cluster: &'static Cluster, workers: &'static [Cluster]) -> Database {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::SeqCst));
        let database = Database { cluster, workers, ports: vec![cluster.port], name };
        for node in database.nodes() {
            assert!(node.administers(&format!("CREATE DATABASE {}", database.name)), "psql says why");
        }
        database
    }

    /// With a URL that leads to any of the workers.
    pub fn by_workers(mut self) -> Database {
        self.ports = self.workers.iter().map(|worker| worker.port).collect();
        self
    }

    pub fn coordinator(&self) -> &'static Cluster {
        self.cluster
    }

    pub fn workers(&self) -> &'static [Cluster] {
        self.workers
    }

    /// The cluster, or the nodes of one of Citus.
    fn nodes(&self) -> impl Iterator<Item = &'static Cluster> {
        std::iter::once(self.cluster).chain(self.workers)
    }

    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let spread = if hosts.len() > 1 { "?load_balance_hosts=random" } else { "" };
        format!("postgres://owner@{}/{}{spread}", hosts.join(","), self.name)
    }

    pub fn sql(&self, sql: &str) -> String {
        self.cluster.sql(&self.name, sql)
    }

    pub fn try_sql(&self, role: &str, sql: &str) -> Output {
        self.cluster.try_sql(role, &self.name, sql)
    }

    /// Begins a transaction with these statements, which have been done when this returns, and leaves it
    /// open.
    pub fn hold(&self, sql: &str) -> Held {
        self.cluster.hold(&self.name, sql)
    }

    /// Everything in it, as text.
    pub fn dump(&self) -> String {
        self.dump_with(&[])
    }

    /// The same without the rows that are derived from the events: whichever process has the store open
    /// writes them behind the events, at moments of its own.
    pub fn dump_without_derived_rows(&self) -> String {
        const DERIVED: [&str; 4] = ["event_fields", "fields_indexed", "counts", "counted"];
        let without = DERIVED.map(|table| format!("--exclude-table-data=sealog.{table}"));
        self.dump_with(&without.each_ref().map(String::as_str))
    }

    fn dump_with(&self, arguments: &[&str]) -> String {
        let output =
            self.cluster.run("pg_dump", &[&["-d", &self.cluster.url(&self.name)], arguments].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        for node in self.nodes() {
            node.administers(&format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name));
        }
    }
}

/// Databases on a Citus cluster that tests use one after the other, since each takes seconds to make.
#[derive(Debug, Default)]
pub struct Lender(Mutex<Vec<Database>>);

impl Lender {
    pub const fn new() -> Lender {
        Lender(Mutex::new(Vec::new()))
    }

    /// One that is not in use, made empty, or a new one.
    pub fn lend(&'static self, make: fn() -> Database, empty: &str) -> Lent {
        let idle = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(database) = &idle {
            database.sql(empty);
        }
        Lent { lender: self, database: Some(idle.unwrap_or_else(make)) }
    }
}

/// Goes back when it is dropped; the test drops its stores before.
#[derive(Debug)]
pub struct Lent {
    lender: &'static Lender,
    database: Option<Database>,
}

impl AsRef<Database> for Database {
    fn as_ref(&self) -> &Database {
        self
    }
}

impl AsRef<Database> for Lent {
    fn as_ref(&self) -> &Database {
        self
    }
}

impl std::ops::Deref for Lent {
    type Target = Database;

    fn deref(&self) -> &Database {
        self.database.as_ref().expect("it has it until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // No test uses what a failed one has left behind.
        if !std::thread::panicking() {
            self.lender.0.lock().unwrap_or_else(PoisonError::into_inner).extend(self.database.take());
        }
    }
}

/// A transaction that is open until the test has seen what it holds up. Dropped, it is rolled back.
#[derive(Debug)]
pub struct Held {
    psql: Child,
    said: BufReader<ChildStdout>,
}

impl Held {
    /// Ends the transaction with further statements, and is over when this returns.
    pub fn commit(mut self, sql: &str) {
        self.does(&format!("{sql} COMMIT"));
    }

    /// Ends the transaction without a trace, and is over when this returns.
    pub fn release(mut self) {
        self.does("ROLLBACK");
    }

    #[track_caller]
    fn does(&mut self, sql: &str) {
        assert!(self.has_done(sql), "it failed: {sql}");
    }

    fn has_done(&mut self, sql: &str) -> bool {
        if writeln!(self.psql.stdin.as_ref().unwrap(), "{sql};\n\\echo done").is_err() {
            return false;
        }
        let mut line = String::new();
        while line != "done\n" {
            line.clear();
            if !self.said.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
                return false;
            }
        }
        true
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

/// Where Debian puts the newest PostgreSQL, or where `SEALOG_TEST_POSTGRES_BIN` says.
fn programs() -> PathBuf {
    if let Some(bin) = std::env::var_os("SEALOG_TEST_POSTGRES_BIN") {
        return bin.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = versions.filter_map(|version| version.file_name().to_str()?.parse::<u32>().ok()).max();
    let newest = newest.expect("PostgreSQL is not installed; scripts/setup installs it");
    PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"))
}

/// PostgreSQL does not run as root, so root hands over to the user that its package creates.
fn unprivileged(dir: &Path) -> Command {
    let id = |flag: &str, name: &[&str]| {
        let output = Command::new("id").arg(flag).args(name).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse::<u32>()
    };
    if id("-u", &[]) != Ok(0) {
        return Command::new("env");
    }
    let user = id("-u", &["postgres"]).expect("there is no user postgres; scripts/setup installs PostgreSQL");
    let group = id("-g", &["postgres"]).unwrap();
    std::os::unix::fs::chown(dir, Some(user), Some(group)).unwrap();
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), format!("--regid={group}"), "--clear-groups".to_owned()]);
    command.current_dir(dir);
    command
}
