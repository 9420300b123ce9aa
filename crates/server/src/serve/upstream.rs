//! Another NBD server's export as a store, so that servers stack.
//!
//! One connection, opened again when it was lost: requests that were in flight then fail, and the
//! cache above tries again as it does after any failure. What the export cannot do (TRIM,
//! WRITE_ZEROES) is done without: a TRIM is a hint, zeroes are written.

use std::io::{self, ErrorKind};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;
use undercroft_nbd::wire::{
    CMD_FLAG_FAST_ZERO, CMD_FLAG_NO_HOLE, READ_ONLY, SEND_FAST_ZERO, SEND_FLUSH, SEND_FUA,
    SEND_TRIM, SEND_WRITE_ZEROES,
};
use undercroft_nbd::{Client, ClientError, ClientOptions, Endpoint, Uri};
use undercroft_store::{
    Answer, Buffer, Extent, Facts, NbdAddress, NbdTransport, Store, Upstream, Zeroing,
};

/// Most bytes of one request without data.
const EFFECT_BYTES: u64 = 1 << 30;

/// Most bytes of zeroes that are written at once where the export has no WRITE_ZEROES.
const ZEROES_BYTES: u64 = 1 << 20;

/// Pause before the second try to connect again, after which callers get the error.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// What opens `nbd://` and the like for [`undercroft_store::open`]; `tls` is for `nbds`.
pub(crate) fn upstream(options: ClientOptions) -> Upstream {
    Arc::new(move |address, read_only| {
        let options = options.clone();
        Box::pin(async move {
            let store = NbdStore::connect(&address, options, read_only).await?;
            Ok(Arc::new(store) as Arc<dyn Store>)
        })
    })
}

struct NbdStore {
    link: Arc<Link>,
}

/// What requests share: they outlive the call that began them.
struct Link {
    uri: Uri,
    options: ClientOptions,
    client: Mutex<Client>,
    facts: RwLock<Facts>,
    /// The export's own word for what it can do.
    offers: u16,
}

impl NbdStore {
    async fn connect(
        address: &NbdAddress,
        mut options: ClientOptions,
        read_only: bool,
    ) -> io::Result<NbdStore> {
        options.contexts = vec!["base:allocation".to_owned()];
        let endpoint = match &address.transport {
            NbdTransport::Tcp { host, port } => Endpoint::Tcp(host.clone(), *port),
            NbdTransport::Unix(path) => Endpoint::Unix(path.clone()),
        };
        let uri = Uri { endpoint, export: address.export.clone(), tls: address.tls };
        let name = address.to_string();
        let failed = |error| io::Error::other(format!("{name}: {error}"));
        let client = Client::connect(&uri, &options).await.map_err(failed)?;
        let remote = client.remote();
        let facts = Facts {
            size: remote.info.size,
            alignment: remote.info.min_block.max(1),
            read_only: read_only || remote.offers(READ_ONLY),
            zeroes_fast: remote.offers(SEND_FAST_ZERO),
            name: name.clone(),
        };
        let offers = remote.transmission_flags;
        let facts = RwLock::new(facts);
        let link = Link { uri, options, client: Mutex::new(client), facts, offers };
        Ok(NbdStore { link: Arc::new(link) })
    }

    /// Runs a request of the link in a future of its own.
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

impl Link {
    fn offers(&self, flags: u16) -> bool {
        self.offers & flags == flags
    }

    /// Names the store in an error.
    fn failed(&self, error: ClientError) -> io::Error {
        let error = io::Error::from(error);
        let name = self.facts.read().map(|facts| facts.name.clone()).unwrap_or_default();
        io::Error::new(error.kind(), format!("{name}: {error}"))
    }

    /// The connection, a new one if the last was lost.
    async fn client(&self) -> Result<Client, ClientError> {
        let mut client = self.client.lock().await;
        if client.is_lost() {
            let again = match Client::connect(&self.uri, &self.options).await {
                Err(_) => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    Client::connect(&self.uri, &self.options).await?
                }
                Ok(again) => again,
            };
            let size = self.facts.read().map(|facts| facts.size).unwrap_or_default();
            if again.remote().info.size < size {
                return Err(ClientError::Refused("the export has shrunk".to_owned()));
            }
            *client = again;
        }
        Ok(client.clone())
    }

