//! TLS as a client meets it: both versions of HTTP, certificates that are replaced while the server runs, and
//! plain HTTP that is led away.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::*;
use sealog_testing::{certificate, eventually};

/// A directory with a certificate and its key.
struct Files {
    dir: tempfile::TempDir,
}

impl Files {
    fn new() -> Files {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        certificate::make(&files.path("cert.pem"), &files.path("key.pem"));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = serving(sealog(), &self.path("data"));
        command.args(["--tls-cert", &self.text("cert.pem"), "--tls-key", &self.text("key.pem")]).args(more);
        command
    }

    /// What a client says that believes the certificate in this file: exit code, and what it was answered.
    fn curl(&self, believed: &str, args: &[&str]) -> (i32, String) {
        curl(&[&["--cacert", &self.text(believed)], args].concat())
    }
}

fn curl(args: &[&str]) -> (i32, String) {
    let output = Command::new("curl").args(["-sS", "--max-time", "30"]).args(args).output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn metric(server: &Running, believed: &str, files: &Files, line: &str) -> bool {
    files.curl(believed, &[&format!("https://{}/metrics", server.address)]).1.contains(line)
}

#[test]
fn events_and_pages_come_over_tls_in_both_versions_of_http_with_hsts() {
    let files = Files::new();
    let server = start(files.command(&[]));
    let key = first_key(&files.path("data"));
    let first_run = std::fs::read_to_string(files.path("data/first-run.txt")).unwrap();
    assert!(first_run.contains(&format!("https://{}/app/claim#", server.address)), "{first_run}");
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let url = format!("https://{}/v1/events", server.address);
        let authorization = format!("Authorization: Bearer {key}");
        let shown = ["-D", "-", "-w", "\n%{http_version} %{http_code}"];
        let post = [&[flag, &url, "-H", &authorization, "-d", LOGIN], &shown[..]].concat();
        let (code, answer) = files.curl("cert.pem", &post);
        assert_eq!(code, 0, "{answer}");
        assert!(answer.ends_with(&format!("\n{version} 202")), "{answer}");
        let head = answer.to_ascii_lowercase();
        assert!(head.contains("\r\nstrict-transport-security: max-age=31536000\r\n"), "{answer}");
        assert!(head.contains("\r\nx-request-id: req_"), "{answer}");
        let (_, list) = files.curl("cert.pem", &[flag, &url, "-H", &authorization]);
        assert!(list.contains("\"action\":\"user.login\""), "{list}");
        let page = format!("https://{}/app/sign-in", server.address);
        let (_, page) = files.curl("cert.pem", &[&[flag, &page], &shown[..]].concat());
        assert!(page.ends_with(&format!("\n{version} 200")), "{page}");
    }
    // Over HTTP/2, too, a body that nobody reads is dropped, and the connection is used again.
    let large = files.path("large");
    std::fs::write(&large, "x".repeat(60_000)).unwrap();
    let url = format!("https://{}/v1/events", server.address);
    let body = format!("@{}", large.display());
    let (_, answers) = files.curl(
        "cert.pem",
        &[
            "--http2",
            "-d",
            &body,
            &url,
            "--next",
            "-sS",
            "--cacert",
            &files.text("cert.pem"),
            "--http2",
            &url,
        ],
    );
    assert_eq!(answers.matches("\"code\":\"auth/").count(), 2, "{answers}");
    // Who does not believe the certificate gets no answer, and the server counts it.
    assert_eq!(curl(&[&url]).0, 60);
    eventually("it is counted", || {
        metric(&server, "cert.pem", &files, "\nsealog_tls_handshakes_failed_total 1\n")
    });
    server.stop();
}

