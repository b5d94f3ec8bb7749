//! `sealog replicate --divergence`: what only the old primary acknowledged.
//!
//! ```text
//! t0  the copy is verified, and with it every event that the old log has behind its end
//! t1  the new primary's log is searched for them: a promotion may have taken them over
//! t2  the file has the others, durably
//! t3  the system chains of their tenants name the file, its digest and the events
//! ```
//! A command that is killed is run again: it writes the same file, and no record twice.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{create_file, sync_name};
use sealog_core::chain::Head;
use sealog_core::event::StoredEvent;
use sealog_core::id::{ChainId, Hash, Mode, TenantId, Ulid};
use sealog_store::embedded::backup::{Header, SegmentContents, Wanted, segment_file_name};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::check::check;
use super::manifest::Manifest;
use super::old_data::{header, segments};
use super::place::Place;
use super::progress::Progress;
use super::tail::Tail;
use super::verify::select;

/// Chains that one record names; how many there are it says in any case.
const CHAINS_MAX: usize = 100;

/// What one tenant's chains do not have, for its system chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diverged {
    pub tenant_id: String,
    /// The name of the file, without its directory.
    pub file: String,
    pub sha256: String,
    pub events: u64,
    pub chain_count: usize,
    pub chains: Vec<DivergedChain>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergedChain {
    pub project_id: String,
    pub mode: String,
    pub lost_from: u64,
    pub lost_to: u64,
    /// Of the last one.
    pub recorded_hash: String,
}

/// From the first to the last event of a chain.
#[derive(Debug)]
struct Stretch {
    first_seq: u64,
    last: Head,
    events: u64,
}

/// `record` puts one tenant's part into its system chain, and says whether the new primary knows the tenant.
pub fn divergence(
    matches: &ArgMatches,
    record: &dyn Fn(&Path, &Diverged) -> Result<bool, Failure>,
) -> Result<ExitCode, Failure> {
    let path = |name: &str| matches.get_one::<String>(name).map(PathBuf::from).expect("clap asks for it");
    let (copy, data_dir, file) = (path("to"), path("data"), path("divergence"));
    let old: Vec<&String> = matches.get_many("old-data").into_iter().flatten().collect();
    let [old] = old[..] else {
        return Err(Failure::usage("--divergence reads the log of one old primary: give --old-data once"));
    };
    let place = Place::open(&copy)?;
    let manifest = select(&place, None)?;
    let progress = Progress::new("Verifying", matches.get_flag("quiet"));
    let checked = check(&place, &manifest, &Wanted::default(), &progress)?;
    progress.finish();
    if !checked.is_whole() {
        let broken = format!("{}: the copy does not verify; see `sealog backup verify`", copy.display());
        return Err(Failure::new(Exit::Broken, broken));
    }
    let progress = Progress::new("Reading the old log", matches.get_flag("quiet"));
    let tail = Tail::read(Path::new(old), &place, &manifest, &checked, &Wanted::default(), &progress)?;
    progress.finish();
    tail.ended.iter().for_each(|why| eprintln!("sealog: could not read the whole old log: {why}"));
    is_made_of(&data_dir, &manifest)?;
    let kept = kept(&data_dir, &tail)?;
    let (sha256, stretches) = write(&file, &tail, &kept)?;
    let tenants: BTreeSet<TenantId> = stretches.keys().map(|chain| chain.tenant_id).collect();
    let mut unknown = Vec::new();
    for tenant_id in &tenants {
        if !record(&data_dir, &told(*tenant_id, &file, &sha256, &stretches))? {
            unknown.push(tenant_id.to_string());
        }
    }
    let events: u64 = stretches.values().map(|stretch| stretch.events).sum();
    if matches.get_flag("json") {
        let written = (events > 0).then_some((&file, &sha256));
        println!(
            "{}",
            json!({ "events": events, "chains": stretches.len(), "tenants": tenants.len(), "file": written.map(|(file, _)| file), "sha256": written.map(|(_, sha256)| sha256), "unknown_tenants": unknown, "unread": tail.ended })
        );
        return Ok(ExitCode::SUCCESS);
    }
    if events == 0 {
        println!("the new primary has every event of the old one; no file was written");
        return Ok(ExitCode::SUCCESS);
    }
    for (chain, Stretch { first_seq, last, events }) in &stretches {
        println!("chain {chain}: {events} events, {first_seq} to {}", last.chain_seq);
    }
    for tenant_id in unknown {
        println!("tenant {tenant_id} is not in the new primary; the file alone has its events");
    }
    println!(
        "wrote {events} events that only the old primary acknowledged to {} (SHA-256 {sha256}); the system chains of their tenants name it",
        file.display()
    );
    Ok(ExitCode::SUCCESS)
}

