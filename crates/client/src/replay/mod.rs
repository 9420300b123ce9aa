//! Playing a trace through a server: every block request that the first level does not serve goes
//! to the volume, in order, merged with its neighbours where they are consecutive.
//!
//! At depth 1, on one connection, the server meets exactly the references that the simulator's
//! second level meets, and must count the same. With more in flight the order is the network's,
//! except that requests for the same block keep theirs.

mod content;
mod layout;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use serde::Serialize;
use undercroft_cache::policy::Policy;
use undercroft_cache::{Level, Reference, WriteMode};
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};
use undercroft_trace::DenseTrace;

use content::Versions;
use layout::Layout;

/// Most bytes of a request.
const REQUEST_BYTES: u32 = 128 << 10;

/// Longest time that is told apart.
const MAX_LATENCY_NS: u64 = 100_000_000_000;

/// Mismatches that are described; more are counted only.
const DESCRIBED: usize = 5;

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
    /// Check every byte that is read.
    pub verify: bool,
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
    how: Replay,
    mut progress: impl FnMut(u64),
) -> Result<ReplayReport, ReplayError> {
    let layout = Layout::new(trace, block_bytes).ok_or(ReplayError::TooFar)?;
    let clients = connect(trace, block_bytes, uri, &how, &layout).await?;
    let mut l1 = how.l1.map(|policy| Level::new(policy, how.write_mode));
    if let Some(l1) = &mut l1 {
        l1.bind(0, (0..trace.unique()).map(|number| trace.names().name(number)));
    }
    let mut player = Player {
        uri,
        clients,
        block_bytes,
        depth: how.depth.max(1),
        verify: how.verify,
        versions: Versions::new(trace.unique()),
        busy: HashSet::new(),
        flight: FuturesUnordered::new(),
        tally: Tally::new(),
    };
    let started = Instant::now();
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
        let most = (player.request_bytes() / block_bytes).max(1) as usize;
        for run in runs(coming, most, |number| layout.place(trace, number)) {
            let offset = layout.place(trace, run[0].entry()) * u64::from(block_bytes);
            player.request(offset, run).await?;
        }
        progress(start + refs.len() as u64);
    }
    while player.finish_one().await? {}
    Ok(player.tally.report(started.elapsed(), trace.len(), l1.as_ref()))
}

/// Opens the connections and looks whether the volume fits.
async fn connect(
    trace: &DenseTrace,
    block_bytes: u32,
    uri: &Uri,
    how: &Replay,
    layout: &Layout,
) -> Result<Vec<Client>, ReplayError> {
    let mut clients = Vec::new();
    for _ in 0..how.connections.max(1) {
        let client = Client::connect(uri, &how.options).await;
        clients.push(client.map_err(|error| ReplayError::Server(uri.clone(), error))?);
    }
    let info = &clients[0].remote().info;
    let needs = layout.blocks() * u64::from(block_bytes);
    if info.size < needs {
        return Err(ReplayError::TooSmall { uri: uri.clone(), has: info.size, needs });
    }
    if info.flags.read_only && trace.seen().writes > 0 {
        return Err(ReplayError::ReadOnly(uri.clone()));
    }
    Ok(clients)
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

/// A request that was answered.
struct Answered {
    run: Vec<Reference>,
    began: Instant,
    /// What was read, with the versions that it must have.
    read: Option<(Bytes, Vec<u32>)>,
    result: Result<(), ClientError>,
}

type Flight = FuturesUnordered<std::pin::Pin<Box<dyn Future<Output = Answered> + Send>>>;

/// Keeps requests in flight and blocks in order.
struct Player<'a> {
    uri: &'a Uri,
    clients: Vec<Client>,
    block_bytes: u32,
    depth: usize,
    verify: bool,
    versions: Versions,
    /// Blocks in flight.
    busy: HashSet<u32>,
    flight: Flight,
    tally: Tally,
}

