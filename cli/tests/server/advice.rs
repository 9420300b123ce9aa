//! What a running server advises: `/advice`, `undercroft advise URI`, and what they say of a
//! workload that changes.

use std::time::{Duration, Instant};

use serde_json::Value;
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_nbd::Client;
use undercroft_policy::{Spec, WriteMode};
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed;

use super::cooperation::{demote, opt_in};
use super::support::{Place, Server, read, text};

/// A volume of 64 MiB with 4 MiB of cache: so small that all blocks are in the sample.
fn serve(place: &Place, more: &str) -> Server {
    place.serve(&format!("--volume demo=mem:,size=64MiB,cache=4MiB,policy=lru{more} -v"))
}

fn advice(server: &Server) -> Value {
    let all: Value = serde_json::from_str(&server.page("/advice")).unwrap();
    all["volumes"]["demo"].clone()
}

/// Connects to the volume, and waits for the adviser, who is not there before the first request.
async fn connect(server: &Server) -> Client {
    let client = server.connect("demo").await;
    let learning = advice(server);
    assert_eq!(learning["why"], "no client has asked for anything so far", "{learning:#}");
    read(&client, 0, 4096).await.unwrap();
    wait_for(server, |now| !now["sample"].is_null());
    client
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

/// Waits until the advice is `wanted` and no longer changes.
fn settled(server: &Server, wanted: impl Fn(&Value) -> bool) -> Value {
    let last = std::cell::Cell::new(Value::Null);
    wait_for(server, |now| {
        std::thread::sleep(Duration::from_millis(300));
        last.replace(now.clone()) == *now && wanted(now)
    })
}

async fn reads(client: &Client, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        read(client, block * 4096, 4096).await.unwrap();
    }
}

/// The most that another policy would add with a cache of so many blocks.
fn most(advice: &Value, blocks: u32) -> f64 {
    let same = of_size(advice, blocks);
    same.map(|cell| cell["gain"].as_f64().unwrap()).fold(0.0, f64::max)
}

/// The figures of all policies with a cache of so many blocks.
fn of_size(advice: &Value, blocks: u32) -> impl Iterator<Item = &Value> {
    let cells = advice["cells"].as_array().map(Vec::as_slice).unwrap_or_default();
    cells.iter().filter(move |cell| cell["cache_bytes"] == u64::from(blocks) * 4096)
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
    let client = connect(&server).await;
    assert_eq!(advice(&server)["state"], "learning");
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    let ready = wait_for(&server, |now| now["state"] == "ready");
    assert!(ready["sample"]["rate"].as_f64().is_some_and(|rate| (0.1..=1.0).contains(&rate)));
    assert!(most(&ready, 1024) > 0.4, "{ready:#}");
    assert!(said(&ready).contains("instead of lru would add"), "{}", said(&ready));
    assert!(ready["today"]["estimated_read_hit_ratio"].as_f64().unwrap() < 0.05);
    let none = &ready["cells"].as_array().unwrap()[0];
    for key in ["policy", "placement", "cache_bytes", "read_hit_ratio", "error", "is_today"] {
        assert!(!none[key].is_null(), "{key}: {none}");
    }
    // Flash keeps the whole loop.
    let pays = |now: &Value| said(now).contains(" of flash below 4 MiB with lru would serve ");
    let flash = &wait_for(&server, pays)["flash"][0];
    assert_eq!(flash["flash_bytes"], 16 << 20, "{flash}");
    for key in ["gain", "gain_error", "written_per_hit", "is_filled"] {
        assert!(!flash[key].is_null(), "{key}: {flash}");
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
        hits.is_some_and(|hits| (0.05..0.2).contains(&hits)) && most(now, 1024) < 0.05
    };
    let right = wait_for(&server, is_right);
    // A few tenths of a point may be true of the reads that are in the sample, if it lags.
    let said = said(&right);
    let gain = said.split_once("instead of lru would add ").map_or("0", |(_, gain)| gain);
    let points: f64 = gain.split(' ').next().unwrap().parse().unwrap();
    assert!(points < 1.0, "{said}");
    println!("was said to have changed: {was_changed}");
    assert_eq!(server.stop(), 0);
}

