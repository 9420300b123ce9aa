//! The schemes of movement against naive models, worked examples, identities and invariants.

mod bidifilter_model;
mod hfa_model;
mod models;
mod promote_model;
mod tandem_model;
mod worked;

use models::Model;
use undercroft_policy::{Context, Evictions, Reference, Spec};
use undercroft_random::testing::{Random, seeds};
use undercroft_schemes::{Build, Move, Node, Scheme, SchemeSpec, Topology, schemes};

/// A scheme by its text; `promote-arc` is `promote` over levels of ARC.
fn scheme(text: &str, topology: &Topology, seed: u64) -> Box<dyn Scheme> {
    let (text, policy) = match text.strip_prefix("promote-arc") {
        Some(options) => (&*format!("promote{options}"), "arc"),
        None => (text, "lru"),
    };
    let spec: SchemeSpec = text.parse().expect(text);
    let mut scheme = spec.build(Build { policy, seed, ..Build::new(topology) }).expect(text);
    scheme.grow(64);
    scheme
}

/// For two levels only.
fn is_for_pairs(text: &str) -> bool {
    ["bidifilter", "tandem"].contains(&text.split(',').next().unwrap())
}

/// The schemes of a line of levels, with the model of each, as their options say.
fn modelled() -> Vec<String> {
    let mut all: Vec<String> = [
        "demote",
        "demote,array=lru",
        "demote,order=demote-first",
        "demote,array=lru,order=demote-first",
        "demote,array=seg",
        "demote,array=seg,segments=uniform,entrance=normalised",
        "promote",
        "promote,probability=fixed,start=0.3",
        "promote-arc",
        "promote-arc,probability=fixed,start=0.3",
        "hint-k",
        "hint-k,steps=2",
        "hint-k,arrival=nothing",
        "hint-k,steps=2,arrival=nothing",
        "bidifilter,sketch=exact",
        "bidifilter,sketch=exact,frequent=0.8,protected=0.3",
        "bidifilter,sketch=exact,frequent=0,protected=1",
        "tandem,sketch=exact",
        "tandem,sketch=exact,window=0.5,hirs=0.3,margin=0",
        "tandem,sketch=exact,window=0.3,hirs=0.6,margin=1",
        "tandem,sketch=exact,window=1",
        "tandem,sketch=exact,admit=frequent",
        "tandem,sketch=exact,admit=frequent,window=0.4,hirs=0.5,margin=0",
        "tandem,sketch=exact,adapt=ghosts",
        "tandem,sketch=exact,adapt=ghosts,margin=0",
    ]
    .map(String::from)
    .to_vec();
    for name in ["d-hfa", "p-hfa", "h-hfa"] {
        for options in [
            "period=4,entries=8,hotness=stays",
            "period=3,entries=2,k=2",
            "period=5,entries=64,k=3",
            "period=7,entries=16,partition=fixed,hot=0.3,hotness=stays",
            "period=4,entries=8,rise=hint,fmin=0",
            "k=0",
            "period=4,entries=8,queues=hard",
            "period=3,entries=64,k=3,fmin=0,hot=0.2,queues=hard,hotness=stays",
            "period=7,entries=16,partition=fixed,hot=0.7,queues=hard",
            "k=0,queues=hard",
        ] {
            all.push(format!("{name},{options}"));
        }
    }
    let nothing = ["period=4,entries=8", "period=3,entries=64,k=3,queues=hard", "k=0"];
    all.extend(nothing.map(|options| format!("h-hfa,{options},arrival=nothing")));
    all
}

