//! The state of a store, as a pure function of what is seen of it from time to time: how many
//! requests ended well and how many failed, since when the oldest waits, whether the place can be
//! reached.
//!
//! * `up`: it answers.
//! * `waiting`: requests wait, because the place cannot be reached, or because nothing is answered
//!   for longer than the store has lately taken. A reconnect or an answer ends it.
//! * `failing`: of one kind of request at least 1 % failed in the last minute, or some were not
//!   answered in time while others are, or something else is wrong with the store. It ends after a
//!   minute without a failure.
//! * `down`: waiting for longer than requests wait for a lost store, or the place has become
//!   unusable.
//!
//! What fails while the place cannot be reached counts for nothing else: a reconnect ends it all.
//!
//! Not here: who looks, and who is told (`store_health.rs`).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde::Serialize;
use undercroft_store::Absence;

/// The kinds of requests to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreRequest {
    Read,
    Write,
    Zero,
    Trim,
    Flush,
    Status,
    Size,
}

/// Their names for people.
const NAMES: [&str; KINDS] = ["reads", "writes", "zeroes", "trims", "flushes", "status", "sizes"];

/// Number of kinds of requests.
pub(crate) const KINDS: usize = 7;

/// How far back failures count, how long it must be quiet after the last one, and how finely that
/// time is divided.
const MINUTE: Duration = Duration::from_secs(60);
const PART: Duration = Duration::from_secs(5);

/// Failures are a state from this share on, in percent of the requests of a kind.
const SHARE_PERCENT: u64 = 1;

/// How long nothing may be answered: twice as long as an answer took lately, within these bounds.
const SILENCE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long the slowest answer is remembered: this, and at most twice as long.
const REMEMBERS: Duration = Duration::from_secs(300);

/// The state of a store. The names are those that metrics, pages and logs use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreState {
    Up,
    Waiting,
    Failing,
    Down,
    /// Not there since the start: the volume is not served yet.
    Away,
}

impl StoreState {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Waiting => "waiting",
            Self::Failing => "failing",
            Self::Down => "down",
            Self::Away => "away",
        }
    }

    /// Whether the volume cannot do all that it should. One that waits does it later.
    pub(crate) fn is_trouble(self) -> bool {
        !matches!(self, Self::Up | Self::Waiting)
    }
}

/// Requests of one kind that ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) well: u64,
    pub(crate) failed: u64,
}

/// What is seen of a store at one time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) absence: Option<Absence>,
    /// When the oldest request began that has not ended.
    pub(crate) oldest: Option<Instant>,
    pub(crate) ended: [Ended; KINDS],
    /// Requests that were answered with EIO because the store did not answer in time, and that it
    /// has not answered since.
    pub(crate) late: u64,
    /// What else is wrong: the store makes no changes any more, or its name leads elsewhere.
    pub(crate) wrong: Option<String>,
    /// Whether requests wait for something else than the store, which is not to blame.
    pub(crate) is_excused: bool,
}

/// What is known of a store from the times it was looked at.
#[derive(Debug)]
pub(crate) struct StoreWatch {
    /// How long requests wait for a lost store.
    patience: Duration,
    state: StoreState,
    since: Instant,
    last: Seen,
    /// When an answer was last seen.
    answered: Instant,
    /// The requests of the last minute, by kind: parts of it, the latest at the end.
    minute: VecDeque<(Instant, [Ended; KINDS])>,
    /// When a failure was last seen, and whether anything has ended well since.
    failed: Option<Instant>,
    is_well_since: bool,
    is_failing: bool,
    /// Whether a request failed since the place cannot be reached: none waits any more.
    has_given_up: bool,
    /// The slowest answers of two spans of time, the present one first, and when that began.
    slowest: [Duration; 2],
    slowest_since: Instant,
    /// The start and the last age of the oldest request, and whether that tells how fast the store
    /// is.
    aged: Option<(Instant, Duration, bool)>,
}

impl StoreWatch {
    pub(crate) fn new(now: Instant, patience: Duration) -> Self {
        Self {
            patience,
            state: StoreState::Up,
            since: now,
            last: Seen::default(),
            answered: now,
            minute: VecDeque::new(),
            failed: None,
            is_well_since: false,
            is_failing: false,
            has_given_up: false,
            slowest: [Duration::ZERO; 2],
            slowest_since: now,
            aged: None,
        }
    }

    pub(crate) fn state(&self) -> StoreState {
        self.state
    }

