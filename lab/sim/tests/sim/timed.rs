//! Simulations with a clock: small cases by hand, the same results as without a clock where time
//! does not matter, and sums that must hold whatever happens.
//!
//! A failure prints the seed; `UNDERCROFT_SEED=n` runs that one again.

use crate::common::{self, Random, seeds};
use undercroft_policy::Spec;
use undercroft_sim::tree::Division;
use undercroft_sim::{
    Config, Data, LevelConfig, Outcome, Population, Prepared, ReloadTime, Setup, Sharing,
    TimedOutcome, TimedReport, Timing, TraceInput, simulate,
};
use undercroft_trace::{Reader, Record, Unit};

const MS: u64 = 1_000_000;

fn level(capacity: u32, policy: &str) -> LevelConfig {
    LevelConfig { capacity, policy: Spec::parse(policy).unwrap() }
}

fn config(l1: u32, l2: u32, placement: &str) -> Config {
    let levels = vec![level(l1, "lru"), level(l2, "lru")];
    let sharing = Some(Sharing::default());
    Config {
        levels,
        sharing,
        rule: placement.parse().unwrap(),
        block_bytes: 4096,
        ..Config::default()
    }
}

/// Disks of 8 ms, and links without a limit.
fn timing() -> Timing {
    Timing::default()
}

fn letters(text: &str) -> Population {
    Population::one(common::letters(text), "letters".into())
}

fn read(traces: Vec<(String, Box<dyn Reader>)>, data: Data) -> Population {
    Population::read(traces, &TraceInput::default(), data, |_| ()).unwrap().0
}

fn skewed(seed: u64, count: u32, blocks: u32) -> Vec<Record> {
    let mut random = Random(seed);
    let record = |_| common::blocks(random.block(blocks).into(), 1, random.one_in(7));
    (0..count).map(record).collect()
}

fn run(population: &Population, config: &Config, timing: &Timing) -> Outcome {
    simulate(population, &Config { timing: Some(*timing), ..config.clone() }, |_| ()).unwrap()
}

fn timed(population: &Population, config: &Config, timing: &Timing) -> TimedOutcome {
    run(population, config, timing).timed.unwrap()
}

// ------------------------------------------------------------------ by hand

/// A client of one block above two, and a disk that takes 8 ms:
/// * A at 0, from disk: answered at 10. B at 10, from disk until 18; the disk then reloads A;
/// * C at 20 waits for that until 26, is read until 34, answered at 36. The disk reloads B;
/// * A at 36 is here, answered at 38. B at 38 is being reloaded until 42: it waits for that, and is
///   answered at 44. The reload of B has been in vain.
#[test]
fn reads_wait_for_the_end_of_a_reload_and_join_their_own() {
    let outcome = run(&letters("ABCAB"), &config(1, 2, "eviction,on-hit=move"), &timing());
    let found = outcome.timed.as_ref().unwrap();
    assert_eq!((found.reads, found.requests, found.elapsed_ns), (5, 5, 44 * MS));
    assert_eq!(found.response_ns, (10 + 10 + 16 + 2 + 6) * MS);
    assert_eq!((found.service_ns, found.wait_ns, found.link_ns), (24 * MS, 10 * MS, 0));
    assert_eq!(found.behind_reloads_ns, 10 * MS);
    assert_eq!((found.joined, found.unwanted, found.hints), (1, 1, 4));
    let reloads = found.reloads;
    assert_eq!((reloads.queued, reloads.issued, reloads.demanded), (4, 3, 0));
    // 24 ms of reads, three reloads begun, of which the last is not done at the end.
    assert_eq!(found.disk_busy, [24.0 / 44.0, 0.0, 24.0 / 44.0]);
    assert_eq!((outcome.levels[1].read_hits, outcome.disk_reads(), outcome.reloads()), (1, 4, 1));
}

/// Reloads take their turn: A is asked for after B, and C after A.
#[test]
fn reloads_in_turn_come_before_later_demand() {
    let timing = Timing { outstanding: 2, reloads: ReloadTime::Demand, ..timing() };
    let found = timed(&letters("ABC"), &config(1, 2, "eviction,on-hit=move"), &timing);
    // A is read from 0 to 8, B from 8 to 16, A again from 16 to 24; C was asked for at 10.
    assert_eq!(found.response_ns, (10 + 18 + 24) * MS);
    assert_eq!(found.elapsed_ns, 34 * MS);
    let idle = Timing { reloads: ReloadTime::Idle, ..timing };
    let found = timed(&letters("ABC"), &config(1, 2, "eviction,on-hit=move"), &idle);
    assert_eq!(found.response_ns, (10 + 18 + 16) * MS);
}

