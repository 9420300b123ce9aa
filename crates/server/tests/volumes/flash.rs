//! A level on flash below a volume's memory: it counts what the simulator counts, and no read
//! returns anything but what was written last, whatever the device does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::common::{
    BLOCK, READ, Random, Shared, TestStore, ZERO, begin, config, flush, open, read, seed, settle,
    write, write_of,
};
use undercroft_policy::{Spec, WriteMode};
use undercroft_server::{Answer, FlashMedium, FlashPart, FlashStats, Volume, VolumeConfig, Write};
use undercroft_sim::{Config, FlashReport, LevelConfig, Lowest, Report, simulate};
use undercroft_trace::{
    BlockOptions, BlockStream, DenseTrace, Error, Meta, Op, Reader, Record, Unit,
};

const BLOCKS: u64 = 512;

/// Requests as the simulator reads them.
struct Requests(Meta, Vec<Record>, Vec<String>);

impl Reader for Requests {
    fn meta(&self) -> &Meta {
        &self.0
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        records.append(&mut self.1);
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.2
    }
}

fn trace(requests: &[(u64, u64, bool)]) -> DenseTrace {
    let meta = Meta {
        format: "memory",
        unit: Unit::Blocks,
        block_bytes: None,
        has_ops: true,
        has_time: true,
        has_buffers: false,
        has_evictions: false,
    };
    let records = requests.iter().map(|&(address, length, is_write)| {
        let op = if is_write { Op::Write } else { Op::Read };
        Record { time_ns: 0, op, space: 0, address, length, buffer: None, client: 0 }
    });
    let reader = Requests(meta, records.collect(), vec!["volume".to_owned()]);
    let options = BlockOptions { block_bytes: BLOCK as u32, origins: true, ..Default::default() };
    let stream = BlockStream::new(Box::new(reader), &options).unwrap();
    DenseTrace::load(stream, |_| ()).unwrap()
}

fn draw(random: &mut Random) -> (u64, u64, bool) {
    let first = loop {
        let block = random.below(BLOCKS);
        if random.one_in(3) || random.below(block / 8 + 1) == 0 {
            break block;
        }
    };
    let is_write = random.one_in(4);
    // A block that is evicted by the request that writes it has no data here when its turn comes.
    let count = if !is_write && random.one_in(8) { 1 + random.below(6) } else { 1 };
    (first, count.min(BLOCKS - first), is_write)
}

/// The simulator's report of its level on flash.
fn simulated(requests: &[(u64, u64, bool)], memory: (u32, &str), flash: &str) -> FlashReport {
    let level = LevelConfig { capacity: memory.0, policy: Spec::parse(memory.1).unwrap() };
    let lowest = Lowest { flash: Some(flash.parse().unwrap()), ..Lowest::default() };
    let (levels, write_mode) = (vec![level], WriteMode::Allocate);
    let config =
        Config { levels, lowest, write_mode, block_bytes: BLOCK as u32, ..Config::default() };
    let trace = trace(requests);
    let outcome = simulate(&trace, &config, |_| ()).unwrap();
    Report::new("trace", &trace, &config, &outcome).flash.unwrap()
}

/// A part of a device.
fn part(flash: &str, slots: u32, device: &Arc<TestStore>) -> FlashPart {
    let medium = FlashMedium::new(Arc::new(Shared(Arc::clone(device))));
    FlashPart::new(medium, flash.parse().unwrap(), 0, slots)
}

/// Opens a volume with a level on flash.
fn open_above(config: VolumeConfig, store: &Arc<TestStore>, part: FlashPart) -> Arc<Volume> {
    let config = VolumeConfig { flash_bytes: 1, ..config };
    let volume = open(config, store);
    volume.flash.take(Some(part));
    volume
}

fn flash_of(volume: &Volume) -> FlashStats {
    volume.stats().flash.unwrap()
}

