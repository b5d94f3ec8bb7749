//! Every command of `docs/command-line.md` and of `README.md` runs as it stands there.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use sealog_testing::examples;
use support::stage::*;
use support::*;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Language and text of each block between fences.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push((language.to_owned(), body.join("\n") + "\n"));
        }
    }
    blocks
}

/// Runs a text as a person at a shell does who has the program in the path.
fn shell(stage: &Stage, text: &str) {
    let bin = Path::new(SEALOG).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = clean(Command::new("bash"));
    command
        .args(["-euo", "pipefail", "-c", text])
        .current_dir(&stage.home)
        .env("PATH", path)
        .env("HOME", &stage.home);
    command.env("SEALOG_URL", format!("http://{}", stage.address)).env("SEALOG_API_KEY", &stage.key);
    command
        .env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN)
        .env("SEALOG_DATA_DIR", &stage.data)
        .env("SEALOG_LISTEN", &stage.address);
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    let (code, said, noted) = ended(command.output().unwrap());
    assert_eq!(code, Some(0), "{text}\n{said}\n{noted}");
}

#[test]
fn the_commands_of_the_page_about_the_command_line_run_as_they_stand_there() {
    let stage = Stage::new();
    let text = std::fs::read_to_string(root().join("docs/command-line.md")).unwrap();
    let run: Vec<String> =
        blocks(&text).into_iter().filter(|(language, _)| language == "sh").map(|(_, text)| text).collect();
    assert!(run.len() >= 8, "the blocks are found");
    for block in run {
        shell(&stage, &block);
    }
    // What they have left behind is what the page says.
    let followed = std::fs::read_to_string(stage.home.join("audit.ndjson")).unwrap();
    assert_eq!(followed.lines().count(), 7);
    assert!(stage.home.join("man1/sealog-follow.1").exists());
}

#[test]
fn the_page_about_the_command_line_names_every_command() {
    let text = std::fs::read_to_string(root().join("docs/command-line.md")).unwrap();
    let help = String::from_utf8(sealog().arg("--help").output().unwrap().stdout).unwrap();
    let commands =
        help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names: Vec<&str> =
        commands.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect();
    assert!(names.contains(&"serve") && names.len() > 20, "{names:?}");
    for name in names {
        assert!(text.contains(&format!("`sealog {name}`")), "{name} is not in docs/command-line.md");
        let help = sealog().args([name, "--help"]).output().unwrap();
        assert!(help.status.success() && help.stdout.len() > 100, "{name} --help");
    }
}

/// What of the README is run elsewhere: building, CI itself, and a server in the foreground.
const ELSEWHERE: [&str; 3] = ["./scripts/run\n", "cargo build --release --locked\n", "./scripts/test\n"];

#[test]
fn the_commands_of_the_readme_run_as_they_stand_there() {
    let mut stage = Stage::new();
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
    let blocks: Vec<String> = blocks(&text).into_iter().map(|(_, text)| text).collect();
    for elsewhere in ELSEWHERE {
        assert!(blocks.iter().any(|block| block == elsewhere), "{elsewhere:?} is not in the README any more");
    }
    let (root, bin) = (root(), Path::new(SEALOG).parent().unwrap().to_owned());
    if !bin.join("sealog-verify").exists() {
        // Of another package: a run of this test alone has not built it.
        let (target, _) = examples::built();
        let mut build = examples::cargo();
        build.args(["build", "--quiet", "--locked", "--workspace", "--bin", "sealog-verify", "--target-dir"]);
        assert!(build.arg(target).status().unwrap().success());
    }
    let data = stage.data.clone();
    let mut ran = 0;
    for block in blocks.iter().filter(|block| !ELSEWHERE.contains(&block.as_str())) {
        if block.contains("export.ndjson") && ran == 1 {
            shell(&stage, "sealog export --output export.ndjson");
        }
        if block.contains("--data DIR") {
            // Of a store that no server has open.
            stage.stop();
        }
        let project = if block.contains("PROJECT_ID") {
            project_of(&stage.home.join("export.ndjson"))
        } else {
            String::new()
        };
        let block = block
            .replace("http://127.0.0.1:8080", &format!("http://{}", stage.address))
            .replace("at_live_...", &stage.key)
            .replace("target/release/", &format!("{}/", bin.display()))
            .replace("tools/", &format!("{}/tools/", root.display()))
            .replace("--data DIR", &format!("--data {}", data.display()))
            .replace("PROJECT_ID > export.ndjson", &format!("{project} > again.ndjson"));
        shell(&stage, &block);
        ran += 1;
    }
    assert!(ran >= 3, "{ran}");
    let read = |name: &str| std::fs::read_to_string(stage.home.join(name)).unwrap();
    assert_eq!(read("again.ndjson").lines().count(), read("export.ndjson").lines().count());
}

fn project_of(export: &Path) -> String {
    let text = std::fs::read_to_string(export).unwrap();
    let event: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    event["project_id"].as_str().unwrap().to_owned()
}
