//! What is said of each finding and assumption of a trace, word by word.

use undercroft_adviser::{Assumption, Choice, Cost, Estimate, Finding, FlashGain, Measured, Words};

fn choice(policy: &str, capacity_blocks: u32, read_hit_ratio: f64) -> Choice {
    Choice {
        policy: policy.to_owned(),
        placement: "access".to_owned(),
        capacity_blocks,
        read_hit_ratio,
        disk_reads: (100_000.0 * (1.0 - read_hit_ratio)).round() as u64,
    }
}

/// A choice with another placement, and what it reads from the disk.
fn placed(policy: &str, placement: &str, read_hit_ratio: f64, disk_reads: u64) -> Choice {
    Choice { placement: placement.to_owned(), disk_reads, ..choice(policy, 16_384, read_hit_ratio) }
}

fn off_by(value: f64, error: f64) -> Estimate {
    Estimate { value, error }
}

/// What is said of the last of findings.
fn last(findings: &[Finding]) -> String {
    Words::of_trace(4096, findings).finding(findings.last().unwrap())
}

fn text(finding: Finding) -> String {
    last(&[finding])
}

fn assumed(assumption: &Assumption) -> String {
    Words::of_trace(4096, &[]).assumption(assumption)
}

fn unfiltered() -> Finding {
    Finding::Unfiltered { lru: choice("lru", 256, 0.31) }
}

fn cheapest(choice: Option<Choice>) -> Finding {
    let cost = Cost { memory: 1.0, disks: 10.114, total: 304.4 };
    let without = Cost { memory: 0.0, disks: 26.7, total: 1801.0 };
    Finding::Cheapest { choice, cost, without, error: 3.456 }
}

fn knee(capacity_blocks: u32, before: f64, after: f64, enough_blocks: u32) -> Finding {
    Finding::Knee {
        choice: choice("lirs", capacity_blocks, 0.3863),
        per_gib_before: before,
        per_gib_after: after,
        enough_blocks,
    }
}

fn policy_gains(equals: &[&str], lru_blocks: Option<u32>) -> Finding {
    Finding::PolicyGains {
        choice: choice("w-tinylfu", 8192, 0.2288),
        base: choice("lru", 8192, 0.0395),
        difference: off_by(0.1893, 0.0431),
        saved: Estimate::default(),
        equals: equals.iter().map(ToString::to_string).collect(),
        lru_blocks,
        sizes: vec![1024, 8192],
    }
}

fn no_policy_gains(gain: f64, error: f64) -> Finding {
    Finding::NoPolicyGains {
        choice: choice("mq", 8192, 0.3),
        base: choice("lru", 8192, 0.3 - gain),
        difference: off_by(gain, error),
    }
}

fn placement(placement: &str, reads: u64, hits: Estimate, disk: Estimate) -> Finding {
    let base = choice("lirs", 16_384, 0.3863);
    let choice = placed("mq", placement, 0.4458, reads);
    Finding::Placement { choice, base, hits, disk }
}

#[test]
fn where_a_trace_was_taken_and_what_serves_nothing() {
    assert_eq!(
        text(unfiltered()),
        "First say where the trace was taken. Without --l1 it counts as one from below the \
         client's cache, and it does not look so: 1 MiB with lru serve 31.00 % already, and a \
         client's cache would have served these reads. If it was taken above that cache, say \
         what that is, as --l1 64MiB:lru: every figure here changes."
    );
    assert_eq!(
        text(Finding::NothingToGain { best: placed("arc", "auto", 0.002, 7) }),
        "Take no cache: no policy serves one read in a hundred at any size. The most is \
         0.20 %, by 64 MiB with arc and placement auto."
    );
}

#[test]
fn what_to_take() {
    assert_eq!(
        text(cheapest(Some(choice("lru", 16_384, 0.4)))),
        "Take 64 MiB with lru at these prices: it costs 304 (1.00 of it memory; 10.11 disks), \
         instead of 1,801 (0.00 of it memory; 26.70 disks) without a cache (error of the \
         difference 3.46)."
    );
    assert_eq!(
        text(cheapest(None)),
        "Take no cache at these prices: the reads keep 26.70 disks busy, which cost 1,801, \
         and no memory saves more than it costs (error 3.46)."
    );
    let doubted = last(&[unfiltered(), cheapest(Some(choice("lru", 16_384, 0.4)))]);
    let doubted = doubted.split_once(" at these").unwrap().0;
    assert_eq!(doubted, "If it was taken below that cache, take 64 MiB with lru");
    assert_eq!(
        text(knee(16_384, 6.144, 1.2288, 65_536)),
        "Take 64 MiB with lirs: it serves 38.63 % of the reads that arrive. It is the knee of \
         the curve: up to there each MiB earns 0.60 points, from there to 256 MiB 0.12."
    );
    let small = text(knee(16, 1.0e6, 123_456.7, 65_536));
    assert!(small.ends_with("each KiB earns 95 points, from there to 256 MiB 12."), "{small}");
    let large = text(knee(1 << 20, 0.0123, 0.0001, 1 << 21));
    assert!(large.ends_with("each GiB earns 1.2 points, from there to 8 GiB 0.010."), "{large}");
    let end = "It is the knee of the curve: no smaller size earns as much for its memory.";
    let first = |findings: &[Finding]| {
        let said = last(findings);
        assert!(said.ends_with(end), "{said}");
        said.split_once(':').unwrap().0.to_owned()
    };
    let knee = || knee(16_384, 6.0, 0.0, 16_384);
    assert_eq!(first(&[knee()]), "Take 64 MiB with lirs");
    let doubted = "If it was taken below that cache, take 64 MiB with lirs";
    assert_eq!(first(&[unfiltered(), knee()]), doubted);
    let priced = last(&[unfiltered(), cheapest(None), knee()]);
    assert!(priced.starts_with("Without prices: take 64 MiB with lirs: it serves"), "{priced}");
}

