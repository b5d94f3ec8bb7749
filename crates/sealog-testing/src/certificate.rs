//! Certificates for servers of tests, made by `openssl`.

use std::path::Path;
use std::process::Command;

/// A key and a certificate for `localhost` and 127.0.0.1, in files of these names; it vouches for itself.
pub fn make(certificate: &Path, key: &Path) {
    let made = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
        ])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args([Path::new("-keyout"), key, Path::new("-out"), certificate])
        .output()
        .expect("scripts/setup installs openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
