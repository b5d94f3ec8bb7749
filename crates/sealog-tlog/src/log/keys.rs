//! Signing keys as files: `PRIVATE+KEY+NAME+ID+KEY`, a line each, the form that other tools read.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use sealog_store::world::World;
use sealog_trust::note::SigningKey;
use zeroize::Zeroizing;

const MODE: u32 = 0o600;
/// While a key is rotated a file has two.
const KEYS_MAX: usize = 8;
const BYTES_MAX: u64 = 16 << 10;
/// The new content of a key file until the entry that names its key is durable.
const UNFINISHED: &str = "unfinished";

/// Who made a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The first start. Only the owner may read it.
    Made,
    /// A setting names it. Its group may read it, too.
    Given,
}

/// Why a key file cannot be used. No message shows any of its content.
#[derive(Debug)]
pub enum KeyError {
    /// Users who must not know the key can read it.
    Exposed {
        path: PathBuf,
        mode: u32,
    },
    Malformed {
        path: PathBuf,
        problem: String,
    },
    Io {
        path: PathBuf,
        error: io::Error,
    },
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyError::Exposed { path, mode } => {
                let path = path.display();
                write!(
                    f,
                    "other users can read the signing key {path} (mode {mode:04o}); run: chmod 600 {path}"
                )
            }
            KeyError::Malformed { path, problem } => write!(f, "{}: {problem}", path.display()),
            KeyError::Io { path, error } => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for KeyError {}

/// A file with the signing keys of one role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyFile {
    pub path: PathBuf,
    pub origin: Origin,
}

impl KeyFile {
    /// Returns the keys, the oldest first. None if there is no file.
    pub fn read(&self) -> Result<Option<Vec<SigningKey>>, KeyError> {
        self.read_at(&self.path)
    }

    /// Returns the keys that [`KeyFile::prepare`] left when a crash came before [`KeyFile::finish`].
    pub fn read_unfinished(&self) -> Result<Option<Vec<SigningKey>>, KeyError> {
        match self.read_at(&self.unfinished()) {
            // The crash came before it was whole, hence before anything named its key.
            Err(KeyError::Malformed { .. }) => Ok(None),
            read => read,
        }
    }

    fn read_at(&self, path: &Path) -> Result<Option<Vec<SigningKey>>, KeyError> {
        let io = |error| KeyError::Io { path: path.to_owned(), error };
        let malformed = |problem: String| KeyError::Malformed { path: path.to_owned(), problem };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(io)?,
        };
        let mode = file.metadata().map_err(io)?.mode() & 0o777;
        let forbidden = match self.origin {
            Origin::Made => 0o077,
            Origin::Given => 0o037,
        };
        if mode & forbidden != 0 {
            return Err(KeyError::Exposed { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(BYTES_MAX).read_to_string(&mut text).map_err(io)?;
        let keys: Result<Vec<SigningKey>, _> =
            text.lines().take(KEYS_MAX + 1).map(SigningKey::parse).collect();
        let keys = keys.map_err(|problem| malformed(problem.to_string()))?;
        match keys.len() {
            0 => Err(malformed("must have a signing key".into())),
            // A file that has lost its last line feed may have lost more.
            _ if !text.ends_with('\n') => Err(malformed("must end with a line feed".into())),
            1..=KEYS_MAX => Ok(Some(keys)),
            _ => Err(malformed(format!("must have at most {KEYS_MAX} signing keys"))),
        }
    }

    /// Writes what the file will have beside it; durable when it returns.
    pub fn prepare(&self, keys: &[SigningKey]) -> Result<(), KeyError> {
        let path = self.unfinished();
        let written = || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&path)?;
            for key in keys {
                file.write_all(Zeroizing::new(key.to_text()).as_bytes())?;
                file.write_all(b"\n")?;
            }
            file.sync_all()?;
            sync_dir(&path)
        };
        written().map_err(|error| KeyError::Io { path: path.clone(), error })
    }

