//! The words and numbers that sentences are made of.
//!
//! Not here: whole sentences.

use undercroft_text::{Bytes, bytes, count};

use crate::estimate::{Estimate, SMALL_IN_SERVERS, SMALL_IN_TRACES, Verdict};
use crate::finding::{Choice, Cost, Finding};

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

/// The writer of sentences on findings and assumptions, for where their figures are from.
pub struct Words {
    /// Of a trace only the bytes of a block are known.
    pub(super) measured: Measured,
    /// Whether the figures are a server's.
    pub(super) is_server: bool,
    /// Whether prices were given.
    pub(super) has_prices: bool,
    /// Whether the trace looks as if it had been taken elsewhere than is said.
    is_doubtful: bool,
}

impl Words {
    /// The writer for a trace with these findings, which refer to each other.
    pub fn of_trace(block_bytes: u32, findings: &[Finding]) -> Self {
        let has = |is: fn(&Finding) -> bool| findings.iter().any(is);
        Self {
            measured: Measured { block_bytes, ..Measured::default() },
            is_server: false,
            has_prices: has(|finding| matches!(finding, Finding::Cheapest { .. })),
            is_doubtful: has(|finding| matches!(finding, Finding::Unfiltered { .. })),
        }
    }

    /// The writer for a volume of a server.
    pub fn of_server(measured: &Measured) -> Self {
        Self { measured: *measured, is_server: true, has_prices: false, is_doubtful: false }
    }

    pub(super) fn verdict(&self, difference: &Estimate) -> Verdict {
        difference.verdict(if self.is_server { SMALL_IN_SERVERS } else { SMALL_IN_TRACES })
    }

    /// `64 MiB`.
    pub(super) fn size(&self, blocks: u32) -> String {
        bytes(self.exact(blocks).0)
    }

    /// `64MiB`, as options take it.
    pub(super) fn exact(&self, blocks: u32) -> Bytes {
        Bytes(u64::from(blocks) * u64::from(self.measured.block_bytes))
    }

    /// `64 MiB with mq`, and the placement if it is none at the access.
    pub(super) fn name(&self, choice: &Choice) -> String {
        let size = self.size(choice.capacity_blocks);
        match choice.placement.as_str() {
            "access" => format!("{size} with {}", choice.policy),
            placement => format!("{size} with {} and placement {placement}", choice.policy),
        }
    }

    /// What the answer begins with: `Take`, unless the answer rests on what does not look true.
    pub(super) fn take(&self) -> &'static str {
        if self.is_doubtful { "If it was taken below that cache, take" } else { "Take" }
    }

    /// A hit ratio per GiB, per the unit of a size.
    pub(super) fn rate(&self, per_gib: f64, blocks: u32) -> (&'static str, f64) {
        let units = [("GiB", 1_u64 << 30, 1.0), ("MiB", 1 << 20, 1024.0)];
        let unit = units.iter().find(|unit| self.exact(blocks).0 >= unit.1).copied();
        let (name, _, parts) = unit.unwrap_or(("KiB", 1 << 10, 1024.0 * 1024.0));
        (name, 100.0 * per_gib / parts)
    }

    /// What is between two placements or policies of a trace.
    pub(super) fn compared(&self, difference: &Estimate) -> String {
        let size = points(&Estimate { value: difference.value.abs(), ..*difference });
        match self.verdict(difference) {
            Verdict::Gain => format!("{size} more"),
            Verdict::Loss => format!("{size} fewer"),
            Verdict::None | Verdict::Unknown => format!("no more and no fewer ({size})"),
        }
    }
}

/// A share as `17.2 +- 0.6 points`.
pub(super) fn points(share: &Estimate) -> String {
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

/// A number with two digits that count.
pub(super) fn significant(number: f64) -> String {
    let digits = match number.abs() {
        n if n >= 10.0 => 0,
        n if n >= 1.0 => 1,
        n if n >= 0.1 => 2,
        n if n >= 0.01 => 3,
        _ => 4,
    };
    format!("{number:.digits$}")
}

/// A sum in the currency of the prices.
pub(super) fn money(amount: f64) -> String {
    if amount >= 100.0 { count(amount.round() as u64) } else { format!("{amount:.2}") }
}

/// `304 (1.00 of it memory; 10.11 disks)`.
pub(super) fn parts(cost: &Cost) -> String {
    let [total, memory] = [cost.total, cost.memory].map(money);
    format!("{total} ({memory} of it memory; {:.2} disks)", cost.disks)
}

/// A clause as a sentence.
pub(super) fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_ascii_uppercase());
    format!("{}{}.", first.map(String::from).unwrap_or_default(), letters.as_str())
}
