//! What moves next, where shares stay: by example; and of all that may move, at random over many
//! periods.

mod transfers;

use undercroft_adviser::Curve;
use undercroft_random::SplitMix64;

use super::*;

const KIB: u64 = 1 << 10;

fn member(share: u64) -> Member {
    Member {
        configured: share,
        share,
        least: share,
        most: share,
        block: 4 * KIB,
        size: share,
        leaving: 0,
        is_idle: false,
        wants: false,
        is_fixed: false,
        worth: None,
    }
}

/// Makes the steps of one period, and returns how many there were.
fn pass(members: &mut [Member]) -> usize {
    let steps = next(members).sizes;
    steps.iter().for_each(|&(at, size)| members[at].size = size);
    steps.len()
}

/// Passes periods until nothing changes; returns how many that took.
fn settle(members: &mut [Member]) -> usize {
    (0..500).find(|_| pass(members) == 0).expect("the sizes change for ever")
}

fn sizes(members: &[Member]) -> Vec<u64> {
    members.iter().map(|member| member.size / KIB).collect()
}

#[test]
fn idle_room_is_lent_and_taken_back() {
    let lender = Member { least: 256 * KIB, is_idle: true, ..member(1024 * KIB) };
    let borrower = Member { most: 4096 * KIB, ..member(512 * KIB) };
    let mut all = [lender, borrower, member(2048 * KIB)];
    assert_eq!(settle(&mut all), 0, "nobody wants it");
    all[1].wants = true;
    let periods = settle(&mut all);
    assert!(periods > 16, "in small steps: {periods}");
    assert_eq!(sizes(&all), [256, 1280, 2048]);
    // It has what it needs now, and keeps it.
    all[1].wants = false;
    assert_eq!(settle(&mut all), 0);
    all[0].is_idle = false;
    let periods = settle(&mut all);
    assert!(periods <= 6, "soon: {periods}");
    assert_eq!(sizes(&all), [1024, 512, 2048]);
    // A borrower that is idle gives back what another one wants; what nobody wants, it keeps.
    (all[0].is_idle, all[1].wants, all[2].most) = (true, true, 4096 * KIB);
    settle(&mut all);
    (all[1].is_idle, all[1].wants, all[2].wants) = (true, false, true);
    settle(&mut all);
    assert_eq!(sizes(&all), [256, 512, 2816]);
    (all[2].is_idle, all[2].wants) = (true, false);
    assert_eq!(settle(&mut all), 0);
    all[0].is_idle = false;
    assert!(settle(&mut all) <= 6);
    assert_eq!(sizes(&all), [1024, 512, 2048]);
}

#[test]
fn borrowers_share_by_their_shares_and_do_not_take_turns() {
    let borrower =
        |share: u64, most: u64| Member { wants: true, most: most * KIB, ..member(share * KIB) };
    let lender = Member { least: 40 * KIB, is_idle: true, ..member(1000 * KIB) };
    let mut all = [lender, borrower(400, 8000), borrower(800, 8000), borrower(400, 480)];
    settle(&mut all);
    // 960 to lend: 80 to the one with a bound, the rest by thirds, in whole blocks.
    assert_eq!(sizes(&all), [44, 692, 1384, 480]);
    for _ in 0..1000 {
        assert_eq!(pass(&mut all), 0, "two busy volumes take room from each other");
    }
    // One that came later gets its part from those who have more than theirs.
    (all[1].wants, all[1].size) = (true, 400 * KIB);
    all[2].size += 292 * KIB;
    settle(&mut all);
    assert_eq!(sizes(&all), [40, 692, 1388, 480]);
}

#[test]
fn room_is_free_before_it_is_given() {
    let lender = Member { least: 100 * KIB, ..member(400 * KIB) };
    let borrower = Member { most: 4000 * KIB, wants: true, ..member(400 * KIB) };
    let mut all = [lender, borrower];
    (all[0].size, all[1].size) = (100 * KIB, 700 * KIB);
    // The borrower's store takes nothing: what is dirty stays, and nobody gets its memory.
    (all[1].is_fixed, all[1].wants, all[1].leaving) = (true, false, 200 * KIB);
    all[1].size = 500 * KIB;
    assert_eq!(next(&all).sizes, []);
    all[1].is_fixed = false;
    assert_eq!(next(&all).sizes, [], "200 KiB are about to be free");
    all[1].leaving = 150 * KIB;
    assert_eq!(next(&all).sizes, [(0, 148 * KIB), (1, 496 * KIB)]);
    // More than there is, since a lender was removed: it is given back at once.
    let mut all = [Member { most: 4000 * KIB, wants: true, size: 900 * KIB, ..member(400 * KIB) }];
    assert_eq!(pass(&mut all), 1);
    assert_eq!(sizes(&all), [400]);
}

#[test]
fn a_lender_that_flaps_loses_a_bounded_part() {
    let lender = Member { least: 4 * KIB, ..member(1600 * KIB) };
    let borrower = Member { most: 4000 * KIB, wants: true, ..member(1600 * KIB) };
    let mut all = [lender, borrower];
    for _ in 0..100 {
        // Idle for a period, and back for one.
        all[0].is_idle = true;
        pass(&mut all);
        all[0].is_idle = false;
        pass(&mut all);
        assert!(all[0].size >= 1500 * KIB, "{}", all[0].size);
    }
    assert!(settle(&mut all) <= 2);
    assert_eq!(sizes(&all), [1600, 1600]);
}

