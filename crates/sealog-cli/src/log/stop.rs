//! The end of a `sealog log` that comes from outside: a signal, or a failure after which nothing more may be
//! read.
//!
//! t0 the signal: nothing more is read. What was read is sent as usual. t1 [`GRACE`] later: nothing is waited
//! for any more. What is not sealed is kept in the spool, and the command ends. A second signal in between
//! ends the process at once.

use std::io::{self, PipeReader, PipeWriter, Write, pipe};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use super::super::exit::{Exit, Failure};

/// How long what was read may still be on its way to the service.
const GRACE: Duration = Duration::from_secs(5);

/// Name and number of the signals that end a command.
const SIGNALS: [(&str, u8); 3] = [("SIGHUP", 1), ("SIGINT", 2), ("SIGTERM", 15)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    /// Since t0.
    Stopping,
    /// Since t1.
    Over,
}

/// Shared by the command, its reader and the thread that hears signals.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    stage: watch::Sender<Stage>,
    signal: OnceLock<(&'static str, u8)>,
    /// For threads that wait in `poll`: the other end is closed at t0.
    reading: (PipeReader, Mutex<Option<PipeWriter>>),
    /// The same at t1.
    patience: (PipeReader, Mutex<Option<PipeWriter>>),
}

impl Stop {
    /// From now on signals do not end the process by themselves. The thread is one of its own: the command's
    /// may be waiting for a disk or a pipe.
    pub(super) fn listen(is_quiet: bool) -> Result<Stop, Failure> {
        let stop = Stop::new().map_err(|error| unheard(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| unheard(&error))?;
        let ignored = ignored();
        let mut listened = Vec::new();
        for (name, number) in SIGNALS {
            // Whoever started the command, such as nohup or a shell's `&`, has asked for that.
            if ignored & (1 << (number - 1)) == 0 {
                let _inside = runtime.enter();
                let kind = SignalKind::from_raw(i32::from(number));
                listened.push(((name, number), signal(kind).map_err(|error| unheard(&error))?));
            }
        }
        let heard = stop.clone();
        std::thread::spawn(move || {
            runtime.block_on(async {
                let (name, number) = next(&mut listened).await;
                if !is_quiet {
                    say(&format!(
                        "{name}: sending or keeping the lines that were read, for up to {} s; a second signal stops at once and loses the rest",
                        GRACE.as_secs()
                    ));
                }
                let _ = heard.0.signal.set((name, number));
                heard.begin();
                let (name, number) = next(&mut listened).await;
                say(&format!("{name} again: stopped at once; lines that are neither sealed nor kept are lost"));
                std::process::exit(128 + i32::from(number));
            });
        });
        Ok(stop)
    }

    fn new() -> io::Result<Stop> {
        let pair = || pipe().map(|(reader, writer)| (reader, Mutex::new(Some(writer))));
        Ok(Stop(Arc::new(Shared {
            stage: watch::channel(Stage::Running).0,
            signal: OnceLock::new(),
            reading: pair()?,
            patience: pair()?,
        })))
    }

    /// t0. Once begun it goes on.
    pub(super) fn begin(&self) {
        let is_first = self.0.stage.send_if_modified(|stage| {
            let is_running = *stage == Stage::Running;
            if is_running {
                *stage = Stage::Stopping;
            }
            is_running
        });
        if is_first {
            close(&self.0.reading.1);
            let stop = self.clone();
            std::thread::spawn(move || {
                std::thread::sleep(GRACE);
                stop.0.stage.send_replace(Stage::Over);
                close(&stop.0.patience.1);
            });
        }
    }

    pub(super) fn is_begun(&self) -> bool {
        *self.0.stage.borrow() != Stage::Running
    }

    pub(super) fn is_over(&self) -> bool {
        *self.0.stage.borrow() == Stage::Over
    }

    /// Ends at t1.
    pub(super) fn over(&self) -> impl Future<Output = ()> + use<> {
        let mut stage = self.0.stage.subscribe();
        async move {
            let _ = stage.wait_for(|stage| *stage == Stage::Over).await;
        }
    }

    /// What `poll` finds ready at t0.
    pub(super) fn reading(&self) -> io::Result<PipeReader> {
        self.0.reading.0.try_clone()
    }

    /// What `poll` finds ready at t1.
    pub(super) fn patience(&self) -> io::Result<PipeReader> {
        self.0.patience.0.try_clone()
    }

    /// The name and the number of the signal, if it was one.
    pub(super) fn signal(&self) -> Option<(&'static str, u8)> {
        self.0.signal.get().copied()
    }
}

fn close(end: &Mutex<Option<PipeWriter>>) {
    end.lock().expect("no holder panics").take();
}

fn unheard(error: &io::Error) -> Failure {
    Failure::new(Exit::Failure, format!("cannot listen for signals: {error}"))
}

/// A terminal that is gone is no reason to panic.
fn say(text: &str) {
    let _ = writeln!(io::stderr(), "sealog: {text}");
}

/// The next of them.
async fn next(listened: &mut [((&'static str, u8), Signal)]) -> (&'static str, u8) {
    std::future::poll_fn(|context| {
        for (which, signal) in &mut *listened {
            if signal.poll_recv(context).is_ready() {
                return std::task::Poll::Ready(*which);
            }
        }
        std::task::Poll::Pending
    })
    .await
}

/// A bit for each signal that this process was started to ignore; none where the system does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_ends_reading_first_and_patience_later() {
        let stop = Stop::new().unwrap();
        let (mut reading, mut byte) = (stop.reading().unwrap(), [0]);
        assert!(!stop.is_begun() && !stop.is_over());
        stop.begin();
        stop.begin();
        assert!(stop.is_begun() && !stop.is_over());
        // An end that is closed is one that `poll` finds ready.
        assert_eq!(io::Read::read(&mut reading, &mut byte).unwrap(), 0);
        sealog_testing::wait(stop.over());
        assert!(stop.is_over());
        assert_eq!(io::Read::read(&mut stop.patience().unwrap(), &mut byte).unwrap(), 0);
    }
}
