//! The signed log as an operator meets it: key files, settings, commands, and what a server says when it
//! does not sign.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::*;

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// The vkey in the file of the first run, below the words that say whom to give it to.
fn shown_vkey(data: &Path) -> Option<String> {
    let text = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    let line = text.split_once("Give this line to your auditor")?.1;
    line.lines().find_map(|line| line.strip_prefix("  vkey       ")).map(str::to_owned)
}

#[test]
fn the_first_start_makes_key_files_for_their_owner_alone_and_shows_the_vkey() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let log = serve(&data).stop();
    let keys = ["log.key", "service.key"].map(|name| data.join("trust").join(name));
    let texts = keys.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
    assert_eq!(keys.each_ref().map(|path| mode(path)), [0o600, 0o600]);
    let vkey = shown_vkey(&data).expect("the first run shows it");
    // The name and the id of the key; the private part is nowhere but in its file.
    let named = vkey.rsplit_once('+').unwrap().0;
    assert!(named.starts_with("sealog/"), "{vkey}");
    assert!(texts[0].starts_with(&format!("PRIVATE+KEY+{named}+")), "{vkey}");
    assert!(texts[1].starts_with(&format!("PRIVATE+KEY+{}/service+", named.split('+').next().unwrap())));
    let first_run = std::fs::read_to_string(data.join("first-run.txt")).unwrap();
    assert!(!first_run.contains("PRIVATE+KEY") && !log.contains("PRIVATE+KEY"), "{log}");
    // The next start has the same keys.
    serve(&data).stop();
    assert_eq!(keys.each_ref().map(|path| std::fs::read_to_string(path).unwrap()), texts);
}

#[test]
fn the_origin_is_that_of_the_setting_or_of_the_base_url_and_stays() {
    let with = |data: &Path, environment: &[(&str, &str)]| {
        let mut command = serving(sealog(), data);
        command.envs(environment.iter().copied());
        start(command)
    };
    let dir = tempfile::tempdir().unwrap();
    let named = dir.path().join("named");
    with(&named, &[("SEALOG_TRUST_ORIGIN", "log.example"), ("SEALOG_BASE_URL", "https://x.example")]).stop();
    assert!(shown_vkey(&named).unwrap().starts_with("log.example+"));
    let server = with(&named, &[("SEALOG_TRUST_ORIGIN", "other.example")]);
    let log = server.begun.clone() + &server.stop();
    assert!(log.contains("trust.origin has no effect"), "{log}");
    let of_url = dir.path().join("of-url");
    with(&of_url, &[("SEALOG_BASE_URL", "https://x.example")]).stop();
    assert!(shown_vkey(&of_url).unwrap().starts_with("x.example/tlog/v1/store+"));
    let off = dir.path().join("off");
    with(&off, &[("SEALOG_TRUST_ENABLED", "false")]).stop();
    assert_eq!(shown_vkey(&off), None);
}

#[test]
fn a_key_file_that_others_can_read_is_refused_at_start_with_the_command_that_repairs_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    serve(&data).stop();
    for name in ["log.key", "service.key"] {
        let path = data.join("trust").join(name);
        for wrong in [0o640, 0o604, 0o644] {
            std::fs::set_permissions(&path, Permissions::from_mode(wrong)).unwrap();
            let (code, said, error) = ended(serving(sealog(), &data).output().unwrap());
            assert_eq!((code, said.as_str()), (Some(1), ""), "{error}");
            assert!(
                error.contains("cannot open the signed log: other users can read the signing key"),
                "{error}"
            );
            // The command as it is told is what repairs it.
            let command = error.trim_end().split_once("; run: ").expect("it says what to run").1;
            assert_eq!(command, format!("chmod 600 {}", path.display()));
            assert!(std::process::Command::new("sh").args(["-c", command]).status().unwrap().success());
            assert_eq!(mode(&path), 0o600);
        }
    }
    serve(&data).stop();
}

#[test]
fn a_named_key_file_may_be_readable_for_its_group_and_signs_only_once_a_log_was_begun() {
    let dir = tempfile::tempdir().unwrap();
    let (made, data) = (dir.path().join("made"), dir.path().join("data"));
    serve(&made).stop();
    let key = dir.path().join("given.key");
    std::fs::copy(made.join("trust/log.key"), &key).unwrap();
    let given = || {
        let mut command = serving(sealog(), &data);
        command.args(["--trust-log-key-file", key.to_str().unwrap()]);
        command
    };
    std::fs::set_permissions(&key, Permissions::from_mode(0o644)).unwrap();
    let (code, _, error) = ended(given().output().unwrap());
    assert!(code == Some(1) && error.contains(&format!("chmod 600 {}", key.display())), "{error}");
    std::fs::set_permissions(&key, Permissions::from_mode(0o640)).unwrap();
    let server = start(given());
    let log = server.begun.clone() + &server.stop();
    assert!(log.contains("no store log was begun"), "{log}");
    assert_eq!(shown_vkey(&data), None);
    assert!(!data.join("trust/log.key").exists(), "none is made beside the one that is named");
}
