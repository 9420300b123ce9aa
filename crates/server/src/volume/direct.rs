//! A volume without a cache: every request goes directly to the store; only changes of the same
//! bytes wait for each other (`changes_in_order.rs`).

use std::iter::once;
use std::sync::Arc;
use std::time::Instant;

use undercroft_nbd::{Command, CommandKind, Request};
use undercroft_store::Zeroing;

use crate::answer::{Answer, Failed};
use crate::counters::{Source, Stats};
use crate::job::RequestContext;
use crate::lock::lock;
use crate::shard::content::{Memory, read_into};
use crate::volume::Volume;
use crate::volume::store_state::StoreRequest;

/// A request to a volume without a cache.
pub(super) struct DirectRequest {
    volume: Arc<Volume>,
    command: Command,
    offset: u64,
    length: u64,
    durable: bool,
}

impl DirectRequest {
    /// Starts a request that has been checked.
    pub(super) fn begin(volume: &Arc<Volume>, request: Request, started: Instant) {
        let Request { command, offset, length, durable, reply } = request;
        let operation = command.kind();
        let asked = RequestContext { reply, operation: Some(operation), started };
        let blocks = match length {
            0 => 0,
            length => volume.geometry.blocks(offset, length).count() as u64,
        };
        let change = command
            .changes()
            .then(|| volume.changes_in_order.begin(offset..offset.saturating_add(length)));
        count_asked(&mut lock(&volume.direct), operation, blocks);
        let direct = Self { volume: Arc::clone(volume), command, offset, length, durable };
        volume.runtime.spawn(async move {
            let volume = Arc::clone(&direct.volume);
            // What has not been sent by then need not go on without its client.
            if let Some(change) = &change {
                if let Err(failed) = volume.answers.in_time(started, change.turn()).await {
                    return volume.answers.answer_one(asked.complete(Err(failed)));
                }
            }
            let source = match operation {
                CommandKind::Read | CommandKind::Write => Source::Miss,
                _ => Source::Hit,
            };
            // TRIM and similar requests need no memory for their length.
            let bytes = if source == Source::Miss { length } else { 0 };
            let task = async {
                let tells = change.is_some() && !durable;
                let begun = tells.then(|| volume.losses.now());
                let outcome = direct.ask().await;
                if let (Some(begun), Ok(_)) = (begun, &outcome) {
                    volume.losses.note_change(begun);
                }
                count_ended(&mut lock(&volume.direct), operation, blocks, outcome.is_ok());
                outcome
            };
            volume.answers.answer_in_time(asked, (source, bytes), task, || 0).await;
        });
    }

    /// Executes the request at the store.
    async fn ask(self) -> Result<Answer, Failed> {
        let Self { volume, command, offset, length, durable } = self;
        let (store, done) = (Arc::clone(&volume.store), |()| Answer::Done);
        match command {
            Command::Flush => volume.flush_store().await.map(done),
            Command::BlockStatus { one_extent } => {
                volume.block_status(offset, length, one_extent).await.map(Answer::Extents)
            }
            Command::Cache => Ok(Answer::Done),
            _ if length == 0 => Ok(Answer::Done),
            Command::Read { .. } => {
                // The protocol limits what one client may request.
                let length = length as usize;
                let memory = once((Memory::Heap(vec![0; length].into()), length));
                let read = async move { read_into(&*store, offset, memory).await };
                let read = volume.store_health.ask(StoreRequest::Read, read).await?;
                let bytes = Memory::only(read).piece(0, length).unwrap_or_default();
                Ok(Answer::Data(bytes.into()))
            }
            Command::Write { data } => {
                let write = async move { store.write(offset, data, durable).await };
                volume.store_health.ask(StoreRequest::Write, write).await.map(done)
            }
            Command::Trim => {
                let trim = async move { store.trim(offset, length, durable).await };
                volume.store_health.ask(StoreRequest::Trim, trim).await.map(done)
            }
            Command::WriteZeroes { keep_allocated, fast } => {
                let how = Zeroing { keep_allocated, only_if_fast: fast };
                let zero = async move { store.zero(offset, length, how, durable).await };
                volume.store_health.ask(StoreRequest::Zero, zero).await.map(done)
            }
        }
    }
}

/// Counts a request for so many blocks that came, in blocks like those of cached volumes.
fn count_asked(stats: &mut Stats, op: CommandKind, blocks: u64) {
    match op {
        CommandKind::Read => stats.reads += blocks,
        CommandKind::Write => stats.writes += blocks,
        _ => {}
    }
}

/// Counts a request that ended.
fn count_ended(stats: &mut Stats, op: CommandKind, blocks: u64, is_ok: bool) {
    let failed = if is_ok { 0 } else { blocks };
    match op {
        CommandKind::Read => {
            stats.store_reads += blocks;
            stats.read_failures += failed;
        }
        CommandKind::Write => {
            stats.store_writes += blocks;
            stats.write_failures += failed;
        }
        _ => {}
    }
}
