//! Several traces as one, record by record, as if their clients had run at the same time.
//!
//! Where all traces have times, each one's clock begins with its first record, and the earliest
//! record is next; of equal ones that of the first trace. Where one has none, the traces take
//! turns, and one that ends drops out. What is no part of a merged trace: buffer addresses and
//! evictions, since those of different clients mean different things.

use crate::Error;
use crate::left_out::{LeftOut, Reason};
use crate::record::{Meta, Op, Reader, Record};

/// Most address spaces of one trace.
const MAX_SPACES: u32 = 1 << 16;

/// Records handed out at once.
const BATCH: usize = 4096;

/// Makes one trace of several. The space of a record is its space in its own trace times the
/// number of traces, plus the number of its trace: the remainder says which trace it comes from.
///
/// # Errors
/// There is no trace, or the traces count in different units or state different block sizes.
pub fn merge(traces: Vec<Box<dyn Reader>>) -> Result<Box<dyn Reader>, Error> {
    let refuse = |what: String| Err(Error::Format(what));
    let Some(first) = traces.first().map(|trace| trace.meta().clone()) else {
        return refuse("no traces to merge".into());
    };
    let mut meta = Meta { has_buffers: false, has_evictions: false, ..first };
    for other in traces[1..].iter().map(|trace| trace.meta()) {
        if other.unit != meta.unit {
            return refuse(format!(
                "a {} trace and a {} trace together: one has byte addresses, the other block \
                 numbers; convert one of them",
                meta.format, other.format
            ));
        }
        match (meta.block_bytes, other.block_bytes) {
            (Some(a), Some(b)) if a != b => {
                return refuse(format!("traces of blocks of {a} and of {b} bytes together"));
            }
            (stated, more) => meta.block_bytes = stated.or(more),
        }
        if other.format != meta.format {
            meta.format = "several";
        }
        meta.has_ops &= other.has_ops;
        meta.has_time &= other.has_time;
    }
    let source = |reader| {
        let records = Vec::new();
        let (next, begin_ns, evictions) = (0, 0, 0);
        Source { reader, records, next, begin_ns, is_new: true, has_ended: false, evictions }
    };
    let sources = traces.into_iter().map(source).collect();
    Ok(Box::new(Merged { sources, meta, spaces: Vec::new(), turn: 0 }))
}

struct Source {
    reader: Box<dyn Reader>,
    records: Vec<Record>,
    next: usize,
    begin_ns: u64,
    is_new: bool,
    has_ended: bool,
    /// Evictions met, which are no part of a merged trace.
    evictions: u64,
}

impl Source {
    /// The next record, by its own clock; none at the end.
    fn head(&mut self) -> Result<Option<Record>, Error> {
        while self.next == self.records.len() && !self.has_ended {
            self.records.clear();
            self.next = 0;
            self.reader.read(&mut self.records)?;
            self.has_ended = self.records.is_empty();
            let all = self.records.len();
            self.records.retain(|record| record.op != Op::Evict);
            self.evictions += (all - self.records.len()) as u64;
        }
        let Some(record) = self.records.get(self.next) else { return Ok(None) };
        if std::mem::take(&mut self.is_new) {
            self.begin_ns = record.time_ns;
        }
        let time_ns = record.time_ns.saturating_sub(self.begin_ns);
        Ok(Some(Record { time_ns, buffer: None, client: 0, ..*record }))
    }
}

struct Merged {
    sources: Vec<Source>,
    meta: Meta,
    /// Names by space; empty where no trace has that space.
    spaces: Vec<String>,
    /// The trace whose turn it is, where they take turns.
    turn: usize,
}

impl Merged {
    fn next(&mut self) -> Result<Option<Record>, Error> {
        let count = self.sources.len();
        let mut best: Option<(usize, Record)> = None;
        for step in 0..count {
            let at = if self.meta.has_time { step } else { (self.turn + step) % count };
            let Some(record) = self.sources[at].head()? else { continue };
            if !self.meta.has_time {
                best = Some((at, record));
                break;
            }
            if best.as_ref().is_none_or(|(_, earliest)| record.time_ns < earliest.time_ns) {
                best = Some((at, record));
            }
        }
        let Some((at, mut record)) = best else { return Ok(None) };
        self.sources[at].next += 1;
        self.turn = (at + 1) % count;
        if record.space >= MAX_SPACES {
            let what = format!("a trace with more than {MAX_SPACES} devices or files among others");
            return Err(Error::Limit(what));
        }
        record.space = record.space * count as u32 + at as u32;
        Ok(Some(record))
    }
}

impl Reader for Merged {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let before = records.len();
        while records.len() < before + BATCH {
            let Some(record) = self.next()? else { break };
            records.push(record);
        }
        let count = self.sources.len();
        for record in &records[before..] {
            let space = record.space as usize;
            if self.spaces.len() <= space {
                self.spaces.resize(space + 1, String::new());
            }
            if self.spaces[space].is_empty() {
                let names = self.sources[space % count].reader.spaces();
                self.spaces[space] = names.get(space / count).cloned().unwrap_or_default();
            }
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }

    fn left_out(&self) -> LeftOut {
        self.sources.iter().fold(LeftOut::default(), |all, source| {
            let evictions = LeftOut::of(Reason::Eviction, source.evictions);
            all + source.reader.left_out() + evictions
        })
    }
}
