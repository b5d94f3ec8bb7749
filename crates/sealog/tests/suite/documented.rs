//! Every example of `README.md` and `docs/` is run or read by a test: those of the command line, of operating
//! and of the README here, those of the pages that people begin with in `docs.rs`, and configurations in
//! `docs/snippets.rs`.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::docs::run_page;
use crate::support::stage::*;
use crate::support::*;
use crate::trust::{rolled_back, serve_files};
use sealog_testing::examples;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A block between fences.
#[derive(Debug)]
struct Block {
    /// The heading above it.
    section: String,
    language: String,
    text: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let (mut blocks, mut section) = (Vec::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(language) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            let (section, language) = (section.clone(), language.to_owned());
            blocks.push(Block { section, language, text: body.join("\n") + "\n" });
        } else if line.starts_with('#') {
            line.clone_into(&mut section);
        }
    }
    blocks
}

/// The blocks of a page of `docs/` in a language.
fn of_page(page: &str, language: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
    blocks(&text).into_iter().filter(|block| block.language == language).collect()
}

/// A shell with the program in its path, for this text.
fn bash(text: &str) -> Command {
    let bin = Path::new(SEALOG).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut command = clean(Command::new("bash"));
    command.args(["-euo", "pipefail", "-c", text]).env("PATH", path);
    command
}

/// Runs what a test needs beforehand as a person at a shell does whose address and key are set.
fn shell(stage: &Stage, text: &str) {
    let mut command = bash(text);
    command.current_dir(&stage.home).env("HOME", &stage.home);
    command.env("SEALOG_URL", format!("http://{}", stage.address)).env("SEALOG_API_KEY", &stage.key);
    command.env("SEALOG_OPERATOR_TOKEN", OPERATOR_TOKEN);
    command.env_remove("XDG_CONFIG_HOME").env_remove("XDG_STATE_HOME");
    let (code, said, noted) = ended(command.output().unwrap());
    assert_eq!(code, Some(0), "{text}\n{said}\n{noted}");
}

#[test]
fn the_commands_of_the_page_about_the_command_line_run_as_they_stand_there() {
    let (dir, data) = data_dir();
    // As the operating guide makes it, and as a server gets it there.
    let token = dir.path().join("operator_token");
    assert!(sealog().args(["operator-token", "create"]).arg(&token).output().unwrap().status.success());
    let mut command = serving(sealog(), &data);
    command.env("SEALOG_OPERATOR_TOKEN_FILE", &token);
    let server = start(command);
    run_page("command-line.md", &server.address, dir.path());
    server.stop();
    // What they have left behind is what the page says.
    let followed = std::fs::read_to_string(dir.path().join("audit.ndjson")).unwrap();
    assert_eq!(followed.lines().count(), 7);
    assert!(dir.path().join("man1/sealog-follow.1").exists());
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
    let blocks: Vec<String> = blocks(&text).into_iter().map(|block| block.text).collect();
    for elsewhere in ELSEWHERE {
        assert!(blocks.iter().any(|block| block == elsewhere), "{elsewhere:?} is not in the README any more");
    }
    let (root, bin) = (root(), Path::new(SEALOG).parent().unwrap().to_owned());
    examples::program("sealog-verify");
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
        in_directory(&stage.home, &block);
        ran += 1;
    }
    assert!(ran >= 2, "{ran}");
    let read = |name: &str| std::fs::read_to_string(stage.home.join(name)).unwrap();
    assert_eq!(read("again.ndjson").lines().count(), read("export.ndjson").lines().count());
}

fn project_of(export: &Path) -> String {
    let text = std::fs::read_to_string(export).unwrap();
    let event: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    event["project_id"].as_str().unwrap().to_owned()
}

