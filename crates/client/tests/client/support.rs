//! A server in the test's process: a volume in memory with a mailbox, which notes what it is told
//! and in which order, checks what it is handed over, answers late and fails on demand.
#![allow(dead_code, reason = "tests of other crates use it too, and each a part")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinHandle;

use undercroft_hints::{self as hint, Abilities, Grant, Hint, NAME, Query};
use undercroft_level::{Level, PlacementStep};
use undercroft_nbd::{
    Command, Context, Endpoint, Export, ExportInfo, Exports, Extent, Failure, Flags, Listener,
    Peer, Refusal, Request, Server, ServerOptions, Session, Uri,
};
use undercroft_policy::Counts;

pub(crate) const BLOCK: u64 = 4096;
pub(crate) const WINDOW: u64 = 1 << 20;

pub(crate) use undercroft_random::SplitMix64 as Random;

/// What reached the server, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Event {
    Read(Range<u64>),
    Write(Range<u64>),
    Hints(Vec<Hint>),
}

pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    /// What of that would survive a crash.
    durable: Vec<u8>,
    pub(crate) events: Vec<Event>,
    /// Changes that were begun and not answered.
    changing: Vec<Range<u64>>,
    /// What the client must not do, and did.
    pub(crate) wrongs: Vec<String>,
    /// One of so many requests fails; 0: none.
    pub(crate) fail_one_in: u64,
    /// Answers come up to so much later.
    pub(crate) delay: Duration,
    pub(crate) messages_in_flight: u32,
    pub(crate) refuse_messages: bool,
    /// What it says of contents when it is asked; `None`: it does not understand the question.
    pub(crate) wants_contents: Option<bool>,
    /// What it tells of its cache whenever it is asked; `None`: nobody may ask.
    pub(crate) news: Option<Bytes>,
    /// How often it was asked that.
    pub(crate) asked: usize,
    /// Ids under which clients asked to cooperate.
    pub(crate) clients: Vec<Option<u128>>,
    random: Random,
}

/// The volume.
#[derive(Clone)]
pub(crate) struct Volume {
    disk: Arc<Mutex<Disk>>,
    size: u64,
    min_block: u32,
    block_bytes: u32,
    grants: Abilities,
}

/// A volume that is served on a socket of its own.
pub(crate) struct Served {
    pub(crate) volume: Volume,
    pub(crate) uri: Uri,
    pub(crate) server: Server,
    listening: JoinHandle<()>,
    _folder: tempfile::TempDir,
}

impl Volume {
    pub(crate) fn new(size: u64, min_block: u32, grants: &str, seed: u64) -> Volume {
        let disk = Disk {
            bytes: vec![0; size as usize],
            durable: vec![0; size as usize],
            events: Vec::new(),
            changing: Vec::new(),
            wrongs: Vec::new(),
            fail_one_in: 0,
            delay: Duration::ZERO,
            messages_in_flight: 0,
            refuse_messages: false,
            wants_contents: None,
            news: None,
            asked: 0,
            clients: Vec::new(),
            random: Random::new(seed),
        };
        let grants = Abilities::parse(grants);
        let block_bytes = BLOCK as u32;
        Volume { disk: Arc::new(Mutex::new(disk)), size, min_block, block_bytes, grants }
    }

    /// With larger blocks, of which the hints speak.
    pub(crate) fn with_blocks(self, block_bytes: u32) -> Volume {
        Volume { block_bytes, ..self }
    }

    pub(crate) fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().expect("nobody panics")
    }

    pub(crate) async fn serve(self) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let socket: PathBuf = folder.path().join("nbd.sock");
        let (server, listening) = self.listen(&socket);
        let uri = Uri { endpoint: Endpoint::Unix(socket), export: "v".to_owned(), tls: false };
        Served { volume: self, uri, server, listening, _folder: folder }
    }

    fn listen(&self, socket: &Path) -> (Server, JoinHandle<()>) {
        let listener = Listener::unix(socket).expect("a socket");
        let server = Server::new(Arc::new(self.clone()), ServerOptions::default());
        let listening = server.clone();
        (server, tokio::spawn(async move { listening.listen(listener).await }))
    }

    fn base(&self) -> u64 {
        self.size.next_multiple_of(1 << 20)
    }
}

impl Served {
    /// The server goes away. What it was doing still happens; then what is not durable is lost.
    pub(crate) async fn stop(&mut self) {
        self.server.shutdown(Duration::ZERO).await;
        (&mut self.listening).await.expect("no panic");
        while !self.volume.disk().is_quiet() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.volume.disk().lose();
    }

