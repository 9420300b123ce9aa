//! Content-aware caches in the real system: a server and a replay, at depth 1, must count what the
//! simulator counts, whichever side goes by what the other holds, and however that is known. And
//! what is told wrongly changes hits, never data.
//!
//! `UNDERCROFT_SEED=n` runs one seed again.

use std::collections::HashMap;
use std::path::PathBuf;

use bytes::Bytes;
use undercroft_client::{CachedClient, CachedOptions};
use undercroft_hints::{
    Abilities, BlockRun, EvictFlags, Follow, Following, Hint, HintQueue, Mailbox, Report,
};
use undercroft_level::Below;
use undercroft_nbd::ClientOptions;
use undercroft_policy::{Awareness, Context, Counts, Knows, Spec, WriteMode};
use undercroft_server::AwareStats;
use undercroft_server::VolumeConfig;
use undercroft_server::process::CacheShare;
use undercroft_sim::{AwareReport, Config, LevelConfig, simulate};
use undercroft_tools::{ProbeOptions, Replay, ReplayReport, probe, replay};
use undercroft_trace::{DenseTrace, Meta, Op, OpenOptions, Reader, Record, Unit, open};

use crate::serving::Served;
use crate::support::{BLOCK, Random};
use crate::traces::{load, play, zipf};

/// Records in memory.
struct Memory(Meta, std::vec::IntoIter<Record>, Vec<String>);

impl Reader for Memory {
    fn meta(&self) -> &Meta {
        &self.0
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), undercroft_trace::Error> {
        records.extend(self.1.by_ref().take(1000));
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.2
    }
}

/// A trace whose blocks are numbered by their first references: a summary hashes the numbers, so
/// that the simulator and the server err about the same blocks.
fn renumbered(references: impl Iterator<Item = (u64, bool)>) -> DenseTrace {
    let mut numbers = HashMap::new();
    let records = references.map(|(block, is_write)| {
        let next = numbers.len() as u64;
        let address = *numbers.entry(block).or_insert(next);
        let op = if is_write { Op::Write } else { Op::Read };
        Record { time_ns: 0, op, space: 0, address, length: 1, buffer: None, client: 0 }
    });
    let meta = Meta {
        format: "memory",
        unit: Unit::Blocks,
        block_bytes: None,
        has_ops: true,
        has_time: false,
        has_buffers: false,
        has_evictions: false,
    };
    let records = records.collect::<Vec<_>>().into_iter();
    load(Box::new(Memory(meta, records, vec![String::new()])))
}

fn references(trace: &DenseTrace, most: usize) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    let mut chunks = trace.forward();
    while let Some((_, chunk)) = chunks.next().expect("a readable trace") {
        all.extend(chunk.iter().map(|r| (r.block().into(), r.is_write())));
        if all.len() > most {
            all.truncate(most);
            break;
        }
    }
    all
}

fn generated() -> DenseTrace {
    let trace = zipf("blocks=900,requests=12000,writes=0.2,alpha=0.7");
    renumbered(references(&trace, usize::MAX).into_iter())
}

/// The beginning of a real trace, if it is there.
fn real(name: &str, most: usize) -> Option<DenseTrace> {
    let beside = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let folder = std::env::var_os("UNDERCROFT_TRACES").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    if !path.exists() {
        println!("skipped: no {}", path.display());
        return None;
    }
    let trace = load(open(&path, &OpenOptions::default()).expect("a trace"));
    Some(renumbered(references(&trace, most).into_iter()))
}

/// A server with a volume `v`.
async fn serve(policy: &str, blocks: u32, client: Option<u32>, store: &str) -> Served {
    let volume = VolumeConfig {
        name: "v".to_owned(),
        store: store.parse().expect("a store"),
        size: Some(4 << 30),
        cache: CacheShare::Bytes(u64::from(blocks) * BLOCK),
        policy: policy.parse().expect("a policy"),
        client_cache: client.map(|blocks| u64::from(blocks) * BLOCK),
        ..VolumeConfig::default()
    };
    Served::start(vec![volume]).await
}