#[test]
fn a_replaced_certificate_is_taken_and_a_broken_one_is_not() {
    let files = Files::new();
    let server = start(files.command(&[]));
    let url = format!("https://{}/healthz", server.address);
    let is_believed = |name: &str| files.curl(name, &[&url]).0 == 0;
    assert!(is_believed("cert.pem"));
    std::fs::copy(files.path("cert.pem"), files.path("first.pem")).unwrap();
    certificate::make(&files.path("second.pem"), &files.path("second-key.pem"));
    let replace = |certificate: &Path, key: &Path| {
        // As tools do it: the one, then the other, each at once.
        for (from, to) in [(certificate, "cert.pem"), (key, "key.pem")] {
            std::fs::copy(from, files.path("new")).unwrap();
            std::fs::rename(files.path("new"), files.path(to)).unwrap();
        }
    };
    // By looking.
    replace(&files.path("second.pem"), &files.path("second-key.pem"));
    server.says("reloaded the certificate; new connections use it");
    assert!(is_believed("second.pem") && !is_believed("first.pem"));
    assert!(metric(
        &server,
        "second.pem",
        &files,
        "sealog_tls_certificate_reloads_total{result=\"taken\"} 1\n"
    ));

    // A key that belongs to another certificate, then no certificate at all, told by a signal.
    certificate::make(&files.path("third.pem"), &files.path("third-key.pem"));
    std::fs::write(files.path("nonsense"), "nonsense").unwrap();
    for broken in [("third.pem", "second-key.pem"), ("nonsense", "third-key.pem"), ("third.pem", "nonsense")]
    {
        replace(&files.path(broken.0), &files.path(broken.1));
        signal(server.pid(), "-HUP");
        let said = server.says("cannot use the new certificate");
        assert!(said["why"].as_str().unwrap().contains(".pem"), "{said}");
        assert!(is_believed("second.pem"), "{broken:?}");
        assert!(metric(&server, "second.pem", &files, "\nsealog_tls_certificate_refused 1\n"), "{broken:?}");
    }
    // And the next good one.
    replace(&files.path("third.pem"), &files.path("third-key.pem"));
    signal(server.pid(), "-HUP");
    server.says("reloaded the certificate; new connections use it");
    assert!(is_believed("third.pem"));
    assert!(metric(&server, "third.pem", &files, "\nsealog_tls_certificate_refused 0\n"));
    server.stop();
}

#[test]
fn plain_http_is_led_to_the_address_of_the_settings_and_never_to_the_host_that_a_client_names() {
    let files = Files::new();
    let server = start(files.command(&[
        "--tls-redirect-listen",
        "127.0.0.1:0",
        "--app-url",
        "https://log.example:8443/app",
    ]));
    let plain = server.says("redirecting plain HTTP to TLS")["address"].as_str().unwrap().to_owned();
    for address in [&plain, &server.address] {
        let request = "GET /app/x?y=1 HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
        let answer = sealog_testing::http::raw(address, request);
        assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
        assert!(answer.contains("\r\nlocation: https://log.example:8443/app/x?y=1\r\n"), "{answer}");
        assert!(!answer.contains("evil") && !answer.contains("strict-transport"), "{answer}");
        let (status, _) = sealog_testing::http::request(address, "POST", "/v1/events", &[], LOGIN);
        assert_eq!(status, 308, "the method is kept, and nothing is stored");
        // Whoever asks on this machine whether it is up need not know its name.
        assert_eq!(sealog_testing::http::request(address, "GET", "/healthz", &[], "").0, 200);
        let forwarded = [("X-Forwarded-For", "192.0.2.1")];
        assert_eq!(sealog_testing::http::request(address, "GET", "/healthz", &forwarded, "").0, 308);
    }
    server.stop();
}

#[test]
fn half_of_the_settings_and_files_that_cannot_be_used_are_refused_at_the_start() {
    let files = Files::new();
    certificate::make(&files.path("other.pem"), &files.path("other-key.pem"));
    let refused = |args: &[&str]| {
        let (code, _, said) = ended(serving(sealog(), &files.path("data")).args(args).output().unwrap());
        assert_eq!(code, Some(2), "{said}");
        said
    };
    let (certificate, key, other) =
        (files.text("cert.pem"), files.text("key.pem"), files.text("other-key.pem"));
    let both = ["--tls-cert", &certificate, "--tls-key", &key];
    assert!(refused(&both[..2]).contains("--tls-cert: tls.cert also needs tls.key"));
    assert!(refused(&both[2..]).contains("--tls-key: tls.key also needs tls.cert"));
    assert!(
        refused(&["--tls-redirect-listen", "127.0.0.1:0"])
            .contains("tls.redirect_listen also needs tls.cert")
    );
    let plain_url = [&both[..], &["--app-url", "http://log.example/app"]].concat();
    assert!(refused(&plain_url).contains("--app-url: app_url must begin with https:// when tls.cert is set"));
    assert!(refused(&["--tls-cert", &certificate, "--tls-key", &other]).contains("cannot use TLS"));
    assert!(
        refused(&["--tls-cert", &certificate, "--tls-key", &certificate])
            .contains("it contains no private key")
    );
    assert!(refused(&["--tls-cert", &key, "--tls-key", &key]).contains("it contains no certificate"));
    assert!(refused(&["--tls-cert", "/nowhere", "--tls-key", &key]).contains("/nowhere: No such file"));
    assert!(refused(&["--tls-cert", "/dev/zero", "--tls-key", &key]).contains("larger than a megabyte"));
}

