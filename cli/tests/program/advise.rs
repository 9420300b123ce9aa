//! `undercroft advise`: every run that it names prints the figure that it states, and what it
//! refuses.

use serde_json::Value;

use super::commands::Place;

/// A trace of which LRU makes little below a small client.
fn place() -> Place {
    let place = Place::new();
    place.ok("trace generate zipf,requests=30000,blocks=4000,alpha=0.9,seed=5 -o z.uct");
    place
}

/// What the last level of a simulation counted: hit ratio, and blocks read from the disk.
fn simulated(place: &Place, run: &str) -> (f64, u64) {
    let arguments = run.strip_prefix("undercroft ").unwrap();
    let report = place.json(&format!("{arguments} --json"));
    let level = report["levels"].as_array().unwrap().last().unwrap();
    let disk = &report["disk"];
    let reads = disk["demand_reads"].as_u64().unwrap() + disk["reloads"].as_u64().unwrap();
    (level["read_hit_ratio"].as_f64().unwrap(), reads)
}

/// What a finding says of flash is what its command prints.
fn flash_is_simulated(place: &Place, finding: &Value) {
    let run = finding["runs"][0].as_str().unwrap().strip_prefix("undercroft ").unwrap();
    let report = place.json(&format!("{run} --json"));
    let number = |value: &Value| value.as_f64().unwrap();
    let level = report["levels"].as_array().unwrap().last().unwrap();
    assert_eq!(level["read_hit_ratio"], finding["memory"]["read_hit_ratio"], "{run}");
    let hits = number(&level["read_hits"]) + number(&report["flash"]["read_hits"]);
    assert_eq!(hits / number(&level["reads"]), number(&finding["read_hit_ratio"]), "{run}");
    assert_eq!(report["flash"]["written_per_hit"], finding["written_per_hit"], "{run}");
}

#[test]
fn the_runs_print_the_figures() {
    let place = place();
    for level in ["--l1 200blk:lru ", ""] {
        let advice = place.json(&format!("advise z.uct {level}--policy mq,lirs --json"));
        let findings = advice["findings"].as_array().unwrap();
        assert!(findings.len() >= 4, "{findings:?}");
        for finding in findings {
            let text = finding["text"].as_str().unwrap();
            let choice = match finding["kind"].as_str().unwrap() {
                "bound" => &finding["opt"],
                "unfiltered" => &finding["lru"],
                "lru_wasted" => continue,
                "flash" => {
                    flash_is_simulated(&place, finding);
                    continue;
                }
                _ => &finding["choice"],
            };
            let run = finding["runs"][0].as_str().unwrap();
            let (ratio, disk) = simulated(&place, run);
            assert_eq!(choice["read_hit_ratio"], ratio, "{run}");
            assert_eq!(choice["disk_reads"], disk, "{run}");
            assert!(text.contains(&format!("{:.2} %", 100.0 * ratio)), "{text}: {ratio}");
        }
        let placed = findings.iter().filter(|finding| finding["kind"] == "placement").count();
        assert_eq!(placed, if level.is_empty() { 0 } else { 2 }, "{level}");
        for run in findings.iter().filter(|f| f["kind"] == "lru_wasted").map(|f| &f["runs"][0]) {
            assert!(simulated(&place, run.as_str().unwrap()).0 < 0.01, "{run}");
        }
    }
}

#[test]
fn the_answer_comes_first_and_says_what_it_assumes() {
    let place = place();
    let said = place.quiet("advise z.uct --l1 200blk:lru --policy mq");
    let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("{part:?} is not in\n{said}"));
    assert!(at("* Take ") < at("read hit ratio") && at("read hit ratio") < at("assumed"));
    assert!(at("undercroft serve --volume NAME=STORE,cache=") < at("read hit ratio"));
    at("The client has a cache of 800 KiB with lru");
    at("undercroft simulate z.uct --l1 200blk:lru --l2 ");
    let wide = said.lines().find(|line| line.starts_with(['*', ' ']) && line.len() > 110);
    assert_eq!(wide, None);
    let said = place.quiet("advise z.uct --policy mq");
    // What changes every figure stands first, and the answer rests on it.
    let answer: Vec<_> = said.lines().filter(|line| line.starts_with("* ")).collect();
    assert!(answer[0].starts_with("* First say where the trace was taken."), "{said}");
    assert!(answer[1].starts_with("* If it was taken below that cache, take "), "{said}");
    // Nothing is requested twice.
    place.write("once.trc", (0..2000).map(|i| format!("{i}\n")).collect::<String>());
    let said = place.quiet("advise once.trc");
    assert!(said.contains("* Take no cache: no policy serves one read in a hundred"), "{said}");
}

