//! Clients that tell a real server what leaves their caches: the server must count what the
//! simulator's second level counts, under eviction-based and global placement, whether a replay
//! tells or the caching client.
//!
//! Not here: what a client says and when (`cached.rs`, `telling.rs`), and how the server takes what
//! is said in any other order.

use bytes::Bytes;
use undercroft_client::{CachedClient, CachedOptions};
use undercroft_hints::Report;
use undercroft_policy::{Context, Counts, Spec, WriteMode};
use undercroft_server::VolumeConfig;
use undercroft_server::process::CacheShare;
use undercroft_sim::{Config, LevelConfig, simulate};
use undercroft_tools::{Replay, replay};
use undercroft_trace::DenseTrace;

use crate::serving::Served;
use crate::support::{BLOCK, Random};
use crate::traces::{play, zipf};

const L1: u32 = 60;
const L2: u32 = 90;

fn trace() -> DenseTrace {
    zipf("blocks=500,requests=8000,writes=0.25,alpha=0.7")
}

fn spec(text: &str) -> Spec {
    text.parse().expect("a policy")
}

/// A server with one volume for each second-level policy.
async fn serve(policies: &[&str], placement: &str) -> Served {
    let volumes = policies.iter().map(|policy| VolumeConfig {
        name: (*policy).to_owned(),
        size: Some(64 << 20),
        cache: CacheShare::Bytes(u64::from(L2) * BLOCK),
        policy: policy.parse().expect("a policy"),
        block_bytes: BLOCK as u32,
        placement: placement.parse().expect("a placement"),
        reload_at_once: true,
        ..VolumeConfig::default()
    });
    Served::start(volumes.collect()).await
}

/// What a volume counted: references, evictions, and what came to it.
fn counted(served: &Served, policy: &str) -> [u64; 8] {
    let stats = served.volume(policy).stats();
    let coop = stats.cooperation.expect("it cooperates");
    assert_eq!(coop.hint_messages_refused, 0, "{policy}");
    let [a, b, c] = [coop.known_evictions, coop.reloads, coop.demotions_in];
    let (hits, writes) = (stats.read_hits, stats.write_hits);
    [stats.reads, hits, stats.writes, writes, stats.evictions, a, b, c]
}

/// What the simulator promises.
fn promised(trace: &DenseTrace, l1: &str, l2: &str, placement: &str) -> [u64; 8] {
    let level = |capacity, policy| LevelConfig { capacity, policy: spec(policy) };
    let config = Config {
        levels: vec![level(L1, l1), level(L2, l2)],
        write_mode: WriteMode::Allocate,
        rule: placement.parse().expect("a placement"),
        ..Config::default()
    };
    let outcome = simulate(trace, &config, |_| ()).expect("a simulation");
    let Counts { reads, read_hits, writes, write_hits, evictions, .. } = outcome.levels[1];
    let came = outcome.cooperation.expect("they cooperate").levels[1];
    let (known, reloads, demotions) = (came.known_evictions, came.reloads, came.demotions_in);
    [reads, read_hits, writes, write_hits, evictions, known, reloads, demotions]
}

const POLICIES: [&str; 6] = ["lru", "fbr", "2q", "mq", "arc", "lirs"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_makes_the_server_count_what_the_simulator_does() {
    let trace = trace();
    for (placement, report) in [
        ("eviction", Report::Evictions),
        ("eviction,on-hit=keep,threshold=2", Report::Evictions),
        ("gl", Report::Demotions),
        ("gl,order=demote-first", Report::Demotions),
        ("auto", Report::Demotions),
    ] {
        for l1 in ["lru", "clock"] {
            check(&trace, l1, &POLICIES, placement, report).await;
        }
    }
}

/// Both caches can hold a block here, so knowing what the client holds is worth something.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_content_aware_server_places_what_clients_evict() {
    let trace = trace();
    for placement in ["eviction,on-hit=keep", "eviction,on-hit=keep,order=demote-first"] {
        let policies = ["lru-ca", "clock-ca", "2q,ca", "arc,ca", "mq,ca"];
        check(&trace, "lru", &policies, placement, Report::Evictions).await;
    }
    let aware = promised(&trace, "lru", "lru-ca", "eviction,on-hit=keep");
    let plain = promised(&trace, "lru", "lru", "eviction,on-hit=keep");
    assert!(aware[1] > plain[1], "{aware:?} {plain:?}");
}

