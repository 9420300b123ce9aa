//! What the tests of this crate share: traces made in memory, random numbers and seeds.

use undercroft_policy::{PolicyInfo, Spec, WriteMode, policies};
use undercroft_sim::{Config, LevelConfig};
use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, Error, Meta, Op, Reader, Record, Unit,
};

pub(crate) use undercroft_random::testing::{Random, seeds};

/// A trace in memory.
pub(crate) struct Memory {
    meta: Meta,
    records: Vec<Record>,
    next: usize,
    spaces: Vec<String>,
}

impl Memory {
    pub(crate) fn new(unit: Unit, records: Vec<Record>) -> Self {
        let meta = Meta {
            format: "memory",
            unit,
            block_bytes: None,
            has_ops: true,
            has_time: true,
            has_buffers: false,
            has_evictions: false,
        };
        let spaces = records.iter().map(|r| r.space).max().map_or(0, |max| max + 1);
        let spaces = (0..spaces).map(|space| format!("space {space}")).collect();
        Self { meta, records, next: 0, spaces }
    }

    /// As a stream of blocks, with origins.
    pub(crate) fn stream(self, block_bytes: u32) -> BlockStream {
        let options = BlockOptions { block_bytes, origins: true, ..BlockOptions::default() };
        BlockStream::new(Box::new(self), &options).expect("right options")
    }

    /// As a whole trace.
    pub(crate) fn load(self, block_bytes: u32) -> DenseTrace {
        DenseTrace::load(self.stream(block_bytes), |_| ()).expect("nothing to go wrong")
    }
}

impl Reader for Memory {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let end = self.records.len().min(self.next + 1000);
        records.extend_from_slice(&self.records[self.next..end]);
        self.next = end;
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }
}

/// A request for `length` blocks.
pub(crate) fn blocks(address: u64, length: u64, is_write: bool) -> Record {
    let op = if is_write { Op::Write } else { Op::Read };
    Record { time_ns: 0, op, space: 0, address, length, buffer: None, client: 0 }
}

/// A trace of block numbers.
pub(crate) fn trace(records: Vec<Record>) -> DenseTrace {
    Memory::new(Unit::Blocks, records).load(4096)
}

/// A trace of single blocks, all read, one letter each.
pub(crate) fn letters(text: &str) -> DenseTrace {
    trace(text.bytes().filter(|b| *b != b' ').map(|b| blocks(b.into(), 1, false)).collect())
}

pub(crate) fn spec(text: &str) -> Spec {
    Spec::parse(text).expect(text)
}

/// Levels as (capacity, policy).
pub(crate) fn config(levels: &[(u32, &str)], write_mode: WriteMode, warmup: u64) -> Config {
    let level = |&(capacity, text): &(u32, &str)| LevelConfig { capacity, policy: spec(text) };
    let levels = levels.iter().map(level).collect();
    Config { levels, write_mode, warmup_records: warmup, block_bytes: 4096, ..Config::default() }
}

/// Every policy that can run without knowing the future or a neighbour.
pub(crate) fn online_policies() -> Vec<&'static str> {
    let alone = |info: &&&PolicyInfo| info.name != "opt" && !info.is_content_aware();
    policies().iter().filter(alone).map(|info| info.name).collect()
}
