//! Who may pass when: the limits of a volume and of each of its clients, and the even division of
//! the volume's among the clients that wait. A state machine without I/O; it is told the time.
//!
//! A limit is a token bucket of one second's worth. Clients are served by start-time fair queueing:
//! each has a tag, the volume's time that its requests so far have used up, and the waiting client
//! with the smallest tag is next. A client that has been idle begins at the tag of the last one
//! served, so that idle time gives no credit beyond the buckets. Within a client its connections
//! take turns.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Limits in requests and in bytes per second; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    pub(super) requests: Option<u32>,
    pub(super) bytes: Option<u64>,
}

impl Rates {
    pub(super) fn is_unlimited(self) -> bool {
        self == Self::default()
    }

    fn buckets(self, now: Instant) -> Buckets {
        let bucket = |per_second: f64| Bucket { per_second, tokens: per_second, filled: now };
        Buckets {
            requests: self.requests.map(|limit| bucket(f64::from(limit.max(1)))),
            bytes: self.bytes.map(|limit| bucket(limit.max(1) as f64)),
        }
    }

    /// The time that a request uses up, in nanoseconds.
    fn time_of(self, bytes: u64) -> u64 {
        let for_request = self.requests.map_or(0.0, |limit| 1e9 / f64::from(limit.max(1)));
        let for_bytes = self.bytes.map_or(0.0, |limit| bytes as f64 * 1e9 / limit.max(1) as f64);
        for_request.max(for_bytes) as u64
    }
}

/// Lets so many tokens per second pass, and one second's worth of them at once.
struct Bucket {
    per_second: f64,
    /// What may pass now; below 0 after a request that was larger than the bucket.
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// The time until this much may pass. What is larger than the bucket waits for a full one.
    fn wait(&mut self, wanted: f64, now: Instant) -> Duration {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.per_second);
        self.filled = now;
        let missing = wanted.min(self.per_second) - self.tokens;
        // Less than a millionth of a token is an error of rounding.
        if missing < 1e-6 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(missing / self.per_second).unwrap_or(Duration::MAX)
    }
}

/// The buckets of a volume or of a client.
struct Buckets {
    requests: Option<Bucket>,
    bytes: Option<Bucket>,
}

impl Buckets {
    /// The time until a request of so many bytes may pass.
    fn wait(&mut self, bytes: u64, now: Instant) -> Duration {
        let wait = |bucket: &mut Option<Bucket>, wanted| {
            bucket.as_mut().map_or(Duration::ZERO, |bucket| bucket.wait(wanted, now))
        };
        wait(&mut self.requests, 1.0).max(wait(&mut self.bytes, bytes as f64))
    }

    fn take(&mut self, bytes: u64) {
        self.requests.iter_mut().for_each(|bucket| bucket.tokens -= 1.0);
        self.bytes.iter_mut().for_each(|bucket| bucket.tokens -= bytes as f64);
    }

    /// Whether nothing was taken for so long that new buckets would be equal.
    fn is_full(&mut self, now: Instant) -> bool {
        let mut all = self.requests.iter_mut().chain(&mut self.bytes);
        all.all(|bucket| bucket.wait(bucket.per_second, now).is_zero())
    }
}

/// A waiting request: its bytes, and what the caller needs to start it.
type Waiting<T> = (u64, T);

/// A client of the volume.
struct Share<T> {
    /// Open connections.
    open: usize,
    own: Buckets,
    /// The volume's time that it has used up, in nanoseconds.
    tag: u64,
    /// The waiting requests of each connection that has some; the first connection is next.
    lines: VecDeque<(u64, VecDeque<Waiting<T>>)>,
    /// Where the client waits, if it does.
    place: Option<Place>,
}

/// Where a client waits.
#[derive(Clone, Copy)]
enum Place {
    /// For the volume, with this tag.
    Ready(u64),
    /// For its own limit, until then.
    Resting(Instant),
}

/// What may pass now.
#[derive(Debug, PartialEq)]
pub(super) enum Next<T> {
    Pass(T),
    /// Nothing before this time is over.
    Wait(Duration),
    /// Nothing waits.
    Nothing,
}

/// The limits of a volume, its clients, and their waiting requests.
pub(super) struct Shares<T> {
    rates: Rates,
    volume: Buckets,
    of_each: Rates,
    clients: HashMap<Arc<str>, Share<T>>,
    /// The clients that wait for the volume, by tag.
    ready: BTreeSet<(u64, Arc<str>)>,
    /// The clients that wait for their own limits.
    resting: BTreeSet<(Instant, Arc<str>)>,
    /// The tag of the client served last.
    served: u64,
}