/// One client at depth 1, every rule, each way to write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_counts_what_the_simulator_counts() {
    let mut random = Random::new(seed());
    for rule in ["evidence", "access", "second-miss"] {
        for policy in ["lru", "mq", "s3-fifo", "lirs"] {
            for way in [Write::Through, Write::Back] {
                let flash = format!("300blk,rule={rule}");
                let what = format!("{policy} {way:?} {flash}");
                let device = TestStore::new((300 * BLOCK) as usize, 4096, random.next_u64());
                let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, random.next_u64());
                let mut config = config(40, policy);
                config.write = way;
                let volume = open_above(config, &store, part(&flash, 300, &device));
                let mut model = vec![0_u8; BLOCKS as usize];
                let mut requests = Vec::new();
                for step in 0..3000_u32 {
                    let (first, count, is_write) = draw(&mut random);
                    requests.push((first, count, is_write));
                    let touched = first as usize..(first + count) as usize;
                    let (offset, length) = (first * BLOCK, count * BLOCK);
                    if is_write {
                        model[touched].fill(step as u8 | 1);
                        write(&volume, offset, vec![step as u8 | 1; length as usize])
                            .await
                            .unwrap();
                    } else {
                        let data = read(&volume, offset, length).await.unwrap();
                        for (chunk, &byte) in data.chunks(BLOCK as usize).zip(&model[touched]) {
                            assert!(chunk.iter().all(|&b| b == byte), "{what}: step {step}");
                        }
                    }
                    if step % 64 == 0 {
                        settle().await;
                        volume.validate().unwrap();
                    }
                }
                let (ours, report) =
                    (flash_of(&volume), simulated(&requests, (40, policy), &flash));
                assert_eq!((ours.given_up, ours.failed_reads), (0, 0), "{what}");
                let own =
                    [ours.reads, ours.hits, ours.written, ours.rewritten, ours.kept, ours.ended];
                let sim = [
                    report.reads,
                    report.read_hits,
                    report.written,
                    report.rewritten,
                    report.kept,
                    report.ended,
                ];
                assert_eq!(own, sim, "{what}: reads, hits, written, rewritten, kept, ended");
                assert_eq!(ours.evicted, report.evicted, "{what}");
                assert_eq!(ours.without_evidence, report.without_evidence, "{what}");
                assert!(ours.hits > 300 && ours.written > 100, "{what}: {ours:?}");
            }
        }
    }
}

/// Many requests at a time, on a device and a store that answer out of order and fail now and then,
/// with ranges in between: each read has what was written to its block last, or is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_read_is_stale_whatever_fails() {
    let mut random = Random::new(seed());
    for round in 0..48 {
        let (way, rule) = (
            if round % 2 == 0 { Write::Through } else { Write::Back },
            ["evidence", "access", "second-miss"][round / 2 % 3],
        );
        let fails = round % 4 > 1;
        let device = TestStore::new((64 * BLOCK) as usize, 4096, random.next_u64());
        let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, random.next_u64());
        device.jitter.store(true, Ordering::SeqCst);
        store.jitter.store(true, Ordering::SeqCst);
        let part = part(&format!("64blk,rule={rule}"), 64, &device);
        let mut config = config(16, "mq");
        config.write = way;
        config.shards = 1 + round as u32 % 2;
        let volume = open_above(config, &store, part);
        device.fail_one_in.store(if fails { 20 } else { 0 }, Ordering::SeqCst);
        let mut model = vec![0_u8; 96];
        let mut hits = 0;
        for step in 0..250_u32 {
            // One request for each of several blocks, then their answers.
            let mut asked = Vec::new();
            for _ in 0..1 + random.below(12) {
                let block = random.below(96);
                let offset = block * BLOCK;
                match random.below(12) {
                    0..=2 => {
                        let byte = random.next_u64() as u8 | 1;
                        model[block as usize] = byte;
                        let write = write_of(vec![byte; BLOCK as usize]);
                        asked.push((block, begin(&volume, write, offset, BLOCK), None));
                    }
                    3 if step % 8 == 0 => {
                        let count = 1 + random.below(96 - block);
                        model[block as usize..(block + count) as usize].fill(0);
                        asked.push((block, begin(&volume, ZERO, offset, count * BLOCK), None));
                    }
                    _ => {
                        let expected = model[block as usize];
                        asked.push((block, begin(&volume, READ, offset, BLOCK), Some(expected)));
                    }
                }
            }
            for (block, answer, expected) in asked {
                let answer = answer.await.unwrap().unwrap();
                if let (Answer::Data(pieces), Some(expected)) = (answer, expected) {
                    let data = pieces.concat();
                    assert!(
                        data.iter().all(|&b| b == expected),
                        "round {round}, step {step}: block {block} {} {expected}",
                        data[0]
                    );
                }
            }
            volume.validate().unwrap();
            hits = flash_of(&volume).hits;
        }
        let flash = flash_of(&volume);
        assert!(hits > 0, "{flash:?}");
        assert_eq!(flash.failed_reads + flash.failed_writes > 0, fails, "{flash:?}");
        flush(&volume).await.unwrap();
        let live = store.live();
        for (chunk, &byte) in live.chunks(BLOCK as usize).zip(&model) {
            assert!(chunk.iter().all(|&b| b == byte), "round {round}: the store after a flush");
        }
    }
}

