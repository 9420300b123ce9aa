//! What the clients of a run asked and were answered, and what befell the servers meanwhile: all
//! that the checker goes by.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::disk::SECTOR;
use crate::report::Log;

/// A moment: of two events the later one has the larger number.
pub type Step = u64;

/// What a sector holds: the number of the operation that wrote it, what it promised, or zeroes.
pub type Value = u32;

pub const ZEROES: Value = 0;

/// Wrote everything before the run.
pub const INITIAL: Value = 1;

/// Values from here on are promised before their write is asked for.
const PROMISED: Value = 1 << 31;

/// What no operation ever wrote: made up by a client that lies, or torn within a sector.
pub const FORGED: Value = u32::MAX;

/// In place of what a sector holds: a request did not say.
pub const UNSEEN: Value = FORGED - 2;

/// A range of sectors of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub volume: usize,
    pub sectors: Range<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// With what it found, once it is answered.
    Read(Vec<Value>),
    Write,
    Zero,
    Trim,
    Flush,
    /// Nothing that the checker looks at.
    Other(&'static str),
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Done,
    /// The server said that it failed.
    Failed,
    /// The connection was lost first.
    Unknown,
}

#[derive(Clone, Debug)]
pub struct Operation {
    /// What it writes: its number, if nothing else was promised.
    pub value: Option<Value>,
    pub session: u32,
    pub place: Place,
    pub action: Action,
    pub durable: bool,
    pub call: Step,
    pub end: Option<(Step, End)>,
}

impl Operation {
    /// The sectors that it changes, or says something of.
    pub fn sees(&self) -> impl Iterator<Item = u64> {
        let found = match &self.action {
            Action::Read(found) => found.as_slice(),
            _ => &[],
        };
        let sectors = self.place.sectors.clone().enumerate();
        sectors.filter(|(at, _)| found.get(*at) != Some(&UNSEEN)).map(|(_, sector)| sector)
    }
}

/// What befell a volume as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// What was not made durable may be gone; requests that were not answered happened before, or
    /// never.
    Lost,
    /// What was only in the cache may be gone; what the disk had taken is as it was, durable or
    /// not.
    CacheLost,
    /// As `CacheLost` for these sectors; all others are as after an end that went well.
    LostWithin(Vec<Range<u64>>),
    /// Its server was killed, and what was answered is in the store.
    Killed,
    /// It was closed: everything is durable.
    Closed,
    /// The server below lost what was not made durable: blocks that are not written again go back
    /// in time, at some moment until the second event.
    LostBelow,
    /// The server below lost what was not made durable, and all that was answered is written again:
    /// only what was not, or what was answered before its server was killed, goes back.
    FailedLostBelow,
    NoMoreLostBelow,
}

/// Clones are the same.
#[derive(Clone)]
pub struct History(Arc<Mutex<State>>);

pub struct State {
    log: Log,
    step: Step,
    /// By number, which is the value that each writes.
    pub operations: BTreeMap<u32, Operation>,
    pub events: Vec<(Step, usize, Event)>,
    /// The sessions that have begun and not ended.
    open_sessions: BTreeMap<u32, usize>,
    /// Sessions that were open when something was lost below, and when: to be told.
    pub owed: Vec<(u32, Step)>,
    /// By level, which start its server had last, and until when changes may have been made
    /// durable by the FLUSH with which it began.
    started: BTreeMap<usize, (u64, Step)>,
    starts: u64,
    /// From when to when nobody had a right to a volume.
    pub shut: Vec<(usize, Step, Step)>,
    next_session: u32,
    next_operation: u32,
    next_promised: Value,
}

