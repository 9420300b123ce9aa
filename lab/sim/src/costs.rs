//! The response-time model, equal for every placement: what a request costs by the cache that
//! serves it, and what a demotion adds.

use std::fmt;
use std::str::FromStr;

use crate::Error;

/// Times in milliseconds of a request served by the first, second and third level, and by the disk:
/// the preset `hfa` (Meng et al., JCST 2017; the third level is ours).
pub(crate) const LEVEL_MS: [f64; 3] = [0.2, 2.0, 5.0];
pub(crate) const DISK_MS: f64 = 10.0;

/// Time in milliseconds that reading a block from flash adds to a request that memory serves
/// (ours).
pub(crate) const FLASH_MS: f64 = 0.1;

/// Times of a request in milliseconds, from its start to its end, by the place that serves it.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs {
    /// For each level, the first one first.
    pub levels_ms: Vec<f64>,
    /// For the disk.
    pub disk_ms: f64,
}

/// A named set of times, or the times themselves.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum CostSpec {
    /// 0.2, 2 and 10 ms (Meng et al., JCST 2017; the third level's 5 ms are ours).
    #[default]
    Hfa,
    /// 0, 0.2 and 5.2 ms (Wong & Wilkes' simulator fscachesim), for two levels.
    Fscachesim,
    /// The given times of the levels and of the disk.
    Own(Vec<f64>),
}

/// What requests and demotions cost, and the seed of schemes.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Times of the levels and the disk; `None`: the default ones.
    pub costs: Option<CostSpec>,
    /// What a demotion adds under a scheme; `None`: a round trip.
    pub demotions: Option<DemotionCost>,
    /// Seed of the random numbers of a scheme.
    pub seed: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { costs: None, demotions: None, seed: 42 }
    }
}

/// What a demotion costs the request that caused it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum DemotionCost {
    /// Nothing.
    Free,
    /// A round trip: the difference between the times of both levels.
    #[default]
    RoundTrip,
    /// Nothing directly, but the link carries this many blocks per second, one after the other, and
    /// a read waits until the blocks ahead of it have passed.
    Link(f64),
}

impl CostSpec {
    /// The times for `levels` levels. A single level counts as the second, which is where
    /// Undercroft runs.
    ///
    /// # Errors
    /// The times are for a different number of levels.
    pub(crate) fn costs(&self, levels: usize) -> Result<Costs, Error> {
        let (known, disk_ms): (&[f64], f64) = match self {
            Self::Hfa => (&LEVEL_MS, DISK_MS),
            Self::Fscachesim => (&[0.0, 0.2], 5.2),
            Self::Own(times) => {
                let (disk, known) = times.split_last().unwrap_or((&0.0, &[]));
                (known, *disk)
            }
        };
        let is_own = matches!(self, Self::Own(_));
        let first = usize::from(levels == 1 && !is_own);
        if levels + first > known.len() || (is_own && levels != known.len()) {
            return Err(Error::Request(format!(
                "--costs {self}: these are the times of {} levels, and there are {levels}; give \
                 one for each level and one for the disk, as --costs 0.2,2,5,10",
                known.len()
            )));
        }
        Ok(Costs { levels_ms: known[first..first + levels].to_vec(), disk_ms })
    }
}

impl FromStr for CostSpec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Request(format!(
                "costs '{text}': expected hfa, fscachesim, or milliseconds of each level and of \
                 the disk, none below 0, as 0.2,2,10"
            ))
        };
        match text {
            "hfa" => return Ok(Self::Hfa),
            "fscachesim" => return Ok(Self::Fscachesim),
            _ => (),
        }
        let times = text.split(',').map(|word| word.trim().parse::<f64>());
        let times = times.collect::<Result<Vec<_>, _>>().map_err(|_| wrong())?;
        let right = |ms: &f64| (0.0..=1e9).contains(ms);
        if times.len() < 2 || !times.iter().all(right) {
            Err(wrong())
        } else {
            Ok(Self::Own(times))
        }
    }
}

impl fmt::Display for CostSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hfa => f.write_str("hfa"),
            Self::Fscachesim => f.write_str("fscachesim"),
            Self::Own(times) => {
                let times: Vec<_> = times.iter().map(ToString::to_string).collect();
                f.write_str(&times.join(","))
            }
        }
    }
}

impl FromStr for DemotionCost {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || {
            Error::Request(format!(
                "demotion cost '{text}': expected free, rtt, or what a link carries in blocks a \
                 second, as link=10000"
            ))
        };
        match text {
            "free" => Ok(Self::Free),
            "rtt" => Ok(Self::RoundTrip),
            _ => {
                let rate = text.strip_prefix("link=").ok_or_else(wrong)?;
                let rate: f64 = rate.parse().map_err(|_| wrong())?;
                if (1e-3..=1e12).contains(&rate) { Ok(Self::Link(rate)) } else { Err(wrong()) }
            }
        }
    }
}

impl fmt::Display for DemotionCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Free => f.write_str("free"),
            Self::RoundTrip => f.write_str("rtt"),
            Self::Link(rate) => write!(f, "link={rate}"),
        }
    }
}

impl Costs {
    /// Mean time of a read in milliseconds: `hits` by level, reads that another client served,
    /// which is as far away as a server, and reads from the disk.
    pub(crate) fn mean_ms(&self, hits: &[u64], peer_hits: u64, disk_reads: u64) -> f64 {
        let served: f64 = hits.iter().zip(&self.levels_ms).map(|(&n, ms)| n as f64 * ms).sum();
        let reads = hits.iter().sum::<u64>() + peer_hits + disk_reads;
        let peers = peer_hits as f64 * LEVEL_MS[1];
        let total = served + peers + disk_reads as f64 * self.disk_ms;
        if reads == 0 { 0.0 } else { total / reads as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::{CostSpec, DemotionCost};

    /// `resp-1` of the specification.
    #[test]
    fn means_as_in_the_worked_example() {
        let mean = CostSpec::Hfa.costs(2).unwrap().mean_ms(&[50, 30], 0, 20);
        assert!((mean - 2.7).abs() < 1e-12);
    }

    #[test]
    fn costs_come_back_as_they_were_written_and_nonsense_is_refused() {
        for text in ["hfa", "fscachesim", "0.2,2,5,10"] {
            assert_eq!(text.parse::<CostSpec>().unwrap().to_string(), text);
        }
        for text in ["free", "rtt", "link=100"] {
            assert_eq!(text.parse::<DemotionCost>().unwrap().to_string(), text);
        }
        for text in ["", "1", "1,x", "-1,2", "1,NaN", "slow"] {
            assert!(text.parse::<CostSpec>().is_err(), "{text}");
        }
        for text in ["", "link", "link=0", "link=-1", "dear"] {
            assert!(text.parse::<DemotionCost>().is_err(), "{text}");
        }
        assert!(CostSpec::Fscachesim.costs(3).is_err());
        assert!(CostSpec::Own(vec![1.0, 2.0]).costs(2).is_err());
        assert_eq!(CostSpec::Hfa.costs(1).unwrap().levels_ms, [2.0]);
    }
}