/// A data directory that was made of another copy has none of these events, and would be told that all of
/// them are lost.
fn is_made_of(data_dir: &Path, manifest: &Manifest) -> Result<(), Failure> {
    // Live segments are never dropped, and one that was written to keeps its salt.
    let live = manifest.logs.iter().find(|log| log.mode == Mode::Live.as_str());
    let first = live.and_then(|log| log.segments.first()).filter(|first| first.bytes > Header::LEN as u64);
    let dir = data_dir.join(Mode::Live.as_str());
    let is_same = first.is_none_or(|first| {
        header(&dir, first.number).is_some_and(|header| hex::encode(header.salt) == first.salt)
    });
    if is_same {
        return Ok(());
    }
    Err(Failure::usage(format!("--data: {} was not promoted from this copy", data_dir.display())))
}

/// Of the tail's events, those that the new primary has.
fn kept(data_dir: &Path, tail: &Tail) -> Result<HashSet<(ChainId, Hash)>, Failure> {
    let mut ids: HashSet<Ulid> = HashSet::new();
    tail.for_each_event(|_, event| {
        ids.insert(event.sealed.log_id);
        Ok(())
    })?;
    let wanted = Wanted { ids, ..Wanted::default() };
    let mut kept = HashSet::new();
    for mode in Mode::ALL {
        let dir = data_dir.join(mode.as_str());
        let numbers = segments(&dir).map_err(|error| Failure::of_path(&dir, &error))?;
        // What a promotion took over stands where the old log had it, or behind that.
        for number in numbers.into_iter().filter(|number| *number >= tail.goes_on_in(mode)) {
            let path = dir.join(segment_file_name(number));
            // A server may be at it: what it has not finished yet is no event of the old log.
            let bytes = fs::read(&path).map_err(|error| Failure::of_path(&path, &error))?;
            kept.extend(
                SegmentContents::read(&bytes, false, &wanted)
                    .into_iter()
                    .flat_map(|read| read.found)
                    .map(|(chain, head)| (chain, head.hash)),
            );
        }
    }
    Ok(kept)
}

/// Writes what is not kept, one event a line, and nothing where there is none. Its digest, and where each
/// chain begins and ends.
fn write(
    file: &Path,
    tail: &Tail,
    kept: &HashSet<(ChainId, Hash)>,
) -> Result<(String, BTreeMap<ChainId, Stretch>), Failure> {
    let failed = |error: io::Error| Failure::of_path(file, &error);
    let unfinished = PathBuf::from(format!("{}.tmp", file.display()));
    let mut out = BufWriter::new(create_file(&unfinished).map_err(failed)?);
    let (mut hasher, mut stretches) = (Sha256::new(), BTreeMap::<ChainId, Stretch>::new());
    let written = tail.for_each_event(|chain, event| {
        let sealed = event.sealed;
        let head = Head { chain_seq: sealed.chain_seq, log_id: sealed.log_id, hash: sealed.hash };
        if kept.contains(&(chain, head.hash)) {
            return Ok(());
        }
        let line = line(chain, &event);
        hasher.update(&line);
        out.write_all(&line).map_err(failed)?;
        let stretch =
            stretches.entry(chain).or_insert(Stretch { first_seq: head.chain_seq, last: head, events: 0 });
        (stretch.last, stretch.events) = (head, stretch.events + 1);
        Ok(())
    });
    let sha256 = hex::encode(hasher.finalize());
    let finished = written.and_then(|()| {
        let finished = out.into_inner().map_err(|error| failed(error.into_error()))?;
        finished.sync_all().map_err(failed)?;
        match sha256_of(file) {
            Ok(there) if there != sha256 => Err(Failure::usage(format!(
                "--divergence: {} exists and is something else; give another name",
                file.display()
            ))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(error)),
            _ if stretches.is_empty() => Ok(()),
            _ => fs::rename(&unfinished, file).and_then(|()| sync_name(file)).map_err(failed),
        }
    });
    if finished.is_err() || stretches.is_empty() {
        let _ = fs::remove_file(&unfinished);
    }
    finished.map(|()| (sha256, stretches))
}

