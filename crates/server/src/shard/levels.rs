//! A shard that runs one level of a movement scheme. The level decides which blocks come, stay and
//! go; the shard moves the data accordingly and tells the neighbouring levels.
//!
//! A missed block is taken in when its request is done, and not when the request arrives, because
//! only then is it known whether the level below keeps the block. A block that moves down is
//! accepted under the same rules as other handed-over data (`digests.rs`). A block that comes up
//! without a request is accepted only if nothing happened to it meanwhile.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use undercroft_cache::movement::{EvictedBlock, Load, Pass, RemoteLevel, Requester};
use undercroft_cache::{Asker, Referred, Request, Sender};
use undercroft_hints::{Asked, AskedAt, Departed, Moves, Passed, Verdict};

use crate::counters::MovementStats;
use crate::job::Job;
use crate::lower::{Ascended, Lower};
use crate::shard::content::Content;
use crate::shard::{Effects, Shard};

/// Most announcements of requests that never came, answers that were never fetched, and exchanges
/// that were never asked for. When a map reaches this size it is cleared.
const KEPT_MAX: usize = 4096;

/// What a level of a scheme needs beside its cache.
pub(crate) struct Levels {
    lower: Option<Arc<dyn Lower>>,
    /// Records about requests to come, by client and block.
    asks: HashMap<(u8, u64), Asked>,
    /// Missed requests that the store is working on, by block: the requester, and whether it is a
    /// write.
    missed: HashMap<u64, (Requester, bool)>,
    /// Answers for clients that run levels, by client and block.
    answers: HashMap<(u8, u64), Passed>,
    /// Blocks that moved down and may send another block up: client, block, and hotness.
    due: VecDeque<(u8, u64, f64)>,
    /// Clients introduced to the scheme, each with the number of blocks above.
    uppers: HashMap<u8, u32>,
    /// Blocks changed while an exchange is pending: data that come up for them are outdated.
    changed: HashSet<u64>,
    all_changed: bool,
    counters: MovementStats,
}

impl Levels {
    pub(crate) fn new(lower: Option<Arc<dyn Lower>>) -> Self {
        Self {
            lower,
            asks: HashMap::new(),
            missed: HashMap::new(),
            answers: HashMap::new(),
            due: VecDeque::new(),
            uppers: HashMap::new(),
            changed: HashSet::new(),
            all_changed: false,
            counters: MovementStats::default(),
        }
    }

    fn blocks_below(&self) -> u64 {
        self.lower.as_ref().map_or(0, |lower| lower.blocks())
    }

    fn answer(&mut self, client: u8, block: u64, pass: Pass) {
        bound(&mut self.answers);
        self.answers.insert((client, block), Passed::new(block, pass));
    }

    /// Notes that a block changes: data of it that are coming up are outdated.
    fn note_change(&mut self, block: u64) {
        if self.lower.as_ref().is_some_and(|lower| !lower.is_settled()) {
            self.changed.insert(block);
        } else if !self.changed.is_empty() || self.all_changed {
            (self.changed, self.all_changed) = (HashSet::new(), false);
        }
    }
}

/// Keeps a neighbour from making these maps grow without limit.
fn bound<K, V>(map: &mut HashMap<K, V>) {
    if map.len() >= KEPT_MAX {
        map.clear();
    }
}

/// The record that tells the level below about a request.
fn ask(cache: &RemoteLevel, block: u64, above: (u32, u8), is_held: bool) -> AskedAt {
    let above = (above.0.saturating_add(cache.capacity()), above.1.saturating_add(1));
    let asked = Asked::new(block, cache.bid(), above, is_held);
    AskedAt { time: cache.time(), asked }
}

impl Shard {
    fn linked(&mut self) -> Option<(&mut RemoteLevel, &mut Levels)> {
        self.cache.scheme_mut().zip(self.levels.as_deref_mut())
    }

