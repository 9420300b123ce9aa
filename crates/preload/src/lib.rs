//! A library to preload (`LD_PRELOAD`) into an unmodified program. It intercepts the C library's
//! I/O functions, passes each call on unchanged, and reports to the tracker what the call reveals
//! about the program's buffers. `undercroft-tracker` evaluates that; only the functions are here.
//!
//! The program sees no difference in results, `errno`, descriptors, signals and children. In these
//! cases calls are only passed through: before the constructor has run; if nothing is tracked, or
//! the settings are wrong (which is reported in one line); for untracked descriptors; in the
//! tracker's own thread; in a signal handler that interrupted the tracker; and for ever after a
//! panic.
//!
//! The `unsafe` code relies on this:
//! 1. *Originals.* A function of the C library found by name has the type in the library's headers,
//!    and ours have equal types. `open` and `fcntl` have an argument that callers may omit: on all
//!    machines that Linux supports, its register or slot is then read and passed on, and the
//!    original ignores it.
//! 2. *Arguments.* Pointers are passed on unchanged. They are followed only where the original has
//!    followed them (lists of buffers after a successful call), or is about to (requests submitted
//!    to io_uring and libaio). A program that passes wrong pointers there fails anyway. Data are
//!    never read.
//! 3. *Descriptors* are borrowed for one call, in which the program uses them, too.

mod calls;
mod files;
mod filters;
mod original;
mod queues;
mod shim;
