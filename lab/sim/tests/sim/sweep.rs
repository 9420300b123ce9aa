//! Sweeps: the same numbers as single simulations, in the order of the plan; what was done is not
//! done again, what changed is; results that a machine reads back exactly.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::common::{Random, spec};
use tempfile::TempDir;
use undercroft_level::placement::Placement;
use undercroft_policy::{Spec, WriteMode};
use undercroft_sim::{
    CacheTree, Config, DemotionCost, Error, Evictions, LevelConfig, LevelSpec, Plan, Population,
    Prepared, Progress, Report, Row, Rule, Size, Source, Times, Warmup, simulate, sweep,
};
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, OpenOptions, open};

/// What a sweep told about itself.
#[derive(Default)]
struct Watch {
    read: Mutex<Vec<String>>,
    resumed: Mutex<usize>,
    shares: Mutex<f64>,
}

impl Progress for Watch {
    fn reading(&self, path: &Path) {
        let name = path.file_name().expect("a file").to_string_lossy().into_owned();
        self.read.lock().unwrap().push(name);
    }

    fn advanced(&self, share: f64) {
        *self.shares.lock().unwrap() += share;
    }

    fn resumed(&self, runs: usize) {
        *self.resumed.lock().unwrap() += runs;
    }
}

/// A sweep over two small traces in a folder of its own.
struct Bench {
    folder: TempDir,
    plan: Plan,
    reading: &'static str,
}

const TRACES: [&str; 2] = ["first.trc", "second.trc"];
const BLOCK_BYTES: u32 = 8192;
const WARMUP: u64 = 50;

impl Bench {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        for (seed, name) in (1..).zip(TRACES) {
            let mut random = Random(seed);
            let lines: String = (0..3000).map(|_| format!("{}\n", random.block(200))).collect();
            fs::write(folder.path().join(name), lines).unwrap();
        }
        let plan = Plan {
            upper: Some("20blk:lru".parse().unwrap()),
            sizes: Size::parse_list("160KiB,10blk,25%").unwrap(),
            policies: vec![spec("mq"), spec("lru"), spec("2q,kin=0.5")],
            placements: vec![Rule::Placement(Placement::Access)],
            ratio: None,
            flash: Vec::new(),
            config: Config::default(),
        };
        Self { folder, plan, reading: "as it is" }
    }

    fn trace(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn out(&self, name: &str) -> PathBuf {
        self.folder.path().join("out").join(name)
    }

    fn run(&self) -> (Result<Vec<Row>, Error>, Watch) {
        let source = |name: &&str| {
            let path = self.trace(name);
            let from = path.clone();
            let load = Box::new(move || {
                let name = from.display().to_string();
                Ok(Prepared::new(load(&from)?, name, BLOCK_BYTES, Evictions::Exact))
            });
            Source { path, reading: self.reading.into(), warmup: Warmup::Records(WARMUP), load }
        };
        let sources: Vec<_> = TRACES.iter().map(source).collect();
        let watch = Watch::default();
        let rows = sweep(&self.plan, &sources, &self.folder.path().join("out"), &watch);
        (rows, watch)
    }

    /// Runs, and checks how many of the 18 runs were really done and which traces were read.
    fn expect(&self, done: usize, read: &[&str]) -> Vec<Row> {
        let (rows, watch) = self.run();
        let rows = rows.unwrap();
        assert_eq!(*watch.read.lock().unwrap(), read);
        assert_eq!(*watch.resumed.lock().unwrap(), 18 - done);
        let shares = *watch.shares.lock().unwrap();
        assert!((shares - done as f64).abs() < 1e-6, "{done} runs advanced by {shares}");
        assert_eq!(rows.len(), 18);
        let journal = fs::read_to_string(self.out("runs.jsonl")).unwrap();
        assert!(journal.ends_with('\n') && journal.lines().count() >= 18);
        rows
    }
}

