//! A simulated service for objects, in place of a disk: it answers as late and fails as often as
//! the disk would, and beside that it does to PUTs what services do. It executes them long after
//! their client was told of a failure or has given up, or without an answer, or twice, as the
//! library does that repeats them. Its ETags are made of the content, so they come back with it.
//!
//! What it has executed is durable. Here a server opens its volume only when nothing is late of
//! those that had it before, as the lease has it after a kill. The library's HTTP is not simulated.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::client::{HttpError, HttpErrorKind};
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use tokio::task::JoinHandle;
use undercroft_server::process::OpeningStore;
use undercroft_store::{OpenOptions, StoreSpec};
use xxhash_rust::xxh3::xxh3_128;

use super::{Failing, Kind, Shared, State, Ticket, sleep};
use crate::random::Random;

/// How a service differs from a disk.
#[derive(Clone, Debug)]
pub struct Service {
    /// Bytes of an object.
    pub object: u64,
    /// Of a hundred PUTs of data, those that meet a [`Course`] of their own.
    pub troubled: u64,
}

impl Service {
    pub fn draw(random: &mut Random) -> Service {
        Service {
            object: random.pick(&[4096, 16_384, 65_536]),
            troubled: random.pick(&[2, 10, 30]),
        }
    }
}

/// Most milliseconds that a PUT may be late. A lease lasts longer.
const LATE_MS: [u64; 4] = [20, 300, 3000, 12_000];

/// Between two looks whether anything is late.
const LOOK_MS: u64 = 20;

/// What becomes of a PUT: how much later each copy of it is executed, and what its client is told.
struct Course {
    copies: Vec<u64>,
    told: Told,
}

#[derive(Clone, Copy, Debug)]
enum Told {
    /// What became of the last copy.
    Answer,
    /// The service's failure, which the library has had too often.
    Failed,
    /// Nothing that the library understands: it does not repeat the request.
    Nonsense,
}

impl Course {
    fn well() -> Course {
        Course { copies: vec![0], told: Told::Answer }
    }

    fn draw(random: &mut Random) -> Course {
        let most = random.pick(&LATE_MS);
        let late = 1 + random.below(most);
        let told = random.pick(&[Told::Failed, Told::Nonsense]);
        let (copies, told) = match random.below(5) {
            0 => (vec![0], told),
            1 | 2 => (vec![late], told),
            3 => (vec![late, 0], Told::Answer),
            _ => (vec![0, 0], Told::Answer),
        };
        Course { copies, told }
    }
}

/// The objects of a volume that an older program has filled.
pub(super) fn objects(image: &[u8], object: u64) -> BTreeMap<Path, Bytes> {
    let description = format!(
        r#"{{"format": "undercroft-volume", "version": 1, "size_bytes": {}, "object_bytes": {object}}}"#,
        image.len()
    );
    let data = image.chunks(object as usize).enumerate().map(|(number, part)| {
        let mut whole = part.to_vec();
        whole.resize(object as usize, 0);
        (Path::from(format!("volume/data/{number:016x}")), Bytes::from(whole))
    });
    let description = (Path::from("volume/volume.json"), Bytes::from(description));
    data.chain([description]).collect()
}

/// Opens the volume for a server.
pub(super) fn open(shared: Arc<Shared>, owner: u64, object: u64) -> OpeningStore {
    Box::pin(async move {
        while shared.lock().on_the_way > 0 {
            sleep(LOOK_MS).await;
        }
        let heard = Arc::clone(&shared);
        let on_warning = move |what: &str| heard.lock().warnings.push(what.to_owned());
        let options = OpenOptions {
            must_exist: true,
            objects: Some(Arc::new(Client { shared, owner })),
            on_warning: Some(Arc::new(on_warning)),
            ..OpenOptions::default()
        };
        let spec = format!("s3(object={}KiB)://bucket/volume", object / 1024);
        spec.parse::<StoreSpec>().map_err(io::Error::other)?.open(options).await
    })
}

/// The service, as one server reaches it.
struct Client {
    shared: Arc<Shared>,
    owner: u64,
}

#[derive(Clone)]
struct Put {
    at: Path,
    content: Bytes,
    mode: PutMode,
}

impl Client {
    /// Asks for something that changes nothing.
    async fn ask<T>(&self, bytes: u64, find: impl FnOnce(&State) -> Result<T>) -> Result<T> {
        let ticket = self.shared.begin(self.owner, Kind::Read, (0, bytes));
        let found = match ticket.effect().await {
            Ok(_) if ticket.fails.is_some() => Err(failed()),
            Ok(state) => Ok(find(&state)),
            Err(_) => Err(failed()),
        };
        ticket.answer(Ok(())).await.map_err(|_| failed())?;
        found?
    }

