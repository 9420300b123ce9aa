//! The `undercroft` program: reads the command line, runs one command, says what went wrong.
//!
//! Each command is a file in `command/`, or in `lab/` if it answers questions; the work itself is
//! in the other crates.
//! Exit codes: 0 done, 1 the work failed, 2 the command line is wrong.
#![forbid(unsafe_code)]

mod attach;
mod command;
mod descriptors;
mod error;
mod held;
mod http;
#[cfg(feature = "lab")]
mod lab;
mod saved;
mod service;
mod signals;
mod status;
mod table;
mod tls;
mod top;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use undercroft_frames::HugePageHeap;

/// What simulations and a server's index read at random is large.
#[global_allocator]
static HEAP: HugePageHeap = HugePageHeap;

#[cfg(not(feature = "lab"))]
const LEFT_OUT: &str = "Built without the laboratory: simulate, sweep, curve, characterize, report, \
                        trace, replay, probe, bench and schemes are left out.";

/// The cache that sits below somebody else's cache: what would it be worth for your workload?
#[derive(Parser)]
#[command(name = "undercroft", version, arg_required_else_help = true, max_term_width = 100)]
#[cfg_attr(not(feature = "lab"), command(after_help = LEFT_OUT))]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve volumes over NBD with a second-level cache in front
    Serve(Box<command::serve::Args>),
    /// Run an unmodified program whose evictions become known to the server of its volume
    Attach(Box<command::attach::Args>),
    /// What a server could not write by its end, and kept: look at it, write it to its store
    #[command(subcommand)]
    Unwritten(command::unwritten::Command),
    /// A cache on flash: prepare a file or device, look at it, have a server use it or not
    #[command(subcommand)]
    Flash(command::flash::Command),
    /// The counters of a running server
    Stats(command::stats::Args),
    /// The figures of a running server, live in a terminal
    Top(command::top::Args),
    /// Change a volume of a running server: size of its cache, policy, placement, limits
    Set(command::set::Args),
    /// Drop what a running server has cached of a volume, after its store was changed from outside
    Drop(command::drop::Args),
    /// What a running server advises, in words with their figures
    #[cfg(not(feature = "lab"))]
    Advise(command::advise::Args),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(Box<lab::Command>),
    /// List the replacement policies and what can be set
    Policies(command::lists::Args),
    /// List the placements: when a block comes into the levels below the first
    Placements(command::lists::Args),
    /// Print a script that completes commands and options in a shell
    Completions(command::manual::CompletionsArgs),
    /// Write the manual pages, for packages
    #[command(hide = true)]
    ManPages(command::manual::PagesArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(*command),
        #[cfg(not(feature = "lab"))]
        Command::Advise(args) => command::advise::run(&args),
        Command::Serve(args) => command::serve::run(&args),
        Command::Attach(args) => command::attach::run(&args),
        Command::Flash(command) => command::flash::run(&command),
        Command::Unwritten(command) => command::unwritten::run(&command),
        Command::Stats(args) => command::stats::run(&args),
        Command::Top(args) => command::top::run(&args),
        Command::Set(args) => command::set::run(&args),
        Command::Drop(args) => command::drop::run(&args),
        Command::Policies(args) => command::lists::policies(&args),
        Command::Placements(args) => command::lists::placements(&args),
        Command::Completions(args) => command::manual::completions(&args, Cli::command()),
        Command::ManPages(args) => command::manual::pages(&args, Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_output() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("undercroft: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
