//! One connection of a load, on its own thread.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::{Load, LoadReport};
use crate::link::Transport;
use crate::uri::{Endpoint, Uri};
use crate::wire::*;

/// Room for one read: 64 answers of 4 KiB.
const READ: usize = 256 << 10;

/// A server that is silent for so long is taken for dead.
const PATIENCE: Duration = Duration::from_secs(30);

/// A socket that can be read and written without waiting.
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    async fn connect(endpoint: &Endpoint) -> io::Result<Socket> {
        match endpoint {
            Endpoint::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }
            Endpoint::Unix(path) => Ok(Socket::Unix(UnixStream::connect(path).await?)),
        }
    }

    async fn ready(&self, interest: Interest) -> io::Result<Ready> {
        match self {
            Socket::Tcp(stream) => stream.ready(interest).await,
            Socket::Unix(stream) => stream.ready(interest).await,
        }
    }

    fn try_read(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let result = match self {
            Socket::Tcp(stream) => stream.try_read(into),
            Socket::Unix(stream) => stream.try_read(into),
        };
        unless_blocked(result)
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<Option<usize>> {
        let result = match self {
            Socket::Tcp(stream) => stream.try_write(bytes),
            Socket::Unix(stream) => stream.try_write(bytes),
        };
        unless_blocked(result)
    }
}

fn unless_blocked(result: io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(count) => Ok(Some(count)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

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
    socket: Socket,
    load: Load,
    blocks: u64,
    next_block: u64,
    random: u64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Bytes to send, from `sent` on.
    output: Vec<u8>,
    sent: usize,
    /// Bytes read, `input[..filled]`: at most the beginning of a header between two reads.
    input: Vec<u8>,
    filled: usize,
    /// Bytes of data still to come and to throw away.
    skip: usize,
    report: LoadReport,
}

impl Connection {
    pub(super) fn open(uri: &Uri, load: &Load, number: u32) -> io::Result<Connection> {
        if uri.tls {
            return Err(other("the load generator does not speak TLS"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let opened = runtime.block_on(async { timeout(PATIENCE, open(uri)).await });
        let (socket, size, flags) = opened.map_err(|_| other("the server is silent"))??;
        let blocks = size / u64::from(load.block_bytes);
        if blocks == 0 {
            return Err(other(&format!("the export has only {size} bytes")));
        }
        if flags & READ_ONLY != 0 && load.read_percent < 100 {
            return Err(other("the export is read-only"));
        }
        let share = u128::from(number) * u128::from(blocks) / u128::from(load.connections);
        let traffic = Traffic {
            socket,
            load: load.clone(),
            blocks,
            next_block: share as u64,
            random: load.seed.wrapping_add(u64::from(number) << 32),
            slots: vec![Slot { sent: None, read: true }; load.depth as usize],
            free: (0..load.depth).collect(),
            output: Vec::new(),
            sent: 0,
            input: vec![0; READ],
            filled: 0,
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
            let written = self.write()?;
            let read = self.socket.try_read(&mut self.input[self.filled..])?;
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
                let interest = match self.output.len() - self.sent {
                    0 => Interest::READABLE,
                    _ => Interest::READABLE | Interest::WRITABLE,
                };
                let ready = timeout(PATIENCE, self.socket.ready(interest)).await;
                ready.map_err(|_| other("the server is silent"))??;
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

    /// Sends what goes; whether anything went.
    fn write(&mut self) -> io::Result<bool> {
        if self.sent == self.output.len() {
            return Ok(false);
        }
        let count = self.socket.try_write(&self.output[self.sent..])?;
        self.sent += count.unwrap_or(0);
        Ok(count.is_some())
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

async fn open(uri: &Uri) -> io::Result<(Socket, u64, u16)> {
    let mut socket = Socket::connect(&uri.endpoint).await?;
    let (size, flags) = match &mut socket {
        Socket::Tcp(stream) => handshake(stream, &uri.export).await?,
        Socket::Unix(stream) => handshake(stream, &uri.export).await?,
    };
    Ok((socket, size, flags))
}

/// The shortest handshake that there is; gives size and flags of the export.
async fn handshake(stream: &mut impl Transport, export: &str) -> io::Result<(u64, u16)> {
    let mut greeting = [0; Greeting::SIZE];
    stream.read_exact(&mut greeting).await?;
    let greeting = Greeting::parse(&greeting).map_err(|error| other(error.what()))?;
    let flags = greeting.flags & (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    let mut out = bytes::BytesMut::from(&u32::from(flags).to_be_bytes()[..]);
    put_option(&mut out, OPT_EXPORT_NAME, export.as_bytes());
    stream.write_all(&out).await?;
    let refused = |_| other(&format!("the server refuses export '{export}', or needs TLS for it"));
    let size = stream.read_u64().await.map_err(refused)?;
    let told = stream.read_u16().await?;
    if flags & FLAG_NO_ZEROES == 0 {
        stream.read_exact(&mut [0; 124]).await?;
    }
    Ok((size, told))
}
