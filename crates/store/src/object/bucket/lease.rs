//! The lease on a volume in a bucket: which server may change it.
//!
//! `lease.json` names the holder, who counts its renewals there. Every change of the file is
//! conditional on what was read before, so of two servers that want it one gets it. No two clocks
//! are compared:
//!
//! 1. The holder renews every [`RENEWAL`]. It changes the volume only until [`TERM`] less
//!    [`MARGIN`] after it began the last renewal that succeeded.
//! 2. Another server takes the lease over once it has seen the same renewal for [`TERM`] by its
//!    own clock. If it sees a new one, it is refused, with the holder's name.
//! 3. A server that closes the volume gives the lease up, and the next one has it at once.
//!
//! [`MARGIN`] is for clocks of different speed, and for a change that the service still carries
//! out when its caller has stopped waiting. A service that holds one back for longer can break
//! this; nothing but a condition on every object would help against that.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, UpdateVersion};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::failure;

/// How long a lease holds without being renewed.
const TERM: Duration = Duration::from_secs(15);
/// How often it is renewed: two may fail.
const RENEWAL: Duration = Duration::from_secs(4);
/// How long before its end the holder stops.
const MARGIN: Duration = Duration::from_secs(3);
/// How often one who waits for it looks.
const LOOK: Duration = Duration::from_secs(1);

const FORMAT: &str = "undercroft-lease";
const VERSION: u32 = 1;
/// Most bytes of the file: nobody else's large file is read into memory.
const BYTES_MAX: u64 = 64 << 10;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    format: String,
    version: u32,
    /// Who has it; nobody, if it was given up.
    holder: Option<Holder>,
    renewals: u64,
}

/// A server, in words for people and with a number that no other has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Holder {
    id: String,
    host: String,
    process: u32,
}

/// Where the file is.
#[derive(Clone)]
struct Desk {
    objects: Arc<dyn ObjectStore>,
    path: Path,
}

/// What became of a conditional change of the file.
enum Put {
    Done,
    /// Somebody else changed it first.
    Beaten,
}

/// A lease that is held. Dropping it lets it run out.
pub(super) struct Lease {
    desk: Desk,
    me: Holder,
    state: Arc<Mutex<State>>,
    renewing: JoinHandle<()>,
}

struct State {
    /// Until when changes are allowed.
    until: Instant,
    /// Who took it, or that it was given up.
    lost: Option<String>,
}

impl Lease {
    /// Takes the lease at `path`, which may take [`TERM`] after a holder that did not give it up.
    ///
    /// # Errors
    /// [`ErrorKind::ResourceBusy`]: another server has it, which is named. Also if the service
    /// cannot be reached, or knows no conditional writes.
    pub(super) async fn take(objects: Arc<dyn ObjectStore>, path: Path) -> io::Result<Lease> {
        let desk = Desk { objects, path };
        let me = Holder::this_process();
        let begun = desk.acquire(&me).await?;
        let state = State { until: begun + TERM - MARGIN, lost: None };
        let state = Arc::new(Mutex::new(state));
        let renewing = tokio::spawn(renew(desk.clone(), me.clone(), Arc::clone(&state)));
        Ok(Lease { desk, me, state, renewing })
    }

    /// Lets a change happen while the lease is held, and cuts it off when it is not.
    ///
    /// # Errors
    /// Of the change, or that the lease is not held and why.
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

    /// Gives the lease up. No change may be under way, and none is allowed any more.
    ///
    /// # Errors
    /// The service cannot be reached: it will run out.
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
            let nobodys = Note { holder: None, ..note };
            // A renewal that was under way may still come in between.
            if let Put::Done = self.desk.put(&nobodys, PutMode::Update(at)).await? {
                return Ok(());
            }
        }
    }

    fn held_until(&self) -> io::Result<Instant> {
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

/// Renews a lease until somebody else has it.
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
            // Tried again; what is to be changed meanwhile says what is wrong.
            Ok(Err(_)) | Err(_) => {}
        }
    }
}

impl Desk {
    /// Gets the lease: the moment from which it counts.
    async fn acquire(&self, me: &Holder) -> io::Result<Instant> {
        let mut seen: Option<(Note, Instant)> = None;
        loop {
            let found = self.read().await?;
            let begun = Instant::now();
            let mode = match (found, &seen) {
                (None, _) => PutMode::Create,
                (Some((Note { holder: None, .. }, at)), _) => PutMode::Update(at),
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
            let note = Note::of(me);
            if let Put::Done = self.put(&note, mode).await? {
                // The file exists now: a service that makes it anew minds no conditions.
                return match self.put(&note, PutMode::Create).await? {
                    Put::Beaten => Ok(begun),
                    Put::Done => Err(io::Error::other(no_conditions())),
                };
            }
        }
    }

    /// Renews: none, or who has it now.
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
        let found = match self.objects.get(&self.path).await {
            Ok(found) => found,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failure(error)),
        };
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
        // Seeded by the system, differently each time.
        let id = format!("{:016x}", RandomState::new().hash_one(std::process::id()));
        Holder { id, host: host.trim_end().to_owned(), process: std::process::id() }
    }

    fn name(&self) -> String {
        format!("process {} on {:?}", self.process, self.host)
    }
}

fn no_conditions() -> &'static str {
    "the service takes no conditional writes, so nothing keeps a second server from the volume; \
     with `lease=off` that is left to you"
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
