//! Schemes of movement over processes: a replay that is the first level, and servers that are the
//! others, or all of them, count what the simulator counts of each level; and nothing is lost or
//! old when one of them goes away, or the way between them is cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::oracle::{BLOCK, Oracle};
use super::stack::{SIZES, STORE, Trace, bad_link, number, use_half, volume};
use super::support::{PATIENCE, Place, Random, Server, read, seeded, text, write};

/// Schemes whose levels can be processes.
const SCHEMES: [&str; 4] = ["d-hfa", "p-hfa", "hint-k", "h-hfa"];

const NAMES: [&str; 6] = ["reads", "read_hits", "cold_reads", "writes", "write_hits", "evictions"];
const MOVED: [&str; 4] = ["demotions_in", "promotions_in", "exchanges_in", "promotions_out"];

fn counted(server: &Server) -> Vec<u64> {
    let stats = server.stats("v");
    let mut all = NAMES.map(|name| number(&stats, "", name)).to_vec();
    all.extend(MOVED.map(|name| number(&stats, "movement", name)));
    all
}

fn promised(report: &Value, level: usize) -> Vec<u64> {
    let node = &report["movement"]["nodes"][level];
    let mut all = NAMES.map(|name| number(&report["levels"][level], "", name)).to_vec();
    all.extend(MOVED.map(|name| number(node, "", name)));
    all
}

