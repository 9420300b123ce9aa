//! Requests to an object store that are executed late, twice, or without an answer: none replaces
//! what was answered later.

use std::pin::Pin;
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;
use undercroft_store::{OpenOptions, Store, StoreSpec, Zeroing};

use crate::service::{Fault, Service, Told, settings};
use crate::suite::{Random, conforms, read, seed, write};

pub(crate) const OBJECT: usize = 4096;
const STAMP: usize = 24;
const FAILS: Told = Told::Status(500);
/// The client's library does not repeat the request then.
const REFUSES: Told = Told::Status(400);

fn with_service<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Service) -> F) {
    in_a_process(&format!("late::{name}"), test);
}

/// Runs a test in a process of its own, which has the service's address in its environment, as
/// every program that speaks S3 has it.
pub(crate) fn in_a_process<F: Future<Output = ()>>(name: &str, test: impl FnOnce(Service) -> F) {
    if let Ok(address) = std::env::var("UNDERCROFT_TEST_SERVICE") {
        let service = Service::start(&address);
        assert_eq!(service.address().to_string(), address);
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(test(service));
        return println!("all done");
    }
    // An address that no other process has, whatever ports are in use.
    static TESTS: AtomicU8 = AtomicU8::new(1);
    let [_, a, b, c] = std::process::id().to_be_bytes();
    let address = format!(
        "127.{}.{b}.{c}:{}",
        1 + a,
        20_000 + u16::from(TESTS.fetch_add(1, Ordering::Relaxed))
    );
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env("UNDERCROFT_TEST_SERVICE", &address)
        .envs(settings(&address))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    print!("{said}");
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("all done"), "{complained}");
}

/// A volume of 16 objects.
pub(crate) async fn opened(options: &str) -> std::io::Result<Arc<dyn Store>> {
    let spec = format!("s3(object=4KiB{options})://bucket/volume").parse::<StoreSpec>().unwrap();
    spec.open(OpenOptions { size: Some(16 * OBJECT as u64), ..OpenOptions::default() }).await
}

pub(crate) async fn again(store: Arc<dyn Store>) -> Arc<dyn Store> {
    store.close().await.unwrap();
    drop(store);
    opened("").await.unwrap()
}

pub(crate) fn path(object: usize) -> String {
    format!("bucket/volume/data/{object:016x}")
}

pub(crate) fn at(object: usize) -> u64 {
    (object * OBJECT) as u64
}

/// A request that runs beside the test.
fn begun<T: Send + 'static>(request: Pin<Box<dyn Future<Output = T> + Send>>) -> JoinHandle<T> {
    tokio::spawn(request)
}

fn writing(store: &dyn Store, object: usize, byte: u8) -> JoinHandle<std::io::Result<()>> {
    begun(store.write(at(object), vec![Bytes::from(vec![byte; OBJECT])], true))
}

pub(crate) async fn whole(store: &dyn Store, object: usize, byte: u8) {
    write(store, at(object), &[byte; OBJECT]).await.unwrap();
}

/// Requests to delete something, one or many.
fn deletions(service: &Service) -> usize {
    service.count("DELETE", "") + service.count("POST", "")
}

/// The first bytes of two halves of an object.
pub(crate) async fn halves(store: &dyn Store, object: usize) -> [u8; 2] {
    let bytes = read(store, at(object), OBJECT as u64).await.unwrap();
    let (first, second) = bytes.split_at(OBJECT / 2);
    assert!(first.iter().all(|byte| *byte == first[0]));
    assert!(second.iter().all(|byte| *byte == second[0]));
    [first[0], second[0]]
}

pub(crate) const FAST: Zeroing = Zeroing { keep_allocated: false, only_if_fast: false };

#[test]
fn conforms_to_the_suite() {
    with_service("conforms_to_the_suite", async |service: Service| {
        let store = opened("").await.unwrap();
        conforms(Arc::clone(&store), 60).await;
        let store = again(store).await;
        conforms(store, 60).await;
        let paths = service.paths("bucket/volume/data/");
        assert!(!paths.is_empty());
        for path in paths {
            let bytes = service.object(&path).unwrap().len();
            assert!(bytes == STAMP || bytes == OBJECT + STAMP, "{path} has {bytes} bytes");
        }
        assert_eq!(deletions(&service), 0);
    });
}

