//! What the program knows of its command line, for the pages at `/docs`.

use clap::{Arg, ArgAction, Command};
use sealog_cli::exit;
use sealog_docs::{Argument, Program};

use crate::config;

/// All commands with their arguments, and all settings.
pub(crate) fn program(mut command: Command) -> Program {
    command.build();
    let mut commands = Vec::new();
    let name = command.get_name().to_owned();
    add(&command, &name, &mut commands);
    Program { commands, settings: config::reference(), exit_codes: exit::codes() }
}

fn add(command: &Command, name: &str, commands: &mut Vec<sealog_docs::Command>) {
    let about = command.get_long_about().or_else(|| command.get_about());
    let usage = command.clone().bin_name(name).render_usage().to_string();
    commands.push(sealog_docs::Command {
        name: name.to_owned(),
        about: about.map(ToString::to_string).unwrap_or_default(),
        usage: usage.trim_start_matches("Usage: ").to_owned(),
        arguments: command.get_arguments().filter(|argument| is_its_own(argument)).map(argument).collect(),
    });
    for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help")
    {
        add(below, &format!("{name} {}", below.get_name()), commands);
    }
}

/// `--help` and `--version` are everywhere.
fn is_its_own(argument: &Arg) -> bool {
    let everywhere = [ArgAction::Help, ArgAction::HelpShort, ArgAction::HelpLong, ArgAction::Version]
        .map(|action| format!("{action:?}"));
    !argument.is_hide_set() && !everywhere.contains(&format!("{:?}", argument.get_action()))
}

fn argument(argument: &Arg) -> Argument {
    let short = argument.get_short().filter(|_| argument.get_long().is_some());
    let short = short.map(|short| format!("-{short}, ")).unwrap_or_default();
    let help = argument.get_long_help().or_else(|| argument.get_help());
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let has_default = !defaults.is_empty() && argument.get_action().takes_values();
    let default = if has_default { format!(" [default: {}]", defaults.join(" ")) } else { String::new() };
    Argument {
        name: format!("{short}{argument}"),
        help: format!("{}{default}", help.map(ToString::to_string).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_there_with_its_arguments_and_its_help() {
        let program = program(crate::command());
        let serve = program.commands.iter().find(|command| command.name == "sealog serve").unwrap();
        assert!(serve.about.contains("SIGTERM") && serve.usage.starts_with("sealog serve"), "{serve:?}");
        assert!(serve.arguments.iter().any(|argument| argument.name == "--listen <ADDRESS>"), "{serve:?}");
        assert!(program.commands.iter().any(|command| command.name == "sealog events list"));
        assert!(program.commands.iter().all(|command| !command.about.is_empty()), "each says what it is for");
        let listen = program.settings.iter().find(|setting| setting.key == "listen").unwrap();
        assert_eq!((listen.variable.as_str(), listen.flag.as_str()), ("SEALOG_LISTEN", "--listen"));
    }
}
