//! What a level of a scheme of movement has yet to say to the level below it: blocks that go down,
//! and the messages made of them. No I/O.
//!
//! Not here: what a level decides, the connection (`level_link.rs`), and the format of the records
//! (`level.rs`).

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::level::{Asked, Moves};
use crate::record::{BLOCKS_MAX, BlockRun, Hint};

/// Most blocks that wait to go down. Beyond that the oldest is lost: the server is slow.
const WAITING_MAX: usize = 256;

/// Bytes of the records of a block that goes down, beside its data: FREQ, and the head of DEMOTE.
const DOWN_BYTES: usize = 64;

/// Bytes of the record of a request.
const ASK_BYTES: usize = 32;

/// A block that has left a level downwards.
#[derive(Clone, Debug)]
pub struct Departed {
    /// The block.
    pub block: u64,
    /// References that clients had made by then, the one that drove it out included.
    pub time: u64,
    /// What goes with it; `references` is found when it is sent.
    pub moves: Moves,
    /// All of its bytes.
    pub data: Bytes,
}

/// What is said of a request for a block, with the time of the reference that it is for.
#[derive(Clone, Copy, Debug)]
pub struct AskedAt {
    /// References that clients had made by then, this one included.
    pub time: u64,
    /// The rest; `references` is found when it is sent.
    pub asked: Asked,
}

/// What waits to go down, and until when the level below knows the time.
#[derive(Debug, Default)]
pub struct LevelQueue {
    waiting: VecDeque<Departed>,
    told: u64,
    /// Blocks that were never sent since too many waited.
    pub lost: u64,
}

/// A message, and which blocks go down in it.
#[derive(Debug, Default)]
pub struct LevelMessage {
    /// The message as it is sent; empty if there is nothing to say.
    pub bytes: Bytes,
    /// The blocks of which it has the data.
    pub handed_over: Vec<u64>,
    /// Requests that it speaks of.
    pub asked: usize,
}

impl LevelQueue {
    /// A block is to go down.
    pub fn push(&mut self, departed: Departed) {
        if departed.block >= BLOCKS_MAX {
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
            self.lost += 1;
        }
        self.waiting.push_back(departed);
    }

    /// Whether one of these blocks waits to go down.
    pub fn concerns(&self, blocks: &Range<u64>) -> bool {
        self.waiting.iter().any(|departed| blocks.contains(&departed.block))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Forgets what waits: how many blocks.
    pub fn clear(&mut self) -> u64 {
        let count = self.waiting.len() as u64;
        self.waiting.clear();
        count
    }

    /// References from what was said last to this time.
    fn references_to(&mut self, time: u64) -> u32 {
        let passed = time.saturating_sub(self.told);
        self.told = self.told.max(time);
        u32::try_from(passed).unwrap_or(u32::MAX)
    }

    /// Takes out what goes in front of the next request, of at most `bytes_max`, and what is said
    /// of the request itself. Some may be left if that is too much.
    pub fn message(&mut self, asks: &[AskedAt], bytes_max: usize) -> LevelMessage {
        let mut message = LevelMessage { asked: asks.len(), ..LevelMessage::default() };
        let mut bytes = BytesMut::new();
        let room = bytes_max.saturating_sub(asks.len() * ASK_BYTES);
        while let Some(next) = self.waiting.front() {
            if bytes.len() + DOWN_BYTES + next.data.len().next_multiple_of(8) > room {
                break;
            }
            let Some(Departed { block, time, moves, data }) = self.waiting.pop_front() else {
                break;
            };
            let moves = Moves { references: self.references_to(time), ..moves };
            let Some(run) = BlockRun::new(block, 1) else { continue };
            Hint::Frequency { run, hits: 0, last_idle: 0, moves: Some(moves) }.put(&mut bytes);
            Hint::Demote { block, rides: false, data }.put(&mut bytes);
            message.handed_over.push(block);
        }
        for &AskedAt { time, asked } in asks {
            let references = self.references_to(time);
            Hint::Ask(Asked { references, ..asked }).put(&mut bytes);
        }
        message.bytes = bytes.freeze();
        message
    }
}
