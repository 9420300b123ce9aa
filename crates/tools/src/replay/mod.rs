//! Playing a trace through a server: every block request that the first level does not serve goes
//! to the volume, in order, merged with its neighbours where they are consecutive.
//!
//! At depth 1, on one connection, the server meets exactly the references that the simulator's
//! second level meets, and must count the same. With more in flight the order is the network's,
//! except that requests for the same block keep theirs.
//!
//! A replay can tell the server what leaves its first level: `reporting_level.rs`. Its first level
//! can go by what the server holds: `aware_level.rs`; or it is one level of a scheme of movement,
//! and the server runs the next: `scheme_level.rs`. Keeping requests in flight is in `player.rs`.

mod aware_level;
mod content;
mod layout;
mod player;
mod reporting_level;
mod scheme_level;
mod tally;

use std::time::Instant;

use serde::Serialize;
use undercroft_cache::movement::SchemeSpec;
use undercroft_cache::policy::{Awareness, Policy};
use undercroft_cache::{Below, Counts, DenseLevel, Reference, WriteMode};
use undercroft_nbd::{Client, ClientError, ClientOptions, ExportInfo, Uri};
use undercroft_trace::DenseTrace;

use aware_level::AwareLevel;
use content::Versions;
use layout::Layout;
use player::Player;
use reporting_level::ReportingLevel;
use scheme_level::SchemeLevel;
use undercroft_hints::{ClientId, LevelLink, Mailbox, Report};

pub use aware_level::{KnownReport, ProbeReport};
pub use reporting_level::ToldReport;
pub use scheme_level::LevelReport;

/// Most bytes of a request.
const REQUEST_BYTES: u32 = 128 << 10;

/// How to play.
pub struct Replay {
    /// The first level; none: the server is the first.
    pub l1: Option<Box<dyn Policy>>,
    /// What a write does to the first level.
    pub write_mode: WriteMode,
    /// Requests in flight, all connections together; at least 1.
    pub depth: usize,
    /// Connections; at least 1.
    pub connections: usize,
    /// Each block is a request of its own, also where several follow one another. What is told of
    /// a first level goes so in any case.
    pub single: bool,
    /// Check every byte that is read.
    pub verify: bool,
    /// What the server is told of blocks that leave the first level, which there must be then.
    pub report: Report,
    /// Hints of a message, 1 to 64; and requests between two questions about what the server holds.
    pub batch: usize,
    /// Where a content-aware first level knows from what the server holds.
    pub below: Below,
    /// The form in which that is told, and in which summaries of the first level are published.
    pub awareness: Awareness,
    /// Whether to find out from the replies what the server's cache is like.
    pub probe: bool,
    /// The scheme of movement of which the first level, which there must be then, and the server
    /// run one level each; one request at a time, on one connection. The first level's policy says
    /// its size alone.
    pub placement: Option<SchemeSpec>,
    /// How to connect.
    pub options: ClientOptions,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct ReplayReport {
    /// Block requests of the trace.
    pub requests: u64,
    /// The first level, if there was one.
    pub l1: Option<L1Report>,
    /// What the server was told, if anything was to be.
    pub told: Option<ToldReport>,
    /// What the first level knew of the server, if it is to know anything, or tells.
    pub known: Option<KnownReport>,
    /// What the server's cache seems to be, if that was to be found out.
    pub probed: Option<ProbeReport>,
    /// What went over the link to the level below, where a scheme of movement was run.
    pub level: Option<LevelReport>,
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
    /// The first of these in words.
    pub mismatched: Vec<String>,
    /// Seconds from the first request to the last answer.
    pub elapsed_s: f64,
    /// NBD requests a second.
    pub requests_per_s: f64,
    /// Times from a request to its answer.
    pub latency_us: LatencyReport,
}

/// Counts of the first level.
#[derive(Clone, Debug, Serialize)]
pub struct L1Report {
    /// Blocks resident at most.
    pub capacity_blocks: u32,
    /// Blocks read.
    pub reads: u64,
    /// Reads that found their block.
    pub read_hits: u64,
    /// Blocks written.
    pub writes: u64,
    /// Writes that found their block.
    pub write_hits: u64,
    /// Read hits / reads.
    pub read_hit_ratio: f64,
    /// Blocks that replacement drove out.
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
    /// Half of the requests took at most this.
    pub p50: f64,
    /// 99 percent took at most this.
    pub p99: f64,
    /// The longest.
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
    /// What is told of is counted in the server's blocks.
    #[error("{uri} has blocks of {has} bytes, the trace is played in blocks of {wants}")]
    OtherBlocks {
        /// The volume.
        uri: Uri,
        /// Its blocks in bytes.
        has: u32,
        /// The trace's blocks in bytes.
        wants: u32,
    },
    /// The order of several connections would not be that of what the server says.
    #[error(
        "a first level that goes by what the server holds, or publishes what it holds, has one \
             connection: leave --connections out"
    )]
    OneConnection,
    /// The policy that is to be emulated cannot be had.
    #[error("{0}")]
    Policy(String),
    /// There is nothing to tell of.
    #[error("nothing leaves a first level that is not there: give one, or report nothing")]
    NoFirstLevel,
    /// A scheme of movement takes one request after the other.
    #[error("a scheme of movement is played one request at a time, on one connection")]
    TooManyAtATime,
    /// The scheme of movement cannot be had.
    #[error("{0}")]
    Scheme(String),
    /// The trace's block numbers reach beyond what a volume can have.
    #[error("the trace's blocks reach beyond 2^64 bytes")]
    TooFar,
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] undercroft_trace::Error),
}