/// Writes to flash that do not end hold nobody up; nor do reads, for long.
#[tokio::test]
async fn a_device_that_stalls_is_done_without() {
    let device = TestStore::new((1024 * BLOCK) as usize, 4096, 1);
    let blocks = 4 * BLOCKS;
    let store = TestStore::new((blocks * BLOCK) as usize, 512, 1);
    let part = part("1024blk,rule=access", 1024, &device);
    let volume = open_above(config(16, "lru"), &store, part);
    let all = |from: u64, to: u64| {
        let volume = Arc::clone(&volume);
        async move {
            for block in from..to {
                read(&volume, block * BLOCK, BLOCK).await.unwrap();
            }
        }
    };
    all(0, 64).await;
    settle().await;
    assert_eq!(flash_of(&volume).written, 64);
    let hits = flash_of(&volume).hits;
    device.hold_writes.store(true, Ordering::SeqCst);
    // More than may wait.
    all(0, blocks).await;
    let flash = flash_of(&volume);
    assert!(flash.given_up > 0 && flash.hits > hits, "{flash:?}");
    volume.validate().unwrap();
    device.release();
    settle().await;
    all(0, 64).await;
    all(64, 128).await;
    settle().await;
    device.hold_reads.store(true, Ordering::SeqCst);
    let before = (flash_of(&volume), volume.stats().store_reads);
    let began = std::time::Instant::now();
    let mut answers: Vec<_> =
        (0..64).map(|block| begin(&volume, READ, block * BLOCK, BLOCK)).collect();
    for answer in &mut answers {
        answer.await.unwrap().unwrap();
    }
    assert!(began.elapsed().as_secs() < 5);
    let after = flash_of(&volume);
    let failed = after.failed_reads - before.0.failed_reads;
    assert!(failed >= 16 && after.up == 0, "{after:?}");
    assert!(volume.stats().store_reads - before.1 >= failed);
    // It is used no more, and nothing counts as a hit.
    all(0, 64).await;
    let last = flash_of(&volume);
    assert_eq!((last.failed_reads, last.hits), (after.failed_reads, after.hits));
    volume.validate().unwrap();
    device.release();
}

/// What a device gives back otherwise than it was written is read from the store: a bit that has
/// changed, and a block in another's place. A device that does no other thing is done without.
#[tokio::test]
async fn damaged_blocks_are_read_from_the_store() {
    let device = TestStore::new((1024 * BLOCK) as usize, 4096, 1);
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, 1);
    store.inner.lock().unwrap().live = Random::new(seed()).bytes((BLOCKS * BLOCK) as usize);
    let part = part("1024blk,rule=access", 1024, &device);
    let volume = open_above(config(16, "lru"), &store, part);
    let read_all = || async {
        for block in 0..64 {
            let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
            assert_eq!(data, store.live()[(block * BLOCK) as usize..][..BLOCK as usize]);
        }
        settle().await;
        (flash_of(&volume).hits, flash_of(&volume).damaged)
    };
    let damage = |how: &dyn Fn(&mut [u8])| {
        let mut images = device.inner.lock().unwrap();
        let slots = images.live.chunks_exact_mut(BLOCK as usize);
        slots.filter(|slot| slot.iter().any(|&byte| byte != 0)).for_each(how);
    };
    read_all().await;
    assert_eq!(read_all().await, (64, 0));
    let count = std::cell::Cell::new(0);
    damage(&|slot| {
        count.set(count.get() + 1);
        slot[count.get() * 60] ^= u8::from(count.get() % 8 == 0) << 5;
    });
    // A copy that was damaged has ended, and the next miss makes a new one.
    let from_store = volume.stats().store_reads;
    assert_eq!((count.get(), read_all().await), (64, (128, 8)));
    assert_eq!(volume.stats().store_reads - from_store, 8);
    assert_eq!((read_all().await, read_all().await), ((184, 8), (248, 8)));
    damage(&|slot| slot.rotate_left(512));
    read_all().await;
    let flash = flash_of(&volume);
    assert!(flash.damaged == 8 + 16 && flash.up == 0, "{flash:?}");
    volume.validate().unwrap();
}

