//! One connection of a load, driven by its own thread.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::ReadBuf;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use undercroft_hints::{Abilities, Query};
use undercroft_nbd::wire::*;
use undercroft_nbd::{Client, ClientOptions, RawConnection, Transport, Uri};
use undercroft_random::SplitMix64;

use super::hints::Mailbox;
use super::{Load, LoadReport, other};

/// Bytes of the read buffer: room for 64 answers of 4 KiB.
const READ: usize = 256 << 10;

/// Longest silence of a server before the connection counts as dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place for a request in flight; its index is the request's cookie.
#[derive(Clone, Copy)]
struct Slot {
    /// When its request was sent; `None` if the slot is free.
    sent: Option<Instant>,
    read: bool,
    /// Whether a chunk of its answer reported an error.
    failed: bool,
}

/// A connection whose handshake is done.
pub(super) struct Connection {
    runtime: Runtime,
    traffic: Traffic,
}

/// The state of a connection while it is loaded.
struct Traffic {
    transport: Box<dyn Transport>,
    load: Load,
    blocks: u64,
    next_block: u64,
    random: SplitMix64,
    mailbox: Option<Mailbox>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Bytes to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Whether the transport may still buffer what was written.
    held: bool,
    /// Bytes read, `input[..filled]`. Between two reads this is at most an incomplete header.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of data still to be received and discarded.
    skip: usize,
    report: LoadReport,
}

impl Connection {
    pub(super) fn open(
        uri: &Uri,
        options: &ClientOptions,
        load: &Load,
        number: u32,
    ) -> io::Result<Connection> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (raw, size) = runtime.block_on(connect(uri, options, load.hints))?;
        let RawConnection { transport, read_ahead, remote } = raw;
        let (info, bytes) = (&remote.info, load.block_bytes);
        let mailbox = load.hints.map(|each| Mailbox::new(&remote, each, size)).transpose()?;
        let blocks = size / u64::from(bytes);
        if blocks == 0 {
            return Err(other(&format!("the export has only {size} bytes")));
        }
        if bytes % info.min_block != 0 || bytes > info.max_block {
            let (min, max) = (info.min_block, info.max_block);
            let what = format!("requests are multiples of {min} bytes, and at most {max}");
            return Err(other(&what));
        }
        if info.flags.read_only && load.read_percent < 100 {
            return Err(other("the export is read-only"));
        }
        let share = u128::from(number) * u128::from(blocks) / u128::from(load.connections);
        let mut input = vec![0; READ];
        input[..read_ahead.len()].copy_from_slice(&read_ahead);
        let traffic = Traffic {
            transport,
            load: load.clone(),
            blocks,
            next_block: share as u64,
            random: SplitMix64::new(load.seed.wrapping_add(u64::from(number) << 32)),
            mailbox,
            slots: vec![Slot { sent: None, read: true, failed: false }; load.depth as usize],
            free: (0..load.depth).collect(),
            output: Vec::new(),
            sent: 0,
            held: false,
            input,
            filled: read_ahead.len(),
            skip: 0,
            report: LoadReport::new(load.block_bytes),
        };
        Ok(Connection { runtime, traffic })
    }

    pub(super) fn run(self) -> io::Result<LoadReport> {
        let Connection { runtime, mut traffic } = self;
        runtime.block_on(traffic.drive())?;
        Ok(traffic.report)
    }
}

/// Connects; returns the connection and the volume's size. With hints the client asks for a
/// mailbox, and the session's own size then includes the window.
async fn connect(
    uri: &Uri,
    options: &ClientOptions,
    hints: Option<u32>,
) -> io::Result<(RawConnection, u64)> {
    if hints.is_none() {
        let raw = RawConnection::open_simply(uri, options).await?;
        let size = raw.remote.info.size;
        return Ok((raw, size));
    }
    let size = Client::describe(uri, options).await?.info.size;
    let want = Abilities { evict: true, ..Abilities::default() };
    let mut options = options.clone();
    options.contexts.push(Query { client: None, want }.to_string());
    Ok((RawConnection::open(uri, &options).await?, size))
}

impl Traffic {
    async fn drive(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        let mut now = begin;
        loop {
            let sending = now - begin < self.load.duration;
            if sending {
                self.queue(now);
            }
            let (written, read) = poll_fn(|cx| Poll::Ready(self.exchange(cx))).await?;
            now = Instant::now();
            match read {
                Some(0) => return Err(other("the server hung up")),
                Some(count) => self.digest(count, now)?,
                None => {}
            }
            let told = self.mailbox.as_ref().is_none_or(Mailbox::is_idle);
            if !sending && told && self.free.len() == self.slots.len() {
                break;
            }
            if read.is_none() && !written {
                let ready = timeout(PATIENCE, woken()).await;
                ready.map_err(|_| other("the server is silent"))?;
            }
        }
        self.report.elapsed = now - begin;
        Ok(())
    }