/// What the volume counted; its invariants hold.
fn server_counts(served: &Served) -> ([u64; 5], AwareStats) {
    let volume = served.volume("v");
    volume.validate().expect("the invariants");
    let stats = volume.stats();
    let (hits, writes) = (stats.read_hits, stats.write_hits);
    let counted = [stats.reads, hits, stats.writes, writes, stats.evictions];
    (counted, stats.aware.unwrap_or_default())
}

fn counted(counts: &Counts) -> [u64; 5] {
    let Counts { reads, read_hits, writes, write_hits, evictions, .. } = *counts;
    [reads, read_hits, writes, write_hits, evictions]
}

fn spec(text: &str) -> Spec {
    text.parse().expect(text)
}

/// A pair of levels, as simulated and as they run.
struct Case {
    upper: (&'static str, u32),
    lower: (&'static str, u32),
    report: Report,
    store: &'static str,
}

/// What a replay at depth 1 counts, after comparing it with the simulator.
async fn equal(trace: &DenseTrace, case: &Case) -> (ReplayReport, AwareStats) {
    let Case { upper: (upper, c1), lower: (lower, c2), report, store } = *case;
    let text = format!("{c1}:{upper} above {c2}:{lower}, {report}");
    let level = |policy, capacity| LevelConfig { capacity, policy: spec(policy) };
    let config = Config {
        levels: vec![level(upper, c1), level(lower, c2)],
        write_mode: WriteMode::Allocate,
        ..Config::default()
    };
    let promised = simulate(trace, &config, |_| ()).expect("a simulation");
    let emulates =
        |policy| Awareness::of(&spec(policy)).is_some_and(|a| a.knows == Knows::Emulation);
    let served = serve(lower, c2, emulates(lower).then_some(c1), store).await;
    let awareness = Awareness::of(&spec(upper));
    let below = match awareness.map(|awareness| awareness.knows) {
        None => Below::Nothing,
        Some(Knows::Exact) => Below::Told,
        Some(Knows::Bloom) => Below::Digests,
        Some(Knows::Emulation) => Below::Emulated(spec(lower), c2),
    };
    let how = Replay {
        l1: Some(spec(upper).build(&Context::new(c1)).expect("a policy")),
        single: true,
        verify: true,
        report,
        below,
        awareness: awareness.unwrap_or_default(),
        ..Replay::default()
    };
    let played =
        replay(trace, BLOCK as u32, &served.uri("v"), how, |_| ()).await.expect("a replay");
    assert_eq!(played.mismatches, 0, "{text}: {:?}", played.mismatched);
    let (server, aware) = server_counts(&served);
    let l1 = played.l1.as_ref().expect("a first level");
    let ours = [l1.reads, l1.read_hits, l1.writes, l1.write_hits, l1.evictions];
    assert_eq!(ours, counted(&promised.levels[0]), "{text}: the first level");
    assert_eq!(server, counted(&promised.levels[1]), "{text}: the server");
    let report = |name: &str| promised.aware.iter().find(|report| report.level == name);
    if let Some(AwareReport { held_evictions, summaries, .. }) = report("l1") {
        let known = played.known.as_ref().expect("it knows");
        assert_eq!(known.held_evictions, *held_evictions, "{text}");
        if below_is_bloom(upper) {
            assert_eq!(known.summaries, *summaries, "{text}: summaries");
        }
        assert!(*held_evictions > 0, "{text}: nothing was believed");
    }
    if let Some(AwareReport { held_evictions, summaries, .. }) = report("l2") {
        assert_eq!(aware.held_evictions, *held_evictions, "{text}");
        if below_is_bloom(lower) {
            assert_eq!(aware.summaries, *summaries, "{text}: summaries");
        }
        assert!(*held_evictions > 0, "{text}: nothing was believed");
    }
    assert_eq!((aware.hint_messages_refused, aware.summaries_unusable), (0, 0), "{text}");
    served.stop().await;
    (played, aware)
}

fn below_is_bloom(policy: &str) -> bool {
    Awareness::of(&spec(policy)).is_some_and(|awareness| awareness.knows == Knows::Bloom)
}

const SLOW: &str = "delay(300us):mem:";

/// A client that goes by what the server holds; a server that goes by what its client holds; both.
const CASES: [Case; 12] = [
    Case { upper: ("lru-ca", 100), lower: ("lru", 100), report: Report::Nothing, store: "mem:" },
    Case { upper: ("clock-ca", 100), lower: ("mq", 70), report: Report::Nothing, store: "mem:" },
    Case { upper: ("2q,ca", 60), lower: ("arc", 100), report: Report::Nothing, store: "mem:" },
    Case {
        upper: ("lru-ca,knows=bloom", 100),
        lower: ("lru", 120),
        report: Report::Nothing,
        store: "mem:",
    },
    Case {
        upper: ("arc,ca,knows=bloom,filter-bits=3,hashes=2,publish=0.2", 100),
        lower: ("clock", 100),
        report: Report::Nothing,
        store: "mem:",
    },
    Case {
        upper: ("lru-ca,knows=emulation", 100),
        lower: ("lru", 100),
        report: Report::Nothing,
        store: SLOW,
    },
    Case { upper: ("lru", 100), lower: ("lru-ca", 100), report: Report::Evictions, store: "mem:" },
    Case { upper: ("mq", 60), lower: ("mq,ca", 100), report: Report::Evictions, store: "mem:" },
    Case {
        upper: ("lru", 100),
        lower: ("lru-ca,knows=bloom", 120),
        report: Report::Digest,
        store: "mem:",
    },
    Case {
        upper: ("lru", 100),
        lower: ("lru-ca,knows=emulation", 120),
        report: Report::Nothing,
        store: "mem:",
    },
    Case {
        upper: ("lru-ca", 100),
        lower: ("lru-ca", 100),
        report: Report::Evictions,
        store: "mem:",
    },
    Case {
        upper: ("lru-ca,knows=bloom", 100),
        lower: ("lru-ca,knows=bloom", 100),
        report: Report::Digest,
        store: "mem:",
    },
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_and_a_server_count_what_the_simulator_does() {
    let trace = generated();
    for case in &CASES {
        let (played, aware) = equal(&trace, case).await;
        let known = played.known.as_ref();
        println!("{} above {}: {known:?} {aware:?}", case.upper.0, case.lower.0);
    }
}

/// The beginnings of OLTP and of a recorded trace of a database's own cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_they_do_on_real_traces() {
    for name in ["arc/OLTP.lis.zst", "recorded/postgres-tpcc10w-L1.csv.zst"] {
        let Some(trace) = real(name, 25_000) else { continue };
        for (upper, lower, report) in [
            ("lru-ca", "lru", Report::Nothing),
            ("lru-ca,knows=bloom", "lru", Report::Nothing),
            ("lru", "lru-ca", Report::Evictions),
            ("lru", "lru-ca,knows=bloom", Report::Digest),
            ("lru", "lru-ca,knows=emulation", Report::Nothing),
            ("lru-ca", "lru-ca", Report::Evictions),
        ] {
            let (upper, lower) = ((upper, 1000), (lower, 1000));
            equal(&trace, &Case { upper, lower, report, store: "mem:" }).await;
        }
    }
}

/// The caching client, one operation after another, counts the same, and has the right data.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_caching_client_counts_what_the_simulator_does() {
    let trace = generated();
    for (upper, report) in [
        ("lru-ca", Report::Nothing),
        ("lru-ca", Report::Evictions),
        ("lru-ca,knows=bloom", Report::Nothing),
        ("lru", Report::Digest),
    ] {
        let lower = match report {
            Report::Nothing => "lru",
            Report::Digest => "lru-ca,knows=bloom",
            _ => "lru-ca",
        };
        let level = |policy| LevelConfig { capacity: 100, policy: spec(policy) };
        let config = Config {
            levels: vec![level(upper), level(lower)],
            write_mode: WriteMode::Allocate,
            ..Config::default()
        };
        let promised = simulate(&trace, &config, |_| ()).expect("a simulation");
        let served = serve(lower, 100, None, "mem:").await;
        let options = CachedOptions { report, batch: 1, ..CachedOptions::new(100, spec(upper)) };
        let client = CachedClient::connect(&served.uri("v"), &options).await.expect("a server");
        play(&client, &trace).await;
        let text = format!("{upper} above {lower}, {report}");
        let stats = client.stats();
        let ours = [stats.reads, stats.read_hits, stats.writes, stats.write_hits, stats.evictions];
        assert_eq!(ours, counted(&promised.levels[0]), "{text}");
        assert_eq!(server_counts(&served).0, counted(&promised.levels[1]), "{text}");
        assert_eq!(stats.held_evictions > 0, upper != "lru", "{text}");
        client.close().await;
        served.stop().await;
    }
}

/// Many at once, hints and questions in batches: the data stays right, and the invariants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_reads_what_it_wrote() {
    const BLOCKS: u64 = 300;
    const TASKS: u64 = 12;
    for (upper, lower, report) in [
        ("lru-ca", "lru-ca", Report::Evictions),
        ("lru-ca,knows=bloom", "lru-ca,knows=bloom", Report::Digest),
        ("lru-ca,knows=emulation", "mq,ca", Report::Evictions),
        ("lru-ca", "clock-ca,knows=emulation", Report::Nothing),
    ] {
        let client = lower.contains("emulation").then_some(60);
        let served = serve(lower, 90, client, "mem:").await;
        let options = CachedOptions { report, ..CachedOptions::new(60, spec(upper)) };
        let client = CachedClient::connect(&served.uri("v"), &options).await.expect("a server");
        let seed = Random::seeded().next_u64();
        let tasks = (0..TASKS).map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut random = Random::new(seed.wrapping_add(task));
                let mut model = vec![0_u8; (BLOCKS * BLOCK) as usize];
                for step in 0..700_u64 {
                    // Of any alignment, within blocks of its own.
                    let block = random.below(BLOCKS / TASKS) * TASKS + task;
                    let from = random.below(BLOCK);
                    let length = 1 + random.below(BLOCK - from);
                    let at = (block * BLOCK + from) as usize;
                    let place = at..at + length as usize;
                    match random.below(8) {
                        0..=2 => {
                            let data = Bytes::from(vec![step as u8; length as usize]);
                            client.write(at as u64, data, false).await.expect("a write");
                            model[place].fill(step as u8);
                        }
                        3 => {
                            let zero = client.write_zeroes(at as u64, length, false);
                            zero.await.expect("zeroes");
                            model[place].fill(0);
                        }
                        _ => {
                            let data = client.read(at as u64, length as usize).await;
                            assert!(data.expect("a read")[..] == model[place], "block {block}");
                        }
                    }
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("right data");
        }
        server_counts(&served);
        client.close().await;
        served.stop().await;
    }
}