#[test]
fn a_write_whose_repeat_was_answered_comes_too_late() {
    with_service("a_write_whose_repeat_was_answered_comes_too_late", async |service: Service| {
        for instead in [FAILS, Told::Nothing, Told::Nonsense] {
            let store = opened("").await.unwrap();
            // An object that there is, one that there is not, and a part of one.
            whole(&*store, 0, 1).await;
            whole(&*store, 2, 1).await;
            for (object, length) in [(0, OBJECT), (1, OBJECT), (2, OBJECT / 2)] {
                service.next("PUT", &path(object), Fault::Late(instead));
                write(&*store, at(object), &vec![2; length]).await.unwrap();
                let newer = vec![Bytes::from(vec![3; length])];
                store.write(at(object), newer, true).await.unwrap();
                store.flush().await.unwrap();
            }
            assert_eq!(service.release(), [412; 3], "{instead:?}");
            let store = again(store).await;
            assert_eq!(halves(&*store, 0).await, [3, 3]);
            assert_eq!(halves(&*store, 1).await, [3, 3]);
            assert_eq!(halves(&*store, 2).await, [3, 1]);
            store.close().await.unwrap();
        }
    });
}

#[test]
fn a_write_whose_answer_was_lost_has_succeeded() {
    with_service("a_write_whose_answer_was_lost_has_succeeded", async |service: Service| {
        let store = opened("").await.unwrap();
        let mut object = 0;
        for instead in [FAILS, Told::Nothing, Told::Nonsense] {
            object += 1;
            // The empty object, and the data.
            for (byte, requests) in [(1, 3), (2, 2)] {
                service.next("PUT", &path(object), Fault::Lost(instead));
                let before = service.count("PUT", &path(object));
                whole(&*store, object, byte).await;
                assert_eq!(halves(&*store, object).await, [byte; 2]);
                assert_eq!(service.count("PUT", &path(object)) - before, requests);
            }
            whole(&*store, object, 3).await;
        }
        let store = again(store).await;
        for object in 1..=object {
            assert_eq!(halves(&*store, object).await, [3, 3]);
        }
    });
}

#[test]
fn a_write_that_was_given_up_comes_before_a_newer_one_or_not_at_all() {
    let name = "a_write_that_was_given_up_comes_before_a_newer_one_or_not_at_all";
    with_service(name, async |service: Service| {
        let store = opened("").await.unwrap();
        for object in 0..2 {
            whole(&*store, object, 1).await;
        }
        // Too late.
        service.next("PUT", &path(0), Fault::Late(REFUSES));
        write(&*store, at(0), &[2; OBJECT]).await.unwrap_err();
        whole(&*store, 0, 3).await;
        assert_eq!(service.release(), [412]);
        assert_eq!(halves(&*store, 0).await, [3, 3]);
        // Just before the next: a whole object, and a half of one.
        for (object, length) in [(0, OBJECT), (1, OBJECT / 2)] {
            service.next("PUT", &path(object), Fault::Late(REFUSES));
            write(&*store, at(object), &[4; OBJECT]).await.unwrap_err();
            service.next("PUT", &path(object), Fault::Held);
            let newer = begun(store.write(at(object), vec![vec![5; length].into()], true));
            service.wait_for_held(1).await;
            assert_eq!(service.release(), [200]);
            newer.await.unwrap().unwrap();
        }
        // Nobody has changed anything since, and it is done late in between.
        service.next("PUT", &path(2), Fault::Late(REFUSES));
        write(&*store, at(2), &[6; OBJECT]).await.unwrap_err();
        assert_eq!(halves(&*store, 2).await, [0, 0]);
        assert_eq!(service.release(), [200], "the empty object");
        service.next("PUT", &path(1), Fault::Late(REFUSES));
        write(&*store, at(1), &[6; OBJECT]).await.unwrap_err();
        assert_eq!(halves(&*store, 1).await, [5, 4]);
        assert_eq!(service.release(), [200]);
        assert_eq!(halves(&*store, 1).await, [6, 6]);
        whole(&*store, 1, 7).await;
        let store = again(store).await;
        assert_eq!(halves(&*store, 0).await, [5, 5]);
        assert_eq!(halves(&*store, 1).await, [7, 7]);
        assert_eq!(halves(&*store, 2).await, [0, 0]);
    });
}

