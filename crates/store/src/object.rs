//! The specification of a volume in an object store: `s3(object=8MiB)://BUCKET/PREFIX`. The store
//! itself is in `object/bucket.rs`, which needs the feature `object`.

#[cfg(feature = "object")]
mod bucket;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use undercroft_text::Bytes;

use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::open::OpenOptions;
use crate::parse::{Parsed, Text, name_of, write_options, write_path};
use crate::store::{Answer, Store};

#[cfg(feature = "object")]
pub use bucket::BucketStore;

pub(crate) static KINDS: [Kind; 5] = [
    Kind {
        name: "s3",
        form: "s3://BUCKET/PREFIX",
        summary: "objects in Amazon S3 and the like",
        parse,
    },
    Kind { name: "gs", form: "gs://", summary: "objects in Google Cloud Storage", parse },
    Kind { name: "az", form: "az://", summary: "objects in Azure Blob Storage", parse },
    Kind { name: "object-file", form: "", summary: "objects in a folder, for tests", parse },
    Kind { name: "object-memory", form: "", summary: "objects in memory, for tests", parse },
];

/// A volume in an object store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectSpec {
    /// The place of its objects.
    pub place: ObjectPlace,
    /// Bytes of an object: a power of two. An existing volume must match it.
    pub object_bytes: Option<u64>,
    /// Bytes of the volume: required of an existing one, and the size of a new one.
    pub size: Option<u64>,
    /// Whether a lease keeps a second server from changing it.
    pub lease: bool,
}

/// The place of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectPlace {
    /// In a bucket of a service, below a prefix (without slashes at its ends; may be empty).
    Bucket(ObjectService, String, String),
    /// In a folder, for tests.
    Folder(PathBuf),
    /// In memory, for tests.
    Memory,
}

/// The services for objects. Addresses and credentials come from the environment, in the variables
/// that each service's own tools use (`AWS_ENDPOINT`, `AWS_ACCESS_KEY_ID`, ...).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectService {
    /// Amazon S3, and services with its protocol.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage; the bucket is a container.
    Az,
}

const SERVICES: [(ObjectService, &str); 3] =
    [(ObjectService::S3, "s3"), (ObjectService::Gs, "gs"), (ObjectService::Az, "az")];

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    let place = match SERVICES.iter().find(|(_, name)| *name == words.name) {
        Some((service, _)) => {
            let Some(rest) = words.rest.after("://") else { return words.rest.fail("://") };
            bucket(*service, rest)?
        }
        None if words.name == "object-file" => ObjectPlace::Folder(words.place()?.path()?.into()),
        None => {
            let rest = words.place()?;
            if !rest.text().is_empty() {
                return rest.fail("nothing after `object-memory:`");
            }
            ObjectPlace::Memory
        }
    };
    let mut spec = ObjectSpec { place, object_bytes: None, size: None, lease: true };
    for (name, value) in words.options() {
        match (name.text(), value) {
            ("object", Some(value)) => {
                let bytes = value.size()?;
                if !bytes.is_power_of_two() || !(4096..=1 << 30).contains(&bytes) {
                    return value.fail("a power of two from 4KiB to 1GiB");
                }
                spec.object_bytes = Some(bytes);
            }
            ("size", Some(value)) => spec.size = Some(value.size()?),
            ("lease", Some(value)) => {
                spec.lease = match value.text() {
                    "on" => true,
                    "off" => false,
                    _ => return value.fail("on or off"),
                };
            }
            _ => return name.fail("object=SIZE, size=SIZE or lease=off"),
        }
    }
    Ok(StoreSpec::new(spec))
}

fn bucket(service: ObjectService, rest: Text<'_>) -> Parsed<ObjectPlace> {
    let (bucket, prefix) = rest.split("/");
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if bucket.text().is_empty() || !bucket.text().chars().all(allowed) {
        return bucket.fail("the name of a bucket: letters, digits, `-`, `.`, `_`");
    }
    let prefix = prefix.unwrap_or(rest.end());
    let trimmed = prefix.text().strip_suffix('/').unwrap_or(prefix.text());
    let bad = |part: &str| part.is_empty() || part == "." || part == "..";
    if !trimmed.is_empty() && trimmed.split("/").any(bad) {
        return prefix.fail("a prefix without empty parts, `.` and `..`");
    }
    Ok(ObjectPlace::Bucket(service, bucket.text().to_owned(), trimmed.to_owned()))
}

impl Description for ObjectSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let mut spec = self.clone();
        Box::pin(async move {
            spec.size = options.one_size(spec.size, &spec)?;
            open(spec, &options).await
        })
    }
}

#[cfg(feature = "object")]
async fn open(spec: ObjectSpec, options: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let (store, is_new) = BucketStore::open(&spec, options).await?;
    if is_new {
        options.made(&store);
    }
    Ok(Arc::new(store))
}

#[cfg(not(feature = "object"))]
async fn open(spec: ObjectSpec, _: &OpenOptions) -> io::Result<Arc<dyn Store>> {
    let why = format!("{spec}: this program was built without object stores (feature `object`)");
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

impl fmt::Display for ObjectSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self.object_bytes.map(|bytes| format!("object={}", Bytes(bytes)));
        let size = self.size.map(|size| format!("size={}", Bytes(size)));
        let lease = (!self.lease).then(|| "lease=off".to_owned());
        let name = match &self.place {
            ObjectPlace::Folder(_) => "object-file",
            ObjectPlace::Memory => "object-memory",
            ObjectPlace::Bucket(service, ..) => name_of(&SERVICES, service),
        };
        f.write_str(name)?;
        write_options(f, [object, size, lease])?;
        match &self.place {
            ObjectPlace::Folder(path) => {
                f.write_str(":")?;
                write_path(f, path)
            }
            ObjectPlace::Memory => f.write_str(":"),
            ObjectPlace::Bucket(_, bucket, prefix) => {
                let slash = if prefix.is_empty() { "" } else { "/" };
                write!(f, "://{bucket}{slash}{prefix}")
            }
        }
    }
}