/// The digest of a file, piece by piece: what an old primary had may be longer than there is memory.
fn sha256_of(file: &Path) -> io::Result<String> {
    let (mut file, mut hasher) = (BufReader::new(File::open(file)?), Sha256::new());
    loop {
        let piece = file.fill_buf()?;
        if piece.is_empty() {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(piece);
        let read = piece.len();
        file.consume(read);
    }
}

/// As exports have it, so that verifiers read it: with `log_id`, `chain_seq` and `hash` it is its own
/// receipt. Only of a test chain does an event have to say its mode.
fn line(chain: ChainId, event: &StoredEvent) -> Vec<u8> {
    let mut line = Vec::new();
    event.put_json(&mut line);
    if chain.mode == Mode::Test {
        line.pop();
        line.extend_from_slice(b",\"mode\":\"test\"}");
    }
    line.push(b'\n');
    line
}

fn told(tenant_id: TenantId, file: &Path, sha256: &str, stretches: &BTreeMap<ChainId, Stretch>) -> Diverged {
    let of_tenant: Vec<_> = stretches.iter().filter(|(chain, _)| chain.tenant_id == tenant_id).collect();
    let chains = of_tenant.iter().take(CHAINS_MAX).map(|(chain, stretch)| DivergedChain {
        project_id: chain.project_id.to_string(),
        mode: chain.mode.as_str().to_owned(),
        lost_from: stretch.first_seq,
        lost_to: stretch.last.chain_seq,
        recorded_hash: stretch.last.hash.to_string(),
    });
    Diverged {
        tenant_id: tenant_id.to_string(),
        file: file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        sha256: sha256.to_owned(),
        events: of_tenant.iter().map(|(_, stretch)| stretch.events).sum(),
        chain_count: of_tenant.len(),
        chains: chains.collect(),
    }
}

#[cfg(test)]
mod tests {
    use sealog_core::id::{ProjectId, Uuid};

    use super::*;

    #[test]
    fn a_tenant_is_told_of_its_own_chains_and_of_so_many_at_most() {
        let chain = |tenant: u8, project: u8| ChainId {
            tenant_id: TenantId(Uuid::from_random([tenant; 16])),
            project_id: ProjectId(Uuid::from_random([project; 16])),
            mode: Mode::Live,
        };
        let stretch = |project: u8| {
            let last_seq = u64::from(project) + 2;
            let last = Head { chain_seq: last_seq, log_id: Ulid::default(), hash: Hash([project; 32]) };
            Stretch { first_seq: 3, last, events: last_seq - 2 }
        };
        let many = u8::try_from(CHAINS_MAX + 1).unwrap();
        let of = |tenant: u8, count: u8| (1..=count).map(move |at| (chain(tenant, at), stretch(at)));
        let stretches: BTreeMap<_, _> = of(1, many).chain(of(2, 2)).collect();
        let told = |tenant: u8| told(chain(tenant, 1).tenant_id, Path::new("/a/file"), "abc", &stretches);
        let (first, second) = (told(1), told(2));
        let all = u64::from(many) * u64::from(many + 1) / 2;
        assert_eq!((first.chains.len(), first.chain_count, first.events), (CHAINS_MAX, CHAINS_MAX + 1, all));
        assert_eq!((second.chains.len(), second.chain_count, second.events), (2, 2, 3));
        assert_eq!((&*second.file, &*second.sha256), ("file", "abc"));
        let projects: Vec<&String> = second.chains.iter().map(|chain| &chain.project_id).collect();
        assert_eq!(projects, [&chain(2, 1).project_id.to_string(), &chain(2, 2).project_id.to_string()]);
    }
}
