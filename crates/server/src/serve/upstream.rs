//! A store that is another NBD server's export, so that servers stack.
//!
//! If the export lacks TRIM, trims are ignored, since TRIM is advice; without WRITE_ZEROES, zeroes
//! are written. A request in flight fails when the connection is lost; the cache above tries again
//! as after any failure.

mod hint_sender;
mod level_sender;
mod link;
mod notifier;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use bytes::Bytes;
use undercroft_nbd::wire::{
    CMD_FLAG_FAST_ZERO, CMD_FLAG_NO_HOLE, SEND_FAST_ZERO, SEND_TRIM, SEND_WRITE_ZEROES,
};
use undercroft_nbd::{ClientOptions, Uri};
use undercroft_store::{Answer, Buffer, Extent, Facts, OnLoss, Store, Upstream, Zeroing};

pub(super) use hint_sender::HintSender;
pub(super) use level_sender::{LevelBelow, LevelSender};
use link::Link;
pub(super) use notifier::Notifier;

/// Most bytes of one request without data.
const EFFECT_BYTES: u64 = 1 << 30;

/// Most bytes of zeroes in one write, if the export has no WRITE_ZEROES.
const ZEROES_BYTES: u64 = 1 << 20;

/// Connects to exports of other servers, for [`undercroft_store::OpenOptions`]; with `tls` also to
/// `nbds`. A notifier serves one store only, whose server must accept its messages.
pub(super) fn upstream(options: ClientOptions, notifier: Option<Notifier>) -> Upstream {
    Arc::new(move |uri, read_only| {
        let (options, notifier) = (options.clone(), notifier.clone());
        Box::pin(async move {
            let store = NbdStore::connect(uri, options, read_only, notifier).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    })
}

struct NbdStore {
    link: Arc<Link>,
}

impl NbdStore {
    async fn connect(
        uri: Uri,
        mut options: ClientOptions,
        read_only: bool,
        notifier: Option<Notifier>,
    ) -> io::Result<NbdStore> {
        options.contexts = vec!["base:allocation".to_owned()];
        let name = uri.to_string();
        if uri.tls && options.tls.is_none() {
            let what = "say whom its certificate comes from, with --tls-upstream-roots FILE";
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name}: {what}")));
        }
        let link = Link::open(uri, options, name, read_only, notifier).await?;
        Ok(NbdStore { link: Arc::new(link) })
    }

    /// Runs a request on the link, as a future of its own.
    fn ask<T, F>(&self, request: impl FnOnce(Arc<Link>) -> F) -> Answer<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        Box::pin(request(Arc::clone(&self.link)))
    }

    fn refuse_change(&self) -> Option<Answer<io::Result<()>>> {
        let facts = self.facts();
        facts.read_only.then(|| {
            let error = io::Error::new(ErrorKind::ReadOnlyFilesystem, facts.name);
            Box::pin(std::future::ready(Err(error))) as Answer<io::Result<()>>
        })
    }
}

/// Splits a range into parts that fit one request.
fn pieces(offset: u64, length: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset + length;
    (0..length.div_ceil(most)).map(move |i| {
        let start = offset + i * most;
        (start, most.min(end - start))
    })
}

impl Link {
    async fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> io::Result<()> {
        let channel = self.channel().await?;
        let length = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let said = self.before(offset, length, true).await;
        let written = channel.write(offset, data, durable).await;
        let result = self.settle(&channel, durable, written).await;
        self.heard(said).await;
        result.map_err(|error| self.failed(error))
    }