    /// A level above announces a request.
    pub(crate) fn heard_ask(&mut self, asked: Asked, client: u8) {
        let Some((cache, levels)) = self.linked() else { return };
        let below = levels.blocks_below();
        if levels.uppers.insert(client, asked.above_blocks) != Some(asked.above_blocks) {
            let (blocks, number) = (asked.above_blocks.into(), asked.above_levels.into());
            cache.introduce(client.into(), blocks, number, below);
        }
        cache.pass_time(asked.references.into());
        bound(&mut levels.asks);
        levels.asks.insert((client, asked.block), asked);
    }

    /// Makes a counted reference in a level of a scheme. The caller carries out the result on the
    /// slots.
    pub(crate) fn level_reference(&mut self, request: &Request) -> Referred {
        let Request { block, is_write, asker: Asker { client, .. }, .. } = *request;
        let geometry = Arc::clone(&self.geometry);
        let Some((cache, levels)) = self.linked() else {
            return Referred { hit: false, before: None, now: None };
        };
        let asked = levels.asks.remove(&(client, block));
        if is_write {
            levels.note_change(block);
        }
        let above = asked.map_or((0, 0), |asked| (asked.above_blocks, asked.above_levels));
        if asked.is_some_and(|asked| asked.is_held) {
            return Self::passes_by(cache, levels, block, is_write, above);
        }
        if asked.is_none() {
            cache.stand_alone(levels.blocks_below());
            cache.pass_time(1);
        }
        let upper = asked.as_ref().map(Asked::bid);
        let asking = Requester { upper, owner: client.into() };
        let reached = cache.reference(block, is_write, asking, || geometry.first_touch(block));
        match reached.pass {
            Some(pass) if upper.is_some() => levels.answer(client, block, pass),
            Some(_) => {}
            None => {
                bound(&mut levels.missed);
                levels.missed.insert(block, (asking, is_write));
            }
        }
        let goes_down = is_write || reached.pass.is_none();
        if let (true, Some(lower)) = (goes_down, &levels.lower) {
            lower.ask(ask(cache, block, above, reached.pass.is_some()));
        }
        Referred { hit: reached.before.is_some(), before: reached.before, now: reached.now }
    }

    /// A request for a block that a level above keeps. A copy that is here is dropped, because the
    /// level above will change the block.
    fn passes_by(
        cache: &mut RemoteLevel,
        levels: &mut Levels,
        block: u64,
        is_write: bool,
        above: (u32, u8),
    ) -> Referred {
        if is_write {
            cache.passes_write();
        }
        let before = cache.discard(block);
        if let Some(lower) = &levels.lower {
            lower.ask(ask(cache, block, above, true));
        }
        Referred { hit: false, before, now: None }
    }

    /// A fetch of a missed block ended.
    pub(crate) fn level_fetched(&mut self, block: u64, ended_well: bool, fx: &mut Effects) {
        let Some((_, levels)) = self.linked() else { return };
        let missed = levels.missed.remove(&block);
        if let (Some((asking, is_write)), true) = (missed, ended_well) {
            self.arrive(block, is_write, asking, fx);
        }
    }

    /// A write of a missed block succeeded: its data may stay here if they are the whole block.
    pub(crate) fn level_written(&mut self, block: u64, job: &Job, fx: &mut Effects) {
        let length = self.geometry.len(block);
        let is_whole = job.span(block, &self.geometry) == (0, length);
        let start = self.geometry.start(block);
        let Some((_, levels)) = self.linked() else { return };
        let Some((asking, is_write)) = levels.missed.remove(&block) else { return };
        if !is_whole || !is_write {
            return;
        }
        self.arrive(block, true, asking, fx);
        if self.cache.frame(block).is_some() {
            let mut bytes = vec![0; length];
            job.copy_to(start, &mut bytes);
            if let Some(record) = self.active.get_mut(&block) {
                record.state.content = Content::loose(Bytes::from(bytes));
            }
        }
    }

