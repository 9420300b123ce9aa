//! Metadata contexts: selects those that match a client's queries.

use bytes::BytesMut;

use super::handshake::OptionError;
use crate::generation::{self, ConnectionGeneration};
use crate::service::{Context, Export};
use crate::wire::*;

/// Most contexts of a session. There is one standard context, and few others.
const MAX_CONTEXTS: usize = 64;

/// The contexts that a client selected or listed.
#[derive(Clone, Debug)]
pub(super) struct Selection {
    /// The export's name as the client wrote it; the selection is valid for this export only.
    pub(super) export: String,
    pub(super) contexts: Vec<Context>,
}

impl Selection {
    /// Asks the export. Without a query, all contexts are listed and none is selected. A namespace
    /// without a name (`base:`) is a wildcard, which only lists.
    pub(super) fn new(
        export: &dyn Export,
        query: ContextQuery,
        set: bool,
    ) -> Result<Selection, OptionError> {
        let mut contexts: Vec<Context> = Vec::new();
        let all = [String::new()];
        let queries = match query.queries.as_slice() {
            [] if !set => &all[..],
            queries => queries,
        };
        let wildcard = |query: &str| query.is_empty() || query.ends_with(':');
        for query in queries.iter().filter(|query| !(set && wildcard(query))) {
            for context in of_line(query).into_iter().chain(export.contexts(query)) {
                // One of each kind, even if several queries match it.
                let known = contexts.iter().any(|other| other.key == context.key);
                if !known && context.name.len() <= MAX_STRING {
                    contexts.push(context);
                }
            }
            if contexts.len() > MAX_CONTEXTS {
                return Err((REP_ERR_TOO_BIG, "too many metadata contexts".to_owned()));
            }
        }
        Ok(Selection { export: query.name, contexts })
    }

    /// The connection's place in the client's series, if the client sent it.
    pub(super) fn generation(&self) -> Option<ConnectionGeneration> {
        let context = self.contexts.iter().find(|context| context.key == generation::KEY)?;
        ConnectionGeneration::parse(&context.name)
    }

    /// Appends the answers. Only selected contexts have an id.
    pub(super) fn put(&self, out: &mut BytesMut, option: u32) {
        for (place, context) in (1u32..).zip(&self.contexts) {
            let id = if option == OPT_SET_META_CONTEXT { place } else { 0 };
            let mut data = BytesMut::from(&id.to_be_bytes()[..]);
            data.extend_from_slice(context.name.as_bytes());
            put_option_reply(out, option, REP_META_CONTEXT, &data);
        }
    }
}

/// The context that identifies a client's series of connections; every export has it.
fn of_line(query: &str) -> Option<Context> {
    let generation = ConnectionGeneration::parse(query)?;
    Some(Context { name: generation.to_string(), key: generation::KEY, kept: None })
}
