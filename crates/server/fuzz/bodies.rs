//! What the fuzz targets of the server do with their bytes. The ordinary tests do the same with
//! random ones.
//!
//! A body panics when something is wrong: when the server does not end after its client has, when
//! an invariant of a volume is broken, or when a byte is not what it was.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::runtime::Handle;
use tokio::time::timeout;
use undercroft_frames::Memory;
use undercroft_nbd::wire::*;
use undercroft_nbd::{Answer, Command, Peer, Reply, Request};
use undercroft_policy::Spec;
use undercroft_server::process::{Running, ServerConfig, Settings, Surroundings};
use undercroft_server::{Caller, SavedContent, Volume, VolumeConfig};
use undercroft_store::{MemoryStore, Store};

/// Longest time that a body may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of each volume; its window begins at the next mebibyte.
const SIZE: u64 = 256 << 10;
const WINDOW: u64 = 1 << 20;

/// One volume for each way to deal with hints.
const VOLUMES: [&str; 5] = [
    "plain=mem:,policy=mq",
    "gl=mem:,policy=lru,placement=gl",
    "eviction=mem:,policy=mq,placement=eviction,write=back",
    "aware=mem:,policy=lru-ca",
    "both=mem:,policy=mq,ca,placement=eviction,on-hit=keep",
];

/// The policies whose saved content is loaded.
pub(crate) const POLICIES: [&str; 7] = ["lru", "mq", "arc", "2q", "lirs", "lfu", "clock"];

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        timeout(PATIENCE, work).await.expect("it does not come to an end");
    });
}

/// Sends bytes and closes; what comes back is read and dropped.
async fn feed(stream: DuplexStream, bytes: &[u8]) {
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        // The other side may hang up at any time.
        let _ = to.write_all(bytes).await;
        let _ = to.shutdown().await;
    };
    let receive = async {
        let mut dropped = vec![0; 4096];
        while matches!(from.read(&mut dropped).await, Ok(1..)) {}
    };
    tokio::join!(send, receive);
}

fn config() -> ServerConfig {
    let volume = |text: &&str| Settings::volume(&format!("{text},size=256KiB")).unwrap();
    let volumes: Vec<_> = VOLUMES.iter().map(volume).collect();
    let settings = Settings::default().set("volume", volumes).set("cache", "320KiB");
    let mut config = settings.config().unwrap();
    config.listen.clear();
    config
}

/// The bytes are what two clients send that have opted in to hints, on the volume that the first
/// byte chooses. Lengths are made small and places those of the volume or its window, so that whole
/// requests often come together.
pub(crate) fn hinted(bytes: &[u8]) {
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let name = VOLUMES[usize::from(choice) % VOLUMES.len()].split('=').next().unwrap();
    run(async {
        let surroundings = Surroundings { seed: Some(1), ..Surroundings::default() };
        let running = Running::start_in(&config(), surroundings).await.unwrap();
        let (first, second) = rest.split_at(rest.len() / 2);
        let serve = async |bytes: &[u8]| {
            let (ours, theirs) = duplex(4096);
            let sent = [&opening(name)[..], &requests(bytes)].concat();
            let attend = running.server().attend(theirs, Peer::default());
            let (_, ()) = tokio::join!(attend, feed(ours, &sent));
        };
        tokio::join!(serve(first), serve(second));
        for volume in running.volumes() {
            volume.validate().unwrap();
        }
        running.stop().await.unwrap();
    });
}

/// How a client that wants every kind of hint begins.
fn opening(name: &str) -> BytesMut {
    let mut start = BytesMut::from(&[0, 0, 0, 3][..]);
    put_option(&mut start, OPT_STRUCTURED_REPLY, &[]);
    let all = "evict,demote,promote,freq,digest,hold,stat,follow";
    let query = format!("x-undercroft:coop;v=1;client=1;want={all}");
    let queries = vec!["base:allocation".to_owned(), query];
    put_option(
        &mut start,
        OPT_SET_META_CONTEXT,
        &ContextQuery { name: name.to_owned(), queries }.bytes(),
    );
    let go = InfoRequest { name: name.to_owned(), wanted: Vec::new() };
    put_option(&mut start, OPT_GO, &go.bytes());
    start
}

fn requests(bytes: &[u8]) -> Vec<u8> {
    let mut rest = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = rest.get_mut(at..at + RequestHeader::SIZE) {
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4] = 0;
        header[5] &= 0x1f;
        header[6] = 0;
        header[7] %= 9;
        let place = u64::from(u16::from_be_bytes([header[22], header[23]])) * 8;
        let offset = if header[16] % 2 == 0 { WINDOW + place % 64 } else { place % SIZE };
        header[16..24].copy_from_slice(&offset.to_be_bytes());
        header[24..26].fill(0);
        let header: &[u8; RequestHeader::SIZE] = (&*header).try_into().expect("as many bytes");
        let header = RequestHeader::parse(header).expect("it has its magic number");
        at += RequestHeader::SIZE + header.payload_length as usize;
    }
    rest
}

/// The bytes are a file of a warm restart, or what the policy saved that the first byte chooses, in
/// such a file. Whatever it says, a volume that takes it on reads as its store does.
pub(crate) fn state(bytes: &[u8]) {
    // As a file, with a checksum that is hardly ever right.
    if let Ok(saved) = SavedContent::from_bytes(bytes) {
        assert_eq!(SavedContent::from_bytes(&saved.to_bytes()).unwrap(), saved);
    }
    let Some((&choice, rest)) = bytes.split_first() else { return };
    let policy = POLICIES[usize::from(choice) % POLICIES.len()];
    run(async {
        let volume = open(policy).await;
        let mut saved = SavedContent::of(&volume).unwrap();
        saved.shards = vec![rest.to_vec()];
        if let Ok(restored) = volume.restore(&saved) {
            restored.warm_up(&volume).await;
        }
        volume.validate().unwrap();
        for block in 0..SIZE / 4096 {
            assert_eq!(read(&volume, block * 4096).await, vec![block as u8; 4096]);
        }
        volume.validate().unwrap();
        volume.close().await.unwrap();
    });
}

/// A volume of 64 blocks, each full of its number, with a cache of 16.
pub(crate) async fn open(policy: &str) -> Arc<Volume> {
    let store = MemoryStore::new(SIZE).unwrap();
    for block in 0..SIZE / 4096 {
        let data = vec![Bytes::from(vec![block as u8; 4096])];
        store.write(block * 4096, data, false).await.unwrap();
    }
    let config = VolumeConfig::new("state", 16, Spec::parse(policy).unwrap());
    let memory = Memory::new(config.memory_bytes() as usize).unwrap();
    Volume::open(config, Arc::new(store), &memory, Handle::current()).unwrap()
}

pub(crate) async fn read(volume: &Arc<Volume>, offset: u64) -> Vec<u8> {
    let (reply, answer) = Reply::detached();
    let command = Command::Read { one_chunk: false };
    let request = Request { command, offset, length: 4096, durable: false, reply };
    volume.serve(&mut vec![request], Caller::default());
    match answer.await {
        Answer::Data(pieces) => pieces.concat(),
        other => panic!("a read was answered by {other:?}"),
    }
}
