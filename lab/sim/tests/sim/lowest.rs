//! The lowest level: streams that pass it and the writes of write-back, against models written
//! down plainly, and worked by hand. A failure prints the seed; `UNDERCROFT_SEED=n` runs that one
//! again.

use crate::common::{Random, blocks, config, seeds, spec, trace};
use undercroft_policy::WriteMode;
use undercroft_sim::{Config, LevelConfig, Lowest, Outcome, WriteBack, WriteBackCounts, simulate};
use undercroft_trace::Record;

fn run(records: &[Record], config: &Config) -> Outcome {
    simulate(&trace(records.to_vec()), config, |_| ()).expect("a simulation")
}

fn lowest(stream_cutoff: u64, write_back: Option<&str>) -> Lowest {
    let write_back = write_back.map(|rules| rules.parse().expect("rules"));
    Lowest { stream_cutoff_bytes: stream_cutoff * 4096, write_back, flash: None }
}

/// An LRU level whose streams and dirty blocks are lists.
struct Naive {
    capacity: usize,
    cutoff: Option<u64>,
    rules: Option<WriteBack>,
    /// Most recent last: the block, and when it became dirty.
    resident: Vec<(u64, Option<u64>)>,
    runs: Vec<(u64, u64)>,
    now: u64,
    hits: u64,
    streamed: u64,
    evictions: u64,
    counts: WriteBackCounts,
}

impl Naive {
    fn is_streamed(&mut self, block: u64) -> bool {
        let Some(cutoff) = self.cutoff else { return false };
        let at = |runs: &[(u64, u64)], at| runs.iter().find(|run| run.0 == at).map_or(0, |r| r.1);
        let length = (at(&self.runs, block) + 1).max(at(&self.runs, block + 1));
        self.runs.retain(|run| run.0 != block && run.0 != block + 1);
        self.runs.push((block + 1, length));
        length > cutoff
    }

    fn serve(&mut self, block: u64, is_write: bool) {
        self.now += 1;
        let is_streamed = self.is_streamed(block);
        let place = self.resident.iter().position(|(resident, _)| *resident == block);
        self.hits += u64::from(place.is_some());
        match (place, is_streamed) {
            (Some(place), false) => {
                let found = self.resident.remove(place);
                self.resident.push(found);
            }
            (None, true) => self.streamed += 1,
            (None, false) => {
                if self.resident.len() == self.capacity {
                    let (_, dirty) = self.resident.remove(0);
                    self.evictions += 1;
                    self.counts.evicted += u64::from(dirty.is_some());
                }
                self.resident.push((block, None));
            }
            (Some(_), true) => {}
        }
        let now = self.now;
        if is_write {
            match self.resident.iter_mut().find(|(resident, _)| *resident == block) {
                None => self.counts.around += 1,
                Some((_, Some(_))) => self.counts.saved += 1,
                Some((_, clean)) => *clean = Some(now),
            }
        }
        let rules = self.rules.unwrap_or_default();
        loop {
            let mut dirty: Vec<(u64, usize)> = (self.resident.iter().enumerate())
                .filter_map(|(i, (_, since))| Some(((*since)?, i)))
                .collect();
            dirty.sort();
            let share = rules.percent.map_or(f64::INFINITY, |p| p * self.capacity as f64 / 100.0);
            let Some(&(since, oldest)) = dirty.first() else { return };
            let is_old = rules.age.is_some_and(|age| now - since >= age);
            if !is_old && dirty.len() as f64 <= share.floor() {
                return;
            }
            self.resident[oldest].1 = None;
            self.counts.early += 1;
        }
    }
}

