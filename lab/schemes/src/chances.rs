//! The probabilities with which a cache passes blocks up, and the random draws that decide. PROMOTE
//! adapts each probability until blocks live as long in this cache as in the cache above (Gill,
//! FAST 2008, the section "Adapting probPromote").

use std::collections::VecDeque;

use undercroft_random::SplitMix64;

use super::level::LevelConfig;
use undercroft_policy::{Arguments, Kind, Parameter};

/// The option that selects adaptive or fixed probabilities.
pub(super) const CHANCE: Parameter = Parameter {
    name: "probability",
    kind: Kind::Word(&["adaptive", "fixed"]),
    default: "adaptive",
    help: "whether the probability of passing a block up adapts, or stays where it starts",
};

/// The option for the initial probability.
pub(super) const START: Parameter = Parameter {
    name: "start",
    kind: Kind::Real(-1.0, 1.0),
    default: "-1",
    help: "probability at the start, at every level but the first; -1: the sizes above / the sizes \
           down to the level, which is also the most that an adaptive one may become",
};

/// The share of a lifetime that must pass between two receipts. Also the share by which the ratio
/// must have approached its target since the last receipt for the probability to stay unchanged.
const SHARE: f64 = 0.05;

/// The probabilities of one cache, one for each cache above it.
pub(super) struct Chances {
    /// Indexed by the number of the cache above.
    of: Vec<Option<Chance>>,
    coins: Coins,
    capacity: u32,
    start: f64,
    is_adaptive: bool,
}

impl Chances {
    pub(super) fn new(arguments: &Arguments, config: &LevelConfig<'_>) -> Self {
        Self {
            of: Vec::new(),
            coins: Coins::new(config.seed, config.draws),
            capacity: config.capacity,
            start: arguments.real("start"),
            is_adaptive: arguments.word("probability") == "adaptive",
        }
    }

    /// Introduces the cache above with the number `upper`. `blocks`: of all caches on its way.
    pub(super) fn introduce(&mut self, upper: u16, blocks: u64) {
        let at = usize::from(upper);
        if self.of.len() <= at {
            self.of.resize(at + 1, None);
        }
        self.of[at] = Some(Chance::new(self.start, self.is_adaptive, blocks, self.capacity));
    }

    fn above(&self, upper: u16) -> Option<&Chance> {
        self.of.get(usize::from(upper))?.as_ref()
    }

    /// Draws whether a block passes to the cache `upper`, with its adapted probability.
    pub(super) fn passes(&mut self, upper: u16) -> bool {
        let Some(&Chance { probability, .. }) = self.above(upper) else { return false };
        self.coins.draw() < probability
    }

    /// Draws whether a block passes to the cache `upper`, with the probability that the sizes give.
    pub(super) fn passes_by_size(&mut self, upper: u16) -> bool {
        let Some(&Chance { most, .. }) = self.above(upper) else { return false };
        self.coins.draw() < most
    }

    /// The cache above with the number `upper` reports its life. `lives`: of that cache and of this
    /// one, in references; 0 for a cache that is not full yet. A report counts only if a twentieth
    /// of this cache's life has passed since the last one that counted, and that life is longer
    /// than half the capacity.
    ///
    /// A life of 0 is ignored (ours). Otherwise an empty cache above would look like one whose
    /// blocks leave early. It would be sent fewer blocks, and stay empty.
    pub(super) fn hear(&mut self, upper: u16, now: u64, lives: [f64; 2]) {
        if let Some(Some(chance)) = self.of.get_mut(usize::from(upper)) {
            if self.is_adaptive {
                chance.hear(self.capacity, now, lives);
            }
        }
    }

    /// The probability for the first cache above; 0 without one.
    pub(super) fn first(&self) -> f64 {
        self.of.iter().flatten().next().map_or(0.0, |chance| chance.probability)
    }

