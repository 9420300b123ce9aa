//! Pages from outside: names that would break them, results that are none, sizes. The program's
//! tests look at pages in a browser.

use std::fs;

use serde_json::{Value, json};
use undercroft_report::{Error, open, page};

/// A run of a sweep.
fn row(trace: &str, policy: &str, blocks: u32, ratio: f64) -> Value {
    json!({
        "trace": trace, "upper": "", "policy": policy, "placement": "access",
        "size": format!("{blocks}blk"), "capacity_blocks": blocks, "block_bytes": 4096,
        "requests": 1000, "unique_blocks": 300, "reads": 1000,
        "read_hits": (1000.0 * ratio) as u64, "read_hit_ratio": ratio, "cold_reads": 300,
        "aggregate_read_hit_ratio": ratio, "disk_demand_reads": (1000.0 * (1.0 - ratio)) as u64,
        "disk_reloads": 0, "response_time_ms": 10.0 - 8.0 * ratio,
    })
}

fn sweep(trace: &str) -> Value {
    json!([
        row(trace, "lru", 16, 0.1),
        row(trace, "lru", 64, 0.4),
        row(trace, "mq", 16, 0.3),
        row(trace, "mq", 64, 0.45)
    ])
}

#[test]
fn names_cannot_leave_their_place() {
    for name in [
        "</script><script>alert(1)</script>.csv",
        "\"><img src=x onerror=alert(1)>",
        "'&amp;<!--.csv",
        "]]>\u{2028}\u{202e}\u{0}.csv",
    ] {
        let command = ["undercroft", "sweep", name].map(str::to_owned);
        let html = page(sweep(name), &command).unwrap().html();
        let plain = page(sweep("a.csv"), &command[..2]).unwrap().html();
        for part in ["<script", "</script", "<img", "<!--", "onerror=alert(1)>", "\u{202e}"] {
            let count = |html: &str| html.matches(part).count();
            assert_eq!(count(&html), count(&plain), "{name}: {part}");
        }
    }
}

/// Names of policies are in the JSON that the script reads.
#[test]
fn curves_survive_the_way_into_the_page() {
    let mut rows = sweep("a.csv");
    rows[2]["policy"] = "</script>&\"'".into();
    rows[3]["policy"] = "</script>&\"'".into();
    let html = page(rows, &[]).unwrap().html();
    let begin = html.find("id=\"charts\">").unwrap() + "id=\"charts\">".len();
    let data = &html[begin..begin + html[begin..].find("</script>").unwrap()];
    assert!(!data.contains(['<', '>', '&']), "{data}");
    let charts: Value = serde_json::from_str(data).unwrap();
    assert_eq!(charts[0]["series"][0]["name"], "</script>&\"'");
    assert_eq!(charts[0]["series"][0]["ys"], json!([0.3, 0.45]));
    assert_eq!(charts[0]["xs"], json!([65536.0, 262144.0]));
}

#[test]
fn the_answer_comes_first() {
    let page = page(sweep("a.csv"), &[]).unwrap();
    assert_eq!(
        page.answer[0].text,
        "mq gains most over LRU at 64 KiB: it serves 30.00 % of the reads, LRU 10.00 %."
    );
    let html = page.html();
    let at = |part: &str| html.find(part).unwrap();
    assert!(at("mq gains most") < at("<figure") && at("<table") < at("Every run"));
    let nothing = json!([row("a.csv", "lru", 16, 0.001), row("a.csv", "mq", 16, 0.002)]);
    let said = undercroft_report::page(nothing, &[]).unwrap().answer;
    assert!(said[0].text.starts_with("No policy serves one read in a hundred"), "{said:?}");
}

/// An answer that costs reads of the disk says so, and what is possible without them.
#[test]
fn the_answer_has_its_price() {
    let mut rows = sweep("a.csv");
    let mut told = row("a.csv", "mq", 16, 0.6);
    told["placement"] = "eviction".into();
    told["disk_demand_reads"] = 1400.into();
    told["disk_reloads"] = 5000.into();
    rows.as_array_mut().unwrap().push(told);
    let answer = page(rows, &[]).unwrap().answer;
    assert!(answer[0].text.starts_with("mq eviction gains most over LRU"), "{answer:?}");
    assert_eq!(
        answer[1].text,
        "That takes 5,000 reloads: mq eviction reads 6,400 blocks from the disk, LRU 900. Without \
         reloads mq serves most, 30.00 %, with 700 disk reads."
    );
}

#[test]
fn pages_need_no_network_and_are_small() {
    let rows: Vec<Value> = (0..800)
        .map(|i| row("a.csv", &format!("policy-{}", i % 40), 1 << (i / 40), f64::from(i) / 800.0))
        .collect();
    let html = page(rows.into(), &[]).unwrap().html();
    assert!(html.len() < 1_000_000, "{} bytes", html.len());
    for part in ["src=\"http", "href=\"http", "@import", "url(http"] {
        assert!(!html.contains(part), "{part}");
    }
    assert!(html.contains("default-src 'none'"));
}

#[test]
fn what_is_no_result_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let said = |result: Result<_, Error>| result.map(|_| ()).unwrap_err().to_string();
    assert!(said(open(folder.path())).contains("results.json"));
    let file = folder.path().join("results.json");
    for (text, part) in [
        ("{", "EOF"),
        ("[]", "no runs"),
        ("{}", "missing field"),
        ("[{\"trace\": 1}]", "results.json"),
        ("{\"findings\": []}", "missing field"),
        ("7", "expected those of sweep"),
    ] {
        fs::write(&file, text).unwrap();
        let said = said(open(folder.path()));
        assert!(said.contains(part), "{text}: {said}");
    }
    fs::write(&file, sweep("a.csv").to_string()).unwrap();
    let command = json!({"command": ["/usr/bin/undercroft", "sweep", "a b.csv"]});
    fs::write(folder.path().join("command.json"), command.to_string()).unwrap();
    assert_eq!(open(folder.path()).unwrap().command, "undercroft sweep 'a b.csv'");
}
