//! Connections that want all of a server: its memory, or every turn. They speak the protocol by
//! hand, since no client of ours would do that.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BufMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use undercroft_nbd::wire::{CMD_READ, CMD_WRITE};
use undercroft_nbd::{Client, ClientOptions};

use crate::client::ended;
use crate::disk::SECTOR;
use crate::history::{Action, End as Ended, Place, contents};
use crate::random::Random;
use crate::wire::{End, Wire};
use crate::world::World;

/// Bytes that the streams of a flood have on the way.
const BUFFER: usize = 1 << 20;

/// Bytes of a WRITE of a flood.
const WRITE: u64 = 65_536;

/// Bursts of a flood of them.
const BURSTS: u64 = 2;

/// Connections of a flood.
const CONNECTIONS: u64 = 3;

/// Bytes of a simple reply to a READ of one byte.
const REPLY: u64 = 17;

/// Requests of one other connection that may be served while a cached read waits: the work of a
/// turn, as often as something has to be passed on between its client and the server, or somebody
/// stands in front of it in the line for memory.
const SERVED_MAX: u64 = 128 * 32;

/// What is flooded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flood {
    /// READs of a byte, or of the status, whose answers are not taken.
    Reads,
    Status,
    /// WRITEs by connections that hang up.
    Writes,
    /// READs without end, whose answers are taken: others must have their turns.
    Turns,
    /// WRITEs all over the volume, many at a time and one burst after the other, and READs beside
    /// them.
    Bursts,
}

/// Runs one; what was wrong.
pub async fn run(world: Arc<World>, flood: Flood, mut random: Random) -> Vec<String> {
    // The clients have something in the cache by then.
    sleep(Duration::from_millis(random.between(20, 200))).await;
    let draw = &world.scenario.volumes[0];
    let (name, bytes) = (draw.name.clone(), draw.bytes);
    world.log.line(|| format!("== {flood:?} are flooded"));
    let mut faults = Vec::new();
    match flood {
        Flood::Reads => {
            let requests = |at: u64| header(CMD_READ, at * 4096 % bytes, 1);
            hold_answers(&world, &name, requests, 20_000).await;
        }
        Flood::Status => {
            let name = format!("@coop/{name}");
            hold_answers(&world, &name, |_| header(CMD_READ, 0, 65_536), 1500).await;
        }
        Flood::Writes => hang_up(&world, &name, bytes).await,
        Flood::Bursts => write_in_bursts(&world, &name, &mut random).await,
        Flood::Turns => faults.extend(take_turns(&world, &name, bytes).await),
    }
    faults
}

/// Opens an export as the oldest clients do.
async fn open(world: &World, name: &str) -> io::Result<(End, Wire, u64)> {
    let (mut end, wire) = world.connect(60, BUFFER)?;
    end.read_exact(&mut [0; 18]).await?;
    let mut hello = Vec::new();
    // Fixed newstyle, no zeroes; then the option EXPORT_NAME.
    hello.put_u32(3);
    hello.put_slice(b"IHAVEOPT");
    hello.put_u32(1);
    hello.put_u32(name.len() as u32);
    hello.put_slice(name.as_bytes());
    end.write_all(&hello).await?;
    end.read_exact(&mut [0; 10]).await?;
    let before = wire.answered();
    Ok((end, wire, before))
}

fn header(command: u16, offset: u64, length: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(28);
    header.put_u32(0x2560_9513);
    header.put_u16(0);
    header.put_u16(command);
    header.put_u64(offset);
    header.put_u64(offset);
    header.put_u32(length);
    header
}

