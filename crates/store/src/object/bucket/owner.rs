//! What keeps other servers from a volume while this one changes it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::conditions::{self, UNPROMISED};
use super::lease::{Lease, no_conditions};
use super::place::Place;
use crate::file::lock;
use crate::object::{ObjectPlace, ObjectSpec};

/// The protection of a volume.
pub(super) struct Owner {
    hold: Hold,
    /// Whether objects are changed on condition only.
    is_conditional: bool,
}

enum Hold {
    /// None: the volume is read-only, in this process's memory, or the operator has disabled the
    /// lease.
    Nothing,
    /// The folder, which is locked while it is open.
    Folder(#[allow(dead_code, reason = "open is all it must be")] File),
    Lease(Lease),
}

impl Owner {
    /// Makes sure that no other server changes a volume that is opened for writing.
    ///
    /// # Errors
    /// Another server has it, the service makes no changes on condition and `lease=off` is not
    /// given, or it cannot be reached.
    pub(super) async fn new(
        place: &Place,
        spec: &ObjectSpec,
        read_only: bool,
    ) -> io::Result<Owner> {
        let is_conditional = match &spec.place {
            _ if read_only => false,
            ObjectPlace::Memory => true,
            // The client for folders replaces files without conditions.
            ObjectPlace::Folder(_) => false,
            ObjectPlace::Bucket(..) => conditions::are_obeyed(place).await?,
        };
        let hold = match &spec.place {
            _ if read_only || !spec.lease => Hold::Nothing,
            ObjectPlace::Memory => Hold::Nothing,
            ObjectPlace::Folder(folder) => {
                let folder = File::open(folder)?;
                lock::lock(&folder, false)?;
                Hold::Folder(folder)
            }
            ObjectPlace::Bucket(..) if !is_conditional => {
                return Err(io::Error::other(no_conditions()));
            }
            ObjectPlace::Bucket(..) => {
                Hold::Lease(Lease::take(Arc::clone(&place.objects), place.lease()).await?)
            }
        };
        Ok(Owner { hold, is_conditional })
    }

    /// Whether objects are changed on condition only.
    pub(super) fn is_conditional(&self) -> bool {
        self.is_conditional
    }

    /// What the service does not promise, for people.
    pub(super) fn unpromised(&self, spec: &ObjectSpec, read_only: bool) -> Option<&'static str> {
        let is_bucket = matches!(spec.place, ObjectPlace::Bucket(..));
        (is_bucket && !read_only && !self.is_conditional).then_some(UNPROMISED)
    }

    /// Checks that changes may begin.
    ///
    /// # Errors
    /// The lease is not held, and why.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.hold {
            Hold::Lease(lease) => lease.held_until().map(drop),
            Hold::Nothing | Hold::Folder(_) => Ok(()),
        }
    }

    /// Runs a change, and aborts it when the lease ends.
    pub(super) async fn within<T>(
        &self,
        change: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        match &self.hold {
            Hold::Lease(lease) => lease.within(change).await,
            Hold::Nothing | Hold::Folder(_) => change.await,
        }
    }

    /// Releases the protection, where that needs an answer from the service. No change may be
    /// running, and none is allowed afterwards.
    pub(super) async fn give_up(&self) -> io::Result<()> {
        match &self.hold {
            Hold::Lease(lease) => lease.give_up().await,
            Hold::Nothing | Hold::Folder(_) => Ok(()),
        }
    }
}
