//! Looks again and again whether the data directory is still there, and refuses events when it is not: what
//! is written to a deleted file is acknowledged and gone.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use super::data_dir::Directory;
use super::open_log::Handle;
use crate::supervise::keep_running;
use crate::sync::{lock, wait_for};

/// Half of the second within which it has to show.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The thread that looks. Ends when dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    pub(super) fn start(dir: Directory, logs: [Arc<Handle>; 2], tick: Duration) -> io::Result<Watch> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let pause = |time| {
                let stop = lock(&stopped.0);
                *stop || *wait_for(&stopped.1, stop, time)
            };
            let look = || {
                while !pause(tick.min(PAUSE_MAX)) {
                    let found = dir
                        .check()
                        .and_then(|()| logs.iter().try_for_each(|log| log.log().writer.check_active_file()));
                    if let Err(cause) = found {
                        tracing::error!(%cause, "the data directory is not the opened one any more; rejecting events until the server restarts");
                        for log in &logs {
                            log.log().writer.poison(&io::Error::other(cause.clone()));
                        }
                        dir.set_lost(&cause);
                        return;
                    }
                }
            };
            // It keeps nothing from one look to the next, and without it a lost directory goes unnoticed.
            keep_running("directory", look, pause);
        };
        let thread = std::thread::Builder::new().name("sealog-directory".into()).spawn(run)?;
        Ok(Watch { stop, thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        *lock(&self.stop.0) = true;
        self.stop.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