    /// It comes back, in the same place.
    pub(crate) fn start(&mut self) {
        let Endpoint::Unix(socket) = &self.uri.endpoint else { panic!("no socket") };
        (self.server, self.listening) = self.volume.listen(socket);
    }

    /// As if it served a smaller volume.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        self.volume.size -= bytes;
    }
}

impl Exports for Volume {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        Vec::new()
    }

    fn find(&self, _name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Volume {
    fn info(&self, _peer: &Peer, contexts: &[Context]) -> ExportInfo {
        ExportInfo {
            name: "v".to_owned(),
            description: String::new(),
            // A line of connections has a context of its own, with which nothing is told.
            size: match contexts.iter().any(|context| context.key == 1) {
                true if self.disk().news.is_some() => self.base() + 2 * WINDOW,
                true => self.base() + WINDOW,
                false => self.size,
            },
            flags: Flags { trim: true, write_zeroes: true, ..Flags::default() },
            min_block: self.min_block,
            preferred_block: BLOCK as u32,
            max_block: 32 << 20,
        }
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        let Some(query) = Query::parse(query) else { return Vec::new() };
        self.disk().clients.push(query.client.map(|id| id.number));
        let grant = Grant {
            epoch: 1,
            block_bytes: self.block_bytes,
            window_base: self.base(),
            window_bytes: WINDOW,
            news: self.disk().news.as_ref().map(|_| (self.base() + WINDOW, WINDOW)),
            grant: query.want.and(self.grants),
        };
        if self.grants == Abilities::default() {
            return Vec::new();
        }
        assert!(grant.to_string().starts_with(NAME));
        vec![Context { name: grant.to_string(), key: 1, kept: None }]
    }

    fn connect(&self, _peer: &Peer, _contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Volume {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl Volume {
    fn start(&mut self, request: Request) {
        let range = request.offset..request.offset + request.length;
        let mut disk = self.disk();
        if let (Command::BlockStatus { .. }, Some(wants)) = (&request.command, disk.wants_contents)
        {
            let extent = Extent { length: request.length, status: u32::from(wants) };
            return request.reply.extents(vec![(1, vec![extent])]);
        }
        if let (true, Some(news)) = (range.start >= self.base() + WINDOW, disk.news.clone()) {
            disk.asked += 1;
            let mut told = news.to_vec();
            told.resize(request.length as usize, 0);
            return request.reply.data(vec![told.into()]);
        }
        if range.start >= self.base() {
            let Command::Write { data } = request.command else {
                return request.reply.fail(Failure::Invalid, String::new());
            };
            return disk.message(&data.concat().into(), request.reply, self.disk.clone());
        }
        assert!(range.end <= self.size, "{range:?} is in no place");
        let delay = disk.random_delay();
        let fails = disk.fail_one_in > 0 && disk.fail_one_in_now();
        match &request.command {
            Command::Read { .. } => disk.events.push(Event::Read(range.clone())),
            Command::Write { .. } => disk.events.push(Event::Write(range.clone())),
            _ => {}
        }
        if changes(&request.command) {
            disk.changing.push(range.clone());
        }
        drop(disk);
        let shared = self.disk.clone();
        let work = async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay / 2).await;
            }
            let is_after = fails && shared.lock().expect("no panic").random.below(2) == 0;
            let read = if fails && !is_after {
                Vec::new()
            } else {
                let mut disk = shared.lock().expect("no panic");
                let read = disk.carry_out(&request.command, &range);
                if request.durable || matches!(request.command, Command::Flush) {
                    disk.durable = disk.bytes.clone();
                }
                read
            };
            if !delay.is_zero() {
                tokio::time::sleep(delay / 2).await;
            }
            let mut disk = shared.lock().expect("no panic");
            if changes(&request.command) {
                let at = disk.changing.iter().position(|other| *other == range).expect("begun");
                disk.changing.swap_remove(at);
            }
            match request.command {
                _ if fails => request.reply.fail(Failure::Io, "on demand".to_owned()),
                Command::Read { .. } => request.reply.data(vec![read.into()]),
                _ => request.reply.done(),
            }
        };
        tokio::spawn(work);
    }
}

fn changes(command: &Command) -> bool {
    matches!(command, Command::Write { .. } | Command::Trim | Command::WriteZeroes { .. })
}

impl Disk {
    /// What is not durable is lost, as by a server below.
    pub(crate) fn lose(&mut self) {
        self.bytes = self.durable.clone();
    }

    fn is_quiet(&self) -> bool {
        self.changing.is_empty() && self.messages_in_flight == 0
    }

    fn random_delay(&mut self) -> Duration {
        if self.delay.is_zero() {
            return Duration::ZERO;
        }
        let most = self.delay.as_micros() as u64;
        Duration::from_micros(self.random.below(most))
    }

    fn fail_one_in_now(&mut self) -> bool {
        let one_in = self.fail_one_in;
        self.random.below(one_in) == 0
    }

    fn carry_out(&mut self, command: &Command, range: &Range<u64>) -> Vec<u8> {
        let at = range.start as usize..range.end as usize;
        match command {
            Command::Read { .. } => return self.bytes[at].to_vec(),
            Command::Write { data } => self.bytes[at].copy_from_slice(&data.concat()),
            // Content that is given up is anything: so that nobody relies on it.
            Command::Trim => self.bytes[at].fill(0xee),
            Command::WriteZeroes { .. } => self.bytes[at].fill(0),
            _ => {}
        }
        Vec::new()
    }

    /// Takes a message in, and looks whether what is handed over is what the volume has.
    fn message(&mut self, message: &Bytes, reply: undercroft_nbd::Reply, shared: Arc<Mutex<Disk>>) {
        if self.messages_in_flight > 0 {
            self.wrongs.push("two messages at a time".to_owned());
        }
        if self.refuse_messages {
            return reply.fail(Failure::Invalid, "on demand".to_owned());
        }
        self.messages_in_flight += 1;
        let hints = match hint::parse(message) {
            Ok(hints) => hints,
            Err(error) => {
                self.wrongs.push(error.to_string());
                Vec::new()
            }
        };
        for hint in &hints {
            let Hint::Demote { block, data, .. } = hint else { continue };
            let range = block * BLOCK..(block + 1) * BLOCK;
            if self.changing.iter().any(|c| c.start < range.end && range.start < c.end) {
                self.wrongs.push(format!("block {block} is handed over while it changes"));
            } else if self.bytes[range.start as usize..range.end as usize] != data[..] {
                self.wrongs.push(format!("block {block} is handed over with old data"));
            }
        }
        self.events.push(Event::Hints(hints));
        let delay = self.random_delay();
        tokio::spawn(async move {
            if !delay.is_zero() {
                tokio::time::sleep(delay).await;
            }
            shared.lock().expect("no panic").messages_in_flight -= 1;
            reply.done();
        });
    }
}

/// Blocks of a hint, and whether they ride.
pub(crate) fn evicted(hint: &Hint) -> Option<(Vec<u64>, bool)> {
    match hint {
        Hint::Evict { runs, flags, .. } => {
            Some((runs.iter().flat_map(|run| run.blocks()).collect(), flags.rides))
        }
        Hint::Demote { block, rides, .. } => Some((vec![*block], *rides)),
        Hint::ClientStat(_) => None,
        other => panic!("not asked for: {other:?}"),
    }
}

/// A second level that follows the events as a server would.
pub(crate) fn follow(events: &[Event], lower: &mut Level) {
    let mut riding = Vec::new();
    for event in events {
        match event {
            Event::Hints(hints) => {
                for (blocks, rides) in hints.iter().filter_map(evicted) {
                    assert!(rides, "with a message for each request all ride");
                    riding.extend(blocks);
                }
                continue;
            }
            Event::Read(bytes) => drop(lower.reference(bytes.start / BLOCK, false, || false)),
            Event::Write(bytes) => drop(lower.reference(bytes.start / BLOCK, true, || false)),
        }
        for block in riding.drain(..) {
            if matches!(lower.client_evicted(block), PlacementStep::Fetch) {
                let way = lower.placement().expect("placement at eviction").rules().down;
                lower.arrived(block, way);
            }
        }
    }
    assert!(riding.is_empty());
}

/// Without the cold reads, which the events do not tell.
pub(crate) fn counted(counts: &Counts) -> [u64; 5] {
    [counts.reads, counts.read_hits, counts.writes, counts.write_hits, counts.evictions]
}

/// Whether a program is there; if not, says so.
pub(crate) fn present(program: &str) -> bool {
    let found = std::process::Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {program} is not installed");
    }
    found
}

/// How a program ended and what it said.
pub(crate) fn shown(output: &std::process::Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}
