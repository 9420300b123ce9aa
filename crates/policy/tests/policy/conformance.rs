//! Every policy of the engine against its naive model, step by step: all short strings over a small
//! world, and long random ones with every operation mixed in. Structure is validated after each.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n cargo test -p undercroft-policy` runs that one
//! again.

use std::sync::Arc;

use crate::model::{self, Model};
use crate::variants::VARIANTS;
use undercroft_level::HashedCache;
use undercroft_policy::contract::Known;
use undercroft_policy::{Context, Evictions, Future, Policy, Spec, policies};
use undercroft_random::testing::{Random, seeds};

/// All policies with their defaults, and the variants; W-TinyLFU with the sketch that models
/// have.
fn specs() -> Vec<String> {
    let defaults = policies().iter().map(|info| info.name.to_string());
    let known = |text: &&&str| policies().iter().any(|p| text.split(',').next() == Some(p.name));
    defaults
        .chain(VARIANTS.iter().filter(known).map(|text| text.to_string()))
        .filter(|text| !text.starts_with("opt"))
        .map(|text| match text.split(',').next() {
            Some("w-tinylfu") => text + ",sketch=exact",
            _ => text,
        })
        .collect()
}

fn engine(text: &str, capacity: u32) -> Box<dyn Policy> {
    let spec = Spec::parse(text).expect(text);
    spec.build(&Context::new(capacity)).expect(text)
}

/// The model of the same policy with the same parameters.
fn model(text: &str, capacity: u32) -> Box<dyn Model> {
    let spec = Spec::parse(text).expect(text);
    let value = |(name, value): (&'static str, undercroft_policy::Argument)| {
        let text = value.to_string();
        match (name, text.as_str()) {
            ("lifetime", "adaptive") | ("lambda", "decay") | ("sketch" | "step" | "knows", _) => {
                None
            }
            ("ca", word) => Some((name, f64::from(u8::from(word == "yes")))),
            ("top", word) => Some((name, f64::from(u8::from(word == "keep")))),
            _ => Some((name, text.parse().expect("a number"))),
        }
    };
    let parameters: Vec<_> = spec.arguments().filter_map(value).collect();
    model::model(spec.info().name, &parameters, capacity)
}

/// One call to a policy.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Call {
    Access(u32),
    Write(u32),
    /// Of a resident.
    Touch(u32),
    Take(u32),
    Note(u32),
    Place(u32),
    Discard(u32),
    Resize(u32),
    Learn(u32, bool),
}

/// An engine policy and its model, kept in step.
struct Pair {
    ours: Box<dyn Policy>,
    model: Box<dyn Model>,
    out: Evictions,
    entries: u32,
    known: Known,
}

impl Pair {
    fn new(text: &str, capacity: u32, entries: u32) -> Self {
        Self::of(engine(text, capacity), model(text, capacity), entries)
    }

    fn of(mut ours: Box<dyn Policy>, model: Box<dyn Model>, entries: u32) -> Self {
        // One entry more than any call uses: the stranger that `victim` is about.
        ours.grow(entries + 1);
        let known = Known { residents: Vec::new(), ghosts: Vec::new() };
        Self { ours, model, out: Evictions::new(), entries, known }
    }

    /// Carries a call out on both and compares everything that can be seen.
    fn step(&mut self, call: Call) -> Result<(), String> {
        self.out.clear();
        let (ours, out) = (&mut self.ours, &mut self.out);
        let expected_victim = self.model.victim();
        if ours.victim() != expected_victim {
            return Err(format!("victim {:?}, model {expected_victim:?}", ours.victim()));
        }
        let hit = |e| if ours.contains(e) { "hit" } else { "miss" };
        let (found, evicted) = match call {
            Call::Access(e) => {
                let step = self.model.access(e);
                let found = (hit(e), if step.hit { "hit" } else { "miss" });
                let answer = ours.access(e, out);
                assert_eq!(answer, found.0 == "hit");
                (found, step.evicted)
            }
            Call::Write(e) => {
                let step = self.model.write(e);
                let found = (hit(e), if step.hit { "hit" } else { "miss" });
                assert_eq!(ours.write(e, out), found.0 == "hit");
                (found, step.evicted)
            }
            Call::Touch(e) => {
                if ours.contains(e) {
                    ours.touch(e, out);
                    self.model.touch(e);
                }
                (("", ""), vec![])
            }
            Call::Place(e) => {
                let step = self.model.place(e);
                let found = (hit(e), if step.hit { "hit" } else { "miss" });
                ours.place(e, out);
                (found, step.evicted)
            }
            Call::Take(e) => {
                if ours.contains(e) {
                    ours.take(e, out);
                }
                self.model.take(e);
                (("", ""), vec![])
            }
            Call::Note(e) => {
                if !ours.contains(e) {
                    ours.note(e, out);
                }
                self.model.note(e);
                (("", ""), vec![])
            }
            Call::Discard(e) => {
                ours.discard(e, out);
                self.model.discard(e);
                (("", ""), vec![])
            }
            Call::Learn(e, holds) => {
                ours.neighbour_holds(e, holds);
                self.model.learn(e, holds);
                (("", ""), vec![])
            }
            Call::Resize(capacity) => {
                ours.resize(capacity, out);
                (("", ""), self.model.resize(capacity))
            }
        };
        self.compare(call, found, &evicted)
    }

