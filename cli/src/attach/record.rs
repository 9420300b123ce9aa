//! Writes down what a tracked program asks of its volumes and what it evicts. This is a process of
//! its own, which takes it from the tracker's memory: the program does not wait for the disk.

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use clap::Args;
use tokio::time::sleep;
use undercroft_recording::{Op, Record, Rotation, RotationOptions};
use undercroft_tracker::CallKind;
use undercroft_tracker::recording::{Recorded, Recording};
use undercroft_tracker::segment::{Segment, State, is_alive};

use crate::error::Error;
use crate::signals::EndSignals;
use crate::table::count;

/// How often the tracker's memory is looked at. Its ring then holds three million calls a second.
const LOOK: Duration = Duration::from_millis(10);

/// In this time a tracker's memory is made.
const MADE_WITHIN: Duration = Duration::from_secs(5);

/// What is written down, and where.
#[derive(Args, Clone, Debug)]
pub(crate) struct RecordOptions {
    /// Write what the program reads, writes and evicts to traces in this folder, which nobody else
    /// writes to; for a program that runs already, give --pid
    #[arg(long, value_name = "FOLDER")]
    record: Option<PathBuf>,
    /// With --record, a program that runs, and was started by `undercroft attach`
    #[arg(long, value_name = "PID", requires = "record", conflicts_with = "volume")]
    pid: Option<u32>,
    /// With --record, the reads, writes and evictions of a file
    #[arg(long, value_name = "N", requires = "record", default_value = "67108864")]
    record_requests: NonZero<u64>,
    /// With --record, the seconds after which a file is complete [default: no limit]
    #[arg(long, value_name = "SECONDS", requires = "record")]
    record_every_s: Option<NonZero<u32>>,
    /// With --record, complete files to keep; older ones are deleted
    #[arg(long, value_name = "N", requires = "record", default_value = "8")]
    record_files: NonZero<u32>,
    /// With --pid, go on in a process of no terminal and no parent
    #[arg(long, hide = true, requires = "pid")]
    detach: bool,
}

impl RecordOptions {
    /// The running program that is to be recorded, if it is one.
    pub(crate) fn running(&self) -> Option<u32> {
        self.pid
    }

    /// Starts to record this process, which is about to become the program.
    ///
    /// # Errors
    /// The folder cannot be used, or no process can be started.
    pub(crate) fn start(&self, segments: &Path) -> Result<(), Error> {
        let Some(folder) = &self.record else { return Ok(()) };
        // Says now what is wrong with it.
        Rotation::new(self.rotation(folder, 4096))?;
        self.detached(folder, segments, std::process::id(), true)
    }

