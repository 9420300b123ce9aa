//! Several traces as one: the order of their records, their spaces, and what does not go together.

use undercroft_trace::{Error, LeftOut, Meta, Op, Reader, Reason, Record, Unit, merge};

struct Memory {
    meta: Meta,
    records: Vec<Record>,
    /// Records handed out at once: small, so that a batch ends between any two.
    batch: usize,
    spaces: Vec<String>,
}

impl Reader for Memory {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let count = self.batch.min(self.records.len());
        records.extend(self.records.drain(..count));
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }

    fn left_out(&self) -> LeftOut {
        LeftOut::of(Reason::Empty, 3)
    }
}

fn memory(has_time: bool, records: &[(u64, u32, u64)]) -> Memory {
    let record = |&(time_ns, space, address): &(u64, u32, u64)| {
        let buffer = Some(77);
        Record { time_ns, op: Op::Read, space, address, length: 1, buffer, client: 0 }
    };
    let meta = Meta {
        format: "memory",
        unit: Unit::Blocks,
        block_bytes: None,
        has_ops: true,
        has_time,
        has_buffers: true,
        has_evictions: false,
    };
    let spaces = (0..3).map(|space| format!("disk {space}")).collect();
    Memory { meta, records: records.iter().map(record).collect(), batch: 2, spaces }
}

/// Time, space and address of a record.
type Seen = (u64, u32, u64);

fn read(mut reader: Box<dyn Reader>) -> (Vec<Seen>, Box<dyn Reader>) {
    let mut all = Vec::new();
    loop {
        let mut records = Vec::new();
        reader.read(&mut records).unwrap();
        if records.is_empty() {
            return (all, reader);
        }
        assert!(records.iter().all(|record| record.buffer.is_none()));
        all.extend(records.iter().map(|r| (r.time_ns, r.space, r.address)));
    }
}

/// By time since each one's first record; of equal times the first trace.
#[test]
fn by_time_where_all_have_times() {
    let first = memory(true, &[(100, 0, 1), (110, 2, 2), (130, 0, 3)]);
    let second = memory(true, &[(7, 0, 10), (17, 0, 11), (27, 1, 12), (90, 0, 13)]);
    let (all, reader) = read(merge(vec![Box::new(first), Box::new(second)]).unwrap());
    let expected =
        [(0, 0, 1), (0, 1, 10), (10, 4, 2), (10, 1, 11), (20, 3, 12), (30, 0, 3), (83, 1, 13)];
    assert_eq!(all, expected);
    assert_eq!(reader.spaces(), ["disk 0", "disk 0", "", "disk 1", "disk 2"]);
    assert_eq!(reader.left_out(), LeftOut::of(Reason::Empty, 6));
    assert!(reader.meta().has_time && !reader.meta().has_buffers);
}

#[test]
fn in_turn_where_one_has_no_times() {
    let traces: Vec<Box<dyn Reader>> = vec![
        Box::new(memory(true, &[(100, 0, 1), (110, 0, 2), (120, 0, 3)])),
        Box::new(memory(false, &[(0, 0, 10)])),
        Box::new(memory(true, &[(0, 0, 20), (1, 0, 21)])),
    ];
    let (all, _) = read(merge(traces).unwrap());
    let order: Vec<u64> = all.iter().map(|record| record.2).collect();
    assert_eq!(order, [1, 10, 20, 2, 21, 3]);
}

#[test]
fn one_trace_stays_as_it_is() {
    let records: Vec<_> = (0..10_000).map(|i| (5 + i, (i % 3) as u32, i)).collect();
    let (all, _) = read(merge(vec![Box::new(memory(true, &records))]).unwrap());
    let expected: Vec<_> = records.iter().map(|&(time, s, block)| (time - 5, s, block)).collect();
    assert_eq!(all, expected);
}

#[test]
fn what_does_not_go_together_is_refused() {
    let sized = |block_bytes: u32| {
        let mut trace = memory(true, &[(1, 0, 1)]);
        trace.meta.block_bytes = Some(block_bytes);
        Box::new(trace) as Box<dyn Reader>
    };
    let mut bytes = memory(true, &[(1, 0, 1)]);
    bytes.meta.unit = Unit::Bytes;
    let refused = |traces| merge(traces).map(|_| ()).unwrap_err().to_string();
    assert!(refused(vec![]).contains("no traces"));
    assert!(refused(vec![sized(4096), sized(8192)]).contains("4096 and of 8192"));
    assert!(refused(vec![sized(4096), Box::new(bytes)]).contains("convert one"));
    let merged = merge(vec![Box::new(memory(true, &[])), sized(512)]).unwrap();
    assert_eq!(merged.meta().block_bytes, Some(512));
    let far = memory(true, &[(0, 1 << 16, 1)]);
    let error = merge(vec![Box::new(far)]).unwrap().read(&mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("65536"), "{error}");
}
