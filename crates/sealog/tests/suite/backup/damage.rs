//! Damage: in a backup, in the store that it was made of, and disks without room.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealog_testing::mounted::Mounted;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::made::feed;
use super::{Stage, chains, ended, heads};
use crate::support::{SEALOG, clean, first_key, restoring_is_refused, sealog, serve};

/// Of a segment without events.
const HEADER_LEN: u64 = 128;

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_byte_in_any_kind_of_file_is_found_named_and_not_restored() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    let (live, test) = (stage.files("live"), stage.files("test"));
    let mut victims =
        vec![(live[0].clone(), 10), (test[0].clone(), 200), (stage.files("backups")[0].clone(), 300)];
    victims.extend(
        live.iter().map(|file| (file.clone(), usize::try_from(file.metadata().unwrap().len()).unwrap() / 2)),
    );
    victims.extend(stage.files("files").into_iter().map(|file| (file, 20)));
    for (file, at) in victims {
        let before = fs::read(&file).unwrap();
        if before.len() <= at {
            continue;
        }
        flip(&file, at);
        let (code, said, error) = stage.verify();
        assert_eq!(code, Some(10), "{}: {said} {error}", file.display());
        let name = file.file_stem().unwrap().to_str().unwrap();
        assert!(said.contains(name) || error.contains(name), "{}: {said} {error}", file.display());
        let (code, _, error) = stage.restore("restored", &["--accept-damage"]);
        assert_eq!(code, Some(10), "{}: {error}", file.display());
        assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0, "nothing is left behind");
        fs::write(&file, before).unwrap();
    }
    assert_eq!(stage.verify().0, Some(0));
    let removed = &live[1];
    let bytes = fs::read(removed).unwrap();
    fs::remove_file(removed).unwrap();
    assert_eq!(stage.verify().0, Some(10));
    assert_eq!(stage.restore("restored", &[]).0, Some(10));
    fs::write(removed, bytes).unwrap();
    // Nothing was restored by all that, and the backup still can be.
    assert_eq!(stage.restore("restored", &[]).0, Some(0));
    assert_eq!(heads(&stage.path("restored")), heads(&stage.data()));
}

#[test]
fn a_backup_heals_a_file_that_was_damaged_since() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    // The newest that has events: what comes behind it is a segment that a start has begun.
    let has_events = |file: &PathBuf| file.metadata().unwrap().len() > HEADER_LEN;
    let last = stage.files("live").into_iter().rfind(has_events).unwrap();
    fs::remove_file(&last).unwrap();
    assert_eq!(stage.verify().0, Some(10));
    stage.create();
    assert!(last.is_file());
    assert_eq!(stage.backup(&["verify", "--all"], false).0, Some(0));
}

#[test]
fn a_backup_of_a_damaged_store_says_so_and_is_restored_as_it_was_only_on_demand() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 10);
    let segment = stage.data().join("live/00000002.log");
    flip(&segment, 5000);
    let (code, said, error) = stage.backup(&["create", "--json"], true);
    assert_eq!(code, Some(0), "{error}");
    assert!(said.contains("segment 2: bytes") && error.contains("the store is damaged"), "{said} {error}");
    assert_eq!(stage.verify().0, Some(10));
    let (code, _, error) = stage.restore("restored", &[]);
    assert!(code == Some(10) && error.contains("--accept-damage"), "{error}");
    let (code, _, error) = stage.restore("restored", &["--accept-damage"]);
    assert_eq!(code, Some(0), "{error}");
    assert_eq!(
        fs::read(stage.path("restored").join("live/00000002.log")).unwrap()[5000],
        fs::read(segment).unwrap()[5000]
    );
}

/// Changes the one manifest that there is.
fn forge(stage: &Stage, change: impl FnOnce(&mut Value)) {
    forge_file(&stage.files("backups")[0], change);
}

/// Changes a manifest, and gives it the digest that belongs to it by then.
pub fn forge_file(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut sealed: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut sealed["manifest"]);
    sealed["sha256"] = hex::encode(Sha256::digest(sealed["manifest"].to_string())).into();
    fs::write(path, sealed.to_string()).unwrap();
}