#[test]
fn whether_the_policy_matters() {
    let both = "Another policy than LRU gains: 32 MiB with w-tinylfu serves 22.88 %, LRU of \
                that size 3.95 %: 18.9 +- 4.3 points more.";
    let sizes = "Of the sizes studied the policy matters at 4 MiB, 32 MiB.";
    assert_eq!(text(policy_gains(&[], None)), format!("{both} {sizes}"));
    assert_eq!(
        text(policy_gains(&["arc"], Some(15_540))),
        format!("{both} arc does as well. LRU needs 60.7 MiB to serve as much. {sizes}")
    );
    let several = format!("{both} arc, mq do as well. {sizes}");
    assert_eq!(text(policy_gains(&["arc", "mq"], None)), several);
    let stay = "Stay with LRU: no policy studied serves more at any size. The nearest is \
                32 MiB with mq with 30.00 %, LRU serves";
    assert_eq!(
        text(no_policy_gains(0.004, 0.002)),
        format!("{stay} 29.60 %: no more and no fewer (0.4 +- 0.2 points).")
    );
    assert_eq!(
        text(no_policy_gains(-0.02, 0.03)),
        format!("{stay} 32.00 %: no more and no fewer (2.0 +- 3.0 points).")
    );
    assert_eq!(
        text(no_policy_gains(-0.05, 0.03)),
        format!("{stay} 35.00 %: 5.0 +- 3.0 points fewer.")
    );
}

#[test]
fn what_another_placement_changes() {
    let (more, same) = (off_by(0.0596, 0.057), off_by(0.0, 0.02));
    let told = "If the client tells its evictions, placement";
    let auto = "that chooses (auto) with mq serves 44.58 % at 64 MiB";
    assert_eq!(
        text(placement("auto", 55_417, more, off_by(-0.06, 0.02))),
        format!(
            "{told} {auto}, 6.0 +- 5.7 points more than lirs placed at the access. It \
             saves 9.70 % of the disk reads (55,417 blocks instead of 61,370)."
        )
    );
    assert_eq!(
        text(placement("eviction", 149_743, more, off_by(0.9, 0.02))),
        format!(
            "{told} at eviction with mq serves 44.58 % at 64 MiB, 6.0 +- 5.7 points more \
             than lirs placed at the access. It reads the disk 2.44 times as often (149,743 \
             blocks instead of 61,370). It pays only above disks that are idle."
        )
    );
    let as_often = "It reads the disk as often (61,370 blocks instead of 61,370).";
    assert_eq!(
        text(placement("auto", 61_370, more, same)),
        format!(
            "{told} {auto}, 6.0 +- 5.7 points more than lirs placed at the access. \
             {as_often} The hits cost nothing."
        )
    );
    let none = "no more and no fewer (0.0 +- 2.0 points)";
    assert_eq!(
        text(placement("auto", 61_370, same, same)),
        format!(
            "{told} {auto}, {none} than lirs placed at the access. {as_often} It is of no use \
             here."
        )
    );
    let fewer = text(placement("auto", 61_370, off_by(-0.05, 0.01), off_by(0.1, 0.01)));
    assert!(fewer.contains("64 MiB, 5.0 +- 1.0 points fewer than lirs"), "{fewer}");
    assert!(fewer.ends_with(
        "1.00 times as often (61,370 blocks instead of 61,370). It is of \
                             no use here."
    ));
}

