//! Another NBD server's export as a store. The protocol is not here; the caller that opens the
//! store provides the connection.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use undercroft_text::Uri;

use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::open::{OpenOptions, invalid};
use crate::parse::Parsed;
use crate::store::{Answer, Store};

const fn kind(name: &'static str, form: &'static str) -> Kind {
    Kind { name, form, summary: "an export of another NBD server", parse }
}

pub(crate) static KINDS: [Kind; 4] = [
    kind("nbd", "nbd://HOST/NAME"),
    kind("nbds", ""),
    kind("nbd+unix", "nbd+unix:///NAME?socket=PATH"),
    kind("nbds+unix", ""),
];

/// The address of the export.
#[derive(Debug)]
struct Export(Uri);

fn parse(words: &Words<'_>) -> Parsed<StoreSpec> {
    if let Some(inside) = words.inside {
        return inside.fail("no options for an NBD server");
    }
    let Some(place) = words.rest.after("://") else { return words.rest.fail("://") };
    let uri = format!("{}{}", words.name, words.rest.text());
    match uri.parse() {
        Ok(uri) => Ok(StoreSpec::new(Export(uri))),
        Err(error) => place.fail(&format!("the address of an export ({})", error.what)),
    }
}

impl Description for Export {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let uri = self.0.clone();
        Box::pin(async move {
            let name = uri.to_string();
            let Some(connect) = &options.upstream else {
                let why = format!("{name}: this program cannot use another NBD server as a store");
                return Err(io::Error::new(ErrorKind::Unsupported, why));
            };
            let store = connect(uri, options.read_only).await?;
            let found = store.facts().size;
            match options.size {
                Some(told) if told != found => Err(invalid(&format!(
                    "{name}: has {found} bytes, not {told}; leave the size away"
                ))),
                _ => Ok(store),
            }
        })
    }

    fn is_upstream(&self) -> bool {
        true
    }
}

impl fmt::Display for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
