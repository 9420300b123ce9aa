//! The contract of [`Policy`], checked from outside, for a policy whose right answers are not known
//! beforehand: what is resident, what is remembered, and whether every change was reported. The
//! tests of this crate check it for every policy beside its naive model; [`check`] is for policies
//! that are written elsewhere.

use std::fmt;

use undercroft_random::SplitMix64;

use crate::{Entry, EvictionKind, Evictions, Policy};

/// One call to a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// [`Policy::access`].
    Access(Entry),
    /// [`Policy::place`].
    Place(Entry),
    /// [`Policy::take`], of a resident entry.
    Take(Entry),
    /// [`Policy::note`], of an entry that is not resident.
    Note(Entry),
    /// [`Policy::discard`].
    Discard(Entry),
    /// [`Policy::resize`].
    Resize(u32),
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Access(entry) => write!(f, "access {entry}"),
            Self::Place(entry) => write!(f, "place {entry}"),
            Self::Take(entry) => write!(f, "take {entry}"),
            Self::Note(entry) => write!(f, "note {entry}"),
            Self::Discard(entry) => write!(f, "discard {entry}"),
            Self::Resize(capacity) => write!(f, "resize to {capacity}"),
        }
    }
}

/// How a policy broke the contract.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The random numbers that led to it began with this.
    pub seed: u64,
    /// Capacity at the beginning.
    pub capacity: u32,
    /// The calls, in order. None can be left out; the last one broke the contract.
    pub calls: Vec<Call>,
    /// The rule that does not hold.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let calls: Vec<_> = self.calls.iter().map(ToString::to_string).collect();
        let (calls, Self { seed, capacity, what, .. }) = (calls.join(", "), self);
        write!(f, "{what}; in a cache of {capacity} blocks, after: {calls} (seed {seed})")
    }
}

impl std::error::Error for Violation {}

/// What a policy says that it knows, between two calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Resident entries, ascending.
    pub residents: Vec<Entry>,
    /// Ghosts, ascending.
    pub ghosts: Vec<Entry>,
}

impl Known {
    /// What `policy` knows of the entries below `entries`.
    ///
    /// # Errors
    /// Its answers contradict each other, or it holds more than its capacity.
    pub fn of(policy: &dyn Policy, entries: u32) -> Result<Self, String> {
        policy.validate()?;
        let mut residents = policy.residents();
        residents.sort_unstable();
        let contained: Vec<_> = (0..entries).filter(|&e| policy.contains(e)).collect();
        if residents != contained {
            return Err(format!(
                "the list of residents has {residents:?}, but those that it contains are \
                 {contained:?}"
            ));
        }
        let (length, capacity) = (policy.len(), policy.capacity());
        if length as usize != residents.len() {
            return Err(format!("its length is {length}, but it holds {residents:?}"));
        }
        if length > capacity {
            return Err(format!("it holds {residents:?}, more than its capacity of {capacity}"));
        }
        let ghosts: Vec<_> = (0..entries).filter(|&e| policy.remembers(e)).collect();
        if let Some(both) = ghosts.iter().find(|e| residents.binary_search(e).is_ok()) {
            return Err(format!("block {both} is resident and a ghost at once"));
        }
        Ok(Self { residents, ghosts })
    }

    fn holds(&self, entry: Entry) -> bool {
        self.residents.binary_search(&entry).is_ok()
    }

    fn remembers(&self, entry: Entry) -> bool {
        self.ghosts.binary_search(&entry).is_ok()
    }

