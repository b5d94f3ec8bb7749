//! Where the spool is.
//!
//! A spool belongs to a service and a key: what was meant for one project is never sent to another. A key
//! that is corrected or rolled therefore has a new spool. What waits in the others of the same service is
//! reported, since nobody but a person knows whether both keys are of one project.

use std::io;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use indicatif::HumanCount;
use sealog_client::Error;
use sealog_client::outbox::look;
use sha2::{Digest, Sha256};

use super::super::connect;
use super::super::exit::Failure;
use super::super::progress;

/// More is not kept: a spool is a few hundred files, all of which are open while they are sent.
pub(super) const SPOOL_BYTES_MAX: u64 = 4 << 30;

/// As much of the spool of another key is read to count its events.
const COUNTED_BYTES_MAX: u64 = 64 << 20;

/// The directory of this service and key, or the one that the command line names.
pub(super) fn spool(matches: &ArgMatches, (url, key): (&str, &str)) -> Result<PathBuf, Failure> {
    if let Some(path) = matches.get_one::<String>("spool") {
        return Ok(PathBuf::from(path));
    }
    let path = home()?.join(name(url, key));
    for (other, waiting) in others(&path) {
        let folder = other.display();
        let told = format!(
            "{waiting} in {folder}, kept with another key for this service; this key does not send them\n  with a key of the same project, send them with: sealog spool send --spool '{folder}'"
        );
        progress::tell(&indicatif::ProgressBar::hidden(), &told);
    }
    Ok(path)
}

/// Where spools are unless a flag names a place.
pub(super) fn home() -> Result<PathBuf, Failure> {
    let dir = |name: &str| connect::var(name).map(PathBuf::from);
    let state = dir("XDG_STATE_HOME").or_else(|| Some(dir("HOME")?.join(".local/state")));
    state.map(|state| state.join("sealog")).ok_or_else(|| {
        Failure::usage(
            "the spool has no place because neither HOME nor XDG_STATE_HOME is set: give a directory with --spool, or give --no-spool",
        )
    })
}

/// Spools in this directory, sorted.
pub(super) fn spools(home: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(home).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("spool-"))
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect();
    paths.sort();
    paths
}

pub(super) fn waiting(events: u64) -> String {
    if events == 1 { "1 event waits".to_owned() } else { format!("{} events wait", HumanCount(events)) }
}

/// An error of the library, without the names of its options.
pub(super) fn plain(error: &Error) -> String {
    if error.code == "client/spool_full" {
        return format!("the spool has {} bytes and takes no more", HumanCount(SPOOL_BYTES_MAX));
    }
    error.message.replace("spool_dir: ", "").replace(" (spool_dir)", "")
}

/// The service first, so that others of it are found.
fn name(url: &str, key: &str) -> String {
    let short = |text: &str| hex::encode(&Sha256::digest(text.as_bytes())[..8]);
    let url = url.trim_end_matches('/');
    format!("spool-{}-{}", short(url), short(&format!("{url}\n{key}")))
}

/// Spools of the same service in which something waits that no command sends just now, and how much.
fn others(own: &Path) -> Vec<(PathBuf, String)> {
    let service = |path: &Path| Some(path.file_name()?.to_str()?.rsplit_once('-')?.0.to_owned());
    let spools = spools(own.parent().unwrap_or(own)).into_iter();
    let others = spools.filter(|path| path != own && service(path) == service(own));
    others
        .filter_map(|path| Some((free(&path).ok()??, path)))
        .map(|(waiting, path)| (path, waiting))
        .collect()
}

fn free(folder: &Path) -> io::Result<Option<String>> {
    let files = look(folder, COUNTED_BYTES_MAX)?;
    let events = files.iter().filter(|file| !file.is_in_use).filter_map(|file| file.events).sum();
    let is_all = files.iter().all(|file| file.events.is_some());
    let more = if is_all { "" } else { "more than " };
    Ok((events > 0 || !is_all).then(|| format!("{more}{}", waiting(events))))
}

#[cfg(test)]
mod tests {
    use sealog_client::outbox::Outbox;

    use super::*;

    #[test]
    fn a_spool_is_of_one_service_and_key_and_a_slash_makes_no_other_service() {
        let of = |url: &str, key: &str| name(url, key);
        assert_eq!(of("http://a", "k"), of("http://a/", "k"));
        assert_ne!(of("http://a", "k"), of("http://a", "l"));
        assert_ne!(of("http://a", "k"), of("http://b", "k"));
    }

    #[test]
    fn other_spools_are_those_of_the_same_service_in_which_something_waits() {
        let dir = tempfile::tempdir().unwrap();
        let folder = |url: &str, key: &str| dir.path().join(name(url, key));
        for (url, key, events) in [("a", "own", 2), ("a", "old", 2), ("a", "sent", 0), ("b", "else", 2)] {
            let mut outbox = Outbox::open(&folder(url, key), SPOOL_BYTES_MAX).unwrap();
            for _ in 0..events {
                outbox.put(b"{}".to_vec()).unwrap();
            }
        }
        let mut running = Outbox::open(&folder("a", "running"), SPOOL_BYTES_MAX).unwrap();
        running.put(b"{}".to_vec()).unwrap();
        assert_eq!(others(&folder("a", "own")), [(folder("a", "old"), "2 events wait".to_owned())]);
    }
}
