//! What is delivered around the program: the unit, the Debian package, the container and the chart. What can be run here is run; what cannot be is looked at by its own tools.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use support::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn run(command: &mut Command) -> Output {
    let program = command.get_program().to_string_lossy().into_owned();
    command
        .current_dir(root())
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup installs it"))
}

/// What it said on both ways; it must have been content.
#[track_caller]
fn good(command: &mut Command) -> String {
    let output = run(command);
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// A program of `tools/packaging/requirements.txt`.
fn tool(name: &str) -> Command {
    Command::new(root().join("target/venv-packaging/bin").join(name))
}

#[test]
fn systemd_understands_the_unit_and_its_exposure_is_the_documented_one() {
    let dir = tempfile::tempdir().unwrap();
    let unit = dir.path().join("sealog.service");
    let text = read("packaging/systemd/sealog.service");
    assert!(text.contains("Type=notify\n") && text.contains("WatchdogSec=60\n"));
    std::fs::write(&unit, text.replace("/usr/bin/sealog", SEALOG)).unwrap();
    let said = good(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&unit));
    assert!(!said.contains("sealog.service"), "{said}");
    let said =
        good(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(&unit));
    let exposure = said.split("Overall exposure level for sealog.service: ").nth(1).unwrap();
    let exposure = exposure.split(' ').next().unwrap();
    let documented =
        format!("**{exposure}** (`systemd-analyze security --offline=true packaging/systemd/sealog.service`");
    assert!(read("docs/operating.md").contains(&documented), "docs/operating.md should say {documented}");
}

