//! The reference models against the worked examples of the specification, and against each other.

use crate::model::{Block, Model, Step, model, opt};
use serde_json::Value;

fn examples() -> Vec<Value> {
    let data: Value = serde_json::from_str(include_str!("data/worked-examples.json")).unwrap();
    data["examples"].as_array().unwrap().clone()
}

fn example(id: &str) -> Value {
    examples().into_iter().find(|e| e["id"] == id).unwrap()
}

/// "A" as its letter's code, which the models print as the letter again.
fn block(letter: &Value) -> Block {
    Block::from(letter.as_str().unwrap().as_bytes()[0])
}

fn blocks(list: &Value) -> Vec<Block> {
    list.as_array().unwrap().iter().map(block).collect()
}

/// The policy name and the parameters of an example, sizes in blocks turned into shares.
fn build(e: &Value) -> Box<dyn Model> {
    let capacity = e["capacity"].as_u64().unwrap() as u32;
    let c = f64::from(capacity);
    let algorithm = e["algorithm"].as_str().unwrap();
    if algorithm == "OPT" {
        return opt(&blocks(&e["refs"]), capacity);
    }
    let policy = match algorithm {
        "LFU-AGED" => "lfu".to_string(),
        "LRFU" => "lfru".to_string(),
        other => other.to_lowercase(),
    };
    let mut params: Vec<(&str, f64)> = Vec::new();
    for (key, value) in e["params"].as_object().unwrap() {
        let x = value.as_f64().unwrap_or(0.0);
        match key.as_str() {
            "ghost" => params.push(("ghost", x / c)),
            "age_period" => params.push(("age", x / c)),
            "f_new" => params.push(("new", x)),
            "f_old" => params.push(("old", x)),
            "c_max" => params.push(("cmax", x)),
            "a_max" => params.push(("amax", x)),
            "K" => params.push(("k", x)),
            "k_in" => params.push(("kin", x / c)),
            "k_out" => params.push(("kout", x / c)),
            "l_hirs" => params.push(("hirs", x / c)),
            "nonres_factor" => params.push(("nonres", x)),
            "life_time" => params.push(("lifetime", x)),
            "q_out_factor" => params.push(("qout", x)),
            "window" => params.push(("window", x / c)),
            "protected" => params.push(("protected", 0.8)),
            "crp" | "lambda" | "m" | "period" | "small" | "threshold" => params.push((key, x)),
            "adaptive" | "defaults" => assert_eq!(*value, true),
            "initial_life_time" => assert_eq!(x, c),
            "sketch" => assert_eq!(value, "exact"),
            "main" => assert_eq!(x, 3.0),
            "sample" => assert_eq!(x, 10.0),
            other => panic!("parameter {other}"),
        }
    }
    model(&policy, &params, capacity)
}

