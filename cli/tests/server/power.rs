//! Power cuts below the real file store, with a write log on another disk or without one, and below
//! a level on flash: the file lies on a disk whose cache loses any part of what was not flushed.
//! Each disk is an NBD export of this test, which nbdfuse makes a file of, so that every write of
//! the server and every `fdatasync` reaches it.
//!
//! Each block has one writer, whose versions only grow. After a cut each sector must have a version
//! that is no older than the newest one that was answered with FUA, or before a FLUSH was asked for
//! that succeeded; and no version that nobody wrote.
//!
//! Not here: databases on such disks (`databases/power.rs`).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use undercroft_nbd::{
    Client, Command, Context, Export, ExportInfo, Exports, Failure, Flags, Listener, Peer, Refusal,
    Request, ServerOptions, Session,
};

use super::clients::is_there;
use super::disk::{Disk as Device, Mounted};
use super::support::{PATIENCE, Place, Random, Server, read, seeded, write};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 512;
const SECTOR: usize = 512;
const WRITERS: u64 = 4;
const LOG_BYTES: u64 = 8 << 20;

/// The level on flash, and the blocks above it.
const FLASH_BYTES: u64 = 4 << 20;
const HOT_BLOCKS: u64 = 4096;

/// What a disk holds: as it is read, and as it would be after a cut if its cache were lost.
struct Disk {
    live: Vec<u8>,
    durable: Vec<u8>,
    /// Written since the last flush, in order.
    cached: Vec<(usize, Bytes)>,
    /// The power is gone.
    is_off: bool,
}

#[derive(Clone)]
pub(crate) struct Power(Arc<Mutex<Disk>>);

impl Power {
    fn new(bytes: u64) -> Power {
        let zeroes = vec![0; bytes as usize];
        let (live, durable) = (zeroes.clone(), zeroes);
        Power(Arc::new(Mutex::new(Disk { live, durable, cached: Vec::new(), is_off: false })))
    }

    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap()
    }

    /// Ends the power of disks. Any sector that was in a cache may be there afterwards.
    pub(crate) fn cut(disks: &[Power], random: &mut Random) {
        // At one moment: what is drawn takes its time.
        disks.iter().for_each(|disk| disk.disk().is_off = true);
        disks.iter().for_each(|disk| disk.lose(random));
    }

    fn lose(&self, random: &mut Random) {
        let mut disk = self.disk();
        let cached = std::mem::take(&mut disk.cached);
        // Of a tenth of the cuts nothing of the cache stays, of a tenth everything.
        let kept = match random.below(10) {
            0 => 0,
            1 => 100,
            _ => random.below(100),
        };
        for (at, data) in cached {
            for (number, sector) in data.chunks(SECTOR).enumerate() {
                if random.below(100) < kept {
                    let at = at + number * SECTOR;
                    disk.durable[at..at + sector.len()].copy_from_slice(sector);
                }
            }
        }
        disk.live = disk.durable.clone();
    }

    pub(crate) fn on(&self) {
        self.disk().is_off = false;
    }
}

impl Disk {
    fn write(&mut self, offset: u64, data: Vec<Bytes>, durable: bool) {
        let mut at = offset as usize;
        for piece in data {
            self.live[at..at + piece.len()].copy_from_slice(&piece);
            let length = piece.len();
            self.cached.push((at, piece));
            at += length;
        }
        if durable {
            self.flush();
        }
    }

    fn flush(&mut self) {
        for (at, data) in std::mem::take(&mut self.cached) {
            self.durable[at..at + data.len()].copy_from_slice(&data);
        }
    }
}

impl Exports for Power {
    fn list(&self, _: &Peer) -> Vec<(String, String)> {
        vec![("disk".to_owned(), String::new())]
    }

    fn find(&self, _: &str, _: &Peer) -> Result<Arc<dyn Export>, Refusal> {
        Ok(Arc::new(self.clone()))
    }
}

impl Export for Power {
    fn info(&self, _: &Peer, _: &[Context]) -> ExportInfo {
        ExportInfo {
            name: "disk".to_owned(),
            description: String::new(),
            size: self.disk().live.len() as u64,
            flags: Flags { multi_conn: true, ..Flags::default() },
            min_block: 1,
            preferred_block: 4096,
            max_block: 32 << 20,
        }
    }

    fn contexts(&self, _: &str) -> Vec<Context> {
        Vec::new()
    }

    fn connect(&self, _: &Peer, _: &[Context]) -> Result<Box<dyn Session>, Refusal> {
        Ok(Box::new(self.clone()))
    }
}

impl Session for Power {
    fn serve(&mut self, requests: &mut Vec<Request>) -> u64 {
        requests.drain(..).for_each(|request| self.start(request));
        0
    }
}

