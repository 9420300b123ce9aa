//! Objects that a service does not find, or that are not the volume's.

use std::time::Duration;

use crate::late::{FAST, OBJECT, again, at, halves, in_a_process, opened, path, whole};
use crate::service::{Fault, Service, Told};
use crate::suite::{read, write};

/// A proxy in front of the service may not find it, and answers with a status only.
#[test]
fn an_answer_without_words_is_not_that_of_a_missing_object() {
    in_a_process(
        "missing::an_answer_without_words_is_not_that_of_a_missing_object",
        async |service: Service| {
            let store = opened("").await.unwrap();
            whole(&*store, 0, 1).await;
            let store = again(store).await;
            let unsaid = Fault::Lost(Told::Status(404));
            service.next("GET", &path(0), unsaid);
            read(&*store, at(0), 10).await.unwrap_err();
            service.next("GET", &path(0), unsaid);
            store.zero(at(0), 10, FAST, false).await.unwrap_err();
            // Of another, which is asked for by HEAD first.
            whole(&*store, 1, 1).await;
            let store = again(store).await;
            service.next("HEAD", &path(1), unsaid);
            service.next("GET", &path(1), unsaid);
            write(&*store, at(1), &[2; OBJECT]).await.unwrap_err();
            assert_eq!(store.stopped(), None);
            assert_eq!(halves(&*store, 0).await, [1, 1]);
            write(&*store, at(1), &[2; OBJECT]).await.unwrap();
            // The holder of the lease has not lost it.
            service.next("GET", "lease.json", unsaid);
            tokio::time::sleep(Duration::from_secs(5)).await;
            write(&*store, at(1), &[3; OBJECT]).await.unwrap();
            assert_eq!(halves(&*store, 1).await, [3, 3]);
        },
    );
}

#[test]
fn a_known_object_that_is_deleted_is_not_read_as_zeroes() {
    in_a_process(
        "missing::a_known_object_that_is_deleted_is_not_read_as_zeroes",
        async |service: Service| {
            let store = opened("").await.unwrap();
            whole(&*store, 0, 1).await;
            service.remove(&path(0));
            for _ in 0..2 {
                let refused = read(&*store, at(0), 10).await.unwrap_err().to_string();
                assert!(refused.contains("replaced, or deleted, by another program"), "{refused}");
            }
            assert!(store.stopped().is_some());
        },
    );
}

/// Names of objects that lie elsewhere, and come before the volume's in a listing.
#[test]
fn foreign_objects_do_not_hide_the_volumes() {
    in_a_process("missing::foreign_objects_do_not_hide_the_volumes", async |service: Service| {
        let store = opened("").await.unwrap();
        for object in 0..4 {
            whole(&*store, object, 1).await;
        }
        for name in
            [".old/ffffffffffffffff", "0000000000000000/00000000000000ff", "+000000000000009"]
        {
            service.put(&format!("bucket/volume/data/{name}"), vec![9; OBJECT]);
        }
        let extents = store.extents(0, at(4)).await.unwrap();
        assert!(extents.iter().all(|extent| !extent.zero), "{extents:?}");
        store.zero(0, at(4), FAST, false).await.unwrap();
        for object in 0..4 {
            assert_eq!(halves(&*store, object).await, [0, 0]);
        }
    });
}
