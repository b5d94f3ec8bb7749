//! `sealog serve`.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::ArgMatches;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sealog_server::{App, Server, background};
use sealog_store::embedded;
use sealog_store::world::{SystemWorld, World};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::store::Opened;
use crate::{config, first_run};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;

const FIRST_TIMER: Duration = Duration::from_millis(500);

pub(crate) fn run(matches: &ArgMatches) -> Result<(), String> {
    let mut settings = config::load(matches, std::env::vars()).map_err(|error| error.to_string())?;
    log_to_stderr(settings.log_level);
    // Before the store is opened, which keeps as many of its files open as it may.
    let files = raise_file_limit();
    settings.server.connections_max = connections_max(settings.server.connections_max, files, cores());
    let store = Opened::open(&settings.store, &settings.data_dir, settings.allow_unsafe_storage)?;
    let world: Arc<dyn World> = Arc::new(SystemWorld);
    let main = runtime()?;
    // Before anyone is told that the server listens: from then on a supervisor may ask it to stop.
    let signals = main.block_on(async { stop_signals() }).map_err(|error| error.to_string())?;
    let listener = main.block_on(async {
        refuse_shared_port(settings.listen)?;
        listen(settings.listen)
    })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    settings.listening_on(address);
    let accounts = store.accounts();
    main.block_on(async {
        let _alone = store.alone().await?;
        first_run::prepare(&*accounts, &*world, &settings.data_dir, &settings.server.base_url).await
    })?;
    tracing::info!(%address, data_dir = %settings.data_dir.display(), "listening");
    let app = App::new(store.store(), accounts, world, settings.server);
    serve_on_all_cores(&main, &app, listener, address, signals)?;
    drop(app);
    store.close();
    tracing::info!("stopped; everything is synced");
    Ok(())
}

/// One event loop for each core, all listening on the same port: the kernel spreads connections over them, and no request crosses threads before the store.
fn serve_on_all_cores(
    main: &tokio::runtime::Runtime,
    app: &Arc<App>,
    listener: TcpListener,
    address: SocketAddr,
    signals: (Signal, Signal),
) -> Result<(), String> {
    let server = Arc::new(Server::new());
    let mut threads = Vec::new();
    for number in 1..cores() {
        let (app, server) = (Arc::clone(app), Arc::clone(&server));
        let thread = std::thread::Builder::new().name(format!("sealog-http-{number}")).spawn(move || {
            let runtime = runtime()?;
            equip(&runtime);
            let listener = runtime.block_on(async { listen(address) })?;
            runtime.block_on(sealog_server::serve(app, listener, &server));
            Ok::<(), String>(())
        });
        threads.push(thread.map_err(|error| error.to_string())?);
    }
    equip(main);
    main.block_on(async {
        let stop = async {
            let (mut terminate, mut interrupt) = signals;
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            tracing::info!("stopping");
            server.stop();
        };
        tokio::join!(
            stop,
            sealog_server::serve(Arc::clone(app), listener, &server),
            background::run(Arc::clone(app), &server)
        );
    });
    for thread in threads {
        thread.join().map_err(|_| "an event loop has panicked".to_owned())??;
    }
    Ok(())
}

/// An event loop on this thread.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}

/// The tasks that every event loop needs.
fn equip(runtime: &tokio::runtime::Runtime) {
    // What its tasks append in one turn goes to the store together.
    runtime.spawn(embedded::hand_over_in_turns());
    // A runtime wakes itself, by a system call, for every timer that is due before all others. Those of requests are due in seconds; with this one they never come first.
    runtime.spawn(async {
        loop {
            tokio::time::sleep(FIRST_TIMER).await;
        }
    });
}

/// What a supervisor and a person at a terminal send.
fn stop_signals() -> std::io::Result<(Signal, Signal)> {
    Ok((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// As many open files as the system allows: each connection is one. How many that are; nothing if there is no limit.
fn raise_file_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(error) => {
            tracing::warn!(%error, limit = limit.current, "cannot raise the limit of open files");
            limit.current
        }
    }
}

/// Connections for each event loop: its share of what is wanted, and of half of all open files. The other half is the store's, which could not read its segments otherwise.
fn connections_max(wanted: usize, files: Option<u64>, event_loops: usize) -> usize {
    let half = files.map_or(usize::MAX, |files| usize::try_from(files / 2).unwrap_or(usize::MAX));
    if half < wanted {
        tracing::warn!(
            wanted,
            connections = half,
            "the limit of open files leaves room for fewer connections; raise it (ulimit -n, LimitNOFILE)"
        );
    }
    wanted.min(half).div_ceil(event_loops).max(1)
}

/// Fails if another server has the port. The event loops share it among themselves, and the kernel would let a second server of the same user join them:
/// its clients would then reach one or the other by chance.
fn refuse_shared_port(address: SocketAddr) -> Result<(), String> {
    let probe = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(1).map(drop)
    };
    probe().map_err(|error: std::io::Error| format!("cannot listen on {address}: {error}"))
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

/// For people on a terminal, as JSON for machines.
fn log_to_stderr(level: tracing::Level) {
    let lines = tracing_subscriber::fmt().with_writer(stderr).with_target(false).with_max_level(level);
    if stderr().is_terminal() { lines.init() } else { lines.json().init() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shared_by_the_event_loops_and_leave_files_for_the_store() {
        assert_eq!(connections_max(10_000, None, 1), 10_000);
        assert_eq!(connections_max(10_000, Some(1 << 20), 4), 2_500);
        assert_eq!(connections_max(10_000, Some(1024), 2), 256);
        assert_eq!(connections_max(10_000, Some(1), 8), 1);
    }
}
