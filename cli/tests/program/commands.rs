//! The program as people and scripts meet it: what it prints, where, and with which exit code.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;
use undercroft_trace::{Meta, Unit, create};

/// Reads and writes of four blocks on two devices.
const TRACE: &str = "\
0,0,4096,r,0.000000
0,8,8192,w,0.100000
1,0,512,r,0.200000
0,0,4096,r,0.300000
0,7,1024,r,0.400000
0,0,4096,w,0.500000
";

/// A folder with the trace in it, in which the program is run.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self(TempDir::new().unwrap());
        place.write("a.spc", TRACE);
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program with arguments separated by blanks.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_undercroft"));
        command.args(arguments.split_whitespace()).current_dir(self.0.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs what must succeed; what it prints.
    pub(crate) fn ok(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs what must succeed and say nothing on standard error; what it prints.
    pub(crate) fn quiet(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        assert_eq!(text(&output.stderr), "", "{arguments}");
        text(&output.stdout)
    }

    pub(crate) fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.quiet(arguments)).unwrap()
    }

    /// Runs what must fail with this code, and nothing on standard output; what it says.
    pub(crate) fn fails(&self, code: i32, arguments: &str) -> String {
        let output = self.run(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
        assert_eq!(text(&output.stdout), "", "{arguments}");
        assert!(!said.contains("panicked") && !said.contains("backtrace"), "{arguments}: {said}");
        assert!(!said.trim().is_empty(), "{arguments} says nothing");
        if code == 1 {
            assert!(said.starts_with("undercroft: ") && said.lines().count() == 1, "{said}");
        }
        said
    }

    /// Runs with this on standard input.
    pub(crate) fn fed(&self, arguments: &str, input: &[u8]) -> Output {
        let mut child = self.command(arguments).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Checks that an object has exactly these fields, among which numbers are equal as numbers.
fn check_fields(object: &Value, expected: Value, free: &[&str]) {
    let object = object.as_object().unwrap();
    for (name, value) in expected.as_object().unwrap() {
        match (value.as_f64(), object[name].as_f64()) {
            (Some(value), Some(ours)) => assert!((value - ours).abs() < 1e-12, "{name}: {ours}"),
            _ => assert_eq!(object[name], *value, "{name}"),
        }
    }
    for &name in free {
        assert!(object[name].as_f64().is_some_and(|number| number >= 0.0), "{name}");
    }
}

#[test]
fn json_of_a_simulation_has_the_names_that_scripts_rely_on() {
    let place = Place::new();
    let report = place.json("simulate a.spc --l1 2blk:lru --l2 16KiB:lru --json");
    check_fields(
        &report["trace"],
        serde_json::json!({
            "path": "a.spc", "format": "spc", "records": 6, "requests": 8, "reads": 5, "writes": 3,
            "unique_blocks": 4,
        }),
        &[],
    );
    let level = |name: &str, capacity: u32, reads: u64, hits: u64, ratio: f64, evictions: u64| {
        serde_json::json!({
            "name": name, "policy": "lru", "placement": "access", "capacity_blocks": capacity,
            "reads": reads, "read_hits": hits, "writes": 3, "write_hits": 1, "cold_reads": 2,
            "read_hit_ratio": ratio, "evictions": evictions,
            "demotions_in": 0, "promotions_in": 0, "reloads": 0,
        })
    };
    let levels = report["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 2);
    check_fields(&levels[0], level("l1", 2, 5, 1, 0.2, 4), &[]);
    check_fields(&levels[1], level("l2", 4, 4, 2, 0.5, 0), &[]);
    check_fields(
        &report["aggregate"],
        serde_json::json!({"reads": 5, "read_hits": 3, "read_hit_ratio": 0.6}),
        &[],
    );
    check_fields(
        &report["disk"],
        serde_json::json!({"demand_reads": 2, "reloads": 0, "writes": 3}),
        &[],
    );
    // (1 * 0.2 + 2 * 2 + 2 * 10) / 5 ms.
    let of_all = serde_json::json!({
        "block_bytes": 4096, "response_time_ms": 4.84, "response_time_with_demotions_ms": 4.84,
    });
    check_fields(&report, of_all, &["elapsed_s", "cpu_s", "requests_per_s"]);
    for whole in ["reads", "read_hits", "evictions", "capacity_blocks", "cold_reads"] {
        assert!(levels[0][whole].is_u64(), "{whole}");
    }
}

#[test]
fn the_table_answers_the_question_first() {
    let place = Place::new();
    let table = place.quiet("simulate a.spc --l1 2blk:lru --l2 4blk:lru");
    let line = |start: &str| table.lines().find(|line| line.starts_with(start)).unwrap();
    assert!(line("l1 ").contains("20.00 %") && line("l2 ").contains("50.00 %"), "{table}");
    assert!(line("all ").contains("60.00 %"), "{table}");
    assert!(line("response time").contains("4.840 ms"), "{table}");
    assert!(line("disk").contains("2 blocks read, 3 written"), "{table}");
    assert!(table.find("hit ratio") < table.find("evictions"), "{table}");
    assert!(!table.contains('\u{1b}'), "colours are for terminals");
}

#[test]
fn warm_up_and_write_modes_reach_the_simulation() {
    let place = Place::new();
    let l1 = |more: &str| {
        let report = place.json(&format!("simulate a.spc --l1 2blk:lru --json {more}"));
        let number = |name: &str| report["levels"][0][name].as_u64().unwrap();
        ["reads", "read_hits", "writes", "write_hits"].map(number)
    };
    assert_eq!(l1(""), [5, 1, 3, 1]);
    assert_eq!(l1("--warmup 3"), [3, 1, 1, 1]);
    assert_eq!(l1("--warmup 50%"), [3, 1, 1, 1]);
    assert_eq!(l1("--write-mode no-allocate"), [5, 2, 3, 1]);
    assert_eq!(l1("--write-mode invalidate"), [5, 2, 3, 1]);
    assert_eq!(l1("--block 512")[0], 19);
}

#[test]
fn curves_as_csv_and_json() {
    let place = Place::new();
    let csv = place.quiet("curve a.spc --csv");
    let expected = "capacity_blocks,capacity_bytes,read_hit_ratio,read_miss_ratio\n\
                    1,4096,0.2,0.8\n2,8192,0.2,0.8\n3,12288,0.2,0.8\n4,16384,0.6,0.4\n";
    assert_eq!(csv, expected);
    let json = place.json("curve a.spc --policy opt --sizes 2blk,100% --json");
    assert_eq!(json["policy"], "opt");
    assert_eq!((&json["sample_rate"], &json["reads"]), (&1.0.into(), &5.into()));
    assert_eq!(json["points"][0]["capacity_blocks"], 2);
    assert_eq!(json["points"][1]["read_hit_ratio"], 0.6);
    assert_eq!(json["points"].as_array().unwrap().len(), 2);
    assert!(place.quiet("curve a.spc").contains("60.00 %"));
    assert!(place.quiet("curve a.spc --policy mq,m=4 --rate 0.9").contains("estimated"));
}

#[test]
fn a_missing_or_damaged_trace_is_exit_code_1() {
    let place = Place::new();
    place.write("bad.spc", TRACE.replace("1,0,512,r", "1,0,512,q"));
    place.write("junk", [0_u8, 1, 2, 3, 250, 251].repeat(100));
    place.write("empty", "");
    place.write("empty.trc", "");
    for command in ["simulate {} --l1 2blk:lru", "curve {}", "sweep {} --l2 2blk -o out"] {
        let said = |trace: &str| place.fails(1, &command.replace("{}", trace));
        assert!(said("nowhere.spc").contains("nowhere.spc: No such file"));
        let damage = said("bad.spc");
        assert!(damage.contains("bad.spc, line 3: expected opcode"), "{damage}");
        let unknown = said("junk");
        assert!(unknown.contains("junk") && unknown.contains("oraclegeneral"), "{unknown}");
        assert!(said("empty").contains("empty file"));
        assert!(said("empty.trc").contains("no requests"));
        said(".");
    }
    let meta = Meta {
        format: "uct",
        unit: Unit::Bytes,
        block_bytes: None,
        has_ops: true,
        has_time: true,
        has_buffers: true,
        has_evictions: true,
    };
    create(&place.path("told.uct"), None, &meta).unwrap().finish().unwrap();
    place.write("one.trc", "1\n2\n");
    for empty in [
        "simulate told.uct --l1 2blk:lru --placement eviction --evictions told",
        "simulate told.uct --l1 2blk:lru --placement eviction --evictions cct",
        "simulate one.trc --clients empty.trc --l1 1blk:lru --l2 2blk:lru",
    ] {
        assert!(place.fails(1, empty).contains("holds no requests"), "{empty}");
    }
    place.fails(1, "trace info bad.spc");
    place.fails(1, "trace convert bad.spc -o b.uct");
    place.fails(1, "trace filter bad.spc --l1 1blk:lru -o b.uct");
    assert!(!place.path("b.uct").exists(), "nothing half is left");
    place.fails(1, "trace convert a.spc -o nowhere/b.uct");
    assert!(place.quiet("trace info empty.trc").contains("records   0"));
}

#[test]
fn a_wrong_command_line_is_exit_code_2() {
    let place = Place::new();
    for (wrong, says) in [
        ("simulate a.spc", "--l1"),
        ("simulate --l1 2blk:lru", "TRACE"),
        ("simulate a.spc --l1 2blk:belady3", "no policy 'belady3'"),
        ("simulate a.spc --l1 2blk:mq,m=0", "m must be"),
        ("simulate a.spc --l1 2blk:mq,m=x", "m must be"),
        ("simulate a.spc --l1 2blk:mq,n=1", "no parameter 'n'"),
        ("simulate a.spc --l1 2blk:mq,m=2,m=3", "twice"),
        ("simulate a.spc --l1 lru", "SIZE:POLICY"),
        ("simulate a.spc --l1 0:lru", "0 blocks"),
        ("simulate a.spc --l1 0blk:lru", "0 blocks"),
        ("simulate a.spc --l1 4095:lru", "0 blocks"),
        ("simulate a.spc --l1 -1blk:lru", "unexpected"),
        ("simulate a.spc --l1 1.5:lru", "size"),
        ("simulate a.spc --l1 2gb:lru", "size"),
        ("simulate a.spc --l1 8TiB:lru", "2147483647"),
        ("simulate a.spc --l1 18446744073709551615:lru", "2147483647"),
        ("simulate a.spc --l1 18446744073709551616:lru", "size"),
        ("simulate a.spc --l1 99999999TiB:lru", "size"),
        ("simulate a.spc --l1 1%:lru", "0 blocks"),
        ("simulate a.spc --l1 2blk:lru --l3 2blk:lru", "--l2"),
        ("simulate a.spc --l2 2blk:lru", "--l1"),
        ("simulate a.spc --l1 2blk:lru --nonsense", "--nonsense"),
        ("simulate a.spc --l1 2blk:lru --placement sideways", "sideways"),
        ("simulate a.spc --l1 2blk:lru --placement gl", "one level"),
        ("simulate a.spc --l1 2blk:lru --placement eviction", "--evictions cct"),
        ("simulate a.spc --l1 2blk:lru --placement eviction --evictions cct", "buffer addresses"),
        ("simulate a.spc --l1 2blk:lru --evictions cct", "access"),
        ("simulate a.spc --l1 2blk:lru --evictions guess", "estimate"),
        ("simulate a.spc --l1 2blk:lru --l2 2blk:lru --placement access,gl", "sweep"),
        ("simulate a.spc --l1 2blk:lru --l2 2blk:opt --placement gl", "use access"),
        ("simulate a.spc --l1 2blk:opt --l2 2blk:lru --placement eviction", "use access"),
        ("simulate a.spc --l1 2blk:lru --l2 2blk:lru --placement gl,on-hit=keep", "exclusive"),
        ("simulate a.spc --l1 2blk:lru --l2 2blk:lru --placement gl --reload-threshold 2", "gl"),
        ("simulate a.spc --l1 2blk:lru --reload-threshold 2", "access"),
        ("simulate a.spc --l1 2blk:lru --reload-threshold x", "1x"),
        ("simulate a.spc --l1 2blk:lru --l2 2blk:lru --placement gl --evictions estimate", "data"),
        ("simulate a.spc --l1 2blk:lru --write-mode never", "no-allocate"),
        ("simulate a.spc --l1 2blk:lru --warmup 101%", "100%"),
        ("simulate a.spc --l1 2blk:lru --warmup -1", "unexpected"),
        ("simulate a.spc --l1 2blk:lru --warmup 100%", "nothing"),
        ("simulate a.spc --l1 2blk:lru --warmup 6", "nothing"),
        ("simulate a.spc --l1 2blk:lru --format nonsense", "oraclegeneral"),
        ("simulate a.spc --l1 2blk:lru --format csv,nonsense=1", "nonsense"),
        ("simulate a.spc --l1 2blk:lru --format spc,nonsense=1", "nonsense"),
        ("simulate a.spc --l1 2blk:lru --block 511", "--block"),
        ("simulate a.spc --l1 2blk:lru --block 10blk", "--block"),
        ("simulate a.spc --l1 2blk:lru --unit 512", "--unit"),
        ("simulate a.spc --l1 2blk:lru --unit 0", "--unit"),
        ("simulate a.spc --clients a.spc --l1 2blk:lru --l2 2blk:lru --unit 512", "--unit: "),
        ("simulate a.spc --l1 2blk:opt --write-mode invalidate", "invalidate"),
        ("curve a.spc --policy arc", "--rate"),
        ("curve a.spc --rate 0", "--rate"),
        ("curve a.spc --rate 1.01", "--rate"),
        ("curve a.spc --rate 1e-9", "larger rate"),
        ("curve a.spc --csv --json", "--json"),
        ("curve a.spc --sizes 4blk..2blk", "ascending"),
        ("sweep a.spc --l2 2blk,x -o out", "'x'"),
        ("sweep a.spc --l2 2blk --policy lru,nonsense -o out", "nonsense"),
        ("sweep a.spc --l2 2blk --placement access,sideways -o out", "sideways"),
        ("trace generate nonsense -o b.trc", "zipf"),
        ("trace generate zipf,blocks=0 -o b.trc", "blocks"),
        ("trace generate zipf", "--output"),
        ("trace convert a.spc -o b.nonsense", "name one of"),
        ("trace convert a.spc -o b.uct --to nonsense", "nonsense"),
        ("trace convert a.spc -o b.vscsi --to vscsi", "only be read"),
        ("trace convert a.spc -o b.lis", "byte addresses"),
        ("trace filter a.spc --l1 2blk:opt -o b.uct", "opt must know"),
        ("trace filter a.spc --l1 10%:lru -o b.uct", "bytes or blocks"),
        ("nonsense", "nonsense"),
    ] {
        let said = place.fails(2, wrong);
        assert!(said.contains(says), "{wrong}: {said}");
    }
    assert!(!place.path("out").join("results.csv").exists());
    assert_eq!(place.run("").status.code(), Some(2));
    assert!(place.quiet("--help").contains("simulate"));
    assert!(place.quiet("--version").starts_with("undercroft "));
}

#[test]
fn standard_input_is_a_trace_too() {
    let place = Place::new();
    let output = place.fed("simulate - --l1 2blk:lru --json", TRACE.as_bytes());
    assert_eq!(output.status.code(), Some(0));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["trace"]["path"], &report["trace"]["requests"]), (&"-".into(), &8.into()));
    assert_eq!(report["trace"]["format"], "spc");
}

#[test]
fn a_generated_trace_goes_through_a_pipe() {
    let place = Place::new();
    let parameters = "zipf,requests=5000,blocks=900,writes=0.3,seed=3";
    let made = place.run(&format!("trace generate {parameters} -o - --to uct"));
    assert_eq!(made.status.code(), Some(0));
    let piped = place.fed("simulate - --l1 100blk:mq --json", &made.stdout);
    let piped: Value = serde_json::from_slice(&piped.stdout).unwrap();
    place.ok(&format!("trace generate {parameters} -o z.uct.zst"));
    let filed = place.json("simulate z.uct.zst --l1 100blk:mq --json");
    assert_eq!(piped["levels"], filed["levels"]);
    assert_eq!(piped["trace"]["requests"], 5000);
    let generators = place.quiet("trace generate");
    assert!(["zipf", "loop", "scan", "tpcc"].iter().all(|name| generators.contains(name)));
}

#[test]
fn conversions_there_and_back_change_nothing() {
    let place = Place::new();
    let steps = ["a.spc b.uct", "b.uct c.csv.gz", "c.csv.gz d.uct.zst", "d.uct.zst e.spc"];
    for step in steps {
        let (from, to) = step.split_once(' ').unwrap();
        let how = if to.contains("csv") { " --to csv" } else { "" };
        assert_eq!(place.ok(&format!("trace convert {from} -o {to}{how}")), "");
        let (a, b) =
            ("simulate a.spc --l1 2blk:lru --json", format!("simulate {to} --l1 2blk:lru"));
        assert_eq!(place.json(a)["levels"], place.json(&(b + " --json"))["levels"], "{to}");
    }
    assert_eq!(place.read("e.spc"), TRACE);
}

#[test]
fn what_the_filter_writes_gives_the_second_level() {
    let place = Place::new();
    let both = place.json("simulate a.spc --l1 2blk:lru --l2 4blk:mq --json");
    for to in ["f.spc", "f.uct"] {
        assert_eq!(place.ok(&format!("trace filter a.spc --l1 2blk:lru -o {to}")), "");
        let second = place.json(&format!("simulate {to} --l1 4blk:mq --json"));
        for name in ["reads", "read_hits", "writes", "write_hits", "cold_reads", "evictions"] {
            assert_eq!(second["levels"][0][name], both["levels"][1][name], "{to}: {name}");
        }
    }
    // Times are those of the requests.
    assert!(place.read("f.spc").ends_with("0,0,4096,w,0.500000\n"));
    assert_eq!(place.read("f.spc").lines().count(), 7);
}

#[test]
fn formats_and_facts() {
    let place = Place::new();
    let formats = place.quiet("trace formats");
    for name in ["uct", "spc", "msr", "vscsi", "blkparse", "disksim", "fiu", "lis", "trc", "csv"] {
        assert!(formats.lines().any(|line| line.starts_with(name)), "{name}");
    }
    let facts = place.json("trace info a.spc --json");
    check_fields(
        &facts,
        serde_json::json!({
            "path": "a.spc", "format": "spc", "unit": "bytes", "block_bytes": 4096, "records": 6,
            "requests": 8, "reads": 5, "writes": 3, "unique_blocks": 4, "has_ops": true,
            "has_time": true, "has_buffers": false, "spaces": ["0", "1"],
        }),
        &[],
    );
    assert!(place.quiet("trace info a.spc").contains("requests  8 of one 4 KiB block, 62.50 %"));
}

#[test]
fn a_sweep_writes_results_and_resumes() {
    let place = Place::new();
    let sweep = "sweep a.spc --l1 2blk:lru --l2 4blk,2blk --policy lru,mq,m=4,qout=2,2q -o out";
    let table = place.quiet(sweep);
    assert!(table.contains("mq,m=4,qout=2") && table.contains("6 runs"), "{table}");
    let csv = place.read("out/results.csv");
    let mut rows = csv::Reader::from_reader(csv.as_bytes());
    let header: Vec<String> = rows.headers().unwrap().iter().map(String::from).collect();
    let json: Value = serde_json::from_str(&place.read("out/results.json")).unwrap();
    let mut seen = Vec::new();
    for (row, object) in rows.records().map(Result::unwrap).zip(json.as_array().unwrap()) {
        for (name, cell) in header.iter().zip(&row) {
            let same = match &object[name] {
                Value::String(text) => text == cell,
                number => number.as_f64() == cell.parse().ok(),
            };
            assert!(same, "{name}: {cell} is not {}", object[name]);
        }
        let policy = object["policy"].as_str().unwrap().to_string();
        seen.push((policy, object["capacity_blocks"].as_u64().unwrap()));
    }
    let expected = ["lru", "mq,m=4,qout=2", "2q"].map(|p| [(p.into(), 4), (p.into(), 2)]).concat();
    assert_eq!(seen, expected);
    let alone = place.json("simulate a.spc --l1 2blk:lru --l2 4blk:lru --json");
    assert_eq!(json[0]["read_hits"], alone["levels"][1]["read_hits"]);
    assert_eq!(json[0]["response_time_ms"], alone["response_time_ms"]);
    assert_eq!(json[0]["upper"], "2blk:lru");

    // Again: the times that the runs took are in the rows, so the same bytes mean the same runs.
    fs::remove_file(place.path("out/results.csv")).unwrap();
    assert_eq!(place.quiet(sweep), table);
    assert_eq!(place.read("out/results.csv"), csv);
    assert_eq!(place.read("out/runs.jsonl").lines().count(), 6);
    place.quiet(&sweep.replace("4blk,2blk", "4blk,2blk,3blk"));
    assert_eq!(place.read("out/runs.jsonl").lines().count(), 9);

    let journal = place.read("out/runs.jsonl");
    place.write("out/runs.jsonl", format!("{{}}\n{journal}"));
    assert!(place.fails(1, sweep).contains("out/runs.jsonl: line 1: "));
}

#[test]
fn a_sweep_over_all_policies_and_several_traces() {
    let place = Place::new();
    place.write("b.trc", "1\n2\n3\n1\n2\n1\n");
    let rows = place.json("sweep a.spc b.trc --l2 1blk..4blk -o out --jobs 1 --json");
    // Without opt, lru-ca and clock-ca.
    let policies = place.json("policies --json").as_array().unwrap().len() - 3;
    assert_eq!(rows.as_array().unwrap().len(), 2 * 3 * policies);
    assert_eq!(rows[3 * policies]["trace"], "b.trc");
}

#[test]
fn no_progress_where_nobody_watches() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=300000,blocks=20000 -o z.uct");
    place.quiet("simulate z.uct --l1 1000blk:lru --l2 1000blk:lirs");
    place.quiet("curve z.uct --policy opt");
    place.quiet("trace info z.uct");
    place.quiet("sweep z.uct --l2 100blk..800blk --policy lru,mq -o out");
}

