//! The report of a simulation, of whatever kind: from its configuration and its outcome.

use undercroft_level::placement::Placement;

use super::{AggregateReport, CooperationReport, DiskReport, LevelReport, Report, TraceReport};
use crate::clients::ClientsReport;
use crate::costs::{Costs, DISK_MS, FLASH_MS, LEVEL_MS};
use crate::movement::MovementReport;
use crate::run::Input;
use crate::timed::TimedReport;
use crate::{Config, FlashReport, Outcome, Population, Rule};

impl TraceReport {
    /// The contents of a trace, and its name.
    pub fn new<'a>(path: &str, input: impl Into<Input<'a>>) -> Self {
        let Input { trace, population } = input.into();
        let seen = trace.seen();
        Self {
            path: path.into(),
            format: trace.meta().format.into(),
            records: seen.records,
            requests: seen.references(),
            reads: seen.reads,
            writes: seen.writes,
            unique_blocks: population.map_or(trace.unique(), Population::unique).into(),
            left_out: trace.left_out().total(),
        }
    }
}

impl Report {
    /// The results of `config` on a trace with this name.
    pub fn new<'a>(
        path: &str,
        input: impl Into<Input<'a>>,
        config: &Config,
        outcome: &Outcome,
    ) -> Self {
        let input = input.into();
        // Levels beyond the third have no default times.
        let default = || Costs { levels_ms: LEVEL_MS.to_vec(), disk_ms: DISK_MS };
        let mut costs = config.costs().unwrap_or_else(|_| default());
        let mut hits: Vec<u64> = outcome.levels.iter().map(|level| level.read_hits).collect();
        if outcome.flash.is_some() {
            costs.levels_ms.truncate(hits.len());
            costs.levels_ms.push(costs.levels_ms.last().unwrap_or(&0.0) + FLASH_MS);
            hits.push(outcome.flash_hits());
        }
        let response_time_ms = costs.mean_ms(&hits, outcome.peer_hits(), outcome.disk_reads());
        let reloads_ms = outcome.reloads() as f64 * costs.disk_ms / outcome.reads().max(1) as f64;
        let clients = outcome.clients.as_ref().zip(input.population);
        let movement = outcome.movement.as_ref().zip(config.tree.as_ref());
        let movement = movement
            .map(|(moved, tree)| MovementReport::new((config, tree), &costs, outcome, moved));
        let demotions_ms = match &movement {
            Some(movement) => movement.charged_ms + movement.waited_ms,
            None => demotions_ms(config, &costs, outcome),
        };
        let cooperation = outcome.cooperation.as_ref().map(|cooperation| CooperationReport {
            hint_bytes: cooperation.hint_bytes,
            staging_blocks: cooperation.staging_blocks,
            derived_evictions: cooperation.table.map(|table| table.reported),
            late_evictions: cooperation.table.map(|table| table.late),
            estimate: cooperation.estimate,
        });
        let elapsed_s = outcome.elapsed.as_secs_f64();
        Self {
            trace: TraceReport::new(path, input),
            block_bytes: config.block_bytes,
            levels: (0..outcome.levels.len()).map(|i| level(config, outcome, i)).collect(),
            aggregate: AggregateReport {
                reads: outcome.reads(),
                read_hits: outcome.read_hits(),
                read_hit_ratio: outcome.read_hit_ratio(),
            },
            disk: DiskReport {
                demand_reads: outcome.disk_reads(),
                reloads: outcome.reloads(),
                writes: outcome.disk_writes(),
            },
            write_back: outcome.write_back,
            flash: outcome.flash.as_ref().zip(config.lowest.flash.as_ref()).map(|(done, level)| {
                let first = outcome.levels.first().map_or(0, |first| first.reads + first.writes);
                let by_rate = level.requests_per_s.map(|rate| first as f64 / rate);
                let by_clock = outcome.timed.as_ref().map(|timed| timed.elapsed_ns as f64 / 1e9);
                let days = by_clock.or(by_rate).map(|seconds| seconds / 86_400.0);
                FlashReport::new(level, done, config.block_bytes, (outcome.reads(), days))
            }),
            cooperation,
            aware: outcome.aware.clone(),
            clients: clients.map(|(counts, of)| ClientsReport::new(of, config, counts)),
            timed: outcome.timed.as_ref().map(TimedReport::from),
            timed_access: None,
            movement,
            response_time_ms,
            response_time_with_demotions_ms: response_time_ms + demotions_ms,
            response_time_with_reloads_ms: response_time_ms + reloads_ms,
            elapsed_s,
            cpu_s: outcome.cpu.as_secs_f64(),
            requests_per_s: outcome.references as f64 / elapsed_s.max(1e-9),
        }
    }
}

