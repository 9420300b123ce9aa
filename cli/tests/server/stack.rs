//! Servers on top of one another that tell each other what leaves their caches: two and three
//! processes count what the simulator's levels count, and lose nothing when one of them dies or
//! the way between them is cut.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::copy;
use tokio::net::{UnixListener, UnixStream};
use undercroft_nbd::Client;

use super::oracle::{BLOCK, Oracle};
use super::support::{PATIENCE, Place, Random, Server, read, seeded, text, write};

/// Blocks of the trace that is played, and of each cache from the top.
const BLOCKS: u64 = 600;
pub(super) const SIZES: [u64; 3] = [60, 90, 120];

/// Settings of a server in a stack: its cache, and the rest.
pub(super) fn volume(store: &str, blocks: u64, more: &str) -> String {
    let cache = blocks * BLOCK as u64;
    format!("--volume v={store},cache={cache},{more} --cache {cache}")
}

pub(super) fn number(stats: &Value, group: &str, name: &str) -> u64 {
    let value = if group.is_empty() { &stats[name] } else { &stats[group][name] };
    value.as_u64().unwrap_or_else(|| panic!("no {group} {name} in {stats}"))
}

const NAMES: [&str; 5] = ["reads", "read_hits", "writes", "write_hits", "evictions"];

/// What came to a level: evictions of the level above that became known, reloads, demotions. From
/// the third level on the last two together: a block that is written without having been read may
/// be in two caches above, and of one that leaves for the second time no data is taken.
fn placed(level: usize, [known, reloads, demotions]: [u64; 3]) -> Vec<u64> {
    match level {
        0 => vec![],
        1 => vec![known, reloads, demotions],
        _ => vec![known, reloads + demotions],
    }
}

fn counted(server: &Server, level: usize) -> Vec<u64> {
    let stats = server.stats("v");
    let mut all = NAMES.map(|name| number(&stats, "", name)).to_vec();
    if level > 0 {
        let names = ["known_evictions", "reloads", "demotions_in"];
        all.extend(placed(level, names.map(|name| number(&stats, "cooperation", name))));
    }
    all
}

fn promised(report: &Value, level: usize) -> Vec<u64> {
    let of_level = |name| number(&report["levels"][level], "", name);
    let mut all = NAMES.map(of_level).to_vec();
    all.extend(placed(level, ["known_evictions", "reloads", "demotions_in"].map(of_level)));
    all
}

