//! What scripts read of each finding and assumption of a trace: fields, and commands.

use undercroft_adviser::{Assumption, Cost, Estimate, FlashGain};

use super::*;

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

fn runs(findings: &[Finding]) -> Runs {
    Runs {
        block_bytes: 4096,
        simulate: "undercroft simulate t.uct --l1 16MiB:lru".to_owned(),
        level: "--l2",
        evictions: " --evictions told".to_owned(),
        has_prices: findings.iter().any(|one| matches!(one, Finding::Cheapest { .. })),
    }
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

/// What scripts read: the fields of each kind, in order, and the runs with what to serve.
#[test]
fn fields_and_runs_of_findings() {
    let of = |findings: &[Finding]| {
        let commands = self::runs(findings);
        let finding = findings.last().unwrap();
        let json = serde_json::to_string(finding).unwrap();
        let (runs, serve) = (commands.finding(finding), commands.serve(finding));
        let run = "undercroft simulate t.uct --l1 16MiB:lru --l2 ";
        let runs: Vec<_> = runs.iter().map(|one| one.strip_prefix(run).unwrap()).collect();
        let serve = serve.map_or(String::new(), |serve| {
            let volume = "undercroft serve --volume NAME=STORE,";
            format!(" > {}", serve.strip_prefix(volume).unwrap())
        });
        format!("{json}\n{}{serve}", runs.join(" | "))
    };
    let both = |kind: &str, rest: &str| format!("{{\"kind\":\"{kind}\",{rest}");
    let lru = r#"{"policy":"lru","placement":"access","capacity_blocks":8192,"read_hit_ratio":0.25,"disk_reads":75000}"#;
    let mq = r#"{"policy":"mq","placement":"auto","capacity_blocks":16384,"read_hit_ratio":0.5,"disk_reads":9}"#;
    let difference = r#"{"gain":0.25,"error":0.5}"#;
    let cost = r#"{"memory":1.0,"disks":10.114,"total":304.4}"#;
    let without = r#"{"memory":0.0,"disks":26.7,"total":1801.0}"#;
    let is = || choice("lru", 8192, 0.25);
    let other = || placed("mq", "auto", 0.5, 9);
    let off = Estimate { value: 0.25, error: 0.5 };
    let placed_run = "64MiB:mq --placement auto --evictions told";
    for (findings, expected) in [
        (
            vec![Finding::Unfiltered { lru: is() }],
            both("unfiltered", &format!("\"lru\":{lru}}}\n32MiB:lru")),
        ),
        (
            vec![Finding::NothingToGain { best: other() }],
            both("nothing_to_gain", &format!("\"best\":{mq}}}\n{placed_run}")),
        ),
        (
            vec![cheapest(Some(other()))],
            both(
                "cheapest",
                &format!(
                    "\"choice\":{mq},\"cost\":{cost},\"without\":{without},\"error\":3.456}}\n\
                     {placed_run} > cache=64MiB,block=4KiB,policy=mq,placement=auto"
                ),
            ),
        ),
        (
            vec![cheapest(None)],
            both(
                "cheapest",
                &format!(
                    "\"choice\":null,\"cost\":{cost},\"without\":{without},\"error\":3.456}}\n"
                ),
            ),
        ),
        (
            vec![knee(3277, 6.0, 1.0, 65_536)],
            both(
                "knee",
                "\"choice\":{\"policy\":\"lirs\",\"placement\":\"access\",\
                 \"capacity_blocks\":3277,\"read_hit_ratio\":0.3863,\"disk_reads\":61370},\
                 \"per_gib_before\":6.0,\"per_gib_after\":1.0,\"enough_blocks\":65536}\n\
                 3277blk:lirs > cache=13108KiB,block=4KiB,policy=lirs",
            ),
        ),
        (
            vec![Finding::Bound { read_hit_ratio: 0.75, opt: is() }],
            both("bound", &format!("\"read_hit_ratio\":0.75,\"opt\":{lru}}}\n32MiB:lru")),
        ),
        (
            vec![Finding::LruWasted { lru: is(), up_to_blocks: 9001, best: Some(other()) }],
            both(
                "lru_wasted",
                &format!(
                    "\"lru\":{lru},\"up_to_blocks\":9001,\"best\":{mq}}}\n9001blk:lru | \
                     {placed_run}"
                ),
            ),
        ),
        (
            vec![Finding::PolicyGains {
                choice: other(),
                base: is(),
                difference: off,
                saved: Estimate::default(),
                equals: vec!["arc".to_owned()],
                lru_blocks: None,
                sizes: vec![8192],
            }],
            both(
                "policy_gains",
                &format!(
                    "\"choice\":{mq},\"lru\":{lru},\"difference\":{difference},\
                     \"equals\":[\"arc\"],\"lru_blocks\":null,\"sizes\":[8192]}}\n\
                     {placed_run} | 32MiB:lru"
                ),
            ),
        ),
        (
            vec![Finding::NoPolicyGains { choice: other(), base: is(), difference: off }],
            both(
                "no_policy_gains",
                &format!(
                    "\"choice\":{mq},\"lru\":{lru},\"difference\":{difference}}}\n\
                     {placed_run} | 32MiB:lru"
                ),
            ),
        ),
        (
            vec![Finding::Placement { choice: other(), base: is(), hits: off, disk: off }],
            both(
                "placement",
                &format!(
                    "\"choice\":{mq},\"access\":{lru},\"hits\":{difference},\
                     \"disk\":{difference}}}\n{placed_run} | 32MiB:lru"
                ),
            ),
        ),
        (
            vec![Finding::Flash(FlashGain {
                memory: is(),
                flash_blocks: 65_536,
                read_hit_ratio: 0.75,
                difference: off,
                written_per_hit: 0.5,
                lru_blocks: None,
                is_filled: true,
            })],
            both(
                "flash",
                &format!(
                    "\"memory\":{lru},\"flash_blocks\":65536,\"read_hit_ratio\":0.75,\
                     \"difference\":{difference},\"written_per_hit\":0.5,\"lru_blocks\":null}}\n\
                     32MiB:lru --flash 256MiB"
                ),
            ),
        ),
        (
            vec![Finding::Enough { choice: is() }],
            both("enough", &format!("\"choice\":{lru}}}\n32MiB:lru")),
        ),
    ] {
        assert_eq!(of(&findings), expected);
    }
    let priced = of(&[cheapest(None), knee(8192, 6.0, 1.0, 65_536)]);
    assert!(priced.ends_with("\n32MiB:lirs"), "the prices decide: {priced}");
    let named = |assumption: &Assumption| serde_json::to_string(assumption).unwrap();
    let client = Assumption::Client { policy: "lru".to_owned(), capacity_blocks: 8192 };
    let sampled = Assumption::Sampled { rate: 0.125, error: 0.5 };
    for (assumption, expected) in [
        (client, r#"{"kind":"client","policy":"lru","capacity_blocks":8192}"#),
        (Assumption::BelowClient, r#"{"kind":"below_client"}"#),
        (Assumption::EvictionsKnown, r#"{"kind":"evictions_known"}"#),
        (Assumption::EvictionsUnknown, r#"{"kind":"evictions_unknown"}"#),
        (Assumption::ColdAndThrough { cold: 0.5 }, r#"{"kind":"cold_and_through","cold":0.5}"#),
        (sampled, r#"{"kind":"sampled","rate":0.125,"error":0.5}"#),
    ] {
        assert_eq!(named(&assumption), expected);
    }
}