#[test]
fn sizes_beyond_the_trace_are_no_trouble() {
    let place = Place::new();
    place.write("b.trc", "1\n2\n3\n1\n2\n4\n1\n");
    let listed = place.json("policies --json");
    let names = listed.as_array().unwrap().iter().map(|policy| policy["name"].as_str().unwrap());
    for policy in names.filter(|name| !name.ends_with("-ca")) {
        // The sketch of w-tinylfu takes 8 bytes a block of its capacity: its exact counts do not.
        let exact = if policy == "w-tinylfu" { ",sketch=exact" } else { "" };
        let policy = format!("{policy}{exact}");
        for size in ["5blk", "1000000blk", "8191GiB", "2147483647blk"] {
            let report = place.json(&format!("simulate b.trc --l1 {size}:{policy} --json"));
            let level = &report["levels"][0];
            assert_eq!(level["read_hits"], 3, "{size}:{policy}");
            assert_eq!((&level["cold_reads"], &level["evictions"]), (&4.into(), &0.into()));
        }
    }
}

/// Reads one line of what a command prints and goes away.
fn first_line_of(child: &mut Child) -> String {
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=200000,blocks=50000 -o z.trc");
    for command in [
        "curve z.trc --csv",
        "trace convert z.trc -o - --to trc",
        "trace generate zipf -o - --to trc",
        "trace filter z.trc --l1 1blk:lru -o - --to trc",
        "curve z.trc --json --sizes 1blk",
        "policies",
    ] {
        let mut child = place.command(command).spawn().unwrap();
        assert!(!first_line_of(&mut child).is_empty());
        let output = child.wait_with_output().unwrap();
        // What it had written by then decides whether it noticed at all.
        assert_eq!(output.status.code(), Some(0), "{command}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("ipe"), "{command}: {}", text(&output.stderr));
    }
}

/// The memory of the process in KiB, without the program's own code, of which the kernel maps as
/// much as it likes; none once it has ended.
fn memory_kib(process: u32) -> Option<u64> {
    let status = fs::read_to_string(Path::new("/proc").join(process.to_string()).join("status"));
    let status = status.ok()?;
    let memory = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    memory.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn a_small_run_needs_little_memory() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=500000,blocks=50000,writes=0.2 -o z.uct");
    for command in
        ["simulate z.uct --l1 1000blk:lru --l2 5000blk:mq --l3 20000blk:arc", "curve z.uct --csv"]
    {
        let mut child = place.command(command).stdout(Stdio::null()).spawn().unwrap();
        let mut peak = 0;
        // The last look is at most a moment before the end.
        while child.try_wait().unwrap().is_none() {
            peak = peak.max(memory_kib(child.id()).unwrap_or(0));
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        println!("{command}: {peak} KiB");
        assert!((1000..10 * 1024).contains(&peak), "{command}: {peak} KiB");
    }
}
