//! Writes, TRIM and WRITE_ZEROES: each goes to the server first, and changes the cache when the
//! server has answered.
//!
//! From its start to the server's answer a change keeps the frames of its blocks empty, so that no
//! old data are read or handed over. It starts only when no unanswered message hands one of its
//! blocks over.

use std::ops::Range;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use undercroft_nbd::{Client, ClientError};

use super::read::Fetch;
use super::session::Operation;
use super::state::{Met, State};
use super::{News, Shared};
use undercroft_hints::MessageAnswer;

/// Most bytes of a TRIM or WRITE_ZEROES.
const EFFECT_BYTES: u64 = 1 << 30;

type Written = std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>>;

/// A block that a write changes.
struct Changed {
    block: u64,
    is_kept: bool,
    /// The old content, if it is needed and known.
    old: Option<Bytes>,
}

/// A write under way.
struct Begun {
    changed: Vec<Changed>,
    /// Blocks that must be read before the write can be sent.
    fetches: Vec<Fetch>,
    /// The write, if nothing had to be fetched first.
    written: Option<Written>,
    answer: Option<MessageAnswer>,
    news: Option<News>,
}

/// The data of a write, within one stretch.
struct Content {
    bytes: Range<u64>,
    data: Bytes,
    fua: bool,
}

impl Shared {
    /// Starts a change of blocks when none of them is being handed over.
    async fn begin_change<T>(&self, blocks: &Range<u64>, begin: impl Fn(&mut State) -> T) -> T {
        loop {
            let handing_over = {
                let mut state = self.lock();
                match state.is_handing_over(blocks) {
                    None => return begin(&mut state),
                    Some(away) => away,
                }
            };
            handing_over.over().await;
        }
    }

    fn begin_write(&self, client: &Client, state: &mut State, content: &Content) -> Begun {
        let (now, bytes) = (Instant::now(), &content.bytes);
        let blocks = self.blocks(bytes);
        // If blocks must be fetched, evictions of blocks of this range are reported afterwards.
        let may_fetch = self.is_part(blocks.start, bytes) || self.is_part(blocks.end - 1, bytes);
        let is_coming = |block: u64| may_fetch && blocks.contains(&block);
        let (mut changed, mut missing, mut later) = (Vec::new(), Vec::new(), Vec::new());
        for block in blocks.clone() {
            let met = if state.waits_for_replies() {
                state.asks(block);
                Met { data: state.take_data(block), is_kept: state.will_keep(block) }
            } else {
                state.write(block, now, is_coming, &mut later)
            };
            let is_part = self.is_part(block, bytes);
            if is_part && met.data.is_none() && (met.is_kept || self.is_cut(block, bytes)) {
                missing.push(block);
            }
            let old = met.data.filter(|_| is_part);
            changed.push(Changed { block, is_kept: met.is_kept, old });
        }
        let answer = state.message(now, false);
        let fetch = |block| self.fetch(client, block..block + 1);
        let fetches: Vec<_> = missing.into_iter().map(fetch).collect();
        let written = fetches.is_empty().then(|| self.send(client, content, &changed));
        let news = if fetches.is_empty() { state.ask() } else { None };
        state.sent(now, later);
        self.remind(state);
        Begun { changed, fetches, written, answer, news }
    }

    /// Whether a range covers only a part of the block.
    fn is_part(&self, block: u64, bytes: &Range<u64>) -> bool {
        let all = self.bytes_of(block);
        bytes.start > all.start || bytes.end < all.end
    }

    /// Whether a range begins or ends within the block at an offset that the server cannot write
    /// at.
    fn is_cut(&self, block: u64, bytes: &Range<u64>) -> bool {
        let (all, unit) = (self.bytes_of(block), self.shape.unit);
        (bytes.start > all.start && bytes.start % unit != 0)
            || (bytes.end < all.end && bytes.end % unit != 0)
    }

    /// Queues the write, widened with old content to the server's unit.
    fn send(&self, client: &Client, content: &Content, changed: &[Changed]) -> Written {
        let Content { bytes, data, fua } = content;
        let unit = self.shape.unit;
        let (from, to) = (bytes.start - bytes.start % unit, bytes.end.next_multiple_of(unit));
        let old = |changed: Option<&Changed>, part: Range<u64>| {
            let changed = changed.filter(|_| !part.is_empty())?;
            let start = self.bytes_of(changed.block).start;
            let old = changed.old.as_ref().expect("what is cut was fetched");
            Some(old.slice((part.start - start) as usize..(part.end - start) as usize))
        };
        let before = old(changed.first(), from..bytes.start);
        let behind = old(changed.last(), bytes.end..to);
        let pieces = before.into_iter().chain([data.clone()]).chain(behind).collect();
        Box::pin(client.write(from, pieces, *fua))
    }

    /// The content of a block after a write; `None` if the rest of the block is not known.
    fn content_after(&self, changed: &Changed, content: &Content) -> Option<Bytes> {
        let all = self.bytes_of(changed.block);
        let (from, to) = (content.bytes.start.max(all.start), content.bytes.end.min(all.end));
        let start = content.bytes.start;
        let new = &content.data[(from - start) as usize..(to - start) as usize];
        if (from, to) == (all.start, all.end) {
            // A copy, because the caller's memory may be part of a large allocation.
            return Some(Bytes::copy_from_slice(new));
        }
        let mut bytes = BytesMut::from(&changed.old.as_ref()?[..]);
        bytes[(from - all.start) as usize..(to - all.start) as usize].copy_from_slice(new);
        Some(bytes.freeze())
    }

