//! What clients can make a server hold: with the limits as they are and a cache of 64 MiB, a
//! process stays below 400 MiB, whatever they do. Each test is one attack.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use undercroft_hints::{Abilities, BlockRun, Grant, Hint, Query};
use undercroft_nbd::wire::*;

use super::support::{PATIENCE, Place, Server, read};

/// Most memory that a process may have held, in bytes.
const MOST: u64 = 400 << 20;

/// How long an attacker goes on that is not served.
const STUCK: Duration = Duration::from_millis(300);

/// A client in charge of every byte.
struct Raw {
    stream: UnixStream,
    grant: Option<Grant>,
}

impl Raw {
    /// Opens the volume `v`, with a context of ours or without.
    fn open(place: &Place, cooperates: bool) -> Raw {
        let stream = UnixStream::connect(place.path("socket")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(STUCK)).unwrap();
        let mut raw = Raw { stream, grant: None };
        raw.bytes(18);
        raw.stream.write_all(&3_u32.to_be_bytes()).unwrap();
        if cooperates {
            raw.option(OPT_STRUCTURED_REPLY, &[]);
            let want = Abilities { promote: true, ..Abilities::default() };
            let queries = vec![Query { client: None, want }.to_string()];
            let query = ContextQuery { name: "v".to_owned(), queries };
            let told = raw.option(OPT_SET_META_CONTEXT, &query.bytes());
            raw.grant =
                told.iter().find_map(|one| Grant::parse(std::str::from_utf8(&one[4..]).ok()?));
        }
        let go = InfoRequest { name: "v".to_owned(), wanted: vec![INFO_BLOCK_SIZE] };
        raw.option(OPT_GO, &go.bytes());
        raw
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Asks, and gives what is told until it is acknowledged.
    fn option(&mut self, option: u32, data: &[u8]) -> Vec<Vec<u8>> {
        let mut message = bytes::BytesMut::new();
        put_option(&mut message, option, data);
        self.stream.write_all(&message).unwrap();
        let mut told = Vec::new();
        loop {
            let head = self.bytes(20);
            let word = |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().unwrap());
            let data = self.bytes(word(16) as usize);
            match word(12) {
                REP_ACK => return told,
                error if error >> 31 == 1 => panic!("{}", String::from_utf8_lossy(&data)),
                _ => told.push(data),
            }
        }
    }

    /// Sends, and takes no answer: whether all of it went.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }
}

fn request(command: u16, offset: u64, length: u64) -> Vec<u8> {
    let payload_length = if command == CMD_WRITE { length } else { 0 };
    RequestHeader { flags: 0, command, cookie: 1, offset, length, payload_length }.bytes().to_vec()
}

/// The most memory that the process ever held.
fn peak(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    1024 * line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
}

/// A server that has been attacked serves others, and holds no more than it may.
async fn survived(server: Server, attack: &str) {
    let peak = peak(&server);
    println!("{attack}: {} MiB", peak >> 20);
    assert!(peak < MOST, "{attack}: {} MiB", peak >> 20);
    let other = server.connect("w").await;
    let answer = tokio::time::timeout(PATIENCE, read(&other, 0, 4096));
    answer.await.expect("others are served").unwrap();
    server.kill();
}

const OTHER: &str = "--cache 64MiB --volume w=mem:,size=1MiB,cache=1MiB";

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_byte_whose_answers_are_not_taken() {
    let place = Place::new();
    let server = place.serve(&format!("--volume v=mem:,size=4GiB {OTHER}"));
    let mut open = Vec::new();
    for client in 0..32_u64 {
        let mut raw = Raw::open(&place, false);
        let reads = |n: u64| request(CMD_READ, (client * 40_000 + n) * 4096 % (4 << 30), 1);
        let many: Vec<u8> = (0..40_000).flat_map(reads).collect();
        raw.send(&many);
        open.push(raw);
    }
    survived(server, "reads of a byte").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_the_status_whose_answers_are_not_taken() {
    let place = Place::new();
    let server = place.serve(&format!("--volume v=mem:,size=64MiB {OTHER}"));
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut raw = Raw::open(&place, true);
        let base = raw.grant.unwrap().window_base;
        raw.send(&request(CMD_READ, base + 1, 1).repeat(7000));
        open.push(raw);
    }
    survived(server, "reads of the status").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_fetched_for_nobody_from_a_slow_store() {
    let place = Place::new();
    let server = place.serve(&format!("--volume v=delay(10s):mem:,size=8GiB,read-only {OTHER}"));
    let mut raw = Raw::open(&place, true);
    let base = raw.grant.unwrap().window_base;
    let cache = |n: u64| request(CMD_CACHE, (n << 25) % (8 << 30), 32 << 20);
    raw.send(&(0..1000).flat_map(cache).collect::<Vec<_>>());
    for n in 0..200_u64 {
        let runs = vec![BlockRun::new(n * 10_000, 65_536).unwrap()];
        let mut message = bytes::BytesMut::new();
        Hint::Promote(runs).put(&mut message);
        let mut write = request(CMD_WRITE, base, message.len() as u64);
        write.extend_from_slice(&message);
        raw.send(&write);
    }
    std::thread::sleep(Duration::from_secs(1));
    survived(server, "fetched for nobody").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_connections_that_have_gone() {
    let place = Place::new();
    let server = place.serve(&format!("--volume v=delay(30s):mem:,size=4GiB {OTHER}"));
    for round in 0..40_u64 {
        let mut raw = Raw::open(&place, false);
        for n in 0..32 {
            let mut write = request(CMD_WRITE, (round * 32 + n) << 20, 1 << 20);
            write.resize(write.len() + (1 << 20), 7);
            if !raw.send(&write) {
                break;
            }
        }
    }
    survived(server, "writes of connections that have gone").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_connections_that_send_what_they_can() {
    let place = Place::new();
    let server = place.serve(&format!("--volume v=delay(30s):mem:,size=4GiB {OTHER}"));
    let mut open = Vec::new();
    for client in 0..400_u64 {
        let mut raw = Raw::open(&place, false);
        raw.stream.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        let mut bytes = request(CMD_WRITE, client << 20, 1 << 20);
        bytes.resize(300 << 10, 7);
        raw.send(&bytes);
        let mut raw2 = Raw::open(&place, false);
        raw2.stream.set_write_timeout(Some(Duration::from_millis(5))).unwrap();
        raw2.send(&request(CMD_READ, client << 20, 1).repeat(8000));
        open.push((raw, raw2));
    }
    survived(server, "many connections").await;
}
