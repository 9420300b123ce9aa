//! Sizes of caches in text form, and levels `SIZE:POLICY[,key=value...]`.

use std::fmt;
use std::str::FromStr;

use undercroft_level::DenseLevel;
use undercroft_policy::{Awareness, Context, Spec, WriteMode};
use undercroft_text::Bytes;

use crate::Error;

/// The configuration of a level.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelConfig {
    /// Size in blocks, at least 1.
    pub capacity: u32,
    /// Replacement policy.
    pub policy: Spec,
}

impl LevelConfig {
    /// The level for a trace of a share `rate` of the blocks: as much smaller.
    pub(crate) fn of_sample(&self, rate: f64) -> Self {
        let capacity = (f64::from(self.capacity) * rate).round().max(1.0) as u32;
        Self { capacity, policy: self.policy.of_sample(rate) }
    }

    /// Checks that the policy [`stands_alone`]; `why` says why it has to.
    pub(crate) fn check_alone(&self, why: &str) -> Result<(), Error> {
        match stands_alone(&self.policy) {
            true => Ok(()),
            false => Err(Error::Request(format!("{}: {why}", self.policy))),
        }
    }

    /// An empty level, for references one after the other.
    pub(crate) fn level(&self) -> Result<DenseLevel, Error> {
        let policy = self.policy.build(&Context::new(self.capacity))?;
        Ok(DenseLevel::new(policy, WriteMode::Allocate))
    }
}

/// Whether a policy needs neither the coming references nor a neighbouring cache.
pub(crate) fn stands_alone(policy: &Spec) -> bool {
    policy.info().name != "opt" && Awareness::of(policy).is_none()
}

/// Size of a cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Size {
    /// Bytes: `4096`, `64KiB`, `512M`, `1.5GiB`, `1TiB`, `1GB`.
    Bytes(u64),
    /// Blocks: `1000blk`.
    Blocks(u64),
    /// A share of the distinct blocks of the trace: `10%`.
    Percent(f64),
}

impl Size {
    /// The size in whole blocks for a trace of `unique` distinct blocks.
    ///
    /// # Errors
    /// It is less than one block, or more than 2^31 - 1 blocks.
    pub fn blocks(self, block_bytes: u32, unique: u32) -> Result<u32, Error> {
        let blocks = match self {
            Self::Bytes(bytes) => bytes / u64::from(block_bytes),
            Self::Blocks(blocks) => blocks,
            Self::Percent(percent) => (f64::from(unique) * percent / 100.0) as u64,
        };
        match u32::try_from(blocks) {
            Ok(blocks) if (1..1 << 31).contains(&blocks) => Ok(blocks),
            _ => Err(Error::Request(format!(
                "size {self} is {blocks} blocks of {block_bytes} bytes: expected 1 to 2147483647"
            ))),
        }
    }

    /// Parses `SIZE,SIZE,...`. An item may also be a range `64MiB..4GiB`: the doublings of the
    /// first size that are below the last, and the last.
    ///
    /// # Errors
    /// An item is not a size, or a range does not ascend; the message names it.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, Error> {
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                None => sizes.push(part.parse()?),
                Some((from, to)) => sizes.extend(doublings(from.parse()?, to.parse()?)?),
            }
        }
        Ok(sizes)
    }
}

fn doublings(from: Size, to: Size) -> Result<Vec<Size>, Error> {
    let wrong = || Error::Request(format!("size range {from}..{to}: expected ascending sizes"));
    let (mut at, end, make): (u64, u64, fn(u64) -> Size) = match (from, to) {
        (Size::Bytes(from), Size::Bytes(to)) => (from, to, Size::Bytes),
        (Size::Blocks(from), Size::Blocks(to)) => (from, to, Size::Blocks),
        _ => return Err(wrong()),
    };
    if at == 0 || at > end {
        return Err(wrong());
    }
    let mut sizes = Vec::new();
    while at < end {
        sizes.push(make(at));
        at = at.saturating_mul(2);
    }
    sizes.push(make(end));
    Ok(sizes)
}

impl FromStr for Size {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            let want = "bytes (4096, 64KiB, 512M, 1.5GiB; MB and GB are powers of 1000), blocks \
                        (1000blk) or a share of the trace's distinct blocks (10%)";
            Error::Request(format!("size '{text}': expected {want}"))
        };
        let text = text.trim();
        if let Some(percent) = text.strip_suffix('%') {
            let percent: f64 = percent.parse().map_err(|_| wrong())?;
            return if percent > 0.0 && percent <= 1e6 {
                Ok(Self::Percent(percent))
            } else {
                Err(wrong())
            };
        }
        if let Some(blocks) = text.strip_suffix("blk") {
            return blocks.parse().map(Self::Blocks).map_err(|_| wrong());
        }
        text.parse().map(|Bytes(bytes)| Self::Bytes(bytes)).map_err(|_| wrong())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Blocks(blocks) => write!(f, "{blocks}blk"),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Bytes(bytes) => Bytes(bytes).fmt(f),
        }
    }
}

/// A level in text form: `512MiB:mq`, `64MiB:mq,m=8,qout=4.0`.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelSpec {
    /// Its size.
    pub size: Size,
    /// Its policy.
    pub policy: Spec,
}

