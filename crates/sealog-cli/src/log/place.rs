//! Which file the spool is.
//!
//! It belongs to a service and a key: what was meant for one project is never sent to another. A key that is
//! corrected or rolled therefore has a new spool. What waits in the others of the same service is told, since
//! nobody but a person knows whether both keys are of one project.

use std::path::{Path, PathBuf};

use clap::ArgMatches;
use sha2::{Digest, Sha256};

use super::super::connect;
use super::super::exit::Failure;
use super::super::progress;
use super::super::spool::Spool;

pub(super) fn spool(matches: &ArgMatches, (url, key): (&str, &str)) -> Result<Option<Spool>, Failure> {
    if matches.get_flag("no_spool") {
        return Ok(None);
    }
    if let Some(path) = matches.get_one::<String>("spool") {
        return Ok(Some(Spool::new(PathBuf::from(path))));
    }
    let dir = |name: &str| connect::var(name).map(PathBuf::from);
    let state = dir("XDG_STATE_HOME").or_else(|| Some(dir("HOME")?.join(".local/state")));
    let Some(state) = state else {
        return Err(Failure::usage(
            "the spool has no place because neither HOME nor XDG_STATE_HOME is set: give a file with --spool, or give --no-spool",
        ));
    };
    let path = state.join("sealog").join(name(url, key));
    for (other, waiting) in others(&path) {
        let file = other.display();
        let told = format!(
            "{waiting} in {file}, kept with another key for this service; this key does not send them\n  with a key of the same project, send them with: sealog log --file /dev/null --spool '{file}'"
        );
        progress::tell(&indicatif::ProgressBar::hidden(), &told);
    }
    Ok(Some(Spool::new(path)))
}

/// The service first, so that others of it are found.
fn name(url: &str, key: &str) -> String {
    let short = |text: &str| hex::encode(&Sha256::digest(text.as_bytes())[..8]);
    let url = url.trim_end_matches('/');
    format!("spool-{}-{}.ndjson", short(url), short(&format!("{url}\n{key}")))
}

/// Spools of the same service in which something waits, and how much.
fn others(own: &Path) -> Vec<(PathBuf, String)> {
    let text = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let own_name = text(own);
    let Some((service, _)) = own_name.rsplit_once('-') else { return Vec::new() };
    let files = own.parent().and_then(|dir| std::fs::read_dir(dir).ok()).into_iter().flatten();
    let mut paths: Vec<PathBuf> = files
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| {
            let name = text(path);
            name != own_name
                && name.ends_with(".ndjson")
                && name.rsplit_once('-').is_some_and(|(of, _)| of == service)
        })
        .collect();
    paths.sort();
    let waiting = |path: PathBuf| {
        let spool = Spool::new(path);
        let waiting = match spool.waiting() {
            Ok(waiting) if waiting.events == 0 => return None,
            Ok(waiting) => waiting.to_string(),
            Err(error) => format!("an unknown number of events ({error}) wait"),
        };
        Some((spool.path().to_owned(), waiting))
    };
    paths.into_iter().filter_map(waiting).collect()
}

#[cfg(test)]
mod tests {
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
        let file = |url: &str, key: &str| dir.path().join(name(url, key));
        let batch = "{\"idempotency_key\":\"k\",\"events\":[{},{}]}\n";
        for (url, key, text) in
            [("a", "own", batch), ("a", "old", batch), ("a", "sent", ""), ("b", "else", batch)]
        {
            std::fs::write(file(url, key), text).unwrap();
        }
        std::fs::write(file("a", "old").with_added_extension("lock"), batch).unwrap();
        assert_eq!(others(&file("a", "own")), [(file("a", "old"), "2 events wait".to_owned())]);
    }
}