#[test]
fn the_package_installs_and_its_unit_runs_under_a_real_systemd() {
    let dir = tempfile::tempdir().unwrap();
    let built = run(Command::new("scripts/build-deb").args(["--binary", SEALOG, "--output"]).arg(dir.path()));
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let package = String::from_utf8(built.stdout).unwrap().trim().to_owned();
    let fields = good(Command::new("dpkg-deb").args(["--field", &package]));
    assert!(fields.contains(concat!("Version: ", env!("CARGO_PKG_VERSION"), "\n")), "{fields}");
    let listed = good(Command::new("dpkg-deb").args(["--contents", &package]));
    for (mode, path) in [
        ("-rwxr-xr-x root/root", "./usr/bin/sealog"),
        ("-rw-r--r-- root/root", "./etc/sealog/sealog.toml"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/sealog.service"),
        ("-rw-r--r-- root/root", "./usr/lib/sysusers.d/sealog.conf"),
        ("-rw-r--r-- root/root", "./usr/share/doc/sealog/copyright"),
    ] {
        assert!(
            listed.lines().any(|line| line.starts_with(mode) && line.ends_with(path)),
            "{path}: {listed}"
        );
    }
    // What the program says of itself is in the package, as soon as it says so.
    let help = good(sealog().arg("--help"));
    let pages = [
        ("man", "./usr/share/man/man1/sealog.1.gz"),
        ("completions", "./usr/share/bash-completion/completions/sealog"),
    ];
    for (command, path) in pages {
        let has = help.lines().any(|line| line.trim_start().starts_with(&format!("{command} ")));
        assert_eq!(listed.contains(path), has, "{path}: {listed}");
    }
    let tried = run(Command::new("scripts/try-package").arg(&package));
    let said = [tried.stdout, tried.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    if tried.status.code() == Some(77) {
        eprintln!("NOT TRIED: {said}");
        return;
    }
    assert!(tried.status.success(), "{said}");
    assert!(said.contains("a server that hangs was started again by the watchdog"), "{said}");
}

#[test]
fn an_argument_that_the_package_scripts_do_not_know_is_refused() {
    let wrong = run(Command::new("scripts/build-deb").arg("--bianry"));
    assert_eq!(wrong.status.code(), Some(2));
    let missing = run(Command::new("scripts/build-deb").args(["--binary", "/nowhere"]));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("there is no program /nowhere"));
}

#[test]
fn the_settings_of_the_package_are_settings_of_the_program() {
    let (dir, data) = data_dir();
    let uncommented: String = read("packaging/sealog.toml")
        .lines()
        .map(|line| if line.starts_with('#') && !line.starts_with("# ") { &line[1..] } else { line })
        .map(|line| format!("{line}\n"))
        .collect();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    sealog_testing::certificate::make(&cert, &key);
    let text = uncommented
        .replace("/etc/sealog/tls/fullchain.pem", cert.to_str().unwrap())
        .replace("/etc/sealog/tls/privkey.pem", key.to_str().unwrap())
        .replace("0.0.0.0:80", "127.0.0.1:0")
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("/var/lib/sealog", data.to_str().unwrap());
    let config = dir.path().join("sealog.toml");
    std::fs::write(&config, text).unwrap();
    let mut command = sealog();
    command.args(["serve", "--config"]).arg(&config);
    start(command).stop();
}

#[test]
fn secrets_come_from_files_as_containers_and_systemd_hand_them_over() {
    const TOKEN: &str = "operator-token-in-a-file";
    let database = sealog_testing::postgres::cluster().database();
    let (dir, data) = data_dir();
    let credentials = dir.path().join("credentials");
    std::fs::create_dir(&credentials).unwrap();
    std::fs::write(credentials.join("operator_token"), format!("{TOKEN}\n")).unwrap();
    std::fs::write(dir.path().join("store"), format!("{}\n", database.url())).unwrap();
    let mut command = serving(sealog(), &data);
    command.env("SEALOG_STORE_FILE", dir.path().join("store")).env("CREDENTIALS_DIRECTORY", &credentials);
    let server = start(command);
    let (status, body) = server.get(TOKEN, "/operator/v1/tenants");
    assert_eq!(status, 200, "{body}");
    assert!(!data.join("live").exists(), "the events are in the database");
    let log = server.begun.clone() + &server.stop();
    assert!(!log.contains(TOKEN) && !log.contains(&database.url()), "{log}");
}

#[test]
fn the_container_is_what_it_is_said_to_be() {
    good(tool("hadolint").arg("Dockerfile"));
    let text = read("Dockerfile");
    for line in [
        "USER 10001:10001",
        "VOLUME [\"/data\"]",
        "ENTRYPOINT [\"/usr/bin/sealog\"]",
        "CMD [\"/usr/bin/sealog\", \"healthcheck\"]",
    ] {
        assert!(text.contains(line), "{line}");
    }
    // A command that compose files and charts leave to the image is one that the program has.
    let wanted = read("Cargo.toml")
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap()
        .replace('"', "");
    assert!(text.contains(&format!("FROM rust:{wanted}-slim")), "the image builds with Rust {wanted}");
}

#[test]
fn compose_files_and_the_chart_name_settings_that_there_are_and_keep_the_root_read_only() {
    let help = good(sealog().args(["serve", "--help"]));
    let known = |name: &str| {
        let setting = name.strip_suffix("_FILE").unwrap_or(name);
        assert!(help.contains(&format!("[env: {setting}]")), "{name} is no setting");
    };
    for store in ["embedded", "postgres"] {
        let path = format!("packaging/docker/compose.{store}.yml");
        let text = read(&path);
        assert!(text.contains("read_only: true") && text.contains("cap_drop: [ALL]"), "{path}");
        text.split(|letter: char| !(letter.is_ascii_uppercase() || letter == '_'))
            .filter(|word| word.starts_with("SEALOG_"))
            .for_each(known);
        let parsed =
            good(Command::new(root().join("target/venv/bin/python")).args(["-c", CHECK_COMPOSE, &path]));
        assert!(parsed.starts_with("good"), "{parsed}");
    }
    let chart = "packaging/helm/sealog";
    good(tool("helm").args(["lint", "--strict", chart]));
    let embedded =
        good(tool("helm").args(["template", "x", chart, "--set", "settings.limits\\.per_ip_rps=7"]));
    assert!(embedded.contains("kind: StatefulSet") && !embedded.contains("kind: Deployment"));
    assert!(
        embedded.contains("name: SEALOG_LIMITS_PER_IP_RPS\n")
            && embedded.contains("kind: PodDisruptionBudget")
    );
    let all = "store=postgres,existingSecret=s,metrics.serviceMonitor.enabled=true,ingress.enabled=true,tls.existingSecret=t,baseUrl=https://log.example";
    let postgres = good(tool("helm").args([
        "template",
        "x",
        chart,
        "--set",
        all,
        "--set",
        "trustedProxies={10.0.0.0/8}",
    ]));
    assert!(postgres.contains("kind: Deployment") && !postgres.contains("kind: StatefulSet"));
    assert!(postgres.contains("kind: ServiceMonitor") && postgres.contains("secretName: s\n"));
    for text in [&embedded, &postgres] {
        assert!(text.contains("readOnlyRootFilesystem: true") && text.contains("runAsUser: 10001"));
        text.lines()
            .filter_map(|line| line.trim().strip_prefix("- name: SEALOG_"))
            .for_each(|name| known(&format!("SEALOG_{name}")));
    }
    // A value that would be ignored, a secret in the open, and a database without its secret are refused.
    for wrong in
        ["stroe=postgres", "settings.operator_token=hunter2hunter2hunter2", "store=postgres", "store=mysql"]
    {
        assert!(
            !run(tool("helm").args(["template", "x", chart, "--set", wrong])).status.success(),
            "{wrong}"
        );
    }
}

/// What a compose file must be to be one: every secret and volume that a service names is declared.
const CHECK_COMPOSE: &str = r#"
import sys, yaml
file = yaml.safe_load(open(sys.argv[1]))
assert set(file) - {"x-sealog"} == {"services", "volumes", "secrets"}, set(file)
for name, service in file["services"].items():
    assert service["image"], name
    for secret in service.get("secrets", []):
        assert secret in file["secrets"], (name, secret)
    for volume in service.get("volumes", []):
        assert volume.split(":")[0] in file["volumes"], (name, volume)
    for variable, value in service.get("environment", {}).items():
        if variable.endswith("_FILE"):
            assert value.removeprefix("/run/secrets/") in service["secrets"], (name, variable)
    for other in service.get("depends_on", {}):
        assert other in file["services"], (name, other)
print("good")
"#;
