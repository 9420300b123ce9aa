//! Placement: the worked examples, the identities that the papers imply, and every policy under
//! every placement against the naive models, step by step. Structure is validated after each.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use crate::model::{self, Model};
use crate::support::{Random, letters, seeds};
use serde_json::Value;
use undercroft_level::placement::Placement;
use undercroft_level::{Level, Referred};
use undercroft_policy::{Context, Evictions, Policy, Reference, Spec, WriteMode, policies};
use undercroft_sim::tree::{Move, Tree};

pub(crate) const ALLOCATE: WriteMode = WriteMode::Allocate;

fn policy(text: &str, capacity: u32) -> Box<dyn Policy> {
    Spec::parse(text).and_then(|spec| spec.build(&Context::new(capacity))).expect(text)
}

/// A hierarchy of the first policy above the others.
pub(crate) fn hierarchy(levels: &[(&str, u32)], placement: &str) -> Tree {
    let placement: Placement = placement.parse().expect(placement);
    let lower = levels[1..].iter().map(|&(text, capacity)| {
        let spec = Spec::parse(text).expect(text);
        Level::new(&spec, capacity, &placement, ALLOCATE, 7).expect(text)
    });
    let lower = lower.collect();
    Tree::line(Some((policy(levels[0].0, levels[0].1), ALLOCATE)), lower).unwrap()
}

fn residents(level: &Level) -> Vec<u32> {
    level.cache().residents().iter().map(|&(block, _)| block as u32).collect()
}

pub(crate) fn validate(hierarchy: &Tree) -> Result<(), String> {
    hierarchy.clients().first().map_or(Ok(()), Level::validate)?;
    hierarchy.lower().into_iter().try_for_each(Level::validate)
}

// ------------------------------------------------------------------ the worked examples

/// The levels and the placement of an example; `None`: it is not about these placements.
fn setting(e: &Value) -> Option<(Vec<(String, u32)>, String)> {
    let params = &e["params"];
    let sizes = e["capacities"].as_array()?.iter().map(|c| c.as_u64().unwrap() as u32);
    let lowest = sizes.clone().next_back()?;
    let share = |key: &str| params[key].as_f64().unwrap_or(0.0) / f64::from(lowest);
    let (policy, placement) = match e["algorithm"].as_str()? {
        "GL-LRU" => ("lru".to_string(), "gl".to_string()),
        "GL-2Q" => (format!("2q,kin={},kout={}", share("k_in"), share("k_out")), "gl".into()),
        "GL-MQ" => {
            let p = |key: &str| params[key].clone();
            let (m, life, out) = (p("m"), p("life_time"), p("q_out_factor"));
            (format!("mq,m={m},lifetime={life},qout={out}"), "gl".into())
        }
        name if name.starts_with("EV") => {
            let on_hit = params["on_hit"].as_str()?;
            let threshold = &params["reload_threshold"];
            ("lru".into(), format!("eviction,on-hit={on_hit},threshold={threshold}"))
        }
        _ => return None,
    };
    // In these examples the first level is LRU.
    let levels = sizes.enumerate();
    let levels = levels.map(|(i, c)| (if i == 0 { "lru".into() } else { policy.clone() }, c));
    Some((levels.collect(), placement))
}

/// What a reference moved, in the words of the examples.
fn events(moves: &[Move], is_global: bool) -> Vec<Value> {
    let letter = |e: u64| char::from(b'A' + e as u8).to_string();
    let gone = moves.iter().filter(|m| matches!(m, Move::Dropped(..)));
    let rest = moves.iter().filter(|m| !matches!(m, Move::Dropped(..)));
    let word = |m: &Move| match *m {
        Move::Demoted(e, level) => serde_json::json!([letter(e), level + 1]),
        Move::Dropped(e, _) if is_global => serde_json::json!([letter(e), 0]),
        Move::Dropped(e, _) => serde_json::json!(["evict", letter(e)]),
        Move::Reloaded(e, _) => serde_json::json!(["reload", letter(e)]),
        Move::Skipped(e, _) => serde_json::json!(["skip", letter(e)]),
        Move::Staged(..) => panic!("no example stages"),
    };
    // The examples of eviction-based placement name the victim before the reload.
    if is_global {
        rest.chain(gone).map(word).collect()
    } else {
        gone.chain(rest).map(word).collect()
    }
}

