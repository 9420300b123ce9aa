//! The description of a policy in the registry, and the text form `name,key=value,...` by which
//! users choose one. The list is `policies/mod.rs`: a new policy is one new file beside it, and one
//! line there. A policy that is written elsewhere has a [`Spec`] of its own: [`Spec::own`].

use std::fmt;
use std::sync::Arc;

use undercroft_text::{pair, words};

use crate::{Policy, policies};

/// The names, source, parameters and constructor of a policy.
pub struct PolicyInfo {
    /// Name on the command line.
    pub name: &'static str,
    /// Other names, each with the parameters that it stands for.
    pub aliases: &'static [(&'static str, &'static str)],
    /// What it does, in a few words.
    pub summary: &'static str,
    /// Publication.
    pub source: &'static str,
    /// The parameters.
    pub parameters: &'static [Parameter],
    /// What it takes of memory.
    pub memory: Footprint,
    pub(crate) build: Build,
}

/// What a policy of its usual parameters takes of memory, by which an adviser sizes its miniature
/// caches. Measured: `tests/adviser/memory.rs` of `undercroft-adviser` compares.
pub struct Footprint {
    /// Most blocks that it knows at once, resident or remembered, for each that it may hold.
    pub known: u32,
    /// Bytes for each block that it may hold: its index, and all that is remembered.
    pub bytes: u64,
    /// Further bytes for a number of blocks that it may hold.
    pub tables: fn(u32) -> u64,
}

impl Footprint {
    pub(crate) const fn new(known: u32, bytes: u64) -> Self {
        Self { known, bytes, tables: |_| 0 }
    }
}

impl PolicyInfo {
    /// Whether the policy is content-aware whatever its parameters. Such a policy is useful only if
    /// something tells it what a neighbouring cache holds.
    pub fn is_content_aware(&self) -> bool {
        let has = |name| self.parameters.iter().any(|p| p.name == name);
        has("knows") && !has("ca")
    }
}

/// Whether a parameter of this name is `yes` or `no`, so that its name alone means `yes`.
fn is_switch(parameters: &[Parameter], name: &str) -> bool {
    let is_switch = |p: &Parameter| matches!(p.kind, Kind::Word(["no", "yes"]));
    parameters.iter().any(|p| p.name == name && is_switch(p))
}

/// Makes a policy from its arguments.
pub(crate) type Build = fn(&Arguments, &Context) -> Result<Box<dyn Policy>, SpecError>;

/// A parameter of a policy or a scheme.
pub struct Parameter {
    /// Key on the command line.
    pub name: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// The default, in the form that a user writes.
    pub default: &'static str,
    /// Meaning and unit.
    pub help: &'static str,
}

/// The allowed values of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number in a range, ends included.
    Integer(u64, u64),
    /// A whole number in a range, or this word.
    IntegerOr(u64, u64, &'static str),
    /// A number in a range, ends included.
    Real(f64, f64),
    /// A number in a range, ends included, or the name of the parameter that decides instead. It
    /// is an error to give a number and that parameter.
    RealOr(f64, f64, &'static str),
    /// One of these words.
    Word(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(min, u64::MAX) => write!(f, "whole number from {min}"),
            Self::Integer(min, max) => write!(f, "whole number from {min} to {max}"),
            Self::IntegerOr(min, max, word) => write!(f, "{} or {word}", Self::Integer(*min, *max)),
            Self::Real(min, max) => write!(f, "number from {min} to {max}"),
            Self::RealOr(min, max, word) => write!(f, "{} or {word}", Self::Real(*min, *max)),
            Self::Word(words) => f.write_str(&words.join(" or ")),
        }
    }
}

/// A parameter's value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// Of [`Kind::Integer`] or [`Kind::IntegerOr`].
    Integer(u64),
    /// Of [`Kind::Real`] or [`Kind::RealOr`].
    Real(f64),
    /// Of [`Kind::Word`], [`Kind::IntegerOr`] or [`Kind::RealOr`].
    Word(&'static str),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Real(value) => value.fmt(f),
            Self::Word(word) => f.write_str(word),
        }
    }
}

impl Kind {
    fn parse(self, text: &str) -> Option<Argument> {
        match self {
            Self::IntegerOr(_, _, word) | Self::RealOr(_, _, word) if text == word => {
                Some(Argument::Word(word))
            }
            Self::Integer(min, max) | Self::IntegerOr(min, max, _) => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Argument::Integer)
            }
            Self::Real(min, max) | Self::RealOr(min, max, _) => {
                text.parse().ok().filter(|value| (min..=max).contains(value)).map(Argument::Real)
            }
            Self::Word(words) => {
                words.iter().find(|&&word| word == text).map(|w| Argument::Word(w))
            }
        }
    }
}

/// The values of all parameters of a policy or a scheme, in the order of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Arguments {
    names: Vec<&'static str>,
    values: Vec<Argument>,
}

