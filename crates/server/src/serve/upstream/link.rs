//! The connection to another server's export: opened again when it was lost, and what one request
//! may carry. Not here: what a store is.
//!
//! A server that went away may have lost what it had answered and not made durable. So the first
//! FLUSH after a connection was lost with such changes fails, as after a failed `fdatasync`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use undercroft_nbd::report::Answer;
use undercroft_nbd::wire::{READ_ONLY, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA};
use undercroft_nbd::{Client, ClientError, ClientOptions, Uri};
use undercroft_store::{Buffer, Facts};

use super::voice::{Opened, Voice};

/// Pause before the second try to connect again, after which callers get the error.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What requests share: they outlive the call that began them.
pub(super) struct Link {
    uri: Uri,
    options: ClientOptions,
    line: tokio::sync::Mutex<Line>,
    facts: RwLock<Facts>,
    doubt: Mutex<Doubt>,
    /// What is said of the cache in front, if anything.
    voice: Option<Voice>,
}

/// A connection that was just made.
struct Dialled {
    client: Client,
    /// Bytes of the export. A session with a mailbox is told more.
    size: u64,
    /// Where something is to be said: whether it can be.
    opened: Option<Opened>,
}

/// The way to the export as it is now.
struct Line {
    channel: Channel,
    /// When connecting again failed last, and why.
    failed: Option<(Instant, ClientError)>,
}

/// Whether answered changes went with a connection.
#[derive(Default)]
struct Doubt {
    /// They may have, and no FLUSH has said so yet.
    open: bool,
    /// When a FLUSH said so last: those that had come by then say it too.
    told: Option<Instant>,
}

/// A connection, and the number of changes answered on it that no FLUSH has covered.
#[derive(Clone)]
pub(super) struct Channel {
    pub(super) client: Client,
    unflushed: Arc<AtomicU64>,
}

