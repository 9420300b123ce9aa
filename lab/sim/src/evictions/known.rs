//! How evictions of a client become known to a simulation, as a person chooses it, and reading a
//! trace for that. The evictions themselves are found in `derived.rs`.

use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use undercroft_level::placement::Placement;
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace};

use super::DerivedEvictions;
use crate::input::not_empty;
use crate::{Error, Evictions, Rule, load};

/// How evictions become known to the levels below a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionsFrom {
    /// From the simulated level above.
    #[default]
    Exact,
    /// From the buffer addresses in a recorded trace (the client content table).
    Cct,
    /// From what clients told while the trace was recorded.
    Told,
    /// From an emulated client.
    Estimate,
}

impl EvictionsFrom {
    /// The names, in the order of the variants.
    pub const NAMES: [&str; 4] = ["exact", "cct", "told", "estimate"];

    /// What the stream of a trace must carry for [`load`](Self::load).
    pub fn needs(self) -> BlockOptions {
        let origins = matches!(self, Self::Cct | Self::Told);
        BlockOptions { origins, evictions: self == Self::Told, ..BlockOptions::default() }
    }

    /// The kind of evictions, without those of a recorded client.
    pub fn kind(self) -> Evictions {
        match self {
            Self::Exact => Evictions::Exact,
            Self::Estimate => Evictions::Estimated,
            Self::Cct | Self::Told => Evictions::Derived(Arc::default()),
        }
    }

    /// Checks that some of these rules act on evictions, and that none knows them all by itself.
    ///
    /// # Errors
    /// The message begins with `evictions`.
    pub fn check(self, rules: &[Rule]) -> Result<(), Error> {
        let refuse = |why: &str| Err(Error::Request(format!("evictions: {why}")));
        if self == Self::Exact {
            return Ok(());
        }
        if rules.iter().any(|rule| matches!(rule, Rule::Scheme(_))) {
            return refuse("a scheme that moves blocks by hints knows all evictions");
        }
        if rules.iter().all(|rule| *rule == Rule::Placement(Placement::Access)) {
            return refuse("with placement access nobody asks what the client evicted");
        }
        Ok(())
    }

    /// Reads a whole trace, with its evictions. `path` is for the error, `progress` is called with
    /// the records read so far.
    ///
    /// # Errors
    /// The trace does not have what the evictions are found by, has no requests, or cannot be read.
    pub fn load(
        self,
        stream: BlockStream,
        block_bytes: u32,
        path: &Path,
        progress: impl FnMut(u64),
    ) -> Result<(DenseTrace, Evictions), Error> {
        let (trace, derived) = match self {
            Self::Exact | Self::Estimate => {
                return Ok((load(stream, path, progress)?, self.kind()));
            }
            Self::Cct => DerivedEvictions::load(stream, block_bytes, progress)?,
            Self::Told => DerivedEvictions::load_told(stream, progress)?,
        };
        Ok((not_empty(trace, path)?, Evictions::Derived(Arc::new(derived))))
    }
}

impl FromStr for EvictionsFrom {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let all = [Self::Exact, Self::Cct, Self::Told, Self::Estimate];
        let at = Self::NAMES.iter().position(|name| *name == text);
        at.map(|at| all[at]).ok_or_else(|| {
            let names = Self::NAMES.join(", ");
            Error::Request(format!("evictions '{text}': expected one of {names}"))
        })
    }
}
