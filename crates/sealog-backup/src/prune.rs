//! `sealog backup prune`: removes the backups that no rule keeps, and the files that no other backup names.
//!
//! ```text
//! t0  alone in the directory: no backup, no other prune, no verification and no restore
//! t1  every manifest can be read, and a backup that stays was verified
//! t2  manifests are removed, the oldest first, and their removal is durable
//! t3  files that no manifest names are removed
//! ```
//! A kill between any two of these leaves whole backups, and files that the next prune removes at t3.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command};
use sealog_cli::exit::{Exit, Failure};
use sealog_core::time::iso_ms;
use sealog_store::embedded::backup::Wanted;
use sealog_store::world::{SystemWorld, World};
use serde_json::json;

use super::check::check;
use super::manifest::{EMBEDDED, Manifest};
use super::place::{Found, Keeper, Place};
use super::progress::Progress;
use super::shared::{EXIT_CODES, dir_argument, json_flag, quiet_flag};

const DAY_MS: u64 = 86_400_000;
/// From the Monday before the first day of 1970, a Thursday.
const DAYS_OF_FIRST_WEEK: u64 = 3;

/// The period that a moment is in.
type PeriodOf = fn(u64) -> String;
/// What a rule counts.
const RULES: [(&str, PeriodOf); 5] = [
    ("hourly", |ms| iso_ms(ms)[..13].to_owned()),
    ("daily", |ms| iso_ms(ms)[..10].to_owned()),
    ("weekly", |ms| ((ms / DAY_MS + DAYS_OF_FIRST_WEEK) / 7).to_string()),
    ("monthly", |ms| iso_ms(ms)[..7].to_owned()),
    ("yearly", |ms| iso_ms(ms)[..4].to_owned()),
];
const FLAGS: [(&str, &str); 5] = [
    ("keep-hourly", "Keep the newest backup of each of the last N hours that have one"),
    ("keep-daily", "Keep the newest backup of each of the last N days that have one"),
    (
        "keep-weekly",
        "Keep the newest backup of each of the last N weeks that have one; weeks begin on Monday",
    ),
    ("keep-monthly", "Keep the newest backup of each of the last N months that have one"),
    ("keep-yearly", "Keep the newest backup of each of the last N years that have one"),
];

pub(super) fn command() -> Command {
    let keep = |(name, help): (&'static str, &'static str)| {
        Arg::new(name).long(name).value_name("N").value_parser(clap::value_parser!(u32)).help(help)
    };
    Command::new("prune")
        .about("Remove the backups that no rule keeps")
        .long_about(
            "Remove the backups of DIR that no rule keeps, then the files that no remaining backup needs.\n\n\
             Each --keep flag is a rule; a backup stays if one of them keeps it. Hours, days, weeks, months \
             and years are those of UTC. The newest backup and the newest verified one always stay. If no \
             backup was verified, the command verifies the newest first, and removes nothing if that is not \
             complete. It also removes nothing while a manifest cannot be read.\n\n\
             Events are not lost: backups share the segments of the log, and the newest has all live events. \
             An older backup gives you back the control data and the test events of its time.\n\n\
             If a prune is interrupted, run it again. It exits with 5 while a backup, a verification, a \
             restore or another prune uses the directory.",
        )
        .after_help(EXIT_CODES)
        .arg(dir_argument("The backup directory"))
        .args(FLAGS.map(keep))
        .group(ArgGroup::new("rules").args(FLAGS.map(|(name, _)| name)).required(true).multiple(true))
        .arg(
            Arg::new("dry-run")
                .long("dry-run")
                .action(ArgAction::SetTrue)
                .help("Print what would be removed without removing it"),
        )
        .arg(json_flag())
        .arg(quiet_flag())
}

