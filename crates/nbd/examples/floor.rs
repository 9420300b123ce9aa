//! The floor under every benchmark: answers each read from one buffer, and drops writes. What a
//! real server takes longer than this is its own cost, not the protocol's.
//!
//! ```text
//! cargo run --release --example floor -- /tmp/floor.sock
//! cargo run --release --example floor -- /tmp/floor.sock 256
//! ```
//!
//! The first answers always the same bytes, which stay in the processor's cache. The second has
//! 256 MiB and answers what lies at the offset: the floor for data that comes from memory.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Exports, Failure, Flags, Listener, Peer, Refusal,
    Request, Server, ServerOptions, Session,
};

/// Longest read that is answered.
const READ_MAX: u64 = 1 << 20;

/// Bytes that the export pretends to have, of which it has the first ones again and again.
const SIZE: u64 = 1 << 40;

#[derive(Clone)]
struct Floor {
    data: Bytes,
}

impl Exports for Floor {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        vec![("floor".to_owned(), String::new())]
    }

    fn find(&self, _name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Floor {
    fn info(&self, _peer: &Peer, _contexts: &[Context]) -> ExportInfo {
        ExportInfo {
            name: "floor".to_owned(),
            description: String::new(),
            size: SIZE,
            flags: Flags { multi_conn: true, ..Flags::default() },
            min_block: 1,
            preferred_block: 4096,
            max_block: 32 << 20,
        }
    }

    fn contexts(&self, _query: &str) -> Vec<Context> {
        Vec::new()
    }

    fn connect(&self, _peer: &Peer, _contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Floor {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl Floor {
    fn start(&mut self, request: Request) {
        match request.command {
            Command::Read { .. } if request.length <= READ_MAX => {
                // Every start has room for the longest read behind it.
                let starts = (self.data.len() as u64 - READ_MAX).max(1);
                let start = (request.offset % starts) as usize;
                let end = start + request.length as usize;
                request.reply.data(vec![self.data.slice(start..end)]);
            }
            Command::Read { .. } => {
                request.reply.fail(Failure::Invalid, "at most 1 MiB a read here".to_owned());
            }
            _ => request.reply.done(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("say where: floor /tmp/floor.sock [MIB]")?;
    let extra_mib: usize = std::env::args().nth(2).map_or(Ok(0), |mib| mib.parse())?;
    let bytes = READ_MAX as usize + (extra_mib << 20);
    // Never freed, so that a slice costs no count: it is the floor.
    let data = Bytes::from_static(vec![0x5a; bytes].leak());
    let server = Server::new(Arc::new(Floor { data }), ServerOptions::default());
    let listener = Listener::unix(&path)?;
    tokio::select! {
        () = server.listen(listener) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}
