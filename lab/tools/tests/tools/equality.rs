//! What the simulator promises is what the server delivers: a trace played through a real server,
//! one request after another, must leave exactly the counts that the simulation has. All policies,
//! two block sizes, several traces, with and without a first level in front.
//!
//! Not here: what happens with many requests in flight; the order is then nobody's to foretell.

use std::path::{Path, PathBuf};
use std::time::Duration;

use undercroft_nbd::{Client, ClientOptions};
use undercroft_policy::{Context, Counts, Spec, WriteMode, policies};
use undercroft_server::process::CacheShare;
use undercroft_server::{VolumeConfig, Write};
use undercroft_sim::{Config, LevelConfig, Lowest, WriteBack, simulate};
use undercroft_tools::{Replay, replay};
use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, Error, GeneratorSpec, Meta, OpenOptions, Reader, Record,
    open,
};

use crate::serving::Served;

/// Records of each trace that are played, with blocks of 4 KiB and of more, which take four times
/// as long.
const RECORDS: usize = 4000;
const RECORDS_OF_LARGE: usize = 1000;

/// The first records of a trace.
struct First {
    reader: Box<dyn Reader>,
    left: usize,
}

impl Reader for First {
    fn meta(&self) -> &Meta {
        self.reader.meta()
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        if self.left > 0 {
            let before = records.len();
            self.reader.read(records)?;
            records.truncate(before + self.left);
            self.left -= records.len() - before;
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.reader.spaces()
    }
}

fn load(reader: Box<dyn Reader>, block_bytes: u32) -> DenseTrace {
    let options = BlockOptions { block_bytes, ..BlockOptions::default() };
    let records = if block_bytes > 4096 { RECORDS_OF_LARGE } else { RECORDS };
    let first = Box::new(First { reader, left: records });
    let stream = BlockStream::new(first, &options).expect("a trace");
    DenseTrace::load(stream, |_| ()).expect("a readable trace")
}

/// Generated traces, our own recording, and real ones where they are.
fn traces(block_bytes: u32) -> Vec<(String, DenseTrace)> {
    let mut traces = Vec::new();
    for (name, parameters) in [("mixed", "requests=4000,writes=0.3"), ("tpcc", "transactions=500")]
    {
        let spec = GeneratorSpec::parse(name, parameters).expect("a generator");
        traces.push((name.to_owned(), load(spec.reader(), block_bytes)));
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("UNDERCROFT_TRACES")
        .map_or_else(|| root.join("../shared/traces"), PathBuf::from);
    for path in [
        root.join("examples/postgres-tpcc.uct.zst"),
        shared.join("arc/OLTP.lis.zst"),
        shared.join("msr/hm_0-899.csv.zst"),
        shared.join("lirs/multi2.trc.zst"),
    ] {
        if path.exists() {
            let reader = open(&path, &OpenOptions::default()).expect("a trace");
            traces.push((path.display().to_string(), load(reader, block_bytes)));
        } else {
            println!("skipped: {} is not there", path.display());
        }
    }
    traces
}

/// Every policy that can run without knowing the future. W-TinyLFU counts exactly where a trace has
/// several spaces: its sketch hashes the names of blocks, and on the volume they get others.
fn all_policies(trace: &DenseTrace) -> Vec<Spec> {
    let spec = |name: &str| match name {
        "w-tinylfu" if trace.spaces().len() > 1 => format!("{name},sketch=exact").parse(),
        name => name.parse(),
    };
    let all = policies().iter().filter(|info| info.name != "opt" && !info.is_content_aware());
    all.map(|info| spec(info.name).expect("a policy of the registry")).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Counted {
    reads: u64,
    read_hits: u64,
    writes: u64,
    write_hits: u64,
    cold_reads: u64,
    evictions: u64,
}

impl From<&Counts> for Counted {
    fn from(c: &Counts) -> Self {
        let Counts { reads, read_hits, writes, write_hits, cold_reads, evictions, .. } = *c;
        Self { reads, read_hits, writes, write_hits, cold_reads, evictions }
    }
}

/// Plays a trace to a server with a volume for each policy, and compares.
async fn check(name: &str, trace: &DenseTrace, block_bytes: u32, l1: Option<u32>) {
    let capacity = (trace.unique() / 20).max(8);
    let policies = all_policies(trace);
    let bytes = u64::from(capacity) * u64::from(block_bytes);
    let volumes = policies.iter().map(|policy| VolumeConfig {
        name: policy.to_string(),
        size: Some(1 << 40),
        cache: CacheShare::Bytes(bytes),
        policy: policy.clone(),
        block_bytes,
        ..VolumeConfig::default()
    });
    let served = Served::start(volumes.collect()).await;
    for policy in &policies {
        let l1_level = l1.map(|capacity| ("lru".parse::<Spec>().expect("lru"), capacity));
        let how = Replay {
            l1: l1_level
                .as_ref()
                .map(|(spec, capacity)| spec.build(&Context::new(*capacity)).expect("a policy")),
            verify: true,
            ..Replay::default()
        };
        let uri = served.uri(&policy.to_string());
        let played = replay(trace, block_bytes, &uri, how, |_| ()).await.expect("a replay");
        assert_eq!(played.mismatches, 0, "{name}, {policy}: {:?}", played.mismatched);

        let mut levels = Vec::new();
        levels.extend(l1_level.map(|(policy, capacity)| LevelConfig { capacity, policy }));
        levels.push(LevelConfig { capacity, policy: policy.clone() });
        let config = Config { levels, write_mode: WriteMode::Allocate, ..Config::default() };
        let promised = simulate(trace, &config, |_| ()).expect("a simulation");
        let promised = Counted::from(promised.levels.last().expect("a level"));

        let stats = served.volume(&policy.to_string()).stats();
        let delivered = Counted {
            reads: stats.reads,
            read_hits: stats.read_hits,
            writes: stats.writes,
            write_hits: stats.write_hits,
            cold_reads: stats.cold_reads,
            evictions: stats.evictions,
        };
        assert_eq!(delivered, promised, "{name}, {policy}, blocks of {block_bytes}, l1 {l1:?}");
        assert!(delivered.reads > 0, "{name}: nothing reached the server");
    }
    served.stop().await;
}

async fn check_all(block_bytes: u32) {
    for (name, trace) in traces(block_bytes) {
        let l1 = (trace.unique() / 50).max(4);
        check(&name, &trace, block_bytes, None).await;
        check(&name, &trace, block_bytes, Some(l1)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_and_simulator_count_the_same_at_4_kib() {
    check_all(4096).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_and_simulator_count_the_same_at_64_kib() {
    check_all(65536).await;
}

/// Streams that pass the cache, and write-back that writes as late as it can: the counts of both,
/// and after a flush the writes of the store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_write_back_count_the_same() {
    let mixed = "blocks=3000,requests=4000,writes=0.4,scans=0.4,scan-blocks=200,loops=0.1,\
                 loop-blocks=300";
    let spec = GeneratorSpec::parse("mixed", mixed).expect("a generator");
    let trace = load(spec.reader(), 4096);
    for (cutoff, write) in [(20, Write::Through), (0, Write::Back), (20, Write::Back)] {
        let volumes = all_policies(&trace).into_iter().map(|policy| VolumeConfig {
            name: policy.to_string(),
            size: Some(1 << 30),
            cache: CacheShare::Bytes(400 * 4096),
            policy,
            stream_cutoff_bytes: cutoff * 4096,
            write,
            dirty_age: Duration::from_secs(3600),
            dirty_share: 1.0,
            ..VolumeConfig::default()
        });
        let volumes: Vec<VolumeConfig> = volumes.collect();
        let served = Served::start(volumes.clone()).await;
        for VolumeConfig { name, policy, .. } in volumes {
            let how = Replay { verify: true, ..Replay::default() };
            let uri = served.uri(&name);
            let played = replay(&trace, 4096, &uri, how, |_| ()).await.expect("a replay");
            assert_eq!(played.mismatches, 0, "{name}: {:?}", played.mismatched);
            let client = Client::connect(&uri, &ClientOptions::default()).await;
            client.expect("a server").flush().await.expect("a flush");

            let write_back = (write == Write::Back).then(WriteBack::default);
            let lowest = Lowest { stream_cutoff_bytes: cutoff * 4096, write_back, flash: None };
            let levels = vec![LevelConfig { capacity: 400, policy }];
            let config = Config { levels, lowest, block_bytes: 4096, ..Config::default() };
            let promised = simulate(&trace, &config, |_| ()).expect("a simulation");
            let stats = served.volume(&name).stats();
            let level = promised.levels[0];
            let what = format!("{name}, cutoff {cutoff}, {write:?}");
            let delivered = [stats.reads, stats.read_hits, stats.writes, stats.write_hits];
            assert_eq!(
                delivered,
                [level.reads, level.read_hits, level.writes, level.write_hits],
                "{what}"
            );
            let delivered = [stats.streamed, stats.evictions, stats.store_writes];
            let writes = promised.disk_writes();
            assert_eq!(delivered, [level.streamed, level.evictions, writes], "{what}");
            assert_eq!((stats.streamed > 500, stats.dirty), (cutoff > 0, 0), "{what}");
        }
        served.stop().await;
    }
}
