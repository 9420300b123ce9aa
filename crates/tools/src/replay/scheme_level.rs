//! A replay whose first level is one level of a movement scheme; the server runs the next one.
//! References are made one after another, each with all moves that it causes, as in the simulator.

use serde::Serialize;
use undercroft_cache::Reference;
use undercroft_cache::movement::{EvictedBlock, Pass, RemoteLevel, Requester, SchemeSpec};
use undercroft_hints::{
    Asked, AskedAt, Departed, LevelLink, LevelMessage, LevelQueue, LevelSaid, Moves, Passed,
    Verdict,
};
use undercroft_nbd::{Client, ClientError, Uri};
use undercroft_trace::DenseTrace;

use super::layout::Layout;
use super::player::Player;
use super::{FirstLevel, L1Report, ReplayError};

/// Traffic on the link to the level below.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LevelReport {
    /// The scheme.
    pub placement: String,
    /// Messages, each in front of a request or by itself.
    pub messages: u64,
    /// Bytes of these messages.
    pub message_bytes: u64,
    /// Messages that the server refused.
    pub refused: u64,
    /// Blocks sent down.
    pub demotions: u64,
    /// Blocks that came up and stayed.
    pub promotions_in: u64,
    /// Those of them that came up in exchange, without a request.
    pub exchanges_in: u64,
}

/// The first level, and its link to the next one.
pub(super) struct SchemeLevel<'a> {
    trace: &'a DenseTrace,
    layout: &'a Layout,
    uri: &'a Uri,
    block_bytes: u64,
    /// Its blocks are the trace's dense numbers.
    cache: RemoteLevel,
    link: LevelLink,
    queue: LevelQueue,
    /// Blocks that wait or were sent, and for which another block may come up in exchange.
    awaited: u64,
    report: LevelReport,
}

/// Options of the first level.
pub(super) struct SchemeOptions<'a> {
    pub(super) scheme: &'a SchemeSpec,
    pub(super) capacity: u32,
    pub(super) block_bytes: u32,
}

