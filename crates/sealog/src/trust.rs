//! `sealog trust`: the signed log of a store, for those who run it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Exit, Failure};
use sealog_cli::output::quiet_flag;
use sealog_cli::progress;
use sealog_client::http::{Client, ClientError, Retries, Settings};
use sealog_engine::trust_log::Copied;

use crate::admin::client;
use crate::admin::operations::{Answer, Request};
use crate::admin::trust::{self, Log};
use crate::config;

const GIVE: &str = "Give this line to your auditor, by another way than this server:";
/// For one file of a copy.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) fn command() -> Command {
    Command::new("trust")
        .about("Show and manage the signed log")
        .long_about(
            "Show and manage the signed log, by which an outsider finds out that events were changed or \
             removed.\n\n\
             The server may run or be stopped: a command connects to the server of the data directory, or \
             opens the store itself if none runs. Run it as the user of the server, or as root.",
        )
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(below(Command::new("status").about("Show whether the log is signed, and why not").long_about(
            "Show whether the log is signed, and why not: its name, size, newest publication and keys, and \
             the chains that do not continue what was published.\n\n\
             It exits with 0, or with 10 if the log is lost, was rolled back, or a chain does not continue \
             what was published.",
        )))
        .subcommand(below(
            Command::new("vkey").about("Print the line that verifies every signature of this store").long_about(
                "Print the line that verifies every signature of this store, the vkey. It is no secret.\n\n\
                 Give it to auditors by another way than this server: in a contract, or on another \
                 organisation's page. An auditor who gets it from the server checks nothing with it.",
            ),
        ))
        .subcommand(below(
            Command::new("init").about("Begin the signed log, once, where keys are given").long_about(
                "Begin the signed log, once, where keys are given: with PostgreSQL, or with \
                 trust.log_key_file.\n\n\
                 The command makes the key files that do not exist, for their owner alone, and prints the \
                 vkey. Copy the file of the log key to the servers that may sign, and that of the service \
                 key to all. On the embedded store without key settings the first start of the server does \
                 all of it.\n\n\
                 It exits with 1 and changes nothing if this store has a log, or had one.",
            ),
        ))
        .subcommand(rotate_key_command())
        .subcommand(recover_command())
        .subcommand(new_log_command())
}

fn rotate_key_command() -> Command {
    let command = Command::new("rotate-key").about("Replace a signing key").long_about(
        "Replace a signing key: a new one is made in its file, and an entry of the log names it, signed by \
         the old one.\n\n\
         Both log keys sign every checkpoint for 90 days, so verifiers with the old vkey learn the new one \
         from the log; then the server retires the old one. Give the new vkey to auditors meanwhile. A \
         service key is replaced at once. With PostgreSQL, copy the changed file to the other servers that \
         have it.",
    );
    let role = Arg::new("role").long("role").value_name("ROLE").value_parser(["log", "service"]);
    below(command).arg(role.default_value("log").help("Which key"))
}

fn recover_command() -> Command {
    let command = Command::new("recover").about("Go on after a rollback, a restore or a promotion");
    let command = command.long_about(
        "Go on after a rollback, a restore or a promotion, from another copy of the log (--from). The copy \
         has the entries that this store lost: of another server, a backup, or an auditor who keeps the \
         log.\n\n\
         The command verifies the copy: its checkpoint must be signed by a key of this log, its entries must \
         lead to it, and must begin with those that are here. It adds the missing entries, then an entry \
         that declares the restore, with the reason. Events that were lost stay lost.\n\n\
         A store that was restored, promoted or copied does not sign (state `copied`), because its source may \
         have signed more than the copy has. If you know that it signed nothing more, because it was stopped \
         before the copy was made, give --nothing-newer instead of --from. If it did, two signed sizes will \
         contradict each other, and every auditor who has both can prove it. The command refuses where the \
         state copy proves more.\n\n\
         If the copy does not fit, the command changes nothing and exits with 1, or with 2 if it cannot be \
         read.",
    );
    let from = Arg::new("from").long("from").value_name("URL|DIR").required_unless_present("nothing-newer");
    let nothing_newer = Arg::new("nothing-newer").long("nothing-newer").action(ArgAction::SetTrue);
    let reason = Arg::new("reason").long("reason").value_name("TEXT").required(true);
    below(command)
        .arg(from.help(
            "The copy: a directory or URL with `checkpoint` and `tile/entries/`, such as https://log.example.org/tlog/v1/store",
        ))
        .arg(
            nothing_newer
                .conflicts_with("from")
                .help("Go on from the copy that this store has: the source signed nothing after it was made"),
        )
        .arg(reason.help("Why, in one line; an entry of the log, which is public"))
        .arg(quiet_flag())
}

fn new_log_command() -> Command {
    let command = Command::new("new-log").about("Begin a new log that names the previous one").long_about(
        "Begin a new log that names the previous one, with a new name and new keys: the last resort after a \
         rollback or a loss that `sealog trust recover` cannot repair.\n\n\
         The key files are replaced; keep copies of the old ones. Checkpoints and proofs of the previous log \
         stay valid under its vkey, and say nothing of what comes from now on. Auditors need the new vkey, \
         which the command prints, and will ask why.",
    );
    let yes = Arg::new("yes").long("yes").required(true).action(ArgAction::SetTrue);
    below(command).arg(yes.help("Confirm: the previous log does not go on"))
}

