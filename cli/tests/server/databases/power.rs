//! The power of a server goes while a database works on it: the disks of its store, of its level
//! on flash and of its write log lose any part of what was not flushed. The store is a file on a
//! file system there, as it would be. What the database had acknowledged is there when it comes
//! back, and it finds its data sound.
//!
//! `UNDERCROFT_ROUNDS` cuts the power more often than once.

use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use super::mariadb::MariaDb;
use super::postgres::Postgres18;
use super::together::{Part, forget_what_is_cached, sound};
use super::{
    Database, Disk, Home, PATIENCE, Permissions, PermissionsExt, Place, available, fs, skipped,
    tools,
};
use crate::disk::Mounted;
use crate::power::{self, Power};
use crate::support::{Random, Server, seeded};

const DISK_BYTES: u64 = 1 << 30;
const FLASH_BYTES: u64 = 128 << 20;
const LOG_BYTES: u64 = 64 << 20;

/// How long the database works until the power goes, at least.
const WORK: Duration = Duration::from_secs(8);

/// What the server has, as long as there is power.
struct Disks<'a> {
    store: Disk<'a>,
    flash: Disk<'a>,
    _log: Mounted<'a>,
}

impl<'a> Disks<'a> {
    fn new(place: &'a Place) -> Result<Self, String> {
        Ok(Disks {
            store: Disk::new(place, "nbd+unix:///?socket=disk")?,
            flash: Disk::through(place, "flash", "nbd+unix:///?socket=flash-disk")?,
            _log: Mounted::new(place, "log", "nbd+unix:///?socket=log-disk")?,
        })
    }
}

/// Cuts the power below a database. `log`: what is before the file of the store.
fn power_goes<D: Database>(place: &Place, tpcc: String, log: &str, random: &mut Random) {
    let powers = [("disk", DISK_BYTES), ("flash-disk", FLASH_BYTES), ("log-disk", LOG_BYTES)]
        .map(|(socket, bytes)| power::serve(place, socket, bytes));
    let mut disks = match Disks::new(place) {
        Ok(disks) => disks,
        Err(why) => return skipped(D::NAME, &why),
    };
    place.run("mkfs.ext4", &["-q", "-F", disks.store.device()]);
    disks.store.mount("ext4").unwrap();
    let format = format!("flash format {} --size {FLASH_BYTES}", disks.flash.device());
    let done = place.undercroft(&format);
    assert!(done.status.success(), "{done:?}");
    let serve = |disks: &Disks<'_>| {
        let flash = disks.flash.device();
        let server = place.serve(&format!(
            "--flash {flash},size={FLASH_BYTES},budget=off,restart=warm --write back --volume \
             d={log}file:files/d.img,size=900MiB,cache=32MiB,placement=eviction,staging=auto"
        ));
        fs::set_permissions(place.path("socket"), Permissions::from_mode(0o777)).unwrap();
        server
    };
    let home = Home::new(tpcc);
    let mut server = serve(&disks);
    let mut disk = home.disk(&server.uri("d")).unwrap();
    home.fill::<D>();
    forget_what_is_cached(place);

    let rounds = std::env::var("UNDERCROFT_ROUNDS").map_or(1, |text| text.parse().unwrap());
    for round in 0..rounds {
        // No mark of an earlier round counts.
        let first = round * 1_000_000;
        let marks = scope(|scope| {
            let part = Part::<D>::start(scope, &home, &server.uri("d"), first);
            sleep(WORK + Duration::from_millis(random.below(2000)));
            wait_for_flash(&server, "written", 100);
            Power::cut(&powers, random);
            server.kill();
            part.kill()
        });
        // What they hold goes with them.
        drop(disk);
        drop(disks);
        powers.iter().for_each(Power::on);
        disks = Disks::new(place).unwrap();
        disks.store.mount("ext4").unwrap();
        server = serve(&disks);
        // Below a write log a level is cold.
        if log.is_empty() {
            wait_for_flash(&server, "durable", 1);
        }
        disk = Disk::new(&home.place, &server.uri("d")).unwrap();
        disk.mount("ext4").unwrap();
        sound::<D>(&home, first, marks);
        let flash = server.stats("d")["flash"].clone();
        println!("{}, round {round}: {marks} marks, afterwards {flash}", D::NAME);
        assert!(marks > 0, "nothing was acknowledged");
        assert!(!log.is_empty() || flash["hits"].as_u64() > Some(0), "{flash}");
    }
    home.sound(disk);
    assert_eq!(server.stop(), 0);
    disks.store.unmount();
}

/// Waits until so much was counted of the level on flash.
fn wait_for_flash(server: &Server, name: &str, least: u64) {
    let deadline = Instant::now() + PATIENCE;
    let flash = || server.stats("d")["flash"].clone();
    while flash()[name].as_u64().is_none_or(|count| count < least) {
        assert!(Instant::now() < deadline, "{}", flash());
        sleep(Duration::from_millis(50));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two minutes: make check-slow"]
async fn mariadb_on_a_write_log_survives_a_power_cut() {
    let Some(tpcc) = available::<MariaDb>(&["prlimit"]) else { return };
    let (place, mut random) = (Place::new(), seeded("power, mariadb"));
    let log = format!("log(log/nbd,size={LOG_BYTES}):");
    tokio::task::block_in_place(|| power_goes::<MariaDb>(&place, tpcc, &log, &mut random));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "two minutes: make check-slow"]
async fn postgres_on_a_warm_level_survives_a_power_cut() {
    let Some(tpcc) = available::<Postgres18>(&["prlimit"]) else { return };
    if !tools().join("postgresql-18").is_dir() {
        return skipped("power", "PostgreSQL 18 is not installed by tools/setup.sh");
    }
    let (place, mut random) = (Place::new(), seeded("power, postgres"));
    tokio::task::block_in_place(|| power_goes::<Postgres18>(&place, tpcc, "", &mut random));
}
