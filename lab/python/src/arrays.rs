//! A trace in NumPy arrays, read as any other trace. The arrays are not copied.

use numpy::{PyArray1, PyArrayMethods, PyUntypedArrayMethods};
use pyo3::prelude::*;
use undercroft_trace::{Error, Meta, Op, Reader, Record, Unit};

/// Records of a call to [`Reader::read`].
const RECORDS: usize = 1 << 14;

/// Columns of equal lengths; contiguous.
pub(crate) struct Columns {
    blocks: Py<PyArray1<u64>>,
    is_write: Option<Py<PyArray1<bool>>>,
    time_ns: Option<Py<PyArray1<u64>>>,
}

impl Columns {
    /// Checks the arrays.
    pub(crate) fn new(
        blocks: Bound<'_, PyArray1<u64>>,
        is_write: Option<Bound<'_, PyArray1<bool>>>,
        time_ns: Option<Bound<'_, PyArray1<u64>>>,
    ) -> PyResult<Self> {
        let length = blocks.len();
        let lengths = [is_write.as_ref().map(|a| a.len()), time_ns.as_ref().map(|a| a.len())];
        for (name, other) in ["is_write", "time_ns"].into_iter().zip(lengths) {
            if other.is_some_and(|other| other != length) {
                let why = format!("{} values for {length} blocks", other.unwrap_or(0));
                return Err(crate::errors::wrong(name, why));
            }
        }
        Ok(Self {
            blocks: blocks.unbind(),
            is_write: is_write.map(Bound::unbind),
            time_ns: time_ns.map(Bound::unbind),
        })
    }

    /// Reads them from the beginning.
    pub(crate) fn reader(&self, py: Python<'_>, name: &str) -> Box<dyn Reader> {
        let meta = Meta {
            format: "array",
            unit: Unit::Blocks,
            block_bytes: None,
            has_ops: self.is_write.is_some(),
            has_time: self.time_ns.is_some(),
            has_buffers: false,
            has_evictions: false,
        };
        let columns = Self {
            blocks: self.blocks.clone_ref(py),
            is_write: self.is_write.as_ref().map(|a| a.clone_ref(py)),
            time_ns: self.time_ns.as_ref().map(|a| a.clone_ref(py)),
        };
        Box::new(ArrayReader { columns, meta, spaces: vec![name.to_owned()], next: 0 })
    }

    fn append(&self, py: Python<'_>, from: usize, records: &mut Vec<Record>) -> PyResult<usize> {
        let blocks = self.blocks.bind(py).try_readonly()?;
        let is_write = self.is_write.as_ref().map(|a| a.bind(py).try_readonly()).transpose()?;
        let time_ns = self.time_ns.as_ref().map(|a| a.bind(py).try_readonly()).transpose()?;
        let is_write = is_write.as_ref().map(|a| a.as_slice()).transpose()?;
        let time_ns = time_ns.as_ref().map(|a| a.as_slice()).transpose()?;
        let blocks = blocks.as_slice()?;
        let end = blocks.len().min(from + RECORDS);
        records.extend((from..end).map(|at| Record {
            time_ns: time_ns.map_or(0, |times| times[at]),
            op: if is_write.is_some_and(|marks| marks[at]) { Op::Write } else { Op::Read },
            space: 0,
            address: blocks[at],
            length: 1,
            buffer: None,
            client: 0,
        }));
        Ok(end)
    }
}

struct ArrayReader {
    columns: Columns,
    meta: Meta,
    spaces: Vec<String>,
    next: usize,
}

impl Reader for ArrayReader {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let end = Python::attach(|py| self.columns.append(py, self.next, records));
        self.next = end.map_err(|error| Error::Format(format!("arrays: {error}")))?;
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        &self.spaces
    }
}
