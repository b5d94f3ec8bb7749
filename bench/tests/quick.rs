//! A tiny run of each benchmark, so that none of them rots between the days on which someone needs its
//! numbers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Where the server is; `cargo test` builds it with the whole workspace, and not for this crate alone.
fn sealog() -> std::path::PathBuf {
    let path = Path::new(env!("CARGO_BIN_EXE_sealog-bench")).with_file_name("sealog");
    if !path.exists() {
        let built = Command::new(env!("CARGO"))
            .args(["build", "-q", "--locked", "--workspace", "--bin", "sealog"])
            .status();
        assert!(built.unwrap().success());
    }
    path
}

/// Runs a benchmark in a directory of its own, which must be empty afterwards but for its report.
fn report(name: &str, arguments: &[&str]) -> (Value, String) {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let json = dir.join("report.json");
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sealog-bench"))
        .args(arguments)
        .arg("--dir")
        .arg(&dir)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "", "no progress line where there is no terminal");
    let report = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["report.json"], "the data is removed");
    (report, String::from_utf8(output.stdout).unwrap())
}

fn rows(report: &Value) -> Vec<&Value> {
    let sections = report["sections"].as_array().unwrap();
    sections.iter().flat_map(|section| section["rows"].as_array().unwrap()).collect()
}

