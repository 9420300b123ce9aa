//! Tests of the device and its parts.

use futures_util::future::join_all;
use std::fs::File;
use undercroft_flash::{FirstPage, PARTS_AT, PARTS_BYTES, Part, Parts};
use undercroft_store::{
    FailHandle, FailRule, FailStore, FailWith, Failure, FileOptions, FileStore, MemoryStore,
    RequestKind, Trigger,
};

use super::*;
use crate::flash::read;
use crate::process::flash_file::{first_page, format, parts};

const SEED: u64 = 1;

fn config(path: &Path, rest: &str) -> FlashConfig {
    format!("{},{rest}", path.display()).parse().unwrap()
}

fn volume(name: &str, flash_bytes: u64) -> VolumeConfig {
    let policy = "lru".parse().unwrap();
    let own = VolumeConfig::new(name, 64, policy);
    VolumeConfig { flash_bytes, awaits_flash: true, ..own }
}

async fn open(config: &FlashConfig) -> Result<Arc<FlashDevice>, ServeError> {
    let seed = Some(SEED);
    FlashDevice::open(config, true, &Surroundings { seed, ..Surroundings::default() }).await
}

#[tokio::test]
async fn a_new_file_is_made_and_what_is_something_else_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let device = open(&config(&path, "size=4MiB,budget=3MiB/day")).await.unwrap();
    assert_eq!(path.metadata().unwrap().len(), 4 << 20);
    let (one, other) = (volume("one", 1 << 20), volume("other", 2 << 20));
    let memory = MemoryStore::new(1 << 20).unwrap();
    let (first, second) = (
        device.part(&one, &memory, true).await.unwrap(),
        device.part(&other, &memory, true).await.unwrap(),
    );
    assert_eq!((first.first_byte, first.slots), (1 << 20, 256));
    assert_eq!((second.first_byte, second.slots), (2 << 20, 512));
    assert_eq!(second.spec.budget.bytes(), Some(3 << 19));
    assert!(device.part(&one, &memory, true).await.is_none(), "nothing is left");
    drop(first);
    let first = device.part(&one, &memory, true).await.unwrap();
    assert_eq!(first.first_byte, 1 << 20, "it has come back");
    let again = open(&config(&path, "size=4MiB")).await;
    assert!(again.is_err_and(|error| error.to_string().contains("in use")));
    drop((device, first, second));
    open(&config(&path, "size=2MiB")).await.unwrap();
    let larger = open(&config(&path, "size=8MiB")).await;
    assert!(larger.is_err_and(|error| error.to_string().contains("formatted with 4MiB")));

    let disk = folder.path().join("disk.img");
    std::fs::write(&disk, vec![7; 8 << 20]).unwrap();
    let foreign = open(&config(&disk, "size=4MiB")).await;
    assert!(foreign.is_err_and(|error| error.to_string().contains("holds something else")));
    assert_eq!(std::fs::read(&disk).unwrap(), vec![7; 8 << 20]);
    std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
    let empty = open(&config(&disk, "size=4MiB")).await;
    assert!(empty.is_err_and(|error| error.to_string().contains("not formatted")));
    let mut later = vec![0; 8 << 20];
    later[64 << 10] = 1;
    std::fs::write(&disk, &later).unwrap();
    assert_eq!(first_page(&disk), Ok(FirstPage::Foreign), "another first page, further on");
    std::fs::write(&disk, vec![0; 8 << 20]).unwrap();
    format(&disk, 8 << 20).unwrap();
    let device = open(&config(&disk, "size=8MiB")).await.unwrap();
    assert!(format(&disk, 8 << 20).is_err_and(|what| what.contains("in use")));
    drop(device);
    File::options().write(true).open(&disk).unwrap().set_len(5 << 20).unwrap();
    let cut = open(&config(&disk, "size=8MiB")).await;
    assert!(cut.is_err_and(|error| error.to_string().contains("has only 5MiB")));
}

