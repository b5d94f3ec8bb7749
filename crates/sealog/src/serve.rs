//! `sealog serve`.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clap::ArgMatches;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealog_cli::exit::Failure;
use sealog_dashboard::ops::{Console, Instance, Room};
use sealog_dashboard::{Dashboard, Pages};
use sealog_docs::Program;
use sealog_engine::Service;
use sealog_engine::{Begins, Opened, Place};
use sealog_server::config::Config;
use sealog_server::{App, Server, background};
use sealog_service::evidence::search::Work;
use sealog_service::jobs::supervise::Loop;
use sealog_service::people::admin::Admin;
use sealog_service::records::system_chain::Wake;
use sealog_store::clock::GuardedWorld;
use sealog_store::world::{SystemWorld, World};
use sealog_store::{Store, StoreError, embedded};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::host::{Host, SignedLog};
use crate::admin::socket::AdminSocket;
use crate::config::Settings;
use crate::fence::Fence;
use crate::otlp::Exporter;
use crate::supervisor::{Pulses, Supervisor};
use crate::{config, demo_mark, first_run, logging, traces};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;

/// Says that a write or sync of the store has failed: `EX_IOERR` of sysexits.h.
const EXIT_STORE_FAILED: u8 = 74;
/// How often the store is asked whether it has failed.
const FAILURE_POLL: Duration = Duration::from_secs(1);
/// How long a server whose store has failed goes on: enough for `/readyz` to be asked and for answers to be
/// read.
const FAILURE_GRACE: Duration = Duration::from_secs(5);
/// How long to wait for a database that is not there: doubled from try to try.
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long after the start the pages of `/docs` are made.
const DOCS_AFTER: Duration = Duration::from_secs(30);

pub(crate) fn run(matches: &ArgMatches, program: fn() -> Program) -> Result<ExitCode, Failure> {
    let mut settings = config::load(matches, std::env::vars())?;
    settings.server.program = Arc::new(LazyLock::new(program));
    settings.given = Some(matches.clone());
    demo_mark::refuse(&settings.data_dir)?;
    logging::to_stderr(settings.log_level, settings.log_format);
    serve(settings, &prepare)
}

