//! The socket in the data directory on which a running server takes administrative commands.
//!
//! File permissions decide who gets in: the socket is bound with mode 0600 in a directory of mode 0700. That
//! the client is the directory's owner or root is checked again by the credentials that the kernel gives of
//! it.

use std::convert::Infallible;
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::host::Host;
use super::operations::{Request, administer};
use super::protocol::{Address, Greeting, LINE_BYTES_MAX, Reply, VERSION, line, may_command, socket_path};

/// Clients that are served at a time. Others wait to be accepted.
const CLIENTS_MAX: usize = 8;
/// For the request to arrive whole, and for the answer to be taken.
const CLIENT_DEADLINE: Duration = Duration::from_secs(5);
/// For the work. Every command is short; a disk or a database that hangs must not keep the server from
/// stopping.
pub(super) const WORK_DEADLINE: Duration = Duration::from_secs(60);
/// How often to look whether the directory is free.
const LOCK_POLL: Duration = Duration::from_millis(200);
/// After a failed accept, which is for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct AdminSocket {
    data_dir: PathBuf,
    host: Host,
    /// Of the data directory, where the store has none on it.
    lock: OnceLock<File>,
}

struct Listening {
    listener: UnixListener,
    /// Of the data directory.
    owner: u32,
    file: Identity,
}

/// Device and inode.
type Identity = (u64, u64);

fn identity(metadata: &fs::Metadata) -> Identity {
    (metadata.dev(), metadata.ino())
}

