//! What the cache of a server does beside replacement, at the lowest level of a simulation:
//! sequential streams pass it, and writes are counted as write-back would make them.
//!
//! Not here: the flash level (`flash.rs`), which streams are recognised
//! (`undercroft_level::Streams`), and which configurations cannot have this (`combinations.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use undercroft_level::{DenseLevel, Streams};
use undercroft_policy::{Entry, Reference};
use undercroft_text::{pair, words};
use undercroft_trace::BlockNames;

use crate::outcome::WriteBackCounts;
use crate::{Config, FlashLevel};

/// What the lowest level does beside replacement; by default nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lowest {
    /// Sequential streams pass the level beyond this many bytes; 0: they are cached.
    pub stream_cutoff_bytes: u64,
    /// When dirty blocks are written; `None`: the level is write-through.
    pub write_back: Option<WriteBack>,
    /// A flash level between it and the disk.
    pub flash: Option<FlashLevel>,
}

impl Lowest {
    /// Whether nothing is asked for.
    pub fn is_plain(&self) -> bool {
        !self.is_altered() && self.flash.is_none()
    }

    /// Whether streams pass the level, or its writes wait.
    pub(crate) fn is_altered(&self) -> bool {
        self.stream_cutoff_bytes > 0 || self.write_back.is_some()
    }

    /// The streams of blocks of so many bytes that pass the level, if any do.
    pub(crate) fn streams(&self, block_bytes: u32) -> Option<Streams> {
        Streams::beyond(self.stream_cutoff_bytes, block_bytes)
    }
}

impl fmt::Display for Lowest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stream-cutoff={}", self.stream_cutoff_bytes)?;
        self.write_back.map_or(Ok(()), |rules| write!(f, " write-back={rules}"))?;
        self.flash.as_ref().map_or(Ok(()), |flash| write!(f, " flash={flash}"))
    }
}

/// When write-back writes a dirty block: when it is evicted, at the end, and before that by these
/// rules.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WriteBack {
    /// References to the level after which a dirty block is written; `None`: it may wait.
    pub age: Option<u64>,
    /// Share of the level that may be dirty, in percent; the oldest blocks beyond it are written.
    /// `None`: all of it.
    pub percent: Option<f64>,
}

impl FromStr for WriteBack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        for word in words(text).filter(|_| !text.is_empty()) {
            let wrong = || {
                format!(
                    "'{word}': expected age=REFERENCES (at least 1) and percent=SHARE (above 0, at \
                     most 100), as age=100000,percent=25"
                )
            };
            let (key, value) = pair(word);
            let value = value.ok_or_else(wrong)?;
            match key {
                "age" => rules.age = value.parse().ok().filter(|&age| age > 0),
                "percent" => {
                    let share = value.parse().ok();
                    rules.percent = share.filter(|&share| share > 0.0 && share <= 100.0);
                }
                _ => return Err(wrong()),
            }
            let is_read = if key == "age" { rules.age.is_some() } else { rules.percent.is_some() };
            is_read.then_some(()).ok_or_else(wrong)?;
        }
        Ok(rules)
    }
}

impl fmt::Display for WriteBack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = self.age.map(|age| format!("age={age}"));
        let percent = self.percent.map(|percent| format!("percent={percent}"));
        f.write_str(&age.into_iter().chain(percent).collect::<Vec<_>>().join(","))
    }
}

/// The lowest level's streams and dirty blocks.
pub(crate) struct LowestLevel<'a> {
    names: &'a BlockNames,
    streams: Option<Streams>,
    dirty: Option<DirtyBlocks>,
}

impl<'a> LowestLevel<'a> {
    /// For a level that does something beside replacement; `None` if it does not.
    pub(crate) fn new(config: &Config, capacity: u32, names: &'a BlockNames) -> Option<Self> {
        let Config { lowest, block_bytes, .. } = config;
        let dirty = |rules| DirtyBlocks::new(rules, capacity, names.len());
        let (streams, dirty) = (lowest.streams(*block_bytes), lowest.write_back.map(dirty));
        lowest.is_altered().then_some(Self { names, streams, dirty })
    }

    /// Runs the level over `refs`, whose entries are below `entries`, as
    /// [`DenseLevel::replay`] does.
    pub(crate) fn replay(
        &mut self,
        level: &mut DenseLevel,
        entries: Entry,
        refs: &[Reference],
        mut below: Option<&mut Vec<Reference>>,
    ) {
        for &reference in refs {
            let streams = self.streams.as_mut();
            let is_streamed =
                streams.is_some_and(|streams| streams.note(self.names.name(reference.entry())));
            let hit = match is_streamed {
                true => level.pass(entries, reference),
                false => level.reference(entries, reference),
            };
            if let Some(dirty) = &mut self.dirty {
                dirty.referenced(reference, level);
            }
            if let Some(below) = below.as_mut().filter(|_| reference.is_write() || !hit) {
                below.push(reference);
            }
        }
    }

    pub(crate) fn restart_counts(&mut self) {
        self.dirty.iter_mut().for_each(|dirty| dirty.counts = WriteBackCounts::default());
    }

    /// The blocks that write-back writes.
    pub(crate) fn written(&self) -> Option<WriteBackCounts> {
        let dirty = self.dirty.as_ref()?;
        Some(WriteBackCounts { left: dirty.count, ..dirty.counts })
    }
}

/// The dirty blocks of a level.
struct DirtyBlocks {
    age: u64,
    most: u64,
    /// When each block became dirty, in references from 1 on; 0: it is clean.
    since: Vec<u64>,
    /// The dirty blocks, oldest first. Entries of blocks that were written meanwhile are stale.
    order: VecDeque<(u64, Entry)>,
    count: u64,
    now: u64,
    counts: WriteBackCounts,
}

impl DirtyBlocks {
    fn new(rules: WriteBack, capacity: u32, entries: Entry) -> Self {
        let most = |percent: f64| (percent / 100.0 * f64::from(capacity)) as u64;
        Self {
            age: rules.age.unwrap_or(u64::MAX),
            most: rules.percent.map_or(u64::MAX, most),
            since: vec![0; entries as usize],
            order: VecDeque::new(),
            count: 0,
            now: 0,
            counts: WriteBackCounts::default(),
        }
    }

    /// The level has served a reference.
    fn referenced(&mut self, reference: Reference, level: &DenseLevel) {
        self.now += 1;
        for gone in level.evicted() {
            self.counts.evicted += u64::from(self.clean(gone));
        }
        let entry = reference.entry();
        if reference.is_write() {
            let since = self.since[entry as usize];
            if !level.policy().contains(entry) {
                self.counts.around += 1;
            } else if since > 0 {
                self.counts.saved += 1;
            } else {
                self.since[entry as usize] = self.now;
                self.order.push_back((self.now, entry));
                self.count += 1;
            }
        }
        self.write_early();
    }

    /// Writes the blocks that are too old or too many.
    fn write_early(&mut self) {
        while let Some(&(since, entry)) = self.order.front() {
            let is_stale = self.since[entry as usize] != since;
            let is_early = self.now - since >= self.age || self.count > self.most;
            if !is_stale && !is_early {
                return;
            }
            self.order.pop_front();
            self.counts.early += u64::from(!is_stale && self.clean(entry));
        }
    }

    /// Makes a block clean; whether it was dirty.
    fn clean(&mut self, entry: Entry) -> bool {
        let was_dirty = std::mem::take(&mut self.since[entry as usize]) > 0;
        self.count -= u64::from(was_dirty);
        was_dirty
    }
}
