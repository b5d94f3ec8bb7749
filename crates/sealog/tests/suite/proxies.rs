//! The proxies of `examples/proxies` in front of a real server: events pass, the client's address is known,
//! and the live view is not held back.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::*;
use sealog_testing::{certificate, eventually};

fn example(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/proxies");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// Replaces what differs from machine to machine; each must be there.
fn with(text: &str, changes: &[(&str, &str)]) -> String {
    changes.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "the example has no {from:?}");
        text.replace(from, to)
    })
}

/// A place for a proxy, and what it needs to know.
struct Stage {
    dir: tempfile::TempDir,
    server: Running,
    plain: u16,
    secure: u16,
}

impl Stage {
    fn new() -> Stage {
        let dir = tempfile::tempdir().unwrap();
        certificate::make(&dir.path().join("cert.pem"), &dir.path().join("key.pem"));
        // No proxy takes a free port and says which; both are held until both are known.
        let ports = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [plain, secure] = ports.map(|port| port.local_addr().unwrap().port());
        let mut command = serving(sealog(), &dir.path().join("data"));
        command.args([
            "--trusted-proxies",
            "127.0.0.1",
            "--base-url",
            &format!("https://localhost:{secure}"),
        ]);
        let server = start(command);
        Stage { dir, server, plain, secure }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        std::fs::write(self.dir.path().join(name), text).unwrap();
        self.path(name)
    }

    /// Exit code, and head and body of the answer with what curl says about it.
    fn curl(&self, args: &[&str]) -> (i32, String) {
        let output = Command::new("curl")
            .args(["-sS", "-i", "--max-time", "30", "--cacert", &self.path("cert.pem")])
            .args(args)
            .output()
            .unwrap();
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        (output.status.code().unwrap_or(-1), said)
    }

    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.secure)
    }

    /// What has to work, whichever proxy it is.
    fn check(&self, proxy: Command) {
        let mut proxy = Proxy::start(proxy);
        eventually("the proxy listens", || {
            assert!(proxy.runs(), "{}", proxy.said());
            self.curl(&[&self.url("/healthz")]).1.contains(" 200")
        });
        let key = first_key(&self.dir.path().join("data"));
        let authorization = format!("Authorization: Bearer {key}");

        // An event, with the client's address and not what the client claims to be.
        let claim = "X-Forwarded-For: 203.0.113.9";
        let (_, answer) =
            self.curl(&["-H", &authorization, "-H", claim, "-d", LOGIN, &self.url("/v1/events")]);
        assert!(answer.contains(" 202"), "{answer}");
        assert!(
            answer.to_ascii_lowercase().contains("strict-transport-security: max-age=31536000"),
            "{answer}"
        );
        let (_, list) = self.curl(&["-H", &authorization, &self.url("/v1/events")]);
        assert!(list.contains("\"ip_address\":\"127.0.0.1\""), "{list}");
        // A batch that is too large: the answer is Sealog's own. (Old versions of curl do not take it over
        // HTTP/2, where it comes before the end of the request.)
        let large = self.write("large.json", &format!("{{\"events\":[]{}}}", " ".repeat(2 << 20)));
        let (_, answer) = self.curl(&[
            "-H",
            &authorization,
            "--http1.1",
            "-d",
            &format!("@{large}"),
            &self.url("/v1/events/batch"),
        ]);
        assert!(answer.contains(" 413") && answer.contains("\"code\":\"validation/"), "{answer}");
        // Nobody behind a proxy is on this machine.
        assert!(self.curl(&[&self.url("/metrics")]).1.contains(" 404"), "metrics are not for everybody");
        // Plain HTTP leads to TLS.
        let (_, answer) =
            self.curl(&["-H", "Host: localhost", &format!("http://127.0.0.1:{}/app", self.plain)]);
        let head = answer.to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 30") && head.contains("location: https://localhost"), "{answer}");
        self.live_view_is_not_held_back(&authorization);
    }

    /// Signs in, opens the live view, and hears of an event while the view is open.
    fn live_view_is_not_held_back(&self, authorization: &str) {
        let text = std::fs::read_to_string(self.dir.path().join("data/first-run.txt")).unwrap();
        let beginning = format!("{}#", self.url("/app/claim"));
        let secret = text.split_whitespace().find_map(|word| word.strip_prefix(&beginning)).unwrap();
        let jar = self.path("cookies");
        let form = |path: &str, body: &str| {
            let site = "Sec-Fetch-Site: same-origin";
            let (_, answer) = self.curl(&["-c", &jar, "-b", &jar, "-H", site, "-d", body, &self.url(path)]);
            assert!(answer.contains(" 303"), "{answer}");
        };
        form(
            "/app/claim",
            &format!(
                "token={secret}&organisation=Acme&project=production&email=me%40example.org&password=correct+horse+battery"
            ),
        );
        form("/app/sign-in", "email=me%40example.org&password=correct+horse+battery");
        let (_, home) = self.curl(&["-b", &jar, &self.url("/app")]);
        let home = home.to_ascii_lowercase();
        let page = home.split_once("location: ").unwrap().1.split("\r\n").next().unwrap();
        let tail = format!("{}/live/tail", page.split_once("/live").unwrap().0);
        let mut view = Command::new("curl")
            .args([
                "-sSN",
                "--max-time",
                "60",
                "--cacert",
                &self.path("cert.pem"),
                "-b",
                &jar,
                &self.url(&tail),
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(view.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line == ": live"), "the beginning of the view is held back");
        let (_, answer) = self.curl(&["-H", authorization, "-d", LOGIN, &self.url("/v1/events")]);
        assert!(answer.contains(" 202"), "{answer}");
        assert!(lines.any(|line| line == "event: rows"), "an event is held back until the view ends");
        view.kill().unwrap();
        view.wait().unwrap();
    }
}

