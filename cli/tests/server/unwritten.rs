//! The end of a server whose stores do not take everything: who waits for whom, what is named, what
//! is kept, and how it comes back.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::support::{PATIENCE, Place, ended, read, text, write};

const BLOCK: u64 = 4096;

/// The files in a folder with this end of their name.
fn kept(place: &Place, end: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(place.path("kept")).into_iter().flatten().flatten();
    let files = files.map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|found| found == end)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_bad_place_does_not_take_is_kept_and_written_on_request() {
    let place = Place::new();
    let bad = "--volume v=fail(write,at=40KiB..48KiB):file:v.img,size=4MiB \
               --write back --unwritten kept --close-s 1";
    let server = place.serve(bad);
    let client = server.connect("v").await;
    for block in 0..600 {
        write(&client, block * BLOCK, vec![5; 4096]).await.unwrap();
    }
    assert_eq!(server.stop(), 1);
    let said = fs::read_to_string(place.path("stderr")).unwrap();
    let last = said.lines().last().unwrap();
    assert!(last.contains("2 blocks of 4096 bytes are not written: 10-11"), "{said}");
    assert!(last.contains("kept in kept/v-"), "{said}");
    let image = place.read("v.img");
    let written = image.chunks(4096).filter(|block| block.iter().all(|&byte| byte == 5)).count();
    assert_eq!(written, 598, "all others are at the store");
    let [file] = &kept(&place, "unwritten")[..] else { panic!("one file is kept") };
    let file = file.to_str().unwrap();
    let shown = place.undercroft(&format!("unwritten show {file}"));
    assert!(text(&shown.stdout).contains("bytes 40960 to 49151\n"), "{shown:?}");
    // The disk is mended.
    let done = place.undercroft(&format!("unwritten write {file} --store file:v.img"));
    assert!(done.status.success(), "{done:?}");
    let image = place.read("v.img");
    assert!(image[..600 * 4096].iter().all(|&byte| byte == 5));
    assert_eq!((kept(&place, "unwritten").len(), kept(&place, "written").len()), (0, 1));
}

/// A write log that is full goes on with its store no more when the rest is kept: that would count
/// as a change by somebody else.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_full_log_does_not_take_is_kept() {
    let place = Place::new();
    let store = |before| format!("log(v.log,size=8MiB):{before}file:v.img");
    let slow = store("delay(1s,queue=1):");
    let server = place.serve(&format!(
        "--volume v={slow},size=32MiB --cache 32MiB --write back --unwritten kept --close-s 1"
    ));
    let client = server.connect("v").await;
    for block in 0..4096 {
        write(&client, block * BLOCK, vec![5; 4096]).await.unwrap();
    }
    assert_eq!(server.stop(), 1);
    let [file] = &kept(&place, "unwritten")[..] else { panic!("one file is kept") };
    let write_to = |store: &str| format!("unwritten write {} --store {store}", file.display());
    // The log moves blocks to its store, slowly, when the attempt is ended.
    let changed = || fs::metadata(place.path("v.img")).unwrap().modified().unwrap();
    let before = changed();
    let mut attempt = place.undercroft_command(&write_to(&slow)).spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while changed() == before {
        if Instant::now() > deadline {
            attempt.kill().unwrap();
        }
        assert!(attempt.try_wait().unwrap().is_none(), "nothing was moved");
        std::thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&attempt), Signal::INT).unwrap();
    assert_eq!(ended(&mut attempt, "unwritten write, after SIGINT").code(), Some(1));
    let fast = store("");
    let done = place.undercroft(&write_to(&fast));
    assert!(done.status.success(), "{done:?}");
    let server = place.serve(&format!("--volume v={fast},size=32MiB"));
    let data = read(&server.connect("v").await, 0, 4096 * BLOCK as usize).await.unwrap();
    assert!(data.iter().all(|&byte| byte == 5));
    assert_eq!(server.stop(), 0);
}

/// Blocks that a write log has are durable, whatever becomes of the store behind it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_may_go_to_a_write_log() {
    let place = Place::new();
    let server = place.serve(
        "--volume v=fail(write):file:v.img,size=1MiB --write back --unwritten kept --close-s 0",
    );
    let client = server.connect("v").await;
    write(&client, 0, vec![5; 4096]).await.unwrap();
    assert_eq!(server.stop(), 1);
    let [file] = &kept(&place, "unwritten")[..] else { panic!("one file is kept") };
    let store = |before| format!("log(v.log,size=8MiB):{before}file:v.img");
    let (file, bad) = (file.display(), store("fail(write):"));
    let done = place.undercroft(&format!("unwritten write {file} --store {bad}"));
    assert!(done.status.success(), "{done:?}");
    assert!(text(&done.stderr).contains("needs its write log from now on"), "{done:?}");
    assert_eq!(place.read("v.img")[0], 0);
    let server = place.serve(&format!("--volume v={}", store("")));
    assert_eq!(read(&server.connect("v").await, 0, 4096).await.unwrap(), vec![5; 4096]);
    assert_eq!(server.stop(), 0);
    assert_eq!(place.read("v.img")[..4096], [5; 4096]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_kept_is_refused_once_the_volume_was_open_for_writing() {
    let place = Place::new();
    let serve = |store: &str| format!("--volume v={store},size=1MiB --write back --unwritten kept");
    let server = place.serve(&(serve("fail(write):file:v.img") + " --close-s 0"));
    let client = server.connect("v").await;
    write(&client, 0, vec![1; 4096]).await.unwrap();
    assert_eq!(server.stop(), 1);
    let [file] = &kept(&place, "unwritten")[..] else { panic!("one file is kept") };
    // Readers do no harm; a server that may write does.
    let server = place.serve(
        &(serve("file:v.img") + ",read-only")
            .replace(" --write back --unwritten kept,read-only", ",read-only --unwritten kept"),
    );
    assert_eq!(server.stop(), 0);
    assert_eq!(kept(&place, "unwritten").len(), 1);
    let server = place.serve(&serve("file:v.img"));
    assert_eq!(server.stop(), 0);
    assert_eq!((kept(&place, "unwritten").len(), kept(&place, "outdated").len()), (0, 1));
    let outdated = file.with_extension("outdated");
    let refused = place.undercroft(&format!("unwritten write {}", outdated.display()));
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert_eq!(place.read("v.img")[0], 0);
}

/// Volumes are closed at the same time: one whose store stalls keeps no other from being written.
#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_volume_keeps_no_other_from_being_written() {
    let place = Place::new();
    let server = place.serve(
        "--volume a=fail(write,stall):file:a.img,size=1MiB \
         --volume b=file:b.img,size=1MiB --volume c=fail(write):file:c.img,size=1MiB \
         --write back --close-s 2",
    );
    for name in ["a", "b", "c"] {
        let client = server.connect(name).await;
        write(&client, 0, vec![3; 4096]).await.unwrap();
        assert_eq!(read(&client, 0, 4096).await.unwrap(), vec![3; 4096]);
        client.close().await;
    }
    let start = Instant::now();
    assert_eq!(server.stop(), 1);
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(place.read("b.img")[..4096], [3; 4096]);
    let said = fs::read_to_string(place.path("stderr")).unwrap();
    assert!(said.contains("volume a: ") && said.contains("volume c: "), "{said}");
    assert!(!said.contains("volume b: "), "{said}");
}
