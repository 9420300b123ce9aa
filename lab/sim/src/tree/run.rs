//! Trees driven by traces without a clock: which configuration makes which tree, the references of
//! a trace and the evictions known from elsewhere, and what is counted. `timed/` has the clock.
//!
//! With placement at the access and one client, levels can run one after the other (`chain.rs`),
//! which is faster. Caches that cooperate exchange information at every reference.

use undercroft_flash::FlashCounts;
use undercroft_level::placement::{DataSource, Placement};
use undercroft_level::{EvictionPlacement, Level};
use undercroft_policy::{Context, Counts, Reference};
use undercroft_trace::{BlockNames, DenseTrace, Ref};

use super::estimate::Estimate;
use super::flash::BelowMemory;
use super::{Division, Server, ServerSpec, Tree, TreeRules};
use crate::aware::is_aware;
use crate::clients::ClientRef;
use crate::drive::{Proceed, Topology, drive, drive_in_parts};
use crate::{
    ClientOutcome, ClientsOutcome, Config, CooperationOutcome, Data, Error, Evictions, LevelConfig,
    Outcome, Population,
};

/// Bytes of a hint that reports an eviction.
pub(crate) const HINT_BYTES: u64 = 8;

/// Most servers.
const MAX_SERVERS: u32 = 64;

/// Runs caches that cooperate over the whole trace, with a warm-up of so many references.
/// `clients`: those of the trace, if there are several, or several servers.
///
/// # Errors
/// The configuration cannot be simulated, a spooled trace cannot be read back, or `progress` stops
/// the simulation.
pub(crate) fn simulate_tree<P: Proceed>(
    trace: &DenseTrace,
    clients: Option<&Population>,
    config: &Config,
    warmup: u64,
    progress: &mut dyn FnMut(u64) -> P,
) -> Result<Outcome, Error> {
    let mut run = Run::new(trace, clients, config)?;
    drive(trace, warmup, &mut run, progress)?;
    Ok(run.outcome(config))
}

/// What was counted from the start of a trace to some reference.
#[derive(Clone, Copy, Default)]
pub(crate) struct SoFar {
    /// The counts of the last level.
    pub(crate) counts: Counts,
    pub(crate) reloads: u64,
    pub(crate) flash: FlashCounts,
}

/// Runs levels that cooperate, or have flash below them. Returns what was counted at the end of
/// each of `parts` equal parts of the trace.
pub(crate) fn counts_in_parts(
    trace: &DenseTrace,
    config: &Config,
    parts: usize,
) -> Result<Vec<SoFar>, Error> {
    let mut run = Run::new(trace, None, config)?;
    let mut ends = Vec::new();
    drive_in_parts(trace, parts, |at, refs, is_end| {
        run.serve(at, refs);
        if is_end {
            let reloads = run.tree.placement_counts().iter().map(|counts| counts.reloads).sum();
            let levels = run.tree.level_counts();
            let flash = run.tree.flash().map(|flash| flash.outcome().counts).unwrap_or_default();
            ends.push(SoFar { counts: levels[levels.len() - 1], reloads, flash });
        }
    })?;
    Ok(ends)
}

/// A running tree, and where references and evictions come from.
struct Run<'a> {
    tree: Tree,
    /// Several clients, or servers.
    clients: Option<Clients<'a>>,
    evictions: &'a Evictions,
    /// Number of derived evictions passed on so far.
    passed: usize,
    estimate: Option<Estimate>,
}

/// The clients of a trace.
struct Clients<'a> {
    population: &'a Population,
    seen: Seen,
    /// Whether volumes decide a block's server.
    by_volume: bool,
}

impl<'a> Run<'a> {
    fn new(
        trace: &DenseTrace,
        clients: Option<&'a Population>,
        config: &'a Config,
    ) -> Result<Self, Error> {
        let evictions = &config.evictions;
        if let Some(population) = clients {
            let (mut tree, by_volume) = build(population, config)?;
            add_flash(&mut tree, config, population.unique(), None)?;
            let seen = Seen::new(population.unique());
            let clients = Some(Clients { population, seen, by_volume });
            return Ok(Self { tree, clients, evictions, passed: 0, estimate: None });
        }
        let mut tree = line(trace, config)?;
        add_flash(&mut tree, config, trace.unique(), Some(trace.names()))?;
        let mut estimate = None;
        if *evictions == Evictions::Estimated {
            tree.silence_client();
            estimate = Some(Estimate::new(trace.unique()));
        }
        Ok(Self { tree, clients: None, evictions, passed: 0, estimate })
    }

