//! Ends long work early: when a signal arrived (a person pressed Ctrl-C), when another thread
//! stopped it, or when a policy in Python failed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use undercroft_sim::Error;
use undercroft_trace::{Reader, inspect};

use crate::errors::raise;

/// Time between two looks for signals.
const INTERVAL: Duration = Duration::from_millis(100);

/// Stops work in other threads.
#[pyclass(frozen, module = "undercroft._native")]
#[derive(Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

#[pymethods]
impl Stop {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Ends all work that was started with this.
    fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The first exception that Python code or a signal raised during the work.
#[derive(Clone, Default)]
pub(crate) struct Failure(Arc<Mutex<Option<PyErr>>>);

impl Failure {
    pub(crate) fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn is_set(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Looks whether work is to go on.
#[derive(Clone)]
pub(crate) struct Watch {
    failure: Failure,
    stop: Option<Arc<AtomicBool>>,
    next: Instant,
}

impl Watch {
    pub(crate) fn new(stop: Option<&Stop>) -> Self {
        let stop = stop.map(|stop| Arc::clone(&stop.0));
        Self { failure: Failure::default(), stop, next: Instant::now() + INTERVAL }
    }

    /// Where exceptions that end the work are kept.
    pub(crate) fn failure(&self) -> &Failure {
        &self.failure
    }

    /// Whether work may go on. Only the interpreter's main thread sees signals.
    pub(crate) fn look(&mut self) -> Result<(), Error> {
        if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            return Err(Error::Stopped);
        }
        let now = Instant::now();
        if now >= self.next {
            self.next = now + INTERVAL;
            if let Err(error) = Python::attach(|py| py.check_signals()) {
                self.failure.set(error);
            }
        }
        if self.failure.is_set() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// The result of the work, or what ended it.
    pub(crate) fn end<T>(&self, result: Result<T, Error>) -> PyResult<T> {
        match self.failure.take() {
            Some(error) => Err(error),
            None => result.map_err(raise),
        }
    }

    /// A reader that ends when the work is to end.
    pub(crate) fn reader(&self, reader: Box<dyn Reader>) -> Box<dyn Reader> {
        let mut watch = self.clone();
        inspect(reader, move |_| {
            watch.look().map_err(|_| undercroft_trace::Error::Limit("stopped".into()))
        })
    }
}
