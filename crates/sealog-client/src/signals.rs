//! The end of a process by a signal.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::{Either, select};
use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

use crate::error::Error;

/// Clients that a signal is to close, and which are not closed yet.
static OPEN: AtomicUsize = AtomicUsize::new(0);

struct Open;

impl Open {
    fn new() -> Open {
        OPEN.fetch_add(1, Ordering::SeqCst);
        Open
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs `close` at SIGTERM or SIGINT. After the last client of the process, ends the process.
pub(crate) fn at_signal(close: impl Future<Output = ()> + Send + 'static) -> Result<(), Error> {
    let runtime = Handle::try_current()
        .map_err(|_| Error::option("close_on_signal", "is called inside of a Tokio runtime"))?;
    let hear = |kind| {
        let heard = signal(kind);
        heard.map_err(|error| Error::option("close_on_signal", &format!("cannot hear signals: {error}")))
    };
    let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
    let (mut terminated, mut interrupted) = (hear(terminate)?, hear(interrupt)?);
    let open = Open::new();
    runtime.spawn(async move {
        let kind = match select(pin!(terminated.recv()), pin!(interrupted.recv())).await {
            Either::Left(_) => terminate,
            Either::Right(_) => interrupt,
        };
        close.await;
        drop(open);
        if OPEN.load(Ordering::SeqCst) == 0 {
            // To get the signal's own action back takes unsafe code, and process 1 of a container has none.
            std::process::exit(128 + kind.as_raw_value());
        }
    });
    Ok(())
}