#[test]
fn flash_is_worth_it_or_not() {
    let flash = |gain: f64, written_per_hit: f64, lru_blocks: Option<u32>| {
        text(Finding::Flash(FlashGain {
            memory: choice("mq", 8192, 0.35),
            flash_blocks: 65_536,
            read_hit_ratio: 0.35 + gain,
            difference: off_by(gain, 0.012),
            written_per_hit,
            lru_blocks,
            is_filled: true,
        }))
    };
    assert_eq!(
        flash(0.3, 0.456, Some(40_000)),
        "256 MiB of flash below 32 MiB with mq would serve 65.00 % of the reads together, 30.0 +- \
         1.2 points more than the memory alone, for 0.46 blocks written for each that flash serves. \
         LRU in memory alone needs 156 MiB to serve as much. It pays only above a disk that is \
         slower than flash."
    );
    assert!(!flash(0.3, 0.456, None).contains("LRU"));
    assert_eq!(
        flash(0.3, 2.34, None),
        "Flash is not worth it: 256 MiB of it below 32 MiB with mq would serve 30.0 +- 1.2 points \
         more of the reads, for 2.3 blocks written for each that it serves."
    );
    assert!(flash(0.005, 0.1, None).starts_with("Flash is not worth it: "));
}

/// A server has not seen all, and says so of what is not sure yet.
#[test]
fn flash_in_a_server_is_worth_it_so_far() {
    let measured = Measured { block_bytes: 4096, reads_per_s: 100.0, miss_costs_s: None };
    let said = |gain: Estimate, written_per_hit: f64, is_filled: bool| {
        Words::of_server(&measured).finding(&Finding::Flash(FlashGain {
            memory: choice("mq", 8192, 0.35),
            flash_blocks: 65_536,
            read_hit_ratio: 0.35 + gain.value,
            difference: gain,
            written_per_hit,
            lru_blocks: None,
            is_filled,
        }))
    };
    assert_eq!(
        said(off_by(0.3, 0.012), 0.456, false),
        "256 MiB of flash below 32 MiB with mq would serve 65.00 % of the reads together, 30.0 +- \
         1.2 points more than the memory alone, for 0.46 blocks written for each that flash serves. \
         It is being filled, and may add more later. It pays only above a disk that is slower than \
         flash."
    );
    assert_eq!(
        said(off_by(0.02, 0.001), 2.5, false),
        "Whether flash would be worth it is not known yet: 256 MiB of it below 32 MiB with mq would \
         have added 2.0 +- 0.1 points of read hits so far, for 2.5 blocks written for each read that \
         it served."
    );
    assert!(said(off_by(0.02, 0.001), 2.5, true).starts_with("Flash is not worth it: "));
    let vague = said(off_by(0.04, 0.06), 0.5, true);
    assert!(vague.starts_with("Whether flash would be worth it is not known yet: "), "{vague}");
}

#[test]
fn where_lru_wastes_memory_and_where_more_gains_nothing() {
    let wasted =
        |best| Finding::LruWasted { lru: choice("lru", 4096, 0.0), up_to_blocks: 6553, best };
    let lead = "Up to 25.6 MiB LRU is wasted here: it serves less than 1 % of the reads.";
    assert_eq!(
        text(wasted(Some(choice("w-tinylfu", 4096, 0.1213)))),
        format!("{lead} At 16 MiB it serves 0.00 %, and w-tinylfu 12.13 %.")
    );
    assert_eq!(text(wasted(None)), format!("{lead} Nothing studied is better there."));
    assert_eq!(
        text(Finding::Enough { choice: choice("lru", 65_536, 0.6215) }),
        "Beyond 256 MiB nothing is gained: lru serves 62.15 % there, and no larger size a \
         point more."
    );
    let opt = choice("opt", 16_384, 0.5644);
    assert_eq!(
        text(Finding::Bound { read_hit_ratio: 0.6215, opt }),
        "No cache of any size serves more than 62.15 %: the other reads are the first of \
         their blocks. At 64 MiB OPT, which knows the future, serves 56.44 %; no policy that \
         keeps every block it misses has more hits, writes included."
    );
}

#[test]
fn what_the_figures_of_a_trace_rest_on() {
    for (assumption, said) in [
        (
            Assumption::Client { policy: "lru".to_owned(), capacity_blocks: 8192 },
            "The client has a cache of 32 MiB with lru, as --l1 says. Of another cache it \
             passes on other reads.",
        ),
        (
            Assumption::BelowClient,
            "The trace was taken below the client's cache. If it was taken above it, say what \
             that cache is: --l1.",
        ),
        (
            Assumption::EvictionsKnown,
            "Placements that act on evictions assume that the client can tell them; auto also \
             that it hands over what it evicts. Without that they do not work, and the other \
             figures hold.",
        ),
        (
            Assumption::EvictionsUnknown,
            "Nothing here tells what the client evicts, so placement at eviction could not be \
             tried: that takes --l1, or a trace with evictions or buffer addresses.",
        ),
        (
            Assumption::ColdAndThrough { cold: 0.3785 },
            "The cache is empty at the beginning of the trace, and writes go through it. \
             37.85 % of the reads that arrive are the first of their blocks; of a longer \
             trace it would be fewer. Another day may differ.",
        ),
        (
            Assumption::Sampled { rate: 0.125, error: 0.0123 },
            "The hit ratios are estimates from 12.50 % of the blocks, off by up to about 1.2 \
             points: that far the sampled LRU is from the exact one. --exact takes all.",
        ),
    ] {
        assert_eq!(assumed(&assumption), said);
    }
}
