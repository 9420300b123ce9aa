//! Clients of the kind that `undercroft attach` makes of a program: the program reads and writes by
//! ordinary connections, some of it through a page cache that writes later, and somebody else says
//! what it evicts, over the control export. That is a connection with delays and losses of its own,
//! so what is said comes late, twice, in another order than the requests, or never. What it hands
//! over is true, was true, will be true, or was made up.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use undercroft_hints::{Abilities, BlockRun, ClientId, EvictFlags, Hint, Query};
use undercroft_nbd::{Client, ClientOptions};

use crate::client::ended;
use crate::disk::SECTOR;
use crate::history::{Action, FORGED, Place, Value, contents};
use crate::random::Random;
use crate::scenario::{Deed, VolumeDraw};
use crate::wire::Wire;
use crate::world::World;

/// Most blocks of each kind that are remembered, and pages that the page cache has not written.
const REMEMBERED: usize = 16;
const PAGES: usize = 8;

/// Messages of one client that are on their way.
const UNDER_WAY: usize = 24;

/// Contents in one message of a flood.
const FLOOD: u64 = 24;

/// How long the last messages of a client may take that has gone.
const LATE: Duration = Duration::from_secs(120);

/// Milliseconds by which a page is written later, and a message is sent later: by weight.
const PAGE_LATER_MS: [(u64, u64); 5] = [(0, 4), (5, 4), (100, 4), (1000, 2), (30_000, 1)];
const SAID_LATER_MS: [(u64, u64); 5] = [(0, 10), (3, 4), (60, 3), (800, 2), (40_000, 1)];

/// What a program and its companion remember, from one session to the next.
#[derive(Default)]
pub struct Memory {
    /// Blocks as they were when they were read or written.
    seen: VecDeque<(u64, Bytes)>,
    /// Blocks as they were some time ago.
    old: VecDeque<(u64, Bytes)>,
    /// What the page cache has yet to write.
    pages: VecDeque<Page>,
    sequence: u32,
}

/// A block that the page cache has yet to write.
pub struct Page {
    pub sectors: Range<u64>,
    pub value: Value,
    due: Instant,
}

impl Memory {
    /// A block was read or written as a whole.
    pub fn saw(&mut self, block: u64, data: Bytes) {
        // What it was before is an old version now.
        if let Some(at) = self.seen.iter().position(|(of, old)| *of == block && *old != data) {
            let one = self.seen.remove(at);
            one.into_iter().for_each(|one| push(&mut self.old, one));
        }
        push(&mut self.seen, (block, data));
    }
}

/// The companion of one session: the control export, and what is said there.
pub struct Attached {
    world: Arc<World>,
    volume: usize,
    session: u32,
    number: u64,
    id: Option<ClientId>,
    control: Option<(Client, Wire)>,
    /// Messages under way.
    said: JoinSet<()>,
    pub memory: Memory,
}

/// The id of a client: none, or one with a key or without.
pub fn draw_id(client: u64, random: &mut Random) -> Option<ClientId> {
    let number = u128::from(client) + 1;
    match random.weighted(&[(0, 3), (1, 2), (2, 1)]) {
        0 => None,
        1 => Some(number.into()),
        _ => Some(ClientId { number: number + 1000, key: Some(number * 7919) }),
    }
}

impl Attached {
    pub fn new(
        world: &Arc<World>,
        (volume, session, number): (usize, u32, u64),
        id: Option<ClientId>,
        memory: Memory,
    ) -> Attached {
        let (world, said) = (Arc::clone(world), JoinSet::new());
        Attached { world, volume, session, number, id, control: None, said, memory }
    }

    fn draw(&self) -> &VolumeDraw {
        &self.world.scenario.volumes[self.volume]
    }

    fn sectors(&self, block: u64) -> Range<u64> {
        let draw = self.draw();
        let per_block = draw.block / SECTOR;
        block * per_block..((block + 1) * per_block).min(draw.bytes / SECTOR)
    }

