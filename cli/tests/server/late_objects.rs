//! A volume in an object store whose service executes requests late (`service.rs` of the stores):
//! what was answered with FUA and flushed is there after a restart, and what somebody else replaced
//! stops the volume.

#[allow(dead_code, reason = "the stores' own tests use the rest")]
#[path = "../../../crates/store/tests/stores/service.rs"]
mod service;

use bytes::Bytes;
use undercroft_nbd::{Client, ClientError, Failure};

use self::service::{Fault, Service, Told, settings};
use super::support::{Place, Server, read, write};

const BLOCK: usize = 4096;
const LEASE: &str = "bucket/v/lease.json";
const OBJECT: &str = "bucket/v/data/0000000000000000";

fn serve(place: &Place, service: &Service) -> Server {
    if let Some(lease) = service.object(LEASE) {
        // As if the term of the lease was over.
        let mut note: serde_json::Value = serde_json::from_slice(&lease).unwrap();
        note["holder"] = serde_json::Value::Null;
        service.put(LEASE, note.to_string());
    }
    let settings = settings(&service.address().to_string());
    let settings = settings.map(|(name, value)| format!("{name}={value}"));
    let outer: Vec<&str> =
        std::iter::once("env").chain(settings.iter().map(String::as_str)).collect();
    place.serve_within(&outer, "--volume v=s3(object=64KiB)://bucket/v,size=1MiB")
}

async fn durable(client: &Client, byte: u8) -> Result<(), ClientError> {
    client.write(0, vec![Bytes::from(vec![byte; BLOCK])], true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_flushed_is_there_after_a_restart_whatever_is_late() {
    let (place, service) = (Place::new(), Service::start("127.0.0.1:0"));
    let server = serve(&place, &service);
    let client = server.connect("v").await;
    durable(&client, 1).await.unwrap();
    for (instead, byte) in [(Told::Status(500), 2), (Told::Nothing, 4)] {
        service.next("PUT", OBJECT, Fault::Late(instead));
        durable(&client, byte).await.unwrap();
        durable(&client, byte + 1).await.unwrap();
        client.flush().await.unwrap();
    }
    server.kill();
    assert_eq!(service.release(), [412, 412]);
    let server = serve(&place, &service);
    let client = server.connect("v").await;
    assert_eq!(read(&client, 0, BLOCK).await.unwrap(), [5; BLOCK]);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_somebody_else_replaced_stops_the_volume() {
    let (place, service) = (Place::new(), Service::start("127.0.0.1:0"));
    let server = serve(&place, &service);
    let client = server.connect("v").await;
    durable(&client, 1).await.unwrap();
    service.put(OBJECT, vec![9; 64 << 10]);
    for _ in 0..2 {
        let refused = durable(&client, 2).await.unwrap_err();
        assert!(matches!(refused, ClientError::Server { failure: Failure::Io, .. }), "{refused}");
    }
    let elsewhere = write(&client, 512 << 10, vec![2; BLOCK]).await;
    assert!(elsewhere.is_err(), "no other object is changed either");
    assert_eq!(read(&client, 256 << 10, BLOCK).await.unwrap(), [0; BLOCK], "reads go on");
    let why = "data/0000000000000000 was replaced, or deleted, by another program";
    server.wait_for_log(why);
    let trouble = server.stats("v")["store_trouble"].as_str().unwrap().to_owned();
    assert!(
        trouble.starts_with("its store is failing: it makes no changes: ") && trouble.contains(why)
    );
    assert_eq!(server.count("v", "store_up"), 0);
    drop(client);
    server.stop();
}
