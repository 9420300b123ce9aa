//! `volume.json`: the description of a volume in an object store. It comes from outside, so it is
//! checked.

use std::io::{self, ErrorKind};

use object_store::{ObjectStoreExt, PutMode, PutOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::{existing, failure};
use super::place::{Place, Tag};
use crate::medium::MAX_BYTES;
use crate::object::ObjectSpec;

const FORMAT: &str = "undercroft-volume";

/// The version that is written. Version 1 is accepted too: its objects have no stamps. Programs
/// that know only that one refuse this one, since they cannot read objects with stamps.
const VERSION: u32 = 2;

/// Default size of an object in bytes: a compromise between the number of requests and the cost of
/// rewriting.
const OBJECT_BYTES: u64 = 4 << 20;

/// How often it is tried to replace the description while others do.
const RENEWALS: usize = 8;

/// Most bytes of the description, so that no unrelated large file is read into memory.
const MAX_DESCRIPTION: u64 = 64 << 10;

/// The description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Description {
    format: String,
    version: u32,
    pub(super) size_bytes: u64,
    pub(super) object_bytes: u64,
    /// Unknown fields, which are kept.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Description {
    /// The description of an existing volume, or of a new one, which is created; and whether it is
    /// new.
    pub(super) async fn open(
        place: &Place,
        spec: &ObjectSpec,
        may_make: bool,
    ) -> io::Result<(Description, bool)> {
        let (description, is_new) = match (Description::read(place).await?, spec.size) {
            (Some(found), _) => (found, false),
            (None, Some(size_bytes)) if may_make => {
                (Description::make(place, spec, size_bytes).await?, true)
            }
            (None, size) => {
                let more = if size.is_none() { "; give a size and it is made" } else { "" };
                let why = format!("there is no volume ({} is missing){more}", place.description());
                return Err(io::Error::new(ErrorKind::NotFound, why));
            }
        };
        let differs = |what: &str, told: Option<u64>, found: u64| match told {
            Some(told) if told != found => Err(io::Error::new(
                ErrorKind::InvalidInput,
                format!("exists with {what} of {found} bytes, not {told}; leave that away"),
            )),
            _ => Ok(()),
        };
        differs("a size", spec.size, description.size_bytes)?;
        differs("objects", spec.object_bytes, description.object_bytes)?;
        Ok((description, is_new))
    }

    /// The description, if the volume exists.
    pub(super) async fn read(place: &Place) -> io::Result<Option<Description>> {
        Ok(Description::read_version(place).await?.map(|(description, _)| description))
    }

    /// The description, if the volume exists, and its version if the service tells that.
    async fn read_version(place: &Place) -> io::Result<Option<(Description, Option<Tag>)>> {
        let found = place.objects.get(&place.description()).await;
        let Some(found) = existing(found)? else { return Ok(None) };
        if found.meta.size > MAX_DESCRIPTION {
            return Err(damaged(place, "it is too long"));
        }
        let tag = place.tag(found.meta.e_tag.clone(), found.meta.version.clone());
        let text = found.bytes().await.map_err(failure)?;
        let description: Description =
            serde_json::from_slice(&text).map_err(|error| damaged(place, &error.to_string()))?;
        description.check(place)?;
        Ok(Some((description, tag)))
    }

    /// Before the first change of a volume: lets its description say that its objects may have
    /// stamps, if an older program made it. The volume is protected against other servers.
    pub(super) async fn renewed(
        self,
        place: &Place,
        is_conditional: bool,
    ) -> io::Result<Description> {
        use object_store::Error;
        if self.version == VERSION {
            return Ok(self);
        }
        for _ in 0..RENEWALS {
            let found = Description::read_version(place).await?;
            let Some((found, tag)) = found else { return Err(ErrorKind::NotFound.into()) };
            if found.version == VERSION {
                return Ok(found);
            }
            let mode = match tag {
                Some(tag) if is_conditional => tag.is_there(),
                _ => PutMode::Overwrite,
            };
            let renewed = Description { version: VERSION, ..found };
            match renewed.put(place, mode).await {
                Ok(()) => return Ok(renewed),
                // Somebody has let the volume grow, or the answer to this was lost.
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => {}
                Err(error) => return Err(failure(error)),
            }
        }
        Err(damaged(place, "it changes all the time"))
    }

    async fn put(&self, place: &Place, mode: PutMode) -> object_store::Result<()> {
        let text = serde_json::to_vec_pretty(self)
            .map_err(|error| object_store::Error::Generic { store: "", source: error.into() })?;
        let options = PutOptions { mode, ..PutOptions::default() };
        place.objects.put_opts(&place.description(), text.into(), options).await.map(drop)
    }

    fn check(&self, place: &Place) -> io::Result<()> {
        if self.format != FORMAT {
            return Err(damaged(place, &format!("its format is not {FORMAT:?}")));
        }
        if !(1..=VERSION).contains(&self.version) {
            let why = format!("its version is {}; this program knows 1 to {VERSION}", self.version);
            return Err(damaged(place, &why));
        }
        let object = self.object_bytes;
        if !object.is_power_of_two() || !(4096..=1 << 30).contains(&object) {
            return Err(damaged(place, "object_bytes is no power of two from 4 KiB to 1 GiB"));
        }
        // The last object must also end within the largest possible size.
        if self.size_bytes > MAX_BYTES - object {
            return Err(damaged(place, "size_bytes is too large"));
        }
        Ok(())
    }

    async fn make(place: &Place, spec: &ObjectSpec, size_bytes: u64) -> io::Result<Description> {
        let object_bytes = spec.object_bytes.unwrap_or(OBJECT_BYTES);
        let (format, others) = (FORMAT.to_owned(), Map::new());
        let description =
            Description { format, version: VERSION, size_bytes, object_bytes, others };
        description.check(place)?;
        // If another server creates the volume at the same moment, one of the two is refused.
        description.put(place, PutMode::Create).await.map_err(failure)?;
        Ok(description)
    }
}

fn damaged(place: &Place, why: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("{}: {why}", place.description()))
}
