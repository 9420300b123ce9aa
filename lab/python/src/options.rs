//! Options of simulations as Python gives them.

use pyo3::prelude::*;
use pyo3::types::PyType;
use undercroft_policy::{Spec, SpecError, WriteMode};
use undercroft_sim::{
    Config, CostSpec, DemotionCost, Error, EvictionsFrom, LevelSpec, Lowest, Rule, Times,
    WriteBack, parse_policies,
};
use undercroft_text::Bytes;

use crate::errors::raise;
use crate::policy::own;
use crate::watch::Failure;

/// A policy: its name with parameters, or a class.
#[derive(FromPyObject)]
pub(crate) enum PolicyOption {
    /// `mq,m=4`.
    Name(String),
    /// A class written in Python.
    Class(Py<PyType>),
}

impl PolicyOption {
    pub(crate) fn is_class(&self) -> bool {
        matches!(self, Self::Class(_))
    }

    pub(crate) fn spec(&self, py: Python<'_>, failure: &Failure) -> PyResult<Spec> {
        match self {
            Self::Name(name) => Spec::parse(name).map_err(|e: SpecError| raise(e.into())),
            Self::Class(class) => own(class.bind(py), failure),
        }
    }
}

/// A level: `64MiB:lru`, or a size and a policy.
#[derive(FromPyObject)]
pub(crate) enum LevelOption {
    /// `64MiB:lru`.
    Text(String),
    /// Its size, and its policy.
    Parts(String, PolicyOption),
}

impl LevelOption {
    pub(crate) fn is_class(&self) -> bool {
        matches!(self, Self::Parts(_, policy) if policy.is_class())
    }

    pub(crate) fn spec(&self, py: Python<'_>, failure: &Failure) -> PyResult<LevelSpec> {
        match self {
            Self::Text(text) => text.parse().map_err(raise),
            Self::Parts(size, policy) => {
                let policy = policy.spec(py, failure)?;
                Ok(LevelSpec { size: size.parse().map_err(raise)?, policy })
            }
        }
    }
}

/// The options that simulations and sweeps share.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Common {
    costs: Option<String>,
    demotions: Option<String>,
    seed: u64,
    write_mode: String,
    stream_cutoff: String,
    write_back: Option<String>,
    flash: Option<String>,
    evictions: String,
}

impl Common {
    /// Times, costs, and the seed of schemes.
    fn times(&self) -> Result<Times, Error> {
        Ok(Times {
            costs: self.costs.as_deref().map(str::parse::<CostSpec>).transpose()?,
            demotions: self.demotions.as_deref().map(str::parse::<DemotionCost>).transpose()?,
            seed: self.seed,
        })
    }

    /// What simulations and sweeps have in common.
    pub(crate) fn config(&self) -> Result<Config, Error> {
        Ok(Config {
            times: self.times()?,
            write_mode: self.write_mode()?,
            lowest: self.lowest()?,
            evictions: self.evictions()?.kind(),
            ..Config::default()
        })
    }

    /// Where evictions are known from.
    pub(crate) fn evictions(&self) -> Result<EvictionsFrom, Error> {
        self.evictions.parse()
    }

    /// What the lowest level does beside replacement.
    fn lowest(&self) -> Result<Lowest, Error> {
        let cutoff = &self.stream_cutoff;
        let Ok(Bytes(stream_cutoff_bytes)) = cutoff.parse() else {
            let why = format!("stream_cutoff '{cutoff}': expected a size, as 4MiB");
            return Err(Error::Request(why));
        };
        let write_back = self.write_back.as_deref().map(str::parse::<WriteBack>).transpose();
        let write_back = write_back.map_err(|why| Error::Request(format!("write_back: {why}")))?;
        let flash = self.flash.as_deref().map(str::parse).transpose()?;
        Ok(Lowest { stream_cutoff_bytes, write_back, flash })
    }

    /// What writes do.
    fn write_mode(&self) -> Result<WriteMode, Error> {
        match self.write_mode.as_str() {
            "allocate" => Ok(WriteMode::Allocate),
            "no-allocate" => Ok(WriteMode::NoAllocate),
            "invalidate" => Ok(WriteMode::Invalidate),
            other => Err(Error::Request(format!(
                "write_mode '{other}': expected allocate, no-allocate or invalidate"
            ))),
        }
    }
}

/// The policies of a list such as `lru,mq,m=8`; `all` stands for all that can run online.
#[pyfunction]
pub(crate) fn split_policies(text: &str) -> PyResult<Vec<String>> {
    let specs = parse_policies(text).map_err(raise)?;
    Ok(specs.iter().map(ToString::to_string).collect())
}

/// The placements of a list such as `access,eviction,on-hit=keep`.
#[pyfunction]
pub(crate) fn split_placements(text: &str) -> PyResult<Vec<String>> {
    let rules = Rule::split_list(text);
    let rules = rules.iter().map(|text| text.parse()).collect::<Result<Vec<Rule>, Error>>();
    Ok(rules.map_err(raise)?.iter().map(ToString::to_string).collect())
}

/// Name and summary of every policy.
#[pyfunction]
pub(crate) fn policies() -> Vec<(&'static str, &'static str)> {
    let all = undercroft_policy::policies().iter();
    all.map(|info| (info.name, info.summary)).collect()
}

/// Names of the trace formats.
#[pyfunction]
pub(crate) fn formats() -> Vec<&'static str> {
    undercroft_trace::formats().map(|format| format.name).collect()
}
