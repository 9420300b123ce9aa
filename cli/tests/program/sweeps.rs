//! What is refused before anything is run or written, and sizes as people write them.

use super::commands::Place;

#[test]
fn a_sweep_finds_what_is_wrong_before_it_runs() {
    let place = Place::new();
    for (arguments, part) in [
        ("a.spc none.spc --l2 1blk --policy lru", "none.spc: No such file"),
        ("a.spc README --l2 1blk --policy lru", "README"),
        ("a.spc --l2 1blk,1KiB --policy lru", "size 1KiB is 0 blocks of 4096 bytes"),
        ("a.spc --l1 1KiB:lru --l2 1blk --policy lru", "size 1KiB is 0 blocks"),
        ("a.spc --l1 1blk:lru --l2 1blk --policy lru,opt --placement eviction", "opt"),
    ] {
        let output = place.run(&format!("sweep {arguments} -o out"));
        let said = super::commands::text(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{arguments}: {said}");
        assert!(!place.path("out").exists(), "{arguments}: something was run");
    }
}

#[test]
fn the_only_level_of_a_sweep_is_the_first() {
    let place = Place::new();
    let table = |level: &str, folder: &str| {
        let said = place.quiet(&format!("sweep a.spc {level} --policy lru,mq -o {folder}"));
        said.lines()
            .filter(|line| !line.contains(" runs in "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(table("--l1 1blk..3blk", "a"), table("--l2 1blk,2blk,3blk", "b"));
}

#[test]
fn sizes_and_folder_have_defaults() {
    let place = Place::new();
    place.ok("trace generate zipf,requests=3000,blocks=400,seed=5 -o z.uct");
    let shares = "1%,2%,5%,10%,20%,50%,100%";
    for (defaults, written) in [("", ""), ("--l1 1blk:lru", "--l1 1blk:lru")] {
        let said = place.quiet(&format!("sweep z.uct {defaults} --policy lru,mq"));
        assert!(said.contains("undercroft-sweep/results.csv"), "{said}");
        let with = format!("sweep z.uct {written} --l2 {shares} --policy lru,mq -o other");
        let other = place.quiet(&with).replace("other/results.csv", "undercroft-sweep/results.csv");
        assert_eq!(said, other);
    }
}

#[test]
fn sizes_are_understood_as_they_are_usually_written() {
    let place = Place::new();
    let blocks = |size: &str| {
        let report = place.json(&format!("simulate a.spc --l1 {size}:lru --json"));
        report["levels"][0]["capacity_blocks"].as_u64().unwrap()
    };
    for (size, wanted) in [("64M", 16_384), ("1.5GiB", 393_216), ("1GB", 244_140), ("8K", 2)] {
        assert_eq!(blocks(size), wanted, "{size}");
    }
    let said = place.fails(2, "simulate a.spc --l1 64m:lru");
    assert!(said.contains("MB and GB are powers of 1000"), "{said}");
}

#[test]
fn a_trace_is_not_written_over_itself() {
    let place = Place::new();
    let before = place.read("a.spc");
    std::fs::hard_link(place.path("a.spc"), place.path("b.spc")).unwrap();
    for command in [
        "trace convert a.spc -o a.spc",
        "trace convert a.spc -o ./b.spc --to spc",
        "trace filter a.spc --l1 1blk:lru -o a.spc",
    ] {
        let said = place.fails(2, command);
        assert!(said.contains("that is the trace itself; name another file"), "{said}");
        assert_eq!(place.read("a.spc"), before);
    }
}

#[test]
fn a_replay_says_how_evictions_are_told() {
    let place = Place::new();
    let said =
        place.fails(2, "replay a.spc --to nbd://127.0.0.1:1/x --l1 1blk:lru --placement eviction");
    assert!(said.contains("--report evictions"), "{said}");
}

#[test]
fn a_sweep_says_which_is_best_and_what_the_most_is() {
    let place = Place::new();
    place.run("trace generate loop,blocks=100,requests=1000 -o loop.uct");
    let said = place.quiet("sweep loop.uct --l1 50blk,200blk --policy lru,lirs,opt -o a");
    let lines: Vec<&str> = said.lines().skip(1).take_while(|line| !line.is_empty()).collect();
    let cells: Vec<Vec<&str>> =
        lines.iter().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(cells[0], ["policy", "50blk", "200blk"]);
    let first = |line: &Vec<&str>| line[0].to_owned();
    let order: Vec<String> = cells.iter().map(first).collect();
    assert_eq!(order, ["policy", "opt", "lirs", "lru", "(not"], "the best first\n{said}");
    assert!(cells[2][1].starts_with('*') && !cells[1][1].starts_with('*'), "OPT aside\n{said}");
    assert!(cells[2][3].starts_with("90.00"), "where all are equal, none is best\n{said}");
    assert_eq!(cells[4], ["(not", "cold)", "90.00", "%", "90.00", "%"]);
    place.run("trace generate scan,blocks=1000 -o scan.uct");
    let said = place.quiet("sweep scan.uct --l1 50blk,200blk --policy lru,lirs -o b");
    assert!(said.contains("no policy hits one read in a hundred"), "{said}");
    let said = place.quiet("sweep loop.uct --l1 200blk --policy lru,lirs -o c");
    assert!(said.contains("no choice is a point better"), "{said}");
}
