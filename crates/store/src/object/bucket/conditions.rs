//! Whether a service makes changes on condition: it is tried, since services that do not know
//! conditions ignore them without a word.

use std::io;

use object_store::{Error, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use super::failure::failure;
use super::place::Place;
use super::stamp::Stamps;

/// What a service without conditions does not promise.
pub(super) const UNPROMISED: &str = "the service makes no changes on condition (If-Match, \
    If-None-Match): a write that it executes late, after its answer was lost, can replace newer \
    data, even flushed data; and nothing keeps a second server from the volume";

/// How often the trial is repeated if another server's trial comes between.
const TRIALS: usize = 8;

/// Whether the service creates and replaces objects on condition only. Leaves an object of a few
/// bytes, `conditions`, beside the description.
///
/// # Errors
/// The service cannot be reached, or refuses.
pub(super) async fn are_obeyed(place: &Place) -> io::Result<bool> {
    let path = place.conditions();
    let stamps = Stamps::new();
    let put = async |mode: PutMode| {
        let payload = stamps.next().bytes().into();
        let options = PutOptions { mode, ..PutOptions::default() };
        match place.objects.put_opts(&path, payload, options).await {
            Ok(_) => Ok(Some(true)),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Some(false)),
            Err(Error::NotImplemented { .. }) => Ok(None),
            Err(error) => Err(failure(error)),
        }
    };
    // The first one may be made; then there is something that the second must not replace.
    let is_made = put(PutMode::Create).await?;
    if is_made.is_none() || (is_made == Some(true) && put(PutMode::Create).await? != Some(false)) {
        return Ok(false);
    }
    let nobodys = "\"00000000000000000000000000000000\"".to_owned();
    let nobodys = UpdateVersion { e_tag: Some(nobodys), version: Some("1".to_owned()) };
    if put(PutMode::Update(nobodys)).await? != Some(false) {
        return Ok(false);
    }
    for _ in 0..TRIALS {
        let found = place.objects.head(&path).await.map_err(failure)?;
        let Some(tag) = place.tag(found.e_tag, found.version) else { return Ok(false) };
        if put(tag.is_there()).await? == Some(true) {
            return Ok(true);
        }
    }
    Ok(false)
}
