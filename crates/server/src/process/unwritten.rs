//! The file that keeps the blocks that a store did not take before its server ended, if the
//! operator wants one (`unwritten = DIR`). The blocks are written to the store only on request.
//!
//! Old data must never replace new data. So a file is valid only until somebody could have changed
//! the volume: a server that opens the volume for writing first renames the file from
//! `NAME-TIME.unwritten` to `.outdated`. If the store consists of files, these must also be
//! unchanged, to the nanosecond of their last change. So the file is made when the server that
//! makes it begins no more write-outs, and has waited for those at the store. Changes of another
//! kind of store by anything but a server with this folder are not noticed.
//!
//! The format: the magic bytes; length of the head in bytes (u32; all numbers are little-endian);
//! the head as JSON; for each block its offset (u64), its length in bytes (u32) and its data; at
//! the end `u64::MAX` and the CRC-32 of everything before (u32).

use std::cell::Cell;
use std::fs;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use undercroft_nbd::ClientOptions;
use undercroft_store::{OnWarning, OpenOptions, StoreSpec};

use crate::geometry::BLOCK_BYTES_MAX;
use crate::replace::open_regular;
use crate::upstream;
use crate::volume::Volume;
use crate::volume::close::{LAST_ANSWERS, Unwritten, give_up};

const MAGIC: &[u8; 8] = b"UCKEPT\r\n";

/// Most bytes of a head.
const HEAD_BYTES_MAX: u32 = 1 << 20;

/// Extensions of the file's name: may be written to its store; may not any more; was written.
const GOOD: &str = "unwritten";
const OUTDATED: &str = "outdated";
const WRITTEN: &str = "written";

/// The head of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnwrittenHead {
    /// The volume of the blocks.
    pub volume: String,
    /// Its store, as in the configuration.
    pub store: String,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// Blocks in the file.
    pub blocks: u64,
    /// Why they were not written.
    pub why: String,
    /// The files that the store consists of, at the time of writing.
    files: Vec<FileMark>,
}

/// Properties that show whether a file has been changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct FileMark {
    path: PathBuf,
    device: u64,
    inode: u64,
    bytes: u64,
    changed_s: i64,
    changed_ns: i64,
}

impl FileMark {
    /// Whether both are of one file, whatever it was called.
    fn is_of(&self, other: &FileMark) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Whether both marks have the same properties, whatever the path.
    fn is_same_as(&self, other: &FileMark) -> bool {
        FileMark { path: other.path.clone(), ..self.clone() } == *other
    }
}

/// A block that was not written.
struct Kept {
    offset: u64,
    data: Bytes,
}

/// Why a file of unwritten blocks cannot be made, read, or written to its store.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct UnwrittenError {
    path: PathBuf,
    what: String,
}

fn failed(path: &Path, what: impl ToString) -> UnwrittenError {
    UnwrittenError { path: path.to_owned(), what: what.to_string() }
}

/// Writes the blocks that a store did not take to a new file in `folder`, when no more go there
/// ([`write_out_no_more`](crate::volume::close::write_out_no_more)). Returns its path.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn keep(
    folder: &Path,
    volume: &Volume,
    unwritten: &Unwritten,
) -> Result<PathBuf, UnwrittenError> {
    let blocks = unwritten.blocks.iter().flat_map(Clone::clone);
    let kept: Vec<Kept> = blocks
        .filter_map(|block| {
            let data = volume.shards.of(block).blocks.content_of(block)?;
            Some(Kept { offset: block * unwritten.block_bytes, data })
        })
        .collect();
    let (name, store) = (&volume.config().name, &volume.config().store);
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let path = folder.join(format!("{name}-{}.{GOOD}", time.as_millis()));
    let head = UnwrittenHead {
        volume: name.clone(),
        store: store.to_string(),
        volume_bytes: volume.size(),
        blocks: kept.len() as u64,
        why: unwritten.why.to_string(),
        files: file_marks(store),
    };
    save(&path, &head, &kept).map_err(|error| failed(&path, error))?;
    Ok(path)
}

