//! A replay that tells the server what leaves its first level: what reaches the server is what the
//! simulator foretells, at depth 1; with more in flight it is still true, and the data right.

use undercroft_hints::Report;
use undercroft_level::Level;
use undercroft_level::placement::Placement;
use undercroft_policy::{Context, Policy, Reference, Spec, WriteMode};
use undercroft_sim::tree::Tree;
use undercroft_tools::{Replay, ReplayError, replay};
use undercroft_trace::DenseTrace;

use crate::support::{BLOCK, Event, Volume, counted, evicted, follow};
use crate::traces::zipf;

const L1: u32 = 60;

fn trace() -> DenseTrace {
    zipf("blocks=400,requests=6000,writes=0.3,alpha=0.8")
}

fn policy(text: &str) -> Box<dyn Policy> {
    let spec: Spec = text.parse().expect("a policy");
    spec.build(&Context::new(L1)).expect("a policy")
}

fn how(l1: Option<Box<dyn Policy>>, write_mode: WriteMode, report: Report) -> Replay {
    Replay { l1, write_mode, verify: true, report, ..Replay::default() }
}

fn lower(placement: &str, mode: WriteMode) -> Level {
    let placement: Placement = placement.parse().expect("a placement");
    let spec = "mq".parse().expect("a policy");
    Level::new(&spec, 80, &placement, mode, 0).expect("a level")
}

async fn check(trace: &DenseTrace, l1: &str, placement: &str, report: Report, mode: WriteMode) {
    let text = format!("{l1}, {placement}, {mode:?}");
    let served = Volume::new(400 * BLOCK, 1, "evict,demote", 1).serve().await;
    let how = how(Some(policy(l1)), mode, report);
    let played = replay(trace, BLOCK as u32, &served.uri, how, |_| ()).await.expect("a replay");
    assert_eq!(played.mismatches, 0, "{text}: {:?}", played.mismatched);

    let mut promised = Tree::line(Some((policy(l1), mode)), vec![lower(placement, mode)]).unwrap();
    let mut chunks = trace.forward();
    while let Some((_, chunk)) = chunks.next().expect("a readable trace") {
        for r in chunk {
            promised.refer(Reference::new(r.block(), r.is_write()));
        }
    }
    let mut delivered = lower(placement, mode);
    let disk = served.volume.disk();
    follow(&disk.events, &mut delivered);
    let expected = promised.lower()[0].cache().counts();
    assert_eq!(counted(delivered.cache().counts()), counted(expected), "{text}");
    assert!(expected.read_hits > 0 && disk.wrongs.is_empty(), "{text}: {:?}", disk.wrongs);

    let top = promised.clients().first().expect("a first level").cache().counts();
    let (l1, told) = (played.l1.expect("a first level"), played.told.expect("something told"));
    assert_eq!((l1.read_hits, l1.evictions), (top.read_hits, top.evictions), "{text}");
    assert_eq!((told.evictions, told.messages, told.refused), (top.evictions, top.evictions, 0));
    let handed_over = if report == Report::Demotions { top.evictions } else { 0 };
    assert_eq!(told.handed_over, handed_over, "{text}");
}

#[tokio::test]
async fn the_server_sees_what_the_simulator_foretells() {
    let trace = trace();
    for l1 in ["lru", "mq", "w-tinylfu", "clock-pro"] {
        for mode in [WriteMode::Allocate, WriteMode::NoAllocate] {
            check(&trace, l1, "eviction,on-hit=move", Report::Evictions, mode).await;
            check(&trace, l1, "gl", Report::Demotions, mode).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_many_in_flight_what_is_handed_over_is_right() {
    let trace = trace();
    let served = Volume::new(400 * BLOCK, 1, "evict,demote", 1).serve().await;
    served.volume.disk().delay = std::time::Duration::from_micros(200);
    let how = Replay {
        depth: 16,
        batch: 8,
        ..how(Some(policy("lru")), WriteMode::Allocate, Report::Demotions)
    };
    let played = replay(&trace, BLOCK as u32, &served.uri, how, |_| ()).await.expect("a replay");
    assert_eq!(played.mismatches, 0, "{:?}", played.mismatched);
    let disk = served.volume.disk();
    assert!(disk.wrongs.is_empty(), "{:?}", disk.wrongs);
    let told = played.told.expect("something told");
    assert!(told.handed_over > 0 && told.messages < told.evictions, "{told:?}");
    let hints = disk.events.iter().filter_map(|event| match event {
        Event::Hints(hints) => Some(hints),
        _ => None,
    });
    let blocks: usize = hints.flatten().filter_map(evicted).map(|(blocks, _)| blocks.len()).sum();
    assert_eq!(blocks as u64, told.evictions);
}

#[tokio::test]
async fn what_cannot_be_told_is_refused() {
    let trace = trace();
    let served = Volume::new(800 * BLOCK, 1, "evict", 1).serve().await;
    let play = async |l1, report, block_bytes| {
        let how = how(l1, WriteMode::Allocate, report);
        replay(&trace, block_bytes, &served.uri, how, |_| ()).await.expect_err("a refusal")
    };
    let lru = || Some(policy("lru"));
    let error = play(None, Report::Evictions, BLOCK as u32).await;
    assert!(matches!(error, ReplayError::NoFirstLevel), "{error}");
    let error = play(lru(), Report::Evictions, 2 * BLOCK as u32).await;
    assert!(matches!(error, ReplayError::OtherBlocks { has: 4096, wants: 8192, .. }), "{error}");
    let error = play(lru(), Report::Demotions, BLOCK as u32).await;
    assert!(error.to_string().contains("asked for evict,demote, got 'evict"), "{error}");
    // The window is no room for a trace.
    let small = Volume::new(399 * BLOCK, 1, "evict", 1).serve().await;
    let how = how(lru(), WriteMode::Allocate, Report::Evictions);
    let error = replay(&trace, BLOCK as u32, &small.uri, how, |_| ()).await.expect_err("too small");
    assert!(matches!(error, ReplayError::TooSmall { .. }), "{error}");
}
