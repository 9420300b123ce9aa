//! `undercroft._native`: what the Python package `undercroft` calls. The package itself, with its
//! documentation, is in `python/undercroft`; arguments arrive here checked for their types only.
//!
//! Work that takes long releases the interpreter's lock, and looks for signals ten times a second
//! (`watch.rs`). Errors become Python's exceptions in `errors.rs`.

mod arrays;
mod characterize;
mod clients;
mod errors;
mod options;
mod policy;
mod simulate;
mod sweep;
mod trace;
mod watch;

/// The module.
#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use crate::characterize::{characterize, miss_ratio_curve};
    #[pymodule_export]
    use crate::errors::{ContractError, TraceError};
    #[pymodule_export]
    use crate::options::{formats, policies, split_placements, split_policies};
    #[pymodule_export]
    use crate::policy::check_policy;
    #[pymodule_export]
    use crate::simulate::simulate;
    #[pymodule_export]
    use crate::sweep::{Journal, Plan, about_file, reading};
    #[pymodule_export]
    use crate::trace::Trace;
    #[pymodule_export]
    use crate::watch::Stop;

    /// Sizes of a sweep where none are given.
    #[pymodule_export]
    const SIZES: &str = undercroft_sim::Plan::SIZES;
}
