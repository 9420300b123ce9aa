//! The thread that reports evictions to the servers: it takes records from the ring, determines
//! where their blocks lie, and writes messages to the control exports. One of the processes that
//! share a segment runs it. If that process ends, the next one that opens a file or notices starts
//! another sender.
//!
//! The thread keeps no process alive: nothing waits for it, and it may end at any point.

mod alone;
mod freed;
mod heads;
mod looks;
mod messages;
mod parts;
mod places;

use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release, SeqCst};

use bytes::Bytes;
use freed::Freed;
use heads::Heads;
use looks::Looks;
use messages::{message, message_bytes, stat_message};
use parts::Parts;
pub use places::{At, Places};
use rustix::thread::{futex, nanosleep};
use rustix::time::Timespec;
use undercroft_hints::{BlockRun, EvictFlags};

use crate::clock::now_us;
use crate::contents::{Contents, Ticket};
use crate::filter;
use crate::record::{Item, Record};
use crate::ring::{Next, Ring};
use crate::segment::layout::{LAST_ERROR, SENDER, WANTED};
use crate::segment::{Segment, Sent, State};
use crate::session::Session;
use crate::settings::{Log, Settings, Volume};
use crate::space;
use crate::table::{GRANULE, Key, Table};
use crate::text;
use crate::tracker::Tracker;

/// Interval between checks of the ring while there is work, in microseconds.
const BUSY_US: u64 = 5_000;
/// After this time without records it sleeps until it is woken.
const IDLE_US: u64 = 1_000_000;
/// Interval between looks at the program's descriptors, if its own threads must not look.
const LOOK_AROUND_US: u64 = 100_000;
/// Interval between other duties.
const CHORES_US: u64 = 1_000_000;
/// How often an idle connection is tested.
const PROBE_US: u64 = 5_000_000;
/// How often a server is sent the tracker's counters.
const STAT_US: u64 = 2_000_000;
/// A cell that stays incomplete for this time is skipped.
const TORN_US: u64 = 1_000_000;
/// Longest pause between attempts to connect; pauses double up to this.
const PAUSE_MAX_US: u64 = 30_000_000;
/// Most records taken at a time.
const BATCH: usize = 4096;
/// Number of the latest evictions in which further granules of the same block are searched.
const SIBLINGS: usize = 64;
/// Most runs in a message.
const RUNS_MAX: usize = 1024;

/// An evicted block of a server, or several smaller ones.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Gone {
    run: BlockRun,
    time_us: u64,
    flags: EvictFlags,
    /// What was in them, if it is to be handed over.
    content: Option<Bytes>,
}

/// A volume and its server.
struct Link<'a> {
    volume: &'a Volume,
    number: usize,
    session: Option<Session>,
    again_us: u64,
    pause_us: u64,
    heard_us: u64,
    /// When the counters were last sent to the server.
    stat_us: u64,
    sequence: u32,
    queue: Vec<Gone>,
    /// Contents of blocks of which other granules are still in frames.
    parts: Parts,
}

/// Runs until the tracker is switched off. Call this in a thread of its own, with all signals
/// blocked, in which intercepted functions do not call the tracker.
pub fn run(tracker: &Tracker) {
    let settings = tracker.settings();
    let segment = tracker.segment();
    if let Err(error) = alone::leave(settings.log == Log::Stderr) {
        return give_up(tracker, &format!("close_range (Linux 5.9): {error}"));
    }
    if segment.state() == State::Sparse {
        if let Err(error) = segment.fill() {
            return give_up(tracker, &format!("{}: {error}", segment.path().display()));
        }
        segment.set_state(State::Ready);
    }
    let pool = segment.layout().frames().len() as u64 / 2 * GRANULE;
    log(settings, &format!("tracking, with room for {} MiB of buffers", pool >> 20));
    Sender::new(tracker).run();
    if filter::ends_sender() {
        let why =
            "the program filters the system calls of all its threads: nothing is sent any more";
        text::store(&segment.header()[LAST_ERROR], why.as_bytes());
        log(settings, why);
        segment.word(SENDER).store(0, Release);
    }
}

fn give_up(tracker: &Tracker, why: &str) {
    tracker.give_up();
    text::store(&tracker.segment().header()[LAST_ERROR], why.as_bytes());
    log(tracker.settings(), &format!("nothing is tracked: {why}"));
}

/// Writes a line to the configured log.
fn log(settings: &Settings, line: &str) {
    let line = format!("undercroft-cct[{}]: {line}\n", std::process::id());
    // A failure to log cannot be reported anywhere.
    match &settings.log {
        Log::Nowhere => {}
        Log::Stderr => {
            let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
        }
        Log::File(path) => {
            let file = open_log(path);
            let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
        }
    }
}