    fn compare(&mut self, call: Call, found: (&str, &str), evicted: &[u32]) -> Result<(), String> {
        let ours: Vec<_> = self.out.evicted().collect();
        if found.0 != found.1 || ours != evicted {
            return Err(format!("{found:?}, evicted {ours:?}, model {evicted:?}"));
        }
        let now = Known::of(self.ours.as_ref(), self.entries)?;
        let expected = Known { residents: self.model.resident(), ghosts: self.model.remembered() };
        if now != expected {
            return Err(format!("{now:?}, model {expected:?}"));
        }
        let removed = match call {
            Call::Take(entry) | Call::Discard(entry) => Some(entry),
            _ => None,
        };
        self.known.check_reports(&now, &self.out, removed)?;
        self.known = now;
        Ok(())
    }
}

fn run(text: &str, capacity: u32, entries: u32, calls: &[Call]) -> Result<(), String> {
    let mut pair = Pair::new(text, capacity, entries);
    for (i, &call) in calls.iter().enumerate() {
        pair.step(call).map_err(|what| {
            format!(
                "{text}, capacity {capacity}, call {i} {call:?}: {what}\nall: {:?}",
                &calls[..=i]
            )
        })?;
    }
    Ok(())
}

#[test]
fn every_short_string_of_a_small_world() {
    const BLOCKS: u32 = 4;
    const LENGTH: u32 = 8;
    for text in specs() {
        for capacity in 1..=3 {
            for code in 0..BLOCKS.pow(LENGTH) {
                // Strings are equal up to the names of blocks: only those that meet the blocks in
                // order of their numbers are run.
                let string: Vec<_> = (0..LENGTH).map(|i| code / BLOCKS.pow(i) % BLOCKS).collect();
                let ordered = string.iter().try_fold(0, |next, &b| match b {
                    b if b < next => Some(next),
                    b if b == next => Some(next + 1),
                    _ => None,
                });
                if ordered.is_none() {
                    continue;
                }
                let calls: Vec<_> = string.into_iter().map(Call::Access).collect();
                run(&text, capacity, BLOCKS, &calls).unwrap_or_else(|what| panic!("{what}"));
            }
        }
    }
}

#[test]
fn long_random_strings() {
    for text in specs() {
        for seed in seeds(12) {
            let mut random = Random(seed);
            let capacity = 1 + random.below(40);
            let blocks = capacity + 1 + random.below(4 * capacity);
            let mut call = |_| {
                let block = random.block(blocks);
                if random.below(3) == 0 { Call::Write(block) } else { Call::Access(block) }
            };
            let calls: Vec<_> = (0..2000).map(&mut call).collect();
            run(&text, capacity, blocks, &calls)
                .unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed}: {e}"));
        }
    }
}

/// Made for more blocks than the logs of ARC and 2Q can number, and then cut down.
#[test]
fn caches_larger_than_logs() {
    for (text, capacity) in [("arc", 1 << 29), ("2q", u32::MAX), ("2q,kout=100", 1 << 23)] {
        for seed in seeds(12) {
            let mut random = Random(seed);
            let mut calls = vec![Call::Access(1), Call::Resize(1 + random.below(20))];
            calls.extend((0..600).map(|_| Call::Access(random.block(60))));
            run(text, capacity, 60, &calls)
                .unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed}: {e}"));
        }
    }
}

