//! `undercroft set` and SIGHUP change a cache, its policy and its limits while clients go on: who
//! may, what is said, and how long it holds.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::limits::Keys;
use super::support::{Place, Server, read, text, write};

/// Two volumes of 1 MiB of cache, of 4 MiB in all.
fn two(place: &Place, more: &str) {
    let volume = |name: &str| {
        format!(
            "[[volume]]\nname = '{name}'\nstore = 'file:{name}.img'\nsize = '4MiB'\n\
             cache = '1MiB'\n"
        )
    };
    place.write("undercroft.toml", format!("cache = '4MiB'\n{more}{}{}", volume("a"), volume("b")));
}

/// What `set` of a volume at the server's socket prints.
fn set(place: &Place, server: &Server, options: &str) -> String {
    let output = place.undercroft(&format!("set {} {options}", server.uri("")));
    assert!(output.status.success(), "{options}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// What a `set` says that must fail with this code.
fn refused(place: &Place, code: i32, arguments: &str) -> String {
    let output = place.undercroft(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
    said
}

fn reload(server: &Server, part: &str) {
    server.signal(Signal::HUP);
    server.wait_for_log(part);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_changes_while_clients_go_on() {
    let place = Place::new();
    two(&place, "");
    let server = place.serve("-v");
    let client = server.connect("a").await;
    for block in 0..256_u64 {
        write(&client, block * 4096, vec![block as u8; 4096]).await.unwrap();
    }
    let told = set(&place, &server, "a cache=3MiB policy=mq,m=4 connections=7");
    assert!(told.starts_with("volume 'a': cache=3MiB, policy=mq,m=4, connections=7\n"), "{told}");
    assert!(told.contains("until the next restart or reload"), "{told}");
    assert_eq!(server.count("a", "capacity_blocks"), 768);
    assert_eq!(server.count("a", "resident"), 256, "what was cached is cached");
    assert_eq!(server.stats("a")["policy"], "mq,m=4");
    let hits = server.count("a", "read_hits");
    for block in 0..256_u64 {
        assert_eq!(read(&client, block * 4096, 4096).await.unwrap(), vec![block as u8; 4096]);
    }
    assert_eq!(server.count("a", "read_hits"), hits + 256);

    // There is as much as the configuration gives, and 3 MiB of it are here.
    let said = refused(&place, 1, &format!("set {} b cache=2MiB", server.uri("")));
    assert!(said.contains("it asks for 2MiB of cache, and 1MiB of 4MiB are free"), "{said}");
    set(&place, &server, "a cache=2MiB placement=eviction");
    set(&place, &server, "b cache=2MiB");
    assert_eq!(server.stats("a")["placement"], "eviction");
    assert_eq!(server.count("b", "capacity_blocks"), 512);

    // The configuration is read again: it wins, and the log says so.
    reload(&server, "what was set is the configuration's again");
    server.wait_for("a", "capacity_blocks", |blocks| blocks == 256);
    server.wait_for("b", "capacity_blocks", |blocks| blocks == 256);
    let stats = server.stats("a");
    assert_eq!((&stats["policy"], &stats["placement"]), (&"auto".into(), &"access".into()));
    // By SIGHUP alone, and one volume gets what the other gives up.
    let file = text(&place.read("undercroft.toml"));
    let file = file.replacen("cache = '1MiB'", "cache = '3584KiB'\npolicy = 'arc'", 1);
    place.write("undercroft.toml", file.replacen("cache = '1MiB'", "cache = '512KiB'", 1));
    reload(&server, "its cache has changed");
    server.wait_for("a", "capacity_blocks", |blocks| blocks == 896);
    server.wait_for("b", "capacity_blocks", |blocks| blocks == 128);
    assert_eq!(server.stats("a")["policy"], "arc");
    assert_eq!(read(&client, 255 * 4096, 4096).await.unwrap(), vec![255; 4096]);
    assert_eq!(server.stop(), 0);
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    let place = Place::new();
    two(&place, "");
    let server = place.serve("");
    for (code, options, parts) in [
        (2, "a wirte=back", ["'wirte' is no key of a volume", "client, writer"]),
        (2, "a block=8KiB", ["'block' needs a restart", "policy, placement"]),
        (2, "a cache", ["'cache': expected KEY=VALUE", "what can change"]),
        (2, "a cache=lots", ["cache 'lots': expected a size", ""]),
        (2, "a policy=fancy", ["fancy", "policy"]),
        (2, "a connections=many", ["connections: 'many' is no number", ""]),
        (2, "a dirty-percent=50 dirty-max-percent=20", ["dirty-max-percent: less than", ""]),
        (2, "a client=db", ["nobody shows a certificate", "client-roots"]),
        (2, "c cache=1MiB", ["there is no volume 'c'; served are: a, b", ""]),
        (1, "a cache=off", ["cache: changed, which needs a restart", ""]),
        (2, "a placement=d-hfa", ["placement d-hfa is for simulations", "placement=auto"]),
        (1, "a cache=3MiB policy=lru-ca", ["policy: changed, which needs a restart", ""]),
    ] {
        let said = refused(&place, code, &format!("set {} {options}", server.uri("")));
        assert!(parts.iter().all(|part| said.contains(part)), "{options}: {said}");
    }
    let stats = server.stats("a");
    assert_eq!((&stats["capacity_blocks"], &stats["policy"]), (&256.into(), &"auto".into()));
    assert_eq!(server.stop(), 0);
}

#[test]
fn the_servers_own_user_may_and_others_may_not() {
    let place = Place::new();
    two(&place, "");
    let server = place.serve("--listen 127.0.0.1:0");
    let why = ["server's own user and root, over its unix socket", "administrators"];
    let over_tcp = format!("set nbd://127.0.0.1:{} a cache=2MiB", server.port());
    let said = refused(&place, 1, &over_tcp);
    assert!(why.iter().all(|part| said.contains(part)), "{said}");
    if rustix::process::geteuid().is_root() {
        // Anybody can reach the socket.
        for (path, mode) in [(place.path(""), 0o755), (place.path("socket"), 0o777)] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let mut command = place.undercroft_command(&format!("set {} a cache=2MiB", server.uri("")));
        // If the program itself is out of reach for another user, this tells nothing.
        if let Ok(output) = command.uid(12_345).output() {
            let said = text(&output.stderr);
            assert!(!output.status.success());
            assert!(why.iter().all(|part| said.contains(part)), "{said}");
        }
    }
    server.wait_for_log("changes are for the server");
    assert_eq!(server.count("a", "capacity_blocks"), 256);
    set(&place, &server, "a cache=2MiB");
    assert_eq!(server.count("a", "capacity_blocks"), 512);
    assert_eq!(server.stop(), 0);
}

#[test]
fn certificates_that_the_configuration_names_may() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "admin", "db"].iter().for_each(|name| keys.issue(name));
    let tls = "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\nclient-roots = 'root.pem'\n";
    let with = |administrators: &str| two(&place, &format!("{administrators}\n{tls}"));
    with("administrators = ['admin']");
    let server = place.serve("-v --listen 127.0.0.1:0");
    let as_ = |name: &str, options: &str| {
        let uri = format!("nbds://localhost:{}", server.port());
        let identity = format!("--tls-certificate {name}.pem --tls-key {name}.key");
        format!("set {uri} a {options} --tls-roots root.pem {identity}")
    };
    let said = refused(&place, 1, &as_("db", "cache=2MiB"));
    assert!(said.contains("client certificates that its configuration lists"), "{said}");
    let output = place.undercroft(&as_("admin", "cache=2MiB client=db"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(server.count("a", "capacity_blocks"), 512);
    // Whom the volume does not admit may still be its administrator; and back again.
    let output = place.undercroft(&as_("admin", "client=default"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    // The list changes with a reload.
    with("");
    reload(&server, "what was set is the configuration's again");
    server.wait_for("a", "capacity_blocks", |blocks| blocks == 256);
    refused(&place, 1, &as_("admin", "cache=2MiB"));
    assert_eq!(server.stop(), 0);
}

#[test]
fn without_a_total_the_machine_is_the_bound() {
    let place = Place::new();
    let server = place.serve("--volume v=file:v.img,size=8MiB,cache=1MiB");
    set(&place, &server, "v cache=300MiB");
    assert_eq!(server.count("v", "capacity_blocks"), 76_800);
    let said = refused(&place, 1, &format!("set {} v cache=4TiB", server.uri("")));
    assert!(said.contains("of memory"), "{said}");
    set(&place, &server, "v cache=default");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_change_for_connections_that_are_open() {
    let place = Place::new();
    two(&place, "");
    let server = place.serve("-v");
    let client = server.connect("a").await;
    let delayed = || server.stats("a")["clients"][0]["delayed_requests"].as_u64().unwrap();
    for _ in 0..50 {
        client.flush().await.unwrap();
    }
    assert_eq!(delayed(), 0);
    set(&place, &server, "a requests-per-second=20");
    server.wait_for_log("its limits have changed");
    assert!(server.log().contains("keys=\"requests-per-second\""), "{}", server.log());
    assert!(!server.log().contains("who may use it"), "{}", server.log());
    let began = Instant::now();
    for _ in 0..40 {
        client.flush().await.unwrap();
    }
    // Twenty at once, then one every 50 ms. A machine that halts for a while delays fewer of them.
    assert!(began.elapsed() > Duration::from_millis(900), "{:?}", began.elapsed());
    assert!(delayed() >= 1);
    // What waits need not wait any longer.
    set(&place, &server, "a requests-per-second=1");
    client.flush().await.unwrap();
    let waits = client.clone();
    let waits = tokio::spawn(async move {
        for _ in 0..100 {
            waits.flush().await.unwrap();
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    set(&place, &server, "a requests-per-second=default");
    waits.await.unwrap();
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_who_hangs_up_leaves_the_change_made_or_not_begun() {
    let place = Place::new();
    two(&place, "");
    let server = place.serve("");
    for round in 0..20_u64 {
        let client = server.connect("@set/a").await;
        let size = format!("cache={}KiB", 512 + 4 * round);
        let asks = tokio::spawn(async move { client.write(0, vec![size.into()], false).await });
        tokio::time::sleep(Duration::from_micros(200 * round)).await;
        asks.abort();
        let _ = asks.await;
        let blocks = server.count("a", "capacity_blocks");
        assert!(blocks == 256 || (128..=128 + round).contains(&blocks), "{blocks} blocks");
    }
    // The next one is served, as soon as the last change has ended.
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let output = place.undercroft(&format!("set {} a cache=2MiB", server.uri("")));
        if output.status.success() {
            break;
        }
        let said = text(&output.stderr);
        assert!(said.contains("another change is being made"), "{said}");
        assert!(Instant::now() < deadline, "nobody is served any more");
    }
    assert_eq!(server.count("a", "capacity_blocks"), 512);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_room_is_lent_and_shown() {
    let place = Place::new();
    let volumes = "--volume a=mem:,size=4MiB,cache=1MiB,cache-min=256KiB,cache-idle-s=1 \
                   --volume b=mem:,size=4MiB,cache=512KiB,cache-max=2MiB,cache-idle-s=1";
    let checked = text(&place.undercroft(&format!("serve --check {volumes}")).stdout);
    assert!(checked.contains("keeps at least 256KiB, lends when idle for 1 s\n"), "{checked}");
    assert!(checked.contains("  grows to 2MiB\n"), "{checked}");
    let alone = place.undercroft("serve --check --volume a=mem:,size=4MiB,cache-max=512MiB");
    let alone = text(&alone.stdout);
    assert!(alone.contains("cache-max has no effect: no other volume has cache-min"), "{alone}");

    let server = place.serve(&format!("-v {volumes}"));
    let shown = || text(&place.undercroft(&format!("stats {}", server.uri("a"))).stdout);
    let row = |name: &str| {
        let shown = shown();
        let (_, table) = shown.split_once("cache now").expect("there is a table of sizes");
        let row = table.lines().find(|line| line.starts_with(name)).unwrap();
        row.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(row("a"), "a 1 MiB 1 MiB 256 KiB 1 MiB");
    let (a, b) = (server.connect("a").await, server.connect("b").await);
    let deadline = Instant::now() + Duration::from_secs(60);
    while server.count("b", "capacity_blocks") < 320 {
        for block in 0..1024_u64 {
            read(&b, block * 4096, 4096).await.unwrap();
        }
        assert!(Instant::now() < deadline, "nothing is lent: {}", server.log());
    }
    assert_eq!(row("a"), "a 256 KiB 1 MiB 256 KiB 1 MiB");
    assert_eq!(row("b"), "b 1.2 MiB 512 KiB 512 KiB 2 MiB");
    let metrics = server.page("/metrics");
    assert!(metrics.contains("undercroft_share_blocks{volume=\"a\"} 256"), "{metrics}");
    server.wait_for_log("is idle, and lends room of its cache");
    server.wait_for_log("borrows room of other volumes' cache");
    // The server looks once a second, and says so if the volume has its share and is busy then.
    // So the test reads until it has been said.
    while !server.log().contains("has all of its cache again") {
        for block in 0..64_u64 {
            read(&a, block * 4096, 4096).await.unwrap();
        }
        assert!(Instant::now() < deadline, "it does not come back: {}", server.log());
    }
    assert_eq!(server.count("a", "capacity_blocks"), 256);
    server.wait_for("b", "capacity_blocks", |blocks| blocks == 128);
    assert_eq!(server.stop(), 0);
}