/// Waits until the servers have counted what was promised of the levels from `first` on: what no
/// request takes along comes a little later.
fn wait_for(servers: &[&Server], first: usize, report: &Value, what: &str) {
    let deadline = Instant::now() + PATIENCE / 4;
    for (level, server) in (first..).zip(servers) {
        let wanted = promised(report, level);
        while counted(server) != wanted {
            let found = counted(server);
            let (stats, late) = (server.stats("v"), Instant::now() > deadline);
            assert!(!late, "{what}, level {level}: {found:?}, not {wanted:?}: {stats}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let stats = server.stats("v");
        let never = ["demotions_refused", "demotions_unsent", "exchanges_refused"];
        let never = never.map(|name| number(&stats, "movement", name));
        assert_eq!(never, [0; 3], "{what}, level {level}: {stats}");
    }
}

fn simulate(trace: &Trace, sizes: &[u64], scheme: &str) -> Value {
    let level = |(i, size): (usize, &u64)| format!("--l{} {size}blk:lru", i + 1);
    let levels: Vec<_> = sizes.iter().enumerate().map(level).collect();
    trace.simulate(&levels.join(" "), scheme)
}

/// Servers one above the other, the lowest first started: from the top.
struct Stack {
    servers: Vec<Server>,
    _places: Vec<Place>,
}

impl Stack {
    fn new(sizes: &[u64], scheme: &str) -> Stack {
        let (mut servers, mut places) = (Vec::<Server>::new(), Vec::new());
        for &size in sizes.iter().rev() {
            let store = servers.last().map_or_else(|| STORE.to_owned(), |lower| lower.uri("v"));
            let place = Place::new();
            servers.push(place.serve(&volume(&store, size, &format!("placement={scheme}"))));
            places.push(place);
        }
        servers.reverse();
        Stack { servers, _places: places }
    }

    fn all(&self) -> Vec<&Server> {
        self.servers.iter().collect()
    }

    fn stop(self) {
        for server in self.servers {
            assert_eq!(server.stop(), 0);
        }
    }
}

/// A replay is the first level, servers are the others.
fn below_a_replay(trace: &Trace, sizes: &[u64], scheme: &str) {
    let what = format!("{scheme} over {sizes:?}, a replay first");
    let stack = Stack::new(&sizes[1..], scheme);
    let played =
        trace.play(&stack.servers[0], &format!("--l1 {}blk:lru --placement {scheme}", sizes[0]));
    let report = simulate(trace, sizes, scheme);
    wait_for(&stack.all(), 1, &report, &what);
    let of_replay = |name| number(&played["l1"], "", name);
    for name in ["reads", "read_hits", "writes", "write_hits", "evictions"] {
        assert_eq!(of_replay(name), number(&report["levels"][0], "", name), "{what}: {name}");
    }
    for name in ["promotions_in", "exchanges_in"] {
        let promised = number(&report["movement"]["nodes"][0], "", name);
        assert_eq!(number(&played["level"], "", name), promised, "{what}: {name}");
    }
    assert_eq!(
        (number(&played, "", "mismatches"), number(&played["level"], "", "refused")),
        (0, 0)
    );
    println!("{what}: {}", played["level"]);
    stack.stop();
}

/// All levels are servers, the client has none.
fn below_nobody(trace: &Trace, sizes: &[u64], scheme: &str) {
    let what = format!("{scheme} over {sizes:?}, servers alone");
    let stack = Stack::new(sizes, scheme);
    let played = trace.play(&stack.servers[0], "--single");
    assert_eq!(number(&played, "", "mismatches"), 0, "{what}");
    let report = simulate(trace, sizes, scheme);
    wait_for(&stack.all(), 0, &report, &what);
    if scheme.contains("fmin=0") {
        let up = number(&report["movement"]["nodes"][0], "", "exchanges_in");
        assert!(up > 0, "{what}: nothing comes up in exchange");
    }
    let last = sizes.len() - 1;
    assert!(number(&report["levels"][last], "", "read_hits") > 0, "{what}: nothing hits below");
    let top = stack.servers[0].stats("v");
    let lower = ["messages_refused", "lost", "unheard"].map(|name| number(&top, "lower", name));
    assert_eq!((lower, number(&top, "lower", "listening")), ([0; 3], 1), "{what}");
    let metrics = stack.servers[0].page("/metrics");
    assert!(metrics.contains("undercroft_lower_messages_total{volume=\"v\"}"), "{metrics}");
    stack.stop();
}

#[test]
fn two_levels_count_what_the_simulator_counts() {
    let trace = Trace::generated();
    let more = ["d-hfa,period=20,entries=40,fmin=0", "p-hfa,probability=fixed"];
    for scheme in SCHEMES.into_iter().chain(more) {
        below_a_replay(&trace, &SIZES[..2], scheme);
        below_nobody(&trace, &SIZES[..2], scheme);
    }
}

#[test]
fn three_levels_count_what_the_simulator_counts() {
    let trace = Trace::generated();
    for scheme in SCHEMES.into_iter().chain(["d-hfa,period=20,entries=40,fmin=0"]) {
        below_a_replay(&trace, &SIZES, scheme);
        below_nobody(&trace, &SIZES, scheme);
    }
}

#[test]
fn recorded_traces_count_what_the_simulator_counts() {
    let recorded = Trace::recorded();
    for scheme in ["d-hfa", "p-hfa", "hint-k"] {
        below_a_replay(&recorded, &[300, 500, 800], scheme);
        if let Some(trace) = Trace::oltp() {
            below_a_replay(&trace, &[500, 1000], scheme);
            below_nobody(&trace, &[300, 500, 800], scheme);
        }
    }
}

#[test]
fn what_does_not_go_together_is_refused() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below
        .serve("--volume v=mem:,size=1MiB,placement=d-hfa --volume a=mem:,size=1MiB --cache 2MiB");
    let refused = |volume: String, reason: &str| {
        let said = above.refused(2, &format!("--volume {volume}"));
        assert!(said.contains(reason), "{said}");
    };
    let (v, a) = (lower.uri("v"), lower.uri("a"));
    refused(format!("v={v},placement=hint-k"), "it runs placement=d-hfa, and not hint-k");
    refused(format!("v={v},placement=d-hfa,k=3"), "it runs placement=d-hfa, and not d-hfa,k=3");
    refused(format!("v={a},placement=d-hfa"), "no level of a scheme");
    refused(format!("v={v},placement=d-hfa,block=8KiB"), "of 4096 bytes, and not 8192");
    refused("v=mem:,size=1MiB,placement=demote".into(), "in simulations only");
    refused("v=mem:,size=1MiB,placement=d-hfa,policy=mq".into(), "the scheme itself decides");
    refused("v=mem:,size=1MiB,placement=d-hfa,write=back".into(), "writes go through");
    refused("v=mem:,size=1MiB,placement=d-hfa,shards=2".into(), "of the whole cache");
    refused(format!("v={v},placement=d-hfa,report=demotions"), "leave report= out");
    // A level may stand on any store, if it is said that nothing is below.
    let lowest = above.serve(&format!("--volume v={a},placement=d-hfa,report=nothing"));
    assert_eq!(lowest.stop(), 0);
    let trace = Trace::generated();
    let asked = |more: &str| {
        let path = trace.path().display();
        let said = above.undercroft(&format!("replay {path} --block 4KiB --to {more}"));
        assert!(!said.status.success(), "{more}");
        text(&said.stderr)
    };
    let said = asked(&format!("{v} --l1 9blk:mq --placement d-hfa"));
    assert!(said.contains("write the level with lru"), "{said}");
    assert_eq!(lower.stop(), 0);
}

/// The server below is killed and comes back: the data is right all the time, and blocks go down
/// again. While it runs no level, all comes from there as from a disk.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_below_that_comes_back_is_the_next_one_again() {
    for scheme in SCHEMES {
        let (above, below) = (Place::new(), Place::new());
        let placed = volume("file:v.img,size=1MiB", 64, &format!("placement={scheme}"));
        let lower = below.serve(&placed);
        let upper = volume(&lower.uri("v"), 16, &format!("placement={scheme}"));
        let upper = above.serve(&upper);
        let client = upper.connect("v").await;
        let told = |name: &str| number(&upper.stats("v"), "lower", name);
        let use_it = async |byte: u8| use_half(&client, 96, byte, scheme).await;
        let came = |server: &Server| number(&server.stats("v"), "movement", "messages");
        use_it(1).await;
        assert!(came(&lower) > 0, "{scheme}: {}", lower.stats("v"));
        lower.kill();
        let lower = below.serve(&placed);
        use_it(2).await;
        assert!(came(&lower) > 0 && told("listening") == 1, "{scheme}: {}", upper.stats("v"));
        lower.kill();
        // Now it is no level.
        let deaf = below.serve(&volume("file:v.img,size=1MiB", 32, "policy=lru"));
        use_it(3).await;
        assert!(told("unheard") > 0 && told("listening") == 0, "{scheme}: {}", upper.stats("v"));
        deaf.kill();
        let lower = below.serve(&placed);
        use_it(4).await;
        assert!(came(&lower) > 0 && told("listening") == 1, "{scheme}: {}", upper.stats("v"));
        assert_eq!((upper.stop(), lower.stop()), (0, 0));
        let image = below.read("v.img");
        assert!((0..96).step_by(2).all(|block| image[block * BLOCK] == 4), "{scheme}");
    }
}

