//! Which commit and which profile the program is built from, for `sealog --version`.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=SEALOG_COMMIT");
    // `target/PROFILE/build/sealog-HASH/out`: cargo names only the profile that ours inherit from.
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let directory = Path::new(&out).ancestors().nth(3).and_then(Path::file_name);
    let profile = directory.map_or("unknown".into(), |name| name.to_string_lossy().into_owned());
    // Whoever develops makes commits all day, and would link the program anew for each.
    let commit = if profile == "debug" { None } else { given().or_else(checked_out) };
    let commit = commit.unwrap_or_else(|| "unknown commit".into());
    println!("cargo::rustc-env=SEALOG_BUILD={commit}, {profile}");
}

/// By whoever builds without a repository, in a container for example.
fn given() -> Option<String> {
    std::env::var("SEALOG_COMMIT").ok().filter(|commit| !commit.is_empty())
}

fn checked_out() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    for file in ["HEAD", "index"] {
        println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", file])?);
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if changed { format!("{commit} with changes") } else { commit })
}
