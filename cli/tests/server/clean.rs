//! Ends and beginnings: SIGTERM, a second server, what an unclean end leaves, warm restarts,
//! growing volumes, and settings that make no sense.

use std::time::Duration;

use rustix::process::Signal;

use super::support::{Place, read, seeded, write};

const BLOCK: u64 = 4096;

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_writes_out_what_is_dirty() {
    let place = Place::new();
    let server = place.serve("--volume v=file:v.img,size=8MiB,dirty-age-s=600 --write back");
    let client = server.connect("v").await;
    let mut random = seeded("sigterm");
    let data = random.bytes(1 << 20);
    write(&client, 512, data.clone()).await.unwrap();
    assert_eq!(server.count("v", "dirty"), (1 << 20) / BLOCK + 1);
    assert!(place.read("v.img")[512..][..data.len()] != data, "it was written already");
    // The client stays connected: the server does not wait for it to go.
    assert_eq!(server.stop(), 0);
    assert!(place.read("v.img")[512..][..data.len()] == data);
    assert!(client.flush().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_answers_what_is_in_flight() {
    let place = Place::new();
    let server = place.serve("--volume v=delay(300ms):file:v.img,size=1MiB --write through");
    let client = server.connect("v").await;
    let answers: Vec<_> = (0..8).map(|at| write(&client, at * BLOCK, vec![7; 4096])).collect();
    let answers = tokio::spawn(async move {
        let mut good = 0;
        for answer in answers {
            good += usize::from(answer.await.is_ok());
        }
        good
    });
    server.wait_for("v", "writes", |writes| writes == 8);
    assert_eq!(server.stop(), 0);
    assert_eq!(answers.await.unwrap(), 8);
    assert!(place.read("v.img")[..8 * 4096].iter().all(|&byte| byte == 7));
}

#[test]
fn a_second_server_of_a_file_is_refused() {
    let place = Place::new();
    let server = place.serve("--volume v=file:v.img,size=1MiB");
    let said = place.refused(1, "--volume w=file:v.img --listen unix:other");
    assert!(one_line(&said) && said.contains(&format!("process {}", server.pid())), "{said}");
    // The first does not mind.
    assert_eq!(server.page("/healthz"), "ok\n");
    let said = place.refused(1, "--volume w=file:w.img,size=1MiB --listen unix:socket");
    let (made, why) = said.split_once('\n').unwrap();
    assert!(made.contains("file:w.img did not exist and was created, 1MiB of zeroes"), "{said}");
    assert!(one_line(why) && why.contains("another server listens here"), "{said}");
    assert_eq!(server.stop(), 0);
    // Readers share it, and exclude writers.
    let first = place.serve("--volume a=file:v.img,read-only --volume b=file:v.img,read-only");
    let said = place.refused(1, "--volume w=file:v.img --listen unix:other");
    assert!(said.contains(&format!("process {}", first.pid())), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unclean_end_of_write_back_is_told() {
    const WARNING: &str = "did not end cleanly";
    let place = Place::new();
    let back = "--volume v=file:v.img,size=1MiB --write back --state state";
    let server = place.serve(back);
    assert_eq!(server.stop(), 0);
    let server = place.serve(back);
    assert!(!server.log().contains(WARNING), "{}", server.log());
    server.kill();
    let server = place.serve(back);
    let log = server.log();
    assert_eq!(log.lines().filter(|line| line.contains(WARNING)).count(), 1, "{log}");
    assert!(log.contains("volume=\"v\"") && log.contains("may be lost"), "{log}");
    assert_eq!(server.stop(), 0);
    // Told once, and not after a clean end; and never of write-through.
    place.serve(back).stop();
    let through = back.replace("--write back", "--write through");
    place.serve(&through).kill();
    let server = place.serve(&through);
    assert_eq!(server.log().lines().filter(|line| line.contains(WARNING)).count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_cached_is_cached_after_a_restart() {
    let place = Place::new();
    let serve = "--volume v=file:v.img,size=8MiB,policy=lru --cache 1MiB --state state";
    let server = place.serve(serve);
    let client = server.connect("v").await;
    // Blocks 256 to 511 remain.
    for block in 0..512 {
        read(&client, block * BLOCK, 4096).await.unwrap();
    }
    assert_eq!(server.count("v", "resident"), 256);
    assert_eq!(server.stop(), 0);

    let server = place.serve(serve);
    // All of it is known at once; the data follows.
    assert_eq!(server.count("v", "resident"), 256);
    server.wait_for("v", "unloaded", |unloaded| unloaded == 0);
    server.wait_for("v", "prefetched", |prefetched| prefetched == 256);
    let client = server.connect("v").await;
    for block in 256..512 {
        read(&client, block * BLOCK, 4096).await.unwrap();
    }
    let counts = ["reads", "read_hits", "evictions"].map(|name| server.count("v", name));
    assert_eq!(counts, [256, 256, 0]);
    // And in their order: one block more drives out the one that was read longest ago.
    read(&client, 0, 4096).await.unwrap();
    read(&client, 511 * BLOCK, 4096).await.unwrap();
    assert_eq!(server.count("v", "read_hits"), 257);
    read(&client, 256 * BLOCK, 4096).await.unwrap();
    assert_eq!(server.count("v", "read_hits"), 257);
    assert_eq!(server.stop(), 0);

    // Of another policy it is a list of blocks, which are read again.
    let server = place.serve(&serve.replace("policy=lru", "policy=mq"));
    server.wait_for("v", "prefetched", |prefetched| prefetched == 256);
    assert!(server.log().contains("starts anew"), "{}", server.log());
    assert_eq!(server.stop(), 0);

    // A damaged file is a warning and a cold start, nothing more.
    place.write("state/v.warm", b"damaged");
    let server = place.serve(serve);
    assert!(server.log().contains("v.warm"), "{}", server.log());
    assert_eq!(server.count("v", "resident"), 0);
    assert_eq!(server.stop(), 0);
}

/// Half of a trace, a restart, the other half: what both lives counted is what a simulation of the
/// whole trace counts, whatever the policy has to remember.
#[test]
fn a_restart_in_the_middle_of_a_trace_leaves_no_trace_in_the_counts() {
    const POLICIES: [&str; 9] = [
        "lru",
        "mq",
        "arc",
        "lirs",
        "car",
        "lfu,age=3",
        "clock-pro",
        "s3-fifo",
        "w-tinylfu,sketch=exact",
    ];
    const COUNTS: [&str; 5] = ["reads", "read_hits", "writes", "write_hits", "evictions"];
    let place = Place::new();
    let mut random = seeded("halves");
    // A loop over 300 blocks with a few hot blocks and noise in between, in a cache of 128.
    let lines: Vec<String> = (0..6000_u64)
        .map(|at| {
            let block = match random.below(4) {
                0 => random.below(40),
                1 => 300 + random.below(1500),
                _ => at % 300,
            };
            let op = if random.below(4) == 0 { 'w' } else { 'r' };
            format!("0,{},4096,{op},{at}\n", block * 8)
        })
        .collect();
    let half = lines.len() / 2;
    place.write("whole.spc", lines.concat());
    place.write("first.spc", lines[..half].concat());
    place.write("second.spc", lines[half..].concat());
    let name = |policy: &str| policy.split(',').next().unwrap().to_owned();
    let volume = |policy: &&str| {
        let name = name(policy);
        let size = "size = '16MiB'\ncache = '512KiB'";
        format!("[[volume]]\nname = '{name}'\nstore = 'mem:'\n{size}\npolicy = '{policy}'\n")
    };
    let volumes: String = POLICIES.iter().map(volume).collect();
    place.write("undercroft.toml", format!("state = 'state'\n{volumes}"));
    let mut sums = [[0; 5]; POLICIES.len()];
    for trace in ["first.spc", "second.spc"] {
        let server = place.serve("");
        for (policy, sums) in POLICIES.iter().zip(&mut sums) {
            let to = server.uri(&name(policy));
            let played = place.undercroft(&format!("replay {trace} --to {to}"));
            assert!(played.status.success(), "{}", super::support::text(&played.stderr));
            let stats = server.stats(&name(policy));
            *sums = std::array::from_fn(|i| sums[i] + stats[COUNTS[i]].as_u64().unwrap());
        }
        assert_eq!(server.stop(), 0);
    }
    for (policy, sums) in POLICIES.iter().zip(sums) {
        let output = place.undercroft(&format!("simulate whole.spc --l1 512KiB:{policy} --json"));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let level = &report["levels"][0];
        let whole = COUNTS.map(|count| level[count].as_u64().unwrap());
        assert_eq!(sums, whole, "{policy}: {COUNTS:?}");
        assert!(whole[1] > 0 && whole[4] > 0, "{policy}: nothing happened");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grown_file_is_seen_after_sighup() {
    let place = Place::new();
    // The end is in the middle of a block, which is cached before the file grows.
    let server = place.serve("--volume v=file:v.img,size=1050624 -v");
    let before = server.connect("v").await;
    assert_eq!(before.remote().info.size, 1_050_624);
    write(&before, 1_048_576, vec![5; 2048]).await.unwrap();
    let file = std::fs::File::options().write(true).open(place.path("v.img")).unwrap();
    file.set_len(2 << 20).unwrap();
    assert_eq!(server.connect("v").await.remote().info.size, 1_050_624);
    server.signal(Signal::HUP);
    let mut size = 0;
    for _ in 0..1000 {
        size = server.connect("v").await.remote().info.size;
        if size != 1_050_624 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(size, 2 << 20);
    let after = server.connect("v").await;
    write(&after, (2 << 20) - 4096, vec![6; 4096]).await.unwrap();
    let seam = read(&after, 1_048_576, 4096).await.unwrap();
    assert!(seam[..2048].iter().all(|&b| b == 5) && seam[2048..].iter().all(|&b| b == 0));
    assert!(read(&before, 0, 4096).await.is_ok(), "the old connection goes on");
    assert!(server.log().contains("the volume has grown"), "{}", server.log());
    assert_eq!(server.stats("v")["size_bytes"], 2 << 20);
    assert_eq!(server.stop(), 0);
    assert!(place.read("v.img")[(2 << 20) - 4096..].iter().all(|&byte| byte == 6));
}

/// Whether this is one line of this program, without a trace of its insides.
fn one_line(said: &str) -> bool {
    said.starts_with("undercroft: ") && said.lines().count() == 1 && !said.contains("panicked")
}

#[test]
fn settings_that_make_no_sense_exit_2_with_one_line() {
    let place = Place::new();
    for (arguments, part) in [
        ("", "nothing to serve"),
        ("--volume v=mem:,size=1MiB,policy=fancy", "policy 'fancy'"),
        ("--volume v=mem:,size=1MiB --policy mq,m=many", "'many'"),
        ("--volume v=mem:,size=1MiB --volume v=mem:,size=1MiB", "'v' is there twice"),
        ("--volume v=mem:,size=1MiB --cache 4095", "holds no block of 4KiB"),
        ("--volume v=mem:,size=1MiB --cache lots", "cache 'lots'"),
        ("--volume v=mem:,size=1MiB,cache=2MiB --cache 1MiB", "2MiB of cache"),
        ("--volume v=mem:,size=1MiB --placement sideways", "no placement 'sideways'"),
        ("--volume v=mem:,size=1MiB --write sideways", "write 'sideways'"),
        ("--volume v=mem:,size=1MiB --block 3KiB", "block"),
        ("--volume v=mem:,size=1MiB --block 128KiB", "block"),
        ("--volume v=mem:,size=1MiB --listen 10809", "listen '10809': the host is missing"),
        ("--volume v=mem:,size=1MiB --listen host:99999", "listen 'host:99999': the port is not"),
        ("--volume v=mem:,size=1MiB --listen unix:", "the path is missing"),
        ("--volume v=nothing:", "expected a store"),
        ("--volume v=mem:", "size"),
        ("--volume @v=mem:,size=1MiB", "not beginning with '@'"),
        ("--volume v=mem:,size=1MiB,tls-required", "there is no TLS"),
        ("--volume v=mem:,size=1MiB,client=db", "client-roots"),
        ("--config missing.toml --volume v=mem:,size=1MiB", "missing.toml"),
    ] {
        let said = place.refused(2, arguments);
        assert!(one_line(&said) && said.contains(part), "{arguments}: {said}");
    }
    // What the parser of the command line finds is followed by a line on how to get help.
    for (arguments, part) in [
        ("--volume v", "expected NAME=STORE"),
        ("--volume v=mem:,size=1MiB,connections=x", "'x' is no number"),
        ("--shards x", "'x'"),
        ("--tls-required", "--tls-certificate"),
        ("--fast", "--fast"),
    ] {
        let said = place.refused(2, arguments);
        assert!(said.contains(part) && !said.contains("panicked"), "{arguments}: {said}");
    }
}

#[test]
fn a_damaged_configuration_is_named_with_its_line() {
    let place = Place::new();
    let volume = "[[volume]]\nname = 'v'\nstore = 'mem:'\nsize = '1MiB'\n";
    for (text, parts) in [
        (format!("cache = '1MiB'\nchache = '2MiB'\n{volume}"), ["chache", "line 2"]),
        (format!("{volume}polcy = 'lru'\n"), ["polcy", "line 5"]),
        (format!("cache = 1.5\n{volume}"), ["a size, as", "line 1"]),
        (format!("cache = '1MiB\n{volume}"), ["bad.toml", "line 1"]),
    ] {
        place.write("bad.toml", &text);
        let said = place.refused(2, "--config bad.toml");
        assert!(said.starts_with("undercroft: ") && said.contains("bad.toml"), "{said}");
        assert!(parts.iter().all(|part| said.contains(part)), "{parts:?}: {said}");
        assert!(!said.contains("panicked"), "{said}");
    }
    // The file that lies there is read; what a flag says goes before it.
    place.write("undercroft.toml", format!("policy = 'arc'\nwrite = 'back'\n{volume}"));
    let server = place.serve("--policy lirs");
    assert!(server.announced.contains("policy lirs"), "{}", server.announced);
    assert!(server.announced.contains("write-back"), "{}", server.announced);
}

#[test]
fn what_cannot_be_reached_exits_1() {
    let place = Place::new();
    place.write("file", "");
    for (arguments, part) in [
        ("--volume v=file:nowhere/v.img", "nowhere/v.img"),
        ("--volume v=file:v.img", "v.img"),
        ("--volume v=mem:,size=1MiB --listen unix:nowhere/socket", "nowhere/socket"),
        ("--volume v=mem:,size=1MiB --listen unix:file", "no socket"),
        ("--volume v=mem:,size=1MiB --listen 192.0.2.1:10809", "192.0.2.1:10809"),
        ("--volume v=mem:,size=1MiB --state file/state", "file/state"),
        ("--volume v=mem:,size=1MiB --tls-certificate no.pem --tls-key no.key", "no.pem"),
    ] {
        let listen = if arguments.contains("--listen") { "" } else { "--listen unix:socket" };
        let said = place.refused(1, &format!("{arguments} {listen}"));
        assert!(one_line(&said) && said.contains(part), "{arguments}: {said}");
    }
    for arguments in ["stats http://127.0.0.1:1", "stats nbd+unix:///x?socket=nobody"] {
        let output = place.undercroft(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments}");
        assert!(one_line(&super::support::text(&output.stderr)), "{arguments}");
    }
}

#[test]
fn an_address_in_use_comes_with_advice() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let volume = "--volume v=mem:,size=1MiB";
    for flags in [format!("--listen {address}"), format!("--listen unix:x --http {address}")] {
        let said = place.refused(1, &format!("{volume} {flags}"));
        let flag = flags.rsplit_once("--").unwrap().1;
        assert!(one_line(&said) && said.contains(&format!("--{flag}: ")), "{said}");
        assert!(said.contains("another program listens there") && said.contains("ss -ltnp"));
    }
    let said = place.refused(1, &format!("{volume} --listen 192.0.2.1:10809"));
    assert!(said.contains("this machine does not have that address"), "{said}");
}

#[test]
fn a_typing_error_serves_no_empty_disk() {
    let place = Place::new();
    let said = place.refused(2, "--volume db=file:./db.img,wirte=back,size=1MiB");
    assert!(said.contains("'wirte=back' is not known here") && said.contains("write"), "{said}");
    let said = place.refused(1, "--volume db=file:./db.img,create=no,size=1MiB");
    assert!(one_line(&said) && said.contains("is not to be created (create=no)"), "{said}");
    let said = place.refused(1, "--volume db=file:/dev/undercroft-no-disk,size=1MiB");
    assert!(one_line(&said) && said.contains("no file is created below /dev"), "{said}");
    assert!(!place.path("db.img").exists());

    let volume = "--volume db=concat(file(size=1MiB):\"a,b.img\";object-file(size=1MiB):objects)";
    let server = place.serve(volume);
    for made in
        ["file:a,b.img did not exist and was created, 1MiB of zeroes", "object-file:objects"]
    {
        server.wait_for_log(made);
    }
    assert_eq!(server.stop(), 0);
    let server = place.serve(&format!("{volume},create=no"));
    assert_eq!(server.log().matches("did not exist").count(), 2, "{}", server.log());
    assert_eq!(server.stop(), 0);
}

/// Before anything is opened, in a sentence, and not when the memory is used up.
#[test]
fn a_cache_that_the_machine_cannot_have_is_refused() {
    let place = Place::new();
    for size in ["4TiB", "7TiB"] {
        let said = place.refused(2, &format!("--volume v=file:v.img,size=1MiB --cache {size}"));
        let wanted = format!("caches of {size} need ");
        assert!(one_line(&said) && said.contains(&wanted), "{said}");
        assert!(said.contains(" of memory, and ") && said.contains("give them less"), "{said}");
        assert!(!place.path("v.img").exists());
    }
    // So is one that a reload adds.
    place.write(
        "c.toml",
        "cache = '8TiB'\n[[volume]]\nname = 'a'\nstore = 'mem:'\nsize = '1MiB'\ncache = '1MiB'\n",
    );
    let server = place.serve("--config c.toml");
    let more = "[[volume]]\nname = 'b'\nstore = 'mem:'\nsize = '1MiB'\ncache = '4TiB'\n";
    place.write("c.toml", String::from_utf8(place.read("c.toml")).unwrap() + more);
    server.signal(Signal::HUP);
    server.wait_for_log("give them less (cache, flash)");
    assert_eq!(server.stop(), 0);
}

#[test]
fn what_is_served_is_said_as_it_is() {
    let place = Place::new();
    let server = place.serve(
        "--volume second=delay(2ms..8ms,queue=4):fail(read,n=3):file:b.img,size=1MiB \
         --volume first=concat(mem(1MiB):;mem(1MiB):),read-only,cache=off",
    );
    let lines: Vec<_> = server.announced.lines().collect();
    assert!(lines[0].ends_with("serving nbd+unix:///?socket=socket"), "{lines:?}");
    assert_eq!(lines[1], "  volume  second  1 MiB  file:b.img  write-through  default export");
    assert_eq!(lines[2], "          for tests  delay(2ms..8ms,queue=4)  fail(read,n=3)");
    assert!(lines[3].starts_with("          cache 256 MiB  block 4 KiB  policy auto"), "{lines:?}");
    assert_eq!(lines[4], "          the cache is larger than the volume: less would do");
    let concat = "concat(mem(1MiB):;mem(1MiB):)";
    assert_eq!(lines[5], format!("  volume  first  2 MiB  {concat}  write-through  read-only"));
    assert_eq!(lines[6], "          not cached");
    assert_eq!(server.stop(), 0);
}