/// Opens a log file, but neither a pipe without reader nor a link.
fn open_log(path: &std::path::Path) -> io::Result<std::fs::File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    std::fs::OpenOptions::new().append(true).create(true).custom_flags(flags).open(path)
}

struct Sender<'a> {
    tracker: &'a Tracker,
    segment: &'a Segment,
    places: Places,
    links: Vec<Link<'a>>,
    /// Since when the oldest cell has been incomplete.
    unfinished_us: Option<u64>,
    looks: Looks,
    freed: Freed,
    heads: Heads,
}

impl<'a> Sender<'a> {
    fn new(tracker: &'a Tracker) -> Self {
        let links = tracker.settings().volumes.iter().enumerate().map(|(number, volume)| Link {
            volume,
            number,
            session: None,
            again_us: 0,
            pause_us: CHORES_US,
            heard_us: 0,
            stat_us: 0,
            sequence: 0,
            queue: Vec::new(),
            parts: Parts::default(),
        });
        Sender {
            tracker,
            segment: tracker.segment(),
            places: Places::default(),
            links: links.collect(),
            unfinished_us: None,
            looks: Looks::default(),
            freed: Freed::default(),
            heads: Heads::default(),
        }
    }

    fn run(mut self) {
        let (mut active_us, mut chores_us, mut looked_us) = (now_us(), 0, 0);
        while self.segment.state() == State::Ready && !filter::ends_sender() {
            let now = now_us();
            if filter::is_on() && now.saturating_sub(looked_us) >= LOOK_AROUND_US {
                self.tracker.look_around(now);
                looked_us = now;
            }
            if now.saturating_sub(chores_us) >= CHORES_US {
                self.chores(now);
                chores_us = now;
            }
            // First what was evicted earlier: the records are of frames in use again.
            let is_active = self.drain(now);
            self.heads.take(self.tracker, now);
            if self.take_freed() || is_active {
                active_us = now;
                self.tell();
            }
            if now.saturating_sub(active_us) < IDLE_US {
                // With all signals blocked nothing ends it early.
                let _ = nanosleep(&timespec(BUSY_US));
            } else {
                self.sleep();
            }
        }
    }

    /// Sleeps until a record comes, or other duties are due.
    fn sleep(&self) {
        let asleep = self.segment.asleep();
        asleep.store(1, SeqCst);
        if Ring::new(self.segment).is_empty() {
            let timeout = timespec(if filter::is_on() { LOOK_AROUND_US } else { CHORES_US });
            let _ = futex::wait(asleep, futex::Flags::empty(), 1, Some(&timeout));
        }
        asleep.swap(0, AcqRel);
    }

    /// Takes the records from the ring; returns whether there were any.
    fn drain(&mut self, now: u64) -> bool {
        let ring = Ring::new(self.segment);
        for taken in 0..BATCH {
            match ring.pop() {
                Next::Record(words) => {
                    self.unfinished_us = None;
                    match Item::from_words(words) {
                        Item::Left(record) => {
                            let content = self.content(record.content);
                            self.place(record, content, now);
                        }
                        Item::HeadDue(due) => self.heads.add(due),
                    }
                }
                Next::Nothing => {
                    self.unfinished_us = None;
                    return taken > 0;
                }
                Next::Unfinished => {
                    let since = *self.unfinished_us.get_or_insert(now);
                    if now.saturating_sub(since) >= TORN_US {
                        ring.skip();
                        self.segment.count_sent(Sent::Torn, 1);
                        self.unfinished_us = None;
                    }
                    return taken > 0;
                }
            }
        }
        true
    }

    /// Queues what the program has evicted ahead; returns whether there was anything.
    fn take_freed(&mut self) -> bool {
        let mut left = Vec::new();
        self.freed.take(self.tracker, &mut left);
        let now = now_us();
        self.segment.count_sent(Sent::Foreseen, left.len() as u64);
        let any = !left.is_empty();
        for (record, content) in left {
            record.note(self.segment);
            self.place(record, content, now);
        }
        any
    }

    /// The content that was kept, if it is still there. Its slot is free afterwards.
    fn content(&self, ticket: Option<Ticket>) -> Option<Bytes> {
        let ticket = ticket.filter(|_| self.segment.contents_are_ready())?;
        let mut bytes = [0; GRANULE as usize];
        let is_there = Contents::new(self.segment).take(ticket, &mut bytes);
        is_there.then(|| Bytes::copy_from_slice(&bytes))
    }

