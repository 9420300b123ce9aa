//! What a store is to be, as text and as types: the syntax of `--volume NAME=STORE`. Nothing is
//! opened here.
//!
//! ```text
//! STORE  = NAME [ "(" OPTION { "," OPTION } ")" ] ":" PLACE
//!        | ("delay" | "fail") [ "(" ... ")" ] ":" STORE
//!        | "concat(" STORE { ";" STORE } ")"
//!        | "stripe(" SIZE ";" STORE { ";" STORE } ")"
//!
//! file:PATH  file(direct,threads=32,size=1GiB):PATH     a file or block device
//! mem:  mem(1GiB):                                      memory
//! s3://BUCKET/PREFIX  gs://...  az://...                an object store; s3(object=8MiB)://...
//! s3(lease=off)://BUCKET/PREFIX                        without what keeps a second server away
//! object-file:PATH  object-memory:                      the same, in a folder or in memory
//! nbd://HOST[:PORT]/EXPORT  nbd+unix:///EXPORT?socket=PATH  nbds://...  nbds+unix://...
//! delay(5ms):  delay(2ms..8ms,queue=4,seed=1):          a disk that takes its time
//! fail(read,n=3):  fail(write,p=0.01,seed=7,short=enospc):  fail(flush,every=2,stall=1s):
//! fail(write,at=1MiB..2MiB):                            a bad place
//! ```
//! Options stand in parentheses right after the name, so that a path may hold commas. Within
//! `concat` and `stripe` a path must have its parentheses in pairs and no semicolon.

mod nbd;
mod parse;
#[cfg(test)]
mod tests;
mod units;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::delay::Delay;
use crate::fail::{FailRule, FailWith, Failure, RequestKind, Trigger};

pub use nbd::{NbdAddress, NbdTransport};
use units::{Bytes, Time};

/// A store that can be opened; see the module's text for the syntax. `Display` writes it in a
/// form that parses to the same again, without options that are the default.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreSpec {
    /// A file or block device.
    File(FileSpec),
    /// Memory, of this many bytes.
    Memory(Option<u64>),
    /// Objects in an object store.
    Objects(ObjectSpec),
    /// Another NBD server's export.
    Upstream(NbdAddress),
    /// Stores one after another.
    Concat(Vec<StoreSpec>),
    /// Stores striped, with the bytes of a stripe.
    Stripe(u64, Vec<StoreSpec>),
    /// A delay before a store.
    Delay(Delay, Box<StoreSpec>),
    /// A rule of failures before a store.
    Fail(FailRule, Box<StoreSpec>),
}

/// A file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSpec {
    /// Where it is.
    pub path: PathBuf,
    /// With direct I/O.
    pub direct: bool,
    /// I/O threads, if not as usual.
    pub threads: Option<usize>,
    /// Bytes it must have, or is made with.
    pub size: Option<u64>,
}

/// A volume in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Where its objects are.
    pub place: ObjectPlace,
    /// Bytes of an object: a power of two. Of an existing volume: what it must have.
    pub object_bytes: Option<u64>,
    /// Bytes of the volume, which it must have or is made with.
    pub size: Option<u64>,
    /// A second server that would change it is kept away.
    pub lease: bool,
}

/// Where objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPlace {
    /// In a bucket of a service, below a prefix (without slashes at its ends; may be empty).
    Bucket(ObjectService, String, String),
    /// In a folder, for tests.
    Folder(PathBuf),
    /// In memory, for tests.
    Memory,
}

/// The services for objects. Where they are and how to sign in is in the environment, in the
/// variables that each service's own tools use (`AWS_ENDPOINT`, `AWS_ACCESS_KEY_ID`, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectService {
    /// Amazon S3 and what speaks its protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage; the bucket is a container.
    Az,
}

/// What is wrong with a text, where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("in `{text}` at character {}: expected {expected}", at + 1)]
pub struct SpecError {
    /// The whole text, cut if very long.
    pub text: String,
    /// The character that begins what was not understood, from 0.
    pub at: usize,
    /// What could stand there.
    pub expected: String,
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<StoreSpec, SpecError> {
        parse::parse(text)
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreSpec::File(file) => file.fmt(f),
            StoreSpec::Memory(size) => {
                write!(f, "mem{}:", options(size.map(|size| Bytes(size).to_string())))
            }
            StoreSpec::Objects(objects) => objects.fmt(f),
            StoreSpec::Upstream(address) => address.fmt(f),
            StoreSpec::Concat(parts) => write!(f, "concat({})", list(parts)),
            StoreSpec::Stripe(bytes, parts) => {
                write!(f, "stripe({};{})", Bytes(*bytes), list(parts))
            }
            StoreSpec::Delay(delay, inner) => write!(f, "delay{}:{inner}", delay_options(delay)),
            StoreSpec::Fail(rule, inner) => write!(f, "fail{}:{inner}", fail_options(rule)),
        }
    }
}

