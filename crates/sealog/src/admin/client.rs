//! How a command reaches the store: through the server that has it open, or, where none runs, by opening it.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sealog_cli::exit::{Exit, Failure};
use sealog_engine::{Opened, Place};
use sealog_service::records::system_chain::Wake;
use sealog_store::world::{SystemWorld, World};

use super::host::{Host, SignedLog};
use super::operations::{Answer, Request, administer};
use super::protocol::{ANSWER_BYTES_MAX, Address, Greeting, Reply, VERSION, distrusted, line, socket_path};
use super::socket::{WORK_DEADLINE, lock_directory};
use crate::config::Settings;

/// How long to wait for a server that is starting or stopping, or for another command.
const BUSY_WAIT: Duration = Duration::from_secs(15);
const BUSY_POLL: Duration = Duration::from_millis(50);
/// For the first line of a server that listens.
const GREETING_DEADLINE: Duration = Duration::from_secs(10);
/// A little longer than the server gives itself.
const REPLY_DEADLINE: Duration = WORK_DEADLINE.saturating_add(Duration::from_secs(10));

/// For a server that answers another question than it was asked.
pub(crate) const OTHER_ANSWER: &str =
    "unexpected response from the running server; check its log, and use the same version of the program";

/// Has a command done. An error is a text for the operator, with the code that the command ends with.
pub(crate) fn run(settings: &Settings, request: &Request) -> Result<Answer, Failure> {
    Session::new(settings).run(request)
}

/// As [`run`], where a server that runs is asked something else than a stopped store. What comes before that
/// question is done once a server is known to listen.
pub(crate) fn run_either(
    settings: &Settings,
    of_running: &dyn Fn() -> Result<Request, String>,
    of_stopped: &Request,
) -> Result<Answer, Failure> {
    Session::new(settings).ask(of_running, of_stopped)
}

/// Several questions one after the other: a stopped store is opened for the first and stays open.
pub(crate) struct Session<'a> {
    settings: &'a Settings,
    stopped: Option<Stopped>,
}

impl Session<'_> {
    pub(crate) fn new(settings: &Settings) -> Session<'_> {
        Session { settings, stopped: None }
    }

    fn ask(
        &mut self,
        of_running: &dyn Fn() -> Result<Request, String>,
        of_stopped: &Request,
    ) -> Result<Answer, Failure> {
        let until = Instant::now() + BUSY_WAIT;
        loop {
            if let Some(stopped) = &self.stopped {
                return stopped.administer(of_stopped);
            }
            if let Asked::Answered(answer) = ask(&self.settings.data_dir, of_running)? {
                return answer;
            }
            match Stopped::open(self.settings)? {
                Local::Open(stopped) => self.stopped = Some(*stopped),
                // A server has the store open and does not listen: it is starting or stopping.
                Local::Busy(problem) if Instant::now() > until => {
                    let path = socket_path(&self.settings.data_dir);
                    let problem = format!("{problem}; it accepts no commands at {}", path.display());
                    return Err(Failure::new(Exit::Unavailable, problem));
                }
                Local::Busy(_) => std::thread::sleep(BUSY_POLL),
            }
        }
    }

    pub(crate) fn run(&mut self, request: &Request) -> Result<Answer, Failure> {
        self.ask(&|| Ok(request.clone()), request)
    }
}

/// Asks the server that runs on a data directory; nothing where none does.
pub(crate) fn ask_running(data_dir: &Path, request: &Request) -> Result<Option<Answer>, String> {
    match ask(data_dir, &|| Ok(request.clone()))? {
        Asked::Answered(answer) => answer.map(Some).map_err(|failure| failure.message),
        Asked::NobodyListens => Ok(None),
    }
}

enum Asked {
    Answered(Result<Answer, Failure>),
    /// No server has taken notice, so that nothing was done.
    NobodyListens,
}

