//! Replays a trace against a server: every block request that the first level does not serve goes
//! to the volume, in order; consecutive blocks are merged into one request.
//!
//! At depth 1 and on one connection, the server sees exactly the references that the simulator's
//! second level sees, and must count the same. With more requests in flight their order is not
//! fixed, except that requests for the same block keep theirs.
//!
//! A replay can tell the server what leaves its first level (`reporting_level.rs`). Its first level
//! can use what the server holds (`aware_level.rs`). `player.rs` keeps requests in flight.

mod aware_level;
mod content;
mod empty;
mod layout;
mod player;
mod reporting_level;
mod tally;

use std::time::Instant;

use serde::Serialize;
use undercroft_level::{Below, DenseLevel};
use undercroft_nbd::{Client, ClientError, ClientOptions, ExportInfo, Uri};
use undercroft_policy::{Awareness, Counts, Policy, Reference, WriteMode};
use undercroft_trace::DenseTrace;

use aware_level::AwareLevel;
use content::Versions;
use layout::Layout;
use player::Player;
use reporting_level::ReportingLevel;
use undercroft_hints::{Mailbox, Report};

pub use aware_level::{KnownReport, ProbeReport};
pub use empty::first_data;
pub use reporting_level::ToldReport;

/// Most bytes of a request.
const REQUEST_BYTES: u32 = 128 << 10;

/// Options of a replay.
pub struct Replay {
    /// The first level; `None`: the server is the first level.
    pub l1: Option<Box<dyn Policy>>,
    /// What a write does to the first level.
    pub write_mode: WriteMode,
    /// Requests in flight on all connections together; at least 1.
    pub depth: usize,
    /// Connections; at least 1.
    pub connections: usize,
    /// Whether each block is a request of its own, even where blocks are consecutive. Replays that
    /// report evictions always do so.
    pub single: bool,
    /// Whether to check every byte that is read.
    pub verify: bool,
    /// What the server is told about blocks that leave the first level. Other values than `Nothing`
    /// need a first level.
    pub report: Report,
    /// Hints in a message (1 to 64), and requests between two questions about what the server
    /// holds.
    pub batch: usize,
    /// How a content-aware first level learns what the server holds.
    pub below: Below,
    /// The form in which the server tells that, and in which the first level publishes summaries.
    pub awareness: Awareness,
    /// Whether to find out the server's policy and capacity from the replies.
    pub probe: bool,
    /// How to connect.
    pub options: ClientOptions,
}

impl Default for Replay {
    /// One request at a time on one connection, without a first level; nothing is told or checked.
    fn default() -> Self {
        Self {
            l1: None,
            write_mode: WriteMode::Allocate,
            depth: 1,
            connections: 1,
            single: false,
            verify: false,
            report: Report::Nothing,
            batch: 1,
            below: Below::Nothing,
            awareness: Awareness::default(),
            probe: false,
            options: ClientOptions::default(),
        }
    }
}

/// The results of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Block requests of the trace.
    pub requests: u64,
    /// The first level, if there was one.
    pub l1: Option<L1Report>,
    /// What the server was told, if a report was configured.
    pub told: Option<ToldReport>,
    /// What the first level knew about the server, if it is content-aware or publishes summaries.
    pub known: Option<KnownReport>,
    /// What the server's cache appears to be, if it was probed.
    pub probed: Option<ProbeReport>,
    /// NBD requests sent.
    pub requests_sent: u64,
    /// Blocks read from the server.
    pub blocks_read: u64,
    /// Blocks written to the server.
    pub blocks_written: u64,
    /// Blocks whose bytes were checked.
    pub blocks_verified: u64,
    /// Those of them that were wrong.
    pub mismatches: u64,
    /// Descriptions of the first wrong blocks.
    pub mismatched: Vec<String>,
    /// Seconds from the first request to the last answer.
    pub elapsed_s: f64,
    /// NBD requests per second.
    pub requests_per_s: f64,
    /// Latencies from a request to its answer.
    pub latency_us: LatencyReport,
}

/// Counts of the first level.
#[derive(Clone, Debug, Serialize)]
pub struct L1Report {
    /// Capacity in blocks.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Reads that were hits.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Writes that were hits.
    pub write_hits: u64,
    /// Read hits / reads.
    pub read_hit_ratio: f64,
    /// Blocks evicted by replacement.
    pub evictions: u64,
}

