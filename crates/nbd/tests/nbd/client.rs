//! The client: against our server, and against servers that mean no good.

use std::sync::Arc;

use crate::support::*;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;
use undercroft_nbd::wire::*;
use undercroft_nbd::{
    Buffer, Client, ClientError, ClientOptions, Command, Extent, Failure, Listener, Peer,
    ReconnectingClient, Server, ServerOptions, Uri,
};
use undercroft_random::SplitMix64 as Random;

const MIB: u64 = 1 << 20;

fn with_base() -> ClientOptions {
    ClientOptions { contexts: vec!["base:allocation".to_owned()], ..ClientOptions::default() }
}

async fn over(server: &Server, options: &ClientOptions) -> Client {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = server.clone();
    tokio::spawn(async move { server.attend(theirs, Peer::default()).await });
    Client::over(ours, "", options).await.unwrap()
}

fn memory(lengths: &[usize]) -> Vec<Buffer> {
    lengths.iter().map(|length| Box::new(vec![0xffu8; *length]) as Buffer).collect()
}

fn joined(mut buffers: Vec<Buffer>) -> Vec<u8> {
    buffers.iter_mut().flat_map(|buffer| (**buffer).as_mut().to_vec()).collect()
}

/// Random requests, compared with a plain vector.
async fn compare_with_vector(client: &Client, size: u64, rounds: u32) {
    let mut random = Random::seeded();
    let mut model = vec![0u8; size as usize];
    for round in 0..rounds {
        let longest = if random.below(10) == 0 { size } else { 10_000 };
        let length = 1 + random.below(longest);
        let offset = random.below(size - length + 1);
        let range = offset as usize..(offset + length) as usize;
        match random.below(6) {
            0 | 1 => {
                let cut = random.below(length + 1) as usize;
                let data = Bytes::from(vec![round as u8; length as usize]);
                model[range].copy_from_slice(&data);
                let pieces = vec![data.slice(..cut), data.slice(cut..)];
                client.write(offset, pieces, random.below(2) == 0).await.unwrap();
            }
            2 => {
                model[range].fill(0);
                client.write_zeroes(offset, length, CMD_FLAG_NO_HOLE, false).await.unwrap();
            }
            3 => {
                model[range].fill(0);
                client.trim(offset, length, true).await.unwrap();
            }
            _ => {
                let cut = random.below(length + 1) as usize;
                let into = memory(&[cut, 0, length as usize - cut]);
                let (buffers, result) = client.read(offset, into).await;
                result.unwrap();
                assert!(joined(buffers) == model[range], "round {round}: {length} at {offset}");
            }
        }
    }
    client.flush().await.unwrap();
    client.cache(0, size).await.unwrap();
}