#[test]
fn prices_decide_if_they_are_given() {
    let place = place();
    let first = |memory: &str| -> Value {
        let prices = format!("--memory-price {memory} --disk-price 50 --duration 60");
        let advice = place.json(&format!("advise z.uct --policy mq {prices} --json"));
        assert_eq!(advice["prices"]["disk_reads_per_s"], 200.0);
        let findings = advice["findings"].as_array().unwrap();
        assert_eq!(findings[0]["kind"], "unfiltered");
        findings[1].clone()
    };
    let cheap = first("1");
    assert_eq!(cheap["kind"], "cheapest");
    let text = cheap["text"].as_str().unwrap();
    assert!(text.contains("that cache, take ") && text.contains("at these prices"), "{text}");
    let serve = cheap["serve"].as_str().unwrap();
    let policy = cheap["choice"]["policy"].as_str().unwrap();
    assert!(serve.contains(&format!(",policy={policy}")), "{serve}");
    let blocks = cheap["choice"]["capacity_blocks"].as_u64().unwrap();
    let memory = cheap["cost"]["memory"].as_f64().unwrap();
    // Generated traces have blocks of 4 KiB.
    assert!((memory - blocks as f64 * 4096.0 / f64::from(1 << 30)).abs() < 1e-9);
    let dear = first("1000000");
    assert!(dear["choice"].is_null() && dear["text"].as_str().unwrap().starts_with("Take no"));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let place = place();
    place.write("plain.trc", "1\n2\n1\n2\n");
    for (wrong, says) in [
        ("advise z.uct --memory-price 3", "--disk-price"),
        ("advise z.uct --memory-price=-3 --disk-price 3", "from 0 on"),
        ("advise z.uct --memory-price x --disk-price 3", "from 0 on"),
        ("advise plain.trc --memory-price 3 --disk-price 3", "--duration"),
        ("advise z.uct --disk-reads 0", "above 0"),
        ("advise z.uct --policy nonsense", "nonsense"),
        ("advise z.uct --policy lru-ca", "content-aware"),
        ("advise z.uct --policy mq,ca=yes", "content-aware"),
        ("advise z.uct --l1 64blk:arc,ca", "online"),
        ("characterize z.uct --l1 64blk:mq,ca", "online"),
        ("characterize z.uct --cache 64blk:mq,ca", "neighbouring cache"),
        ("trace filter z.uct --l1 64blk:mq,ca -o below.uct", "neighbouring cache"),
        ("trace filter z.uct --l1 64blk:lru-ca -o below.uct", "neighbouring cache"),
        ("advise http://localhost:1 --report page.html", "for traces"),
        ("advise http://localhost:1 --memory-price 3 --disk-price 3", "for traces"),
        ("advise http://localhost:1 --block 8KiB", "for traces"),
        ("advise http://localhost:1 --policy mq", "leave them out"),
        ("advise http://localhost:1 --disk-reads 100", "--memory-price"),
        ("advise http://localhost:1 --duration 60", "--memory-price"),
        ("advise z.uct --l1 64blk:opt", "online"),
        ("advise z.uct --l2 0blk", "0 blocks"),
        ("advise z.uct --l1 64blk", "SIZE:POLICY"),
    ] {
        let said = place.fails(2, wrong);
        assert!(said.contains(says), "{wrong}: {said}");
    }
    place.write("writes.csv", "block,rw\n1,W\n2,W\n1,W\n");
    assert!(place.fails(1, "advise writes.csv").contains("no reads"));
    place.fails(1, "advise nowhere.csv");
}
