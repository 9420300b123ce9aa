//! Stores that refuse, and what FLUSH and the end of a volume do about it: a FLUSH ends, one bad
//! block costs no other, a store that comes back gets everything, and what is lost is named. The
//! clock moves only while nothing else is to do: a busy machine uses up no patience.

use std::collections::HashMap;
use std::future::{pending, ready};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::common::{self, BLOCK, READ, TestStore, begin, flush, open, open_on, write, write_of};
use tokio::time::{sleep, timeout};
use undercroft_nbd::{Command, Failure};
use undercroft_server::process::{OpeningStore, Running, Settings, Surroundings, write_unwritten};
use undercroft_server::{Caller, Volume, VolumeConfig};
use undercroft_store::{
    FailHandle, FailRule, FailStore, FailWith, Failure as Fails, MemoryStore, OpenOptions,
    RequestKind, Store, StoreSpec, Trigger,
};

/// How long anything may take that ends at all.
const PATIENCE: Duration = Duration::from_secs(60);

struct Fixture {
    volume: Arc<Volume>,
    memory: Arc<MemoryStore>,
    faults: FailHandle,
}

fn write_back(cache: u32) -> VolumeConfig {
    let close_patience = Duration::from_millis(500);
    VolumeConfig { close_patience, ..common::write_back(cache) }
}

fn fixture(config: VolumeConfig, rule: Option<FailRule>) -> Fixture {
    let memory = Arc::new(MemoryStore::new(64 << 20).unwrap());
    let store = FailStore::new(Arc::clone(&memory) as Arc<dyn Store>, rule);
    let faults = store.handle();
    Fixture { volume: open_on(config, Arc::new(store)), memory, faults }
}

fn bad(from: u64, to: u64) -> Option<FailRule> {
    let trigger = Trigger::Within { from: from * BLOCK, to: to * BLOCK };
    Some(FailRule { kind: Some(RequestKind::Write), trigger, failure: Fails::Error(FailWith::Io) })
}

fn every_write(failure: Fails) -> Option<FailRule> {
    Some(FailRule { kind: Some(RequestKind::Write), trigger: Trigger::From(1), failure })
}

/// The first byte of each of the store's blocks.
async fn stored(memory: &Arc<MemoryStore>, blocks: u64) -> Vec<u8> {
    let mut first = Vec::new();
    for block in 0..blocks {
        let (mut buffers, result) = memory.read(block * BLOCK, vec![Box::new(vec![0; 1])]).await;
        result.unwrap();
        first.push((*buffers[0]).as_mut()[0]);
    }
    first
}