/// Whatever is said of blocks, true or not, by clients of all kinds at once: data and invariants
/// stay, and what is refused is counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lies_change_hits_and_no_data() {
    let mut random = Random::seeded();
    for policy in ["lru-ca", "clock-ca,knows=bloom", "mq,ca,knows=emulation"] {
        let served = serve(policy, 50, None, "mem:").await;
        let honest = CachedOptions { batch: 1, ..CachedOptions::new(40, spec("lru-ca")) };
        let needs = Abilities { evict: true, hold: true, follow: true, ..Abilities::default() };
        let needs = Abilities { digest: policy.contains("bloom"), ..needs };
        let liar =
            Mailbox::asking_for(&served.uri("v"), &ClientOptions::default(), needs, 7.into()).await;
        let mut liar = liar.expect("a mailbox");
        let client = CachedClient::connect(&served.uri("v"), &honest).await.expect("a server");
        let mut model = [0_u8; 200];
        let mut queue = HintQueue::new(1);
        for step in 0..3000_u32 {
            let runs = vec![BlockRun::new(random.below(250), 1 + random.below(9) as u32).unwrap()];
            let bits = 8 << random.below(20);
            let length = (bits as usize / 8).min(random.below(70_000) as usize + 1);
            let hint = match random.below(6) {
                0 => Hint::Evict { age_us: 0, sequence: step, flags: EvictFlags::default(), runs },
                1 => Hint::Hold(runs),
                2 => Hint::Follow(Follow {
                    what: [Following::Nothing, Following::Blocks, Following::Digest]
                        [random.below(3) as usize],
                    filter_bits: random.next_u64() as u8,
                    hashes: random.next_u64() as u8,
                    publish_ppm: random.next_u64() as u32,
                    capacity_blocks: random.next_u64(),
                }),
                3 if length == bits as usize / 8 && length <= 64 << 10 => Hint::Digest {
                    bits,
                    hashes: 1 + random.below(255) as u8,
                    seed: random.next_u64() as u8,
                    part: 0,
                    filter: Bytes::from(vec![random.next_u64() as u8; length]),
                },
                _ => Hint::Changes {
                    bits,
                    hashes: 1 + random.below(20) as u8,
                    seed: random.next_u64() as u8,
                    sequence: random.below(4) as u32,
                    positions: (0..random.below(9)).map(|_| random.next_u64() as u8).collect(),
                },
            };
            if let Some(answer) = liar.send(&mut queue, std::time::Instant::now(), vec![hint], true)
            {
                answer.await.expect("a message is understood, true or not");
            }
            if step % 7 == 0 {
                liar.ask(random.below(1 << 17) as usize).await.expect("news");
            }
            let block = random.below(200);
            let offset = block * BLOCK;
            if random.below(3) == 0 {
                let data = Bytes::from(vec![step as u8; BLOCK as usize]);
                client.write(offset, data, false).await.expect("a write");
                model[block as usize] = step as u8;
            } else {
                let data = client.read(offset, BLOCK as usize).await.expect("a read");
                assert!(data.iter().all(|&byte| byte == model[block as usize]), "block {block}");
            }
        }
        let (_, aware) = server_counts(&served);
        assert!(aware.news > 0 && aware.followers > 0, "{policy}: {aware:?}");
        client.close().await;
        served.stop().await;
    }
}

