//! The limit of requests per second: a token bucket for all connections of a volume, and a session
//! whose requests wait for tokens.
//!
//! The requests of a connection keep their order. Connections take turns, however many requests
//! each has. The waiting requests of a connection that ends are dropped, so that nobody waits for
//! them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};
use undercroft_nbd::{Request, Session};

use super::exports::{Connection, refuse};

/// Lets a number of requests per second pass, and one second's worth of them at once.
pub(super) struct TokenBucket {
    tokens: Mutex<Tokens>,
    /// Held by the request that waits for a token; requests wait one after another.
    turn: tokio::sync::Mutex<()>,
}

struct Tokens {
    per_second: f64,
    /// Requests that may pass now.
    tokens: f64,
    filled: Instant,
}

impl Tokens {
    /// Takes a token, or returns the time until there is one.
    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let gained = now.saturating_duration_since(self.filled).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + gained).min(self.per_second);
        self.filled = now;
        if self.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - self.tokens) / self.per_second));
        }
        self.tokens -= 1.0;
        Ok(())
    }
}

impl TokenBucket {
    pub(super) fn new(per_second: u32, now: std::time::Instant) -> TokenBucket {
        let per_second = f64::from(per_second.max(1));
        let tokens = Tokens { per_second, tokens: per_second, filled: now.into() };
        TokenBucket { tokens: Mutex::new(tokens), turn: tokio::sync::Mutex::default() }
    }

    fn tokens(&self) -> MutexGuard<'_, Tokens> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a token, if there is one and no request waits for it.
    fn try_take(&self) -> bool {
        self.turn.try_lock().is_ok_and(|_turn| self.tokens().take(Instant::now()).is_ok())
    }

    /// Waits for a token.
    async fn take(&self) {
        let _turn = self.turn.lock().await;
        loop {
            let taken = self.tokens().take(Instant::now());
            match taken {
                Ok(()) => return,
                Err(wait) => sleep(wait).await,
            }
        }
    }
}

/// A session with a limit of requests per second.
pub(super) struct RateLimitedSession {
    bucket: Arc<TokenBucket>,
    session: Arc<Mutex<Box<dyn Session>>>,
    client: Arc<Connection>,
    /// Number of requests that wait for a token, or behind others that do.
    waiting: Arc<AtomicUsize>,
    later: UnboundedSender<Request>,
    task: AbortHandle,
}

impl RateLimitedSession {
    pub(super) fn new(
        bucket: Arc<TokenBucket>,
        session: Box<dyn Session>,
        client: Arc<Connection>,
    ) -> RateLimitedSession {
        let (later, requests) = unbounded_channel();
        let (session, waiting) = (Arc::new(Mutex::new(session)), Arc::default());
        let parts = (Arc::clone(&bucket), Arc::clone(&session), Arc::clone(&waiting));
        let task = tokio::spawn(pass_on(parts, Arc::downgrade(&client), requests)).abort_handle();
        RateLimitedSession { bucket, session, client, waiting, later, task }
    }

    fn session(&self) -> MutexGuard<'_, Box<dyn Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type Parts = (Arc<TokenBucket>, Arc<Mutex<Box<dyn Session>>>, Arc<AtomicUsize>);

async fn pass_on(parts: Parts, client: Weak<Connection>, mut requests: UnboundedReceiver<Request>) {
    let (bucket, session, waiting) = parts;
    while let Some(request) = requests.recv().await {
        bucket.take().await;
        if client.upgrade().is_none_or(|client| client.is_revoked()) {
            waiting.fetch_sub(1, Ordering::SeqCst);
            refuse(request);
            continue;
        }
        let mut session = session.lock().unwrap_or_else(PoisonError::into_inner);
        session.submit(request);
        session.end_of_batch();
        waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Session for RateLimitedSession {
    fn submit(&mut self, request: Request) {
        // Requests start to wait only here.
        if self.waiting.load(Ordering::SeqCst) == 0 && self.bucket.try_take() {
            return self.session().submit(request);
        }
        self.client.delayed.fetch_add(1, Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // If the task is gone, the request is dropped, which answers it.
        let _ = self.later.send(request);
    }

    fn end_of_batch(&mut self) {
        self.session().end_of_batch();
    }

    fn owed(&mut self) -> u64 {
        self.session().owed()
    }

    fn no_more(&mut self, is_gone: bool) {
        if is_gone {
            // Waiting requests are dropped, which answers them.
            self.task.abort();
        }
        self.session().no_more(is_gone);
    }
}

impl Drop for RateLimitedSession {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_at_once_and_then_one_after_another() {
        let start = Instant::now();
        let mut tokens = Tokens { per_second: 10.0, tokens: 10.0, filled: start };
        for _ in 0..10 {
            assert!(tokens.take(start).is_ok());
        }
        let wait = tokens.take(start).unwrap_err();
        assert_eq!(wait.as_millis(), 100);
        assert!(tokens.take(start + wait).is_ok());
        // A long silence saves up one second's worth, and no more.
        let late = start + Duration::from_secs(100);
        let passed = (0..20).filter(|_| tokens.take(late).is_ok()).count();
        assert_eq!(passed, 10);
    }
}