#[test]
fn a_tiny_run_against_the_real_server_has_no_wrong_answer() {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/smoke.toml");
    let sealog = sealog();
    let arguments =
        ["http", "--quick", "--seconds", "0.1", "--workload", workload.to_str().unwrap(), "--sealog"];
    let (report, stdout) = report("http-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    let rows = rows(&report);
    // Beside the bare server two, the sync three and the quiet neighbour two; four without TLS; five alone;
    // one for the memory of each of three servers.
    assert_eq!(rows.len(), 2 + 3 + 2 + 4 + 5 + 3, "{stdout}");
    for row in rows {
        let doubt = row["doubt"].as_str().unwrap_or_default();
        assert!(!doubt.contains("wrong answers") && !doubt.contains("not served"), "{doubt}");
        for repeat in row["values"]["repeats"].as_array().into_iter().flatten() {
            assert!(repeat["sealog"]["requests"].as_u64().unwrap() > 0, "{row}");
        }
    }
}

#[test]
fn a_tiny_run_on_postgresql_has_no_wrong_answer_and_a_number_for_each_side() {
    let workload = Path::new(env!("CARGO_MANIFEST_DIR")).join("workloads/postgres.toml");
    let sealog = sealog();
    let arguments =
        ["http", "--quick", "--seconds", "0.3", "--workload", workload.to_str().unwrap(), "--sealog"];
    let run = || report("postgres-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    // A disk that stands still for longer than a measurement of a tenth of a second leaves no number, and
    // says nothing of the benchmark.
    let all_have_numbers = |report: &Value| {
        let has_number =
            |repeat: &Value, side: &str| repeat[side]["requests"].as_u64().is_some_and(|count| count > 0);
        rows(report).iter().all(|row| {
            let repeats = row["values"]["repeats"].as_array().unwrap();
            repeats.iter().all(|repeat| has_number(repeat, "sealog") && has_number(repeat, "beside"))
        })
    };
    let mut attempts = (0..3).map(|_| run());
    let (report, stdout) =
        attempts.find(|(report, _)| all_have_numbers(report)).expect("a number for each side");
    let rows = rows(&report);
    assert_eq!(rows.len(), 6, "{stdout}");
    for row in rows {
        for repeat in row["values"]["repeats"].as_array().unwrap() {
            assert_eq!(repeat["sealog"]["errors"], Value::Null, "{row}");
        }
    }
}

#[test]
fn a_tiny_store_that_grows_keeps_what_was_acknowledged_when_it_is_killed() {
    let sealog = sealog();
    let arguments =
        ["growth", "--quick", "--seconds", "0.12", "--events", "2000", "--chains", "3", "--sealog"];
    let (report, stdout) = report("growth-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    assert_eq!(rows(&report).len(), 4 * (2 + 25 + 1 + 1 + 2 + 1), "{stdout}");
}

#[test]
fn a_tiny_run_of_the_pages_follows_links_downloads_an_export_and_searches_for_a_case() {
    let sealog = sealog();
    let arguments = ["pages", "--quick", "--seconds", "0.12", "--events", "2000", "--sealog"];
    let (report, stdout) = report("pages-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    for page in ["/app/p/{}/live/events`", "/app/p/{}/live/events/{}`", "/app/o/{}/keys`", "/app/account`"] {
        assert_eq!(stdout.matches(page).count(), 2, "{page}: {stdout}");
    }
    let beside = rows(&report).into_iter().filter(|row| row["what"].as_str().unwrap().contains(" beside "));
    assert_eq!(beside.count(), 2 * 3, "{stdout}");
}

#[test]
fn a_tiny_run_of_the_store_benchmark_reports_every_row() {
    let arguments = ["store", "--quick", "--events", "3000", "--seconds", "0.03"];
    let (report, stdout) = report("bench-quick", &arguments);
    let sections = report["sections"].as_array().unwrap();
    let counts: Vec<usize> =
        sections.iter().map(|section| section["rows"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [6, 3, 4, 28, 7]);
    for row in rows(&report) {
        let what = row["what"].as_str().unwrap();
        assert!(stdout.contains(what), "{what} is not in the table");
        let ratio = &row["ratio"]["median"];
        assert!(ratio.is_null() || ratio.as_f64().unwrap() > 0.0, "{what}: {ratio}");
    }
    for name in ["machine", "file system", "commit", "command"] {
        assert!(stdout.contains(name), "{name} is not in the header");
    }
}

#[test]
fn a_tiny_run_of_the_command_line_measures_each_command_alone_and_beside_ingest() {
    let sealog = sealog();
    let arguments = ["cli", "--quick", "--seconds", "0.1", "--sealog", sealog.to_str().unwrap()];
    let (report, stdout) = report("cli-quick", &arguments);
    let sections = report["sections"].as_array().unwrap();
    let rows = |at: usize| sections[at]["rows"].as_array().unwrap();
    assert_eq!((rows(0).len(), rows(1).len()), (3, 2), "{stdout}");
    for row in rows(1) {
        assert!(row["target"]["value"].as_f64().unwrap() > 0.0, "{row}");
        assert_eq!(row["values"]["repeats"][0]["ingest"]["errors"], Value::Null, "{row}");
    }
}

#[test]
fn a_tiny_run_of_the_signed_log_publishes_every_event_and_has_a_number_in_each_row() {
    let sealog = sealog();
    let arguments =
        ["trust", "--quick", "--seconds", "0.12", "--events", "2000", "--chains", "3", "--sealog"];
    let (report, stdout) = report("trust-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    let sections = report["sections"].as_array().unwrap();
    let counts: Vec<usize> =
        sections.iter().map(|section| section["rows"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [4, 5, 3], "{stdout}");
    for row in rows(&report) {
        assert!(row["target"].is_null() || row["target"]["value"].is_number(), "{row}");
        for repeat in row["values"]["repeats"].as_array().into_iter().flatten() {
            for (_, side) in repeat.as_object().unwrap() {
                assert_eq!(side["errors"], Value::Null, "{row}");
            }
        }
    }
}

#[test]
fn a_tiny_run_of_backups_restores_the_store_from_a_backup_and_from_a_replica() {
    let sealog = sealog();
    let arguments = ["backup", "--quick", "--seconds", "0.1", "--events", "2000", "--sealog"];
    let (report, stdout) = report("backup-quick", &[&arguments[..], &[sealog.to_str().unwrap()]].concat());
    let sections = report["sections"].as_array().unwrap();
    let counts: Vec<usize> =
        sections.iter().map(|section| section["rows"].as_array().unwrap().len()).collect();
    assert_eq!(counts, [2, 3, 5], "{stdout}");
}
