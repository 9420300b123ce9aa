//! The *control export* `@coop/NAME`: a second way for hints, about clients that cannot be changed.
//! It consists of a window only (`layers/hints/window.rs`), and its hints apply to the connections
//! of the same client. docs/developer/hints.md has the format.
//!
//! The access rules of the volume hold here too. Hints here move the blocks of other connections,
//! so they are accepted only from peers that may write the volume; others may read the status.

use std::sync::Arc;

use undercroft_hints::WANTS_CONTENTS;
use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Extent, Failure, Flags, Peer, Refusal, Request, Session,
};

use crate::layers::hints::layout::{COOP, Status, WINDOW, WindowLayout, is_opted_in};
use crate::layers::hints::window::Window;
use crate::volume::Volume;

/// Prefix of a control export's name; the volume's name follows.
pub(crate) const CONTROL: &str = "@coop/";

/// A control export: a window for hints about clients that cannot be changed.
pub(crate) struct ControlExport {
    pub(crate) volume: Arc<Volume>,
    pub(crate) status: Status,
    pub(crate) epoch: u64,
    /// Whether the peer may write the volume; only then its hints are accepted.
    pub(crate) may_write: bool,
}

impl Export for ControlExport {
    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        ExportInfo {
            name: format!("{CONTROL}{}", self.volume.config().name),
            description: "hints about the clients of a volume, and its status".to_owned(),
            size: WINDOW,
            flags: Flags { read_only: !self.may_write, ..Flags::default() },
            min_block: 1,
            preferred_block: 4096,
            max_block: WINDOW as u32,
        }
    }

    fn contexts(&self, query: &str) -> Vec<Context> {
        WindowLayout::of_control(&self.volume, self.may_write).contexts(
            query,
            &self.volume,
            self.epoch,
        )
    }

    fn connect(&self, _: &Peer, contexts: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        if self.volume.answers.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        // With the context it sends the hints that it asked for, and without it all kinds.
        let speaks = self.may_write && !is_opted_in(contexts);
        let window = Window::new(&self.volume, contexts, speaks, Arc::clone(&self.status))?;
        Ok(Box::new(ControlSession(window)))
    }
}

/// A connection to a control export.
struct ControlSession(Window);

impl Session for ControlSession {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        self.0.work_debt()
    }
}

impl ControlSession {
    fn start(&mut self, request: Request) {
        match request.command {
            Command::Flush => return request.reply.done(),
            Command::BlockStatus { .. } => {
                // Each shard is locked once.
                self.0.add_work(1);
                let wants = self.0.granted.demote && self.0.volume.shards.wants_contents();
                let status = if wants { WANTS_CONTENTS } else { 0 };
                let extent = Extent { length: request.length, status };
                return request.reply.extents(vec![(COOP, vec![extent])]);
            }
            _ => {}
        }
        let from = request.offset;
        if let Some((received, reply)) = self.0.request(request, from) {
            match self.0.receive_hints(received) {
                Ok(()) => reply.done(),
                Err(no_room) => reply.fail(Failure::NoMemory, no_room.to_string()),
            }
        }
    }
}
