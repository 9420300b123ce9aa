//! A store that is another NBD server's export, so that servers stack.
//!
//! If the export lacks TRIM, trims are ignored, since TRIM is advice; without WRITE_ZEROES, zeroes
//! are written. When the connection is lost, or the server says that it is shutting down, requests
//! are repeated over a new connection; they wait for it as long as configured, and then fail.

mod hint_sender;
mod link;
mod patience;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use undercroft_nbd::wire::{
    CMD_FLAG_FAST_ZERO, CMD_FLAG_NO_HOLE, SEND_FAST_ZERO, SEND_TRIM, SEND_WRITE_ZEROES,
};
use undercroft_nbd::{ClientError, ClientOptions, Uri};
use undercroft_store::{Absence, Answer, Buffer, Extent, Facts, OnLoss, Store, Upstream, Zeroing};

pub(crate) use hint_sender::HintSender;
use link::Link;

/// Most bytes of one request without data.
const EFFECT_BYTES: u64 = 1 << 30;

/// Most bytes of zeroes in one write, if the export has no WRITE_ZEROES.
const ZEROES_BYTES: u64 = 1 << 20;

/// Connects to exports of other servers, for [`undercroft_store::OpenOptions`]; with `tls` also to
/// `nbds`. Requests wait for a server that is away as long as `waits`. A sender of hints serves one
/// store only, whose server must accept its messages.
pub(crate) fn upstream(
    options: ClientOptions,
    waits: Duration,
    sender: Option<Arc<HintSender>>,
) -> Upstream {
    Arc::new(move |uri, read_only| {
        let (options, sender) = (options.clone(), sender.clone());
        Box::pin(async move {
            let store = NbdStore::connect(uri, options, read_only, waits, sender).await?;
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
        waits: Duration,
        sender: Option<Arc<HintSender>>,
    ) -> io::Result<NbdStore> {
        options.contexts = vec!["base:allocation".to_owned()];
        let name = uri.to_string();
        if uri.tls && options.tls.is_none() {
            let what = "say whom its certificate comes from, with --tls-upstream-roots FILE";
            return Err(io::Error::new(ErrorKind::InvalidInput, format!("{name}: {what}")));
        }
        let link = Link::open(uri, options, name, read_only, waits, sender).await?;
        let link = Arc::new(link);
        tokio::spawn(link::keep(Arc::downgrade(&link)));
        Ok(NbdStore { link })
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
        self.until_answered(|| self.try_write(offset, data.clone(), durable)).await
    }

    async fn try_write(
        &self,
        offset: u64,
        data: Vec<Bytes>,
        durable: bool,
    ) -> Result<(), ClientError> {
        let channel = self.channel().await?;
        let length = data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let said = self.before(offset, length, true).await;
        let written = channel.write(offset, data, durable).await;
        let result = self.settle(&channel, durable, written).await;
        self.heard(said).await;
        result
    }

    async fn read(
        &self,
        offset: u64,
        mut into: Vec<Buffer>,
        length: u64,
    ) -> (Vec<Buffer>, io::Result<()>) {
        let mut patience = self.patience();
        loop {
            let result = match self.channel().await {
                Ok(channel) => {
                    let said = self.before(offset, length, false).await;
                    let result;
                    (into, result) = channel.read(offset, into).await;
                    self.heard(said).await;
                    result
                }
                Err(error) => Err(error),
            };
            if let Some(result) = patience.accept(result).await {
                return (into, result.map_err(|error| self.failed(error)));
            }
        }
    }

    async fn zero(&self, offset: u64, length: u64, how: Zeroing, durable: bool) -> io::Result<()> {
        let zeroed = self.until_answered(|| self.try_zero(offset, length, how, durable));
        if zeroed.await? { Ok(()) } else { Err(ErrorKind::Unsupported.into()) }
    }

    /// Returns whether it was done: not if that is to be quick, and the export cannot do so.
    async fn try_zero(
        &self,
        offset: u64,
        length: u64,
        how: Zeroing,
        durable: bool,
    ) -> Result<bool, ClientError> {
        let channel = self.channel().await?;
        if how.only_if_fast && !channel.offers(SEND_WRITE_ZEROES | SEND_FAST_ZERO) {
            return Ok(false);
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
        result.map(|()| true)
    }

    async fn trim(&self, offset: u64, length: u64, durable: bool) -> io::Result<()> {
        self.until_answered(|| self.try_trim(offset, length, durable)).await
    }

    async fn try_trim(&self, offset: u64, length: u64, durable: bool) -> Result<(), ClientError> {
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
        result
    }

    async fn extents(&self, offset: u64, length: u64) -> io::Result<Vec<Extent>> {
        self.until_answered(|| self.try_extents(offset, length)).await
    }

    async fn try_extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, ClientError> {
        let channel = self.channel().await?;
        let data = Extent { length, hole: false, zero: false };
        let contexts = &channel.client.remote().contexts;
        let context = contexts.iter().find(|(_, name)| name == "base:allocation");
        let Some(&(number, _)) = context else { return Ok(vec![data]) };
        let asked = length.min(EFFECT_BYTES);
        let found = channel.client.block_status(offset, asked, false).await?;
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
        self.ask(move |link| async move { link.read(offset, into, length).await })
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

    fn absence(&self) -> Option<Absence> {
        self.link.absence()
    }
}
