//! The client side for programs in C: the functions of `include/undercroft.h`, where they are
//! described for their users. Here is only what C needs in between; the work is done in
//! `undercroft-level` and `undercroft-client`.
//!
//! `unsafe`, as frame memory, tracker and preload are. What it rests on:
//! 1. *Handles.* A handle is a `Box` that was given away as a pointer by `_new` or `_open`, and
//!    comes back once, in `_free` or `_close`. In between it is only borrowed, and a caller must
//!    not use it during or after its end; a null one is an error, and every other is believed.
//! 2. *Sharing.* A client's handle is borrowed as shared, and the type behind it is `Sync`. A
//!    table's handle is borrowed as unique; the caller must not use it from two threads at a time.
//!    No borrow is alive while a callback runs, so a callback may use the table.
//! 3. *Memory of the caller.* A pointer with a length is one to so many bytes, which nobody else
//!    changes during the call. It is used in the call only. Null is taken with a length of 0 alone.
//! 4. *Text* ends with a zero byte.
//! 5. *Panics* do not cross into C: every function catches them.

mod cct;
mod client;
mod error;

pub use cct::*;
pub use client::*;
pub use error::*;