fn ask(data_dir: &Path, request: &dyn Fn() -> Result<Request, String>) -> Result<Asked, String> {
    let path = socket_path(data_dir);
    let problem = |what: &str| format!("{}: {what}", path.display());
    let failed = |error: io::Error| problem(&error.to_string());
    let Some(socket) = if_there(fs::symlink_metadata(&path)).map_err(failed)? else {
        return Ok(Asked::NobodyListens);
    };
    let owner = fs::metadata(data_dir).map_err(failed)?.uid();
    if let Some(why) = distrusted(&socket, owner) {
        return Err(problem(&format!("it {why}. Remove it, and restart the server if one runs")));
    }
    let address = Address::of(data_dir).map_err(failed)?;
    let connect = || if_there(UnixStream::connect(&address.path)).map_err(failed);
    // Before the connection on which the server waits for the question.
    if connect()?.is_none() {
        return Ok(Asked::NobodyListens);
    }
    let request = request()?;
    let Some(mut stream) = connect()? else { return Ok(Asked::NobodyListens) };
    stream.set_read_timeout(Some(GREETING_DEADLINE)).map_err(failed)?;
    stream.set_write_timeout(Some(GREETING_DEADLINE)).map_err(failed)?;
    let mut lines = BufReader::new(stream.try_clone().map_err(failed)?);
    let greeting: Greeting = match read(&mut lines) {
        Ok(Some(greeting)) => greeting,
        // The server has ended, and this connection was still in its queue.
        Ok(None) => return Ok(Asked::NobodyListens),
        Err(Unread::Silence) => return Err(problem("the server does not respond")),
        Err(Unread::Malformed(error)) => {
            return Err(problem(&format!("this is not a Sealog server: {error}")));
        }
    };
    if let Some(refused) = greeting.refused {
        return Err(refused);
    }
    if greeting.sealog_admin != VERSION {
        return Err(format!(
            "the running server uses version {} of the protocol, but this program has version {VERSION}; use the program of the server",
            greeting.sealog_admin
        ));
    }
    let unknown = |what: &str| problem(&format!("{what}. The command may have run; check the server's log"));
    stream.set_read_timeout(Some(REPLY_DEADLINE)).map_err(failed)?;
    // A server that has refused it already may have said why: what counts is the answer.
    let sent = stream.write_all(&line(&request));
    match read::<Reply>(&mut lines) {
        Ok(Some(reply)) => Ok(Asked::Answered(reply.outcome())),
        Ok(None) => Err(unknown(&match sent {
            Err(error) => format!("cannot send the request: {error}"),
            Ok(()) => "the server closed the connection".into(),
        })),
        Err(Unread::Silence) => Err(unknown("the server did not respond in time")),
        Err(Unread::Malformed(error)) => Err(unknown(&format!("cannot read the response: {error}"))),
    }
}

/// Nothing where there is no socket, or nobody behind it.
fn if_there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

enum Unread {
    Silence,
    Malformed(String),
}

/// The next line. Nothing when the other side has ended.
fn read<T: serde::de::DeserializeOwned>(lines: &mut impl BufRead) -> Result<Option<T>, Unread> {
    let mut line = Vec::new();
    let read = lines.take(ANSWER_BYTES_MAX as u64).read_until(b'\n', &mut line);
    match read {
        Ok(_) if line.last() == Some(&b'\n') => {
            serde_json::from_slice(&line).map(Some).map_err(|error| Unread::Malformed(error.to_string()))
        }
        Ok(length) if length == ANSWER_BYTES_MAX => Err(Unread::Malformed("it is incomplete".into())),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            Err(Unread::Silence)
        }
        Err(_) => Ok(None),
    }
}

enum Local {
    Open(Box<Stopped>),
    /// Another process has the store. Why that is known.
    Busy(String),
}

/// A store that this process has opened. Meanwhile no server can start there.
struct Stopped {
    host: Host,
    runtime: tokio::runtime::Runtime,
    /// Of the data directory, where the store has none on it: let go when the store is closed.
    _lock: Option<fs::File>,
}

impl Stopped {
    fn open(settings: &Settings) -> Result<Local, Failure> {
        let data_dir = &settings.data_dir;
        let embedded = settings.store == Place::Embedded;
        // A mistyped directory must not become a store.
        if embedded && !data_dir.join("FORMAT").is_file() {
            return Err(Failure::usage(format!("there is no store in {}", data_dir.display())));
        }
        let lock = if embedded { Ok(None) } else { if_there(lock_directory(data_dir)) };
        let lock = match lock {
            Ok(Some(None)) => return Ok(Local::Busy("another process uses the data directory".into())),
            Ok(lock) => lock.flatten(),
            Err(error) => return Err(format!("{}: {error}", data_dir.display()).into()),
        };
        let world: Arc<dyn World> = Arc::new(SystemWorld);
        let options = settings.open_options();
        let opened = match Opened::open(&settings.store, data_dir, options, Arc::clone(&world)) {
            Ok(opened) => opened,
            Err(unopened) if unopened.locked => return Ok(Local::Busy(unopened.to_string())),
            Err(unopened) => return Err(sealog_backup::unopened(unopened)),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let (app_url, console_url) = (settings.app_url(), settings.console_url());
        let signed_log = settings.trust.clone().map_or(SignedLog::Off, SignedLog::OfStopped);
        let host = Host { opened, world, app_url, console_url, wake: Wake::default(), signed_log };
        Ok(Local::Open(Box::new(Stopped { host, runtime, _lock: lock })))
    }

    fn administer(&self, request: &Request) -> Result<Answer, Failure> {
        self.runtime.block_on(administer(&self.host, request.clone()))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.host.opened.close();
    }
}
