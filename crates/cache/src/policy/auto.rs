//! AUTO: several policies run side by side without data, and the cache keeps what the best of
//! them, the leader, would keep. Which one leads follows the read hits that each would have had.
//!
//! Each member is an ordinary policy of the same capacity over the same entries. It sees every
//! call, so its history is complete when it comes to lead. A change of the leader evicts nothing:
//! the residents that the new leader would not hold are the surplus. They leave first when room is
//! needed, the least recently used one before the others.
//!
//! Invariants: `held` entries are resident, at most `capacity`; a resident entry is in the surplus
//! exactly if the leader does not hold it; no other entry is.

use super::registry::{Context, Kind, Parameter, PolicyInfo, Spec};
use super::{Entry, EvictionKind, Evictions, Policy};
use crate::lists::Lists;
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "auto",
    aliases: &[],
    summary: "does what the best of LIRS, LFU, FBR, MQ, S3-FIFO and W-TinyLFU would do",
    source: "ours",
    parameters: &[
        Parameter {
            name: "memory",
            kind: Kind::Real(0.25, 1000.0),
            default: "16",
            help: "references after which a hit counts half, times the capacity",
        },
        Parameter {
            name: "margin",
            kind: Kind::Real(0.0, 1.0),
            default: "0.005",
            help: "hits by which another policy must be ahead to lead, times the capacity",
        },
        Parameter {
            name: "sketch",
            kind: Kind::Word(&["countmin", "exact"]),
            default: "countmin",
            help: "sketch of W-TinyLFU",
        },
    ],
    build: |arguments, context| {
        let sketch = arguments.word("sketch");
        let member = |&name: &&str| {
            let text = match name {
                "w-tinylfu" => format!("{name},sketch={sketch}"),
                _ => name.into(),
            };
            Spec::parse(&text)?.build(&Context::new(context.capacity))
        };
        let policies = MEMBERS.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        let members = policies.into_iter().map(|policy| Member { policy, score: 0.0 }).collect();
        Ok(Box::new(Auto {
            capacity: context.capacity,
            memory: arguments.real("memory"),
            margin: arguments.real("margin"),
            members,
            leader: 0,
            since_review: 0,
            keeps: false,
            held: 0,
            now: 0,
            entries: Lists::new(1),
            changes: Evictions::new(),
            gone: Vec::new(),
        }))
    },
};

/// The members. The first leads at the beginning, and the earlier one of two that are equal. No
/// other six are within 0.3 points of the best policy of the registry on as many of the recorded
/// streams and sizes.
const MEMBERS: [&str; 6] = ["lirs", "lfu", "fbr", "mq", "s3-fifo", "w-tinylfu"];

/// Reviews for each `capacity` references.
const REVIEWS: u32 = 8;

/// The list of residents that the leader does not hold, in the order in which they leave.
const SURPLUS: u32 = 0;

#[derive(Clone, Debug)]
struct Member {
    policy: Box<dyn Policy>,
    /// Its read hits, older ones counting less.
    score: f64,
}

/// How the cache serves a reference.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    /// A read of a block that is resident afterwards.
    Read,
    /// A write of a block that is resident afterwards.
    Write,
    /// A read that places nothing.
    Around,
}

#[derive(Clone, Debug)]
struct Auto {
    capacity: u32,
    memory: f64,
    margin: f64,
    members: Vec<Member>,
    leader: usize,
    /// References since the last review.
    since_review: u32,
    /// Whether a block stayed at the last hit that placed nothing: what a member's hits do.
    keeps: bool,
    held: u32,
    /// When each resident was last used, by `now`, which is above 0; 0 for other entries. And the
    /// surplus.
    entries: Lists<u64>,
    /// References and placements so far.
    now: u64,
    /// What one member reported.
    changes: Evictions,
    /// The entries that any member, or the cache, let go in this call.
    gone: Vec<Entry>,
}

impl Auto {
    fn led(&self) -> &dyn Policy {
        self.members[self.leader].policy.as_ref()
    }

    /// Makes a call to each member, and takes over what it reports.
    #[inline(always)]
    fn each(&mut self, mut call: impl FnMut(&mut Member, &mut Evictions)) {
        for number in 0..self.members.len() {
            call(&mut self.members[number], &mut self.changes);
            if !self.changes.is_empty() {
                self.take_over(number);
            }
        }
    }

    fn take_over(&mut self, number: usize) {
        for change in self.changes.iter() {
            let entry = change.entry;
            let is_evicted = change.kind != EvictionKind::Forgotten;
            if number == self.leader && is_evicted && self.is_led(entry) {
                self.entries.push_back(SURPLUS, entry);
            }
            self.gone.push(entry);
        }
        self.changes.clear();
    }

