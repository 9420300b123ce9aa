//! A server on top of another: what reaches the one below, and what happens when it goes away.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use undercroft_nbd::wire::{CMD_FLAG_FAST_ZERO, READ_ONLY};
use undercroft_nbd::{Client, ClientError, ClientOptions, Failure, Uri};

use super::clients::is_there;
use super::support::{PATIENCE, Place, Server, read, seeded, write};

const BLOCK: u64 = 4096;
const MIB: usize = 1 << 20;

/// Serves the volume `v` of another server.
fn stacked(place: &Place, below: &Server, options: &str) -> Server {
    place.serve(&format!("--volume v={}{options}", below.uri("v")))
}

/// nbdkit with arguments, on the socket `nbdkit` of a place; ended with the test.
struct Nbdkit {
    child: Child,
    uri: String,
}

impl Nbdkit {
    /// None where it is not installed.
    fn start(place: &Place, arguments: &str) -> Option<Nbdkit> {
        if !is_there("nbdkit") {
            eprintln!("nbdkit is not installed: left out");
            return None;
        }
        let socket = place.path("nbdkit");
        let mut all = vec!["-f", "-U", socket.to_str().unwrap()];
        all.extend(arguments.split_whitespace());
        let mut child = place.command("nbdkit", &all).spawn().unwrap();
        let deadline = Instant::now() + PATIENCE;
        while !socket.exists() {
            assert!(child.try_wait().unwrap().is_none(), "nbdkit {arguments} has ended");
            assert!(Instant::now() < deadline, "nbdkit {arguments} is silent");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Nbdkit { child, uri: format!("nbd+unix:///?socket={}", socket.display()) })
    }