/// Serves until it is asked to stop. `prepare` is run once the address is known, and before anybody is
/// answered; where the store cannot be reached, it is run again.
pub(crate) fn serve(
    mut settings: Settings,
    prepare: &impl AsyncFn(&Opened, &Arc<dyn World>, &Settings) -> Result<(), first_run::Failure>,
) -> Result<ExitCode, Failure> {
    // Before the store is opened, which keeps as many of its files open as it may.
    raise_file_size_limit();
    let files = raise_file_limit();
    settings.server.connections_max = connections_max(settings.server.connections_max, files);
    // One for the store and for requests: trials and rate windows go by the same time as events.
    let supervisor = Supervisor::from_environment();
    supervisor.status("opening the store");
    let world: Arc<dyn World> = Arc::new(GuardedWorld::new(Arc::new(SystemWorld), settings.clock_strict));
    let main = runtime()?;
    let Some((store, mut stop)) = main.block_on(open_store(&settings, &world))? else {
        return Ok(ExitCode::SUCCESS);
    };
    if let Some(trust) = settings.trust.take() {
        let known = main.block_on(store.control().known_log()).map_err(|error| error.to_string())?;
        let trust = store
            .trust(trust, Arc::clone(&world), Begins::AtStart, known)
            .map_err(sealog_backup::unopened)?;
        main.block_on(trust.guard()).map_err(|error| error.to_string())?;
        settings.service.trust = Some(Arc::new(trust));
    }
    let (listener, address) = main.block_on(async { listen_alone(settings.listen) })?;
    let metrics =
        settings.metrics_listen.map(|wanted| main.block_on(async { listen_alone(wanted) })).transpose()?;
    let plain =
        settings.redirect_listen.map(|wanted| main.block_on(async { listen_alone(wanted) })).transpose()?;
    let console =
        settings.ops.listen.map(|wanted| main.block_on(async { listen_alone(wanted) })).transpose()?;
    settings.listening_on(address);
    if let Some((_, address)) = &console {
        settings.ops.listen = Some(*address);
    }
    let prepared = main.block_on(async {
        let mut retry = Retry::new();
        loop {
            match prepare(&store, &world, &settings).await {
                Err(first_run::Failure::Store(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::ControlUnavailable(_)
                    | StoreError::Deadline),
                )) => {
                    if !retry.wait(&error, &mut stop).await {
                        return Ok(false);
                    }
                }
                prepared => return prepared.map(|()| true).map_err(|failure| failure.to_string()),
            }
        }
    })?;
    if !prepared {
        store.close();
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(tls) = &settings.server.tls {
        tls.say(world.now_ms() / 1000);
    } else if !address.ip().to_canonical().is_loopback() && settings.server.trusted_proxies.is_empty() {
        tracing::warn!(%address, "other machines can reach plain HTTP, which exposes keys and passwords; set tls.cert and tls.key, or use a TLS proxy and add it to trusted_proxies");
    }
    tracing::info!(%address, data_dir = %settings.data_dir.display(), "listening");
    let data_dir = settings.data_dir.clone();
    settings.server.data_dir = Some(data_dir.clone());
    let console_url = settings.console_url();
    let failure = watch_store(store.clone(), settings.exit_on_store_failure, settings.data_dir);
    let traces = traces::begin(&mut settings.server)?;
    let service =
        Service::new(store.store(), Arc::clone(store.control()), Arc::clone(&world), settings.service);
    let app = App::new(service, settings.server);
    // Before the first event is taken.
    let fence = main.block_on(Fence::begin(&app, &store))?;
    let documented = Arc::downgrade(&app);
    let thread = std::thread::Builder::new().name("sealog-docs".into());
    // Events first: what waited for this start comes now, and a page that comes sooner makes them itself.
    drop(thread.spawn(move || {
        std::thread::sleep(DOCS_AFTER);
        if let Some(app) = documented.upgrade() {
            app.prepare_docs();
        }
    }));
    let (app_url, wake) = (Some(app.service.settings.app_url.clone()), app.service.admin.wake().clone());
    let pages = Pages {
        console: console_url.as_ref().ok().map(|url| open_console(&app, &store, url, &data_dir)),
        console_is_apart: console.is_some(),
        dashboard: dashboard(&app, data_dir.clone()),
    };
    let signed_log =
        app.service.trust().map_or(SignedLog::Off, |trust| SignedLog::OfServer(Arc::clone(trust)));
    let host = Host { opened: store.clone(), world, app_url, console_url, wake, signed_log };
    let admin = AdminSocket::new(data_dir, host);
    if let Some((_, address)) = &console {
        tracing::info!(%address, "operator console has its own address");
    }
    let console = console.map(|(listener, _)| listener);
    let metrics = metrics.map(|(listener, address)| {
        tracing::info!(%address, "/metrics needs no token on this address; restrict access to it");
        listener
    });
    let plain = plain.map(|(listener, address)| {
        tracing::info!(%address, "redirecting plain HTTP to TLS");
        listener
    });
    if metrics.is_none() {
        tracing::info!(
            "/metrics needs no token for direct requests from this machine; set metrics_listen to give it its own address"
        );
    }
    supervisor.ready(&format!("listening on {address}"));
    let listeners = Listeners { main: listener, address, metrics, console, plain };
    let pulses = Pulses::of(cores());
    let watched = Watched { supervisor, pulses, stop, traces, given: settings.given.take() };
    serve_on_all_cores(&main, (&app, &pages), listeners, watched, failure, (&admin, &fence))?;
    drop(fence);
    drop(app);
    store.close();
    drop(admin);
    Ok(match store.failure() {
        None => {
            // Of a database only the database knows.
            let synced = if store.is_embedded() { "; everything is synced" } else { "" };
            tracing::info!("stopped{synced}");
            ExitCode::SUCCESS
        }
        Some(cause) => {
            tracing::error!(
                cause,
                code = EXIT_STORE_FAILED,
                "stopped after a failed write or sync; acknowledged events are on disk, and the next start decides about events that got an error"
            );
            ExitCode::from(EXIT_STORE_FAILED)
        }
    })
}

