//! Synthetic traces: the registry of generators, their parameters as text, and the reader that
//! they share. One file a generator in `generate/`; the distributions are in `generate/law.rs`.
//! A new generator is one file and one line in the list of `generators!`.
//!
//! A generator is a function of its parameters, the seed among them: the same parameters give
//! the same trace on every machine. Random numbers are SplitMix64's, and the few logarithms and
//! exponentials come from a library in plain Rust and not from the system.

mod law;

use std::fmt::Write as _;

use undercroft_text::{pair, words};

use crate::Error;
use crate::record::{Meta, Op, Reader, Record, Unit};

/// Records appended at once, roughly.
const BATCH: u64 = 4096;

/// Declares the modules of the generators, and the table of what is in each. `cargo fmt` does not
/// see modules that a macro declares: `make test` formats every file.
macro_rules! generators {
    ($($module:ident: $($generator:ident)*;)*) => {
        $(mod $module;)*

        /// Every generator, in the order of the help text.
        pub static GENERATORS: &[Generator] = &[$($($module::$generator),*),*];
    };
}

generators! {
    zipf: GENERATOR;
    sequential: LOOP SCAN;
    mixed: GENERATOR;
    tpcc: GENERATOR;
}

/// A kind of synthetic trace.
#[derive(Debug)]
pub struct Generator {
    /// Name, as the command line takes it.
    pub name: &'static str,
    /// One sentence.
    pub about: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    make: fn(&Values) -> Made,
}

/// A parameter of a generator.
#[derive(Debug)]
pub struct Parameter {
    /// Name, as in `key=value`.
    pub key: &'static str,
    /// One sentence, with the unit.
    pub about: &'static str,
    /// Type, range and default.
    pub kind: Kind,
}

/// Type, range (both ends included) and default of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// A whole number.
    Whole {
        /// Smallest value.
        min: u64,
        /// Largest value.
        max: u64,
        /// Value if not given.
        default: u64,
    },
    /// A number.
    Real {
        /// Smallest value.
        min: f64,
        /// Largest value.
        max: f64,
        /// Value if not given.
        default: f64,
    },
    /// `true` or `false`.
    Flag {
        /// Value if not given.
        default: bool,
    },
}

/// Parameters that name no synthetic trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GeneratorError {
    /// There is no such generator.
    #[error("no generator {name:?}: expected one of {expected}")]
    Name {
        /// What was asked for.
        name: String,
        /// The generators there are.
        expected: String,
    },
    /// The generator has no such parameter.
    #[error("{generator} has no parameter {key:?}: expected one of {expected}")]
    Key {
        /// Generator asked for.
        generator: &'static str,
        /// What was given.
        key: String,
        /// The parameters there are.
        expected: String,
    },
    /// A value that does not parse, is out of range, or is given twice.
    #[error("{generator}: {key}: expected {expected}, found {found}")]
    Value {
        /// Generator asked for.
        generator: &'static str,
        /// Parameter concerned.
        key: &'static str,
        /// Type and range.
        expected: String,
        /// What was given.
        found: String,
    },
}

/// A generator with all its parameters.
#[derive(Clone, Debug)]
pub struct GeneratorSpec {
    generator: &'static Generator,
    values: Values,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Value {
    Whole(u64),
    Real(f64),
    Flag(bool),
}

/// Values in the order of the generator's parameters.
#[derive(Clone, Debug)]
struct Values {
    parameters: &'static [Parameter],
    values: Vec<Value>,
}

/// What a generator makes of its parameters.
struct Made {
    /// Block size that the numbers stand for; none if they mean blocks of any size.
    block_bytes: Option<u32>,
    has_ops: bool,
    spaces: Vec<String>,
    source: Box<dyn Source>,
}

/// Makes records, a batch at a time.
trait Source: Send {
    /// Appends about [`BATCH`] records, or those that are left. None appended is the end.
    fn fill(&mut self, records: &mut Vec<Record>);
}

impl GeneratorSpec {
    /// Reads `key=value,key=value`; keys left out have their defaults, and the text may be empty.
    ///
    /// # Errors
    /// [`GeneratorError`] says which name, key or value is wrong, and what would be right.
    pub fn parse(name: &str, parameters: &str) -> Result<Self, GeneratorError> {
        let Some(generator) = GENERATORS.iter().find(|generator| generator.name == name) else {
            let expected = list(GENERATORS.iter().map(|generator| generator.name));
            return Err(GeneratorError::Name { name: name.into(), expected });
        };
        let mut given = vec![None; generator.parameters.len()];
        for word in words(parameters).filter(|word| !word.is_empty()) {
            let (key, text) = pair(word);
            let text = text.unwrap_or_default();
            let Some(index) = generator.parameters.iter().position(|p| p.key == key) else {
                let expected = list(generator.parameters.iter().map(|p| p.key));
                let generator = generator.name;
                return Err(GeneratorError::Key { generator, key: key.into(), expected });
            };
            let parameter = &generator.parameters[index];
            let refuse = |found: String| GeneratorError::Value {
                generator: generator.name,
                key: parameter.key,
                expected: parameter.kind.to_string(),
                found,
            };
            let value = parameter.kind.parse(text).ok_or_else(|| refuse(format!("{text:?}")))?;
            if given[index].replace(value).is_some() {
                return Err(refuse("the parameter twice".into()));
            }
        }
        let values = given.into_iter().zip(generator.parameters);
        let values = values.map(|(value, p)| value.unwrap_or(p.kind.default_value())).collect();
        Ok(Self { generator, values: Values { parameters: generator.parameters, values } })
    }

