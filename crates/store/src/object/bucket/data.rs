//! The data objects of a volume: each is read, written and emptied here, so that no late request
//! can replace what was answered later.
//!
//! A request may be executed long after its caller has given it up, or twice, since the client
//! repeats it: its connection was lost, or this process was paused while another server took the
//! lease. Therefore:
//!
//! 1. An object is replaced only on the condition that it still has the version that was read, or
//!    written, before; after that replacement no other request with this condition succeeds.
//! 2. Each version ends in a stamp (`stamp.rs`), so that no version comes back. A refusal shows by
//!    the stamp whether the same request has succeeded before, and its answer was lost.
//! 3. An object is created empty, with its stamp alone, and then replaced. So a late request may
//!    create only what reads as zeroes, as a missing object does.
//! 4. Nothing is deleted: an object that is no longer needed becomes an empty one.
//! 5. Between learning a version and a change on its condition it is checked that the lease is
//!    held. So what the next holder of the lease wrote is never taken for an old version.
//!
//! If an object has a version that neither this store wrote, nor was there when it was first read,
//! another server changes the volume, or did late what it was asked before this one began. Then no
//! change is made any more: what was answered and what is there may not fit together.
//!
//! Where the service makes no changes on condition, objects are just overwritten.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error, GetOptions, GetRange, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::time::{Instant, sleep};

use super::failure::{existing, failure, is_away, is_missing, is_unanswered};
use super::owner::Owner;
use super::place::{Place, Tag};
use super::stamp::{STAMP_BYTES, Stamp, Stamps};
use super::{CONCURRENT, Piece};
use crate::medium::pieces_bytes;
use crate::open::OnWarning;

/// Number of locks that the objects share.
const LOCKS: u64 = 1024;

/// Most versions that are known for each lock: 262,144 in all, at about 100 bytes each. One that is
/// forgotten is read again.
const KNOWN: usize = 256;

/// How long a change without an answer is repeated, as the client does for others.
const PATIENCE: Duration = Duration::from_secs(180);
/// The first and the longest pause before it is repeated.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(15));

/// The data objects of a volume.
pub(super) struct Data {
    pub(super) place: Place,
    pub(super) object_bytes: u64,
    pub(super) owner: Owner,
    stamps: Stamps,
    /// Each is held while an object is changed, so that rewriting it loses no other change.
    known: Vec<Mutex<Known>>,
    places: Semaphore,
    /// Whether the last object of which nothing was known was missing.
    expects_missing: AtomicBool,
    /// Why no change is made any more; is told as well.
    stopped: OnceLock<String>,
    warn: OnWarning,
}

/// The last versions that were seen of the objects that share a lock.
type Known = HashMap<u64, Version>;

#[derive(Clone, Debug)]
struct Version {
    tag: Tag,
    /// Whether it is a stamp alone.
    is_empty: bool,
    /// Whether this store wrote it. If not, a late request may have it as its condition.
    is_own: bool,
}

/// An object, as a change found it.
struct Old {
    /// Its version, if the service tells versions and has the object.
    tag: Option<Tag>,
    exists: bool,
    /// `None`: zeroes.
    data: Option<Bytes>,
}

/// An object's version and how it ends, which is read only if they are in doubt.
struct Seen {
    version: Version,
    /// `None`: an older program wrote it.
    stamp: Option<Stamp>,
}

/// How a replacement of an object ended.
enum Put {
    Done,
    /// The object has another version than expected, and that is explained: it must be read again.
    Moved,
}

impl Data {
    pub(super) fn new(place: Place, object_bytes: u64, owner: Owner, warn: OnWarning) -> Data {
        Data {
            place,
            object_bytes,
            owner,
            stamps: Stamps::new(),
            known: (0..LOCKS).map(|_| Mutex::default()).collect(),
            places: Semaphore::new(CONCURRENT),
            expects_missing: AtomicBool::new(false),
            stopped: OnceLock::new(),
            warn,
        }
    }

