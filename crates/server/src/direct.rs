//! A volume without a cache: every request goes to the store as it is.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use undercroft_nbd::Command;
use undercroft_store::Zeroing;

use crate::answer::{Answer, Ask, Failed};
use crate::content::{Home, Loan, Memory};
use crate::counters::Operation;
use crate::requests::Asked;
use crate::volume::{Volume, ask_store};

impl Volume {
    /// Begins a request that was checked.
    pub(crate) fn serve_directly(self: &Arc<Self>, ask: Ask, op: Operation, started: Instant) {
        let Ask { command, offset, length, durable, responder } = ask;
        let asked = Asked { responder, operation: op, started };
        let (volume, store) = (Arc::clone(self), Arc::clone(&self.store));
        self.finish_later(asked, async move {
            let done = |()| Answer::Done;
            match command {
                Command::Flush => volume.flush_store().await.map(done),
                Command::BlockStatus { one_extent } => {
                    volume.block_status(offset, length, one_extent).await.map(Answer::Extents)
                }
                Command::Cache => Ok(Answer::Done),
                _ if length == 0 => Ok(Answer::Done),
                Command::Read { .. } => volume.read_directly(offset, length).await,
                Command::Write { data } => {
                    let write = async move { store.write(offset, data, durable).await };
                    ask_store(write).await.map(done)
                }
                Command::Trim => {
                    let trim = async move { store.trim(offset, length, durable).await };
                    ask_store(trim).await.map(done)
                }
                Command::WriteZeroes { keep_allocated, fast } => {
                    let how = Zeroing { keep_allocated, only_if_fast: fast };
                    let zero = async move { store.zero(offset, length, how, durable).await };
                    ask_store(zero).await.map(done)
                }
            }
        });
    }

    async fn read_directly(&self, offset: u64, length: u64) -> Result<Answer, Failed> {
        // Bounded by what the protocol lets one client ask for.
        let memory = Memory::Heap(vec![0; length as usize].into());
        let (buffer, home): (_, Home) = Loan::lend(memory, length as usize);
        let store = Arc::clone(&self.store);
        let bytes = ask_store(async move {
            let (buffers, result) = store.read(offset, vec![buffer]).await;
            drop(buffers);
            result?;
            let memory = home.collect();
            let content = memory.map(|memory| memory.into_content());
            content
                .and_then(|content| content.piece(0, length as usize))
                .ok_or_else(|| std::io::Error::other("the store kept the memory of a read"))
        });
        bytes.await.map(|bytes: Bytes| Answer::Data(bytes.into()))
    }
}