    async fn zero(&self, offset: u64, length: u64, how: Zeroing, durable: bool) -> io::Result<()> {
        let channel = self.channel().await?;
        if how.only_if_fast && !channel.offers(SEND_WRITE_ZEROES | SEND_FAST_ZERO) {
            return Err(ErrorKind::Unsupported.into());
        }
        let said = self.before(offset, length, true).await;
        let zeroed = async {
            if channel.offers(SEND_WRITE_ZEROES) {
                let mut flags = if how.keep_allocated { CMD_FLAG_NO_HOLE } else { 0 };
                flags |= if how.only_if_fast { CMD_FLAG_FAST_ZERO } else { 0 };
                for (start, bytes) in pieces(offset, length, EFFECT_BYTES) {
                    channel.client.write_zeroes(start, bytes, flags, channel.fua(durable)).await?;
                }
            } else {
                let zeroes = Bytes::from(vec![0; length.min(ZEROES_BYTES) as usize]);
                for (start, bytes) in pieces(offset, length, ZEROES_BYTES) {
                    let piece = vec![zeroes.slice(..bytes as usize)];
                    channel.write(start, piece, durable).await?;
                }
            }
            Ok(())
        };
        let result = self.settle(&channel, durable, zeroed.await).await;
        self.heard(said).await;
        result.map_err(|error| self.failed(error))
    }

    async fn trim(&self, offset: u64, length: u64, durable: bool) -> io::Result<()> {
        let channel = self.channel().await?;
        if !channel.offers(SEND_TRIM) {
            return Ok(());
        }
        let said = self.before(offset, length, true).await;
        let trimmed = async {
            for (start, bytes) in pieces(offset, length, EFFECT_BYTES) {
                channel.client.trim(start, bytes, channel.fua(durable)).await?;
            }
            Ok(())
        };
        let result = self.settle(&channel, durable, trimmed.await).await;
        self.heard(said).await;
        result.map_err(|error| self.failed(error))
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        let channel = self.channel().await?;
        let data = Extent { length, hole: false, zero: false };
        let contexts = &channel.client.remote().contexts;
        let context = contexts.iter().find(|(_, name)| name == "base:allocation");
        let Some(&(number, _)) = context else { return Ok(vec![data]) };
        let asked = length.min(EFFECT_BYTES);
        let found = channel.client.block_status(offset, asked, false).await;
        let found = found.map_err(|error| self.failed(error))?;
        let mut left = length;
        let mut extents = Vec::new();
        for extent in found.into_iter().filter(|(of, _)| *of == number).flat_map(|(_, e)| e) {
            let bytes = extent.length.min(left);
            if bytes == 0 {
                break;
            }
            left -= bytes;
            let (hole, zero) = (extent.status & 1 != 0, extent.status & 2 != 0);
            extents.push(Extent { length: bytes, hole, zero });
        }
        Ok(if extents.is_empty() { vec![data] } else { extents })
    }
}

impl Store for NbdStore {
    fn facts(&self) -> Facts {
        self.link.facts()
    }

    fn read(&self, offset: u64, mut into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        let length = into.iter_mut().map(|buffer| (**buffer).as_mut().len() as u64).sum();
        self.ask(move |link| async move {
            let channel = match link.channel().await {
                Ok(channel) => channel,
                Err(error) => return (into, Err(error)),
            };
            let said = link.before(offset, length, false).await;
            let (into, result) = channel.read(offset, into).await;
            link.heard(said).await;
            (into, result.map_err(|error| link.failed(error)))
        })
    }

    fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> Answer<io::Result<()>> {
        self.refuse_change().unwrap_or_else(|| {
            self.ask(|link| async move { link.write(offset, data, durable).await })
        })
    }

    fn zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Answer<io::Result<()>> {
        self.refuse_change().unwrap_or_else(|| {
            self.ask(|link| async move { link.zero(offset, length, how, durable).await })
        })
    }

    fn trim(&self, offset: u64, length: u64, durable: bool) -> Answer<io::Result<()>> {
        self.refuse_change().unwrap_or_else(|| {
            self.ask(|link| async move { link.trim(offset, length, durable).await })
        })
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        self.ask(|link| async move { link.flush().await })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.ask(|link| async move { link.extents(offset, length).await })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.ask(|link| async move { link.grow().await })
    }

    fn losses(&self) -> Option<u64> {
        Some(self.link.losses())
    }

    fn on_loss(&self, call: OnLoss) {
        self.link.on_loss(call);
    }
}