#[test]
fn the_lowest_level_is_that_of_the_plain_model() {
    for seed in seeds(150) {
        let mut random = Random(seed);
        let capacity = 1 + random.below(12);
        let cutoff = random.one_in(2).then(|| 1 + u64::from(random.below(5)));
        let rules = ["", "age=1", "age=7", "percent=30", "age=20,percent=60", "percent=0.1"];
        let rules = random.one_in(2).then(|| rules[random.below(6) as usize]);
        let rules = rules.or(cutoff.is_none().then_some("age=9"));
        let records: Vec<Record> = (0..300)
            .map(|_| {
                let (first, length) = (random.block(40), 1 + random.below(6) * random.below(2));
                blocks(first.into(), length.into(), random.one_in(2))
            })
            .collect();
        let lowest = lowest(cutoff.unwrap_or(0), rules);
        let write_back = lowest.write_back;
        let config = Config { lowest, ..config(&[(capacity, "lru")], WriteMode::Allocate, 0) };
        let outcome = run(&records, &config);
        let mut naive = Naive {
            capacity: capacity as usize,
            cutoff,
            rules: write_back,
            resident: Vec::new(),
            runs: Vec::new(),
            now: 0,
            hits: 0,
            streamed: 0,
            evictions: 0,
            counts: WriteBackCounts::default(),
        };
        for record in &records {
            let is_write = record.op == undercroft_trace::Op::Write;
            (0..record.length).for_each(|i| naive.serve(record.address + i, is_write));
        }
        naive.counts.left =
            naive.resident.iter().filter(|(_, dirty)| dirty.is_some()).count() as u64;
        let level = outcome.levels[0];
        let what = format!("seed {seed}: {config:?}");
        assert_eq!(level.read_hits + level.write_hits, naive.hits, "{what}");
        assert_eq!((level.streamed, level.evictions), (naive.streamed, naive.evictions), "{what}");
        assert_eq!(outcome.write_back, write_back.map(|_| naive.counts), "{what}");
        if write_back.is_some() {
            assert_eq!(outcome.disk_writes() + naive.counts.saved, level.writes, "{what}");
        }
    }
}

#[test]
fn write_back_by_hand() {
    // a and b are written twice, c drives b out, and the last writes stay until the end.
    let records: Vec<_> = [(1, true), (2, true), (1, true), (2, true), (1, false), (3, true)]
        .map(|(block, is_write)| blocks(block, 1, is_write))
        .into();
    let with = |rules| {
        let plain = config(&[(2, "lru")], WriteMode::Allocate, 0);
        run(&records, &Config { lowest: lowest(0, rules), ..plain })
    };
    let through = with(None);
    assert_eq!((through.disk_writes(), through.write_back), (5, None));
    let back = with(Some(""));
    let counts = WriteBackCounts { saved: 2, evicted: 1, early: 0, around: 0, left: 2 };
    assert_eq!((back.disk_writes(), back.write_back), (3, Some(counts)));
    let aged = with(Some("age=1"));
    let counts = WriteBackCounts { saved: 0, evicted: 0, early: 4, around: 0, left: 1 };
    assert_eq!((aged.disk_writes(), aged.write_back), (5, Some(counts)));
    let half = with(Some("percent=50"));
    let counts = WriteBackCounts { saved: 0, evicted: 1, early: 3, around: 0, left: 1 };
    assert_eq!((half.disk_writes(), half.write_back), (5, Some(counts)));
    assert_eq!("age=3,percent=2.5".parse::<WriteBack>().unwrap().to_string(), "age=3,percent=2.5");
    for wrong in ["age", "age=0", "percent=0", "percent=101", "days=3", "age=x"] {
        assert!(wrong.parse::<WriteBack>().unwrap_err().contains("expected age="), "{wrong}");
    }
}

#[test]
fn a_scan_leaves_the_working_set_alone() {
    let mut records = Vec::new();
    for round in 0..20 {
        (0..30).for_each(|block| records.push(blocks(block * 7, 1, false)));
        records.push(blocks(10_000 + round * 300, 300, false));
    }
    let with = |policy, cutoff| {
        let plain = config(&[(10, "lru"), (40, policy)], WriteMode::Allocate, 0);
        run(&records, &Config { lowest: lowest(cutoff, None), ..plain }).levels[1]
    };
    assert_eq!(with("lru", 0).read_hits, 0, "each scan drives all of it out");
    let kept = with("lru", 4);
    // 20 rounds of 30; the scan is one long stream, of which the first 4 blocks are cached.
    assert_eq!((kept.read_hits, kept.streamed), (19 * 30, 6000 - 4));
    // The best policy is told of the same references: it does not fall behind the others.
    assert!(with("opt", 4).read_hits >= kept.read_hits);
}

#[test]
fn what_cannot_be_counted_is_refused() {
    let records = [blocks(1, 1, true)];
    let refused = |write_mode, write_back, policy| {
        let levels = vec![LevelConfig { capacity: 2, policy: spec(policy) }; 2];
        let plain = Config { levels, write_mode, ..Config::default() };
        let config = Config { lowest: lowest(1, write_back), ..plain };
        simulate(&trace(records.to_vec()), &config, |_| ()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(refused(WriteMode::Invalidate, Some(""), "lru").contains("leave nothing in the cache"));
    assert!(refused(WriteMode::Allocate, None, "lru-ca").contains("placement access"));
}