#[test]
fn content_that_comes_back_is_another_version() {
    with_service("content_that_comes_back_is_another_version", async |service: Service| {
        let store = opened("").await.unwrap();
        whole(&*store, 0, b'A').await;
        service.next("PUT", &path(0), Fault::Late(FAILS));
        whole(&*store, 0, b'B').await;
        whole(&*store, 0, b'A').await;
        // The condition of the late one is the ETag of the first A.
        assert_eq!(service.release(), [412]);
        assert_eq!(halves(&*store, 0).await, [b'A'; 2]);
        // Zeroes, data and zeroes again.
        store.zero(at(0), OBJECT as u64, FAST, true).await.unwrap();
        service.next("PUT", &path(0), Fault::Late(FAILS));
        whole(&*store, 0, b'C').await;
        store.zero(at(0), OBJECT as u64, FAST, true).await.unwrap();
        assert_eq!(service.release(), [412]);
        assert_eq!(halves(&*again(store).await, 0).await, [0, 0]);
    });
}

#[test]
fn a_late_write_does_not_undo_zeroes_and_trims() {
    with_service("a_late_write_does_not_undo_zeroes_and_trims", async |service: Service| {
        let length = OBJECT as u64;
        let mut store = opened("").await.unwrap();
        for trims in [false, true] {
            let clear = async |store: &dyn Store| match trims {
                true => store.trim(at(0), length, true).await.unwrap(),
                false => store.zero(at(0), length, FAST, true).await.unwrap(),
            };
            whole(&*store, 0, 1).await;
            service.next("PUT", &path(0), Fault::Late(FAILS));
            whole(&*store, 0, 2).await;
            clear(&*store).await;
            assert_eq!(service.release(), [412]);
            // A write that was given up when it had found the empty object of another store.
            store = again(store).await;
            service.next("PUT", &path(0), Fault::Late(REFUSES));
            write(&*store, at(0), &[3; OBJECT]).await.unwrap_err();
            store = again(store).await;
            assert_eq!(halves(&*store, 0).await, [0, 0]);
            clear(&*store).await;
            assert_eq!(service.release(), [412]);
            let extents = store.extents(0, length).await.unwrap();
            assert!(extents.len() == 1 && extents[0].hole && extents[0].zero, "{extents:?}");
            store = again(store).await;
            assert_eq!(halves(&*store, 0).await, [0, 0]);
            // A part of an empty object, and one that was never written.
            service.next("PUT", &path(0), Fault::Late(REFUSES));
            write(&*store, at(0), &[4; OBJECT]).await.unwrap_err();
            store.zero(at(0), 100, FAST, true).await.unwrap();
            assert_eq!(service.release(), [412]);
            service.next("PUT", &path(7), Fault::Late(REFUSES));
            write(&*store, at(7), &[5; OBJECT]).await.unwrap_err();
            store.zero(at(7), length, FAST, true).await.unwrap();
            service.release();
            store = again(store).await;
            assert_eq!(halves(&*store, 0).await, [0, 0]);
            assert_eq!(halves(&*store, 7).await, [0, 0]);
        }
        assert_eq!(deletions(&service), 0);
    });
}

/// Makes the lease free, as it is when its term is over.
fn expire(service: &Service) {
    let lease = "bucket/volume/lease.json";
    let note = String::from_utf8(service.object(lease).unwrap()).unwrap();
    let mut note: serde_json::Value = serde_json::from_str(&note).unwrap();
    note["holder"] = serde_json::Value::Null;
    service.put(lease, note.to_string());
}

