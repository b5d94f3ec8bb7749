//! What systemd is told (`Type=notify`, `WatchdogSec=`): that the server is ready, that it stops, and that it
//! still makes progress. Nothing where nobody listens.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long event loops may take for a turn before it counts as none.
const PULSE_EVERY: Duration = Duration::from_millis(500);

pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Supervisor {
    /// By the variables of sd_notify(3) and sd_watchdog_enabled(3).
    pub(crate) fn from_environment() -> Supervisor {
        Supervisor::new(|name| std::env::var(name).ok(), std::process::id())
    }

    fn new(variable: impl Fn(&str) -> Option<String>, pid: u32) -> Supervisor {
        let socket = variable("NOTIFY_SOCKET").and_then(|path| match connect(&path) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(path, %error, "sd_notify failed: cannot connect to NOTIFY_SOCKET");
                None
            }
        });
        let is_ours = variable("WATCHDOG_PID").is_none_or(|wanted| wanted == pid.to_string());
        let within = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).map(Duration::from_micros);
        let watchdog = within.filter(|within| is_ours && socket.is_some() && !within.is_zero());
        Supervisor { socket, watchdog }
    }

    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    pub(crate) fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"));
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=finishing requests in progress");
    }

    /// Feeds the watchdog twice in its interval, while it is so. Never returns.
    pub(crate) async fn feed(&self, mut makes_progress: impl FnMut() -> Result<(), String>) {
        let Some(within) = self.watchdog else { return std::future::pending().await };
        let mut was_fed = true;
        loop {
            match makes_progress() {
                Ok(()) => {
                    self.tell("WATCHDOG=1");
                    was_fed = true;
                }
                Err(why) => {
                    if std::mem::take(&mut was_fed) {
                        tracing::error!(
                            why,
                            "skipped a watchdog ping; the supervisor restarts the server if this lasts"
                        );
                    }
                }
            }
            tokio::time::sleep(within / 2).await;
        }
    }

    fn tell(&self, message: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(message.as_bytes()) {
            tracing::warn!(%error, "sd_notify failed");
        }
    }
}

/// A path, or a name in the abstract namespace, which begins with `@`.
fn connect(path: &str) -> io::Result<UnixDatagram> {
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A supervisor that does not read must not stop an event loop.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Says of event loops whether they still turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pulses(Arc<[AtomicU64]>);

impl Pulses {
    pub(crate) fn of(loops: usize) -> Pulses {
        Pulses((0..loops).map(|_| AtomicU64::new(0)).collect())
    }

    /// Beats for one loop, on it. Never returns.
    pub(crate) async fn beat(self, number: usize) {
        loop {
            self.0[number].fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(PULSE_EVERY).await;
        }
    }

    /// The loops that have not turned since the last call.
    pub(crate) fn still(&self, seen: &mut Vec<u64>) -> Vec<usize> {
        let now: Vec<u64> = self.0.iter().map(|beats| beats.load(Ordering::Relaxed)).collect();
        let before = std::mem::replace(seen, now);
        (0..before.len()).filter(|number| before[*number] == seen[*number]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> (tempfile::TempDir, UnixDatagram, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(sealog_testing::PATIENCE)).unwrap();
        let path = path.to_str().unwrap().to_owned();
        (dir, socket, path)
    }

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let count = socket.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn the_supervisor_hears_of_the_start_and_of_the_stop() {
        let (_dir, socket, path) = listening();
        let supervisor = Supervisor::new(|name| (name == "NOTIFY_SOCKET").then(|| path.clone()), 1);
        supervisor.ready("listening on x");
        assert_eq!(heard(&socket), "READY=1\nSTATUS=listening on x");
        supervisor.stopping();
        assert!(heard(&socket).starts_with("STOPPING=1"));
        assert_eq!(supervisor.watchdog, None);
    }

    #[test]
    fn the_watchdog_is_fed_while_there_is_progress_and_not_a_moment_longer() {
        let (_dir, socket, path) = listening();
        let variable = |name: &str| match name {
            "NOTIFY_SOCKET" => Some(path.clone()),
            "WATCHDOG_USEC" => Some("2000".into()),
            _ => None,
        };
        let supervisor = Supervisor::new(variable, 1);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let asked = std::cell::Cell::new(0);
        runtime.block_on(async {
            let feeding = supervisor.feed(|| {
                asked.set(asked.get() + 1);
                if asked.get() <= 2 { Ok(()) } else { Err("it hangs".into()) }
            });
            let enough = async {
                while asked.get() < 6 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::select! {
                () = feeding => {}
                () = enough => {}
            }
        });
        assert_eq!([heard(&socket), heard(&socket)], ["WATCHDOG=1", "WATCHDOG=1"]);
        socket.set_nonblocking(true).unwrap();
        assert!(socket.recv(&mut [0]).is_err(), "it was fed while nothing moved");
    }

    #[test]
    fn a_watchdog_for_another_process_or_without_a_socket_is_none_of_ours() {
        let (_dir, _socket, path) = listening();
        let with = |socket: bool, pid: &'static str| {
            let path = path.clone();
            Supervisor::new(
                move |name| match name {
                    "NOTIFY_SOCKET" => socket.then(|| path.clone()),
                    "WATCHDOG_USEC" => Some("2000".into()),
                    "WATCHDOG_PID" => Some(pid.into()),
                    _ => None,
                },
                7,
            )
        };
        assert!(with(true, "7").watchdog.is_some());
        assert!(with(true, "8").watchdog.is_none());
        assert!(with(false, "7").watchdog.is_none());
    }

    #[test]
    fn a_loop_that_has_not_turned_is_found() {
        let (pulses, mut seen) = (Pulses::of(2), Vec::new());
        assert_eq!(pulses.still(&mut seen), Vec::<usize>::new(), "nothing is known yet");
        pulses.0[1].fetch_add(1, Ordering::Relaxed);
        assert_eq!(pulses.still(&mut seen), [0]);
    }
}
