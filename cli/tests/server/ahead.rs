//! Read-ahead: counted apart, only when asked for, and worth it over a slow store.

use std::time::Duration;

use super::flash::{BLOCK, BLOCKS, read_all};
use super::support::{Place, Random, read, seeded};

#[tokio::test(flavor = "multi_thread")]
async fn read_ahead_serves_a_sequential_reader_of_a_slow_store() {
    let place = Place::new();
    let data = seeded("ahead").bytes(4 << 20);
    place.write("v.img", &data);
    let volume = "--volume v=delay(5ms):file:v.img";
    let server = place.serve(volume);
    let without = read_all(&server, &data).await;
    let counts = ["read_ahead", "prefetched", "read_hits", "store_reads"];
    assert_eq!(counts.map(|name| server.count("v", name)), [0, 0, 0, BLOCKS], "off by default");
    assert!(without >= Duration::from_millis(5 * BLOCKS), "{without:?}");
    assert_eq!(server.stop(), 0);

    let server = place.serve(&format!("{volume},read-ahead=256KiB"));
    let with = read_all(&server, &data).await;
    println!("{BLOCKS} reads: {without:?} without, {with:?} with read-ahead");
    assert!(with * 2 < without, "{with:?} with, {without:?} without");
    let [ahead, prefetched, hits, _] = counts.map(|name| server.count("v", name));
    // All but the first reads, by which the sequence was noticed, found their block on its way or
    // there; and what is ahead of the end was fetched too.
    assert!((BLOCKS - 8..=BLOCKS + 64).contains(&ahead), "{ahead}");
    assert_eq!(prefetched, 0, "CACHE and warm restarts are counted apart");
    assert!(hits >= BLOCKS - 8, "{hits}");
    server.wait_for("v", "store_reads", |reads| reads == ahead + BLOCKS - hits);

    // What follows no order is not fetched ahead.
    let (client, mut random) = (server.connect("v").await, Random::new(7));
    for _ in 0..64 {
        let block = 400 + 2 * random.below(300);
        read(&client, block * BLOCK, 4096).await.unwrap();
    }
    assert_eq!(server.count("v", "read_ahead"), ahead);
    // And CACHE is no read-ahead.
    client.cache(1000 * BLOCK, 8 * BLOCK).await.unwrap();
    server.wait_for("v", "prefetched", |blocks| blocks == 8);
    assert_eq!(server.count("v", "read_ahead"), ahead);
    assert_eq!(server.stop(), 0);
}