impl fmt::Display for FileSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = self.direct.then(|| "direct".to_owned());
        let threads = self.threads.map(|threads| format!("threads={threads}"));
        let size = self.size.map(|size| format!("size={}", Bytes(size)));
        let options = options([direct, threads, size].into_iter().flatten());
        write!(f, "file{options}:{}", self.path.display())
    }
}

impl fmt::Display for ObjectSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object_bytes.map(|bytes| format!("object={}", Bytes(bytes)));
        let size = self.size.map(|size| format!("size={}", Bytes(size)));
        let lease = (!self.lease).then(|| "lease=off".to_owned());
        let options = options([object, size, lease].into_iter().flatten());
        match &self.place {
            ObjectPlace::Folder(path) => write!(f, "object-file{options}:{}", path.display()),
            ObjectPlace::Memory => write!(f, "object-memory{options}:"),
            ObjectPlace::Bucket(service, bucket, prefix) => {
                let slash = if prefix.is_empty() { "" } else { "/" };
                write!(f, "{}{options}://{bucket}{slash}{prefix}", service.name())
            }
        }
    }
}

impl ObjectService {
    const ALL: [ObjectService; 3] = [ObjectService::S3, ObjectService::Gs, ObjectService::Az];

    fn name(self) -> &'static str {
        match self {
            ObjectService::S3 => "s3",
            ObjectService::Gs => "gs",
            ObjectService::Az => "az",
        }
    }
}

impl RequestKind {
    const ALL: [(RequestKind, &'static str); 6] = [
        (RequestKind::Read, "read"),
        (RequestKind::Write, "write"),
        (RequestKind::Zero, "zero"),
        (RequestKind::Trim, "trim"),
        (RequestKind::Flush, "flush"),
        (RequestKind::Extents, "extents"),
    ];
}

impl FailWith {
    const ALL: [(FailWith, &'static str); 3] =
        [(FailWith::Io, "eio"), (FailWith::NoSpace, "enospc"), (FailWith::NoMemory, "enomem")];
}

/// The name that belongs to a value.
fn name_of<T: PartialEq>(all: &[(T, &'static str)], value: &T) -> &'static str {
    all.iter().find(|(one, _)| one == value).map_or("", |(_, name)| name)
}

fn delay_options(delay: &Delay) -> String {
    let time = if delay.min == delay.max {
        Time(delay.min).to_string()
    } else {
        format!("{}..{}", Time(delay.min), Time(delay.max))
    };
    let queue = delay.queue.map(|queue| format!("queue={queue}"));
    let seed = (delay.seed != 0).then(|| format!("seed={}", delay.seed));
    options([Some(time), queue, seed].into_iter().flatten())
}

fn fail_options(rule: &FailRule) -> String {
    let kind = rule.kind.map(|kind| name_of(&RequestKind::ALL, &kind).to_owned());
    let trigger = match rule.trigger {
        Trigger::From(1) => None,
        Trigger::From(n) => Some(format!("from={n}")),
        Trigger::Nth(n) => Some(format!("n={n}")),
        Trigger::Every(n) => Some(format!("every={n}")),
        Trigger::Within { from, to } => Some(format!("at={}..{}", Bytes(from), Bytes(to))),
        Trigger::Chance { probability, seed: 0 } => Some(format!("p={probability}")),
        Trigger::Chance { probability, seed } => Some(format!("p={probability},seed={seed}")),
    };
    let with = |with| name_of(&FailWith::ALL, &with);
    let failure = match rule.failure {
        Failure::Error(FailWith::Io) => None,
        Failure::Error(error) => Some(format!("error={}", with(error))),
        Failure::Short(FailWith::Io) => Some("short".to_owned()),
        Failure::Short(error) => Some(format!("short={}", with(error))),
        Failure::Stall(None) => Some("stall".to_owned()),
        Failure::Stall(Some(time)) => Some(format!("stall={}", Time(time))),
    };
    options([kind, trigger, failure].into_iter().flatten())
}

/// Options in their parentheses; nothing if there are none.
fn options(options: impl IntoIterator<Item = String>) -> String {
    let all: Vec<String> = options.into_iter().collect();
    if all.is_empty() { String::new() } else { format!("({})", all.join(",")) }
}

fn list(parts: &[StoreSpec]) -> String {
    parts.iter().map(StoreSpec::to_string).collect::<Vec<_>>().join(";")
}