pub(super) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let path = Path::new(matches.get_one::<String>("dir").expect("clap asks for it"));
    let counts = FLAGS.map(|(name, _)| matches.get_one::<u32>(name).copied().unwrap_or(0));
    if counts == [0; 5] {
        return Err(Failure::usage("give at least one --keep flag with a number above 0"));
    }
    let (dry_run, is_quiet) = (matches.get_flag("dry-run"), matches.get_flag("quiet"));
    let place = Place::open(path)?;
    if !dry_run {
        verify_one(&place, is_quiet)?;
    }
    let done = if dry_run {
        let plan = Plan::of(&place, counts)?;
        let only = &place.named(&plan.removed) - &place.named(&plan.kept);
        let bytes = only.iter().map(|path| bytes_of(path)).sum();
        Done { plan, files: only.len(), bytes }
    } else {
        // The lock of a reader would keep this process itself from being alone.
        drop(place);
        let place = Place::create(path, Keeper::Backups)?;
        let _alone = place.without_readers().ok_or_else(|| {
            let busy = "a verification or a restore reads these backups; wait for it";
            Failure::new(Exit::Unavailable, format!("{}: {busy}", path.display()))
        })?;
        let plan = Plan::of(&place, counts)?;
        let (files, bytes) =
            sweep(&place, &plan, &mut |path| fs::remove_file(path), &Progress::new("Removing", is_quiet))
                .map_err(|error| format!("{error}; run the command again to remove the rest"))?;
        Done { plan, files, bytes }
    };
    done.report(dry_run, matches.get_flag("json"), is_quiet);
    Ok(ExitCode::SUCCESS)
}

/// Verifies the newest backup, unless one is recorded as verified. Heads of a database have no events to
/// verify.
fn verify_one(place: &Place, is_quiet: bool) -> Result<(), Failure> {
    let newest = readable(place)?.pop().filter(|newest| newest.store.kind == EMBEDDED);
    let Some(newest) = newest.filter(|_| place.verified().is_none()) else { return Ok(()) };
    let progress = Progress::new("Verifying", is_quiet);
    let checked = check(place, &newest, &Wanted::default(), &progress)?;
    progress.finish();
    if !checked.is_whole() {
        let problem = format!(
            "backup {} is the newest and not complete, and no other was verified; nothing was removed. `sealog backup verify` shows what is wrong",
            newest.id
        );
        return Err(Failure::new(Exit::Broken, problem));
    }
    // A full disk keeps the record out, and a prune is how it gets room.
    place.note_verified(&newest, SystemWorld.now_ms()).unwrap_or_else(|error| {
        eprintln!("sealog: cannot record the verification: {error}; the next prune verifies again");
    });
    Ok(())
}

/// All backups, oldest first. One that cannot be read may need any of the files.
fn readable(place: &Place) -> Result<Vec<Manifest>, Failure> {
    let read = |Found { id, manifest }: Found| {
        manifest.map_err(|problem| {
            let what = "Nothing was removed: restore its manifest from another copy, or remove it";
            Failure::new(Exit::Broken, format!("backup {id}: {problem}. {what}"))
        })
    };
    place.list()?.into_iter().map(read).collect()
}

/// Which backups stay and which go, each oldest first.
struct Plan {
    kept: Vec<Manifest>,
    removed: Vec<Manifest>,
    /// Why each of those that stay does.
    why: BTreeMap<String, Vec<&'static str>>,
}

impl Plan {
    fn of(place: &Place, counts: [u32; 5]) -> Result<Plan, Failure> {
        let all = readable(place)?;
        let moments: Vec<(&str, u64)> =
            all.iter().map(|manifest| (manifest.id.as_str(), manifest.made_at_ms)).collect();
        let mut why = keep(&moments, counts);
        if let Some(newest) = all.last() {
            why.entry(newest.id.clone()).or_default().push("newest");
        }
        if let Some(verified) = place.verified() {
            why.entry(verified.id).or_default().push("newest verified");
        }
        let (kept, removed) = all.into_iter().partition(|manifest| why.contains_key(&manifest.id));
        Ok(Plan { kept, removed, why })
    }
}

/// Which backups the rules keep, of names and moments, oldest first.
fn keep(moments: &[(&str, u64)], counts: [u32; 5]) -> BTreeMap<String, Vec<&'static str>> {
    let mut why: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for ((rule, period), count) in RULES.into_iter().zip(counts) {
        let mut periods = BTreeSet::new();
        for (id, made_at_ms) in moments.iter().rev() {
            if periods.len() < count as usize && periods.insert(period(*made_at_ms)) {
                why.entry((*id).to_owned()).or_default().push(rule);
            }
        }
    }
    why
}

