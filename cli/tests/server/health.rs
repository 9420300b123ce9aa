//! What a server says of its stores, by every way: one that is lost, one that fails some of its
//! requests; what has happened; and what the caches saved.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use undercroft_nbd::ClientOptions;

use super::arrivals::page;
use super::live::seen;
use super::support::{PATIENCE, Place, Server, read, text};

const BLOCK: u64 = 4096;

fn wait_for_state(server: &Server, volume: &str, state: &str) {
    let deadline = Instant::now() + PATIENCE;
    while server.stats(volume)["store_state"] != state {
        assert!(Instant::now() < deadline, "not {state}: {}", server.stats(volume));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lines(server: &Server, part: &str) -> usize {
    server.log().lines().filter(|line| line.contains(part)).count()
}

/// The last cell of a volume's row, in the first table of `stats`.
fn in_table(place: &Place, server: &Server, volume: &str) -> String {
    let table = text(&place.undercroft(&format!("stats {}", server.http())).stdout);
    let row = table.lines().find(|line| line.starts_with(&format!("{volume} "))).unwrap();
    row.split_whitespace().next_back().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_store_is_said_by_every_way_and_a_reconnect_clears_it() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=file:v.img,size=1MiB");
    let uri = lower.uri("v");
    let upper = above.serve(&format!(
        "--volume v={uri},reconnect-s=3600 --volume short={uri},reconnect-s=1 \
         --volume idle={uri},reconnect-s=3600 --volume here=mem:,size=1MiB"
    ));
    let client = upper.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    assert_eq!(page(&upper, "/healthz"), (200, "ok\n".to_owned()));
    lower.kill();
    let waits = client.clone();
    let waits = tokio::spawn(async move { read(&waits, BLOCK, 4096).await });
    // Also those of which nothing is asked.
    for volume in ["v", "idle"] {
        wait_for_state(&upper, volume, "waiting");
    }
    wait_for_state(&upper, "short", "down");
    upper.wait_for("v", "store_waiting_seconds", |seconds| seconds >= 2);
    upper.wait_for("v", "store_oldest_request_seconds", |seconds| seconds >= 2);
    let counts = upper.stats("v");
    assert_eq!(
        (&counts["store_up"], &counts["store_failures"]),
        (&1.into(), &0.into()),
        "{counts}"
    );
    assert_eq!((upper.count("short", "store_up"), upper.count("here", "store_up")), (0, 1));
    let told = counts["store_trouble"].as_str().unwrap();
    assert!(
        told.starts_with("waiting for its store since ") && told.contains("nbd+unix"),
        "{told}"
    );
    assert!(told.contains("; the oldest request waits "), "{told}");
    // Health: a restart would make it worse, until requests fail.
    let (status, body) = page(&upper, "/healthz/v");
    assert!(status == 200 && body.starts_with("ok\nwaiting for its store since "), "{body}");
    let (status, body) = page(&upper, "/healthz/short");
    assert!(status == 503 && body.starts_with("its store is down since "), "{body}");
    let (status, body) = page(&upper, "/healthz");
    assert!(status == 503 && body.contains("v: waiting for") && body.contains("short: its store"));
    let metrics = page(&upper, "/metrics").1;
    let gauge = |line: &str| metrics.lines().any(|one| one.starts_with(line));
    assert!(!gauge("undercroft_store_waiting_seconds{volume=\"v\"} 0"), "{metrics}");
    assert!(gauge("undercroft_store_waiting_seconds{volume=\"here\"} 0"), "{metrics}");
    assert!(gauge("undercroft_store_up{volume=\"v\"} 1"), "{metrics}");
    assert!(gauge("undercroft_store_up{volume=\"short\"} 0"), "{metrics}");
    // The same words in tables, and for people.
    for (volume, state) in [("v", "waiting"), ("short", "down"), ("here", "up")] {
        assert_eq!(in_table(&above, &upper, volume), state);
    }
    let top = above.undercroft(&format!("top {} --every 1 --count 1", upper.http()));
    let top = text(&top.stdout);
    assert!(top.contains("Not healthy: 1 of 4 volumes"), "{top}");
    assert!(top.contains("  v: waiting for its store since "), "{top}");
    assert!(!top.contains("Healthy:"), "{top}");
    // A line for each change, not for each attempt.
    for (volume, state) in [("v", "waiting"), ("idle", "waiting"), ("short", "down")] {
        let part = format!("volume=\"{volume}\" state=\"{state}\"");
        assert_eq!(lines(&upper, &part), 1, "{part}: {}", upper.log());
    }
    // It is back: that is noticed though nobody asks, and also where requests fail by now.
    let lower = below.serve("--volume v=file:v.img,size=1MiB");
    for volume in ["v", "idle", "short"] {
        wait_for_state(&upper, volume, "up");
    }
    waits.await.unwrap().unwrap();
    assert_eq!(page(&upper, "/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(upper.count("v", "store_waiting_seconds"), 0);
    assert_eq!(lines(&upper, "its store is up again"), 3, "{}", upper.log());
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// Requests that nothing answers, though no connection is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stalls_is_waited_for() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=fail(read,from=2,stall):mem:,size=1MiB,reconnect-s=3600,store-timeout-s=0 \
         --volume short=fail(read,from=2,stall):mem:,size=1MiB,reconnect-s=1,store-timeout-s=0",
    );
    let mut stalled = Vec::new();
    for volume in ["v", "short"] {
        let client = server.connect(volume).await;
        read(&client, 0, 4096).await.unwrap();
        stalled.push(tokio::spawn(async move { read(&client, BLOCK, 4096).await }));
    }
    wait_for_state(&server, "v", "waiting");
    wait_for_state(&server, "short", "down");
    assert_eq!(page(&server, "/healthz/v").0, 200);
    let (status, told) = page(&server, "/healthz/short");
    assert!(status == 503 && told.contains("nothing is answered"), "{told}");
    // Hits are no answers of the store.
    let client = server.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    assert_eq!(server.stats("v")["store_state"], "waiting");
    server.kill();
}

/// 2 % of all requests: not more than now and then, and never well.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_some_requests_is_failing() {
    let place = Place::new();
    let server = place
        .serve("--volume v=fail(read,every=50):mem:,size=1MiB,cache=off --volume w=mem:,size=1MiB");
    let client = server.connect("v").await;
    let mut failed = 0;
    for turn in 0..500_u64 {
        failed += usize::from(read(&client, turn % 256 * BLOCK, 4096).await.is_err());
    }
    assert_eq!(failed, 10);
    // The last ten requests ended well, as nearly all before.
    read(&client, 0, 4096).await.unwrap();
    wait_for_state(&server, "v", "failing");
    for _ in 0..20 {
        read(&client, 0, 4096).await.unwrap();
        assert_eq!(server.stats("v")["store_state"], "failing");
    }
    let (status, told) = page(&server, "/healthz/v");
    assert!(status == 503 && told.starts_with("its store is failing: "), "{told}");
    assert!(told.contains(" reads failed in the last minute: "), "{told}");
    assert_eq!((server.count("v", "store_up"), server.count("v", "store_waiting_seconds")), (0, 0));
    assert_eq!(page(&server, "/healthz/w"), (200, "ok\n".to_owned()));
    assert_eq!(in_table(&place, &server, "v"), "failing");
    assert_eq!(lines(&server, "its store is failing"), 1, "{}", server.log());
    assert_eq!(server.stop(), 0);
}

fn events(place: &Place, uri: &str) -> Vec<Value> {
    let output = place.undercroft(&format!("stats {uri} --events --json"));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_told_to_those_who_may_see_them() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=fail(read,from=1):mem:,size=1MiB,cache=256KiB --volume w=mem:,size=1MiB \
         --volume shut=fail(read,from=1):mem:,size=1MiB,client=user:nobody",
    );
    let client = server.connect("v").await;
    assert!(read(&client, 0, 4096).await.is_err());
    wait_for_state(&server, "v", "failing");
    assert!(server.try_connect("shut", &ClientOptions::default()).await.is_err());
    let set = place.undercroft(&format!("set {} w dirty-percent=30", server.uri("w")));
    assert_eq!(set.status.code(), Some(0), "{}", text(&set.stderr));
    server.signal(Signal::HUP);
    let deadline = Instant::now() + PATIENCE;
    let all = loop {
        let all = events(&place, &server.http());
        let has = |kind: &str| all.iter().any(|event| event["kind"] == kind);
        if ["store", "refusal", "change", "reload"].into_iter().all(has) {
            break all;
        }
        assert!(Instant::now() < deadline, "{all:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    let of = |kind: &str| all.iter().find(|event| event["kind"] == kind).unwrap();
    assert_eq!((&of("store")["volume"], &of("store")["level"]), (&"v".into(), &"error".into()));
    let told = of("store")["text"].as_str().unwrap();
    assert!(told.starts_with("its store is failing: 1 of 1 reads failed"), "{told}");
    assert!(of("refusal")["who"].is_string(), "{all:?}");
    assert!(all.is_sorted_by(|a, b| a["time_ms"].as_u64() >= b["time_ms"].as_u64()), "{all:?}");
    // Whoever may open a volume learns of the volumes that he may open, and of no client.
    let told = events(&place, &server.uri("w"));
    let names: Vec<_> = told.iter().map(|event| event["volume"].as_str().unwrap()).collect();
    assert!(names.contains(&"v") && names.iter().all(|name| ["v", "w"].contains(name)), "{told:?}");
    assert!(told.iter().all(|event| event["who"].is_null()), "{told:?}");
    let lines = text(&place.undercroft(&format!("stats {} --events", server.http())).stdout);
    let line = lines.lines().find(|line| line.contains("  store  ")).unwrap();
    assert!(line.contains("Z  error    store    v: its store is failing: "), "{lines}");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_cache_saved_is_told() {
    let place = Place::new();
    let server = place.serve("--volume v=delay(50ms):mem:,size=1MiB,cache=512KiB");
    let client = server.connect("v").await;
    // A read ahead would be a disk read too.
    for block in [0, 40, 20, 60, 10_u64] {
        read(&client, block * BLOCK, 4096).await.unwrap();
    }
    for _ in 0..30 {
        read(&client, 40 * BLOCK, 4096).await.unwrap();
    }
    let counts = server.stats("v");
    let count = |name: &str| counts[name].as_u64().unwrap();
    assert_eq!((count("reads"), count("read_hits")), (35, 30));
    let saved = &counts["saved"]["since_start"];
    let reads = saved["disk_reads"].as_i64().unwrap();
    assert_eq!(reads, 35 - counts["store_reads"].as_i64().unwrap(), "{counts}");
    let miss_us = counts["latency_us"]["read"]["miss"]["total"].as_f64().unwrap() / 5.0;
    let waiting_s = saved["waiting_s"].as_f64().unwrap();
    // All misses and all hits may be of one period, or of several.
    assert!(waiting_s > 0.0 && waiting_s < 30.0 * 5.0 * miss_us / 1e6, "{counts}");
    assert_eq!(&counts["saved"]["today"], saved, "it runs since today");
    assert_eq!(saved["hinted_disk_reads"], 0);
    let all: Value = serde_json::from_str(&server.page("/stats")).unwrap();
    assert_eq!(all["total"]["saved"]["since_start"]["disk_reads"], reads);
    let table = text(&place.undercroft(&format!("stats {}", server.http())).stdout);
    assert!(table.contains("saved disk reads"), "{table}");
    let top = place.undercroft(&format!("top {} --every 1 --count 1", server.http()));
    let top = text(&top.stdout);
    assert!(top.contains(&format!("Saved since the start: {reads} disk reads and ")), "{top}");
    assert_eq!(server.stop(), 0);
}

/// The page in a browser, while the store of its volume, and then the server itself, is lost.
#[tokio::test(flavor = "multi_thread")]
async fn the_page_says_what_is_lost() {
    if Command::new("chromium").arg("--version").output().is_err() {
        return println!("skipped: chromium is not installed");
    }
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=file:v.img,size=1MiB");
    let upper = above.serve(&format!("--volume v={},reconnect-s=3600", lower.uri("v")));
    let pids = [&lower, &upper].map(|server| server.pid().to_string());
    let Some(seen) = seen(&["ends", &upper.http(), &pids.join(",")]) else { return };
    let said = |at: usize| {
        let said = seen["said"][at].as_array().unwrap().iter();
        said.map(|text| text.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(said(0)[0], "Healthy: the volume is served, and its store answers.");
    assert_eq!(said(1)[0], "Waiting for stores: 1 of 1 volume.");
    assert!(said(1)[1].starts_with("Volume v: waiting for its store since "), "{seen}");
    assert!(seen["events"][1][0].as_str().unwrap().contains("waiting for its store"), "{seen}");
    assert!(said(2)[0].starts_with("Not known: the server is not heard of."), "{seen}");
    assert!(said(2).iter().all(|text| !text.contains("Healthy")), "{seen}");
    assert!(seen["titles"][2].as_str().unwrap().starts_with("? "), "{seen}");
}
