//! A replay whose first level learns what the server holds, tells the server what it holds, or
//! probes the server's cache. A block is referenced when its reply has arrived, because only then
//! the level knows what it may evict. Requests are single blocks.

use std::time::Instant;

use serde::Serialize;
use undercroft_hints::{
    Abilities, ClientId, ContentPublisher, ContentReader, Follow, Following, HintQueue, Mailbox,
    Report, Told,
};
use undercroft_level::content::{Latencies, Prober};
use undercroft_level::{Below, UpperLevel};
use undercroft_nbd::{Client, Uri};
use undercroft_policy::{Awareness, Policy, Reference, WriteMode};
use undercroft_trace::DenseTrace;

use super::layout::Layout;
use super::player::{Finished, NewsRequest, Player};
use super::reporting_level::{FLUSH_AFTER, ToldReport};
use super::{FirstLevel, L1Report, Replay, ReplayError};

/// What the first level knew about the server.
#[derive(Clone, Debug, Default, Serialize)]
pub struct KnownReport {
    /// Evictions of blocks that the server was believed to hold.
    pub held_evictions: u64,
    /// Answers of the server about what it holds.
    pub news: u64,
    /// Bytes of these answers.
    pub news_bytes: u64,
    /// Summaries received, whole filters and changes.
    pub summaries: u64,
    /// Whole filters among them.
    pub whole_summaries: u64,
    /// Summaries that could not be used.
    pub summaries_unusable: u64,
    /// Share of false positives of the final filter.
    pub false_positives: Option<f64>,
    /// Replies predicted by an emulation of the server's cache, where the reply time told hit from
    /// miss.
    pub predictions: u64,
    /// Those of them that were predicted correctly.
    pub confirmed: u64,
    /// Requests at which the emulation was not trusted.
    pub distrusted: u64,
    /// Summaries published to the server.
    pub published: u64,
    /// Bytes of these.
    pub published_bytes: u64,
}

/// What the server's cache appears to be.
#[derive(Clone, Debug, Serialize)]
pub struct ProbeReport {
    /// Replies faster than this many microseconds were hits; `None` if all took equally long.
    pub border_us: Option<f64>,
    /// The policy that predicts the replies best; `None` if too few could be classified.
    pub policy: Option<String>,
    /// Capacity of that policy in blocks.
    pub blocks: u32,
    /// Share of the latest replies that it predicts correctly.
    pub agreement: f64,
    /// Whether no other policy predicts nearly as well.
    pub is_certain: bool,
    /// Whether larger capacities predict as well.
    pub is_least: bool,
}

/// The first level, what it knows of the server and what it tells it.
pub(super) struct AwareLevel<'a> {
    trace: &'a DenseTrace,
    layout: &'a Layout,
    block_bytes: u64,
    depth: usize,
    /// `None`: the server is the first level.
    level: Option<UpperLevel>,
    mailbox: Option<Mailbox>,
    hints: HintQueue,
    tells_evictions: bool,
    follow: Option<Follow>,
    news: ContentReader,
    publishing: Option<ContentPublisher>,
    latencies: Latencies,
    prober: Option<Prober>,
    requests: u64,
    wanted: u64,
}

