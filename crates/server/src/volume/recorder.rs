//! Records the requests of a volume's clients as traces for the simulator, which tells what another
//! policy, placement or size would have made of the same requests.
//!
//! Reads and writes are noted when they are served, and a thread of the recorder writes them to a
//! file. No client waits for that thread: requests that it does not keep up with are left out, and
//! counted. A file gets its name when it is complete. Then the next one begins, and the oldest is
//! deleted if there are more than the configuration allows. The last file is completed at the end
//! of the volume. A process that is killed leaves its unfinished file behind, under a name that
//! begins with a dot; the next recording of the volume deletes it.

use std::fs;
use std::io;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use undercroft_nbd::{Command, Request};
use undercroft_random::hash;
use undercroft_trace::{Meta, Op, Record, Unit, Writer, create};

use crate::clock;

/// Requests that are given to the thread at a time.
const BATCH: usize = 4096;

/// Batches that may wait for the thread: 12 MiB of them.
const BATCHES_MAX: usize = 64;

/// Requests of a file: about 100 MB of it.
const FILE_REQUESTS: u64 = 1 << 26;

/// What is recorded, and where.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    /// The folder of the files. Nobody else writes there.
    pub(crate) folder: PathBuf,
    /// The name of the volume.
    pub(crate) name: String,
    /// Bytes of a block of the volume.
    pub(crate) block_bytes: u32,
    /// One block in this many is recorded, chosen by a hash of its number.
    pub(crate) one_in: NonZero<u32>,
    /// Complete files to keep.
    pub(crate) files: NonZero<u32>,
}

/// The recorder of one volume.
pub(crate) struct Recorder {
    /// None when the volume has ended.
    notes: Mutex<Option<Notes>>,
    began: Instant,
    block_bytes: u64,
    one_in: u64,
    /// Whether the volume refuses writes.
    is_read_only: bool,
    recorded: AtomicU64,
    left_out: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Requests that the thread has not been given yet.
struct Notes {
    records: Vec<Record>,
    thread: SyncSender<Vec<Record>>,
}

impl Recorder {
    /// Begins to record.
    ///
    /// # Errors
    /// The folder, which the error names, cannot be made or read; or there is no thread.
    pub(crate) fn begin(recording: Recording, is_read_only: bool) -> io::Result<Self> {
        let folder = recording.folder.display().to_string();
        Self::try_begin(recording, is_read_only)
            .map_err(|error| io::Error::new(error.kind(), format!("{folder}: {error}")))
    }

    fn try_begin(recording: Recording, is_read_only: bool) -> io::Result<Self> {
        let (block_bytes, one_in) = (recording.block_bytes.into(), recording.one_in.get().into());
        fs::create_dir_all(&recording.folder)?;
        let files = Files::new(recording)?;
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let thread = Builder::new().name("recorder".into()).spawn(move || files.run(&receiver))?;
        let notes = Notes { records: Vec::with_capacity(BATCH), thread: sender };
        Ok(Self {
            notes: Mutex::new(Some(notes)),
            began: clock::now(),
            block_bytes,
            one_in,
            is_read_only,
            recorded: AtomicU64::new(0),
            left_out: AtomicU64::new(0),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Records requests that arrived together at a volume of `size` bytes, without those that it
    /// refuses.
    pub(crate) fn note(&self, requests: &[Request], size: u64) {
        let time_ns = clock::now().saturating_duration_since(self.began).as_nanos() as u64;
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(notes) = &mut *notes else { return };
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
            let record = Record { time_ns, op, space: 0, address, length, buffer: None };
            if self.one_in == 1 {
                self.push(notes, record);
                continue;
            }
            let last = (address + length - 1) / self.block_bytes;
            for block in address / self.block_bytes..=last {
                if hash(block) % self.one_in == 0 {
                    let (address, length) = (block * self.block_bytes, self.block_bytes);
                    self.push(notes, Record { address, length, ..record });
                }
            }
        }
    }

    fn push(&self, notes: &mut Notes, record: Record) {
        notes.records.push(record);
        if notes.records.len() == BATCH {
            self.hand_over(notes);
        }
    }

    fn hand_over(&self, notes: &mut Notes) {
        let records = std::mem::replace(&mut notes.records, Vec::with_capacity(BATCH));
        self.count(records.len(), notes.thread.try_send(records).is_ok());
    }

    fn count(&self, records: usize, is_recorded: bool) {
        let counter = if is_recorded { &self.recorded } else { &self.left_out };
        counter.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Records that were written or wait to be, and those that were left out.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.recorded, &self.left_out].map(|count| count.load(Ordering::Relaxed))
    }

    /// Completes the last file, and records nothing from then on. Waits for the disk. A recorder
    /// that is dropped without this leaves its last requests out, and waits for nothing.
    pub(crate) fn end(&self) {
        let notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut notes) = notes {
            let records = std::mem::take(&mut notes.records);
            // No request waits for this any more, so it may wait for the thread.
            self.count(records.len(), notes.thread.send(records).is_ok());
        }
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            drop(thread.join());
        }
    }
}

