//! The counters as scripts find them: one set of names, over HTTP as JSON and as Prometheus text,
//! and over NBD.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use undercroft_nbd::ClientOptions;
use undercroft_server::{COUNTERS, Kind, Stats};

use super::support::{PATIENCE, Place, Server, read, text, write};

/// The names that scripts rely on, of the simulator's levels too.
const PROMISED: [&str; 7] =
    ["reads", "read_hits", "writes", "write_hits", "cold_reads", "read_hit_ratio", "evictions"];

/// What is no number of the volume as a whole, or is no number.
const BESIDES: [&str; 9] = [
    "policy",
    "placement",
    "block_bytes",
    "size_bytes",
    "latency_us",
    "clients",
    "store_state",
    "store_trouble",
    "position",
];

/// Metrics that belong to no volume.
const OF_THE_SERVER: [&str; 3] = ["uptime_seconds", "build_info", "refused_connections_total"];

/// What only the JSON has: a ratio of two counters, and what they say of the cache's worth.
const DERIVED: [&str; 2] = ["read_hit_ratio", "saved"];

async fn busy(place: &Place) -> Server {
    let server = place.serve(
        "--volume a=file:a.img,size=1MiB,policy=lru,cache=64KiB,write=back \
         --volume b=mem:,size=1MiB,policy=mq --cache 1MiB",
    );
    let client = server.connect("a").await;
    for block in 0..20_u64 {
        read(&client, block * 4096, 4096).await.unwrap();
    }
    read(&client, 19 * 4096, 4096).await.unwrap();
    write(&client, 18 * 4096, vec![1; 8192]).await.unwrap();
    write(&client, 100 * 4096, vec![1; 100]).await.unwrap();
    client.flush().await.unwrap();
    client.close().await;
    server
}