#[test]
fn a_forged_manifest_writes_nothing_outside_of_the_target_and_takes_no_memory() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    stage.create();
    let sound = fs::read(&stage.files("backups")[0]).unwrap();
    forge(&stage, |_| {});
    assert_eq!(stage.verify().0, Some(0), "a manifest that was only written anew");
    let outside = stage.path("outside");
    let changes: [&dyn Fn(&mut Value); 4] = [
        &|manifest: &mut Value| manifest["files"][1]["name"] = "../outside".into(),
        &|manifest: &mut Value| manifest["files"][1]["name"] = outside.display().to_string().into(),
        &|manifest: &mut Value| manifest["logs"][0]["mode"] = "../outside".into(),
        &|manifest: &mut Value| manifest["logs"][0]["segments"][0]["bytes"] = u64::MAX.into(),
    ];
    for change in changes {
        fs::write(&stage.files("backups")[0], &sound).unwrap();
        forge(&stage, change);
        let (code, _, error) = stage.restore("restored", &[]);
        assert!(code == Some(10) && error.contains("Sealog did not write this manifest"), "{code:?} {error}");
        assert!(!outside.exists());
        assert_eq!(fs::read_dir(stage.path("restored")).unwrap().count(), 0, "nothing is left behind");
    }
    // A size that a segment may have, and this one does not.
    fs::write(&stage.files("backups")[0], &sound).unwrap();
    forge(&stage, |manifest| manifest["logs"][0]["segments"][0]["bytes"] = (1u64 << 40).into());
    let (code, said, _) = stage.verify();
    assert!(code == Some(10) && said.contains("shorter than in the manifest"), "{code:?} {said}");
}

/// The program, none of whose files may grow beyond so many blocks of 512 bytes, which is answered as a disk
/// without room is.
fn limited(blocks: u32) -> Command {
    let mut command = clean(Command::new("sh"));
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\""), SEALOG]);
    command
}

#[test]
fn a_full_disk_in_the_middle_of_a_restore_leaves_no_store_and_the_next_run_begins_anew() {
    let stage = Stage::new();
    stage.fill(&chains(), 10);
    stage.create();
    let stream = sealog().args(["backup", "create", "-", "--data-dir"]).arg(stage.data()).output().unwrap();
    let wanted = heads(&stage.data());
    // In the first segment, and in the control data behind all segments.
    for (at, blocks) in [4, 256].into_iter().enumerate() {
        let (to, streamed) = (stage.path(&format!("restored-{at}")), stage.path(&format!("streamed-{at}")));
        let mut command = limited(blocks);
        command.args(["restore", "--from"]).arg(stage.backups()).arg("--to").arg(&to);
        let (code, _, error) = ended(command.output().unwrap());
        assert!(code == Some(1) && !error.is_empty(), "{blocks}: {code:?} {error}");
        assert!(restoring_is_refused(&to), "{blocks}: half a store is none");
        let mut command = limited(blocks);
        command.args(["restore", "--from", "-", "--to"]).arg(&streamed);
        let (code, _, error) = feed(command, &stream.stdout);
        assert!(code == Some(1) && !error.is_empty(), "{blocks}: {code:?} {error}");
        let is_empty = fs::read_dir(&streamed).unwrap().count() == 0;
        assert!(is_empty || restoring_is_refused(&streamed), "{blocks}");
        assert_eq!(stage.verify().0, Some(0), "{blocks}: the backup is as it was");
        assert_eq!(stage.restore(&format!("restored-{at}"), &[]).0, Some(0));
        let mut command = sealog();
        command.args(["restore", "--from", "-", "--to"]).arg(&streamed);
        assert_eq!(feed(command, &stream.stdout).0, Some(0));
        assert_eq!((heads(&to), heads(&streamed)), (wanted.clone(), wanted.clone()), "{blocks}");
    }
}

