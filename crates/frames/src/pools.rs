//! The frames of a cache whose size may change: a pool, and further ones that came with its growth.
//!
//! When it shrinks, the frames of the youngest pools go first, and of a pool the last ones. What
//! lies in them must be moved by whoever holds them ([`Frame::is_surplus`](crate::Frame)); then
//! their memory is given back to the system.

use crate::memory::{Memory, MemoryError};
use crate::pool::{FrameMut, Pool};

/// Pools of frames of one size, as one supply.
pub struct Pools(Vec<Pool>);

impl From<Pool> for Pools {
    fn from(first: Pool) -> Self {
        Self(vec![first])
    }
}

impl Pools {
    /// A free frame for writing, with whatever it held last; `None` while all are in use.
    #[inline]
    pub fn take(&self) -> Option<FrameMut> {
        self.0.iter().find_map(Pool::take)
    }

    /// Frames that are in nobody's hands just now.
    pub fn free_count(&self) -> usize {
        self.0.iter().map(Pool::free_count).sum()
    }

    /// Frames that are given out, or may be.
    pub fn count(&self) -> u32 {
        self.0.iter().map(Pool::count).sum()
    }

    /// Frames that are no longer given out, and whose memory is not the system's yet.
    pub fn surplus(&self) -> u32 {
        self.0.iter().map(Pool::surplus).sum()
    }

    /// Changes the number of frames, as far as the memory that was given suffices. Returns how many
    /// frames are missing: give them by [`add`](Self::add).
    pub fn resize(&mut self, count: u32) -> u32 {
        let mut left = count;
        for pool in &self.0 {
            left -= pool.resize(left);
        }
        left
    }

    /// Adds frames in new memory.
    ///
    /// # Errors
    /// The memory does not suffice.
    pub fn add(&mut self, memory: &Memory, count: u32) -> Result<(), MemoryError> {
        let frame_bytes = self.0.first().map_or(4096, Pool::frame_bytes);
        self.0.push(memory.pool(count, frame_bytes)?);
        Ok(())
    }

    /// Gives the memory of surplus frames back to the system, as far as nobody holds one. Returns
    /// whether that is done for all.
    pub fn give_back(&mut self) -> bool {
        let left = self.0.iter().filter(|pool| !pool.give_back()).count();
        let is_done = left == 0;
        if is_done {
            // Without a frame in use, the whole mapping goes.
            let mut number = 0;
            self.0.retain(|pool| {
                number += 1;
                number == 1 || pool.count() > 0
            });
        }
        is_done
    }
}
