//! A change beside the end of the lease, on a clock that advances only when all wait for it. What
//! needs a service is in `tests/stores/late.rs`.

use std::sync::Arc;

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use super::*;
use crate::object::{ObjectPlace, ObjectService, ObjectSpec};

const OBJECT: u64 = 4096;

type Service = ThrottledStore<InMemory>;

async fn opened(service: &Arc<Service>) -> Data {
    let spec = ObjectSpec {
        place: ObjectPlace::Bucket(ObjectService::S3, "bucket".to_owned(), String::new()),
        object_bytes: Some(OBJECT),
        size: None,
        lease: true,
    };
    let place = Place::of(Arc::clone(service) as _);
    let owner = Owner::new(&place, &spec, false).await.unwrap();
    Data::new(place, OBJECT, owner, Arc::new(|_| ()))
}

async fn write(data: &Data, length: u64, byte: u8) -> io::Result<()> {
    let piece = Piece { object: 0, start: 0, length, skip: 0 };
    data.write(piece, vec![vec![byte; length as usize].into()]).await
}

/// It reads the object when the next holder has written it already.
#[tokio::test(start_paused = true)]
async fn what_was_read_after_the_lease_had_ended_is_not_replaced() {
    let service = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    let first = opened(&service).await;
    write(&first, OBJECT, 1).await.unwrap();
    first.known(0).lock().await.clear();
    let slow = Duration::from_secs(60);
    service.config_mut(|config| config.wait_get_per_call = slow);
    let late = tokio::spawn(async move { write(&first, 100, 2).await });
    // The request has begun, and its answer waits.
    sleep(Duration::from_millis(1)).await;
    service.config_mut(|config| config.wait_get_per_call = Duration::ZERO);
    // Another server takes the lease, as if its term was over.
    service.put(&Path::from("lease.json"), free_lease().into()).await.unwrap();
    let second = opened(&service).await;
    write(&second, OBJECT, 3).await.unwrap();
    sleep(slow).await;
    let refused = late.await.unwrap().unwrap_err().to_string();
    assert!(refused.contains("lease"), "{refused}");
    assert_eq!(second.read(0, 0..2).await.unwrap().unwrap()[..], [3, 3]);
}

/// The content of the lease's file when nobody holds it.
fn free_lease() -> &'static str {
    r#"{"format":"undercroft-lease","version":1,"holder":null,"renewals":7}"#
}

#[tokio::test]
async fn what_is_known_is_bounded_and_what_was_forgotten_is_read_again() {
    let service = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
    let data = opened(&service).await;
    let objects = (0..2 * KNOWN as u64).map(|number| number * LOCKS);
    for round in 1..3 {
        for object in objects.clone() {
            let piece = Piece { object, start: 0, length: OBJECT, skip: 0 };
            data.write(piece, vec![vec![round; OBJECT as usize].into()]).await.unwrap();
            assert!(data.known(0).lock().await.len() <= KNOWN);
        }
    }
    for object in objects {
        assert_eq!(data.read(object, 0..1).await.unwrap().unwrap()[..], [2]);
    }
}
