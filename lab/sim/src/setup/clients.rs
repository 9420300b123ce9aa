//! Several clients and servers as a person configures them, with or without a clock: from there to
//! the report. The program and the Python package run such simulations here.

use undercroft_cache::WriteMode;
use undercroft_cache::placement::Placement;
use undercroft_cache::topology::Division;

use crate::clients::{ClientsReport, Population, simulate_clients};
use crate::drive::Proceed;
use crate::timed::{simulate_timed, without_placement};
use crate::{ClientsConfig, Error, LevelSpec, Outcome, Report, TimedReport, Timing, trace_report};

/// A simulation of several clients or servers, or with a clock.
#[derive(Clone, Debug)]
pub struct ClientsSetup {
    /// The first level of each client, or one for all clients.
    pub first: Vec<LevelSpec>,
    /// The servers' caches; the size is the total.
    pub server: LevelSpec,
    /// Number of servers, from 1 to 64.
    pub servers: u32,
    /// When blocks are placed at the servers.
    pub placement: Placement,
    /// What writes do, at every level.
    pub write_mode: WriteMode,
    /// How each server's cache is divided among the clients.
    pub division: Division,
    /// Whether clients serve each other's reads that miss at the servers.
    pub peer_fetch: bool,
    /// Records at the start of the trace that are simulated but not counted.
    pub warmup_records: u64,
    /// Times; `None`: no clock.
    pub timing: Option<Timing>,
}

impl ClientsSetup {
    /// Simulates; with a clock and a placement, the same without placement too. `path` is the name
    /// of the trace in the report. `progress` is called with the references done so far, of each
    /// simulation.
    ///
    /// # Errors
    /// The configuration cannot be simulated, the trace cannot be read back, or `progress` stops
    /// the simulation.
    pub fn run<P: Proceed>(
        &self,
        population: &Population,
        block_bytes: u32,
        path: &str,
        mut progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let config = self.config(block_bytes, population.unique())?;
        let mut simulate = |config: &ClientsConfig| -> Result<Outcome, Error> {
            match &self.timing {
                Some(timing) => simulate_timed(population, config, timing, &mut progress),
                None => simulate_clients(population, config, &mut progress),
            }
        };
        let outcome = simulate(&config)?;
        let mut about = trace_report(path, population.trace());
        about.unique_blocks = population.unique().into();
        let levels = config.levels(population.names().len());
        let mut report = Report::new(about, block_bytes, &levels, &self.placement, &outcome);
        let policies = config.clients.iter().map(|level| level.policy.to_string());
        let policies: Vec<String> = policies.collect();
        if policies.iter().any(|policy| *policy != policies[0]) {
            report.levels[0].policy = policies.join(" | ");
        }
        let clients = outcome.clients.as_ref();
        report.clients = clients.map(|clients| ClientsReport::new(population, &config, clients));
        if self.timing.is_some() && self.placement != Placement::Access {
            let outcome = simulate(&without_placement(&config))?;
            report.timed_access = outcome.timed.as_ref().map(TimedReport::from);
        }
        Ok(report)
    }

    fn config(&self, block_bytes: u32, unique: u32) -> Result<ClientsConfig, Error> {
        let first = self.first.iter().map(|level| level.config(block_bytes, unique));
        Ok(ClientsConfig {
            clients: first.collect::<Result<_, _>>()?,
            server: self.server.config(block_bytes, unique)?,
            servers: self.servers,
            placement: self.placement,
            write_mode: self.write_mode,
            division: self.division,
            peer_fetch: self.peer_fetch,
            warmup_records: self.warmup_records,
        })
    }
}
