//! What befalls the servers while the clients are at work, one thing after the other.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use undercroft_nbd::{Client, ClientError, ClientOptions, Failure};
use undercroft_server::process::CacheShare;

use crate::administrator;
use crate::disk::{Cut, Disk, SECTOR};
use crate::history::Event;
use crate::node::OPENS;
use crate::random::Random;
use crate::scenario::Blow;
use crate::tally::Tally;
use crate::world::{PATIENCE, World};

/// How long a server that is to connect again to the one below may go on with what it has.
const NOTICES: Duration = Duration::from_secs(2);

/// A server that had to wait for a lease is left alone for so long, since its clients come back
/// slowly.
const COME_BACK: Duration = Duration::from_secs(2);

/// Within this time a volume with a short limit answers, some requests after another included.
const IN_TIME: Duration = Duration::from_secs(40);

/// Until the clients have had enough; what was wrong.
pub async fn run(world: Arc<World>, mut random: Random) -> Vec<String> {
    let mut wrong = Vec::new();
    while !world.is_over() && wrong.is_empty() {
        world.pause(&mut random).await;
        if is_away(&world).await && random.percent(10) {
            world.lowest().disks().iter().for_each(Disk::heal);
            sleep(OPENS).await;
        }
        let blow = random.weighted(&world.scenario.blows);
        world.log.line(|| format!("== {blow:?}"));
        let strike = timeout(2 * PATIENCE, strike(&world, blow, &mut random));
        match strike.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => wrong.push(format!("{blow:?}: {error}")),
            Err(_) => wrong.push(format!("{blow:?} has not ended")),
        }
    }
    world.lowest().disks().iter().for_each(Disk::heal);
    wrong
}

/// Whether a volume waits for its service. It is opened only if that works until a lease has
/// expired, and nobody reloads meanwhile.
async fn is_away(world: &World) -> bool {
    if !world.lowest().disks().iter().any(Disk::is_service) {
        return false;
    }
    let running = world.top().running.lock().await;
    let served = running.as_ref().map(|running| running.volumes()).unwrap_or_default();
    let is_served = |name: &str| served.iter().any(|volume| volume.config().name == name);
    world.scenario.volumes.iter().any(|volume| !is_served(&volume.name))
}

async fn strike(world: &Arc<World>, blow: Blow, random: &mut Random) -> Result<(), String> {
    let volume = random.below(world.scenario.volumes.len() as u64) as usize;
    let draw = &world.scenario.volumes[volume];
    let lowest = Arc::clone(world.lowest());
    let Some(disk) = lowest.disk(volume) else { return Ok(()) };
    match blow {
        // A service has no places that are bad.
        Blow::BadRange if disk.is_service() => {}
        Blow::BadRange => {
            let first = random.below(draw.bytes / SECTOR) * SECTOR;
            let bad = first..(first + random.pick(&[512, 4096, 65_536])).min(draw.bytes);
            let writes = random.percent(60);
            disk.set_faults(|faults| match writes {
                true if faults.bad_writes.is_empty() => faults.bad_writes.push(bad),
                true => {}
                false => faults.bad_reads.push(bad),
            });
        }
        Blow::FailSome => {
            let mut chance = || random.pick(&[0, 10, 50, 100]);
            let (reads, writes, flushes) = (chance(), chance(), chance());
            let torn = random.percent(50);
            disk.set_faults(|faults| {
                faults.failing_reads = reads;
                faults.failing_writes = writes;
                faults.failing_flushes = flushes;
                faults.torn = torn;
            });
        }
        Blow::FailNth | Blow::DieAfterNth => {
            let nth = random.between(1, 30);
            disk.set_faults(|faults| {
                faults.nth = Some(nth);
                faults.dead_after = blow == Blow::DieAfterNth;
            });
        }
        Blow::Full => disk.set_faults(|faults| faults.full = true),
        Blow::Stall => {
            disk.set_faults(|faults| faults.stalled = true);
            sleep(Duration::from_millis(random.pick(&[20, 500, 5000]))).await;
            disk.set_faults(|faults| faults.stalled = false);
        }
        Blow::StallLong => {
            disk.set_faults(|faults| faults.stalled = true);
            sleep(NOTICES).await;
            let asked = world.history.unanswered(volume);
            sleep(IN_TIME).await;
            let mut left = world.history.unanswered(volume);
            left.retain(|number| asked.contains(number));
            disk.set_faults(|faults| faults.stalled = false);
            if draw.has_short_timeout() && !left.is_empty() {
                return Err(format!("requests {left:?} wait for a store that does not answer"));
            }
        }
        Blow::Heal => disk.heal(),
        Blow::ReloadAsIs | Blow::ReloadAccess | Blow::ReloadRemove | Blow::ReloadCache => {
            reload(world, blow, volume, random).await?;
        }
        Blow::Set => administrator::change(world, volume, random).await?,
        Blow::Control => control(world, volume, random),
        Blow::Kill | Blow::PowerCut => kill(world, blow == Blow::PowerCut, random).await?,
        Blow::Restart => {
            world.end().await;
            sleep(Duration::from_millis(random.below(200))).await;
            start(world, 0..world.nodes.len()).await?;
        }
        Blow::KillBelow | Blow::PowerCutBelow => {
            kill_below(world, blow == Blow::PowerCutBelow, random).await?;
        }
        Blow::CutLinkBelow => {
            below(world, random).into_iter().for_each(|level| world.nodes[level - 1].cut_link());
        }
    }
    Ok(())
}