/// Random reads and writes by several at a time through two levels, over a link that fails and
/// stalls: no read is older than what was answered, and in the end all of it is there.
async fn shadow(scheme: &str, random: &mut Random) {
    const VOLUME: usize = 96;
    let (above, below) = (Place::new(), Place::new());
    let placement = format!("placement={scheme}");
    let lower = below.serve(&volume("delay(0ms..1ms):file:v.img,size=384KiB", 24, &placement));
    let (link, is_over) = (above.path("link"), Arc::new(AtomicBool::new(false)));
    bad_link(below.path("socket"), &link, random.next_u64(), Arc::clone(&is_over));
    let store = format!("nbd+unix:///v?socket={}", link.display());
    let upper = above.serve(&volume(&store, 12, &placement));
    let client = upper.connect("v").await;
    let oracle = Arc::new(std::sync::Mutex::new(Oracle::new(VOLUME, true)));
    let tasks = (0..6).map(|task| {
        let (client, oracle) = (client.clone(), Arc::clone(&oracle));
        let (mut random, what) = (Random::new(random.next_u64()), scheme.to_owned());
        tokio::spawn(async move {
            for _ in 0..250 {
                let block = 6 * random.below(VOLUME as u64 / 6) as usize + task;
                let at = (block * BLOCK) as u64;
                if random.below(3) == 0 {
                    let (bytes, versions) = oracle.lock().unwrap().send(block, 1);
                    if write(&client, at, bytes).await.is_ok() {
                        oracle.lock().unwrap().answered(block, &versions, false);
                    }
                } else {
                    let floor = oracle.lock().unwrap().floor(block);
                    if let Ok(bytes) = read(&client, at, BLOCK).await {
                        let checked = oracle.lock().unwrap().check_read(block, floor, &bytes);
                        checked.unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                    }
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while client.flush().await.is_err() {
        assert!(Instant::now() < deadline, "{scheme}: cannot flush: {}", upper.log());
    }
    let stats = (upper.stats("v"), lower.stats("v"));
    println!("{scheme}: {} above, {} below", stats.0["lower"], stats.1["movement"]);
    for server in [&upper, &lower] {
        let client = server.connect("v").await;
        let content = read(&client, 0, VOLUME * BLOCK).await.unwrap();
        let found = Oracle::clone(&oracle.lock().unwrap()).check(&content);
        assert_eq!(found.wrong, "", "{scheme}");
    }
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
    let found = oracle.lock().unwrap().check(&below.read("v.img"));
    assert_eq!(found.wrong, "", "{scheme}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_link_between_two_levels_spoils_nothing() {
    let mut random = seeded("levels");
    for scheme in ["d-hfa,period=10,entries=40,fmin=0", "p-hfa", "hint-k", "h-hfa"] {
        shadow(scheme, &mut random).await;
    }
}
