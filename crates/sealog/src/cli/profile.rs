//! Profiles: addresses and keys under names, in a file that nobody else may read.
//!
//! ```toml
//! [profiles.default]
//! url = "https://audit.example.org"
//! key = "at_live_…"
//! ```

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use zeroize::Zeroizing;

use super::exit::Failure;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    profiles: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: Option<String>,
    key: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Profile {
    pub url: Option<String>,
    pub key: Option<Zeroizing<String>>,
}

/// Used when none is asked for.
const DEFAULT: &str = "default";

/// Where the file is, by the directories that the environment names.
pub(super) fn path(var: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    Some(config.join("sealog/config.toml"))
}

/// The profile of this name. That there is no file, or nothing in it under the default name, is fine unless one was asked for.
pub(super) fn read(path: Option<&Path>, asked: Option<&str>) -> Result<Profile, Failure> {
    let missing = |why: String| match asked {
        Some(name) => Err(Failure::usage(format!("there is no profile {name:?}: {why}"))),
        None => Ok(Profile::default()),
    };
    let Some(path) = path else { return missing("neither HOME nor XDG_CONFIG_HOME is set".into()) };
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return missing(format!("{} does not exist", path.display()));
        }
        Err(error) => return Err(bad(error.to_string())),
    };
    if metadata.permissions().mode() & 0o077 != 0 {
        return Err(bad(format!("others can read the keys in it: chmod 600 {}", path.display())));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?);
    // Its own message would show the line, and with it perhaps a key.
    let file: File = toml::from_str(&text)
        .map_err(|error| bad(format!("it is no file of profiles: {}", error.message())))?;
    let mut profiles = file.profiles;
    match profiles.remove(asked.unwrap_or(DEFAULT)) {
        Some(entry) => Ok(Profile { url: entry.url, key: entry.key.map(Zeroizing::new) }),
        None => {
            let known: Vec<&str> = profiles.keys().map(String::as_str).collect();
            missing(format!(
                "{} has {}",
                path.display(),
                if known.is_empty() { "none".into() } else { known.join(", ") }
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        (dir, path)
    }

    const TEXT: &str =
        "[profiles.default]\nurl = \"http://a\"\n[profiles.prod]\nurl = \"https://b\"\nkey = \"at_live_x\"\n";

    #[test]
    fn a_profile_is_found_by_its_name_and_the_default_one_without() {
        let (_dir, path) = written(TEXT, 0o600);
        assert_eq!(read(Some(&path), None).unwrap().url.as_deref(), Some("http://a"));
        let prod = read(Some(&path), Some("prod")).unwrap();
        assert_eq!(
            (prod.url.as_deref(), prod.key.as_ref().map(|key| key.as_str())),
            (Some("https://b"), Some("at_live_x"))
        );
    }

    #[test]
    fn a_profile_that_was_asked_for_and_is_not_there_is_an_error_that_names_those_that_are() {
        let (_dir, path) = written(TEXT, 0o600);
        let refused = read(Some(&path), Some("staging")).unwrap_err();
        assert!(refused.message.contains("default, prod"), "{}", refused.message);
        assert!(read(Some(Path::new("/nonexistent/x")), None).unwrap().url.is_none());
        assert!(read(Some(Path::new("/nonexistent/x")), Some("prod")).is_err());
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        for mode in [0o640, 0o604, 0o644] {
            let (_dir, path) = written(TEXT, mode);
            let refused = read(Some(&path), None).unwrap_err();
            assert!(refused.message.contains("chmod 600"), "{}", refused.message);
        }
    }

    #[test]
    fn a_bad_file_is_an_error_that_does_not_show_a_key() {
        let (_dir, path) = written("[profiles.default]\nkey = \"at_live_secret\nurl = 3", 0o600);
        let refused = read(Some(&path), None).unwrap_err();
        assert!(!refused.message.contains("secret"), "{}", refused.message);
    }
}
