//! The server's handshake, byte by byte.

use std::time::Duration;

use crate::support::*;
use undercroft_nbd::wire::*;
use undercroft_nbd::{Server, ServerOptions};

const MIB: u64 = 1 << 20;

fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let queries = queries.iter().map(|query| (*query).to_owned()).collect();
    ContextQuery { name: name.to_owned(), queries }.bytes().to_vec()
}

#[tokio::test]
async fn a_flag_that_was_not_offered_ends_it() {
    let (_, mut raw) = ram(MIB);
    raw.greet(4 | 1).await;
    raw.hung_up().await;
}

#[tokio::test]
async fn unknown_options_are_skipped_and_refused() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    for option in [0, 4, 11, 12, u32::MAX] {
        assert_eq!(raw.ask(option, &[7; 1000]).await, REP_ERR_UNSUP);
    }
    // One too long to look at, and still in step.
    assert_eq!(raw.ask(OPT_INFO, &vec![1; 100_000]).await, REP_ERR_TOO_BIG);
    assert_eq!(raw.ask(OPT_ABORT, &[]).await, REP_ACK);
    raw.hung_up().await;
}

#[tokio::test]
async fn options_without_end_are_cut_off() {
    let (server, mut raw) = ram(MIB);
    raw.greet(3).await;
    for _ in 0..4096 {
        assert_eq!(raw.ask(99, &[]).await, REP_ERR_UNSUP);
    }
    raw.option(99, &[]).await;
    raw.hung_up().await;
    deserted(&server).await;
    // And by length: one option that says it is longer than all may be.
    let mut raw = connect(&server);
    raw.greet(3).await;
    raw.send(&[&OPTION_MAGIC.to_be_bytes()[..], &[0, 0, 0, 9], &[0xff; 4]].concat()).await;
    raw.hung_up().await;
}

#[tokio::test]
async fn nonsense_ends_it() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    raw.send(b"GET / HTTP/1.1\r\n").await;
    raw.hung_up().await;
}

#[tokio::test]
async fn the_list_names_the_exports() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    assert_eq!(raw.ask(OPT_LIST, b"x").await, REP_ERR_INVALID);
    raw.option(OPT_LIST, &[]).await;
    let (reply, data) = raw.option_reply(OPT_LIST).await;
    assert_eq!(reply, REP_SERVER);
    assert_eq!(&data[..7], b"\0\0\0\x03ram");
    assert_eq!(&data[7..], b"memory, gone when the server ends");
    assert_eq!(raw.option_reply(OPT_LIST).await, (REP_ACK, Vec::new()));
}

#[tokio::test]
async fn info_and_go_say_the_same() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    let wanted = [INFO_NAME, INFO_DESCRIPTION, INFO_BLOCK_SIZE, 77];
    let told = raw.info(OPT_INFO, "ram", &wanted).await;
    assert_eq!(told.len(), 4);
    let InfoReply::Export { size, flags } = told[0] else { panic!("{told:?}") };
    assert_eq!(size, MIB);
    let expected = HAS_FLAGS | SEND_FLUSH | SEND_FUA | SEND_TRIM | SEND_WRITE_ZEROES;
    assert_eq!(flags, expected | SEND_FAST_ZERO | CAN_MULTI_CONN | SEND_CACHE);
    assert_eq!(told[1], InfoReply::Name("ram".to_owned()));
    assert_eq!(told[3], InfoReply::BlockSize { min: 1, preferred: 4096, max: 32 << 20 });
    // The empty name is the same export; without a wish there is only what must be.
    assert_eq!(raw.info(OPT_INFO, "", &[]).await, told[..1]);
    assert_eq!(raw.info(OPT_GO, "ram", &wanted).await, told);
    raw.request(request(CMD_FLUSH, 5, 0, 0), &[]).await;
    assert_eq!(raw.simple().await, (0, 5));
}

#[tokio::test]
async fn a_bad_name_or_length_leaves_the_negotiation_open() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    for option in [OPT_INFO, OPT_GO] {
        assert_eq!(raw.ask(option, b"\0\0\0\x04none\0\0").await, REP_ERR_UNKNOWN);
        assert_eq!(raw.ask(option, b"\0\0\0\x04ram\0\0").await, REP_ERR_INVALID);
        assert_eq!(raw.ask(option, b"\xff\xff\xff\xff").await, REP_ERR_INVALID);
        assert_eq!(raw.ask(option, b"\0\0\0\0\0\x02\0\x01").await, REP_ERR_INVALID);
        assert_eq!(raw.ask(option, b"\0\0\0\0\0\0\0").await, REP_ERR_INVALID);
        assert_eq!(raw.ask(option, b"\0\0\0\x02\xff\xfe\0\0").await, REP_ERR_INVALID);
    }
    assert_eq!(raw.ask(OPT_STRUCTURED_REPLY, b"x").await, REP_ERR_INVALID);
    assert_eq!(raw.ask(OPT_STARTTLS, b"").await, REP_ERR_POLICY);
    raw.info(OPT_GO, "", &[]).await;
}

