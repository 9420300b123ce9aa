//! Messages in one batch with requests, through a session: the effect must equal that of applying
//! each message in its order and serving the requests then.

mod floods;

use std::time::Instant;

use bytes::{Bytes, BytesMut};
use undercroft_hints::{BlockRun, EvictFlags};
use undercroft_nbd::Awaited;
use undercroft_policy::Spec;
use undercroft_random::SplitMix64;

use super::*;
use crate::config::VolumeConfig;
use crate::volume::clients::{Member, Teller};
use crate::volume::tests::{BLOCK, open};

const BLOCKS: u64 = 300;

/// Mostly a short run, some beyond the volume's end; rarely longer than the limit for noting.
fn run(random: &mut SplitMix64) -> BlockRun {
    let most = if random.below(200) == 0 { 400 } else { 4 };
    let (first, count) = (random.below(BLOCKS + 10), 1 + random.below(most) as u32);
    BlockRun::new(first, count).unwrap()
}

fn runs(random: &mut SplitMix64, most: u64) -> Vec<BlockRun> {
    (0..random.below(most)).map(|_| run(random)).collect()
}

/// Nearly always one EVICT record. Its age is either that of the volume, or zero.
fn drawn(random: &mut SplitMix64) -> Vec<Hint> {
    let age_us = if random.below(8) == 0 { u32::MAX } else { 0 };
    let flags = EvictFlags { late: random.below(20) == 0, ..EvictFlags::default() };
    let evict = Hint::Evict { age_us, sequence: 0, flags, runs: runs(random, 20) };
    match random.below(20) {
        0 => vec![Hint::Promote(runs(random, 3)), evict],
        1 => vec![Hint::Hold(runs(random, 3))],
        _ => vec![evict],
    }
}

/// What arrives in one read of the connection: a message, or a request for one block.
enum Step {
    Message(Vec<Hint>),
    Request(Command, u64),
}

fn volume(placement: &str, policy: &str, shards: u32) -> Arc<Volume> {
    let config = VolumeConfig::new("test", 100, Spec::parse(policy).unwrap());
    let placement = placement.parse().unwrap();
    open(VolumeConfig { placement, shards, reload_at_once: true, ..config }, BLOCKS)
}

/// A session of a client that wants these kinds of hints.
fn session(volume: &Arc<Volume>, client: u32, want: &str) -> Hints {
    let place = WindowLayout::of_volume(volume, true);
    let query = format!("x-undercroft:coop;v=1;client={client:x};want={want}");
    let contexts = place.contexts(&query, volume, 7);
    let status: Status = Arc::new(|_| Bytes::new());
    let session = Hints::connect(volume, &contexts, place.base(), status).unwrap();
    session.window.work_debt();
    session
}

/// A message as it is sent.
fn encoded(hints: &[Hint]) -> Bytes {
    let mut bytes = BytesMut::new();
    hints.iter().for_each(|hint| hint.put(&mut bytes));
    bytes.freeze()
}

/// The command that sends a message through a session, its offset and its length.
fn message(session: &Hints, hints: &[Hint]) -> (Command, u64, u64) {
    let bytes = encoded(hints);
    let length = bytes.len() as u64;
    (Command::Write { data: vec![bytes] }, session.base, length)
}

/// Sends all steps through a session, as one batch.
async fn together(session: &mut Hints, steps: &[Step]) {
    let (mut requests, mut answers) = (Vec::new(), Vec::<Awaited>::new());
    for step in steps {
        let (reply, awaited) = Reply::detached();
        answers.push(awaited);
        let (command, offset, length) = match step {
            Step::Message(hints) => message(session, hints),
            Step::Request(command, block) => (command.clone(), block * BLOCK, BLOCK),
        };
        requests.push(Request { command, offset, length, durable: false, reply });
    }
    session.serve(&mut requests);
    for answer in answers {
        let answer = answer.await;
        assert!(!matches!(answer, Answer::Failed(..)), "{answer:?}");
    }
}

/// Applies each message by itself, and then the requests.
async fn in_turn(volume: &Arc<Volume>, member: &Member, steps: Vec<Step>) {
    let (mut asks, mut answers) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Message(hints) => {
                let (bytes, arrived) = (encoded(&hints).len() as u64, Instant::now());
                let received = ReceivedHints { hints, bytes, arrived, may_demote: true };
                volume.receive_hints(member.caller(), received);
            }
            Step::Request(command, block) => {
                let (reply, awaited) = Reply::detached();
                let (offset, length) = (block * BLOCK, BLOCK);
                asks.push(Request { command, offset, length, durable: false, reply });
                answers.push(awaited);
            }
        }
    }
    volume.serve(&mut asks, member.caller());
    for answer in answers {
        answer.await;
    }
}

#[tokio::test]
async fn a_batch_is_as_each_message_in_its_turn() {
    let mut random = SplitMix64::seeded();
    let cases = [
        ("eviction,on-hit=keep", "mq", 1),
        ("eviction,on-hit=adaptive", "lru", 1),
        ("eviction", "arc", 1),
        ("eviction,threshold=2,staging=auto", "2q", 3),
        ("gl", "lru", 2),
        ("access", "lru-ca", 1),
    ];
    for (placement, policy, shards) in cases {
        let [ours, theirs] = [(); 2].map(|()| volume(placement, policy, shards));
        let mut session = session(&ours, 1, "evict,demote,promote,hold");
        let member = theirs.join(Some(1.into())).unwrap().unwrap();
        let _teller = Teller::new(Arc::clone(&member));
        for _ in 0..300 {
            let mut steps = Vec::new();
            for _ in 0..random.below(6) {
                steps.push(Step::Message(drawn(&mut random)));
                for _ in 0..1 + random.below(6) {
                    let data = vec![vec![7; BLOCK as usize].into()];
                    let command = match random.below(8) {
                        0 => Command::Write { data },
                        _ => Command::Read { one_chunk: false },
                    };
                    steps.push(Step::Request(command, random.below(BLOCKS)));
                }
            }
            together(&mut session, &steps).await;
            in_turn(&theirs, &member, steps).await;
            let counts = |volume: &Arc<Volume>| {
                let stats = volume.stats();
                let served = (stats.reads, stats.read_hits, stats.write_hits, stats.evictions);
                (served, stats.cooperation, stats.aware)
            };
            assert_eq!(counts(&ours), counts(&theirs), "{placement} {policy}");
            ours.validate().unwrap();
        }
        let here = |volume: &Arc<Volume>| {
            volume
                .shards
                .each()
                .map(|shard| shard.blocks.level.cache().residents())
                .collect::<Vec<_>>()
        };
        assert_eq!(here(&ours), here(&theirs), "{placement} {policy}");
        let told = ours.stats().cooperation.map_or(1, |stats| stats.known_evictions);
        assert!(told > 0, "{placement} {policy}: nothing was told");
    }
}
