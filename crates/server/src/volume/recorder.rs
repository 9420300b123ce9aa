//! Records what a volume's clients ask and which evictions they tell, as traces for the simulator,
//! which tells what another policy, placement or size would have made of the same.
//!
//! Reads, writes and evictions are noted in the order in which the volume takes them, and a thread
//! of the recorder writes them to files (`undercroft_recording::Rotation`). No client waits for
//! that thread: what it does not keep up with is left out, and counted. The last file is completed
//! at the end of the volume.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use undercroft_level::ClientEviction;
use undercroft_nbd::{Command, Request};
use undercroft_random::hash;
use undercroft_recording::{Error, Op, Record, Rotation, RotationOptions};

use crate::config::VolumeConfig;
use crate::lock::sleep_lock;

/// Records that are given to the thread at a time.
const BATCH: usize = 4096;

/// Batches that may wait for the thread: 12 MiB of them.
const BATCHES_MAX: usize = 64;

/// How long the thread waits for records if files end only by their size.
const WAIT: Duration = Duration::from_secs(3600);

/// The recorder of one volume.
pub(crate) struct Recorder {
    shared: Arc<Shared>,
    block_bytes: u64,
    one_in: u64,
    /// Whether the volume refuses writes.
    is_read_only: bool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread and the clients' threads share.
struct Shared {
    notes: Mutex<Notes>,
    recorded: AtomicU64,
    left_out: AtomicU64,
}

/// Records that the thread has not been given yet.
struct Notes {
    records: Vec<Record>,
    /// None when the volume has ended.
    thread: Option<SyncSender<Vec<Record>>>,
}

impl Recorder {
    /// Begins to record, if that is configured. `has_evictions`: clients may tell what they evict.
    ///
    /// # Errors
    /// The folder, which the error names, cannot be made or read; or there is no thread.
    pub(crate) fn begin(
        config: &VolumeConfig,
        has_evictions: bool,
        is_read_only: bool,
    ) -> io::Result<Option<Self>> {
        let Some(folder) = &config.record else { return Ok(None) };
        let (name, block_bytes) = (config.name.clone(), config.block_bytes);
        let one_in = config.record_sample.get().into();
        let files = Rotation::new(RotationOptions {
            folder: folder.join(&name),
            // The name of a sample says that it is one.
            ending: match one_in {
                1 => ".uct.zst".into(),
                n => format!(".1in{n}.uct.zst"),
            },
            block_bytes,
            has_evictions,
            records: config.record_requests,
            every: config.record_every,
            files: config.record_files,
        });
        let files = files.map_err(io::Error::other)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let notes = Notes { records: Vec::with_capacity(BATCH), thread: Some(sender) };
        let shared = Arc::new(Shared {
            notes: Mutex::new(notes),
            recorded: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
        });
        let its = Arc::clone(&shared);
        let thread = Builder::new()
            .name("recorder".into())
            .spawn(move || write_all(&its, files, &name, &receiver))?;
        let thread = Mutex::new(Some(thread));
        Ok(Some(Self { shared, block_bytes: block_bytes.into(), one_in, is_read_only, thread }))
    }

    /// Records requests of a client that arrived together at a volume of `size` bytes, without
    /// those that it refuses.
    pub(crate) fn note(&self, requests: &[Request], size: u64, client: u8, now_us: u64) {
        let time_ns = now_us.saturating_mul(1000);
        let mut notes = sleep_lock(&self.shared.notes);
        for request in requests {
            let op = match request.command {
                Command::Read { .. } => Op::Read,
                Command::Write { .. } if !self.is_read_only => Op::Write,
                _ => continue,
            };
            let (address, length) = (request.offset, request.length);
            if length == 0 || address.checked_add(length).is_none_or(|end| end > size) {
                continue;
            }
            let record = Record { time_ns, op, space: 0, address, length, buffer: None, client };
            if self.one_in == 1 {
                self.shared.push(&mut notes, record);
                continue;
            }
            let last = (address + length - 1) / self.block_bytes;
            for block in address / self.block_bytes..=last {
                self.push_block(&mut notes, block, record);
            }
        }
    }

