//! The options of simulations of several clients, several servers, or with a clock; reading their
//! traces, and running them.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use undercroft_cache::placement::Placement;
use undercroft_cache::topology::Division;
use undercroft_sim::{
    ClientsConfig, ClientsReport, Data, LevelSpec, Population, Report, TimedReport,
    simulate_clients, simulate_timed, trace_report, without_placement,
};
use undercroft_trace::{BlockOptions, DenseTrace};

use crate::error::Error;
use crate::input::{SimulationOptions, TraceOptions};
use crate::progress::{Reading, Simulating};
use crate::timed::TimedOptions;

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
        let mut block_bytes = None;
        for path in std::iter::once(path).chain(self.clients.iter().map(PathBuf::as_path)) {
            let reader = options.open(path)?;
            options.remark_on_block(path, reader.meta());
            // The first that states a size; the others must not state another.
            if reader.meta().block_bytes.is_some() || options.block.is_some() {
                block_bytes = block_bytes.or(Some(options.block_bytes(reader.as_ref())?));
            }
            readers.push((path.display().to_string(), reader));
        }
        let (_, first) = &readers[0];
        let block_bytes = block_bytes.map_or_else(|| options.block_bytes(first.as_ref()), Ok)?;
        let blocks =
            BlockOptions { block_bytes, unit_bytes: options.unit, ..BlockOptions::default() };
        let bar = Reading::start(path);
        let population = Population::of_traces(readers, &blocks, data, |records| bar.at(records))?;
        bar.done();
        Ok((population, block_bytes))
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
    let unique = population.unique();
    let first = asked.l1.iter().map(|spec| spec.config(block_bytes, unique));
    let config = ClientsConfig {
        clients: first.collect::<Result<_, _>>()?,
        server: asked.l2.config(block_bytes, unique)?,
        servers: asked.clients.servers.unwrap_or(1),
        placement: asked.placement,
        write_mode: asked.simulation.write_mode,
        division: asked.clients.division(),
        peer_fetch: asked.clients.peer_fetch,
        warmup_records: asked.simulation.warmup.records(trace.seen().records)?,
    };
    let timing = asked.timed.timing(block_bytes)?;
    let simulate = |config: &ClientsConfig| {
        let bar = Simulating::start(trace.len());
        let outcome = match &timing {
            Some(timing) => simulate_timed(&population, config, timing, |n| bar.at(n)),
            None => simulate_clients(&population, config, |n| bar.at(n)),
        }?;
        bar.done();
        Ok::<_, Error>(outcome)
    };
    let outcome = simulate(&config)?;
    let mut about = trace_report(&asked.path.display().to_string(), trace);
    about.unique_blocks = unique.into();
    let levels = config.levels(population.names().len());
    let mut report = Report::new(about, block_bytes, &levels, &asked.placement, &outcome);
    let policies: Vec<_> = config.clients.iter().map(|level| level.policy.to_string()).collect();
    if policies.iter().any(|policy| *policy != policies[0]) {
        report.levels[0].policy = policies.join(" | ");
    }
    report.clients =
        outcome.clients.as_ref().map(|clients| ClientsReport::new(&population, &config, clients));
    if timing.is_some() && asked.placement != Placement::Access {
        let outcome = simulate(&without_placement(&config))?;
        report.timed_access = outcome.timed.as_ref().map(TimedReport::from);
    }
    Ok(report)
}
