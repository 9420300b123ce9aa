//! What a tracker says of itself, seen from outside: its memory is a file that the same user may
//! read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, OFlags};
use serde_json::{Value, json};
use undercroft_nbd::{Uri, UriError};
use undercroft_tracker::device::{Backing, Node, Way, way};
use undercroft_tracker::extents::Extents;
use undercroft_tracker::pools::Pool;
use undercroft_tracker::segment::Segment;
use undercroft_tracker::{GRANULE, Status};

use super::score::{self, Believed, Place, Places, Score};
use crate::error::Error;
use crate::saved::sentence;
use crate::status::volumes;
use crate::table::{bytes, count, percent};
use crate::tls::TlsOptions;

/// How long a server is waited for that is asked what its cache saved.
const PATIENCE: Duration = Duration::from_secs(5);

/// Generations of parents in which the tracked process is looked for.
const PARENTS: usize = 8;

/// The tracker's memory of a process or of the one that it was forked from.
///
/// # Errors
/// Says that there is none, and why that may be.
pub(crate) fn segment(folder: &Path, pid: u32) -> Result<Segment, String> {
    let mut asked = pid;
    for _ in 0..PARENTS {
        match Segment::of_process(folder, asked) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found.map_err(|error| format!("process {asked}: {error}")),
        }
        match parent(asked) {
            Some(parent) if parent > 1 => asked = parent,
            _ => break,
        }
    }
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"));
    Err(match maps {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            format!("there is no process {pid}")
        }
        Ok(maps) if maps.contains("libundercroft_cct") => format!(
            "process {pid} has the library and no tracker in {}: UNDERCROFT_VOLUMES was missing or \
             wrong at its start (one line on its standard error says so), or --segments is another",
            folder.display()
        ),
        _ => format!("process {pid} is not tracked: it was not started by `undercroft attach`"),
    })
}

fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

/// What the cache of a volume saved, as its server says, for all clients together.
///
/// # Errors
/// It cannot be asked, or does not tell.
fn saved(uri: &str) -> Result<Value, String> {
    let uri: Uri = uri.parse().map_err(|error: UriError| error.to_string())?;
    let options = TlsOptions::default().client(Some(&uri)).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let asked = async {
        let status = undercroft_server::status_over_nbd(&uri, &options);
        tokio::time::timeout(PATIENCE, status).await
    };
    let late = |_| format!("no answer within {} s", PATIENCE.as_secs());
    let text = runtime.block_on(asked).map_err(late)??;
    let status: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let all = volumes(&status);
    let own = all.iter().find(|(name, _)| *name == uri.export || uri.export.is_empty());
    own.map(|(_, volume)| (*volume).clone()).ok_or_else(|| "it does not tell".to_owned())
}

/// All that is known, in the names of the JSON output.
pub(crate) fn json(status: &Status) -> Value {
    let volumes: Vec<_> = status
        .volumes
        .iter()
        .map(|volume| {
            let saved = saved(&volume.uri).map(|counts| counts["saved"].clone());
            json!({
                "saved": saved.unwrap_or_default(),
                "device": volume.device.display().to_string(),
                "uri": volume.uri,
                "connected": volume.connected,
                "block_bytes": volume.block_bytes,
            })
        })
        .collect();
    let pool = |pool: &Pool| json!({ "bytes": pool.end - pool.start, "page_bytes": pool.page });
    let pools: Vec<_> = status.pools.iter().map(pool).collect();
    json!({
        "pid": status.pid,
        "tracking": status.is_tracking,
        "gave_up": status.gave_up,
        "uptime_s": status.uptime_us as f64 / 1e6,
        "bypasses_page_cache": status.bypasses,
        "reads": status.reads,
        "writes": status.writes,
        "async_reads": status.async_reads,
        "async_writes": status.async_writes,
        "evictions": status.evictions,
        "late": status.late,
        "late_share": late_share(status),
        "foreseen": status.foreseen,
        "pages_made": status.made,
        "writes_without_frame": status.no_frame,
        "partial_reads": status.partial,
        "missed": status.missed,
        "dropped": status.dropped,
        "overflowed": status.overflowed,
        "files_lost": status.files_lost,
        "hands_over": status.hands_over,
        "contents_refused_by_kernel": status.contents_refused,
        "contents_kept": status.kept,
        "contents_without_head": status.headless,
        "contents_not_kept": status.not_kept,
        "blocks_handed_over": status.handed_over,
        "blocks_told": status.sent,
        "messages": status.messages,
        "unplaced": status.unplaced,
        "back_before_told": status.back,
        "strays": status.strays,
        "untold": status.unsent,
        "connections": status.connections,
        "last_error": status.last_error,
        "pools": pools,
        "volumes": volumes,
    })
}

