//! What a cache knows of its neighbour: Bloom summaries and what is lost of them, and two levels of
//! which one or both are content-aware against a naive model that is told everything anew at every
//! step.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use std::collections::BTreeSet;

use crate::model::{self, Model};
use crate::support::{Random, letters, seeds};
use serde_json::Value;
use undercroft_level::Level;
use undercroft_level::content::{
    Body, CountingFilter, Filter, Follower, Pair, Publication, Publisher, Shape, Unusable,
};
use undercroft_level::placement::Placement;
use undercroft_policy::{Awareness, Context, Reference, Spec, WriteMode};
use undercroft_sim::tree::Tree;

fn example(id: &str) -> Value {
    let data: Value = serde_json::from_str(include_str!(
        "../../../policy/tests/policy/data/content-examples.json"
    ))
    .unwrap();
    let examples = data["examples"].as_array().unwrap();
    examples.iter().find(|e| e["id"] == id).unwrap().clone()
}

fn pair(levels: [(&str, u32); 2], mode: WriteMode, blocks: u32) -> Pair {
    let [upper, lower] = levels.map(|(text, capacity)| (Spec::parse(text).expect(text), capacity));
    let levels = [(&upper.0, upper.1), (&lower.0, lower.1)];
    Pair::new(levels, mode, (0..blocks).map(u64::from)).expect("two levels")
}

// ------------------------------------------------------------------ filters

#[test]
fn the_formula_and_the_filter_agree() {
    let e = example("bloom-1");
    let number = |key: &str| e[key].as_u64().unwrap() as u32;
    for capacity in [1000, 4000, 100_000] {
        let shape = Shape::new(number("bits_per_block"), number("hashes"), capacity, 0);
        let expected = shape.false_positives(capacity);
        assert!((expected - e["false_positive"].as_f64().unwrap()).abs() < 1e-6, "{expected}");
        for (stride, seed) in [(1, 0), (1, 7), (8, 0), (4096, 1)] {
            let mut filter = CountingFilter::new(Shape { seed, ..shape });
            let blocks = (0..u64::from(capacity)).map(|i| i * stride);
            blocks.clone().for_each(|block| filter.insert(block, |_| ()));
            assert!(blocks.clone().all(|block| filter.holds(block)), "no false negatives");
            let others = (u64::from(capacity)..200_000 + u64::from(capacity)).map(|i| i * stride);
            let wrong = others.filter(|&block| filter.holds(block)).count();
            let share = wrong as f64 / 200_000.0;
            assert!((share / expected - 1.0).abs() < 0.15, "{capacity} {stride} {seed}: {share}");
        }
    }
}

#[test]
fn what_is_taken_out_is_out() {
    for seed in seeds(10) {
        let mut random = Random(seed);
        let shape = Shape::new(8, 4, 1 + random.below(300), seed);
        let mut filter = CountingFilter::new(shape);
        let mut content = BTreeSet::new();
        for _ in 0..3000 {
            let block = u64::from(random.below(600));
            if content.remove(&block) {
                filter.remove(block, |_| ());
            } else if content.len() < (shape.bits / 8) as usize {
                content.insert(block);
                filter.insert(block, |_| ());
            }
        }
        let mut fresh = CountingFilter::new(shape);
        content.iter().for_each(|&block| fresh.insert(block, |_| ()));
        assert_eq!(filter.bits(), fresh.bits(), "UNDERCROFT_SEED={seed}");
        content.iter().for_each(|&block| filter.remove(block, |_| ()));
        assert!(filter.bits().bytes().iter().all(|&byte| byte == 0));
    }
}

/// What the neighbour has to know: the filter of this content.
fn fresh(publication: &Publication, shape: Shape, content: &BTreeSet<u64>) -> Filter {
    let mut filter = CountingFilter::new(Shape { seed: publication.epoch.into(), ..shape });
    content.iter().for_each(|&block| filter.insert(block, |_| ()));
    filter.bits()
}

