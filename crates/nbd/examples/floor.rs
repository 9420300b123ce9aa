//! The floor under every benchmark: answers each read from one static buffer, and drops writes.
//! What a real server takes longer than this is its own cost, not the protocol's.
//!
//! ```text
//! cargo run --release --example floor -- /tmp/floor.sock
//! ```

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Exports, Failure, Flags, Listener, Peer, Refusal,
    Request, Server, ServerOptions, Session,
};

/// Longest read that is answered.
static DATA: [u8; 1 << 20] = [0x5a; 1 << 20];

/// Bytes that the export pretends to have.
const SIZE: u64 = 1 << 40;

struct Floor;

impl Exports for Floor {
    fn list(&self, _peer: &Peer) -> Vec<(String, String)> {
        vec![("floor".to_owned(), String::new())]
    }

    fn find(&self, _name: &str, _peer: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(Floor))
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
        Ok(Box::new(Floor))
    }
}

impl Session for Floor {
    fn submit(&mut self, request: Request) {
        match (request.command, usize::try_from(request.length)) {
            (Command::Read { .. }, Ok(length)) if length <= DATA.len() => {
                request.reply.data(vec![Bytes::from_static(&DATA[..length])]);
            }
            (Command::Read { .. }, _) => {
                request.reply.fail(Failure::Invalid, "at most 1 MiB a read here".to_owned());
            }
            _ => request.reply.done(),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("say where: floor /tmp/floor.sock")?;
    let server = Server::new(Arc::new(Floor), ServerOptions::default());
    let listener = Listener::unix(&path)?;
    tokio::select! {
        () = server.listen(listener) => {}
        interrupted = tokio::signal::ctrl_c() => interrupted?,
    }
    Ok(())
}
