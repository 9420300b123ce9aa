//! Hints that wait to be sent, and the messages made of them. No I/O.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use crate::record::{BLOCKS_MAX, BlockRun, EvictFlags, Hint};

/// Most hints in a message.
const BATCH_MAX: usize = 64;

/// Most hints that wait while a message is unanswered. If the server is too slow, the oldest one is
/// dropped: old hints are worth least.
const WAITING_MAX: usize = 4 * BATCH_MAX;

/// Most bytes of a hint beside its data: a head, the fields of the longest hint, and padding.
const HINT_BYTES: usize = 32;

/// An eviction that has not been sent to the server.
#[derive(Debug)]
struct Waiting {
    block: u64,
    since: Instant,
    /// The block's data, if it is to be handed over.
    data: Option<Bytes>,
    /// The client wrote the block to the server because it was about to evict it.
    was_dirty: bool,
    /// The request that is about to be sent caused the eviction.
    rides: bool,
    /// Number of hints queued before it.
    number: u64,
}

/// Hints set aside by [`HintQueue::set_aside`].
#[derive(Debug)]
pub struct Late(VecDeque<Waiting>);

/// The records of a message, and the blocks that it hands over.
#[derive(Debug, Default)]
pub struct Message {
    /// Its records.
    pub hints: Vec<Hint>,
    /// The blocks whose data it contains.
    pub handed_over: Vec<u64>,
}

impl Message {
    /// The encoded message.
    pub fn bytes(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        self.hints.iter().for_each(|hint| hint.put(&mut bytes));
        bytes.freeze()
    }
}

/// The queue of hints, in the order of the evictions. A hint can *ride*: it goes in front of the
/// request that caused its eviction.
///
/// ```
/// use std::time::Instant;
/// use undercroft_hints::{Hint, HintQueue};
///
/// let mut queue = HintQueue::new(2);
/// let now = Instant::now();
/// queue.add(7, None, now);
/// queue.add(8, None, now);
/// assert!(queue.is_due());
/// let message = queue.take(now, 1 << 20).unwrap();
/// assert!(matches!(&message.hints[..], [Hint::Evict { runs, .. }] if runs[0].count() == 2));
/// ```
#[derive(Debug)]
pub struct HintQueue {
    waiting: VecDeque<Waiting>,
    added: u64,
    batch: usize,
    sequence: u32,
    counts: HintCounts,
}

/// Counts of hints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintCounts {
    /// Evicted blocks that messages contained.
    pub told: u64,
    /// Those of them that were sent with their data.
    pub handed_over: u64,
    /// Hints dropped because too many waited.
    pub lost: u64,
}

impl HintQueue {
    /// A queue that has a message due as soon as `batch` hints (1 to 64) wait.
    pub fn new(batch: usize) -> HintQueue {
        let batch = batch.clamp(1, BATCH_MAX);
        let counts = HintCounts::default();
        HintQueue { waiting: VecDeque::new(), added: 0, batch, sequence: 0, counts }
    }

    /// Adds the eviction of a block that the request about to be sent has caused.
    pub fn add_rider(&mut self, block: u64, data: Option<Bytes>, since: Instant) {
        self.push(Waiting { block, since, data, was_dirty: false, rides: true, number: 0 });
    }

    /// Adds the eviction of a block.
    pub fn add(&mut self, block: u64, data: Option<Bytes>, since: Instant) {
        self.push(Waiting { block, since, data, was_dirty: false, rides: false, number: 0 });
    }

    /// Adds the eviction of a dirty block that was first written to the server.
    pub fn add_written(&mut self, block: u64, since: Instant) {
        let data = None;
        self.push(Waiting { block, since, data, was_dirty: true, rides: false, number: 0 });
    }

    /// Marks these waiting evictions as caused by the request that is about to be sent.
    pub fn ride(&mut self, blocks: &[u64]) {
        let theirs = |waiting: &&mut Waiting| blocks.contains(&waiting.block);
        self.waiting.iter_mut().filter(theirs).for_each(|waiting| waiting.rides = true);
    }

    fn push(&mut self, mut waiting: Waiting) {
        if waiting.block >= BLOCKS_MAX {
            // The format cannot express its number.
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            self.counts.lost += 1;
            // The server sees the loss as a gap in the sequence.
            self.sequence = self.sequence.wrapping_add(1);
        }
        waiting.number = self.added;
        self.added += 1;
        self.waiting.push_back(waiting);
    }

    /// Number of hints added so far.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// Removes all but the first `added` hints, so that a delayed request does not carry evictions
    /// that happened after it. [`put_back`](Self::put_back) restores them.
    pub fn set_aside(&mut self, added: u64) -> Late {
        let at = self.waiting.partition_point(|waiting| waiting.number < added);
        Late(self.waiting.split_off(at))
    }