/// Reads that do not end are noticed though writes do: each would cost a client a second for ever.
#[tokio::test]
async fn a_device_that_only_takes_writes_is_done_without() {
    let device = TestStore::new((1024 * BLOCK) as usize, 4096, 1);
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, 1);
    let part = part("1024blk,rule=access", 1024, &device);
    let volume = open_above(config(16, "lru"), &store, part);
    for block in 0..64 {
        read(&volume, block * BLOCK, BLOCK).await.unwrap();
    }
    settle().await;
    device.hold_reads.store(true, Ordering::SeqCst);
    for four in 0..4 {
        // From flash, and at the same time new blocks that are written there.
        let blocks = (0..4).flat_map(|at| [4 * four + at, 100 + 4 * four + at]);
        let mut answers: Vec<_> =
            blocks.map(|block| begin(&volume, READ, block * BLOCK, BLOCK)).collect();
        for answer in &mut answers {
            answer.await.unwrap().unwrap();
        }
        settle().await;
    }
    let flash = flash_of(&volume);
    assert!(flash.failed_reads >= 16 && flash.up == 0 && flash.failed_writes == 0, "{flash:?}");
    device.release();
}

/// Writes that fail are noticed though reads do not, as of a drive that has become read-only.
#[tokio::test]
async fn a_device_that_takes_no_writes_is_done_without() {
    let device = TestStore::new((1024 * BLOCK) as usize, 4096, 1);
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, 1);
    store.inner.lock().unwrap().live = Random::new(seed()).bytes((BLOCKS * BLOCK) as usize);
    let part = part("1024blk,rule=access", 1024, &device);
    let volume = open_above(config(16, "lru"), &store, part);
    let read_all = async |from: u64| {
        for block in from..from + 64 {
            let data = read(&volume, block * BLOCK, BLOCK).await.unwrap();
            assert_eq!(data, store.live()[(block * BLOCK) as usize..][..BLOCK as usize]);
        }
        settle().await;
    };
    read_all(0).await;
    device.fail_writes.store(true, Ordering::SeqCst);
    read_all(0).await;
    let flash = flash_of(&volume);
    assert!(flash.hits >= 48 && flash.failed_writes == 0 && flash.up == 1, "{flash:?}");
    read_all(100).await;
    let flash = flash_of(&volume);
    assert!(flash.failed_writes >= 16 && flash.up == 0 && flash.failed_reads == 0, "{flash:?}");
    // Also what was to be written is right, and nothing is looked for there any more.
    read_all(100).await;
    read_all(0).await;
    assert_eq!(flash_of(&volume).hits, flash.hits);
    volume.validate().unwrap();
}

/// No more is written than the budget brings in the time, however many blocks there are, and
/// whatever part of it a shard has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_kept_by_all_shards_together() {
    const A_SECOND: u64 = 100;
    for shards in [1, 2] {
        let device = TestStore::new((1024 * BLOCK) as usize, 4096, 1);
        let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, 1);
        let budget = A_SECOND * 86_400 * BLOCK;
        let rule = format!("1024blk,rule=access,budget={budget}/day");
        let began = std::time::Instant::now();
        let part = part(&rule, 1024 / shards, &device);
        let volume = open_above(VolumeConfig { shards, ..config(16, "lru") }, &store, part);
        for block in (0..BLOCKS).cycle() {
            read(&volume, block * BLOCK, BLOCK).await.unwrap();
            if began.elapsed().as_secs() >= 2 {
                break;
            }
        }
        let (flash, most) = (flash_of(&volume), began.elapsed().as_millis() as u64 / 10);
        let what = format!("{shards} shards: {} of {most}", flash.written);
        assert!((most / 2..=most + 1).contains(&flash.written), "{what}");
        assert!(flash.over_budget > A_SECOND && flash.up == u64::from(shards), "{what}: {flash:?}");
    }
}

