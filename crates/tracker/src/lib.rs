//! Tracks which blocks a program holds in its buffers, from the addresses of its reads and writes,
//! and reports evictions to the server of the volume. The program is not changed: `crates/preload`
//! calls this from the I/O functions that it intercepts.
//!
//! | module | |
//! | --- | --- |
//! | `settings` | environment to checked types |
//! | `segment` | the memory that forked processes share, and its layout |
//! | `table` | address to block, and back; `ahead`: asking for its memory early |
//! | `files`, `fds` | which file is behind a descriptor |
//! | `filter` | when the program's threads must not call the system |
//! | `device`, `extents` | where the bytes of a file lie on the volume |
//! | `groups` | how much memory the program may take |
//! | `space` | whose memory an address is in |
//! | `pools` | memory of which all pages are frames, also those that were never read into |
//! | `tracker` | what a call means for all of these |
//! | `kept`, `contents`, `own_memory` | what is in a frame that is about to be overwritten |
//! | `record`, `ring`, `sender`, `session` | the way of an eviction to the server |
//! | `clock` | the time, and what a scan costs |
//! | `calls`, `recording` | requests and evictions for a recorder, which is another process |
//! | `status` | all of it seen from another process |
//!
//! Three rules hold throughout.
//! 1. *A tracked call* neither allocates, nor waits, nor changes `errno`, nor takes a lock. Shared
//!    words are changed by single atomic operations, so that a process killed at any point blocks
//!    no other. What cannot be done at once is skipped and counted.
//!    It calls the system only with a permit of `filter`. One thing breaks this: a call that finds
//!    no sender starts one, also if it is in a signal handler that interrupted `malloc`.
//! 2. *Blocks are named by file and offset* until they are sent. Only the sender asks the file
//!    system for a file's position, after the block has left.
//! 3. *The table may be wrong without harm*: a wrong hint costs the server at most a hit.
//!
//! `unsafe` code calls the system where safe libraries do not suffice: the mapping of the segment
//! (`segment/mapping.rs`), extents (`extents.rs`), the sender's descriptor table
//! (`sender/alone.rs`), prefetching (`ahead.rs`), reading frames (`own_memory.rs`), the clock
//! (`clock.rs`), and the program's descriptors (`tracker.rs`).

mod ahead;
mod calls;
mod clock;
pub mod contents;
pub mod device;
pub mod extents;
pub mod fds;
pub mod files;
pub mod filter;
mod groups;
mod kept;
mod own_memory;
pub mod pools;
mod record;
pub mod recording;
pub mod ring;
pub mod segment;
pub mod sender;
mod session;
pub mod settings;
mod space;
pub mod status;
mod sync;
pub mod table;
mod text;
mod tracker;

pub use calls::CallKind;
pub use clock::now_us;
pub use kept::Kept;
pub use settings::{Settings, SettingsError};
pub use status::Status;
pub use table::GRANULE;
pub use tracker::{Direction, StartError, Tracked, Tracker, Transfer};