#[test]
fn a_write_of_the_last_holder_of_the_lease_comes_too_late() {
    with_service(
        "a_write_of_the_last_holder_of_the_lease_comes_too_late",
        async |service: Service| {
            let first = opened("").await.unwrap();
            whole(&*first, 0, 1).await;
            service.next("PUT", &path(0), Fault::Held);
            service.next("PUT", &path(1), Fault::Late(REFUSES));
            writing(&*first, 1, 2).await.unwrap().unwrap_err();
            let late = writing(&*first, 0, 2);
            service.wait_for_held(1).await;
            expire(&service);
            let second = opened("").await.unwrap();
            assert_eq!(halves(&*second, 0).await, [1, 1]);
            whole(&*second, 0, 3).await;
            whole(&*second, 1, 3).await;
            second.flush().await.unwrap();
            assert_eq!(service.release(), [412]);
            let refused = late.await.unwrap().unwrap_err().to_string();
            assert!(refused.contains("replaced by another server"), "{refused}");
            assert!(refused.contains("makes no changes any more"), "{refused}");
            write(&*first, at(5), b"x").await.unwrap_err();
            for object in [0, 1] {
                assert_eq!(halves(&*second, object).await, [3, 3]);
                whole(&*second, object, 4).await;
            }
            let second = again(second).await;
            assert_eq!(halves(&*second, 0).await, [4, 4]);
            assert_eq!(halves(&*second, 1).await, [4, 4]);
        },
    );
}

/// A server that stands still, as after SIGSTOP, between reading an object and writing it: what it
/// read meanwhile is the next holder's.
#[test]
fn a_server_that_stood_still_does_not_write_over_its_heir() {
    with_service(
        "a_server_that_stood_still_does_not_write_over_its_heir",
        async |service: Service| {
            let paused =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let (begin, begun) = tokio::sync::oneshot::channel();
            let (freeze, frozen) = std::sync::mpsc::channel::<()>();
            let held = service.clone();
            let first = std::thread::spawn(move || {
                paused.block_on(async move {
                    let store = opened("").await.unwrap();
                    whole(&*store, 0, 1).await;
                    let store = again(store).await;
                    held.next("GET", &path(0), Fault::Held);
                    begin.send(()).unwrap();
                    let late = store.write(at(0), vec![vec![2; 100].into()], true);
                    // The first poll sends the request for the object; then nothing runs for long.
                    let stands_still = async {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                        frozen.recv().unwrap();
                        std::future::pending::<()>().await;
                    };
                    tokio::select! {
                        result = late => result,
                        () = stands_still => unreachable!(),
                    }
                })
            });
            begun.await.unwrap();
            service.wait_for_held(1).await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            // It takes the term of the lease.
            let second = opened("").await;
            let second = match second {
                Ok(second) => second,
                Err(error) => panic!("{error}"),
            };
            whole(&*second, 0, 3).await;
            second.flush().await.unwrap();
            service.release();
            tokio::time::sleep(Duration::from_millis(200)).await;
            freeze.send(()).unwrap();
            let result = first.join().unwrap();
            let refused = result.unwrap_err().to_string();
            assert!(refused.contains("lease"), "{refused}");
            assert_eq!(halves(&*again(second).await, 0).await, [3, 3]);
        },
    );
}

/// It had been executed before the next holder wrote, and after it read.
#[test]
fn a_late_write_that_nobody_could_refuse_stops_the_heir() {
    with_service(
        "a_late_write_that_nobody_could_refuse_stops_the_heir",
        async |service: Service| {
            let first = opened("").await.unwrap();
            whole(&*first, 0, 1).await;
            service.next("PUT", &path(0), Fault::Late(REFUSES));
            writing(&*first, 0, 2).await.unwrap().unwrap_err();
            let second = again(first).await;
            assert_eq!(halves(&*second, 0).await, [1, 1]);
            assert_eq!(second.stopped(), None);
            assert_eq!(service.release(), [200]);
            assert_eq!(halves(&*second, 0).await, [2, 2]);
            let why = second.stopped().unwrap();
            assert!(why.contains("data/0000000000000000 was replaced by another server"), "{why}");
            let refused = write(&*second, at(9), b"x").await.unwrap_err().to_string();
            assert!(refused.contains(&why), "{refused}");
            assert_eq!(halves(&*second, 0).await, [2, 2], "reads go on");
            let third = again(second).await;
            whole(&*third, 0, 3).await;
            assert_eq!((halves(&*third, 0).await, third.stopped()), ([3, 3], None));
        },
    );
}