impl<T> Shares<T> {
    pub(super) fn new(rates: Rates, of_each: Rates, now: Instant) -> Self {
        let (clients, ready, resting, served) = Default::default();
        Self { rates, volume: rates.buckets(now), of_each, clients, ready, resting, served }
    }

    /// Changes the limits. Each has one second's worth at once.
    pub(super) fn set(&mut self, rates: Rates, of_each: Rates, now: Instant) {
        if (self.rates, self.of_each) == (rates, of_each) {
            return;
        }
        (self.rates, self.of_each, self.volume) = (rates, of_each, rates.buckets(now));
        self.clients.values_mut().for_each(|share| share.own = of_each.buckets(now));
        let all: Vec<_> = self.clients.keys().cloned().collect();
        all.iter().for_each(|client| self.replace(client, now));
    }

    /// A connection of a client begins.
    pub(super) fn join(&mut self, client: &Arc<str>, now: Instant) {
        // A client that left is remembered until its buckets are full, so that it gains nothing by
        // connecting anew.
        self.clients.retain(|_, share| share.open > 0 || !share.own.is_full(now));
        let share = self.clients.entry(Arc::clone(client)).or_insert_with(|| Share {
            open: 0,
            own: self.of_each.buckets(now),
            tag: self.served,
            lines: VecDeque::new(),
            place: None,
        });
        share.open += 1;
    }

    /// A connection of a client ends; its waiting requests were [dropped](Self::drop_connection).
    pub(super) fn leave(&mut self, client: &Arc<str>) {
        if let Some(share) = self.clients.get_mut(client) {
            share.open -= 1;
        }
    }

    /// Removes the waiting requests of a connection, and returns them.
    pub(super) fn drop_connection(
        &mut self,
        client: &Arc<str>,
        queue: u64,
        now: Instant,
    ) -> Vec<T> {
        let Some(share) = self.clients.get_mut(client) else { return Vec::new() };
        let Some(at) = share.lines.iter().position(|(number, _)| *number == queue) else {
            return Vec::new();
        };
        let dropped = share.lines.remove(at).map(|(_, waiting)| waiting).unwrap_or_default();
        self.replace(client, now);
        dropped.into_iter().map(|(_, item)| item).collect()
    }

    /// Lets a request of a client pass at once, if nobody must wait for it.
    pub(super) fn try_pass(&mut self, client: &Arc<str>, bytes: u64, now: Instant) -> bool {
        self.wake(now);
        let Some(share) = self.clients.get_mut(client) else { return true };
        let is_next = share.lines.is_empty() && self.ready.is_empty();
        if !is_next
            || !share.own.wait(bytes, now).is_zero()
            || !self.volume.wait(bytes, now).is_zero()
        {
            return false;
        }
        self.charge(client, bytes);
        true
    }

    /// Lets a request of a connection wait.
    pub(super) fn push(
        &mut self,
        client: &Arc<str>,
        queue: u64,
        waiting: Waiting<T>,
        now: Instant,
    ) {
        let Some(share) = self.clients.get_mut(client) else { return };
        match share.lines.iter_mut().find(|(number, _)| *number == queue) {
            Some((_, requests)) => requests.push_back(waiting),
            None => share.lines.push_back((queue, VecDeque::from([waiting]))),
        }
        if share.place.is_none() {
            self.replace(client, now);
        }
    }

    /// The next waiting request that may pass, which then has passed.
    pub(super) fn next(&mut self, now: Instant) -> Next<T> {
        self.wake(now);
        let rested = self.resting.first().map(|(at, _)| *at - now);
        let Some((_, client)) = self.ready.first() else {
            return rested.map_or(Next::Nothing, Next::Wait);
        };
        let client = Arc::clone(client);
        let head = self.clients.get(&client).and_then(Share::head);
        let wait = self.volume.wait(head.unwrap_or(0), now);
        if !wait.is_zero() {
            return Next::Wait(rested.map_or(wait, |rested| rested.min(wait)));
        }
        let taken = self.clients.get_mut(&client).and_then(Share::take);
        let Some((bytes, item)) = taken else { return Next::Nothing };
        self.charge(&client, bytes);
        self.replace(&client, now);
        Next::Pass(item)
    }

    /// Counts a request that passes.
    fn charge(&mut self, client: &Arc<str>, bytes: u64) {
        let Some(share) = self.clients.get_mut(client) else { return };
        share.own.take(bytes);
        self.volume.take(bytes);
        let begins = share.tag.max(self.served);
        self.served = begins;
        share.tag = begins.saturating_add(self.rates.time_of(bytes));
    }

