//! A load generator: measures how many requests per second a server answers, and how long each
//! takes.
//!
//! It needs less processor time than a server: one thread per connection, one write for all
//! requests that are ready, one read for all answers that have arrived, and data are discarded. Not
//! here: a client for other purposes; see [`Client`](undercroft_nbd::Client).

mod connection;
mod hints;

use std::time::Duration;
use std::{io, thread};

use hdrhistogram::Histogram;
use undercroft_nbd::{ClientOptions, Uri};

use connection::Connection;

/// Longest latency that is recorded; longer ones count as this.
const MAX_LATENCY_NS: u64 = 100_000_000_000;

/// The load to put on a server.
#[derive(Clone, Debug)]
pub struct Load {
    /// Requests in flight on each connection: 1 to 65,536.
    pub depth: u32,
    /// Connections, with a thread each: 1 to 1,024.
    pub connections: u32,
    /// Bytes of each request: 1 to 64 MiB.
    pub block_bytes: u32,
    /// Offsets: ascending (each connection in its own part), or random.
    pub sequential: bool,
    /// Share of reads, the others being writes: 0 to 100.
    pub read_percent: u8,
    /// Blocks in a hint, 0 to 64; one hint goes in front of every so many reads. 0: the client asks
    /// for a mailbox, which changes the format of the answers, but sends no hints. `None`: the
    /// client does not ask, and gets answers in the shortest format.
    pub hints: Option<u32>,
    /// How long new requests are sent.
    pub duration: Duration,
    /// Seed of the random offsets.
    pub seed: u64,
}

impl Default for Load {
    /// Random reads of 4 KiB, 64 in flight on one connection, for 10 seconds.
    fn default() -> Load {
        Load {
            depth: 64,
            connections: 1,
            block_bytes: 4096,
            sequential: false,
            read_percent: 100,
            hints: None,
            duration: Duration::from_secs(10),
            seed: 1,
        }
    }
}

/// The error of a load that could not run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoadError(pub(crate) String);

/// The latencies of requests of one kind.
#[derive(Clone, Debug)]
pub struct Latencies {
    nanoseconds: Histogram<u64>,
}

impl Latencies {
    fn new() -> Latencies {
        let nanoseconds = Histogram::new_with_max(MAX_LATENCY_NS, 3);
        Latencies { nanoseconds: nanoseconds.expect("these bounds are valid") }
    }

    fn record(&mut self, taken: Duration) {
        let nanoseconds = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        self.nanoseconds.saturating_record(nanoseconds.max(1));
    }

    fn add(&mut self, other: &Latencies) {
        self.nanoseconds.add(&other.nanoseconds).expect("all have the same bounds");
    }

    /// Requests that were answered.
    pub fn count(&self) -> u64 {
        self.nanoseconds.len()
    }

    /// The latency in microseconds below which `percent` of the requests stay.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.nanoseconds.value_at_percentile(percent) as f64 / 1e3
    }

    /// Mean latency in microseconds.
    pub fn mean_us(&self) -> f64 {
        self.nanoseconds.mean() / 1e3
    }

    /// Longest latency in microseconds.
    pub fn max_us(&self) -> f64 {
        self.nanoseconds.max() as f64 / 1e3
    }
}

/// The results of a load.
#[derive(Clone, Debug)]
pub struct LoadReport {
    /// Time from the first request to the last answer, of the slowest connection.
    pub elapsed: Duration,
    /// Answered reads.
    pub reads: Latencies,
    /// Answered writes.
    pub writes: Latencies,
    /// Answered messages of hints; they are not counted as writes.
    pub messages: u64,
    /// Requests and messages that were answered with an error.
    pub errors: u64,
    /// Bytes of each request.
    pub block_bytes: u32,
}

impl LoadReport {
    fn new(block_bytes: u32) -> LoadReport {
        let (reads, writes) = (Latencies::new(), Latencies::new());
        LoadReport { elapsed: Duration::ZERO, reads, writes, messages: 0, errors: 0, block_bytes }
    }

    fn add(&mut self, other: &LoadReport) {
        self.elapsed = self.elapsed.max(other.elapsed);
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.messages += other.messages;
        self.errors += other.errors;
    }

    /// Requests per second.
    pub fn requests_per_second(&self) -> f64 {
        let requests = self.reads.count() + self.writes.count();
        requests as f64 / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Bytes per second.
    pub fn bytes_per_second(&self) -> f64 {
        self.requests_per_second() * f64::from(self.block_bytes)
    }
}

impl Load {
    fn check(&self) -> Result<(), LoadError> {
        let checks = [
            ((1..=65_536).contains(&self.depth), "depth: 1 to 65536"),
            ((1..=1024).contains(&self.connections), "connections: 1 to 1024"),
            ((1..=64 << 20).contains(&self.block_bytes), "block size: 1 byte to 64 MiB"),
            (self.read_percent <= 100, "share of reads: 0 to 100 percent"),
            (self.hints.is_none_or(|blocks| blocks <= 64), "hints: up to 64 blocks"),
        ];
        match checks.iter().find(|(fits, _)| !fits) {
            Some((_, what)) => Err(LoadError((*what).to_owned())),
            None => Ok(()),
        }
    }

    /// Runs the load, and waits for its end.
    ///
    /// # Errors
    /// A parameter is out of range, the server cannot be reached or refuses the export, or a
    /// connection breaks.
    pub fn run(&self, uri: &Uri, options: &ClientOptions) -> Result<LoadReport, LoadError> {
        self.check()?;
        let connections = (0..self.connections)
            .map(|number| Connection::open(uri, options, self, number))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| LoadError(format!("{uri}: {error}")))?;
        let mut total = LoadReport::new(self.block_bytes);
        let reports: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = connections
                .into_iter()
                .map(|connection| scope.spawn(move || connection.run()))
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        for report in reports {
            let report = report.map_err(|_| LoadError("a thread of the load failed".to_owned()))?;
            total.add(&report.map_err(|error| LoadError(format!("{uri}: {error}")))?);
        }
        Ok(total)
    }
}

fn other(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}
