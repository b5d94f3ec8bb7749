//! A store that is opened to be looked at: everything is shown and found as at a start, and nothing is
//! changed.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sealog_core::verify::Verdict;
use sealog_store::embedded::{EmbeddedStore, Finding, OpenError, Options};
use sealog_store::{Store, StoreError};
use sealog_testing::sim::{DIR, Op};
use sealog_testing::*;

use super::stage::*;

/// All files, and what is in them.
fn files(stage: &Stage) -> BTreeMap<PathBuf, Vec<u8>> {
    let dirs = ["", "live", "test"].map(|name| Path::new(DIR).join(name));
    let paths = dirs.iter().flat_map(|dir| {
        stage.disk.file_names(dir).into_iter().map(move |name| dir.join(name)).collect::<Vec<_>>()
    });
    paths.filter_map(|path| Some((path.clone(), stage.disk.content(&path)?))).collect()
}

fn try_look(stage: &Stage) -> Result<EmbeddedStore, OpenError> {
    stage.try_open(&Options { read_only: true, ..stage.options() })
}

/// Looks, and holds it against the store that nothing is asked of the disk that could change it.
#[track_caller]
fn look<T>(stage: &Stage, act: impl FnOnce(&EmbeddedStore) -> T) -> T {
    let before = files(stage);
    let changes: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&changes);
    stage.disk.watch(move |call| {
        if !matches!(call.op, Op::Open | Op::List | Op::FreeBytes | Op::Length | Op::Read) {
            seen.lock().unwrap().push(format!("{:?} {}", call.op, call.path.display()));
        }
        Ok(())
    });
    let store = try_look(stage).unwrap();
    let found = act(&store);
    drop(store);
    stage.disk.unwatch();
    assert_eq!(*changes.lock().unwrap(), Vec::<String>::new());
    assert_eq!(files(stage), before);
    found
}

/// Of all chains, as `sealog verify --data` asks for them.
fn audited(store: &EmbeddedStore) -> Result<Vec<Verdict>, StoreError> {
    let mut chains: Vec<_> = wait(store.heads())?.into_iter().map(|(chain, _)| chain).collect();
    for (chain, _) in wait(store.losses())? {
        if !chains.contains(&chain) {
            chains.push(chain);
        }
    }
    wait(store.audit(chains, Arc::default()))
}

/// Behind the last frame of the first segment, half of another one; where it begins.
fn tear(stage: &Stage) -> u64 {
    let last = *stage.frames(1).last().unwrap();
    let mut bytes = stage.read(&log(1));
    let (end, half) = (last.at + last.length, b"SLFR\x40\x01\x00\x00half a frame");
    bytes[end..end + half.len()].copy_from_slice(half);
    stage.disk.put(&log(1), &bytes);
    end as u64
}

#[test]
fn everything_is_shown_and_nothing_is_changed_whether_the_store_was_stopped_or_killed() {
    for is_killed in [false, true] {
        for is_bare in [false, true] {
            let stage = Stage::new();
            let store = stage.open();
            let shown = append_with_keys(&stage, &store, 20);
            let stage = if is_killed {
                stage.killed()
            } else {
                drop(store);
                stage
            };
            if is_bare {
                // What is derived can be missing, and is not made.
                for path in files(&stage).into_keys() {
                    let name = path.file_name().unwrap().to_str().unwrap();
                    if name == "index.salt" || name.ends_with(".idx") || name.ends_with(".cnt") {
                        stage.disk.delete(&path);
                    }
                }
            }
            // Nothing was changed, so the second look finds what the first one did.
            for _ in 0..2 {
                look(&stage, |store| {
                    assert_eq!(findings(store), [], "killed: {is_killed}");
                    assert_eq!(everything(store, live()), shown.events);
                    assert_eq!(wait(store.heads()).unwrap(), shown.heads);
                    assert_valid(store, live(), 20);
                    assert!(audited(store).unwrap().iter().all(Verdict::valid));
                    let refused = try_append(store, live(), vec![login("x")]);
                    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
                    assert_eq!(store.ready(), Err(refused.unwrap_err()));
                    assert_eq!(store.failure(), None, "nothing has failed");
                });
            }
            let store = stage.open();
            append(&store, live(), vec![login("next")]);
            assert_valid(&store, live(), 21);
        }
    }
}

#[test]
fn a_torn_tail_is_named_and_left_and_is_neither_damage_nor_a_loss() {
    let stage = Stage::new();
    let store = stage.open();
    let shown = append_with_keys(&stage, &store, 5);
    let stage = stage.killed();
    let torn = Finding::TornTail { segment: 1, offset: tear(&stage) };
    assert!(torn.to_string().contains("unfinished write, never acknowledged"), "{torn}");
    for _ in 0..2 {
        look(&stage, |store| {
            assert_eq!(findings(store), std::slice::from_ref(&torn));
            assert_eq!(everything(store, live()), shown.events);
            assert_valid(store, live(), 5);
            assert!(audited(store).unwrap().iter().all(Verdict::valid));
        });
    }
    // The next start finds it as well, and it counts no more.
    let store = stage.open();
    assert_eq!(findings(&store), [torn]);
    drop(store);
    look(&stage, |store| assert_eq!((findings(store), everything(store, live())), (vec![], shown.events)));
}

#[test]
fn a_look_finds_what_a_start_would_find() {
    type Harm = fn(&Stage);
    let harms: [(&str, Harm); 7] = [
        ("an event is damaged", |stage| stage.flip(&log(1), stage.frames(1)[1].at + IN_TEXT)),
        ("a header is damaged", |stage| stage.flip(&log(1), stage.frames(1)[1].at + IN_HEADER)),
        ("the last event is damaged", |stage| {
            stage.flip(&log(1), stage.frames(1).last().unwrap().at + IN_TEXT);
        }),
        ("the segment's header is damaged", |stage| stage.flip(&log(1), 20)),
        ("the segment is gone", |stage| stage.disk.delete(&log(1))),
        ("the mark is gone", |stage| stage.disk.delete(&live_file("mark"))),
        ("the end is cut off", |stage| {
            let bytes = stage.read(&log(1));
            stage.disk.put(&log(1), &bytes[..stage.frames(1)[2].at]);
        }),
    ];
    for (what, harm) in harms {
        let (stage, ()) = killed_when_marked(|store| {
            for n in 0..6 {
                append(store, live(), vec![login(&format!("u{n}"))]);
            }
        });
        harm(&stage);
        let found = look(&stage, |store| (findings(store), audited(store)));
        let store = stage.open();
        assert_eq!(found, (findings(&store), audited(&store)), "{what}");
        assert_ne!(found.0, [], "{what}");
    }
}

#[test]
fn an_empty_store_is_looked_at_and_where_there_is_none_none_is_made() {
    let stage = Stage::new();
    let missing = try_look(&stage);
    let is_missing = |error: &OpenError| matches!(error, OpenError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound);
    assert!(missing.as_ref().is_err_and(is_missing), "{missing:?}");
    assert_eq!(files(&stage).len(), 0);
    drop(stage.open());
    look(&stage, |store| assert_eq!((findings(store), audited(store)), (vec![], Ok(vec![]))));
}