impl LevelSpec {
    /// The level for a trace of `unique` distinct blocks.
    ///
    /// # Errors
    /// Those of [`Size::blocks`].
    pub fn config(&self, block_bytes: u32, unique: u32) -> Result<LevelConfig, Error> {
        let capacity = self.size.blocks(block_bytes, unique)?;
        Ok(LevelConfig { capacity, policy: self.policy.clone() })
    }
}

impl FromStr for LevelSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (size, policy) = text.split_once(':').ok_or_else(|| {
            Error::Request(format!("level '{text}': expected SIZE:POLICY, as 64MiB:lru"))
        })?;
        Ok(Self { size: size.parse()?, policy: policy.parse()? })
    }
}

impl fmt::Display for LevelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.size, self.policy)
    }
}

/// Sizes of all levels relative to the first: `1:4`, `1:2:4`.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio(Vec<u32>);

/// Most levels of a [`Ratio`].
const MAX_LEVELS: usize = 16;

impl Ratio {
    /// A size of the first level with which each level has at least `blocks` blocks.
    pub(crate) fn first(&self, blocks: u64) -> Size {
        let least = self.0.iter().copied().min().unwrap_or(1);
        Size::Blocks(blocks * u64::from(self.0[0].div_ceil(least)))
    }

    /// The levels, all with the policy of the first, and with sizes in proportion.
    pub fn levels(&self, first: &LevelSpec) -> Vec<LevelSpec> {
        let scaled = |&part: &u32| {
            let (part, whole) = (u64::from(part), u64::from(self.0[0]));
            let size = match first.size {
                Size::Bytes(bytes) => Size::Bytes(bytes.saturating_mul(part) / whole),
                Size::Blocks(blocks) => Size::Blocks(blocks.saturating_mul(part) / whole),
                Size::Percent(percent) => Size::Percent(percent * part as f64 / whole as f64),
            };
            LevelSpec { size, policy: first.policy.clone() }
        };
        self.0.iter().map(scaled).collect()
    }
}

impl FromStr for Ratio {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split(':').map(|part| part.trim().parse::<u32>().ok());
        match parts.collect::<Option<Vec<u32>>>() {
            Some(parts) if (2..=MAX_LEVELS).contains(&parts.len()) && !parts.contains(&0) => {
                Ok(Self(parts))
            }
            _ => Err(Error::Request(format!(
                "ratio '{text}': expected 2 to {MAX_LEVELS} whole numbers, as 1:2:4"
            ))),
        }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&parts.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::{LevelSpec, Ratio, Size};

    #[test]
    fn levels_in_proportion() {
        let levels = |ratio: &str, first: &str| -> Vec<String> {
            let (ratio, first): (Ratio, LevelSpec) =
                (ratio.parse().unwrap(), first.parse().unwrap());
            assert_eq!(ratio.to_string().parse::<Ratio>().ok().as_ref(), Some(&ratio));
            ratio.levels(&first).iter().map(ToString::to_string).collect()
        };
        assert_eq!(levels("1:2:4", "1MiB:lru"), ["1MiB:lru", "2MiB:lru", "4MiB:lru"]);
        assert_eq!(levels("2:3", "10blk:arc"), ["10blk:arc", "15blk:arc"]);
        assert_eq!(levels("1:4", "2.5%:lru"), ["2.5%:lru", "10%:lru"]);
        for wrong in ["", "1", "1:0", "1:x", "1:-2", "1:2:3:4:5:6:7:8:9:10:11:12:13:14:15:16:17"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_as_people_write_them() {
        let blocks = |text: &str| text.parse::<Size>().and_then(|s| s.blocks(4096, 1000)).ok();
        assert_eq!(blocks("4096"), Some(1));
        assert_eq!(blocks("64KiB"), Some(16));
        assert_eq!(blocks("2GiB"), Some(1 << 19));
        assert_eq!(blocks("1000blk"), Some(1000));
        assert_eq!(blocks("10%"), Some(100));
        for wrong in ["", "x", "4095", "0blk", "-1", "1.5", "99999999TiB", "8000GiBB", "0%"] {
            assert_eq!(blocks(wrong), None, "{wrong}");
        }
        let range: Vec<_> =
            Size::parse_list("1MiB..5MiB,7blk").unwrap().iter().map(|s| s.to_string()).collect();
        assert_eq!(range, ["1MiB", "2MiB", "4MiB", "5MiB", "7blk"]);
        let range = Size::parse_list("1MiB..100MiB").unwrap();
        assert_eq!((range.len(), range[7]), (8, Size::Bytes(100 << 20)));
        assert_eq!(Size::parse_list("1MiB..1MiB").unwrap().len(), 1);
        assert!(Size::parse_list("2MiB..1MiB").is_err());
    }

    #[test]
    fn a_level_comes_back_as_it_was_written() {
        for text in ["64MiB:lru", "1000blk:s3-fifo,small=0.2", "10%:clock,bits=3"] {
            assert_eq!(text.parse::<LevelSpec>().unwrap().to_string(), text);
        }
        assert!("lru".parse::<LevelSpec>().is_err());
    }
}