    /// Gives what was prepared the file's name; durable when it returns.
    pub fn finish(&self) -> Result<(), KeyError> {
        let renamed = fs::rename(self.unfinished(), &self.path).and_then(|()| sync_dir(&self.path));
        renamed.map_err(|error| KeyError::Io { path: self.path.clone(), error })
    }

    fn unfinished(&self) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(".");
        path.push(UNFINISHED);
        path.into()
    }
}

/// Makes a new key. The name must be one that a key can have.
pub fn new_key(name: &str, world: &dyn World) -> Result<SigningKey, sealog_trust::text::Malformed> {
    let mut seed = Zeroizing::new([0; 32]);
    world.fill_random(&mut *seed);
    SigningKey::new(name, &seed)
}

/// Whether a log can have this name: its keys carry it.
pub fn is_origin(text: &str) -> bool {
    SigningKey::new(text, &[1; 32]).is_ok()
}

/// Makes the names in the directory of a file durable.
pub(super) fn sync_dir(path: &Path) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use sealog_store::world::SystemWorld;

    use super::*;

    fn file(dir: &tempfile::TempDir, origin: Origin) -> KeyFile {
        KeyFile { path: dir.path().join("log.key"), origin }
    }

    fn vkeys(keys: &[SigningKey]) -> Vec<String> {
        keys.iter().map(|key| key.public().to_string()).collect()
    }

    #[test]
    fn a_key_file_has_its_name_only_when_it_is_finished_and_only_its_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(&dir, Origin::Made);
        assert!(file.read().unwrap().is_none());
        let keys = vec![new_key("log", &SystemWorld).unwrap(), new_key("log", &SystemWorld).unwrap()];
        file.prepare(&keys).unwrap();
        assert!(file.read().unwrap().is_none());
        assert_eq!(vkeys(&file.read_unfinished().unwrap().unwrap()), vkeys(&keys));
        file.finish().unwrap();
        assert_eq!(vkeys(&file.read().unwrap().unwrap()), vkeys(&keys));
        assert_eq!(fs::metadata(&file.path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(file.read_unfinished().unwrap().is_none());
        let text = fs::read_to_string(&file.path).unwrap();
        assert!(text.starts_with("PRIVATE+KEY+log+"), "the form of other tools");
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_with_the_command_that_repairs_it() {
        let dir = tempfile::tempdir().unwrap();
        for (origin, mode, is_refused) in [
            (Origin::Made, 0o600, false),
            (Origin::Made, 0o400, false),
            (Origin::Made, 0o640, true),
            (Origin::Given, 0o640, false),
            (Origin::Given, 0o660, true),
            (Origin::Given, 0o644, true),
            (Origin::Given, 0o604, true),
        ] {
            let file = file(&dir, origin);
            let _ = fs::remove_file(&file.path);
            file.prepare(&[new_key("log", &SystemWorld).unwrap()]).unwrap();
            file.finish().unwrap();
            fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).unwrap();
            match file.read() {
                Ok(_) => assert!(!is_refused, "{origin:?} {mode:o}"),
                Err(error) => {
                    assert!(is_refused, "{origin:?} {mode:o}: {error}");
                    let repair = format!("chmod 600 {}", file.path.display());
                    assert!(error.to_string().ends_with(&repair), "{error}");
                }
            }
        }
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_and_not_shown() {
        let dir = tempfile::tempdir().unwrap();
        let file = file(&dir, Origin::Made);
        let key = new_key("log", &SystemWorld).unwrap().to_text();
        for text in [String::new(), "secret\n".into(), key.clone(), format!("{key}\n").repeat(9)] {
            let _ = fs::remove_file(&file.path);
            let mut made =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&file.path).unwrap();
            made.write_all(text.as_bytes()).unwrap();
            let error = file.read().unwrap_err().to_string();
            assert!(
                error.contains("must ") && !error.contains("secret") && !error.contains("PRIVATE+KEY+log"),
                "{error}"
            );
        }
    }
}
