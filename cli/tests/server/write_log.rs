//! A write log before a store, as its user meets it: a FLUSH that does not wait for the store,
//! a file that is not served without its log, and what is said of both.
//!
//! Not here: what is lost when (`kill.rs`, and the tests of the store's crate).

use std::time::{Duration, Instant};

use super::support::{Place, read, text, write};

const SERVE: &str = "--volume v=log(v.log,size=8MiB):delay(1s):file:v.img,size=4MiB --write back";

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_does_not_wait_for_the_store_and_a_file_not_served_without_its_log() {
    let place = Place::new();
    let server = place.serve(SERVE);
    let client = server.connect("v").await;
    let began = Instant::now();
    for block in 0..4 {
        write(&client, block * 8192, vec![block as u8 + 1; 4096]).await.unwrap();
        client.flush().await.unwrap();
    }
    let took = began.elapsed();
    assert!(
        took < Duration::from_secs(16 * 2) / 10,
        "{took:?} for 16 flushes of a store of 200 ms"
    );
    let waiting = &server.stats("v")["log"];
    assert!(waiting["used_bytes"].as_u64() >= Some(8192), "{waiting}");
    assert_eq!(waiting["capacity_bytes"], (8 << 20) - 8192);
    assert!(server.page("/metrics").contains("undercroft_log_used_bytes{volume=\"v\"}"));
    server.kill();

    let plain = "serve --listen unix:plain --volume v=file:v.img,size=4MiB";
    let output = place.undercroft(plain);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("v.log") && said.contains("accept-loss"), "{said}");
    let info = text(&place.undercroft("flash info v.log").stdout);
    assert!(info.contains("a write log of 8184KiB, with"), "{info}");
    let loss = text(&place.undercroft("flash accept-loss file:v.img").stdout);
    assert!(loss.contains("v.log") && loss.contains("--yes"), "{loss}");

    let server = place.serve(SERVE);
    let client = server.connect("v").await;
    for block in 0..4 {
        let found = read(&client, block * 8192, 4096).await.unwrap();
        assert_eq!(found, vec![block as u8 + 1; 4096]);
    }
    drop(client);
    assert_eq!(server.stop(), 0);
    assert_eq!(place.read("v.img")[3 * 8192], 4);
    let loss = text(&place.undercroft("flash accept-loss file:v.img").stdout);
    assert!(loss.contains("whole"), "{loss}");
    let server = place.serve("--volume v=file:v.img,size=4MiB");
    assert_eq!(server.stop(), 0);
}

/// Who has lost a log says so, and the store is served as it is; the log is not believed again.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_accepted_once_for_all() {
    let place = Place::new();
    let server = place.serve(SERVE);
    let client = server.connect("v").await;
    write(&client, 0, vec![7; 4096]).await.unwrap();
    client.flush().await.unwrap();
    server.kill();
    let output = place.undercroft("flash accept-loss file:v.img --yes");
    assert!(text(&output.stdout).contains("without its write log"), "{}", text(&output.stderr));
    let server = place.serve("--volume v=file:v.img,size=4MiB");
    assert_eq!(server.stop(), 0);
    let output = place.undercroft(&format!("serve --listen unix:plain {SERVE}"));
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("it is another store, or its log was given up"), "{said}");
}

/// A volume gets another name while its log has more than can be written out: nobody waits for the
/// store, and the volume of the new name goes on with the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_renamed_though_its_log_is_not_empty() {
    const BLOCKS: u64 = 200;
    let place = Place::new();
    let configure = |name: &str| {
        let store = "log(v.log,size=8MiB):delay(1s):file:v.img";
        let volume = format!(
            "[[volume]]\nname = '{name}'\nstore = '{store}'\nsize = '4MiB'\ncache = '1MiB'\n"
        );
        place.write("undercroft.toml", format!("cache = '2MiB'\n[limits]\nclose-s = 1\n{volume}"));
    };
    configure("one");
    let server = place.serve("-v");
    let client = server.connect("one").await;
    for block in 0..BLOCKS {
        write(&client, block << 14, vec![block as u8; 4096]).await.unwrap();
    }
    client.flush().await.unwrap();
    drop(client);
    configure("other");
    let log = server.reload("reloaded");
    assert!(log.contains("the store needs its write log"), "{log}");
    let client = server.connect("other").await;
    for block in 0..BLOCKS {
        let found = read(&client, block << 14, 4096).await.unwrap();
        assert_eq!(found, vec![block as u8; 4096], "block {block}");
    }
    server.kill();
}