#[test]
fn deltas_make_the_filter_and_lost_ones_are_noticed() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let capacity = 20 + random.below(400);
        let publish = [0.0001, 0.01, 0.2, 1.0][random.below(4) as usize];
        let mut publisher = Publisher::new(8, 4, capacity, publish);
        let mut follower = Follower::new(8, 4, capacity);
        let mut content = BTreeSet::new();
        let (mut lost, mut whole, mut changes) = (false, 0, 0);
        for _ in 0..4000 {
            let block = u64::from(random.below(3 * capacity));
            if content.remove(&block) {
                publisher.went(block);
            } else if content.len() < capacity as usize {
                content.insert(block);
                publisher.came(block);
            }
            if !publisher.is_due() {
                continue;
            }
            let publication = publisher.publish(|| content.iter().copied().collect());
            if random.below(20) == 0 {
                lost = true;
                continue;
            }
            let before = follower.filter().clone();
            let is_whole = matches!(publication.body, Body::Whole(_));
            match follower.apply(&publication) {
                Ok(()) => {
                    assert!(is_whole || !lost, "UNDERCROFT_SEED={seed}: a gap was not seen");
                    lost = false;
                    let expected = fresh(&publication, follower.filter().shape(), &content);
                    assert_eq!(*follower.filter(), expected, "UNDERCROFT_SEED={seed}");
                    assert!(publication.bytes() <= 12 + u64::from(capacity));
                    *if is_whole { &mut whole } else { &mut changes } += 1;
                }
                Err(why) => {
                    assert!(why == Unusable::Lost && lost && !is_whole, "UNDERCROFT_SEED={seed}");
                    assert_eq!(*follower.filter(), before);
                    publisher.ask_for_whole();
                    assert!(publisher.is_due());
                }
            }
        }
        assert!(whole > 0 && (changes > 0 || publish == 1.0), "{whole} whole, {changes} changes");
    }
}

#[test]
fn a_saturated_filter_is_made_anew_with_another_seed() {
    // One block a hundred times over is what a filter of this size cannot count.
    let mut publisher = Publisher::new(8, 4, 4, 1.0);
    let mut follower = Follower::new(8, 4, 4);
    publisher.came(1);
    follower.apply(&publisher.publish(Vec::new)).unwrap();
    (0..100).for_each(|_| publisher.came(1));
    let publication = publisher.publish(|| vec![1, 2]);
    assert_eq!(publication.epoch, 1);
    assert!(matches!(publication.body, Body::Whole(_)));
    follower.apply(&publication).unwrap();
    assert_eq!(follower.filter().shape().seed, 1);
    assert!(follower.holds(1) && follower.holds(2));
    let content = BTreeSet::from([1, 2]);
    let expected = fresh(&publication, follower.filter().shape(), &content);
    assert_eq!(*follower.filter(), expected);
}

#[test]
fn what_is_no_publication_is_refused_and_changes_nothing() {
    let mut follower = Follower::new(8, 4, 100);
    let of = |sequence, body| Publication { epoch: 0, sequence, body };
    let changes = |bytes: &[u8]| of(2, Body::Changes(bytes.to_vec()));
    assert_eq!(follower.apply(&changes(&[1])), Err(Unusable::Lost), "nothing is known yet");
    assert_eq!(follower.apply(&of(1, Body::Whole(vec![0; 99]))), Err(Unusable::Malformed));
    assert_eq!(follower.apply(&of(1, Body::Whole(vec![0; 101]))), Err(Unusable::Malformed));
    follower.apply(&of(1, Body::Whole(vec![0; 100]))).unwrap();
    let before = follower.filter().clone();
    // Beyond the end; beyond the end in two steps; cut off; longer than any number.
    let wrong: [&[u8]; 5] =
        [&[0xa0, 6], &[0x9f, 6, 0], &[0x80], &[0xff; 9], &[0xff, 0xff, 0xff, 0xff, 0xff, 1]];
    for bytes in wrong {
        assert_eq!(follower.apply(&changes(bytes)), Err(Unusable::Malformed), "{bytes:?}");
        assert_eq!(*follower.filter(), before);
    }
    follower.apply(&changes(&[0, 0x9e, 6])).unwrap();
    assert!(follower.filter().is_set(0) && follower.filter().is_set(799));
    assert_eq!(follower.apply(&changes(&[0])), Err(Unusable::Lost), "the same once more");
    for seed in seeds(300) {
        let mut random = Random(seed);
        let mut follower = follower.clone();
        let bytes: Vec<_> = (0..random.below(12)).map(|_| random.below(256) as u8).collect();
        _ = follower.apply(&of(3, Body::Changes(bytes)));
        assert_eq!(follower.filter().bytes().len(), 100);
    }
}

