//! Reads: cached blocks, fetches, and the evictions that they cause.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use undercroft_nbd::{Client, ClientError, ReadDone};

use super::session::Operation;
use super::state::State;
use super::{News, Shared};
use undercroft_hints::MessageAnswer;

/// A fetch of blocks from the server.
pub(super) struct Fetch {
    blocks: Range<u64>,
    answer: std::pin::Pin<Box<dyn Future<Output = ReadDone> + Send>>,
    began: Instant,
}

/// The result of a fetch: the data of each block, or one error for all.
pub(super) struct Fetched {
    pub(super) blocks: Range<u64>,
    pub(super) data: Result<Vec<Bytes>, ClientError>,
    took: Duration,
}

/// A read under way.
struct Begun {
    /// The data of each block that was in the cache.
    found: Vec<Option<Bytes>>,
    fetches: Vec<Fetch>,
    answer: Option<MessageAnswer>,
    news: Option<News>,
    /// Whether missed blocks are referenced only when their data have arrived.
    is_late: bool,
}

impl Shared {
    /// The data, if all blocks are in the cache and no other operation uses them.
    pub(super) fn read_if_here(&self, bytes: &Range<u64>) -> Option<Bytes> {
        let blocks = self.blocks(bytes);
        if bytes.end - bytes.start > self.shape.request {
            return None;
        }
        let mut state = self.lock();
        let is_here = |block| state.peek(block).is_some();
        if state.is_lost() || !state.gate.is_free(&blocks) || !blocks.clone().all(is_here) {
            return None;
        }
        // Hits evict nothing.
        let now = Instant::now();
        let hit = |block| state.read(block, now, |_| false, &mut Vec::new()).data;
        let data: Option<Vec<_>> = blocks.clone().map(hit).collect();
        drop(state);
        Some(joined(self.parts(bytes, blocks.start, data?)))
    }

    fn begin_read(&self, client: &Client, blocks: &Range<u64>) -> Begun {
        let mut state = self.lock();
        let now = Instant::now();
        let (mut missed, mut later) = (Vec::new(), Vec::new());
        let mut found = Vec::new();
        let is_late = state.waits_for_replies();
        for block in blocks.clone() {
            if is_late && state.peek(block).is_none() {
                state.asks(block);
                missed.push(block);
                found.push(None);
                continue;
            }
            let met = state.read(block, now, |gone| missed.contains(&gone), &mut later);
            if met.data.is_none() {
                missed.push(block);
            }
            found.push(met.data);
        }
        let answer = if missed.is_empty() { None } else { state.message(now, false) };
        let fetches = runs(&missed).map(|run| self.fetch(client, run)).collect();
        let news = if missed.is_empty() { None } else { state.ask() };
        state.sent(now, later);
        self.remind(&state);
        Begun { found, fetches, answer, news, is_late }
    }

    /// Requests blocks from the server.
    pub(super) fn fetch(&self, client: &Client, blocks: Range<u64>) -> Fetch {
        let start = self.bytes_of(blocks.start).start;
        let length = self.bytes_of(blocks.end - 1).end - start;
        let buffer: Vec<u8> = vec![0; length as usize];
        let answer = Box::pin(client.read(start, vec![Box::new(buffer)]));
        Fetch { blocks, answer, began: Instant::now() }
    }

    /// Cuts whole blocks to the parts that lie in a range.
    fn parts(&self, bytes: &Range<u64>, first: u64, data: Vec<Bytes>) -> Vec<Bytes> {
        let cut = |(block, data): (u64, Bytes)| {
            let all = self.bytes_of(block);
            let (from, to) = (bytes.start.max(all.start), bytes.end.min(all.end));
            data.slice((from - all.start) as usize..(to - all.start) as usize)
        };
        (first..).zip(data).map(cut).collect()
    }
}

impl Fetch {
    /// Waits for the data. Each block is copied to its own memory, because each stays cached for a
    /// different time.
    pub(super) async fn finish(self, shared: &Shared) -> Fetched {
        let (mut buffers, result) = self.answer.await;
        let data = result.map(|()| {
            let all = (**buffers.first_mut().expect("the buffer comes back")).as_mut();
            all.chunks(shared.shape.block as usize).map(Bytes::copy_from_slice).collect()
        });
        Fetched { blocks: self.blocks, data, took: self.began.elapsed() }
    }
}

impl Fetched {
    /// Caches the blocks that arrived, and forgets those that did not.
    fn settle(&self, state: &mut State, is_late: bool) {
        match &self.data {
            Ok(data) => {
                // The time of several blocks together says nothing about a single one.
                let took = (data.len() == 1).then_some(self.took);
                for (block, data) in self.blocks.clone().zip(data) {
                    if !is_late || state.answered(block, false, took) {
                        state.fill(block, data.clone());
                    }
                }
            }
            Err(_) if is_late => self.blocks.clone().for_each(|block| state.failed(block)),
            Err(_) => self.blocks.clone().for_each(|block| state.forget(block)),
        }
    }
}

impl Operation {
    /// Reads a range that is not empty.
    pub(super) async fn read(&self, bytes: Range<u64>) -> Result<Bytes, ClientError> {
        let mut parts = Vec::new();
        for stretch in self.shared.stretches(bytes) {
            parts.extend(self.read_stretch(stretch).await?);
        }
        Ok(joined(parts))
    }

    async fn read_stretch(&self, bytes: Range<u64>) -> Result<Vec<Bytes>, ClientError> {
        let shared = &*self.shared;
        let blocks = shared.blocks(&bytes);
        let begun = shared.begin_read(&self.channel.client, &blocks);
        let Begun { mut found, fetches, answer, news, is_late } = begun;
        let mut fetched = Vec::new();
        for fetch in fetches {
            fetched.push(fetch.finish(shared).await);
        }
        shared.hear(answer).await;
        // If this fails, the policy only knows less about the server, and evicts other blocks.
        let _ = shared.hear_news(news).await;
        let mut state = shared.lock();
        fetched.iter().for_each(|fetched| fetched.settle(&mut state, is_late));
        drop(state);
        for Fetched { blocks: run, data, .. } in fetched {
            for (block, data) in run.zip(data?) {
                found[(block - blocks.start) as usize] = Some(data);
            }
        }
        let data = found.into_iter().flatten().collect();
        Ok(shared.parts(&bytes, blocks.start, data))
    }
}

/// The runs of consecutive blocks in an ascending list.
fn runs(blocks: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let runs = blocks.chunk_by(|one, next| one + 1 == *next);
    runs.map(|run| run[0]..run[run.len() - 1] + 1)
}

/// Joins the parts; a single part is not copied.
fn joined(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.swap_remove(0);
    }
    let mut all = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    parts.iter().for_each(|part| all.extend_from_slice(part));
    all.freeze()
}