/// Which tests run, compare or read the blocks of a page, by their language. They take all of them, so that
/// another block of the same kind is run as well.
const RUN_BY: [(&str, &str, &str); 22] = [
    ("README.md", "sh", "documented.rs"),
    ("docs/command-line.md", "sh", "documented.rs"),
    ("docs/command-line.md", "toml", "docs/snippets.rs"),
    ("docs/concepts.md", "json", "docs.rs"),
    ("docs/concepts.md", "sh", "docs.rs"),
    ("docs/operating.md", "sh", "documented.rs"),
    ("docs/operating.md", "yaml", "docs/snippets.rs"),
    ("docs/operating-postgres.md", "sh", "documented.rs"),
    ("docs/operating-reference.md", "sh", "documented.rs"),
    ("docs/quickstart.md", "json", "docs.rs"),
    ("docs/quickstart.md", "sh", "docs.rs"),
    ("docs/sdk-go.md", "go", "sdk/go/docs_test.go"),
    ("docs/sdk-python.md", "python", "sdk/python/tests/test_docs.py"),
    ("docs/sdk-rust.md", "rust", "sdk/rust/docs.py"),
    ("docs/sdk-typescript.md", "ts", "sdk/typescript/test/docs.test.mjs"),
    ("docs/settings.md", "toml", "docs/snippets.rs"),
    ("docs/shippers.md", "ini", "docs/snippets.rs"),
    ("docs/shippers.md", "json", "docs.rs"),
    ("docs/shippers.md", "sh", "docs.rs"),
    ("docs/shippers.md", "yaml", "docs/snippets.rs"),
    ("docs/verify-it-yourself.md", "json", "docs.rs"),
    ("docs/verify-it-yourself.md", "sh", "docs.rs"),
];

/// The README and all pages of `docs/`, by their paths. Others (CONTRIBUTING.md, those of fixtures, fuzzing
/// and the client libraries) are for developers: the recipes of the justfile run what they name.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["docs", "docs/adr"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            pages.extend(name.ends_with(".md").then(|| format!("{folder}/{name}")));
        }
    }
    assert!(pages.len() > 40, "the pages are found: {pages:?}");
    pages
}

/// What is wrong with the blocks of a page, and of which kinds they are.
fn kinds(page: &str, text: &str) -> (Vec<String>, Vec<String>) {
    let (mut wrong, mut kinds) = (Vec::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with("```") && line.trim_start().starts_with("```")) {
        wrong.push(format!("{page}: an indented fence, which no test finds: {line}"));
    }
    for block in blocks(text) {
        // What stands behind the language tells how a test takes it.
        let language = block.language.split(' ').next().unwrap_or("");
        if language.is_empty() {
            let section = &block.section;
            wrong.push(format!(
                "{page}, {section:?}: a block without a language; `text` is one that is not run"
            ));
        } else if language != "text" {
            kinds.push(language.to_owned());
        }
    }
    (wrong, kinds)
}