    fn course(&self, put: &Put, ticket: &Ticket) -> Course {
        let mut state = self.shared.lock();
        let is_data = put.at.as_ref().contains("/data/");
        let State { random, is_calm, habits, .. } = &mut *state;
        let troubled = habits.service.as_ref().filter(|_| !*is_calm).map_or(0, |s| s.troubled);
        match ticket.fails {
            Some(Failing::Torn) if is_data => Course::draw(random),
            Some(_) => Course { copies: Vec::new(), told: Told::Failed },
            None if is_data && random.percent(troubled) => Course::draw(random),
            None => Course::well(),
        }
    }

    /// Executes a PUT then, whatever has become of its client.
    fn send(&self, number: u64, put: Put, ms: u64) -> JoinHandle<Result<PutResult>> {
        self.shared.lock().on_the_way += 1;
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move {
            sleep(ms).await;
            let mut state = shared.awake(None).await.map_err(|_| failed())?;
            state.on_the_way -= 1;
            let done = state.execute(&put);
            shared.log.line(|| {
                let how = if done.is_ok() { "executed" } else { "refused" };
                format!("{} {number} {how}: {} after {ms} ms", shared.name, put.at)
            });
            done
        })
    }
}

impl State {
    fn execute(&mut self, put: &Put) -> Result<PutResult> {
        let before = self.objects.get(&put.at).map(|content| tag(content));
        match &put.mode {
            PutMode::Create if before.is_some() => {
                let (path, source) = (put.at.to_string(), "it is there".into());
                return Err(Error::AlreadyExists { path, source });
            }
            PutMode::Update(wanted) if before.is_none() || before != wanted.e_tag => {
                let (path, source) = (put.at.to_string(), "it is another one".into());
                return Err(Error::Precondition { path, source });
            }
            _ => {}
        }
        let e_tag = Some(tag(&put.content));
        self.objects.insert(put.at.clone(), put.content.clone());
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    fn meta(&self, at: &Path) -> Option<ObjectMeta> {
        let content = self.objects.get(at)?;
        Some(ObjectMeta {
            location: at.clone(),
            last_modified: Default::default(),
            size: content.len() as u64,
            e_tag: Some(tag(content)),
            version: None,
        })
    }

    fn get(&self, at: &Path, options: &GetOptions) -> Result<GetResult> {
        let Some(meta) = self.meta(at) else {
            let (path, source) = (at.to_string(), "there is none".into());
            return Err(Error::NotFound { path, source });
        };
        let whole = Ok(0..meta.size);
        let range = options.range.as_ref().map_or(whole, |range| range.as_range(meta.size));
        let range: Range<u64> =
            range.map_err(|error| generic(format!("status code: 416: {error}")))?;
        let content = self.objects[at].slice(range.start as usize..range.end as usize);
        let payload = GetResultPayload::Stream(stream::iter([Ok(content)]).boxed());
        let (attributes, extensions) = Default::default();
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }
}

/// What services make of a content.
fn tag(content: &[u8]) -> String {
    format!("\"{:032x}\"", xxh3_128(content))
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: "simulated", source: source.into() }
}

fn failed() -> Error {
    generic("status code: 500 on purpose")
}

fn nonsense() -> Error {
    generic(HttpError::new(HttpErrorKind::Decode, io::Error::other("nonsense on purpose")))
}

#[async_trait::async_trait]
impl ObjectStore for Client {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (at, content, mode) = (location.clone(), Bytes::from(payload), options.mode);
        let ticket = self.shared.begin(self.owner, Kind::Write, (0, content.len() as u64));
        let put = Put { at, content, mode };
        let Course { copies, told } = self.course(&put, &ticket);
        let mut last = None;
        for late in copies {
            last = Some(self.send(ticket.number, put.clone(), ticket.to_effect + late));
        }
        let is_there = ticket.effect().await.map(drop);
        let done = match (told, last) {
            (Told::Answer, Some(last)) => last.await.unwrap_or_else(|_| Err(failed())),
            (Told::Nonsense, _) => Err(nonsense()),
            _ => Err(failed()),
        };
        ticket.answer(is_there).await.map_err(|_| failed())?;
        done
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.ask(0, |state| state.get(location, &options)).await
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let client = Client { shared: Arc::clone(&self.shared), owner: self.owner };
        let prefix = prefix.cloned().unwrap_or_default();
        let listing = async move {
            let found = client.ask(0, |state| {
                let below = state.objects.keys().filter(|path| path.prefix_matches(&prefix));
                Ok(below.filter_map(|path| state.meta(path)).map(Ok).collect::<Vec<_>>())
            });
            found.await.map(stream::iter)
        };
        stream::once(listing).try_flatten().boxed()
    }

    fn delete_stream(
        &self,
        _: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        unreachable!("nothing is deleted: services ignore its conditions")
    }

    async fn put_multipart_opts(
        &self,
        _: &Path,
        _: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        unreachable!("an object is made in one request")
    }

    async fn list_with_delimiter(&self, _: Option<&Path>) -> Result<ListResult> {
        unreachable!("there are no folders below")
    }

    async fn copy_opts(&self, _: &Path, _: &Path, _: CopyOptions) -> Result<()> {
        unreachable!("nothing is copied")
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}
