//! Clients that say what they evict, over the wire: the opt-in, both doors, the order of hints and
//! requests, and that who does not opt in notices nothing.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use serde_json::Value;
use undercroft_hints::{
    Abilities, BlockRun, ClientId, ClientStat, EvictFlags, Grant, Hint, Query, Tracking,
    WANTS_CONTENTS,
};
use undercroft_nbd::{Client, ClientError, ClientOptions, Failure};

use super::support::{PATIENCE, Place, Server, read, text, write};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;

const WANT: &str = "evict,demote,promote,hold,stat";

/// A client that opted in, and what was granted.
pub(super) struct Coop {
    client: Client,
    grant: Grant,
}

pub(super) async fn opt_in(server: &Server, export: &str, id: Option<u128>) -> Coop {
    try_opt_in(server, export, id.map(Into::into)).await.unwrap()
}

async fn try_opt_in(
    server: &Server,
    export: &str,
    client: Option<ClientId>,
) -> Result<Coop, ClientError> {
    let query = Query { client, want: Abilities::parse(WANT) };
    let contexts = vec!["base:allocation".to_owned(), query.to_string()];
    let options = ClientOptions { contexts, ..ClientOptions::default() };
    let client = server.try_connect(export, &options).await?;
    let contexts = &client.remote().contexts;
    assert!(!contexts.iter().any(|(_, name)| name.contains("key=")), "the key is not said again");
    let grant = contexts.iter().find_map(|(_, name)| Grant::parse(name)).expect("granted");
    Ok(Coop { client, grant })
}

pub(super) fn demote(block: u64, byte: u8) -> Hint {
    Hint::Demote { block, rides: false, data: vec![byte; BLOCK as usize].into() }
}

fn message(hints: &[Hint]) -> Bytes {
    let mut bytes = BytesMut::new();
    hints.iter().for_each(|hint| hint.put(&mut bytes));
    bytes.freeze()
}

fn evict(block: u64, rides: bool) -> Hint {
    let flags = EvictFlags { rides, ..EvictFlags::default() };
    let runs = vec![BlockRun::new(block, 1).unwrap()];
    Hint::Evict { age_us: 0, sequence: 0, flags, runs }
}

impl Coop {
    /// Queued by the call itself, as every request of the client.
    fn say(&self, hints: &[Hint]) -> impl Future<Output = Result<(), ClientError>> + use<> {
        self.client.write(self.grant.window_base, vec![message(hints)], false)
    }

    /// Of a control export: whether contents are of use.
    async fn wants_contents(&self) -> bool {
        let told = self.client.block_status(0, 1, true).await.unwrap();
        let [(_, extents)] = &told[..] else { panic!("{told:?}") };
        extents[0].status & WANTS_CONTENTS != 0
    }

    pub(super) async fn read(&self, block: u64) -> u8 {
        read(&self.client, block * BLOCK, BLOCK as usize).await.unwrap()[0]
    }

    pub(super) async fn read_and_say(&self, block: u64, hints: &[Hint]) -> u8 {
        let said = self.say(hints);
        let byte = self.read(block).await;
        said.await.unwrap();
        byte
    }
}