    /// Serves the `at`-th reference of the trace, of the only client.
    fn reference(&mut self, at: u64, reference: Reference) {
        if let Some(estimate) = &mut self.estimate {
            estimate.serve(&mut self.tree, reference);
            return;
        }
        self.tree.refer(reference);
        if let Evictions::Derived(derived) = self.evictions {
            while let Some(block) = derived.known(self.passed, at + 1) {
                self.tree.client_evicted(block.into());
                self.passed += 1;
            }
        }
    }

    fn outcome(self, config: &Config) -> Outcome {
        let by_volume = self.clients.is_some_and(|clients| clients.by_volume);
        let mut outcome = outcome(&self.tree, config, by_volume);
        if let (Some(cooperation), Some(estimate)) = (&mut outcome.cooperation, self.estimate) {
            cooperation.hint_bytes = 0;
            cooperation.estimate = Some(estimate.outcome(!self.tree.clients().is_empty()));
        }
        outcome
    }
}

impl Topology for Run<'_> {
    fn serve(&mut self, at: u64, refs: &[Ref]) {
        for (at, &r) in (at..).zip(refs) {
            if let Some(flash) = self.tree.flash_mut() {
                flash.at_request(at);
            }
            let Some(clients) = &mut self.clients else {
                self.reference(at, Reference::new(r.block(), r.is_write()));
                continue;
            };
            let ClientRef { client, block, is_write } = clients.population.resolve(r);
            let cold = clients.seen.is_first(block);
            self.tree.reference(client, block.into(), is_write, cold);
        }
    }

    fn restart_counts(&mut self) {
        self.tree.restart_counts();
        self.estimate.iter_mut().for_each(Estimate::restart_counts);
    }
}

/// Puts the flash level of a configuration, if it has one, below the last server of a tree. For the
/// other arguments see [`BelowMemory::new`].
pub(crate) fn add_flash(
    tree: &mut Tree,
    config: &Config,
    unique: u32,
    names: Option<&BlockNames>,
) -> Result<(), Error> {
    if let Some(level) = &config.lowest.flash {
        tree.set_flash(BelowMemory::new(level, config.block_bytes, unique, names)?);
    }
    Ok(())
}

/// Levels one below the other, or one below a client that is not simulated.
fn line(trace: &DenseTrace, config: &Config) -> Result<Tree, Error> {
    let (placement, mode) = (&config.placement(), config.write_mode);
    let lower = config.levels.get(1..).filter(|lower| !lower.is_empty()).unwrap_or(&config.levels);
    let lower = lower.iter().map(|wanted| {
        let mut level = Level::new(&wanted.policy, wanted.capacity, placement, mode, 0)?;
        let names = || (0..trace.unique()).map(|number| trace.names().name(number)).collect();
        level.number_blocks(level.needs_names().then(names));
        Ok(level)
    });
    let lower = lower.collect::<Result<Vec<_>, Error>>()?;
    let first = config.levels.first().filter(|_| config.levels.len() > 1);
    let first = first.map(|wanted| {
        placement.check_policy(wanted.policy.info().name)?;
        Ok::<_, Error>((wanted.policy.build(&Context::new(wanted.capacity))?, mode))
    });
    let mut tree = Tree::line(first.transpose()?, lower)?;
    if config.levels.get(1).is_some_and(is_aware) {
        tree.inform_server();
    }
    Ok(tree)
}