#[test]
fn worked_examples() {
    let data: Value = serde_json::from_str(include_str!(
        "../../../policy/tests/policy/data/worked-examples.json"
    ))
    .unwrap();
    let mut done = Vec::new();
    for e in data["examples"].as_array().unwrap() {
        let Some((levels, placement)) = setting(e) else { continue };
        let id = e["id"].as_str().unwrap();
        let levels: Vec<_> = levels.iter().map(|(text, c)| (text.as_str(), *c)).collect();
        let mut ours = hierarchy(&levels, &placement);
        let (mut result, mut moved) = (Vec::new(), Vec::new());
        for (i, &block) in letters(&e["refs"]).iter().enumerate() {
            let found = ours.refer(Reference::read(block));
            result.push(found.map_or("D".into(), |level| format!("L{}", level + 1)));
            let words = events(ours.moves(), placement == "gl");
            if !words.is_empty() {
                moved.push(serde_json::json!({"at": i + 1, "events": words}));
            }
            validate(&ours).unwrap_or_else(|what| panic!("{id}, step {i}: {what}"));
        }
        assert_eq!(serde_json::json!(result), e["result"], "{id}");
        assert_eq!(serde_json::json!(moved), e["events"], "{id}");
        check_end(id, &ours, e);
        done.push(id);
    }
    let expected =
        ["gl-lru-1", "gl-lru-3level", "gl-2q-1", "gl-mq-1", "ev-move-1", "ev-keep-1", "ev-thr-1"];
    assert_eq!(done, expected);
}

