//! The server's transmission phase, byte by byte.

use std::sync::Arc;
use std::time::Duration;

use crate::support::*;
use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use undercroft_nbd::wire::*;
use undercroft_nbd::{Answer, Command, Extent, Failure, Request, Server, ServerOptions};

const MIB: u64 = 1 << 20;
const EPERM: u32 = 1;
const EIO: u32 = 5;
const EINVAL: u32 = 22;
const ENOSPC: u32 = 28;
const ENOTSUP: u32 = 95;
const ESHUTDOWN: u32 = 108;

/// Sends a request with flags; the error of its simple reply.
async fn outcome(raw: &mut Raw, flags: u16, command: u16, offset: u64, length: u64) -> u32 {
    let header = RequestHeader { flags, ..request(command, 1, offset, length) };
    raw.request(header, &vec![1; header.payload_length as usize]).await;
    let (error, cookie) = raw.simple().await;
    assert_eq!(cookie, 1);
    if error == 0 && command == CMD_READ {
        raw.receive(length as usize).await;
    }
    error
}

#[tokio::test]
async fn each_misfit_has_its_error() {
    let (_, mut raw) = ram(MIB);
    raw.go(false, &[]).await;
    let fua = CMD_FLAG_FUA;
    for (flags, command, offset, length, error) in [
        (0, CMD_READ, MIB - 1, 1, 0),
        (0, CMD_READ, MIB - 1, 2, EINVAL),
        (0, CMD_READ, MIB, 1, EINVAL),
        (0, CMD_READ, u64::MAX, 2, EINVAL),
        (0, CMD_READ, u64::MAX - 1, 1, EINVAL),
        (0, CMD_READ, 0, u64::from(u32::MAX), EINVAL),
        (0, CMD_READ, 0, 0, EINVAL),
        (CMD_FLAG_DF, CMD_READ, 0, 1, EINVAL),
        (fua, CMD_READ, 0, 1, 0),
        (fua, CMD_WRITE, MIB - 100, 100, 0),
        (0, CMD_WRITE, MIB - 100, 101, ENOSPC),
        (0, CMD_WRITE, u64::MAX, 50, ENOSPC),
        (0, CMD_WRITE, 0, 0, EINVAL),
        (CMD_FLAG_NO_HOLE, CMD_WRITE, 0, 5000, EINVAL),
        (0, CMD_WRITE, 0, (32 << 20) + 1, EINVAL),
        (fua, CMD_FLUSH, 0, 0, 0),
        (0, CMD_FLUSH, 1, 0, EINVAL),
        (0, CMD_TRIM, 0, MIB, 0),
        (0, CMD_TRIM, 1, MIB, EINVAL),
        (fua | CMD_FLAG_NO_HOLE, CMD_WRITE_ZEROES, 0, MIB, 0),
        (CMD_FLAG_FAST_ZERO, CMD_WRITE_ZEROES, 0, 1, 0),
        (CMD_FLAG_FAST_ZERO | CMD_FLAG_NO_HOLE, CMD_WRITE_ZEROES, 0, 1, ENOTSUP),
        (CMD_FLAG_DF, CMD_WRITE_ZEROES, 0, 1, EINVAL),
        (0, CMD_WRITE_ZEROES, MIB, 1, ENOSPC),
        (0, CMD_CACHE, 0, MIB, 0),
        (CMD_FLAG_REQ_ONE, CMD_CACHE, 0, MIB, EINVAL),
        (1 << 15, CMD_CACHE, 0, MIB, EINVAL),
        (0, CMD_BLOCK_STATUS, 0, MIB, EINVAL),
        (0, 8, 0, 0, EINVAL),
        (0, u16::MAX, 0, 0, EINVAL),
    ] {
        let found = outcome(&mut raw, flags, command, offset, length).await;
        assert_eq!(found, error, "flags {flags} command {command} at {offset}, {length} bytes");
    }
}