    /// Checks that no probability is out of bounds.
    pub(super) fn validate(&self) -> Result<(), String> {
        for Chance { probability, most, .. } in self.of.iter().flatten() {
            if self.is_adaptive && !(0.0..=*most).contains(probability) {
                return Err(format!("probability {probability} above {most}"));
            }
        }
        Ok(())
    }
}

/// What a cache knows of one cache above it.
#[derive(Clone, Copy)]
struct Chance {
    probability: f64,
    most: f64,
    /// Ratio of lives at the last receipt; `None` before the first.
    previous: Option<f64>,
    receipts: u64,
    last_receipt: u64,
}

impl Chance {
    /// For a cache of `own` blocks below caches of `upper` blocks in all.
    fn new(start: f64, is_adaptive: bool, upper: u64, own: u32) -> Self {
        let upper = upper as f64;
        let most = upper / (upper + f64::from(own));
        let probability = match (start < 0.0, is_adaptive) {
            (true, _) => most,
            (false, true) => start.min(most),
            (false, false) => start,
        };
        Self { probability, most, previous: None, receipts: 0, last_receipt: 0 }
    }

    /// See [`Chances::hear`].
    fn hear(&mut self, capacity: u32, now: u64, [upper, own]: [f64; 2]) {
        let passed = (now - self.last_receipt) as f64;
        let is_due = passed >= SHARE * own && own > f64::from(capacity) / 2.0;
        if upper > 0.0 && is_due {
            self.last_receipt = now;
            self.adapt(upper / (upper + own));
        }
    }

    /// Handles a ratio of lives, upper / (upper + own). The first receipt changes the probability.
    /// After that, every second receipt may change it, unless the ratio already approaches 1/2.
    fn adapt(&mut self, ratio: f64) -> bool {
        self.receipts += 1;
        let previous = self.previous.replace(ratio);
        let works = |previous: f64| {
            (ratio > 0.5 && previous - ratio >= SHARE * (previous - 0.5))
                || (ratio < 0.5 && ratio - previous >= SHARE * (0.5 - previous))
        };
        let changes = match previous {
            None => true,
            Some(previous) => self.receipts % 2 == 0 && !works(previous),
        };
        if changes {
            let p = self.probability;
            self.probability = (p + p * (1.0 - p) * (2.0 * ratio - 1.0)).clamp(0.0, self.most);
        }
        changes
    }
}

/// Random numbers in [0, 1).
struct Coins {
    stream: SplitMix64,
    /// Numbers that are returned before random ones: for worked examples.
    script: VecDeque<f64>,
}

impl Coins {
    fn new(seed: u64, script: &[f64]) -> Self {
        Self { stream: SplitMix64::new(seed), script: script.iter().copied().collect() }
    }

    /// The next number.
    fn draw(&mut self) -> f64 {
        self.script.pop_front().unwrap_or_else(|| self.stream.next_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::{Chance, Coins};

    #[test]
    fn rng_1_of_the_specification() {
        let mut coins = Coins::new(42, &[0.5]);
        assert_eq!(coins.draw(), 0.5, "the script comes first");
        let first: Vec<f64> = (0..4).map(|_| coins.draw()).collect();
        assert_eq!(
            first,
            [0.7415648787718233, 0.1599103928769201, 0.27860113025513866, 0.34419071652363753]
        );
    }

    /// `promote-adapt-1` of the specification.
    #[test]
    fn probabilities_adapt_as_in_the_worked_example() {
        let third = 1.0 / 3.0;
        let mut chance = Chance {
            probability: third,
            most: third,
            previous: None,
            receipts: 0,
            last_receipt: 0,
        };
        for (upper, own, changes, probability) in [
            (100.0, 300.0, true, 0.222222),
            (110.0, 290.0, false, 0.222222),
            (180.0, 220.0, false, 0.222222),
            (190.0, 210.0, false, 0.222222),
            (191.0, 209.0, false, 0.222222),
            (300.0, 100.0, true, 0.308642),
        ] {
            assert_eq!(chance.adapt(upper / (upper + own)), changes, "{upper}");
            assert!((chance.probability - probability).abs() < 1e-6, "{upper}");
        }
    }
}
