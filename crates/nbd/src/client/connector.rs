//! Connections to servers by other means than the system's, for example streams in memory.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use crate::link::Transport;
use undercroft_text::Endpoint;

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Transport>>> + Send>>;

/// Makes the connections of a client. Clones share the function.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(&Endpoint) -> Connecting + Send + Sync>);

impl Connector {
    /// Connects by calling this function.
    pub fn new<F>(connect: impl Fn(&Endpoint) -> F + Send + Sync + 'static) -> Connector
    where
        F: Future<Output = io::Result<Box<dyn Transport>>> + Send + 'static,
    {
        Connector(Arc::new(move |endpoint| Box::pin(connect(endpoint))))
    }

    pub(super) fn connect(&self, endpoint: &Endpoint) -> Connecting {
        (self.0)(endpoint)
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}
