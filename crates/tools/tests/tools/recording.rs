//! What a server records is what it was asked: the simulator counts on the recording what the
//! server counted, and a sample holds the blocks that it should.

use std::path::{Path, PathBuf};

use undercroft_cache::WriteMode;
use undercroft_nbd::{Endpoint, Uri};
use undercroft_server::serve::{Address, CacheShare, Running, ServerConfig};
use undercroft_server::{Stats, VolumeConfig};
use undercroft_sim::{Config, LevelConfig, simulate};
use undercroft_tools::{Replay, replay};
use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, GeneratorSpec, OpenOptions, Reader, open,
};

use crate::support::BLOCK;

const CAPACITY: u32 = 80;

fn load(reader: Box<dyn Reader>) -> DenseTrace {
    let options = BlockOptions { block_bytes: BLOCK as u32, ..BlockOptions::default() };
    let stream = BlockStream::new(reader, &options).expect("a trace");
    DenseTrace::load(stream, |_| ()).expect("a readable trace")
}

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

/// Plays a generated trace to a server that records it: what the server counted.
async fn record(folder: &Path, one_in: u32) -> Stats {
    let socket = folder.join("nbd.sock");
    let bytes = u64::from(CAPACITY) * BLOCK;
    let volume = VolumeConfig {
        name: "v".into(),
        size: Some(64 << 20),
        cache: CacheShare::Bytes(bytes),
        block_bytes: BLOCK as u32,
        record: Some(folder.join("traces")),
        record_sample: one_in.try_into().expect("not 0"),
        ..VolumeConfig::default()
    };
    let config = ServerConfig {
        listen: vec![Address::Unix(socket.clone())],
        volumes: vec![volume],
        cache_bytes: bytes,
        ..ServerConfig::default()
    };
    let running = Running::start(&config.validate().expect("a configuration")).await;
    let running = running.expect("a server");
    let spec = GeneratorSpec::parse("zipf", "blocks=500,requests=9000,writes=0.25,alpha=0.7");
    let trace = load(spec.expect("a generator").reader());
    let how = Replay { single: true, verify: true, ..Replay::default() };
    let uri = Uri { endpoint: Endpoint::Unix(socket), export: "v".into(), tls: false };
    let played = replay(&trace, BLOCK as u32, &uri, how, |_| ()).await.expect("a replay");
    assert_eq!(played.mismatches, 0);
    let volume = running.volumes().into_iter().next().expect("the volume");
    running.stop().await.expect("a clean end");
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
    let trace = recorded(folder.path(), "v-000001.uct.zst");
    let policy = "mq".parse().expect("a policy");
    let levels = vec![LevelConfig { capacity: CAPACITY, policy }];
    let config = Config { levels, write_mode: WriteMode::Allocate, warmup_records: 0 };
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
    let mut all = references(&recorded(whole.path(), "v-000001.uct.zst"));
    let some = references(&recorded(sample.path(), "v-000001.1in4.uct.zst"));
    all.retain(|(block, _)| undercroft_random::hash(*block) % 4 == 0);
    assert_eq!(some, all);
    assert!(some.len() > 500, "{} references", some.len());
}
