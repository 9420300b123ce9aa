//! `undercroft simulate`: one hierarchy on one trace.

use std::io::{Write, stdout};

use undercroft_sim::{
    AwareReport, ClientsReport, Config, CooperationReport, LevelSpec, Prepared, Report, Setup,
    Warmup,
};

use crate::error::Error;
use crate::lab::clients::ClientOptions;
use crate::lab::cooperation::CooperationOptions;
use crate::lab::hierarchy::{self, HierarchyOptions};
use crate::lab::input::{SimulationOptions, TraceArg, TraceOptions};
use crate::lab::lowest::{LowestOptions, flash_row, flash_text, write_back_text};
use crate::lab::progress::{Reading, Simulating};
use crate::lab::timed::{self, TimedOptions};
use crate::table::{Table, bytes, count, percent};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    trace: TraceArg,
    /// The first level: SIZE:POLICY[,key=value...], as 64MiB:lru, 1000blk:mq,m=8 or 10%:arc; with
    /// several clients one for all of them, or given once for each
    #[arg(long, value_name = "LEVEL", required_unless_present = "topology")]
    l1: Vec<LevelSpec>,
    /// The level below it
    #[arg(long, value_name = "LEVEL")]
    l2: Option<LevelSpec>,
    /// The level below that
    #[arg(long, value_name = "LEVEL", requires = "l2")]
    l3: Option<LevelSpec>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    options: TraceOptions,
    #[command(flatten)]
    simulation: SimulationOptions,
    #[command(flatten)]
    lowest: LowestOptions,
    #[command(flatten)]
    hierarchy: HierarchyOptions,
    #[command(flatten)]
    cooperation: CooperationOptions,
    #[command(flatten)]
    clients: ClientOptions,
    #[command(flatten)]
    timed: TimedOptions,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let setup = args.setup()?;
    setup.check()?;
    let trace = args.load(&setup)?;
    let bar = Simulating::start(trace.trace().len());
    let report = setup.run(&trace, |requests| bar.at(requests))?;
    bar.done();
    let mut out = stdout().lock();
    if args.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&mut out, &report, args)?;
    }
    Ok(())
}

impl Args {
    /// What is to be simulated.
    fn setup(&self) -> Result<Setup, Error> {
        if self.lowest.flash.len() > 1 {
            return Err(Error::Usage("--flash: one level; sweep compares several".into()));
        }
        let config = Config {
            rule: self.cooperation.one_rule(&self.simulation)?,
            evictions: self.cooperation.kind(),
            write_mode: self.simulation.write_mode,
            lowest: self.lowest.lowest(),
            sharing: self.clients.sharing(),
            timing: self.timed.timing()?,
            ..Config::default()
        };
        let setup = Setup {
            first: self.l1.clone(),
            lower: self.l2.iter().chain(&self.l3).cloned().collect(),
            warmup: self.simulation.warmup,
            config,
            ..Setup::default()
        };
        Ok(self.hierarchy.add_to(setup))
    }

    /// The references of all clients, with the source of evictions.
    fn load(&self, setup: &Setup) -> Result<Prepared, Error> {
        let path = &self.trace.path;
        if setup.config.has_clients() {
            return self.clients.load(&self.options, path);
        }
        let bar = Reading::start(path);
        let trace = self.cooperation.load(&self.options, path, |records| bar.at(records))?;
        bar.done();
        Ok(trace)
    }
}