fn late_share(status: &Status) -> f64 {
    status.late as f64 / (status.evictions + status.late).max(1) as f64
}

pub(crate) fn print(out: &mut impl Write, status: &Status) -> Result<(), Error> {
    let state = match (status.gave_up, status.is_tracking) {
        (true, _) => "gave up, the program runs as without it",
        (_, false) => "has opened no file of a volume yet",
        (_, true) => "tracking",
    };
    let hours = status.uptime_us as f64 / 3.6e9;
    writeln!(out, "process {}     {state}, for {hours:.2} h", status.pid)?;
    for volume in &status.volumes {
        let connected = match (volume.connected, status.connections) {
            (true, _) => format!("connected, blocks of {}", bytes(volume.block_bytes.into())),
            (false, 0) => "not connected yet".to_owned(),
            (false, _) => "connection lost, tried again every few seconds".to_owned(),
        };
        writeln!(out, "volume         {} is {}: {connected}", volume.device.display(), volume.uri)?;
        match saved(&volume.uri) {
            Ok(counts) => {
                if let Some(text) = sentence(&counts) {
                    writeln!(out, "its cache      {text}")?;
                }
            }
            Err(why) => writeln!(out, "its cache      not known: {why}")?,
        }
    }
    let (reads, writes) = (status.reads + status.async_reads, status.writes + status.async_writes);
    let path = if status.bypasses { ", past the page cache" } else { "" };
    writeln!(out, "calls          {} reads, {} writes{path}", count(reads), count(writes))?;
    for pool in &status.pools {
        let (size, page) = (bytes(pool.end - pool.start), bytes(pool.page));
        writeln!(out, "cache          {size} of memory, with pages of {page} at most")?;
    }
    let granules = |number: u64| bytes(number * GRANULE);
    let late = percent(late_share(status));
    writeln!(
        out,
        "evictions      {} left their buffers ({} found freed before); {} more were noticed late \
         ({late})",
        granules(status.evictions),
        granules(status.foreseen),
        granules(status.late)
    )?;
    writeln!(
        out,
        "told           {} blocks in {} messages; {} were back before",
        count(status.sent),
        count(status.messages),
        granules(status.back)
    )?;
    if status.contents_refused {
        writeln!(out, "contents       none: the kernel refuses process_vm_readv to this program")?;
    } else if status.hands_over || status.handed_over > 0 {
        writeln!(
            out,
            "contents       {} blocks handed over; of {} that left the head was not known",
            count(status.handed_over),
            granules(status.headless)
        )?;
    }
    let losses = [
        ("not kept", status.not_kept, "pieces of 4 KiB: too many waited for the sender"),
        ("not understood", status.missed, "calls that were interrupted or came at the same time"),
        ("dropped", status.dropped, "evictions: the sender did not keep up"),
        ("untold", status.unsent, "blocks: there was no connection"),
        ("strays", status.strays, "pieces of 4 KiB were read into memory that is no cache"),
        ("unplaced", status.unplaced, "pieces of 4 KiB of deleted files, or not yet allocated"),
        ("forgotten", status.overflowed, "buffers: set UNDERCROFT_POOL to the size of the cache"),
        ("files lost", status.files_lost, "too many are open"),
    ];
    for (name, number, what) in losses.iter().filter(|(_, number, _)| *number > 0) {
        writeln!(out, "{name:<14} {} {what}", count(*number))?;
    }
    if !status.last_error.is_empty() {
        writeln!(out, "last error     {}", status.last_error)?;
    }
    Ok(())
}