    /// Whether an entry is resident and no surplus.
    fn is_led(&self, entry: Entry) -> bool {
        self.contains(entry) && !self.entries.linked(entry)
    }

    /// A reference, by all members.
    #[inline(always)]
    fn refer(&mut self, entry: Entry, way: Way) {
        let keeps = self.keeps;
        self.each(|Member { policy, score }, changes| {
            let hit = match way {
                Way::Read | Way::Write => policy.access(entry, changes),
                Way::Around => {
                    let hit = policy.contains(entry);
                    match (hit, keeps) {
                        (false, _) => policy.note(entry, changes),
                        (true, false) => policy.take(entry, changes),
                        (true, true) => policy.touch(entry, changes),
                    }
                    hit
                }
            };
            *score += f64::from(u8::from(hit && way != Way::Write));
        });
        self.since_review += 1;
    }

    /// A reference that makes the entry resident. True on a hit.
    #[inline(always)]
    fn admit_by(&mut self, entry: Entry, way: Way, out: &mut Evictions) -> bool {
        let hit = self.contains(entry);
        self.refer(entry, way);
        self.hold(entry);
        self.end(out);
        hit
    }

    /// Notes that a resident entry is used.
    #[inline(always)]
    fn renew(&mut self, entry: Entry) {
        self.now += 1;
        *self.entries.data_mut(entry) = self.now;
    }

    /// Makes an entry resident that the leader holds now.
    #[inline(always)]
    fn hold(&mut self, entry: Entry) {
        let is_new = !self.contains(entry);
        self.renew(entry);
        if is_new {
            self.held += 1;
        } else if self.entries.linked(entry) {
            self.entries.remove(SURPLUS, entry);
        }
    }

    /// Makes an entry non-resident.
    fn release(&mut self, entry: Entry) {
        if self.entries.linked(entry) {
            self.entries.remove(SURPLUS, entry);
        }
        self.held -= u32::from(std::mem::take(self.entries.data_mut(entry)) > 0);
    }

    /// The end of each call: evicts surplus if there is too much, reports what nobody remembers any
    /// more, and reviews the leader now and then.
    #[inline(always)]
    fn end(&mut self, out: &mut Evictions) {
        while self.held > self.capacity {
            let Some(entry) = self.entries.front(SURPLUS) else { break };
            self.release(entry);
            out.push(entry, EvictionKind::Remembered);
            self.gone.push(entry);
        }
        if !self.gone.is_empty() {
            self.forget(out);
        }
        if self.since_review >= self.period() {
            self.review();
        }
    }

    fn forget(&mut self, out: &mut Evictions) {
        let mut gone = std::mem::take(&mut self.gone);
        gone.sort_unstable();
        gone.dedup();
        for &entry in &gone {
            if !self.contains(entry) && !self.remembers(entry) {
                out.push(entry, EvictionKind::Forgotten);
            }
        }
        gone.clear();
        self.gone = gone;
    }

    /// References between two reviews.
    #[inline(always)]
    fn period(&self) -> u32 {
        (self.capacity / REVIEWS).max(1)
    }

    /// Gives the lead to the member with the highest score, if that is ahead by the margin, and
    /// lets the scores fade.
    #[cold]
    fn review(&mut self) {
        let score = |number: usize| self.members[number].score;
        let ahead = |best, other| if score(other) > score(best) { other } else { best };
        let best = (0..self.members.len()).fold(0, ahead);
        if score(best) > score(self.leader) + self.margin * f64::from(self.capacity) {
            self.lead(best);
        }
        let age = f64::from(self.since_review) / f64::from(self.capacity);
        let fade = self.memory / (self.memory + std::f64::consts::LN_2 * age);
        self.members.iter_mut().for_each(|member| member.score *= fade);
        self.since_review = 0;
    }

    /// Makes a member the leader, and finds the surplus anew.
    fn lead(&mut self, leader: usize) {
        let mut residents = self.residents();
        residents.sort_unstable_by_key(|&entry| self.entries.data(entry));
        self.leader = leader;
        for entry in residents {
            if self.entries.linked(entry) {
                self.entries.remove(SURPLUS, entry);
            }
            if !self.led().contains(entry) {
                self.entries.push_back(SURPLUS, entry);
            }
        }
    }

    fn surplus(&self) -> impl Iterator<Item = Entry> + '_ {
        std::iter::successors(self.entries.front(SURPLUS), |&entry| self.entries.next(entry))
    }
}

