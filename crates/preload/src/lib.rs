//! A library to preload (`LD_PRELOAD`) into an unmodified program: it stands in front of the C
//! library's functions for I/O, lets each call through as it came, and tells the tracker what the
//! call says of the program's buffers. What follows from that is `undercroft-tracker`'s business;
//! here are only the functions.
//!
//! What a program sees does not change: results, `errno`, descriptors, signals, children. Calls
//! pass through and nothing else happens: before the constructor has run; if nothing is to be
//! tracked, or the settings are wrong (one line is said); on descriptors that are not tracked; in
//! the tracker's own thread; in a signal handler that interrupted the tracker; and for ever after a
//! panic.
//!
//! What the `unsafe` code rests on:
//! 1. *Originals.* A function of the C library that is looked up by its name has the type that the
//!    library's headers say; ours have the same. `open` and `fcntl` have an argument that callers
//!    may leave out: on all machines that Linux runs on the register or slot is then read and
//!    passed on as it is, and the original does not look at it.
//! 2. *Arguments.* Pointers are passed on as they came. They are followed only where the original
//!    has followed them (lists of buffers after a call that succeeded), or where it is about to
//!    (requests handed to io_uring and libaio): a program that passes wrong ones there fails
//!    anyhow. Data is never looked at.
//! 3. *Descriptors* are borrowed for one call in which the program uses them, too.

mod calls;
mod files;
mod original;
mod queues;
mod shim;