impl Power {
    fn start(&mut self, request: Request) {
        let Request { command, offset, length, durable, reply } = request;
        let mut disk = self.disk();
        if disk.is_off {
            return reply.fail(Failure::Io, "there is no power".to_owned());
        }
        match command {
            Command::Read { .. } => {
                let range = offset as usize..(offset + length) as usize;
                reply.data(Bytes::copy_from_slice(&disk.live[range]));
            }
            Command::Write { data } => {
                disk.write(offset, data, durable);
                reply.done();
            }
            Command::Flush => {
                disk.flush();
                reply.done();
            }
            _ => reply.fail(Failure::NotSupported, "a plain disk".to_owned()),
        }
    }
}

/// Versions of the blocks.
struct Versions {
    issued: Vec<u64>,
    answered: Vec<u64>,
    durable: Vec<u64>,
}

/// A block of one version: each of its sectors says which.
fn content(version: u64) -> Vec<u8> {
    version.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// Writes its own blocks until the power is gone.
async fn write_versions(
    client: Client,
    writer: u64,
    mut random: Random,
    versions: Arc<Mutex<Versions>>,
) {
    loop {
        if random.below(8) == 0 {
            let covered = versions.lock().unwrap().answered.clone();
            if client.flush().await.is_err() {
                return;
            }
            let mut versions = versions.lock().unwrap();
            for (durable, covered) in versions.durable.iter_mut().zip(covered) {
                *durable = covered.max(*durable);
            }
            continue;
        }
        let block = random.below(BLOCKS / WRITERS) * WRITERS + writer;
        let (place, fua) = (block as usize, random.below(10) == 0);
        let version = {
            let mut versions = versions.lock().unwrap();
            versions.issued[place] += 1;
            versions.issued[place]
        };
        let data = vec![Bytes::from(content(version))];
        if client.write(block * BLOCK, data, fua).await.is_err() {
            return;
        }
        let mut versions = versions.lock().unwrap();
        versions.answered[place] = version;
        if fua {
            versions.durable[place] = version;
        }
    }
}

fn check(image: &[u8], versions: &Versions, what: &str) {
    for (at, sector) in image.chunks(SECTOR).enumerate() {
        let block = at * SECTOR / BLOCK as usize;
        let found = u64::from_le_bytes(sector[..8].try_into().unwrap());
        assert!(sector.chunks(8).all(|part| part == found.to_le_bytes()), "{what}: sector {at}");
        let (oldest, newest) = (versions.durable[block], versions.issued[block]);
        assert!(
            (oldest..=newest).contains(&found),
            "{what}: sector {at} of block {block} has version {found}; {oldest} is durable, \
             {newest} the newest"
        );
    }
}

/// A disk that listens at a socket.
pub(crate) fn serve(place: &Place, socket: &str, bytes: u64) -> Power {
    let power = Power::new(bytes);
    let server = undercroft_nbd::Server::new(Arc::new(power.clone()), ServerOptions::default());
    let listener = Listener::unix(place.path(socket)).unwrap();
    tokio::spawn(async move { _ = server.listen(listener).await });
    power
}

/// Cuts the power below a file, and below its write log if it has one. What is found afterwards,
/// by the next server if there is a log, is checked.
async fn cuts(has_log: bool) {
    if let Some(missing) = ["nbdfuse", "umount"].iter().find(|program| !is_there(program)) {
        return println!("skipped: {missing} is not installed");
    }
    let place = Place::new();
    let mut random = seeded(if has_log { "power, log" } else { "power" });
    let power = serve(&place, "disk", BLOCKS * BLOCK);
    let log_power = serve(&place, "log", LOG_BYTES);
    let mount = || {
        let file = Mounted::new(&place, "fuse", "nbd+unix:///disk?socket=disk")?;
        let log = has_log.then(|| Mounted::new(&place, "flash", "nbd+unix:///disk?socket=log"));
        Ok((file, log.transpose()?))
    };
    let before = if has_log { "log(flash/nbd,size=8MiB,unmarked):" } else { "" };
    let begin = |mode: &str| {
        place.serve(&format!(
            "--volume v={before}file:fuse/nbd,cache=1MiB,dirty-age-s=1,dirty-percent=30 \
             --write {mode}"
        ))
    };
    let versions = Arc::new(Mutex::new(Versions {
        issued: vec![0; BLOCKS as usize],
        answered: vec![0; BLOCKS as usize],
        durable: vec![0; BLOCKS as usize],
    }));
    for round in 0..6 {
        let mode = ["back", "through", "around"][round % 3];
        let mounted = match mount() {
            Ok(mounted) => mounted,
            Err::<_, String>(why) => return println!("skipped: {why}"),
        };
        let server = begin(mode);
        let mut writers = Vec::new();
        for writer in 0..WRITERS {
            let (client, random) = (server.connect("v").await, Random::new(random.next_u64()));
            let versions = Arc::clone(&versions);
            writers.push(tokio::spawn(write_versions(client, writer, random, versions)));
        }
        tokio::time::sleep(Duration::from_millis(300 + random.below(900))).await;
        Power::cut(&[power.clone(), log_power.clone()], &mut random);
        let mut image = power.disk().live.clone();
        server.kill();
        for writer in writers {
            tokio::time::timeout(PATIENCE, writer).await.expect("a writer hangs").unwrap();
        }
        // What the file's pages still hold goes with them.
        drop(mounted);
        power.on();
        log_power.on();
        if has_log {
            let _mounted = mount().unwrap();
            let server = begin(mode);
            let client = server.connect("v").await;
            image = read(&client, 0, image.len()).await.unwrap();
            // Before the store has what was in the log.
            server.kill();
        }
        let mut versions = versions.lock().unwrap();
        let what = format!("round {round}, {mode}, log: {has_log}");
        check(&image, &versions, &what);
        assert!(versions.durable.iter().any(|&version| version > 0), "{what}: nothing was flushed");
        // From here on the disk has what it has. Of a block that the cut tore, a FLUSH from now on
        // covers no more than its oldest sector.
        for (block, sectors) in image.chunks(BLOCK as usize).enumerate() {
            let each =
                sectors.chunks(SECTOR).map(|s| u64::from_le_bytes(s[..8].try_into().unwrap()));
            let oldest = each.min().unwrap();
            (versions.answered[block], versions.durable[block]) = (oldest, oldest);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_flushed_survives_a_power_cut_below_the_file() {
    cuts(false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_flushed_survives_a_power_cut_below_the_file_and_its_log() {
    cuts(true).await;
}

/// Reads and writes some blocks much more often than others, with a FLUSH now and then. Returns the
/// part of the reads that did not come from the store.
async fn hits(server: &Server, requests: u64, random: &mut Random) -> f64 {
    let client = server.connect("v").await;
    let count = || ["reads", "store_reads"].map(|name| server.count("v", name));
    let before = count();
    for _ in 0..requests {
        let part = random.below(1 << 20) as f64 / f64::from(1 << 20);
        let offset = (part.powi(4) * HOT_BLOCKS as f64) as u64 * BLOCK;
        match random.below(100) {
            0 => client.flush().await.unwrap(),
            1..10 => write(&client, offset, vec![1; BLOCK as usize]).await.unwrap(),
            _ => drop(read(&client, offset, BLOCK as usize).await.unwrap()),
        }
    }
    let [reads, from_store] = count();
    1.0 - (from_store - before[1]) as f64 / (reads - before[0]) as f64
}

/// What a power cut below a level on flash costs. The aim is 0.95 of the hits before; so few vary.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_on_flash_is_warm_after_a_power_cut() {
    let needs = ["nbdfuse", "umount", "losetup"];
    if let Some(missing) = needs.iter().find(|program| !is_there(program)) {
        return println!("skipped: {missing} is not installed");
    }
    let place = Place::new();
    let mut random = seeded("power, flash");
    let power = serve(&place, "disk", FLASH_BYTES);
    let mut ratios = Vec::new();
    for mode in ["through", "back"] {
        let begin = |device: &str| {
            place.serve(&format!(
                "--flash {device},size={FLASH_BYTES},budget=off,restart=warm --write {mode} \
                 --volume v=file:v.img,size={},cache=512KiB,policy=lru,dirty-age-s=1",
                HOT_BLOCKS * BLOCK
            ))
        };
        let device = match Device::new(&place, "nbd+unix:///disk?socket=disk") {
            Ok(device) => device,
            Err(why) => return println!("skipped: {why}"),
        };
        let format = format!("flash format {} --size {FLASH_BYTES}", device.device());
        let done = place.undercroft(&format);
        assert!(done.status.success(), "{done:?}");
        let server = begin(device.device());
        hits(&server, 10_000, &mut random).await;
        let before = hits(&server, 5_000, &mut random).await;
        Power::cut(std::slice::from_ref(&power), &mut random);
        server.kill();
        drop(device);
        power.on();
        let device = Device::new(&place, "nbd+unix:///disk?socket=disk").unwrap();
        let server = begin(device.device());
        let after = hits(&server, 5_000, &mut random).await;
        println!("{mode}: {before:.3} before, {after:.3} after: {:.3}", after / before);
        ratios.push(after / before);
        assert_eq!(server.stop(), 0);
    }
    assert!(ratios.iter().all(|&ratio| ratio > 0.9), "{ratios:?}");
}