/// A volume is opened for writing: renames its kept files, which are outdated from now on.
pub(crate) fn outdate(folder: &Path, volume: &str, store: &StoreSpec) {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    for path in files.filter(|path| path.extension().is_some_and(|end| end == GOOD)) {
        let head = match open_regular(&path).and_then(|file| read_head(&mut BufReader::new(file))) {
            Ok(head) => head,
            Err(error) => {
                tracing::warn!("{}: {error}", path.display());
                continue;
            }
        };
        if head.volume != volume && head.store != store.to_string() {
            continue;
        }
        let outdated = path.with_extension(OUTDATED);
        match fs::rename(&path, &outdated).and_then(|()| sync_folder(folder)) {
            Ok(()) => tracing::warn!(
                volume,
                "{} blocks that an earlier server could not write are kept in {}; the volume is \
                 opened for writing now, so they can no longer be written to it",
                head.blocks,
                outdated.display()
            ),
            Err(error) => tracing::error!("{}: {error}", path.display()),
        }
    }
}

/// The content of a file of unwritten blocks: its head, and each block's offset and length in
/// bytes.
///
/// # Errors
/// It is another kind of file, or damaged.
pub fn show_unwritten(path: &Path) -> Result<(UnwrittenHead, Vec<(u64, usize)>), UnwrittenError> {
    let (head, kept) = load(path).map_err(|error| failed(path, error))?;
    let blocks = kept.iter().map(|kept| (kept.offset, kept.data.len())).collect();
    Ok((head, blocks))
}

/// Writes the blocks of a file to their store, or to `store` if that is its new place, and makes
/// them durable. Then the file is renamed to `.written`. Waits for the store until `end`, and tells
/// `on_warning` why it is slow, if it says so.
///
/// # Errors
/// The file is damaged; the volume was opened for writing since; or the store refuses the blocks,
/// or has not taken them at the `end`. In the last two cases it may be tried again.
pub async fn write_unwritten(
    path: &Path,
    store: Option<StoreSpec>,
    end: impl Future<Output = ()>,
    on_warning: OnWarning,
) -> Result<UnwrittenHead, UnwrittenError> {
    let failed = |what: String| failed(path, what);
    if path.extension().is_none_or(|end| end != GOOD) {
        return Err(failed(format!(
            "expected a file *.{GOOD}; one that is called .{OUTDATED} is older than what may have \
             been written to the volume since, one that is called .{WRITTEN} was written"
        )));
    }
    let (mut head, kept) = load(path).map_err(|error| failed(error.to_string()))?;
    let spec = match store {
        Some(spec) => spec,
        None => head.store.parse::<StoreSpec>().map_err(|error| failed(error.to_string()))?,
    };
    // Before opening the store, since that may count as a change.
    let found = file_marks(&spec);
    let is_same = |then: &FileMark| found.iter().any(|now| now.is_same_as(then));
    if let Some(changed) = head.files.iter().find(|mark| !is_same(mark)) {
        return Err(failed(format!(
            "{} was opened for writing, or changed, since these blocks were kept, which are older: \
             nothing is written",
            changed.path.display()
        )));
    }
    let options = OpenOptions {
        must_exist: true,
        upstream: Some(upstream::upstream(ClientOptions::default(), Duration::ZERO, None)),
        on_warning: Some(Arc::clone(&on_warning)),
        ..OpenOptions::default()
    };
    let mut end = pin!(end);
    let store = tokio::select! {
        store = spec.open(options) => store.map_err(|error| failed(error.to_string()))?,
        () = &mut end => return Err(failed("ended before the store was open".to_owned())),
    };
    if store.facts().size < head.volume_bytes {
        let (size, before) = (store.facts().size, head.volume_bytes);
        return Err(failed(format!("the store has {size} bytes, the volume had {before}")));
    }
    // A server that opens the volume meanwhile renames the file.
    let is_outdated = || !path.exists();
    let is_over = Cell::new(false);
    let mut write = pin!(async {
        let mut result = Ok(());
        for one in &kept {
            if is_over.get() || is_outdated() {
                return result.and(Err(ErrorKind::Interrupted.into()));
            }
            let written = store.write(one.offset, vec![one.data.clone()], false).await;
            if let (Ok(()), Err(error)) = (&result, &written) {
                on_warning(&format!("{error}; the other blocks are tried"));
            }
            result = result.and(written);
        }
        let flushed = store.flush().await;
        result.and(flushed)
    });
    let written = tokio::select! {
        written = &mut write => written,
        () = end => {
            is_over.set(true);
            // What is under way would change the files after the marks below.
            timeout(LAST_ANSWERS, write).await.unwrap_or_else(|late| Err(late.into()))
        }
    };
    if written.is_ok() {
        // Durable. A write log may take long to get empty.
        let folder = path.parent().unwrap_or(Path::new("."));
        let renamed = fs::rename(path, path.with_extension(WRITTEN));
        renamed.and_then(|()| sync_folder(folder)).map_err(|error| failed(error.to_string()))?;
    }
    // After an error a write log would go on with its store.
    let given_up = match written.is_ok() || store.backlog().is_some() {
        true => give_up(&*store).await,
        false => Ok(()),
    };
    if store.backlog().is_some_and(|log| log.age.is_some()) {
        on_warning("the store needs its write log from now on: it is not empty");
    } else if let Err(error) = given_up {
        on_warning(&format!("{spec}: cannot be given up: {error}"));
    }
    let Err(error) = written else { return Ok(head) };
    if is_outdated() {
        return Err(failed(format!("{error}; it was renamed meanwhile, so nothing is kept")));
    }
    // This attempt changed the files, by writing only these blocks.
    let changed = file_marks(&spec);
    for mark in &mut head.files {
        let now = changed.iter().find(|now| now.is_of(mark));
        *mark = now.unwrap_or(mark).clone();
    }
    let kept = save(path, &head, &kept);
    let kept = kept.map_err(|error| failed(format!("cannot be kept for another try: {error}")));
    Err(kept.err().unwrap_or_else(|| failed(error.to_string())))
}

