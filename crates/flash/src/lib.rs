//! A cache level on flash between a server's memory and its store, as a state machine without I/O,
//! clock, threads or unseeded randomness: which blocks go to flash, where they lie, and which one
//! goes next. A simulation counts its answers.
//!
//! * [`Flash`] is the level: what it learns of reads, writes and blocks that leave memory, and what
//!   it answers (`level.rs`).
//! * [`Below`] is the level with what it must know of the memory above it (`below.rs`).
//! * [`Slots`] is the directory of what lies on flash (`slots.rs`): 7 bytes a block. Another one
//!   can stand in its place ([`Directory`]), to measure what an order with links would bring.
//! * `ghosts.rs` remembers blocks that left memory and are not on flash: 2 bytes for each that lies
//!   there.
//! * [`Rule`] says what goes to flash, and `admission.rs` how a budget of writes is kept.
//! * [`Recorded`] is the directory with a [`Journal`], so that what lies on flash is found after a
//!   restart ([`recover`]): `recorded.rs`, `journal.rs`, `pages.rs`, `recovery.rs`. What a caller
//!   must keep to is in `journal.rs`.
//! * `voids.rs` has ranges of blocks whose copies count no more and are still to be swept.
//! * [`Superblock`] is the first page of a device, and [`Parts`] lists the parts of the volumes.
//! * [`FlashSpec`] is the configuration as a person writes it.
//!
//! A newcomer lives in memory. When a block leaves memory, it is written to flash if there is
//! evidence that it will come back ([`Evidence`]): it was hit in memory, or it had left before and
//! came back while its ghost was remembered, or it had been on flash. A block that is read from
//! flash keeps its copy there while memory has it too; when it leaves memory unchanged, nothing is
//! written. A write ends the copy. The order and the rule are ours; the window in which ghosts
//! count adapts as that of LARC (Huang et al., MSST 2013), and the order is a generalised CLOCK.
//!
//! Not here: what lies in memory (`crates/level`), and reading and writing devices.
#![forbid(unsafe_code)]

mod admission;
mod below;
mod directory;
mod ghosts;
mod journal;
mod level;
mod pages;
mod parts;
mod recorded;
mod recovery;
mod slots;
mod spec;
mod superblock;
mod voids;

pub use below::{Answer, Below, Reference};
pub use directory::{Directory, Evidence, Slot};
pub use journal::{Commit, Journal, metadata_bytes, slots_beside_journal};
pub use level::{Changed, Flash, FlashCounts, Found};
pub use pages::Stamp;
pub use parts::{PARTS_AT, PARTS_BYTES, Part, Parts};
pub use recorded::Recorded;
pub use recovery::{NotWarm, recover};
pub use slots::{Slots, WAYS, check_of};
pub use spec::{Budget, FlashSpec, Rule, SpecError};
pub use superblock::{DEVICE_MIN_BYTES, FirstPage, HEAD_BYTES, PAGE_BYTES, Superblock};
