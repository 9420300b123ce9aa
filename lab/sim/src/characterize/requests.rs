//! What the records of a trace ask for, before they are split into blocks: reads and writes, sizes,
//! sequential requests, times. Counted as the records pass by, all of them even for a sample.

use std::sync::{Arc, Mutex, PoisonError};

use undercroft_trace::{Meta, Op, Reader, Record, Unit, inspect};

use super::bins::Histogram;
use super::report::RequestReport;

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
        let (requests, sum) = match record.op {
            Op::Evict => {
                self.evictions += 1;
                return;
            }
            Op::Read => (&mut self.reads, &mut self.read_length),
            Op::Write => (&mut self.writes, &mut self.write_length),
        };
        *requests += 1;
        *sum = sum.saturating_add(length);
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

/// The counts of a reader that [`watch`] made, while it is read.
#[derive(Clone)]
pub struct RequestCounter(Arc<Mutex<Requests>>);

impl RequestCounter {
    /// The counts so far.
    pub fn counts(&self) -> Requests {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counts so far in bytes and seconds. One step of an address of a trace of block numbers
    /// means `unit_bytes`.
    pub fn report(&self, meta: &Meta, unit_bytes: u32) -> RequestReport {
        let unit_bytes = if meta.unit == Unit::Bytes { 1 } else { unit_bytes };
        RequestReport::new(&self.counts(), unit_bytes.into(), meta.has_time)
    }
}

/// Counts the requests of a reader as they are read.
pub fn watch(reader: Box<dyn Reader>) -> (Box<dyn Reader>, RequestCounter) {
    let requests = Arc::new(Mutex::new(Requests::default()));
    let counter = RequestCounter(Arc::clone(&requests));
    let reader = inspect(reader, move |records| {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        records.iter().for_each(|record| requests.add(record));
        Ok(())
    });
    (reader, counter)
}
