//! What the fuzz targets do with their bytes. The ordinary tests do the same with random ones.
//!
//! A body panics when something is wrong: when a side does not end after its stream has ended, or
//! panics itself.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::time::timeout;
use undercroft_nbd::wire::*;
use undercroft_nbd::{Client, ClientOptions, Peer, Server, ServerOptions};

use crate::export::Ram;

/// Small enough that random offsets often lie within.
const SIZE: u64 = 1 << 16;

/// Longest time that a body may take.
const PATIENCE: Duration = Duration::from_secs(20);

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        timeout(PATIENCE, work).await.expect("it does not come to an end");
    });
}

/// Sends bytes in two parts and closes; what comes back is read and dropped.
async fn feed(stream: DuplexStream, first: &[u8], second: &[u8]) {
    let (mut from, mut to) = tokio::io::split(stream);
    let send = async {
        // The other side may hang up at any time.
        let _ = to.write_all(first).await;
        let _ = to.write_all(second).await;
        let _ = to.shutdown().await;
    };
    let receive = async {
        let mut dropped = vec![0; 4096];
        while matches!(from.read(&mut dropped).await, Ok(1..)) {}
    };
    tokio::join!(send, receive);
}

async fn serve(first: &[u8], second: &[u8]) {
    let server = Server::new(Arc::new(Ram::new("ram", SIZE)), ServerOptions::default());
    let (ours, theirs) = duplex(300);
    let attend = server.attend(theirs, Peer::default());
    let (_, _) = tokio::join!(attend, feed(ours, first, second));
    assert_eq!(server.connections(), 0);
}

/// The bytes are all that a client ever sends.
pub(crate) fn handshake(bytes: &[u8]) {
    run(serve(&[0, 0, 0, 3], bytes));
}

/// The bytes are what a client sends after a good handshake; and the lengths in its headers are
/// made small, so that whole requests often come together.
pub(crate) fn requests(bytes: &[u8]) {
    let mut start = BytesMut::from(&[0, 0, 0, 3][..]);
    put_option(&mut start, OPT_STRUCTURED_REPLY, &[]);
    let queries = vec!["base:allocation".to_owned()];
    let query = ContextQuery { name: String::new(), queries };
    put_option(&mut start, OPT_SET_META_CONTEXT, &query.bytes());
    let go = InfoRequest { name: String::new(), wanted: Vec::new() };
    put_option(&mut start, OPT_GO, &go.bytes());
    let mut rest = bytes.to_vec();
    let mut at = 0;
    while let Some(header) = rest.get_mut(at..at + RequestHeader::SIZE) {
        header[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        header[4] = 0;
        header[5] &= 0x1f;
        header[6] = 0;
        header[7] %= 9;
        header[16..22].fill(0);
        header[24..26].fill(0);
        let header: &[u8; RequestHeader::SIZE] = (&*header).try_into().expect("as many bytes");
        let header = RequestHeader::parse(header).expect("it has its magic number");
        at += RequestHeader::SIZE + header.payload_length as usize;
    }
    run(serve(&start, &rest));
}

/// The bytes are what a server says after its greeting.
pub(crate) fn client(bytes: &[u8]) {
    run(async {
        let mut start = BytesMut::from(&Greeting { flags: 3 }.bytes()[..]);
        let mut rest = bytes;
        // With an even first byte the handshake is good, and the bytes are answers.
        if bytes.first().is_some_and(|first| first % 2 == 0) {
            rest = &bytes[1..];
            put_option_reply(&mut start, OPT_STRUCTURED_REPLY, REP_ACK, &[]);
            let context = b"\0\0\0\x01base:allocation";
            put_option_reply(&mut start, OPT_SET_META_CONTEXT, REP_META_CONTEXT, context);
            put_option_reply(&mut start, OPT_SET_META_CONTEXT, REP_ACK, &[]);
            let info = InfoReply::Export { size: SIZE, flags: HAS_FLAGS | SEND_FLUSH };
            put_option_reply(&mut start, OPT_GO, REP_INFO, &info.bytes());
            put_option_reply(&mut start, OPT_GO, REP_ACK, &[]);
        }
        let (ours, theirs) = duplex(300);
        let contexts = vec!["base:allocation".to_owned()];
        let options = ClientOptions { contexts, ..ClientOptions::default() };
        let ask = async {
            let Ok(client) = Client::over(theirs, "", &options).await else { return };
            let read = client.read(0, vec![Box::new(vec![0; 100]), Box::new(vec![0; 5000])]);
            let write = client.write(0, vec![Bytes::from_static(b"data")], false);
            let status = client.block_status(0, 4096, false);
            let flush = client.flush();
            // Whatever the outcomes, they come.
            let _ = tokio::join!(read, write, status, flush);
        };
        tokio::join!(ask, feed(ours, &start, rest));
    });
}