impl Link {
    /// Connects for the first time.
    pub(super) async fn open(
        uri: Uri,
        options: ClientOptions,
        name: String,
        read_only: bool,
        voice: Option<Voice>,
    ) -> io::Result<Link> {
        let dialled = dial(&uri, &options, voice.as_ref()).await;
        let dialled = dialled.map_err(|error| io::Error::other(format!("{name}: {error}")))?;
        if let Some(voice) = &voice {
            if let Some(why) = dialled.opened.as_ref().and_then(|opened| voice.refused(opened)) {
                return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name}: {why}")));
            }
            voice.start();
        }
        let Dialled { client, size, opened } = dialled;
        attach(voice.as_ref(), &name, opened);
        let channel = Channel::new(client);
        let remote = channel.client.remote();
        let facts = Facts {
            size,
            alignment: remote.info.min_block.max(1),
            read_only: read_only || remote.offers(READ_ONLY),
            zeroes_fast: remote.offers(SEND_FAST_ZERO),
            name,
        };
        let line = tokio::sync::Mutex::new(Line { channel, failed: None });
        let (facts, doubt) = (RwLock::new(facts), Mutex::default());
        Ok(Link { uri, options, line, facts, doubt, voice })
    }

    pub(super) fn facts(&self) -> Facts {
        self.facts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Names the store in an error.
    pub(super) fn failed(&self, error: ClientError) -> io::Error {
        let error = io::Error::from(error);
        io::Error::new(error.kind(), format!("{}: {error}", self.facts().name))
    }

    /// The connection, a new one if the last was lost. Who waited while a try failed does not
    /// try again: many requests for a server that is away fail together.
    pub(super) async fn channel(&self) -> io::Result<Channel> {
        let arrived = Instant::now();
        let mut line = self.line.lock().await;
        if !line.channel.client.is_lost() {
            return Ok(line.channel.clone());
        }
        if let Some((_, error)) = line.failed.as_ref().filter(|(at, _)| *at >= arrived) {
            return Err(self.failed(error.clone()));
        }
        match self.connect_again().await {
            Ok(Dialled { client, opened, .. }) => {
                if line.channel.unflushed.load(Ordering::SeqCst) > 0 {
                    self.doubt().open = true;
                }
                let name = self.facts().name;
                tracing::warn!("{name}: connected again");
                attach(self.voice.as_ref(), &name, opened);
                *line = Line { channel: Channel::new(client), failed: None };
                Ok(line.channel.clone())
            }
            Err(error) => {
                if line.failed.is_none() {
                    tracing::warn!("{}: {error}", self.facts().name);
                }
                line.failed = Some((Instant::now(), error.clone()));
                Err(self.failed(error))
            }
        }
    }

    async fn connect_again(&self) -> Result<Dialled, ClientError> {
        let again = match self.dial().await {
            Err(_) => {
                tokio::time::sleep(RETRY_PAUSE).await;
                self.dial().await?
            }
            Ok(again) => again,
        };
        self.check(&again)?;
        Ok(again)
    }

    async fn dial(&self) -> Result<Dialled, ClientError> {
        dial(&self.uri, &self.options, self.voice.as_ref()).await
    }

    /// Says what there is to say before a request for a range, which goes next.
    pub(super) async fn before(&self, offset: u64, length: u64, changes: bool) -> Option<Answer> {
        self.voice.as_ref()?.before(offset..offset + length, changes).await
    }

    /// Waits for the answer to that.
    pub(super) async fn heard(&self, answer: Option<Answer>) {
        if let Some(voice) = &self.voice {
            voice.heard(answer).await;
        }
    }

    /// Whether an export can still stand for the one that was opened first.
    fn check(&self, again: &Dialled) -> Result<(), ClientError> {
        let (facts, remote) = (self.facts(), again.client.remote());
        let refuse = |what: String| Err(ClientError::Refused(what));
        if again.size < facts.size {
            return refuse(format!(
                "the export has shrunk from {} to {} bytes",
                facts.size, again.size
            ));
        }
        if remote.info.min_block.max(1) > facts.alignment {
            return refuse(format!(
                "the export takes units of {} bytes now, it was {}",
                remote.info.min_block, facts.alignment
            ));
        }
        if !facts.read_only && remote.offers(READ_ONLY) {
            return refuse("the export is read-only now".to_owned());
        }
        Ok(())
    }

    /// Changes were answered on a channel.
    pub(super) fn changed(&self, channel: &Channel) {
        channel.unflushed.fetch_add(1, Ordering::SeqCst);
        // The next connection may have been made already without knowing of this one.
        if channel.client.is_lost() {
            self.doubt().open = true;
        }
    }

    /// Makes durable what was answered before.
    pub(super) async fn flush(&self) -> io::Result<()> {
        let arrived = Instant::now();
        let channel = self.channel().await?;
        if self.doubt().holds(arrived) {
            let text = format!(
                "{}: the connection was lost with changes that were not flushed; the server may \
                 have lost them too",
                self.facts().name
            );
            return Err(io::Error::new(ErrorKind::ConnectionReset, text));
        }
        channel.flush().await.map_err(|error| self.failed(error))
    }

    /// Looks at the export's size again, over a new connection, since sizes are told at the start
    /// of one: that.
    pub(super) async fn grow(&self) -> io::Result<u64> {
        let old = self.channel().await?;
        let again = self.dial().await.map_err(|error| self.failed(error))?;
        let size = again.size;
        if size <= self.facts().size {
            return Ok(self.facts().size);
        }
        self.check(&again).map_err(|error| self.failed(error))?;
        // A flush on the new connection need not cover the old one.
        let mut line = self.line.lock().await;
        old.flush().await.map_err(|error| self.failed(error))?;
        line.channel = Channel { client: again.client, unflushed: old.unflushed };
        attach(self.voice.as_ref(), &self.facts().name, again.opened);
        self.facts.write().unwrap_or_else(PoisonError::into_inner).size = size;
        Ok(size)
    }

    fn doubt(&self) -> std::sync::MutexGuard<'_, Doubt> {
        self.doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects, and opts in where something is to be told.
async fn dial(
    uri: &Uri,
    options: &ClientOptions,
    voice: Option<&Voice>,
) -> Result<Dialled, ClientError> {
    let Some(voice) = voice else {
        let client = Client::connect(uri, options).await?;
        let size = client.remote().info.size;
        return Ok(Dialled { client, size, opened: None });
    };
    let size = Client::describe(uri, options).await?.info.size;
    let mut options = options.clone();
    options.contexts.push(voice.context());
    let client = Client::connect(uri, &options).await?;
    let opened = Some(voice.open(client.clone()));
    Ok(Dialled { client, size, opened })
}

fn attach(voice: Option<&Voice>, name: &str, opened: Option<Opened>) {
    if let (Some(voice), Some(opened)) = (voice, opened) {
        voice.attach(name, opened);
    }
}

impl Doubt {
    /// Whether a FLUSH that came at that time has to fail.
    fn holds(&mut self, arrived: Instant) -> bool {
        if self.open {
            *self = Doubt { open: false, told: Some(Instant::now()) };
            return true;
        }
        self.told.is_some_and(|told| arrived <= told)
    }
}

impl Channel {
    fn new(client: Client) -> Channel {
        Channel { client, unflushed: Arc::default() }
    }

    pub(super) fn offers(&self, flags: u16) -> bool {
        self.client.remote().offers(flags)
    }

    /// Most bytes that a request may move.
    pub(super) fn payload_bytes(&self) -> u64 {
        u64::from(self.client.remote().info.max_block.max(1))
    }

    /// Whether a durable change is asked for as such; else a FLUSH follows it.
    pub(super) fn fua(&self, durable: bool) -> bool {
        durable && self.offers(SEND_FUA)
    }

    /// A FLUSH where a change is to be durable and FUA could not say so.
    pub(super) async fn settle(&self, durable: bool) -> Result<(), ClientError> {
        if durable && !self.offers(SEND_FUA) { self.flush().await } else { Ok(()) }
    }

    async fn flush(&self) -> Result<(), ClientError> {
        let covered = self.unflushed.load(Ordering::SeqCst);
        if self.offers(SEND_FLUSH) {
            self.client.flush().await?;
        }
        self.unflushed.fetch_sub(covered, Ordering::SeqCst);
        Ok(())
    }

    /// Fills the buffers, in requests that the export takes.
    pub(super) async fn read(
        &self,
        mut offset: u64,
        mut into: Vec<Buffer>,
    ) -> (Vec<Buffer>, Result<(), ClientError>) {
        let most = self.payload_bytes();
        let lengths: Vec<_> = into.iter_mut().map(|b| (**b).as_mut().len() as u64).collect();
        if lengths.iter().sum::<u64>() <= most {
            return self.client.read(offset, into).await;
        }
        let mut filled = Vec::with_capacity(into.len());
        while !into.is_empty() {
            let (rest, mut bytes) = (&lengths[filled.len()..], 0);
            let fits = |length: &&u64| {
                bytes += **length;
                bytes <= most
            };
            let count = rest.iter().take_while(fits).count();
            let result = if count > 0 {
                let group = into.drain(..count).collect();
                let (group, result) = self.client.read(offset, group).await;
                filled.extend(group);
                offset += rest[..count].iter().sum::<u64>();
                result
            } else {
                let mut buffer = into.remove(0);
                let result = self.read_large(offset, (*buffer).as_mut()).await;
                offset += rest[0];
                filled.push(buffer);
                result
            };
            if let Err(error) = result {
                filled.append(&mut into);
                return (filled, Err(error));
            }
        }
        (filled, Ok(()))
    }

    /// Fills a buffer that is too long for one request.
    async fn read_large(&self, mut offset: u64, into: &mut [u8]) -> Result<(), ClientError> {
        for part in into.chunks_mut(self.payload_bytes() as usize) {
            let (mut buffers, result) =
                self.client.read(offset, vec![Box::new(vec![0_u8; part.len()])]).await;
            result?;
            buffers.iter_mut().for_each(|buffer| part.copy_from_slice((**buffer).as_mut()));
            offset += part.len() as u64;
        }
        Ok(())
    }

    /// Writes the pieces, in requests that the export takes.
    pub(super) async fn write(
        &self,
        mut offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<(), ClientError> {
        let (fua, most) = (self.fua(durable), self.payload_bytes());
        let (mut group, mut bytes) = (Vec::new(), 0);
        let mut rest: VecDeque<_> = data.into();
        while let Some(mut piece) = rest.pop_front() {
            let room = most - bytes;
            if piece.len() as u64 > room {
                rest.push_front(piece.split_off(room as usize));
            }
            bytes += piece.len() as u64;
            group.push(piece);
            if bytes == most || rest.is_empty() {
                self.client.write(offset, std::mem::take(&mut group), fua).await?;
                offset += bytes;
                bytes = 0;
            }
        }
        Ok(())
    }
}
