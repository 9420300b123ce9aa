//! The lease on a volume in a bucket: it determines which server may change the volume.
//!
//! `lease.json` names the holder and counts its renewals. Every change of the file is conditional
//! on the version that was read, so of two servers that want the lease only one gets it. Clocks of
//! two servers are never compared:
//!
//! 1. The holder renews every [`RENEWAL`]. It changes the volume only until [`TERM`] less
//!    [`MARGIN`] after it began the last successful renewal.
//! 2. Another server takes the lease over after it has seen the same renewal for [`TERM`] by its
//!    own clock. If it sees a new one, it is refused, with the holder's name.
//! 3. A server that closes the volume releases the lease, so that the next one gets it at once.
//!
//! [`MARGIN`] allows for clocks of different speed. A change that the service executes after the
//! lease has ended, however late, is refused by its condition (`data.rs`), if the next holder
//! changed the same object.
//!
//! No content of the file ever comes back, since each holder continues the count of renewals: an
//! ETag that is made of the content names one version.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::failure::{existing, failure};

/// How long a lease lasts without renewal.
const TERM: Duration = Duration::from_secs(15);
/// How often it is renewed; two renewals may fail.
const RENEWAL: Duration = Duration::from_secs(4);
/// How long before the lease's end the holder stops changing the volume.
const MARGIN: Duration = Duration::from_secs(3);
/// How often a waiting server reads the file.
const LOOK: Duration = Duration::from_secs(1);

const FORMAT: &str = "undercroft-lease";
const VERSION: u32 = 1;
/// Most bytes of the file, so that no unrelated large file is read into memory.
const BYTES_MAX: u64 = 64 << 10;

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format: String,
    version: u32,
    /// The holder; `None` if the lease was released.
    holder: Option<Holder>,
    renewals: u64,
}

/// A server: a description for people, and a unique id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    id: String,
    host: String,
    process: u32,
}

/// The place of the file.
#[derive(Clone)]
struct Desk {
    objects: Arc<dyn ObjectStore>,
    path: Path,
}

/// The result of a conditional change of the file.
enum Put {
    Done,
    /// Another server changed it first.
    Beaten,
}

/// A lease that this server holds. If it is dropped without release, it expires.
pub(super) struct Lease {
    desk: Desk,
    me: Holder,
    state: Arc<Mutex<State>>,
    renewing: JoinHandle<()>,
}

struct State {
    /// The time until which changes are allowed.
    until: Instant,
    /// How the lease was lost, or that it was released.
    lost: Option<String>,
}

impl Lease {
    /// Takes the lease at `path`. This may take [`TERM`] if the last holder did not release it.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`]: another server holds it; the error names that server. Other
    /// errors: the service cannot be reached, or does not support conditional writes.
    pub(super) async fn take(objects: Arc<dyn ObjectStore>, path: Path) -> io::Result<Lease> {
        let desk = Desk { objects, path };
        let me = Holder::this_process();
        let begun = desk.acquire(&me).await?;
        let state = State { until: begun + TERM - MARGIN, lost: None };
        let state = Arc::new(Mutex::new(state));
        let renewing = tokio::spawn(renew(desk.clone(), me.clone(), Arc::clone(&state)));
        Ok(Lease { desk, me, state, renewing })
    }

    /// Runs a change while the lease is held, and aborts it when the lease ends.
    ///
    /// # Errors
    /// The change's error, or that the lease is not held and why.
    pub(super) async fn within<T>(
        &self,
        change: impl Future<Output = io::Result<T>>,
    ) -> io::Result<T> {
        let mut change = std::pin::pin!(change);
        loop {
            let until = self.held_until()?;
            if let Ok(done) = timeout_at(until, &mut change).await {
                return done;
            }
        }
    }

    /// Releases the lease. No change may be running, and none is allowed afterwards.
    ///
    /// # Errors
    /// The service cannot be reached; the lease will expire.
    pub(super) async fn give_up(&self) -> io::Result<()> {
        self.renewing.abort();
        let before = lock(&self.state).lost.replace("this server has given it up".to_owned());
        if before.is_some() {
            return Ok(());
        }
        loop {
            let Some((note, at)) = self.desk.read().await? else { return Ok(()) };
            if note.holder.as_ref() != Some(&self.me) {
                return Ok(());
            }
            let nobodys = Note { holder: None, renewals: note.renewals.wrapping_add(1), ..note };
            // A renewal that was running may still come in between.
            if let Put::Done = self.desk.put(&nobodys, PutMode::Update(at)).await? {
                return Ok(());
            }
        }
    }

    /// Until when changes may begin.
    ///
    /// # Errors
    /// The lease is not held, and why.
    pub(super) fn held_until(&self) -> io::Result<Instant> {
        let state = lock(&self.state);
        let why = match &state.lost {
            Some(how) => format!("the lease on the volume is lost: {how}"),
            None if state.until > Instant::now() => return Ok(state.until),
            None => "the lease on the volume could not be renewed: the service does not answer, \
                     or not in time"
                .to_owned(),
        };
        Err(io::Error::other(why))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
    }
}

