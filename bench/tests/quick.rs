//! A tiny run of each benchmark, so that none of them rots between the days on which someone needs its numbers.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_tiny_run_of_the_store_benchmark_reports_every_row() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-quick");
    let json = dir.join("report.json");
    std::fs::create_dir_all(&dir).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sealog-bench"))
        .args(["store", "--quick", "--events", "3000", "--seconds", "0.03", "--dir"])
        .arg(&dir)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "", "no progress line where there is no terminal");

    let report: Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    let sections = report["sections"].as_array().unwrap();
    let rows: Vec<usize> = sections.iter().map(|section| section["rows"].as_array().unwrap().len()).collect();
    assert_eq!(rows, [6, 3, 4, 26, 7]);
    for row in sections.iter().flat_map(|section| section["rows"].as_array().unwrap()) {
        let what = row["what"].as_str().unwrap();
        assert!(stdout.contains(what), "{what} is not in the table");
        let ratio = &row["ratio"]["median"];
        assert!(ratio.is_null() || ratio.as_f64().unwrap() > 0.0, "{what}: {ratio}");
    }
    for name in ["machine", "file system", "commit", "command"] {
        assert!(stdout.contains(name), "{name} is not in the header");
    }
    let left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["report.json"], "the data is removed");
}
