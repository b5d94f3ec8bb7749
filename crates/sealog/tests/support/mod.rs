//! The program of this package, for `sealog_testing::process`: only cargo knows where it has put it.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::path::Path;
use std::process::Command;

pub use sealog_testing::process::*;

pub const SEALOG: &str = env!("CARGO_BIN_EXE_sealog");

pub fn sealog() -> Command {
    clean(Command::new(SEALOG))
}

/// What a server on a data directory is started with.
pub fn serving(mut command: Command, data: &Path) -> Command {
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data);
    command
}

/// A server that listens.
pub fn serve(data: &Path) -> Running {
    start(serving(sealog(), data))
}
