//! A store that does not answer: what its clients are told, and that neither they nor the end of
//! the server wait for it.

use std::time::Instant;

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientError, Failure};

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