    /// Checks that changes are made.
    ///
    /// # Errors
    /// Somebody else changed the volume, or the lease is not held.
    pub(super) fn check(&self) -> io::Result<()> {
        match self.stopped.get() {
            Some(why) => Err(io::Error::other(why.clone())),
            None => self.owner.check(),
        }
    }

    /// Why no change is made any more, for people; `None` if changes are made.
    pub(super) fn stopped(&self) -> Option<&str> {
        self.stopped.get().map(String::as_str)
    }

    /// A part of an object; `None` for zeroes.
    pub(super) async fn read(&self, object: u64, range: Range<u64>) -> io::Result<Option<Bytes>> {
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        let is_emptied = |known: MutexGuard<'_, Known>| is_emptied_here(&known, object);
        if self.known(object).try_lock().is_ok_and(is_emptied) {
            return Ok(None);
        }
        let (start, length) = (range.start, range.end - range.start);
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() };
        let path = self.place.object(object);
        let found = match self.place.objects.get_opts(&path, options).await {
            // No range begins behind the end of an empty object.
            Err(error) if start >= STAMP_BYTES && !is_missing(&error) && !is_away(&error) => {
                match self.head(object).await? {
                    Some(version) if version.is_empty => {
                        self.notice(object, Some(version)).await?;
                        return Ok(None);
                    }
                    _ => return Err(failure(error)),
                }
            }
            found => existing(found)?,
        };
        let Some(found) = found else {
            self.notice(object, None).await?;
            return Ok(None);
        };
        let is_empty = self.is_empty(&path, found.meta.size)?;
        let tag = self.place.tag(found.meta.e_tag.clone(), found.meta.version.clone());
        let data = if is_empty { None } else { Some(found.bytes().await.map_err(failure)?) };
        if data.as_ref().is_some_and(|data| data.len() as u64 != length) {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("{path} is cut off")));
        }
        if let Some(tag) = tag {
            self.notice(object, Some(Version { tag, is_empty, is_own: false })).await?;
        }
        Ok(data)
    }

    /// Writes the part of an object that a piece covers.
    pub(super) async fn write(&self, piece: Piece, data: Vec<Bytes>) -> io::Result<()> {
        let mut known = self.known(piece.object).lock().await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        loop {
            let (tag, content) = if piece.length == self.object_bytes {
                (self.version(&mut known, piece.object).await?, data.clone())
            } else {
                let old = self.whole(&mut known, piece.object).await?;
                let mut content = self.content(old.data)?;
                let mut at = piece.start as usize;
                for part in &data {
                    content[at..at + part.len()].copy_from_slice(part);
                    at += part.len();
                }
                (old.tag, vec![content.into()])
            };
            if let Put::Done = self.put(&mut known, piece.object, tag, content).await? {
                return Ok(());
            }
        }
    }

    /// Zeroes the part of an object that a piece covers, which is the whole object only with
    /// `keep_allocated`.
    pub(super) async fn zero(&self, piece: Piece, keep_allocated: bool) -> io::Result<()> {
        let mut known = self.known(piece.object).lock().await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        if is_emptied_here(&known, piece.object) && !keep_allocated {
            return Ok(());
        }
        loop {
            let old = if piece.length == self.object_bytes {
                let tag = self.version(&mut known, piece.object).await?;
                Old { tag, exists: true, data: None }
            } else {
                self.whole(&mut known, piece.object).await?
            };
            if !old.exists && !keep_allocated {
                return Ok(());
            }
            // An empty one is replaced as well: a late request may have it as its condition.
            let content = if old.data.is_none() && !keep_allocated {
                Vec::new()
            } else {
                let mut content = self.content(old.data)?;
                content[piece.start as usize..(piece.start + piece.length) as usize].fill(0);
                vec![content.into()]
            };
            if let Put::Done = self.put(&mut known, piece.object, old.tag, content).await? {
                return Ok(());
            }
        }
    }

    /// Empties an object that exists.
    pub(super) async fn empty(&self, object: u64) -> io::Result<()> {
        let mut known = self.known(object).lock().await;
        let _place = self.places.acquire().await.map_err(io::Error::other)?;
        if is_emptied_here(&known, object) {
            return Ok(());
        }
        loop {
            let tag = match known.get(&object) {
                Some(version) => Some(version.tag.clone()),
                None if self.is_conditional() => self.head(object).await?.map(|found| found.tag),
                None => None,
            };
            if let Put::Done = self.put(&mut known, object, tag, Vec::new()).await? {
                return Ok(());
            }
        }
    }

    /// The existing objects of a range, in order, and whether each is empty.
    pub(super) async fn list(&self, objects: Range<u64>) -> io::Result<Vec<(u64, bool)>> {
        let listed = self.place.list(objects).await?;
        Ok(listed.into_iter().map(|(object, bytes)| (object, bytes == STAMP_BYTES)).collect())
    }

    fn is_conditional(&self) -> bool {
        self.owner.is_conditional()
    }

    fn known(&self, object: u64) -> &Mutex<Known> {
        &self.known[(object % LOCKS) as usize]
    }

    fn learn(&self, known: &mut Known, object: u64, version: Version) {
        if known.len() >= KNOWN && !known.contains_key(&object) {
            if let Some(any) = known.keys().next().copied() {
                known.remove(&any);
            }
        }
        known.insert(object, version);
    }

    /// The version of an object that is replaced as a whole.
    async fn version(&self, known: &mut Known, object: u64) -> io::Result<Option<Tag>> {
        if !self.is_conditional() {
            return Ok(None);
        }
        if !known.contains_key(&object) && self.expects_missing.load(Ordering::Relaxed) {
            // Made at once, without a look whether it is there.
            self.put(known, object, None, Vec::new()).await?;
        }
        if let Some(version) = known.get(&object) {
            return Ok(Some(version.tag.clone()));
        }
        let found = self.head(object).await?;
        self.expects_missing.store(found.is_none(), Ordering::Relaxed);
        Ok(found.map(|version| version.tag))
    }

    /// An object as a whole, for changing a part of it.
    async fn whole(&self, known: &mut Known, object: u64) -> io::Result<Old> {
        let before = known.get(&object).cloned();
        if let Some(Version { tag, is_empty: true, .. }) = before {
            return Ok(Old { tag: Some(tag), exists: true, data: None });
        }
        let path = self.place.object(object);
        let Some(found) = existing(self.place.objects.get(&path).await)? else {
            return match before {
                None => Ok(Old { tag: None, exists: false, data: None }),
                Some(_) => Err(self.stop(&path, None)),
            };
        };
        let size = found.meta.size;
        let is_empty = self.is_empty(&path, size)?;
        let tag = self.tag(&path, found.meta.e_tag.clone(), found.meta.version.clone())?;
        let mut data = found.bytes().await.map_err(failure)?;
        if data.len() as u64 != size {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, format!("{path} is cut off")));
        }
        let stamp = self.stamp(&path, &data)?;
        if before.is_some_and(|before| Some(before.tag) != tag) && !self.is_mine(stamp) {
            return Err(self.stop(&path, stamp));
        }
        data.truncate(self.object_bytes as usize);
        Ok(Old { tag, exists: true, data: (!is_empty).then_some(data) })
    }

    /// Replaces an object of the version `tag`; without that, creates it. With conditions nothing
    /// else is replaced. The lock of the object is held.
    async fn put(
        &self,
        known: &mut Known,
        object: u64,
        tag: Option<Tag>,
        data: Vec<Bytes>,
    ) -> io::Result<Put> {
        let tag = match tag {
            None if self.is_conditional() && !data.is_empty() => {
                let created = Box::pin(self.put(known, object, None, Vec::new())).await?;
                match (created, known.get(&object)) {
                    (Put::Done, Some(version)) => Some(version.tag.clone()),
                    _ => return Ok(Put::Moved),
                }
            }
            tag => tag,
        };
        // The version was learned before this: under the lease, if that is held now.
        self.check()?;
        // What is there is not known until the answer comes, and unknown if none does.
        known.remove(&object);
        let (stamp, is_empty) = (self.stamps.next(), data.is_empty());
        debug_assert!(is_empty || pieces_bytes(&data) == self.object_bytes);
        let payload: PutPayload = data.into_iter().chain([stamp.bytes()]).collect();
        let mode = match &tag {
            _ if !self.is_conditional() => PutMode::Overwrite,
            Some(tag) => tag.is_there(),
            None => PutMode::Create,
        };
        let path = self.place.object(object);
        let (began, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let options = PutOptions { mode: mode.clone(), ..PutOptions::default() };
            let error = match self.place.objects.put_opts(&path, payload.clone(), options).await {
                Ok(put) => {
                    if let Some(tag) = self.tag(&path, put.e_tag, put.version)? {
                        self.learn(known, object, Version { tag, is_empty, is_own: true });
                    }
                    return Ok(Put::Done);
                }
                Err(error @ (Error::AlreadyExists { .. } | Error::Precondition { .. })) => {
                    let now = self.look(object).await?;
                    let found = now.as_ref().and_then(|now| now.stamp);
                    match (now, &tag) {
                        (Some(now), _) if found == Some(stamp) => {
                            self.learn(known, object, now.version);
                            return Ok(Put::Done);
                        }
                        // A write of this store that was given up was executed after all; or there
                        // was something to replace, and nothing to create.
                        (Some(_), _) if self.is_mine(found) => return Ok(Put::Moved),
                        (Some(_), None) => return Ok(Put::Moved),
                        // Refused for the moment, since others ask the same.
                        (Some(now), Some(tag)) if now.version.tag == *tag => error,
                        (None, None) => error,
                        _ => return Err(self.stop(&path, found)),
                    }
                }
                Err(error) if is_unanswered(&error) => error,
                Err(error) => return Err(failure(error)),
            };
            if began.elapsed() + pause > PATIENCE {
                return Err(failure(error));
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSES.1);
        }
    }

    /// Compares what a read found, `None` for nothing, with what is known of the object.
    ///
    /// # Errors
    /// An object that was there is missing: zeroes must not stand in for it.
    async fn notice(&self, object: u64, found: Option<Version>) -> io::Result<()> {
        if !self.is_conditional() || self.stopped.get().is_some() && found.is_some() {
            return Ok(());
        }
        // While it is changed, a read may find either version.
        let Ok(mut known) = self.known(object).try_lock() else { return Ok(()) };
        let before = match (known.get(&object), found) {
            (None, None) => return Ok(()),
            (None, Some(found)) => {
                self.learn(&mut known, object, found);
                return Ok(());
            }
            (Some(before), Some(found)) if before.tag == found.tag => return Ok(()),
            (Some(before), _) => before.tag.clone(),
        };
        // It may have been changed since it was read.
        match self.look(object).await? {
            Some(now) if now.version.tag == before => {}
            Some(now) if self.is_mine(now.stamp) => self.learn(&mut known, object, now.version),
            None => return Err(self.stop(&self.place.object(object), None)),
            Some(now) => drop(self.stop(&self.place.object(object), now.stamp)),
        }
        Ok(())
    }

    /// The version of an object; `None` if it is missing.
    async fn head(&self, object: u64) -> io::Result<Option<Version>> {
        let path = self.place.object(object);
        let Some(meta) = self.place.head(&path).await? else { return Ok(None) };
        let is_empty = self.is_empty(&path, meta.size)?;
        let tag = self.place.tag(meta.e_tag, meta.version).ok_or_else(|| untold(&path))?;
        Ok(Some(Version { tag, is_empty, is_own: false }))
    }

    /// The version of an object, and how it ends; `None` if it is missing.
    async fn look(&self, object: u64) -> io::Result<Option<Seen>> {
        let path = self.place.object(object);
        loop {
            let Some(size) = self.place.head(&path).await?.map(|meta| meta.size) else {
                return Ok(None);
            };
            self.is_empty(&path, size)?;
            let range = Some(GetRange::Bounded(size - STAMP_BYTES..size));
            let options = GetOptions { range, ..GetOptions::default() };
            match existing(self.place.objects.get_opts(&path, options).await)? {
                Some(found) if found.meta.size == size => {
                    let is_empty = size == STAMP_BYTES;
                    let tag = self.place.tag(found.meta.e_tag.clone(), found.meta.version.clone());
                    let tag = tag.ok_or_else(|| untold(&path))?;
                    let end = found.bytes().await.map_err(failure)?;
                    let stamp = Stamp::at_the_end(&end).filter(|_| size != self.object_bytes);
                    let version = Version { tag, is_empty, is_own: self.is_mine(stamp) };
                    return Ok(Some(Seen { version, stamp }));
                }
                // It was replaced in between.
                _ => {}
            }
        }
    }

    /// Whether an object of this size has no data.
    fn is_empty(&self, path: &Path, size: u64) -> io::Result<bool> {
        let object = self.object_bytes;
        if size == object || size == object + STAMP_BYTES {
            return Ok(false);
        }
        if size == STAMP_BYTES {
            return Ok(true);
        }
        let why = format!("{path} has {size} bytes and must have {object} and {STAMP_BYTES}");
        Err(io::Error::new(ErrorKind::InvalidData, why))
    }

    /// The stamp of an object, from all of its bytes; `None` if an older program wrote it.
    fn stamp(&self, path: &Path, content: &[u8]) -> io::Result<Option<Stamp>> {
        if content.len() as u64 == self.object_bytes {
            return Ok(None);
        }
        let stamp = Stamp::at_the_end(content);
        let damaged = || format!("{path} does not end in a stamp");
        stamp.map(Some).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, damaged()))
    }

    fn is_mine(&self, stamp: Option<Stamp>) -> bool {
        stamp.is_some_and(|stamp| self.stamps.made(stamp))
    }

    /// The version of an object, which only conditions need.
    fn tag(
        &self,
        path: &Path,
        e_tag: Option<String>,
        version: Option<String>,
    ) -> io::Result<Option<Tag>> {
        if !self.is_conditional() {
            return Ok(None);
        }
        self.place.tag(e_tag, version).map(Some).ok_or_else(|| untold(path))
    }

    /// An object's bytes for changing; zeroes if it has none. Object sizes fit in memory, since
    /// the description was checked.
    fn content(&self, old: Option<Bytes>) -> io::Result<Vec<u8>> {
        if let Some(old) = old {
            return Ok(old.into());
        }
        let mut content = Vec::new();
        content.try_reserve_exact(self.object_bytes as usize)?;
        content.resize(self.object_bytes as usize, 0);
        Ok(content)
    }

    /// Ends all changes of the volume, since somebody else made the version of an object with this
    /// stamp. Returns why.
    fn stop(&self, path: &Path, stamp: Option<Stamp>) -> io::Error {
        let how = match stamp {
            Some(_) => "was replaced by another server",
            None => "was replaced, or deleted, by another program",
        };
        let why = format!(
            "{path} {how} while this one serves the volume, which makes no changes any more: end \
             the other, and start this one again"
        );
        if self.stopped.set(why.clone()).is_ok() {
            (self.warn)(&why);
        }
        io::Error::other(why)
    }
}

/// Whether this store made an object empty, and nobody else can have changed it since.
fn is_emptied_here(known: &Known, object: u64) -> bool {
    known.get(&object).is_some_and(|version| version.is_empty && version.is_own)
}

fn untold(path: &Path) -> io::Error {
    io::Error::other(format!("the service does not tell the version of {path}"))
}

#[cfg(test)]
mod tests;