/// WRITE, FLUSH and WRITE of neighbouring blocks that arrive together are written out as one run:
/// the failure of the second block must not hide that of the first from the FLUSH.
#[tokio::test(start_paused = true)]
async fn a_flush_ends_whatever_is_refused_beside_it() {
    for rule in [every_write(Fails::Error(FailWith::Io)), bad(10, 11), bad(11, 12)] {
        let Fixture { volume, faults, .. } = fixture(write_back(64), rule);
        let mut answers = Vec::new();
        let mut requests = Vec::new();
        for (command, block) in [(write_of(vec![1; 4096]), 10), (Command::Flush, 0)] {
            let length = if command == Command::Flush { 0 } else { BLOCK };
            let (request, answer) = crate::common::ask(command, block * BLOCK, length, false);
            requests.push(request);
            answers.push(answer);
        }
        let (request, answer) =
            crate::common::ask(write_of(vec![2; 4096]), 11 * BLOCK, BLOCK, false);
        requests.push(request);
        answers.push(answer);
        volume.serve(&mut requests, Caller::default());
        for (number, answer) in answers.into_iter().enumerate() {
            let answer = timeout(PATIENCE, answer).await.expect("it is never answered").unwrap();
            let may_fail = number == 1 && rule != bad(11, 12);
            assert_eq!(answer.is_err(), may_fail, "request {number}, {rule:?}");
        }
        let lost = timeout(PATIENCE, volume.close()).await.expect("it never ends");
        assert!(lost.is_err());
        faults.set(None);
        timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap();
        volume.validate().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn flushes_beside_writes_to_a_bad_place_all_end() {
    let Fixture { volume, .. } = fixture(write_back(256), bad(40, 60));
    let mut answers = Vec::new();
    for round in 0..200_u64 {
        let block = round * 7 % 100;
        answers.push(begin(&volume, write_of(vec![round as u8; 4096]), block * BLOCK, BLOCK));
        if round % 5 == 4 {
            answers.push(begin(&volume, Command::Flush, 0, 0));
        }
    }
    for answer in answers {
        let _ = timeout(PATIENCE, answer).await.expect("it is never answered").unwrap();
    }
    volume.validate().unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_bad_block_costs_no_other() {
    let blocks = 6000;
    let Fixture { volume, memory, .. } = fixture(write_back(8192), bad(3000, 3001));
    for block in 0..blocks {
        write(&volume, block * BLOCK, vec![1; 4096]).await.unwrap();
    }
    let lost = timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap_err();
    assert_eq!(lost.blocks, [3000..=3000]);
    assert!(lost.to_string().contains("1 blocks of 4096 bytes are not written: 3000"), "{lost}");
    let stored = stored(&memory, blocks).await;
    assert_eq!(stored.iter().filter(|&&byte| byte == 1).count() as u64, blocks - 1);
}

/// Blocks that the store refuses are the oldest that are dirty: the flusher gets past them.
#[tokio::test(start_paused = true)]
async fn a_bad_place_stops_the_write_back_of_no_other_block() {
    let mut config = write_back(8192);
    config.dirty_age = Duration::from_millis(20);
    let Fixture { volume, memory, .. } = fixture(config, bad(0, 1024));
    for block in 0..3000 {
        write(&volume, block * BLOCK, vec![1; 4096]).await.unwrap();
    }
    let written = async {
        while stored(&memory, 3000).await.iter().filter(|&&byte| byte == 1).count() < 3000 - 1024 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, written).await.expect("good blocks wait for bad ones");
    assert_eq!(volume.stats().dirty, 1024);
    volume.validate().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_comes_back_gets_everything() {
    let mut config = write_back(1024);
    config.close_patience = PATIENCE;
    let every = every_write(Fails::Error(FailWith::Io));
    let Fixture { volume, memory, faults } = fixture(config, every);
    for block in 0..700 {
        write(&volume, block * BLOCK, vec![1; 4096]).await.unwrap();
    }
    assert!(flush(&volume).await.is_err());
    let closing = tokio::spawn({
        let volume = Arc::clone(&volume);
        async move { volume.close().await }
    });
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!closing.is_finished());
    faults.set(None);
    timeout(PATIENCE, closing).await.expect("it never ends").unwrap().unwrap();
    assert!(stored(&memory, 700).await.iter().all(|&byte| byte == 1));
}

#[tokio::test(start_paused = true)]
async fn a_stalled_store_does_not_keep_a_volume_from_its_end() {
    let Fixture { volume, faults, .. } = fixture(write_back(64), every_write(Fails::Stall(None)));
    for block in 0..8 {
        write(&volume, block * BLOCK, vec![1; 4096]).await.unwrap();
    }
    let stalled = begin(&volume, Command::Flush, 0, 0);
    let lost = timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap_err();
    assert_eq!(lost.blocks, [0..=7]);
    assert!(lost.to_string().contains("does not answer"), "{lost}");
    faults.set(None);
    faults.release();
    assert!(timeout(PATIENCE, stalled).await.expect("it is never answered").unwrap().is_ok());
    timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap();
}

/// A block that was driven out of the cache and refused is read from where it is kept, and written
/// again.
#[tokio::test(start_paused = true)]
async fn a_refused_victim_stays_readable() {
    let Fixture { volume, faults, .. } = fixture(write_back(4), bad(0, 2));
    for block in 0..2 {
        write(&volume, block * BLOCK, vec![7; 4096]).await.unwrap();
    }
    for block in 10..20 {
        let _ = begin(&volume, READ, block * BLOCK, BLOCK).await.unwrap();
    }
    for block in 0..2 {
        assert_eq!(
            crate::common::read(&volume, block * BLOCK, BLOCK).await.unwrap(),
            vec![7; 4096]
        );
    }
    let refused = begin(&volume, Command::Flush, 0, 0).await.unwrap().unwrap_err();
    assert_eq!(refused.failure, Failure::Io);
    faults.set(None);
    flush(&volume).await.unwrap();
    assert_eq!(volume.stats().dirty, 0);
    volume.validate().unwrap();
}

/// A store that has a change and has not answered it is not given up: another server could open it,
/// and the change come after one of that server's.
#[tokio::test(start_paused = true)]
async fn a_store_with_a_change_under_way_is_not_given_up() {
    let store = TestStore::new(1 << 20, 512, 1);
    let volume = open(common::config(64, "lru"), &store);
    store.hold_writes.store(true, Ordering::SeqCst);
    let change = begin(&volume, write_of(vec![1; 4096]), 0, BLOCK);
    timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap();
    assert!(!store.is_closed.load(Ordering::SeqCst));
    store.release();
    assert!(change.await.unwrap().is_ok());
    timeout(PATIENCE, volume.close()).await.expect("it never ends").unwrap();
    assert!(store.is_closed.load(Ordering::SeqCst));
}

/// The file of what a store did not take stays valid: what was at the store when the server gave up
/// comes before it, and nothing after it, also if the store is well before the server is gone.
#[tokio::test]
async fn nothing_is_written_behind_the_file_of_what_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (mut stores, mut faults, mut volumes) = (HashMap::new(), Vec::new(), Vec::new());
    for (name, fails) in [("slow", Fails::Stall(None)), ("bad", Fails::Error(FailWith::Io))] {
        let path = folder.path().join(format!("{name}.img"));
        let spec: StoreSpec = format!("file:{}", path.display()).parse().unwrap();
        let options = OpenOptions { size: Some(1 << 20), ..OpenOptions::default() };
        let store = FailStore::new(spec.open(options).await.unwrap(), every_write(fails));
        faults.push(store.handle());
        stores.insert(name.to_owned(), Arc::new(store) as Arc<dyn Store>);
        let volume = format!("{name}={spec},policy=lru,write=back");
        volumes.push(Settings::volume(&volume).unwrap());
    }
    let config = Settings::default().set("volume", volumes).set("cache", "2MiB").config();
    let mut config = config.unwrap();
    config.listen.clear();
    config.unwritten = Some(folder.path().to_owned());
    config.volumes.iter_mut().for_each(|volume| volume.close_patience = Duration::ZERO);
    let give = move |name: &str| -> Option<OpeningStore> {
        Some(Box::pin(ready(Ok(Arc::clone(stores.get(name)?)))))
    };
    let surroundings = Surroundings { stores: Some(Arc::new(give)), ..Surroundings::default() };
    let running = Running::start_in(&config, surroundings).await.unwrap();
    // Whoever uses a volume keeps it from being gone.
    let volumes = running.volumes();
    for volume in &volumes {
        write(volume, 0, vec![7; 4096]).await.unwrap();
    }
    let answer = async {
        sleep(Duration::from_secs(1)).await;
        faults[0].release();
    };
    let (stopped, ()) = tokio::join!(running.stop(), answer);
    let said = stopped.unwrap_err().to_string();
    assert!(said.contains("volume slow") && said.contains("volume bad"), "{said}");
    faults[1].set(None);
    // The flusher would try again after a second.
    sleep(Duration::from_secs(3)).await;
    drop(volumes);
    let files = std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    let is_kept = |file: &PathBuf| file.extension().is_some_and(|end| end == "unwritten");
    let kept: Vec<_> = files.filter(is_kept).collect();
    assert_eq!(kept.len(), 2, "{said}");
    for file in kept {
        let written = async {
            loop {
                match write_unwritten(&file, None, pending(), Arc::new(|_: &str| {})).await {
                    Err(error) if error.to_string().contains("in use") => {
                        sleep(Duration::from_millis(20)).await;
                    }
                    other => break other.unwrap(),
                }
            }
        };
        let head = timeout(PATIENCE, written).await.expect("the store is still open");
        let image = std::fs::read(folder.path().join(format!("{}.img", head.volume))).unwrap();
        assert!(image[..4096].iter().all(|&byte| byte == 7), "{}", head.volume);
    }
}