#[test]
fn healthcheck_and_doctor_ask_a_server_with_tls_as_its_settings_say() {
    let files = Files::new();
    let server = start(files.command(&[]));
    let settings = format!(
        "listen = \"{}\"\ndata_dir = \"data\"\n[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n",
        server.address
    );
    std::fs::write(files.path("sealog.toml"), settings).unwrap();
    let run = |args: &[&str], env: &[(&str, &str)]| {
        ended(sealog().current_dir(files.dir.path()).args(args).envs(env.iter().copied()).output().unwrap())
    };
    assert_eq!(run(&["healthcheck"], &[]), (Some(0), String::new(), "sealog: ready\n".into()));
    let (code, _, noted) = run(&["doctor", "--output", "bundle.tar", "--offline"], &[]);
    assert_eq!(code, Some(0), "{noted}");
    let part = |name: &str| {
        let name = format!("sealog-doctor/{name}");
        let mut tar = Command::new("tar");
        let read = tar.current_dir(files.dir.path()).args(["-xOf", "bundle.tar", &name]).output().unwrap();
        String::from_utf8(read.stdout).unwrap()
    };
    assert!(part("metrics.txt").contains("sealog_build_info"), "{}", part("metrics.txt"));
    assert!(part("ready.json").contains("\"ready\":true"), "{}", part("ready.json"));
    // The metrics of a listener of its own are plain, whatever the main one is.
    let alone = Files::new();
    let other = start(alone.command(&["--metrics-listen", "127.0.0.1:0"]));
    let said = other.says("/metrics needs no token on this address");
    let metrics = said["address"].as_str().unwrap().to_owned();
    let flags = ["--listen", &other.address, "--metrics-listen", &metrics, "--data-dir", "nothing"];
    let (code, _, noted) =
        run(&[&["doctor", "--output", "other.tar", "--offline"], &flags[..]].concat(), &[]);
    assert_eq!(code, Some(0), "{noted}");
    let bundle = std::fs::read(files.path("other.tar")).unwrap();
    assert!(String::from_utf8_lossy(&bundle).contains("sealog_build_info"));
    other.stop();

    // To whom a URL leads is another matter: the certificate has to be believed.
    let url = format!("https://{}", server.address);
    certificate::make(&files.path("other.pem"), &files.path("other-key.pem"));
    let (believed, other) = (("SSL_CERT_FILE", "cert.pem"), ("SSL_CERT_FILE", "other.pem"));
    let (code, _, noted) = run(&["healthcheck", "--url", &url], &[other]);
    assert!(code == Some(1) && noted.contains("certificate"), "{noted}");
    assert_eq!(run(&["healthcheck"], &[other, ("SEALOG_URL", &url)]).0, Some(1));
    assert_eq!(run(&["healthcheck", "--url", &url], &[believed]).0, Some(0));
    // A certificate that cannot be used any more does not make a server sick that has the one before.
    std::fs::write(files.path("cert.pem"), "nonsense").unwrap();
    assert_eq!(run(&["healthcheck", "--quiet"], &[]), (Some(0), String::new(), String::new()));
    server.stop();
    let (code, _, noted) = run(&["healthcheck"], &[]);
    assert!(code == Some(1) && noted.contains("not ready: ") && noted.contains(&url), "{noted}");
    // Settings that are wrong are no reason for another code than 1.
    let (code, said, _) = run(&["healthcheck", "--json", "--listen", "here"], &[]);
    assert!(code == Some(1) && said.contains("listen must be an address and port"), "{said}");
}