impl Player<'_> {
    fn request_bytes(&self) -> u32 {
        self.clients[0].remote().info.max_block.min(REQUEST_BYTES)
    }

    async fn request(&mut self, offset: u64, run: &[Reference]) -> Result<(), ReplayError> {
        let is_busy = |busy: &HashSet<u32>| run.iter().any(|r| busy.contains(&r.entry()));
        while self.flight.len() >= self.depth || is_busy(&self.busy) {
            self.finish_one().await?;
        }
        self.busy.extend(run.iter().map(|r| r.entry()));
        let client = self.clients[self.tally.sent as usize % self.clients.len()].clone();
        self.tally.sent += 1;
        let (run, began) = (run.to_vec(), Instant::now());
        let block_bytes = self.block_bytes as usize;
        if run[0].is_write() {
            let mut data = BytesMut::zeroed(run.len() * block_bytes);
            for (piece, r) in data.chunks_mut(block_bytes).zip(&run) {
                content::fill(piece, r.entry(), self.versions.next(r.entry()));
            }
            let written = client.write(offset, vec![data.freeze()], false);
            self.flight.push(Box::pin(async move {
                Answered { run, began, read: None, result: written.await }
            }));
        } else {
            let versions = run.iter().map(|r| self.versions.of(r.entry())).collect();
            let buffer: Vec<u8> = vec![0; run.len() * block_bytes];
            let reading = client.read(offset, vec![Box::new(buffer)]);
            self.flight.push(Box::pin(async move {
                let (buffers, result) = reading.await;
                let bytes =
                    buffers.into_iter().next().map(|mut b| Bytes::copy_from_slice((*b).as_mut()));
                Answered { run, began, read: bytes.map(|bytes| (bytes, versions)), result }
            }));
        }
        Ok(())
    }

    /// Waits for one answer, and takes it in; false if nothing is in flight.
    async fn finish_one(&mut self) -> Result<bool, ReplayError> {
        let Some(answered) = self.flight.next().await else { return Ok(false) };
        let Answered { run, began, read, result } = answered;
        result.map_err(|error| ReplayError::Server(self.uri.clone(), error))?;
        self.tally.latency(began.elapsed());
        for r in &run {
            self.busy.remove(&r.entry());
        }
        let Some((bytes, versions)) = read else {
            self.tally.written += run.len() as u64;
            return Ok(true);
        };
        self.tally.read += run.len() as u64;
        if self.verify {
            let pieces = bytes.chunks(self.block_bytes as usize);
            for ((piece, r), version) in pieces.zip(&run).zip(versions) {
                self.tally.verify(content::is(piece, r.entry(), version), r.entry(), version);
            }
        }
        Ok(true)
    }
}

/// What is counted.
struct Tally {
    sent: u64,
    read: u64,
    written: u64,
    verified: u64,
    mismatches: u64,
    mismatched: Vec<String>,
    latencies: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let latencies = Histogram::new_with_max(MAX_LATENCY_NS, 3).expect("these bounds are valid");
        let mismatched = Vec::new();
        Self { sent: 0, read: 0, written: 0, verified: 0, mismatches: 0, mismatched, latencies }
    }

    fn latency(&mut self, taken: Duration) {
        let ns = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.latencies.saturating_record(ns.max(1));
    }

    fn verify(&mut self, is_right: bool, block: u32, version: u32) {
        self.verified += 1;
        if is_right {
            return;
        }
        self.mismatches += 1;
        if self.mismatched.len() < DESCRIBED {
            let wanted = match version {
                0 => "zeroes: this replay has not written it".to_owned(),
                version => format!("what its write number {version} left"),
            };
            self.mismatched.push(format!("distinct block {block}: expected {wanted}"));
        }
    }

    fn report(self, elapsed: Duration, requests: u64, l1: Option<&Level>) -> ReplayReport {
        let at = |percent| self.latencies.value_at_percentile(percent) as f64 / 1e3;
        let seconds = elapsed.as_secs_f64();
        ReplayReport {
            requests,
            l1: l1.map(|level| {
                let counts = level.counts();
                L1Report {
                    capacity_blocks: level.policy().capacity(),
                    reads: counts.reads,
                    read_hits: counts.read_hits,
                    writes: counts.writes,
                    write_hits: counts.write_hits,
                    read_hit_ratio: counts.read_hit_ratio(),
                    evictions: counts.evictions,
                }
            }),
            requests_sent: self.sent,
            blocks_read: self.read,
            blocks_written: self.written,
            blocks_verified: self.verified,
            mismatches: self.mismatches,
            elapsed_s: seconds,
            requests_per_s: self.sent as f64 / seconds.max(1e-9),
            latency_us: LatencyReport { p50: at(50.0), p99: at(99.0), max: at(100.0) },
            mismatched: self.mismatched,
        }
    }
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
