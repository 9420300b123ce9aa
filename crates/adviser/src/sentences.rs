//! What is said of findings and assumptions, of traces and of running servers: the one place where
//! an advice becomes text. The longer sentences on servers are in `server.rs`, what sentences are
//! made of in `words.rs`.
//!
//! Not here: what is found (`finding.rs` names it), and command lines.

mod flash;
mod server;
mod words;

use undercroft_text::{Bytes, count, percent};

use crate::estimate::Verdict;
use crate::figures::CellFigure;
use crate::finding::{Assumption, Finding};

pub use words::{Measured, Words, amount};
use words::{money, parts, points, significant};

impl Words {
    /// What a finding says.
    pub fn finding(&self, finding: &Finding) -> String {
        match finding {
            Finding::Off { why } => format!("There is no advice: {why}."),
            Finding::NotYet { why } => format!("Nothing is advised yet: {why}."),
            Finding::Changed { why } => words::sentence(why),
            Finding::Unfiltered { lru } => format!(
                "First say where the trace was taken. Without --l1 it counts as one from below the \
                 client's cache, and it does not look so: {} serve {} already, and a client's \
                 cache would have served these reads. If it was taken above that cache, say what \
                 that is, as --l1 64MiB:lru: every figure here changes.",
                self.name(lru),
                percent(lru.read_hit_ratio)
            ),
            Finding::NothingToGain { best } => format!(
                "Take no cache: no policy serves one read in a hundred at any size. The most is \
                 {}, by {}.",
                percent(best.read_hit_ratio),
                self.name(best)
            ),
            Finding::Cheapest { choice: None, without, error, .. } => format!(
                "Take no cache at these prices: the reads keep {:.2} disks busy, which cost {}, \
                 and no memory saves more than it costs (error {}).",
                without.disks,
                money(without.total),
                money(*error)
            ),
            Finding::Cheapest { choice: Some(choice), cost, without, error } => format!(
                "{} {} at these prices: it costs {}, instead of {} without a cache (error of the \
                 difference {}).",
                self.take(),
                self.name(choice),
                parts(cost),
                parts(without),
                money(*error)
            ),
            Finding::Knee { choice, per_gib_before, per_gib_after, enough_blocks } => {
                let (unit, before) = self.rate(*per_gib_before, choice.capacity_blocks);
                let (_, after) = self.rate(*per_gib_after, choice.capacity_blocks);
                let further = match choice.capacity_blocks == *enough_blocks {
                    true => "no smaller size earns as much for its memory".to_owned(),
                    false => format!(
                        "up to there each {unit} earns {} points, from there to {} {}",
                        significant(before),
                        self.size(*enough_blocks),
                        significant(after)
                    ),
                };
                format!(
                    "{} {}: it serves {} of the reads that arrive. It is the knee of the curve: \
                     {further}.",
                    if self.has_prices { "Without prices: take" } else { self.take() },
                    self.name(choice),
                    percent(choice.read_hit_ratio)
                )
            }
            Finding::Bound { read_hit_ratio, opt } => format!(
                "No cache of any size serves more than {}: the other reads are the first of their \
                 blocks. At {} OPT, which knows the future, serves {}; no policy that keeps every \
                 block it misses has more hits, writes included.",
                percent(*read_hit_ratio),
                self.size(opt.capacity_blocks),
                percent(opt.read_hit_ratio)
            ),
            Finding::LruWasted { lru, up_to_blocks, best } => {
                let more = match best {
                    Some(best) => format!(
                        "At {} it serves {}, and {} {}.",
                        self.size(lru.capacity_blocks),
                        percent(lru.read_hit_ratio),
                        best.policy,
                        percent(best.read_hit_ratio)
                    ),
                    None => "Nothing studied is better there.".to_owned(),
                };
                let size = self.size(*up_to_blocks);
                format!(
                    "Up to {size} LRU is wasted here: it serves less than 1 % of the reads. {more}"
                )
            }
            Finding::PolicyGains { choice, base, difference, saved, .. } if self.is_server => {
                format!(
                    "{0} instead of {1} would add {2} of read hits{3} (set policy={0}).",
                    choice.policy,
                    base.policy,
                    points(difference),
                    self.worth(difference, saved)
                )
            }
            Finding::PolicyGains {
                choice, base, difference, equals, lru_blocks, sizes, ..
            } => {
                let same = match &equals[..] {
                    [] => String::new(),
                    [one] => format!(" {one} does as well."),
                    more => format!(" {} do as well.", more.join(", ")),
                };
                let needs = lru_blocks.map_or(String::new(), |blocks| {
                    format!(" LRU needs {} to serve as much.", self.size(blocks))
                });
                let sizes: Vec<_> = sizes.iter().map(|&size| self.size(size)).collect();
                format!(
                    "Another policy than LRU gains: {} serves {}, LRU of that size {}: \
                     {}.{same}{needs} Of the sizes studied the policy matters at {}.",
                    self.name(choice),
                    percent(choice.read_hit_ratio),
                    percent(base.read_hit_ratio),
                    self.compared(difference),
                    sizes.join(", ")
                )
            }
            Finding::NoPolicyGains { choice, base, difference } if self.is_server => {
                let (best, today, gain) = (&choice.policy, &base.policy, points(difference));
                match self.verdict(difference) {
                    Verdict::Unknown => format!(
                        "Whether another policy than {today} would add read hits is not known: \
                         {best} would change them by {gain}."
                    ),
                    _ => format!(
                        "No other policy that was compared would add read hits to {today}: the \
                         most is {best} with {gain}."
                    ),
                }
            }
            Finding::NoPolicyGains { choice, base, difference } => format!(
                "Stay with LRU: no policy studied serves more at any size. The nearest is {} with \
                 {}, LRU serves {}: {}.",
                self.name(choice),
                percent(choice.read_hit_ratio),
                percent(base.read_hit_ratio),
                self.compared(difference)
            ),
            Finding::Placement { choice, base, hits, disk } if self.is_server => format!(
                "Placement {} instead of {} would {}{}.",
                choice.placement,
                base.placement,
                self.effect(hits, &disk.times(-1.0)),
                self.change(finding).map_or(String::new(), |change| format!(" (set {change})"))
            ),
            Finding::Placement { choice, base, hits, disk } => {
                let what = match choice.placement.as_str() {
                    "auto" => "that chooses (auto)",
                    _ => "at eviction",
                };
                let times = choice.disk_reads as f64 / base.disk_reads.max(1) as f64;
                let disk = self.verdict(disk);
                let reads = match disk {
                    Verdict::Gain => format!("reads the disk {times:.2} times as often"),
                    Verdict::Loss => format!("saves {} of the disk reads", percent(1.0 - times)),
                    _ => "reads the disk as often".to_owned(),
                };
                let verdict = match (self.verdict(hits), disk) {
                    (_, Verdict::Loss) => "",
                    (Verdict::Gain, Verdict::Gain) => " It pays only above disks that are idle.",
                    (Verdict::Gain, _) => " The hits cost nothing.",
                    _ => " It is of no use here.",
                };
                format!(
                    "If the client tells its evictions, placement {what} with {} serves {} at {}, \
                     {} than {} placed at the access. It {reads} ({} blocks instead of \
                     {}).{verdict}",
                    choice.policy,
                    percent(choice.read_hit_ratio),
                    self.size(choice.capacity_blocks),
                    self.compared(hits),
                    base.policy,
                    count(choice.disk_reads),
                    count(base.disk_reads)
                )
            }
            Finding::Adapting { now, other } => self.adapting(now, other.as_ref()),
            Finding::MoreMemory { today_blocks, larger } => self.more_memory(*today_blocks, larger),
            Finding::LessMemory { half, best } => self.less_memory(half, best.as_ref()),
            Finding::Move { from, to, part, bytes, loss, gain } => {
                let lost = match (loss.is_above_zero(), amount(loss)) {
                    (true, lost) => format!("{lost} disk reads a second"),
                    (false, lost) => format!("nothing ({lost} disk reads a second)"),
                };
                format!(
                    "Volume {from} would lose {lost} if {part} of its memory ({}) went to {to}, \
                     which would save {} disk reads a second there.",
                    Bytes(*bytes),
                    amount(gain)
                )
            }
            Finding::NoMove => "No memory is worth moving from one volume to another.".to_owned(),
            Finding::Flash(gain) => self.flash(gain),
            Finding::Enough { choice } => format!(
                "Beyond {} nothing is gained: {} serves {} there, and no larger size a point more.",
                self.size(choice.capacity_blocks),
                choice.policy,
                percent(choice.read_hit_ratio)
            ),
        }
    }

