//! Transfers between volumes whose curves are known: by example, and at random over many of them.

use undercroft_random::testing::seeds;

use super::*;

const BLOCK: u64 = 4096;
const MIB: u64 = 1 << 20;

/// A volume with reads of which a cache of so many bytes serves a share.
struct Model {
    size: u64,
    reads_per_s: f64,
    hits: Box<dyn Fn(f64) -> f64>,
}

impl Model {
    /// Reads blocks at random, all equally often, of so many bytes.
    fn uniform(reads_per_s: f64, bytes: u64) -> Self {
        let hits = move |size: f64| (size / bytes as f64).min(1.0);
        Self { size: 16 * MIB, reads_per_s, hits: Box::new(hits) }
    }

    /// Reads popular blocks more often than others.
    fn skewed(reads_per_s: f64, bytes: u64) -> Self {
        let hits = move |size: f64| 1.0 - (-size / bytes as f64).exp();
        Self { size: 16 * MIB, reads_per_s, hits: Box::new(hits) }
    }

    /// Reads so many bytes again and again in the same order.
    fn looping(reads_per_s: f64, bytes: u64) -> Self {
        let hits = move |size: f64| if size >= bytes as f64 { 1.0 } else { 0.0 };
        Self { size: 16 * MIB, reads_per_s, hits: Box::new(hits) }
    }

    fn saved(&self) -> f64 {
        self.reads_per_s * (self.hits)(self.size as f64)
    }

    /// What its adviser says, with an error of so many shares of the reads, if `random` draws it.
    fn member(&self, error: f64, random: Option<&mut SplitMix64>) -> Member {
        let mut noise = random.map(|random| move || noise(random, error));
        let size = self.size as f64;
        let today = (self.hits)(size);
        let mut point = |factor: f64| {
            let (is_today, value) = (factor == 1.0, (self.hits)(size * factor) - today);
            let wrong = if is_today { 0.0 } else { noise.as_mut().map_or(0.0, |noise| noise()) };
            let error = if is_today { 0.0 } else { error };
            (size * factor, Estimate { value: value + wrong, error })
        };
        let points = [0.25, 0.5, 1.0, 2.0, 4.0].map(&mut point).to_vec();
        let curve = Curve::through(size, points);
        let reads_per_s = [self.reads_per_s; 2];
        let worth = Some(Ready { curve, reads_per_s, miss_costs_s: None });
        Member { least: 4 * MIB, most: u64::MAX, block: BLOCK, worth, ..member(self.size) }
    }
}

/// A normal deviate, of which nine in ten are within `error`.
fn noise(random: &mut SplitMix64, error: f64) -> f64 {
    let sum: f64 = (0..12).map(|_| random.next_f64()).sum();
    (sum - 6.0) * error / 1.645
}

fn members(models: &[Model], error: f64) -> Vec<Member> {
    models.iter().map(|model| model.member(error, None)).collect()
}

/// The transfer between volumes whose sizes are their shares.
fn next_step(members: &[Member]) -> Option<Transfer> {
    let Moves { sizes, transfer, .. } = next(members);
    assert_eq!(sizes, []);
    transfer
}

/// Makes steps until there is none that is worth it; returns the steps.
fn settle(models: &mut [Model]) -> Vec<Transfer> {
    let mut steps = Vec::new();
    while let Some(step) = next_step(&members(models, 0.0)) {
        models[step.from].size -= step.bytes;
        models[step.to].size += step.bytes;
        steps.push(step);
        assert!(steps.len() < 500, "no end: {:?}", &steps[490..]);
    }
    steps
}

fn sizes(models: &[Model]) -> Vec<u64> {
    models.iter().map(|model| model.size / MIB).collect()
}

#[test]
fn memory_goes_to_a_loop_that_does_not_fit_from_one_that_needs_little() {
    let mut models = [Model::looping(1000.0, 24 * MIB), Model::looping(1000.0, 4 * MIB)];
    let step = next_step(&members(&models, 0.0)).unwrap();
    assert_eq!((step.from, step.to, step.bytes, step.unit), (1, 0, MIB, Unit::Reads));
    assert_eq!((step.gain.value, step.loss.value), (1000.0 / 16.0 / 3.0, 0.0));
    settle(&mut models);
    assert_eq!(models[0].size + models[1].size, 32 * MIB);
    assert_eq!(models[0].saved() + models[1].saved(), 2000.0, "{:?}", sizes(&models));
}

