//! Volumes whose stores are away when the server starts: they come when their stores come, and the
//! others are served meanwhile.

use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientError, ClientOptions};

use super::support::{PATIENCE, Place, Server, read, text, write};

/// A volume whose store is volume `v` of the server of another place.
fn above(below: &Place) -> String {
    format!("nbd+unix:///v?socket={}", below.path("socket").display())
}

async fn refusal(server: &Server, volume: &str) -> String {
    match server.try_connect(volume, &ClientOptions::default()).await {
        Err(ClientError::Away(text)) => text,
        other => panic!("{volume}: {other:?}"),
    }
}

/// Connects as soon as the volume is served.
async fn arrived(server: &Server, volume: &str) -> Client {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match server.try_connect(volume, &ClientOptions::default()).await {
            Ok(client) => return client,
            Err(error) => assert!(Instant::now() < deadline, "{error}: {}", server.log()),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Status and text of a page that may say that something is wrong.
pub(super) fn page(server: &Server, path: &str) -> (u16, String) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build();
    let mut answer =
        ureq::Agent::from(agent).get(format!("{}{path}", server.http())).call().unwrap();
    (answer.status().as_u16(), answer.body_mut().read_to_string().unwrap())
}

fn wait_for_page(server: &Server, path: &str, part: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !page(server, path).1.contains(part) {
        assert!(Instant::now() < deadline, "no '{part}' in {:?}", page(server, path));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_comes_when_its_store_comes() {
    let (place, below) = (Place::new(), Place::new());
    let volumes = format!("--volume v={} --volume here=mem:,size=1MiB", above(&below));
    let server = place.serve(&format!("{volumes} --cache 1MiB"));
    assert!(server.announced.contains("volume  v  not served yet: nbd"), "{}", server.announced);
    assert!(server.log().contains("is not served yet"), "{}", server.log());
    let client = server.connect("here").await;
    write(&client, 0, vec![1; 4096]).await.unwrap();
    // The first volume is the default one, and no other takes its place.
    for name in ["v", "", "@coop/v"] {
        let why = refusal(&server, name).await;
        assert!(why.contains("the store of volume 'v' is away"), "{why}");
    }
    let unknown = server.try_connect("w", &ClientOptions::default()).await;
    assert!(matches!(unknown, Err(ClientError::Refused(_))), "{unknown:?}");
    let (status, told) = page(&server, "/healthz");
    assert!(status == 503 && told.starts_with("v: not served yet: nbd"), "{status} {told}");
    assert_eq!(page(&server, "/healthz/v").0, 503);
    assert_eq!(page(&server, "/healthz/here"), (200, "ok\n".to_owned()));
    let stats = server.stats("v");
    assert_eq!((&stats["away"], &stats["store_up"]), (&true.into(), &0.into()), "{stats}");
    assert!(stats["store_trouble"].as_str().unwrap().contains("cannot connect"), "{stats}");
    assert!(server.page("/metrics").contains("undercroft_store_up{volume=\"v\"} 0"));
    for uri in [server.http(), server.uri("here")] {
        let table = text(&place.undercroft(&format!("stats {uri}")).stdout);
        let row = table.lines().find(|line| line.trim_start().starts_with("v "));
        assert!(row.is_some_and(|row| row.trim_end().ends_with("away")), "{table}");
    }
    // What cannot be opened is not listed: clients try all that they find.
    let listed = place.run("nbdinfo", &["--list", "--json", &server.uri("here")]);
    assert!(listed.contains("\"here\"") && !listed.contains("\"v\""), "{listed}");

    let lower = below.serve("--volume v=mem:,size=1MiB");
    let client = arrived(&server, "v").await;
    write(&client, 4096, vec![3; 4096]).await.unwrap();
    assert_eq!(read(&client, 4096, 4096).await.unwrap(), vec![3; 4096]);
    server.wait_for_log("is served now");
    assert_eq!(page(&server, "/healthz"), (200, "ok\n".to_owned()));
    assert!(server.stats("v")["away"].is_null());
    client.close().await;
    assert_eq!((server.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_comes_with_another_size_is_refused_until_that_is_mended() {
    let (place, below) = (Place::new(), Place::new());
    let settings = |size: &str| {
        format!(
            "[[volume]]\nname = 'here'\nstore = 'mem:'\nsize = '1MiB'\ncache = '64KiB'\n\
             [[volume]]\nname = 'v'\nstore = '{}'\nsize = '{size}'\ncache = '64KiB'\n",
            above(&below)
        )
    };
    place.write("undercroft.toml", settings("1MiB"));
    let server = place.serve("-v");
    refusal(&server, "v").await;
    let lower = below.serve("--volume v=mem:,size=2MiB");
    wait_for_page(&server, "/healthz/v", "has 2097152 bytes, not 1048576");
    refusal(&server, "v").await;
    // What an attempt opened is closed when it has failed.
    let files = || std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count();
    let before = files();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert!(files() <= before + 2, "{before} files, and then {}", files());
    assert_eq!(server.log().matches("has 2097152 bytes").count(), 1, "{}", server.log());
    place.write("undercroft.toml", settings("2MiB"));
    server.signal(Signal::HUP);
    let client = arrived(&server, "v").await;
    assert_eq!(client.remote().info.size, 2 << 20);
    client.close().await;
    assert_eq!((server.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_away_are_added_and_removed_by_a_reload() {
    let (place, below) = (Place::new(), Place::new());
    let here = "cache = '1MiB'\n[[volume]]\nname = 'here'\nstore = 'mem:'\nsize = '1MiB'\n\
                cache = '64KiB'\n";
    let away = format!("[[volume]]\nname = 'v'\nstore = '{}'\ncache = '64KiB'\n", above(&below));
    place.write("undercroft.toml", here);
    let server = place.serve("-v");
    for _ in 0..2 {
        place.write("undercroft.toml", format!("{here}{away}"));
        server.signal(Signal::HUP);
        wait_for_page(&server, "/healthz", "v: not served yet");
        place.write("undercroft.toml", here);
        server.signal(Signal::HUP);
        wait_for_page(&server, "/healthz", "ok");
        assert_eq!(page(&server, "/healthz/v").0, 404);
    }
    // Its part of the cache is free again for others.
    place.write("undercroft.toml", format!("{here}{}", away.replace("64KiB", "960KiB")));
    server.signal(Signal::HUP);
    wait_for_page(&server, "/healthz", "v: not served yet");
    let lower = below.serve("--volume v=mem:,size=1MiB");
    arrived(&server, "v").await.close().await;
    assert_eq!((server.stop(), lower.stop()), (0, 0));
}

/// A store that accepts a connection and then says nothing holds up neither the others nor the end.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_never_answers_delays_neither_start_nor_end() {
    let place = Place::new();
    let _silent = UnixListener::bind(place.path("silent")).unwrap();
    let began = Instant::now();
    let server = place
        .serve("--volume here=mem:,size=1MiB --volume v=nbd+unix:///v?socket=silent --cache 1MiB");
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(page(&server, "/healthz/v").1.contains("no answer within 5 s"));
    server.connect("here").await.close().await;
    server.signal(Signal::HUP);
    let began = Instant::now();
    assert_eq!(server.stop(), 0);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

/// Servers in a row may start in any order.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_whose_own_store_is_away_is_away() {
    let (top, middle, bottom) = (Place::new(), Place::new(), Place::new());
    let second = middle.serve(&format!("--volume v={} --cache 64KiB", above(&bottom)));
    let first = top.serve(&format!("--volume v={} --cache 64KiB", above(&middle)));
    assert!(page(&first, "/healthz/v").1.contains("the store of volume 'v' is away"));
    let third = bottom.serve("--volume v=mem:,size=1MiB");
    let client = arrived(&first, "v").await;
    write(&client, 0, vec![5; 512]).await.unwrap();
    assert_eq!(third.count("v", "writes"), 1);
    client.close().await;
    assert_eq!((first.stop(), second.stop(), third.stop()), (0, 0, 0));
}

#[test]
fn an_object_store_that_cannot_be_reached_is_away() {
    let place = Place::new();
    let outer = [
        "env",
        "AWS_ENDPOINT=http://127.0.0.1:1",
        "AWS_ALLOW_HTTP=true",
        "AWS_ACCESS_KEY_ID=x",
        "AWS_SECRET_ACCESS_KEY=x",
    ];
    let volumes = "--volume here=mem:,size=1MiB --volume v=s3://bucket/v,size=1MiB --cache 1MiB";
    let server = place.serve_within(&outer, volumes);
    assert_eq!(page(&server, "/healthz/here").0, 200);
    assert!(page(&server, "/healthz/v").1.starts_with("not served yet: s3://bucket/v"));
    assert_eq!(server.stop(), 0);
}
