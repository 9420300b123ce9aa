//! Messages in one batch with requests, through a session: the effect must equal that of applying
//! each message in its order and serving the requests then.

use std::time::Instant;

use bytes::Bytes;
use tokio::runtime::Handle;
use undercroft_frames::Memory;
use undercroft_hints::{BlockRun, EvictFlags};
use undercroft_nbd::Awaited;
use undercroft_policy::Spec;
use undercroft_store::MemoryStore;

use super::layout::WindowLayout;
use super::*;
use crate::config::VolumeConfig;
use crate::volume::clients::{Member, Teller};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 300;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    /// Mostly short runs, some beyond the volume's end; rarely longer than the limit for noting.
    fn run(&mut self) -> BlockRun {
        let most = if self.below(200) == 0 { 400 } else { 4 };
        let (first, count) = (self.below(BLOCKS + 10), 1 + self.below(most) as u32);
        BlockRun::new(first, count).unwrap()
    }

    fn runs(&mut self, most: u64) -> Vec<BlockRun> {
        (0..self.below(most)).map(|_| self.run()).collect()
    }

    /// Nearly always one EVICT record. Its age is either that of the volume, or zero.
    fn message(&mut self) -> Vec<Hint> {
        let age_us = if self.below(8) == 0 { u32::MAX } else { 0 };
        let flags = EvictFlags { late: self.below(20) == 0, ..EvictFlags::default() };
        let evict = Hint::Evict { age_us, sequence: 0, flags, runs: self.runs(20) };
        match self.below(20) {
            0 => vec![Hint::Promote(self.runs(3)), evict],
            1 => vec![Hint::Hold(self.runs(3))],
            _ => vec![evict],
        }
    }
}

/// What arrives in one read of the connection: a message, or a request for one block.
enum Step {
    Message(Vec<Hint>),
    Request(Command, u64),
}

fn volume(placement: &str, policy: &str, shards: u32) -> Arc<Volume> {
    let mut config = VolumeConfig::new("test", 100, Spec::parse(policy).unwrap());
    config.placement = placement.parse().unwrap();
    config.shards = shards;
    config.reload_at_once = true;
    let memory = Memory::new(config.memory_bytes() as usize).unwrap();
    let store = Arc::new(MemoryStore::new(BLOCKS * BLOCK).unwrap());
    Volume::open(config, store, &memory, Handle::current()).unwrap()
}

/// Sends all steps through a session, as one batch.
async fn together(session: &mut Hints, steps: &[Step]) {
    let base = session.base;
    let (mut requests, mut answers) = (Vec::new(), Vec::<Awaited>::new());
    for step in steps {
        let (reply, awaited) = Reply::detached();
        answers.push(awaited);
        let (command, offset, length) = match step {
            Step::Message(hints) => {
                let mut bytes = bytes::BytesMut::new();
                hints.iter().for_each(|hint| hint.put(&mut bytes));
                let length = bytes.len() as u64;
                (Command::Write { data: vec![bytes.freeze()] }, base, length)
            }
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
                let mut bytes = bytes::BytesMut::new();
                hints.iter().for_each(|hint| hint.put(&mut bytes));
                let (bytes, arrived) = (bytes.len() as u64, Instant::now());
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
    let clock = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let given = std::env::var("UNDERCROFT_SEED").ok();
    let seed = given.map_or_else(clock, |seed| seed.parse().unwrap());
    println!("UNDERCROFT_SEED={seed}");
    let mut random = Random(seed);
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
        let place = WindowLayout::of_volume(&ours, true);
        let query = "x-undercroft:coop;v=1;client=1;want=evict,demote,promote,hold";
        let contexts = place.contexts(query, &ours, 7);
        let status: Status = Arc::new(|_| Bytes::new());
        let mut session = Hints::connect(&ours, &contexts, place.base(), status).unwrap();
        let member = theirs.join(Some(1.into())).unwrap().unwrap();
        let _teller = Teller::new(Arc::clone(&member));
        for _ in 0..300 {
            let mut steps = Vec::new();
            for _ in 0..random.below(6) {
                steps.push(Step::Message(random.message()));
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