/// The final content and the state of an example.
fn check_end(id: &str, ours: &Tree, e: &Value) {
    for (key, expected) in e["final"].as_object().unwrap() {
        let level: usize = key[1..2].parse().unwrap();
        let mut held = match level {
            1 => ours.clients().first().unwrap().cache().policy().residents(),
            _ => residents(ours.lower()[level - 2]),
        };
        let mut expected = letters(expected);
        if ["gl-2q-1", "gl-mq-1"].contains(&id) && level == 2 {
            // No one order; the next test has their lists.
            held.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(held, expected, "{id} {key}");
    }
    let lower = ours.lower();
    let lowest = lower.last().unwrap();
    let counted = lowest.placement().unwrap().counts();
    let demoted: Vec<_> =
        ours.lower().iter().map(|level| level.placement().unwrap().counts().demotions_in).collect();
    for (key, expected) in e["extra"].as_object().into_iter().flatten() {
        let value = match key.as_str() {
            "demotions_into" => serde_json::json!(demoted),
            "reloads" => counted.reloads.into(),
            "skipped" => counted.skipped.into(),
            "check" => continue,
            // The state of 2Q and of MQ: see the next test.
            "a1in" | "a1out" | "am" | "queues" | "qout" => continue,
            other => panic!("{id}: {other}"),
        };
        assert_eq!(value, *expected, "{id} {key}");
    }
}

/// The inner state of the examples for 2Q and MQ, over plain entries, where letters can be told.
#[test]
fn inner_state_of_worked_examples() {
    let data: Value = serde_json::from_str(include_str!(
        "../../../policy/tests/policy/data/worked-examples.json"
    ))
    .unwrap();
    for id in ["gl-2q-1", "gl-mq-1"] {
        let e = data["examples"].as_array().unwrap().iter().find(|e| e["id"] == id).unwrap();
        let (levels, _) = setting(e).unwrap();
        let mut upper = policy(&levels[0].0, levels[0].1);
        let mut lower = policy(&levels[1].0, levels[1].1);
        let mut out = Evictions::new();
        upper.grow(26);
        lower.grow(26);
        for block in letters(&e["refs"]) {
            out.clear();
            if !upper.access(block, &mut out) {
                let mut ignored = Evictions::new();
                if lower.contains(block) {
                    lower.take(block, &mut ignored);
                } else {
                    lower.note(block, &mut ignored);
                }
                out.evicted().for_each(|victim| lower.place(victim, &mut ignored));
            }
        }
        let state = format!("{lower:?}");
        let shows = |name: &str, value: String| {
            assert!(state.contains(&format!("{name}: {value}")), "{name} {value}: {state}");
        };
        let extra = &e["extra"];
        let list = |v: &Value| format!("{:?}", letters(v));
        if id == "gl-2q-1" {
            shows("a1in", list(&extra["a1in"]));
            shows("a1out", list(&extra["a1out"]));
            let mut am = letters(&extra["am"]);
            am.sort_unstable();
            let mut ours: Vec<u32> = lower.residents();
            ours.retain(|&b| !letters(&extra["a1in"]).contains(&b));
            ours.sort_unstable();
            assert_eq!(ours, am);
        } else {
            let queues: Vec<_> = extra["queues"].as_array().unwrap().iter().map(letters).collect();
            shows("queues", format!("{queues:?}"));
            let counts = extra["qout"].as_object().unwrap().iter();
            let counts: std::collections::BTreeMap<_, _> = counts
                .map(|(b, n)| (u32::from(b.as_bytes()[0] - b'A'), n.as_u64().unwrap()))
                .collect();
            shows("qout", format!("{counts:?}"));
        }
    }
}

// ------------------------------------------------------------------ identities

/// The level in which an LRU stack of these sizes, one below the other, would find each reference.
fn stack_levels(refs: &[u32], sizes: &[u32]) -> Vec<Option<usize>> {
    let mut stack: Vec<u32> = Vec::new();
    let mut level = |block: u32| {
        let depth = stack.iter().position(|&b| b == block);
        if let Some(depth) = depth {
            stack.remove(depth);
        }
        stack.insert(0, block);
        let mut end = 0;
        depth.and_then(|depth| {
            sizes.iter().position(|&size| {
                end += size as usize;
                depth < end
            })
        })
    };
    refs.iter().map(|&block| level(block)).collect()
}

fn check_one_lru(refs: &[u32], sizes: &[u32]) -> Result<(), String> {
    let levels: Vec<_> = sizes.iter().map(|&size| ("lru", size)).collect();
    let mut ours = hierarchy(&levels, "gl");
    for (i, (&block, level)) in refs.iter().zip(stack_levels(refs, sizes)).enumerate() {
        let found = ours.refer(Reference::read(block));
        if found != level {
            return Err(format!("{sizes:?}, step {i}: level {found:?}, stack {level:?}"));
        }
        let mut all = ours.clients().first().unwrap().cache().policy().residents();
        ours.lower().iter().for_each(|level| all.extend(residents(level)));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        if all.len() != count {
            return Err(format!("{sizes:?}, step {i}: a block is held twice"));
        }
        validate(&ours)?;
    }
    Ok(())
}

#[test]
fn global_lru_is_one_lru_on_short_strings() {
    for code in 0..5_u32.pow(7) {
        let refs: Vec<_> = (0..7).map(|i| code / 5_u32.pow(i) % 5).collect();
        let sizes: &[u32] = [&[1, 1][..], &[1, 1, 2], &[2, 1], &[1, 2]][code as usize % 4];
        check_one_lru(&refs, sizes).unwrap_or_else(|what| panic!("{refs:?}: {what}"));
    }
}

#[test]
fn global_lru_is_one_lru_on_long_strings() {
    for seed in seeds(40) {
        let mut random = Random(seed);
        let levels = 2 + random.below(4);
        let sizes: Vec<_> = (0..levels).map(|_| 1 + random.below(12)).collect();
        let blocks = sizes.iter().sum::<u32>() + 1 + random.below(30);
        let refs: Vec<_> = (0..1500).map(|_| random.block(blocks)).collect();
        check_one_lru(&refs, &sizes)
            .unwrap_or_else(|what| panic!("UNDERCROFT_SEED={seed}: {what}"));
    }
}

/// With perfect information, below an LRU client, both are the same, whatever the policy below.
#[test]
fn eviction_placement_that_moves_is_global() {
    for info in policies().iter().filter(|info| info.name != "opt") {
        for seed in seeds(8) {
            let mut random = Random(seed);
            let sizes = [1 + random.below(10), 1 + random.below(20)];
            let blocks = 2 + random.below(60);
            let levels = [("lru", sizes[0]), (info.name, sizes[1])];
            let mut ev = hierarchy(&levels, "eviction,on-hit=move");
            let mut gl = hierarchy(&levels, "gl");
            for step in 0..1500 {
                let reference = Reference::new(random.block(blocks), random.below(4) == 0);
                let found = (ev.refer(reference), gl.refer(reference));
                let at = format!("{} UNDERCROFT_SEED={seed} step {step}", info.name);
                assert_eq!(found.0, found.1, "{at}");
                assert_eq!(residents(ev.lower()[0]), residents(gl.lower()[0]), "{at}");
            }
            let (ev, gl) = (&ev.lower()[0], &gl.lower()[0]);
            assert_eq!(ev.cache().counts(), gl.cache().counts());
            assert_eq!(
                ev.placement().unwrap().counts().reloads,
                gl.placement().unwrap().counts().demotions_in
            );
        }
    }
}

/// No block is at two levels, whatever the policies, as long as the client only reads.
#[test]
fn global_placement_is_exclusive() {
    let names: Vec<_> =
        policies().iter().map(|info| info.name).filter(|&name| name != "opt").collect();
    for seed in seeds(60) {
        let mut random = Random(seed);
        let levels: Vec<_> = (0..2 + random.below(2))
            .map(|_| (names[random.below(names.len() as u32) as usize], 1 + random.below(12)))
            .collect();
        let blocks = 2 + random.below(60);
        let mut ours = hierarchy(&levels, "gl");
        for step in 0..800 {
            ours.refer(Reference::read(random.block(blocks)));
            let mut all = ours.clients().first().unwrap().cache().policy().residents();
            ours.lower().iter().for_each(|level| all.extend(residents(level)));
            let count = all.len();
            all.sort_unstable();
            all.dedup();
            assert_eq!(count, all.len(), "{levels:?} UNDERCROFT_SEED={seed} step {step}");
            validate(&ours).unwrap_or_else(|what| panic!("UNDERCROFT_SEED={seed}: {what}"));
        }
    }
}

// ------------------------------------------------------------------ naive models

/// The placements written down from the specification, over the naive policies.
struct Naive {
    top: Box<dyn Model>,
    lower: Vec<Box<dyn Model>>,
    placement: &'static str,
    demote_first: bool,
    /// Accesses of each block that the server has seen.
    seen: Vec<u32>,
    reloads: u64,
    skipped: u64,
}

impl Naive {
    fn reference(&mut self, b: u32, is_write: bool) -> Option<usize> {
        let step = if is_write { self.top.write(b) } else { self.top.access(b) };
        if self.demote_first {
            step.evicted.iter().for_each(|&victim| self.evicted(victim));
        }
        let mut found = step.hit.then_some(0);
        if is_write {
            self.seen[b as usize] += 1;
            let below = self.lower.iter().position(|level| level.resident().contains(&b));
            found = found.or(below.map(|depth| depth + 1));
        } else if !step.hit {
            self.seen[b as usize] += 1;
            for (depth, level) in self.lower.iter_mut().enumerate() {
                if !level.resident().contains(&b) {
                    level.note(b);
                    continue;
                }
                if self.placement.contains("keep") {
                    level.touch(b);
                } else {
                    level.take(b);
                }
                found = Some(depth + 1);
                break;
            }
        }
        if !self.demote_first {
            step.evicted.iter().for_each(|&victim| self.evicted(victim));
        }
        found
    }

    fn evicted(&mut self, victim: u32) {
        let mut coming = vec![victim];
        let reloads = self.placement.starts_with("eviction");
        for level in &mut self.lower {
            let Some(b) = coming.pop() else { return };
            if reloads && !level.resident().contains(&b) {
                if !is_worth_a_reload(self.placement, &self.seen, level.as_ref(), b) {
                    self.skipped += 1;
                    return;
                }
                self.reloads += 1;
            }
            coming = level.place(b).evicted;
        }
    }
}

fn is_worth_a_reload(placement: &str, seen: &[u32], level: &dyn Model, b: u32) -> bool {
    let Some((_, threshold)) = placement.split_once("threshold=") else { return true };
    let count = |b: u32| f64::from(seen[b as usize]);
    match threshold.strip_suffix('x') {
        None => count(b) >= threshold.parse().unwrap(),
        Some(factor) => {
            let factor: f64 = factor.parse().unwrap();
            level.victim().is_none_or(|victim| count(b) >= factor * count(victim))
        }
    }
}

const PLACEMENTS: [&str; 7] = [
    "gl",
    "gl,order=demote-first",
    "eviction,on-hit=move",
    "eviction,on-hit=keep",
    "eviction,on-hit=keep,order=demote-first",
    "eviction,on-hit=move,threshold=2",
    "eviction,on-hit=move,threshold=1.5x",
];

/// Runs references through both: `Err` says where they part.
fn against_naive(
    levels: &[(&str, u32)],
    placement: &'static str,
    blocks: u32,
    refs: &[Reference],
) -> Result<(), String> {
    let mut ours = hierarchy(levels, placement);
    let naive = |&(text, capacity): &(&str, u32)| {
        let name = Spec::parse(text).unwrap().info().name;
        model::model(name, &[], capacity)
    };
    let mut theirs = Naive {
        top: naive(&levels[0]),
        lower: levels[1..].iter().map(naive).collect(),
        placement,
        demote_first: placement.contains("demote-first"),
        seen: vec![0; blocks as usize],
        reloads: 0,
        skipped: 0,
    };
    for (i, &reference) in refs.iter().enumerate() {
        let found = ours.refer(reference);
        let expected = theirs.reference(reference.entry(), reference.is_write());
        let at = || format!("{levels:?} {placement}, step {i} {reference:?}");
        if found != expected {
            return Err(format!("{}: level {found:?}, naive {expected:?}", at()));
        }
        validate(&ours).map_err(|what| format!("{}: {what}", at()))?;
        for (level, naive) in ours.lower().iter().zip(&theirs.lower) {
            let mut held = residents(level);
            held.sort_unstable();
            if held != naive.resident() {
                return Err(format!("{}: holds {held:?}, naive {:?}", at(), naive.resident()));
            }
        }
        let counts = ours.lower()[0].placement().unwrap().counts();
        if (counts.reloads, counts.skipped) != (theirs.reloads, theirs.skipped) {
            return Err(format!("{}: {counts:?}, naive {} reloads", at(), theirs.reloads));
        }
    }
    Ok(())
}

/// The policies; W-TinyLFU with the sketch that its model has.
pub(crate) fn names() -> Vec<&'static str> {
    let all = policies().iter().map(|info| info.name).filter(|&name| name != "opt");
    let exact = |name| match name {
        "w-tinylfu" => "w-tinylfu,sketch=exact",
        name => name,
    };
    all.map(exact).collect()
}