/// Opens the store that the settings name. A database that cannot be reached is waited for; nothing if the
/// server was asked to stop meanwhile.
async fn open_store(settings: &Settings, world: &Arc<dyn World>) -> Result<Option<(Opened, Stop)>, Failure> {
    let (place, data_dir) = (settings.store.clone(), settings.data_dir.clone());
    let (options, world) = (settings.open_options(), Arc::clone(world));
    let open = move || Opened::open(&place, &data_dir, options, Arc::clone(&world));
    let stop = || Stop::new().map_err(|error| error.to_string());
    if settings.store == Place::Embedded {
        // Until it is open, a signal ends the process by itself. From here on it is listened to, before
        // anyone is told that the server listens.
        let store = open().map_err(sealog_backup::unopened)?;
        return Ok(Some((store, stop()?)));
    }
    let (mut stop, mut retry) = (stop()?, Retry::new());
    loop {
        // On a thread of its own: it takes seconds to find out that nobody answers, and a signal is heard at
        // once.
        let (opened, outcome) = tokio::sync::oneshot::channel();
        let open = open.clone();
        let thread = std::thread::Builder::new().name("sealog-open".into());
        thread.spawn(move || opened.send(open())).map_err(|error| error.to_string())?;
        let outcome = tokio::select! {
            () = stop.asked() => return Ok(None),
            outcome = outcome => outcome.map_err(|_| "panic while opening the store".to_owned())?,
        };
        match outcome {
            Ok(store) => return Ok(Some((store, stop))),
            Err(unopened) if unopened.may_pass => {
                if !retry.wait(&unopened, &mut stop).await {
                    return Ok(None);
                }
            }
            Err(unopened) => return Err(sealog_backup::unopened(unopened)),
        }
    }
}

/// Waits longer from one failed try to the next.
struct Retry {
    after: Duration,
}

impl Retry {
    fn new() -> Retry {
        Retry { after: RETRY_FIRST }
    }

    /// False if the server was asked to stop.
    async fn wait(&mut self, problem: &dyn std::fmt::Display, stop: &mut Stop) -> bool {
        let retry_in_ms = u64::try_from(self.after.as_millis()).unwrap_or(u64::MAX);
        tracing::warn!(%problem, retry_in_ms, "database unavailable; retrying");
        let after = self.after;
        self.after = (after * 2).min(RETRY_MAX);
        tokio::select! {
            () = stop.asked() => {
                tracing::info!("stopped before the database was available");
                false
            }
            () = tokio::time::sleep(after) => true,
        }
    }
}

/// Makes the first keys, if there are none.
async fn prepare(
    store: &Opened,
    world: &Arc<dyn World>,
    settings: &Settings,
) -> Result<(), first_run::Failure> {
    let _startup = store.startup_lock().await.map_err(first_run::Failure::Store)?;
    let control = Arc::clone(store.control());
    // The drain that it would wake has not begun, and looks at everything when it does.
    let admin = Admin::new(control, Arc::clone(world), &settings.service.plans, Wake::default());
    let (base_url, app_url) = (&*settings.server.base_url, &*settings.service.app_url);
    let vkey = match &settings.service.trust {
        Some(trust) => trust.vkey().await.map_err(first_run::Failure::Store)?,
        None => None,
    };
    let data_dir = &settings.data_dir;
    let addresses = first_run::Addresses { data_dir, base_url, app_url, vkey: vkey.as_deref() };
    first_run::prepare(store.control(), &admin, world, addresses).await
}

/// The operator's console.
fn open_console(app: &App, store: &Opened, url: &str, data_dir: &Path) -> Arc<Console> {
    let (dir, is_embedded) = (data_dir.to_owned(), store.is_embedded());
    let room = move || room(&dir, is_embedded).map_err(|error| error.to_string());
    let instance = Instance {
        url: url.to_owned(),
        docs_url: app.config.docs_url.clone(),
        store: store.describe(),
        schema: sealog_control::SCHEMA.sqlite.len(),
        room: Arc::new(room),
    };
    Console::new(Arc::clone(&app.service), instance)
}

fn room(dir: &Path, is_embedded: bool) -> std::io::Result<Room> {
    let disk = rustix::fs::statvfs(dir)?;
    let files = ["control.db", "control.db-wal"].map(|name| std::fs::metadata(dir.join(name)));
    let control_bytes = files.iter().flatten().map(std::fs::Metadata::len).sum();
    Ok(Room {
        dir: dir.display().to_string(),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        reserve_bytes: is_embedded.then(|| embedded::Options::default().reserve_bytes),
        control_bytes: is_embedded.then_some(control_bytes),
    })
}

/// The dashboard.
fn dashboard(app: &App, data_dir: PathBuf) -> Arc<Dashboard> {
    let Config { base_url, docs_url, .. } = app.config.clone();
    let config = sealog_dashboard::Config { base_url, docs_url, search: Work::OF_PAGE };
    let on_claimed = move || {
        let data_dir = data_dir.clone();
        // An event loop waits for no disk. What does not come to pass here, the next start does.
        std::thread::spawn(move || {
            if let Err(error) = first_run::forget_claim(&data_dir) {
                tracing::warn!(%error, "cannot remove the used claim link from first-run.txt; the link no longer works");
            }
        });
    };
    Dashboard::new(Arc::clone(&app.service), config, Arc::new(on_claimed))
}

