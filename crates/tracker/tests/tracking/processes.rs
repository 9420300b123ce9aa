//! Several processes at work on one table, of which some are killed at any moment. They are this
//! test program once more, with a segment to work on.

use std::process::{Child, Command};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use undercroft_tracker::ring::{Next, Ring};
use undercroft_tracker::segment::layout::SENDER;
use undercroft_tracker::segment::{Segment, State};
use undercroft_tracker::table::{Key, Place, Sink, Table};

use crate::{Nobody, Random};

const SEGMENT: &str = "TRACKING_TEST_SEGMENT";
/// A word of the header that nothing else uses: rounds of all workers.
const ROUNDS: usize = 4000;

struct Push<'a>(Ring<'a>);

impl Sink for Push<'_> {
    fn evicted(&mut self, block: Key) {
        self.0.push([block.word(), 1, 0]);
    }

    fn late(&mut self, _: Key) {}
}

/// What a process does that was started by the test below; nothing in an ordinary run.
#[test]
fn worker() {
    let Some(path) = std::env::var_os(SEGMENT) else { return };
    // Opened for writing by hand: users of the library inherit it.
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let segment = Segment::attach(&file, path.as_ref()).unwrap();
    let table = Table::new(&segment);
    let mut random = Random::new(u64::from(std::process::id()));
    loop {
        let address = 0x7000_0000_0000 + random.below(2000) * 2048;
        let place = Place::new(0, address).unwrap();
        let block = Key::new(300, random.below(4000)).unwrap();
        let mut sink = Push(Ring::new(&segment));
        match random.below(8) {
            0..5 => table.read(place, block, &mut sink),
            5..7 => table.write(place, block, false, &mut sink),
            _ => table.clear(0, address, 10_000, &mut sink),
        }
        segment.word(ROUNDS).fetch_add(1, SeqCst);
    }
}

fn start(segment: &Segment) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::worker", "--nocapture"])
        .env(SEGMENT, segment.path())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn killed_processes_leave_a_table_that_works() {
    let folder = tempfile::tempdir().unwrap();
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    segment.fill().unwrap();
    segment.set_state(State::Ready);
    let ring = Ring::new(&segment);
    let mut workers: Vec<_> = (0..3).map(|_| start(&segment)).collect();
    let (mut taken, mut torn) = (0, 0);
    for round in 0..30 {
        let rounds = segment.word(ROUNDS).load(SeqCst);
        std::thread::sleep(Duration::from_millis(20));
        while segment.word(ROUNDS).load(SeqCst) == rounds {
            std::thread::sleep(Duration::from_millis(1));
        }
        loop {
            match ring.pop() {
                Next::Record([key, 1, 0]) => {
                    assert_eq!(Key::from_word(key).file(), 300);
                    taken += 1;
                }
                Next::Record(other) => panic!("{other:?}"),
                _ => break,
            }
        }
        let worker = round % workers.len();
        workers[worker].kill().unwrap();
        workers[worker].wait().unwrap();
        workers[worker] = start(&segment);
    }
    for worker in &mut workers {
        worker.kill().unwrap();
        worker.wait().unwrap();
    }
    // Now all is quiet. What is left of killed writers is given up; then everything is read.
    loop {
        match ring.pop() {
            Next::Record(_) => taken += 1,
            Next::Unfinished => {
                ring.skip();
                torn += 1;
            }
            Next::Nothing => break,
        }
    }
    assert!(taken > 1000 && torn <= 33, "{taken} records, {torn} unfinished");
    // Racing calls on overlapping memory may leave a block in two frames, as no program does. But
    // the table must still work exactly, once what they left is overwritten.
    let table = Table::new(&segment);
    table.clear(0, 0x7000_0000_0000, 2000 * 2048 + 4096, &mut Nobody);
    assert_eq!(table.content().count(), 0);
    table.check().unwrap();
    for block in 0..1000 {
        let place = Place::new(0, 0x7000_0000_0000 + block * 4096).unwrap();
        table.read(place, Key::new(300, block).unwrap(), &mut Nobody);
    }
    table.check().unwrap();
    assert_eq!(table.content().count(), 1000);
}

#[test]
fn segments_of_dead_processes_are_removed_and_others_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new("true").spawn().unwrap();
    let dead = folder.path().join(format!("undercroft-cct.{}", child.id()));
    child.wait().unwrap();
    let mut sleeper = Command::new("sleep").arg("100").spawn().unwrap();
    let alive = folder.path().join(format!("undercroft-cct.{}", sleeper.id()));
    let other = folder.path().join("undercroft-cct.txt");
    for path in [&dead, &alive, &other] {
        std::fs::write(path, vec![0; 100_000]).unwrap();
    }
    let segment = Segment::create(folder.path(), 1 << 20).unwrap();
    assert!(!dead.exists() && alive.exists() && other.exists() && segment.path().exists());
    assert!(Segment::open(&alive).is_err());
    let seen = Segment::of_process(folder.path(), std::process::id()).unwrap();
    assert_eq!(seen.status().pid, std::process::id());
    assert!(!seen.status().is_tracking && seen.resident().is_empty());
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
}

/// As when a program leaves its work to a child, and then calls another program by `exec`.
#[test]
fn a_segment_of_our_own_number_stays_while_a_child_sends() {
    let folder = tempfile::tempdir().unwrap();
    let first = Segment::create(folder.path(), 16 << 20).unwrap();
    let mut child = Command::new("sleep").arg("100").spawn().unwrap();
    first.word(SENDER).store(child.id().into(), SeqCst);
    let second = Segment::create(folder.path(), 16 << 20).unwrap();
    assert!(first.path() != second.path() && first.path().exists());
    assert!(first.fill().is_ok(), "the file is the one that it made");
    let found = Segment::of_process(folder.path(), std::process::id()).unwrap();
    assert_eq!(found.path(), second.path());
    child.kill().unwrap();
    child.wait().unwrap();
    let third = Segment::create(folder.path(), 16 << 20).unwrap();
    assert!(third.path() == first.path() && !second.path().exists());
    // Nor does our own number keep it, since the thread that sent ended with `exec`.
    third.word(SENDER).store(std::process::id().into(), SeqCst);
    let fourth = Segment::create(folder.path(), 16 << 20).unwrap();
    assert_eq!(fourth.path(), third.path());
}

/// As when a program of root is called by another user's number, and calls that user's program.
#[test]
fn a_segment_that_cannot_be_removed_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    let pid = std::process::id();
    let missing = Segment::of_process(folder.path(), pid).err().unwrap();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    let taken = folder.path().join(format!("undercroft-cct.{pid}"));
    std::fs::create_dir(&taken).unwrap();
    assert!(Segment::of_process(folder.path(), pid).is_err());
    let segment = Segment::create(folder.path(), 16 << 20).unwrap();
    assert!(segment.path().starts_with(folder.path()) && segment.path() != taken);
    let found = Segment::of_process(folder.path(), pid).unwrap();
    assert_eq!(found.path(), segment.path());
    // Where the older one can be opened, the younger one is meant.
    std::fs::remove_dir(&taken).unwrap();
    std::fs::copy(segment.path(), &taken).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&taken).unwrap();
    let older = Segment::attach(&file, &taken).unwrap();
    older.word(undercroft_tracker::segment::layout::STARTED_US).fetch_sub(1, SeqCst);
    assert_eq!(Segment::of_process(folder.path(), pid).unwrap().path(), segment.path());
}