#[test]
fn every_policy_under_every_placement_equals_the_naive_models() {
    for name in names() {
        for placement in PLACEMENTS {
            for seed in seeds(4) {
                let mut random = Random(seed);
                let mut levels = vec![("lru", 1 + random.below(8)), (name, 1 + random.below(16))];
                if placement.starts_with("gl") && seed % 2 == 0 {
                    levels.push((name, 1 + random.below(8)));
                }
                // Few enough that the bounded memory of accesses holds them all.
                let blocks = levels[1].1 * 5;
                let writes = random.below(2);
                let mut reference = || {
                    let block = random.block(blocks);
                    Reference::new(block, writes == 1 && random.below(4) == 0)
                };
                let refs: Vec<_> = (0..600).map(|_| reference()).collect();
                against_naive(&levels, placement, blocks, &refs)
                    .unwrap_or_else(|what| panic!("UNDERCROFT_SEED={seed}: {what}"));
            }
        }
    }
}

#[test]
fn short_strings_of_a_small_world_equal_the_naive_models() {
    for name in names() {
        for placement in ["gl", "eviction,on-hit=move", "eviction,on-hit=keep"] {
            for code in 0..4_u32.pow(6) {
                let refs: Vec<_> =
                    (0..6).map(|i| Reference::read(code / 4_u32.pow(i) % 4)).collect();
                against_naive(&[("lru", 1), (name, 1 + code % 2)], placement, 4, &refs)
                    .unwrap_or_else(|what| panic!("{what}"));
            }
        }
    }
}

