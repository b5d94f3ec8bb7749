//! `sealog serve`.

use std::io::{IsTerminal, stderr};
use std::net::SocketAddr;
use std::sync::Arc;

use clap::ArgMatches;
use sealog_server::{App, Server, background};
use sealog_store::world::{SystemWorld, World};
use tokio::net::{TcpListener, TcpSocket};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::store::Opened;
use crate::{config, first_run};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 4096;

pub(crate) fn run(matches: &ArgMatches) -> Result<(), String> {
    let mut settings = config::load(matches, std::env::vars()).map_err(|error| error.to_string())?;
    log_to_stderr();
    let store = Opened::open(&settings.store, &settings.data_dir, settings.allow_unsafe_storage)?;
    let world: Arc<dyn World> = Arc::new(SystemWorld);
    let main = runtime()?;
    let listener = main.block_on(async { listen(settings.listen) })?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    settings.listening_on(address);
    let accounts = store.accounts();
    main.block_on(async {
        let _alone = store.alone().await?;
        first_run::prepare(&*accounts, &*world, &settings.data_dir, &settings.server.base_url).await
    })?;
    // Before anyone is told that it listens: who hears that may ask it to stop.
    let signals = main.block_on(async { stop_signals() })?;
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
    (mut terminate, mut interrupt): (Signal, Signal),
) -> Result<(), String> {
    let server = Arc::new(Server::new());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut threads = Vec::new();
    for number in 1..cores {
        let (app, server) = (Arc::clone(app), Arc::clone(&server));
        let thread = std::thread::Builder::new().name(format!("sealog-http-{number}")).spawn(move || {
            let runtime = runtime()?;
            let listener = runtime.block_on(async { listen(address) })?;
            runtime.block_on(sealog_server::serve(app, listener, &server));
            Ok::<(), String>(())
        });
        threads.push(thread.map_err(|error| error.to_string())?);
    }
    main.block_on(async {
        let stop = async {
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

fn stop_signals() -> Result<(Signal, Signal), String> {
    let signals = signal(SignalKind::terminate())
        .and_then(|terminate| Ok((terminate, signal(SignalKind::interrupt())?)));
    signals.map_err(|error| error.to_string())
}

fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
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
fn log_to_stderr() {
    let lines =
        tracing_subscriber::fmt().with_writer(stderr).with_target(false).with_max_level(tracing::Level::INFO);
    if stderr().is_terminal() { lines.init() } else { lines.json().init() }
}