/// Plays a trace with blocks of `block_bytes` to the volume `uri`. `progress` is told the block
/// requests done so far.
///
/// # Errors
/// The first request that fails ends it.
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
    if how.placement.is_none()
        && (how.below != Below::Nothing || how.report == Report::Digest || how.probe)
    {
        if how.connections > 1 {
            return Err(ReplayError::OneConnection);
        }
        let remote = Client::describe(uri, &how.options).await;
        let remote = remote.map_err(|error| ReplayError::Server(uri.clone(), error))?;
        check(trace, block_bytes, uri, &layout, &remote.info)?;
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
    if how.report == Report::Nothing && how.placement.is_none() {
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
    // The sessions are told of the window, too; the volume's size is another.
    let remote = Client::describe(uri, &how.options).await;
    let remote = remote.map_err(|error| ReplayError::Server(uri.clone(), error))?;
    check(trace, block_bytes, uri, &layout, &remote.info)?;
    if let Some(scheme) = &how.placement {
        if how.depth > 1 || how.connections > 1 {
            return Err(ReplayError::TooManyAtATime);
        }
        let capacity = how.l1.as_ref().ok_or(ReplayError::NoFirstLevel)?.capacity();
        let mut options = how.options.clone();
        options.contexts.push(LevelLink::context(ClientId::random()));
        let client = Client::connect(uri, &options).await;
        let client = client.map_err(|error| ReplayError::Server(uri.clone(), error))?;
        let mut player = Player::new(uri, vec![client.clone()], block_bytes, pace, versions);
        let first = scheme_level::SchemeOptions { scheme, capacity, block_bytes };
        let mut level = SchemeLevel::new((trace, &layout), uri, first, client)?;
        play(trace, &mut level, &mut player, progress).await?;
        let (l1, level) = (Some(level.l1_report()), Some(level.report()));
        let report = player.tally.report(started.elapsed(), trace.len());
        return Ok(ReplayReport { l1, level, ..report });
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

/// A first level that has more to do at a reference than to count it.
trait FirstLevel {
    /// One reference of the trace, in order.
    async fn reference(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
    ) -> Result<(), ReplayError>;

    /// All were made: waits for what is on its way.
    async fn end(&mut self, player: &mut Player<'_>) -> Result<(), ReplayError>;
}

/// Plays the whole trace through such a first level.
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

/// Plays the whole trace without a word about the first level, in requests of `most` blocks.
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

/// Looks whether the trace fits the volume.
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

/// Cuts references into runs of consecutive blocks that are all read or all written.
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
        // A block that comes twice in a row is asked for twice.
        let twice = [Reference::read(1), Reference::read(1)];
        assert_eq!(runs(&twice, 9, u64::from).count(), 2);
    }
}
