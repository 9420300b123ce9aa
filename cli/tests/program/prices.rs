//! What cooperation costs stands beside what it gains.

use super::commands::Place;

/// Two readers of a loop: with eviction-based placement there are more hits, and more disk reads.
fn looped(place: &Place) {
    let numbers: Vec<String> = (0..400).map(|n| (n % 25).to_string()).collect();
    place.write("loop.trc", numbers.join("\n") + "\n");
}

#[test]
fn reloads_are_counted_where_hits_are() {
    let place = Place::new();
    looped(&place);
    let levels = "--l1 10blk:lru --l2 10blk:mru";
    let report = place.json(&format!("simulate loop.trc {levels} --placement eviction --json"));
    let number = |path: &str| report.pointer(path).and_then(serde_json::Value::as_f64).unwrap();
    let (demand, reloads) = (number("/disk/demand_reads"), number("/disk/reloads"));
    assert!(reloads > 0.0);
    let with = number("/response_time_ms") + 10.0 * reloads / number("/aggregate/reads");
    assert!((number("/response_time_with_reloads_ms") - with).abs() < 1e-9);
    let said = place.quiet(&format!("simulate loop.trc {levels} --placement eviction"));
    let time = format!("; reloads are not in it, {with:.3} ms if a read waits for each\n");
    assert!(said.contains(&time), "{said}");
    let disk = format!("{reloads} reloaded, that is {} reads in all, ", demand + reloads);
    assert!(said.contains(&disk), "{said}");
    let said = place.quiet(&format!("simulate loop.trc {levels}"));
    assert!(!said.contains("reload"), "{said}");

    let swept = "sweep loop.trc --l1 10blk:lru --l2 10blk --policy mru -o out";
    let said = place.quiet(&format!("{swept} --placement access,eviction"));
    let (_, reads) =
        said.split_once("loop.trc: blocks read from the disk, reloads included\n").unwrap();
    let row = |name: &str| {
        let line = reads.lines().find(|line| line.starts_with(name)).unwrap();
        line.split("  ").last().unwrap().trim().replace(',', "").parse::<f64>().unwrap()
    };
    assert_eq!(row("mru eviction"), demand + reloads);
    assert!(row("mru  ") < demand + reloads);
    assert!(!place.quiet(swept).contains("reload"));
}

/// Of the last level, as the contract for scripts says; the first gets no demotions.
#[test]
fn demotions_of_blocks_that_are_there_are_counted() {
    let place = Place::new();
    looped(&place);
    let report =
        place.json("simulate loop.trc --l1 4blk:lru --l2 30blk:lru --placement demote --json");
    let levels = report["levels"].as_array().unwrap();
    assert!(levels[0].get("demote_hits").is_none());
    let hits = levels[1]["demote_hits"].as_u64().unwrap();
    assert_eq!(hits, report["movement"]["nodes"][1]["resent_in"].as_u64().unwrap());
    assert!(hits > 0);
}
