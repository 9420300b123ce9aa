//! What the library adds to a call: reads of 4 KiB from the page cache, by this program in
//! processes of its own, without the library, with it on a file that is not tracked, and with it
//! on one that is; in turns, so that a busy machine disturbs all alike. Printed are the medians of
//! what each turn costs more than the one without the library just before, and their ranges. The
//! same of writes, of pages from their frames, of which half were made there and never read into;
//! and of reads of whole pages over others, which are handed over to a server that wants them.
//!
//!     cargo run --release -p undercroft-preload --example cost [FOLDER]
//!
//! With valgrind installed it also counts the instructions of the program's own thread per call,
//! which no other load disturbs.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

#[path = "../../client/tests/client/support.rs"]
mod support;

use support::Volume;

const TURNS: usize = 15;
const CALLS: u32 = 200_000;
const BLOCKS: u64 = 4096;
const FRAMES: usize = 1024;

/// Another block into another frame each time: each call is an eviction, once all have been filled.
fn read(file: &File, memory: &mut [u8], calls: u32) {
    for call in 0..calls {
        let frame = call as usize * 7 % FRAMES * 4096;
        let block = u64::from(call) * 13 % BLOCKS;
        file.read_at(&mut memory[frame..frame + 4096], block * 4096).expect("read");
    }
}

/// Each frame to its place.
fn write(file: &File, memory: &mut [u8], calls: u32) {
    for call in 0..calls {
        let frame = call as usize * 7 % FRAMES * 4096;
        file.write_at(&memory[frame..frame + 4096], frame as u64).expect("written");
    }
}

type Work = fn(&File, &mut [u8], u32);

fn work(name: &str) -> Work {
    if name == "write" { write } else { read }
}

/// The bytes of a page, if the work is to read pages.
fn page(name: &str) -> Option<usize> {
    name.strip_prefix("page").map(|bytes| bytes.parse().expect("bytes"))
}