/// Killed when dropped, with the processes that it has started.
struct Proxy {
    child: Child,
    log: PathBuf,
    _log: tempfile::TempDir,
}

impl Proxy {
    fn start(mut command: Command) -> Proxy {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let file = std::fs::File::create(&log).unwrap();
        let program = command.get_program().to_string_lossy().into_owned();
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup installs it"));
        Proxy { child, log, _log: dir }
    }

    fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let children = children(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        for child in children {
            let _ = Command::new("kill").args(["-KILL", &child.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn nginx_passes_events_addresses_and_the_live_view_on() {
    let stage = Stage::new();
    let site = with(
        &example("nginx.conf"),
        &[
            ("127.0.0.1:8080", &stage.server.address),
            ("https://log.example.com$request_uri", "https://localhost$request_uri"),
            ("log.example.com;", "localhost;"),
            ("listen 80;", &format!("listen 127.0.0.1:{};", stage.plain)),
            ("listen 443 ssl", &format!("listen 127.0.0.1:{} ssl", stage.secure)),
            ("/etc/ssl/certs/log.example.com.pem", &stage.path("cert.pem")),
            ("/etc/ssl/private/log.example.com.key", &stage.path("key.pem")),
        ],
    );
    let site = stage.write("site.conf", &site);
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {};\n", stage.path(name)))
        .concat();
    let main = format!(
        "daemon off;\npid {};\nerror_log stderr;\nworker_processes 1;\nevents {{}}\nhttp {{\naccess_log off;\n{temp}include {site};\n}}\n",
        stage.path("pid")
    );
    // Its workers are another user's where the tests are root's.
    let main = if is_root() { format!("user root;\n{main}") } else { main };
    let main = stage.write("nginx.conf", &main);
    let path = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
    let mut command = Command::new(path);
    command.args(["-c", &main, "-p", &stage.path(""), "-e", "stderr"]);
    stage.check(command);
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

#[test]
fn caddy_passes_events_addresses_and_the_live_view_on() {
    let stage = Stage::new();
    let (cert, key) = (stage.path("cert.pem"), stage.path("key.pem"));
    let site = format!("https://localhost:{} {{\n\ttls {cert} {key}\n", stage.secure);
    let text = with(
        &example(if has_request_buffers() { "Caddyfile" } else { "Caddyfile-2.6" }),
        &[("\nlog.example.com {\n", &format!("\n{site}")), ("127.0.0.1:8080", &stage.server.address)],
    );
    // It redirects by itself, from a port of its own.
    let text =
        format!("{{\n\tadmin off\n\thttp_port {}\n\thttps_port {}\n}}\n{text}", stage.plain, stage.secure);
    let config = stage.write("Caddyfile", &text);
    let mut command = Command::new("caddy");
    command.args(["run", "--adapter", "caddyfile", "--config", &config]);
    command
        .env("HOME", stage.dir.path())
        .env("XDG_DATA_HOME", stage.dir.path())
        .env("XDG_CONFIG_HOME", stage.dir.path());
    stage.check(command);
}

/// From version 2.7 on. Before, there was another word for it, which later ones no longer know.
fn has_request_buffers() -> bool {
    let output = Command::new("caddy").arg("version").output().expect("scripts/setup installs Caddy");
    let version = String::from_utf8_lossy(&output.stdout).into_owned();
    !version.trim_start_matches('v').starts_with("2.6.")
}

#[test]
fn the_files_for_both_versions_of_caddy_differ_by_one_word() {
    let content = |file: &str| example(file).split_once('\n').unwrap().1.to_owned();
    let newer = content("Caddyfile");
    assert_eq!(newer.replace("request_buffers 4MB", "buffer_requests"), content("Caddyfile-2.6"));
    assert_eq!(newer.matches("request_buffers 4MB").count(), 1);
}

#[test]
fn traefik_passes_events_addresses_and_the_live_view_on() {
    let stage = Stage::new();
    let dynamic = with(
        &example("traefik.dynamic.toml"),
        &[
            ("Host(`log.example.com`)", "Host(`localhost`)"),
            ("127.0.0.1:8080", &stage.server.address),
            ("/etc/ssl/certs/log.example.com.pem", &stage.path("cert.pem")),
            ("/etc/ssl/private/log.example.com.key", &stage.path("key.pem")),
        ],
    );
    let dynamic = stage.write("traefik.dynamic.toml", &dynamic);
    let main = with(
        &example("traefik.toml"),
        &[
            ("address = \":80\"", &format!("address = \"127.0.0.1:{}\"", stage.plain)),
            ("address = \":443\"", &format!("address = \"127.0.0.1:{}\"", stage.secure)),
            ("/etc/traefik/traefik.dynamic.toml", &dynamic),
        ],
    );
    let main = stage.write(
        "traefik.toml",
        &format!("[global]\ncheckNewVersion = false\nsendAnonymousUsage = false\n\n{main}"),
    );
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/venv-packaging/bin/traefik");
    let mut command = Command::new(program);
    command.arg(format!("--configFile={main}")).current_dir(stage.dir.path());
    stage.check(command);
}