/// Parts are where they were, unless they are to be others; and what is somebody else's now is
/// nobody's any more.
#[tokio::test]
async fn volumes_find_their_parts_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let options = FileOptions { size: Some(1 << 20), ..FileOptions::default() };
    let store = FileStore::open(&folder.path().join("store"), &options).unwrap();
    let warm = config(&path, "size=8MiB,restart=warm");
    let listed = || {
        let parts = parts(&path, 8 << 20).unwrap();
        let of = |part: &Part| (part.name.clone(), part.first_byte, part.id);
        parts.all().iter().map(of).collect::<Vec<_>>()
    };
    let (one, other) = (volume("one", 2 << 20), volume("other", 3 << 20));
    let device = open(&warm).await.unwrap();
    let first = device.part(&one, &store, true).await.unwrap();
    let second = device.part(&other, &store, true).await.unwrap();
    assert!(first.journals.is_some() && first.slots < 512 && first.slots > 500);
    let both = listed();
    assert_eq!(both.len(), 2);
    drop((device, first, second));
    // In another order, and beside one that was not there.
    let device = open(&warm).await.unwrap();
    let third = device.part(&volume("third", 1 << 20), &store, true).await.unwrap();
    let second = device.part(&other, &store, true).await.unwrap();
    let first = device.part(&one, &store, true).await.unwrap();
    assert!(both.iter().all(|part| listed().contains(part)), "{both:?}, {:?}", listed());
    // Where a shard has room for its journal alone there is no level.
    let small = VolumeConfig { shards: 4, ..volume("small", 64 << 10) };
    assert!(device.part(&small, &store, true).await.is_none());
    drop((device, first, second, third));
    // A larger one has room only where others were, and a store without a version is not
    // listed.
    let device = open(&warm).await.unwrap();
    let second = device.part(&volume("other", 4 << 20), &store, true).await.unwrap();
    let first = device.part(&one, &MemoryStore::new(1 << 20).unwrap(), true).await.unwrap();
    let names: Vec<_> = listed().into_iter().map(|(name, ..)| name).collect();
    assert!(first.journals.is_none() && names == ["other"], "{names:?}");
    drop((device, first, second));
    // A volume that has no flash any more is taken off, since nothing tells of its changes.
    let device = open(&warm).await.unwrap();
    let second = device.part(&volume("other", 3 << 20), &store, true).await.unwrap();
    assert_eq!(listed().len(), 1);
    drop(second);
    assert!(device.part(&volume("other", 0), &store, true).await.is_none() && listed().is_empty());
    drop(device);
    let device = open(&config(&path, "size=8MiB")).await.unwrap();
    let second = device.part(&volume("other", 4 << 20), &store, true).await.unwrap();
    assert!(second.journals.is_none() && listed().is_empty(), "cold");
}

/// A cold device whose directory lists parts of eight volumes, `v0` to `v7`; what it is over;
/// and what releases writes that stall.
async fn with_eight_parts(stalls: Trigger) -> (Arc<FlashDevice>, Arc<MemoryStore>, FailHandle) {
    const BYTES: u64 = 16 << 20;
    let mut parts = Parts::read(&[0; PARTS_BYTES], &[0; PARTS_BYTES], BYTES);
    for number in 0..8 {
        let (first_byte, bytes) = ((number + 1) << 20, 1 << 20);
        let (name, block_bytes) = (format!("v{number}"), 4096);
        parts.insert(Part { name, first_byte, bytes, block_bytes, shards: 1, id: 1 }).unwrap();
    }
    let memory = Arc::new(MemoryStore::new(BYTES).unwrap());
    let (byte, copy) = parts.next_copy();
    memory.write(byte, vec![bytes::Bytes::from(copy)], false).await.unwrap();
    let (kind, failure) = (Some(RequestKind::Write), Failure::Stall(None));
    let rule = FailRule { kind, trigger: stalls, failure };
    let failing = FailStore::new(Arc::<MemoryStore>::clone(&memory), Some(rule));
    let handle = failing.handle();
    let cold = config(Path::new("flash"), "size=16MiB");
    let device = FlashDevice::over(FlashMedium::new(Arc::new(failing)), cold, SEED).await;
    (device.unwrap(), memory, handle)
}

/// A write of the directory that was given up does not undo a later one.
#[tokio::test(start_paused = true)]
async fn a_late_write_of_the_directory_undoes_nothing() {
    let (device, memory, handle) = with_eight_parts(Trigger::Nth(1)).await;
    let store = MemoryStore::new(1 << 20).unwrap();
    let listed = async || {
        let [one, other] = PARTS_AT.map(|byte| read(&*memory, byte, PARTS_BYTES));
        let parts = Parts::read(&one.await.unwrap(), &other.await.unwrap(), 16 << 20);
        parts.all().iter().map(|part| part.name.clone()).collect::<Vec<_>>()
    };
    let (first, second) = (volume("v0", 1 << 20), volume("v1", 1 << 20));
    // What may be listed is awaited, with a part or without.
    assert!(device.is_awaited_by(&first) && device.is_awaited_by(&volume("v0", 0)));
    assert!(!device.is_awaited_by(&volume("other", 1 << 20)));
    assert!(device.part(&first, &store, true).await.is_none(), "it stalls");
    let early = device.part(&second, &store, true).await;
    handle.release();
    sleep(Duration::from_secs(1)).await;
    let is_listed = listed().await.contains(&second.name);
    assert!(early.is_none() || !is_listed, "it is used, and listed as another one");
    let later = device.part(&second, &store, true).await;
    assert!(later.is_some() && !listed().await.contains(&second.name));
}