/// A volume like those that a server has: some lend, some borrow, the shares of some move.
fn drawn(random: &mut SplitMix64) -> Member {
    let block = [4 * KIB, 16 * KIB, 64 * KIB][random.below(3) as usize];
    let share = block * (1 + random.below(300));
    let (lends, borrows) = (random.below(2) == 0, random.below(3) > 0);
    let least = if lends { block * (1 + random.below(share / block)) } else { share };
    let most = if borrows { share + block * random.below(900) } else { share };
    let member = Member { least, most, block, ..member(share) };
    Member { worth: (random.below(2) == 0).then(|| worth(&member, random)), ..member }
}

/// Advice at the size of now: a curve that rises, and bends or has a step.
fn worth(member: &Member, random: &mut SplitMix64) -> Ready {
    let (size, reads) = (member.size as f64, random.below(5000) as f64);
    let mut saved = -random.next_f64();
    let points = [0.5, 1.0, 2.0].map(|factor| {
        let value = if factor == 1.0 { 0.0 } else { saved };
        saved = random.next_f64();
        (size * factor, Estimate { value, error: 0.0 })
    });
    let curve = Curve::through(size, points.to_vec());
    Ready { curve, reads_per_s: [reads; 2], miss_costs_s: None }
}

/// What a volume does differently from now on, or its store.
fn changed(one: &mut Member, random: &mut SplitMix64) {
    match random.below(6) {
        0 => one.is_idle = !one.is_idle && !one.is_fixed,
        1 => one.wants = !one.is_idle && !one.is_fixed && random.below(2) == 0,
        2 => one.is_fixed = !one.is_fixed,
        3 => one.leaving = 0,
        4 => one.worth = Some(worth(one, random)),
        _ => {}
    }
    let is_free = !one.is_fixed;
    (one.is_idle, one.wants) = (one.is_idle && is_free, one.wants && is_free && !one.is_idle);
}

/// Makes the moves of a period, and checks each; memory of a smaller cache is sometimes free later.
fn checked_pass(all: &mut [Member], random: &mut SplitMix64) -> Moves {
    let moves = next(all);
    for &(at, size) in &moves.sizes {
        let one = &mut all[at];
        assert!(!one.is_fixed && size != one.size && size % one.block == 0, "{size} {one:?}");
        assert!(size >= one.least && size <= one.most.max(one.size), "{size} {one:?}");
        assert!(size >= one.share.min(one.size) || one.is_idle, "{size} {one:?}");
        if size < one.size && random.below(3) == 0 {
            one.leaving += one.size - size;
        }
        one.size = size;
    }
    if let Some(Transfer { from, to, bytes, gain, loss, .. }) = moves.transfer {
        assert!(from != to && gain.value > loss.value);
        (all[from].share, all[to].share) = (all[from].share - bytes, all[to].share + bytes);
        for one in [&all[from], &all[to]] {
            assert!(bytes > 0 && bytes % one.block == 0 && one.worth.is_some(), "{one:?}");
            assert!(one.least <= one.share && one.share <= one.most, "{one:?}");
        }
        // Until its adviser knows of another size.
        (all[from].worth, all[to].worth) = (None, None);
    }
    moves
}

#[test]
fn whatever_the_volumes_do_the_sum_holds_and_nobody_falls_below_its_least() {
    let mut random = SplitMix64::seeded();
    let mut transfers = 0;
    for round in 0..300 {
        let mut all: Vec<_> = (0..1 + random.below(6)).map(|_| drawn(&mut random)).collect();
        let total = sum(&all, |one| one.configured);
        let taken = |all: &[Member]| sum(all, |one| one.size + one.leaving);
        let mut before: Vec<(usize, bool)> = Vec::new();
        for _ in 0..200 {
            let at = random.below(all.len() as u64) as usize;
            let is_same = random.below(2) == 0;
            if !is_same {
                changed(&mut all[at], &mut random);
            }
            let sizes: Vec<_> = all.iter().map(|one| one.size).collect();
            let was = taken(&all);
            let moves = checked_pass(&mut all, &mut random);
            assert!(was <= total && taken(&all) <= total, "round {round}: {all:?}");
            assert_eq!(sum(&all, |one| one.share), total, "round {round}: {all:?}");
            // Parts are rounded to whole blocks, of which the largest are 64 KiB.
            let far = moves.sizes.iter().filter(|&&(at, size)| size.abs_diff(sizes[at]) > 64 * KIB);
            let ways: Vec<_> = far.map(|&(at, size)| (at, size > sizes[at])).collect();
            let is_back = |&(at, grows): &(usize, bool)| before.contains(&(at, !grows));
            assert!(!is_same || !ways.iter().any(is_back), "round {round}: {before:?} {ways:?}");
            transfers += usize::from(moves.transfer.is_some());
            // A share that changes may turn the way of a size.
            before = if moves.transfer.is_some() { Vec::new() } else { ways };
        }
        // When nothing stands in the way any more, all is settled, and owners have their own.
        for one in &mut all {
            (one.is_fixed, one.leaving, one.worth) = (false, 0, None);
        }
        settle(&mut all);
        for one in all.iter().filter(|one| !one.is_idle) {
            assert!(one.size >= one.share, "round {round}: {one:?}");
        }
        all.iter_mut().for_each(|one| (one.is_idle, one.wants) = (false, false));
        let periods = settle(&mut all);
        assert!(all.iter().all(|one| one.size == one.share), "round {round}: {all:?}");
        assert!(periods <= 40, "round {round}: {periods}");
    }
    assert!(transfers > 100, "{transfers}");
}