// ------------------------------------------------------------------ two levels

#[test]
fn worked_examples() {
    for (id, upper) in [("lruca-1", "lru-ca,alpha=1"), ("lruca-0", "lru-ca,alpha=0")] {
        let e = example(id);
        let capacity = |i: usize| e["capacities"][i].as_u64().unwrap() as u32;
        let mut ours = pair([(upper, capacity(0)), ("lru", capacity(1))], WriteMode::Allocate, 26);
        let mut events = e["events"].as_array().unwrap().iter().peekable();
        // The engine wants blocks numbered by their first references, which the letters are.
        for (i, (entry, found)) in
            letters(&e["refs"]).into_iter().zip(e["result"].as_array().unwrap()).enumerate()
        {
            let before = ours.policies()[0].residents();
            let level = ours.reference(Reference::read(entry));
            let expected = [None, Some(0), Some(1)]
                [["D", "L1", "L2"].iter().position(|name| found == name).unwrap()];
            assert_eq!(level, expected, "{id}, {i}");
            let upper = ours.policies()[0];
            let gone: Vec<_> = before.into_iter().filter(|&e| !upper.contains(e)).collect();
            let event = events.next_if(|event| event["at"] == i + 1);
            let of = |event: &Value| {
                u32::from(event["events"][0][0].as_str().unwrap().as_bytes()[0] - b'A')
            };
            assert_eq!(gone, event.map(of).into_iter().collect::<Vec<_>>(), "{id}, {i}");
        }
        let [upper, lower] = ours.policies().map(|policy| policy.residents());
        assert_eq!(upper, letters(&e["final"]["L1_lru_to_mru"]), "{id}");
        assert_eq!(lower, letters(&e["final"]["L2_lru_to_mru"]), "{id}");
    }
}

/// Two models, each told before every step what the other holds. Where both are content-aware the
/// lower one goes by what the upper one held at the last exchange but one, without what it has
/// served since.
struct NaivePair {
    upper: Box<dyn Model>,
    lower: Box<dyn Model>,
    mode: WriteMode,
    blocks: u32,
    both: bool,
    period: usize,
    /// The upper level's content at the last exchange and at the one before.
    snapshots: [Vec<u32>; 2],
    /// What the lower one served since the last exchange and the one before.
    served: [Vec<u32>; 2],
    /// Blocks that came to the upper level or went since the last exchange.
    events: usize,
}

impl NaivePair {
    fn serve(&mut self, is_upper: bool, block: u32, is_write: bool) -> (bool, usize) {
        let neighbour = if is_upper { self.lower.resident() } else { self.upper.resident() };
        let level = if is_upper { &mut self.upper } else { &mut self.lower };
        for b in 0..self.blocks {
            let holds = if self.both && !is_upper {
                self.snapshots[1].contains(&b) && !self.served.concat().contains(&b)
            } else {
                neighbour.contains(&b)
            };
            level.learn(b, holds);
        }
        let before = level.resident();
        let hit = match self.mode {
            WriteMode::NoAllocate if is_write => before.contains(&block),
            WriteMode::Invalidate if is_write => {
                level.discard(block);
                before.contains(&block)
            }
            _ => level.access(block).hit,
        };
        let after = level.resident();
        let changes = before.iter().filter(|b| !after.contains(b)).count()
            + after.iter().filter(|b| !before.contains(b)).count();
        (hit, changes)
    }

