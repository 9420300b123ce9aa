//! What placement at eviction can count on, for the placement `auto`: which share of the evictions
//! comes with the block's contents, and what a reload costs. This is ours.
//!
//! Contents cost the client a copy, so while the level places blocks at the access it asks for them
//! only now and then: until it knows the share. Then it rests, so that at most one eviction in
//! sixteen comes with contents.
//!
//! A client can hand over only what it read or wrote after it was asked. So the share is small at
//! first, and rises the slower the larger the client's cache is. It is counted in spans, each with
//! twice the contents of the one before, until it rises no more.

/// Evictions with contents in the first span of a count.
const FIRST: u64 = 512;

/// The first span also ends after so many evictions. Then so few have contents that the level need
/// not rest.
const LONGEST: u64 = 128 * FIRST;

/// The share rises if it is this many times that of the span before.
const RISES: f64 = 1.1;

/// At most one eviction in this many comes with contents, while the level has no other use for
/// them.
const RARITY: u64 = 16;

/// So many evictions with contents more than the known share has are made up for, by as many
/// without.
const AHEAD: f64 = 16.0;

/// The means of placing evicted blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// The share of evictions that come with contents, from 0 to 1.
    share: f64,
    /// The span that is counted.
    span: Span,
    /// Evictions with contents that end it, if they come while its share is more than the last.
    goal: u64,
    /// The spans of this count that have ended, in one.
    ended: Span,
    /// The share of the last of them.
    last: Option<f64>,
    /// Evictions still to come before contents are asked for again.
    resting: u64,
    /// Evictions that are to count as if they had contents.
    owed: f64,
    /// The share of time, from 0 to 1, in which clients keep the store busy.
    busy: f64,
    reloads: Portion,
}

/// Evictions that were counted.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    evictions: u64,
    with_contents: u64,
}

/// Takes a share of all events, evenly.
#[derive(Clone, Copy, Debug, Default)]
pub struct Portion(f64);

impl Portion {
    /// Whether this event is among the share, from 0 to 1.
    pub fn takes(&mut self, share: f64) -> bool {
        self.0 += share;
        let takes = self.0 >= 1.0;
        self.0 -= f64::from(u8::from(takes));
        takes
    }
}

impl Default for Supply {
    /// Nobody has handed anything over, and the store has no time for reloads.
    fn default() -> Self {
        Self {
            share: 0.0,
            span: Span::default(),
            goal: FIRST,
            ended: Span::default(),
            last: None,
            resting: 0,
            owed: 0.0,
            busy: 1.0,
            reloads: Portion::default(),
        }
    }
}

impl Supply {
    /// Sets the share of time, from 0 to 1, in which clients keep the store busy.
    pub(super) fn set_busy(&mut self, share: f64) {
        self.busy = share.clamp(0.0, 1.0);
    }

    /// The share of evictions that come with contents when these are asked for, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        self.share
    }

    /// What a reload costs, as a part of a read that a client waits for: it delays clients as often
    /// as they use the store.
    pub(super) fn reload_cost(&self) -> f64 {
        self.busy
    }

    /// Whether contents are asked for, to count them, while there is no other use for them.
    pub(super) fn asks(&self) -> bool {
        self.resting == 0
    }

    /// The client evicted a block, with its contents or without. `uses`: whether the level has a
    /// use for contents, so that it always asks for them.
    pub(super) fn evicted(&mut self, has_contents: bool, uses: bool) {
        if uses {
            self.resting = 0;
        } else if self.resting > 0 {
            self.resting -= 1;
            return;
        }
        self.span.evictions += 1;
        self.span.with_contents += u64::from(has_contents);
        // With more, its share is no more than the one before.
        let most = self.last.map_or(LONGEST, |last| (self.goal as f64 / (RISES * last)) as u64);
        let rises = self.span.with_contents == self.goal;
        if !rises && self.span.evictions < most {
            return;
        }
        let Span { evictions, with_contents } = std::mem::take(&mut self.span);
        let ended = &mut self.ended;
        ended.evictions += evictions;
        ended.with_contents += with_contents;
        let share = with_contents as f64 / evictions as f64;
        if rises {
            self.last = Some(share);
            self.goal *= 2;
        } else {
            self.share = share;
            self.resting = (RARITY * ended.with_contents).saturating_sub(ended.evictions);
            (self.ended, self.last, self.goal) = (Span::default(), None, FIRST);
        }
    }

    /// Whether an eviction would have had contents if they had always been asked for: it has them,
    /// or is among the known share.
    pub(super) fn would_have_contents(&mut self, has_contents: bool) -> bool {
        self.owed += self.share;
        let would_have = has_contents || self.owed >= 1.0;
        if would_have {
            self.owed = (self.owed - 1.0).max(-AHEAD);
        }
        would_have
    }

    /// Whether a reload would get its turn: as often as the store is idle.
    pub(super) fn would_be_reloaded(&mut self) -> bool {
        self.reloads.takes(1.0 - self.busy)
    }
}

#[cfg(test)]
mod tests {
    use undercroft_random::{SplitMix64, testing::seed_or};

