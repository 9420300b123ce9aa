//! A server below, real nbdkit, that is stopped and started again while requests run.

use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use super::support::{PATIENCE, Place, read, seeded};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 256;

/// nbdkit with a file; killed if the test ends before it.
struct Below(Child);

impl Drop for Below {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Below {
    fn start(place: &Place) -> Below {
        let socket = place.path("below");
        let _ = std::fs::remove_file(&socket);
        let arguments = ["--foreground", "--unix", "below", "file", "v.img"];
        let below = Below(place.command("nbdkit", &arguments).spawn().unwrap());
        let deadline = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(Instant::now() < deadline, "nbdkit does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
        below
    }

    fn stop(self) {
        self.terminate();
        self.ended();
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
    }

    /// Waits for its end, which comes when its clients have left.
    fn ended(mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "nbdkit waits for its clients");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Nothing fails and nothing is lost, with and without a cache, while the server below ends and
/// comes back.
#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_a_server_below_that_is_restarted() {
    let place = Place::new();
    place.write("v.img", vec![0; (BLOCKS * BLOCK) as usize]);
    for cache in ["64KiB", "off"] {
        let mut below = Below::start(&place);
        let store = "nbd+unix:///?socket=below";
        let server = place.serve(&format!("--volume v={store},cache={cache}"));
        let is_over = Arc::new(AtomicBool::new(false));
        let mut working = Vec::new();
        // Each has its own blocks, and knows what they hold.
        for worker in 0..4 {
            let (client, mut random) = (server.connect("v").await, seeded("restarted"));
            let is_over = Arc::clone(&is_over);
            working.push(tokio::spawn(async move {
                let mine: Vec<_> = (0..BLOCKS).filter(|block| block % 4 == worker).collect();
                let mut held = Vec::new();
                for block in &mine {
                    held.push(read(&client, block * BLOCK, BLOCK as usize).await.unwrap());
                }
                while !is_over.load(Ordering::Relaxed) {
                    let at = random.below(mine.len() as u64) as usize;
                    let (offset, length) = (mine[at] * BLOCK, BLOCK as usize);
                    if random.below(2) == 0 {
                        held[at] = random.bytes(length);
                        let data = vec![Bytes::from(held[at].clone())];
                        client.write(offset, data, true).await.unwrap();
                    } else {
                        assert!(read(&client, offset, length).await.unwrap() == held[at]);
                    }
                }
                (mine, held)
            }));
        }
        for _ in 0..4 {
            tokio::time::sleep(Duration::from_millis(500)).await;
            below.stop();
            tokio::time::sleep(Duration::from_millis(500)).await;
            below = Below::start(&place);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        is_over.store(true, Ordering::Relaxed);
        for worker in working {
            let (mine, held) = worker.await.unwrap();
            let image = place.read("v.img");
            for (block, held) in mine.iter().zip(held) {
                assert!(image[(block * BLOCK) as usize..][..BLOCK as usize] == held[..]);
            }
        }
        assert_eq!((server.count("v", "store_failures"), server.count("v", "store_up")), (0, 1));
        assert_eq!(server.stop(), 0);
    }
}

/// A server that stays away: requests wait as long as configured, all together, and then fail.
#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_for_ever() {
    let place = Place::new();
    place.write("v.img", vec![0; (BLOCKS * BLOCK) as usize]);
    let below = Below::start(&place);
    let server = place.serve("--volume v=nbd+unix:///?socket=below,reconnect-s=10");
    let client = server.connect("v").await;
    // nbdkit tells that it ends only when it is asked for something, and may take a moment to see
    // the signal: until then it answers.
    below.terminate();
    let first = client.clone();
    let first = tokio::spawn(async move {
        for block in 0..BLOCKS - 1 {
            let began = Instant::now();
            if read(&first, block * BLOCK, BLOCK as usize).await.is_err() {
                return began.elapsed();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Duration::ZERO
    });
    below.ended();
    let after = first.await.unwrap();
    assert!(after > Duration::from_secs(1), "{after:?}");
    assert_eq!(server.count("v", "store_up"), 0);
    let began = Instant::now();
    assert!(read(&client, (BLOCKS - 1) * BLOCK, 4096).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // It is found again without a request, at the next try. A block that is cached tells nothing.
    let _below = Below::start(&place);
    server.wait_for("v", "store_up", |up| up == 1);
    read(&client, (BLOCKS - 1) * BLOCK, 4096).await.unwrap();
    assert_eq!(server.stop(), 0);
}
