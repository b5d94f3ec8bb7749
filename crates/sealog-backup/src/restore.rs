//! `sealog restore`: makes a data directory of a backup.
//!
//! ```text
//! t0  the backup is verified; a head that it ends behind is known, or not
//! t1  RESTORING stands in the target: no server opens it from here on, and a restore that is run again
//!     begins anew
//! t2  segments, control data and secrets are there and synced, with the high-water mark of the backup
//! t3  the store was opened once: its heads are those of the backup, indexes are built, losses accepted, the
//!     epoch of a promotion raised, records added, the signed log brought up to that of an old data directory
//!     or marked as a copy
//! t4  RESTORING is removed
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write, stdin};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_cli::files::{create_file, make_dir, sync_dir, write_new};
use sealog_cli::progress;
use sealog_control::{Control, names_of_copy, projects_of_copy};
use sealog_core::chain::Head;
use sealog_core::id::{ChainId, Mode};
use sealog_service::evidence::verification::queue_baseline;
use sealog_store::Store;
use sealog_store::embedded::backup::{CopyEnd, segment_file_name, write_mark};
use sealog_store::embedded::disk::{Disk, RealDisk};
use sealog_store::embedded::{EmbeddedStore, Options};
use sealog_store::world::{SystemWorld, World};
use serde::Serialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::check::{Checked, check};
use super::manifest::{CONTROL, EMBEDDED, FileText, LogText, Manifest, STORE_LOG, SegmentText, dropped_name};
use super::place::Place;
use super::progress::Progress;
use super::record::{Restored, add_records};
use super::restore_target::{abandon, changed, prepare, release, remove};
use super::rollback::{Behind, Known};
use super::rollback_flags::{known_to, rollback_args};
use super::shared::{EXIT_CODES, json_flag, quiet_flag};
use super::signed_log::{self, Settled};
use super::tail::{OLD_CONTROL, Tail};
use super::verify::select;
use super::{restore_check, stream};

/// Where a stream is unpacked.
const SPOOL: &str = "restore.tmp";
/// Indexes and counts, which a restore builds, are at most this part of the events.
const INDEX_PART: u64 = 4;
/// The room that a server keeps for changes of access and needs to accept events.
const SPARE: u64 = 16 << 20;
/// Heads that are shown of those that a restore would end behind.
const SHOWN_MAX: usize = 20;

pub fn command() -> Command {
    Command::new("restore")
        .about("Restore a backup into a new data directory")
        .long_about(
            "Restore a backup into a new data directory.\n\n\
             The command first verifies the backup. It refuses a damaged or incomplete backup and a target \
             that is not empty. It also refuses a backup that is missing acknowledged events. Evidence of \
             these is a newer backup in the same directory, a receipt (--receipt), the log and high-water \
             mark of an old data directory (--old-data), or a mark that is still in the target. \
             --accept-rollback restores the backup anyway; each chain then records its lost events and your \
             --reason (sealog.loss_accepted). The next start of the server records every restore in the system chains \
             of all tenants (sealog.store_restored).\n\n\
             If the old data directory still has its log, --recover-tail imports the events after the end of \
             the backup, with their idempotency keys, and the control data beside it. It verifies every \
             event first and stops at the first fault.\n\n\
             If a restore is interrupted, run it again; it starts over.",
        )
        .after_help(EXIT_CODES)
        .subcommand_negates_reqs(true)
        .args_conflicts_with_subcommands(true)
        .arg(Arg::new("from").long("from").value_name("DIR|-").required(true).help("The backup directory, or - for a stream on standard input"))
        .arg(Arg::new("to").long("to").value_name("DATA").required(true).help("The data directory to create; new or empty"))
        .arg(Arg::new("backup").long("backup").value_name("ID").help("Restore this backup instead of the newest; `sealog backup list` shows the ids"))
        .arg(Arg::new("accept-damage").long("accept-damage").action(ArgAction::SetTrue).help("Restore a backup of a damaged store, with its broken chains; files must still match the manifest"))
        .arg(unsafe_storage_flag())
        .args(rollback_args())
        .arg(recover_tail_flag())
        .arg(json_flag())
        .arg(quiet_flag())
        .subcommand(restore_check::command())
}