/// Returns when the store has failed and the process is to end for it. A log cannot be trusted after a failed
/// sync, and a new start is what finds out what is on disk: see `docs/operating.md`.
async fn watch_store(store: Opened, exit: bool, data_dir: PathBuf) {
    if let Some(cause) = store.failure() {
        // It was started again, and that did not help. Whoever wants to read can.
        tracing::error!(cause, "the store rejects events; reads continue");
        return std::future::pending().await;
    }
    let cause = loop {
        tokio::time::sleep(FAILURE_POLL).await;
        if let Some(cause) = store.failure() {
            break cause;
        }
    };
    // A new start would begin an empty store where the data directory is gone, and look healthy.
    if !exit || !data_dir.join("FORMAT").exists() {
        tracing::error!(cause, "the store failed and rejects events; reads continue; restart the server");
        return std::future::pending().await;
    }
    let stops_in_ms = u64::try_from(FAILURE_GRACE.as_millis()).unwrap_or(u64::MAX);
    tracing::error!(cause, stops_in_ms, "the store failed and rejects events; stopping for a restart");
    tokio::time::sleep(FAILURE_GRACE).await;
}

/// Where connections come in.
struct Listeners {
    main: TcpListener,
    address: SocketAddr,
    metrics: Option<TcpListener>,
    console: Option<TcpListener>,
    plain: Option<TcpListener>,
}

/// Who started the server: what they are told, and what they say.
struct Watched {
    supervisor: Supervisor,
    pulses: Pulses,
    stop: Stop,
    /// Sends traces, if anybody wants them.
    traces: Option<Exporter>,
    /// The command line, which says where the operator token is.
    given: Option<ArgMatches>,
}

/// Whether a new start would help: the store's writer is stuck, or an event loop is. A full disk or a
/// database that is away is not mended by it, and reads go on meanwhile.
fn progress(store: &dyn Store, pulses: &Pulses, seen: &mut Vec<u64>) -> Result<(), String> {
    if let Err(error @ StoreError::Stalled) = store.ready() {
        return Err(error.to_string());
    }
    match pulses.still(seen)[..] {
        [] => Ok(()),
        ref stuck => Err(format!("event loops are stuck: {stuck:?}")),
    }
}