impl<'a> AwareLevel<'a> {
    /// Connects, and asks for the needed abilities. Returns the connection and the level that plays
    /// over it.
    pub(super) async fn connect(
        uri: &Uri,
        (trace, layout): (&'a DenseTrace, &'a Layout),
        block_bytes: u32,
        how: &mut Replay,
    ) -> Result<(Client, AwareLevel<'a>), ReplayError> {
        let failed = |error| ReplayError::Server(uri.clone(), error);
        let policy: Option<Box<dyn Policy>> = how.l1.take();
        let capacity = policy.as_ref().map_or(0, |policy| policy.capacity());
        if policy.is_none() && how.report != Report::Nothing {
            return Err(ReplayError::NoFirstLevel);
        }
        let awareness: Awareness = how.awareness;
        let follows = matches!(how.below, Below::Told | Below::Digests);
        let follow = follows.then(|| Follow::new(&awareness, capacity));
        let needs = Abilities { follow: follows, ..how.report.needs() };
        let mut mailbox = if needs == Abilities::default() {
            None
        } else {
            let id = ClientId::random();
            let mailbox = Mailbox::asking_for(uri, &how.options, needs, id).await;
            Some(mailbox.map_err(failed)?)
        };
        let client = match &mut mailbox {
            Some(mailbox) => {
                let has = mailbox.grant().block_bytes;
                if has != block_bytes {
                    let (uri, wants) = (uri.clone(), block_bytes);
                    return Err(ReplayError::OtherBlocks { uri, has, wants });
                }
                if let Some(follow) = follow {
                    mailbox.follow(follow).await.map_err(failed)?;
                }
                mailbox.client().clone()
            }
            None => Client::connect(uri, &how.options).await.map_err(failed)?,
        };
        let below = std::mem::replace(&mut how.below, Below::Nothing);
        let level = |policy| UpperLevel::new(policy, how.write_mode, &below);
        let level = policy.map(level).transpose();
        let digest = how.report == Report::Digest;
        let aware = AwareLevel {
            trace,
            layout,
            block_bytes: block_bytes.into(),
            depth: how.depth.max(1),
            level: level.map_err(|error| ReplayError::Policy(error.to_string()))?,
            mailbox,
            hints: HintQueue::new(how.batch),
            tells_evictions: how.report == Report::Evictions,
            follow,
            news: ContentReader::default(),
            publishing: digest.then(|| ContentPublisher::new(&awareness, capacity)),
            latencies: Latencies::default(),
            prober: how.probe.then(|| Prober::new(WriteMode::Allocate)),
            requests: 0,
            wanted: how.batch as u64,
        };
        Ok((client, aware))
    }

    /// Waits for one answer and processes it; false if nothing is in flight.
    async fn finish_one(&mut self, player: &mut Player<'_>) -> Result<bool, ReplayError> {
        let refused = player.refused;
        let Some(Finished { run, took, told }) = player.finish_one().await? else {
            return Ok(false);
        };
        if let (true, Some(publishing)) = (player.refused > refused, &mut self.publishing) {
            publishing.refused();
        }
        if let Some(told) = told {
            self.take_news(player, told).await?;
        }
        let r = run[0];
        let block = self.layout.place(self.trace, r.entry());
        let us = took.as_secs_f64() * 1e6;
        let hit = if r.is_write() { None } else { self.latencies.label(us) };
        if let Some(prober) = &mut self.prober {
            prober.note(block, r.is_write(), hit);
        }
        let Some(level) = &mut self.level else { return Ok(true) };
        level.answered(block, r.is_write(), hit);
        let before = level.cache().frame(block).is_some();
        let after = level.reference(block, r.is_write()).now.is_some();
        let now = Instant::now();
        for gone in level.cache().evicted() {
            if self.tells_evictions {
                self.hints.add(gone.block, None, now);
            }
            if let Some(publishing) = &mut self.publishing {
                publishing.changed(gone.block, false);
            }
        }
        if let (true, Some(publishing)) = (before != after, &mut self.publishing) {
            publishing.changed(block, after);
        }
        Ok(true)
    }

    async fn take_news(&mut self, player: &Player<'_>, told: Told) -> Result<(), ReplayError> {
        let (Some(level), Some(mailbox)) = (&mut self.level, &mut self.mailbox) else {
            return Ok(());
        };
        let mut told = told;
        let mut is_complete = true;
        loop {
            is_complete &= self.news.take(&told, level);
            if told.more == 0 {
                break;
            }
            told = player.server(mailbox.ask(told.more as usize).await)?;
        }
        let again = self.follow.filter(|follow| follow.what != Following::Nothing);
        if let (false, Some(follow), false) = (is_complete, again, mailbox.is_away()) {
            player.server(mailbox.follow(follow).await)?;
        }
        Ok(())
    }