    /// References the blocks of a write, if blocks are referenced only after the server's answer.
    fn refer(&self, changed: &[Changed], result: &Result<(), ClientError>) {
        let mut state = self.lock();
        if !state.waits_for_replies() {
            return;
        }
        for changed in changed {
            if result.is_ok() {
                state.answered(changed.block, true, None);
            } else {
                state.failed(changed.block);
            }
        }
    }

    /// Updates the cache after the server's answer to a write.
    fn settle(&self, changed: &[Changed], content: &Content, result: &Result<(), ClientError>) {
        let mut state = self.lock();
        for changed in changed.iter().filter(|changed| changed.is_kept) {
            match self.content_after(changed, content).filter(|_| result.is_ok()) {
                Some(data) => state.fill(changed.block, data),
                None => state.forget(changed.block),
            }
        }
    }
}

impl Operation {
    /// Writes a range that is not empty.
    pub(super) async fn write(
        &self,
        bytes: Range<u64>,
        mut data: Bytes,
        fua: bool,
    ) -> Result<(), ClientError> {
        for bytes in self.shared.stretches(bytes) {
            let data = data.split_to((bytes.end - bytes.start) as usize);
            self.write_stretch(Content { bytes, data, fua }).await?;
        }
        Ok(())
    }

    async fn write_stretch(&self, content: Content) -> Result<(), ClientError> {
        let shared = &*self.shared;
        let blocks = shared.blocks(&content.bytes);
        let client = &self.channel.client;
        let begin = |state: &mut State| shared.begin_write(client, state, &content);
        let Begun { mut changed, fetches, written, answer, news } =
            shared.begin_change(&blocks, begin).await;
        let mut result = Ok(());
        for fetch in fetches {
            let fetched = fetch.finish(shared).await;
            match fetched.data {
                Ok(data) => {
                    let at = (fetched.blocks.start - blocks.start) as usize;
                    changed[at].old = data.into_iter().next();
                }
                Err(error) => result = Err(error),
            }
        }
        if result.is_ok() {
            let written = written.unwrap_or_else(|| shared.send(client, &content, &changed));
            result = self.settle(content.fua, written.await).await;
        }
        shared.hear(answer).await;
        // If this fails, the policy only knows less about the server, and evicts other blocks.
        let _ = shared.hear_news(news).await;
        shared.refer(&changed, &result);
        shared.settle(&changed, &content, &result);
        result
    }

    /// Trims a non-empty range. Parts that the server cannot trim keep their content.
    pub(super) async fn trim(&self, bytes: Range<u64>) -> Result<(), ClientError> {
        let shared = &*self.shared;
        let unit = shared.shape.unit;
        let inner = bytes.start.next_multiple_of(unit)..bytes.end - bytes.end % unit;
        if inner.is_empty() {
            return Ok(());
        }
        let blocks = shared.blocks(&inner);
        let begin = |state: &mut State| {
            state.keep_data(&blocks);
            state.resident(&blocks).into_iter().for_each(|block| state.forget(block));
        };
        shared.begin_change(&blocks, begin).await;
        for (offset, length) in effects(inner) {
            let trimmed = self.channel.client.trim(offset, length, false).await;
            self.settle(false, trimmed).await?;
        }
        Ok(())
    }

    /// Makes a non-empty range read as zeroes.
    pub(super) async fn write_zeroes(
        &self,
        bytes: Range<u64>,
        fua: bool,
    ) -> Result<(), ClientError> {
        let unit = self.shared.shape.unit;
        let inner = bytes.start.next_multiple_of(unit)..bytes.end - bytes.end % unit;
        let zeroes = |length: u64| Bytes::from(vec![0; length as usize]);
        if inner.is_empty() {
            let length = bytes.end - bytes.start;
            return self.write(bytes, zeroes(length), fua).await;
        }
        for edge in [bytes.start..inner.start, inner.end..bytes.end] {
            let length = edge.end - edge.start;
            self.write(edge, zeroes(length), fua).await?;
        }
        self.zero(inner, fua).await
    }

    /// Has the server make a range read as zeroes, if it can. Cached blocks stay cached; the policy
    /// sees no reference.
    async fn zero(&self, bytes: Range<u64>, fua: bool) -> Result<(), ClientError> {
        let shared = &*self.shared;
        let blocks = shared.blocks(&bytes);
        let begin = |state: &mut State| {
            state.keep_data(&blocks);
            let resident = state.resident(&blocks);
            let take = |block| {
                let old = state.take_data(block).filter(|_| shared.is_part(block, &bytes));
                Changed { block, is_kept: true, old }
            };
            resident.into_iter().map(take).collect::<Vec<_>>()
        };
        let changed = shared.begin_change(&blocks, begin).await;
        let mut result = Ok(());
        for (offset, length) in effects(bytes.clone()) {
            let zeroed = self.channel.client.write_zeroes(offset, length, 0, fua).await;
            result = self.settle(fua, zeroed).await;
            if result.is_err() {
                break;
            }
        }
        let zeroes = Bytes::from(vec![0; shared.shape.block as usize]);
        for changed in changed {
            let all = shared.bytes_of(changed.block);
            let part = bytes.start.max(all.start)..bytes.end.min(all.end);
            let data = zeroes.slice(..(part.end - part.start) as usize);
            if part == all && result.is_ok() {
                shared.lock().fill(changed.block, data);
            } else {
                shared.settle(&[changed], &Content { bytes: part, data, fua }, &result);
            }
        }
        result
    }
}

/// Splits a range into parts that fit one request each: (offset, length).
fn effects(bytes: Range<u64>) -> impl Iterator<Item = (u64, u64)> {
    let starts = bytes.clone().step_by(EFFECT_BYTES as usize);
    starts.map(move |start| (start, EFFECT_BYTES.min(bytes.end - start)))
}