/// Sends as much as is taken, and takes no answer.
async fn hold_answers(
    world: &Arc<World>,
    name: &str,
    request: impl Fn(u64) -> Vec<u8>,
    count: u64,
) {
    let mut open_ones = Vec::new();
    for _ in 0..CONNECTIONS {
        let Ok((mut end, ..)) = open(world, name).await else { continue };
        let requests: Vec<u8> = (0..count).flat_map(&request).collect();
        open_ones.push(tokio::spawn(async move {
            let _ = end.write_all(&requests).await;
            sleep(Duration::from_secs(10)).await;
        }));
    }
    sleep(Duration::from_secs(10)).await;
    open_ones.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Writes while the disk stalls, by one connection after the other, each of which hangs up.
async fn hang_up(world: &Arc<World>, name: &str, bytes: u64) {
    let Some(disk) = world.lowest().disk(0) else { return };
    disk.set_faults(|faults| faults.stalled = true);
    let sectors = 0..bytes.min(WRITE) / SECTOR;
    for _ in 0..24 {
        let Ok((mut end, wire, _)) = open(world, name).await else { break };
        let session = world.history.begin_session(0);
        let mut asked = Vec::new();
        for _ in 0..16 {
            let place = Place { volume: 0, sectors: sectors.clone() };
            let number = world.history.call(session, place, Action::Write, false);
            asked.push(number);
            let data = contents(number, sectors.clone());
            let mut request = header(CMD_WRITE, 0, data.len() as u32);
            request.extend_from_slice(&data);
            let written = timeout(Duration::from_millis(5), end.write_all(&request));
            if !matches!(written.await, Ok(Ok(()))) {
                break;
            }
        }
        wire.cut();
        asked.iter().for_each(|number| world.history.end(*number, Ended::Unknown, Vec::new()));
        world.history.end_session(session);
    }
    disk.set_faults(|faults| faults.stalled = false);
}

/// Writes many blocks at a time, and reads others meanwhile.
async fn write_in_bursts(world: &Arc<World>, name: &str, random: &mut Random) {
    let draw = &world.scenario.volumes[0];
    let (block, per_block) = (draw.block, draw.block / SECTOR);
    for _ in 0..BURSTS {
        let Ok((end, _wire)) = world.connect(62, BUFFER) else { return };
        let Ok(client) = Client::over(end, name, &ClientOptions::default()).await else { return };
        let (session, mut asked) = (world.history.begin_session(0), JoinSet::new());
        for _ in 0..random.between(20, 40) {
            let at = random.below(draw.bytes / block);
            let (history, sectors) = (world.history.clone(), at * per_block..(at + 1) * per_block);
            if random.percent(40) {
                let read = client.read(at * block, vec![Box::new(vec![0; block as usize])]);
                asked.spawn(async move { drop(read.await) });
                continue;
            }
            let place = Place { volume: 0, sectors: sectors.clone() };
            let number = history.call(session, place, Action::Write, false);
            let data = contents(number, sectors).into();
            let written = client.write(at * block, vec![data], false);
            asked.spawn(async move { history.end(number, ended(&written.await), Vec::new()) });
        }
        while asked.join_next().await.is_some() {}
        world.history.end_session(session);
        client.close().await;
        sleep(Duration::from_millis(random.below(500))).await;
    }
}

/// Reads without end on some connections, and looks how long another one waits: counted in requests
/// of the others, while no time passes.
async fn take_turns(world: &Arc<World>, name: &str, bytes: u64) -> Option<String> {
    let mut wires = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let Ok((end, wire, _)) = open(world, name).await else { continue };
        wires.push(wire);
        let (mut from, mut to) = tokio::io::split(end);
        let requests: Vec<u8> = (0..1000).flat_map(|_| header(CMD_READ, 0, 1)).collect();
        tasks.push(tokio::spawn(async move {
            for _ in 0..40 {
                if to.write_all(&requests).await.is_err() {
                    return;
                }
            }
        }));
        tasks.push(tokio::spawn(async move {
            let mut answers = vec![0; 65_536];
            while from.read(&mut answers).await.is_ok_and(|count| count > 0) {}
        }));
    }
    // Without a cache every read goes to the store, behind those of the others that are there.
    let is_cached = world.scenario.volumes[0].is_cached();
    let answered = || wires.iter().map(Wire::answered).sum::<u64>();
    let most = SERVED_MAX * wires.len() as u64;
    let mut found = None;
    if let Ok((end, _wire)) = world.connect(61, 4096) {
        if let Ok(client) = Client::over(end, name, &ClientOptions::default()).await {
            for turn in 0..400_u64 {
                let (before, began) = (answered(), Instant::now());
                let into = vec![Box::new(vec![0_u8; 512]) as _];
                // Twice, since the first may come from below without any time passing.
                let (_, result) = client.read(turn / 2 * 4096 % bytes, into).await;
                let served = (answered() - before) / REPLY;
                if is_cached
                    && turn % 2 == 1
                    && result.is_ok()
                    && began == Instant::now()
                    && served > most
                {
                    found = Some(format!("a cached read waited for {served} requests of others"));
                }
                if result.is_err() {
                    break;
                }
            }
        }
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    found
}
