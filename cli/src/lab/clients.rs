//! The options of simulations of several clients, several servers, or with a clock; reading their
//! traces, and running them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use undercroft_cache::placement::Placement;
use undercroft_cache::topology::Division;
use undercroft_sim::{ClientsSetup, Data, LevelSpec, Population, Report};
use undercroft_trace::DenseTrace;

use crate::error::Error;
use crate::lab::input::{SimulationOptions, TraceOptions};
use crate::lab::progress::{Reading, Simulating};
use crate::lab::timed::TimedOptions;

/// Who the clients are, and how they and the servers share what there is.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several clients")]
pub(crate) struct ClientOptions {
    /// More clients, each with a first level of its own: a trace each (B.trace,C.trace), or
    /// `spaces`: every device, unit or file of the trace is a client
    #[arg(long, value_name = "TRACES|spaces", value_delimiter = ',')]
    clients: Vec<PathBuf>,
    /// Whether equal block numbers of different clients are the same block [default: disjoint]
    #[arg(long, value_name = "DATA", requires = "clients")]
    data: Option<DataWord>,
    /// How the servers' caches are divided among clients of disjoint data: not at all (shared),
    /// in equal parts, or in parts that follow the marginal benefit [default: shared]
    #[arg(long, value_name = "PARTS", requires = "clients")]
    partition: Option<Parts>,
    /// Clients serve each other what the servers miss (shared data only)
    #[arg(long, requires = "clients")]
    peer_fetch: bool,
    /// So many servers share the size of the second level; a block belongs to one of them, by its
    /// volume or by a hash
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    servers: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DataWord {
    Disjoint,
    Shared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Parts {
    Shared,
    Equal,
    Benefit,
}

impl ClientOptions {
    /// Whether there is more than one client above one server.
    pub(crate) fn is_used(&self) -> bool {
        !self.clients.is_empty() || self.servers.is_some()
    }

    /// Whether servers and what they do are asked for.
    pub(crate) fn has_servers(&self) -> bool {
        self.servers.is_some() || self.partition.is_some() || self.peer_fetch
    }

    /// Reads the traces of all clients.
    pub(crate) fn load(
        &self,
        options: &TraceOptions,
        path: &Path,
    ) -> Result<(Population, u32), Error> {
        let data = match self.data {
            Some(DataWord::Shared) => Data::Shared,
            Some(DataWord::Disjoint) | None => Data::Disjoint,
        };
        let by_space = self.clients.len() == 1 && self.clients[0].as_os_str() == "spaces";
        if by_space || self.clients.is_empty() {
            let (trace, block_bytes) = options.load(path, 1.0)?;
            let population = if by_space {
                Population::of_spaces(trace, data)?
            } else {
                Population::one(trace, path.display().to_string())
            };
            return Ok((population, block_bytes));
        }
        self.load_several(options, path, data)
    }

    fn load_several(
        &self,
        options: &TraceOptions,
        path: &Path,
        data: Data,
    ) -> Result<(Population, u32), Error> {
        let mut readers = Vec::new();
        for path in std::iter::once(path).chain(self.clients.iter().map(PathBuf::as_path)) {
            let reader = options.open(path)?;
            options.remark_on_block(path, reader.meta());
            readers.push((path.display().to_string(), reader));
        }
        let bar = Reading::start(path);
        let read = Population::read(readers, &options.input(), data, |records| bar.at(records))?;
        bar.done();
        Ok(read)
    }

    fn division(&self) -> Division {
        match self.partition {
            Some(Parts::Equal) => Division::Equal,
            Some(Parts::Benefit) => Division::Benefit,
            Some(Parts::Shared) | None => Division::Shared,
        }
    }
}

/// What is to be simulated.
pub(crate) struct Asked<'a> {
    pub(crate) path: &'a Path,
    pub(crate) trace: &'a TraceOptions,
    pub(crate) clients: &'a ClientOptions,
    pub(crate) timed: &'a TimedOptions,
    pub(crate) simulation: &'a SimulationOptions,
    pub(crate) placement: Placement,
    pub(crate) l1: &'a [LevelSpec],
    pub(crate) l2: &'a LevelSpec,
}

/// Runs clients and servers, and with a clock the same without placement too.
pub(crate) fn run(asked: &Asked<'_>) -> Result<Report, Error> {
    let (population, block_bytes) = asked.clients.load(asked.trace, asked.path)?;
    let trace: &DenseTrace = population.trace();
    let setup = ClientsSetup {
        first: asked.l1.to_vec(),
        server: asked.l2.clone(),
        servers: asked.clients.servers.unwrap_or(1),
        placement: asked.placement,
        write_mode: asked.simulation.write_mode,
        division: asked.clients.division(),
        peer_fetch: asked.clients.peer_fetch,
        warmup_records: asked.simulation.warmup.records(trace.seen().records)?,
        timing: asked.timed.timing(block_bytes)?,
    };
    let bar = Simulating::start(trace.len());
    let path = asked.path.display().to_string();
    let report = setup.run(&population, block_bytes, &path, |requests| bar.at(requests))?;
    bar.done();
    Ok(report)
}
