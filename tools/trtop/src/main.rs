//! The command `trtop`.

#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;
use trtop::cli::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        None => trtop::live::run(&cli.live),
        Some(Command::Dump(o)) => trtop::export::run(&o),
        Some(Command::Record(o)) => trtop::record::run(&o),
        Some(Command::Replay(o)) => trtop::replay::run(&o),
        Some(Command::Export(o)) => trtop::convert::run(&o),
        Some(Command::Report(o)) => trtop::report::run(&o),
        Some(Command::Ls(o)) => trtop::ls::run(&o),
        Some(Command::Doctor(o)) => trtop::doctor::run(&o),
        Some(Command::Clean(o)) => trtop::clean::run(&o),
        Some(Command::Run(o)) => trtop::run::run(&o),
        Some(Command::Serve(o)) => trtop::serve::run(&o),
        Some(Command::Fleet(o)) => trtop::fleet::run(&o),
        Some(Command::Vnic(o)) => trtop::vnic::run(&o),
        Some(Command::Help { topic }) => trtop::help::run(&topic),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if !e.message.is_empty() {
                eprintln!("trtop: {}", e.message);
            }
            ExitCode::from(e.code)
        }
    }
}
