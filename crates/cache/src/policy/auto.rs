//! AUTO: several policies run side by side without data, and vote on what the cache keeps. The more
//! read hits a policy would have had of late, the more its vote counts.
//!
//! Each member is an ordinary policy of the same capacity over the same entries. It sees every
//! call, so its history is always complete. A member votes for the entries that it holds. When room
//! is needed, the resident entries with the fewest votes leave first. So while one vote outweighs
//! the others together, the cache keeps what that member keeps; while several members are about
//! equally good, it keeps what most of them keep.
//!
//! Residents are in one list for each set of members, that of the members that hold them, in the
//! order in which they came into it.
//!
//! Invariants: at most `capacity` entries are resident; a resident entry is in the list of exactly
//! the members that hold it; no other entry is in a list.

use super::registry::{Context, Kind, Parameter, PolicyInfo, Spec};
use super::{Entry, EvictionKind, Evictions, Policy};
use crate::lists::Lists;
use crate::snapshot::{CLOCK_MAX, Snapshot, SnapshotError};

pub(super) const INFO: PolicyInfo = PolicyInfo {
    name: "auto",
    aliases: &[],
    summary: "keeps what LIRS, LFU, FBR, MQ, S3-FIFO and W-TinyLFU would keep, by weighted vote",
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
            kind: Kind::Real(0.0001, 1.0),
            default: "0.005",
            help: "hits behind the best by which a vote falls to 37 %, times the capacity",
        },
        Parameter {
            name: "head",
            kind: Kind::Real(0.0, 1.0),
            default: "0.01",
            help: "hits by which LIRS is ahead at the start, times the capacity",
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
                "fbr" => format!("{name},{FBR}"),
                "w-tinylfu" => format!("{name},sketch={sketch}"),
                _ => name.into(),
            };
            Spec::parse(&text)?.build(&Context::new(context.capacity))
        };
        let policies = MEMBERS.iter().map(member).collect::<Result<Vec<_>, _>>()?;
        let member = |policy| Member { policy, score: 0.0, vote: 0.0 };
        let mut auto = Auto {
            capacity: context.capacity,
            memory: arguments.real("memory"),
            margin: arguments.real("margin"),
            members: policies.into_iter().map(member).collect(),
            since_review: 0,
            keeps: false,
            held: 0,
            order: std::array::from_fn(|holders| holders as Holders),
            entries: Lists::new(SETS as u32),
            changes: Evictions::new(),
            gone: Vec::new(),
        };
        auto.members[0].score = arguments.real("head") * f64::from(context.capacity);
        auto.vote();
        Ok(Box::new(auto))
    },
};

/// The members; of two that are equal, the vote of the earlier one counts more.
const MEMBERS: [&str; 6] = ["lirs", "lfu", "fbr", "mq", "s3-fifo", "w-tinylfu"];

/// The sections of the member FBR.
const FBR: &str = "new=0.3,old=0.25";

/// The share of its vote that the second member has less if it is equal to the first, the third
/// than the second, and so on. It decides ties.
const LATER: f64 = 1.0 / 1024.0;

/// Reviews for each `capacity` references.
const REVIEWS: u32 = 8;

/// A set of members: member i is in it if bit i is set. The number of the list of its entries.
type Holders = u8;

/// The set of all members.
const ALL: Holders = (1 << MEMBERS.len()) - 1;

/// Number of sets of members.
const SETS: usize = 1 << MEMBERS.len();

#[derive(Clone, Debug)]
struct Member {
    policy: Box<dyn Policy>,
    /// Its read hits, older ones counting less.
    score: f64,
    /// What its vote counted at the last review, from 0 to 1.
    vote: f64,
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
    /// References since the last review.
    since_review: u32,
    /// Whether a block stayed at the last hit that placed nothing: what a member's hits do.
    keeps: bool,
    held: u32,
    /// All sets of members, those whose votes count least together first.
    order: [Holders; SETS],
    /// A list of residents for each set of members; with each resident, the members that hold it.
    entries: Lists<Holders>,
    /// What one member reported.
    changes: Evictions,
    /// The entries that any member, or the cache, let go in this call.
    gone: Vec<Entry>,
}

