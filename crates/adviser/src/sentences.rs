//! What the figures of a volume say, in sentences. A difference within its error is said to be
//! none.

use undercroft_text::Bytes;

use crate::estimate::Estimate;
use crate::figures::{Adapts, CellFigure, Figures, State};

/// Least difference of a hit ratio that is worth a sentence.
const SMALL: f64 = 0.002;

/// Errors of differences of hit ratios above this one leave open whether there is a difference.
const VAGUE: f64 = 0.05;

/// What was measured at the volume itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Measured {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks that are read in a second.
    pub reads_per_s: f64,
    /// How much longer a read takes that misses than one that hits, in seconds; `None` if there
    /// were too few of either.
    pub miss_costs_s: Option<f64>,
}

/// What there is to say of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sentences {
    /// What the figures show, the most useful first.
    pub sentences: Vec<String>,
    /// What would make the gains come, as options of `undercroft set` and of a volume.
    pub changes: Vec<String>,
    /// What they rest on.
    pub assumptions: Vec<String>,
}

/// Says what the figures of a volume show.
pub fn sentences(figures: &Figures, measured: &Measured) -> Sentences {
    let (mut said, mut changes, mut assumptions) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(why) = &figures.why {
        said.push(match figures.state {
            State::Changed => sentence(why),
            _ => format!("Nothing is advised yet: {why}."),
        });
    }
    if figures.state != State::Learning {
        match figures.today().filter(|_| figures.references > 0) {
            Some(today) => {
                let words = Words { figures, today, measured };
                let all = [words.policy(), words.placement(), words.more_memory()];
                for (sentence, change) in all.into_iter().flatten() {
                    said.push(sentence);
                    changes.extend(change);
                }
                said.extend(words.less_memory());
                assumptions = words.assumptions();
            }
            None => said.push(
                "Nothing is advised yet: of the blocks in the sample none was read lately."
                    .to_owned(),
            ),
        }
    }
    Sentences { sentences: said, changes, assumptions }
}

/// What is known of a difference of hit ratios.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Gain,
    Loss,
    /// It is within its error, and the error is small.
    None,
    /// It is within its error, and the error is so large that the difference may be, too.
    Unknown,
}

impl Verdict {
    fn of(difference: &Estimate) -> Self {
        if is_gain(difference) {
            Self::Gain
        } else if is_gain(&difference.times(-1.0)) {
            Self::Loss
        } else if difference.error > VAGUE {
            Self::Unknown
        } else {
            Self::None
        }
    }
}

/// A sentence, and the option that would make its gain come.
type Said = (String, Option<String>);

struct Words<'a> {
    figures: &'a Figures,
    today: &'a CellFigure,
    measured: &'a Measured,
}

