//! The flash level against models that are written from its description.

mod devices;
mod level;
mod parts;
mod recorded;
mod restart;
mod slots;
