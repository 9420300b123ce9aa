//! The second way for hints, for clients that cannot be changed: the *control export*
//! `@coop/NAME`, which is nothing but a window (`window.rs`) and speaks for the connections of the
//! same client. docs/developer/hints.md has the format.
//!
//! The rules of access of the volume hold here too. What is told here moves the blocks of
//! connections that are not the speaker's own, so it is taken from those who may write the volume;
//! others read the status.

use std::sync::Arc;

use undercroft_nbd::{
    Command, Context, Export, ExportInfo, Flags, Peer, Refusal, Request, Session,
};

use super::hint_session::{COOP, Status, WINDOW, WindowLayout};
use super::window::Window;
use crate::volume::Volume;

/// What the name of a control export begins with; the volume's name follows.
pub(super) const CONTROL: &str = "@coop/";

/// A control export: a window for hints about clients that cannot be changed.
pub(super) struct ControlExport {
    pub(super) volume: Arc<Volume>,
    pub(super) status: Status,
    pub(super) epoch: u64,
    /// Whether the peer may write the volume: from who may not, nothing is heard.
    pub(super) may_write: bool,
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
        if self.volume.is_closing() {
            return Err(Refusal::ShuttingDown);
        }
        // With the context it speaks for what it asked for, and without for all there is.
        let speaks = self.may_write && !contexts.iter().any(|context| context.key == COOP);
        let window = Window::new(&self.volume, contexts, speaks, Arc::clone(&self.status))?;
        Ok(Box::new(ControlSession(window)))
    }
}

/// A connection to a control export.
struct ControlSession(Window);

impl Session for ControlSession {
    fn submit(&mut self, request: Request) {
        if matches!(request.command, Command::Flush) {
            return request.reply.done();
        }
        let from = request.offset;
        if let Some((heard, reply)) = self.0.request(request, from) {
            self.0.hear(heard);
            reply.done();
        }
    }

    fn owed(&mut self) -> u64 {
        self.0.owed()
    }
}