/// Removes what the plan does not keep; how many files that were, and their bytes. Needs no room on the disk.
fn sweep(
    place: &Place,
    plan: &Plan,
    remove: &mut dyn FnMut(&Path) -> io::Result<()>,
    progress: &Progress,
) -> Result<(usize, u64), String> {
    let mut remove = |path: &Path| remove(path).map_err(|error| format!("{}: {error}", path.display()));
    for manifest in &plan.removed {
        remove(&place.manifest_path(&manifest.id))?;
    }
    let failed = |error: io::Error| format!("{}: {error}", place.path().display());
    // A manifest that a power cut brings back must find its files.
    place.sync_manifests().map_err(failed)?;
    let unnamed: Vec<PathBuf> = place.unnamed(&plan.kept).map_err(failed)?;
    progress.begin(unnamed.iter().map(|path| bytes_of(path)).sum());
    let mut bytes = 0;
    for path in &unnamed {
        let removed = bytes_of(path);
        remove(path)?;
        bytes += removed;
        progress.add(removed);
    }
    progress.finish();
    Ok((unnamed.len(), bytes))
}

fn bytes_of(path: &Path) -> u64 {
    path.metadata().map_or(0, |file| file.len())
}

struct Done {
    plan: Plan,
    files: usize,
    bytes: u64,
}

