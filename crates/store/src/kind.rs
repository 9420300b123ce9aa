//! The kinds of stores: the table `KINDS`, and the syntax by which users choose one. A new kind is
//! one file beside this one and one line in the table; `docs/developer/add-a-store.md` shows how.
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
//! delay(5ms):  delay(2ms..8ms,queue=4,seed=1):          a disk that takes its time
//! fail(read,n=3):  fail(write,p=0.01,seed=7,short=enospc):  fail(flush,every=2,stall=1s):
//! fail(write,at=1MiB..2MiB):                            a bad place
//! ```
//! Options are in parentheses right behind the name. A path may stand in double quotes. It must
//! where a character of it would separate: parentheses and semicolons within `concat` and `stripe`,
//! commas in a volume's flag.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use crate::open::OpenOptions;
use crate::parse::{Parsed, Setting, SpecError, Text};
use crate::store::{Answer, Store};

/// The kinds, by file.
static KINDS: &[&[Kind]] = &[
    &crate::file::KINDS,
    &crate::memory::KINDS,
    &crate::object::KINDS,
    &crate::nbd::KINDS,
    &crate::span::KINDS,
    &crate::delay::KINDS,
    &crate::fail::KINDS,
];

/// Every kind, in the order of help and error texts.
pub fn kinds() -> impl Iterator<Item = &'static Kind> {
    KINDS.iter().copied().flatten()
}

/// Longest accepted text in bytes.
const MAX_TEXT: usize = 64 << 10;

/// Most nested wrappers and lists.
const MAX_DEPTH: u32 = 16;

/// A kind of store.
pub struct Kind {
    /// Its name, with which a specification begins.
    pub name: &'static str,
    /// Its syntax, for help and error texts; empty: not listed there.
    pub form: &'static str,
    /// A short description.
    pub summary: &'static str,
    /// Parses what follows the name.
    pub parse: fn(&Words<'_>) -> Parsed<StoreSpec>,
}

/// The description of a store that can be opened, parsed from a user's text.
///
/// `Display` writes a text that parses to an equal description, without options at their defaults.
pub trait Description: fmt::Display + fmt::Debug + Send + Sync {
    /// Opens the store and its parts. Must be awaited within a tokio runtime with timers, which
    /// object stores and delays continue to use. Creating a file waits for the disk.
    ///
    /// # Errors
    /// The store that could not be opened, and why. [`io::ErrorKind::InvalidInput`]: the text and
    /// the options contradict each other, or do not match the existing store.
    /// [`AWAY`](crate::AWAY): its service cannot be reached now.
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>>;

    /// The stores that it consists of.
    fn parts(&self) -> &[StoreSpec] {
        &[]
    }

    /// The file or block device that contains its bytes.
    fn file(&self) -> Option<&Path> {
        None
    }

    /// Whether it is another server's export.
    fn is_upstream(&self) -> bool {
        false
    }

    /// Whether it only changes the behaviour of its single part.
    fn is_wrapper(&self) -> bool {
        false
    }
}

/// A description of a store that can be opened. Two are equal if their texts are.
///
/// ```
/// use undercroft_store::{OpenOptions, StoreSpec};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let spec: StoreSpec = "delay(1ms):mem(1MiB):".parse()?;
/// let store = spec.open(OpenOptions::default()).await?;
/// assert_eq!(store.facts().size, 1 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct StoreSpec(Arc<dyn Description>);

impl StoreSpec {
    /// Wraps a description.
    pub fn new(description: impl Description + 'static) -> StoreSpec {
        StoreSpec(Arc::new(description))
    }

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
        parse(all, more, 0)
    }

    /// Opens the store; see [`Description::open`].
    ///
    /// # Errors
    /// See [`Description::open`].
    pub fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        self.0.open(options)
    }

    /// Whether it is another server's export, without wrappers.
    pub fn is_upstream(&self) -> bool {
        self.0.is_upstream()
    }

    /// The files and block devices that contain its bytes.
    pub fn files(&self) -> Vec<&Path> {
        let parts = self.0.parts().iter().flat_map(StoreSpec::files);
        self.0.file().into_iter().chain(parts).collect()
    }

    /// The store inside its wrappers, and the texts of the wrappers, the outermost first.
    pub fn unwrapped(&self) -> (&StoreSpec, Vec<String>) {
        let (mut store, mut wrappers) = (self, Vec::new());
        while let (true, [inner]) = (store.0.is_wrapper(), store.0.parts()) {
            let text = store.to_string();
            let wrapper = text.strip_suffix(&format!(":{inner}")).unwrap_or(&text);
            wrappers.push(wrapper.to_owned());
            store = inner;
        }
        (store, wrappers)
    }
}

impl FromStr for StoreSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Parsed<StoreSpec> {
        StoreSpec::parse_with(text, &[])
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreSpec({self})")
    }
}

impl PartialEq for StoreSpec {
    fn eq(&self, other: &StoreSpec) -> bool {
        self.to_string() == other.to_string()
    }
}

/// The specification of a store, split behind the name of its kind.
pub struct Words<'a> {
    /// The name of the kind.
    pub name: &'static str,
    /// The text in the parentheses, if there are any.
    pub inside: Option<Text<'a>>,
    /// The text behind that.
    pub rest: Text<'a>,
    more: &'static [Kind],
    depth: u32,
}

impl<'a> Words<'a> {
    /// The options in the parentheses.
    pub fn options(&self) -> Vec<Setting<'a>> {
        self.inside.map_or(Vec::new(), Text::options)
    }

    /// The text behind the `:` that follows the name and the options.
    ///
    /// # Errors
    /// The `:` is missing.
    pub fn place(&self) -> Parsed<Text<'a>> {
        self.rest.after(":").map_or_else(|| self.rest.fail("`:`"), Ok)
    }

    /// Parses a nested store.
    ///
    /// # Errors
    /// As for the whole text.
    pub fn store(&self, text: Text<'a>) -> Parsed<StoreSpec> {
        parse(text, self.more, self.depth + 1)
    }
}

fn parse(all: Text<'_>, more: &'static [Kind], depth: u32) -> Parsed<StoreSpec> {
    if depth == MAX_DEPTH {
        return all.fail("at most 16 wrappers and lists around one another");
    }
    let name_end = all.text().find(['(', ':']).unwrap_or(all.text().len());
    let (name, rest) = (all.range(0, name_end), all.range(name_end, all.text().len()));
    let known = || kinds().chain(more);
    let (inside, rest) = rest.parentheses()?;
    let Some(kind) = known().find(|kind| kind.name == name.text()) else {
        let forms: Vec<_> = known().map(|kind| kind.form).filter(|form| !form.is_empty()).collect();
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        return all.fail(&format!("a store: {} or {last}", others.join(", ")));
    };
    (kind.parse)(&Words { name: kind.name, inside, rest, more, depth })
}
