//! The parts of a server's cache against the rule written down plainly, and which server a block
//! belongs to. A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use crate::cluster::{clients, cluster, held, rules, server};
use crate::support::{Random, seeds};
use undercroft_policy::policies;
use undercroft_sim::tree::{Division, Marginal, Shift, rendezvous};

// ------------------------------------------------------------------ parts

/// The rule for the parts written down plainly: a list of names for each client, newest first.
struct NaiveParts {
    capacity: usize,
    slice: usize,
    sizes: Vec<usize>,
    names: Vec<Vec<u64>>,
    gains: Vec<u64>,
    losses: Vec<u64>,
    references: usize,
}

impl NaiveParts {
    fn new(parts: usize, capacity: usize) -> Self {
        let size = |i| capacity / parts + usize::from(i < capacity % parts);
        Self {
            capacity,
            slice: (capacity / 64).max(1),
            sizes: (0..parts).map(size).collect(),
            names: vec![Vec::new(); parts],
            gains: vec![0; parts],
            losses: vec![0; parts],
            references: 0,
        }
    }

    fn read(&mut self, part: usize, block: u64, stays: bool) {
        let Some(depth) = self.names[part].iter().position(|&b| b == block) else { return };
        let (size, slice) = (self.sizes[part], self.slice);
        self.losses[part] += u64::from((size - slice..size).contains(&depth));
        self.gains[part] += u64::from((size..size + slice).contains(&depth));
        self.names[part].remove(depth);
        if stays {
            self.names[part].insert(0, block);
        }
    }

    fn placed(&mut self, part: usize, block: u64) {
        self.names[part].retain(|&b| b != block);
        self.names[part].insert(0, block);
        self.names[part].truncate(2 * self.sizes[part]);
    }

    fn tick(&mut self) -> Option<Shift> {
        self.references += 1;
        if self.references < self.capacity {
            return None;
        }
        self.references = 0;
        let most = *self.gains.iter().max().unwrap();
        let to = self.gains.iter().position(|&gain| gain == most).unwrap();
        let mut from = None;
        for i in (0..self.sizes.len()).filter(|&i| i != to && self.sizes[i] >= 2 * self.slice) {
            if from.is_none_or(|best: usize| self.losses[i] < self.losses[best]) {
                from = Some(i);
            }
        }
        let shift = from.filter(|&from| most as f64 > 1.1 * self.losses[from] as f64);
        self.gains.fill(0);
        self.losses.fill(0);
        let from = shift?;
        self.sizes[from] -= self.slice;
        self.sizes[to] += self.slice;
        self.names[from].truncate(2 * self.sizes[from]);
        Some(Shift { from, to, blocks: self.slice as u32 })
    }
}

#[test]
fn parts_follow_the_rule_written_down_plainly() {
    let mut moved = 0;
    for seed in seeds(20) {
        let mut random = Random(seed);
        let parts = 1 + random.below(5) as usize;
        let capacity = parts as u32 + random.below(if seed % 4 == 0 { 400 } else { 60 });
        let mut ours = Marginal::new(parts, capacity, seed).unwrap();
        let mut theirs = NaiveParts::new(parts, capacity as usize);
        for step in 0..4000 {
            let at = format!("UNDERCROFT_SEED={seed} step {step}");
            let part = random.below(parts as u32) as usize;
            // Clients of unlike needs.
            let block = u64::from(random.block((part as u32 + 1) * capacity / 2 + 2));
            match random.below(4) {
                0 => {
                    ours.discard(part, block);
                    theirs.names[part].retain(|&b| b != block);
                }
                1 => {
                    ours.placed(part, block);
                    theirs.placed(part, block);
                }
                stays => {
                    ours.read(part, block, stays == 2);
                    theirs.read(part, block, stays == 2);
                    ours.placed(part, block);
                    theirs.placed(part, block);
                }
            }
            assert_eq!(ours.tick(), theirs.tick(), "{at}");
            let sizes: Vec<_> = ours.sizes().map(|size| size as usize).collect();
            assert_eq!(sizes, theirs.sizes, "{at}");
            ours.validate().unwrap_or_else(|what| panic!("{at}: {what}"));
        }
        moved += ours.moved();
    }
    assert!(moved > 0, "no seed moved anything");
}

