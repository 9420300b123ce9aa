//! A store below a level on flash that is warm after a restart: each change of a range waits until
//! the device says durably that no copy of it counts ([`FlashCommits::before_change`]).
//!
//! Not here: how the device comes to say so (`flash_commits.rs`).

use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::Bytes;
use tokio::runtime::Handle;
use undercroft_store::{Answer, Buffer, Extent, Facts, ManyWrite, ManyWritten, Store, Zeroing};

use crate::config::VolumeConfig;
use crate::geometry::Geometry;
use crate::volume::flash_commits::{FlashCommits, Levels};

/// The store, in order with the journals.
struct OrderedStore {
    inner: Arc<dyn Store>,
    commits: Arc<FlashCommits>,
    geometry: Arc<Geometry>,
}

/// The store of a volume, and the commits that its changes wait for, if its level on flash has
/// journals. `levels`: its shards, of which there may be none.
pub(super) fn ordered<L: Levels + 'static>(
    inner: Arc<dyn Store>,
    config: &VolumeConfig,
    levels: &Arc<L>,
    geometry: &Arc<Geometry>,
) -> (Arc<dyn Store>, Option<Arc<FlashCommits>>) {
    let part = config.flash_part.as_ref().filter(|_| levels.count() > 0);
    let commits = part.and_then(|part| {
        FlashCommits::new(&config.name, part, Arc::clone(levels) as _, geometry, &inner)
    });
    let Some(commits) = commits else { return (inner, None) };
    let geometry = Arc::clone(geometry);
    (Arc::new(OrderedStore { inner, commits: Arc::clone(&commits), geometry }), Some(commits))
}

impl OrderedStore {
    /// Makes a change when it may be made; at once, if it may be now.
    fn change(
        &self,
        (offset, length): (u64, u64),
        make: impl FnOnce(&dyn Store) -> Answer<io::Result<()>> + Send + 'static,
    ) -> Answer<io::Result<()>> {
        if length == 0 {
            return make(&*self.inner);
        }
        let (inner, commits) = (Arc::clone(&self.inner), Arc::clone(&self.commits));
        let blocks = self.geometry.blocks(offset, length);
        Box::pin(async move {
            let change = commits.before_change(&[blocks]).await;
            let result = make(&*inner).await;
            drop(change);
            result
        })
    }
}

impl Store for OrderedStore {
    fn inner(&self) -> Option<&dyn Store> {
        Some(&*self.inner)
    }

    fn facts(&self) -> Facts {
        self.inner.facts()
    }

    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        self.inner.read(offset, into)
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        self.change((offset, length), move |store| store.write(offset, data, durable))
    }

    fn takes_many(&self) -> bool {
        self.inner.takes_many()
    }

    fn write_many(&self, writes: Vec<ManyWrite>, here: bool, written: ManyWritten) {
        let blocks_of = |one: &ManyWrite| {
            let length = one.data.iter().map(|piece| piece.len() as u64).sum::<u64>();
            self.geometry.blocks(one.offset, length.max(1))
        };
        let blocks: Vec<RangeInclusive<u64>> = writes.iter().map(blocks_of).collect();
        let (inner, commits) = (Arc::clone(&self.inner), Arc::clone(&self.commits));
        if let Some(change) = commits.try_change(&blocks) {
            return inner.write_many(writes, here, after(change, written));
        }
        Handle::current().spawn(async move {
            let change = commits.before_change(&blocks).await;
            inner.write_many(writes, false, after(change, written));
        });
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        self.change((offset, length), move |store| store.zero(offset, length, how, durable))
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.change((offset, length), move |store| store.trim(offset, length, durable))
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        let (covered, commits) = (self.commits.answered(), Arc::clone(&self.commits));
        let flushed = self.inner.flush();
        Box::pin(async move {
            let result = flushed.await;
            if result.is_ok() {
                commits.flushed(covered);
            }
            result
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.inner.extents(offset, length)
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.inner.reload()
    }
}

/// Holds the change until its writes are answered.
fn after(change: impl Send + 'static, written: ManyWritten) -> ManyWritten {
    Box::new(move |results| {
        drop(change);
        written(results);
    })
}