    /// The block of a request that missed here comes up: the level decides whether it stays.
    fn arrive(&mut self, block: u64, is_write: bool, asking: Requester, fx: &mut Effects) {
        let Some((cache, levels)) = self.linked() else { return };
        let fresh = Pass::Fresh { nearest: 0.0 };
        let pass = levels.lower.as_ref().map_or(fresh, |lower| lower.answer(block));
        let (further, frame) = cache.arrive(block, is_write, asking, pass);
        if asking.upper.is_some() {
            levels.answer(asking.owner as u8, block, further);
        }
        self.leave_evicted(fx);
        if let Some(frame) = frame {
            self.enter(block, frame);
        }
    }

    /// A block was evicted: it moves down with its data, or is dropped. Returns false if this shard
    /// runs no level of a scheme.
    pub(crate) fn goes_down(&mut self, block: u64, frame: u32, fx: &mut Effects) -> bool {
        let is_quiet = {
            let slot = &self.slots[frame as usize];
            !slot.active && slot.state.dirty.is_none() && !self.ranges.cover(block)
        };
        let length = self.geometry.len(block);
        let is_whole = length as u64 == self.geometry.block_bytes();
        let Some(cache) = self.cache.scheme() else { return false };
        let Some(levels) = self.levels.as_deref_mut() else { return false };
        let left = cache.left().filter(|left| left.block == block);
        if let (Some(EvictedBlock { load: Some(load), exchanges, awaits, .. }), Some(lower)) =
            (left, &levels.lower)
        {
            let content = &self.slots[frame as usize].state.content;
            let piece = (is_quiet && is_whole).then(|| content.piece(0, length)).flatten();
            match piece {
                Some(piece) => {
                    let Load { frequency, history } = load;
                    let moves = Moves { frequency, references: 0, history, exchanges };
                    // A copy, because a slow link would keep the frame too long.
                    let data = Bytes::copy_from_slice(&piece);
                    let departed = Departed { block, time: cache.time(), moves, data };
                    lower.down(departed, awaits);
                    fx.settles |= awaits;
                }
                None => levels.counters.demotions_unsent += 1,
            }
        }
        self.leave(block, frame, fx);
        true
    }

    /// A level above sends a block down.
    pub(crate) fn level_demoted(
        &mut self,
        block: u64,
        data: &Bytes,
        (sender, moves): (Sender, Moves),
        may_demote: bool,
        fx: &mut Effects,
    ) {
        let proven = if may_demote { self.proven(block, data).ok() } else { None };
        let client = sender.client;
        let Some((cache, levels)) = self.linked() else { return };
        cache.pass_time(moves.references.into());
        let Some(digest) = proven else {
            levels.counters.demotions_refused += 1;
            return;
        };
        let Moves { frequency, history, exchanges, .. } = moves;
        let load = Load { frequency, history };
        let Some((frame, heat)) = cache.demoted(block, client.into(), load, exchanges) else {
            levels.counters.demotions_refused += 1;
            return;
        };
        if let Some(heat) = heat {
            if levels.due.len() >= KEPT_MAX {
                levels.due.pop_front();
            }
            levels.due.push_back((client, block, heat));
        }
        self.leave_evicted(fx);
        self.enter(block, frame);
        let mut memory = self.pool.take();
        if let Some(memory) = &mut memory {
            memory[..data.len()].copy_from_slice(data);
        }
        self.fill(block, frame, memory, digest);
    }

    /// The block that goes up to a client in exchange for what it sent down, and its data.
    pub(crate) fn exchange(
        &mut self,
        client: u8,
        now_us: u64,
        fx: &mut Effects,
    ) -> Option<(Passed, Bytes)> {
        loop {
            let (cache, levels) = self.linked()?;
            let at = levels.due.iter().position(|&(of, ..)| of == client)?;
            let (_, down, heat) = levels.due.remove(at)?;
            let Some(risen) = cache.exchange(down, heat) else { continue };
            let (block, frame) = (risen.block, risen.frame);
            let slot = &self.slots[frame as usize];
            let is_quiet = !slot.active && !self.ranges.cover(block);
            let length = self.geometry.len(block);
            let piece = is_quiet.then(|| slot.state.content.piece(0, length)).flatten();
            let piece = piece.map(|piece| Bytes::copy_from_slice(&piece));
            if piece.is_some() {
                let asker = Asker { client, tells: true, now_us, connected: u64::MAX };
                self.cache.delivered(&Request {
                    block,
                    is_whole: true,
                    asker,
                    ..Request::default()
                });
            }
            self.leave(block, frame, fx);
            let Some(data) = piece else { continue };
            let Load { frequency, history } = risen.load;
            let verdict = Verdict::Exchanged;
            return Some((Passed { block, verdict, frequency, nearest: 0.0, history }, data));
        }
    }

