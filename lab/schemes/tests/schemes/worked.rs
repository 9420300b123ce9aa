//! The worked examples of the specification: where each reference found its block, what moved, and
//! what is held in the end, in order.

use serde_json::{Value, json};
use undercroft_policy::Reference;
use undercroft_schemes::{Build, Move, Scheme, SchemeSpec, Topology};

fn letter(entry: u32) -> String {
    char::from(b'A' + entry as u8).to_string()
}

/// The scheme of an example as the command line would name it, in the readings that the examples
/// were made with.
fn text(e: &Value) -> String {
    let params = &e["params"];
    let word = |key: &str| params[key].as_str().unwrap_or("").to_lowercase();
    match e["algorithm"].as_str().unwrap().split([' ', ',']).next().unwrap() {
        "DEMOTE" => format!("demote,array={},order={}", word("array"), word("order")),
        "PROMOTE-LRU" => {
            format!("promote,probability=fixed,start={}", params["prob_promote_L2"])
        }
        "Hint-K" => format!("hint-k,steps={},arrival=nothing", params["K"]),
        name => {
            let fixed = word("partition").starts_with("fixed");
            let partition = if fixed { ",partition=fixed" } else { "" };
            let (period, entries) = (&params["T"], &params["T_out_entries"]);
            let arrival = if name == "H-HFA" { ",arrival=nothing" } else { "" };
            let name = name.to_lowercase();
            format!("{name},period={period},entries={entries},queues=soft{partition}{arrival}")
        }
    }
}

/// Moves as the examples write them, without their order within a reference.
fn events(algorithm: &str, moves: &[Move], found: Option<usize>) -> Vec<Value> {
    let mut events = Vec::new();
    let mut add = |event: Value| events.push(event);
    let is_promote = algorithm.starts_with("PROMOTE") || algorithm == "P-HFA";
    let mut moved = |verb: &str, e: u32, node: usize| add(json!([verb, letter(e), node + 1]));
    for &one in moves {
        match one {
            Move::Filled(e, node) if is_promote => moved("own", e, node),
            Move::Promoted(e, node) if algorithm.starts_with("PROMOTE") => {
                moved("leave", e, found.unwrap());
                moved("own", e, node);
            }
            Move::Promoted(e, node) if is_promote => {
                moved("promote", e, node);
                moved("own", e, node);
            }
            Move::Dropped(e, node) if is_promote => moved("discard", e, node),
            // The D of D-HFA moves a block that is read to the first level, and counts that apart.
            Move::Promoted(e, node) if algorithm != "D-HFA" => moved("promote", e, node),
            Move::Demoted(e, node) => moved("demote", e, node),
            _ => (),
        }
    }
    events.sort_by_key(Value::to_string);
    events
}

/// DEMOTE's are named without levels, and in order.
fn demote_events(moves: &[Move]) -> Vec<Value> {
    let event = |one: &Move| match *one {
        Move::Dropped(e, _) => Some(json!(["eject", letter(e)])),
        Move::Demoted(e, _) | Move::Resent(e, _) => Some(json!(["demote", letter(e)])),
        _ => None,
    };
    moves.iter().filter_map(event).collect()
}

fn described(scheme: &dyn Scheme, node: usize, name: &str) -> Value {
    let state = scheme.describe(node);
    let text = &state.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name}")).1;
    serde_json::from_str(&text.replace(['('], "[").replace(')', "]")).unwrap()
}

fn blocks(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|e| e.as_u64().unwrap() as u32).collect()
}