    /// Queues the blocks of a record for their servers.
    fn place(&mut self, record: Record, content: Option<Bytes>, now: u64) {
        for n in 0..record.count {
            let block = Key::from_word(record.first.word().wrapping_add(n)).clean();
            if !record.late && Table::new(self.segment).holds(block) {
                self.segment.count_sent(Sent::Back, 1);
                continue;
            }
            let Some(at) = self.places.of(self.segment, block, now) else {
                self.segment.count_sent(Sent::Unplaced, 1);
                continue;
            };
            let bytes = self.links.get(at.volume).and_then(|link| link.session.as_ref());
            let bytes = bytes.map_or(GRANULE, |session| session.grant().block_bytes.into());
            let content = self.whole_block(&content, at, bytes);
            if !record.late && bytes > GRANULE && self.is_partly_here(block, at, bytes, now) {
                continue;
            }
            let count = (GRANULE / bytes).max(1) as u32;
            let Some(run) = BlockRun::new(at.offset / bytes, count) else { continue };
            let flags = EvictFlags {
                was_dirty: record.first.is_dirty(),
                late: record.late,
                ..EvictFlags::default()
            };
            let Some(link) = self.links.get_mut(at.volume) else { continue };
            // Granules of one block that left shortly after each other are reported as one.
            let siblings = link.queue.iter_mut().rev().take(SIBLINGS);
            let said = |gone: &&mut Gone| gone.run == run && gone.flags.late == flags.late;
            match siblings.filter(|_| bytes > GRANULE).find(said) {
                Some(gone) => {
                    gone.time_us = gone.time_us.max(record.time_us);
                    gone.flags.was_dirty |= flags.was_dirty;
                    gone.content = content.or(gone.content.take());
                }
                None => link.queue.push(Gone { run, time_us: record.time_us, flags, content }),
            }
        }
    }

    /// The content to hand over with a granule's eviction: its own, or that of the larger block
    /// which it completes. `None` if blocks are not aligned with granules.
    fn whole_block(&mut self, content: &Option<Bytes>, at: At, bytes: u64) -> Option<Bytes> {
        let content = content.as_ref()?;
        if at.offset % GRANULE.min(bytes) != 0 {
            return None;
        }
        if bytes <= GRANULE {
            return Some(content.clone());
        }
        let link = self.links.get_mut(at.volume)?;
        let within = (at.offset % bytes) as usize;
        link.parts.add(at.offset / bytes, bytes as usize, within, content)
    }

    /// Whether another granule of a server's block is still in a frame. Only granules next to this
    /// one in its file can be found.
    fn is_partly_here(&mut self, block: Key, at: At, bytes: u64, now: u64) -> bool {
        let table = Table::new(self.segment);
        let start = at.offset - at.offset % bytes;
        (0..bytes / GRANULE).any(|n| {
            let sibling = start + n * GRANULE;
            let granule = block.granule() + sibling / GRANULE;
            let granule = granule.checked_sub(at.offset / GRANULE);
            let Some(key) = granule.and_then(|g| Key::new(block.file(), g)) else { return false };
            let there = At { offset: at.offset % GRANULE + sibling, ..at };
            table.holds(key) && self.places.of(self.segment, key, now) == Some(there)
        })
    }

    /// Sends the queued evictions.
    fn tell(&mut self) {
        for at in 0..self.links.len() {
            let mut queue = std::mem::take(&mut self.links[at].queue);
            let bytes_max = self.links[at].session.as_ref().map_or(0, Session::bytes_max);
            let mut rest = &mut queue[..];
            // A server may take long for each message.
            while !rest.is_empty() && !filter::ends_sender() {
                let mut bytes = 0;
                let fits = |gone: &&Gone| {
                    bytes += message_bytes(gone);
                    bytes <= bytes_max
                };
                let count = rest.iter().take(RUNS_MAX).take_while(fits).count();
                if count == 0 {
                    // Larger than a message may be.
                    rest[0].content = None;
                }
                let (gone, others) = rest.split_at_mut(count.max(1));
                self.tell_some(at, gone);
                rest = others;
            }
            queue.clear();
            self.links[at].queue = queue;
        }
    }