    /// What would make the gain of a finding come, as an option of a volume and of
    /// `undercroft set`.
    pub fn change(&self, finding: &Finding) -> Option<String> {
        match finding {
            Finding::PolicyGains { choice, .. } => Some(format!("policy={}", choice.policy)),
            Finding::Placement { choice, hits, .. } => (self.verdict(hits) == Verdict::Gain)
                .then(|| format!("placement={}", choice.placement)),
            Finding::MoreMemory { larger, .. } => {
                let gains = |cell: &&CellFigure| self.verdict(&cell.gain) == Verdict::Gain;
                larger.iter().find(gains).map(|cell| format!("cache={}", self.exact(cell.blocks)))
            }
            _ => None,
        }
    }

    /// What an assumption says.
    pub fn assumption(&self, assumption: &Assumption) -> String {
        match assumption {
            Assumption::Client { policy, capacity_blocks } => format!(
                "The client has a cache of {} with {policy}, as --l1 says. Of another cache it \
                 passes on other reads.",
                self.size(*capacity_blocks)
            ),
            Assumption::ColdAndThrough { cold } => format!(
                "The cache is empty at the beginning of the trace, and writes go through it. {} of \
                 the reads that arrive are the first of their blocks; of a longer trace it would \
                 be fewer. Another day may differ.",
                percent(*cold)
            ),
            Assumption::Sampled { rate, error } => format!(
                "The hit ratios are estimates from {} of the blocks, off by up to about {:.1} \
                 points: that far the sampled LRU is from the exact one. --exact takes all.",
                percent(*rate),
                100.0 * error
            ),
            Assumption::Lately { reads, rate } => format!(
                "The figures are of the last {reads} block reads, from {:.3} % of the blocks; \
                 +- is the error that the truth stays within nine times in ten. Other requests \
                 to come may differ more.",
                100.0 * rate
            ),
            Assumption::Skipped { share } => format!(
                "The processor had no time for {:.0} % of the requests; these were left out.",
                100.0 * share
            ),
            Assumption::BelowClient => {
                "The trace was taken below the client's cache. If it was taken above it, say what \
                 that cache is: --l1."
                    .to_owned()
            }
            Assumption::EvictionsKnown => {
                "Placements that act on evictions assume that the client can tell them; auto also \
                 that it hands over what it evicts. Without that they do not work, and the other \
                 figures hold."
                    .to_owned()
            }
            Assumption::EvictionsUnknown => {
                "Nothing here tells what the client evicts, so placement at eviction could not be \
                 tried: that takes --l1, or a trace with evictions or buffer addresses."
                    .to_owned()
            }
            Assumption::EvictionsUntold => {
                "No client tells what it evicts, so placements are not compared.".to_owned()
            }
            Assumption::EvictionsUnasked => {
                "What hints of clients would bring is not known: with placement access they are \
                 not asked for."
                    .to_owned()
            }
            Assumption::NotFilled => {
                "Larger caches are not filled yet in the simulation: they may gain more later."
                    .to_owned()
            }
            Assumption::StreamsPass => {
                "Sequential streams pass the cache (stream-cutoff); the simulated caches take them \
                 in."
                .to_owned()
            }
            Assumption::ReadsAhead => "The simulated caches do not read ahead.".to_owned(),
            Assumption::GuessesEvictions => {
                "The simulated caches do not guess what clients evict (evictions=estimate)."
                    .to_owned()
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::advise::advise;
    use crate::estimate::Estimate;
    use crate::figures::{Adapts, Figures, State};

    /// What is said of figures: sentences, changes and assumptions.
    fn said(figures: &Figures) -> [Vec<String>; 3] {
        let (words, advice) = (Words::of_server(&measured()), advise(figures));
        let sentences = advice.findings.iter().map(|finding| words.finding(finding));
        let changes = advice.findings.iter().filter_map(|finding| words.change(finding));
        let assumptions = advice.assumptions.iter().map(|one| words.assumption(one));
        [sentences.collect(), changes.collect(), assumptions.collect()]
    }

    /// Figures of an lru cache of 1024 blocks, and of these policies, sizes and gains with errors.
    pub(crate) fn figures(others: &[(&str, u32, f64, f64)]) -> Figures {
        let cell = |policy: &str, blocks: u32, value: f64, error: f64, is_today: bool| {
            let gain = Estimate { value, error };
            CellFigure {
                policy: policy.to_owned(),
                placement: "access".to_owned(),
                blocks,
                is_today,
                hits: Estimate { value: 0.5 + value, error: 0.02 },
                gain,
                disk: Estimate { value: 0.5 - value, error: 0.02 },
                saved: gain,
                is_full: true,
            }
        };
        let mut cells = vec![cell("lru", 1024, 0.0, 0.0, true)];
        cells.extend(
            others
                .iter()
                .map(|&(policy, blocks, value, error)| cell(policy, blocks, value, error, false)),
        );
        Figures {
            state: State::Ready,
            why: None,
            cells,
            epochs: 9,
            kept: 8,
            reads: 100_000,
            references: 10_000,
            rate: 0.1,
            skipped_share: 0.0,
            bytes: 1 << 20,
            misses_hints: false,
            adapts: None,
            flash: Vec::new(),
        }
    }

    pub(crate) fn measured() -> Measured {
        Measured { block_bytes: 4096, reads_per_s: 1000.0, miss_costs_s: Some(0.002) }
    }

    #[test]
    fn differences_are_said_with_their_errors() {
        let all = [
            ("mq", 1024, 0.172, 0.006),
            ("arc", 1024, 0.1, 0.006),
            ("lru", 2048, 0.031, 0.004),
            ("lru", 4096, 0.032, 0.04),
            ("lru", 512, -0.08, 0.01),
            ("mq", 512, 0.001, 0.01),
        ];
        let [sentences, changes, assumptions] = said(&figures(&all));
        assert_eq!(
            sentences,
            [
                "mq instead of lru would add 17.2 +- 0.6 points of read hits, and save 172 +- 6 \
                 disk reads a second; a read would take 344 +- 12 us less on average (set \
                 policy=mq).",
                "Another 4MiB would add 3.1 +- 0.4 points of read hits, and save 31 +- 4 disk \
                 reads a second; a read would take 62 +- 8 us less on average (set cache=8MiB); \
                 another 12MiB would add nothing (3.2 +- 4.0 points).",
                "With 2MiB it would lose 8.0 +- 1.0 points of read hits; mq would lose nothing \
                 there (-0.1 +- 1.0 points).",
            ]
        );
        assert_eq!(changes, ["policy=mq", "cache=8MiB"]);
        assert!(assumptions[0].contains("10.000 % of the blocks"), "{assumptions:?}");
        let gains = figures(&[("mq", 512, 0.105, 0.081), ("lru", 512, -0.228, 0.089)]);
        let last = said(&gains)[0].pop().unwrap();
        assert_eq!(
            last,
            "With 2MiB it would lose 22.8 +- 8.9 points of read hits; with mq it would gain 10.5 \
             +- 8.1 points even there."
        );
    }

    #[test]
    fn what_is_hardly_known_is_said_to_be_unknown() {
        let wide = [
            ("mq", 1024, 0.093, 0.271),
            ("arc", 1024, 0.1, 0.2),
            ("2q", 1024, 0.001, 0.003),
            ("lru", 2048, 0.223, 0.306),
            ("lru", 512, -0.25, 0.256),
        ];
        let wide = figures(&wide);
        let [sentences, ..] = said(&wide);
        let more = "What another 4MiB would add is not known (22.3 +- 30.6 points).";
        let less = "What it would lose with 2MiB is not known (25.0 +- 25.6 points).";
        let policy = "Whether another policy than lru would add read hits is not known: arc would \
                      change them by 10.0 +- 20.0 points.";
        assert_eq!(sentences[0], policy);
        assert!(sentences.contains(&more.to_owned()), "{sentences:?}");
        assert!(sentences.contains(&less.to_owned()), "{sentences:?}");
    }

    #[test]
    fn what_is_within_its_error_is_not_advised() {
        let none = figures(&[("mq", 1024, 0.01, 0.02), ("lru", 512, -0.01, 0.02)]);
        let [sentences, ..] = said(&none);
        assert_eq!(
            sentences,
            [
                "No other policy that was compared would add read hits to lru: the most is mq \
                 with 1.0 +- 2.0 points.",
                "With 2MiB it would lose nothing (1.0 +- 2.0 points).",
            ]
        );
    }

    #[test]
    fn without_sampled_reads_nothing_is_advised_and_that_is_said() {
        let some = figures(&[("mq", 1024, 0.172, 0.006)]);
        let no_cells = Figures { cells: Vec::new(), ..some.clone() };
        for none in [no_cells, Figures { references: 0, ..some }] {
            let [sentences, changes, assumptions] = said(&none);
            let why = "of the blocks in the sample none was read lately";
            assert_eq!(sentences, [format!("Nothing is advised yet: {why}.")]);
            assert!(changes.is_empty() && assumptions.is_empty());
        }
    }

    #[test]
    fn nothing_is_advised_while_learning() {
        let why = Some("seen: 1 of 4 quarters of a turnover".to_owned());
        let figures = figures(&[("mq", 1024, 0.172, 0.006)]);
        let learning = Figures { state: State::Learning, why: why.clone(), ..figures.clone() };
        assert_eq!(
            said(&learning)[0],
            ["Nothing is advised yet: seen: 1 of 4 quarters of a turnover."]
        );
        let changed = Figures { state: State::Changed, why, ..figures };
        let [said, ..] = said(&changed);
        assert_eq!(said[0], "Seen: 1 of 4 quarters of a turnover.");
        assert!(said[1].starts_with("mq instead of lru"), "{said:?}");
    }

    /// Figures with another placement: the hits that it adds, and the disk reads that it saves.
    fn placed(gain: f64, error: f64, saved: f64) -> Figures {
        let mut figures = figures(&[("lru", 1024, gain, error)]);
        let cell = figures.cells.last_mut().unwrap();
        cell.placement = "eviction".to_owned();
        cell.saved = Estimate { value: saved, error: 0.01 };
        figures
    }

    #[test]
    fn placements_are_said_with_hits_and_disk_reads() {
        let same = "not change the reads from the disk";
        for (figures, would, change) in [
            (
                placed(0.1, 0.02, 0.05),
                "add 10.0 +- 2.0 points of read hits, and save 50 +- 10 disk reads a second (set \
                 placement=eviction)"
                    .to_owned(),
                &["placement=eviction"][..],
            ),
            (
                placed(-0.1, 0.02, -0.05),
                "lose 10.0 +- 2.0 points of read hits, and cost 50 +- 10 disk reads a second more"
                    .to_owned(),
                &[],
            ),
            (
                placed(0.001, 0.01, 0.0),
                format!("not change the read hits (0.1 +- 1.0 points), and {same}"),
                &[],
            ),
            (
                placed(0.1, 0.2, 0.0),
                format!("do to the read hits what is not known (10.0 +- 20.0 points), and {same}"),
                &[],
            ),
        ] {
            let [sentences, changes, _] = said(&figures);
            assert_eq!(sentences, [format!("Placement eviction instead of access would {would}.")]);
            assert_eq!(changes, change);
        }
    }

    #[test]
    fn a_placement_that_adapts_is_said_with_the_other_way() {
        let now = |by_eviction: f64, figures: Figures| {
            let adapts = Some(Adapts { name: "auto", by_eviction });
            let [sentences, changes, assumptions] = said(&Figures { adapts, ..figures });
            assert!(changes.is_empty() && assumptions.len() == 1, "{changes:?} {assumptions:?}");
            let end = ". It goes by its own evidence, which is newer, and not by these figures.";
            let said = sentences[0].strip_prefix("Placement auto places blocks at their ").unwrap();
            said.strip_suffix(end).unwrap().to_owned()
        };
        let other = || placed(0.1, 0.02, 0.05);
        let would = "it would add 10.0 +- 2.0 points of read hits, and save 50 +- 10 disk reads a \
                     second";
        assert_eq!(now(0.0, other()), format!("access now; at their eviction {would}"));
        let quarter = now(0.25, other());
        let said = format!("eviction in 25 % of the cache now; at their eviction {would}");
        assert_eq!(quarter, said);
        let most = now(0.75, other());
        assert_eq!(most, format!("eviction in 75 % of the cache now; at their access {would}"));
        assert_eq!(
            now(1.0, figures(&[])),
            "eviction now; without evictions that clients tell, nothing can be compared"
        );
    }

    #[test]
    fn what_the_figures_of_a_server_rest_on() {
        let all = |figures: &Figures| said(figures)[2].clone();
        let lately = "The figures are of the last 100000 block reads, from 10.000 % of the \
                      blocks; +- is the error that the truth stays within nine times in ten. \
                      Other requests to come may differ more.";
        let unasked = "What hints of clients would bring is not known: with placement access they \
                       are not asked for.";
        let mut larger = figures(&[("lru", 2048, 0.031, 0.004)]);
        assert_eq!(all(&larger), [lately, unasked]);
        larger.cells[1].is_full = false;
        let all = all(&Figures { skipped_share: 0.123, misses_hints: true, ..larger });
        assert_eq!(
            all,
            [
                lately,
                "The processor had no time for 12 % of the requests; these were left out.",
                "No client tells what it evicts, so placements are not compared.",
                "Larger caches are not filled yet in the simulation: they may gain more later.",
            ]
        );
    }

    #[test]
    fn what_is_said_without_figures() {
        let words = Words::of_server(&Measured::default());
        let why = "the volume has no cache".to_owned();
        let off = words.finding(&Finding::Off { why });
        assert_eq!(off, "There is no advice: the volume has no cache.");
        for (assumption, said) in [
            (
                Assumption::StreamsPass,
                "Sequential streams pass the cache (stream-cutoff); the simulated caches take \
                 them in.",
            ),
            (Assumption::ReadsAhead, "The simulated caches do not read ahead."),
            (
                Assumption::GuessesEvictions,
                "The simulated caches do not guess what clients evict (evictions=estimate).",
            ),
        ] {
            assert_eq!(words.assumption(&assumption), said);
        }
    }
}