/// What the hits cost: time, disk traffic, and what goes between the levels.
fn print_price(out: &mut impl Write, report: &Report) -> Result<(), Error> {
    let demotions: u64 = report.levels.iter().map(|level| level.demotions_in).sum();
    write!(out, "response time  {:.3} ms a read", report.response_time_ms)?;
    if report.timed.is_some() {
        write!(out, " by the model without waiting")?;
    }
    if demotions > 0 {
        let charged = report.response_time_with_demotions_ms;
        let how = match report.movement.as_ref().map(|movement| movement.demotion_cost.as_str()) {
            None | Some("rtt") => "if each demotion costs a round trip".to_string(),
            Some(how) => format!("with demotions ({how})"),
        };
        write!(out, ", {charged:.3} ms {how}")?;
    }
    let disk = &report.disk;
    if disk.reloads > 0 {
        let charged = report.response_time_with_reloads_ms;
        write!(out, "; reloads are not in it, {charged:.3} ms if a read waits for each")?;
    }
    let (reads, writes) = (count(disk.demand_reads), count(disk.writes));
    write!(out, "\ndisk           {reads} blocks read, ")?;
    if disk.reloads > 0 {
        let (reloads, all) = (count(disk.reloads), count(disk.demand_reads + disk.reloads));
        write!(out, "{reloads} reloaded, that is {all} reads in all, ")?;
    }
    writeln!(out, "{writes} written")?;
    let through = report.levels.last().map_or(0, |level| level.writes);
    if let Some(counts) = &report.write_back {
        writeln!(out, "{}", write_back_text(counts, through))?;
    }
    if let Some(flash) = &report.flash {
        writeln!(out, "{}", flash_text(flash))?;
    }
    let streamed: u64 = report.levels.iter().map(|level| level.streamed).sum();
    if streamed > 0 {
        writeln!(out, "streams        {} blocks passed the lowest level", count(streamed))?;
    }
    if let Some(cooperation) = &report.cooperation {
        let sent = count(demotions);
        let hints = bytes(cooperation.hint_bytes);
        writeln!(out, "between levels {sent} blocks sent down, {hints} of hints")?;
        print_cooperation(out, report, cooperation)?;
    }
    print_awareness(out, &report.aware)?;
    if let Some(movement) = &report.movement {
        hierarchy::print(out, movement)?;
    }
    writeln!(out)?;
    Ok(())
}

/// What content-aware levels believed of their neighbour, and what it cost to know.
fn print_awareness(out: &mut impl Write, levels: &[AwareReport]) -> Result<(), Error> {
    if levels.is_empty() {
        return Ok(());
    }
    let columns =
        ["knowing", "evicted as held", "stale", "mistaken", "summaries", "bytes", "right"];
    let mut table = Table::new(&columns);
    for level in levels {
        table.row(vec![
            level.level.clone(),
            count(level.held_evictions),
            count(level.stale_evictions),
            count(level.mistaken_evictions),
            count(level.summaries),
            bytes(level.summary_bytes),
            level.confidence.map_or_else(String::new, percent),
        ]);
    }
    writeln!(out)?;
    table.print(out, 1)?;
    for level in levels {
        if let Some(rate) = level.false_positive_rate {
            let (name, whole) = (&level.level, count(level.whole_summaries));
            writeln!(
                out,
                "{name}: {whole} of the summaries whole; false positives of a full one by the \
                 formula {}",
                percent(rate)
            )?;
        }
        if level.distrusted > 0 {
            let distrusted = count(level.distrusted);
            writeln!(out, "{}: emulation not trusted at {distrusted} requests", level.level)?;
        }
    }
    Ok(())
}

fn print_cooperation(
    out: &mut impl Write,
    report: &Report,
    cooperation: &CooperationReport,
) -> Result<(), Error> {
    if cooperation.staging_blocks > 0 {
        let staging = count(cooperation.staging_blocks.into());
        writeln!(out, "staging area   {staging} blocks beside the cache, at the end")?;
    }
    if let Some(estimate) = &cooperation.estimate {
        let truth = estimate.true_precision.map_or_else(String::new, |share| {
            format!(", {} by the simulated client", percent(share))
        });
        writeln!(
            out,
            "client         {} blocks by emulation; precision {}{truth}, recall {}; {} of the \
             references placed at the access for want of confidence",
            count(estimate.client_blocks.into()),
            percent(estimate.precision),
            percent(estimate.recall),
            percent(estimate.fallback),
        )?;
    }
    if let Some(late) = cooperation.late_evictions {
        let all = late + cooperation.derived_evictions.unwrap_or(0);
        let (late, all) = (count(late), count(all));
        writeln!(
            out,
            "evictions      {all} derived from buffer addresses, {late} of them too late"
        )?;
    }
    let columns =
        ["level", "placement", "evicted above", "reloads", "sent down", "staged", "skipped"];
    let mut table = Table::new(&columns);
    for level in report.levels.iter().filter(|level| level.placement != "access") {
        let numbers = [
            level.known_evictions,
            level.reloads,
            level.demotions_in,
            level.staged,
            level.reloads_skipped,
        ];
        let names = [level.name.clone(), level.placement.clone()];
        table.row(names.into_iter().chain(numbers.into_iter().map(count)).collect());
    }
    writeln!(out)?;
    table.print(out, 2)?;
    Ok(())
}