/// The present marks of the regular files that a store consists of.
fn file_marks(store: &StoreSpec) -> Vec<FileMark> {
    let mark = |path: &Path| {
        let found = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(FileMark {
            path: path.to_owned(),
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            changed_s: found.mtime(),
            changed_ns: found.mtime_nsec(),
        })
    };
    store.files().into_iter().filter_map(mark).collect()
}

/// Makes a rename in the folder durable.
fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Writes the file durably, under another name first, so that it is never incomplete.
fn save(path: &Path, head: &UnwrittenHead, kept: &[Kept]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let part = tempfile::NamedTempFile::new_in(folder)?;
    write(part.as_file(), head, kept)?;
    part.as_file().sync_all()?;
    part.persist(path)?;
    sync_folder(folder)
}

fn write(file: &fs::File, head: &UnwrittenHead, kept: &[Kept]) -> io::Result<()> {
    let mut out = Summed { inner: BufWriter::new(file), sum: Default::default() };
    out.write_all(MAGIC)?;
    let head = serde_json::to_vec(head)?;
    out.write_all(&(head.len() as u32).to_le_bytes())?;
    out.write_all(&head)?;
    for Kept { offset, data } in kept {
        out.write_all(&offset.to_le_bytes())?;
        out.write_all(&(data.len() as u32).to_le_bytes())?;
        out.write_all(data)?;
    }
    out.write_all(&u64::MAX.to_le_bytes())?;
    let sum = out.sum.finalize();
    out.inner.write_all(&sum.to_le_bytes())?;
    out.inner.flush()
}

fn load(path: &Path) -> io::Result<(UnwrittenHead, Vec<Kept>)> {
    let file = BufReader::new(open_regular(path)?);
    let mut file = Summed { inner: file, sum: Default::default() };
    let head = read_head(&mut file)?;
    let mut kept = Vec::new();
    loop {
        let offset = u64::from_le_bytes(array(&mut file)?);
        if offset == u64::MAX {
            break;
        }
        let length = u32::from_le_bytes(array(&mut file)?) as usize;
        let end = offset.checked_add(length as u64);
        if length > BLOCK_BYTES_MAX || end.is_none_or(|end| end > head.volume_bytes) {
            return Err(damaged("a block that is not within the volume"));
        }
        let mut data = vec![0; length];
        file.read_exact(&mut data)?;
        kept.push(Kept { offset, data: data.into() });
    }
    let sum = file.sum.clone().finalize();
    if u32::from_le_bytes(array(&mut file.inner)?) != sum || kept.len() as u64 != head.blocks {
        return Err(damaged("the checksum does not match"));
    }
    Ok((head, kept))
}

fn read_head(file: &mut impl Read) -> io::Result<UnwrittenHead> {
    if array::<8>(file)? != *MAGIC {
        return Err(damaged("this is no file of unwritten blocks"));
    }
    let length = u32::from_le_bytes(array(file)?);
    if length > HEAD_BYTES_MAX {
        return Err(damaged("its head is too long"));
    }
    let mut head = vec![0; length as usize];
    file.read_exact(&mut head)?;
    serde_json::from_slice(&head).map_err(|error| damaged(&error.to_string()))
}