pub(super) fn unsafe_storage_flag() -> Arg {
    let flag = Arg::new("allow-unsafe-storage").long("allow-unsafe-storage").action(ArgAction::SetTrue);
    flag.help("Restore onto a file system that can lose events, for tests")
}

pub(super) fn recover_tail_flag() -> Arg {
    let flag = Arg::new("recover-tail").long("recover-tail").action(ArgAction::SetTrue).requires("old-data");
    flag.help("Import the events of --old-data after the end of the backup, verified, and its control data")
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let (from, to) = (given("from").expect("clap asks for it"), given("to").expect("clap asks for it"));
    let (backup, accept_damage) = (given("backup"), matches.get_flag("accept-damage"));
    restore(matches, &Order { from, to: Path::new(to), backup, accept_damage, promotes: false })
}

/// What is to be restored.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub from: &'a str,
    pub to: &'a Path,
    pub backup: Option<&'a str>,
    pub accept_damage: bool,
    /// The target becomes the primary: its epoch is raised before a server can start on it.
    pub promotes: bool,
}

/// How many bytes a file has; None for a pipe, whose end nothing knows beforehand.
fn length_of(input: impl AsFd) -> Option<u64> {
    let about = File::from(input.as_fd().try_clone_to_owned().ok()?).metadata().ok()?;
    about.is_file().then_some(about.len())
}

