//! `trtop help`: of a command as clap knows it, or of the settings from the library's own table.

use crate::cli::Cli;
use crate::error::{Failure, Outcome, print};
use clap::CommandFactory;
use telereduce::config::TABLE;

/// Prints help on `topic`.
///
/// # Errors
/// There is no such topic (exit code 2).
pub fn run(topic: &[String]) -> Outcome {
    if topic.len() == 1 && topic[0] == "env" {
        return print(&environment());
    }
    let mut command = Cli::command();
    command.build();
    let mut at = &mut command;
    for name in topic {
        let known: Vec<String> = at.get_subcommands().map(|c| c.get_name().into()).collect();
        let Some(next) = at.find_subcommand_mut(name) else {
            return Err(Failure {
                code: 2,
                message: format!("no help on '{name}'; there is help on: env {}", known.join(" ")),
            });
        };
        at = next;
    }
    print(&at.render_long_help().to_string())
}

/// Every setting, as text.
pub fn environment() -> String {
    let mut out = String::from(
        "Settings are environment variables, read once when the program opens its first RDMA device.\n\
         A bad value is named on stderr, its default is used, and the program runs.\n",
    );
    for s in TABLE {
        out += &format!("\n{}\n    {}\n    values:  {}\n    default: {}\n", s.name, s.help, s.values, s.default);
    }
    out
}