#[tokio::test]
async fn what_was_not_offered_is_refused() {
    let mut export = Ram::new("ram", MIB);
    export.info.flags = undercroft_nbd::Flags { write_zeroes: true, ..Default::default() };
    let (_, mut raw) = serve(export.clone(), ServerOptions::default());
    raw.go(false, &[]).await;
    for (flags, command) in [(0, CMD_TRIM), (0, CMD_CACHE), (CMD_FLAG_FAST_ZERO, CMD_WRITE_ZEROES)]
    {
        assert_eq!(outcome(&mut raw, flags, command, 0, 512).await, EINVAL);
    }
    export.info.flags.read_only = true;
    let (_, mut raw) = serve(export, ServerOptions::default());
    raw.go(false, &[]).await;
    for command in [CMD_WRITE, CMD_TRIM, CMD_WRITE_ZEROES] {
        assert_eq!(outcome(&mut raw, 0, command, 0, 512).await, EPERM);
    }
    assert_eq!(outcome(&mut raw, 0, CMD_READ, 0, 512).await, 0);
}

/// Data in which each byte says where it is.
fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|at| (at.wrapping_add(seed).wrapping_mul(31) >> 3) as u8).collect()
}

#[tokio::test]
async fn data_of_any_length_arrives_however_it_is_cut() {
    let (_, mut raw) = ram(4 * MIB);
    raw.go(false, &[]).await;
    for length in [1, 4095, 4096, 32 << 10, (32 << 10) + 1, 130_000, 1 << 20, 3 << 20] {
        for cut in [usize::MAX, 60_000, 5000] {
            let data = pattern(length, cut);
            let header = request(CMD_WRITE, 2, 77, length as u64);
            let message = [&header.bytes(), &data[..], &request(CMD_FLUSH, 3, 0, 0).bytes()];
            for part in message.concat().chunks(cut) {
                raw.send(part).await;
                tokio::task::yield_now().await;
            }
            assert_eq!(raw.simple().await, (0, 2));
            assert_eq!(raw.simple().await, (0, 3));
            raw.request(request(CMD_READ, 4, 77, length as u64), &[]).await;
            assert_eq!(raw.simple().await, (0, 4));
            assert!(raw.receive(length).await == data, "{length} bytes in parts of {cut}");
        }
    }
    // Byte by byte.
    let message = [&request(CMD_WRITE, 5, 0, 40).bytes()[..], &pattern(40, 1)].concat();
    for byte in message {
        raw.send(&[byte]).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.simple().await, (0, 5));
}

#[tokio::test]
async fn half_a_payload_changes_nothing() {
    let (server, mut raw) = ram(4 * MIB);
    raw.go(false, &[]).await;
    raw.request(request(CMD_WRITE, 1, 0, MIB), &vec![1; MIB as usize]).await;
    assert_eq!(raw.simple().await, (0, 1));
    for sent in [0, 5, 4096, 500_000] {
        let mut other = connect(&server);
        other.go(false, &[]).await;
        other.request(request(CMD_WRITE, 1, 0, MIB), &vec![2; sent]).await;
        drop(other);
    }
    raw.request(request(CMD_READ, 2, 0, MIB), &[]).await;
    assert_eq!(raw.simple().await, (0, 2));
    assert!(raw.receive(MIB as usize).await.iter().all(|byte| *byte == 1));
    drop(raw);
    deserted(&server).await;
}

/// A server whose requests the test answers, and a client of it.
async fn held(structured: bool, contexts: &[&str]) -> (Server, Raw, UnboundedReceiver<Request>) {
    let (export, requests) = Held::new(MIB);
    let (server, mut raw) = serve(export, ServerOptions::default());
    raw.go(structured, contexts).await;
    (server, raw, requests)
}

async fn next(requests: &mut UnboundedReceiver<Request>) -> Request {
    timeout(PATIENCE, requests.recv()).await.expect("no request").expect("the session is open")
}

#[tokio::test]
async fn answers_may_come_from_any_thread_in_any_order() {
    let (_, mut raw, mut requests) = held(false, &[]).await;
    for cookie in 0..100 {
        raw.request(request(CMD_READ, cookie, cookie * 10, 10), &[]).await;
    }
    let mut open = Vec::new();
    for _ in 0..100 {
        open.push(next(&mut requests).await);
    }
    std::thread::spawn(move || {
        for request in open.into_iter().rev() {
            assert_eq!(request.command, Command::Read { one_chunk: false });
            let fill = (request.offset / 10) as u8;
            request.reply.data(vec![Bytes::from(vec![fill; 4]), Bytes::from(vec![fill; 6])]);
        }
    });
    for cookie in (0..100).rev() {
        assert_eq!(raw.simple().await, (0, cookie));
        assert_eq!(raw.receive(10).await, vec![cookie as u8; 10]);
    }
}

