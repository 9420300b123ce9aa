//! Volumes in an object store: in memory, in a folder, and over the S3 protocol.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use undercroft_store::{OpenOptions, Store, StoreSpec, Zeroing};

use crate::service::settings;
use crate::suite::{conforms, folder, read, refuses_changes, write};

async fn opened(spec: &str, size: Option<u64>) -> std::io::Result<Arc<dyn Store>> {
    spec.parse::<StoreSpec>().unwrap().open(OpenOptions { size, ..OpenOptions::default() }).await
}

/// The names of the objects of a volume in a folder.
fn objects(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder.join("data")) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_to_the_suite_in_memory() {
    conforms(opened("object-memory(object=16KiB):", Some(1_000_003)).await.unwrap(), 1000).await;
    conforms(opened("object-memory(size=100):", None).await.unwrap(), 200).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conforms_to_the_suite_in_a_folder() {
    let folder = folder();
    let spec = format!("object-file(object=64KiB):{}", folder.path().display());
    conforms(opened(&spec, Some(1_000_003)).await.unwrap(), 100).await;
}

#[tokio::test]
async fn what_was_written_is_there_when_it_is_opened_again() {
    let folder = folder();
    let plain = format!("object-file:{}", folder.path().display());
    let missing = opened(&plain, None).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(missing.to_string().contains("give a size"), "{missing}");

    let spec = format!("object-file(object=4KiB,size=20000):{}", folder.path().display());
    let store = opened(&spec, None).await.unwrap();
    write(&*store, 4000, &[7; 200]).await.unwrap();
    write(&*store, 19_999, &[8]).await.unwrap();
    drop(store);
    let store = opened(&plain, Some(20_000)).await.unwrap();
    assert_eq!(read(&*store, 3999, 3).await.unwrap(), [0, 7, 7]);
    assert_eq!(read(&*store, 19_999, 1).await.unwrap(), [8]);
    let names = ["0000000000000000", "0000000000000001", "0000000000000004"];
    assert_eq!(objects(folder.path()), names);
    let sizes = names.map(|name| folder.path().join("data").join(name).metadata().unwrap().len());
    assert_eq!(sizes, [4096 + 24; 3]);

    let other = opened(&plain, Some(30_000)).await.err().unwrap();
    assert!(other.to_string().contains("a size of 20000 bytes, not 30000"), "{other}");
    let other = opened(&plain.replace(':', "(object=8KiB):"), None).await.err().unwrap();
    assert!(other.to_string().contains("objects of 4096 bytes, not 8192"), "{other}");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    refuses_changes(&*plain.parse::<StoreSpec>().unwrap().open(options).await.unwrap()).await;
}

#[tokio::test]
async fn one_server_at_a_time_changes_a_folder() {
    let folder = folder();
    let spec = format!("object-file(object=4KiB,size=20000):{}", folder.path().display());
    let store = opened(&spec, None).await.unwrap();
    let refused = opened(&spec, None).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("in use by process"), "{refused}");
    let unleased = opened(&spec.replace("size", "lease=off,size"), None).await.unwrap();
    let reader = OpenOptions { read_only: true, ..OpenOptions::default() };
    let reader = spec.parse::<StoreSpec>().unwrap().open(reader).await.unwrap();
    write(&*store, 5, b"x").await.unwrap();
    assert_eq!(read(&*reader, 5, 1).await.unwrap(), b"x");
    drop((store, unleased, reader));
    opened(&spec, None).await.unwrap();
}

