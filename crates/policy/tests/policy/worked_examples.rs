//! The engine against the worked examples of the specification, and the write modes of a level.

use std::sync::Arc;

use serde_json::Value;
use undercroft_level::DenseLevel;
use undercroft_policy::{Context, Evictions, Future, Reference, Spec, WriteMode};

fn examples() -> Vec<Value> {
    let data: Value = serde_json::from_str(include_str!("data/worked-examples.json")).unwrap();
    data["examples"].as_array().unwrap().clone()
}

/// A = 0, B = 1, ...
fn block(letter: &Value) -> u32 {
    u32::from(letter.as_str().unwrap().as_bytes()[0] - b'A')
}

fn blocks(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(block).collect()
}

/// The policy of an example as the command line would name it: absolute sizes become shares.
fn spec(e: &Value, capacity: f64) -> String {
    let name = match e["algorithm"].as_str().unwrap() {
        "LFU-AGED" => "lfu".to_string(),
        other => other.to_lowercase(),
    };
    let mut text = name;
    for (key, value) in e["params"].as_object().unwrap() {
        let x = value.as_f64().unwrap_or(0.0);
        let part = match key.as_str() {
            "ghost" => format!("ghost={}", x / capacity),
            "age_period" => format!("age={}", x / capacity),
            "f_new" => format!("new={x}"),
            "f_old" => format!("old={x}"),
            "c_max" => format!("cmax={x}"),
            "a_max" => format!("amax={x}"),
            "K" => format!("k={x}"),
            "k_in" => format!("kin={}", x / capacity),
            "k_out" => format!("kout={}", x / capacity),
            "l_hirs" => format!("hirs={}", x / capacity),
            "nonres_factor" => format!("nonres={x}"),
            "life_time" => format!("lifetime={x}"),
            "q_out_factor" => format!("qout={x}"),
            "window" => format!("window={}", x / capacity),
            "crp" | "lambda" | "m" | "small" | "threshold" => format!("{key}={x}"),
            "sketch" => "sketch=exact".into(),
            // Defaults, under other names.
            "adaptive" | "defaults" | "initial_life_time" | "main" | "protected" | "sample" => {
                continue;
            }
            other => panic!("parameter {other}"),
        };
        text += &format!(",{part}");
    }
    text
}

#[test]
fn local_examples() {
    let mut count = 0;
    // mq-adapt-1 reviews the lifeTime oftener than can be set: it is a test beside the policy.
    let local = |e: &&Value| e["kind"] == "local" && e["id"] != "mq-adapt-1";
    for e in examples().iter().filter(local) {
        let id = e["id"].as_str().unwrap();
        let capacity = e["capacity"].as_u64().unwrap() as u32;
        let refs = blocks(&e["refs"]);
        let future = Some(Arc::new(Future::new(refs.clone()).unwrap()));
        let spec = Spec::parse(&spec(e, f64::from(capacity))).expect(id);
        let mut policy = spec.build(&Context { capacity, future }).expect(id);
        policy.grow(26);
        let mut out = Evictions::new();
        let (mut result, mut evictions) = (Vec::new(), Vec::new());
        for (i, &entry) in refs.iter().enumerate() {
            out.clear();
            result.push(if policy.access(entry, &mut out) { "H" } else { "M" });
            evictions.extend(out.evicted().map(|victim| (i as u64 + 1, victim)));
            policy.validate().unwrap_or_else(|what| panic!("{id}, step {i}: {what}"));
        }
        assert_eq!(serde_json::json!(result), e["result"], "{id}");
        let expected = e["evictions"].as_array().unwrap().iter();
        let expected: Vec<_> =
            expected.map(|x| (x["at"].as_u64().unwrap(), block(&x["block"]))).collect();
        assert_eq!(evictions, expected, "{id}");
        let mut residents = policy.residents();
        residents.sort_unstable();
        assert_eq!(residents, blocks(&e["final"]), "{id}");
        count += 1;
    }
    assert_eq!(count, 39, "examples in the file");
}

#[test]
fn write_modes() {
    let all = examples();
    let e = all.iter().find(|e| e["id"] == "write-1").unwrap();
    for (name, mode) in [
        ("allocate", WriteMode::Allocate),
        ("no_allocate", WriteMode::NoAllocate),
        ("invalidate", WriteMode::Invalidate),
    ] {
        let policy = Spec::parse("lru").unwrap().build(&Context::new(2)).unwrap();
        let mut level = DenseLevel::new(policy, mode);
        let mut result = Vec::new();
        for op in e["ops"].as_array().unwrap() {
            let op = op.as_str().unwrap();
            let entry = u32::from(op.as_bytes()[1] - b'A');
            let hit = level.reference(26, Reference::new(entry, op.starts_with('w')));
            result.push(if hit { "H" } else { "M" });
        }
        let expected = &e[name];
        assert_eq!(serde_json::json!(result), expected["result"], "{name}");
        assert_eq!(level.counts().read_hits, expected["read_hits"].as_u64().unwrap());
        assert_eq!(level.counts().reads, expected["reads"].as_u64().unwrap());
        let residents = level.policy().residents();
        assert_eq!(residents, blocks(&expected["final_lru_to_mru"]), "{name}");
    }
}
