//! What clients may pin, and how long one may keep the others waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;
use undercroft_nbd::wire::*;
use undercroft_nbd::{
    Context, Export, ExportInfo, Exports, Peer, Refusal, Request, Server, ServerOptions, Session,
};

use crate::support::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// The requests that are begun within a moment.
async fn begun(requests: &mut UnboundedReceiver<Request>) -> Vec<Request> {
    let mut all = Vec::new();
    while let Ok(Some(request)) = timeout(Duration::from_millis(200), requests.recv()).await {
        all.push(request);
    }
    all
}

/// A byte of a block pins the block, and any request what is remembered of it.
#[tokio::test]
async fn a_read_is_charged_the_blocks_that_it_touches() {
    let (export, mut requests) = Held::new(MIB);
    let options = ServerOptions { max_bytes: 64 * KIB, ..Default::default() };
    let (_server, mut raw) = serve(export, options);
    raw.go(false, &[]).await;
    raw.send(&request(CMD_READ, 1, 100, 1).bytes().repeat(100)).await;
    assert_eq!(begun(&mut requests).await.len(), 8, "of 8 KiB each");
}

/// What is answered stays charged until the client has taken it.
#[tokio::test]
async fn answers_that_are_not_taken_are_charged() {
    let options = ServerOptions { max_bytes: MIB, ..Default::default() };
    let (_server, mut raw) = serve(Ram::new("ram", MIB), options);
    raw.go(false, &[]).await;
    let asking = request(CMD_READ, 1, 0, 1).bytes().repeat(10_000);
    let mut sent = 0;
    while timeout(Duration::from_millis(500), raw.send(&asking)).await.is_ok() {
        sent += 1;
        assert!(sent < 10_000, "the server takes requests without end");
    }
}

/// What a connection left behind is charged to its export until it ends.
#[tokio::test]
async fn what_outlives_its_connection_is_charged_until_it_ends() {
    let (export, mut requests) = Held::new(MIB);
    let options = ServerOptions { max_export_bytes: 64 * KIB, ..Default::default() };
    let (server, mut gone) = serve(export, options);
    gone.go(false, &[]).await;
    for cookie in 0..8 {
        gone.request(request(CMD_WRITE, cookie, 0, 4 * KIB), &[1; 4096]).await;
    }
    let mut left = begun(&mut requests).await;
    assert_eq!(left.len(), 8);
    drop(gone);
    let mut raw = connect(&server);
    raw.go(false, &[]).await;
    raw.request(request(CMD_READ, 9, 0, 1), &[]).await;
    assert!(begun(&mut requests).await.is_empty(), "there is no room yet");
    left.truncate(7);
    let late = begun(&mut requests).await;
    assert_eq!(late.len(), 1);
    drop((late, left));
    assert_eq!(raw.simple().await, (5, 9), "EIO: it was dropped");
}

/// A connection that ends amid the data of a write leaves nothing behind.
#[tokio::test]
async fn a_write_that_never_arrived_is_charged_no_longer() {
    let options = ServerOptions { max_export_bytes: 2 * MIB, ..Default::default() };
    let (server, mut raw) = serve(Ram::new("ram", 4 * MIB), options);
    for _ in 0..3 {
        raw.go(false, &[]).await;
        raw.send(&request(CMD_WRITE, 1, 0, MIB).bytes()).await;
        raw.send(&[7; 4096]).await;
        raw = connect(&server);
    }
    raw.go(false, &[]).await;
    raw.request(request(CMD_WRITE, 2, 0, MIB), &vec![7; MIB as usize]).await;
    let answer = timeout(Duration::from_secs(10), raw.simple()).await;
    assert_eq!(answer.expect("there is room again"), (0, 2));
}

