//! Two examples for each command, at the end of its help.

use clap::Command;

/// Commands whose examples are those of the documentation: `docs/command-line.md` has a line for each kind.
#[cfg(test)]
const WITHOUT: [&str; 1] = ["sealog admin"];

/// The words behind `sealog`, as a shell reads them.
const EXAMPLES: &[(&str, [&str; 2])] = &[
    (
        "accept-loss",
        [
            "accept-loss --chain 7d444840-9dc0-41d1-b245-5ffdce74fad2:live --reason 'disk sdb failed, no copy'",
            "accept-loss --chain 7d444840-9dc0-41d1-b245-5ffdce74fad2:test --reason 'ticket 42' --json",
        ],
    ),
    ("actions", ["actions --emit ts --output src/actions.ts", "actions --emit ts --check src/actions.ts"]),
    ("actions list", ["actions list", "actions list --framework gdpr"]),
    ("actions show", ["actions show user.login", "actions show user.login --json"]),
    ("backup create", ["backup create /backup/sealog", "backup create - --fast > sealog.tar"]),
    (
        "backup heads",
        [
            "backup heads /backup/heads --store postgres://sealog@db/sealog",
            "backup heads /backup/heads --json",
        ],
    ),
    ("backup list", ["backup list /backup/sealog", "backup list /backup/sealog --json"]),
    (
        "backup prune",
        [
            "backup prune /backup/sealog --keep-daily 14 --keep-monthly 84 --dry-run",
            "backup prune /backup/sealog --keep-hourly 24 --keep-daily 14 --keep-yearly 7",
        ],
    ),
    ("backup verify", ["backup verify /backup/sealog", "backup verify /backup/sealog --json"]),
    ("check", ["check", "check --data-dir /var/lib/sealog --offline"]),
    ("completions", ["completions bash > /etc/bash_completion.d/sealog", "completions fish"]),
    ("config print", ["config print", "config print --json"]),
    (
        "copy",
        [
            "copy --from /var/lib/sealog --to postgres://sealog@db/sealog",
            "copy --from postgres://sealog@db/sealog --to /var/lib/sealog --json",
        ],
    ),
    ("demo", ["demo", "demo --listen 127.0.0.1:9000 --events 1000"]),
    ("doctor", ["doctor", "doctor --output - --offline > doctor.tar"]),
    (
        "events get",
        ["events get 01JCB3Q6V5Z0000000000000000", "events get 01JCB3Q6V5Z0000000000000000 --json"],
    ),
    ("events list", ["events list --actor-id u-17", "events list --limit 1 --json"]),
    ("events tail", ["events tail", "events tail --action user.login --json"]),
    (
        "export",
        ["export --output all.ndjson", "export --format csv --date-from 2026-01-01 --output year.csv"],
    ),
    ("follow", ["follow --output audit.ndjson", "follow --once --action user.login"]),
    ("geoip test", ["geoip test 203.0.113.9", "geoip test 2001:db8::1 --json"]),
    ("healthcheck", ["healthcheck", "healthcheck --url https://audit.example.org --timeout 5"]),
    (
        "import",
        [
            "import old.ndjson --state old.state",
            "import people.csv --map when=ts_client --map what=action --dry-run",
        ],
    ),
    ("log", ["log user.login --actor-id u-17 -m method=password", "log --file events.ndjson"]),
    ("login", ["login --url https://audit.example.org", "login --operator --profile live"]),
    ("mail test", ["mail test you@example.org", "mail test you@example.org --json"]),
    ("man", ["man log", "man --dir /usr/local/share/man/man1"]),
    ("migrate", ["migrate --status --data-dir /var/lib/sealog", "migrate --dry-run"]),
    (
        "operator-token create",
        [
            "operator-token create /etc/sealog/secrets/operator_token",
            "operator-token create operator_token --json",
        ],
    ),
    (
        "operator-token rotate",
        [
            "operator-token rotate /etc/sealog/secrets/operator_token",
            "operator-token rotate operator_token --json",
        ],
    ),
    ("ops-user add", ["ops-user add --email ann@example.org", "ops-user add --email ann@example.org --json"]),
    ("ops-user list", ["ops-user list", "ops-user list --json"]),
    (
        "ops-user remove",
        ["ops-user remove --email ann@example.org", "ops-user remove --email ann@example.org --json"],
    ),
    (
        "replicate",
        [
            "replicate --from https://audit.example.org --to /var/lib/sealog-copy --token-file operator_token",
            "replicate --promote /var/lib/sealog --to /var/lib/sealog-copy",
        ],
    ),
    ("reset", ["reset --email ann@example.org", "reset --email owner@localhost --json"]),
    (
        "restore",
        [
            "restore --from /backup/sealog --to /var/lib/sealog",
            "restore --from - --to /var/lib/sealog < sealog.tar",
        ],
    ),
    (
        "restore check",
        [
            "restore check --heads /backup/heads --store postgres://sealog@db/sealog",
            "restore check --heads /backup/heads --json",
        ],
    ),
    ("serve", ["serve", "serve --listen 127.0.0.1:9000 --data-dir /var/lib/sealog"]),
    ("spool drop", ["spool drop > dropped.ndjson", "spool drop --held --yes"]),
    ("spool list", ["spool list", "spool list --spool /var/lib/shop/spool --metrics shop.prom"]),
    ("spool send", ["spool send", "spool send --held --rejects rejected.ndjson"]),
    (
        "tenant close",
        [
            "tenant close 7d444840-9dc0-41d1-b245-5ffdce74fad2 --name Acme --reason 'contract ended'",
            "tenant close 7d444840-9dc0-41d1-b245-5ffdce74fad2 --name Acme --reason 'moved' --even-with-open-cases",
        ],
    ),
    (
        "tenant export",
        [
            "tenant export 7d444840-9dc0-41d1-b245-5ffdce74fad2 --output acme.tar",
            "tenant export 7d444840-9dc0-41d1-b245-5ffdce74fad2 --output acme.tar --json --quiet",
        ],
    ),
    ("tenant verify", ["tenant verify acme.tar", "tenant verify acme.tar --json"]),
    (
        "trust init",
        [
            "trust init --store postgres://sealog@db/sealog --trust-log-key-file /etc/sealog/log.key",
            "trust init --json",
        ],
    ),
    ("trust new-log", ["trust new-log --yes", "trust new-log --yes --data-dir /var/lib/sealog --json"]),
    (
        "trust recover",
        [
            "trust recover --from https://log.example.org/tlog/v1/store --reason 'restored the backup of 1 March'",
            "trust recover --from /mnt/copy-of-log --reason 'disk a7 failed' --json",
        ],
    ),
    ("trust rotate-key", ["trust rotate-key", "trust rotate-key --role service --json"]),
    ("trust status", ["trust status", "trust status --data-dir /var/lib/sealog --json"]),
    ("trust vkey", ["trust vkey", "trust vkey --data-dir /var/lib/sealog > vkey.txt"]),
    ("verify", ["verify --all --report verified.json", "verify --data /backup/copy-of-data"]),
];

