//! What an unmodified program asks of a volume and evicts, written down by `attach --record`: the
//! simulator takes the evictions from the file.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support::{PATIENCE, Place, text};

const BLOCK: usize = 4096;
const BLOCKS: usize = 2000;

/// The library, as the tests of its own crate have built it.
pub(crate) fn library() -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_undercroft"));
    let folder = program.parent().unwrap();
    let places = ["libundercroft_cct.so", "deps/libundercroft_cct.so"];
    places.map(|name| folder.join(name)).into_iter().find(|path| path.is_file())
}

/// Waits until the program or its recorder says this.
fn wait_for(place: &Place, part: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !said(place).contains(part) {
        assert!(Instant::now() < deadline, "{part}: {}", said(place));
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn said(place: &Place) -> String {
    String::from_utf8_lossy(&place.read("said")).into_owned()
}

/// Starts to copy the volume into a pipe, which blocks until the pipe is read.
fn start(place: &Place, arguments: &str) -> Child {
    let said = File::create(place.path("said")).unwrap();
    let program = format!("dd if=d.img of=pipe bs={BLOCK} count={BLOCKS}");
    let mut command = place.undercroft_command(&format!("attach {arguments} -- {program}"));
    command.stdout(Stdio::null()).stderr(said).spawn().unwrap()
}

fn info(place: &Place, file: &str) -> Value {
    let output = place.undercroft(&format!("trace info {file} --json"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn what_a_program_asks_and_evicts_is_recorded() {
    let library = library().expect("cargo test -p undercroft-preload --no-run builds it");
    let place = Place::new();
    place.write("d.img", vec![7; BLOCKS * BLOCK]);
    place.run("mkfifo", &["pipe"]);
    let server = place.serve("--volume d=file:d.img");
    let arguments = format!(
        "--volume d.img=nbd+unix:///d?socket=socket --library {} --segments . --record traces",
        library.display()
    );
    let mut program = start(&place, &arguments);
    // Opening the pipe lets the program read, until the pipe is full.
    let mut pipe = File::open(place.path("pipe")).unwrap();
    wait_for(&place, "is recorded into");
    // A second recorder would take what the first one should.
    let pid = program.id();
    let refused = place.undercroft(&format!("attach --segments . --record other --pid {pid}"));
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("records this program already"));
    let mut data = Vec::new();
    pipe.read_to_end(&mut data).unwrap();
    assert_eq!(data.len(), BLOCKS * BLOCK);
    assert!(program.wait().unwrap().success());
    wait_for(&place, "lost");
    let said = said(&place);
    assert!(said.contains("; 0 lost, 0 blocks of 4 KiB had no place"), "{said}");
    let file = "traces/000001.uct.zst";
    let info = info(&place, file);
    // What the program read before the recorder began is missing: as much as a pipe holds.
    let reads = info["reads"].as_u64().unwrap() as usize;
    assert!(reads < BLOCKS && reads > BLOCKS - 200, "{info}");
    assert_eq!(info["block_bytes"], BLOCK, "{info}");
    // The program has one buffer: each read evicts the block before.
    let evictions = info["left_out"].as_u64().unwrap() as usize;
    assert!(evictions >= reads - 1 && evictions <= reads + 1, "{said} {info}");
    let simulate = "--l1 64blk:lru --placement eviction,on-hit=move --evictions told --json";
    let output = place.undercroft(&format!("simulate {file} {simulate}"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let level = &result["levels"][0];
    assert_eq!(level["reads"], reads, "{level}");
    assert!(level["reloads"].as_u64().unwrap() as usize >= reads - 1, "{level}");
    assert_eq!(server.stop(), 0);
}

#[test]
fn a_recorder_says_what_is_wrong() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    let refused = place.undercroft("attach --segments . --record traces --pid 4194304");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("nothing is recorded"), "{}", text(&refused.stderr));
}