fn load(path: &Path) -> Result<DenseTrace, undercroft_trace::Error> {
    let reader = open(path, &OpenOptions::default())?;
    DenseTrace::load(BlockStream::new(reader, &BlockOptions::default())?, |_| ())
}

/// The rows are equal; if not, the first that differ are shown.
fn assert_same(ours: &[Row], expected: &[Row]) {
    assert_eq!(ours.len(), expected.len());
    for (ours, expected) in ours.iter().zip(expected) {
        assert_eq!(ours, expected);
    }
}

/// A row without the time that it took.
fn timeless(rows: &[Row]) -> Vec<Row> {
    rows.iter().map(|row| Row { elapsed_s: 0.0, ..row.clone() }).collect()
}

#[test]
fn rows_are_single_simulations_in_the_order_of_the_plan() {
    let bench = Bench::new();
    let rows = bench.expect(18, &TRACES);
    let mut rows = rows.iter();
    for name in TRACES {
        let path = bench.trace(name);
        let trace = load(&path).unwrap();
        for policy in ["mq", "lru", "2q,kin=0.5"] {
            for (size, blocks) in [("160KiB", 20), ("10blk", 10), ("25%", trace.unique() / 4)] {
                let row = rows.next().unwrap();
                let config = Config {
                    levels: vec![
                        "20blk:lru".parse::<LevelSpec>().unwrap().config(4096, 1).unwrap(),
                        LevelConfig { capacity: blocks, policy: spec(policy) },
                    ],
                    write_mode: WriteMode::Allocate,
                    warmup_records: WARMUP,
                    block_bytes: BLOCK_BYTES,
                    ..Config::default()
                };
                let outcome = simulate(&trace, &config, |_| ()).unwrap();
                let report = Report::new(&path.display().to_string(), &trace, &config, &outcome);
                let level = &report.levels[1];
                let expected = Row {
                    trace: path.display().to_string(),
                    upper: "20blk:lru".into(),
                    ratio: String::new(),
                    policy: policy.into(),
                    placement: "access".into(),
                    flash: String::new(),
                    size: size.into(),
                    capacity_blocks: blocks,
                    block_bytes: BLOCK_BYTES,
                    requests: 3000,
                    unique_blocks: trace.unique().into(),
                    reads: level.reads,
                    read_hits: level.read_hits,
                    read_hit_ratio: level.read_hits as f64 / level.reads as f64,
                    writes: 0,
                    write_hits: 0,
                    cold_reads: level.cold_reads,
                    evictions: level.evictions,
                    streamed: 0,
                    aggregate_read_hit_ratio: report.aggregate.read_hit_ratio,
                    disk_demand_reads: level.reads - level.read_hits,
                    disk_reloads: 0,
                    disk_writes: 0,
                    response_time_ms: report.response_time_ms,
                    response_time_with_demotions_ms: report.response_time_ms,
                    demotions_in: 0,
                    promotions_out: 0,
                    staged: 0,
                    flash_read_hits: 0,
                    flash_written: 0,
                    elapsed_s: row.elapsed_s,
                };
                assert_eq!(*row, expected);
            }
        }
    }
}