    fn reference(&mut self, block: u32, is_write: bool) -> Option<usize> {
        let mut found = None;
        if is_write || !self.upper.resident().contains(&block) {
            if self.events >= self.period {
                self.events = 0;
                self.snapshots.swap(0, 1);
                self.snapshots[0] = self.upper.resident();
                self.served.swap(0, 1);
                self.served[0].clear();
            }
            if self.serve(false, block, is_write).0 {
                found = Some(1);
            }
            self.served[0].push(block);
        }
        let (hit, changes) = self.serve(true, block, is_write);
        self.events += changes;
        if hit { Some(0) } else { found }
    }
}

fn model(text: &str, capacity: u32) -> Box<dyn Model> {
    let spec = Spec::parse(text).expect(text);
    let value = |(name, value): (&'static str, undercroft_policy::Argument)| {
        let text = value.to_string();
        match text.as_str() {
            "yes" => Some((name, 1.0)),
            "no" => Some((name, 0.0)),
            text => text.parse().ok().map(|value| (name, value)),
        }
    };
    let parameters: Vec<_> = spec.arguments().filter_map(value).collect();
    model::model(spec.info().name, &parameters, capacity)
}

#[test]
fn both_levels_do_what_the_naive_ones_do() {
    const AWARE: [&str; 5] =
        ["lru-ca", "clock-ca", "2q,ca", "arc,ca,alpha=1", "mq,ca,alpha=0.2,lifetime=9"];
    const PLAIN: [&str; 4] = ["lru", "fifo", "2q", "mq"];
    let modes = [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate];
    for seed in seeds(60) {
        let mut random = Random(seed);
        let pick =
            |random: &mut Random, of: &[&'static str]| of[random.below(of.len() as u32) as usize];
        let (direction, mode) = (random.below(3), modes[random.below(3) as usize]);
        let upper = pick(&mut random, if direction == 1 { &PLAIN } else { &AWARE });
        let lower = pick(&mut random, if direction == 0 { &PLAIN } else { &AWARE });
        let publish = [0.0001, 0.2, 1.0][random.below(3) as usize];
        let lower =
            if direction == 0 { lower.into() } else { format!("{lower},publish={publish}") };
        let capacities = [1 + random.below(12), 1 + random.below(12)];
        let blocks = capacities[0] + capacities[1] + random.below(20);
        let mut ours = pair([(upper, capacities[0]), (&lower, capacities[1])], mode, blocks);
        let mut naive = NaivePair {
            upper: model(upper, capacities[0]),
            lower: model(&lower, capacities[1]),
            mode,
            blocks,
            both: direction == 2,
            period: ((publish * f64::from(capacities[0])).ceil() as usize).max(1),
            snapshots: Default::default(),
            served: Default::default(),
            events: 0,
        };
        let mut known = 0;
        for step in 0..1200 {
            let block = random.block(blocks).min(known);
            known += u32::from(block == known && known + 1 < blocks);
            let is_write = random.below(5) == 0;
            let found = ours.reference(Reference::new(block, is_write));
            let what = format!("{upper} {capacities:?} {lower} {mode:?} step {step}");
            assert_eq!(found, naive.reference(block, is_write), "{what} UNDERCROFT_SEED={seed}");
            let residents = ours.policies().map(|policy| {
                let mut residents = policy.residents();
                residents.sort_unstable();
                residents
            });
            let expected = [naive.upper.resident(), naive.lower.resident()];
            assert_eq!(residents, expected, "{what} UNDERCROFT_SEED={seed}");
            ours.validate().unwrap_or_else(|e| panic!("{what} UNDERCROFT_SEED={seed}: {e}"));
        }
        let counts = ours.aware_counts();
        assert_eq!(counts.map(|c| c.is_some()), [direction != 1, direction != 0]);
        if direction == 0 {
            let counts = counts[0].unwrap();
            assert_eq!((counts.stale, counts.mistaken), (0, 0), "exact knowledge is never wrong");
        }
    }
}

/// With one client, and the right policy and size, an emulation of the cache below is exact.
#[test]
fn an_emulation_of_the_lower_level_is_exact() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let lower =
            ["lru", "clock", "2q", "mq", "arc", "w-tinylfu,sketch=exact"][random.below(6) as usize];
        let capacities = [1 + random.below(20), 1 + random.below(20)];
        let mut exact =
            pair([("lru-ca", capacities[0]), (lower, capacities[1])], WriteMode::Allocate, 90);
        let knows = "lru-ca,knows=emulation";
        let mut guess =
            pair([(knows, capacities[0]), (lower, capacities[1])], WriteMode::Allocate, 90);
        let mut known = 0;
        for _ in 0..2000 {
            let block = random.block(90).min(known);
            known += u32::from(block == known && known + 1 < 90);
            let reference = Reference::new(block, random.below(4) == 0);
            assert_eq!(
                exact.reference(reference),
                guess.reference(reference),
                "{lower} UNDERCROFT_SEED={seed}"
            );
        }
        let counts = guess.aware_counts()[0].unwrap();
        assert_eq!(counts.source.predictions, counts.source.confirmed);
        assert_eq!((counts.mistaken, counts.source.bytes), (0, 0));
    }
}

