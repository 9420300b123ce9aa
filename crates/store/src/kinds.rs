//! The kinds of stores that there are: the table `KINDS`, and the syntax by which users choose one.
//! A new kind is one file beside this one and one line in the table, as in
//! `docs/developer/add-a-store.md`. Not here: what a kind is (`kind.rs`), and how a text is taken
//! apart (`parse.rs`).
//!
//! ```text
//! STORE  = NAME [ "(" OPTION { "," OPTION } ")" ] ":" PLACE
//!        | ("delay" | "fail") [ "(" ... ")" ] ":" STORE
//!        | "concat(" STORE { ";" STORE } ")"
//!        | "stripe(" SIZE ";" STORE { ";" STORE } ")"
//!
//! file:PATH  file(direct,threads=32,size=1GiB):PATH     a file or block device
//! mem:  mem(1GiB):                                      memory
//! s3://BUCKET/PREFIX  gs://...  az://...                an object store; s3(object=8MiB)://...
//! s3(lease=off)://BUCKET/PREFIX                        without what keeps a second server away
//! object-file:PATH  object-memory:                      an object store in a folder or in memory
//! nbd://HOST[:PORT]/EXPORT  nbd+unix:///EXPORT?socket=PATH  nbds://...  nbds+unix://...
//! log(/nvme/db.log,size=1GiB):STORE                    a write log before a store
//! delay(5ms):  delay(2ms..8ms,queue=4,seed=1):          a disk that takes its time
//! fail(read,n=3):  fail(write,p=0.01,seed=7,short=enospc):  fail(flush,every=2,stall=1s):
//! fail(write,at=1MiB..2MiB):                            a bad place
//! ```
//! Options are in parentheses right behind the name. A path may stand in double quotes. It must
//! where a character of it would separate: parentheses and semicolons within `concat` and `stripe`,
//! commas in a volume's flag.

use std::str::FromStr;

use crate::kind::{Kind, StoreSpec, parse};
use crate::parse::{Parsed, SpecError, Text};

/// The kinds, by file.
static KINDS: &[&[Kind]] = &[
    &crate::file::KINDS,
    &crate::memory::KINDS,
    &crate::object::KINDS,
    &crate::nbd::KINDS,
    &crate::span::KINDS,
    &crate::log::KINDS,
    &crate::delay::KINDS,
    &crate::fail::KINDS,
];

/// Every kind, in the order of help and error texts.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().flatten()
}

/// Longest accepted text in bytes.
const MAX_TEXT: usize = 64 << 10;

impl StoreSpec {
    /// Parses a text with the kinds in `more` and those of [`kinds`].
    ///
    /// # Errors
    /// Where the text is wrong, and what is expected there.
    pub fn parse_with(text: &str, more: &'static [Kind]) -> Parsed<StoreSpec> {
        let all = Text::new(text);
        if text.len() > MAX_TEXT {
            return all.fail("at most 64 KiB of text");
        }
        if let Some(at) = text.find(|c: char| c.is_control()) {
            return all.range(at, text.len()).fail("no control characters");
        }
        let known: Vec<_> = kinds().chain(more).collect();
        parse(all, &known, 0)
    }
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Parsed<StoreSpec> {
        StoreSpec::parse_with(text, &[])
    }
}