impl Done {
    fn report(&self, dry_run: bool, as_json: bool, is_quiet: bool) {
        let Done { plan: Plan { kept, removed, why }, files, bytes } = self;
        if as_json {
            let removed: Vec<&str> = removed.iter().map(|manifest| manifest.id.as_str()).collect();
            println!(
                "{}",
                json!({ "dry_run": dry_run, "kept": why, "removed": removed, "removed_files": files, "removed_bytes": bytes })
            );
            return;
        }
        if !is_quiet {
            for manifest in kept {
                println!("keep {} ({})", manifest.id, why[&manifest.id].join(", "));
            }
            for manifest in removed {
                println!("remove {}", manifest.id);
            }
        }
        let (would, end) =
            if dry_run { ("would remove", "; dry run: no changes made") } else { ("removed", "") };
        println!(
            "{would} {} backups and {files} files ({bytes} bytes); {} backups stay{end}",
            removed.len(),
            kept.len()
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{FileText, LogText, SegmentText, StoreText};

    const HOUR_MS: u64 = 3_600_000;
    /// 2026-03-01T00:30:00Z, a Sunday.
    const BEGIN_MS: u64 = 1_772_325_000_000;

    fn kept(moments: &[u64], counts: [u32; 5]) -> Vec<u64> {
        let named: Vec<(String, u64)> = moments.iter().map(|ms| (ms.to_string(), *ms)).collect();
        let named: Vec<(&str, u64)> = named.iter().map(|(id, ms)| (id.as_str(), *ms)).collect();
        let why = keep(&named, counts);
        moments.iter().copied().filter(|ms| why.contains_key(&ms.to_string())).collect()
    }

    #[test]
    fn a_rule_keeps_the_newest_backup_of_each_of_its_last_periods_that_have_one() {
        let at = |hours: u64| BEGIN_MS + hours * HOUR_MS;
        // Twice in the first hour, then with gaps.
        let moments = [at(0), at(0) + 60_000, at(1), at(5), at(24), at(25)];
        assert_eq!(kept(&moments, [2, 0, 0, 0, 0]), [at(24), at(25)]);
        assert_eq!(kept(&moments, [9, 0, 0, 0, 0]), [at(0) + 60_000, at(1), at(5), at(24), at(25)]);
        assert_eq!(kept(&moments, [0, 1, 0, 0, 0]), [at(25)]);
        assert_eq!(kept(&moments, [0, 2, 0, 0, 0]), [at(5), at(25)]);
        assert_eq!(kept(&moments, [0; 5]), Vec::<u64>::new());
    }

    #[test]
    fn weeks_begin_on_monday_and_months_and_years_are_those_of_the_calendar_in_utc() {
        let midnight = BEGIN_MS - BEGIN_MS % DAY_MS;
        // Sunday 1 March 2026, its last second and the Monday after it.
        let (sunday, monday) = (midnight + DAY_MS - 1000, midnight + DAY_MS);
        assert_eq!(kept(&[midnight, sunday, monday], [0, 0, 9, 0, 0]), [sunday, monday]);
        let february = midnight - 1000;
        assert_eq!(kept(&[february, midnight, monday], [0, 0, 0, 9, 0]), [february, monday]);
        let before = midnight - 59 * DAY_MS - 1000;
        assert_eq!(iso_ms(before), "2025-12-31T23:59:59.000Z");
        assert_eq!(kept(&[before, before + 1000, monday], [0, 0, 0, 0, 9]), [before, monday]);
    }

    /// Backups that share a segment and have one and a file of their own.
    fn with_backups(dir: &Path, count: u64) -> Place {
        let place = Place::create(dir, Keeper::Backups).unwrap();
        let mut known: Vec<Manifest> = Vec::new();
        for number in 1..=count {
            let store = StoreText { kind: EMBEDDED.into(), format: "f".into(), id: "00".into() };
            let mut manifest = Manifest::after(&known, store, BEGIN_MS + number * DAY_MS).unwrap();
            let digest = |byte: u64| hex::encode([u8::try_from(byte).unwrap(); 32]);
            let salt = |byte: u64| hex::encode([u8::try_from(byte).unwrap(); 16]);
            let segment =
                |of: u64, at| SegmentText { number: at, salt: salt(of), bytes: 1, sha256: digest(of) };
            manifest.logs.push(LogText {
                mode: "live".into(),
                commit: 1,
                dropped_through: 0,
                unproven_to: None,
                segments: vec![segment(100, 1), segment(number, 2)],
                missing: Vec::new(),
            });
            let (name, sha256) = ("control.db".to_owned(), digest(number));
            manifest.files.push(FileText { name, bytes: 1, sha256, pieces: Vec::new() });
            for path in place.named([&manifest]) {
                fs::write(path, "x").unwrap();
            }
            place.put_manifest(&manifest).unwrap();
            known.push(manifest);
        }
        place
    }

    /// Every backup that is listed has all of its files.
    fn assert_whole(place: &Place) -> Vec<u64> {
        let listed = readable(place).unwrap();
        for path in place.named(&listed) {
            assert!(path.is_file(), "{}", path.display());
        }
        listed.iter().map(|manifest| manifest.number).collect()
    }

    #[test]
    fn a_prune_that_ends_at_any_step_leaves_whole_backups_and_the_next_one_removes_the_rest() {
        let (counts, hidden) = ([0, 2, 0, 0, 0], Progress::new("Removing", true));
        let mut ends = 0;
        for steps in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let place = with_backups(dir.path(), 5);
            fs::write(dir.path().join("live/left-by-a-kill.log"), "x").unwrap();
            let mut left = steps;
            // As a kill or a failing disk leaves it: each step is one call.
            let ended = sweep(
                &place,
                &Plan::of(&place, counts).unwrap(),
                &mut |path| {
                    if left == 0 {
                        return Err(io::ErrorKind::StorageFull.into());
                    }
                    left -= 1;
                    fs::remove_file(path)
                },
                &hidden,
            );
            let listed = assert_whole(&place);
            assert!(listed.ends_with(&[4, 5]), "{steps}: {listed:?}");
            let (again, _) =
                sweep(&place, &Plan::of(&place, counts).unwrap(), &mut |path| fs::remove_file(path), &hidden)
                    .unwrap();
            assert_eq!(assert_whole(&place), [4, 5], "{steps}");
            let listed = Plan::of(&place, counts).unwrap().kept;
            assert!(place.unnamed(&listed).unwrap().is_empty(), "{steps}");
            if ended.is_ok() {
                assert_eq!(again, 0);
                break;
            }
            ends += 1;
        }
        // Three manifests, a segment and a file of each, and what was left before.
        assert_eq!(ends, 3 * 3 + 1);
    }

    #[test]
    fn the_newest_backup_and_the_newest_verified_one_stay_whatever_the_rules_say() {
        let dir = tempfile::tempdir().unwrap();
        let place = with_backups(dir.path(), 5);
        let listed = readable(&place).unwrap();
        place.note_verified(&listed[1], 1).unwrap();
        // An older one does not take its place.
        place.note_verified(&listed[0], 2).unwrap();
        let stay = |counts| -> Vec<u64> {
            Plan::of(&place, counts).unwrap().kept.iter().map(|manifest| manifest.number).collect()
        };
        assert_eq!(stay([1, 0, 0, 0, 0]), [2, 5]);
        place.note_verified(&listed[3], 3).unwrap();
        assert_eq!(stay([0, 0, 0, 0, 1]), [4, 5]);
        // A backup that has taken its name was not verified.
        fs::write(place.manifest_path(&listed[3].id), listed[2].encode()).unwrap();
        assert!(place.verified().is_none());
    }

    #[test]
    fn nothing_is_removed_while_a_manifest_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let place = with_backups(dir.path(), 3);
        fs::write(dir.path().join("backups/000002-20260301T000000Z.json"), "half").unwrap();
        assert!(Plan::of(&place, [1; 5]).is_err_and(|failure| failure.exit == Exit::Broken));
    }
}
