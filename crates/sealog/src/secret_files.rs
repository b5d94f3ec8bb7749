//! Secrets that stand in files: `SEALOG_X_FILE` names one, and systemd hands some over in a directory
//! (`LoadCredential=`). So that none has to stand in an environment, which others can read and children
//! inherit.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use zeroize::Zeroizing;

/// Where systemd puts what `LoadCredential=` names.
pub(crate) const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// Most that a secret in a file may have.
const BYTES_MAX: u64 = 64 << 10;

/// Settings that may be secret: by their key, as in the settings file.
pub(crate) const SETTINGS: [&str; 3] = ["operator_token", "smtp.url", "store"];

/// Takes the variables that name files out of the environment, and returns the secrets by their setting, each
/// with its place. Those that a variable names go before those of systemd.
pub(crate) fn take(
    environment: &mut BTreeMap<String, String>,
    credentials: Option<&Path>,
    variable: impl Fn(&str) -> String,
) -> Result<BTreeMap<String, (String, String)>, String> {
    let mut secrets = BTreeMap::new();
    for key in SETTINGS {
        let name = variable(key);
        let file_name = format!("{name}_FILE");
        if let Some(path) = environment.remove(&file_name) {
            if environment.contains_key(&name) {
                return Err(format!("{name} and {file_name} are both set: remove one of them"));
            }
            secrets.insert(key.to_owned(), (read(&path, &file_name)?, file_name));
        } else if let Some(path) = credentials.map(|dir| dir.join(key)).filter(|path| path.exists()) {
            let place = format!("the credential {key}");
            secrets.insert(key.to_owned(), (read(&path, &place)?, place));
        }
    }
    Ok(secrets)
}

/// The first line: editors end it, and a secret has no other.
fn read(path: impl AsRef<Path>, place: &str) -> Result<String, String> {
    let path = path.as_ref();
    let wrong = |problem: &dyn std::fmt::Display| format!("{place}: {}: {problem}", path.display());
    let mut text = Zeroizing::new(String::new());
    let file = std::fs::File::open(path).map_err(|error| wrong(&error))?;
    file.take(BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    let secret =
        text.strip_suffix('\n').map_or(text.as_str(), |text| text.strip_suffix('\r').unwrap_or(text));
    if secret.is_empty() || secret.contains('\n') || secret.len() as u64 > BYTES_MAX {
        return Err(wrong(&"it must contain the secret in one line and nothing else"));
    }
    Ok(secret.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(key: &str) -> String {
        format!("SEALOG_{}", key.replace('.', "_").to_uppercase())
    }

    fn environment(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn every_secret_can_stand_in_a_file_that_a_variable_names() {
        let dir = tempfile::tempdir().unwrap();
        for key in SETTINGS {
            for ending in ["", "\n", "\r\n"] {
                let path = dir.path().join(key);
                std::fs::write(&path, format!("hunter2{ending}")).unwrap();
                let name = format!("{}_FILE", variable(key));
                let mut environment = environment(&[(&name, path.to_str().unwrap()), ("SEALOG_LISTEN", "x")]);
                let secrets = take(&mut environment, None, variable).unwrap();
                assert_eq!(secrets[key], ("hunter2".to_owned(), name));
                assert_eq!(environment.len(), 1, "the rest stays");
            }
        }
    }

    #[test]
    fn credentials_of_systemd_are_read_by_the_names_of_settings_and_a_variable_wins() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("smtp.url"), "smtp://of-systemd").unwrap();
        std::fs::write(dir.path().join("other"), "smtp://by-variable").unwrap();
        let mut none = BTreeMap::new();
        let secrets = take(&mut none, Some(dir.path()), variable).unwrap();
        assert_eq!(secrets.len(), 1);
        assert_eq!(secrets["smtp.url"], ("smtp://of-systemd".into(), "the credential smtp.url".into()));
        let path = dir.path().join("other");
        let mut environment = environment(&[("SEALOG_SMTP_URL_FILE", path.to_str().unwrap())]);
        assert_eq!(
            take(&mut environment, Some(dir.path()), variable).unwrap()["smtp.url"].0,
            "smtp://by-variable"
        );
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named_and_not_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        for text in ["", "\n", "hunter2\nhunter2\n", &"hunter2".repeat(10_000)] {
            std::fs::write(&path, text).unwrap();
            let mut environment = environment(&[("SEALOG_OPERATOR_TOKEN_FILE", path.to_str().unwrap())]);
            let error = take(&mut environment, None, variable).unwrap_err();
            assert!(
                error.starts_with("SEALOG_OPERATOR_TOKEN_FILE: ") && error.contains("one line"),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        let mut environment = environment(&[("SEALOG_STORE_FILE", "/nowhere"), ("SEALOG_STORE", "embedded")]);
        assert!(take(&mut environment, None, variable).unwrap_err().contains("both set"));
    }
}
