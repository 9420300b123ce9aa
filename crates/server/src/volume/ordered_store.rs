//! A store below a level on flash that is warm after a restart: each change of a range waits until
//! the device says durably that no copy of it counts ([`VolumeFlash::before_change`]).
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
use crate::volume::flash::VolumeFlash;
use crate::volume::flash_commits::Levels;

/// The store, in order with the journals.
struct OrderedStore {
    inner: Arc<dyn Store>,
    flash: Arc<VolumeFlash>,
    geometry: Arc<Geometry>,
}

/// A volume's store, whose changes wait for flash if they may have to, and its level on flash,
/// which it has not taken yet.
pub(super) fn ordered(
    inner: Arc<dyn Store>,
    config: &VolumeConfig,
    levels: Arc<dyn Levels>,
    geometry: &Arc<Geometry>,
    runtime: &Handle,
) -> (Arc<dyn Store>, Arc<VolumeFlash>) {
    let flash = Arc::new(VolumeFlash::new(config, levels, geometry, &inner, runtime));
    if !flash.orders_changes() {
        return (inner, flash);
    }
    let geometry = Arc::clone(geometry);
    (Arc::new(OrderedStore { inner, flash: Arc::clone(&flash), geometry }), flash)
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
        let (inner, flash) = (Arc::clone(&self.inner), Arc::clone(&self.flash));
        let blocks = self.geometry.blocks(offset, length);
        Box::pin(async move {
            let change = flash.before_change(&[blocks]).await;
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
        let (inner, flash) = (Arc::clone(&self.inner), Arc::clone(&self.flash));
        if let Some(change) = flash.try_change(&blocks) {
            return inner.write_many(writes, here, after(change, written));
        }
        Handle::current().spawn(async move {
            let change = flash.before_change(&blocks).await;
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
        let changes = Arc::clone(&self.flash.changes);
        let covered = changes.answered();
        let flushed = self.inner.flush();
        Box::pin(async move {
            let result = flushed.await;
            if result.is_ok() {
                changes.flushed(covered);
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