#[tokio::test]
async fn the_old_way_to_open_works_with_and_without_zeroes() {
    for (flags, zeroes) in [(1, 124), (3, 0)] {
        let (server, mut raw) = ram(MIB);
        raw.greet(flags).await;
        raw.option(OPT_EXPORT_NAME, b"ram").await;
        let told = raw.receive(10 + zeroes).await;
        assert_eq!(told[..8], MIB.to_be_bytes());
        assert!(told[10..].iter().all(|byte| *byte == 0));
        raw.request(request(CMD_READ, 8, 0, 1), &[]).await;
        assert_eq!(raw.simple().await, (0, 8));
        assert_eq!(raw.receive(1).await, [0]);

        let mut raw = connect(&server);
        raw.greet(flags).await;
        raw.option(OPT_EXPORT_NAME, b"none").await;
        raw.hung_up().await;
    }
}

#[tokio::test]
async fn contexts_need_chunks_and_the_same_export() {
    let (_, mut raw) = ram(MIB);
    raw.greet(3).await;
    let base = queries("", &["base:allocation"]);
    assert_eq!(raw.ask(OPT_SET_META_CONTEXT, &base).await, REP_ERR_INVALID);
    assert_eq!(raw.ask(OPT_STRUCTURED_REPLY, &[]).await, REP_ACK);
    let unknown = queries("none", &["base:allocation"]);
    assert_eq!(raw.ask(OPT_LIST_META_CONTEXT, &unknown).await, REP_ERR_UNKNOWN);
    let mut long = base.clone();
    long.push(0);
    assert_eq!(raw.ask(OPT_SET_META_CONTEXT, &long).await, REP_ERR_INVALID);
    let absurd = [&[0; 4][..], &[0xff; 4]].concat();
    assert_eq!(raw.ask(OPT_SET_META_CONTEXT, &absurd).await, REP_ERR_INVALID);
    // Unknown namespaces are no error; a wildcard and no query at all only list.
    for (option, asked, found) in [
        (OPT_SET_META_CONTEXT, queries("", &["x-other:y", "base:allocation"]), 1),
        (OPT_SET_META_CONTEXT, queries("", &["base:allocation", "base:allocation"]), 1),
        (OPT_SET_META_CONTEXT, queries("", &["base:"]), 0),
        (OPT_SET_META_CONTEXT, queries("", &[]), 0),
        (OPT_LIST_META_CONTEXT, queries("", &[]), 1),
        (OPT_LIST_META_CONTEXT, queries("", &["base:", "x-other:y"]), 1),
    ] {
        raw.option(option, &asked).await;
        for _ in 0..found {
            let (reply, data) = raw.option_reply(option).await;
            assert_eq!((reply, &data[4..]), (REP_META_CONTEXT, &b"base:allocation"[..]));
            assert_eq!(data[3], u8::from(option == OPT_SET_META_CONTEXT));
        }
        assert_eq!(raw.option_reply(option).await.0, REP_ACK);
    }
}

/// Whether BLOCK_STATUS works after these options and GO for an export.
async fn status_works(server: &Server, options: &[(u32, Vec<u8>)], export: &str) -> bool {
    let mut raw = connect(server);
    raw.greet(3).await;
    for (option, data) in options {
        raw.option(*option, data).await;
        while raw.option_reply(*option).await.0 == REP_META_CONTEXT {}
    }
    raw.info(OPT_GO, export, &[]).await;
    raw.request(request(CMD_BLOCK_STATUS, 1, 0, 4096), &[]).await;
    let (header, _) = raw.chunk().await;
    header.kind == CHUNK_BLOCK_STATUS
}