/// An emulation of the level above is only a guess, and it is seen that it is: where the upper
/// level is not LRU it asks for blocks that it is believed to hold.
#[test]
fn an_emulation_that_is_wrong_is_not_used() {
    let knows = "lru-ca,knows=emulation";
    let mut random = Random(1);
    let mut guess = pair([("mru", 50), (knows, 50)], WriteMode::Allocate, 60);
    for known in 0..8000 {
        let reference = Reference::read(random.below(60).min(known));
        guess.reference(reference);
    }
    let counts = guess.aware_counts()[1].unwrap().source;
    assert!(counts.confirmed < counts.predictions && counts.distrusted > 0, "{counts:?}");
}

/// Above levels that place what it evicts a content-aware level knows at every step what they hold.
#[test]
fn above_eviction_based_placement_the_first_level_knows_exactly() {
    let placements = [
        "eviction,on-hit=keep",
        "eviction,on-hit=adaptive",
        "eviction,on-hit=move,staging=4",
        "eviction,on-hit=keep,threshold=1x",
        "gl",
    ];
    let mut duplicates = 0;
    let seeds = seeds(30);
    // One alone may draw a placement under which no block is held twice.
    let is_one = seeds.len() == 1;
    for seed in seeds {
        let mut random = Random(seed);
        let text = placements[random.below(5) as usize];
        let placement: Placement = text.parse().unwrap();
        let [c1, c2] = [1 + random.below(15), 1 + random.below(15)];
        let mode = WriteMode::Allocate;
        let lower = Spec::parse(["lru", "mq"][random.below(2) as usize]).unwrap();
        let lower = Level::new(&lower, c2, &placement, mode, 0).unwrap();
        let upper = Spec::parse("lru-ca").unwrap().build(&Context::new(c1)).unwrap();
        let mut ours = Tree::line(Some((upper, mode)), vec![lower]).unwrap();
        let mut naive = model("lru-ca", c1);
        let mut known = 0;
        for step in 0..1500 {
            let block = random.block(60).min(known);
            known += u32::from(block == known && known + 1 < 60);
            for b in 0..60 {
                let holds = ours.lower()[0].frame(b.into()).is_some();
                naive.learn(b, holds);
                duplicates += u32::from(holds && naive.resident().contains(&b));
            }
            ours.refer(Reference::new(block, random.below(5) == 0));
            naive.access(block);
            let mut residents = ours.clients().first().unwrap().cache().policy().residents();
            residents.sort_unstable();
            assert_eq!(residents, naive.resident(), "{text} step {step} UNDERCROFT_SEED={seed}");
        }
    }
    assert!(is_one || duplicates > 1000, "held twice: {duplicates}");
}

