//! `.trc`, the text format of the LIRS papers: one block number a line, reads all of them. A line
//! that holds only `*` is a checkpoint mark of its programs and no reference.

use crate::Record;
use crate::format::lis::bare_meta;
use crate::format::plain::{block, create_bare};
use crate::format::spaces::Spaces;
use crate::format::text::{Lines, Parse, TextFormat, TextReader};
use crate::format::{Entry, Format};

pub(crate) const ENTRY: Entry = Entry {
    info: Format {
        name: "trc",
        about: "LIRS text: one block number a line, * marks",
        extensions: &["trc"],
        options: "",
        writable: true,
    },
    fits: |sample| sample.parses(Trc),
    open: |input, _| {
        Ok(TextReader::boxed(Lines::new(input), Trc, bare_meta("trc"), Spaces::single()))
    },
    create: Some(|path, meta| create_bare(path, "trc", meta)),
};

struct Trc;

impl TextFormat for Trc {
    #[inline]
    fn line(&mut self, line: &[u8], _: &mut Spaces) -> Parse<Option<Record>> {
        if line.trim_ascii() == b"*" { Ok(None) } else { block(line) }
    }
}