#[test]
fn a_disk_that_fills_up_halfway_fails_a_backup_and_a_restore_and_both_work_once_there_is_room() {
    let Some(disk) = Mounted::new(160) else { return };
    let stage = Stage::new();
    stage.fill(&chains(), 20);
    let (backups, restored, ballast) =
        (disk.at.join("backups"), disk.at.join("restored"), disk.at.join("ballast"));
    let create = || {
        let mut command = sealog();
        command.args(["backup", "create", "--fast", "--data-dir"]).arg(stage.data()).arg(&backups);
        ended(command.output().unwrap())
    };
    let restore = || {
        let mut command = sealog();
        command.args(["restore", "--from"]).arg(&backups).arg("--to").arg(&restored);
        ended(command.output().unwrap())
    };
    disk.fill("ballast", 256 << 10);
    let (code, _, error) = create();
    // By the words of the kernel or, where it was the copy of control data, of SQLite.
    let is_full = error.contains("No space left") || error.contains("disk is full");
    assert!(code == Some(1) && is_full, "{error}");
    assert_eq!(fs::read_dir(backups.join("backups")).unwrap().count(), 0);
    fs::remove_file(&ballast).unwrap();
    let (code, _, error) = create();
    assert_eq!(code, Some(0), "{error}");
    disk.fill("ballast", 256 << 10);
    let (code, _, error) = restore();
    let (needed, free) = room(&error);
    assert!(code == Some(1) && needed > free && free <= 256 << 10, "{error}");
    assert_eq!(fs::read_dir(&restored).unwrap().count(), 0, "the target is as it was");
    fs::remove_file(&ballast).unwrap();
    let (code, _, error) = restore();
    assert_eq!(code, Some(0), "{error}");
    // The figure was enough for what the restore has written.
    let written: u64 = ["", "live", "test"].iter().map(|dir| blocks(&restored.join(dir))).sum();
    assert!(needed >= written, "{needed} {written}");
    assert_eq!(heads(&restored), heads(&stage.data()));
}

/// The bytes that a restore needs, and those that are free, by its own words.
fn room(error: &str) -> (u64, u64) {
    let number = |before: &str| {
        let rest = error.split_once(before).unwrap_or_else(|| panic!("{error}")).1;
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    (number("the restore needs "), number(" bytes, but "))
}

/// What the files of a directory take of the disk.
fn blocks(dir: &Path) -> u64 {
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap());
    files.filter(fs::Metadata::is_file).map(|file| file.blocks() * 512).sum()
}

#[test]
fn a_full_disk_fails_the_backup_and_nothing_else() {
    let stage = Stage::new();
    let server = serve(&stage.data());
    let key = first_key(&stage.data());
    for _ in 0..10 {
        assert_eq!(server.post(&key).0, 202);
    }
    stage.create();
    let listed = stage.backup(&["list", "--json"], false).1;
    let mut command = limited(8);
    command.args(["backup", "create"]).arg(stage.path("other")).arg("--data-dir").arg(stage.data());
    let (code, _, error) = ended(command.output().unwrap());
    assert!(code == Some(1) && !error.is_empty(), "{code:?} {error}");
    assert_eq!(stage.backup(&["list", "--json"], false).1, listed);
    assert_eq!(fs::read_dir(stage.path("other").join("backups")).unwrap().count(), 0);
    assert_eq!(server.post(&key).0, 202);
    assert_eq!(server.get("-", "/readyz").0, 200);
    server.stop();
}