/// Who was served where.
fn print_clients(out: &mut impl Write, clients: &ClientsReport) -> Result<(), Error> {
    let mut heading = vec!["client", "reads", "l1", "l1 hits", "server", "peers", "disk"];
    let is_divided = clients.partition != "shared";
    if is_divided {
        heading.push("part");
    }
    let mut table = Table::new(&heading);
    for client in &clients.clients {
        let share = |reads: u64| percent(reads as f64 / client.reads.max(1) as f64);
        let mut cells = vec![
            client.name.clone(),
            count(client.reads),
            format!("{} blocks", count(client.capacity_blocks.into())),
            share(client.read_hits),
            share(client.server_hits),
            share(client.peer_hits),
            share(client.disk_reads),
        ];
        if is_divided {
            cells.push(format!("{} blocks", count(client.part_blocks.unwrap_or(0))));
        }
        table.row(cells);
    }
    table.print(out, 1)?;
    writeln!(out)?;
    if clients.partition == "benefit" {
        let moved = count(clients.moved_blocks);
        writeln!(out, "parts          {moved} blocks moved by marginal benefit")?;
    }
    if clients.servers.len() > 1 {
        let ratios: Vec<_> = clients.servers.iter().map(|&ratio| percent(ratio)).collect();
        let (ratios, home) = (ratios.join(", "), &clients.home);
        writeln!(out, "servers        hit ratios {ratios}; the home of a block by {home}")?;
    }
    Ok(())
}

/// The answer first, the bookkeeping after it.
fn print(out: &mut impl Write, report: &Report, args: &Args) -> Result<(), Error> {
    let block = u64::from(report.block_bytes);
    let mut table = Table::new(&["level", "policy", "size", "", "hit ratio", "of all reads"]);
    for level in &report.levels {
        let size = u64::from(level.capacity_blocks);
        let share = level.read_hits as f64 / report.aggregate.reads.max(1) as f64;
        table.row(vec![
            level.name.clone(),
            match &level.leader {
                Some(leader) => format!("{} ({leader} leads)", level.policy),
                None => level.policy.clone(),
            },
            format!("{} blocks", count(size)),
            bytes(size * block),
            percent(level.read_hit_ratio),
            percent(share),
        ]);
    }
    if let Some(flash) = &report.flash {
        table.row(flash_row(flash, block));
    }
    if report.levels.len() > 1 || report.flash.is_some() {
        let all = percent(report.aggregate.read_hit_ratio);
        let dash = String::new;
        table.row(vec!["all".into(), dash(), dash(), dash(), dash(), all]);
    }
    table.print(out, 2)?;
    writeln!(out)?;
    if let Some(clients) = &report.clients {
        print_clients(out, clients)?;
    }
    timed::print(out, report)?;
    print_price(out, report)?;
    let columns = ["level", "reads", "hits", "cold", "writes", "write hits", "evictions"];
    let mut table = Table::new(&columns);
    for level in &report.levels {
        let numbers = [
            level.reads,
            level.read_hits,
            level.cold_reads,
            level.writes,
            level.write_hits,
            level.evictions,
        ];
        let cells = numbers.into_iter().map(count);
        table.row([level.name.clone()].into_iter().chain(cells).collect());
    }
    table.print(out, 1)?;
    let trace = &report.trace;
    writeln!(
        out,
        "\ntrace {} ({}): {} requests, {} distinct blocks of {}{}",
        trace.path,
        trace.format,
        count(trace.requests),
        count(trace.unique_blocks),
        bytes(block),
        match args.simulation.warmup {
            Warmup::Records(0) => String::new(),
            Warmup::Records(records) => format!("; the first {} records uncounted", count(records)),
            Warmup::Percent(share) => format!("; the first {share} % of the records uncounted"),
        }
    )?;
    if trace.left_out > 0 {
        writeln!(out, "{} records move no data: left out", count(trace.left_out))?;
    }
    let rate = report.requests_per_s / 1e6;
    writeln!(out, "simulated in {:.2} s, {rate:.1} million requests/s", report.elapsed_s)?;
    Ok(())
}
