//! A volume as the machine has it, beside the export that a server says it is: whether the two are
//! the same.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::fs::{OFlags, major, minor};
use serde_json::Value;
use undercroft_level::placement::Placement;
use undercroft_nbd::{Client, ClientOptions, Endpoint, Uri, UriError};

/// Blocks at the beginning that are compared: they have the marks of partitions and file systems.
const FIRST: u64 = 17;

/// Further blocks that are compared, at equal distances up to the last one.
const FURTHER: u64 = 32;

/// Bytes of each. Direct I/O wants its memory to lie at a multiple of this.
const BLOCK: usize = 4096;

/// How often, and how long after the last time, blocks that differ are compared again: something
/// may be writing them.
const ATTEMPTS: usize = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// A place on this machine, and the export that is behind it: `WHERE=URI`.
#[derive(Clone, Debug)]
pub(crate) struct VolumeArg {
    place: PathBuf,
    pub(crate) uri: Uri,
}

impl FromStr for VolumeArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, uri) = text
            .split_once("=nbd")
            .ok_or("write WHERE=URI: a device, a folder on it or an image, and its NBD address")?;
        let uri: Result<Uri, UriError> = format!("nbd{uri}").parse();
        let mut uri = uri.map_err(|error| error.to_string())?;
        if let Endpoint::Unix(path) = &mut uri.endpoint {
            // Programs change their folder.
            *path = std::path::absolute(&path).map_err(|error| error.to_string())?;
        }
        Ok(VolumeArg { place: place.into(), uri })
    }
}

/// What is behind a `WHERE`.
#[derive(Debug)]
pub(crate) struct Local {
    /// A block device, or a file that is the volume itself.
    pub(crate) path: PathBuf,
    bytes: u64,
}

/// What a server says of an export.
#[derive(Debug)]
pub(crate) struct Exported {
    pub(crate) placement: String,
    pub(crate) policy: String,
    pub(crate) block_bytes: u64,
    /// What was not compared, and why; empty if nothing is missing.
    uncompared: String,
}

impl VolumeArg {
    /// Finds the device: that of a file system if the place is a folder, the whole disk if it is a
    /// partition.
    ///
    /// # Errors
    /// Says what the place is instead.
    pub(crate) fn local(&self) -> Result<Local, String> {
        let failed = |error| format!("{}: {error}", self.place.display());
        let metadata = fs::metadata(&self.place).map_err(failed)?;
        if metadata.file_type().is_block_device() {
            return Local::device(metadata.rdev());
        }
        if metadata.is_dir() {
            return Local::device(metadata.dev()).map_err(|error| {
                format!("{}: on no disk that could be a volume: {error}", self.place.display())
            });
        }
        if metadata.is_file() {
            let path = fs::canonicalize(&self.place).map_err(failed)?;
            return Ok(Local { path, bytes: metadata.len() });
        }
        Err(format!("{}: neither a disk, nor a folder, nor an image", self.place.display()))
    }

    /// Asks the server, and compares sizes and some blocks: every one of them must be the same.
    ///
    /// # Errors
    /// Says what does not match, or why the server does not answer.
    pub(crate) async fn check(&self, local: &Local) -> Result<Exported, String> {
        let (uri, options) = (&self.uri, ClientOptions::default());
        if uri.tls {
            let why = "the tracker does not encrypt; use a unix socket or a local address";
            return Err(format!("{uri}: {why}"));
        }
        let said = undercroft_server::status_over_nbd(uri, &options).await?;
        let stats: Value =
            serde_json::from_str(&said).map_err(|error| format!("{uri}: {error}"))?;
        let client =
            Client::connect(uri, &options).await.map_err(|error| format!("{uri}: {error}"))?;
        let export = &uri.export;
        let bytes = client.remote().info.size;
        if bytes != local.bytes {
            return Err(format!(
                "{} has {} bytes, {uri} has {bytes}: they are not the same volume",
                local.path.display(),
                local.bytes
            ));
        }
        let uncompared = match local.open() {
            Ok(file) => compare(&client, local, &file, uri).await?,
            Err(error) => format!(
                "; the contents were not compared, so it may be another disk of that size: {}: \
                 {error}",
                local.path.display()
            ),
        };
        let volumes = stats["volumes"].as_object();
        let volume = volumes.and_then(|all| {
            let first = || all.values().find(|volume| volume["size_bytes"] == bytes);
            all.get(export).or_else(first)
        });
        let volume = volume.ok_or_else(|| format!("{uri}: the server tells nothing of it"))?;
        let text = |name: &str| volume[name].as_str().unwrap_or("?").to_owned();
        Ok(Exported {
            placement: text("placement"),
            policy: text("policy"),
            block_bytes: volume["block_bytes"].as_u64().unwrap_or(0),
            uncompared,
        })
    }
}