#[test]
fn every_command_reaches_a_service_over_tls_and_no_key_goes_to_one_that_is_not_believed() {
    const TOKEN: &str = "operator-token-of-this-test";
    let files = Files::new();
    let mut command = files.command(&[]);
    command.env("SEALOG_OPERATOR_TOKEN", TOKEN).env("SEALOG_REPLICATION_ENABLED", "true");
    let server = start(command);
    let (url, key) = (format!("https://{}", server.address), first_key(&files.path("data")));
    certificate::make(&files.path("other.pem"), &files.path("other-key.pem"));
    let run = |believed: &str, args: &[&str]| {
        let mut command = sealog();
        command
            .current_dir(files.dir.path())
            .args(args)
            .env("SSL_CERT_FILE", believed)
            .env("HOME", files.dir.path());
        command.env("SEALOG_URL", &url).env("SEALOG_API_KEY", &key).env("SEALOG_OPERATOR_TOKEN", TOKEN);
        ended(command.stdin(std::process::Stdio::null()).output().unwrap())
    };
    let log = ["log", "user.login", "--actor-id", "u-1", "--retries", "0"];
    let commands: [&[&str]; 9] = [
        &log,
        &["events", "list", "--retries", "0"],
        &["actions", "list", "--retries", "0"],
        &["verify", "--all", "--retries", "0"],
        &["export", "--output", "export.ndjson", "--retries", "0"],
        &["follow", "--once", "--output", "follow.ndjson", "--retries", "0"],
        &["import", "import.ndjson", "--retries", "0"],
        &["admin", "tenant", "list", "--retries", "0"],
        &["replicate", "--once", "--from", &url, "--to", "replica"],
    ];
    std::fs::write(files.path("import.ndjson"), "{\"action\":\"user.logout\"}\n").unwrap();
    for args in commands {
        let (code, said, noted) = run("other.pem", args);
        assert!(code == Some(5) && noted.contains("certificate"), "{args:?}: {code:?} {said} {noted}");
    }
    for args in commands {
        let (code, said, noted) = run("cert.pem", args);
        assert_eq!(code, Some(0), "{args:?}: {said} {noted}");
    }
    // The first one sent what it had kept when nobody was believed.
    let (_, events, _) = run("cert.pem", &["events", "list", "--json"]);
    let count = |action: &str| events.lines().filter(|line| line.contains(action)).count();
    assert_eq!((count("\"user.login\""), count("\"user.logout\"")), (2, 1), "{events}");
    server.stop();
}

#[test]
fn a_server_whose_settings_name_a_certificate_is_asked_with_tls_from_the_first_byte() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = listener.local_addr().unwrap().to_string();
    let first_byte = std::thread::spawn(move || {
        let mut byte = [0];
        let (mut client, _) = listener.accept().unwrap();
        std::io::Read::read_exact(&mut client, &mut byte).unwrap();
        byte[0]
    });
    let dir = tempfile::tempdir().unwrap();
    let tls = ["--tls-cert", "not-there.pem", "--tls-key", "not-there.pem"];
    let mut command = sealog();
    command.current_dir(dir.path()).args(["healthcheck", "--listen", &listen]).args(tls);
    assert_eq!(ended(command.output().unwrap()).0, Some(1));
    assert_eq!(first_byte.join().unwrap(), 0x16, "the first byte of a handshake");
}

/// What `scripts/slow-readers` has measured: the number of requests, and resident memory before and at its
/// peak, in MiB.
fn slow_readers(args: &[&str]) -> (String, u64, u64) {
    let (dir, _) = data_dir();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/slow-readers");
    let mut command = Command::new(script);
    command.arg(SEALOG).args(args).args(["--seconds", "3", "--limit-mb", "4096", "--max-mb", "4096"]);
    let (_, figures, log) = ended(command.env("SLOW_READERS_DIR", dir.path()).output().unwrap());
    let figure = |name: &str| {
        let mut words = figures.split_whitespace().filter_map(|word| word.split_once('='));
        let found = words.find(|(found, _)| *found == name);
        found.unwrap_or_else(|| panic!("{name}: {figures}{log}")).1.to_owned()
    };
    assert_eq!(figure("alive"), "True", "{figures}{log}");
    let mib = |name| figure(name).parse().unwrap();
    (figure("requests"), mib("rss_before_mb"), mib("rss_peak_mb"))
}

/// As many connections as one address may have, each with as many requests as it may have under way, and
/// nobody takes an answer.
#[test]
fn clients_of_http_2_with_closed_windows_take_less_than_432_mib() {
    const MIB_MAX: u64 = 432;
    let asked = ["--http2", "512", "--tenants", "2", "--readers", "256", "--event-kb", "240"];
    let (requests, before, peak) = slow_readers(&asked);
    assert_eq!(requests, "262144");
    // The memory for answers is used up, so this is the worst that they can do.
    assert!(peak > before + 200 && peak < MIB_MAX, "{before} {peak}");
}

/// A client that sends all that a server keeps of it, and never ends its request. With the number of
/// connections (`limits.connections`) this bounds the memory of all: 4,096 times 320 KiB, and 224 MiB more
/// for the 512 that speak HTTP/2.
#[test]
fn a_connection_takes_at_most_320_kib_and_one_of_http_2_at_most_768() {
    const READERS: u64 = 400;
    let stuffed = ["--stuffed", "--readers", "400", "--events", "2", "--event-kb", "10"];
    for (more, kib_max) in [(&["--tls"][..], 320), (&["--http2", "4", "--body-kb", "60"], 768)] {
        let (_, before, peak) = slow_readers(&[&stuffed[..], more].concat());
        let kib = (peak - before) * 1024 / READERS;
        assert!(kib > 64 && kib <= kib_max, "{more:?}: {kib} KiB, {before} {peak}");
    }
}