    /// A block comes up from below without a request. It is refused if anything happened to it
    /// meanwhile, so that it may be outdated, or if its data are known to differ from what was
    /// delivered last.
    pub(crate) fn ascended(&mut self, one: Ascended, fx: &mut Effects) {
        let Ascended { block, load, data } = one;
        let is_quiet = !self.active.contains_key(&block) && !self.ranges.cover(block);
        let length = self.geometry.len(block);
        let is_other = self.is_disproven(block, &data);
        let Some((cache, levels)) = self.linked() else { return };
        let is_old = is_other || levels.all_changed || levels.changed.contains(&block);
        let frame = if is_quiet && !is_old && data.len() == length {
            // Ownership is known for one link only: the block belongs to a client directly above.
            let owner = levels.uppers.keys().min().copied().unwrap_or(0);
            cache.exchanged(block, owner.into(), load)
        } else {
            None
        };
        let Some(frame) = frame else {
            levels.counters.exchanges_refused += 1;
            return;
        };
        self.leave_evicted(fx);
        self.enter(block, frame);
        let mut memory = self.pool.take();
        if let Some(memory) = &mut memory {
            memory[..length].copy_from_slice(&data);
        }
        self.fill(block, frame, memory, 0);
    }

    /// The answer to a client's request for a block.
    pub(crate) fn take_answer(&mut self, client: u8, block: u64) -> Passed {
        let kept = Passed { block, verdict: Verdict::Kept, ..Passed::default() };
        let Some((_, levels)) = self.linked() else { return kept };
        levels.answers.remove(&(client, block)).unwrap_or(kept)
    }

    /// A write of a block ended, with or without success: data of it that were coming up are
    /// outdated.
    pub(crate) fn level_changed(&mut self, block: u64) {
        if let Some((_, levels)) = self.linked() {
            levels.note_change(block);
        }
    }

    /// A range is about to change, or has changed.
    pub(crate) fn level_range(&mut self) {
        if let Some((_, levels)) = self.linked() {
            levels.all_changed = levels.lower.as_ref().is_some_and(|lower| !lower.is_settled());
        }
    }

    /// The number of this client will be given to another client.
    pub(crate) fn forget_upper(&mut self, client: u8) {
        if let Some((_, levels)) = self.linked() {
            levels.uppers.remove(&client);
            levels.asks.retain(|&(of, _), _| of != client);
            levels.answers.retain(|&(of, _), _| of != client);
            levels.due.retain(|&(of, ..)| of != client);
        }
    }

    /// The counters of a level of a scheme, beside those of every cache.
    pub(crate) fn movement(&mut self) -> Option<MovementStats> {
        let (cache, levels) = self.linked()?;
        let (links, gauges) = (cache.link_counts(), cache.gauges().unwrap_or_default());
        let counters = levels.counters;
        let waits = self.coop.as_deref().map(|coop| coop.counters).unwrap_or_default();
        Some(MovementStats {
            demotions_in: links.demotions_in,
            promotions_in: links.promotions_in,
            exchanges_in: links.exchanges_in,
            promotions_out: links.promotions_out,
            hot_blocks: gauges.hot_blocks.into(),
            hot_target: gauges.hot_target.into(),
            messages: waits.hint_messages,
            message_bytes: waits.hint_bytes,
            messages_refused: waits.hint_messages_refused,
            ..counters
        })
    }
}
