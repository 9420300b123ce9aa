//! Levels that know each other by messages alone, against the scheme composed: the same references
//! must leave the same blocks at the same levels, and the same counts.

use undercroft_cache::Reference;
use undercroft_cache::movement::{
    Bid, Build, EvictedBlock, Gauges, LinkCounts, Move, Pass, RemoteLevel, Requester, SchemeSpec,
    Topology,
};

use crate::support::{Random, seeds};

/// Levels one below the other, each with what it has been told of the time.
struct Line {
    levels: Vec<RemoteLevel>,
    /// References of the client.
    now: u64,
    /// Until when each level has been told.
    told: Vec<u64>,
}

impl Line {
    fn new(text: &str, sizes: &[u32], seed: u64) -> Self {
        let scheme: SchemeSpec = text.parse().unwrap();
        let last = sizes.len() - 1;
        let level = |(i, &size): (usize, &u32)| {
            let mut level = RemoteLevel::new(&scheme, size, 4096, i < last, seed, seed).unwrap();
            let sum = |sizes: &[u32]| sizes.iter().map(|&size| u64::from(size)).sum();
            let (above, below): (u64, u64) = (sum(&sizes[..i]), sum(&sizes[i + 1..]));
            match i {
                0 => level.stand_alone(below),
                i => level.introduce(0, above, i as u16, below),
            }
            level
        };
        let levels = sizes.iter().enumerate().map(level).collect();
        Self { levels, now: 0, told: vec![0; sizes.len()] }
    }

    fn tell_time(&mut self, i: usize) {
        self.levels[i].pass_time(self.now - self.told[i]);
        self.told[i] = self.now;
    }

    fn reference(&mut self, block: u64, is_write: bool) -> Option<usize> {
        self.now += 1;
        let mut asked = Vec::new();
        let mut found = None;
        let mut pass = Pass::Fresh { nearest: 0.0 };
        for i in 0..self.levels.len() {
            self.tell_time(i);
            let upper = i.checked_sub(1).map(|above| self.levels[above].bid());
            let asking = Requester { upper, owner: 0 };
            let reached = self.levels[i].reference(block, is_write, asking, || false);
            let left = self.levels[i].left();
            self.leave(i, left);
            if let Some(said) = reached.pass {
                (found, pass) = (Some(i), said);
                break;
            }
            asked.push(asking);
        }
        for (i, asking) in asked.into_iter().enumerate().rev() {
            pass = self.levels[i].arrive(block, is_write, asking, pass).0;
            let left = self.levels[i].left();
            self.leave(i, left);
        }
        // What is written is told to all.
        let lowest = found.filter(|_| is_write).unwrap_or(self.levels.len());
        for i in lowest + 1..self.levels.len() {
            self.tell_time(i);
            self.levels[i].passes_write();
        }
        found
    }

    fn leave(&mut self, i: usize, left: Option<EvictedBlock>) {
        let Some(EvictedBlock { block, load: Some(load), exchanges, awaits }) = left else {
            return;
        };
        self.tell_time(i + 1);
        let (_, heat) = self.levels[i + 1].demoted(block, 0, load, exchanges).expect("once");
        let further = self.levels[i + 1].left();
        self.leave(i + 1, further);
        let Some(heat) = heat else { return };
        let Some(risen) = self.levels[i + 1].exchange(block, heat) else { return };
        assert!(awaits, "an exchange that nobody waits for");
        self.levels[i].exchanged(risen.block, risen.owner, risen.load).expect("once");
        let left = self.levels[i].left();
        self.leave(i, left);
    }
}

/// What the moves of the composed scheme come to at each level, and what was driven out there.
#[derive(Clone, Default)]
struct Tally {
    links: LinkCounts,
    evictions: u64,
}

fn tally(tallies: &mut [Tally], entry: u32, found: Option<usize>, moves: &[Move]) {
    for one in moves {
        match *one {
            Move::Demoted(_, node) => {
                tallies[node].links.demotions_in += 1;
                tallies[node - 1].evictions += 1;
            }
            Move::Promoted(moved, node) => {
                tallies[node].links.promotions_in += 1;
                tallies[node].links.exchanges_in += u64::from(moved != entry);
                let from = if moved == entry { found.unwrap() } else { node + 1 };
                tallies[from].links.promotions_out += 1;
            }
            Move::Dropped(_, node) => tallies[node].evictions += 1,
            _ => {}
        }
    }
}