/// The data directory of a PostgreSQL store is locked by nobody else: whoever has this lock is the only
/// server or command there. Nothing while another one has it.
pub(super) fn lock_directory(data_dir: &Path) -> io::Result<Option<File>> {
    let directory = File::open(data_dir)?;
    match directory.try_lock() {
        Ok(()) => Ok(Some(directory)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

impl AdminSocket {
    /// Of a server that has this store open. The directory is locked until this is dropped, which is after
    /// the store was closed.
    pub(crate) fn new(data_dir: PathBuf, host: Host) -> AdminSocket {
        AdminSocket { data_dir, host, lock: OnceLock::new() }
    }

    /// Takes commands until the server stops, and ends when those under way are done. A socket that cannot be
    /// made is logged, and the server serves its clients without it.
    pub(crate) async fn serve(&self, stopped: impl Future<Output = ()>) {
        let mut stopped = std::pin::pin!(stopped);
        let listening = tokio::select! {
            () = &mut stopped => return,
            listening = self.listen() => listening,
        };
        let Listening { listener, owner, file } = match listening {
            Ok(listening) => listening,
            Err(error) => {
                let path = socket_path(&self.data_dir);
                tracing::error!(error, path = %path.display(), "cannot open the administrative socket; stop the server to use commands such as accept-loss and reset");
                return;
            }
        };
        let mut clients = JoinSet::new();
        tokio::select! {
            () = &mut stopped => {}
            never = self.accept_all(&listener, owner, &mut clients) => match never {},
        }
        // Whoever waits in the queue is told nothing, and finds the store closed when this server has ended.
        drop(listener);
        self.remove(file);
        while clients.join_next().await.is_some() {}
    }

    async fn accept_all(&self, listener: &UnixListener, owner: u32, clients: &mut JoinSet<()>) -> Infallible {
        let places = Arc::new(Semaphore::new(CLIENTS_MAX));
        loop {
            let place = Arc::clone(&places).acquire_owned().await.expect("it is never closed");
            while clients.try_join_next().is_some() {}
            match listener.accept().await {
                Ok((stream, _)) => {
                    clients.spawn(serve_client(stream, self.host.clone(), owner, place));
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection on the administrative socket; retrying");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn listen(&self) -> Result<Listening, String> {
        let text = |error: io::Error| error.to_string();
        // The embedded store has locked the directory. Beside a database a command may be at work there, or
        // another server by mistake. After a panic the lock is there already.
        if !self.host.opened.is_embedded() && self.lock.get().is_none() {
            let lock = self.await_lock().await.map_err(text)?;
            self.lock.set(lock).expect("one loop listens");
        }
        let owner = fs::metadata(&self.data_dir).map_err(text)?.uid();
        let listener = self.bind()?;
        let file = identity(&fs::symlink_metadata(socket_path(&self.data_dir)).map_err(text)?);
        Ok(Listening { listener, owner, file })
    }

    /// Takes the socket away, unless something else stands in its place: the directory may have been moved,
    /// and another server begun in a new one.
    fn remove(&self, file: Identity) {
        let path = socket_path(&self.data_dir);
        if fs::symlink_metadata(&path).is_ok_and(|found| identity(&found) == file)
            && let Err(error) = fs::remove_file(&path)
        {
            tracing::warn!(%error, "cannot remove the administrative socket; the next start removes it");
        }
    }

    async fn await_lock(&self) -> io::Result<File> {
        let mut told = false;
        loop {
            if let Some(lock) = lock_directory(&self.data_dir)? {
                return Ok(lock);
            }
            if !told {
                told = true;
                tracing::warn!(data_dir = %self.data_dir.display(), "another process uses this data directory; the administrative socket opens when it exits");
            }
            tokio::time::sleep(LOCK_POLL).await;
        }
    }

    fn bind(&self) -> Result<UnixListener, String> {
        let path = socket_path(&self.data_dir);
        // The directory is locked, so a socket that stands there is one of a server that was killed.
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err("a file that is not a socket has this name; move it away".into());
            }
            Ok(_) => fs::remove_file(&path).map_err(|error| error.to_string())?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
        }
        let bind = || {
            let socket = UnixSocket::new_stream()?;
            // Linux gives the file the mode of the socket, less the umask: it is never there with a wider
            // one.
            rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
            socket.bind(&Address::of(&self.data_dir)?.path)?;
            socket.listen(u32::try_from(CLIENTS_MAX).unwrap_or(u32::MAX))
        };
        bind().map_err(|error: io::Error| error.to_string())
    }
}

async fn serve_client(mut stream: UnixStream, host: Host, owner: u32, _place: OwnedSemaphorePermit) {
    if let Err(error) = converse(&mut stream, &host, owner).await {
        tracing::warn!(%error, "a client of the administrative socket disconnected before its response");
    }
}

async fn converse(stream: &mut UnixStream, host: &Host, owner: u32) -> io::Result<()> {
    let client = stream.peer_cred()?;
    let (uid, pid) = (client.uid(), client.pid());
    if !may_command(uid, owner) {
        tracing::warn!(
            uid,
            pid,
            "rejected a client of the administrative socket; run the command as the owner of the data directory or as root"
        );
        let refused = format!(
            "run the command as the owner of the data directory (user {owner}) or as root, not as user {uid}"
        );
        return send(stream, &line(&Greeting { sealog_admin: VERSION, refused: Some(refused) })).await;
    }
    send(stream, &line(&Greeting { sealog_admin: VERSION, refused: None })).await?;
    let reply = match read_request(stream).await? {
        Err(problem) => Reply::Failed(problem),
        Ok(request) => {
            let command = request.name();
            if !request.goes_on() {
                tracing::info!(command, uid, pid, "received an administrative command");
            }
            match timeout(WORK_DEADLINE, administer(host, request)).await {
                Ok(done) => {
                    if let Err(failure) = &done {
                        let problem = &failure.message;
                        tracing::warn!(command, problem, "an administrative command failed");
                    }
                    Reply::from(done)
                }
                Err(_) => Reply::Failed(format!(
                    "the command did not finish within {} s and may still run; check the server's log before you try again",
                    WORK_DEADLINE.as_secs()
                )),
            }
        }
    };
    send(stream, &line(&reply)).await
}

/// The inner error is for the client.
async fn read_request(stream: &mut UnixStream) -> io::Result<Result<Request, String>> {
    let mut request = Vec::new();
    let mut bounded = stream.take(LINE_BYTES_MAX as u64 + 1);
    let whole = async {
        while !request.contains(&b'\n') {
            if bounded.read_buf(&mut request).await? == 0 {
                break;
            }
        }
        Ok::<_, io::Error>(())
    };
    match timeout(CLIENT_DEADLINE, whole).await {
        Ok(read) => read?,
        Err(_) => return Ok(Err(format!("no request within {} s", CLIENT_DEADLINE.as_secs()))),
    }
    if request.len() > LINE_BYTES_MAX {
        return Ok(Err(format!("the request has more than {LINE_BYTES_MAX} bytes")));
    }
    let Some(end) = request.iter().position(|byte| *byte == b'\n') else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    Ok(serde_json::from_slice(&request[..end]).map_err(|error| format!("not a valid request: {error}")))
}

async fn send(stream: &mut UnixStream, bytes: &[u8]) -> io::Result<()> {
    timeout(CLIENT_DEADLINE, stream.write_all(bytes)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use sealog_engine::{OpenOptions, Opened, Place};
    use sealog_service::Stop;
    use sealog_service::jobs::supervise::{Loop, Supervision};
    use sealog_service::records::system_chain::Wake;
    use sealog_store::world::SystemWorld;
    use tokio::sync::Notify;

    use super::super::host::SignedLog;
    use super::*;

    /// The first bytes of a greeting, once the socket is there.
    async fn greeted(data_dir: &Path) -> [u8; 8] {
        let mut greeting = [0; 8];
        loop {
            if let Ok(mut client) = UnixStream::connect(socket_path(data_dir)).await
                && client.read_exact(&mut greeting).await.is_ok()
            {
                return greeting;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[test]
    fn a_socket_whose_loop_has_panicked_takes_commands_again() {
        let dir = tempfile::tempdir().unwrap();
        let data_dir = dir.path().join("data");
        let world = Arc::new(SystemWorld);
        let options = OpenOptions { allow_unsafe_storage: true, ..OpenOptions::default() };
        let opened = Opened::open(&Place::Embedded, &data_dir, options, world.clone()).unwrap();
        let console_url = Err("there is none".into());
        let (wake, signed_log) = (Wake::default(), SignedLog::Off);
        let host = Host { opened: opened.clone(), world, app_url: None, console_url, wake, signed_log };
        let socket = AdminSocket::new(data_dir.clone(), host);
        let (supervision, begun, panic) = (Supervision::new(|_| {}), AtomicU64::new(0), Notify::new());
        let admin = Loop::new("admin_socket", || async {
            begun.fetch_add(1, Ordering::Relaxed);
            tokio::select! {
                () = socket.serve(std::future::pending()) => {}
                () = panic.notified() => panic!("asked for by a test"),
            }
        });
        let client = async {
            greeted(&data_dir).await;
            panic.notify_one();
            while begun.load(Ordering::Relaxed) < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            greeted(&data_dir).await
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stop = Stop::new();
        let greeting = runtime.block_on(async {
            tokio::select! {
                () = supervision.supervise(admin, &stop) => unreachable!("nothing stops it"),
                greeting = timeout(Duration::from_secs(60), client) => greeting.unwrap(),
            }
        });
        assert!(greeting.starts_with(b"{\"sealog"), "{greeting:?}");
        drop(socket);
        opened.close();
    }
}
