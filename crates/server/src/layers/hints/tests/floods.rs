//! The largest message of each kind, at a large cache: the work that it causes is bounded and
//! charged, and what is beyond is refused and counted.

use std::time::Duration;

use undercroft_hints::{Follow, Following};

use super::*;
use crate::volume::hint_batch::BLOCKS_MAX;
use crate::volume::tests::read;

const CACHE: u32 = 20_000;

/// No message may take so long, on any machine. With a walk of the cache for each record it would
/// take many minutes.
const LONGEST: Duration = Duration::from_secs(30);

async fn volume(policy: &str, shards: u32) -> Arc<Volume> {
    let config = VolumeConfig::new("test", CACHE, Spec::parse(policy).unwrap());
    let volume = open(VolumeConfig { shards, ..config }, CACHE.into());
    read(&volume, 0..CACHE.into()).await;
    volume
}

/// Sends a message. Returns the answer, and the work that is charged.
async fn send(session: &mut Hints, hints: &[Hint]) -> (Answer, u64) {
    let (command, offset, length) = message(session, hints);
    let (reply, awaited) = Reply::detached();
    let began = Instant::now();
    let request = Request { command, offset, length, durable: false, reply };
    let work = session.serve(&mut vec![request]);
    let answer = awaited.await;
    assert!(began.elapsed() < LONGEST, "{:?}", began.elapsed());
    (answer, work)
}

fn follow() -> Hint {
    Hint::Follow(Follow {
        what: Following::Digest,
        filter_bits: 64,
        hashes: 16,
        publish_ppm: 0,
        capacity_blocks: u64::MAX,
    })
}

#[tokio::test]
async fn a_message_of_follow_records_does_no_more_than_one() {
    for policy in ["lru", "lru-ca,knows=bloom"] {
        let volume = volume(policy, 2).await;
        let mut one = session(&volume, 1, "follow");
        let (answer, work) = send(&mut one, &[follow()]).await;
        assert!(matches!(answer, Answer::Done) && work > 100, "{answer:?} {work}");
        drop(one);
        let mut many = session(&volume, 2, "follow");
        let (answer, more) = send(&mut many, &vec![follow(); 43_690]).await;
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        // Beside one for each record.
        assert!((43_690..43_690 + 2 * work).contains(&more), "{more}");
        let ignored = volume.stats().aware.map_or(0, |aware| aware.ignored_hints);
        assert!(policy == "lru" || ignored == 43_689, "{ignored}");
    }
}

#[tokio::test]
async fn too_many_followers_are_told_so() {
    let volume = volume("lru", 1).await;
    let mut sessions = Vec::new();
    for client in 0..64 {
        let mut one = session(&volume, client, "follow");
        assert!(matches!(send(&mut one, &[follow()]).await.0, Answer::Done));
        sessions.push(one);
    }
    let mut late = session(&volume, 64, "follow");
    let (answer, _) = send(&mut late, &[follow()]).await;
    let Answer::Failed(Failure::NoMemory, text) = answer else { panic!("{answer:?}") };
    assert!(text.contains("64 clients follow"), "{text}");
    sessions.pop();
    assert!(matches!(send(&mut late, &[follow()]).await.0, Answer::Done));
}

/// A whole filter of so many bits, all set.
fn whole(bits: u32, sequence: u32) -> [Hint; 2] {
    let (hashes, seed) = (16, sequence as u8);
    let filter = vec![0xff; bits.div_ceil(8) as usize].into();
    let changes = Hint::Changes { bits, hashes, seed, sequence, positions: Bytes::new() };
    [Hint::Digest { bits, hashes, seed, part: 0, filter }, changes]
}

#[tokio::test]
async fn a_message_of_summaries_has_a_budget_of_work() {
    for shards in [1, 4] {
        let volume = volume("lru-ca,knows=bloom", shards).await;
        let mut one = session(&volume, 1, "digest");
        // Each of another shape, so that nothing of the last one is of use.
        let all: Vec<_> = (0..20_000).flat_map(|n| whole(8 + n % 9, n)).collect();
        let (answer, work) = send(&mut one, &all).await;
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        assert!(work <= 2 * BLOCKS_MAX, "{work}");
        let aware = volume.stats().aware.unwrap();
        let taken = (aware.summaries + aware.summaries_unusable) / u64::from(shards);
        assert_eq!(taken + aware.ignored_hints, 20_000, "{aware:?}");
        assert!(aware.summaries > 0 && aware.ignored_hints > 0, "{aware:?}");
        // Changes of all bits, after the filter that they change.
        let (bits, hashes, seed) = (8, 16, 1);
        let mut all = whole(bits, 1).to_vec();
        let positions = Bytes::from_static(&[0; 2]);
        let changes =
            |sequence| Hint::Changes { bits, hashes, seed, sequence, positions: positions.clone() };
        all.extend((2..32_000).map(changes));
        let before = volume.stats().aware.unwrap();
        let (_, work) = send(&mut one, &all).await;
        assert!(work <= 2 * BLOCKS_MAX, "{work}");
        let after = volume.stats().aware.unwrap();
        assert!(after.summaries > before.summaries && after.ignored_hints > before.ignored_hints);
    }
}

#[tokio::test]
async fn parts_of_filters_that_are_never_completed_are_bounded() {
    let volume = volume("lru-ca,knows=bloom", 1).await;
    let most = CACHE as usize * 64 / 8;
    let bits = CACHE * 64;
    let parts =
        |part| Hint::Digest { bits, hashes: 4, seed: 0, part, filter: vec![1; 64 << 10].into() };
    let all: Vec<_> = (0..2).map(parts).collect();
    let mut sessions = Vec::new();
    for client in 0..100 {
        let mut one = session(&volume, client, "digest");
        send(&mut one, &all).await;
        sessions.push(one);
    }
    let held = volume.clients.assembling.load(std::sync::atomic::Ordering::Relaxed);
    assert!((most..=17 * most).contains(&held), "{held}");
    assert!(volume.stats().aware.unwrap().ignored_hints > 0);
    drop(sessions);
    assert_eq!(volume.clients.assembling.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn numbers_of_clients_that_left_come_back() {
    let volume = volume("lru-ca", 2).await;
    let stays = session(&volume, 1_000_000, "evict,hold");
    let number = |session: &Hints| session.window.member.as_ref().unwrap().caller().client;
    let mut seen = 0_u64;
    for client in 0..500 {
        // Forgetting goes on meanwhile, and holds nobody up.
        let one = session(&volume, client, "evict,hold");
        assert_ne!(number(&one), number(&stays));
        seen |= 1_u64.checked_shl(number(&one).into()).unwrap_or(0);
        if number(&one) == 64 {
            let deadline = Instant::now() + LONGEST;
            drop(one);
            while number(&session(&volume, client, "evict,hold")) == 64 {
                assert!(Instant::now() < deadline, "numbers do not become free");
                tokio::task::yield_now().await;
            }
        }
    }
    assert_eq!(seen.count_ones(), 63);
}