#[test]
fn every_operation_mixed() {
    for text in specs() {
        for seed in seeds(40) {
            let mut random = Random(seed);
            let capacity = 1 + random.below(if seed % 2 == 0 { 5 } else { 30 });
            let blocks = capacity + 1 + random.below(3 * capacity);
            let calls: Vec<_> = (0..600)
                .map(|_| {
                    let block = random.block(blocks);
                    match random.below(24) {
                        20..=23 => Call::Learn(block, random.below(2) == 0),
                        0..=4 => Call::Access(block),
                        5..=8 => Call::Write(block),
                        9 => Call::Touch(block),
                        10..=12 => Call::Place(block),
                        13..=15 => Call::Take(block),
                        16 | 17 => Call::Note(block),
                        18 => Call::Discard(block),
                        _ if random.below(4) == 0 => Call::Resize(1 + random.below(2 * capacity)),
                        _ => Call::Access(block),
                    }
                })
                .collect();
            run(&text, capacity, blocks, &calls)
                .unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed}: {e}"));
        }
    }
}

/// A rate of fading that follows the capacity is that of the model, whatever happens to the cache.
#[test]
fn lfru_through_resizes_and_restarts() {
    let texts = ["lfru", "lfru,decay=2", "lfru,lambda=0.01"];
    for (seed, text) in seeds(12).into_iter().zip(texts.into_iter().cycle()) {
        let mut random = Random(seed);
        let mut model = model(text, 50);
        let mut ours = HashedCache::new(engine(text, 50), seed);
        for i in 0..4000 {
            let evicted = match random.below(60) {
                0 => {
                    let capacity = 1 + random.below(100);
                    ours.resize(capacity);
                    model.resize(capacity)
                }
                1 => {
                    let saved = ours.save().expect("a save");
                    let policy = engine(text, ours.policy().capacity());
                    ours = HashedCache::load(policy, seed, &saved).expect("what was saved");
                    continue;
                }
                _ => {
                    let block = random.block(200);
                    let step = model.access(block);
                    assert_eq!(ours.access(block.into()).hit, step.hit, "{text}, {seed}, {i}");
                    step.evicted
                }
            };
            let left: Vec<_> = ours.evicted().iter().map(|one| one.block as u32).collect();
            assert_eq!(left, evicted, "{text} UNDERCROFT_SEED={seed} step {i}");
            ours.validate().unwrap_or_else(|e| panic!("{text} UNDERCROFT_SEED={seed} {i}: {e}"));
        }
    }
}

/// Of a tenth of the blocks come a tenth of the references.
#[test]
fn parameters_in_references_are_those_of_a_sample() {
    for (whole, sample) in [
        ("mq,m=4,lifetime=1000", "mq,m=4,lifetime=100"),
        ("mq,lifetime=3", "mq,lifetime=1"),
        ("mq,qout=2", "mq,qout=2"),
        ("lru-2,crp=20", "lru-2,crp=2"),
        ("lfru,lambda=0.001", "lfru,lambda=0.01"),
        ("lfru,lambda=0.5", "lfru,lambda=1"),
        ("lfru,decay=0.5", "lfru,decay=0.5"),
    ] {
        let whole = Spec::parse(whole).unwrap();
        assert_eq!(whole.of_sample(0.1), Spec::parse(sample).unwrap());
        assert_eq!(whole.of_sample(1.0), whole);
    }
}

#[test]
fn the_fading_of_lfru_is_given_once() {
    for text in ["lfru,decay=0.05,lambda=0.5", "lfru,lambda=0,decay=1"] {
        let error = Spec::parse(text).expect_err(text).to_string();
        assert!(error.contains("lambda and decay exclude each other"), "{error}");
    }
    assert!(Spec::parse("lfru,decay=1,lambda=decay").is_ok());
    let shown = |text: &str| Spec::parse(text).expect(text).to_string();
    assert_eq!(shown("lfru,lambda=decay"), "lfru");
    assert_eq!(shown("lfru,lambda=0.5"), "lfru,lambda=0.5");
    assert_eq!(Spec::parse("lrfu,decay=0.05"), Spec::parse("lfru"));
}

