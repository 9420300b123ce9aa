//! A store that does not answer: what its clients are told, and that neither they nor the end of
//! the server wait for it; and a file that takes long for a write, for which one client waits.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientError, Failure};

use super::clients::is_there;
use super::disk::Mounted;
use super::support::{PATIENCE, Place, read, write};

fn is_told(result: Result<(), ClientError>) {
    match result {
        Err(ClientError::Server { failure: Failure::Io, text }) => {
            assert!(text.contains("the store has not answered for 1 s"), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

async fn all_are_told(client: &Client) {
    let waits = read(client, 0, 4096);
    let (behind, part) = (write(client, 0, vec![1; 4096]), write(client, 4096, vec![1; 100]));
    let (flush, trim) = (client.flush(), client.trim(65_536, 65_536, false));
    let zero = client.write_zeroes(0, 65_536, 0, false);
    let late = Instant::now();
    is_told(waits.await.map(drop));
    for told in [behind.await, part.await, trim.await, zero.await, flush.await] {
        is_told(told);
    }
    assert!(late.elapsed() < PATIENCE);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stalls_keeps_no_client_and_not_the_end() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=delay(3600s):mem:,size=1MiB,cache=1MiB,store-timeout-s=1 \
         --volume direct=delay(3600s):mem:,size=1MiB,cache=off,store-timeout-s=1 \
         --volume patient=delay(3600s):mem:,size=1MiB,cache=1MiB,store-timeout-s=0 --close-s 1",
    );
    let patient = server.connect("patient").await;
    let mut waits = Box::pin(read(&patient, 0, 4096));
    for volume in ["v", "direct"] {
        let client = server.connect(volume).await;
        all_are_told(&client).await;
        assert_eq!(server.count(volume, "store_timeouts"), 6);
    }
    server.wait_for_log("volume=\"v\" state=\"waiting\"");
    let still = tokio::time::timeout(std::time::Duration::from_millis(100), &mut waits).await;
    assert!(still.is_err(), "without a limit it waits");
    // A reload does not wait for it either.
    server.signal(Signal::HUP);
    let other = server.connect("v").await;
    is_told(read(&other, 0, 4096).await.map(drop));
    server.stop();
}

/// Reads a block of a slow file until it is cached.
async fn warm(client: &Client) {
    while read(client, 65_536, 4096).await.is_err() {}
}

/// A write to a file is made on the thread of its connection if that serves no other one. A file
/// that stalls then holds up this client, and nobody else: neither while each connection has a
/// thread of its own, nor when they share threads; nor who connects meanwhile, nor a second writer.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_stalls_holds_up_the_client_that_writes() {
    const STALL: Duration = Duration::from_secs(2);
    if let Some(missing) = ["nbdfuse", "umount"].iter().find(|program| !is_there(program)) {
        return println!("skipped: {missing} is not installed");
    }
    let (place, upper) = (Place::new(), Place::new());
    let below = place.serve("--volume slow=delay(2s):mem:,size=1MiB,cache=off");
    let mounted = match Mounted::new(&place, "fuse", &below.uri("slow")) {
        Ok(mounted) => mounted,
        Err(why) => return println!("skipped: {why}"),
    };
    let file = place.path("fuse/nbd");
    let volume = format!("--volume v=file:{},cache=1MiB,store-timeout-s=1", file.display());
    let threads = 4 * std::thread::available_parallelism().unwrap().get();
    for readers in [threads - 1, threads + 3] {
        let server = upper.serve(&volume);
        let writer = server.connect("v").await;
        warm(&writer).await;
        let mut clients = Vec::new();
        for _ in 0..readers {
            clients.push(server.connect("v").await);
        }
        let mut stalls = Box::pin(write(&writer, 0, vec![9; 4096]));
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut second = Box::pin(write(&clients[0], 4096, vec![9; 4096]));
        let (mut longest, began, mut told) = (Duration::ZERO, Instant::now(), false);
        for _ in 0..3 {
            clients.push(server.connect("v").await);
        }
        assert!(began.elapsed() < STALL / 2, "who came waited {:?}", began.elapsed());
        while began.elapsed() < STALL - Duration::from_millis(500) {
            if !told {
                let turn = tokio::time::timeout(Duration::from_millis(1), &mut second);
                told = turn.await.is_ok_and(|result| {
                    is_told(result);
                    true
                });
            }
            for client in &clients {
                let asked = Instant::now();
                assert_eq!(read(client, 65_536, 4096).await.unwrap(), [0; 4096]);
                longest = longest.max(asked.elapsed());
            }
        }
        assert!(longest < STALL / 2, "{readers} readers waited {longest:?}");
        assert!(told, "a second write waits for the first");
        let _ = stalls.as_mut().await;
        drop((writer, clients, server.stop()));
    }
    // With limits others may wait for a lock that the thread holds: it waits for no file.
    let server = upper.serve(&format!("{volume},requests-per-second=100000"));
    let client = server.connect("v").await;
    warm(&client).await;
    let stalls = write(&client, 4096, vec![6; 4096]);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let asked = Instant::now();
    assert_eq!(read(&client, 65_536, 4096).await.unwrap(), [0; 4096]);
    assert!(asked.elapsed() < STALL / 2, "its own read waited {:?}", asked.elapsed());
    is_told(stalls.await);
    drop((client, server.stop()));
    drop(mounted);
    below.stop();
}