/// Servers may be unable to start while a disk fails: then that is mended first.
async fn start(world: &Arc<World>, levels: Range<usize>) -> Result<(), String> {
    let disks = world.lowest().disks();
    if world.start_some(levels.clone()).await.is_err() {
        disks.iter().for_each(Disk::heal);
        world.flash.iter().for_each(|flash| flash.disk.repair());
        world.start_some(levels).await?;
    }
    if disks.iter().any(Disk::is_service) {
        sleep(COME_BACK).await;
    }
    Ok(())
}

async fn kill(world: &Arc<World>, power: bool, random: &mut Random) -> Result<(), String> {
    let height = world.nodes.len();
    let gone = if power { height } else { 1 };
    for node in &world.nodes[..gone] {
        node.kill().await;
    }
    let cut = match random.below(3) {
        0 => Cut::All,
        1 => Cut::Some { lost_percent: 50 },
        _ => Cut::Some { lost_percent: 5 },
    };
    world.nodes[..gone].iter().filter(|_| power).for_each(|node| node.cut_flash(cut));
    for (volume, draw) in world.scenario.volumes.iter().enumerate() {
        let disk = world.lowest().disk(volume).filter(|_| gone == height);
        disk.into_iter().for_each(|disk| match power {
            true => drop(disk.cut(cut)),
            false => disk.abandon(),
        });
        let is_service = world.lowest().disk(volume).is_some_and(Disk::is_service);
        let event = match (power && !is_service, draw.servers[0].write, height) {
            (true, ..) => Event::Lost,
            (false, "back", _) => Event::CacheLost,
            (false, _, 1) => Event::Killed,
            // What is on its way to the server below still arrives.
            (false, ..) => continue,
        };
        world.history.event(volume, event);
    }
    sleep(Duration::from_millis(random.below(200))).await;
    start(world, 0..gone).await
}

/// One of the servers below, if there is any.
fn below(world: &World, random: &mut Random) -> Option<usize> {
    let last = world.nodes.len() - 1;
    (last > 0).then(|| random.between(1, last as u64) as usize)
}

/// Kills a server below; with `power` those below it, too, and their disks lose what they can.
async fn kill_below(world: &Arc<World>, power: bool, random: &mut Random) -> Result<(), String> {
    let Some(first) = below(world, random) else { return Ok(()) };
    let levels = first..if power { world.nodes.len() } else { first + 1 };
    for node in &world.nodes[levels.clone()] {
        node.kill().await;
        if power {
            node.cut_flash(Cut::All);
        }
    }
    let volumes = 0..world.scenario.volumes.len();
    let is_lost: Vec<_> = volumes.filter(|&v| lose_below(world, v, &levels, power)).collect();
    sleep(Duration::from_millis(random.below(500))).await;
    let connected = world.nodes[first - 1].connected_below.notified();
    start(world, levels).await?;
    if is_lost.is_empty() {
        return Ok(());
    }
    // Whoever asks for what is not in the cache makes it connect again; if nobody does, we do.
    // Servers above it are told by their next FLUSH.
    if timeout(2 * NOTICES, connected).await.is_err() || first > 1 {
        for volume in &is_lost {
            nudge(world, *volume).await?;
        }
    }
    sleep(NOTICES).await;
    for volume in is_lost {
        world.history.event(volume, Event::NoMoreLostBelow);
    }
    Ok(())
}

/// What a volume loses with some servers below; whether it may be anything. What is dirty in a
/// server above them is written again; what they had not written is not.
fn lose_below(world: &World, volume: usize, levels: &Range<usize>, power: bool) -> bool {
    let disk = world.lowest().disk(volume).filter(|_| levels.end == world.nodes.len());
    let lost = disk.map_or_else(Vec::new, |disk| match power {
        true => disk.cut(Cut::All),
        false => {
            disk.abandon();
            Vec::new()
        }
    });
    let servers = &world.scenario.volumes[volume].servers;
    let keeps = |levels: Range<usize>| servers[levels].iter().any(|s| s.write == "back");
    // What a server had not written that was killed can be anywhere.
    let lost = Some(lost).filter(|_| !keeps(levels.clone()));
    if lost.as_ref().is_some_and(Vec::is_empty) {
        return false;
    }
    if keeps(0..levels.start) {
        world.history.event(volume, Event::FailedLostBelow);
    } else {
        world.history.event(volume, Event::LostBelow);
        world.history.owe(volume, levels.start, lost.as_deref());
    }
    true
}

