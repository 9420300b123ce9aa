//! The placements by name, with their options, and their text form. `level/eviction.rs` carries
//! them out.

use std::fmt;
use std::str::FromStr;

use super::info::{MAX_STAGING, SIMULATED, options_of, placements};

/// When blocks enter and leave the levels below the first.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Placement {
    /// A missed block is placed at its access. Each level works on its own.
    #[default]
    Access,
    /// One server below clients: a block is placed when the client evicts it (USENIX 2003); with
    /// `auto`, if there is evidence that this saves reads from the store.
    Eviction(Eviction),
    /// The levels together hold each block once: an evicted block moves one level down with its
    /// data (TPDS 2004, section 6).
    Global(Order),
}

/// The options of eviction-based placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eviction {
    /// What a read hit does to the copy.
    pub on_hit: OnHit,
    /// Which evicted blocks are worth placing.
    pub threshold: Threshold,
    /// How an evicted block comes down; with `by_cost`, only at the start.
    pub down: DataSource,
    /// Whether the way down is chosen by cost at run time; the caller then needs a clock. Only in
    /// simulations.
    pub by_cost: bool,
    /// How many of the last written blocks keep their data beside the cache. They can be placed
    /// without a read from disk.
    pub staging: Staging,
    /// Whether an evicted block is placed before or after the read that evicted it is served.
    pub order: Order,
    /// The placement `auto`: blocks are placed at their access until there is evidence that
    /// placing them at eviction saves reads from the store. Goes with `OnHit::Adaptive`.
    pub is_auto: bool,
}

/// What a read hit does to the copy in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHit {
    /// The copy is removed, since the client has the block now. The levels are exclusive.
    Move,
    /// The copy stays and counts as used.
    Keep,
    /// The cache learns how long the copy stays.
    Adaptive,
}

/// Which evicted blocks are worth a reload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Those that the client has read or written at least this many times.
    Accesses(u32),
    /// Those with at least this many times the accesses of the block that would be evicted.
    Relative(f64),
}

/// How an evicted block comes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataSource {
    /// The server reads it from disk.
    Reload,
    /// The client sends it.
    Demote,
}

/// The size of the staging area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Staging {
    /// This many blocks; 0: no staging area.
    Blocks(u32),
    /// Learned, up to an eighth of the cache.
    Auto,
}

/// Blocks whose accesses are counted, as a multiple of the capacity: the residents, and four times
/// as many others, as ghost lists have.
const COUNTED: u32 = 5;

impl Eviction {
    /// Most blocks whose accesses a cache of `capacity` blocks counts for the threshold; 0 if it
    /// needs no counts.
    pub fn counted(&self, capacity: u32) -> u32 {
        let needs = !matches!(self.threshold, Threshold::Accesses(0 | 1));
        let counts = needs && self.down == DataSource::Reload;
        if counts { capacity.saturating_mul(COUNTED) } else { 0 }
    }
}

impl Staging {
    /// The largest size of the staging area of a cache of `capacity` blocks.
    pub fn most(self, capacity: u32) -> u32 {
        match self {
            Self::Blocks(blocks) => blocks,
            Self::Auto => (capacity / STAGED_SHARE).max(1),
        }
    }
}

/// A learned staging area takes at most the cache's capacity divided by this.
const STAGED_SHARE: u32 = 8;

/// Order of the two actions at a miss of the client: its read, and the placement of its evicted
/// block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The read is served first, so that the evicted block cannot evict the block that is read.
    #[default]
    ReadFirst,
    /// The evicted block is placed first, as in the simulator fscachesim.
    DemoteFirst,
}

impl Default for Eviction {
    fn default() -> Self {
        Self {
            on_hit: OnHit::Adaptive,
            threshold: Threshold::Accesses(0),
            down: DataSource::Reload,
            by_cost: false,
            staging: Staging::Blocks(0),
            order: Order::ReadFirst,
            is_auto: false,
        }
    }
}

impl Eviction {
    /// The rules of the placement `auto`. In a simulation, clients hand over what they evict.
    pub fn auto() -> Self {
        let (down, staging) = (DataSource::Demote, Staging::Auto);
        Self { down, staging, is_auto: true, ..Self::default() }
    }
}

/// Why a placement is not possible; says what is wrong and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementError(pub(crate) String);

