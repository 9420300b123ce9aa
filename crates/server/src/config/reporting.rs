//! The option `report`: what a volume tells the server that is its store, in text form.

use std::fmt;
use std::str::FromStr;

use undercroft_hints::Report;

/// What a server below is told about the blocks that leave a volume's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reporting {
    /// Nothing, block numbers, or also data.
    pub report: Report,
    /// Hints in a message, 1 to 64. With 1, each goes with the request that caused the eviction.
    pub batch: usize,
}

impl Reporting {
    /// Whether nothing is told.
    pub fn is_nothing(&self) -> bool {
        self.report == Report::Nothing
    }
}

impl Default for Reporting {
    fn default() -> Reporting {
        Reporting { report: Report::Nothing, batch: 16 }
    }
}

/// Parses `nothing`, `evictions` or `demotions`, optionally with `,batch=N`.
impl FromStr for Reporting {
    type Err = String;

    fn from_str(text: &str) -> Result<Reporting, String> {
        let (report, option) = text.split_once(',').unwrap_or((text, "batch=16"));
        let wrong = |what: &str| format!("report '{text}': {what}");
        // A server publishes no digest of its own.
        let report = report.parse().ok().filter(|&report| report != Report::Digest);
        let report = report.ok_or_else(|| wrong("expected nothing, evictions or demotions"))?;
        let batch = option.strip_prefix("batch=").and_then(|number| number.parse().ok());
        match batch.filter(|batch| (1..=64).contains(batch)) {
            Some(batch) => Ok(Reporting { report, batch }),
            None => Err(wrong("expected batch=1 to batch=64 after the comma")),
        }
    }
}

impl fmt::Display for Reporting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.report)?;
        if self.batch == Reporting::default().batch {
            Ok(())
        } else {
            write!(f, ",batch={}", self.batch)
        }
    }
}
