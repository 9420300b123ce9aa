//! Summaries of a cache, made in steps while it changes: what is published is what it holds, and no
//! question does more than its step.

use undercroft_hints::{Assembly, parse_told};
use undercroft_level::content::{Body, CountingFilter, Filter};
use undercroft_policy::Spec;

use super::*;
use crate::config::VolumeConfig;
use crate::volume::tests::{open, read};

const CACHE: u32 = 20_000;

fn volume(cache: u32, shards: u32) -> Arc<Volume> {
    let config = VolumeConfig::new("test", cache, Spec::parse("lru").unwrap());
    open(VolumeConfig { shards, ..config }, 10 * u64::from(cache))
}

fn follow() -> Follow {
    Follow {
        what: Following::Digest,
        filter_bits: 16,
        hashes: 4,
        publish_ppm: 10_000,
        capacity_blocks: 1000,
    }
}

/// The filter that a follower makes of what it is told.
#[derive(Default)]
struct Told {
    assembly: Assembly,
    follower: Option<undercroft_level::content::Follower>,
}

impl Told {
    /// Asks once; returns the work, and whether there is more.
    fn ask(&mut self, follower: &mut Follower) -> (u64, bool) {
        let (bytes, work) = follower.tell(1 << 20);
        let told = parse_told(&bytes).unwrap();
        for hint in &told.hints {
            let Some(digest) = self.assembly.take(hint, u32::MAX) else { continue };
            if matches!(digest.publication.body, Body::Whole(_)) {
                let shape = digest.shape;
                self.follower = Some(undercroft_level::content::Follower::of_shape(shape));
            }
            self.follower.as_mut().unwrap().apply(&digest.publication).unwrap();
        }
        (work, told.more > 0)
    }

    /// Asks until all is told.
    fn ask_all(&mut self, follower: &mut Follower) {
        while self.ask(follower).1 {}
    }

    fn filter(&self) -> Filter {
        self.follower.as_ref().unwrap().filter().clone()
    }
}

/// The filter of what the volume holds.
fn held(volume: &Arc<Volume>, like: &Filter) -> Filter {
    let mut all = CountingFilter::new(like.shape());
    for shard in volume.shards.each() {
        let residents = shard.blocks.level.cache().residents();
        residents.into_iter().for_each(|(block, _)| all.insert(block, |_| ()));
    }
    all.bits()
}

#[tokio::test]
async fn a_summary_is_exact_although_the_cache_changes_while_it_is_made() {
    for shards in [1, 3] {
        let volume = volume(CACHE, shards);
        read(&volume, 0..CACHE.into()).await;
        // The blocks that leave next are not the first ones to be summarized.
        read(&volume, 0..10_000).await;
        let (follower, work) = Follower::new(&volume, follow()).unwrap();
        let mut follower = follower.unwrap();
        let step = 8192 * 4 / HASHED_FOR_ONE + 100;
        assert!((1..step).contains(&work), "{work}");
        let (mut told, mut steps) = (Told::default(), 0);
        let mut next = CACHE.into();
        loop {
            // Blocks leave that are in it and that are not, and some come back.
            read(&volume, next..next + 700).await;
            let old = next - u64::from(CACHE) + 10_000;
            read(&volume, old..old + 100).await;
            next += 700;
            let (work, is_more) = told.ask(&mut follower);
            steps += 1;
            assert!(work < 2 * step, "{work}");
            if !is_more {
                break;
            }
            assert!(told.follower.is_none(), "nothing is published before it is complete");
        }
        assert!(steps >= CACHE / 8192, "{steps}");
        // What was published last is at most one period old. Of the blocks of that time none is
        // left in the end, and so nothing in the summary.
        for _ in 0..5 {
            read(&volume, next..next + 5000).await;
            told.ask_all(&mut follower);
            next += 5000;
        }
        let filter = told.filter();
        assert_eq!(filter, held(&volume, &filter), "{shards} shards");
        // A second follower shares it, and costs next to nothing.
        let (second, work) =
            Follower::new(&volume, Follow { filter_bits: 64, ..follow() }).unwrap();
        assert!(work <= 1, "{work}");
        let mut second_told = Told::default();
        second_told.ask_all(&mut second.unwrap());
        assert_eq!(second_told.filter(), filter);
        // Changes that were lost make all of it begin anew.
        read(&volume, next..next + CHANGES_MAX as u64 * 2 / 3).await;
        told.ask_all(&mut follower);
        let filter = told.filter();
        assert_eq!(filter, held(&volume, &filter), "{shards} shards, anew");
        drop(follower);
        assert!(sleep_lock(&volume.feed).summary.is_none() && sleep_lock(&volume.feed).unread == 0);
    }
}

#[tokio::test]
async fn followers_are_counted_and_what_they_do_not_read_is_bounded() {
    let cache = 200_000;
    let volume = volume(cache, 1);
    let large = Follow { filter_bits: 64, ..follow() };
    read(&volume, 0..5000).await;
    let mut all: Vec<_> =
        (0..FOLLOWERS_MAX).map(|_| Follower::new(&volume, large).unwrap().0.unwrap()).collect();
    assert_eq!(Follower::new(&volume, follow()).err(), Some(NoRoom));
    // They ask for so little that all stays unread.
    let whole = cache as usize * 64 / 8;
    assert!(FOLLOWERS_MAX * whole > UNREAD_MAX + whole);
    for round in 0..20 {
        read(&volume, 5000 + round * 500..5500 + round * 500).await;
        all.iter_mut().for_each(|follower| _ = follower.tell(64));
        let unread = sleep_lock(&volume.feed).unread;
        assert_eq!(unread, all.iter().map(|follower| follower.unread).sum::<usize>());
        assert!(unread <= UNREAD_MAX + whole, "{unread}");
    }
    assert!(sleep_lock(&volume.feed).unread > UNREAD_MAX - whole);
    all.truncate(1);
    assert!(Follower::new(&volume, follow()).is_ok());
    all.clear();
    assert_eq!(sleep_lock(&volume.feed).unread, 0);
}
