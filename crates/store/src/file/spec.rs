//! The specification of a file or block device: `file(direct,threads=32,size=1GiB):PATH`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::task::spawn_blocking;
use undercroft_text::Bytes;

use super::{FileOptions, FileStore};
use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::medium::wrap;
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, write_options, write_path};
use crate::store::{Answer, Store};

pub(crate) static KINDS: [Kind; 1] =
    [Kind { name: "file", form: "file:PATH", summary: "a file or block device", parse }];

/// A file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FileSpec {
    path: PathBuf,
    /// Whether to use direct I/O.
    direct: bool,
    /// Number of I/O threads; `None`: the default.
    threads: Option<usize>,
    /// Required size in bytes; a new file is created with it.
    size: Option<u64>,
}

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let path = words.place()?.path()?.into();
    let mut spec = FileSpec { path, direct: false, threads: None, size: None };
    for (name, value) in words.options() {
        match (name.text(), value) {
            ("direct", None) => spec.direct = true,
            ("threads", Some(value)) => {
                let most = FileOptions::THREADS_MAX as u64;
                spec.threads = Some(value.number(1, most, "1 to 1024 threads")? as usize);
            }
            ("size", Some(value)) => spec.size = Some(value.size()?),
            _ => return name.fail("direct, threads=N or size=SIZE"),
        }
    }
    Ok(StoreSpec::new(spec))
}

impl Description for FileSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let spec = self.clone();
        Box::pin(async move {
            let file = FileOptions {
                size: options.one_size(spec.size, &spec)?,
                read_only: options.read_only,
                must_exist: options.must_exist,
                direct: spec.direct,
                threads: spec.threads.unwrap_or(FileOptions::THREADS),
            };
            // By a thread of its own: a file system that hangs must not hold up the caller.
            let path = spec.path.clone();
            let opened = spawn_blocking(move || FileStore::open(&path, &file)).await;
            let store = opened.map_err(io::Error::other)??;
            if store.is_new() {
                options.made(&store);
            } else if !options.has_log
                && let Some(log) = store.mark().await?
            {
                let why = format!(
                    "a part of it is in its write log {log}: open it as log(...):{spec}, or give \
                     the log up with `undercroft flash accept-loss`"
                );
                return Err(wrap(spec.to_string(), invalid(&why)));
            }
            Ok(Arc::new(store) as _)
        })
    }

    fn file(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = self.direct.then(|| "direct".to_owned());
        let threads = self.threads.map(|threads| format!("threads={threads}"));
        let size = self.size.map(|size| format!("size={}", Bytes(size)));
        f.write_str("file")?;
        write_options(f, [direct, threads, size])?;
        f.write_str(":")?;
        write_path(f, &self.path)
    }
}
