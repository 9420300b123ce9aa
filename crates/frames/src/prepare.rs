//! Memory that is taken from the system before somebody needs it, a huge page at a time. What is
//! prepared is the mapping that there is (`memory.rs`): never more than its budget.

use std::fs;
use std::sync::Weak;
use std::thread;
use std::time::Instant;

use crate::memory::{HUGE_PAGE_BYTES, Mapping};

/// After so many bytes it is looked how much memory the machine has left.
const LOOK_BYTES: usize = 64 << 20;

/// This part of the machine's memory is left alone: a cache may be larger than what is there, as
/// long as nobody fills it.
const LEFT_SHARE: u64 = 8;

/// Prepares a mapping as long as it is in use: how many bytes were.
///
/// Between two pages the thread rests as long as the last one took, so that it never takes more
/// than half a processor, and less on a busy machine. It has no low priority, since the system lets
/// nobody else change what is mapped while a page is being made: at a low priority that could last.
pub(crate) fn prepare(mapping: &Weak<Mapping>) -> usize {
    let mut done = 0;
    while let Some(mapping) = mapping.upgrade() {
        let is_over = done == mapping.bytes() || (done % LOOK_BYTES == 0 && is_scarce());
        let begun = Instant::now();
        // Before Linux 5.14 it cannot be done without writing to frames that may have an owner.
        if is_over || !mapping.populate(done) {
            break;
        }
        drop(mapping);
        done += HUGE_PAGE_BYTES;
        thread::sleep(begun.elapsed());
    }
    done
}

/// Whether the machine has little memory left. If it does not tell, it has enough.
fn is_scarce() -> bool {
    let told = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = |name| {
        let line = told.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    };
    match (kib("MemAvailable:"), kib("MemTotal:")) {
        (Some(left), Some(all)) => left < all / LEFT_SHARE,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Memory;

    #[test]
    fn memory_that_nobody_uses_any_more_is_not_prepared() {
        let memory = Memory::new(4 * HUGE_PAGE_BYTES).unwrap();
        let mapping = Arc::downgrade(&memory.0);
        let pool = memory.pool(1, 4096).unwrap();
        drop(memory);
        assert_eq!(prepare(&mapping), 4 * HUGE_PAGE_BYTES, "the pool uses it");
        drop(pool);
        assert_eq!(prepare(&mapping), 0);
        assert!(mapping.upgrade().is_none(), "the mapping does not outlive its users");
    }
}
