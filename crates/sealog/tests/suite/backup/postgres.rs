//! A database that is restored to an earlier point by its own tools: the steps of docs/operating-postgres.md,
//! "Backup and point-in-time recovery".

use std::path::Path;

use sealog_testing::eventually;
use sealog_testing::postgres::{Cluster, cluster};

use super::rollback::fill_behind_the_mark;
use super::{Ended, Stage, chains, ended};
use crate::support::{Running, first_key, sealog, serving, start};

fn serve(url: &str, data: &Path) -> Running {
    let mut command = serving(sealog(), data);
    command.env("SEALOG_STORE", url);
    start(command)
}

fn run(args: &[&str], dir: &Path, url: &str) -> Ended {
    ended(sealog().args(args).arg(dir).env("SEALOG_STORE", url).output().unwrap())
}

#[test]
fn point_in_time_recovery_is_checked_a_rollback_is_refused_and_accepted_it_is_recorded() {
    let stage = Stage::new();
    let primary = Cluster::archiving();
    primary.sql("postgres", "CREATE DATABASE events");
    let url = primary.url("events");
    let server = serve(&url, &stage.data());
    let key = first_key(&stage.data());
    server.await_drained();
    let send = |server: &Running| (0..3).for_each(|_| assert_eq!(server.post(&key).0, 202));
    send(&server);
    primary.base_backup();
    send(&server);
    let heads = stage.path("heads");
    let (code, said, error) = run(&["backup", "heads"], &heads, &url);
    assert!(code == Some(0) && said.contains("2 chains"), "{said} {error}");
    primary.sql("events", "SELECT pg_create_restore_point('before_the_accident')");
    send(&server);
    assert_eq!(run(&["backup", "heads"], &heads, &url).0, Some(0));
    server.stop();
    primary.sql("events", "SELECT pg_switch_wal()");
    let archived = "SELECT last_archived_wal >= (SELECT pg_walfile_name(pg_current_wal_lsn() - 1)) FROM pg_stat_archiver";
    eventually("the log is archived", || primary.sql("events", archived) == "t");
    primary.stop("fast");

    // To the end: everything is there.
    let whole = primary.recovered(None);
    let (code, said, error) = run(&["restore", "check", "--heads"], &heads, &whole.url("events"));
    assert!(code == Some(0) && said.contains("every event that is known"), "{said} {error}");
    drop(whole);

    // To the moment before: three acknowledged events are missing.
    let earlier = primary.recovered(Some("before_the_accident"));
    let url = earlier.url("events");
    let check = ["restore", "check", "--json", "--heads"];
    let (code, said, error) = run(&check, &heads, &url);
    assert!(code == Some(1) && said.contains("events 7 to 9 would be lost"), "{said} {error}");
    let (code, said, _) = run(&["restore", "check", "--old-data"], &stage.data(), &url);
    assert!(code == Some(1) && said.contains("events 7 to 9"), "{said}");
    let server = serve(&url, &stage.path("again"));
    assert_eq!(server.post(&key).0, 500, "nothing hides the loss");
    server.stop();
    let accept = ["restore", "check", "--accept-rollback", "--reason", "the accident of 2 March", "--heads"];
    let (code, said, error) = run(&accept, &heads, &url);
    assert_eq!(code, Some(0), "{said} {error}");
    let server = serve(&url, &stage.path("again"));
    server.await_drained();
    assert_eq!(server.post(&key).0, 202);
    let (_, body) = server.get(&key, "/v1/events/verify");
    assert!(body.contains(r#""valid":true,"checked":8"#), "{body}");
    server.stop();
    let recorded =
        earlier.sql("events", "SELECT metadata FROM sealog.events WHERE action = 'sealog.store_restored'");
    assert_eq!(recorded.lines().count(), 1, "{recorded}");
    assert!(
        recorded.contains("the accident of 2 March") && recorded.contains(r#""lost_to":9"#),
        "{recorded}"
    );
    // Accepted once, it is over: the old servers' marks and the notes prove nothing more.
    for (flag, dir) in [("--old-data", stage.path("again")), ("--heads", heads)] {
        let (code, said, error) = run(&["restore", "check", flag], &dir, &url);
        assert_eq!(code, Some(0), "{flag} {said} {error}");
    }
}

#[test]
fn restore_check_reads_the_old_log_and_not_only_its_mark() {
    let stage = Stage::new();
    stage.fill(&chains()[..1], 1);
    fill_behind_the_mark(&stage, &chains()[..1]);
    let database = cluster().database();
    let (code, said, error) = run(&["restore", "check", "--old-data"], &stage.data(), &database.url());
    assert!(code == Some(1) && said.contains("events 1 to 100 would be lost"), "{said} {error}");
}
