//! What a level of a movement scheme has still to send to the level below it: blocks that move
//! down, and the messages made of them. No I/O.
//!
//! Not here: the decisions of the level, the connection (`level_link.rs`), and the format of the
//! records (`level.rs`).

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::level::{Asked, Moves};
use crate::record::{BLOCKS_MAX, BlockRun, Hint};

/// Most blocks that wait to move down. If the server is too slow, the oldest one is dropped.
const WAITING_MAX: usize = 256;

/// Bytes of the records of a block that moves down, without its data: FREQ, and the head of DEMOTE.
const DOWN_BYTES: usize = 64;

/// Bytes of the record of a request.
const ASK_BYTES: usize = 32;

/// A block that left a level downwards.
#[derive(Clone, Debug)]
pub struct Departed {
    /// The block.
    pub block: u64,
    /// Clock of the departure: references made by clients, including the one that evicted the
    /// block.
    pub time: u64,
    /// Its movement state; `references` is computed when it is sent.
    pub moves: Moves,
    /// The data of the whole block.
    pub data: Bytes,
}

/// What a level tells about a request, with the clock of its reference.
#[derive(Clone, Copy, Debug)]
pub struct AskedAt {
    /// References made by clients so far, including this one.
    pub time: u64,
    /// The record; `references` is computed when it is sent.
    pub asked: Asked,
}

/// Blocks that wait to move down, and the clock up to which the level below has been told.
#[derive(Debug, Default)]
pub struct LevelQueue {
    waiting: VecDeque<Departed>,
    told: u64,
    /// Blocks that were dropped because too many waited.
    pub lost: u64,
}

/// A message, and the blocks that it hands over.
#[derive(Debug, Default)]
pub struct LevelMessage {
    /// The encoded message; empty if there is nothing to send.
    pub bytes: Bytes,
    /// The blocks whose data it contains.
    pub handed_over: Vec<u64>,
    /// Number of requests that it announces.
    pub asked: usize,
}

impl LevelQueue {
    /// Queues a block that moves down.
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

    /// Whether one of these blocks waits to move down.
    pub fn concerns(&self, blocks: &Range<u64>) -> bool {
        self.waiting.iter().any(|departed| blocks.contains(&departed.block))
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Drops all waiting blocks and returns their number.
    pub fn clear(&mut self) -> u64 {
        let count = self.waiting.len() as u64;
        self.waiting.clear();
        count
    }

    /// References made since the last record that was sent, up to `time`.
    fn references_to(&mut self, time: u64) -> u32 {
        let passed = time.saturating_sub(self.told);
        self.told = self.told.max(time);
        u32::try_from(passed).unwrap_or(u32::MAX)
    }

    /// Takes out the message that goes in front of the next request: as many waiting blocks as fit
    /// in `bytes_max`, and what is told about the request itself. The rest keeps waiting.
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
