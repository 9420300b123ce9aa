//! What the records of a trace ask for, before they are split into blocks: reads and writes, sizes,
//! sequential requests, times. Counted as the records pass by, all of them even for a sample.

use std::sync::{Arc, Mutex, PoisonError};

use undercroft_trace::{Error, Meta, Op, Reader, Record};

use super::bins::Histogram;

/// The counts of the records that were read so far. Lengths are in the unit of the trace.
#[derive(Clone, Debug, Default)]
pub struct Requests {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write.
    pub writes: u64,
    /// Records of evictions.
    pub evictions: u64,
    /// Sum of the lengths of reads.
    pub read_length: u64,
    /// Sum of the lengths of writes.
    pub write_length: u64,
    /// Requests by length.
    pub lengths: Histogram,
    /// Requests that begin where the request before them to the same space ended.
    pub sequential: u64,
    /// Earliest and latest time of a request in nanoseconds.
    pub times: Option<(u64, u64)>,
    /// The end of the last request to each space.
    ends: Vec<u64>,
}

impl Requests {
    /// Address spaces with requests.
    pub fn spaces(&self) -> usize {
        self.ends.iter().filter(|end| **end != u64::MAX).count()
    }

    fn add(&mut self, record: &Record) {
        let length = record.length;
        match record.op {
            Op::Evict => {
                self.evictions += 1;
                return;
            }
            Op::Read => {
                self.reads += 1;
                self.read_length = self.read_length.saturating_add(length);
            }
            Op::Write => {
                self.writes += 1;
                self.write_length = self.write_length.saturating_add(length);
            }
        }
        self.lengths.add(length);
        let space = record.space as usize;
        if space >= self.ends.len() {
            // No request begins at the end of all addresses.
            self.ends.resize(space + 1, u64::MAX);
        }
        self.sequential += u64::from(self.ends[space] == record.address);
        self.ends[space] = record.address.saturating_add(length);
        let (first, last) = self.times.unwrap_or((record.time_ns, record.time_ns));
        self.times = Some((first.min(record.time_ns), last.max(record.time_ns)));
    }
}

/// A reader that counts what it passes on.
struct Watched {
    reader: Box<dyn Reader>,
    requests: Arc<Mutex<Requests>>,
}

impl Reader for Watched {
    fn meta(&self) -> &Meta {
        self.reader.meta()
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let before = records.len();
        self.reader.read(records)?;
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        records[before..].iter().for_each(|record| requests.add(record));
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.reader.spaces()
    }

    fn left_out(&self) -> u64 {
        self.reader.left_out()
    }

    fn unused(&self) -> &[String] {
        self.reader.unused()
    }
}

/// The counts of a reader that [`watch`] made, while it is read.
#[derive(Clone)]
pub struct RequestCounter(Arc<Mutex<Requests>>);

impl RequestCounter {
    /// The counts so far.
    pub fn counts(&self) -> Requests {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts the requests of a reader as they are read.
pub fn watch(reader: Box<dyn Reader>) -> (Box<dyn Reader>, RequestCounter) {
    let requests = Arc::new(Mutex::new(Requests::default()));
    let counter = RequestCounter(requests.clone());
    (Box::new(Watched { reader, requests }), counter)
}