#[tokio::test]
async fn whole_objects_are_emptied_and_extents_follow() {
    let folder = folder();
    let spec = format!("object-file(object=4KiB,size=42000):{}", folder.path().display());
    let store = opened(&spec, None).await.unwrap();
    write(&*store, 0, &[1; 42_000]).await.unwrap();
    assert_eq!(objects(folder.path()).len(), 11);
    // Bytes 6000 to 22000 hold objects 2, 3 and 4 wholly.
    store.trim(6000, 16_000, false).await.unwrap();
    assert_eq!(objects(folder.path()).len(), 11, "nothing is deleted");
    let bytes =
        |number: u64| folder.path().join(format!("data/{number:016x}")).metadata().unwrap().len();
    assert_eq!([1, 2, 3, 4, 5].map(bytes), [4120, 24, 24, 24, 4120]);
    assert_eq!(read(&*store, 6000, 1).await.unwrap(), [1], "the ends stay as they were");
    let fast = Zeroing { keep_allocated: false, only_if_fast: true };
    let refused = store.zero(24_576, 5000, fast, false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    // To the end of the volume, which the last object reaches beyond.
    store.zero(36_864, 42_000 - 36_864, fast, false).await.unwrap();
    let extents = store.extents(5000, 37_000).await.unwrap();
    let seen: Vec<_> = extents.iter().map(|extent| (extent.length, extent.hole)).collect();
    assert_eq!(seen, [(3192, false), (12_288, true), (16_384, false), (5136, true)]);
    let keep = Zeroing { keep_allocated: true, only_if_fast: false };
    store.zero(8192, 4096, keep, false).await.unwrap();
    assert_eq!(bytes(2), 4120);
    assert_eq!(read(&*store, 8192, 4096).await.unwrap(), [0; 4096]);
}

/// Nothing is read, deleted or asked for one by one where there is nothing.
#[tokio::test]
async fn a_huge_empty_volume_is_quick() {
    let store = opened("object-memory(object=64KiB):", Some(1 << 36)).await.unwrap();
    write(&*store, (1 << 36) - 5, b"12345").await.unwrap();
    store.zero(0, 1 << 36, Zeroing::default(), false).await.unwrap();
    assert_eq!(read(&*store, (1 << 36) - 5, 5).await.unwrap(), [0; 5]);
    let extents = store.extents(0, 1 << 36).await.unwrap();
    assert!(extents.len() == 1 && extents[0].hole && extents[0].length >= 1 << 20);
}

#[tokio::test]
async fn growth_is_seen_and_damage_is_refused() {
    let folder = folder();
    let spec = format!("object-file(object=4KiB):{}", folder.path().display());
    let store = opened(&spec, Some(5000)).await.unwrap();
    write(&*store, 4999, &[9]).await.unwrap();
    let description = folder.path().join("volume.json");
    let good = std::fs::read_to_string(&description).unwrap();
    let change = |from: &str, to: &str| {
        assert!(good.contains(from));
        std::fs::write(&description, good.replace(from, to)).unwrap();
    };
    change("\"size_bytes\": 5000", "\"size_bytes\": 9000");
    assert_eq!(store.reload().await.unwrap(), 9000);
    assert_eq!(read(&*store, 4998, 4).await.unwrap(), [0, 9, 0, 0]);

    for (from, to, said) in [
        ("undercroft-volume", "other", "format"),
        ("\"version\": 2", "\"version\": 3", "version is 3"),
        ("\"object_bytes\": 4096", "\"object_bytes\": 4097", "object_bytes"),
        ("\"object_bytes\": 4096", "\"object_bytes\": 4611686018427387904", "object_bytes"),
        ("\"size_bytes\": 5000", "\"size_bytes\": 9223372036854775807", "size_bytes"),
        ("\"size_bytes\": 5000", "\"size_bytes\": -1", "volume.json"),
        ("{", "", "volume.json"),
    ] {
        change(from, to);
        let error = opened(&spec, None).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        assert!(error.to_string().contains(said), "{error}");
        assert!(store.reload().await.is_err());
    }
    std::fs::write(&description, " ".repeat(1 << 20)).unwrap();
    let error = opened(&spec, None).await.err().unwrap();
    assert!(error.to_string().contains("too long"), "{error}");

    std::fs::write(folder.path().join("data/0000000000000001"), [1; 10]).unwrap();
    let error = read(&*store, 4096, 5).await.unwrap_err();
    assert!(error.to_string().contains("has 10 bytes and must have 4096 and 24"), "{error}");
    assert!(write(&*store, 4096, b"x").await.is_err(), "a damaged object is not rewritten");
}

/// A server that speaks the S3 protocol, ended with the test.
struct S3(Child, String);

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Python's `moto` in a folder of its own below the build's results; installed the first time.
fn moto() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("moto-5");
    let program = folder.join("bin/moto_server");
    if program.exists() {
        return Ok(program);
    }
    let run = |program: &Path, arguments: &[&str]| {
        let output = Command::new(program).args(arguments).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(text) }
    };
    let text = folder.to_str().ok_or("the build folder's name is not UTF-8")?;
    run(Path::new("python3"), &["-m", "venv", text])?;
    run(&folder.join("bin/pip"), &["install", "--quiet", "moto[server]>=5,<6"])?;
    Ok(program)
}

