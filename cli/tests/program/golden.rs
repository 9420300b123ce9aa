//! What the program counts, to the digit: each command's JSON without its times is a line of
//! `golden.jsonl`. The traces are made here, and are small.
//!
//! `UNDERCROFT_GOLDEN=write cargo test -p undercroft-cli --test program golden` writes the file
//! anew; its difference then shows which figures have changed.

use std::fs;
use std::path::PathBuf;
use std::thread;

use serde_json::Value;
use undercroft_random::SplitMix64;
use undercroft_trace::{Meta, Op, Record, Unit, create};

use crate::commands::Place;

/// Beginnings of commands, and what each of them ends with.
const CASES: &[(&str, &[&str])] = &[
    // Levels that work each on its own.
    (
        "simulate z.uct --l1 40blk:lru",
        &[
            "",
            " --l2 60blk:mq",
            " --l2 60blk:mq --write-mode no-allocate",
            " --l2 60blk:mq --write-mode invalidate --costs fscachesim",
            " --l2 60blk:arc --l3 100blk:2q --warmup 10%",
            " --l2 30blk:mq --l3 60blk:opt --write-mode no-allocate",
            " --ratio 1:2:4 --costs 0.1,1,2,8",
            " --l2 50blk:fifo --l3 60blk:clock --lower 70blk:auto --lower 10%:lirs \
             --costs 0.1,0.5,1,2,3,10",
        ],
    ),
    ("simulate z.uct --l1 60blk", &[":opt", ":auto", ":w-tinylfu"]),
    ("simulate z.uct --l1 40blk:w-tinylfu --l2 60blk:w-tinylfu", &["", " --placement gl"]),
    ("simulate loop.uct --l1 50blk:opt --l2 40blk:lru", &[""]),
    // What the lowest level does beside replacement.
    (
        "simulate mixed.uct --l1 40blk:lru --l2 60blk",
        &[
            ":mq --stream-cutoff 64KiB",
            ":opt --stream-cutoff 64KiB",
            ":lru --write-back",
            ":lru --flash 100blk,rate=0.01,budget=200KB/day",
            ":s3-fifo --flash 200blk,rule=second-miss,sequential=64KiB",
            ":arc --stream-cutoff 32KiB --write-back=age=500,percent=25 --warmup 500",
        ],
    ),
    // Levels that know what the other holds.
    (
        "simulate z.uct --l1 40blk:lru",
        &[
            "-ca --l2 60blk:lru",
            "-ca,knows=bloom --l2 60blk:mq",
            "-ca,knows=emulation --l2 60blk:lru --write-mode no-allocate",
            " --l2 60blk:mq,ca,knows=bloom --warmup 10%",
            "-ca --l2 60blk:2q,ca,knows=emulation",
            "-ca --l2 60blk:mq --placement eviction,on-hit=move",
            "-ca --l2 60blk:mq --l3 60blk:arc --placement gl",
            " --l2 60blk:mq,ca --placement eviction,on-hit=keep",
        ],
    ),
    // Levels that cooperate.
    (
        "simulate z.uct --placement gl",
        &[
            " --l1 40blk:lru --l2 60blk:lru",
            " --l1 40blk:lru --l2 50blk:mq --l3 60blk:lru --costs 0.2,2,5,10",
            " --l1 40blk:lru --l2 60blk:mq --write-mode invalidate",
            ",order=demote-first --l1 40blk:arc --l2 60blk:lru --warmup 10%",
            ",order=demote-first --l1 40blk:lru --l2 50blk:2q --l3 60blk:lirs",
        ],
    ),
    (
        "simulate z.uct --l1 40blk:lru --l2 60blk:mq --placement eviction",
        &[
            "",
            " --reload-threshold 3",
            ",on-hit=move",
            ",on-hit=move,threshold=2 --write-mode no-allocate",
            ",on-hit=keep,threshold=1x",
            ",on-hit=keep,order=demote-first",
            ",on-hit=move,staging=8",
            ",staging=auto --warmup 10%",
            ",on-hit=move,down=demote",
            ",on-hit=move,down=demote --costs 0.2,2,10",
        ],
    ),
    (
        "simulate z.uct --l1 40blk:lru --l2 60blk:lru --placement auto",
        &["", ",down=reload --warmup 10%"],
    ),
    ("simulate z.uct --l1 40blk:w-tinylfu --l2 60blk:w-tinylfu --placement eviction", &[""]),
    // A trace long enough for placements that learn: what a hit does changes here.
    (
        "simulate long.uct --l1 100blk:mru --l2 400blk:lru --placement",
        &[" eviction", " auto", " eviction --clients y.uct"],
    ),
    // Evictions of clients that are not simulated.
    (
        "simulate told.uct --l1 20blk:mq --placement eviction",
        &[
            " --evictions cct",
            " --evictions told",
            ",on-hit=move,staging=4 --evictions told --warmup 10%",
            ",down=demote --evictions cct --costs 2,10",
        ],
    ),
    (
        "simulate z.uct --evictions estimate --placement eviction",
        &[
            " --l1 60blk:mq",
            ",on-hit=move --l1 60blk:w-tinylfu",
            " --l1 40blk:lru --l2 60blk:mq --warmup 10%",
            ",down=demote --l1 40blk:lru --l2 60blk:mq",
            ",down=demote --l1 40blk:lru --l2 60blk:mq --costs 0.2,2,10",
        ],
    ),
    // Several clients and servers.
    (
        "simulate z.uct --clients y.uct --l1 40blk:lru --l2 60blk:mq",
        &[
            "",
            " --warmup 10% --write-mode no-allocate",
            " --data shared --peer-fetch",
            " --data shared --peer-fetch --placement eviction,on-hit=move",
            " --placement eviction",
            " --placement eviction,on-hit=keep --partition benefit --servers 2",
            " --placement eviction,on-hit=move,down=demote --data shared",
            " --placement auto --partition equal",
            " --placement gl --partition benefit",
            " --l1 20blk:arc --placement eviction,on-hit=move,staging=8",
        ],
    ),
    (
        "simulate z.uct --clients y.uct,mixed.uct --l1 40blk:w-tinylfu --l2 60blk:w-tinylfu",
        &[" --servers 3", " --servers 3 --placement eviction,threshold=2"],
    ),
    (
        "simulate units.csv --clients spaces --l1 20blk:lru --l2 40blk:arc",
        &["", " --data shared --placement gl", " --partition benefit --servers 2"],
    ),
    ("simulate z.uct --l1 40blk:lru --l2 60blk:lru --servers 3", &["", " --placement gl"]),
    // With a clock.
    (
        "simulate z.uct --l1 40blk:lru --l2 60blk:mq --timed",
        &[
            "",
            " --placement eviction,on-hit=move",
            " --placement eviction,on-hit=move --reloads demand --disks 2",
            " --placement gl --link 4MiB",
            " --placement eviction,on-hit=move,down=auto --link 4MiB",
            " --placement auto --warmup 10%",
            " --placement auto,down=auto --outstanding 4 --think-us 50",
            " --placement eviction,on-hit=keep,staging=8 --outstanding 4 --disk-us 900",
            " --placement eviction --clients y.uct --servers 2 --link 40MiB",
            " --placement eviction,on-hit=move --clients y.uct --partition benefit",
            " --placement gl --clients y.uct --data shared --peer-fetch",
        ],
    ),
    // Blocks that move between levels by hints.
    (
        "simulate z.uct --l1 40blk:lru --l2 60blk:lru --placement",
        &[
            " demote",
            " demote,array=seg --costs fscachesim",
            " promote",
            " hint-k",
            " d-hfa --samples 2",
            " p-hfa --seed 7",
            " h-hfa",
            " oracle-hfa",
            " bidifilter",
            " tandem --warmup 10%",
        ],
    ),
    (
        "simulate z.uct --l1 30blk:lru --ratio 1:2:4 --placement d-hfa,k=4",
        &[
            " --samples 3 --hint-distances",
            " --bounds --costs 0.1,1,2,8 --warmup 10%",
            " --demotions free",
            " --demotions link=100",
        ],
    ),
    ("simulate z.uct --l1 40blk:arc --l2 60blk:arc --placement promote", &["", " --seed 7"]),
    (
        "simulate z.uct --clients y.uct --topology tree.toml --placement",
        &[
            " demote",
            " d-hfa --samples 2 --hint-distances",
            " promote --demotions link=100",
            " oracle-hfa",
        ],
    ),
    // What makes many simulations.
    (
        "sweep z.uct --l1 40blk:lru --l2 60blk --policy lru,mq --costs 0.2,2,10",
        &[" --placement access,eviction,on-hit=move,demote -o a"],
    ),
    (
        "sweep z.uct --ratio 1:2 --sizes 20blk --policy lru --demotions free --seed 7",
        &[" --placement access,gl,p-hfa --warmup 10% -o b"],
    ),
    (
        "sweep told.uct --l1 20blk,30blk --policy mq --evictions told",
        &[" --placement eviction -o c"],
    ),
    (
        "sweep mixed.uct --l1 20blk:lru --l2 30blk --policy lru --stream-cutoff 64KiB",
        &[" --write-back=percent=50 --write-mode no-allocate --block 4KiB -o d"],
    ),
    ("advise z.uct --l1 40blk:lru --policy mq --l2 60blk", &[""]),
];

