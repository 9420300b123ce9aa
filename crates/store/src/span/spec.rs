//! The specification of concatenated or striped stores: `concat(A;B)`, `stripe(64KiB;A;B)`.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::future::join_all;
use undercroft_text::Bytes;

use super::SpanStore;
use crate::kind::{Description, Kind, StoreSpec, Words};
use crate::medium::wrap;
use crate::open::{OpenOptions, invalid};
use crate::parse::{Parsed, Text};
use crate::store::{Answer, Store};

pub(crate) static KINDS: [Kind; 2] = [
    Kind {
        name: "concat",
        form: "concat(...)",
        summary: "stores one after another",
        parse: parse_concat,
    },
    Kind { name: "stripe", form: "stripe(...)", summary: "stores striped", parse: parse_stripe },
];

/// Several stores as one.
#[derive(Debug)]
struct SpanSpec {
    /// Bytes of a stripe; `None`: concatenated.
    stripe: Option<u64>,
    parts: Vec<StoreSpec>,
}

fn parse_concat(words: &Words<'_>) -> Parsed<StoreSpec> {
    let parts = inside(words)?.list(';').into_iter().map(|part| words.store(part));
    let parts = parts.collect::<Parsed<_>>()?;
    Ok(StoreSpec::new(SpanSpec { stripe: None, parts }))
}

fn parse_stripe(words: &Words<'_>) -> Parsed<StoreSpec> {
    let inside = inside(words)?;
    let list = inside.list(';');
    let stripe = list[0].size()?;
    let parts = list[1..].iter().map(|part| words.store(*part)).collect::<Parsed<Vec<_>>>()?;
    if parts.is_empty() {
        return inside.end().fail("`;` and a store");
    }
    Ok(StoreSpec::new(SpanSpec { stripe: Some(stripe), parts }))
}

fn inside<'a>(words: &Words<'a>) -> Parsed<Text<'a>> {
    match words.inside {
        None => words.rest.fail("`(` and stores with `;` between them"),
        Some(_) if !words.rest.text().is_empty() => words.rest.fail("nothing after the `)`"),
        Some(inside) => Ok(inside),
    }
}

impl Description for SpanSpec {
    fn open(&self, options: OpenOptions) -> Answer<io::Result<Arc<dyn Store>>> {
        let opening = self.parts.iter().map(|part| part.open(options.clone()));
        let (opening, stripe) = (join_all(opening), self.stripe);
        Box::pin(async move {
            if options.size.is_some() {
                return Err(invalid(
                    "a size does not go with concat and stripe: give it to the parts, as in \
                     file(size=1GiB):PATH",
                ));
            }
            let number = |(number, part): (usize, io::Result<_>)| {
                part.map_err(|error| wrap(format!("part {}", number + 1), error))
            };
            let parts = opening.await.into_iter().enumerate().map(number);
            let parts = parts.collect::<io::Result<_>>()?;
            let store = match stripe {
                None => SpanStore::concat(parts)?,
                Some(bytes) => SpanStore::stripe(parts, bytes)?,
            };
            Ok(Arc::new(store) as _)
        })
    }

    fn parts(&self) -> &[StoreSpec] {
        &self.parts
    }
}

impl fmt::Display for SpanSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = self.parts.iter().map(StoreSpec::to_string).collect::<Vec<_>>().join(";");
        match self.stripe {
            None => write!(f, "concat({parts})"),
            Some(bytes) => write!(f, "stripe({};{parts})", Bytes(bytes)),
        }
    }
}