/// Drives a scheme and its model; the first difference is an error.
fn compare(text: &str, sizes: &[u32], refs: &[Reference], seed: u64) -> Result<(), String> {
    let topology = Topology::line(sizes).unwrap();
    let mut ours = scheme(text, &topology, seed);
    let mut model = Model::new(text, sizes, seed);
    let mut moves = Vec::new();
    for (i, &reference) in refs.iter().enumerate() {
        moves.clear();
        let found = ours.reference(0, reference, &mut moves);
        let expected = model.reference(reference.entry(), reference.is_write());
        let at = format!("{text} over {sizes:?}, reference {i} of {refs:?}");
        if found != expected {
            return Err(format!("{at}: found at {found:?}, not {expected:?}"));
        }
        let down = moves.iter().filter(|m| matches!(m, Move::Demoted(..) | Move::Resent(..)));
        let up = moves.iter().filter(|m| matches!(m, Move::Promoted(..)));
        let (down, up) = (down.count(), up.count());
        if (down, up) != model.moved() {
            return Err(format!("{at}: moves {moves:?}, not {:?} down and up", model.moved()));
        }
        for node in 0..sizes.len() {
            let held: Vec<_> = (0..64).filter(|&entry| ours.holds(node, entry)).collect();
            if held != model.held(node) {
                let state = ours.describe(node);
                let expected = model.held(node);
                return Err(format!(
                    "{at}: cache {node} holds {held:?}, not {expected:?}: {state:?}"
                ));
            }
        }
        ours.validate().map_err(|what| format!("{at}: {what}"))?;
    }
    Ok(())
}

fn random_refs(random: &mut Random, count: u32, blocks: u32, writes: bool) -> Vec<Reference> {
    let one = |_| {
        let block = random.block(blocks);
        Reference::new(block, writes && random.below(4) == 0)
    };
    (0..count).map(one).collect()
}

