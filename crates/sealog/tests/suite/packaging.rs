//! What is delivered around the program: the unit, the Debian package, the container and the chart. What can
//! be run here is run; what cannot be is looked at by its own tools.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::*;
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap()
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
    // However often a start has failed, there is another one.
    assert!(text.contains("Restart=on-failure\n") && text.contains("StartLimitIntervalSec=0\n"));
    fs::write(&unit, text.replace("/usr/bin/sealog", SEALOG)).unwrap();
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
fn systemd_understands_the_units_for_backups_and_their_commands_run() {
    let dir = tempfile::tempdir().unwrap();
    let (data, backups, figures) =
        (dir.path().join("data"), dir.path().join("backups"), dir.path().join("figures"));
    fs::create_dir(&figures).unwrap();
    let mut command = serving(sealog(), &data);
    command.current_dir(dir.path());
    let server = start(command);
    for name in ["sealog-backup", "sealog-backup-verify"] {
        let mut units = Vec::new();
        for end in ["service", "timer"] {
            let unit = dir.path().join(format!("{name}.{end}"));
            let text = read(&format!("packaging/systemd/{name}.{end}"));
            fs::write(&unit, text.replace("/usr/bin/sealog", SEALOG)).unwrap();
            units.push(unit);
        }
        let said = good(Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&units));
        assert!(!said.contains(name), "{said}");
        let service = read(&format!("packaging/systemd/{name}.service"));
        let commands: Vec<&str> =
            service.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/sealog ")).collect();
        assert!(!commands.is_empty());
        // The directory of its figures is made by systemd; an exporter of another user reads it.
        assert!(service.contains("\nStateDirectory=sealog-metrics\nStateDirectoryMode=0755\n"), "{service}");
        for line in commands {
            let line = line.replace(" --config /etc/sealog/sealog.toml", "");
            let line = line.replace("/var/backups/sealog", backups.to_str().unwrap());
            let line = line.replace("/var/lib/sealog-metrics", figures.to_str().unwrap());
            let mut command = sealog();
            command.args(line.split(' ')).current_dir(dir.path());
            let (code, said, noted) = ended(command.output().unwrap());
            assert_eq!(code, Some(0), "{line}: {said}{noted}");
        }
    }
    assert!(backups.join("VERIFIED").is_file());
    for (file, metric) in [
        ("backup.prom", "sealog_backup_last_success_timestamp_seconds"),
        ("backup-verify.prom", "sealog_backup_verify_last_success_timestamp_seconds"),
    ] {
        let text = fs::read_to_string(figures.join(file)).unwrap();
        assert!(text.lines().any(|line| line.starts_with(&format!("{metric} 1"))), "{file}: {text}");
    }
    server.stop();
}

#[test]
fn the_version_names_the_commit_and_the_profile_of_the_build() {
    let said = good(Command::new(SEALOG).arg("--version"));
    // A build of developers does not know its commit: it would be linked anew for each.
    assert_eq!(said, concat!("sealog ", env!("CARGO_PKG_VERSION"), " (unknown commit, debug)\n"));
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
        ("-rw-r--r-- root/root", "./lib/systemd/system/sealog-backup.service"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/sealog-backup.timer"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/sealog-backup-verify.service"),
        ("-rw-r--r-- root/root", "./lib/systemd/system/sealog-backup-verify.timer"),
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
        left_out("the package was not installed, and its unit was not run", &said);
        return;
    }
    assert!(tried.status.success(), "{said}");
    for seen in [
        "a server that hangs was started again by the watchdog",
        "with a certificate, it takes events over HTTPS alone",
        "an upgrade kept settings and events",
        "what was backed up is restored",
        "a server on what was restored goes on",
        "the old primary was fenced, and what only it had is in a file",
        "removed and purged; events and backups are kept",
    ] {
        assert!(said.contains(seen), "{seen}: {said}");
    }
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
    fs::write(&config, text).unwrap();
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
    fs::create_dir(&credentials).unwrap();
    fs::write(credentials.join("operator_token"), format!("{TOKEN}\n")).unwrap();
    fs::write(dir.path().join("store"), format!("{}\n", database.url())).unwrap();
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