/// Waits until all servers of a stack, from the top, have counted what was promised: what no
/// request takes along comes a little later.
fn wait_for(servers: &[&Server], report: &Value, what: &str) {
    let deadline = Instant::now() + PATIENCE / 4;
    for (level, server) in servers.iter().enumerate() {
        let wanted = promised(report, level);
        assert!(level > 0 || wanted[1] > 0, "{what}: nothing hits");
        while counted(server, level) != wanted {
            let found = counted(server, level);
            let (stats, late) = (server.stats("v"), Instant::now() > deadline);
            assert!(!late, "{what}, level {level}: {found:?}, not {wanted:?}: {stats}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A trace in a folder, and its block size.
pub(super) struct Trace {
    place: Place,
    path: PathBuf,
}

impl Trace {
    pub(super) fn generated() -> Trace {
        let place = Place::new();
        let zipf = format!("zipf,blocks={BLOCKS},requests=6000,writes=0.25,alpha=0.7");
        let made = place.undercroft(&format!("trace generate {zipf} -o t.csv"));
        assert!(made.status.success(), "{}", text(&made.stderr));
        let path = place.path("t.csv");
        Trace { place, path }
    }

    /// The first records of the OLTP trace, where it is.
    pub(super) fn oltp() -> Option<Trace> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let shared = std::env::var_os("UNDERCROFT_TRACES")
            .map_or_else(|| root.join("../shared/traces"), PathBuf::from);
        let whole = shared.join("arc/OLTP.lis.zst");
        if !whole.exists() {
            println!("skipped: {} is not there", whole.display());
            return None;
        }
        let place = Place::new();
        let whole = whole.canonicalize().unwrap();
        let made = place.undercroft(&format!("trace convert {} -o whole.lis", whole.display()));
        assert!(made.status.success(), "{}", text(&made.stderr));
        let whole = text(&place.read("whole.lis"));
        let first: Vec<_> = whole.lines().take(20_000).collect();
        place.write("t.lis", first.join("\n"));
        let path = place.path("t.lis");
        Some(Trace { place, path })
    }

    /// What the simulator says of the levels.
    pub(super) fn simulate(&self, levels: &str, placement: &str) -> Value {
        let path = self.path.display();
        let asked = format!("simulate {path} --block 4KiB {levels} --placement {placement} --json");
        let said = self.place.undercroft(&asked);
        assert!(said.status.success(), "{asked}: {}", text(&said.stderr));
        serde_json::from_slice(&said.stdout).unwrap()
    }

    pub(super) fn play(&self, server: &Server, more: &str) -> Value {
        let (path, uri) = (self.path.display(), server.uri("v"));
        let asked = format!("replay {path} --to {uri} --block 4KiB --verify --json {more}");
        let said = self.place.undercroft(&asked);
        assert!(said.status.success(), "{asked}: {}", text(&said.stderr));
        serde_json::from_slice(&said.stdout).unwrap()
    }
}

pub(super) const STORE: &str = "file:v.img,size=4GiB";

/// Two servers: one that places at the access above one that places at the eviction.
fn two(trace: &Trace, policies: [&str; 2], sizes: [u64; 2], placement: &str, report: &str) {
    let what = format!("{policies:?}, {placement}, {report}");
    let (above, below) = (Place::new(), Place::new());
    let lower = format!("policy={},placement={placement},reloads=at-once", policies[1]);
    let lower = below.serve(&volume(STORE, sizes[1], &lower));
    let upper = format!("policy={},report={report},batch=1", policies[0]);
    let upper = above.serve(&volume(&lower.uri("v"), sizes[0], &upper));
    trace.play(&upper, "--single");
    let levels =
        format!("--l1 {}blk:{} --l2 {}blk:{}", sizes[0], policies[0], sizes[1], policies[1]);
    let report = trace.simulate(&levels, placement);
    wait_for(&[&upper, &lower], &report, &what);
    let stats = upper.stats("v");
    let tells = |name| number(&stats, "tells", name);
    assert_eq!(tells("evictions"), number(&stats, "", "evictions"), "{what}");
    let never = ["messages_refused", "lost", "unheard"].map(tells);
    assert_eq!((never, tells("listening")), ([0; 3], 1), "{what}");
    let handed_over = if placement == "gl" { tells("evictions") } else { 0 };
    assert_eq!(tells("handed_over"), handed_over, "{what}");
    let metrics = upper.page("/metrics");
    let line = format!("undercroft_tells_evictions_total{{volume=\"v\"}} {}", tells("evictions"));
    assert!(metrics.contains(&line), "{metrics}");
    let shown = text(&above.undercroft(&format!("stats {}", upper.http())).stdout);
    assert!(shown.contains("told below"), "{shown}");
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

#[test]
fn two_servers_count_what_two_levels_count() {
    let trace = Trace::generated();
    let sizes = [SIZES[0], SIZES[1]];
    for policies in [["lru", "mq"], ["mq", "lru"]] {
        two(&trace, policies, sizes, "eviction", "evictions");
        two(&trace, policies, sizes, "gl", "demotions");
    }
    if let Some(trace) = Trace::oltp() {
        two(&trace, ["lru", "mq"], [500, 1000], "gl", "demotions");
        two(&trace, ["lru", "lru"], [500, 1000], "eviction", "evictions");
    }
}

/// The counters of the upper server come down, too, and by themselves if nothing else does.
#[test]
fn the_server_below_shows_the_cache_above() {
    let (trace, above, below) = (Trace::generated(), Place::new(), Place::new());
    let lower = below.serve(&volume(STORE, SIZES[1], "policy=mq,placement=eviction"));
    let upper = "policy=arc,report=evictions";
    let upper = above.serve(&volume(&lower.uri("v"), SIZES[0], upper));
    trace.play(&upper, "--single");
    let stats = upper.stats("v");
    let shown = || lower.stats("v")["client_caches"][0].clone();
    let deadline = Instant::now() + PATIENCE;
    while shown()["reads"] != stats["reads"] {
        assert!(Instant::now() < deadline, "{} of {stats}", shown());
        std::thread::sleep(Duration::from_millis(20));
    }
    let cache = shown();
    for name in NAMES {
        assert!(cache[name] == stats[name] && number(&stats, "", name) > 0, "{name}: {cache}");
    }
    assert_eq!((&cache["capacity_blocks"], &cache["policy"]), (&SIZES[0].into(), &"arc".into()));
    assert!(number(&cache, "", "read_us_total") > 0, "{cache}");
    let table = text(&below.undercroft(&format!("stats {}", lower.http())).stdout);
    let row = table.lines().find(|line| line.contains(" arc "));
    let hits = 100.0 * number(&stats, "", "read_hits") as f64 / number(&stats, "", "reads") as f64;
    assert!(row.is_some_and(|row| row.contains(&format!(" {hits:.2} %"))), "{hits}: {table}");
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// Three servers: what the middle one is sent and drives out goes down to the last.
fn three(trace: &Trace, policies: [&str; 3], sizes: [u64; 3], placement: &str) {
    let what = format!("{policies:?}, {placement}");
    let places = [Place::new(), Place::new(), Place::new()];
    let gl =
        |level: usize| format!("policy={},placement={placement},reloads=at-once", policies[level]);
    let tells = "report=demotions,batch=1";
    let last = places[2].serve(&volume(STORE, sizes[2], &gl(2)));
    let middle = places[1].serve(&volume(&last.uri("v"), sizes[1], &format!("{},{tells}", gl(1))));
    let first = format!("policy={},{tells}", policies[0]);
    let first = places[0].serve(&volume(&middle.uri("v"), sizes[0], &first));
    trace.play(&first, "--single");
    let levels: Vec<_> =
        (0..3).map(|i| format!("--l{} {}blk:{}", i + 1, sizes[i], policies[i])).collect();
    let report = trace.simulate(&levels.join(" "), placement);
    wait_for(&[&first, &middle, &last], &report, &what);
    assert!(number(&report["levels"][2], "", "read_hits") > 0, "{what}: nothing hits at the end");
    assert_eq!((first.stop(), middle.stop(), last.stop()), (0, 0, 0));
}

#[test]
fn three_servers_count_what_three_levels_count() {
    let trace = Trace::generated();
    three(&trace, ["lru", "lru", "lru"], SIZES, "gl");
    three(&trace, ["lru", "mq", "mq"], SIZES, "gl");
    three(&trace, ["mq", "lru", "mq"], SIZES, "gl,order=demote-first");
    if let Some(trace) = Trace::oltp() {
        three(&trace, ["lru", "mq", "lru"], [300, 500, 800], "gl");
    }
}

#[test]
fn who_does_not_listen_is_refused_at_the_start() {
    let (above, below) = (Place::new(), Place::new());
    let lower =
        below.serve("--volume v=mem:,size=1MiB,placement=eviction --volume a=mem:,size=1MiB");
    let refused = |volume: String, reason: &str| {
        let said = above.refused(2, &format!("--volume {volume}"));
        assert!(said.contains(reason), "{said}");
    };
    let (v, a) = (lower.uri("v"), lower.uri("a"));
    refused("v=mem:,size=1MiB,report=evictions".into(), "nobody listens at mem:");
    refused(format!("v=delay(1ms):{v},report=evictions"), "with nothing in front");
    refused(format!("v={a},report=evictions"), "asked for evict, got");
    refused(format!("v={v},block=8KiB,report=evictions"), "in blocks of 4096 bytes");
    refused(format!("v={v},report=everything"), "expected nothing, evictions or demotions");
    // From the file and the environment as well.
    above.write("v.toml", format!("[[volume]]\nname='v'\nstore='{v}'\nreport='demotions'\n"));
    let upper = above.serve("--config v.toml");
    assert_eq!(number(&upper.stats("v"), "tells", "listening"), 1);
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// Writes every second block and reads the others, then looks whether the written ones are as they
/// should be.
pub(crate) async fn use_half(client: &Client, blocks: u64, byte: u8, what: &str) {
    for block in 0..blocks {
        let at = block * BLOCK as u64;
        if block % 2 == 0 {
            write(client, at, vec![byte; BLOCK]).await.unwrap();
            client.flush().await.unwrap();
        } else {
            read(client, at, BLOCK).await.unwrap();
        }
    }
    for block in (0..blocks).step_by(2) {
        let found = read(client, block * BLOCK as u64, BLOCK).await.unwrap();
        assert!(found == vec![byte; BLOCK], "{what}: block {block} of {byte}: {}", found[0]);
    }
}

/// The server below is killed and comes back: the data is right all the time, and what leaves is
/// told again. While it takes no hints everything else goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_that_comes_back_listens_again() {
    for (mode, report) in [("through", "demotions,batch=1"), ("back,dirty-age-s=1", "evictions")] {
        let (above, below) = (Place::new(), Place::new());
        let placed = volume("file:v.img,size=1MiB", 32, "policy=lru,placement=gl");
        let lower = below.serve(&placed);
        let upper =
            volume(&lower.uri("v"), 16, &format!("policy=lru,write={mode},report={report}"));
        let upper = above.serve(&upper);
        let client = upper.connect("v").await;
        let told = |name: &str| number(&upper.stats("v"), "tells", name);
        let use_it = async |byte: u8| use_half(&client, 128, byte, report).await;
        use_it(1).await;
        let known = number(&lower.stats("v"), "cooperation", "known_evictions");
        assert!(known > 0 && told("evictions") >= known, "{}", upper.stats("v"));
        // Everything was flushed.
        lower.kill();
        let lower = below.serve(&placed);
        use_it(2).await;
        let after = number(&lower.stats("v"), "cooperation", "known_evictions");
        assert!(after > 0 && told("listening") == 1, "{}", upper.stats("v"));
        lower.kill();
        // Now it places at the access, and takes no hints.
        let deaf = below.serve(&volume("file:v.img,size=1MiB", 32, "policy=lru"));
        use_it(3).await;
        assert!(told("unheard") > 0 && told("listening") == 0, "{}", upper.stats("v"));
        let said = upper.log().matches("what leaves the cache is not told").count();
        assert_eq!(said, 1, "{}", upper.log());
        deaf.kill();
        let lower = below.serve(&placed);
        use_it(4).await;
        assert!(told("listening") == 1, "{}", upper.stats("v"));
        assert!(number(&lower.stats("v"), "cooperation", "known_evictions") > 0);
        assert_eq!((upper.stop(), lower.stop()), (0, 0));
        let image = below.read("v.img");
        assert!((0..128).step_by(2).all(|block| image[block * BLOCK] == 4), "{mode}");
    }
}

/// A way between two servers that stalls, and is cut, now and then.
pub(super) fn bad_link(to: PathBuf, at: &Path, seed: u64, is_over: Arc<AtomicBool>) {
    let listener = UnixListener::bind(at).unwrap();
    tokio::spawn(async move {
        let mut random = Random::new(seed);
        while let Ok((mut near, _)) = listener.accept().await {
            let Ok(mut far) = UnixStream::connect(&to).await else { continue };
            let (life, stall) = (20 + random.below(300), random.below(20));
            let is_over = Arc::clone(&is_over);
            tokio::spawn(async move {
                let (mut from_near, mut to_near) = near.split();
                let (mut from_far, mut to_far) = far.split();
                let ways = async {
                    tokio::join!(
                        async {
                            // What was sent arrives late, also after the next connection was made.
                            tokio::time::sleep(Duration::from_millis(stall)).await;
                            copy(&mut from_near, &mut to_far).await
                        },
                        copy(&mut from_far, &mut to_near)
                    )
                };
                let cut = async {
                    tokio::time::sleep(Duration::from_millis(life)).await;
                    while is_over.load(Ordering::SeqCst) {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                };
                tokio::select! { _ = ways => {}, () = cut => {} }
            });
        }
    });
}

/// Random reads and writes through two servers that cooperate, over a link that fails and stalls:
/// no read is older than what was answered, and in the end all of it is there.
async fn shadow(mode: &str, placement: &str, report: &str, random: &mut Random) {
    const VOLUME: usize = 96;
    let what = format!("{mode}, {placement}, {report}");
    let (above, below) = (Place::new(), Place::new());
    let lower = format!("policy=mq,placement={placement}");
    let lower = below.serve(&volume("delay(0ms..1ms):file:v.img,size=384KiB", 24, &lower));
    let (link, is_over) = (above.path("link"), Arc::new(AtomicBool::new(false)));
    bad_link(below.path("socket"), &link, random.next_u64(), Arc::clone(&is_over));
    let upper = format!("policy=lru,write={mode},report={report}");
    let store = format!("nbd+unix:///v?socket={}", link.display());
    let upper = above.serve(&volume(&store, 12, &upper));
    let client = upper.connect("v").await;
    let oracle = Arc::new(std::sync::Mutex::new(Oracle::new(VOLUME, true)));
    // Each has blocks of its own, so that the order of its requests is that of their effects.
    let tasks = (0..6).map(|task| {
        let (client, oracle) = (client.clone(), Arc::clone(&oracle));
        let (mut random, what) = (Random::new(random.next_u64()), what.clone());
        tokio::spawn(async move {
            let mut failures = 0;
            for _ in 0..250 {
                let block = 6 * random.below(VOLUME as u64 / 6) as usize + task;
                let at = (block * BLOCK) as u64;
                if random.below(3) == 0 {
                    let (bytes, versions) = oracle.lock().unwrap().send(block, 1);
                    match write(&client, at, bytes).await {
                        Ok(()) => oracle.lock().unwrap().answered(block, &versions, false),
                        Err(_) => failures += 1,
                    }
                } else {
                    let floor = oracle.lock().unwrap().floor(block);
                    match read(&client, at, BLOCK).await {
                        Ok(bytes) => {
                            let checked = oracle.lock().unwrap().check_read(block, floor, &bytes);
                            checked.unwrap_or_else(|wrong| panic!("{what}: {wrong}"));
                        }
                        Err(_) => failures += 1,
                    }
                }
            }
            failures
        })
    });
    let mut failures = 0;
    for task in tasks.collect::<Vec<_>>() {
        failures += task.await.unwrap();
    }
    is_over.store(true, Ordering::SeqCst);
    let deadline = Instant::now() + PATIENCE;
    while client.flush().await.is_err() {
        assert!(Instant::now() < deadline, "{what}: cannot flush: {}", upper.log());
    }
    let stats = (upper.stats("v"), lower.stats("v"));
    println!(
        "{what}: {failures} failures; tells {}; {} demotions taken, {} not",
        stats.0["tells"],
        number(&stats.1, "cooperation", "demotions_accepted"),
        number(&stats.1, "cooperation", "demotions_refused"),
    );
    assert!(number(&stats.0, "tells", "evictions") > 0, "{what}");
    // Over both caches, and what the last of them has in its file.
    for server in [&upper, &lower] {
        let client = server.connect("v").await;
        let content = read(&client, 0, VOLUME * BLOCK).await.unwrap();
        let found = Oracle::clone(&oracle.lock().unwrap()).check(&content);
        assert_eq!(found.wrong, "", "{what}");
    }
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
    let found = oracle.lock().unwrap().check(&below.read("v.img"));
    assert_eq!(found.wrong, "", "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_link_between_two_that_cooperate_spoils_nothing() {
    let mut random = seeded("stack");
    for (mode, placement, report) in [
        ("through", "gl", "demotions"),
        ("through", "gl,order=demote-first", "demotions,batch=1"),
        ("through", "eviction,on-hit=move,staging=auto", "evictions"),
        ("back,dirty-age-s=1", "gl", "demotions"),
        ("back,dirty-age-s=1", "eviction,staging=auto", "evictions,batch=1"),
        ("around", "gl", "demotions"),
    ] {
        shadow(mode, placement, report, &mut random).await;
    }
}