/// A level that goes by summaries does what a naive one does that is told before every step what
/// the neighbour's last publication says of every block.
#[test]
fn summaries_are_heard_as_they_are_published() {
    for seed in seeds(40) {
        let mut random = Random(seed);
        let capacities = [1 + random.below(25), 1 + random.below(25)];
        let publish = [0.0001, 0.1, 0.5, 1.0][random.below(4) as usize];
        let upper = format!("lru-ca,knows=bloom,filter-bits=4,hashes=2,publish={publish}");
        let mut ours =
            pair([(&upper, capacities[0]), ("lru", capacities[1])], WriteMode::Allocate, 90);
        let (mut upper, mut lower) = (model("lru-ca", capacities[0]), model("lru", capacities[1]));
        let mut publisher = Publisher::new(4, 2, capacities[1], publish);
        let mut follower = Follower::new(4, 2, capacities[1]);
        let (mut known, mut bytes) = (0, 0);
        for step in 0..1500 {
            let block = random.block(90).min(known);
            known += u32::from(block == known && known + 1 < 90);
            let is_write = random.below(5) == 0;
            ours.reference(Reference::new(block, is_write));
            if is_write || !upper.resident().contains(&block) {
                let before = lower.resident();
                lower.access(block);
                let after = lower.resident();
                let gone = before.iter().filter(|b| !after.contains(b));
                gone.for_each(|&b| publisher.went(b.into()));
                let came = after.iter().filter(|b| !before.contains(b));
                came.for_each(|&b| publisher.came(b.into()));
                if publisher.is_due() {
                    let publication =
                        publisher.publish(|| after.iter().map(|&b| b.into()).collect());
                    bytes += publication.bytes();
                    follower.apply(&publication).unwrap();
                }
            }
            (0..90).for_each(|b| upper.learn(b, follower.holds(b.into())));
            upper.access(block);
            let mut residents = ours.policies()[0].residents();
            residents.sort_unstable();
            assert_eq!(residents, upper.resident(), "step {step} UNDERCROFT_SEED={seed}");
            ours.validate().unwrap_or_else(|e| panic!("{e} UNDERCROFT_SEED={seed}"));
        }
        assert_eq!(ours.aware_counts()[0].unwrap().source.bytes, bytes);
    }
}

#[test]
fn summaries_cost_bytes_and_err() {
    let mut random = Random(3);
    let upper = "lru-ca,knows=bloom,filter-bits=4,hashes=2";
    let mut ours = pair([(upper, 200), ("lru", 200)], WriteMode::Allocate, 1000);
    let mut known = 0;
    for _ in 0..20_000 {
        let block = random.below(1000).min(known);
        known += u32::from(block == known);
        ours.reference(Reference::read(block));
    }
    let counts = ours.aware_counts()[0].unwrap();
    assert!(counts.source.publications > 100 && counts.source.whole >= 1, "{counts:?}");
    // No message is larger than the whole filter.
    assert!(counts.source.bytes <= counts.source.publications * (12 + 100), "{counts:?}");
    assert!(counts.mistaken > 0 && counts.mistaken + counts.stale < counts.held, "{counts:?}");
    ours.restart_counts();
    assert_eq!(ours.aware_counts()[0], Some(Default::default()));
}

#[test]
fn what_cannot_be_is_refused() {
    let build = |text: &str| {
        let spec = Spec::parse(text).unwrap();
        let lru = Spec::parse("lru").unwrap();
        Pair::new([(&spec, 5), (&lru, 5)], WriteMode::Allocate, (0..9_u32).map(u64::from))
            .map(|_| ())
    };
    assert!(build("lru-ca,knows=bloom").is_ok());
    let error = build("lru-ca,knows=bloom,filter-bits=2,hashes=3").unwrap_err().to_string();
    assert!(error.contains("at most as many"), "{error}");
    assert!(Awareness::of(&Spec::parse("lru-ca").unwrap()).is_some());
    assert!(Spec::parse("lru-ca").unwrap().build(&Context::new(0)).is_err());
}
