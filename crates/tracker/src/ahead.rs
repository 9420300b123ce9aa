//! Memory that will be needed is asked for before it is: most of a tracked call's time would else
//! be waits for lines of the table that other processors have, or that are in no cache.

use std::sync::atomic::AtomicU64;

/// Has the line of a word brought near, to be written to. Changes nothing that a program can see.
#[inline(always)]
pub(crate) fn write(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: fetching ahead has no effect but on caches, and the address is valid.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_ET0>(word.as_ptr().cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