#[test]
fn a_stranger_stops_all_changes() {
    with_service("a_stranger_stops_all_changes", async |service: Service| {
        let mut store = opened("").await.unwrap();
        for object in 0..4 {
            whole(&*store, object, 1).await;
        }
        for partly in [false, true] {
            service.put(&path(0), vec![9; OBJECT]);
            let length = if partly { 10 } else { OBJECT };
            let refused = write(&*store, at(0), &vec![2; length]).await.unwrap_err().to_string();
            assert!(refused.contains("by another program"), "{refused}");
            write(&*store, at(1), b"x").await.unwrap_err();
            store.trim(at(2), OBJECT as u64, false).await.unwrap_err();
            store.zero(at(2), 10, FAST, false).await.unwrap_err();
            assert_eq!(halves(&*store, 0).await, [9, 9]);
            assert_eq!(halves(&*store, 1).await, [1, 1]);
            store = again(store).await;
            whole(&*store, 0, 1).await;
        }
    });
}

#[test]
fn objects_of_older_programs_are_read_and_replaced() {
    with_service("objects_of_older_programs_are_read_and_replaced", async |service: Service| {
        let description = "bucket/volume/volume.json";
        let old = r#"{"format": "undercroft-volume", "version": 1, "size_bytes": 65536,
            "object_bytes": 4096, "note": "kept"}"#;
        service.put(description, old);
        for object in 0..4 {
            service.put(&path(object), vec![1; OBJECT]);
        }
        let reader = OpenOptions { read_only: true, ..OpenOptions::default() };
        let spec = "s3://bucket/volume".parse::<StoreSpec>().unwrap();
        let reader = spec.open(reader).await.unwrap();
        assert_eq!(halves(&*reader, 0).await, [1, 1]);
        assert_eq!(service.object(description).unwrap(), old.as_bytes(), "nothing is changed");

        let store = opened("").await.unwrap();
        let now = String::from_utf8(service.object(description).unwrap()).unwrap();
        assert!(now.contains("\"version\": 2") && now.contains("\"note\": \"kept\""), "{now}");
        assert_eq!(halves(&*store, 1).await, [1, 1]);
        write(&*store, at(1), &[2; OBJECT / 2]).await.unwrap();
        whole(&*store, 2, 2).await;
        store.trim(at(3), OBJECT as u64, false).await.unwrap();
        let sizes = [0, 1, 2, 3].map(|object| service.object(&path(object)).unwrap().len());
        assert_eq!(sizes, [OBJECT, OBJECT + STAMP, OBJECT + STAMP, STAMP]);
        let store = again(store).await;
        for store in [&*store, &*reader] {
            let found = [0, 1, 2, 3].map(|object| halves(store, object));
            let found = futures_util::future::join_all(found).await;
            assert_eq!(found, [[1, 1], [2, 1], [2, 2], [0, 0]]);
        }
        // A stamp that is none, and a size that no object has.
        for damage in [vec![1; OBJECT + STAMP], vec![1; STAMP - 1], vec![1; OBJECT + 1]] {
            service.put(&path(5), damage);
            let damaged = write(&*store, at(5), b"x").await.unwrap_err();
            assert_eq!(damaged.kind(), std::io::ErrorKind::InvalidData, "{damaged}");
        }
    });
}

