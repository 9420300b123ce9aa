//! MQ's queues as logs of uses ([`crate::log`]). All that is known of a block, and where it stands,
//! are 16 bytes: a reference touches one scattered place. When a block would fall lies in the log,
//! since only the heads are asked for it.

use super::super::ghosts::GhostList;
use super::queues::{NOWHERE, Queues, Uses};
use crate::Entry;
use crate::log::{Log, Places};

/// The queue is in the lowest bits of `last`, so that a record does not need 24 bytes.
#[derive(Clone, Copy, Debug)]
struct Block {
    last_and_queue: u64,
    count: u32,
    slot: u32,
}

const QUEUE_BITS: u32 = u8::BITS;

impl Default for Block {
    fn default() -> Self {
        Self { last_and_queue: NOWHERE.into(), count: 0, slot: 0 }
    }
}

impl Block {
    #[inline(always)]
    fn queue(self) -> u32 {
        u32::from(self.last_and_queue as u8)
    }

    #[inline(always)]
    fn set_queue(&mut self, queue: u32) {
        self.last_and_queue = self.last_and_queue >> QUEUE_BITS << QUEUE_BITS | u64::from(queue);
    }
}

#[derive(Clone)]
struct Blocks(Vec<Block>);

impl Places for Blocks {
    const SLOTS: u32 = 1 << 31;

    #[inline(always)]
    fn is_at(&self, entry: Entry, queue: u32, slot: u32) -> bool {
        let block = self.0[entry as usize];
        (block.slot == slot) & (block.queue() == queue)
    }

    #[inline(always)]
    fn put(&mut self, entry: Entry, queue: u32, slot: u32) {
        let block = &mut self.0[entry as usize];
        block.set_queue(queue);
        block.slot = slot;
    }

    #[inline(always)]
    fn shift(&mut self, entry: Entry, queue: u32, from: u32, to: u32) -> bool {
        let block = &mut self.0[entry as usize];
        let counts = (block.slot == from) & (block.queue() == queue);
        block.slot = if counts { to } else { block.slot };
        counts
    }
}

/// A time in halves: beside the entry it takes 8 bytes, and no 4 more to be aligned.
#[derive(Clone, Copy, Debug, Default)]
struct ExpireTime([u32; 2]);

impl ExpireTime {
    #[inline(always)]
    fn new(time: u64) -> Self {
        Self([time as u32, (time >> 32) as u32])
    }

    #[inline(always)]
    fn get(self) -> u64 {
        u64::from(self.0[0]) | u64::from(self.0[1]) << 32
    }
}

/// See [`Queues`].
#[derive(Clone)]
pub(super) struct Logged {
    residents: Vec<Log<ExpireTime>>,
    q_out: Log,
    blocks: Blocks,
}

impl Logged {
    /// `m` queues of residents.
    pub(super) fn new(m: u32) -> Self {
        Self {
            residents: (0..m).map(|queue| Log::new(queue, 4)).collect(),
            q_out: Log::new(m, 2),
            blocks: Blocks(Vec::new()),
        }
    }
}

impl GhostList for Logged {
    #[inline(always)]
    fn len(&self, queue: u32) -> u32 {
        self.residents.get(queue as usize).map_or(self.q_out.len(), Log::len)
    }

    #[inline(always)]
    fn remember(&mut self, queue: u32, entry: Entry) {
        debug_assert_eq!(queue, self.m());
        self.q_out.push(&mut self.blocks, entry, ());
    }

    #[inline(always)]
    fn pop(&mut self, queue: u32) -> Option<Entry> {
        debug_assert_eq!(queue, self.m());
        let oldest = self.q_out.front(&self.blocks)?;
        self.blocks.0[oldest as usize].set_queue(NOWHERE);
        self.q_out.left();
        Some(oldest)
    }

    #[inline(always)]
    fn forget(&mut self, entry: Entry) {
        self.blocks.0[entry as usize] = Block::default();
    }
}

