//! Tests with two servers and one lease, on a clock that advances only when all wait for it.

use std::io::ErrorKind;

use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};

use super::*;

type Service = Arc<ThrottledStore<InMemory>>;

fn service() -> Service {
    Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()))
}

async fn take(service: &Service) -> io::Result<Lease> {
    Lease::take(Arc::clone(service) as _, Path::from("some/lease.json")).await
}

async fn change(lease: &Lease) -> io::Result<()> {
    lease.within(async { Ok(()) }).await
}

/// Makes the service answer after this time.
fn slow(service: &Service, by: Duration) {
    service.config_mut(|config| {
        config.wait_get_per_call = by;
        config.wait_put_per_call = by;
    });
}

#[tokio::test(start_paused = true)]
async fn a_second_server_is_refused_until_the_first_gives_up() {
    let service = service();
    let first = take(&service).await.unwrap();
    let begun = Instant::now();
    let refused = take(&service).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    let holder = format!("in use by process {}", std::process::id());
    assert!(refused.to_string().contains(&holder), "{refused}");
    assert!(begun.elapsed() <= RENEWAL + LOOK);
    sleep(10 * TERM).await;
    change(&first).await.unwrap();

    first.give_up().await.unwrap();
    let gone = change(&first).await.unwrap_err();
    assert!(gone.to_string().contains("given it up"), "{gone}");
    let begun = Instant::now();
    let second = take(&service).await.unwrap();
    assert_eq!(begun.elapsed(), Duration::ZERO);
    change(&second).await.unwrap();
    // Releasing twice is allowed, and takes nothing from the next holder.
    first.give_up().await.unwrap();
    sleep(2 * TERM).await;
    change(&second).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_nobody_renews_is_taken_over() {
    let service = service();
    let dead = take(&service).await.unwrap();
    dead.renewing.abort();
    let begun = Instant::now();
    let heir = take(&service).await.unwrap();
    assert!((TERM..=TERM + 2 * LOOK).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    change(&heir).await.unwrap();
    assert!(change(&dead).await.is_err());
}

/// The old holder stops before a new one may begin, however long the service stalls.
#[tokio::test(start_paused = true)]
async fn a_holder_that_cannot_renew_stops_in_time() {
    let service = service();
    let lease = take(&service).await.unwrap();
    sleep(RENEWAL * 3).await;
    let long = lease.within(async {
        sleep(TERM * 4).await;
        Ok(())
    });
    slow(&service, 100 * TERM);
    let begun = Instant::now();
    let cut = long.await.unwrap_err();
    assert!(cut.to_string().contains("could not be renewed"), "{cut}");
    assert!(begun.elapsed() <= TERM - MARGIN, "{:?}", begun.elapsed());
    assert!(change(&lease).await.is_err());
    // No other server took it meanwhile, so it continues.
    slow(&service, Duration::ZERO);
    sleep(2 * TERM).await;
    change(&lease).await.unwrap();
    // A change may take longer than a term while the lease is renewed.
    let long = lease.within(async {
        sleep(TERM * 4).await;
        Ok(())
    });
    long.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_holder_learns_who_took_its_lease() {
    let service = service();
    let asleep = take(&service).await.unwrap();
    slow(&service, 100 * TERM);
    sleep(2 * TERM).await;
    // What a server sees that the service still answers.
    let other = Holder { id: "1".to_owned(), host: "elsewhere".to_owned(), process: 7 };
    let text = serde_json::to_vec(&Note::of(&other)).unwrap();
    slow(&service, Duration::ZERO);
    service.put(&asleep.desk.path, text.into()).await.unwrap();
    sleep(2 * TERM).await;
    let lost = change(&asleep).await.unwrap_err();
    assert!(lost.to_string().contains("process 7 on \"elsewhere\" has it"), "{lost}");
    asleep.give_up().await.unwrap();
    let (note, _) = asleep.desk.read().await.unwrap().unwrap();
    assert_eq!(note.holder, Some(other));
}

#[tokio::test(start_paused = true)]
async fn of_many_one_gets_it() {
    let service = service();
    let all = futures_util::future::join_all((0..8).map(|_| take(&service))).await;
    assert_eq!(all.iter().filter(|one| one.is_ok()).count(), 1);
}

#[tokio::test(start_paused = true)]
async fn damage_and_services_without_conditions_are_refused() {
    let service = service();
    let path = Path::from("some/lease.json");
    for text in ["", "{}", "{\"format\":\"other\",\"version\":1,\"holder\":null,\"renewals\":0}"] {
        service.put(&path, text.into()).await.unwrap();
        let damaged = take(&service).await.err().unwrap();
        assert_eq!(damaged.kind(), ErrorKind::InvalidData, "{text}");
        assert!(damaged.to_string().contains("some/lease.json"), "{damaged}");
    }
    service.put(&path, vec![b' '; 1 << 20].into()).await.unwrap();
    assert!(take(&service).await.err().unwrap().to_string().contains("too long"));

    let folder = tempfile::tempdir().unwrap();
    let files = object_store::local::LocalFileSystem::new_with_prefix(folder.path()).unwrap();
    let files: Arc<dyn ObjectStore> = Arc::new(files);
    // A service that supports conditional creation, but no conditional changes.
    let lease = Lease::take(Arc::clone(&files), Path::from("lease.json")).await.unwrap();
    sleep(2 * TERM).await;
    assert!(change(&lease).await.is_err());
    drop(lease);
    let refused = Lease::take(files, Path::from("lease.json")).await.err().unwrap();
    assert!(refused.to_string().contains("lease=off"), "{refused}");
}
