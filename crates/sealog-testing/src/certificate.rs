//! Certificates for servers of tests, made by `openssl`.

use std::path::Path;
use std::process::Command;

/// A key and a certificate for `localhost` and 127.0.0.1, in files of these names; it vouches for itself.
pub fn make(certificate: &Path, key: &Path) {
    sign(Command::new("openssl"), "30", certificate, key);
}

/// One that was valid on the first day of 2020.
pub fn make_ended(certificate: &Path, key: &Path) {
    let mut command = Command::new("faketime");
    command.env("TZ", "UTC").args(["2020-01-01 00:00:00", "openssl"]);
    sign(command, "1", certificate, key);
}

fn sign(mut openssl: Command, days: &str, certificate: &Path, key: &Path) {
    let made = openssl
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-days", days])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args([Path::new("-keyout"), key, Path::new("-out"), certificate])
        .output()
        .expect("scripts/setup installs openssl and faketime");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