    /// Records evictions that a client told, in their order.
    pub(crate) fn note_evictions(&self, gone: &[ClientEviction], client: u8) {
        let mut notes = sleep_lock(&self.shared.notes);
        for &ClientEviction { block, evicted_us } in gone {
            let time_ns = evicted_us.saturating_mul(1000);
            let (op, space, buffer) = (Op::Evict, 0, None);
            let record = Record { time_ns, op, space, address: 0, length: 0, buffer, client };
            self.push_block(&mut notes, block, record);
        }
    }

    /// Records that `record` is about a whole block, if the sample has the block.
    fn push_block(&self, notes: &mut Notes, block: u64, record: Record) {
        if self.one_in == 1 || hash(block) % self.one_in == 0 {
            let (address, length) = (block * self.block_bytes, self.block_bytes);
            self.shared.push(notes, Record { address, length, ..record });
        }
    }

    /// Records that were written or wait to be, and those that were left out.
    pub(crate) fn counts(&self) -> [u64; 2] {
        let Shared { recorded, left_out, .. } = &*self.shared;
        [recorded, left_out].map(|count| count.load(Ordering::Relaxed))
    }

    /// Completes the last file, and records nothing from then on. Waits for the disk. A recorder
    /// that is dropped without this leaves its last requests out, and waits for nothing.
    pub(crate) fn end(&self) {
        let (records, thread) = {
            let mut notes = sleep_lock(&self.shared.notes);
            (std::mem::take(&mut notes.records), notes.thread.take())
        };
        if let Some(thread) = thread {
            // No request waits for this any more, so it may wait for the thread.
            self.shared.count(records.len(), thread.send(records).is_ok());
        }
        let thread = sleep_lock(&self.thread).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The thread ends when nobody can send to it.
        sleep_lock(&self.shared.notes).thread = None;
    }
}

impl Shared {
    fn push(&self, notes: &mut Notes, record: Record) {
        let Some(thread) = &notes.thread else { return };
        notes.records.push(record);
        if notes.records.len() == BATCH {
            let records = std::mem::replace(&mut notes.records, Vec::with_capacity(BATCH));
            self.count(records.len(), thread.try_send(records).is_ok());
        }
    }

    fn count(&self, records: usize, is_recorded: bool) {
        let counter = if is_recorded { &self.recorded } else { &self.left_out };
        counter.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// All records so far, in order: those that wait in the channel, and then those that were not
    /// given to the thread yet.
    fn take(&self, receiver: &Receiver<Vec<Record>>) -> Vec<Vec<Record>> {
        let mut notes = sleep_lock(&self.notes);
        let mut all: Vec<_> = receiver.try_iter().collect();
        let last = std::mem::replace(&mut notes.records, Vec::with_capacity(BATCH));
        self.count(last.len(), true);
        all.push(last);
        all
    }
}

/// Writes what comes until nobody sends any more.
fn write_all(
    shared: &Shared,
    mut files: Rotation,
    volume: &String,
    receiver: &Receiver<Vec<Record>>,
) {
    let spaces = std::slice::from_ref(volume);
    let mut written = || -> Result<(), Error> {
        loop {
            match receiver.recv_timeout(files.left().unwrap_or(WAIT)) {
                Ok(records) => files.write(&records, spaces)?,
                Err(RecvTimeoutError::Disconnected) => return files.complete(),
                Err(RecvTimeoutError::Timeout) if files.left().is_none() => {}
                // The file ends now, with all that was noted.
                Err(RecvTimeoutError::Timeout) => {
                    shared.take(receiver).iter().try_for_each(|some| files.write(some, spaces))?;
                    files.complete()?;
                }
            }
        }
    };
    if let Err(error) = written() {
        tracing::error!(volume, "requests are recorded no longer: {error}");
    }
}
