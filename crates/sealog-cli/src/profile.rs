//! Profiles: addresses and keys under names, in a file that nobody else may read.
//!
//! ```toml
//! [profiles.default]
//! url = "https://audit.example.org"
//! key = "at_live_…"
//! ```

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
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

#[derive(PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    url: Option<String>,
    key: Option<String>,
    operator_token: Option<String>,
}

#[derive(Debug, Default)]
pub(super) struct Profile {
    pub url: Option<String>,
    pub key: Option<Zeroizing<String>>,
    pub operator_token: Option<Zeroizing<String>>,
}

/// Used when none is asked for.
pub(super) const DEFAULT: &str = "default";

/// Where the file is, by the directories that the environment names.
pub(super) fn path(var: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name: &str| var(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(PathBuf::from(set("HOME")?).join(".config")))?;
    Some(config.join("sealog/config.toml"))
}

/// The profile of this name. That there is no file, or nothing in it under the default name, is fine unless
/// one was asked for.
pub(super) fn read(path: Option<&Path>, asked: Option<&str>) -> Result<Profile, Failure> {
    let missing = |why: String| match asked {
        Some(name) => Err(Failure::usage(format!("there is no profile {name:?}: {why}"))),
        None => Ok(Profile::default()),
    };
    let Some(path) = path else { return missing("neither HOME nor XDG_CONFIG_HOME is set".into()) };
    match std::fs::metadata(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return missing(format!("{} does not exist", path.display()));
        }
        Err(error) => return Err(Failure::usage(format!("{}: {error}", path.display()))),
    }
    let mut profiles = file(path)?.profiles;
    match profiles.remove(asked.unwrap_or(DEFAULT)) {
        Some(entry) => Ok(Profile {
            url: entry.url,
            key: entry.key.map(Zeroizing::new),
            operator_token: entry.operator_token.map(Zeroizing::new),
        }),
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

/// What stands in a file that nobody else may read.
fn file(path: &Path) -> Result<File, Failure> {
    let bad = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let about = std::fs::metadata(path).map_err(|error| bad(error.to_string()))?;
    if !about.is_file() {
        return Err(bad("it is not a regular file: move it away and run `sealog login`".into()));
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(bad(format!("other users can read the keys in it: chmod 600 {}", path.display())));
    }
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(|error| bad(error.to_string()))?);
    parse(&text).map_err(bad)
}

fn parse(text: &str) -> Result<File, String> {
    // Its own message would show the line, and with it perhaps a key.
    toml::from_str(text).map_err(|error: toml::de::Error| {
        let before = error.span().map_or("", |span| text.get(..span.start).unwrap_or(text));
        format!(
            "line {}: not a valid profile file: {}; correct it, or move it away and run `sealog login`",
            before.matches('\n').count() + 1,
            error.message()
        )
    })
}

/// Names of all profiles of a file.
pub(super) fn names(path: &Path) -> Result<Vec<String>, Failure> {
    Ok(file(path)?.profiles.into_keys().collect())
}

/// The same file with one profile set, and everything else in it, comments included, as it was. Nothing where
/// that cannot be done: TOML has more ways to write a profile than this changes.
pub(super) fn with_profile(text: &str, name: &str, profile: &Profile) -> Option<Zeroizing<String>> {
    let mut section = Zeroizing::new(String::new());
    let mut line = |key: &str, value: Option<&str>| {
        if let Some(value) = value {
            section.push_str(&format!("{key} = {}\n", toml::Value::from(value)));
        }
    };
    line("url", profile.url.as_deref());
    line("key", profile.key.as_ref().map(|key| key.as_str()));
    line("operator_token", profile.operator_token.as_ref().map(|token| token.as_str()));
    let mut out = Zeroizing::new(String::with_capacity(text.len() + section.len() + 1));
    let (mut is_inside, mut is_written) = (false, false);
    for line in text.split_inclusive('\n') {
        if is_heading(line, name) {
            (is_inside, is_written) = (true, true);
            out.push_str(line);
            out.push_str(if line.ends_with('\n') { "" } else { "\n" });
            out.push_str(&section);
            continue;
        }
        if line.trim_start().starts_with('[') {
            is_inside = false;
        }
        // What the section had is replaced; what people wrote beside it stays.
        if !is_inside || line.trim_start().starts_with('#') || line.trim().is_empty() {
            out.push_str(line);
        }
    }
    if !is_written {
        if !out.is_empty() && !out.ends_with('\n') {
            out.push('\n');
        }
        out.push_str(&format!("[profiles.{}]\n", quoted_key(name)));
        out.push_str(&section);
    }
    let mut wanted = parse(text).ok()?.profiles;
    let owned = |secret: &Option<Zeroizing<String>>| secret.as_ref().map(|secret| secret.as_str().to_owned());
    let (key, operator_token) = (owned(&profile.key), owned(&profile.operator_token));
    wanted.insert(name.to_owned(), Entry { url: profile.url.clone(), key, operator_token });
    (parse(&out).ok()?.profiles == wanted).then_some(out)
}