/// Reads that LRU serves well; then a loop that it serves nothing of. Two turnovers of the cache
/// after that, the advice is of the loop: what it says of each policy is what a level of full size
/// with that policy had. When the loop has gone round some times, it names a policy that keeps a
/// part of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_loop_that_begins_is_advised_about_within_two_turnovers() {
    const CACHE: u32 = 4096;
    let place = Place::new();
    let server = place.serve("--volume demo=mem:,size=128MiB,cache=16MiB,policy=lru,shards=1 -v");
    let client = connect(&server).await;
    let mut random = SplitMix64::new(seed());
    let mut skewed = || (random.next_f64().powi(3) * 20_000.0) as u64;
    let mut done = Vec::new();
    while advice(&server)["state"] != "ready" {
        let some: Vec<_> = (0..1000).map(|_| skewed()).collect();
        reads(&client, some.iter().copied()).await;
        done.extend(some);
        // The thread of low priority gets little of a busy machine.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(done.len() < 200_000, "{:#}", advice(&server));
    }
    let before = advice(&server);
    let rate = before["sample"]["rate"].as_f64().unwrap();
    assert!(rate < 0.5, "a part of the blocks is in the sample: {rate}");
    assert!(before["today"]["estimated_read_hit_ratio"].as_f64().unwrap() > 0.3, "{before:#}");

    let missed = || server.count("demo", "reads") - server.count("demo", "read_hits");
    let (before, mut at) = (missed(), 0);
    let mut go_round = async |until: u64, done: &mut Vec<u64>| {
        while missed() - before < until {
            let some: Vec<_> = (at..at + 500).map(|at| 22_000 + at % 6000).collect();
            reads(&client, some.iter().copied()).await;
            done.extend(some);
            at += 500;
        }
    };
    let is_of_the_loop = |now: &Value| {
        let hits = now["today"]["estimated_read_hit_ratio"].as_f64();
        now["state"] != "learning" && hits.is_some_and(|hits| hits < 0.1)
    };
    // The thread of low priority may lag behind, and on a busy machine it may have had no time for
    // the first turnovers.
    let mut now = Value::Null;
    for turnovers in [2, 4, 6] {
        go_round(turnovers * u64::from(CACHE), &mut done).await;
        now = settled(&server, |now| now["state"] != "learning");
        if is_of_the_loop(&now) {
            break;
        }
    }
    assert!(is_of_the_loop(&now), "{now:#}");
    is_true(&now, &done, CACHE);
    go_round(8 * u64::from(CACHE), &mut done).await;
    let now = settled(&server, |now| is_of_the_loop(now) && most(now, CACHE) > 0.3);
    is_true(&now, &done, CACHE);
    assert!(said(&now).contains(" instead of lru would add"), "{}", said(&now));
    assert_eq!(server.stop(), 0);
}

/// Compares the figures of today's size with full simulations of all reads that were done.
fn is_true(now: &Value, done: &[u64], blocks: u32) {
    // The figures are of so many reads, which end with an epoch: within the last turnover.
    let length = now["sample"]["reads"].as_u64().unwrap() as usize;
    let (mut checked, mut off) = (0, Vec::new());
    for cell in of_size(now, blocks) {
        let number = |key: &str| cell[key].as_f64().unwrap();
        let policy = cell["policy"].as_str().unwrap();
        if !["lru", "arc", "mq", "lirs", "2q", "w-tinylfu", "s3-fifo"].contains(&policy) {
            // It may have had its turn only since.
            continue;
        }
        let hits = full_simulation(policy, blocks, done);
        let ends = done.len() - blocks as usize..=done.len();
        let ratios = ends.map(|end| (hits[end] - hits[end - length]) as f64 / length as f64);
        let (least, most) = ratios.fold((1.0, 0.0), |(least, most): (f64, f64), ratio| {
            (least.min(ratio), most.max(ratio))
        });
        let (ratio, error) = (number("read_hit_ratio"), number("error") + 0.05);
        if ratio + error < least || ratio - error > most {
            off.push(format!("{policy}: {ratio} +- {error}, in truth {least} to {most}"));
        }
        checked += 1;
    }
    // One interval in ten may miss the truth, and all are of the same sample.
    assert!(checked > 4 && off.len() < 3, "{off:?}; {now:#}");
}