#[test]
fn csv_and_json_hold_the_rows_exactly() {
    let bench = Bench::new();
    for done in [18, 0] {
        let rows = bench.expect(done, if done == 0 { &[] } else { &TRACES });
        let mut csv = csv::Reader::from_path(bench.out("results.csv")).unwrap();
        let from_csv: Vec<Row> = csv.deserialize().map(Result::unwrap).collect();
        assert_same(&from_csv, &rows);
        let json = fs::read_to_string(bench.out("results.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let header = csv.headers().unwrap().clone();
        assert_eq!(json[0].as_object().unwrap().len(), header.len());
        assert!(header.iter().all(|name| !json[0][name].is_null()));
        let from_json: Vec<Row> = serde_json::from_value(json).unwrap();
        assert_same(&from_json, &rows);
        assert!(!bench.out("results.csv.part").exists());
    }
}

#[test]
fn a_finished_sweep_does_nothing_again() {
    let bench = Bench::new();
    let rows = bench.expect(18, &TRACES);
    fs::remove_file(bench.out("results.csv")).unwrap();
    fs::remove_file(bench.out("results.json")).unwrap();
    assert_same(&bench.expect(0, &[]), &rows);
    assert!(bench.out("results.csv").exists() && bench.out("results.json").exists());
}

#[test]
fn a_sweep_cut_off_in_the_middle_of_a_line_does_the_rest() {
    let bench = Bench::new();
    let rows = bench.expect(18, &TRACES);
    let journal = fs::read_to_string(bench.out("runs.jsonl")).unwrap();
    let ends: Vec<_> = journal.match_indices('\n').map(|(at, _)| at + 1).collect();
    // Cut: in the last line, before its end, in the 12th line, at the end of the 9th, in the first.
    for (length, whole) in [
        (ends[17] - 30, 17),
        (ends[17] - 1, 17),
        (ends[10] + 100, 11),
        (ends[8], 9),
        (40, 0),
        (0, 0),
    ] {
        fs::write(bench.out("runs.jsonl"), &journal[..length]).unwrap();
        let read = if whole < 9 { &TRACES[..] } else { &TRACES[1..] };
        let again = bench.expect(18 - whole, read);
        assert_same(&timeless(&again), &timeless(&rows));
        bench.expect(0, &[]);
    }
}

#[test]
fn a_changed_plan_does_only_what_is_new() {
    let mut bench = Bench::new();
    let rows = bench.expect(18, &TRACES);
    bench.plan.policies[0] = spec("mq,m=4");
    bench.expect(6, &TRACES);
    bench.plan.policies[0] = spec("mq");
    assert_same(&bench.expect(0, &[]), &rows);
    bench.plan.sizes[1] = Size::Blocks(11);
    bench.expect(6, &TRACES);
    // The same size written otherwise in bytes is the same; in blocks it is another question.
    bench.plan.sizes[0] = "163840".parse().unwrap();
    bench.expect(0, &[]);
    bench.plan.upper = None;
    bench.expect(18, &TRACES);
    bench.plan.config.write_mode = WriteMode::NoAllocate;
    bench.expect(18, &TRACES);
    bench.reading = "otherwise";
    bench.expect(18, &TRACES);
}

/// A parameter at its default is the policy without it.
#[test]
fn a_default_that_is_spelled_out_is_the_same_run() {
    let mut bench = Bench::new();
    bench.expect(18, &TRACES);
    bench.plan.policies[0] = Spec::parse("mq,lifetime=adaptive").unwrap();
    bench.expect(0, &[]);
}

#[test]
fn a_changed_trace_is_simulated_again() {
    let bench = Bench::new();
    let rows = bench.expect(18, &TRACES);
    let path = bench.trace(TRACES[1]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text + "1\n").unwrap();
    let again = bench.expect(9, &TRACES[1..]);
    assert_same(&again[..9], &rows[..9]);
    assert!(again[9..].iter().all(|row| row.requests == 3001));
}

#[test]
fn damage_inside_the_journal_is_an_error_that_names_the_line() {
    let bench = Bench::new();
    bench.expect(18, &TRACES);
    let journal = fs::read_to_string(bench.out("runs.jsonl")).unwrap();
    let mut lines: Vec<_> = journal.lines().collect();
    for damage in ["", "{}", "nonsense", &lines[4].to_owned()[..100]] {
        lines[4] = damage;
        fs::write(bench.out("runs.jsonl"), lines.join("\n") + "\n").unwrap();
        let (result, watch) = bench.run();
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Results { .. }));
        let text = error.to_string();
        assert!(text.contains("runs.jsonl: line 5: "), "{text}");
        assert!(text.contains("delete the file") && !text.contains('\n'), "{text}");
        assert!(watch.read.lock().unwrap().is_empty());
    }
}

