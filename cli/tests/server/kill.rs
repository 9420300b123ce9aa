//! SIGKILL in the middle of writes: what was promised is there after a restart, whatever the
//! write mode, and nothing else than what was sent, wherever it lies.
//!
//! `UNDERCROFT_ROUNDS` makes more rounds than five.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Semaphore;
use undercroft_nbd::Client;

use super::flash::until_durable;
use super::oracle::{BLOCK, Oracle};
use super::support::{Place, Random, read, seeded};

/// Blocks of each writer's own part of the volume.
pub(crate) const PART: usize = 384;

/// Writers, with a connection each.
pub(crate) const WRITERS: usize = 3;

/// Writes of one writer in flight.
const DEPTH: usize = 24;

/// Most blocks of one write.
const MAX_BLOCKS: u64 = 20;

pub(crate) type Shared = Arc<Mutex<Oracle>>;

/// Writes to its part, with some FUA and some FLUSH among it, until the connection is lost.
pub(crate) async fn write_on(client: Client, part: usize, oracle: Shared, mut random: Random) {
    let slots = Arc::new(Semaphore::new(DEPTH));
    while !client.is_lost() {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        let oracle = Arc::clone(&oracle);
        if random.below(50) == 0 {
            let covered = oracle.lock().unwrap().covered();
            let answer = client.flush();
            tokio::spawn(async move {
                if answer.await.is_ok() {
                    oracle.lock().unwrap().flushed(&covered);
                }
                drop(slot);
            });
            continue;
        }
        // Half of the writes go to an eighth of the part, so that blocks are overwritten while
        // they are dirty or on their way to the file.
        let count = if random.below(4) == 0 { 1 + random.below(MAX_BLOCKS) as usize } else { 1 };
        let among = if random.below(2) == 0 { PART / 8 } else { PART };
        let start = part * PART + random.below((among - count) as u64) as usize;
        let fua = random.below(16) == 0;
        // Queued under the lock: versions go out in their order.
        let (answer, versions) = {
            let mut oracle = oracle.lock().unwrap();
            let (bytes, versions) = oracle.send(start, count);
            let offset = (start * BLOCK) as u64;
            (client.write(offset, vec![Bytes::from(bytes)], fua), versions)
        };
        tokio::spawn(async move {
            if answer.await.is_ok() {
                oracle.lock().unwrap().answered(start, &versions, fua);
            }
            drop(slot);
        });
        // Bursts and pauses: the flusher has its turns.
        if random.below(200) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(30))).await;
        }
    }
    // Whatever was answered before the end is known when all answers are in.
    let _all = slots.acquire_many(DEPTH as u32).await.unwrap();
}

/// `store`: text before `file:v.img`; `flash`: an option of the server, if it has a level. Returns
/// how many blocks were read from there after the kills.
async fn survive(mode: &str, store: &str, flash: &str) -> u64 {
    let rounds = std::env::var("UNDERCROFT_ROUNDS").map_or(5, |text| text.parse().unwrap());
    let mut random = seeded(&format!("kill, write={mode}"));
    let place = Place::new();
    let blocks = WRITERS * PART;
    let oracle = Arc::new(Mutex::new(Oracle::new(blocks, mode != "back")));
    let (mut lost, mut torn, mut flown, mut hits) = (0, 0, 0, 0);
    for round in 0..rounds {
        // With larger blocks each write is one to a part of a block. A level is warm only if they
        // were the same before.
        let block = ["4KiB", "16KiB"][if flash.is_empty() { round } else { round / 2 } % 2];
        let serve = format!(
            "--volume v={store}file:v.img,size={},dirty-age-s=1,dirty-percent=20 --cache 1MiB \
             --write {mode} --block {block} --policy lru {flash}",
            blocks * BLOCK
        );
        let server = place.serve(&serve);
        let mut writers = Vec::new();
        for part in 0..WRITERS {
            let client = server.connect("v").await;
            let random = Random::new(random.next_u64());
            writers.push(tokio::spawn(write_on(client, part, Arc::clone(&oracle), random)));
        }
        tokio::time::sleep(Duration::from_millis(50 + random.below(700))).await;
        let written = server.count("v", "writes");
        assert!(written > 0, "nothing is written yet");
        flown += written;
        server.kill();
        for writer in writers {
            writer.await.unwrap();
        }
        let server = place.serve(&serve);
        let client = server.connect("v").await;
        let served = read(&client, 0, blocks * BLOCK).await.unwrap();
        let is_file = store.is_empty();
        assert!(
            !is_file || served == place.read("v.img"),
            "the server does not serve what the file holds"
        );
        hits += server.stats("v")["flash"]["hits"].as_u64().unwrap_or(0);
        let found = oracle.lock().unwrap().check(&served);
        assert!(found.wrong.is_empty(), "write={mode}, round {round}:\n{}", found.wrong);
        (lost, torn) = (lost + found.lost, torn + found.torn);
        if !flash.is_empty() {
            // What is read again and again comes to flash.
            for _ in 0..2 {
                let again = read(&client, 0, blocks * BLOCK).await.unwrap();
                assert!(again == served, "write={mode}, round {round}: read again");
            }
            until_durable(&server, 32).await;
        }
        server.kill();
    }
    println!(
        "write={mode}: {rounds} rounds, {flown} blocks written; afterwards {lost} blocks older \
         than answered, {torn} torn in flight, {hits} read from flash"
    );
    assert!(mode == "back" || lost == 0);
    hits
}

#[tokio::test(flavor = "multi_thread")]
async fn write_through_keeps_every_answered_write() {
    survive("through", "", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_back_keeps_what_a_flush_or_fua_covered() {
    survive("back", "", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn write_around_keeps_every_answered_write() {
    survive("around", "", "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_log_keeps_what_the_store_had_not() {
    for mode in ["through", "back"] {
        survive(mode, &format!("log(log-{mode},size=8MiB):delay(2ms..20ms):"), "").await;
    }
}

/// The level has what the file has, block for block, and is not cold.
#[tokio::test(flavor = "multi_thread")]
async fn a_warm_level_has_what_the_store_has() {
    for mode in ["through", "back"] {
        let hits = survive(mode, "", "--flash flash,size=4MiB,budget=off,restart=warm").await;
        assert!(hits > 0, "write={mode}: nothing was read from flash");
    }
}
