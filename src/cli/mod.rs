//! Commands, exit codes and words for people.
//!
//! Logic that another room could own is not here: files are judged by `config`, state is rendered by `observe`, and
//! `mirror` does the work. This room joins them, and turns signals and outcomes into exit codes.

mod acls;
mod arguments;
mod as_mirror_maker;
mod check;
mod core_dumps;
pub mod demo;
mod demo_command;
mod exit;
mod finish;
mod logging;
mod mirror_maker_1;
mod output;
mod plan;
mod positions;
mod program_text;
mod reach;
mod render;
mod run;
mod signals;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    core_dumps::forbid();
    let line: Vec<OsString> = std::env::args_os().collect();
    if line.first().is_some_and(|program| as_mirror_maker::is_meant(program)) {
        return as_mirror_maker::main(&line).into();
    }
    if line.first().is_some_and(|program| mirror_maker_1::is_meant(program)) {
        return mirror_maker_1::script(&line);
    }
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::print_clap(&error).into(),
    };
    logging::start(&arguments.logging);
    let exit = match arguments.command {
        Command::Run(run) => run::main(&run, &arguments.logging),
        Command::Acls(acls) => acls::main(&acls),
        Command::MirrorMaker(mirror_maker) => return mirror_maker_1::main(&mirror_maker, &arguments.logging),
        Command::Check(check) => check::main(&check, &arguments.logging),
        Command::Plan(plan) => return plan::main(&plan),
        Command::Positions(positions) => positions::main(&positions),
        Command::Demo(demo) => demo_command::main(&demo, &arguments.logging),
    };
    exit.into()
}
