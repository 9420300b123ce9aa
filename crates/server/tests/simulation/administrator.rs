//! An administrator who changes a volume while it is served, over the export `@set/NAME`: the size,
//! policy and placement of its cache, what may be dirty, its part of flash, or that it drops what
//! it has cached; or who has the level on flash of the server come and go. What has to be taken is
//! taken, and what is wrong changes nothing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::time::timeout;
use undercroft_nbd::{Client, ClientOptions, Credentials, Peer};
use undercroft_server::process::Running;

use crate::node::Node;
use crate::random::Random;
use crate::scenario::VolumeDraw;
use crate::world::{PATIENCE, World};

/// Milliseconds after which the server gives a request up, as one does that has to end: by weight.
const GIVEN_UP_MS: [(Option<u64>, u64); 4] =
    [(None, 20), (Some(0), 1), (Some(5), 1), (Some(50), 1)];

/// What is asked for.
struct Wish {
    /// `KEY=VALUE`, one a line, or `drop`.
    text: String,
    expected: Expected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Done,
    Refused,
    /// As the volume is at that moment.
    Either,
}

/// Asks one of the servers for one change of a volume.
///
/// # Errors
/// It was refused, and should not have been; or the other way round.
pub async fn change(world: &Arc<World>, volume: usize, random: &mut Random) -> Result<(), String> {
    let level = random.below(world.nodes.len() as u64) as usize;
    let (node, draw) = (&world.nodes[level], &world.scenario.volumes[volume]);
    let flash = world.scenario.flash.as_ref().filter(|flash| flash.level == level);
    let mut wish = match flash.filter(|_| random.percent(30)) {
        Some(flash) => Wish::of_flash(flash.part, random),
        None => Wish::draw(draw, level, random),
    };
    // A write that waits for flash, or for room in a write log, holds up what drops.
    let may_wait = world.scenario.flash.as_ref().is_some_and(|flash| flash.has_trouble)
        || world.scenario.write_log.is_some();
    if may_wait && wish.text == "drop" {
        wish.expected = Expected::Either;
    }
    let given_up = random.weighted(&GIVEN_UP_MS);
    let Some(client) = open(node, &draw.name).await else { return Ok(()) };
    let mut running = node.running.lock().await;
    let Some(running) = running.as_mut() else { return Ok(()) };
    let is_served = running.volumes().iter().any(|volume| volume.config().name == draw.name);
    let before = configuration(running, &draw.name);
    let asked = client.write(0, vec![wish.text.clone().into()], false);
    let served = serve(running, given_up.map(Duration::from_millis));
    let answer = match select(Box::pin(asked), Box::pin(served)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(((), asked)) => asked.await,
    };
    world.log.line(|| format!("== {} {:?}: {answer:?}", node.name, wish.text));
    running.volumes().iter().try_for_each(|volume| volume.validate())?;
    client.close().await;
    // It may have been changed, and the device does not give what was asked for.
    let is_flash = wish.text.starts_with("flash");
    let has_changed = !is_flash && configuration(running, &draw.name) != before;
    match (wish.expected, answer) {
        (Expected::Done, Err(why)) if is_served && given_up.is_none() => {
            Err(format!("{:?} was refused: {why}", wish.text))
        }
        (Expected::Refused, Ok(())) => Err(format!("{:?} was taken", wish.text)),
        (_, Err(_)) if has_changed && given_up.is_none() => {
            Err(format!("{:?} was refused, and has changed something", wish.text))
        }
        _ => Ok(()),
    }
}

/// All that is configured of a volume.
fn configuration(running: &Running, name: &str) -> String {
    let volumes = running.config().volumes.iter();
    volumes.filter(|volume| volume.name == name).map(|volume| format!("{volume:?}")).collect()
}

/// Opens the export as the server's own user.
async fn open(node: &Node, volume: &str) -> Option<Client> {
    let credentials = Some(Credentials { user: 0, group: 0 });
    let peer = Peer { address: "administrator".to_owned(), credentials, ..Peer::default() };
    let (end, _) = node.port.connect_as(peer, 4096).ok()?;
    let (name, options) = (format!("@set/{volume}"), ClientOptions::default());
    let opened = Client::over(end, &name, &options);
    timeout(PATIENCE, opened).await.ok()?.ok()
}

/// Serves the next request, or gives it up after some time.
async fn serve(running: &mut Running, given_up: Option<Duration>) {
    let asked = running.asked().await;
    let set = running.set(asked);
    match given_up {
        Some(time) => _ = timeout(time, set).await,
        None => set.await,
    }
}

impl Wish {
    /// Of a level on flash with parts of so many bytes.
    fn of_flash(part: u64, random: &mut Random) -> Wish {
        let text = match random.below(6) {
            0 => "flash add".to_owned(),
            1 => "flash remove".to_owned(),
            2 => "flash=off".to_owned(),
            // Half a part, which fits beside the others in any case.
            3 => format!("flash={}", part / 2),
            _ => format!("flash={part}"),
        };
        Wish { text, expected: Expected::Either }
    }

    fn draw(draw: &VolumeDraw, level: usize, random: &mut Random) -> Wish {
        let server = &draw.servers[level];
        let is_cached = !server.options.contains("cache=off");
        match random.below(10) {
            // What is dirty is newer than the store, and is not dropped.
            0..3 => {
                let expected =
                    if server.write == "back" { Expected::Either } else { Expected::Done };
                Wish { text: "drop".to_owned(), expected }
            }
            3 => {
                let cache = format!("cache={}\n", 4 * draw.block);
                let wrong =
                    random.pick(&["block=16384", "write=around", "policy=none", "colour=red"]);
                Wish { text: cache + wrong, expected: Expected::Refused }
            }
            4..7 => Wish { text: dirty(random), expected: Expected::Done },
            _ => {
                // Without placement nobody reloads, so a key that says when is wrong then. Nor is a
                // server above opened again that wants to tell what leaves it.
                let placements = ["eviction", "auto", "gl", "access"];
                let above = level.checked_sub(1).map(|above| &draw.servers[above].options);
                let is_told = server.options.contains("reloads=")
                    || server.options.contains("on-hit")
                    || above.is_some_and(|above| above.contains("report="));
                let placements = &placements[..if is_told { 3 } else { 4 }];
                let expected = if is_cached { Expected::Done } else { Expected::Refused };
                Wish { text: cache(draw, placements, random), expected }
            }
        }
    }
}

/// Another size, and mostly another policy and placement.
fn cache(draw: &VolumeDraw, placements: &[&str], random: &mut Random) -> String {
    let blocks = random.between(4, draw.bytes / draw.block);
    let mut text = format!("cache={}\n", blocks * draw.block);
    if random.percent(50) {
        text += &format!("policy={}\n", random.pick(&["lru", "mq", "arc", "2q", "lfu"]));
    }
    if random.percent(50) {
        text += &format!("placement={}\n", random.pick(placements));
    }
    text
}

/// Other bounds of what may be dirty.
fn dirty(random: &mut Random) -> String {
    let (age, share) = (random.pick(&[1, 5, 600]), random.pick(&[10, 50, 100]));
    let (most, oldest) = (random.pick(&[share, 100]), random.pick(&[0, age + 1]));
    format!(
        "dirty-age-s={age}\ndirty-percent={share}\ndirty-max-percent={most}\n\
         dirty-max-age-s={oldest}"
    )
}
