//! What placement at eviction can count on, for the placement `auto`: which share of the evictions
//! comes with the block's contents, and what a reload costs. This is ours.
//!
//! Contents cost the client a copy, so while the level places blocks at the access it asks for them
//! only now and then: until it has seen what becomes of a number of evictions. Then it rests for
//! many times that number.

/// Evictions of which the share with contents is counted at a time.
const COUNTED: u32 = 1024;

/// Evictions between the first with contents and the first that counts. News that was on its way
/// when contents were asked for has none, and may come later.
const GRACE: u32 = 1024;

/// Evictions for which the level then rests, while it has no other use for contents.
const REST: u32 = 15 * COUNTED;

/// If so many evictions come without contents, although they were asked for, the client cannot hand
/// any over.
const PATIENCE: u32 = 16 * COUNTED;

/// The means of placing evicted blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    /// The share of evictions that come with contents, from 0 to 1.
    share: f64,
    /// Evictions counted at present, with contents and in all. The count begins some time after the
    /// first that has contents, since the client learns late that they are wanted.
    with_contents: u32,
    counted: u32,
    /// Evictions still to come before the count begins; `None` until one has contents.
    grace: Option<u32>,
    /// Evictions that came before the count began.
    awaited: u32,
    /// Evictions still to come before contents are asked for again.
    resting: u32,
    /// The share of time, from 0 to 1, in which clients keep the store busy.
    busy: f64,
    contents: Portion,
    reloads: Portion,
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
            with_contents: 0,
            counted: 0,
            grace: None,
            awaited: 0,
            resting: 0,
            busy: 1.0,
            contents: Portion::default(),
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
        match &mut self.grace {
            None if has_contents => {
                self.grace = Some(GRACE);
                return;
            }
            None => {
                self.awaited += 1;
                if self.awaited == PATIENCE {
                    self.share = 0.0;
                    self.rest();
                }
                return;
            }
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                return;
            }
        }
        self.counted += 1;
        self.with_contents += u32::from(has_contents);
        if self.counted == COUNTED {
            self.share = f64::from(self.with_contents) / f64::from(self.counted);
            self.rest();
        }
    }

    fn rest(&mut self) {
        (self.counted, self.with_contents, self.awaited) = (0, 0, 0);
        self.grace = None;
        self.resting = REST;
    }

    /// Whether an eviction without contents would have had them, had they been asked for.
    pub(super) fn would_have_contents(&mut self) -> bool {
        self.counted == 0 && self.contents.takes(self.share)
    }

    /// Whether a reload would get its turn: as often as the store is idle.
    pub(super) fn would_be_reloaded(&mut self) -> bool {
        self.reloads.takes(1.0 - self.busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(times: u32, mut event: impl FnMut() -> bool) -> u32 {
        (0..times).map(|_| u32::from(event())).sum()
    }

    #[test]
    fn learns_the_share_with_contents_and_asks_now_and_then() {
        let mut supply = Supply::default();
        assert!(supply.asks() && count(100, || supply.would_have_contents()) == 0);
        // The client learns late that contents are wanted, and older news comes in between. Then
        // three of four have them.
        (0..1000).for_each(|_| supply.evicted(false, false));
        supply.evicted(true, false);
        (0..GRACE).for_each(|_| supply.evicted(false, false));
        (0..COUNTED).for_each(|n| supply.evicted(n % 4 != 3, false));
        assert!(!supply.asks());
        assert_eq!(count(1000, || supply.would_have_contents()), 750);
        (0..REST).for_each(|_| supply.evicted(false, false));
        assert!(supply.asks());
        // Now it hands nothing over any more.
        (0..PATIENCE).for_each(|_| supply.evicted(false, false));
        assert!(!supply.asks());
        assert_eq!(count(1000, || supply.would_have_contents()), 0);
    }

    #[test]
    fn while_contents_are_of_use_the_share_follows() {
        let mut supply = Supply::default();
        for share in [1, 4, 2] {
            (0..8 * COUNTED).for_each(|n| supply.evicted(n % share == 0, true));
            let expected = 1.0 / f64::from(share);
            assert!((supply.share - expected).abs() < 0.01, "{}", supply.share);
        }
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