#[test]
fn equals_keep_what_they_have() {
    for make in [Model::uniform, Model::skewed, Model::looping] {
        for bytes in [8 * MIB, 16 * MIB, 24 * MIB, 40 * MIB] {
            let models = [make(1000.0, bytes), make(1000.0, bytes), make(900.0, bytes)];
            assert_eq!(next_step(&members(&models, 0.0)), None, "{bytes}");
        }
    }
    assert_eq!(next_step(&[]), None);
}

#[test]
fn only_what_is_certain_and_worth_it_moves() {
    let wants = || Model::uniform(1000.0, 64 * MIB);
    let (little, idle) = (Model::looping(1000.0, 4 * MIB), Model::looping(0.0, 4 * MIB));
    // A doubling saves a quarter of the reads; with twice the error it may be nothing.
    assert!(next_step(&members(&[wants(), little], 0.05)).is_some());
    let little = || Model::looping(1000.0, 4 * MIB);
    assert_eq!(next_step(&members(&[wants(), little()], 0.07)), None);
    // One read in 2000 of both.
    let (few, fewer) = (Model::uniform(20.0, 64 * MIB), Model::uniform(80.0, 64 * MIB));
    assert_eq!(next_step(&members(&[few, little()], 0.0)), None);
    assert!(next_step(&members(&[fewer, little()], 0.0)).is_some());
    assert!(next_step(&members(&[wants(), idle], 0.0)).is_some());
    // Without advice, nobody gives or takes; nobody leaves the bounds.
    let all = members(&[wants(), little()], 0.0);
    let step = |change: fn(&mut Vec<Member>)| {
        let mut all = all.clone();
        change(&mut all);
        next_step(&all).map(|step| step.bytes)
    };
    assert_eq!(step(|_| ()), Some(MIB));
    assert_eq!(step(|all| all[0].worth = None), None);
    assert_eq!(step(|all| all[1].worth = None), None);
    assert_eq!(step(|all| all[0].is_idle = true), None);
    assert_eq!(step(|all| all[1].is_fixed = true), None);
    assert_eq!(step(|all| all[1].leaving = BLOCK), None);
    assert_eq!(step(|all| all[0].most = 16 * MIB), None);
    assert_eq!(step(|all| all[0].most = 16 * MIB + 4096), None);
    assert_eq!(step(|all| all[0].most = 16 * MIB + 513 * 1024), Some(MIB / 2));
    assert_eq!(step(|all| all[1].least = 16 * MIB - MIB / 4), Some(MIB / 4));
    assert_eq!(step(|all| all[1].least = 16 * MIB), None);
    assert_eq!(step(|all| all[1].block = 2 * MIB), Some(2 * MIB));
    // A volume that has become idle neither wins nor loses by what it did before.
    let rates = |all: &mut Vec<Member>, at: usize, rates| {
        all[at].worth.as_mut().unwrap().reads_per_s = rates;
    };
    let mut slept = members(&[wants(), Model::uniform(1000.0, 64 * MIB)], 0.0);
    rates(&mut slept, 0, [0.0, 1000.0]);
    assert_eq!(next_step(&slept), None);
}

#[test]
fn shares_move_while_volumes_borrow() {
    // All three have what a volume that is idle does not keep: a third of 12 MiB.
    let idle = Member { least: 4 * MIB, is_idle: true, size: 4 * MIB, ..member(16 * MIB) };
    let borrower =
        |model: Model| Member { size: 20 * MIB, share: 16 * MIB, ..model.member(0.0, None) };
    let big = |model: Model| borrower(Model { size: 20 * MIB, ..model });
    let (gains, little) = (Model::uniform(1000.0, 64 * MIB), Model::looping(1000.0, 4 * MIB));
    let other = Model::looping(1000.0, 4 * MIB);
    let mut all = [idle, big(gains), big(little), big(other)];
    all.iter_mut().for_each(|one| one.configured = 16 * MIB);
    all[1].wants = true;
    let moves = next(&all);
    let step = moves.transfer.unwrap();
    assert_eq!((step.to, step.bytes, &moves.targets[1..]), (1, 20 * MIB / 16, &[20 * MIB; 3][..]));
    (all[step.from].share, all[1].share) = (16 * MIB - step.bytes, 16 * MIB + step.bytes);
    let targets = next(&all).targets;
    assert!(targets[1] > 21 * MIB && targets[step.from] < 19 * MIB, "{targets:?}");
    // What it borrowed suffices, and its share stays.
    all[1].wants = false;
    assert_eq!(next(&all).transfer, None);
}