impl<'a> Words<'a> {
    /// The best cell of today's size among those that `is_one` chooses.
    fn best(&self, is_one: impl Fn(&CellFigure) -> bool) -> Option<&'a CellFigure> {
        let cells = self.figures.cells.iter().filter(|cell| !cell.is_today && is_one(cell));
        cells.max_by(|one, other| one.gain.value.total_cmp(&other.gain.value))
    }

    fn cell(&self, policy: &str, blocks: u32) -> Option<&'a CellFigure> {
        let is_it = |cell: &&CellFigure| {
            (cell.policy.as_str(), cell.blocks) == (policy, blocks)
                && cell.placement == self.today.placement
        };
        self.figures.cells.iter().find(is_it)
    }

    fn policy(&self) -> Option<Said> {
        let today = self.today;
        let is_policy =
            |cell: &CellFigure| (cell.blocks, &cell.placement) == (today.blocks, &today.placement);
        let verdict_is =
            |verdict| self.best(move |cell| is_policy(cell) && Verdict::of(&cell.gain) == verdict);
        if let Some(best) = verdict_is(Verdict::Gain) {
            let text = format!(
                "{} instead of {} would add {} of read hits{} (set policy={}).",
                best.policy,
                today.policy,
                points(&best.gain),
                self.worth(best),
                best.policy
            );
            return Some((text, Some(format!("policy={}", best.policy))));
        }
        let text = match verdict_is(Verdict::Unknown) {
            Some(unknown) => format!(
                "Whether another policy than {} would add read hits is not known: {} would change \
                 them by {}.",
                today.policy,
                unknown.policy,
                points(&unknown.gain)
            ),
            None => {
                let best = self.best(is_policy)?;
                format!(
                    "No other policy that was compared would add read hits to {}: the most is {} \
                     with {}.",
                    today.policy,
                    best.policy,
                    points(&best.gain)
                )
            }
        };
        Some((text, None))
    }

    fn placement(&self) -> Option<Said> {
        let today = self.today;
        let other = self.best(|cell| {
            (cell.blocks, &cell.policy) == (today.blocks, &today.policy)
                && cell.placement != today.placement
        });
        if let Some(adapts) = &self.figures.adapts {
            return Some((self.adapting(adapts, other), None));
        }
        let (other, instead) = (other?, &today.placement);
        let change = (Verdict::of(&other.gain) == Verdict::Gain)
            .then(|| format!("placement={}", other.placement));
        let set = change.as_ref().map_or(String::new(), |change| format!(" (set {change})"));
        let text = format!(
            "Placement {} instead of {instead} would {}{set}.",
            other.placement,
            self.effect(other)
        );
        Some((text, change))
    }

    /// What a placement that adapts does, and what the other choice would do.
    fn adapting(&self, adapts: &Adapts, other: Option<&CellFigure>) -> String {
        let Adapts { name, by_eviction } = *adapts;
        let (does, instead) = match by_eviction {
            0.0 => ("their access".to_owned(), "eviction"),
            1.0 => ("their eviction".to_owned(), "access"),
            share => {
                let other = if share < 0.5 { "eviction" } else { "access" };
                (format!("their eviction in {:.0} % of the cache", 100.0 * share), other)
            }
        };
        let effect = match other {
            Some(other) => format!("at their {instead} it would {}", self.effect(other)),
            None => "without evictions that clients tell, nothing can be compared".to_owned(),
        };
        format!(
            "Placement {name} places blocks at {does} now; {effect}. It goes by its own evidence, \
             which is newer, and not by these figures."
        )
    }

    /// What another placement would change, as a clause.
    fn effect(&self, other: &CellFigure) -> String {
        let gain = points(&other.gain);
        let effect = match Verdict::of(&other.gain) {
            Verdict::Gain => format!("add {gain} of read hits"),
            Verdict::Loss => format!("lose {} of read hits", points(&other.gain.times(-1.0))),
            Verdict::Unknown => format!("do to the read hits what is not known ({gain})"),
            Verdict::None => format!("not change the read hits ({gain})"),
        };
        let reads = other.saved.times(self.measured.reads_per_s);
        let disk = if reads.is_above_zero() {
            format!("save {} disk reads a second", amount(&reads))
        } else if reads.times(-1.0).is_above_zero() {
            format!("cost {} disk reads a second more", amount(&reads.times(-1.0)))
        } else {
            "not change the reads from the disk".to_owned()
        };
        format!("{effect}, and {disk}")
    }

    fn more_memory(&self) -> Option<Said> {
        let (mut parts, mut change) = (Vec::new(), None);
        for factor in [2, 4] {
            let Some(cell) =
                self.cell(&self.today.policy, self.today.blocks.saturating_mul(factor))
            else {
                continue;
            };
            let more = self.bytes(cell.blocks - self.today.blocks);
            let gain = points(&cell.gain);
            parts.push(match Verdict::of(&cell.gain) {
                Verdict::Gain => {
                    let option = format!("cache={}", self.bytes(cell.blocks));
                    let worth = self.worth(cell);
                    let text = format!(
                        "another {more} would add {gain} of read hits{worth} (set {option})"
                    );
                    change.get_or_insert(option);
                    text
                }
                Verdict::Unknown => format!("what another {more} would add is not known ({gain})"),
                Verdict::Loss | Verdict::None => {
                    format!("another {more} would add nothing ({gain})")
                }
            });
        }
        if parts.is_empty() { None } else { Some((sentence(&parts.join("; ")), change)) }
    }

    fn less_memory(&self) -> Option<String> {
        let half = self.cell(&self.today.policy, self.today.blocks / 2)?;
        let loss = half.gain.times(-1.0);
        let (with, lost) = (self.bytes(half.blocks), points(&loss));
        let would = match Verdict::of(&loss) {
            Verdict::Unknown => {
                return Some(format!("What it would lose with {with} is not known ({lost})."));
            }
            Verdict::Loss | Verdict::None => {
                return Some(format!("With {with} it would lose nothing ({lost})."));
            }
            Verdict::Gain => format!("With {with} it would lose {lost} of read hits"),
        };
        let best = self
            .best(|cell| (cell.blocks, &cell.placement) == (half.blocks, &self.today.placement));
        let better = best.and_then(|best| {
            let policy = &best.policy;
            match Verdict::of(&best.gain) {
                Verdict::Gain => {
                    let gain = points(&best.gain);
                    Some(format!("with {policy} it would gain {gain} even there"))
                }
                Verdict::None => {
                    let loss = points(&best.gain.times(-1.0));
                    Some(format!("{policy} would lose nothing there ({loss})"))
                }
                Verdict::Loss | Verdict::Unknown => None,
            }
        });
        Some(better.map_or_else(|| format!("{would}."), |better| format!("{would}; {better}.")))
    }

    /// What a gain means for the disk and for those who wait.
    fn worth(&self, cell: &CellFigure) -> String {
        let reads = cell.saved.times(self.measured.reads_per_s);
        if !reads.is_above_zero() {
            return String::new();
        }
        let disk = format!(", and save {} disk reads a second", amount(&reads));
        match self.measured.miss_costs_s {
            Some(cost) if cost > 0.0 => {
                let shorter = cell.gain.times(cost * 1e6);
                format!("{disk}; a read would take {} us less on average", amount(&shorter))
            }
            _ => disk,
        }
    }

    fn bytes(&self, blocks: u32) -> Bytes {
        Bytes(u64::from(blocks) * u64::from(self.measured.block_bytes))
    }

    fn assumptions(&self) -> Vec<String> {
        let Figures { rate, skipped_share, misses_hints, reads, .. } = self.figures;
        let mut all = vec![format!(
            "The figures are of the last {reads} block reads, from {:.3} % of the blocks; +- is \
             the error that the truth stays within nine times in ten. Other requests to come may \
             differ more.",
            100.0 * rate
        )];
        if *skipped_share > 0.005 {
            all.push(format!(
                "The processor had no time for {:.0} % of the requests; these were left out.",
                100.0 * skipped_share
            ));
        }
        if *misses_hints {
            all.push("No client tells what it evicts, so placements are not compared.".to_owned());
        } else if self.today.placement == "access" && self.figures.adapts.is_none() {
            all.push(
                "What hints of clients would bring is not known: with placement access they are \
                 not asked for."
                    .to_owned(),
            );
        }
        if self.figures.cells.iter().any(|cell| cell.blocks > self.today.blocks && !cell.is_full) {
            all.push(
                "Larger caches are not filled yet in the simulation: they may gain more later."
                    .to_owned(),
            );
        }
        all
    }
}

