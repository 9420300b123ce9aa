//! The HTTP pages of a server: where they are, over TCP or on a unix socket, and the token that
//! they may demand.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ureq::Agent;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

use crate::error::Error;

/// Longest wait for an answer; the server itself ends connections after 10 s.
const PATIENCE: Duration = Duration::from_secs(15);

/// Whether a text names the HTTP listener of a server, and not an NBD export.
pub(crate) fn is_http(uri: &str) -> bool {
    uri.starts_with("http://") || uri.starts_with("unix:")
}

/// A page of a server, as `/stats`: from `http://HOST:PORT`, `unix:PATH`, or the page that an
/// `http://` address names.
pub(crate) fn page(uri: &str, page: &str, token_file: Option<&Path>) -> Result<String, Error> {
    let token = token_file.map(|path| {
        let text = fs::read_to_string(path);
        text.map_err(|error| Error::Work(format!("{}: {error}", path.display())))
    });
    let token = token.transpose()?.map(|text| text.trim().to_owned());
    let config = Agent::config_builder().http_status_as_error(false);
    let config = config.timeout_global(Some(PATIENCE)).build();
    let (agent, page) = match uri.strip_prefix("unix:") {
        Some(path) => {
            let socket = Socket(PathBuf::from(path));
            let agent = Agent::with_parts(config, socket, DefaultResolver::default());
            // Of the address only the page matters.
            (agent, format!("http://127.0.0.1{page}"))
        }
        None => {
            let base = uri.trim_end_matches('/');
            let page = if base.matches('/').count() > 2 { "" } else { page };
            (Agent::from(config), format!("{base}{page}"))
        }
    };
    let failed = |error: ureq::Error| Error::Work(explain(uri, &error));
    let mut request = agent.get(&page);
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let mut response = request.call().map_err(failed)?;
    let text = response.body_mut().read_to_string().map_err(failed)?;
    match (response.status().as_u16(), token_file) {
        (200, _) => Ok(text),
        (401, None) => Err(Error::Work(format!(
            "{uri}: the server wants a token: give --token-file FILE with what is in its \
             http-token-file"
        ))),
        (401, Some(path)) => Err(Error::Work(format!(
            "{uri}: the server does not take the token of {}: it must be what is in its \
             http-token-file",
            path.display()
        ))),
        (status, _) => Err(Error::Work(format!("{uri}: HTTP {status}: {}", text.trim()))),
    }
}

/// An error in words that say what to do, where that is known.
fn explain(uri: &str, error: &ureq::Error) -> String {
    match error {
        // What an NBD server says first is no HTTP.
        ureq::Error::Protocol(_) => format!(
            "{uri}: {error}: is it the HTTP listener? An NBD socket is named \
             nbd+unix:///VOLUME?socket=PATH, an NBD address nbd://HOST:PORT/VOLUME"
        ),
        error => format!("{uri}: {error}"),
    }
}

/// Connects to a unix socket, whatever the address.
#[derive(Debug)]
struct Socket(PathBuf);

impl Connector<()> for Socket {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Connection>, ureq::Error> {
        let config: &Config = details.config;
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        let stream = UnixStream::connect(&self.0)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Some(Connection { stream, buffers }))
    }
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    buffers: LazyBuffers,
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), ureq::Error> {
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, ureq::Error> {
        let count = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    fn is_open(&mut self) -> bool {
        true
    }
}