fn names(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_are_the_same_by_every_way() {
    let place = Place::new();
    let server = busy(&place).await;
    let stats: Value = serde_json::from_str(&server.page("/stats")).unwrap();
    assert_eq!(names(&stats), ["events", "total", "volumes"].map(str::to_owned).into());
    assert_eq!(names(&stats["volumes"]), ["a", "b"].map(str::to_owned).into());
    let a = &stats["volumes"]["a"];
    for (name, value) in
        [("reads", 21), ("read_hits", 1), ("writes", 3), ("write_hits", 2), ("evictions", 5)]
    {
        assert_eq!(a[name], value, "{name} in {a}");
    }
    assert_eq!((&a["cold_reads"], &a["dirty"]), (&20.into(), &0.into()), "{a}");
    assert_eq!((&a["resident"], &a["capacity_blocks"]), (&16.into(), &16.into()), "{a}");
    assert!((a["read_hit_ratio"].as_f64().unwrap() - 1.0 / 21.0).abs() < 1e-12);
    // A volume has the numbers of the total, and some facts besides.
    let total = names(&stats["total"]);
    assert!(PROMISED.iter().all(|name| total.contains(*name)), "{total:?}");
    let besides = BESIDES.map(str::to_owned).into();
    for volume in ["a", "b"] {
        let own = names(&stats["volumes"][volume]);
        assert_eq!(own.difference(&total).cloned().collect::<BTreeSet<_>>(), besides);
        assert!(total.is_subset(&own));
    }
    for name in total.iter().filter(|name| !DERIVED.contains(&name.as_str())) {
        let sum = ["a", "b"].map(|v| stats["volumes"][v][name].as_u64().unwrap());
        assert_eq!(stats["total"][name].as_u64(), Some(sum[0] + sum[1]), "{name}");
    }

    for uri in [server.http(), format!("{}/stats", server.http()), server.uri("a"), server.uri("b")]
    {
        let output = place.undercroft(&format!("stats {uri} --json"));
        assert_eq!(output.status.code(), Some(0), "{uri}: {}", text(&output.stderr));
        assert_eq!(text(&output.stderr), "", "{uri}");
        let mut told: Value = serde_json::from_slice(&output.stdout).unwrap();
        // The connection that asks over NBD is a client itself.
        for volume in ["a", "b"] {
            told["volumes"][volume]["clients"] = stats["volumes"][volume]["clients"].clone();
        }
        assert_eq!(told, stats, "{uri}");
    }
    let table = place.undercroft(&format!("stats {}", server.uri("b")));
    let table = text(&table.stdout);
    let row = table.lines().find(|line| line.trim_start().starts_with("a ")).unwrap();
    assert!(row.contains("21") && row.contains("4.76 %"), "{table}");
    assert!(table.lines().any(|line| line.trim_start().starts_with("total")), "{table}");
    assert_eq!(server.stop(), 0);
}

/// The table: no two columns of one name, the volumes as they are configured, times.
#[tokio::test(flavor = "multi_thread")]
async fn the_table_is_in_the_order_of_the_configuration_and_can_be_watched() {
    let place = Place::new();
    let server = place.serve(
        "--volume z=mem:,size=1MiB --volume b=mem:,size=1MiB --volume c=mem:,size=1MiB --cache 1MiB",
    );
    let client = server.connect("z").await;
    read(&client, 0, 4096).await.unwrap();
    read(&client, 0, 4096).await.unwrap();
    client.close().await;
    let positions = ["z", "b", "c"].map(|volume| server.count(volume, "position"));
    assert_eq!(positions, [0, 1, 2]);
    let table = text(&place.undercroft(&format!("stats {}", server.http())).stdout);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let first: Vec<_> = table.lines().map(|line| words(line).first().cloned()).collect();
    let wanted = ["volume", "z", "b", "c", "total"].map(|name| Some(name.to_owned()));
    assert_eq!(first[..5], wanted, "{table}");
    let columns: Vec<_> = table.lines().next().unwrap().split("  ").map(str::trim).collect();
    let columns: Vec<_> = columns.into_iter().filter(|name| !name.is_empty()).collect();
    let names: BTreeSet<_> = columns.iter().collect();
    assert!(names.len() == columns.len() && columns.contains(&"read hits"), "{columns:?}");
    for source in ["hit", "miss"] {
        let row = table
            .lines()
            .map(words)
            .find(|row| row[..].get(..3) == Some(&["z", "read", source].map(str::to_owned)));
        assert_eq!(row.map(|row| row[3].clone()).as_deref(), Some("1"), "{table}");
    }
    let mut watching =
        place.undercroft_command(&format!("stats {} --watch 1", server.http())).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let headings = lines.map_while(Result::ok).filter(|line| line.contains("hit ratio"));
    assert_eq!(headings.take(2).count(), 2);
    watching.kill().unwrap();
    watching.wait().unwrap();
    assert_eq!(place.undercroft("stats http://127.0.0.1:1 --watch 0").status.code(), Some(2));
    assert_eq!(server.stop(), 0);
}

/// One line of Prometheus text: a name, labels, a value.
fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (metric, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
    let value = value.parse().unwrap_or_else(|_| panic!("'{value}' is no number: {line}"));
    let Some((name, labels)) = metric.split_once('{') else {
        return (metric.to_owned(), BTreeMap::new(), value);
    };
    let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("no '}}': {line}"));
    let pair = |label: &str| {
        let (name, value) = label.split_once('=').unwrap_or_else(|| panic!("label: {line}"));
        let value = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        (name.to_owned(), value.unwrap_or_else(|| panic!("quotes: {line}")).to_owned())
    };
    (name.to_owned(), labels.split(',').map(pair).collect(), value)
}

/// What a scraper gets: kinds by family, and the samples of volumes by name and volume, and of
/// times by volume, operation and source.
#[derive(Default)]
struct Scraped {
    kinds: BTreeMap<String, String>,
    helps: BTreeMap<String, String>,
    numbers: BTreeMap<String, BTreeMap<String, f64>>,
    counts: BTreeMap<[String; 3], f64>,
}