/// The number of hits before each of these reads, and in the end.
fn full_simulation(policy: &str, blocks: u32, reads: &[u64]) -> Vec<u64> {
    let spec = Spec::parse(policy).unwrap();
    let mut level = Level::new(&spec, blocks, &Placement::Access, WriteMode::Allocate, 1).unwrap();
    let mut hits = vec![0];
    for &block in reads {
        hits.push(hits[hits.len() - 1] + u64::from(level.reference(block, false, || false).hit));
    }
    hits
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_out_says_the_same() {
    let place = Place::new();
    let server = serve(&place, "");
    let client = connect(&server).await;
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    let now = || settled(&server, |now| now["state"] == "ready")["sentences"][0].clone();
    let ways = [server.uri("demo"), server.http()];
    for uri in &ways {
        // The adviser's thread may go on at any time when others leave it a processor.
        let (first, shown) = loop {
            let before = now();
            let shown = place.undercroft(&format!("advise {uri}"));
            assert!(shown.status.success(), "{}", text(&shown.stderr));
            if now() == before {
                break (before.as_str().unwrap().to_owned(), text(&shown.stdout));
            }
        };
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
    let client = connect(&server).await;
    reads(&client, (0..12_000).map(|at| at % 1500)).await;
    wait_for(&server, |now| now["state"] == "ready");
    let changed = place.undercroft(&format!("set {} demo cache=2MiB policy=mq", server.uri("")));
    assert!(changed.status.success(), "{}", text(&changed.stderr));
    wait_for(&server, |now| now["state"] == "learning");
    let (began, mut ready) = (Instant::now(), Value::Null);
    while ready["state"] != "ready" {
        // The thread of low priority may have begun late.
        assert!(began.elapsed() < Duration::from_secs(60), "{ready:#}");
        reads(&client, 0..1500).await;
        ready = advice(&server);
    }
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
    let client = connect(&server).await;
    let (began, mut now) = (Instant::now(), Value::Null);
    // As many as it takes: of a sample that is smaller while others need the processors, too.
    while now["state"] != "ready" {
        assert!(began.elapsed() < Duration::from_secs(60), "{now:#}");
        reads(&client, 0..1500).await;
        now = advice(&server);
    }
    let said = said(&now);
    let expected = "Placement auto places blocks at their access now; without evictions that \
                    clients tell, nothing can be compared.";
    assert!(said.contains(expected), "{said}");
    assert_eq!(server.stop(), 0);
}

/// A client with 1,000 blocks goes round 1,900, and hands over what it evicts: only both caches
/// together hold them. The advice says what the placement `auto` found out by itself.
#[tokio::test(flavor = "multi_thread")]
async fn the_advice_says_what_placement_auto_brings() {
    let place = Place::new();
    let server = serve(&place, ",placement=auto,shards=1");
    let client = opt_in(&server, "demo", Some(7)).await;
    for block in 0..1000 {
        client.read(block).await;
    }
    let (began, mut at, mut now) = (Instant::now(), 1000, Value::Null);
    let is_by_eviction = |now: &Value| {
        let said = "Placement auto places blocks at their eviction now; at their access it would \
                    lose";
        now["state"] == "ready" && self::said(now).contains(said)
    };
    while !is_by_eviction(&now) {
        assert!(began.elapsed() < Duration::from_secs(60), "{now:#}");
        for _ in 0..500 {
            client.read_and_say(at % 1900, &[demote((at - 1000) % 1900, 0)]).await;
            at += 1;
        }
        now = advice(&server);
    }
    assert_eq!(now["today"]["placement"], "auto");
    let at = |placement: &str| {
        let mut cells = of_size(&now, 1024);
        let is_it = |cell: &&Value| cell["policy"] == "lru" && cell["placement"] == placement;
        cells.find(is_it).unwrap_or_else(|| panic!("{placement}: {now:#}")).clone()
    };
    assert_eq!(at("eviction,on-hit=move,staging=auto")["is_today"], true);
    assert!(at("access")["gain"].as_f64().unwrap() < -0.5, "{now:#}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn volumes_without_advice_say_why() {
    let place = Place::new();
    for (options, why) in [("cache=off", "no cache"), ("policy=lru-ca", "content-aware")] {
        let server = place.serve(&format!("--volume demo=mem:,size=64MiB,{options}"));
        let now = wait_for(&server, |now| now["state"] == "off");
        assert!(now["why"].as_str().unwrap().contains(why), "{options}: {now}");
        assert_eq!(server.stop(), 0);
    }
}
