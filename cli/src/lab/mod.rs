//! The commands of the laboratory, one file each: what traces say, simulations, and what is tried
//! on a running server. Beside them are the arguments that several of them take.
//!
//! Not here: the work itself (`lab/` of the repository), and commands that run beside somebody's
//! data (`command/`), which use nothing from here. The feature `lab` leaves this folder out.

mod advise;
mod bench;
mod characterize;
mod clients;
mod cooperation;
mod curve;
mod hierarchy;
mod input;
mod lowest;
mod probe;
mod progress;
mod replay;
mod report;
mod requests;
mod runs;
mod schemes;
mod simulate;
mod sweep;
mod timed;
mod trace;

use crate::command::lists;
use crate::error::Error;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Simulate one or more cache levels on a trace
    Simulate(Box<simulate::Args>),
    /// Simulate many sizes and policies, on many traces, with all cores
    Sweep(sweep::Args),
    /// Miss ratio curves: all sizes in one pass (lru, opt), or sampled (every policy)
    Curve(curve::Args),
    /// What a trace asks for: mix, working set, reuse distances, frequencies
    Characterize(characterize::Args),
    /// What a cache below would be worth for a trace, and what to take, in words with their figures
    Advise(Box<advise::Args>),
    /// One page of HTML, with curves and tables, from the results of a sweep or another command
    Report(report::Args),
    /// Look at, convert, filter and generate traces
    #[command(subcommand)]
    Trace(trace::Command),
    /// Play a trace through a running server
    Replay(replay::Args),
    /// Find out what cache an NBD server has, by reading
    Probe(probe::Args),
    /// Put load on a running server
    #[command(subcommand)]
    Bench(bench::Command),
    /// List the schemes that move blocks between levels
    Schemes(lists::Args),
}

pub(crate) fn run(command: Command) -> Result<(), Error> {
    match command {
        Command::Simulate(args) => simulate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
        Command::Curve(args) => curve::run(&args),
        Command::Characterize(args) => characterize::run(&args),
        Command::Advise(args) => advise::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Trace(command) => trace::run(&command),
        Command::Replay(args) => replay::run(&args),
        Command::Probe(args) => probe::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::Schemes(args) => schemes::run(&args),
    }
}
