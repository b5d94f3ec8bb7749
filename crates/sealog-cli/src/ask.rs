//! Asks at the terminal for what must not be seen by others.

use std::io::{BufRead, IsTerminal, Write};

use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

/// Without showing what is typed. Nothing where nobody can be asked, or nothing was said.
pub(super) fn hidden(prompt: &str) -> Option<Zeroizing<String>> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    let shown = tcgetattr(&stdin).ok()?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden).ok()?;
    eprint!("{prompt}");
    let _ = std::io::stderr().flush();
    let mut line = Zeroizing::new(String::new());
    let read = stdin.lock().read_line(&mut line);
    let _ = tcsetattr(&stdin, OptionalActions::Flush, &shown);
    eprintln!();
    read.ok()?;
    Some(Zeroizing::new(line.trim().to_owned())).filter(|line| !line.is_empty())
}

/// None where nobody can be asked.
pub(super) fn is_confirmed(question: &str) -> Option<bool> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return None;
    }
    eprint!("{question} [y/N] ");
    let mut line = String::new();
    stdin.lock().read_line(&mut line).ok()?;
    Some(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// The first line of standard input, for scripts that have a secret in a file or another program.
pub(super) fn piped() -> Option<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    std::io::stdin().lock().read_line(&mut line).ok()?;
    Some(Zeroizing::new(line.trim().to_owned())).filter(|line| !line.is_empty())
}
