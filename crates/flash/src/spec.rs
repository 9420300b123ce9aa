//! A flash level as a person writes it: `SIZE[,key=value...]`.

use std::fmt;
use std::str::FromStr;

use undercroft_text::{Bytes, pair, words};

/// What goes to flash, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// A block goes when it leaves memory, if there is evidence that it will come back.
    #[default]
    Evidence,
    /// Every block goes as soon as it was read from the store or written.
    Access,
    /// A block goes as soon as it was missed a second time, while its ghost was remembered (LARC,
    /// Huang et al., MSST 2013).
    SecondMiss,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 3] = [Self::Evidence, Self::Access, Self::SecondMiss];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Evidence => "evidence",
            Self::Access => "access",
            Self::SecondMiss => "second-miss",
        }
    }
}

/// What may be written to flash in a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Budget {
    /// Nothing was said of it.
    #[default]
    Unsaid,
    /// Any number of bytes.
    Off,
    /// So many bytes.
    Bytes(u64),
}

impl Budget {
    /// The bytes of a day; `None`: any number.
    pub fn bytes(self) -> Option<u64> {
        if let Self::Bytes(bytes) = self { Some(bytes) } else { None }
    }

    /// What a part of a level gets, by a function of the bytes.
    #[must_use]
    pub fn map(self, part: impl FnOnce(u64) -> u64) -> Self {
        if let Self::Bytes(bytes) = self { Self::Bytes(part(bytes)) } else { self }
    }
}

/// The configuration of a flash level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FlashSpec {
    /// Its size as it was written, for the caller to read.
    pub size: String,
    /// What goes to flash.
    pub rule: Rule,
    /// What may be written to flash in a day.
    pub budget: Budget,
    /// Blocks of sequential streams longer than this do not go to flash; 0, the default: streams
    /// are as other blocks.
    pub sequential_bytes: u64,
}

impl FlashSpec {
    /// Parses a configuration. `other` gets the keys and values that are not of the level itself,
    /// and returns whether it can use them.
    ///
    /// # Errors
    /// A word says nothing to either.
    pub fn parse(text: &str, mut other: impl FnMut(&str, &str) -> bool) -> Result<Self, SpecError> {
        let mut all = words(text);
        let size = all.next().unwrap_or_default().to_owned();
        let mut spec =
            Self { size, rule: Rule::default(), budget: Budget::Unsaid, sequential_bytes: 0 };
        for word in all {
            let wrong = || SpecError(word.to_owned());
            let (key, value) = pair(word);
            let value = value.ok_or_else(wrong)?;
            let bytes = |text: &str| text.parse::<Bytes>().ok().map(|bytes| bytes.0);
            match key {
                "rule" => {
                    let named = Rule::ALL.into_iter().find(|rule| rule.name() == value);
                    spec.rule = named.ok_or_else(wrong)?;
                }
                "budget" if value == "off" => spec.budget = Budget::Off,
                "budget" => {
                    let a_day = value.strip_suffix("/day").and_then(bytes);
                    let a_day = a_day.filter(|&bytes| bytes > 0).ok_or_else(wrong)?;
                    spec.budget = Budget::Bytes(a_day);
                }
                "sequential" => spec.sequential_bytes = bytes(value).ok_or_else(wrong)?,
                _ if other(key, value) => (),
                _ => return Err(wrong()),
            }
        }
        Ok(spec)
    }
}

impl FromStr for FlashSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        Self::parse(text, |_, _| false)
    }
}

impl fmt::Display for FlashSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.size)?;
        if self.rule != Rule::default() {
            write!(f, ",rule={}", self.rule.name())?;
        }
        match self.budget {
            Budget::Unsaid => {}
            Budget::Off => f.write_str(",budget=off")?,
            Budget::Bytes(bytes) => write!(f, ",budget={}/day", Bytes(bytes))?,
        }
        if self.sequential_bytes != 0 {
            write!(f, ",sequential={}", Bytes(self.sequential_bytes))?;
        }
        Ok(())
    }
}

/// A word of a configuration that says nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecError(String);

impl fmt::Display for SpecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "'{}': expected a size first, then rule=evidence, access or second-miss, \
             budget=SIZE/day or off, sequential=SIZE",
            self.0
        )
    }
}

impl std::error::Error for SpecError {}
