//! A server with a level on flash: hits over a slow store, the right data, a cold start after
//! `kill -9`, and what `undercroft flash` says of files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::support::{Place, Server, read, seeded, text, write};

pub(super) const BLOCK: u64 = 4096;
pub(super) const BLOCKS: u64 = 256;

/// Reads all blocks in order, each alone, and compares them. Returns how long that took.
pub(super) async fn read_all(server: &Server, data: &[u8]) -> Duration {
    let client = server.connect("v").await;
    let start = Instant::now();
    for block in 0..BLOCKS {
        let bytes = read(&client, block * BLOCK, 4096).await.unwrap();
        assert!(bytes == data[(block * BLOCK) as usize..][..4096], "block {block}");
    }
    start.elapsed()
}

/// What the volume `v` has counted of its level.
pub(super) fn flash(server: &Server, name: &str) -> u64 {
    server.stats("v")["flash"][name].as_u64().unwrap()
}

/// How often the server's I/O threads have waited for work.
fn waits_of_io_threads(server: &Server) -> u64 {
    let threads = fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
    let waits = threads.map(|thread| {
        // Threads of other kinds may end at any time.
        let of = |name: &str| fs::read_to_string(thread.as_ref().unwrap().path().join(name));
        if of("comm").is_ok_and(|name| name != "undercroft-io\n") {
            return 0;
        }
        let status = of("status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.map_or(0, |number| number.trim().parse::<u64>().unwrap())
    });
    waits.sum()
}

/// Whether one of the server's threads has a ring.
fn has_ring(server: &Server) -> bool {
    let files = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let mut names = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
    names.any(|name| name == Path::new("anon_inode:[io_uring]"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_on_flash_spares_a_slow_store_its_reads() {
    let place = Place::new();
    let mut data = seeded("flash").bytes((BLOCKS * BLOCK) as usize);
    place.write("v.img", &data);
    let arguments = "--flash flash,size=4MiB,budget=off --volume \
                     v=delay(5ms):file:v.img,cache=128KiB,policy=lru";
    let server = place.serve(arguments);
    // Blocks that came back go to flash when they leave memory the second time.
    read_all(&server, &data).await;
    read_all(&server, &data).await;
    let from_store = server.count("v", "store_reads");
    assert_eq!((flash(&server, "hits"), from_store), (0, 2 * BLOCKS));
    read_all(&server, &data).await;
    let (from_store, waits) = (server.count("v", "store_reads"), waits_of_io_threads(&server));
    let with = read_all(&server, &data).await;
    assert_eq!(server.count("v", "store_reads"), from_store);
    match has_ring(&server) {
        true => assert!(waits_of_io_threads(&server) - waits < BLOCKS / 2, "threads were woken"),
        false => println!("skipped: no io_uring here"),
    }
    assert!(flash(&server, "hits") >= BLOCKS && flash(&server, "given_up") == 0);
    println!("{BLOCKS} reads from flash: {with:?}");
    assert!(with < Duration::from_millis(5 * BLOCKS), "{with:?}");

    let client = server.connect("v").await;
    let new = seeded("flash, again").bytes(4096);
    for block in [3, 77, 200] {
        let at = (block * BLOCK) as usize;
        data[at..at + 4096].copy_from_slice(&new);
        write(&client, block * BLOCK, new.clone()).await.unwrap();
    }
    read_all(&server, &data).await;
    assert_eq!(flash(&server, "ended"), 3);
    assert!(server.page("/metrics").contains("undercroft_flash_hit_blocks_total"));
    drop(client);

    server.kill();
    let server = place.serve(arguments);
    read_all(&server, &data).await;
    assert_eq!((flash(&server, "hits"), flash(&server, "reads")), (0, BLOCKS));
    assert_eq!(server.stop(), 0);
}

/// What a person sees of it, before and after the file fails.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_seen_what_flash_does_and_when_it_is_used_no_more() {
    let place = Place::new();
    let data = seeded("seen").bytes((BLOCKS * BLOCK) as usize);
    place.write("v.img", &data);
    let server = place.serve(
        "--flash flash,size=4MiB,budget=off \
         --volume v=file:v.img,cache=128KiB,policy=lru,flash=2MiB \
         --volume none=mem:,size=1MiB,block=64KiB,cache=512KiB,shards=2,flash=64KiB",
    );
    for _ in 0..4 {
        read_all(&server, &data).await;
    }
    let top = || {
        let output = place.undercroft(&format!("top --plain --count 1 {}", server.http()));
        text(&output.stdout)
    };
    let said = top();
    assert!(said.contains(" Flash served ") && !said.contains("  v: its flash"), "{said}");
    // Its part has no slot for one of the shards.
    assert_eq!(server.stats("none")["flash"]["up"], 0);
    assert!(said.contains("  none: its flash is not used; the log says why"), "{said}");

    fs::File::options().write(true).open(place.path("flash")).unwrap().set_len(4096).unwrap();
    read_all(&server, &data).await;
    assert!(flash(&server, "up") == 0 && flash(&server, "failed_reads") >= 16);
    let said = top();
    assert!(said.contains("  v: its flash is not used; the log says why"), "{said}");
    // The store answers, and that is what health is about.
    assert!(said.contains("Healthy: 2 volumes served"), "{said}");
    assert_eq!(server.stop(), 0);
}

/// Waits until so many blocks would be found after a restart.
/// Waits until so many copies count after a restart.
pub(super) async fn until_durable(server: &Server, least: u64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while flash(server, "durable") < least {
        assert!(Instant::now() < deadline, "{} blocks are durable", flash(server, "durable"));
        // What the store may still lose is not entered.
        server.connect("v").await.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Warm after `kill -9` and after an end in order, with what was written last; cold after somebody
/// else has changed the store, or without `restart=warm`.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_what_lay_on_flash() {
    let place = Place::new();
    let mut data = seeded("restart").bytes((BLOCKS * BLOCK) as usize);
    place.write("v.img", &data);
    let volume = "--volume v=file:v.img,cache=128KiB,policy=lru";
    let warm = format!("--flash flash,size=4MiB,budget=off,restart=warm {volume}");
    let mut server = place.serve(&warm);
    for _ in 0..3 {
        read_all(&server, &data).await;
    }
    until_durable(&server, BLOCKS / 2).await;
    for round in 0..3 {
        let client = server.connect("v").await;
        let new = seeded("restart, again").bytes(4096);
        for block in [3 + round, 77, 200] {
            let at = (block * BLOCK) as usize;
            data[at..at + 4096].copy_from_slice(&new);
            write(&client, block * BLOCK, new.clone()).await.unwrap();
        }
        drop(client);
        let durable = flash(&server, "durable");
        if round == 1 {
            assert_eq!(server.stop(), 0);
        } else {
            server.kill();
        }
        let info = text(&place.undercroft("flash info flash").stdout);
        assert!(info.contains("3MiB of volume v, in blocks of 4KiB"), "{info}");
        server = place.serve(&warm);
        let found = flash(&server, "durable");
        assert!(found >= durable.min(BLOCKS / 2), "round {round}: {found} of {durable}");
        read_all(&server, &data).await;
        let hits = flash(&server, "hits");
        assert!(hits >= found / 2, "round {round}: {hits} hits of {found}");
        read_all(&server, &data).await;
        until_durable(&server, BLOCKS / 2).await;
    }
    assert_eq!(server.stop(), 0);

    // What the drive has changed is found without a server, too.
    let check = || {
        let output = place.undercroft("flash check flash");
        (output.status.code(), text(&output.stdout))
    };
    let (code, said) = check();
    assert!(code == Some(0) && said.ends_with(" blocks, 0 damaged\n"), "{said}");
    let good = place.read("flash");
    let mut bad = good.clone();
    // In the midst of the slots.
    bad[3 << 20..].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(place.path("flash"), bad).unwrap();
    let (code, said) = check();
    assert!(code == Some(1) && !said.ends_with(" blocks, 0 damaged\n"), "{said}");
    fs::write(place.path("flash"), good).unwrap();

    data[..4096].copy_from_slice(&seeded("somebody else").bytes(4096));
    place.write("v.img", &data);
    let server = place.serve(&warm);
    assert_eq!(flash(&server, "durable"), 0);
    read_all(&server, &data).await;
    assert_eq!(flash(&server, "hits"), 0);
    assert_eq!(server.stop(), 0);

    let cold = place.serve(&format!("--flash flash,size=4MiB {volume}"));
    assert_eq!(flash(&cold, "durable"), 0);
    assert_eq!(cold.stop(), 0);
    let server = place.serve(&warm);
    assert_eq!(flash(&server, "durable"), 0, "it lies there no more");
    assert_eq!(server.stop(), 0);
}

/// What lay below another file is not read, though that was changed when this one would have been:
/// the device was moved to another store, or the file replaced by another one of the same name.
#[tokio::test(flavor = "multi_thread")]
async fn what_lay_below_another_file_is_not_read() {
    for same_name in [false, true] {
        let place = Place::new();
        let mut random = seeded("another file");
        let mut images = || random.bytes((BLOCKS * BLOCK) as usize);
        let (data, other) = (images(), images());
        place.write("v.img", &data);
        let warm = |name: &str| {
            let level = "--flash flash,size=4MiB,budget=off,restart=warm";
            place.serve(&format!("{level} --volume v=file:{name},cache=128KiB,policy=lru"))
        };
        let server = warm("v.img");
        for _ in 0..3 {
            read_all(&server, &data).await;
        }
        until_durable(&server, BLOCKS / 2).await;
        // From now on a change within two seconds is taken for this server's own.
        write(&server.connect("v").await, 0, data[..4096].to_vec()).await.unwrap();
        place.write("other.img", &other);
        if same_name {
            fs::rename(place.path("other.img"), place.path("v.img")).unwrap();
        }
        server.kill();
        let server = warm(if same_name { "v.img" } else { "other.img" });
        read_all(&server, &other).await;
        assert_eq!((flash(&server, "durable"), flash(&server, "hits")), (0, 0));
        assert_eq!(server.stop(), 0);
    }
}

/// A volume grows above its level: what lies there stays right, also for the next server.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_grows_above_its_level() {
    let place = Place::new();
    let data = seeded("grows").bytes((BLOCKS * BLOCK) as usize);
    place.write("v.img", &data);
    let arguments = "--flash flash,size=4MiB,budget=off,restart=warm \
                     --volume v=file:v.img,cache=128KiB,policy=lru -v";
    let server = place.serve(arguments);
    for _ in 0..3 {
        read_all(&server, &data).await;
    }
    until_durable(&server, BLOCKS / 2).await;
    let file = fs::File::options().write(true).open(place.path("v.img")).unwrap();
    file.set_len(2 * BLOCKS * BLOCK).unwrap();
    server.reload("the volume has grown");
    let hits = flash(&server, "hits");
    read_all(&server, &data).await;
    assert!(flash(&server, "hits") > hits + BLOCKS / 2);
    let client = server.connect("v").await;
    for _ in 0..3 {
        for block in BLOCKS..2 * BLOCKS {
            let bytes = read(&client, block * BLOCK, 4096).await.unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "block {block}");
        }
    }
    write(&client, BLOCKS * BLOCK, vec![9; 4096]).await.unwrap();
    client.flush().await.unwrap();
    server.kill();
    let server = place.serve(arguments);
    read_all(&server, &data).await;
    let client = server.connect("v").await;
    assert_eq!(read(&client, BLOCKS * BLOCK, 4096).await.unwrap(), vec![9; 4096]);
    assert_eq!(server.stop(), 0);
}

/// A TRIM of a terabyte waits for the ends of what lay on flash, and not for what did not.
#[tokio::test(flavor = "multi_thread")]
async fn a_trim_of_a_terabyte_ends_what_lay_on_flash() {
    const APART: u64 = (1 << 40) / BLOCKS;
    let place = Place::new();
    let arguments = "--flash flash,size=4MiB,budget=off,restart=warm \
                     --volume v=file:v.img,size=1TiB,cache=128KiB,policy=lru";
    let server = place.serve(arguments);
    let client = server.connect("v").await;
    for block in 0..BLOCKS {
        write(&client, block * APART, vec![7; 4096]).await.unwrap();
    }
    let read_all = async |server: &Server, byte: u8| {
        let client = server.connect("v").await;
        for block in 0..BLOCKS {
            let bytes = read(&client, block * APART, 4096).await.unwrap();
            assert!(bytes.iter().all(|&found| found == byte), "block {block}");
        }
    };
    for _ in 0..3 {
        read_all(&server, 7).await;
    }
    until_durable(&server, BLOCKS / 2).await;
    let began = Instant::now();
    for gibibyte in 0..1024 {
        client.trim(gibibyte << 30, 1 << 30, false).await.unwrap();
    }
    println!("a terabyte is trimmed in {:?}", began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_eq!(flash(&server, "durable"), 0);
    read_all(&server, 0).await;
    drop(client);
    server.kill();
    let server = place.serve(arguments);
    read_all(&server, 0).await;
    assert_eq!(server.stop(), 0);
}

/// Flash has only copies: a server whose device has gone starts, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_starts_without_its_device() {
    let place = Place::new();
    let mut data = seeded("no device").bytes((BLOCKS * BLOCK) as usize);
    place.write("v.img", &data);
    let server = place.serve(
        "--flash /dev/undercroft-nothing,size=64MiB --volume v=file:v.img,cache=128KiB,policy=lru",
    );
    for _ in 0..3 {
        read_all(&server, &data).await;
    }
    let new = seeded("no device, again").bytes(4096);
    data[..4096].copy_from_slice(&new);
    write(&server.connect("v").await, 0, new).await.unwrap();
    read_all(&server, &data).await;
    assert_eq!((flash(&server, "up"), flash(&server, "capacity_blocks")), (0, 0));
    // What the alert rule looks at.
    assert!(server.page("/metrics").contains("undercroft_flash_using_shards{volume=\"v\"} 0"));
    let log = server.log();
    assert!(log.contains("flash /dev/undercroft-nothing: there is no such device"), "{log}");
    assert!(log.contains("ERROR") && log.contains("undercroft flash add"), "{log}");
    assert_eq!(server.stop(), 0);
    assert!(place.read("v.img") == data && !Path::new("/dev/undercroft-nothing").exists());
}

#[test]
fn nothing_else_is_overwritten() {
    let place = Place::new();
    let said = |arguments: &str| {
        let output = place.undercroft(arguments);
        (output.status.code(), text(&output.stdout) + &text(&output.stderr))
    };
    place.write("disk.img", vec![7; 4 << 20]);
    let volume = "--listen 127.0.0.1:0 --flash disk.img,size=2MiB --volume v=mem:,size=1MiB";
    let why = place.refused(2, volume);
    assert!(why.contains("holds something else") && why.contains("undercroft flash format"));
    let (code, why) = said("flash format disk.img --size 4MiB");
    assert!(code == Some(1) && why.contains("--force"), "{why}");
    assert_eq!(place.read("disk.img"), vec![7; 4 << 20]);
    assert!(said("flash info disk.img").1.contains("not for flash"));
    assert_eq!(said("flash format disk.img --size 4MiB --force").0, Some(0));
    assert!(said("flash info disk.img").1.contains("4MiB for flash"));
    let server = place.serve("--flash disk.img,size=4MiB --volume v=mem:,size=1MiB");
    let why = place.refused(1, volume);
    assert!(why.contains("in use"), "{why}");
    assert_eq!(server.stop(), 0);
    // A device with a wrong name becomes no file in memory.
    let (code, why) = said("flash format /dev/undercroft-nothing --size 4MiB");
    assert!(code == Some(1) && why.contains("below /dev"), "{why}");
    assert!(!Path::new("/dev/undercroft-nothing").exists());
    // Others may not read in a new one what they may not read in the files.
    assert_eq!(said("flash format new --size 4MiB").0, Some(0));
    let mode = fs::metadata(place.path("new")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

/// The device goes and comes back while a client reads and writes, and a volume gets other parts of
/// it: the data are right, a device that is removed is closed, and what comes begins empty.
#[tokio::test(flavor = "multi_thread")]
async fn it_comes_and_goes_while_a_client_works() {
    for restart in ["cold", "warm"] {
        let place = Place::new();
        let mut random = seeded("comes and goes");
        let mut data = random.bytes((BLOCKS * BLOCK) as usize);
        place.write("v.img", &data);
        let configure_parts = |flash: &str, rest: &str| {
            let volume = "[[volume]]\nname = 'v'\nstore = 'file:v.img'\npolicy = 'lru'\n";
            place.write("undercroft.toml", format!("cache = '1MiB'\n{flash}{volume}{rest}"));
        };
        let configure = |flash: &str| {
            let part = if flash.is_empty() { "" } else { "flash = '2MiB'\n" };
            configure_parts(flash, &format!("cache = '128KiB'\n{part}"));
        };
        let option =
            |name: &str| format!("flash = '{name},size=4MiB,budget=off,restart={restart}'\n");
        configure(&option("flash"));
        let server = place.serve("-v");
        let is_open = |name: &str| {
            let files = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
            let mut targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
            targets.any(|target| target == place.path(name))
        };
        let order =
            |what: &str| text(&place.undercroft(&format!("{what} {}", server.uri(""))).stdout);
        let mut work = async |hits: bool, what: &str| {
            let before = server.stats("v")["flash"]["hits"].as_u64().unwrap_or(0);
            for round in 0..4 {
                let client = server.connect("v").await;
                for block in 0..8 {
                    let at = (block * 30 + round) * BLOCK;
                    let new = random.bytes(4096);
                    data[at as usize..][..4096].copy_from_slice(&new);
                    write(&client, at, new).await.unwrap();
                }
                drop(client);
                read_all(&server, &data).await;
            }
            let now = server.stats("v")["flash"]["hits"].as_u64().unwrap_or(0);
            assert_eq!(now > before, hits, "{restart}, {what}: {before} and {now} hits");
        };
        work(true, "at first").await;

        let said = order("flash remove");
        assert!(said.contains("flash flash: removed, and closed\n"), "{said}");
        assert!(!is_open("flash") && server.stats("v")["flash"].is_null());
        work(false, "removed").await;
        let refused = |what: &str| {
            let output = place.undercroft(&format!("{what} {}", server.uri("")));
            assert_eq!(output.status.code(), Some(1));
            text(&output.stderr)
        };
        let said = refused("flash remove");
        assert!(said.contains("flash flash is not used now"), "{said}");
        fs::remove_file(place.path("flash")).unwrap();
        let said = order("flash add");
        assert!(said.contains("flash flash: added, and empty\n"), "{said}");
        assert!(is_open("flash"));
        work(true, "added").await;
        let said = refused("flash add");
        assert!(said.contains("remove it first"), "{said}");
        // A mount point may be empty.
        assert!(order("flash remove").contains("removed, and closed\n"));
        fs::remove_file(place.path("flash")).unwrap();
        let log = server.reload("reloaded");
        assert!(log.contains("flash") && !place.path("flash").exists(), "{log}");
        assert!(order("flash add").contains("added, and empty\n"));
        work(true, "added again").await;

        let set = |what: &str| place.undercroft(&format!("set {} v {what}", server.uri("")));
        let hits = flash(&server, "hits");
        assert!(set("flash=2MiB").status.success() && flash(&server, "hits") == hits, "as it was");
        assert!(set("flash=off").status.success());
        work(false, "off").await;
        let said = text(&set("flash=4MiB").stderr);
        assert!(
            said.contains("it asks for 4MiB of flash, and the largest piece for it has 3MiB"),
            "{said}"
        );
        let said = text(&set("flash=default").stderr);
        assert!(said.contains("flash: a size, or off"), "{said}");
        assert!(set("flash=1MiB").status.success());
        assert!((240..=256).contains(&flash(&server, "capacity_blocks")));
        work(true, "less").await;
        // Requests of the part that goes are under way, and the next one needs its place.
        let client = server.connect("v").await;
        let reader = tokio::spawn(async move {
            for block in (0..BLOCKS).cycle() {
                read(&client, block * BLOCK, 4096).await.unwrap();
            }
        });
        for round in 0..8 {
            let set = set(if round % 2 == 0 { "flash=3MiB" } else { "flash=2MiB" });
            assert!(set.status.success(), "{}", text(&set.stderr));
        }
        reader.abort();
        work(true, "again and again").await;

        // What cannot be opened changes nothing.
        for wrong in [option("flash").replace("4MiB", "64MiB"), option("nowhere/flash")] {
            configure(&wrong);
            let log = server.reload("reloaded");
            assert!(log.contains("nothing of the new configuration is applied"), "{log}");
            work(true, "as before").await;
        }
        configure(&option("other"));
        server.reload("reloaded");
        assert!(!is_open("flash") && is_open("other"));
        work(true, "another").await;
        // Cache and flash at once, which stay so when nothing changes any more.
        configure_parts(&option("other"), "cache = '192KiB'\nflash = '1MiB'\n");
        server.reload("reloaded");
        work(true, "with another cache").await;
        let hits = flash(&server, "hits");
        server.reload("reloaded");
        assert!(flash(&server, "hits") >= hits, "the level begins anew");
        configure("");
        let log = server.reload("reloaded");
        assert!(log.contains("flash other: is used no more"), "{log}");
        assert!(!is_open("other"));
        work(false, "none").await;
        // What a killed server leaves is nothing that the next one takes for good.
        configure(&option("flash"));
        server.reload("reloaded");
        work(true, "again").await;
        server.kill();
        let server = place.serve("-v");
        read_all(&server, &data).await;
        assert_eq!(server.stop(), 0);
    }
}