/// A link that takes 1 ms a block. Whoever sends what it evicts before it asks waits for that.
#[test]
fn the_order_of_demotion_and_read_shows() {
    for (placement, times, link) in
        [("gl", [11, 11, 3], 3), ("gl,order=demote-first", [11, 12, 4], 5)]
    {
        let timing = Timing { link_bytes_per_s: Some(4_096_000.0), ..timing() };
        let outcome = run(&letters("ABA"), &config(1, 2, placement), &timing);
        let found = outcome.timed.as_ref().unwrap();
        assert_eq!(found.response_ns, times.iter().sum::<u64>() * MS, "{placement}");
        assert_eq!((found.link_ns, found.wait_ns), (link * MS, 0), "{placement}");
        assert_eq!(outcome.levels[1].read_hits, 1);
        let elapsed = (found.elapsed_ns / MS) as f64;
        assert_eq!(found.link_busy, [3.0 / elapsed, 2.0 / elapsed]);
    }
}

/// Two clients at one disk wait for each other, at two disks they do not.
#[test]
fn disks_serve_one_request_at_a_time() {
    let pair = |even: bool| vec![common::blocks(u64::from(!even), 1, false); 1];
    for (disks, wait) in [(1, 8), (2, 0)] {
        let traces = [true, false].map(|even| {
            let trace = common::Memory::new(Unit::Blocks, pair(even));
            (even.to_string(), Box::new(trace) as Box<dyn Reader>)
        });
        let both = read(traces.into(), Data::Shared);
        let found = timed(&both, &config(1, 2, "access"), &Timing { disks, ..timing() });
        assert_eq!((found.wait_ns, found.service_ns), (wait * MS, 16 * MS), "{disks} disks");
        assert_eq!(found.response_ns, (20 + wait) * MS);
    }
}

// ------------------------------------------------------------------ where time does not matter

/// A client that waits for each answer, above a disk that is done with a reload by then, meets what
/// it would without a clock.
#[test]
fn without_haste_it_is_as_without_a_clock() {
    for seed in seeds(2) {
        let population = Population::one(common::trace(skewed(seed, 30_000, 1500)), "one".into());
        for placement in [
            "access",
            "gl",
            "gl,order=demote-first",
            "eviction,on-hit=keep,down=demote",
            "eviction,on-hit=move",
            "eviction,on-hit=keep,threshold=1x",
            "eviction,on-hit=adaptive,staging=auto",
        ] {
            let config = Config { warmup_records: 9000, ..config(100, 300, placement) };
            let at_once = simulate(&population, &config, |_| ()).unwrap();
            let ours = run(&population, &config, &Timing { disk_us: 1000, ..timing() });
            let at = format!("{placement} UNDERCROFT_SEED={seed}");
            assert_eq!(ours.levels, at_once.levels, "{at}");
            assert_eq!(ours.cooperation, at_once.cooperation, "{at}");
            assert_eq!(ours.clients, at_once.clients, "{at}");
            let found = ours.timed.unwrap();
            let reloads = found.reloads;
            let dropped = reloads.demanded + reloads.written + reloads.overflowed;
            assert_eq!((dropped, found.unwanted, found.stale), (0, 0, 0), "{at}");
            // Nothing waits, so the model without waiting is exact.
            let (own, server, disk) = (&ours.levels[0], &ours.levels[1], 3);
            let missed = own.reads - own.read_hits - server.read_hits;
            let expected =
                (own.read_hits * MS / 5) + server.read_hits * 2 * MS + missed * disk * MS;
            assert_eq!((found.response_ns, found.wait_ns), (expected, 0), "{at}");
        }
    }
}

// ------------------------------------------------------------------ whatever happens

#[test]
fn what_is_counted_adds_up() {
    for seed in seeds(12) {
        let mut random = Random(seed);
        let traces = (0..1 + random.below(3)).map(|i| {
            let records = skewed(seed * 10 + u64::from(i), 6000, 400);
            let trace = common::Memory::new(Unit::Blocks, records);
            (i.to_string(), Box::new(trace) as Box<dyn Reader>)
        });
        let data = if random.one_in(2) { Data::Shared } else { Data::Disjoint };
        let population = read(traces.collect(), data);
        let placements = [
            "eviction,on-hit=move",
            "gl",
            "eviction,on-hit=move,down=auto",
            "eviction,on-hit=adaptive",
        ];
        let placement = placements[random.below(4) as usize];
        let divided = data == Data::Disjoint && random.one_in(2);
        let sharing = Some(Sharing {
            servers: 1 + random.below(3),
            division: if divided { Division::Benefit } else { Division::Shared },
            peer_fetch: data == Data::Shared && random.one_in(2),
        });
        let config = config(10 + random.below(50), 60 + random.below(100), placement);
        let warmup = u64::from(random.below(3000) * random.below(2));
        let config = Config { sharing, warmup_records: warmup, ..config };
        let timing = Timing {
            outstanding: 1 + random.below(8),
            think_us: u64::from(random.below(3)) * 7000,
            disks: 1 + random.below(3),
            link_bytes_per_s: random.one_in(2).then_some(1e6),
            reloads: if random.one_in(3) { ReloadTime::Demand } else { ReloadTime::Idle },
            ..timing()
        };
        let at = format!("{placement} UNDERCROFT_SEED={seed}");
        let outcome = run(&population, &config, &timing);
        let again = run(&population, &config, &timing);
        assert_eq!((&outcome.timed, &outcome.levels), (&again.timed, &again.levels), "{at}");
        let found = outcome.timed.as_ref().unwrap();
        assert_eq!(found.requests, population.trace().len() - warmup, "{at}");
        assert_eq!(found.reads, outcome.reads(), "{at}");
        let [own, server] = &outcome.levels[..] else { panic!("{at}") };
        assert_eq!(server.reads, own.reads - own.read_hits, "{at}");
        let below_ns = found.link_ns + found.wait_ns + found.service_ns;
        assert!(below_ns <= found.response_ns && found.behind_reloads_ns <= found.wait_ns, "{at}");
        let disk_reads = outcome.disk_reads();
        assert_eq!(found.service_ns, (disk_reads - found.joined) * 8 * MS, "{at}");
        let placed = outcome.cooperation.as_ref().unwrap().levels[1];
        let reloads = found.reloads;
        let done = placed.reloads + found.unwanted;
        // At most one reload for each disk was not done at the end, or all that took their turn.
        assert!(reloads.issued >= done, "{at}: {reloads:?} {done}");
        let dropped = reloads.demanded + reloads.written + reloads.overflowed + reloads.issued;
        assert!(reloads.queued >= dropped, "{at}: {reloads:?}");
        for share in found.disk_busy.iter().chain(&found.link_busy) {
            assert!((0.0..=1.01).contains(share), "{at}: {found:?}");
        }
    }
}

