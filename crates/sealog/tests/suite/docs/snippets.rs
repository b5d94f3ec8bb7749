//! Configurations that pages show, for this program and for others: each is used by what it is for where that
//! can be had here, and otherwise read by a parser of its form; what it names of Sealog is then asked of a
//! real server. Names of files and of variables in the text are those that there are.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sealog_formats::input::{MAPPINGS, Place};
use sealog_testing::certificate;
use serde_json::{Value, json};
use toml::Value as Toml;

use super::{EXAMPLE_ADDRESS, blocks, root};
use crate::support::stage::*;
use crate::support::*;

type Check = fn(&str);

/// Page, form and beginning of each configuration, and what looks at it.
const CONFIGURATIONS: [(&str, &str, &str, Check); 6] = [
    ("settings.md", "toml", "listen =", settings_file),
    ("settings.md", "toml", "[plans.entry]", settings_file),
    ("command-line.md", "toml", "[profiles.default]", profile),
    ("operating.md", "yaml", "rule_files:", prometheus),
    ("shippers.md", "yaml", "processors:", collector),
    ("shippers.md", "ini", "[OUTPUT]", fluent_bit),
];
/// What stands behind the fence of a block that is a configuration.
const FORMS: [&str; 6] = ["toml", "yaml", "yml", "ini", "conf", "nginx"];

/// Files of Markdown whose names are taken at their word, beneath `docs`.
fn pages() -> Vec<String> {
    let mut pages = vec!["../README.md".to_owned(), "../CONTRIBUTING.md".to_owned()];
    for folder in ["", "adr/"] {
        for entry in std::fs::read_dir(root().join("docs").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{folder}{name}"));
            }
        }
    }
    assert!(pages.len() > 20, "{pages:?}");
    pages
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(root().join("docs").join(page)).unwrap()
}

#[test]
fn every_configuration_on_a_page_is_one_for_what_it_is_for() {
    let mut seen = BTreeSet::new();
    for page in pages() {
        for block in blocks(&page).iter().filter(|block| FORMS.contains(&block.info.as_str())) {
            let found = CONFIGURATIONS.iter().position(|(of, form, beginning, _)| {
                *of == page && *form == block.info && block.text.starts_with(beginning)
            });
            let found = found.unwrap_or_else(|| panic!("{page}: nobody looks at this:\n{}", block.text));
            assert!(seen.insert(found), "{page}: two blocks begin with the same words:\n{}", block.text);
            (CONFIGURATIONS[found].3)(&block.text);
        }
    }
    assert_eq!(seen.len(), CONFIGURATIONS.len(), "a page has lost its configuration: only {seen:?} are left");
}

/// Keys of a file of settings, as `config print` names them.
fn keys(table: &toml::Table, before: &str) -> Vec<String> {
    let of = |(name, value): (&String, &Toml)| match value {
        Toml::Table(inner) => keys(inner, &format!("{before}{name}.")),
        _ => vec![format!("{before}{name}")],
    };
    table.iter().flat_map(of).collect()
}

/// A server starts with it, and every key is one of its settings.
fn settings_file(text: &str) {
    let (dir, data) = data_dir();
    let path = |name: &str| dir.path().join(name);
    certificate::make(&path("fullchain.pem"), &path("privkey.pem"));
    // Nothing here listens on every address, or below 1024.
    let text = text.replace("/etc/sealog/tls", dir.path().to_str().unwrap());
    let text = text.replace("0.0.0.0:443", "127.0.0.1:0").replace("0.0.0.0:80", "127.0.0.1:0");
    std::fs::write(path("sealog.toml"), &text).unwrap();
    let mut print = sealog();
    print.args(["config", "print", "--json", "--config"]).arg(path("sealog.toml")).current_dir(dir.path());
    let (code, printed, noted) = ended(print.output().unwrap());
    assert_eq!(code, Some(0), "{text}\n{noted}");
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let keys = keys(&toml::from_str(&text).unwrap(), "");
    assert!(keys.len() >= 4, "{keys:?}");
    for key in keys {
        let from = printed[&key]["from"].as_str().unwrap_or_else(|| panic!("{key} is no setting"));
        assert!(from.contains("sealog.toml"), "{key}: {from}");
    }
    let mut command = sealog();
    command.args(["serve", "--config"]).arg(path("sealog.toml")).arg("--data-dir").arg(&data);
    if !text.contains("listen =") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    start(command).stop();
}