impl Policy for Auto {
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline(always)]
    fn len(&self) -> u32 {
        self.held
    }

    fn grow(&mut self, entries: u32) {
        self.entries.grow(entries);
        self.members.iter_mut().for_each(|member| member.policy.grow(entries));
    }

    #[inline(always)]
    fn contains(&self, entry: Entry) -> bool {
        self.entries.data(entry) > 0
    }

    fn access(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        self.admit_by(entry, Way::Read, out)
    }

    fn write(&mut self, entry: Entry, out: &mut Evictions) -> bool {
        self.admit_by(entry, Way::Write, out)
    }

    fn admit(&mut self, entry: Entry, out: &mut Evictions) {
        self.admit_by(entry, Way::Read, out);
    }

    /// A hit that places nothing: the block was placed when a level above evicted it.
    fn touch(&mut self, entry: Entry, out: &mut Evictions) {
        self.keeps = true;
        self.renew(entry);
        self.refer(entry, Way::Around);
        self.end(out);
    }

    fn take(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            return;
        }
        self.keeps = false;
        self.release(entry);
        self.refer(entry, Way::Around);
        self.end(out);
    }

    fn note(&mut self, entry: Entry, out: &mut Evictions) {
        if !self.contains(entry) {
            self.refer(entry, Way::Around);
            self.end(out);
        }
    }

    fn place(&mut self, entry: Entry, out: &mut Evictions) {
        self.each(|member, changes| member.policy.place(entry, changes));
        self.hold(entry);
        self.end(out);
    }

    fn discard(&mut self, entry: Entry, out: &mut Evictions) {
        self.release(entry);
        self.each(|member, changes| member.policy.discard(entry, changes));
        self.end(out);
    }

    fn resize(&mut self, capacity: u32, out: &mut Evictions) {
        self.capacity = capacity;
        self.each(|member, changes| member.policy.resize(capacity, changes));
        self.end(out);
    }

    /// The surplus, then the others in the leader's order.
    fn residents(&self) -> Vec<Entry> {
        let led = self.led().residents().into_iter().filter(|&entry| self.contains(entry));
        self.surplus().chain(led).collect()
    }

    /// Without surplus, a full cache holds what its leader holds.
    fn victim(&self) -> Option<Entry> {
        if self.held < self.capacity {
            return None;
        }
        self.entries.front(SURPLUS).or_else(|| self.led().victim())
    }

    fn remembers(&self, entry: Entry) -> bool {
        let knows =
            |member: &Member| member.policy.contains(entry) || member.policy.remembers(entry);
        !self.contains(entry) && self.members.iter().any(knows)
    }

    fn leader(&self) -> Option<&'static str> {
        Some(MEMBERS[self.leader])
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        let place = self.entries.data(entry) as u32;
        self.members.iter().fold(place, |x, member| x ^ member.policy.prefetch(entry))
    }

    fn names(&mut self) -> Option<&mut Vec<u64>> {
        self.members.iter_mut().find_map(|member| member.policy.names())
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        for member in &mut self.members {
            member.policy.save_load(snapshot)?;
            snapshot.real(&mut member.score, 0.0..=CLOCK_MAX as f64)?;
            snapshot.list_again();
        }
        let mut leader = self.leader as u32;
        snapshot.number(&mut leader, 0..=self.members.len() as u32 - 1)?;
        self.leader = leader as usize;
        let period = self.period();
        snapshot.number(&mut self.since_review, 0..=period - 1)?;
        snapshot.flag(&mut self.keeps)?;
        let mut surplus = self.entries.len(SURPLUS);
        snapshot.number(&mut surplus, 0..=self.capacity)?;
        snapshot.clock(&mut self.now)?;
        let now = self.now;
        let saved = self.residents().into_iter().map(|entry| (entry, self.entries.data(entry)));
        let used = |snapshot: &mut Snapshot<'_>, at: &mut u64| snapshot.number(at, 1..=now.max(1));
        let residents = snapshot.entries_with(self.held, saved, used)?;
        for (number, (entry, used)) in (0..).zip(residents) {
            *self.entries.data_mut(entry) = used;
            self.held += 1;
            if number < surplus {
                self.entries.push_back(SURPLUS, entry);
            }
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        self.members.iter().try_for_each(|member| member.policy.validate())?;
        self.entries.check()?;
        if self.held > self.capacity {
            return Err(format!("{} resident, capacity {}", self.held, self.capacity));
        }
        let all = 0..self.entries.entries();
        let residents = all.clone().filter(|&entry| self.contains(entry)).count();
        if residents != self.held as usize {
            return Err(format!("{residents} resident, {} counted", self.held));
        }
        let is_right = |&entry: &Entry| {
            let is_surplus = self.contains(entry) && !self.led().contains(entry);
            self.entries.linked(entry) == is_surplus
        };
        let wrong = all.into_iter().find(|entry| !is_right(entry));
        wrong.map_or(Ok(()), |entry| Err(format!("entry {entry}: surplus, or not, by mistake")))
    }
}
