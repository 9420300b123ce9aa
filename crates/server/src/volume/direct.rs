//! A volume without a cache: every request goes directly to the store; only changes of the same
//! bytes wait for each other (`changes_in_order.rs`).

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use undercroft_nbd::{CommandKind, Request};

use crate::answer::{Answer, Failed};
use crate::counters::Source;
use crate::job::{Completion, RequestContext};
use crate::shard::content::{Home, Memory};
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

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
            let task = async {
                if let Some(change) = &change {
                    change.turn().await;
                }
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
        let memory = Memory::Heap(vec![0; length as usize].into());
        let (buffers, home) = Home::lend([(memory, length as usize)].into_iter());
        let store = Arc::clone(&self.store);
        let bytes = self.store_health.ask(StoreRequest::Read, async move {
            let (buffers, result) = store.read(offset, buffers).await;
            drop(buffers);
            result?;
            let memory = home.collect().and_then(|mut all| all.pop());
            let content = memory.map(|memory| memory.into_content());
            content
                .and_then(|content| content.piece(0, length as usize))
                .ok_or_else(|| std::io::Error::other("the store kept the memory of a read"))
        });
        bytes.await.map(|bytes: Bytes| Answer::Data(bytes.into()))
    }
}