/// A server need not make durable over one connection what it was given over another.
#[tokio::test]
async fn a_connection_is_replaced_when_all_is_answered() {
    let (held, mut requests) = Held::new(MIB);
    let server = Server::new(Arc::new(held), ServerOptions::default());
    let dial = async || over(&server, &ClientOptions::default()).await;
    let line = Arc::new(ReconnectingClient::new("a line".to_owned(), dial().await));
    let channel = line.channel(std::future::pending()).await.unwrap();
    let number = channel.number();
    let writing =
        tokio::spawn(
            async move { channel.write(0, vec![Bytes::from_static(&[1; 512])], false).await },
        );
    let write = requests.recv().await.unwrap();
    let (again, replaced) = (dial().await, Arc::clone(&line));
    let replacing = tokio::spawn(async move { replaced.replace(number, again).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(!replacing.is_finished() && requests.try_recv().is_err(), "it did not wait");
    write.reply.done();
    writing.await.unwrap().unwrap();
    let flush = requests.recv().await.unwrap();
    assert_eq!(flush.command, Command::Flush);
    flush.reply.done();
    replacing.await.unwrap().unwrap();
    // Another one has come in between.
    let refused = line.replace(number + 1, dial().await).await;
    assert!(matches!(refused, Err(ClientError::Lost(_))), "{refused:?}");
}

#[tokio::test]
async fn it_reads_what_was_written() {
    let server = Server::new(Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
    let client = over(&server, &with_base()).await;
    assert!(client.remote().structured);
    assert_eq!(client.remote().info.size, MIB);
    assert_eq!(client.remote().contexts, [(1, "base:allocation".to_owned())]);
    compare_with_vector(&client, MIB, 500).await;
    client.close().await;
    deserted(&server).await;
}

#[tokio::test]
async fn it_sees_holes() {
    let server = Server::new(Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
    let client = over(&server, &with_base()).await;
    let page = PAGE as u64;
    client.write(2 * page, vec![Bytes::from_static(b"x")], false).await.unwrap();
    let extent = |length, status| Extent { length, status };
    let all = vec![extent(2 * page, 3), extent(page, 0), extent(MIB - 3 * page, 3)];
    assert_eq!(client.block_status(0, MIB, false).await.unwrap(), [(1, all)]);
    let first = vec![extent(2 * page, 3)];
    assert_eq!(client.block_status(0, MIB, true).await.unwrap(), [(1, first)]);
}

#[tokio::test]
async fn many_requests_are_in_flight_and_come_back_in_any_order() {
    let (export, mut requests) = Held::new(MIB);
    let server = Server::new(Arc::new(export), ServerOptions::default());
    let client = over(&server, &ClientOptions::default()).await;
    // More than may be in flight: the rest waits inside the client.
    let reads: Vec<_> = (0..3000).map(|at| client.read(at, memory(&[10]))).collect();
    tokio::spawn(async move {
        let mut open = Vec::new();
        let mut answered = 0;
        while answered < 3000 {
            requests.recv_many(&mut open, 1000).await;
            for request in open.drain(..).rev() {
                request.reply.data(vec![Bytes::from(vec![request.offset as u8; 10])]);
                answered += 1;
            }
        }
    });
    for (at, read) in (0u64..).zip(reads) {
        let (buffers, result) = timeout(PATIENCE, read).await.expect("an answer");
        result.unwrap();
        assert_eq!(joined(buffers), [at as u8; 10]);
    }
}

#[tokio::test]
async fn what_cannot_be_asked_is_not_sent() {
    let mut export = Ram::new("ram", MIB);
    export.info.flags = undercroft_nbd::Flags::default();
    export.info.min_block = 512;
    let server = Server::new(Arc::new(export), ServerOptions::default());
    let client = over(&server, &ClientOptions::default()).await;
    let invalid = |error: ClientError| match error {
        ClientError::Server { failure: Failure::Invalid, text } => text,
        other => panic!("{other}"),
    };
    for (offset, length, part) in [
        (0, 0, "1 to"),
        (0, 64 << 20, "1 to"),
        (MIB, 512, "end"),
        (u64::MAX - 511, 512, "end"),
        (1, 512, "whole blocks"),
        (0, 100, "whole blocks"),
    ] {
        let (buffers, result) = client.read(offset, memory(&[length])).await;
        assert_eq!(buffers.len(), 1);
        let text = invalid(result.unwrap_err());
        assert!(text.contains(part), "{text}");
    }
    for result in [
        client.trim(0, 512, false).await,
        client.cache(0, 512).await,
        client.write_zeroes(0, 512, 0, false).await,
        client.block_status(0, 512, false).await.map(drop),
    ] {
        invalid(result.unwrap_err());
    }
}

#[tokio::test]
async fn errors_arrive_with_their_text_and_the_memory() {
    let (export, mut requests) = Held::new(MIB);
    let server = Server::new(Arc::new(export), ServerOptions::default());
    let client = over(&server, &ClientOptions::default()).await;
    let read = client.read(0, memory(&[4, 6]));
    requests.recv().await.unwrap().reply.fail(Failure::NoMemory, "too hot".to_owned());
    let (buffers, result) = read.await;
    assert_eq!(joined(buffers).len(), 10);
    let error = result.unwrap_err();
    assert_eq!(error.to_string(), "ENOMEM: too hot");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::OutOfMemory);
    // Also without anybody to hear the answer the write happens.
    drop(client.write(0, vec![Bytes::from_static(b"x")], true));
    let request = requests.recv().await.unwrap();
    assert!(request.durable);
    request.reply.done();
}

#[tokio::test]
async fn a_server_that_leaves_fails_everything_open() {
    let (export, mut requests) = Held::new(MIB);
    let server = Server::new(Arc::new(export), ServerOptions::default());
    let client = over(&server, &ClientOptions::default()).await;
    let reads: Vec<_> = (0..10).map(|_| client.read(0, memory(&[10]))).collect();
    let open = requests.recv().await.unwrap();
    server.shutdown(std::time::Duration::ZERO).await;
    for read in reads {
        let (buffers, result) = timeout(PATIENCE, read).await.expect("an answer");
        assert_eq!(joined(buffers).len(), 10);
        assert!(matches!(result, Err(ClientError::Lost(_) | ClientError::Server { .. })));
    }
    let late = timeout(PATIENCE, client.flush()).await.expect("an answer").unwrap_err();
    assert!(matches!(late, ClientError::Lost(_)), "{late}");
    drop(open);
}

#[tokio::test]
async fn dropping_the_last_client_says_good_bye() {
    let (export, mut requests) = Held::new(MIB);
    let server = Server::new(Arc::new(export), ServerOptions::default());
    let client = over(&server, &ClientOptions::default()).await;
    let flush = client.clone().flush();
    drop(client);
    requests.recv().await.unwrap().reply.done();
    flush.await.expect("what was asked before is answered");
    deserted(&server).await;
}

#[tokio::test]
async fn over_tcp_it_lists_describes_and_works() {
    for host in ["127.0.0.1", "[::1]"] {
        let Ok(listener) = Listener::tcp(format!("{host}:0")).await else {
            println!("skipped: no {host} here");
            continue;
        };
        let port = listener.tcp_address().unwrap().port();
        let server = Server::new(Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
        let task = listen(&server, listener);
        let uri: Uri = format!("nbd://{host}:{port}/ram").parse().unwrap();
        let list = Client::list(&uri, &ClientOptions::default()).await.unwrap();
        assert_eq!(list[0].0, "ram");
        let told = Client::describe(&uri, &with_base()).await.unwrap();
        let client = Client::connect(&uri, &with_base()).await.unwrap();
        assert_eq!(&told, client.remote());
        compare_with_vector(&client, MIB, 100).await;
        client.close().await;
        let none: Uri = format!("nbd://{host}:{port}/none").parse().unwrap();
        let error = Client::connect(&none, &ClientOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("there is no export 'none'"), "{error}");
        server.shutdown(PATIENCE).await;
        task.await.unwrap();
        let error = Client::connect(&uri, &ClientOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("cannot connect to nbd://"), "{error}");
    }
}

/// Plays a server: these bytes after the greeting, whatever the client says, and then nothing.
async fn play(script: &[u8]) -> Result<Client, ClientError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let greeting = Greeting { flags: FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES };
    let bytes = [&greeting.bytes(), script].concat();
    tokio::spawn(async move {
        let _ = theirs.write_all(&bytes).await;
        let _ = theirs.shutdown().await;
        let mut heard = Vec::new();
        let _ = theirs.read_to_end(&mut heard).await;
    });
    let opened = timeout(PATIENCE, Client::over(ours, "", &with_base())).await;
    opened.expect("the client does not wait for ever")
}

/// A handshake that a good server would answer so, with one context of number 5.
fn good_start() -> BytesMut {
    let mut out = BytesMut::new();
    put_option_reply(&mut out, OPT_STRUCTURED_REPLY, REP_ACK, &[]);
    put_option_reply(
        &mut out,
        OPT_SET_META_CONTEXT,
        REP_META_CONTEXT,
        b"\0\0\0\x05base:allocation",
    );
    put_option_reply(&mut out, OPT_SET_META_CONTEXT, REP_ACK, &[]);
    let info = InfoReply::Export { size: MIB, flags: HAS_FLAGS | SEND_FLUSH };
    put_option_reply(&mut out, OPT_GO, REP_INFO, &info.bytes());
    put_option_reply(&mut out, OPT_GO, REP_ACK, &[]);
    out
}

#[tokio::test]
async fn handshakes_that_mean_no_good_end_in_an_error() {
    let mut scripts: Vec<BytesMut> = Vec::new();
    let mut script = |fill: &dyn Fn(&mut BytesMut)| {
        let mut out = BytesMut::new();
        put_option_reply(&mut out, OPT_STRUCTURED_REPLY, REP_ERR_UNSUP, &[]);
        fill(&mut out);
        scripts.push(out);
    };
    script(&|_| {});
    script(&|out| out.put_bytes(0xaa, 20));
    script(&|out| put_option_reply(out, OPT_LIST, REP_ACK, &[]));
    script(&|out| put_option_reply(out, OPT_GO, REP_ACK, &[]));
    script(&|out| put_option_reply(out, OPT_GO, REP_INFO, &[0]));
    script(&|out| put_option_reply(out, OPT_GO, REP_ERR_UNKNOWN, b"\xff\xfe"));
    script(&|out| put_option_reply(out, OPT_GO, REP_INFO, &vec![9; 20_000]));
    script(&|out| {
        out.put_u64(OPTION_REPLY_MAGIC);
        out.put_slice(&[0, 0, 0, 7, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff]);
    });
    script(&|out| (0..100_001).for_each(|_| put_option_reply(out, OPT_GO, REP_INFO, &[0, 99])));
    let info = |size, flags| InfoReply::Export { size, flags }.bytes();
    script(&|out| {
        put_option_reply(out, OPT_GO, REP_INFO, &info(u64::MAX, 1));
        put_option_reply(out, OPT_GO, REP_ACK, &[]);
    });
    for (min, preferred, max) in [(0, 0, 0), (3, 4096, 1 << 20), (512, 512, 100), (1 << 20, 1, 2)] {
        script(&|out| {
            put_option_reply(out, OPT_GO, REP_INFO, &info(MIB, 1));
            let blocks = InfoReply::BlockSize { min, preferred, max };
            put_option_reply(out, OPT_GO, REP_INFO, &blocks.bytes());
            put_option_reply(out, OPT_GO, REP_ACK, &[]);
        });
    }
    for (number, script) in scripts.iter().enumerate() {
        assert!(play(script).await.is_err(), "script {number}");
    }
    // A good one cut anywhere is no better.
    let good = good_start();
    for length in 0..good.len() {
        assert!(play(&good[..length]).await.is_err(), "cut at {length}");
    }
    play(&good).await.expect("this one is good");
}

fn chunk(flags: u16, kind: u16, payload: &[u8]) -> Vec<u8> {
    // The first request on a connection has this cookie.
    let header = ChunkHeader { flags, kind, cookie: 1 << 32, length: payload.len() as u32 };
    [&header.bytes(), payload].concat()
}

/// A read of 100 bytes at 1000, answered with these bytes and then the end of the stream.
async fn patient_read(answer: Vec<u8>) -> Result<Vec<u8>, ClientError> {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    tokio::spawn(async move {
        let greeting = Greeting { flags: FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES };
        theirs.write_all(&[&greeting.bytes()[..], &good_start()].concat()).await.unwrap();
        let mut heard = vec![0; 64 << 10];
        let mut length = 0;
        while !heard[..length].windows(4).any(|four| four == REQUEST_MAGIC.to_be_bytes()) {
            length += theirs.read(&mut heard[length..]).await.unwrap();
        }
        theirs.write_all(&answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let _ = theirs.read(&mut heard).await;
    });
    let client = Client::over(ours, "", &with_base()).await.unwrap();
    let read = client.read(1000, memory(&[40, 60]));
    let (buffers, result) = timeout(PATIENCE, read).await.expect("an answer");
    result.map(|()| joined(buffers))
}

fn data(offset: u64, length: usize) -> Vec<u8> {
    [&offset.to_be_bytes()[..], &vec![1; length]].concat()
}

#[tokio::test]
async fn answers_that_mean_no_good_end_in_an_error() {
    let hole = [&1000u64.to_be_bytes()[..], &200u32.to_be_bytes()].concat();
    let done = CHUNK_DONE;
    for (number, answer) in [
        vec![],
        vec![0; 40],
        ReplyHeader::simple(0, 1 << 32).to_vec(),
        ReplyHeader::simple(5, 99).to_vec(),
        chunk(done, CHUNK_DATA, &data(1000, 101)),
        chunk(done, CHUNK_DATA, &data(999, 10)),
        chunk(done, CHUNK_DATA, &data(u64::MAX, 10)),
        chunk(done, CHUNK_DATA, &data(1000, 0)),
        chunk(done, CHUNK_DATA, &data(1000, 99)),
        chunk(0, CHUNK_DATA, &data(1000, 100)),
        [chunk(0, CHUNK_DATA, &data(1000, 60)), chunk(done, CHUNK_DATA, &data(1000, 60))].concat(),
        chunk(done, CHUNK_HOLE, &hole),
        chunk(done, CHUNK_HOLE, &hole[..11]),
        chunk(0, CHUNK_NONE, &[]),
        chunk(done, CHUNK_NONE, &[]),
        chunk(done, CHUNK_NONE, &[0]),
        chunk(done, CHUNK_BLOCK_STATUS, &[0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 0]),
        chunk(done, 77, &[0; 10]),
        chunk(done, CHUNK_ERROR, &[0, 0, 0, 5, 0xff, 0xff]),
        chunk(done, CHUNK_ERROR, &[0; 6]),
        chunk(done, CHUNK_ERROR, &[0; 5000]),
        ChunkHeader { flags: 0, kind: CHUNK_DATA, cookie: 1 << 32, length: u32::MAX }
            .bytes()
            .to_vec(),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(patient_read(answer).await.is_err(), "answer {number}");
    }
}

#[tokio::test]
async fn chunks_may_come_in_any_order_with_holes_and_errors() {
    let hole = [&1030u64.to_be_bytes()[..], &50u32.to_be_bytes()].concat();
    let answer = [
        chunk(0, CHUNK_DATA, &data(1080, 20)),
        chunk(0, CHUNK_HOLE, &hole),
        chunk(0, CHUNK_DATA, &data(1000, 30)),
        chunk(CHUNK_DONE, CHUNK_NONE, &[]),
    ];
    let expected = [&[1; 30][..], &[0; 50], &[1; 20]].concat();
    assert_eq!(patient_read(answer.concat()).await.unwrap(), expected);

    let error = [&[0, 0, 0, 28, 0, 4][..], b"full"].concat();
    let offset = [&error[..], &1000u64.to_be_bytes()].concat();
    for failed in [chunk(0, CHUNK_ERROR, &error), chunk(0, CHUNK_ERROR_OFFSET, &offset)] {
        let whole = chunk(CHUNK_DONE, CHUNK_DATA, &data(1000, 100));
        let result = patient_read([failed, whole].concat()).await;
        assert_eq!(result.unwrap_err().to_string(), "ENOSPC: full");
    }
    // An error of a kind not known here is an error all the same.
    let unknown = chunk(CHUNK_DONE, CHUNK_IS_ERROR | 99, &[&error[..], &[7; 9]].concat());
    assert_eq!(patient_read(unknown).await.unwrap_err().to_string(), "ENOSPC: full");
    // Where a bad answer is known for one, the error says so.
    let bad = patient_read(chunk(CHUNK_DONE, CHUNK_DATA, &data(999, 10))).await.unwrap_err();
    assert!(bad.to_string().contains("not asked for"), "{bad}");
}