#[test]
fn what_was_done_before_a_failure_stays_done() {
    let bench = Bench::new();
    let path = bench.trace(TRACES[1]);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.clone() + "damage\n").unwrap();
    let (result, _) = bench.run();
    assert!(matches!(result, Err(Error::Trace(_))));
    assert!(!bench.out("results.csv").exists());
    fs::write(&path, text).unwrap();
    bench.expect(9, &TRACES[1..]);

    fs::remove_file(&path).unwrap();
    let (result, _) = bench.run();
    let text = result.unwrap_err().to_string();
    assert!(text.contains(TRACES[1]), "{text}");
}

#[test]
fn a_run_that_makes_no_sense_is_an_error() {
    let mut bench = Bench::new();
    bench.plan.sizes = Size::parse_list("10blk,1%,0.001%").unwrap();
    let (result, _) = bench.run();
    assert!(matches!(result, Err(Error::Request(_))));
    bench.plan.sizes = Size::parse_list("10blk").unwrap();
    bench.plan.policies.push(spec("opt"));
    bench.plan.config.write_mode = WriteMode::Invalidate;
    let (result, _) = bench.run();
    assert!(matches!(result, Err(Error::Request(_))));
    let mut bench = Bench::new();
    bench.plan.upper = Some("10blk:lru".parse().unwrap());
    bench.plan.ratio = Some("1:2".parse().unwrap());
    assert!(bench.run().0.unwrap_err().to_string().contains("give one"));
    let mut bench = Bench::new();
    bench.plan.config.times.demotions = Some(DemotionCost::Free);
    assert!(bench.run().0.unwrap_err().to_string().contains("none of the placements"));
}

#[test]
fn the_default_sizes_of_a_small_trace_are_at_least_a_block() {
    let mut bench = Bench::new();
    for name in TRACES {
        fs::write(bench.trace(name), "1\n2\n3\n".repeat(40)).unwrap();
    }
    bench.plan.sizes = Size::parse_list(Plan::SIZES).unwrap();
    for _ in 0..2 {
        let (rows, watch) = bench.run();
        let rows = rows.unwrap();
        let sizes: Vec<_> = rows.iter().map(|row| (&*row.size, row.capacity_blocks)).collect();
        assert_eq!(sizes, [("50%", 1), ("100%", 3)].repeat(3 * TRACES.len()));
        let shares = *watch.shares.lock().unwrap();
        let all =
            (bench.plan.sizes.len() * 3 * TRACES.len() - *watch.resumed.lock().unwrap()) as f64;
        assert!((shares - all).abs() < 1e-6, "{shares} of {all}");
    }
    // Whoever asks for them is told.
    bench.plan.sizes = Size::parse_list("1%,50%").unwrap();
    assert!(bench.run().0.unwrap_err().to_string().contains("size 1% is 0 blocks"));
}

#[test]
fn a_ratio_may_have_large_parts() {
    let mut bench = Bench::new();
    bench.plan.upper = None;
    for (ratio, last) in [("100:1", 2), ("1:100", 20_000), ("70:3:90", 257)] {
        bench.plan.ratio = Some(ratio.parse().unwrap());
        bench.plan.sizes = Size::parse_list("200blk").unwrap();
        let rows = bench.run().0.unwrap();
        assert!(rows.iter().all(|row| row.capacity_blocks == last), "{ratio}");
    }
}

