//! What a call keeps of the frames that it is about to overwrite: their contents, for servers that
//! want them. They are copied before the call is made. Which blocks have left is known after it.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;

use crate::contents::{Contents, Ticket};
use crate::files::Files;
use crate::filter;
use crate::own_memory::{Reads, TOGETHER_MAX, Unread, read_scattered};
use crate::segment::Count;
use crate::segment::layout::{CONTENTS, WANTED};
use crate::table::{GRANULE, HEAD, Head, Key, Place, Table};
use crate::tracker::{LONGEST_PAGE, Tracked, Tracker};

/// The contents that one call keeps. After the call, they must be given to [`Tracker::moved`] or
/// [`Tracker::free`]. It is passed by reference, since it is large.
#[derive(Default)]
pub struct Kept {
    /// Blocks, and the words of their tickets; 0 once taken.
    list: [(u64, u64); TOGETHER_MAX],
    count: usize,
}

impl Kept {
    fn add(&mut self, block: Key, ticket: Ticket) {
        if let Some(one) = self.list.get_mut(self.count) {
            *one = (block.clean().word(), ticket.word());
            self.count += 1;
        }
    }

    /// Takes the content of a block, if it was kept.
    pub(crate) fn take(&mut self, block: Key) -> Option<Ticket> {
        let word = block.clean().word();
        let one = self.list[..self.count].iter_mut().find(|(kept, _)| *kept == word)?;
        Ticket::from_word(std::mem::take(&mut one.1))
    }
}

impl Tracker {
    /// Whether any server wants contents.
    #[inline]
    pub(crate) fn wants_contents(&self) -> bool {
        self.segment().word(WANTED).load(Relaxed) != 0
    }

    /// Keeps the contents of the frames that a read into these pieces of memory (address, length)
    /// is about to overwrite. `offset` is that of the read in its file.
    #[inline]
    pub fn keep<P: Iterator<Item = (u64, u64)>>(
        &self,
        call: &Tracked,
        offset: u64,
        pieces: impl FnOnce() -> P,
        kept: &mut Kept,
    ) {
        if self.wants_contents() && self.segment().contents_are_ready() {
            if let Some(_permit) = filter::may_call() {
                self.keep_all(call, offset, pieces(), kept);
            }
        }
    }

    #[inline(never)]
    fn keep_all(
        &self,
        call: &Tracked,
        mut offset: u64,
        pieces: impl Iterator<Item = (u64, u64)>,
        kept: &mut Kept,
    ) {
        let segment = self.segment();
        let (table, contents) = (Table::new(segment), Contents::new(segment));
        let mut heads = [([0; HEAD], None); TOGETHER_MAX];
        let (mut reads, mut headless, mut lost) = (Reads::new(), 0, 0);
        for (address, length) in pieces {
            let before = offset.wrapping_neg() % GRANULE;
            offset = offset.saturating_add(length);
            if length > LONGEST_PAGE || before > length {
                continue;
            }
            let Some(space) = self.space(address) else { continue };
            for n in 0..(length - before) / GRANULE {
                if kept.count == TOGETHER_MAX {
                    break;
                }
                let at = address.saturating_add(before + n * GRANULE);
                let Some((block, head)) = Place::new(space, at).and_then(|at| table.held(at))
                else {
                    continue;
                };
                if !self.wants_content_of(block) {
                    continue;
                }
                let Some(head) = head else {
                    headless += 1;
                    continue;
                };
                match contents.claim(call.started_us()) {
                    Some(ticket) => {
                        heads[kept.count] = (head, Some(ticket));
                        reads.add(at, contents.content(ticket));
                        kept.add(block, ticket);
                    }
                    None => lost += 1,
                }
            }
        }
        match reads.read() {
            Ok(()) => {
                for (head, ticket) in heads {
                    ticket.inspect(|ticket| contents.set_head(*ticket, &head));
                }
                self.count(Count::Kept, kept.count as u64);
            }
            Err(why) => {
                lost += kept.count as u64;
                self.free(kept);
                if why == Unread::Refused {
                    segment.word(CONTENTS).store(2, Relaxed);
                }
            }
        }
        self.count(Count::Headless, headless);
        self.count(Count::NotKept, lost);
    }

    /// The content of a granule in a frame with a known head, if its server wants contents.
    pub(crate) fn content_of(&self, place: Place, block: Key, head: &Head) -> Option<Bytes> {
        if !self.wants_content_of(block) {
            return None;
        }
        let mut bytes = vec![0; GRANULE as usize];
        let read = read_scattered(&[place.address()], GRANULE as usize, &mut bytes);
        if read == 0 {
            self.count(Count::NotKept, 1);
            return None;
        }
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(head) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        self.count(Count::Kept, 1);
        Some(bytes.into())
    }

    /// Whether the server of a block's volume wants contents.
    fn wants_content_of(&self, block: Key) -> bool {
        let volume = Files::new(self.segment()).volume(block.file());
        let wanted = self.segment().word(WANTED).load(Relaxed);
        volume.is_some_and(|volume| wanted & 1 << volume != 0)
    }

    /// Frees the slots of contents that nothing came of.
    pub fn free(&self, kept: &mut Kept) {
        for (_, ticket) in &kept.list[..kept.count] {
            self.free_content(Ticket::from_word(*ticket));
        }
        kept.count = 0;
    }

    pub(crate) fn free_content(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket {
            Contents::new(self.segment()).free(ticket);
        }
    }

    /// The first buffers (address, length) of a list of the program's, which may not be there.
    pub fn buffers(&self, list: u64, count: usize) -> impl Iterator<Item = (u64, u64)> + use<> {
        let words = [const { AtomicU64::new(0) }; 2 * TOGETHER_MAX];
        let count = count.min(TOGETHER_MAX);
        let mut reads = Reads::new();
        reads.add(list, &words[..2 * count]);
        let is_there = count > 0 && reads.read().is_ok();
        let words = words.map(AtomicU64::into_inner);
        let count = if is_there { count } else { 0 };
        (0..count).map(move |n| (words[2 * n], words[2 * n + 1]))
    }

    /// The head of a granule in memory that may not be there.
    pub(crate) fn head_of(&self, place: Place) -> Option<Head> {
        let words = [const { AtomicU64::new(0) }; HEAD];
        let mut reads = Reads::new();
        reads.add(place.address(), &words);
        reads.read().ok()?;
        Some(words.map(AtomicU64::into_inner))
    }
}
