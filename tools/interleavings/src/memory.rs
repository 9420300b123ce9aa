//! Memory for a pool of frames, without a mapping of the system.

use std::ptr::NonNull;
use std::sync::Arc;

use crate::pool::Pool;

pub(crate) struct Mapping(#[allow(dead_code, reason = "keeps the memory")] Box<[u8]>);

impl Mapping {
    /// There is no system to give memory back to.
    pub(crate) fn give_back(&self, _: NonNull<u8>, _: std::ops::Range<usize>) {}

    /// A pool of so many frames.
    pub(crate) fn pool(count: u32, frame_bytes: usize) -> Pool {
        let mut bytes = vec![0; count as usize * frame_bytes].into_boxed_slice();
        let base = NonNull::from(&mut *bytes).cast();
        Pool::new(Arc::new(Mapping(bytes)), base, count, frame_bytes)
    }
}