    /// Appends a request for every free slot, unless earlier ones are not completely sent.
    fn queue(&mut self, now: Instant) {
        if self.sent < self.output.len() {
            return;
        }
        self.output.clear();
        self.sent = 0;
        while let Some(slot) = self.free.pop() {
            let read = self.load.read_percent == 100
                || self.random.next_u64() % 100 < u64::from(self.load.read_percent);
            if let Some(mailbox) = self.mailbox.as_mut().filter(|_| read) {
                mailbox.before_read(&mut self.output, || self.random.next_u64());
            }
            let length = u64::from(self.load.block_bytes);
            let header = RequestHeader {
                flags: 0,
                command: if read { CMD_READ } else { CMD_WRITE },
                cookie: u64::from(slot),
                offset: self.next_offset(),
                length,
                payload_length: if read { 0 } else { length },
            };
            self.output.extend_from_slice(&header.bytes());
            if !read {
                let end = self.output.len() + self.load.block_bytes as usize;
                self.output.resize(end, slot as u8);
            }
            self.slots[slot as usize] = Slot { sent: Some(now), read, failed: false };
        }
    }

    fn next_offset(&mut self) -> u64 {
        let block = if self.load.sequential {
            let block = self.next_block;
            self.next_block = (block + 1) % self.blocks;
            block
        } else {
            self.random.next_u64() % self.blocks
        };
        block * u64::from(self.load.block_bytes)
    }

    /// Writes and reads as far as possible without waiting. Returns whether anything was written,
    /// and how many bytes were read.
    fn exchange(&mut self, cx: &mut Context<'_>) -> io::Result<(bool, Option<usize>)> {
        let mut transport = Pin::new(&mut *self.transport);
        let mut written = false;
        if self.sent < self.output.len() {
            let rest = &self.output[self.sent..];
            if let Poll::Ready(count) = transport.as_mut().poll_write(cx, rest) {
                self.sent += count?;
                (written, self.held) = (true, true);
            }
        }
        if self.held {
            if let Poll::Ready(flushed) = transport.as_mut().poll_flush(cx) {
                flushed?;
                self.held = false;
            }
        }
        let mut into = ReadBuf::new(&mut self.input[self.filled..]);
        Ok(match transport.poll_read(cx, &mut into) {
            Poll::Pending => (written, None),
            Poll::Ready(result) => result.map(|()| (written, Some(into.filled().len())))?,
        })
    }

    /// Decodes the answers in what was read.
    fn digest(&mut self, count: usize, now: Instant) -> io::Result<()> {
        let end = self.filled + count;
        let mut at = 0;
        loop {
            let skipped = self.skip.min(end - at);
            self.skip -= skipped;
            at += skipped;
            let header = ReplyHeader::parse(&self.input[at..end]).map_err(|e| other(e.what()))?;
            let Some((header, size)) = header else { break };
            at += size;
            match header {
                ReplyHeader::Simple { error, cookie } => {
                    let slot = self.finish(cookie, error != 0, now)?;
                    let has_data = error == 0 && slot.is_some_and(|slot| slot.read);
                    self.skip = if has_data { self.load.block_bytes as usize } else { 0 };
                }
                ReplyHeader::Chunk(chunk) => self.hear(chunk, now)?,
            }
        }
        self.input.copy_within(at..end, 0);
        self.filled = end - at;
        Ok(())
    }

    /// Takes a chunk of a structured reply; its payload is discarded, only errors count.
    fn hear(&mut self, chunk: ChunkHeader, now: Instant) -> io::Result<()> {
        if self.mailbox.is_none() {
            return Err(other("a structured reply that was not asked for"));
        }
        let kind = chunk.check().map_err(|e| other(e.what()))?;
        // A chunk of data is no longer than the data and its offset.
        if kind == Chunk::Data && chunk.length as usize > self.load.block_bytes as usize + 8 {
            return Err(other("the server sends more than was asked for"));
        }
        self.skip = chunk.length as usize;
        let failed = kind == Chunk::Error;
        if chunk.flags & CHUNK_DONE != 0 {
            self.finish(chunk.cookie, failed, now)?;
        } else if failed {
            let slot = usize::try_from(chunk.cookie).ok().and_then(|at| self.slots.get_mut(at));
            slot.ok_or_else(|| other("the server answered what was not asked"))?.failed = true;
        }
        Ok(())
    }

    /// A request was answered. Returns its slot, or `None` if it was a message of hints.
    fn finish(&mut self, cookie: u64, failed: bool, now: Instant) -> io::Result<Option<Slot>> {
        if self.mailbox.as_mut().is_some_and(|mailbox| mailbox.finish(cookie)) {
            self.report.messages += 1;
            self.report.errors += u64::from(failed);
            return Ok(None);
        }
        let slot = usize::try_from(cookie).ok().and_then(|place| self.slots.get_mut(place));
        let taken = slot.and_then(|slot| Some((slot.sent.take()?, *slot)));
        let (sent, slot) = taken.ok_or_else(|| other("the server answered what was not asked"))?;
        let latencies = if slot.read { &mut self.report.reads } else { &mut self.report.writes };
        latencies.record(now - sent);
        self.report.errors += u64::from(failed || slot.failed);
        self.free.push(cookie as u32);
        Ok(Some(slot))
    }
}

/// Waits until the task is woken.
async fn woken() {
    let mut slept = false;
    poll_fn(|_| if std::mem::replace(&mut slept, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}