/// Two connections that have sent half of their data do not wait for each other.
#[tokio::test]
async fn data_that_has_come_in_part_blocks_nobody_for_ever() {
    let options = ServerOptions { max_export_bytes: 2 * MIB, ..Default::default() };
    let (server, mut one) = serve(Ram::new("ram", 4 * MIB), options);
    let mut two = connect(&server);
    let data = vec![7; MIB as usize];
    let write = |cookie| request(CMD_WRITE, cookie, 0, MIB).bytes();
    for raw in [&mut one, &mut two] {
        raw.go(false, &[]).await;
        raw.send(&write(1)).await;
        // What does not fit the socket is for the rest.
        raw.send(&data[..64 << 10]).await;
    }
    for raw in [one, two] {
        let mut raw = raw;
        raw.send(&data[64 << 10..]).await;
        assert_eq!(raw.simple().await, (0, 1));
    }
}

/// A client that takes nothing is cut when others want the memory, and not before.
#[tokio::test]
async fn a_stalled_client_is_cut_only_when_others_wait() {
    let options = ServerOptions {
        max_bytes: 8 * MIB,
        max_export_bytes: MIB,
        stall: Duration::from_millis(500),
        ..Default::default()
    };
    let (server, mut stalled) = serve(Ram::new("ram", MIB), options);
    stalled.go(false, &[]).await;
    for cookie in 0..2 {
        stalled.request(request(CMD_READ, cookie, 0, MIB - 8 * KIB), &[]).await;
    }
    // It waits for room itself, which is nobody's matter.
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(server.guests(), 1);
    let mut other = connect(&server);
    other.go(false, &[]).await;
    other.request(request(CMD_READ, 1, 0, MIB / 2), &[]).await;
    assert_eq!(other.simple().await, (0, 1));
    other.receive(MIB as usize / 2).await;
    assert_eq!(server.guests(), 1, "the stalled one is gone");
}

/// What a session has no room for stays with the client, which is noticed when it leaves.
#[tokio::test]
async fn a_client_is_not_read_without_room_until_it_leaves() {
    let (export, mut requests) = Held::new(MIB);
    let (room, is_left) = (Arc::clone(&export.room), Arc::clone(&export.is_left));
    let (_server, mut raw) = serve(export, ServerOptions::default());
    raw.go(false, &[]).await;
    room.store(2, Ordering::SeqCst);
    raw.send(&request(CMD_READ, 1, 0, 512).bytes()).await;
    let first = requests.recv().await.unwrap();
    room.store(0, Ordering::SeqCst);
    raw.send(&request(CMD_READ, 2, 0, 512).bytes().repeat(3)).await;
    assert_eq!(begun(&mut requests).await.len(), 0);
    // An answer is an occasion to look again.
    room.store(2, Ordering::SeqCst);
    drop(first);
    assert_eq!(raw.simple().await, (5, 1));
    let rest = begun(&mut requests).await;
    assert_eq!(rest.len(), 3);
    room.store(0, Ordering::SeqCst);
    drop(raw);
    let left = async {
        while !is_left.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, left).await.expect("the connection looks whether its client is there");
}

