//! The store on files and block devices.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tempfile::TempDir;
use undercroft_store::{FileOptions, FileStore, Store, Zeroing};

use crate::suite::{Random, conforms, folder, read, read_into, refuses_changes, seed, write};

fn sized(size: u64) -> FileOptions {
    FileOptions { size: Some(size), ..FileOptions::default() }
}

/// Opens a file. One that was closed just now may be in use for a moment: a second process that
/// another test begins has all files of this one until it executes its program.
fn open(path: &Path, options: &FileOptions) -> FileStore {
    let began = Instant::now();
    loop {
        match FileStore::open(path, options) {
            Err(error)
                if error.kind() == ErrorKind::ResourceBusy
                    && began.elapsed() < Duration::from_secs(10) =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// Bytes that a file occupies.
fn used(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata(path).unwrap().blocks() * 512
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_to_the_suite() {
    let folder = folder();
    conforms(Arc::new(open(&folder.path().join("odd"), &sized(1_000_003))), 1000).await;
    conforms(Arc::new(open(&folder.path().join("tiny"), &sized(100))), 300).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_with_direct_io() {
    let folder = folder();
    let options = FileOptions { direct: true, ..sized(8 << 20) };
    let store = match FileStore::open(&folder.path().join("direct"), &options) {
        Ok(store) => store,
        Err(error) => return println!("skipped: no direct I/O here: {error}"),
    };
    let alignment = store.facts().alignment;
    assert!(alignment >= 512, "alignment {alignment}");
    conforms(Arc::new(store), 600).await;
}

/// A file system in memory knows neither zeroing of ranges nor fast flushes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_on_a_file_system_that_knows_less() {
    let Ok(folder) = TempDir::new_in("/dev/shm") else {
        return println!("skipped: no /dev/shm");
    };
    let path = folder.path().join("shm");
    conforms(Arc::new(open(&path, &sized(1_000_003))), 1000).await;
    let path = folder.path().join("keeps");
    let store = open(&path, &sized(1 << 20));
    let keep = Zeroing { keep_allocated: true, only_if_fast: false };
    store.zero(0, 98_304, keep, false).await.unwrap();
    assert_eq!(used(&path), 98_304);
    write(&store, 0, &[7; 98_304]).await.unwrap();
    store.zero(0, 98_304, Zeroing::default(), false).await.unwrap();
    assert_eq!(used(&path), 0);
}

#[tokio::test]
async fn a_new_file_is_sparse_and_holes_come_back() {
    let folder = folder();
    let path = folder.path().join("sparse");
    let store = open(&path, &sized(1 << 30));
    assert_eq!(used(&path), 0);
    write(&store, 512 << 20, &[1; 1 << 20]).await.unwrap();
    store.flush().await.unwrap();
    assert!((1 << 20..3 << 20).contains(&used(&path)), "{}", used(&path));
    let extents = store.extents(0, 1 << 30).await.unwrap();
    let seen: Vec<_> = extents.iter().map(|extent| (extent.length, extent.hole)).collect();
    assert_eq!(seen, [(512 << 20, true), (1 << 20, false), (511 << 20, true)]);
    store.trim(0, 1 << 30, true).await.unwrap();
    assert!(used(&path) < 1 << 20, "{}", used(&path));
    assert_eq!(read(&store, 512 << 20, 10).await.unwrap(), [0; 10]);
}

#[tokio::test]
async fn the_size_must_fit() {
    let folder = folder();
    let path = folder.path().join("volume");
    let missing = FileStore::open(&path, &FileOptions::default()).err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("give a size"), "{missing}");
    let read_only = FileOptions { read_only: true, ..sized(4096) };
    assert!(FileStore::open(&path, &read_only).is_err());
    assert!(!path.exists(), "a refused store leaves nothing behind");

    drop(open(&path, &sized(4096)));
    drop(open(&path, &sized(4096)));
    let other = FileStore::open(&path, &sized(8192)).err().unwrap();
    assert!(other.to_string().contains("exists with 4096 bytes, not 8192"), "{other}");
    let huge = FileStore::open(&folder.path().join("huge"), &sized(u64::MAX)).err().unwrap();
    assert_eq!(huge.kind(), ErrorKind::InvalidInput);
    let none = FileOptions { threads: 0, ..FileOptions::default() };
    assert!(FileStore::open(&path, &none).is_err());
}

#[tokio::test]
async fn a_file_is_created_only_where_it_may_be_and_that_is_known() {
    let folder = folder();
    let path = folder.path().join("volume");
    let existing = FileOptions { must_exist: true, ..sized(4096) };
    let refused = FileStore::open(&path, &existing).err().unwrap();
    assert!(refused.to_string().ends_with("is not to be created (create=no)"), "{refused}");
    assert!(!path.exists());
    assert!(open(&path, &sized(4096)).is_new());
    assert!(!open(&path, &existing).is_new());
    // Another way to the same folder changes nothing.
    std::os::unix::fs::symlink("/dev", folder.path().join("dev")).unwrap();
    for name in [PathBuf::from("/dev/undercroft-no-disk"), folder.path().join("dev/no-disk")] {
        let refused = FileStore::open(&name, &sized(4096)).err().unwrap();
        assert!(refused.to_string().contains("no file is created below /dev"), "{refused}");
        assert!(!name.exists());
    }
}

#[tokio::test]
async fn direct_io_refuses_a_size_that_is_no_whole_sectors() {
    let folder = folder();
    let path = folder.path().join("odd");
    std::fs::write(&path, [0; 1000]).unwrap();
    let options = FileOptions { direct: true, ..FileOptions::default() };
    let error = FileStore::open(&path, &options).err().unwrap();
    assert!(error.to_string().contains("direct"), "{error}");
}

#[tokio::test]
async fn folders_and_pipes_are_refused() {
    let folder = folder();
    let error = FileStore::open(folder.path(), &FileOptions::default()).err().unwrap();
    assert!(error.to_string().contains("neither a regular file"), "{error}");
    let error = FileStore::open(Path::new("/dev/null"), &FileOptions::default()).err().unwrap();
    assert!(error.to_string().contains("neither a regular file"), "{error}");
}

#[tokio::test]
async fn read_only_refuses_changes_and_is_shared() {
    let folder = folder();
    let path = folder.path().join("volume");
    write(&open(&path, &sized(100_000)), 0, &[9; 100_000]).await.unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let store = open(&path, &options);
    refuses_changes(&store).await;
    let second = open(&path, &options);
    assert_eq!(read(&second, 99_999, 1).await.unwrap(), [9]);
    let writer = FileStore::open(&path, &FileOptions::default()).err().unwrap();
    assert_eq!(writer.kind(), ErrorKind::ResourceBusy);
}

#[tokio::test]
async fn growth_is_seen_when_asked_for() {
    let folder = folder();
    let path = folder.path().join("volume");
    let store = open(&path, &sized(4096));
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(10_000).unwrap();
    assert_eq!(store.facts().size, 4096);
    assert!(write(&store, 4096, b"x").await.is_err());
    assert_eq!(store.reload().await.unwrap(), 10_000);
    write(&store, 9_999, b"x").await.unwrap();
    file.set_len(5_000).unwrap();
    assert_eq!(store.reload().await.unwrap(), 10_000, "a store never shrinks");
    let error = read(&store, 9_000, 100).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    assert!(error.to_string().contains("read of 100 bytes at 9000"), "{error}");
}

/// What the page cache does not hold takes the way through the threads, and is the same.
#[tokio::test]
async fn reads_that_are_not_cached_are_the_same() {
    let folder = folder();
    let path = folder.path().join("volume");
    let data = Random::new(seed()).bytes(1 << 20);
    std::fs::write(&path, &data).unwrap();
    let file = File::open(&path).unwrap();
    file.sync_all().unwrap();
    let store = open(&path, &FileOptions::default());
    for round in 0..3 {
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        // A stretch in the middle is cached: a read over its end is short at first.
        read(&store, 300_000, 1000).await.unwrap();
        let got = read_into(&store, 290_000, &[5000, 70_000, 25_000]).await.unwrap();
        assert!(got == data[290_000..390_000], "round {round}");
    }
    let all = read_into(&store, 0, &[1; 4000]).await.unwrap();
    assert!(all == data[..4000], "more buffers than one call of the kernel takes");
}

#[tokio::test]
async fn more_pieces_than_one_call_takes_are_written() {
    let folder = folder();
    for direct in [false, true] {
        let path = folder.path().join(format!("volume-{direct}"));
        let options = FileOptions { direct, ..sized(1 << 20) };
        let Ok(store) = FileStore::open(&path, &options) else {
            println!("skipped: no direct I/O here");
            continue;
        };
        let data = Random::new(seed()).bytes(8192);
        let pieces = data.chunks(2).map(Bytes::copy_from_slice).collect();
        store.write(4096, pieces, true).await.unwrap();
        assert!(read_into(&store, 4096, &[2; 4096]).await.unwrap() == data);
    }
}

// Second processes: the test program calls itself with one of the tests below, told by the
// environment what to do.

const ROLE: &str = "UNDERCROFT_TEST_FILE";

fn second_process(test: &str, path: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"])
        .env(ROLE, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn wait_for(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(word)), "the second process ended early");
}

fn told_path() -> PathBuf {
    std::env::var_os(ROLE).expect("run by another test only").into()
}

#[tokio::test]
#[ignore = "the second process of another test"]
async fn second_process_holds_the_lock() {
    let _store = open(&told_path(), &FileOptions::default());
    println!("locked");
    let _ = std::io::stdin().read(&mut [0]);
}

#[tokio::test]
async fn a_lock_is_refused_and_its_holder_named() {
    let folder = folder();
    let path = folder.path().join("volume");
    drop(open(&path, &sized(4096)));
    let mut child = second_process("file::second_process_holds_the_lock", &path);
    wait_for(&mut child, "locked");
    for read_only in [false, true] {
        let options = FileOptions { read_only, ..FileOptions::default() };
        let error = FileStore::open(&path, &options).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::ResourceBusy);
        let holder = format!("in use by process {} (", child.id());
        assert!(error.to_string().contains(&holder), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    open(&path, &FileOptions::default());
}

#[tokio::test]
#[ignore = "the second process of another test"]
async fn second_process_writes_and_dies() {
    let store = open(&told_path(), &FileOptions::default());
    store.write(1000, vec![Bytes::from_static(b"durable")], true).await.unwrap();
    store.zero(5000, 100, Zeroing::default(), true).await.unwrap();
    // Many more that nobody answers for: some are in the queue when the process ends.
    let rest: Vec<_> = (0..64).map(|at| store.write(20_000 + at, vec!["x".into()], true)).collect();
    println!("answered");
    drop(rest);
    std::process::abort();
}

#[tokio::test]
async fn what_was_answered_durable_survives_a_crash_of_the_process() {
    let folder = folder();
    let path = folder.path().join("volume");
    write(&open(&path, &sized(100_000)), 0, &[9; 20_000]).await.unwrap();
    let mut child = second_process("file::second_process_writes_and_dies", &path);
    wait_for(&mut child, "answered");
    assert!(!child.wait().unwrap().success());
    let store = open(&path, &FileOptions::default());
    assert_eq!(read(&store, 1000, 7).await.unwrap(), b"durable");
    assert_eq!(read(&store, 5000, 100).await.unwrap(), [0; 100]);
    assert_eq!(read(&store, 5100, 1).await.unwrap(), [9]);
}

#[tokio::test]
#[ignore = "the second process of another test"]
async fn second_process_fills_its_disk() {
    let store = open(&told_path(), &sized(64 << 20));
    let data = vec![Bytes::from(vec![1; 8 << 20])];
    let error = store.write(4096, data, false).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(undercroft_store::os_error(&error), Some(rustix::io::Errno::NOSPC.raw_os_error()));
    assert!(error.to_string().contains("write of 8388608 bytes at 4096"), "{error}");
    println!("full");
}

/// In a mount namespace of its own, so that nothing is left mounted.
#[test]
fn a_full_disk_is_said_to_be_full() {
    let folder = folder();
    let exe = std::env::current_exe().unwrap();
    let mount = "mount -t tmpfs -o size=1m none \"$0\" || { echo skipped; exit 0; }; \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", mount])
        .arg(folder.path())
        .arg(exe)
        .args(["--exact", "file::second_process_fills_its_disk", "--ignored", "--nocapture"])
        .env(ROLE, folder.path().join("volume"))
        .output();
    let said = match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        Ok(output) if output.stdout.is_empty() => "skipped".to_owned(),
        Ok(output) => panic!("{}", String::from_utf8_lossy(&output.stdout)),
        Err(_) => "skipped".to_owned(),
    };
    if said.contains("skipped") {
        return println!("skipped: no mount namespaces here");
    }
    assert!(said.contains("full\n"), "{said}");
}

/// A loop device, taken apart again at the end.
struct Loop(PathBuf);

impl Loop {
    fn new(file: &Path) -> Option<Loop> {
        let output = Command::new("losetup").args(["--show", "--find"]).arg(file).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Loop(name.trim_end().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_on_a_block_device() {
    let folder = folder();
    let backing = folder.path().join("disk");
    File::create(&backing).unwrap().set_len(4 << 20).unwrap();
    let Some(device) = Loop::new(&backing) else {
        return println!("skipped: no loop devices here");
    };
    for direct in [false, true] {
        let options = FileOptions { direct, ..FileOptions::default() };
        let store: Arc<dyn Store> = Arc::new(open(&device.0, &options));
        let facts = store.facts();
        assert_eq!((facts.size, facts.alignment == 1), (4 << 20, !direct));
        conforms(store, 400).await;
    }
    let store = open(&device.0, &FileOptions::default());
    let second = FileStore::open(&device.0, &FileOptions::default()).err().unwrap();
    assert_eq!(second.kind(), ErrorKind::ResourceBusy);
    let unaligned = Zeroing { keep_allocated: false, only_if_fast: true };
    write(&store, 0, &[5; 10_000]).await.unwrap();
    store.zero(100, 9000, unaligned, false).await.unwrap();
    assert_eq!(read(&store, 99, 2).await.unwrap(), [5, 0]);
    assert_eq!(read(&store, 9099, 2).await.unwrap(), [0, 5]);
}

/// Reads leave the version as it is; every change, by whomever, makes it another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_tells_of_every_change() {
    let folder = folder();
    let path = folder.path().join("file");
    let store = open(&path, &sized(1 << 20));
    // The clock of a file's times has steps of some milliseconds.
    let tick = || std::thread::sleep(std::time::Duration::from_millis(20));
    let first = store.version().await.unwrap();
    tick();
    read(&store, 0, 4096).await.unwrap();
    assert_eq!(store.version().await, Some(first));
    write(&store, 0, &[1; 4096]).await.unwrap();
    let second = store.version().await.unwrap();
    assert_eq!(second.identity, first.identity);
    assert!(second.changed_ns > first.changed_ns);
    drop(store);
    tick();
    let store = open(&path, &FileOptions::default());
    assert_eq!(store.version().await, Some(second), "opening it changes nothing");
    drop(store);
    // Somebody else changes it, and puts its own time back.
    let file = File::options().write(true).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"x").unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    drop(file);
    let store = open(&path, &FileOptions::default());
    let third = store.version().await.unwrap();
    assert!(third.changed_ns > second.changed_ns);
    drop(store);
    std::fs::remove_file(&path).unwrap();
    let other = open(&path, &sized(1 << 20)).version().await.unwrap();
    let larger = open(&folder.path().join("file2"), &sized(2 << 20)).version().await.unwrap();
    assert!(other.changed_ns > third.changed_ns);
    assert_ne!(larger.identity, third.identity);
}

/// Memory that begins at a multiple of 4 KiB.
struct Page(Vec<u8>);

impl AsMut<[u8]> for Page {
    fn as_mut(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr().addr().wrapping_neg() % 4096;
        &mut self.0[start..start + 4096]
    }
}

/// As on a thread of connections: the answers come from its ring, or from threads where it has no
/// room, and they are the same.
#[tokio::test]
async fn a_direct_read_ends_on_the_thread_that_asked() {
    const PAGES: usize = 200;
    let folder = folder();
    let options = FileOptions { direct: true, ..sized(PAGES as u64 * 4096) };
    let Ok(store) = FileStore::open(&folder.path().join("direct"), &options) else {
        return println!("skipped: no direct I/O here");
    };
    let data = Random::new(seed()).bytes(PAGES * 4096);
    write(&store, 0, &data).await.unwrap();
    drop(tokio::spawn(undercroft_ring::serve()));
    tokio::task::yield_now().await;
    let begin = |page| store.read(page as u64 * 4096, vec![Box::new(Page(vec![0; 8192]))]);
    // The first one makes the ring, if the system has any; options say how many it takes at a time.
    drop(begin(0).await);
    tokio::task::yield_now().await;
    let zeroes = Arc::new(File::open("/dev/zero").unwrap());
    let is_taken = undercroft_ring::read(&zeroes, 0, Box::new(vec![0; 1])).is_ok();
    let reads: Vec<_> = (0..PAGES).map(begin).collect();
    match is_taken {
        true => assert_eq!(undercroft_ring::awaited(), FileOptions::THREADS),
        false => println!("skipped: no io_uring here"),
    }
    for (page, read) in reads.into_iter().enumerate() {
        let (mut buffers, result) = read.await;
        result.unwrap();
        let [memory] = &mut buffers[..] else { panic!("one buffer") };
        assert!((**memory).as_mut() == &data[page * 4096..][..4096], "page {page}");
    }
    assert_eq!(undercroft_ring::awaited(), 0);
}