impl L1Report {
    fn new(capacity_blocks: u32, counts: &Counts) -> Self {
        Self {
            capacity_blocks,
            reads: counts.reads,
            read_hits: counts.read_hits,
            writes: counts.writes,
            write_hits: counts.write_hits,
            read_hit_ratio: counts.read_hit_ratio(),
            evictions: counts.evictions,
        }
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Debug, Serialize)]
pub struct LatencyReport {
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest latency.
    pub max: f64,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The server cannot be reached, or a request failed.
    #[error("{0}: {1}")]
    Server(Uri, ClientError),
    /// The volume cannot hold the trace.
    #[error("{uri} has {has} bytes; the trace needs {needs}")]
    TooSmall {
        /// The volume.
        uri: Uri,
        /// Its bytes.
        has: u64,
        /// Bytes needed.
        needs: u64,
    },
    /// The volume is read-only, and the trace writes.
    #[error("{0} is read-only, and the trace has writes")]
    ReadOnly(Uri),
    /// Hints count in the server's blocks, and the trace's blocks have another size.
    #[error("{uri} has blocks of {has} bytes, the trace is played in blocks of {wants}")]
    OtherBlocks {
        /// The volume.
        uri: Uri,
        /// Its blocks in bytes.
        has: u32,
        /// The trace's blocks in bytes.
        wants: u32,
    },
    /// With several connections the answers about the server's cache would have no fixed order.
    #[error(
        "a first level that goes by what the server holds, or publishes what it holds, has one \
             connection: leave --connections out"
    )]
    OneConnection,
    /// The policy to emulate cannot be built.
    #[error("{0}")]
    Policy(String),
    /// A report needs a first level.
    #[error("nothing leaves a first level that is not there: give one, or report nothing")]
    NoFirstLevel,
    /// The trace's block numbers exceed the largest possible volume.
    #[error("the trace's blocks reach beyond 2^64 bytes")]
    TooFar,
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] undercroft_trace::Error),
}

/// Replays a trace with blocks of `block_bytes` bytes against the volume `uri`. `progress` is
/// called with the number of block requests done.
///
/// # Errors
/// The first request that fails ends the replay.
pub async fn replay(
    trace: &DenseTrace,
    block_bytes: u32,
    uri: &Uri,
    mut how: Replay,
    progress: impl FnMut(u64),
) -> Result<ReplayReport, ReplayError> {
    let layout = Layout::new(trace, block_bytes).ok_or(ReplayError::TooFar)?;
    let versions = Versions::new(trace.unique());
    let pace = (how.depth, how.verify);
    let started = Instant::now();
    let is_aware = how.below != Below::Nothing || how.report == Report::Digest || how.probe;
    if is_aware && how.connections > 1 {
        return Err(ReplayError::OneConnection);
    }
    if !is_aware && how.report == Report::Nothing {
        let mut clients = Vec::new();
        for _ in 0..how.connections.max(1) {
            let client = Client::connect(uri, &how.options).await;
            clients.push(client.map_err(|error| ReplayError::Server(uri.clone(), error))?);
        }
        check(trace, block_bytes, uri, &layout, &clients[0].remote().info)?;
        let mut player = Player::new(uri, clients, block_bytes, pace, versions);
        let l1 = how.l1.map(|policy| DenseLevel::new(policy, how.write_mode));
        let blocks_max = (player.request_bytes() / block_bytes).max(1) as usize;
        let most = if how.single { 1 } else { blocks_max };
        let l1 = play_quietly(trace, (&layout, most), l1, &mut player, progress).await?;
        let report = player.tally.report(started.elapsed(), trace.len());
        return Ok(ReplayReport { l1, ..report });
    }
    // The session's own size includes the window, so ask for the volume's size separately.
    let remote = Client::describe(uri, &how.options).await;
    let remote = remote.map_err(|error| ReplayError::Server(uri.clone(), error))?;
    check(trace, block_bytes, uri, &layout, &remote.info)?;
    if is_aware {
        let (client, mut aware) =
            AwareLevel::connect(uri, (trace, &layout), block_bytes, &mut how).await?;
        let mut player = Player::new(uri, vec![client], block_bytes, pace, versions);
        play(trace, &mut aware, &mut player, progress).await?;
        let elapsed = started.elapsed();
        let (l1, told, known) = (aware.l1_report(), aware.told(&player), aware.known());
        let probed = aware.probed();
        let report = player.tally.report(elapsed, trace.len());
        return Ok(ReplayReport { l1, told, known, probed, ..report });
    }
    let mailboxes = reporting_level::connect(uri, &how, block_bytes).await?;
    let clients = mailboxes.iter().map(|mailbox| Mailbox::client(mailbox).clone()).collect();
    let mut player = Player::new(uri, clients, block_bytes, pace, versions);
    let first = (how.l1.ok_or(ReplayError::NoFirstLevel)?, how.write_mode);
    let tell = (how.report, how.batch);
    let mut level = ReportingLevel::new((trace, &layout), block_bytes, first, mailboxes, tell);
    play(trace, &mut level, &mut player, progress).await?;
    let (l1, told) = (Some(level.l1_report()), Some(level.told(&player)));
    let report = player.tally.report(started.elapsed(), trace.len());
    Ok(ReplayReport { l1, told, ..report })
}