/// Compares with the database, at once or in a quiet moment.
///
/// # Errors
/// Says what could not be asked.
pub(crate) fn score(
    folder: &Path,
    pid: u32,
    client: &[String],
    when_quiet: bool,
) -> Result<Score, String> {
    let segment = segment(folder, pid)?;
    let volumes: Result<Vec<_>, _> =
        segment.status().volumes.iter().map(|volume| Backing::of_path(&volume.device)).collect();
    let mut maps = Maps { volumes: volumes?, known: HashMap::new() };
    let read = || {
        let believed = segment.resident().into_iter().filter_map(|piece| {
            let volume = u32::try_from(piece.volume).ok()?;
            let offset = piece.volume_offset?;
            Some(Believed { address: piece.address, volume, offset, bytes: piece.bytes })
        });
        Ok(believed.collect())
    };
    let score = score::score(client, when_quiet, read, &mut maps)?;
    let kept = segment.set_score(score.precision, score.recall);
    kept.map_err(|error| format!("the score cannot be kept: {error}"))?;
    Ok(score)
}

/// How files reach volumes, each asked for once at a time.
struct Maps {
    volumes: Vec<Backing>,
    known: HashMap<PathBuf, Map>,
}

impl Maps {
    fn of(&mut self, file: &Path) -> &Map {
        let entry = self.known.entry(file.to_owned());
        entry.or_insert_with(|| Map::new(file, &self.volumes))
    }
}

impl Places for Maps {
    fn locate(&mut self, file: &Path, offset: u64) -> Place {
        match self.of(file) {
            Map::Raw(volume, start) => Place::On(*volume, start + offset),
            Map::Extents(volume, start, extents) => match extents.locate(offset) {
                Some((physical, _)) => Place::On(*volume, start + physical),
                None => Place::Unallocated,
            },
            Map::Nowhere => Place::Elsewhere,
        }
    }

    fn pieces(&mut self, file: &Path) -> Vec<(u32, Range<u64>)> {
        match self.of(file) {
            Map::Raw(volume, start) => vec![(*volume, *start..u64::MAX)],
            Map::Extents(volume, start, extents) => {
                let pieces = extents.list().iter().map(|extent| {
                    let first = start + extent.physical;
                    (*volume, first..first + extent.length)
                });
                pieces.collect()
            }
            Map::Nowhere => Vec::new(),
        }
    }

    fn forget(&mut self) {
        self.known.clear();
    }
}

/// How a file reaches a volume.
enum Map {
    Raw(u32, u64),
    Extents(u32, u64, Extents),
    Nowhere,
}

impl Map {
    fn new(path: &Path, volumes: &[Backing]) -> Map {
        Self::find(path, volumes).unwrap_or(Map::Nowhere)
    }

    fn find(path: &Path, volumes: &[Backing]) -> Option<Map> {
        // What has the name now may be a pipe.
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path).ok()?;
        let metadata = file.metadata().ok()?;
        let node = Node {
            kind: FileType::from_raw_mode(metadata.mode()),
            device: metadata.dev(),
            inode: metadata.ino(),
            is_device: metadata.rdev(),
        };
        let map = match way(volumes, &node)? {
            Way::Raw(part) => Map::Raw(u32::try_from(part.volume).ok()?, part.start),
            Way::Mapped(part) => {
                let extents = Extents::of(&file).ok()?;
                Map::Extents(u32::try_from(part.volume).ok()?, part.start, extents)
            }
        };
        Some(map)
    }
}
