//! How long a connection waits for a client that does not read its answers, or does not send the
//! rest of a write's data.
//!
//! Answers that have been waiting for a moment are copied out of their frames, which are needed for
//! other blocks. The connection itself may stay as long as nobody needs its memory: a suspended
//! client does no harm. It is cut when other connections have been waiting for memory for the
//! allowed time, and its client has moved hardly any data meanwhile.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::budget::Share;
use crate::outbox::Outbox;

/// How often that is checked; answers stay in frames for up to twice this time.
const LOOK: Duration = Duration::from_millis(100);

/// A client that moves at least this many bytes while others wait is not stalled, and not fewer
/// than this share of what its connection holds: so that ends.
const MOVED_MIN: u64 = 64 << 10;
const MOVED_SHARE: u64 = 32;

pub(super) struct StallTimer {
    /// How long others may have to wait.
    longest: Duration,
    /// Whether the connection waits for its client.
    is_stuck: bool,
    /// The timer for the next check; unused if the client is not stuck.
    look: Option<Pin<Box<Sleep>>>,
    /// When counting of the client's moved bytes began.
    since: Instant,
    moved: u64,
}

impl StallTimer {
    pub(super) fn new(longest: Duration) -> StallTimer {
        StallTimer { longest, is_stuck: false, look: None, since: Instant::now(), moved: 0 }
    }

    /// Counts bytes that the client sent or received.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// Call before the connection sleeps; `is_stuck`: it waits for its client, and `held` bytes
    /// with it. Returns whether the connection must end instead.
    pub(super) fn ends(
        &mut self,
        cx: &mut Context<'_>,
        is_stuck: bool,
        held: u64,
        outbox: &mut Outbox,
        share: &Share,
    ) -> bool {
        if is_stuck && !self.is_stuck {
            (self.since, self.moved) = (Instant::now(), 0);
        }
        self.is_stuck = is_stuck;
        is_stuck && self.is_over(cx, held, outbox, share)
    }

    /// Checks from time to time whether the client has stalled for too long.
    fn is_over(
        &mut self,
        cx: &mut Context<'_>,
        held: u64,
        outbox: &mut Outbox,
        share: &Share,
    ) -> bool {
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while look.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            look.as_mut().reset(now + LOOK);
            outbox.settle();
            if now - self.since < self.longest {
                continue;
            }
            let is_slow = self.moved < MOVED_MIN.max(held / MOVED_SHARE);
            (self.since, self.moved) = (now, 0);
            let wanted = share.wanted_since();
            if is_slow && wanted.is_some_and(|since| since.elapsed() >= self.longest) {
                return true;
            }
        }
        false
    }
}
