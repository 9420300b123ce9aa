//! Block traces: many formats in, a few out, split into cache blocks and renumbered densely; and
//! generators of synthetic ones. No cache policy lives here.
#![forbid(unsafe_code)]

mod error;
mod record;

pub use error::Error;
pub use record::{Meta, Op, Reader, Record, Unit};
