//! `undercroft characterize`: its names for scripts, its tables, and what it refuses.

use super::commands::{Place, text};

/// A first-level trace of a loop over twelve pages, with a pause, written as csv.
fn place() -> Place {
    let place = Place::new();
    let row = |i: u32| {
        let op = if i % 6 == 5 { "W" } else { "R" };
        format!("{},{},{op}\n", f64::from(i) * 0.5, i % 12)
    };
    let rows: String = (0..48).map(row).collect();
    place.write("loop.csv", format!("timestamp,block,rw\n{rows}"));
    place
}

#[test]
fn json_has_the_names_that_scripts_rely_on() {
    let place = place();
    let found = place.json("characterize loop.csv --cache 12blk --cache 4blk:mq --json");
    assert_eq!((&found["trace"]["format"], &found["block_bytes"]), (&"csv".into(), &4096.into()));
    let requests = &found["requests"];
    for (name, value) in [("requests", 48), ("reads", 40), ("writes", 8), ("evictions", 0)] {
        assert_eq!(requests[name], value, "{name}");
    }
    assert_eq!(requests["read_bytes"], 40 * 4096);
    assert_eq!(requests["sizes"], serde_json::json!([{"up_to_bytes": 4096, "requests": 48}]));
    // All but the first request of each round follow the one before.
    assert_eq!(requests["sequential_share"], 44.0 / 48.0);
    assert_eq!(requests["duration_s"], 23.5);
    let blocks = &found["blocks"];
    for (name, value) in [("requests", 48), ("unique_blocks", 12), ("cold_requests", 12)] {
        assert_eq!(blocks[name], value, "{name}");
    }
    assert_eq!(blocks["cold_share"], 0.25);
    let window = &found["working_set"]["windows"][0];
    assert_eq!((&window["unique_blocks"], &window["new_blocks"]), (&12.into(), &12.into()));
    assert_eq!(window["start_s"], 0.0);
    for kind in ["stack_distance", "temporal_distance"] {
        let hill = serde_json::json!({"min": 16, "peak": 16, "max": 16});
        assert_eq!((&found[kind]["hill"], &found[kind]["median"]), (&hill, &16.into()));
        let bin = serde_json::json!(
            [{"up_to": 16, "requests": 36, "share": 0.75, "cumulative_share": 0.75}]
        );
        assert_eq!(found[kind]["bins"], bin);
    }
    assert_eq!(found["frequency"][2]["at_least"], 4);
    assert_eq!(found["frequency"][2]["reference_share"], 1.0);
    assert_eq!(found["concentration"][0], serde_json::json!({"reference_share": 0.5, "blocks": 6}));
    let [lru, mq] = &found["splits"].as_array().unwrap()[..] else { panic!("two") };
    let cells = serde_json::json!(
        {"lt_hits": 0, "lt_misses": 0, "ge_hits": 36, "ge_misses": 0, "first": 12}
    );
    assert_eq!((&lru["policy"], &lru["capacity_blocks"]), (&"lru".into(), &12.into()));
    assert_eq!((&lru["by_temporal"], &lru["by_stack"]), (&cells, &cells));
    assert_eq!((&mq["policy"], &mq["by_stack"]["first"]), (&"mq".into(), &12.into()));
    for name in ["sampling", "upper", "idle_distance"] {
        assert!(found[name].is_null(), "{name}");
    }
}

#[test]
fn tables_say_what_they_show() {
    let place = place();
    let found = place.quiet("characterize loop.csv --cache 48KiB");
    for line in [
        "trace       loop.csv (csv)\n",
        "requests    48, 83.33 % reads\n",
        "time        23.5 s; in the mean 2 requests/s, 8.2 KiB/s\n",
        "sizes       4 KiB each\n",
        "sequential  91.67 % of the requests begin where the last ended\n",
        "blocks      48 requests of one 4 KiB block, 83.33 % reads; 12 distinct, 48 KiB\n",
        "cold        12 first requests of a block, 25.00 %\n",
        "figures     exact\n",
        "stack    hill from 16 (64 KiB) to 16 (64 KiB), peak 16 (64 KiB); median 16 (64 KiB)\n",
        "hits by distance in 48 KiB:lru, 12 blocks\n",
        "stack, from the size on           36    36       0   100.00 %\n",
    ] {
        assert!(found.contains(line), "{line:?} is not in\n{found}");
    }
    let wide = found.lines().map(|line| line.chars().count()).max();
    assert!(wide <= Some(100), "{wide:?}");
    // Without times and marks.
    place.write("plain.trc", "7\n7\n9\n");
    let found = place.quiet("characterize plain.trc");
    assert!(found.contains("3, the trace does not tell reads from writes\n"), "{found}");
    assert!(!found.contains("time  ") && !found.contains("% reads"), "{found}");
    place.write("once.trc", "7\n8\n9\n");
    assert!(place.quiet("characterize once.trc").contains("no block is requested twice\n"));
}

