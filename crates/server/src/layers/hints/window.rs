//! The operation of a window: what a client reads and writes there, in a session
//! (`hints.rs`) or through a control export (`exports/control.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use undercroft_hints::{self as hint, Abilities, Assembly, Follow, Hint};
use undercroft_level::content::Digest;
use undercroft_nbd::{Command, Context, Failure, Refusal, Reply, Request};

use crate::clock;
use crate::counters::CooperationStats;
use crate::layers::hints::layout::{Status, WINDOW, agreed};
use crate::lock::sleep_lock;
use crate::volume::Volume;
use crate::volume::clients::{Member, Teller};
use crate::volume::feed::{Follower, NoRoom};
use crate::volume::hint_batch::BLOCKS_MAX;
use crate::volume::hint_dispatch::ReceivedHints;

/// Most bits of a client's filter for each block of the cache, and the least limit for the whole
/// filter.
const FILTER_BITS: u32 = 64;
const FILTER_BITS_MIN: u32 = 1 << 20;

/// An open window: status out, messages in.
pub(crate) struct Window {
    pub(crate) volume: Arc<Volume>,
    /// The client, if the volume distinguishes clients.
    pub(crate) member: Option<Arc<Member>>,
    /// While it exists, the volume assumes that the client tells what it evicts.
    _teller: Option<Teller>,
    pub(crate) granted: Abilities,
    status: Status,
    /// The filter whose parts the client is sending.
    assembly: Mutex<Assembly>,
    /// Present if the client follows the cache's content.
    follower: Mutex<Option<Follower>>,
    /// Cost of the work so far, in blocks examined.
    work_debt: AtomicU64,
}

/// Bytes of text or of a filter that cost as much as one block examined.
const BYTES_FOR_ONE: u64 = 256;

/// Most incomplete filters that all windows of a volume have together, of the largest size.
const FILTERS_MAX: usize = 16;

impl Window {
    /// Opens a window. With `speaks`, the peer counts as telling evictions, whatever was granted.
    ///
    /// # Errors
    /// The client is connected with another key.
    pub(crate) fn new(
        volume: &Arc<Volume>,
        contexts: &[Context],
        speaks: bool,
        status: Status,
    ) -> Result<Self, Refusal> {
        let (granted, id) = agreed(contexts);
        let member = volume.join(id).map_err(|wrong| Refusal::Denied(wrong.to_string()))?;
        let tells = speaks || granted.evict || granted.demote;
        let teller = member.clone().filter(|_| tells).map(Teller::new);
        let (assembly, follower) = (Mutex::default(), Mutex::default());
        let volume = Arc::clone(volume);
        let work_debt = AtomicU64::new(0);
        Ok(Self { volume, member, _teller: teller, granted, status, assembly, follower, work_debt })
    }

    /// The cost since the last call, in blocks examined.
    pub(crate) fn work_debt(&self) -> u64 {
        self.work_debt.swap(0, Ordering::Relaxed)
    }

    pub(crate) fn add_work(&self, more: u64) {
        self.work_debt.fetch_add(more, Ordering::Relaxed);
    }

    /// A request in the window, from its byte `from` on. A message is returned; the caller executes
    /// it and replies.
    pub(crate) fn request(&self, request: Request, from: u64) -> Option<(ReceivedHints, Reply)> {
        let Request { command, length, reply, .. } = request;
        match command {
            Command::Read { .. } => {
                self.tell(from, length, reply);
                None
            }
            Command::Write { data } => match hint::parse(&joined(data)) {
                Ok(hints) => {
                    let (arrived, may_demote) = (clock::now(), self.granted.demote);
                    Some((ReceivedHints { hints, bytes: length, arrived, may_demote }, reply))
                }
                Err(malformed) => {
                    let count = CooperationStats { hint_messages_refused: 1, ..Default::default() };
                    self.volume.clients.count(&count);
                    reply.fail(Failure::Invalid, format!("hints: {malformed}"));
                    None
                }
            },
            _ => {
                let text = "the window is for reading the status and for writing hints";
                reply.fail(Failure::Invalid, text.to_owned());
                None
            }
        }
    }

    fn tell(&self, from: u64, length: u64, reply: Reply) {
        let text = (self.status)(from > 0);
        // A client that continues reading pays too: the text may be made anew for it.
        self.add_work(text.len() as u64 / BYTES_FOR_ONE);
        if text.len() as u64 > WINDOW {
            let text = "the status does not fit the window: ask the HTTP listener for /stats";
            return reply.fail(Failure::Overflow, text.to_owned());
        }
        // Copies only the requested part: the answer would otherwise keep the whole text alive.
        let mut part = BytesMut::with_capacity(length as usize);
        let of_text = (from as usize).min(text.len())..((from + length) as usize).min(text.len());
        part.extend_from_slice(&text[of_text]);
        part.resize(length as usize, b' ');
        reply.data(vec![part.freeze()]);
    }