/// Two clients, each with a cache of its own, above an array.
const TREE: &str = r#"
disk_ms = 10
clients = ["a", "b"]
[[cache]]
name = "a"
size = "20blk"
ms = 0.2
below = "array"
[[cache]]
name = "b"
size = "30blk"
ms = 0.2
below = "array"
[[cache]]
name = "array"
size = "60blk"
ms = 2
"#;

/// A folder with the traces.
fn place() -> Place {
    let place = Place::new();
    for (name, generator) in [
        ("z", "zipf,blocks=400,requests=3000,alpha=0.8,writes=0.15,seed=5"),
        ("y", "zipf,blocks=400,requests=3000,alpha=0.8,writes=0.15,seed=6"),
        ("long", "zipf,blocks=2000,requests=20000,alpha=0.6,writes=0.1,seed=5"),
        ("loop", "loop,blocks=100,requests=2000"),
        ("mixed", "mixed,blocks=500,requests=3000,writes=0.2,scan-blocks=80,loop-blocks=60,seed=7"),
    ] {
        place.ok(&format!("trace generate {generator} -o {name}.uct"));
    }
    place.write("tree.toml", TREE);
    place.write("units.csv", units());
    record(&place);
    place
}

/// Two units, of which the second has a quarter of the requests.
fn units() -> String {
    let mut numbers = SplitMix64::new(7);
    let mut text = String::from("time_us,op,space,id\n");
    for at in 0..2000 {
        let op = if numbers.below(4) == 0 { 'W' } else { 'R' };
        let unit = numbers.below(4) / 3;
        text += &format!("{at},{op},{unit},{}\n", low(&mut numbers, 150));
    }
    text
}

