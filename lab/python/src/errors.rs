//! Errors of the libraries as Python's exceptions: what a caller asked for wrongly is a
//! `ValueError`, what the system refused an `OSError` of its kind, and a damaged trace a
//! `TraceError`.

use pyo3::exceptions::{PyAssertionError, PyOSError, PyValueError};
use pyo3::{PyErr, create_exception};
use undercroft_sim::Error;

create_exception!(undercroft, TraceError, PyValueError, "A trace that is damaged or not known.");
create_exception!(
    undercroft,
    ContractError,
    PyAssertionError,
    "A policy does not keep the contract of policies."
);

/// The exception for an error.
pub(crate) fn raise(error: Error) -> PyErr {
    match error {
        Error::Trace(undercroft_trace::Error::Io { path, source }) => {
            os_error(&source, &path.display().to_string())
        }
        Error::Trace(error) => TraceError::new_err(error.to_string()),
        Error::Results { path, source } => os_error(&source, &path),
        error => PyValueError::new_err(in_python(&error.to_string())),
    }
}

/// A text whose options are written as Python has them: `peer_fetch` for `--peer-fetch`. Words that
/// do not begin with dashes, such as paths, stay.
fn in_python(text: &str) -> String {
    let words = text.split_inclusive([' ', '(']).map(|word| match word.strip_prefix("--") {
        Some(option) => option.replace('-', "_"),
        None => word.to_owned(),
    });
    words.collect()
}

/// `OSError` makes itself a `FileNotFoundError` and the like from the number of the error.
fn os_error(source: &std::io::Error, path: &str) -> PyErr {
    match source.raw_os_error() {
        Some(number) => {
            let text = source.to_string();
            let text = text.split(" (os error").next().unwrap_or_default().to_owned();
            PyOSError::new_err((number, text, path.to_owned()))
        }
        None => PyOSError::new_err(format!("{path}: {source}")),
    }
}

/// What one argument is wrong with.
pub(crate) fn wrong(name: &str, why: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {why}"))
}