    /// Executes a message.
    ///
    /// # Errors
    /// The client cannot follow; the rest of the message was executed.
    pub(crate) fn receive_hints(&self, received: ReceivedHints) -> Result<(), NoRoom> {
        self.add_work(received.cost());
        let (mut answer, mut ignored, mut published) = (Ok(()), 0, 0);
        let last_follow = received.hints.iter().rposition(|hint| matches!(hint, Hint::Follow(_)));
        for (place, hint) in received.hints.iter().enumerate() {
            match hint {
                Hint::ClientStat(stat) => {
                    if let Some(member) = &self.member {
                        member.set_stat(**stat);
                    }
                }
                // Of several only the last counts.
                Hint::Follow(follow) if self.granted.follow && Some(place) == last_follow => {
                    answer = self.follow(*follow);
                }
                Hint::Follow(_) if self.granted.follow => ignored += 1,
                Hint::Digest { .. } | Hint::Changes { .. } if self.granted.digest => {
                    let digest = self.assemble(hint, &mut ignored);
                    if let (Some(digest), Some(member)) = (digest, &self.member) {
                        let blocks = self.volume.now().cache_blocks;
                        let cost = self.volume.shards.cost_of_digest(&digest, blocks);
                        if published > 0 && published + cost > BLOCKS_MAX {
                            ignored += 1;
                            continue;
                        }
                        published += cost;
                        let from = member.caller().client;
                        self.volume.shards.receive_digest(&Digest { from, ..digest });
                    }
                }
                _ => {}
            }
        }
        self.add_work(published);
        if ignored > 0 {
            let count = CooperationStats { ignored_hints: ignored, ..Default::default() };
            self.volume.clients.count(&count);
        }
        if let Some(member) = &self.member {
            self.volume.receive_hints(member.caller(), received);
        }
        answer
    }

    /// Follows what the cache holds, in another way than before.
    fn follow(&self, follow: Follow) -> Result<(), NoRoom> {
        let mut follower = sleep_lock(&self.follower);
        // The old follower must end first.
        *follower = None;
        let (next, work) = Follower::new(&self.volume, follow)?;
        // What a content-aware policy knew of its clients may begin anew.
        self.add_work(work + u64::from(self.volume.now().cache_blocks) / 64);
        *follower = next;
        Ok(())
    }

    /// Takes a record of a filter. Returns the publication that it completes, if it does. What all
    /// windows of a volume have of incomplete filters is bounded; beyond that they are dropped.
    fn assemble(&self, hint: &Hint, ignored: &mut u64) -> Option<Digest> {
        let most = self.volume.now().cache_blocks.saturating_mul(FILTER_BITS).max(FILTER_BITS_MIN);
        let mut assembly = sleep_lock(&self.assembly);
        let before = assembly.bytes();
        let digest = assembly.take(hint, most);
        let all = &self.volume.clients.assembling;
        all.fetch_add(assembly.bytes(), Ordering::Relaxed);
        let all_now = all.fetch_sub(before, Ordering::Relaxed) - before;
        if all_now > most as usize / 8 * FILTERS_MAX {
            all.fetch_sub(assembly.bytes(), Ordering::Relaxed);
            *assembly = Assembly::default();
            *ignored += 1;
        }
        digest
    }

    /// Tells the client what the cache holds now.
    pub(crate) fn news(&self, length: u64, one_chunk: bool, reply: Reply) {
        let told =
            sleep_lock(&self.follower).as_mut().map(|follower| follower.tell(length as usize));
        let (mut told, work) = told.unwrap_or_default();
        self.add_work(work);
        if one_chunk {
            let mut all = BytesMut::from(told);
            all.resize(length as usize, 0);
            told = all.freeze();
        }
        reply.start(vec![told]);
    }

    /// The client reads or writes a range, and will assume that it is cached here.
    pub(crate) fn asks(&self, offset: u64, length: u64) {
        if let Some(follower) = sleep_lock(&self.follower).as_mut() {
            let bytes = u64::from(self.volume.config().block_bytes);
            follower.asks(offset / bytes..offset.saturating_add(length).div_ceil(bytes));
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.volume
            .clients
            .assembling
            .fetch_sub(sleep_lock(&self.assembly).bytes(), Ordering::Relaxed);
    }
}

/// Joins the pieces of a message.
fn joined(mut data: Vec<Bytes>) -> Bytes {
    if data.len() == 1 {
        return data.swap_remove(0);
    }
    let mut whole = BytesMut::with_capacity(data.iter().map(Bytes::len).sum());
    data.iter().for_each(|piece| whole.extend_from_slice(piece));
    whole.freeze()
}

#[cfg(test)]
mod tests {
    use undercroft_policy::Spec;

    use super::*;
    use crate::config::VolumeConfig;
    use crate::volume::tests::open;

    #[tokio::test]
    async fn whoever_continues_reading_pays_for_a_text_that_may_be_made_anew() {
        let volume = open(VolumeConfig::new("test", 100, Spec::parse("lru").unwrap()), 300);
        let status: Status = Arc::new(|_| Bytes::from(vec![b'x'; 1 << 16]));
        let window = Window::new(&volume, &[], false, status).unwrap();
        window.work_debt();
        for from in [0, 1, 4096] {
            let (reply, awaited) = Reply::detached();
            let command = Command::Read { one_chunk: false };
            let request = Request { command, offset: from, length: 1, durable: false, reply };
            assert!(window.request(request, from).is_none());
            awaited.await;
            assert_eq!(window.work_debt(), (1 << 16) / BYTES_FOR_ONE, "from {from}");
        }
    }
}
