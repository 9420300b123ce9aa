//! What a kind of store is, and how a text becomes a store of one of them: the name of a kind, its
//! options in parentheses, and what follows. Not here: which kinds there are, and what users may
//! write (`kinds.rs`).

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::open::OpenOptions;
use crate::parse::{Parsed, Setting, Text};
use crate::store::{Answer, Store};

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
    known: &'a [&'static Kind],
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
        parse(text, self.known, self.depth + 1)
    }
}

/// Parses a text as a store of one of the known kinds, within `depth` others.
pub(crate) fn parse(all: Text<'_>, known: &[&'static Kind], depth: u32) -> Parsed<StoreSpec> {
    if depth == MAX_DEPTH {
        return all.fail("at most 16 wrappers and lists around one another");
    }
    let name_end = all.text().find(['(', ':']).unwrap_or(all.text().len());
    let (name, rest) = (all.range(0, name_end), all.range(name_end, all.text().len()));
    let (inside, rest) = rest.parentheses()?;
    let Some(kind) = known.iter().find(|kind| kind.name == name.text()) else {
        let forms = known.iter().map(|kind| kind.form).filter(|form| !form.is_empty());
        let forms: Vec<_> = forms.collect();
        let (last, others) = forms.split_last().unwrap_or((&"", &[]));
        return all.fail(&format!("a store: {} or {last}", others.join(", ")));
    };
    (kind.parse)(&Words { name: kind.name, inside, rest, known, depth })
}
