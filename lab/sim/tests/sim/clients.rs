//! Several clients driven by traces: whose blocks are whose, what is counted, and the same results
//! as with one client where there is one.

use crate::common::{self, Random, config, seeds};
use undercroft_policy::{Spec, WriteMode};
use undercroft_sim::tree::Division;
use undercroft_sim::{
    Config, Data, Error, LevelConfig, Outcome, Population, Report, Sharing, TraceInput, simulate,
};
use undercroft_trace::{Reader, Record, Unit};

fn level(capacity: u32, policy: &str) -> LevelConfig {
    LevelConfig { capacity, policy: Spec::parse(policy).unwrap() }
}

fn clients_config(l1: u32, l2: (u32, &str), placement: &str) -> Config {
    let levels = vec![level(l1, "lru"), level(l2.0, l2.1)];
    let (rule, sharing) = (placement.parse().unwrap(), Some(Sharing::default()));
    Config { levels, rule, sharing, block_bytes: 4096, ..Config::default() }
}

/// A configuration that shares something else.
fn sharing(config: &Config, change: impl FnOnce(&mut Sharing)) -> Config {
    let mut config = config.clone();
    change(config.sharing.as_mut().unwrap());
    config
}

/// Skewed references to `blocks` blocks, with writes, one a microsecond from `start_us` on.
fn records(seed: u64, count: u32, blocks: u32, start_us: u64) -> Vec<Record> {
    let mut random = Random(seed);
    let record = |at: u32| Record {
        time_ns: (start_us + u64::from(at)) * 1000,
        ..common::blocks(random.block(blocks).into(), 1, random.one_in(6))
    };
    (0..count).map(record).collect()
}

fn reader(records: Vec<Record>) -> Box<dyn Reader> {
    Box::new(common::Memory::new(Unit::Blocks, records))
}

fn population(traces: Vec<Vec<Record>>, data: Data) -> Population {
    let named = traces.into_iter().enumerate();
    let named = named.map(|(i, records)| (format!("client {i}"), reader(records))).collect();
    Population::read(named, &TraceInput::default(), data, |_| ()).unwrap().0
}

fn run(population: &Population, config: &Config) -> Outcome {
    simulate(population, config, |_| ()).unwrap()
}

// ------------------------------------------------------------------ one client

#[test]
fn one_client_is_the_hierarchy() {
    for seed in seeds(3) {
        for placement in ["access", "gl", "eviction,on-hit=keep", "eviction,on-hit=move,staging=20"]
        {
            let warmup = 30_000;
            let trace = common::trace(records(seed, 150_000, 3000, 0));
            let levels = Config {
                levels: vec![level(200, "lru"), level(400, "mq")],
                rule: placement.parse().unwrap(),
                ..config(&[(1, "lru")], WriteMode::Allocate, warmup)
            };
            let theirs = simulate(&trace, &levels, |_| ()).unwrap();
            let alone = Population::one(trace, "alone".into());
            for division in [Division::Shared, Division::Equal, Division::Benefit] {
                let wanted = Config {
                    warmup_records: warmup,
                    ..clients_config(200, (400, "mq"), placement)
                };
                let wanted = sharing(&wanted, |sharing| sharing.division = division);
                let ours = run(&alone, &wanted);
                for (ours, theirs) in ours.levels.iter().zip(&theirs.levels) {
                    let mut theirs = *theirs;
                    theirs.known = ours.known;
                    assert_eq!(*ours, theirs, "{placement} UNDERCROFT_SEED={seed}");
                }
                assert_eq!(ours.cooperation, theirs.cooperation, "{placement}");
                let report = |config: &Config, outcome: &Outcome| {
                    let report = Report::new("alone", &alone, config, outcome);
                    (report.levels, report.aggregate, report.disk, report.response_time_ms)
                };
                assert_eq!(report(&wanted, &ours), report(&levels, &theirs), "{placement}");
            }
        }
    }
}

// ------------------------------------------------------------------ who is who

/// Clients of disjoint data do not meet: each has what it would have alone, its part given.
#[test]
fn clients_with_equal_parts_are_each_alone() {
    for seed in seeds(3) {
        let traces: Vec<_> = (0..3).map(|i| records(seed * 10 + i, 20_000, 1000, 77 * i)).collect();
        let together = population(traces.clone(), Data::Disjoint);
        let wanted = clients_config(100, (600, "mq"), "eviction,on-hit=move");
        let wanted = sharing(&wanted, |sharing| sharing.division = Division::Equal);
        let outcome = run(&together, &wanted);
        let clients = outcome.clients.unwrap();
        let mut hits = 0;
        for (trace, client) in traces.into_iter().zip(&clients.clients) {
            let alone = Population::one(common::trace(trace), "alone".into());
            let outcome = run(&alone, &clients_config(100, (200, "mq"), "eviction,on-hit=move"));
            assert_eq!(outcome.levels[0], client.own, "UNDERCROFT_SEED={seed}");
            assert_eq!(outcome.levels[1].read_hits, client.below.server_hits);
            assert_eq!(client.part_blocks, Some(200));
            hits += client.below.server_hits;
        }
        assert_eq!(outcome.levels[1].read_hits, hits);
        assert_eq!(together.unique(), together.trace().unique());
    }
}

