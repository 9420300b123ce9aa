//! Stores that fail, lag, stall and fill up: what clients see of it, and what they do not.

use std::process::Command;
use std::time::{Duration, Instant};

use undercroft_nbd::{ClientError, Failure};

use super::arrivals::page;
use super::support::{PATIENCE, Place, read, seeded, text, write};

const BLOCK: u64 = 4096;

/// The number of an error that the server answered with.
fn failure<T>(answer: Result<T, ClientError>) -> Failure {
    match answer {
        Err(ClientError::Server { failure, .. }) => failure,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was answered as if nothing had been"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failing_read_is_one_eio() {
    let place = Place::new();
    let data = seeded("fail").bytes(16 * BLOCK as usize);
    place.write("v.img", &data);
    let server = place.serve("--volume v=fail(read,n=3):file:v.img");
    let client = server.connect("v").await;
    let mut failed = Vec::new();
    for block in 0..16 {
        match read(&client, block * BLOCK, 4096).await {
            Ok(bytes) => assert!(bytes == data[(block * BLOCK) as usize..][..4096]),
            error => {
                assert_eq!(failure(error), Failure::Io);
                failed.push(block);
            }
        }
    }
    assert_eq!(failed, [2]);
    assert_eq!(server.count("v", "read_failures"), 1);
    // A block that could not be read is not taken for one that is cached.
    let bytes = read(&client, 2 * BLOCK, 4096).await.unwrap();
    assert!(bytes == data[2 * BLOCK as usize..][..4096]);
    assert_eq!(server.count("v", "read_hits"), 0);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_write_is_told_in_every_mode() {
    let place = Place::new();
    for mode in ["through", "around"] {
        let server = place
            .serve(&format!("--volume v=fail(write,n=2):file:{mode}.img,size=1MiB --write {mode}"));
        let client = server.connect("v").await;
        write(&client, 0, vec![1; 4096]).await.unwrap();
        assert_eq!(failure(write(&client, BLOCK, vec![2; 4096]).await), Failure::Io);
        // Whatever is read now is what the file holds.
        let served = read(&client, BLOCK, 4096).await.unwrap();
        assert!(served == place.read(&format!("{mode}.img"))[4096..8192]);
        write(&client, BLOCK, vec![3; 4096]).await.unwrap();
        assert_eq!(read(&client, BLOCK, 4096).await.unwrap(), vec![3; 4096]);
        assert_eq!(server.stop(), 0);
    }
    // Write-back: the flush tells it, the block stays, and the next flush brings it there.
    let server = place
        .serve("--volume v=fail(write,n=1):file:back.img,size=1MiB,dirty-age-s=600 --write back");
    let client = server.connect("v").await;
    write(&client, 0, vec![4; 4096]).await.unwrap();
    assert_eq!(failure(client.flush().await), Failure::Io);
    assert_eq!(read(&client, 0, 4096).await.unwrap(), vec![4; 4096]);
    assert_eq!(server.count("v", "dirty"), 1);
    client.flush().await.unwrap();
    assert_eq!(place.read("back.img")[..4096], [4; 4096]);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_stays_broken_fails_the_end() {
    let place = Place::new();
    let server =
        place.serve("--volume v=fail(write,from=1):file:v.img,size=1MiB --write back --close-s 1");
    let client = server.connect("v").await;
    write(&client, 0, vec![4; 3 * 4096]).await.unwrap();
    let errors = place.path("stderr");
    assert_eq!(server.stop(), 1);
    let said = std::fs::read_to_string(errors).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.starts_with("undercroft: volume v: ") && last.contains("3 blocks"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_is_seen_in_log_numbers_and_health() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=fail(read,from=2):file:v.img,size=1MiB \
         --volume once=fail(read,n=1):file:once.img,size=1MiB,cache=off \
         --volume back=fail(write,n=1):file:back.img,size=1MiB,write=back,dirty-age-s=600",
    );
    let ok = (200, "ok\n".to_owned());
    assert_eq!(page(&server, "/healthz"), ok);
    let client = server.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    for _ in 0..50 {
        assert!(read(&client, BLOCK, 4096).await.is_err());
    }
    // One line for all of them.
    let lines = |part: &str| server.log().lines().filter(|line| line.contains(part)).count();
    server.wait_for_log("its store is failing");
    assert_eq!(lines("its store is failing"), 1, "{}", server.log());
    assert!(server.log().contains("volume=\"v\" state=\"failing\""), "{}", server.log());
    assert_eq!((server.count("v", "store_failures"), server.count("v", "store_up")), (50, 0));
    let metrics = server.page("/metrics");
    for line in ["store_failures_total{volume=\"v\"} 50", "store_up{volume=\"v\"} 0"] {
        assert!(metrics.contains(&format!("undercroft_{line}\n")), "{line}: {metrics}");
    }
    let (status, body) = page(&server, "/healthz");
    assert_eq!(status, 503);
    assert!(
        body.starts_with("v: its store is failing: 50 of 51 reads failed in the last minute: "),
        "{body}"
    );
    assert!(body.lines().count() == 1 && server.stats("v")["store_trouble"].is_string(), "{body}");
    assert_eq!((page(&server, "/healthz/v").0, page(&server, "/healthz/back")), (503, ok.clone()));
    assert_eq!(page(&server, "/healthz/other").0, 404);
    let table = text(&place.undercroft(&format!("stats {}", server.http())).stdout);
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("v ").contains(" 50 ") && row("v ").ends_with("failing"), "{table}");
    assert!(row("back").ends_with("up") && row("total").ends_with("2 up"), "{table}");

    // A single failure of few requests is one for a minute; a flush that fails because of a write
    // is counted.
    let once = server.connect("once").await;
    assert!(read(&once, 0, 4096).await.is_err());
    assert_eq!(page(&server, "/healthz/once").0, 503);
    read(&once, 0, 4096).await.unwrap();
    assert_eq!(page(&server, "/healthz/once").0, 503);
    let back = server.connect("back").await;
    write(&back, 0, vec![4; 4096]).await.unwrap();
    assert_eq!(failure(back.flush().await), Failure::Io);
    assert_eq!(server.count("back", "flush_failures"), 1);
    back.flush().await.unwrap();
    assert_eq!(page(&server, "/healthz/back").0, 503);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_store_slows_misses_and_not_hits() {
    let place = Place::new();
    let server = place.serve("--volume v=delay(250ms):file:v.img,size=1MiB");
    let client = server.connect("v").await;
    let start = Instant::now();
    read(&client, 0, 4096).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    // The fastest of some: this machine may have other work.
    let mut fastest = PATIENCE;
    for _ in 0..10 {
        let start = Instant::now();
        read(&client, 0, 4096).await.unwrap();
        fastest = fastest.min(start.elapsed());
    }
    assert!(fastest < Duration::from_millis(125), "{fastest:?}");
    let counted = server.stats("v");
    assert!(counted["latency_us"]["read"]["miss"]["p50"].as_f64().unwrap() >= 240_000.0);
    assert_eq!(counted["latency_us"]["read"]["hit"]["count"], 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_store_does_not_block_hits() {
    let place = Place::new();
    let server = place.serve("--volume v=fail(read,from=9,stall):file:v.img,size=1MiB");
    let client = server.connect("v").await;
    for block in 0..8 {
        read(&client, block * BLOCK, 4096).await.unwrap();
    }
    // All on one connection, on which hits come later too.
    let stalled: Vec<_> =
        (8..136).map(|block| client.read(block * BLOCK, vec![Box::new(vec![0; 4096])])).collect();
    let late = tokio::spawn(async move {
        for answer in stalled {
            drop(answer.await);
        }
    });
    server.wait_for("v", "reads", |reads| reads == 136);
    let other = server.connect("v").await;
    for client in [&client, &other] {
        for block in 0..8 {
            let hit = tokio::time::timeout(PATIENCE, read(client, block * BLOCK, 4096));
            hit.await.expect("a hit waits for the store").unwrap();
        }
    }
    assert_eq!(server.count("v", "read_hits"), 16);
    assert!(!late.is_finished(), "the store does not stall");
    server.kill();
    late.await.unwrap();
}

/// A small file system in memory, gone with the test.
struct Small<'a>(&'a Place);

impl Small<'_> {
    /// None where it is not allowed.
    fn mount(place: &Place) -> Option<Small<'_>> {
        std::fs::create_dir(place.path("small")).unwrap();
        let arguments = ["-t", "tmpfs", "-o", "size=512k", "none", "small"];
        let output = place.command("mount", &arguments).output();
        output.is_ok_and(|output| output.status.success()).then_some(Small(place))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        let mut command: Command = self.0.command("umount", &["--lazy", "small"]);
        let _ = command.output();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_enospc_for_the_writer_and_nothing_else() {
    let place = Place::new();
    let Some(_small) = Small::mount(&place) else {
        println!("skipped: mounting a tmpfs is not allowed");
        return;
    };
    for mode in ["through", "around", "back"] {
        let server = place.serve(&format!(
            "--volume full=file:small/{mode}.img,size=4MiB,dirty-age-s=600,write={mode} \
             --volume other=file:{mode}.img,size=1MiB"
        ));
        let (full, other) = (server.connect("full").await, server.connect("other").await);
        let mut written = 0;
        let refused = loop {
            let mut answer = write(&full, written * 65_536, vec![9; 65_536]).await;
            if answer.is_ok() && mode == "back" {
                answer = full.flush().await;
            }
            if answer.is_err() {
                break failure(answer);
            }
            written += 1;
        };
        assert_eq!(refused, Failure::NoSpace, "{mode}");
        assert!((1..=8).contains(&written), "{mode}: {written}");
        // What fitted is there, the other volume works, and with room again writes work.
        for at in 0..written {
            assert_eq!(read(&full, at * 65_536, 65_536).await.unwrap(), vec![9; 65_536]);
        }
        write(&other, 0, vec![8; 4096]).await.unwrap();
        other.flush().await.unwrap();
        full.trim(0, written * 65_536, false).await.unwrap();
        write(&full, written * 65_536, vec![7; 65_536]).await.unwrap();
        full.flush().await.unwrap();
        assert_eq!(server.stop(), 0, "{mode}");
        let bytes = place.read(&format!("small/{mode}.img"));
        assert!(bytes[(written * 65_536) as usize..][..65_536].iter().all(|&byte| byte == 7));
        std::fs::remove_file(place.path(&format!("small/{mode}.img"))).unwrap();
    }
}
