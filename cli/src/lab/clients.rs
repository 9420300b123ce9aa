//! The options of simulations of several clients or several servers, and reading their traces.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use undercroft_sim::tree::Division;
use undercroft_sim::{Data, Evictions, Population, Prepared, Sharing};

use crate::error::Error;
use crate::lab::input::{TraceOptions, of_option};
use crate::lab::progress::Reading;

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
    /// What clients and servers share, unless there is one of each.
    pub(crate) fn sharing(&self) -> Option<Sharing> {
        let is_used = !self.clients.is_empty() || self.servers.is_some();
        let division = match self.partition {
            Some(Parts::Equal) => Division::Equal,
            Some(Parts::Benefit) => Division::Benefit,
            Some(Parts::Shared) | None => Division::Shared,
        };
        let (servers, peer_fetch) = (self.servers.unwrap_or(1), self.peer_fetch);
        is_used.then_some(Sharing { servers, division, peer_fetch })
    }

    /// Reads the traces of all clients.
    pub(crate) fn load(&self, options: &TraceOptions, path: &Path) -> Result<Prepared, Error> {
        let is_shared = self.data == Some(DataWord::Shared);
        let data = if is_shared { Data::Shared } else { Data::Disjoint };
        let name = path.display().to_string();
        let by_space = self.clients.len() == 1 && self.clients[0].as_os_str() == "spaces";
        if by_space || self.clients.is_empty() {
            let (trace, block_bytes) = options.load(path, 1.0)?;
            if !by_space {
                return Ok(Prepared::new(trace, name, block_bytes, Evictions::Exact));
            }
            let population = Population::of_spaces(trace, data)?;
            return Ok(Prepared::of_clients(population, &name, block_bytes));
        }
        let mut readers = Vec::new();
        for path in std::iter::once(path).chain(self.clients.iter().map(PathBuf::as_path)) {
            let reader = options.open(path)?;
            options.remark_on_block(path, reader.meta());
            readers.push((path.display().to_string(), reader));
        }
        let bar = Reading::start(path);
        let read = Population::read(readers, &options.input(), data, |records| bar.at(records));
        let (population, block_bytes) = read.map_err(of_option)?;
        bar.done();
        Ok(Prepared::of_clients(population, &name, block_bytes))
    }
}
