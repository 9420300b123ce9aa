//! The caching client against a server in this process: what it says and when, that data is right
//! whatever goes on at once, and what happens when things fail. `UNDERCROFT_SEED` repeats a run of
//! the random ones (the order of the network stays its own).

use std::ops::Range;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use undercroft_client::{CachedClient, CachedOptions, Report};
use undercroft_hints::{Hint, put_end};
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_nbd::ClientError;
use undercroft_policy::{Context, Reference, Spec, WriteMode};
use undercroft_sim::tree::Tree;

use crate::support::{BLOCK, Event, Random, Served, Volume, counted, evicted, follow};

const ALL: &str = "evict,demote,stat";

fn spec(text: &str) -> Spec {
    text.parse().expect("a policy")
}

fn options(blocks: u32, policy: &str, report: Report, batch: usize) -> CachedOptions {
    CachedOptions { report, batch, ..CachedOptions::new(blocks, spec(policy)) }
}

async fn connect(served: &Served, options: &CachedOptions) -> CachedClient {
    CachedClient::connect(&served.uri, options).await.expect("a connection")
}

/// One caller, one block a request, one message for each: the server sees what the simulator's
/// second level sees.
async fn check_order(policy: &str, placement: &str, report: Report, mode: WriteMode) {
    let mut random = Random::new(7);
    let served = Volume::new(80 * BLOCK, 1, ALL, 1).serve().await;
    let mut options = options(12, policy, report, 1);
    options.write_mode = mode;
    let client = connect(&served, &options).await;
    let lower = || {
        let placement: Placement = placement.parse().expect("a placement");
        Level::new(&spec("mq"), 20, &placement, mode, 0).expect("a level")
    };
    let top = spec(policy).build(&Context::new(12)).expect("a policy");
    let mut promised = Tree::line(Some((top, mode)), vec![lower()]).expect("a hierarchy");
    for _ in 0..3000 {
        let block = random.below(80).min(random.below(80));
        let is_write = random.below(4) == 0;
        promised.refer(Reference::new(block as u32, is_write));
        if is_write {
            let data = Bytes::from(vec![random.next_u64() as u8; BLOCK as usize]);
            client.write(block * BLOCK, data, false).await.expect("a write");
        } else {
            client.read(block * BLOCK, BLOCK as usize).await.expect("a read");
        }
    }
    let mut delivered = lower();
    let disk = served.volume.disk();
    follow(&disk.events, &mut delivered);
    let text = format!("{policy}, {placement}, {mode:?}");
    let expected = promised.lower()[0].cache().counts();
    assert_eq!(counted(delivered.cache().counts()), counted(expected), "{text}");
    assert!(expected.read_hits > 0 && disk.wrongs.is_empty(), "{text}: {:?}", disk.wrongs);
    let counts = promised.clients().first().expect("a first level").cache().counts();
    let stats = client.stats();
    let first = [stats.reads, stats.read_hits, stats.writes, stats.write_hits, stats.evictions];
    assert_eq!(first, counted(counts), "{text}");
    assert_eq!((stats.hints_lost, stats.messages_refused), (0, 0));
    assert_eq!(stats.demotions > 0, report == Report::Demotions, "{text}");
}

#[tokio::test]
async fn one_caller_shows_the_server_what_the_simulator_foretells() {
    for policy in ["lru", "mq", "arc", "2q", "clock"] {
        for mode in [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate] {
            check_order(policy, "eviction,on-hit=move", Report::Evictions, mode).await;
            check_order(policy, "gl", Report::Demotions, mode).await;
        }
    }
}

/// An operation that was begun, with what must come of it.
type Op = std::pin::Pin<Box<dyn Future<Output = Result<(), String>>>>;

struct Crowd {
    client: CachedClient,
    /// What the volume holds when all that was begun is over; none where that is anything.
    model: Vec<Option<u8>>,
    /// Whether operations may fail.
    may_fail: bool,
}

impl Crowd {
    fn range(&self, random: &mut Random) -> Range<u64> {
        let size = self.model.len() as u64;
        let start = random.below(size);
        let length = match random.below(4) {
            0 => random.below(100),
            1 => random.below(40 * BLOCK),
            _ => BLOCK,
        };
        let start = if random.below(2) == 0 { start - start % BLOCK } else { start };
        start..size.min(start + length)
    }

