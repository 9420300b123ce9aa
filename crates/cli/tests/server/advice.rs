//! What a running server advises: `/advice`, `undercroft advise URI`, and what they say of a
//! workload that changes.

use std::time::{Duration, Instant};

use serde_json::Value;
use undercroft_nbd::Client;
use undercroft_random::SplitMix64;

use super::support::{Place, Server, read, text};

/// A volume of 64 MiB with 4 MiB of cache: so small that all blocks are in the sample.
fn serve(place: &Place, more: &str) -> Server {
    place.serve(&format!("--volume demo=mem:,size=64MiB,cache=4MiB,policy=lru{more} -v"))
}

fn advice(server: &Server) -> Value {
    let all: Value = serde_json::from_str(&server.page("/advice")).unwrap();
    all["volumes"]["demo"].clone()
}

/// Waits until the advice is of the reads so far and is `wanted`.
fn wait_for(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    let began = Instant::now();
    loop {
        let now = advice(server);
        if wanted(&now) {
            return now;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "{now:#}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until the advice is ready and has taken in all reads so far.
fn settled(server: &Server) -> Value {
    let last = std::cell::Cell::new(Value::Null);
    wait_for(server, |now| {
        std::thread::sleep(Duration::from_millis(300));
        last.replace(now.clone()) == *now && now["state"] == "ready"
    })
}

async fn reads(client: &Client, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        read(client, block * 4096, 4096).await.unwrap();
    }
}

/// The most that another policy would add at today's size.
fn most(advice: &Value) -> f64 {
    let cells = advice["cells"].as_array().unwrap();
    let same = cells.iter().filter(|cell| cell["cache_bytes"] == 4 << 20);
    same.map(|cell| cell["gain"].as_f64().unwrap()).fold(0.0, f64::max)
}

fn said(advice: &Value) -> String {
    let all = advice["sentences"].as_array().unwrap();
    all.iter().map(|one| one.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

/// A loop over more blocks than fit, where LRU serves nothing; then reads without any order, where
/// no policy can do better. Two turnovers after the change, the advice is right.
#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_changes_is_advised_about_within_two_turnovers() {
    let place = Place::new();
    let server = serve(&place, "");
    let client = server.connect("demo").await;
    assert_eq!(advice(&server)["state"], "learning");
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    let ready = wait_for(&server, |now| now["state"] == "ready");
    assert!(ready["sample"]["rate"].as_f64().is_some_and(|rate| (0.1..=1.0).contains(&rate)));
    assert!(most(&ready) > 0.4, "{ready:#}");
    assert!(said(&ready).contains("instead of lru would add"), "{}", said(&ready));
    assert!(ready["today"]["estimated_read_hit_ratio"].as_f64().unwrap() < 0.05);
    let none = &ready["cells"].as_array().unwrap()[0];
    for key in ["policy", "placement", "cache_bytes", "read_hit_ratio", "error", "is_today"] {
        assert!(!none[key].is_null(), "{key}: {none}");
    }

    let before = server.count("demo", "reads") - server.count("demo", "read_hits");
    let mut random = SplitMix64::new(1);
    let misses = || server.count("demo", "reads") - server.count("demo", "read_hits") - before;
    let mut was_changed = false;
    while misses() < 2 * 1024 {
        reads(&client, (0..100).map(|_| 2000 + random.below(8192))).await;
        was_changed |= advice(&server)["state"] == "changed";
    }
    // The thread of low priority may lag behind by a moment.
    let is_right = |now: &Value| {
        let hits = now["today"]["estimated_read_hit_ratio"].as_f64();
        hits.is_some_and(|hits| (0.05..0.2).contains(&hits)) && most(now) < 0.05
    };
    let right = wait_for(&server, is_right);
    assert!(!said(&right).contains("instead of lru would add"), "{}", said(&right));
    println!("was said to have changed: {was_changed}");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_out_says_the_same() {
    let place = Place::new();
    let server = serve(&place, "");
    let client = server.connect("demo").await;
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    let ready = settled(&server);
    let first = ready["sentences"][0].as_str().unwrap().to_owned();
    let ways = [server.uri("demo"), server.http()];
    for uri in &ways {
        let shown = place.undercroft(&format!("advise {uri}"));
        assert!(shown.status.success(), "{}", text(&shown.stderr));
        let shown = text(&shown.stdout);
        let unwrapped = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(unwrapped.contains(first.split(',').next().unwrap()), "{first}: {shown}");
        assert!(shown.contains("4MiB") && shown.contains("* today"), "{shown}");
        let json = place.undercroft(&format!("advise {uri} --json"));
        let json: Value = serde_json::from_slice(&json.stdout).unwrap();
        assert_eq!(json["volumes"]["demo"]["state"], "ready");
        assert!(json["total"]["sentences"].is_array());
    }
    let wrong = place.undercroft(&format!("advise {} --l1 1MiB:lru", ways[0]));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("are for traces"), "{}", text(&wrong.stderr));
    assert_eq!(server.stop(), 0);
}

/// The cache changes while it is served: the adviser begins anew around what it is now.
#[tokio::test(flavor = "multi_thread")]
async fn the_adviser_follows_changes_and_can_be_turned_off() {
    let place = Place::new();
    let server = serve(&place, "");
    let client = server.connect("demo").await;
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    wait_for(&server, |now| now["state"] == "ready");
    let changed = place.undercroft(&format!("set {} demo cache=2MiB policy=mq", server.uri("")));
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    wait_for(&server, |now| now["state"] == "learning");
    reads(&client, (0..6_000).map(|at| at % 1500)).await;
    let ready = wait_for(&server, |now| now["state"] == "ready");
    assert_eq!(ready["today"]["policy"], "mq");
    assert_eq!(ready["today"]["cache_bytes"], 2 << 20);
    assert_eq!(server.stop(), 0);

    let off = serve(&place, ",adviser=no");
    let why = wait_for(&off, |now| now["state"] == "off");
    assert!(said(&why).contains("turned off"), "{why}");
    assert_eq!(off.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_advice_says_what_placement_auto_does() {
    let place = Place::new();
    let server = serve(&place, ",placement=auto");
    let client = server.connect("demo").await;
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    let said = said(&wait_for(&server, |now| now["state"] == "ready"));
    let expected = "Placement auto places blocks at their access now; without evictions that \
                    clients tell, nothing can be compared.";
    assert!(said.contains(expected), "{said}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn volumes_without_advice_say_why() {
    let place = Place::new();
    for (options, why) in [
        ("cache=off", "no cache"),
        ("policy=lru-ca", "content-aware"),
        ("placement=d-hfa,policy=lru", "scheme"),
    ] {
        let server = place.serve(&format!("--volume demo=mem:,size=64MiB,{options}"));
        let now = wait_for(&server, |now| now["state"] == "off");
        assert!(now["why"].as_str().unwrap().contains(why), "{options}: {now}");
        assert_eq!(server.stop(), 0);
    }
}