#[test]
fn levels_apart_do_what_levels_composed_do() {
    for seed in seeds(8) {
        let mut random = Random(seed);
        for options in ["", "period=4,entries=8", "period=3,entries=2,k=2", "fmin=0,entries=64"] {
            for name in ["d-hfa", "p-hfa,probability=fixed", "p-hfa", "h-hfa", "hint-k"] {
                let is_plain = options.is_empty();
                if name == "hint-k" && !is_plain {
                    continue;
                }
                let text = if is_plain { name.to_owned() } else { format!("{name},{options}") };
                let levels = 2 + random.below(2);
                let sizes: Vec<u32> = (0..levels).map(|_| 1 + random.below(9)).collect();
                compare(&text, &sizes, seed, &mut random);
            }
        }
    }
}

fn compare(text: &str, sizes: &[u32], seed: u64, random: &mut Random) {
    let topology = Topology::line(sizes).unwrap();
    let spec: SchemeSpec = text.parse().unwrap();
    let mut composed = spec.build(Build { seed, ..Build::new(&topology) }).unwrap();
    composed.grow(40);
    let mut apart = Line::new(text, sizes, seed);
    let mut tallies = vec![Tally::default(); sizes.len()];
    let blocks = 4 + random.below(30);
    for step in 0..400 {
        let (entry, is_write) = (random.block(blocks), random.below(4) == 0);
        let mut moves = Vec::new();
        let found = composed.reference(0, Reference::new(entry, is_write), &mut moves);
        let found_apart = apart.reference(entry.into(), is_write);
        for level in &apart.levels {
            level.validate().unwrap_or_else(|what| panic!("seed {seed}, {text}: {what}"));
        }
        let at = format!("seed {seed}, {text} over {sizes:?}, step {step}, block {entry}");
        assert_eq!(found_apart, found, "{at}");
        tally(&mut tallies, entry, found, &moves);
        for (node, (level, tally)) in apart.levels.iter().zip(&tallies).enumerate() {
            for other in 0..40 {
                let is_here = level.frame(other.into()).is_some();
                let composed = composed.holds(node, other);
                assert_eq!(is_here, composed, "{at}: {other} at {node}: {moves:?}");
            }
            assert_eq!(level.link_counts(), tally.links, "{at}: level {node}");
            assert_eq!(level.counts().evictions, tally.evictions, "{at}: level {node}");
            let probability = |gauges: Option<Gauges>| gauges.map(|gauges| gauges.probability);
            let (ours, composed) = (level.gauges(), composed.gauges(node));
            assert_eq!(probability(ours), probability(composed), "{at}: level {node}");
        }
    }
}

#[test]
fn what_cannot_be_is_not_believed() {
    let scheme: SchemeSpec = "h-hfa,steps=2,period=3,entries=4".parse().unwrap();
    let mut level = RemoteLevel::new(&scheme, 3, 4096, true, 1, 1).unwrap();
    level.introduce(7, u64::MAX, u16::MAX, u64::MAX);
    level.pass_time(u64::MAX);
    let mut random = Random(seeds(1)[0]);
    let strange = [f64::NAN, f64::INFINITY, -1.0, 1e300, 0.5];
    for step in 0..300_u64 {
        let load = undercroft_cache::movement::Load {
            frequency: strange[random.below(5) as usize],
            history: random.below(256) as u8,
        };
        level.pass_time(random.below(9).into());
        level.demoted(step % 17, 7, load, true);
        let nearest = load.frequency;
        let pass = Pass::Moved { load, nearest };
        level.arrive(step % 13, false, Requester::default(), pass);
        level.exchanged(step % 11, 9, load);
        level.discard(step % 5);
        let upper = Some(Bid { life: u64::MAX, ..Bid::default() });
        level.reference(step % 7, false, Requester { upper, owner: 200 }, || false);
        level.validate().unwrap_or_else(|what| panic!("step {step}: {what}"));
    }
    let known: SchemeSpec = "demote".parse().unwrap();
    assert!(RemoteLevel::new(&known, 3, 4096, true, 1, 1).is_err());
}