    /// Checks that `out` reports what changed between this and `now`, of which only the change of
    /// `removed` (discarded or taken) needs no report.
    ///
    /// # Errors
    /// A change was not reported, or something was reported that did not happen.
    pub fn check_reports(
        &self,
        now: &Self,
        out: &Evictions,
        removed: Option<Entry>,
    ) -> Result<(), String> {
        let reported = |e: Entry, kind: EvictionKind| out.iter().any(|d| d == (e, kind).into());
        let evicted =
            |e: Entry| reported(e, EvictionKind::Evicted) || reported(e, EvictionKind::Remembered);
        for &block in self.residents.iter().filter(|&&e| !now.holds(e)) {
            if !evicted(block) && removed != Some(block) {
                return Err(format!("block {block} is no longer resident, and was not reported"));
            }
        }
        for &ghost in self.ghosts.iter().filter(|&&e| !now.remembers(e) && !now.holds(e)) {
            if !reported(ghost, EvictionKind::Forgotten) && removed != Some(ghost) {
                return Err(format!("ghost {ghost} is no longer known, and was not reported"));
            }
        }
        for eviction in out.iter() {
            let entry = eviction.entry;
            let is_forgotten = reported(entry, EvictionKind::Forgotten);
            let wrong = match eviction.kind {
                _ if now.holds(entry) => Some("is resident"),
                EvictionKind::Evicted if now.remembers(entry) => Some("is a ghost"),
                EvictionKind::Forgotten if now.remembers(entry) => Some("is a ghost"),
                EvictionKind::Remembered if !now.remembers(entry) && !is_forgotten => {
                    Some("is not a ghost")
                }
                _ => None,
            };
            if let Some(wrong) = wrong {
                let kind = format!("{:?}", eviction.kind).to_lowercase();
                return Err(format!("block {entry} was reported as {kind}, but {wrong}"));
            }
        }
        Ok(())
    }
}

impl From<(Entry, EvictionKind)> for super::Eviction {
    fn from((entry, kind): (Entry, EvictionKind)) -> Self {
        Self { entry, kind }
    }
}

/// Calls of a run at most, and most runs of the search for a shorter one.
const CALLS: u32 = 300;

/// Drives a policy with random calls from `seed`, small caches first, and checks the contract after
/// each. `make` makes a policy of a capacity; equal capacities must give equal policies.
///
/// # Errors
/// How the policy breaks the contract, with as few calls as were found to show it.
pub fn check(make: &dyn Fn(u32) -> Box<dyn Policy>, seed: u64) -> Result<(), Violation> {
    let mut random = SplitMix64::new(seed);
    for most in [3, 10, 40] {
        let capacity = 1 + random.below(most) as u32;
        let blocks = capacity + 1 + random.below(3 * u64::from(capacity)) as u32;
        let calls: Vec<_> = (0..CALLS).map(|_| call(&mut random, capacity, blocks)).collect();
        let run = |calls: &[Call]| run(make, capacity, blocks, calls);
        let Err((at, mut what)) = run(&calls) else { continue };
        // What happens without one of the calls: if the contract is broken still, it is left out.
        let mut calls = calls[..=at].to_vec();
        for left_out in (0..at).rev() {
            let mut fewer = calls.clone();
            fewer.remove(left_out);
            if let Err((at, why)) = run(&fewer) {
                fewer.truncate(at + 1);
                (calls, what) = (fewer, why);
            }
        }
        return Err(Violation { seed, capacity, calls, what });
    }
    Ok(())
}

fn call(random: &mut SplitMix64, capacity: u32, blocks: u32) -> Call {
    // Half of the calls are for few blocks, so that there are hits.
    let bound = if random.below(2) == 0 { blocks } else { blocks.min(capacity / 2 + 1) };
    let block = random.below(bound.into()) as Entry;
    match random.below(20) {
        0..=9 => Call::Access(block),
        10..=12 => Call::Place(block),
        13..=14 => Call::Take(block),
        15..=16 => Call::Note(block),
        17 => Call::Discard(block),
        18 if random.below(4) == 0 => {
            Call::Resize(1 + random.below(2 * u64::from(capacity)) as u32)
        }
        _ => Call::Access(block),
    }
}

