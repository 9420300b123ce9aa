//! Simulations of caches that cooperate: what the tables and the JSON say of them.

use crate::commands::{Place, text};

/// A B C D A in two levels of two blocks each: what the levels exchange is in the output.
#[test]
fn cooperation_shows_its_price_beside_its_gain() {
    let place = Place::new();
    place.write("a.trc", "1\n2\n3\n4\n1\n");
    let levels = "--l1 2blk:lru --l2 2blk:lru";
    let run = |more: &str| place.json(&format!("simulate a.trc {levels} {more} --json"));
    let access = run("");
    assert_eq!(access["aggregate"]["read_hits"], 0);
    assert!(access.get("cooperation").is_none());
    let gl = run("--placement gl");
    let lower = &gl["levels"][1];
    assert_eq!(
        (&gl["levels"][0]["placement"], &lower["placement"]),
        (&"access".into(), &"gl".into())
    );
    assert_eq!((&lower["demotions_in"], &lower["reloads"]), (&3.into(), &0.into()));
    assert_eq!((&lower["read_hits"], &gl["disk"]["demand_reads"]), (&1.into(), &4.into()));
    // One hit of 2 ms, four reads of 10 ms; three demotions of 1.8 ms.
    let ms = |name: &str| gl[name].as_f64().unwrap();
    assert!((ms("response_time_ms") - 8.4).abs() < 1e-9);
    assert!((ms("response_time_with_demotions_ms") - 9.48).abs() < 1e-9);
    let ev = run("--placement eviction,on-hit=move");
    let lower = &ev["levels"][1];
    assert_eq!((&lower["reloads"], &lower["demotions_in"]), (&3.into(), &0.into()));
    assert_eq!(
        (&lower["known_evictions"], &ev["cooperation"]["hint_bytes"]),
        (&3.into(), &24.into())
    );
    assert_eq!((&ev["disk"]["reloads"], &ev["disk"]["demand_reads"]), (&3.into(), &4.into()));
    let skipped = run("--placement eviction,on-hit=move --reload-threshold 2");
    assert_eq!(skipped["levels"][1]["reloads_skipped"], 3);
    let text = place.quiet(&format!("simulate a.trc {levels} --placement eviction,on-hit=move"));
    for what in [
        "4 blocks read, 3 reloaded, that is 7 reads in all, 0 written",
        "24 B of hints",
        "evicted above",
    ] {
        assert!(text.contains(what), "{text}");
    }
    let text = place.quiet(&format!("simulate a.trc {levels} --placement gl"));
    assert!(text.contains("3 blocks sent down") && text.contains("9.480 ms"), "{text}");
}

/// The worked example of content-aware LRU: what it saves, and what it cost to know.
#[test]
fn content_awareness_shows_its_price_beside_its_gain() {
    let place = Place::new();
    place.write("a.trc", "1\n2\n3\n4\n1\n2\n5\n3\n1\n4\n");
    let run = |upper: &str, lower: &str| {
        place.json(&format!("simulate a.trc --l1 3blk:{upper} --l2 3blk:{lower} --json"))
    };
    let plain = run("lru", "lru");
    assert_eq!(plain["disk"]["demand_reads"], 10);
    assert!(plain.get("aware").is_none());
    let aware = run("lru-ca,alpha=1", "lru");
    assert_eq!(aware["disk"]["demand_reads"], 7);
    assert_eq!(aware["levels"][0]["policy"], "lru-ca,alpha=1");
    let expected = serde_json::json!([{
        "level": "l1", "held_evictions": 5, "stale_evictions": 0, "mistaken_evictions": 0,
        "summary_bytes": 32, "summaries": 0, "whole_summaries": 0, "distrusted": 0,
    }]);
    assert_eq!(aware["aware"], expected);
    let both = run("mq,ca,knows=bloom", "2q,ca,knows=emulation");
    assert_eq!(both["aware"].as_array().map(Vec::len), Some(2));
    let table = place.quiet("simulate a.trc --l1 3blk:lru-ca,knows=bloom --l2 3blk:lru");
    for what in ["evicted as held", "mistaken", "false positives of a full one"] {
        assert!(table.contains(what), "{table}");
    }
    let refused = place.run("simulate a.trc --l1 3blk:lru-ca");
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("two levels"));
}

/// Frames at 0 and 1000 hold blocks 1 and 2; 3 goes where 1 was, and then 1 is asked for again.
const BUFFERS: &str = "\
# block size 4096
time_us,op,file,block,blocks,buf
0,R,0,1,1,0
1,R,0,2,1,1000
2,R,0,3,1,0
3,R,0,1,1,1000
4,R,0,3,1,1000
";

#[test]
fn evictions_come_from_buffer_addresses() {
    let place = Place::new();
    place.write("a.csv", BUFFERS);
    let command = "simulate a.csv --l1 4blk:lru --placement eviction,on-hit=move --evictions cct";
    let report = place.json(&format!("{command} --json"));
    let level = &report["levels"][0];
    assert_eq!(
        (&level["name"], &level["placement"]),
        (&"l1".into(), &"eviction,on-hit=move".into())
    );
    // 1 was placed and is hit; 2 was evicted then; 3 shows only when it is read again.
    assert_eq!((&level["read_hits"], &level["known_evictions"]), (&1.into(), &3.into()));
    let derived = &report["cooperation"];
    assert_eq!((&derived["derived_evictions"], &derived["late_evictions"]), (&3.into(), &1.into()));
    let text = place.quiet(command);
    assert!(text.contains("4 derived from buffer addresses, 1 of them too late"), "{text}");
    let more = "--l2 2blk:lru --placement eviction --evictions cct";
    assert!(
        place.fails(2, &format!("simulate a.csv --l1 2blk:lru {more}")).contains("second client")
    );
}

#[test]
fn a_sweep_takes_evictions_from_buffer_addresses() {
    let place = Place::new();
    place.write("a.csv", BUFFERS);
    let command = "--policy lru --placement access,eviction,on-hit=move --evictions cct -o out";
    let rows = place.json(&format!("sweep a.csv --l1 4blk {command} --json"));
    let hits: Vec<_> = rows.as_array().unwrap().iter().map(|row| &row["read_hits"]).collect();
    assert_eq!(hits, [2, 1]);
    let said = place.fails(2, &format!("sweep a.csv --l1 2blk:lru --l2 4blk {command}"));
    assert!(said.contains("second client"), "{said}");
}

#[test]
fn a_sweep_takes_a_list_of_placements() {
    let place = Place::new();
    place.quiet(
        "sweep a.spc --l1 1blk:lru --l2 1blk,2blk --policy lru,mq --placement \
         access,eviction,on-hit=keep,threshold=2,gl -o out --json",
    );
    let csv = place.read("out/results.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * 2 * 3, "{csv}");
    assert!(csv.contains("\"eviction,on-hit=keep,threshold=2\""), "{csv}");
}
