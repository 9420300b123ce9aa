//! A long campaign (`make soak`): random load in every write mode whose every byte is checked,
//! above a level on flash, while the server is killed, stopped and told to reload, connections come
//! and go, and stores fail. `SOAK_MINUTES` says how long; `UNDERCROFT_SEED` how it begins.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use undercroft_nbd::{Client, ClientOptions, Uri};

use super::flash::flash;
use super::kill::{PART, Shared, WRITERS, write_on};
use super::oracle::{BLOCK, Oracle};
use super::support::{Place, Random, Server, read, seeded};

const BLOCKS: usize = PART * WRITERS;

/// What is done beside writing, and what it found.
#[derive(Default)]
struct Beside {
    over: AtomicBool,
    reads: AtomicU64,
    failed_reads: AtomicU64,
    visits: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

/// What all rounds did.
#[derive(Default)]
struct Sum {
    rounds: u64,
    written: u64,
    kills: u64,
    stops: u64,
    reloads: u64,
    reads: u64,
    failed_reads: u64,
    visits: u64,
    flash_hits: u64,
    failures: u64,
    lost: usize,
}

/// How the server of a round is set up.
struct Setup {
    text: String,
    faults: bool,
}

fn setup(random: &mut Random, mode: &str) -> Setup {
    let mut pick = |from: &[&'static str]| from[random.below(from.len() as u64) as usize];
    let block = pick(&["4KiB", "16KiB"]);
    let policy = pick(&["mq", "lru", "arc", "lirs", "2q", "s3-fifo", "car", "clock-pro"]);
    let shards = pick(&["1", "1", "3"]);
    let ahead = pick(&["0", "128KiB"]);
    let store = pick(&[
        "file:v.img",
        "file:v.img",
        "delay(1ms..4ms,queue=4):file:v.img",
        "fail(any,p=0.01):file:v.img",
        "delay(1ms):fail(write,p=0.05):fail(read,p=0.02):file:v.img",
    ]);
    let restart = pick(&["", ",restart=warm", ",restart=warm"]);
    let size = BLOCKS * BLOCK;
    let text = format!(
        "cache = '4MiB'\nstate = 'state'\nflash = 'flash,size=4MiB,budget=off{restart}'\n\
         [[volume]]\nname = 'v'\nstore = '{store}'\n\
         size = '{size}'\ncache = '1MiB'\nblock = '{block}'\npolicy = '{policy}'\n\
         shards = {shards}\nwrite = '{mode}'\nread-ahead = '{ahead}'\ndirty-age-s = 1\n"
    );
    Setup { text, faults: store.contains("fail") }
}

/// Reads single blocks and runs, and checks what comes back against what was answered before.
async fn read_on(client: Client, oracle: Shared, beside: Arc<Beside>, mut random: Random) {
    while !client.is_lost() && !beside.over.load(Ordering::SeqCst) {
        let count = 1 + random.below(12) as usize;
        let start = random.below((BLOCKS - count) as u64) as usize;
        let floors: Vec<_> = {
            let oracle = oracle.lock().unwrap();
            (start..start + count).map(|block| oracle.floor(block)).collect()
        };
        let Ok(bytes) = read(&client, (start * BLOCK) as u64, count * BLOCK).await else {
            beside.failed_reads.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let oracle = oracle.lock().unwrap();
        for (number, bytes) in bytes.chunks(BLOCK).enumerate() {
            if let Err(wrong) = oracle.check_read(start + number, floors[number], bytes) {
                beside.wrong.lock().unwrap().push(wrong);
            }
        }
        beside.reads.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Comes and goes: with a good-bye, or in the middle of its requests.
async fn visit(uri: Uri, beside: Arc<Beside>, mut random: Random) {
    while !beside.over.load(Ordering::SeqCst) {
        let Ok(client) = Client::connect(&uri, &ClientOptions::default()).await else { break };
        for _ in 0..random.below(20) {
            let offset = BLOCK as u64 * random.below(BLOCKS as u64);
            drop(client.read(offset, vec![Box::new(vec![0; BLOCK])]));
        }
        if random.below(2) == 0 {
            client.close().await;
        }
        beside.visits.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(random.below(10))).await;
    }
}

/// Has the server reload for some time, with a volume that comes and goes.
async fn reload_for(place: &Place, server: &Server, setup: &Setup, random: &mut Random) -> u64 {
    let extra = "[[volume]]\nname = 'extra'\nstore = 'file:extra.img'\nsize = '1MiB'\n\
                 cache = '1MiB'\nwrite = 'back'\n";
    let end = Instant::now() + Duration::from_millis(200 + random.below(2500));
    let mut reloads = 0;
    while Instant::now() < end {
        tokio::time::sleep(Duration::from_millis(random.below(200))).await;
        match random.below(3) {
            0 => place.write("undercroft.toml", format!("{}{extra}", setup.text)),
            1 => place.write("undercroft.toml", &setup.text),
            _ => place.write("undercroft.toml", "[[volume"),
        }
        server.signal(Signal::HUP);
        reloads += 1;
    }
    reloads
}

/// One server's life, and what it left.
async fn round(place: &Place, oracle: &Shared, random: &mut Random, setup: &Setup, sum: &mut Sum) {
    place.write("undercroft.toml", &setup.text);
    let server = place.serve("-v");
    let beside = Arc::new(Beside::default());
    let mut tasks = Vec::new();
    for part in 0..WRITERS {
        let (client, random) = (server.connect("v").await, Random::new(random.next_u64()));
        tasks.push(tokio::spawn(write_on(client, part, Arc::clone(oracle), random)));
    }
    for _ in 0..2 {
        let (client, random) = (server.connect("v").await, Random::new(random.next_u64()));
        let (oracle, beside) = (Arc::clone(oracle), Arc::clone(&beside));
        tasks.push(tokio::spawn(read_on(client, oracle, beside, random)));
    }
    let uri = server.uri("v").parse().unwrap();
    tasks.push(tokio::spawn(visit(uri, Arc::clone(&beside), Random::new(random.next_u64()))));
    sum.reloads += reload_for(place, &server, setup, random).await;
    let stats = server.stats("v");
    let count = |name: &str| stats[name].as_u64().unwrap();
    sum.written += count("writes");
    sum.failures += count("read_failures") + count("write_failures");
    sum.flash_hits += flash(&server, "hits");
    beside.over.store(true, Ordering::SeqCst);
    if random.below(3) == 0 {
        sum.stops += 1;
        let code = server.stop();
        assert!(code == 0 || (code == 1 && setup.faults), "it ended with {code}");
    } else {
        sum.kills += 1;
        server.kill();
    }
    for task in tasks {
        task.await.unwrap();
    }
    let wrong = beside.wrong.lock().unwrap().join("\n");
    assert!(wrong.is_empty(), "{wrong}");
    sum.reads += beside.reads.load(Ordering::Relaxed);
    sum.failed_reads += beside.failed_reads.load(Ordering::Relaxed);
    sum.visits += beside.visits.load(Ordering::Relaxed);
}

/// What the volume holds, by a server without faults, compared with what was promised.
async fn check(place: &Place, oracle: &Shared) -> usize {
    let size = BLOCKS * BLOCK;
    let server = place.serve(&format!("--config /dev/null --volume v=file:v.img,size={size}"));
    let served = read(&server.connect("v").await, 0, size).await.unwrap();
    assert!(served == place.read("v.img"), "the server does not serve what the file holds");
    let found = oracle.lock().unwrap().check(&served);
    assert!(found.wrong.is_empty(), "{}", found.wrong);
    assert_eq!(server.stop(), 0);
    found.lost
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make soak"]
async fn campaign() {
    let minutes: f64 = std::env::var("SOAK_MINUTES").map_or(30.0, |text| text.parse().unwrap());
    let mut random = seeded("soak");
    let end = Instant::now() + Duration::from_secs_f64(60.0 * minutes);
    let (mut sum, mut volumes) = (Sum::default(), 0);
    while Instant::now() < end {
        // A new volume now and then; a promise of one mode is not one of another.
        let (place, mode) = (Place::new(), ["back", "through", "around"][volumes % 3]);
        let oracle = Arc::new(Mutex::new(Oracle::new(BLOCKS, mode != "back")));
        volumes += 1;
        for _ in 0..1 + random.below(6) {
            let next = setup(&mut random, mode);
            println!("round {}: {}", sum.rounds, next.text.replace('\n', " "));
            round(&place, &oracle, &mut random, &next, &mut sum).await;
            let lost = check(&place, &oracle).await;
            assert!(lost == 0 || mode == "back", "{lost} blocks lost");
            sum.lost += lost;
            sum.rounds += 1;
            if Instant::now() > end {
                break;
            }
        }
    }
    let Sum { rounds, written, kills, stops, reloads, reads, failed_reads, .. } = sum;
    let flash_hits = sum.flash_hits;
    let _ = writeln!(
        std::io::stderr(),
        "soak: passed: {rounds} rounds in {minutes} min; {written} blocks written, {reads} read \
         and checked, {flash_hits} of them from flash, {kills} kills, {stops} clean ends, \
         {reloads} SIGHUPs, {} visits, {} blocks and {failed_reads} reads failed as they should, \
         {} unflushed blocks lost in back",
        sum.visits,
        sum.failures,
        sum.lost
    );
}
