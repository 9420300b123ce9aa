//! What decides where blocks are kept: a placement, or a scheme that moves blocks by hints.

use std::fmt;
use std::str::FromStr;

use undercroft_level::placement::{Placement, PlacementError};
use undercroft_policy::SpecError;
use undercroft_schemes::SchemeSpec;

use crate::Error;

/// What decides where blocks are kept.
#[derive(Clone, Debug, PartialEq)]
pub enum Rule {
    /// A placement below the first level.
    Placement(Placement),
    /// A scheme that moves blocks between the levels by hints.
    Scheme(SchemeSpec),
}

impl Default for Rule {
    fn default() -> Self {
        Self::Placement(Placement::Access)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Placement(placement) => placement.fmt(f),
            Self::Scheme(scheme) => scheme.fmt(f),
        }
    }
}

impl FromStr for Rule {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let name = text.split(',').next().unwrap_or("");
        let rule = if SchemeSpec::is_known(name) {
            text.parse().map(Self::Scheme).map_err(|e: SpecError| e.to_string())
        } else {
            text.parse().map(Self::Placement).map_err(|e: PlacementError| e.to_string())
        };
        rule.map_err(|why| Error::Request(format!("placement {text}: {why}")))
    }
}

impl Rule {
    /// The texts of a list such as `access,eviction,on-hit=keep,gl`: a part with `=` belongs to the
    /// one before it.
    pub fn split_list(text: &str) -> Vec<String> {
        let mut items: Vec<String> = Vec::new();
        for part in text.split(',') {
            match items.last_mut() {
                Some(last) if part.contains('=') => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => items.push(part.into()),
            }
        }
        items
    }
}