    pub(super) fn l1_report(&self) -> Option<L1Report> {
        let level = self.level.as_ref()?;
        Some(L1Report::new(level.cache().policy().capacity(), level.cache().counts()))
    }

    pub(super) fn told(&self, player: &Player<'_>) -> Option<ToldReport> {
        let mailbox = self.mailbox.as_ref()?;
        Some(ToldReport {
            messages: mailbox.messages(),
            refused: player.refused,
            evictions: self.hints.counts().told,
            handed_over: 0,
        })
    }

    pub(super) fn known(&self) -> Option<KnownReport> {
        let counts = self.level.as_ref()?.below_counts();
        let publishing = self.publishing.as_ref();
        Some(KnownReport {
            held_evictions: counts.held_evictions,
            news: self.news.answers,
            news_bytes: self.news.bytes,
            summaries: counts.summaries,
            whole_summaries: counts.whole_summaries,
            summaries_unusable: counts.summaries_unusable,
            false_positives: counts.false_positives,
            predictions: counts.predictions,
            confirmed: counts.confirmed,
            distrusted: counts.distrusted,
            published: publishing.map_or(0, |p| p.published),
            published_bytes: publishing.map_or(0, |p| p.bytes),
        })
    }

    pub(super) fn probed(&mut self) -> Option<ProbeReport> {
        let border_us = self.latencies.border_us();
        let found = match &mut self.prober {
            Some(prober) => prober.conclude().cloned(),
            None => self.level.as_ref()?.prober()?.found().cloned(),
        };
        Some(ProbeReport {
            border_us,
            policy: found.as_ref().map(|found| found.policy.to_owned()),
            blocks: found.as_ref().map_or(0, |found| found.blocks),
            agreement: found.as_ref().map_or(0.0, |found| found.agreement),
            is_certain: found.as_ref().is_some_and(|found| found.is_certain),
            is_least: found.as_ref().is_some_and(|found| found.is_least),
        })
    }
}

impl FirstLevel for AwareLevel<'_> {
    async fn reference(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
    ) -> Result<(), ReplayError> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        while player.is_busy(entry) {
            self.finish_one(player).await?;
        }
        let block = self.layout.place(self.trace, entry);
        if let Some(level) = &mut self.level {
            if !is_write && level.cache().frame(block).is_some() {
                level.reference(block, false);
                return Ok(());
            }
            level.asks(block);
        }
        let now = Instant::now();
        let (mut answer, mut asks) = (None, false);
        if let Some(mailbox) = &mut self.mailbox {
            // A summary is only made when the mailbox can take it.
            let publishing = self.publishing.as_mut().filter(|_| !mailbox.is_away());
            let level = self.level.as_ref();
            let content = || level.map_or(Vec::new(), residents);
            let extra = publishing.map_or(Vec::new(), |publishing| publishing.due(content));
            let pressing = self.hints.waits_since(now) >= FLUSH_AFTER;
            // The block's eviction is reported before it is requested again, or not at all.
            answer = mailbox.send(&mut self.hints, now, extra, pressing);
            self.hints.cancel(block);
            self.requests += 1;
            asks = self.follow.is_some() && self.requests % self.wanted == 0;
        }
        let mailbox = self.mailbox.as_ref().filter(|_| asks);
        let ask = || {
            mailbox.map(|mailbox| Box::pin(mailbox.ask(ContentReader::ASKED_BYTES)) as NewsRequest)
        };
        player.request(block * self.block_bytes, &[reference], answer, ask);
        while player.in_flight() >= self.depth {
            self.finish_one(player).await?;
        }
        Ok(())
    }

    async fn end(&mut self, player: &mut Player<'_>) -> Result<(), ReplayError> {
        while self.finish_one(player).await? {}
        Ok(())
    }
}

fn residents(level: &UpperLevel) -> Vec<u64> {
    level.cache().residents().into_iter().map(|(block, _)| block).collect()
}