#[tokio::test]
async fn answers_that_do_not_fit_become_eio() {
    let (_, mut raw, mut requests) = held(false, &[]).await;
    let answers: [fn(Request); 5] = [
        |request| drop(request),
        |request| request.reply.done(),
        |request| request.reply.data(vec![Bytes::from_static(&[0; 9])]),
        |request| request.reply.data(Vec::new()),
        |request| request.reply.extents(Vec::new()),
    ];
    for answer in answers {
        raw.request(request(CMD_READ, 1, 0, 10), &[]).await;
        answer(next(&mut requests).await);
        assert_eq!(raw.simple().await, (EIO, 1));
    }
    raw.request(request(CMD_FLUSH, 2, 0, 0), &[]).await;
    next(&mut requests).await.reply.data(vec![Bytes::from_static(b"x")]);
    assert_eq!(raw.simple().await, (EIO, 2));
    raw.request(request(CMD_FLUSH, 3, 0, 0), &[]).await;
    next(&mut requests).await.reply.fail(Failure::NoMemory, "full".to_owned());
    assert_eq!(raw.simple().await, (12, 3));
}

#[tokio::test]
async fn chunks_carry_data_and_texts() {
    let (_, mut raw, mut requests) = held(true, &[]).await;
    let flags = CMD_FLAG_DF | CMD_FLAG_FUA;
    raw.request(RequestHeader { flags, ..request(CMD_READ, 1, 300, 5) }, &[]).await;
    let asked = next(&mut requests).await;
    assert_eq!(asked.command, Command::Read { one_chunk: true });
    assert!(asked.durable);
    asked.reply.data(vec![Bytes::from_static(b"hel"), Bytes::from_static(b"lo")]);
    let (header, payload) = raw.chunk().await;
    assert_eq!((header.flags, header.kind, header.cookie), (CHUNK_DONE, CHUNK_DATA, 1));
    assert_eq!(payload, [&300u64.to_be_bytes()[..], b"hello"].concat());

    // A text too long is cut between two letters.
    raw.request(request(CMD_READ, 2, 0, 5), &[]).await;
    next(&mut requests).await.reply.fail(Failure::Io, "\u{e9}".repeat(5000));
    let (header, payload) = raw.chunk().await;
    assert_eq!((header.flags, header.kind), (CHUNK_DONE, CHUNK_ERROR));
    let (error, text) = parse_error_chunk(header.kind, &payload).unwrap();
    assert_eq!((error, text), (EIO, "\u{e9}".repeat(512)));
    raw.request(request(CMD_WRITE, 3, MIB, 5), b"hello").await;
    let (header, payload) = raw.chunk().await;
    let (error, text) = parse_error_chunk(header.kind, &payload).unwrap();
    assert_eq!((error, text.contains("end of the export")), (ENOSPC, true));
}

#[tokio::test]
async fn block_status_has_one_chunk_a_context_in_order() {
    let (_, mut raw, mut requests) = held(true, &["test:b", "test:a"]).await;
    let extent = |length, status| Extent { length, status };
    raw.request(request(CMD_BLOCK_STATUS, 1, MIB - 8192, 4096), &[]).await;
    let asked = next(&mut requests).await;
    asked.reply.extents(vec![
        (7, vec![extent(100, 1), extent(1 << 40, 2)]),
        (9, vec![extent(4096, 3), extent(4096, 4)]),
        (5, vec![]),
    ]);
    let (header, payload) = raw.chunk().await;
    assert_eq!((header.flags, header.kind), (0, CHUNK_BLOCK_STATUS));
    // What begins after the request is left out; what goes beyond the export is cut.
    assert_eq!(parse_extents(&payload).unwrap(), (1, vec![extent(4096, 3)]));
    let (header, payload) = raw.chunk().await;
    assert_eq!((header.flags, header.kind), (CHUNK_DONE, CHUNK_BLOCK_STATUS));
    assert_eq!(parse_extents(&payload).unwrap(), (2, vec![extent(100, 1), extent(8092, 2)]));

    let flags = CMD_FLAG_REQ_ONE;
    raw.request(RequestHeader { flags, ..request(CMD_BLOCK_STATUS, 2, 0, 10) }, &[]).await;
    let asked = next(&mut requests).await;
    assert_eq!(asked.command, Command::BlockStatus { one_extent: true });
    asked.reply.extents(vec![(7, vec![extent(5, 1), extent(5, 2)]), (9, vec![extent(11, 2)])]);
    assert_eq!(parse_extents(&raw.chunk().await.1).unwrap(), (1, vec![extent(10, 2)]));
    assert_eq!(parse_extents(&raw.chunk().await.1).unwrap(), (2, vec![extent(5, 1)]));

    for wrong in [
        vec![(7, vec![extent(5, 1)])],
        vec![(7, vec![extent(5, 1)]), (9, vec![])],
        vec![(7, vec![extent(5, 1)]), (9, vec![extent(0, 1)])],
    ] {
        raw.request(request(CMD_BLOCK_STATUS, 3, 0, 10), &[]).await;
        next(&mut requests).await.reply.extents(wrong);
        let (header, payload) = raw.chunk().await;
        assert_eq!(parse_error_chunk(header.kind, &payload).unwrap().0, EIO);
    }
}