/// Before the text that ends the help of a command.
pub(crate) fn with_examples(program: Command) -> Command {
    added(program, "")
}

fn added(command: Command, path: &str) -> Command {
    let names: Vec<String> = command.get_subcommands().map(|below| below.get_name().to_owned()).collect();
    let command = names.into_iter().fold(command, |command, name| {
        let below = format!("{path} {name}");
        command.mut_subcommand(name, |command| added(command, below.trim_start()))
    });
    let Some((_, examples)) = EXAMPLES.iter().find(|(name, _)| *name == path) else { return command };
    let mut text: String = examples.iter().map(|example| format!("  sealog {example}\n")).collect();
    text.insert_str(0, "Examples:\n");
    if let Some(end) = command.get_after_help() {
        text.push_str(&format!("\n{end}"));
    }
    command.after_help(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that run, by the words behind `sealog`.
    fn runnable(command: &Command, path: &str, found: &mut Vec<String>) {
        let below: Vec<&Command> =
            command.get_subcommands().filter(|below| below.get_name() != "help").collect();
        if below.is_empty() || !command.is_subcommand_required_set() {
            found.push(path.to_owned());
        }
        for below in below {
            runnable(below, format!("{path} {}", below.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn every_command_has_two_examples_in_its_help() {
        let mut program = crate::command();
        program.build();
        let mut names = Vec::new();
        for below in program.get_subcommands().filter(|below| below.get_name() != "help") {
            runnable(below, below.get_name(), &mut names);
        }
        names.retain(|name| !WITHOUT.iter().any(|without| format!("sealog {name}").starts_with(without)));
        names.sort();
        assert_eq!(EXAMPLES.iter().map(|(name, _)| *name).collect::<Vec<_>>(), names);
        for name in names {
            let mut command = &program;
            for word in name.split(' ') {
                command = command.find_subcommand(word).unwrap();
            }
            let help = command.clone().render_long_help().to_string();
            let examples = help.split("\nExamples:\n").nth(1).unwrap_or_else(|| panic!("{help}"));
            assert_eq!(examples.matches(&format!("  sealog {name}")).count(), 2, "{help}");
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        for (name, examples) in EXAMPLES {
            for example in examples {
                // What a shell does with it.
                let line = example.split(['<', '>']).next().unwrap();
                let mut words: Vec<String> = vec!["sealog".into()];
                for (at, part) in line.split('\'').enumerate() {
                    match at % 2 {
                        1 => words.push(part.to_owned()),
                        _ => words.extend(part.split_whitespace().map(str::to_owned)),
                    }
                }
                assert!(example.starts_with(name), "{example}");
                let parsed = crate::command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
            }
        }
    }

    #[test]
    fn commands_on_the_host_show_their_own_flags_and_name_the_settings() {
        let mut program = crate::command();
        program.build();
        let help = |name: &str| {
            let mut command = &program;
            for word in name.split(' ') {
                command = command.find_subcommand(word).unwrap();
            }
            command.clone().render_long_help().to_string()
        };
        for name in ["check", "migrate", "reset", "ops-user add", "backup create", "doctor", "config print"] {
            let help = help(name);
            let own = help.find("--json").unwrap();
            let settings = help.find("Settings:").unwrap_or_else(|| panic!("{help}"));
            assert!(own < settings && help.find("--data-dir").unwrap() > settings, "{help}");
            assert!(
                help.contains("`sealog serve --help`") && !help.contains("--limits-per-ip-rps"),
                "{help}"
            );
        }
        assert!(help("serve").contains("--limits-per-ip-rps"));
    }
}
