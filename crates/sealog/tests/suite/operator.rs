//! `sealog admin` and `sealog login`.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::support::stage::*;
use crate::support::*;
use serde_json::Value;

fn made(stage: &Stage, args: &[&str]) -> Value {
    let (code, said, noted) = stage.operate(&[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{args:?}: {noted}");
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{args:?}: {error}: {said}"))
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_else(|| panic!("{name} of {value}")).to_owned()
}

#[test]
fn tenants_projects_keys_users_actions_and_frameworks_are_made_listed_changed_and_revoked() {
    let stage = Stage::new();
    let tenant = made(
        &stage,
        &["admin", "tenant", "create", "Acme", "--plan", "middle", "--contact-email", "a@acme.example"],
    );
    let tenant_id = text(&tenant, "tenant_id");
    let (_, listed, _) = stage.operate(&["admin", "tenant", "list"]);
    assert!(
        listed.lines().any(|line| line.starts_with(&tenant_id) && line.contains("\tAcme\tmiddle\t")),
        "{listed}"
    );
    let changed = made(
        &stage,
        &["admin", "tenant", "change", &tenant_id, "--name", "Acme Ltd", "--rate-limit-rps", "7"],
    );
    assert_eq!((text(&changed, "name").as_str(), &changed["rate_limit_rps"]), ("Acme Ltd", &7.into()));
    let changed = made(&stage, &["admin", "tenant", "change", &tenant_id, "--rate-limit-rps", "plan"]);
    assert_eq!(changed["rate_limit_rps"], Value::Null);
    assert_eq!(made(&stage, &["admin", "tenant", "show", &tenant_id]), changed);

    let project =
        made(&stage, &["admin", "project", "create", "--tenant", &tenant_id, "Shop", "--framework", "soc2"]);
    let project_id = text(&project, "project_id");
    let enabled = made(&stage, &["admin", "framework", "enable", "--project", &project_id, "gdpr"]);
    assert_eq!(enabled["frameworks"], serde_json::json!(["soc2", "gdpr"]));
    let disabled = made(&stage, &["admin", "framework", "disable", "--project", &project_id, "soc2"]);
    assert_eq!(disabled["frameworks"], serde_json::json!(["gdpr"]));
    assert_eq!(stage.operate(&["admin", "framework", "list", "--project", &project_id]).1.lines().count(), 1);
    assert_eq!(stage.operate(&["admin", "framework", "list"]).1.lines().count(), 12);
    let renamed = made(&stage, &["admin", "project", "change", &project_id, "--name", "Store"]);
    assert_eq!(made(&stage, &["admin", "project", "show", &project_id]), renamed);
    assert!(stage.operate(&["admin", "project", "list", "--tenant", &tenant_id]).1.contains("Store"));

    let action = made(
        &stage,
        &[
            "admin",
            "action",
            "create",
            "--tenant",
            &tenant_id,
            "invoice.paid",
            "--category",
            "billing",
            "--required-field",
            "amount",
        ],
    );
    assert_eq!(action["required_fields"], serde_json::json!(["amount"]));
    assert!(
        stage.operate(&["admin", "action", "list", "--tenant", &tenant_id]).1.starts_with("invoice.paid\t")
    );

    let key = made(&stage, &["admin", "key", "create", "--project", &project_id, "ci", "--mode", "live"]);
    let logged = |key: &str| {
        let mut command = stage.command(&["log", "invoice.paid", "-m", "amount=5", "--no-spool"]);
        command.env("SEALOG_API_KEY", key).output().unwrap().status.code()
    };
    assert_eq!(logged(&text(&key, "key")), Some(0));
    let (_, listed, _) = stage.operate(&["admin", "key", "list", "--project", &project_id]);
    assert!(listed.contains(&text(&key, "key_id")) && !listed.contains(&text(&key, "key")), "{listed}");
    let revoked = made(&stage, &["admin", "key", "revoke", &text(&key, "key_id")]);
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    assert_eq!(logged(&text(&key, "key")), Some(3));

    let args = ["admin", "user", "create", "--tenant", &tenant_id, "o@acme.example", "--role", "owner"];
    let (code, _, noted) = stage.operate(&args);
    assert!(code == Some(2) && noted.contains("--password-stdin"), "{noted}");
    let mut command = stage.command(&[&args[..], &["--password-stdin"]].concat());
    let (code, _, noted) =
        piped_into(command.env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN), "correct horse battery\n");
    assert_eq!(code, Some(0), "{noted}");
    assert!(
        stage.operate(&["admin", "user", "list", "--tenant", &tenant_id]).1.contains("o@acme.example\towner")
    );
}

fn piped_into(command: &mut Command, input: &str) -> (Option<i32>, String, String) {
    use std::io::Write;
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    ended(child.wait_with_output().unwrap())
}

#[test]
fn an_operator_who_may_not_or_asks_for_what_is_not_there_is_told_what_to_do() {
    let stage = Stage::new();
    let none = "00000000-0000-4000-8000-000000000000";
    for (args, code, said) in [
        (&["admin", "tenant", "show", none][..], 4, "check the id"),
        (&["admin", "tenant", "show", "../x"], 2, "the list commands show them"),
        (&["admin", "tenant", "change", none], 2, "give at least one change"),
        (&["admin", "tenant", "create", ""], 6, "validation/invalid_field"),
        (&["admin", "tenant", "change", none, "--rate-limit-rps", "fast"], 2, "whole number"),
        (&["admin", "framework", "enable", "--project", none, "gpdr"], 2, "choose from"),
        (&["admin", "key", "create", "--project", none, "x", "--mode", "prod"], 2, "live"),
        (&["admin", "plan"], 2, "unrecognized subcommand"),
        (
            &[
                "admin",
                "user",
                "create",
                "a@b.example",
                "--tenant",
                none,
                "--role",
                "owner",
                "--password-stdin",
            ],
            2,
            "pipe one line in",
        ),
    ] {
        let (found, out, noted) = stage.operate(args);
        assert!(found == Some(code) && noted.contains(said), "{args:?}: {found:?} {noted}");
        assert_eq!(out, "");
    }
    let wrong = stage
        .command(&["admin", "tenant", "list"])
        .env("SEALOG_OPERATOR_TOKEN", "not-the-token-of-it")
        .output()
        .unwrap();
    assert_eq!(wrong.status.code(), Some(3));
    let (code, _, noted) = stage.run(&["admin", "tenant", "list"]);
    assert!(code == Some(3) && noted.contains("SEALOG_OPERATOR_TOKEN"), "{noted}");
}

#[test]
fn a_key_that_works_is_kept_in_a_profile_that_nobody_else_can_read() {
    let stage = Stage::new();
    let login = |args: &[&str], secret: &str| {
        let mut command = stage.command(&[&["login", "--stdin"][..], args].concat());
        piped_into(command.env_remove("SEALOG_API_KEY"), &format!("{secret}\n"))
    };
    let path = stage.home.join(".config/sealog/config.toml");
    let (code, _, noted) = login(&[], "at_live_wrong");
    assert_eq!((code, path.exists()), (Some(3), false), "{noted}");
    let (code, said, noted) = login(&[], &stage.key);
    assert_eq!((code, said.as_str()), (Some(0), ""), "{noted}");
    assert!(!noted.contains(&stage.key));
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let (code, said, noted) = login(&["--json"], &stage.key);
    let told: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, noted.as_str()), (Some(0), ""));
    assert_eq!((&told["profile"], &told["operator"]), (&"default".into(), &false.into()), "{said}");
    assert!(told["file"] == path.to_str().unwrap() && !said.contains(&stage.key), "{said}");
    assert_eq!(login(&["--operator"], OPERATOR_TOKEN).0, Some(0));
    assert_eq!(login(&["--profile", "test"], &stage.test_key()).0, Some(0));
    let kept = |args: &[&str]| {
        let mut command = stage.command(args);
        ended(command.env_remove("SEALOG_API_KEY").env_remove("SEALOG_URL").output().unwrap())
    };
    assert_eq!(kept(&["log", "user.login", "--actor-id", "kept"]).0, Some(0));
    assert_eq!(actors(&stage), ["kept"]);
    assert_eq!(kept(&["log", "user.login", "--profile", "test"]).0, Some(0));
    assert_eq!(kept(&["admin", "tenant", "list"]).0, Some(0));
    assert_eq!(stage.events().len(), 1, "the other one is a test event");
    // What is kept beside it would go to another service.
    let before = std::fs::read(&path).unwrap();
    for args in [&[][..], &["--operator"]] {
        let args = [&["login", "--no-input", "--url", "http://127.0.0.1:1"][..], args].concat();
        let (code, _, noted) = ended(stage.command(&args).output().unwrap());
        assert!(code == Some(2) && noted.contains("give another profile"), "{noted}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    let (code, _, noted) = ended(stage.command(&["login", "--no-input"]).output().unwrap());
    assert!(code == Some(3) && noted.contains("--stdin"), "{noted}");
}