impl History {
    pub fn new(log: Log) -> History {
        History(Arc::new(Mutex::new(State {
            log,
            step: 0,
            operations: BTreeMap::new(),
            events: Vec::new(),
            open_sessions: BTreeMap::new(),
            owed: Vec::new(),
            started: BTreeMap::new(),
            starts: 0,
            shut: Vec::new(),
            next_session: 0,
            next_operation: INITIAL + 1,
            next_promised: PROMISED,
        })))
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn begin_session(&self, volume: usize) -> u32 {
        let mut state = self.lock();
        state.next_session += 1;
        let session = state.next_session;
        state.open_sessions.insert(session, volume);
        session
    }

    pub fn end_session(&self, session: u32) {
        self.lock().open_sessions.remove(&session);
    }

    /// An operation is about to be asked for: its number.
    pub fn call(&self, session: u32, place: Place, action: Action, durable: bool) -> u32 {
        self.call_for(session, place, action, durable, None)
    }

    /// As `call`, for a write of what was promised.
    pub fn call_for(
        &self,
        session: u32,
        place: Place,
        action: Action,
        durable: bool,
        value: Option<Value>,
    ) -> u32 {
        let mut state = self.lock();
        state.step += 1;
        let (number, call) = (state.next_operation, state.step);
        state.next_operation += 1;
        state.log.line(|| {
            let fua = if durable { " FUA" } else { "" };
            let of = value.map(|value| format!(" of {value}")).unwrap_or_default();
            let Place { volume, sectors } = &place;
            format!("s{session} #{number} {action:?}{of}{fua} v{volume} {sectors:?}")
        });
        let operation = Operation { value, session, place, action, durable, call, end: None };
        state.operations.insert(number, operation);
        number
    }

    /// A value that a write will have which is not asked for yet, if it ever is.
    pub fn promise(&self) -> Value {
        let mut state = self.lock();
        state.next_promised += 1;
        state.next_promised
    }

    /// It was answered, with what a read found.
    pub fn end(&self, number: u32, end: End, found: Vec<Value>) {
        let mut state = self.lock();
        state.step += 1;
        let step = state.step;
        state.log.line(|| format!("   #{number} {end:?} {}", short(&found)));
        if let Some(operation) = state.operations.get_mut(&number) {
            operation.end = Some((step, end));
            if let Action::Read(values) = &mut operation.action {
                *values = found;
            }
        }
    }

    pub fn event(&self, volume: usize, event: Event) {
        let mut state = self.lock();
        state.step += 1;
        let step = state.step;
        state.log.line(|| format!("== v{volume} {event:?}"));
        state.events.push((step, volume, event));
    }

    /// Values of sectors of a volume were lost by the server of a level and those below it, or
    /// nobody knows which. If any of them was answered and not flushed, the sessions of the volume
    /// have to hear of it.
    pub fn owe(&self, volume: usize, level: usize, lost: Option<&[(u64, Value)]>) {
        let mut state = self.lock();
        let saves_until = |o: &Operation| match (lost.is_some(), o.end) {
            (true, Some((_, End::Done))) => o.call,
            (true, _) => 0,
            // If what was lost is not known, it may be what a FLUSH saved while it was under way.
            (false, Some((end, End::Done | End::Failed))) => end,
            (false, _) => Step::MAX,
        };
        let of_volume = state.operations.iter().filter(|(_, o)| o.place.volume == volume);
        let flushes = of_volume.clone().filter(|(_, o)| o.action == Action::Flush);
        let saved = |(step, of, event): &(Step, usize, Event)| {
            let was_saved = match event {
                // What is left after a power cut is durable.
                Event::Closed | Event::Lost => true,
                // The servers were asked to flush then.
                Event::NoMoreLostBelow => lost.is_none(),
                _ => false,
            };
            (*of == volume && was_saved).then_some(*step)
        };
        let ends = state.events.iter().filter_map(saved);
        let above = state.started.range(..level).map(|(_, (_, step))| *step);
        let started = above.max().filter(|_| lost.is_none());
        let flushed = flushes.map(|(_, o)| saves_until(o)).chain(ends).chain(started);
        let flushed = flushed.max().unwrap_or(0);
        let is_lost = of_volume.filter(|(_, o)| !o.durable).any(|(number, o)| {
            let was_answered = o.end.is_some_and(|(step, end)| end == End::Done && step > flushed);
            was_answered
                && match (lost, &o.action) {
                    (Some(lost), Action::Write) => {
                        let own = o.value.unwrap_or(*number);
                        lost.iter().any(|(s, value)| *value == own && o.place.sectors.contains(s))
                    }
                    (None, Action::Write | Action::Zero) => {
                        state.open_sessions.contains_key(&o.session)
                    }
                    _ => false,
                }
        });
        let (step, open) = (state.step, state.open_sessions.clone());
        if is_lost {
            state.log.line(|| format!("== v{volume}: all sessions have to hear of a loss"));
            let of_volume = open.into_iter().filter(|(_, of)| *of == volume);
            state.owed.extend(of_volume.map(|(session, _)| (session, step)));
        }
    }

    pub fn now(&self) -> Step {
        self.lock().step
    }

    /// The servers of these levels are started, and flush what is there: the number of this start.
    pub fn start(&self, levels: Range<usize>) -> u64 {
        let mut state = self.lock();
        state.starts += 1;
        let number = state.starts;
        state.started.extend(levels.map(|level| (level, (number, Step::MAX))));
        number
    }

    /// The servers of this start have flushed, but those that were started again.
    pub fn has_started(&self, number: u64) {
        let mut state = self.lock();
        let step = state.step;
        let of_start = state.started.values_mut().filter(|(start, _)| *start == number);
        of_start.for_each(|(_, until)| *until = step);
    }

    /// Nobody had a right to a volume from then until now.
    pub fn was_shut(&self, volume: usize, from: Step) {
        let mut state = self.lock();
        let now = state.step;
        state.shut.push((volume, from, now));
    }

    /// The operations of sessions that are open that were not answered so far.
    pub fn unanswered(&self, volume: usize) -> Vec<u32> {
        let state = self.lock();
        let open = |o: &Operation| state.open_sessions.contains_key(&o.session);
        let waits = |o: &Operation| o.place.volume == volume && o.end.is_none() && open(o);
        let all = state.operations.iter().filter(|(_, o)| waits(o));
        all.map(|(number, _)| *number).collect()
    }

    /// Operations that were asked for so far.
    pub fn requests(&self) -> u64 {
        u64::from(self.lock().next_operation - INITIAL - 1)
    }
}

/// Runs of equal values.
fn short(found: &[Value]) -> String {
    let runs = found.chunk_by(|a, b| a == b);
    runs.map(|run| format!("{}x{} ", run[0], run.len())).collect()
}

/// The bytes that an operation writes: each sector says who wrote it, and where it is.
pub fn contents(value: Value, sectors: Range<u64>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(((sectors.end - sectors.start) * SECTOR) as usize);
    for sector in sectors {
        let mut word = [0; 16];
        word[..4].copy_from_slice(&value.to_le_bytes());
        word[4..12].copy_from_slice(&sector.to_le_bytes());
        word[12..].copy_from_slice(&(value ^ 0x5a5a_5a5a).to_le_bytes());
        (0..SECTOR / 16).for_each(|_| bytes.extend_from_slice(&word));
    }
    bytes
}

/// Who wrote each sector.
pub fn values(bytes: &[u8], first: u64) -> Vec<Value> {
    let sectors = bytes.chunks(SECTOR as usize).zip(first..);
    let value = |(bytes, sector): (&[u8], u64)| {
        if bytes.iter().all(|&byte| byte == 0) {
            return ZEROES;
        }
        let value = Value::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let is_whole = value != ZEROES && bytes == contents(value, sector..sector + 1);
        if is_whole { value } else { FORGED }
    };
    sectors.map(value).collect()
}
