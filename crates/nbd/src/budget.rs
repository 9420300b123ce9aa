//! Limits the memory that clients may hold: one limit for all connections of a server together, and
//! one for the connections of each export. Bytes are reserved before the memory is allocated, and
//! released when it is freed.
//!
//! A connection that finds no room waits in a queue. Nobody overtakes a connection that waits for
//! the same room, so a large request gets its turn. A connection that waits for the room of another
//! export does not block others. A request that exceeds a limit by itself is admitted when nothing
//! else is reserved.
//!
//! Not here: how much a request is charged (`server/offer.rs`), and the limit of one connection
//! (`server/transmission.rs`).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::time::Instant;

/// Bytes reserved at a time, if there is room, so that most batches of requests take the lock once.
const AT_A_TIME: u64 = 256 << 10;

/// The limits, and the bytes reserved.
#[derive(Debug)]
pub(crate) struct Budget {
    /// The limit of an export.
    each: u64,
    state: Mutex<State>,
    next_id: AtomicU64,
}

#[derive(Debug)]
struct State {
    total: Room,
    /// Entries are reused after their last connection has gone.
    exports: Vec<Export>,
    line: VecDeque<Waiter>,
}

/// A limit, and what is used of it.
#[derive(Debug)]
struct Room {
    limit: u64,
    used: u64,
}

impl Room {
    fn fits(&self, bytes: u64) -> bool {
        self.used == 0 || self.used.saturating_add(bytes) <= self.limit
    }
}

#[derive(Debug)]
struct Export {
    name: String,
    connections: usize,
    room: Room,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    export: usize,
    bytes: u64,
    since: Instant,
    granted: Arc<AtomicU64>,
    waker: Waker,
}

/// The reservations of a connection. Requests may outlive their connection; they then keep the
/// share until they end.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    export: usize,
    id: u64,
    /// Bytes that it waited for and that were granted.
    granted: Arc<AtomicU64>,
}

impl Budget {
    /// A budget of `total` bytes for the server, and `each` bytes for every export.
    pub(crate) fn new(total: u64, each: u64) -> Arc<Budget> {
        let total = Room { limit: total, used: 0 };
        let state = State { total, exports: Vec::new(), line: VecDeque::new() };
        Arc::new(Budget { each, state: Mutex::new(state), next_id: AtomicU64::new(0) })
    }

    /// A poisoned lock is sound: nothing that runs under it panics half-way.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The share of one more connection to an export.
    pub(crate) fn share(self: &Arc<Budget>, export: &str) -> Share {
        let exports = &mut self.state().exports;
        let same = exports.iter().position(|e| e.connections > 0 && e.name == export);
        let place =
            same.or_else(|| exports.iter().position(|e| e.connections == 0 && e.room.used == 0));
        let place = place.unwrap_or_else(|| {
            let room = Room { limit: self.each, used: 0 };
            exports.push(Export { name: String::new(), connections: 0, room });
            exports.len() - 1
        });
        exports[place].connections += 1;
        if same.is_none() {
            exports[place].name = export.to_owned();
        }
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Share { budget: Arc::clone(self), export: place, id, granted: Arc::default() }
    }

    /// Bytes reserved now, for all exports.
    pub(crate) fn used(&self) -> u64 {
        self.state().total.used
    }
}

impl State {
    /// Reserves bytes, if there is room and nobody waits for it.
    fn reserve(&mut self, export: usize, bytes: u64) -> bool {
        let in_front = |w: &Waiter| w.export == export || !self.total.fits(w.bytes);
        let is_free = self.total.fits(bytes)
            && self.exports[export].room.fits(bytes)
            && !self.line.iter().any(in_front);
        if is_free {
            self.total.used += bytes;
            self.exports[export].room.used += bytes;
        }
        is_free
    }
}

/// Grants room to waiting connections, in order, and wakes them.
fn serve_line(mut guard: MutexGuard<'_, State>) {
    let state = &mut *guard;
    let (mut still, mut served) = (VecDeque::new(), Vec::new());
    let mut full_exports = Vec::new();
    let mut line = std::mem::take(&mut state.line).into_iter();
    for waiter in line.by_ref() {
        if !state.total.fits(waiter.bytes) {
            still.push_back(waiter);
            break;
        }
        let room = &mut state.exports[waiter.export].room;
        if full_exports.contains(&waiter.export) || !room.fits(waiter.bytes) {
            full_exports.push(waiter.export);
            still.push_back(waiter);
            continue;
        }
        room.used += waiter.bytes;
        state.total.used += waiter.bytes;
        waiter.granted.fetch_add(waiter.bytes, Ordering::SeqCst);
        served.push(waiter.waker);
    }
    still.extend(line);
    state.line = still;
    drop(guard);
    served.into_iter().for_each(Waker::wake);
}