#[test]
fn local_examples() {
    let mut count = 0;
    for e in examples().iter().filter(|e| e["kind"] == "local") {
        let id = &e["id"];
        let mut m = build(e);
        let mut result = Vec::new();
        let mut evictions = Vec::new();
        for (i, b) in blocks(&e["refs"]).into_iter().enumerate() {
            let step = m.access(b);
            result.push(if step.hit { "H" } else { "M" });
            evictions.extend(step.evicted.into_iter().map(|x| (i as u64 + 1, x)));
        }
        let expected: Vec<(u64, Block)> = e["evictions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|x| (x["at"].as_u64().unwrap(), block(&x["block"])))
            .collect();
        assert_eq!(serde_json::json!(result), e["result"], "{id}");
        let hits = result.iter().filter(|r| **r == "H").count() as u64;
        assert_eq!(hits, e["hits"].as_u64().unwrap(), "{id}");
        assert_eq!(evictions, expected, "{id}");
        assert_eq!(m.resident(), blocks(&e["final"]), "{id}");
        let state = m.state();
        for (key, value) in e["extra"].as_object().into_iter().flatten() {
            assert_eq!(state[key], *value, "{id}: {key}");
        }
        count += 1;
    }
    assert_eq!(count, 40, "examples in the file");
}

#[test]
fn write_modes() {
    let e = example("write-1");
    let ops: Vec<&str> = e["ops"].as_array().unwrap().iter().map(|o| o.as_str().unwrap()).collect();
    for mode in ["allocate", "no_allocate", "invalidate"] {
        let mut m = model("lru", &[], 2);
        let mut result = Vec::new();
        let (mut reads, mut read_hits) = (0, 0);
        for op in &ops {
            let b = Block::from(op.as_bytes()[1]);
            let hit = if op.starts_with('r') || mode == "allocate" {
                m.access(b).hit
            } else {
                let resident = m.resident().contains(&b);
                if mode == "invalidate" {
                    m.discard(b);
                }
                resident
            };
            if op.starts_with('r') {
                reads += 1;
                read_hits += u32::from(hit);
            }
            result.push(if hit { "H" } else { "M" });
        }
        assert_eq!(serde_json::json!(result), e[mode]["result"], "{mode}");
        assert_eq!(read_hits, e[mode]["read_hits"], "{mode}");
        assert_eq!(reads, e[mode]["reads"], "{mode}");
        assert_eq!(m.state()["lru_to_mru"], e[mode]["final_lru_to_mru"], "{mode}");
    }
}

/// SplitMix64.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[test]
fn random_numbers() {
    let mut rng = Rng(42);
    for x in example("rng-1")["first"].as_array().unwrap() {
        assert_eq!(rng.unit(), x.as_f64().unwrap());
    }
}

/// A short stream with popular blocks, loops and scans.
fn stream(rng: &mut Rng, len: usize) -> Vec<Block> {
    let span = 2 + rng.below(30);
    let mut refs = Vec::new();
    while refs.len() < len {
        match rng.below(4) {
            0 => {
                let start = rng.below(span);
                let length = 1 + rng.below(span);
                refs.extend((0..length).map(|i| ((start + i) % span) as Block));
            }
            1 => refs.push(rng.below(span) as Block),
            2 => refs.push((rng.unit() * rng.unit() * span as f64) as Block),
            _ => {
                let back = 1 + rng.below(4) as usize;
                if let Some(&b) = refs.len().checked_sub(back).and_then(|i| refs.get(i)) {
                    refs.push(b);
                }
            }
        }
    }
    refs.truncate(len);
    refs
}

type Config = (&'static str, &'static [(&'static str, f64)]);

const CONFIGS: &[Config] = &[
    ("lru", &[]),
    ("mru", &[]),
    ("fifo", &[]),
    ("lfu", &[]),
    ("lfu", &[("ghost", 0.0)]),
    ("lfu", &[("age", 2.0), ("ghost", 1.5)]),
    ("fbr", &[]),
    ("fbr", &[("new", 0.0), ("old", 1.0), ("amax", 2.0), ("cmax", 2.0), ("ghost", 1.0)]),
    ("fbr", &[("new", 0.5), ("old", 0.6), ("amax", 3.0), ("ghost", 0.0)]),
    ("lru-k", &[]),
    ("lru-k", &[("k", 3.0), ("crp", 2.0), ("ghost", 1.0)]),
    ("lru-k", &[("k", 1.0), ("crp", 4.0)]),
    ("lfru", &[]),
    ("lfru", &[("lambda", 0.5), ("ghost", 0.5)]),
    ("2q", &[]),
    ("2q", &[("kin", 0.5), ("kout", 1.0)]),
    ("lirs", &[]),
    ("lirs", &[("hirs", 0.3), ("nonres", 0.5)]),
    ("lirs", &[("hirs", 1.0)]),
    ("lirs", &[("top", 1.0)]),
    ("lirs", &[("top", 1.0), ("hirs", 0.4), ("nonres", 1.0)]),
    ("arc", &[]),
    ("car", &[]),
    ("clock", &[]),
    ("clock", &[("bits", 2.0)]),
    ("clock-pro", &[]),
    ("mq", &[]),
    ("mq", &[("m", 3.0), ("lifetime", 3.0), ("qout", 1.0)]),
    ("mq", &[("qout", 0.0)]),
    ("sieve", &[]),
    ("s3-fifo", &[]),
    ("s3-fifo", &[("small", 0.5), ("threshold", 1.0)]),
    ("s3-fifo", &[("small", 1.0)]),
    ("w-tinylfu", &[]),
    ("w-tinylfu", &[("window", 0.3), ("protected", 0.0)]),
    ("w-tinylfu", &[("window", 0.0)]),
];

fn hits(m: &mut dyn Model, refs: &[Block]) -> usize {
    refs.iter().filter(|&&b| m.access(b).hit).count()
}

fn same(x: &mut dyn Model, y: &mut dyn Model, refs: &[Block]) {
    for (i, &b) in refs.iter().enumerate() {
        assert_eq!(x.access(b), y.access(b), "reference {i} of {refs:?}");
    }
}

#[test]
fn identities() {
    let mut rng = Rng(1);
    for _ in 0..600 {
        let refs = stream(&mut rng, 200);
        let c = 1 + rng.below(12) as u32;
        let lru = || model("lru", &[], c);
        let lfu = || model("lfu", &[("ghost", 0.0)], c);
        let lfru = |lambda| model("lfru", &[("lambda", lambda), ("ghost", 0.0)], c);
        same(&mut *lru(), &mut *model("mq", &[("m", 1.0)], c), &refs);
        same(&mut *lru(), &mut *model("lru-k", &[("k", 1.0)], c), &refs);
        same(&mut *lru(), &mut *lfru(1.0), &refs);
        same(&mut *lfu(), &mut *lfru(0.0), &refs);
        // LIRS with no room for LIR blocks is LRU, too: see the decisions.
        same(&mut *lru(), &mut *model("lirs", &[("hirs", 1.0)], c), &refs);
        // With everything in the window W-TinyLFU never asks the sketch.
        same(&mut *lru(), &mut *model("w-tinylfu", &[("window", 1.0)], c), &refs);
    }
}

#[test]
fn nothing_beats_opt() {
    let mut rng = Rng(2);
    for _ in 0..300 {
        let refs = stream(&mut rng, 200);
        let c = 1 + rng.below(12) as u32;
        let best = hits(&mut *opt(&refs, c), &refs);
        for (name, params) in CONFIGS {
            if params.contains(&("window", 0.0)) {
                continue; // refuses newcomers, so it is no demand policy and OPT no bound
            }
            let found = hits(&mut *model(name, params, c), &refs);
            assert!(found <= best, "{name} {params:?}, c={c}: {found} > {best} on {refs:?}");
        }
    }
}

/// What admitting b must leave behind, given what was there and what was evicted.
fn check_admission(before: &[Block], b: Block, step: &Step, after: &[Block], what: &str) {
    assert_eq!(step.hit, before.contains(&b), "{what}: hit iff resident");
    let mut expected = before.to_vec();
    if step.hit {
        assert!(step.evicted.is_empty(), "{what}: a hit evicts nothing");
    } else {
        expected.push(b);
    }
    assert!(step.evicted.len() <= 1, "{what}: one block in, one out");
    for x in &step.evicted {
        assert!(expected.contains(x), "{what}: evicted {x}, not resident");
        expected.retain(|y| y != x);
    }
    expected.sort_unstable();
    assert_eq!(after, expected, "{what}");
}

/// All operations in random order keep the invariants every policy shares.
#[test]
fn any_operation_at_any_time() {
    for (index, (name, params)) in CONFIGS.iter().enumerate() {
        let mut rng = Rng(1000 + index as u64);
        for round in 0..120 {
            let mut c = 1 + rng.below(12) as u32;
            let mut m = model(name, params, c);
            let refs = stream(&mut rng, 250);
            // Some rounds are what a lower level sees: take, note and place only.
            let lower = round % 3 == 0;
            let mut fresh = 1_000_000;
            for (i, &b) in refs.iter().enumerate() {
                let before = m.resident();
                let what = format!("{name} {params:?} round {round} step {i} block {b} c {c}");
                let draw = rng.below(if lower { 30 } else { 100 });
                match draw {
                    0 => {
                        let old = c;
                        c = 1 + rng.below(16) as u32;
                        let evicted = m.resize(c);
                        let after = m.resident();
                        let mut expected = before.clone();
                        for x in &evicted {
                            assert!(expected.contains(x), "{what}: resize evicted {x}");
                            expected.retain(|y| y != x);
                        }
                        assert_eq!(after, expected, "{what}: resize");
                        assert!(c < old || evicted.is_empty(), "{what}: growing evicts nothing");
                    }
                    1 => {
                        m.discard(b);
                        let expected: Vec<_> = before.into_iter().filter(|&x| x != b).collect();
                        assert_eq!(m.resident(), expected, "{what}: discard");
                        assert!(!m.remembered().contains(&b), "{what}: discarded for good");
                    }
                    2..16 if before.contains(&b) => {
                        m.take(b);
                        let expected: Vec<_> = before.into_iter().filter(|&x| x != b).collect();
                        assert_eq!(m.resident(), expected, "{what}: take");
                    }
                    2..16 => {
                        m.note(b);
                        assert_eq!(m.resident(), before, "{what}: note");
                    }
                    16..30 => {
                        let step = m.place(b);
                        check_admission(&before, b, &step, &m.resident(), &format!("{what} place"));
                    }
                    30..35 => {
                        fresh += 1;
                        let victim = m.victim();
                        let step = m.access(fresh);
                        let first = step.evicted.first().copied().filter(|&x| x != fresh);
                        assert_eq!(victim, first, "{what}: victim");
                        check_admission(&before, fresh, &step, &m.resident(), &what);
                    }
                    _ => {
                        let step = m.access(b);
                        check_admission(&before, b, &step, &m.resident(), &what);
                    }
                }
                let after = m.resident();
                let remembered = m.remembered();
                assert!(after.len() <= c as usize, "{what}: more than fits");
                assert!(after.windows(2).all(|w| w[0] < w[1]), "{what}: {after:?}");
                assert!(remembered.windows(2).all(|w| w[0] < w[1]), "{what}: {remembered:?}");
                assert!(!after.iter().any(|x| remembered.contains(x)), "{what}: in both");
                let full = after.len() == c as usize;
                assert!(full || m.victim().is_none(), "{what}: a victim though there is room");
                assert!(ghost_fits(name, params, c, remembered.len()), "{what}: ghost too large");
            }
        }
    }
}

/// Whether a policy may remember so many blocks.
fn ghost_fits(name: &str, params: &[(&str, f64)], c: u32, len: usize) -> bool {
    let get = |key: &str, default: f64| {
        params.iter().find(|(k, _)| *k == key).map_or(default, |(_, v)| *v)
    };
    let times = match name {
        "lfu" | "fbr" | "lru-k" | "lfru" => get("ghost", 4.0),
        "mq" => get("qout", 4.0),
        "2q" => return len <= ((get("kout", 0.5) * f64::from(c)) as usize).max(1),
        "arc" | "car" => 2.0,
        "s3-fifo" => 1.0,
        // The bound of CLOCK-Pro gives way for a while, that of LIRS top=keep waits for a prune.
        "clock-pro" => return true,
        "lirs" if get("top", 0.0) == 1.0 => return true,
        "lirs" => get("nonres", 2.0),
        _ => 0.0,
    };
    len <= (times * f64::from(c)) as usize
}
