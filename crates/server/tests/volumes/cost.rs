//! What a hit costs in processor time, with making the request and taking the answer. Prints
//! figures; fails only when they are out of all proportion. Run it optimised:
//! `cargo test --release -p undercroft-server --test volumes cost -- --nocapture`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::common::{BLOCK, READ, Random, TestStore, config, open, read, write_of};
use undercroft_nbd::{Answer, Reply, Request};
use undercroft_server::{Caller, Write};

const BLOCKS: u64 = 4096;

/// Of this thread: what others do on a busy machine does not count.
pub(crate) fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[tokio::test]
async fn a_hit_costs_little() {
    let rounds = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
    for policy in ["lru", "mq", "w-tinylfu"] {
        for batch in [1, 16_u64] {
            let store = TestStore::new((BLOCKS * BLOCK) as usize, 1, 1);
            let mut config = config(BLOCKS as u32, policy);
            config.write = Write::Back;
            config.dirty_share = 1.0;
            let volume = open(config, &store);
            for block in (0..BLOCKS).step_by(256) {
                read(&volume, block * BLOCK, 256 * BLOCK).await.unwrap();
            }
            let sum = Arc::new(AtomicU64::new(0));
            let mut random = Random::new(7);
            let mut ask = |write: bool| {
                let sum = Arc::clone(&sum);
                let reply = Reply::call(move |answer| {
                    if let Answer::Data(pieces) = answer {
                        sum.fetch_add(pieces.len(), Ordering::Relaxed);
                    }
                });
                let command = if write { write_of(&[1_u8; 4096][..]) } else { READ };
                let offset = random.below(BLOCKS) * BLOCK;
                Request { command, offset, length: BLOCK, durable: false, reply }
            };
            for write in [false, true] {
                let start = processor_time();
                for _ in 0..rounds {
                    let mut requests = (0..batch).map(|_| ask(write)).collect();
                    volume.serve(&mut requests, Caller::default());
                }
                let ns = (processor_time() - start).as_nanos() as f64 / (rounds * batch) as f64;
                let what = if write { "write-back hit" } else { "read hit" };
                println!("{policy}, batches of {batch}: {what} {ns:.0} ns");
                assert!(ns < 100_000.0, "{ns} ns");
            }
            assert_eq!(sum.load(Ordering::Relaxed), rounds * batch * BLOCK);
            assert_eq!(volume.stats().read_hits, rounds * batch);
        }
    }
}