/// Rows of schemes are single simulations; what a scheme does not take is left out, and an error if
/// nothing is left.
#[test]
fn schemes_are_swept_over_the_policies_that_they_take() {
    let mut bench = Bench::new();
    let rules = ["d-hfa,k=3", "promote,start=0.5"].map(|s| Rule::Scheme(s.parse().unwrap()));
    bench.plan.placements.extend(rules.clone());
    bench.plan.policies = vec![spec("mq"), spec("lru"), spec("arc")];
    bench.plan.upper = None;
    bench.plan.ratio = Some("1:2:4".parse().unwrap());
    bench.plan.sizes = Size::parse_list("5blk,10blk").unwrap();
    bench.plan.config.times.demotions = Some(DemotionCost::Free);
    // Access with three policies, D-HFA with one, PROMOTE with two: six pairs of two sizes.
    let (rows, watch) = bench.run();
    let rows = rows.unwrap();
    assert_eq!((rows.len(), *watch.resumed.lock().unwrap()), (2 * 12, 0));
    let (again, watch) = bench.run();
    assert_same(&again.unwrap(), &rows);
    assert_eq!(*watch.resumed.lock().unwrap(), 24);

    let trace = load(&bench.trace(TRACES[0])).unwrap();
    let population = Population::one(trace, "one".into());
    for row in rows.iter().filter(|row| row.trace.ends_with(TRACES[0])) {
        let Ok(scheme) = row.placement.parse() else { continue };
        let first: u32 = row.size.strip_suffix("blk").unwrap().parse().unwrap();
        let level = |times| LevelConfig { capacity: times * first, policy: spec(&row.policy) };
        let config = Config {
            tree: Some(CacheTree::line(&[1, 2, 4].map(level)).unwrap()),
            rule: Rule::Scheme(scheme),
            block_bytes: BLOCK_BYTES,
            warmup_records: WARMUP,
            times: Times { demotions: Some(DemotionCost::Free), ..Times::default() },
            ..Config::default()
        };
        let outcome = simulate(&population, &config, |_| ()).unwrap();
        let report = Report::new("", &population, &config, &outcome);
        assert_eq!((row.capacity_blocks, &*row.ratio, &*row.upper), (4 * first, "1:2:4", ""));
        assert_eq!(row.read_hits, report.levels[2].read_hits, "{} {first}", row.placement);
        assert_eq!(row.demotions_in, report.levels[2].demotions_in);
        assert_eq!(row.response_time_ms, report.response_time_ms);
        assert_eq!(row.response_time_with_demotions_ms, report.response_time_with_demotions_ms);
        assert_eq!(row.aggregate_read_hit_ratio, report.aggregate.read_hit_ratio);
    }

    // A cost that only schemes know is a question of its own for them alone.
    bench.plan.config.times.demotions = None;
    let (rows, watch) = bench.run();
    assert_eq!((rows.unwrap().len(), *watch.resumed.lock().unwrap()), (24, 12));

    for (placement, policies, ratio, why) in [
        ("d-hfa", vec![spec("mq")], Some("1:4"), "written with lru"),
        ("tandem", vec![spec("lru")], Some("1:2:4"), "two levels"),
        ("demote", vec![spec("lru")], None, "add one below"),
    ] {
        bench.plan.placements = vec![Rule::Scheme(placement.parse().unwrap())];
        bench.plan.policies = policies;
        bench.plan.ratio = ratio.map(|ratio| ratio.parse().unwrap());
        let error = bench.run().0.unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    bench.plan.upper = Some("20blk:arc".parse().unwrap());
    bench.plan.ratio = None;
    let error = bench.run().0.unwrap_err().to_string();
    assert!(error.contains("write the same"), "{error}");
}

/// Content-aware policies know the level above: they are swept below one, and refused without.
#[test]
fn content_aware_policies_are_swept() {
    let mut bench = Bench::new();
    bench.plan.policies = vec![spec("lru-ca,knows=exact"), spec("lru"), spec("mq,ca")];
    let rows = bench.expect(18, &TRACES);
    bench.expect(0, &[]);
    let hits = |policy: &str| -> f64 {
        let of = rows.iter().filter(|row| row.policy.starts_with(policy));
        of.map(|row| row.aggregate_read_hit_ratio).sum()
    };
    assert!(hits("lru-ca") != hits("lru,") && hits("lru-ca") > 0.0);
    bench.plan.upper = None;
    let (result, _) = bench.run();
    assert!(matches!(result, Err(Error::Request(_))));
}