/// A client that takes a little of a large answer now and then holds its memory for others' time.
#[tokio::test]
async fn a_client_that_takes_little_of_much_is_cut_when_others_wait() {
    let options = ServerOptions {
        max_bytes: 32 * MIB,
        max_export_bytes: 32 * MIB,
        stall: Duration::from_millis(300),
        ..Default::default()
    };
    let (server, mut slow) = serve(Ram::new("ram", 32 * MIB), options);
    slow.go(false, &[]).await;
    slow.request(request(CMD_READ, 1, 0, 30 * MIB), &[]).await;
    assert_eq!(slow.simple().await, (0, 1));
    // More than what makes a client a stalled one, whatever it holds.
    let takes = tokio::spawn(async move {
        loop {
            slow.receive(200 * KIB as usize).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut other = connect(&server);
    other.go(false, &[]).await;
    other.request(request(CMD_READ, 1, 0, 8 * MIB), &[]).await;
    let answer = tokio::time::timeout(Duration::from_secs(5), other.simple()).await;
    assert_eq!(answer.expect("a turn"), (0, 1));
    takes.abort();
}

/// Whoever does not open an export takes no place of those who do.
#[tokio::test]
async fn connections_that_negotiate_have_places_of_their_own() {
    let options = ServerOptions { max_connections: 1, max_negotiating: 3, ..Default::default() };
    let (server, mut oldest) = serve(Ram::new("ram", MIB), options);
    oldest.greet(3).await;
    let mut others: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    for raw in &mut others {
        raw.greet(3).await;
    }
    let mut last = connect(&server);
    last.go(false, &[]).await;
    oldest.hung_up().await;
    last.request(request(CMD_FLUSH, 1, 0, 0), &[]).await;
    assert_eq!(last.simple().await, (0, 1));
    for raw in &mut others {
        assert_eq!(raw.ask(OPT_STRUCTURED_REPLY, &[]).await, REP_ERR_POLICY, "there is no place");
    }
}

/// Exports whose requests of one kind are expensive; each counts what the others did meanwhile.
#[derive(Clone, Default)]
struct Costly {
    /// Steps done for the expensive requests.
    steps: Arc<AtomicU64>,
}

const STEPS_EACH: u64 = 1000;

impl Exports for Costly {
    fn list(&self, _: &Peer) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, _: &str, _: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Costly {
    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        Ram::new("costly", MIB).info
    }

    fn contexts(&self, _: &str) -> Vec<Context> {
        Vec::new()
    }

    fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(CostlySession { all: self.clone(), work_debt: 0 }))
    }
}

struct CostlySession {
    all: Costly,
    work_debt: u64,
}

impl Session for CostlySession {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        std::mem::take(&mut self.work_debt)
    }
}

impl CostlySession {
    fn start(&mut self, request: Request) {
        match request.command {
            undercroft_nbd::Command::Cache => {
                self.all.steps.fetch_add(STEPS_EACH, Ordering::SeqCst);
                self.work_debt += STEPS_EACH;
                request.reply.done();
            }
            _ => request.reply.data(vec![Bytes::from(vec![0; request.length as usize])]),
        }
    }
}

/// On one thread, beside eight connections with more than enough to do: the work that is done for
/// them between two reads of another one is bounded.
#[tokio::test]
async fn connections_take_turns() {
    const FLOODS: u64 = 8;
    let costly = Costly::default();
    let server = Server::new(Arc::new(costly.clone()), ServerOptions::default());
    let mut floods = Vec::new();
    for _ in 0..FLOODS {
        let mut raw = connect(&server);
        raw.go(false, &[]).await;
        let (mut answers, mut requests) = raw.stream.into_split();
        floods.push(tokio::spawn(async move {
            tokio::io::copy(&mut answers, &mut tokio::io::sink()).await.unwrap();
        }));
        floods.push(tokio::spawn(async move {
            let many = request(CMD_CACHE, 1, 0, 4096).bytes().repeat(1000);
            while tokio::io::AsyncWriteExt::write_all(&mut requests, &many).await.is_ok() {}
        }));
    }
    let mut victim = connect(&server);
    victim.go(false, &[]).await;
    let mut worst = 0;
    for cookie in 0..200 {
        let before = costly.steps.load(Ordering::SeqCst);
        victim.request(request(CMD_READ, cookie, 0, 512), &[]).await;
        assert_eq!(victim.simple().await, (0, cookie));
        victim.receive(512).await;
        worst = worst.max(costly.steps.load(Ordering::SeqCst) - before);
    }
    println!("between two reads at most {worst} steps were done for {FLOODS} others");
    // A turn is one such request, and paid for with three more. The victim needs some turns of the
    // thread to send, to be served, and to receive.
    assert!(worst <= 6 * FLOODS * STEPS_EACH, "{worst} steps");
    assert!(costly.steps.load(Ordering::SeqCst) > 0);
    floods.iter().for_each(tokio::task::JoinHandle::abort);
}
