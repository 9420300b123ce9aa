//! The clients: what each session asks for, what it says, and how it leaves.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use undercroft_hints::{Abilities, BlockRun, EvictFlags, Grant, Hint, Query};
use undercroft_nbd::wire::SEND_FUA;
use undercroft_nbd::{Client, ClientError, ClientOptions, Extent};

use crate::attached::{Attached, Memory, draw_id};
use crate::disk::{Disk, SECTOR};
use crate::history::{Action, End, FORGED, Place, UNSEEN, Value, ZEROES, contents, values};
use crate::random::Random;
use crate::scenario::{Deed, VolumeDraw};
use crate::wire::Wire;
use crate::world::World;

/// What a client remembers of its reads, to hand it over later.
const REMEMBERED: usize = 16;

/// The context whose status says what is zero, and the bit that does.
const ALLOCATION: &str = "base:allocation";
const STATE_ZERO: u32 = 2;

/// Bytes of a message of hints that is surely taken.
const MESSAGE_MAX: usize = 32 << 10;

/// One client: a session after the other, until all have asked for enough.
pub async fn run(world: Arc<World>, number: u64, mut random: Random) {
    let scenario = &world.scenario;
    let volume = (number % scenario.volumes.len() as u64) as usize;
    let (mut refused, mut memory) = (0, Memory::default());
    while world.history.requests() < scenario.requests && !world.is_over() {
        let session = Session::begin(&world, (volume, number), &mut memory, &mut random).await;
        let Some(session) = session else {
            refused = (refused + 1).min(8);
            sleep(Duration::from_millis(random.between(5, 10 << refused))).await;
            continue;
        };
        refused = 0;
        memory = session.run(&mut random).await.unwrap_or(memory);
    }
}

struct Session {
    world: Arc<World>,
    number: u32,
    volume: usize,
    client: Client,
    wire: Wire,
    grant: Option<Grant>,
    /// If it says nothing itself.
    attached: Option<Attached>,
    sequence: u32,
    /// Blocks that were read, as they were then.
    seen: VecDeque<(u64, Bytes)>,
    answers: JoinSet<Option<(u64, Bytes)>>,
}

impl Session {
    async fn begin(
        world: &Arc<World>,
        (volume, client): (usize, u64),
        memory: &mut Memory,
        random: &mut Random,
    ) -> Option<Session> {
        let scenario = &world.scenario;
        let draw = &scenario.volumes[volume];
        let name = &draw.name;
        let mut contexts = Vec::new();
        let can_attach = scenario.attached > 0 && draw.places_evicted();
        let is_attached = can_attach && random.percent(scenario.attached);
        let id = if is_attached { draw_id(client, random) } else { None };
        if is_attached {
            let want = Abilities::default();
            contexts.extend(id.map(|id| Query { client: Some(id), want }.to_string()));
        } else if random.percent(scenario.hinting) {
            let want = "evict,demote,promote,hold,stat,follow";
            let id = random.percent(70).then_some(u128::from(client) + 1);
            contexts.push(
                Query { client: id.map(Into::into), want: Abilities::parse(want) }.to_string(),
            );
        }
        if random.percent(20) {
            contexts.push(ALLOCATION.to_owned());
        }
        let (end, wire) = world.connect(client, scenario.buffer).ok()?;
        let options = ClientOptions { contexts, ..ClientOptions::default() };
        let opened = Client::over(end, name, &options).await.ok()?;
        let contexts = &opened.remote().contexts;
        let grant = contexts.iter().find_map(|(_, name)| Grant::parse(name));
        let number = world.history.begin_session(volume);
        let attached = is_attached
            .then(|| Attached::new(world, (volume, number, client), id, std::mem::take(memory)));
        Some(Session {
            world: Arc::clone(world),
            number,
            volume,
            client: opened,
            wire,
            grant,
            attached,
            sequence: 0,
            seen: VecDeque::new(),
            answers: JoinSet::new(),
        })
    }

    /// Returns what an attached client remembers for its next one.
    async fn run(mut self, random: &mut Random) -> Option<Memory> {
        let world = Arc::clone(&self.world);
        let scenario = &world.scenario;
        let mut leaves_well = true;
        while world.history.requests() < scenario.requests && !self.client.is_lost() {
            if world.is_over() {
                break;
            }
            if let Some(attached) = &mut self.attached {
                attached.befall(random).await;
                self.write_pages(random);
            }
            let deed = random.weighted(&scenario.deeds);
            match deed {
                Deed::Leave => break,
                Deed::HangUp => {
                    leaves_well = false;
                    break;
                }
                Deed::Hold => self.hold(random),
                _ => self.ask(deed, random),
            }
            while self.answers.len() >= scenario.depth as usize {
                self.take_answer().await;
            }
            if random.percent(scenario.long_pauses) {
                sleep(Duration::from_millis(random.between(500, 3000))).await;
            } else if scenario.pause_ms > 0 {
                sleep(Duration::from_millis(random.below(scenario.pause_ms + 1))).await;
            }
        }
        if !leaves_well {
            self.wire.cut();
        }
        while !self.answers.is_empty() {
            self.take_answer().await;
        }
        self.wire.hold(false);
        world.history.end_session(self.number);
        let memory = self.attached.take().map(|attached| attached.leave(leaves_well));
        let _ = timeout(Duration::from_secs(60), self.client.close()).await;
        memory
    }