/// The number of the first call that breaks the contract, and how.
fn run(
    make: &dyn Fn(u32) -> Box<dyn Policy>,
    capacity: u32,
    blocks: u32,
    calls: &[Call],
) -> Result<(), (usize, String)> {
    let made = || {
        let mut policy = make(capacity);
        policy.grow(blocks);
        policy
    };
    let (mut policy, mut twin) = (made(), made());
    let mut known = Known::of(policy.as_ref(), blocks).map_err(|what| (0, what))?;
    if !known.residents.is_empty() || policy.capacity() != capacity {
        let what = format!("a new policy holds {:?} of {}", known.residents, policy.capacity());
        return Err((0, what));
    }
    for (at, &call) in calls.iter().enumerate() {
        let step = || {
            let (now, out) = step(policy.as_mut(), blocks, call, &known)?;
            let mut again = Evictions::new();
            apply(twin.as_mut(), call, &mut again);
            if !again.iter().eq(out.iter()) {
                let all = |out: &Evictions| out.iter().collect::<Vec<_>>();
                let (one, other) = (all(&out), all(&again));
                return Err(format!("equal calls gave {one:?} once, and {other:?} once"));
            }
            Ok(now)
        };
        known = { step }().map_err(|what| (at, what))?;
    }
    Ok(())
}

/// Makes a call, if it may be made. Whether it was a hit.
fn apply(policy: &mut dyn Policy, call: Call, out: &mut Evictions) -> Option<bool> {
    match call {
        Call::Access(entry) => return Some(policy.access(entry, out)),
        Call::Place(entry) => policy.place(entry, out),
        Call::Take(entry) if policy.contains(entry) => policy.take(entry, out),
        Call::Note(entry) if !policy.contains(entry) => policy.note(entry, out),
        Call::Take(_) | Call::Note(_) => (),
        Call::Discard(entry) => policy.discard(entry, out),
        Call::Resize(capacity) => policy.resize(capacity, out),
    }
    None
}

/// Makes a call and checks its effects.
fn step(
    policy: &mut dyn Policy,
    blocks: u32,
    call: Call,
    before: &Known,
) -> Result<(Known, Evictions), String> {
    let victim = policy.victim();
    let has_room = before.residents.len() < policy.capacity() as usize;
    if has_room && victim.is_some() {
        return Err(format!("its victim is {victim:?}, while there is room"));
    }
    let mut out = Evictions::new();
    let hit = apply(policy, call, &mut out);
    let removed = match call {
        Call::Take(entry) | Call::Discard(entry) => Some(entry),
        _ => None,
    };
    let now = Known::of(policy, blocks)?;
    before.check_reports(&now, &out, removed)?;
    match call {
        Call::Access(entry) => {
            let was_resident = before.holds(entry);
            if hit != Some(was_resident) {
                return Err(format!("block {entry} was resident: {was_resident}, hit: {hit:?}"));
            }
            let evicted: Vec<_> = out.evicted().collect();
            if was_resident && !evicted.is_empty() {
                return Err(format!("a hit of block {entry} evicted {evicted:?}"));
            }
            let is_unknown = !was_resident && !before.remembers(entry);
            if is_unknown && evicted != Vec::from_iter(victim) {
                return Err(format!("its victim was {victim:?}, but it evicted {evicted:?}"));
            }
            must(now.holds(entry), entry, "is not resident after its access")?;
        }
        Call::Place(entry) => must(now.holds(entry), entry, "is not resident after its placement")?,
        Call::Take(entry) => must(!now.holds(entry), entry, "is resident after it was taken")?,
        Call::Note(entry) => {
            let is_equal = now.residents == before.residents;
            must(is_equal, entry, "was noted, and that changed what is resident")?;
        }
        Call::Discard(entry) => {
            let is_known = now.holds(entry) || now.remembers(entry);
            must(!is_known, entry, "is known after it was discarded")?;
        }
        Call::Resize(capacity) => {
            if policy.capacity() != capacity {
                return Err(format!("its capacity is {}, not {capacity}", policy.capacity()));
            }
        }
    }
    Ok((now, out))
}

fn must(holds: bool, entry: Entry, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("block {entry} {what}")) }
}
