//! Who finds out what, attack by attack, on both stores: the table of SECURITY.md is what comes out here.
//!
//! The attacker is the operator (`home`): he has the host, the files, the database and the real keys. What
//! he does is in `attacks`. The detectors are the program itself, on what he has left of the store, and the
//! three verifiers, on what that program gives them.

mod attacks;
mod home;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use sealog_testing::examples;
use sealog_trust::policy::Policy;
use sealog_trust::verdict::{Consistency, Evidence, Kept, Proof, STEPS, Step, Trial, policy_of_keys};

use crate::support::*;
use attacks::{ATTACKS, Attack, Base};

const STORES: [&str; 2] = ["embedded", "postgresql"];

/// What an auditor has, by names of files.
type Files = BTreeMap<String, String>;

/// What came of an attack.
struct Shown {
    /// Whether `GET /v1/events/verify` reports it, and whether `GET /tlog/v1/chain/verify` does.
    by_server: [bool; 2],
    files: Files,
}

/// `GET /v1/events/verify`, `GET /tlog/v1/chain/verify`, a verifier with an export, and one with a kept
/// checkpoint and what the server gives for it today.
type Cells = [bool; 4];

/// The events of an export alone. An auditor has the vkey from elsewhere.
const EXPORT: &str = "events.ndjson";
const KEPT: &str = "kept";
const POLICY: &str = "policy";

/// The arguments of a verifier, without the events.
fn arguments(files: &Files, vkey: &str, with_proofs: bool) -> Vec<String> {
    let mut arguments = match files.contains_key(POLICY) && with_proofs {
        true => vec!["--policy".into(), POLICY.into()],
        false => vec!["--key".into(), vkey.into()],
    };
    for name in files.keys().filter(|_| with_proofs) {
        let flag = match &**name {
            KEPT => "--checkpoint",
            name if name.ends_with(".tlog-proof") => "--proof",
            name if name.ends_with(".json") => "--consistency",
            _ => continue,
        };
        arguments.extend([flag.to_owned(), name.clone()]);
    }
    arguments
}

/// The three programs of an auditor. What they read looks the same whichever store it comes from, so of the
/// second store the other two read it only when the table is written anew (`just matrix`).
fn programs(store: &str) -> Vec<Command> {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools").canonicalize().unwrap();
    let (mut python, mut node) = (Command::new("python3"), Command::new("node"));
    python.arg(tools.join("sealog_verify.py"));
    node.arg(tools.join("sealog_verify.mjs"));
    let mut programs = vec![Command::new(examples::program("sealog-verify")), python, node];
    if store != STORES[0] && !is_blessed() {
        programs.truncate(1);
    }
    programs
}

/// Whether the programs report it; they agree, and say in words what they could not show.
fn is_found(name: &str, base: &Base, files: &Files, with_proofs: bool) -> bool {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let programs = programs(base.store).into_iter();
    let said = programs.map(|mut program| {
        program.args(arguments(files, &base.vkey, with_proofs)).arg(EXPORT).current_dir(directory.path());
        let (code, said, error) = ended(program.output().unwrap());
        assert!(matches!(code, Some(0 | 10)), "{name}: {said}{error}");
        (code, said)
    });
    let said: Vec<_> = said.collect();
    assert!(said.windows(2).all(|two| two[0] == two[1]), "{name}: {said:#?}");
    let (code, said) = &said[0];
    if std::env::var_os("SEALOG_SHOW").is_some() {
        println!("---- {name}, {}\n{said}", if with_proofs { "C" } else { "E" });
    }
    for line in if with_proofs { NOT_SHOWN_BY_CHECKPOINT } else { NOT_SHOWN_BY_EXPORT } {
        let is_asked = !files.contains_key(POLICY) || !with_proofs;
        assert!(*code == Some(10) || !is_asked || said.contains(line), "{name}: {line} is not in\n{said}");
    }
    *code == Some(10)
}

const NOT_SHOWN_BY_EXPORT: &[&str] = &[
    "That the events are in the log: no proof was given",
    "That the log was not rewritten or rolled back: no checkpoint that was kept earlier was given",
    "Fields outside the hash (",
];
const NOT_SHOWN_BY_CHECKPOINT: &[&str] = &[
    "That there is no second history: no witness is asked for, so the operator could have signed another one.",
];

/// The same by the library, with some of the steps.
fn is_found_by(files: &Files, vkey: &str, with_proofs: bool, steps: &[Step]) -> bool {
    let mut evidence =
        Evidence { policy: Some(policy_of_keys(&[vkey.into()]).unwrap()), ..Evidence::default() };
    for (name, text) in files.iter().filter(|_| with_proofs) {
        let bytes = text.as_bytes();
        match &**name {
            KEPT => evidence.kept.push((name.clone(), Kept::parse(bytes).unwrap())),
            POLICY => evidence.policy = Some(Policy::parse(bytes).unwrap()),
            path if path.ends_with(".tlog-proof") => {
                evidence.proofs.push((name.clone(), Proof::parse(bytes).unwrap()));
            }
            path if path.ends_with(".json") => {
                evidence.consistency.push((name.clone(), Consistency::parse(bytes).unwrap()));
            }
            _ => {}
        }
    }
    let mut trial = Trial::new(evidence, Some(Vec::new()));
    files[EXPORT].lines().for_each(|event| trial.event(event).unwrap());
    !trial.judge_by(steps).faults.is_empty()
}

