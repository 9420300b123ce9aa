//! The channels of a flash level: each reads or writes one block at a time. A read goes before the
//! writes that wait for its channel, and waits for what the channel is doing.

use crate::flash::FlashTimes;

pub(super) struct Channels {
    read_ns: u64,
    write_ns: u64,
    channels: Vec<Channel>,
    /// The channel that the next write goes to.
    next: usize,
    /// Nanoseconds in which channels read and wrote.
    pub(super) busy_ns: [u64; 2],
}

#[derive(Clone, Default)]
struct Channel {
    free_at: u64,
    /// Writes that wait.
    writes: u64,
}

impl Channels {
    pub(super) fn new(times: FlashTimes) -> Self {
        Self {
            read_ns: times.read_us * 1000,
            write_ns: times.write_us * 1000,
            channels: vec![Channel::default(); times.channels as usize],
            next: 0,
            busy_ns: [0; 2],
        }
    }

    /// The time at which a block that is asked for now has been read.
    pub(super) fn read(&mut self, block: u64, now: u64) -> u64 {
        let at = (block % self.channels.len() as u64) as usize;
        self.settle(at, now);
        let channel = &mut self.channels[at];
        channel.free_at = channel.free_at.max(now) + self.read_ns;
        self.busy_ns[0] += self.read_ns;
        channel.free_at
    }

    /// Reads a block if its channel has nothing else to do. Returns whether it has.
    pub(super) fn read_when_idle(&mut self, block: u64, now: u64) -> bool {
        let at = (block % self.channels.len() as u64) as usize;
        self.settle(at, now);
        let is_idle = self.channels[at].free_at <= now;
        if is_idle {
            self.read(block, now);
        }
        is_idle
    }

    /// Blocks are to be written.
    pub(super) fn write(&mut self, blocks: u64, now: u64) {
        for _ in 0..blocks {
            let at = self.next;
            self.next = (at + 1) % self.channels.len();
            self.settle(at, now);
            let channel = &mut self.channels[at];
            if channel.writes == 0 {
                channel.free_at = channel.free_at.max(now);
            }
            channel.writes += 1;
        }
    }

    /// Shares of `elapsed_ns` in which the channels read and wrote.
    pub(super) fn busy(&self, elapsed_ns: f64) -> [f64; 2] {
        self.busy_ns.map(|ns| ns as f64 / elapsed_ns / self.channels.len() as f64)
    }

    /// Does the writes that a channel has begun by now.
    fn settle(&mut self, at: usize, now: u64) {
        let channel = &mut self.channels[at];
        let idle_ns = now.saturating_sub(channel.free_at);
        let done = channel.writes.min(idle_ns.div_ceil(self.write_ns.max(1)));
        channel.writes -= done;
        channel.free_at += done * self.write_ns;
        self.busy_ns[1] += done * self.write_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::Channels;
    use crate::flash::FlashTimes;

    #[test]
    fn reads_go_before_writes_that_wait() {
        let mut one = Channels::new(FlashTimes { read_us: 100, write_us: 200, channels: 1 });
        one.write(3, 1000);
        // The first write has begun; the two others wait for the read.
        assert_eq!(one.read(7, 51_000), 201_000 + 100_000);
        assert_eq!(one.read(7, 290_000), 401_000);
        assert!(!one.read_when_idle(7, 300_000));
        // By then the channel has been idle for long enough.
        assert_eq!(one.read(7, 10_000_000), 10_100_000);
        assert_eq!(one.busy_ns, [300_000, 600_000]);
    }
}