    /// Lets the clients that have rested long enough wait for the volume.
    fn wake(&mut self, now: Instant) {
        while let Some((_, client)) = self.resting.first().filter(|(at, _)| *at <= now) {
            let client = Arc::clone(client);
            self.replace(&client, now);
        }
    }

    /// Finds the place of a client anew, by its first waiting request.
    fn replace(&mut self, client: &Arc<str>, now: Instant) {
        let Some(share) = self.clients.get_mut(client) else { return };
        match share.place.take() {
            Some(Place::Ready(tag)) => _ = self.ready.remove(&(tag, Arc::clone(client))),
            Some(Place::Resting(at)) => _ = self.resting.remove(&(at, Arc::clone(client))),
            None => {}
        }
        let Some(bytes) = share.head() else { return };
        let wait = share.own.wait(bytes, now);
        if wait.is_zero() {
            let tag = share.tag.max(self.served);
            share.place = Some(Place::Ready(tag));
            self.ready.insert((tag, Arc::clone(client)));
        } else {
            // Rounded up, so that it has not to rest again for a fraction.
            let at = now + wait.min(Duration::from_secs(3600)) + Duration::from_nanos(1);
            share.place = Some(Place::Resting(at));
            self.resting.insert((at, Arc::clone(client)));
        }
    }
}

impl<T> Share<T> {
    /// Bytes of the next request.
    fn head(&self) -> Option<u64> {
        self.lines.front().and_then(|(_, waiting)| waiting.front()).map(|(bytes, _)| *bytes)
    }

