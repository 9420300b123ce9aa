//! A store that loses what it had answered and not flushed, and that keeps answers back.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::Notify;
use undercroft_store::{Answer as StoreAnswer, Buffer, Extent, Facts, OnLoss, Store, Zeroing};

use crate::common::{BLOCK, Request, Shared, TestStore};

const SIZE: usize = 256 * BLOCK as usize;

/// Answers of a kind that wait, after the request has taken effect.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) is_held: AtomicBool,
    pub(crate) released: Notify,
}

impl Held {
    async fn pass(&self) {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            if !self.is_held.load(Ordering::SeqCst) {
                return;
            }
            released.await;
        }
    }

    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    pub(crate) fn release(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        self.released.notify_waiters();
    }
}

/// A store that loses.
pub(crate) struct Losing {
    pub(crate) store: Arc<TestStore>,
    pub(crate) losses: AtomicU64,
    pub(crate) calls: Mutex<Vec<OnLoss>>,
    /// Answers of reads and writes.
    pub(crate) answers: Held,
    /// Flushes, before they take effect.
    pub(crate) flushes: Held,
}

impl Losing {
    pub(crate) fn new() -> Arc<Losing> {
        let store = TestStore::new(SIZE, 512, 1);
        let (answers, flushes) = (Held::default(), Held::default());
        let (losses, calls) = (AtomicU64::new(0), Mutex::default());
        Arc::new(Losing { store, losses, calls, answers, flushes })
    }

    /// What was not flushed is gone.
    pub(crate) fn lose(&self) {
        {
            let mut images = self.store.inner.lock().unwrap();
            images.volatile.clear();
            images.live = images.durable.clone();
        }
        self.losses.fetch_add(1, Ordering::SeqCst);
        self.calls.lock().unwrap().iter().for_each(|call| call());
    }

    pub(crate) fn durable(&self, block: u64) -> u8 {
        self.store.inner.lock().unwrap().durable[(block * BLOCK) as usize]
    }

    pub(crate) fn count(&self, is_meant: impl Fn(&Request) -> bool) -> usize {
        self.store.log().iter().filter(|request| is_meant(request)).count()
    }

    pub(crate) fn reads(&self) -> usize {
        self.count(|request| matches!(request, Request::Read(..)))
    }
}

pub(crate) struct Handed(pub(crate) Arc<Losing>);

impl Handed {
    fn inner(&self) -> Shared {
        Shared(Arc::clone(&self.0.store))
    }

    fn later<T: Send + 'static>(&self, answer: StoreAnswer<T>) -> StoreAnswer<T> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            let answer = answer.await;
            store.answers.pass().await;
            answer
        })
    }
}

impl Store for Handed {
    fn facts(&self) -> Facts {
        self.inner().facts()
    }

    fn read(&self, offset: u64, into: Vec<Buffer>) -> StoreAnswer<(Vec<Buffer>, io::Result<()>)> {
        self.later(self.inner().read(offset, into))
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> StoreAnswer<io::Result<()>> {
        self.later(self.inner().write(offset, data, durable))
    }

    fn zero(&self, offset: u64, length: u64, how: Zeroing, d: bool) -> StoreAnswer<io::Result<()>> {
        self.later(self.inner().zero(offset, length, how, d))
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> StoreAnswer<io::Result<()>> {
        self.later(self.inner().trim(offset, length, durable))
    }

    fn flush(&self) -> StoreAnswer<io::Result<()>> {
        let store = Arc::clone(&self.0);
        Box::pin(async move {
            store.flushes.pass().await;
            Shared(Arc::clone(&store.store)).flush().await
        })
    }

    fn extents(&self, offset: u64, length: u64) -> StoreAnswer<io::Result<Vec<Extent>>> {
        self.inner().extents(offset, length)
    }

    fn reload(&self) -> StoreAnswer<io::Result<u64>> {
        self.inner().reload()
    }

    fn losses(&self) -> Option<u64> {
        Some(self.0.losses.load(Ordering::SeqCst))
    }

    fn on_loss(&self, call: OnLoss) {
        self.0.calls.lock().unwrap().push(call);
    }
}
