//! Content-aware levels driven by traces: what they count where knowledge is of no use, what is
//! refused, and pinned counts on real traces.
//!
//! `UNDERCROFT_SEED=n` runs one seed again.

use crate::common::{Random, blocks, config, seeds, trace};
use crate::real_traces::load;
use undercroft_policy::WriteMode;
use undercroft_sim::{Config, Report, simulate};
use undercroft_trace::DenseTrace;

fn random_trace(random: &mut Random) -> DenseTrace {
    let world = 20 + random.below(200);
    let records = (0..3000).map(|_| {
        let length = if random.one_in(10) { 1 + random.below(6) } else { 1 };
        blocks(random.block(world).into(), length.into(), random.one_in(4))
    });
    trace(records.collect())
}

/// A window of one block makes every content-aware pair the plain one: all counts of both levels,
/// with any warm-up and write mode, though the loop is another.
#[test]
fn a_window_of_one_block_counts_what_plain_levels_count() {
    let pairs = [("lru", "lru-ca"), ("clock", "clock-ca"), ("2q", "2q,ca"), ("arc", "arc,ca")];
    let modes = [WriteMode::Allocate, WriteMode::NoAllocate, WriteMode::Invalidate];
    let lowers = ["lru", "mq", "w-tinylfu", "s3-fifo"];
    for seed in seeds(24) {
        let mut random = Random(seed);
        let trace = random_trace(&mut random);
        let (plain, aware) = pairs[random.below(4) as usize];
        let aware = format!("{aware},alpha=0");
        let (mode, lower) = (modes[random.below(3) as usize], lowers[random.below(4) as usize]);
        let (c1, c2) = (1 + random.below(60), 1 + random.below(60));
        let warmup = u64::from(random.below(2500));
        let run = |levels: [(u32, &str); 2]| {
            simulate(&trace, &config(&levels, mode, warmup), |_| ()).unwrap()
        };
        let upper = run([(c1, &aware), (c2, lower)]);
        assert_eq!(upper.levels, run([(c1, plain), (c2, lower)]).levels, "UNDERCROFT_SEED={seed}");
        assert_eq!(upper.aware.len(), 1);
        let below = run([(c1, lower), (c2, &aware)]);
        assert_eq!(below.levels, run([(c1, lower), (c2, plain)]).levels, "UNDERCROFT_SEED={seed}");
        assert_eq!(below.aware[0].level, "l2");
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let trace = trace((0..50).map(|block| blocks(block % 20, 1, false)).collect());
    let of = |levels: &[(u32, &str)]| config(levels, WriteMode::Allocate, 0);
    let refused = |config: &Config, placement: &str| {
        let config = Config { rule: placement.parse().unwrap(), ..config.clone() };
        simulate(&trace, &config, |_| ()).unwrap_err().to_string()
    };
    for (levels, placement, why) in [
        (&[(5, "lru-ca")][..], "access", "two levels"),
        (&[(5, "lru-ca"), (5, "lru"), (5, "lru")], "access", "two levels"),
        (&[(5, "lru-ca"), (5, "opt")], "access", "opt"),
        (&[(5, "lru"), (5, "mq,ca")], "gl", "placement access"),
        (&[(5, "lru-ca,knows=bloom,filter-bits=1"), (5, "lru")], "access", "hash functions"),
    ] {
        let error = refused(&of(levels), placement);
        assert!(error.contains(why), "{levels:?}: {error}");
    }
}

#[test]
fn the_report_says_what_knowing_cost() {
    let mut random = Random(5);
    let trace = random_trace(&mut random);
    let upper = "lru-ca,knows=bloom,publish=0.1";
    let config = config(&[(30, upper), (40, "lru-ca,knows=emulation")], WriteMode::Allocate, 100);
    let outcome = simulate(&trace, &config, |_| ()).unwrap();
    let report = Report::new("memory", &trace, &config, &outcome);
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
    let [upper, lower] = &report.aware[..] else { panic!("two levels: {text}") };
    assert!(upper.summaries > 0 && upper.summary_bytes > 12 * upper.summaries);
    assert_eq!(upper.false_positive_rate.map(|rate| (rate * 1e4) as u32), Some(239));
    assert_eq!(upper.confidence, None);
    assert_eq!((lower.summary_bytes, lower.false_positive_rate), (0, None));
    assert!(lower.confidence.is_some_and(|share| share > 0.5), "{lower:?}");
}

/// Upper level, its policy, lower level, its policy, blocks read from disk.
type Pinned = (u32, &'static str, u32, &'static str, u64);

/// Disk reads on real traces: these are our own results, written down so that none changes
/// unnoticed. That they are right is for the naive models to say.
#[test]
fn disk_reads_on_real_traces_stay_as_they_are() {
    let pinned: [(&str, &[Pinned]); 2] = [
        (
            "arc/OLTP.lis.zst",
            &[
                (4000, "lru", 4000, "lru", 437_749),
                (4000, "lru-ca", 4000, "lru", 394_522),
                (4000, "lru-ca,alpha=1", 4000, "lru", 397_178),
                (4000, "lru-ca,knows=emulation", 4000, "lru", 394_522),
                (4000, "lru", 4000, "lru-ca", 446_708),
                (4000, "lru-ca", 4000, "lru-ca", 388_436),
                (4000, "clock-ca", 4000, "lru", 403_900),
                (1000, "lru", 4000, "clock-ca", 446_671),
                (4000, "mq,ca=yes", 4000, "mq", 374_847),
            ],
        ),
        (
            "lirs/sprite.trc.zst",
            &[
                (250, "lru", 250, "lru", 60_774),
                (250, "lru-ca", 250, "lru", 46_962),
                (250, "lru-ca,knows=bloom", 250, "lru", 49_029),
                (250, "2q,ca=yes", 250, "lru", 39_913),
                (250, "arc,ca=yes", 250, "arc", 38_804),
                (250, "lru-ca", 250, "lru-ca", 38_218),
            ],
        ),
    ];
    let mut wrong = Vec::new();
    for (name, runs) in pinned {
        let Some(trace) = load(name, 4096, None) else { continue };
        for &(c1, upper, c2, lower, expected) in runs {
            let config = config(&[(c1, upper), (c2, lower)], WriteMode::Allocate, 0);
            let outcome = simulate(&trace, &config, |_| ()).unwrap();
            if outcome.disk_reads() != expected {
                wrong.push(format!("{name} {upper} {lower}: {}", outcome.disk_reads()));
            }
        }
    }
    assert!(wrong.is_empty(), "not as pinned:\n{}", wrong.join("\n"));
}