/// A first level that does more at a reference than count it.
trait FirstLevel {
    /// Makes one reference of the trace, in order.
    async fn reference(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
    ) -> Result<(), ReplayError>;

    /// All references were made: waits for what is in flight.
    async fn end(&mut self, player: &mut Player<'_>) -> Result<(), ReplayError>;
}

/// Plays the whole trace through a first level.
async fn play(
    trace: &DenseTrace,
    level: &mut impl FirstLevel,
    player: &mut Player<'_>,
    mut progress: impl FnMut(u64),
) -> Result<(), ReplayError> {
    let mut chunks = trace.forward();
    while let Some((start, chunk)) = chunks.next()? {
        for r in chunk {
            level.reference(player, Reference::new(r.block(), r.is_write())).await?;
        }
        progress(start + chunk.len() as u64);
    }
    level.end(player).await
}

/// Plays the whole trace without telling the server anything, in requests of up to `most` blocks.
async fn play_quietly(
    trace: &DenseTrace,
    (layout, most): (&Layout, usize),
    mut l1: Option<DenseLevel>,
    player: &mut Player<'_>,
    mut progress: impl FnMut(u64),
) -> Result<Option<L1Report>, ReplayError> {
    if let Some(l1) = &mut l1 {
        l1.bind(0, (0..trace.unique()).map(|number| trace.names().name(number)));
    }
    let block_bytes = player.block_bytes();
    let (mut refs, mut below) = (Vec::new(), Vec::new());
    let mut chunks = trace.forward();
    while let Some((start, chunk)) = chunks.next()? {
        refs.clear();
        refs.extend(chunk.iter().map(|r| Reference::new(r.block(), r.is_write())));
        let coming = match &mut l1 {
            Some(level) => {
                below.clear();
                level.replay(trace.unique(), &refs, Some(&mut below));
                &below
            }
            None => &refs,
        };
        for run in runs(coming, most, |number| layout.place(trace, number)) {
            player.make_room(run).await?;
            let offset = layout.place(trace, run[0].entry()) * u64::from(block_bytes);
            player.request(offset, run, None, || None);
        }
        progress(start + refs.len() as u64);
    }
    while player.finish_one().await?.is_some() {}
    Ok(l1.map(|level| L1Report::new(level.policy().capacity(), level.counts())))
}

/// Checks that the trace fits the volume.
fn check(
    trace: &DenseTrace,
    block_bytes: u32,
    uri: &Uri,
    layout: &Layout,
    info: &ExportInfo,
) -> Result<(), ReplayError> {
    let needs = layout.blocks() * u64::from(block_bytes);
    if info.size < needs {
        return Err(ReplayError::TooSmall { uri: uri.clone(), has: info.size, needs });
    }
    if info.flags.read_only && trace.seen().writes > 0 {
        return Err(ReplayError::ReadOnly(uri.clone()));
    }
    Ok(())
}

/// Splits references into runs of consecutive blocks that are all read or all written.
fn runs(
    refs: &[Reference],
    most: usize,
    place: impl Fn(u32) -> u64,
) -> impl Iterator<Item = &[Reference]> {
    let mut rest = refs;
    std::iter::from_fn(move || {
        let first = rest.first()?;
        let start = place(first.entry());
        let continues = |&(i, r): &(usize, &Reference)| {
            i < most && r.is_write() == first.is_write() && place(r.entry()) == start + i as u64
        };
        let length = rest.iter().enumerate().take_while(continues).count();
        let (run, after) = rest.split_at(length.max(1));
        rest = after;
        Some(run)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_consecutive_and_of_one_kind() {
        let refs = [(4, false), (5, false), (6, true), (7, true), (8, true), (3, true)]
            .map(|(entry, write)| Reference::new(entry, write));
        let lengths = |most| runs(&refs, most, u64::from).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(lengths(100), [2, 3, 1]);
        assert_eq!(lengths(2), [2, 2, 1, 1]);
        // A block that occurs twice in a row is requested twice.
        let twice = [Reference::read(1), Reference::read(1)];
        assert_eq!(runs(&twice, 9, u64::from).count(), 2);
    }
}