/// Renews a lease until another server has it.
async fn renew(desk: Desk, me: Holder, state: Arc<Mutex<State>>) {
    loop {
        sleep(RENEWAL).await;
        let begun = Instant::now();
        match timeout(TERM, desk.renew(&me)).await {
            Ok(Ok(None)) => lock(&state).until = begun + TERM - MARGIN,
            Ok(Ok(lost)) => {
                lock(&state).lost = lost;
                return;
            }
            // It is tried again; changes in the meantime report the problem.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

impl Desk {
    /// Acquires the lease. Returns the time from which it counts.
    async fn acquire(&self, me: &Holder) -> io::Result<Instant> {
        let mut seen: Option<(Note, Instant)> = None;
        loop {
            let found = self.read().await?;
            let begun = Instant::now();
            let renewals = found.as_ref().map_or(0, |(note, _)| note.renewals.wrapping_add(1));
            let mode = match (found, &seen) {
                (None, _) => PutMode::Create,
                (Some((Note { holder: None, .. }, at)), _) => PutMode::Update(at),
                // An earlier try, whose answer was lost, took it.
                (Some((Note { holder: Some(holder), .. }, at)), _) if holder == *me => {
                    PutMode::Update(at)
                }
                (Some((note, at)), Some((old, since))) if *old == note => {
                    if since.elapsed() < TERM {
                        sleep(LOOK).await;
                        continue;
                    }
                    PutMode::Update(at)
                }
                (Some((Note { holder: Some(holder), .. }, _)), Some(_)) => {
                    let why = format!("in use by {}", holder.name());
                    return Err(io::Error::new(ErrorKind::ResourceBusy, why));
                }
                (Some((note, _)), None) => {
                    seen = Some((note, begun));
                    continue;
                }
            };
            let note = Note { renewals, ..Note::of(me) };
            if let Put::Done = self.put(&note, mode).await? {
                return Ok(begun);
            }
        }
    }

    /// Renews the lease. Returns `None`, or how the lease was lost.
    async fn renew(&self, me: &Holder) -> io::Result<Option<String>> {
        let Some((note, at)) = self.read().await? else {
            return Ok(Some(format!("{} was deleted", self.path)));
        };
        match &note.holder {
            Some(holder) if holder == me => {}
            Some(holder) => return Ok(Some(format!("{} has it", holder.name()))),
            None => return Ok(Some(format!("{} was given up by somebody else", self.path))),
        }
        let renewals = note.renewals.wrapping_add(1);
        match self.put(&Note { renewals, ..note }, PutMode::Update(at)).await? {
            Put::Done => Ok(None),
            Put::Beaten => Err(io::Error::other("changed meanwhile")),
        }
    }

    async fn read(&self) -> io::Result<Option<(Note, UpdateVersion)>> {
        let found = self.objects.get(&self.path).await;
        let Some(found) = existing(found)? else { return Ok(None) };
        let damaged = |why: String| {
            let what = format!("{}: {why}; delete it if no server uses the volume", self.path);
            io::Error::new(ErrorKind::InvalidData, what)
        };
        if found.meta.size > BYTES_MAX {
            return Err(damaged("it is too long".to_owned()));
        }
        let at =
            UpdateVersion { e_tag: found.meta.e_tag.clone(), version: found.meta.version.clone() };
        let text = found.bytes().await.map_err(failure)?;
        let note: Note =
            serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?;
        if note.format != FORMAT || note.version != VERSION {
            return Err(damaged(format!("it is no {FORMAT} of version {VERSION}")));
        }
        Ok(Some((note, at)))
    }

    async fn put(&self, note: &Note, mode: PutMode) -> io::Result<Put> {
        use object_store::Error;
        let text = serde_json::to_vec_pretty(note).map_err(io::Error::other)?;
        let options = PutOptions { mode, ..PutOptions::default() };
        match self.objects.put_opts(&self.path, text.into(), options).await {
            Ok(_) => Ok(Put::Done),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Beaten),
            Err(Error::NotImplemented { .. }) => Err(io::Error::other(no_conditions())),
            Err(error) => Err(failure(error)),
        }
    }
}

impl Note {
    fn of(holder: &Holder) -> Note {
        let format = FORMAT.to_owned();
        Note { format, version: VERSION, holder: Some(holder.clone()), renewals: 0 }
    }
}

impl Holder {
    fn this_process() -> Holder {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // The system seeds this differently each time.
        let id = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Holder { id, host: host.trim_end().to_owned(), process: std::process::id() }
    }

    fn name(&self) -> String {
        format!("process {} on {:?}", self.process, self.host)
    }
}

/// Why a lease cannot be had from a service without conditions.
pub(super) fn no_conditions() -> &'static str {
    "the service makes no changes on condition (If-Match, If-None-Match), so nothing keeps a \
     second server from the volume, or a late write from newer data; with `lease=off` that is left \
     to you"
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
