//! Keeps requests in flight, keeps requests for the same block in order, and checks the answers.

use std::collections::HashSet;
use std::pin::Pin;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use undercroft_nbd::{Client, ClientError, Uri};
use undercroft_policy::Reference;

use super::content::{self, Versions};
use super::tally::Tally;
use super::{REQUEST_BYTES, ReplayError};
use undercroft_hints::{MessageAnswer, Told};

/// An answered request.
struct Answered {
    run: Vec<Reference>,
    took: Duration,
    /// The data read, with the versions that they must have.
    read: Option<(Bytes, Vec<u32>)>,
    result: Result<(), ClientError>,
    /// Whether the server accepted the message in front of it, if any.
    heard: bool,
    /// What the server told about its cache, if it was asked.
    told: Option<Result<Told, ClientError>>,
}

/// A request that is done.
pub(super) struct Finished {
    pub(super) run: Vec<Reference>,
    pub(super) took: Duration,
    pub(super) told: Option<Told>,
}

/// A pending answer of the server about its cache.
pub(super) type NewsRequest = Pin<Box<dyn Future<Output = Result<Told, ClientError>> + Send>>;

type Flight = FuturesUnordered<Pin<Box<dyn Future<Output = Answered> + Send>>>;

/// The requests of a replay.
pub(super) struct Player<'a> {
    uri: &'a Uri,
    clients: Vec<Client>,
    block_bytes: u32,
    depth: usize,
    verify: bool,
    versions: Versions,
    /// Blocks in flight.
    busy: HashSet<u32>,
    flight: Flight,
    pub(super) tally: Tally,
    /// Messages that the server refused.
    pub(super) refused: u64,
}

impl<'a> Player<'a> {
    pub(super) fn new(
        uri: &'a Uri,
        clients: Vec<Client>,
        block_bytes: u32,
        (depth, verify): (usize, bool),
        versions: Versions,
    ) -> Player<'a> {
        Player {
            uri,
            clients,
            block_bytes,
            depth: depth.max(1),
            verify,
            versions,
            busy: HashSet::new(),
            flight: FuturesUnordered::new(),
            tally: Tally::new(),
            refused: 0,
        }
    }

    /// Most bytes of a request.
    pub(super) fn request_bytes(&self) -> u32 {
        self.clients[0].remote().info.max_block.min(REQUEST_BYTES)
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The connection that the next request takes.
    pub(super) fn next_line(&self) -> usize {
        self.tally.sent as usize % self.clients.len()
    }

    /// Whether a request for the block is in flight.
    pub(super) fn is_busy(&self, block: u32) -> bool {
        self.busy.contains(&block)
    }

    /// The data of a block that no request is changing.
    pub(super) fn content(&self, block: u32) -> Bytes {
        let mut data = BytesMut::zeroed(self.block_bytes as usize);
        content::fill(&mut data, block, self.versions.of(block));
        data.freeze()
    }

    /// Waits until a request for these blocks may be sent.
    pub(super) async fn make_room(&mut self, run: &[Reference]) -> Result<(), ReplayError> {
        while self.flight.len() >= self.depth || run.iter().any(|r| self.is_busy(r.entry())) {
            self.finish_one().await?;
        }
        Ok(())
    }

    /// Requests in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.flight.len()
    }

    /// Converts the server's error into the one that ends the replay.
    pub(super) fn server<T>(&self, result: Result<T, ClientError>) -> Result<T, ReplayError> {
        result.map_err(|error| ReplayError::Server(self.uri.clone(), error))
    }

    /// Queues a request; there must be room for it. `answer`: the answer to the message in front of
    /// it. `ask`: asks what the server holds, after the request.
    pub(super) fn request(
        &mut self,
        offset: u64,
        run: &[Reference],
        answer: Option<MessageAnswer>,
        ask: impl FnOnce() -> Option<NewsRequest>,
    ) {
        self.busy.extend(run.iter().map(|r| r.entry()));
        let client = &self.clients[self.next_line()];
        self.tally.sent += 1;
        let (run, began) = (run.to_vec(), Instant::now());
        let block_bytes = self.block_bytes as usize;
        if run[0].is_write() {
            let mut data = BytesMut::zeroed(run.len() * block_bytes);
            for (piece, r) in data.chunks_mut(block_bytes).zip(&run) {
                content::fill(piece, r.entry(), self.versions.next(r.entry()));
            }
            let written = client.write(offset, vec![data.freeze()], false);
            let told = ask();
            self.flight.push(Box::pin(async move {
                let result = written.await;
                let took = began.elapsed();
                let (heard, told) = (hear(answer).await, hear_told(told).await);
                Answered { run, took, read: None, result, heard, told }
            }));
        } else {
            let versions = run.iter().map(|r| self.versions.of(r.entry())).collect();
            let buffer: Vec<u8> = vec![0; run.len() * block_bytes];
            let reading = client.read(offset, vec![Box::new(buffer)]);
            let told = ask();
            self.flight.push(Box::pin(async move {
                let (buffers, result) = reading.await;
                let took = began.elapsed();
                let bytes =
                    buffers.into_iter().next().map(|mut b| Bytes::copy_from_slice((*b).as_mut()));
                let read = bytes.map(|bytes| (bytes, versions));
                let (heard, told) = (hear(answer).await, hear_told(told).await);
                Answered { run, took, read, result, heard, told }
            }));
        }
    }

    /// Waits for one answer and processes it; `None` if nothing is in flight.
    pub(super) async fn finish_one(&mut self) -> Result<Option<Finished>, ReplayError> {
        let Some(answered) = self.flight.next().await else { return Ok(None) };
        let Answered { run, took, read, result, heard, told } = answered;
        self.server(result)?;
        let told = told.map(|told| self.server(told)).transpose()?;
        self.tally.latency(took);
        self.refused += u64::from(!heard);
        for r in &run {
            self.busy.remove(&r.entry());
        }
        let Some((bytes, versions)) = read else {
            self.tally.written += run.len() as u64;
            return Ok(Some(Finished { run, took, told }));
        };
        self.tally.read += run.len() as u64;
        if self.verify {
            let pieces = bytes.chunks(self.block_bytes as usize);
            for ((piece, r), version) in pieces.zip(&run).zip(versions) {
                self.tally.verify(content::is(piece, r.entry(), version), r.entry(), version);
            }
        }
        Ok(Some(Finished { run, took, told }))
    }
}

async fn hear_told(told: Option<NewsRequest>) -> Option<Result<Told, ClientError>> {
    Some(told?.await)
}

async fn hear(answer: Option<MessageAnswer>) -> bool {
    match answer {
        Some(answer) => answer.await.is_ok(),
        None => true,
    }
}
