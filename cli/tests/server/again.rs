//! A caching client whose server is killed and started again: it goes on, never with data that the
//! server does not have, and FLUSH says what may be lost.
//!
//! `UNDERCROFT_ROUNDS` makes more rounds than four.

use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_client::{CachedClient, CachedOptions, Report};
use undercroft_nbd::ClientError;

use super::oracle::{BLOCK, Oracle};
use super::support::{PATIENCE, Place, Random, read, seeded};

/// Blocks of the volume.
const BLOCKS: usize = 300;

/// Reads, writes and flushes, one after another, until the server is gone. Whether writes were
/// answered that no flush covers.
async fn go_on(client: &CachedClient, oracle: &mut Oracle, random: &mut Random) -> bool {
    let mut is_unflushed = false;
    loop {
        let start = random.below(BLOCKS as u64 - 4) as usize;
        let count = 1 + random.below(4) as usize;
        let offset = (start * BLOCK) as u64;
        let result = match random.below(40) {
            0 => {
                let covered = oracle.covered();
                let flushed = client.flush().await;
                if flushed.is_ok() {
                    oracle.flushed(&covered);
                    is_unflushed = false;
                }
                flushed
            }
            1..20 => {
                let fua = random.below(8) == 0;
                let (bytes, versions) = oracle.send(start, count);
                let written = client.write(offset, Bytes::from(bytes), fua).await;
                if written.is_ok() {
                    oracle.answered(start, &versions, fua);
                    is_unflushed |= !fua;
                }
                written
            }
            _ => {
                let floors: Vec<_> = (start..start + count).map(|b| oracle.floor(b)).collect();
                let data = client.read(offset, count * BLOCK).await;
                data.map(|data| {
                    let blocks = (start..).zip(floors).zip(data.chunks(BLOCK));
                    for ((block, floor), bytes) in blocks {
                        oracle.check_read(block, floor, bytes).unwrap();
                    }
                })
            }
        };
        match result {
            Ok(()) => {}
            Err(ClientError::Lost(_)) => return is_unflushed,
            Err(error) => panic!("{error}"),
        }
    }
}

async fn survive(mode: &str, report: Report, placement: &str) {
    let rounds = std::env::var("UNDERCROFT_ROUNDS").map_or(4, |text| text.parse().unwrap());
    let mut random = seeded(&format!("again, write={mode}, {report}"));
    let place = Place::new();
    let serve = format!(
        "--volume v=file:v.img,size={},dirty-age-s=1,placement={placement} --cache 600KiB \
         --write {mode} --policy mq",
        BLOCKS * BLOCK
    );
    let mut oracle = Oracle::new(BLOCKS, mode != "back");
    let mut server = place.serve(&serve);
    let uri = server.uri("v").parse().unwrap();
    let options = CachedOptions { report, ..CachedOptions::new(100, "lru".parse().unwrap()) };
    let client = CachedClient::connect(&uri, &options).await.unwrap();
    let mut doubts = 0;
    for round in 0..rounds {
        let pause = Duration::from_millis(50 + random.below(300));
        let kill = async {
            // It is told what leaves the cache, over each connection.
            let deadline = Instant::now() + PATIENCE;
            while server.stats("v")["cooperation"]["hints"].as_u64().unwrap() == 0 {
                assert!(Instant::now() < deadline, "{}", server.stats("v"));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(pause).await;
            server.kill();
        };
        let (is_unflushed, ()) = tokio::join!(go_on(&client, &mut oracle, &mut random), kill);
        let away = client.read(0, 1).await;
        assert!(matches!(away, Err(ClientError::Lost(_))), "{away:?}");
        server = place.serve(&serve);
        let plain = server.connect("v").await;
        let served = read(&plain, 0, BLOCKS * BLOCK).await.unwrap();
        let found = oracle.check(&served);
        assert!(found.wrong.is_empty(), "round {round}:\n{}", found.wrong);
        assert!(client.read(0, BLOCKS * BLOCK).await.unwrap() == served, "round {round}");
        if is_unflushed {
            assert_eq!(client.flush().await, Err(ClientError::Unflushed), "round {round}");
            doubts += 1;
        }
        client.flush().await.unwrap();
    }
    let stats = client.stats();
    println!("write={mode}, {report}: {rounds} rounds, {doubts} doubts, {stats:?}");
    assert_eq!((stats.reconnections, stats.messages_refused), (rounds, 0));
    client.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caching_client_goes_on_when_its_server_comes_back() {
    survive("back", Report::Evictions, "eviction,staging=auto").await;
    survive("through", Report::Demotions, "gl").await;
}