    /// Puts back the hints that were set aside.
    pub fn put_back(&mut self, mut late: Late) {
        self.waiting.append(&mut late.0);
    }

    /// The request has been sent: hints that did not go with it no longer ride.
    pub fn depart(&mut self) {
        self.waiting.iter_mut().for_each(|waiting| waiting.rides = false);
    }

    /// Removes the hint of a block that has entered the cache again.
    pub fn cancel(&mut self, block: u64) {
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.block == block) {
            self.waiting.remove(at);
        }
    }

    /// Removes the hints of blocks that are about to enter the cache again.
    pub fn cancel_within(&mut self, blocks: &Range<u64>) {
        self.waiting.retain(|waiting| !blocks.contains(&waiting.block));
    }

    /// Whether a hint waits for one of these blocks and does not ride.
    pub fn concerns(&self, blocks: &Range<u64>) -> bool {
        self.waiting.iter().any(|waiting| !waiting.rides && blocks.contains(&waiting.block))
    }

    /// Drops all waiting hints and returns their number.
    pub fn clear(&mut self) -> u64 {
        let count = self.waiting.len() as u64;
        self.waiting.clear();
        count
    }

    /// Drops the data of blocks that are about to change; their hints stay.
    pub fn keep_data(&mut self, blocks: &Range<u64>) {
        let changing = self.waiting.iter_mut().filter(|waiting| blocks.contains(&waiting.block));
        changing.for_each(|waiting| waiting.data = None);
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether enough hints wait for a message.
    pub fn is_due(&self) -> bool {
        self.waiting.len() >= self.batch
    }

    /// How long the oldest hint has waited.
    pub fn waits_since(&self, now: Instant) -> Duration {
        let oldest = self.waiting.front().map_or(now, |waiting| waiting.since);
        now.saturating_duration_since(oldest)
    }

    /// The counts so far.
    pub fn counts(&self) -> HintCounts {
        self.counts
    }

    /// Takes out the next message, of about `bytes_max` bytes at most. None if nothing waits.
    pub fn take(&mut self, now: Instant, bytes_max: usize) -> Option<Message> {
        let mut message = Message::default();
        let mut bytes = 0;
        let mut list = List::default();
        for _ in 0..BATCH_MAX {
            let Some(next) = self.waiting.front_mut() else { break };
            bytes += HINT_BYTES + next.data.as_ref().map_or(0, Bytes::len);
            if bytes > bytes_max {
                if !message.hints.is_empty() || list.oldest.is_some() {
                    break;
                }
                // Data that fit in no message are not sent.
                next.data = None;
            }
            let Some(next) = self.waiting.pop_front() else { break };
            let Waiting { block, since, data, was_dirty, rides, .. } = next;
            let flags = EvictFlags { was_dirty, rides, ..EvictFlags::default() };
            self.counts.told += 1;
            self.counts.handed_over += u64::from(data.is_some());
            if data.is_some() || list.flags != flags {
                self.close_list(&mut list, now, &mut message);
            }
            match data {
                Some(data) => {
                    message.handed_over.push(block);
                    message.hints.push(Hint::Demote { block, rides, data });
                }
                None => list.add(block, since, flags),
            }
        }
        self.close_list(&mut list, now, &mut message);
        (!message.hints.is_empty()).then_some(message)
    }

    /// Ends a list of evictions and adds its record to the message.
    fn close_list(&mut self, list: &mut List, now: Instant, message: &mut Message) {
        let List { oldest: Some(oldest), flags, runs } = std::mem::take(list) else { return };
        let age_us = microseconds_up(now.saturating_duration_since(oldest));
        message.hints.push(Hint::Evict { age_us, sequence: self.sequence, flags, runs });
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// Evictions that share one record.
#[derive(Default)]
struct List {
    oldest: Option<Instant>,
    flags: EvictFlags,
    runs: Vec<BlockRun>,
}

impl List {
    fn add(&mut self, block: u64, since: Instant, flags: EvictFlags) {
        self.oldest = Some(self.oldest.map_or(since, |oldest| oldest.min(since)));
        self.flags = flags;
        if let Some(last) = self.runs.last_mut() {
            let longer = BlockRun::new(last.first(), last.count() + 1);
            if let Some(longer) = longer.filter(|_| last.blocks().end == block) {
                *last = longer;
                return;
            }
        }
        self.runs.extend(BlockRun::new(block, 1));
    }
}

fn microseconds_up(time: Duration) -> u32 {
    u32::try_from(time.as_nanos().div_ceil(1000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(hint: &Hint) -> Vec<u64> {
        match hint {
            Hint::Evict { runs, .. } => runs.iter().flat_map(|run| run.blocks()).collect(),
            Hint::Demote { block, .. } => vec![*block],
            other => panic!("not an eviction: {other:?}"),
        }
    }

    #[test]
    fn what_rides_has_a_record_of_its_own_behind_what_waited() {
        let mut queue = HintQueue::new(3);
        let start = Instant::now();
        queue.add(7, None, start);
        queue.add(8, None, start + Duration::from_micros(5));
        assert!(!queue.is_due());
        let now = start + Duration::from_nanos(9_001);
        queue.add_rider(3, None, now);
        assert!(queue.is_due());
        let message = queue.take(now, 1 << 20).unwrap();
        let rides = EvictFlags { rides: true, ..EvictFlags::default() };
        let evict = |age_us, sequence, flags, first, count| {
            let runs = vec![BlockRun::new(first, count).unwrap()];
            Hint::Evict { age_us, sequence, flags, runs }
        };
        // The age is that of the oldest eviction, rounded up; blocks 7 and 8 make one run.
        let waited = evict(10, 0, EvictFlags::default(), 7, 2);
        assert_eq!(message.hints, [waited, evict(0, 1, rides, 3, 1)]);
        assert!(queue.is_empty() && queue.take(now, 1 << 20).is_none());
    }

    #[test]
    fn what_missed_its_request_rides_no_more() {
        let mut queue = HintQueue::new(1);
        let now = Instant::now();
        queue.add_rider(1, None, now);
        queue.depart();
        queue.add_rider(2, None, now);
        let message = queue.take(now, 1 << 20).unwrap();
        let rides = |hint: &Hint| matches!(hint, Hint::Evict { flags, .. } if flags.rides);
        assert_eq!(message.hints.iter().map(rides).collect::<Vec<_>>(), [false, true]);
    }

    #[test]
    fn what_waits_can_be_made_to_ride_and_what_was_dirty_is_said() {
        let mut queue = HintQueue::new(1);
        let now = Instant::now();
        (1..3).for_each(|block| queue.add(block, None, now));
        queue.add_written(3, now);
        queue.add(7, None, now);
        queue.ride(&[2, 99]);
        assert!(queue.concerns(&(0..2)) && !queue.concerns(&(2..3)));
        queue.cancel_within(&(5..9));
        let message = queue.take(now, 1 << 20).unwrap();
        let said = |hint: &Hint| match hint {
            Hint::Evict { flags, .. } => (blocks(hint), flags.rides, flags.was_dirty),
            other => panic!("not an eviction: {other:?}"),
        };
        let expected = [(vec![1], false, false), (vec![2], true, false), (vec![3], false, true)];
        assert_eq!(message.hints.iter().map(said).collect::<Vec<_>>(), expected);
        queue.add(4, None, now);
        let known = queue.added();
        queue.add(5, None, now);
        let late = queue.set_aside(known);
        let taken = queue.take(now, 1 << 20).unwrap();
        assert_eq!(taken.hints.iter().flat_map(blocks).collect::<Vec<_>>(), [4]);
        assert!(queue.is_empty());
        queue.put_back(late);
        assert_eq!((queue.clear(), queue.is_empty()), (1, true));
    }

    #[test]
    fn what_came_back_is_not_told() {
        let mut queue = HintQueue::new(1);
        let now = Instant::now();
        (1..4).for_each(|block| queue.add(block, None, now));
        queue.add_rider(4, None, now);
        queue.cancel(2);
        queue.cancel(4);
        queue.cancel(99);
        let message = queue.take(now, 1 << 20).unwrap();
        assert_eq!(message.hints.iter().flat_map(blocks).collect::<Vec<_>>(), [1, 3]);
        assert!(matches!(&message.hints[..], [Hint::Evict { flags, .. }] if !flags.rides));
    }

    #[test]
    fn data_goes_until_the_block_changes_and_messages_keep_to_their_size() {
        let mut queue = HintQueue::new(1);
        let now = Instant::now();
        for block in 0..10 {
            queue.add(block, Some(vec![block as u8; 4096].into()), now);
        }
        queue.keep_data(&(0..2));
        let message = queue.take(now, 9000).unwrap();
        assert_eq!(message.handed_over, [2, 3]);
        assert_eq!(message.hints.len(), 3);
        assert!(message.bytes().len() <= 9000);
        assert_eq!(queue.take(now, 1 << 20).unwrap().handed_over, [4, 5, 6, 7, 8, 9]);
    }

    #[test]
    fn the_queue_is_bounded_and_losses_leave_a_gap() {
        let mut queue = HintQueue::new(1);
        let now = Instant::now();
        for block in 0..WAITING_MAX as u64 + 5 {
            queue.add(block * 2, None, now);
        }
        assert_eq!((queue.counts().lost, queue.waiting.len()), (5, WAITING_MAX));
        let message = queue.take(now, 1 << 20).unwrap();
        assert_eq!(message.hints.iter().flat_map(blocks).count(), BATCH_MAX);
        assert!(matches!(message.hints[0], Hint::Evict { sequence: 5, .. }));
    }
}