/// A number below `end`, low ones more often.
fn low(numbers: &mut SplitMix64, end: u64) -> u64 {
    let bound = numbers.below(end) + 1;
    numbers.below(bound)
}

/// A recording of a client of 16 frames, with its buffer addresses and what it told of evictions.
fn record(place: &Place) {
    let mut numbers = SplitMix64::new(3);
    let mut frames = [None; 16];
    let mut records = Vec::new();
    for at in 0..3000 {
        let (block, frame) = (low(&mut numbers, 100), numbers.below(16) as usize);
        if let Some(held) = frames.iter().position(|held| *held == Some(block)) {
            // Most are served by the client. A few it has dropped, and nothing has shown that.
            if numbers.below(8) > 0 {
                continue;
            }
            frames[held] = None;
        }
        let record = |op, block, buffer| Record {
            time_ns: 10_000 * at,
            op,
            space: 0,
            address: 4096 * block,
            length: 4096,
            buffer,
            client: 0,
        };
        // The client does not tell everything.
        if let Some(gone) = frames[frame].filter(|_| numbers.below(10) > 0) {
            records.push(record(Op::Evict, gone, None));
        }
        frames[frame] = Some(block);
        let op = if numbers.below(10) == 0 { Op::Write } else { Op::Read };
        records.push(record(op, block, Some(4096 * (frame as u64 + 1))));
    }
    let meta = Meta {
        format: "uct",
        unit: Unit::Bytes,
        block_bytes: Some(4096),
        has_ops: true,
        has_time: true,
        has_buffers: true,
        has_evictions: true,
    };
    let mut writer = create(&place.path("told.uct"), None, &meta).unwrap();
    writer.write(&records, &["v".to_string()]).unwrap();
    writer.finish().unwrap();
}