    async fn content(&self, length: usize) -> Vec<u8> {
        let uri: Uri = self.uri.parse().unwrap();
        let client = Client::connect(&uri, &ClientOptions::default()).await.unwrap();
        let mut content = Vec::new();
        while content.len() < length {
            content.extend(read(&client, content.len() as u64, 1 << 16).await.unwrap());
        }
        content
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How often a volume was asked for something.
fn asked(server: &Server, operation: &str) -> u64 {
    let latency = &server.stats("v")["latency_us"][operation];
    let sources = latency.as_object().into_iter().flat_map(|sources| sources.values());
    sources.map(|source| source["count"].as_u64().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_reaches_the_server_below() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=file:v.img,size=8MiB,write=back,dirty-age-s=600");
    let upper = stacked(&above, &lower, ",block=16KiB --cache 1MiB");
    assert!(upper.announced.contains("8 MiB  nbd+unix:///v?socket="), "{}", upper.announced);
    let client = upper.connect("v").await;
    assert_eq!(client.remote().info.size, 8 << 20, "the size is that of the export below");
    // A server begins with a flush: it may have written before it was started.
    while asked(&lower, "flush") == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut random = seeded("stacked");
    let mut model = vec![0; 8 * MIB];
    for _ in 0..40 {
        let at = random.below(8 * MIB as u64 - 100_000) as usize;
        let length = 1 + random.below(100_000) as usize;
        let data = random.bytes(length);
        write(&client, at as u64, data.clone()).await.unwrap();
        model[at..at + length].copy_from_slice(&data);
    }
    assert!(read(&client, 0, 8 * MIB).await.unwrap() == model);
    // Written through, but the server below keeps it in its memory until it is told to flush.
    assert!(lower.count("v", "dirty") > 0 && asked(&lower, "flush") == 1);
    client.flush().await.unwrap();
    assert_eq!((lower.count("v", "dirty"), asked(&lower, "flush")), (0, 2));
    assert!(below.read("v.img") == model);

    write(&client, 0, vec![1; 16384]).await.unwrap();
    assert_eq!(lower.count("v", "dirty"), 4, "without FUA it is not durable below");
    client.write(0, vec![vec![2; 16384].into()], true).await.unwrap();
    assert_eq!((lower.count("v", "dirty"), asked(&lower, "flush")), (0, 2), "FUA is passed on");
    assert_eq!(below.read("v.img")[..16384], [2; 16384]);

    client.trim(MIB as u64, MIB as u64, false).await.unwrap();
    client.write_zeroes(2 * MIB as u64, MIB as u64, 0, false).await.unwrap();
    client.write_zeroes(4 * MIB as u64, MIB as u64, CMD_FLAG_FAST_ZERO, false).await.unwrap();
    assert_eq!((asked(&lower, "trim"), asked(&lower, "write_zeroes")), (1, 2));
    for start in [2 * MIB, 4 * MIB] {
        assert!(read(&client, start as u64, MIB).await.unwrap() == vec![0; MIB]);
        assert!(below.read("v.img")[start..start + MIB] == vec![0; MIB]);
    }
    let contexts = vec!["base:allocation".to_owned()];
    let options = ClientOptions { contexts, ..ClientOptions::default() };
    let client = upper.try_connect("v", &options).await.unwrap();
    let found = client.block_status(4 * MIB as u64, MIB as u64, true).await.unwrap();
    let (extent, zero) = (&found[0].1[0], 2);
    assert!(extent.length == MIB as u64 && extent.status & zero != 0, "{found:?}");
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// Random changes and reads against a model, then the content of the server below.
async fn compare(nbdkit: &Nbdkit, options: &str, what: &str) {
    let place = Place::new();
    let server = place.serve(&format!("--volume v={}{options}", nbdkit.uri));
    let client = server.connect("v").await;
    let size = client.remote().info.size as usize;
    let mut random = seeded(what);
    let mut model = nbdkit.content(size).await;
    for _ in 0..300 {
        let at = BLOCK * random.below(size as u64 / BLOCK - 64);
        let length = (BLOCK * (1 + random.below(64))) as usize;
        let range = at as usize..at as usize + length;
        match random.below(8) {
            0..=2 => {
                let data = random.bytes(length);
                client.write(at, vec![data.clone().into()], random.below(4) == 0).await.unwrap();
                model[range].copy_from_slice(&data);
            }
            3 => {
                client.write_zeroes(at, length as u64, 0, random.below(4) == 0).await.unwrap();
                model[range].fill(0);
            }
            4 => {
                client.trim(at, length as u64, false).await.unwrap();
                // What is there afterwards is for the store to say, and stays so.
                model[range].copy_from_slice(&read(&client, at, length).await.unwrap());
            }
            5 => client.flush().await.unwrap(),
            _ => assert!(read(&client, at, length).await.unwrap() == model[range]),
        }
    }
    assert!(read(&client, 0, size).await.unwrap() == model, "{what}");
    assert_eq!(server.stop(), 0);
    assert!(nbdkit.content(size).await == model, "{what}: something did not arrive");
}

#[tokio::test(flavor = "multi_thread")]
async fn nbdkit_below() {
    let place = Place::new();
    let Some(nbdkit) = Nbdkit::start(&place, "memory 8M") else { return };
    for mode in ["through", "back", "around"] {
        compare(&nbdkit, &format!(" --write {mode} --cache 1MiB"), mode).await;
    }
    compare(&nbdkit, ",cache=off", "without a cache").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_that_can_do_little() {
    // Requests of at most 64 KiB, no zeroes, no FUA.
    let place = Place::new();
    let arguments = "--filter=blocksize-policy --filter=nozero --filter=fua memory 8M \
                     blocksize-maximum=64k blocksize-error-policy=error";
    let Some(nbdkit) = Nbdkit::start(&place, arguments) else { return };
    compare(&nbdkit, " --cache 1MiB", "small requests").await;
    compare(&nbdkit, ",cache=off", "small requests without a cache").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_export_below_is_read_only_above() {
    let (above, below) = (Place::new(), Place::new());
    below.write("v.img", vec![7; MIB]);
    let lower = below.serve("--volume v=file:v.img,read-only");
    let upper = stacked(&above, &lower, "");
    assert!(upper.announced.contains("read-only"), "{}", upper.announced);
    let client = upper.connect("v").await;
    assert!(client.remote().offers(READ_ONLY));
    let refused = write(&client, 0, vec![1; 4096]).await;
    let failure = Failure::NotPermitted;
    assert!(
        matches!(&refused, Err(ClientError::Server { failure: f, .. }) if *f == failure),
        "{refused:?}"
    );
    assert_eq!(read(&client, 0, 4096).await.unwrap(), vec![7; 4096]);
    // And one that may be written is not, if the volume is told so.
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=mem:,size=1MiB");
    let upper = stacked(&above, &lower, ",read-only");
    assert!(write(&upper.connect("v").await, 0, vec![1; 4096]).await.is_err());
    assert_eq!(lower.count("v", "writes"), 0);
}

#[test]
fn a_size_that_is_not_the_exports_is_refused() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=mem:,size=1MiB");
    let said = above.refused(2, &format!("--volume v={},size=2MiB", lower.uri("v")));
    assert!(said.contains("1048576 bytes, not 2097152"), "{said}");
    let said = above.refused(1, &format!("--volume v={}", lower.uri("w")));
    assert!(said.contains("there is no export 'w'"), "{said}");
}

fn is_io(result: &Result<impl Sized, ClientError>) -> bool {
    matches!(result, Err(ClientError::Server { failure: Failure::Io, .. }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_below_that_is_killed_comes_back() {
    const SERVE: &str = "--volume v=delay(200ms):file:v.img,size=1MiB --listen 127.0.0.1:0";
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve(SERVE);
    let upper = stacked(&above, &lower, ",reconnect-s=0 --cache 256KiB");
    let client = upper.connect("v").await;
    write(&client, 0, vec![1; 8192]).await.unwrap();
    client.flush().await.unwrap();

    // In flight when it dies: answered with an error, not left waiting.
    let in_flight: Vec<_> = (10..20).map(|block| client.read_block(block)).collect();
    lower.wait_for("v", "reads", |reads| reads >= 10);
    lower.kill();
    for answer in in_flight {
        let answer = answer.await;
        assert!(is_io(&answer), "{answer:?}");
    }
    // What is cached is served, the rest fails, and many requests fail together.
    assert_eq!(read(&client, 0, 8192).await.unwrap(), vec![1; 8192]);
    let start = Instant::now();
    let many: Vec<_> = (0..200).map(|n| client.read_block(20 + n)).collect();
    for answer in many {
        let answer = answer.await;
        assert!(is_io(&answer), "{answer:?}");
    }
    // One after another they would take 40 s.
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
    assert!(is_io(&write(&client, 30 * BLOCK, vec![2; 4096]).await));
    assert!(is_io(&client.flush().await));

    let lower = below.serve(SERVE);
    assert_eq!(read(&client, 30 * BLOCK, 4096).await.unwrap(), vec![0; 4096]);
    write(&client, 30 * BLOCK, vec![3; 4096]).await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(below.read("v.img")[30 * 4096..31 * 4096], [3; 4096]);
    assert!(upper.log().contains("connected again"), "{}", upper.log());
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// A read, as a task of its own.
trait ReadLater {
    fn read_block(&self, block: u64) -> impl Future<Output = Result<Vec<u8>, ClientError>>;
}

impl ReadLater for Client {
    fn read_block(&self, block: u64) -> impl Future<Output = Result<Vec<u8>, ClientError>> {
        let client = self.clone();
        let task = tokio::spawn(async move { read(&client, block * BLOCK, 4096).await });
        async { task.await.unwrap() }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_back_waits_for_a_server_below_that_is_away() {
    const SERVE: &str = "--volume v=file:v.img,size=1MiB";
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve(SERVE);
    let upper = stacked(&above, &lower, ",reconnect-s=0,dirty-age-s=1 --write back");
    let client = upper.connect("v").await;
    lower.kill();
    write(&client, 0, vec![4; 40960]).await.unwrap();
    upper.wait_for("v", "write_failures", |failures| failures > 0);
    assert_eq!(upper.count("v", "dirty"), 10);
    let lower = below.serve(SERVE);
    // Written out by itself, without a word from a client.
    upper.wait_for("v", "dirty", |dirty| dirty == 0);
    client.flush().await.unwrap();
    assert_eq!(below.read("v.img")[..40960], [4; 40960]);
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_tells_that_the_server_below_may_have_lost_something() {
    const SERVE: &str = "--volume v=file:v.img,size=1MiB,write=back,dirty-age-s=600";
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve(SERVE);
    let upper = stacked(&above, &lower, "");
    let client = upper.connect("v").await;
    write(&client, 0, vec![1; 4096]).await.unwrap();
    client.flush().await.unwrap();
    write(&client, 0, vec![2; 4096]).await.unwrap();
    // Answered, and gone with the server below.
    lower.kill();
    assert_eq!(below.read("v.img")[..4096], [1; 4096]);
    let lower = below.serve(SERVE);
    read(&client, 8192, 4096).await.unwrap();
    let told = client.flush().await;
    assert!(is_io(&told), "a loss must not be called durable: {told:?}");
    // Told once; what comes after is as good as ever.
    write(&client, 0, vec![3; 4096]).await.unwrap();
    client.flush().await.unwrap();
    assert_eq!(below.read("v.img")[..4096], [3; 4096]);
    // And nothing is told where everything had been flushed.
    lower.kill();
    let lower = below.serve(SERVE);
    client.flush().await.unwrap();
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn growth_reaches_the_server_above() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=file:v.img,size=1MiB -v");
    let upper = stacked(&above, &lower, " -v");
    let client = upper.connect("v").await;
    write(&client, 0, vec![1; 4096]).await.unwrap();
    let file = std::fs::File::options().write(true).open(below.path("v.img")).unwrap();
    file.set_len(2 << 20).unwrap();
    for server in [&lower, &upper] {
        server.signal(Signal::HUP);
        server.wait_for("v", "size_bytes", |size| size == 2 << 20);
    }
    let after = upper.connect("v").await;
    assert_eq!(after.remote().info.size, 2 << 20);
    write(&after, (2 << 20) - BLOCK, vec![2; 4096]).await.unwrap();
    after.flush().await.unwrap();
    assert_eq!(below.read("v.img")[(2 << 20) - 4096..], [2; 4096]);
    assert_eq!(read(&client, 0, 4096).await.unwrap(), vec![1; 4096]);
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_export_does_not_stand_for_the_first() {
    let (above, below) = (Place::new(), Place::new());
    let lower = below.serve("--volume v=mem:,size=2MiB");
    let upper = stacked(&above, &lower, "");
    let client = upper.connect("v").await;
    read(&client, 0, 4096).await.unwrap();
    lower.kill();
    let lower = below.serve("--volume v=mem:,size=1MiB");
    assert!(is_io(&read(&client, 8192, 4096).await));
    upper.wait_for_log("has shrunk from 2097152 to 1048576 bytes");
    lower.kill();
    let _lower = below.serve("--volume v=mem:,size=2MiB");
    read(&client, 8192, 4096).await.unwrap();
}