#[test]
fn every_block_of_the_documents_is_run_or_read_by_a_test() {
    let known = |page: &str, language: &str| RUN_BY.iter().any(|(of, by, _)| *of == page && *by == language);
    let (mut wrong, mut found) = (Vec::new(), BTreeSet::new());
    for page in pages() {
        let (of_page, languages) = kinds(&page, &std::fs::read_to_string(root().join(&page)).unwrap());
        wrong.extend(of_page);
        for language in languages {
            if !known(&page, &language) {
                wrong.push(format!(
                    "{page}: no test runs its blocks in {language}; run them, and name the test in RUN_BY"
                ));
            }
            found.insert((page.clone(), language));
        }
    }
    for (page, language, file) in RUN_BY {
        // `just sdk` runs those of the client libraries.
        let folder = if file.starts_with("sdk/") { "" } else { "crates/sealog/tests/suite" };
        let path = root().join(folder).join(file);
        let name = page.rsplit('/').next().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        if !text.contains(&format!("\"{name}\"")) && !text.contains(&format!("/{name}\"")) {
            wrong.push(format!("{file} does not know {page}"));
        }
        if !found.contains(&(page.to_owned(), language.to_owned())) {
            wrong.push(format!("{page} has no block in {language} any more"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn a_block_that_no_test_would_find_is_noticed() {
    let (wrong, languages) = kinds("p", "```sh\nx\n```\n\n```text like\nx\n```\n\n```yaml\nx\n```\n");
    assert_eq!((wrong.len(), languages), (0, vec!["sh".to_owned(), "yaml".to_owned()]));
    let (wrong, _) = kinds("p", "## Here\n\n```\nx\n```\n\n- a\n  ```sh\n  x\n  ```\n");
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong.iter().any(|wrong| wrong.contains("\"## Here\": a block without a language")), "{wrong:?}");
}

#[test]
fn every_block_of_json_is_json() {
    for page in pages() {
        for block in blocks(&std::fs::read_to_string(root().join(&page)).unwrap()) {
            if block.language == "json" {
                let parsed: Result<serde_json::Value, _> = serde_json::from_str(&block.text);
                assert!(parsed.is_ok(), "{page}: {parsed:?}: {}", block.text);
            }
        }
    }
}

/// Replaces what differs from machine to machine; each must be there.
fn with(text: &str, replaced: &[(&str, &str)]) -> String {
    replaced.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not in {text:?}");
        text.replace(from, to)
    })
}

/// Runs commands of the operating guide in a directory that has the data directory `data`.
fn operate(data: &Path, text: &str) -> String {
    in_directory(data.parent().unwrap(), text)
}

/// Runs commands of a page with no variable that the page does not set.
fn in_directory(dir: &Path, text: &str) -> String {
    let (code, said, noted) = ended(bash(text).current_dir(dir).output().unwrap());
    assert_eq!(code, Some(0), "{text}\n{said}\n{noted}");
    said
}

/// The pages for operators.
const OPERATING: [&str; 3] = ["operating.md", "operating-postgres.md", "operating-reference.md"];

#[test]
fn the_commands_of_the_operating_guide_run_as_they_stand_there() {
    let run: Vec<Block> = OPERATING.iter().flat_map(|page| of_page(page, "sh")).collect();
    assert!(run.len() >= 9, "the blocks are found: {}", run.len());
    let cluster = sealog_testing::postgres::cluster();
    for Block { section, text, .. } in run {
        match section.as_str() {
            "## The operator token" => {
                let (dir, data) = data_dir();
                let said = operate(&data, &text);
                let setting = "operator_token = \"(secret)\"  # SEALOG_OPERATOR_TOKEN_FILE\n";
                assert!(said.contains(setting), "{said}");
                let file = std::fs::metadata(dir.path().join("operator_token")).unwrap();
                assert_eq!(file.permissions().mode() & 0o777, 0o600);
            }
            // On a cluster: nodes.rs, by `just citus`.
            "## Start a server on a database" | "### From nothing to a cluster" => {
                let (database, (_dir, data)) = (cluster.database(), data_dir());
                let begin = text.find("postgres://sealog_node:…@").unwrap();
                let url = text[begin..].split(['\'', '"', ' ', '\n']).next().unwrap();
                let mut command =
                    bash(&with(&text, &[(url, &*database.url()), ("sealog serve", "exec sealog serve")]));
                // But for the port, which another test may have.
                command.env("SEALOG_LISTEN", "127.0.0.1:0").current_dir(data.parent().unwrap());
                start(command).stop();
                assert!(!database.sql("SELECT store_id FROM sealog.store").is_empty());
            }
            "### A lost password" => {
                let stage = Stage::new();
                let (_, tenants, _) = stage.operate(&["admin", "tenant", "list", "--json"]);
                let tenant: serde_json::Value =
                    serde_json::from_str(tenants.lines().next().unwrap()).unwrap();
                let tenant = tenant["tenant_id"].as_str().unwrap();
                let made = format!(
                    "printf 'a long password of eight words or so\\n' | sealog admin user create person@example.com --tenant {tenant} --role owner --password-stdin"
                );
                shell(&stage, &made);
                let said = operate(&stage.data, &text);
                assert!(said.starts_with(&format!("http://{}/app/reset", stage.address)), "{said}");
            }
            "## A tenant leaves" => {
                let stage = Stage::new();
                let (_, made, _) = stage.operate(&["admin", "tenant", "create", "Acme", "--json"]);
                let made: serde_json::Value = serde_json::from_str(&made).unwrap();
                let tenant = made["tenant_id"].as_str().unwrap();
                let text = with(
                    &text,
                    &[
                        ("7d444840-9dc0-41d1-b245-5ffdce74fad2", tenant),
                        ("acme.tar", &*stage.path("acme.tar")),
                    ],
                );
                let said = operate(&stage.data, &text);
                assert!(said.contains("revoked 0 keys and ended 0 memberships"), "{said}");
            }
            "### Accepting a loss" => {
                let (_dir, data) = data_dir();
                let (_, project, _) = with_a_loss(&data);
                let text = with(&text, &[("7d444840-9dc0-41d1-b245-5ffdce74fad2", &*project)]);
                assert!(operate(&data, &text).contains("accepted as event 6"));
            }
            "## The operator's console" => {
                let (_dir, data) = data_dir();
                serve(&data).stop();
                let said = operate(&data, &text);
                assert!(said.contains("\tme@example.org\tnot enrolled\t"), "{said}");
            }
            "## The signed log" => {
                let (_dir, data) = data_dir();
                serve(&data).stop();
                let said = operate(&data, &text);
                assert!(said.starts_with("state         signing\norigin        sealog/"), "{said}");
            }
            "## Moving between stores" => {
                let (database, (_dir, data)) = (cluster.database(), data_dir());
                serve(&data).stop();
                let url = "postgres://sealog_owner:…@db.internal/sealog";
                let said = operate(&data, &with(&text, &[(url, &*database.url())]));
                assert!(said.contains("end with the same hash in both stores"), "{said}");
            }
            // tests/backup runs them: made.rs, replicate.rs, failover.rs and replicate_database.rs.
            "## Backup and restore"
            | "### A replica on another machine"
            | "### Failover to a replica"
            | "## A replica of a database" => {}
            other => panic!("{OPERATING:?}, {other:?}: no test runs this block:\n{text}"),
        }
    }
}

/// Commands with a flag within the sentences of the pages for operators, each once.
fn commands_in_sentences() -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    for page in OPERATING {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        let sentences = text.split("\n```").step_by(2).flat_map(|between| between.split("\n\n"));
        for code in sentences.flat_map(|paragraph| paragraph.split('`').skip(1).step_by(2)) {
            let code = code.split_whitespace().collect::<Vec<_>>().join(" ");
            commands.extend((code.starts_with("sealog ") && code.contains(" --")).then_some(code));
        }
    }
    commands
}

/// Those of them that no reader can type as they stand there, or not here, and what runs them.
const IN_OTHER_TESTS: [(&str, &str); 9] = [
    ("sealog --version", "packaging.rs compares what it prints"),
    ("sealog login --operator", "asks for the token: operator.rs"),
    ("sealog restore --from -", "reads a stream: backup/made.rs and terminal.rs"),
    ("sealog restore check … --accept-rollback --reason \"…\"", "the end of another one: backup/postgres.rs"),
    ("sealog restore check --old-data …", "the end of another one: backup/postgres.rs"),
    ("sealog migrate --citus", "needs Citus: nodes.rs, by `just citus`"),
    ("sealog replicate --promote", "the name of a command: backup/failover.rs and backup/signed_log.rs"),
    ("sealog trust recover --from URL --reason \"…\"", "of a copied log: backup/signed_log.rs"),
    (
        "sealog trust recover --nothing-newer --reason \"moved to host b\"",
        "of a copied log: backup/signed_log.rs",
    ),
];

#[test]
fn whole_commands_within_sentences_of_the_operating_guide_run_as_they_stand_there() {
    let mut left = commands_in_sentences();
    let mut run = |data: &Path, text: &str, replaced: &[(&str, &str)]| {
        assert!(left.remove(text), "{text:?} is on no page any more");
        operate(data, &with(text, replaced))
    };

    // The embedded store: a backup, the machine that is lost, a replica, a spool.
    let (dir, data) = data_dir();
    let move_away = |to: &str| std::fs::rename(&data, dir.path().join(to)).unwrap();
    let server = serve(&data);
    let key = first_key(&data);
    server.await_drained();
    assert_eq!(server.post(&key).0, 202);
    let newest: serde_json::Value = serde_json::from_str(&server.get(&key, "/v1/events?limit=1").1).unwrap();
    let newest = &newest["events"][0];
    let head = format!("{}:{}", newest["chain_seq"], newest["hash"].as_str().unwrap());
    operate(&data, "sealog backup create --data-dir data backups");
    assert_eq!(server.post(&key).0, 202);
    server.stop();
    run(&data, "sealog verify --data DIR", &[("DIR", "data")]);
    run(&data, "sealog backup verify --expect SEQ:HASH backups", &[("SEQ:HASH", &*head)]);
    move_away("old-data");
    run(&data, "sealog restore --from backups --to data --old-data old-data --recover-tail", &[]);
    let server = serve(&data);
    let events: serde_json::Value = serde_json::from_str(&server.get(&key, "/v1/events").1).unwrap();
    assert_eq!(events["events"].as_array().unwrap().len(), 2, "the one behind the backup, too");
    server.stop();
    move_away("restored");
    run(&data, "sealog replicate --promote data --to backups", &[]);
    let kept = format!(
        "echo '{{\"action\":\"user.login\"}}' | SEALOG_API_KEY={key} sealog log --file - --spool spool --url http://127.0.0.1:1 --retries 0 || [ $? = 5 ]"
    );
    operate(&data, &kept);
    run(&data, "sealog spool list --spool DIR", &[("DIR", "spool")]);
    let (spool, figures) = (("DIR", "spool"), ("FILE", "spool.prom"));
    run(&data, "sealog spool list --spool DIR --metrics FILE", &[spool, figures]);
    let figures = std::fs::read_to_string(dir.path().join("spool.prom")).unwrap();
    assert!(figures.contains("sealog_spool_events{spool=\"spool\"} 1\n"), "{figures}");

    // A log that was rolled back.
    let dir = tempfile::tempdir().unwrap();
    let (data, _, kept, _) = rolled_back(dir.path());
    let recover = "sealog trust recover --from URL --reason \"restored the backup of 1 March\"";
    run(&data, recover, &[("URL", &*serve_files(&kept))]);
    run(&data, "sealog trust new-log --data-dir data --yes", &[]);
    run(&data, "sealog trust new-log --yes", &[]);

    // A database, its replica, and a database that is made of that.
    let cluster = sealog_testing::postgres::cluster();
    let (database, other, (dir, data)) = (cluster.database(), cluster.database(), data_dir());
    let url = database.url();
    let mut command = serving(sealog(), &data);
    command.env("SEALOG_STORE", &url);
    let server = start(command);
    assert_eq!(server.post(&first_key(&data)).0, 202);
    server.await_drained();
    server.stop();
    let settings = dir.path().join("sealog.toml");
    std::fs::write(&settings, format!("store = \"{url}\"\n")).unwrap();
    std::fs::set_permissions(&settings, std::fs::Permissions::from_mode(0o600)).unwrap();
    for text in ["sealog migrate --status", "sealog migrate --dry-run"] {
        run(&data, text, &[]);
    }
    std::fs::remove_file(settings).unwrap();
    let of_docs = "postgres://sealog_owner@db.internal/sealog";
    run(&data, &format!("sealog backup heads --store {of_docs} heads"), &[(of_docs, &*url)]);
    let of_docs = "postgres://sealog_owner@db2.internal/sealog";
    let check = format!("sealog restore check --store {of_docs} --heads heads --old-data data");
    let said = run(&data, &check, &[(of_docs, &*url)]);
    assert!(said.contains("every event that is known"), "{said}");
    std::fs::write(dir.path().join("database.url"), &url).unwrap();
    operate(&data, "chmod 600 database.url; sealog replicate --from-file database.url --to copy --once");
    run(&data, "sealog verify --data copy", &[]);
    run(&data, "sealog backup create --data-dir copy backups", &[]);
    run(&data, "sealog copy --from copy --to postgres://…", &[("postgres://…", &*other.url())]);
    let text = "sealog serve --data-dir copy";
    assert!(left.remove(text), "{text:?} is on no page any more");
    let mut command = bash(&with(text, &[("sealog serve", "exec sealog serve")]));
    // But for the port, which another test may have.
    command.current_dir(dir.path()).env("SEALOG_LISTEN", "127.0.0.1:0");
    start(command).stop();

    let elsewhere: BTreeSet<String> = IN_OTHER_TESTS.iter().map(|(text, _)| (*text).to_owned()).collect();
    assert_eq!(left, elsewhere, "run what is new here, or say what runs it");
}

#[test]
fn the_exit_codes_of_the_page_are_those_of_the_program() {
    let (_, help, _) = ended(sealog().args(["verify", "--help"]).output().unwrap());
    let codes: Vec<String> = help
        .split("Exit codes:\n")
        .nth(1)
        .unwrap()
        .lines()
        .map(|row| row.trim().split_once(' ').unwrap())
        .map(|(code, meaning)| format!("| {code} | {} |", meaning.trim()))
        .collect();
    let text = std::fs::read_to_string(root().join("docs/command-line.md")).unwrap();
    let section = text.split_once("\n## Exit codes\n").unwrap().1;
    let rows: Vec<&str> =
        section.lines().filter(|line| line.starts_with("| ") && !line.contains("code |")).collect();
    assert_eq!(rows, codes);
}