/// Commands reach a server by it.
fn profile(text: &str) {
    let stage = Stage::new();
    let file = stage.home.join(".config/sealog/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = text.replace("https://audit.example.org", &format!("http://{}", stage.address));
    let text = text.replace("at_live_…", &stage.key).replace("\"…\"", &format!("\"{OPERATOR_TOKEN}\""));
    std::fs::write(&file, &text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    for args in [&["log", "user.login"][..], &["events", "list"], &["admin", "tenant", "list"]] {
        let mut command = stage.command(args);
        let (code, _, noted) =
            ended(command.env_remove("SEALOG_URL").env_remove("SEALOG_API_KEY").output().unwrap());
        assert_eq!(code, Some(0), "{args:?} with\n{text}\n{noted}");
    }
    assert_eq!(stage.events().len(), 1);
}

/// Prometheus takes it, the rules are where the package puts them, and it asks where a server listens.
fn prometheus(text: &str) {
    const RULES: &str = "/usr/share/sealog/alerts.yml";
    let package = std::fs::read_to_string(root().join("scripts/build-deb")).unwrap();
    assert!(text.contains(RULES) && package.contains(&format!("monitoring/alerts.yml {}", &RULES[1..])));
    let target = &from_yaml(text)["scrape_configs"][0]["static_configs"][0]["targets"][0];
    let (_, printed, _) = ended(sealog().args(["config", "print", "--json"]).output().unwrap());
    let printed: Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((target, target.as_str()), (&printed["listen"]["value"], Some(EXAMPLE_ADDRESS)));
    let dir = tempfile::tempdir().unwrap();
    let rules = root().join("monitoring/alerts.yml");
    std::fs::write(dir.path().join("prometheus.yml"), text.replace(RULES, rules.to_str().unwrap())).unwrap();
    let mut promtool = Command::new("promtool");
    let output = promtool.args(["check", "config", "prometheus.yml"]).current_dir(dir.path()).output();
    let output = output.expect("scripts/setup installs promtool, with the package prometheus");
    let (code, said, noted) = ended(output);
    assert!(code == Some(0) && said.contains("rules found"), "{said}\n{noted}");
}

/// The variable that both shippers take the key from.
fn with_key(text: &str, key: &str) -> String {
    let filled = text.replace("${env:SEALOG_API_KEY}", key).replace("${SEALOG_API_KEY}", key);
    assert_ne!(filled, text, "the key comes from a variable");
    filled
}

/// A record with the attribute that the filter lets through, sent as the exporter says. The collector cannot
/// be had here: its own names are those of its documentation.
fn collector(text: &str) {
    let config = from_yaml(text);
    let filter = config["processors"]["filter/audit"]["logs"]["log_record"][0].as_str().unwrap();
    let attribute = filter.strip_prefix("attributes[\"").and_then(|rest| rest.strip_suffix("\"] == nil"));
    let attribute = attribute.unwrap_or_else(|| panic!("what is dropped has no such attribute: {filter}"));
    let logs = MAPPINGS.iter().find(|mapping| mapping.path == "/ingest/otlp/v1/logs").unwrap();
    let action = logs.rows.iter().find(|row| row.to == "action").unwrap();
    let is_mapped = action.from.iter().any(|place| matches!(place, Place::Named(name) if *name == attribute));
    assert!(is_mapped, "{attribute} is no action: {:?}", action.from);
    let exporter = &config["exporters"]["otlphttp/sealog"];
    let names: BTreeSet<&str> = exporter.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, BTreeSet::from(["logs_endpoint", "headers"]));
    let stage = Stage::new();
    let path = exporter["logs_endpoint"].as_str().unwrap().strip_prefix("https://audit.example.com").unwrap();
    let authorization = with_key(exporter["headers"]["Authorization"].as_str().unwrap(), &stage.key);
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    let record = json!({ "attributes": [{ "key": attribute, "value": { "stringValue": "user.login" } }] });
    let body = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] }).to_string();
    let (status, answer) = stage.server().request("POST", path, &headers, &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(stage.events().len(), 1);
}

/// Sent as `out_http` says: with `format json` an array.
fn fluent_bit(text: &str) {
    let config = python(FROM_INI, text);
    let output = config["OUTPUT"].as_object().unwrap();
    let names: BTreeSet<&str> = output.keys().map(String::as_str).collect();
    let known = ["name", "match", "host", "port", "tls", "uri", "format", "header"];
    assert_eq!(names, BTreeSet::from(known));
    let value = |name: &str| output[name].as_str().unwrap();
    assert_eq!([value("name"), value("format"), value("port"), value("tls")], ["http", "json", "443", "on"]);
    let stage = Stage::new();
    let header = with_key(value("header"), &stage.key);
    let (name, content) = header.split_once(' ').unwrap();
    let headers = [(name, content), ("Content-Type", "application/json")];
    let body =
        r#"[{"date":1794657601.25,"action":"user.login"},{"date":1794657601.5,"action":"user.logout"}]"#;
    let (status, answer) = stage.server().request("POST", value("uri"), &headers, body);
    assert_eq!(status, 202, "{answer}");
    assert_eq!(stage.events().len(), 2);
}

