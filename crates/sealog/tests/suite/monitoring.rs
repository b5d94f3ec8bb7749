//! What operators watch: alert rules that fire when they should, and a dashboard whose every query finds
//! something in the metrics of a real server.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use sealog_testing::{certificate, eventually, http};
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../monitoring")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(folder().join(name)).unwrap()
}

/// The names of metrics in a text, without what a histogram adds to its name.
fn metrics(text: &str) -> BTreeSet<String> {
    let words = text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let names = words.filter(|word| word.starts_with("sealog_") || word.starts_with("process_"));
    names.map(|name| name.trim_end_matches("_bucket").trim_end_matches("_count").to_owned()).collect()
}

fn promtool(args: &[&str], input: impl Into<Stdio>) {
    let output = Command::new("promtool").args(args).current_dir(folder()).stdin(input).output();
    let output = output.expect("scripts/setup installs promtool, with the package prometheus");
    let said =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(output.status.success(), "{said}");
}

#[test]
fn every_alert_fires_when_it_should_and_is_quiet_otherwise() {
    promtool(&["check", "rules", "alerts.yml"], Stdio::null());
    promtool(&["test", "rules", "alerts.test.yml", "alerts.nights.test.yml"], Stdio::null());
    let tests = read("alerts.test.yml") + &read("alerts.nights.test.yml");
    let rules = read("alerts.yml");
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 16, "{names:?}");
    let documented = std::fs::read_to_string(folder().join("../docs/operating.md")).unwrap();
    for name in names {
        for is in ["fires", "is quiet"] {
            assert!(tests.contains(&format!("- name: {name} {is}\n")), "no test that {name} {is}");
        }
        assert!(
            documented.contains(&format!("`{name}`")),
            "docs/operating.md does not say what to do about {name}"
        );
    }
}

/// Names, types and units as Prometheus wants them.
#[test]
fn what_a_server_and_the_commands_measure_passes_the_check_of_promtool() {
    let (dir, data) = data_dir();
    let server = serve(&data);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    let (_, served) = server.get("-", "/metrics");
    server.stop();
    let (backups, of_backup) = (dir.path().join("backups"), dir.path().join("figures.prom"));
    let mut command = sealog();
    command
        .args(["backup", "create", "--data-dir"])
        .arg(&data)
        .arg(&backups)
        .arg("--metrics")
        .arg(&of_backup);
    assert_eq!(ended(command.output().unwrap()).0, Some(0));
    let of_server = dir.path().join("server.prom");
    std::fs::write(&of_server, served).unwrap();
    for file in [of_server, of_backup] {
        promtool(&["check", "metrics"], std::fs::File::open(file).unwrap());
    }
}

/// The queries of the dashboard, with the variables of Grafana filled in as it would.
fn queries() -> Vec<(String, String)> {
    let dashboard: Value = serde_json::from_str(&read("grafana.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap().iter();
    let targets = panels.flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        targets.into_iter().map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    targets
        .map(|(title, query)| (title, query.replace("$__rate_interval", "1m").replace("$instance", ".*")))
        .collect()
}

/// A Prometheus that asks one server; killed when dropped.
struct Prometheus {
    child: Child,
    address: String,
    _dir: tempfile::TempDir,
}

impl Prometheus {
    fn start(target: &str) -> Prometheus {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("prometheus.yml");
        let rules = folder().join("alerts.yml").canonicalize().unwrap();
        let text = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}}\nrule_files: ['{}']\nscrape_configs:\n- job_name: sealog\n  static_configs: [{{targets: ['{target}']}}]\n",
            rules.display()
        );
        std::fs::write(&config, text).unwrap();
        // It cannot be told to take a free port and say which.
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("scripts/setup installs prometheus");
        Prometheus { child, address, _dir: dir }
    }

    fn get(&self, path: &str) -> Option<Value> {
        let mut stream = std::net::TcpStream::connect(&self.address).ok()?;
        let request = format!("GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", self.address);
        std::io::Write::write_all(&mut stream, request.as_bytes()).ok()?;
        let mut answer = String::new();
        std::io::Read::read_to_string(&mut stream, &mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// The result of a query; an error of it is a wrong query.
    fn query(&self, query: &str) -> Vec<Value> {
        let encoded: String = query.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={encoded}")).expect("it answers");
        assert_eq!(answer["status"], "success", "{query}: {answer}");
        answer["data"]["result"].as_array().unwrap().clone()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The metrics that backup, verification and replica write, by running them.
fn of_commands(data: &Path, dir: &Path) -> BTreeSet<String> {
    let (backups, file) = (dir.join("backups"), dir.join("figures.prom"));
    let served = dir.join("replicated");
    let mut command = serving(sealog(), &served);
    command.env("SEALOG_OPERATOR_TOKEN", "a token of the operator").env("SEALOG_REPLICATION_ENABLED", "true");
    // Nobody listens there.
    command.env("SEALOG_REPLICATION_PEER", "http://127.0.0.1:9");
    let server = start(command);
    let from = format!("http://{}", server.address);
    let (data, to, spool) = (data.to_str().unwrap(), dir.join("replica"), dir.join("spool"));
    std::fs::create_dir(&spool).unwrap();
    let mut known = BTreeSet::new();
    for args in [
        &["backup", "create", "--data-dir", data, backups.to_str().unwrap()][..],
        &["backup", "verify", backups.to_str().unwrap()],
        &["replicate", "--once", "--from", &from, "--to", to.to_str().unwrap()],
        &["spool", "list", "--spool", spool.to_str().unwrap()],
    ] {
        let mut command = sealog();
        command.args(args).arg("--metrics").arg(&file);
        if args[0] == "replicate" {
            command.env("SEALOG_OPERATOR_TOKEN", "a token of the operator");
        }
        let (code, said, noted) = ended(command.output().unwrap());
        assert_eq!(code, Some(0), "{said}{noted}");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o644, "the exporter is another user");
        let text = std::fs::read_to_string(&file).unwrap();
        known.extend(
            text.lines().filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned())),
        );
    }
    let seen = "sealog_replication_last_contact_timestamp_seconds";
    let (_, text) = server.get("-", "/metrics");
    let line = text.lines().find(|line| line.starts_with(seen)).unwrap();
    assert!(!line.ends_with(" 0"), "{line}");
    known.insert(seen.to_owned());
    assert!(text.contains("\nsealog_replication_peer_up 0\n"), "{text}");
    known.insert("sealog_replication_peer_up".to_owned());
    server.stop();
    known
}