    async fn take_answer(&mut self) {
        if let Some(Ok(Some(seen))) = self.answers.join_next().await {
            if let Some(attached) = &mut self.attached {
                return attached.memory.saw(seen.0, seen.1);
            }
            self.seen.push_back(seen);
            if self.seen.len() > REMEMBERED {
                self.seen.pop_front();
            }
        }
    }

    /// Takes no replies for a while.
    fn hold(&self, random: &mut Random) {
        self.wire.hold(true);
        let (wire, time) = (self.wire.clone(), Duration::from_millis(random.between(10, 2000)));
        tokio::spawn(async move {
            sleep(time).await;
            wire.hold(false);
        });
    }

    fn draw(&self) -> &VolumeDraw {
        &self.world.scenario.volumes[self.volume]
    }

    /// Sectors: often of a few blocks that all use, and often whole blocks.
    fn place(&self, random: &mut Random) -> Range<u64> {
        let draw = self.draw();
        let (per_block, all) = (draw.block / SECTOR, draw.bytes / SECTOR);
        let blocks = all.div_ceil(per_block);
        if random.percent(self.world.scenario.large) {
            let first = random.below(all) * random.below(2);
            return first..random.between(first + 1, all);
        }
        let hot = random.percent(60);
        let block = random.below(if hot { 6 } else { blocks });
        let count = random.weighted(&[(1, 10), (2, 2), (5, 1)]);
        let (mut first, mut end) = (block * per_block, (block + count) * per_block);
        if random.percent(30) {
            first += random.below(per_block);
            end = first + random.between(1, per_block);
        }
        first..end.min(all).max(first + 1)
    }

    /// Begins one request; its answer is taken later.
    fn ask(&mut self, deed: Deed, random: &mut Random) {
        // Who has no status to look at asks for something else.
        let deed = if deed == Deed::Status && self.grant.is_none() { Deed::Flush } else { deed };
        let world = Arc::clone(&self.world);
        let history = world.history.clone();
        let sectors = self.place(random);
        let (offset, length) = (sectors.start * SECTOR, (sectors.end - sectors.start) * SECTOR);
        let durable = random.percent(world.scenario.durable)
            && matches!(deed, Deed::Write | Deed::Zero | Deed::Trim)
            && self.client.remote().offers(SEND_FUA);
        let action = match deed {
            Deed::Read => Action::Read(Vec::new()),
            Deed::Write => Action::Write,
            Deed::Flush => Action::Flush,
            Deed::Trim => Action::Trim,
            Deed::Zero => Action::Zero,
            Deed::Cache => Action::Other("CACHE"),
            Deed::BlockStatus => Action::Read(Vec::new()),
            Deed::Status => Action::Other("status"),
            _ => Action::Other("hint"),
        };
        if let Some(attached) = &mut self.attached {
            let block = offset / world.scenario.volumes[self.volume].block;
            match deed {
                Deed::Evict | Deed::Demote | Deed::Promote => return attached.say(deed, random),
                Deed::Write if random.percent(60) => return attached.change_page(block, random),
                Deed::Write => return self.write(sectors, None, durable),
                Deed::Trim | Deed::Zero if random.percent(50) => attached.range(&sectors, random),
                _ => {}
            }
        }
        let message = match deed {
            Deed::Evict | Deed::Demote | Deed::Promote => match self.hint(deed, random) {
                Some(message) => Some(message),
                None => return,
            },
            _ => None,
        };
        let place = Place { volume: self.volume, sectors: sectors.clone() };
        let number = history.call(self.number, place, action, durable);
        match deed {
            Deed::BlockStatus => return self.block_status(number, sectors, random),
            Deed::Read => return self.read(number, sectors, random),
            _ => {}
        }
        let client = &self.client;
        let answer: std::pin::Pin<Box<dyn Future<Output = Result<(), ClientError>> + Send>> =
            match deed {
                Deed::Write => {
                    let data = Bytes::from(contents(number, sectors));
                    Box::pin(client.write(offset, vec![data], durable))
                }
                Deed::Flush => Box::pin(client.flush()),
                Deed::Trim => Box::pin(client.trim(offset, length, durable)),
                Deed::Zero => Box::pin(client.write_zeroes(offset, length, 0, durable)),
                Deed::Cache => Box::pin(client.cache(offset, length)),
                Deed::Status => match &self.grant {
                    Some(grant) => {
                        let into = vec![0; grant.window_bytes as usize];
                        let read = client.read(grant.window_base, vec![Box::new(into)]);
                        Box::pin(async { read.await.1 })
                    }
                    None => Box::pin(client.flush()),
                },
                _ => match (&self.grant, message) {
                    (Some(grant), Some(message)) => {
                        Box::pin(client.write(grant.window_base, vec![message], false))
                    }
                    _ => Box::pin(client.flush()),
                },
            };
        self.answers.spawn(async move {
            let result = answer.await;
            history.end(number, ended(&result), Vec::new());
            None
        });
    }