    use super::*;

    fn count(times: u32, mut event: impl FnMut() -> bool) -> u32 {
        (0..times).map(|_| u32::from(event())).sum()
    }

    /// The numbers of evictions until the level knows the share of a client that hands over what it
    /// has read since it was asked, apart from one block in `loses`, and then until it asks again;
    /// and the share. The client evicts at random if there is a generator, else in order.
    fn asked(blocks: usize, loses: u64, mut random: Option<SplitMix64>) -> (u64, u64, f64) {
        let (mut supply, mut can) = (Supply::default(), vec![false; blocks]);
        let (mut asks, mut rests) = (0, 0);
        for n in 0.. {
            let at = random.as_mut().map_or(n, |random| random.below(blocks as u64));
            let can = &mut can[at as usize % blocks];
            let has_contents = std::mem::replace(can, supply.asks() && n % loses != 0);
            *if supply.asks() { &mut asks } else { &mut rests } += 1;
            supply.evicted(has_contents, false);
            if supply.asks() && rests > 0 {
                break;
            }
        }
        (asks, rests, supply.share)
    }

    #[test]
    fn a_client_is_asked_until_it_hands_over_all_that_it_can() {
        let random = || Some(SplitMix64::new(seed_or(1)));
        for blocks in [16, 1 << 10, 1 << 12, 1 << 17] {
            let (asks, rests, share) = asked(blocks, u64::MAX, random());
            assert!(share > 0.9, "{blocks} blocks at random: {share}");
            assert!(asks < 16 * blocks as u64 + 4 * FIRST, "{blocks} blocks at random: {asks}");
            assert!(rests > 10 * asks, "{blocks} blocks at random: {rests} after {asks}");
            // What was evicted before its turn comes is all that is lost.
            let (asks, _, share) = asked(blocks, u64::MAX, None);
            assert!(share > 0.9, "{blocks} blocks in order: {share}");
            assert!(asks < 8 * blocks as u64 + 4 * FIRST, "{blocks} blocks in order: {asks}");
        }
        for loses in [2, 4] {
            let (_, rests, share) = asked(1 << 12, loses, random());
            let wanted = 1.0 - 1.0 / loses as f64;
            assert!((share - wanted).abs() < 0.06 && rests > 0, "of {wanted}: {share}");
        }
    }

    #[test]
    fn who_hands_nothing_over_is_asked_on() {
        let mut supply = Supply::default();
        (0..3 * LONGEST).for_each(|_| supply.evicted(false, false));
        assert!(supply.asks() && supply.share == 0.0);
        (0..4 * FIRST).for_each(|_| supply.evicted(true, false));
        assert!(!supply.asks() && supply.share == 1.0);
        // Now it hands nothing over any more.
        (0..RARITY * 4 * FIRST + LONGEST).for_each(|_| supply.evicted(false, false));
        assert!(supply.asks() && supply.share == 0.0);
        assert_eq!(count(100, || supply.would_have_contents(false)), 0);
    }

    /// A count that has grown long does not go on for as long as it could.
    #[test]
    fn a_client_that_stops_is_noticed_in_a_long_count() {
        let (mut supply, mut can) = (Supply::default(), vec![false; 1 << 17]);
        let mut random = SplitMix64::new(seed_or(1));
        while supply.goal < 1 << 16 {
            let can = &mut can[random.below(1 << 17) as usize];
            supply.evicted(std::mem::replace(can, true), false);
        }
        let most = LONGEST + (supply.goal as f64 / supply.last.unwrap()) as u64;
        (0..most).for_each(|_| supply.evicted(false, false));
        assert!(supply.goal == FIRST && supply.share < 0.1, "{supply:?}");
    }

    #[test]
    fn while_contents_are_of_use_the_share_follows() {
        let mut supply = Supply::default();
        for share in [1, 4, 2] {
            (0..32 * FIRST).for_each(|n| supply.evicted(n % share == 0, true));
            let expected = 1.0 / share as f64;
            assert!((supply.share - expected).abs() < 0.01, "{}", supply.share);
        }
    }

    #[test]
    fn the_known_share_would_have_contents_and_those_that_have_them_are_of_it() {
        let mut supply = Supply { share: 0.75, ..Supply::default() };
        assert_eq!(count(1000, || supply.would_have_contents(false)), 750);
        let mut n = 0;
        let mut third = || {
            n += 1;
            n % 3 == 0
        };
        assert_eq!(count(900, || supply.would_have_contents(third())), 675);
        assert_eq!(count(900, || supply.would_have_contents(true)), 900);
        // The next sixteen thirds of four are made up for.
        assert_eq!(count(1000, || supply.would_have_contents(false)), 734);
    }

    #[test]
    fn reloads_get_their_turn_as_often_as_the_store_is_idle() {
        let mut supply = Supply::default();
        assert_eq!(count(100, || supply.would_be_reloaded()), 0);
        supply.set_busy(0.75);
        assert_eq!(count(100, || supply.would_be_reloaded()), 25);
        supply.set_busy(-1.0);
        assert_eq!(count(100, || supply.would_be_reloaded()), 100);
    }
}
