//! What servers are told, and when they are slow, gone, or have larger blocks. The program carries
//! out one line at a time here, so that the test decides what happens in between.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use undercroft_tracker::Status;
use undercroft_tracker::segment::Segment;

use super::support::{BLOCK, Served, Volume};
use super::{BLOCKS, Place, present, program, serve, told};

/// A program that carries out lines, and its segment.
pub(crate) struct Running {
    child: Child,
    lines: Option<ChildStdin>,
    segment: Segment,
}

impl Running {
    async fn start(mut command: Command, place: &Place) -> Running {
        command.arg(place.file()).stdin(Stdio::piped());
        let mut child = command.spawn().expect("it was compiled");
        let lines = child.stdin.take();
        let path = place.path(&format!("undercroft-cct.{}", child.id()));
        let begun = Instant::now();
        let segment = loop {
            if let Ok(segment) = Segment::open(&path) {
                break segment;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "no segment: {}", place.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        };
        Running { child, lines, segment }
    }

    /// Block 0 is read, and the server of the volume knows the program.
    pub(crate) async fn connected(replay: &Path, place: &Place, served: &Served) -> Running {
        let command = place.tracked(replay, &served.uri.to_string());
        let mut running = Running::start(command, place).await;
        running.say("r 0 0 1\n");
        assert!(running.until(|status| status.connections == 1).await, "{}", place.log());
        running
    }

    pub(crate) fn say(&mut self, lines: &str) {
        self.lines.as_mut().expect("it runs").write_all(lines.as_bytes()).expect("taken");
    }

    /// Until something holds; false if it does not for long.
    pub(crate) async fn until(&self, mut holds: impl FnMut(&Status) -> bool) -> bool {
        let begun = Instant::now();
        while !holds(&self.segment.status()) {
            if begun.elapsed() > Duration::from_secs(20) {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }

    /// Lets it end; what it had counted.
    pub(crate) async fn end(mut self) -> Status {
        drop(self.lines.take());
        let status = tokio::task::spawn_blocking(move || self.child.wait()).await;
        let status = status.expect("no panic").expect("it was started");
        assert!(status.success(), "{status}");
        self.segment.status()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_ring_drops_and_the_program_goes_on() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve().await;
    // Answers take up to two seconds; meanwhile more leaves than the ring has room for.
    served.volume.disk().delay = Duration::from_secs(2);
    let mut running = Running::connected(&replay, &place, &served).await;
    running.say("r 0 1 1\n");
    assert!(running.until(|_| !told(&served).0.is_empty()).await, "{}", place.log());
    let mut list = String::new();
    (0..200_000).for_each(|n| list.push_str(&format!("r {} {} 1\n", n % 64, n * 7 % BLOCKS)));
    let begun = Instant::now();
    for _ in 0..4 {
        running.say(&list);
    }
    let status = running.end().await;
    let evicted = status.evictions + status.late;
    assert_eq!(status.reads, 800_002);
    assert!(status.dropped > 0 && status.dropped < evicted, "{status:?}");
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

/// A name for servers that come and go: a link to the socket of one of them.
fn lead_to(served: &Served, name: &Path) {
    let uri = served.uri.to_string();
    let socket = uri.split_once("socket=").expect("a socket").1;
    let _ = std::fs::remove_file(name);
    std::os::unix::fs::symlink(socket, name).expect("linked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_comes_back_is_told_again_in_a_new_session() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let name = place.path("socket");
    let first = serve().await;
    lead_to(&first, &name);
    let uri = format!("nbd+unix:///v?socket={}", name.display());
    let mut command = place.tracked(&replay, &uri);
    command.env("UNDERCROFT_CLIENT", "c0ffee");
    let mut running = Running::start(command, &place).await;
    running.say("r 0 0 1\n");
    assert!(running.until(|status| status.connections == 1).await, "{}", place.log());
    running.say("r 0 1 1\n");
    assert!(running.until(|_| told(&first).0 == [0]).await, "{}", place.log());
    first.server.shutdown(Duration::ZERO).await;
    // What leaves while nobody is there is not told later: it would be old.
    running.say("r 0 2 1\n");
    assert!(running.until(|status| status.unsent == 1).await, "{}", place.log());
    let second = serve().await;
    lead_to(&second, &name);
    assert!(running.until(|status| status.connections == 2).await, "{}", place.log());
    running.say("r 0 3 1\n");
    assert!(running.until(|_| !told(&second).0.is_empty()).await, "{}", place.log());
    let status = running.end().await;
    assert_eq!(told(&first).0, [0]);
    assert_eq!(told(&second).0, [2]);
    assert_eq!((status.sent, status.unsent, status.dropped), (2, 1, 0), "{}", place.log());
    // In each session the client gave its own id, and no other.
    for served in [&first, &second] {
        let clients = served.volume.disk().clients.clone();
        assert!(
            !clients.is_empty() && clients.iter().all(|c| *c == Some(0xc0_ffee)),
            "{clients:x?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_id_the_client_is_that_of_connections_that_name_none() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve().await;
    let running = Running::connected(&replay, &place, &served).await;
    running.end().await;
    let clients = served.volume.disk().clients.clone();
    assert!(!clients.is_empty() && clients.iter().all(Option::is_none), "{clients:x?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_larger_block_of_the_server_has_left_when_the_last_of_it_has() {
    let Some(replay) = program("replay") else { return };
    for granules in [2_u64, 4] {
        let place = Place::new();
        let bytes = (granules * BLOCK) as u32;
        let served = Volume::new(BLOCKS * BLOCK, 1, "evict", 1).with_blocks(bytes).serve().await;
        let command = place.tracked(&replay, &served.uri.to_string());
        let mut running = Running::start(command, &place).await;
        // Blocks 0 and 1 of the server, each granule in a frame of its own.
        for granule in 0..2 * granules {
            running.say(&format!("r {granule} {granule} 1\n"));
        }
        let all = |status: &Status| status.connections == 1 && status.reads == 2 * granules;
        assert!(running.until(all).await, "{}", place.log());
        // All of block 1 leaves, but one granule; of block 0 one.
        for granule in granules + 1..2 * granules {
            running.say(&format!("r {granule} {} 1\n", 100 + 8 * granule));
        }
        running.say("r 0 100 1\n");
        assert!(running.until(|status| status.evictions == granules).await, "{}", place.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(told(&served).0, [], "{granules}: {}", place.log());
        running.say(&format!("r {granules} 96 1\n"));
        assert!(running.until(|status| status.sent == 1).await, "{}", place.log());
        // What is left of block 0 leaves at once, and is told when nothing of it is here: once, or
        // again if its last granule leaves between the look at the table and that at the ring.
        let rest = (1..granules).map(|granule| format!("r {granule} {} 1\n", 160 + granule));
        running.say(&rest.collect::<String>());
        let status = running.end().await;
        let (mut told, _) = told(&served);
        assert!(
            told.len() as u64 == status.sent && status.sent <= granules,
            "{told:?}: {status:?}"
        );
        told.dedup();
        assert_eq!(told, [1, 0], "{granules}: {}", place.log());
        assert_eq!(status.evictions, 2 * granules);
    }
}

/// Pages of a file in the kernel's cache, as `fincore` has it.
fn cached(path: &Path) -> u64 {
    let mut command = Command::new("fincore");
    let output = command.args(["-n", "-r", "-o", "PAGES"]).arg(path).output().expect("it is there");
    String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_that_bypass_leave_nothing_in_the_page_cache() {
    let Some(replay) = program("replay") else { return };
    if !present("fincore") {
        return;
    }
    let mut pages = Vec::new();
    for bypass in ["0", "1"] {
        let place = Place::new();
        let file = File::open(place.file()).expect("it is there");
        file.sync_all().expect("written");
        let all = rustix::fs::Advice::DontNeed;
        rustix::fs::fadvise(&file, 0, None, all).expect("advice is taken");
        if cached(&place.file()) > 0 {
            println!("skipped: pages of this file system stay");
            return;
        }
        let uri = "nbd+unix:///v?socket=/nowhere";
        let mut command = place.tracked(&replay, uri);
        command.env("UNDERCROFT_BYPASS", bypass);
        let mut running = Running::start(command, &place).await;
        for page in 0..BLOCKS {
            running.say(&format!("r {} {page} 1\n", page % 64));
        }
        let status = running.end().await;
        if bypass == "1" && !status.bypasses {
            println!("skipped: the kernel or the file system has no RWF_DONTCACHE");
            return;
        }
        assert_eq!(status.reads, BLOCKS);
        pages.push(cached(&place.file()));
    }
    // The system may take some away at any time.
    assert!(pages[0] > BLOCKS / 2, "{pages:?}");
    // What the kernel has read ahead and nobody has read may stay.
    assert!(pages[1] <= pages[0] / 8, "{pages:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_that_was_made_in_a_frame_never_read_into_is_told_when_it_leaves() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve().await;
    let mut running = Running::connected(&replay, &place, &served).await;
    // Before there is a pool this says nothing.
    running.say("w 300 17 1\n");
    assert!(running.until(|status| status.no_frame == 1).await);
    // All of the file, in no order: no page is larger than a block.
    let reads = (0..=255_u8).map(|block| format!("r {} {block} 1\n", block.reverse_bits()));
    running.say(&reads.collect::<String>());
    assert!(running.until(|status| !status.pools.is_empty()).await, "{}", place.log());
    let pools = running.segment.status().pools;
    assert_eq!((pools.len(), pools[0].start, pools[0].page), (1, 0x6000_0000_0000, 4096));
    // Of the second one there are two blocks, which is no page here.
    running.say("w 300 17 1\nw 310 18 2\nr 300 40 1\n");
    assert!(running.until(|_| told(&served).0 == [17]).await, "{:?}", told(&served));
    // The first block was read twice into its frame.
    assert_eq!(told(&served).1, [0, 40]);
    let status = running.end().await;
    assert_eq!((status.made, status.no_frame, status.evictions), (1, 3, 1), "{status:?}");
}

/// A control group in that of the test, with a limit of memory; removed with it.
struct Group(std::path::PathBuf);

impl Group {
    /// None, with a word, where that is not possible.
    fn new(bytes: u64) -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let of = |line: &str| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let own = |root: &str| Path::new(root).join(path.trim_start_matches('/'));
            match controllers {
                "" => Some((own("/sys/fs/cgroup"), "memory.max")),
                "memory" => Some((own("/sys/fs/cgroup/memory"), "memory.limit_in_bytes")),
                _ => None,
            }
        };
        let group = groups.lines().filter_map(of).find_map(|(own, limit)| {
            let group = Group(own.join(format!("undercroft-test-{}", std::process::id())));
            std::fs::create_dir(&group.0).ok()?;
            std::fs::write(group.0.join(limit), bytes.to_string()).ok()?;
            Some(group)
        });
        if group.is_none() {
            println!("skipped: no control group with a limit of memory can be made here");
        }
        group
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // An error means that it never was.
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_with_little_memory_by_its_control_group_goes_on() {
    let Some(trouble) = program("trouble") else { return };
    let Some(group) = Group::new(48 << 20) else { return };
    let place = Place::new();
    let served = serve().await;
    // A table of 1 GiB, in memory that counts for the group, is what it asks for.
    let mut command = Command::new("sh");
    let enter = "echo $$ >\"$GROUP/cgroup.procs\" && exec env LD_PRELOAD=\"$LIBRARY\" \"$@\"";
    command.args(["-c", enter, "sh"]).arg(&trouble).arg(place.file()).arg("slow");
    let tracked = place.tracked(&trouble, &served.uri.to_string());
    command.envs(tracked.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("LD_PRELOAD").env("LIBRARY", super::library()).env("GROUP", &group.0);
    command.env("UNDERCROFT_SEGMENT_DIR", "/dev/shm").env("UNDERCROFT_POOL", "68719476736");
    let output = super::run(command).await;
    assert!(output.status.success(), "{}{}", super::shown(&output), place.log());
    assert!(place.log().contains("tracking"), "{}", place.log());
    assert!(!told(&served).0.is_empty(), "{}", place.log());
}
