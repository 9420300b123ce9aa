//! The options that say how a trace is read, the same for every command, and reading it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use undercroft_policy::WriteMode;
use undercroft_sim::characterize::{RequestCounter, watch};
use undercroft_sim::{TraceInput, Warmup};
use undercroft_text::Bytes;
use undercroft_trace::{BlockOptions, BlockStream, DenseTrace, Meta, Reader, Unit};

use crate::error::Error;
use crate::lab::progress::Reading;

/// How a trace is read.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Trace")]
pub(crate) struct TraceOptions {
    /// Format of the trace, with options (`csv,id=2,op=4`) [default: recognised]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) format: Option<String>,
    /// Cache block size, for example 8KiB [default: what the trace says, else 4KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) block: Option<String>,
    /// The numbers of the trace are addresses in units of so many bytes, as 512 or 8KiB; without
    /// it one number is one block
    #[arg(long, value_name = "SIZE", value_parser = unit)]
    pub(crate) unit: Option<u32>,
}

impl TraceOptions {
    /// How a trace is read, as libraries take it.
    pub(crate) fn input(&self) -> TraceInput {
        TraceInput { format: self.format.clone(), block: self.block.clone(), unit: self.unit }
    }

    /// Opens a trace, and says once which of its columns are not used.
    pub(crate) fn open(&self, path: &Path) -> Result<Box<dyn Reader>, Error> {
        let reader = self.input().open(path)?;
        if !reader.unused().is_empty() {
            let columns = reader.unused().join(", ");
            note(&format!("{}: columns that are not used: {columns}", path.display()));
        }
        Ok(reader)
    }

    /// The block size for an open trace, in bytes.
    pub(crate) fn block_bytes(&self, reader: &dyn Reader) -> Result<u32, Error> {
        self.input().block_bytes(reader).map_err(of_option)
    }

    /// Opens a trace as a stream of blocks, with their size in bytes.
    pub(crate) fn stream(
        &self,
        path: &Path,
        options: BlockOptions,
    ) -> Result<(BlockStream, u32), Error> {
        let reader = self.open(path)?;
        self.remark_on_block(path, reader.meta());
        self.stream_of(reader, options)
    }

    /// Opens a trace as a stream of blocks with all that is known of them, with a counter of its
    /// requests, and the size of blocks in bytes.
    pub(crate) fn stream_counted(
        &self,
        path: &Path,
        sample_rate: f64,
    ) -> Result<(BlockStream, RequestCounter, u32), Error> {
        let options =
            BlockOptions { sample_rate, origins: true, evictions: true, ..BlockOptions::default() };
        self.counted(path, self.open(path)?, options)
    }

    /// Opens a trace as a stream of blocks with a counter of its requests, and without a remark on
    /// its columns.
    pub(crate) fn stream_silently(
        &self,
        path: &Path,
    ) -> Result<(BlockStream, RequestCounter, u32), Error> {
        self.counted(path, self.input().open(path)?, BlockOptions::default())
    }

    fn counted(
        &self,
        path: &Path,
        reader: Box<dyn Reader>,
        options: BlockOptions,
    ) -> Result<(BlockStream, RequestCounter, u32), Error> {
        self.remark_on_block(path, reader.meta());
        let (reader, requests) = watch(reader);
        let (stream, block_bytes) = self.stream_of(reader, options)?;
        Ok((stream, requests, block_bytes))
    }

    /// Says what `--block` means where one number of the trace is one block.
    pub(crate) fn remark_on_block(&self, path: &Path, meta: &Meta) {
        let (Some(block), None, Unit::Blocks) = (&self.block, self.unit, meta.unit) else { return };
        let path = path.display();
        match meta.block_bytes.map(|bytes| Bytes(bytes.into())) {
            Some(pages) if block.parse::<Bytes>() != Ok(pages) => note(&format!(
                "{path}: its numbers are pages of {pages}, and each counts as one block of {block}; \
                 with --unit {pages} they are regrouped"
            )),
            Some(_) => {}
            None => note(&format!(
                "{path}: each of its numbers counts as one block of {block}; if they are pages or \
                 sectors of another size, name it, as --unit 8KiB"
            )),
        }
    }

