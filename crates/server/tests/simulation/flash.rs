//! A device for a level on flash of one of the servers: what a seed draws of it, and what befalls
//! it. It is a [`Disk`] of its own, which loses in a power cut what no flush has covered, as the
//! others do. None of that may be noticed by a client.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use undercroft_server::process::GiveFlash;
use undercroft_server::{FlashClock, FlashMedium};

use crate::disk::{Disk, Habits, wall_ns};
use crate::random::Random;
use crate::report::Log;
use crate::world::World;

/// Bytes of a device that are no volume's.
const HEAD: u64 = 1 << 20;

/// What a seed draws of it.
#[derive(Clone, Debug)]
pub struct FlashDraw {
    /// Which server has it; 0 is the highest.
    pub level: usize,
    /// Bytes of a volume's part.
    pub part: u64,
    rule: &'static str,
    restart: &'static str,
    /// Whether anything is wrong with it now and then, beside kills and power cuts.
    pub has_trouble: bool,
    habits: Habits,
}

impl FlashDraw {
    /// Of a run with so many servers; most have none.
    pub fn draw(height: usize, random: &mut Random) -> Option<FlashDraw> {
        let has_one = random.percent(40);
        let draw = FlashDraw {
            level: random.below(height as u64) as usize,
            part: random.pick(&[64, 128, 256]) << 10,
            rule: random.pick(&["evidence", "access", "access", "second-miss"]),
            restart: random.pick(&["cold", "warm", "warm", "warm"]),
            has_trouble: random.percent(30),
            habits: Habits::of_flash(random),
        };
        has_one.then_some(draw)
    }

    fn bytes(&self, volumes: usize) -> u64 {
        HEAD + volumes as u64 * self.part
    }

    /// The option of a server for so many volumes.
    pub fn option(&self, volumes: usize) -> String {
        let (bytes, FlashDraw { rule, restart, .. }) = (self.bytes(volumes), self);
        format!("simulated,size={bytes},budget=off,rule={rule},restart={restart}")
    }
}

/// The device of a run.
#[derive(Clone)]
pub struct FlashDisk {
    pub draw: FlashDraw,
    pub disk: Disk,
    clock: FlashClock,
}

impl FlashDisk {
    pub fn new(draw: &FlashDraw, volumes: usize, random: Random, log: Log) -> FlashDisk {
        let image = vec![0; draw.bytes(volumes) as usize];
        let disk = Disk::new("flash", image, draw.habits.clone(), random, log);
        let began = Instant::now();
        FlashDisk {
            draw: draw.clone(),
            disk,
            clock: Arc::new(move || wall_ns(began, Instant::now())),
        }
    }

    /// How a server opens it in one of its lives.
    pub fn opened(self, life: u64) -> GiveFlash {
        Arc::new(move || {
            let (opening, clock) = (self.disk.open(life), Arc::clone(&self.clock));
            Box::pin(async move { Ok(FlashMedium::with_clock(opening.await?, clock)) })
        })
    }
}

/// What is wrong with the device, now and then, until the clients have had enough.
pub async fn befall(world: Arc<World>, flash: FlashDisk, mut random: Random) {
    while flash.draw.has_trouble && !world.is_over() {
        sleep(Duration::from_millis(random.between(1, 20 * world.scenario.blow_ms))).await;
        if world.is_over() {
            return;
        }
        let (what, torn) = (random.below(5), random.percent(50));
        let mut chance = || random.pick(&[0, 10, 100]);
        let (reads, writes, flushes) = (chance(), chance(), chance());
        let nth = random.between(1, 30);
        world.log.line(|| format!("== flash: trouble {what}"));
        flash.disk.set_faults(|faults| match what {
            0 => {
                (faults.failing_reads, faults.failing_writes) = (reads, writes);
                faults.flips = reads;
                (faults.failing_flushes, faults.torn) = (flushes, torn);
            }
            1 => (faults.nth, faults.flips) = (Some(nth), reads),
            2 => (faults.nth, faults.dead_after) = (Some(nth), true),
            _ => faults.stalled = true,
        });
        sleep(Duration::from_millis(random.pick(&[20, 500, 3000, 15_000]))).await;
        flash.disk.repair();
    }
}