    /// The generator.
    pub fn generator(&self) -> &'static Generator {
        self.generator
    }

    /// Begins the trace. Every call begins the same one.
    pub fn reader(&self) -> Box<dyn Reader> {
        let made = (self.generator.make)(&self.values);
        let meta = Meta {
            format: self.generator.name,
            unit: Unit::Blocks,
            block_bytes: made.block_bytes,
            has_ops: made.has_ops,
            has_time: false,
            has_buffers: false,
            has_evictions: false,
        };
        Box::new(Generated { meta, spaces: made.spaces, source: made.source })
    }
}

/// `name key=value,...` with every parameter: what to write down to have the trace again.
impl std::fmt::Display for GeneratorSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.generator.name)?;
        let mut separator = ' ';
        for (parameter, value) in self.values.parameters.iter().zip(&self.values.values) {
            write!(f, "{separator}{}=", parameter.key)?;
            match value {
                Value::Whole(value) => write!(f, "{value}")?,
                Value::Real(value) => write!(f, "{value}")?,
                Value::Flag(value) => write!(f, "{value}")?,
            }
            separator = ',';
        }
        Ok(())
    }
}

impl Generator {
    /// Help for a terminal: the parameters, one a line, with ranges and defaults.
    pub fn help(&self) -> String {
        let mut text = format!("{}: {}\n", self.name, self.about);
        for Parameter { key, about, kind } in self.parameters {
            let default = match *kind {
                Kind::Whole { default, .. } => default.to_string(),
                Kind::Real { default, .. } => default.to_string(),
                Kind::Flag { default } => default.to_string(),
            };
            writeln!(text, "  {key:<12} {about} [{kind}; default {default}]")
                .expect("a string takes every write");
        }
        text
    }
}

impl Kind {
    fn parse(self, text: &str) -> Option<Value> {
        match self {
            Self::Whole { min, max, .. } => {
                text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Whole)
            }
            Self::Real { min, max, .. } => {
                text.parse().ok().filter(|v| (min..=max).contains(v)).map(Value::Real)
            }
            Self::Flag { .. } => text.parse().ok().map(Value::Flag),
        }
    }

    const fn default_value(self) -> Value {
        match self {
            Self::Whole { default, .. } => Value::Whole(default),
            Self::Real { default, .. } => Value::Real(default),
            Self::Flag { default } => Value::Flag(default),
        }
    }
}

/// Type and range, as help texts and errors say them.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole { min, max, .. } => write!(f, "a whole number from {min} to {max}"),
            Self::Real { min, max, .. } => write!(f, "a number from {min} to {max}"),
            Self::Flag { .. } => f.write_str("true or false"),
        }
    }
}

/// A key or a type that the generator's own table does not have is a mistake in this program.
impl Values {
    fn value(&self, key: &str) -> Value {
        let index = self.parameters.iter().position(|parameter| parameter.key == key);
        self.values[index.unwrap_or_else(|| panic!("no parameter {key}"))]
    }

    fn whole(&self, key: &str) -> u64 {
        let Value::Whole(value) = self.value(key) else { panic!("{key} is not whole") };
        value
    }

    fn real(&self, key: &str) -> f64 {
        let Value::Real(value) = self.value(key) else { panic!("{key} is not real") };
        value
    }

    fn flag(&self, key: &str) -> bool {
        let Value::Flag(value) = self.value(key) else { panic!("{key} is not a flag") };
        value
    }
}

/// The reader over any source.
struct Generated {
    meta: Meta,
    spaces: Vec<String>,
    source: Box<dyn Source>,
}

impl Reader for Generated {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        self.source.fill(records);
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }
}

/// A request for one block.
#[inline]
fn one_block(space: u32, address: u64, op: Op) -> Record {
    Record { time_ns: 0, op, space, address, length: 1, buffer: None, client: 0 }
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// Parameters that mean the same in every generator.
const BLOCKS: Parameter = Parameter {
    key: "blocks",
    about: "distinct blocks",
    kind: Kind::Whole { min: 1, max: (1 << 31) - 1, default: 100_000 },
};
const REQUESTS: Parameter = Parameter {
    key: "requests",
    about: "requests, each of one block",
    kind: Kind::Whole { min: 0, max: 1 << 50, default: 1_000_000 },
};
const ALPHA: Parameter = Parameter {
    key: "alpha",
    about: "skew: the block of rank r is drawn in proportion to r^-alpha; 0 is uniform",
    kind: Kind::Real { min: 0.0, max: 10.0, default: 0.9 },
};
const WRITES: Parameter = Parameter {
    key: "writes",
    about: "share of the requests drawn from the law that write",
    kind: Kind::Real { min: 0.0, max: 1.0, default: 0.0 },
};
const SCRAMBLE: Parameter = Parameter {
    key: "scramble",
    about: "spread the popular blocks over all block numbers; false: block 0 is the hottest",
    kind: Kind::Flag { default: true },
};
const SEED: Parameter = Parameter {
    key: "seed",
    about: "seed of the random numbers",
    kind: Kind::Whole { min: 0, max: u64::MAX, default: 42 },
};

#[cfg(test)]
mod tests;