    /// Starts a process that records. With `again` that one only starts another and ends, which is
    /// then no child of the program.
    fn detached(&self, folder: &Path, segments: &Path, pid: u32, again: bool) -> Result<(), Error> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("attach").arg("--record").arg(folder).arg("--segments").arg(segments);
        command.args(["--pid", &pid.to_string()]);
        command.args(["--record-requests", &self.record_requests.to_string()]);
        command.args(["--record-files", &self.record_files.to_string()]);
        if let Some(every) = self.record_every_s {
            command.args(["--record-every-s", &every.to_string()]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        if again {
            let ended = command.arg("--detach").status()?;
            let failed = || Error::Work("the process that records cannot be started".to_owned());
            return ended.success().then_some(()).ok_or_else(failed);
        }
        command.spawn()?;
        Ok(())
    }

    fn rotation(&self, folder: &Path, block_bytes: u32) -> RotationOptions {
        RotationOptions {
            folder: folder.to_owned(),
            ending: ".uct.zst".to_owned(),
            block_bytes,
            has_evictions: true,
            records: self.record_requests,
            every: self.record_every_s.map(|every| Duration::from_secs(every.get().into())),
            files: self.record_files,
        }
    }

    /// Records a program until it ends, or until this process is told to end.
    ///
    /// # Errors
    /// The program is not tracked, or is recorded already; or a file cannot be written.
    pub(crate) fn run(&self, segments: &Path, pid: u32) -> Result<(), Error> {
        let Some(folder) = &self.record else { return Ok(()) };
        if self.detach {
            // The program's terminal does not end the recording, the program does.
            let _ = rustix::process::setsid();
            return self.detached(folder, segments, pid, false);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.record(folder, segments, pid))
    }

    async fn record(&self, folder: &Path, segments: &Path, pid: u32) -> Result<(), Error> {
        let mut end = EndSignals::new()?;
        let segment = tokio::select! {
            segment = tracked(segments, pid) => segment?,
            () = end.next() => return Ok(()),
        };
        let volumes = segment.status().volumes;
        let block_bytes = volumes.iter().map(|volume| volume.block_bytes).find(|bytes| *bytes > 0);
        let block_bytes = block_bytes.unwrap_or(4096);
        let spaces: Vec<_> =
            volumes.iter().map(|volume| volume.device.display().to_string()).collect();
        let mut files = Rotation::new(self.rotation(folder, block_bytes))?;
        let failed = |error: io::Error| Error::Work(format!("process {pid}: {error}"));
        let mut recording = Recording::begin(&segment).map_err(failed)?;
        eprintln!("attach: process {pid} is recorded into {}", folder.display());
        let mut taken = Taken::default();
        loop {
            let has_ended = recording.has_ended();
            taken.write(&mut recording, &mut files, &spaces)?;
            if has_ended {
                break;
            }
            tokio::select! {
                () = sleep(LOOK) => {}
                () = end.next() => break,
            }
        }
        recording.stop();
        taken.write(&mut recording, &mut files, &spaces)?;
        files.complete()?;
        let (lost, unplaced) = recording.lost();
        eprintln!(
            "attach: process {pid}: {} reads and writes and {} evictions recorded into {}; {} \
             lost, {} blocks of 4 KiB had no place on a volume",
            count(taken.requests),
            count(taken.evictions),
            folder.display(),
            count(lost),
            count(unplaced),
        );
        Ok(())
    }
}

/// The memory of a tracker whose program uses a volume; waits for both.
async fn tracked(segments: &Path, pid: u32) -> Result<Segment, Error> {
    let mut wrong_since = None;
    loop {
        match Segment::of_process(segments, pid) {
            Ok(segment) if segment.state() == State::Ready => return Ok(segment),
            // The program may be making it just now.
            Err(error)
                if error.kind() != io::ErrorKind::NotFound
                    && wrong_since.get_or_insert_with(Instant::now).elapsed() > MADE_WITHIN =>
            {
                return Err(Error::Work(format!("process {pid}: {error}")));
            }
            _ => {}
        }
        if !is_alive(pid.into()) {
            let why = "it ended, or there was none, and it used no volume that is tracked";
            return Err(Error::Work(format!("process {pid}: {why}; nothing is recorded")));
        }
        sleep(LOOK).await;
    }
}

/// What was taken from the tracker's memory.
#[derive(Default)]
struct Taken {
    records: Vec<Record>,
    began_us: Option<u64>,
    requests: u64,
    evictions: u64,
}

impl Taken {
    /// Writes what the program has done by now.
    fn write(
        &mut self,
        recording: &mut Recording,
        files: &mut Rotation,
        spaces: &[String],
    ) -> Result<(), Error> {
        let Self { records, began_us, requests, evictions } = self;
        records.clear();
        recording.take(|Recorded { kind, at, length, time_us }| {
            let began_us = *began_us.get_or_insert(time_us);
            let (op, counter) = match kind {
                CallKind::Read => (Op::Read, &mut *requests),
                CallKind::Write => (Op::Write, &mut *requests),
                CallKind::Evicted => (Op::Evict, &mut *evictions),
            };
            *counter += 1;
            records.push(Record {
                time_ns: time_us.saturating_sub(began_us).saturating_mul(1000),
                op,
                space: at.volume as u32,
                address: at.offset,
                length,
                buffer: None,
                client: 0,
            });
        });
        files.write(records, spaces)?;
        Ok(())
    }
}