/// A server of a known size and policy, found out by asking and from the replies of a replay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_found_out() {
    let slow = "delay(3ms):mem:";
    for (policy, blocks) in [("lru", 100), ("fifo", 150)] {
        let served = serve(policy, blocks, None, slow).await;
        let options = ClientOptions::default();
        let (blocks_max, bytes_max) = (1000, u64::MAX);
        let how = ProbeOptions { blocks_max, bytes_max, block_bytes: None, seed: 9, options };
        let found = probe(&served.uri("v"), &how).await.expect("a server");
        println!("{policy} {blocks}: {found:?}");
        let error = found.blocks.expect("a cache") as f64 / f64::from(blocks) - 1.0;
        assert!(error.abs() <= 0.05 && !found.is_least, "{policy} {blocks}: {found:?}");
        assert_eq!(found.is_by_recency, Some(policy == "lru"), "{found:?}");
        served.stop().await;
    }
    for (blocks_max, bytes_max) in [(128, u64::MAX), (u64::MAX, 128 * 4096)] {
        let served = serve("lru", 2000, None, slow).await;
        let options = ClientOptions::default();
        let how = ProbeOptions { blocks_max, bytes_max, block_bytes: None, seed: 9, options };
        let found = probe(&served.uri("v"), &how).await.expect("a server");
        assert!(found.is_least && found.blocks == Some(128), "{found:?}");
        served.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_is_found_out_from_the_replies_of_a_replay() {
    let trace = generated();
    for (policy, blocks) in [("lru", 300), ("mq", 200)] {
        let served = serve(policy, blocks, None, SLOW).await;
        let how = Replay {
            l1: Some(spec("lru").build(&Context::new(60)).expect("a policy")),
            single: true,
            verify: true,
            probe: true,
            ..Replay::default()
        };
        let played =
            replay(&trace, BLOCK as u32, &served.uri("v"), how, |_| ()).await.expect("a replay");
        let probed = played.probed.expect("an answer");
        println!("{policy} {blocks}: {probed:?}");
        let error = f64::from(probed.blocks) / f64::from(blocks) - 1.0;
        assert!(error.abs() < 0.1, "{policy} {blocks}: {probed:?}");
        served.stop().await;
    }
}
