//! Which file the spool is.
//!
//! It belongs to a service and a key: what was meant for one project is never sent to another.

use std::path::PathBuf;

use clap::ArgMatches;
use sha2::{Digest, Sha256};

use super::super::connect;
use super::super::exit::Failure;
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
            "there is no place for the spool, since neither HOME nor XDG_STATE_HOME is set: name one with --spool, or give --no-spool",
        ));
    };
    let path = state.join("sealog").join(name(url, key));
    Ok(Some(Spool::new(path)))
}

/// The service first, so that others of it are found.
fn name(url: &str, key: &str) -> String {
    let short = |text: &str| -> String {
        Sha256::digest(text.as_bytes())[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let url = url.trim_end_matches('/');
    format!("spool-{}-{}.ndjson", short(url), short(&format!("{url}\n{key}")))
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
}