impl Share {
    /// Reserves at least `bytes` bytes. Returns how many, or `None` if there is no room now.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<u64> {
        let mut state = self.budget.state();
        [bytes.max(AT_A_TIME), bytes].into_iter().find(|&bytes| state.reserve(self.export, bytes))
    }

    /// Waits for bytes in the queue. Returns true if they have been granted. A connection that
    /// waits already keeps its place.
    pub(crate) fn wait(&self, bytes: u64, waker: &Waker) -> bool {
        let mut state = self.budget.state();
        if self.granted.load(Ordering::SeqCst) > 0 {
            return true;
        }
        if let Some(waiter) = state.line.iter_mut().find(|waiter| waiter.id == self.id) {
            waiter.waker.clone_from(waker);
            return false;
        }
        let (id, export) = (self.id, self.export);
        if state.reserve(export, bytes) {
            self.granted.fetch_add(bytes, Ordering::SeqCst);
            return true;
        }
        let (since, granted, waker) = (Instant::now(), Arc::clone(&self.granted), waker.clone());
        state.line.push_back(Waiter { id, export, bytes, since, granted, waker });
        false
    }

    /// Bytes granted since the last call.
    pub(crate) fn granted(&self) -> u64 {
        self.granted.swap(0, Ordering::SeqCst)
    }

    /// Leaves the queue.
    pub(crate) fn leave_line(&self) {
        let mut state = self.budget.state();
        let before = state.line.len();
        state.line.retain(|waiter| waiter.id != self.id);
        if state.line.len() < before {
            // Connections behind it may now be served.
            serve_line(state);
        }
    }

    /// Releases bytes.
    pub(crate) fn release(&self, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let mut state = self.budget.state();
        state.total.used -= bytes;
        state.exports[self.export].room.used -= bytes;
        if !state.line.is_empty() {
            serve_line(state);
        }
    }

    /// Since when another connection has been waiting for room that this one holds.
    pub(crate) fn wanted_since(&self) -> Option<Instant> {
        let state = self.budget.state();
        let wants = |w: &&Waiter| {
            let same = w.export == self.export;
            w.id != self.id && (same || !state.total.fits(w.bytes))
        };
        state.line.iter().filter(wants).map(|waiter| waiter.since).min()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.state().exports[self.export].connections -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counted(AtomicUsize);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    const MIB: u64 = 1 << 20;

    #[test]
    fn nobody_overtakes_who_waits_for_the_same_room() {
        let budget = Budget::new(8 * MIB, 4 * MIB);
        let [a, b, c, other] = ["v", "v", "v", "w"].map(|export| budget.share(export));
        let count = Arc::new(Counted::default());
        let waker = Waker::from(Arc::clone(&count));
        assert_eq!(a.reserve(3 * MIB), Some(3 * MIB));
        assert_eq!(b.reserve(2 * MIB), None);
        assert!(!b.wait(2 * MIB, &waker));
        assert_eq!(c.reserve(MIB / 2), None, "it would fit, but b came first");
        assert!(!c.wait(MIB / 2, &waker));
        assert_eq!(other.reserve(3 * MIB), Some(3 * MIB), "another export has room of its own");
        assert!(a.wanted_since().is_some() && other.wanted_since().is_none());
        a.release(3 * MIB);
        assert_eq!(
            (b.granted(), c.granted(), count.0.load(Ordering::SeqCst)),
            (2 * MIB, MIB / 2, 2)
        );
        assert!(a.wanted_since().is_none());
        b.release(2 * MIB);
        c.release(MIB / 2);
        other.release(3 * MIB);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn one_that_exceeds_the_limit_by_itself_is_let_in_alone() {
        let budget = Budget::new(MIB, MIB);
        let (a, b) = (budget.share("v"), budget.share("w"));
        let waker = Waker::noop();
        assert_eq!(a.reserve(1), Some(AT_A_TIME));
        assert!(!b.wait(5 * MIB, waker));
        assert_eq!(a.reserve(1), None, "the line is for all of the server");
        a.release(AT_A_TIME);
        assert_eq!(b.granted(), 5 * MIB);
        assert_eq!(a.reserve(1), None);
        b.release(5 * MIB);
        assert_eq!(a.reserve(1), Some(AT_A_TIME));
    }

    #[test]
    fn who_leaves_the_line_lets_others_pass() {
        let budget = Budget::new(MIB, MIB);
        let [a, b, c] = [(); 3].map(|()| budget.share("v"));
        assert_eq!(a.reserve(MIB / 2), Some(MIB / 2));
        assert!(!b.wait(MIB, Waker::noop()));
        assert!(!c.wait(MIB / 4, Waker::noop()));
        b.leave_line();
        assert_eq!(c.granted(), MIB / 4);
    }
}