/// Restores as ordered, with the flags that every order has.
pub(super) fn restore(matches: &ArgMatches, order: &Order<'_>) -> Result<ExitCode, Failure> {
    let Order { from, to, backup, accept_damage, promotes } = *order;
    let given = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let mut known = Known::default();
    known_to(matches, &mut known)?;
    let recover_from = recover_from(matches)?;
    let _alone = prepare(to, &mut known)?;
    let spool = to.join(SPOOL);
    let place = if from == "-" {
        make_dir(&spool).map_err(|error| Failure::of_path(&spool, &error))?;
        let progress = Progress::of_stream("Unpacking", matches.get_flag("quiet"), length_of(stdin()));
        let unpacked = stream::unpack(progress.over(stdin().lock()), &spool);
        progress.finish();
        unpacked.map_err(|failure| abandon(to, failure))?;
        // A stream that ends well and has none of this is no backup.
        Place::open(&spool)
            .map_err(|Failure { message, .. }| abandon(to, Failure::new(Exit::Broken, message)))?
    } else {
        Place::open(Path::new(from)).map_err(|failure| abandon(to, failure))?
    };
    let restore = Restore {
        place,
        to: to.to_owned(),
        accept_rollback: matches.get_flag("accept-rollback"),
        accept_damage,
        promotes,
        recover_from,
        old_data: matches.get_many::<String>("old-data").into_iter().flatten().map(PathBuf::from).collect(),
        reason: given("reason").map(str::to_owned),
        allow_unsafe_storage: matches.get_flag("allow-unsafe-storage"),
        is_quiet: matches.get_flag("quiet"),
    };
    let done = match restore.run(backup, &mut known) {
        Ok(done) => done,
        Err(Refused { failure, is_begun: true }) => return Err(failure),
        // Nothing was restored yet, so the target is as it was found.
        Err(Refused { failure, is_begun: false }) => return Err(abandon(to, failure)),
    };
    let Done { manifest, events, lost, recovered, epoch, log } = done;
    if matches.get_flag("json") {
        let lost: Vec<String> = lost.iter().map(Behind::say).collect();
        println!(
            "{}",
            json!({ "id": manifest.id, "made_at": manifest.made_at, "data_dir": to, "events": events, "chains": manifest.heads.len(), "rolled_back": lost, "not_known": known.not_known(), "recovered": recovered, "epoch": epoch, "signed_log": log })
        );
    } else {
        for behind in &lost {
            println!("accepted: {}", behind.say());
        }
        if let Some(recovered) = &recovered {
            recovered.say();
        }
        let ends =
            if recovered.is_some() { "then the events of the old log" } else { "all heads as in the backup" };
        println!(
            "restored backup {} of {}: {events} events in {} chains, {ends}",
            manifest.id,
            manifest.made_at,
            manifest.heads.len()
        );
        if let Some(log) = &log {
            log.say();
        }
        if let Some(epoch) = epoch {
            println!(
                "promoted to epoch {epoch}. Start the server on {}; the old primary must not accept events any more: keep it stopped, or set replication.peer on it",
                to.display()
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The old data directory whose tail is to be taken over.
fn recover_from(matches: &ArgMatches) -> Result<Option<PathBuf>, Failure> {
    if !matches.get_flag("recover-tail") {
        return Ok(None);
    }
    let old: Vec<&String> = matches.get_many("old-data").into_iter().flatten().collect();
    match old[..] {
        [old] => Ok(Some(PathBuf::from(old))),
        _ => {
            Err(Failure::usage("--recover-tail imports the log of one data directory: give --old-data once"))
        }
    }
}

struct Restore {
    place: Place,
    to: PathBuf,
    recover_from: Option<PathBuf>,
    old_data: Vec<PathBuf>,
    accept_rollback: bool,
    accept_damage: bool,
    promotes: bool,
    reason: Option<String>,
    allow_unsafe_storage: bool,
    is_quiet: bool,
}

struct Done {
    manifest: Manifest,
    events: u64,
    lost: Vec<Behind>,
    recovered: Option<Recovered>,
    /// Of a promotion.
    epoch: Option<u64>,
    /// Of a store with a signed log.
    log: Option<Settled>,
}

/// What came from the old data directory.
#[derive(Debug, Serialize)]
struct Recovered {
    events: u64,
    /// Of the old control data, that the backup does not have.
    only_there: Vec<String>,
    /// Whether the control data is the old one.
    has_control_data: bool,
}

impl Recovered {
    fn say(&self) {
        let from = if self.has_control_data { " and the control data" } else { "" };
        println!("recovered: {} events{from} of the old data directory", self.events);
        for only in &self.only_there {
            println!("recovered: {only}, which the backup does not have");
        }
    }
}

/// What the restored store has to come to.
struct Reached<'a> {
    heads: BTreeMap<ChainId, Head>,
    lost: &'a [Behind],
    recovered: Option<&'a Recovered>,
    /// A newer backup cannot be read, and may have had more.
    is_unread: bool,
}

struct Refused {
    failure: Failure,
    /// Files were written.
    is_begun: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Refused {
        Refused { failure, is_begun: false }
    }
}

impl From<String> for Refused {
    fn from(problem: String) -> Refused {
        Failure::from(problem).into()
    }
}

impl Restore {
    fn run(&self, id: Option<&str>, known: &mut Known) -> Result<Done, Refused> {
        let manifest = select(&self.place, id)?;
        if manifest.store.kind != EMBEDDED {
            return Err(Failure::usage(format!("backup {} holds the heads of a database and no events; restore the database with its own tools, then run `sealog restore check`", manifest.id)).into());
        }
        let unread = known.add_newer(&self.place, &manifest)?;
        self.refuse_unread(&manifest, &unread)?;
        let progress = Progress::new("Verifying", self.is_quiet);
        let checked = check(&self.place, &manifest, &known.wanted(), &progress)?;
        progress.finish();
        self.refuse_damage(&manifest, &checked)?;
        let progress = Progress::new("Reading the old log", self.is_quiet);
        let tail = self.recover_from.as_ref();
        let tail =
            tail.map(|old| Tail::read(old, &self.place, &manifest, &checked, &known.wanted(), &progress));
        let tail = tail.transpose()?;
        progress.finish();
        let (mut heads, mut found, mut events) = (manifest.heads()?, checked.found, checked.events);
        if let Some(tail) = &tail {
            tail.ended
                .iter()
                .for_each(|why| known.add_not_known(format!("could not import the whole old log: {why}")));
            (heads, found, events) = (tail.heads.clone(), tail.found.clone(), events + tail.events);
        }
        let lost = known.behind(&heads, &found, &checked.dropped);
        self.refuse_rollback(&manifest, &lost)?;
        self.refuse_full(&manifest, tail.as_ref())?;
        let recovered = tail.as_ref().map(|tail| self.recover_control(&manifest, tail)).transpose()?;
        let begun = |failure: Failure| Refused { failure, is_begun: true };
        self.copy(&manifest, tail.as_ref(), recovered.as_ref()).map_err(begun)?;
        let (recovered_ref, is_unread) = (recovered.as_ref(), !unread.is_empty());
        let bar = progress::waiting(self.is_quiet, "Opening the restored store");
        let reached = Reached { heads, lost: &lost, recovered: recovered_ref, is_unread };
        let finished = self.finish(&manifest, tail.as_ref(), &reached);
        bar.finish_and_clear();
        let (epoch, log) = finished.map_err(Failure::from).map_err(begun)?;
        Ok(Done { manifest, events, lost, recovered, epoch, log })
    }

    fn refuse_damage(&self, manifest: &Manifest, checked: &Checked) -> Result<(), Refused> {
        // Files that differ from the manifest are never restored; a store that was damaged when it was backed
        // up may be.
        let is_accepted = self.accept_damage && checked.changed.is_empty();
        if checked.is_whole() || is_accepted {
            return Ok(());
        }
        let mut problem = format!("backup {} is not complete; the target is unchanged", manifest.id);
        for wrong in checked.changed.iter().chain(&checked.damaged) {
            problem += &format!("\n  {wrong}");
        }
        for broken in checked.broken.iter().take(SHOWN_MAX) {
            problem +=
                &format!("\n  chain {} is broken at {}: {}", broken.chain, broken.chain_seq, broken.why);
        }
        problem += if checked.changed.is_empty() {
            "\nThe store was damaged when this backup was made. Choose an earlier backup (--backup), or restore it with its damage (--accept-damage)"
        } else {
            "\nChoose another backup (--backup), or restore the files from another copy of the directory"
        };
        Err(Failure::new(Exit::Broken, problem).into())
    }

    /// A newer backup that cannot be read may have had events that this one has not.
    fn refuse_unread(&self, manifest: &Manifest, unread: &[String]) -> Result<(), Refused> {
        if unread.is_empty() || self.accept_rollback {
            return Ok(());
        }
        let mut problem =
            format!("cannot read the newer backups after backup {}; the target is unchanged", manifest.id);
        for newer in unread {
            problem += &format!("\n  {newer}");
        }
        problem += "\nRestore the manifests from another copy of the directory. If there is none, give --accept-rollback and --reason to continue without them";
        Err(problem.into())
    }

    fn refuse_rollback(&self, manifest: &Manifest, lost: &[Behind]) -> Result<(), Refused> {
        if lost.is_empty() || self.accept_rollback {
            return Ok(());
        }
        let mut problem = format!(
            "backup {} of {} is missing events that were acknowledged; the target is unchanged",
            manifest.id, manifest.made_at
        );
        for behind in lost.iter().take(SHOWN_MAX) {
            problem += &format!("\n  {}", behind.say());
        }
        if lost.len() > SHOWN_MAX {
            problem += &format!("\n  and {} more", lost.len() - SHOWN_MAX);
        }
        if self.recover_from.is_none() {
            problem += "\nIf the old data directory still has its log, import these events with --recover-tail and --old-data.";
        }
        problem += "\nFind a newer backup or another copy of the events. If they are lost for good, give --accept-rollback and --reason to continue without them; the chains then record the loss";
        Err(problem.into())
    }

    /// A restore that would fill the disk is not begun.
    fn refuse_full(&self, manifest: &Manifest, tail: Option<&Tail>) -> Result<(), Refused> {
        let events = manifest.bytes().saturating_add(tail.map_or(0, Tail::bytes));
        let needed = events.saturating_add(events / INDEX_PART).saturating_add(SPARE);
        let free = RealDisk.free_bytes(&self.to).map_err(|error| Failure::of_path(&self.to, &error))?;
        if free >= needed {
            return Ok(());
        }
        let problem = format!(
            "{}: the restore needs {needed} bytes, but {free} bytes are free; the target is unchanged. Make room, or give a directory on another disk",
            self.to.display()
        );
        Err(problem.into())
    }

    /// Brings the old control data into the target: keys and projects that were made after the backup are
    /// only there, and the tail has their events.
    fn recover_control(&self, manifest: &Manifest, tail: &Tail) -> Result<Recovered, Refused> {
        let copied = tail.copy_control(&self.to, &self.to.join(CONTROL));
        let in_backup = manifest.file(CONTROL).map_or(Ok(BTreeSet::new()), |file| self.names_in(file))?;
        match copied {
            Ok(()) => {
                let names = names_of_copy(&self.to.join(CONTROL)).map_err(|error| error.to_string())?;
                let only_there = names.difference(&in_backup).cloned().collect();
                Ok(Recovered { events: tail.events, only_there, has_control_data: true })
            }
            Err(_) if self.accept_rollback => {
                Ok(Recovered { events: tail.events, only_there: Vec::new(), has_control_data: false })
            }
            Err(error) => {
                let mut problem = format!(
                    "cannot read the old control data: {error}; the target is unchanged. Projects, keys and people added after the backup exist only there"
                );
                let unnamed = tail.heads.keys().map(|chain| format!("project {}", chain.project_id));
                let unnamed: BTreeSet<String> = unnamed
                    .filter(|project| !in_backup.iter().any(|known| known.starts_with(project)))
                    .collect();
                for project in unnamed.iter().take(SHOWN_MAX) {
                    problem += &format!(
                        "\n  {project} has events in the old log, but the backup does not contain it"
                    );
                }
                problem +=
                    "\nGive --accept-rollback and --reason to continue with the control data of the backup";
                Err(problem.into())
            }
        }
    }

    /// Projects and keys of control data that was backed up. It may be in pieces, so it is put together
    /// beside the old one.
    fn names_in(&self, control: &FileText) -> Result<BTreeSet<String>, String> {
        let path = self.to.join(OLD_CONTROL).join("backup.db");
        let content = self.place.read_file(control)?;
        make_dir(&self.to.join(OLD_CONTROL))
            .and_then(|()| create_file(&path)?.write_all(&content))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        names_of_copy(&path).map_err(|error| error.to_string())
    }

    /// Everything but what follows from opening it.
    fn copy(
        &self,
        manifest: &Manifest,
        tail: Option<&Tail>,
        recovered: Option<&Recovered>,
    ) -> Result<(), Failure> {
        let failed = |error: io::Error| Failure::from(format!("{}: {error}", self.to.display()));
        let progress = Progress::new("Restoring", self.is_quiet);
        progress.begin(manifest.bytes());
        for log in &manifest.logs {
            make_dir(&self.to.join(&log.mode)).map_err(failed)?;
            for segment in &log.segments {
                let bytes = tail.map_or(Some(segment.bytes), |tail| {
                    tail.bytes_of(&log.mode, segment.number, segment.bytes)
                });
                if let Some(bytes) = bytes {
                    self.copy_segment(log, segment, bytes)?;
                }
                progress.add(segment.bytes);
            }
        }
        for (mode, tail) in Mode::ALL.into_iter().filter_map(|mode| Some((mode, tail?))) {
            let dir = self.to.join(mode.as_str());
            tail.write(mode, &dir)?;
            if let Some(dropped) = tail.dropped(mode) {
                write_new(&dir.join("dropped"), &dropped).map_err(failed)?;
            }
        }
        let is_there = |name: &str| {
            let is_control = name == CONTROL && recovered.is_some_and(|recovered| recovered.has_control_data);
            is_control
                || Mode::ALL
                    .iter()
                    .any(|mode| name == dropped_name(mode.as_str()) && self.to.join(name).exists())
        };
        for file in manifest.files.iter().filter(|file| !is_there(&file.name)) {
            // It was verified, and may have been changed since.
            let content = self.place.read_file(file).map_err(|wrong| Failure::new(Exit::Broken, wrong))?;
            let path = self.to.join(&file.name);
            let is_of_trust = file.name == STORE_LOG;
            if is_of_trust {
                make_dir(&self.to.join("trust")).map_err(failed)?;
            }
            write_new(&path, &content).map_err(failed)?;
            if is_of_trust {
                sync_dir(&self.to.join("trust")).map_err(failed)?;
            }
            progress.add(file.bytes);
        }
        write_new(&self.to.join("FORMAT"), format!("{}\n", manifest.store.format).as_bytes())
            .map_err(failed)?;
        for log in &manifest.logs {
            sync_dir(&self.to.join(&log.mode)).map_err(failed)?;
        }
        sync_dir(&self.to).map_err(failed)?;
        progress.finish();
        Ok(())
    }

    /// `kept`: how much of it counts.
    fn copy_segment(&self, log: &LogText, segment: &SegmentText, kept: u64) -> Result<(), Failure> {
        let from = self.place.segment_path(&log.mode, segment.number, &segment.salt);
        let to = self.to.join(&log.mode).join(segment_file_name(segment.number));
        // It was verified, and may have been changed since: what is written is what was verified.
        let copied = || {
            let (mut hasher, mut out) = (Sha256::new(), create_file(&to)?);
            let mut source = File::open(&from)?.take(segment.bytes);
            let (mut piece, mut bytes) = (vec![0; 1 << 20], 0);
            loop {
                let count = source.read(&mut piece)?;
                if count == 0 {
                    break;
                }
                hasher.update(&piece[..count]);
                out.write_all(&piece[..count])?;
                bytes += count as u64;
            }
            out.set_len(kept)?;
            out.sync_all()?;
            Ok::<_, io::Error>(bytes == segment.bytes && hex::encode(hasher.finalize()) == segment.sha256)
        };
        match copied() {
            Ok(true) => Ok(()),
            Ok(false) => Err(changed(&from.display())),
            Err(error) => Err(format!("{}: {error}", to.display()).into()),
        }
    }

    /// Opens the store once, holds it against the manifest, accepts what is lost and adds the records.
    fn finish(
        &self,
        manifest: &Manifest,
        tail: Option<&Tail>,
        reached: &Reached<'_>,
    ) -> Result<(Option<u64>, Option<Settled>), String> {
        let Reached { heads, lost, .. } = reached;
        let projects = projects_of_copy(&self.to.join(CONTROL)).map_err(|error| error.to_string())?;
        // A chain of a project that the control data does not know would be made by its own acceptance, and
        // nobody could read it. Of several in one chain the furthest counts, which comes last.
        let accepted: BTreeMap<ChainId, Head> = lost
            .iter()
            .filter_map(|behind| Some((behind.chain?, behind.known)))
            .filter(|(chain, _)| projects.contains(&chain.project_id))
            .collect();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        for log in &manifest.logs {
            let mode = super::head_text::mode(&log.mode).ok_or("an unknown log")?;
            let backed_up = log.segments.last().map(|last| (log.commit, last.number, last.bytes));
            let end = tail.and_then(|tail| tail.end(mode)).or(backed_up);
            let Some((commit, segment, offset)) = end else { continue };
            let end = CopyEnd { commit, segment, offset, unproven_to: log.unproven_to };
            let of_log = |(chain, _): &(&ChainId, &Head)| chain.mode.as_str() == log.mode;
            let mut marked: BTreeMap<ChainId, Head> =
                heads.iter().filter(of_log).map(|(chain, head)| (*chain, *head)).collect();
            for known in [&manifest.lost()?, &accepted] {
                marked.extend(known.iter().filter(of_log));
            }
            let dir = self.to.join(&log.mode);
            write_mark(&disk, &dir, mode, end, &marked, SystemWorld.now_ms())
                .map_err(|error| format!("{}: {error}", dir.display()))?;
        }
        let options = Options { allow_unsafe_storage: self.allow_unsafe_storage, ..Options::default() };
        let store = EmbeddedStore::open(&self.to, &options).map_err(|error| error.to_string())?;
        let control = Control::embedded(&store).map_err(|error| error.to_string())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let done = runtime.block_on(self.complete(&store, &control, manifest, reached, &accepted));
        let done = done.and_then(|epoch| {
            let made = if self.promotes { "promoted" } else { "restored" };
            let why = format!("this store was {made} from the backup of {}", manifest.made_at);
            Ok((epoch, signed_log::settle(&store, &self.old_data, &why)?))
        });
        store.close();
        drop(control);
        drop(store);
        let done = done?;
        self.unmark().map_err(|error| format!("{}: {error}", self.to.display()))?;
        Ok(done)
    }

    async fn complete(
        &self,
        store: &EmbeddedStore,
        control: &Control,
        manifest: &Manifest,
        reached: &Reached<'_>,
        accepted: &BTreeMap<ChainId, Head>,
    ) -> Result<Option<u64>, String> {
        let Reached { heads, lost, recovered, is_unread } = reached;
        let restored: BTreeMap<ChainId, Head> =
            store.heads().await.map_err(|error| error.to_string())?.into_iter().collect();
        let other = heads.iter().find(|(chain, head)| restored.get(chain) != Some(head));
        if let Some((chain, head)) = other.filter(|_| manifest.faults.is_empty()) {
            let found = restored.get(chain).map_or(0, |head| head.chain_seq);
            return Err(format!(
                "chain {chain}: the restored store ends at {found}, but the verified backup ends at {}; do not use it",
                head.chain_seq
            ));
        }
        for chain in accepted.keys() {
            let reason = self.reason.clone().ok_or("a rollback needs a reason")?;
            store.accept_loss(*chain, reason).await.map_err(|error| format!("chain {chain}: {error}"))?;
        }
        // Durable before RESTORING is removed, without which no server starts here.
        let epoch = match self.promotes {
            true => Some(control.raise_epoch().await.map_err(|error| error.to_string())?),
            false => None,
        };
        let record = Restored {
            epoch,
            backup: &manifest.id,
            made_at: &manifest.made_at,
            reason: self.reason.as_deref(),
            lost,
            concerns_all: *is_unread || recovered.is_some_and(|recovered| !recovered.has_control_data),
            recovered_events: recovered.map_or(0, |recovered| recovered.events),
        };
        add_records(control, &record).await?;
        // Control data and log of one old directory belong together, and whoever has edited one of them is to
        // be found. Otherwise they may be of two moments: what differs now is not what somebody edits later.
        if lost.is_empty() && recovered.is_some_and(|recovered| recovered.has_control_data) {
            return Ok(epoch);
        }
        queue_baseline(control, &SystemWorld).await.map_err(|error| error.to_string())?;
        Ok(epoch)
    }

    fn unmark(&self) -> io::Result<()> {
        remove(&self.to.join(SPOOL))?;
        remove(&self.to.join(OLD_CONTROL))?;
        release(&self.to)
    }
}