#[test]
fn every_scheme_agrees_with_its_model_on_random_references() {
    for seed in seeds(12) {
        let mut random = Random(seed);
        for text in modelled() {
            for _ in 0..3 {
                let levels = 2 + if is_for_pairs(&text) { 0 } else { random.below(2) };
                let sizes: Vec<u32> = (0..levels).map(|_| 1 + random.below(7)).collect();
                let (blocks, writes) = (4 + random.below(20), random.below(2) == 0);
                let refs = random_refs(&mut random, 150, blocks, writes);
                compare(&text, &sizes, &refs, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            }
        }
    }
}

/// In each slot some blocks are hit, and then pushed out by others. So Q1 grows by more places than
/// Q2 has hot blocks in the end, and with hard queues cold ones must follow them.
#[test]
fn hard_queues_agree_with_the_model_where_hot_blocks_leave_within_a_slot() {
    let slot = |slot: u32| {
        let hit = (0..5).flat_map(move |i| [7 * slot + i; 2]);
        hit.chain((20..30).map(move |i| 7 * slot + i))
    };
    let refs: Vec<_> = (0..60).flat_map(slot).map(|block| Reference::read(block % 60)).collect();
    for name in ["d-hfa", "p-hfa", "p-hfa,probability=fixed,start=1", "h-hfa"] {
        for (k, hot, sizes) in [(2, 0.2, [8, 8]), (2, 0.2, [6, 12]), (4, 0.1, [12, 12])] {
            let options = format!("period=20,k={k},rise=hint,fmin=100,entries=64,hot={hot}");
            let text = format!("{name},{options},queues=hard");
            compare(&text, &sizes, &refs, 42).unwrap_or_else(|e| panic!("{e}"));
        }
    }
}

/// Every sequence of six references to three blocks, and of eight to two.
#[test]
fn every_scheme_agrees_with_its_model_on_all_short_sequences() {
    for text in modelled() {
        for (blocks, length, sizes) in
            [(3_u32, 6, &[1, 1][..]), (3, 6, &[1, 2]), (3, 6, &[2, 1]), (2, 8, &[1, 1, 1])]
        {
            if is_for_pairs(&text) && sizes.len() > 2 {
                continue;
            }
            for number in 0..blocks.pow(length) {
                let digit = |i| Reference::read(number / blocks.pow(i) % blocks);
                let refs: Vec<_> = (0..length).map(digit).collect();
                compare(&text, sizes, &refs, 1).unwrap_or_else(|e| panic!("{e}"));
            }
        }
    }
}

/// What a scheme answered, step by step.
fn answers(text: &str, sizes: &[u32], refs: &[Reference], seed: u64) -> Vec<Option<usize>> {
    let topology = Topology::line(sizes).unwrap();
    let mut ours = scheme(text, &topology, seed);
    refs.iter().map(|&r| ours.reference(0, r, &mut Vec::new())).collect()
}

#[test]
fn without_slots_hfa_is_the_scheme_underneath() {
    for seed in seeds(20) {
        let mut random = Random(seed);
        let refs = random_refs(&mut random, 400, 30, false);
        let sizes = [1 + random.below(6), 1 + random.below(12), 1 + random.below(6)];
        for [hfa, base] in [["p-hfa,k=0", "promote"], ["h-hfa,k=0", "hint-k"]] {
            let ours = answers(hfa, &sizes, &refs, seed);
            assert_eq!(ours, answers(base, &sizes, &refs, seed), "seed {seed}: {hfa}");
        }
        // Exclusive LRU levels are one big LRU.
        let whole = sizes.iter().sum();
        let mut lru = Spec::parse("lru").unwrap().build(&Context::new(whole)).unwrap();
        lru.grow(64);
        let mut out = Evictions::new();
        let hits: Vec<_> = refs.iter().map(|r| lru.access(r.entry(), &mut out)).collect();
        let ours = answers("d-hfa,k=0", &sizes, &refs, seed);
        assert_eq!(ours.iter().map(Option::is_some).collect::<Vec<_>>(), hits, "seed {seed}");
    }
}

/// Where arrivals count, a demotion leaves a value as it is. So all values on a line are equal, and
/// no block comes up, as docs/developer/algorithms.md says.
#[test]
fn hint_k_promotes_nothing_on_a_line_where_arrivals_count() {
    for seed in seeds(10) {
        let mut random = Random(seed);
        let topology = Topology::line(&[1 + random.below(6), 1 + random.below(12), 4]).unwrap();
        let mut promoted = |text: &str| {
            let (mut ours, mut moves) = (scheme(text, &topology, seed), Vec::new());
            for reference in random_refs(&mut random, 400, 20, false) {
                ours.reference(0, reference, &mut moves);
            }
            moves.iter().filter(|m| matches!(m, Move::Promoted(..))).count()
        };
        assert_eq!(promoted("hint-k,arrival=counts"), 0, "seed {seed}");
        assert!(promoted("hint-k,arrival=nothing") > 0, "seed {seed}");
    }
}

/// With probability 0 the lowest level owns everything; with 1 everything passes up to the first,
/// which is then LRU by itself.
#[test]
fn promote_at_the_limits_of_its_probability() {
    for seed in seeds(10) {
        let mut random = Random(seed);
        let refs = random_refs(&mut random, 300, 20, false);
        for (start, size) in [(0, 5), (1, 3)] {
            let text = format!("promote,probability=fixed,start={start}");
            let ours = answers(&text, &[3, 5], &refs, seed);
            let mut lru = Spec::parse("lru").unwrap().build(&Context::new(size)).unwrap();
            lru.grow(64);
            let level = if start == 0 { 1 } else { 0 };
            let mut out = Evictions::new();
            let mut hit = |r: &Reference| lru.access(r.entry(), &mut out).then_some(level);
            let expected: Vec<_> = refs.iter().map(&mut hit).collect();
            assert_eq!(ours, expected, "seed {seed}, start {start}");
        }
    }
}

/// On trees, with reads and writes: what a node holds is what the moves say, nothing is held twice
/// on a client's way by an exclusive scheme, and everything that came is held or dropped.
#[test]
fn moves_say_what_is_held_and_trees_hold_it_once() {
    for seed in seeds(10) {
        let mut random = Random(seed);
        for info in schemes() {
            for policy in info.policies {
                let size = |random: &mut Random| 1 + random.below(8);
                let node = |random: &mut Random, below| Node { capacity: size(random), below };
                let tree = Topology::new(
                    vec![
                        node(&mut random, Some(2)),
                        node(&mut random, Some(3)),
                        node(&mut random, Some(3)),
                        node(&mut random, None),
                    ],
                    &[0, 1, 2],
                );
                let line = Topology::line(&[size(&mut random), size(&mut random)]);
                let topology = if is_for_pairs(info.name) { line } else { tree }.unwrap();
                let spec: SchemeSpec = info.name.parse().unwrap();
                let build = Build { policy, seed, ..Build::new(&topology) };
                let mut ours = spec.build(build).unwrap();
                ours.grow(60);
                conserve(info.name, &topology, ours.as_mut(), &mut random);
            }
        }
    }
}

fn conserve(name: &str, topology: &Topology, ours: &mut dyn Scheme, random: &mut Random) {
    let clients = topology.clients() as u32;
    let mut held = vec![[false; 60]; topology.nodes()];
    let mut moves = Vec::new();
    for step in 0..600 {
        let client = random.below(clients);
        // Clients have blocks of their own.
        let block = client + clients * random.block(60 / clients);
        let is_write = random.below(5) == 0;
        let reference = Reference::new(block, is_write);
        let before: Vec<bool> = held.iter().map(|node| node[block as usize]).collect();
        moves.clear();
        let found = ours.reference(client as usize, reference, &mut moves);
        let first = topology.path(client as usize).iter().find(|&&node| before[node]);
        assert_eq!(found, first.copied(), "{name}, step {step}");
        for &moved in &moves {
            match moved {
                Move::Filled(e, node) | Move::Copied(e, node) => held[node][e as usize] = true,
                Move::Resent(e, node) | Move::Demoted(e, node) => {
                    // Only the cache above gives it up.
                    let above = |&n: &usize| topology.below(n) == Some(node);
                    (0..topology.nodes()).filter(above).for_each(|n| held[n][e as usize] = false);
                    held[node][e as usize] = true;
                }
                Move::Promoted(e, node) => {
                    // It came from somewhere below.
                    let below = std::iter::successors(topology.below(node), |&n| topology.below(n));
                    below.for_each(|n| held[n][e as usize] = false);
                    held[node][e as usize] = true;
                }
                Move::Dropped(e, node) => held[node][e as usize] = false,
            }
        }
        for (node, marks) in held.iter().enumerate() {
            for entry in 0..60 {
                let (ours, said) = (ours.holds(node, entry), marks[entry as usize]);
                assert_eq!(ours, said, "{name}, step {step}, block {entry} at {node}: {moves:?}");
            }
            let count = marks.iter().filter(|&&mark| mark).count();
            assert_eq!(count, ours.len(node) as usize, "{name}");
            assert!(ours.len(node) <= topology.capacity(node), "{name}");
        }
        if !["demote", "tandem"].contains(&name) {
            for entry in 0..60 {
                let times = held.iter().filter(|node| node[entry as usize]).count();
                assert!(times <= 1, "{name}, step {step}: block {entry} is held {times} times");
            }
        }
        ours.validate().unwrap_or_else(|what| panic!("{name}, step {step}: {what}"));
    }
}

/// What a server refuses with the sentence that it is for simulations.
#[test]
fn the_engine_knows_the_names_of_all_schemes() {
    let names: Vec<_> = schemes().iter().map(|info| info.name).collect();
    assert_eq!(names, undercroft_level::placement::SIMULATED);
}

#[test]
fn schemes_come_back_as_they_were_written_and_nonsense_is_refused() {
    for text in [
        "demote",
        "demote,array=seg",
        "d-hfa,k=4,partition=fixed",
        "hint-k,steps=2,arrival=nothing",
    ] {
        assert_eq!(text.parse::<SchemeSpec>().unwrap().to_string(), text);
    }
    for (text, why) in [
        ("demotes", "there are demote, promote"),
        ("d-hfa,k=65", "from 0 to 64"),
        ("demote,array=fifo", "mrulru or lru or seg"),
        ("promote,k=3", "there are: probability, start"),
    ] {
        let error = text.parse::<SchemeSpec>().unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let refused = |text: &str, topology: &Topology, policy: &str| {
        let spec: SchemeSpec = text.parse().unwrap();
        let built = spec.build(Build { policy, ..Build::new(topology) });
        built.err().expect("is refused").to_string()
    };
    let two = Topology::line(&[2, 2]).unwrap();
    let three = Topology::line(&[2, 2, 2]).unwrap();
    assert!(refused("demote", &two, "mq").contains("written with lru"));
    assert!(refused("bidifilter", &three, "lru").contains("two levels"));
    assert!(refused("tandem", &three, "lru").contains("two levels"));
    let huge = Topology::line(&[u32::MAX, u32::MAX]).unwrap();
    assert!(refused("tandem", &huge, "lru").contains("too many"));
    assert!(refused("d-hfa", &Topology::line(&[2]).unwrap(), "lru").contains("add one below"));
}
