//! One connection of a load, on its own thread.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::ReadBuf;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Load, LoadReport};
use crate::client::{ClientOptions, open_simply};
use crate::link::Transport;
use crate::uri::Uri;
use crate::wire::*;

/// Room for one read: 64 answers of 4 KiB.
const READ: usize = 256 << 10;

/// A server that is silent for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// A place for a request in flight; its cookie is its place among the others.
#[derive(Clone, Copy)]
struct Slot {
    /// When its request was sent; none while there is none.
    sent: Option<Instant>,
    read: bool,
}

/// A connection, its handshake done.
pub(super) struct Connection {
    runtime: Runtime,
    traffic: Traffic,
}

/// What goes on while it is loaded.
struct Traffic {
    transport: Box<dyn Transport>,
    load: Load,
    blocks: u64,
    next_block: u64,
    random: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Bytes to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// The transport may still hold some of what was sent.
    held: bool,
    /// Bytes read, `input[..filled]`: at most the beginning of a header between two reads.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of data still to come and to throw away.
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
        let (link, remote) = runtime.block_on(open_simply(uri, options))?;
        let (info, bytes) = (&remote.info, load.block_bytes);
        let blocks = info.size / u64::from(bytes);
        if blocks == 0 {
            return Err(other(&format!("the export has only {} bytes", info.size)));
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
        input[..link.input.len()].copy_from_slice(&link.input);
        let traffic = Traffic {
            transport: link.transport,
            load: load.clone(),
            blocks,
            next_block: share as u64,
            random: load.seed.wrapping_add(u64::from(number) << 32),
            slots: vec![Slot { sent: None, read: true }; load.depth as usize],
            free: (0..load.depth).collect(),
            output: Vec::new(),
            sent: 0,
            held: false,
            input,
            filled: link.input.len(),
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
            if !sending && self.free.len() == self.slots.len() {
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

    /// Appends a request for every free slot, unless the last ones are not out yet.
    fn queue(&mut self, now: Instant) {
        if self.sent < self.output.len() {
            return;
        }
        self.output.clear();
        self.sent = 0;
        while let Some(slot) = self.free.pop() {
            let read = self.load.read_percent == 100
                || self.next_random() % 100 < u64::from(self.load.read_percent);
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
            self.slots[slot as usize] = Slot { sent: Some(now), read };
        }
    }

    fn next_offset(&mut self) -> u64 {
        let block = if self.load.sequential {
            let block = self.next_block;
            self.next_block = (block + 1) % self.blocks;
            block
        } else {
            self.next_random() % self.blocks
        };
        block * u64::from(self.load.block_bytes)
    }

    /// SplitMix64: enough to scatter offsets.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Sends what goes and reads what is there: whether anything went, and how much came.
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

    /// Takes the answers out of what was read.
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
            let ReplyHeader::Simple { error, cookie } = header else {
                return Err(other("a structured reply that was not asked for"));
            };
            self.finish(error, cookie, now)?;
        }
        self.input.copy_within(at..end, 0);
        self.filled = end - at;
        Ok(())
    }

    fn finish(&mut self, error: u32, cookie: u64, now: Instant) -> io::Result<()> {
        let slot = usize::try_from(cookie).ok().and_then(|place| self.slots.get_mut(place));
        let Some((sent, read)) = slot.and_then(|slot| Some((slot.sent.take()?, slot.read))) else {
            return Err(other("the server answered what was not asked"));
        };
        let latencies = if read { &mut self.report.reads } else { &mut self.report.writes };
        latencies.record(now - sent);
        if error != 0 {
            self.report.errors += 1;
        } else if read {
            self.skip = self.load.block_bytes as usize;
        }
        self.free.push(cookie as u32);
        Ok(())
    }
}

fn other(what: &str) -> io::Error {
    io::Error::other(what.to_owned())
}

/// Until whatever the task waits for has happened.
async fn woken() {
    let mut slept = false;
    poll_fn(|_| if std::mem::replace(&mut slept, true) { Poll::Ready(()) } else { Poll::Pending })
        .await;
}
