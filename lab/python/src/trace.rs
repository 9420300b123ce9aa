//! Traces: where one comes from, and its references once they are needed.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use numpy::PyArray1;
use pyo3::prelude::*;
use undercroft_sim::{Error, EvictionsFrom, Prepared, TraceInput};
use undercroft_trace::{BlockOptions, BlockStream, Reader};

use crate::arrays::Columns;
use crate::errors::raise;
use crate::watch::{Stop, Watch};

/// A trace. It is read when its references are needed, and kept.
#[pyclass(frozen, module = "undercroft._native")]
pub(crate) struct Trace {
    source: Source,
    path: PathBuf,
    input: TraceInput,
    /// Its references, with evictions from each source that was asked for.
    prepared: Mutex<Vec<(EvictionsFrom, Arc<Prepared>)>>,
}

enum Source {
    File,
    Arrays(Columns),
}

#[pymethods]
impl Trace {
    /// Opens a file, to find out that it is a trace.
    #[staticmethod]
    #[pyo3(signature = (path, format=None, block=None, unit=None))]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        format: Option<String>,
        block: Option<String>,
        unit: Option<u32>,
    ) -> PyResult<Self> {
        let trace = Self::of(Source::File, path, TraceInput { format, block, unit });
        py.detach(|| {
            let reader = trace.input.open(&trace.path)?;
            trace.input.stream(reader, BlockOptions::default())
        })
        .map_err(raise)?;
        Ok(trace)
    }

    /// From arrays of equal lengths, which must not change.
    #[staticmethod]
    #[pyo3(signature = (name, blocks, is_write=None, time_ns=None, block=None, unit=None))]
    fn from_arrays(
        name: PathBuf,
        blocks: Bound<'_, PyArray1<u64>>,
        is_write: Option<Bound<'_, PyArray1<bool>>>,
        time_ns: Option<Bound<'_, PyArray1<u64>>>,
        block: Option<String>,
        unit: Option<u32>,
    ) -> PyResult<Self> {
        let columns = Columns::new(blocks, is_write, time_ns)?;
        let input = TraceInput { format: None, block, unit };
        let trace = Self::of(Source::Arrays(columns), name, input);
        trace.stream(&Watch::new(None), BlockOptions::default()).map_err(raise)?;
        Ok(trace)
    }

    /// What the trace contains, as JSON.
    #[pyo3(signature = (stop=None))]
    fn about(&self, py: Python<'_>, stop: Option<&Stop>) -> PyResult<String> {
        let watch = Watch::new(stop);
        let prepared = watch.end(py.detach(|| self.prepared(&watch, EvictionsFrom::Exact)))?;
        let text = serde_json::to_string(prepared.about());
        text.map_err(|error| raise(Error::Request(error.to_string())))
    }

    /// Block size in bytes.
    #[getter]
    fn block_bytes(&self, py: Python<'_>) -> PyResult<u32> {
        let watch = Watch::new(None);
        let stream = || Ok(self.stream(&watch, BlockOptions::default())?.1);
        watch.end(py.detach(stream))
    }
}

impl Trace {
    fn of(source: Source, path: PathBuf, input: TraceInput) -> Self {
        Self { source, path, input, prepared: Mutex::default() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn input(&self) -> &TraceInput {
        &self.input
    }

    /// Opens the trace at its beginning.
    pub(crate) fn reader(&self, watch: &Watch) -> Result<Box<dyn Reader>, Error> {
        let reader = match &self.source {
            Source::File => self.input.open(&self.path)?,
            Source::Arrays(columns) => {
                let name = self.path.display().to_string();
                Python::attach(|py| columns.reader(py, &name))
            }
        };
        Ok(watch.reader(reader))
    }

    /// Opens the trace as a stream of blocks, with their size in bytes.
    pub(crate) fn stream(
        &self,
        watch: &Watch,
        options: BlockOptions,
    ) -> Result<(BlockStream, u32), Error> {
        self.input.stream(self.reader(watch)?, options)
    }

    /// The references, with evictions from a source. They are read by whoever needs them first:
    /// once without recorded evictions, and once for each source of these. Not to be called with
    /// the interpreter's lock, which reading may take.
    pub(crate) fn prepared(
        &self,
        watch: &Watch,
        from: EvictionsFrom,
    ) -> Result<Arc<Prepared>, Error> {
        if from == EvictionsFrom::Estimate {
            let exact = self.prepared(watch, EvictionsFrom::Exact)?;
            return Ok(Arc::new(exact.with_estimated_evictions()));
        }
        let mut prepared = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, ready)) = prepared.iter().find(|(source, _)| *source == from) {
            return Ok(Arc::clone(ready));
        }
        let (stream, block_bytes) = self.stream(watch, from.needs())?;
        let (trace, evictions) = from.load(stream, block_bytes, &self.path, |_| ())?;
        let path = self.path.display().to_string();
        let ready = Arc::new(Prepared::new(trace, path, block_bytes, evictions));
        prepared.push((from, Arc::clone(&ready)));
        Ok(ready)
    }
}
