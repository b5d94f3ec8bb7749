//! Commands and settings, as the program itself lists them.

use super::source::Source;
use crate::text::{block, cell, code};

/// What the program knows of its command line. It hands it in: nothing below it can know.
#[derive(Clone, Debug, Default)]
pub struct Program {
    /// Each command before those beneath it.
    pub commands: Vec<Command>,
    pub settings: Vec<Setting>,
    /// Codes that commands end with, and what each means.
    pub exit_codes: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub struct Command {
    /// With those above it: `sealog events list`.
    pub name: String,
    /// All that `--help` says, without usage and arguments.
    pub about: String,
    pub usage: String,
    pub arguments: Vec<Argument>,
}

#[derive(Clone, Debug)]
pub struct Argument {
    /// `-m, --meta <NAME=TEXT>`
    pub name: String,
    pub help: String,
}

#[derive(Clone, Debug)]
pub struct Setting {
    /// In the file: `limits.per_ip_rps`.
    pub key: String,
    pub variable: String,
    pub flag: String,
    pub default: String,
    pub help: String,
}

pub(super) fn pages(program: &Program) -> Vec<Source> {
    if program.commands.is_empty() {
        return Vec::new();
    }
    let mut list = "# Commands\n\n\
                    All commands of this version with their `--help`. [The command line](/docs/command-line) \
                    explains how they work together.\n\n\
                    | Command | Purpose |\n\
                    |---|---|\n"
        .to_owned();
    let mut pages: Vec<Source> = Vec::new();
    for command in &program.commands {
        let mut words = command.name.split(' ').skip(1);
        // `sealog events list` is on the page of `sealog events`.
        let (Some(first), rest) = (words.next(), words.next()) else { continue };
        let path = format!("commands/{first}");
        if rest.is_none() {
            let about = command.about.lines().next().unwrap_or("");
            list.push_str(&format!("| [`{}`](/docs/{path}) | {} |\n", command.name, cell(about)));
            let codes = if program.exit_codes.is_empty() { "" } else { EXIT_CODES_LINK };
            let markdown = format!("# {}\n\n{}{codes}", command.name, described(command));
            pages.push(Source::new(path, command.name.clone(), markdown));
        } else if let Some(page) = pages.iter_mut().find(|page| page.path == path) {
            page.markdown.push_str(&format!("\n## {}\n\n{}", command.name, described(command)));
        }
    }
    list.push_str(&exit_codes(&program.exit_codes));
    let mut all = vec![Source::new("commands", "Commands", list).in_part("Look up")];
    all.append(&mut pages);
    all.push(Source::new("all-settings", "All settings", settings(&program.settings)).in_part("Look up"));
    all
}

fn described(command: &Command) -> String {
    let mut text = String::new();
    for paragraph in command.about.split('\n').filter(|line| !line.trim().is_empty()) {
        // Help is plain text: nothing in it is meant as Markdown.
        text.push_str(&format!("{}\n\n", plain(paragraph)));
    }
    text.push_str(&block("", &command.usage));
    if !command.arguments.is_empty() {
        text.push_str("\n| Argument | Meaning |\n|---|---|\n");
        for argument in &command.arguments {
            text.push_str(&format!("| {} | {} |\n", code(&argument.name), cell(&plain(&argument.help))));
        }
    }
    text
}

/// On the page of each command.
const EXIT_CODES_LINK: &str = "\n[Exit codes](/docs/commands#exit-codes) are the same for all commands.\n";

fn exit_codes(codes: &[(String, String)]) -> String {
    if codes.is_empty() {
        return String::new();
    }
    let mut text = "\n## Exit codes\n\n| Code | Meaning |\n|---|---|\n".to_owned();
    for (code, meaning) in codes {
        text.push_str(&format!("| {code} | {} |\n", cell(&plain(meaning))));
    }
    text
}

fn settings(settings: &[Setting]) -> String {
    let mut text = "# All settings\n\n\
                    Flags override the environment, which overrides the file `sealog.toml`, which overrides \
                    the default. [Settings](/docs/settings) has more about some of them.\n\n\
                    | In the file | In the environment | Flag of `sealog serve` | Default | Meaning |\n\
                    |---|---|---|---|---|\n"
        .to_owned();
    for setting in settings {
        let Setting { key, variable, flag, default, help } = setting;
        text.push_str(&format!(
            "| `{key}` | `{variable}` | `{flag}` | {} | {} |\n",
            code(default),
            cell(&plain(help))
        ));
    }
    text
}

/// Text in which nothing is meant as Markdown.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.trim().chars() {
        if matches!(character, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '#' | '~' | '!' | '&') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}
