//! The list of schemes with their options, and the text form `name,key=value,...` in which people
//! choose one. A new scheme is one file beside this one, one line in [`schemes`], and its name in
//! `undercroft_level::placement::SIMULATED`.

use std::fmt;
use std::str::FromStr;

use super::Scheme;
use super::info::{Build, SchemeInfo};
use undercroft_policy::{Arguments, SpecError};

/// Every scheme, in the order in which tables list them.
pub fn schemes() -> &'static [&'static SchemeInfo] {
    &[
        &super::demote::INFO,
        &super::promote::INFO,
        &super::hint_k::INFO,
        &super::hfa::D_HFA,
        &super::hfa::P_HFA,
        &super::hfa::H_HFA,
        &super::hfa::ORACLE,
        &super::bidifilter::INFO,
        &super::tandem::INFO,
    ]
}

/// A scheme as configured: its name and the value of every option.
#[derive(Clone)]
pub struct SchemeSpec {
    info: &'static SchemeInfo,
    arguments: Arguments,
}

impl SchemeSpec {
    /// Whether a scheme has this name.
    pub fn is_known(name: &str) -> bool {
        schemes().iter().any(|info| info.name == name)
    }

    /// The description of the scheme.
    pub fn info(&self) -> &'static SchemeInfo {
        self.info
    }

    /// Makes the scheme.
    ///
    /// # Errors
    /// The options, the policy or the topology do not fit the scheme.
    pub fn build(&self, build: Build<'_>) -> Result<Box<dyn Scheme>, SpecError> {
        let Self { info, arguments } = self;
        if !info.policies.contains(&build.policy) {
            return Err(SpecError(format!(
                "placement {} over {}: the scheme itself decides what each level keeps; its levels \
                 are written with {}, as 64MiB:{}",
                info.name,
                build.policy,
                info.policies.join(" or "),
                info.policies[0]
            )));
        }
        if (0..build.topology.clients()).any(|client| build.topology.path(client).len() < 2) {
            return Err(SpecError(format!(
                "placement {} moves blocks between levels: add one below every client's",
                info.name
            )));
        }
        (info.build)(arguments, build)
    }
}

impl FromStr for SchemeSpec {
    type Err = SpecError;

    /// Reads `name` or `name,key=value,...`.
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut words = undercroft_text::words(text);
        let name = words.next().unwrap_or("");
        let info = schemes().iter().find(|info| info.name == name).ok_or_else(|| {
            let names: Vec<_> = schemes().iter().map(|info| info.name).collect();
            SpecError(format!("no scheme '{name}'; there are {}", names.join(", ")))
        })?;
        let what = format!("placement {name}");
        Ok(Self { info, arguments: Arguments::parse(&what, info.parameters, words)? })
    }
}

/// The name, and the options that are not at their default.
impl fmt::Display for SchemeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info.name)?;
        self.arguments.write_unusual(f, self.info.parameters, |parameter| parameter.default)
    }
}

impl fmt::Debug for SchemeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SchemeSpec({self})")
    }
}

impl PartialEq for SchemeSpec {
    fn eq(&self, other: &Self) -> bool {
        self.info.name == other.info.name && self.arguments == other.arguments
    }
}