impl<'a> SchemeLevel<'a> {
    pub(super) fn new(
        (trace, layout): (&'a DenseTrace, &'a Layout),
        uri: &'a Uri,
        first: SchemeOptions<'_>,
        client: Client,
    ) -> Result<SchemeLevel<'a>, ReplayError> {
        let SchemeOptions { scheme, capacity, block_bytes } = first;
        let seed = undercroft_cache::movement::DEFAULT_SEED;
        let cache = RemoteLevel::new(scheme, capacity, block_bytes, true, seed, 0);
        let mut cache = cache.map_err(|error| ReplayError::Scheme(error.to_string()))?;
        let placement = scheme.to_string();
        let link = LevelLink::over(client, &placement, block_bytes);
        let link = link.map_err(|error| ReplayError::Server(uri.clone(), error))?;
        cache.stand_alone(link.blocks());
        let report = LevelReport { placement, ..LevelReport::default() };
        let (queue, block_bytes) = (LevelQueue::default(), block_bytes.into());
        Ok(SchemeLevel { trace, layout, uri, block_bytes, cache, link, queue, awaited: 0, report })
    }

    /// Makes a request; returns the answer of the level below about its block.
    async fn request(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
        is_held: bool,
    ) -> Result<Pass, ReplayError> {
        let block = self.layout.place(self.trace, reference.entry());
        // A block that waits to move down is sent before it is requested again.
        while self.queue.concerns(&(block..block + 1)) {
            let message = self.queue.message(&[], self.link.bytes_max());
            self.say(&message).await?;
        }
        let asked = Asked::new(block, self.cache.bid(), (self.cache.capacity(), 1), is_held);
        let asked = AskedAt { time: self.cache.time(), asked };
        let message = self.queue.message(&[asked], self.link.bytes_max());
        self.count(&message);
        let mut said = self.link.say(&message);
        player.make_room(&[reference]).await?;
        player.request(block * self.block_bytes, &[reference], None, || None);
        while player.finish_one().await?.is_some() {}
        self.heard(&mut said).await;
        let answers = said.answers().await.map_err(|error| self.failed(error))?;
        let answer = answers.iter().find(|passed| passed.block == block);
        Ok(answer.map_or(Pass::Fresh { nearest: 0.0 }, Passed::pass))
    }

    /// Queues the block that the last step evicted.
    fn leave(&mut self, player: &Player<'_>) {
        let Some(EvictedBlock { block, load: Some(load), exchanges, awaits }) = self.cache.left()
        else {
            return;
        };
        let number = block as u32;
        let moves = Moves::new(load, exchanges);
        let block = self.layout.place(self.trace, number);
        let (time, data) = (self.cache.time(), player.content(number));
        self.queue.push(Departed { block, time, moves, data });
        self.awaited += u64::from(awaits);
    }

    /// Fetches the blocks that come up in exchange for those that went down.
    async fn settle(&mut self, player: &mut Player<'_>) -> Result<(), ReplayError> {
        while self.awaited > 0 {
            let message = self.queue.message(&[], self.link.bytes_max());
            self.say(&message).await?;
            self.awaited -= 1;
            let answers = self.link.ask_exchange().answers().await;
            let answers = answers.map_err(|error| self.failed(error))?;
            let risen = answers.into_iter().find(|a| a.verdict == Verdict::Exchanged);
            let Some(risen) = risen else { continue };
            let block = risen.block;
            let data =
                self.link.fetch_exchanged(block).await.map_err(|error| self.failed(error))?;
            let Some(number) = self.layout.number(self.trace, block) else { continue };
            player.verify(number, &data);
            self.cache.exchanged(number.into(), 0, risen.load());
            self.leave(player);
        }
        Ok(())
    }

    /// Sends a message without a request.
    async fn say(&mut self, message: &LevelMessage) -> Result<(), ReplayError> {
        if !message.bytes.is_empty() {
            self.count(message);
            let mut said = self.link.say(message);
            self.heard(&mut said).await;
        }
        Ok(())
    }

    fn count(&mut self, message: &LevelMessage) {
        self.report.messages += 1;
        self.report.message_bytes += message.bytes.len() as u64;
        self.report.demotions += message.handed_over.len() as u64;
    }

    async fn heard(&mut self, said: &mut LevelSaid) {
        self.report.refused += u64::from(said.heard().await.is_err());
    }

    fn failed(&self, error: ClientError) -> ReplayError {
        ReplayError::Server(self.uri.clone(), error)
    }

    pub(super) fn l1_report(&self) -> L1Report {
        L1Report::new(self.cache.capacity(), self.cache.counts())
    }

    pub(super) fn report(&self) -> LevelReport {
        let links = self.cache.link_counts();
        let (promotions_in, exchanges_in) = (links.promotions_in, links.exchanges_in);
        LevelReport { promotions_in, exchanges_in, ..self.report.clone() }
    }
}

impl FirstLevel for SchemeLevel<'_> {
    async fn reference(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
    ) -> Result<(), ReplayError> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        self.cache.pass_time(1);
        let asking = Requester::default();
        let reached = self.cache.reference(entry.into(), is_write, asking, || false);
        self.leave(player);
        let is_held = reached.pass.is_some();
        if is_write || !is_held {
            let passed = self.request(player, reference, is_held).await?;
            if !is_held {
                self.cache.arrive(entry.into(), is_write, asking, passed);
                self.leave(player);
            }
        }
        self.settle(player).await
    }

    async fn end(&mut self, _: &mut Player<'_>) -> Result<(), ReplayError> {
        while !self.queue.is_empty() {
            let message = self.queue.message(&[], self.link.bytes_max());
            self.say(&message).await?;
        }
        Ok(())
    }
}
