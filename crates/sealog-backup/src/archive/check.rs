//! Reads an archive back: every digest is compared with the manifest, every chain is computed again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::Path;

use sealog_cli::exit::{Exit, Failure};
use sealog_cli::progress;
use sealog_core::audit::{Audit, NotedHead, Outcome, parse_entry};
use sealog_core::id::Hash;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};

use super::manifest::{FORMAT, MANIFEST, Manifest, stem};
use super::pages::Chain;
use crate::stream::Endless;

/// Of an event as JSON: an event has two megabytes, and more when its text is escaped.
const LINE_BYTES_MAX: u64 = 32 << 20;
/// It names every chain and every package.
const MANIFEST_BYTES_MAX: u64 = 256 << 20;

/// An archive whose files are those of its manifest.
pub(super) struct Checked {
    pub tenant: Value,
    pub chains: Vec<CheckedChain>,
    pub files: usize,
    pub bytes: u64,
    pub sha256: String,
}

pub(super) struct CheckedChain {
    chain: Chain,
    pub events: u64,
    broken: Option<(u64, &'static str)>,
}

impl CheckedChain {
    pub(super) fn to_json(&self) -> Value {
        let Chain { project_id, mode, is_system, first_seq, last_seq, last_hash } = &self.chain;
        let broken = self.broken.map(|(at, reason)| json!({ "at": at, "reason": reason }));
        json!({
            "project_id": project_id, "mode": mode, "is_system": is_system, "events": self.events,
            "first_seq": first_seq, "last_seq": last_seq, "last_hash": last_hash, "broken": broken,
        })
    }

