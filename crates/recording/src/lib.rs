//! Recordings of requests: what a record says, how it is written in our compact format, and files
//! that follow one another. Reading, other formats and generators are in `lab/trace`.
#![forbid(unsafe_code)]

mod error;
mod output;
mod record;
mod rotation;
pub mod uct;
mod write;

pub use error::Error;
pub use output::Output;
pub use record::{Meta, Op, Record, Unit};
pub use rotation::{Rotation, RotationOptions};
pub use write::{Writer, refused, space_name};
