//! The tracker of this process, and the conditions for calling it.

use std::cell::Cell;
use std::ffi::c_int;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;

use undercroft_tracker::{Settings, Tracker, fds, filter};

static TRACKER: OnceLock<Tracker> = OnceLock::new();

/// The sender that this process has started last.
static SENDER: Mutex<Option<JoinHandle<()>>> = Mutex::new(None);

/// The process whose descriptors are recorded here. A child made by `vfork` runs in its parent's
/// memory, and must not change the record of the parent's descriptors.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Stack size of the sender, in bytes.
const STACK: usize = 512 << 10;

thread_local! {
    /// Whether this thread is inside the tracker.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    let saved = errno();
    INSIDE.set(true);
    if catch_unwind(start).is_err() {
        complain("a defect; nothing is tracked");
    }
    INSIDE.set(false);
    set_errno(saved);
}

fn start() {
    let settings = match Settings::from_env() {
        Ok(Some(settings)) => settings,
        Ok(None) => return,
        Err(error) => return complain(&error.to_string()),
    };
    let tracker = match Tracker::start(settings, start_sender) {
        Ok(tracker) => tracker,
        Err(error) => return complain(&error.to_string()),
    };
    PROCESS.store(process(), Relaxed);
    // SAFETY: the handler may run in any child, and does nothing but atomic operations.
    let registered = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    if registered == 0 {
        let _ = TRACKER.set(tracker);
    } else {
        tracker.exiting();
    }
}

extern "C" fn end() {
    let saved = errno();
    if filter::may_call().is_some_and(|_permit| PROCESS.load(Relaxed) == process()) {
        with(Tracker::exiting);
    }
    set_errno(saved);
}

unsafe extern "C" fn forked() {
    if let Some(_permit) = filter::may_call() {
        PROCESS.store(process(), Relaxed);
    }
    INSIDE.set(false);
    // The thread is not in this process: there is nothing to join or detach.
    let _ = SENDER.try_lock().map(|mut sender| sender.take().map(std::mem::forget));
    if let Some(tracker) = TRACKER.get() {
        tracker.forked();
    }
}

fn process() -> i32 {
    rustix::process::getpid().as_raw_pid()
}

/// Prints one line for the user who started the program.
fn complain(what: &str) {
    let line = format!("undercroft-cct: {what}; the program runs untracked\n");
    let _ = rustix::io::write(rustix::stdio::stderr(), line.as_bytes());
}

/// Starts the sender thread. It receives no signals, which are meant for the program. (The C
/// library keeps its own signals, by which `setuid` reaches all threads, out of the set.)
fn start_sender() {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the sets are this function's, and are filled in before they are used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new().name("undercroft-cct".to_owned()).stack_size(STACK);
    let started = thread.spawn(|| {
        INSIDE.set(true);
        let Some(tracker) = TRACKER.get() else { return };
        if catch_unwind(AssertUnwindSafe(|| undercroft_tracker::sender::run(tracker))).is_err() {
            tracker.give_up();
        }
    });
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    match (started, SENDER.try_lock()) {
        (Ok(thread), Ok(mut sender)) => *sender = Some(thread),
        (Ok(_), Err(_)) => {}
        (Err(_), _) => {
            TRACKER.get().inspect(|tracker| tracker.give_up());
        }
    }
}

/// Whether this process has no sender. Calls nothing of the system.
pub(crate) fn sender_is_gone() -> bool {
    let Ok(mut sender) = SENDER.try_lock() else { return false };
    let Some(thread) = sender.take() else { return true };
    // SAFETY: the thread has not been joined: its handle is here.
    let joined = unsafe { libc::pthread_tryjoin_np(thread.as_pthread_t(), std::ptr::null_mut()) };
    if joined == 0 {
        // Joining it a second time must not happen, nor detaching it.
        let _ = thread.into_pthread_t();
        return true;
    }
    *sender = Some(thread);
    false
}

/// The tracker, if it has started.
#[inline]
pub(crate) fn tracker() -> Option<&'static Tracker> {
    TRACKER.get()
}

/// Whether this thread is inside the tracker; its calls are then not the program's.
#[inline]
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}

/// Whether the recorded descriptors belong to this process; assumed if the system may not be asked.
pub(crate) fn is_at_home() -> bool {
    filter::may_call().is_none_or(|_permit| PROCESS.load(Relaxed) == process())
}

/// Calls the tracker, unless this thread is inside it already. `errno` is preserved.
#[inline]
pub(crate) fn with(call: impl FnOnce(&'static Tracker)) {
    let Some(tracker) = TRACKER.get() else { return };
    if INSIDE.replace(true) {
        // Called from a signal handler.
        return tracker.missed();
    }
    let saved = errno();
    if catch_unwind(AssertUnwindSafe(|| call(tracker))).is_err() {
        tracker.give_up();
    }
    set_errno(saved);
    INSIDE.set(false);
}

/// Whether a descriptor is tracked; for rare calls.
pub(crate) fn is_tracked(fd: c_int) -> bool {
    fds::get(fd).is_some() && !is_inside() && is_at_home()
}

#[inline]
pub(crate) fn errno() -> c_int {
    // SAFETY: the place of this thread's `errno`.
    unsafe { *libc::__errno_location() }
}

#[inline]
pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}