impl PlacementError {
    /// A refusal, in a sentence for a person.
    pub fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PlacementError {}

impl Placement {
    /// The name without options.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Access => "access",
            Self::Eviction(eviction) if eviction.is_auto => "auto",
            Self::Eviction(_) => "eviction",
            Self::Global(_) => "gl",
        }
    }

    /// Whether this is `auto`.
    pub fn is_auto(&self) -> bool {
        matches!(self, Self::Eviction(eviction) if eviction.is_auto)
    }

    /// Whether the way down is chosen by cost; the caller then needs a clock.
    pub fn is_by_cost(&self) -> bool {
        matches!(self, Self::Eviction(eviction) if eviction.by_cost)
    }

    /// Checks that the policy called `name` can run at a level below the first.
    ///
    /// # Errors
    /// It cannot; the message says why.
    pub fn check_policy(&self, name: &str) -> Result<(), PlacementError> {
        if name == "opt" && *self != Self::Access {
            return Err(PlacementError(format!(
                "placement {} with opt: which references reach a level, and when it places a \
                 block, depends on what the levels hold, so the best choice cannot be known \
                 beforehand; use access",
                self.name()
            )));
        }
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), PlacementError> {
        let name = self.name();
        let wrong = |what: &str| {
            PlacementError(format!("placement {name}: {key} must be {what}, not '{value}'"))
        };
        match (&mut *self, key) {
            (Self::Global(order), "order") => {
                *order = parse_order(value).ok_or_else(|| wrong(ORDERS))?
            }
            (Self::Global(_), "on-hit") => {
                if value != "move" {
                    return Err(PlacementError(format!(
                        "placement gl,on-hit={value}: gl is exclusive, a hit always moves the \
                         block up; use eviction,on-hit={value}"
                    )));
                }
            }
            (Self::Global(_), "threshold") => {
                return Err(PlacementError(
                    "placement gl: no threshold, since blocks come with their data and nothing is \
                     reloaded; use eviction"
                        .into(),
                ));
            }
            (Self::Eviction(eviction), key) if eviction.is_auto && key != "down" => {
                return Err(PlacementError(format!(
                    "placement auto: no option '{key}', since it chooses itself; there is down, \
                     for simulations; eviction has the others"
                )));
            }
            (Self::Eviction(eviction), key) => return eviction.set(key, value, wrong),
            (Self::Access, _) => {
                return Err(PlacementError(format!("placement access: no option '{key}'")));
            }
            (Self::Global(_), _) => {
                let what =
                    format!("placement gl: no option '{key}'; there are: order, on-hit=move");
                return Err(PlacementError(what));
            }
        }
        Ok(())
    }
}

const ORDERS: &str = "read-first or demote-first";

fn parse_order(text: &str) -> Option<Order> {
    match text {
        "read-first" => Some(Order::ReadFirst),
        "demote-first" => Some(Order::DemoteFirst),
        _ => None,
    }
}

impl Eviction {
    fn set(
        &mut self,
        key: &str,
        value: &str,
        wrong: impl Fn(&str) -> PlacementError,
    ) -> Result<(), PlacementError> {
        match key {
            "on-hit" => {
                self.on_hit = match value {
                    "move" => OnHit::Move,
                    "keep" => OnHit::Keep,
                    "adaptive" => OnHit::Adaptive,
                    _ => return Err(wrong("move, keep or adaptive")),
                }
            }
            "threshold" => self.threshold = value.parse()?,
            "down" => {
                (self.down, self.by_cost) = match value {
                    "reload" => (DataSource::Reload, false),
                    "demote" => (DataSource::Demote, false),
                    "auto" => (DataSource::Reload, true),
                    _ => return Err(wrong("reload, demote or auto")),
                }
            }
            "staging" => {
                self.staging = match value.parse() {
                    Ok(blocks) if blocks <= MAX_STAGING => Staging::Blocks(blocks),
                    _ if value == "auto" => Staging::Auto,
                    _ => return Err(wrong("auto or a number of blocks, at most 2^24")),
                }
            }
            "order" => self.order = parse_order(value).ok_or_else(|| wrong(ORDERS))?,
            _ => {
                return Err(PlacementError(format!(
                    "placement eviction: no option '{key}'; there are: {}",
                    options_of("eviction")
                )));
            }
        }
        Ok(())
    }
}

impl FromStr for Threshold {
    type Err = PlacementError;

    /// Reads `32` (accesses) or `1.5x` (relative).
    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let factor = text.strip_suffix('x').map(str::parse::<f64>);
        let parsed = match factor {
            Some(Ok(factor)) if (0.0..=255.0).contains(&factor) => Some(Self::Relative(factor)),
            Some(_) => None,
            None => text.parse().ok().filter(|&n| n <= 255).map(Self::Accesses),
        };
        parsed.ok_or_else(|| {
            PlacementError(format!(
                "reload threshold '{text}': expected a number of accesses from 0 to 255, or a \
                 multiple of those of the block that would have to go, as 1x or 0.5x"
            ))
        })
    }
}

impl fmt::Display for Threshold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accesses(n) => write!(f, "{n}"),
            Self::Relative(factor) => write!(f, "{factor}x"),
        }
    }
}

impl FromStr for Placement {
    type Err = PlacementError;