    /// Since when it has the state. A store that waits has waited since then.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Takes over what is seen now. Returns the state before if it is another one now.
    pub(crate) fn look(&mut self, now: Instant, seen: Seen) -> Option<StoreState> {
        let was_absent = self.last.absence.is_some() || seen.absence.is_some();
        self.age(now, &seen);
        let mut news = [Ended::default(); KINDS];
        for ((news, ended), last) in news.iter_mut().zip(&seen.ended).zip(&self.last.ended) {
            news.well = ended.well.saturating_sub(last.well);
            // The absence of the place is the reason.
            news.failed = if was_absent { 0 } else { ended.failed.saturating_sub(last.failed) };
        }
        let fails = |(ended, last): (&Ended, &Ended)| ended.failed > last.failed;
        let fails = seen.ended.iter().zip(&self.last.ended).any(fails);
        self.has_given_up = seen.absence.is_some() && (self.has_given_up || fails);
        if seen.ended != self.last.ended || seen.is_excused {
            self.answered = now;
        }
        self.count(now, &news);
        self.last = seen;
        let (state, since) = self.judged(now);
        let before = std::mem::replace(&mut self.state, state);
        if let Some(since) = since {
            self.since = since;
        } else if before != state {
            self.since = now;
        }
        (before != state).then_some(before)
    }

    /// The state now, and since when, where that is not when it was first seen.
    fn judged(&self, now: Instant) -> (StoreState, Option<Instant>) {
        let waited = matches!(self.state, StoreState::Waiting | StoreState::Down);
        let waits = |since: Instant, is_final: bool| {
            // A silent store whose connection is lost at last has waited before that.
            let since = if waited { since.min(self.since) } else { since };
            let is_over = now.saturating_duration_since(since) >= self.patience;
            let is_down = is_final || is_over || self.has_given_up;
            (if is_down { StoreState::Down } else { StoreState::Waiting }, Some(since))
        };
        if let Some(absence) = &self.last.absence {
            return waits(absence.since, absence.is_final);
        }
        if let Some(since) = self.last.oldest.map(|oldest| oldest.max(self.answered)) {
            if now.saturating_duration_since(since) > self.silence() {
                return waits(since, false);
            }
        }
        let is_failing = self.is_failing || self.last.late > 0 || self.last.wrong.is_some();
        (if is_failing { StoreState::Failing } else { StoreState::Up }, None)
    }

    /// How long nothing may be answered.
    fn silence(&self) -> Duration {
        let [now, before] = self.slowest;
        (2 * now.max(before)).clamp(SILENCE.0, SILENCE.1)
    }

    /// Learns how long answers take, from the ages of the oldest requests.
    fn age(&mut self, now: Instant, seen: &Seen) {
        if now.saturating_duration_since(self.slowest_since) >= REMEMBERS {
            self.slowest = [Duration::ZERO, self.slowest[0]];
            self.slowest_since = now;
        }
        if let Some((began, age, tells)) = self.aged {
            if seen.oldest != Some(began) && tells {
                self.slowest[0] = self.slowest[0].max(age);
            }
        }
        self.aged = seen.oldest.map(|began| {
            let same = self.aged.filter(|(before, ..)| *before == began);
            let tells = seen.absence.is_none() && same.is_none_or(|(.., tells)| tells);
            (began, now.saturating_duration_since(began), tells)
        });
    }

    /// Counts what ended, and forgets what is older than a minute.
    fn count(&mut self, now: Instant, news: &[Ended; KINDS]) {
        match self.minute.back_mut() {
            Some((since, sums)) if now.saturating_duration_since(*since) < PART => {
                for (sum, news) in sums.iter_mut().zip(news) {
                    sum.well += news.well;
                    sum.failed += news.failed;
                }
            }
            _ => self.minute.push_back((now, *news)),
        }
        let is_old = |since: Instant| now.saturating_duration_since(since) >= MINUTE;
        while self.minute.front().is_some_and(|(since, _)| is_old(*since)) {
            self.minute.pop_front();
        }
        if news.iter().any(|one| one.failed > 0) {
            (self.failed, self.is_well_since) = (Some(now), false);
            self.is_failing |= self.lately().iter().any(|sum| {
                let all = sum.well + sum.failed;
                sum.failed > 0 && sum.failed * 100 >= SHARE_PERCENT * all
            });
        } else {
            self.is_well_since |= news.iter().any(|one| one.well > 0);
            if self.failed.is_none_or(is_old) && self.is_well_since {
                self.is_failing = false;
            }
        }
    }

    /// What ended in the last minute.
    fn lately(&self) -> [Ended; KINDS] {
        let mut sums = [Ended::default(); KINDS];
        for (_, part) in &self.minute {
            for (sum, part) in sums.iter_mut().zip(part) {
                sum.well += part.well;
                sum.failed += part.failed;
            }
        }
        sums
    }

