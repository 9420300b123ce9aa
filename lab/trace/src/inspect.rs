//! A reader that shows its records to a function as they are read: to count them, or to end the
//! reading. It changes nothing.

use crate::{Error, LeftOut, Meta, Reader, Record};

/// Shows every batch of records to `look` before it is passed on; an error of `look` ends the
/// reading. The batch at the end of the trace is empty.
pub fn inspect<F>(reader: Box<dyn Reader>, look: F) -> Box<dyn Reader>
where
    F: FnMut(&[Record]) -> Result<(), Error> + Send + 'static,
{
    Box::new(Inspected { reader, look })
}

struct Inspected<F> {
    reader: Box<dyn Reader>,
    look: F,
}

impl<F: FnMut(&[Record]) -> Result<(), Error> + Send> Reader for Inspected<F> {
    fn meta(&self) -> &Meta {
        self.reader.meta()
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let before = records.len();
        self.reader.read(records)?;
        (self.look)(&records[before..])
    }

    fn spaces(&self) -> &[String] {
        self.reader.spaces()
    }

    fn left_out(&self) -> LeftOut {
        self.reader.left_out()
    }

    fn unused(&self) -> &[String] {
        self.reader.unused()
    }
}