/// Replays a trace through a first level to a server with each of the policies.
async fn check(trace: &DenseTrace, l1: &str, policies: &[&str], placement: &str, report: Report) {
    let served = serve(policies, placement).await;
    for l2 in policies {
        let how = Replay {
            l1: Some(spec(l1).build(&Context::new(L1)).expect("a policy")),
            verify: true,
            report,
            ..Replay::default()
        };
        let played = replay(trace, BLOCK as u32, &served.uri(l2), how, |_| ()).await;
        let played = played.expect("a replay");
        let text = format!("{l1} above {l2}, {placement}");
        assert_eq!(played.mismatches, 0, "{text}: {:?}", played.mismatched);
        let expected = promised(trace, l1, l2, placement);
        assert_eq!(counted(&served, l2), expected, "{text}");
        assert!(expected[1] > 0, "{text}: nothing hit");
    }
    served.stop().await;
}

/// The blocks of the replay go through the caching client, which has data of its own to keep right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_caching_client_makes_the_server_count_what_the_simulator_does() {
    let trace = trace();
    for (placement, report) in
        [("eviction", Report::Evictions), ("gl", Report::Demotions), ("auto", Report::Demotions)]
    {
        let served = serve(&POLICIES, placement).await;
        for l2 in POLICIES {
            let options = CachedOptions { report, batch: 1, ..CachedOptions::new(L1, spec("lru")) };
            let client = CachedClient::connect(&served.uri(l2), &options).await.expect("a server");
            assert_eq!((client.size(), client.block_bytes()), (64 << 20, BLOCK as u32));
            play(&client, &trace).await;
            let text = format!("{l2}, {placement}");
            assert_eq!(counted(&served, l2), promised(&trace, "lru", l2, placement), "{text}");
            client.close().await;
        }
        served.stop().await;
    }
}

/// Many operations at once, hints in batches, every block handed over: the data stays right.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_reads_what_it_wrote() {
    const BLOCKS: u64 = 400;
    const TASKS: u64 = 16;
    let served = serve(&["lru"], "gl").await;
    let report = Report::Demotions;
    let options = CachedOptions { report, batch: 16, ..CachedOptions::new(L1, spec("lru")) };
    let client = CachedClient::connect(&served.uri("lru"), &options).await.expect("a server");
    let seed = Random::seeded().next_u64();
    let tasks = (0..TASKS).map(|task| {
        let client = client.clone();
        tokio::spawn(async move {
            // Each task has blocks of its own, so that it knows what is in them.
            let mut random = Random::new(seed.wrapping_add(task));
            let mut model = vec![0_u8; BLOCKS as usize];
            for step in 0..1500_u64 {
                let block = random.below(BLOCKS / TASKS) * TASKS + task;
                if random.below(3) == 0 {
                    let data = Bytes::from(vec![step as u8; BLOCK as usize]);
                    client.write(block * BLOCK, data, false).await.expect("a write");
                    model[block as usize] = step as u8;
                } else {
                    let data = client.read(block * BLOCK, BLOCK as usize).await.expect("a read");
                    let expected = model[block as usize];
                    assert!(data.iter().all(|&byte| byte == expected), "block {block}");
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.expect("right data");
    }
    let stats = client.stats();
    assert!(stats.demotions > 0 && stats.messages < stats.evictions, "{stats:?}");
    assert_eq!(stats.messages_refused, 0);
    client.close().await;
    let [.., taken] = counted(&served, "lru");
    println!("{} blocks handed over, {taken} taken", stats.demotions);
    assert!(taken > 0);
    served.stop().await;
}