#[test]
fn opt_equals_its_model_and_nothing_beats_it() {
    for seed in seeds(30) {
        let mut random = Random(seed);
        // Some larger than the number of victims that are looked up at a time.
        let capacity = 1 + random.below(if seed % 3 == 0 { 200 } else { 20 });
        let blocks = capacity + 1 + random.below(4 * capacity);
        let refs: Vec<_> = (0..1500).map(|_| random.block(blocks)).collect();
        let future = Future::new(refs.clone()).expect("short enough");
        let context = Context { capacity, future: Some(Arc::new(future)) };
        let ours = Spec::parse("opt").and_then(|s| s.build(&context)).expect("opt");
        let model = model::opt(&refs, capacity);
        let mut pair = Pair::of(ours, model, blocks);
        let mut hits = 0;
        for (i, &e) in refs.iter().enumerate() {
            hits += u32::from(pair.ours.contains(e));
            pair.step(Call::Access(e))
                .unwrap_or_else(|what| panic!("UNDERCROFT_SEED={seed}, {i}: {what}"));
        }
        for text in specs() {
            let mut other = engine(&text, capacity);
            other.grow(blocks);
            let mut out = Evictions::new();
            let others = refs.iter().filter(|&&e| other.access(e, &mut out)).count() as u32;
            assert!(others <= hits, "UNDERCROFT_SEED={seed}: {text} has {others} hits, opt {hits}");
        }
    }
}

/// The hashed index gives the same hits and evictions as the dense one, whatever the calls, and
/// keeps its handles and frames in order.
#[test]
fn hashed_equals_dense() {
    for text in specs() {
        for seed in seeds(15) {
            let mut random = Random(seed);
            let capacity = 1 + random.below(25);
            let blocks = capacity + 1 + random.below(3 * capacity);
            let name = |e: u32| u64::from(e).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut dense = engine(&text, capacity);
            dense.grow(blocks);
            let mut hashed = HashedCache::new(engine(&text, capacity), seed);
            let mut out = Evictions::new();
            for i in 0..800 {
                let e = random.block(blocks);
                out.clear();
                match random.below(20) {
                    0..=11 => {
                        let hit = dense.access(e, &mut out);
                        let found = hashed.access(name(e));
                        assert_eq!(hit, found.hit, "{text} UNDERCROFT_SEED={seed} step {i}");
                        assert_eq!(hashed.frame(name(e)), Some(found.frame));
                    }
                    12 | 13 => {
                        dense.place(e, &mut out);
                        hashed.place(name(e));
                    }
                    14 | 15 => {
                        let resident = dense.contains(e);
                        if resident {
                            dense.take(e, &mut out);
                        }
                        assert_eq!(resident, hashed.take(name(e)).is_some());
                    }
                    16 => {
                        if !dense.contains(e) {
                            dense.note(e, &mut out);
                        }
                        hashed.note(name(e));
                    }
                    17 => {
                        dense.discard(e, &mut out);
                        hashed.discard(name(e));
                    }
                    18 => {
                        let hit = dense.contains(e);
                        if hit {
                            dense.touch(e, &mut out);
                        }
                        assert_eq!(hit, hashed.touch(name(e)).is_some());
                    }
                    19 if random.below(2) == 0 => {
                        // What is known here alone can be told of.
                        if dense.contains(e) || dense.remembers(e) {
                            dense.neighbour_holds(e, i % 3 > 0);
                        }
                        hashed.neighbour_holds(name(e), i % 3 > 0);
                        continue;
                    }
                    _ => {
                        let capacity = 1 + random.below(2 * capacity);
                        dense.resize(capacity, &mut out);
                        hashed.resize(capacity);
                    }
                }
                // A handle that is given back takes nothing along.
                let unknown = |&e: &u32| !dense.contains(e) && !dense.remembers(e);
                for e in (0..blocks).filter(unknown).collect::<Vec<_>>() {
                    dense.neighbour_holds(e, false);
                }
                let evicted: Vec<_> = out.evicted().map(name).collect();
                let theirs: Vec<_> = hashed.evicted().iter().map(|e| e.block).collect();
                assert_eq!(evicted, theirs, "{text} UNDERCROFT_SEED={seed} step {i}");
                let victims = (dense.victim().map(name), hashed.victim());
                assert_eq!(victims.0, victims.1, "{text} UNDERCROFT_SEED={seed} step {i}");
                hashed
                    .validate()
                    .unwrap_or_else(|e| panic!("{text} UNDERCROFT_SEED={seed} step {i}: {e}"));
            }
        }
    }
}