fn check(e: &Value) {
    let id = e["id"].as_str().unwrap();
    let algorithm = e["algorithm"].as_str().unwrap();
    let sizes: Vec<u32> =
        e["capacities"].as_array().unwrap().iter().map(|c| c.as_u64().unwrap() as u32).collect();
    let topology = Topology::line(&sizes).unwrap();
    let draws: Vec<f64> = e["params"]["draws_in_order"]
        .as_array()
        .map_or(Vec::new(), |list| list.iter().map(|x| x.as_f64().unwrap()).collect());
    let spec: SchemeSpec = text(e).parse().unwrap_or_else(|what| panic!("{id}: {what}"));
    let mut scheme = spec.build(Build { draws: &draws, ..Build::new(&topology) }).unwrap();
    scheme.grow(26);
    let (mut result, mut happened) = (Vec::new(), Vec::new());
    let mut demotions = 0;
    for (i, entry) in letters(&e["refs"]).into_iter().enumerate() {
        let mut moves = Vec::new();
        let found = scheme.reference(0, Reference::read(entry), &mut moves);
        result.push(found.map_or("D".to_string(), |node| format!("L{}", node + 1)));
        let is_down = |m: &&Move| matches!(m, Move::Demoted(..) | Move::Resent(..));
        demotions += moves.iter().filter(is_down).count();
        let of_step = if algorithm.starts_with("DEMOTE") {
            demote_events(&moves)
        } else {
            events(algorithm, &moves, found)
        };
        if !of_step.is_empty() {
            happened.push(json!({"at": i + 1, "events": of_step}));
        }
    }
    assert_eq!(json!(result), e["result"], "{id}");
    let mut expected = e["events"].clone();
    if !algorithm.starts_with("DEMOTE") {
        for step in expected.as_array_mut().unwrap() {
            step["events"].as_array_mut().unwrap().sort_by_key(Value::to_string);
        }
    }
    assert_eq!(json!(happened), expected, "{id}");
    for node in 0..sizes.len() {
        let of_level = &e["final"][format!("L{}", node + 1)];
        check_level(id, scheme.as_ref(), node, of_level, &e["final"]);
    }
    let extra = &e["extra"];
    if let Some(count) = extra["demotions"].as_u64() {
        assert_eq!(demotions as u64, count, "{id}");
    }
    for (node, c1) in extra["c1"].as_array().into_iter().flatten().enumerate() {
        assert_eq!(described(scheme.as_ref(), node, "c1"), *c1, "{id}");
    }
    for (block, value) in extra["khv"].as_object().into_iter().flatten() {
        let pair = json!([block.as_bytes()[0] - b'A', value]);
        let known = (0..sizes.len()).any(|node| {
            described(scheme.as_ref(), node, "khv").as_array().unwrap().contains(&pair)
        });
        assert!(known, "{id}: khv of {block}");
    }
}

/// Queues in the order of the example: next victim first, or head first for HFA's.
fn check_level(id: &str, scheme: &dyn Scheme, node: usize, of_level: &Value, all: &Value) {
    if of_level.is_null() {
        let queue = blocks(&described(scheme, node, "queue"));
        assert_eq!(queue, letters(&all["L2_eject_first"]), "{id}");
    } else if of_level.is_array() {
        let (mut queue, mut expected) =
            (blocks(&described(scheme, node, "queue")), letters(of_level));
        if id == "hintk-1" {
            // It lists them by recency alone.
            queue.sort_unstable();
            expected.sort_unstable();
        }
        assert_eq!(queue, expected, "{id}");
    } else {
        for name in ["Q1", "Q2"] {
            let mut queue = blocks(&described(scheme, node, name));
            queue.reverse();
            assert_eq!(queue, letters(&of_level[name]), "{id}, {name} of cache {node}");
        }
        if let Some(table) = of_level["T_out"].as_array() {
            let entry =
                |e: &Value| json!([e[0].as_str().unwrap().as_bytes()[0] - b'A', e[1], e[2]]);
            let expected: Vec<_> = table.iter().map(entry).collect();
            assert_eq!(described(scheme, node, "T_out"), json!(expected), "{id}, cache {node}");
        }
    }
}

#[test]
fn examples_of_the_specification() {
    let all: Value = serde_json::from_str(include_str!("data/movement-examples.json")).unwrap();
    let all = all.as_array().unwrap();
    assert_eq!(all.len(), 9, "examples in the file");
    all.iter().for_each(check);
}

/// A list of letters as blocks: A = 0, B = 1, ...
fn letters(list: &Value) -> Vec<u32> {
    let letter = |v: &Value| u32::from(v.as_str().unwrap().as_bytes()[0] - b'A');
    list.as_array().unwrap().iter().map(letter).collect()
}