    /// Begins a random operation: it is polled once, which decides its order.
    fn begin(&mut self, random: &mut Random) -> Op {
        let range = self.range(random);
        let (at, length) = (range.start, range.end - range.start);
        let part = range.start as usize..range.end as usize;
        let (client, may_fail) = (self.client.clone(), self.may_fail);
        let allowed = move |result: Result<(), ClientError>| match result {
            Err(_) if may_fail => Ok(()),
            other => other.map_err(|error| error.to_string()),
        };
        let mut op: Op = match random.below(20) {
            0..10 => {
                let expected = self.model[part].to_vec();
                Box::pin(async move {
                    let read = match client.read(at, length as usize).await {
                        Err(_) if may_fail => return Ok(()),
                        other => other.map_err(|error| error.to_string())?,
                    };
                    let fits = |(is, should): (&u8, &Option<u8>)| should.is_none_or(|s| s == *is);
                    let right = read.len() == expected.len()
                        && (may_fail || read.iter().zip(&expected).all(fits));
                    right.then_some(()).ok_or(format!("wrong data at {at}+{length}"))
                })
            }
            10..17 => {
                let data: Bytes = (0..length).map(|_| random.next_u64() as u8).collect();
                for (byte, new) in self.model[part].iter_mut().zip(&data) {
                    *byte = Some(*new);
                }
                let fua = random.below(2) == 0;
                Box::pin(async move { allowed(client.write(at, data, fua).await) })
            }
            17 => {
                self.model[part].fill(None);
                Box::pin(async move { allowed(client.trim(at, length).await) })
            }
            18 => {
                self.model[part].fill(Some(0));
                Box::pin(async move { allowed(client.write_zeroes(at, length, false).await) })
            }
            _ => Box::pin(async move { allowed(client.flush().await) }),
        };
        match op.as_mut().now_or_never() {
            Some(done) => Box::pin(async { done }),
            None => op,
        }
    }

    /// Keeps `depth` operations begun, and drops some of them unfinished.
    async fn run(&mut self, random: &mut Random, count: usize, depth: usize) {
        let mut begun = std::collections::VecDeque::new();
        for _ in 0..count {
            begun.push_back(self.begin(random));
            if begun.len() < depth {
                continue;
            }
            let at = random.below(begun.len() as u64) as usize;
            let op = begun.remove(at).expect("there are so many");
            if random.below(20) == 0 {
                drop(op);
            } else {
                op.await.expect("right");
            }
        }
        for op in begun {
            op.await.expect("right");
        }
    }
}