    /// Pieces of a range that one request may have.
    fn pieces(offset: u64, length: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
        let end = offset + length;
        (0..length.div_ceil(most)).map(move |i| {
            let start = offset + i * most;
            (start, most.min(end - start))
        })
    }

    async fn zero(&self, offset: u64, length: u64, how: Zeroing, durable: bool) -> io::Result<()> {
        let fua = durable && self.offers(SEND_FUA);
        if how.only_if_fast && !self.offers(SEND_WRITE_ZEROES | SEND_FAST_ZERO) {
            return Err(ErrorKind::Unsupported.into());
        }
        let client = self.client().await.map_err(|error| self.failed(error))?;
        if self.offers(SEND_WRITE_ZEROES) {
            let mut flags = if how.keep_allocated { CMD_FLAG_NO_HOLE } else { 0 };
            flags |= if how.only_if_fast { CMD_FLAG_FAST_ZERO } else { 0 };
            for (start, bytes) in Self::pieces(offset, length, EFFECT_BYTES) {
                let zeroed = client.write_zeroes(start, bytes, flags, fua).await;
                zeroed.map_err(|error| self.failed(error))?;
            }
        } else {
            let zeroes = Bytes::from(vec![0; length.min(ZEROES_BYTES) as usize]);
            for (start, bytes) in Self::pieces(offset, length, ZEROES_BYTES) {
                let piece = vec![zeroes.slice(..bytes as usize)];
                let written = client.write(start, piece, fua).await;
                written.map_err(|error| self.failed(error))?;
            }
        }
        self.settle(&client, durable && !fua).await
    }

    /// A flush, where FUA was asked for and the export does not have it.
    async fn settle(&self, client: &Client, wanted: bool) -> io::Result<()> {
        if wanted && self.offers(SEND_FLUSH) {
            client.flush().await.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    async fn write(&self, offset: u64, data: Vec<Bytes>, durable: bool) -> io::Result<()> {
        let fua = durable && self.offers(SEND_FUA);
        let client = self.client().await.map_err(|error| self.failed(error))?;
        client.write(offset, data, fua).await.map_err(|error| self.failed(error))?;
        self.settle(&client, durable && !fua).await
    }
}

impl Store for NbdStore {
    fn facts(&self) -> Facts {
        self.link.facts.read().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    fn read(&self, offset: u64, into: Vec<Buffer>) -> Answer<(Vec<Buffer>, io::Result<()>)> {
        self.ask(|link| async move {
            let client = match link.client().await {
                Ok(client) => client,
                Err(error) => return (into, Err(link.failed(error))),
            };
            let (into, result) = client.read(offset, into).await;
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
            self.ask(|link| async move {
                if !link.offers(SEND_TRIM) {
                    return Ok(());
                }
                let fua = durable && link.offers(SEND_FUA);
                let client = link.client().await.map_err(|error| link.failed(error))?;
                for (start, bytes) in Link::pieces(offset, length, EFFECT_BYTES) {
                    let trimmed = client.trim(start, bytes, fua).await;
                    trimmed.map_err(|error| link.failed(error))?;
                }
                link.settle(&client, durable && !fua).await
            })
        })
    }

    fn flush(&self) -> Answer<io::Result<()>> {
        self.ask(|link| async move {
            let client = link.client().await.map_err(|error| link.failed(error))?;
            link.settle(&client, true).await
        })
    }

    fn extents(&self, offset: u64, length: u64) -> Answer<io::Result<Vec<Extent>>> {
        self.ask(|link| async move {
            let client = link.client().await.map_err(|error| link.failed(error))?;
            let data = Extent { length, hole: false, zero: false };
            let context =
                client.remote().contexts.iter().find(|(_, name)| name == "base:allocation");
            let Some(&(number, _)) = context else { return Ok(vec![data]) };
            let asked = length.min(EFFECT_BYTES);
            let found = client.block_status(offset, asked, false).await;
            let found = found.map_err(|error| link.failed(error))?;
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
        })
    }

    fn reload(&self) -> Answer<io::Result<u64>> {
        self.ask(|link| async move {
            let told = Client::describe(&link.uri, &link.options).await;
            let told = told.map_err(|error| link.failed(error))?.info.size;
            let mut facts = link.facts.write().unwrap_or_else(std::sync::PoisonError::into_inner);
            if told > facts.size {
                facts.size = told;
            }
            Ok(facts.size)
        })
    }
}
