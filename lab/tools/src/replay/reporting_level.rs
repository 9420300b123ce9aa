//! A replay that reports the evictions of its first level to the server. Requests are single
//! blocks, so that the server receives evictions and references in the simulator's order.

use std::time::{Duration, Instant};

use serde::Serialize;
use undercroft_level::HashedCache;
use undercroft_nbd::Uri;
use undercroft_policy::{Policy, Reference, WriteMode};
use undercroft_trace::DenseTrace;

use super::layout::Layout;
use super::player::Player;
use super::{FirstLevel, L1Report, ReplayError};
use undercroft_hints::{HintQueue, Mailbox, Report};

/// Longest time that a hint waits for further ones, while there are requests.
pub(super) const FLUSH_AFTER: Duration = Duration::from_millis(10);

/// What the server was told.
#[derive(Clone, Debug, Serialize)]
pub struct ToldReport {
    /// Messages, each in front of a request.
    pub messages: u64,
    /// Messages that the server refused.
    pub refused: u64,
    /// Evicted blocks in these messages.
    pub evictions: u64,
    /// Those of them that were sent with their data.
    pub handed_over: u64,
}

/// The first level, and its waiting hints.
pub(super) struct ReportingLevel<'a> {
    trace: &'a DenseTrace,
    layout: &'a Layout,
    block_bytes: u64,
    /// Its blocks are the trace's dense numbers, as in the simulator.
    cache: HashedCache,
    write_mode: WriteMode,
    mailboxes: Vec<Mailbox>,
    hints: HintQueue,
    hands_over: bool,
}

impl<'a> ReportingLevel<'a> {
    pub(super) fn new(
        (trace, layout): (&'a DenseTrace, &'a Layout),
        block_bytes: u32,
        (policy, write_mode): (Box<dyn Policy>, WriteMode),
        mailboxes: Vec<Mailbox>,
        (report, batch): (Report, usize),
    ) -> ReportingLevel<'a> {
        ReportingLevel {
            trace,
            layout,
            block_bytes: block_bytes.into(),
            cache: HashedCache::new(policy, 0),
            write_mode,
            mailboxes,
            hints: HintQueue::new(batch),
            hands_over: report == Report::Demotions,
        }
    }

    fn is_handing_over(&self, block: u64) -> bool {
        let blocks = block..block + 1;
        self.mailboxes.iter().any(|mailbox| mailbox.is_handing_over(&blocks).is_some())
    }

    pub(super) fn l1_report(&self) -> L1Report {
        L1Report::new(self.cache.policy().capacity(), self.cache.counts())
    }

    pub(super) fn told(&self, player: &Player<'_>) -> ToldReport {
        let counts = self.hints.counts();
        ToldReport {
            messages: self.mailboxes.iter().map(Mailbox::messages).sum(),
            refused: player.refused,
            evictions: counts.told,
            handed_over: counts.handed_over,
        }
    }
}

impl FirstLevel for ReportingLevel<'_> {
    async fn reference(
        &mut self,
        player: &mut Player<'_>,
        reference: Reference,
    ) -> Result<(), ReplayError> {
        let (entry, is_write) = (reference.entry(), reference.is_write());
        let served = self.cache.reference(entry.into(), is_write, self.write_mode, || false);
        let goes_down = is_write || !served.hit;
        let block = self.layout.place(self.trace, entry);
        if goes_down {
            player.make_room(&[reference]).await?;
            while is_write && self.is_handing_over(block) {
                player.finish_one().await?;
            }
        }
        // Taken now and not before the wait: the request goes at once.
        let now = Instant::now();
        for gone in self.cache.evicted() {
            let number = gone.block as u32;
            // The data of a block in flight are not known yet, or about to change.
            let data = self.hands_over && !player.is_busy(number);
            let data = data.then(|| player.content(number));
            self.hints.add_rider(self.layout.place(self.trace, number), data, now);
        }
        if served.now.is_some() {
            self.hints.cancel(block);
        } else if is_write {
            self.hints.keep_data(&(block..block + 1));
        }
        if goes_down {
            let mailbox = &mut self.mailboxes[player.next_line()];
            let pressing = self.hints.waits_since(now) >= FLUSH_AFTER;
            let answer = mailbox.send(&mut self.hints, now, Vec::new(), pressing);
            player.request(block * self.block_bytes, &[reference], answer, || None);
        }
        self.hints.depart();
        Ok(())
    }

    async fn end(&mut self, player: &mut Player<'_>) -> Result<(), ReplayError> {
        while player.finish_one().await?.is_some() {}
        Ok(())
    }
}

/// Opens the connections with their mailboxes.
pub(super) async fn connect(
    uri: &Uri,
    how: &super::Replay,
    block_bytes: u32,
) -> Result<Vec<Mailbox>, ReplayError> {
    let id = undercroft_hints::ClientId::random();
    let mut mailboxes = Vec::new();
    for _ in 0..how.connections.max(1) {
        let mailbox = Mailbox::connect(uri, &how.options, how.report, id).await;
        let mailbox = mailbox.map_err(|error| ReplayError::Server(uri.clone(), error))?;
        let has = mailbox.grant().block_bytes;
        if has != block_bytes {
            return Err(ReplayError::OtherBlocks { uri: uri.clone(), has, wants: block_bytes });
        }
        mailboxes.push(mailbox);
    }
    Ok(mailboxes)
}
