//! The place and the names of a volume's objects.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};

use super::failure::{NO_CREDENTIALS, existing, failure};
use crate::object::{ObjectPlace, ObjectService};
use crate::open::AWAY;

/// A client of a service.
pub(super) type Objects = Arc<dyn ObjectStore>;

/// The objects of one volume.
pub(super) struct Place {
    pub(super) objects: Objects,
    prefix: Path,
    /// Whether listings are ordered by name.
    ordered: bool,
    /// Whether versions are told apart by their generations, and not by ETags.
    by_generation: bool,
}

/// The service's name for a version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tag(Box<str>);

impl Tag {
    /// The condition that an object has this version.
    pub(super) fn is_there(&self) -> PutMode {
        // Each client uses one of the two.
        let name = Some(self.0.to_string());
        PutMode::Update(UpdateVersion { e_tag: name.clone(), version: name })
    }
}

impl Place {
    /// Sets up the client, if none is given for a bucket, without contacting the service.
    pub(super) fn new(place: &ObjectPlace, given: Option<Objects>) -> io::Result<Place> {
        let (objects, prefix, ordered): (Objects, _, _) = match place {
            ObjectPlace::Memory => (Arc::new(InMemory::new()), Path::default(), true),
            ObjectPlace::Folder(folder) => {
                std::fs::create_dir_all(folder)?;
                let local = LocalFileSystem::new_with_prefix(folder).map_err(failure)?;
                (Arc::new(local.with_fsync(true)), Path::default(), false)
            }
            ObjectPlace::Bucket(service, bucket, prefix) => {
                let prefix = Path::parse(prefix).map_err(|error| failure(error.into()))?;
                let objects = given.map_or_else(|| client(*service, bucket), Ok);
                (objects.map_err(failure)?, prefix, true)
            }
        };
        let by_generation = matches!(place, ObjectPlace::Bucket(ObjectService::Gs, ..));
        Ok(Place { objects, prefix, ordered, by_generation })
    }

    /// Objects without a prefix, for tests.
    #[cfg(test)]
    pub(super) fn of(objects: Objects) -> Place {
        Place { objects, prefix: Path::default(), ordered: true, by_generation: false }
    }

    /// A version, from what the service tells about an object; `None` if it tells nothing.
    pub(super) fn tag(&self, e_tag: Option<String>, version: Option<String>) -> Option<Tag> {
        let name = if self.by_generation { version } else { e_tag };
        Some(Tag(name?.into()))
    }

    pub(super) fn description(&self) -> Path {
        self.prefix.clone().join("volume.json")
    }

    /// The file that tells which server may change the volume.
    pub(super) fn lease(&self) -> Path {
        self.prefix.clone().join("lease.json")
    }

    /// The object with which it is tried whether the service makes changes on condition.
    pub(super) fn conditions(&self) -> Path {
        self.prefix.clone().join("conditions")
    }

    fn data(&self) -> Path {
        self.prefix.clone().join("data")
    }

    /// The name of an object.
    pub(super) fn object(&self, number: u64) -> Path {
        self.data().join(format!("{number:016x}"))
    }

    /// What the service tells about an object; `None` if it is missing.
    pub(super) async fn head(&self, path: &Path) -> io::Result<Option<ObjectMeta>> {
        match self.objects.head(path).await {
            // An answer to this has no words that say what is missing.
            Err(Error::NotFound { .. }) => {}
            found => return found.map(Some).map_err(failure),
        }
        Ok(existing(self.objects.get(path).await)?.map(|found| found.meta))
    }

    /// The existing objects of a range, in order, each with its bytes. Other files there are
    /// ignored.
    pub(super) async fn list(&self, range: Range<u64>) -> io::Result<Vec<(u64, u64)>> {
        let folder = self.data();
        let mut listed = match range.start.checked_sub(1) {
            Some(before) => self.objects.list_with_offset(Some(&folder), &self.object(before)),
            None => self.objects.list(Some(&folder)),
        };
        let mut found = Vec::new();
        while let Some(object) = listed.try_next().await.map_err(failure)? {
            let name = object.location.filename().unwrap_or_default();
            let number = u64::from_str_radix(name, 16).ok();
            let is_own = |&number: &u64| object.location == self.object(number);
            let Some(number) = number.filter(is_own) else { continue };
            if range.contains(&number) {
                found.push((number, object.size));
            } else if self.ordered && number >= range.end {
                break;
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// Installs a cryptography provider: the client uses that of the process, and panics if there is
/// none.
fn set_cryptography() {
    // Fails if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Looks for the service from which a machine in Amazon's cloud gets credentials, if there are none
/// in the environment; the client itself would look for minutes before it says so.
///
/// Blocks for a second at most.
pub(super) fn find_credentials() -> io::Result<()> {
    const NAMES: [&str; 5] = [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    ];
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if NAMES.into_iter().any(is_set) || is_set("AWS_SKIP_SIGNATURE") {
        return Ok(());
    }
    let endpoint = std::env::var("AWS_METADATA_ENDPOINT").unwrap_or_default();
    let host = endpoint.strip_prefix("http://").unwrap_or("169.254.169.254").trim_end_matches('/');
    let address = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let Ok(address) = address.parse::<SocketAddr>() else { return Ok(()) };
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).map(drop).map_err(|error| {
        let why = format!("{NO_CREDENTIALS}, {address}, does not answer: {error}");
        // The network may not be up yet.
        io::Error::new(AWAY, why)
    })
}

fn client(service: ObjectService, bucket: &str) -> object_store::Result<Objects> {
    set_cryptography();
    Ok(match service {
        ObjectService::S3 => {
            Arc::new(AmazonS3Builder::from_env().with_bucket_name(bucket).build()?)
        }
        ObjectService::Gs => {
            Arc::new(GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).build()?)
        }
        ObjectService::Az => {
            Arc::new(MicrosoftAzureBuilder::from_env().with_container_name(bucket).build()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_a_client_with_tls() {
        for service in [ObjectService::S3, ObjectService::Gs] {
            client(service, "bucket").unwrap();
        }
    }
}