    fn from_str(text: &str) -> Result<Self, PlacementError> {
        let mut words = undercroft_text::words(text);
        let mut placement = match words.next().unwrap_or("") {
            "access" => Self::Access,
            "eviction" => Self::Eviction(Eviction::default()),
            "auto" => Self::Eviction(Eviction::auto()),
            "gl" => Self::Global(Order::default()),
            other => {
                let placements: Vec<_> = placements().iter().map(|info| info.name).collect();
                return Err(PlacementError(format!(
                    "no placement '{other}'; there are {}, and for simulate {}",
                    placements.join(", "),
                    SIMULATED.join(", ")
                )));
            }
        };
        let mut given = Vec::new();
        for word in words {
            let (key, Some(value)) = undercroft_text::pair(word) else {
                let name = placement.name();
                let what = format!("placement {name}: expected key=value, found '{word}'");
                return Err(PlacementError(what));
            };
            if given.contains(&key) {
                let name = placement.name();
                return Err(PlacementError(format!("placement {name}: {key} is given twice")));
            }
            given.push(key);
            placement.set(key, value)?;
        }
        Ok(placement)
    }
}

/// The name, and the options that are not at their default.
impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        let usual = match self {
            Self::Eviction(eviction) if eviction.is_auto => Eviction::auto(),
            _ => Eviction::default(),
        };
        let order = match self {
            Self::Access => return Ok(()),
            Self::Global(order) => *order,
            Self::Eviction(eviction) => {
                if eviction.on_hit != usual.on_hit {
                    let word = match eviction.on_hit {
                        OnHit::Move => "move",
                        OnHit::Keep => "keep",
                        OnHit::Adaptive => "adaptive",
                    };
                    write!(f, ",on-hit={word}")?;
                }
                if eviction.threshold != usual.threshold {
                    write!(f, ",threshold={}", eviction.threshold)?;
                }
                let down = (eviction.by_cost, eviction.down);
                match down {
                    _ if down == (usual.by_cost, usual.down) => (),
                    (true, _) => f.write_str(",down=auto")?,
                    (_, DataSource::Demote) => f.write_str(",down=demote")?,
                    (_, DataSource::Reload) => f.write_str(",down=reload")?,
                }
                match eviction.staging {
                    staging if staging == usual.staging => (),
                    Staging::Blocks(blocks) => write!(f, ",staging={blocks}")?,
                    Staging::Auto => f.write_str(",staging=auto")?,
                }
                eviction.order
            }
        };
        if order == Order::DemoteFirst { f.write_str(",order=demote-first") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Placement, placements};
    use undercroft_policy::{Kind, Parameter};

    #[test]
    fn a_placement_comes_back_as_it_was_written() {
        for text in [
            "access",
            "gl",
            "gl,order=demote-first",
            "eviction",
            "eviction,on-hit=keep,threshold=32,staging=auto",
            "eviction,down=auto",
            "auto",
            "auto,down=reload",
            "auto,down=auto",
            "eviction,on-hit=move,threshold=0.5x,down=demote,staging=100,order=demote-first",
        ] {
            assert_eq!(text.parse::<Placement>().unwrap().to_string(), text);
        }
        assert_eq!("eviction,on-hit=adaptive,threshold=0".parse(), "eviction".parse::<Placement>());
    }

    #[test]
    fn placements_have_the_options_that_are_listed() {
        for info in placements() {
            let usual: Placement = info.name.parse().unwrap();
            assert_eq!(usual.name(), info.name);
            for Parameter { name, kind, default, .. } in info.parameters {
                let with = |value: &str| format!("{},{name}={value}", info.name).parse();
                assert_eq!(with(default), Ok(usual), "{} {name}", info.name);
                let others: &[&str] = match kind {
                    Kind::Word(words) => words,
                    _ => &["7"],
                };
                let changed = others.iter().filter(|value| *value != default);
                for value in changed {
                    assert!(with(value).is_ok_and(|other| other != usual), "{name}={value}");
                }
            }
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "there are access"),
            ("demote-all", "there are access"),
            ("access,on-hit=move", "no option"),
            ("gl,on-hit=keep", "exclusive"),
            ("gl,threshold=3", "nothing is reloaded"),
            ("gl,staging=3", "no option"),
            ("eviction,on-hit=never", "move, keep or adaptive"),
            ("eviction,on-hit", "key=value"),
            ("eviction,down=up", "reload, demote or auto"),
            ("eviction,threshold=256", "0 to 255"),
            ("eviction,threshold=-1x", "multiple"),
            ("eviction,threshold=NaNx", "multiple"),
            ("eviction,threshold=1,threshold=2", "twice"),
            ("eviction,staging=99999999999", "number of blocks"),
            ("eviction,size=3", "there are: on-hit"),
            ("auto,staging=3", "it chooses itself"),
        ] {
            let error = text.parse::<Placement>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