/// The loop does not fit the cache above, so every eviction is soon regretted.
#[test]
fn idle_distances_below_a_cache() {
    let place = place();
    let found = place.json("characterize loop.csv --l1 4blk:lru --json");
    let upper = &found["upper"];
    assert_eq!((&upper["policy"], &upper["capacity_blocks"]), (&"lru".into(), &4.into()));
    assert_eq!((&upper["reads"], &upper["read_hits"]), (&40.into(), &0.into()));
    let idle = &found["idle_distance"];
    assert_eq!((&idle["source"], &idle["evictions"]), (&"upper".into(), &44.into()));
    assert_eq!((&idle["requests"], &idle["left_out"]), (&36.into(), &0.into()));
    assert_eq!(
        (&idle["mean_access_based"], &idle["mean_eviction_based"]),
        (&12.0.into(), &8.0.into())
    );
    let found = place.quiet("characterize loop.csv --l1 4blk:lru");
    assert!(found.contains("peaks above the size of the cache above, 4 blocks\n"), "{found}");
    assert!(found.contains("mean 12 since the request, 8 since the eviction"), "{found}");
}

#[test]
fn traces_with_too_many_blocks_are_sampled() {
    let place = Place::new();
    let generated = place.run("trace generate zipf,blocks=20000,requests=60000,seed=3 -o z.trc");
    assert!(generated.status.success());
    let output = place.run("characterize z.trc --sample 2000 --json");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("z.trc: more than 2,000 distinct blocks: sampling"), "{said}");
    let found: serde_json::Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    let sampling = &found["sampling"];
    assert!(sampling["rate"].as_f64() < Some(0.3), "{sampling}");
    assert!(sampling["sampled_blocks"].as_u64() <= Some(2000), "{sampling}");
    assert!(sampling["share_error"].as_f64() > Some(0.0), "{sampling}");
    assert_eq!(
        (&found["requests"]["requests"], &found["blocks"]["requests"]),
        (&60000.into(), &60000.into())
    );
    let found = place.quiet("characterize z.trc --rate 0.25");
    assert!(found.contains("figures     estimated from ") && found.contains(" points;"), "{found}");
    let trace = std::fs::read(place.path("z.trc")).unwrap();
    let output = place.fed("characterize - --sample 2000 --format trc", &trace);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("standard input cannot be read twice"));
    assert!(place.fed("characterize - --format trc", &trace).status.success());
}

#[test]
fn what_cannot_be_described_is_refused() {
    let place = place();
    for (arguments, why) in [
        ("characterize loop.csv --cache 10%", "give a size in bytes or blocks"),
        ("characterize loop.csv --l1 10%:lru", "give a size in bytes or blocks"),
        ("characterize loop.csv --cache 4blk:opt", "looks ahead"),
        ("characterize loop.csv --l1 4blk:opt", "online policy"),
        ("characterize loop.csv --cache x", "x"),
        ("characterize loop.csv --rate 0", "expected above 0"),
        ("characterize loop.csv --rate 1e-12", "larger rate"),
        ("characterize loop.csv --rate 0.5 --l1 4blk:lru", "trace filter"),
        ("characterize loop.csv --sample 10", "1000"),
    ] {
        let said = place.fails(2, arguments);
        assert!(said.contains(why), "{arguments}: {said}");
    }
    place.write("empty.csv", "timestamp,block,rw\n");
    assert!(place.fails(1, "characterize empty.csv").contains("no requests"));
    place.write("damaged.csv", "timestamp,block,rw\n0,1,R\n0,x,R\n");
    assert!(place.fails(1, "characterize damaged.csv").contains("line 3"));
}
