//! What decides when blocks enter and leave a volume's cache: a placement, or a movement scheme.

use std::fmt;
use std::str::FromStr;

use undercroft_cache::movement::{SchemeSpec, schemes_with_levels};
use undercroft_cache::placement::Placement;

/// The option `placement` of a volume.
#[derive(Clone, Debug, PartialEq)]
pub enum VolumePlacement {
    /// A rule for this cache alone.
    Rule(Placement),
    /// A movement scheme of which this cache is one level. It also decides which block leaves.
    Scheme(SchemeSpec),
}

impl VolumePlacement {
    /// The placement rule; with a scheme, which places blocks itself, `Access`.
    pub fn rule(&self) -> Placement {
        match self {
            Self::Rule(placement) => *placement,
            Self::Scheme(_) => Placement::Access,
        }
    }

    /// The scheme, if it is one.
    pub fn scheme(&self) -> Option<&SchemeSpec> {
        match self {
            Self::Rule(_) => None,
            Self::Scheme(scheme) => Some(scheme),
        }
    }

    /// Whether a text names a movement scheme.
    pub(super) fn is_scheme(text: &str) -> bool {
        SchemeSpec::is_known(text.split(',').next().unwrap_or_default())
    }
}

impl Default for VolumePlacement {
    fn default() -> Self {
        Self::Rule(Placement::Access)
    }
}

impl From<Placement> for VolumePlacement {
    fn from(placement: Placement) -> Self {
        Self::Rule(placement)
    }
}

/// Parses `access`, `eviction,on-hit=move`, `d-hfa,k=4` and the like; refuses schemes that only
/// simulations can run.
impl FromStr for VolumePlacement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if Self::is_scheme(text) {
            let scheme = text.parse::<SchemeSpec>().map_err(|error| error.to_string())?;
            if !scheme.has_levels() {
                return Err(format!(
                    "placement {} runs in simulations only; here {} do",
                    scheme.info().name,
                    schemes_with_levels()
                ));
            }
            return Ok(Self::Scheme(scheme));
        }
        let placement = text.parse::<Placement>().map_err(|error| error.to_string())?;
        if placement.is_auto() && text.contains(',') {
            return Err("placement auto: no options here, since it chooses itself; each client \
                        decides whether it sends what it evicts"
                .into());
        }
        if placement.is_by_cost() {
            return Err("placement: down=auto is for simulations with a clock; here each client \
                        decides whether it sends what it evicts: leave it out"
                .into());
        }
        Ok(Self::Rule(placement))
    }
}

impl fmt::Display for VolumePlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(placement) => placement.fmt(f),
            Self::Scheme(scheme) => scheme.fmt(f),
        }
    }
}