/// Whether a difference of hit ratios is one that the figures carry.
pub(crate) fn is_gain(gain: &Estimate) -> bool {
    gain.is_above_zero() && gain.value >= SMALL
}

fn points(share: &Estimate) -> String {
    // Adding 0 turns -0 into 0.
    let value = (share.value * 1000.0).round() / 10.0 + 0.0;
    format!("{value:.1} +- {:.1} points", 100.0 * share.error)
}

/// A number with its error, both with as many digits as make sense of the error.
pub fn amount(of: &Estimate) -> String {
    let digits = match of.error {
        error if error >= 3.0 || (error == 0.0 && of.value >= 10.0) => 0,
        error if error >= 0.3 || error == 0.0 => 1,
        _ => 2,
    };
    format!("{:.digits$} +- {:.digits$}", of.value, of.error)
}

/// A clause as a sentence.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    format!("{}{}.", first.map(String::from).unwrap_or_default(), letters.as_str())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

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
        }
    }

    /// What is said of figures: sentences, changes and assumptions.
    fn said(figures: &Figures) -> [Vec<String>; 3] {
        let Sentences { sentences, changes, assumptions } = sentences(figures, &measured());
        [sentences, changes, assumptions]
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
        let Sentences { sentences, changes, assumptions } = sentences(&figures(&all), &measured());
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
        let last = super::sentences(&gains, &measured()).sentences.pop().unwrap();
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
        let Sentences { sentences, .. } = sentences(&wide, &measured());
        let more = "What another 4MiB would add is not known (22.3 +- 30.6 points).";
        let less = "What it would lose with 2MiB is not known (25.0 +- 25.6 points).";
        let policy = "Whether another policy than lru would add read hits is not known: arc would \
                      change them by 10.0 +- 20.0 points.";
        assert_eq!(sentences[0], policy);
        assert!(sentences.iter().any(|said| said == more), "{sentences:?}");
        assert!(sentences.iter().any(|said| said == less), "{sentences:?}");
    }

    #[test]
    fn what_is_within_its_error_is_not_advised() {
        let none = figures(&[("mq", 1024, 0.01, 0.02), ("lru", 512, -0.01, 0.02)]);
        let Sentences { sentences, .. } = sentences(&none, &measured());
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
            let Sentences { sentences, changes, assumptions } = sentences(&none, &measured());
            let said = "Nothing is advised yet: of the blocks in the sample none was read lately.";
            assert_eq!(sentences, [said]);
            assert!(changes.is_empty() && assumptions.is_empty());
        }
    }

    #[test]
    fn nothing_is_advised_while_learning() {
        let why = Some("seen: 1 of 4 quarters of a turnover".to_owned());
        let figures = figures(&[("mq", 1024, 0.172, 0.006)]);
        let learning = Figures { state: State::Learning, why: why.clone(), ..figures.clone() };
        let said = sentences(&learning, &measured()).sentences;
        assert_eq!(said, ["Nothing is advised yet: seen: 1 of 4 quarters of a turnover."]);
        let changed = Figures { state: State::Changed, why, ..figures };
        let said = sentences(&changed, &measured()).sentences;
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
}
