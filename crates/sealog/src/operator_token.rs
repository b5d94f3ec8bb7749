//! `sealog operator-token`: writes the operator token of a server into a file that only its owner can read.

use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Command};
use sealog_cli::exit::{EXIT_CODES, Failure};
use sealog_cli::files::{create_file, sync_name};
use sealog_store::world::{SystemWorld, World};
use serde_json::json;
use zeroize::Zeroizing;

const TOKEN_BYTES: usize = 32;

pub(crate) fn command() -> Command {
    let file = || Arg::new("file").value_name("FILE").required(true).help("The file with the token");
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print one JSON object");
    Command::new("operator-token")
        .about("Create or rotate the operator token")
        .long_about(
            "Create or rotate the operator token, which opens /operator/v1, /metrics and replication.\n\n\
             The command writes 64 random hex digits into FILE, which only its owner can read (mode 0600), and \
             never prints them. Name the file to the server with SEALOG_OPERATOR_TOKEN_FILE, or as the systemd \
             credential operator_token.",
        )
        .after_help(EXIT_CODES)
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("create")
                .about("Write a new token into a new file")
                .long_about(
                    "Write a new token into a new file. The command refuses a file that exists.",
                )
                .arg(file())
                .arg(json()),
        )
        .subcommand(
            Command::new("rotate")
                .about("Replace the token in a file")
                .long_about(
                    "Replace the token in a file. The new file has the owner of the old one.\n\n\
                     A running server uses the old token until it gets SIGHUP (`systemctl reload sealog`). \
                     systemd copies a credential only when the service starts: restart the service then. There \
                     is one token, so give the new one to scripts, Prometheus and `sealog replicate` at once.",
                )
                .arg(file())
                .arg(json()),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let (verb, matches) = matches.subcommand().expect("clap asks for it");
    let path = Path::new(matches.get_one::<String>("file").expect("clap asks for it"));
    let is_there = path.symlink_metadata().is_ok();
    match (verb, is_there) {
        ("create", true) => {
            let problem = format!(
                "{}: the file exists; to replace its token, run `sealog operator-token rotate`",
                path.display()
            );
            return Err(Failure::usage(problem));
        }
        ("rotate", false) => {
            let problem = format!(
                "{}: there is no such file; to create one, run `sealog operator-token create`",
                path.display()
            );
            return Err(Failure::usage(problem));
        }
        _ => {}
    }
    write(path).map_err(|error| Failure::of_path(path, &error))?;
    if matches.get_flag("json") {
        println!("{}", json!({ "file": path, "rotated": is_there }));
    } else if is_there {
        println!(
            "{}: the token is replaced; a server uses it after SIGHUP, or after a restart if the file is a credential",
            path.display()
        );
    } else {
        println!("{}: the token is written; name the file in SEALOG_OPERATOR_TOKEN_FILE", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// In the place of what is there, as a whole: a server that looks meanwhile finds one token or the other.
fn write(path: &Path) -> io::Result<()> {
    let mut random = Zeroizing::new([0; TOKEN_BYTES]);
    SystemWorld.fill_random(&mut *random);
    let token = Zeroizing::new(hex::encode(*random) + "\n");
    let mut temporary = PathBuf::from(path);
    temporary.as_mut_os_string().push(".tmp");
    let written = || {
        let mut file = create_file(&temporary)?;
        file.write_all(token.as_bytes())?;
        // Of the server's user, though root may have run this.
        if let Ok(before) = path.metadata() {
            fchown(&file, Some(before.uid()), Some(before.gid()))?;
        }
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    };
    let renamed = written();
    if renamed.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    renamed?;
    sync_name(path)
}