/// Mean time that a read is charged for demotions: each costs a round trip from the level above.
fn demotions_ms(config: &Config, costs: &Costs, outcome: &Outcome) -> f64 {
    let trip = |i: usize| match i {
        // The client above a single level is not simulated, and only the default times know its.
        0 if outcome.levels.len() == 1 && config.times.costs.is_none() => LEVEL_MS[1] - LEVEL_MS[0],
        0 => 0.0,
        _ => costs.levels_ms.get(i).map_or(0.0, |ms| ms - costs.levels_ms[i - 1]),
    };
    let levels = outcome.cooperation.iter().flat_map(|cooperation| &cooperation.levels);
    let trips = levels.enumerate().map(|(i, level)| level.demotions_in as f64 * trip(i));
    if outcome.reads() == 0 { 0.0 } else { trips.sum::<f64>() / outcome.reads() as f64 }
}

/// The report of a level, or of a cache under a scheme.
fn level(config: &Config, outcome: &Outcome, i: usize) -> LevelReport {
    let counts = &outcome.levels[i];
    // The first of several levels always places at the access.
    let is_top = i == 0 && outcome.levels.len() > 1;
    let placement = match &config.rule {
        Rule::Placement(_) if is_top => Placement::Access.to_string(),
        rule => rule.to_string(),
    };
    let (name, policy, capacity_blocks) = described(config, outcome, i);
    let placed = outcome.cooperation.as_ref().and_then(|all| all.levels.get(i).copied());
    let placed = placed.unwrap_or_default();
    let moved = outcome.movement.as_ref().map(|all| all.nodes[i].clone()).unwrap_or_default();
    LevelReport {
        name,
        policy,
        leader: outcome.leaders.get(i).copied().flatten().map(str::to_owned),
        placement,
        capacity_blocks,
        reads: counts.reads,
        read_hits: counts.read_hits,
        writes: counts.writes,
        write_hits: counts.write_hits,
        cold_reads: counts.cold_reads,
        read_hit_ratio: counts.read_hit_ratio(),
        evictions: counts.evictions,
        streamed: counts.streamed,
        demotions_in: placed.demotions_in + moved.demotions_in,
        demote_hits: has_demote_hits(config, i).then_some(moved.resent_in),
        promotions_in: moved.promotions_in,
        reloads: placed.reloads,
        known_evictions: placed.known_evictions,
        reloads_skipped: placed.skipped,
        staged: placed.staged,
        staged_hits: placed.staged_hits,
    }
}

/// Whether the scheme DEMOTE sends blocks to a cache: to all but those that clients stand at.
fn has_demote_hits(config: &Config, node: usize) -> bool {
    let is_demote = matches!(&config.rule, Rule::Scheme(scheme) if scheme.info().name == "demote");
    let topology = config.tree.as_ref().map(|tree| &tree.topology).filter(|_| is_demote);
    topology.is_some_and(|known| (0..known.clients()).all(|client| known.path(client)[0] != node))
}

/// Name, policy and size of a level. The first levels of several clients count as one.
fn described(config: &Config, outcome: &Outcome, i: usize) -> (String, String, u32) {
    if let Some(tree) = &config.tree {
        return (tree.names[i].clone(), tree.policy.clone(), tree.topology.capacity(i));
    }
    let name = format!("l{}", i + 1);
    let Some(clients) = outcome.clients.as_ref().filter(|_| i == 0) else {
        // Below several clients the servers are the last.
        let level = &config.levels[config.levels.len() - outcome.levels.len() + i];
        return (name, level.policy.to_string(), level.capacity);
    };
    let sizes = (0..clients.clients.len()).map(|client| config.client(client).capacity);
    let first = &config.levels[..config.levels.len() - 1];
    let mut policies: Vec<String> = first.iter().map(|level| level.policy.to_string()).collect();
    if policies.iter().all(|policy| *policy == policies[0]) {
        policies.truncate(1);
    }
    (name, policies.join(" | "), sizes.fold(0, u32::saturating_add))
}
