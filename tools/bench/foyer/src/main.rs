//! The cache library foyer in a loop, without server, socket or protocol: `flash_speed.py` measures
//! it beside a level on flash. Blocks of 4 KiB by number, in files on the disk that is measured,
//! read and written past the page cache by io_uring; memory has little room, so that a read comes
//! from disk.
//!
//!   undercroft-bench-foyer FOLDER BLOCKS MEMORY
//!
//! MEMORY in bytes. It prints how many blocks were there and after how many seconds, and again once
//! all of them are. For each line `DEPTH SECONDS` it then reads at random, and prints what it
//! reached.

use std::error::Error;
use std::io::{Write, stdin, stdout};
use std::time::{Duration, Instant};

use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    IoEngineConfig, Source, UringIoEngineConfig,
};
use serde_json::{Value, json};

const BLOCK: usize = 4096;
/// A block has a head of its own, and lies on pages of its own.
const ON_DISK: usize = 2 * BLOCK;
/// Files of so many bytes, of which the oldest is emptied when a new one is begun; foyer's default.
const FILE: usize = 16 << 20;
/// What is given to foyer at once: it drops what its buffers of 16 MiB have no room for.
const AT_ONCE: u64 = 512;
/// How often blocks are given that are not there.
const PASSES: usize = 20;

type Failure = Box<dyn Error + Send + Sync>;
type Cache = HybridCache<u64, Vec<u8>>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, folder, blocks, memory] = &arguments[..] else {
        return Err("undercroft-bench-foyer FOLDER BLOCKS MEMORY".into());
    };
    let (blocks, memory): (u64, usize) = (blocks.parse()?, memory.parse()?);
    let began = Instant::now();
    let cache = open(folder, blocks, memory).await?;
    say(json!({ "blocks": present(&cache, blocks), "s": began.elapsed().as_secs_f64() }))?;
    fill(&cache, blocks).await;
    say(json!({ "blocks": present(&cache, blocks), "s": began.elapsed().as_secs_f64() }))?;
    for line in stdin().lines() {
        let line = line?;
        let (depth, seconds) = line.split_once(' ').ok_or("DEPTH SECONDS")?;
        let time = Duration::from_secs_f64(seconds.parse()?);
        say(read(&cache, blocks, depth.parse()?, time).await?)?;
    }
    Ok(cache.close().await?)
}

fn say(line: Value) -> Result<(), Failure> {
    println!("{line}");
    Ok(stdout().flush()?)
}

async fn open(folder: &str, blocks: u64, memory: usize) -> Result<Cache, Failure> {
    // A quarter more than the blocks take: foyer keeps some files empty.
    let device = FsDeviceBuilder::new(folder)
        .with_capacity(blocks as usize * ON_DISK / 4 * 5 / FILE * FILE)
        .with_direct(true)
        .build()?;
    let cache = HybridCacheBuilder::new()
        .memory(memory)
        .with_weighter(|_, block: &Vec<u8>| block.len())
        .storage()
        .with_io_engine_config(Box::new(UringIoEngineConfig::new()) as Box<dyn IoEngineConfig>)
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(FILE))
        .build()
        .await?;
    Ok(cache)
}

fn present(cache: &Cache, blocks: u64) -> u64 {
    let is_there = |block: &u64| cache.storage().may_contains(block);
    (0..blocks).filter(is_there).count() as u64
}

async fn fill(cache: &Cache, blocks: u64) {
    for _ in 0..PASSES {
        let is_lacking = |block: &u64| !cache.storage().may_contains(block);
        let lacking: Vec<u64> = (0..blocks).filter(is_lacking).collect();
        for some in lacking.chunks(AT_ONCE as usize) {
            for &block in some {
                let mut data = vec![0; BLOCK];
                data[..8].copy_from_slice(&block.to_le_bytes());
                cache.storage_writer(block).force().insert(data);
            }
            cache.storage().wait().await;
        }
    }
}

/// Blocks at random, by `depth` tasks that each have one read under way.
async fn read(cache: &Cache, blocks: u64, depth: usize, time: Duration) -> Result<Value, Failure> {
    let began = Instant::now();
    let tasks = (0..depth).map(|_| tokio::spawn(read_alone(cache.clone(), blocks, began + time)));
    let (mut times, mut from_disk) = (Vec::new(), 0);
    for task in tasks.collect::<Vec<_>>() {
        let (of_one, from_disk_of_one) = task.await??;
        times.extend(of_one);
        from_disk += from_disk_of_one;
    }
    let took = began.elapsed();
    let middle = times.len() / 2;
    let (_, median, _) = times.select_nth_unstable(middle);
    Ok(json!({
        "p50_us": median.as_secs_f64() * 1e6,
        "speed": times.len() as f64 / took.as_secs_f64() / 1e3,
        "count": times.len(),
        "from_disk": from_disk,
    }))
}

/// How long each read took, and how many came from disk.
async fn read_alone(
    cache: Cache,
    blocks: u64,
    end: Instant,
) -> Result<(Vec<Duration>, u64), Failure> {
    let (mut times, mut from_disk) = (Vec::new(), 0);
    loop {
        let began = Instant::now();
        if began >= end && !times.is_empty() {
            return Ok((times, from_disk));
        }
        let block = fastrand::u64(..blocks);
        let entry = cache.get(&block).await?.ok_or_else(|| format!("no block {block}"))?;
        if entry.value()[..8] != block.to_le_bytes() {
            return Err(format!("another block than {block}").into());
        }
        times.push(began.elapsed());
        from_disk += u64::from(entry.source() == Source::Disk);
    }
}
