//! The client content table: the worked example, a naive table of ranges, bounded memory, and what
//! an I/O costs.

use std::time::Instant;

use crate::support::{Random, seeds};
use serde_json::{Value, json};
use undercroft_level::{Cct, Frames};

fn number(text: &str) -> u64 {
    let hex = text.strip_prefix("0x").map(|hex| u64::from_str_radix(hex, 16).unwrap());
    hex.unwrap_or_else(|| text.parse().unwrap())
}

#[test]
fn worked_example() {
    let data: Value = serde_json::from_str(include_str!(
        "../../../policy/tests/policy/data/worked-examples.json"
    ))
    .unwrap();
    let e = data["examples"].as_array().unwrap().iter().find(|e| e["id"] == "cct-1").unwrap();
    let bytes = e["block_size"].as_u64().unwrap() as u32;
    let mut table = Cct::new(bytes, Frames::Any, 100, 1);
    for step in e["steps"].as_array().unwrap() {
        let words: Vec<_> = step["op"].as_str().unwrap().split_whitespace().collect();
        let mut evicted = Vec::new();
        if words[0] == "unmap" {
            let range = words[1].trim_matches(['[', ')']).split_once(',').unwrap();
            table.unmap(1, number(range.0)..number(range.1), &mut evicted);
        } else {
            let (first, last) = words[2].split_once("..").unwrap();
            let blocks: Vec<_> = (number(first)..=number(last)).collect();
            let address = number(words[4]);
            match words[0] {
                "read" => table.read(1, address, blocks.into_iter(), &mut evicted),
                _ => table.write(1, address, blocks.into_iter(), &mut evicted),
            }
        }
        assert_eq!(json!(evicted), step["evicted"], "{words:?}");
        table.check().unwrap();
    }
    let content: serde_json::Map<_, _> =
        table.content(1).iter().map(|(at, block)| (format!("{at:#06x}"), json!(block))).collect();
    assert_eq!(json!(content), e["final_table"]);
}

/// The specification word by word: a list of ranges.
struct Naive {
    bytes: u64,
    any: bool,
    /// Client, address, and the block if one is known.
    slots: Vec<(u32, u64, Option<u64>)>,
    late: u64,
}

impl Naive {
    fn io(&mut self, client: u32, address: u64, blocks: &[u64], is_read: bool) -> Vec<u64> {
        // In order of their slots: what each slot of the request displaced.
        let mut unlinked = Vec::new();
        for (j, &block) in blocks.iter().enumerate() {
            let at = address + j as u64 * self.bytes;
            let known = self.slots.iter().position(|s| (s.0, s.1) == (client, at));
            if known.is_none() && !self.any && !(is_read && blocks.len() == 1) {
                continue;
            }
            if known.is_some_and(|i| self.slots[i].2 == Some(block)) {
                self.late += u64::from(is_read && !self.any);
                continue;
            }
            if !self.any {
                let held = (client, Some(block));
                if let Some(other) = self.slots.iter_mut().find(|s| (s.0, s.2) == held) {
                    other.2 = None;
                    self.late += u64::from(is_read);
                }
            }
            if known.is_none() {
                let overlaps = |s: &(u32, u64, _)| s.0 == client && s.1.abs_diff(at) < self.bytes;
                let mut gone: Vec<_> = self.slots.iter().copied().filter(overlaps).collect();
                gone.sort_unstable_by_key(|s| s.1);
                unlinked.extend(gone.iter().filter_map(|s| s.2));
                self.slots.retain(|s| !gone.contains(s));
                self.slots.push((client, at, None));
            }
            let slot = self.slots.iter_mut().find(|s| (s.0, s.1) == (client, at)).unwrap();
            unlinked.extend(slot.2.replace(block));
        }
        self.report(client, unlinked)
    }

    fn report(&self, client: u32, unlinked: Vec<u64>) -> Vec<u64> {
        let mut evicted = Vec::new();
        for block in unlinked {
            let held = self.slots.iter().any(|s| (s.0, s.2) == (client, Some(block)));
            if !held && !evicted.contains(&block) {
                evicted.push(block);
            }
        }
        evicted
    }

    fn unmap(&mut self, client: u32, range: std::ops::Range<u64>) -> Vec<u64> {
        let bytes = self.bytes;
        let overlaps = |s: &(u32, u64, Option<u64>)| {
            s.0 == client && s.1 < range.end && range.start < s.1 + bytes
        };
        let mut gone: Vec<_> = self.slots.iter().copied().filter(overlaps).collect();
        gone.sort_unstable_by_key(|s| s.1);
        self.slots.retain(|s| !overlaps(s));
        self.report(client, gone.iter().filter_map(|s| s.2).collect())
    }
}

