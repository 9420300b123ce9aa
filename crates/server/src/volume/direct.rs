//! A volume without a cache: every request goes directly to the store; only changes of the same
//! bytes wait for each other (`changes_in_order.rs`).

use std::iter::once;
use std::sync::Arc;
use std::time::Instant;

use undercroft_nbd::{CommandKind, Request};

use crate::answer::{Answer, Failed};
use crate::counters::Source;
use crate::job::{Completion, RequestContext};
use crate::shard::content::{Memory, read_into};
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;
use crate::volume::timeouts::in_time;

impl Volume {
    /// Starts a request that has been checked.
    pub(crate) fn serve_directly(
        self: &Arc<Self>,
        request: Request,
        op: CommandKind,
        started: Instant,
    ) {
        let Request { command, offset, length, durable, reply } = request;
        let asked = RequestContext { reply, operation: op, started };
        let blocks = match length {
            0 => 0,
            length => self.geometry.blocks(offset, length).count() as u64,
        };
        let change = command
            .changes()
            .then(|| self.changes_in_order.begin(offset..offset.saturating_add(length)));
        self.direct.asked(op, blocks);
        let volume = Arc::clone(self);
        self.runtime.spawn(async move {
            // What has not been sent by then need not go on without its client.
            if let Some(change) = &change {
                if let Err(failed) = in_time(&volume, started, change.turn()).await {
                    volume.direct.ended(op, blocks, true);
                    return volume.answer_one(asked.complete(Err(failed)));
                }
            }
            let task = async {
                let tells = change.is_some() && !durable;
                let begun = tells.then(|| volume.losses.now());
                let outcome = volume.ask_directly(command, offset, length, durable).await;
                if let (Some(begun), Ok(_)) = (begun, &outcome) {
                    volume.losses.note_change(begun);
                }
                volume.direct.ended(op, blocks, outcome.is_err());
                outcome
            };
            let source = match op {
                CommandKind::Read | CommandKind::Write => Source::Miss,
                _ => Source::Hit,
            };
            let over =
                |asked: RequestContext, outcome| Completion { source, ..asked.complete(outcome) };
            // TRIM and similar requests need no memory for their length.
            let bytes = if source == Source::Miss { length } else { 0 };
            volume.answer_in_time(asked, bytes, task, over).await;
        });
    }

    /// Reads from the store into newly allocated memory.
    pub(crate) async fn read_directly(&self, offset: u64, length: u64) -> Result<Answer, Failed> {
        // The protocol limits what one client may request.
        let (memory, length) = (Memory::Heap(vec![0; length as usize].into()), length as usize);
        let store = Arc::clone(&self.store);
        let read = async move { read_into(&*store, offset, once((memory, length))).await };
        let read = self.store_health.ask(StoreRequest::Read, read).await?;
        let bytes = Memory::only(read).piece(0, length).unwrap_or_default();
        Ok(Answer::Data(bytes.into()))
    }
}