    /// Takes the next request; then it is another connection's turn.
    fn take(&mut self) -> Option<Waiting<T>> {
        let (queue, mut waiting) = self.lines.pop_front()?;
        let first = waiting.pop_front();
        if !waiting.is_empty() {
            self.lines.push_back((queue, waiting));
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<Arc<str>> {
        (0..count).map(|client| format!("client {client}").into()).collect()
    }

    fn shares(volume: Rates, of_each: Rates, clients: &[Arc<str>], now: Instant) -> Shares<usize> {
        let mut shares = Shares::new(volume, of_each, now);
        clients.iter().for_each(|client| shares.join(client, now));
        shares
    }

    /// What passes until `end`: how much of each item, and how many bytes.
    fn run(shares: &mut Shares<usize>, now: &mut Instant, end: Instant) -> Vec<usize> {
        let mut passed = Vec::new();
        loop {
            match shares.next(*now) {
                Next::Pass(item) => passed.push(item),
                Next::Wait(wait) if *now + wait <= end => *now += wait,
                _ => return passed,
            }
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_second_at_once_and_then_one_after_another() {
        let (start, all) = (Instant::now(), names(1));
        let rates = Rates { requests: Some(10), bytes: None };
        let mut shares = shares(rates, Rates::default(), &all, start);
        assert!((0..10).all(|_| shares.try_pass(&all[0], 0, start)));
        assert!(!shares.try_pass(&all[0], 0, start));
        shares.push(&all[0], 1, (0, 7), start);
        let Next::Wait(wait) = shares.next(start) else { panic!("it must wait") };
        assert_eq!(wait.as_millis(), 100);
        assert_eq!(shares.next(start + wait), Next::Pass(7));
        assert_eq!(shares.next(start + wait), Next::Nothing);
        // A long silence saves up one second's worth, and no more.
        let late = start + 100 * SECOND;
        assert_eq!((0..20).filter(|_| shares.try_pass(&all[0], 0, late)).count(), 10);
    }

    #[test]
    fn a_request_larger_than_the_bucket_passes_when_it_is_full() {
        let (start, all) = (Instant::now(), names(1));
        let rates = Rates { requests: None, bytes: Some(1000) };
        let mut shares = shares(rates, Rates::default(), &all, start);
        assert!(shares.try_pass(&all[0], 5000, start));
        assert!(shares.try_pass(&all[0], 0, start + 4 * SECOND), "no bytes, no limit");
        assert!(!shares.try_pass(&all[0], 1, start + 4 * SECOND - SECOND / 100));
        assert!(shares.try_pass(&all[0], 500, start + 5 * SECOND - SECOND / 2));
        assert!(!shares.try_pass(&all[0], 5000, start + 5 * SECOND));
    }

    #[test]
    fn clients_share_evenly_whatever_they_send() {
        let (start, all) = (Instant::now(), names(3));
        let rates = Rates { requests: None, bytes: Some(1 << 20) };
        let mut shares = shares(rates, Rates::default(), &all, start);
        // Eight connections with large requests, one with small ones, one that wants little.
        for request in 0..1000 {
            (0..8).for_each(|queue| shares.push(&all[0], queue, (64 << 10, 0), start));
            shares.push(&all[1], 8, (4 << 10, 1), start);
            if request < 100 {
                shares.push(&all[2], 9, (4 << 10, 2), start);
            }
        }
        let mut now = start;
        // A second's worth at once, and five more.
        let passed = run(&mut shares, &mut now, start + 5 * SECOND);
        let bytes = |client, each: usize| passed.iter().filter(|&&c| c == client).count() * each;
        let [large, small, little] = [bytes(0, 64 << 10), bytes(1, 4 << 10), bytes(2, 4 << 10)];
        assert_eq!(little, 400 << 10);
        assert!((large + small + little).abs_diff(6 << 20) <= 64 << 10, "{large} {small}");
        assert!(large.abs_diff(small) <= 68 << 10, "{large} {small}");
    }

    #[test]
    fn idle_time_gives_no_credit_and_a_newcomer_waits_for_nobody() {
        let (start, all) = (Instant::now(), names(2));
        let rates = Rates { requests: Some(100), bytes: None };
        let mut shares = shares(rates, Rates::default(), &all, start);
        (0..1000).for_each(|_| shares.push(&all[0], 1, (0, 0), start));
        let mut now = start;
        assert_eq!(run(&mut shares, &mut now, start + 3 * SECOND).len(), 400);
        // The other client was idle; from now on each gets a half.
        (0..1000).for_each(|_| shares.push(&all[1], 2, (0, 1), now));
        let end = now + SECOND;
        let passed = run(&mut shares, &mut now, end);
        let of_second = passed.iter().filter(|&&client| client == 1).count();
        assert!((99..=101).contains(&passed.len()) && of_second.abs_diff(50) <= 1, "{passed:?}");
        assert!(passed[..2].contains(&1));
    }

    #[test]
    fn a_client_at_its_own_limit_holds_up_nobody() {
        let (start, all) = (Instant::now(), names(2));
        let (volume, each) =
            (Rates { requests: Some(100), bytes: None }, Rates { requests: Some(10), bytes: None });
        let mut shares = shares(volume, each, &all, start);
        (0..100).for_each(|_| shares.push(&all[0], 1, (0, 0), start));
        let mut now = start;
        assert_eq!(run(&mut shares, &mut now, start).len(), 10);
        assert!(shares.try_pass(&all[1], 0, start), "the other has its own bucket");
        let end = start + SECOND + Duration::from_micros(1);
        assert_eq!(run(&mut shares, &mut now, end).len(), 10);
        // A connection that ends takes its requests along; one that begins anew has no new bucket.
        assert_eq!(shares.drop_connection(&all[0], 1, now).len(), 80);
        assert_eq!(shares.next(now), Next::Nothing);
        shares.leave(&all[0]);
        shares.join(&all[0], now);
        assert!(!shares.try_pass(&all[0], 0, now));
        shares.leave(&all[0]);
        shares.join(&all[1], now + 2 * SECOND);
        assert_eq!(shares.clients.len(), 1, "and is forgotten when its bucket is full");
    }

    #[test]
    fn limits_change_for_what_waits_and_for_whoever_is_there() {
        let (start, all) = (Instant::now(), names(2));
        let none = Rates::default();
        let slow = Rates { requests: Some(2), bytes: None };
        let mut shares = shares(none, none, &all, start);
        assert!((0..1000).all(|_| shares.try_pass(&all[0], 1 << 30, start)));
        shares.set(none, slow, start);
        assert_eq!((0..10).filter(|_| shares.try_pass(&all[0], 0, start)).count(), 2);
        (0..10).for_each(|item| shares.push(&all[0], 1, (0, item), start));
        assert!(matches!(shares.next(start), Next::Wait(_)));
        // The same limits again give nothing.
        shares.set(none, slow, start);
        assert!(matches!(shares.next(start), Next::Wait(_)));
        shares.set(Rates { requests: Some(4), bytes: None }, none, start);
        assert_eq!(run(&mut shares, &mut { start }, start), [0, 1, 2, 3]);
        shares.set(none, none, start);
        assert_eq!(run(&mut shares, &mut { start }, start), [4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn connections_of_a_client_take_turns_in_their_order() {
        let (start, all) = (Instant::now(), names(1));
        let rates = Rates { requests: Some(100), bytes: None };
        let mut shares = shares(rates, Rates::default(), &all, start);
        for (queue, item) in [(1, 10), (1, 11), (1, 12), (2, 20), (2, 21), (3, 30)] {
            shares.push(&all[0], queue, (0, item), start);
        }
        let passed = run(&mut shares, &mut { start }, start);
        assert_eq!(passed, [10, 20, 30, 11, 21, 12]);
    }
}