    fn tell_some(&mut self, at: usize, gone: &[Gone]) {
        let link = &mut self.links[at];
        let blocks = gone.iter().map(|gone| u64::from(gone.run.count())).sum();
        let Some(session) = &mut link.session else {
            return self.segment.count_sent(Sent::Unsent, blocks);
        };
        let now = now_us();
        let message = message(gone, now, &mut link.sequence);
        debug_assert!(message.len() <= session.bytes_max());
        match session.send(&message) {
            Ok(()) => {
                link.heard_us = now;
                let late = gone.iter().filter(|gone| gone.flags.late);
                let late = late.map(|gone| u64::from(gone.run.count())).sum();
                let handed = gone.iter().filter(|gone| gone.content.is_some());
                let handed = handed.map(|gone| u64::from(gone.run.count())).sum();
                self.segment.count_sent(Sent::HandedOver, handed);
                self.segment.count_sent(Sent::Messages, 1);
                self.segment.count_sent(Sent::Blocks, blocks);
                self.segment.count_sent(Sent::Late, late);
            }
            Err(error) => {
                self.segment.count_sent(Sent::Unsent, blocks);
                self.lose(at, &error.to_string());
            }
        }
    }

    fn lose(&mut self, at: usize, why: &str) {
        let link = &mut self.links[at];
        link.session = None;
        link.again_us = now_us() + link.pause_us;
        link.pause_us = (link.pause_us * 2).min(PAUSE_MAX_US);
        self.tracker.volume_words(link.number)[4].store(0, Relaxed);
        self.segment.word(WANTED).fetch_and(!(1 << link.number), Relaxed);
        let line = format!("{}: {why}", link.volume.uri);
        text::store(&self.segment.header()[LAST_ERROR], line.as_bytes());
        log(self.tracker.settings(), &line);
    }

    /// Other duties: connections, cleaning up after dead processes and transient memory, and
    /// finding pools.
    fn chores(&mut self, now: u64) {
        for at in 0..self.links.len() {
            let link = &mut self.links[at];
            match &mut link.session {
                Some(session) => {
                    let is_silent = now.saturating_sub(link.heard_us) >= PROBE_US;
                    let stat = link.stat_us.checked_add(STAT_US).is_none_or(|due| now >= due);
                    let result = if stat && session.grant().grant.stat {
                        (link.stat_us, link.heard_us) = (now, now);
                        session.send(&stat_message(self.segment))
                    } else if is_silent {
                        link.heard_us = now;
                        session.probe()
                    } else {
                        continue;
                    };
                    if let Err(error) = result.and_then(|()| self.ask_what_is_wanted(at)) {
                        self.lose(at, &error.to_string());
                    }
                }
                None if now >= link.again_us => self.connect(at),
                _ => {}
            }
        }
        if self.segment.contents_are_ready() {
            Contents::new(self.segment).free_old(now);
        }
        for space in space::dead(self.segment) {
            Table::new(self.segment).forget(|place, _| place.space() == space);
            space::free(self.segment, space);
        }
        self.looks.take(self.tracker);
    }

    /// Asks a server whether it wants contents, and has them kept from then on or no longer.
    fn ask_what_is_wanted(&mut self, at: usize) -> io::Result<()> {
        let link = &mut self.links[at];
        let Some(session) = &mut link.session else { return Ok(()) };
        let (bit, word) = (1 << link.number, self.segment.word(WANTED));
        if session.wants_contents()? && self.segment.fill_contents().is_ok() {
            word.fetch_or(bit, Relaxed);
        } else {
            word.fetch_and(!bit, Relaxed);
        }
        Ok(())
    }

    fn connect(&mut self, at: usize) {
        let link = &mut self.links[at];
        let session = match Session::connect(&link.volume.uri, self.tracker.settings()) {
            Ok(session) => session,
            Err(error) => return self.lose(at, &error.to_string()),
        };
        let words = self.tracker.volume_words(link.number);
        let grant = session.grant();
        words[3].store(grant.block_bytes.into(), Relaxed);
        words[5].store(grant.epoch, Relaxed);
        words[4].store(1, Relaxed);
        let contents = if grant.grant.demote { ", contents are handed over" } else { "" };
        let (uri, bytes) = (&link.volume.uri, grant.block_bytes);
        let line = format!("{uri}: connected, blocks of {bytes} bytes{contents}");
        link.session = Some(session);
        (link.pause_us, link.heard_us) = (CHORES_US, now_us());
        self.segment.count_sent(Sent::Connections, 1);
        log(self.tracker.settings(), &line);
        if let Err(error) = self.ask_what_is_wanted(at) {
            self.lose(at, &error.to_string());
        }
    }
}

fn timespec(us: u64) -> Timespec {
    Timespec { tv_sec: (us / 1_000_000) as i64, tv_nsec: (us % 1_000_000 * 1000) as i64 }
}
