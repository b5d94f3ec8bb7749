//! What is said on the administrative socket: three lines of JSON.
//!
//! ```text
//! server  {"sealog_admin":2}                                               the version of this protocol
//! client  {"accept_loss":{"chain":"…","reason":"…"}}
//! server  {"done":{"accept_loss":{…}}} or {"failed":"a text for the operator"}, {"not_found":"…"},
//!         {"wrong":"…"}
//! ```
//! The server speaks first. A client that has not been greeted has not been heard, so a connection that a
//! stopping server leaves in its queue is safe to try again elsewhere; whoever was greeted is answered.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sealog_cli::exit::{Exit, Failure};
use serde::{Deserialize, Serialize};

use super::operations::Answer;

pub(super) const VERSION: u32 = 3;
/// Longest request, and longest answer.
pub(super) const LINE_BYTES_MAX: usize = 64 << 10;
/// Of an answer. A moment names every segment, and every project with events.
pub(super) const ANSWER_BYTES_MAX: usize = 256 << 20;

const SOCKET: &str = "admin.sock";
/// Longest path that fits into a `sockaddr_un`, which has 108 bytes with the NUL behind it.
const PATH_BYTES_MAX: usize = 107;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Greeting {
    pub sealog_admin: u32,
    /// Why the server does not listen to this client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Reply {
    Done(Answer),
    Failed(String),
    /// What the command names is not there.
    NotFound(String),
    /// The command names something that cannot be.
    Wrong(String),
}

impl From<Result<Answer, Failure>> for Reply {
    fn from(done: Result<Answer, Failure>) -> Reply {
        match done {
            Ok(answer) => Reply::Done(answer),
            Err(Failure { exit: Exit::NotFound, message }) => Reply::NotFound(message),
            Err(Failure { exit: Exit::Usage, message }) => Reply::Wrong(message),
            Err(Failure { message, .. }) => Reply::Failed(message),
        }
    }
}

impl Reply {
    pub(super) fn outcome(self) -> Result<Answer, Failure> {
        match self {
            Reply::Done(answer) => Ok(answer),
            Reply::Failed(message) => Err(message.into()),
            Reply::NotFound(message) => Err(Failure::new(Exit::NotFound, message)),
            Reply::Wrong(message) => Err(Failure::usage(message)),
        }
    }
}

/// A value as a line.
pub(super) fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).expect("texts and numbers");
    line.push(b'\n');
    line
}

/// Where the socket of a data directory is, as it is bound and connected to.
#[derive(Debug)]
pub(super) struct Address {
    pub path: PathBuf,
    /// Open for as long as the path goes through it.
    _directory: Option<File>,
}

impl Address {
    pub(super) fn of(data_dir: &Path) -> io::Result<Address> {
        let path = socket_path(data_dir);
        if path.as_os_str().len() <= PATH_BYTES_MAX {
            return Ok(Address { path, _directory: None });
        }
        // A path through an open file of this process is short, however long the directory's own is.
        let directory = File::open(data_dir)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()));
        Ok(Address { path, _directory: Some(directory) })
    }
}

/// As people know it.
pub(super) fn socket_path(data_dir: &Path) -> PathBuf {
    data_dir.join(SOCKET)
}

/// Whether a user may command: the owner of the data directory, who can read and change everything in it
/// anyway, and root.
pub(super) fn may_command(uid: u32, owner: u32) -> bool {
    uid == owner || uid == 0
}

/// Why what stands in the socket's place is not to be trusted with a command, or to be believed: it was not
/// made by the server of this data directory.
pub(super) fn distrusted(socket: &Metadata, owner: u32) -> Option<String> {
    if !socket.file_type().is_socket() {
        return Some("is not a socket".into());
    }
    if !may_command(socket.uid(), owner) {
        return Some(format!("belongs to user {}, but the data directory belongs to {owner}", socket.uid()));
    }
    let mode = socket.mode() & 0o777;
    (mode & 0o077 != 0)
        .then(|| format!("has the mode {mode:04o}: other users than its owner can write to it"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::super::inspect::{LeftOut, State};
    use super::*;

    #[test]
    fn the_owner_of_the_directory_and_root_may_command_and_nobody_else() {
        assert!(may_command(1000, 1000) && may_command(0, 1000) && may_command(0, 0));
        assert!(!may_command(1001, 1000) && !may_command(1000, 0));
    }

    #[test]
    fn a_socket_of_somebody_else_or_one_that_others_can_write_to_is_distrusted() {
        let dir = tempfile::tempdir().unwrap();
        let (path, me) = (socket_path(dir.path()), std::fs::metadata(dir.path()).unwrap().uid());
        let _listener = UnixListener::bind(&path).unwrap();
        let distrusted = |mode, owner| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            distrusted(&std::fs::symlink_metadata(&path).unwrap(), owner)
        };
        assert_eq!(distrusted(0o600, me), None);
        assert!(distrusted(0o622, me).unwrap().contains("0622"));
        // Whatever root has made may be root's, so this says something only where the tests are not root's.
        assert_eq!(distrusted(0o600, me + 1).is_some(), me != 0);
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(super::distrusted(&std::fs::metadata(&file).unwrap(), me).unwrap().contains("not a socket"));
    }

    #[test]
    fn an_answer_fits_its_line_however_much_is_wrong_and_says_how_much_is_left_out() {
        let many: Vec<String> = (0..5000).map(|n| format!("live/{n:08}.log: \"\u{1}\" is damaged")).collect();
        let everything = State {
            store: "embedded".into(),
            not_ready: None,
            findings: many.clone(),
            notices: vec!["x".repeat(LINE_BYTES_MAX), "y".into()],
            losses: many.clone(),
            left_out: LeftOut::default(),
            chains: 1,
            events: 1,
            storage_bytes: 1,
        };
        let state = everything.fitted();
        assert!(state.findings.len() > 100 && many.starts_with(&state.findings));
        assert_eq!((&state.losses, &state.notices), (&state.findings, &vec!["y".to_owned()]));
        let left_out = many.len() - state.findings.len();
        assert_eq!(state.left_out, LeftOut { findings: left_out, notices: 1, losses: left_out });
        let answer = line(&Reply::Done(Answer::Inspect(state.clone())));
        assert!(answer.len() < LINE_BYTES_MAX, "{}", answer.len());
        let fitted = state.clone().fitted();
        assert_eq!((fitted.findings, fitted.left_out), (state.findings, LeftOut::default()));
    }

    #[test]
    fn a_directory_with_a_long_path_has_a_short_address() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("d".repeat(150));
        std::fs::create_dir(&long).unwrap();
        for data_dir in [dir.path(), &long] {
            let address = Address::of(data_dir).unwrap();
            assert!(address.path.as_os_str().len() <= PATH_BYTES_MAX, "{address:?}");
            let _listener = UnixListener::bind(&address.path).unwrap();
            assert!(std::fs::symlink_metadata(socket_path(data_dir)).unwrap().file_type().is_socket());
        }
    }
}
