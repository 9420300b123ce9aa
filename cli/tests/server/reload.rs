//! SIGHUP: volumes that come and go, rules that change, and what has to wait for a restart.

use std::fs::File;

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientError, ClientOptions, Failure, Uri};

use super::limits::{Keys, encrypted};
use super::support::{Place, Server, read, seeded, write};

/// A volume in the configuration.
fn volume(name: &str, settings: &str) -> String {
    format!("[[volume]]\nname = '{name}'\nstore = 'file:{name}.img'\n{settings}\n")
}

/// Writes the configuration and has it read: what is logged until `part` is there.
fn reload(place: &Place, server: &Server, configuration: &str, part: &str) -> String {
    place.write("undercroft.toml", configuration);
    server.reload(part)
}

async fn names(server: &Server) -> Vec<String> {
    let uri: Uri = server.uri("").parse().unwrap();
    let list = Client::list(&uri, &ClientOptions::default()).await.unwrap();
    list.into_iter().map(|(name, _)| name).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_come_and_go() {
    let place = Place::new();
    let a = volume("a", "size = '2MiB'\ncache = '1MiB'\nwrite = 'back'\ndirty-age-s = 600");
    let b = volume("b", "size = '1MiB'\ncache = '1MiB'");
    let cache = "cache = '2MiB'\nstate = 'state'\n";
    place.write("undercroft.toml", format!("{cache}{a}"));
    let server = place.serve("-v");
    let of_a = server.connect("a").await;
    let data = seeded("reload").bytes(1 << 17);
    write(&of_a, 0, data.clone()).await.unwrap();

    reload(&place, &server, &format!("{cache}{a}{b}"), "the volume is added volume=\"b\"");
    assert_eq!(names(&server).await, ["a", "b"]);
    let of_b = server.connect("b").await;
    write(&of_b, 0, vec![1; 4096]).await.unwrap();
    assert_eq!(server.count("b", "capacity_blocks"), 256);
    assert_eq!(read(&of_a, 0, 1 << 17).await.unwrap(), data, "its clients notice nothing");
    assert_eq!(server.count("a", "dirty"), 32);

    // What was answered is in the file, the client is away, and the file is free for others.
    reload(&place, &server, &format!("{cache}{b}"), "the volume is removed volume=\"a\"");
    assert!(place.read("a.img")[..1 << 17] == data);
    assert!(read(&of_a, 0, 4096).await.is_err() && of_a.is_lost());
    let refused = server.try_connect("a", &ClientOptions::default()).await;
    assert!(matches!(refused, Err(ClientError::Refused(_))), "{refused:?}");
    assert_eq!(names(&server).await, ["b"]);
    assert!(server.stats("a").is_null() && !server.page("/metrics").contains("volume=\"a\""));
    assert_eq!(read(&of_b, 0, 4096).await.unwrap(), vec![1; 4096]);
    assert!(!place.path("state/a.in-use").exists(), "it ended cleanly");
    let other = place.refused(2, "--volume a=file:a.img,size=1MiB --listen unix:other");
    assert!(other.contains("2097152"), "the lock is free, the size is wrong: {other}");

    // Back again, with what it had cached, and it serves whoever names none.
    reload(&place, &server, &format!("{cache}{a}{b}"), "the volume is added volume=\"a\"");
    server.wait_for("a", "resident", |resident| resident == 32);
    let default = server.connect("").await;
    assert!(read(&default, 0, 1 << 17).await.unwrap() == data);
    assert_eq!(default.remote().info.size, 2 << 20);
    assert_eq!(server.stop(), 0);
    assert_eq!(place.read("b.img")[..4096], [1; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_in_flight_is_answered_before_a_volume_goes() {
    let place = Place::new();
    let slow = "[[volume]]\nname = 'slow'\nstore = 'delay(300ms):file:slow.img'\nsize = '1MiB'\n";
    let b = volume("b", "size = '1MiB'");
    place.write("undercroft.toml", format!("{slow}{b}"));
    let server = place.serve("-v");
    let client = server.connect("slow").await;
    let answers: Vec<_> = (0..16).map(|at| write(&client, at * 4096, vec![9; 4096])).collect();
    server.wait_for("slow", "writes", |writes| writes == 16);
    reload(&place, &server, &b, "the volume is removed");
    for answer in answers {
        answer.await.unwrap();
    }
    assert_eq!(place.read("slow.img")[..16 * 4096], [9; 16 * 4096]);
    assert!(write(&client, 0, vec![1; 4096]).await.is_err());
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_that_cannot_be_written_out_stays_away_from_clients() {
    let place = Place::new();
    let limits = "[limits]\nclose-s = 1\n";
    let bad = "[[volume]]\nname = 'bad'\nstore = 'fail(write,at=0..4KiB):file:bad.img'\n\
               size = '1MiB'\ncache = '1MiB'\nwrite = 'back'\ndirty-age-s = 600\n";
    let b = volume("b", "size = '1MiB'");
    place.write("undercroft.toml", format!("{limits}{bad}{b}"));
    let server = place.serve("-v");
    let client = server.connect("bad").await;
    write(&client, 0, vec![5; 8192]).await.unwrap();
    let without = format!("{limits}{b}");
    let log = reload(&place, &server, &without, "cannot be removed yet");
    assert!(log.contains("volume=\"bad\"") && log.contains("are not written: 0"), "{log}");
    assert!(server.try_connect("bad", &ClientOptions::default()).await.is_err());
    // Given back while it is still there, it is said not to be served.
    let log = reload(&place, &server, &format!("{limits}{bad}{b}"), "is not served");
    assert!(log.contains("volume=\"bad\""), "{log}");
    let file = place.read("bad.img");
    assert!(file[..4096] == [0; 4096] && file[4096..8192] == [5; 4096]);
    assert_eq!(server.stop(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_volume_takes_cache_that_nobody_has() {
    let place = Place::new();
    let old = volume("old", "size = '4MiB'\ncache = '1MiB'") + &volume("rest", "size = '1MiB'");
    place.write("undercroft.toml", format!("cache = '4MiB'\n{old}"));
    let server = place.serve("-v");
    assert_eq!(server.count("rest", "capacity_blocks"), 768);
    let new = |size: &str| volume("new", &format!("size = '1MiB'\n{size}"));
    for (cache, size, parts) in [
        ("4MiB", "", ["give it a cache of its own", "volume=\"new\""]),
        ("4MiB", "cache = '1MiB'", ["1MiB of cache", "0 of 4MiB"]),
        ("5MiB", "cache = '2MiB'", ["2MiB of cache", "1MiB of 5MiB"]),
    ] {
        let settings = format!("cache = '{cache}'\n{old}{}", new(size));
        let log = reload(&place, &server, &settings, "is not added");
        assert!(parts.iter().all(|part| log.contains(part)), "{log}");
        assert_eq!(names(&server).await, ["old", "rest"]);
    }
    let settings = format!("cache = '5MiB'\n{old}{}", new("cache = '1MiB'"));
    reload(&place, &server, &settings, "the volume is added");
    // None needs none.
    let off = settings.clone() + &volume("off", "size = '1MiB'\ncache = 'off'");
    reload(&place, &server, &off, "the volume is added volume=\"off\"");
    // What goes gives back what it had.
    let settings = settings.replace("'new'", "'newer'").replace("new.img", "newer.img");
    reload(&place, &server, &settings, "the volume is added volume=\"newer\"");
    let blocks = ["old", "rest", "newer"].map(|name| server.count(name, "capacity_blocks"));
    assert_eq!(blocks, [256, 768, 256]);
    let less = settings.replace("5MiB", "3MiB");
    let log = reload(&place, &server, &less, "needs a restart");
    assert!(log.contains("assigned=5242880") && log.contains("told=3145728"), "{log}");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_restart_is_said_and_left() {
    let place = Place::new();
    let v = volume("v", "size = '1MiB'\npolicy = 'lru'");
    place.write("undercroft.toml", &v);
    let server = place.serve("-v");
    let client = server.connect("v").await;
    let changed = volume("v", "size = '1MiB'\npolicy = 'arc'\nwrite = 'back'\nblock = '8KiB'");
    let log = reload(
        &place,
        &server,
        &format!("state = 'state'\n{changed}[limits]\nrequests = 5\n"),
        "write: changed",
    );
    for part in ["state: changed", "limits.requests: changed", "block: changed"] {
        assert!(log.contains(part), "no '{part}' in {log}");
    }
    assert!(!log.contains("listen: changed") && !log.contains("shards: changed"), "{log}");
    assert!(log.lines().filter(|line| line.contains(": changed")).all(|l| l.contains("WARN")));
    // The policy changes after that is said.
    let deadline = std::time::Instant::now() + super::support::PATIENCE;
    while server.stats("v")["policy"] != "arc" {
        assert!(std::time::Instant::now() < deadline, "{}", server.log());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert_eq!(server.stats("v")["block_bytes"], 4096);
    write(&client, 0, vec![1; 4096]).await.unwrap();
    assert_eq!(place.read("v.img")[..4096], [1; 4096], "still write-through");
    // A store of another name is a restart too, and not another volume under this one.
    let other = v.replace("file:v.img", "file:w.img");
    reload(&place, &server, &other, "store: changed");
    assert_eq!(read(&client, 0, 4096).await.unwrap(), vec![1; 4096]);
    assert!(!place.path("w.img").exists());
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_configuration_changes_nothing() {
    let place = Place::new();
    let v = volume("v", "size = '1MiB'");
    place.write("undercroft.toml", &v);
    let server = place.serve("-v");
    let client = server.connect("v").await;
    let file = File::options().write(true).open(place.path("v.img")).unwrap();
    for (settings, part) in [
        (format!("{v}polcy = 'lru'\n"), "undercroft.toml, line 5: unknown field `polcy`"),
        (format!("{v}cache = 'lots'\n"), "cache 'lots'"),
        (format!("{v}{v}"), "volume 'v' is there twice"),
        ("[[volume\n".to_owned(), "undercroft.toml, line 1"),
        (String::new(), "nothing to serve"),
    ] {
        let log = reload(&place, &server, &settings, "all settings stay as they were");
        let lines: Vec<_> = log.lines().filter(|line| line.contains(part)).collect();
        assert_eq!(lines.len(), 1, "{part}: {log}");
        assert!(lines[0].contains("ERROR") && lines[0].contains("stay as they were"), "{log}");
        write(&client, 0, vec![1; 4096]).await.unwrap();
    }
    std::fs::remove_file(place.path("undercroft.toml")).unwrap();
    // This reload must be over before the file grows: it would be the one that sees the growth.
    server.reload("reloaded, except for what the log says above");
    // Sizes are looked at all the same.
    file.set_len(2 << 20).unwrap();
    reload(&place, &server, "[[volume\n", "the volume has grown");
    // And what was told is compared.
    let log = reload(&place, &server, &v, "the size told is not the store's");
    assert!(log.contains("told=1048576 size=2097152"), "{log}");
    assert_eq!(server.connect("v").await.remote().info.size, 2 << 20);
    let right = v.replace("1MiB", "2MiB");
    let before = server.log().len();
    place.write("undercroft.toml", &right);
    server.signal(Signal::HUP);
    assert_eq!(server.stop(), 0);
    let log = std::fs::read_to_string(place.path("stderr")).unwrap();
    assert!(!log[before..].contains("WARN"), "{}", &log[before..]);
}

/// What one volume would give up is not taken from it if another cannot have it, and nothing else
/// changes either.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_configuration_changes_nothing() {
    let place = Place::new();
    place.write("wrong.img", vec![0; 1 << 20]);
    let a = |more: &str| volume("a", &format!("size = '4MiB'\n{more}"));
    let b = |more: &str| volume("b", &format!("size = '4MiB'\n{more}"));
    let (before, less) = ("cache = '2MiB'", "cache = '1MiB'\npolicy = 'arc'\nconnections = 1");
    place.write("undercroft.toml", format!("cache = '3MiB'\n{}{}", a(before), b("cache = '1MiB'")));
    let server = place.serve("-v");
    let (first, second) = (server.connect("a").await, server.connect("a").await);
    for block in 0..512_u64 {
        write(&first, block * 4096, vec![block as u8; 4096]).await.unwrap();
    }
    let same = b("cache = '1MiB'");
    let new =
        |store: &str, more: &str| format!("[[volume]]\nname = 'new'\nstore = '{store}'\n{more}\n");
    let (small, mem) = ("size = '1MiB'\ncache = '512KiB'", "mem:");
    for (others, why) in [
        (b("cache = 'off'"), "cache: changed, which needs a restart"),
        (b("cache = '1MiB'\npolicy = 'lru-ca'"), "policy: changed, which needs a restart"),
        (same.clone() + &new(mem, "size = '1MiB'"), "give it a cache of its own"),
        (same.clone() + &new("file:nowhere/x.img", small), "is not added"),
        (same.clone() + &new("file:wrong.img", "size = '2MiB'\ncache = '512KiB'"), "is not added"),
        (same.clone() + &new("file:b.img", "cache = '512KiB'"), "is not added"),
        // Two new ones, of which the second is refused.
        (same.clone() + &volume("c", small) + &new("file:nowhere/x.img", small), "is not added"),
    ] {
        let settings = format!("cache = '3MiB'\n{}{others}", a(less));
        let log = reload(&place, &server, &settings, "nothing of the new configuration is applied");
        assert!(log.contains(why), "{why}: {log}");
        let (stats, other) = (server.stats("a"), server.stats("b"));
        assert_eq!(stats["capacity_blocks"], 512, "{why}: {log}");
        assert_eq!((&stats["policy"], stats["resident"].as_u64()), (&"auto".into(), Some(512)));
        assert_eq!((&other["capacity_blocks"], &other["policy"]), (&256.into(), &"auto".into()));
        assert_eq!(names(&server).await, ["a", "b"], "{why}");
        assert_eq!(read(&first, 0, 4096).await.unwrap(), vec![0; 4096]);
        assert_eq!(read(&second, 4096, 4096).await.unwrap(), vec![1; 4096]);
        // It can be asked for again at once.
        drop(server.connect("a").await);
    }
    let token = format!("http-token-file = 'nothing'\ncache = '3MiB'\n{}{same}", a(less));
    reload(&place, &server, &token, "nothing of the new configuration is applied");
    assert_eq!(server.count("a", "capacity_blocks"), 512);
    // And what can be done is done.
    let settings = format!("cache = '3MiB'\n{}{same}{}", a(less), new(mem, small));
    reload(&place, &server, &settings, "the volume is added volume=\"new\"");
    assert_eq!(server.count("a", "capacity_blocks"), 256);
    assert_eq!(server.stats("a")["policy"], "arc");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bounds_of_dirty_data_change_at_once() {
    let place = Place::new();
    let settings = |rules: &str| {
        volume(
            "v",
            &format!("size = '1MiB'\ncache = '1MiB'\nwrite = 'back'\ndirty-age-s = 3600\n{rules}"),
        )
    };
    place.write("undercroft.toml", settings("dirty-percent = 100"));
    let server = place.serve("-v");
    let client = server.connect("v").await;
    for block in 0..8 {
        write(&client, block * 4096, vec![1; 4096]).await.unwrap();
    }
    assert_eq!(server.count("v", "dirty"), 8);
    let rules = "dirty-percent = 1\ndirty-max-percent = 1\ndirty-max-age-s = 7200";
    let part = "what may be dirty has changed";
    let log = reload(&place, &server, &settings(rules), part);
    assert!(!log.contains("needs a restart"), "{log}");
    server.wait_for("v", "dirty", |dirty| dirty <= 2);
    let wrong = settings("dirty-percent = 50\ndirty-max-percent = 20");
    reload(&place, &server, &wrong, "dirty-max-percent: less than dirty-percent");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_access_change_at_once() {
    let place = Place::new();
    let keys = Keys::new(&place);
    ["server", "db", "backup", "other"].iter().for_each(|name| keys.issue(name));
    let settings = |rules: &str| {
        format!(
            "[tls]\ncertificate = 'server.pem'\nkey = 'server.key'\nclient-roots = 'root.pem'\n{}",
            volume("v", &format!("size = '1MiB'\n{rules}"))
        )
    };
    place.write("undercroft.toml", settings("clients = ['db', 'backup', 'other']"));
    let server = place.serve("-v");
    let [db, backup, other] = ["db", "backup", "other"].map(|name| keys.client(Some(name)));
    let first = encrypted(&server, "v", &db).await.unwrap();
    let second = encrypted(&server, "v", &backup).await.unwrap();
    let third = encrypted(&server, "v", &other).await.unwrap();
    let rules = "clients = ['db', 'backup']\nwriters = ['db']\nconnections = 1";
    reload(&place, &server, &settings(rules), "who may use it has changed");
    server.wait_for_clients("v", 1);
    // Who may do all that it could before stays; the others have to come again, if they may.
    write(&first, 0, vec![1; 4096]).await.unwrap();
    assert!(read(&second, 0, 4096).await.is_err() && read(&third, 0, 4096).await.is_err());
    assert!(encrypted(&server, "v", &other).await.is_err());
    let full = encrypted(&server, "v", &backup).await;
    assert!(matches!(&full, Err(ClientError::Refused(why)) if why.contains("all 1 connections")));
    let rules = "clients = ['db', 'backup']\nwriters = ['db']\nconnections = 2";
    reload(&place, &server, &settings(rules), "who may use it has changed");
    let second = encrypted(&server, "v", &backup).await.unwrap();
    let denied = write(&second, 0, vec![2; 4096]).await;
    let failure = Failure::NotPermitted;
    assert!(
        matches!(&denied, Err(ClientError::Server { failure: f, .. }) if *f == failure),
        "{denied:?}"
    );
    assert_eq!(read(&second, 0, 4096).await.unwrap(), vec![1; 4096]);
    write(&first, 0, vec![3; 4096]).await.unwrap();
    assert_eq!(server.stop(), 0);
}
