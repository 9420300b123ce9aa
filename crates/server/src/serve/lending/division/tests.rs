//! Division and steps: by example, and at random over many periods.

use undercroft_random::SplitMix64;

use super::*;

const KIB: u64 = 1 << 10;

fn member(share: u64) -> Member {
    Member {
        share,
        least: share,
        most: share,
        block: 4 * KIB,
        size: share,
        leaving: 0,
        is_idle: false,
        wants: false,
        is_fixed: false,
    }
}

/// Makes the steps of one period, and returns how many there were.
fn pass(members: &mut [Member]) -> usize {
    let steps = steps(members, &targets(members));
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
    // A borrower that is idle gives back what another one wants, and what its lender had.
    (all[0].is_idle, all[1].wants, all[2].most) = (true, true, 4096 * KIB);
    settle(&mut all);
    (all[1].is_idle, all[1].wants, all[2].wants) = (true, false, true);
    settle(&mut all);
    assert_eq!(sizes(&all), [256, 512, 2816]);
    (all[2].is_idle, all[2].wants) = (true, false);
    settle(&mut all);
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
    (all[1].is_fixed, all[1].leaving) = (true, 200 * KIB);
    all[1].size = 500 * KIB;
    assert_eq!(steps(&all, &targets(&all)), []);
    all[1].is_fixed = false;
    assert_eq!(steps(&all, &targets(&all)), [], "200 KiB are about to be free");
    all[1].leaving = 150 * KIB;
    assert_eq!(steps(&all, &targets(&all)), [(0, 148 * KIB), (1, 496 * KIB)]);
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

#[test]
fn whatever_the_volumes_do_the_sum_holds_and_nobody_falls_below_its_least() {
    let mut random = SplitMix64::seeded();
    for round in 0..300 {
        let count = 1 + random.below(6) as usize;
        let mut all: Vec<Member> = (0..count)
            .map(|_| {
                let block = [4 * KIB, 16 * KIB, 64 * KIB][random.below(3) as usize];
                let share = block * (1 + random.below(300));
                let (lends, borrows) = (random.below(2) == 0, random.below(3) > 0);
                let least = if lends { block * (1 + random.below(share / block)) } else { share };
                let most = if borrows { share + block * random.below(900) } else { share };
                Member { least, most, block, ..member(share) }
            })
            .collect();
        let total: u64 = all.iter().map(|member| member.share).sum();
        for _ in 0..200 {
            let changed = random.below(count as u64) as usize;
            let one = &mut all[changed];
            match random.below(6) {
                0 => one.is_idle = !one.is_idle,
                1 => one.wants = !one.is_idle && random.below(2) == 0,
                2 => one.is_fixed = !one.is_fixed,
                3 => one.leaving = 0,
                _ => {}
            }
            let before: Vec<_> = all.iter().map(|member| (member.size, member.leaving)).collect();
            let next = steps(&all, &targets(&all));
            for &(at, size) in &next {
                let member = &mut all[at];
                assert!(!member.is_fixed, "round {round}: {member:?}");
                assert!(size >= member.least && size <= member.most, "round {round}: {size}");
                assert!(size % member.block == 0);
                assert!(size >= member.share.min(member.size) || member.is_idle, "{member:?}");
                // Memory of a smaller cache is sometimes free later.
                if size < member.size && random.below(3) == 0 {
                    member.leaving += member.size - size;
                }
                member.size = size;
            }
            let taken = |(size, leaving): (u64, u64)| size + leaving;
            let was: u64 = before.into_iter().map(taken).sum();
            let is: u64 = all.iter().map(|member| taken((member.size, member.leaving))).sum();
            assert!(is <= total.max(was) && was <= total, "round {round}: {is} of {total}");
        }
        // When nothing stands in the way any more, all is settled, and owners have their own.
        all.iter_mut().for_each(|member| (member.is_fixed, member.leaving) = (false, 0));
        settle(&mut all);
        for member in all.iter().filter(|member| !member.is_idle) {
            assert!(member.size >= member.share, "round {round}: {member:?}");
        }
        all.iter_mut().for_each(|member| (member.is_idle, member.wants) = (false, false));
        let periods = settle(&mut all);
        assert!(all.iter().all(|member| member.size == member.share), "round {round}: {all:?}");
        assert!(periods <= 40, "round {round}: {periods}");
    }
}
