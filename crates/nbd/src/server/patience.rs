//! How long a connection waits for its client, which takes no answers, or sends no more of the data
//! of a write.
//!
//! Answers that were not taken for a moment are copied out of the frames that they lie in, since
//! these are needed for other blocks. The connection itself may stay as it is, for as long as
//! nobody wants the memory: a client that is suspended is no matter. It is cut when other
//! connections have been waiting for memory that long, and its client moved next to nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use crate::budget::Share;
use crate::outbox::Outbox;

/// How often is looked: answers lie in frames for up to twice as long.
const LOOK: Duration = Duration::from_millis(100);

/// A client that moves so many bytes while others wait is not stalled.
const MOVED_MIN: u64 = 64 << 10;

pub(super) struct Patience {
    /// How long others wait.
    longest: Duration,
    /// Whether the client keeps the connection waiting.
    is_stuck: bool,
    /// The next look while it does, or one that need not be taken any more.
    look: Option<Pin<Box<Sleep>>>,
    /// Since when the bytes are counted that the client took or sent.
    since: Instant,
    moved: u64,
}

impl Patience {
    pub(super) fn new(longest: Duration) -> Patience {
        Patience { longest, is_stuck: false, look: None, since: Instant::now(), moved: 0 }
    }

    /// The client took or sent bytes.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.moved += bytes;
    }

    /// The connection is about to sleep, waiting for its client if it `is_stuck`: whether it shall
    /// end instead.
    pub(super) fn ends(
        &mut self,
        cx: &mut Context<'_>,
        is_stuck: bool,
        outbox: &mut Outbox,
        share: &Share,
    ) -> bool {
        if is_stuck && !self.is_stuck {
            (self.since, self.moved) = (Instant::now(), 0);
        }
        self.is_stuck = is_stuck;
        if !is_stuck {
            return false;
        }
        let look = self.look.get_or_insert_with(|| Box::pin(sleep(LOOK)));
        while look.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            look.as_mut().reset(now + LOOK);
            outbox.settle();
            if now - self.since < self.longest {
                continue;
            }
            let is_slow = self.moved < MOVED_MIN;
            (self.since, self.moved) = (now, 0);
            let wanted = share.wanted_since();
            if is_slow && wanted.is_some_and(|since| since.elapsed() >= self.longest) {
                return true;
            }
        }
        false
    }
}
