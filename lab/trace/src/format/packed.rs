//! What the binary formats share: numbers, places of damage, and a reader that turns packed records
//! of one size into requests.

use crate::format::spaces::Spaces;
use crate::format::text::{BATCH, Fault, Parse};
use crate::input::Input;
use crate::{Error, LeftOut, Meta, Reader, Record};

/// The reader of packed records, each of which `parse` reads.
pub(crate) struct Packed<P> {
    input: Input,
    /// Bytes of a record.
    size: usize,
    parse: P,
    /// Records that a header promises; 0: none does.
    promised: u64,
    /// Records so far.
    read: u64,
    meta: Meta,
    spaces: Spaces,
    left_out: LeftOut,
}

impl<P: Fn(&[u8]) -> Parse<Record> + Send + 'static> Packed<P> {
    /// `size`: bytes of a record; `promised`: how many records a header says there are, or 0.
    pub(crate) fn boxed(
        input: Input,
        meta: Meta,
        size: usize,
        promised: u64,
        parse: P,
    ) -> Box<dyn Reader> {
        let (spaces, left_out) = (Spaces::single(), LeftOut::default());
        Box::new(Packed { input, size, parse, promised, read: 0, meta, spaces, left_out })
    }
}

impl<P: Fn(&[u8]) -> Parse<Record> + Send> Reader for Packed<P> {
    fn meta(&self) -> &Meta {
        &self.meta
    }

    fn read(&mut self, records: &mut Vec<Record>) -> Result<(), Error> {
        let full = records.len() + BATCH;
        while records.len() < full {
            let bytes = self.input.peek(self.size)?;
            if bytes.len() < self.size {
                whole_records(&self.input, self.size)?;
                return self.end();
            }
            match (self.parse)(&bytes[..self.size]) {
                Ok(record) => records.push(record),
                Err(fault) => match *fault {
                    Fault::LeftOut(reason) => self.left_out.count(reason, 1),
                    fault => return Err(damaged(&self.input, fault)),
                },
            }
            self.input.consume(self.size);
            self.read += 1;
        }
        Ok(())
    }

    fn spaces(&self) -> &[String] {
        self.spaces.names()
    }

    fn left_out(&self) -> LeftOut {
        self.left_out
    }
}

impl<P> Packed<P> {
    /// All promised records must have been there.
    fn end(&self) -> Result<(), Error> {
        if self.promised == 0 || self.promised == self.read {
            return Ok(());
        }
        let wish = format!("{} records, as the header says", self.promised);
        Err(self.input.damaged(wish, format!("the end after {}", self.read)))
    }
}

/// At the end of a file of fixed records: nothing may be left.
pub(crate) fn whole_records(input: &Input, size: usize) -> Result<(), Error> {
    match input.buffered().len() {
        0 => Ok(()),
        left => Err(input.damaged(format!("a record of {size} bytes"), format!("the last {left}"))),
    }
}

/// Says where the fault is: in the record that begins here.
pub(crate) fn damaged(input: &Input, fault: Fault) -> Error {
    match fault {
        Fault::Expected { expected, found } => input.damaged(expected, found),
        Fault::Limit(text) => Error::Limit(format!("{}: {text}", input.path().display())),
        Fault::LeftOut(reason) => damaged(input, Fault::no_request(reason)),
    }
}

#[inline]
pub(crate) fn four(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes[at..at + 4].try_into().expect("four bytes")
}

#[inline]
pub(crate) fn eight(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