    fn read(&mut self, number: u32, sectors: Range<u64>, random: &mut Random) {
        let (history, block) = (self.world.history.clone(), self.draw().block);
        let (mut offset, mut end) = (sectors.start * SECTOR, sectors.end * SECTOR);
        let info = &self.client.remote().info;
        // All sectors that were called for are read as a whole; beside them parts of others are.
        if random.percent(self.world.scenario.unaligned) && info.min_block == 1 {
            offset = offset.saturating_sub(random.below(SECTOR));
            end = end.max((end + random.below(SECTOR)).min(self.draw().bytes));
        }
        let skipped = (sectors.start * SECTOR - offset) as usize;
        let length = (end - offset) as usize;
        let read = self.client.read(offset, vec![Box::new(vec![0; length])]);
        self.answers.spawn(async move {
            let (mut buffers, result) = read.await;
            let bytes = buffers.first_mut().map(|b| (**b).as_mut().to_vec());
            let bytes = bytes.unwrap_or_default();
            let is_done = result.is_ok();
            let whole = skipped..skipped + ((sectors.end - sectors.start) * SECTOR) as usize;
            let found = if is_done { values(&bytes[whole], sectors.start) } else { Vec::new() };
            history.end(number, ended(&result), found);
            let is_block = length as u64 == block && offset % block == 0;
            (is_done && is_block).then(|| (offset / block, Bytes::from(bytes)))
        });
    }

    fn block_status(&mut self, number: u32, sectors: Range<u64>, random: &mut Random) {
        let history = self.world.history.clone();
        let (offset, length) = (sectors.start * SECTOR, (sectors.end - sectors.start) * SECTOR);
        let contexts = &self.client.remote().contexts;
        let context = contexts.iter().find(|(_, name)| name == ALLOCATION).map(|(of, _)| *of);
        let status = self.client.block_status(offset, length, random.percent(30));
        // What it executes late is told here, and not seen in the cache.
        let may_be_late = self.world.lowest().disks().iter().any(Disk::is_service);
        self.answers.spawn(async move {
            let answer = status.await;
            let all = answer.as_deref().unwrap_or_default().iter();
            let extents = all.filter(|(of, _)| Some(*of) == context).flat_map(|(_, e)| e.clone());
            let mut found = zeroes(&extents.collect::<Vec<_>>(), &sectors);
            if may_be_late {
                found.fill(UNSEEN);
            }
            history.end(number, ended(&answer), found);
            None
        });
    }

    /// Writes what the page cache has kept long enough, some of it twice in a row: the second time
    /// as somebody has changed it meanwhile.
    fn write_pages(&mut self, random: &mut Random) {
        while let Some(page) = self.attached.as_mut().and_then(Attached::due_page) {
            self.write(page.sectors.clone(), Some(page.value), false);
            if random.percent(40) {
                self.write(page.sectors, None, false);
            }
        }
    }

    /// Begins a WRITE of what was promised, or of something new.
    fn write(&mut self, sectors: Range<u64>, value: Option<Value>, durable: bool) {
        let history = self.world.history.clone();
        let place = Place { volume: self.volume, sectors: sectors.clone() };
        let number = history.call_for(self.number, place, Action::Write, durable, value);
        let (first, block) = (sectors.start, self.draw().block);
        let data = Bytes::from(contents(value.unwrap_or(number), sectors));
        let written = self.client.write(first * SECTOR, vec![data.clone()], durable);
        self.answers.spawn(async move {
            let result = written.await;
            history.end(number, ended(&result), Vec::new());
            let is_block = data.len() as u64 == block && first * SECTOR % block == 0;
            (result.is_ok() && is_block).then(|| (first * SECTOR / block, data))
        });
    }

