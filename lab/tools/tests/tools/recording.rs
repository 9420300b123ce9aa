//! What a server records is what it was asked: the simulator counts on the recording what the
//! server counted, and a sample holds the blocks that it should.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use undercroft_hints::Report;
use undercroft_nbd::{Client, ClientOptions};
use undercroft_policy::{Context, Spec, WriteMode};
use undercroft_server::process::CacheShare;
use undercroft_server::{Stats, VolumeConfig};
use undercroft_sim::{Config, DerivedEvictions, Evictions, LevelConfig, simulate};
use undercroft_tools::{Load, Replay, replay};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, open};

use crate::serving::Served;
use crate::support::BLOCK;
use crate::traces::{load, zipf};

const CAPACITY: u32 = 80;

/// The references of a trace: the block by its place on the volume, and whether it is written.
fn references(trace: &DenseTrace) -> Vec<(u64, bool)> {
    let mut all = Vec::new();
    let block = |number| trace.names().block(number).expect("a known block").1;
    let keep = |_, refs: &[undercroft_trace::Ref]| {
        all.extend(refs.iter().map(|r| (block(r.block()), r.is_write())));
    };
    trace.for_each_chunk(keep).expect("a readable trace");
    all
}

fn volume(folder: &Path, one_in: u32) -> VolumeConfig {
    VolumeConfig {
        name: "v".into(),
        size: Some(64 << 20),
        cache: CacheShare::Bytes(u64::from(CAPACITY) * BLOCK),
        block_bytes: BLOCK as u32,
        policy: policy("mq"),
        record: Some(folder.join("traces")),
        record_sample: one_in.try_into().expect("not 0"),
        ..VolumeConfig::default()
    }
}

fn policy(name: &str) -> Spec {
    name.parse().expect("a policy")
}

/// Plays a generated trace to a server that records it: what the server counted.
async fn record(folder: &Path, one_in: u32) -> Stats {
    let how = Replay { single: true, verify: true, ..Replay::default() };
    play(volume(folder, one_in), how).await
}

async fn play(volume: VolumeConfig, how: Replay) -> Stats {
    let served = Served::start(vec![volume]).await;
    let trace = zipf("blocks=500,requests=9000,writes=0.25,alpha=0.7");
    let played = replay(&trace, BLOCK as u32, &served.uri("v"), how, |_| ()).await;
    assert_eq!(played.expect("a replay").mismatches, 0);
    let volume = served.volume("v");
    served.stop().await;
    volume.stats()
}

