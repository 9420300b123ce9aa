//! What the library adds to a call: reads of 4 KiB from the page cache, by this program in
//! processes of its own, without the library, with it on a file that is not tracked, and with it
//! on one that is; in turns, so that a busy machine disturbs all alike. The medians of the turns
//! are printed.
//!
//!     cargo run --release -p undercroft-preload --example cost

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const TURNS: usize = 15;
const CALLS: u32 = 200_000;
const BLOCKS: u64 = 4096;
const FRAMES: usize = 1024;

/// Nanoseconds of a call.
fn measure(path: &Path) -> f64 {
    let file = File::open(path).expect("it is there");
    let mut memory = vec![0_u8; FRAMES * 4096];
    // Until the library is ready.
    file.read_at(&mut memory[..4096], 0).expect("read");
    std::thread::sleep(Duration::from_millis(150));
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for call in 0..CALLS / 5 {
            // Another block into another frame each time: each call is an eviction.
            let frame = call as usize * 7 % FRAMES * 4096;
            let block = u64::from(call) * 13 % BLOCKS;
            file.read_at(&mut memory[frame..frame + 4096], block * 4096).expect("read");
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(CALLS / 5));
    }
    best
}

fn main() {
    let arguments: Vec<_> = std::env::args().collect();
    if let [_, path] = &arguments[..] {
        return println!("{}", measure(Path::new(path)));
    }
    let me = std::env::current_exe().expect("a program has a file");
    let library = me.parent().and_then(Path::parent).map(|f| f.join("libundercroft_cct.so"));
    let library = library.filter(|path| path.exists()).expect("the library beside the examples");
    let folder = std::env::temp_dir().join(format!("undercroft-cost-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("a folder");
    for name in ["tracked", "untracked"] {
        std::fs::write(folder.join(name), vec![7; (BLOCKS * 4096) as usize]).expect("written");
    }
    let run = |name: &str, preload: bool| -> f64 {
        let mut command = Command::new(&me);
        command.arg(folder.join(name));
        if preload {
            let volume = folder.join("tracked");
            let uri = "nbd+unix:///none?socket=/nowhere";
            command.env("LD_PRELOAD", &library);
            command.env("UNDERCROFT_VOLUMES", format!("{}={uri}", volume.display()));
        }
        let output = command.output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number")
    };
    let mut all = [const { Vec::new() }; 3];
    for _ in 0..TURNS {
        all[0].push(run("tracked", false));
        all[1].push(run("untracked", true));
        all[2].push(run("tracked", true));
    }
    let median = all.map(|mut list| {
        list.sort_by(f64::total_cmp);
        list[TURNS / 2]
    });
    println!("pread of 4 KiB from the page cache  {:.0} ns", median[0]);
    println!("  with the library, not tracked     {:+.0} ns", median[1] - median[0]);
    println!("  tracked, an eviction each time    {:+.0} ns", median[2] - median[0]);
    std::fs::remove_dir_all(&folder).expect("removed");
}