/// Runs the step of the Dockerfile that leaves the manifests over, on the manifests of this workspace and one
/// other source. The files that are left, with their content.
fn manifests_with(source: &str) -> (tempfile::TempDir, BTreeMap<PathBuf, String>) {
    let text = read("Dockerfile");
    let step = text.split_once("\nRUN find . -type f").expect("the step is there").1;
    let step = format!("find . -type f{}", step.split_once("\n\n").unwrap().0);
    let dir = tempfile::tempdir().unwrap();
    let tracked = good(Command::new("git").args(["ls-files", "*Cargo.toml", "Cargo.lock"]));
    for path in tracked.lines() {
        let to = dir.path().join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(root().join(path), to).unwrap();
    }
    fs::create_dir_all(dir.path().join("crates/sealog/src/admin")).unwrap();
    fs::write(dir.path().join("crates/sealog/src/admin/x.rs"), source).unwrap();
    let made = Command::new("sh").arg("-ec").arg(step).current_dir(dir.path()).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut left = BTreeMap::new();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir.path()).unwrap().to_owned();
                left.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    (dir, left)
}

#[test]
fn the_image_builds_its_dependencies_in_a_layer_that_no_source_changes() {
    let (dir, left) = manifests_with("fn a() {}");
    assert_eq!(left, manifests_with("fn b() {}").1);
    assert!(left.len() > 30 && left.contains_key(Path::new("crates/sealog/src/main.rs")), "{left:?}");
    // Cargo takes it for the same workspace, with the same dependencies.
    let locked = ["metadata", "--locked", "--offline", "--format-version", "1"];
    let of = |dir: &Path| {
        let output = Command::new(env!("CARGO")).args(locked).current_dir(dir).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
        let packages = metadata["packages"].as_array().unwrap();
        packages.iter().map(|package| package["name"].to_string()).collect::<Vec<_>>()
    };
    assert_eq!(of(dir.path()), of(&root()));
    // The layer is built before the sources are there, and without an argument that changes.
    let text = read("Dockerfile");
    let at = |line: &str| text.find(line).unwrap_or_else(|| panic!("{line}"));
    let built = at("COPY --from=manifests /src ./\nRUN cargo build --release --locked -p sealog ");
    assert!(built < text.rfind("\nCOPY . .\n").unwrap() && built < at("\nARG COMMIT"));
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
        compose(&path);
    }
    let chart = "packaging/helm/sealog";
    good(tool("helm").args(["lint", "--strict", chart]));
    let embedded =
        good(tool("helm").args(["template", "x", chart, "--set", "settings.limits\\.per_ip_rps=7"]));
    assert!(embedded.contains("  replicas: 1\n") && embedded.contains("storage: 20Gi\n"));
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
    assert!(postgres.contains("  replicas: 2\n") && postgres.contains("storage: 1Gi\n"));
    // A server changes no tables that are there.
    assert!(postgres.contains("kind: Job") && postgres.contains("helm.sh/hook: pre-upgrade"));
    assert!(postgres.contains("args: [\"migrate\"]") && !embedded.contains("migrate"));
    assert!(postgres.contains("kind: ServiceMonitor") && postgres.contains("secretName: s\n"));
    for text in [&embedded, &postgres] {
        // On a database, too, a server has a high-water mark, and docs/operating.md wants it on a disk that
        // survives a restart.
        assert!(text.contains("kind: StatefulSet") && !text.contains("kind: Deployment"));
        assert!(text.contains("volumeClaimTemplates:") && text.contains("whenScaled: Retain"));
        assert!(text.contains("mountPath: /data") && !text.contains("emptyDir"), "{text}");
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

/// Holds a compose file against the rules; how it hands the secrets over.
fn compose(path: &str) -> Value {
    let python = root().join("target/venv/bin/python");
    let parsed = good(Command::new(python).args(["-c", CHECK_COMPOSE, path]));
    serde_json::from_str(&parsed).unwrap_or_else(|error| panic!("{error}: {parsed}"))
}

/// Docker is not here. What goes before the server is a command of the shell, which is; it is run as a
/// container runs it, on files as a person makes them.
#[test]
fn the_server_of_a_compose_file_can_read_the_secrets_that_only_a_person_on_the_host_could() {
    if fs::metadata("/proc/self").unwrap().uid() != 0 {
        left_out("the secrets of compose files", "only root can give files to the user of the container");
        return;
    }
    for (store, names) in [("embedded", &["operator_token"][..]), ("postgres", &["operator_token", "store"])]
    {
        let handed_over = compose(&format!("packaging/docker/compose.{store}.yml"));
        let dir = tempfile::tempdir().unwrap();
        let (host, volume) = (dir.path().join("host"), dir.path().join("volume"));
        for (dir, mode) in [(dir.path(), 0o755), (host.as_path(), 0o755), (volume.as_path(), 0o755)] {
            fs::create_dir_all(dir).unwrap();
            fs::set_permissions(dir, fs::Permissions::from_mode(mode)).unwrap();
        }
        for name in names {
            let secret =
                if *name == "store" { "postgres://u:hunter2@127.0.0.1:1/x" } else { "0123456789abcdef" };
            fs::write(host.join(name), format!("{secret}\n")).unwrap();
            fs::set_permissions(host.join(name), fs::Permissions::from_mode(0o600)).unwrap();
            std::os::unix::fs::chown(host.join(name), Some(1000), Some(1000)).unwrap();
        }
        let command = handed_over["command"].as_str().unwrap();
        let command = command
            .replace("/run/secrets/", &format!("{}/", host.display()))
            .replace("/run/sealog/", &format!("{}/", volume.display()));
        // Twice: a container is made anew, and its volume is not.
        for _ in 0..2 {
            good(Command::new("/bin/sh").args(["-euc", &command]));
        }
        let user = handed_over["user"].as_str().unwrap().parse().unwrap();
        let settings = |of: &Path, uid| {
            let mut command = sealog();
            command.args(["config", "print", "--json"]).current_dir(dir.path()).uid(uid).gid(uid);
            for name in names {
                command.env(format!("SEALOG_{}_FILE", name.to_uppercase()), of.join(name));
            }
            ended(command.output().unwrap())
        };
        let (code, _, said) = settings(&host, user);
        assert!(code == Some(2) && said.contains("Permission denied"), "as it was before: {said}");
        let (code, said, noted) = settings(&volume, user);
        assert_eq!(code, Some(0), "{noted}");
        assert!(said.contains("SEALOG_OPERATOR_TOKEN_FILE"), "{said}");
        assert_eq!(settings(&volume, user + 1).0, Some(2), "and nobody else reads them");
    }
}

/// What a compose file must be to be one: every secret and volume that a service names is declared. And what
/// it must be to start: the program's user reads no file of the host.
const CHECK_COMPOSE: &str = r#"
import json, re, sys, yaml
file = yaml.safe_load(open(sys.argv[1]))
assert {name for name in file if not name.startswith("x-")} == {"services", "volumes", "secrets"}, set(file)
step = file["services"]["secrets"]
assert step["user"] == "0:0" and {"DAC_OVERRIDE", "CHOWN", "FOWNER"} == set(step["cap_add"]), step
command, = step["command"]
handed = re.fullmatch(r"install -o (\d+) -g \1 -m 0400 ((?:/run/secrets/\S+ )+)/run/sealog/", command)
assert handed, command
copies = [path.removeprefix("/run/secrets/") for path in handed[2].split()]
assert sorted(copies) == sorted(step["secrets"]), step
image = open("Dockerfile").read()
assert f"USER {handed[1]}:{handed[1]}\n" in image, handed[1]
for name, service in file["services"].items():
    if service["image"] == "sealog" and service is not step:
        assert "user" not in service and "secrets" not in service, (name, "cannot read files of the host")
        assert "secrets:/run/sealog:ro" in service["volumes"], name
        assert service["depends_on"]["secrets"]["condition"] == "service_completed_successfully", name
    assert service["image"], name
    for secret in service.get("secrets", []):
        assert secret in file["secrets"], (name, secret)
    for volume in service.get("volumes", []):
        assert volume.split(":")[0] in file["volumes"], (name, volume)
    for variable, value in service.get("environment", {}).items():
        if variable.endswith("_FILE"):
            place, _, secret = value.rpartition("/")
            there = {"/run/secrets": service.get("secrets", []), "/run/sealog": copies}[place]
            assert secret in there, (name, variable)
    for other in service.get("depends_on", {}):
        assert other in file["services"], (name, other)
print(json.dumps({"user": handed[1], "command": command}))
"#;
