//! The flash level against models that are written from its description.

mod level;
mod slots;