    /// The control export is opened, lost, and not taken from for a while.
    pub async fn befall(&mut self, random: &mut Random) {
        while self.said.try_join_next().is_some() {}
        let is_lost = self.control.as_ref().is_none_or(|(client, _)| client.is_lost());
        match &self.control {
            _ if is_lost => {
                self.control = None;
                if random.percent(30) {
                    self.control = self.open(random).await;
                }
            }
            Some((_, wire)) => match random.below(50) {
                0 => wire.cut(),
                1 => {
                    wire.hold(true);
                    let (wire, ms) = (wire.clone(), random.between(10, 2000));
                    tokio::spawn(async move {
                        sleep(Duration::from_millis(ms)).await;
                        wire.hold(false);
                    });
                }
                _ => {}
            },
            None => {}
        }
    }

    async fn open(&self, random: &mut Random) -> Option<(Client, Wire)> {
        let scenario = &self.world.scenario;
        // Some speak in the name of another client, with or without a key.
        let id = match random.percent(scenario.lying / 2) {
            true => draw_id((self.number + 1) % scenario.clients, random),
            false => self.id,
        };
        // Without the context, or without the ability, no contents are taken.
        let want = match random.below(20) {
            0 => None,
            1 => Some("evict,stat"),
            _ => Some("evict,demote,promote,hold,stat"),
        };
        let query = want.map(|want| Query { client: id, want: Abilities::parse(want) }.to_string());
        let options =
            ClientOptions { contexts: query.into_iter().collect(), ..ClientOptions::default() };
        let (end, wire) =
            self.world.connect(self.number, random.pick(&[600, 4096, 262_144])).ok()?;
        let name = format!("@coop/{}", self.draw().name);
        Some((Client::over(end, &name, &options).await.ok()?, wire))
    }

    /// The program changes a block in its page cache, and mostly evicts it there at once.
    pub fn change_page(&mut self, block: u64, random: &mut Random) {
        let block = block.min(self.draw().bytes.div_ceil(self.draw().block) - 1);
        let (sectors, value) = (self.sectors(block), self.world.history.promise());
        let due = Instant::now() + Duration::from_millis(random.weighted(&PAGE_LATER_MS));
        let data = Bytes::from(contents(value, sectors.clone()));
        // A page that waits already is written once, as it is now.
        if random.percent(50) {
            self.memory.pages.retain(|page| page.sectors != sectors);
        }
        self.memory.pages.push_back(Page { sectors, value, due });
        // To be said again when it is written, or something else is.
        push(&mut self.memory.old, (block, data.clone()));
        match random.percent(80) {
            true => self.send(&[Hint::Demote { block, rides: false, data }], random),
            false => self.memory.saw(block, data),
        }
    }

    /// A page that is to be written now.
    pub fn due_page(&mut self) -> Option<Page> {
        let pages = &mut self.memory.pages;
        let now = Instant::now();
        let at = if pages.len() > PAGES { 0 } else { pages.iter().position(|p| p.due <= now)? };
        pages.remove(at)
    }

    /// A range is about to change: what its blocks held, or will, is handed over meanwhile.
    pub fn range(&mut self, sectors: &Range<u64>, random: &mut Random) {
        let block = sectors.start / (self.draw().block / SECTOR);
        let place = self.sectors(block);
        let of_block = self.memory.seen.iter().find(|(at, _)| *at == block);
        let data = match of_block {
            Some((_, data)) if random.percent(50) => data.clone(),
            _ => Bytes::from(vec![0; ((place.end - place.start) * SECTOR) as usize]),
        };
        let times = random.between(1, 2);
        for _ in 0..times {
            self.send(&[Hint::Demote { block, rides: false, data: data.clone() }], random);
        }
    }

    /// Says something, true or not.
    pub fn say(&mut self, deed: Deed, random: &mut Random) {
        let lies = random.percent(self.world.scenario.lying);
        let hints = match deed {
            Deed::Demote if random.percent(3) => {
                let many = (0..FLOOD).filter_map(|_| self.demotion(true, random));
                many.collect()
            }
            Deed::Demote => self.demotion(lies, random).into_iter().collect(),
            Deed::Evict => vec![self.eviction(lies, random)],
            _ => {
                let run = BlockRun::new(random.below(8), random.between(1, 4) as u32);
                let runs = run.into_iter().collect();
                vec![if random.percent(50) { Hint::Promote(runs) } else { Hint::Hold(runs) }]
            }
        };
        self.send(&hints, random);
    }

