//! Programs that know nothing of the library, with it and without it: nothing that they see may
//! differ, whatever happens, and the server must be told what left their buffers.
//!
//! The programs are in `tests/c`, and fio and sqlite3. The server is one of the test's own, which
//! notes what it is told; the real one is in the tests of `cli`.

mod contents;
mod filters;
mod plugins;
mod servers;
#[path = "../../../client/tests/client/support.rs"]
mod support;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use support::{BLOCK, Event, Random, Served, Volume, present, shown};
use undercroft_hints::Hint;
use undercroft_level::{Cct, Frames};

/// Blocks of the file.
const BLOCKS: u64 = 256;

/// The library lies beside the test: both were built from the same sources.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a file");
    test.with_file_name("libundercroft_cct.so")
}

/// One of the programs, compiled once.
fn program(name: &'static str) -> Option<PathBuf> {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let headers = ["/usr/include/liburing.h", "/usr/include/libaio.h"];
    if !present("cc") || !headers.iter().all(|header| Path::new(header).exists()) {
        println!("skipped: no compiler, liburing-dev or libaio-dev");
        return None;
    }
    let folder = FOLDER.get_or_init(|| tempfile::tempdir().expect("a folder")).path();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name);
    // Tests run at the same time: each compiles its own.
    let number = std::thread::current().name().map_or_else(String::new, |n| n.replace(':', "_"));
    let program = folder.join(format!("{name}-{number}"));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"])
        // Wrong calls are made on purpose.
        .args(["-Wno-stringop-overread", "-Wno-stringop-overflow", "-Wno-nonnull", "-o"])
        .arg(&program)
        .arg(source.with_extension("c"))
        .args(["-luring", "-laio", "-lpthread"])
        .output()
        .expect("a compiler");
    assert!(output.status.success(), "cc {name}.c: {}", shown(&output));
    Some(program)
}