impl Queues for Logged {
    const IS_AWARE: bool = false;
    const TIME_MAX: u64 = u64::MAX >> QUEUE_BITS;

    #[inline(always)]
    fn m(&self) -> u32 {
        self.residents.len() as u32
    }

    fn grow(&mut self, entries: u32) {
        let Blocks(blocks) = &mut self.blocks;
        blocks.resize(blocks.len().max(entries as usize), Block::default());
    }

    fn entries(&self) -> u32 {
        self.blocks.0.len() as u32
    }

    #[inline(always)]
    fn queue_of(&self, entry: Entry) -> u32 {
        self.blocks.0[entry as usize].queue()
    }

    #[inline(always)]
    fn uses(&self, entry: Entry) -> Uses {
        let Block { last_and_queue, count, .. } = self.blocks.0[entry as usize];
        Uses { count, last: last_and_queue >> QUEUE_BITS }
    }

    #[inline(always)]
    fn set_uses(&mut self, entry: Entry, uses: Uses) {
        let block = &mut self.blocks.0[entry as usize];
        let queue = u64::from(block.queue());
        (block.count, block.last_and_queue) = (uses.count, uses.last << QUEUE_BITS | queue);
    }

    #[inline(always)]
    fn push(&mut self, queue: u32, entry: Entry, expire_time: u64) {
        match self.residents.get_mut(queue as usize) {
            Some(log) => log.push(&mut self.blocks, entry, ExpireTime::new(expire_time)),
            None => self.q_out.push(&mut self.blocks, entry, ()),
        }
    }

    #[inline(always)]
    fn remove(&mut self, entry: Entry) -> bool {
        let block = &mut self.blocks.0[entry as usize];
        let (queue, slot) = (block.queue(), block.slot);
        block.set_queue(NOWHERE);
        match self.residents.get_mut(queue as usize) {
            Some(log) => {
                log.left();
                log.may_be_front(slot)
            }
            None => {
                self.q_out.left();
                false
            }
        }
    }

    /// One write beside the log's own: the entry says where it was until it is elsewhere.
    #[inline(always)]
    fn renew(&mut self, entry: Entry, expire_time: u64) -> bool {
        let block = self.blocks.0[entry as usize];
        let log = &mut self.residents[block.queue() as usize];
        let may_be_head = log.may_be_front(block.slot);
        log.renew(&mut self.blocks, entry, ExpireTime::new(expire_time));
        may_be_head
    }

    #[inline(always)]
    fn front(&mut self, queue: u32) -> Option<(Entry, u64)> {
        let head = self.residents[queue as usize].front_with(&self.blocks);
        head.map(|(entry, time)| (entry, time.get()))
    }

    fn iter(&self, queue: u32) -> impl Iterator<Item = (Entry, u64)> {
        let log = self.residents.get(queue as usize);
        let residents = log.into_iter().flat_map(|log| log.iter(&self.blocks));
        let q_out = (queue == self.m()).then_some(&self.q_out);
        let ghosts = q_out.into_iter().flat_map(|log| log.iter(&self.blocks));
        residents
            .map(|(entry, time)| (entry, time.get()))
            .chain(ghosts.map(|(entry, ())| (entry, 0)))
    }

    #[inline(always)]
    fn warm(&self, entry: Entry) -> u32 {
        self.blocks.0[entry as usize].slot
    }

    fn check(&self) -> Result<(), String> {
        self.residents.iter().try_for_each(|log| log.check(&self.blocks))?;
        self.q_out.check(&self.blocks)?;
        let named = self.blocks.0.iter().filter(|block| block.queue() != NOWHERE).count() as u32;
        let len = (0..=self.m()).map(|queue| self.len(queue)).sum::<u32>();
        if named == len { Ok(()) } else { Err(format!("{named} name a queue, {len} are in one")) }
    }
}