/// Random operations, many at once, of all alignments, against a model that knows their order.
async fn check_crowd(random: &mut Random, policy: &str, report: Report, min_block: u32) {
    // The last block is short.
    let size = 60 * BLOCK + 1024 * u64::from(min_block <= 1024);
    let served = Volume::new(size, min_block, ALL, random.next_u64()).serve().await;
    served.volume.disk().delay = Duration::from_micros(300);
    let batch = 1 + random.below(20) as usize;
    let mut options = options(1 + random.below(20) as u32, policy, report, batch);
    let modes = [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate];
    options.write_mode = modes[random.below(3) as usize];
    let client = connect(&served, &options).await;
    assert_eq!(client.size(), size);
    let mut crowd = Crowd { client, model: vec![Some(0); size as usize], may_fail: false };
    let depth = 1 + random.below(30) as usize;
    crowd.run(random, 400, depth).await;
    let all = crowd.client.read(0, size as usize).await.expect("a read");
    let disk = served.volume.disk();
    assert_eq!(all, disk.bytes, "the cache has other data than the volume");
    assert!(disk.wrongs.is_empty(), "{:?}", disk.wrongs);
    let stats = crowd.client.stats();
    assert_eq!(stats.messages_refused, 0);
    assert!(stats.evictions == 0 || report == Report::Nothing || stats.messages > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_operations_at_once_read_what_was_written() {
    let mut random = Random::seeded();
    for report in [Report::Nothing, Report::Evictions, Report::Demotions] {
        for policy in ["lru", "arc", "s3-fifo"] {
            for min_block in [1, 512, 4096] {
                check_crowd(&mut random, policy, report, min_block).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_leave_nothing_wrong_in_the_cache() {
    let mut random = Random::seeded();
    for report in [Report::Evictions, Report::Demotions] {
        for min_block in [1, 512] {
            let size = 40 * BLOCK;
            let served = Volume::new(size, min_block, ALL, random.next_u64()).serve().await;
            let client = connect(&served, &options(15, "lru", report, 4)).await;
            let model = vec![None; size as usize];
            let mut crowd = Crowd { client, model, may_fail: true };
            for _ in 0..10 {
                served.volume.disk().delay = Duration::from_micros(200);
                served.volume.disk().fail_one_in = 4;
                crowd.run(&mut random, 60, 8).await;
                served.volume.disk().fail_one_in = 0;
                let all = crowd.client.read(0, size as usize).await.expect("a read");
                let disk = served.volume.disk();
                assert_eq!(all, disk.bytes, "the cache has other data than the volume");
                assert!(disk.wrongs.is_empty(), "{:?}", disk.wrongs);
            }
            assert!(crowd.client.stats().read_hits > 0);
        }
    }
}

#[tokio::test]
async fn concurrent_misses_of_a_block_are_one_fetch() {
    let served = Volume::new(10 * BLOCK, 1, ALL, 1).serve().await;
    served.volume.disk().delay = Duration::from_millis(2);
    let client = connect(&served, &options(4, "lru", Report::Evictions, 1)).await;
    let reads = (0..20).map(|i| client.read(3 * BLOCK + i, 100));
    for read in futures_util::future::join_all(reads).await {
        assert_eq!(read.expect("a read"), vec![0; 100]);
    }
    assert_eq!(served.volume.disk().events, [Event::Read(3 * BLOCK..4 * BLOCK)]);
    let stats = client.stats();
    assert_eq!((stats.reads, stats.read_hits, stats.resident_blocks), (20, 19, 1));
    assert!(stats.read_us_total > 0);
}

#[tokio::test]
async fn hints_go_together_or_after_a_while() {
    let served = Volume::new(50 * BLOCK, 1, ALL, 1).serve().await;
    let mut options = options(1, "lru", Report::Evictions, 5);
    options.flush_after = Duration::from_millis(30);
    let client = connect(&served, &options).await;
    for block in 0..8 {
        client.read(block * BLOCK, BLOCK as usize).await.expect("a read");
    }
    let messages = || {
        let disk = served.volume.disk();
        let hints = disk.events.iter().filter_map(|event| match event {
            Event::Hints(hints) => Some(hints.iter().filter_map(evicted).collect::<Vec<_>>()),
            _ => None,
        });
        hints.collect::<Vec<_>>()
    };
    // Blocks 0 to 4 with the read of block 5, which drove out the last of them.
    assert_eq!(messages(), [[(vec![0, 1, 2, 3], false), (vec![4], true)]]);
    let begin = std::time::Instant::now();
    while messages().len() < 2 {
        assert!(begin.elapsed() < Duration::from_secs(20), "the rest never comes");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(messages()[1], [(vec![5, 6], false)]);
    let disk = served.volume.disk();
    let Some(Event::Hints(hints)) = disk.events.last() else { panic!("{:?}", disk.events) };
    // They waited about as long as they may, and the age says so.
    let Hint::Evict { age_us, sequence: 2, .. } = hints[0] else { panic!("{hints:?}") };
    assert!((29_000..10_000_000).contains(&age_us), "{age_us}");
}

#[tokio::test]
async fn counters_are_told_while_there_is_traffic() {
    let served = Volume::new(50 * BLOCK, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(3, "lru", Report::Evictions, 1)).await;
    let told = || {
        let disk = served.volume.disk();
        let all = disk.events.iter().filter_map(|event| match event {
            Event::Hints(hints) => Some(hints.clone()),
            _ => None,
        });
        all.flatten().find_map(|hint| match hint {
            Hint::ClientStat(stat) => Some(stat),
            _ => None,
        })
    };
    let begin = std::time::Instant::now();
    let mut reads = 0;
    let stat = loop {
        client.read(reads % 50 * BLOCK, 1).await.expect("a read");
        reads += 1;
        if let Some(stat) = told() {
            break stat;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "nothing is told");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(begin.elapsed() >= Duration::from_millis(900));
    assert_eq!((stat.reads, stat.read_hits, stat.capacity_blocks), (reads, 0, 3));
    assert_eq!(stat.evictions, reads - 3);
}

#[tokio::test]
async fn a_server_that_does_not_cooperate_is_refused() {
    let refusal = async |grants: &str, report| {
        let served = Volume::new(BLOCK, 1, grants, 1).serve().await;
        let connected = CachedClient::connect(&served.uri, &options(4, "lru", report, 1)).await;
        connected.err().map(|error| error.to_string())
    };
    let text = refusal("", Report::Evictions).await.expect("a refusal");
    assert_eq!(
        text,
        "the server refuses: it does not cooperate with clients (no context x-undercroft:coop)"
    );
    let text = refusal("evict,stat", Report::Demotions).await.expect("a refusal");
    assert_eq!(
        text,
        "the server refuses: it takes no such hints: asked for evict,demote, got 'evict,stat'"
    );
    assert_eq!(refusal("evict", Report::Evictions).await, None);
    assert_eq!(refusal("", Report::Nothing).await, None);
}

#[tokio::test]
async fn refused_messages_are_counted_and_hurt_nobody() {
    let served = Volume::new(50 * BLOCK, 1, ALL, 1).serve().await;
    served.volume.disk().refuse_messages = true;
    let client = connect(&served, &options(1, "lru", Report::Evictions, 1)).await;
    for block in 0..5 {
        client.read(block * BLOCK, BLOCK as usize).await.expect("a read");
    }
    assert_eq!(client.stats().messages_refused, 4);
}

/// Writers of blocks that are just being handed over wait for the answer, all of them at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_writers_wait_for_one_message() {
    let served = Volume::new(50 * BLOCK, 1, ALL, 1).serve().await;
    let mut options = options(1, "lru", Report::Demotions, 8);
    options.flush_after = Duration::from_secs(60);
    options.write_mode = WriteMode::NoAllocate;
    let client = connect(&served, &options).await;
    for block in 0..8 {
        client.read(block * BLOCK, BLOCK as usize).await.expect("a read");
    }
    served.volume.disk().delay = Duration::from_millis(100);
    let last = client.read(8 * BLOCK, BLOCK as usize);
    let data = Bytes::from(vec![1; BLOCK as usize]);
    let writes = async {
        // A write in front of the message would take its block out of that.
        let is_message = |event: &Event| matches!(event, Event::Hints(_));
        while !served.volume.disk().events.iter().any(is_message) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let writes = (0..8).map(|block| client.write(block * BLOCK, data.clone(), false));
        futures_util::future::join_all(writes).await
    };
    let all = async { futures_util::join!(last, writes) };
    let (read, writes) = tokio::time::timeout(Duration::from_secs(20), all).await.expect("an end");
    read.expect("a read");
    writes.into_iter().for_each(|written| written.expect("a write"));
    assert_eq!(client.stats().demotions, 8);
    let disk = served.volume.disk();
    assert!(disk.wrongs.is_empty(), "{:?}", disk.wrongs);
    let at = |event: &Event| disk.events.iter().position(|other| other == event);
    let message = disk.events.iter().position(|event| matches!(event, Event::Hints(_)));
    assert!(message < at(&Event::Write(0..BLOCK)));
}

#[tokio::test]
async fn ranges_beyond_the_end_and_empty_ones() {
    let size = 3 * BLOCK + 100;
    let served = Volume::new(size, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(2, "lru", Report::Demotions, 1)).await;
    assert_eq!((client.size(), client.block_bytes()), (size, BLOCK as u32));
    for (offset, length) in [(size, 1), (size - 1, 2), (u64::MAX, 1), (1 << 20, 8)] {
        let error = client.read(offset, length).await.expect_err("beyond the end");
        assert!(matches!(error, ClientError::Argument(_)), "{error:?}");
        assert!(error.to_string().contains("pass the end of 12388 bytes"), "{error}");
        assert!(client.trim(offset, length as u64).await.is_err());
    }
    assert!(client.read(size, 0).await.expect("nothing").is_empty());
    client.write(size - 100, Bytes::from(vec![7; 100]), true).await.expect("the short block");
    assert_eq!(client.read(size - 50, 50).await.expect("a read"), vec![7; 50]);
    // The last block is whole with its 100 bytes: nothing was fetched.
    assert_eq!(served.volume.disk().events, [Event::Write(size - 100..size)]);
    client.close().await;
}

/// Waits until a client has noticed that its server is gone.
async fn notices_loss(client: &CachedClient) {
    let begin = std::time::Instant::now();
    while !client.is_lost() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the loss is not noticed");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn a_lost_connection_fails_everything() {
    let served = Volume::new(50 * BLOCK, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(8, "lru", Report::Evictions, 1)).await;
    client.read(0, BLOCK as usize).await.expect("a read");
    served.volume.disk().delay = Duration::from_secs(3600);
    let pending: Vec<_> = (1..5)
        .map(|block| {
            let client = client.clone();
            tokio::spawn(async move { client.read(block * BLOCK, 10).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    served.server.shutdown(Duration::ZERO).await;
    for read in pending {
        let error = read.await.expect("no panic").expect_err("no server");
        assert!(matches!(error, ClientError::Lost(_) | ClientError::Server { .. }), "{error}");
    }
    notices_loss(&client).await;
    let hit = client.read(0, BLOCK as usize).await;
    assert!(matches!(hit, Err(ClientError::Lost(_))), "{hit:?}");
    let data = Bytes::from_static(b"x");
    assert!(matches!(client.write(0, data, false).await, Err(ClientError::Lost(_))));
    assert!(client.flush().await.is_err());
}

/// Operations in crowds, while the server dies and comes back without what was not flushed. The
/// client goes on with what the server has, under another number each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_read_after_a_loss_is_what_the_server_has() {
    let mut random = Random::seeded();
    for report in [Report::Nothing, Report::Evictions, Report::Demotions] {
        let size = 40 * BLOCK;
        let mut served = Volume::new(size, 512, ALL, random.next_u64()).serve().await;
        served.volume.disk().delay = Duration::from_micros(200);
        let mut options = options(30, "lru", report, 4);
        options.client_id = Some(7.into());
        let client = connect(&served, &options).await;
        let model = vec![None; size as usize];
        let mut crowd = Crowd { client, model, may_fail: true };
        for _ in 0..8 {
            let pause = Duration::from_micros(random.below(20_000));
            let restart = async {
                tokio::time::sleep(pause).await;
                served.stop().await;
                served.start();
            };
            futures_util::join!(restart, crowd.run(&mut random, 100, 8));
            // In doubt, or of a connection that is not known to be lost yet.
            let _ = crowd.client.flush().await;
            crowd.run(&mut random, 50, 8).await;
            let all = crowd.client.read(0, size as usize).await.expect("a read");
            let disk = served.volume.disk();
            assert_eq!(all, disk.bytes, "the cache has other data than the volume");
            assert!(disk.wrongs.is_empty(), "{:?}", disk.wrongs);
        }
        let stats = crowd.client.stats();
        assert!(stats.reconnections == 8 && stats.read_hits > 0, "{stats:?}");
        let disk = served.volume.disk();
        let mut ids: Vec<_> = disk.clients.iter().flatten().collect();
        ids.dedup();
        let expected = if report == Report::Nothing { 0 } else { 9 };
        assert_eq!(ids.len(), expected, "another number for each connection");
        assert!(report == Report::Nothing || *ids[0] == 7);
    }
}

#[tokio::test]
async fn a_flush_says_once_that_answered_writes_may_be_lost() {
    let mut served = Volume::new(10 * BLOCK, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(8, "lru", Report::Evictions, 1)).await;
    let block = |byte| Bytes::from(vec![byte; BLOCK as usize]);
    client.write(0, block(1), false).await.expect("a write");
    client.flush().await.expect("a flush");
    client.write(BLOCK, block(2), true).await.expect("a durable write");
    // All of that is durable, and nothing is in doubt.
    served.stop().await;
    notices_loss(&client).await;
    served.start();
    assert_eq!(client.read(0, BLOCK as usize).await.expect("a read"), block(1));
    client.flush().await.expect("nothing was lost");
    client.write(2 * BLOCK, block(3), false).await.expect("a write");
    served.stop().await;
    notices_loss(&client).await;
    // There is no server: also what is in the cache cannot be had.
    let hit = client.read(2 * BLOCK, 1).await;
    assert!(matches!(hit, Err(ClientError::Lost(_))), "{hit:?}");
    served.start();
    assert_eq!(client.read(2 * BLOCK, 1).await.expect("a read")[..], [0], "it was lost");
    assert_eq!(client.flush().await, Err(ClientError::Unflushed));
    client.flush().await.expect("it was said");
    assert_eq!(client.read(BLOCK, 1).await.expect("a read")[..], [2]);
    let stats = client.stats();
    assert_eq!((stats.reconnections, stats.resident_blocks), (2, 2));
}

/// The server stays, and what it had answered is lost below it: it says so by EIO, once.
#[tokio::test]
async fn a_change_that_cannot_be_made_durable_tells_of_a_loss() {
    let block = |byte| Bytes::from(vec![byte; BLOCK as usize]);
    for zeroes in [false, true] {
        let served = Volume::new(10 * BLOCK, 1, ALL, 1).serve().await;
        let client = connect(&served, &options(8, "lru", Report::Evictions, 1)).await;
        client.write(0, block(1), false).await.expect("a write");
        served.volume.disk().lose();
        served.volume.disk().fail_one_in = 1;
        let failed = match zeroes {
            false => client.write(BLOCK, block(2), true).await,
            true => client.write_zeroes(BLOCK, BLOCK, true).await,
        };
        assert!(matches!(failed, Err(ClientError::Server { .. })), "{failed:?}");
        served.volume.disk().fail_one_in = 0;
        assert_eq!(client.read(0, 1).await.expect("a read")[..], [0], "it was lost");
        assert_eq!(client.flush().await, Err(ClientError::Unflushed));
        client.flush().await.expect("it was said");
    }
}

/// Another client wrote what is lost, and this one has read it.
#[tokio::test]
async fn a_flush_that_fails_leaves_nothing_in_the_cache() {
    let served = Volume::new(10 * BLOCK, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(8, "lru", Report::Evictions, 1)).await;
    served.volume.disk().bytes[0] = 7;
    assert_eq!(client.read(0, 1).await.expect("a read")[..], [7]);
    served.volume.disk().lose();
    served.volume.disk().fail_one_in = 1;
    assert!(matches!(client.flush().await, Err(ClientError::Server { .. })));
    served.volume.disk().fail_one_in = 0;
    assert_eq!(client.read(0, 1).await.expect("a read")[..], [0]);
}

#[tokio::test]
async fn another_export_in_the_place_of_a_lost_one_is_refused() {
    let mut served = Volume::new(10 * BLOCK, 1, ALL, 1).serve().await;
    let client = connect(&served, &options(8, "lru", Report::Evictions, 1)).await;
    client.read(0, 1).await.expect("a read");
    served.stop().await;
    notices_loss(&client).await;
    served.shrink(BLOCK);
    served.start();
    let error = client.read(0, 1).await.expect_err("a refusal").to_string();
    assert_eq!(
        error,
        "the server refuses: the export is another one: it was 40960 bytes in blocks of 4096, \
         requests of 1 to 1048576, now it is 36864 bytes in blocks of 4096, requests of 1 to \
         1048576"
    );
    client.clone().close().await;
    let closed = client.read(0, 1).await;
    assert_eq!(closed, Err(ClientError::Lost("it was closed".to_owned())));
}

#[tokio::test]
async fn a_server_that_never_ends_telling_of_its_cache_holds_nothing_up() {
    let volume = Volume::new(10 * BLOCK, 1, "follow,stat", 1);
    let mut more = BytesMut::new();
    put_end(&mut more, 64);
    volume.disk().news = Some(more.freeze());
    let served = volume.serve().await;
    let client = connect(&served, &options(8, "lru-ca", Report::Nothing, 1)).await;
    for block in 0..3 {
        let read = client.read(block * BLOCK, 1);
        let read = tokio::time::timeout(Duration::from_secs(60), read).await;
        read.expect("an end").expect("a read");
    }
    assert_eq!(served.volume.disk().asked, 3 * 64);
}