/// Nanoseconds of a read of a page, each over another page. In between the sender has time to take
/// what it is to hand over.
fn read_pages(file: &File, memory: &mut [u8], bytes: usize) -> f64 {
    const TOGETHER: usize = 100;
    let (frames, pages) = (FRAMES * 4096 / bytes, BLOCKS as usize * 4096 / bytes);
    let mut times = Vec::new();
    for call in 0..40 * TOGETHER {
        let frame = call * 7 % frames * bytes;
        let page = (call * 13 % pages * bytes) as u64;
        let start = Instant::now();
        file.read_at(&mut memory[frame..frame + bytes], page).expect("read");
        // All frames have been filled by then.
        if call >= frames + TOGETHER {
            times.push(start.elapsed().as_nanos() as f64);
        }
        if call % TOGETHER == 0 {
            std::thread::sleep(Duration::from_millis(12));
        }
    }
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn open(path: &Path, work: &str) -> (File, Vec<u8>) {
    let file = File::options().read(true).write(true).open(path).expect("it is there");
    let mut memory = vec![0_u8; FRAMES * 4096];
    // Until the library is ready.
    file.read_at(&mut memory[..4096], 0).expect("read");
    std::thread::sleep(Duration::from_millis(150));
    if work == "write" {
        // Until it has seen that this is a pool.
        for frame in (0..FRAMES / 2).map(|frame| frame * 4096) {
            file.read_at(&mut memory[frame..frame + 4096], frame as u64).expect("read");
        }
        std::thread::sleep(Duration::from_millis(2500));
    }
    (file, memory)
}

/// Nanoseconds of a call: the best of five attempts.
fn measure(path: &Path, name: &str) -> f64 {
    let (file, mut memory) = open(path, name);
    if let Some(bytes) = page(name) {
        return read_pages(&file, &mut memory, bytes);
    }
    let attempts = (0..5).map(|_| {
        let start = Instant::now();
        work(name)(&file, &mut memory, CALLS / 5);
        start.elapsed().as_nanos() as f64 / f64::from(CALLS / 5)
    });
    attempts.fold(f64::MAX, f64::min)
}

/// One way to run the program.
#[derive(Clone, Copy)]
enum Way {
    Without,
    Untracked,
    Tracked,
    /// Tracked for a server that wants contents.
    HandingOver,
}

struct Bench {
    me: PathBuf,
    library: PathBuf,
    folder: PathBuf,
    /// A server that wants contents.
    uri: String,
}

impl Bench {
    /// The program on its file, to measure or to make some calls.
    fn command(&self, way: Way, under: &[&str], work: &str, calls: &str) -> Command {
        let mut command = Command::new(under.first().map_or(self.me.as_os_str(), |p| p.as_ref()));
        if !under.is_empty() {
            command.args(&under[1..]).arg(&self.me);
        }
        command.arg(self.folder.join("file")).args([work, calls]);
        let volume = match way {
            Way::Without => return command,
            Way::Untracked => self.folder.join("other"),
            Way::Tracked | Way::HandingOver => self.folder.join("file"),
        };
        let is_there = matches!(way, Way::HandingOver);
        let uri = if is_there { &self.uri } else { "nbd+unix:///none?socket=/nowhere" };
        command.env("LD_PRELOAD", &self.library);
        command.env("UNDERCROFT_VOLUMES", format!("{}={uri}", volume.display()));
        command
    }

    fn nanoseconds(&self, way: Way, work: &str) -> f64 {
        let output = self.command(way, &[], work, "time").output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    }

    /// Instructions of a call: those of the first thread, of two runs that differ by their calls.
    fn instructions(&self, way: Way, work: &str) -> Option<f64> {
        let count = |calls: u32| -> Option<f64> {
            let out = self.folder.join("instructions");
            let option = format!("--callgrind-out-file={}", out.display());
            let under = ["valgrind", "--tool=callgrind", "--separate-threads=yes", &option];
            let output = self.command(way, &under, work, &calls.to_string()).output().ok()?;
            // The first thread has a file of its own.
            let first = std::fs::read_to_string(self.folder.join("instructions-01")).ok()?;
            let line = first.lines().find_map(|line| line.strip_prefix("totals: "))?;
            output.status.success().then(|| line.trim().parse().ok())?
        };
        Some((count(60_000)? - count(20_000)?) / 40_000.0)
    }

    /// Measures and prints what it costs to hand over pages of so many bytes.
    fn show_pages(&self, bytes: usize) {
        let work = format!("page{bytes}");
        let mut all = [const { Vec::new() }; 3];
        for _ in 0..TURNS {
            let without = self.nanoseconds(Way::Without, &work);
            let tracked = self.nanoseconds(Way::Tracked, &work);
            all[0].push(without);
            all[1].push(tracked - without);
            all[2].push(self.nanoseconds(Way::HandingOver, &work) - tracked);
        }
        let [without, tracked, handing_over] = all;
        row(&format!("pread of a page of {} KiB", bytes / 1024), without, false);
        row("  tracked, an eviction each time", tracked, true);
        row("  handed over, more than that", handing_over, true);
    }

    /// Measures and prints one kind of work.
    fn show(&self, work: &str, name: &str, tracked_name: &str) {
        let mut all = [const { Vec::new() }; 4];
        for _ in 0..TURNS {
            let without = self.nanoseconds(Way::Without, work);
            all[0].push(without);
            all[1].push(self.nanoseconds(Way::Without, work) - without);
            all[2].push(self.nanoseconds(Way::Untracked, work) - without);
            all[3].push(self.nanoseconds(Way::Tracked, work) - without);
        }
        let [without, again, untracked, tracked] = all;
        row(name, without, false);
        row("  once more: how sure that is", again, true);
        row("  with the library, not tracked", untracked, true);
        row(tracked_name, tracked, true);
        let ways = [Way::Without, Way::Untracked, Way::Tracked];
        match ways.map(|way| self.instructions(way, work)) {
            [Some(without), Some(untracked), Some(tracked)] => println!(
                "instructions of a call: {without:.0}, not tracked {:+.0}, tracked {:+.0}",
                untracked - without,
                tracked - without
            ),
            _ => println!("instructions: valgrind is not there, or did not count"),
        }
    }
}

fn row(what: &str, mut list: Vec<f64>, sign: bool) {
    list.sort_by(f64::total_cmp);
    let (low, middle, high) = (list[0], list[list.len() / 2], list[list.len() - 1]);
    let show = |value: f64| if sign { format!("{value:+.0}") } else { format!("{value:.0}") };
    println!("{what:<36} {:>5} ns  ({} to {})", show(middle), show(low), show(high));
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, path, name, calls] = &arguments[..] {
        let path = Path::new(path);
        match calls.parse() {
            Err(_) => return println!("{}", measure(path, name)),
            Ok(calls) => {
                let (file, mut memory) = open(path, name);
                return work(name)(&file, &mut memory, calls);
            }
        }
    }
    let me = std::env::current_exe().expect("a program has a file");
    let library = me.parent().and_then(Path::parent).map(|f| f.join("libundercroft_cct.so"));
    let library = library.filter(|path| path.exists()).expect("the library beside the examples");
    let folder = arguments.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let folder = folder.join(format!("undercroft-cost-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    for name in ["file", "other"] {
        std::fs::write(folder.join(name), vec![7; (BLOCKS * 4096) as usize]).expect("written");
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let served = runtime.block_on(Volume::new(BLOCKS * 4096, 1, "evict,demote", 1).serve());
    let bench = Bench { me, library, folder, uri: served.uri.to_string() };
    bench.show("read", "pread of 4 KiB from the page cache", "  tracked, an eviction each time");
    bench.show("write", "pwrite of 4 KiB into the page cache", "  tracked, a page from its frame");
    [4096, 8192, 16384].into_iter().for_each(|bytes| bench.show_pages(bytes));
    std::fs::remove_dir_all(&bench.folder).expect("removed");
}