/// One random call on both.
fn step(random: &mut Random, ours: &mut Cct, naive: &mut Naive, unit: u64) -> Result<(), String> {
    let client = random.below(2);
    let address = u64::from(random.below(40)) * unit;
    let blocks: Vec<_> = (0..1 + [0, 0, 0, 1, 2][random.below(5) as usize])
        .map(|_| u64::from(random.below(30)))
        .collect();
    let (mut evicted, what);
    evicted = Vec::new();
    let expected = match random.below(24) {
        0 => {
            let range = address..address + u64::from(random.below(20)) * unit;
            what = format!("unmap {client} {range:x?}");
            ours.unmap(client, range.clone(), &mut evicted);
            naive.unmap(client, range)
        }
        1 if random.below(4) == 0 => {
            what = format!("forget {client}");
            ours.forget(client);
            naive.slots.retain(|s| s.0 != client);
            Vec::new()
        }
        n => {
            let is_read = n % 3 > 0;
            what = format!("read {is_read} {client} {address:x} {blocks:?}");
            if is_read {
                ours.read(client, address, blocks.iter().copied(), &mut evicted);
            } else {
                ours.write(client, address, blocks.iter().copied(), &mut evicted);
            }
            naive.io(client, address, &blocks, is_read)
        }
    };
    ours.check().map_err(|e| format!("{what}: {e}"))?;
    let content = |client: u32| {
        let of = naive.slots.iter().filter(|s| s.0 == client);
        let mut all: Vec<_> = of.filter_map(|s| s.2.map(|block| (s.1, block))).collect();
        all.sort_unstable();
        all
    };
    if evicted != expected || ours.counts().late != naive.late {
        return Err(format!("{what}: evicted {evicted:?}, naive {expected:?}"));
    }
    match (0..2).find(|&c| ours.content(c) != content(c)) {
        Some(c) => Err(format!("{what}: {:x?}, naive {:x?}", ours.content(c), content(c))),
        None => Ok(()),
    }
}

#[test]
fn equals_a_naive_table() {
    for seed in seeds(60) {
        let mut random = Random(seed);
        // Blocks at multiples of their size, and at any of an eighth of it.
        let unit = if seed % 3 == 0 { 4096 } else { 512 };
        let frames = if seed % 2 == 0 { Frames::Any } else { Frames::Read };
        let mut ours = Cct::new(4096, frames, 1000, seed);
        let mut naive = Naive { bytes: 4096, any: frames == Frames::Any, slots: vec![], late: 0 };
        for i in 0..1500 {
            step(&mut random, &mut ours, &mut naive, unit)
                .unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed}, step {i}: {e}"));
        }
    }
}

/// Only a buffer that a single block was read into is a frame.
#[test]
fn buffers_that_are_no_frames_change_nothing() {
    let mut table = Cct::new(4096, Frames::Read, 100, 1);
    let mut evicted = Vec::new();
    table.read(0, 0, [1].into_iter(), &mut evicted);
    table.write(0, 0x10_0000, [1, 2, 3].into_iter(), &mut evicted);
    table.read(0, 0x20_0000, [1, 2].into_iter(), &mut evicted);
    assert_eq!((table.content(0), &evicted[..]), (vec![(0, 1)], &[][..]));
    assert_eq!(table.counts().no_frame, 5);
    // The frame gets another block by a write: that one was made there.
    table.write(0, 0, [7].into_iter(), &mut evicted);
    assert_eq!(evicted, [1]);
}

#[test]
fn nothing_outside_can_break_it_or_make_it_grow() {
    let mut table = Cct::new(4096, Frames::Any, 64, 1);
    let mut evicted = Vec::new();
    for i in 0..10_000_u64 {
        table.read(i as u32 % 3, i * 4096, [i].into_iter(), &mut evicted);
    }
    assert_eq!((table.len(), evicted.len()), (64, 0));
    assert_eq!(table.counts().overflowed, 10_000 - 64);
    table.check().unwrap();
    for address in [u64::MAX, u64::MAX - 4095, u64::MAX - 4096, 0] {
        table.read(1, address, [u64::MAX, 5, 6].into_iter(), &mut evicted);
        table.unmap(1, address..u64::MAX, &mut evicted);
        table.check().unwrap();
    }
}

/// In a table of 64 MiB of 8 KiB frames. A debug build or a busy machine must not fail the tests,
/// so the bound is a loose one; the figure is printed.
#[test]
fn an_io_costs_little() {
    let frames = 8192;
    let mut random = Random(1);
    let ios: Vec<_> = (0..1 << 20)
        .map(|_| (u64::from(random.below(frames)) * 8192, u64::from(random.below(100_000))))
        .collect();
    let mut table = Cct::new(8192, Frames::Read, 1 << 20, 1);
    let mut evicted = Vec::with_capacity(64);
    let mut best = f64::MAX;
    for _ in 0..4 {
        let started = Instant::now();
        for &(address, block) in &ios {
            evicted.clear();
            table.read(0, address, [block].into_iter(), &mut evicted);
        }
        best = best.min(started.elapsed().as_nanos() as f64 / ios.len() as f64);
    }
    println!("{best:.0} ns an I/O");
    assert!(table.counts().reported > 1 << 20);
    assert!(best < 2000.0, "{best} ns");
}
