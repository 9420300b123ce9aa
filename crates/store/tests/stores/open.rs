//! Opening stores by their text.

use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use undercroft_store::{Answer, MemoryStore, OpenOptions, Store, StoreSpec, Upstream};
use undercroft_text::Uri;

use crate::suite::{conforms, folder, read, refuses_changes, write};

fn spec(text: &str) -> StoreSpec {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

async fn refused(text: &str, size: Option<u64>) -> io::Error {
    let options = OpenOptions { size, ..OpenOptions::default() };
    spec(text).open(options).await.err().expect("was not refused")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_whole_tower_works() {
    let folder = folder();
    let path = folder.path().display();
    let text = format!(
        "delay(1us):fail(n=1000000000):stripe(4KiB;file(size=1MiB):{path}/a;\
         concat(mem(512KiB):;file(size=512KiB):{path}/b))"
    );
    let store = spec(&text).open(OpenOptions::default()).await.unwrap();
    let facts = store.facts();
    assert_eq!(facts.size, 2 << 20);
    assert!(facts.name.starts_with("delay:fail:stripe(4096;file:"), "{}", facts.name);
    conforms(store, 100).await;
}

#[tokio::test]
async fn sizes_are_said_once_or_agree() {
    let options = OpenOptions { size: Some(4096), ..OpenOptions::default() };
    for text in ["mem:", "mem(4KiB):", "delay(1ms):mem:"] {
        assert_eq!(spec(text).open(options.clone()).await.unwrap().facts().size, 4096, "{text}");
    }
    for (text, size, said) in [
        ("mem:", None, "needs a size"),
        ("mem(8KiB):", Some(4096), "two sizes"),
        ("file(size=8KiB):/nowhere/at/all", Some(4096), "two sizes"),
        ("concat(mem(4KiB):;mem(4KiB):)", Some(8192), "give it to the parts"),
        ("stripe(4KiB;mem(4KiB):;mem:)", None, "part 2: mem: needs a size"),
    ] {
        let error = refused(text, size).await;
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let error = refused("concat(mem(4KiB):;file:/nowhere/at/all)", None).await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().starts_with("part 2: file:/nowhere/at/all: "), "{error}");
}

#[tokio::test]
async fn read_only_reaches_every_store() {
    let options = OpenOptions { size: Some(8192), read_only: true, ..OpenOptions::default() };
    refuses_changes(&*spec("mem:").open(options.clone()).await.unwrap()).await;
    refuses_changes(&*spec("delay(1us):fail(n=99):mem:").open(options).await.unwrap()).await;
}

/// Stands in for a client of the protocol: what is tested is that it is asked for the right thing.
#[tokio::test]
async fn an_upstream_server_is_opened_by_whom_the_program_names() {
    let text = "nbd://localhost:10810/demo";
    let error = refused(text, None).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);

    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let connect = move |address: Uri, read_only| -> Answer<io::Result<Arc<dyn Store>>> {
        log.lock().unwrap().push((address.to_string(), read_only));
        Box::pin(async { Ok(Arc::new(MemoryStore::new(4096)?) as _) })
    };
    let upstream: Option<Upstream> = Some(Arc::new(connect));
    let options = OpenOptions { size: Some(4096), upstream, ..OpenOptions::default() };
    let store = spec(&format!("delay(1us):{text}")).open(options.clone()).await.unwrap();
    write(&*store, 0, b"up").await.unwrap();
    assert_eq!(read(&*store, 0, 2).await.unwrap(), b"up");
    assert_eq!(*asked.lock().unwrap(), [(text.to_owned(), false)]);
    let other = OpenOptions { size: Some(8192), ..options };
    let error = spec(text).open(other).await.err().unwrap();
    assert!(error.to_string().contains("has 4096 bytes, not 8192"), "{error}");
}