#[test]
fn a_store_on_a_full_disk_is_backed_up_running_and_stopped() {
    let Some(disk) = Mounted::new(160) else { return };
    let (stage, data) = (Stage::new(), disk.at.join("data"));
    let create = |name: &str| {
        let mut command = sealog();
        command.args(["backup", "create", "--fast", "--data-dir"]).arg(&data).arg(stage.path(name));
        ended(command.output().unwrap())
    };
    let verify =
        |name: &str| ended(sealog().args(["backup", "verify"]).arg(stage.path(name)).output().unwrap());
    let server = serve(&data);
    let key = first_key(&data);
    assert_eq!(server.post(&key).0, 202);
    disk.fill("ballast", 0);
    let (code, _, error) = create("running");
    assert_eq!(code, Some(0), "{error}");
    server.stop();
    disk.fill("more", 0);
    let (code, _, error) = create("stopped");
    assert_eq!(code, Some(0), "{error}");
    for name in ["running", "stopped"] {
        let (code, _, error) = verify(name);
        assert_eq!(code, Some(0), "{name}: {error}");
        let left = fs::read_dir(stage.path(name).join("files")).unwrap();
        assert!(left.flatten().all(|file| !file.file_name().to_string_lossy().ends_with(".tmp")), "{name}");
    }
}

#[test]
fn a_backup_that_was_replaced_as_a_whole_is_found_by_a_head_that_was_noted_elsewhere() {
    let (stage, other) = (Stage::new(), Stage::new());
    for stage in [&stage, &other] {
        stage.fill(&chains(), 3);
    }
    let noted = |stage: &Stage| -> Vec<String> {
        let heads = heads(&stage.data()).into_values();
        heads.map(|head| format!("{}:{}", head.chain_seq, head.hash)).collect()
    };
    let expected = noted(&stage);
    for stage in [&stage, &other] {
        stage.fill(&chains(), 2);
        stage.create();
    }
    let expect = |stage: &Stage, heads: &[String]| {
        let flags: Vec<&str> = heads.iter().flat_map(|head| ["--expect", head.as_str()]).collect();
        stage.backup(&[&["verify"], &flags[..]].concat(), false)
    };
    for heads in [expected.clone(), noted(&stage)] {
        let (code, said, error) = expect(&stage, &heads);
        assert_eq!(code, Some(0), "{said}{error}");
    }
    // Whole by itself, and not the backup of this store.
    assert_eq!(expect(&other, &[]).0, Some(0));
    let (code, said, _) = expect(&other, &expected[..1]);
    assert_eq!(code, Some(10), "{said}");
    assert!(said.contains(&format!("MISSING {}", expected[0])) && said.contains("NOT complete"), "{said}");
    let (code, _, error) = expect(&stage, &["7:abc".to_owned()]);
    assert!(code == Some(2) && error.contains("SEQ:HASH"), "{error}");
}

#[test]
fn a_signature_over_the_manifest_is_checked_by_the_operators_key() {
    let stage = Stage::new();
    stage.fill(&chains(), 1);
    let id = stage.create()["id"].as_str().unwrap().to_owned();
    let manifest = stage.backups().join("backups").join(format!("{id}.json"));
    let path = |name: &str| stage.path(name).to_str().unwrap().to_owned();
    let openssl = |args: &[&str]| {
        let output = Command::new("openssl").args(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    for name in ["own", "other"] {
        let (key, public) = (path(&format!("{name}.key")), path(&format!("{name}.pub")));
        openssl(&["genpkey", "-algorithm", "ed25519", "-out", &key]);
        openssl(&["pkey", "-in", &key, "-pubout", "-out", &public]);
    }
    let (signature, signed) = (path("signature"), manifest.to_str().unwrap());
    let own = path("own.key");
    openssl(&["pkeyutl", "-sign", "-rawin", "-inkey", &own, "-in", signed, "-out", &signature]);
    let verify =
        |key: &str| stage.backup(&["verify", "--signature", &signature, "--public-key", &path(key)], false);
    let (code, said, error) = verify("own.pub");
    assert_eq!(code, Some(0), "{said}{error}");
    let (code, _, error) = verify("other.pub");
    assert!(code == Some(10) && error.contains("the signature does not match this manifest"), "{error}");
    let (code, _, error) = verify("own.key");
    assert!(code == Some(2) && error.contains("must be an Ed25519 public key"), "{error}");
    // Another manifest that is whole by itself.
    fs::write(&manifest, [fs::read(&manifest).unwrap(), b"\n".to_vec()].concat()).unwrap();
    assert_eq!(stage.verify().0, Some(0));
    assert_eq!(verify("own.pub").0, Some(10));
}