// ------------------------------------------------------------------ refusals, staging, thresholds

#[test]
fn senseless_combinations_are_refused_with_the_reason() {
    let lower = |name: &str, placement: &str| {
        let placement: Placement = placement.parse().unwrap();
        Level::new(&Spec::parse(name).unwrap(), 2, &placement, ALLOCATE, 1)
    };
    let refused = |result: Result<_, undercroft_level::placement::PlacementError>| {
        result.map(|_: Tree| ()).unwrap_err().to_string()
    };
    for placement in ["gl", "eviction,on-hit=move"] {
        let error = lower("opt", placement).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("opt") && error.contains("use access"), "{error}");
    }
    let levels = vec![lower("lru", "access").unwrap()];
    let mut line = Tree::line(Some((policy("lru", 1), ALLOCATE)), levels).unwrap();
    let served = [0, 1, 0].map(|block| line.refer(Reference::read(block)));
    assert_eq!(served, [None, None, Some(1)], "placed at the access");
    let error = refused(Tree::line(Some((policy("lru", 2), ALLOCATE)), vec![]));
    assert!(error.contains("level below"), "{error}");
    let two = vec![
        lower("lru", "eviction,on-hit=move").unwrap(),
        lower("lru", "eviction,on-hit=move").unwrap(),
    ];
    let error = refused(Tree::line(Some((policy("lru", 2), ALLOCATE)), two));
    assert!(error.contains("use gl"), "{error}");
}

