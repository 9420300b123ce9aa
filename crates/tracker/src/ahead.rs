//! Prefetches memory that will be needed. Otherwise most of a tracked call's time would be spent
//! waiting for cache lines of the table that other processors hold, or that are in no cache.

use std::sync::atomic::AtomicU64;

/// Prefetches the cache line of a word for writing. This has no visible effect.
#[inline(always)]
pub(crate) fn write(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: prefetching affects caches only, and the address is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(word.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