/// With the settings of the server, and what all of them have.
fn below(command: Command) -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object");
    config::with_flags(command).after_help(EXIT_CODES).arg(json)
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (name, matches) = matches.subcommand().expect("clap asks for one");
    let settings = config::load(matches, std::env::vars())?;
    let text = |name: &str| matches.get_one::<String>(name).expect("clap asks for it");
    let mut fetched = None;
    let request = match name {
        "init" => trust::Request::Init,
        "rotate-key" => trust::Request::Rotate { service: text("role") == "service" },
        "recover" => {
            let from = matches.get_one::<String>("from");
            let is_quiet = matches.get_flag("quiet");
            let dir = match from {
                Some(url) if url.contains("://") => {
                    Some(fetched.insert(Fetched::from(url, &settings.data_dir, is_quiet)?).0.clone())
                }
                dir => dir.map(PathBuf::from),
            };
            // A server has another working directory.
            let dir = dir.map(|dir| dir.canonicalize().map_err(|error| Failure::of_path(&dir, &error)));
            trust::Request::Recover { dir: dir.transpose()?, reason: text("reason").clone() }
        }
        "new-log" => trust::Request::NewLog,
        _ => trust::Request::Status,
    };
    // Which entries are missing, and how many, only the server finds out.
    let is_shown = name == "recover" && !matches.get_flag("quiet");
    let bar = progress::waiting(!is_shown, "Adding what is missing");
    let answer = client::run(&settings, &Request::Trust(request));
    bar.finish_and_clear();
    let Answer::Trust(log) = answer? else {
        return Err(client::OTHER_ANSWER.to_owned().into());
    };
    drop(fetched);
    let json = matches.get_flag("json").then(|| serde_json::to_string(&log).expect("texts and numbers"));
    match (name, json) {
        ("status", json) => {
            println!("{}", json.unwrap_or_else(|| log.to_string().trim_end().to_owned()));
            return Ok(if log.is_trouble { Exit::Broken.into() } else { ExitCode::SUCCESS });
        }
        ("recover", json) => println!("{}", json.unwrap_or_else(|| log.to_string().trim_end().to_owned())),
        (name, json) => {
            let of_service = name == "rotate-key" && text("role") == "service";
            let line = if of_service { service_vkey(&log) } else { vkey(&log)? };
            if json.is_some() {
                println!("{}", serde_json::json!({ "vkey": line, "origin": log.origin }));
                return Ok(ExitCode::SUCCESS);
            }
            match name {
                "init" => eprintln!("The log has begun. {GIVE}"),
                "new-log" => eprintln!("A new log has begun. {GIVE}"),
                "rotate-key" if of_service => eprintln!("The new service key; the log names it:"),
                "rotate-key" => eprintln!("The old key signs beside the new one for 90 days. {GIVE}"),
                _ => {}
            }
            println!("{line}");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A copy of the log from a server, in a directory that is removed with this.
struct Fetched(PathBuf);

impl Fetched {
    fn from(url: &str, data_dir: &Path, is_quiet: bool) -> Result<Fetched, Failure> {
        let wrong = |problem: String| Failure::usage(format!("--from: {problem}"));
        let settings =
            Settings { url: url.to_owned(), key: None, timeout: TIMEOUT, retries: Retries::default() };
        let client = Client::new(settings).map_err(wrong)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let dir = data_dir.join("trust-recover");
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).map_err(|error| Failure::of_path(&dir, &error))?;
        let fetched = Fetched(dir.clone());
        let bar = progress::files(is_quiet, "Fetching", 0);
        let mut get = |path: &str| {
            let bytes = match runtime.block_on(client.get(&format!("/{path}"), &[])) {
                Ok(answer) => answer.body,
                Err(ClientError::Refused(problem)) if problem.status == 404 => return Ok(None),
                Err(ClientError::Foreign { status: 404, .. }) => return Ok(None),
                Err(error) => return Err(format!("{path}: {error}")),
            };
            let file = dir.join(path);
            let kept = file.parent().map_or(Ok(()), std::fs::create_dir_all);
            let kept = kept.and_then(|()| std::fs::write(&file, &bytes));
            kept.map_err(|error| format!("{}: {error}", file.display()))?;
            // The checkpoint comes first. One that is none ends the reading.
            if bar.position() == 0 {
                bar.set_length(Copied::files(&bytes).unwrap_or(1));
            }
            bar.inc(1);
            Ok(Some(bytes.to_vec()))
        };
        let read = Copied::read(&mut get);
        bar.finish_and_clear();
        read.map_err(wrong)?;
        Ok(fetched)
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn service_vkey(log: &Log) -> &str {
    let key = log.keys.iter().rfind(|key| key.role == "service" && key.retired_at.is_none());
    key.map_or("", |key| &key.vkey)
}

fn vkey(log: &Log) -> Result<&str, Failure> {
    log.vkey.as_deref().ok_or_else(|| Failure::new(Exit::NotFound, log.detail.clone()))
}