/// Names of fields that are times of the machine.
const TIMES: [&str; 3] = ["elapsed_s", "cpu_s", "requests_per_s"];

/// What a command prints as JSON, in one line and without times. Its fields stay in order.
fn result(place: &Place, command: &str) -> String {
    let json = place.ok(&format!("{command} --json"));
    // The times of a simulation with a clock are in an object of it.
    let depth = if command.starts_with("sweep") { 4 } else { 2 };
    let is_time = |line: &&str| {
        let name = line.trim_start();
        line.len() - name.len() == depth
            && TIMES.iter().any(|time| name.starts_with(&format!("\"{time}\":")))
    };
    let kept = json.lines().filter(|line| !is_time(line)).map(str::trim);
    let kept = kept.collect::<String>().replace(",}", "}");
    kept.replace(env!("CARGO_BIN_EXE_undercroft"), "undercroft")
}

/// The keys of a sweep's runs, without what depends on the machine and the version.
fn keys(place: &Place, folder: &str) -> String {
    let journal = place.read(&format!("{folder}/runs.jsonl"));
    let key = |line: &str| -> String {
        let entry: Value = serde_json::from_str(line).unwrap();
        let words = entry["key"].as_str().unwrap().split(' ');
        let free = ["modified=", "version="];
        let kept = words.filter(|word| !free.iter().any(|name| word.starts_with(name)));
        kept.collect::<Vec<_>>().join(" ")
    };
    let mut keys: Vec<String> = journal.lines().map(key).collect();
    keys.sort();
    serde_json::to_string(&keys).unwrap()
}

/// The line of a command.
fn line(place: &Place, command: &str) -> String {
    let mut line = format!("{{\"command\":\"{command}\",\"prints\":{}", result(place, command));
    if let Some((_, folder)) = command.split_once(" -o ") {
        line += &format!(",\"keys\":{}", keys(place, folder));
    }
    line + "}"
}

/// The lines of all commands, in order. Several run at a time.
fn lines() -> Vec<String> {
    let place = place();
    let of = |(begin, ends): &(&str, &[&str])| -> Vec<String> {
        ends.iter().map(|end| format!("{begin}{end}")).collect()
    };
    let commands: Vec<String> = CASES.iter().flat_map(of).collect();
    let run = |part: &[String]| -> Vec<String> {
        part.iter().map(|command| line(&place, command)).collect()
    };
    thread::scope(|scope| {
        let parts = commands.chunks(commands.len().div_ceil(4));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || run(part))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// Where two values differ, with what is there.
fn differences(at: &str, (before, now): (&Value, &Value), into: &mut Vec<String>) {
    match (before, now) {
        (Value::Object(a), Value::Object(b)) if a.keys().eq(b.keys()) => {
            for (name, value) in a {
                differences(&format!("{at}.{name}"), (value, &b[name]), into);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, pair) in a.iter().zip(b).enumerate() {
                differences(&format!("{at}[{i}]"), pair, into);
            }
        }
        _ if before == now => (),
        _ => into.push(format!("{at}: {before} is now {now}")),
    }
}

#[test]
fn every_figure_is_what_it_was() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/program/golden.jsonl");
    let now = lines();
    if std::env::var_os("UNDERCROFT_GOLDEN").is_some_and(|wish| wish == "write") {
        return fs::write(file, now.join("\n") + "\n").unwrap();
    }
    let before = fs::read_to_string(file).unwrap();
    let mut wrong = Vec::new();
    for (before, now) in before.lines().zip(&now).filter(|(before, now)| before != now) {
        let [a, b]: [Value; 2] = [before, now].map(|line| serde_json::from_str(line).unwrap());
        differences("", (&a, &b), &mut wrong);
        wrong.push(format!("before: {before}\n  now:    {now}"));
    }
    assert!(wrong.is_empty(), "other figures than before:\n  {}", wrong.join("\n  "));
    assert_eq!(before.lines().count(), now.len(), "UNDERCROFT_GOLDEN=write writes the file anew");
}