/// These methods look up a declared parameter. To ask for another one is a bug in the policy's
/// file, which the test that builds every policy finds.
impl Arguments {
    /// Parses `key=value` words over the defaults. `what` is what they belong to, for example
    /// `policy mq`.
    ///
    /// # Errors
    /// Names `what`, and the word that is unknown, given twice or out of range.
    pub fn parse<'a>(
        what: &str,
        parameters: &'static [Parameter],
        words: impl Iterator<Item = &'a str>,
    ) -> Result<Self, SpecError> {
        let default = |p: &Parameter| p.kind.parse(p.default).expect("defaults are in range");
        let mut arguments = Self {
            names: parameters.iter().map(|p| p.name).collect(),
            values: parameters.iter().map(default).collect(),
        };
        let mut given = vec![false; parameters.len()];
        for word in words {
            let (key, value) = match pair(word) {
                (key, Some(value)) => (key, value),
                (word, None) if is_switch(parameters, word) => (word, "yes"),
                (word, None) => {
                    return Err(SpecError(format!("{what}: expected key=value, found '{word}'")));
                }
            };
            let at = parameters.iter().position(|p| p.name == key);
            let at = at.ok_or_else(|| unknown_key(what, parameters, key))?;
            let parameter = &parameters[at];
            if std::mem::replace(&mut given[at], true) {
                return Err(SpecError(format!("{what}: {key} is given twice")));
            }
            arguments.values[at] = parameter.kind.parse(value).ok_or_else(|| {
                SpecError(format!(
                    "{what}: {} must be a {}, not '{value}'",
                    parameter.name, parameter.kind
                ))
            })?;
        }
        let is_given = |name| parameters.iter().zip(&given).any(|(p, &g)| g && p.name == name);
        // A number that is given excludes the parameter that it replaces.
        let mut values = parameters.iter().zip(&arguments.values);
        let both = values.find_map(|(p, value)| match (p.kind, value) {
            (Kind::RealOr(_, _, other), Argument::Real(_)) if is_given(other) => {
                Some((p.name, other))
            }
            _ => None,
        });
        if let Some((number, other)) = both {
            let why = format!("{what}: {number} and {other} exclude each other: give one");
            return Err(SpecError(why));
        }
        Ok(arguments)
    }

    /// Writes `,key=value` for every value that differs from the parameter's `usual` value.
    ///
    /// # Errors
    /// Those of the formatter.
    pub fn write_unusual(
        &self,
        f: &mut fmt::Formatter<'_>,
        parameters: &'static [Parameter],
        usual: impl Fn(&Parameter) -> &'static str,
    ) -> fmt::Result {
        for (parameter, value) in parameters.iter().zip(&self.values) {
            if parameter.kind.parse(usual(parameter)) != Some(*value) {
                write!(f, ",{}={value}", parameter.name)?;
            }
        }
        Ok(())
    }

    fn get(&self, name: &str) -> Argument {
        let at = self.names.iter().position(|&n| n == name);
        self.values[at.unwrap_or_else(|| panic!("parameter {name} is not declared"))]
    }

    /// The value of a [`Kind::Integer`].
    pub fn integer(&self, name: &str) -> u64 {
        self.integer_or_word(name).unwrap_or_else(|| panic!("parameter {name} is not a number"))
    }

    /// The value of a [`Kind::IntegerOr`]; `None` for its word.
    pub fn integer_or_word(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Argument::Integer(value) => Some(value),
            _ => None,
        }
    }

    /// The value of a [`Kind::Real`].
    pub fn real(&self, name: &str) -> f64 {
        self.real_or_word(name).unwrap_or_else(|| panic!("parameter {name} is not a real number"))
    }

    /// The value of a [`Kind::RealOr`]; `None` for its word.
    pub fn real_or_word(&self, name: &str) -> Option<f64> {
        match self.get(name) {
            Argument::Real(value) => Some(value),
            _ => None,
        }
    }

    /// The value of a [`Kind::Word`].
    pub fn word(&self, name: &str) -> &'static str {
        match self.get(name) {
            Argument::Word(word) => word,
            other => panic!("parameter {name} is {other}, not a word"),
        }
    }
}

/// The arguments from which a policy is made.
#[derive(Clone)]
pub struct Context {
    /// Resident entries, at least 1.
    pub capacity: u32,
    /// The coming references; only OPT uses them.
    pub future: Option<Arc<super::Future>>,
}

impl Context {
    /// For a cache of `capacity` entries whose coming references are not known.
    pub fn new(capacity: u32) -> Self {
        Self { capacity, future: None }
    }
}

/// The description that all policies outside of the registry share.
const OWN: PolicyInfo = PolicyInfo {
    name: "own",
    aliases: &[],
    summary: "a policy outside of the registry",
    source: "",
    parameters: &[],
    memory: Footprint::new(5, 700),
    build: |_, _| Err(SpecError("a policy outside of the registry makes itself".into())),
};

/// Makes a policy that is not in the registry.
pub type Maker = dyn Fn(&Context) -> Result<Box<dyn Policy>, SpecError> + Send + Sync;