#[test]
fn every_alert_has_a_page_of_the_documentation_that_a_server_has() {
    let (_dir, data) = data_dir();
    let server = serve(&data);
    let rules = read("alerts.yml");
    let alerts = rules.matches("- alert: ").count();
    let begin = "runbook_url: \"{{ $externalLabels.docs_url }}";
    let pages: Vec<&str> = rules.split(begin).skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert_eq!(pages.len(), alerts);
    for page in pages {
        let (path, section) = page.split_once('#').unwrap();
        let (status, text) = server.get("-", &format!("/docs{path}"));
        assert!(status == 200 && text.contains(&format!("id=\"{section}\"")), "{page}: {status}");
    }
    server.stop();
}

#[test]
fn every_query_of_the_dashboard_and_of_the_alerts_finds_its_metrics_in_a_real_server() {
    let (dir, data) = data_dir();
    let (cert, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
    certificate::make(&cert, &key);
    let mut command = serving(sealog(), &data);
    command.args(["--metrics-listen", "127.0.0.1:0", "--tls-cert", cert.to_str().unwrap()]);
    command.args(["--tls-key", key.to_str().unwrap()]);
    let server = start(command);
    let metrics_at =
        server.says("/metrics needs no token on this address")["address"].as_str().unwrap().to_owned();
    let served = || http::request(&metrics_at, "GET", "/metrics", &[], "").1;
    let known: BTreeSet<String> = {
        let text = served();
        text.lines()
            .filter_map(|line| Some(line.strip_prefix("# TYPE ")?.split(' ').next()?.to_owned()))
            .collect()
    };
    // Those of commands come from files, which they write for the collector of the node exporter.
    let known = &known | &of_commands(&data, dir.path());
    let mut asked = metrics(&read("alerts.yml"));
    queries().iter().for_each(|(_, query)| asked.extend(metrics(query)));
    let unknown: Vec<&String> = asked
        .iter()
        .filter(|name| !known.contains(*name) && !known.contains(name.trim_end_matches("_sum")))
        .collect();
    assert_eq!(unknown, Vec::<&String>::new(), "no such metric is served");

    let prometheus = Prometheus::start(&metrics_at);
    // Some of everything, again and again: a rate needs two looks.
    let live = first_key(&data);
    let url = format!("https://{}/v1/events", server.address);
    let visit = || {
        let authorization = format!("Authorization: Bearer {live}");
        let curl = |args: &[&str]| {
            let done = Command::new("curl")
                .args(["-sS", "-o", "/dev/null", "--cacert", cert.to_str().unwrap()])
                .args(args)
                .status();
            assert!(done.unwrap().success());
        };
        curl(&["-H", &authorization, "-d", LOGIN, &url]);
        curl(&["-H", &authorization, &format!("{url}/verify")]);
    };
    visit();
    let mut missing: Vec<(String, String)> = queries();
    assert!(missing.len() > 40, "{}", missing.len());
    eventually("Prometheus answers", || prometheus.get("/api/v1/status/buildinfo").is_some());
    eventually("every query finds something", || {
        visit();
        missing.retain(|(_, query)| prometheus.query(query).is_empty());
        if !missing.is_empty() {
            eprintln!("{} queries find nothing yet, such as {:?}", missing.len(), missing[0].1);
        }
        missing.is_empty()
    });
    // The mean of nothing and a quantile of nothing are answers too, and say nothing.
    let quantile = queries().into_iter().find(|(title, _)| title == "Time to acknowledge").unwrap().1;
    eventually("a quantile is a number", || {
        visit();
        prometheus.query(&quantile).iter().any(|sample| sample["value"][1].as_str() != Some("NaN"))
    });
    // On a server where all is well no alert fires but that its new certificate ends within a month, if that.
    let firing = prometheus.query("ALERTS{alertstate=\"firing\"}");
    assert_eq!(firing, Vec::<Value>::new());
    server.stop();
}