fn array<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{what}; it is damaged, or something else"))
}

/// Computes the CRC-32 of what passes.
struct Summed<T> {
    inner: T,
    sum: crc32fast::Hasher,
}

impl<T: Write> Write for Summed<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Summed<T> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(bytes)?;
        self.sum.update(&bytes[..count]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store, and a file with a block that it has not taken.
    fn kept(folder: &Path) -> (StoreSpec, UnwrittenHead, PathBuf) {
        let image = folder.join("demo.img");
        fs::write(&image, vec![0; 16384]).unwrap();
        let store: StoreSpec = format!("file:{}", image.display()).parse().unwrap();
        let head = UnwrittenHead {
            volume: "demo".to_owned(),
            store: store.to_string(),
            volume_bytes: 16384,
            blocks: 1,
            why: "on purpose".to_owned(),
            files: file_marks(&store),
        };
        let path = folder.join("demo-1.unwritten");
        let blocks = vec![Kept { offset: 4096, data: vec![7; 4096].into() }];
        save(&path, &head, &blocks).unwrap();
        (store, head, path)
    }

    /// Ends soon if it is to a store that does not take them.
    async fn write_to(path: &Path, bad: Option<StoreSpec>) -> Result<UnwrittenHead, String> {
        let end = tokio::time::sleep(Duration::from_secs(if bad.is_some() { 1 } else { 60 }));
        let written = write_unwritten(path, bad, end, Arc::new(|_: &str| {})).await;
        written.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn kept_blocks_go_to_their_store_once() {
        let folder = tempfile::tempdir().unwrap();
        let (_, head, path) = kept(folder.path());
        assert_eq!(show_unwritten(&path).unwrap(), (head, vec![(4096, 4096)]));
        write_to(&path, None).await.unwrap();
        let image = fs::read(folder.path().join("demo.img")).unwrap();
        assert!(image[4096..8192].iter().all(|&byte| byte == 7) && image[0] == 0);
        let again = write_to(&path.with_extension(WRITTEN), None).await;
        assert!(again.is_err() && !path.exists());
    }

    #[tokio::test]
    async fn an_attempt_that_ends_early_may_be_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, path) = kept(folder.path());
        for fails in ["fail(write,stall)", "fail(write)", "fail(flush)"] {
            let bad = format!("{fails}:{store}").parse().unwrap();
            write_to(&path, Some(bad)).await.unwrap_err();
            assert!(path.exists(), "{fails}");
        }
        write_to(&path, None).await.unwrap();
        let image = fs::read(folder.path().join("demo.img")).unwrap();
        assert!(image[4096..8192].iter().all(|&byte| byte == 7));
    }

    /// A server opens the volume while the store does not answer an attempt.
    #[tokio::test]
    async fn an_attempt_does_not_bring_back_what_is_outdated() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, path) = kept(folder.path());
        let bad = format!("fail(write,stall):{store}").parse().unwrap();
        let opened = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            outdate(folder.path(), "demo", &store);
        };
        let (refused, ()) = tokio::join!(write_to(&path, Some(bad)), opened);
        assert!(refused.unwrap_err().contains("renamed meanwhile"));
        assert!(!path.exists() && path.with_extension(OUTDATED).exists());
    }

    #[tokio::test]
    async fn old_blocks_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _, path) = kept(folder.path());
        // Somebody else wrote to the file.
        fs::write(folder.path().join("demo.img"), vec![1; 16384]).unwrap();
        let refused = write_to(&path, None).await.unwrap_err();
        assert!(refused.contains("or changed, since"), "{refused}");
        // A server opens the volume.
        outdate(folder.path(), "another", &"mem(1MiB):".parse().unwrap());
        assert!(path.exists());
        outdate(folder.path(), "demo", &store);
        assert!(!path.exists());
        write_to(&path.with_extension(OUTDATED), None).await.unwrap_err();
        let image = fs::read(folder.path().join("demo.img")).unwrap();
        assert!(image.iter().all(|&byte| byte == 1));
    }

    #[test]
    fn damage_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (.., path) = kept(folder.path());
        let whole = fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(7) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).unwrap();
            assert!(load(&path).is_err(), "byte {at}");
            fs::write(&path, &whole[..at]).unwrap();
            assert!(load(&path).is_err(), "cut at {at}");
        }
    }
}