    /// A message, true or not.
    fn hint(&mut self, deed: Deed, random: &mut Random) -> Option<Bytes> {
        let grant = self.grant?;
        let draw = self.draw();
        let blocks = draw.bytes / draw.block;
        let lies = random.percent(self.world.scenario.lying);
        let runs = |block: u64, random: &mut Random| {
            let run = BlockRun::new(block, random.between(1, 4) as u32);
            run.into_iter().collect::<Vec<_>>()
        };
        let hint = match deed {
            Deed::Evict if grant.grant.evict => {
                let flags = EvictFlags { rides: random.percent(20), ..EvictFlags::default() };
                self.sequence += 1;
                let block = match self.seen.front() {
                    Some((block, _)) if !lies => *block,
                    _ => random.below(blocks + 4),
                };
                let runs = if lies {
                    runs(block, random)
                } else {
                    BlockRun::new(block, 1).into_iter().collect()
                };
                Hint::Evict {
                    age_us: random.below(1000) as u32,
                    sequence: self.sequence,
                    flags,
                    runs,
                }
            }
            Deed::Demote if grant.grant.demote => {
                let (block, data) = if lies {
                    let block = random.below(blocks);
                    let per_block = draw.block / SECTOR;
                    // Made up by nobody, for all to see.
                    let sectors = block * per_block..(block + 1) * per_block;
                    let value: Value = FORGED - 1;
                    (block, Bytes::from(contents(value, sectors)))
                } else {
                    self.seen.pop_front()?
                };
                Hint::Demote { block, rides: random.percent(20), data }
            }
            Deed::Promote if grant.grant.promote => {
                Hint::Promote(runs(random.below(blocks), random))
            }
            _ => return None,
        };
        let mut message = BytesMut::new();
        hint.put(&mut message);
        (message.len() <= MESSAGE_MAX).then(|| message.freeze())
    }
}

/// What a BLOCK_STATUS says of sectors: which are zeroes, and nothing of all others.
fn zeroes(extents: &[Extent], sectors: &Range<u64>) -> Vec<Value> {
    let mut values = vec![UNSEEN; (sectors.end - sectors.start) as usize];
    let (mut at, end) = (0_u64, values.len() as u64 * SECTOR);
    for extent in extents {
        let whole = at.div_ceil(SECTOR) as usize..((at + extent.length).min(end) / SECTOR) as usize;
        if extent.status & STATE_ZERO != 0 && !whole.is_empty() {
            values[whole].fill(ZEROES);
        }
        at += extent.length;
    }
    values
}

pub fn ended<T>(result: &Result<T, ClientError>) -> End {
    match result {
        Ok(_) => End::Done,
        Err(ClientError::Server { .. }) => End::Failed,
        Err(_) => End::Unknown,
    }
}

/// Reads a whole volume, as somebody who comes after everything.
pub async fn audit(world: &Arc<World>, volume: usize) -> Result<(), String> {
    let draw = &world.scenario.volumes[volume];
    let (end, _wire) = world.connect(99, 65_536).map_err(|error| error.to_string())?;
    let client = Client::over(end, &draw.name, &ClientOptions::default()).await;
    let client = client.map_err(|error| error.to_string())?;
    let session = world.history.begin_session(volume);
    let per_block = draw.block / SECTOR;
    let all = draw.bytes / SECTOR;
    for first in (0..all).step_by(per_block as usize) {
        let place = Place { volume, sectors: first..(first + per_block).min(all) };
        let found = look(world, session, &client, place.clone()).await;
        // It may have joined a read that had begun before the disk was well.
        let found = match found {
            Err(_) => look(world, session, &client, place).await,
            found => found,
        };
        if found.is_err() && world.fills_its_log(volume) {
            // Each takes as long.
            break;
        }
        found.map_err(|error| format!("sector {first} cannot be read: {error}"))?;
    }
    world.history.end_session(session);
    client.close().await;
    Ok(())
}

/// Reads some sectors.
async fn look(
    world: &World,
    session: u32,
    client: &Client,
    place: Place,
) -> Result<(), ClientError> {
    let first = place.sectors.start;
    let length = ((place.sectors.end - first) * SECTOR) as usize;
    let number = world.history.call(session, place, Action::Read(Vec::new()), false);
    let (mut buffers, result) = client.read(first * SECTOR, vec![Box::new(vec![0; length])]).await;
    let bytes = buffers.first_mut().map(|b| (**b).as_mut().to_vec()).unwrap_or_default();
    let found = if result.is_ok() { values(&bytes, first) } else { Vec::new() };
    world.history.end(number, ended(&result), found);
    result
}