const FROM_YAML: &str = "import json, sys, yaml; print(json.dumps(yaml.safe_load(sys.stdin)))";
/// Names and values of Fluent Bit's classic form are parted by white space. `strict` refuses a name that
/// stands twice.
const FROM_INI: &str = "
import configparser, json, sys
parser = configparser.ConfigParser(delimiters=(' ',), interpolation=None, strict=True)
parser.read_file(sys.stdin)
print(json.dumps({name: dict(parser[name]) for name in parser.sections()}))
";

fn from_yaml(text: &str) -> Value {
    python(FROM_YAML, text)
}

/// What a script prints of a text, with the Python that `scripts/setup` makes.
fn python(script: &str, text: &str) -> Value {
    let mut python = Command::new(root().join("target/venv/bin/python"));
    python.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = python.spawn().expect("scripts/setup makes target/venv");
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let (code, said, noted) = ended(child.wait_with_output().unwrap());
    assert_eq!(code, Some(0), "{text}\n{noted}");
    serde_json::from_str(&said).unwrap()
}

/// Words of a text that begin like this.
fn words<'t>(text: &'t str, beginning: &'t str) -> impl Iterator<Item = &'t str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    text.match_indices(beginning).map(move |(at, _)| {
        let rest = &text[at..];
        &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())]
    })
}

/// Names that stand for others, and those that somebody else sets.
const NOT_OURS: [&str; 6] =
    ["SEALOG_A_B", "SEALOG_X_FILE", "SEALOG_SERVICE_", "SEALOG_PORT", "SEALOG_VKEY", "SEALOG_"];

#[test]
fn every_variable_that_a_page_names_is_a_setting_or_is_read_somewhere() {
    // A setting without a default is in no printed configuration, and every one is here.
    let (_, help, _) = ended(sealog().args(["serve", "--help"]).output().unwrap());
    let settings: BTreeSet<String> = words(&help, "SEALOG_").map(ToOwned::to_owned).collect();
    assert!(settings.contains("SEALOG_LIMITS_PER_IP_RPS"), "{settings:?}");
    let sources: String =
        ["crates", "scripts", "tools"].iter().flat_map(|folder| sources(&root().join(folder))).collect();
    let mut wrong = BTreeSet::new();
    for page in pages() {
        let text = text_of(&page);
        let set_there = |name: &str| text.contains(&format!("export {name}="));
        for name in words(&text, "SEALOG_").filter(|name| !NOT_OURS.contains(name)) {
            let setting = name.strip_suffix("_FILE").unwrap_or(name);
            if !settings.contains(setting) && !sources.contains(&format!("\"{name}\"")) && !set_there(name) {
                wrong.insert(format!("{page}: {name}"));
            }
        }
    }
    assert_eq!(wrong, BTreeSet::new());
}

/// Text of all programs beneath a folder.
fn sources(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            // This file has names that stand for others.
            if !["docs", "node_modules", "__pycache__"].contains(&name.as_str()) {
                found.extend(sources(&path));
            }
        } else if name.ends_with(".rs") || name.ends_with(".py") || !name.contains('.') {
            found.extend(std::fs::read_to_string(&path));
        }
    }
    found
}

const FOLDERS: [&str; 11] = [
    "crates/",
    "docs/",
    "examples/",
    "monitoring/",
    "packaging/",
    "scripts/",
    "tools/",
    "vectors/",
    "deploy/",
    "bench/",
    "fuzz/",
];

#[test]
fn every_file_of_the_repository_that_a_page_names_is_there() {
    let mut looked_at = 0;
    let mut wrong = BTreeSet::new();
    // Its names are those of files that a reader is about to make.
    for page in pages().into_iter().filter(|page| page != "how-to-add.md") {
        for name in text_of(&page).split('`').skip(1).step_by(2) {
            let is_path =
                FOLDERS.iter().any(|folder| name.starts_with(folder)) && !name.contains([' ', '*', '<', '…']);
            if !is_path || name.contains("NAME") {
                continue;
            }
            looked_at += 1;
            // `file.rs: function`
            let path: PathBuf = root().join(name.split(':').next().unwrap());
            if !path.exists() {
                wrong.insert(format!("{page}: {name}"));
            }
        }
    }
    assert!(looked_at > 50, "{looked_at}");
    assert_eq!(wrong, BTreeSet::new());
}