/// A policy outside of the registry.
struct Own {
    name: String,
    make: Arc<Maker>,
}

/// A policy as configured: its name and the value of every parameter.
#[derive(Clone)]
pub struct Spec {
    info: &'static PolicyInfo,
    /// The name or alias by which it was chosen, and the parameters that this implies.
    called: (&'static str, &'static str),
    arguments: Arguments,
    own: Option<Arc<Own>>,
}

impl Spec {
    /// Parses `name` or `name,key=value,...`.
    ///
    /// # Errors
    /// The name or a key is unknown, a key is given twice, or a value is not of its kind; the
    /// message says what is allowed.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let mut words = words(text);
        let name = words.next().unwrap_or("").to_ascii_lowercase();
        let (info, called) = find(&name)?;
        let implied = called.1.split(',').filter(|word| !word.is_empty());
        let what = format!("policy {}", info.name);
        let arguments = Arguments::parse(&what, info.parameters, implied.chain(words))?;
        Ok(Self { info, called, arguments, own: None })
    }

    /// A policy that is not in the registry. `name` is what reports call it; `make` is called for
    /// each level that has it. Nothing can be saved and restored by its name, and schemes that move
    /// blocks by hints do not take it.
    pub fn own(name: &str, make: Arc<Maker>) -> Self {
        let arguments = Arguments { names: Vec::new(), values: Vec::new() };
        let own = Some(Arc::new(Own { name: name.to_owned(), make }));
        Self { info: &OWN, called: (OWN.name, ""), arguments, own }
    }

    /// The description of the policy.
    pub fn info(&self) -> &'static PolicyInfo {
        self.info
    }

    /// Its parameters with their values.
    pub fn arguments(&self) -> impl Iterator<Item = (&'static str, Argument)> + '_ {
        self.arguments.names.iter().copied().zip(self.arguments.values.iter().copied())
    }

    /// The policy for a cache that sees a share `rate` of the blocks, and is as much smaller. Of
    /// its parameters, those in references change; those in shares of the capacity do not.
    pub fn of_sample(&self, rate: f64) -> Self {
        let mut sample = self.clone();
        let scaled = |references: u64| (references as f64 * rate).round() as u64;
        for (name, value) in self.arguments.names.iter().zip(&mut sample.arguments.values) {
            *value = match (*name, *value) {
                ("lifetime", Argument::Integer(all)) => Argument::Integer(scaled(all).max(1)),
                ("crp", Argument::Integer(all)) => Argument::Integer(scaled(all)),
                ("lambda", Argument::Real(halvings)) => Argument::Real((halvings / rate).min(1.0)),
                (_, same) => same,
            };
        }
        sample
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// The parameters contradict each other, or the context lacks what the policy needs.
    pub fn build(&self, context: &Context) -> Result<Box<dyn Policy>, SpecError> {
        if context.capacity == 0 {
            return Err(SpecError("a cache needs room for at least one block".into()));
        }
        match &self.own {
            Some(own) => (own.make)(context),
            None => (self.info.build)(&self.arguments, context),
        }
    }
}

/// The name, and the parameters that differ from those that the name implies.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, implied) = self.called;
        f.write_str(self.own.as_ref().map_or(name, |own| &own.name))?;
        let usual = |parameter: &Parameter| {
            let implied = words(implied).map(pair).find(|(key, _)| *key == parameter.name);
            implied.and_then(|(_, value)| value).unwrap_or(parameter.default)
        };
        self.arguments.write_unusual(f, self.info.parameters, usual)
    }
}

impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Spec({self})")
    }
}

impl PartialEq for Spec {
    fn eq(&self, other: &Self) -> bool {
        let identity = |spec: &Self| (spec.own.as_ref().map(Arc::as_ptr), spec.info.name);
        identity(self) == identity(other) && self.arguments == other.arguments
    }
}

impl std::str::FromStr for Spec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text)
    }
}

/// The policy of a name, the name itself, and the parameters that it implies.
fn find(name: &str) -> Result<(&'static PolicyInfo, (&'static str, &'static str)), SpecError> {
    for info in policies() {
        if info.name == name {
            return Ok((info, (info.name, "")));
        }
        if let Some(&called) = info.aliases.iter().find(|(alias, _)| *alias == name) {
            return Ok((info, called));
        }
    }
    let names: Vec<_> = policies().iter().map(|info| info.name).collect();
    Err(SpecError(format!("no policy '{name}'; there are {}", names.join(", "))))
}

fn unknown_key(what: &str, parameters: &[Parameter], key: &str) -> SpecError {
    let keys: Vec<_> = parameters.iter().map(|p| p.name).collect();
    let known = if keys.is_empty() { "none".into() } else { keys.join(", ") };
    SpecError(format!("{what}: no parameter '{key}'; there are: {known}"))
}

/// Why a policy cannot be made; says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(pub String);

impl SpecError {
    pub(crate) fn new(what: &str) -> Self {
        Self(what.into())
    }
}

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SpecError {}