impl Auto {
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
            if change.kind != EvictionKind::Forgotten && self.entries.linked(entry) {
                let holders = self.entries.data(entry);
                self.entries.remove(holders.into(), entry);
                push(&mut self.entries, holders & !(1 << number), entry);
            }
            self.gone.push(entry);
        }
        self.changes.clear();
    }

    /// A reference, by all members.
    #[inline(always)]
    fn refer(&mut self, entry: Entry, way: Way) {
        let keeps = self.keeps;
        self.each(|Member { policy, score, .. }, changes| {
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

    /// Makes an entry resident that all members hold now.
    #[inline(always)]
    fn hold(&mut self, entry: Entry) {
        self.release(entry);
        push(&mut self.entries, ALL, entry);
        self.held += 1;
    }

    /// Makes an entry non-resident.
    fn release(&mut self, entry: Entry) {
        if self.contains(entry) {
            self.entries.remove(self.entries.data(entry).into(), entry);
            self.held -= 1;
        }
    }

    /// The end of each call: evicts what is too much, reports what nobody remembers any more, and
    /// reviews the votes now and then.
    #[inline(always)]
    fn end(&mut self, out: &mut Evictions) {
        while self.held > self.capacity {
            let Some(entry) = self.least_wanted(&[]) else { break };
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

    /// The resident with the fewest votes, and of equals the one that has had these holders for
    /// longest, after these residents have got these holders, one after the other.
    fn least_wanted(&self, moved: &[(Entry, Holders)]) -> Option<Entry> {
        let stays = |entry: &Entry| !moved.iter().any(|(other, _)| other == entry);
        let comes = |holders| moved.iter().find(|other| other.1 == holders).map(|other| other.0);
        let first = |&holders: &Holders| {
            self.entries.iter(holders.into()).find(stays).or_else(|| comes(holders))
        };
        self.order.iter().find_map(first)
    }

    /// What the votes of these members count together.
    fn votes(&self, holders: Holders) -> f64 {
        let all = self.members.iter().enumerate();
        all.filter(|(number, _)| holders >> number & 1 == 1).map(|(_, member)| member.vote).sum()
    }

    /// References between two reviews.
    #[inline(always)]
    fn period(&self) -> u32 {
        (self.capacity / REVIEWS).max(1)
    }

    /// Counts the votes anew, and lets the scores fade.
    #[cold]
    fn review(&mut self) {
        self.vote();
        let age = f64::from(self.since_review) / f64::from(self.capacity);
        let fade = self.memory / (self.memory + std::f64::consts::LN_2 * age);
        self.members.iter_mut().for_each(|member| member.score *= fade);
        self.since_review = 0;
    }

    /// Sets what each vote counts, by the scores.
    fn vote(&mut self) {
        let best = self.members.iter().fold(0.0, |best, member| member.score.max(best));
        let unit = self.margin * f64::from(self.capacity);
        for (number, member) in (0u8..).zip(&mut self.members) {
            let tie = 1.0 - LATER * f64::from(number);
            member.vote = falling((best - member.score) / unit) * tie;
        }
        self.rank();
    }

    /// Puts the sets of members into the order of their votes.
    fn rank(&mut self) {
        let mut order = self.order;
        order.sort_unstable_by(|&one, &other| {
            self.votes(one).total_cmp(&self.votes(other)).then(one.cmp(&other))
        });
        self.order = order;
    }
}

/// Appends an entry to the list of its holders.
#[inline(always)]
fn push(entries: &mut Lists<Holders>, holders: Holders, entry: Entry) {
    entries.push_back(holders.into(), entry);
    *entries.data_mut(entry) = holders;
}

/// Nearly e to the power of -x, for x from 0 on. Made of operations whose results are the same on
/// every machine.
fn falling(x: f64) -> f64 {
    (0..10).fold(1.0 / (1.0 + x / 1024.0), |power, _| power * power)
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
        self.entries.linked(entry)
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
        self.entries.move_to_back(self.entries.data(entry).into(), entry);
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

    fn residents(&self) -> Vec<Entry> {
        (0..self.entries.count()).flat_map(|list| self.entries.iter(list)).collect()
    }

    /// Each member loses its own victim first.
    fn victim(&self) -> Option<Entry> {
        if self.held < self.capacity {
            return None;
        }
        let mut moved: Vec<(Entry, Holders)> = Vec::new();
        for (number, member) in self.members.iter().enumerate() {
            let Some(entry) = member.policy.victim().filter(|&e| self.contains(e)) else {
                continue;
            };
            let at = moved.iter().position(|other| other.0 == entry);
            let holders = at.map_or(self.entries.data(entry), |at| moved.remove(at).1);
            moved.push((entry, holders & !(1 << number)));
        }
        self.least_wanted(&moved)
    }

    fn remembers(&self, entry: Entry) -> bool {
        let knows =
            |member: &Member| member.policy.contains(entry) || member.policy.remembers(entry);
        !self.contains(entry) && self.members.iter().any(knows)
    }

    /// The member whose vote counts most.
    fn leader(&self) -> Option<&'static str> {
        let votes = self.members.iter().zip(MEMBERS);
        votes.max_by(|one, other| one.0.vote.total_cmp(&other.0.vote)).map(|(_, name)| name)
    }

    #[inline(always)]
    fn prefetch(&self, entry: Entry) -> u32 {
        let node = self.entries.prefetch(entry);
        self.members.iter().fold(node, |x, member| x ^ member.policy.prefetch(entry))
    }

    fn names(&mut self) -> Option<&mut Vec<u64>> {
        self.members.iter_mut().find_map(|member| member.policy.names())
    }

    fn save_load(&mut self, snapshot: &mut Snapshot<'_>) -> Result<(), SnapshotError> {
        for member in &mut self.members {
            member.policy.save_load(snapshot)?;
            snapshot.real(&mut member.score, 0.0..=CLOCK_MAX as f64)?;
            snapshot.real(&mut member.vote, 0.0..=1.0)?;
            snapshot.list_again();
        }
        self.rank();
        let period = self.period();
        snapshot.number(&mut self.since_review, 0..=period - 1)?;
        snapshot.flag(&mut self.keeps)?;
        let saved = self.residents().into_iter().map(|entry| (entry, self.entries.data(entry)));
        let known =
            |snapshot: &mut Snapshot<'_>, holders: &mut Holders| snapshot.number(holders, 0..=ALL);
        for (entry, holders) in snapshot.entries_with(self.held, saved, known)? {
            push(&mut self.entries, holders, entry);
            self.held += 1;
        }
        Ok(())
    }

    fn validate(&self) -> Result<(), String> {
        self.members.iter().try_for_each(|member| member.policy.validate())?;
        self.entries.check()?;
        if self.held > self.capacity {
            return Err(format!("{} resident, capacity {}", self.held, self.capacity));
        }
        let residents = self.residents();
        if residents.len() != self.held as usize {
            return Err(format!("{} resident, {} counted", residents.len(), self.held));
        }
        let holds = |number: usize, entry| self.members[number].policy.contains(entry);
        let is_right = |&entry: &Entry| {
            let holders = self.entries.data(entry);
            (0..MEMBERS.len()).all(|number| holds(number, entry) == (holders >> number & 1 == 1))
        };
        let wrong = residents.into_iter().find(|entry| !is_right(entry));
        wrong.map_or(Ok(()), |entry| {
            Err(format!("entry {entry}: others hold it than its list says"))
        })
    }
}