/// The parts always add up, in the caches too, and the client that has use for it gets more.
#[test]
fn the_client_that_gains_gets_the_room() {
    for placement in ["access", "eviction,on-hit=move", "eviction,on-hit=keep", "gl"] {
        for seed in seeds(3) {
            let mut random = Random(seed);
            let spec = server("lru", 200, placement, Division::Benefit);
            let mut ours = cluster(clients(2, "lru", 10), &[spec], rules(false, false));
            let mut scan = 1_000_000;
            for step in 0..40_000 {
                // One goes round 150 blocks at random, the other never comes back.
                if random.below(2) == 0 {
                    ours.reference(0, random.below(150).into(), false, false);
                } else {
                    scan += 1;
                    ours.reference(1, scan, false, true);
                }
                let parts = ours.servers(0)[0].parts().iter();
                let sizes: Vec<_> = parts.map(|part| part.policy().capacity()).collect();
                assert_eq!(sizes.iter().sum::<u32>(), 200, "UNDERCROFT_SEED={seed} step {step}");
                if step % 64 == 0 {
                    ours.validate().unwrap_or_else(|e| panic!("UNDERCROFT_SEED={seed}: {e}"));
                }
            }
            let first = ours.servers(0)[0].parts()[0].policy().capacity();
            assert!(first >= 140, "{placement} UNDERCROFT_SEED={seed}: {first}");
            assert!(ours.servers(0)[0].moved() >= 40);
        }
    }
}

/// Every policy keeps its structure while its part grows and shrinks, and holds no more than that.
#[test]
fn every_policy_bears_being_resized() {
    for info in policies().iter().filter(|info| info.name != "opt") {
        for placement in
            ["access", "eviction,on-hit=move", "eviction,on-hit=adaptive,staging=auto", "gl"]
        {
            for seed in seeds(2) {
                let mut random = Random(seed);
                let spec = server(info.name, 60 + random.below(200), placement, Division::Benefit);
                let capacity = spec.capacity;
                let mut ours = cluster(clients(3, "lru", 5), &[spec], rules(false, false));
                let at = format!("{} {placement} UNDERCROFT_SEED={seed}", info.name);
                let mut known = [0; 3];
                for step in 0..6000 {
                    // In turn each of them is the one with use for more.
                    let client = random.below(3) as usize;
                    let is_busy = client == (step / 2000) as usize;
                    let span = if is_busy { 2 * capacity / 3 } else { 100 * capacity };
                    let block = random.below(span);
                    let cold = u64::from(block) >= known[client];
                    known[client] = known[client].max(u64::from(block) + 1);
                    let block = u64::from(block) + client as u64 * 1_000_000;
                    ours.reference(client, block, random.below(6) == 0, cold);
                    if step % 32 == 0 {
                        ours.validate().unwrap_or_else(|e| panic!("{at} step {step}: {e}"));
                        let held = held(&ours.servers(0)[0]).len() as u32;
                        assert!(held <= capacity, "{at} step {step}: {held} of {capacity}");
                    }
                }
                assert!(ours.servers(0)[0].moved() > 0, "{at}");
            }
        }
    }
}

// ------------------------------------------------------------------ servers

#[test]
fn a_block_is_at_its_home_and_nowhere_else() {
    let specs: Vec<_> = [30, 20, 10]
        .map(|size| server("lru", size, "eviction,on-hit=move", Division::Shared))
        .to_vec();
    let mut ours = cluster(clients(3, "lru", 10), &specs, rules(true, false));
    let mut random = Random(1);
    for _ in 0..5000 {
        let client = random.below(3) as usize;
        ours.reference(client, random.block(300).into(), random.below(9) == 0, false);
    }
    for (number, server) in ours.servers(0).iter().enumerate() {
        let held = held(server);
        assert_eq!(held.len() as u32, specs[number].capacity);
        assert!(held.iter().all(|&block| rendezvous(block, 3) == number));
    }
}

#[test]
fn one_more_server_takes_its_share_and_moves_nothing_else() {
    for servers in 1..8 {
        let mut counts = vec![0; servers + 1];
        for block in 0..10_000 {
            let (before, after) = (rendezvous(block, servers), rendezvous(block, servers + 1));
            assert!(before == after || after == servers);
            counts[after] += 1;
        }
        let fair = 10_000 / (servers + 1);
        let is_fair = |&count: &usize| count > fair * 9 / 10 && count < fair * 11 / 10;
        assert!(counts.iter().all(is_fair), "{counts:?}");
    }
}