/// Volumes whose old parts are listed on a device that hangs are served all the same, when the
/// stamps there are over; others wait for nothing.
#[tokio::test(start_paused = true)]
async fn a_device_that_hangs_at_a_start_holds_nobody_up_for_long() {
    let (device, _, _) = with_eight_parts(Trigger::From(1)).await;
    let store = MemoryStore::new(1 << 20).unwrap();
    let began = clock::now();
    assert!(device.part(&volume("without", 0), &store, true).await.is_none());
    assert_eq!(clock::since(began), Duration::ZERO);
    let volumes = (0..8).map(|number| volume(&format!("v{number}"), 1 << 20));
    let volumes = volumes.collect::<Vec<_>>();
    let given = join_all(volumes.iter().map(|volume| device.part(volume, &store, true))).await;
    let took = clock::since(began);
    assert!(given.iter().all(Option::is_none), "{given:?}");
    assert!((14..=61).contains(&took.as_secs()), "{took:?}");
}

/// A device whose head cannot be read, because it fails or does not answer: no volume gets a
/// part. Only where an earlier part could be found again do volumes wait, all at once.
#[tokio::test(start_paused = true)]
async fn a_device_that_is_dead_at_a_start_gives_no_parts() {
    let (fails, hangs) = (Failure::Error(FailWith::Io), Failure::Stall(None));
    for (failure, restart, opens_s, waits_s) in
        [(fails, "cold", 0, 0), (hangs, "cold", 10, 0), (fails, "warm", 0, 13)]
    {
        let rule = FailRule { kind: None, trigger: Trigger::From(1), failure };
        let memory = Arc::new(MemoryStore::new(16 << 20).unwrap());
        let medium = FlashMedium::new(Arc::new(FailStore::new(memory, Some(rule))));
        let config = config(Path::new("flash"), &format!("size=16MiB,restart={restart}"));
        let began = clock::now();
        let device = FlashDevice::unless_dead(Ok(medium), &config, SEED).await.unwrap();
        assert_eq!(clock::since(began).as_secs(), opens_s);
        let (began, store) = (clock::now(), MemoryStore::new(1 << 20).unwrap());
        let volumes = [volume("one", 1 << 20), volume("other", 2 << 20), volume("without", 0)];
        let given = join_all(volumes.iter().map(|volume| device.part(volume, &store, true))).await;
        assert!(given.iter().all(Option::is_none), "{given:?}");
        assert_eq!(clock::since(began).as_secs(), waits_s, "{restart}");
    }
}

/// A path below /dev that does not exist is a device that has gone; other errors of the same
/// file are somebody's mistake.
#[tokio::test]
async fn a_device_that_has_gone_keeps_no_server_from_starting() {
    let gone = config(Path::new("/dev/undercroft-nothing"), "size=4MiB");
    let device = open(&gone).await.unwrap();
    let store = MemoryStore::new(1 << 20).unwrap();
    assert!(device.part(&volume("one", 1 << 20), &store, true).await.is_none());
    assert!(!gone.path.exists());
    for wrong in ["/nowhere/flash", "/dev/null", "/dev/shm/nowhere/flash"] {
        let wrong = config(Path::new(wrong), "size=4MiB");
        assert!(open(&wrong).await.is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_so_large_or_so_small_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    assert!(open(&config(&path, "size=1000000TiB")).await.is_err());
    assert!(open(&config(&path, "size=1MiB")).await.is_err());
    assert!(!path.exists());
}

/// A run with less of the device, or without `restart=warm`, takes off the list what its parts lie
/// over, also where a part ends beyond what it uses: else a later run would take others' blocks for
/// good.
#[tokio::test]
async fn what_others_have_written_over_is_not_listed_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flash");
    let options = FileOptions { size: Some(1 << 20), ..FileOptions::default() };
    let store = FileStore::open(&folder.path().join("store"), &options).unwrap();
    let listed = || {
        let all = parts(&path, 8 << 20).unwrap();
        all.all().iter().map(|part| part.name.clone()).collect::<Vec<_>>()
    };
    let device = open(&config(&path, "size=8MiB,restart=warm")).await.unwrap();
    let first = device.part(&volume("one", 3 << 20), &store, true).await.unwrap();
    let second = device.part(&volume("other", 4 << 20), &store, true).await.unwrap();
    assert_eq!(listed(), ["one", "other"]);
    let place = second.first_byte;
    drop((device, first, second));
    let device = open(&config(&path, "size=5MiB")).await.unwrap();
    assert!(device.is_awaited_by(&volume("one", 0)), "its stamp may reach ahead");
    let third = device.part(&volume("third", 2 << 20), &store, true).await.unwrap();
    assert_eq!((third.first_byte, listed()), (1 << 20, vec!["other".to_owned()]));
    drop((device, third));
    let device = open(&config(&path, "size=8MiB,restart=warm")).await.unwrap();
    let second = device.part(&volume("other", 4 << 20), &store, true).await.unwrap();
    assert_eq!(second.first_byte, place, "nothing else lay there");
}