    fn eviction(&mut self, lies: bool, random: &mut Random) -> Hint {
        let blocks = self.draw().bytes / self.draw().block;
        self.memory.sequence += 1;
        let (block, count) = match self.memory.seen.front() {
            Some((block, _)) if !lies => (*block, 1),
            _ => (random.below(blocks + 4), random.between(1, 4) as u32),
        };
        let runs = BlockRun::new(block, count).into_iter().collect();
        let age_us = random.pick(&[0, 1000, 1_000_000]);
        let flags = EvictFlags { rides: random.percent(10), ..EvictFlags::default() };
        Hint::Evict { age_us, sequence: self.memory.sequence, flags, runs }
    }

    fn demotion(&mut self, lies: bool, random: &mut Random) -> Option<Hint> {
        let (block, data) = if lies { self.lie(random)? } else { self.truth(random)? };
        Some(Hint::Demote { block, rides: random.percent(10), data })
    }

    /// A block that was read or written lately, as it was then.
    fn truth(&mut self, random: &mut Random) -> Option<(u64, Bytes)> {
        let seen = &mut self.memory.seen;
        let at = random.below(seen.len() as u64) as usize;
        let one = seen.remove(at)?;
        push(&mut self.memory.old, one.clone());
        Some(one)
    }

    fn lie(&mut self, random: &mut Random) -> Option<(u64, Bytes)> {
        let all = self.draw().bytes.div_ceil(self.draw().block);
        let any = random.below(all);
        let made = |value| Bytes::from(contents(value, self.sectors(any)));
        let seen = self.memory.seen.get(random.below(REMEMBERED as u64) as usize).cloned();
        let (block, data) = seen.unwrap_or_else(|| (any, made(FORGED - 1)));
        let mut bytes = data.to_vec();
        Some(match random.below(9) {
            // Of another block.
            0 => (any, data),
            // Of the block, but from earlier.
            1..4 => self.memory.old.get(random.below(REMEMBERED as u64) as usize)?.clone(),
            // All but a byte.
            4 => {
                bytes[random.below(data.len() as u64) as usize] ^= 1 << random.below(8);
                (block, bytes.into())
            }
            // Of a write that is never made.
            5 => (any, made(self.world.history.promise())),
            // Of no block.
            6 => (all + random.pick(&[0, 1, 1 << 40]), data),
            // Too short or too long.
            7 => {
                bytes.resize(
                    random.pick(&[1, 511, data.len() / 2, data.len() + 1, data.len() * 2]),
                    7,
                );
                (block, bytes.into())
            }
            _ => (any, made(FORGED - 1)),
        })
    }

    /// Sends a message, sometimes twice, and some time from now.
    fn send(&mut self, hints: &[Hint], random: &mut Random) {
        let mut message = BytesMut::new();
        hints.iter().for_each(|hint| hint.put(&mut message));
        // Some end in the middle.
        if random.percent(1) {
            message.truncate(random.below(message.len() as u64) as usize);
        }
        let message = message.freeze();
        let times = 1 + u64::from(random.percent(25));
        for _ in 0..times {
            let later = Duration::from_millis(random.weighted(&SAID_LATER_MS));
            let Some((client, _)) = &self.control else { return };
            if message.is_empty() || self.said.len() >= UNDER_WAY {
                return;
            }
            let (world, client, message) =
                (Arc::clone(&self.world), client.clone(), message.clone());
            let (session, volume) = (self.session, self.volume);
            self.said.spawn(async move {
                sleep(later).await;
                if world.is_over() || client.is_lost() {
                    return;
                }
                let place = Place { volume, sectors: 0..1 };
                let number = world.history.call(session, place, Action::Other("said"), false);
                let result = client.write(0, vec![message], false).await;
                world.history.end(number, ended(&result), Vec::new());
            });
        }
    }

    /// The program has gone. Its companion goes with it, or still says what it has to say.
    pub fn leave(self, leaves_well: bool) -> Memory {
        let Attached { control, mut said, memory, .. } = self;
        if let Some((client, wire)) = control {
            if !leaves_well {
                wire.cut();
            }
            tokio::spawn(async move {
                let all = async { while said.join_next().await.is_some() {} };
                let _ = timeout(LATE, all).await;
                let _ = timeout(LATE, client.close()).await;
            });
        }
        memory
    }
}

fn push(to: &mut VecDeque<(u64, Bytes)>, one: (u64, Bytes)) {
    to.push_back(one);
    if to.len() > REMEMBERED {
        to.pop_front();
    }
}