/// Whether a line begins this profile, however it is spaced, quoted or commented.
fn is_heading(line: &str, name: &str) -> bool {
    line.trim_start().starts_with('[') && parse(line).is_ok_and(|file| file.profiles.contains_key(name))
}

fn quoted_key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    if is_bare { name.to_owned() } else { toml::Value::from(name).to_string() }
}

/// Replaces the file in one step; nobody else can read it at any moment.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let new = path.with_added_extension("new");
    // One that was left behind may be open to others.
    let _ = std::fs::remove_file(&new);
    let mut file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, path)
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
    fn a_profile_is_written_beside_the_others_and_comments_stay() {
        let text = "# mine\n[profiles.default]\nurl = \"http://a\"\nkey = \"old\"\n# of prod\n[profiles.prod]\nurl = \"https://b\"";
        let profile = Profile {
            url: Some("http://c\"d".into()),
            key: Some(Zeroizing::new("new".into())),
            operator_token: None,
        };
        let (_dir, path) = written("", 0o600);
        for name in ["default", "prod", "third", "a b.c"] {
            let changed = with_profile(text, name, &profile).unwrap();
            write(&path, &changed).unwrap();
            let read_back = read(Some(&path), Some(name)).unwrap();
            assert_eq!(read_back.url.as_deref(), Some("http://c\"d"), "{}", *changed);
            assert_eq!(read_back.key.as_ref().map(|key| key.as_str()), Some("new"));
            assert!(changed.contains("# mine\n") && changed.contains("# of prod\n"), "{}", *changed);
            let other = if name == "prod" { "default" } else { "prod" };
            assert!(read(Some(&path), Some(other)).unwrap().url.is_some());
            let mode = std::fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn a_heading_is_found_however_it_is_written_and_stays_so() {
        let profile = Profile { url: Some("http://c".into()), ..Profile::default() };
        for heading in [
            "[profiles.prod] # live",
            "  [ profiles . prod ]",
            "[profiles.\"prod\"]#live",
            "['profiles'.'prod']\t",
        ] {
            for rest in
                ["", "\nurl = \"https://b\"\nkey = \"old\" # mine\n[profiles.z]\nurl = \"http://z\"\n"]
            {
                let changed = with_profile(&format!("{heading}{rest}"), "prod", &profile).unwrap();
                assert!(changed.starts_with(&format!("{heading}\nurl = \"http://c\"\n")), "{}", *changed);
                let profiles = parse(&changed).unwrap().profiles;
                assert!(
                    profiles["prod"].key.is_none() && profiles.len() == if rest.is_empty() { 1 } else { 2 }
                );
            }
        }
    }

    #[test]
    fn a_file_that_this_cannot_change_is_left_to_its_owner() {
        let profile = Profile { url: Some("http://c".into()), ..Profile::default() };
        for text in [
            "[profiles]\nprod = { url = \"https://b\" }\n",
            "profiles.prod.url = \"https://b\"\n",
            "[profiles]\nprod.url = \"https://b\"\n",
            "[profiles.prod]\nurl = \"\"\"\n[profiles.prod]\n\"\"\"\n",
        ] {
            assert!(parse(text).is_ok(), "{text}");
            assert!(with_profile(text, "prod", &profile).is_none(), "{text}");
        }
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