/// A folder with a file of random bytes, which is the volume.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().expect("a folder") };
        place.fill();
        place
    }

    fn fill(&self) {
        let mut random = Random::new(1);
        let bytes: Vec<u8> =
            (0..BLOCKS * BLOCK / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
        std::fs::write(self.file(), &bytes).expect("written");
        std::fs::write(self.path("other"), &bytes).expect("written");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("volume")
    }

    /// A program with the library, which speaks to a server.
    fn tracked(&self, program: &Path, uri: &str) -> Command {
        let mut command = self.plain(program);
        command
            .env("LD_PRELOAD", library())
            .env("UNDERCROFT_VOLUMES", format!("{}={uri}", self.file().display()))
            .env("UNDERCROFT_SEGMENT_DIR", self.folder.path())
            .env("UNDERCROFT_POOL", (16 << 20).to_string())
            .env("UNDERCROFT_LOG", self.path("log"));
        command
    }

    fn plain(&self, program: &Path) -> Command {
        // tools/sanitize.sh runs the programs under valgrind.
        let under = std::env::var("PRELOAD_TEST_UNDER").unwrap_or_default();
        let mut words = under.split_whitespace();
        let mut command = Command::new(words.next().map_or(program, Path::new));
        if !under.is_empty() {
            command.args(words).arg(program);
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("UNDERCROFT_") {
                command.env_remove(name);
            }
        }
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn segments(&self) -> usize {
        let entries = std::fs::read_dir(self.folder.path()).expect("it is there").flatten();
        entries.filter(|e| e.file_name().to_string_lossy().starts_with("undercroft-cct.")).count()
    }
}

async fn serve() -> Served {
    Volume::new(BLOCKS * BLOCK, 1, "evict", 1).serve().await
}

/// Runs it, away from the threads that the server needs.
async fn run(mut command: Command) -> Output {
    let run = move || command.output().expect("it was compiled");
    tokio::task::spawn_blocking(run).await.expect("no panic")
}

/// Blocks that a server was told of, in order: those that left, and those that had left before.
fn told(served: &Served) -> (Vec<u64>, Vec<u64>) {
    let (mut evicted, mut late) = (Vec::new(), Vec::new());
    for event in &served.volume.disk().events {
        let Event::Hints(hints) = event else { panic!("{event:?}") };
        for hint in hints {
            let Hint::Evict { flags, runs, .. } = hint else { panic!("{hint:?}") };
            let list = if flags.late { &mut late } else { &mut evicted };
            list.extend(runs.iter().flat_map(|run| run.blocks()));
        }
    }
    (evicted, late)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_call_answers_as_without_the_library() {
    let Some(calls) = program("calls") else { return };
    let place = Place::new();
    let served = serve().await;
    let files = ["volume", "other"];
    let mut plain = place.plain(&calls);
    plain.args(files);
    let without = run(plain).await;
    assert!(without.status.success(), "{}", shown(&without));
    for bypass in ["0", "1"] {
        place.fill();
        let _ = std::fs::remove_file(place.path("created"));
        let mut tracked = place.tracked(&calls, &served.uri.to_string());
        tracked.args(files).env("UNDERCROFT_BYPASS", bypass);
        let with = run(tracked).await;
        let lines = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
        for (one, two) in lines(&without).lines().zip(lines(&with).lines()) {
            assert_eq!(one, two, "bypass {bypass}");
        }
        assert_eq!(shown(&without), shown(&with));
    }
    assert!(place.log().contains("connected"), "{}", place.log());
    assert!(!told(&served).0.is_empty());
    assert_eq!(place.segments(), 0);
}

/// What the engine's table says of a list of single blocks, and what the server is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_is_told_what_the_table_of_the_engine_says() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve().await;
    let mut random = Random::seeded();
    let mut list = String::new();
    let mut cct = Cct::new(BLOCK as u32, Frames::Read, 1 << 16, 1);
    let mut expected = Vec::new();
    while expected.len() < 1500 {
        let (frame, block) = (random.below(64), random.below(BLOCKS));
        // The library says nothing of a block that is back before the message goes: none is read
        // again that left a moment ago.
        if expected.iter().rev().take(100).any(|left| *left == block) {
            continue;
        }
        let how = b"rRpauwWqAU"[random.below(10) as usize] as char;
        // With two buffers half a block each is no block.
        let how = how.to_ascii_lowercase();
        let how = if how == 'q' { 'w' } else { how };
        writeln!(list, "{how} {frame} {block} 1").expect("text");
        let address = 0x6000_0000_0000 + frame * BLOCK;
        let blocks = [block].into_iter();
        let before = expected.len();
        match how {
            'w' => cct.write(0, address, blocks, &mut expected),
            _ => cct.read(0, address, blocks, &mut expected),
        }
        if expected.len() > before {
            list.push_str("s 0 1 0\n");
        }
    }
    play(&place, &replay, &served.uri.to_string(), list).await;
    let (evicted, late) = told(&served);
    assert_eq!(evicted, expected, "{}", place.log());
    assert_eq!(late.len() as u64, cct.counts().late);
}

/// Has `replay` carry out a list, with the library in it.
async fn play(place: &Place, replay: &Path, uri: &str, list: String) {
    let mut command = place.tracked(replay, uri);
    command.arg(place.file()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it was compiled");
        child.stdin.take().expect("piped").write_all(list.as_bytes()).expect("taken");
        child.wait_with_output().expect("it ends")
    });
    let output = output.await.expect("no panic");
    assert!(output.status.success(), "{}{}", shown(&output), place.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_of_several_blocks_and_frames_shared_with_children_are_followed() {
    let Some(replay) = program("replay") else { return };
    let place = Place::new();
    let served = serve().await;
    // Four blocks by one call into four frames, by a child into two, by a list into two halves.
    let list = "r 0 0 4\nf 4 8 2\nr 0 16 4\ns 0 20 0\nr 4 24 2\ns 0 20 0\nR 4 32 2\n\
                s 0 20 0\nw 0 100 4\ns 0 20 0\nw 50 200 4\nr 0 104 1\n";
    play(&place, &replay, &served.uri.to_string(), list.to_owned()).await;
    let (evicted, late) = told(&served);
    // Written from frames 16 to 19 became 100 to 103; from frame 50, which is none, nothing.
    assert_eq!(evicted, [0, 1, 2, 3, 8, 9, 24, 25, 16, 17, 18, 19, 100], "{}", place.log());
    assert_eq!(late, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_do_odd_things_go_on_as_ever() {
    let Some(trouble) = program("trouble") else { return };
    let place = Place::new();
    let served = serve().await;
    let all = "reads close-under signals close-everything forks daemon vforks executes \
               little-memory little-files";
    for what in all.split(' ') {
        let mut command = place.tracked(&trouble, &served.uri.to_string());
        command.arg(place.file()).arg(what);
        if what == "little-memory" {
            command.env("UNDERCROFT_POOL", (8_u64 << 30).to_string());
        }
        let output = run(command).await;
        assert!(output.status.success(), "{what}: {}{}", shown(&output), place.log());
        assert!(output.stdout.is_empty(), "{what}: {}", shown(&output));
        let complains = what.starts_with("little");
        assert_eq!(!output.stderr.is_empty(), complains, "{what}: {}", shown(&output));
        // Of a program that was killed or goes on in a child the segment may stay a while.
        if !["forks", "daemon"].contains(&what) {
            assert_eq!(place.segments(), 0, "{what}");
        }
        let _ = std::fs::read_dir(place.folder.path()).map(|entries| {
            for entry in entries.flatten() {
                if entry.file_name().to_string_lossy().starts_with("undercroft-cct.") {
                    let _ = std::fs::remove_file(entry.path());
                }
            }
        });
    }
    assert!(!told(&served).0.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_are_absent_or_hang_or_go_hold_nothing_up() {
    let Some(trouble) = program("trouble") else { return };
    let place = Place::new();
    let slow = |uri: String| {
        let mut command = place.tracked(&trouble, &uri);
        command.arg(place.file()).arg("slow");
        command
    };
    // Absent.
    let begun = Instant::now();
    let output = run(slow("nbd+unix:///v?socket=/nowhere".to_owned())).await;
    assert!(output.status.success(), "{}", shown(&output));
    assert!(place.log().contains("No such file"), "{}", place.log());
    // It takes connections and says nothing.
    let socket = place.path("mute");
    let mute = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let uri = format!("nbd+unix:///v?socket={}", socket.display());
    let output = run(slow(uri)).await;
    assert!(output.status.success(), "{}", shown(&output));
    drop(mute);
    // It goes away in the middle.
    let served = serve().await;
    let command = slow(served.uri.to_string());
    let running = tokio::spawn(run(command));
    let since = Instant::now();
    while told(&served).0.is_empty() {
        assert!(since.elapsed() < Duration::from_secs(20), "{}", place.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(served);
    let output = running.await.expect("no panic");
    assert!(output.status.success(), "{}", shown(&output));
    // Each run takes 2 seconds by itself; nobody waited for a server.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
}

#[test]
fn wrong_settings_are_said_once_and_change_nothing() {
    let Some(trouble) = program("trouble") else { return };
    let place = Place::new();
    for (volumes, part) in [
        ("nonsense".to_owned(), "expected DEVICE=URI"),
        ("/nowhere=nbd://localhost/x".to_owned(), "No such file"),
        ("/tmp=nbd://localhost/x".to_owned(), "neither a block device"),
    ] {
        let mut command = place.tracked(&trouble, "nbd://localhost/x");
        command.env("UNDERCROFT_VOLUMES", volumes).arg(place.file()).arg("reads");
        let output = command.output().expect("it was compiled");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && said.lines().count() == 1, "{}", shown(&output));
        assert!(said.contains(part) && said.contains("untracked"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fio_finds_its_data_through_every_interface() {
    if !present("fio") {
        return;
    }
    let place = Place::new();
    let served = serve().await;
    for engine in ["sync", "psync", "vsync", "pvsync", "pvsync2", "libaio", "io_uring"] {
        let mut command = place.tracked(Path::new("fio"), &served.uri.to_string());
        command.args(["--name=check", "--size=1M", "--bs=4k", "--rw=randwrite", "--verify=crc32c"]);
        command.args(["--iodepth=8", "--randseed=7", "--thread"]);
        command.arg(format!("--filename={}", place.file().display()));
        command.arg(format!("--ioengine={engine}"));
        let output = run(command).await;
        assert!(output.status.success(), "{engine}: {}", shown(&output));
    }
    assert!(place.log().contains("connected"), "{}", place.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_keeps_its_database_whole() {
    if !present("sqlite3") {
        return;
    }
    let place = Place::new();
    let served = serve().await;
    std::fs::write(place.file(), "").expect("emptied");
    let mut command = place.tracked(Path::new("sqlite3"), &served.uri.to_string());
    let work = "pragma page_size=4096; pragma cache_size=20; create table t(a integer primary key, \
                b text); with recursive n(i) as (select 1 union all select i+1 from n where i<5000) \
                insert into t select i, hex(randomblob(40)) from n; \
                create index x on t(b); update t set b = b || 'x' where a % 7 = 0; \
                select count(*), sum(length(b)) from t; delete from t where a % 3 = 0; vacuum; \
                pragma integrity_check;";
    command.arg(place.file()).arg(work);
    let output = run(command).await;
    assert!(output.status.success(), "{}", shown(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5000|400714\nok\n", "{}", place.log());
}