/// On a slow link blocks are reloaded, on a fast one above busy disks the client sends them.
#[test]
fn the_cheaper_way_is_taken() {
    let population = Population::one(common::trace(skewed(1, 20_000, 2000)), "one".into());
    let config = config(100, 300, "eviction,on-hit=move,down=auto");
    for (rate, think_us, demotes) in [(2e5, 30_000, false), (1e8, 0, true)] {
        let timing = Timing { link_bytes_per_s: Some(rate), think_us, ..timing() };
        let outcome = run(&population, &config, &timing);
        let placed = outcome.cooperation.unwrap().levels[1];
        let (sent, reloaded) = (placed.demotions_in, placed.reloads);
        let more = if demotes { sent > 10 * reloaded } else { reloaded > 10 * sent };
        assert!(more, "{rate} bytes/s, {think_us} us: {sent} sent, {reloaded} reloaded");
    }
}

#[test]
fn placement_is_compared_with_none() {
    let traces = [1, 2].map(|seed| {
        let trace = common::Memory::new(Unit::Blocks, skewed(seed, 2000, 60));
        (seed.to_string(), Box::new(trace) as Box<dyn Reader>)
    });
    let both = read(traces.into(), Data::Shared);
    let none = config(10, 20, "access");
    let without = TimedReport::from(&timed(&both, &none, &timing()));
    let with = Config {
        sharing: Some(Sharing { peer_fetch: true, ..Sharing::default() }),
        timing: Some(timing()),
        ..config(10, 20, "eviction,on-hit=move,down=demote")
    };
    let level = |text: &str| vec![text.parse().unwrap()];
    let (first, lower) = (level("10blk:lru"), level("20blk:lru"));
    let setup = Setup { first, lower, config: with, ..Setup::default() };
    let prepared = Prepared::of_clients(both, "both", 4096);
    assert_eq!(setup.run(&prepared, |_| ()).unwrap().timed_access, Some(without));
    let no_placement = Setup { config: Config { timing: Some(timing()), ..none }, ..setup };
    assert_eq!(no_placement.run(&prepared, |_| ()).unwrap().timed_access, None);
}

#[test]
fn times_out_of_range_are_refused() {
    let population = letters("AB");
    for wrong in [
        Timing { outstanding: 0, ..timing() },
        Timing { outstanding: 5000, ..timing() },
        Timing { disks: 0, ..timing() },
        Timing { disk_us: 0, ..timing() },
        Timing { think_us: u64::MAX, ..timing() },
        Timing { link_bytes_per_s: Some(0.0), ..timing() },
        Timing { link_bytes_per_s: Some(f64::NAN), ..timing() },
    ] {
        let wrong = Config { timing: Some(wrong), ..config(1, 2, "gl") };
        let error = simulate(&population, &wrong, |_| ()).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("expected 1 to"), "{error}");
    }
    let timing = Timing { link_bytes_per_s: Some(1.0), ..timing() };
    let slow = Config { block_bytes: 1 << 30, timing: Some(timing), ..config(1, 2, "gl") };
    let result = simulate(&population, &slow, |_| ());
    assert_eq!(result.map(|outcome| outcome.disk_reads()).unwrap(), 2);
    let slow = Config { timing: Some(Timing { outstanding: 4000, ..timing }), ..slow };
    let result = simulate(&population, &slow, |_| ());
    assert!(result.map(|_| ()).unwrap_err().to_string().contains("292"));
}