/// The files of a recording, one after the other.
struct Files {
    recording: Recording,
    /// Number of the file that is written, or that comes next.
    number: u64,
    /// The file that is written, and the requests in it.
    open: Option<(Box<dyn Writer>, u64)>,
}

impl Files {
    fn new(recording: Recording) -> io::Result<Self> {
        let mut files = Self { recording, number: 0, open: None };
        files.number = files.complete_ones()?.last().map_or(1, |last| last + 1);
        for name in files.names()?.filter(|name| is_unfinished(name)) {
            fs::remove_file(files.recording.folder.join(name))?;
        }
        Ok(files)
    }

    /// Writes what comes until nobody sends any more.
    fn run(mut self, receiver: &Receiver<Vec<Record>>) {
        let written = receiver.iter().try_for_each(|records| self.write(&records));
        if let Err(error) = written.and_then(|()| self.complete()) {
            let volume = &self.recording.name;
            tracing::error!(volume, "requests are recorded no longer: {error}");
        }
    }

    fn write(&mut self, records: &[Record]) -> Result<(), undercroft_trace::Error> {
        if records.is_empty() {
            return Ok(());
        }
        let (mut writer, count) = match self.open.take() {
            Some(open) => open,
            None => (create(&self.path(self.number), Some("uct"), &self.meta())?, 0),
        };
        writer.write(records, std::slice::from_ref(&self.recording.name))?;
        let count = count + records.len() as u64;
        self.open = Some((writer, count));
        if count >= FILE_REQUESTS { self.complete() } else { Ok(()) }
    }

    /// Gives the file its name, and deletes those that are too many.
    fn complete(&mut self) -> Result<(), undercroft_trace::Error> {
        let Some((writer, _)) = self.open.take() else { return Ok(()) };
        writer.finish()?;
        self.number += 1;
        let complete = self.complete_ones().unwrap_or_default();
        let most = self.recording.files.get() as usize;
        for &old in complete.iter().rev().skip(most) {
            let path = self.path(old);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("{}: {error}", path.display());
            }
        }
        Ok(())
    }

    /// Numbers of the complete files, in order.
    fn complete_ones(&self) -> io::Result<Vec<u64>> {
        let ending = self.ending();
        let number = |name: String| name.strip_suffix(&ending)?.parse().ok();
        let mut numbers: Vec<u64> = self.names()?.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The names of the files in the folder that are text.
    fn names(&self) -> io::Result<impl Iterator<Item = String>> {
        let entries = fs::read_dir(&self.recording.folder)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.recording.folder.join(format!("{number:06}{}", self.ending()))
    }

    /// Says of a sample that it is one.
    fn ending(&self) -> String {
        match self.recording.one_in.get() {
            1 => ".uct.zst".into(),
            n => format!(".1in{n}.uct.zst"),
        }
    }

    fn meta(&self) -> Meta {
        Meta {
            format: "uct",
            unit: Unit::Bytes,
            block_bytes: Some(self.recording.block_bytes),
            has_ops: true,
            has_time: true,
            has_buffers: false,
        }
    }
}

/// Whether a file is what a killed process left of the trace that it was writing.
fn is_unfinished(name: &str) -> bool {
    name.starts_with(".undercroft-") && name.ends_with(".part")
}

#[cfg(test)]
mod tests {
    use super::{Files, Record, Recording};
    use std::path::Path;
    use undercroft_trace::Op;

    fn files(folder: &Path, one_in: u32) -> Files {
        let (one_in, files) = (one_in.try_into().unwrap(), 2.try_into().unwrap());
        let (folder, name) = (folder.to_owned(), "db".to_owned());
        Files::new(Recording { folder, name, block_bytes: 4096, one_in, files }).unwrap()
    }

    const RECORD: Record =
        Record { time_ns: 0, op: Op::Read, space: 0, address: 0, length: 512, buffer: None };

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    #[test]
    fn the_newest_files_are_kept_and_their_numbers_go_on() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("other.uct.zst"), b"of somebody else").unwrap();
        for _ in 0..3 {
            let mut files = files(folder.path(), 1);
            files.write(&[RECORD; 3]).unwrap();
            files.complete().unwrap();
        }
        let mut sample = files(folder.path(), 16);
        sample.write(&[RECORD]).unwrap();
        sample.complete().unwrap();
        let own = ["000001.1in16.uct.zst", "000002.uct.zst", "000003.uct.zst", "other.uct.zst"];
        assert_eq!(names(folder.path()), own);
    }

    #[test]
    fn what_a_killed_process_left_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let mut killed = files(folder.path(), 1);
        killed.write(&[RECORD]).unwrap();
        // A process that is killed runs no destructor.
        std::mem::forget(killed);
        assert_eq!(names(folder.path()).len(), 1);
        let mut next = files(folder.path(), 1);
        assert_eq!(names(folder.path()), [""; 0]);
        next.write(&[RECORD]).unwrap();
        next.complete().unwrap();
        assert_eq!(names(folder.path()), ["000001.uct.zst"]);
    }

    #[test]
    fn nothing_recorded_makes_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = files(folder.path(), 1);
        files.write(&[]).unwrap();
        files.complete().unwrap();
        assert_eq!(names(folder.path()), [""; 0]);
    }
}