fn cooperation(server: &Server, name: &str) -> u64 {
    let stats = server.stats("v");
    stats["cooperation"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {stats}"))
}

/// A server whose volume `v` has 64 blocks, each full of its number.
fn start(place: &Place, options: &str) -> Server {
    let image: Vec<u8> = (0..64_u8).flat_map(|block| [block; BLOCK as usize]).collect();
    place.write("v.img", image);
    place.serve(&format!("--volume v=file:v.img,policy=lru,{options}"))
}

fn failure(result: Result<(), ClientError>) -> Failure {
    match result {
        Err(ClientError::Server { failure, .. }) => failure,
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_opts_in_sees_a_window_and_nobody_else() {
    let place = Place::new();
    let server = start(&place, "placement=eviction,on-hit=move,cache=64KiB");
    assert!(server.announced.contains("placement eviction,on-hit=move"), "{}", server.announced);
    let coop = opt_in(&server, "v", Some(7)).await;
    let granted = coop.grant.grant.to_string();
    assert_eq!(granted, "evict,demote,promote,hold,stat");
    assert_eq!((coop.grant.block_bytes, coop.grant.window_base), (4096, MIB));
    assert_eq!(coop.client.remote().info.size, 2 * MIB);
    let plain = server.connect("v").await;
    assert_eq!(plain.remote().info.size, 64 * BLOCK);
    // The status is there to be read.
    let status = read(&coop.client, MIB, MIB as usize).await.unwrap();
    let status: Value = serde_json::from_slice(&status).unwrap();
    assert!(status["volumes"]["v"]["cooperation"].is_object(), "{status}");
    // Nothing else can be done with the window, and nothing at all between.
    let window = coop.grant.window_base;
    assert_eq!(failure(coop.client.trim(window, 4096, false).await), Failure::Invalid);
    assert_eq!(failure(coop.client.write_zeroes(window, 4096, 0, false).await), Failure::Invalid);
    assert_eq!(failure(write(&coop.client, 64 * BLOCK, vec![0; 512]).await), Failure::Invalid);
    assert_eq!(failure(write(&coop.client, window - 512, vec![0; 1024]).await), Failure::Invalid);
    // A message that is damaged counts not at all.
    let mut damaged = message(&[evict(5, false), evict(6, false)]).to_vec();
    damaged.pop();
    assert_eq!(failure(write(&coop.client, window, damaged).await), Failure::Invalid);
    assert_eq!(cooperation(&server, "hints"), 0);
    assert_eq!(cooperation(&server, "hint_messages_refused"), 1);
    coop.client.flush().await.unwrap();
    assert_eq!(read(&coop.client, 63 * BLOCK, 4096).await.unwrap()[0], 63);
    // Below a volume with access-based placement there is little to say.
    drop(server);
    let server = start(&place, "cache=64KiB");
    let coop = opt_in(&server, "v", None).await;
    assert_eq!(coop.grant.grant.to_string(), "promote,stat");
    coop.say(&[evict(1, false)]).await.unwrap();
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_blocks_come_back_from_the_store_or_from_the_client() {
    let place = Place::new();
    let server = start(&place, "placement=gl,cache=64KiB");
    let coop = opt_in(&server, "v", Some(1)).await;
    assert_eq!((coop.read(1).await, coop.read(2).await), (1, 2));
    assert_eq!(server.count("v", "resident"), 0, "a miss takes no room");
    let data = Bytes::from(vec![2; BLOCK as usize]);
    coop.say(&[evict(1, false), Hint::Demote { block: 2, rides: false, data }]).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 2);
    assert_eq!((coop.read(1).await, coop.read(2).await), (1, 2));
    assert_eq!((server.count("v", "read_hits"), server.count("v", "resident")), (2, 0));
    assert_eq!(server.count("v", "store_reads"), 3);
    let counts = ["reloads", "demotions_in", "demotions_accepted", "hints"];
    assert_eq!(counts.map(|name| cooperation(&server, name)), [1, 1, 1, 2]);
    // What a client says of itself is shown.
    let tracking = Tracking { late_evictions: 2, recall_ppm: 990_000, ..Tracking::default() };
    let stat = ClientStat {
        reads: 10,
        read_hits: 6,
        evictions: 198,
        tracking: Some(tracking),
        ..ClientStat::default()
    };
    coop.say(&[Hint::ClientStat(Box::new(stat))]).await.unwrap();
    let caches = server.stats("v")["client_caches"].clone();
    assert_eq!((&caches[0]["reads"], &caches[0]["read_hits"]), (&10.into(), &6.into()), "{caches}");
    assert_eq!(caches[0]["tells_evictions"], true, "{caches}");
    let tracking = &caches[0]["tracking"];
    assert_eq!((&tracking["late_evictions"], &tracking["recall"]), (&2.into(), &0.99.into()));
    let shown = place.run(env!("CARGO_BIN_EXE_undercroft"), &["stats", &server.http()]);
    let row = shown.lines().find(|line| line.starts_with("v ") && line.contains("99.00 %"));
    assert!(row.is_some_and(|row| row.contains("198") && row.contains("1.00 %")), "{shown}");
    let shown = place.run(
        env!("CARGO_BIN_EXE_undercroft"),
        &["top", "--plain", "--count", "1", &server.uri("v")],
    );
    let below = |heading: &str| {
        let mut lines = shown.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
        lines.next().unwrap_or_else(|| panic!("no {heading} in\n{shown}")).to_owned()
    };
    let cells = below("client cache");
    assert!(cells.contains("yes") && cells.contains("1.00 %") && cells.contains("99.00 %"));
    let told: Vec<String> = below("what clients told").split_whitespace().map(Into::into).collect();
    assert_eq!((told[0].as_str(), told[1].as_str()), ("v", "2"), "{shown}");
    let metrics = server.page("/metrics");
    assert!(metrics.contains("undercroft_cooperation_hints_total{volume=\"v\"} 2"), "{metrics}");
    assert_eq!(server.stop(), 0);
}

/// What a read drives out of the client is told ahead of the read, and placed after it: placed
/// before, it would drive out what is about to be read.
#[tokio::test(flavor = "multi_thread")]
async fn what_rides_is_placed_after_its_request() {
    let place = Place::new();
    let server = start(&place, "placement=eviction,on-hit=move,reloads=at-once,cache=4KiB");
    let coop = opt_in(&server, "v", Some(1)).await;
    assert_eq!((coop.read(1).await, coop.read(2).await), (1, 2));
    coop.say(&[evict(1, false)]).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 1);
    assert_eq!(coop.read_and_say(1, &[evict(2, true)]).await, 1);
    assert_eq!(server.count("v", "read_hits"), 1, "1 was here when it was asked for");
    assert_eq!(coop.read_and_say(2, &[evict(1, false)]).await, 2);
    assert_eq!(server.count("v", "read_hits"), 1, "without riding 2 had to go first");
    // A message that comes alone is answered, and waits for its request.
    coop.say(&[evict(2, true)]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(coop.read(1).await, 1);
    assert_eq!(server.count("v", "read_hits"), 2);
    // Several that ride in one go, each with its request.
    let all: Vec<_> = (10..60)
        .map(|block| (coop.say(&[evict(block - 1, true)]), read(&coop.client, block * BLOCK, 1)))
        .collect();
    for (block, (said, data)) in (10..60).zip(all) {
        said.await.unwrap();
        assert_eq!(data.await.unwrap()[0], block);
    }
    assert_eq!(cooperation(&server, "hint_messages_refused"), 0);
    assert_eq!(server.stop(), 0);
    // Unless the volume is to place first.
    let options = "placement=eviction,on-hit=move,order=demote-first,reloads=at-once,cache=4KiB";
    let server = start(&place, options);
    let coop = opt_in(&server, "v", Some(1)).await;
    assert_eq!((coop.read(1).await, coop.read(2).await), (1, 2));
    coop.say(&[evict(1, false)]).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 1);
    assert_eq!(coop.read_and_say(1, &[evict(2, true)]).await, 1);
    assert_eq!(server.count("v", "read_hits"), 0, "2 drove 1 out before 1 was read");
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_door_speaks_for_clients_that_cannot_be_changed() {
    let place = Place::new();
    let server = start(&place, "placement=eviction,on-hit=move,cache=64KiB,read-only");
    let plain = server.connect("v").await;
    read(&plain, BLOCK, 4096).await.unwrap();
    assert_eq!(server.count("v", "resident"), 1, "nothing is known of it");
    let control = server.connect("@coop/v").await;
    assert_eq!(control.remote().info.size, MIB);
    read(&plain, 2 * BLOCK, 4096).await.unwrap();
    assert_eq!(server.count("v", "resident"), 1, "somebody speaks for it");
    write(&control, 0, message(&[evict(2, false)]).to_vec()).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 2);
    // Nobody may write here, so data is not taken: it counts as the news that the block was
    // evicted.
    read(&plain, 3 * BLOCK, 4096).await.unwrap();
    let data = Bytes::from(vec![0xff; BLOCK as usize]);
    let sent = message(&[Hint::Demote { block: 3, rides: false, data }]).to_vec();
    write(&control, 0, sent).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 3);
    assert_eq!(cooperation(&server, "demotions_refused"), 1);
    assert_eq!(read(&plain, 3 * BLOCK, 1).await.unwrap()[0], 3);
    // With an id it speaks for those with that id, and leaves the others alone.
    control.close().await;
    server.wait_for_clients("v", 1);
    let other = opt_in(&server, "@coop/v", Some(9)).await;
    assert_eq!(other.grant.window_base, 0);
    read(&plain, 4 * BLOCK, 4096).await.unwrap();
    assert_eq!(server.count("v", "resident"), 3, "3 was given up, and 4 came at its access");
    assert_eq!(server.stop(), 0);
}

/// Two connections without an id, one of which hands over old data of what the other wrote.
#[tokio::test(flavor = "multi_thread")]
async fn old_data_becomes_neither_visible_nor_durable() {
    let place = Place::new();
    let server = start(&place, "placement=gl,cache=64KiB");
    let (one, two) = (opt_in(&server, "v", None).await, server.connect("v").await);
    assert_eq!(one.read(1).await, 1);
    write(&two, BLOCK, vec![0xaa; BLOCK as usize]).await.unwrap();
    one.say(&[demote(1, 1)]).await.unwrap();
    write(&two, BLOCK + 512, vec![0xbb; 512]).await.unwrap();
    let mut now = vec![0xaa; BLOCK as usize];
    now[512..1024].fill(0xbb);
    assert_eq!(read(&two, BLOCK, BLOCK as usize).await.unwrap(), now);
    let counts = ["demotions_accepted", "demotions_refused"];
    assert_eq!(counts.map(|name| cooperation(&server, name)), [0, 1]);
    assert_eq!(server.stop(), 0);
}

/// The control export takes contents: they are proved by themselves.
#[tokio::test(flavor = "multi_thread")]
async fn the_control_export_takes_what_is_proved() {
    let place = Place::new();
    let server = start(&place, "placement=gl,cache=64KiB");
    let plain = server.connect("v").await;
    let control = opt_in(&server, "@coop/v", None).await;
    assert!(control.grant.grant.demote && control.wants_contents().await);
    assert_eq!(read(&plain, 3 * BLOCK, BLOCK as usize).await.unwrap()[0], 3);
    // It may be the data of a write to come, so the block is not read back now.
    control.say(&[demote(3, 0xff)]).await.unwrap();
    assert_eq!(cooperation(&server, "demotions_awaiting"), 1);
    assert_eq!(read(&plain, 3 * BLOCK, BLOCK as usize).await.unwrap()[0], 3);
    control.say(&[demote(3, 3)]).await.unwrap();
    assert_eq!(read(&plain, 3 * BLOCK, BLOCK as usize).await.unwrap()[0], 3);
    let counts = ["demotions_accepted", "demotions_refused_changed", "reloads"];
    assert_eq!(counts.map(|name| cooperation(&server, name)), [1, 1, 0]);
    assert_eq!(server.stop(), 0);
    // Who may not write hands nothing over.
    let server = start(&place, "placement=gl,cache=64KiB,read-only");
    let control = opt_in(&server, "@coop/v", None).await;
    assert!(!control.grant.grant.demote && control.grant.grant.evict);
    assert!(!control.wants_contents().await);
    assert_eq!(server.stop(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_is_bound_to_its_key() {
    let place = Place::new();
    let server = start(&place, "placement=gl,cache=64KiB");
    let id = |key| Some(ClientId { number: 0xabc_def0, key });
    let one = try_opt_in(&server, "v", id(Some(1))).await.unwrap();
    for export in ["v", "@coop/v"] {
        for key in [Some(2), None] {
            let refused = try_opt_in(&server, export, id(key)).await.err().unwrap().to_string();
            assert!(refused.contains("another key"), "{refused}");
        }
        try_opt_in(&server, export, id(Some(1))).await.unwrap().client.close().await;
    }
    let status = server.stats("v").to_string();
    assert!(status.contains("client_caches") && !status.contains("abcdef0"), "{status}");
    // As older clients do it.
    let other = |key| Some(ClientId { number: 2, key });
    let two = try_opt_in(&server, "v", other(None)).await.unwrap();
    try_opt_in(&server, "v", other(None)).await.unwrap();
    assert!(try_opt_in(&server, "v", other(Some(1))).await.is_err());
    drop((one, two));
    assert_eq!(server.stop(), 0);
}

/// A block that another client holds is not placed when one evicts it.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_copy_is_placed() {
    let place = Place::new();
    let server = start(&place, "placement=eviction,on-hit=move,reloads=at-once,cache=64KiB");
    let (one, two) = (opt_in(&server, "v", Some(1)).await, opt_in(&server, "v", Some(2)).await);
    one.read(5).await;
    two.read(5).await;
    one.say(&[evict(5, false)]).await.unwrap();
    assert_eq!((cooperation(&server, "held_by_others"), server.count("v", "resident")), (1, 0));
    two.say(&[evict(5, false)]).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 1);
    // What a client had that is gone does not matter any more.
    one.read(6).await;
    two.read(6).await;
    two.client.close().await;
    server.wait_for_clients("v", 1);
    let deadline = Instant::now() + PATIENCE;
    while server.stats("v")["client_caches"].as_array().unwrap().len() > 1 {
        assert!(Instant::now() < deadline, "the client is still there");
    }
    one.say(&[evict(6, false)]).await.unwrap();
    server.wait_for("v", "resident", |resident| resident == 2);
    assert_eq!(server.stop(), 0);
}

/// The client library that others use, with all its checks on, can cooperate as well.
#[test]
fn libnbd_in_its_strictest_mode_cooperates() {
    let place = Place::new();
    let server = start(&place, "placement=eviction,on-hit=move,reloads=at-once,cache=64KiB");
    let script = r#"
import sys, nbd, struct
h = nbd.NBD()
h.set_strict_mode(nbd.STRICT_MASK)
h.add_meta_context("x-undercroft:coop;v=1;client=abc;want=evict")
h.connect_uri(sys.argv[1])
assert h.get_size() == 2 << 20, h.get_size()
assert h.pread(4096, 3 * 4096) == b"\3" * 4096
h.pwrite(struct.pack(">HHIIIQ", 1, 0, 16, 0, 0, 3 << 16), 1 << 20)
assert h.pread(4096, 3 * 4096) == b"\3" * 4096
try:
    h.pwrite(b"\0\1\0\0\0\0\0\1", 1 << 20)
    sys.exit("a damaged message was taken")
except nbd.Error as error:
    assert error.errno == "EINVAL", error
h.shutdown()
print("cooperated")
"#;
    place.write("client.py", script);
    let output = place.command("python3", &["client.py", &server.uri("v")]).output().unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    if said.contains("No module named 'nbd'") {
        println!("skipped: python3-libnbd is not installed");
        return;
    }
    assert_eq!(text(&output.stdout), "cooperated\n", "{said}");
    assert_eq!((server.count("v", "read_hits"), cooperation(&server, "reloads")), (1, 1));
    assert_eq!(server.stop(), 0);
}