fn start_s3() -> Result<S3, String> {
    let program = moto()?;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.map_err(|error| error.to_string())?.port();
    let child = Command::new(program)
        .args(["-H", "127.0.0.1", "-p", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let server = S3(child, format!("127.0.0.1:{port}"));
    let start = Instant::now();
    // Making the bucket says that it is up.
    while start.elapsed() < Duration::from_secs(60) {
        if let Ok(mut stream) = TcpStream::connect(&server.1) {
            let request = "PUT /volumes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\
                 Connection: close\r\n\r\n";
            let mut answer = String::new();
            let _ = stream.write_all(request.as_bytes());
            let _ = stream.read_to_string(&mut answer);
            if answer.starts_with("HTTP/1.1 200") {
                return Ok(server);
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err("the server did not come up within a minute".to_owned())
}

/// The address and the keys are in the environment, as they are for every program that speaks S3;
/// so the requests are made by this program called again.
#[test]
fn conforms_over_the_s3_protocol() {
    let server = match start_s3() {
        Ok(server) => server,
        Err(why) => return println!("skipped: no S3 server: {why}"),
    };
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "object::second_process_speaks_s3", "--ignored", "--nocapture"])
        .envs(settings(&server.1))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("all done over S3"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the second process of another test"]
async fn second_process_speaks_s3() {
    let spec = "s3(object=64KiB)://volumes/some/place";
    let missing = opened(spec, None).await.err().unwrap();
    assert_eq!(missing.kind(), ErrorKind::NotFound, "{missing}");
    let store = opened(spec, Some(1_000_003)).await.unwrap();
    conforms(Arc::clone(&store), 60).await;
    store.close().await.unwrap();

    let store = opened(spec, Some(1_000_003)).await.unwrap();
    store.zero(0, 1_000_003, Zeroing::default(), false).await.unwrap();
    write(&*store, 100_000, &[5; 200_000]).await.unwrap();
    let refused = opened(spec, None).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    assert!(refused.to_string().contains("in use by process"), "{refused}");
    store.close().await.unwrap();
    let closed = write(&*store, 0, b"x").await.unwrap_err();
    assert!(closed.to_string().contains("given it up"), "{closed}");
    drop(store);
    let store = opened(spec, None).await.unwrap();
    assert_eq!(read(&*store, 99_999, 2).await.unwrap(), [0, 5]);
    let extents = store.extents(0, 1_000_003).await.unwrap();
    let seen: Vec<_> = extents.iter().map(|extent| (extent.length, extent.hole)).collect();
    assert_eq!(seen, [(65_536, true), (262_144, false), (672_323, true)]);
    let second = opened("s3(object=4KiB)://volumes/other", Some(8192)).await.unwrap();
    assert_eq!(read(&*second, 0, 8192).await.unwrap(), [0; 8192], "volumes do not mix");

    let nowhere = opened("s3://missing-bucket/a", Some(4096)).await.err().unwrap();
    assert!(nowhere.to_string().contains("s3://missing-bucket/a"), "{nowhere}");
    println!("all done over S3");
}