#[test]
fn clients_that_share_serve_each_other() {
    let same = records(5, 30_000, 800, 0);
    let together = population(vec![same.clone(), same.clone()], Data::Shared);
    let apart = population(vec![same.clone(), same.clone()], Data::Disjoint);
    assert_eq!((together.unique() * 2, together.data()), (apart.unique(), Data::Shared));
    let usual = clients_config(100, (200, "lru"), "eviction,on-hit=move");
    let wanted = sharing(&usual, |sharing| sharing.peer_fetch = true);
    let outcome = run(&together, &wanted);
    let clients = outcome.clients.as_ref().unwrap();
    // The second asks for everything just after the first.
    let [first, second] = &clients.clients[..] else { panic!("{clients:?}") };
    assert_eq!(second.below.disk_reads + second.below.server_hits, 0);
    assert!(second.below.peer_hits > 5000 && first.below.peer_hits < 100, "{clients:?}");
    assert_eq!(outcome.peer_hits(), first.below.peer_hits + second.below.peer_hits);
    assert_eq!(outcome.disk_reads(), first.below.disk_reads + second.below.disk_reads);
    // Without a peer to ask, the disk is asked.
    assert_eq!(run(&together, &usual).peer_hits(), 0);
}

/// Each address space of a trace is a client, as if it had a trace of its own.
#[test]
fn spaces_are_clients() {
    let mut random = Random(3);
    let mut record = |at: u64| Record {
        // The clocks of all begin at once.
        space: if at < 4 { at as u32 } else { random.below(4) },
        time_ns: if at < 4 { 0 } else { at },
        ..common::blocks(random.block(500).into(), 1, random.one_in(9))
    };
    let mixed: Vec<Record> = (0..40_000).map(&mut record).collect();
    let of_space = |space: u32| {
        let own = mixed.iter().filter(|record| record.space == space);
        own.map(|record| Record { space: 0, ..*record }).collect()
    };
    for (data, unique) in [(Data::Disjoint, 2000), (Data::Shared, 500)] {
        let spaces = Population::of_spaces(common::trace(mixed.clone()), data).unwrap();
        let traces = population((0..4).map(of_space).collect(), data);
        assert_eq!((spaces.unique(), traces.unique()), (unique, unique));
        let wanted = clients_config(50, (200, "lru"), "eviction,on-hit=move");
        let (ours, theirs) = (run(&spaces, &wanted), run(&traces, &wanted));
        assert_eq!((ours.levels, ours.clients), (theirs.levels, theirs.clients));
    }
    let one = Population::of_spaces(common::trace(records(1, 100, 10, 0)), Data::Disjoint);
    let error = one.map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("one space only"), "{error}");
}

// ------------------------------------------------------------------ several servers

#[test]
fn volumes_or_hashes_find_the_server() {
    let traces: Vec<_> = (0..2).map(|i| records(i, 20_000, 1000, 0)).collect();
    for (servers, by_volume) in [(2, true), (3, false)] {
        let together = population(traces.clone(), Data::Disjoint);
        let wanted = clients_config(100, (600, "lru"), "eviction,on-hit=keep");
        let wanted = sharing(&wanted, |sharing| sharing.servers = servers);
        let clients = run(&together, &wanted).clients.unwrap();
        assert_eq!(clients.by_volume, by_volume);
        assert_eq!(clients.servers.len(), servers as usize);
        for (server, client) in clients.servers.iter().zip(&clients.clients) {
            let missed = client.own.reads - client.own.read_hits;
            assert_eq!(server.reads == missed, by_volume, "a volume each, a server each");
        }
        let reads = |counts: &undercroft_policy::Counts| counts.reads - counts.read_hits;
        let missed: u64 = clients.clients.iter().map(|client| reads(&client.own)).sum();
        assert_eq!(clients.servers.iter().map(|server| server.reads).sum::<u64>(), missed);
    }
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let two = || population((0..2).map(|i| records(i, 100, 10, 0)).collect(), Data::Disjoint);
    let usual = clients_config(10, (10, "lru"), "eviction,on-hit=move");
    for (config, why) in [
        (Config { levels: vec![level(1, "lru"); 4], ..usual.clone() }, "3 first levels"),
        (Config { levels: Vec::new(), ..usual.clone() }, "0 first levels"),
        (clients_config(10, (9, "opt"), "access"), "cannot be known"),
        (Config { levels: vec![level(1, "opt"); 2], ..usual.clone() }, "cannot be known"),
        (Config { sharing: None, ..usual.clone() }, "what they share"),
        (sharing(&usual, |sharing| sharing.servers = 0), "servers"),
        (sharing(&usual, |sharing| sharing.servers = 11), "servers"),
        (sharing(&usual, |sharing| sharing.peer_fetch = true), "nothing to serve"),
        (clients_config(10, (10, "lru"), "eviction,on-hit=move,down=auto"), "--timed"),
    ] {
        let error = simulate(&two(), &config, |_| ()).unwrap_err().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    let many = (0..65).map(|i| (i.to_string(), reader(records(i, 1, 10, 0)))).collect();
    let error = Population::read(many, &TraceInput::default(), Data::Disjoint, |_| ());
    assert!(error.map(|_| ()).unwrap_err().to_string().contains("at most 64"));
    let empty = vec![("a".into(), reader(records(1, 9, 9, 0))), ("b".into(), reader(vec![]))];
    let error = Population::read(empty, &TraceInput::default(), Data::Disjoint, |_| ());
    let error = error.map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("client b: its trace holds no"));
    // The input is wrong, and not what was asked for.
    assert!(matches!(error, Error::Trace(_)));
    let bytes = Box::new(common::Memory::new(Unit::Bytes, vec![])) as Box<dyn Reader>;
    let input = TraceInput { unit: Some(512), ..TraceInput::default() };
    let error = Population::read(vec![("a".into(), bytes)], &input, Data::Disjoint, |_| ());
    let error = error.map(|_| ()).unwrap_err();
    assert!(matches!(error, Error::Request(_)) && error.to_string().starts_with("unit: "));
}
