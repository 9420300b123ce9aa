//! Several clients and servers, with or without a clock: from what a person configures to the
//! report.

use undercroft_cache::placement::Placement;

use super::{Prepared, Setup, configs};
use crate::clients::{ClientsReport, simulate_clients};
use crate::drive::Proceed;
use crate::timed::{simulate_timed, without_placement};
use crate::{ClientsConfig, Error, Outcome, Report, TimedReport, Timing};

impl Setup {
    /// Simulates; with a clock and a placement, the same without placement too.
    pub(super) fn share<P: Proceed>(
        &self,
        trace: &Prepared,
        placement: Placement,
        mut progress: impl FnMut(u64) -> P,
    ) -> Result<Report, Error> {
        let (population, block_bytes) = (&trace.population, trace.block_bytes);
        let sharing = self.sharing.unwrap_or_default();
        let config = ClientsConfig {
            clients: configs(&self.first, trace)?,
            server: self.lower[0].config(block_bytes, population.unique())?,
            servers: sharing.servers,
            placement,
            write_mode: self.write_mode,
            division: sharing.division,
            peer_fetch: sharing.peer_fetch,
            warmup_records: self.warmup_records(trace)?,
        };
        let timing = self.timing.map(|timing| Timing { block_bytes, ..timing });
        let mut simulate = |config: &ClientsConfig| -> Result<Outcome, Error> {
            match &timing {
                Some(timing) => simulate_timed(population, config, timing, &mut progress),
                None => simulate_clients(population, config, &mut progress),
            }
        };
        let outcome = simulate(&config)?;
        let levels = config.levels(population.names().len());
        let about = trace.about.clone();
        let mut report = Report::new(about, block_bytes, &levels, &outcome);
        let policies = config.clients.iter().map(|level| level.policy.to_string());
        let policies: Vec<String> = policies.collect();
        if policies.iter().any(|policy| *policy != policies[0]) {
            report.levels[0].policy = policies.join(" | ");
        }
        let clients = outcome.clients.as_ref();
        report.clients = clients.map(|clients| ClientsReport::new(population, &config, clients));
        if timing.is_some() && placement != Placement::Access {
            let outcome = simulate(&without_placement(&config))?;
            report.timed_access = outcome.timed.as_ref().map(TimedReport::from);
        }
        Ok(report)
    }
}
