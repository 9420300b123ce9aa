//! Block traces: many formats in, a few out, split into cache blocks and renumbered densely; and
//! generators of synthetic ones. No cache policy lives here.
#![forbid(unsafe_code)]

mod blocks;
mod container;
mod dense;
mod format;
mod generate;
mod input;
mod inspect;
mod left_out;
mod merge;
mod open;
mod record;
mod renumber;
mod write;

pub use blocks::{
    BlockOptions, BlockStream, CHUNK_REFERENCES, Counts, Gone, MIN_BLOCK_BYTES, Origin, Ref,
};
pub use dense::{Chunks, DenseOptions, DenseTrace};
pub use format::{Format, formats, text};
pub use generate::{GENERATORS, Generator, GeneratorError, GeneratorSpec, Kind, Parameter};
pub use inspect::inspect;
pub use left_out::{LeftOut, Reason};
pub use merge::merge;
pub use open::{OpenOptions, open};
pub use record::{Meta, Op, Reader, Record, Unit};
pub use renumber::{BlockNames, Key, MAX_BLOCKS, Renumbering};
pub use undercroft_recording::{Error, Writer};
pub use write::create;
