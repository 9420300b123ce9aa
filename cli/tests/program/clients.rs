//! Simulations of several clients, several servers and with a clock, as people and scripts meet
//! them: what is printed, the names of the fields, and what is refused.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Blocks 0 to 4 of one client, and of another; the first line of each is at the same time.
const FIRST: &str = "0\n1\n2\n0\n1\n2\n";
const SECOND: &str = "2\n3\n4\n2\n";

/// Both clients in one csv, in which the space is the client.
const BOTH: &str = "space,id\na,0\nb,2\na,1\nb,3\na,2\nb,4\na,0\nb,2\na,1\na,2\n";

fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    for (name, text) in [("a.trc", FIRST), ("b.trc", SECOND), ("both.csv", BOTH)] {
        fs::write(place.path().join(name), text).unwrap();
    }
    place
}

fn run(place: &TempDir, arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_undercroft"));
    command.arg("simulate").args(arguments.split_whitespace()).current_dir(place.path());
    command.output().unwrap()
}

fn ok(place: &TempDir, arguments: &str) -> String {
    let output = run(place, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(0), ""), "{arguments}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(place: &TempDir, arguments: &str) -> Value {
    serde_json::from_str(&ok(place, &format!("{arguments} --json"))).unwrap()
}

/// Clients of one block each above four:
/// in turn a0 b2 a1 b3 a2 b4 a0 b2 a1 a2, where a has 0 1 2 0 1 2, and b 2 3 4 2.
#[test]
fn several_clients_in_the_names_that_scripts_rely_on() {
    let place = place();
    let levels = "--l1 1blk:lru --l2 4blk:lru --placement eviction,on-hit=move";
    // Shared, a finds 2, 0 and 1 below, and b finds 2, which it has when a asks for it at the end.
    // Disjoint, each finds what it has had before.
    for (arguments, data, unique, peers) in [
        ("a.trc --clients b.trc --data shared", "shared", 5, 0),
        ("both.csv --clients spaces --data shared", "shared", 5, 0),
        ("a.trc --clients b.trc --data shared --peer-fetch", "shared", 5, 1),
        ("a.trc --clients b.trc", "disjoint", 6, 0),
        ("both.csv --clients spaces", "disjoint", 6, 0),
    ] {
        let report = json(&place, &format!("{arguments} {levels}"));
        let clients = &report["clients"];
        assert_eq!(clients["data"], data);
        assert_eq!(clients["partition"], "shared");
        assert_eq!(report["trace"]["unique_blocks"], unique);
        for (client, reads, hits, peers) in [(0, 6, 3, peers), (1, 4, 1, 0)] {
            let client = &clients["clients"][client];
            assert_eq!(client["reads"], reads, "{arguments}");
            assert_eq!(client["server_hits"], hits, "{arguments}: {clients}");
            assert_eq!(client["peer_hits"], peers, "{arguments}: {clients}");
            assert_eq!(client["read_hits"], 0);
            assert_eq!(client["disk_reads"], reads - hits - peers);
            assert_eq!(client["capacity_blocks"], 1);
        }
        assert_eq!(report["disk"]["demand_reads"], 6 - peers);
        assert_eq!(report["aggregate"]["read_hits"], 4 + peers);
        assert_eq!(report["levels"][0]["capacity_blocks"], 2);
        assert!(report.get("timed").is_none());
    }
}

#[test]
fn parts_servers_and_different_first_levels_are_shown() {
    let place = place();
    let levels = "--l1 1blk:lru --l1 3blk:fifo --l2 4blk:lru --placement eviction,on-hit=move";
    let arguments = format!("a.trc --clients b.trc {levels} --partition benefit --servers 2");
    let report = json(&place, &arguments);
    assert_eq!(report["levels"][0]["policy"], "lru | fifo");
    assert_eq!(report["clients"]["home"], "volume");
    assert_eq!(report["clients"]["servers"].as_array().unwrap().len(), 2);
    assert_eq!(report["clients"]["moved_blocks"], 0);
    for (client, blocks) in [(0, 1), (1, 3)] {
        let client = &report["clients"]["clients"][client];
        assert_eq!(
            (&client["capacity_blocks"], &client["part_blocks"]),
            (&blocks.into(), &2.into())
        );
    }
    let table = ok(&place, &arguments);
    for words in ["client", "a.trc", "part", "2 blocks", "by marginal benefit", "home of a block"] {
        assert!(table.contains(words), "{words}: {table}");
    }
}