#[test]
fn what_was_just_written_is_placed_without_a_reload() {
    let mut ours = hierarchy(&[("lru", 2), ("lru", 4)], "eviction,on-hit=move,staging=2");
    for block in 0..2 {
        ours.refer(Reference::write(block));
    }
    ours.refer(Reference::read(2));
    assert_eq!(ours.moves(), [Move::Staged(0, 1)]);
    ours.refer(Reference::read(3));
    assert_eq!(ours.moves(), [Move::Staged(1, 1)]);
    ours.refer(Reference::read(4));
    assert_eq!(ours.moves(), [Move::Reloaded(2, 1)]);
    let counts = ours.lower()[0].placement().unwrap().counts();
    assert_eq!((counts.staged, counts.reloads, counts.staged_hits), (2, 1, 0));
    validate(&ours).unwrap();
}

/// A read of a block whose last write is still staged finds its data here.
#[test]
fn staged_data_serves_reads() {
    let rules: Placement = "eviction,on-hit=move,staging=1".parse().unwrap();
    let mut level = Level::new(&Spec::parse("lru").unwrap(), 2, &rules, ALLOCATE, 1).unwrap();
    level.reference(1, true, || false);
    let read = level.reference(1, false, || false);
    assert_eq!(read, Referred { hit: true, before: None, now: None });
    level.reference(2, true, || false);
    assert!(!level.reference(1, false, || false).hit);
    assert_eq!(level.placement().unwrap().counts().staged_hits, 1);
    level.discard(2);
    assert!(!level.reference(2, false, || false).hit);
}
