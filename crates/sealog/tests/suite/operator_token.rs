//! `sealog operator-token`, and a server that takes the new token without a restart.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use crate::support::*;
use sealog_testing::eventually;
use serde_json::Value;

fn token(verb: &str, file: &Path) -> (Option<i32>, String, String) {
    ended(sealog().args(["operator-token", verb]).arg(file).output().unwrap())
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).unwrap().trim_end().to_owned()
}

fn tenants(server: &Running, token: &str) -> (u16, Value) {
    operator(server, token, "GET", "/tenants", &Value::Null)
}

#[test]
fn a_token_is_written_for_its_owner_alone_and_never_printed() {
    let (dir, _) = data_dir();
    let file = dir.path().join("operator_token");
    let (code, said, noted) = token("create", &file);
    assert_eq!((code, &*noted), (Some(0), ""), "{said}");
    let first = read(&file);
    assert!(first.len() == 64 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!said.contains(&first));
    // What is there is not overwritten, and a link is not followed.
    assert_eq!(token("create", &file).0, Some(2));
    let link = dir.path().join("link");
    symlink(dir.path().join("elsewhere"), &link).unwrap();
    assert_eq!(token("create", &link).0, Some(2));
    assert!(!dir.path().join("elsewhere").exists());
    assert_eq!(read(&file), first);
    assert_eq!(token("rotate", &dir.path().join("none")).0, Some(2));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let owner = file.metadata().unwrap().uid();
    let (code, said, _) = token("rotate", &file);
    assert!(code == Some(0) && !said.contains(&read(&file)), "{said}");
    assert_ne!(read(&file), first);
    let rotated = file.metadata().unwrap();
    assert_eq!((rotated.permissions().mode() & 0o777, rotated.uid()), (0o600, owner));
    assert!(!dir.path().join("operator_token.tmp").exists());
}

#[test]
fn a_rotated_token_counts_after_sighup_and_the_old_one_does_not() {
    let (dir, data) = data_dir();
    let file = dir.path().join("operator_token");
    assert_eq!(token("create", &file).0, Some(0));
    let first = read(&file);
    let mut command = serving(sealog(), &data);
    command.env("SEALOG_OPERATOR_TOKEN_FILE", &file);
    let server = start(command);
    assert_eq!(tenants(&server, &first).0, 200);
    assert_eq!(token("rotate", &file).0, Some(0));
    let second = read(&file);
    let refused = |token: &str| {
        let (status, answer) = tenants(&server, token);
        let told = answer["error"]["message"].as_str().is_some_and(|told| told.contains("operator token"));
        (status, answer["error"]["code"] == "auth/key_not_found" && told)
    };
    // Until it is told, the server has the token that it was started with.
    assert_eq!((tenants(&server, &first).0, refused(&second)), (200, (401, true)));
    signal(server.pid(), "-HUP");
    eventually("the new token counts", || tenants(&server, &second).0 == 200);
    assert_eq!(refused(&first), (401, true));
    // A file that cannot be used changes nothing.
    for wrong in ["", "short\n", "two\nlines\n"] {
        std::fs::write(&file, wrong).unwrap();
        signal(server.pid(), "-HUP");
        server.says("cannot reload the operator token; the old one still works");
        assert_eq!(tenants(&server, &second).0, 200, "{wrong:?}");
    }
    server.stop();
}