/// Clients above servers. Returns also whether volumes decide a block's server.
///
/// # Errors
/// There are not as many first levels as clients, too many servers, or a cache cannot be made.
pub(crate) fn build(population: &Population, config: &Config) -> Result<(Tree, bool), Error> {
    let (count, placement, mode) =
        (population.names().len(), config.placement(), config.write_mode);
    let sharing = config.sharing.unwrap_or_default();
    let (servers, division) = (sharing.servers, sharing.division);
    let given = config.levels.len().saturating_sub(1);
    let refuse = |why: String| Err(Error::Request(why));
    if given != 1 && given != count {
        return refuse(format!(
            "{given} first levels for {count} clients: give one for all of them, or one for each"
        ));
    }
    let LevelConfig { capacity, policy } = &config.levels[given];
    if !(1..=MAX_SERVERS).contains(&servers) || *capacity < servers {
        return refuse(format!(
            "{servers} servers of {capacity} blocks together: expected 1 to {MAX_SERVERS} of at \
             least one block each"
        ));
    }
    let clients = (0..count).map(|client| {
        let LevelConfig { capacity, policy } = config.client(client);
        placement.check_policy(policy.info().name)?;
        Ok(Level::of_policy(policy.build(&Context::new(*capacity))?, mode, 0))
    });
    let clients = clients.collect::<Result<_, Error>>()?;
    let caches = (0..servers).map(|i| {
        let capacity = capacity / servers + u32::from(i < capacity % servers);
        let policy = policy.clone();
        let spec = ServerSpec { policy, capacity, placement, write_mode: mode, division };
        Server::new(&spec, count, 0)
    });
    let caches = caches.collect::<Result<_, _>>()?;
    let shares_data = population.data() == Data::Shared;
    let rules = TreeRules { shares_data, peer_fetch: sharing.peer_fetch };
    let (homes, by_volume) = population.homes(servers as usize);
    let home = move |block: u64| homes[block as usize].into();
    let mut tree = Tree::new(clients, vec![caches], home, rules)?;
    tree.number_blocks();
    Ok((tree, by_volume))
}

/// What the caches counted. `by_volume`: whether volumes decide a block's server.
pub(crate) fn outcome(tree: &Tree, config: &Config, by_volume: bool) -> Outcome {
    let (levels, placement) = (tree.placement_counts(), config.placement());
    let cooperation = (placement != Placement::Access).then(|| {
        let sends = match placement {
            Placement::Eviction(eviction) => eviction.down == DataSource::Demote,
            Placement::Access | Placement::Global(_) => true,
        };
        // Every eviction is reported; blocks that another client still holds are not placed.
        let not_last = tree.counts().iter().map(|client| client.not_last).sum::<u64>();
        let known = levels[usize::from(!tree.clients().is_empty())].known_evictions;
        let parts = tree.servers(0).iter().flat_map(Server::parts);
        let staging = parts.filter_map(Level::placement).map(EvictionPlacement::staging_blocks);
        let table = match &config.evictions {
            Evictions::Derived(derived) => derived.counts().copied(),
            Evictions::Exact | Evictions::Estimated => None,
        };
        CooperationOutcome {
            hint_bytes: if sends { 0 } else { (known + not_last) * HINT_BYTES },
            staging_blocks: staging.sum(),
            levels,
            table,
            estimate: None,
        }
    });
    let is_line = !config.has_clients();
    let caches = tree.clients().iter().chain(tree.lower()).filter(|_| is_line);
    Outcome {
        levels: tree.level_counts(),
        flash: tree.flash().map(BelowMemory::outcome),
        leaders: caches.map(|level| level.policy().leader()).collect(),
        cooperation,
        clients: (!is_line).then(|| of_clients(tree, config, by_volume)),
        ..Outcome::default()
    }
}

fn of_clients(tree: &Tree, config: &Config, by_volume: bool) -> ClientsOutcome {
    let is_divided = config.sharing.unwrap_or_default().division != Division::Shared;
    let servers = tree.servers(0);
    let client = |client: usize| {
        let part = |server: &Server| u64::from(server.part(client).policy().capacity());
        ClientOutcome {
            own: *tree.clients()[client].cache().counts(),
            below: tree.counts()[client],
            part_blocks: is_divided.then(|| servers.iter().map(part).sum()),
        }
    };
    ClientsOutcome {
        clients: (0..tree.clients().len()).map(client).collect(),
        servers: servers.iter().map(Server::counts).collect(),
        by_volume,
        moved: servers.iter().map(Server::moved).sum(),
    }
}

/// The blocks referenced so far.
pub(crate) struct Seen(Vec<bool>);

impl Seen {
    pub(crate) fn new(blocks: u32) -> Self {
        Self(vec![false; blocks as usize])
    }

    /// Whether this is the first reference to a block.
    pub(crate) fn is_first(&mut self, block: u32) -> bool {
        !std::mem::replace(&mut self.0[block as usize], true)
    }
}