    /// The state in words: `waiting for its store since 12 s; ...`. `error`: the last one; `None`
    /// if the store is up.
    pub(crate) fn sentence(&self, now: Instant, error: Option<&str>) -> Option<String> {
        let age = |at: Instant| now.saturating_duration_since(at).as_secs();
        let since = age(self.since);
        let oldest = self.last.oldest.map_or(0, age);
        let oldest = match oldest {
            0 => String::new(),
            s => format!("; the oldest request waits {s} s"),
        };
        let silent = "nothing is answered";
        let why = self.last.absence.as_ref().map_or(silent, |absence| &absence.why);
        match self.state {
            StoreState::Up => None,
            StoreState::Waiting => {
                Some(format!("waiting for its store since {since} s{oldest}: {why}"))
            }
            StoreState::Down => Some(format!("its store is down since {since} s{oldest}: {why}")),
            StoreState::Failing => Some(format!("its store is failing: {}", self.failures(error))),
            StoreState::Away => Some("its store is away".to_owned()),
        }
    }

    /// What fails, in words.
    pub(crate) fn failures(&self, error: Option<&str>) -> String {
        let lately = self.lately();
        let kinds = lately.iter().zip(NAMES).filter(|(sum, _)| sum.failed > 0);
        let kinds = kinds.map(|(sum, name)| {
            format!("{} of {} {name} failed in the last minute", sum.failed, sum.well + sum.failed)
        });
        let late = self.last.late;
        let requests = if late == 1 { "request was" } else { "requests were" };
        let late = (late > 0).then(|| format!("{late} {requests} not answered in time"));
        let wrong = self.last.wrong.clone();
        let mut parts: Vec<_> = wrong.into_iter().chain(kinds).chain(late).collect();
        if parts.is_empty() {
            parts.push("requests failed, none in the last minute".to_owned());
        }
        let error = error.map_or(String::new(), |error| format!(": {error}"));
        parts.join(", ") + &error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that is looked at twice a second.
    struct Made {
        watch: StoreWatch,
        began: Instant,
        now: Instant,
        seen: Seen,
        /// The states in their order, with the seconds since the start.
        states: Vec<(u64, StoreState)>,
    }

    impl Made {
        fn new() -> Made {
            let began = Instant::now();
            let watch = StoreWatch::new(began, Duration::from_secs(30));
            let seen = Seen::default();
            Made { watch, began, now: began, seen, states: vec![(0, StoreState::Up)] }
        }

        fn seconds(&self) -> u64 {
            (self.now - self.began).as_secs()
        }

        /// Half a second more, and a look.
        fn step(&mut self) {
            self.now += Duration::from_millis(500);
            if self.watch.look(self.now, self.seen.clone()).is_some() {
                self.states.push((self.seconds(), self.watch.state()));
            }
        }

        fn wait(&mut self, seconds: u64) {
            (0..2 * seconds).for_each(|_| self.step());
        }

        fn end(&mut self, kind: StoreRequest, well: u64, failed: u64) {
            let ended = &mut self.seen.ended[kind as usize];
            ended.well += well;
            ended.failed += failed;
        }

        fn lose(&mut self, is_final: bool) {
            let why = "no way there".to_owned();
            self.seen.absence = Some(Absence { since: self.now, why, is_final });
        }

        fn said(&self) -> String {
            self.watch.sentence(self.now, Some("no disk")).unwrap_or_default()
        }
    }

    use StoreRequest::{Flush, Read, Write};
    use StoreState::{Down, Failing, Up, Waiting};

    /// Requests that wait for flash say nothing of the store; its silence begins after that.
    #[test]
    fn a_store_is_not_to_blame_for_what_waits_elsewhere() {
        let mut made = Made::new();
        made.seen.is_excused = true;
        made.wait(60);
        (made.seen.is_excused, made.seen.oldest) = (false, Some(made.began));
        made.step();
        assert_eq!(made.states, [(0, StoreState::Up)]);
        made.wait(2);
        assert_eq!(made.watch.state(), StoreState::Waiting);
    }

    #[test]
    fn a_lost_store_waits_then_is_down_and_a_reconnect_clears_it() {
        let mut made = Made::new();
        made.wait(5);
        made.seen.oldest = Some(made.now);
        made.lose(false);
        made.wait(12);
        let text = "waiting for its store since 12 s; the oldest request waits 12 s: no way there";
        assert_eq!((made.said().as_str(), made.watch.state()), (text, Waiting));
        made.wait(20);
        assert_eq!(made.watch.state(), Down);
        // What fails for that reason is no reason of its own, also what ends with the reconnect.
        made.end(Read, 0, 100);
        made.wait(5);
        (made.seen.absence, made.seen.oldest) = (None, None);
        made.end(Read, 0, 100);
        made.step();
        assert_eq!(made.states, [(0, Up), (5, Waiting), (35, Down), (42, Up)]);
        assert_eq!(made.watch.sentence(made.now, None), None);
        // One for which requests wait no longer is down, and one that can no longer be used.
        made.lose(false);
        made.step();
        assert_eq!(made.watch.state(), Waiting);
        made.end(Read, 0, 1);
        made.step();
        assert_eq!(made.watch.state(), Down);
        made.seen.absence = None;
        made.step();
        assert_eq!(made.watch.state(), Up);
        made.lose(true);
        made.step();
        assert_eq!(made.watch.state(), Down);
    }

    #[test]
    fn two_percent_are_failing_until_a_quiet_minute() {
        let mut made = Made::new();
        for _ in 0..60 {
            made.end(Read, 49, 1);
            made.end(Write, 500, 0);
            made.step();
        }
        assert_eq!(made.states, [(0, Up), (0, Failing)]);
        let text = "its store is failing: 60 of 3000 reads failed in the last minute: no disk";
        assert_eq!(made.said(), text);
        made.wait(50);
        made.end(Read, 0, 1);
        made.wait(70);
        assert_eq!(made.watch.state(), Failing, "nothing has ended well since");
        made.end(Write, 1, 0);
        made.step();
        assert_eq!(made.watch.state(), Up);
    }

    #[test]
    fn half_of_all_failing_does_not_flap() {
        let mut made = Made::new();
        for turn in 0..1000 {
            made.end(Read, turn % 2, 1 - turn % 2);
            made.step();
        }
        made.wait(61);
        made.end(Read, 1, 0);
        made.step();
        assert_eq!(made.states.len(), 3, "{:?}", made.states);
    }

    #[test]
    fn a_kind_counts_by_itself_and_few_failures_of_many_do_not() {
        let mut made = Made::new();
        for _ in 0..100 {
            made.end(Read, 1000, 1);
            made.step();
        }
        assert_eq!(made.states, [(0, Up)]);
        // All flushes, beside very many reads.
        made.end(Flush, 0, 1);
        made.end(Read, 1000, 0);
        made.step();
        assert_eq!(made.watch.state(), Failing);
    }

    #[test]
    fn a_stall_is_seen_in_time_and_ends_with_an_answer() {
        let mut made = Made::new();
        made.seen.oldest = Some(made.now);
        made.wait(2);
        assert_eq!(made.states, [(0, Up), (1, Waiting)]);
        assert!(made.said().ends_with("waits 2 s: nothing is answered"), "{}", made.said());
        made.wait(30);
        assert_eq!(made.watch.state(), Down);
        made.end(Read, 1, 0);
        made.seen.oldest = None;
        made.step();
        assert_eq!(made.watch.state(), Up);
    }

    #[test]
    fn what_was_silent_before_it_was_lost_has_waited_since_then() {
        let mut made = Made::new();
        made.seen.oldest = Some(made.now);
        made.wait(5);
        made.lose(false);
        made.wait(2);
        assert!(made.said().starts_with("waiting for its store since 7 s"), "{}", made.said());
    }

    #[test]
    fn a_slow_store_that_answers_does_not_flap() {
        let mut made = Made::new();
        for _ in 0..100 {
            made.seen.oldest = Some(made.now);
            made.wait(5);
            made.end(Read, 1, 0);
        }
        // How slow it is is not known before its first answer.
        assert_eq!(made.states, [(0, Up), (1, Waiting), (5, Up)]);
        // It is forgotten after a while.
        made.seen.oldest = None;
        made.wait(2 * REMEMBERS.as_secs() + 1);
        made.seen.oldest = Some(made.now);
        made.wait(2);
        assert_eq!(made.watch.state(), Waiting);
    }

    #[test]
    fn what_an_absence_took_does_not_make_a_store_slow() {
        let mut made = Made::new();
        made.seen.oldest = Some(made.now);
        made.lose(false);
        made.wait(20);
        (made.seen.absence, made.seen.oldest) = (None, None);
        made.end(Read, 1, 0);
        made.step();
        made.seen.oldest = Some(made.now);
        made.wait(2);
        assert_eq!(made.watch.state(), Waiting);
    }

    #[test]
    fn one_request_that_is_stuck_while_others_are_answered() {
        let mut made = Made::new();
        made.seen.oldest = Some(made.now);
        for _ in 0..100 {
            made.end(Read, 10, 0);
            made.step();
        }
        assert_eq!(made.states, [(0, Up)]);
        made.seen.late = 1;
        made.end(Read, 10, 0);
        made.step();
        assert!(made.said().contains("1 request was not answered in time"), "{}", made.said());
        (made.seen.late, made.seen.oldest) = (0, None);
        made.end(Read, 10, 0);
        made.step();
        assert_eq!(made.watch.state(), Up);
        made.seen.wrong = Some("it makes no changes: another server writes".to_owned());
        made.step();
        let text = "its store is failing: it makes no changes: another server writes: no disk";
        assert_eq!(made.said(), text);
    }
}
