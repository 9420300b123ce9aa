//! What a server below lost: it is killed between a write and a flush, and started again with what
//! it had kept. Who is told above, what is read there, and what is written again.
//!
//! And what it did not lose, but does late: a write of a connection that was cut.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::copy_bidirectional;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};
use undercroft_client::{CachedClient, CachedOptions, Report};
use undercroft_nbd::{Client, ClientError, ClientOptions, Failure, ReconnectId};

use super::support::{PATIENCE, Place, Server, read, seeded, write};

const BLOCK: usize = 4096;

/// The lowest server: it keeps what is written in memory until it is told to flush.
const FORGETFUL: &str = "--volume v=file:v.img,size=1MiB,write=back,dirty-age-s=600";

fn above(place: &Place, below: &Server, options: &str) -> Server {
    place.serve(&format!("--volume v={}{options}", below.uri("v")))
}

fn is_io(result: &Result<(), ClientError>) -> bool {
    matches!(result, Err(ClientError::Server { failure: Failure::Io, .. }))
}

/// The first byte of a block.
async fn block(client: &Client, block: usize) -> u8 {
    read(client, (block * BLOCK) as u64, BLOCK).await.unwrap()[0]
}

#[tokio::test(flavor = "multi_thread")]
async fn two_sessions_hear_of_a_loss_and_read_what_is_left() {
    for options in [",write=through", ",write=around", ",cache=off"] {
        let (top, bottom) = (Place::new(), Place::new());
        let lower = bottom.serve(FORGETFUL);
        let upper = above(&top, &lower, options);
        let (writer, other) = (upper.connect("v").await, upper.connect("v").await);
        write(&writer, 0, vec![1; 2 * BLOCK]).await.unwrap();
        other.flush().await.unwrap();
        write(&writer, 0, vec![2; BLOCK]).await.unwrap();
        assert_eq!(block(&other, 0).await, 2);
        lower.kill();
        let lower = bottom.serve(FORGETFUL);
        // It is noticed with the first request that goes below.
        block(&writer, 200).await;
        assert_eq!([block(&other, 0).await, block(&writer, 0).await], [1, 1], "{options}");
        assert!(is_io(&other.flush().await), "{options}: the one that wrote nothing is told");
        other.flush().await.unwrap();
        write(&writer, 0, vec![3; BLOCK]).await.unwrap();
        assert!(is_io(&writer.flush().await), "{options}: and so is the one that wrote");
        writer.flush().await.unwrap();
        upper.connect("v").await.flush().await.unwrap();
        assert_eq!(bottom.read("v.img")[..BLOCK], [3; BLOCK]);
        assert_eq!((upper.stop(), lower.stop()), (0, 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_loss_two_servers_below_reaches_the_top() {
    let (top, middle, bottom) = (Place::new(), Place::new(), Place::new());
    let lower = bottom.serve(FORGETFUL);
    let between = above(&middle, &lower, "");
    let upper = above(&top, &between, "");
    let (writer, other) = (upper.connect("v").await, upper.connect("v").await);
    write(&writer, 0, vec![1; BLOCK]).await.unwrap();
    writer.flush().await.unwrap();
    write(&writer, 0, vec![2; BLOCK]).await.unwrap();
    lower.kill();
    let lower = bottom.serve(FORGETFUL);
    assert!(is_io(&writer.flush().await));
    writer.flush().await.unwrap();
    assert!(is_io(&other.flush().await), "the connection of the top was never lost");
    other.flush().await.unwrap();
    assert_eq!(block(&other, 0).await, 1);
    assert_eq!((upper.stop(), between.stop(), lower.stop()), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn write_back_above_loses_nothing_that_a_server_below_forgets() {
    let mut random = seeded("write-back above a server that is killed");
    let (top, bottom) = (Place::new(), Place::new());
    let mut lower = bottom.serve(FORGETFUL);
    let upper = above(&top, &lower, ",write=back,dirty-age-s=1 --cache 512KiB");
    let (client, other) = (upper.connect("v").await, upper.connect("v").await);
    write(&client, 0, vec![9; BLOCK]).await.unwrap();
    upper.wait_for("v", "dirty", |dirty| dirty == 0);
    // Nobody has told anything to flush.
    assert_eq!(bottom.read("v.img")[..BLOCK], [9; BLOCK]);
    let mut model = vec![0; 256];
    model[0] = 9;
    for _ in 0..4 {
        for _ in 0..200 {
            let (at, byte) = (random.below(256) as usize, random.below(256) as u8);
            // More than is cached: blocks are driven out, and written out for that.
            write(&client, (at * BLOCK) as u64, vec![byte; BLOCK]).await.unwrap();
            model[at] = byte;
        }
        lower.kill();
        for (at, byte) in model.iter_mut().enumerate().take(8) {
            write(&client, (at * BLOCK) as u64, vec![7; BLOCK]).await.unwrap();
            *byte = 7;
        }
        lower = bottom.serve(FORGETFUL);
        // A write-out that was tried while nobody was there may have failed just now.
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = client.flush().await {
            assert!(Instant::now() < deadline, "{error}: {}", upper.log());
        }
        other.flush().await.unwrap();
        let durable = bottom.read("v.img");
        for (at, &byte) in model.iter().enumerate() {
            assert_eq!(durable[at * BLOCK..][..BLOCK], [byte; BLOCK], "block {at}");
            assert_eq!(block(&other, at).await, byte, "block {at}");
        }
    }
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

/// A way to a server that can be cut.
struct Way {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Way {
    fn open(path: PathBuf, to: PathBuf) -> Way {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let task = tokio::spawn(async move {
            let mut all = JoinSet::new();
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let to = to.clone();
                all.spawn(async move {
                    let mut far = UnixStream::connect(to).await.unwrap();
                    let _ = copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Way { path, task }
    }

    /// Ends all connections; new ones can be made.
    fn cut(self, to: PathBuf) -> Way {
        self.task.abort();
        Way::open(self.path.clone(), to)
    }

    fn uri(path: &Path) -> String {
        format!("nbd+unix:///v?socket={}", path.display())
    }
}

/// The second write stalls below for so long.
const STALLED: Duration = Duration::from_secs(4);
const STALLING: &str = "--volume v=fail(write,n=2,stall=4s):file:v.img,size=1MiB,cache=off";

#[tokio::test(flavor = "multi_thread")]
async fn a_late_write_of_a_connection_that_was_cut_does_not_overtake() {
    let (top, bottom) = (Place::new(), Place::new());
    let lower = bottom.serve(STALLING);
    let socket = || bottom.path("socket");
    let way = Way::open(top.path("way"), socket());
    let upper = top.serve(&format!("--volume v={},reconnect-s=0", Way::uri(&way.path)));
    let client = upper.connect("v").await;
    write(&client, 0, vec![1; BLOCK]).await.unwrap();
    let late = write(&client, 0, vec![2; BLOCK]);
    lower.wait_for("v", "writes", |writes| writes == 2);
    let way = way.cut(socket());
    assert!(is_io(&late.await));
    write(&client, 0, vec![3; BLOCK]).await.unwrap();
    client.flush().await.unwrap_err();
    client.flush().await.unwrap();
    tokio::time::sleep(STALLED).await;
    assert_eq!(bottom.read("v.img")[..BLOCK], [3; BLOCK], "the late write came last");
    assert_eq!(block(&client, 0).await, 3);
    drop(way);
    assert_eq!((upper.stop(), lower.stop()), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nor_does_a_late_write_of_a_caching_client() {
    let bottom = Place::new();
    let lower = bottom.serve(STALLING);
    let socket = || bottom.path("socket");
    let way = Way::open(bottom.path("way"), socket());
    let report = Report::Nothing;
    let options = CachedOptions { report, ..CachedOptions::new(10, "lru".parse().unwrap()) };
    let client = CachedClient::connect(&Way::uri(&way.path).parse().unwrap(), &options).await;
    let client = client.unwrap();
    let data = |byte: u8| Bytes::from(vec![byte; BLOCK]);
    client.write(0, data(1), false).await.unwrap();
    let late = {
        let client = client.clone();
        tokio::spawn(async move { client.write(0, Bytes::from(vec![2; BLOCK]), false).await })
    };
    lower.wait_for("v", "writes", |writes| writes == 2);
    let way = way.cut(socket());
    assert!(matches!(late.await.unwrap(), Err(ClientError::Lost(_))));
    client.write(0, data(3), false).await.unwrap();
    assert_eq!(client.flush().await, Err(ClientError::Unflushed));
    client.flush().await.unwrap();
    tokio::time::sleep(STALLED).await;
    assert_eq!(bottom.read("v.img")[..BLOCK], [3; BLOCK], "the late write came last");
    drop((client, way));
    assert_eq!(lower.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_context_of_a_line_is_answered_and_ends_older_connections() {
    let place = Place::new();
    let server = place.serve("--volume v=mem:,size=1MiB");
    let line = ReconnectId::default();
    let open = |context: String| {
        let contexts = vec!["base:allocation".to_owned(), context];
        let options = ClientOptions { contexts, ..ClientOptions::default() };
        let server = &server;
        async move { server.try_connect("v", &options).await }
    };
    let first = open(line.next()).await.unwrap();
    assert_eq!(first.remote().contexts.len(), 2);
    let found = first.block_status(0, 1 << 20, false).await.unwrap();
    let of_line = found.iter().find(|(id, _)| *id == 2).unwrap();
    assert_eq!(of_line.1.iter().map(|extent| extent.status).collect::<Vec<_>>(), [0]);
    let beside = open(line.beside()).await.unwrap();
    let older = line.beside();
    read(&first, 0, BLOCK).await.unwrap();
    let next = open(line.next()).await.unwrap();
    for old in [&first, &beside] {
        let deadline = Instant::now() + PATIENCE;
        while !old.is_lost() {
            assert!(Instant::now() < deadline, "an old connection goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let late = open(older).await;
    assert!(matches!(&late, Err(ClientError::Refused(why)) if why.contains("newer")), "{late:?}");
    read(&next, 0, BLOCK).await.unwrap();
    // Another line, and none, are nobody's business.
    let other = open(ReconnectId::default().next()).await.unwrap();
    let plain = server.connect("v").await;
    for client in [&next, &other, &plain] {
        read(client, 0, BLOCK).await.unwrap();
    }
}