#[tokio::test]
async fn selected_contexts_count_only_for_the_export_they_were_selected_for() {
    let server = Server::new(std::sync::Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
    let structured = (OPT_STRUCTURED_REPLY, Vec::new());
    let set = (OPT_SET_META_CONTEXT, queries("ram", &["base:allocation"]));
    let failed = (OPT_SET_META_CONTEXT, queries("none", &["base:allocation"]));
    let both = [structured.clone(), set.clone()];
    assert!(status_works(&server, &both, "ram").await);
    assert!(!status_works(&server, &both, "").await);
    assert!(!status_works(&server, std::slice::from_ref(&structured), "ram").await);
    // A SET that fails forgets the one before.
    assert!(!status_works(&server, &[structured, set, failed], "ram").await);
}

#[tokio::test]
async fn sizes_that_must_be_kept_must_be_asked_for() {
    let mut export = Ram::new("ram", MIB);
    export.info.min_block = 512;
    let (_, mut raw) = serve(export, ServerOptions::default());
    raw.greet(3).await;
    let unasked = InfoRequest { name: String::new(), wanted: Vec::new() }.bytes();
    assert_eq!(raw.ask(OPT_GO, &unasked).await, REP_ERR_BLOCK_SIZE_REQD);
    raw.info(OPT_GO, "", &[INFO_BLOCK_SIZE]).await;
    raw.request(request(CMD_READ, 1, 1, 512), &[]).await;
    assert_eq!(raw.simple().await, (22, 1));
    raw.request(request(CMD_TRIM, 2, 512, 100), &[]).await;
    assert_eq!(raw.simple().await, (22, 2));
    raw.request(request(CMD_TRIM, 3, 512, 512), &[]).await;
    assert_eq!(raw.simple().await, (0, 3));
}

#[tokio::test]
async fn an_export_that_contradicts_itself_is_not_served() {
    type Change = fn(&mut undercroft_nbd::ExportInfo);
    let changes: [Change; 7] = [
        |info| info.min_block = 3,
        |info| info.min_block = 128 << 10,
        |info| info.preferred_block = 0,
        |info| info.max_block = 100,
        |info| info.size = u64::MAX,
        |info| (info.min_block, info.size) = (512, 1000),
        |info| (info.min_block, info.max_block) = (4096, 10_000),
    ];
    for change in changes {
        let mut export = Ram::new("ram", MIB);
        change(&mut export.info);
        let (_, mut raw) = serve(export, ServerOptions::default());
        raw.greet(3).await;
        let request = InfoRequest { name: String::new(), wanted: vec![INFO_BLOCK_SIZE] };
        assert_eq!(raw.ask(OPT_GO, &request.bytes()).await, REP_ERR_POLICY);
    }
}

#[tokio::test]
async fn a_client_may_leave_at_any_byte() {
    let mut script = 3u32.to_be_bytes().to_vec();
    let mut out = bytes::BytesMut::new();
    put_option(&mut out, OPT_STRUCTURED_REPLY, &[]);
    put_option(&mut out, OPT_SET_META_CONTEXT, &queries("", &["base:allocation"]));
    put_option(&mut out, OPT_LIST, &[]);
    put_option(
        &mut out,
        OPT_GO,
        &InfoRequest { name: String::new(), wanted: vec![INFO_NAME] }.bytes(),
    );
    script.extend_from_slice(&out);
    script.extend_from_slice(&request(CMD_WRITE, 1, 0, 100).bytes());
    script.extend_from_slice(&[9; 100]);
    let server = Server::new(std::sync::Arc::new(Ram::new("ram", MIB)), ServerOptions::default());
    for length in 0..script.len() {
        // Without reading a byte of what the server says.
        connect(&server).send(&script[..length]).await;
    }
    deserted(&server).await;
}

#[tokio::test]
async fn a_silent_client_holds_nothing_for_long() {
    let handshake_timeout = Duration::from_millis(50);
    let options = ServerOptions { handshake_timeout, ..ServerOptions::default() };
    let (server, mut raw) = serve(Ram::new("ram", MIB), options);
    raw.greet(3).await;
    raw.send(&OPTION_MAGIC.to_be_bytes()).await;
    raw.hung_up().await;
    deserted(&server).await;
}

#[tokio::test]
async fn connections_beyond_the_limit_are_told_so_and_closed() {
    let options = ServerOptions { max_connections: 1, ..ServerOptions::default() };
    let (server, mut first) = serve(Ram::new("ram", MIB), options);
    first.go(false, &[]).await;
    // Again and again: whoever is turned away gives nobody a place.
    for _ in 0..3 {
        let mut raw = connect(&server);
        raw.greet(3).await;
        assert_eq!(raw.ask(OPT_STRUCTURED_REPLY, &[]).await, REP_ERR_POLICY);
        raw.option(OPT_LIST, &[]).await;
        let (error, text) = raw.option_reply(OPT_LIST).await;
        assert_eq!(error, REP_ERR_POLICY);
        assert_eq!(text, b"all 1 connections that this server allows are in use");
        assert_eq!(server.guests(), 1);
    }
    drop(first);
    deserted(&server).await;
    connect(&server).go(false, &[]).await;
}