    pub(super) fn fault(&self) -> Option<String> {
        let Chain { project_id, mode, .. } = &self.chain;
        self.broken.map(|(at, reason)| format!("chain {project_id}/{mode} is broken at #{at} ({reason})"))
    }
}

/// What was computed of a chain, and how many events it has.
type Computed = (Outcome, u64);

pub(super) fn check(path: &Path, is_quiet: bool) -> Result<Checked, Failure> {
    let file = File::open(path).map_err(|error| Failure::of_path(path, &error))?;
    let bytes = file.metadata().map_err(|error| Failure::of_path(path, &error))?.len();
    let bar = progress::bytes(is_quiet, "Verifying", bytes);
    let mut hashed = Hashed::new(BufReader::with_capacity(256 << 10, bar.wrap_read(file)));
    let damaged = |why: String| {
        Failure::new(Exit::Broken, format!("{}: not a complete archive of a tenant: {why}", path.display()))
    };
    let (manifest, found, chains) = read(&mut hashed).map_err(damaged)?;
    // Behind the end of the archive there is nothing that anyone relies on; it is part of the file's digest.
    io::copy(&mut hashed, &mut io::sink()).map_err(|error| Failure::of_path(path, &error))?;
    bar.finish_and_clear();
    for listed in &manifest.files {
        if found.get(&listed.name) != Some(&(listed.bytes, listed.sha256.clone())) {
            return Err(damaged(format!("{} is not the file of the manifest", listed.name)));
        }
    }
    if found.len() != manifest.files.len() {
        return Err(damaged("a file is not in the manifest".into()));
    }
    let tenant_id = manifest.tenant["tenant_id"].as_str().unwrap_or_default();
    let chains = manifest.chains.iter().map(|chain| judge(chain, tenant_id, &chains)).collect();
    let files = manifest.files.len() + 1;
    Ok(Checked { chains, files, bytes, sha256: hashed.digest(), tenant: manifest.tenant })
}

fn judge(chain: &Chain, tenant_id: &str, computed: &BTreeMap<String, Computed>) -> CheckedChain {
    let found = computed.get(&stem(&chain.project_id, &chain.mode));
    let events = found.map_or(0, |(_, events)| *events);
    let is_empty = chain.first_seq > chain.last_seq;
    let noted = Hash::parse(&chain.last_hash).map(|hash| NotedHead { chain_seq: chain.last_seq, hash });
    let broken = match found.map(|(outcome, _)| outcome) {
        _ if is_empty && events == 0 => None,
        None => Some((chain.first_seq, "tail")),
        Some(Outcome { broken: Some(fault), .. }) => Some((fault.at, fault.reason.as_str())),
        Some(outcome) if outcome.head.is_none_or(|head| head.chain_seq < chain.last_seq) => {
            Some((outcome.head.map_or(chain.first_seq, |head| head.chain_seq + 1), "tail"))
        }
        Some(outcome) if outcome.head != noted => Some((chain.last_seq, "head")),
        // Events before the first one were deleted for their age only where the manifest says so.
        Some(outcome) if outcome.first_seq != chain.first_seq => Some((chain.first_seq, "gap")),
        Some(outcome) => {
            let of = outcome.chain.map(|(tenant, project)| (tenant.to_string(), project.to_string()));
            let is_own =
                of.is_some_and(|(tenant, project)| tenant == tenant_id && project == chain.project_id);
            (!is_own).then_some((chain.first_seq, "chain"))
        }
    };
    CheckedChain { chain: chain.clone(), events, broken }
}

type Found = BTreeMap<String, (u64, String)>;

/// The manifest, the other files with their sizes and digests, and the chains by their stems.
fn read(archive: &mut impl Read) -> Result<(Manifest, Found, BTreeMap<String, Computed>), String> {
    let text = |error: io::Error| match error.kind() {
        ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => error.to_string(),
    };
    let (mut found, mut chains, mut manifest) = (Found::new(), BTreeMap::new(), None);
    let mut current: Option<(String, Audit, u64)> = None;
    let mut archive = Archive::new(Endless(archive));
    for entry in archive.entries().map_err(text)?.raw(true) {
        let entry = entry.map_err(text)?;
        let name = String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| "a name is not UTF-8")?;
        if entry.header().entry_type() != EntryType::Regular || manifest.is_some() {
            return Err("it has something that `sealog tenant export` does not write".into());
        }
        let mut content = BufReader::new(Hashed::new(entry));
        let of = name.strip_prefix("events/").and_then(|file| file.split_once('.')).map(|(stem, _)| stem);
        if let Some(stem) = of {
            if current.as_ref().is_none_or(|(current, ..)| current != stem) {
                finish(current.take(), &mut chains)?;
                current = Some((stem.to_owned(), Audit::new(Vec::new()), 0));
            }
            if let Some((_, audit, events)) = &mut current {
                read_events(&mut content, audit, events).map_err(|why| format!("{name}: {why}"))?;
            }
        } else if name == MANIFEST {
            let mut bytes = Vec::new();
            (&mut content).take(MANIFEST_BYTES_MAX).read_to_end(&mut bytes).map_err(text)?;
            let parsed: Manifest =
                serde_json::from_slice(&bytes).map_err(|error| format!("{MANIFEST}: {error}"))?;
            if parsed.format != FORMAT {
                return Err(format!("{MANIFEST}: its format is not {FORMAT:?}"));
            }
            manifest = Some(parsed);
            continue;
        }
        io::copy(&mut content, &mut io::sink()).map_err(text)?;
        let content = content.into_inner();
        let (bytes, sha256) = (content.bytes, content.digest());
        if found.insert(name, (bytes, sha256)).is_some() {
            return Err("it has a file twice".into());
        }
    }
    finish(current, &mut chains)?;
    Ok((manifest.ok_or("it has no manifest")?, found, chains))
}

fn finish(
    current: Option<(String, Audit, u64)>,
    chains: &mut BTreeMap<String, Computed>,
) -> Result<(), String> {
    let Some((stem, audit, events)) = current else { return Ok(()) };
    match chains.insert(stem, (audit.finish(), events)) {
        None => Ok(()),
        Some(_) => Err("the files of a chain are not together".into()),
    }
}

fn read_events(content: &mut impl BufRead, audit: &mut Audit, events: &mut u64) -> Result<(), String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = content.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if read.map_err(|error| error.to_string())? == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            return Err("a line is too long or does not end".into());
        }
        let text = str::from_utf8(&line).map_err(|_| "a line is not UTF-8")?;
        // Behind the first break nothing counts; the digest of the file does.
        if audit.wants_more() {
            audit.entry(parse_entry(text).map_err(|error| format!("a line is not JSON: {}", error.problem))?);
        }
        *events += 1;
    }
}

/// Counts and hashes what is read.
struct Hashed<R> {
    inner: R,
    bytes: u64,
    sha256: Sha256,
}

impl<R> Hashed<R> {
    fn new(inner: R) -> Hashed<R> {
        Hashed { inner, bytes: 0, sha256: Sha256::new() }
    }

    fn digest(self) -> String {
        hex::encode(self.sha256.finalize())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(into)?;
        self.sha256.update(&into[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}