#[tokio::test]
async fn good_bye_finishes_what_is_in_flight() {
    let (server, mut raw, mut requests) = held(false, &[]).await;
    raw.request(request(CMD_FLUSH, 1, 0, 0), &[]).await;
    raw.request(request(CMD_DISC, 2, 0, 0), &[]).await;
    // Nobody hears what comes after good-bye.
    raw.request(request(CMD_FLUSH, 3, 0, 0), &[]).await;
    let first = next(&mut requests).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(requests.try_recv().is_err());
    first.reply.done();
    assert_eq!(raw.simple().await, (0, 1));
    raw.hung_up().await;
    deserted(&server).await;
}

#[tokio::test]
async fn a_client_that_vanishes_with_requests_in_flight_leaves_nothing() {
    let (export, mut requests) = Held::new(MIB);
    let (max_bytes, max_export_bytes) = (64 * MIB, 64 * MIB);
    let options = ServerOptions { max_bytes, max_export_bytes, ..Default::default() };
    let (server, mut raw) = serve(export, options);
    raw.go(true, &[]).await;
    for cookie in 0..500 {
        raw.request(request(CMD_READ, cookie, 0, 100_000), &[]).await;
    }
    let mut open = Vec::new();
    for _ in 0..500 {
        open.push(next(&mut requests).await);
    }
    drop(raw);
    // The answers go into the void, some before the server knows and some after.
    for request in open {
        request.reply.data(vec![Bytes::from(vec![0; 100_000])]);
        tokio::task::yield_now().await;
    }
    deserted(&server).await;
    connect(&server).go(true, &[]).await;
}