impl Scraped {
    /// Reads a page, of which the names of families are those of the samples, but for an ending.
    fn read(page: &str) -> Scraped {
        let mut all = Scraped::default();
        for line in page.lines() {
            if let Some(comment) = line.strip_prefix("# ") {
                let (what, comment) = comment.split_once(' ').unwrap_or((comment, ""));
                let (name, text) = comment.split_once(' ').unwrap_or(("", ""));
                let into = match what {
                    "TYPE" => &mut all.kinds,
                    "HELP" => &mut all.helps,
                    "UNIT" => {
                        assert!(name.ends_with(&format!("_{text}")), "{line}");
                        continue;
                    }
                    _ => continue,
                };
                assert!(into.insert(name.to_owned(), text.to_owned()).is_none(), "{line}");
                continue;
            }
            let (name, labels, value) = sample(line);
            let own = name.strip_prefix("undercroft_").unwrap_or_else(|| panic!("{line}"));
            if OF_THE_SERVER.contains(&own) {
                continue;
            }
            let volume = labels.get("volume").unwrap_or_else(|| panic!("{line}")).clone();
            if let Some(part) = own.strip_prefix("request_seconds_") {
                if part == "count" {
                    let key = [&volume, &labels["operation"], &labels["source"]].map(String::clone);
                    assert!(all.counts.insert(key, value).is_none(), "{line}");
                }
                continue;
            }
            let twice = all.numbers.entry(name).or_default().insert(volume, value);
            assert!(twice.is_none(), "{line}");
        }
        all
    }
}

/// A page in the format that is asked for, and its media type.
fn scraped(server: &Server, accept: &str) -> (String, String) {
    let asked = ureq::get(format!("{}/metrics", server.http())).header("accept", accept);
    let mut answer = asked.call().unwrap();
    let kind = answer.headers()["content-type"].to_str().unwrap().to_owned();
    (answer.body_mut().read_to_string().unwrap(), kind)
}

/// Every number of the JSON is a metric with its unit, and under the name of before; in both
/// formats.
#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_the_numbers_of_the_json() {
    let place = Place::new();
    let server = busy(&place).await;
    let stats: Value = serde_json::from_str(&server.page("/stats")).unwrap();
    let (new, kind) =
        scraped(&server, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_eq!(new.lines().last(), Some("# EOF"));
    let (plain, kind) = scraped(&server, "text/plain;version=0.0.4");
    assert_eq!(kind, "text/plain; version=0.0.4; charset=utf-8");
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
    for (page, is_plain) in [(&new, false), (&plain, true)] {
        let scraped = Scraped::read(page);
        let family = |metric: &str| match is_plain {
            true => metric.to_owned(),
            false => metric.strip_suffix("_total").unwrap_or(metric).to_owned(),
        };
        assert_eq!(scraped.kinds["undercroft_request_seconds"], "histogram");
        let mut wanted = BTreeSet::new();
        for row in Stats::ROWS {
            let is_counter = row.kind == Kind::Counter;
            let metric = COUNTERS[0].metric(row);
            let old = format!("undercroft_{}{}", row.name, if is_counter { "_total" } else { "" });
            for name in [&metric, &old] {
                let kind = if is_counter { "counter" } else { "gauge" };
                assert_eq!(scraped.kinds[&family(name)], kind, "{name}");
                for volume in ["a", "b"] {
                    let json = stats["volumes"][volume][row.name].as_f64();
                    assert_eq!(Some(scraped.numbers[name][volume]), json, "{name} of {volume}");
                }
            }
            assert_eq!(scraped.helps[&family(&metric)], row.help);
            if old != metric {
                let help = &scraped.helps[&family(&old)];
                assert!(help.starts_with("Deprecated") && help.contains(&metric), "{help}");
            }
            wanted.extend([metric, old]);
        }
        assert_eq!(scraped.numbers.keys().cloned().collect::<BTreeSet<_>>(), wanted);
        let key = |source: &str| ["a", "read", source].map(str::to_owned);
        assert_eq!((scraped.counts[&key("miss")], scraped.counts[&key("hit")]), (20.0, 1.0));
    }
    let rows = Stats::ROWS.iter().map(|row| row.name.to_owned());
    let wanted = rows.chain(DERIVED.map(str::to_owned)).collect::<BTreeSet<_>>();
    assert_eq!(names(&stats["total"]), wanted);
    assert_eq!(stats["volumes"]["a"]["latency_us"]["read"]["miss"]["count"], 20);
    assert_eq!(server.stop(), 0);
}