/// Three reads from disk and three from the server, since the two together hold all three blocks.
#[test]
fn a_clock_shows_where_the_time_goes() {
    let place = place();
    let levels = "a.trc --l1 1blk:lru --l2 4blk:lru";
    let gl = "a.trc --l1 1blk:lru --l2 2blk:lru --placement gl --timed --link 4MiB";
    let report = json(&place, gl);
    let timed = &report["timed"];
    let number = |name: &str| timed[name].as_f64().unwrap();
    // A link of 0.98 ms a block.
    let block_ms = 4096.0 / f64::from(4 << 20) * 1000.0;
    assert!((number("response_ms") - ((30.0 + 6.0) / 6.0 + block_ms)).abs() < 1e-3, "{timed}");
    assert!((number("link_ms") - block_ms).abs() < 1e-3 && number("disk_ms") == 4.0);
    let parts = ["cache_ms", "link_ms", "disk_wait_ms", "disk_ms"].map(number);
    assert!((parts.iter().sum::<f64>() - number("response_ms")).abs() < 1e-9);
    assert!(report["timed_access"]["response_ms"].as_f64().unwrap() > number("response_ms"));
    let table = ok(&place, &format!("{levels} --placement eviction,on-hit=move,down=auto --timed"));
    for words in
        ["response ms", "access", "eviction,on-hit=move,down=auto", "way down", "without waiting"]
    {
        assert!(table.contains(words), "{words}: {table}");
    }
    let table = ok(&place, &format!("{levels} --placement eviction,on-hit=move --timed"));
    assert!(table.contains("reloads        5 queued"), "{table}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let place = place();
    for (arguments, why) in [
        ("a.trc --l1 1blk:lru --l1 2blk:lru", "--clients"),
        ("a.trc --l1 1blk:lru --clients b.trc", "--l2"),
        ("a.trc --l1 1blk:lru --timed", "--l2"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --peer-fetch", "--clients"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --data shared", "--clients"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --partition equal", "--clients"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --outstanding 2", "--timed"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --servers 3", "3 servers of 2 blocks"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --servers 0", "1..=64"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --placement eviction,on-hit=move,down=auto", "--timed"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --timed --link 10%", "bytes a second"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --timed --disks 0", "expected 1 to"),
        ("a.trc --l1 1blk:opt --l2 2blk:lru --timed", "opt"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --l3 9blk:lru --servers 2", "two levels"),
        (
            "a.trc --l1 1blk:lru --l2 2blk:lru --clients b.trc --placement eviction,on-hit=move \
             --evictions estimate",
            "--evictions",
        ),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --clients b.trc --peer-fetch", "nothing to serve"),
        (
            "a.trc --l1 1blk:lru --l2 2blk:lru --clients b.trc --data shared --partition benefit",
            "share data",
        ),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --clients spaces", "one space only"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --clients c.trc", "c.trc"),
    ] {
        let output = run(&place, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments}: {said}");
        assert!(output.stdout.is_empty() && said.contains(why), "{arguments}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
}

/// The levels of a report by name: read hits and what came down.
fn hits(report: &Value) -> Vec<(String, u64, u64)> {
    let level = |level: &Value| {
        let name = level["name"].as_str().unwrap().to_string();
        (name, level["read_hits"].as_u64().unwrap(), level["demotions_in"].as_u64().unwrap())
    };
    report["levels"].as_array().unwrap().iter().map(level).collect()
}

#[test]
fn schemes_move_blocks_between_levels_by_hints() {
    let place = place();
    // Three blocks in turn: levels of 1 and 2 blocks that hold each once hold all of them.
    for scheme in ["demote", "d-hfa,k=0", "hint-k", "oracle-hfa", "gl"] {
        let report =
            json(&place, &format!("a.trc --l1 1blk:lru --l2 2blk:lru --placement {scheme}"));
        let aggregate = &report["aggregate"];
        assert_eq!(
            (&aggregate["reads"], &aggregate["read_hits"]),
            (&6.into(), &3.into()),
            "{scheme}"
        );
    }
    let report = json(
        &place,
        "a.trc --l1 1blk:lru --ratio 1:1:1 --placement d-hfa,k=0 --bounds --samples 2 \
         --hint-distances --costs 1,2,3,4",
    );
    let level = |name: &str, hits| (name.to_string(), hits);
    let ours: Vec<_> = hits(&report).into_iter().map(|(name, hits, _)| (name, hits)).collect();
    assert_eq!(ours, [level("l1", 0), level("l2", 0), level("l3", 3)]);
    let movement = &report["movement"];
    assert_eq!(report["response_time_ms"], 3.5);
    assert_eq!(movement["opt_ub"]["read_hit_ratio"], 0.5);
    assert_eq!(movement["samples"].as_array().unwrap().len(), 2);
    // Two other blocks were asked for between a block's going down to the last level and its
    // coming up: one at the time of each.
    assert!(movement["nodes"][2]["hint_distances"].is_array());
    let text = ok(&place, "a.trc --l1 1blk:lru --l2 2blk:lru --placement demote --bounds");
    assert!(text.contains("OPT-UB") && text.contains("sent down to it"), "{text}");
    // Costs are for every placement, and more levels than three as well.
    let report = json(
        &place,
        "a.trc --l1 1blk:lru --l2 1blk:lru --l3 1blk:lru --lower 1blk:lru --placement gl \
         --costs 1,2,3,4,5",
    );
    assert_eq!(report["response_time_ms"], 4.0);
}

const TREE: &str = r#"
disk_ms = 10.0
clients = ["one", "two"]
[[cache]]
name = "one"
size = "1blk"
ms = 0.2
below = "array"
[[cache]]
name = "two"
size = "2blk"
ms = 0.2
below = "array"
[[cache]]
name = "array"
size = "4blk"
ms = 2.0
"#;

#[test]
fn a_topology_is_a_tree_of_caches() {
    let place = place();
    fs::write(place.path().join("tree.toml"), TREE).unwrap();
    let tree = "a.trc --clients b.trc --topology tree.toml --placement";
    let report = json(&place, &format!("{tree} demote"));
    assert_eq!(report["aggregate"]["reads"], 10);
    let names: Vec<String> = hits(&report).into_iter().map(|level| level.0).collect();
    assert_eq!(names, ["one", "two", "array"]);
    assert_eq!(report["movement"]["nodes"][0]["below"], "array");
    let refused = |arguments: &str, why: &str| {
        let output = run(&place, arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments}: {said}");
        assert!(said.contains(why), "{arguments}: {said}");
    };
    for (from, to, why) in [
        ("\"array\"\nsize", "\"one\"\nsize", "there twice"),
        (
            "below = \"array\"\n[[cache]]\nname = \"array\"",
            "[[cache]]\nname = \"array\"",
            "add one below",
        ),
        ("ms = 2.0", "ms = -2.0", "none below 0"),
        ("ms = 2.0", "ms = 2.0\nsped = 3", "sped"),
        ("[\"one\", \"two\"]", "[\"one\", \"three\"]", "no cache 'three'"),
    ] {
        fs::write(place.path().join("tree.toml"), TREE.replace(from, to)).unwrap();
        refused(&format!("{tree} demote"), why);
    }
    fs::write(place.path().join("tree.toml"), TREE).unwrap();
    for (arguments, why) in [
        ("a.trc --clients b.trc --topology tree.toml --placement bidifilter", "two levels"),
        ("a.trc --topology tree.toml --placement demote", "places for 2"),
        ("a.trc --clients b.trc --data shared --topology tree.toml --placement demote", "share"),
        ("a.trc --topology tree.toml", "--topology"),
        ("a.trc --l1 1blk:lru --placement demote", "add one below"),
        ("a.trc --l1 1blk:mq --l2 2blk:mq --placement demote", "written with lru"),
        ("a.trc --l1 1blk:lru --l2 2blk:arc --placement promote", "the same for each"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --placement d-hfa,k=x", "whole number"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --placement demote --timed", "no clock"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --placement demote --costs 1,2", "--costs 1,2"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --bounds", "--bounds: placement access moves no"),
        ("a.trc --l1 1blk:lru --ratio 1:1:1:1", "these are the times of 3 levels"),
        ("a.trc --l1 1blk:lru --l2 2blk:lru --clients b.trc --costs 1,2,3", "--costs"),
        ("a.trc --l1 1blk:lru --ratio 1:x --placement demote", "whole numbers"),
    ] {
        refused(arguments, why);
    }
}
