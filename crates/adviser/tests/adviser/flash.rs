//! What is said of flash below today's memory.
//!
//! Not here: that its figures are those of a simulation (`undercroft_sim` tests that).

use undercroft_adviser::{Adviser, Finding, FlashGain, Kind, Measured, State, Words, advise};
use undercroft_random::SplitMix64;
use undercroft_random::testing::seed;

use crate::support::{feed, read, skewed, today, with_rate};

/// What is found of flash, and what is said of it.
fn found(adviser: &Adviser) -> (FlashGain, String) {
    let measured = Measured { block_bytes: 4096, reads_per_s: 100.0, miss_costs_s: None };
    let findings = advise(&adviser.figures()).findings;
    let flash = findings.into_iter().find_map(|finding| match &finding {
        Finding::Flash(gain) => Some((gain.clone(), Words::of_server(&measured).finding(&finding))),
        _ => None,
    });
    flash.expect("a finding")
}

/// What is found and said when enough was seen. Chance may look like a change of the workload,
/// after which it takes as long again.
fn until_filled(
    adviser: &mut Adviser,
    mut stream: impl FnMut() -> (u64, Kind),
) -> (FlashGain, String) {
    let filled = (0..200).find_map(|_| {
        feed(adviser, (0..5000).map(|_| stream()));
        Some(found(adviser)).filter(|(gain, _)| gain.is_filled)
    });
    filled.expect("enough was seen")
}

/// Blocks come back when memory has lost them. Flash pays then. The adviser says so before flash is
/// full, and names the size from what each size gains.
#[test]
fn flash_pays_where_blocks_come_back_later_than_memory_keeps_them() {
    let mut random = SplitMix64::new(seed());
    for (blocks, enough) in [(3500, 4000), (14_000, 16_000)] {
        let mut adviser = Adviser::new(today("lru", 1000), &with_rate(0.5, 3)).unwrap();
        let mut stream = std::iter::repeat_with(|| read(random.below(blocks)));
        let mut was_filling = false;
        for _ in 0..30 {
            feed(&mut adviser, stream.by_ref().take(4000));
            if adviser.figures().state == State::Ready {
                let (gain, said) = found(&adviser);
                let pays = said.contains(" of flash below 3.9 MiB with lru would serve ");
                was_filling |= pays && said.contains("It is being filled");
                assert!(pays || !gain.is_filled, "{said}");
            }
        }
        assert!(was_filling);
        let (gain, said) = until_filled(&mut adviser, || stream.next().unwrap());
        assert_eq!(gain.flash_blocks, enough, "{gain:?}");
        assert!(gain.read_hit_ratio > 0.9 && gain.written_per_hit < 0.3, "{gain:?}");
        assert!(!said.contains("filled"), "{said}");
    }
}

/// What is read once leaves nothing on flash, and what is written before it is read again makes it
/// work for nothing. Neither is said before enough was seen.
#[test]
fn flash_does_not_pay_for_what_never_comes_back() {
    let mut random = SplitMix64::new(seed());
    let write = Kind::Write { is_whole: true, tells: false };
    let mut once = 1 << 40;
    let mut streams: [Box<dyn FnMut() -> (u64, Kind)>; 2] = [
        Box::new(move || {
            once += 1;
            read(once)
        }),
        Box::new(move || match random.below(20) {
            0 => skewed(&mut random, 20_000),
            _ => (random.below(20_000), write),
        }),
    ];
    for stream in &mut streams {
        let mut adviser = Adviser::new(today("lru", 500), &with_rate(0.5, 3)).unwrap();
        while adviser.figures().state != State::Ready {
            feed(&mut adviser, (0..500).map(|_| stream()));
        }
        let (_, said) = found(&adviser);
        assert!(said.starts_with("Whether flash would be worth it is not known yet"), "{said}");
        let (_, said) = until_filled(&mut adviser, stream);
        assert!(said.starts_with("Flash is not worth it: "), "{said}");
    }
}

/// A cache that hardly misses has nothing to gain, however little was seen.
#[test]
fn flash_does_not_pay_where_memory_serves_all() {
    let mut adviser = Adviser::new(today("lru", 500), &with_rate(1.0, 3)).unwrap();
    feed(&mut adviser, (0..30_000).map(|at| read(at % 400)));
    let (gain, said) = found(&adviser);
    assert!(gain.is_filled && said.starts_with("Flash is not worth it: "), "{said}");
}