/// One event loop for each core, all listening on the same port: the kernel spreads connections over them,
/// and no request crosses threads before the store.
fn serve_on_all_cores(
    main: &tokio::runtime::Runtime,
    (app, pages): (&Arc<App>, &Pages),
    Listeners { main: listener, address, metrics, console, plain }: Listeners,
    Watched { supervisor, pulses, mut stop, traces, given }: Watched,
    failure: impl Future<Output = ()>,
    (admin, fence): (&AdminSocket, &Fence<'_>),
) -> Result<(), String> {
    let server = Arc::new(Server::new());
    let mut threads = Vec::new();
    for number in 1..cores() {
        let (app, pages, server) = (Arc::clone(app), pages.router(), Arc::clone(&server));
        let pulses = pulses.clone();
        let thread = std::thread::Builder::new().name(format!("sealog-http-{number}")).spawn(move || {
            let runtime = runtime()?;
            equip(&runtime, pulses.beat(number));
            let listener = runtime.block_on(async { listen(address) })?;
            runtime.block_on(sealog_server::serve_with_pages(app, pages, listener, &server));
            Ok::<(), String>(())
        });
        threads.push(thread.map_err(|error| error.to_string())?);
    }
    equip(main, pulses.clone().beat(0));
    let supervision = &app.service.supervision;
    let sends_traces =
        supervision.supervise(Loop::new("traces", || send(traces.as_ref())), server.stopping());
    let admin = Loop::new("admin_socket", || admin.serve(server.stopping().stopped()));
    let serves = async {
        let mut seen = Vec::new();
        let fed = supervisor.feed(|| progress(&*app.service.store, &pulses, &mut seen));
        let stop = async {
            tokio::select! {
                () = stop.asked() => {}
                () = failure => {}
                () = fed => {}
                () = reload_when_told(app, given.as_ref()) => {}
            }
            tracing::info!("stopping");
            supervisor.stopping();
            server.stop();
            pages.dashboard.stop_streams();
        };
        tokio::join!(
            stop,
            sealog_server::serve_with_pages(Arc::clone(app), pages.router(), listener, &server),
            async {
                if let Some(listener) = metrics {
                    sealog_server::serve_metrics(Arc::clone(app), listener, &server).await;
                }
            },
            async {
                if let Some(listener) = plain {
                    sealog_server::serve_plain(Arc::clone(app), listener, &server).await;
                }
            },
            async {
                if let Some(listener) = console {
                    let pages = pages.console_router();
                    sealog_server::serve_console(Arc::clone(app), pages, listener, &server).await;
                }
            },
            background::run(Arc::clone(app), &server),
            supervision.supervise(admin, server.stopping()),
            async {
                tokio::select! {
                    () = server.stopping().stopped() => {}
                    () = supervision.supervise(fence.watching(), server.stopping()) => {}
                }
            }
        );
    };
    main.block_on(async {
        // Until the last answer is given: its span is sent, too.
        tokio::select! {
            () = serves => {}
            () = sends_traces => {}
        }
    });
    for thread in threads {
        thread.join().map_err(|_| "panic in an event loop".to_owned())??;
    }
    Ok(())
}

/// Has the certificate and the operator token looked at when SIGHUP comes. On a terminal that signal says
/// that the person is gone, and ends the process as it always did. Never returns.
async fn reload_when_told(app: &App, given: Option<&ArgMatches>) {
    if stderr().is_terminal() {
        return std::future::pending().await;
    }
    let Ok(mut told) = signal(SignalKind::hangup()) else { return std::future::pending().await };
    loop {
        if told.recv().await.is_none() {
            return std::future::pending().await;
        }
        if let Some(tls) = &app.config.tls {
            tls.look_now();
        }
        let reread = |given| config::operator_token(given).map(|token| app.replace_operator_token(token));
        match given.map(reread) {
            Some(Ok(true)) => {
                tracing::info!("reloaded the operator token; the old one no longer works");
            }
            Some(Err(error)) => {
                tracing::error!(%error, "cannot reload the operator token; the old one still works");
            }
            Some(Ok(false)) | None => tracing::info!("the operator token has not changed"),
        }
    }
}

/// Sends traces for as long as there are requests to trace.
async fn send(traces: Option<&Exporter>) {
    if let Some(exporter) = traces {
        exporter.run().await;
    }
    std::future::pending().await
}

/// An event loop on this thread.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// The tasks that every event loop needs.
fn equip(runtime: &tokio::runtime::Runtime, pulse: impl Future<Output = ()> + Send + 'static) {
    // What its tasks append in one turn goes to the store together.
    runtime.spawn(embedded::batch_by_tick());
    // A runtime wakes itself, by a system call, for every timer that is due before all others. Those of
    // requests are due in seconds; with this one they never come first.
    runtime.spawn(pulse);
}

/// What a supervisor and a person at a terminal send.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Stop> {
        Ok(Stop { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As many open files as the system allows: each connection is one. How many that are; nothing if there is no
/// limit.
fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, limit = limit.current, "cannot raise the open file limit");
            limit.current
        }
    }
}

/// As large files as the system allows. What goes beyond that fails as on a disk that refuses a write.
fn raise_file_size_limit() {
    let limit = getrlimit(Resource::Fsize);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Fsize, raised);
    if let Some(bytes) = limit.maximum {
        tracing::warn!(
            bytes,
            "the file size is limited; events are rejected when a write exceeds it. Remove the limit (ulimit -f, LimitFSIZE)"
        );
    }
}

/// Connections at a time: what is wanted, and at most half of all open files. The other half is the store's,
/// which could not read its segments otherwise.
fn connections_max(wanted: usize, files: Option<u64>) -> usize {
    let half = files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    if half < wanted {
        tracing::warn!(
            wanted,
            connections = half,
            "the open file limit allows fewer connections; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    wanted.min(half).max(1)
}

/// Fails if another server has the port. The event loops share it among themselves, and the kernel would let
/// a second server of the same user join them: its clients would then reach one or the other by chance.
fn refuse_shared_port(address: SocketAddr) -> Result<(), String> {
    let probe = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(1).map(drop)
    };
    probe().map_err(|error: std::io::Error| format!("cannot listen on {address}: {error}"))
}

/// Listens on a port that no other server has, and says where that is.
fn listen_alone(address: SocketAddr) -> Result<(TcpListener, SocketAddr), String> {
    refuse_shared_port(address)?;
    let listener = listen(address)?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    Ok((listener, address))
}

fn listen(address: SocketAddr) -> Result<TcpListener, String> {
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| format!("cannot listen on {address}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_half_of_the_files_for_the_store() {
        assert_eq!(connections_max(10_000, None), 10_000);
        assert_eq!(connections_max(10_000, Some(1 << 20)), 10_000);
        assert_eq!(connections_max(10_000, Some(1024)), 512);
        assert_eq!(connections_max(10_000, Some(1)), 1);
    }
}