/// A name with characters that the format escapes leaves the page readable, by promtool too.
#[test]
fn a_name_that_has_to_be_escaped() {
    let place = Place::new();
    let volume = "[[volume]]\nname = 'a\"\\b'\nstore = 'mem:'\nsize = '1MiB'\n";
    place.write("undercroft.toml", volume);
    let server = place.serve("");
    let (page, _) = scraped(&server, "text/plain");
    let found = page.contains(r#"undercroft_read_blocks_total{volume="a\"\\b"} 0"#);
    assert!(found, "{page}");
    let promtool =
        Command::new("promtool").args(["check", "metrics"]).stdin(Stdio::piped()).spawn();
    let Ok(mut promtool) = promtool else { return println!("skipped: promtool is not installed") };
    promtool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    // 3: it has remarks on names, such as of the deprecated ones; 1: it cannot read the page.
    let code = promtool.wait().unwrap().code();
    assert!([Some(0), Some(3)].contains(&code), "{code:?}: {page}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn health_and_pages_that_are_not_there() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB");
    let answer = ureq::get(format!("{}/healthz", server.http())).call().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(server.page("/healthz"), "ok\n");
    for (path, kind) in [("/stats", "application/json"), ("/metrics", "text/plain; version=0.0.4")]
    {
        let answer = ureq::get(format!("{}{path}", server.http())).call().unwrap();
        let told = answer.headers()["content-type"].to_str().unwrap();
        assert!(told.starts_with(kind), "{path}: {told}");
    }
    let missing = ureq::get(format!("{}/nothing", server.http())).call();
    assert!(matches!(missing, Err(ureq::Error::StatusCode(404))), "{missing:?}");
    let output = place.undercroft("stats ftp://x");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_without_a_cache_counts_too() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=fail(read,n=3):fail(write,n=2):file:v.img,size=1MiB,cache=off,block=8KiB",
    );
    let client = server.connect("v").await;
    read(&client, 0, 40_000).await.unwrap();
    read(&client, 8191, 2).await.unwrap();
    assert!(read(&client, 0, 100).await.is_err());
    write(&client, 0, vec![1; 8192]).await.unwrap();
    assert!(write(&client, 0, vec![1; 8193]).await.is_err());
    client.flush().await.unwrap();
    client.write_zeroes(0, 8192, 0, false).await.unwrap();
    for (name, value) in [
        ("reads", 5 + 2 + 1),
        ("read_hits", 0),
        ("writes", 1 + 2),
        ("write_hits", 0),
        ("store_reads", 8),
        ("store_writes", 3),
        ("read_failures", 1),
        ("write_failures", 2),
        ("resident", 0),
    ] {
        assert_eq!(server.count("v", name), value, "{name} in {}", server.stats("v"));
    }
    let latency = server.stats("v")["latency_us"].clone();
    assert_eq!(latency["read"]["miss"]["count"], 3, "{latency}");
    assert!(server.page("/metrics").contains("undercroft_read_blocks_total{volume=\"v\"} 8"));
    assert_eq!(server.stop(), 0);
}

/// What is told of the server itself: since when it runs, what it is, whom it sent away.
#[tokio::test(flavor = "multi_thread")]
async fn the_server_tells_of_itself() {
    let place = Place::new();
    let server = place.serve("--volume a=mem:,size=1MiB,connections=1");
    let metric = |name: &str| {
        let page = server.page("/metrics");
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(sample);
        let found = samples.filter(|(found, ..)| found == name).collect::<Vec<_>>();
        let [(_, labels, value)] = &found[..] else { panic!("{name}: {found:?}") };
        (labels.clone(), *value)
    };
    assert!((0.0..1e6).contains(&metric("undercroft_uptime_seconds").1));
    let (build, _) = metric("undercroft_build_info");
    assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
    let refused = || metric("undercroft_refused_connections_total").1;
    assert_eq!(refused(), 0.0);
    let client = server.connect("a").await;
    assert!(server.try_connect("nothing", &ClientOptions::default()).await.is_err());
    assert!(server.try_connect("a", &ClientOptions::default()).await.is_err(), "there is room");
    let deadline = Instant::now() + PATIENCE;
    // They are counted when their connections end.
    while refused() < 2.0 {
        assert!(Instant::now() < deadline, "{} refused", refused());
        std::thread::sleep(Duration::from_millis(10));
    }
    client.close().await;
    assert_eq!(refused(), 2.0);
    assert_eq!(server.stop(), 0);
}