impl Exported {
    /// In a line, and what it means for the program.
    pub(crate) fn describe(&self, local: &Local, uri: &Uri) -> String {
        let Exported { placement, policy, block_bytes, uncompared } = self;
        // A placement that is not known here is that of a newer server.
        let advice = match placement.parse() {
            Ok(Placement::Access) => {
                ": evictions are told, but nothing is placed by them; the server's volume needs \
                 placement=auto"
            }
            _ => "",
        };
        let local = local.path.display();
        format!(
            "{local} is {uri}: policy {policy}, placement {placement}, blocks of {block_bytes} \
             bytes{advice}{uncompared}"
        )
    }
}

impl Local {
    fn device(number: u64) -> Result<Local, String> {
        let (major, minor) = (major(number), minor(number));
        let entry = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let entry = fs::canonicalize(&entry)
            .map_err(|_| format!("device {major}:{minor} is no disk of its own"))?;
        let disk = match entry.join("partition").exists() {
            true => entry.parent().unwrap_or(&entry),
            false => &entry,
        };
        let failed = |error| format!("{}: {error}", disk.display());
        let sectors = fs::read_to_string(disk.join("size")).map_err(failed)?;
        let sectors: u64 = sectors.trim().parse().map_err(|_| format!("{sectors}: no size"))?;
        let events = fs::read_to_string(disk.join("uevent")).map_err(failed)?;
        let name = events.lines().find_map(|line| line.strip_prefix("DEVNAME="));
        let name = name.ok_or_else(|| format!("{}: a disk without a name", disk.display()))?;
        Ok(Local { path: Path::new("/dev").join(name), bytes: sectors * 512 })
    }

    /// Past the page cache, which may have what the server has not yet.
    fn open(&self) -> io::Result<File> {
        let flags = OFlags::DIRECT.bits() as i32;
        OpenOptions::new().read(true).custom_flags(flags).open(&self.path)
    }
}

/// Compares blocks at the beginning and all over the volume. Blocks that differ are compared again
/// for a while. Returns what to say if all of them are zeroes, which proves nothing.
async fn compare(client: &Client, local: &Local, file: &File, uri: &Uri) -> Result<String, String> {
    let blocks = local.bytes / BLOCK as u64;
    let last = blocks.saturating_sub(1);
    let further = (0..=FURTHER)
        .map(|part| (u128::from(last) * u128::from(part) / u128::from(FURTHER)) as u64);
    let mut open: Vec<u64> = (0..FIRST).chain(further).filter(|&block| block < blocks).collect();
    open.sort_unstable();
    open.dedup();
    let all = open.len();
    let mut memory = vec![0_u8; 2 * BLOCK];
    let aligned = memory.as_ptr().align_offset(BLOCK);
    let here = &mut memory[aligned..aligned + BLOCK];
    let mut has_data = false;
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            // A server may have what an image does not have yet; one that is read-only has not.
            let _ = client.flush().await;
            tokio::time::sleep(PAUSE).await;
        }
        let mut different = Vec::new();
        for block in open {
            let at = block * BLOCK as u64;
            file.read_exact_at(here, at)
                .map_err(|error| format!("{}: byte {at}: {error}", local.path.display()))?;
            let (mut there, result) = client.read(at, vec![Box::new(vec![0_u8; BLOCK])]).await;
            result.map_err(|error| format!("the server: byte {at}: {error}"))?;
            if (*there[0]).as_mut() != here {
                different.push(block);
            }
            has_data |= here.iter().any(|&byte| byte != 0);
        }
        open = different;
        if open.is_empty() {
            break;
        }
    }
    let path = local.path.display();
    if let Some(first) = open.first() {
        return Err(format!(
            "{path} and {uri} are not the same volume: {} of {all} blocks that were compared \
             differ, the first at byte {}",
            open.len(),
            first * BLOCK as u64
        ));
    }
    Ok(if has_data {
        String::new()
    } else {
        format!(
            "; all {all} blocks that were compared are zeroes, here and there, so it may be \
             another empty disk of that size"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_given_where_evictions_are_of_no_use() {
        let local = Local { path: "/dev/vdb".into(), bytes: 1 << 20 };
        let uri = "nbd://host/d".parse().unwrap();
        let advised = |placement: &str| {
            let (placement, policy) = (placement.to_owned(), "mq".to_owned());
            let exported =
                Exported { placement, policy, block_bytes: 4096, uncompared: String::new() };
            exported.describe(&local, &uri).contains("needs placement=auto")
        };
        assert!(advised("access"));
        for placement in ["auto", "eviction", "eviction,on-hit=move", "gl", "of-another-version"] {
            assert!(!advised(placement), "{placement}");
        }
    }
}