fn recorded(folder: &Path, name: &str) -> DenseTrace {
    let path: PathBuf = folder.join("traces").join(name);
    load(open(&path, &OpenOptions::default()).expect("a recording"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulator_counts_on_a_recording_what_the_server_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let stats = record(folder.path(), 1).await;
    let trace = recorded(folder.path(), "v/000001.uct.zst");
    let levels = vec![LevelConfig { capacity: CAPACITY, policy: policy("mq") }];
    let config = Config { levels, write_mode: WriteMode::Allocate, ..Config::default() };
    let counted = simulate(&trace, &config, |_| ()).expect("a simulation").levels[0];
    assert_eq!(
        [counted.reads, counted.read_hits, counted.writes, counted.write_hits, counted.evictions],
        [stats.reads, stats.read_hits, stats.writes, stats.write_hits, stats.evictions]
    );
    assert!(stats.read_hits > 0);
    assert_eq!((stats.recorded, stats.unrecorded), (stats.reads + stats.writes, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sample_has_all_references_to_its_blocks() {
    let (whole, sample) = (tempfile::tempdir(), tempfile::tempdir());
    let (whole, sample) = (whole.expect("a folder"), sample.expect("a folder"));
    record(whole.path(), 1).await;
    record(sample.path(), 4).await;
    let mut all = references(&recorded(whole.path(), "v/000001.uct.zst"));
    let some = references(&recorded(sample.path(), "v/000001.1in4.uct.zst"));
    all.retain(|(block, _)| undercroft_random::hash(*block) % 4 == 0);
    assert_eq!(some, all);
    assert!(some.len() > 500, "{} references", some.len());
}

/// With evictions that are told before the reads that implied them, and one client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulator_takes_the_recorded_evictions_that_the_server_took() {
    for placement in ["eviction", "eviction,on-hit=keep,threshold=2"] {
        let folder = tempfile::tempdir().expect("a folder");
        let config = VolumeConfig {
            placement: placement.parse().expect("a placement"),
            reload_at_once: true,
            ..volume(folder.path(), 1)
        };
        let how = Replay {
            l1: Some(policy("lru").build(&Context::new(60)).expect("a policy")),
            report: Report::Evictions,
            ..Replay::default()
        };
        let stats = play(config, how).await;
        let path = folder.path().join("traces/v/000001.uct.zst");
        let reader = open(&path, &OpenOptions::default()).expect("a recording");
        let options = BlockOptions {
            block_bytes: BLOCK as u32,
            origins: true,
            evictions: true,
            ..BlockOptions::default()
        };
        let stream = BlockStream::new(reader, &options).expect("a trace");
        let (trace, told) = DerivedEvictions::load_told(stream, |_| ()).expect("evictions");
        let config = Config {
            levels: vec![LevelConfig { capacity: CAPACITY, policy: policy("mq") }],
            write_mode: WriteMode::Allocate,
            rule: placement.parse().expect("a placement"),
            evictions: Evictions::Derived(told.into()),
            ..Config::default()
        };
        let outcome = simulate(&trace, &config, |_| ()).expect("a result");
        let (level, taken) = (outcome.levels[0], outcome.cooperation.expect("it does").levels[0]);
        let coop = stats.cooperation.expect("it cooperates");
        assert_eq!(
            [level.reads, level.read_hits, level.writes, level.write_hits, level.evictions],
            [stats.reads, stats.read_hits, stats.writes, stats.write_hits, stats.evictions],
            "{placement}"
        );
        assert_eq!(
            [taken.known_evictions, taken.reloads],
            [coop.known_evictions, coop.reloads],
            "{placement}"
        );
        assert!(level.read_hits > 0 && taken.reloads > 0, "{placement}: {level:?} {taken:?}");
        let noted = stats.reads + stats.writes + coop.hints;
        assert_eq!((stats.recorded, stats.unrecorded), (noted, 0));
        // Who does not ask for evictions gets the requests alone.
        let plain = recorded(folder.path(), "v/000001.uct.zst");
        assert_eq!(
            (plain.len(), plain.left_out().total()),
            (stats.reads + stats.writes, coop.hints)
        );
    }
}

/// Nobody must wait for the end of the volume to see what was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_ends_after_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let config =
        VolumeConfig { record_every: Some(Duration::from_secs(1)), ..volume(folder.path(), 1) };
    let served = Served::start(vec![config]).await;
    let client = Client::connect(&served.uri("v"), &ClientOptions::default()).await;
    let client = client.expect("a server");
    let (_, read) = client.read(0, vec![Box::new(vec![0_u8; 4096])]).await;
    read.expect("a read");
    let (path, began) = (folder.path().join("traces/v/000001.uct.zst"), Instant::now());
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(20), "no file");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(recorded(folder.path(), "v/000001.uct.zst").len(), 1);
    assert_eq!(served.volume("v").stats().recorded, 1);
    served.stop().await;
}

/// The file of the recording is a pipe that nobody reads, which is a disk that never answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_never_answers_keeps_no_client_waiting() {
    // More than may wait for the disk.
    const REQUESTS: u64 = 400_000;
    let folder = tempfile::tempdir().expect("a folder");
    let volume = volume(folder.path(), 1);
    let own = volume.record.clone().expect("a folder").join("v");
    let close = Duration::from_secs(4);
    let served = Served::start_with(vec![volume], |config| config.limits.close = close).await;
    let pipe = own.join("000001.uct.zst");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo of the system");
    assert!(made.success());
    let (uri, volume, began) = (served.uri("v"), served.volume("v"), Instant::now());
    while volume.stats().reads < REQUESTS {
        let load = Load { duration: Duration::from_millis(500), depth: 64, ..Load::default() };
        let uri = uri.clone();
        let load = spawn_blocking(move || load.run(&uri, &ClientOptions::default())).await;
        assert_eq!(load.expect("a load").expect("a server").errors, 0);
        assert!(began.elapsed() < Duration::from_secs(60), "clients wait");
    }
    let stats = volume.stats();
    assert!(stats.unrecorded > 0 && stats.recorded > 0, "{stats:?}");
    // The end waits for a part of its time, and gives the recording up.
    let began = Instant::now();
    served.stop().await;
    assert!(began.elapsed() < close, "{:?}", began.elapsed());
    // The runtime of the test ends when the thread has.
    let drained = Command::new("cat").arg(&pipe).output().expect("cat of the system");
    assert!(drained.status.success());
}