/// Asks for something that has to come from the server below, and that tells of its losses. A FLUSH
/// that fails in another way than with EIO, since a disk is full, does not: then that is mended,
/// and it is asked again, since what was under way may still fail.
///
/// # Errors
/// No FLUSH succeeds or tells of them.
async fn nudge(world: &Arc<World>, volume: usize) -> Result<(), String> {
    let name = &world.scenario.volumes[volume].name;
    for _ in 0..5 {
        let Ok((end, _wire)) = world.connect(51, 4096) else { return Ok(()) };
        let options = ClientOptions::default();
        let Ok(client) = Client::over(end, name, &options).await else { return Ok(()) };
        let flushed = timeout(PATIENCE, client.flush()).await;
        client.close().await;
        world.log.line(|| format!("== v{volume} is asked to flush: {flushed:?}"));
        if let Ok(Ok(()) | Err(ClientError::Server { failure: Failure::Io, .. })) = flushed {
            return Ok(());
        }
        world.lowest().disks().iter().for_each(Disk::heal);
        sleep(NOTICES / 4).await;
    }
    Err(format!("v{volume}: no FLUSH succeeds, or tells of what was lost below"))
}

async fn reload(
    world: &Arc<World>,
    blow: Blow,
    volume: usize,
    random: &mut Random,
) -> Result<(), String> {
    let name = world.scenario.volumes[volume].name.clone();
    let mut running = world.top().running.lock().await;
    let Some(running) = running.as_mut() else { return Ok(()) };
    match blow {
        Blow::ReloadAccess => {
            let mut config = world.top().config(|_| true);
            let own = config.volumes.iter_mut().filter(|v| v.name == name);
            own.for_each(|v| v.clients = vec!["nobody".parse().expect("a rule")]);
            running.reload(Ok(config)).await;
            let shut = world.history.now();
            sleep(Duration::from_millis(random.below(100))).await;
            world.history.was_shut(volume, shut);
        }
        Blow::ReloadRemove => {
            // A volume that somebody holds on to does not end: counted before.
            let mut going = running.volumes();
            going.retain(|volume| volume.config().name == name);
            let counted = Tally::of(&going);
            drop(going);
            running.reload(Ok(world.top().config(|index| index != volume))).await;
            let is_gone = !running.config().volumes.iter().any(|v| v.name == name);
            sleep(Duration::from_millis(random.below(100))).await;
            if is_gone {
                // A disk is always opened; a service can be away.
                let disks = world.lowest().disks().iter();
                disks.filter(|disk| disk.is_service()).for_each(Disk::heal);
                world.top().count(counted);
                world.history.event(volume, Event::Closed);
            } else if let Some(disk) = world.lowest().disk(volume) {
                // Nobody can use it before its disk takes what is left: somebody sees to that.
                disk.repair();
            }
        }
        Blow::ReloadCache => {
            let mut config = world.top().config(|_| true);
            let own = config.volumes.iter_mut().filter(|v| v.name == name && v.cache_blocks > 0);
            for volume in own {
                let blocks = random.between(2, 3 * u64::from(volume.cache_blocks));
                volume.cache = CacheShare::Bytes(blocks * u64::from(volume.block_bytes));
                let policy = random.pick(&["lru", "mq", "arc", "2q", "lfu"]);
                volume.policy = policy.parse().unwrap();
                if random.percent(50) {
                    let placement = random.pick(&["access", "eviction", "auto", "gl"]);
                    volume.placement = placement.parse().unwrap();
                }
            }
            // What does not fit the volume or the server's memory is refused.
            running.reload(Ok(config)).await;
            running.volumes().iter().try_for_each(|volume| volume.validate())?;
            sleep(Duration::from_millis(random.pick(&[0, 20, 500, 5000]))).await;
        }
        _ => {}
    }
    running.reload(Ok(world.top().config(|_| true))).await;
    running.volumes().iter().try_for_each(|volume| volume.validate())
}

/// Somebody opens a control export, and says nothing.
fn control(world: &Arc<World>, volume: usize, random: &mut Random) {
    let name = format!("@coop/{}", world.scenario.volumes[volume].name);
    let (world, time) = (Arc::clone(world), Duration::from_secs(random.pick(&[1, 60, 100_000])));
    tokio::spawn(async move {
        let Ok((end, _wire)) = world.connect(50, 4096) else { return };
        let Ok(client) = Client::over(end, &name, &ClientOptions::default()).await else { return };
        sleep(time).await;
        client.close().await;
    });
}