#[test]
fn a_service_without_conditions_is_named() {
    with_service("a_service_without_conditions_is_named", async |service: Service| {
        service.ignore_conditions();
        let refused = opened("").await.err().unwrap().to_string();
        assert!(refused.contains("makes no changes on condition"), "{refused}");
        assert!(refused.contains("`lease=off`"), "{refused}");
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let on_warning = move |what: &str| hears.lock().unwrap().push(what.to_owned());
        let options =
            OpenOptions { on_warning: Some(Arc::new(on_warning)), ..OpenOptions::default() };
        let spec = "s3(object=4KiB,lease=off)://bucket/volume".parse::<StoreSpec>().unwrap();
        let store = spec.open(options).await.unwrap();
        let heard = heard.lock().unwrap().clone();
        assert_eq!(heard.len(), 1, "{heard:?}");
        assert!(
            heard[0].starts_with("s3(lease=off,object=4KiB)://bucket/volume: ")
                || heard[0].contains("://bucket/volume: "),
            "{heard:?}"
        );
        assert!(heard[0].contains("can replace newer data, even flushed data"), "{heard:?}");
        conforms(Arc::clone(&store), 60).await;
        // It is as told.
        whole(&*store, 0, 1).await;
        service.next("PUT", &path(0), Fault::Late(FAILS));
        whole(&*store, 0, 2).await;
        whole(&*store, 0, 3).await;
        service.release();
        assert_eq!(halves(&*store, 0).await, [2, 2]);
    });
}

/// Random changes while the service loses answers and executes late, with restarts in between.
/// A change that failed may be made once, until the next one of the same bytes was answered.
#[test]
fn random_changes_over_a_service_that_is_late() {
    with_service("random_changes_over_a_service_that_is_late", async |service: Service| {
        const UNIT: usize = 1024;
        let mut random = Random::new(seed());
        let mut store = opened("").await.unwrap();
        // What each unit may hold; one value if nothing has failed since the last answer.
        let mut model: Vec<Vec<u8>> = vec![vec![0]; 16 * OBJECT / UNIT];
        let mut failures = 0;
        for step in 0..=400_u32 {
            service.draw(Some(Random::new(random.next_u64())));
            let first = random.below(model.len() as u64) as usize;
            let most = if random.below(3) == 0 { 12 } else { 4 };
            let count = (1 + random.below(most) as usize).min(model.len() - first);
            let (offset, length) = ((first * UNIT) as u64, (count * UNIT) as u64);
            let byte = (step % 255 + 1) as u8;
            let (result, new) = match random.below(8) {
                0 => (store.trim(offset, length, true).await, None),
                1 => (store.zero(offset, length, FAST, true).await, Some(0)),
                _ => (write(&*store, offset, &vec![byte; count * UNIT]).await, Some(byte)),
            };
            let told = result.as_ref().map_err(ToString::to_string);
            assert!(told.is_ok() || store.stopped().is_none(), "step {step}: {told:?}");
            service.draw(None);
            failures += u32::from(result.is_err());
            let units = &mut model[first..first + count];
            match (result.is_ok(), new) {
                (true, Some(new)) => units.iter_mut().for_each(|unit| *unit = vec![new]),
                // It zeroes, or leaves what is there: the read below tells.
                (_, None) => units.iter_mut().for_each(|unit| unit.push(0)),
                (false, Some(new)) => units.iter_mut().for_each(|unit| unit.push(new)),
            }
            if random.below(20) == 0 || step == 400 {
                service.release();
                if random.below(2) == 0 || step == 400 {
                    store = again(store).await;
                }
                // Nothing is late any more, so what is read now stays.
                let bytes = read(&*store, 0, 16 * OBJECT as u64).await.unwrap();
                for (number, (unit, bytes)) in model.iter_mut().zip(bytes.chunks(UNIT)).enumerate()
                {
                    let now = bytes[0];
                    assert!(unit.contains(&now), "step {step}, unit {number}: {now} of {unit:?}");
                    *unit = vec![now];
                }
            }
            let bytes = read(&*store, offset, length).await.unwrap();
            for (unit, bytes) in model[first..].iter().zip(bytes.chunks(UNIT)) {
                assert!(bytes.iter().all(|byte| *byte == bytes[0]), "step {step}: torn");
                assert!(unit.contains(&bytes[0]), "step {step}: {} of {unit:?}", bytes[0]);
            }
        }
        println!("{failures} changes failed");
        assert_eq!(deletions(&service), 0);
    });
}