/// The last block of a volume may be shorter than a slot: it stays off flash.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_last_block_hurts_no_other() {
    for rule in ["evidence", "access", "second-miss"] {
        let device = TestStore::new((128 * BLOCK) as usize, 4096, 1);
        let size = 32 * BLOCK + 1024;
        let store = TestStore::new(size as usize, 512, 1);
        let flash = format!("128blk,rule={rule}");
        let volume = open_above(config(4, "lru"), &store, part(&flash, 128, &device));
        for block in 0..=32_u64 {
            let length = BLOCK.min(size - block * BLOCK);
            let bytes = vec![block as u8 + 1; length as usize];
            write(&volume, block * BLOCK, bytes).await.unwrap();
        }
        for _ in 0..5 {
            for block in (0..=32_u64).rev() {
                let length = BLOCK.min(size - block * BLOCK);
                let data = read(&volume, block * BLOCK, length).await.unwrap();
                assert!(data.iter().all(|&b| b == block as u8 + 1), "{rule}: block {block}");
            }
            settle().await;
        }
        assert!(flash_of(&volume).hits > 32, "{rule}");
        volume.validate().unwrap();
    }
}

/// With placement at eviction, the evictions that a write shows can bring in blocks that drive out
/// the block that is written, before its operation is queued. The client here is an LRU cache of 48
/// blocks that tells nothing; the server reckons what it evicts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_drives_out_its_own_block_leaves_nothing_old() {
    let mut random = Random::new(seed());
    let blocks = 256;
    for rule in ["evidence", "access"] {
        let device = TestStore::new((512 * BLOCK) as usize, 4096, 1);
        let store = TestStore::new((blocks * BLOCK) as usize, 512, 1);
        let mut config = config(16, "lru");
        config.placement = "eviction,on-hit=keep".parse().unwrap();
        (config.estimate, config.reload_at_once) = (true, true);
        let part = part(&format!("512blk,rule={rule}"), 512, &device);
        let volume = open_above(config, &store, part);
        let mut model = vec![0_u8; blocks as usize];
        // The blocks of the client's cache and those that it evicted last, the newest first.
        let mut held = VecDeque::new();
        let (mut placed, mut left) = (0, 30_000);
        for step in 0..600_000_u32 {
            // Until the reckoning is trusted nothing is placed.
            let is_warm = placed > 0;
            left -= u32::from(is_warm);
            if left == 0 {
                break;
            }
            let evicted = held.len().saturating_sub(48);
            let is_write = is_warm && evicted > 0 && random.one_in(16);
            let block = match is_write {
                true => held[48 + random.below(evicted as u64) as usize],
                false => random.below(blocks),
            };
            if held.iter().take(48).any(|&own| own == block) {
                continue;
            }
            held.retain(|&other| other != block);
            held.push_front(block);
            held.truncate(72);
            let offset = block * BLOCK;
            if is_write {
                model[block as usize] = random.next_u64() as u8 | 1;
                let bytes = vec![model[block as usize]; BLOCK as usize];
                write(&volume, offset, bytes).await.unwrap();
            } else {
                let data = read(&volume, offset, BLOCK).await.unwrap();
                let expected = model[block as usize];
                assert!(data.iter().all(|&b| b == expected), "{rule}: step {step}, block {block}");
            }
            if step % 4096 == 0 {
                settle().await;
                placed = volume.stats().cooperation.map_or(0, |counts| counts.known_evictions);
            }
        }
        assert!(placed > 1000 && flash_of(&volume).hits > 1000, "{rule}: {placed}");
        volume.validate().unwrap();
    }
}

#[tokio::test]
async fn another_placement_leaves_what_is_on_flash() {
    let device = TestStore::new((300 * BLOCK) as usize, 4096, seed());
    let store = TestStore::new((BLOCKS * BLOCK) as usize, 512, seed());
    let part = part("300blk,rule=access", 300, &device);
    let volume = open_above(config(40, "lru"), &store, part);
    for block in 0..200 {
        read(&volume, block * BLOCK, BLOCK).await.unwrap();
        settle().await;
    }
    for placement in ["eviction", "access"] {
        let before = flash_of(&volume);
        let mut next = VolumeConfig::clone(&volume.now());
        next.placement = placement.parse().unwrap();
        volume.change(&next).await.unwrap();
        for block in 0..100 {
            read(&volume, block * BLOCK, BLOCK).await.unwrap();
        }
        // Others are in memory, or another block has their slot.
        let flash = flash_of(&volume);
        assert_eq!(flash.ended, before.ended, "{placement}");
        assert!(flash.hits - before.hits > 50, "{placement}: {flash:?} after {before:?}");
    }
}