    /// Says it if the numbers of a trace of so many records seem to count parts of blocks.
    pub(crate) fn remark_on_numbers(&self, path: &Path, meta: &Meta, records: u64, divisor: u64) {
        let says_nothing = meta.unit == Unit::Blocks && meta.block_bytes.is_none();
        let are_parts = divisor > 1 && divisor.is_power_of_two() && records > 2;
        if self.unit.is_none() && says_nothing && are_parts {
            note(&format!(
                "{}: all its numbers are multiples of {divisor}, and each counts as one block; if \
                 they are sectors, say --unit 512",
                path.display()
            ));
        }
    }

    fn stream_of(
        &self,
        reader: Box<dyn Reader>,
        options: BlockOptions,
    ) -> Result<(BlockStream, u32), Error> {
        self.input().stream(reader, options).map_err(of_option)
    }

    /// Reads a whole trace, with its block size in bytes.
    pub(crate) fn load(&self, path: &Path, rate: f64) -> Result<(DenseTrace, u32), Error> {
        let bar = Reading::start(path);
        let loaded = self.load_silently(path, rate, |records| bar.at(records))?;
        bar.done();
        Ok(loaded)
    }

    /// Reads a whole trace, with its block size in bytes, without a progress bar of its own.
    pub(crate) fn load_silently(
        &self,
        path: &Path,
        rate: f64,
        progress: impl FnMut(u64),
    ) -> Result<(DenseTrace, u32), Error> {
        let options = BlockOptions { sample_rate: rate, ..BlockOptions::default() };
        let (stream, block_bytes) = self.stream(path, options)?;
        let trace = undercroft_sim::load(stream, path, progress)?;
        self.remark_on_numbers(path, trace.meta(), trace.seen().records, trace.divisor());
        Ok((trace, block_bytes))
    }
}

/// An error that begins with the name of the option that is wrong.
pub(crate) fn of_option(error: undercroft_sim::Error) -> Error {
    match error {
        undercroft_sim::Error::Request(what) => Error::Usage(format!("--{what}")),
        error => error.into(),
    }
}

/// Prints a remark on standard error, the same one only once.
pub(crate) fn note(remark: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.insert(remark.to_owned()) {
        eprintln!("note: {remark}");
    }
}

/// How a trace is simulated.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Simulation")]
pub(crate) struct SimulationOptions {
    /// When a block comes and goes between the levels: access, eviction or gl, with options, as
    /// eviction,on-hit=keep (docs/user/cooperation.md); or a scheme that moves blocks by hints, as
    /// d-hfa,k=4 (docs/user/hierarchies.md)
    #[arg(long, value_name = "PLACEMENT", default_value = "access")]
    pub(crate) placement: String,
    /// What a write does to a level: allocate, no-allocate (update a copy only), invalidate
    #[arg(long, value_name = "MODE", default_value = "allocate", value_parser = write_mode)]
    pub(crate) write_mode: WriteMode,
    /// Records that are simulated first and not counted: a number or a share (10%)
    #[arg(long, value_name = "N|N%", default_value = "0")]
    pub(crate) warmup: Warmup,
}

impl SimulationOptions {
    /// Refuses all placements but one, for commands that know no other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.placement.as_str() {
            "access" => Ok(()),
            other => Err(Error::Usage(format!(
                "--placement {other}: this command places blocks at the access only (access)"
            ))),
        }
    }
}

fn unit(text: &str) -> Result<u32, String> {
    let bytes = text.parse().ok().and_then(|Bytes(bytes)| u32::try_from(bytes).ok());
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| "expected 1 to 2GiB, as 512 or 8KiB".to_owned())
}

fn write_mode(text: &str) -> Result<WriteMode, String> {
    match text {
        "allocate" => Ok(WriteMode::Allocate),
        "no-allocate" => Ok(WriteMode::NoAllocate),
        "invalidate" => Ok(WriteMode::Invalidate),
        _ => Err("expected allocate, no-allocate or invalidate".into()),
    }
}

/// The traces of a command.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceArg {
    /// Trace file; zstd, gzip, bzip2 and xz are undone; `-` is standard input
    #[arg(value_name = "TRACE")]
    pub(crate) path: PathBuf,
}