#[tokio::test]
async fn no_more_is_begun_than_the_limits_allow() {
    let (export, mut requests) = Held::new(MIB);
    let options = ServerOptions { max_requests: 10, max_bytes: 50_000, ..Default::default() };
    let (_, mut raw) = serve(export, options);
    raw.go(false, &[]).await;
    for cookie in 0..100 {
        raw.request(request(CMD_FLUSH, cookie, 0, 0), &[]).await;
    }
    for cookie in 100..150 {
        raw.request(request(CMD_READ, cookie, 0, 10_000), &[]).await;
    }
    let mut open = std::collections::VecDeque::new();
    for _ in 0..150 {
        while let Ok(Some(request)) = timeout(Duration::from_millis(5), requests.recv()).await {
            open.push_back(request);
        }
        let flushes = open.iter().filter(|r| r.command == Command::Flush).count();
        let reads = open.len() - flushes;
        assert!(flushes <= 10 && reads <= 5, "{flushes} flushes, {reads} reads");
        let request = open.pop_front().expect("something is always in flight");
        match request.command {
            Command::Flush => request.reply.done(),
            _ => request.reply.data(vec![Bytes::from_static(&[0; 10_000])]),
        }
        // The answer is taken in before the next look, so that its place is free again.
        let (error, cookie) = raw.simple().await;
        assert_eq!(error, 0);
        raw.receive(if cookie < 100 { 0 } else { 10_000 }).await;
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_being_served() {
    let options = ServerOptions { max_bytes: MIB, ..Default::default() };
    let (server, mut raw) = serve(Ram::new("ram", MIB), options);
    raw.go(false, &[]).await;
    let asking = request(CMD_READ, 1, 0, 64 << 10).bytes().repeat(100);
    let mut sent = 0;
    while timeout(Duration::from_millis(300), raw.send(&asking)).await.is_ok() {
        sent += 100u64;
        assert!(sent < 1_000_000, "the server takes requests without end");
    }
    drop(raw);
    deserted(&server).await;
}

#[tokio::test]
async fn shutdown_refuses_what_is_new_and_finishes_the_rest() {
    let (server, mut raw, mut requests) = held(false, &[]).await;
    let mut negotiating = connect(&server);
    negotiating.greet(3).await;
    assert_eq!(negotiating.ask(99, &[]).await, REP_ERR_UNSUP);
    raw.request(request(CMD_FLUSH, 1, 0, 0), &[]).await;
    let open = next(&mut requests).await;
    let stopping = tokio::spawn({
        let server = server.clone();
        async move { server.shutdown(PATIENCE).await }
    });
    // The order of the two tasks is open; at some time the refusals begin.
    let mut cookie = 2;
    loop {
        raw.request(request(CMD_FLUSH, cookie, 0, 0), &[]).await;
        if let Ok(early) = timeout(Duration::from_millis(50), requests.recv()).await {
            early.expect("the session is open").reply.done();
            assert_eq!(raw.simple().await, (0, cookie));
        } else {
            assert_eq!(raw.simple().await, (ESHUTDOWN, cookie));
            break;
        }
        cookie += 1;
    }
    assert_eq!(negotiating.ask(OPT_LIST, &[]).await, REP_ERR_SHUTDOWN);
    negotiating.hung_up().await;
    open.reply.done();
    assert_eq!(raw.simple().await, (0, 1));
    raw.hung_up().await;
    assert_eq!(stopping.await.unwrap(), 0);
}

#[tokio::test]
async fn shutdown_waits_for_no_idle_client() {
    let (server, mut raw) = ram(MIB);
    raw.go(false, &[]).await;
    let mut negotiating = connect(&server);
    negotiating.greet(3).await;
    let stopped = timeout(PATIENCE, server.shutdown(10 * PATIENCE)).await;
    assert_eq!(stopped.expect("nothing is in flight"), 0);
    raw.hung_up().await;
    negotiating.hung_up().await;
}

#[tokio::test]
async fn shutdown_cuts_what_does_not_end() {
    let (server, mut raw, mut requests) = held(false, &[]).await;
    raw.request(request(CMD_FLUSH, 1, 0, 0), &[]).await;
    let open = next(&mut requests).await;
    let mut silent = connect(&server);
    silent.greet(3).await;
    assert_eq!(server.shutdown(Duration::from_millis(20)).await, 2);
    raw.hung_up().await;
    open.reply.done();
}

#[tokio::test]
async fn garbage_in_place_of_a_request_ends_it() {
    let (server, mut raw) = ram(MIB);
    raw.go(false, &[]).await;
    raw.send(&[0xee; 28]).await;
    raw.hung_up().await;
    deserted(&server).await;
}

#[tokio::test]
async fn a_detached_handle_shows_its_answer() {
    let (reply, answer) = undercroft_nbd::Reply::detached();
    reply.done();
    assert_eq!(answer.await, Answer::Done);
    let (reply, mut answer) = undercroft_nbd::Reply::detached();
    assert_eq!(answer.now(), None);
    drop(reply);
    assert!(matches!(answer.now(), Some(Answer::Failed(Failure::Io, _))));
    let (reply, answer) = undercroft_nbd::Reply::detached();
    let thread = std::thread::spawn(move || answer.wait());
    reply.data(vec![Bytes::from_static(b"x")]);
    assert_eq!(thread.join().unwrap(), Answer::Data(Bytes::from_static(b"x").into()));
}

#[tokio::test]
async fn unix_sockets_of_dead_servers_are_replaced() {
    let path = std::env::temp_dir().join(format!("undercroft-nbd-{}.sock", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listener = undercroft_nbd::Listener::unix(&path).expect("nobody listens there");
    let error = undercroft_nbd::Listener::unix(&path).unwrap_err().to_string();
    assert!(error.contains("another server"), "{error}");
    let server = Server::new(Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
    let task = listen(&server, listener);
    let mut raw = Raw { stream: tokio::net::UnixStream::connect(&path).await.unwrap() };
    raw.go(false, &[]).await;
    assert_eq!(server.shutdown(PATIENCE).await, 0);
    task.await.unwrap();
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    let error = undercroft_nbd::Listener::unix(&path).unwrap_err().to_string();
    assert!(error.contains("no socket"), "{error}");
    std::fs::remove_file(&path).unwrap();
}