#[test]
fn what_a_miss_costs_counts_where_it_is_known() {
    let models = [Model::uniform(1000.0, 64 * MIB), Model::uniform(1000.0, 64 * MIB)];
    let mut all = members(&models, 0.0);
    let cost = |all: &mut Vec<Member>, costs: [Option<f64>; 2]| {
        all.iter_mut().zip(costs).for_each(|(member, cost)| {
            member.worth.as_mut().unwrap().miss_costs_s = cost;
        });
        next_step(all).map(|step| (step.to, step.unit))
    };
    assert_eq!(cost(&mut all, [Some(0.010), None]), None);
    assert_eq!(cost(&mut all, [Some(0.010), Some(0.0)]), None);
    assert_eq!(cost(&mut all, [Some(0.010), Some(0.009)]), None);
    assert_eq!(cost(&mut all, [Some(0.010), Some(0.001)]), Some((0, Unit::Time)));
    assert_eq!(cost(&mut all, [Some(0.001), Some(0.010)]), Some((1, Unit::Time)));
}

#[test]
fn equal_volumes_do_not_drift_by_the_errors_of_their_figures() {
    for seed in seeds(20) {
        let mut random = SplitMix64::new(seed);
        let mut models = [(); 3].map(|()| Model::skewed(1000.0, 16 * MIB));
        let mut steps = 0;
        for _ in 0..1000 {
            let members = models.iter().map(|model| model.member(0.05, Some(&mut random)));
            let Some(step) = next_step(&members.collect::<Vec<_>>()) else { continue };
            models[step.from].size -= step.bytes;
            models[step.to].size += step.bytes;
            steps += 1;
        }
        assert!(steps <= 10, "seed {seed}: {steps} steps in 1000 looks");
        let all = sizes(&models);
        assert!(all.iter().all(|mib| (14..=18).contains(mib)), "seed {seed}: {all:?}");
    }
}

#[test]
fn steps_come_to_an_end_near_the_best_split() {
    let (mut lacked, mut lack) = (0.0, 0.0);
    let pairs = seeds(300);
    for &seed in &pairs {
        let mut random = SplitMix64::new(seed);
        let mut model = || {
            let (rate, bytes) = (100.0 * (random.below(50) + 1) as f64, random.below(60) + 1);
            match random.below(2) {
                0 => Model::uniform(rate, bytes * MIB),
                _ => Model::skewed(rate, bytes * MIB),
            }
        };
        let mut models = [model(), model()];
        let saved = |models: &[Model]| models.iter().map(Model::saved).sum::<f64>();
        let best = (4..=28).map(|mib| {
            let [one, other] = &models;
            let hits = |model: &Model, mib: u64| (model.hits)((mib * MIB) as f64);
            one.reads_per_s * hits(one, mib) + other.reads_per_s * hits(other, 32 - mib)
        });
        let (before, best) = (saved(&models), best.fold(0.0, f64::max));
        let steps = settle(&mut models);
        let (after, all) = (saved(&models), models[0].reads_per_s + models[1].reads_per_s);
        assert_eq!(models[0].size + models[1].size, 32 * MIB, "seed {seed}");
        assert!(models.iter().all(|model| model.size >= 4 * MIB), "seed {seed}");
        assert!(steps.iter().all(|step| step.to == steps[0].to), "seed {seed}: back and forth");
        assert!(after >= before, "seed {seed}: {before} {after}");
        let lacks = |now: f64| (best - now) / all;
        assert!(lacks(after) <= 0.1, "seed {seed}: {before} {after} {best} of {all}");
        lacked += lacks(before);
        lack += lacks(after);
    }
    // With three sizes, what is between them is not known: in the mean 7 % of the reads were
    // missing, and 1 % are. One pair alone may lack more.
    assert!(lack <= 0.25 * lacked || pairs.len() == 1, "{lack} of {lacked}");
}

#[test]
fn no_curves_make_memory_go_back_and_forth() {
    for seed in seeds(300) {
        let mut random = SplitMix64::new(seed);
        let mut models: Vec<_> = (0..4)
            .map(|_| {
                let rate = 100.0 * (random.below(50) + 1) as f64;
                let bytes = (random.below(60) + 1) * MIB;
                let make = [Model::uniform, Model::skewed, Model::looping];
                make[random.below(3) as usize](rate, bytes)
            })
            .collect();
        let steps = settle(&mut models);
        assert_eq!(models.iter().map(|model| model.size).sum::<u64>(), 64 * MIB, "seed {seed}");
        assert!(models.iter().all(|model| model.size >= 4 * MIB), "seed {seed}");
        let is_back = |pair: &[Transfer]| (pair[0].from, pair[0].to) == (pair[1].to, pair[1].from);
        assert!(!steps.windows(2).any(is_back), "seed {seed}: {steps:?}");
    }
}