/// All attacks on one store, several at a time: a server publishes once a second.
fn performed(base: &Base, dir: &Path) -> Vec<Shown> {
    let next = AtomicUsize::new(0);
    let mut shown: Vec<(usize, Shown)> = std::thread::scope(|scope| {
        let working: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut done = Vec::new();
                    loop {
                        let at = next.fetch_add(1, Ordering::SeqCst);
                        let Some(attack) = ATTACKS.get(at) else { return done };
                        done.push((at, (attack.perform)(base, &dir.join(at.to_string()))));
                    }
                })
            })
            .collect();
        working.into_iter().flat_map(|working| working.join().unwrap()).collect()
    });
    shown.sort_by_key(|(at, _)| *at);
    shown.into_iter().map(|(_, shown)| shown).collect()
}

fn sign(is_found: bool) -> &'static str {
    if is_found { "✔" } else { "–" }
}

fn rendered(cells: &[Cells]) -> String {
    let mut table = "| | Attack | V | T | E | C |\n|---|---|---|---|---|---|\n".to_owned();
    for (attack, cells) in ATTACKS.iter().zip(cells) {
        let _ = writeln!(table, "| {} | {} | {} |", attack.id, attack.what, cells.map(sign).join(" | "));
    }
    table
}

fn is_blessed() -> bool {
    std::env::var_os("SEALOG_BLESS").is_some()
}

const BEGIN: &str = "<!-- matrix -->\n";
const END: &str = "<!-- end of the matrix -->";

/// The table is the one of SECURITY.md, or becomes it.
fn compare_or_write(table: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../SECURITY.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("SECURITY.md has a place for it");
    let (there, after) = rest.split_once(END).expect("it ends");
    if is_blessed() {
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}\n{END}{after}")).unwrap();
        return;
    }
    assert_eq!(there.trim(), table.trim(), "SEALOG_BLESS=1 writes it anew");
}

#[test]
fn every_attack_is_found_by_whom_security_md_says_on_both_stores_and_by_no_verifier_that_skips_a_step() {
    let dir = tempfile::tempdir().unwrap();
    let stores: Vec<(Base, Vec<Shown>)> = std::thread::scope(|scope| {
        let working = STORES.map(|store| {
            let dir = dir.path().join(store);
            scope.spawn(move || {
                std::fs::create_dir(&dir).unwrap();
                let base = Base::of(store, &dir.join("base"));
                let shown = performed(&base, &dir);
                (base, shown)
            })
        });
        working.map(|working| working.join().unwrap()).into()
    });
    let (mut tables, mut wrong) = (Vec::new(), Vec::new());
    for (base, shown) in &stores {
        let mut cells: Vec<Cells> = Vec::new();
        for (attack, Shown { by_server: [v, t], files }) in ATTACKS.iter().zip(shown) {
            let name = format!("{} {} ({})", attack.id, attack.what, base.store);
            let by = |with_proofs| is_found(&name, base, files, with_proofs);
            cells.push([*v, *t, by(false), by(true)]);
            let found = cells.last().unwrap().map(sign).join(" ");
            if found != attack.cells {
                wrong.push(format!("{name}: {found}, and not {}", attack.cells));
            }
        }
        tables.push(rendered(&cells));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(tables[0], tables[1], "the stores differ");
    compare_or_write(&tables[0]);

    // A verifier that skips a step misses an attack that it has to find.
    let missed_without = |skipped: &str| -> Option<&str> {
        let steps: Vec<Step> = STEPS.into_iter().filter(|step| step.name != skipped).collect();
        let tried =
            stores.iter().flat_map(|(base, shown)| ATTACKS.iter().zip(shown).map(move |row| (base, row)));
        let is_missed = |(base, (attack, Shown { files, .. })): &(&Base, (&Attack, &Shown))| {
            let found = [false, true].map(|with_proofs| is_found_by(files, &base.vkey, with_proofs, &steps));
            let [e, c] = found.map(sign);
            !attack.cells.ends_with(&format!("{e} {c}"))
        };
        tried.into_iter().find(is_missed).map(|(_, (attack, _))| attack.id)
    };
    assert_eq!(missed_without("no step"), None);
    let mut caught = 0;
    for Step { name, .. } in STEPS {
        let missed = missed_without(name);
        assert!(missed.is_some(), "no attack needs the step `{name}`");
        caught += 1;
        println!("without `{name}`: {missed:?}");
    }
    println!("{caught} of {} verifiers that skip a step are caught", STEPS.len());
}
