//! The specification of a store with a write log: `log(PATH,size=1GiB):STORE`.

use std::fmt;
use std::fs::Permissions;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use undercroft_text::Bytes;

use super::format::PAGE;
use super::{LOG_MIN_BYTES, LogOptions, LogStore};
use crate::file::{FileOptions, FileStore};
use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::medium::wrap;
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, write_path};
use crate::store::{Answer, Store, Zeroing};

pub(crate) static KINDS: [Kind; 1] = [Kind {
    name: "log",
    form: "log(PATH,size=SIZE):STORE",
    summary: "a store with a write log on fast storage before it",
    parse,
}];

/// A store with a write log in a file, or on a device.
#[derive(Debug)]
struct LogSpec {
    path: PathBuf,
    size: u64,
    unmarked: bool,
    inner: StoreSpec,
}

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let rest = words.place()?;
    let expected = "a path and a size, as in log(/nvme/db.log,size=1GiB):STORE";
    let Some(inside) = words.inside else { return rest.fail(expected) };
    let list = inside.list(',');
    let Some((path, options)) = list.split_first() else { return inside.fail(expected) };
    let (mut size, mut unmarked) = (None, false);
    for option in options {
        match option.split("=") {
            (name, Some(value)) if name.text() == "size" => size = Some(value.size()?),
            (name, None) if name.text() == "unmarked" => unmarked = true,
            (name, _) => return name.fail("size=SIZE or unmarked"),
        }
    }
    let Some(size) = size else { return inside.end().fail("`,size=` and a size") };
    if size < LOG_MIN_BYTES {
        return inside.fail(&format!("at least {} for a log", Bytes(LOG_MIN_BYTES)));
    }
    let path = path.path()?.into();
    Ok(StoreSpec::new(LogSpec { path, size, unmarked, inner: words.store(rest)? }))
}

impl Description for LogSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let inner = OpenOptions { has_log: !self.unmarked, ..options.clone() };
        let (inner, path) = (self.inner.open(inner), self.path.clone());
        let OpenOptions { read_only, on_made, on_warning, .. } = options;
        // Without a mark nothing tells that a log was there before.
        let must_exist = read_only || self.unmarked && options.must_exist;
        let log = LogOptions {
            bytes: self.size,
            life: RandomState::new().hash_one(0),
            unmarked: self.unmarked,
            name: path.display().to_string(),
            on_warning,
        };
        Box::pin(async move {
            let inner = inner.await?;
            let mark = inner.mark().await?;
            let name = inner.facts().name;
            let named = {
                let log = format!("log {}", path.display());
                move |error| wrap(log, error)
            };
            // By a thread of its own: a file system that hangs must not hold up the caller.
            let (place, bytes, of_thread) = (path.clone(), log.bytes, named.clone());
            let opened = spawn_blocking(move || {
                let is_new = !place.exists();
                if let Some(mark) = mark.filter(|_| is_new) {
                    return Err(wrap(name, invalid(&format!("a part of it is in its log {mark}"))));
                }
                let medium = medium(&place, bytes, must_exist, read_only).map_err(of_thread)?;
                Ok((medium, is_new))
            });
            let (medium, is_new) = opened.await.map_err(io::Error::other)??;
            if is_new {
                on_made.iter().for_each(|tell| tell(medium.facts()));
                // A hole would find the file system full later.
                let how = Zeroing { keep_allocated: true, only_if_fast: false };
                if let Err(error) = medium.zero(0, log.bytes, how, false).await {
                    drop(std::fs::remove_file(&path));
                    return Err(named(error));
                }
            }
            Ok(Arc::new(LogStore::open(inner, Arc::new(medium), log).await?) as _)
        })
    }

    fn parts(&self) -> &[StoreSpec] {
        std::slice::from_ref(&self.inner)
    }
}

/// Opens the file or device of a log, or makes a file.
fn medium(path: &Path, size: u64, must_exist: bool, read_only: bool) -> io::Result<FileStore> {
    let size = (!path.exists()).then_some(size);
    let file = FileOptions { size, must_exist, read_only, ..FileOptions::default() };
    let opened = FileStore::open(path, &FileOptions { direct: true, ..file.clone() });
    if size.is_some() && opened.is_ok() {
        // It gets what files have that others may not read.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    let fits = |store: &FileStore| u64::from(store.facts().alignment) <= PAGE;
    match opened {
        Ok(store) if fits(&store) => return Ok(store),
        Ok(store) => drop(store),
        // No direct I/O there.
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
        Err(error) => return Err(error),
    }
    FileStore::open(path, &file)
}

impl fmt::Display for LogSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("log(")?;
        write_path(f, &self.path)?;
        write!(f, ",size={}{}", Bytes(self.size), if self.unmarked { ",unmarked" } else { "" })?;
        write!(f, "):{}", self.inner)
    }
}
