//! Control exports and the rules of their volume: at the door, and when a reload changes them.

use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::process::Signal;
use undercroft_hints::{BlockRun, Hint};
use undercroft_nbd::wire::READ_ONLY;
use undercroft_nbd::{ClientError, ClientOptions, Failure};

use super::limits::{Keys, encrypted};
use super::support::{Place, Server, read, write};

const TLS: &str = "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\n\
                   client-roots = 'root.pem'\nmode = 'offered'\n";

fn volume(name: &str, settings: &str) -> String {
    format!(
        "[[volume]]\nname = '{name}'\nstore = 'file:{name}.img'\nsize = '1MiB'\n\
         cache = '1MiB'\nplacement = 'eviction'\n{settings}\n"
    )
}

fn reload(place: &Place, server: &Server, configuration: &str) {
    place.write("undercroft.toml", configuration);
    server.signal(Signal::HUP);
}

/// A message that asks for a block to be brought in.
fn promote(block: u64) -> Vec<u8> {
    let mut message = BytesMut::new();
    Hint::Promote(vec![BlockRun::new(block, 1).unwrap()]).put(&mut message);
    message.to_vec()
}

/// Until a connection is closed by the server.
async fn until_lost(client: &undercroft_nbd::Client) {
    let deadline = Instant::now() + super::support::PATIENCE;
    while !client.is_lost() {
        assert!(Instant::now() < deadline, "a connection that has no right to stay goes on");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_removed_while_its_control_export_is_open() {
    let place = Place::new();
    let (v, w) = (volume("v", ""), volume("w", ""));
    place.write("undercroft.toml", format!("cache = '2MiB'\n{v}{w}"));
    let server = place.serve("-v");
    let control = server.connect("@coop/v").await;
    let other = server.connect("@coop/w").await;
    reload(&place, &server, &format!("cache = '2MiB'\n{w}"));
    server.wait_for_log("the volume is removed volume=\"v\"");
    until_lost(&control).await;
    assert!(read(&other, 0, 4096).await.is_ok(), "that of another volume stays");
    // And a reload after it is a reload.
    reload(&place, &server, &format!("cache = '2MiB'\n{v}{w}"));
    server.wait_for_log("the volume is added volume=\"v\"");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn access_that_is_taken_away_ends_on_the_control_export_too() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "db", "other"].iter().for_each(|name| keys.issue(name));
    place.write("undercroft.toml", format!("cache = '1MiB'\n{TLS}{}", volume("v", "")));
    let server = place.serve("-v");
    let [db, other] = ["db", "other"].map(|name| keys.client(Some(name)));
    let plain = server.connect("@coop/v").await;
    let of_db = encrypted(&server, "@coop/v", &db).await.unwrap();
    let of_other = encrypted(&server, "@coop/v", &other).await.unwrap();
    let strict = volume("v", "clients = ['db']\ntls-required = true");
    reload(&place, &server, &format!("cache = '1MiB'\n{TLS}{strict}"));
    until_lost(&plain).await;
    until_lost(&of_other).await;
    assert!(read(&of_db, 0, 4096).await.is_ok());
    assert!(server.try_connect("@coop/v", &ClientOptions::default()).await.is_err());
    assert!(encrypted(&server, "@coop/v", &other).await.is_err());
    // The right to write is one to tell.
    let readers = volume("v", "clients = ['db']\nwriters = ['other']\ntls-required = true");
    reload(&place, &server, &format!("cache = '1MiB'\n{TLS}{readers}"));
    until_lost(&of_db).await;
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_tells_nothing_on_the_control_export() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "db", "backup"].iter().for_each(|name| keys.issue(name));
    let settings = volume("v", "clients = ['db', 'backup']\nwriters = ['db']");
    place.write("undercroft.toml", format!("cache = '1MiB'\n{TLS}{settings}"));
    let server = place.serve("-v");
    let [db, backup] = ["db", "backup"].map(|name| keys.client(Some(name)));
    let writer = encrypted(&server, "@coop/v", &db).await.unwrap();
    let reader = encrypted(&server, "@coop/v", &backup).await.unwrap();
    assert!(reader.remote().offers(READ_ONLY) && !writer.remote().offers(READ_ONLY));
    let promote = promote(3);
    let told = write(&reader, 0, promote.clone()).await;
    assert!(
        matches!(told, Err(ClientError::Server { failure: Failure::NotPermitted, .. })),
        "{told:?}"
    );
    assert_eq!(server.count("v", "prefetched"), 0);
    // It reads the status, as before.
    let status = read(&reader, 0, 1 << 20).await.unwrap();
    assert!(String::from_utf8_lossy(&status).contains("\"v\""));
    write(&writer, 0, promote).await.unwrap();
    server.wait_for("v", "prefetched", |blocks| blocks == 1);
    assert_eq!(server.stop(), 0);
}
